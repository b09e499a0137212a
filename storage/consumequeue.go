// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
)

const (
	// blankUnitSize marks the units in front of the first one of a queue that starts in the middle of a file.
	// Source: ConsumeQueue#fillPreBlank.
	blankUnitSize = 0x7FFFFFFF

	// queueOffsetMax keeps byte positions in a queue, with a file behind them, inside 63 bits.
	queueOffsetMax = (math.MaxInt64 - math.MaxInt32) / consumeQueueUnitSize

	// sampleInterval is how many units apart the in-memory samples of a queue lie; at samplesMax every other one goes.
	sampleInterval = 256
	samplesMax     = 4096
)

// errQueueGone says that the queue was deleted while it was being used; whoever finds it looks the queue up again.
var errQueueGone = errors.New("storage: queue was deleted")

// errSyncFailed marks a failed sync of a queue's file or of its name. It is final: the next one may find nothing to do, and
// succeed.
var errSyncFailed = errors.New("storage: sync of a queue")

// isFinal says that dispatch must not go on behind err.
func isFinal(err error) bool { return errors.Is(err, ErrFault) || errors.Is(err, errSyncFailed) }

// ConsumeQueue is the list of one queue's messages: 20 bytes for each, in files of their own.
//
//	+-----------------+-----------+---------------+
//	| phyOffset (8B)  | size (4B) | tagsCode (8B) |
//	+-----------------+-----------+---------------+
//
// Unit k is at byte 20k. The dispatcher alone writes, and before it recovery; readers stay below the file's
// wrotePosition, which moves after a unit's bytes are in place. Source: ConsumeQueue.
type ConsumeQueue struct {
	topic   string
	queueID int32
	files   *MappedFileQueue
	names   *unsyncedNames // of the store

	// indexPrefix is the Java hash of "topic#", which every index key of the topic begins with.
	indexPrefix int32

	minOffset atomic.Int64 // first unit whose record is still there
	maxOffset atomic.Int64 // one past the last unit
	lastPhy   atomic.Int64 // where the last unit's record lies

	mu   sync.Mutex  // guards making files against deletion of the topic
	gone atomic.Bool // deleted with its topic; set under mu

	// samples says roughly where in the log units lie, without touching a mapped page. The dispatcher appends,
	// retention drops.
	samples atomic.Pointer[[]unitSample]
}

type unitSample struct {
	offset QueueOffset
	phy    PhyOffset
}

func openConsumeQueue(fsys vfs.FS, dir, topic string, queueID int32, fileSize int64, names *unsyncedNames, logger *slog.Logger) (*ConsumeQueue, error) {
	files, err := openMappedFileQueue(fsys, dir, fileSize, logger)
	if err != nil {
		return nil, err
	}
	q := &ConsumeQueue{topic: topic, queueID: queueID, files: files, names: names}
	q.indexPrefix = message.ExtendJavaHash(message.JavaHash([]byte(topic)), []byte("#"))
	q.samples.Store(&[]unitSample{})
	if last := files.last(); last != nil {
		last.region.ReadAhead(false)
	}
	return q, nil
}

// ConsumeQueueUnit is one entry of a ConsumeQueue.
type ConsumeQueueUnit struct {
	Offset   PhyOffset
	Size     int32
	TagsCode int64
}

func decodeUnit(b []byte) ConsumeQueueUnit {
	return ConsumeQueueUnit{
		Offset:   PhyOffset(binary.BigEndian.Uint64(b)),
		Size:     int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode: int64(binary.BigEndian.Uint64(b[12:])),
	}
}

func encodeUnit(b []byte, u ConsumeQueueUnit) {
	_ = b[consumeQueueUnitSize-1]
	binary.BigEndian.PutUint64(b, uint64(u.Offset))
	binary.BigEndian.PutUint32(b[8:], uint32(u.Size))
	binary.BigEndian.PutUint64(b[12:], uint64(u.TagsCode))
}

func (u ConsumeQueueUnit) isBlank() bool { return u.Offset == 0 && u.Size == blankUnitSize }

// isValid is Java's test of a unit. Source: ConsumeQueue#recover.
func (u ConsumeQueueUnit) isValid() bool { return u.Offset >= 0 && u.Size > 0 }

// isLive says that the unit's record is still in the log.
func (u ConsumeQueueUnit) isLive(minPhy PhyOffset) bool {
	return u.isValid() && !u.isBlank() && u.Offset >= minPhy
}

