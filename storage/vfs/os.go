// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"
)

// ErrLocked is what Lock returns when another process, or this one, holds the lock.
var ErrLocked = errors.New("locked by another process")

const (
	fileMode = 0o644
	dirMode  = 0o755
)

// OS is the real file system. The zero value is ready to use.
type OS struct{}

var _ FS = OS{}

// OpenRegion maps a file. A file it made is removed again when a later step fails. One that was there already is
// taken over with its bytes and cut or stretched to size.
func (OS) OpenRegion(path string, size int64, create bool) (Region, error) {
	if size < 0 {
		return nil, pathError("open", path, fmt.Errorf("size %d is negative", size))
	}
	if !create {
		return openExisting(path, size)
	}
	return createFile(path, size, true)
}

func (OS) MakeRegion(path string, size int64) (Region, error) {
	if size < 0 {
		return nil, pathError("open", path, fmt.Errorf("size %d is negative", size))
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, err
	}
	return createFile(path, size, false)
}

func createFile(path string, size int64, durably bool) (Region, error) {
	made := true
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, fs.ErrExist) {
		made = false
		file, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, err
	}
	r, err := createRegion(file, path, size, durably)
	if err == nil {
		return r, nil
	}
	err = errors.Join(err, file.Close())
	if made {
		err = errors.Join(err, os.Remove(path))
	}
	return nil, err
}

func createRegion(file *os.File, path string, size int64, durably bool) (*region, error) {
	if err := file.Truncate(size); err != nil {
		return nil, err
	}
	if durably {
		if err := file.Sync(); err != nil {
			return nil, err
		}
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	return mapRegion(file, path, size)
}

func openExisting(path string, size int64) (Region, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	r, err := mapExisting(file, path, size)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func mapExisting(file *os.File, path string, size int64) (*region, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, pathError("mmap", path, errors.New("not a regular file"))
	}
	if size == 0 {
		size = info.Size()
	}
	// A mapping longer than its file raises SIGBUS behind the end.
	if info.Size() < size {
		return nil, pathError("mmap", path, fmt.Errorf("file has %d bytes, want %d", info.Size(), size))
	}
	return mapRegion(file, path, size)
}

func mapRegion(file *os.File, path string, size int64) (*region, error) {
	r := &region{file: file, path: path}
	if size == 0 { // the kernel does not map nothing
		return r, nil
	}
	data, err := mmap.MapRegion(file, int(size), mmap.RDWR, 0, 0)
	if err != nil {
		return nil, pathError("mmap", path, err)
	}
	r.data = data
	return r, nil
}

// List skips names that vanish while it looks.
func (OS) List(dir string) ([]Entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		info, err := name.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entryOf(info))
	}
	return entries, nil
}

func (OS) Stat(path string) (Entry, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(info), nil
}

func entryOf(info fs.FileInfo) Entry {
	return Entry{Name: info.Name(), Size: info.Size(), Dir: info.IsDir(), ModTime: info.ModTime().UnixMilli()}
}

// MkdirAll syncs the parent of each directory it makes: a synced file in a directory that a power cut forgets is lost.
func (o OS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return pathError("mkdir", dir, errors.New("not a directory"))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func (OS) Remove(path string) error             { return os.Remove(path) }
func (OS) RemoveAll(path string) error          { return os.RemoveAll(path) }
func (OS) Rename(from, to string) error         { return os.Rename(from, to) }
func (OS) SyncDir(dir string) error             { return syncDir(dir) }
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// WriteFile goes through path + ".tmp", which it removes when a step fails.
func (OS) WriteFile(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := writeSynced(tmp, data); err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	return syncDir(filepath.Dir(path))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		return errors.Join(err, d.Close())
	}
	return d.Close()
}

// Lock also refuses a second lock within this process, which POSIX would grant.
func (OS) Lock(path string) (io.Closer, error) { return lockFile(path) }

func (OS) Usage(dir string) (Usage, error) { return usage(dir) }

// region keeps its file open beside the mapping: Sync, WriteAt and Allocate need the descriptor.
type region struct {
	file *os.File
	path string
	data mmap.MMap
	vec  vectors
}

func (r *region) Bytes() []byte { return r.data }
func (r *region) Path() string  { return r.path }

func (r *region) WriteAt(p []byte, off int64) error {
	if err := r.check("write", off, off+int64(len(p))); err != nil {
		return err
	}
	_, err := r.file.WriteAt(p, off) // writes all or fails
	return err
}

func (r *region) Close() error {
	var err error
	if r.data != nil {
		err = r.data.Unmap() // sets data to nil
	}
	if err != nil {
		err = pathError("munmap", r.path, err)
	}
	return errors.Join(err, r.file.Close())
}

// check refuses ranges outside the mapping: they would change the file's length or fault.
func (r *region) check(op string, from, to int64) error {
	if from < 0 || to < from || to > int64(len(r.data)) {
		return pathError(op, r.path, fmt.Errorf("range [%d, %d) outside of [0, %d)", from, to, len(r.data)))
	}
	return nil
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}
