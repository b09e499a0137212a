// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
	"loopmq/engine"
	"loopmq/reactor/remoting"
	"loopmq/storage/vfs/faultfs"
)

func mustRun(t *testing.T, cfg Config) *result.Result {
	t.Helper()
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Errors) > 0 {
		t.Fatalf("failures: %v", r.Errors)
	}
	return r
}

// Every mode of producers sends what it was asked to, and all of it is where the answers said.
func TestProduceAndAccount(t *testing.T) {
	b := startBroker(t, nil)
	count := int64(20_000)
	if raceDetector {
		count = 3200
	}
	for name, set := range map[string]func(*Config){
		"sync":             func(c *Config) { c.Mode, c.Threads, c.Connections = ModeSync, 10, 3 },
		"sync, one each":   func(c *Config) { c.Mode, c.Threads, c.Connections, c.Count = ModeSync, 8, 8, count/4 },
		"pipelined":        func(c *Config) { c.Serialize = "ROCKETMQ" },
		"pipelined, plain": func(c *Config) { c.Plain = true },
		"batch":            func(c *Config) { c.Mode, c.Body, c.Window = ModeBatch, "32-400", 8 },
		"sizes":            func(c *Config) { c.Body, c.Count = "32:50,1000:40,50000:1", count/10 },
		"at a rate":        func(c *Config) { c.Rate, c.Count = 4000, 2000 },
		"batches, rate":    func(c *Config) { c.Mode, c.Batch, c.Rate, c.Count = ModeBatch, 10, 8000, 4000 },
		"many topics":      func(c *Config) { c.Topics, c.Queues = []string{"many*20", "one"}, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(Produce, b.Addr().String())
			cfg.Topics = []string{"topic-of-" + strings.Map(func(r rune) rune {
				if r == ' ' || r == ',' {
					return '_'
				}
				return r
			}, name)}
			cfg.Count, cfg.Verify = count, true
			set(&cfg)
			r := mustRun(t, cfg)
			want := result.Account{Acknowledged: cfg.Count, Read: cfg.Count}
			got := *r.Accounted
			got.Overtaken = 0
			if got != want || r.Messages != cfg.Count || r.Latency.Count() != cfg.Count {
				t.Fatalf("%d messages, %d latencies, %+v; want %+v", r.Messages, r.Latency.Count(), got, want)
			}
			if r.BodyBytes < 32*cfg.Count || r.Seconds <= 0 || len(r.Samples) == 0 {
				t.Fatalf("%d bytes in %v s, %d samples", r.BodyBytes, r.Seconds, len(r.Samples))
			}
		})
	}
}

// One-way messages come, though nothing says so.
func TestOneway(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Produce, b.Addr().String())
	cfg.Mode, cfg.Count, cfg.Verify, cfg.Connections = ModeOneway, 3000, true, 2
	r := mustRun(t, cfg)
	if r.Messages != 3000 || r.Latency != nil || r.Accounted.Acknowledged != 0 || r.Accounted.Lost != 0 {
		t.Fatalf("%d messages, %+v", r.Messages, r.Accounted)
	}
	cfg.Rate, cfg.Count = 3000, 900
	if r := mustRun(t, cfg); r.Messages != 900 {
		t.Fatalf("%d messages", r.Messages)
	}
}

