// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/reactor/remoting"
)

// memoryConn is a Conn without a socket: what is put in arrives at the next OnTraffic, what is written is counted.
type memoryConn struct {
	in      []byte
	written int
	writes  int
	last    []byte
	posts   []func()
	context any
	closed  bool
}

func (c *memoryConn) InboundBuffered() int { return len(c.in) }
func (c *memoryConn) Read(p []byte) (int, error) {
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}
func (c *memoryConn) Peek(n int) ([]byte, error) { return c.in[:n], nil }
func (c *memoryConn) Discard(n int) (int, error) { c.in = c.in[n:]; return n, nil }
func (c *memoryConn) Writev(parts [][]byte) error {
	c.writes++
	c.last = c.last[:0]
	for _, p := range parts {
		c.written += len(p)
		c.last = append(c.last, p...)
	}
	return nil
}
func (c *memoryConn) OutboundBuffered() int      { return 0 }
func (c *memoryConn) Closed() bool               { return c.closed }
func (c *memoryConn) Context() any               { return c.context }
func (c *memoryConn) SetContext(v any)           { c.context = v }
func (c *memoryConn) RemoteAddr() netip.AddrPort { return netip.AddrPort{} }
func (c *memoryConn) LocalAddr() netip.AddrPort  { return netip.AddrPort{} }
func (c *memoryConn) Post(f func()) bool         { c.posts = append(c.posts, f); return true }
func (c *memoryConn) Close()                     { c.closed = true }

func newMemorySession(register func(c *core)) (*core, *memoryConn, *Session) {
	cfg := RemotingServerConfig{Logger: quiet()}
	s := NewRemotingServer(cfg)
	register(s.core)
	s.core.isVIP = nil
	conn := new(memoryConn)
	s.core.OnOpen(conn)
	return s.core, conn, conn.context.(*Session)
}

// However the stream is cut, the requests are the same (panjf2000/gnet#396).
func TestStreamCutAnywhere(t *testing.T) {
	var got []string
	c, conn, _ := newMemorySession(func(c *core) {
		c.fallback = c.newRegistration(ProcessorFunc(func(req *Request) {
			got = append(got, fmt.Sprint(req.Code, req.Opaque, req.Ext.String("k"), string(req.Body)))
		}), nil, true)
	})
	var stream []byte
	var want []string
	w := &wire{t: t}
	for i := range 50 {
		body := strings.Repeat(string(rune('a'+i%26)), i*i%97)
		stream = append(stream, w.frame(int32(i), body)...)
		want = append(want, fmt.Sprint(int32(i), int32(i+1), "line\n", body))
	}
	try := func(name string, pieces func(yield func(from, to int) bool)) {
		t.Helper()
		got = got[:0]
		pieces(func(from, to int) bool {
			conn.in = append([]byte(nil), stream[from:to]...)
			c.OnTraffic(conn)
			return true
		})
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%s:\n got %v\nwant %v", name, got, want)
		}
		if n := c.partials.sum.Load(); n != 0 {
			t.Fatalf("%s: %d bytes of partial frames left", name, n)
		}
	}
	step := 1
	if raceDetector {
		step = 31 // one goroutine: nothing to find but time to lose
	}
	for cut := 0; cut < len(stream); cut += step {
		try(fmt.Sprint("cut at ", cut), func(yield func(from, to int) bool) { _ = yield(0, cut) && yield(cut, len(stream)) })
	}
	for size := 1; size < 40; size += step {
		try(fmt.Sprint("pieces of ", size), func(yield func(from, to int) bool) {
			for at := 0; at < len(stream); at += size {
				yield(at, min(at+size, len(stream)))
			}
		})
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 200 / step {
		try(fmt.Sprint("random pieces ", n), func(yield func(from, to int) bool) {
			for at := 0; at < len(stream); {
				to := min(len(stream), at+rnd.IntN(1+len(stream)/(1+n%20)))
				yield(at, to)
				at = to
			}
		})
	}
}

