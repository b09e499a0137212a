// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loopmq/reactor/remoting"
)

// soak asks for the long forms of tests.
var soak = flag.Bool("soak", false, "run tests in their long form")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// A generous limit for everything that should happen soon.
const soon = time.Minute

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// startServer starts a server on a free port of loopback; register prepares it.
func startServer(t testing.TB, cfg RemotingServerConfig, register func(s *RemotingServer)) *RemotingServer {
	t.Helper()
	if cfg.Addrs == nil {
		cfg.Addrs = []string{"127.0.0.1:0"}
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	s := NewRemotingServer(cfg)
	if register != nil {
		register(s)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop(time.Second)
		if err := s.Err(); err != nil {
			t.Errorf("the engine ended unasked: %v", err)
		}
		if st := s.Stats(); st.Connections != 0 || st.PartialFrameBytes != 0 || st.OutboundBytes != 0 {
			t.Errorf("left when stopped: %+v", st)
		}
	})
	return s
}

// echo answers code and body back.
var echo = ProcessorFunc(func(req *Request) {
	req.Reply(&remoting.Command{Code: req.Code, Body: req.Body})
})

func newClient(t testing.TB, cfg RemotingClientConfig) *RemotingClient {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	c, err := NewRemotingClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

// wire is a raw connection that speaks frames.
type wire struct {
	t testing.TB
	net.Conn
	opaque int32
}

func dial(t testing.TB, addr fmt.Stringer) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &wire{t: t, Conn: c}
}

func (w *wire) frame(code int32, body string) []byte {
	w.opaque++
	c := remoting.Command{Code: code, Opaque: w.opaque, Version: remoting.Version, Body: []byte(body)}
	c.Serialize = remoting.SerializeType(w.opaque % 2)
	c.Ext.Add("k", "line\n")
	return c.AppendTo(nil, 0)
}

func (w *wire) send(b []byte) {
	w.t.Helper()
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) receive() *remoting.Command {
	w.t.Helper()
	c, err := readCommand(w, soon)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func readCommand(r net.Conn, limit time.Duration) (*remoting.Command, error) {
	_ = r.SetReadDeadline(time.Now().Add(limit))
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	total, err := remoting.FrameLength(frame)
	if err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, total-4)...)
	if _, err := io.ReadFull(r, frame[4:]); err != nil {
		return nil, err
	}
	c := new(remoting.Command)
	return c, remoting.Decode(frame, c)
}

// closedByServer waits for the end of the stream, and reports what came before it.
func (w *wire) closedByServer() (before []byte) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(soon))
	before, err := io.ReadAll(w)
	if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
		w.t.Fatal("the server does not close the connection")
	}
	return before
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

func TestInvoke(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	c := newClient(t, RemotingClientConfig{})
	for _, form := range []remoting.SerializeType{remoting.SerializeJSON, remoting.SerializeRocketMQ} {
		req := remoting.Command{Code: 10, Serialize: form, Body: []byte("hello")}
		resp, err := c.Invoke(within(t), s.Addr().String(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Serialize != form || !resp.IsResponse() || string(resp.Body) != "hello" || resp.Version != remoting.Version {
			t.Fatalf("got %+v", resp)
		}
	}
	resp, err := c.Invoke(within(t), s.Addr().String(), &remoting.Command{Code: 4711})
	if err != nil || resp.Code != remoting.RequestCodeNotSupported || string(resp.Remark) != " request type 4711 not supported" {
		t.Fatalf("got %+v, %v", resp, err)
	}
}

// The same over a socket, where gnet's buffers take part.
func TestStreamCutOnASocket(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) { s.RegisterDefaultProcessor(echo, nil) })
	var stream []byte
	w := &wire{t: t}
	for i := range 50 {
		stream = append(stream, w.frame(int32(i), strings.Repeat("b", i*i%97))...)
	}
	try := func(name string, write func(w *wire)) {
		t.Helper()
		w := dial(t, s.Addr())
		defer w.Close()
		write(w)
		for i := range 50 {
			if c := w.receive(); c.Code != int32(i) || c.Opaque != int32(i+1) || len(c.Body) != i*i%97 {
				t.Fatalf("%s: answer %d is %+v", name, i, c)
			}
		}
	}
	for cut := 1; cut < len(stream); cut += 61 {
		try(fmt.Sprint("cut at ", cut), func(w *wire) {
			w.send(stream[:cut])
			time.Sleep(50 * time.Microsecond)
			w.send(stream[cut:])
		})
	}
	try("byte by byte", func(w *wire) {
		for i := range stream {
			w.send(stream[i : i+1])
		}
	})
}

// One read, many requests: there is no second callback for what the first leaves over (panjf2000/gnet#404).
func TestManyFramesInOneWrite(t *testing.T) {
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) { s.RegisterProcessor(remoting.HeartBeat, echo, nil, true) })
	w := dial(t, s.Addr())
	var all bytes.Buffer
	for range 300 {
		all.Write(w.frame(remoting.HeartBeat, "beat"))
	}
	w.send(all.Bytes())
	for i := range 300 {
		if c := w.receive(); c.Opaque != int32(i+1) {
			t.Fatalf("answer %d has opaque %d", i, c.Opaque)
		}
	}
}
