// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"loopmq/storage/latency"
	"loopmq/storage/message"
)

const (
	// blankReserve is what a record leaves free at the end of a file: the header of the BLANK record.
	// Source: CommitLog#END_FILE_MIN_BLANK_LENGTH.
	blankReserve = 8
	// appendBatchMax is how many queued puts are appended before the role is given back and they are answered.
	appendBatchMax = 64
	// combineMax is how many puts a caller appends for others before it leaves the rest to the appender goroutine.
	combineMax = 256
	// throughMin is how large turns have to be, on average, to be written through the file under ASYNC_FLUSH; half of it is
	// when that ends. throughBehindShare is the part of the memory that may be unflushed for it: the kernel makes who
	// writes wait when it has too many dirty pages, with its own settings from 15 % of what is available.
	throughMin         = 16 << 10
	throughBehindShare = 16
	// roleSpins is how often a caller tries for the role before it queues: about as long as another's turn takes.
	roleSpins = 30
	// refuseInterval is how long puts are refused without a new try after the disk was found full.
	refuseInterval = time.Second

	recordSizeMin = 91 // no body, topic or properties, both hosts IPv4
)

var (
	errMalformedPut = errors.New("the record does not hold together")
	errRecordLarge  = errors.New("the record is larger than a commitlog file")
)

// topicQueue is a queue of the topic-queue table. Source: CommitLog#topicQueueTable.
type topicQueue struct {
	topic   string
	queueID int32
}

