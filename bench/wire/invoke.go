// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"time"

	"loopmq/reactor/remoting"
)

// CodeError is an answer that says no.
type CodeError struct {
	What   string // the request
	Code   int32
	Remark string
}

func (e *CodeError) Error() string {
	if e.Remark == "" {
		return fmt.Sprintf("%s: %s", e.What, remoting.ResponseName(e.Code))
	}
	return fmt.Sprintf("%s: %s: %s", e.What, remoting.ResponseName(e.Code), firstLine(e.Remark))
}

// firstLine keeps a remark of many lines, with Java's stack in it, out of a message.
func firstLine(s string) string {
	const most = 200
	for i := range s {
		if s[i] == '\n' || i >= most {
			return s[:i] + "…"
		}
	}
	return s
}

type command struct{ *remoting.Command }

func (c command) AppendFrame(dst []byte, opaque int32) []byte {
	c.Opaque = opaque
	return c.AppendTo(dst, 0)
}

// NewCommand is a request of the given code; fields are keys and values in turn.
func NewCommand(code int32, fields ...string) *remoting.Command {
	cmd := &remoting.Command{Code: code, Version: remoting.Version, Language: remoting.LanguageJava}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Ext.Add(fields[i], fields[i+1])
	}
	return cmd
}

// Invoke sends cmd and waits for its answer, which the caller owns, as long as the connection's timeout. It is for
// administration, not for load.
func (c *Conn) Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	type outcome struct {
		answer *remoting.Command
		err    error
	}
	ch := make(chan outcome, 1)
	call := &Call{Done: func(_ *Call, answer *remoting.Command, err error) {
		if err == nil {
			answer = answer.Clone()
		}
		ch <- outcome{answer, err}
	}}
	what := remoting.RequestName(cmd.Code)
	c.Lock()
	err := c.Send(call, command{cmd}, Clock())
	if err == nil {
		c.FlushLocked()
	}
	c.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case o := <-ch:
		if o.err != nil {
			return nil, fmt.Errorf("%s: %w", what, o.err)
		}
		return o.answer, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", what, ctx.Err())
	case <-timer.C:
		return nil, fmt.Errorf("%s: %s: %w", what, c.Addr(), ErrTimeout)
	}
}

// InvokeOK is Invoke for a request whose only good answer is SUCCESS.
func (c *Conn) InvokeOK(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	answer, err := c.Invoke(ctx, cmd)
	if err == nil && answer.Code != remoting.Success {
		return answer, &CodeError{remoting.RequestName(cmd.Code), answer.Code, string(answer.Remark)}
	}
	return answer, err
}
