// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"loopmq/storage/vfs"
)

// consumeQueueLoaders bounds the files that load opens at a time.
const consumeQueueLoaders = 4

// consumeQueueStore is the table of all queues, and the directory consumequeue/<topic>/<queueId>.
// Source: DefaultMessageStore#consumeQueueTable.
type consumeQueueStore struct {
	fs       vfs.FS
	dir      string
	fileSize int64
	names    unsyncedNames
	logger   *slog.Logger

	mu     sync.RWMutex // guards topics; a queue is made under it, so that each directory has one owner
	topics map[string]map[int32]*ConsumeQueue
}

func newConsumeQueueStore(fsys vfs.FS, dir string, fileSize int64, logger *slog.Logger) *consumeQueueStore {
	return &consumeQueueStore{fs: fsys, dir: dir, fileSize: fileSize, logger: logger, topics: map[string]map[int32]*ConsumeQueue{}}
}

// load opens all queues there are. Names that are no queue ids are left alone and named in a warning.
func (s *consumeQueueStore) load() error {
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return fmt.Errorf("make %q: %w", s.dir, err)
	}
	topics, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list %q: %w", s.dir, err)
	}
	type place struct {
		topic string
		id    int32
	}
	var places []place
	var strangers []string
	for _, topic := range topics {
		if !topic.Dir {
			strangers = append(strangers, topic.Name)
			continue
		}
		queues, err := s.fs.List(filepath.Join(s.dir, topic.Name))
		if err != nil {
			return fmt.Errorf("list queues of topic %q: %w", topic.Name, err)
		}
		for _, queue := range queues {
			id, ok := parseQueueID(queue.Name)
			if !ok || !queue.Dir {
				strangers = append(strangers, filepath.Join(topic.Name, queue.Name))
				continue
			}
			places = append(places, place{topic.Name, id})
		}
	}
	if strangers != nil {
		s.logger.Warn("names that are not queues are left alone", "dir", s.dir, "names", strangers)
	}
	return forEach(consumeQueueLoaders, places, func(p place) error {
		q, err := openConsumeQueue(s.fs, s.queueDir(p.topic, p.id), p.topic, p.id, s.fileSize, &s.names, s.logger)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.addLocked(q)
		return nil
	})
}

// forEach runs f over items on a few goroutines and joins the errors, faults in mapped files among them.
func forEach[T any](workers int, items []T, f func(T) error) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			defer restoreFaults(debug.SetPanicOnFault(true))
			defer catchFault(&errs[w])
			for i := w; i < len(items) && errs[w] == nil; i += workers {
				errs[w] = f(items[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func parseQueueID(name string) (int32, bool) {
	id, err := strconv.ParseInt(name, 10, 32)
	return int32(id), err == nil && id >= 0 && strconv.FormatInt(id, 10) == name
}

func (s *consumeQueueStore) queueDir(topic string, id int32) string {
	return filepath.Join(s.dir, topic, strconv.Itoa(int(id)))
}

func (s *consumeQueueStore) addLocked(q *ConsumeQueue) {
	queues := s.topics[q.topic]
	if queues == nil {
		queues = map[int32]*ConsumeQueue{}
		s.topics[q.topic] = queues
	}
	queues[q.queueID] = q
}

// find is the queue, nil if there is none.
func (s *consumeQueueStore) find(topic string, id int32) *ConsumeQueue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.topics[topic][id]
}

// findOrCreate makes the queue if there is none. Only the dispatcher makes queues: a reader that did would leave
// empty directories behind for every misspelt topic.
func (s *consumeQueueStore) findOrCreate(topic []byte, id int32) (*ConsumeQueue, error) {
	s.mu.RLock()
	q := s.topics[string(topic)][id]
	s.mu.RUnlock()
	if q != nil {
		return q, nil
	}
	name := string(topic)
	if !isQueueName(topic, id) {
		return nil, fmt.Errorf("queue %d of topic %q has no place in the file system: %w", id, name, errNoSuchQueue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.topics[name][id]; q != nil {
		return q, nil
	}
	q, err := openConsumeQueue(s.fs, s.queueDir(name, id), name, id, s.fileSize, &s.names, s.logger)
	if err != nil {
		return nil, err
	}
	// Queues are loaded at start, so files found now are what a deletion could not remove.
	if err := q.files.destroy(); err != nil {
		return nil, err
	}
	s.addLocked(q)
	return q, nil
}

// isQueueName says whether topic and queue id can name a directory.
func isQueueName(topic []byte, id int32) bool {
	name := string(topic)
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && id >= 0
}

// renew puts an empty queue in the place of q, whose files go.
func (s *consumeQueueStore) renew(q *ConsumeQueue) (*ConsumeQueue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Out of the table first: when its files cannot be removed, whoever looks next must not find a queue that is gone.
	delete(s.topics[q.topic], q.queueID)
	if err := q.delete(); err != nil {
		return nil, fmt.Errorf("delete queue %d of topic %q: %w", q.queueID, q.topic, err)
	}
	next, err := openConsumeQueue(s.fs, s.queueDir(q.topic, q.queueID), q.topic, q.queueID, s.fileSize, &s.names, s.logger)
	if err != nil {
		return nil, err
	}
	s.addLocked(next)
	return next, nil
}

// errNoSuchQueue marks a record whose topic or queue id cannot name a directory.
var errNoSuchQueue = errors.New("storage: impossible queue")

// all is a snapshot of the queues.
func (s *consumeQueueStore) all() []*ConsumeQueue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*ConsumeQueue
	for _, queues := range s.topics {
		for _, q := range queues {
			all = append(all, q)
		}
	}
	return all
}

// topicQueues is a snapshot of the topics with their queue ids, in order.
func (s *consumeQueueStore) topicQueues() map[string][]int32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := make(map[string][]int32, len(s.topics))
	for topic, queues := range s.topics {
		for id := range queues {
			ids[topic] = append(ids[topic], id)
		}
		slices.Sort(ids[topic])
	}
	return ids
}

// deleteTopic takes the topic's queues out of the table and deletes their files. Loans of them stay good; whoever
// still writes to one is told that it is gone. The lock is held throughout, so that a queue of the same name that is
// made meanwhile finds the directory free.
func (s *consumeQueueStore) deleteTopic(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := s.topics[topic]
	if queues == nil {
		return nil
	}
	delete(s.topics, topic)
	var errs []error
	for _, q := range queues {
		errs = append(errs, q.delete())
	}
	errs = append(errs, s.fs.RemoveAll(filepath.Join(s.dir, topic)), syncNames(s.fs, s.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete queues of topic %q: %w", topic, err)
	}
	return nil
}

// close gives the mappings back and keeps the files; it returns how many files are still lent.
func (s *consumeQueueStore) close() (held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queues := range s.topics {
		for _, q := range queues {
			q.gone.Store(true)
			held += q.files.close()
		}
	}
	s.topics = map[string]map[int32]*ConsumeQueue{}
	return held
}
