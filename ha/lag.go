// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"sync"
	"time"

	"loopmq/storage"
)

const (
	// lagSampleInterval and lagSamples: how the end of the log moved in the last hour.
	lagSampleInterval = time.Second
	lagSamples        = 3600
)

// lagClock turns a slave's distance into time: how long ago the log's end was where the slave is now.
type lagClock struct {
	mu      sync.Mutex // guards the rest
	samples [lagSamples]lagSample
	next, n int
}

type lagSample struct {
	at  time.Time
	end storage.PhyOffset
}

// sample notes the end of the log, once in lagSampleInterval.
func (l *lagClock) sample(now time.Time, end storage.PhyOffset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > 0 && now.Sub(l.at(l.n-1).at) < lagSampleInterval {
		return
	}
	l.samples[l.next] = lagSample{now, end}
	l.next = (l.next + 1) % lagSamples
	l.n = min(l.n+1, lagSamples)
}

// at is the i-th oldest sample. Called with mu held.
func (l *lagClock) at(i int) *lagSample {
	return &l.samples[(l.next-l.n+i+lagSamples)%lagSamples]
}

// lag is how long the log has been longer than offset, exact to a sample; what is older than the oldest sample counts as
// that old.
func (l *lagClock) lag(now time.Time, offset storage.PhyOffset) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	low, high := 0, l.n // the first sample beyond offset
	for low < high {
		if mid := (low + high) / 2; l.at(mid).end > offset {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low == l.n {
		return 0
	}
	return now.Sub(l.at(low).at)
}
