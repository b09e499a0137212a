// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"loopmq/bench/result"
)

// The figures of our own process grow by at least what it is made to do.
func TestMeterOfOurselves(t *testing.T) {
	m := NewMeter([]Target{{"server", os.Getpid()}}, 0)
	if err := m.Begin(); err != nil {
		t.Fatal(err)
	}
	const (
		burn  = 60 * time.Millisecond
		waits = 40
	)
	burnCPU(t, burn)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		defer close(ended)
		for range waits {
			wait()
		}
	}()
	ballast := slices.Repeat([]byte{1}, 8<<20)
	for sampled := false; !sampled; {
		select {
		case <-ended:
			sampled = true
		default:
		}
		if err := m.Sample(); err != nil {
			t.Fatal(err)
		}
	}
	r := result.Result{Messages: 1e6, Seconds: 1}
	if err := m.End(&r); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(ballast)
	r.Derive()
	u, generator := r.Servers[0], *r.GeneratorCost
	if u.Name != "server" || generator.Name != "generator" || u.PID != os.Getpid() || generator.PID != os.Getpid() {
		t.Errorf("names: %+v, %+v", u, generator)
	}
	if u.CPUSeconds < burn.Seconds() || u.PerMillion.CPUSeconds != u.CPUSeconds {
		t.Errorf("CPU %v s; %v were burnt", u.CPUSeconds, burn)
	}
	if u.Threads < 1 || u.RSS < u.RSSAnon || u.RSSAnon < int64(len(ballast)) || u.RSSAnonMax < int64(len(ballast)) {
		t.Errorf("threads and memory: %+v", u)
	}
	if u.MinorFaults < 0 || u.BytesWritten < 0 || u.Involuntary < 0 || r.Others.CPUSeconds < 0 {
		t.Errorf("figures that only grow went back: %+v", u)
	}
}

// What a thread did stays counted after it has ended, if it was seen; a number that another thread took is not a loss.
func TestSwitchesOfEndedThreads(t *testing.T) {
	w := &watch{
		pid:       os.Getpid(),
		tasksBase: map[int]switches{-1: {100, 10}},
		tasksLast: map[int]switches{-1: {150, 12}},
	}
	sum := func() (voluntary, involuntary int64) {
		for tid, last := range w.tasksLast {
			if tid < 0 {
				voluntary += last.voluntary - w.tasksBase[tid].voluntary
				involuntary += last.involuntary - w.tasksBase[tid].involuntary
			}
		}
		return voluntary, involuntary
	}
	f := func(now switches, wantVoluntary, wantInvoluntary int64) {
		t.Helper()
		w.seen(-1, now)
		if v, i := sum(); v != wantVoluntary || i != wantInvoluntary {
			t.Errorf("after %+v: %d and %d; want %d and %d", now, v, i, wantVoluntary, wantInvoluntary)
		}
	}
	f(switches{160, 12}, 60, 2)
	f(switches{7, 1}, 67, 3) // another thread
	f(switches{9, 1}, 69, 3)
	f(switches{0, 0}, 69, 3) // and another
}

func TestMeterOfNobody(t *testing.T) {
	const none = 1 << 30
	if err := NewMeter([]Target{{"server", none}}, 0).Begin(); err == nil {
		t.Error("the figures of a process that does not exist")
	}
}

func burnCPU(t *testing.T, d time.Duration) {
	t.Helper()
	start, err := cpuClock(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for {
		now, err := cpuClock(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now-start >= d {
			return
		}
	}
}

func wait() { time.Sleep(time.Millisecond) }

func TestParseStat(t *testing.T) {
	var c counters
	text := "42 (a (b) c) d) S 1 42 42 0 -1 4194560 1500 0 7 0 250 125 0 0 20 0 12 0 987654 1000000 500 18446744073709551615 1\n"
	if err := c.parseStat([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if want := (counters{startTicks: 987654, userTicks: 250, systemTicks: 125, minorFaults: 1500, majorFaults: 7, threads: 12}); c != want {
		t.Errorf("%+v; want %+v", c, want)
	}
	for _, bad := range []string{"", "42", "42 (a) S 1 2", "42 (a) S 1 42 42 0 -1 4194560 x 0 7 0 250 125 0 0 20 0 12 0 987654 1"} {
		if err := c.parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestStatusField(t *testing.T) {
	f := func(text, name string, want int64) {
		t.Helper()
		if got := statusField([]byte(text), name); got != want {
			t.Errorf("%s of %q is %d; want %d", name, text, got, want)
		}
	}
	status := "VmRSS:\t  2048 kB\nRssAnon:\t1024 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\nempty:\n"
	f(status, "VmRSS:", 2048)
	f(status, "RssAnon:", 1024)
	f(status, "voluntary_ctxt_switches:", 5)
	f(status, "nonvoluntary_ctxt_switches:", 6)
	f(status, "empty:", 0)
	f(status, "VmSwap:", 0)
	f("VmRSS: much", "VmRSS:", 0)
}

func TestParseMachine(t *testing.T) {
	m, err := parseMachine("cpu  100 200 300 9999 50 10 20 30 0 0\ncpu0 1\n")
	if want := (machine{busy: 6.3, steal: 0.3}); err != nil || m != want {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	for _, bad := range []string{"", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3", "cpu 1 2 x 4 5 6 7 8"} {
		if _, err := parseMachine(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestHost(t *testing.T) {
	h := HostOf(t.TempDir())
	if h.CPU == "" || h.CPUs < 1 || h.Memory <= 0 || h.Kernel == "" || h.FileSystem == "" {
		t.Errorf("%+v", h)
	}
	if HostOf("").FileSystem != "" {
		t.Error("a file system of nothing")
	}
	if got := fileSystem("/proc/self"); got != "proc" {
		t.Errorf("/proc is on %q", got)
	}
}
