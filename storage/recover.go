// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"loopmq/storage/message"
)

const (
	// recoverWorkers is how many queues are looked at at a time.
	recoverWorkers = 4
	// locateQueues bounds the queues that are asked where in the log a time lies.
	locateQueues = 32
	// sectorSize is what a disk writes whole.
	sectorSize = 512
	// validateBytes bounds what is checked once more in front of a restart point that the checkpoint names.
	validateBytes = 32 << 20
	// staleScan is how far behind the cut zeros must reach before the rest is taken to be zeros too.
	staleScan = 16 << 20
	// progressInterval is how often slow start-up work is reported.
	progressInterval = 500 * time.Millisecond
)

// recovery makes log, queues and index agree at the start, after a clean stop as after a crash: the log is cut at its
// first record that is not whole, queues and index hold exactly what the log holds.
//
// Two offsets govern it. Everything below dispatchFrom is durable and in queues and index: the checkpoint says so. From
// validateFrom on, which is some messages earlier, records are checked; those at or past dispatchFrom are
// dispatched again, to queues that were cut there before. When a record turns out to be missing in its queue, the
// checkpoint said too much, and the work begins anew from a lower dispatchFrom: the restart point is the lowest of what
// was really stored (apache/rocketmq#1434).
//
// Before anything durable is dropped, the checkpoint is lowered. So recovery may itself be cut off anywhere.
//
// Source: DefaultMessageStore#recover, CommitLog#recoverNormally, #recoverAbnormally.
type recovery struct {
	store  *MessageStore
	log    *MappedFileQueue
	config *Config
	clean  bool

	validateFrom PhyOffset
	dispatchFrom PhyOffset
	saved        PhyOffset // the restart point that the checkpoint names, -1 if it names none

	listed queueList // the queues of the last run

	request   dispatchRequest
	end       PhyOffset // where the log ends
	timestamp int64     // of the last record dispatched
	records   int64
	// blocked is the first record that could not be dispatched because the disk is full, -1 if there is none. It is
	// left to the dispatcher, which tries again; next holds the offsets of the queues of what follows.
	blocked PhyOffset
	next    map[topicQueue]QueueOffset
	tried   map[topicQueue]QueueOffset // queues whose missing records were looked for already, by their end

	began, reported time.Time
}

// restartError makes the walk begin anew.
type restartError struct {
	from  PhyOffset
	cause error
}

func (e *restartError) Error() string {
	return fmt.Sprintf("dispatch again from %d: %v", e.from, e.cause)
}

func (s *MessageStore) recover(clean bool) error {
	r := &recovery{
		store: s, log: s.log.queue, config: s.Config(), clean: clean,
		saved: -1, blocked: -1, tried: map[topicQueue]QueueOffset{}, began: time.Now(),
	}
	if !clean {
		if err := r.syncDirs(); err != nil {
			return err
		}
	}
	if len(r.log.files()) == 0 {
		return r.emptyLog()
	}
	if err := r.choose(); err != nil {
		return err
	}
	if err := r.walk(); err != nil {
		return err
	}
	if err := r.finish(); err != nil {
		return err
	}
	s.logger.Info("store recovered", "clean", clean, "from", r.validateFrom, "dispatchedFrom", r.dispatchFrom,
		"end", r.end, "records", r.records, "took", time.Since(r.began).Round(time.Millisecond))
	return nil
}

// emptyLog drops queues and index: they are of a log that is gone. Source: CommitLog#recoverNormally.
func (r *recovery) emptyLog() error {
	s := r.store
	queues := s.queues.all()
	if len(queues) > 0 {
		s.logger.Warn("the log is empty, queues and index of an earlier one are dropped", "queues", len(queues))
	}
	for topic := range s.queues.topicQueues() {
		if err := s.queues.deleteTopic(topic); err != nil {
			return err
		}
	}
	if _, err := s.index.remove(func(*IndexFile) bool { return true }); err != nil {
		return err
	}
	return s.log.setRecovered(0)
}

