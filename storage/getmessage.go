// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"runtime/debug"
	"sync"

	"loopmq/storage/latency"
)

// filterBytesMax is how many bytes of a queue one pull looks through, when its maxMsgNums asks for no more.
// Source: DefaultMessageStore#getMessage (maxFilterMessageCount), MessageStoreConfig#maxFilterMessageSize.
const filterBytesMax = 16_000

// MessageFilter decides what a pull gets. MatchConsumeQueue sees the tags code alone; MatchCommitLog, asked after it,
// sees the record (nil filter: all).
type MessageFilter interface {
	MatchConsumeQueue(tagsCode int64) bool
	MatchCommitLog(record []byte) bool
}

// GetMessageStatus is the inner outcome of a pull. Source: GetMessageStatus.
type GetMessageStatus int32

const (
	Found GetMessageStatus = iota
	NoMatchedMessage
	MessageWasRemoving
	OffsetFoundNull
	OffsetOverflowBadly
	OffsetOverflowOne
	OffsetTooSmall
	NoMatchedLogicQueue
	NoMessageInQueue
)

// GetMessageResult holds loans: the caller calls Release once.
type GetMessageResult struct {
	Status                  GetMessageStatus
	NextBeginOffset         QueueOffset
	MinOffset, MaxOffset    QueueOffset
	Buffers                 []SelectMappedBufferResult // adjacent records may share one
	BufferTotalSize         int
	MsgCount                int
	SuggestPullingFromSlave bool
	// Err is the fault that ended the pull, which then has found nothing.
	Err error
}

// Release gives all loans back; safe to call twice.
func (r *GetMessageResult) Release() {
	for i := range r.Buffers {
		r.Buffers[i].Release()
	}
	r.Buffers = r.Buffers[:0]
}

func (r *GetMessageResult) reset() {
	r.Release()
	*r = GetMessageResult{Buffers: r.Buffers}
}

// add lends one more record. One that lies just behind the last loan makes that one longer.
func (r *GetMessageResult) add(sel SelectMappedBufferResult) {
	r.BufferTotalSize += len(sel.data)
	r.MsgCount++
	if n := len(r.Buffers); n > 0 {
		last := &r.Buffers[n-1]
		if last.file == sel.file && last.StartOffset+PhyOffset(len(last.data)) == sel.StartOffset {
			from := int64(last.StartOffset) - last.file.base
			to := from + int64(len(last.data)+len(sel.data))
			last.data = last.file.data[from:to:to]
			sel.Release()
			return
		}
	}
	r.Buffers = append(r.Buffers, sel)
}

// GetMessage reads up to maxMsgNums messages of a queue from offset. result is reused if not nil; it must hold no loans
// that somebody still reads. Source: DefaultMessageStore#getMessage.
func (s *MessageStore) GetMessage(topic string, queueID int32, offset QueueOffset, maxMsgNums int, filter MessageFilter, result *GetMessageResult) *GetMessageResult {
	if result == nil {
		result = &GetMessageResult{}
	}
	s.pull(pull{offset: offset, maxMsgNums: maxMsgNums, filter: filter, result: result}, topic, queueID)
	return result
}

// GetResident is GetMessage for a caller who must not wait for the disk. It is false, with nothing in result, when some
// page that it would touch, or whoever is lent the records, is not in memory.
func (s *MessageStore) GetResident(topic string, queueID int32, offset QueueOffset, maxMsgNums int, filter MessageFilter, result *GetMessageResult) bool {
	return s.pull(pull{offset: offset, maxMsgNums: maxMsgNums, filter: filter, result: result, residentOnly: true}, topic, queueID)
}

func (s *MessageStore) pull(what pull, topic string, queueID int32) (all bool) {
	result := what.result
	result.reset()
	p := pulls.Get().(*pull)
	*p = what
	p.store, p.config, p.queue = s, s.Config(), s.queues.find(topic, queueID)
	if err := p.run(); err != nil {
		result.reset()
		result.Status, result.NextBeginOffset, result.Err = NoMatchedMessage, p.offset, err
		s.log.latch(err)
	}
	all = !p.absent
	*p = pull{}
	pulls.Put(p)
	if !all {
		result.reset()
		return false
	}
	s.countPull(result)
	return true
}

var pulls = sync.Pool{New: func() any { return new(pull) }}

// pull is one GetMessage on its way.
type pull struct {
	store      *MessageStore
	config     *Config
	queue      *ConsumeQueue // nil if there is none
	offset     QueueOffset
	maxMsgNums int
	filter     MessageFilter
	result     *GetMessageResult

	residentOnly bool
	absent       bool // something is not in memory, and nothing more is read
}

func (p *pull) run() (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	if p.queue == nil {
		p.end(NoMatchedLogicQueue, 0)
		return nil
	}
	r := p.result
	r.MinOffset, r.MaxOffset = p.queue.bounds()
	switch {
	case r.MaxOffset == 0:
		p.end(NoMessageInQueue, 0)
	case p.offset < r.MinOffset:
		p.end(OffsetTooSmall, r.MinOffset)
	case p.offset == r.MaxOffset:
		p.end(OffsetOverflowOne, p.offset)
	case p.offset > r.MaxOffset:
		p.end(OffsetOverflowBadly, r.MaxOffset)
	default:
		p.read()
	}
	return nil
}