// bounds are the first unit whose record is there, and one past the last.
func (q *ConsumeQueue) bounds() (min, max QueueOffset) {
	// In this order min never passes max: both only grow.
	min = QueueOffset(q.minOffset.Load())
	max = QueueOffset(q.maxOffset.Load())
	return min, max
}

// selectUnits borrows the units from offset to the end of its file. Source: ConsumeQueue#getIndexBuffer.
func (q *ConsumeQueue) selectUnits(offset QueueOffset) (SelectMappedBufferResult, bool) {
	if offset < 0 || offset > queueOffsetMax {
		return SelectMappedBufferResult{}, false
	}
	at := int64(offset) * consumeQueueUnitSize
	f := q.files.find(at)
	if f == nil {
		return SelectMappedBufferResult{}, false
	}
	return f.selectAt(at-f.base, f.size)
}

// unitAt reads one unit.
func (q *ConsumeQueue) unitAt(offset QueueOffset) (ConsumeQueueUnit, bool) {
	sel, ok := q.selectUnits(offset)
	if !ok {
		return ConsumeQueueUnit{}, false
	}
	defer sel.Release()
	if len(sel.Bytes()) < consumeQueueUnitSize {
		return ConsumeQueueUnit{}, false
	}
	return decodeUnit(sel.Bytes()), true
}

// rollNextFile is the first offset of the file behind the one that holds offset. Source: ConsumeQueue#rollNextFile.
func (q *ConsumeQueue) rollNextFile(offset QueueOffset) QueueOffset {
	perFile := QueueOffset(q.files.fileSize / consumeQueueUnitSize)
	return offset + perFile - offset%perFile
}

// put appends unit k, which must be the next one, or any one of a queue without files. A file that the disk has no
// room for is an error, and the same put can be tried again. Source: ConsumeQueue#putMessagePositionInfo.
func (q *ConsumeQueue) put(k QueueOffset, u ConsumeQueueUnit) error {
	f := q.files.last()
	if f == nil || f.isFull() {
		var err error
		if f, err = q.nextFile(k); err != nil {
			return err
		}
	}
	at := int64(k)*consumeQueueUnitSize - f.base
	if at != f.wrotePosition.Load() {
		panic(fmt.Sprintf("BUG: unit %d of %s-%d at byte %d of %s, which ends at %d", k, q.topic, q.queueID, at, f.path(), f.wrotePosition.Load()))
	}
	// The topic may be deleted at any moment; the mapping goes only when this loan is back (apache/rocketmq#8405).
	if !f.hold() {
		return errQueueGone
	}
	defer f.release()
	if err := f.ensureAllocated(at + consumeQueueUnitSize); err != nil {
		return err
	}
	encodeUnit(f.bytes()[at:], u)
	f.wrotePosition.Store(at + consumeQueueUnitSize)
	q.lastPhy.Store(int64(u.Offset))
	q.maxOffset.Store(int64(k) + 1)
	if k%sampleInterval == 0 {
		q.addSample(unitSample{k, u.Offset})
	}
	return nil
}

// nextFile makes the file that unit k goes to. In a queue without files, that is the one whose range holds k, and the
// units before k are blanked: the messages they were for are gone with the log's head, or with the queue's files.
func (q *ConsumeQueue) nextFile(k QueueOffset) (*MappedFile, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone.Load() {
		return nil, errQueueGone
	}
	if last := q.files.last(); last != nil {
		last.region.ReadAhead(true) // for who reads it when it is cold
		// It may have neither its length nor its name on disk yet, and only a queue's last file may be short, or not
		// there. Apart from the flush's: an error that was told here, it would not hear.
		if err := last.region.SyncApart(last.size-consumeQueueUnitSize, last.size); err != nil {
			return nil, fmt.Errorf("%w: %w", errSyncFailed, err)
		}
		if err := syncNames(q.files.fs, q.files.dir); err != nil {
			return nil, err
		}
		return q.createFile(last.end())
	}
	at := int64(k) * consumeQueueUnitSize
	base := at - at%q.files.fileSize
	f, err := q.createFile(base)
	if err != nil {
		return nil, err
	}
	if err := fillPreBlank(f, at-base); err != nil {
		return nil, errors.Join(err, q.files.retire(f))
	}
	q.minOffset.Store(int64(k))
	return f, nil
}

// createFile makes a file that comes into memory page by page: with thousands of queues most never get a second one.
// It does not wait for the disk: messages are dispatched again as long as the checkpoint does not stand for them, and
// before it does, names are synced.
func (q *ConsumeQueue) createFile(base int64) (*MappedFile, error) {
	f, err := q.files.create(base)
	// Not before: a flush in between would find no names yet, and move the checkpoint with the next. And where it failed
	// too, for the directories may be made.
	q.names.add(q.files.dir)
	if err == nil {
		f.region.ReadAhead(false)
	}
	return f, err
}

