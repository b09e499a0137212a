// SPDX-License-Identifier: Apache-2.0

package reactor

import "time"

const drainPollInterval = 2 * time.Millisecond

// drain sends what the sessions have gathered and waits until the sockets have taken it, timeout at most. Without it
// replies that are already posted would vanish with the engine.
func (c *core) drain(timeout time.Duration) {
	deadline := time.Now().Add(timeout)
	for _, l := range c.allLoops() {
		for !l.drained(deadline) && time.Now().Before(deadline) {
			time.Sleep(drainPollInterval)
		}
	}
}

// drained is the barrier task: it flushes all sessions of the loop and says whether nothing is left to send.
func (l *Loop) drained(deadline time.Time) bool {
	empty := make(chan bool, 1)
	ok := l.post(func() {
		now := time.Now()
		unsent := 0
		for s := range l.sessions {
			s.flush(now)
			unsent += s.conn.OutboundBuffered()
		}
		l.leave(now)
		empty <- unsent == 0
	})
	if !ok {
		return true // the engine is gone, and the connections with it
	}
	select {
	case e := <-empty:
		return e
	case <-time.After(time.Until(deadline)):
		return false
	}
}
