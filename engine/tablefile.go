// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"

	"loopmq/storage/vfs"
)

// tableFileSizeMax is the largest table file that is read.
const tableFileSizeMax = 512 << 20

// tableFile is one JSON table under config/, kept in two versions: the current one and, beside it with .bak, the one
// before. At every instant at least one of them is whole: the new version is written beside them, durably; then the
// current one, if it is known to be good, gets the previous one's name, and the new one its. A crash or a torn write in
// between costs the newest change, never the table (Java writes in place, see apache/rocketmq#9705).
type tableFile struct {
	fs     vfs.FS
	path   string
	logger *slog.Logger

	mu sync.Mutex // guards the fields below and orders saves
	// What the current file holds, if that is known to be good. Content that does not match came from elsewhere: it is
	// never copied over the previous version.
	size int
	sum  uint32
	good bool
}

func newTableFile(fs vfs.FS, root, name string, logger *slog.Logger) *tableFile {
	return &tableFile{fs: fs, path: filepath.Join(root, "config", name), logger: logger}
}

func (f *tableFile) previous() string { return f.path + ".bak" }

// load hands the current version to decode, or the previous one when there is no current one or it is broken. decode
// must either adopt all of it or fail and leave its table alone. found is false when neither exists. A broken file
// without a good previous version is an error that names it: going on with an empty table would lose it for good.
func (f *tableFile) load(decode func([]byte) error) (found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.read(f.path, decode)
	if err == nil {
		f.remember(data)
		return true, nil
	}
	current := err
	if _, err = f.read(f.previous(), decode); err == nil {
		f.logger.Warn("table file unusable, took the previous version", "file", f.path, "previous", f.previous(), "cause", current)
		return true, nil
	}
	if errors.Is(current, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, fmt.Errorf("neither %s nor its previous version can be read (remove both to start with an empty table): %w",
		f.path, errors.Join(current, err))
}

func (f *tableFile) read(path string, decode func([]byte) error) ([]byte, error) {
	if entry, err := f.fs.Stat(path); err != nil {
		return nil, err
	} else if entry.Size > tableFileSizeMax {
		return nil, fmt.Errorf("%s: %d bytes, more than %d", path, entry.Size, tableFileSizeMax)
	}
	data, err := f.fs.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: empty", path)
	}
	if err := decode(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

func (f *tableFile) remember(data []byte) {
	f.size, f.sum, f.good = len(data), crc32.ChecksumIEEE(data), true
}

func (f *tableFile) remembers(data []byte) bool {
	return f.good && len(data) == f.size && crc32.ChecksumIEEE(data) == f.sum
}

// save makes data the current version and the one before it the previous. It writes nothing when nothing changed. It
// blocks for several syncs: never on an event loop.
func (f *tableFile) save(data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.remembers(data) {
		return nil
	}
	if err := f.fs.MkdirAll(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	next := f.path + ".new"
	if err := f.fs.WriteFile(next, data); err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	if err := f.keepPrevious(); err != nil {
		return fmt.Errorf("keep the previous version of %s: %w", f.path, err)
	}
	// Whatever happens from here on, the file no longer is what was known.
	f.good = false
	if err := f.fs.Rename(next, f.path); err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	if err := f.fs.SyncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	f.remember(data)
	return nil
}

func (f *tableFile) keepPrevious() error {
	if !f.good {
		return nil
	}
	data, err := f.fs.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !f.remembers(data) {
		f.logger.Warn("table file was changed by someone else, not kept as the previous version", "file", f.path)
		return nil
	}
	if err != nil {
		return err
	}
	f.good = false
	return f.fs.Rename(f.path, f.previous())
}
