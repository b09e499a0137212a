// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sort"

	"loopmq/storage/message"
)

// ErrNoMessage says that no record starts at the offset that was asked for.
var ErrNoMessage = errors.New("storage: no message there")

// LookMessageByOffset borrows the one record that starts at offset, after checking that one does.
// Source: DefaultMessageStore#lookMessageByOffset, which believes the offset.
func (s *MessageStore) LookMessageByOffset(offset PhyOffset) (sel SelectMappedBufferResult, err error) {
	defer func() {
		if errors.Is(err, ErrFault) {
			s.log.latch(err)
		}
	}()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	var d dispatchRequest
	return s.lookMessage(offset, &d)
}

// lookMessage also takes the record apart, into d.
func (s *MessageStore) lookMessage(offset PhyOffset, d *dispatchRequest) (SelectMappedBufferResult, error) {
	f := s.log.queue.find(int64(offset))
	if f == nil {
		return SelectMappedBufferResult{}, fmt.Errorf("offset %d: %w", offset, ErrNoMessage)
	}
	at := int64(offset) - f.base
	sel, ok := f.selectAt(at, f.size)
	if !ok {
		return SelectMappedBufferResult{}, fmt.Errorf("offset %d: %w", offset, ErrNoMessage)
	}
	size, state, why := checkMessage(sel.data, offset, f.size-at, false, &s.Config().DelayLevels, d)
	if state != recordGood {
		sel.Release()
		return SelectMappedBufferResult{}, fmt.Errorf("offset %d: %w: %w", offset, ErrNoMessage, errors.Join(why))
	}
	sel.data = sel.data[:size:size]
	return sel, nil
}

// storeTimeOf reads the store time of the record at offset.
func (s *MessageStore) storeTimeOf(offset PhyOffset) (int64, bool) {
	var d dispatchRequest
	sel, err := s.lookMessage(offset, &d)
	if err != nil {
		return 0, false
	}
	sel.Release()
	return d.StoreTimestamp, true
}

// MessageStoreTime is the store time of the message at a queue offset, -1 if there is none.
func (s *MessageStore) MessageStoreTime(topic string, queueID int32, offset QueueOffset) int64 {
	q := s.queues.find(topic, queueID)
	if q == nil {
		return -1
	}
	if ms, ok := s.unitTime(q, offset); ok {
		return ms
	}
	return -1
}

// unitTime is the store time of a queue's message.
func (s *MessageStore) unitTime(q *ConsumeQueue, offset QueueOffset) (ms int64, ok bool) {
	var fault error
	defer func() {
		if fault != nil {
			ok = false
			s.log.latch(fault)
		}
	}()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&fault)
	u, ok := q.unitAt(offset)
	if !ok || !u.isValid() || u.isBlank() {
		return 0, false
	}
	return s.storeTimeOf(u.Offset)
}

// EarliestMessageTime is the store time of the first message of the log, -1 if empty.
func (s *MessageStore) EarliestMessageTime() (ms int64) {
	var fault error
	defer func() {
		if fault != nil {
			ms = -1
			s.log.latch(fault)
		}
	}()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&fault)
	if ms, ok := s.storeTimeOf(s.MinPhyOffset()); ok {
		return ms
	}
	return -1
}

// OffsetByTime follows 5.x. Lower: the first message with a store time of at least ms; past the end, max. Upper: the
// last with a store time of at most ms; before the start, min. An unknown or empty queue has offset 0.
// Source: 5.x ConsumeQueue#getOffsetInQueueByTime.
func (s *MessageStore) OffsetByTime(topic string, queueID int32, ms int64, upper bool) QueueOffset {
	q := s.queues.find(topic, queueID)
	if q == nil {
		return 0
	}
	minOffset, maxOffset := q.bounds()
	if minOffset == maxOffset {
		return minOffset
	}
	if upper && ms < 1<<62 {
		ms++ // the one before the first that is later
	}
	// A message that retention takes away meanwhile counts as early.
	n := sort.Search(int(maxOffset-minOffset), func(i int) bool {
		at, ok := s.unitTime(q, minOffset+QueueOffset(i))
		return ok && at >= ms
	})
	first := minOffset + QueueOffset(n)
	if upper {
		return max(first-1, minOffset)
	}
	return first
}

