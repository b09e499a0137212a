// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"loopmq/storage/vfs"
)

// mappedFileNameLength is the length of a file's name: the offset of its first byte, padded with zeros.
const mappedFileNameLength = 20

// MappedFileQueue is a directory of files of one size, named for the offset of their first byte. The CommitLog is one,
// each ConsumeQueue is one.
//
// The list of files is an immutable snapshot, replaced under mu and read without it. flushedWhere and committedWhere
// belong to whoever flushes and commits; offsets are bytes of the whole queue.
type MappedFileQueue struct {
	fs       vfs.FS
	dir      string
	fileSize int64
	logger   *slog.Logger

	mu       sync.Mutex // guards replacing snapshot
	snapshot atomic.Pointer[[]*MappedFile]

	flushedWhere   atomic.Int64
	committedWhere atomic.Int64
	// commits says that the transient pool is in effect, and bytes are readable when they are committed; set before the
	// queue has a writer.
	commits bool
	// syncBeyond is how many bytes behind the readable ones a flush takes along.
	syncBeyond int64
}

// openMappedFileQueue loads the files of dir. Names that are not 20 digits, or no multiple of fileSize, are left alone
// and named in one warning (apache/rocketmq#3257). The last file may be too short, as a crash between its creation and
// its extension leaves it, or a copy that ended early: it is extended with zeros, so that no access behind its end can
// kill the process, and recovery cuts the log where the records end. Any other wrong length is an error.
// All positions start at the files' size; recovery lowers them in the last one.
func openMappedFileQueue(fsys vfs.FS, dir string, fileSize int64, logger *slog.Logger) (*MappedFileQueue, error) {
	if fileSize <= 0 {
		return nil, fmt.Errorf("file size %d of %q is not positive", fileSize, dir)
	}
	q := &MappedFileQueue{fs: fsys, dir: dir, fileSize: fileSize, logger: logger}
	q.snapshot.Store(&[]*MappedFile{})
	if err := q.load(); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

func (q *MappedFileQueue) load() error {
	entries, err := q.fs.List(q.dir)
	if err != nil {
		return fmt.Errorf("list %q: %w", q.dir, err)
	}
	var strangers []string
	newest := int64(-1) // of all names that are offsets, multiples or not
	for _, e := range entries {
		base, ok := parseFileName(e.Name)
		if ok && !e.Dir {
			newest = max(newest, base)
		}
		if !ok || e.Dir || base%q.fileSize != 0 {
			strangers = append(strangers, e.Name)
		}
	}
	if strangers != nil {
		q.logger.Warn("names that are not files of this queue are left alone",
			"dir", q.dir, "fileSize", q.fileSize, "names", strangers)
	}
	for _, e := range entries {
		base, ok := parseFileName(e.Name)
		if !ok || e.Dir || base%q.fileSize != 0 {
			continue
		}
		if err := q.loadFile(base, e.Size, base == newest); err != nil {
			return err
		}
	}
	return nil
}

func (q *MappedFileQueue) loadFile(base, length int64, newest bool) error {
	path := q.fileName(base)
	if length != q.fileSize && !(newest && length < q.fileSize) {
		return fmt.Errorf("%q has %d bytes, files of this queue have %d: was the configured file size changed?",
			path, length, q.fileSize)
	}
	short := length < q.fileSize
	if short {
		q.logger.Warn("last file is too short, it is extended with zeros", "file", path, "length", length)
	}
	region, err := q.fs.OpenRegion(path, q.fileSize, short)
	if err != nil {
		return fmt.Errorf("map %q: %w", path, err)
	}
	f := newMappedFile(q.fs, region, base, q.logger)
	f.setPosition(f.size)
	if last := q.last(); last != nil && last.end() != base {
		q.logger.Error("files are missing", "dir", q.dir, "from", last.end(), "to", base)
	}
	q.append(f)
	return nil
}

// parseFileName reads a name of exactly 20 digits.
func parseFileName(name string) (base int64, ok bool) {
	if len(name) != mappedFileNameLength {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	base, err := strconv.ParseInt(name, 10, 64)
	return base, err == nil
}

func (q *MappedFileQueue) fileName(base int64) string {
	return filepath.Join(q.dir, fmt.Sprintf("%0*d", mappedFileNameLength, base))
}

// files is the present list, oldest first. Read only.
func (q *MappedFileQueue) files() []*MappedFile { return *q.snapshot.Load() }

func (q *MappedFileQueue) first() *MappedFile {
	if files := q.files(); len(files) > 0 {
		return files[0]
	}
	return nil
}

func (q *MappedFileQueue) last() *MappedFile {
	if files := q.files(); len(files) > 0 {
		return files[len(files)-1]
	}
	return nil
}

// find is the file that holds the byte at offset, nil if none does. Source: MappedFileQueue#findMappedFileByOffset.
func (q *MappedFileQueue) find(offset int64) *MappedFile {
	files := q.files()
	if len(files) == 0 || offset < files[0].base || offset >= files[len(files)-1].end() {
		return nil
	}
	i := (offset - files[0].base) / q.fileSize
	if i < int64(len(files)) && files[i].base <= offset && offset < files[i].end() {
		return files[i]
	}
	for _, f := range files { // files are missing in between
		if f.base <= offset && offset < f.end() {
			return f
		}
	}
	return nil
}

// minOffset is the first byte of the queue, 0 if it is empty.
func (q *MappedFileQueue) minOffset() int64 {
	if f := q.first(); f != nil {
		return f.base
	}
	return 0
}

// maxOffset is the end of readable bytes. With the transient pool that may lie before the last file.
func (q *MappedFileQueue) maxOffset() int64 {
	if q.commits {
		return q.committedWhere.Load()
	}
	if f := q.last(); f != nil {
		return f.base + f.readPosition()
	}
	return 0
}

// maxWrotePosition is the end of appended bytes, committed or not.
func (q *MappedFileQueue) maxWrotePosition() int64 {
	if f := q.last(); f != nil {
		return f.base + f.wrotePosition.Load()
	}
	return 0
}

func (q *MappedFileQueue) remainHowManyToFlush() int64 {
	return q.maxOffset() - q.flushedWhere.Load()
}

func (q *MappedFileQueue) remainHowManyToCommit() int64 {
	return q.maxWrotePosition() - q.committedWhere.Load()
}

// create makes the file at base, sparse, and appends it to the queue. It waits for no disk: the file and directories that
// lead to it may be gone after a power cut. Only the queue's writer calls it.
func (q *MappedFileQueue) create(base int64) (*MappedFile, error) {
	region, err := q.fs.MakeRegion(q.fileName(base), q.fileSize)
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", q.fileName(base), err)
	}
	f := newMappedFile(q.fs, region, base, q.logger)
	q.append(f)
	return f, nil
}

// append adds the file behind the last one.
func (q *MappedFileQueue) append(f *MappedFile) {
	q.mu.Lock()
	defer q.mu.Unlock()
	files := q.files()
	next := append(files[:len(files):len(files)], f)
	q.snapshot.Store(&next)
}

// remove takes files out of the list for which gone says so, and returns them.
func (q *MappedFileQueue) remove(gone func(*MappedFile) bool) (removed []*MappedFile) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := make([]*MappedFile, 0, len(q.files()))
	for _, f := range q.files() {
		if gone(f) {
			removed = append(removed, f)
		} else {
			kept = append(kept, f)
		}
	}
	if removed != nil {
		q.snapshot.Store(&kept)
	}
	return removed
}

