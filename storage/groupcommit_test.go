// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

func syncFlush(c *Config) { c.FlushDiskType = SyncFlush }

// waiter is a flush request that checks that it ends once.
type waiter struct {
	ended  atomic.Int32
	status PutMessageStatus
	at     time.Time
	done   chan struct{}
}

func (l *testLog) wait(end PhyOffset, timeout time.Duration) *waiter {
	w := &waiter{done: make(chan struct{})}
	l.submitFlushRequest(GroupCommitRequest{end: end, deadline: time.Now().Add(timeout), done: func(status PutMessageStatus) {
		if w.ended.Add(1) != 1 {
			l.t.Errorf("a request ended twice, now with %v", status)
			return
		}
		w.status, w.at = status, time.Now()
		close(w.done)
	}})
	return w
}

// slowSync makes syncs of the log take d, and counts those that run at once.
func slowSync(fsys *faultfs.FS, d func() time.Duration) {
	fsys.SetHook(func(op faultfs.Op, _ string) {
		if op == faultfs.OpSync {
			time.Sleep(d())
		}
	})
}

// settle writes the first record and waits until it is durable and the next file is made: syncs are the log's own now.
func (l *testLog) settle() {
	l.t.Helper()
	l.mustPut(10)
	eventually(l.t, "settled", func() bool {
		l.allocator.mu.Lock()
		defer l.allocator.mu.Unlock()
		return l.allocator.ready != nil && l.queue.flushedWhere.Load() == int64(l.maxOffset())
	})
}

// Requests that one sync serves are answered in one call of AnswerTogether.
func TestAnswersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := loadTestLog(t, fsys, testLogDir, syncFlush)
		inside, together, alone, rounds := false, 0, 0, 0
		l.listener.AnswerTogether = func(answer func()) {
			rounds++
			inside = true
			answer()
			inside = false
		}
		if err := l.start(); err != nil {
			t.Fatal(err)
		}
		defer l.shutdown()
		l.settle()
		slowSync(fsys, func() time.Duration { return time.Millisecond })
		for i := range 10 {
			put := l.mustPut(100)
			l.submitFlushRequest(GroupCommitRequest{put.End(), time.Now().Add(time.Minute), func(status PutMessageStatus) {
				if inside {
					together++
				} else {
					alone++
				}
			}})
			if i == 0 {
				synctest.Wait() // its sync is under way
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if together != 9 || alone != 1 || rounds != 1 {
			t.Errorf("%d answered together in %d calls, %d alone; want 9, 1, 1", together, rounds, alone)
		}
	})
}

// Very many are answered in several calls: who has the first answers may write them meanwhile.
func TestAnswersTogetherAreBounded(t *testing.T) {
	const requests = 2*answeredTogetherMax + 1
	l := loadTestLog(t, faultfs.New(), testLogDir, syncFlush)
	defer l.close()
	answered, calls := 0, 0
	l.listener.AnswerTogether = func(answer func()) {
		calls++
		before := answered
		answer()
		if n := answered - before; n < 2 || n > answeredTogetherMax {
			t.Errorf("%d answered in one call", n)
		}
	}
	ended := make([]endedRequest, requests)
	for i := range ended {
		ended[i].done = func(PutMessageStatus) { answered++ }
	}
	l.groupCommitService.finish(ended, time.Now())
	if answered != requests || calls != 2 {
		t.Errorf("%d of %d answered, %d calls", answered, requests, calls)
	}
}

// A lone request takes one sync and no timer.
func TestLoneRequestTakesOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		l.settle()
		slowSync(fsys, func() time.Duration { return 700 * time.Microsecond })
		for range 20 {
			before, began := l.counters.flushTimes.Count(), time.Now()
			put := l.mustPut(100)
			if status := l.flushed(put.End(), time.Second); status != PutOK {
				t.Fatal(status)
			}
			if took := time.Since(began); took > 2*700*time.Microsecond {
				t.Fatalf("a lone request took %v", took)
			}
			if syncs := l.counters.flushTimes.Count() - before; syncs > 2 {
				t.Fatalf("%d syncs", syncs)
			}
			time.Sleep(37 * time.Millisecond)
		}
	})
}

// An idle log syncs nothing, and its sweeper sleeps.
func TestIdleLogDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		put := l.mustPut(100)
		l.flushed(put.End(), time.Second)
		time.Sleep(time.Minute)
		before := l.counters.flushTimes.Count()
		time.Sleep(24 * time.Hour)
		if n := l.counters.flushTimes.Count() - before; n != 0 {
			t.Fatalf("%d syncs of an idle log", n)
		}
		if l.sweeper.armed.Load() || l.groupCommitService.state.Load() != groupCommitIdle {
			t.Fatal("something ticks in an idle log")
		}
	})
}

