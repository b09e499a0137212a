// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"time"
)

// drainPoll is how often Drain looks.
const drainPoll = time.Millisecond

var errDrainTimeout = errors.New("the disk did not take all messages before the time for the stop was over")

// Drain takes no more puts and waits until those taken have ended, their flushes too. What still waits at the deadline,
// behind a disk that hangs, ends with ServiceNotAvailable: the store is latched, the abort file stays, and the next
// start looks closely. So an answer is always there while the caller can still send it. Close comes later.
func (s *MessageStore) Drain(deadline time.Time) {
	s.log.accepting.Store(false)
	// A put may be between its append and its flush request: nothing must wait twice in a row.
	for idle := 0; idle < 2; {
		if idle++; s.putsUnderWay() > 0 {
			idle = 0
		}
		if !time.Now().Before(deadline) && idle == 0 {
			s.log.latch(errDrainTimeout)
			return
		}
		time.Sleep(drainPoll)
	}
}

func (s *MessageStore) putsUnderWay() int64 {
	n := int64(s.log.appender.queue.length.Load())
	if g := s.log.groupCommitService; g != nil {
		n += g.waiting.Load()
	}
	return n
}
