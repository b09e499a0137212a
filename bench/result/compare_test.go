// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	f := func(values []float64, want Spread) {
		t.Helper()
		before := slices.Clone(values)
		if got := SpreadOf(values); got != want {
			t.Errorf("SpreadOf(%v)=%+v; want %+v", values, got, want)
		}
		if !slices.Equal(values, before) {
			t.Errorf("SpreadOf changed its argument to %v", values)
		}
	}
	f(nil, Spread{})
	f([]float64{5}, Spread{1, 5, 5, 5})
	f([]float64{9, 1, 4}, Spread{3, 1, 4, 9})
	f([]float64{9, 1, 4, 6}, Spread{4, 1, 5, 9})
}

func TestRatio(t *testing.T) {
	f := func(reference, subject map[int]float64, want Ratio, ok bool) {
		t.Helper()
		if got, gotOK := RatioOf(reference, subject); got != want || gotOK != ok {
			t.Errorf("RatioOf(%v, %v)=%+v, %v; want %+v, %v", reference, subject, got, gotOK, want, ok)
		}
	}
	f(map[int]float64{1: 10, 2: 20, 3: 40}, map[int]float64{1: 5, 2: 40, 3: 40}, Ratio{Rounds: 3, Min: 0.5, Median: 2, Max: 2}, true)
	f(map[int]float64{1: 10}, map[int]float64{2: 5}, Ratio{Min: 0.5, Median: 0.5, Max: 0.5}, true) // no round has both
	f(map[int]float64{1: 10, 2: 10}, map[int]float64{2: 5}, Ratio{Rounds: 1, Min: 0.5, Median: 0.5, Max: 0.5}, true)
	f(map[int]float64{1: 0}, map[int]float64{1: 5}, Ratio{}, false)
	f(nil, map[int]float64{1: 5}, Ratio{}, false)
	f(map[int]float64{1: 5}, nil, Ratio{}, false)
}

// Each round has everybody once; over as many rounds as there are subjects, each has had every place.
func TestOrderIsFair(t *testing.T) {
	for subjects := 1; subjects <= 5; subjects++ {
		order := Order(subjects, subjects)
		for place := range subjects {
			var inRound, inPlace []int
			for k := range subjects {
				inRound = append(inRound, order[place][k])
				inPlace = append(inPlace, order[k][place])
			}
			slices.Sort(inRound)
			slices.Sort(inPlace)
			for k := range subjects {
				if inRound[k] != k || inPlace[k] != k {
					t.Fatalf("order of %d subjects: %v", subjects, order)
				}
			}
		}
	}
}

func TestCompareKeepsTheOrder(t *testing.T) {
	results := sampleComparison()
	results = append(results, sampleRun(1, "not compared"))
	got := Compare(results)
	if len(got) != 2 || got[0].Row != results[0].Row || got[1].Row != "recovery of 1 GiB" {
		t.Fatalf("rows: %+v", got)
	}
	for _, c := range got {
		if names := subjectNames(c); !slices.Equal(names, []string{"loopmq", "java:4.9.7", "loopmq again"}) {
			t.Errorf("subjects of %s: %q", c.Row, names)
		}
		for _, s := range c.Subjects {
			if len(s.Runs) != 3 {
				t.Errorf("%s has %d runs", s.Name, len(s.Runs))
			}
		}
	}
}
