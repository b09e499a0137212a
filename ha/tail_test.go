// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// tailPair is a SYNC_MASTER A and its slave B, where B has acknowledged messages that A's disk does not have.
func tailPair(t *testing.T, test func(s *simulation, master, slave *simNode) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for seed := uint64(2); ; seed += 5 { // as many nodes, none of RocketMQ
			s := newSimulation(seed, nil)
			s.nodes = s.nodes[:2]
			master, slave := s.nodes[0], s.nodes[1]
			master.role = storage.SyncMaster
			s.appoint(master)
			master.start()
			slave.start()
			if master.store.Config().FlushDiskType == storage.AsyncFlush {
				slave.connect()
				s.drain()
				for range 20 {
					master.send()
					s.settle()
				}
				s.drain()
				if s.counts.replicated != 20 {
					s.fail("%d of 20 messages answered", s.counts.replicated)
				} else if err := test(s, master, slave); err != nil {
					s.fail("%w", err)
				}
				if err := s.failed(); err != nil {
					t.Error(err)
				}
				s.tearDown()
				return
			}
			s.tearDown()
		}
	})
}

func (n *simNode) loses(s *simulation, kind faultfs.CrashKind) {
	s.mu.Lock()
	n.crashed, n.kind, n.flushed, n.next = true, kind, n.store.FlushedWhere(), n.fs.Crash(kind, 1)
	s.mu.Unlock()
	s.settle()
}

func (n *simNode) takesSends() bool {
	put, _ := n.store.PutDenied()
	return put == storage.PutOK
}

// A machine that went down takes what its disk was not told; the slave brings it back before the first send.
func TestTailComesBack(t *testing.T) {
	tailPair(t, func(s *simulation, master, slave *simNode) error {
		end := master.store.MaxPhyOffset()
		master.loses(s, faultfs.TotalPowerLoss)
		master.start()
		if lost := master.store.MaxPhyOffset(); lost >= end {
			return fmt.Errorf("nothing was lost: the log ends at %d, it did at %d", lost, end)
		}
		if st := master.service.Tail(); master.takesSends() || st == nil || len(st.Slaves) != 1 || !strings.Contains(st.String(), st.Slaves[0]) {
			return fmt.Errorf("takes sends %v, waits for %v", master.takesSends(), st)
		}
		slave.connect()
		s.drain()
		s.tickFor(time.Second)
		if got := master.store.MaxPhyOffset(); got != end || !master.takesSends() || master.service.Tail() != nil {
			return fmt.Errorf("the log ends at %d, not at %d; takes sends %v; %v", got, end, master.takesSends(), master.service.Tail())
		}
		for range 20 {
			master.send()
			s.settle()
		}
		s.drain()
		s.check()
		if s.counts.replicated != 40 {
			return fmt.Errorf("%d of 40 messages answered", s.counts.replicated)
		}
		s.checkAtRest() // queue offsets go on where they were
		return nil
	})
}

// Whoever lost nothing does not wait: a killed process, a stop in order, a slave that had left long before.
func TestNoTailToWaitFor(t *testing.T) {
	f := func(name string, end func(s *simulation, master, slave *simNode)) {
		t.Run(name, func(t *testing.T) {
			tailPair(t, func(s *simulation, master, slave *simNode) error {
				end(s, master, slave)
				master.start()
				if st := master.service.Tail(); st != nil || !master.takesSends() {
					return fmt.Errorf("waits for %v", st)
				}
				return nil
			})
		})
	}
	f("killed", func(s *simulation, master, _ *simNode) { master.loses(s, faultfs.ProcessKill) })
	f("stopped, then switched off", func(_ *simulation, master, _ *simNode) {
		master.stop()
		master.boot++
	})
	f("slave left", func(s *simulation, master, slave *simNode) {
		slave.stop()
		s.drain()
		s.tickFor(20 * time.Second)
		master.loses(s, faultfs.TotalPowerLoss)
	})
	f("slave of another", func(s *simulation, master, slave *simNode) {
		master.loses(s, faultfs.TotalPowerLoss)
		slave.stop()
		slave.role, slave.master, master.role, master.master = storage.AsyncMaster, nil, storage.Slave, slave
		slave.start()
		master.start()
		master.connect()
		s.drain()
		master.stop()
		master.role, master.master = storage.SyncMaster, nil
	})
}

