// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// Loop is one client event loop as processors see it.
type Loop struct {
	Index int
	// Local is a place for a processor's per-loop state, by a number from NewLoopLocal. Only the loop touches it.
	Local [8]any

	core *core
	key  gnet.EventLoop // nil under a test's connections
	post func(func()) bool

	// Touched by the loop alone.
	sessions map[*Session]struct{}
	watched  map[*Session]struct{} // those with unsent output
	request  Request               // the one being processed; it is valid until Process returns
	turns    uint64                // bit i: core.turnProcessors[i] had a request this turn
	parts    [][]byte              // scratch of flush
	running  []queued              // taken from queued
	ran      int                   // of running
	later    *time.Timer           // of postLater
	flushing []*Session            // scratch of runPosted
	loans    []loan                // scratch of flush
	notes    []any                 // of answers that the turn has written, see ReplyTold
	leftAt   time.Time             // when the last turn ended
	soon     *time.Timer           // of tickSoon

	// The ticker's alone: of the last look at all sessions.
	fullTickAt  time.Time
	tickedTurns int64

	unsent  atomic.Int32 // len(watched), for the ticker
	ticking atomic.Bool  // a tick is posted and has not run
	counters

	mu     sync.Mutex // guards what follows
	queued []queued   // to be run on the loop
	joined []*Session // sessions with replies that nobody is about to write
	posted bool       // runPosted is under way, or the timer for it
}

// counters are added to by one loop and read by anybody.
type counters struct {
	requests                                                          [RequestGroupsMax]atomic.Int64
	responses, bytesIn, bytesOut                                      atomic.Int64
	turnsTotal, busy                                                  atomic.Int64 // busy: ns
	opened, closed, protocolErrors                                    atomic.Int64
	closedPartialBudget, closedPartialAge, closedOutbound, closedIdle atomic.Int64
}

// readGapMax is the longest pause between two turns that counts as busy: gnet reads a socket before its turn begins here.
// A loop that has nothing to do sleeps for longer.
const readGapMax = 20 * time.Microsecond

const (
	// runsMax is how many functions a loop runs before it looks at its connections again: a message may wake thousands of
	// pulls.
	runsMax = 64
	// runsPause is when it goes on. A post at once would be taken before any connection: gnet runs up to 256 of them in a row.
	runsPause = 100 * time.Microsecond
)

var loopLocals atomic.Int32

// NewLoopLocal reserves a number for Loop.Local. It panics when there are none left.
func NewLoopLocal() int {
	n := int(loopLocals.Add(1)) - 1
	if n >= len(Loop{}.Local) {
		panic("BUG: more loop locals reserved than Loop has")
	}
	return n
}

// join puts s on the list of sessions to flush. At most one post per loop is under way, however many goroutines answer.
func (l *Loop) join(s *Session) {
	l.mu.Lock()
	l.joined = append(l.joined, s)
	l.unlockAndPost()
}

// queued is what Session.OnLoop was given.
type queued struct {
	session *Session
	f       func()
}

func (l *Loop) run(q queued) {
	l.mu.Lock()
	l.queued = append(l.queued, q)
	l.unlockAndPost()
}

// unlockAndPost has the loop run what is queued and flush who joined. While answers are gathered it does not: who ends
// that asks again.
func (l *Loop) unlockAndPost() {
	post := len(l.queued)+len(l.joined) > 0 && !l.posted && l.core.gathering.Load() == 0
	l.posted = l.posted || post
	l.mu.Unlock()
	if post {
		// A refused post means that the engine is ending: OnClose releases what the sessions hold.
		l.post(l.runPosted)
	}
}

// together runs f, which answers many requests in a short time: their loops are woken when it is done. A loop that is woken
// by the first answer is on its way with it before the second is there.
func (c *core) together(f func()) {
	c.gathering.Add(1)
	defer func() {
		c.gathering.Add(-1)
		for _, l := range c.allLoops() {
			l.mu.Lock()
			l.unlockAndPost()
		}
	}()
	f()
}

// runPosted runs what is queued, then writes what that and others have answered.
func (l *Loop) runPosted() {
	now := time.Now()
	if l.ran == len(l.running) {
		l.mu.Lock()
		l.running, l.queued, l.ran = l.queued, l.running[:0], 0
		l.mu.Unlock()
	}
	turn := l.running[l.ran:min(l.ran+runsMax, len(l.running))]
	l.ran += len(turn)
	for _, q := range turn {
		guard(l.core.logger, "function on the loop", q.f)
		if q.session.crowded.Load() {
			q.session.flush(now)
		}
	}
	clear(turn)
	left := l.ran < len(l.running)
	l.mu.Lock()
	l.flushing, l.joined = l.joined, l.flushing[:0]
	if l.posted = left; left {
		l.mu.Unlock()
		l.postLater()
	} else {
		l.unlockAndPost() // for what was queued meanwhile
	}
	for i, s := range l.flushing {
		l.flushing[i] = nil
		s.flush(now)
	}
	l.leave(now)
}

func (l *Loop) postLater() {
	if l.later == nil {
		l.later = time.AfterFunc(runsPause, func() { l.post(l.runPosted) })
		return
	}
	l.later.Reset(runsPause)
}

// leave ends a turn that began at began: what it took counts as busy, and whose answers it wrote are told.
func (l *Loop) leave(began time.Time) {
	now := time.Now()
	if began.Sub(l.leftAt) < readGapMax {
		began = l.leftAt
	}
	l.leftAt = now
	l.turnsTotal.Add(1)
	l.busy.Add(int64(now.Sub(began)))
	l.tell(now)
}

// tell hands out the notes of the answers that are written.
func (l *Loop) tell(now time.Time) {
	if len(l.notes) == 0 {
		return
	}
	guard(l.core.logger, "notes of answers", func() { l.core.onTold(l, l.notes, now) })
	clear(l.notes)
	l.notes = l.notes[:0]
}

// endTurn lets the processors that gathered work do it.
func (l *Loop) endTurn() {
	if l.turns == 0 {
		return
	}
	used := l.turns
	l.turns = 0
	for i, p := range l.core.turnProcessors {
		if used&(1<<i) != 0 {
			guard(l.core.logger, "end of turn", func() { p.EndTurn(l) })
		}
	}
}

func (l *Loop) watch(s *Session) {
	l.watched[s] = struct{}{}
	l.unsent.Store(int32(len(l.watched)))
	if len(l.watched) == 1 { // the ticker may be asleep for a second
		l.tickSoon()
	}
}

// tickSoon is called at every look at unsent output, ticks included: a timer for each call would never end.
func (l *Loop) tickSoon() {
	if l.soon == nil {
		l.soon = time.AfterFunc(tickInterval, func() { l.postTick(false) })
		return
	}
	l.soon.Reset(tickInterval)
}

// postTick is false when the engine is ending. A tick that is on its way is enough.
func (l *Loop) postTick(full bool) bool {
	return !l.ticking.CompareAndSwap(false, true) || l.post(func() { l.tick(full) })
}

func (l *Loop) unwatch(s *Session) {
	delete(l.watched, s)
	l.unsent.Store(int32(len(l.watched)))
}

// tick is posted by the ticker. full says to look at every session, not only at those with unsent output.
func (l *Loop) tick(full bool) {
	l.ticking.Store(false)
	now := time.Now()
	for s := range l.watched {
		s.measureOutbound(now)
	}
	if !full {
		return
	}
	for s := range l.sessions {
		s.checkAge(now)
	}
}
