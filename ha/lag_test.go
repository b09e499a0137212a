// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"
	"time"

	"loopmq/storage"
)

func TestLag(t *testing.T) {
	var l lagClock
	began := time.Unix(1000, 0)
	for i := range 2 * lagSamples {
		l.sample(began.Add(time.Duration(i)*time.Second), storage.PhyOffset(i*10))
		l.sample(began.Add(time.Duration(i)*time.Second+time.Millisecond), 1<<40) // too soon
	}
	now := began.Add((2*lagSamples - 1) * time.Second)
	f := func(offset storage.PhyOffset, want time.Duration) {
		t.Helper()
		if got := l.lag(now, offset); got != want {
			t.Fatalf("lag of %d: %v; want %v", offset, got, want)
		}
	}
	end := storage.PhyOffset((2*lagSamples - 1) * 10)
	f(end, 0)
	f(end+5, 0)
	f(end-1, 0)
	f(end-10, 0)
	f(end-11, time.Second)
	f(end-100, 9*time.Second)
	f(0, (lagSamples-1)*time.Second)
}