// ConsumeQueueUnits calls f for up to max units from offset until f returns false; it returns how many f saw.
func (s *MessageStore) ConsumeQueueUnits(topic string, queueID int32, offset QueueOffset, max int, f func(QueueOffset, ConsumeQueueUnit) bool) (seen int) {
	q := s.queues.find(topic, queueID)
	if q == nil {
		return 0
	}
	for seen < max {
		n, more := q.visitUnits(offset+QueueOffset(seen), max-seen, f)
		seen += n
		if !more {
			return seen
		}
	}
	return seen
}

// visitUnits goes through the units of one file; more is false when f has enough or there are no more.
func (q *ConsumeQueue) visitUnits(offset QueueOffset, max int, f func(QueueOffset, ConsumeQueueUnit) bool) (seen int, more bool) {
	units, ok := q.selectUnits(offset)
	if !ok {
		return 0, false
	}
	defer units.Release()
	var fault error
	defer func() { more = more && fault == nil }()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&fault)
	for b := units.data; len(b) >= consumeQueueUnitSize && seen < max; b = b[consumeQueueUnitSize:] {
		seen++
		if !f(offset+QueueOffset(seen-1), decodeUnit(b)) {
			return seen, false
		}
	}
	return seen, seen > 0
}

// QueryMessageResult holds loans of the records found by key.
type QueryMessageResult struct {
	Buffers                  []SelectMappedBufferResult
	IndexLastUpdateTimestamp int64
	IndexLastUpdatePhyOffset PhyOffset
}

// Release gives all loans back.
func (r *QueryMessageResult) Release() {
	for i := range r.Buffers {
		r.Buffers[i].Release()
	}
	r.Buffers = nil
}

// queryBatch is how many entries of an index file are looked up at a time, between two looks at the records.
const queryBatch = 64

// QueryMessage looks a key up in the index, newest file first, and gives the records in the order of the log. Hash
// collisions, and entries that point at what is gone, are filtered by a look at the record.
// Source: DefaultMessageStore#queryMessage, IndexService#queryOffset.
func (s *MessageStore) QueryMessage(topic, key string, maxNum int, begin, end int64) *QueryMessageResult {
	q := &keyQuery{store: s, topic: topic, key: key, begin: begin, end: end, result: &QueryMessageResult{}}
	q.limit = min(maxNum, s.Config().MaxMsgsNumBatch)
	if err := q.run(); err != nil {
		q.result.Release()
		s.log.latch(err)
	}
	slices.SortFunc(q.result.Buffers, func(a, b SelectMappedBufferResult) int { return int(a.StartOffset - b.StartOffset) })
	return q.result
}

// keyQuery is one QueryMessage on its way.
type keyQuery struct {
	store      *MessageStore
	topic, key string
	begin, end int64
	limit      int
	result     *QueryMessageResult
}

func (q *keyQuery) run() (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	prefix := message.ExtendJavaHash(message.JavaHash([]byte(q.topic)), []byte("#"))
	hash := indexKeyHash(prefix, []byte(q.key))
	files := q.store.index.files()
	for i := len(files) - 1; i >= 0 && len(q.result.Buffers) < q.limit; i-- {
		h := files[i].head()
		if i == len(files)-1 {
			q.result.IndexLastUpdateTimestamp, q.result.IndexLastUpdatePhyOffset = h.endTimestamp, h.endPhyOffset
		}
		if h.covers(q.begin, q.end) {
			q.searchFile(files[i], hash)
		}
		if h.beginTimestamp < q.begin {
			break
		}
	}
	return nil
}

func (q *keyQuery) searchFile(x *IndexFile, hash int32) {
	var offsets []PhyOffset
	for from := int32(0); ; {
		var next int32
		offsets, next = x.find(offsets[:0], hash, q.begin, q.end, from, queryBatch)
		for _, offset := range offsets {
			if len(q.result.Buffers) >= q.limit {
				return
			}
			q.take(offset)
		}
		if next == 0 {
			return
		}
		from = next
	}
}

// take adds the record at offset if it is there and has the key.
func (q *keyQuery) take(offset PhyOffset) {
	for _, b := range q.result.Buffers {
		if b.StartOffset == offset { // entered twice, by a dispatch that was repeated
			return
		}
	}
	var d dispatchRequest
	sel, err := q.store.lookMessage(offset, &d)
	if err != nil {
		return
	}
	if string(d.Topic) != q.topic || d.StoreTimestamp < q.begin || d.StoreTimestamp > q.end || !d.hasKey(q.key) {
		sel.Release()
		return
	}
	q.result.Buffers = append(q.result.Buffers, sel)
}