// appender is the writer of a master's log, in two forms with one role.
//
// Inline, a caller takes the role for one turn and appends its puts there and then; it does so only where it can
// neither wait nor fault: the role is free, nobody waits in the queue, the last file has room and the populated window
// covers it. Otherwise puts are queued, and whoever holds the role next appends them: another caller before it leaves
// (it may not wait either), or the appender's goroutine, which may roll to a new file and fault pages in. Waking that
// goroutine costs more than ten appends, so it is woken only for what a caller cannot do.
//
// No put is forgotten: who queues tries for the role afterwards, and who gives the role back looks at the queue
// afterwards. One order holds, because the role is one mutex and nobody appends while older puts are queued.
type appender struct {
	log   *CommitLog
	queue putQueue

	role sync.Mutex // who holds it is the log's writer; it guards what follows
	// last is the file written to, nil in an empty log.
	last *MappedFile
	// topicQueueTable holds the next offset of each queue.
	topicQueueTable map[topicQueue]*QueueOffset
	closed          bool
	// through says that a turn is written through the file and not stored to its mapping: its puts are gathered, in bytes
	// and parts, and written with one call. So are all turns under SYNC_FLUSH; otherwise chooseWay says.
	through       bool
	always        bool
	gathered      []*PutMessage
	gatheredBytes int64
	parts         [][]byte
	turnBytes     int64       // running average
	largeMin      int64       // what counts as large: throughMin, on a slave anything
	behindMax     int64       // unflushed bytes above which nothing is written through by choice
	large         atomic.Bool // turns are large, and written through: the populator rests
	// beforeWrite is for tests: it may stall or fail an append.
	beforeWrite func(*PutMessage) error

	began    atomic.Int64 // ms at which the append now running began, 0 when none does. Source: CommitLog#beginTimeInLock
	refusing atomic.Pointer[refusal]

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

// refusal is why there is no room, and since when.
type refusal struct {
	cause error
	since int64 // ms
}

func newAppender(log *CommitLog) *appender {
	largeMin, behindMax := int64(throughMin), physicalMemory()/throughBehindShare
	if log.role == Slave {
		// A frame is one part. The loop has one connection, to the master, which is to wait when the disk does.
		largeMin, behindMax = 1, math.MaxInt64
	}
	return &appender{
		log:             log,
		topicQueueTable: make(map[topicQueue]*QueueOffset),
		through:         log.flushType == SyncFlush,
		always:          log.flushType == SyncFlush,
		largeMin:        largeMin,
		behindMax:       behindMax,
		wake:            make(chan struct{}, 1),
		stopped:         make(chan struct{}),
		done:            make(chan struct{}),
	}
}

func (a *appender) start() { go a.run() }

// stop appends what is queued and takes nothing more. Puts that a stuck append keeps waiting expire as always, so it ends.
func (a *appender) stop() {
	a.queue.refuse(errClosing)
	close(a.stopped)
	<-a.done
	a.failQueued(ServiceNotAvailable, errClosing)
	a.role.Lock()
	defer a.role.Unlock()
	a.last, a.closed = nil, true // a caller who came before accepting was cleared finds no room
}

// put appends or queues puts in order. puts[:n] are taken, the rest end with the status.
func (a *appender) put(puts []*PutMessage, at time.Time) (n int, status PutMessageStatus) {
	now, taken := at.UnixMilli(), latency.Of(at)
	for _, put := range puts {
		put.TakenAt = taken
	}
	n = a.putInline(puts, now)
	if n == len(puts) {
		return n, PutOK
	}
	queued, status := a.queue.push(puts[n:], now, a.log.config().SendThreadPoolQueueCapacity)
	if queued > 0 {
		a.log.sweeper.arm()
		a.combine()
	}
	return n + queued, status
}

// putInline appends as many puts as it can without waiting or faulting.
func (a *appender) putInline(puts []*PutMessage, now int64) (n int) {
	if a.queue.length.Load() > 0 {
		return 0
	}
	locked := puts[0].TakenAt // a free role costs no look at the clock
	if !a.role.TryLock() {
		if !a.spinForRole() {
			return 0
		}
		locked = latency.Now()
	}
	n, err := a.appendInline(puts, now)
	for _, put := range puts[:n] {
		put.Inline, put.queuedAt = true, 0 // it may have been queued in an earlier life
		put.LockedAt = locked
	}
	a.finish(puts[:n], err, now, &a.log.counters.appendInline)
	a.combine() // what others queued meanwhile
	return n
}

func (a *appender) spinForRole() bool {
	for range roleSpins {
		if a.role.TryLock() {
			return true
		}
	}
	return false
}

// appendInline gives the role back. An error is a fault; the put that met it is among the n.
func (a *appender) appendInline(puts []*PutMessage, now int64) (n int, err error) {
	defer a.role.Unlock()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer a.began.Store(0)
	defer catchFault(&err)
	if a.queue.length.Load() > 0 || !a.log.flags.isWriteable() {
		return 0, nil
	}
	a.begin(now, puts[0].TakenAt)
	size := int64(0)
	for _, put := range puts {
		size += int64(len(put.Record))
	}
	a.noteTurn(size)
	a.chooseWay(size)
	room := a.inlineRoom()
	for _, put := range puts {
		if int64(len(put.Record)) > room {
			break
		}
		n++
		a.write(put, now)
		room -= put.WroteBytes
	}
	return n, a.writeGathered()
}

// combine appends queued puts for whoever queued them, inline. It leaves the rest to the goroutine when the oldest put
// cannot be appended inline, or when there are too many.
func (a *appender) combine() {
	for appended := 0; a.queue.length.Load() > 0; {
		if !a.role.TryLock() {
			return // its holder looks at the queue after giving it back
		}
		var puts [appendBatchMax]*PutMessage
		locked := time.Now()
		n, err := a.appendQueued(puts[:], locked, false)
		a.finish(puts[:n], err, locked.UnixMilli(), &a.log.counters.appendQueued)
		appended += n
		if (n == 0 || appended >= combineMax) && a.queue.length.Load() > 0 {
			a.wakeup()
			return
		}
	}
}

// begin notes when an append began, and that it is the first behind what is durable.
func (a *appender) begin(now, at int64) {
	a.began.Store(now)
	if q := a.log.queue; q.maxWrotePosition() == q.flushedWhere.Load() {
		a.log.unflushedSince.Store(at)
	}
}

func (a *appender) wakeup() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *appender) run() {
	defer close(a.done)
	for {
		select {
		case <-a.wake:
			a.drain()
		case <-a.stopped:
			a.drain()
			return
		}
	}
}

// drain appends until the queue is empty. It waits for files and faults pages in.
func (a *appender) drain() {
	a.log.telling.Add(1)
	defer a.log.telling.Add(-1)
	for a.queue.length.Load() > 0 {
		var puts [appendBatchMax]*PutMessage
		a.role.Lock()
		locked := time.Now()
		n, err := a.appendQueued(puts[:], locked, true)
		a.finish(puts[:n], err, locked.UnixMilli(), &a.log.counters.appendQueued)
	}
}

