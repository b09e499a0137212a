// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
)

// Layout of an index file; all of it is drawn in FORMAT.md.
const (
	indexHeaderSize = 40
	indexSlotSize   = 4
	indexEntrySize  = 20
	indexPrevAt     = 16 // in an entry

	// indexAllocateStep is how much space is allocated at a time behind the slot table, which is allocated at once.
	indexAllocateStep = 4 << 20

	// indexFindMax bounds the entries of a chain that one call of find looks at.
	indexFindMax = 4096
)

// indexHeader is the header of an index file. Source: IndexHeader.
type indexHeader struct {
	beginTimestamp, endTimestamp int64
	beginPhyOffset, endPhyOffset PhyOffset
	hashSlotCount, indexCount    int32
}

type indexEntry struct {
	keyHash   int32
	phyOffset PhyOffset
	timeDiff  int32 // seconds since the header's beginTimestamp
	prev      int32 // the entry before in the same slot, 0 if there is none
}

// IndexFile is a hash table on disk from the hash of a key to log offsets. A slot holds the number of its newest
// entry, entries are numbered from 1 in the order of the log, and each names the one before it in its slot.
//
// The dispatcher writes, queries read, both under mu; header is the memory copy of the file's. Source: IndexFile.
type IndexFile struct {
	file       *MappedFile
	slotNum    int32
	entryLimit int32 // maxIndexNum: the file is full when its indexCount gets there

	mu        sync.RWMutex
	header    indexHeader
	allocated int64 // bytes with blocks behind them; the dispatcher's
	synced    int32 // entries below are on disk; the flush service's
	sealed    bool  // full, synced whole with its slots; the flush service's
}

func indexFileSize(slotNum, entryLimit int32) int64 {
	return indexHeaderSize + int64(slotNum)*indexSlotSize + int64(entryLimit)*indexEntrySize
}

// openIndexFile takes over a loaded or new file.
func openIndexFile(f *MappedFile, slotNum, entryLimit int32) *IndexFile {
	x := &IndexFile{file: f, slotNum: slotNum, entryLimit: entryLimit}
	b := f.bytes()
	x.header = indexHeader{
		beginTimestamp: int64(binary.BigEndian.Uint64(b)),
		endTimestamp:   int64(binary.BigEndian.Uint64(b[8:])),
		beginPhyOffset: PhyOffset(binary.BigEndian.Uint64(b[16:])),
		endPhyOffset:   PhyOffset(binary.BigEndian.Uint64(b[24:])),
		hashSlotCount:  int32(binary.BigEndian.Uint32(b[32:])),
		indexCount:     max(1, int32(binary.BigEndian.Uint32(b[36:]))),
	}
	x.header.indexCount = min(x.header.indexCount, entryLimit)
	return x
}

// createIndexFile makes a new file, whose times and offsets begin where those of the one before end.
func createIndexFile(f *MappedFile, slotNum, entryLimit int32, endPhyOffset PhyOffset, endTimestamp int64) (*IndexFile, error) {
	x := openIndexFile(f, slotNum, entryLimit)
	if err := x.ensureAllocated(x.entryAt(1)); err != nil {
		return nil, err
	}
	x.header = indexHeader{
		beginTimestamp: endTimestamp, endTimestamp: endTimestamp,
		beginPhyOffset: endPhyOffset, endPhyOffset: endPhyOffset,
		indexCount: 1,
	}
	x.writeHeaderLocked()
	return x, nil
}

func (x *IndexFile) writeHeaderLocked() {
	b, h := x.file.bytes()[:indexHeaderSize], &x.header
	binary.BigEndian.PutUint64(b, uint64(h.beginTimestamp))
	binary.BigEndian.PutUint64(b[8:], uint64(h.endTimestamp))
	binary.BigEndian.PutUint64(b[16:], uint64(h.beginPhyOffset))
	binary.BigEndian.PutUint64(b[24:], uint64(h.endPhyOffset))
	binary.BigEndian.PutUint32(b[32:], uint32(h.hashSlotCount))
	binary.BigEndian.PutUint32(b[36:], uint32(h.indexCount))
}

// head is a copy of the header.
func (x *IndexFile) head() indexHeader {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.header
}

func (x *IndexFile) isFull() bool { return x.header.indexCount >= x.entryLimit }

func (x *IndexFile) slotAt(hash int32) int64 {
	return indexHeaderSize + int64(hash%x.slotNum)*indexSlotSize
}