// delete retires all files; a put that comes too late finds the queue gone.
func (q *ConsumeQueue) delete() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone.Store(true)
	return q.files.destroy()
}

func fillPreBlank(f *MappedFile, end int64) error {
	if end == 0 {
		return nil
	}
	if err := f.ensureAllocated(end); err != nil {
		return err
	}
	b := f.bytes()
	for at := int64(0); at < end; at += consumeQueueUnitSize {
		encodeUnit(b[at:], ConsumeQueueUnit{Size: blankUnitSize})
	}
	f.wrotePosition.Store(end)
	return nil
}

// The functions below look at the files as they lie on disk, before the queue has a writer.

// search is the number of units, from the first file's base on, that fulfil prefix, which must hold for a run at the
// start and for none behind it.
func (q *ConsumeQueue) search(prefix func(ConsumeQueueUnit) bool) int {
	return sort.Search(q.unitsToHole(), func(i int) bool {
		u, _ := q.rawUnit(i)
		return !prefix(u)
	})
}

// unitsToHole is the number of units in front of the first hole of the last file, from the first file's base on: behind
// it are none, and looking there takes memory, and time where little of the file is in it.
func (q *ConsumeQueue) unitsToHole() int {
	files := q.files.files()
	if len(files) == 0 {
		return 0
	}
	units := (len(files) - 1) * int(q.files.fileSize/consumeQueueUnitSize)
	if start, end := files[len(files)-1].region.NextData(0); start == 0 {
		units += int((end + consumeQueueUnitSize - 1) / consumeQueueUnitSize)
	}
	return units
}

// rawUnit is the i-th unit from the first file's base on, whatever the positions say.
func (q *ConsumeQueue) rawUnit(i int) (ConsumeQueueUnit, bool) {
	files := q.files.files()
	perFile := int(q.files.fileSize / consumeQueueUnitSize)
	if i < 0 || i >= len(files)*perFile {
		return ConsumeQueueUnit{}, false
	}
	return unitOrHole(files[i/perFile].bytes()[i%perFile*consumeQueueUnitSize:]), true
}

// unitOrHole reads a unit that may lie in a hole of a sparse file. A full tmpfs has no page to show for a hole; what
// cannot be read is no unit, and the queue is built again from there.
func unitOrHole(b []byte) (u ConsumeQueueUnit) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	var fault error
	defer catchFault(&fault)
	return decodeUnit(b)
}

// gap says whether a file is missing between two others; from is the log offset from which the queue is to be built
// again then.
func (q *ConsumeQueue) gap() (from PhyOffset, missing bool) {
	files := q.files.files()
	for i := 1; i < len(files); i++ {
		if files[i].base != files[i-1].end() {
			last := decodeUnit(files[i-1].bytes()[files[i-1].size-consumeQueueUnitSize:])
			return last.Offset + PhyOffset(last.Size), true
		}
	}
	return 0, false
}

// cutAtGap drops the files behind the first that is missing.
func (q *ConsumeQueue) cutAtGap() error {
	end := q.files.minOffset()
	return retireAll(q.files.remove(func(f *MappedFile) bool {
		if f.base != end {
			return true
		}
		end = f.end()
		return false
	}))
}

// setEnd makes end the next offset of the queue and forgets the units behind it. They are zeroed: Java takes every
// unit that looks valid for one of the queue's.
func (q *ConsumeQueue) setEnd(end QueueOffset) error {
	at := int64(end) * consumeQueueUnitSize
	first := q.files.first()
	if first == nil || at < first.base {
		if err := q.files.destroy(); err != nil {
			return err
		}
		q.minOffset.Store(0)
		q.maxOffset.Store(0)
		return nil
	}
	// The last byte that stays decides: a queue that ends with a full file does not keep the next, empty one, but one
	// that begins in the middle keeps its first file, which alone says where it goes on.
	if err := q.files.truncate(max(at-1, first.base)); err != nil {
		return err
	}
	last := q.files.last()
	last.setPosition(at - last.base)
	clearFrom(last.region, at-last.base)
	q.files.setPositions(at)
	if n := at - last.base; n > 0 && decodeUnit(last.bytes()[n-consumeQueueUnitSize:]).isBlank() {
		// A queue that began after the checkpoint: no checkpoint vouches for its blanks, the next flush syncs them.
		last.flushedPosition.Store(0)
		q.files.setPositions(last.base)
	}
	q.maxOffset.Store(int64(end))
	return nil
}