// appendQueued takes puts out of the queue and appends them until done is full, and gives the role back. Without wait
// it stops at the first that inlineRoom does not cover. With wait it makes room, but first hands back what it has
// appended: those puts must not wait for a file they do not need. locked is when the role was had.
func (a *appender) appendQueued(done []*PutMessage, locked time.Time, wait bool) (n int, err error) {
	defer a.role.Unlock()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer a.began.Store(0)
	defer catchFault(&err)
	now, lockedAt := locked.UnixMilli(), latency.Of(locked)
	a.begin(now, lockedAt)
	a.chooseWay(0)
	for n < len(done) {
		room := a.inlineRoom()
		if wait {
			room = a.room()
		}
		put := a.queue.popIfFits(room)
		if put == nil && wait && n == 0 {
			put = a.queue.popIfFits(math.MaxInt64)
		}
		if put == nil {
			break
		}
		done[n] = put
		n++
		if put.TakenAt >= lockedAt { // it came while others were appended
			lockedAt = latency.Now()
		}
		put.LockedAt = lockedAt
		if int64(len(put.Record)) > room {
			if !a.makeRoom(put) {
				if errors.Is(put.Cause, errWriteFailed) {
					return n, put.Cause
				}
				break
			}
			now = time.Now().UnixMilli() // it may have waited
		}
		if !a.refuse(put) {
			a.write(put, now)
		}
	}
	return n, a.writeGathered()
}

// refuse ends a put that a latched store, or one on a full disk, does not take any more.
func (a *appender) refuse(put *PutMessage) bool {
	if put.Cause = a.log.flags.refusal(); put.Cause == nil {
		return false
	}
	put.status = ServiceNotAvailable
	return true
}

// finish tells readers, then the puts' makers, then the flush service. A fault, or a write that failed, latches the store;
// a fault belongs to the last put.
func (a *appender) finish(puts []*PutMessage, fault error, now int64, counter *atomic.Int64) {
	if len(puts) == 0 {
		return
	}
	if fault != nil {
		last := puts[len(puts)-1]
		last.status, last.Cause = ServiceNotAvailable, fault
		a.log.latch(fault)
	}
	appended := latency.Now()
	counter.Add(int64(len(puts)))
	a.log.counters.count(puts, now)
	a.log.appended()
	for _, put := range puts {
		put.AppendedAt = appended
		put.finish()
	}
	a.log.wrote(now)
}

// room is the largest record that the last file takes, negative if it takes none.
func (a *appender) room() int64 {
	f := a.last
	if f == nil || f.allocatedPosition.Load() < f.size {
		return -1
	}
	return f.size - a.position() - blankReserve
}

// position is where the next record goes in the last file.
func (a *appender) position() int64 { return a.last.wrotePosition.Load() + a.gatheredBytes }

// chooseWay says how a turn that begins with size bytes is appended under ASYNC_FLUSH. A store to a page that the populator
// has brought in is but a copy. To bring it in, to make it writable and to clean it at the flush costs more than to write
// all of it with one call; a call of its own for each record costs more again. So large turns are written, and the
// populator rests; and what comes before it is awake again is written too. For 1.25 KiB, in µs of processor time: 1.4
// stored, 0.75 in writes of 64 records, 1.0 of 16, 1.6 of 4.
func (a *appender) chooseWay(size int64) {
	if a.always {
		return
	}
	a.through = false
	if f := a.last; f != nil && !f.pooled && !a.tooFarBehind() {
		a.through = a.large.Load() || a.inlineRoom() < size
	}
}

// tooFarBehind says that a write might have to wait: stores do not, the populator does it for them.
func (a *appender) tooFarBehind() bool { return a.log.queue.remainHowManyToFlush() > a.behindMax }

// writesLarge says that nobody needs the populator.
func (a *appender) writesLarge() bool { return a.large.Load() && !a.tooFarBehind() }

