// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"loopmq/bench/wire"
)

const (
	// reconnectMin and reconnectMax are how long a lost connection waits before it is made again.
	reconnectMin = 20 * time.Millisecond
	reconnectMax = 500 * time.Millisecond
	// retryWait is how long a caller whose request was refused waits before the next one.
	retryWait = 5 * time.Millisecond
	// expireEvery is how often calls are looked through for those that had no answer in time.
	expireEvery = 100 * time.Millisecond
)

// Names of failures that have no response code.
const (
	errTimeout        = "TIMEOUT"
	errConnectionLost = "CONNECTION_LOST"
	errNoConnection   = "NO_CONNECTION"
	errBadAnswer      = "BAD_ANSWER"
	errLate           = "LATE_ANSWER" // to a request that had been given up, and has been counted as a TIMEOUT
	errUnsent         = "UNSENT"      // due by its rate, and the run ended before it could be sent
	errUnread         = "UNREAD"      // acknowledged, and a consumer that waits for it did not get it
)

// failureName is what a failure without an answer counts as.
func failureName(err error) string {
	if errors.Is(err, wire.ErrTimeout) {
		return errTimeout
	}
	return errConnectionLost
}

// linkUser is what uses a link: a producer, or some queues' consumers.
type linkUser interface {
	attached(conn *wire.Conn) // there is a connection: begin, or go on
	round(conn *wire.Conn)    // the answers of one read have been seen
	lostLocked()              // the connection has ended; the state is locked
}

// link keeps one connection of a run, and makes it again when it is lost.
type link struct {
	addr    string
	window  int
	timeout time.Duration
	user    linkUser
	rec     *recorder

	state sync.Mutex // guards the user's state and the connection's; nothing blocks under it
	conn  *wire.Conn // nil while there is none
}

// open connects for the first time; a failure is the run's.
func (l *link) open(ctx context.Context) error {
	conn, err := l.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	l.state.Lock()
	l.conn = conn
	l.state.Unlock()
	return nil
}

func (l *link) dial(ctx context.Context) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return wire.Dial(ctx, l.addr, wire.Options{Window: l.window, Timeout: l.timeout, Round: l.user.round, Lock: &l.state})
}

// serve uses the open link until ctx ends; then the connection is closed.
func (l *link) serve(ctx context.Context) {
	for {
		conn := l.current()
		l.user.attached(conn)
		select {
		case <-conn.Done():
		case <-ctx.Done():
			conn.Close()
			<-conn.Done()
		}
		if n := conn.Strays(); n > 0 {
			l.rec.fail(errLate, n)
		}
		l.state.Lock()
		l.conn = nil
		l.user.lostLocked()
		l.state.Unlock()
		if ctx.Err() != nil || !l.reopen(ctx) {
			return
		}
	}
}

// reopen connects again; false when ctx ends first.
func (l *link) reopen(ctx context.Context) bool {
	for wait := reconnectMin; sleep(ctx, wait); wait = min(2*wait, reconnectMax) {
		err := l.open(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			l.rec.fail(errNoConnection, 1)
		}
	}
	return false
}

func (l *link) current() *wire.Conn {
	l.state.Lock()
	defer l.state.Unlock()
	return l.conn
}

// links are those of a run, with the goroutines that keep them.
type links struct {
	all     []*link
	running sync.WaitGroup
	end     context.CancelFunc
}

// connect connects all; nothing is sent yet.
func (ls *links) connect(ctx context.Context) error {
	for _, l := range ls.all {
		if err := l.open(ctx); err != nil {
			ls.close()
			return err
		}
	}
	return nil
}

// use begins to use the connections, until close: when a run is interrupted, what is under way comes in.
func (ls *links) use(ctx context.Context) {
	ctx, ls.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, l := range ls.all {
		ls.running.Go(func() { l.serve(ctx) })
	}
	ls.running.Go(func() { ls.expire(ctx) })
}

func (ls *links) expire(ctx context.Context) {
	for sleep(ctx, expireEvery) {
		now := wire.Clock()
		for _, l := range ls.all {
			if conn := l.current(); conn != nil {
				conn.Expire(now)
			}
		}
	}
}

// close ends all connections and waits until nothing of them runs.
func (ls *links) close() {
	if ls.end != nil {
		ls.end()
	}
	ls.running.Wait()
	for _, l := range ls.all { // those that were never used
		if conn := l.current(); conn != nil {
			conn.Close()
			<-conn.Done()
		}
	}
}
