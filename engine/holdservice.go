// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
)

const (
	// heldPullsMax bounds parked pulls, heldPullsPerSession those of one connection; a client has one for each queue it
	// reads. One more is answered SYSTEM_BUSY, after which RocketMQ's clients pull the queue again in 3 s; PULL_NOT_FOUND
	// would have them back at once.
	heldPullsMax        = 200_000
	heldPullsPerSession = heldPullsMax / 10
	// holdScanInterval is how often queue ends are compared with what held pulls wait for. It answers pulls whose queue grew
	// by messages that their filter does not want, so that the consumer's offset moves on. Source: PullRequestHoldService#run.
	holdScanInterval      = 5 * time.Second
	holdScanIntervalShort = time.Second // with longPollingEnable=false
	// blockedCheckInterval is how often a session above its outbound mark is looked at again.
	blockedCheckInterval = 100 * time.Millisecond
	holdIdle             = time.Hour

	remarkHoldFull    = remarkOverload + ", too many pulls held"
	remarkHoldSession = remarkOverload + ", too many pulls held for one connection"
)

// holdSession is what the service needs of a reactor.Session.
type holdSession interface {
	ID() uint64
	Closed() bool
	Takes(bodyLen int) bool
	OnLoop(f func())
}

type holdKey struct {
	topic   string
	queueID int32
}

// PullRequestHoldService parks pulls that found nothing, as records without a goroutine each: they wait for an arrival in
// their queue, the end of their hold, or the end of their session. Pulls of a session above its outbound mark wait here
// too, for the mark.
//
// Nothing blocks under mu, and no other lock is taken under it.
type PullRequestHoldService struct {
	// queueEnd is the store's max offset of a queue, run reads a pull again; both are called without mu.
	queueEnd     func(topic string, queueID int32) (storage.QueueOffset, bool)
	run          func(*pullRequest)
	scanInterval func() time.Duration

	limit, sessionLimit int

	parked  atomic.Int32 // pulls in queues: an arrival that nobody waits for looks no further
	refused atomic.Int64 // pulls beyond a limit

	mu         sync.Mutex // guards what follows
	queues     map[holdKey]pullList
	sessions   map[uint64]pullList
	deadlines  []*pullRequest // heap, the earliest first
	blocked    map[*pullRequest]struct{}
	tickets    uint64
	sleepUntil time.Time
	nextScan   time.Time
	stopped    bool

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func newPullRequestHoldService(b *BrokerController) *PullRequestHoldService {
	return &PullRequestHoldService{
		queueEnd: func(topic string, queueID int32) (storage.QueueOffset, bool) {
			_, end, ok := b.store.QueueOffsets(topic, queueID)
			return end, ok
		},
		scanInterval: func() time.Duration {
			if b.Config().LongPollingEnable {
				return holdScanInterval
			}
			return holdScanIntervalShort
		},
		limit: heldPullsMax, sessionLimit: heldPullsPerSession,
		queues:   make(map[holdKey]pullList),
		sessions: make(map[uint64]pullList),
		blocked:  make(map[*pullRequest]struct{}),
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
}

// Start runs the clock of the service.
func (s *PullRequestHoldService) Start() { go s.serve() }

// Stop ends the clock and drops what is held: the connections are about to close, and clients pull anew elsewhere.
func (s *PullRequestHoldService) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	s.mu.Lock()
	dropped := s.removeAllLocked()
	s.mu.Unlock()
	for _, pr := range dropped {
		pr.recycle()
	}
}

// Held is the number of pulls that wait.
func (s *PullRequestHoldService) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deadlines) + len(s.blocked)
}

