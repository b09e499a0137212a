// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"errors"
	"log/slog"
	"time"

	"loopmq/reactor/remoting"
)

var (
	// ErrTimeout is the error of a request that was not answered in time.
	ErrTimeout = errors.New("reactor: no answer in time")
	// ErrTooManyPending is the error of a request beyond the number that may be under way.
	ErrTooManyPending = errors.New("reactor: too many requests under way")
)

// call is one request under way to the peer. Whoever takes it out of Session.pending finishes it.
type call struct {
	done  func(resp *remoting.Command, err error)
	timer *time.Timer // nil when the caller watches the time
}

func (c *call) finish(logger *slog.Logger, resp *remoting.Command, err error) {
	if c.timer != nil {
		c.timer.Stop()
	}
	guard(logger, "answer to a request of ours", func() { c.done(resp, err) })
}

// InvokeOneway sends the broker's own request to the client, without an answer.
func (s *Session) InvokeOneway(req *remoting.Command) error {
	_, err := s.request(req, remoting.FlagOneway, nil)
	return err
}

// InvokeAsync sends a request to the client; done runs once: on the loop, on a timer's goroutine, at close, or before
// InvokeAsync returns when the session is closed or has too many requests under way. resp is owned by done.
func (s *Session) InvokeAsync(req *remoting.Command, timeout time.Duration, done func(resp *remoting.Command, err error)) {
	opaque, err := s.invoke(req, done)
	if err != nil {
		done(nil, err)
		return
	}
	timer := time.AfterFunc(timeout, func() { s.abandon(opaque, ErrTimeout) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.pending[opaque]; ok {
		c.timer = timer
	} else {
		timer.Stop() // answered already
	}
}

// invoke sends req; done runs once, unless there is an error.
func (s *Session) invoke(req *remoting.Command, done func(*remoting.Command, error)) (opaque int32, err error) {
	return s.request(req, 0, &call{done: done})
}

func (s *Session) request(req *remoting.Command, flag int32, c *call) (opaque int32, err error) {
	out := *req
	out.Opaque, out.Flag, out.Version = s.core.opaque.Add(1), flag, remoting.Version
	s.mu.Lock()
	switch {
	case s.ended:
		err = ErrClosed
	case c != nil && len(s.pending) >= s.core.pendingMax:
		err = ErrTooManyPending
	default:
		err = s.appendLocked(&out, 0)
	}
	if err != nil {
		s.mu.Unlock()
		return 0, err
	}
	if c != nil {
		if s.pending == nil {
			s.pending = make(map[int32]*call)
		}
		s.pending[out.Opaque] = c
	}
	s.unlockAndJoin()
	return out.Opaque, nil
}

// take removes a request under way; nil when it is finished already.
func (s *Session) take(opaque int32) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pending[opaque]
	delete(s.pending, opaque)
	return c
}

// abandon ends a request that was not answered.
func (s *Session) abandon(opaque int32, err error) {
	if c := s.take(opaque); c != nil {
		c.finish(s.core.logger, nil, err)
	}
}

// complete is the answer to a request of ours. One that nobody waits for (any more) is dropped.
func (s *Session) complete(resp *remoting.Command) {
	if c := s.take(resp.Opaque); c != nil {
		c.finish(s.core.logger, resp.Clone(), nil)
	}
}
