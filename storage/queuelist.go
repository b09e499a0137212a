// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// queueList is what queues there were when the store was closed, or a topic deleted, and how far they went. Queue files
// that vanish while the store is down leave no trace of their own, and the topic's messages would be numbered from 0
// again although the log still has those numbers. Java has no such file and does just that. It counts as long as no
// Java broker has written to the store since.
type queueList struct {
	End    PhyOffset    `json:"logEnd"` // all below was dispatched
	Queues queueOffsets `json:"queues"` // next offsets
	Lost   queueOffsets `json:"lost"`   // of queues that have neither files nor records: nothing to look for any more
}

type queueOffsets map[string]map[int32]QueueOffset

func (o queueOffsets) set(topic string, id int32, next QueueOffset) {
	if o[topic] == nil {
		o[topic] = map[int32]QueueOffset{}
	}
	o[topic][id] = next
}

func (s *MessageStore) queueListPath() string {
	return filepath.Join(s.Config().StorePathRootDir, "config", "consumeQueues.json")
}

// saveQueueList writes the present state.
func (s *MessageStore) saveQueueList() error {
	list := queueList{Queues: queueOffsets{}, Lost: queueOffsets{}}
	s.lostQueues.Range(func(key, next any) bool {
		list.Lost.set(key.(topicQueue).topic, key.(topicQueue).queueID, next.(QueueOffset))
		return true
	})
	for _, q := range s.queues.all() {
		_, next := q.bounds()
		list.Queues.set(q.topic, q.queueID, next)
	}
	list.End = PhyOffset(s.reput.offset.Load()) // after the queues: they have nothing from behind it
	return s.writeQueueList(list)
}

func (s *MessageStore) writeQueueList(list queueList) error {
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("list of queues: %w", err)
	}
	path := s.queueListPath()
	if err := s.fs.MkdirAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("list of queues: %w", err)
	}
	return s.fs.WriteFile(path, text)
}

// dropQueueList is called when the list no longer tells the truth.
func (s *MessageStore) dropQueueList() error {
	if err := s.fs.Remove(s.queueListPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list of queues: %w", err)
	}
	return nil
}

// loadQueueList returns an empty list when there is none, or it cannot be read: it is a second look, not a source.
func (s *MessageStore) loadQueueList() (list queueList) {
	text, err := s.fs.ReadFile(s.queueListPath())
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("list of queues is not used", "file", s.queueListPath(), "cause", err)
		}
		return queueList{}
	}
	return list
}

// lostBelow is the log offset from which queues have to be built again, because they have less below limit than they
// had; limit itself if none has. A queue that is gone altogether is looked for in all of the log.
func (l *queueList) lostBelow(limit, minPhy PhyOffset, s *MessageStore) PhyOffset {
	from := limit
	if l.End > limit {
		return from
	}
	for topic, queues := range l.Queues {
		for id, next := range queues {
			q := s.queues.find(topic, id)
			have, lost := QueueOffset(0), minPhy
			if q != nil && q.files.first() != nil {
				_, have = q.bounds()
				if last, ok := q.lastUnit(); ok {
					lost = max(minPhy, last.Offset+PhyOffset(last.Size))
				}
			}
			if have < next {
				s.logger.Warn("messages of a queue are missing, they are looked for in the log",
					"topic", topic, "queueId", id, "have", have, "want", next, "from", lost)
				from = min(from, lost)
			}
		}
	}
	return from
}
