// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

func TestFlushRealTimeLeastPages(t *testing.T) {
	c := DefaultConfig()
	s := &FlushRealTimeService{}
	start := time.UnixMilli(1_700_000_000_000)
	f := func(after time.Duration, want int) {
		t.Helper()
		if got := s.leastPages(start.Add(after), &c); got != want {
			t.Fatalf("leastPages after %v = %d; want %d", after, got, want)
		}
	}
	f(0, 0) // the first round is thorough
	f(500*time.Millisecond, 4)
	f(9999*time.Millisecond, 4)
	f(10_000*time.Millisecond, 0)
	f(10_500*time.Millisecond, 4) // counted from the last thorough round
	f(19_999*time.Millisecond, 4)
	f(20_400*time.Millisecond, 0)
	c.FlushCommitLogLeastPages, c.FlushCommitLogThoroughInterval = 7, 1000 // settings are read each round
	f(21_399*time.Millisecond, 7)
	f(21_400*time.Millisecond, 0)
}

func TestCommitRealTimeLeastPages(t *testing.T) {
	c := DefaultConfig()
	s := &CommitRealTimeService{}
	f := func(now int64, want int) {
		t.Helper()
		if got := s.leastPages(now, &c); got != want {
			t.Fatalf("leastPages at %d = %d; want %d", now, got, want)
		}
	}
	f(1000, 0) // the first round commits everything
	f(1199, 4)
	f(1200, 0)
	s.lastCommit.Store(1300) // a round that moved something ended then
	f(1499, 4)
	f(1500, 0)
}

// flushTimes says how long after a put flushedWhere moved, within d.
func (l *testLog) flushTimes(size int, d time.Duration) (times []time.Duration) {
	began, where := time.Now(), l.queue.flushedWhere.Load()
	l.mustPut(size)
	for time.Since(began) < d {
		time.Sleep(time.Millisecond)
		if now := l.queue.flushedWhere.Load(); now != where {
			where = now
			times = append(times, time.Since(began))
		}
	}
	return times
}

// Timed: rounds every flushIntervalCommitLog whatever is put, small amounts with the thorough rounds.
func TestFlushRealTimeTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openTestLog(t, faultfs.New(), nil)
		time.Sleep(1200 * time.Millisecond) // into the wait from 1.0 to 1.5 s
		times := l.flushTimes(4*osPageSize, 5*time.Second)
		if len(times) != 1 || times[0] < 299*time.Millisecond || times[0] > 302*time.Millisecond {
			t.Fatalf("four pages were flushed after %v", times)
		}
		times = l.flushTimes(10, 20*time.Second)
		if len(times) != 1 || times[0] < 3*time.Second || times[0] > 10*time.Second {
			t.Fatalf("a few bytes were flushed after %v", times)
		}
	})
}

// Untimed: a put that makes up the pages starts a round.
func TestFlushRealTimeUntimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openTestLog(t, faultfs.New(), func(c *Config) { c.FlushCommitLogTimed = false })
		time.Sleep(1200 * time.Millisecond)
		for range 3 {
			if times := l.flushTimes(4*osPageSize, 5*time.Second); len(times) != 1 || times[0] > 2*time.Millisecond {
				t.Fatalf("four pages were flushed after %v", times)
			}
		}
		if times := l.flushTimes(10, 20*time.Second); len(times) != 1 || times[0] < time.Second {
			t.Fatalf("a few bytes were flushed after %v", times)
		}
		l.setConfig(func(c *Config) { c.FlushCommitLogTimed = true })
		time.Sleep(time.Second)
		synctest.Wait()
		if l.flushRealTimeService.asleep.Load() {
			t.Fatal("timed again, a put would still start a round")
		}
	})
}