func (x *IndexFile) entryAt(n int32) int64 {
	return indexHeaderSize + int64(x.slotNum)*indexSlotSize + int64(n)*indexEntrySize
}

func (x *IndexFile) slotLocked(hash int32) int32 {
	n := int32(binary.BigEndian.Uint32(x.file.bytes()[x.slotAt(hash):]))
	if n <= 0 || n >= x.header.indexCount { // Java lets the count itself pass, which in a full file lies behind the end
		return 0
	}
	return n
}

func (x *IndexFile) setSlotLocked(hash, n int32) {
	binary.BigEndian.PutUint32(x.file.bytes()[x.slotAt(hash):], uint32(n))
}

func (x *IndexFile) entryLocked(n int32) indexEntry {
	b := x.file.bytes()[x.entryAt(n):]
	return indexEntry{
		keyHash:   int32(binary.BigEndian.Uint32(b)),
		phyOffset: PhyOffset(binary.BigEndian.Uint64(b[4:])),
		timeDiff:  int32(binary.BigEndian.Uint32(b[12:])),
		prev:      int32(binary.BigEndian.Uint32(b[16:])),
	}
}

// ensureAllocated backs the file with blocks up to end and some steps on.
func (x *IndexFile) ensureAllocated(end int64) error {
	if end <= x.allocated {
		return nil
	}
	table := x.entryAt(0)
	to := min(table+(end-table+indexAllocateStep-1)/indexAllocateStep*indexAllocateStep, x.file.size)
	if err := x.file.region.Allocate(x.allocated, to); err != nil {
		return fmt.Errorf("allocate %d to %d of %q: %w", x.allocated, to, x.file.path(), err)
	}
	x.allocated = to
	return nil
}

