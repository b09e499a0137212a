// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"loopmq/bench/load"
	"loopmq/bench/peer"
	"loopmq/bench/proc"
	"loopmq/bench/result"
)

// Subject is a server, or a kind of server, that is measured.
type Subject struct {
	Name    string       // in tables
	Flavour proc.Flavour // started for each row; nil for one that runs already
	Addr    string       // of one that runs already
	PID     int          // of one that runs already; 0: its figures are not known
}

// isJVM is whether the subject needs to be warm, and so is kept between its turns.
func (s Subject) isJVM() bool {
	_, java := s.Flavour.(peer.Broker)
	return java
}

// can is whether a row can be run against the subject. One that runs already is as it is, and is not to be killed.
func (s Subject) can(row Row) bool {
	if s.Flavour != nil {
		return true
	}
	own := row.needsOwnServers() || row.slaves() > 0 || row.Settings.Flush != flushAsync || row.Settings.Client != ""
	return !own
}

// Plan is which rows are run against which subjects, and how.
type Plan struct {
	Rows          []Row
	Subjects      []Subject // the first one is the reference
	Rounds        int
	Warmup        time.Duration // before each window
	Duration      time.Duration // of each window
	Settle        time.Duration // of unmeasured load before the first round, if something is to be compiled
	Dir           string        // where stores are put
	Binary        string        // loopmq, for the name server and the null server
	LogMax        int64         // bytes to which a log grows whose size is the row
	FillPageCache bool          // before each turn
	Tool          result.Build
	Client        *peer.Peer                 // the release whose client is used by rows that ask for it
	Say           func(string)               // a line of progress
	Progress      func(load.Progress)        // of the load that runs, once a second; nil: nobody looks
	Done          func(*result.Result) error // takes each result as it comes

	pages pageCache
}

// newQueueRate is how many queues a second a broker makes at least; each is a directory and a file.
const newQueueRate = 1000

// warmup leaves the making of queues in front of the window.
func (p *Plan) warmup(s result.Settings) time.Duration {
	return max(p.Warmup, seconds(int64(s.Queues), newQueueRate))
}

// Run runs the plan. A subject that fails in a row is left out of the rest of that row; the errors come at the end.
func (p *Plan) Run(ctx context.Context) error {
	var failed []error
	defer func() { p.pages.close() }()
	for i, row := range p.Rows {
		p.Say(fmt.Sprintf("%d/%d  %s", i+1, len(p.Rows), row.Name))
		if err := p.runRow(ctx, row); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", row.Name, err))
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}

func (p *Plan) runRow(ctx context.Context, row Row) (err error) {
	var hosts []*host
	var failed []error
	defer func() {
		for _, h := range hosts {
			err = errors.Join(err, h.close())
		}
	}()
	for _, subject := range p.Subjects {
		if !subject.can(row) {
			p.Say("  " + subject.Name + ": not possible with a server that runs already")
			continue
		}
		h := &host{plan: p, row: row, subject: subject}
		hosts = append(hosts, h)
		if err := h.prepare(ctx); err != nil {
			failed = append(failed, h.failure(err))
		}
	}
	for round, order := range result.Order(len(hosts), p.Rounds) {
		for _, i := range order {
			h := hosts[i]
			if h.failed || ctx.Err() != nil {
				continue
			}
			if err := h.turn(ctx, round+1); err != nil {
				failed = append(failed, h.failure(err))
			}
		}
	}
	return errors.Join(failed...)
}

// failure takes a host out of its row.
func (h *host) failure(err error) error {
	h.failed = true
	h.plan.Say("  " + h.subject.Name + ": " + err.Error())
	return fmt.Errorf("%s: %w", h.subject.Name, errors.Join(err, h.rest()))
}

// whoEnded tells of brokers that ran and do not any more, with what they said: their files are removed.
func (h *host) whoEnded() error {
	var errs []error
	for _, b := range append(slices.Clone(h.slaves), h.master) {
		if b != nil && !b.Started().IsZero() && b.PID() == 0 {
			errs = append(errs, b.Failure())
		}
	}
	return errors.Join(errs...)
}

// turn is one run of a subject.
func (h *host) turn(ctx context.Context, round int) error {
	if h.plan.FillPageCache {
		if err := h.plan.pages.fill(ctx, h.plan.Dir); err != nil {
			return err
		}
	}
	results, err := h.measure(ctx)
	if err != nil {
		return errors.Join(err, h.whoEnded())
	}
	if err := h.rest(); err != nil {
		return err
	}
	for _, r := range results {
		if err := h.done(r, round); err != nil {
			return err
		}
	}
	return nil
}

// done completes a result and hands it out.
func (h *host) done(r *result.Result, round int) error {
	if r.Row == "" {
		r.Row, r.Base = h.row.Name, h.row.Base
	}
	r.Label, r.Subject, r.Round = r.Row, h.subject.Name, round
	r.Settings.Flush, r.Settings.Role = h.row.Settings.Flush, h.row.Settings.Role
	r.Tool, r.Host = h.plan.Tool, proc.HostOf(h.plan.Dir)
	if h.plan.FillPageCache {
		r.Host.PageCache = "full"
	}
	r.Server.Name = h.subject.Name // its version is what it says
	if h.subject.Flavour != nil {
		r.Server = h.subject.Flavour.Build()
	}
	r.Derive()
	name := ""
	if r.Row != h.row.Name {
		name = r.Row + ": "
	}
	h.plan.Say(fmt.Sprintf("  %-12s round %d: %s%s", h.subject.Name, round, name, r.Summary()))
	return h.plan.Done(r)
}