// repairIndex looks, after a crash, at the index files that the checkpoint does not cover, and drops what is not whole,
// or of records that are dispatched again. from is the offset from which keys are missing then.
func (r *recovery) repairIndex() (from PhyOffset, err error) {
	if r.clean {
		return r.dispatchFrom, nil
	}
	index := r.store.index
	first := r.firstUnsealed(index.files())
	for i, x := range index.files() {
		if i < first {
			continue
		}
		// Without blocks behind it the file cannot be stored into; what is missing is built again when there is room.
		err := x.ensureAllocated(x.entryAt(x.head().indexCount))
		if err == nil && !x.repair(r.dispatchFrom) {
			continue
		}
		kept := i + 1
		if err != nil {
			kept = i
		}
		if kept > 0 {
			from = index.files()[kept-1].head().endPhyOffset
		}
		r.store.logger.Warn("index file was not whole, its rest is built again", "file", x.file.path(), "from", from, "cause", err)
		return from, index.removeFrom(kept)
	}
	return r.dispatchFrom, nil
}

// firstUnsealed is the first index file that may not be whole on disk. When the checkpoint was written all files were
// sealed but the last, which had its entries synced and its slots not; that was the last one that begins before the
// restart point. Of a checkpoint that a Java broker wrote the time counts. The last file is never taken for sealed.
func (r *recovery) firstUnsealed(files []*IndexFile) int {
	restart, ok := r.store.checkpoint.restart()
	covered := r.store.checkpoint.times().index
	for i := len(files) - 2; i >= 0; i-- {
		h := files[i+1].head()
		switch {
		case h.indexCount <= 1: // its header may be lost
		case ok && h.beginPhyOffset < restart:
			return i + 1
		case !ok && files[i].head().endTimestamp < covered:
			return i + 1
		}
	}
	return 0
}

// choose sets validateFrom and dispatchFrom, and cuts the queues there.
func (r *recovery) choose() error {
	checkpoint := r.store.checkpoint
	withIndex := r.config.MessageIndexEnable && r.config.MessageIndexSafe
	stored := checkpoint.times().min(withIndex)
	if restart, ok := checkpoint.restart(); ok && r.isBoundary(restart) {
		// The times say the same, only less exactly: their three seconds may be gigabytes.
		r.saved, r.dispatchFrom = restart, restart
		r.validateFrom = r.locate(stored, restart-validateBytes)
	} else {
		r.validateFrom = r.locate(stored, 0)
		r.dispatchFrom = r.validateFrom
	}
	if len(r.store.queues.all()) == 0 {
		r.dispatchFrom = PhyOffset(r.log.minOffset())
	}
	if err := r.cutAtGaps(); err != nil {
		return err
	}
	indexFrom, err := r.repairIndex()
	if err != nil {
		return err
	}
	r.dispatchFrom = min(r.dispatchFrom, max(indexFrom, PhyOffset(r.log.minOffset())))
	r.validateFrom = min(r.validateFrom, r.dispatchFrom)
	if err := r.cutQueues(); err != nil {
		return err
	}
	return r.findLostQueues()
}

// findLostQueues compares the queues with those that the last run listed. What is not in the log either is not found
// again; then at least their numbers go on.
func (r *recovery) findLostQueues() error {
	if r.saved < 0 { // a Java broker wrote last
		return r.store.dropQueueList()
	}
	r.listed = r.store.loadQueueList()
	from := r.listed.lostBelow(r.dispatchFrom, PhyOffset(r.log.minOffset()), r.store)
	if from == r.dispatchFrom {
		return nil
	}
	r.dispatchFrom = from
	r.validateFrom = min(r.validateFrom, from)
	return r.cutQueues()
}

