// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

func TestClientMultiplexes(t *testing.T) {
	var opened atomic.Int32
	s := startServer(t, RemotingServerConfig{NumLoops: 2, OnSessionOpen: func(*Session) { opened.Add(1) }},
		func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	c := newClient(t, RemotingClientConfig{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 50 {
				body := fmt.Sprint(i, " ", n)
				resp, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 10, Body: []byte(body)})
				if err != nil || string(resp.Body) != body {
					t.Errorf("%s: %v, %v", body, resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n != 1 {
		t.Fatalf("%d connections to one address", n)
	}
}

func TestClientTimesOutAndGoesOn(t *testing.T) {
	held := make(chan ReplyTo, 1)
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(10, echo, nil, true)
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { held <- req.ReplyTo() }), nil, true)
	})
	c := newClient(t, RemotingClientConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.Invoke(ctx, s.Addr().String(), &remoting.Command{Code: 11}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.Addr().String()) {
		t.Fatalf("got %v", err)
	}
	(<-held).Reply(&remoting.Command{}) // too late: dropped
	if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 10}); err != nil {
		t.Fatal(err)
	}
}

// A peer that says nothing at all is given up, and the next call connects anew.
func TestClientGivesUpSilentPeer(t *testing.T) {
	var opened atomic.Int32
	s := startServer(t, RemotingServerConfig{OnSessionOpen: func(*Session) { opened.Add(1) }}, func(s *RemotingServer) {
		s.RegisterProcessor(10, echo, nil, true)
		s.RegisterProcessor(11, ProcessorFunc(func(*Request) {}), nil, true)
	})
	c := newClient(t, RemotingClientConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Invoke(ctx, s.Addr().String(), &remoting.Command{Code: 11}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 10}); err != nil {
		t.Fatal(err)
	}
	if n := opened.Load(); n != 2 {
		t.Fatalf("%d connections, want a second one", n)
	}
}

func TestClientReconnects(t *testing.T) {
	lost := make(chan string, 10)
	c := newClient(t, RemotingClientConfig{OnClose: func(addr string) { lost <- addr }})
	var current atomic.Pointer[Session]
	s := startServer(t, RemotingServerConfig{OnSessionOpen: func(s *Session) { current.Store(s) }}, func(s *RemotingServer) {
		s.RegisterProcessor(10, echo, nil, true)
		s.RegisterProcessor(11, ProcessorFunc(func(req *Request) { req.Session.Close("test") }), nil, true)
	})
	addr := s.Addr().String()
	for range 3 {
		if _, err := c.Invoke(within(t), addr, &remoting.Command{Code: 10}); err != nil {
			t.Fatal(err)
		}
		// What is under way on a connection that is lost fails at once.
		if _, err := c.Invoke(within(t), addr, &remoting.Command{Code: 11}); !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v", err)
		}
		if got := <-lost; got != addr {
			t.Fatalf("lost %s", got)
		}
	}
	if err := c.InvokeOneway(within(t), addr, &remoting.Command{Code: 10}); err != nil {
		t.Fatal(err)
	}
	c.CloseConn(addr)
	c.CloseConn("127.0.0.1:1")
	<-lost
	if _, err := c.Invoke(within(t), addr, &remoting.Command{Code: 10}); err != nil {
		t.Fatal(err)
	}
}

func TestClientOfNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c := newClient(t, RemotingClientConfig{})
	for range 2 {
		if _, err := c.Invoke(within(t), addr, &remoting.Command{Code: 10}); err == nil || !strings.Contains(err.Error(), addr) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := c.Invoke(within(t), "no such address", &remoting.Command{}); err == nil {
		t.Fatal("no error")
	}
}

// The peer may ask too, on our connection.
func TestClientServes(t *testing.T) {
	open := make(chan *Session, 1)
	s := startServer(t, RemotingServerConfig{OnSessionOpen: func(s *Session) { open <- s }}, func(s *RemotingServer) { s.RegisterProcessor(34, echo, nil, true) })
	c := newClient(t, RemotingClientConfig{Processors: map[int32]Processor{307: echo}})
	if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 34}); err != nil {
		t.Fatal(err)
	}
	session := <-open
	answers := make(chan *remoting.Command, 2)
	for _, code := range []int32{307, 309} {
		session.InvokeAsync(&remoting.Command{Code: code, Body: []byte("x")}, soon, func(resp *remoting.Command, err error) {
			if err != nil {
				t.Error(err)
			}
			answers <- resp
		})
	}
	if a := <-answers; a.Code != 307 || string(a.Body) != "x" {
		t.Fatalf("got %+v", a)
	}
	if a := <-answers; a.Code != remoting.RequestCodeNotSupported {
		t.Fatalf("got %+v", a)
	}
}

func TestClientStop(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(*Request) {}), nil, true) // never answered
	})
	c := newClient(t, RemotingClientConfig{})
	var wg sync.WaitGroup
	var ended atomic.Int32
	for range 8 {
		wg.Go(func() {
			for {
				if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 11}); err != nil {
					if !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					ended.Add(1)
					return
				}
			}
		})
	}
	eventually(t, "requests under way", func() bool { return s.Stats().RequestsTotal == 8 })
	c.Stop()
	wg.Wait()
	if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 11}); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Stop: %v", err)
	}
}

func TestClientPendingMax(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(11, ProcessorFunc(func(*Request) {}), nil, true)
	})
	c := newClient(t, RemotingClientConfig{PendingMax: 2})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = c.Invoke(ctx, s.Addr().String(), &remoting.Command{Code: 11}) })
	}
	eventually(t, "two under way", func() bool { return s.Stats().RequestsTotal == 2 })
	if _, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 11}); !errors.Is(err, ErrTooManyPending) {
		t.Fatalf("got %v", err)
	}
	cancel()
	wg.Wait()
}
