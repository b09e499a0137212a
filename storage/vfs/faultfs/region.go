// SPDX-License-Identifier: Apache-2.0

package faultfs

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"loopmq/storage/vfs"
)

// region is one opening of a file.
type region struct {
	fs     *FS
	path   string
	node   *inode
	data   []byte
	closed bool // guarded by fs.mu

	unheard error // guarded by fs.mu: of a SyncApart
}

// OpenRegion implements vfs.FS. Creating is an OpCreate of the file, an OpSync of its length, and an OpSyncDir of its
// directory.
func (f *FS) OpenRegion(path string, size int64, create bool) (vfs.Region, error) {
	if size < 0 {
		return nil, pathError("open", path, syscall.EINVAL)
	}
	if !create {
		return f.openRegion(path, size)
	}
	n, err := f.create(path, size)
	if err != nil {
		return nil, err
	}
	err = f.syncLength(path, n)
	if err == nil {
		err = f.SyncDir(filepath.Dir(clean(path)))
	}
	if err != nil {
		return nil, errors.Join(err, f.removeIfThere(path))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.regionLocked(path, n, size), nil
}

// MakeRegion implements vfs.FS: an OpMkdir for each directory it makes, and an OpCreate.
func (f *FS) MakeRegion(path string, size int64) (vfs.Region, error) {
	if size < 0 {
		return nil, pathError("open", path, syscall.EINVAL)
	}
	if err := f.mkdirAll(filepath.Dir(clean(path)), func(string) error { return nil }); err != nil {
		return nil, err
	}
	n, err := f.create(path, size)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.regionLocked(path, n, size), nil
}

func (f *FS) syncLength(path string, n *inode) error {
	if err := f.begin(OpSync, path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n.lenSynced = len(n.data)
	return nil
}

func (f *FS) openRegion(path string, size int64) (vfs.Region, error) {
	if err := f.begin(OpOpen, path); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("open", path)
	if err == nil && n.dir {
		err = pathError("open", path, syscall.EISDIR)
	}
	if err != nil {
		return nil, err
	}
	if size == 0 {
		size = int64(len(n.data))
	}
	if size > int64(len(n.data)) {
		return nil, pathError("mmap", path, fmt.Errorf("file has %d bytes, want %d", len(n.data), size))
	}
	return f.regionLocked(path, n, size), nil
}

func (f *FS) regionLocked(path string, n *inode, size int64) *region {
	n.regions++
	f.open++
	return &region{fs: f, path: path, node: n, data: n.data[:size:size]}
}

// create makes the file, or cuts or stretches the one that is there.
func (f *FS) create(path string, size int64) (*inode, error) {
	if err := f.begin(OpCreate, path); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	dir, name, err := f.parentLocked("create", path)
	if err != nil {
		return nil, err
	}
	n := dir.entries[name]
	if n != nil && n.dir {
		return nil, pathError("create", path, syscall.EISDIR)
	}
	if n == nil {
		if f.capacity-f.used < pageSize { // the directory wants a block
			return nil, pathError("create", path, syscall.ENOSPC)
		}
		n = f.newInodeLocked(false)
		f.applyLocked(change{{dir, name, n}})
	}
	if n.regions > 0 && int64(len(n.data)) != size {
		return nil, pathError("truncate", path, fmt.Errorf("BUG: %d bytes mapped, want %d", len(n.data), size))
	}
	f.resizeLocked(n, int(size))
	return n, nil
}

func (f *FS) resizeLocked(n *inode, size int) {
	if len(n.data) == size {
		return
	}
	pages := (size + pageSize - 1) / pageSize
	for page := pages; page < len(n.backed); page++ {
		f.setBackedLocked(n, page, false)
	}
	n.data = append(make([]byte, 0, size), n.data[:min(size, len(n.data))]...)[:size]
	n.backed = append(make([]bool, 0, pages), n.backed[:min(pages, len(n.backed))]...)[:pages]
}

func (f *FS) setBackedLocked(n *inode, page int, backed bool) {
	switch {
	case backed && !n.backed[page]:
		f.used += pageSize
	case !backed && n.backed[page]:
		f.used -= pageSize
	}
	n.backed[page] = backed
}

// freeLocked gives back the blocks of a file without a name. The inode keeps its own account of them: a power cut that
// undoes the removal brings them back.
func (f *FS) freeLocked(n *inode) {
	for _, backed := range n.backed {
		if backed {
			f.used -= pageSize
		}
	}
}

// backLocked takes blocks for [from, to), all or, as a real disk may, some.
func (f *FS) backLocked(op, path string, n *inode, from, to int64) error {
	for page := from / pageSize; page*pageSize < to; page++ {
		if !n.backed[page] && f.capacity-f.used < pageSize {
			return pathError(op, path, syscall.ENOSPC)
		}
		f.setBackedLocked(n, int(page), true)
	}
	return nil
}

func (r *region) Bytes() []byte { return r.data }
func (r *region) Path() string  { return r.path }

// begin is FS.begin, and checks the range: no real call takes one outside.
func (r *region) begin(op Op, from, to int64) error {
	if err := r.fs.begin(op, r.path); err != nil {
		return err
	}
	if r.closed || from < 0 || to < from || to > int64(len(r.node.data)) {
		defer r.fs.mu.Unlock()
		return pathError(op.String(), r.path, fmt.Errorf("BUG: range [%d, %d) of %d, closed %v", from, to, len(r.node.data), r.closed))
	}
	return nil
}

// Sync copies exactly the range. That the kernel syncs whole pages helps nobody who does not ask for them.
func (r *region) Sync(from, to int64) error {
	if err := r.begin(OpSync, from, to); err != nil {
		return err
	}
	defer r.fs.mu.Unlock()
	if err := r.unheard; err != nil {
		r.unheard = nil
		return err
	}
	r.syncLocked(from, to)
	return nil
}

// SyncApart is an OpSync too. A Sync that comes after it, or runs at the same time, hears of its failure.
func (r *region) SyncApart(from, to int64) error {
	if err := r.begin(OpSync, from, to); err != nil {
		r.fs.mu.Lock()
		defer r.fs.mu.Unlock()
		r.unheard = err
		return err
	}
	defer r.fs.mu.Unlock()
	r.syncLocked(from, to)
	return nil
}

func (r *region) syncLocked(from, to int64) {
	n := r.node
	if len(n.synced) != len(n.data) {
		n.synced = append(make([]byte, 0, len(n.data)), n.synced[:min(len(n.synced), len(n.data))]...)[:len(n.data)]
	}
	recopy(n.synced[from:to], n.data[from:to]) // others may store there meanwhile, as into a mapped file
	n.lenSynced = len(n.data)
	n.modTime = time.Now().UnixMilli()
}

func (r *region) WriteAt(p []byte, off int64) error {
	if err := r.begin(OpWrite, off, off+int64(len(p))); err != nil {
		return err
	}
	defer r.fs.mu.Unlock()
	if err := r.fs.backLocked("write", r.path, r.node, off, off+int64(len(p))); err != nil {
		return err
	}
	copy(r.node.data[off:], p)
	r.node.modTime = time.Now().UnixMilli()
	return nil
}

// WritevAt is an OpWrite for each page of each part, as the kernel copies them: a crash or a fault comes between any two.
func (r *region) WritevAt(parts [][]byte, off int64) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if off < 0 || off+int64(size) > int64(len(r.data)) {
		return pathError("pwritev", r.path, fmt.Errorf("BUG: range [%d, %d) of %d", off, off+int64(size), len(r.data)))
	}
	for _, p := range parts {
		for len(p) > 0 {
			n := min(len(p), int(pageSize-off%pageSize))
			if err := r.WriteAt(p[:n], off); err != nil {
				return err
			}
			p, off = p[n:], off+int64(n)
		}
	}
	return nil
}

func (r *region) Allocate(from, to int64) error {
	if err := r.begin(OpAllocate, from, to); err != nil {
		return err
	}
	defer r.fs.mu.Unlock()
	return r.fs.backLocked("fallocate", r.path, r.node, from, to)
}

func (r *region) Populate(from, to int64) error { return r.touch(OpPopulate, from, to) }

func (r *region) ReadAhead(bool) {}

func (r *region) WillNeed(from, to int64) error { return r.touch(OpWillNeed, from, to) }

// Resident is true unless SetAbsent says otherwise.
func (r *region) Resident(_, _ int64) bool { return !r.fs.absent.Load() }

// NextData takes pages of zeros for holes.
func (r *region) NextData(from int64) (start, end int64) {
	size := int64(len(r.data))
	start = min(max(from, 0), size)
	for start < size && isHole(r.page(start)) {
		start += int64(len(r.page(start)))
	}
	for end = start; end < size && !isHole(r.page(end)); {
		end += int64(len(r.page(end)))
	}
	return start, end
}

// page is what is left of the page that at lies in.
func (r *region) page(at int64) []byte {
	return r.data[at:min(at-at%pageSize+pageSize, int64(len(r.data)))]
}

func isHole(page []byte) bool { return len(bytes.TrimLeft(page, "\x00")) == 0 }

func (r *region) touch(op Op, from, to int64) error {
	err := r.begin(op, from, to)
	if err == nil {
		r.fs.mu.Unlock()
	}
	return err
}

// Protect cannot be done to heap memory.
func (r *region) Protect() error { return errors.ErrUnsupported }

// Close goes well after a crash too: there is nothing to lose.
func (r *region) Close() error {
	err := r.begin(OpClose, 0, 0)
	if err != nil && !errors.Is(err, ErrCrashed) {
		return err
	}
	if err != nil {
		r.fs.mu.Lock()
	}
	defer r.fs.mu.Unlock()
	if r.closed {
		return pathError("close", r.path, errors.New("BUG: closed twice"))
	}
	r.closed = true
	r.fs.open--
	r.node.regions--
	if r.node.regions == 0 && !r.fs.linkedLocked(r.path, r.node) {
		r.fs.freeLocked(r.node)
	}
	return nil
}

func (f *FS) linkedLocked(path string, n *inode) bool {
	found, err := f.findLocked("close", path)
	return err == nil && found == n
}
