// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor/remoting"
)

// Session is one connection that speaks remoting. Its methods may be called from any goroutine.
type Session struct {
	core          *core
	conn          Conn // everything goes through it: a TLS layer would be another Conn in its place
	loop          *Loop
	id            uint64
	vip           bool
	remote, local netip.AddrPort
	owner         any // of a dialled session: its address's entry in the client

	// Touched by the loop alone.
	partial             *buffer // the beginning of a frame whose end has not come; gnet's own buffer stays empty
	partialSince        time.Time
	lastRead, lastWrite time.Time
	aboveMarkSince      time.Time // zero: unsent output is within the mark

	// Published by the loop.
	partialSize, outboundSize atomic.Int64
	closing, closed           atomic.Bool
	crowded                   atomic.Bool // out, or the bodies that go with it, have grown large within one turn

	unmeasured atomic.Int64  // bytes of answers' bodies that are gathered, or written and not yet in outboundSize
	heard      atomic.Uint32 // turns: whether the peer said anything since

	mu          sync.Mutex // guards the rest of the fields, and is held for no longer than an encode
	out         *buffer    // replies that are encoded and not written; nil when there are none
	loans       []loan     // bodies that go between the bytes of out
	notes       []any      // of answers in out
	replies     int
	bodies      int  // bytes of bodies in out and loans
	flushing    bool // somebody is about to write: the turn, or the loop's list
	ended       bool
	closeReason string
	pending     map[int32]*call
}

func (s *Session) RemoteAddr() netip.AddrPort { return s.remote }
func (s *Session) LocalAddr() netip.AddrPort  { return s.local }
func (s *Session) Loop() *Loop                { return s.loop }

// VIP says that the session came in on one of Addrs[1:], Java's listenPort-2.
func (s *Session) VIP() bool    { return s.vip }
func (s *Session) Closed() bool { return s.closed.Load() }

// OnLoop has f run on the session's loop, soon; what f answers is written when it returns. f does not block. After the end
// of the server it does not run.
func (s *Session) OnLoop(f func()) { s.loop.run(queued{s, f}) }

// ID is unique in this process.
func (s *Session) ID() uint64 { return s.id }

// Writable is false while unsent output is above the connection's mark: produce no pull data then. Bodies count from the
// moment they are given, so that many answers that are made side by side cannot pass the mark together.
func (s *Session) Writable() bool {
	return s.outboundSize.Load()+s.unmeasured.Load() <= int64(s.core.outboundMark) && !s.closing.Load()
}

// Takes is Writable for a body of this size: TryReplyLoans would take it.
func (s *Session) Takes(bodyLen int) bool { return s.Writable() && s.hasRoom(bodyLen) }

// Close closes the connection; OnSessionClose gets the reason. What was answered before the call is written, as far as
// the peer takes it.
func (s *Session) Close(reason string) {
	if s.beginClose(reason) {
		s.conn.Post(func() {
			now := time.Now()
			s.flush(now)
			s.loop.leave(now)
			s.conn.Close()
		})
	}
}

func (s *Session) beginClose(reason string) bool {
	if !s.closing.CompareAndSwap(false, true) {
		return false
	}
	s.mu.Lock()
	s.closeReason = reason
	s.mu.Unlock()
	return true
}

// closeOver closes a connection that is over a limit, with a log line.
func (s *Session) closeOver(reason string) {
	if !s.beginClose(reason) {
		return
	}
	s.conn.Close()
	if suppressed, ok := s.core.overLimit.Allow(time.Now()); ok {
		s.core.logger.Warn("connection closed: over a limit", "peer", s.remote, "reason", reason, "suppressed", suppressed)
	}
}

// onTraffic is one turn of this session: all whole frames that are buffered, then one write of what they were answered.
func (s *Session) onTraffic() {
	buffered := s.conn.InboundBuffered()
	if s.closing.Load() {
		_, _ = s.conn.Discard(buffered)
		return
	}
	now := time.Now()
	s.lastRead = now
	s.heard.Add(1)
	s.loop.bytesIn.Add(int64(buffered))
	s.gather()
	if err := s.readFrames(now); err != nil {
		s.refuse(err)
		_, _ = s.conn.Discard(s.conn.InboundBuffered())
	}
	s.loop.endTurn()
	s.flush(now)
	s.loop.request.Session = nil
	s.loop.leave(now)
}

// gather makes the replies of this turn wait for its end.
func (s *Session) gather() {
	s.mu.Lock()
	s.flushing = true
	s.mu.Unlock()
}

