// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// unflushed keeps the log in the page cache.
func unflushed(c *Config) {
	c.Store.FlushIntervalCommitLog, c.Store.FlushCommitLogThoroughInterval = 3_600_000, 3_600_000
}

// cutPower takes what the disk of a master was not told, and starts it again on another boot of its machine.
func (b *testBroker) cutPower(boot string) {
	b.t.Helper()
	must(b.t, b.offsets.Persist())
	b.fs = b.fs.(*faultfs.FS).Crash(faultfs.TotalPowerLoss, 0)
	_ = b.Shutdown(time.Second) // its disk is gone
	b.boot = boot
	b.start()
}

// startUnflushedPair starts a SYNC_MASTER whose log only its slave may have, and that slave.
func startUnflushedPair(t *testing.T) (m, s *testBroker) {
	t.Helper()
	m = newTestBroker(t, func(c *Config) {
		unflushed(c)
		c.Store.Role, c.Store.SlaveTimeout = storage.SyncMaster, callTimeout.Milliseconds()
	})
	m.fs = faultfs.New()
	m.start()
	t.Cleanup(func() { m.stop() })
	s = startSlave(t, m, nil)
	m.inSync()
	return m, s
}

// A SYNC_MASTER whose machine went down takes no sends until the slave has brought back what was answered on its
// strength: the messages, their places in the queues, and the offsets of groups that consumed them.
func TestMasterGetsItsTailBack(t *testing.T) {
	m, s := startUnflushedPair(t)
	c := m.dial()
	for i := range 20 {
		wantCode(t, c.sendTo([]byte(fmt.Sprint(i))), remoting.Success)
	}
	m.offsets.Commit("g", "T", 0, 15)
	end := m.store.MaxPhyOffset()
	m.cutPower("another")

	if m.store.MaxPhyOffset() >= end {
		t.Fatalf("nothing was lost: the log ends at %d, it did at %d", m.store.MaxPhyOffset(), end)
	}
	refused := m.dial().sendTo([]byte("too early"))
	if wantCode(t, refused, remoting.ServiceNotAvailable); !strings.Contains(string(refused.Remark), "haTailTimeout") {
		t.Errorf("refused with %q", refused.Remark)
	}
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "haTailTimeout=0") {
		t.Errorf("ready: %v", err)
	}
	if info := fmt.Sprint(m.runtimeInfo(time.Now())); !strings.Contains(info, "haTail:sends are refused") {
		t.Errorf("runtime information: %s", info)
	}
	m.wantMetrics(t, "rocketmq_ha_tail_slaves_missing", "rocketmq_ha_tails_given_up_total")

	s.cfg.HAMasterAddress, s.cfg.MasterAddr = m.haServerAddr(), m.addr
	s.restart()
	m.eventually("the tail is back", func() bool { return m.Ready() == nil })
	if got := m.store.MaxPhyOffset(); got != end {
		t.Fatalf("the log ends at %d, it did at %d", got, end)
	}
	if got := m.offsets.Query("g", "T", 0); got != 15 {
		t.Errorf("the group goes on at %d", got)
	}
	m.inSync()
	resp := m.dial().sendTo([]byte("20"))
	if wantCode(t, resp, remoting.Success); resp.Ext.String("queueOffset") != "20" {
		t.Errorf("the next message is number %s", resp.Ext.String("queueOffset"))
	}
}

// Alone it serves again when the time is up, says so, and a group's offset ends with its queue.
func TestMasterGivesItsTailUp(t *testing.T) {
	m, s := startUnflushedPair(t)
	for i := range 20 {
		wantCode(t, m.dial().sendTo([]byte(fmt.Sprint(i))), remoting.Success)
	}
	m.offsets.Commit("g", "T", 0, 20)
	s.stop()
	m.cutPower("another")
	if m.Ready() == nil {
		t.Fatal("it does not wait")
	}
	cfg := *m.Config()
	cfg.HATailTimeout = 1
	m.useConfig(&cfg)
	m.eventually("the wait ends", func() bool { return m.Ready() == nil })
	_, end, _ := m.store.QueueOffsets("T", 0)
	if got := m.offsets.Query("g", "T", 0); got != int64(end) || m.ha.Status().TailsGivenUp != 1 {
		t.Fatalf("the group goes on at %d, the queue ends at %d; given up %d times", got, end, m.ha.Status().TailsGivenUp)
	}
	wantCode(t, m.dial().sendTo([]byte("on")), remoting.SlaveNotAvailable)
}

// A slave that cuts its log brings the offsets of groups that had read behind the cut back to the end of their queues, at
// once and on its disk; what the master says of the log that goes on there counts for more.
func TestCutBringsOffsetsBack(t *testing.T) {
	m := newTestBroker(t, unflushed)
	m.fs = faultfs.New()
	m.start()
	t.Cleanup(func() { m.stop() })
	wantCode(t, m.dial().sendTo([]byte("what both have")), remoting.Success)
	m.restart() // the disk has it
	s := startSlave(t, m, nil)
	for i := range 19 {
		wantCode(t, m.dial().sendTo([]byte(fmt.Sprint(i))), remoting.Success)
	}
	s.eventually("all is here", func() bool {
		_, end, _ := s.store.QueueOffsets("T", 0)
		return end == 20
	})
	s.offsets.Commit("g", "T", 0, 20)
	s.offsets.Commit("behind", "T", 0, 0)
	must(t, s.offsets.Persist())
	m.cutPower("another")
	wantCode(t, m.dial().sendTo([]byte("another history")), remoting.Success)
	m.dispatched()

	s.cfg.HAMasterAddress, s.cfg.MasterAddr = m.haServerAddr(), m.addr
	s.restart()
	s.eventually("the tail is cut", func() bool { cuts, _ := s.haClient.Cuts(); return cuts == 1 })
	_, end, _ := m.store.QueueOffsets("T", 0)
	s.eventually("the offset is back", func() bool {
		return s.offsets.Query("g", "T", 0) == int64(end)-1 && s.offsets.Query("behind", "T", 0) == 0 && s.offsets.lowered.Load() == 1
	})
	s.wantMetrics(t, "rocketmq_ha_offsets_lowered_total")
	s.restart()
	if got := s.offsets.Query("g", "T", 0); got != int64(end)-1 {
		t.Fatalf("after a restart the group goes on at %d, the queue was cut at %d", got, end-1)
	}
	m.offsets.Commit("g", "T", 0, int64(end))
	syncOf(s).syncAll()
	if got := s.offsets.Query("g", "T", 0); got != int64(end) {
		t.Fatalf("the master says %d, the slave has %d", end, got)
	}
}