// Any bytes, cut anywhere: no panic, and nothing stays accounted for.
func FuzzSession(f *testing.F) {
	w := &wire{}
	f.Add(append(w.frame(10, "body"), w.frame(34, "")...), uint16(7))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint16(3))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		c, conn, s := newMemorySession(func(c *core) { c.register(10, echo, nil, true) })
		for len(stream) > 0 {
			n := min(len(stream), 1+int(size))
			conn.in = append([]byte(nil), stream[:n]...)
			stream = stream[n:]
			c.OnTraffic(conn)
			if len(conn.in) > 0 {
				t.Fatalf("%d bytes left in the connection's buffer", len(conn.in))
			}
			if s.partial != nil && int64(cap(s.partial.b)) != c.partials.sum.Load() {
				t.Fatalf("partial frame of %d bytes, %d accounted for", cap(s.partial.b), c.partials.sum.Load())
			}
		}
		c.OnClose(conn, nil)
		if n := c.partials.sum.Load(); n != 0 {
			t.Fatalf("%d bytes of partial frames left", n)
		}
	})
}

// In steady state a turn of sends costs no allocation, and one write.
func TestTurnAllocatesNothing(t *testing.T) {
	var resp remoting.Command
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(remoting.SendMessageV2, ProcessorFunc(func(req *Request) {
			resp.Ext.Reset()
			resp.Ext.AddInt("queueOffset", 1<<40)
			req.Reply(&resp)
		}), nil, true)
	})
	var stream []byte
	w := &wire{t: t}
	for range 33 {
		stream = append(stream, w.frame(remoting.SendMessageV2, strings.Repeat("b", 1024))...)
	}
	cut := len(stream) - 500 // a partial frame stays behind each time
	turn := func() {
		conn.in = stream[:cut]
		c.OnTraffic(conn)
		conn.in = stream[cut:]
		c.OnTraffic(conn)
	}
	turn()
	conn.writes = 0
	if n := testing.AllocsPerRun(100, turn); n >= 1 && !raceDetector { // the pools may be emptied by a collection
		t.Fatalf("%v allocations per turn of 32 requests", n)
	}
	if conn.writes > 2*101 {
		t.Fatalf("%d writes for %d turns", conn.writes, 2*101)
	}
}

type turnProcessor struct {
	log     []string
	replies []ReplyTo
}

func (p *turnProcessor) Process(req *Request) {
	p.log = append(p.log, fmt.Sprint("process ", req.Opaque))
	p.replies = append(p.replies, req.ReplyTo())
}

func (p *turnProcessor) EndTurn(loop *Loop) {
	p.log = append(p.log, fmt.Sprint("end of ", len(p.replies)))
	for _, r := range p.replies {
		r.Reply(&remoting.Command{})
	}
	p.replies = p.replies[:0]
}

// The turn's end comes once, however many codes and requests its processor had, and before the one write.
func TestTurnProcessor(t *testing.T) {
	p := new(turnProcessor)
	idle := new(turnProcessor)
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(10, p, nil, true)
		c.register(310, p, nil, true)
		c.register(11, idle, nil, true)
		c.register(34, echo, nil, true)
	})
	w := &wire{t: t}
	for _, code := range []int32{10, 34, 310, 10} {
		conn.in = append(conn.in, w.frame(code, "")...)
	}
	c.OnTraffic(conn)
	if got, want := fmt.Sprint(p.log), "[process 1 process 3 process 4 end of 3]"; got != want || len(idle.log) > 0 {
		t.Fatalf("got %s, %s; want %s", got, idle.log, want)
	}
	if conn.writes != 1 || len(conn.posts) != 0 {
		t.Fatalf("%d writes, %d posts; want 1, 0", conn.writes, len(conn.posts))
	}
}

// Answers that are given together wake their loop behind the last of them, and one that comes meanwhile is not forgotten.
func TestRepliesTogether(t *testing.T) {
	var held []ReplyTo
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(10, ProcessorFunc(func(req *Request) { held = append(held, req.ReplyTo()) }), nil, true)
	})
	w := &wire{t: t}
	other := new(memoryConn)
	c.OnOpen(other)
	for _, m := range []*memoryConn{conn, other} {
		m.in = append(w.frame(10, ""), w.frame(10, "")...)
		c.OnTraffic(m)
	}
	posts := func() int { return len(conn.posts) + len(other.posts) }
	c.together(func() {
		for _, h := range held {
			h.Reply(&remoting.Command{})
		}
		c.together(func() {})
		if posts() != 0 {
			t.Error("the loop is woken before the last answer")
		}
	})
	if posts() != 1 {
		t.Fatalf("%d posts for %d answers", posts(), len(held))
	}
	for _, f := range append(conn.posts, other.posts...) {
		f()
	}
	if conn.writes != 1 || other.writes != 1 {
		t.Fatalf("%d and %d writes; want 1 each", conn.writes, other.writes)
	}
}

