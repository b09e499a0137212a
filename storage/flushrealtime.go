// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync/atomic"
	"time"
)

// FlushRealTimeService flushes under ASYNC_FLUSH: every flushIntervalCommitLog what makes flushCommitLogLeastPages,
// every flushCommitLogThoroughInterval everything. Untimed (flushCommitLogTimed=false), a put that makes up the pages
// starts a round early. Settings are read anew each round. Source: CommitLog.FlushRealTimeService.
type FlushRealTimeService struct {
	log *CommitLog

	lastFlush time.Time // of the last thorough round

	asleep  atomic.Bool // in an untimed wait
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

func newFlushRealTimeService(log *CommitLog) *FlushRealTimeService {
	return &FlushRealTimeService{
		log:     log,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *FlushRealTimeService) start() { go s.run() }

// stop flushes what is left.
func (s *FlushRealTimeService) stop() {
	close(s.stopped)
	<-s.done
}

// leastPages decides, before the wait, what the round that begins now will flush. Only a thorough round moves
// lastFlush, so two of them lie the interval and one wait apart.
func (s *FlushRealTimeService) leastPages(now time.Time, c *Config) int {
	if now.Sub(s.lastFlush) < millis(c.FlushCommitLogThoroughInterval) {
		return c.FlushCommitLogLeastPages
	}
	s.lastFlush = now
	return 0
}

func (s *FlushRealTimeService) run() {
	defer close(s.done)
	for {
		c := s.log.config()
		pages := s.leastPages(time.Now(), c)
		if !s.waitForRunning(c) {
			break
		}
		if _, err := s.log.flush(pages); err != nil {
			s.log.latch(err)
		}
	}
	s.log.flushRest()
}

func (s *FlushRealTimeService) waitForRunning(c *Config) bool {
	wake := s.wake
	if c.FlushCommitLogTimed {
		wake = nil
	} else {
		s.asleep.Store(true)
		defer s.asleep.Store(false)
		s.wrote() // what came before the store above did not wake us
	}
	timer := time.NewTimer(millis(c.FlushIntervalCommitLog))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-s.stopped:
		return false
	}
	return true
}

// wrote is called after an append: an untimed wait ends when there are pages enough to flush.
func (s *FlushRealTimeService) wrote() {
	if !s.asleep.Load() || !s.log.remainsToFlush() { // a wake for nothing would repeat itself for ever
		return
	}
	q := s.log.queue
	if q.pagesBetween(q.flushedWhere.Load(), q.maxOffset()) >= int64(s.log.config().FlushCommitLogLeastPages) {
		s.wakeup()
	}
}

// wakeup ends an untimed wait. Source: ServiceThread#wakeup, as CommitRealTimeService uses it.
func (s *FlushRealTimeService) wakeup() {
	if s.asleep.CompareAndSwap(true, false) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
