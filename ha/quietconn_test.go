// SPDX-License-Identifier: Apache-2.0

package ha

import "net/netip"

// quietConn takes everything that is written, and drops what is posted: the test is its loop.
type quietConn struct {
	in      []byte
	context any
	written int
	closed  bool
}

func (c *quietConn) InboundBuffered() int { return len(c.in) }
func (c *quietConn) Read(p []byte) (int, error) {
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}
func (c *quietConn) Peek(n int) ([]byte, error) { return c.in[:n], nil }
func (c *quietConn) Discard(n int) (int, error) { c.in = c.in[n:]; return n, nil }
func (c *quietConn) Writev(parts [][]byte) error {
	for _, p := range parts {
		c.written += len(p)
	}
	return nil
}
func (c *quietConn) OutboundBuffered() int      { return 0 }
func (c *quietConn) Closed() bool               { return c.closed }
func (c *quietConn) Context() any               { return c.context }
func (c *quietConn) SetContext(v any)           { c.context = v }
func (c *quietConn) RemoteAddr() netip.AddrPort { return testHost }
func (c *quietConn) LocalAddr() netip.AddrPort  { return testHost }
func (c *quietConn) Post(func()) bool           { return true }
func (c *quietConn) Close()                     { c.closed = true }
