// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
)

// Sizes is a distribution of body sizes.
type Sizes struct {
	sizes []int
	until []int64 // cumulated weights
	low   int     // with until empty: uniform from low to high, both included
	high  int
}

// ParseSizes reads 1024, 100-2000, or 128:70,1024:25,65536:5.
func ParseSizes(text string) (*Sizes, error) {
	fail := func() (*Sizes, error) {
		return nil, fmt.Errorf("body %q: want a size, a range such as 100-2000, or sizes with weights such as 128:70,1024:30; sizes up to %d", text, bodyMax)
	}
	size := func(s string) (int, bool) {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		return n, err == nil && 0 < n && n <= bodyMax
	}
	if n, ok := size(text); ok {
		return &Sizes{low: n, high: n}, nil
	}
	if a, b, ok := strings.Cut(text, "-"); ok {
		low, okLow := size(a)
		high, okHigh := size(b)
		if !okLow || !okHigh || low > high {
			return fail()
		}
		return &Sizes{low: low, high: high}, nil
	}
	s := &Sizes{low: bodyMax}
	total := int64(0)
	for part := range strings.SplitSeq(text, ",") {
		a, b, _ := strings.Cut(part, ":")
		n, ok := size(a)
		weight, err := strconv.ParseInt(strings.TrimSpace(b), 10, 32)
		if !ok || err != nil || weight <= 0 || len(s.sizes) == 1000 {
			return fail()
		}
		total += weight
		s.sizes, s.until = append(s.sizes, n), append(s.until, total)
		s.low, s.high = min(s.low, n), max(s.high, n)
	}
	return s, nil
}

func (s *Sizes) Min() int { return s.low }
func (s *Sizes) Max() int { return s.high }

// Next draws a size.
func (s *Sizes) Next(r *rand.Rand) int {
	switch {
	case s.low == s.high:
		return s.low
	case s.until == nil:
		return s.low + r.IntN(s.high-s.low+1)
	}
	at := r.Int64N(s.until[len(s.until)-1])
	return s.sizes[sort.Search(len(s.until), func(i int) bool { return at < s.until[i] })]
}
