// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"loopmq/reactor/remoting"
)

// limits are what one node grants its peers.
type limits struct {
	idleTimeout           time.Duration
	partialFramesBytesMax int64
	partialFrameAgeMax    time.Duration
	outboundMark          int
	outboundMarkAge       time.Duration
	outboundBytesMax      int64
	pendingMax            int
}

// core is what the remoting server and the remoting client have in common: a Handler that makes a Session of each
// connection, and dispatches what comes in.
type core struct {
	limits
	logger  *slog.Logger
	onOpen  func(*Session)
	onClose func(*Session, string)
	isVIP   func(s *Session) bool
	groupOf func(code int32) int
	onTold  func(loop *Loop, notes []any, at time.Time)

	table          [codesDense]*registration
	sparse         map[int32]*registration
	fallback       *registration
	turnProcessors []TurnProcessor
	refusing       atomic.Pointer[refusal]

	opaque               atomic.Int32
	sessionIDs           atomic.Uint64
	gathering            atomic.Int32 // calls of together
	partials, outputs    budget
	fullTickAt           time.Time // the ticker's alone, as is tickedTurns
	tickedTurns          int64
	strangers, overLimit Sometimes // log lines

	mu       sync.Mutex // guards the rest
	loops    []*Loop
	sessions map[*Session]struct{}
}

const (
	// codesDense is where the table of registrations ends and the map begins; all codes of 4.9 lie below.
	codesDense = 1024

	turnProcessorsMax = 64

	strangersLogInterval = 5 * time.Second
	// tickInterval is how often unsent output is measured, fullTickInterval how often ages are looked at.
	tickInterval     = 100 * time.Millisecond
	fullTickInterval = time.Second
	// quietShare is how much of idleTimeout passes between two looks at the sessions of a loop that has done nothing: to wake it
	// keeps Go's monitor up for ten milliseconds.
	quietShare = 12
)

// registration says who serves a code, and where.
type registration struct {
	processor Processor
	turn      int // index in turnProcessors, -1 for none
	group     int // counted under
	lane      *Lane
	vip       bool
}

type refusal struct {
	code   int32
	remark string
}

func newCore(l limits, logger *slog.Logger) *core {
	c := &core{limits: l, logger: logger, sparse: map[int32]*registration{}, sessions: map[*Session]struct{}{}}
	c.strangers.Interval, c.overLimit.Interval = strangersLogInterval, strangersLogInterval
	c.partials = budget{
		max: l.partialFramesBytesMax, what: "partial frames",
		of:     func(s *Session) *atomic.Int64 { return &s.partialSize },
		closed: func(l *Loop) *atomic.Int64 { return &l.closedPartialBudget },
	}
	c.outputs = budget{
		max: l.outboundBytesMax, what: "unsent output",
		of:     func(s *Session) *atomic.Int64 { return &s.outboundSize },
		closed: func(l *Loop) *atomic.Int64 { return &l.closedOutbound },
	}
	return c
}

func (c *core) register(code int32, p Processor, lane *Lane, vip bool) {
	r := c.newRegistration(p, lane, vip)
	if c.groupOf != nil {
		r.group = c.groupOf(code)
	}
	if code >= 0 && code < codesDense {
		c.table[code] = r
	} else {
		c.sparse[code] = r
	}
}

func (c *core) newRegistration(p Processor, lane *Lane, vip bool) *registration {
	r := &registration{processor: p, turn: -1, lane: lane, vip: vip}
	if t, ok := p.(TurnProcessor); ok && lane == nil {
		if r.turn = slices.Index(c.turnProcessors, t); r.turn < 0 {
			r.turn = len(c.turnProcessors)
			c.turnProcessors = append(c.turnProcessors, t)
		}
		if r.turn >= turnProcessorsMax {
			panic("BUG: too many turn processors")
		}
	}
	return r
}

func (c *core) lookup(code int32, vip bool) *registration {
	var r *registration
	if code >= 0 && code < codesDense {
		r = c.table[code]
	} else {
		r = c.sparse[code]
	}
	switch {
	case r == nil:
		return c.fallback
	case vip && !r.vip:
		return nil // as if it were not registered, which on Java's VIP port it is not
	}
	return r
}

// OnOpen makes the Session.
func (c *core) OnOpen(conn Conn) {
	s := &Session{
		core: c, conn: conn, loop: c.loopOf(conn), id: c.sessionIDs.Add(1),
		remote: conn.RemoteAddr(), local: conn.LocalAddr(), owner: conn.Context(),
	}
	s.vip = c.isVIP != nil && c.isVIP(s)
	now := time.Now()
	s.lastRead, s.lastWrite = now, now
	conn.SetContext(s)
	s.loop.sessions[s] = struct{}{}
	s.loop.opened.Add(1)
	c.mu.Lock()
	c.sessions[s] = struct{}{}
	c.mu.Unlock()
	if c.onOpen != nil {
		guard(c.logger, "session open", func() { c.onOpen(s) })
	}
}

// OnTraffic is one turn.
func (c *core) OnTraffic(conn Conn) { conn.Context().(*Session).onTraffic() }

// OnClose ends the Session.
func (c *core) OnClose(conn Conn, err error) {
	s := conn.Context().(*Session)
	c.mu.Lock()
	delete(c.sessions, s)
	c.mu.Unlock()
	delete(s.loop.sessions, s)
	s.loop.closed.Add(1)
	reason := s.end(err)
	if c.onClose != nil {
		guard(c.logger, "session close", func() { c.onClose(s, reason) })
	}
}

