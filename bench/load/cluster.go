// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

const (
	dialTimeout = 5 * time.Second
	// adminWindow is how many requests of administration are in flight at once.
	adminWindow = 64
	// routeWait bounds how long a topic just made may take to reach the name server.
	routeWait = 10 * time.Second
	routePoll = 50 * time.Millisecond
)

// master is a broker that takes messages, with the queues of the run that are on it.
type master struct {
	name, addr string
	queues     []*queue
}

// queue is one queue of the run.
type queue struct {
	topic string
	id    int
	index int // among all queues of the run

	begin int64        // its end before the run sent anything
	end   int64        // and after
	acked atomic.Int64 // behind the last message that an answer placed in it, as far as answers are looked at
}

// acknowledge takes note that messages before an offset are there.
func (q *queue) acknowledge(end int64) {
	for old := q.acked.Load(); old < end && !q.acked.CompareAndSwap(old, end); {
		old = q.acked.Load()
	}
}

// dial connects for administration.
func dial(ctx context.Context, what, addr string) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := wire.Dial(ctx, addr, wire.Options{Window: adminWindow})
	if err != nil {
		return nil, fmt.Errorf("no %s answers at %s: %w", what, addr, err)
	}
	return conn, nil
}

// findMasters finds the queues of all topics, and makes topics that do not exist when create is set. That each question is
// answered in time is seen to where it is asked: topics can be many.
func (c *Config) findMasters(ctx context.Context, create bool) ([]*master, error) {
	found, err := c.find(ctx, create)
	if err != nil {
		return nil, err
	}
	index := 0
	for _, m := range found {
		for _, q := range m.queues {
			q.index = index
			index++
		}
	}
	return found, nil
}

