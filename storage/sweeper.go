// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync/atomic"
	"time"
)

const (
	// sweepInterval is how late a put expires, or a flush request times out, at most.
	sweepInterval = 20 * time.Millisecond
	// sweepIdleRounds is how many rounds find nothing before the sweeper sleeps: under load it is woken once.
	sweepIdleRounds = 50
)

// sweeper ends what waits too long while whoever should serve it is stuck: puts behind an append that stalls, flush
// requests behind a sync that hangs. It sleeps while nothing waits.
type sweeper struct {
	step func(now time.Time) (waiting bool)

	armed   atomic.Bool
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

func newSweeper(step func(time.Time) bool) *sweeper {
	return &sweeper{
		step:    step,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *sweeper) start() { go s.run() }

func (s *sweeper) stop() {
	close(s.stopped)
	<-s.done
}

// arm is called after something was queued.
func (s *sweeper) arm() {
	if !s.armed.Load() && s.armed.CompareAndSwap(false, true) {
		s.wake <- struct{}{} // one token for each change to armed, taken before the next
	}
}

func (s *sweeper) run() {
	defer close(s.done)
	for {
		select {
		case <-s.wake:
		case <-s.stopped:
			return
		}
		if !s.sweep() {
			return
		}
	}
}

// sweep runs rounds until nothing waits for a while; false when stopped.
func (s *sweeper) sweep() bool {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for idle := 0; idle < sweepIdleRounds; {
		select {
		case now := <-ticker.C:
			if s.step(now) {
				idle = 0
			} else {
				idle++
			}
		case <-s.stopped:
			return false
		}
	}
	s.armed.Store(false)
	// What was queued before the store above did not wake us.
	if s.step(time.Now()) {
		s.arm()
	}
	return true
}
