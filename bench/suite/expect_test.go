// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"testing"
	"time"

	"loopmq/bench/peer"
	"loopmq/bench/proc"
)

// The sets take as long as their targets in the Makefile say.
func TestExpectedTimes(t *testing.T) {
	ours, java := Subject{Flavour: proc.Loopmq{}}, Subject{Flavour: peer.Broker{}}
	f := func(name string, p Plan, low, high time.Duration) {
		t.Helper()
		p.LogMax = 16 << 30
		if got := p.Expect(); got < low || got > high {
			t.Errorf("%s takes %v; want %v to %v", name, got, low, high)
		}
		var sum time.Duration
		for _, row := range p.Rows {
			one := p.ExpectRow(row)
			if one <= 0 {
				t.Errorf("%s: %s takes %v", name, row.Name, one)
			}
			sum += one
		}
		if sum != p.Expect() {
			t.Errorf("%s: the rows take %v, all of it %v", name, sum, p.Expect())
		}
	}
	f("make bench", Plan{Rows: Alone(), Subjects: []Subject{ours}, Rounds: 2, Warmup: time.Second, Duration: 6 * time.Second}, 4*time.Minute, 6*time.Minute)
	f("make bench-peer", Plan{Rows: Peers(), Subjects: []Subject{ours, java, java, ours}, Rounds: 3, Warmup: 2 * time.Second, Duration: 6 * time.Second, Settle: 15 * time.Second}, 50*time.Minute, 70*time.Minute)
	f("scaling", Plan{Rows: Scaling(), Subjects: []Subject{ours}, Rounds: 3, Warmup: 2 * time.Second, Duration: 8 * time.Second}, 3*time.Minute, 20*time.Minute)
}
