// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/latency"
)

// groupCommitInterval is how soon bytes that nobody waits for (WAIT=false) are flushed. Source: GroupCommitService#run.
const groupCommitInterval = 10 * time.Millisecond

// answeredTogetherMax is how many requests are answered before the loops are woken: after a long sync there may be so many
// that the answers of one connection, written at once, are over what it may leave unsent.
const answeredTogetherMax = 4096

// GroupCommitRequest is a put that waits until bytes below end are durable. Source: CommitLog.GroupCommitRequest.
type GroupCommitRequest struct {
	end      PhyOffset
	deadline time.Time
	done     func(PutMessageStatus)
}

// What the service's goroutine does, as those who may wake it see it.
const (
	groupCommitRunning = iota // looks at the requests before it sleeps
	groupCommitTimed          // sleeps groupCommitInterval at most: only a request wakes it
	groupCommitIdle           // sleeps: a request or unflushed bytes wake it
)

// GroupCommitService flushes under SYNC_FLUSH: one sync answers every request whose bytes it covers, and requests that
// come meanwhile are served by the next. A request is in exactly one list until someone takes it out and ends it: the
// service after a sync, the sweeper at its deadline, a latch.
//
// Lock order: readMu before writeMu. Source: CommitLog.GroupCommitService.
type GroupCommitService struct {
	log *CommitLog

	waiting atomic.Int64 // requests that have not been told their end
	// answeredAt is the time of the last round that ended requests, by latency.Now.
	answeredAt atomic.Int64
	state      atomic.Int32
	wake       chan struct{}
	stopped    chan struct{}
	done       chan struct{}

	writeMu       sync.Mutex // guards requestsWrite; callers of submit hold it, for one append
	requestsWrite []GroupCommitRequest
	refused       bool // guarded by writeMu: the store is latched or closing

	readMu       sync.Mutex // guards requestsRead, not held during a sync
	requestsRead []GroupCommitRequest

	ended []endedRequest // scratch of the service's goroutine
}

type endedRequest struct {
	done   func(PutMessageStatus)
	status PutMessageStatus
}

func newGroupCommitService(log *CommitLog) *GroupCommitService {
	return &GroupCommitService{
		log:     log,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *GroupCommitService) start() { go s.run() }

// stop serves what is queued, flushes the rest, and refuses what comes later.
func (s *GroupCommitService) stop() {
	close(s.stopped)
	<-s.done
}

// submit queues a request, or ends it at once when its bytes are durable or nothing will make them so. At the limit of
// maxWaitingPuts it ends with FlushDiskTimeout, which says what is true: stored, and not known to be on disk.
func (s *GroupCommitService) submit(req GroupCommitRequest) {
	if int64(req.end) <= s.log.queue.flushedWhere.Load() {
		req.done(PutOK)
		return
	}
	if s.waiting.Add(1) > int64(s.log.config().MaxWaitingPuts) {
		s.waiting.Add(-1)
		req.done(FlushDiskTimeout)
		return
	}
	if !s.putRequest(req) {
		s.waiting.Add(-1)
		req.done(ServiceNotAvailable)
		return
	}
	if state := s.state.Load(); state != groupCommitRunning && s.state.CompareAndSwap(state, groupCommitRunning) {
		s.wakeup()
	}
	s.log.sweeper.arm()
}

func (s *GroupCommitService) putRequest(req GroupCommitRequest) bool {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.refused {
		return false
	}
	s.requestsWrite = append(s.requestsWrite, req)
	return true
}

// wrote is called after an append: unflushed bytes end an idle sleep.
func (s *GroupCommitService) wrote() {
	if s.state.Load() == groupCommitIdle && s.state.CompareAndSwap(groupCommitIdle, groupCommitRunning) {
		s.wakeup()
	}
}

func (s *GroupCommitService) wakeup() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *GroupCommitService) run() {
	defer close(s.done)
	timer := time.NewTimer(groupCommitInterval)
	defer timer.Stop()
	for progressed := false; s.waitForRunning(timer, progressed); {
		progressed = s.doCommit()
	}
	s.doCommit()
	s.log.flushRest()
	s.refuse()
	s.fail(ServiceNotAvailable)
}

