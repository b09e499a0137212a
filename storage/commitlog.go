// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/latency"
	"loopmq/storage/vfs"
)

// slowDisk is when a flush or commit is logged.
const slowDisk = 500 * time.Millisecond

// CommitLog is the log of records over a queue of mapped files, with the appender that writes it and the services that
// flush it. Life cycle: newCommitLog loads the files; recovery reads them through queue and says with setRecovered
// where the log ends; start begins the services; stop ends them in order; close gives the mappings back.
type CommitLog struct {
	queue    *MappedFileQueue
	config   func() *Config
	listener EventListener
	flags    *RunningFlags
	logger   *slog.Logger

	// wakeReput is called after bytes became readable, by whoever made them so, on the hot path: it must be cheap, and
	// wake nobody who is awake. Set before start.
	wakeReput func()

	role      Role
	flushType FlushDiskType

	appender  *appender
	allocator *AllocateMappedFileService
	populator *populateService
	sweeper   *sweeper
	pool      *TransientStorePool // nil: not in effect
	// Exactly one of these flushes.
	groupCommitService   *GroupCommitService   // SYNC_FLUSH
	flushRealTimeService *FlushRealTimeService // ASYNC_FLUSH
	commitService        *CommitRealTimeService

	flushing  sync.Mutex  // held for a flush, and while a slave's log is cut
	accepting atomic.Bool // started and not stopping
	// unflushedSince is when the oldest byte that is not durable was appended, or earlier: by latency.Now. It means
	// something while there is such a byte.
	unflushedSince atomic.Int64
	// telling counts the calls that may hold puts which are in no queue and whose makers are not told yet: zero, with an
	// empty queue and nobody waiting for a flush, means that everything taken has ended. See Drain.
	telling  atomic.Int64
	counters logCounters
}

// logCounters feed Stats.
type logCounters struct {
	putMessageTimes, putMessageSize, putMessageFailed atomic.Int64
	putMessageEntireTimeMax                           atomic.Int64 // ms, from queued to appended
	appendInline, appendQueued, appendExpired         atomic.Int64
	flushErrors                                       atomic.Int64
	filesRolled                                       atomic.Int64
	flushTimes                                        latency.Histogram
}

func (c *logCounters) count(puts []*PutMessage, now int64) {
	var messages, bytes, failed, slowest int64
	for _, put := range puts {
		if put.status != PutOK {
			failed++
			continue
		}
		messages += int64(put.MsgNum)
		bytes += put.WroteBytes
		if put.queuedAt != 0 {
			slowest = max(slowest, now-put.queuedAt)
			put.queuedAt = 0
		}
	}
	c.putMessageTimes.Add(messages)
	c.putMessageSize.Add(bytes)
	if failed > 0 {
		c.putMessageFailed.Add(failed)
	}
	if slowest > c.putMessageEntireTimeMax.Load() {
		c.putMessageEntireTimeMax.Store(slowest)
	}
}

// newCommitLog loads the files of dir. Settings that only act at the start are taken from config now.
func newCommitLog(fsys vfs.FS, dir string, config func() *Config, flags *RunningFlags, listener EventListener,
	logger *slog.Logger) (*CommitLog, error) {

	c := config()
	queue, err := openMappedFileQueue(fsys, dir, c.MappedFileSizeCommitLog, logger)
	if err != nil {
		return nil, err
	}
	queue.syncBeyond = blankReserve // the end mark behind the last record
	l := &CommitLog{
		queue: queue, config: config, flags: flags, listener: listener, logger: logger,
		wakeReput: func() {},
		role:      c.Role, flushType: c.FlushDiskType,
	}
	window := func() int64 { return min(l.config().PopulateWindow, queue.fileSize) }
	l.appender = newAppender(l)
	l.allocator = newAllocateMappedFileService(queue)
	l.allocator.fastFail = func() bool { return l.config().FastFailIfNoBufferInStorePool }
	l.populator = newPopulateService(queue, window, l.flushType == SyncFlush, l.latch)
	l.allocator.populate = l.populator.populate
	l.sweeper = newSweeper(l.sweep)
	if l.flushType == SyncFlush {
		l.groupCommitService = newGroupCommitService(l)
	} else {
		l.flushRealTimeService = newFlushRealTimeService(l)
	}
	return l, nil
}

// setRecovered cuts the log at end, behind its last good record, and takes what is left as durable. Before start.
func (l *CommitLog) setRecovered(end PhyOffset) error {
	err := l.queue.truncate(int64(end))
	f := l.queue.last()
	if f == nil {
		l.queue.setPositions(0)
		return err
	}
	l.queue.setPositions(int64(end))
	// A good record that was cut off must not come back at the next start.
	if rest := f.data[f.wrotePosition.Load():]; len(rest) >= blankReserve && binary.BigEndian.Uint64(rest) != 0 {
		endMark(rest)
	}
	return err
}

