// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
)

const cowShards = 64

// cowMap is a map for event loops: get takes no lock, allocates nothing, and never waits for a writer. A writer copies
// the one shard of 64 that it changes.
type cowMap[V any] struct {
	seed   maphash.Seed
	shards [cowShards]cowShard[V]
}

type cowShard[V any] struct {
	mu      sync.Mutex // serializes writers
	entries atomic.Pointer[map[string]V]
}

func newCowMap[V any]() *cowMap[V] {
	m := &cowMap[V]{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].entries.Store(&map[string]V{})
	}
	return m
}

func (m *cowMap[V]) shard(key string) *cowShard[V] {
	return &m.shards[maphash.String(m.seed, key)%cowShards]
}

func (m *cowMap[V]) getBytes(key []byte) (v V, ok bool) {
	entries := *m.shards[maphash.Bytes(m.seed, key)%cowShards].entries.Load()
	v, ok = entries[string(key)]
	return v, ok
}

func (m *cowMap[V]) get(key string) (v V, ok bool) {
	v, ok = (*m.shard(key).entries.Load())[key]
	return v, ok
}

func (m *cowMap[V]) put(key string, v V) {
	m.shard(key).change(func(entries map[string]V) { entries[key] = v })
}

func (m *cowMap[V]) remove(key string) {
	m.shard(key).change(func(entries map[string]V) { delete(entries, key) })
}

// getOrPut returns the value of key, made by create if there is none.
func (m *cowMap[V]) getOrPut(key string, create func() V) V {
	if v, ok := m.get(key); ok {
		return v
	}
	var v V
	m.shard(key).change(func(entries map[string]V) {
		old, ok := entries[key]
		if !ok {
			old = create()
			entries[key] = old
		}
		v = old
	})
	return v
}

func (s *cowShard[V]) change(f func(map[string]V)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.entries.Load())
	f(next)
	s.entries.Store(&next)
}

// fill puts many entries at the price of one copy.
func (m *cowMap[V]) fill(entries map[string]V) {
	var parts [cowShards]map[string]V
	for key, v := range entries {
		i := maphash.String(m.seed, key) % cowShards
		if parts[i] == nil {
			parts[i] = make(map[string]V)
		}
		parts[i][key] = v
	}
	for i, part := range parts {
		if part != nil {
			m.shards[i].change(func(entries map[string]V) { maps.Copy(entries, part) })
		}
	}
}

// each calls f for the entries of one moment per shard until f returns false.
func (m *cowMap[V]) each(f func(string, V) bool) {
	for i := range m.shards {
		for key, v := range *m.shards[i].entries.Load() {
			if !f(key, v) {
				return
			}
		}
	}
}

func (m *cowMap[V]) all() map[string]V {
	all := make(map[string]V, m.len())
	for i := range m.shards {
		maps.Copy(all, *m.shards[i].entries.Load())
	}
	return all
}

func (m *cowMap[V]) len() int {
	n := 0
	for i := range m.shards {
		n += len(*m.shards[i].entries.Load())
	}
	return n
}