// Pages count from the beginning of a file, also where files are no whole number of pages: otherwise a service is woken
// for a round that has nothing to do, over and over.
func TestWakesForWholePagesOnly(t *testing.T) {
	const fileSize = 6000
	f := func(from, to, want int64) {
		t.Helper()
		q := &MappedFileQueue{fileSize: fileSize}
		if got := q.pagesBetween(from, to); got != want {
			t.Errorf("pagesBetween(%d, %d) = %d", from, to, got)
		}
	}
	f(0, 4095, 0)
	f(0, 4096, 1)
	f(4095, 4096, 1)
	f(fileSize, fileSize+4095, 0) // page 2 of the queue begins in between
	f(fileSize, fileSize+4096, 1)
	f(0, 3*fileSize, 4)

	for name, pool := range map[string]bool{"flush": false, "commit": true} {
		t.Run(name, func(t *testing.T) {
			l := openTestLog(t, faultfs.New(), func(c *Config) {
				c.MappedFileSizeCommitLog, c.PopulateWindow = fileSize, fileSize
				c.FlushCommitLogTimed, c.FlushCommitLogLeastPages, c.CommitCommitLogLeastPages = false, 1, 1
				c.FlushIntervalCommitLog, c.CommitIntervalCommitLog = 3_600_000, 3_600_000
				c.FlushCommitLogThoroughInterval, c.CommitCommitLogThoroughInterval = 3_600_000, 3_600_000
				c.TransientStorePoolEnable, c.TransientStorePoolSize = pool, 3
			})
			asleep, wake := &l.flushRealTimeService.asleep, l.flushRealTimeService.wake
			if pool {
				asleep, wake = &l.commitService.asleep, l.commitService.wake
			}
			l.mustPut(5000)
			l.mustPut(3000) // in the second file
			eventually(t, "the first file was moved, and the service sleeps on", func() bool {
				where := &l.queue.flushedWhere
				if pool {
					where = &l.queue.committedWhere
				}
				sleeps := where.Load() >= fileSize
				for i := 0; sleeps && i < 50; i++ {
					time.Sleep(time.Millisecond)
					for range 100 {
						sleeps = sleeps && asleep.Load() && len(wake) == 0
					}
				}
				return sleeps
			})
		})
	}
}

func TestAsyncFlushFailureLatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, nil)
		l.settleAsync()
		fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Err: syscall.EIO})
		l.mustPut(5 * osPageSize)
		time.Sleep(time.Second)
		if status, cause := l.denied(time.Now().UnixMilli()); status != ServiceNotAvailable || !errors.Is(cause, syscall.EIO) {
			t.Fatalf("denied: %v, %v", status, cause)
		}
		syncs := fsys.Count(faultfs.OpSync)
		time.Sleep(time.Minute)
		if n := fsys.Count(faultfs.OpSync) - syncs; n != 0 {
			t.Fatalf("%d syncs after one failed", n)
		}
	})
}

// settleAsync waits until the first two files are made.
func (l *testLog) settleAsync() {
	l.t.Helper()
	l.mustPut(10)
	eventually(l.t, "next file made", func() bool {
		l.allocator.mu.Lock()
		defer l.allocator.mu.Unlock()
		return l.allocator.ready != nil
	})
}

func withPool(c *Config) { c.TransientStorePoolEnable, c.TransientStorePoolSize = true, 3 }

// With the pool only committed bytes can be read; a commit comes within its interval, or with four pages at once, says so
// to readers, and is flushed.
func TestPoolReadersSeeCommittedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, withPool)
		time.Sleep(time.Second)
		first := l.mustPut(10)
		time.Sleep(201 * time.Millisecond)
		if got := l.maxOffset(); got != first.End() || l.readable.Load() != int64(got) {
			t.Fatalf("committed to %d, readable said %d, want %d", got, l.readable.Load(), first.End())
		}
		second := l.mustPut(10)
		if got := l.maxOffset(); got != first.End() {
			t.Fatalf("readable to %d before the commit", got)
		}
		if loan, ok := l.selectAt(first.End(), 100); ok {
			t.Fatalf("lent %d bytes that are not committed", len(loan.Bytes()))
		}
		time.Sleep(201 * time.Millisecond)
		if got := l.maxOffset(); got != second.End() {
			t.Fatalf("readable to %d after commitIntervalCommitLog, want %d", got, second.End())
		}
		large := l.mustPut(5 * osPageSize)
		time.Sleep(time.Millisecond)
		if got := l.maxOffset(); got != large.End() {
			t.Fatalf("four pages do not start a commit: readable to %d, want %d", got, large.End())
		}
		time.Sleep(time.Second)
		if l.queue.flushedWhere.Load() != int64(large.End()) {
			t.Fatalf("committed bytes are not flushed: %d of %d", l.queue.flushedWhere.Load(), large.End())
		}
		if fsys.Count(faultfs.OpWrite) == 0 {
			t.Fatal("the pool was not used")
		}
	})
}

