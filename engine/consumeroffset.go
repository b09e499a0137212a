// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	offsetShards = 64
	// offsetEntriesMax bounds the queues for which offsets are kept, of all groups together, and those with resets.
	offsetEntriesMax = 1 << 20
	// offsetResetsKept is how long the resets of a group that has no offset on a topic any more are kept: they hold off
	// offsets of a node that was away when the topic or the group was deleted. One that is away for longer brings them back,
	// if it can follow at all: files of the log are kept for 72 h (fileReservedTime).
	offsetResetsKept = 7 * 24 * time.Hour
	// offsetVersionStep is after how many commits the table counts as changed for 5.x slaves. Source: BrokerConfig
	// (consumerOffsetUpdateVersionStep).
	offsetVersionStep = 500
	// offsetKeyBuffer holds any topic@group without the heap.
	offsetKeyBuffer = 2*groupLengthMax + 16
)

// ConsumerOffsetManager holds committed offsets by topic@group and queue; consumerOffset.json. All methods but Persist
// are for loops: memory only, one of 64 locks held for a map operation.
type ConsumerOffsetManager struct {
	b      *BrokerController
	file   *tableFile
	seed   maphash.Seed
	shards [offsetShards]offsetShard

	entries   atomic.Int64 // queues with an offset
	resets    atomic.Int64 // queues with resets
	slaveSeen atomic.Bool  // a loopmq slave has asked for the table, in this life or an earlier one
	commits   atomic.Int64
	saveMu    sync.Mutex   // held for a save: an older table does not replace a newer one
	saved     atomic.Int64 // commits that the file holds
	refused   atomic.Int64 // commits dropped at the table's limit
	lowered   atomic.Int64 // offsets brought back to the end of their queue
	fullOnce  sync.Once
	startedAt int64
}

type offsetShard struct {
	mu     sync.Mutex
	tables map[string]map[int32]int64 // topic@group → queue → offset
	resets map[string]map[int32]int64 // topic@group → queue → times set back or forgotten, see offsetTables
	gone   map[string]int64           // topic@group with resets and no offset → since when, ms
}