// cutAtGaps deals with queues that miss a file in the middle.
func (r *recovery) cutAtGaps() error {
	for _, q := range r.store.queues.all() {
		from, gap := q.gap()
		if !gap {
			continue
		}
		r.store.logger.Warn("queue files are missing, they are built again", "topic", q.topic, "queueId", q.queueID, "from", from)
		r.dispatchFrom = min(r.dispatchFrom, max(from, PhyOffset(r.log.minOffset())))
		if err := r.lowerCheckpoint(r.dispatchFrom); err != nil {
			return err
		}
		if err := q.cutAtGap(); err != nil {
			return err
		}
	}
	return nil
}

// isBoundary says whether a record, a filler, or nothing at all begins at offset.
func (r *recovery) isBoundary(offset PhyOffset) bool {
	f := r.log.find(int64(offset))
	if f == nil {
		last := r.log.last()
		return last != nil && int64(offset) == last.end()
	}
	size, magic, ok := message.Peek(f.bytes()[int64(offset)-f.base:])
	switch magic {
	case message.MagicV1, message.MagicV2, message.MagicBlank:
		return ok
	}
	return ok && size == 0 && magic == 0
}

// check takes the record at offset apart, whatever the file's positions say.
func (r *recovery) check(offset PhyOffset, checkCRC bool) (size int64, state recordState, why error) {
	f := r.log.find(int64(offset))
	if f == nil {
		return 0, recordBad, fmt.Errorf("%w: no file", message.ErrMalformed)
	}
	at := int64(offset) - f.base
	return checkMessage(f.bytes()[at:], offset, f.size-at, checkCRC, &r.config.DelayLevels, &r.request)
}

// locate is the first record at or past floor that was stored later than ms: all before it were stored by then, or lie
// below floor. It begins at the newest file whose first record is one of those, as
// CommitLog#isMappedFileMatchedRecover does, and lets the queues lead it near.
func (r *recovery) locate(ms int64, floor PhyOffset) PhyOffset {
	files := r.log.files()
	at := PhyOffset(files[0].base)
	for i := len(files) - 1; i > 0; i-- {
		if _, state, _ := r.check(PhyOffset(files[i].base), false); state == recordGood && r.isSettled(ms, floor) {
			at = PhyOffset(files[i].base)
			break
		}
	}
	at = max(at, r.nearest(ms, floor))
	for {
		size, state, _ := r.check(at, false)
		switch {
		case state == recordGood && !r.isSettled(ms, floor), state == recordPartial, state == recordBad:
			return at
		}
		at += PhyOffset(size)
	}
}

// isSettled says that the record just checked was stored by ms or lies below floor.
func (r *recovery) isSettled(ms int64, floor PhyOffset) bool {
	return r.request.StoreTimestamp <= ms || r.request.offset() < floor
}

// nearest is the last record of some queues that is settled.
func (r *recovery) nearest(ms int64, floor PhyOffset) (offset PhyOffset) {
	queues := r.store.queues.all()
	for _, q := range queues[:min(len(queues), locateQueues)] {
		q.search(func(u ConsumeQueueUnit) bool {
			if !u.isValid() {
				return false
			}
			if u.isBlank() || u.Offset < PhyOffset(r.log.minOffset()) {
				return true
			}
			_, state, _ := r.check(u.Offset, false)
			if state != recordGood || !r.isSettled(ms, floor) {
				return false
			}
			offset = max(offset, u.Offset)
			return true
		})
	}
	return offset
}

// cutQueues makes every queue, and the index, end with its last record below dispatchFrom. The checkpoint goes down
// first.
func (r *recovery) cutQueues() error {
	if err := r.lowerCheckpoint(r.dispatchFrom); err != nil {
		return err
	}
	if err := r.cutIndex(r.dispatchFrom); err != nil {
		return err
	}
	return forEach(recoverWorkers, r.store.queues.all(), func(q *ConsumeQueue) error {
		if q.files.first() != nil {
			if err := q.setEnd(r.endBelow(q, r.dispatchFrom)); err != nil {
				return err
			}
			q.correctMinOffset(PhyOffset(r.log.minOffset()))
		}
		if last := q.files.last(); r.clean || last != nil && last.flushedPosition.Load() > 0 {
			return nil
		}
		return errors.Join(r.store.fs.SyncDir(q.files.dir), r.store.fs.SyncDir(filepath.Dir(q.files.dir)))
	})
}

