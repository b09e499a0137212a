// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
)

type fakeSession struct {
	id       uint64
	closed   atomic.Bool
	unwanted atomic.Bool // output is not taken
}

func (s *fakeSession) ID() uint64     { return s.id }
func (s *fakeSession) Closed() bool   { return s.closed.Load() }
func (s *fakeSession) Takes(int) bool { return !s.unwanted.Load() }
func (s *fakeSession) OnLoop(func())  { panic("BUG: the hold service runs nothing itself") }

// holdBench is a hold service over queue ends that the test sets, which notes what it runs.
type holdBench struct {
	*PullRequestHoldService
	mu   sync.Mutex
	ends map[holdKey]storage.QueueOffset
	ran  []*pullRequest
	p    *PullMessageProcessor
}

func newHoldBench() *holdBench {
	h := &holdBench{ends: make(map[holdKey]storage.QueueOffset)}
	h.PullRequestHoldService = newPullRequestHoldService(nil)
	h.scanInterval = func() time.Duration { return holdScanInterval }
	h.queueEnd = func(topic string, queueID int32) (storage.QueueOffset, bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		end, ok := h.ends[holdKey{topic, queueID}]
		return end, ok
	}
	h.run = func(pr *pullRequest) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ran = append(h.ran, pr)
	}
	h.p = &PullMessageProcessor{}
	return h
}

func (h *holdBench) pull(session *fakeSession, topic string, queueID int32, offset storage.QueueOffset, hold time.Duration) *pullRequest {
	return &pullRequest{p: h.p, session: session, topic: topic, queueID: queueID, offset: offset, deadline: time.Now().Add(hold)}
}

func (h *holdBench) setEnd(topic string, queueID int32, end storage.QueueOffset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[holdKey{topic, queueID}] = end
}

func (h *holdBench) runs() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ran)
}

// A message is seen in the end of its queue, then its arrival is told; a pull is linked, then the end is looked at, then
// the pull is taken. However the two interleave, the pull runs once (apache/rocketmq#7358).
func TestHoldLosesNoArrival(t *testing.T) {
	moments := []string{"before the link", "before the look", "before the take", "after"}
	for shown := range moments {
		for told := shown; told < len(moments); told++ {
			h := newHoldBench()
			h.setEnd("T", 0, 5)
			at := func(moment int) {
				if moment == shown {
					h.setEnd("T", 0, 6)
				}
				if moment == told {
					h.Arrival(storage.Arrival{Topic: "T", QueueID: 0, MaxOffset: 6})
				}
			}
			look := h.queueEnd
			h.queueEnd = func(topic string, queueID int32) (storage.QueueOffset, bool) {
				at(1)
				end, ok := look(topic, queueID)
				at(2)
				return end, ok
			}
			at(0)
			h.park(h.pull(&fakeSession{id: 1}, "T", 0, 5, time.Hour))
			at(3)
			if ran, held := h.runs(), h.Held(); ran != 1 || held != 0 {
				t.Errorf("shown %s, told %s: run %d times, %d held", moments[shown], moments[told], ran, held)
			}
		}
	}
}

func TestHoldLosesNoArrivalConcurrently(t *testing.T) {
	h := newHoldBench()
	session := &fakeSession{id: 1}
	const rounds = 20_000
	for i := range storage.QueueOffset(rounds) {
		h.setEnd("T", 0, i)
		pr := h.pull(session, "T", 0, i, time.Hour)
		var wg sync.WaitGroup
		wg.Go(func() { h.park(pr) })
		wg.Go(func() {
			h.setEnd("T", 0, i+1)
			h.Arrival(storage.Arrival{Topic: "T", QueueID: 0, MaxOffset: i + 1})
		})
		wg.Wait()
		if n := h.runs(); n != int(i)+1 {
			t.Fatalf("round %d: run %d times", i, n)
		}
	}
	if n := h.Held(); n != 0 || h.parked.Load() != 0 || len(h.sessions) != 0 || len(h.queues) != 0 {
		t.Fatalf("left over: %d held, %d counted, %d sessions, %d queues", n, h.parked.Load(), len(h.sessions), len(h.queues))
	}
}

func TestHoldDeadlinesAreMetExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldBench()
		h.Start()
		defer h.Stop()
		session := &fakeSession{id: 1}
		start := time.Now()
		var mu sync.Mutex
		late := make(map[storage.QueueOffset]time.Duration)
		h.run = func(pr *pullRequest) {
			mu.Lock()
			defer mu.Unlock()
			late[pr.offset] = time.Since(pr.deadline)
		}
		for i := range storage.QueueOffset(500) {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			h.park(h.pull(session, "T", int32(i%7), i, time.Duration(rand.IntN(15_000))*time.Millisecond))
		}
		time.Sleep(16*time.Second - time.Since(start)%time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(late) != 500 {
			t.Fatalf("%d of 500 holds ended", len(late))
		}
		for offset, by := range late {
			if by < 0 || by > 5*time.Millisecond {
				t.Errorf("hold %d ended %v after its deadline", offset, by)
			}
		}
	})
}

