// SPDX-License-Identifier: Apache-2.0

package load

import (
	"sync"
	"time"

	"loopmq/bench/result"
)

// recordersMax bounds the recorders of a run: a histogram takes some hundred kilobytes, connections can be many.
const recordersMax = 16

// recorder counts what some connections did since it was last collected.
type recorder struct {
	mu       sync.Mutex // guards the rest
	latency  *result.Histogram
	messages int64
	bytes    int64
	errors   map[string]int64
	last     time.Duration // when something was counted last
	ever     int64         // messages, collected or not
}

// round is what one connection counts between two looks at the recorder: the answers of one read.
type round struct {
	latencies []time.Duration
	messages  int64
	bytes     int64
}

func (r *round) empty() bool { return r.messages == 0 && len(r.latencies) == 0 }

// add counts a connection's round, whose answers were read at a time; perRequest messages had each latency.
func (r *recorder) add(c *round, perRequest int64, at time.Duration) {
	r.mu.Lock()
	for _, d := range c.latencies {
		r.latency.RecordN(d, perRequest)
	}
	r.messages += c.messages
	r.ever += c.messages
	r.bytes += c.bytes
	r.last = max(r.last, at)
	r.mu.Unlock()
	c.latencies, c.messages, c.bytes = c.latencies[:0], 0, 0
}

func (r *recorder) fail(name string, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.errors == nil {
		r.errors = make(map[string]int64)
	}
	r.errors[name] += n
}

// counts is what was collected from recorders.
type counts struct {
	latency  *result.Histogram
	messages int64
	bytes    int64
	errors   map[string]int64
	failed   int64 // sum of errors
	last     time.Duration
}

func newCounts() *counts {
	return &counts{latency: result.NewHistogram(), errors: make(map[string]int64)}
}

func (c *counts) reset() {
	c.latency.Reset()
	c.messages, c.bytes, c.failed = 0, 0, 0
	clear(c.errors)
}

func (c *counts) add(other *counts) {
	c.latency.Merge(other.latency)
	c.messages += other.messages
	c.bytes += other.bytes
	c.failed += other.failed
	c.last = max(c.last, other.last)
	for name, n := range other.errors {
		c.errors[name] += n
	}
}

// recorders are those of one kind of work, shared out over its connections.
type recorders []*recorder

func newRecorders(connections int) recorders {
	rs := make(recorders, min(max(connections, 1), recordersMax))
	for i := range rs {
		rs[i] = &recorder{latency: result.NewHistogram()}
	}
	return rs
}

func (rs recorders) of(connection int) *recorder { return rs[connection%len(rs)] }

// ever is how many messages were counted since the run began.
func (rs recorders) ever() (n int64) {
	for _, r := range rs {
		r.mu.Lock()
		n += r.ever
		r.mu.Unlock()
	}
	return n
}

// pending is how many messages were counted and not collected. Collecting is dear: it adds histograms up.
func (rs recorders) pending() (n int64) {
	for _, r := range rs {
		r.mu.Lock()
		n += r.messages
		r.mu.Unlock()
	}
	return n
}

// collectFailures moves the failures alone into c, and drops the rest.
func (rs recorders) collectFailures(c *counts) {
	all := newCounts()
	rs.collect(all)
	c.failed += all.failed
	for name, n := range all.errors {
		c.errors[name] += n
	}
}

// collect moves what was counted into c.
func (rs recorders) collect(c *counts) {
	for _, r := range rs {
		r.mu.Lock()
		if r.latency.Count() > 0 {
			c.latency.Merge(r.latency)
			r.latency.Reset()
		}
		c.messages += r.messages
		c.bytes += r.bytes
		c.last = max(c.last, r.last)
		for name, n := range r.errors {
			c.errors[name] += n
			c.failed += n
		}
		r.messages, r.bytes = 0, 0
		clear(r.errors)
		r.mu.Unlock()
	}
}