// start begins the services. A master takes puts from now on, a slave appendData.
func (l *CommitLog) start() error {
	c := l.config()
	if err := l.openPool(c); err != nil {
		return err
	}
	l.appender.last = l.queue.last()
	// A full disk is no reason not to serve what is there: the appender tries again.
	if err := l.appender.allocateLast(); err != nil {
		l.logger.Error("the last commitlog file has no room", "cause", err)
	}
	l.allocator.start()
	if l.role != Slave || l.appender.last != nil {
		l.allocator.request(l.appender.nextBase())
	}
	l.populator.start()
	l.sweeper.start()
	if l.commitService != nil {
		l.commitService.start()
	}
	if l.groupCommitService != nil {
		l.groupCommitService.start()
	} else {
		l.flushRealTimeService.start()
	}
	l.appender.start()
	l.accepting.Store(true)
	return nil
}

// openPool follows MessageStoreConfig#isTransientStorePoolEnable of 4.9: the pool is for ASYNC_FLUSH on a master.
func (l *CommitLog) openPool(c *Config) (err error) {
	if !c.TransientStorePoolEnable {
		return nil
	}
	if l.flags.isSet(fencedBit) {
		l.logger.Info("transientStorePoolEnable has no effect until the next start: this master may take the end of its log from a slave")
		return nil
	}
	if l.flushType != AsyncFlush || l.role == Slave {
		l.logger.Info("transientStorePoolEnable has no effect: it needs flushDiskType=ASYNC_FLUSH and a master")
		return nil
	}
	l.pool, err = newTransientStorePool(c.TransientStorePoolSize, l.queue.fileSize, l.logger)
	if err != nil {
		return err
	}
	l.allocator.pool = l.pool
	l.queue.commits = true
	l.commitService = newCommitRealTimeService(l)
	return nil
}

// stop refuses new puts, appends the queued ones, commits and flushes what is left, and ends all waiters.
func (l *CommitLog) stop() {
	l.accepting.Store(false)
	l.appender.stop()
	if l.commitService != nil {
		l.commitService.stop() // before the last flush: all must have left the write buffers
	}
	if l.groupCommitService != nil {
		l.groupCommitService.stop()
	} else {
		l.flushRealTimeService.stop()
	}
	l.sweeper.stop()
	l.populator.stop()
	l.allocator.stop()
}

// close gives the mappings back; those still lent stay mapped, and it says how many.
func (l *CommitLog) close() (held int) {
	held = l.queue.close()
	if l.pool != nil {
		l.pool.destroy()
	}
	return held
}

// minOffset is the first byte of the log.
func (l *CommitLog) minOffset() PhyOffset { return PhyOffset(l.queue.minOffset()) }

// maxOffset is the end of readable bytes: of appended ones, with the transient pool of committed ones.
func (l *CommitLog) maxOffset() PhyOffset { return PhyOffset(l.queue.maxOffset()) }

// selectAt borrows up to max readable bytes from offset to the end of its file.
func (l *CommitLog) selectAt(offset PhyOffset, max int) (SelectMappedBufferResult, bool) {
	f := l.queue.find(int64(offset))
	if f == nil {
		return SelectMappedBufferResult{}, false
	}
	return f.selectAt(int64(offset)-f.base, int64(max))
}

// setNextQueueOffset sets the offset that the queue's next message gets. Before start recovery fills the table with it.
func (l *CommitLog) setNextQueueOffset(topic string, queueID int32, next QueueOffset) {
	_ = l.appender.withRole(func() error {
		l.appender.topicQueueTable[topicQueue{topic, queueID}] = &next
		return nil
	})
}

// nextQueueOffset is the offset that the queue's next message gets, 0 for a queue without one.
func (l *CommitLog) nextQueueOffset(topic string, queueID int32) (next QueueOffset) {
	_ = l.appender.withRole(func() error {
		if p := l.appender.topicQueueTable[topicQueue{topic, queueID}]; p != nil {
			next = *p
		}
		return nil
	})
	return next
}

// removeTopic forgets the offsets of a topic's queues, also while puts arrive: those appended later begin at 0.
func (l *CommitLog) removeTopic(topic string) {
	_ = l.appender.withRole(func() error {
		for q := range l.appender.topicQueueTable {
			if q.topic == topic {
				delete(l.appender.topicQueueTable, q)
			}
		}
		return nil
	})
}