// syncDirs makes durable, after a crash, the names that a run made and was killed before it could sync: the files
// behind them are used from now on as if they were. Queues are left out that have units which the checkpoint vouches
// for, because it was written after their directories were synced.
func (r *recovery) syncDirs() error {
	root := r.config.StorePathRootDir
	var errs []error
	for _, dir := range []string{root, r.config.StorePathCommitLog, r.store.queues.dir, r.store.index.dir} {
		errs = append(errs, syncNames(r.store.fs, dir))
	}
	return errors.Join(errs...)
}

// endBelow is the end of q when only records below limit count. A queue that an earlier cut left without zeroing its
// tail, as Java does, may hold stale units there: the last unit must be the one that the log says.
func (r *recovery) endBelow(q *ConsumeQueue, limit PhyOffset) QueueOffset {
	base := QueueOffset(q.files.first().base / consumeQueueUnitSize)
	n := q.search(func(u ConsumeQueueUnit) bool {
		return u.isValid() && (u.isBlank() || u.Offset < limit)
	})
	own := recovery{log: r.log, config: r.config} // queues are looked at in parallel
	for ; n > 0; n-- {
		u, ok := q.rawUnit(n - 1)
		if !ok || u.isBlank() || u.Offset < PhyOffset(r.log.minOffset()) {
			break
		}
		if _, state, _ := own.check(u.Offset, false); state == recordGood && own.request.isMessage(q, base+QueueOffset(n-1)) {
			break
		}
	}
	return base + QueueOffset(n)
}

func (d *dispatchRequest) isMessage(q *ConsumeQueue, k QueueOffset) bool {
	return d.QueueID == q.queueID && QueueOffset(d.QueueOffset) == k && string(d.Topic) == q.topic
}

// lowerCheckpoint makes the checkpoint promise no more than what lies below limit.
func (r *recovery) lowerCheckpoint(limit PhyOffset) error {
	if r.saved < 0 || limit >= r.saved {
		return nil
	}
	times := r.store.checkpoint.times()
	if _, state, _ := r.check(limit, false); state == recordGood {
		times.physic = min(times.physic, r.request.StoreTimestamp)
		times.logics = min(times.logics, r.request.StoreTimestamp)
	}
	if err := r.store.checkpoint.save(times, limit); err != nil {
		return fmt.Errorf("lower checkpoint: %w", err)
	}
	r.saved = limit
	r.store.flushQueue.times = times
	return nil
}

// walk checks the log from validateFrom to its end and dispatches from dispatchFrom on, as often as it takes.
func (r *recovery) walk() error {
	for {
		err := r.walkOnce()
		restart := (*restartError)(nil)
		if !errors.As(err, &restart) {
			return err
		}
		if restart.from >= r.dispatchFrom {
			panic(fmt.Sprintf("BUG: recovery from %d wants to begin anew at %d", r.dispatchFrom, restart.from))
		}
		r.store.logger.Warn("queues have less than the checkpoint says", "from", restart.from, "cause", restart.cause)
		r.dispatchFrom = restart.from
		r.validateFrom = min(r.validateFrom, restart.from)
		if err := r.cutQueues(); err != nil {
			return err
		}
	}
}

func (r *recovery) walkOnce() error {
	r.blocked, r.next, r.records = -1, map[topicQueue]QueueOffset{}, 0
	filler := PhyOffset(-1)
	for r.end = r.validateFrom; ; {
		size, state, why := r.check(r.end, r.config.CheckCRCOnRecover)
		switch state {
		case recordPartial, recordBad:
			if filler >= 0 && r.end > r.dispatchFrom && !r.clean && r.config.Role == Slave && r.nothingAt(r.end) {
				// The head of the filler is there; whether the rest of it came from the master, nobody knows.
				r.end = filler
				return nil
			}
			return r.endAt(why)
		case recordBlank:
			filler = r.end
		case recordGood:
			if r.torn() {
				return r.endAt(fmt.Errorf("%w: a sector of its topic or properties is zeros", message.ErrMalformed))
			}
			if err := r.visit(); err != nil {
				return err
			}
			r.records++
			r.timestamp = r.request.StoreTimestamp
			filler = -1
		}
		r.end += PhyOffset(size)
		r.report()
	}
}