// noteTurn follows how large turns are. While they are written nothing is to be read ahead of them: the kernel would fill
// pages with zeros that records are about to take.
func (a *appender) noteTurn(size int64) {
	if a.always {
		return
	}
	a.turnBytes += (size - a.turnBytes) / 8
	was := a.large.Load()
	large := a.turnBytes >= a.largeMin || was && a.turnBytes >= a.largeMin/2
	if large != was {
		a.large.Store(large)
		if a.last != nil && !a.last.pooled {
			a.last.region.ReadAhead(!large)
		}
	}
}

// inlineRoom is the largest record that can be appended by a caller, with the header of what may follow: for stores to the
// mapping, without a fault.
func (a *appender) inlineRoom() int64 {
	f := a.last
	if f == nil {
		return -1
	}
	if f.pooled || a.through && !a.always {
		return a.room()
	}
	return min(f.populatedPosition.Load(), f.size) - a.position() - blankReserve
}

// makeRoom prepares the last file for put, or the next one; false ends the put with a status.
func (a *appender) makeRoom(put *PutMessage) bool {
	if a.refuse(put) {
		return false
	}
	if int64(len(put.Record))+blankReserve > a.log.queue.fileSize {
		put.status, put.Cause = MessageIllegal, errRecordLarge
		return false
	}
	err := a.allocateLast()
	if err == nil && int64(len(put.Record)) > a.room() {
		err = a.roll(a.nextBase())
	}
	if err == nil {
		a.refusing.Store(nil)
		return true
	}
	put.status, put.Cause = CreateMappedFileFailed, err
	if errors.Is(err, errClosing) {
		put.status = ServiceNotAvailable
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		put.status = ServiceNotAvailable
		a.refusing.Store(&refusal{cause: err, since: time.Now().UnixMilli()})
	}
	return false
}

// allocateLast gives a file that recovery found the blocks it lacks: Java makes them sparse.
func (a *appender) allocateLast() error {
	if a.last == nil || a.last.isFull() {
		return nil
	}
	if err := a.last.ensureAllocated(a.last.size); err != nil {
		return err
	}
	a.log.populator.wrote(a.last)
	return nil
}

func (a *appender) nextBase() int64 {
	if a.last == nil {
		return 0
	}
	return a.last.end()
}

// roll goes on in the file at base. The old file gets its BLANK record only when the new one is there, so a log that
// gets no new file can still take what fits.
func (a *appender) roll(base int64) error {
	began := time.Now()
	next, err := a.log.allocator.take(base)
	if err != nil {
		return err
	}
	if err := a.endFile(); err != nil {
		return errors.Join(err, next.retire())
	}
	if a.large.Load() {
		if a.last != nil {
			a.last.region.ReadAhead(true) // for who reads it when it is cold
		}
		next.region.ReadAhead(false)
	}
	a.log.queue.append(next) // from now on the old file may be deleted
	a.last = next
	a.through = a.through && !next.pooled
	a.log.allocator.request(next.end())
	a.log.rolled(next, time.Since(began))
	return nil
}

// endFile ends the last file with a BLANK record.
func (a *appender) endFile() error {
	if a.last == nil {
		return nil
	}
	if !a.through {
		fillBlank(a.last)
		return nil
	}
	rest := a.last.size - a.last.wrotePosition.Load()
	if rest >= blankReserve {
		header := make([]byte, blankReserve)
		putBlank(header, rest)
		a.parts = append(a.parts, header)
	}
	return a.writeThrough(rest)
}

func putBlank(header []byte, size int64) {
	binary.BigEndian.PutUint32(header, uint32(size))
	binary.BigEndian.PutUint32(header[4:], message.MagicBlank)
}

// fillBlank ends a file with a BLANK record, in memory. Only its header is written; a write buffer, which holds bytes of its last
// use, is cleared.
func fillBlank(f *MappedFile) {
	position := f.wrotePosition.Load()
	rest := appendTarget(f)[position:]
	if f.pooled {
		clear(rest)
	}
	if len(rest) >= blankReserve {
		putBlank(rest, int64(len(rest)))
	}
	f.wrotePosition.Store(f.size)
}

// appendTarget is where a file's appends go.
func appendTarget(f *MappedFile) []byte {
	if b := f.writeBuffer.Load(); b != nil {
		return b.data
	}
	return f.data
}

