// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"math/rand/v2"
	"testing"

	"loopmq/storage"
)

// Wherever two logs part, the comparison finds the very byte, in few questions.
func TestComparisonFindsWhereLogsPart(t *testing.T) {
	f := func(low, high, parted storage.PhyOffset) {
		t.Helper()
		c := newComparison(low, high)
		questions := 0
		for {
			from, to, done := c.next()
			if done {
				break
			}
			if from < low || to > high || from >= to || to-from > hashBlockSize {
				t.Fatalf("[%d, %d) parted at %d: asks for [%d, %d)", low, high, parted, from, to)
			}
			if questions++; questions > 60 {
				t.Fatalf("[%d, %d) parted at %d: no end of questions", low, high, parted)
			}
			c.answer(to <= parted)
		}
		if got := c.parted(); got != parted {
			t.Fatalf("[%d, %d) parted at %d: found %d", low, high, parted, got)
		}
	}
	f(0, 1, 0)
	f(0, 1, 1)
	f(0, hashBlockSize, 17)
	f(0, 3*hashBlockSize+1, 3*hashBlockSize)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		low := storage.PhyOffset(r.Int64N(1 << 40))
		high := low + 1 + storage.PhyOffset(r.Int64N(1<<r.IntN(38)))
		f(low, high, low+storage.PhyOffset(r.Int64N(int64(high-low)+1)))
	}
}