// A run for a time ends when it is over, with one sample for each second, and by the name server it finds the broker.
func TestForATime(t *testing.T) {
	names := startNamesrv(t)
	startBroker(t, names)
	cfg := testConfig(Produce, "")
	cfg.NameSrv = names.Addr().String()
	cfg.Warmup, cfg.Duration = result.Duration(100*time.Millisecond), result.Duration(1200*time.Millisecond)
	var phases []string
	begun, ended := 0, 0
	r, err := Run(testContext(t), cfg, Hooks{
		Progress: func(p Progress) {
			if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
				phases = append(phases, p.Phase)
			}
		},
		Begin: func() { begun++ },
		End:   func() { ended++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages == 0 || len(r.Samples) < 2 || begun != 1 || ended != 1 || fmt.Sprint(phases) != "[warm-up measure]" {
		t.Fatalf("%d messages, %d samples, begun %d, ended %d, phases %v", r.Messages, len(r.Samples), begun, ended, phases)
	}
	sum := int64(0)
	for _, s := range r.Samples {
		sum += s.Messages
	}
	// Under way is what was in flight, and what had been answered in the last read of each connection.
	if underWay := int64(2 * cfg.Connections * cfg.Window); sum != r.Messages || r.Latency.Count() < r.Messages || r.Latency.Count() > r.Messages+underWay {
		t.Fatalf("samples have %d messages, the histogram %d, the result %d", sum, r.Latency.Count(), r.Messages)
	}
}

func TestDrain(t *testing.T) {
	names := startNamesrv(t)
	b := startBroker(t, names)
	for groups := 1; groups <= 3; groups += 2 {
		cfg := testConfig(Drain, "")
		cfg.NameSrv = "127.0.0.1:1;" + names.Addr().String() // the first one is not there
		cfg.Count, cfg.Groups, cfg.Verify = 5000, groups, true
		r := mustRun(t, cfg)
		if want := cfg.Count * int64(groups); r.Messages != want || r.BodyBytes != want*200 || r.Accounted == nil || r.Accounted.Read != cfg.Count || r.Latency.Count() == 0 {
			t.Fatalf("%d groups: %d messages, %d bytes, %+v", groups, r.Messages, r.BodyBytes, r.Accounted)
		}
	}
	// None of the runs' groups stays at the broker, nor where they had read to.
	conn, err := dial(testContext(t), "broker", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	groups, err := conn.InvokeOK(testContext(t), wire.NewCommand(remoting.GetAllSubscriptionGroupConfig))
	if err != nil || strings.Contains(string(groups.Body), "loopmq_bench_") {
		t.Errorf("%v, %s", err, groups.Body)
	}
	offsets, err := conn.InvokeOK(testContext(t), wire.NewCommand(remoting.GetAllConsumerOffset))
	if err != nil || !strings.Contains(string(offsets.Body), `"offsetTable":{}`) {
		t.Errorf("%v, %s", err, offsets.Body)
	}
}

// Each message is seen by each group, and its latency is counted from when it was due.
func TestLatencyFromEndToEnd(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Latency, b.Addr().String())
	cfg.Rate, cfg.Count, cfg.Groups, cfg.Verify = 2000, 1000, 2, true
	r := mustRun(t, cfg)
	if r.Messages < 2000 || r.Latency.Count() != r.Messages || r.Accounted.Lost != 0 {
		t.Fatalf("%d messages, %d latencies, %+v", r.Messages, r.Latency.Count(), r.Accounted)
	}
}

func TestConsume(t *testing.T) {
	b := startBroker(t, nil)
	fill := testConfig(Produce, b.Addr().String())
	fill.Count = 3000
	mustRun(t, fill)
	cfg := testConfig(Consume, b.Addr().String())
	cfg.From, cfg.Count, cfg.Groups, cfg.PullBatch = FromFirst, 6000, 2, 7
	if r := mustRun(t, cfg); r.Messages < 6000 || r.Latency.Count() == 0 {
		t.Fatalf("%d messages", r.Messages)
	}
	// From the end there is nothing, until the run is over.
	cfg = testConfig(Consume, b.Addr().String())
	cfg.Duration = result.Duration(50 * time.Millisecond)
	if r := mustRun(t, cfg); r.Messages != 0 || r.Latency != nil {
		t.Fatalf("%d messages", r.Messages)
	}
}

// A broker that ends and comes back loses the run nothing but time.
func TestBrokerComesBack(t *testing.T) {
	fs := faultfs.New()
	cfg := nodeConfig("/store")
	b := startBrokerOf(t, cfg, fs)
	cfg.ListenPort = int(b.Addr().Port())
	load := testConfig(Produce, b.Addr().String())
	load.Count, load.Verify, load.Rate, load.Timeout = 1500, true, 3000, result.Duration(2*time.Second)
	type outcome struct {
		r   *result.Result
		err error
	}
	done := make(chan outcome)
	go func() {
		r, err := Run(testContext(t), load, Hooks{})
		done <- outcome{r, err}
	}()
	awaitMessages(t, b.Addr().String())
	stopBroker(t, b)
	restart(t, cfg, fs)
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	a := o.r.Accounted
	if a.Lost+a.Duplicated+a.Reordered+a.Corrupt+a.Misplaced != 0 || a.Acknowledged == 0 || a.Acknowledged != o.r.Messages {
		t.Fatalf("%d messages, %+v, failures %v", o.r.Messages, a, o.r.Errors)
	}
}

// restart starts a broker at the port it had; its port for slaves is any that is free.
func restart(t *testing.T, cfg engine.Config, fs *faultfs.FS) {
	t.Helper()
	for range 20 {
		cfg.HAListenPort = 20_000 + rand.IntN(10_000)
		b, err := engine.New(cfg, engine.Options{FS: fs, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err = b.Start(t.Context()); err == nil {
			t.Cleanup(func() { stopBroker(t, b) })
			return
		}
		t.Logf("port for slaves %d: %v", cfg.HAListenPort, err)
	}
	t.Fatal("no port for slaves is free")
}

// awaitMessages waits until a broker has the first messages of a run.
func awaitMessages(t *testing.T, addr string) {
	t.Helper()
	ctx := testContext(t)
	conn, err := dial(ctx, "broker", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { conn.Close(); <-conn.Done() }()
	for {
		end, err := wire.MaxOffset(ctx, conn, "bench", 0)
		if err != nil {
			t.Fatal(err)
		}
		if end > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// An interrupted run has a result.
func TestInterrupted(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Produce, b.Addr().String())
	cfg.Duration = result.Duration(time.Hour)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	r, err := Run(ctx, cfg, Hooks{Progress: func(p Progress) {
		if p.Messages > 0 {
			cancel()
		}
	}})
	if err != nil || r == nil || r.Messages == 0 {
		t.Fatalf("%v, %+v", err, r)
	}
}

func TestClearErrors(t *testing.T) {
	names := startNamesrv(t)
	b := startBroker(t, nil)
	f := func(what string, cfg Config, want string) {
		t.Helper()
		_, err := Run(testContext(t), cfg, Hooks{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	nobody := testConfig(Produce, "127.0.0.1:1")
	nobody.Count = 1
	f("no broker", nobody, "no broker answers at 127.0.0.1:1")
	unknown := testConfig(Consume, b.Addr().String())
	unknown.Count = 1
	f("unknown topic", unknown, "topic bench is unknown to the broker")
	byName := testConfig(Consume, "")
	byName.NameSrv, byName.Duration = "127.0.0.1:1", result.Duration(time.Second)
	f("no name server", byName, "no name server answers at 127.0.0.1:1")
	byName.NameSrv = names.Addr().String()
	f("no route", byName, "topic bench has no route at the name server")
	byName.Workload = Produce
	f("no master", byName, "no master is registered at the name server")
	if _, err := Run(testContext(t), Config{}, Hooks{}); err == nil {
		t.Error("a run of nothing")
	}
	bad := testConfig(Produce, b.Addr().String())
	bad.Topics, bad.Count = []string{"a topic"}, 1
	f("bad topic", bad, "make topic a topic")
}

// A refusal is counted by its code, and does not end the run.
func TestRefusals(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Produce, b.Addr().String())
	cfg.Body, cfg.Duration, cfg.Connections, cfg.Window = fmt.Sprint(5<<20), result.Duration(200*time.Millisecond), 1, 1
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages != 0 || r.Errors["MESSAGE_ILLEGAL"] == 0 || r.ErrorCount() != r.Errors["MESSAGE_ILLEGAL"] {
		t.Fatalf("%d messages, failures %v", r.Messages, r.Errors)
	}
}

// A consumer with a rate is not faster than that, and reads everything.
func TestConsumeAtARate(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Produce, b.Addr().String())
	cfg.Count = 600
	mustRun(t, cfg)
	cfg.Workload, cfg.From, cfg.Rate, cfg.PullBatch = Consume, FromFirst, 2000, 10
	if r := mustRun(t, cfg); r.Messages < cfg.Count || r.MessageRate > 1.5*cfg.Rate {
		t.Errorf("%d messages at %.0f a second; want %d at %.0f", r.Messages, r.MessageRate, cfg.Count, cfg.Rate)
	}
}

// Who asks for slow requests is told of each that took longer than that, with its times, in the warm-up too.
func TestSlowRequestsAreTold(t *testing.T) {
	b := startBroker(t, nil)
	cfg := testConfig(Produce, b.Addr().String())
	cfg.Count = 500
	for _, from := range []time.Duration{-1, time.Hour} {
		var mu sync.Mutex
		told := int64(0)
		r, err := Run(testContext(t), cfg, Hooks{SlowFrom: from, Slow: func(due, at time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			told++
			if at < due || due <= 0 {
				t.Errorf("due at %v, read at %v", due, at)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := r.Messages
		if from > 0 {
			want = 0
		}
		if told != want {
			t.Errorf("%d of %d requests are slower than %v; want %d", told, r.Messages, from, want)
		}
	}
}
