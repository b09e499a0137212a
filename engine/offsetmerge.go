// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Two loopmq nodes that hold offsets of the same groups, a master and its slave, before and after a failover, agree
// without losing progress: each entry has, beside the offset, the number of times that it was set back or forgotten on
// purpose (its resets). More resets win; with as many, the greater offset. That is a maximum, so in whatever order and
// however often nodes hear of each other, they end with the same, and a group moves back only where somebody moved it
// (apache/rocketmq#1094). Somebody is a client or a tool that commits a smaller offset than the one stored, or who
// deletes the group or the topic.
//
// The resets travel in consumerOffset.json and in code 43's body as a member of its own, resetTable, which RocketMQ
// passes over. A body without it is a RocketMQ master's: its word replaces what is here, as in SlaveSynchronize.
//
// Where a group has no offset left on a topic, resets are kept for offsetResetsKept. Since when that is so travels with
// them, as goneTable: nodes forget them at about the same time, and none takes them over from another after that.
type offsetTables struct {
	offsets map[string]map[int32]int64 // topic@group → queue → offset
	resets  map[string]map[int32]int64 // likewise; what is not there was never reset
	gone    map[string]int64           // topic@group with resets and no offset → since when, ms
	// version is the sender's state, "" of a RocketMQ master.
	version string
	// joined is in a loopmq master's answer only: it takes offers of the slave that asked.
	joined bool
	// slaveSeen is in the file only: a loopmq slave follows this node.
	slaveSeen bool
}

// offsetVersionMember holds a loopmq node's state in code 43's body; a slave that names the state it knows, as the
// request's field of that name, gets no tables when it is the same.
const offsetVersionMember = "loopmqVersion"

// offsetNodeMember is the field that says which slave asks.
const offsetNodeMember = "loopmqNode"

// offsetJoinedMember is there, and true, when the logs of master and slave are one, so that the request's offer was taken.
const offsetJoinedMember = "loopmqJoined"

const slaveSeenMember = "loopmqSlave"

func newOffsetTables() offsetTables {
	return offsetTables{offsets: make(map[string]map[int32]int64), resets: make(map[string]map[int32]int64), gone: make(map[string]int64)}
}

func readOffsetTables(data []byte) (t offsetTables, err error) {
	t = newOffsetTables()
	r := newJSONReader(data)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "offsetTable":
			return r.readIntMaps(t.offsets)
		case "resetTable":
			return r.readIntMaps(t.resets)
		case "goneTable":
			return r.object(func(key []byte) (err error) {
				name := string(key)
				t.gone[name], err = r.int64()
				return err
			})
		case slaveSeenMember:
			t.slaveSeen, err = r.bool()
			return err
		case offsetVersionMember:
			t.version, err = r.text()
			return err
		case offsetJoinedMember:
			t.joined, err = r.bool()
			return err
		}
		return r.skip()
	})
	if err == nil {
		err = r.end()
	}
	return t, err
}

func (r *jsonReader) readIntMaps(into map[string]map[int32]int64) error {
	return r.object(func(key []byte) (err error) {
		name := string(key)
		into[name], err = r.readIntMap()
		return err
	})
}

// writeMembers writes the tables into an object that has begun.
func (t *offsetTables) writeMembers(w *jsonWriter) {
	if t.version != "" {
		w.strMember(offsetVersionMember, t.version)
	}
	if t.slaveSeen {
		w.boolMember(slaveSeenMember, true)
	}
	writeIntMaps(w, "offsetTable", t.offsets)
	if len(t.resets) > 0 {
		writeIntMaps(w, "resetTable", t.resets)
	}
	if len(t.gone) == 0 {
		return
	}
	w.key("goneTable")
	w.beginObject()
	for _, key := range slices.Sorted(maps.Keys(t.gone)) {
		w.intMember(key, t.gone[key])
	}
	w.endObject()
}

func writeIntMaps(w *jsonWriter, name string, tables map[string]map[int32]int64) {
	w.key(name)
	w.beginObject()
	for _, key := range slices.Sorted(maps.Keys(tables)) {
		w.key(key)
		writeIntMap(w, tables[key])
	}
	w.endObject()
}

// entry is the offset, −1 for none, and the resets of a queue.
func (t *offsetTables) entry(key string, queueID int32) (offset, resets int64) {
	offset, ok := t.offsets[key][queueID]
	if !ok {
		offset = -1
	}
	return offset, t.resets[key][queueID]
}

func newer(offset, resets, thanOffset, thanResets int64) bool {
	return resets > thanResets || resets == thanResets && offset > thanOffset
}

// each visits every entry of both tables.
func (t *offsetTables) each(f func(key string, queueID int32, offset, resets int64)) {
	for key, table := range t.offsets {
		for queueID := range table {
			offset, resets := t.entry(key, queueID)
			f(key, queueID, offset, resets)
		}
	}
	for key, table := range t.resets {
		for queueID, resets := range table {
			if _, ok := t.offsets[key][queueID]; !ok {
				f(key, queueID, -1, resets)
			}
		}
	}
}

// newerThan are the entries of t that other does not have, or has older.
func (t *offsetTables) newerThan(other *offsetTables) offsetTables {
	found := newOffsetTables()
	t.each(func(key string, queueID int32, offset, resets int64) {
		if theirs, theirResets := other.entry(key, queueID); newer(offset, resets, theirs, theirResets) {
			if offset >= 0 {
				putInt(found.offsets, key, queueID, offset)
			}
			if resets > 0 {
				putInt(found.resets, key, queueID, resets)
			}
			if since, ok := t.gone[key]; ok {
				found.gone[key] = since
			}
		}
	})
	return found
}