// What may be lost stays so, whatever the node does next but follow another, until its slaves have been heard or time
// or the operator ends the wait.
func TestTailWaitEnds(t *testing.T) {
	f := func(name string, then func(s *simulation, master, slave *simNode) error) {
		t.Run(name, func(t *testing.T) {
			tailPair(t, func(s *simulation, master, slave *simNode) error {
				slave.stop()
				master.loses(s, faultfs.TotalPowerLoss)
				master.start()
				return then(s, master, slave)
			})
		})
	}
	waits := func(master *simNode, want bool) {
		if got := !master.takesSends(); got != want || (master.service.Tail() != nil) != want {
			master.sim.fail("waits %v, want %v", got, want)
		}
	}
	f("limit", func(s *simulation, master, _ *simNode) error {
		master.haConfig.HaTailTimeout = 30 * time.Second
		s.tickFor(29 * time.Second)
		waits(master, true)
		s.tickFor(4 * time.Second)
		waits(master, false)
		if n := master.service.Status().TailsGivenUp; n != 1 {
			return fmt.Errorf("given up %d times", n)
		}
		return nil
	})
	f("operator", func(s *simulation, master, _ *simNode) error {
		waits(master, true)
		// Consumer offsets are lowered to the ends of queues that no send has moved yet.
		served, early := 0, true
		master.service.serve = func() { served, early = served+1, early && !master.takesSends() }
		master.haConfig.HaTailTimeout = 0
		master.tick()
		waits(master, false)
		if served == 0 || !early {
			return fmt.Errorf("told %d times, before the first send %v", served, early)
		}
		return nil
	})
	f("stopped and killed meanwhile", func(s *simulation, master, slave *simNode) error {
		master.stop()
		master.start()
		waits(master, true)
		master.loses(s, faultfs.ProcessKill)
		master.role = storage.AsyncMaster
		master.start()
		waits(master, true)
		master.stop()
		master.role = storage.Slave
		master.start() // and never reaches a master
		master.stop()
		master.role = storage.SyncMaster
		master.start()
		waits(master, true)
		slave.start()
		slave.connect()
		s.drain()
		s.tickFor(time.Second)
		waits(master, false)
		s.check()
		return nil
	})
	f("a stranger brings nothing", func(s *simulation, master, slave *simNode) error {
		state := path.Clean(simState)
		b, err := slave.fs.ReadFile(state)
		if err != nil {
			return err
		}
		var d stateData
		if err := json.Unmarshal(b, &d); err != nil {
			return err
		}
		d.Node = strings.Repeat("5a", 16)
		if b, err = json.Marshal(d); err != nil {
			return err
		}
		if err := slave.fs.WriteFile(state, b); err != nil {
			return err
		}
		end := master.store.MaxPhyOffset()
		slave.start()
		slave.connect()
		s.drain()
		s.tickFor(time.Second)
		waits(master, true)
		if got := master.store.MaxPhyOffset(); got != end || !slave.refused {
			return fmt.Errorf("the log ends at %d, not at %d; refused %v", got, end, slave.refused)
		}
		return nil
	})
}

// A slave that goes away while it hands its tail over gives the turn to the next.
func TestTailTurn(t *testing.T) {
	var w tailWait
	w.begin([]string{"a", "b"}, time.Now())
	a, b := &HAConnection{}, &HAConnection{}
	if !w.turn(a) || w.turn(b) || w.turn(b) || !w.turn(a) {
		t.Fatal("the turn is not a's")
	}
	if later := w.leave(b); later != nil {
		t.Fatalf("%d have waited for b", len(later))
	}
	if w.turn(b) {
		t.Fatal("the turn is b's")
	}
	if later := w.leave(a); !slices.Equal(later, []*HAConnection{b}) {
		t.Fatalf("%d have waited for a", len(later))
	}
	if !w.turn(b) {
		t.Fatal("the turn is not b's")
	}
}
