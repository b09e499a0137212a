// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// allocateStep bounds one fallocate: a signal that interrupts one undoes it, on tmpfs, and repeats only this much.
	allocateStep = 64 << 20
	// interruptedMax bounds the repeats of one interrupted call.
	interruptedMax = 1000
	// forgetMin is the least range that a sync drops from the page table first.
	forgetMin = 64 << 10
	// residentPages is how many pages one look at what is in memory takes in.
	residentPages = 64
	// writevPartsMax is IOV_MAX.
	writevPartsMax = 1024
)

var pageSize = int64(os.Getpagesize())

// Sync is msync of the range; the package comment says why. A file that someone cut short is an error: the kernel
// would sync what is left and call it a success. The whole length is looked at, because a write behind the cut has made the
// file longer again.
func (r *region) Sync(from, to int64) error {
	if err := r.check("msync", from, to); err != nil {
		return err
	}
	if from == to {
		return nil
	}
	if err := r.msync(from, to); err != nil {
		return err
	}
	return r.checkLength(from, to)
}

func (r *region) checkLength(from, to int64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < int64(len(r.data)) {
		return pathError("msync", r.path, fmt.Errorf("range [%d, %d): the file was cut to %d bytes", from, to, info.Size()))
	}
	return nil
}

// msync widens the range to whole pages; the kernel takes no other start. It covers what came through WriteAt too.
func (r *region) msync(from, to int64) error {
	from -= from % pageSize
	if whole := to - to%pageSize; whole-from >= forgetMin {
		// Dropped from the page table the pages stay dirty in the cache, and whoever reads them maps sixteen at a time. Left in
		// it the kernel write-protects one after the other, each with an interrupt of the other processors.
		_ = unix.Madvise(r.data[from:whole], unix.MADV_DONTNEED)
	}
	if err := retry(func() error { return unix.Msync(r.data[from:to], unix.MS_SYNC) }); err != nil {
		return pathError("msync", r.path, fmt.Errorf("range [%d, %d): %w", from, to, err))
	}
	return nil
}

// SyncApart syncs through an opening and a mapping of its own, made for this call. It is found by its descriptor, because the
// name may be gone by now, or another file's. Where that cannot be done, it is Sync.
func (r *region) SyncApart(from, to int64) error {
	if err := r.check("msync", from, to); err != nil || from == to {
		return err
	}
	from -= from % pageSize
	apart, err := r.mapApart(from, to)
	if err != nil {
		return r.Sync(from, to)
	}
	if err = retry(func() error { return unix.Msync(apart, unix.MS_SYNC) }); err != nil {
		err = pathError("msync", r.path, fmt.Errorf("range [%d, %d): %w", from, to, err))
	}
	return errors.Join(err, unix.Munmap(apart), r.checkLength(from, to))
}

