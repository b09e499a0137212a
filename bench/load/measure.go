// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"maps"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

const (
	// donePoll is how often a phase that ends with its work is looked at. Its length is until the last answer, not until
	// somebody looks.
	donePoll = 10 * time.Millisecond
	// stuckWait is how long a phase that ends with its work may go on without any message, beyond the time that one may take.
	stuckWait = time.Minute
)

// window is what is measured: until a time, a count, or ended says so.
type window struct {
	connect  func(context.Context) error // before the warm-up and the window
	start    func(context.Context)       // begins the load, as the first thing of the warm-up or of the window
	finish   func(time.Duration)         // tells the load that the window has ended, by Clock; nil: it goes on
	recs     recorders
	failures recorders // of others: their failures count too
	count    int64     // 0: none
	ended    func() bool
}

// measure runs the warm-up and the window, and puts what the window saw into the result: what it saw until then, when there
// is an error.
func (r *runner) measure(ctx context.Context, w window) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	if r.cfg.Warmup > 0 {
		w.start(ctx)
		if _, err := r.watch(ctx, "warm-up", w.recs, time.Duration(r.cfg.Warmup), w.ended); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if r.hooks.Meter != nil {
		if err := r.hooks.Meter.Begin(); err != nil {
			return err
		}
	}
	if r.hooks.Begin != nil {
		r.hooks.Begin()
	}
	// The time is taken where the messages are counted: what came while the processes were looked at is of neither.
	drop := newCounts()
	w.recs.collect(drop)
	w.failures.collect(drop)
	r.result.Started = time.Now()
	begin := wire.Clock()
	if r.cfg.Warmup == 0 {
		w.start(ctx)
	}
	p := phase{r: r, name: "measure", window: w, of: time.Duration(r.cfg.Duration), begin: begin, sampled: true}
	failed := p.run(ctx)
	end := p.sampleFrom // of the last sample: what came since is not counted
	if r.hooks.Meter != nil && failed == nil {
		failed = r.hooks.Meter.End(r.result)
	}
	if r.hooks.End != nil {
		r.hooks.End()
	}
	if p.of == 0 && p.total.last > begin {
		end = p.total.last
	}
	res := r.result
	res.Seconds = (end - begin).Seconds()
	res.Messages, res.BodyBytes = p.total.messages, p.total.bytes
	if p.total.latency.Count() > 0 {
		res.Latency = p.total.latency
	}
	r.fail(p.total.errors)
	return failed
}

// watch lets a phase run that is not measured: for a time, or, with 0, until ended says so.
func (r *runner) watch(ctx context.Context, name string, recs recorders, of time.Duration, ended func() bool) (*counts, error) {
	p := phase{r: r, name: name, window: window{recs: recs, ended: ended}, of: of, begin: wire.Clock()}
	err := p.run(ctx)
	return p.total, err
}

// phase is a stretch of a run.
type phase struct {
	r       *runner
	name    string
	window  window
	of      time.Duration // 0: until it is done
	begin   time.Duration
	sampled bool // into the result

	total, second *counts
	sampleFrom    time.Duration
}

// run goes through the phase, second by second.
func (p *phase) run(ctx context.Context) error {
	p.total, p.second = newCounts(), newCounts()
	p.sampleFrom = p.begin
	lastSeen, lastAt := int64(0), p.begin
	for {
		next := p.sampleFrom + sampleEvery
		if p.of > 0 {
			next = min(next, p.begin+p.of)
		}
		over := p.until(ctx, next)
		now := wire.Clock()
		over = over || p.of > 0 && now >= p.begin+p.of
		if over && p.window.finish != nil {
			p.window.finish(now)
		}
		if err := p.sample(now); over || err != nil {
			return err
		}
		if p.total.messages != lastSeen {
			lastSeen, lastAt = p.total.messages, now
		}
		if patience := p.r.cfg.patience(); p.of == 0 && p.window.count == 0 && now-lastAt > patience {
			return &stuckError{p.name, patience, p.total.messages, maps.Clone(p.total.errors)}
		}
	}
}

// until waits until the clock shows next; true says that the phase is over before.
func (p *phase) until(ctx context.Context, next time.Duration) bool {
	for {
		if p.isDone() {
			return true
		}
		wait := next - wire.Clock()
		if wait <= 0 {
			return false
		}
		if p.window.ended != nil || p.window.count > 0 {
			wait = min(wait, donePoll)
		}
		if !sleep(ctx, wait) {
			return true
		}
	}
}

func (p *phase) isDone() bool {
	if p.window.ended != nil && p.window.ended() {
		return true
	}
	if p.window.count == 0 {
		return false
	}
	return p.total.messages+p.window.recs.pending() >= p.window.count
}

// sample ends a second.
func (p *phase) sample(now time.Duration) error {
	p.window.recs.collect(p.second)
	p.window.failures.collectFailures(p.second)
	seconds := (now - p.sampleFrom).Seconds()
	p.total.add(p.second)
	if p.sampled && seconds > 0 {
		p.r.result.Samples = append(p.r.result.Samples,
			result.NewSample((now-p.begin).Seconds(), seconds, p.second.messages, p.second.failed, p.second.latency))
	}
	if p.r.hooks.Progress != nil {
		progress := Progress{Phase: p.name, Elapsed: now - p.begin, Of: p.of, Messages: p.total.messages, Errors: p.total.failed}
		if seconds > 0 {
			progress.Rate = float64(p.second.messages) / seconds
		}
		if p.second.latency.Count() > 0 {
			progress.Latency = p.second.latency
		}
		p.r.hooks.Progress(progress)
	}
	p.second.reset()
	p.sampleFrom = now
	if p.sampled && p.r.hooks.Meter != nil {
		return p.r.hooks.Meter.Sample()
	}
	return nil
}

// stuckError ends a run that waits for something that does not come.
type stuckError struct {
	phase    string
	waited   time.Duration
	messages int64
	errors   map[string]int64
}

func (e *stuckError) Error() string {
	return fmt.Sprintf("%s: nothing came for %v, after %d messages; failures so far: %v", e.phase, e.waited, e.messages, e.errors)
}
