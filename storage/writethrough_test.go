// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// A write that fails anywhere ends all puts of its turn with the cause and latches the store; nothing of them was appended.
func TestFailedWriteLatches(t *testing.T) {
	for skip := range 8 {
		synctest.Test(t, func(t *testing.T) {
			fsys := faultfs.New()
			l := openTestLog(t, fsys, func(c *Config) { c.FlushDiskType, c.PopulateWindow = SyncFlush, c.MappedFileSizeCommitLog })
			l.mustPut(10)
			time.Sleep(time.Second)
			end := l.maxOffset()
			fsys.Fail(faultfs.Fault{Op: faultfs.OpWrite, Path: "/commitlog/", Skip: skip, Err: syscall.EIO})
			var puts []*PutMessage
			var dones []chan PutMessageStatus
			for i := range 5 {
				put, done := testPut("topic", int32(i%2), 5000, 1)
				puts, dones = append(puts, put), append(dones, done)
			}
			if n, status := l.asyncPutMessages(puts); n != len(puts) {
				t.Fatalf("%d taken, %v", n, status)
			}
			for i, put := range puts {
				if status := <-dones[i]; status != ServiceNotAvailable || !errors.Is(put.Cause, syscall.EIO) || !put.Inline {
					t.Errorf("put %d, %d pages written: %v, %v, inline %v", i, skip, status, put.Cause, put.Inline)
				}
			}
			if l.maxOffset() != end || l.nextQueueOffset("topic", 0) != 1 || l.nextQueueOffset("topic", 1) != 0 {
				t.Errorf("log ends at %d, queues at %d and %d; want %d, 1, 0", l.maxOffset(),
					l.nextQueueOffset("topic", 0), l.nextQueueOffset("topic", 1), end)
			}
			if status, cause := l.denied(time.Now().UnixMilli()); status != ServiceNotAvailable || !errors.Is(cause, syscall.EIO) {
				t.Errorf("denied: %v, %v", status, cause)
			}
		})
	}
}

// What a failed write left behind the end is whole records, which the next start finds and numbers on from, or is cut off.
func TestStartAfterAFailedWrite(t *testing.T) {
	const puts = 5
	change := func(c *Config) {
		c.FlushDiskType, c.MappedFileSizeCommitLog, c.PopulateWindow = SyncFlush, 64<<10, 64<<10
	}
	found := make(map[int]bool)
	for skip := range 12 {
		fsys := faultfs.New()
		s := openTestStore(t, fsys, change)
		s.send(storeMessage{topic: "t", size: 3000})
		eventually(t, "nothing is zeroed any more", func() bool {
			f, allocator := s.log.queue.last(), s.log.allocator
			allocator.mu.Lock()
			defer allocator.mu.Unlock()
			return f.populatedPosition.Load() == f.size && allocator.ready != nil
		})
		end := s.MaxPhyOffset()
		fsys.Fail(faultfs.Fault{Op: faultfs.OpWrite, Path: "/commitlog/", Skip: skip, Err: syscall.EIO})
		var batch []*PutMessage
		var dones []chan PutMessageStatus
		for range puts {
			put, done := storeMessage{topic: "t", size: 3000}.put()
			batch, dones = append(batch, put), append(dones, done)
		}
		if n, status := s.AsyncPutMessages(batch); n != puts {
			t.Fatalf("%d taken, %v", n, status)
		}
		failed := false
		for _, done := range dones {
			failed = <-done == ServiceNotAvailable || failed
		}
		fsys.ClearFaults()
		after := fsys.Crash(faultfs.ProcessKill, 1)
		s.abandon()
		size := PhyOffset(len(batch[0].Record))
		s = reopen(t, after, change)
		n := int((s.MaxPhyOffset() - end) / size)
		if s.MaxPhyOffset() != end+PhyOffset(n)*size || n > puts || !failed && n != puts {
			t.Errorf("%d pages written: the log goes on for %d bytes of records of %d", skip, s.MaxPhyOffset()-end, size)
		}
		if next := s.send(storeMessage{topic: "t", size: 10}); next.QueueOffset != QueueOffset(1+n) {
			t.Errorf("%d pages written, %d records found: the next is number %d", skip, n, next.QueueOffset)
		}
		found[n] = true
		s.settled().close()
	}
	if !found[0] || !found[puts] || len(found) < 3 {
		t.Errorf("records found: %v", found)
	}
}

