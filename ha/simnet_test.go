// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing/synctest"

	"loopmq/reactor"
)

// errSimReset is what a connection ends with when the network broke it.
var errSimReset = errors.New("simulated reset")

// simNet carries bytes between simulated nodes. All that would run on event loops runs on the test's goroutine, from
// the steps and from settle; only Post and Close may come from elsewhere.
type simNet struct {
	rng     *rand.Rand
	settled func() // runs when all has come to rest
	ports   uint16
	conns   []*simConn // ends that are not closed, or have something on the way

	mu    sync.Mutex // guards posts
	posts []func()
}

// settle lets all goroutines come to rest and runs what they posted, in any order, until nothing is left to run.
func (n *simNet) settle() {
	for {
		synctest.Wait()
		n.mu.Lock()
		posts := n.posts
		n.posts = nil
		n.mu.Unlock()
		if len(posts) == 0 {
			n.sweep()
			n.settled()
			return
		}
		n.rng.Shuffle(len(posts), func(i, j int) { posts[i], posts[j] = posts[j], posts[i] })
		for _, f := range posts {
			f()
		}
	}
}

// sweep forgets connections of which both ends are done.
func (n *simNet) sweep() {
	kept := n.conns[:0]
	for _, c := range n.conns {
		if !c.done() || !c.peer.done() {
			kept = append(kept, c)
		}
	}
	clear(n.conns[len(kept):])
	n.conns = kept
}

// simConn is one end of a connection. It behaves as reactor's: a close is a post, a write on a dead socket runs OnClose
// before it returns, and what the socket does not take counts as buffered.
type simConn struct {
	net     *simNet
	handler reactor.Handler
	peer    *simConn
	owner   *simNode // nil: a peer that is no node
	local   netip.AddrPort
	context any
	written func(b []byte) // sees all that this end writes

	in     []byte // arrived, not read
	out    []byte // written, not arrived
	socket int    // how much of out the kernel takes
	silent bool   // what is written vanishes, this end does not learn it
	fin    bool   // after out the peer learns that this end is closed
	reset  bool   // the next write learns that the connection is gone
	gone   bool   // the process is dead: no callback any more
	closed atomic.Bool
}

// dial makes both ends and opens them, in either order.
func (n *simNet) dial(from, to reactor.Handler, fromOwner, toOwner *simNode, context any) (client, server *simConn) {
	n.ports++
	client = n.end(from, fromOwner, n.ports)
	server = n.end(to, toOwner, 0)
	client.peer, server.peer, client.context = server, client, context
	opens := []*simConn{client, server}
	if n.rng.IntN(2) == 0 {
		opens[0], opens[1] = opens[1], opens[0]
	}
	for _, c := range opens {
		if !c.closed.Load() {
			c.handler.OnOpen(c)
		}
	}
	n.conns = append(n.conns, client, server)
	return client, server
}

func (n *simNet) end(handler reactor.Handler, owner *simNode, port uint16) *simConn {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, 99})
	if owner != nil {
		addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(owner.index)})
	}
	return &simConn{
		net: n, handler: handler, owner: owner, local: netip.AddrPortFrom(addr, port),
		socket: 1 + n.rng.IntN(1<<(6+n.rng.IntN(11))),
	}
}

func (c *simConn) name() string {
	return fmt.Sprintf("%v→%v", c.local, c.peer.local)
}

func (c *simConn) done() bool { return c.gone || c.closed.Load() }

// deliver moves the next n bytes to the peer, which then has traffic; a close follows the last of them.
func (c *simConn) deliver(n int) {
	n = min(n, len(c.out))
	arrived := c.out[:n:n]
	c.out = c.out[n:]
	peer := c.peer
	if n > 0 && !peer.done() {
		peer.in = append(peer.in, arrived...)
		peer.handler.OnTraffic(peer)
	}
	if len(c.out) == 0 && c.fin {
		c.fin = false
		peer.shut(io.EOF)
	}
}

// shut ends this end with a cause, on its loop.
func (c *simConn) shut(cause error) {
	if c.done() {
		return
	}
	c.closed.Store(true)
	c.fin = !c.silent
	c.handler.OnClose(c, cause)
}

// die is the end of the process: what the kernel has taken may still arrive, and then the peer learns it, unless the
// power went with it.
func (c *simConn) die(power bool) {
	if c.gone {
		return
	}
	open := !c.closed.Load()
	c.gone = true
	c.out = c.out[:min(len(c.out), c.socket)]
	if power {
		c.out = nil
	}
	c.fin = open && !power && !c.silent
	if open && power {
		c.peer.silent = true // and nobody answers: only housekeeping ends it, or a reset of the restarted machine
		c.peer.reset = c.net.rng.IntN(2) == 0
	}
}

func (c *simConn) InboundBuffered() int {
	if c.done() {
		return 0
	}
	return len(c.in)
}

func (c *simConn) OutboundBuffered() int {
	if c.done() {
		return 0
	}
	return max(len(c.out)-c.socket, 0)
}

func (c *simConn) Read(p []byte) (int, error) {
	if c.done() {
		return 0, reactor.ErrClosed
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *simConn) Peek(n int) ([]byte, error) {
	switch {
	case c.done():
		return nil, reactor.ErrClosed
	case n < 0 || n > len(c.in):
		return nil, io.ErrShortBuffer
	}
	return c.in[:n:n], nil
}

func (c *simConn) Discard(n int) (int, error) {
	switch {
	case c.done():
		return 0, reactor.ErrClosed
	case n < 0 || n > len(c.in):
		return 0, io.ErrShortBuffer
	}
	clear(c.in[:n]) // whoever kept what Peek lent sees it
	c.in = c.in[n:]
	return n, nil
}

func (c *simConn) Writev(parts [][]byte) error {
	if c.reset {
		c.shut(errSimReset)
	}
	if c.done() || c.owner != nil && c.owner.hasCrashed() {
		return reactor.ErrClosed
	}
	for _, p := range parts {
		if c.written != nil {
			c.written(p)
		}
		if !c.silent {
			c.out = append(c.out, p...)
		}
	}
	return nil
}

func (c *simConn) Closed() bool               { return c.closed.Load() }
func (c *simConn) Context() any               { return c.context }
func (c *simConn) SetContext(v any)           { c.context = v }
func (c *simConn) RemoteAddr() netip.AddrPort { return c.peer.local }
func (c *simConn) LocalAddr() netip.AddrPort  { return c.local }

func (c *simConn) Post(f func()) bool {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.posts = append(c.net.posts, func() {
		if !c.gone {
			f()
		}
	})
	return true
}

func (c *simConn) Close() {
	if !c.closed.Load() {
		c.Post(func() { c.shut(nil) })
	}
}
