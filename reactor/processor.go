// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"time"

	"loopmq/reactor/remoting"
)

// Processor answers requests of one or more codes. Process runs on the connection's loop, or on a worker when the
// code was registered with a Lane; on the loop it must neither block nor fault. The request and all that it borrows are
// valid until Process returns (on a lane they are an owned copy); what is answered later keeps req.ReplyTo().
type Processor interface {
	Process(req *Request)
}

// ProcessorFunc makes a function a Processor.
type ProcessorFunc func(req *Request)

func (f ProcessorFunc) Process(req *Request) { f(req) }

// TurnProcessor is a Processor that gathers work over one loop turn: EndTurn runs on the loop after the last request
// of the turn and before the turn's replies are written.
type TurnProcessor interface {
	Processor
	EndTurn(loop *Loop)
}

// Request is one decoded request.
type Request struct {
	remoting.Command
	Session *Session
	// ReceivedAt is when the loop turn that decoded it began.
	ReceivedAt time.Time
}

// Reply answers the request, once, from any goroutine; resp is encoded before it returns and is the caller's again.
// Opaque, flag, version and serialize type are set here; a one-way request is never answered.
func (r *Request) Reply(resp *remoting.Command) { r.ReplyTo().Reply(resp) }

// ReplyCode answers with a code and a remark.
func (r *Request) ReplyCode(code int32, remark string) { r.ReplyTo().ReplyCode(code, remark) }

// ReplyTo is what is needed to answer later: small, comparable, no pointers into the frame.
func (r *Request) ReplyTo() ReplyTo {
	return ReplyTo{Session: r.Session, Opaque: r.Opaque, Serialize: r.Serialize, Oneway: r.IsOneway()}
}

// ReplyTo answers one request from any goroutine. Replies of one session are gathered and leave in one write per turn.
type ReplyTo struct {
	Session   *Session
	Opaque    int32
	Serialize remoting.SerializeType
	Oneway    bool
}

// Reply sends resp, which is encoded before it returns and then is the caller's again.
func (t ReplyTo) Reply(resp *remoting.Command) {
	if !t.Oneway {
		t.address(resp)
		t.Session.reply(resp, nil)
	}
}

// ReplyTold is Reply for who wants to know when the answer is written: the server's OnTold gets note, on the loop, with
// those of the other answers that were written with it. It is false, and note stays the caller's, when nobody will write
// the answer: the session has ended, or the request was one-way.
func (t ReplyTo) ReplyTold(resp *remoting.Command, note any) (kept bool) {
	if t.Oneway {
		return false
	}
	t.address(resp)
	_, kept = t.Session.replyOrNot(resp, nil, note)
	return kept
}

// ReplyCode answers with a code and a remark.
func (t ReplyTo) ReplyCode(code int32, remark string) {
	t.Reply(&remoting.Command{Code: code, Remark: []byte(remark)})
}

// ReplyLoans sends resp with a body made of parts (bodyLen bytes in all) that are not copied by the caller: release
// runs exactly once, when the bytes were sent or copied, or the connection is gone; possibly before ReplyLoans returns.
// Until then parts is not the caller's.
func (t ReplyTo) ReplyLoans(resp *remoting.Command, parts [][]byte, bodyLen int, release func()) {
	t.replyLoans(resp, &loan{parts: parts, size: bodyLen, release: release})
}

// TryReplyLoans is ReplyLoans for bodies that can be made again. It is false, and nothing has happened, when the session
// holds unsent output to which the body would add too much: many bodies that were begun side by side, with the session
// Writable, must not get it closed. The only body may have any size.
func (t ReplyTo) TryReplyLoans(resp *remoting.Command, parts [][]byte, bodyLen int, release func()) bool {
	return t.replyLoans(resp, &loan{parts: parts, size: bodyLen, release: release, optional: true})
}

func (t ReplyTo) replyLoans(resp *remoting.Command, l *loan) (taken bool) {
	if t.Oneway {
		l.release()
		return true
	}
	t.address(resp)
	resp.Body = nil
	return t.Session.reply(resp, l)
}

func (t ReplyTo) address(resp *remoting.Command) {
	resp.Opaque, resp.Flag, resp.Serialize = t.Opaque, remoting.FlagResponse, t.Serialize
	resp.Version = remoting.Version
}
