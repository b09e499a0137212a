// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// peer is the other end of a connection, in the hands of the test.
type peer struct {
	t    *testing.T
	conn net.Conn
}

// connect makes a connection to a peer, over loopback.
func connect(t *testing.T, o Options) (*Conn, *peer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), l.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-c.Done()
		_ = nc.Close()
	})
	return c, &peer{t, nc}
}

// next reads one request.
func (p *peer) next() *remoting.Command {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(testWait))
	var length [4]byte
	if _, err := io.ReadFull(p.conn, length[:]); err != nil {
		p.t.Fatal(err)
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(length[:]))
	copy(frame, length[:])
	if _, err := io.ReadFull(p.conn, frame[4:]); err != nil {
		p.t.Fatal(err)
	}
	cmd := new(remoting.Command)
	if err := remoting.Decode(frame, cmd); err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

func answerTo(request *remoting.Command, code int32, body []byte, fields ...string) []byte {
	a := NewCommand(code, fields...)
	a.Opaque, a.Flag, a.Serialize, a.Body = request.Opaque, remoting.FlagResponse, request.Serialize, body
	return a.AppendTo(nil, len(body))
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// However the stream is cut, each call gets its own answer, once, and the answers of one read make one round.
func TestAnyCutOfTheStream(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 0))
		const calls = 40
		var rounds, done atomic.Int64
		c, p := connect(t, Options{Window: calls, Round: func(c *Conn) { rounds.Add(1); c.Flush() }})
		bodies := make([][]byte, calls)
		got := make([]atomic.Int64, calls)
		for i := range calls {
			bodies[i] = make([]byte, r.IntN(1000))
			if r.IntN(10) == 0 {
				bodies[i] = make([]byte, r.IntN(200_000)) // larger than the buffer
			}
			for k := range bodies[i] {
				bodies[i][k] = byte(i)
			}
			call := &Call{HeadOnly: i%2 == 0 && len(bodies[i]) > 0, Done: func(call *Call, a *remoting.Command, err error) {
				done.Add(1)
				switch {
				case err != nil:
					t.Errorf("call %d: %v", i, err)
				case call.HeadOnly && a.Body != nil, !call.HeadOnly && !bytes.Equal(a.Body, bodies[i]):
					t.Errorf("call %d: a body of %d bytes; want %d, head only %v", i, len(a.Body), len(bodies[i]), call.HeadOnly)
				}
				got[i].Add(1)
			}}
			cmd := NewCommand(remoting.GetMaxOffset, "topic", "t")
			cmd.Serialize = remoting.SerializeType(r.IntN(2))
			send(t, c, call, command{cmd})
		}
		c.Flush()
		requests := make([]*remoting.Command, calls)
		for i := range requests {
			requests[i] = p.next()
		}
		var stream []byte
		for _, i := range r.Perm(calls) { // in any order
			stream = append(stream, answerTo(requests[i], remoting.Success, bodies[i], "queueId", "1")...)
		}
		for len(stream) > 0 {
			n := min(len(stream), 1+r.IntN(1+r.IntN(20_000)))
			p.write(stream[:n])
			stream = stream[n:]
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
			}
		}
		eventually(t, "all answers", func() bool { return done.Load() == calls })
		for i := range got {
			if n := got[i].Load(); n != 1 {
				t.Fatalf("seed %d: call %d was answered %d times", seed, i, n)
			}
		}
		if rounds.Load() == 0 || c.Strays() != 0 {
			t.Fatalf("%d rounds, %d strays", rounds.Load(), c.Strays())
		}
	}
}

// outcome is what a call ended with.
type outcome struct {
	code int32
	err  error
}

func newCall(ch chan outcome) *Call {
	return &Call{Done: func(_ *Call, a *remoting.Command, err error) {
		o := outcome{err: err}
		if a != nil {
			o.code = a.Code
		}
		ch <- o
	}}
}

func (ch outcomes) next(t *testing.T) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(testWait):
		t.Fatal("a call does not end")
		return outcome{}
	}
}

type outcomes chan outcome

func ask(t *testing.T, c *Conn, ch outcomes) *Call {
	t.Helper()
	call := newCall(ch)
	send(t, c, call, command{NewCommand(remoting.GetMaxOffset)})
	c.Flush()
	return call
}

func trySend(c *Conn, call *Call, r Request) error {
	c.Lock()
	defer c.Unlock()
	return c.Send(call, r, Clock())
}

