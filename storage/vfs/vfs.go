// SPDX-License-Identifier: Apache-2.0

package vfs

import "io"

// FS is what the store needs of a file system. OS is the real one; faultfs holds the same in memory.
// All paths are as the caller gives them; errors carry the path and satisfy errors.Is for fs.ErrNotExist and the like.
type FS interface {
	// OpenRegion maps the file at path, read and write. With create the file is made and set to exactly size bytes,
	// both durably, and sparse: Allocate backs it with blocks. Without create the file must
	// exist; size 0 then takes the file's own length.
	OpenRegion(path string, size int64, create bool) (Region, error)
	// MakeRegion makes a file, and the directories that lead to it, and syncs nothing: after a power cut the file may have
	// any length up to size until a Region.Sync, and each name may be gone until a SyncDir of where it stands.
	MakeRegion(path string, size int64) (Region, error)
	// List returns the entries of a directory, sorted by name; a directory that does not exist has none.
	List(dir string) ([]Entry, error)
	Stat(path string) (Entry, error)
	MkdirAll(dir string) error
	Remove(path string) error    // one file or one empty directory
	RemoveAll(path string) error // and what is below
	Rename(from, to string) error
	SyncDir(dir string) error
	ReadFile(path string) ([]byte, error)
	// WriteFile makes data the durable content of path: temporary file, sync, rename, sync of the directory.
	WriteFile(path string, data []byte) error
	// Lock takes the exclusive POSIX lock (fcntl, byte 0, length 1) that also excludes a Java broker, and writes
	// "lock" into the file; Close gives it back.
	Lock(path string) (io.Closer, error)
	Usage(dir string) (Usage, error)
}

// Entry is one name in a directory.
type Entry struct {
	Name    string
	Size    int64
	Dir     bool
	ModTime int64 // milliseconds since the epoch
}

// Usage is the state of the file system that holds a directory, in bytes. Free is what an unprivileged process may use.
type Usage struct {
	Total, Free int64
}

// Ratio is the used share, as df shows it: 0 to 1.
func (u Usage) Ratio() float64 {
	if u.Total <= 0 {
		return 0
	}
	return 1 - float64(u.Free)/float64(u.Total)
}

// Region is one file, mapped whole. Methods may be called by any goroutine; who may write which bytes is the
// caller's matter. Bytes must not be touched after Close.
type Region interface {
	// Bytes is the mapping. Stores into it reach the file by Sync or when the kernel likes.
	Bytes() []byte
	Path() string
	// Sync makes bytes [from, to) durable, and with them the file's length and blocks.
	Sync(from, to int64) error
	// SyncApart is Sync for who works beside those that go by Sync. The kernel tells of bytes that it could not write once: were
	// both told through the same opening of the file, only the first to ask would hear it, and the other take for durable
	// what is lost. After a SyncApart that failed, Sync fails too.
	SyncApart(from, to int64) error
	// WriteAt writes through the file, not the mapping; both show the same bytes afterwards. It writes all of p or
	// returns an error.
	WriteAt(p []byte, off int64) error
	// WritevAt is WriteAt of parts back to back, for one goroutine at a time. When it fails, any of their bytes may be written
	// or not. The parts' elements stay as they are.
	WritevAt(parts [][]byte, off int64) error
	// Allocate backs [from, to) with blocks, so that no store into the range can meet a full disk. Bytes keep their value.
	Allocate(from, to int64) error
	// Populate brings [from, to) in, writable, so that stores there do not fault. It blocks, and is best effort.
	Populate(from, to int64) error
	// WillNeed brings [from, to) in for reading. It blocks, and is best effort.
	WillNeed(from, to int64) error
	// Resident says whether [from, to) is in memory now, so that reading it waits for no disk. It waits for none itself.
	Resident(from, to int64) bool
	// NextData is where the next bytes at or past from lie that may not be zeros, and where they end: the rest of the file
	// where nothing better is known, the end twice where all is zeros. It reads nothing in.
	NextData(from int64) (start, end int64)
	// ReadAhead says whether a fault may bring in more than its page; it may unless said otherwise. The kernel then makes
	// folios of up to the size of its read-ahead, which may be megabytes: the first store pays for all of them, and makes a
	// whole one dirty.
	ReadAhead(on bool)
	// Protect makes the range inaccessible: only for the invariants build tag, to catch late readers. Memory that cannot
	// be protected answers errors.ErrUnsupported.
	Protect() error
	Close() error
}