// newConsumerOffsetManager loads consumerOffset.json.
func newConsumerOffsetManager(b *BrokerController) (*ConsumerOffsetManager, error) {
	m := &ConsumerOffsetManager{
		b: b, file: b.tableFile("consumerOffset.json"), seed: maphash.MakeSeed(), startedAt: time.Now().UnixMilli(),
	}
	for i := range m.shards {
		m.shards[i].tables = make(map[string]map[int32]int64)
		m.shards[i].resets = make(map[string]map[int32]int64)
		m.shards[i].gone = make(map[string]int64)
	}
	_, err := m.file.load(func(data []byte) error {
		loaded, err := readOffsetTables(data)
		if err != nil {
			return err
		}
		for key, table := range loaded.offsets {
			m.shard([]byte(key)).tables[key] = table
			m.entries.Add(int64(len(table)))
		}
		m.slaveSeen.Store(loaded.slaveSeen)
		for key, table := range loaded.resets {
			s := m.shard([]byte(key))
			s.resets[key] = table
			m.resets.Add(int64(len(table)))
			if since, ok := loaded.gone[key]; ok && s.tables[key] == nil {
				s.gone[key] = since
			} else {
				s.goneLocked(key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *ConsumerOffsetManager) shard(key []byte) *offsetShard {
	return &m.shards[maphash.Bytes(m.seed, key)%offsetShards]
}

// offsetKey builds topic@group in buf. Source: ConsumerOffsetManager (TOPIC_GROUP_SEPARATOR).
func offsetKey[T ~string | ~[]byte](buf []byte, topic, group T) []byte {
	buf = append(buf[:0], topic...)
	buf = append(buf, '@')
	return append(buf, group...)
}

// splitOffsetKey is the way back; ok is false for a key that no topic and group made.
func splitOffsetKey(key string) (topic, group string, ok bool) {
	topic, group, ok = strings.Cut(key, "@")
	return topic, group, ok && topic != "" && group != "" && !strings.Contains(group, "@")
}

// Query returns -1 when nothing is stored.
func (m *ConsumerOffsetManager) Query(group, topic string, queueID int32) int64 {
	var buf [offsetKeyBuffer]byte
	return m.query(offsetKey(buf[:], topic, group), queueID)
}

// QueryBytes is Query for names in a frame.
func (m *ConsumerOffsetManager) QueryBytes(group, topic []byte, queueID int32) int64 {
	var buf [offsetKeyBuffer]byte
	return m.query(offsetKey(buf[:], topic, group), queueID)
}

func (m *ConsumerOffsetManager) query(key []byte, queueID int32) int64 {
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset, ok := s.tables[string(key)][queueID]; ok {
		return offset
	}
	return -1
}

// Commit stores an offset, backwards too: resets do that. What no topic, group or queue can be called is dropped, as
// are new queues at the table's limit.
func (m *ConsumerOffsetManager) Commit(group, topic string, queueID int32, offset int64) {
	if checkGroupName(group) == nil && checkTableTopicName(topic) == nil {
		var buf [offsetKeyBuffer]byte
		m.commit(offsetKey(buf[:], topic, group), queueID, offset)
	}
}

// CommitBytes is Commit for names in a frame, false if the offset was dropped; without allocation when the queue is known.
func (m *ConsumerOffsetManager) CommitBytes(group, topic []byte, queueID int32, offset int64) (kept bool) {
	if checkGroupName(group) != nil || len(topic) == 0 || len(topic) > derivedTopicLengthMax || !nameBytes(topic) {
		return false
	}
	var buf [offsetKeyBuffer]byte
	return m.commit(offsetKey(buf[:], topic, group), queueID, offset)
}

func (m *ConsumerOffsetManager) commit(key []byte, queueID int32, offset int64) (kept bool) {
	if queueID < 0 || offset < 0 {
		return false
	}
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	table := s.tables[string(key)]
	before, known := table[queueID]
	if !known || offset < before {
		resets := s.resets[string(key)][queueID]
		if known {
			resets++
		}
		m.setLocked(s, string(key), queueID, offset, resets)
		if _, known = s.tables[string(key)][queueID]; !known {
			m.refused.Add(1)
		}
		return known
	}
	table[queueID] = offset
	m.commits.Add(1)
	return true
}

// OffsetsOf returns a copy of the offsets of one group on one topic.
func (m *ConsumerOffsetManager) OffsetsOf(group, topic string) map[int32]int64 {
	var buf [offsetKeyBuffer]byte
	key := offsetKey(buf[:], topic, group)
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tables[string(key)])
}

// lowerTo brings offsets beyond the end of their queue back to it, at the start. A power cut can take messages that were
// consumed already; those sent later get their numbers, and a group whose offset is ahead would never see them. (Java
// leaves it ahead.) It counts as a reset, so that no slave brings the offset back.
func (m *ConsumerOffsetManager) lowerTo(end func(topic string, queueID int32) int64) { m.lower(end, 1) }

// lowerToCut does so after a slave's log was cut: its readers had seen messages that have disappeared. It is no reset: what
// the master says of the log that goes on there counts for more.
func (m *ConsumerOffsetManager) lowerToCut(end func(topic string, queueID int32) int64) {
	m.lower(end, 0)
}

func (m *ConsumerOffsetManager) lower(end func(topic string, queueID int32) int64, reset int64) {
	lowered := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for key, table := range s.tables {
			topic, _, ok := splitOffsetKey(key)
			for queueID, offset := range table {
				if last := end(topic, queueID); ok && offset > last {
					m.setLocked(s, key, queueID, last, s.resets[key][queueID]+reset)
					lowered++
				}
			}
		}
		s.mu.Unlock()
	}
	if lowered > 0 {
		m.lowered.Add(int64(lowered))
		m.b.logger.Warn("consumer offsets beyond the end of their queue, lowered", "queues", lowered)
	}
}

// Clone copies all offsets of one group on topic to another. Source: ConsumerOffsetManager#cloneOffset.
func (m *ConsumerOffsetManager) Clone(srcGroup, destGroup, topic string) {
	for queueID, offset := range m.OffsetsOf(srcGroup, topic) {
		m.Commit(destGroup, topic, queueID, offset)
	}
}

// TopicsOf are the topics on which group has offsets, sorted.
func (m *ConsumerOffsetManager) TopicsOf(group string) []string {
	return m.names(func(topic, g string) (string, bool) { return topic, g == group })
}

// GroupsOf are the groups with offsets on topic, sorted.
func (m *ConsumerOffsetManager) GroupsOf(topic string) []string {
	return m.names(func(t, group string) (string, bool) { return group, t == topic })
}

func (m *ConsumerOffsetManager) names(want func(topic, group string) (string, bool)) (names []string) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for key := range s.tables {
			if topic, group, ok := splitOffsetKey(key); ok {
				if name, ok := want(topic, group); ok {
					names = append(names, name)
				}
			}
		}
		s.mu.Unlock()
	}
	slices.Sort(names)
	return names
}

// RemoveGroup forgets all offsets of group.
func (m *ConsumerOffsetManager) RemoveGroup(group string) {
	m.remove(func(_, g string) bool { return g == group })
}

// RemoveTopic forgets all offsets on topic, so that one of that name created later starts afresh. (4.x keeps them, and
// consumers of the new topic begin beyond its end.)
func (m *ConsumerOffsetManager) RemoveTopic(topic string) {
	m.remove(func(t, _ string) bool { return t == topic })
}

func (m *ConsumerOffsetManager) remove(gone func(topic, group string) bool) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for key, table := range s.tables {
			if topic, group, ok := splitOffsetKey(key); ok && gone(topic, group) {
				for queueID := range table {
					m.setLocked(s, key, queueID, -1, s.resets[key][queueID]+1)
				}
			}
		}
		s.mu.Unlock()
	}
}

