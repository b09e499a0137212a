// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loopmq/reactor/remoting"
)

// buffer is bytes from a pool: a session's encoded replies until they are written, or the frame that is not whole yet.
// Idle sessions have neither.
type buffer struct{ b []byte }

// gatherMax is how much a turn gathers before it writes in between: a few bytes of requests can ask for many of answers.
const gatherMax = 1 << 20

// outKeepMax is the largest buffer that goes back to the pool.
const outKeepMax = 256 << 10

var outBuffers = sync.Pool{New: func() any { return new(buffer) }}

func putOut(o *buffer) {
	if o != nil && cap(o.b) <= outKeepMax {
		o.b = o.b[:0]
		outBuffers.Put(o)
	}
}

// loan is a reply's body that stays its lender's until it was sent or copied.
type loan struct {
	at       int // it goes behind out.b[:at]
	parts    [][]byte
	size     int
	release  func()
	optional bool // may be refused
}

func releaseLoans(logger *slog.Logger, loans []loan) {
	for i := range loans {
		guard(logger, "release of a loan", loans[i].release)
		loans[i] = loan{}
	}
}

// reply encodes resp into the session's output and makes sure that somebody writes it. l, when not nil, is the body; it
// is released when nobody will send it, but not when it is optional and there is no room for it: then taken is false.
func (s *Session) reply(resp *remoting.Command, l *loan) (taken bool) {
	taken, lent := s.replyOrNot(resp, l, nil)
	if l != nil && taken && !lent {
		guard(s.core.logger, "release of a loan", l.release)
	}
	return taken
}

// replyOrNot keeps what comes with an answer that is gathered: lent says whether it did.
func (s *Session) replyOrNot(resp *remoting.Command, l *loan, note any) (taken, lent bool) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return true, false
	}
	if l != nil && l.optional && !s.hasRoom(l.size) {
		s.mu.Unlock()
		return false, false
	}
	bodyLen := 0
	if l != nil {
		bodyLen = l.size
	}
	if err := s.appendLocked(resp, bodyLen); err != nil {
		_ = s.appendLocked(tooLong(resp, err), 0)
	} else if l != nil {
		l.at = len(s.out.b)
		s.loans = append(s.loans, *l)
		lent = true
	}
	if note != nil {
		s.notes = append(s.notes, note)
		lent = true
	}
	s.replies++
	if bodyLen += len(resp.Body); bodyLen > 0 {
		s.bodies += bodyLen
		s.unmeasured.Add(int64(bodyLen))
		if s.bodies > gatherMax {
			s.crowded.Store(true)
		}
	}
	s.unlockAndJoin()
	return true, lent
}

// hasRoom says whether a body keeps unsent output half-way between the mark and where the connection is closed; for good
// only under mu, under which bodies are added.
func (s *Session) hasRoom(bodyLen int) bool {
	unsent := s.outboundSize.Load() + s.unmeasured.Load()
	return unsent == 0 || unsent+int64(bodyLen) <= int64(s.core.outboundMark*3/2)
}

// appendLocked encodes cmd, unless the frame would be over the limit: the peer would close the connection and fail all
// that it waits for.
func (s *Session) appendLocked(cmd *remoting.Command, bodyLen int) error {
	if s.out == nil {
		s.out = outBuffers.Get().(*buffer)
	}
	at := len(s.out.b)
	s.out.b = cmd.AppendTo(s.out.b, bodyLen)
	if cmd.Body != nil {
		bodyLen = 0 // it is in the buffer
	}
	if size := len(s.out.b) - at + bodyLen; size > remoting.FrameLengthMax {
		s.out.b = s.out.b[:at]
		return fmt.Errorf("frame of %d bytes is over the limit of %d", size, remoting.FrameLengthMax)
	}
	if len(s.out.b) > gatherMax {
		s.crowded.Store(true)
	}
	return nil
}

