// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"loopmq/storage/message"
)

// truncateLoanWait bounds how long a cut waits for those who read the last file before it zeroes bytes there.
const truncateLoanWait = time.Second

var errNoBoundary = errors.New("no record begins there")

// TruncateTo makes offset, the start of a record, the end of a slave's log, and goes on: log, queues, index, the next
// offsets of queues, flushed position and checkpoint are then as if nothing behind offset had ever been here. 0 empties
// the log, which may begin anew at any file. Only the log's writer calls it, between two AppendToCommitLog.
//
// When it returns, the cut is on disk. A crash before that leaves the log whole or cut: the old records end the moment
// the first of them is zeroed on disk, and all that follows only clears up. After an error the store is read-only,
// unless offset is none of a record: then nothing was changed.
//
// A consumer that had read behind offset meets a queue whose end, and perhaps beginning, went back: its pulls are beyond
// the end until the queue is as far again, and a message that it has consumed may have another in its place. A pull
// under way gets MESSAGE_WAS_REMOVING, or, if it holds its records for longer than truncateLoanWait, damaged bytes.
func (s *MessageStore) TruncateTo(offset PhyOffset) error {
	switch {
	case s.log.role != Slave:
		return errNotSlave
	case !s.log.accepting.Load():
		return errClosing
	case s.flags.latched():
		return s.flags.refusal()
	}
	// Everybody who writes to files stands still: log, clean-up, flush of the queues, flush of the log, dispatch.
	return s.log.appender.withRole(func() error {
		s.cleaner.running.Lock()
		defer s.cleaner.running.Unlock()
		s.flushQueue.mu.Lock()
		defer s.flushQueue.mu.Unlock()
		s.log.flushing.Lock()
		defer s.log.flushing.Unlock()
		s.reput.pause()
		defer s.reput.resume()
		return s.truncate(offset)
	})
}

func (s *MessageStore) truncate(offset PhyOffset) (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	if s.log.queue.last() == nil {
		if offset == 0 {
			return nil
		}
		return fmt.Errorf("cut an empty log at %d: %w", offset, errNoBoundary)
	}
	c := &truncation{store: s, log: s.log.queue, cut: max(offset, s.MinPhyOffset())}
	if err := c.check(offset); err != nil {
		return err
	}
	if c.cut == c.before && offset != 0 {
		return nil
	}
	if err := c.run(offset == 0); err != nil {
		err = fmt.Errorf("cut the log at %d: %w", offset, err)
		s.log.latch(err)
		return err
	}
	s.logger.Warn("log cut", "offset", offset, "bytes", c.before-c.cut)
	return nil
}

// truncation is one TruncateTo on its way.
type truncation struct {
	store       *MessageStore
	log         *MappedFileQueue
	cut, before PhyOffset // the end to be, and the end that was
}

// check says whether a record, a filler, or nothing any more, begins at the cut.
func (c *truncation) check(offset PhyOffset) (err error) {
	defer catchFault(&err)
	c.before = c.store.MaxPhyOffset()
	if offset != 0 && offset < c.store.MinPhyOffset() || c.cut > c.before {
		return fmt.Errorf("cut a log from %d to %d at %d: %w", c.store.MinPhyOffset(), c.before, offset, errNoBoundary)
	}
	if c.cut == c.before {
		return nil
	}
	at := c.cut - c.cut%PhyOffset(c.log.fileSize)
	for f := c.log.find(int64(at)); at < c.cut; {
		size, magic, _ := message.Peek(f.bytes()[int64(at)-f.base:])
		if size < message.BlankSize || magic != message.MagicV1 && magic != message.MagicV2 && magic != message.MagicBlank {
			return fmt.Errorf("cut the log at %d: damaged at %d: %w", c.cut, at, errNoBoundary)
		}
		at += PhyOffset(size)
	}
	if at != c.cut {
		return fmt.Errorf("cut the log at %d, inside a record: %w", c.cut, errNoBoundary)
	}
	return nil
}

