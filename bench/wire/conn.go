// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor/remoting"
)

var (
	// ErrTimeout means that no answer came in time. What was asked for may have happened.
	ErrTimeout = errors.New("no answer in time")
	// ErrClosed means that our own side closed the connection.
	ErrClosed = errors.New("connection closed")
	// ErrFull means that as many requests as the connection has calls for are in flight.
	ErrFull = errors.New("window is full")
)

const (
	// InFlightMax bounds the window of a connection: the slot of a call is the low half of its request id.
	InFlightMax = 1 << slotBits

	slotBits = 16
	slotMask = 1<<slotBits - 1

	// Request ids are from opaqueMin on, so that each is written with as many digits and a Template has a fixed place for
	// it. Above the slot they carry how often the slot was used: a late answer does not match the slot's next call.
	opaqueMin      = 1 << 30
	generationMask = opaqueMin>>slotBits - 1

	// A reader's buffer begins with room for a window of small answers, doubles as often as a read fills it, up to
	// readBufferKeep, and holds a larger answer for as long as that takes.
	readBufferMin  = 4 << 10
	readBufferKeep = 1 << 20
	answerSize     = 512
	// outputKeep is the largest output buffer kept for the next write.
	outputKeep = 1 << 20
)

// Request appends itself to the output as one whole frame with this request id.
type Request interface {
	AppendFrame(dst []byte, opaque int32) []byte
}

// Call is a request in flight. Its owner keeps it and uses it again, after Done.
type Call struct {
	// Done gets the answer, which is valid until Done returns, or an error. The connection's lock is held meanwhile.
	Done func(call *Call, answer *remoting.Command, err error)
	// HeadOnly says that of an answer with SUCCESS no more is looked at than that: it comes without fields and body.
	HeadOnly bool

	deadline time.Duration
	opaque   int32
}

// Options of Dial; zero fields take the defaults named.
type Options struct {
	Window int         // most requests in flight (1)
	Round  func(*Conn) // runs on the reader after the answers of each read (Flush)
	// Lock guards the connection; a user that shares it guards its own state with it (its own).
	Lock *sync.Mutex
	// Timeout bounds each request, and one write: Expire must be called now and then (10 s). Invoke looks to it by itself.
	Timeout time.Duration
}

const timeoutDefault = 10 * time.Second

// Conn is one connection.
type Conn struct {
	nc      net.Conn
	round   func(*Conn)
	timeout time.Duration
	done    chan struct{} // closed when the reader has ended
	readAt  time.Duration // when the bytes now being handed out were read; the reader's own
	heads   headReader    // the reader's own
	strays  atomic.Int64

	mu      *sync.Mutex // guards the fields below; nothing blocks under it
	calls   []*Call     // by slot
	free    []uint16    // slots, the last used first
	uses    []uint16    // of each slot
	out     []byte      // appended, not yet written
	spare   []byte
	writing time.Duration // since when a write is under way; 0: none is
	err     error         // why the connection ended
}

var clockBase = time.Now()

// Clock is the monotonic time of this process, from its start. Calls and measurements use it.
func Clock() time.Duration { return time.Since(clockBase) }

// WallClock is the wall clock's time at Clock's c, in nanoseconds since 1970; a step of the wall clock does not show.
func WallClock(c time.Duration) int64 { return clockBase.UnixNano() + int64(c) }

// Dial connects and starts the reader.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	if o.Window = max(o.Window, 1); o.Window > InFlightMax {
		return nil, fmt.Errorf("window of %d requests, at most %d", o.Window, InFlightMax)
	}
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := newConn(nc, o)
	go c.read()
	return c, nil
}

func newConn(nc net.Conn, o Options) *Conn {
	c := &Conn{
		nc: nc, round: o.Round, timeout: o.Timeout, done: make(chan struct{}),
		calls: make([]*Call, o.Window), free: make([]uint16, o.Window), uses: make([]uint16, o.Window),
	}
	if c.mu = o.Lock; c.mu == nil {
		c.mu = new(sync.Mutex)
	}
	if c.timeout == 0 {
		c.timeout = timeoutDefault
	}
	if c.round == nil {
		c.round = (*Conn).Flush
	}
	for i := range c.free {
		c.free[i] = uint16(o.Window - 1 - i)
	}
	return c
}

// Addr is the peer's address.
func (c *Conn) Addr() string { return c.nc.RemoteAddr().String() }

// ReadAt is when the answer was read that Done now sees: answers that came in one read came at once. For Done and Round.
func (c *Conn) ReadAt() time.Duration { return c.readAt }

// Strays is how many answers came that no call waited for: they were late. Requests of the server are passed over.
func (c *Conn) Strays() int64 { return c.strays.Load() }

// Done is closed when the connection has ended and all its calls have been told.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended; nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Lock takes the connection's lock, which Send needs. Inside Done it is held.
func (c *Conn) Lock()   { c.mu.Lock() }
func (c *Conn) Unlock() { c.mu.Unlock() }

// Send appends r to the output, to be answered to call. An error means that it is not sent and Done will not run. The
// caller holds the lock.
func (c *Conn) Send(call *Call, r Request, now time.Duration) error {
	if c.err != nil {
		return c.err
	}
	n := len(c.free)
	if n == 0 {
		return ErrFull
	}
	slot := c.free[n-1]
	c.free = c.free[:n-1]
	c.uses[slot]++
	call.opaque = opaqueMin | int32(c.uses[slot]&generationMask)<<slotBits | int32(slot)
	call.deadline = now + c.timeout
	c.calls[slot] = call
	c.out = r.AppendFrame(c.out, call.opaque)
	return nil
}

