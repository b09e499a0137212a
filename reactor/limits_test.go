// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// logs counts the lines of a logger.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Memory follows what has arrived, not what was announced; beyond the budget the largest goes (panjf2000/gnet#420).
func TestPartialFramesBudget(t *testing.T) {
	const clients = 200
	budget, each := int64(4<<20), 250<<10
	if *soak {
		budget, each = partialFramesBytesMaxDefault, 15<<20
	}
	s := startServer(t, RemotingServerConfig{PartialFramesBytesMax: budget, NumLoops: 2}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	good := dial(t, s.Addr())
	part := append(binary.BigEndian.AppendUint32(nil, remoting.FrameLengthMax-4), make([]byte, each)...)
	for range clients {
		w := dial(t, s.Addr())
		_, _ = w.Write(part)
		if n := s.Stats().PartialFrameBytes; n > 2*budget {
			t.Fatalf("%d bytes of partial frames; the budget is %d", n, budget)
		}
	}
	eventually(t, "largest closed", func() bool {
		st := s.Stats()
		return st.ClosedPartialBudget >= clients-2*budget/int64(each) && st.PartialFrameBytes <= budget
	})
	if n := s.Stats().ClosedPartialBudget; n >= clients {
		t.Fatalf("all %d were closed; the budget holds some", n)
	}
	good.send(good.frame(10, "still here"))
	good.receive()
}

func TestPartialFrameAge(t *testing.T) {
	s := startServer(t, RemotingServerConfig{PartialFrameAgeMax: 100 * time.Millisecond}, nil)
	w := dial(t, s.Addr())
	for range 3 {
		w.send([]byte{0}) // alive, and not getting anywhere
		time.Sleep(5 * time.Millisecond)
	}
	w.closedByServer()
	if n := s.Stats().ClosedPartialAge; n != 1 {
		t.Fatalf("ClosedPartialAge=%d", n)
	}
}

// A large frame over a slow line is not cut off: its age counts less the more of it has come.
func TestLargeFrameMayTakeTime(t *testing.T) {
	s := startServer(t, RemotingServerConfig{PartialFrameAgeMax: time.Millisecond}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	w := dial(t, s.Addr())
	frame := w.frame(10, strings.Repeat("x", 2<<20))
	w.send(frame[:1<<20])
	time.Sleep(2500 * time.Millisecond) // the clock of the server looks once a second
	w.send(frame[1<<20:])
	if c := w.receive(); len(c.Body) != 2<<20 {
		t.Fatalf("body of %d bytes, code %d %s", len(c.Body), c.Code, c.Remark)
	}
}

// A large frame in small pieces: every byte is copied a bounded number of times.
func TestLargeFrameInPieces(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	w := dial(t, s.Addr())
	frame := w.frame(10, strings.Repeat("x", remoting.FrameLengthMax-200))
	go func() {
		for len(frame) > 0 {
			n := min(len(frame), 4096)
			if _, err := w.Write(frame[:n]); err != nil {
				return
			}
			frame = frame[n:]
		}
	}()
	if c := w.receive(); len(c.Body) != remoting.FrameLengthMax-200 {
		t.Fatalf("body of %d bytes, code %d %s", len(c.Body), c.Code, c.Remark)
	}
}

func TestIdle(t *testing.T) {
	closed := make(chan string, 1)
	s := startServer(t, RemotingServerConfig{
		IdleTimeout:    100 * time.Millisecond,
		OnSessionClose: func(_ *Session, reason string) { closed <- reason },
	}, nil)
	dial(t, s.Addr()).closedByServer()
	if reason := <-closed; reason != "idle" {
		t.Fatalf("closed for %q", reason)
	}
	eventually(t, "counted", func() bool { return s.Stats().ClosedIdle == 1 })
}

func TestConnectionsMax(t *testing.T) {
	var log logs
	s := startServer(t, RemotingServerConfig{ConnectionsMax: 3, Logger: log.logger()}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	var in []*wire
	for range 3 {
		w := dial(t, s.Addr())
		w.send(w.frame(10, ""))
		w.receive()
		in = append(in, w)
	}
	for range 10 {
		dial(t, s.Addr()).closedByServer()
	}
	st := s.Stats()
	if st.Refused != 10 || st.Accepted != 3 || st.Connections != 3 || st.ConnectionsMax != 3 || log.count("limit reached") != 1 {
		t.Fatalf("got %+v, %d log lines", st, log.count("limit reached"))
	}
	// Room again when one leaves.
	_ = in[0].Close()
	eventually(t, "one left", func() bool { return s.Stats().Connections == 2 })
	w := dial(t, s.Addr())
	w.send(w.frame(10, ""))
	w.receive()
}

func TestConnectionBudget(t *testing.T) {
	f := func(descriptors, listeners int) {
		t.Helper()
		connections, backlog := connectionBudget(descriptors, listeners)
		if connections < 1 || backlog < 16 || descriptors >= 256 && connections+backlog*listeners >= descriptors {
			t.Fatalf("connectionBudget(%d, %d)=%d, %d", descriptors, listeners, connections, backlog)
		}
		if descriptors >= 1024 && connections < descriptors/2 {
			t.Fatalf("%d of %d descriptors are too few for connections", connections, descriptors)
		}
	}
	for _, descriptors := range []int{1, 64, 256, 1024, 4096, 20000, 1 << 20} {
		f(descriptors, 1)
		f(descriptors, 2)
	}
}

// Peers that ask and never read: what is held for them is bounded, each and together, and nobody else waits
// (panjf2000/gnet#420).
func TestSlowReaders(t *testing.T) {
	const answer, mark, budget = 256 << 10, 1 << 20, 8 << 20
	clients := 100
	if raceDetector {
		clients = 20
	}
	body := make([]byte, answer)
	s := startServer(t, RemotingServerConfig{OutboundMark: mark, OutboundBytesMax: budget, NumLoops: 1}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) {
			if req.Session.Writable() {
				req.Reply(&remoting.Command{Body: body})
			}
		}), nil, true)
		s.RegisterProcessor(10, echo, nil, true)
	})
	good := dial(t, s.Addr())
	for range clients {
		w := dial(t, s.Addr())
		_ = w.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		for range 40 {
			if _, err := w.Write(w.frame(11, "")); err != nil {
				break
			}
		}
		if n := s.Stats().OutboundBytes; n > budget+2*mark {
			t.Fatalf("%d bytes unsent; the budget is %d", n, budget)
		}
	}
	began := time.Now()
	good.send(good.frame(10, "x"))
	good.receive()
	t.Logf("a good client beside %d that do not read: %v; %+v", clients, time.Since(began), s.Stats())
	eventually(t, "the largest closed, the rest within the budget", func() bool {
		st := s.Stats()
		return st.Accepted == int64(clients+1) && st.ClosedOutbound > 0 && st.OutboundBytes <= budget
	})
}

