// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strconv"
	"sync/atomic"
	"time"

	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

// consumers pull all queues of a run, each group all of them. Every queue of a group has one pull in flight, always.
type consumers struct {
	links
	cfg  *Config
	recs recorders
	all  []*consumer
	open atomic.Int64 // pullers that have not come to their end
	// saw, if set, is given every message, on the reader of its connection; at is when it was read.
	saw func(q *queue, r *wire.Record, at time.Duration)
	// fromDue measures from when a message was due to be sent, by its stamp, to its arrival; else a latency is a pull's.
	fromDue bool
	// run, if set, is the run whose messages count; others are passed over.
	run      uint32
	stopping atomic.Bool
	// pause is how long a puller takes for a message when the run has a rate, of which each has its part.
	pause time.Duration
}

// consumer is a connection with its share of the queues.
type consumer struct {
	link
	cs *consumers

	// The link's state guards the rest.

	pullers []*puller
	counted round
}

// puller reads one queue for one group.
type puller struct {
	call    wire.Call
	c       *consumer
	q       *queue
	request wire.PullRequest
	sent    time.Duration
	due     time.Duration // when the rate lets it pull again
	pulling bool
	ended   bool
	until   int64 // the offset to stop at; -1: none
}

// consumerOptions say what to read.
type consumerOptions struct {
	group   string
	groups  int
	from    func(*queue) int64
	until   func(*queue) int64 // nil: without end
	hold    time.Duration
	commit  bool
	fromDue bool
	run     uint32
	saw     func(*queue, *wire.Record, time.Duration)
}

func newConsumers(cfg *Config, masters []*master, o consumerOptions) (*consumers, error) {
	form, err := cfg.serialize()
	if err != nil {
		return nil, err
	}
	cs := &consumers{cfg: cfg, saw: o.saw, fromDue: o.fromDue, run: o.run, recs: newRecorders(len(masters) * cfg.Connections)}
	pullers := 0
	for _, m := range masters {
		pulls := make([]*puller, 0, len(m.queues)*o.groups)
		for g := range o.groups {
			for _, q := range m.queues {
				p := &puller{q: q, until: -1}
				p.request.Template = wire.NewPullTemplate(wire.PullOptions{
					Group: nthGroup(o.group, g), Topic: q.topic, QueueID: q.id, MaxMessages: cfg.PullBatch, HoldMillis: o.hold.Milliseconds(),
					Commit: o.commit, Serialize: form,
				})
				p.request.Offset = o.from(q)
				p.request.Commit = p.request.Offset
				if o.until != nil {
					p.until = o.until(q)
				}
				p.call.Done = p.done
				if p.ended = p.until >= 0 && p.request.Offset >= p.until; !p.ended {
					cs.open.Add(1)
				}
				pulls = append(pulls, p)
			}
		}
		cs.share(m, pulls)
		pullers += len(pulls)
	}
	if cfg.Workload == Consume && cfg.Rate > 0 {
		cs.pause = time.Duration(float64(pullers) / cfg.Rate * float64(time.Second))
	}
	return cs, nil
}

// nthGroup is the name of one of a run's groups, counted from 0.
func nthGroup(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "_" + strconv.Itoa(n)
}

// share gives a master's queues to connections, one after the other.
func (cs *consumers) share(m *master, pulls []*puller) {
	n := min(cs.cfg.Connections, len(pulls))
	first := len(cs.all)
	for range n {
		c := &consumer{cs: cs}
		c.link = link{addr: m.addr, timeout: time.Duration(cs.cfg.Timeout + cs.cfg.Hold), user: c, rec: cs.recs.of(len(cs.all))}
		cs.all = append(cs.all, c)
		cs.links.all = append(cs.links.all, &c.link)
	}
	for i, p := range pulls {
		p.c = cs.all[first+i%n]
		p.c.pullers = append(p.c.pullers, p)
		p.c.window = len(p.c.pullers)
	}
}

// caughtUp says that every queue was read to where it was to be read to, and that all of it is counted.
func (cs *consumers) caughtUp() bool {
	if cs.open.Load() != 0 {
		return false
	}
	for _, c := range cs.all {
		c.state.Lock()
		counted := c.counted.empty()
		c.state.Unlock()
		if !counted {
			return false
		}
	}
	return true
}

// stop ends all: nobody waits for a pull that is held.
func (cs *consumers) stop() {
	cs.stopping.Store(true)
	cs.links.close()
}

