// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"time"

	"loopmq/bench/load"
)

// What the parts of a turn take beside the window, as found on a machine with two processors and a disk of 500 MB/s: an
// expectation for who waits.
const (
	startTook     = 500 * time.Millisecond // a broker of ours, with its topic
	jvmStartTook  = 4 * time.Second
	slaveTook     = 500 * time.Millisecond
	jvmSlaveTook  = 3 * time.Second
	afterTurnTook = time.Second // last answers, what was written goes to the disk
	fillRate      = 250_000     // messages a second
	jvmFillRate   = 120_000
	drainRate     = 400_000
	jvmDrainRate  = 150_000
	growRate      = 200 << 20 // bytes a second
	copyRate      = 400 << 20
	recoverTook   = time.Second
	jvmRecover    = 6 * time.Second
)

// Expect is about how long the plan is going to take.
func (p *Plan) Expect() time.Duration {
	var all time.Duration
	for _, row := range p.Rows {
		all += p.ExpectRow(row)
	}
	return all
}

// ExpectRow is about how long a row is going to take.
func (p *Plan) ExpectRow(row Row) time.Duration {
	var all time.Duration
	for _, s := range p.Subjects {
		if s.can(row) {
			all += p.expectPrepare(row, s) + time.Duration(p.Rounds)*(p.expectTurn(row, s)+afterTurnTook)
		}
	}
	return all
}

// expectPrepare is what comes before the first turn, see host.prepare.
func (p *Plan) expectPrepare(row Row, s Subject) time.Duration {
	if row.startsItself() || !s.isJVM() && row.Settings.Client == "" {
		return 0
	}
	took := p.Settle + expectStart(row, s) + afterTurnTook
	if row.Settings.Workload == load.Drain {
		took -= p.Settle - 2*expectDrain(row, s)
	}
	return took
}

func expectStart(row Row, s Subject) time.Duration {
	slaves := time.Duration(row.slaves())
	if s.isJVM() {
		return jvmStartTook + slaves*jvmSlaveTook
	}
	return startTook + slaves*slaveTook
}

func expectDrain(row Row, s Subject) time.Duration {
	rate := drainRate
	if s.isJVM() || row.Settings.Client != "" {
		rate = jvmDrainRate
	}
	return seconds(row.Settings.Count, int64(rate))
}

func expectFill(messages int64, s Subject) time.Duration {
	if s.isJVM() {
		return seconds(messages, jvmFillRate)
	}
	return seconds(messages, fillRate)
}

// expectTurn is host.measure, with the start of a broker that does not stay between turns.
func (p *Plan) expectTurn(row Row, s Subject) time.Duration {
	window := p.warmup(row.Settings) + p.Duration
	if !s.isJVM() && s.Flavour != nil {
		window += expectStart(row, s)
	}
	switch row.Settings.Workload {
	case Start:
		return expectStart(row, s)
	case Idle:
		return expectStart(row, s) + idleSettle + time.Duration(row.Settings.Duration)
	case Recovery:
		took := recoverTook
		if s.isJVM() {
			took = jvmRecover
		}
		return expectStart(row, s) + expectFill(row.LogBytes/storedBytes, s) + crashLoad + took
	case CatchUp:
		return expectStart(row, s) + expectFill(row.LogBytes/storedBytes, s)/2 + 2*seconds(row.LogBytes, copyRate)
	case LogSize:
		return expectStart(row, s) + seconds(p.LogMax, growRate)
	case load.Drain:
		return expectStart(row, s) + expectFill(row.Settings.Count, s) + expectDrain(row, s)
	case OpenLoop:
		if row.Settings.Backlog == 0 {
			return window
		}
		window += expectFill(row.Settings.Backlog, s) + coldPause + expectStart(row, s)
		if s.isJVM() {
			window += p.Settle
		}
	}
	return window
}

func seconds(n, rate int64) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