// torn says that a sector in the topic or the properties of the record at end never reached the disk. BODYCRC covers
// the body alone, and a length may be on disk without what it counts. Only behind the checkpoint, after a crash.
func (r *recovery) torn() bool {
	if r.clean || r.end < r.dispatchFrom {
		return false
	}
	d := &r.request
	f := r.log.find(int64(r.end))
	end := int64(d.end()) - f.base
	properties := end - int64(len(d.Properties))
	topic := properties - 2 - int64(len(d.Topic))
	return hasZeroSector(f.bytes(), topic, properties-2) || hasZeroSector(f.bytes(), properties, end) || r.isPiece()
}

// isPiece says that the record at end is the log's last and lacks its last bytes: a slave's log ends inside a record
// when its link does, and what is missing reads as zeros. Bytes that are zeros anyway are not missed.
func (r *recovery) isPiece() bool {
	if !r.nothingAt(r.request.end()) {
		return false
	}
	last := r.request.Properties
	if len(last) == 0 {
		last = r.request.Topic
	}
	return len(last) > 0 && last[len(last)-1] == 0
}

// hasZeroSector says whether b[from:to] is all zeros in one of the sectors it lies in.
func hasZeroSector(b []byte, from, to int64) bool {
	for from < to {
		next := min(from-from%sectorSize+sectorSize, to)
		if len(bytes.TrimLeft(b[from:next], "\x00")) == 0 {
			return true
		}
		from = next
	}
	return false
}

// endAt is called where no record is. Bytes that are not zero there, or files behind, are messages that are lost.
func (r *recovery) endAt(why error) error {
	f, last := r.log.find(int64(r.end)), r.log.last()
	if f == nil {
		if int64(r.end) < last.base {
			return fmt.Errorf("log files from %d to %d are missing", r.end, last.base)
		}
		return nil
	}
	if r.nothingBehind(f) {
		if r.nothingAt(r.end) {
			return nil
		}
		if r.config.Role == Slave {
			r.store.logger.Info("the log ends inside a record, the piece is cut and comes again from the master", "offset", r.end)
			return nil
		}
	}
	r.store.logger.Error("the log is cut at the first record that is not whole",
		"file", f.path(), "offset", r.end, "filesBehind", (last.base-f.base)/f.size, "cause", why)
	return nil
}

// nothingAt says that the log has never been at offset, or was cut there.
func (r *recovery) nothingAt(offset PhyOffset) bool {
	f := r.log.find(int64(offset))
	if f == nil {
		return true
	}
	size, magic, ok := message.Peek(f.bytes()[int64(offset)-f.base:])
	return ok && size == 0 && magic == 0
}

// nothingBehind says that the files behind f, made ahead of need, were never written to.
func (r *recovery) nothingBehind(f *MappedFile) bool {
	for _, later := range r.log.files() {
		if later.base > f.base && !r.nothingAt(PhyOffset(later.base)) {
			return false
		}
	}
	return true
}

// visit is called for each whole record.
func (r *recovery) visit() error {
	d := &r.request
	if d.offset() < r.dispatchFrom {
		return r.expectDispatched(d)
	}
	if r.blocked >= 0 {
		r.note(d)
		return nil
	}
	err := r.dispatch(d)
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoSuchQueue) {
		r.store.logger.Warn("record cannot be in a queue", "offset", d.offset(), "cause", err)
		return nil
	}
	mismatch, restart := (*mismatchError)(nil), (*restartError)(nil)
	if errors.As(err, &mismatch) || errors.As(err, &restart) || isFinal(err) {
		return err
	}
	// No room for a queue file: what is there can still be read.
	r.store.logger.Error("queues cannot be built, dispatch goes on when they can", "offset", d.offset(), "cause", err)
	r.blocked = d.offset()
	r.note(d)
	return nil
}

