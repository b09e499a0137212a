// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
)

const (
	// offerWait is how long a master that is back, and had a loopmq slave before, keeps questions for consumer offsets
	// waiting until the slave has brought those that were committed to it meanwhile. A slave asks every second.
	offerWait = 3 * time.Second
	// offerWaitersMax bounds the questions that wait; more are answered at once.
	offerWaitersMax = 10_000
)

// offsetOffers makes a master that is back take over newer offsets before it answers where a group goes on
// (apache/rocketmq#1094).
type offsetOffers struct {
	pending atomic.Bool // false: nothing waits, and nothing will

	mu      sync.Mutex // guards waiting
	waiting []func()
	timer   *time.Timer
}

// expect begins the wait, once, before the client port opens.
func (o *offsetOffers) expect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending.Store(true)
	o.timer = time.AfterFunc(offerWait, o.arrived)
}

// arrived ends the wait: an offer came, or time is up, or the broker stops. Any goroutine but a loop.
func (o *offsetOffers) arrived() {
	o.mu.Lock()
	o.pending.Store(false)
	waiting := o.waiting
	o.waiting = nil
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Unlock()
	for _, answer := range waiting {
		answer()
	}
}

// park keeps a question until arrived; false when it is to be answered now. For loops.
func (o *offsetOffers) park(req *reactor.Request, answer func(*reactor.Request)) bool {
	if !o.pending.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pending.Load() || len(o.waiting) >= offerWaitersMax {
		return false
	}
	owned := &reactor.Request{Command: *req.Clone(), Session: req.Session, ReceivedAt: req.ReceivedAt}
	o.waiting = append(o.waiting, func() { answer(owned) })
	return true
}
