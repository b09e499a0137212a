// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync"
	"sync/atomic"
)

// PutMessage is one append, single or batch, on its way through the appender. It belongs to its maker until
// AsyncPutMessage(s) takes it and again from Appended on; makers pool it. The store never keeps Record after Appended.
type PutMessage struct {
	// Record is one encoded record, or MsgNum of them back to back, with queue offset, physical offset and store
	// timestamp blank. The appender fills them in, then copies or writes the whole into the file.
	Record  []byte
	MsgNum  int32
	Topic   string
	QueueID int32
	// NoQueueOffset is set for records that take no place in a queue (transaction prepared and rollback).
	NoQueueOffset bool

	// Appended runs once, on whoever appended or expired the put. It must not block.
	Appended func(put *PutMessage, status PutMessageStatus)
	// Inline is true while Appended runs inside the AsyncPutMessages call that brought this put.
	Inline bool

	// Results, valid in Appended when status is PutOK.
	WroteOffset    PhyOffset
	WroteBytes     int64
	QueueOffset    QueueOffset // of the first record
	StoreTimestamp int64
	// When the store was given the put, when the writer's role was had for it, and when it was appended: latency.Now.
	// Puts that are appended together share the last two.
	TakenAt, LockedAt, AppendedAt int64
	// Cause says more about a refusal: the latched error for ServiceNotAvailable, how long it waited and how long the queue was for QueueTimeout.
	Cause error

	status   PutMessageStatus // between append and Appended
	queuedAt int64            // ms; 0 if it never was in the queue
	next     *PutMessage
}

// End is the offset just behind the record: what a flush or a slave must reach.
func (p *PutMessage) End() PhyOffset { return p.WroteOffset + PhyOffset(p.WroteBytes) }

// finish gives the put back to its maker.
func (p *PutMessage) finish() { p.Appended(p, p.status) }

// fail ends a put that was not appended.
func (p *PutMessage) fail(status PutMessageStatus, cause error) {
	p.status, p.Cause = status, cause
	p.finish()
}

// putQueue holds puts that could not be appended at once, oldest first. Whoever takes a put out of it ends it, so each
// put ends once: the holder of the appender's role takes them one by one to append them, the sweeper takes those that
// waited too long, and a latched or closing store takes all.
type putQueue struct {
	length atomic.Int32 // changed under mu, read without it

	mu         sync.Mutex // guards what follows; nothing blocks under it
	head, tail *PutMessage
	refused    error // set: nothing is queued any more
}

// push queues puts in order, as many as limit allows.
func (q *putQueue) push(puts []*PutMessage, now int64, limit int) (n int, status PutMessageStatus) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused != nil {
		return 0, ServiceNotAvailable
	}
	room := max(limit-int(q.length.Load()), 0)
	for _, put := range puts[:min(room, len(puts))] {
		put.queuedAt, put.next, put.Inline = now, nil, false
		if q.tail == nil {
			q.head = put
		} else {
			q.tail.next = put
		}
		q.tail = put
		n++
	}
	q.length.Add(int32(n))
	if n < len(puts) {
		return n, QueueFull
	}
	return n, PutOK
}

// popIfFits takes the oldest put out if its record has at most room bytes.
func (q *putQueue) popIfFits(room int64) *PutMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == nil || int64(len(q.head.Record)) > room {
		return nil
	}
	return q.popLocked()
}

func (q *putQueue) popLocked() *PutMessage {
	put := q.head
	q.head, put.next = put.next, nil
	if q.head == nil {
		q.tail = nil
	}
	q.length.Add(-1)
	return put
}

// popExpired takes out a chain of the puts queued at or before limit, and tells how many puts there were.
func (q *putQueue) popExpired(limit int64) (chain *PutMessage, length int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	length = int(q.length.Load())
	if q.head == nil || q.head.queuedAt > limit {
		return nil, length
	}
	chain = q.head
	last, n := chain, 1
	for last.next != nil && last.next.queuedAt <= limit {
		last = last.next
		n++
	}
	q.head, last.next = last.next, nil
	if q.head == nil {
		q.tail = nil
	}
	q.length.Add(int32(-n))
	return chain, length
}

// refuse stops the queue.
func (q *putQueue) refuse(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = cause
}

// popAll takes out the chain of all puts.
func (q *putQueue) popAll() *PutMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	chain := q.head
	q.head, q.tail = nil, nil
	q.length.Store(0)
	return chain
}

// headWait is how long the oldest put has waited, in ms.
func (q *putQueue) headWait(now int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == nil {
		return 0
	}
	return max(now-q.head.queuedAt, 0)
}

// failChain ends a chain of puts that were not appended, and counts them.
func failChain(chain *PutMessage, status PutMessageStatus, cause error) (n int) {
	for chain != nil {
		put := chain
		chain, put.next = put.next, nil // finish gives put away
		put.fail(status, cause)
		n++
	}
	return n
}
