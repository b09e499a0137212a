// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector allocates on its own account.

package ha

import (
	"testing"
	"time"

	"loopmq/storage"
)

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
