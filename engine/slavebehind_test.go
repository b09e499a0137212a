// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"
	"time"
)

// A queue is logged once a minute, others beside it, and what is remembered is bounded.
func TestSlaveBehindIsSaidOnceAMinute(t *testing.T) {
	var s slaveBehind
	now := time.Unix(1_000, 0)
	f := func(topic string, queueID int32, after time.Duration, want bool) {
		t.Helper()
		if got := s.due(topic, queueID, now.Add(after)); got != want {
			t.Fatalf("%s/%d after %v: %v", topic, queueID, after, got)
		}
	}
	f("T", 0, 0, true)
	f("T", 0, time.Second, false)
	f("T", 1, time.Second, true)
	f("U", 0, 2*time.Second, true)
	f("T", 0, time.Minute, true)
	f("T", 0, 2*time.Minute-time.Nanosecond, false)
	for i := range 2 * behindQueuesMax {
		s.due(fmt.Sprint(i), 0, now.Add(3*time.Minute))
	}
	if len(s.said) > behindQueuesMax {
		t.Fatalf("%d queues are remembered", len(s.said))
	}
	f("V", 0, 3*time.Minute, false)
	f("V", 0, 4*time.Minute, true)
}
