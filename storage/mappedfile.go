// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"loopmq/storage/vfs"
)

const (
	// osPageSize is the page of all page arithmetic of the flush rules, whatever the machine's page is.
	// Source: MappedFile#OS_PAGE_SIZE.
	osPageSize = 4096

	// allocateStep is how much space of a sparse file is allocated at a time, ahead of the write position.
	allocateStep = 64 << 10

	// retiredBit in MappedFile.references says that no new loan is given.
	retiredBit = int64(1) << 62
)

// MappedFile is one file of a queue of files, mapped whole.
//
// Positions are relative to the file and only grow while it is live (truncate, before the services run, may lower them):
//
//	flushedPosition ≤ readPosition ≤ wrotePosition ≤ size
//
// One goroutine at a time writes bytes and wrotePosition; readers stay below readPosition. With a write buffer of the
// TransientStorePool appends go to the buffer and committedPosition says how much of it the file has; without one
// committedPosition means nothing and what is written may be read.
//
// References count the queue's own one and every loan. The mapping goes when the count reaches zero, never under a
// reader: retire only stops new loans, unlinks the file, and gives back the queue's own reference.
type MappedFile struct {
	base   int64
	size   int64
	fs     vfs.FS
	region vfs.Region
	data   []byte
	logger *slog.Logger

	references        atomic.Int64 // retiredBit | count
	wrotePosition     atomic.Int64
	committedPosition atomic.Int64
	flushedPosition   atomic.Int64

	allocatedPosition atomic.Int64 // blocks exist below; moved by the file's writer or its allocator
	populatedPosition atomic.Int64 // appends below neither fault nor meet zeros being written; moved by the populate helper

	residency atomic.Pointer[residency] // nil until the first look

	pooled      bool // has, or had until it was all committed, a write buffer
	writeBuffer atomic.Pointer[transientBuffer]
}

// newMappedFile takes over region. The file is empty.
func newMappedFile(fs vfs.FS, region vfs.Region, base int64, logger *slog.Logger) *MappedFile {
	f := &MappedFile{base: base, fs: fs, region: region, data: region.Bytes(), logger: logger}
	f.size = int64(len(f.data))
	f.references.Store(1)
	mappings.add(f)
	return f
}

func (f *MappedFile) path() string { return f.region.Path() }

// bytes is the whole mapping; touch it only between hold and release, or as the file's writer.
func (f *MappedFile) bytes() []byte { return f.data }

func (f *MappedFile) isFull() bool { return f.wrotePosition.Load() == f.size }

// end is the offset just behind the file.
func (f *MappedFile) end() int64 { return f.base + f.size }

// readPosition is the end of what may be read, flushed and replicated.
func (f *MappedFile) readPosition() int64 {
	if f.pooled {
		return f.committedPosition.Load()
	}
	return f.wrotePosition.Load()
}

// setPosition makes position the end of all bytes, as load and truncation do.
func (f *MappedFile) setPosition(position int64) {
	f.wrotePosition.Store(position)
	f.committedPosition.Store(position)
	f.flushedPosition.Store(position)
	f.allocatedPosition.Store(position &^ (allocateStep - 1))
}

