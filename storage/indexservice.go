// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
)

// indexNameLayout is local time to the millisecond; Java's name has no dot.
const indexNameLayout = "20060102150405.000"

// indexService is the list of index files and the building of new ones. Source: IndexService.
type indexService struct {
	fs         vfs.FS
	dir        string
	slotNum    int32
	entryLimit int32
	logger     *slog.Logger

	mu       sync.Mutex // guards replacing snapshot
	snapshot atomic.Pointer[[]*IndexFile]
}

func newIndexService(fsys vfs.FS, dir string, slotNum, entryLimit int32, logger *slog.Logger) *indexService {
	s := &indexService{fs: fsys, dir: dir, slotNum: slotNum, entryLimit: entryLimit, logger: logger}
	s.snapshot.Store(&[]*IndexFile{})
	return s
}

// load maps the files of the directory. Names that are not 17 digits, and files of another size, are left alone and
// named in a warning: an index can be missed, a start cannot.
func (s *indexService) load() error {
	entries, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list %q: %w", s.dir, err)
	}
	size := indexFileSize(s.slotNum, s.entryLimit)
	var strangers []string
	for _, e := range entries {
		if e.Dir || !isIndexName(e.Name) || e.Size != size {
			strangers = append(strangers, e.Name)
			continue
		}
		region, err := s.fs.OpenRegion(filepath.Join(s.dir, e.Name), size, false)
		if err != nil {
			return fmt.Errorf("map index file %q: %w", e.Name, err)
		}
		s.append(openIndexFile(newMappedFile(s.fs, region, 0, s.logger), s.slotNum, s.entryLimit))
	}
	if strangers != nil {
		s.logger.Warn("names that are not index files of the configured size are left alone",
			"dir", s.dir, "fileSize", size, "names", strangers)
	}
	return nil
}

func isIndexName(name string) bool {
	if len(name) != len(indexNameLayout)-1 {
		return false
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// files is the present list, oldest first. Read only.
func (s *indexService) files() []*IndexFile { return *s.snapshot.Load() }

func (s *indexService) last() *IndexFile {
	if files := s.files(); len(files) > 0 {
		return files[len(files)-1]
	}
	return nil
}

func (s *indexService) append(x *IndexFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := s.files()
	next := append(files[:len(files):len(files)], x)
	s.snapshot.Store(&next)
}

// remove takes files out of the list and deletes them; loans of them stay good.
func (s *indexService) remove(gone func(*IndexFile) bool) (removed int, err error) {
	s.mu.Lock()
	var kept []*IndexFile
	var retired []*MappedFile
	for _, x := range s.files() {
		if gone(x) {
			retired = append(retired, x.file)
		} else {
			kept = append(kept, x)
		}
	}
	s.snapshot.Store(&kept)
	s.mu.Unlock()
	return len(retired), retireAll(retired)
}

// removeFrom deletes the files from the n-th on.
func (s *indexService) removeFrom(n int) error {
	later := s.files()[n:]
	_, err := s.remove(func(x *IndexFile) bool { return slices.Contains(later, x) })
	return err
}

// writable is the file that takes the next entry: the last one, or a new one behind it.
// Source: IndexService#retryGetAndCreateIndexFile.
func (s *indexService) writable() (*IndexFile, error) {
	last := s.last()
	if last != nil && !last.isFull() {
		return last, nil
	}
	var h indexHeader
	if last != nil {
		h = last.head()
	}
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return nil, fmt.Errorf("make %q: %w", s.dir, err)
	}
	path := filepath.Join(s.dir, s.newName(time.Now()))
	region, err := s.fs.OpenRegion(path, indexFileSize(s.slotNum, s.entryLimit), true)
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", path, err)
	}
	f := newMappedFile(s.fs, region, 0, s.logger)
	x, err := createIndexFile(f, s.slotNum, s.entryLimit, h.endPhyOffset, h.endTimestamp)
	if err != nil {
		return nil, errors.Join(err, f.retire())
	}
	s.append(x)
	return x, nil
}

