// SPDX-License-Identifier: Apache-2.0

package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"loopmq/storage/vfs"
)

const (
	pageSize        = 4096
	sectorSize      = 512
	capacityDefault = 1 << 40
)

// ErrCrashed is what every call returns after Crash.
var ErrCrashed = errors.New("faultfs: crashed")

// Op names an operation for hooks, faults and counts.
type Op int

const (
	OpOpen Op = iota
	OpCreate
	OpList
	OpStat
	OpMkdir
	OpRemove
	OpRename
	OpSyncDir
	OpRead
	OpLock
	OpUsage
	OpWrite // Region.WriteAt, each page of Region.WritevAt, and the write of WriteFile
	OpSync  // Region.Sync, and the sync of WriteFile
	OpAllocate
	OpPopulate
	OpWillNeed
	OpClose
	opCount
)

var opNames = [opCount]string{"open", "create", "list", "stat", "mkdir", "remove", "rename", "syncdir", "read", "lock",
	"usage", "write", "sync", "allocate", "populate", "willneed", "close"}

func (op Op) String() string { return opNames[op] }

// Fault makes operations fail. It applies to calls of Op whose path Path, a regular expression, matches: the first
// Skip of them go well, the next Count fail with Err; Count 0 means all.
type Fault struct {
	Op    Op
	Path  string
	Skip  int
	Count int
	Err   error
}

type fault struct {
	Fault
	path *regexp.Regexp
	seen int
}

// FS is one file system, alive until Crash.
type FS struct {
	mu       sync.Mutex
	root     *inode
	pending  []change // not yet synced, in order
	inodes   int      // numbered so far
	crashed  bool
	faults   []*fault
	hook     func(op Op, path string)
	counts   [opCount]int64
	capacity int64
	used     int64
	locks    map[string]bool
	open     int
	absent   atomic.Bool
}

var _ vfs.FS = (*FS)(nil)

// New returns an empty file system of 1 TiB.
func New() *FS {
	f := &FS{capacity: capacityDefault, locks: map[string]bool{}}
	f.root = f.newInodeLocked(true)
	return f
}

// inode is a file or a directory, in memory and on disk.
type inode struct {
	number  int
	dir     bool
	modTime int64

	entries map[string]*inode // directory: as seen
	durable map[string]*inode // directory: on disk

	data      []byte // file: as seen; regions share it
	synced    []byte // file: on disk, lenSynced bytes or fewer, zeros behind
	lenSynced int
	backed    []bool // file: pages that have blocks
	regions   int    // file: open ones
}

// change is one step of the name space that is not on disk yet: names of directories, each now a file or, nil, none.
// A rename has two, which reach the disk together.
type change []entryChange

type entryChange struct {
	dir  *inode
	name string
	to   *inode
}

func (f *FS) newInodeLocked(dir bool) *inode {
	f.inodes++
	n := &inode{number: f.inodes, dir: dir, modTime: time.Now().UnixMilli()}
	if dir {
		n.entries, n.durable = map[string]*inode{}, map[string]*inode{}
	}
	return n
}

// Fail adds a fault.
func (f *FS) Fail(ft Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault{Fault: ft, path: regexp.MustCompile(ft.Path)})
}

// ClearFaults takes all faults back.
func (f *FS) ClearFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// SetAbsent makes regions say that none of their pages is in memory. Reads go on as always.
func (f *FS) SetAbsent(absent bool) { f.absent.Store(absent) }

// SetHook sets what is called before each operation, without locks, on the goroutine that asks for it.
func (f *FS) SetHook(hook func(op Op, path string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// SetCapacity bounds the bytes in blocks.
func (f *FS) SetCapacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// Used is the bytes in blocks.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// Count is how often an operation was asked for.
func (f *FS) Count(op Op) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// OpenRegions is how many regions are not closed.
func (f *FS) OpenRegions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// SetModTime makes a file older or younger.
func (f *FS) SetModTime(path string, ms int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.findLocked("chtimes", path)
	if err != nil {
		return err
	}
	n.modTime = ms
	return nil
}

// Unbacked lists "path: page" of pages that hold stored bytes and have no blocks.
func (f *FS) Unbacked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []string
	walk(f.root, "/", func(path string, n *inode) {
		for page := range n.backed {
			if !n.backed[page] && stored(pageOf(n.data, page)) {
				found = append(found, fmt.Sprintf("%s: %d", path, page))
			}
		}
	})
	return found
}

func walk(n *inode, path string, visit func(path string, n *inode)) {
	visit(path, n)
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		walk(n.entries[name], filepath.Join(path, name), visit)
	}
}

func pageOf(b []byte, page int) []byte {
	return b[min(len(b), page*pageSize):min(len(b), (page+1)*pageSize)]
}