func send(t *testing.T, c *Conn, call *Call, r Request) {
	t.Helper()
	if err := trySend(c, call, r); err != nil {
		t.Fatal(err)
	}
}

// A late answer is nobody's, also when its call's place is in use again.
func TestLateAnswersAreStrays(t *testing.T) {
	c, p := connect(t, Options{Window: 1})
	ch := make(outcomes, 1)
	call := ask(t, c, ch)
	first := p.next()
	if err := trySend(c, newCall(ch), command{NewCommand(remoting.GetMaxOffset)}); !errors.Is(err, ErrFull) {
		t.Fatalf("a second request in a window of one: %v", err)
	}
	c.Expire(Clock())
	select {
	case o := <-ch:
		t.Fatalf("a call ended before its time: %+v", o)
	default:
	}
	c.Expire(Clock() + 2*timeoutDefault)
	if o := ch.next(t); !errors.Is(o.err, ErrTimeout) {
		t.Fatalf("the call ended with %+v", o)
	}
	send(t, c, call, command{NewCommand(remoting.GetMaxOffset)}) // the same call, again
	c.Flush()
	second := p.next()
	stranger := NewCommand(remoting.NotifyConsumerIDsChanged) // a request of the server
	stranger.Opaque = second.Opaque
	outside := *second
	outside.Opaque = opaqueMin | 77
	p.write(answerTo(first, remoting.SystemError, nil))
	p.write(answerTo(&outside, remoting.SystemError, nil))
	p.write(stranger.AppendTo(nil, 0))
	p.write(answerTo(second, remoting.Success, nil))
	if o := ch.next(t); o.err != nil || o.code != remoting.Success {
		t.Fatalf("the second call ended with %+v", o)
	}
	if n := c.Strays(); n != 2 {
		t.Fatalf("%d strays; want 2", n)
	}
}

func TestCallsEndWithTheConnection(t *testing.T) {
	f := func(what string, end func(*Conn, *peer), want string) {
		t.Helper()
		c, p := connect(t, Options{Window: 3})
		ch := make(outcomes, 3)
		for range 3 {
			ask(t, c, ch)
		}
		p.next()
		end(c, p)
		for range 3 {
			if o := ch.next(t); o.err == nil || !strings.Contains(o.err.Error(), want) {
				t.Errorf("%s: a call ended with %+v; want %q", what, o, want)
			}
		}
		<-c.Done()
		if err := trySend(c, newCall(ch), command{NewCommand(remoting.GetMaxOffset)}); err == nil || c.Err() == nil {
			t.Errorf("%s: the connection still takes requests", what)
		}
		if _, err := c.Invoke(t.Context(), NewCommand(remoting.GetMaxOffset)); err == nil {
			t.Errorf("%s: Invoke", what)
		}
	}
	f("closed by us", func(c *Conn, _ *peer) { c.Close() }, ErrClosed.Error())
	f("closed by the peer", func(_ *Conn, p *peer) {
		_ = p.conn.(*net.TCPConn).CloseWrite()
	}, "closed by the peer")
	f("no frame", func(_ *Conn, p *peer) { p.write([]byte("HTTP/1.1 400 Bad Request")) }, "frame length")
	f("frame too long", func(_ *Conn, p *peer) { p.write([]byte{0x7f, 0xff, 0xff, 0xff}) }, "frame length")
	f("broken header", func(_ *Conn, p *peer) { p.write([]byte{0, 0, 0, 6, 0, 0, 0, 2, '{', '{'}) }, "protocol error")
}

// An answer whose head is right and whose fields are broken ends the connection, and its call.
func TestBrokenFields(t *testing.T) {
	c, p := connect(t, Options{Window: 1})
	ch := make(outcomes, 1)
	ask(t, c, ch)
	answer := answerTo(p.next(), remoting.Success, nil, "queueId", "12345")
	at := bytes.Index(answer, []byte(`"12345"`))
	copy(answer[at:], `zzzzzzz`)
	p.write(answer)
	if o := ch.next(t); !errors.Is(o.err, remoting.ErrProtocol) {
		t.Fatalf("the call ended with %+v", o)
	}
	<-c.Done()
}