// note remembers the queue offset that a record which is not dispatched yet has taken.
func (r *recovery) note(d *dispatchRequest) {
	if d.inQueue() {
		r.next[topicQueue{string(d.Topic), d.QueueID}] = QueueOffset(d.QueueOffset) + 1
	}
}

// expectDispatched asks the queue for a record that must be in it. One that has a later record in the place was made
// anew. A queue that is not there may have been deleted with its topic, or lost; then it is built from here on, so that
// its messages are not numbered from 0 again.
func (r *recovery) expectDispatched(d *dispatchRequest) error {
	if !d.inQueue() || !isQueueName(d.Topic, d.QueueID) {
		return nil
	}
	k := QueueOffset(d.QueueOffset)
	if q := r.store.queues.find(string(d.Topic), d.QueueID); q != nil {
		if _, maxOffset := q.bounds(); k < maxOffset {
			return nil
		}
	}
	return &restartError{from: d.offset(), cause: fmt.Errorf("message %d of queue %d of topic %q is missing", k, d.QueueID, d.Topic)}
}

// dispatch enters a record and settles with its queue where that is certain to be right; otherwise the start ends with
// the error (apache/rocketmq#467).
func (r *recovery) dispatch(d *dispatchRequest) error {
	for {
		_, err := r.store.dispatcher.dispatch(d)
		if err == nil {
			return nil
		}
		mismatch := (*mismatchError)(nil)
		if !errors.As(err, &mismatch) {
			return err
		}
		q := r.store.queues.find(mismatch.topic, mismatch.queueID)
		if q == nil {
			continue
		}
		minOffset, maxOffset := q.bounds()
		switch {
		case mismatch.stored == 0 || minOffset == maxOffset:
			// The topic was deleted and made again, or nothing is left of the queue before: blanks at most, from when it
			// began at a later record.
			r.store.dispatcher.last = nil
			if _, err := r.store.queues.renew(q); err != nil {
				return err
			}
		case mismatch.stored > maxOffset:
			return r.lookForMissing(q, mismatch)
		default:
			return mismatch
		}
	}
}

// lookForMissing begins anew behind the last record that the queue has, once for each end of a queue.
func (r *recovery) lookForMissing(q *ConsumeQueue, mismatch *mismatchError) error {
	key := topicQueue{q.topic, q.queueID}
	last, ok := q.lastUnit()
	if tried, again := r.tried[key]; !ok || again && tried == mismatch.next {
		return mismatch
	}
	r.tried[key] = mismatch.next
	from := last.Offset + PhyOffset(last.Size)
	if from >= r.dispatchFrom {
		return mismatch
	}
	return &restartError{from: from, cause: mismatch}
}

// finish cuts log, queues and index at the end, and hands over to the services.
func (r *recovery) finish() error {
	s := r.store
	if r.end < r.dispatchFrom {
		r.dispatchFrom = r.end
		if err := r.cutQueues(); err != nil {
			return err
		}
	}
	if err := r.cutIndex(r.end); err != nil {
		return err
	}
	if err := s.log.setRecovered(r.end); err != nil {
		return err
	}
	if err := r.clearStale(); err != nil {
		return err
	}
	if !r.clean {
		r.markUnflushed()
	}
	err := forEach(recoverWorkers, s.queues.all(), func(q *ConsumeQueue) error {
		q.correctMinOffset(PhyOffset(r.log.minOffset()))
		q.resample()
		return nil
	})
	for _, q := range s.queues.all() {
		_, next := q.bounds()
		s.log.setNextQueueOffset(q.topic, q.queueID, next)
	}
	for q, next := range r.next {
		s.log.setNextQueueOffset(q.topic, q.queueID, next)
	}
	if err := r.numberLostQueues(); err != nil {
		return err
	}
	mark := dispatchMark{offset: r.end, timestamp: r.timestamp}
	if r.blocked >= 0 {
		mark.offset = r.blocked
	}
	if mark.timestamp == 0 {
		mark.timestamp = s.checkpoint.times().logics
	}
	s.reput.begin(mark)
	s.findOpenHalfMessages()
	return err
}