// What is to run on a loop runs in order, not all of it at once, and its answers are written together.
func TestOnLoop(t *testing.T) { synctest.Test(t, testOnLoop) }

func testOnLoop(t *testing.T) {
	var held []ReplyTo
	var session *Session
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(10, ProcessorFunc(func(req *Request) { held, session = append(held, req.ReplyTo()), req.Session }), nil, true)
	})
	const runs = 3*runsMax + 1
	w := &wire{t: t}
	for range runs {
		conn.in = append(conn.in, w.frame(10, "")...)
	}
	c.OnTraffic(conn)
	var ran []int
	for i := range runs {
		session.OnLoop(func() {
			ran = append(ran, i)
			held[i].Reply(&remoting.Command{})
			if i == 0 { // queued behind the others
				session.OnLoop(func() { ran = append(ran, runs) })
			}
		})
	}
	for rounds := 1; len(conn.posts) > 0; rounds++ {
		if len(conn.posts) != 1 {
			t.Fatalf("%d posts at once", len(conn.posts))
		}
		post := conn.posts[0]
		conn.posts = nil
		post()
		time.Sleep(runsPause)
		synctest.Wait()
		want := min(rounds*runsMax, runs)
		if rounds > runs/runsMax+1 {
			want++ // what was queued meanwhile
		}
		if conn.writes != min(rounds, runs/runsMax+1) || len(ran) != want {
			t.Fatalf("round %d: %d writes, %d ran", rounds, conn.writes, len(ran))
		}
	}
	if len(ran) != runs+1 || !slices.IsSorted(ran) {
		t.Fatalf("ran %v", ran)
	}
}

// Answers from elsewhere to many sessions of one loop: one post, one write for each.
func TestRepliesShareOnePost(t *testing.T) {
	var held []ReplyTo
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(10, ProcessorFunc(func(req *Request) { held = append(held, req.ReplyTo()) }), nil, true)
	})
	w := &wire{t: t}
	conns := []*memoryConn{conn, new(memoryConn), new(memoryConn)}
	for i, m := range conns {
		if i > 0 {
			c.OnOpen(m)
		}
		m.in = append(w.frame(10, ""), w.frame(10, "")...)
		c.OnTraffic(m)
	}
	for _, h := range held {
		h.Reply(&remoting.Command{})
	}
	posts := 0
	for _, m := range conns {
		posts += len(m.posts)
		for _, f := range m.posts {
			f()
		}
	}
	if posts != 1 {
		t.Fatalf("%d posts for %d answers", posts, len(held))
	}
	for _, m := range conns {
		if m.writes != 1 {
			t.Fatalf("%d writes; want 1", m.writes)
		}
	}
}

// A few bytes of requests that ask for much do not gather it all.
func TestTurnWritesInBetween(t *testing.T) {
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(21, ProcessorFunc(func(req *Request) { req.Reply(&remoting.Command{Body: make([]byte, 256<<10)}) }), nil, true)
	})
	w := &wire{t: t}
	for range 100 {
		conn.in = append(conn.in, w.frame(21, "")...)
	}
	c.OnTraffic(conn)
	if conn.writes < 15 || cap(conn.last) > 4<<20 {
		t.Fatalf("%d writes, the last into a buffer of %d", conn.writes, cap(conn.last))
	}
}