// asyncPutMessages is AsyncPutMessages of the store.
func (l *CommitLog) asyncPutMessages(puts []*PutMessage) (n int, status PutMessageStatus) {
	if len(puts) == 0 {
		return 0, PutOK
	}
	l.telling.Add(1)
	defer l.telling.Add(-1)
	now := time.Now()
	if status, _ := l.denied(now.UnixMilli()); status != PutOK {
		return 0, status
	}
	return l.appender.put(puts, now)
}

// denied says why a put would be refused now. The order is Java's: closing, role, flags, then what passes by itself.
func (l *CommitLog) denied(now int64) (PutMessageStatus, error) {
	switch {
	case !l.accepting.Load():
		return ServiceNotAvailable, errClosing
	case l.role == Slave:
		return ServiceNotAvailable, errSlave
	case !l.flags.isWriteable():
		return ServiceNotAvailable, l.flags.refusal()
	}
	c := l.config()
	if r := l.appender.refusing.Load(); r != nil && now-r.since < refuseInterval.Milliseconds() {
		return ServiceNotAvailable, r.cause
	}
	if l.groupCommitService != nil && l.groupCommitService.waiting.Load() >= int64(c.MaxWaitingPuts) {
		return QueueFull, errWaitingPuts
	}
	if l.lockTime(now) > c.OSPageCacheBusyTimeOutMills {
		return OSPageCacheBusy, errPageCacheBusy
	}
	if l.appender.queue.length.Load() >= int32(c.SendThreadPoolQueueCapacity) {
		return QueueFull, errQueueFull
	}
	if l.pool != nil && l.pool.deficient() {
		return QueueFull, errNoFreeBuffer
	}
	return PutOK, nil
}

var (
	errSlave         = errors.New("a slave takes no messages from producers")
	errWaitingPuts   = errors.New("too many messages wait for the disk (maxWaitingPuts); slow stage: flush")
	errPageCacheBusy = errors.New("an append has run for longer than osPageCacheBusyTimeOutMills; slow stage: append")
	errQueueFull     = errors.New("too many messages wait to be appended (sendThreadPoolQueueCapacity); slow stage: lock")
	errNotSlave      = errors.New("raw log bytes are for a slave, or for a master that takes no messages yet")
)

// lockTime is how long the append now running has run, in ms, 0 when none does.
func (l *CommitLog) lockTime(now int64) int64 {
	began := l.appender.began.Load()
	if began == 0 {
		return 0
	}
	return max(now-began, 0)
}

// appendData is AppendToCommitLog of the store.
func (l *CommitLog) appendData(start PhyOffset, parts ...[]byte) error {
	switch {
	case !l.takesRaw():
		return errNotSlave
	case !l.accepting.Load():
		return errClosing
	case l.flags.latched():
		return l.flags.refusal()
	}
	err := l.appender.withRole(func() error {
		if !l.takesRaw() {
			return errNotSlave // a fence that fell meanwhile
		}
		return l.appender.appendData(int64(start), parts)
	})
	l.appended()
	l.wrote(time.Now().UnixMilli())
	if errors.Is(err, ErrFault) || errors.Is(err, errWriteFailed) {
		l.latch(err)
	}
	return err
}

// takesRaw says whether raw log bytes may be appended: on a slave, and on a master that takes no puts yet.
func (l *CommitLog) takesRaw() bool { return l.role == Slave || l.flags.isSet(fencedBit) }

// appended tells those who read and those who prepare that the log has grown.
func (l *CommitLog) appended() {
	if f := l.queue.last(); f != nil && !l.appender.writesLarge() {
		l.populator.wrote(f)
	}
	if l.pool == nil {
		l.readable()
	}
}

// committed does the same after the transient pool was committed: only now may the bytes be read.
func (l *CommitLog) committed() {
	l.readable()
	l.flushRealTimeService.wakeup()
}

func (l *CommitLog) readable() {
	l.wakeReput()
	if l.listener.Readable != nil {
		l.listener.Readable(l.maxOffset())
	}
}

// wrote tells the flush services that the log has grown.
func (l *CommitLog) wrote(now int64) {
	switch {
	case l.groupCommitService != nil:
		l.groupCommitService.wrote()
	case l.commitService != nil:
		l.commitService.wrote(now)
	default:
		l.flushRealTimeService.wrote()
	}
}

// submitFlushRequest is SubmitFlushRequest of the store.
func (l *CommitLog) submitFlushRequest(req GroupCommitRequest) {
	if l.groupCommitService == nil {
		req.done(PutOK)
		return
	}
	l.groupCommitService.submit(req)
}

func (l *CommitLog) remainsToFlush() bool {
	return l.queue.remainHowManyToFlush() > 0 && !l.flags.latched()
}