//go:norace
func stored(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return true
		}
	}
	return false
}

// begin runs the hook, then, with f.mu held, counts and decides whether the operation fails. It returns with f.mu
// held exactly if err is nil.
func (f *FS) begin(op Op, path string) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook != nil {
		hook(op, path)
	}
	f.mu.Lock()
	f.counts[op]++
	err := f.refuseLocked(op, path)
	if err != nil {
		f.mu.Unlock()
	}
	return err
}

func (f *FS) refuseLocked(op Op, path string) error {
	if f.crashed {
		return pathError(op.String(), path, ErrCrashed)
	}
	for _, ft := range f.faults {
		if ft.Op != op || !ft.path.MatchString(path) {
			continue
		}
		ft.seen++
		if ft.seen > ft.Skip && (ft.Count == 0 || ft.seen <= ft.Skip+ft.Count) {
			return pathError(op.String(), path, ft.Err)
		}
	}
	return nil
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// findLocked walks to the inode at path.
func (f *FS) findLocked(op, path string) (*inode, error) {
	n := f.root
	for name := range strings.SplitSeq(clean(path), "/") {
		if name == "" {
			continue
		}
		if !n.dir {
			return nil, pathError(op, path, syscall.ENOTDIR)
		}
		if n = n.entries[name]; n == nil {
			return nil, pathError(op, path, syscall.ENOENT)
		}
	}
	return n, nil
}

// parentLocked finds the directory that holds path.
func (f *FS) parentLocked(op, path string) (dir *inode, name string, err error) {
	path = clean(path)
	if path == "/" {
		return nil, "", pathError(op, path, syscall.EINVAL)
	}
	dir, err = f.findLocked(op, filepath.Dir(path))
	if err == nil && !dir.dir {
		err = pathError(op, path, syscall.ENOTDIR)
	}
	return dir, filepath.Base(path), err
}

// clean puts relative paths under the root.
func clean(path string) string { return filepath.Clean("/" + path) }

// applyLocked makes a change visible, and durable with the next SyncDir of one of its directories.
func (f *FS) applyLocked(c change) {
	for _, e := range c {
		set(e.dir.entries, e.name, e.to)
	}
	f.pending = append(f.pending, c)
}

func set(entries map[string]*inode, name string, to *inode) {
	if to == nil {
		delete(entries, name)
		return
	}
	entries[name] = to
}

func (c change) touches(dir *inode) bool {
	return slices.ContainsFunc(c, func(e entryChange) bool { return e.dir == dir })
}

func (c change) persist() {
	for _, e := range c {
		set(e.dir.durable, e.name, e.to)
	}
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]vfs.Entry, error) {
	if err := f.begin(OpList, dir); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("list", dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !n.dir {
		err = pathError("list", dir, syscall.ENOTDIR)
	}
	if err != nil {
		return nil, err
	}
	var entries []vfs.Entry
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		entries = append(entries, n.entries[name].entry(name))
	}
	return entries, nil
}

func (n *inode) entry(name string) vfs.Entry {
	return vfs.Entry{Name: name, Size: int64(len(n.data)), Dir: n.dir, ModTime: n.modTime}
}