func (t *offsetTables) empty() bool { return len(t.offsets) == 0 && len(t.resets) == 0 }

func putInt(tables map[string]map[int32]int64, key string, queueID int32, n int64) {
	table := tables[key]
	if table == nil {
		table = make(map[int32]int64)
		tables[key] = table
	}
	table[queueID] = n
}

// Merge takes over what another loopmq node has newer. A master takes no offset beyond the end of its queue: messages
// that are sent later get those numbers. A slave's log may be behind its master's offsets; its end is nil.
func (m *ConsumerOffsetManager) Merge(t *offsetTables, end func(topic string, queueID int32) int64) {
	now := time.Now()
	t.each(func(key string, queueID int32, offset, resets int64) {
		topic, ok := m.acceptable(key, queueID, offset)
		since, gone := t.gone[key]
		if !ok || gone && offset < 0 && resetsExpired(since, now) {
			return
		}
		if end != nil && offset > 0 {
			offset = min(offset, end(topic, queueID))
		}
		s := m.shard([]byte(key))
		s.mu.Lock()
		defer s.mu.Unlock()
		mine, ok := s.tables[key][queueID]
		if !ok {
			mine = -1
		}
		before := s.gone[key]
		if newer(offset, resets, mine, s.resets[key][queueID]) {
			m.setLocked(s, key, queueID, offset, resets)
		}
		if _, goneHere := s.gone[key]; gone && goneHere {
			s.gone[key] = max(before, min(since, now.UnixMilli()))
		}
	})
}

// Replace takes over a RocketMQ master's table: what is in it replaces what is here, topic@group by topic@group, and what
// is not in it stays. Source: SlaveSynchronize#syncConsumerOffset.
func (m *ConsumerOffsetManager) Replace(t *offsetTables) {
	for key, table := range t.offsets {
		s := m.shard([]byte(key))
		s.mu.Lock()
		for queueID := range s.tables[key] {
			if _, ok := table[queueID]; !ok {
				m.setLocked(s, key, queueID, -1, s.resets[key][queueID]+1)
			}
		}
		for queueID, offset := range table {
			if _, ok := m.acceptable(key, queueID, offset); !ok {
				continue
			}
			resets := s.resets[key][queueID]
			mine, ok := s.tables[key][queueID]
			switch {
			case ok && mine == offset:
				continue
			case ok && offset < mine:
				resets++
			}
			m.setLocked(s, key, queueID, offset, resets)
		}
		s.mu.Unlock()
	}
}

// acceptable says whether a peer's entry can be one of a table.
func (m *ConsumerOffsetManager) acceptable(key string, queueID int32, offset int64) (topic string, ok bool) {
	topic, group, ok := splitOffsetKey(key)
	return topic, ok && queueID >= 0 && offset >= -1 && checkGroupName(group) == nil && checkTableTopicName(topic) == nil
}

// setLocked stores an entry; offset −1 removes it, and its resets stay, for a time, so that no other node brings it back.
func (m *ConsumerOffsetManager) setLocked(s *offsetShard, key string, queueID int32, offset, resets int64) {
	_, known := s.tables[key][queueID]
	_, reset := s.resets[key][queueID]
	switch {
	case offset >= 0 && !known && !m.roomForEntry(key):
		return
	case offset >= 0:
		putInt(s.tables, key, queueID, offset)
		delete(s.gone, key)
	case known:
		delete(s.tables[key], queueID)
		m.entries.Add(-1)
		if len(s.tables[key]) == 0 {
			delete(s.tables, key)
		}
	}
	if resets > 0 && (reset || m.roomForResets()) {
		putInt(s.resets, key, queueID, resets)
	}
	s.goneLocked(key)
	m.commits.Add(1)
}

// goneLocked notes since when a key has resets only.
func (s *offsetShard) goneLocked(key string) {
	if _, ok := s.gone[key]; !ok && len(s.tables[key]) == 0 && len(s.resets[key]) > 0 {
		s.gone[key] = time.Now().UnixMilli()
	}
}

func resetsExpired(since int64, now time.Time) bool {
	return now.UnixMilli()-since > offsetResetsKept.Milliseconds()
}

func (m *ConsumerOffsetManager) roomForResets() bool {
	if m.resets.Add(1) <= offsetEntriesMax {
		return true
	}
	m.resets.Add(-1)
	return false
}

func (m *ConsumerOffsetManager) roomForEntry(key string) bool {
	if m.entries.Add(1) <= offsetEntriesMax {
		return true
	}
	m.entries.Add(-1)
	m.fullOnce.Do(func() {
		m.b.logger.Error("offsets of further queues are not kept", "limit", offsetEntriesMax, "key", key)
	})
	return false
}

// sawSlave notes, for the next start, that a loopmq slave follows.
func (m *ConsumerOffsetManager) sawSlave() {
	if !m.slaveSeen.Swap(true) {
		m.commits.Add(1) // the file is to be written
	}
}

// version names the state of the tables, for a slave that asks whether it is still the same.
func (m *ConsumerOffsetManager) version() string {
	return fmt.Sprintf("%d-%d", m.startedAt, m.commits.Load())
}