// A peer that takes nothing is found out.
func TestWriteThatHangs(t *testing.T) {
	c, p := connect(t, Options{Window: 1})
	ch := make(outcomes, 1)
	cmd := NewCommand(remoting.SendMessageV2)
	cmd.Body = make([]byte, 15<<20)
	call := newCall(ch)
	send(t, c, call, command{cmd})
	_ = p.conn.(*net.TCPConn).SetReadBuffer(4096)
	flushed := make(chan struct{})
	go func() { c.Flush(); close(flushed) }()
	eventually(t, "a write that waits", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.writing != 0
	})
	select {
	case <-flushed:
		t.Fatal("the kernel took it all")
	case <-time.After(20 * time.Millisecond):
	}
	c.Expire(Clock() + 2*timeoutDefault)
	if o := ch.next(t); !errors.Is(o.err, ErrTimeout) {
		t.Fatalf("the call ended with %+v", o)
	}
	<-flushed
	<-c.Done()
}

// A peer that takes a question and says nothing is given up, though nobody looks through the calls of the connection.
func TestInvokeGivesUp(t *testing.T) {
	c, p := connect(t, Options{Timeout: 20 * time.Millisecond})
	if _, err := c.Invoke(t.Context(), NewCommand(remoting.GetMaxOffset)); !errors.Is(err, ErrTimeout) {
		t.Errorf("a question without an answer: %v", err)
	}
	p.next()
}

// echo answers each frame it reads with the same answer, patched with the request's id.
func echo(nc net.Conn, answer []byte, opaqueAt int) {
	buffer := make([]byte, 0, 1<<20)
	var out []byte
	for {
		n, err := nc.Read(buffer[len(buffer):cap(buffer)])
		if err != nil {
			return
		}
		buffer = buffer[:len(buffer)+n]
		out = out[:0]
		for len(buffer) >= 4 {
			size := 4 + int(binary.BigEndian.Uint32(buffer))
			if len(buffer) < size {
				break
			}
			at := bytes.Index(buffer[:size], []byte(`"opaque":`)) + len(`"opaque":`)
			start := len(out)
			out = append(out, answer...)
			copy(out[start+opaqueAt:], buffer[at:at+10])
			buffer = append(buffer[:0], buffer[size:]...)
		}
		if _, err := nc.Write(out); err != nil {
			return
		}
	}
}

// A send and its answer allocate nothing.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		return // counted without it
	}
	const window = 64
	template := NewSendTemplate(SendOptions{Group: "g", Topic: "t", UniqueKey: 1})
	requests := make([]SendRequest, window)
	answered := make(chan struct{}, 1)
	left := window
	c, p := connect(t, Options{Window: window, Round: func(*Conn) {
		if left == 0 {
			left = window
			answered <- struct{}{}
		}
	}})
	sample := answerTo(&remoting.Command{Opaque: opaqueSampleA}, remoting.Success, nil, "queueId", "1", "queueOffset", "12")
	served := make(chan struct{})
	go func() {
		defer close(served)
		echo(p.conn, sample, bytes.Index(sample, []byte("1111111111")))
	}()
	calls := make([]Call, window)
	body := make([]byte, 1024)
	for i := range calls {
		calls[i] = Call{HeadOnly: i%2 == 0, Done: func(*Call, *remoting.Command, error) { left-- }}
		requests[i] = SendRequest{Template: template, Message: Message{Tail: body}}
	}
	n := testing.AllocsPerRun(200, func() {
		now := Clock()
		c.Lock()
		for i := range calls {
			requests[i].Key++
			if err := c.Send(&calls[i], &requests[i], now); err != nil {
				t.Error(err)
			}
		}
		c.FlushLocked()
		c.Unlock()
		<-answered
	})
	if n > 1 { // of 64 sends
		t.Fatalf("%v allocations for %d sends", n, window)
	}
	c.Close()
	<-served
}

func TestMakeRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	buffer := make([]byte, readBufferMin)
	for range 500 {
		filled := r.IntN(len(buffer) + 1)
		used := r.IntN(filled + 1)
		need := r.IntN(2 * readBufferMin)
		if r.IntN(50) == 0 {
			need = r.IntN(remoting.FrameLengthMax)
		}
		if left := filled - used; need <= left {
			if need = 0; left >= 4 {
				need = left + 1 // a whole frame would have been handed out, and the length of one that is not is known
			}
		}
		for i := range buffer[:filled] {
			buffer[i] = byte(i)
		}
		want := bytes.Clone(buffer[used:filled])
		next, left := makeRoom(buffer, used, filled, need)
		if left != len(want) || !bytes.Equal(next[:left], want) || len(next) <= left || len(next) < need || len(next) > max(2*readBufferKeep, 2*len(buffer), need) {
			t.Fatalf("makeRoom(%d bytes, %d, %d, need %d): %d of %d", len(buffer), used, filled, need, left, len(next))
		}
		buffer = next
	}
}
