// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

func TestSizes(t *testing.T) {
	f := func(text string, low, high int, average float64) {
		t.Helper()
		s, err := ParseSizes(text)
		if err != nil {
			t.Errorf("ParseSizes(%q): %v", text, err)
			return
		}
		if s.Min() != low || s.Max() != high {
			t.Errorf("ParseSizes(%q)=%d to %d; want %d to %d", text, s.Min(), s.Max(), low, high)
		}
		r := rand.New(rand.NewPCG(1, 2))
		const n = 50_000
		sum := 0.0
		for range n {
			v := s.Next(r)
			if v < low || v > high {
				t.Fatalf("%q drew %d", text, v)
			}
			sum += float64(v)
		}
		if got := sum / n; math.Abs(got-average) > 0.05*average {
			t.Errorf("%q draws %v on average; want %v", text, got, average)
		}
	}
	f("1024", 1024, 1024, 1024)
	f("100-2000", 100, 2000, 1050)
	f("7-7", 7, 7, 7)
	f("128:70,1024:25,4096:5", 128, 4096, 128*.70+1024*.25+4096*.05)
	f(" 10 : 1 , 20 : 1 ", 10, 20, 15)
	for _, bad := range []string{"", "x", "0", "-5", "10-5", "1-", "10:0", "10:-1", "10:1,", "10", "99999999999"} {
		if _, err := ParseSizes(bad); err == nil && bad != "10" {
			t.Errorf("ParseSizes(%q) is taken", bad)
		}
	}
}

// Each size of a list comes as often as its weight says.
func TestWeights(t *testing.T) {
	s, err := ParseSizes("1:1,2:2,3:7")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	var drawn [4]float64
	const n = 100_000
	for range n {
		drawn[s.Next(r)]++
	}
	for size, want := range []float64{0, .1, .2, .7} {
		if got := drawn[size] / n; math.Abs(got-want) > .01 {
			t.Errorf("size %d: %v of all; want %v", size, got, want)
		}
	}
}

func FuzzParseSizes(f *testing.F) {
	for _, s := range []string{"1024", "1-2", "1:2,3:4", "15728640:2147483647"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSizes(text)
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			if v := s.Next(r); v < s.Min() || v > s.Max() || v < 1 || v > bodyMax {
				t.Fatalf("%q drew %d", text, v)
			}
		}
	})
}

// A schedule has its rate, never goes back, and counts what is due as it says when it is due.
func TestSchedule(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		s := schedule{start: time.Duration(r.Int64N(1e15)), rate: math.Exp(r.Float64()*18 - 2)}
		n := r.Int64N(1_000_000)
		if s.due(n) > s.due(n+1) || s.due(0) != s.start {
			t.Fatalf("%+v: %d is due at %v, the next at %v", s, n, s.due(n), s.due(n+1))
		}
		if want := float64(n) / s.rate; math.Abs((s.due(n)-s.start).Seconds()-want) > 1e-6*max(want, 1) {
			t.Fatalf("%+v: %d is due after %v; want %v s", s, n, s.due(n)-s.start, want)
		}
		now := s.due(n) + time.Duration(r.Int64N(1000))
		by := s.dueBy(now)
		if s.due(by) <= now || by > 0 && s.due(by-1) > now {
			t.Fatalf("%+v: %d due by %v", s, by, now)
		}
	}
	if s := (schedule{start: time.Second, rate: 10}); s.dueBy(0) != 0 || s.dueBy(time.Second) != 1 || s.dueBy(2*time.Second) != 11 {
		t.Errorf("due: %d, %d, %d", s.dueBy(0), s.dueBy(time.Second), s.dueBy(2*time.Second))
	}
}

func TestTopics(t *testing.T) {
	f := func(names []string, want ...string) {
		t.Helper()
		got, err := expandTopics(names)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("expandTopics(%q)=%q, %v; want %q", names, got, err, want)
		}
	}
	f([]string{"a"}, "a")
	f([]string{"a*3", "b"}, "a-0", "a-1", "a-2", "b")
	f([]string{"a*0"})
	f([]string{"a*x"})
	f([]string{"a*1000000"})
	f([]string{""})
	f([]string{"a", "a"})
	f(nil)
	f([]string{strings.Repeat("a", 200)})
}