// run is the cut, in the order that a crash may interrupt anywhere: what vouches for the old end goes first, then the
// first old record on disk, then the rest.
func (c *truncation) run(all bool) (err error) {
	defer catchFault(&err)
	s := c.store
	ends := make(map[*ConsumeQueue]QueueOffset)
	look := recovery{store: s, log: c.log, config: s.Config()}
	for _, q := range s.queues.all() {
		if q.files.first() != nil {
			ends[q] = look.endBelow(q, c.cut)
		}
	}
	if err := c.lowerCheckpoint(); err != nil {
		return err
	}
	// The list of queues says how far they went; it must not outlive the messages.
	if err := s.writeQueueList(queueList{}); err != nil {
		return err
	}
	s.reput.cutAt(c.cut)
	s.dispatcher.last = nil
	removed := c.lowerPositions()
	if err := c.markEnd(); err != nil {
		return err
	}
	// From here on a restart finds the log cut.
	err = errors.Join(retireAll(removed), s.fs.SyncDir(c.log.dir), c.clearRest(), c.cutQueues(ends), c.cutIndex())
	if err == nil && all {
		err = c.empty()
	}
	if err == nil {
		err = s.saveQueueList()
	}
	c.handOver()
	return err
}

// lowerCheckpoint makes the checkpoint promise no more than what lies below the cut. Without a restart point, as a Java
// broker leaves it, the log is dispatched anew after a crash.
func (c *truncation) lowerCheckpoint() error {
	s := c.store
	times := s.checkpoint.times()
	restart, ok := s.checkpoint.restart()
	if !ok {
		restart = s.MinPhyOffset()
	}
	restart = min(restart, c.cut)
	look := recovery{store: s, log: c.log, config: s.Config()}
	if _, state, _ := look.check(restart, false); state == recordGood {
		times.physic = min(times.physic, look.request.StoreTimestamp)
		times.logics = min(times.logics, look.request.StoreTimestamp)
	}
	if err := s.checkpoint.save(times, restart); err != nil {
		return fmt.Errorf("lower checkpoint: %w", err)
	}
	f := s.flushQueue
	f.times, f.saved, f.pending, f.looked = times, dispatchMark{offset: restart, timestamp: times.logics}, dispatchMark{}, dispatchMark{}
	return nil
}

// lowerPositions ends the log at the cut for everybody who looks from now on, and returns the files that go.
func (c *truncation) lowerPositions() (removed []*MappedFile) {
	removed = c.log.remove(func(f *MappedFile) bool { return f.base > int64(c.cut) })
	if f := c.log.last(); f != nil && f.end() > int64(c.cut) {
		position := int64(c.cut) - f.base
		f.wrotePosition.Store(position)
		f.committedPosition.Store(position)
		f.flushedPosition.Store(min(position, f.flushedPosition.Load()))
	}
	c.log.flushedWhere.Store(min(int64(c.cut), c.log.flushedWhere.Load()))
	c.log.committedWhere.Store(int64(c.cut))
	return removed
}

// markEnd zeroes the head of the first record that goes, on disk. A record without size and magic code is none, however
// the disk tears the write.
func (c *truncation) markEnd() error {
	f := c.log.last()
	rest := c.rest(f)
	if len(rest) == 0 {
		return nil
	}
	c.waitForLoans(f)
	endMark(rest)
	at := int64(c.cut) - f.base
	return f.region.Sync(at, at+blankReserve)
}

// rest is what the last file holds behind the cut.
func (c *truncation) rest(f *MappedFile) []byte {
	if f == nil || f.end() <= int64(c.cut) {
		return nil
	}
	return f.bytes()[int64(c.cut)-f.base:]
}