// Stat implements vfs.FS.
func (f *FS) Stat(path string) (vfs.Entry, error) {
	if err := f.begin(OpStat, path); err != nil {
		return vfs.Entry{}, err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("stat", path)
	if err != nil {
		return vfs.Entry{}, err
	}
	return n.entry(filepath.Base(clean(path))), nil
}

// MkdirAll implements vfs.FS: each directory it makes is one OpMkdir, and one OpSyncDir of its parent.
func (f *FS) MkdirAll(dir string) error { return f.mkdirAll(dir, f.SyncDir) }

func (f *FS) mkdirAll(dir string, sync func(parent string) error) error {
	made := "/"
	for name := range strings.SplitSeq(clean(dir), "/") {
		parent := made
		made = filepath.Join(made, name)
		is, err := f.isDir(made)
		if err == nil && !is {
			err = f.mkdir(made)
			if err == nil {
				err = sync(parent)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *FS) isDir(path string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return false, pathError("mkdir", path, ErrCrashed)
	}
	n, err := f.findLocked("mkdir", path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !n.dir {
		err = pathError("mkdir", path, syscall.ENOTDIR)
	}
	return err == nil, err
}

func (f *FS) mkdir(path string) error {
	if err := f.begin(OpMkdir, path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	dir, name, err := f.parentLocked("mkdir", path)
	if err != nil {
		return err
	}
	if n := dir.entries[name]; n != nil && n.dir {
		return nil // another goroutine was faster
	}
	f.applyLocked(change{{dir, name, f.newInodeLocked(true)}})
	return nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(path string) error {
	if err := f.begin(OpRemove, path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("remove", path)
	if err == nil && len(n.entries) > 0 {
		err = pathError("remove", path, syscall.ENOTEMPTY)
	}
	if err != nil {
		return err
	}
	dir, name, err := f.parentLocked("remove", path)
	if err != nil {
		return err
	}
	f.removeLocked(dir, name, n)
	return nil
}

func (f *FS) removeLocked(dir *inode, name string, n *inode) {
	f.applyLocked(change{{dir, name, nil}})
	if n.regions == 0 {
		f.freeLocked(n)
	}
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(path string) error {
	if err := f.begin(OpRemove, path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("remove", path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, name, err := f.parentLocked("remove", path)
	if err != nil {
		return err
	}
	f.removeTreeLocked(dir, name, n)
	return nil
}

func (f *FS) removeTreeLocked(dir *inode, name string, n *inode) {
	for _, child := range slices.Sorted(maps.Keys(n.entries)) {
		f.removeTreeLocked(n, child, n.entries[child])
	}
	f.removeLocked(dir, name, n)
}

// Rename implements vfs.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.begin(OpRename, from); err != nil {
		return err
	}
	defer f.mu.Unlock()
	fromDir, fromName, err := f.parentLocked("rename", from)
	if err != nil {
		return err
	}
	toDir, toName, err := f.parentLocked("rename", to)
	if err != nil {
		return err
	}
	n, err := f.findLocked("rename", from)
	if err != nil {
		return err
	}
	old := toDir.entries[toName]
	if old != nil && (old.dir || n.dir) { // as os.Rename, which replaces files only
		return pathError("rename", to, syscall.EEXIST)
	}
	if strings.HasPrefix(clean(to), clean(from)+"/") {
		return pathError("rename", to, syscall.EINVAL)
	}
	if old == n {
		return nil
	}
	f.applyLocked(change{{fromDir, fromName, nil}, {toDir, toName, n}})
	if old != nil && old.regions == 0 {
		f.freeLocked(old)
	}
	return nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.begin(OpSyncDir, dir); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("sync", dir)
	if err != nil {
		return err
	}
	kept := f.pending[:0]
	for _, c := range f.pending {
		if c.touches(n) {
			c.persist()
		} else {
			kept = append(kept, c)
		}
	}
	f.pending = kept
	return nil
}

// ReadFile implements vfs.FS.
func (f *FS) ReadFile(path string) ([]byte, error) {
	if err := f.begin(OpRead, path); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	n, err := f.findLocked("read", path)
	if err == nil && n.dir {
		err = pathError("read", path, syscall.EISDIR)
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(n.data), nil
}

// WriteFile implements vfs.FS in the steps of vfs.OS: create, write and sync the temporary file, rename, sync the
// directory. A crash between them, from a hook, leaves it half done.
func (f *FS) WriteFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := f.writeSynced(tmp, data); err != nil {
		return errors.Join(err, f.removeIfThere(tmp))
	}
	if err := f.Rename(tmp, path); err != nil {
		return errors.Join(err, f.removeIfThere(tmp))
	}
	return f.SyncDir(filepath.Dir(clean(path)))
}

func (f *FS) removeIfThere(path string) error {
	if err := f.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *FS) writeSynced(path string, data []byte) error {
	n, err := f.create(path, int64(len(data)))
	if err != nil {
		return err
	}
	r := &region{fs: f, path: path, node: n}
	if err := r.WriteAt(data, 0); err != nil {
		return err
	}
	return r.Sync(0, int64(len(data)))
}

// Lock implements vfs.FS.
func (f *FS) Lock(path string) (io.Closer, error) {
	if err := f.begin(OpLock, path); err != nil {
		return nil, err
	}
	held := f.locks[clean(path)]
	f.locks[clean(path)] = true
	f.mu.Unlock()
	if held {
		return nil, pathError("lock", path, fmt.Errorf("%w: this process", vfs.ErrLocked))
	}
	l := &lock{fs: f, path: clean(path)}
	if err := f.writeSynced(path, []byte("lock")); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

type lock struct {
	fs   *FS
	path string
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.path)
	return nil
}

// Usage implements vfs.FS.
func (f *FS) Usage(dir string) (vfs.Usage, error) {
	if err := f.begin(OpUsage, dir); err != nil {
		return vfs.Usage{}, err
	}
	defer f.mu.Unlock()
	if _, err := f.findLocked("statfs", dir); err != nil {
		return vfs.Usage{}, err
	}
	return vfs.Usage{Total: f.capacity, Free: max(0, f.capacity-f.used)}, nil
}
