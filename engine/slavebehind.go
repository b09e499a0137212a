// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"sync"
	"time"
)

const (
	// behindInterval is how often the same queue is logged.
	behindInterval = time.Minute
	// behindQueuesMax bounds the queues that are remembered for it; more are not logged.
	behindQueuesMax = 10_000
)

// slaveBehind remembers which queues' consumers were said to be ahead of this slave: they ask again at once, each time.
type slaveBehind struct {
	mu   sync.Mutex // guards said
	said map[behindQueue]time.Time
}

type behindQueue struct {
	topic   string
	queueID int32
}

// due says whether the queue is to be logged, and remembers that it was.
func (s *slaveBehind) due(topic string, queueID int32, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := behindQueue{topic, queueID}
	if last, ok := s.said[q]; ok && now.Sub(last) < behindInterval {
		return false
	}
	if len(s.said) >= behindQueuesMax {
		for old, last := range s.said {
			if now.Sub(last) >= behindInterval {
				delete(s.said, old)
			}
		}
		if len(s.said) >= behindQueuesMax {
			return false
		}
	}
	if s.said == nil {
		s.said = make(map[behindQueue]time.Time)
	}
	q.topic = strings.Clone(topic)
	s.said[q] = now
	return true
}