// flush does one file. A latched store flushes nothing: what a failed sync left behind is unknown.
func (l *CommitLog) flush(leastPages int) (progressed bool, err error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if l.flags.latched() {
		return false, nil
	}
	began, end := time.Now(), l.queue.maxWrotePosition()
	progressed, err = l.queue.flush(leastPages)
	took := time.Since(began)
	switch {
	case err != nil:
		l.counters.flushErrors.Add(1)
		return false, err
	case progressed:
		l.counters.flushTimes.Add(took, 1)
		if l.queue.flushedWhere.Load() >= end {
			l.unflushedSince.Store(latency.Of(began)) // what is not durable came since
		}
	}
	if took > slowDisk {
		l.logger.Warn("slow flush", "offset", l.queue.flushedWhere.Load(), "took", took)
	}
	return progressed, nil
}

// flushTo flushes file by file until end is durable, once at least.
func (l *CommitLog) flushTo(end PhyOffset) error {
	for {
		progressed, err := l.flush(0)
		if err != nil || !progressed || l.queue.flushedWhere.Load() >= int64(end) {
			return err
		}
	}
}

// flushRest is the last work of a flush service: file by file until nothing is left. Java stops after ten files
// (FlushCommitLogService#RETRY_TIMES_OVER) and leaves the rest to the kernel.
func (l *CommitLog) flushRest() {
	for progressed := true; progressed; {
		var err error
		if progressed, err = l.flush(0); err != nil {
			l.latch(err)
		}
	}
}

// commit does one file of the transient pool.
func (l *CommitLog) commit(leastPages int) (progressed bool, err error) {
	if l.flags.latched() {
		return false, nil
	}
	began := time.Now()
	progressed, err = l.queue.commit(leastPages)
	if took := time.Since(began); took > slowDisk {
		l.logger.Warn("slow commit", "offset", l.queue.committedWhere.Load(), "took", took)
	}
	return progressed, err
}

// latch makes the store read-only for good and ends everything that waits with the cause.
func (l *CommitLog) latch(cause error) {
	if !l.flags.latch(cause) {
		return
	}
	l.logger.Error("the store is read-only until it is opened anew", "cause", cause)
	l.appender.queue.refuse(cause)
	l.appender.failQueued(ServiceNotAvailable, l.flags.refusal())
	if l.groupCommitService != nil {
		l.groupCommitService.refuse()
		l.groupCommitService.fail(ServiceNotAvailable)
	}
	if l.listener.ReadOnly != nil {
		l.listener.ReadOnly(cause)
	}
}

func (l *CommitLog) rolled(f *MappedFile, took time.Duration) {
	l.counters.filesRolled.Add(1)
	if l.listener.FileRolled != nil {
		l.listener.FileRolled(PhyOffset(f.base), took)
	}
}

// sweep is the sweeper's round.
func (l *CommitLog) sweep(now time.Time) (waiting bool) {
	l.telling.Add(1)
	defer l.telling.Add(-1)
	l.appender.expire(now.UnixMilli(), l.config().WaitTimeMillsInSendQueue)
	if s := l.groupCommitService; s != nil {
		s.expire(now)
		waiting = s.waiting.Load() > 0
	}
	return waiting || l.appender.queue.length.Load() > 0
}

// addStats fills in the log's part of a snapshot.
func (l *CommitLog) addStats(s *Stats) {
	now, c := time.Now().UnixMilli(), &l.counters
	s.PutMessageTimesTotal = c.putMessageTimes.Load()
	s.PutMessageSizeTotal = c.putMessageSize.Load()
	s.PutMessageFailedTimes = c.putMessageFailed.Load()
	s.PutMessageEntireTimeMax = millis(c.putMessageEntireTimeMax.Load())
	s.AppendInline, s.AppendQueued = c.appendInline.Load(), c.appendQueued.Load()
	s.AppendExpired = c.appendExpired.Load()
	c.flushTimes.AddTo(&s.FlushTimes)
	s.FlushErrors = c.flushErrors.Load()
	s.FilesRolled = c.filesRolled.Load()
	s.FilesAllocated = l.allocator.made.Load()
	l.allocator.waits.AddTo(&s.FileWaits)
	if l.queue.maxWrotePosition() > l.queue.flushedWhere.Load() {
		s.FlushBehindTime = max(time.Duration(latency.Now()-l.unflushedSince.Load()), 0)
	}
	s.TransientBuffersFree = -1
	if l.pool != nil {
		s.TransientBuffersFree = l.pool.available()
	}
	s.PageCacheLockTime = millis(l.lockTime(now))
	s.PutQueueLength = int(l.appender.queue.length.Load())
	s.PutQueueHeadWait = millis(l.appender.queue.headWait(now))
	if l.groupCommitService != nil {
		s.WaitingFlushRequests = int(l.groupCommitService.waiting.Load())
	}
	s.LatchedCause = l.flags.latchedCause()
}