func (c *Config) find(ctx context.Context, create bool) ([]*master, error) {
	if c.Broker != "" {
		return c.askBroker(ctx, create)
	}
	var errs []error
	for addr := range strings.SplitSeq(c.NameSrv, ";") {
		names, err := dial(ctx, "name server", addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer names.Close()
		return c.askNameServer(ctx, names, create)
	}
	return nil, errors.Join(errs...)
}

func (c *Config) askBroker(ctx context.Context, create bool) ([]*master, error) {
	broker, err := dial(ctx, "broker", c.Broker)
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	known, err := wire.Topics(ctx, broker)
	if err != nil {
		return nil, fmt.Errorf("topics of the broker at %s: %w", c.Broker, err)
	}
	m := &master{addr: c.Broker}
	for _, topic := range c.Topics {
		q, ok := known[topic]
		if !ok {
			if !create {
				return nil, fmt.Errorf("topic %s is unknown to the broker at %s", topic, c.Broker)
			}
			if err := wire.CreateTopic(ctx, broker, topic, c.Queues); err != nil {
				return nil, fmt.Errorf("make topic %s at %s: %w", topic, c.Broker, err)
			}
			q = wire.BrokerQueues{ReadQueues: c.Queues, WriteQueues: c.Queues, Readable: true, Writable: true}
		}
		m.add(topic, q, c.reads(), c.writes())
	}
	return c.checked([]*master{m})
}

// add adds the queues of a topic that can be used by who reads, writes, or does both.
func (m *master) add(topic string, q wire.BrokerQueues, reads, writes bool) {
	n := max(q.ReadQueues, q.WriteQueues)
	if reads {
		n = min(n, q.ReadQueues)
	}
	if writes {
		n = min(n, q.WriteQueues)
	}
	if reads && !q.Readable || writes && !q.Writable {
		n = 0
	}
	for id := range n {
		m.queues = append(m.queues, &queue{topic: topic, id: id})
	}
}

// checked refuses topics without a queue that can be used.
func (c *Config) checked(masters []*master) ([]*master, error) {
	masters = slices.DeleteFunc(masters, func(m *master) bool { return len(m.queues) == 0 })
	used := make(map[string]bool)
	for _, m := range masters {
		for _, q := range m.queues {
			used[q.topic] = true
		}
	}
	for _, topic := range c.Topics {
		if !used[topic] {
			return nil, fmt.Errorf("topic %s has no queue that may be used: look at its permission", topic)
		}
	}
	return masters, nil
}

func (c *Config) askNameServer(ctx context.Context, names *wire.Conn, create bool) ([]*master, error) {
	byAddr := make(map[string]*master)
	var masters []*master
	for _, topic := range c.Topics {
		queues, err := wire.Route(ctx, names, topic)
		if isUnknownTopic(err) && create {
			queues, err = c.createEverywhere(ctx, names, topic)
		}
		if isUnknownTopic(err) {
			return nil, fmt.Errorf("topic %s has no route at the name server %s: it does not exist, or its broker is not registered", topic, names.Addr())
		}
		if err != nil {
			return nil, fmt.Errorf("route of topic %s: %w", topic, err)
		}
		if len(queues) == 0 {
			return nil, fmt.Errorf("topic %s has no master: the name server %s knows slaves only", topic, names.Addr())
		}
		for _, q := range queues {
			m := byAddr[q.Addr]
			if m == nil {
				m = &master{name: q.BrokerName, addr: q.Addr}
				byAddr[q.Addr] = m
				masters = append(masters, m)
			}
			m.add(topic, q, c.reads(), c.writes())
		}
	}
	return c.checked(masters)
}

func isUnknownTopic(err error) bool {
	var code *wire.CodeError
	return errors.As(err, &code) && code.Code == remoting.TopicNotExist
}

// createEverywhere makes a topic on all masters, and waits until the name server knows it.
func (c *Config) createEverywhere(ctx context.Context, names *wire.Conn, topic string) ([]wire.BrokerQueues, error) {
	masters, err := wire.Masters(ctx, names)
	if err != nil {
		return nil, err
	}
	if len(masters) == 0 {
		return nil, fmt.Errorf("no master is registered at the name server %s", names.Addr())
	}
	for name, addr := range masters {
		broker, err := dial(ctx, "broker "+name, addr)
		if err != nil {
			return nil, err
		}
		err = wire.CreateTopic(ctx, broker, topic, c.Queues)
		broker.Close()
		if err != nil {
			return nil, fmt.Errorf("make topic %s at %s: %w", topic, name, err)
		}
	}
	for end := time.Now().Add(routeWait); ; {
		queues, err := wire.Route(ctx, names, topic)
		if err == nil && len(queues) >= len(masters) || err != nil && !isUnknownTopic(err) {
			return queues, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("topic %s was made on %d masters, and after %v the name server %s knows of %d", topic, len(masters), routeWait, names.Addr(), len(queues))
		}
		if !sleep(ctx, routePoll) {
			return nil, ctx.Err()
		}
	}
}

// sleep waits; false says that ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// forQueues asks the masters something about each queue, many at a time.
func forQueues(ctx context.Context, masters []*master, ask func(context.Context, *wire.Conn, *queue) error) error {
	for _, m := range masters {
		conn, err := dial(ctx, "broker", m.addr)
		if err != nil {
			return err
		}
		err = forQueuesOf(ctx, conn, m, ask)
		conn.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func forQueuesOf(ctx context.Context, conn *wire.Conn, m *master, ask func(context.Context, *wire.Conn, *queue) error) error {
	ctx, giveUp := context.WithCancel(ctx) // at the first failure: a broker that hangs is not to be waited for once a queue
	defer giveUp()
	var (
		group sync.WaitGroup
		mu    sync.Mutex // guards first
		first error
	)
	work := make(chan *queue)
	for range min(adminWindow, len(m.queues)) {
		group.Go(func() {
			for q := range work {
				if err := ask(ctx, conn, q); err != nil {
					mu.Lock()
					first = firstOf(first, err)
					mu.Unlock()
					giveUp()
				}
			}
		})
	}
	for _, q := range m.queues {
		if ctx.Err() != nil {
			break
		}
		work <- q
	}
	close(work)
	group.Wait()
	return firstOf(first, ctx.Err())
}

func firstOf(first, err error) error {
	if first != nil {
		return first
	}
	return err
}