// A log written through the pool is the log that would have been written without, over many files, and all buffers
// come back.
func TestPoolWritesTheSameLog(t *testing.T) {
	var logs [2][]byte
	for i, change := range []func(*Config){nil, withPool} {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, change)
		for j := range 400 {
			put, done := testPut("topic", 0, 600+j, 1)
			eventually(t, "a free buffer", func() bool {
				_, status := l.asyncPutMessages([]*PutMessage{put})
				return status == PutOK
			})
			if status := <-done; status != PutOK {
				t.Fatal(status)
			}
		}
		l.shutdown()
		if l.pool != nil && l.pool.available() != 0 {
			t.Fatal("a destroyed pool has buffers")
		}
		l = openTestLog(t, fsys, nil)
		l.walk(func(r *message.Record) {
			logs[i] = append(logs[i], r.Body...)
			logs[i] = append(logs[i], byte(r.PhysicalOffset), byte(r.PhysicalOffset>>8), byte(r.QueueOffset))
		})
		if end, _ := l.walk(nil); end != l.maxOffset() || len(l.queue.files()) < 5 {
			t.Fatalf("records end at %d of %d, in %d files", end, l.maxOffset(), len(l.queue.files()))
		}
	}
	if !bytes.Equal(logs[0], logs[1]) {
		t.Fatal("the logs differ")
	}
}

// poolWithoutCommits is a log whose buffers do not come back.
func poolWithoutCommits(t *testing.T, fastFail bool) *testLog {
	return openTestLog(t, faultfs.New(), func(c *Config) {
		withPool(c)
		c.TransientStorePoolSize = 2
		c.FastFailIfNoBufferInStorePool = fastFail
		c.CommitIntervalCommitLog, c.CommitCommitLogThoroughInterval = 100_000, 100_000
		c.CommitCommitLogLeastPages = 1 << 20
	})
}

// Without a free buffer a new file goes without (Java's silent fallback), and sends are refused while none is free.
func TestPoolFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := poolWithoutCommits(t, false)
		l.mustPut(10)
		time.Sleep(time.Millisecond) // the next file has the second buffer
		for range 5 {                // what is queued or in flight goes on
			put, done := testPut("topic", 0, 40<<10, 1)
			if n, _ := l.appender.put([]*PutMessage{put}, time.Now()); n != 1 || <-done != PutOK {
				t.Fatalf("put: %v", put.status)
			}
		}
		if status, cause := l.denied(time.Now().UnixMilli()); status != QueueFull || cause != errNoFreeBuffer {
			t.Fatalf("denied without a buffer: %v, %v", status, cause)
		}
		var pooled []bool
		for _, f := range l.queue.files() {
			pooled = append(pooled, f.pooled)
		}
		if len(pooled) < 4 || !pooled[0] || !pooled[1] || pooled[2] {
			t.Fatalf("files with a buffer: %v", pooled)
		}
	})
}

// A pool of one has no buffer for the next file while the present one has it, and sends go on all the same.
func TestPoolOfOne(t *testing.T) {
	for _, fastFail := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := openTestLog(t, faultfs.New(), func(c *Config) {
				withPool(c)
				c.TransientStorePoolSize, c.FastFailIfNoBufferInStorePool = 1, fastFail
			})
			for range 8 {
				put, done := testPut("topic", 0, 40<<10, 1)
				if n, status := l.asyncPutMessages([]*PutMessage{put}); n != 1 || <-done != PutOK {
					t.Fatalf("fast fail %v: put %v, %v, %v", fastFail, status, put.status, put.Cause)
				}
				time.Sleep(time.Second) // committed, and the next file is made
			}
			if n := len(l.queue.files()); n < 8 {
				t.Fatalf("%d files", n)
			}
		})
	}
}

