// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"time"
)

// drainPoll is how often Drain looks.
const drainPoll = time.Millisecond

var errDrainTimeout = errors.New("the disk did not take all messages before the time for the stop was over")

// Drain takes no more puts and waits until those taken have ended, their flushes too, and their makers were told. What
// still waits at the deadline, behind a disk that hangs, ends with ServiceNotAvailable: the store is latched, the abort
// file stays, and the next start looks closely. So an answer is always there while the caller can still send it. Close
// comes later.
func (s *MessageStore) Drain(deadline time.Time) {
	s.log.accepting.Store(false)
	for s.log.underWay() {
		if !time.Now().Before(deadline) {
			s.log.latch(errDrainTimeout)
			return
		}
		time.Sleep(drainPoll)
	}
}

// underWay says whether a put that was taken has not ended. It looks in the order in which a put moves on, and each
// stage takes it over before the one before lets go, so none slips by.
func (l *CommitLog) underWay() bool {
	if l.appender.queue.length.Load() > 0 || l.telling.Load() > 0 {
		return true
	}
	return l.groupCommitService != nil && l.groupCommitService.waiting.Load() > 0
}
