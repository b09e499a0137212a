// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/vfs/faultfs"
)

// A put says where its time went: nothing when it is appended at once, the wait for the role when another append stalls.
func TestPutTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stalled = 100 * time.Millisecond // less than waitTimeMillsInSendQueue
		l := openTestLog(t, faultfs.New(), nil)
		l.mustPut(10) // makes the first file
		if put := l.mustPut(10); !put.Inline || put.LockedAt != put.TakenAt || put.AppendedAt != put.TakenAt {
			t.Errorf("inline %v, taken %d, locked %d, appended %d; want no time at all", put.Inline, put.TakenAt, put.LockedAt, put.AppendedAt)
		}
		release := l.stall()
		put, done := testPut("topic", 0, 10, 1)
		l.take(put)
		time.Sleep(stalled)
		release()
		if status := <-done; status != PutOK {
			t.Fatalf("%v, %v", status, put.Cause)
		}
		if waited := time.Duration(put.LockedAt - put.TakenAt); waited != stalled || put.AppendedAt != put.LockedAt {
			t.Errorf("waited %v for the role, appended %d after it; want %v, 0", waited, put.AppendedAt-put.LockedAt, stalled)
		}
	})
}

// The age of what is not durable is that of its oldest byte, and nothing when all is durable, however long ago that came.
func TestFlushBehindTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openTestLog(t, faultfs.New(), func(c *Config) { // nothing is flushed but by hand
			c.FlushCommitLogLeastPages, c.FlushCommitLogThoroughInterval = 1000, 24*3_600_000
		})
		behind := func() time.Duration {
			var s Stats
			l.addStats(&s)
			return s.FlushBehindTime
		}
		l.mustPut(10)
		l.flushRest()
		time.Sleep(time.Hour)
		l.mustPut(10)
		time.Sleep(time.Second)
		l.mustPut(10)
		time.Sleep(time.Second)
		if got := behind(); got != 2*time.Second {
			t.Errorf("behind %v, two seconds after the first of two puts", got)
		}
		l.flushRest()
		time.Sleep(time.Minute)
		if got := behind(); got != 0 {
			t.Errorf("behind %v with everything durable", got)
		}
		l.mustPut(10)
		time.Sleep(time.Second)
		if got := behind(); got != time.Second {
			t.Errorf("behind %v, a second after a put", got)
		}
	})
}

// Log files made before they are due cost no wait; one that is due too early does, and is counted.
func TestFileWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, nil)
		l.mustPut(10)
		synctest.Wait()
		var before, after Stats
		l.addStats(&before)
		fsys.SetHook(func(op faultfs.Op, _ string) {
			if op == faultfs.OpAllocate {
				time.Sleep(time.Second)
			}
		})
		for range 3 { // into the second file, which is ready, and the third, which is not
			l.mustPut(int(l.queue.fileSize) * 3 / 4)
		}
		l.addStats(&after)
		waits, rolled := after.FileWaits.Count-before.FileWaits.Count, after.FilesRolled-before.FilesRolled
		if waits != 2 && waits != 1 || rolled < 2 || after.FileWaits.Sum-before.FileWaits.Sum < time.Second/2 {
			t.Errorf("%d waits of %v in all, %d files begun", waits, after.FileWaits.Sum-before.FileWaits.Sum, rolled)
		}
		if after.FilesAllocated < after.FilesRolled {
			t.Errorf("%d files made, %d begun", after.FilesAllocated, after.FilesRolled)
		}
	})
}
