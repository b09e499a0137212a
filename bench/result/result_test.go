// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sampleRun is a run whose figures follow from its seed.
func sampleRun(seed uint64, label string) *Result {
	random := rand.New(rand.NewPCG(seed, 1))
	r := &Result{
		Label:    label,
		Settings: Settings{Workload: "produce", Mode: "pipelined", Broker: "127.0.0.1:10911", Topics: []string{"bench"}, Connections: 4, Window: 64, Body: "1024", Duration: Duration(10 * time.Second)},
		Started:  time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Seconds:  10, Latency: NewHistogram(),
		Errors: map[string]int64{"SYSTEM_BUSY": 3, "timeout": 1},
		Tool:   Build{"loopmq", "v1.0.0", "0123abcd"}, Server: Build{"loopmq", "v1.0.0", "0123abcd"},
		Host:      Host{CPU: "Some CPU", CPUs: 2, Memory: 24e9, Kernel: "6.1.0", FileSystem: "ext4"},
		Accounted: &Account{Acknowledged: 1000, Read: 1001, Unconfirmed: 1},
		Others:    &Others{Seconds: 10, CPUSeconds: 0.2, StealSeconds: 0.1},
		GeneratorCost: &Usage{Name: "generator", CPUSeconds: 4, Threads: 9,
			Voluntary: 1000, RSS: 50e6, RSSAnon: 20e6},
		Servers: []Usage{{Name: "master", PID: 42, CPUSeconds: 6, UserSeconds: 2, SystemSeconds: 4, RSS: 900e6, RSSAnon: 30e6, RSSAnonMax: 31e6, Threads: 12,
			Voluntary: 80000, Involuntary: 900, BytesWritten: 3e9}},
	}
	for i := range 10 {
		second := NewHistogram()
		for range 500 {
			second.Record(time.Duration(random.ExpFloat64() * float64(300*time.Microsecond)))
		}
		s := NewSample(float64(i+1), 1, 200_000+random.Int64N(50_000), 0, second)
		s.LagBytes, s.LagSeconds = random.Int64N(1e6), random.Float64()/10
		r.Messages += s.Messages
		r.Samples = append(r.Samples, s)
		r.Latency.Merge(second)
	}
	r.BodyBytes = 1024 * r.Messages
	r.Derive()
	return r
}

// sampleComparison is two rows of three subjects and three rounds.
func sampleComparison() []*Result {
	var results []*Result
	for i, row := range []string{"1 KiB, 4 connections, 64 in flight each", "recovery of 1 GiB"} {
		for k, subject := range []string{"loopmq", "java:4.9.7", "loopmq again"} {
			for round := 1; round <= 3; round++ {
				r := sampleRun(uint64(100*i+10*k+round), row)
				r.Row, r.Subject, r.Round = row, subject, round
				r.Accounted, r.Errors = nil, nil
				if i == 1 {
					*r = Result{Label: row, Row: row, Subject: subject, Round: round, Started: r.Started, TookSeconds: 0.1 * float64(1+k%2*20+round), Settings: Settings{Workload: "recovery"}}
				} else if k == 1 {
					r.Messages /= 10
					r.BodyBytes /= 10
				}
				r.Derive()
				results = append(results, r)
			}
		}
	}
	return results
}

func TestRoundTrip(t *testing.T) {
	want := append(sampleComparison(), sampleRun(7, "a run"))
	var file bytes.Buffer
	if err := Write(&file, want[:3]...); err != nil {
		t.Fatal(err)
	}
	if err := Write(&file, want[3:]...); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d results; want %d", len(got), len(want))
	}
	for i := range got {
		a, b := *got[i], *want[i]
		if (a.Latency == nil) != (b.Latency == nil) || a.Latency != nil && !a.Latency.hdr.Equals(b.Latency.hdr) {
			t.Errorf("result %d: another histogram", i)
		}
		a.Latency, b.Latency = nil, nil
		if !reflect.DeepEqual(a, b) {
			t.Errorf("result %d:\n%+v\nwant\n%+v", i, a, b)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%q): %v; want %q", text, err, want)
		}
	}
	f(`{"schema":2}`, "form 2; this tool reads 1")
	f(`{"schema":1,"results":[null]}`, "number 0 is null")
	f(`{"schema":1,"results":[{"latency":{"hdr":"what"}}]}`, "decode a histogram")
	f(`{"schema":1,"results":[{"settings":{"duration":10}}]}`, `want a text such as "10s"`)
	f(`{"schema":1,"results":[{"settings":{"duration":"ten"}}]}`, "ten")
	f(`{`, "EOF")
}

// The percentiles of a histogram are those of the values, within the promised thousandth.
func TestHistogramPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h, merged := NewHistogram(), NewHistogram()
	var values []float64
	for range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(2*time.Millisecond))
		h.Record(d)
		values = append(values, float64(d))
	}
	merged.Merge(h)
	merged.RecordN(time.Hour, 2) // past the end: counts as the longest
	merged.Record(-time.Second)
	if merged.Count() != h.Count()+3 || merged.Max() < latencyMax {
		t.Fatalf("merged: %d values up to %v; want %d up to %v", merged.Count(), merged.Max(), h.Count()+3, latencyMax)
	}
	want := SpreadOf(values)
	got := float64(h.Percentile(50))
	if got < want.Median*0.998-float64(latencyMin) || got > want.Median*1.002+float64(latencyMin) {
		t.Errorf("median %v; want %v", got, want.Median)
	}
	if got := float64(h.Max()); got < want.Max || got > want.Max*1.002+float64(latencyMin) {
		t.Errorf("maximum %v; want %v", got, want.Max)
	}
	h.Reset()
	if h.Count() != 0 || h.Max() != 0 {
		t.Errorf("%d values after a reset", h.Count())
	}
}

func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	small := NewHistogram()
	small.Record(time.Millisecond)
	if err := Write(&file, &Result{Label: "a run", Latency: small, Messages: 1, Seconds: 1, Samples: []Sample{{At: 1, Messages: 1}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(`{"schema":1,"results":[{"row":"x","seconds":-1,"messages":5,"servers":[{}]},{"settings":{"workload":"idle"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, results...); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if err := WriteText(&out, results); err != nil {
			t.Fatal(err)
		}
		if err := WriteHTML(&out, "fuzz", results); err != nil {
			t.Fatal(err)
		}
	})
}