// waitForLoans gives pulls that have records of the file in their hands the time to send them.
func (c *truncation) waitForLoans(f *MappedFile) {
	for deadline := time.Now().Add(truncateLoanWait); f.held() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// clearRest zeroes all bytes behind the cut, on disk: a later power cut that takes the newest appended bytes with it
// must not bring these back.
func (c *truncation) clearRest() error {
	f := c.log.last()
	rest := c.rest(f)
	if len(rest) == 0 {
		return nil
	}
	at := int64(c.cut) - f.base
	clearFrom(f.region, at)
	return f.region.Sync(at, f.size)
}

// cutQueues ends every queue where the log says, on disk.
func (c *truncation) cutQueues(ends map[*ConsumeQueue]QueueOffset) error {
	queues := make([]*ConsumeQueue, 0, len(ends))
	for q, end := range ends {
		if _, maxOffset := q.bounds(); end < maxOffset {
			queues = append(queues, q)
		}
	}
	return forEach(recoverWorkers, queues, func(q *ConsumeQueue) (err error) {
		defer restoreFaults(debug.SetPanicOnFault(true))
		defer catchFault(&err)
		q.mu.Lock() // against deletion of the topic
		defer q.mu.Unlock()
		if q.gone.Load() {
			return nil
		}
		return c.cutQueue(q, ends[q])
	})
}

func (c *truncation) cutQueue(q *ConsumeQueue, end QueueOffset) error {
	flushed := q.files.flushedWhere.Load()
	if err := q.setEnd(end); err != nil {
		return err
	}
	if last := q.files.last(); last != nil {
		// setEnd counts what stays as flushed, as it is when a store is opened.
		q.files.flushedWhere.Store(min(flushed, q.files.flushedWhere.Load()))
		last.flushedPosition.Store(min(last.flushedPosition.Load(), max(0, flushed-last.base)))
		if err := last.region.Sync(last.wrotePosition.Load(), last.size); err != nil {
			return err
		}
	}
	q.minOffset.Store(0)
	q.correctMinOffset(c.store.MinPhyOffset())
	q.resample()
	return c.store.fs.SyncDir(q.files.dir)
}

// cutIndex drops the entries of records that went, on disk.
func (c *truncation) cutIndex() error {
	index := c.store.index
	files := index.files()
	kept := len(files)
	for kept > 0 && files[kept-1].head().beginPhyOffset >= c.cut {
		kept--
	}
	if err := index.removeFrom(kept); err != nil {
		return err
	}
	last := index.last()
	if last == nil || last.head().endPhyOffset < c.cut {
		return nil
	}
	if err := last.cutAt(c.cut); err != nil {
		return err
	}
	return c.store.fs.SyncDir(index.dir)
}

// cutAt drops the entries at or past limit, on disk.
func (x *IndexFile) cutAt(limit PhyOffset) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.repair(limit)
	x.synced, x.sealed = 0, false
	return x.file.region.Sync(0, x.file.size)
}

// empty drops what a log that begins anew, perhaps elsewhere, must not find: the last file, and all queues and index
// files, as recovery of an empty log does.
func (c *truncation) empty() error {
	s := c.store
	var errs []error
	s.log.allocator.forget()
	errs = append(errs, c.log.destroy(), s.fs.SyncDir(c.log.dir))
	for topic := range s.queues.topicQueues() {
		errs = append(errs, s.queues.deleteTopic(topic))
	}
	_, err := s.index.remove(func(*IndexFile) bool { return true })
	s.reput.cutAt(0)
	s.flushQueue.saved, s.flushQueue.times = dispatchMark{}, checkpointTimes{}
	s.cleaner.cleanedTo = 0
	return errors.Join(append(errs, err, s.checkpoint.save(checkpointTimes{}, 0))...)
}

// handOver tells the writer where it is, and readers.
func (c *truncation) handOver() {
	s := c.store
	a := s.log.appender
	a.last = c.log.last()
	if a.last != nil {
		s.log.allocator.request(a.nextBase())
	}
	clear(a.topicQueueTable)
	for _, q := range s.queues.all() {
		_, next := q.bounds()
		a.topicQueueTable[topicQueue{q.topic, q.queueID}] = &next
	}
	s.log.readable()
}

// pause waits until dispatch stands still between two records, and keeps it there until resume.
func (s *ReputMessageService) pause() {
	s.paused.Store(true)
	s.round.Lock()
}

func (s *ReputMessageService) resume() {
	s.paused.Store(false)
	s.round.Unlock()
}

// cutAt goes back to offset, if dispatch has been further; while it is paused.
func (s *ReputMessageService) cutAt(offset PhyOffset) {
	s.offset.Store(min(s.offset.Load(), int64(offset)))
	if m := s.marked(); m.offset > offset {
		m.offset = offset
		s.setMark(m)
	}
}

// forget gives up the file that nobody will need.
func (s *AllocateMappedFileService) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantLocked(-1)
}
