// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"
	"slices"
)

// Spread is what a figure was over several runs.
type Spread struct {
	N                int
	Min, Median, Max float64
}

// SpreadOf is the spread of values; the median of an even number is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	return Spread{N: n, Min: sorted[0], Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Max: sorted[n-1]}
}

// Ratio is how a figure of one subject stands to that of the reference: the ratio of the medians, and the least and the
// largest ratio of two runs of the same round. The machine's slow changes (writeback, temperature, neighbours) hit both
// runs of a round, so the rounds' ratios spread less than the figures do.
type Ratio struct {
	Rounds           int
	Min, Median, Max float64
}

// RatioOf compares the figures by round. A round that lacks one of the two counts for the medians only.
func RatioOf(reference, subject map[int]float64) (Ratio, bool) {
	of, to := SpreadOf(values(subject)), SpreadOf(values(reference))
	if of.N == 0 || to.N == 0 || to.Median == 0 {
		return Ratio{}, false
	}
	r := Ratio{Min: math.Inf(1), Median: of.Median / to.Median, Max: math.Inf(-1)}
	for round, v := range subject {
		if w, ok := reference[round]; ok && w != 0 {
			r.Rounds++
			r.Min, r.Max = min(r.Min, v/w), max(r.Max, v/w)
		}
	}
	if r.Rounds == 0 {
		r.Min, r.Max = r.Median, r.Median
	}
	return r, true
}

func values(byRound map[int]float64) []float64 {
	var v []float64
	for _, x := range byRound {
		v = append(v, x)
	}
	return v
}

// Comparison is one piece of work, done by several subjects. The first of them is the reference.
type Comparison struct {
	Row      string
	Base     *Comparison // whose cost this one's is a multiple of; nil: none
	Subjects []*Subject
}

// Subject is a server in a comparison, with its runs.
type Subject struct {
	Name string
	Runs []*Result
}

// Compare groups results that belong to comparisons, rows and subjects in the order they first come.
func Compare(results []*Result) []*Comparison {
	var comparisons []*Comparison
	for _, r := range results {
		if r.Row == "" {
			continue
		}
		i := slices.IndexFunc(comparisons, func(c *Comparison) bool { return c.Row == r.Row })
		if i < 0 {
			i = len(comparisons)
			comparisons = append(comparisons, &Comparison{Row: r.Row})
		}
		c := comparisons[i]
		k := slices.IndexFunc(c.Subjects, func(s *Subject) bool { return s.Name == r.Subject })
		if k < 0 {
			k = len(c.Subjects)
			c.Subjects = append(c.Subjects, &Subject{Name: r.Subject})
		}
		c.Subjects[k].Runs = append(c.Subjects[k].Runs, r)
	}
	for _, c := range comparisons {
		base := c.Subjects[0].Runs[0].Base
		if i := slices.IndexFunc(comparisons, func(other *Comparison) bool { return other.Row == base }); i >= 0 {
			c.Base = comparisons[i]
		}
	}
	return comparisons
}

// CostFigure is what rows are compared by with their base.
const CostFigure = "CPU s/M"

// Cost is how a subject's cost of a message in this row stands to its own in the base's.
func (c *Comparison) Cost(subject string) (Ratio, bool) {
	if c.Base == nil {
		return Ratio{}, false
	}
	figure := Figures[slices.IndexFunc(Figures, func(f Figure) bool { return f.Name == CostFigure })]
	of := func(c *Comparison) map[int]float64 {
		i := slices.IndexFunc(c.Subjects, func(s *Subject) bool { return s.Name == subject })
		if i < 0 {
			return nil
		}
		return c.Subjects[i].Figure(figure)
	}
	return RatioOf(of(c.Base), of(c))
}

// Figure is the values of a figure by round.
func (s *Subject) Figure(f Figure) map[int]float64 {
	byRound := make(map[int]float64)
	for _, r := range s.Runs {
		if v, ok := f.Of(r); ok {
			byRound[r.Round] = v
		}
	}
	return byRound
}

// Order is who runs when: each round has every subject once, and starts with the next one, so that none always runs on
// a machine that another has just left.
func Order(subjects, rounds int) [][]int {
	order := make([][]int, rounds)
	for round := range order {
		for k := range subjects {
			order[round] = append(order[round], (round+k)%subjects)
		}
	}
	return order
}
