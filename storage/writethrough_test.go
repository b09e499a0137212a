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

// A write that fails anywhere ends all puts of its turn with the cause and latches the store; nothing of them was appended,
// and the next start finds the log as it was before.
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