// write appends one put, which fits, or gathers it for writeGathered. Nothing is consumed unless the whole of it is in:
// not the space, nor the queue offsets (apache/rocketmq#2865).
func (a *appender) write(put *PutMessage, now int64) {
	put.status, put.Cause, put.WroteBytes = UnknownError, nil, 0
	if a.beforeWrite != nil {
		if put.Cause = a.beforeWrite(put); put.Cause != nil {
			return
		}
	}
	f := a.last
	position := a.position()
	offset := f.base + position
	next := a.nextOffset(put)
	if !fillBlanks(put, int64(*next), offset, now) {
		put.status, put.Cause = MessageIllegal, errMalformedPut
		return
	}
	end := position + int64(len(put.Record))
	if !a.through {
		target := appendTarget(f)
		copy(target[position:end], put.Record)
		endMark(target[end:])
	}
	put.WroteOffset, put.WroteBytes = PhyOffset(offset), int64(len(put.Record))
	put.QueueOffset, put.StoreTimestamp = *next, now
	if !put.NoQueueOffset {
		*next += QueueOffset(put.MsgNum)
	}
	if a.through {
		a.gathered = append(a.gathered, put)
		a.gatheredBytes += put.WroteBytes
		a.parts = append(a.parts, put.Record)
		return
	}
	f.wrotePosition.Store(end)
	put.status = PutOK
}

// writeGathered writes what the turn has gathered. After an error nothing of it was appended: queue offsets and position
// are as before, and whoever writes next writes over it. What is left of it the next start looks at.
func (a *appender) writeGathered() error {
	if len(a.gathered) == 0 {
		return nil
	}
	err := a.writeThrough(a.gatheredBytes)
	for _, put := range slices.Backward(a.gathered) {
		put.status = PutOK
		if err == nil {
			continue
		}
		put.status, put.Cause = ServiceNotAvailable, err
		if !put.NoQueueOffset {
			*a.nextOffset(put) = put.QueueOffset
		}
	}
	clear(a.gathered)
	a.gathered, a.gatheredBytes = a.gathered[:0], 0
	return err
}

// errWriteFailed marks an append that the disk refused. Part of it may be in the file, behind the write position.
var errWriteFailed = errors.New("append")

// noRecord is the end mark behind what is written through the file.
var noRecord [blankReserve]byte

// writeThrough writes a.parts at the write position, and only then moves it by size: readers, slaves and the flush go by it.
//
// It may run on an event loop. Into blocks that the populator has prepared, whose pages are in memory, it waits for no more
// than a store to the mapping did: for a page that is just being handed to the disk, for memory, and when the machine
// has too many dirty pages (balance_dirty_pages). The appender's goroutine, which takes what lies beyond, would be
// another 15 µs of processor time a turn: as much as the write itself.
func (a *appender) writeThrough(size int64) error {
	defer a.dropParts()
	f := a.last
	position := f.wrotePosition.Load()
	end := position + size
	if p := a.log.populator; p.prepare && end+blankReserve > f.populatedPosition.Load() {
		p.stand()
		defer p.goOn()
	}
	if f.size-end >= blankReserve {
		a.parts = append(a.parts, noRecord[:])
	}
	if err := f.region.WritevAt(a.parts, position); err != nil {
		return fmt.Errorf("%w %d bytes at %d to %q: %w", errWriteFailed, size, position, f.path(), err)
	}
	f.wrotePosition.Store(end)
	return nil
}

// endMark makes sure that no record seems to follow. In a new file the bytes are zero already; behind a cut lie those
// of records that were dropped, and one of them may begin just here.
func endMark(rest []byte) {
	if len(rest) >= blankReserve {
		binary.BigEndian.PutUint64(rest, 0)
	}
}

// noQueueOffset stands for the queue of records that take no place in one. Never written.
var noQueueOffset QueueOffset

func (a *appender) nextOffset(put *PutMessage) *QueueOffset {
	if put.NoQueueOffset {
		return &noQueueOffset
	}
	next := a.topicQueueTable[topicQueue{put.Topic, put.QueueID}]
	if next == nil {
		next = new(QueueOffset)
		a.topicQueueTable[topicQueue{strings.Clone(put.Topic), put.QueueID}] = next
	}
	return next
}