// numberLostQueues lets queues whose messages the log does not hold either go on where they were.
func (r *recovery) numberLostQueues() error {
	if r.listed.End > r.end {
		return r.store.dropQueueList() // the log was cut: numbers behind the cut are given out again
	}
	for _, listed := range []queueOffsets{r.listed.Lost, r.listed.Queues} {
		for topic, queues := range listed {
			for id, next := range queues {
				if r.store.queues.find(topic, id) == nil {
					r.store.log.setNextQueueOffset(topic, id, next)
					r.store.lostQueues.Store(topicQueue{topic, id}, next)
				}
			}
		}
	}
	return nil
}

// cutIndex drops the entries of records at or past limit. At the end of the log, because the records that come there
// next would count as entered already; at dispatchFrom, because entries that no checkpoint vouches for may be of an
// earlier history of the same offsets, which a power cut brought back: the cut that dropped them was not synced.
func (r *recovery) cutIndex(limit PhyOffset) error {
	index := r.store.index
	files := index.files()
	kept := len(files)
	for kept > 1 && (files[kept-1].head().beginPhyOffset >= limit || files[kept-1].head().indexCount <= 1) {
		kept-- // an empty file may be one whose header was lost, and hides the one before
	}
	if err := index.removeFrom(kept); err != nil {
		return err
	}
	if last := index.last(); last != nil && last.head().endPhyOffset >= limit {
		if err := last.ensureAllocated(last.entryAt(last.head().indexCount)); err != nil {
			return err
		}
		last.repair(limit)
	}
	return nil
}

// clearStale zeroes what lies behind the end of the log, on disk. The appender marks its end as it goes; this is for the
// case that a later power cut loses just the mark, or a page of the newest record, and old bytes come back in its place.
// After a crash zeros in memory say nothing of the disk: whoever zeroed was perhaps killed before the sync.
func (r *recovery) clearStale() error {
	f := r.log.find(int64(r.end))
	if f == nil {
		return nil
	}
	at := int64(r.end) - f.base
	if !clearUntilZeros(f.bytes()[at:]) && r.clean {
		return nil
	}
	return f.region.Sync(at, f.size)
}

// clearUntilZeros ends where staleScan bytes are zeros, and says whether any was not.
func clearUntilZeros(b []byte) (cleared bool) {
	for zeros := 0; len(b) > 0 && zeros < staleScan; {
		n := min(len(b), osPageSize)
		zeros += n
		if !allZeros(b[:n]) {
			clear(b[:n])
			zeros, cleared = 0, true
		}
		b = b[n:]
	}
	return cleared
}

// markUnflushed leaves to the flush service what the checkpoint does not vouch for: after a kill the bytes are in the
// page cache, and nobody has synced them.
func (r *recovery) markUnflushed() {
	durable := int64(min(r.dispatchFrom, r.end))
	for _, f := range r.log.files() {
		if f.base+f.flushedPosition.Load() > durable {
			f.flushedPosition.Store(max(0, durable-f.base))
		}
	}
	r.log.flushedWhere.Store(durable)
}

// report tells the listener how far a start is that takes its time.
func (r *recovery) report() {
	if r.records%1024 != 0 || r.store.listener.Progress == nil {
		return
	}
	now := time.Now()
	if now.Sub(r.began) < 2*progressInterval || now.Sub(r.reported) < progressInterval {
		return
	}
	r.reported = now
	r.store.listener.Progress("recovery", int64(r.end-r.validateFrom), r.log.last().end()-int64(r.validateFrom))
}