// putKey adds an entry, false when the file is full. Source: IndexFile#putKey.
func (x *IndexFile) putKey(hash int32, phyOffset PhyOffset, storeTimestamp int64) (bool, error) {
	if x.isFull() {
		return false, nil
	}
	n := x.header.indexCount
	if err := x.ensureAllocated(x.entryAt(n + 1)); err != nil {
		return false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	h := &x.header
	prev := x.slotLocked(hash)
	b := x.file.bytes()[x.entryAt(n):]
	binary.BigEndian.PutUint32(b, uint32(hash))
	binary.BigEndian.PutUint64(b[4:], uint64(phyOffset))
	binary.BigEndian.PutUint32(b[12:], uint32(timeDiff(h.beginTimestamp, storeTimestamp)))
	binary.BigEndian.PutUint32(b[16:], uint32(prev))
	x.setSlotLocked(hash, n)
	if n == 1 {
		h.beginPhyOffset, h.beginTimestamp = phyOffset, storeTimestamp
	}
	if prev == 0 {
		h.hashSlotCount++
	}
	h.indexCount++
	h.endPhyOffset, h.endTimestamp = phyOffset, storeTimestamp
	x.writeHeaderLocked()
	return true, nil
}

func timeDiff(begin, storeTimestamp int64) int32 {
	if begin <= 0 {
		return 0
	}
	return int32(min(max((storeTimestamp-begin)/1000, 0), math.MaxInt32))
}

// covers says that the file may hold entries of the time range. Source: IndexFile#isTimeMatched.
func (h *indexHeader) covers(begin, end int64) bool {
	return begin <= h.endTimestamp && end >= h.beginTimestamp
}

// find appends up to limit offsets of entries with this hash and time to dst, newest first. It goes on with entry
// from, or begins at the slot when from is 0; next is where to go on, 0 at the end of the chain. It looks at
// indexFindMax entries at most: the dispatcher waits meanwhile, and a chain may be as long as the file.
// Source: IndexFile#selectPhyOffset.
func (x *IndexFile) find(dst []PhyOffset, hash int32, begin, end int64, from int32, limit int) (found []PhyOffset, next int32) {
	if !x.file.hold() {
		return dst, 0
	}
	defer x.file.release()
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := from
	if from == 0 {
		n = x.slotLocked(hash)
	}
	for looked := 0; n > 0; looked++ {
		if limit == 0 || looked == indexFindMax {
			return dst, n
		}
		e := x.entryLocked(n)
		// Java stores times in whole seconds, so an entry covers one.
		at := x.header.beginTimestamp + int64(e.timeDiff)*1000
		if at+999 < begin {
			break
		}
		if e.keyHash == hash && at <= end {
			dst = append(dst, e.phyOffset)
			limit--
		}
		if e.prev >= n { // a chain only leads back
			break
		}
		n = e.prev
	}
	return dst, 0
}

// repair makes the file hold exactly the entries that lie below limit and are whole, and says whether entries were
// missing that the header counts. An entry is written once, in the order of the log, so a page that a power cut took
// shows: zeros, or an offset smaller than the one before. Slots are built again from the entries. Entries behind the
// header's count are taken too, if they are whole: the header's page may be the older one.
//
// Only before the store has a dispatcher.
func (x *IndexFile) repair(limit PhyOffset) (damaged bool) {
	h := &x.header
	counted := h.indexCount
	end := x.wholeEntries(limit)
	damaged = end < counted && x.entryLocked(end).phyOffset < limit
	if damaged && end > 1 {
		end-- // it may be torn at a page boundary where its last fields look like zeros
	}
	x.clearEntriesFrom(end, max(counted, end))
	x.rebuildSlots(end)
	h.indexCount = end
	if end > 1 {
		last := x.entryLocked(end - 1)
		h.endPhyOffset = last.phyOffset
		h.endTimestamp = min(max(h.endTimestamp, h.beginTimestamp), h.beginTimestamp+int64(last.timeDiff)*1000+999)
	} else {
		h.endPhyOffset, h.endTimestamp = min(h.beginPhyOffset, limit), h.beginTimestamp
	}
	x.writeHeaderLocked()
	return damaged
}

// wholeEntries is the number of the first entry that is not whole, or lies at or past limit.
func (x *IndexFile) wholeEntries(limit PhyOffset) int32 {
	n, before := int32(1), PhyOffset(0)
	for ; n < x.entryLimit; n++ {
		e := x.entryLocked(n)
		whole := e.keyHash >= 0 && e.prev >= 0 && e.prev < n && e.timeDiff >= 0 && e != indexEntry{}
		if !whole || e.phyOffset < before || e.phyOffset >= limit {
			break
		}
		before = e.phyOffset
	}
	return n
}

// clearEntriesFrom zeroes what repair drops: the count alone must not decide what a later repair believes.
func (x *IndexFile) clearEntriesFrom(n, counted int32) {
	b := x.file.bytes()
	for ; n < x.entryLimit; n++ {
		at := x.entryAt(n)
		if n >= counted && x.entryLocked(n) == (indexEntry{}) {
			return
		}
		clear(b[at : at+indexEntrySize])
	}
}

// rebuildSlots makes slots and chains from the entries. It stores only what differs: a table that is right stays clean.
// An entry's own link may be wrong where the entry is of an earlier history; it would hide those before it.
func (x *IndexFile) rebuildSlots(end int32) {
	slots := make([]int32, x.slotNum)
	x.header.hashSlotCount = 0
	for n := int32(1); n < end; n++ {
		e := x.entryLocked(n)
		slot := &slots[e.keyHash%x.slotNum]
		if *slot == 0 {
			x.header.hashSlotCount++
		}
		if e.prev != *slot {
			binary.BigEndian.PutUint32(x.file.bytes()[x.entryAt(n)+indexPrevAt:], uint32(*slot))
		}
		*slot = n
	}
	b := x.file.bytes()[indexHeaderSize:]
	for i, n := range slots {
		if at := b[i*indexSlotSize:]; int32(binary.BigEndian.Uint32(at)) != n {
			binary.BigEndian.PutUint32(at, uint32(n))
		}
	}
}

// syncEntries makes entries and header durable, not the slots: after a crash repair builds those from the entries.
func (x *IndexFile) syncEntries() error {
	h := x.head()
	if h.indexCount == x.synced || !x.file.hold() {
		return nil
	}
	defer x.file.release()
	if err := x.file.region.Sync(x.entryAt(x.synced), x.entryAt(h.indexCount)); err != nil {
		return fmt.Errorf("sync entries of %q: %w", x.file.path(), err)
	}
	if err := x.file.region.Sync(0, indexHeaderSize); err != nil {
		return fmt.Errorf("sync header of %q: %w", x.file.path(), err)
	}
	x.synced = h.indexCount
	return nil
}

// seal makes the whole file durable, slots too.
func (x *IndexFile) seal() error {
	if x.sealed || !x.file.hold() {
		return nil
	}
	defer x.file.release()
	h := x.head()
	if err := x.file.region.Sync(0, x.entryAt(h.indexCount)); err != nil {
		return fmt.Errorf("sync %q: %w", x.file.path(), err)
	}
	x.synced = h.indexCount
	x.sealed = true
	return nil
}
