// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync/atomic"
	"time"
)

// FlushTimeBounds are the upper bounds of the counts of MessageStore.FlushTimes.
var FlushTimeBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// flushTimes counts flushes of the log by how long they took.
type flushTimes [len(FlushTimeBounds) + 1]atomic.Int64

func (f *flushTimes) add(took time.Duration) {
	i := 0
	for i < len(FlushTimeBounds) && took > FlushTimeBounds[i] {
		i++
	}
	f[i].Add(1)
}

// FlushTimes are the flushes of the log since start that took no longer than each of FlushTimeBounds.
func (s *MessageStore) FlushTimes() (atMost [len(FlushTimeBounds)]int64) {
	var sum int64
	for i := range FlushTimeBounds {
		sum += s.log.counters.flushTimes[i].Load()
		atMost[i] = sum
	}
	return atMost
}