// Persist writes the table, if it changed. It copies one shard at a time, so a commit waits for a 64th of the table.
func (m *ConsumerOffsetManager) Persist() error {
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	commits := m.commits.Load()
	if commits == m.saved.Load() {
		return nil
	}
	tables := m.snapshot()
	tables.slaveSeen = m.slaveSeen.Load()
	w := jsonWriter{pretty: true}
	w.beginObject()
	tables.writeMembers(&w)
	w.endObject()
	if err := m.file.save(w.b); err != nil {
		return err
	}
	m.saved.Store(commits)
	return nil
}

// encode is code 43's body, with members that are true. A peer that knows this very state gets no tables.
func (m *ConsumerOffsetManager) encode(known string, flags ...string) []byte {
	version := m.version() // before the tables: they hold at least this
	tables := offsetTables{version: version}
	if known != version {
		tables = m.snapshot()
		tables.version = version
	}
	var w jsonWriter
	w.beginObject()
	// A 5.x slave expects one; a 4.x one ignores it.
	w.key("dataVersion")
	DataVersion{Timestamp: m.startedAt, Counter: m.commits.Load() / offsetVersionStep}.writeTo(&w)
	for _, flag := range flags {
		w.boolMember(flag, true)
	}
	tables.writeMembers(&w)
	w.endObject()
	return w.b
}

// snapshot is a copy, one shard at a time. Resets that were kept long enough go with it.
func (m *ConsumerOffsetManager) snapshot() offsetTables { return m.snapshotAt(time.Now()) }

func (m *ConsumerOffsetManager) snapshotAt(now time.Time) offsetTables {
	t := newOffsetTables()
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for key, since := range s.gone {
			if resetsExpired(since, now) {
				m.resets.Add(-int64(len(s.resets[key])))
				delete(s.resets, key)
				delete(s.gone, key)
			}
		}
		maps.Copy(t.gone, s.gone)
		for key, table := range s.tables {
			t.offsets[key] = maps.Clone(table)
		}
		for key, table := range s.resets {
			t.resets[key] = maps.Clone(table)
		}
		s.mu.Unlock()
	}
	return t
}

// writeIntMap writes {0:5,1:7}.
func writeIntMap(w *jsonWriter, m map[int32]int64) {
	w.beginObject()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.intKey(int64(k))
		w.int(m[k])
	}
	w.endObject()
}

func (r *jsonReader) readIntMap() (map[int32]int64, error) {
	m := make(map[int32]int64)
	err := r.object(func(key []byte) error {
		k, err := newJSONReader(key).int32()
		if err != nil {
			return err
		}
		m[k], err = r.int64()
		return err
	})
	return m, err
}
