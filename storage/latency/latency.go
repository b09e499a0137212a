// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"sync/atomic"
	"time"
)

// start is the zero of Now. It carries a monotonic reading, so what is reckoned from it does not follow the wall clock.
var start = time.Now()

// Now is monotonic, in nanoseconds since the process began. time.Now reads the wall clock too.
func Now() int64 { return int64(time.Since(start)) }

// Of is t on the clock of Now.
func Of(t time.Time) int64 { return int64(t.Sub(start)) }

// Time is the moment at which Now was ns.
func Time(ns int64) time.Time { return start.Add(time.Duration(ns)) }

// Bounds are the upper bounds of a Histogram's buckets; what took longer is in one more.
var Bounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

// Histogram counts by how long something took. Zero is an empty one; any goroutine may add.
type Histogram struct {
	buckets [len(Bounds) + 1]atomic.Int64
	nanos   atomic.Int64
}

// Add counts n things that each took as long; less than nothing counts as nothing.
func (h *Histogram) Add(took time.Duration, n int64) {
	i := 0
	for i < len(Bounds) && took > Bounds[i] {
		i++
	}
	h.buckets[i].Add(n)
	if took > 0 {
		h.nanos.Add(int64(took) * n)
	}
}

// Snapshot is what Histograms held at one look, which several may be added up in.
type Snapshot struct {
	AtMost [len(Bounds)]int64 // those that took no longer than each bound
	Count  int64
	Sum    time.Duration
}

// AddTo adds what h holds to s.
func (h *Histogram) AddTo(s *Snapshot) {
	var sum int64
	for i := range h.buckets {
		sum += h.buckets[i].Load()
		if i < len(Bounds) {
			s.AtMost[i] += sum
		}
	}
	s.Count += sum
	s.Sum += time.Duration(h.nanos.Load())
}

// Count is how much has been added.
func (h *Histogram) Count() (n int64) {
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}