// A queue that grows only by messages which the filter does not want wakes nobody at once, but at the next scan, so that
// the consumer's offset moves on.
func TestHoldScanFindsFilteredGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldBench()
		h.Start()
		defer h.Stop()
		h.setEnd("T", 0, 3)
		pr := h.pull(&fakeSession{id: 1}, "T", 0, 3, time.Minute)
		pr.filter.codes = map[int32]struct{}{7: {}}
		h.park(pr)
		h.setEnd("T", 0, 4)
		h.Arrival(storage.Arrival{Topic: "T", QueueID: 0, MaxOffset: 4, TagsCode: 8})
		synctest.Wait()
		if n := h.runs(); n != 0 {
			t.Fatalf("run %d times for a message of another tag", n)
		}
		time.Sleep(holdScanInterval + time.Millisecond)
		synctest.Wait()
		if n := h.runs(); n != 1 {
			t.Fatalf("run %d times after a scan; want 1", n)
		}
	})
}

func TestHoldWakesOnlyWhoWaits(t *testing.T) {
	h := newHoldBench()
	session := &fakeSession{id: 1}
	wanted := h.pull(session, "T", 1, 10, time.Hour)
	wanted.filter.codes = map[int32]struct{}{-5: {}}
	ahead := h.pull(session, "T", 1, 11, time.Hour)
	other := h.pull(session, "T", 2, 10, time.Hour)
	for _, pr := range []*pullRequest{wanted, ahead, other} {
		h.park(pr)
	}
	h.Arrival(storage.Arrival{Topic: "T", QueueID: 1, MaxOffset: 11, TagsCode: -5})
	if h.runs() != 1 || h.ran[0] != wanted {
		t.Fatalf("run %d pulls, want the one of queue 1 at offset 10", h.runs())
	}
	if n := h.Held(); n != 2 {
		t.Fatalf("%d held; want 2", n)
	}
}

func TestHoldDropsClosedSessions(t *testing.T) {
	h := newHoldBench()
	gone, stays := &fakeSession{id: 1}, &fakeSession{id: 2}
	for i := range int32(100) {
		h.park(h.pull(gone, "T", i%3, 5, time.Hour))
		h.park(h.pull(stays, "T", i%3, 5, time.Hour))
	}
	gone.unwanted.Store(true)
	h.block(h.pull(gone, "T", 0, 5, time.Hour))
	gone.closed.Store(true)
	h.SessionClosed(gone.id)
	if n := h.Held(); n != 100 {
		t.Fatalf("%d held; want the 100 of the other session", n)
	}
	h.park(h.pull(gone, "T", 0, 5, time.Hour))
	if n := h.Held(); n != 100 {
		t.Fatalf("a pull of a closed session was held")
	}
}

// One connection cannot take the places of all others; what goes makes room again.
func TestHoldLimits(t *testing.T) {
	h := newHoldBench()
	h.limit, h.sessionLimit = 30, 10
	refused := func(session *fakeSession) string {
		h.mu.Lock()
		defer h.mu.Unlock()
		gone, full := h.refusedLocked(h.pull(session, "T", 0, 5, time.Hour))
		if gone {
			t.Fatal("an open session is gone")
		}
		return full
	}
	sessions := make([]*fakeSession, 4)
	for i := range sessions {
		sessions[i] = &fakeSession{id: uint64(i + 1)}
	}
	for i, s := range sessions[:3] {
		for j := range int32(10) {
			if got := refused(s); got != "" {
				t.Fatalf("pull %d of connection %d: %s", j, i, got)
			}
			if i == 2 {
				h.block(h.pull(s, "T", j, 5, time.Hour))
			} else {
				h.park(h.pull(s, "T", j, 5, time.Hour))
			}
		}
		if got := refused(s); i < 2 && got != remarkHoldSession {
			t.Fatalf("connection %d beyond its share: %q", i, got)
		}
	}
	if got := refused(sessions[3]); got != remarkHoldFull {
		t.Fatalf("beyond the limit: %q", got)
	}
	h.Arrival(storage.Arrival{Topic: "T", QueueID: 3, MaxOffset: 6})
	for _, s := range []*fakeSession{sessions[0], sessions[3]} {
		if got := refused(s); got != "" {
			t.Fatalf("room again: %q", got)
		}
	}
	if got := refused(sessions[2]); got != remarkHoldSession {
		t.Fatalf("pulls held for output do not count: %q", got)
	}
}