// Bytes that nobody waits for are flushed soon, by few syncs.
func TestUnwaitedBytesAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		l.settle()
		before := l.counters.flushTimes.Count()
		for range 100 {
			l.mustPut(100)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * groupCommitInterval)
		if l.queue.flushedWhere.Load() != int64(l.maxOffset()) {
			t.Fatal("not flushed")
		}
		if n := l.counters.flushTimes.Count() - before; n < 5 || n > 15 {
			t.Fatalf("%d syncs in 100 ms", n)
		}
	})
}

// Requests that come during a sync are served by the next one, all of them.
func TestRequestsCollectDuringSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		l.settle()
		slowSync(fsys, func() time.Duration { return 5 * time.Millisecond })
		before := l.counters.flushTimes.Count()
		var waiters []*waiter
		for range 50 {
			waiters = append(waiters, l.wait(l.mustPut(100).End(), time.Second))
		}
		for _, w := range waiters {
			<-w.done
			if w.status != PutOK {
				t.Fatal(w.status)
			}
		}
		if n := l.counters.flushTimes.Count() - before; n > 2 {
			t.Fatalf("50 requests took %d syncs", n)
		}
	})
}

// A request whose bytes end in the next file waits for that file too, and is then served at once.
func TestRequestEndsInNextFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		var put *PutMessage
		for len(l.queue.files()) < 4 {
			put = l.mustPut(20 << 10)
		}
		slowSync(fsys, func() time.Duration { return time.Millisecond })
		began := time.Now()
		if status := l.flushed(put.End(), time.Second); status != PutOK || l.queue.flushedWhere.Load() < int64(put.End()) {
			t.Fatalf("%v, flushed to %d of %d", status, l.queue.flushedWhere.Load(), put.End())
		}
		if took := time.Since(began); took > 6*time.Millisecond {
			t.Fatalf("served after %v", took)
		}
	})
}

// Requests end at their own deadlines while a sync hangs, in whatever order these are; the late sync changes nothing.
func TestDeadlinesWhileSyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		l.settle()
		hang := make(chan struct{})
		fsys.SetHook(func(op faultfs.Op, _ string) {
			if op == faultfs.OpSync {
				<-hang
			}
		})
		began := time.Now()
		var waiters []*waiter
		deadlines := []time.Duration{5 * time.Second, time.Second, 3 * time.Second, time.Millisecond, 2 * time.Second}
		for _, d := range deadlines {
			waiters = append(waiters, l.wait(l.mustPut(100).End(), d))
			synctest.Wait() // also some that the hanging sync serves
		}
		patient := l.wait(l.mustPut(100).End(), time.Hour)
		for i, w := range waiters {
			<-w.done
			late := w.at.Sub(began) - deadlines[i]
			if w.status != FlushDiskTimeout || late < 0 || late > 2*sweepInterval {
				t.Fatalf("deadline %v: %v, %v late", deadlines[i], w.status, late)
			}
		}
		time.Sleep(time.Minute)
		close(hang)
		if <-patient.done; patient.status != PutOK {
			t.Fatalf("the request that did not expire: %v", patient.status)
		}
	})
}