// SendOneway appends r, which gets no answer. The caller holds the lock.
func (c *Conn) SendOneway(r Request) error {
	if c.err != nil {
		return c.err
	}
	c.out = r.AppendFrame(c.out, opaqueMin)
	return nil
}

// Ended says that Send takes no more. The caller holds the lock.
func (c *Conn) Ended() bool { return c.err != nil }

// Buffered is how much has been appended and not been handed to a write. The caller holds the lock.
func (c *Conn) Buffered() int { return len(c.out) }

// Flush writes what was appended. When another goroutine is writing, that one takes it along.
func (c *Conn) Flush() {
	c.mu.Lock()
	c.FlushLocked()
	c.mu.Unlock()
}

// FlushLocked is Flush for a caller that holds the lock, as in Done; it is released during the write.
func (c *Conn) FlushLocked() {
	if c.writing != 0 {
		return
	}
	for len(c.out) > 0 && c.err == nil {
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		c.writing = max(Clock(), 1)
		c.mu.Unlock()
		_, err := c.nc.Write(b)
		c.mu.Lock()
		c.writing = 0
		if cap(b) <= outputKeep {
			c.spare = b[:0]
		}
		if err != nil {
			c.failLocked(fmt.Errorf("write: %w", err))
		}
	}
}

// Expire ends the calls whose time is over, and the connection when a write hangs.
func (c *Conn) Expire(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing != 0 && now-c.writing > c.timeout {
		c.failLocked(fmt.Errorf("write: the peer takes nothing: %w", ErrTimeout))
	}
	for slot, call := range c.calls {
		if call != nil && now > call.deadline && c.err == nil {
			c.takeLocked(uint16(slot))
			call.Done(call, nil, ErrTimeout)
		}
	}
}

// Close ends the connection; calls in flight get ErrClosed, and have got it when Done is closed.
func (c *Conn) Close() {
	c.mu.Lock()
	c.failLocked(ErrClosed)
	c.mu.Unlock()
}

// failLocked ends the connection for the first reason. The reader wakes and tells the calls.
func (c *Conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.nc.Close()
}

// takeLocked empties a slot.
func (c *Conn) takeLocked(slot uint16) *Call {
	call := c.calls[slot]
	c.calls[slot] = nil
	c.free = append(c.free, slot)
	return call
}

// read is the reader goroutine.
func (c *Conn) read() {
	err := c.readFrames()
	c.mu.Lock()
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the peer")
	}
	c.failLocked(err)
	c.readAt = Clock()
	for slot, call := range c.calls {
		if call != nil {
			c.takeLocked(uint16(slot))
			call.Done(call, nil, c.err)
		}
	}
	c.mu.Unlock()
	close(c.done)
}

func (c *Conn) readFrames() error {
	var (
		buffer = make([]byte, min(max(readBufferMin, len(c.calls)*answerSize), readBufferKeep))
		filled int
		answer remoting.Command
	)
	for {
		n, err := c.nc.Read(buffer[filled:])
		if err != nil {
			return err
		}
		c.readAt = Clock()
		filled += n
		used, need, err := c.handOut(buffer[:filled], &answer)
		if err != nil {
			return err
		}
		c.round(c)
		buffer, filled = makeRoom(buffer, used, filled, need)
	}
}

// handOut hands out the whole frames at the start of b: used bytes. need is the length of the frame behind them, 0 if that
// is not known yet.
func (c *Conn) handOut(b []byte, answer *remoting.Command) (used, need int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		need, err = remoting.FrameLength(b[used:])
		if err != nil || need == 0 || need > len(b)-used {
			return used, need, err
		}
		if err := c.answered(b[used:used+need:used+need], answer); err != nil {
			return used, 0, err
		}
		used += need
	}
}

// answered hands one frame to the call that waits for it.
func (c *Conn) answered(frame []byte, answer *remoting.Command) error {
	h, plain := c.heads.read(frame)
	if !plain {
		if err := remoting.Decode(frame, answer); err != nil {
			return err
		}
		h = head{answer.Code, answer.Opaque, answer.Flag}
	}
	slot := h.opaque & slotMask
	if h.flag&remoting.FlagResponse == 0 {
		return nil
	}
	if int(slot) >= len(c.calls) || c.calls[slot] == nil || c.calls[slot].opaque != h.opaque {
		c.strays.Add(1)
		return nil
	}
	call := c.takeLocked(uint16(slot))
	if plain {
		if call.HeadOnly && h.code == remoting.Success {
			answer.Reset()
			answer.Code, answer.Opaque, answer.Flag = h.code, h.opaque, h.flag
		} else if err := remoting.Decode(frame, answer); err != nil {
			call.Done(call, nil, err)
			return err
		}
	}
	call.Done(call, answer, nil)
	return nil
}

// makeRoom moves what is left of buffer to its start, and into another buffer when the next frame needs a larger one, when
// reads come back full, or when such a large one is no longer needed.
func makeRoom(buffer []byte, used, filled, need int) ([]byte, int) {
	left := filled - used
	size := len(buffer)
	switch {
	case need > size:
		size = need
	case size > readBufferKeep && need <= readBufferKeep && left <= readBufferKeep/2:
		size = readBufferKeep
	case filled == size && size < readBufferKeep:
		size = min(2*size, readBufferKeep)
	}
	if size == len(buffer) {
		if used > 0 {
			copy(buffer, buffer[used:filled])
		}
		return buffer, left
	}
	larger := make([]byte, size)
	copy(larger, buffer[used:filled])
	return larger, left
}