// What is beyond a limit is answered SYSTEM_BUSY.
func TestHeldPullBeyondItsShare(t *testing.T) {
	b := startTestBroker(t, nil)
	c, other := b.dial(), b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	b.hold.mu.Lock()
	b.hold.sessionLimit = 3
	b.hold.mu.Unlock()
	hold := func(c *rawClient) chan *remoting.Command {
		return c.start(c.request(remoting.PullMessage, nil, pullFields("g", "T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "15000")...))[0]
	}
	var held []chan *remoting.Command
	for range 3 {
		held = append(held, hold(c))
	}
	eventually(t, "the pulls to be held", func() bool { return b.hold.Held() == 3 })
	wantRemark(t, "the fourth", c.await(hold(c)), remoting.SystemBusy, "too many pulls held for one connection")
	if n := b.hold.refused.Load(); n != 1 {
		t.Errorf("%d pulls counted as refused", n)
	}
	elsewhere := hold(other)
	eventually(t, "another connection's pull to be held", func() bool { return b.hold.Held() == 4 })
	other.send("T", 0, []byte("x"), "")
	for _, ch := range held {
		wantCode(t, c.await(ch), remoting.Success)
	}
	wantCode(t, other.await(elsewhere), remoting.Success)
}

func TestHoldWaitsForWritableSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldBench()
		h.Start()
		defer h.Stop()
		session := &fakeSession{id: 1}
		session.unwanted.Store(true)
		h.block(h.pull(session, "T", 0, 0, 0))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := h.runs(); n != 0 {
			t.Fatalf("read %d times for a session that takes no output", n)
		}
		session.unwanted.Store(false)
		time.Sleep(2 * blockedCheckInterval)
		synctest.Wait()
		if n := h.runs(); n != 1 {
			t.Fatalf("run %d times once the session takes output; want 1", n)
		}
	})
}

// Random parks, arrivals, closes and deadlines must leave the heap and the lists in order, and run or drop each pull once.
func TestHoldModel(t *testing.T) {
	h := newHoldBench()
	rng := rand.New(rand.NewPCG(1, 2))
	sessions := make([]*fakeSession, 5)
	for i := range sessions {
		sessions[i] = &fakeSession{id: uint64(i + 1)}
	}
	parked := make(map[*pullRequest]bool)
	now := time.Now()
	h.run = func(pr *pullRequest) {
		if !parked[pr] {
			t.Fatalf("ran a pull that is not parked")
		}
		delete(parked, pr)
	}
	for i := range 20_000 {
		switch rng.IntN(4) {
		case 0, 1:
			pr := h.pull(sessions[rng.IntN(len(sessions))], "T", int32(rng.IntN(4)), storage.QueueOffset(rng.IntN(50)), time.Duration(rng.IntN(1000))*time.Millisecond)
			parked[pr] = true
			h.park(pr)
		case 2:
			h.Arrival(storage.Arrival{Topic: "T", QueueID: int32(rng.IntN(4)), MaxOffset: storage.QueueOffset(rng.IntN(50))})
		case 3:
			now = now.Add(time.Duration(rng.IntN(50)) * time.Millisecond)
			h.step(now)
		}
		if i%1000 == 999 {
			s := sessions[rng.IntN(len(sessions))]
			for pr := range parked {
				if pr.session == s {
					delete(parked, pr)
				}
			}
			h.SessionClosed(s.id)
		}
		if len(parked) != h.Held() || int(h.parked.Load()) != len(parked) {
			t.Fatalf("step %d: %d held, %d counted, the model has %d", i, h.Held(), h.parked.Load(), len(parked))
		}
	}
	for i := 1; i < len(h.deadlines); i++ {
		if h.deadlines[i].deadline.Before(h.deadlines[(i-1)/2].deadline) || h.deadlines[i].heapIndex != i {
			t.Fatalf("heap out of order at %d", i)
		}
	}
}

func TestArrivalAllocatesNothing(t *testing.T) {
	h := newHoldBench()
	a := storage.Arrival{Topic: "T", QueueID: 1, MaxOffset: 3}
	if n := testing.AllocsPerRun(100, func() { h.Arrival(a) }); n != 0 {
		t.Errorf("%v allocations when nobody waits", n)
	}
	h.park(h.pull(&fakeSession{id: 1}, "T", 0, 5, time.Hour))
	if n := testing.AllocsPerRun(100, func() { h.Arrival(a) }); n != 0 {
		t.Errorf("%v allocations when somebody waits elsewhere", n)
	}
}