// However requests and syncs interleave, none is forgotten until a timer comes (apache/rocketmq#31), and none is
// answered before its bytes are durable. Pauses of both sides move the moment at which the lists are swapped.
func TestNoLostWakeup(t *testing.T) {
	producers, puts := 64, 300
	switch {
	case *soak:
		puts = 1_000_000 / producers
	case raceEnabled:
		puts = 50
	}
	fsys := faultfs.New()
	l := openTestLog(t, fsys, func(c *Config) {
		c.FlushDiskType = SyncFlush
		c.MappedFileSizeCommitLog, c.PopulateWindow = 4<<20, 4<<20
		c.WaitTimeMillsInSendQueue = 60_000
	})
	slowSync(fsys, func() time.Duration { return time.Duration(rand.IntN(200)) * time.Microsecond })
	var slowest atomic.Int64
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			coins := rand.New(rand.NewPCG(7, uint64(p)))
			done := make(chan PutMessageStatus, 1)
			put, _ := testPut("topic", int32(p), 100, 1)
			put.Appended = func(put *PutMessage, status PutMessageStatus) {
				if status != PutOK {
					done <- status
					return
				}
				l.submitFlushRequest(GroupCommitRequest{put.End(), time.Now().Add(time.Minute), func(status PutMessageStatus) { done <- status }})
			}
			for range puts {
				began := time.Now()
				l.take(put)
				if status := <-done; status != PutOK {
					t.Errorf("%v, %v", status, put.Cause)
				}
				if l.queue.flushedWhere.Load() < int64(put.End()) {
					t.Errorf("answered at %d, durable to %d", put.End(), l.queue.flushedWhere.Load())
				}
				if took := int64(time.Since(began)); took > slowest.Load() {
					slowest.Store(took)
				}
				if coins.IntN(4) == 0 {
					time.Sleep(time.Duration(coins.IntN(300)) * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("slowest %v, %.1f puts per flush", time.Duration(slowest.Load()),
		float64(producers*puts)/float64(l.counters.flushTimes.Count()))
	if limit := 5 * time.Second; time.Duration(slowest.Load()) > limit {
		t.Fatalf("slowest answer after %v", time.Duration(slowest.Load()))
	}
	if n := l.groupCommitService.waiting.Load(); n != 0 {
		t.Fatalf("%d requests counted as waiting", n)
	}
	l.idles(t)
}

// idles checks that nothing happens in a log that nobody writes to.
func (l *testLog) idles(t *testing.T) {
	t.Helper()
	idle := 100 * time.Millisecond
	if *soak {
		idle = time.Minute
	}
	eventually(t, "all is flushed", func() bool { return l.queue.flushedWhere.Load() == int64(l.maxOffset()) })
	eventually(t, "the service sleeps", func() bool {
		return !l.sweeper.armed.Load() && l.groupCommitService.state.Load() == groupCommitIdle
	})
	flushes, cpu := l.counters.flushTimes.Count(), cpuTime(t)
	time.Sleep(idle)
	t.Logf("idle for %v: %v of CPU", idle, cpuTime(t)-cpu)
	if n := l.counters.flushTimes.Count() - flushes; n != 0 {
		t.Fatalf("%d syncs of an idle log", n)
	}
}

// cpuTime is what the process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A failed sync is final: its waiters and all later ones end with SERVICE_NOT_AVAILABLE, queued puts too, the flushed
// position stays, nothing is tried again, and the listener hears of it once (apache/rocketmq#2706).
func TestFailedSyncLatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		l.settle()
		fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Skip: 2, Count: 1, Err: syscall.EIO})
		for range 2 {
			if status := l.flushed(l.mustPut(100).End(), time.Second); status != PutOK {
				t.Fatal(status)
			}
		}
		durable := l.queue.flushedWhere.Load()
		slowSync(fsys, func() time.Duration { return 10 * time.Millisecond })
		var waiters []*waiter
		for range 10 {
			waiters = append(waiters, l.wait(l.mustPut(100).End(), time.Hour))
		}
		for _, w := range waiters {
			if <-w.done; w.status != ServiceNotAvailable {
				t.Fatalf("a waiter on the failed sync: %v", w.status)
			}
		}
		status, cause := l.denied(time.Now().UnixMilli())
		if status != ServiceNotAvailable || !errors.Is(cause, syscall.EIO) || !errors.Is(l.flags.latchedCause(), syscall.EIO) {
			t.Fatalf("denied: %v, %v", status, cause)
		}
		if status := l.flushed(l.maxOffset(), time.Hour); status != ServiceNotAvailable {
			t.Fatalf("a later waiter: %v", status)
		}
		if status := l.flushed(PhyOffset(durable), time.Hour); status != PutOK {
			t.Fatalf("what was durable before: %v", status)
		}
		syncs := l.counters.flushTimes.Count()
		time.Sleep(time.Hour)
		l.shutdown()
		if l.queue.flushedWhere.Load() != durable || l.counters.flushTimes.Count() != syncs {
			t.Fatalf("flushed to %d, was %d; %d more syncs", l.queue.flushedWhere.Load(), durable, l.counters.flushTimes.Count()-syncs)
		}
		if n := l.readOnly.Load(); n != 1 {
			t.Fatalf("the listener heard %d times", n)
		}
	})
}

// Puts in the queue end with the cause when the store is latched.
func TestLatchEndsQueuedPuts(t *testing.T) {
	l := openTestLog(t, faultfs.New(), func(c *Config) { c.WaitTimeMillsInSendQueue = 60_000 })
	l.mustPut(10)
	release := l.stall()
	var dones []chan PutMessageStatus
	var puts []*PutMessage
	for range 100 {
		put, done := testPut("topic", 0, 10, 1)
		l.take(put)
		puts, dones = append(puts, put), append(dones, done)
	}
	l.latch(syscall.EIO)
	for i, done := range dones {
		if status := <-done; status != ServiceNotAvailable || !errors.Is(puts[i].Cause, syscall.EIO) {
			t.Fatalf("%v, %v", status, puts[i].Cause)
		}
	}
	put, _ := testPut("topic", 0, 10, 1)
	if n, status := l.asyncPutMessages([]*PutMessage{put}); n != 0 || status != ServiceNotAvailable {
		t.Fatalf("%d taken, %v", n, status)
	}
	release()
}

