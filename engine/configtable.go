// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// tableBytesMax bounds the JSON of a table, which travels in one frame of at most 16 MiB: to slaves, to tools, and to
// name servers, where other members come on top.
const tableBytesMax = 12 << 20

var errTableFull = errors.New("the table is at its limit: its JSON would no longer fit into one frame")

// DataVersion says whether two tables differ. Source: DataVersion (stateVersion: 5.x).
type DataVersion struct {
	StateVersion int64
	Timestamp    int64
	Counter      int64
}

// next follows DataVersion#nextVersion.
func (v DataVersion) next(now time.Time) DataVersion {
	v.Timestamp = now.UnixMilli()
	v.Counter++
	return v
}

func (v DataVersion) writeTo(w *jsonWriter) {
	w.beginObject()
	w.intMember("counter", v.Counter)
	if v.StateVersion != 0 {
		w.intMember("stateVersion", v.StateVersion)
	}
	w.intMember("timestamp", v.Timestamp)
	w.endObject()
}

func (r *jsonReader) readDataVersion() (v DataVersion, err error) {
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "counter":
			v.Counter, err = r.int64()
		case "timestamp":
			v.Timestamp, err = r.int64()
		case "stateVersion":
			v.StateVersion, err = r.int64()
		default:
			err = r.skip()
		}
		return err
	})
	return v, err
}

// configTable is a table of immutable values by name with a DataVersion and a file: what topics and groups share.
// Reading is for loops. change writes and syncs the file before anyone sees the result; putSoon is for loops: visible
// at once, written by the admin worker.
type configTable[V any] struct {
	entries *cowMap[V]
	file    *tableFile
	// encode writes the whole table; sizeOf is about what one entry adds to its JSON.
	encode func(w *jsonWriter, entries map[string]V, version DataVersion, extra map[string]string)
	sizeOf func(name string, v V) int
	// submit hands work to the admin worker, false if it cannot take it; changed is told after each change.
	submit  func(func()) bool
	changed func()

	mu      sync.Mutex // guards version, bytes and their agreement with entries; never held over I/O
	version DataVersion
	bytes   int
	extra   map[string]string // members beside the table that the file had, kept as JSON; not changed after load

	persistMu sync.Mutex // held while the file is written; taken before mu
	// dirty says that the table holds what the file does not; queued that the admin worker will look at it.
	dirty, queued atomic.Bool
}

func newConfigTable[V any](file *tableFile) *configTable[V] {
	return &configTable[V]{
		entries: newCowMap[V](), file: file,
		version: DataVersion{Timestamp: time.Now().UnixMilli()},
		submit:  func(func()) bool { return false },
		changed: func() {},
	}
}

// adopt puts what a file held, without a limit: it was there before.
func (t *configTable[V]) adopt(entries map[string]V, version DataVersion, extra map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, v := range entries {
		if old, ok := t.entries.get(name); ok {
			t.bytes -= t.sizeOf(name, old)
		}
		t.bytes += t.sizeOf(name, v)
	}
	t.entries.fill(entries)
	t.extra = extra
	if version != (DataVersion{}) {
		t.version = version
	}
}

// all is a consistent snapshot.
func (t *configTable[V]) all() (map[string]V, DataVersion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries.all(), t.version
}

// change puts and removes entries, durably, as one step: when it fails, nothing has changed.
func (t *configTable[V]) change(put map[string]V, remove ...string) (err error) {
	t.persistMu.Lock()
	defer t.persistMu.Unlock()
	defer t.cleanUnless(&err)()
	entries, version := t.all()
	growth := t.growth(entries, put, remove)
	if growth > 0 && t.size()+growth > tableBytesMax {
		return errTableFull
	}
	maps.Copy(entries, put)
	for _, name := range remove {
		delete(entries, name)
	}
	now := time.Now()
	if err := t.write(entries, version.next(now)); err != nil {
		return err
	}
	t.mu.Lock()
	t.entries.fill(put)
	for _, name := range remove {
		t.entries.remove(name)
	}
	t.bytes += growth
	t.version = t.version.next(now)
	t.mu.Unlock()
	t.changed()
	return nil
}

// replace takes over another node's table, durably and whole: what is not in it goes.
func (t *configTable[V]) replace(table map[string]V, version DataVersion) (err error) {
	t.persistMu.Lock()
	defer t.persistMu.Unlock()
	defer t.cleanUnless(&err)()
	if err := t.write(table, version); err != nil {
		return err
	}
	t.mu.Lock()
	t.bytes = 0
	for name, v := range table {
		t.bytes += t.sizeOf(name, v)
	}
	for name := range t.entries.all() {
		if _, ok := table[name]; !ok {
			t.entries.remove(name)
		}
	}
	t.entries.fill(table)
	t.version = version
	t.mu.Unlock()
	t.changed()
	return nil
}

// cleanUnless takes the mark off for a write that holds the whole table; what it returns puts it back if there was an error.
func (t *configTable[V]) cleanUnless(err *error) (after func()) {
	wasDirty := t.dirty.Swap(false)
	return func() {
		if wasDirty && *err != nil {
			t.dirty.Store(true)
		}
	}
}

func (t *configTable[V]) growth(entries, put map[string]V, remove []string) int {
	growth := 0
	for name, v := range put {
		growth += t.sizeOf(name, v)
		if old, ok := entries[name]; ok {
			growth -= t.sizeOf(name, old)
		}
	}
	for _, name := range remove {
		if old, ok := entries[name]; ok {
			growth -= t.sizeOf(name, old)
		}
	}
	return growth
}

func (t *configTable[V]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// putSoon puts v unless name is there, and returns what the table then holds; false at the table's limit. It is for
// event loops: the file is written later, so a crash right after can forget the entry.
func (t *configTable[V]) putSoon(name string, v V) (V, bool) {
	t.mu.Lock()
	if old, ok := t.entries.get(name); ok {
		t.mu.Unlock()
		return old, true
	}
	size := t.sizeOf(name, v)
	if t.bytes+size > tableBytesMax {
		t.mu.Unlock()
		return v, false
	}
	t.entries.put(name, v)
	t.bytes += size
	t.version = t.version.next(time.Now())
	t.dirty.Store(true)
	t.mu.Unlock()
	t.persistSoon()
	t.changed()
	return v, true
}

// persistSoon asks the admin worker to write what is not in the file yet. It may be called again for what a full lane
// refused.
func (t *configTable[V]) persistSoon() {
	if !t.dirty.Load() || !t.queued.CompareAndSwap(false, true) {
		return
	}
	if !t.submit(func() {
		t.queued.Store(false)
		if err := t.persist(); err != nil {
			t.file.logger.Error("table not saved, will be tried again", "file", t.file.path, "err", err)
		}
	}) {
		t.queued.Store(false)
	}
}

// persist writes the table if the file is behind it.
func (t *configTable[V]) persist() error {
	t.persistMu.Lock()
	defer t.persistMu.Unlock()
	if !t.dirty.Swap(false) {
		return nil
	}
	entries, version := t.all()
	if err := t.write(entries, version); err != nil {
		t.dirty.Store(true)
		return err
	}
	return nil
}

func (t *configTable[V]) write(entries map[string]V, version DataVersion) error {
	w := jsonWriter{pretty: true}
	t.encode(&w, entries, version, t.extra)
	return t.file.save(w.b)
}