func TestOnewayIsNeverAnswered(t *testing.T) {
	released := false
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(10, echo, nil, true)
		c.register(12, ProcessorFunc(func(*Request) { panic("x") }), nil, true)
		c.register(13, ProcessorFunc(func(req *Request) {
			req.ReplyTo().ReplyLoans(&remoting.Command{}, nil, 0, func() { released = true })
		}), nil, true)
	})
	for _, code := range []int32{10, 12, 13, 999} {
		req := remoting.Command{Code: code, Flag: remoting.FlagOneway}
		conn.in = req.AppendTo(conn.in, 0)
	}
	c.OnTraffic(conn)
	c.refusing.Store(&refusal{code: 14})
	req := remoting.Command{Code: 10, Flag: remoting.FlagOneway}
	conn.in = req.AppendTo(nil, 0)
	c.OnTraffic(conn)
	if conn.written != 0 || !released {
		t.Fatalf("%d bytes written, loan released: %v", conn.written, released)
	}
}

func answerOf(t *testing.T, conn *memoryConn) *remoting.Command {
	t.Helper()
	c := new(remoting.Command)
	if err := remoting.Decode(conn.last, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnswerOverTheFrameLimit(t *testing.T) {
	released := 0
	c, conn, _ := newMemorySession(func(c *core) {
		c.register(1, ProcessorFunc(func(req *Request) {
			req.Reply(&remoting.Command{Body: make([]byte, remoting.FrameLengthMax)})
		}), nil, true)
		c.register(2, ProcessorFunc(func(req *Request) {
			req.ReplyTo().ReplyLoans(&remoting.Command{}, [][]byte{make([]byte, remoting.FrameLengthMax)}, remoting.FrameLengthMax, func() { released++ })
		}), nil, true)
	})
	w := &wire{t: t}
	for _, code := range []int32{1, 2} {
		conn.in = w.frame(code, "")
		c.OnTraffic(conn)
		if a := answerOf(t, conn); a.Code != remoting.SystemError || a.Opaque != w.opaque || !strings.Contains(string(a.Remark), "limit") {
			t.Fatalf("code %d: %+v", code, a)
		}
	}
	if released != 1 {
		t.Fatalf("released %d times", released)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	var log logs
	lane := NewLane("test", 1, 10)
	defer lane.Stop()
	s := startServer(t, RemotingServerConfig{Logger: log.logger()}, func(s *RemotingServer) {
		s.RegisterProcessor(1, ProcessorFunc(func(*Request) { panic("on the loop") }), nil, true)
		s.RegisterProcessor(2, ProcessorFunc(func(*Request) { panic(errors.New("on a lane")) }), lane, true)
		s.RegisterProcessor(10, echo, nil, true)
	})
	w := dial(t, s.Addr())
	for code, remark := range map[int32]string{1: "on the loop", 2: "on a lane"} {
		w.send(w.frame(code, ""))
		if a := w.receive(); a.Code != remoting.SystemError || string(a.Remark) != remark {
			t.Fatalf("got %d %s", a.Code, a.Remark)
		}
	}
	w.send(w.frame(10, ""))
	w.receive()
	if n := log.count("msg=panic"); n != 2 {
		t.Fatalf("%d stacks logged", n)
	}
}

func TestLane(t *testing.T) {
	lane := NewLane("test", 1, 2)
	gate, running := make(chan bool), make(chan bool, 10)
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) {
			running <- true
			<-gate
			echo(req)
		}), lane, true)
	})
	w := dial(t, s.Addr())
	w.send(w.frame(11, "first"))
	<-running
	for range 2 {
		w.send(w.frame(11, "queued"))
	}
	eventually(t, "queue full", func() bool { return lane.Len() == lane.Capacity() })
	time.Sleep(time.Millisecond)
	if wait := lane.HeadWait(); wait <= 0 || wait > soon {
		t.Fatalf("HeadWait=%v", wait)
	}
	w.send(w.frame(11, "over"))
	if a := w.receive(); a.Code != remoting.SystemBusy || string(a.Remark) != "[OVERLOAD]system busy, start flow control for a while" || a.Opaque != 4 {
		t.Fatalf("got %+v", a)
	}
	if lane.Submit(func() {}) {
		t.Fatal("submitted beyond the bound")
	}
	close(gate)
	for i, body := range []string{"first", "queued", "queued"} {
		if a := w.receive(); string(a.Body) != body || a.Opaque != int32(i+1) {
			t.Fatalf("got %+v", a)
		}
	}
	ran := make(chan bool)
	if !lane.Submit(func() { ran <- true }) {
		t.Fatal("not submitted")
	}
	<-ran
	if lane.HeadWait() != 0 || lane.Len() != 0 {
		t.Fatal("the queue is not empty")
	}
	lane.Stop()
	if lane.Submit(func() {}) {
		t.Fatal("submitted after Stop")
	}
	w.send(w.frame(11, "late"))
	if a := w.receive(); a.Code != remoting.SystemBusy {
		t.Fatalf("got %+v", a)
	}
	lane.Stop()
}