// A stop commits and flushes all that was appended, over however many files.
func TestStopLeavesNothingBehind(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"pool": withPool,
		"sync": syncFlush,
	} {
		t.Run(name, func(t *testing.T) {
			l := loadTestLog(t, faultfs.New(), testLogDir, func(c *Config) {
				change(c)
				c.CommitIntervalCommitLog, c.CommitCommitLogThoroughInterval = 3_600_000, 3_600_000
				c.CommitCommitLogLeastPages = 1 << 20
				c.WaitTimeMillsInSendQueue = 60_000
			})
			if err := l.start(); err != nil {
				t.Fatal(err)
			}
			l.flushing.Lock()
			for range 3 {
				for range 2 {
					put, done := testPut("topic", 0, 30<<10, 1)
					if n, status := l.appender.put([]*PutMessage{put}, time.Now()); n != 1 || <-done != PutOK {
						t.Fatalf("put: %v, %v, %v", status, put.status, put.Cause)
					}
				}
			}
			stopped := make(chan struct{})
			go func() {
				l.stop()
				close(stopped)
			}()
			if l.groupCommitService != nil {
				<-l.groupCommitService.stopped
			}
			l.flushing.Unlock()
			<-stopped
			wrote, committed, flushed := l.queue.maxWrotePosition(), l.queue.committedWhere.Load(), l.queue.flushedWhere.Load()
			if l.pool != nil && committed != wrote || flushed != wrote {
				t.Errorf("%d bytes written, %d committed, %d flushed", wrote, committed, flushed)
			}
			l.close()
		})
	}
}

func TestPoolFailsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := poolWithoutCommits(t, true)
		l.mustPut(10)
		time.Sleep(time.Millisecond)
		var last *PutMessage
		for range 5 {
			put, done := testPut("topic", 0, 40<<10, 1)
			if n, _ := l.appender.put([]*PutMessage{put}, time.Now()); n != 1 {
				t.Fatal("not taken")
			}
			<-done
			last = put
			time.Sleep(time.Millisecond)
		}
		if last.status != CreateMappedFileFailed || !errors.Is(last.Cause, errNoFreeBuffer) {
			t.Fatalf("%v, %v", last.status, last.Cause)
		}
		l.setConfig(func(c *Config) { c.CommitCommitLogLeastPages, c.CommitCommitLogThoroughInterval = 1, 1 })
		time.Sleep(200 * time.Second)
		l.mustPut(40 << 10)
	})
}

func TestCommitFailureLatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, withPool)
		first := l.mustPut(10)
		time.Sleep(time.Second)
		fsys.Fail(faultfs.Fault{Op: faultfs.OpWrite, Err: syscall.EIO})
		l.mustPut(10)
		time.Sleep(time.Second)
		if status, cause := l.denied(time.Now().UnixMilli()); status != ServiceNotAvailable || !errors.Is(cause, syscall.EIO) {
			t.Fatalf("denied: %v, %v", status, cause)
		}
		if l.maxOffset() != first.End() {
			t.Fatalf("readable to %d, committed to %d", l.maxOffset(), first.End())
		}
	})
}

// While the next file is late puts wait, 5 s at most; the ones behind the first expire earlier.
func TestLateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, nil)
		l.settleAsync()
		hang := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(hang) })
		defer goOn()
		fsys.SetHook(func(op faultfs.Op, _ string) {
			if op == faultfs.OpAllocate {
				<-hang
			}
		})
		l.mustPut(60 << 10)
		l.mustPut(60 << 10) // in the file that was ready
		began := time.Now()
		late, lateDone := testPut("topic", 0, 60<<10, 1)
		l.take(late)
		behind, behindDone := testPut("topic", 0, 10, 1)
		l.take(behind)
		if status := <-behindDone; status != QueueTimeout || time.Since(began) > 250*time.Millisecond {
			t.Fatalf("the put behind: %v after %v", status, time.Since(began))
		}
		time.Sleep(time.Second) // page-cache busy by now
		if status, _ := l.denied(time.Now().UnixMilli()); status != OSPageCacheBusy {
			t.Fatalf("denied: %v", status)
		}
		if status := <-lateDone; status != CreateMappedFileFailed || time.Since(began) != allocateWaitMax {
			t.Fatalf("the put that needs the file: %v after %v, %v", status, time.Since(began), late.Cause)
		}
		goOn()
		synctest.Wait()
		l.mustPut(60 << 10)
	})
}