// mapApart maps [from, to), which begins with a page. The mapping keeps the opening.
func (r *region) mapApart(from, to int64) (data []byte, err error) {
	err = r.control("open", func(fd int) error {
		file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		data, err = unix.Mmap(int(file.Fd()), from, int(to-from), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	return data, err
}

// WritevAt goes on behind a short write: what stopped the kernel is the error of the next try.
func (r *region) WritevAt(parts [][]byte, off int64) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if err := r.check("pwritev", off, off+int64(size)); err != nil {
		return err
	}
	if r.vec.conn == nil {
		if err := r.vec.init(r.file); err != nil {
			return pathError("pwritev", r.path, err)
		}
	}
	for len(parts) > 0 {
		n, err := r.vec.write(parts[:min(len(parts), writevPartsMax)], off)
		if err != nil {
			return pathError("pwritev", r.path, err)
		}
		off += int64(n)
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 {
			if err := r.WriteAt(parts[0][n:], off); err != nil {
				return err
			}
			off += int64(len(parts[0]) - n)
			parts = parts[1:]
		}
	}
	return nil
}

// vectors is what pwritev is given. It is kept from call to call: unix.Pwritev makes its own each time.
type vectors struct {
	conn syscall.RawConn
	call func(fd uintptr) // system, made once

	iov []unix.Iovec
	off int64
	n   int
	err error
}

func (v *vectors) init(file *os.File) (err error) {
	v.call = v.system
	v.conn, err = file.SyscallConn()
	return err
}

// write returns how many bytes of parts, some at least, the kernel took.
func (v *vectors) write(parts [][]byte, off int64) (n int, err error) {
	for _, p := range parts {
		if len(p) > 0 {
			iov := unix.Iovec{Base: &p[0]}
			iov.SetLen(len(p))
			v.iov = append(v.iov, iov)
		}
	}
	defer func() {
		clear(v.iov)
		v.iov = v.iov[:0]
	}()
	if len(v.iov) == 0 {
		return 0, nil
	}
	v.off = off
	if err := v.conn.Control(v.call); err != nil {
		return 0, err
	}
	if v.err == nil && v.n == 0 {
		return 0, io.ErrShortWrite
	}
	return v.n, v.err
}

func (v *vectors) system(fd uintptr) {
	v.err = retry(func() error {
		n, _, errno := unix.Syscall6(unix.SYS_PWRITEV, fd, uintptr(unsafe.Pointer(&v.iov[0])), uintptr(len(v.iov)),
			uintptr(v.off), uintptr(uint64(v.off)>>32), 0)
		v.n = int(n)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// Allocate uses fallocate, which keeps what is there. A file system without it gets one write per page, of the byte
// that is there, and a sync: nobody may store into the range meanwhile.
func (r *region) Allocate(from, to int64) error {
	if err := r.check("fallocate", from, to); err != nil {
		return err
	}
	for at := from; at < to; at += allocateStep {
		length := min(allocateStep, to-at)
		err := r.control("fallocate", func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, at, length)
		})
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			return r.allocateByWriting(at, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *region) allocateByWriting(from, to int64) error {
	var b [1]byte
	for at := from; at < to; at = at - at%pageSize + pageSize {
		if _, err := r.file.ReadAt(b[:], at); err != nil {
			return err
		}
		if _, err := r.file.WriteAt(b[:], at); err != nil {
			return err
		}
	}
	return r.control("fdatasync", unix.Fdatasync)
}

// Populate asks the kernel (5.14) to fault the pages in for writing, which reports a bad page as an error where a
// store would raise a signal. Older kernels get an atomic or with 0 per page: it stores, and changes nothing, also
// beside a concurrent store.
func (r *region) Populate(from, to int64) error {
	if err := r.check("populate", from, to); err != nil {
		return err
	}
	err := r.madvise(from, to, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		return r.touch(from, to)
	}
	return err
}

func (r *region) ReadAhead(on bool) {
	advice := unix.MADV_RANDOM
	if on {
		advice = unix.MADV_NORMAL
	}
	_ = r.madvise(0, int64(len(r.data)), advice)
}

// WillNeed begins with read-ahead, which does not wait, and which is large where ReadAhead is off too. Kernels before 5.14
// have nothing else.
func (r *region) WillNeed(from, to int64) error {
	if err := r.check("populate", from, to); err != nil {
		return err
	}
	if err := r.madvise(from, to, unix.MADV_WILLNEED); err != nil {
		return err
	}
	err := r.madvise(from, to, unix.MADV_POPULATE_READ)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// Resident asks for residentPages at a time. On a file that the process may not write the kernel says yes to everything.
func (r *region) Resident(from, to int64) bool {
	if r.check("mincore", from, to) != nil {
		return false
	}
	var pages [residentPages]byte // bit 0: in memory
	for at := from - from%pageSize; at < to; at += residentPages * pageSize {
		n := min(to-at, residentPages*pageSize)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&r.data[at])), uintptr(n), uintptr(unsafe.Pointer(&pages)))
		if errno != 0 {
			return false
		}
		for _, page := range pages[:(n+pageSize-1)/pageSize] {
			if page&1 == 0 {
				return false
			}
		}
	}
	return true
}

// NextData asks where the file has blocks that were written, or pages in memory. The file's own position moves, which
// nothing goes by.
func (r *region) NextData(from int64) (start, end int64) {
	size := int64(len(r.data))
	if r.check("lseek", from, size) != nil {
		return size, size
	}
	start, end = from, size
	_ = r.control("lseek", func(fd int) error {
		at, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			start = size
			return nil
		}
		if err != nil {
			return err
		}
		start = min(at, size)
		if hole, err := unix.Seek(fd, start, unix.SEEK_HOLE); err == nil && hole > start {
			end = min(hole, size)
		}
		return nil
	})
	return start, end
}

// madvise widens the range to whole pages; the kernel takes no other start.
func (r *region) madvise(from, to int64, advice int) error {
	if from == to {
		return nil
	}
	from -= from % pageSize
	if err := retry(func() error { return unix.Madvise(r.data[from:to], advice) }); err != nil {
		return pathError("madvise", r.path, fmt.Errorf("range [%d, %d): %w", from, to, err))
	}
	return nil
}

func (r *region) touch(from, to int64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if _, ok := FaultAddress(cause); !ok {
			panic(cause)
		}
		err = pathError("populate", r.path, fmt.Errorf("range [%d, %d): %v", from, to, cause))
	}()
	for at := from - from%pageSize; at < to; at += pageSize {
		if at+4 <= int64(len(r.data)) {
			atomic.OrUint32((*uint32)(unsafe.Pointer(&r.data[at])), 0)
		}
	}
	return nil
}

func (r *region) Protect() error {
	if len(r.data) == 0 {
		return nil
	}
	if err := unix.Mprotect(r.data, unix.PROT_NONE); err != nil {
		return pathError("mprotect", r.path, err)
	}
	return nil
}

// control runs a system call on the descriptor, which cannot be closed and used anew meanwhile.
func (r *region) control(op string, call func(fd int) error) error {
	conn, err := r.file.SyscallConn()
	if err != nil {
		return pathError(op, r.path, err)
	}
	var result error
	if err := conn.Control(func(fd uintptr) {
		result = retry(func() error { return call(int(fd)) })
	}); err != nil {
		return pathError(op, r.path, err)
	}
	if result != nil {
		return pathError(op, r.path, result)
	}
	return nil
}

func retry(call func() error) error {
	for i := 0; ; i++ {
		err := call()
		if err != unix.EINTR && err != unix.EAGAIN || i == interruptedMax {
			return err
		}
	}
}

// usage counts as df does: blocks kept for root are neither used nor free. Source: UtilAll#getDiskPartitionSpaceUsedPercent.
func usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Usage{}, pathError("statfs", dir, err)
	}
	unit := int64(st.Frsize)
	if unit == 0 {
		unit = int64(st.Bsize)
	}
	used, free := int64(st.Blocks-st.Bfree), int64(st.Bavail)
	return Usage{Total: (used + free) * unit, Free: free * unit}, nil
}

