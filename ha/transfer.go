// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage"
	"loopmq/storage/latency"
)

const (
	// waitingReplicasMax bounds sends that wait for a slave; at it a send ends with FlushSlaveTimeout, which is true:
	// stored here, and not known to be anywhere else.
	waitingReplicasMax = 200_000
	// lookInterval is the least time between two looks at the deadlines, lookIdle the most.
	lookInterval = 5 * time.Millisecond
	lookIdle     = time.Second
)

// replicaRequest is a send that waits until enough slaves hold all bytes below end. Source: CommitLog.GroupCommitRequest.
type replicaRequest struct {
	end      storage.PhyOffset
	deadline time.Time
	done     func(storage.PutMessageStatus)
}

// GroupTransferService holds the sends that wait for slaves. An acknowledgement completes all that it covers where it
// arrives, on the connection's loop; the service's own goroutine is for deadlines only, and sleeps through a send that
// is answered in time. Every request ends at one of two things: the slaves that are connected now hold its bytes, or
// its own deadline passed (apache/rocketmq#1535, #3484).
type GroupTransferService struct {
	// acked is the offset below which enough slaves hold everything.
	acked func() storage.PhyOffset

	waiting atomic.Int64
	// answeredAt is the time of the last round that ended requests, by latency.Now.
	answeredAt atomic.Int64

	wake    chan struct{} // capacity 1: a deadline before nextLook
	stopped chan struct{}
	done    chan struct{}

	mu       sync.Mutex       // guards the fields below; nothing blocks under it
	requests []replicaRequest // those from head on wait, by end
	head     int
	nextLook time.Time // when the goroutine looks at the deadlines by itself
	closed   bool
	spare    []endedRequest // for the next complete
}

func newGroupTransferService(acked func() storage.PhyOffset) *GroupTransferService {
	return &GroupTransferService{
		acked:   acked,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *GroupTransferService) start() { go s.run() }

// stop ends what waits with FlushSlaveTimeout: stored, and no slave has said that it holds it.
func (s *GroupTransferService) stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.stopped)
	<-s.done
}

// submit queues a request, or ends it at once.
func (s *GroupTransferService) submit(req replicaRequest) {
	if !s.put(req) {
		req.done(storage.FlushSlaveTimeout)
		return
	}
	// An acknowledgement that came before put did not see the request.
	if s.acked() >= req.end {
		s.notifyTransferSome()
	}
}

func (s *GroupTransferService) put(req replicaRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.requests)-s.head >= waitingReplicasMax {
		return false
	}
	s.makeRoomLocked()
	// Sends come in the order of the log but for a few that overtook each other.
	at := len(s.requests)
	for at > s.head && s.requests[at-1].end > req.end {
		at--
	}
	s.requests = slices.Insert(s.requests, at, req)
	s.waiting.Add(1)
	if req.deadline.Before(s.nextLook) {
		s.nextLook = req.deadline
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// makeRoomLocked moves what waits to the front of the array rather than let it grow.
func (s *GroupTransferService) makeRoomLocked() {
	if len(s.requests) < cap(s.requests) || s.head < len(s.requests)/2 {
		return
	}
	n := copy(s.requests, s.requests[s.head:])
	clear(s.requests[n:])
	s.requests, s.head = s.requests[:n], 0
}

// notifyTransferSome completes what the slaves' acknowledgements cover by now; any goroutine.
// Source: GroupTransferService#notifyTransferSome.
func (s *GroupTransferService) notifyTransferSome() {
	if s.waiting.Load() > 0 {
		s.complete(time.Time{}, s.acked())
	}
}

// complete ends every request that is covered and, unless now is zero, every one whose deadline has come. Deadlines are
// not in order (slaveTimeout changes at run time), so it looks at all.
func (s *GroupTransferService) complete(now time.Time, acked storage.PhyOffset) {
	s.mu.Lock()
	ended := s.spare
	s.spare = nil
	for ; s.head < len(s.requests) && s.requests[s.head].end <= acked; s.head++ {
		ended = append(ended, endedRequest{s.requests[s.head].done, storage.PutOK})
		s.requests[s.head] = replicaRequest{}
	}
	if !now.IsZero() {
		ended = s.expireLocked(now, ended)
	}
	if s.head == len(s.requests) {
		s.requests, s.head = s.requests[:0], 0
	}
	s.mu.Unlock()

	s.waiting.Add(int64(-len(ended)))
	if len(ended) > 0 {
		s.answeredAt.Store(latency.Now())
	}
	for _, e := range ended {
		e.done(e.status)
	}

	clear(ended)
	s.mu.Lock()
	s.spare = ended[:0]
	s.mu.Unlock()
}

// expireLocked takes out whose deadline is not after now, and sets when to look again.
func (s *GroupTransferService) expireLocked(now time.Time, ended []endedRequest) []endedRequest {
	next := now.Add(lookIdle)
	kept := s.requests[:s.head]
	for _, req := range s.requests[s.head:] {
		if !now.Before(req.deadline) {
			ended = append(ended, endedRequest{req.done, storage.FlushSlaveTimeout})
			continue
		}
		kept = append(kept, req)
		if req.deadline.Before(next) {
			next = req.deadline
		}
	}
	clear(s.requests[len(kept):])
	s.requests = kept
	s.nextLook = next
	if soonest := now.Add(lookInterval); next.Before(soonest) {
		s.nextLook = soonest
	}
	return ended
}

type endedRequest struct {
	done   func(storage.PutMessageStatus)
	status storage.PutMessageStatus
}

// endOfTime is later than any deadline.
var endOfTime = time.Unix(1<<40, 0)

func (s *GroupTransferService) run() {
	defer close(s.done)
	timer := time.NewTimer(lookIdle)
	defer timer.Stop()
	for {
		s.complete(time.Now(), s.acked())
		s.mu.Lock()
		timer.Reset(time.Until(s.nextLook))
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.stopped:
			s.complete(endOfTime, s.acked())
			return
		}
	}
}