// waitForRunning sleeps until there is something to flush; false when the service stops. After a round that flushed it
// sleeps an interval, so that bytes nobody waits for cost a sync per interval and not one each.
func (s *GroupCommitService) waitForRunning(timer *time.Timer, flushed bool) bool {
	state := int32(groupCommitIdle)
	var timeout <-chan time.Time
	if flushed || s.log.remainsToFlush() {
		state = groupCommitTimed
		timer.Reset(groupCommitInterval)
		timeout = timer.C
	}
	s.state.Store(state)
	// What came before the store above did not wake us.
	if s.hasRequests() || state == groupCommitIdle && s.log.remainsToFlush() {
		s.state.Store(groupCommitRunning)
	} else {
		select {
		case <-s.wake:
		case <-timeout:
		case <-s.stopped:
		}
		s.state.Store(groupCommitRunning)
	}
	select {
	case <-s.stopped:
		return false
	default:
		return true
	}
}

func (s *GroupCommitService) hasRequests() bool {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return len(s.requestsWrite) > 0
}

// doCommit is one round: flush as far as the requests ask, at least once, then end all that are served.
// Source: GroupCommitService#doCommit.
func (s *GroupCommitService) doCommit() (progressed bool) {
	before := s.log.queue.flushedWhere.Load()
	err := s.log.flushTo(s.swapRequests())
	after := s.log.queue.flushedWhere.Load()
	s.complete(time.Now(), PhyOffset(after))
	if err != nil {
		s.log.latch(err)
	}
	return after != before
}

// swapRequests moves the new requests to those being served and returns the greatest end of all.
func (s *GroupCommitService) swapRequests() (end PhyOffset) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	s.writeMu.Lock()
	if len(s.requestsRead) == 0 {
		s.requestsRead, s.requestsWrite = s.requestsWrite, s.requestsRead
	} else {
		s.requestsRead = append(s.requestsRead, s.requestsWrite...)
		clear(s.requestsWrite)
		s.requestsWrite = s.requestsWrite[:0]
	}
	s.writeMu.Unlock()
	for _, req := range s.requestsRead {
		end = max(end, req.end)
	}
	return end
}

// complete ends every request being served whose end is durable or whose deadline has passed. Deadlines are not in
// order: syncFlushTimeout changes at run time.
func (s *GroupCommitService) complete(now time.Time, flushedWhere PhyOffset) {
	s.readMu.Lock()
	s.requestsRead, s.ended = endRequests(s.requestsRead, s.ended[:0], now, flushedWhere)
	s.readMu.Unlock()
	s.finish(s.ended, now)
}

// expire does the same for deadlines alone, in both lists, while a sync hangs; the sweeper calls it.
func (s *GroupCommitService) expire(now time.Time) {
	if s.waiting.Load() == 0 {
		return
	}
	var ended []endedRequest
	s.readMu.Lock()
	s.requestsRead, ended = endRequests(s.requestsRead, ended, now, -1)
	s.writeMu.Lock()
	s.requestsWrite, ended = endRequests(s.requestsWrite, ended, now, -1)
	s.writeMu.Unlock()
	s.readMu.Unlock()
	s.finish(ended, now)
}

// endRequests splits requests into those kept and those that end now.
func endRequests(requests []GroupCommitRequest, ended []endedRequest, now time.Time, flushedWhere PhyOffset) (
	[]GroupCommitRequest, []endedRequest) {

	kept := requests[:0]
	for _, req := range requests {
		switch {
		case req.end <= flushedWhere:
			ended = append(ended, endedRequest{req.done, PutOK})
		case !now.Before(req.deadline):
			ended = append(ended, endedRequest{req.done, FlushDiskTimeout})
		default:
			kept = append(kept, req)
		}
	}
	clear(requests[len(kept):])
	return kept, ended
}

// refuse makes submit answer ServiceNotAvailable from now on.
func (s *GroupCommitService) refuse() {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.refused = true
}

// fail ends all requests.
func (s *GroupCommitService) fail(status PutMessageStatus) {
	s.readMu.Lock()
	s.writeMu.Lock()
	requests := append(s.requestsRead, s.requestsWrite...)
	s.requestsRead, s.requestsWrite = nil, nil
	s.writeMu.Unlock()
	s.readMu.Unlock()
	s.answeredAt.Store(latency.Now())
	for _, req := range requests {
		req.done(status)
	}
	s.waiting.Add(int64(-len(requests)))
}

func (s *GroupCommitService) finish(ended []endedRequest, now time.Time) {
	s.answeredAt.Store(latency.Of(now))
	for some := range slices.Chunk(ended, answeredTogetherMax) {
		if together := s.log.listener.AnswerTogether; together != nil && len(some) > 1 {
			together(func() { answerAll(some) })
		} else {
			answerAll(some)
		}
	}
	s.waiting.Add(int64(-len(ended))) // at zero everybody has been told
	clear(ended)
}

func answerAll(ended []endedRequest) {
	for _, e := range ended {
		e.done(e.status)
	}
}