// retire takes one file out of the queue and deletes it. Loans of it stay good.
func (q *MappedFileQueue) retire(f *MappedFile) error {
	return retireAll(q.remove(func(other *MappedFile) bool { return other == f }))
}

// deleteBefore retires the files that end at or before offset, except the last of the queue, and says how many.
func (q *MappedFileQueue) deleteBefore(offset int64) (int, error) {
	last := q.last()
	removed := q.remove(func(f *MappedFile) bool { return f != last && f.end() <= offset })
	return len(removed), retireAll(removed)
}

// destroy retires all files; the caller removes the directory.
func (q *MappedFileQueue) destroy() error {
	q.flushedWhere.Store(0)
	q.committedWhere.Store(0)
	return retireAll(q.remove(func(*MappedFile) bool { return true }))
}

// truncate makes offset the end of the queue: files behind it go, positions in the file that holds it become its end.
// The bytes behind it stay. Only before the queue has a writer. Source: MappedFileQueue#truncateDirtyFiles.
func (q *MappedFileQueue) truncate(offset int64) error {
	removed := q.remove(func(f *MappedFile) bool { return f.base > offset })
	if f := q.last(); f != nil && f.end() > offset {
		f.setPosition(offset - f.base)
	}
	return retireAll(removed)
}

// setPositions says that bytes below offset are on disk; only before the services run.
func (q *MappedFileQueue) setPositions(offset int64) {
	q.flushedWhere.Store(offset)
	q.committedWhere.Store(offset)
}

func retireAll(files []*MappedFile) error {
	var errs []error
	for _, f := range files {
		if err := f.retire(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete %q: %w", f.path(), err))
		}
	}
	return errors.Join(errs...)
}

// flush makes bytes of one file durable, the one that holds flushedWhere, and moves flushedWhere to their end; when
// the file is full the next call goes on in the next one. leastPages 0 takes any byte. After an error nothing moves.
// One goroutine at a time calls it. Source: MappedFileQueue#flush (whose result has the opposite sense).
func (q *MappedFileQueue) flush(leastPages int) (progressed bool, err error) {
	where := q.flushedWhere.Load()
	f := q.fileAtOrAfter(where)
	if f == nil {
		return false, nil
	}
	flushed, err := f.flush(leastPages, q.syncBeyond)
	if err != nil {
		return false, err
	}
	next := f.base + flushed
	q.flushedWhere.Store(next)
	return next != where, nil
}

// pagesBetween counts page ends as ableToFlush does, which begins anew with each file.
func (q *MappedFileQueue) pagesBetween(from, to int64) int64 {
	base := from - from%q.fileSize
	return (to-base)/osPageSize - (from-base)/osPageSize
}

// commit moves bytes of one file from its write buffer to the file, as flush makes them durable.
// Source: MappedFileQueue#commit.
func (q *MappedFileQueue) commit(leastPages int) (progressed bool, err error) {
	where := q.committedWhere.Load()
	f := q.fileAtOrAfter(where)
	if f == nil {
		return false, nil
	}
	committed, err := f.commit(leastPages)
	if err != nil {
		return false, err
	}
	next := f.base + committed
	q.committedWhere.Store(next)
	return next != where, nil
}

// fileAtOrAfter is the file that holds offset, or the first one if offset lies before it (0 in a new log that does not
// begin at 0; a file deleted before it was flushed).
func (q *MappedFileQueue) fileAtOrAfter(offset int64) *MappedFile {
	if f := q.first(); f != nil && offset < f.base {
		return f
	}
	return q.find(offset)
}

// close gives all mappings back and keeps the files. Mappings that are still lent stay; it returns how many.
func (q *MappedFileQueue) close() (held int) {
	for _, f := range q.remove(func(*MappedFile) bool { return true }) {
		if f.close() {
			held++
		}
	}
	return held
}