// The fields of a file are those of the flags, and a record of a run is such a file.
func TestConfigFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultConfig()
	cfg.RegisterFlags(flag.NewFlagSet("", flag.ContinueOnError), Produce)
	write(`{"workload":"produce","mode":"sync","broker":"a:1","topics":["x*2"],"threads":3,"connections":3,"duration":"5s","body":"128"}`)
	if err := cfg.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if cfg.Mode != ModeSync || cfg.Threads != 3 || time.Duration(cfg.Duration) != 5*time.Second || !slices.Equal(cfg.Topics, []string{"x-0", "x-1"}) || cfg.Window != 0 || cfg.Serialize != "JSON" {
		t.Fatalf("%+v", cfg)
	}
	record, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Write(record, &result.Result{Settings: cfg.Settings}); err != nil {
		t.Fatal(err)
	}
	_ = record.Close()
	again := DefaultConfig()
	again.Workload = Produce
	if err := again.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := again.Validate(); err != nil {
		t.Fatal(err)
	}
	if again.Mode != ModeSync || again.Threads != 3 || !slices.Equal(again.Topics, cfg.Topics) {
		t.Fatalf("%+v", again)
	}
	// A run without a warm-up is repeated without one, and one of a comparison is not told as its client's or its pair's.
	var text bytes.Buffer
	cfg.Warmup, cfg.Client, cfg.Role, cfg.Slaves = 0, "java:4.9.7", "SYNC_MASTER", 1
	if err := result.Write(&text, &result.Result{Settings: cfg.Settings}); err != nil {
		t.Fatal(err)
	}
	write(text.String())
	again = DefaultConfig()
	again.Workload = Produce
	if err := errors.Join(again.ReadFile(path), again.Validate()); err != nil {
		t.Fatal(err)
	}
	if again.Warmup != 0 || again.Client != "" || again.Role != "" || again.Slaves != 0 {
		t.Fatalf("%+v", again)
	}
	for _, bad := range []string{`{"workload":"drain"}`, `{"workload":"produce","unknown":1}`, `{`, `{"workload":"produce","duration":5}`} {
		write(bad)
		c := DefaultConfig()
		c.Workload = Produce
		if err := c.ReadFile(path); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestValidate(t *testing.T) {
	f := func(set func(*Config), want string) {
		t.Helper()
		cfg := testConfig(Produce, "127.0.0.1:10911")
		cfg.Count = 1
		set(&cfg)
		err := cfg.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	f(func(*Config) {}, "")
	f(func(c *Config) { c.Workload = "x" }, "workload")
	f(func(c *Config) { c.NameSrv = "127.0.0.1:9876" }, "either a broker or a name server")
	f(func(c *Config) { c.Broker = "" }, "either a broker or a name server")
	f(func(c *Config) { c.Broker = "somewhere" }, "host:port")
	f(func(c *Config) { c.Count = 0 }, "neither a duration nor a count")
	f(func(c *Config) { c.Mode = "x" }, "mode")
	f(func(c *Config) { c.Mode, c.Threads = ModeSync, 1 }, "1 threads on 4 connections")
	f(func(c *Config) { c.Window = 1 << 17 }, "window")
	f(func(c *Config) { c.Mode, c.Batch, c.Body = ModeBatch, 1000, "100000" }, "batches")
	f(func(c *Config) { c.Verify, c.Body = true, "31" }, "bodies of 31 bytes")
	f(func(c *Config) { c.Workload = Latency }, "latency needs a rate")
	f(func(c *Config) { c.Workload, c.Count, c.Duration = Drain, 0, 1 }, "drain needs a count")
	f(func(c *Config) { c.Workload, c.From = Consume, "middle" }, "from")
	f(func(c *Config) { c.Rate = math.NaN() }, "rate")
	f(func(c *Config) { c.Serialize = "XML" }, "serialize")
	f(func(c *Config) { c.Queues = 0 }, "queues")
	f(func(c *Config) { c.Timeout = -1 }, "timeout")
}

// Threads are shared out over the connections, none is lost.
func TestThreadsOnConnections(t *testing.T) {
	for threads := 1; threads < 40; threads++ {
		for connections := 1; connections <= threads; connections++ {
			cfg := Config{result.Settings{Mode: ModeSync, Threads: threads, Connections: connections}}
			sum := 0
			for i := range connections {
				n := cfg.inFlight(i)
				if n < 1 {
					t.Fatalf("%d threads on %d connections: none on %d", threads, connections, i)
				}
				sum += n
			}
			if sum != threads {
				t.Fatalf("%d threads on %d connections are %d", threads, connections, sum)
			}
		}
	}
}

func TestStamps(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	fill := newFiller(1000)
	for range 1000 {
		s := stamp{run: r.Uint32(), producer: r.Uint32(), open: r.Uint32(), sequence: r.Int64(), due: r.Int64()}
		body := make([]byte, stampSize, 1000)
		s.put(body)
		body = append(body, fill.piece(s.producer, s.sequence, r.IntN(1000-stampSize))...)
		got, ok := readStamp(body)
		if !ok || got != s || !fill.matches(got, body) {
			t.Fatalf("%+v, %v; want %+v", got, ok, s)
		}
		if len(body) > stampSize {
			if body[stampSize+r.IntN(len(body)-stampSize)]++; fill.matches(got, body) {
				t.Fatal("another body matches too")
			}
		}
	}
	if _, ok := readStamp(make([]byte, stampSize)); ok {
		t.Error("a body of zeros has a stamp")
	}
	if _, ok := readStamp(nil); ok {
		t.Error("an empty body has a stamp")
	}
	long := make([]byte, len(fill)+stampSize+1)
	(&stamp{}).put(long)
	if s, _ := readStamp(long); fill.matches(s, long) {
		t.Error("a body longer than any matches")
	}
}

// A run is not given up while its next answer may come in time.
func TestPatience(t *testing.T) {
	f := func(timeout time.Duration, rate float64, batch int, want time.Duration) {
		t.Helper()
		cfg := Config{result.Settings{Timeout: result.Duration(timeout), Rate: rate, Batch: batch}}
		if got := cfg.patience(); got < want || got > want+2*stuckWait {
			t.Errorf("timeout %v, %v a second in batches of %d: %v; want %v", timeout, rate, batch, got, want)
		}
	}
	f(time.Second, 0, 0, time.Second)
	f(5*time.Minute, 0, 0, 5*time.Minute)
	f(time.Second, 0.01, 0, 100*time.Second)
	f(time.Second, 0.1, 60, 10*time.Minute)
	f(time.Second, 1e-300, 0, 1e6*time.Second)
}

// A run has the queues that it can use: who verifies reads too.
func TestQueuesThatCanBeUsed(t *testing.T) {
	f := func(workload string, verify bool, q wire.BrokerQueues, want int) {
		t.Helper()
		cfg := Config{result.Settings{Workload: workload, Verify: verify}}
		m := new(master)
		if m.add("t", q, cfg.reads(), cfg.writes()); len(m.queues) != want {
			t.Errorf("%s, verified %v, of %+v: %d queues; want %d", workload, verify, q, len(m.queues), want)
		}
	}
	more := wire.BrokerQueues{ReadQueues: 3, WriteQueues: 5, Readable: true, Writable: true}
	f(Produce, false, more, 5)
	f(Produce, true, more, 3)
	f(Consume, false, more, 3)
	f(Drain, false, more, 3)
	f(Latency, false, more, 3)
	writeOnly := wire.BrokerQueues{ReadQueues: 4, WriteQueues: 4, Writable: true}
	f(Produce, false, writeOnly, 4)
	f(Produce, true, writeOnly, 0)
	f(Consume, false, writeOnly, 0)
}
