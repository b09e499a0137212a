// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

const (
	// onewayWrite is how much a one-way producer gathers for a write, and a message more.
	onewayWrite = 64 << 10
	// accountMax bounds the messages of a run that is verified: each takes four bytes and a bit of this process's memory.
	accountMax = 200_000_000
)

// producers are all producers of a run.
type producers struct {
	links
	cfg      *Config
	run      uint32
	filler   filler
	sizes    *Sizes
	recs     recorders
	all      []*producer
	byMaster [][]*producer
	account  *account // nil: not verified
	limited  bool
	budget   atomic.Int64 // messages that may still be sent, when limited
	pacing   sync.WaitGroup
	endsAt   atomic.Int64 // a time of Clock: what is due by a rate after it is not sent; 0: not known yet
	stopping atomic.Bool  // nothing more is sent

	slow     func(due, at time.Duration) // nil: nobody asks
	slowFrom time.Duration
}

func newProducers(cfg *Config, masters []*master, run uint32) (*producers, error) {
	sizes, err := ParseSizes(cfg.Body)
	if err != nil {
		return nil, err
	}
	ps := &producers{cfg: cfg, run: run, sizes: sizes, filler: newFiller(sizes.Max())}
	ps.recs = newRecorders(len(masters) * cfg.Connections)
	if cfg.Verify {
		ps.account = newAccount(run, ps.filler, masters)
	}
	ps.limited = cfg.Count > 0 || cfg.Verify
	ps.budget.Store(accountMax)
	if cfg.Count > 0 {
		ps.budget.Store(cfg.Count)
	}
	for _, m := range masters {
		t, err := ps.newTemplates(m)
		if err != nil {
			return nil, err
		}
		var here []*producer
		for i := range cfg.Connections {
			here = append(here, ps.newProducer(m, t, i))
		}
		ps.byMaster = append(ps.byMaster, here)
	}
	return ps, nil
}

// templates are the requests to each queue of a master, shared by the connections to it.
type templates struct {
	single []*wire.SendTemplate
	batch  []*wire.BatchTemplate
}

func (ps *producers) newTemplates(m *master) (*templates, error) {
	form, err := ps.cfg.serialize()
	if err != nil {
		return nil, err
	}
	t := new(templates)
	for _, q := range m.queues {
		o := wire.SendOptions{
			Group: "loopmq_bench", Topic: q.topic, BrokerName: m.name, QueueID: q.id, Serialize: form, Oneway: ps.cfg.Mode == ModeOneway,
		}
		if !ps.cfg.Plain {
			o.UniqueKey = uint64(ps.run)<<32 | 1
		}
		if ps.cfg.Mode == ModeBatch {
			t.batch = append(t.batch, wire.NewBatchTemplate(o))
		} else {
			t.single = append(t.single, wire.NewSendTemplate(o))
		}
	}
	return t, nil
}

// producer sends on one connection.
type producer struct {
	link
	ps        *producers
	id        uint32
	queues    []*queue
	templates *templates
	rand      *rand.Rand
	slots     []slot

	// The link's state guards the rest.

	free     []*slot
	requests int64 // sent; the number of the next one
	counted  round
	ledger   *ledger // nil: not verified
	pacer    *pacer  // nil: each answer makes room for a request
}

// slot is a place for one request in flight.
type slot struct {
	call    wire.Call
	p       *producer
	request wire.Request
	single  wire.SendRequest
	batch   wire.BatchRequest
	stamps  []byte
	due     time.Duration
	number  int64 // of the request
	bytes   int
}

func (ps *producers) newProducer(m *master, t *templates, connection int) *producer {
	id := len(ps.all)
	p := &producer{
		ps: ps, id: uint32(id), queues: m.queues, templates: t, rand: rand.New(rand.NewPCG(uint64(id), uint64(ps.run))),
	}
	window := ps.cfg.inFlight(connection)
	p.link = link{addr: m.addr, window: window, timeout: time.Duration(ps.cfg.Timeout), user: p, rec: ps.recs.of(id)}
	if ps.account != nil {
		p.ledger = ps.account.newLedger(p)
	}
	perRequest := ps.cfg.perRequest()
	p.slots = make([]slot, window)
	p.counted.latencies = make([]time.Duration, 0, window)
	for i := range p.slots {
		s := &p.slots[i]
		s.p, s.stamps = p, make([]byte, stampSize*perRequest)
		s.call.Done, s.call.HeadOnly = s.done, ps.account == nil
		s.request = &s.single
		if ps.cfg.Mode == ModeBatch {
			s.request, s.batch.Messages = &s.batch, make([]wire.Message, perRequest)
		}
		p.free = append(p.free, s)
	}
	ps.all = append(ps.all, p)
	ps.links.all = append(ps.links.all, &p.link)
	return p
}

