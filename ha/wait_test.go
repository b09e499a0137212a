// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage"
)

// How often a waiter is woken has no influence: bodies of up to the largest size go in many frames, each of them
// acknowledged (apache/rocketmq#1535).
func TestBigBodiesOverManyFrames(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.MappedFileSizeCommitLog = 8 << 20 })
	s := m.follow(m.put(10))
	for _, size := range []int{31 << 10, 161 << 10, 1 << 20, 39 << 20 / 10} {
		w := m.wait(m.put(size))
		frames := 0
		for ; s.end < m.store.MaxPhyOffset(); frames++ {
			select {
			case status := <-w:
				t.Fatalf("a body of %d bytes: %v with %d bytes to go", size, status, m.store.MaxPhyOffset()-s.end)
			default:
			}
			_, body, err := s.frame()
			if err != nil {
				t.Fatal(err)
			}
			s.end += storage.PhyOffset(len(body))
			s.report(s.end)
		}
		m.want("a body of many frames", w, storage.PutOK)
		if want := size / (32 << 10); frames < want {
			t.Fatalf("a body of %d bytes came in %d frames", size, frames)
		}
	}
}

// A send ends when its last byte is acknowledged or when its own deadline passes, whatever comes in between.
func TestTheLastAcknowledgementDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const end, timeout = 4 << 20, 5 * time.Second
		f := func(late, after time.Duration, want storage.PutMessageStatus) {
			t.Helper()
			var acked atomic.Int64
			s := newGroupTransferService(func() storage.PhyOffset { return storage.PhyOffset(acked.Load()) })
			s.start()
			defer s.stop()
			began := time.Now()
			var status storage.PutMessageStatus
			var took time.Duration
			s.submit(replicaRequest{end: end, deadline: began.Add(timeout), done: func(got storage.PutMessageStatus) {
				status, took = got, time.Since(began)
			}})
			for part := int64(32 << 10); part < end; part += 32 << 10 {
				acked.Store(part)
				s.notifyTransferSome()
				time.Sleep(time.Millisecond)
			}
			time.Sleep(late - time.Since(began))
			acked.Store(end)
			s.notifyTransferSome()
			synctest.Wait()
			if status != want || took < after || took > after+lookInterval {
				t.Errorf("acknowledged after %v: %v after %v; want %v after %v", late, status, took, want, after)
			}
		}
		f(4*time.Second, 4*time.Second, storage.PutOK)
		f(6*time.Second, timeout, storage.FlushSlaveTimeout)
	})
}

// A slave counts while it is less than haSlaveFallbehindMax behind the send's end; the setting acts at once.
func TestASlaveTooFarBehindDoesNotCount(t *testing.T) {
	const limit = 100_000
	m := startMaster(t, func(c *Config) { c.HaSlaveFallbehindMax, c.SlaveTimeout = limit, testWait })
	s := m.follow(m.put(1000))
	behind := s.end
	w := m.wait(m.put(limit / 2))
	m.want("beyond the limit", m.wait(m.put(limit/2)), storage.SlaveNotAvailable)
	m.want("at the limit", m.wait(behind+limit), storage.SlaveNotAvailable)
	below := m.wait(behind + limit - 1)
	m.configure(func(c *Config) { c.HaSlaveFallbehindMax = 2 * limit })
	last := m.wait(m.store.MaxPhyOffset())
	m.eventually("three sends wait", func() bool { return m.ha.Status().Waiting == 3 })
	s.receive(m.store.MaxPhyOffset())
	s.report(s.end)
	for _, waiting := range []chan storage.PutMessageStatus{w, below, last} {
		m.want("once it has all", waiting, storage.PutOK)
	}
}

// What is kept for slaves begins at the one that is farthest behind, and is bounded by haRetainedMax.
func TestWhatIsKeptForSlaves(t *testing.T) {
	m := startMaster(t, nil)
	first := m.put(1000)
	m.grow(2 * testFileSize)
	end := m.store.MaxPhyOffset()
	f := func(what string, want storage.PhyOffset) {
		t.Helper()
		var got storage.PhyOffset
		m.eventually(what, func() (ok bool) {
			got, ok = m.ha.MinRetained()
			return ok && got == want
		})
	}
	if from, ok := m.ha.MinRetained(); ok {
		t.Fatalf("kept from %d on without a slave", from)
	}
	m.follow(end)
	f("for a slave that has all", end)
	behind := m.follow(first)
	f("for the one behind", first)
	m.configure(func(c *Config) { c.HaRetainedMax = testFileSize })
	f("no more than haRetainedMax", end-testFileSize)
	m.configure(func(c *Config) { c.HaRetainedMax = 0 })
	f("nothing", end)
	m.configure(func(c *Config) { c.HaRetainedMax = 1 << 40 })
	behind.receive(end)
	behind.report(end)
	f("for two that have all", end)
}
