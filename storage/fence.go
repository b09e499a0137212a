// SPDX-License-Identifier: Apache-2.0

package storage

import "errors"

var errFenced = errors.New("this master may have lost the end of its log and waits for slaves to bring it back; haTailTimeout bounds the wait, 0 ends it")

// Fence makes a master refuse puts, while AppendToCommitLog takes raw log bytes as on a slave: the end of its log may be
// lost here and held by a slave. It comes before the first put; before Start where there is a transient pool, which a
// fenced start does without. Source: RunningFlags, bit FENCED of 5.x.
func (s *MessageStore) Fence() { s.flags.set(fencedBit) }

// Unfence lets a master take puts, once what was appended is dispatched; false: not yet. The next offsets of queues are
// then those behind the last message of each.
func (s *MessageStore) Unfence() (done bool) {
	a := s.log.appender
	_ = a.withRole(func() error {
		if s.DispatchBehindBytes() > 0 && !s.flags.latched() {
			return nil
		}
		for _, q := range s.queues.all() {
			_, end := q.bounds()
			at := topicQueue{q.topic, q.queueID}
			if next := a.topicQueueTable[at]; next == nil || *next < end {
				a.topicQueueTable[at] = &end
			}
		}
		s.flags.clear(fencedBit)
		done = true
		return nil
	})
	return done
}