// However large the frames that wait for a worker, together they own no more than the bound.
func TestLaneBoundsBytes(t *testing.T) {
	const frame, fit, over = laneBytesMax/8 - 1024, 8, 3
	lane := NewLane("test", 1, 1000)
	defer lane.Stop()
	gate, running := make(chan bool), make(chan bool, 100)
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) {
			running <- true
			<-gate
			req.ReplyCode(remoting.Success, "")
		}), lane, true)
	})
	w := dial(t, s.Addr())
	body := strings.Repeat("b", frame)
	w.send(w.frame(11, body))
	<-running
	for range fit + over {
		w.send(w.frame(11, body))
	}
	for range over {
		if a := w.receive(); a.Code != remoting.SystemBusy || string(a.Remark) != overloadRemark {
			t.Fatalf("got %d %s", a.Code, a.Remark)
		}
	}
	if n := lane.Len(); n != fit {
		t.Fatalf("%d frames of %d bytes wait; want %d", n, frame, fit)
	}
	open()
	for range 1 + fit {
		if a := w.receive(); a.Code != remoting.Success {
			t.Fatalf("got %d %s", a.Code, a.Remark)
		}
	}
	w.send(w.frame(11, body))
	if a := w.receive(); a.Code != remoting.Success {
		t.Fatalf("when all is done: %d %s", a.Code, a.Remark)
	}
}

// The ring grows from small to its capacity and keeps the order.
func TestLaneKeepsOrder(t *testing.T) {
	lane := NewLane("test", 1, 1000)
	defer lane.Stop()
	var mu sync.Mutex
	var got []int
	begin := make(chan bool)
	lane.Submit(func() { <-begin })
	for i := range 700 {
		if !lane.Submit(func() { mu.Lock(); got = append(got, i); mu.Unlock() }) {
			t.Fatal(i)
		}
	}
	close(begin)
	eventually(t, "all ran", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == 700 })
	for i, v := range got {
		if i != v {
			t.Fatalf("%d ran as number %d", v, i)
		}
	}
}

func TestRefuseNewAndStopSendsReplies(t *testing.T) {
	const held = 500
	replies := make(chan ReplyTo, held)
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(10, ProcessorFunc(func(req *Request) { replies <- req.ReplyTo() }), nil, true)
	})
	w := dial(t, s.Addr())
	for range held {
		w.send(w.frame(10, ""))
	}
	var waiting []ReplyTo
	for range held {
		waiting = append(waiting, <-replies)
	}
	s.RefuseNew(remoting.ServiceNotAvailable, "shutting down")
	w.send(w.frame(10, ""))
	if a := w.receive(); a.Code != remoting.ServiceNotAvailable || string(a.Remark) != "shutting down" {
		t.Fatalf("got %+v", a)
	}
	for _, r := range waiting {
		r.Reply(&remoting.Command{Body: make([]byte, 10_000)})
	}
	go s.Stop(soon)
	for range held {
		w.receive()
	}
	w.closedByServer()
	waiting[0].Reply(&remoting.Command{}) // nobody is there: nothing happens
}