// hold borrows the mapping; false says the file is retired and the caller must treat its bytes as gone.
func (f *MappedFile) hold() bool {
	for {
		n := f.references.Load()
		if n&retiredBit != 0 || n == 0 {
			return false
		}
		if f.references.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *MappedFile) release() {
	switch n := f.references.Add(-1); {
	case n == retiredBit:
		f.unmap()
	case n <= 0 || (n < retiredBit && n > retiredBit/2):
		panic(fmt.Sprintf("BUG: %s released more often than held", f.path()))
	}
}

// held is the number of loans now out.
func (f *MappedFile) held() int64 {
	n := f.references.Load()
	if n&retiredBit != 0 {
		return n &^ retiredBit
	}
	return max(n-1, 0)
}

// retire ends the file: its name goes now, its mapping when the last loan comes back. A second call does nothing.
func (f *MappedFile) retire() error {
	if !f.stopLoans() {
		return nil
	}
	err := f.fs.Remove(f.path())
	f.release()
	return err
}

// close gives the mapping back but keeps the file. Loans still out keep it mapped; close says whether there are any.
func (f *MappedFile) close() (held bool) {
	if !f.stopLoans() {
		return false
	}
	held = f.held() > 1
	f.release()
	return held
}

// stopLoans makes hold fail from now on; false if it did already.
func (f *MappedFile) stopLoans() bool {
	for {
		n := f.references.Load()
		if n&retiredBit != 0 {
			return false
		}
		if f.references.CompareAndSwap(n, n|retiredBit) {
			return true
		}
	}
}

func (f *MappedFile) unmap() {
	mappings.remove(f)
	if b := f.writeBuffer.Swap(nil); b != nil {
		b.giveBack()
	}
	if err := lastRelease(f.region); err != nil {
		f.logger.Error("mapping not given back", "file", f.path(), "cause", err)
	}
}

// ensureAllocated backs the file with blocks up to position, in steps, so that no store below it meets a full disk.
// Only the file's writer calls it.
func (f *MappedFile) ensureAllocated(position int64) error {
	from := f.allocatedPosition.Load()
	if position <= from {
		return nil
	}
	to := min((position+allocateStep-1)&^(allocateStep-1), f.size)
	if err := f.region.Allocate(from, to); err != nil {
		return fmt.Errorf("allocate %d to %d of %q: %w", from, to, f.path(), err)
	}
	f.allocatedPosition.Store(to)
	return nil
}

// selectAt borrows up to max readable bytes from position. Source: MappedFile#selectMappedBuffer.
func (f *MappedFile) selectAt(position, max int64) (SelectMappedBufferResult, bool) {
	if position < 0 || max <= 0 {
		return SelectMappedBufferResult{}, false
	}
	n := min(f.readPosition()-position, max)
	if n <= 0 || !f.hold() {
		return SelectMappedBufferResult{}, false
	}
	end := position + n
	return SelectMappedBufferResult{
		StartOffset: PhyOffset(f.base + position),
		data:        f.data[position:end:end],
		file:        f,
	}, true
}

// ableToFlush is the rule of MappedFile#isAbleToFlush: a full file always, otherwise leastPages whole pages, or any
// byte when no minimum is asked.
func ableToFlush(leastPages int, read, flushed, size int64) bool {
	switch {
	case read == size:
		return read > flushed
	case leastPages > 0:
		return read/osPageSize-flushed/osPageSize >= int64(leastPages)
	default:
		return read > flushed
	}
}

// flush makes the readable bytes durable if leastPages allows, and beyond bytes behind them, and returns the new
// flushedPosition. After an error the position stays where it was. One goroutine at a time calls it.
func (f *MappedFile) flush(leastPages int, beyond int64) (int64, error) {
	flushed, read := f.flushedPosition.Load(), f.readPosition()
	if !ableToFlush(leastPages, read, flushed, f.size) {
		return flushed, nil
	}
	if !f.hold() {
		// The file is being deleted: nobody will read these bytes again.
		f.flushedPosition.Store(read)
		return read, nil
	}
	defer f.release()
	if err := f.region.Sync(flushed, min(read+beyond, f.size)); err != nil {
		return flushed, fmt.Errorf("sync %d to %d of %q: %w", flushed, read, f.path(), err)
	}
	f.flushedPosition.Store(read)
	return read, nil
}

// commit writes what the write buffer has and the file has not, if leastPages allows, and returns the new end of
// committed bytes. The buffer of a file that is all committed goes back to the pool. One goroutine at a time calls it.
func (f *MappedFile) commit(leastPages int) (int64, error) {
	if !f.pooled {
		return f.wrotePosition.Load(), nil
	}
	committed, wrote := f.committedPosition.Load(), f.wrotePosition.Load()
	if !ableToFlush(leastPages, wrote, committed, f.size) {
		return committed, nil
	}
	b := f.writeBuffer.Load()
	if b == nil || !f.hold() {
		return committed, nil
	}
	defer f.release()
	if err := f.region.WriteAt(b.data[committed:wrote], committed); err != nil {
		return committed, fmt.Errorf("commit %d to %d of %q: %w", committed, wrote, f.path(), err)
	}
	f.committedPosition.Store(wrote)
	if wrote == f.size && f.writeBuffer.CompareAndSwap(b, nil) {
		b.giveBack()
	}
	return wrote, nil
}