// end answers without messages. A slave that may be behind its master corrects no offset.
// Source: DefaultMessageStore#nextOffsetCorrection.
func (p *pull) end(status GetMessageStatus, corrected QueueOffset) {
	p.result.Status, p.result.NextBeginOffset = status, p.offset
	if p.config.Role != Slave || p.config.OffsetCheckInSlave {
		p.result.NextBeginOffset = corrected
	}
}

// read goes through the queue's units from the offset on, in one file of the queue.
func (p *pull) read() {
	units, ok := p.queue.selectUnits(p.offset)
	if !ok {
		p.end(OffsetFoundNull, p.queue.rollNextFile(p.offset))
		return
	}
	defer units.Release()
	r := p.result
	r.Status = NoMatchedMessage
	maxPhy := p.store.log.maxOffset()
	memory := p.store.memoryShare(p.config)
	limit := min(len(units.data), max(filterBytesMax, p.maxMsgNums*consumeQueueUnitSize))
	now := int64(0)
	if p.residentOnly {
		now = latency.Now()
		if p.absent = !units.isResident(limit, now); p.absent {
			return
		}
	}
	scanned := 0
	var last, skipBelow PhyOffset // of the records scanned; while a removed log file is passed over
	for ; scanned+consumeQueueUnitSize <= limit; scanned += consumeQueueUnitSize {
		u := decodeUnit(units.data[scanned:])
		last = u.Offset
		if u.Offset < skipBelow {
			continue
		}
		onDisk := int64(maxPhy-u.Offset) > memory
		if p.isFull(int(u.Size), onDisk) {
			break
		}
		if p.filter != nil && !p.filter.MatchConsumeQueue(u.TagsCode) {
			p.passOver(NoMatchedMessage)
			continue
		}
		sel, ok := p.store.selectRecord(u)
		if !ok {
			p.passOver(MessageWasRemoving)
			skipBelow = p.store.rollNextFile(u.Offset)
			continue
		}
		if p.residentOnly && !sel.isResident(len(sel.data), now) {
			sel.Release()
			p.absent = true
			return
		}
		if p.filter != nil && !p.filter.MatchCommitLog(sel.data) {
			p.passOver(NoMatchedMessage)
			sel.Release()
			continue
		}
		r.add(sel)
		r.Status = Found
		skipBelow = 0
	}
	r.NextBeginOffset = p.offset + QueueOffset(scanned/consumeQueueUnitSize)
	r.SuggestPullingFromSlave = int64(maxPhy-last) > memory
}

// passOver is the status while nothing was found.
func (p *pull) passOver(status GetMessageStatus) {
	if p.result.MsgCount == 0 {
		p.result.Status = status
	}
}

// isFull says that the next record of size does not go into the answer. The first always does.
// Source: DefaultMessageStore#isTheBatchFull.
func (p *pull) isFull(size int, onDisk bool) bool {
	r, c := p.result, p.config
	if r.MsgCount == 0 {
		return false
	}
	bytesMax, countMax := c.MaxTransferBytesInMemory, c.MaxTransferCountInMemory
	if onDisk {
		bytesMax, countMax = c.MaxTransferBytesOnDisk, c.MaxTransferCountOnDisk
	}
	return r.MsgCount >= p.maxMsgNums || r.MsgCount >= countMax || r.BufferTotalSize+size > bytesMax
}

// selectRecord borrows the record a unit points to, false if it is not there.
func (s *MessageStore) selectRecord(u ConsumeQueueUnit) (SelectMappedBufferResult, bool) {
	if u.isBlank() || !u.isValid() {
		return SelectMappedBufferResult{}, false
	}
	sel, ok := s.log.selectAt(u.Offset, int(u.Size))
	if ok && len(sel.data) < int(u.Size) {
		sel.Release()
		return SelectMappedBufferResult{}, false
	}
	return sel, ok
}

// rollNextFile is the base of the log file behind the one that holds offset. Source: CommitLog#rollNextFile.
func (s *MessageStore) rollNextFile(offset PhyOffset) PhyOffset {
	size := PhyOffset(s.log.queue.fileSize)
	return offset + size - offset%size
}

// memoryShare is how far behind the log's end records count as in memory. Source: DefaultMessageStore#checkInDiskByCommitOffset.
func (s *MessageStore) memoryShare(c *Config) int64 {
	return int64(float64(s.physicalMemory) * float64(c.AccessMessageInMemoryMaxRatio) / 100)
}

// IsCold says whether a pull at this queue offset would touch records beyond the in-memory share, from memory alone:
// the caller wants to know before it may fault. It is an estimate between samples of the queue.
func (s *MessageStore) IsCold(topic string, queueID int32, offset QueueOffset) bool {
	q := s.queues.find(topic, queueID)
	if q == nil {
		return false
	}
	minOffset, maxOffset := q.bounds()
	if offset < minOffset || offset >= maxOffset {
		return false // answered without a look at the log
	}
	phy, ok := q.estimate(offset)
	return ok && int64(s.log.maxOffset()-phy) > s.memoryShare(s.Config())
}

// QueueOffsets are the bounds of a queue; ok is false when there is none.
func (s *MessageStore) QueueOffsets(topic string, queueID int32) (min, max QueueOffset, ok bool) {
	q := s.queues.find(topic, queueID)
	if q == nil {
		return 0, 0, false
	}
	min, max = q.bounds()
	return min, max, true
}

func (s *MessageStore) countPull(r *GetMessageResult) {
	if r.Status == Found {
		s.counters.getFound.Add(1)
		s.counters.getTransferred.Add(int64(r.MsgCount))
	} else {
		s.counters.getMiss.Add(1)
	}
}