func (s *PullRequestHoldService) serve() {
	defer close(s.done)
	timer := time.NewTimer(holdIdle)
	defer timer.Stop()
	for {
		timer.Reset(s.step(time.Now()))
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// park holds pr until an arrival, its deadline or the end of its session. The end of the queue is looked at once more
// after pr can be found by an arrival: a message dispatched before that look shows in the end, one dispatched after it
// finds pr. So none falls between (apache/rocketmq#7358).
func (s *PullRequestHoldService) park(pr *pullRequest) {
	key, from := holdKey{pr.topic, pr.queueID}, pr.offset
	s.mu.Lock()
	gone, full := s.refusedLocked(pr)
	var ticket uint64
	if !gone && full == "" {
		ticket = s.linkLocked(key, pr)
	}
	s.mu.Unlock()
	switch {
	case gone:
		pr.recycle()
		return
	case full != "":
		s.refused.Add(1)
		pr.refuse(remoting.SystemBusy, full)
		return
	}
	if end, ok := s.queueEnd(key.topic, key.queueID); ok && end > from && s.take(pr, ticket) {
		s.run(pr)
	}
}

// block holds pr until its session takes output again.
func (s *PullRequestHoldService) block(pr *pullRequest) {
	s.mu.Lock()
	gone, full := s.refusedLocked(pr)
	if !gone && full == "" {
		link(s.sessions, pr.session.ID(), bySession, pr)
		s.blocked[pr] = struct{}{}
		s.wakeForLocked(time.Now().Add(blockedCheckInterval))
	}
	s.mu.Unlock()
	switch {
	case gone:
		pr.recycle()
	case full != "":
		s.refused.Add(1)
		pr.refuse(remoting.SystemBusy, full)
	}
}

// refusedLocked says whether nobody waits for pr any more, and which limit leaves no room for it.
func (s *PullRequestHoldService) refusedLocked(pr *pullRequest) (gone bool, full string) {
	switch {
	case s.stopped || pr.session.Closed():
		return true, ""
	case len(s.deadlines)+len(s.blocked) >= s.limit:
		return false, remarkHoldFull
	case s.sessions[pr.session.ID()].count >= s.sessionLimit:
		return false, remarkHoldSession
	}
	return false, ""
}

// Arrival wakes the pulls that wait for this message. It runs on the dispatcher: it does not block, and allocates
// nothing when nobody waits.
func (s *PullRequestHoldService) Arrival(a storage.Arrival) {
	if s.parked.Load() == 0 {
		return
	}
	var few [16]*pullRequest
	woken := few[:0]
	s.mu.Lock()
	for pr := s.queues[holdKey{a.Topic, a.QueueID}].first; pr != nil; {
		next := pr.links[byQueue].next
		if a.MaxOffset > pr.offset && pr.filter.MatchConsumeQueue(a.TagsCode) {
			s.unlinkLocked(pr)
			woken = append(woken, pr)
		}
		pr = next
	}
	s.mu.Unlock()
	for _, pr := range woken {
		s.run(pr)
	}
}

// SessionClosed drops what a session waits for.
func (s *PullRequestHoldService) SessionClosed(id uint64) {
	s.mu.Lock()
	var dropped []*pullRequest
	for pr := s.sessions[id].first; pr != nil; pr = s.sessions[id].first {
		s.removeLocked(pr)
		dropped = append(dropped, pr)
	}
	s.mu.Unlock()
	for _, pr := range dropped {
		pr.recycle()
	}
}

// step wakes what is due at now and says how long the clock may sleep.
func (s *PullRequestHoldService) step(now time.Time) time.Duration {
	var due []*pullRequest
	s.mu.Lock()
	for len(s.deadlines) > 0 && !now.Before(s.deadlines[0].deadline) {
		pr := s.deadlines[0]
		s.unlinkLocked(pr)
		due = append(due, pr)
	}
	for pr := range s.blocked {
		if pr.session.Takes(pr.refusedSize) {
			s.removeLocked(pr)
			due = append(due, pr)
		}
	}
	scan := len(s.queues) > 0 && !now.Before(s.nextScan)
	var keys []holdKey
	if scan {
		keys = make([]holdKey, 0, len(s.queues))
		for key := range s.queues {
			keys = append(keys, key)
		}
		s.nextScan = now.Add(s.scanInterval())
	}
	s.mu.Unlock()

	for _, key := range keys {
		if end, ok := s.queueEnd(key.topic, key.queueID); ok {
			due = s.takeGrown(key, end, due)
		}
	}
	for _, pr := range due {
		s.run(pr)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleepUntil = now.Add(holdIdle)
	if len(s.deadlines) > 0 {
		s.sleepUntil = earlier(s.deadlines[0].deadline, s.nextScan)
	} else if scan || now.Before(s.nextScan) {
		// A pull may be back in a moment: with the clock asleep for no longer than a scan, it need not wake it.
		s.sleepUntil = s.nextScan
	}
	if len(s.blocked) > 0 {
		s.sleepUntil = earlier(s.sleepUntil, now.Add(blockedCheckInterval))
	}
	return s.sleepUntil.Sub(now)
}

// takeGrown takes the pulls of a queue whose end is beyond what they wait for. No tags code is at hand here, which counts
// as a match.
func (s *PullRequestHoldService) takeGrown(key holdKey, end storage.QueueOffset, due []*pullRequest) []*pullRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pr := s.queues[key].first; pr != nil; {
		next := pr.links[byQueue].next
		if end > pr.offset {
			s.unlinkLocked(pr)
			due = append(due, pr)
		}
		pr = next
	}
	return due
}

// take removes pr if it is still parked under ticket.
func (s *PullRequestHoldService) take(pr *pullRequest, ticket uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pr.ticket != ticket {
		return false
	}
	s.unlinkLocked(pr)
	return true
}

func (s *PullRequestHoldService) linkLocked(key holdKey, pr *pullRequest) (ticket uint64) {
	s.tickets++
	pr.ticket = s.tickets
	link(s.queues, key, byQueue, pr)
	link(s.sessions, pr.session.ID(), bySession, pr)
	s.pushDeadlineLocked(pr)
	s.parked.Add(1)
	now := time.Now()
	if s.nextScan.Before(now) {
		s.nextScan = now.Add(s.scanInterval())
	}
	s.wakeForLocked(earlier(pr.deadline, s.nextScan))
	return pr.ticket
}

// unlinkLocked takes a parked pull out of its queue, its session and the deadlines.
func (s *PullRequestHoldService) unlinkLocked(pr *pullRequest) {
	unlink(s.queues, holdKey{pr.topic, pr.queueID}, byQueue, pr)
	unlink(s.sessions, pr.session.ID(), bySession, pr)
	s.dropDeadlineLocked(pr)
	s.parked.Add(-1)
	pr.ticket = 0
}

// removeLocked takes pr out, parked or blocked.
func (s *PullRequestHoldService) removeLocked(pr *pullRequest) {
	if _, ok := s.blocked[pr]; ok {
		delete(s.blocked, pr)
		unlink(s.sessions, pr.session.ID(), bySession, pr)
		return
	}
	s.unlinkLocked(pr)
}

func (s *PullRequestHoldService) removeAllLocked() []*pullRequest {
	var all []*pullRequest
	for _, list := range s.sessions {
		for pr := list.first; pr != nil; pr = pr.links[bySession].next {
			all = append(all, pr)
		}
	}
	for _, pr := range all {
		s.removeLocked(pr)
	}
	return all
}

// pullList is a list of held pulls, linked through them.
type pullList struct {
	first *pullRequest
	count int
}

// listKind is one of the lists that a held pull is in.
type listKind int

const (
	byQueue listKind = iota // parked ones only
	bySession
	listKinds
)

type pullLinks struct{ prev, next *pullRequest }

func link[K comparable](lists map[K]pullList, key K, kind listKind, pr *pullRequest) {
	l := lists[key]
	pr.links[kind] = pullLinks{next: l.first}
	if l.first != nil {
		l.first.links[kind].prev = pr
	}
	lists[key] = pullList{pr, l.count + 1}
}

func unlink[K comparable](lists map[K]pullList, key K, kind listKind, pr *pullRequest) {
	l, at := lists[key], pr.links[kind]
	if at.next != nil {
		at.next.links[kind].prev = at.prev
	}
	if at.prev != nil {
		at.prev.links[kind].next = at.next
	} else {
		l.first = at.next
	}
	pr.links[kind] = pullLinks{}
	if l.count--; l.count == 0 {
		delete(lists, key)
		return
	}
	lists[key] = l
}

// wakeForLocked wakes the clock if it would sleep past at.
func (s *PullRequestHoldService) wakeForLocked(at time.Time) {
	if !at.Before(s.sleepUntil) {
		return
	}
	s.sleepUntil = at
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *PullRequestHoldService) pushDeadlineLocked(pr *pullRequest) {
	s.deadlines = append(s.deadlines, pr)
	pr.heapIndex = len(s.deadlines) - 1
	s.siftUpLocked(pr.heapIndex)
}

func (s *PullRequestHoldService) dropDeadlineLocked(pr *pullRequest) {
	i, last := pr.heapIndex, len(s.deadlines)-1
	s.swapDeadlinesLocked(i, last)
	s.deadlines[last] = nil
	s.deadlines = s.deadlines[:last]
	if i < last {
		s.siftUpLocked(i)
		s.siftDownLocked(i)
	}
}

func (s *PullRequestHoldService) siftUpLocked(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.deadlines[i].deadline.Before(s.deadlines[parent].deadline) {
			return
		}
		s.swapDeadlinesLocked(i, parent)
		i = parent
	}
}

func (s *PullRequestHoldService) siftDownLocked(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.deadlines); child++ {
			if s.deadlines[child].deadline.Before(s.deadlines[least].deadline) {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swapDeadlinesLocked(i, least)
		i = least
	}
}

func (s *PullRequestHoldService) swapDeadlinesLocked(i, j int) {
	s.deadlines[i], s.deadlines[j] = s.deadlines[j], s.deadlines[i]
	s.deadlines[i].heapIndex, s.deadlines[j].heapIndex = i, j
}