// What a reply holds is given back exactly once, whatever becomes of the connection (panjf2000/gnet#465).
func TestLoansComeBackOnce(t *testing.T) {
	const clients, pulls = 100, 20
	var lent, returned atomic.Int64
	log := make([]byte, 256<<10)
	lane := NewLane("pull", 4, 100_000)
	s := startServer(t, RemotingServerConfig{NumLoops: 2, OutboundMark: 1 << 20}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) {
			var once atomic.Bool
			lent.Add(1)
			req.ReplyTo().ReplyLoans(&remoting.Command{}, [][]byte{log[:1000], log[1000:1000], log[1000:]}, len(log), func() {
				if once.Swap(true) {
					t.Error("released twice")
				}
				returned.Add(1)
			})
		}), lane, true)
	})
	var wg sync.WaitGroup
	for i := range clients {
		w := dial(t, s.Addr())
		wg.Go(func() {
			for range pulls {
				if _, err := w.Write(w.frame(11, "")); err != nil {
					return
				}
			}
			for range i % pulls {
				c, err := readCommand(w, soon)
				if err != nil || len(c.Body) != len(log) {
					break
				}
			}
			_ = w.Conn.(*net.TCPConn).SetLinger(0)
			_ = w.Close()
		})
	}
	wg.Wait()
	eventually(t, "all came back", func() bool { return s.Stats().Connections == 0 && lane.Len() == 0 && lent.Load() == returned.Load() })
	// And when the engine ends under them.
	w := dial(t, s.Addr())
	for range pulls {
		w.send(w.frame(11, ""))
	}
	eventually(t, "lent again", func() bool { return lent.Load() > 0 })
	s.Stop(0)
	lane.Stop()
	if lent.Load() != returned.Load() {
		t.Fatalf("%d lent, %d returned", lent.Load(), returned.Load())
	}
}

// Answers that many workers make side by side count before they are written.
func TestBodiesCountAtOnce(t *testing.T) {
	_, conn, s := newMemorySession(func(c *core) {})
	to := ReplyTo{Session: s}
	released := 0
	size := s.core.outboundMark/2 + 1
	to.Reply(&remoting.Command{Body: make([]byte, size)})
	if !s.Writable() {
		t.Fatal("half the mark, and not writable")
	}
	to.ReplyLoans(&remoting.Command{}, [][]byte{make([]byte, size)}, size, func() { released++ })
	if s.Writable() {
		t.Fatal("over the mark, and writable")
	}
	for _, f := range conn.posts {
		f()
	}
	if !s.Writable() || released != 1 {
		t.Fatalf("all is written: writable %v, released %d times", s.Writable(), released)
	}
}

// Bodies that are made side by side do not get their session closed: those for which there is no room are refused, and
// stay their maker's.
func TestOptionalBodiesAreRefused(t *testing.T) {
	_, conn, s := newMemorySession(func(c *core) {})
	to := ReplyTo{Session: s}
	mark := s.core.outboundMark
	released := 0
	try := func(to ReplyTo, size int) bool {
		return to.TryReplyLoans(&remoting.Command{}, [][]byte{make([]byte, size)}, size, func() { released++ })
	}
	if !try(to, remoting.FrameLengthMax-1000) {
		t.Fatal("the only body is refused")
	}
	if try(to, 1) || s.Takes(1) || released != 0 || s.replies != 1 {
		t.Fatalf("beyond the mark and taken; %d released, %d replies", released, s.replies)
	}
	if !try(ReplyTo{Session: s, Oneway: true}, 1) || released != 1 {
		t.Fatal("a one-way request is not done with")
	}
	write := func() {
		for _, f := range conn.posts {
			f()
		}
		conn.posts = nil
	}
	write()
	if released != 2 {
		t.Fatalf("%d released", released)
	}
	taken := 0
	for try(to, mark/4) {
		if taken++; taken == 3 && (!s.Takes(mark*3/4) || s.Takes(mark*3/4+1)) {
			t.Fatal("below the mark it takes what keeps it half above")
		}
	}
	if taken != 6 {
		t.Fatalf("%d quarters of the mark taken", taken)
	}
	write()
	s.end(nil)
	if !try(to, mark) || released != 2+taken+1 {
		t.Fatalf("an ended session: %d released", released)
	}
}

