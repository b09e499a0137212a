// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"
	"strings"
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

// A row with a base tells each subject's cost as a multiple of its own in the base, and late answers are listed.
func TestCostOfTheBase(t *testing.T) {
	var results []*Result
	for _, row := range []struct {
		name, base string
		cost       float64
	}{{"one queue", "", 1}, {"many queues", "one queue", 1.5}} {
		for k, subject := range []string{"loopmq", "java:4.9.7"} {
			for round := 1; round <= 2; round++ {
				r := &Result{Row: row.name, Base: row.base, Subject: subject, Round: round, Messages: 1e6, Seconds: 1}
				r.Servers = []Usage{{Name: "master", CPUSeconds: row.cost * float64(10*k+round)}}
				r.Derive()
				results = append(results, r)
			}
		}
	}
	results[0].Stalls = []Stall{{At: 1.5, Millis: 25, Messages: 7, Cause: CauseHost, Seen: "heartbeat 11 ms"}}
	compared := Compare(results)
	if len(compared) != 2 || compared[0].Base != nil || compared[1].Base != compared[0] {
		t.Fatalf("%+v", compared)
	}
	for _, subject := range []string{"loopmq", "java:4.9.7"} {
		if got, ok := compared[1].Cost(subject); !ok || got != (Ratio{2, 1.5, 1.5, 1.5}) {
			t.Errorf("%s: %+v, %v", subject, got, ok)
		}
	}
	if _, ok := compared[0].Cost("loopmq"); ok {
		t.Error("a row without a base has a ratio")
	}
	if _, ok := compared[1].Cost("nobody"); ok {
		t.Error("a subject that is not there has a ratio")
	}
	var text strings.Builder
	if err := WriteText(&text, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CPU s/M, of one queue  × 1.50 (1.50–1.50)", "one queue, loopmq, round 1  1.50  25.0  7         host   heartbeat 11 ms"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
