// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawHandler is a Handler made of functions.
type rawHandler struct {
	onOpen    func(c Conn)
	onTraffic func(c Conn)
	onClose   func(c Conn)
}

func (h *rawHandler) OnOpen(c Conn) {
	if h.onOpen != nil {
		h.onOpen(c)
	}
}

func (h *rawHandler) OnTraffic(c Conn) {
	if h.onTraffic != nil {
		h.onTraffic(c)
		return
	}
	_, _ = c.Discard(c.InboundBuffered())
}

func (h *rawHandler) OnClose(c Conn, err error) {
	if h.onClose != nil {
		h.onClose(c)
	}
}

func startRaw(t *testing.T, cfg ServerConfig, h Handler) *Server {
	t.Helper()
	cfg.Addrs, cfg.Logger = []string{"127.0.0.1:0"}, quiet()
	s := NewServer(cfg, h)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// To gnet zero means everything that is buffered; heartbeats have empty bodies.
func TestZeroMeansZero(t *testing.T) {
	got := make(chan string, 1)
	s := startRaw(t, ServerConfig{}, &rawHandler{onTraffic: func(c Conn) {
		if c.InboundBuffered() < 5 {
			return
		}
		p, err := c.Peek(0)
		n, err2 := c.Discard(0)
		m, err3 := c.Read(nil)
		if len(p) != 0 || n != 0 || m != 0 || err != nil || err2 != nil || err3 != nil || c.InboundBuffered() != 5 {
			got <- "zero took something"
			return
		}
		if _, err := c.Peek(6); err != io.ErrShortBuffer {
			got <- "Peek beyond the end"
			return
		}
		if _, err := c.Discard(6); err != io.ErrShortBuffer {
			got <- "Discard beyond the end"
			return
		}
		p, _ = c.Peek(5)
		got <- string(p)
		_, _ = c.Discard(5)
	}})
	dial(t, s.Addr(0)).send([]byte("hello"))
	if g := <-got; g != "hello" {
		t.Fatal(g)
	}
}

// More parts than the kernel takes at once; the caller's slice of slices stays as it is.
func TestWritevOfManyParts(t *testing.T) {
	var want bytes.Buffer
	parts := make([][]byte, 5000)
	for i := range parts {
		parts[i] = bytes.Repeat([]byte{byte(i)}, i%200) // empty ones among them
		want.Write(parts[i])
	}
	changed := make(chan bool, 1)
	s := startRaw(t, ServerConfig{}, &rawHandler{onOpen: func(c Conn) {
		before := make([][]byte, len(parts))
		copy(before, parts)
		if err := c.Writev(parts); err != nil {
			t.Error(err)
		}
		for i := range parts {
			if len(parts[i]) != len(before[i]) || len(parts[i]) > 0 && &parts[i][0] != &before[i][0] {
				changed <- true
				return
			}
		}
		changed <- false
	}})
	w := dial(t, s.Addr(0))
	if <-changed {
		t.Fatal("Writev changed its argument")
	}
	got := make([]byte, want.Len())
	_ = w.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.ReadFull(w, got); err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(want.Bytes()) {
		t.Fatal("other bytes came")
	}
}

// A write to a peer that reset the connection closes it before the write returns.
func TestWriteClosesDeadConnection(t *testing.T) {
	done := make(chan string, 1)
	var closes atomic.Int32
	s := startRaw(t, ServerConfig{}, &rawHandler{
		onTraffic: func(c Conn) {
			_, _ = c.Discard(c.InboundBuffered())
			time.Sleep(20 * time.Millisecond) // the reset arrives meanwhile
			for range 1000 {
				if err := c.Writev([][]byte{make([]byte, 100)}); err != nil {
					if !c.Closed() || closes.Load() != 1 {
						done <- "an error, and yet not closed once"
					}
					done <- ""
					return
				}
			}
			done <- "writes to a reset connection succeed"
		},
		onClose: func(Conn) { closes.Add(1) },
	})
	w := dial(t, s.Addr(0))
	w.send([]byte("x"))
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	_ = w.Close()
	if g := <-done; g != "" {
		t.Fatal(g)
	}
}

// Posts and closes from many goroutines, up to the end of the engine and beyond it (panjf2000/gnet#479).
func TestPostsUntilTheEnd(t *testing.T) {
	conns := make(chan Conn, 8)
	s := startRaw(t, ServerConfig{NumLoops: 2}, &rawHandler{onOpen: func(c Conn) { conns <- c }})
	var wg sync.WaitGroup
	var ran, accepted atomic.Int64
	refused := make(chan bool, 8)
	for range 8 {
		dial(t, s.Addr(0))
		c := <-conns
		wg.Go(func() {
			for c.Post(func() { ran.Add(1) }) {
				accepted.Add(1)
			}
			refused <- true
			c.Close()
		})
	}
	eventually(t, "posts run", func() bool { return ran.Load() > 1000 })
	s.Stop()
	wg.Wait()
	if ran.Load() > accepted.Load() {
		t.Fatal("a refused post ran")
	}
}

func TestClientDial(t *testing.T) {
	s := startRaw(t, ServerConfig{}, &rawHandler{onTraffic: func(c Conn) {
		p, _ := c.Peek(c.InboundBuffered())
		_ = c.Writev([][]byte{bytes.ToUpper(p)})
		_, _ = c.Discard(len(p))
	}})
	answer := make(chan string, 1)
	h := &rawHandler{
		onOpen: func(c Conn) { _ = c.Writev([][]byte{[]byte(c.Context().(string))}) },
		onTraffic: func(c Conn) {
			p := make([]byte, c.InboundBuffered())
			n, _ := c.Read(p)
			answer <- string(p[:n])
		},
	}
	ticks := make(chan bool, 100)
	c, err := NewClient(ClientConfig{Logger: quiet(), OnTick: func() time.Duration {
		select {
		case ticks <- true:
		default:
		}
		return time.Millisecond
	}}, h)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(within(t), s.Addr(0).String(), "hello")
	if err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "HELLO" {
		t.Fatal(got)
	}
	<-ticks
	if conn.RemoteAddr() != s.Addr(0) || !strings.HasPrefix(conn.LocalAddr().String(), "127.0.0.1:") {
		t.Fatalf("addresses %v, %v", conn.LocalAddr(), conn.RemoteAddr())
	}
	if _, err := c.Dial(within(t), "127.0.0.1:1", nil); err == nil {
		t.Fatal("nobody listens there")
	}
	// Dials that race with Stop end, one way or the other.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				if _, err := c.Dial(within(t), s.Addr(0).String(), "x"); err != nil {
					return
				}
				select {
				case <-answer:
				default:
				}
			}
		})
	}
	go func() {
		for range answer {
		}
	}()
	time.Sleep(20 * time.Millisecond)
	c.Stop()
	wg.Wait()
	c.Stop()
	close(answer)
}