// A drain waits for the makers of puts that a latch ends, also while they are being told.
func TestDrainWaitsForWhatALatchEnds(t *testing.T) {
	l := openTestLog(t, faultfs.New(), func(c *Config) { c.WaitTimeMillsInSendQueue = 60_000 })
	l.mustPut(10)
	release := l.stall()
	defer release()
	telling, told := make(chan struct{}), make(chan struct{})
	put, _ := testPut("topic", 0, 10, 1)
	put.Appended = func(*PutMessage, PutMessageStatus) {
		close(telling)
		<-told
	}
	l.take(put)
	before := l.telling.Load() // of the append that stalls
	latched := make(chan struct{})
	go func() {
		l.latch(syscall.EIO)
		close(latched)
	}()
	<-telling
	if l.appender.queue.length.Load() != 0 || l.telling.Load() == before {
		t.Error("a put is neither in the queue nor being told")
	}
	close(told)
	<-latched
}

func TestWaitingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, func(c *Config) { c.FlushDiskType, c.MaxWaitingPuts = SyncFlush, 5 })
		l.settle()
		hang := make(chan struct{})
		fsys.SetHook(func(op faultfs.Op, _ string) {
			if op == faultfs.OpSync {
				<-hang
			}
		})
		var waiters []*waiter
		end := l.mustPut(10).End()
		for range 5 {
			waiters = append(waiters, l.wait(end, time.Hour))
		}
		if w := l.wait(end, time.Hour); w.status != FlushDiskTimeout {
			t.Fatalf("beyond the limit: %v", w.status)
		}
		put, _ := testPut("topic", 0, 10, 1)
		if n, status := l.asyncPutMessages([]*PutMessage{put}); n != 0 || status != QueueFull {
			t.Fatalf("%d taken, %v", n, status)
		}
		close(hang)
		for _, w := range waiters {
			if <-w.done; w.status != PutOK {
				t.Fatal(w.status)
			}
		}
		l.mustPut(10)
	})
}

// Requests that meet the stop are served by the last flush or refused; none is left.
func TestStopEndsEveryRequest(t *testing.T) {
	for range 20 {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		slowSync(fsys, func() time.Duration { return time.Duration(rand.IntN(300)) * time.Microsecond })
		var submitted, ended atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 30 {
					put, done := testPut("topic", 0, 10, 1)
					if _, status := l.asyncPutMessages([]*PutMessage{put}); status != PutOK {
						return
					}
					if <-done != PutOK {
						return
					}
					submitted.Add(1)
					l.submitFlushRequest(GroupCommitRequest{put.End(), time.Now().Add(time.Hour), func(status PutMessageStatus) {
						ended.Add(1)
						if status != PutOK && status != ServiceNotAvailable {
							t.Errorf("ended with %v", status)
						}
						if status == PutOK && l.queue.flushedWhere.Load() < int64(put.End()) {
							t.Error("answered before it was durable")
						}
					}})
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		l.stop()
		wg.Wait()
		if submitted.Load() != ended.Load() {
			t.Fatalf("%d requests, %d ended", submitted.Load(), ended.Load())
		}
		l.close()
	}
}

// What a request was answered OK for survives a power cut, at any moment.
func TestAnsweredPutsSurvivePowerLoss(t *testing.T) {
	for seed := range uint64(30) {
		fsys := faultfs.New()
		l := openTestLog(t, fsys, syncFlush)
		coins := rand.New(rand.NewPCG(8, seed))
		var acknowledged atomic.Int64
		var stop atomic.Bool
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for !stop.Load() {
					put, done := testPut("topic", int32(w), 300, 1)
					if _, status := l.asyncPutMessages([]*PutMessage{put}); status != PutOK || <-done != PutOK {
						continue
					}
					if l.flushed(put.End(), time.Second) == PutOK {
						for end := int64(put.End()); ; {
							was := acknowledged.Load()
							if end <= was || acknowledged.CompareAndSwap(was, end) {
								break
							}
						}
					}
				}
			})
		}
		time.Sleep(time.Duration(coins.IntN(3000)) * time.Microsecond)
		must := acknowledged.Load()
		after := fsys.Crash(faultfs.PowerLoss, seed)
		stop.Store(true)
		wg.Wait()
		l.shutdown()
		found := loadTestLog(t, after, testLogDir, syncFlush)
		if end, _ := found.walk(func(*message.Record) {}); int64(end) < must {
			t.Fatalf("seed %d: records end at %d, %d was acknowledged", seed, end, must)
		}
		found.close()
	}
}
