// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"
	"time"
)

func TestFlushTimes(t *testing.T) {
	s := &MessageStore{log: &CommitLog{}}
	times := &s.log.counters.flushTimes
	for _, took := range []time.Duration{0, FlushTimeBounds[0], FlushTimeBounds[0] + 1, time.Second, time.Hour} {
		times.add(took)
	}
	got := s.FlushTimes()
	if got[0] != 2 || got[1] != 3 || got[len(got)-2] != 4 || got[len(got)-1] != 4 {
		t.Fatalf("FlushTimes()=%v; want 2 in the first, 3 in the second, 4 at most a second, the hour in none", got)
	}
}