// clearFrom zeroes the bytes from at on where they are not zero. It leaves holes alone: to look at one takes a page of
// memory, and the last files of thousands of queues are holes for the most part.
func clearFrom(r vfs.Region, at int64) {
	for b := r.Bytes(); at < int64(len(b)); {
		start, end := r.NextData(at)
		for at = start; at < end; {
			next := min(at-at%osPageSize+osPageSize, end)
			clearPage(b[at:next])
			at = next
		}
	}
}

// clearPage leaves a page that cannot be read alone, like unitOrHole.
func clearPage(b []byte) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	var fault error
	defer catchFault(&fault)
	if !allZeros(b) {
		clear(b)
	}
}

func allZeros(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeros))
		if !bytes.Equal(b[:n], zeros[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// lastUnit is the newest unit, blanks aside.
func (q *ConsumeQueue) lastUnit() (ConsumeQueueUnit, bool) {
	u, ok := q.unitAt(QueueOffset(q.maxOffset.Load()) - 1)
	return u, ok && u.isValid() && !u.isBlank()
}

// correctMinOffset makes min the first unit whose record is still in the log; when there is none, min = max
// (apache/rocketmq#8753). Units only die in order, so the search starts at the present min. It runs at start, and
// when log files were deleted. Source: ConsumeQueue#correctMinOffset.
func (q *ConsumeQueue) correctMinOffset(minPhy PhyOffset) {
	from, to := q.bounds()
	if first := q.files.first(); first != nil {
		from = max(from, QueueOffset(first.base/consumeQueueUnitSize))
	}
	isLive := func(i int) bool {
		u, ok := q.unitAt(from + QueueOffset(i))
		return ok && u.isLive(minPhy)
	}
	n := 0
	if from < to && !isLive(0) { // most often it is, and the rest need not be read in
		n = sort.Search(int(to-from), isLive)
	}
	q.minOffset.Store(int64(from) + int64(n))
}

// addSample appends behind the others.
func (q *ConsumeQueue) addSample(s unitSample) {
	for {
		old := q.samples.Load()
		next := append(*old, s) // readers see their own length
		if len(next) == samplesMax {
			next = thin(next)
		}
		if q.samples.CompareAndSwap(old, &next) {
			return
		}
	}
}

func thin(samples []unitSample) []unitSample {
	kept := make([]unitSample, 0, samplesMax)
	for i := 0; i < len(samples); i += 2 {
		kept = append(kept, samples[i])
	}
	return kept
}

// resample starts the samples again from what the files hold: the first unit of each, and the last unit.
func (q *ConsumeQueue) resample() {
	samples := []unitSample{}
	minOffset, maxOffset := q.bounds()
	perFile := q.files.fileSize / consumeQueueUnitSize
	add := func(k QueueOffset) {
		if u, ok := q.unitAt(k); ok && u.isValid() && !u.isBlank() {
			samples = append(samples, unitSample{k, u.Offset})
			q.lastPhy.Store(int64(u.Offset))
		}
	}
	for k := minOffset; k < maxOffset-1; k = k + QueueOffset(perFile) - k%QueueOffset(perFile) {
		add(k)
	}
	add(maxOffset - 1)
	q.samples.Store(&samples)
}

// dropSamples forgets samples before the queue's min offset, all but the nearest.
func (q *ConsumeQueue) dropSamples() {
	for {
		old := q.samples.Load()
		minOffset := QueueOffset(q.minOffset.Load())
		n := sort.Search(len(*old), func(i int) bool { return (*old)[i].offset > minOffset })
		if n <= 1 {
			return
		}
		kept := append([]unitSample{}, (*old)[n-1:]...)
		if q.samples.CompareAndSwap(old, &kept) {
			return
		}
	}
}

// estimate is about where in the log the unit lies, from memory alone.
func (q *ConsumeQueue) estimate(offset QueueOffset) (PhyOffset, bool) {
	samples := *q.samples.Load()
	if len(samples) == 0 {
		return 0, false
	}
	n := sort.Search(len(samples), func(i int) bool { return samples[i].offset > offset })
	if n == 0 {
		return samples[0].phy, true
	}
	a, b := samples[n-1], unitSample{QueueOffset(q.maxOffset.Load()) - 1, PhyOffset(q.lastPhy.Load())}
	if n < len(samples) {
		b = samples[n]
	}
	if b.offset <= a.offset {
		return a.phy, true
	}
	share := float64(offset-a.offset) / float64(b.offset-a.offset)
	return a.phy + PhyOffset(share*float64(b.phy-a.phy)), true
}
