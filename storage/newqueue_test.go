// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loopmq/storage/vfs/faultfs"
)

func quietQueues(c *Config) { c.FlushIntervalConsumeQueue = 100_000 }

// The dispatcher made three syncs for each new queue, and everybody's messages waited for the disk.
func TestNewQueueWaitsForNoDisk(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, quietQueues)
	var syncs atomic.Int64
	fsys.SetHook(func(op faultfs.Op, name string) {
		if (op == faultfs.OpSync || op == faultfs.OpSyncDir) && strings.HasPrefix(name, path.Join(testRoot, "consumequeue")) {
			syncs.Add(1)
		}
	})
	for id := range int32(50) {
		s.send(storeMessage{topic: "wide", queueID: id, size: 10})
	}
	s.settled()
	if n := syncs.Load(); n != 0 {
		t.Errorf("%d syncs while 50 queues were made", n)
	}
	s.keepsQueuesWithoutPower(fsys)
}

// keepsQueuesWithoutPower stops the store in order and then takes the power: what the checkpoint stands for is in the queues.
func (s *testStore) keepsQueuesWithoutPower(fsys *faultfs.FS) {
	s.t.Helper()
	end := s.MaxPhyOffset()
	s.close()
	for seed := range uint64(20) {
		if err := checkFiles(fsys.Crash(faultfs.PowerLoss, seed), s.Config(), end, false); err != nil {
			s.t.Fatalf("power loss after a clean stop, seed %d: %v", seed, err)
		}
	}
}

// A whole flush that comes while a queue is being made must not take its names for synced: they are not there yet.
func TestFlushWhileAQueueIsMade(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpMkdir, faultfs.OpCreate} {
		fsys := faultfs.New()
		s := openTestStore(t, fsys, quietQueues)
		s.send(storeMessage{topic: "early", size: 10})
		s.settled()
		var met atomic.Bool
		fsys.SetHook(func(at faultfs.Op, name string) {
			if at == op && strings.Contains(name, "consumequeue/late/0") && met.CompareAndSwap(false, true) {
				if err := s.flushQueue.round(time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
			}
		})
		s.send(storeMessage{topic: "late", size: 10})
		s.settled()
		if !met.Load() {
			t.Fatalf("no %v while the queue was made", op)
		}
		s.keepsQueuesWithoutPower(fsys)
	}
}

// Before a queue's next file is made, the full one and its name are synced. Such a sync is final like any other.
func TestFailedSyncOfFullQueueFileIsFinal(t *testing.T) {
	f := func(op faultfs.Op, name string, heard bool) {
		t.Helper()
		fsys := faultfs.New()
		s := openTestStore(t, fsys, quietQueues)
		fsys.Fail(faultfs.Fault{Op: op, Path: name, Count: 1, Err: syscall.EIO})
		s.fillQueueFile("narrow")
		if cause := s.settled().Stats().LatchedCause; cause != nil {
			t.Fatalf("latched early: %v", cause)
		}
		s.send(storeMessage{topic: "narrow", size: 10})
		eventually(t, "the store is latched", func() bool { return errors.Is(s.Stats().LatchedCause, syscall.EIO) })
		if _, err := s.queues.find("narrow", 0).files.flush(0); errors.Is(err, syscall.EIO) != heard {
			t.Errorf("%v of %s: the flush hears %v", op, name, err)
		}
		s.abandon()
	}
	f(faultfs.OpSync, "consumequeue", true)
	f(faultfs.OpSyncDir, "consumequeue/narrow/0$", false)
}

func (s *testStore) fillQueueFile(topic string) {
	s.t.Helper()
	for range s.Config().MappedFileSizeConsumeQueue / consumeQueueUnitSize {
		s.send(storeMessage{topic: topic, size: 10})
	}
}

// So it is when recovery builds the queue again.
func TestFailedSyncOfFullQueueFileEndsRecovery(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, quietQueues)
	s.fillQueueFile("narrow")
	s.send(storeMessage{topic: "narrow", size: 10})
	s.settled()
	next := fsys.Crash(faultfs.ProcessKill, 0)
	s.abandon()
	if err := next.RemoveAll(path.Join(testRoot, "consumequeue")); err != nil {
		t.Fatal(err)
	}
	next.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "consumequeue", Count: 1, Err: syscall.EIO})
	again, err := Open(*s.Config(), Options{FS: next, Logger: discardLogger()})
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("opened: %v", err)
	}
	if err == nil {
		again.Close()
	}
}

// A topic's deletion syncs the directory where names of other new topics stand.
func TestFailedSyncOfADeletionIsFinal(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, quietQueues)
	for _, topic := range []string{"stays", "goes"} {
		s.send(storeMessage{topic: topic, size: 10})
	}
	s.settled()
	fsys.Fail(faultfs.Fault{Op: faultfs.OpSyncDir, Path: "consumequeue$", Count: 1, Err: syscall.EIO})
	if err := s.DeleteTopic("goes"); !errors.Is(err, syscall.EIO) || !errors.Is(s.Stats().LatchedCause, syscall.EIO) {
		t.Errorf("deleted: %v; latched: %v", err, s.Stats().LatchedCause)
	}
	s.abandon()
}