// fillBlanks writes the offsets and the store time into the records of a put; false if they are not MsgNum records.
func fillBlanks(put *PutMessage, queueOffset, offset, now int64) bool {
	rest := put.Record
	for range put.MsgNum {
		if len(rest) < recordSizeMin {
			return false
		}
		size := binary.BigEndian.Uint32(rest)
		if size < recordSizeMin || uint64(size) > uint64(len(rest)) {
			return false
		}
		message.SetQueueOffset(rest, queueOffset)
		message.SetPhysicalOffset(rest, offset)
		message.SetStoreTimestamp(rest, now)
		if !put.NoQueueOffset {
			queueOffset++
		}
		offset += int64(size)
		rest = rest[size:]
	}
	return len(rest) == 0 && put.MsgNum > 0
}

func (a *appender) dropParts() {
	clear(a.parts)
	a.parts = a.parts[:0]
}

// expire ends puts that have waited for wait ms; the sweeper calls it.
func (a *appender) expire(now, wait int64) {
	if a.queue.length.Load() == 0 {
		return
	}
	chain, length := a.queue.popExpired(now - wait)
	running := a.log.lockTime(now)
	for chain != nil {
		put := chain
		chain, put.next = put.next, nil
		a.log.counters.appendExpired.Add(1)
		put.fail(QueueTimeout, fmt.Errorf("period in queue: %dms, size of queue: %d; slow stage: lock, the append now running has run for %dms",
			now-put.queuedAt, length, running))
	}
}

// failQueued ends all queued puts. Whoever latches the store may call it, so it counts itself among those who tell.
func (a *appender) failQueued(status PutMessageStatus, cause error) {
	a.log.telling.Add(1)
	defer a.log.telling.Add(-1)
	n := failChain(a.queue.popAll(), status, cause)
	a.log.counters.putMessageFailed.Add(int64(n))
}

// withRole runs f as the log's writer. It waits for an append that waits for a file.
func (a *appender) withRole(f func() error) error {
	a.role.Lock()
	err := f()
	a.role.Unlock()
	if a.queue.length.Load() > 0 {
		a.wakeup()
	}
	return err
}

// appendData writes raw log bytes, which may end anywhere, also inside a record.
func (a *appender) appendData(start int64, parts [][]byte) (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer a.began.Store(0)
	defer catchFault(&err)
	at := time.Now()
	a.begin(at.UnixMilli(), latency.Of(at))
	if a.closed {
		return errClosing
	}
	if err := a.checkStart(start); err != nil {
		return err
	}
	left := int64(0)
	for _, part := range parts {
		left += int64(len(part))
	}
	for left > 0 {
		if a.last == nil || a.last.isFull() {
			if err := a.roll(start); err != nil {
				return err
			}
		}
		a.noteTurn(left)
		a.chooseWay(left)
		f := a.last
		if err := f.ensureAllocated(f.size); err != nil {
			return err
		}
		n := min(left, f.size-f.wrotePosition.Load())
		if parts, err = a.appendRaw(parts, n); err != nil {
			return err
		}
		start, left = start+n, left-n
	}
	return nil
}

// appendRaw writes the first n bytes of parts, for which the last file has room, and returns what is behind them.
func (a *appender) appendRaw(parts [][]byte, n int64) (rest [][]byte, err error) {
	for left := n; left > 0; {
		part := parts[0]
		if int64(len(part)) > left {
			part = part[:left]
			parts[0] = parts[0][left:]
		} else {
			parts = parts[1:]
		}
		a.parts = append(a.parts, part)
		left -= int64(len(part))
	}
	if a.through {
		return parts, a.writeThrough(n)
	}
	defer a.dropParts()
	f := a.last
	end := f.wrotePosition.Load()
	for _, part := range a.parts {
		end += int64(copy(f.data[end:], part))
	}
	endMark(f.data[end:])
	f.wrotePosition.Store(end)
	return parts, nil
}

func (a *appender) checkStart(start int64) error {
	if a.last != nil {
		if end := a.last.base + a.last.wrotePosition.Load(); start != end {
			return fmt.Errorf("append at %d to a log that ends at %d", start, end)
		}
		return nil
	}
	if start < 0 || start%a.log.queue.fileSize != 0 {
		return fmt.Errorf("append at %d to an empty log: not the beginning of a file of %d bytes", start, a.log.queue.fileSize)
	}
	return nil
}
