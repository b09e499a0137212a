// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"net/netip"
	"testing"
	"time"

	"loopmq/storage"
)

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

// A message that is replicated costs the master no memory: not the frame, not the report, not the send that waits, nor
// the tick.
func TestReplicationDoesNotAllocate(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.InSyncReplicas = 3 })
	m.grow(testFileSize - 64<<10)
	end := m.store.MaxPhyOffset()
	var conns [3]*quietConn
	handler := &masterHandler{m.ha}
	for i := range conns {
		conns[i] = new(quietConn)
		handler.OnOpen(conns[i])
		c := conns[i].context.(*HAConnection)
		c.key.Store(&slaveKey{node: nodeID{byte(i)}})
		conns[i].in = reportOf(1)
		c.onTraffic(time.Now())
		defer handler.OnClose(conns[i], nil)
	}
	if conns[0].written < int(end) {
		t.Fatalf("%d bytes sent of %d", conns[0].written, end)
	}
	answered := 0
	done := func(storage.PutMessageStatus) { answered++ }
	at := storage.PhyOffset(1)
	var report [reportSize]byte
	replicate := func() {
		at += 100
		now := time.Now()
		m.ha.SubmitReplicaRequest(at-50, now.Add(time.Minute), done)
		m.ha.SubmitReplicaRequest(at, now.Add(time.Minute), done)
		m.ha.Readable(end)
		for _, conn := range conns {
			encodeReport(&report, int64(at))
			conn.in = report[:]
			c := conn.context.(*HAConnection)
			c.onTraffic(now)
			c.onLoopPump()
			c.onLoopTick()
		}
		m.ha.onTick()
	}
	if n := testing.AllocsPerRun(500, replicate); n > 0 {
		t.Errorf("%v allocations for two sends, three reports and a tick", n)
	}
	if answered != 2*501 {
		t.Fatalf("%d sends answered", answered)
	}

	c := conns[0].context.(*HAConnection)
	frames := func() {
		c.nextTransferFromWhere = 1
		c.pump(time.Now())
	}
	if n := testing.AllocsPerRun(100, frames); n > 0 {
		t.Errorf("%v allocations for the frames of one turn", n)
	}
}

func TestLag(t *testing.T) {
	var l lagClock
	began := time.Unix(1000, 0)
	for i := range 2 * lagSamples {
		l.sample(began.Add(time.Duration(i)*time.Second), storage.PhyOffset(i*10))
		l.sample(began.Add(time.Duration(i)*time.Second+time.Millisecond), 1<<40) // too soon
	}
	now := began.Add((2*lagSamples - 1) * time.Second)
	f := func(offset storage.PhyOffset, want time.Duration) {
		t.Helper()
		if got := l.lag(now, offset); got != want {
			t.Fatalf("lag of %d: %v; want %v", offset, got, want)
		}
	}
	end := storage.PhyOffset((2*lagSamples - 1) * 10)
	f(end, 0)
	f(end+5, 0)
	f(end-1, 0)
	f(end-10, 0)
	f(end-11, time.Second)
	f(end-100, 9*time.Second)
	f(0, (lagSamples-1)*time.Second)
}

// A slave in old files gets them through the helper, and all of them.
func TestColdFrames(t *testing.T) {
	m := startMaster(t, nil)
	m.grow(coldDistance + 3*prefetchSize)
	s := m.follow(1)
	s.receive(m.store.MaxPhyOffset())
	m.equal(s)
	warm := storage.PhyOffset(0)
	for _, c := range *m.ha.connections.Load() {
		warm = storage.PhyOffset(c.warmEnd.Load())
	}
	if warm < 2*prefetchSize {
		t.Fatalf("the helper brought in the log up to %d only", warm)
	}
}

// Only a fault of a page is caught, nothing else.
func TestCatchFaultLeavesOtherPanics(t *testing.T) {
	defer func() {
		if recover() != "BUG" {
			t.Fatal("the panic is gone")
		}
	}()
	var faulted bool
	defer catchFault(&faulted)
	panic("BUG")
}
