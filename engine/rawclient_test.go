// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// callTimeout bounds every wait of a raw client; no test asserts on times near it.
const callTimeout = 20 * time.Second

// rawClient speaks remoting frames over a plain socket, as a client library would, and nothing more: it adds no header
// field, knows no route, and never retries. Requests may be started from many goroutines.
type rawClient struct {
	t         testing.TB
	conn      net.Conn
	serialize remoting.SerializeType
	language  byte
	version   int32
	opaque    atomic.Int32

	writeMu sync.Mutex // guards out and the socket's write side
	out     []byte

	mu      sync.Mutex // guards pending
	pending map[int32]chan *remoting.Command

	pushes chan *remoting.Command // the broker's own requests, in order; beyond the capacity they are dropped
	closed chan struct{}          // closed when the broker closed the connection
}

// dialRaw connects to addr; the connection is closed with the test.
func dialRaw(t testing.TB, addr string) *rawClient {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, callTimeout)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	c := &rawClient{
		t: t, conn: conn, version: remoting.Version,
		pending: make(map[int32]chan *remoting.Command),
		pushes:  make(chan *remoting.Command, 1024),
		closed:  make(chan struct{}),
	}
	go c.readLoop()
	t.Cleanup(c.close)
	return c
}

// close closes the socket and waits for the reader.
func (c *rawClient) close() {
	_ = c.conn.Close()
	<-c.closed
}

// reset closes the socket so that the broker sees RST, not FIN.
func (c *rawClient) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.close()
}

func (c *rawClient) readLoop() {
	defer func() {
		c.mu.Lock()
		for opaque, ch := range c.pending {
			delete(c.pending, opaque)
			close(ch)
		}
		c.mu.Unlock()
		close(c.closed)
	}()
	r := bufio.NewReaderSize(c.conn, 64<<10)
	var head [4]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(head[:])
		if length > remoting.FrameLengthMax-4 {
			c.t.Errorf("the broker sent a frame of %d bytes", length)
			return
		}
		frame := make([]byte, 4+length)
		copy(frame, head[:])
		if _, err := io.ReadFull(r, frame[4:]); err != nil {
			return
		}
		cmd := new(remoting.Command)
		if err := remoting.Decode(frame, cmd); err != nil {
			c.t.Errorf("the broker sent a frame that does not decode: %v", err)
			return
		}
		if !cmd.IsResponse() {
			select {
			case c.pushes <- cmd:
			default:
			}
			continue
		}
		c.mu.Lock()
		ch := c.pending[cmd.Opaque]
		delete(c.pending, cmd.Opaque)
		c.mu.Unlock()
		if ch == nil {
			c.t.Errorf("the broker answered opaque %d, code %d, which nobody waits for", cmd.Opaque, cmd.Code)
			continue
		}
		ch <- cmd
	}
}

// request builds a command; fields are key, value, key, value.
func (c *rawClient) request(code int32, body []byte, fields ...string) *remoting.Command {
	cmd := &remoting.Command{
		Code: code, Language: c.language, Version: c.version,
		Opaque: c.opaque.Add(1), Serialize: c.serialize, Body: body,
	}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Ext.Add(fields[i], fields[i+1])
	}
	return cmd
}

func (c *rawClient) write(cmds ...*remoting.Command) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.out = c.out[:0]
	for _, cmd := range cmds {
		c.out = cmd.AppendTo(c.out, len(cmd.Body))
	}
	_, err := c.conn.Write(c.out)
	return err
}

// raw writes bytes as they are.
func (c *rawClient) raw(b []byte) {
	c.t.Helper()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// start sends the commands in one write; each channel gets the answer, or is closed when the connection ends first.
func (c *rawClient) start(cmds ...*remoting.Command) []chan *remoting.Command {
	chans := make([]chan *remoting.Command, len(cmds))
	c.mu.Lock()
	for i, cmd := range cmds {
		chans[i] = make(chan *remoting.Command, 1)
		c.pending[cmd.Opaque] = chans[i]
	}
	c.mu.Unlock()
	if err := c.write(cmds...); err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Logf("write: %v", err)
	}
	return chans
}

// call sends one request and waits for its answer.
func (c *rawClient) call(code int32, body []byte, fields ...string) *remoting.Command {
	c.t.Helper()
	return c.await(c.start(c.request(code, body, fields...))[0])
}

// await waits for an answer that was started.
func (c *rawClient) await(ch <-chan *remoting.Command) *remoting.Command {
	c.t.Helper()
	select {
	case resp, ok := <-ch:
		if !ok {
			c.t.Fatalf("the connection ended before the answer")
		}
		return resp
	case <-time.After(callTimeout):
		c.t.Fatalf("no answer within %v", callTimeout)
	}
	return nil
}

// oneway sends a request with the one-way flag.
func (c *rawClient) oneway(code int32, body []byte, fields ...string) {
	c.t.Helper()
	cmd := c.request(code, body, fields...)
	cmd.Flag |= remoting.FlagOneway
	if err := c.write(cmd); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// push waits for the broker's next own request with the code; others before it are dropped.
func (c *rawClient) push(code int32) *remoting.Command {
	c.t.Helper()
	deadline := time.After(callTimeout)
	for {
		select {
		case cmd := <-c.pushes:
			if cmd.Code == code {
				return cmd
			}
		case <-deadline:
			c.t.Fatalf("no request %d from the broker within %v", code, callTimeout)
		}
	}
}

// waitClosed waits until the broker has closed the connection.
func (c *rawClient) waitClosed() {
	c.t.Helper()
	select {
	case <-c.closed:
	case <-time.After(callTimeout):
		c.t.Fatalf("the broker did not close the connection within %v", callTimeout)
	}
}
