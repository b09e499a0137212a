// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// toldSession answers each request with its body as the note; what is told goes into told as text.
func toldSession() (*core, *memoryConn, *Session, *[]string) {
	var told []string
	c, conn, s := newMemorySession(func(c *core) {
		c.onTold = func(_ *Loop, notes []any, at time.Time) {
			for _, note := range notes {
				told = append(told, fmt.Sprint(note, " ", !at.IsZero()))
			}
		}
		c.fallback = c.newRegistration(ProcessorFunc(func(req *Request) {
			note := string(req.Body)
			if !req.ReplyTo().ReplyTold(&remoting.Command{}, note) {
				told = append(told, note+" kept")
			}
		}), nil, true)
	})
	return c, conn, s, &told
}

// Who answers with a note is told once, after the write, also when the connection ended first; a note that nobody will
// tell stays the caller's.
func TestReplyToldIsToldOnce(t *testing.T) {
	c, conn, s, told := toldSession()
	want := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(*told, want) {
			t.Errorf("%s: told %q; want %q", what, *told, want)
		}
		*told = nil
	}
	w := &wire{t: t}
	conn.in = append(w.frame(1, "a"), w.frame(2, "b")...)
	before := time.Now()
	c.OnTraffic(conn)
	if conn.writes != 1 {
		t.Fatalf("%d writes", conn.writes)
	}
	want("a turn", "a true", "b true")
	if l := s.loop; l.turnsTotal.Load() != 1 || l.busy.Load() < 1 || l.busy.Load() > int64(time.Since(before)) {
		t.Errorf("%d turns, busy for %d ns of %d", l.turnsTotal.Load(), l.busy.Load(), int64(time.Since(before)))
	}

	to := ReplyTo{Session: s, Opaque: 3}
	if !to.ReplyTold(&remoting.Command{}, "c") {
		t.Fatal("not kept")
	}
	want("gathered")
	conn.posts[0]()
	want("from another goroutine", "c true")

	to.Oneway = true
	if to.ReplyTold(&remoting.Command{}, "d") {
		t.Error("the note of a one-way request was kept")
	}
	to.Oneway = false
	to.ReplyTold(&remoting.Command{}, "e")
	c.OnClose(conn, nil)
	want("closed before the write", "e false")
	if to.ReplyTold(&remoting.Command{}, "f") {
		t.Error("the note of a closed session was kept")
	}
	want("closed")
}

// Requests count under the group of their code, before anything can refuse them; codes without a processor under 0.
func TestRequestsCountByGroup(t *testing.T) {
	c, conn, s := newMemorySession(func(c *core) {
		c.groupOf = func(code int32) int { return int(code % RequestGroupsMax) }
		for _, code := range []int32{3, 11, codesDense + 5} {
			c.register(code, ProcessorFunc(func(req *Request) { req.ReplyCode(0, "") }), nil, true)
		}
	})
	w := &wire{t: t}
	for _, code := range []int32{3, 11, codesDense + 5, 7} {
		conn.in = append(conn.in, w.frame(code, "")...)
	}
	c.OnTraffic(conn)
	c.refusing.Store(&refusal{1, ""})
	conn.in = w.frame(3, "")
	c.OnTraffic(conn)
	var got [RequestGroupsMax]int64
	for i := range got {
		got[i] = s.loop.requests[i].Load()
	}
	if want := [RequestGroupsMax]int64{0: 1, 3: 3, (codesDense + 5) % RequestGroupsMax: 1}; got != want {
		t.Errorf("%v; want %v", got, want)
	}
}