// start begins to send.
func (ps *producers) start(ctx context.Context) {
	ps.use(ctx)
	start := wire.Clock()
	switch {
	case ps.cfg.Rate > 0:
		for _, here := range ps.byMaster {
			pc := newPacer(here, ps.cfg.Rate/float64(len(ps.byMaster))/float64(ps.cfg.perRequest()), start)
			ps.pacing.Go(pc.run)
		}
	case ps.cfg.Mode == ModeOneway:
		for _, p := range ps.all {
			ps.pacing.Go(p.pour)
		}
	}
}

// closed says that each answer makes room for the next request.
func (ps *producers) closed() bool { return ps.cfg.Rate == 0 && ps.cfg.Mode != ModeOneway }

// take takes a request's messages from the budget.
func (ps *producers) take() bool {
	if !ps.limited {
		return true
	}
	n := int64(ps.cfg.perRequest())
	if ps.budget.Add(-n) >= 0 {
		return true
	}
	ps.budget.Add(n)
	return false
}

// spent says that all messages of the budget were sent and answered.
func (ps *producers) spent() bool {
	return ps.spentBudget() && ps.idle()
}

func (ps *producers) spentBudget() bool {
	return ps.limited && ps.budget.Load() < int64(ps.cfg.perRequest())
}

// idle says that nothing is in flight, and all that was is counted.
func (ps *producers) idle() bool {
	for _, p := range ps.all {
		p.state.Lock()
		idle := p.counted.empty() && len(p.free) == len(p.slots) && (p.conn == nil || p.conn.Buffered() == 0)
		p.state.Unlock()
		if !idle {
			return false
		}
	}
	return true
}

// finish sends nothing more but what was due by then.
func (ps *producers) finish(at time.Duration) {
	ps.endsAt.CompareAndSwap(0, int64(at))
	if ps.closed() {
		ps.stopping.Store(true)
	}
}

// stop sends nothing more, waits for the answers under way, and closes the connections.
func (ps *producers) stop() {
	ps.finish(wire.Clock())
	ps.pacing.Wait()
	ps.stopping.Store(true)
	for end := time.Now().Add(time.Duration(ps.cfg.Timeout) + time.Second); !ps.idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	ps.links.close()
}

func (p *producer) attached(conn *wire.Conn) {
	p.state.Lock()
	if p.ps.closed() {
		now := wire.Clock()
		for len(p.free) > 0 && p.issueLocked(now, now) {
		}
	}
	p.state.Unlock()
	conn.Flush()
}

// issueLocked sends the next request, whose latency counts from due. False says that it could not be sent: no connection, no
// room, or the run sends no more.
func (p *producer) issueLocked(due, now time.Duration) bool {
	n := len(p.free)
	oneway := p.ps.cfg.Mode == ModeOneway
	if n == 0 || p.conn == nil || p.conn.Ended() || p.ps.stopping.Load() || oneway && p.conn.Buffered() >= onewayWrite || !p.ps.take() {
		return false // the budget comes last: what is taken from it is sent
	}
	s := p.free[n-1]
	s.prepare(due, now)
	if oneway {
		p.onewayLocked(s)
		return true
	}
	if err := p.conn.Send(&s.call, s.request, now); err != nil {
		panic(fmt.Sprintf("BUG: a connection that lives, with a slot that is free, takes no request: %v", err))
	}
	p.free = p.free[:n-1]
	p.requests++
	if p.ledger != nil {
		p.ledger.sent(p.requests)
	}
	return true
}

// onewayLocked sends a request that has no answer; it counts when it is written, and there is room while little waits for that.
func (p *producer) onewayLocked(s *slot) {
	if err := p.conn.SendOneway(s.request); err != nil {
		panic(fmt.Sprintf("BUG: a connection that lives takes no request: %v", err))
	}
	p.requests++
	if p.ledger != nil {
		p.ledger.sent(p.requests)
		p.ledger.answered(s.number)
	}
	p.counted.messages++
	p.counted.bytes += int64(s.bytes)
}

// pour sends one-way as fast as the peer takes it.
func (p *producer) pour() {
	for p.ps.endsAt.Load() == 0 {
		p.state.Lock()
		conn, now, sent := p.conn, wire.Clock(), false
		for p.issueLocked(now, now) {
			sent = true
		}
		p.state.Unlock()
		p.flush(conn)
		if !sent {
			time.Sleep(retryWait)
		}
	}
}

// flush writes, and counts what has no answer.
func (p *producer) flush(conn *wire.Conn) {
	if conn != nil {
		conn.Flush()
	}
	if p.ps.cfg.Mode != ModeOneway {
		return
	}
	lost := conn == nil || conn.Err() != nil
	p.state.Lock()
	defer p.state.Unlock()
	if lost {
		p.lostLocked()
		return
	}
	p.rec.add(&p.counted, 1, wire.Clock())
}

