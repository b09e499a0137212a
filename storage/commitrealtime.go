// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync/atomic"
	"time"
)

// CommitRealTimeService writes the write buffers of the TransientStorePool to their files; only what it has written
// may be read, flushed or replicated. Settings are read anew each round. Source: CommitLog.CommitRealTimeService.
type CommitRealTimeService struct {
	log *CommitLog

	lastCommit atomic.Int64 // ms; of the last thorough round, or the end of the last that moved something

	asleep  atomic.Bool
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

func newCommitRealTimeService(log *CommitLog) *CommitRealTimeService {
	return &CommitRealTimeService{
		log:     log,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *CommitRealTimeService) start() { go s.run() }

// stop commits what is left; the flush service stops after it.
func (s *CommitRealTimeService) stop() {
	close(s.stopped)
	<-s.done
}

// leastPages decides what the round that begins now commits: everything when the last was long enough ago.
func (s *CommitRealTimeService) leastPages(now int64, c *Config) int {
	if !s.thorough(now, c) {
		return c.CommitCommitLogLeastPages
	}
	s.lastCommit.Store(now)
	return 0
}

func (s *CommitRealTimeService) thorough(now int64, c *Config) bool {
	return now >= s.lastCommit.Load()+c.CommitCommitLogThoroughInterval
}

func (s *CommitRealTimeService) run() {
	defer close(s.done)
	for {
		c := s.log.config()
		s.commit(s.leastPages(time.Now().UnixMilli(), c))
		if !s.waitForRunning(c) {
			break
		}
	}
	// Nothing may stay in the buffers, however many files that takes (Java: ten).
	for s.commit(0) {
	}
}

// commit is one round; it says whether something moved.
func (s *CommitRealTimeService) commit(leastPages int) (progressed bool) {
	progressed, err := s.log.commit(leastPages)
	if err != nil {
		s.log.latch(err)
	}
	if progressed {
		s.lastCommit.Store(time.Now().UnixMilli())
		s.log.committed()
	}
	return progressed
}

func (s *CommitRealTimeService) waitForRunning(c *Config) bool {
	s.asleep.Store(true)
	defer s.asleep.Store(false)
	s.wrote(time.Now().UnixMilli()) // what came before the store above did not wake us
	timer := time.NewTimer(millis(c.CommitIntervalCommitLog))
	defer timer.Stop()
	select {
	case <-s.wake:
	case <-timer.C:
	case <-s.stopped:
		return false
	}
	return true
}

// wrote is called after an append: it starts a round that would commit something.
func (s *CommitRealTimeService) wrote(now int64) {
	if !s.asleep.Load() {
		return
	}
	q, c := s.log.queue, s.log.config()
	committed, wrote := q.committedWhere.Load(), q.maxWrotePosition()
	if committed == wrote || s.log.flags.latched() { // a wake for nothing would repeat itself for ever
		return
	}
	enough := q.pagesBetween(committed, wrote) >= int64(c.CommitCommitLogLeastPages)
	if (enough || s.thorough(now, c)) && s.asleep.CompareAndSwap(true, false) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