// newName is later than all there are, also when the clock was set back: names order the files.
func (s *indexService) newName(now time.Time) string {
	name := indexName(now)
	last := s.last()
	for last != nil && name <= filepath.Base(last.file.path()) {
		now = now.Add(time.Millisecond)
		if later, err := time.ParseInLocation(indexNameLayout, dotted(filepath.Base(last.file.path())), time.Local); err == nil && later.After(now) {
			now = later
		}
		name = indexName(now)
	}
	return name
}

func indexName(t time.Time) string {
	text := t.Format(indexNameLayout)
	return text[:14] + text[15:]
}

func dotted(name string) string { return name[:14] + "." + name[14:] }

// buildIndex enters the keys of one record. A record that the file already passed is a repetition; one that was cut off
// between two of its keys is entered again, and queries drop the twin. prefix is the hash of "topic#".
// Source: IndexService#buildIndex.
func (s *indexService) buildIndex(d *dispatchRequest, prefix int32) error {
	if d.uniqKey == nil && d.keys == nil || d.transaction() == message.FlagTransactionRollback {
		return nil
	}
	x, err := s.writable()
	if err != nil {
		return err
	}
	if d.offset() < x.header.endPhyOffset {
		return nil
	}
	if d.uniqKey != nil {
		if err := s.putKey(prefix, d.uniqKey, d); err != nil {
			return err
		}
	}
	for rest := d.keys; len(rest) > 0; {
		var key []byte
		key, rest, _ = bytes.Cut(rest, []byte(" "))
		if len(key) == 0 {
			continue
		}
		if err := s.putKey(prefix, key, d); err != nil {
			return err
		}
	}
	return nil
}

func (s *indexService) putKey(prefix int32, key []byte, d *dispatchRequest) error {
	hash := indexKeyHash(prefix, key)
	for {
		x, err := s.writable()
		if err != nil {
			return err
		}
		if done, err := x.putKey(hash, d.offset(), d.StoreTimestamp); done || err != nil {
			return err
		}
	}
}

// indexKeyHash is the hash of topic#key made positive. Source: IndexFile#indexKeyHashMethod.
func indexKeyHash(prefix int32, key []byte) int32 {
	hash := message.ExtendJavaHash(prefix, key)
	if hash < 0 {
		hash = -hash
	}
	return max(hash, 0) // the smallest int has no positive twin
}

// syncEntries makes durable what queries and recovery need, up to the entries there are now. Full files are sealed on
// the way; the result is the end time of the newest sealed one, 0 if none was.
func (s *indexService) syncEntries() (sealedTimestamp int64, err error) {
	files := s.files()
	for i, x := range files {
		if i < len(files)-1 {
			if x.sealed {
				continue
			}
			if err := x.seal(); err != nil {
				return 0, err
			}
			sealedTimestamp = x.head().endTimestamp
			continue
		}
		if err := x.syncEntries(); err != nil {
			return 0, err
		}
	}
	return sealedTimestamp, nil
}

// sealAll makes all files durable with their slots, for a clean stop.
func (s *indexService) sealAll() error {
	var errs []error
	for _, x := range s.files() {
		x.sealed = false
		errs = append(errs, x.seal())
	}
	return errors.Join(errs...)
}

// deleteExpired deletes the files whose entries all lie below minPhy, never the last one.
// Source: IndexService#deleteExpiredFile.
func (s *indexService) deleteExpired(minPhy PhyOffset) (int, error) {
	last := s.last()
	if files := s.files(); len(files) < 2 || files[0].head().endPhyOffset >= minPhy {
		return 0, nil
	}
	return s.remove(func(x *IndexFile) bool { return x != last && x.head().endPhyOffset < minPhy })
}

// close gives the mappings back and keeps the files; it returns how many are still lent.
func (s *indexService) close() (held int) {
	for _, x := range s.files() {
		if x.file.close() {
			held++
		}
	}
	s.snapshot.Store(&[]*IndexFile{})
	return held
}