func (c *consumer) attached(conn *wire.Conn) {
	c.state.Lock()
	now := wire.Clock()
	for _, p := range c.pullers {
		p.pullLocked(now)
	}
	c.state.Unlock()
	conn.Flush()
}

// lostLocked has nothing to do: what waits for an answer is told by its call.
func (c *consumer) lostLocked() {}

func (c *consumer) round(conn *wire.Conn) {
	c.state.Lock()
	if !c.counted.empty() {
		c.rec.add(&c.counted, 1, conn.ReadAt())
	}
	c.state.Unlock()
	conn.Flush()
}

// pullLocked asks for what comes next, unless that is done already.
func (p *puller) pullLocked(now time.Duration) {
	c := p.c
	if p.pulling || p.ended || c.conn == nil || c.cs.stopping.Load() {
		return
	}
	p.sent = now
	p.pulling = c.conn.Send(&p.call, &p.request, now) == nil
}

// done takes an answer, on the connection's reader, or a failure. The state is locked.
func (p *puller) done(_ *wire.Call, answer *remoting.Command, err error) {
	c := p.c
	p.pulling = false
	if err != nil {
		if !c.cs.stopping.Load() {
			c.rec.fail(failureName(err), 1)
			time.AfterFunc(retryWait, p.retry) // it writes: here is no reader that would
		}
		return
	}
	at := c.conn.ReadAt()
	before := p.request.Offset
	more := p.take(answer, at)
	if p.until >= 0 && p.request.Offset >= p.until && !p.ended {
		p.ended = true
		c.cs.open.Add(-1)
	}
	if !more {
		time.AfterFunc(retryWait, p.retry)
		return
	}
	if p.due = max(p.due+time.Duration(p.request.Offset-before)*c.cs.pause, at); p.due > at {
		time.AfterFunc(p.due-at, p.retry)
		return
	}
	p.pullLocked(at)
}

// take takes the messages of an answer, and the offset to go on from. False says to wait a little with the next pull.
func (p *puller) take(answer *remoting.Command, at time.Duration) bool {
	c := p.c
	switch answer.Code {
	case remoting.Success, remoting.PullNotFound, remoting.PullRetryImmediately:
	case remoting.PullOffsetMoved:
		c.rec.fail(remoting.ResponseName(answer.Code), 1)
	default:
		c.rec.fail(remoting.ResponseName(answer.Code), 1)
		return false
	}
	next, err := answer.Ext.Int64("nextBeginOffset", -1)
	if err != nil || next < 0 || answer.Code == remoting.Success && !p.messages(answer.Body, next, at) {
		c.rec.fail(errBadAnswer, 1)
		return false
	}
	// A queue that has nothing yet is answered at once by a broker, with nothing to wait for.
	idle := answer.Code == remoting.PullNotFound && at-p.sent < retryWait
	p.request.Offset, p.request.Commit = next, next
	return !idle
}

// messages counts the messages of an answer whose last is before next. False says that there is one that is wrong: what was
// counted before it is not asked for again.
func (p *puller) messages(body []byte, next int64, at time.Duration) bool {
	c := p.c
	expected := p.request.Offset
	var r wire.Record
	for len(body) > 0 {
		var err error
		if body, err = wire.NextRecord(body, &r); err != nil || r.QueueOffset < expected || r.QueueOffset >= next || r.QueueID != int32(p.q.id) {
			p.request.Offset, p.request.Commit = expected, expected
			return false
		}
		expected = r.QueueOffset + 1
		if c.cs.fromDue {
			s, ok := readStamp(r.Body)
			if c.cs.run != 0 && (!ok || s.run != c.cs.run) {
				continue
			}
			if ok {
				c.counted.latencies = append(c.counted.latencies, time.Duration(wire.WallClock(at)-s.due))
			}
		}
		c.counted.messages++
		c.counted.bytes += int64(len(r.Body))
		if c.cs.saw != nil {
			c.cs.saw(p.q, &r, at)
		}
	}
	if !c.cs.fromDue {
		c.counted.latencies = append(c.counted.latencies, at-p.sent)
	}
	return expected > p.request.Offset
}

func (p *puller) retry() {
	p.c.state.Lock()
	p.pullLocked(wire.Clock())
	conn := p.c.conn
	p.c.state.Unlock()
	if conn != nil {
		conn.Flush()
	}
}
