// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"slices"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var a, b Histogram
	for _, took := range []time.Duration{-time.Second, 0, Bounds[0], Bounds[0] + 1, time.Second} {
		a.Add(took, 1)
	}
	b.Add(time.Hour, 3)
	var s Snapshot
	a.AddTo(&s)
	b.AddTo(&s)
	last := len(s.AtMost) - 1
	if s.AtMost[0] != 3 || s.AtMost[1] != 4 || s.AtMost[last] != 5 || s.Count != 8 {
		t.Errorf("%+v; want 3 in the first, 4 in the second, 5 of all bounds, 8 in all", s)
	}
	if want := 2*Bounds[0] + 1 + time.Second + 3*time.Hour; s.Sum != want {
		t.Errorf("sum %v; want %v", s.Sum, want)
	}
	if !slices.IsSorted(Bounds[:]) {
		t.Error("bounds out of order")
	}
}

func TestClock(t *testing.T) {
	before := Now()
	at := time.Now()
	after := Now()
	if ns := Of(at); ns < before || ns > after {
		t.Errorf("Of(now)=%d; want %d to %d", ns, before, after)
	}
	if !Time(Of(at)).Equal(at) {
		t.Errorf("Time(Of(%v))=%v", at, Time(Of(at)))
	}
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Add(time.Duration(Now()), 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		time.Now()
	}
}

func BenchmarkAdd(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Add(20*time.Microsecond, 1)
	}
}
