// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"math"
	"testing"
	"time"

	"loopmq/bench/result"
)

func TestLag(t *testing.T) {
	var l Lag
	f := func(masterMs, master, slaveMs, slave, wantBytes int64, wantSeconds float64) {
		t.Helper()
		l.Observe(time.Duration(masterMs)*time.Millisecond, master, time.Duration(slaveMs)*time.Millisecond, slave)
		if got := l.worst[len(l.worst)-1]; got.bytes != wantBytes || math.Abs(got.seconds-wantSeconds) > 1e-9 {
			t.Errorf("master %d at %d ms, slave %d: %d bytes, %v s; want %d, %v", master, masterMs, slave, got.bytes, got.seconds, wantBytes, wantSeconds)
		}
	}
	f(100, 500, 101, 500, 0, 0)
	f(200, 1500, 201, 1000, 500, 0.05) // the master had 1000 at 150 ms
	f(300, 2500, 301, 2600, 0, 0)      // asked later, the slave has more than the master had
	f(400, 2500, 401, 1500, 1000, 0.2) // as at 200 ms
	f(500, 2500, 501, 2500, 0, 0)
	f(600, 3500, 601, 100, 3400, 0.5) // before what is remembered: since the beginning
}

// The largest lag of a sample's time is the sample's.
func TestLagFillsSamples(t *testing.T) {
	var l Lag
	for i := range int64(30) { // one observation each 100 ms; the lag of each second peaks at its end
		at := time.Duration(i+1) * 100 * time.Millisecond
		l.Observe(at, 1000*(i+1), at, 1000*(i+1)-(i%10)*100)
	}
	samples := []result.Sample{{At: 1, Seconds: 1}, {At: 2, Seconds: 1}, {At: 3, Seconds: 1}}
	l.Fill(samples, 0)
	for i, s := range samples {
		if s.LagBytes != 900 || s.LagSeconds <= 0 {
			t.Errorf("second %d: %d bytes, %v s; want 900 bytes", i, s.LagBytes, s.LagSeconds)
		}
	}
	later := []result.Sample{{At: 1, Seconds: 1}}
	l.Fill(later, 2500*time.Millisecond) // a window that began 2.5 s after the observations
	if later[0].LagBytes != 900 {
		t.Errorf("a window that began later: %d bytes", later[0].LagBytes)
	}
}

// A second in which the brokers did not answer is as far behind as they say afterwards; one behind all answers as before.
func TestLagOfASilentSecond(t *testing.T) {
	var l Lag
	l.Observe(500*time.Millisecond, 1000, 500*time.Millisecond, 1000)
	l.Observe(2500*time.Millisecond, 9000, 2500*time.Millisecond, 5000)
	samples := []result.Sample{{At: 1, Seconds: 1}, {At: 2, Seconds: 1}, {At: 3, Seconds: 1}, {At: 4, Seconds: 1}}
	l.Fill(samples, 0)
	for i, want := range []int64{0, 4000, 4000, 4000} {
		if got := samples[i].LagBytes; got != want {
			t.Errorf("second %d: %d bytes; want %d", i, got, want)
		}
	}
	new(Lag).Fill(samples, 0) // nobody was asked
}

func TestLagForgets(t *testing.T) {
	var l Lag
	for i := range lagMemory + 100 {
		at := time.Duration(i) * lagPeriod
		l.Observe(at, int64(i+1), at, int64(i+1))
	}
	if len(l.ends) > lagMemory {
		t.Errorf("%d ends are kept; want at most %d", len(l.ends), lagMemory)
	}
}
