// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/bench/result"
)

// testMeter is a meter in the hands of a test.
type testMeter struct {
	begin, sample func()
	err           error // of Sample
}

func (m *testMeter) Begin() error {
	if m.begin != nil {
		m.begin()
	}
	return nil
}

func (m *testMeter) Sample() error {
	if m.sample != nil {
		m.sample()
	}
	return m.err
}

func (m *testMeter) End(*result.Result) error { return nil }

// What comes while the processes are looked at, before the window and after it, is neither counted nor timed.
func TestWindowIsWhatIsCounted(t *testing.T) {
	b := startFakeBroker(t)
	var came, before atomic.Int64
	b.sent = func(int, []byte) deed {
		came.Add(1)
		return deedStore
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Connections, cfg.Window = 1, 4
	cfg.Warmup, cfg.Duration = result.Duration(10*time.Millisecond), result.Duration(50*time.Millisecond)
	const more = 3000
	r, err := Run(testContext(t), cfg, Hooks{Meter: &testMeter{
		begin: func() {
			for end := came.Load() + more; came.Load() < end; {
				time.Sleep(time.Millisecond)
			}
			before.Store(came.Load())
		},
		sample: func() { time.Sleep(20 * time.Millisecond) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if most := came.Load() - before.Load() + int64(cfg.Window); r.Messages > most {
		t.Errorf("%d messages in a window of which at most %d came", r.Messages, most)
	}
	if last := r.Samples[len(r.Samples)-1]; r.Seconds != last.At {
		t.Errorf("the window is %v s long, its last sample ends after %v", r.Seconds, last.At)
	}
}

// Connections are made before the window.
func TestConnectingIsNotMeasured(t *testing.T) {
	r := &runner{result: new(result.Result)}
	var connected, started time.Time
	err := r.measure(testContext(t), window{
		connect: func(context.Context) error { connected = time.Now(); return nil },
		start:   func(context.Context) { started = time.Now() },
		ended:   func() bool { return true },
	})
	if err != nil || r.result.Started.Before(connected) || started.Before(r.result.Started) {
		t.Errorf("connected at %v, the window began at %v, the load at %v; %v", connected, r.result.Started, started, err)
	}
	no := errors.New("nobody is there")
	if err := r.measure(testContext(t), window{connect: func(context.Context) error { return no }}); !errors.Is(err, no) {
		t.Errorf("without a connection: %v", err)
	}
}

// A server whose process is gone ends the run, with what was measured until then.
func TestMeterFails(t *testing.T) {
	b := startFakeBroker(t)
	cfg := testConfig(Produce, b.addr())
	cfg.Duration = result.Duration(time.Hour)
	gone := errors.New("the process is gone")
	r, err := Run(testContext(t), cfg, Hooks{Meter: &testMeter{err: gone}})
	if !errors.Is(err, gone) || r == nil || r.Messages == 0 || r.Seconds <= 0 || r.MessageRate <= 0 || len(r.Samples) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Interrupted in the warm-up there is nothing to tell.
func TestInterruptedInTheWarmUp(t *testing.T) {
	b := startFakeBroker(t)
	cfg := testConfig(Produce, b.addr())
	cfg.Warmup, cfg.Duration = result.Duration(time.Hour), result.Duration(time.Hour)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	r, err := Run(ctx, cfg, Hooks{Progress: func(Progress) { cancel() }})
	if r != nil || !errors.Is(err, errInterrupted) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A run that was to be verified and was interrupted does not say that all is well, and tells what it has measured; also when
// the broker is gone at the end.
func TestUnverified(t *testing.T) {
	f := func(what string, interrupt bool, want error) {
		t.Helper()
		b := startFakeBroker(t)
		cfg := testConfig(Produce, b.addr())
		cfg.Duration, cfg.Verify = result.Duration(time.Hour), true
		if !interrupt {
			cfg.Duration = result.Duration(10 * time.Millisecond)
		}
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		r, err := Run(ctx, cfg, Hooks{
			Progress: func(p Progress) {
				if interrupt && p.Messages > 0 {
					cancel()
				}
			},
			End: func() {
				if !interrupt {
					_ = b.listener.Close()
				}
			},
		})
		if r == nil || r.Messages == 0 || r.Accounted != nil || err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	f("interrupted", true, errUnverified)
	f("the broker is gone", false, nil)
}

// Queues that were read to their end are not all there is to it: what came last has to be counted too.
func TestCaughtUpIsCounted(t *testing.T) {
	cfg := testConfig(Drain, "127.0.0.1:1")
	end := func(*queue) int64 { return 7 }
	cs, err := newConsumers(&cfg, []*master{{queues: []*queue{{topic: "t"}}}}, consumerOptions{group: "g", groups: 1, from: end, until: end})
	if err != nil {
		t.Fatal(err)
	}
	c := cs.all[0]
	c.counted.messages = 3
	if cs.caughtUp() {
		t.Error("three messages are not counted yet")
	}
	c.rec.add(&c.counted, 1, 0)
	if !cs.caughtUp() {
		t.Error("all is read and counted")
	}
}