// Connections come and go at random times while several goroutines answer, push and close (panjf2000/gnet#479). For the
// race detector.
func TestStormOfConnections(t *testing.T) {
	clients := 2000
	if testing.Short() {
		clients = 300
	}
	answers := make(chan ReplyTo, 1<<16)
	var opened, closed atomic.Int64
	var sessions sync.Map
	s := startServer(t, RemotingServerConfig{
		NumLoops:       2,
		OnSessionOpen:  func(s *Session) { opened.Add(1); sessions.Store(s.ID(), s) },
		OnSessionClose: func(s *Session, _ string) { closed.Add(1); sessions.Delete(s.ID()) },
	}, func(s *RemotingServer) {
		s.RegisterProcessor(10, ProcessorFunc(func(req *Request) { answers <- req.ReplyTo() }), nil, true)
		s.RegisterProcessor(34, echo, nil, true)
	})
	stop := make(chan bool)
	var helpers, wg sync.WaitGroup
	for i := range 4 {
		helpers.Go(func() {
			var resp remoting.Command
			for {
				select {
				case a := <-answers:
					resp.Reset()
					if i == 0 {
						a.ReplyLoans(&resp, [][]byte{[]byte("loan")}, 4, func() {})
					} else {
						a.Reply(&resp)
					}
				case <-stop:
					return
				}
			}
		})
	}
	helpers.Go(func() { // pushes and closes from outside
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			sessions.Range(func(_, v any) bool {
				session := v.(*Session)
				_ = session.InvokeOneway(&remoting.Command{Code: remoting.NotifyConsumerIDsChanged})
				session.InvokeAsync(&remoting.Command{Code: 220}, time.Second, func(*remoting.Command, error) {})
				_ = session.Writable()
				if n%7 == 0 && session.ID()%13 == 0 {
					session.Close("storm")
				}
				n++
				return n%50 != 0
			})
			_ = s.Stats()
			time.Sleep(time.Millisecond)
		}
	})
	room := make(chan bool, 200)
	for i := range clients {
		room <- true
		wg.Go(func() {
			defer func() { <-room }()
			c, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			w := &wire{t: t, Conn: c}
			for n := range 1 + i%5 {
				_, _ = w.Write(append(w.frame(10, "x"), w.frame(34, "y")...))
				if (i+n)%3 == 0 {
					if _, err := readCommand(w, soon); err != nil {
						return
					}
				}
			}
			if i%4 == 0 {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
		})
	}
	wg.Wait()
	eventually(t, "all gone", func() bool { return closed.Load() == int64(clients) && opened.Load() == int64(clients) })
	close(stop)
	helpers.Wait()
}

func TestInvokeFromTheServer(t *testing.T) {
	open := make(chan *Session, 1)
	s := startServer(t, RemotingServerConfig{OnSessionOpen: func(s *Session) { open <- s }}, func(s *RemotingServer) { s.RegisterProcessor(34, echo, nil, true) })
	w := dial(t, s.Addr())
	session := <-open
	type result struct {
		resp *remoting.Command
		err  error
	}
	results := make(chan result, 10)
	ask := func(timeout time.Duration) {
		session.InvokeAsync(&remoting.Command{Code: 307}, timeout, func(resp *remoting.Command, err error) { results <- result{resp, err} })
	}
	ask(soon)
	req := w.receive()
	if req.Code != 307 || req.Flag != 0 || req.Version != remoting.Version {
		t.Fatalf("got %+v", req)
	}
	resp := remoting.Command{Code: 5, Flag: remoting.FlagResponse, Opaque: req.Opaque, Body: []byte("info")}
	w.send(resp.AppendTo(nil, 0))
	if r := <-results; r.err != nil || r.resp.Code != 5 || string(r.resp.Body) != "info" {
		t.Fatalf("got %+v", r)
	}
	// Its own opaque space, and an answer nobody waits for.
	w.send(resp.AppendTo(nil, 0))
	w.send(w.frame(34, ""))
	w.receive()

	ask(10 * time.Millisecond)
	if r := <-results; !errors.Is(r.err, ErrTimeout) {
		t.Fatalf("got %+v", r)
	}
	late := w.receive()
	resp.Opaque = late.Opaque
	w.send(resp.AppendTo(nil, 0))

	if err := session.InvokeOneway(&remoting.Command{Code: 40}); err != nil {
		t.Fatal(err)
	}
	if c := w.receive(); c.Code != 40 || !c.IsOneway() {
		t.Fatalf("got %+v", c)
	}
	ask(soon)
	_ = w.Close()
	if r := <-results; !errors.Is(r.err, ErrClosed) {
		t.Fatalf("got %+v", r)
	}
	ask(soon)
	if r := <-results; !errors.Is(r.err, ErrClosed) {
		t.Fatalf("got %+v", r)
	}
	if err := session.InvokeOneway(&remoting.Command{Code: 40}); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	for n := range pendingPerSessionMax + 1 {
		_, err := session.invoke(&remoting.Command{}, nil)
		if !errors.Is(err, ErrClosed) {
			t.Fatal(n, err)
		}
	}
}

