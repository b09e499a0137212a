// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

// Meter reads what processes use during the measured window; proc.Meter is one.
type Meter interface {
	Begin() error
	Sample() error
	End(*result.Result) error
}

// Hooks are what a run tells; each may be nil.
type Hooks struct {
	Progress func(Progress)
	Meter    Meter
	Begin    func() // the window begins
	End      func() // and has ended
	// Slow is told of each acknowledged request that took longer than SlowFrom, in the warm-up too: when it was due and when
	// its answer was read, by wire.Clock. Readers of several connections call it at once.
	Slow     func(due, at time.Duration)
	SlowFrom time.Duration
}

// Progress is how a run goes, once a second.
type Progress struct {
	Phase    string // fill, warm-up, measure, read back
	Elapsed  time.Duration
	Of       time.Duration // 0: until it is done
	Messages int64         // of the phase, so far
	Rate     float64       // of the last second
	Errors   int64
	Latency  *result.Histogram // of the last second; nil: none
}

// sampleEvery is the length of a sample.
const sampleEvery = time.Second

// ErrWrong is what the error of a verified run wraps when an acknowledged message is lost, doubled, reordered or changed.
var ErrWrong = errors.New("not every acknowledged message is where it belongs")

var (
	errInterrupted = errors.New("interrupted before there was anything to tell")
	errUnverified  = errors.New("interrupted before all was read back: nobody knows whether anything is lost")
)

// runner is one run.
type runner struct {
	cfg     Config
	hooks   Hooks
	id      uint32
	masters []*master
	result  *result.Result
}

// Run does what cfg says. When ctx ends early, the result is about what was done until then, and there is no error, but for
// a run that was to be verified. An error after the window began comes with a result too: of what was measured until then.
func Run(ctx context.Context, cfg Config, hooks Hooks) (*result.Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &runner{cfg: cfg, hooks: hooks, id: max(rand.Uint32(), 1)}
	r.result = &result.Result{Settings: cfg.Settings, Label: cfg.Workload}
	var err error
	if r.masters, err = cfg.findMasters(ctx, cfg.Workload != Consume); err != nil {
		return nil, err
	}
	switch cfg.Workload {
	case Produce:
		err = r.produce(ctx)
	case Consume:
		err = r.consume(ctx)
	case Drain:
		err = r.drain(ctx)
	case Latency:
		err = r.latency(ctx)
	}
	r.forgetGroups(context.WithoutCancel(ctx))
	switch measured := r.result.Seconds > 0; {
	case err != nil && !measured && ctx.Err() != nil:
		return nil, errInterrupted
	case err != nil && !measured:
		return nil, err
	}
	r.result.Server.Version = r.serverVersion(ctx)
	r.result.Derive()
	return r.result, err
}

// serverVersion is what the first broker says it is; nothing when it does not say.
func (r *runner) serverVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, "broker", r.masters[0].addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	info, err := wire.RuntimeInfo(ctx, conn)
	if err != nil {
		return ""
	}
	return info["brokerVersionDesc"]
}

// produce sends, and reads back when that is asked for.
func (r *runner) produce(ctx context.Context) error {
	ps, err := r.producers(ctx)
	if err != nil {
		return err
	}
	w := window{connect: ps.connect, start: ps.start, finish: ps.finish, recs: ps.recs}
	if ps.limited {
		w.ended = ps.spent
	}
	err = r.measure(ctx, w)
	ps.stop()
	after := newCounts()
	ps.recs.collect(after)
	r.fail(after.errors)
	r.tookLong(after.latency)
	if err != nil {
		return err
	}
	return r.verify(ctx, ps)
}

// producers prepares producers; a verified run remembers where the queues ended before.
func (r *runner) producers(ctx context.Context) (*producers, error) {
	if err := r.ends(ctx, func(q *queue, offset int64) { q.begin = offset }); err != nil {
		return nil, err
	}
	ps, err := newProducers(&r.cfg, r.masters, r.id)
	if err == nil && r.hooks.Slow != nil {
		ps.slow, ps.slowFrom = r.hooks.Slow, r.hooks.SlowFrom
	}
	return ps, err
}

// ends asks for the end of each queue, if anything of this run is going to be read.
func (r *runner) ends(ctx context.Context, set func(*queue, int64)) error {
	if !r.cfg.reads() {
		return nil
	}
	return forQueues(ctx, r.masters, func(ctx context.Context, conn *wire.Conn, q *queue) error {
		offset, err := wire.MaxOffset(ctx, conn, q.topic, q.id)
		set(q, offset)
		return err
	})
}

// fail adds failures to the result.
func (r *runner) fail(failures map[string]int64) {
	for name, n := range failures {
		if r.result.Errors == nil {
			r.result.Errors = make(map[string]int64)
		}
		r.result.Errors[name] += n
	}
}