// So does the header of the BLANK record at the end of a file, and a slave's raw append.
func TestOtherFailedWritesLatch(t *testing.T) {
	f := func(role Role, write func(l *testLog, fail func()) error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			fsys := faultfs.New()
			l := openTestLog(t, fsys, func(c *Config) {
				c.FlushDiskType, c.Role, c.PopulateWindow = SyncFlush, role, c.MappedFileSizeCommitLog
			})
			err := write(l, func() {
				time.Sleep(time.Second)
				fsys.Fail(faultfs.Fault{Op: faultfs.OpWrite, Path: "/commitlog/", Err: syscall.EIO})
			})
			if !errors.Is(err, syscall.EIO) || !errors.Is(l.flags.latchedCause(), syscall.EIO) {
				t.Fatalf("%v, latched by %v", err, l.flags.latchedCause())
			}
		})
	}
	f(AsyncMaster, func(l *testLog, fail func()) error {
		l.mustPut(40 << 10)
		fail()
		put, done := testPut("topic", 0, 40<<10, 1)
		l.take(put)
		if status := <-done; status != ServiceNotAvailable {
			t.Errorf("the put behind the file: %v", status)
		}
		return put.Cause
	})
	f(Slave, func(l *testLog, fail func()) error {
		if err := l.appendData(0, make([]byte, 100)); err != nil {
			return err
		}
		fail()
		err := l.appendData(100, make([]byte, 10_000))
		if l.maxOffset() != 100 {
			t.Errorf("the log ends at %d", l.maxOffset())
		}
		return err
	})
}

// The kernel tells once that it lost bytes. When the sync of zeros is the one that asks, nobody is told that bytes in the same
// file are durable, however late the zeroing gets to say so.
func TestFailedSyncOfZerosIsHeardByTheFlush(t *testing.T) {
	fsys := faultfs.New()
	l := loadTestLog(t, fsys, testLogDir, func(c *Config) {
		c.FlushDiskType, c.PopulateWindow, c.SyncFlushTimeout = SyncFlush, 16<<10, 3_600_000
	})
	failed, late := make(chan struct{}), make(chan struct{})
	l.populator.latch = func(err error) {
		close(failed)
		<-late
		l.latch(err)
	}
	if err := l.start(); err != nil {
		t.Fatal(err)
	}
	defer l.shutdown()
	l.settle()
	f := l.queue.last()
	eventually(t, "the window is zeroed", func() bool { return f.populatedPosition.Load() >= 16<<10 })

	l.flushing.Lock()
	put := l.mustPut(100)
	waiter := l.wait(put.End(), time.Hour)
	fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Count: 1, Err: syscall.EIO})
	zeroed := make(chan struct{})
	go func() {
		l.populator.populate(f)
		close(zeroed)
	}()
	<-failed
	l.flushing.Unlock()
	<-waiter.done
	if waiter.status != ServiceNotAvailable {
		t.Errorf("the request ends with %v", waiter.status)
	}
	close(late)
	<-zeroed
}

// However puts and the zeroing of what lies ahead interleave, records stay as they were sent.
func TestZerosMeetNoRecords(t *testing.T) {
	const writers, turns = 8, 150
	fsys := faultfs.New()
	l := openTestLog(t, fsys, func(c *Config) {
		c.FlushDiskType, c.MappedFileSizeCommitLog, c.PopulateWindow = SyncFlush, 256<<10, 4096
		c.WaitTimeMillsInSendQueue = 60_000
	})
	var mu sync.Mutex
	coins := rand.New(rand.NewPCG(5, 6))
	coin := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return coins.IntN(n)
	}
	fsys.SetHook(func(op faultfs.Op, _ string) {
		if op == faultfs.OpWrite || op == faultfs.OpSync {
			for range coin(3) {
				time.Sleep(time.Duration(coin(50)) * time.Microsecond)
			}
		}
	})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range turns {
				put, done := testPut("topic", int32(w), coin(7000), 1)
				l.take(put)
				if status := <-done; status != PutOK {
					t.Errorf("put: %v, %v", status, put.Cause)
				}
			}
		})
	}
	wg.Wait()
	records := 0
	end, _ := l.walk(func(r *message.Record) {
		records++
		if !bytes.Equal(r.Body, bytes.Repeat([]byte{1}, len(r.Body))) {
			t.Fatalf("the record at %d has other bytes", r.PhysicalOffset)
		}
	})
	if records != writers*turns || end != l.maxOffset() {
		t.Fatalf("%d records up to %d; want %d up to %d", records, end, writers*turns, l.maxOffset())
	}
}