// tooLong is what is answered instead of resp.
func tooLong(resp *remoting.Command, err error) *remoting.Command {
	return &remoting.Command{
		Code: remoting.SystemError, Version: resp.Version, Opaque: resp.Opaque, Flag: resp.Flag, Serialize: resp.Serialize,
		Remark: []byte(err.Error()),
	}
}

// unlockAndJoin ends a section that began with locking s.mu and has added to the output.
func (s *Session) unlockAndJoin() {
	join := !s.flushing
	s.flushing = true
	s.mu.Unlock()
	if join {
		s.loop.join(s)
	}
}

// flush writes what has been gathered, on the loop. The connection may be closed when it returns.
func (s *Session) flush(now time.Time) {
	l := s.loop
	s.mu.Lock()
	out, replies, bodies := s.out, s.replies, s.bodies
	loans := append(l.loans[:0], s.loans...)
	clear(s.loans)
	l.notes = append(l.notes, s.notes...)
	clear(s.notes)
	s.notes = s.notes[:0]
	s.out, s.loans, s.replies, s.bodies = nil, s.loans[:0], 0, 0
	s.flushing = false
	s.crowded.Store(false)
	s.mu.Unlock()
	if out == nil {
		return
	}
	l.parts = gather(l.parts[:0], out.b, loans)
	err := s.conn.Writev(l.parts)
	clear(l.parts)
	l.responses.Add(int64(replies))
	l.bytesOut.Add(int64(sizeOf(out.b, loans)))
	releaseLoans(s.core.logger, loans)
	l.loans = loans[:0]
	putOut(out)
	switch {
	case s.conn.Closed():
	case err != nil:
		s.closeTorn(err)
	default:
		s.lastWrite = now
		s.measureOutbound(now)
	}
	if bodies > 0 {
		s.unmeasured.Add(int64(-bodies)) // what of it the socket did not take is measured by now
	}
}

// closeTorn ends a session whose connection closes, because part of a frame was written whose rest is not to be had.
func (s *Session) closeTorn(err error) {
	if s.beginClose(err.Error()) {
		s.core.logger.Error("connection closed: an answer cannot be written", "peer", s.remote, "error", err)
	}
}

func gather(parts [][]byte, out []byte, loans []loan) [][]byte {
	from := 0
	for i := range loans {
		parts = append(parts, out[from:loans[i].at])
		parts = append(parts, loans[i].parts...)
		from = loans[i].at
	}
	return append(parts, out[from:])
}

func sizeOf(out []byte, loans []loan) int {
	size := len(out)
	for i := range loans {
		size += loans[i].size
	}
	return size
}

// measureOutbound looks at what gnet holds for a peer that does not read: gnet takes everything and reports nothing.
func (s *Session) measureOutbound(now time.Time) {
	unsent := s.conn.OutboundBuffered()
	if s.closing.Load() || unsent == 0 && s.outboundSize.Load() == 0 {
		return
	}
	mark := s.core.outboundMark
	s.watchOutbound(unsent, now)
	switch {
	case unsent > 2*mark:
		s.closeOutbound(fmt.Sprintf("%d bytes unsent, over twice the mark of %d", unsent, mark))
	case unsent > mark && now.Sub(s.aboveMarkSince) > s.core.outboundMarkAge:
		s.closeOutbound(fmt.Sprintf("%d bytes unsent, above the mark of %d for %v", unsent, mark, s.core.outboundMarkAge))
	default:
		s.core.outputs.hold(s, unsent)
	}
}

func (s *Session) watchOutbound(unsent int, now time.Time) {
	switch {
	case unsent <= s.core.outboundMark:
		s.aboveMarkSince = time.Time{}
	case s.aboveMarkSince.IsZero():
		s.aboveMarkSince = now
	}
	if unsent > 0 {
		s.loop.watch(s)
	} else {
		s.loop.unwatch(s)
	}
}

func (s *Session) closeOutbound(reason string) {
	s.loop.closedOutbound.Add(1)
	s.closeOver(reason)
}