// tookLong adds the latencies of what was under way when the window ended. It is not of the window's messages; but a broker
// that stood still at the end would not be seen without it.
func (r *runner) tookLong(late *result.Histogram) {
	if late.Count() == 0 {
		return
	}
	if r.result.Latency == nil {
		r.result.Latency = result.NewHistogram()
	}
	r.result.Latency.Merge(late)
}

// consume reads what comes, or what is there.
func (r *runner) consume(ctx context.Context) error {
	err := forQueues(ctx, r.masters, func(ctx context.Context, conn *wire.Conn, q *queue) (err error) {
		if r.cfg.From == FromFirst {
			q.begin, err = wire.MinOffset(ctx, conn, q.topic, q.id)
		} else {
			q.begin, err = wire.MaxOffset(ctx, conn, q.topic, q.id)
		}
		return err
	})
	if err != nil {
		return err
	}
	cs, err := r.groupConsumers(0)
	if err != nil {
		return err
	}
	err = r.measure(ctx, window{connect: cs.connect, start: cs.use, recs: cs.recs, count: r.cfg.Count})
	cs.stop()
	return err
}

func (r *runner) groupName() string { return fmt.Sprintf("loopmq_bench_%08x", r.id) }

func (r *runner) verifyGroup() string { return r.groupName() + "_verify" }

// forgetGroups takes the run's groups from the brokers, which have made them at the first pull. A broker that is gone by
// now keeps them, and the run's figures stand.
func (r *runner) forgetGroups(ctx context.Context) {
	if !r.cfg.reads() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for _, m := range r.masters {
		conn, err := dial(ctx, "broker", m.addr)
		if err != nil {
			continue
		}
		for g := range r.cfg.Groups {
			_ = wire.DeleteGroup(ctx, conn, nthGroup(r.groupName(), g))
		}
		if r.cfg.Verify {
			_ = wire.DeleteGroup(ctx, conn, r.verifyGroup())
		}
		conn.Close()
	}
}

// drain fills, and reads as fast as it can.
func (r *runner) drain(ctx context.Context) error {
	ps, err := r.fill(ctx)
	if err != nil {
		return err
	}
	var saw func(*queue, *wire.Record, time.Duration)
	if ps.account != nil && r.cfg.Groups == 1 {
		saw = func(q *queue, m *wire.Record, _ time.Duration) { ps.account.saw(q, m) }
	}
	cs, err := newConsumers(&r.cfg, r.masters, consumerOptions{
		group: r.groupName(), groups: r.cfg.Groups, hold: time.Duration(r.cfg.Hold), commit: true, saw: saw,
		from:  func(q *queue) int64 { return q.begin },
		until: func(q *queue) int64 { return q.end },
	})
	if err != nil {
		return err
	}
	r.cfg.Warmup, r.cfg.Duration = 0, 0
	err = r.measure(ctx, window{connect: cs.connect, start: cs.use, recs: cs.recs, ended: cs.caughtUp})
	cs.stop()
	switch {
	case err != nil:
		return err
	case saw != nil && cs.caughtUp():
		return r.settle(ps.account)
	}
	return r.verify(ctx, ps)
}

// fill sends the backlog of a drain, and waits until it can be read.
func (r *runner) fill(ctx context.Context) (*producers, error) {
	ps, err := r.producers(ctx)
	if err != nil {
		return nil, err
	}
	if err := ps.connect(ctx); err != nil {
		return nil, err
	}
	ps.start(ctx)
	sum, err := r.watch(ctx, "fill", ps.recs, 0, ps.spent)
	ps.stop()
	if err != nil {
		return nil, err
	}
	ps.recs.collect(sum)
	r.fail(sum.errors)
	if ps.cfg.Mode == ModeOneway {
		sum.messages = 0 // nobody knows how many came
	}
	return ps, r.readable(ctx, sum.messages)
}

const (
	// readableWait bounds the wait for the queues to show what the log has.
	readableWait = time.Minute
	readablePoll = 20 * time.Millisecond
)

// readable waits until the queues have as many messages as were acknowledged, each those that answers placed in it, and do
// not grow any more.
func (r *runner) readable(ctx context.Context, acknowledged int64) error {
	before := int64(-1)
	for end := time.Now().Add(readableWait); ; {
		if err := r.ends(ctx, func(q *queue, offset int64) { q.end = offset }); err != nil {
			return err
		}
		there, whole := int64(0), true
		for _, m := range r.masters {
			for _, q := range m.queues {
				there += q.end - q.begin
				whole = whole && q.end >= q.acked.Load()
			}
		}
		if whole && there >= acknowledged && there == before || time.Now().After(end) {
			return nil // what is not there by now is going to be missed by who reads it
		}
		before = there
		if !sleep(ctx, readablePoll) {
			return ctx.Err()
		}
	}
}

