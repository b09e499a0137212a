// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"loopmq/storage/message"
)

// dispatcher enters records into queues and index. Recovery drives it, and after that ReputMessageService: one
// goroutine at a time. A dispatch that failed half-way can be repeated: queues and index know what they have.
// Source: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex.
type dispatcher struct {
	queues *consumeQueueStore
	index  *indexService
	config func() *Config
	logger *slog.Logger

	last       *ConsumeQueue // of the record before: the next one is often of the same queue
	mismatches int64
	warned     time.Time
}

// mismatchError says that a record cannot take the place in its queue that is written in it.
type mismatchError struct {
	topic   string
	queueID int32
	stored  QueueOffset // QUEUEOFFSET of the record
	next    QueueOffset // the queue's next offset
	record  PhyOffset
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("record at %d says it is message %d of queue %d of topic %q, whose next message is %d",
		e.record, e.stored, e.queueID, e.topic, e.next)
}

// dispatch enters one record. The error is a *mismatchError when queue and record disagree; nothing was entered then.
func (p *dispatcher) dispatch(d *dispatchRequest) (*ConsumeQueue, error) {
	q, prefix, err := p.dispatchToQueue(d)
	if err != nil {
		return nil, err
	}
	if p.config().MessageIndexEnable {
		if err := p.index.buildIndex(d, prefix); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// dispatchToQueue returns no queue for a record that takes no place in one.
func (p *dispatcher) dispatchToQueue(d *dispatchRequest) (q *ConsumeQueue, indexPrefix int32, err error) {
	if !d.inQueue() {
		return nil, message.ExtendJavaHash(message.JavaHash(d.Topic), []byte("#")), nil
	}
	for {
		q, err = p.queueOf(d)
		if err != nil {
			return nil, 0, err
		}
		if err = enter(q, d); !errors.Is(err, errQueueGone) {
			return q, q.indexPrefix, err
		}
		// Deleted with its topic since we looked; a message that is still in the log makes the queue again.
		p.last = nil
	}
}

func (p *dispatcher) queueOf(d *dispatchRequest) (*ConsumeQueue, error) {
	if q := p.last; q != nil && q.queueID == d.QueueID && q.topic == string(d.Topic) && !q.gone.Load() {
		return q, nil
	}
	q, err := p.queues.findOrCreate(d.Topic, d.QueueID)
	if err != nil {
		return nil, err
	}
	p.last = q
	return q, nil
}

// enter puts the record's unit at the place that is written in the record, and nowhere else.
func enter(q *ConsumeQueue, d *dispatchRequest) error {
	k, next := QueueOffset(d.QueueOffset), QueueOffset(q.maxOffset.Load())
	unit := ConsumeQueueUnit{Offset: d.offset(), Size: int32(d.Size), TagsCode: d.tagsCode}
	if k == next || k >= 0 && q.files.last() == nil {
		return q.put(k, unit)
	}
	if k >= 0 && k < next {
		if there, ok := q.unitAt(k); ok && there.Offset == unit.Offset && there.Size == unit.Size {
			return nil
		}
		if q.gone.Load() {
			return errQueueGone
		}
	}
	return &mismatchError{topic: q.topic, queueID: q.queueID, stored: k, next: next, record: d.offset()}
}

// settle ends a mismatch of a running store, which goes on serving. It says what to do with the record: enter it
// again, because the queue has been made ready for it, or leave it out of the queue.
func (p *dispatcher) settle(m *mismatchError) (again bool, err error) {
	q := p.queues.find(m.topic, m.queueID)
	if q == nil {
		return true, nil
	}
	minOffset, maxOffset := q.bounds()
	switch {
	case m.stored == 0 || m.stored > m.next && minOffset == maxOffset:
		// The topic was deleted and made again, or nothing is left of the queue before.
		p.logger.Warn("queue begins anew", "topic", m.topic, "queueId", m.queueID, "offset", m.stored, "was", m.next)
		p.last = nil
		_, err := p.queues.renew(q)
		return err == nil, err
	case m.stored > m.next:
		p.alarm("queue has a gap", m)
		for k := m.next; k < m.stored; k++ {
			if err := q.put(k, ConsumeQueueUnit{Size: blankUnitSize}); err != nil {
				return false, err
			}
		}
		return true, nil
	default:
		p.alarm("two messages for one place in a queue, the later one is not in it", m)
		return false, nil
	}
}

// alarm says so at most once a second; the count tells how many there were.
func (p *dispatcher) alarm(text string, err error) {
	p.mismatches++
	if now := time.Now(); now.Sub(p.warned) >= time.Second {
		p.warned = now
		p.logger.Error(text, "cause", err, "count", p.mismatches)
	}
}