// Above the mark nothing is produced; when the peer reads, production goes on without anything else happening.
func TestOutboundMark(t *testing.T) {
	const mark = 1 << 20
	states := make(chan *Session, 1)
	s := startServer(t, RemotingServerConfig{OutboundMark: mark, OutboundMarkAge: time.Hour}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { req.Reply(&remoting.Command{Body: make([]byte, mark/2)}) }), nil, true)
		s.RegisterProcessor(10, ProcessorFunc(func(req *Request) { states <- req.Session }), nil, true)
	})
	w := dial(t, s.Addr())
	var session *Session
	ask := func() bool {
		w.send(w.frame(10, ""))
		session = <-states
		return session.Writable()
	}
	if !ask() {
		t.Fatal("not writable from the start")
	}
	// The kernel's own buffers take some megabytes first.
	for n := 0; ask(); n++ {
		if n > 200 {
			t.Fatal("never above the mark")
		}
		w.send(w.frame(11, ""))
	}
	go func() { _, _ = io.Copy(io.Discard, w.Conn) }()
	eventually(t, "writable again", session.Writable)
}

// Above the mark for too long, or at twice the mark at once: closed.
func TestOutboundClosed(t *testing.T) {
	const mark = 1 << 20
	f := func(age time.Duration, answer, answers int) {
		t.Helper()
		s := startServer(t, RemotingServerConfig{OutboundMark: mark, OutboundMarkAge: age}, func(s *RemotingServer) {
			s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { req.Reply(&remoting.Command{Body: make([]byte, answer)}) }), nil, true)
		})
		w := dial(t, s.Addr())
		_ = w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for range answers {
			eventually(t, "room or the end", func() bool { return s.Stats().OutboundBytes <= mark || s.Stats().ClosedOutbound > 0 })
			if _, err := w.Write(w.frame(11, "")); err != nil {
				break
			}
		}
		eventually(t, "closed", func() bool { return s.Stats().ClosedOutbound == 1 && s.Stats().Connections == 0 })
	}
	f(100*time.Millisecond, mark/2, 200)
	f(time.Hour, 15*mark, 1)
}

