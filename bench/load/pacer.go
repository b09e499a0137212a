// SPDX-License-Identifier: Apache-2.0

package load

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/wire"
)

// schedule says when requests are due: number n at start + n/rate.
type schedule struct {
	start time.Duration
	rate  float64 // a second
}

func (s schedule) due(n int64) time.Duration {
	return s.start + time.Duration(float64(n)/s.rate*float64(time.Second))
}

// dueBy is how many requests are due until now.
func (s schedule) dueBy(now time.Duration) int64 {
	n := max(int64((now-s.start).Seconds()*s.rate), 0)
	for n > 0 && s.due(n-1) > now {
		n--
	}
	for s.due(n) <= now {
		n++
	}
	return n
}

// pacer sends at a fixed rate on the connections to one master. It never skips: what could not be sent in time is sent as
// soon as there is room, and its latency counts from when it was due. While there is no room, answers make some, and the
// connection's reader sends what is due.
type pacer struct {
	producers []*producer
	ps        *producers
	turn      int // whose it is
	touched   []bool
	dirty     []*producer // to be flushed

	behind atomic.Bool // there was no room for what is due: readers send

	mu       sync.Mutex // guards the rest; taken after a producer's state
	schedule schedule
	next     int64 // the number of the next request
}

const (
	// pacerSleepMax bounds a sleep, so that a stop is seen.
	pacerSleepMax = 20 * time.Millisecond
	// pacerRoomWait bounds the wait for room: a connection may also come back.
	pacerRoomWait = time.Millisecond
	// timerSlack is how late the kernel may wake a pacer, in nanoseconds.
	timerSlack = 1000
)

func newPacer(producers []*producer, rate float64, start time.Duration) *pacer {
	pc := &pacer{schedule: schedule{start, rate}, producers: producers, ps: producers[0].ps, touched: make([]bool, len(producers))}
	for _, p := range producers {
		p.state.Lock()
		p.pacer = pc
		p.state.Unlock()
	}
	return pc
}

// run has a thread of its own: the runtime's timers are milliseconds late when nothing else runs.
func (pc *pacer) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
	defer pc.flush()

	for {
		now, due := wire.Clock(), pc.due()
		end := time.Duration(pc.ps.endsAt.Load())
		switch {
		case end != 0 && due > end || pc.ps.spentBudget():
			return
		case now < due:
			pc.behind.Store(false)
			pc.flush()
			nanosleep(min(due-now, pacerSleepMax))
		case pc.send(now):
		case len(pc.dirty) > 0:
			pc.flush() // and look again: one-way, this makes room
		case end != 0:
			pc.unsent(end)
			return
		default:
			pc.behind.Store(true)
			nanosleep(pacerRoomWait)
		}
	}
}

// due is when the next request is.
func (pc *pacer) due() time.Duration {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.schedule.due(pc.next)
}

// unsent counts what was due before the end, and had no room: it is not sent any more.
func (pc *pacer) unsent(end time.Duration) {
	pc.mu.Lock()
	late := max(pc.schedule.dueBy(end)-pc.next, 0)
	pc.next += late
	pc.mu.Unlock()
	if late > 0 {
		pc.producers[0].rec.fail(errUnsent, late*int64(pc.ps.cfg.perRequest()))
	}
}

// send sends one request on the next connection that has room.
func (pc *pacer) send(now time.Duration) bool {
	for range pc.producers {
		i := pc.turn
		pc.turn = (i + 1) % len(pc.producers)
		p := pc.producers[i]
		p.state.Lock()
		sent := pc.sendOnLocked(p, now)
		p.state.Unlock()
		if sent {
			if !pc.touched[i] {
				pc.touched[i] = true
				pc.dirty = append(pc.dirty, p)
			}
			return true
		}
	}
	return false
}

// sendOnLocked sends the next request on a connection, if it is due and there is room. The caller holds p.state.
func (pc *pacer) sendOnLocked(p *producer, now time.Duration) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	due := pc.schedule.due(pc.next)
	if end := time.Duration(pc.ps.endsAt.Load()); end != 0 && due > end {
		return false
	}
	if due > now || !p.issueLocked(due, now) {
		return false
	}
	pc.next++
	return true
}

func (pc *pacer) flush() {
	if len(pc.dirty) == 0 {
		return
	}
	for _, p := range pc.dirty {
		p.flush(p.current())
	}
	pc.dirty = pc.dirty[:0]
	clear(pc.touched)
}

func nanosleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}