func TestPendingIsBounded(t *testing.T) {
	c, conn, session := newMemorySession(func(*core) {})
	var failed atomic.Int32
	done := func(_ *remoting.Command, err error) {
		if errors.Is(err, ErrTooManyPending) {
			failed.Add(1)
		}
	}
	for range pendingPerSessionMax + 5 {
		session.InvokeAsync(&remoting.Command{}, soon, done)
	}
	if failed.Load() != 5 {
		t.Fatalf("%d refused, want 5", failed.Load())
	}
	c.OnClose(conn, nil)
}

func TestLoopLocals(t *testing.T) {
	a, b := NewLoopLocal(), NewLoopLocal()
	if a == b || a < 0 || b >= len(Loop{}.Local) {
		t.Fatal(a, b)
	}
}

// A burst of connections spreads over the loops.
func TestConnectionsSpread(t *testing.T) {
	var mu sync.Mutex
	perLoop := map[int]int{}
	s := startServer(t, RemotingServerConfig{NumLoops: 2, OnSessionOpen: func(s *Session) {
		mu.Lock()
		perLoop[s.Loop().Index]++
		mu.Unlock()
	}}, nil)
	for range 64 {
		dial(t, s.Addr())
	}
	eventually(t, "all open", func() bool { return s.Stats().Connections == 64 })
	mu.Lock()
	defer mu.Unlock()
	if perLoop[0] != 32 || perLoop[1] != 32 {
		t.Fatalf("connections per loop: %v", perLoop)
	}
}

// A loop on which nothing happens is left alone for a while, and an idle connection is closed all the same.
func TestQuietLoopIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conn, s := newMemorySession(func(c *core) { c.register(10, echo, nil, true) })
		posts := 0
		run := func(d time.Duration) int {
			posts = 0
			for end := time.Now().Add(d); time.Now().Before(end); {
				next := c.onTick()
				for ; len(conn.posts) > 0; posts++ {
					f := conn.posts[0]
					conn.posts = conn.posts[1:]
					f()
				}
				time.Sleep(next)
			}
			return posts
		}
		w := &wire{t: t}
		send := func(b []byte) {
			conn.in = b
			c.OnTraffic(conn)
		}
		send(w.frame(10, ""))
		if n := run(c.idleTimeout / 2); n < 2 || n > quietShare {
			t.Errorf("%d looks in %v without requests", n, c.idleTimeout/2)
		}
		frame := w.frame(10, "")
		send(frame[:20])
		if n := run(20 * time.Second); n < 18 {
			t.Errorf("%d looks in 20 s with half a frame held", n)
		}
		send(frame[20:])
		if run(c.idleTimeout - time.Second); s.closing.Load() {
			t.Error("closed too early")
		}
		if run(c.idleTimeout/quietShare + 2*time.Second); !s.closing.Load() {
			t.Error("an idle connection stays")
		}
	})
}

// slowConn is a memoryConn whose peer does not read.
type slowConn struct{ memoryConn }

func (c *slowConn) OutboundBuffered() int { return 1 }

// Unsent output is looked at ten times a second and no more, however often it is written to and however long it lasts.
func TestUnsentOutputHasOneClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := newMemorySession(func(*core) {})
		slow := new(slowConn)
		c.OnOpen(slow)
		s := slow.context.(*Session)
		posted := make(chan func(), 1000)
		s.loop.post = func(f func()) bool { posted <- f; return true }
		ticks := func(d time.Duration, writes bool) (n int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(7 * time.Millisecond) {
				synctest.Wait()
				for ; len(posted) > 0; n++ {
					(<-posted)()
				}
				if writes {
					s.measureOutbound(time.Now())
				}
			}
			return n
		}
		if n := ticks(5*time.Second, true); n > 50 {
			t.Errorf("%d ticks in 5 s of writes", n)
		}
		if n := ticks(5*time.Second, false); n < 40 || n > 50 {
			t.Errorf("%d ticks in 5 s without", n)
		}
	})
}