// Closing never waits for the peer: a full send buffer delays nobody on the same loop (panjf2000/gnet#341).
func TestCloseOfDeadPeer(t *testing.T) {
	closed, dead := make(chan time.Time, 16), make(chan *Session, 1)
	s := startServer(t, RemotingServerConfig{NumLoops: 1, OutboundMark: 64 << 20, OutboundBytesMax: 128 << 20,
		OnSessionClose: func(*Session, string) { closed <- time.Now() }}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { req.Reply(&remoting.Command{Body: make([]byte, 12<<20)}) }), nil, true)
		s.RegisterProcessor(10, ProcessorFunc(func(req *Request) {
			dead <- req.Session
			echo(req)
		}), nil, true)
	})
	w, other := dial(t, s.Addr()), dial(t, s.Addr())
	w.send(w.frame(10, ""))
	w.receive()
	session := <-dead
	w.send(w.frame(11, ""))
	eventually(t, "unsent output", func() bool { return s.Stats().OutboundBytes > 0 })

	began := time.Now()
	session.Close("test")
	other.send(other.frame(10, "x"))
	other.receive()
	<-dead
	took := time.Since(began)
	if end := (<-closed).Sub(began); end > 10*time.Second || took > 10*time.Second {
		t.Fatalf("the close took %v, another connection waited %v", end, took)
	}
}

func TestStartSaysWhichPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := NewRemotingServer(RemotingServerConfig{Addrs: []string{"127.0.0.1:0", l.Addr().String()}, Logger: quiet()})
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Fatalf("got %v; want an error naming %v", err, l.Addr())
	}
	s.Stop(time.Second)
}

func TestServerBindsSeveral(t *testing.T) {
	s := startServer(t, RemotingServerConfig{Addrs: []string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}}, func(s *RemotingServer) {
		s.RegisterProcessor(10, ProcessorFunc(func(req *Request) {
			req.Reply(&remoting.Command{Remark: fmt.Append(nil, req.Session.VIP(), " ", req.Session.LocalAddr())})
		}), nil, true)
		s.RegisterProcessor(11, echo, nil, false)
	})
	seen := map[netip.AddrPort]bool{}
	for i := range 3 {
		addr := s.server.Addr(i)
		if seen[addr] || addr.Port() == 0 {
			t.Fatalf("address %d is %v", i, addr)
		}
		seen[addr] = true
		w := dial(t, addr)
		w.send(w.frame(10, ""))
		if c, want := w.receive(), fmt.Sprint(i > 0, " ", addr); string(c.Remark) != want {
			t.Fatalf("got %s, want %s", c.Remark, want)
		}
		w.send(w.frame(11, ""))
		want := int32(11)
		if i > 0 {
			want = remoting.RequestCodeNotSupported
		}
		if c := w.receive(); c.Code != want {
			t.Fatalf("code 11 on address %d: answered %d, want %d", i, c.Code, want)
		}
	}
}

