// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"errors"
	"net/netip"
)

// ErrClosed is the error of writing to, or waiting on, a connection that is gone.
var ErrClosed = errors.New("reactor: connection closed")

// Conn is one connection. Except where said, its methods are for the connection's own event loop only.
type Conn interface {
	InboundBuffered() int
	// Read drains up to len(p) buffered bytes.
	Read(p []byte) (int, error)
	// Peek borrows n buffered bytes without consuming them; zero means zero. They are valid until the callback returns
	// or the next Discard, whichever comes first.
	Peek(n int) ([]byte, error)
	// Discard consumes n buffered bytes; zero means zero.
	Discard(n int) (int, error)
	// Writev sends or buffers all parts before it returns; the parts are the caller's again. It does not keep or
	// change the slice of slices. The connection may be closed when it returns; if it is not, an error means that a part
	// could not be read: it takes nothing more and closes.
	Writev(parts [][]byte) error
	OutboundBuffered() int
	Closed() bool // any goroutine
	Context() any
	SetContext(any)
	RemoteAddr() netip.AddrPort // any goroutine
	LocalAddr() netip.AddrPort  // any goroutine
	// Post runs f on the connection's loop, soon; any goroutine. Posts are not ordered: f reads current state. It
	// returns false when the engine is ending, and then f never runs. True is no promise: what is still queued when the
	// engine ends is lost, so nothing may depend on f after that.
	Post(f func()) bool
	// Close closes without waiting for the peer; any goroutine. OnClose follows on the loop.
	Close()
}

// Handler gets the events of connections, on their loops.
type Handler interface {
	OnOpen(c Conn)
	OnTraffic(c Conn)
	// OnClose is the last event of c; err is nil when this side closed it.
	OnClose(c Conn, err error)
}
