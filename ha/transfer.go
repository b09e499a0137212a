// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage"
)

// waitingReplicasMax bounds sends that wait for a slave; at it a send ends with FlushSlaveTimeout, which is true:
// stored here, and not known to be anywhere else.
const waitingReplicasMax = 200_000

// sweepInterval is how often deadlines are looked at while somebody waits.
const sweepInterval = 10 * time.Millisecond

// replicaRequest is a send that waits until enough slaves hold all bytes below end. Source: CommitLog.GroupCommitRequest.
type replicaRequest struct {
	end      storage.PhyOffset
	deadline time.Time
	done     func(storage.PutMessageStatus)
}

// GroupTransferService holds the sends that wait for slaves. An acknowledgement completes all that it covers where it
// arrives, on the connection's loop; the service's own goroutine is for deadlines only. Every request ends at one of two
// things: the slaves that are connected now hold its bytes, or its own deadline passed (apache/rocketmq#1535, #3484).
type GroupTransferService struct {
	// acked is the offset below which enough slaves hold everything.
	acked func() storage.PhyOffset

	waiting atomic.Int64
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}

	mu       sync.Mutex // guards the fields below; nothing blocks under it
	requests []replicaRequest
	closed   bool
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
	if s.put(req) {
		// An acknowledgement that came before put did not see the request.
		if s.acked() >= req.end {
			s.notifyTransferSome()
		}
		return
	}
	req.done(storage.FlushSlaveTimeout)
}

func (s *GroupTransferService) put(req replicaRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.requests) >= waitingReplicasMax {
		return false
	}
	s.requests = append(s.requests, req)
	if s.waiting.Add(1) == 1 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// notifyTransferSome completes what the slaves' acknowledgements cover by now; any goroutine.
// Source: GroupTransferService#notifyTransferSome.
func (s *GroupTransferService) notifyTransferSome() {
	if s.waiting.Load() > 0 {
		s.complete(time.Time{}, s.acked())
	}
}

// complete ends every request that is covered, or whose deadline is not after now. Deadlines are not in order
// (slaveTimeout changes at run time), so it looks at all.
func (s *GroupTransferService) complete(now time.Time, acked storage.PhyOffset) {
	var ended []endedRequest
	s.mu.Lock()
	kept := s.requests[:0]
	for _, req := range s.requests {
		switch {
		case req.end <= acked:
			ended = append(ended, endedRequest{req.done, storage.PutOK})
		case !now.IsZero() && !now.Before(req.deadline):
			ended = append(ended, endedRequest{req.done, storage.FlushSlaveTimeout})
		default:
			kept = append(kept, req)
		}
	}
	clear(s.requests[len(kept):])
	s.requests = kept
	s.mu.Unlock()
	s.waiting.Add(int64(-len(ended)))
	for _, e := range ended {
		e.done(e.status)
	}
}

type endedRequest struct {
	done   func(storage.PutMessageStatus)
	status storage.PutMessageStatus
}

func (s *GroupTransferService) run() {
	defer close(s.done)
	timer := time.NewTimer(sweepInterval)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if s.waiting.Load() > 0 {
			timer.Reset(sweepInterval)
			tick = timer.C
		}
		select {
		case <-s.wake:
		case <-tick:
			s.complete(time.Now(), s.acked())
		case <-s.stopped:
			s.complete(time.Unix(1<<40, 0), s.acked())
			return
		}
	}
}