// An engine that ends by itself is told to whoever watches.
func TestEngineEndsUnasked(t *testing.T) {
	var log logs
	s := NewRemotingServer(RemotingServerConfig{Addrs: []string{"127.0.0.1:0"}, Logger: log.logger()})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.server.engine.Stop(within(t)) }() // as gnet does when accept fails
	select {
	case <-s.Done():
	case <-time.After(soon):
		t.Fatal("not told")
	}
	if s.Err() == nil || log.count("ended unasked") != 1 {
		t.Fatalf("Err=%v, %d log lines", s.Err(), log.count("ended unasked"))
	}
	s.Stop(time.Second)
}

func TestStopTwiceAndWithoutStart(t *testing.T) {
	s := NewRemotingServer(RemotingServerConfig{Addrs: []string{"127.0.0.1:0"}, Logger: quiet()})
	s.Stop(time.Second)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { s.Stop(time.Second) })
	}
	wg.Wait()
	if _, err := net.DialTimeout("tcp", s.Addr().String(), time.Second); err == nil {
		t.Fatal("still listening")
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

// Idle sessions hold no buffers: what a burst needed is given back.
func TestIdleSessionsHoldNothing(t *testing.T) {
	s := startServer(t, RemotingServerConfig{NumLoops: 1}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { req.Reply(&remoting.Command{Body: make([]byte, 1<<20)}) }), nil, true)
	})
	for range 50 {
		w := dial(t, s.Addr())
		w.send(w.frame(11, ""))
		w.receive()
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapInuse > 40<<20 {
		t.Fatalf("%d MiB of heap behind 50 idle sessions that were answered 1 MiB each", m.HeapInuse>>20)
	}
}

func TestReadAfterCloseIsAnError(t *testing.T) {
	errs := make(chan error, 8)
	handler := &rawHandler{onClose: func(c Conn) {
		_, err := c.Peek(1)
		errs <- err
		_, err = c.Discard(1)
		errs <- err
		_, err = c.Read(make([]byte, 1))
		errs <- err
		errs <- c.Writev([][]byte{{1}})
		if c.InboundBuffered() != 0 || c.OutboundBuffered() != 0 || !c.Closed() {
			errs <- errors.New("a closed connection has bytes")
		}
		close(errs)
	}}
	s := NewServer(ServerConfig{Addrs: []string{"127.0.0.1:0"}, Logger: quiet()}, handler)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	_ = dial(t, s.Addr(0)).Close()
	for err := range errs {
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v", err)
		}
	}
}

// Servers without a limit of their own share what the process has: together they must not run out of descriptors.
func TestServersShareConnections(t *testing.T) {
	a, b := NewServer(ServerConfig{Logger: quiet()}, new(rawHandler)), NewServer(ServerConfig{Logger: quiet()}, new(rawHandler))
	own := NewServer(ServerConfig{Logger: quiet(), ConnectionsMax: 1}, new(rawHandler))
	for _, s := range []*Server{a, b} {
		s.cfg.ConnectionsMax, s.shares = int(connectionsShared.Load())+3, true
	}
	for i, s := range []*Server{a, a, b, b, a} {
		if s.admit() != (i < 3) {
			t.Fatalf("connection %d: two servers have room for three together", i+1)
		}
	}
	if !own.admit() || own.admit() {
		t.Fatal("a server with a limit of its own has room for one")
	}
	a.leave()
	if !b.admit() || b.admit() {
		t.Fatal("room for one that left")
	}
	a.leave()
	b.leave()
	b.leave()
	if n := a.connections.Load() + b.connections.Load(); n != 0 {
		t.Fatalf("%d connections are left", n)
	}
}
