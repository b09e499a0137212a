// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// writevPartsMax is IOV_MAX: the kernel refuses more parts, and gnet closes the connection over it.
const writevPartsMax = 1024

// gate lets posts through until the engine begins to end. gnet closes the descriptor through which it wakes a loop
// before it refuses posts; in that gap a post would write eight bytes into whatever file has got the number since.
type gate struct {
	mu    sync.RWMutex
	ended bool
}

func (g *gate) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

func (g *gate) post(loop gnet.EventLoop, f func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return !g.ended && loop.Execute(context.Background(), posted(f)) == nil
}

type posted func()

func (f posted) Run(context.Context) error { f(); return nil }

// events turns gnet's callbacks into a Handler's.
type events struct {
	handler Handler
	gate    gate
	onTick  func() time.Duration
	// Of a server only.
	onBoot func(gnet.Engine)
	admit  func() bool
	left   func()
}

func (e *events) OnBoot(engine gnet.Engine) gnet.Action {
	if e.onBoot != nil {
		e.onBoot(engine)
	}
	return gnet.None
}

// OnShutdown comes before gnet closes the loops' descriptors, whoever ended the engine.
func (e *events) OnShutdown(gnet.Engine) { e.gate.end() }

func (e *events) OnTick() (time.Duration, gnet.Action) {
	return e.onTick(), gnet.None
}

// dialled travels with a connection that is being enrolled: what the caller wants as its context, and the Conn.
type dialled struct {
	context any
	conn    *gnetConn
}

func (e *events) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	if e.admit != nil && !e.admit() {
		return nil, gnet.Close
	}
	// A fault in a mapped file that a callback touches is to be a panic, which is answered, and not the end of the
	// process. The setting belongs to the goroutine, which is the loop's for good.
	debug.SetPanicOnFault(true)
	c := &gnetConn{gc: gc, loop: gc.EventLoop(), gate: &e.gate, remote: addrPort(gc.RemoteAddr()), local: localAddr(gc)}
	if d, ok := gc.Context().(*dialled); ok {
		c.context, d.conn = d.context, c
	}
	gc.SetContext(c)
	e.handler.OnOpen(c)
	return nil, gnet.None
}

func (e *events) OnTraffic(gc gnet.Conn) gnet.Action {
	e.handler.OnTraffic(gc.Context().(*gnetConn))
	return gnet.None
}

func (e *events) OnClose(gc gnet.Conn, err error) gnet.Action {
	c, ok := gc.Context().(*gnetConn)
	if !ok {
		return gnet.None // never admitted
	}
	c.closed.Store(true)
	e.handler.OnClose(c, err)
	if e.left != nil {
		e.left()
	}
	return gnet.None
}

// gnetConn is gnet's connection made safe: see the list of traps in the package comment.
type gnetConn struct {
	gc            gnet.Conn
	loop          gnet.EventLoop
	gate          *gate
	remote, local netip.AddrPort
	closed        atomic.Bool
	torn          bool // a write met a page that cannot be read: whatever came next would be taken for the rest of it
	context       any
	parts         [][]byte // scratch of Writev, since gnet changes what it is given
}

func (c *gnetConn) Closed() bool               { return c.closed.Load() }
func (c *gnetConn) Context() any               { return c.context }
func (c *gnetConn) SetContext(v any)           { c.context = v }
func (c *gnetConn) RemoteAddr() netip.AddrPort { return c.remote }
func (c *gnetConn) LocalAddr() netip.AddrPort  { return c.local }

func (c *gnetConn) InboundBuffered() int {
	if c.closed.Load() {
		return 0
	}
	return c.gc.InboundBuffered()
}

func (c *gnetConn) OutboundBuffered() int {
	if c.closed.Load() {
		return 0
	}
	return c.gc.OutboundBuffered()
}

func (c *gnetConn) Read(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, ErrClosed
	}
	if len(p) == 0 || c.gc.InboundBuffered() == 0 {
		return 0, nil
	}
	return c.gc.Read(p)
}

func (c *gnetConn) Peek(n int) ([]byte, error) {
	switch {
	case c.closed.Load():
		return nil, ErrClosed
	case n == 0:
		return nil, nil
	case n < 0 || n > c.gc.InboundBuffered():
		return nil, io.ErrShortBuffer
	}
	return c.gc.Peek(n)
}

func (c *gnetConn) Discard(n int) (int, error) {
	switch {
	case c.closed.Load():
		return 0, ErrClosed
	case n == 0:
		return 0, nil
	case n < 0 || n > c.gc.InboundBuffered():
		return 0, io.ErrShortBuffer
	}
	return c.gc.Discard(n)
}

func (c *gnetConn) Writev(parts [][]byte) error {
	defer func() {
		clear(c.parts) // hold nobody's bytes
		c.parts = c.parts[:0]
	}()
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		c.parts = append(c.parts, p)
		if len(c.parts) == writevPartsMax {
			if err := c.writeParts(); err != nil {
				return err
			}
		}
	}
	return c.writeParts()
}

// writeParts hands the gathered parts to gnet. A write on a dead socket closes it, and OnClose has run when it returns.
func (c *gnetConn) writeParts() (err error) {
	if c.closed.Load() || c.torn {
		return ErrClosed
	}
	defer c.catchFault(&err)
	switch len(c.parts) {
	case 0:
		return nil
	case 1:
		_, err = c.gc.Write(c.parts[0])
	default:
		_, err = c.gc.Writev(c.parts)
	}
	clear(c.parts)
	c.parts = c.parts[:0]
	if c.closed.Load() {
		return ErrClosed
	}
	return err
}

// catchFault makes an error of a part that lies in mapped memory and cannot be read. The kernel would say EFAULT, but what
// the socket does not take gnet copies.
func (c *gnetConn) catchFault(err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	fault, ok := cause.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(cause)
	}
	c.torn = true
	c.Close()
	*err = fmt.Errorf("bytes at %#x cannot be read: %w", fault.Addr(), fault)
}

func (c *gnetConn) Post(f func()) bool { return c.gate.post(c.loop, f) }

func (c *gnetConn) Close() {
	if !c.closed.Load() {
		c.Post(c.closeOnLoop)
	}
}

// closeOnLoop may meet a connection that has been closed since, and whose descriptor another one has.
func (c *gnetConn) closeOnLoop() {
	if !c.closed.Load() {
		_ = c.loop.Close(c.gc)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// localAddr asks the socket: gnet gives the listener's address, which may be a wildcard with port 0.
func localAddr(gc gnet.Conn) netip.AddrPort {
	sa, err := unix.Getsockname(gc.Fd())
	if err != nil {
		return addrPort(gc.LocalAddr())
	}
	return sockaddrPort(sa)
}

func sockaddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
