// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// namespaceOrderTopicConfig holds, by topic, the "broker:queues;…" lists of order topics.
const namespaceOrderTopicConfig = "ORDER_TOPIC_CONFIG"

const (
	// kvEntriesMax bounds the KV table over all namespaces, an empty one counted too; put refuses beyond it.
	kvEntriesMax = 100_000
	// kvBytesMax bounds it as JSON: a namespace goes out in one frame, order topics to each broker that registers.
	kvBytesMax = 12 << 20
)

// kvTable is an immutable namespace → key → value table.
type kvTable struct {
	ConfigTable map[string]map[string]string `json:"configTable"`
}

func (t *kvTable) get(namespace, key string) string { return t.ConfigTable[namespace][key] }

// encodeNamespace writes {"table":{…}}; nil when the namespace is not there.
func (t *kvTable) encodeNamespace(namespace string) []byte {
	table, ok := t.ConfigTable[namespace]
	if !ok {
		return nil
	}
	return append(appendObject([]byte(`{"table":`), table, appendString), '}')
}

// entries counts a namespace without keys too: the last order topic that is deleted leaves one, and so brokers learn of it.
func (t *kvTable) entries() (n int) {
	for _, table := range t.ConfigTable {
		n += max(1, len(table))
	}
	return n
}

func (t *kvTable) jsonSize() (n int) {
	var buf []byte
	size := func(s string) int {
		buf = appendString(buf[:0], s)
		return len(buf) + 1
	}
	for namespace, table := range t.ConfigTable {
		n += size(namespace) + len(`{},`)
		for key, value := range table {
			n += size(key) + size(value)
		}
	}
	return n
}

// KVConfigManager is the KV table and its file. Any goroutine reads; changes write the file before they are seen, so
// they are for a lane. Source: KVConfigManager.
type KVConfigManager struct {
	path string // "" keeps nothing

	changes sync.Mutex // one change at a time, file write included
	table   atomic.Pointer[kvTable]
}

// loadKVConfig reads the file, or the one before it when the file is damaged; with both damaged it fails rather than
// start with an empty table.
func loadKVConfig(path string) (m *KVConfigManager, warning error, err error) {
	m = &KVConfigManager{path: path}
	m.table.Store(&kvTable{})
	if path == "" {
		return m, nil, nil
	}
	table, err := readKVFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		table, err = readKVFile(path + ".bak")
		if errors.Is(err, fs.ErrNotExist) {
			return m, nil, nil
		}
	}
	if err != nil {
		damaged := err
		if table, err = readKVFile(path + ".bak"); err != nil {
			return nil, nil, fmt.Errorf("kv config: %w; and its backup: %w", damaged, err)
		}
		warning = fmt.Errorf("kv config: %w; the backup is used", damaged)
		if err := restoreFile(path); err != nil {
			return nil, nil, fmt.Errorf("kv config: restore the backup: %w", err)
		}
	}
	m.table.Store(table)
	return m, warning, nil
}

func readKVFile(path string) (*kvTable, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var table kvTable
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	return &table, nil
}

// Put sets a value and makes it durable.
func (m *KVConfigManager) Put(namespace, key, value string) error {
	return m.change(func(t *kvTable) error {
		if t.entries() >= kvEntriesMax && t.get(namespace, key) == "" {
			return fmt.Errorf("the KV table is full: %d entries", kvEntriesMax)
		}
		before := t.jsonSize()
		if t.ConfigTable[namespace] == nil {
			t.ConfigTable[namespace] = make(map[string]string)
		}
		t.ConfigTable[namespace][key] = value
		if size := t.jsonSize(); size > kvBytesMax && size > before {
			return fmt.Errorf("the KV table is full: it would have %d bytes, the limit is %d", size, kvBytesMax)
		}
		return nil
	})
}

// Delete removes a key, if it is there.
func (m *KVConfigManager) Delete(namespace, key string) error {
	return m.change(func(t *kvTable) error {
		delete(t.ConfigTable[namespace], key)
		return nil
	})
}

func (m *KVConfigManager) change(apply func(*kvTable) error) error {
	m.changes.Lock()
	defer m.changes.Unlock()
	next := &kvTable{ConfigTable: make(map[string]map[string]string)}
	for namespace, table := range m.table.Load().ConfigTable {
		next.ConfigTable[namespace] = maps.Clone(table)
	}
	if err := apply(next); err != nil {
		return err
	}
	if m.path != "" {
		text, err := json.MarshalIndent(next, "", "\t")
		if err != nil {
			return err
		}
		if err := replaceFile(m.path, text); err != nil {
			return fmt.Errorf("kv config: %w", err)
		}
	}
	m.table.Store(next)
	return nil
}

// replaceFile makes text the durable content of path and keeps the version before as .bak. A crash at any point leaves
// one of the two whole.
func replaceFile(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, bak := path+".tmp", path+".bak"
	if err := writeSynced(tmp, text); err != nil {
		return err
	}
	if err := os.Rename(path, bak); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// restoreFile makes path the same as its backup, so that the next change cannot push a damaged file over a good backup.
func restoreFile(path string) error {
	text, err := os.ReadFile(path + ".bak")
	if err != nil {
		return err
	}
	if err := writeSynced(path+".tmp", text); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