// readFrames handles every whole frame and keeps what is left as the beginning of the next.
func (s *Session) readFrames(now time.Time) error {
	if whole, err := s.completePartial(now); err != nil || !whole {
		return err
	}
	buffered, err := s.conn.Peek(s.conn.InboundBuffered())
	if err != nil {
		return err
	}
	rest := buffered
	total := 0
	for !s.closing.Load() {
		if total, err = remoting.FrameLength(rest); err != nil || total == 0 || total > len(rest) {
			break
		}
		if err = s.handle(rest[:total:total], now); err != nil {
			break
		}
		poison(rest[:total])
		rest = rest[total:]
		if s.crowded.Load() {
			s.flush(now)
			s.gather()
		}
	}
	if err == nil && !s.closing.Load() {
		s.keepPartial(rest, total, now)
	} else if err != nil {
		err = fmt.Errorf("%w (%s)", err, greeting(rest))
	}
	_, _ = s.conn.Discard(len(buffered))
	return err
}

// handle decodes one whole frame and serves it.
func (s *Session) handle(frame []byte, now time.Time) error {
	req := &s.loop.request
	if err := remoting.Decode(frame, &req.Command); err != nil {
		return err
	}
	req.Session, req.ReceivedAt = s, now
	if req.IsResponse() {
		s.complete(&req.Command)
		return nil
	}
	s.core.dispatch(req)
	return nil
}

// refuse ends a connection whose peer does not speak the protocol.
func (s *Session) refuse(err error) {
	s.loop.protocolErrors.Add(1)
	if suppressed, ok := s.core.strangers.Allow(time.Now()); ok {
		s.core.logger.Warn("connection closed: protocol error", "peer", s.remote, "error", err, "suppressed", suppressed)
	}
	s.Close(err.Error())
}

// greeting guesses who talks to us in the wrong protocol. This is where TLS would begin, were it offered.
func greeting(b []byte) string {
	switch {
	case len(b) < frameLengthSize:
		return "first bytes missing"
	case b[0] == 0x16:
		return "a TLS client hello; TLS is not offered here"
	case string(b[:4]) == "PRI ":
		return "an HTTP/2 client"
	case string(b[:4]) == "GET ", string(b[:4]) == "POST", string(b[:4]) == "HEAD", string(b[:4]) == "PUT ", string(b[:4]) == "OPTI", string(b[:4]) == "CONN":
		return "an HTTP client"
	}
	return fmt.Sprintf("first bytes %x", b[:min(len(b), 8)])
}

// checkAge runs once a second.
func (s *Session) checkAge(now time.Time) {
	last := s.lastRead
	if s.lastWrite.After(last) {
		last = s.lastWrite
	}
	switch {
	case s.closing.Load():
	case s.partial != nil && now.Sub(s.partialSince) > s.partialAgeMax():
		s.loop.closedPartialAge.Add(1)
		s.closeOver(fmt.Sprintf("frame not complete after %v, %d bytes have come", now.Sub(s.partialSince), len(s.partial.b)))
	case now.Sub(last) > s.core.idleTimeout:
		s.loop.closedIdle.Add(1)
		s.core.logger.Debug("connection closed", "peer", s.remote, "reason", "idle", "limit", s.core.idleTimeout)
		s.Close("idle")
	}
}

// partialAgeMax grows with what has come: a message of megabytes over a slow line gets on, and takes its time.
func (s *Session) partialAgeMax() time.Duration {
	return s.core.partialFrameAgeMax + time.Duration(len(s.partial.b))*time.Second/partialFrameRateMin
}

// end is the last of a session: it gives back what the session holds and says why it closed.
func (s *Session) end(err error) (reason string) {
	s.closing.Store(true)
	s.closed.Store(true)
	s.mu.Lock()
	s.ended = true
	out, loans, notes, pending := s.out, s.loans, s.notes, s.pending
	s.out, s.loans, s.notes, s.pending = nil, nil, nil, nil
	reason = s.closeReason
	s.mu.Unlock()

	releaseLoans(s.core.logger, loans)
	putOut(out)
	if len(notes) > 0 {
		guard(s.core.logger, "notes of answers", func() { s.core.onTold(s.loop, notes, time.Time{}) })
	}
	s.partial.release()
	s.partial = nil
	s.core.partials.giveBack(s)
	s.core.outputs.giveBack(s)
	s.loop.unwatch(s)
	for _, call := range pending {
		call.finish(s.core.logger, nil, ErrClosed)
	}
	switch {
	case reason != "":
		return reason
	case err == nil:
		return "closed here"
	case errors.Is(err, io.EOF):
		return "closed by peer"
	}
	return err.Error()
}