// fileID names a file, whatever path leads to it.
type fileID struct{ dev, ino uint64 }

// heldLocks are the lock files this process holds. POSIX grants a process its own lock again, and drops the lock when
// any descriptor of the file is closed: a second Lock must not even open the file.
var heldLocks = struct {
	sync.Mutex
	files map[fileID]bool
}{files: map[fileID]bool{}}

// fileLock is one held lock.
type fileLock struct {
	file *os.File
	id   fileID
	once sync.Once
	err  error
}

func lockFile(path string) (io.Closer, error) {
	heldLocks.Lock()
	defer heldLocks.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil && heldLocks.files[idOf(&st)] {
		return nil, pathError("lock", path, fmt.Errorf("%w: this process", ErrLocked))
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	id, err := acquire(file, path)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	heldLocks.files[id] = true
	return &fileLock{file: file, id: id}, nil
}

// acquire takes the lock that Java's FileChannel#tryLock(0, 1, false) takes. Source: DefaultMessageStore#start.
func acquire(file *os.File, path string) (fileID, error) {
	fd := int(file.Fd())
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock)
	if err == unix.EAGAIN || err == unix.EACCES {
		return fileID{}, pathError("lock", path, fmt.Errorf("%w%s", ErrLocked, holder(fd)))
	}
	if err != nil {
		return fileID{}, pathError("lock", path, err)
	}
	if _, err := file.WriteAt([]byte("lock"), 0); err != nil {
		return fileID{}, err
	}
	if err := file.Sync(); err != nil {
		return fileID{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileID{}, pathError("stat", path, err)
	}
	return idOf(&st), nil
}

// holder names the process in the way, if the kernel tells.
func holder(fd int) string {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK || lock.Pid <= 0 {
		return ""
	}
	return fmt.Sprintf(": pid %d", lock.Pid)
}

func idOf(st *unix.Stat_t) fileID { return fileID{dev: st.Dev, ino: st.Ino} }

// Close gives the lock back; a second call returns the first one's error.
func (l *fileLock) Close() error {
	l.once.Do(func() {
		heldLocks.Lock()
		defer heldLocks.Unlock()
		delete(heldLocks.files, l.id)
		l.err = l.file.Close()
	})
	return l.err
}
