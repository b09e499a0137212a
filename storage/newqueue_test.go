// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

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
	end := s.MaxPhyOffset()
	s.close()
	for seed := range uint64(20) {
		after := fsys.Crash(faultfs.PowerLoss, seed)
		if err := checkFiles(after, s.Config(), end, false); err != nil {
			t.Fatalf("power loss after a clean stop, seed %d: %v", seed, err)
		}
		fsys = after
	}
}

// A full file of a queue is synced before the next one is made. That sync is final like any other.
func TestFailedSyncOfFullQueueFileIsFinal(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, quietQueues)
	fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "consumequeue", Count: 1, Err: syscall.EIO})
	units := int(s.Config().MappedFileSizeConsumeQueue / consumeQueueUnitSize)
	for range units {
		s.send(storeMessage{topic: "narrow", size: 10})
	}
	if cause := s.settled().Stats().LatchedCause; cause != nil {
		t.Fatalf("latched early: %v", cause)
	}
	s.send(storeMessage{topic: "narrow", size: 10})
	eventually(t, "the store is latched", func() bool { return errors.Is(s.Stats().LatchedCause, syscall.EIO) })
	s.abandon()
}