// loopOf finds the Loop of a connection, on that loop.
func (c *core) loopOf(conn Conn) *Loop {
	var key gnet.EventLoop // nil for a test's connections, which share one loop
	post := conn.Post
	if g, ok := conn.(*gnetConn); ok {
		key = g.loop
		post = func(f func()) bool { return g.gate.post(key, f) }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.loops {
		if l.key == key {
			return l
		}
	}
	l := &Loop{
		Index: len(c.loops), core: c, key: key, post: post,
		sessions: map[*Session]struct{}{}, watched: map[*Session]struct{}{},
	}
	c.loops = append(c.loops, l)
	return l
}

func (c *core) allLoops() []*Loop {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.loops)
}

// UntilSecond is how long a clock of about a second, which has nothing else to do, sleeps: until the next full second. An
// idle process then wakes once for all of them. Each wake for itself keeps Go's monitor up for some milliseconds more.
func UntilSecond(now time.Time) time.Duration {
	return time.Second - time.Duration(now.Nanosecond())
}

// onTick runs on the ticker's goroutine. Loops with unsent output are asked every time, the others once a second. While
// nobody asks for anything and nothing is unsent it sleeps that second through: wakes are what an idle node costs.
func (c *core) onTick() (next time.Duration) {
	now := time.Now()
	full := now.Sub(c.fullTickAt) >= fullTickInterval-tickInterval/2
	if full {
		c.fullTickAt = now
	}
	next = UntilSecond(now)
	turns := int64(0)
	for _, l := range c.allLoops() {
		turns += l.turnsTotal.Load()
		unsent := l.unsent.Load() > 0
		if unsent {
			next = tickInterval
		}
		full := full && c.takesLook(l, now)
		if (full || unsent) && !l.postTick(full) {
			return next
		}
	}
	if turns != c.tickedTurns {
		c.tickedTurns, next = turns, tickInterval
	}
	return next
}

// takesLook says whether the sessions of a loop are looked at now, and notes that they are. They are not while nothing has
// happened on the loop since the last look, a while ago at most, and none of them has anything that ages but itself.
func (c *core) takesLook(l *Loop, now time.Time) bool {
	turns := l.turnsTotal.Load()
	if turns == l.tickedTurns && c.partials.sum.Load() == 0 && now.Sub(l.fullTickAt) < c.idleTimeout/quietShare {
		return false
	}
	l.tickedTurns, l.fullTickAt = turns, now
	return true
}

// dispatch hands a request to its processor, on the loop or on its lane.
func (c *core) dispatch(req *Request) {
	r := c.lookup(req.Code, req.Session.vip)
	group := 0
	if r != nil {
		group = r.group
	}
	req.Session.loop.requests[group].Add(1)
	if r := c.refusing.Load(); r != nil {
		req.ReplyCode(r.code, r.remark)
		return
	}
	switch {
	case r == nil:
		req.ReplyCode(remoting.RequestCodeNotSupported, " request type "+strconv.Itoa(int(req.Code))+" not supported")
	case r.lane != nil:
		c.enqueue(r, req)
	default:
		if r.turn >= 0 {
			req.Session.loop.turns |= 1 << r.turn
		}
		c.process(r.processor, req)
	}
}

const overloadRemark = "[OVERLOAD]system busy, start flow control for a while"

func (c *core) enqueue(r *registration, req *Request) {
	owned := ownedRequest(req)
	if !r.lane.submit(task{req: owned, reg: r, core: c, bytes: req.Bytes(), queuedAt: req.ReceivedAt}) {
		releaseRequest(owned)
		req.ReplyCode(remoting.SystemBusy, overloadRemark)
	}
}

// process runs p. A panic, also one for a page that the disk could not deliver, is answered and costs nobody else
// anything.
func (c *core) process(p Processor, req *Request) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(c.logger, "processor of "+remoting.RequestName(req.Code), cause)
			req.ReplyCode(remoting.SystemError, fmt.Sprint(cause))
		}
	}()
	p.Process(req)
}

// guard runs f and logs its panic.
func guard(logger *slog.Logger, where string, f func()) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(logger, where, cause)
		}
	}()
	f()
}

func logPanic(logger *slog.Logger, where string, cause any) {
	if logger == nil {
		logger = slog.Default()
	}
	logger.Error("panic", "where", where, "cause", cause, "stack", string(debug.Stack()))
}

// budget is one node-wide sum of bytes that sessions hold, and its limit.
type budget struct {
	sum    atomic.Int64
	max    int64
	of     func(*Session) *atomic.Int64
	closed func(*Loop) *atomic.Int64
	what   string
}

// hold publishes that s now holds n bytes. Beyond the limit the sessions that hold most are closed.
func (b *budget) hold(s *Session, n int) {
	delta := int64(n) - b.of(s).Swap(int64(n))
	if sum := b.sum.Add(delta); delta > 0 && sum > b.max {
		s.core.reclaim(b)
	}
}

func (b *budget) giveBack(s *Session) { b.sum.Add(-b.of(s).Swap(0)) }

// reclaim closes the largest until the sum is within the limit. What a session holds is taken off the sum here and
// now, since its loop may take a while to close it.
func (c *core) reclaim(b *budget) {
	for b.sum.Load() > b.max {
		largest, held := c.largest(b)
		if largest == nil {
			return
		}
		b.closed(largest.loop).Add(1)
		largest.closeOver(fmt.Sprintf("%s: all connections together are over the limit of %d bytes, this one held most, %d", b.what, b.max, held))
		b.giveBack(largest)
	}
}

func (c *core) largest(b *budget) (largest *Session, held int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		if n := b.of(s).Load(); n > held && !s.closing.Load() {
			largest, held = s, n
		}
	}
	return largest, held
}
