// SPDX-License-Identifier: Apache-2.0

package load

import (
	"runtime"
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
	n := int64((now - s.start).Seconds() * s.rate)
	for n > 0 && s.due(n-1) > now {
		n--
	}
	for s.due(n) <= now {
		n++
	}
	return n
}

// pacer sends at a fixed rate on the connections to one master. It never skips: what could not be sent in time is sent as
// soon as there is room, and its latency counts from when it was due.
type pacer struct {
	schedule
	producers []*producer
	ps        *producers
	next      int // whose turn it is
	touched   []bool
	dirty     []*producer // to be flushed
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
	return &pacer{schedule: schedule{start, rate}, producers: producers, ps: producers[0].ps, touched: make([]bool, len(producers))}
}

// run has a thread of its own: the runtime's timers are milliseconds late when nothing else runs.
func (pc *pacer) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()

	n := int64(0)
	for !pc.ps.stopping.Load() {
		now := wire.Clock()
		due := pc.due(n)
		switch {
		case now < due:
			pc.flush()
			nanosleep(min(due-now, pacerSleepMax))
		case pc.send(due, now):
			n++
		case pc.ps.limited && pc.ps.budget.Load() < int64(pc.ps.cfg.perRequest()):
			pc.flush()
			return
		default:
			pc.flush()
			nanosleep(pacerRoomWait)
		}
	}
	pc.flush()
	if late := pc.dueBy(wire.Clock()) - n; late > 0 {
		pc.producers[0].rec.fail(errUnsent, late*int64(pc.ps.cfg.perRequest()))
	}
}

// send sends one request on the next connection that has room.
func (pc *pacer) send(due, now time.Duration) bool {
	for range pc.producers {
		i := pc.next
		pc.next = (i + 1) % len(pc.producers)
		p := pc.producers[i]
		p.state.Lock()
		sent := p.issueLocked(due, now)
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