// groupConsumers are those of the run's groups, which read on as messages come: those of one run, or with 0 all.
func (r *runner) groupConsumers(run uint32) (*consumers, error) {
	return newConsumers(&r.cfg, r.masters, consumerOptions{
		group: r.groupName(), groups: r.cfg.Groups, hold: time.Duration(r.cfg.Hold), commit: true, fromDue: true, run: run,
		from: func(q *queue) int64 { return q.begin },
	})
}

// latency sends at a fixed rate and measures until consumers have what was sent.
func (r *runner) latency(ctx context.Context) error {
	ps, err := r.producers(ctx)
	if err != nil {
		return err
	}
	cs, err := r.groupConsumers(r.id)
	if err != nil {
		return err
	}
	if err := cs.connect(ctx); err != nil {
		return err
	}
	cs.use(ctx)
	defer cs.stop()
	// The producers' failures count, their latency does not: a message ends when it is consumed.
	w := window{connect: ps.connect, start: ps.start, finish: ps.finish, recs: cs.recs, failures: ps.recs}
	missing := func() int64 { return int64(r.cfg.Groups)*ps.recs.ever() - cs.recs.ever() }
	if ps.limited {
		w.ended = arrival(ps.spent, missing, time.Duration(r.cfg.Timeout))
	}
	err = r.measure(ctx, w)
	ps.stop()
	after := newCounts()
	ps.recs.collect(after)
	r.fail(after.errors)
	if err != nil {
		return err
	}
	r.arrive(ctx, cs.recs, missing)
	return r.verify(ctx, ps)
}

// arrival says when all has been sent and has arrived, or for so long nothing more has.
func arrival(spent func() bool, missing func() int64, patience time.Duration) func() bool {
	last, since := int64(-1), time.Duration(0)
	return func() bool {
		if !spent() {
			return false
		}
		now := wire.Clock()
		if left := missing(); left != last {
			last, since = left, now
		}
		return last <= 0 || now-since > patience
	}
}

// arrive waits for the messages that are under way to consumers when the window has ended. What does not come is a failure.
func (r *runner) arrive(ctx context.Context, recs recorders, missing func() int64) {
	over := arrival(func() bool { return true }, missing, time.Duration(r.cfg.Timeout))
	for !over() && sleep(ctx, donePoll) {
	}
	after := newCounts()
	recs.collect(after)
	r.fail(after.errors)
	r.tookLong(after.latency)
	if n := missing(); n > 0 && ctx.Err() == nil {
		r.fail(map[string]int64{errUnread: n})
	}
}

// verify reads everything back that a verified run has sent.
func (r *runner) verify(ctx context.Context, ps *producers) error {
	if ps.account == nil {
		return nil
	}
	err := r.readBack(ctx, ps)
	if err != nil && ctx.Err() != nil {
		return errUnverified
	}
	return err
}

func (r *runner) readBack(ctx context.Context, ps *producers) error {
	acknowledged := int64(0)
	for _, l := range ps.account.ledgers {
		acknowledged += l.acked
	}
	if err := r.readable(ctx, acknowledged); err != nil {
		return err
	}
	cfg := r.cfg
	cfg.PullBatch, cfg.Groups = max(cfg.PullBatch, verifyPullBatch), 1
	cs, err := newConsumers(&cfg, r.masters, consumerOptions{
		group: r.verifyGroup(), groups: 1,
		from:  func(q *queue) int64 { return q.begin },
		until: func(q *queue) int64 { return q.end },
		saw:   func(q *queue, m *wire.Record, _ time.Duration) { ps.account.saw(q, m) },
	})
	if err != nil {
		return err
	}
	if err := cs.connect(ctx); err != nil {
		return err
	}
	cs.use(ctx)
	sum, err := r.watch(ctx, "read back", cs.recs, 0, cs.caughtUp)
	cs.stop()
	for name, n := range sum.errors {
		r.fail(map[string]int64{name + whenReadBack: n})
	}
	if err != nil {
		return err
	}
	if !cs.caughtUp() {
		return ctx.Err()
	}
	return r.settle(ps.account)
}

const (
	verifyPullBatch = 32
	// whenReadBack is behind the name of a failure to read back: it is none of the load's.
	whenReadBack = " when read back"
)

// settle puts the account into the result; an error tells what is wrong.
func (r *runner) settle(a *account) error {
	total, wrong := a.close()
	r.result.Accounted = &total
	if len(wrong) == 0 {
		return nil
	}
	errs := []error{ErrWrong}
	for _, text := range wrong {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}