// lostLocked counts one-way messages that were not written, and will not be. What has an answer is counted with that. It is
// called before there is another connection: what waits for that one may be written.
func (p *producer) lostLocked() {
	if p.ps.cfg.Mode == ModeOneway {
		p.rec.fail(errConnectionLost, p.counted.messages)
		p.counted.messages, p.counted.bytes = 0, 0
	}
}

// prepare fills a slot's request in with the producer's next messages.
func (s *slot) prepare(due, now time.Duration) {
	p := s.p
	s.number, s.due, s.bytes = p.requests, due, 0
	at := p.queueOf(s.number)
	if p.ps.cfg.Mode != ModeBatch {
		s.single.Template = p.templates.single[at]
		s.fill(&s.single.Message, 0, now)
		return
	}
	s.batch.Template = p.templates.batch[at]
	for i := range s.batch.Messages {
		s.fill(&s.batch.Messages[i], i, now)
	}
}

// queueOf is where a request goes: around all queues, each producer from another one on.
func (p *producer) queueOf(number int64) int {
	return int((uint64(number) + uint64(p.id)) % uint64(len(p.queues)))
}

// fill makes message i of a request.
func (s *slot) fill(m *wire.Message, i int, now time.Duration) {
	p := s.p
	perRequest := int64(p.ps.cfg.perRequest())
	size := p.ps.sizes.Next(p.rand)
	s.bytes += size
	sequence := s.number*perRequest + int64(i)
	m.Born = wire.WallClock(now) / int64(time.Millisecond)
	m.Key = uint64(p.id)<<40 | uint64(sequence)
	if size < stampSize {
		m.Head, m.Tail = nil, p.ps.filler.piece(p.id, sequence, size)
		return
	}
	st := stamp{run: p.ps.run, producer: p.id, sequence: sequence, due: wire.WallClock(s.due)}
	if p.ledger != nil {
		st.open = p.ledger.open(s.number, i)
	}
	m.Head = s.stamps[i*stampSize : (i+1)*stampSize]
	st.put(m.Head)
	m.Tail = p.ps.filler.piece(p.id, sequence, size-stampSize)
}

// done takes an answer, on the connection's reader, or a failure. The state is locked.
func (s *slot) done(_ *wire.Call, answer *remoting.Command, err error) {
	p := s.p
	ps := p.ps
	good := false
	switch {
	case err != nil:
		p.rec.fail(failureName(err), int64(ps.cfg.perRequest()))
	case answer.Code != remoting.Success:
		p.rec.fail(remoting.ResponseName(answer.Code), int64(ps.cfg.perRequest()))
	default:
		good = p.acknowledgedLocked(s, answer)
	}
	if p.ledger != nil {
		p.ledger.answered(s.number)
	}
	p.free = append(p.free, s)
	switch {
	case p.pacer != nil:
		// Behind an answer its reader writes; where there was none nobody would, and the pacer finds the room by itself.
		if err == nil && p.pacer.behind.Load() {
			p.pacer.sendOnLocked(p, wire.Clock())
		}
	case good:
		at := p.conn.ReadAt()
		p.issueLocked(at, at)
		if ps.cfg.Mode == ModeSync {
			p.conn.FlushLocked() // a thread writes for itself
		}
	case !ps.stopping.Load():
		time.AfterFunc(retryWait, p.retry)
	}
}

// acknowledgedLocked counts a good answer; false says that it is none.
func (p *producer) acknowledgedLocked(s *slot, answer *remoting.Command) bool {
	if p.ledger != nil {
		offset, err := answer.Ext.Int64("queueOffset", -1)
		queueID, errQueue := answer.Ext.Int32("queueId", -1)
		if err != nil || errQueue != nil || offset < 0 {
			p.rec.fail(errBadAnswer, int64(p.ps.cfg.perRequest()))
			return false
		}
		p.ledger.acknowledged(s.number, int(queueID), offset)
	}
	at := p.conn.ReadAt()
	if p.ps.slow != nil && at-s.due > p.ps.slowFrom {
		p.ps.slow(s.due, at)
	}
	p.counted.latencies = append(p.counted.latencies, at-s.due)
	p.counted.messages += int64(p.ps.cfg.perRequest())
	p.counted.bytes += int64(s.bytes)
	return true
}

// round runs on the connection's reader when the answers of a read have been seen.
func (p *producer) round(conn *wire.Conn) {
	p.state.Lock()
	if !p.counted.empty() {
		p.rec.add(&p.counted, int64(p.ps.cfg.perRequest()), conn.ReadAt())
	}
	p.state.Unlock()
	conn.Flush()
}

// retry goes on after a failure, with as many requests as there is room for.
func (p *producer) retry() {
	p.state.Lock()
	now := wire.Clock()
	for len(p.free) > 0 && p.issueLocked(now, now) {
	}
	conn := p.conn
	p.state.Unlock()
	if conn != nil {
		conn.Flush()
	}
}
