// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"loopmq/reactor/remoting"
)

const (
	// syncFirstDelay and syncPeriod are those of 4.9. Source: BrokerController#handleSlaveSynchronize.
	syncFirstDelay = 3 * time.Second
	syncPeriod     = 10 * time.Second
	// syncTimeout bounds each request. Source: BrokerOuterAPI, 3 s throughout.
	syncTimeout = 3 * time.Second
	// offsetInterval is how often a loopmq master is asked whether its consumer offsets have changed: a failover loses
	// about so much of them. A master that has nothing new answers with a hundred bytes.
	offsetInterval = time.Second
	// offsetShare is the part of the time that copying offsets may take: tables that take 50 ms to copy are copied every
	// second, larger ones less often.
	offsetShare = 20
	// syncComplainInterval is how often the same failure is logged.
	syncComplainInterval = time.Minute
)

// SlaveSynchronize copies to a slave what its master keeps beside the log: topics, consumer offsets, delay offsets,
// subscription groups. Between loopmq nodes consumer offsets go both ways, and within a second: what was committed at a
// slave while its master was away is offered to the master that is back (see offsetTables). Source: SlaveSynchronize.
type SlaveSynchronize struct {
	b      *BrokerController
	stop   context.CancelFunc
	ctx    context.Context
	done   sync.WaitGroup
	logged map[string]complaint // by step; of the goroutine, as what follows

	master  string       // whose answers the fields below are
	known   string       // version of the master's offsets, "" when it is not loopmq's or not known
	theirs  offsetTables // the master's offsets at that version
	mine    string       // version of this node's offsets when all of them were the master's too
	backoff time.Time    // offsets are not asked for before
}

type complaint struct {
	text string
	at   time.Time
}

func newSlaveSynchronize(b *BrokerController) *SlaveSynchronize {
	s := &SlaveSynchronize{b: b, logged: make(map[string]complaint)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Start begins to copy, after syncFirstDelay.
func (s *SlaveSynchronize) Start() {
	s.done.Go(s.run)
}

// Stop ends it; what is under way is given up.
func (s *SlaveSynchronize) Stop() {
	s.stop()
	s.done.Wait()
}

func (s *SlaveSynchronize) run() {
	next := time.Now().Add(syncFirstDelay)
	ticker := time.NewTicker(offsetInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			if !now.Before(next) {
				s.syncAll()
				next = time.Now().Add(syncPeriod)
			} else if s.known != "" && !now.Before(s.backoff) {
				s.step("consumer offsets", s.syncConsumerOffset)
			}
		}
	}
}

// masterAddress is the master to copy from; false while there is none, or only this node itself.
func (s *SlaveSynchronize) masterAddress() bool {
	addr := s.b.masterAddr()
	if addr == s.b.BrokerAddr() {
		addr = ""
	}
	if addr != s.master {
		s.master, s.known, s.mine, s.theirs = addr, "", "", offsetTables{}
	}
	return addr != ""
}

// syncAll is one round. Its steps do not depend on each other. Source: SlaveSynchronize#syncAll.
func (s *SlaveSynchronize) syncAll() {
	s.step("topics", s.syncTopicConfig)
	s.step("consumer offsets", s.syncConsumerOffset)
	s.step("consumer offsets on disk", s.b.offsets.Persist)
	s.step("delay offsets", s.syncDelayOffset)
	s.step("subscription groups", s.syncSubscriptionGroupConfig)
}

func (s *SlaveSynchronize) step(what string, sync func() error) {
	if !s.masterAddress() {
		return
	}
	err := sync()
	last, now := s.logged[what], time.Now()
	switch {
	case s.ctx.Err() != nil:
	case err == nil:
		delete(s.logged, what)
	case err.Error() != last.text || now.Sub(last.at) >= syncComplainInterval:
		s.logged[what] = complaint{err.Error(), now}
		s.b.logger.Error("not copied from the master, will be tried again", "what", what, "master", s.master, "err", err)
	}
}

func (s *SlaveSynchronize) ask(addr string, req *remoting.Command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, syncTimeout)
	defer cancel()
	req.Version = remoting.Version
	resp, err := s.b.outer.client.Invoke(ctx, addr, req)
	if err != nil {
		return nil, err
	}
	if resp.Code != remoting.Success {
		return nil, &refusedError{resp.Code, string(resp.Remark)}
	}
	return resp.Body, nil
}

// refusedError is a master's answer with another code than SUCCESS.
type refusedError struct {
	code   int32
	remark string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the master answers %d: %s", e.code, e.remark)
}

// vipAddress is the master's port for its own kind, listenPort − 2. Source: MixAll#brokerVIPChannel.
func vipAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if n, convErr := strconv.Atoi(port); err == nil && convErr == nil {
		return net.JoinHostPort(host, strconv.Itoa(n-2))
	}
	return addr
}

// syncTopicConfig asks at listenPort − 2 as RocketMQ does, and at listenPort where nobody listens there.
func (s *SlaveSynchronize) syncTopicConfig() error {
	req := remoting.Command{Code: remoting.GetAllTopicConfig}
	refused := (*refusedError)(nil)
	body, err := s.ask(vipAddress(s.master), &req)
	if err != nil && !errors.As(err, &refused) {
		req = remoting.Command{Code: remoting.GetAllTopicConfig}
		body, err = s.ask(s.master, &req)
	}
	if err != nil {
		return err
	}
	topics, version, _, err := readTopicTable(body)
	if err != nil {
		return err
	}
	before, mine := s.b.topics.All()
	if version == mine {
		return nil
	}
	if err := s.b.topics.table.replace(topics, version); err != nil {
		return err
	}
	for name := range before {
		if topics[name] == nil {
			s.b.stats.RemoveTopic(name)
		}
	}
	return nil
}

func (s *SlaveSynchronize) syncSubscriptionGroupConfig() error {
	body, err := s.ask(s.master, &remoting.Command{Code: remoting.GetAllSubscriptionGroupConfig})
	if err != nil {
		return err
	}
	groups, version, _, err := readGroupTable(body)
	if err != nil {
		return err
	}
	before, mine := s.b.groups.All()
	if version == mine {
		return nil
	}
	for _, c := range groups { // whatever they are called: RocketMQ lets tools make groups of any name
		if err := c.validateQueues(); err != nil {
			return err
		}
	}
	if err := s.b.groups.table.replace(groups, version); err != nil {
		return err
	}
	for name := range before {
		if groups[name] == nil {
			s.b.stats.RemoveGroup(name)
		}
	}
	return nil
}

func (s *SlaveSynchronize) syncDelayOffset() error {
	body, err := s.ask(s.master, &remoting.Command{Code: remoting.GetAllDelayOffset})
	if err != nil {
		return err
	}
	return s.b.schedule.adopt(body)
}

// syncConsumerOffset takes over the master's offsets, and gives a loopmq master what it lacks.
func (s *SlaveSynchronize) syncConsumerOffset() error {
	offsets := s.b.offsets
	began, mine := time.Now(), offsets.version()
	req := &remoting.Command{Code: remoting.GetAllConsumerOffset}
	if s.known != "" {
		req.Ext.Add(offsetVersionMember, s.known)
		req.Ext.Add(offsetNodeMember, s.b.ha.Node())
		if mine != s.mine {
			req.Body = s.offer()
		}
	}
	body, err := s.ask(s.master, req)
	if err != nil {
		return err
	}
	t, err := readOffsetTables(body)
	if err != nil {
		return err
	}
	switch {
	case t.version == "": // a RocketMQ master
		offsets.Replace(&t)
	case t.version == s.known:
		if t.joined || len(req.Body) == 0 {
			s.mine = mine // nothing came, and what this node had newer the master had too, or will not have
		}
		return nil
	default:
		offsets.Merge(&t, nil)
		s.theirs = t
		mine = offsets.version() // before ahead: what is committed meanwhile is a change
		if ahead := s.ahead(); ahead.empty() {
			s.mine = mine // all that is here now is the master's
		} else {
			s.mine = "" // it has lost what it had, or does not know it yet
		}
	}
	if !sameLife(s.known, t.version) && !s.b.haClient.Following() {
		s.b.haClient.Wakeup() // the master is another or back: it takes offers when the logs are joined
	}
	s.known = t.version
	s.backoff = time.Now().Add(offsetShare * time.Since(began))
	return nil
}

// sameLife says whether two versions are of one run of a master.
func sameLife(a, b string) bool {
	a, _, _ = strings.Cut(a, "-")
	b, _, _ = strings.Cut(b, "-")
	return a == b
}

// ahead is what this node has newer than the master had.
func (s *SlaveSynchronize) ahead() offsetTables {
	mine := s.b.offsets.snapshot()
	return mine.newerThan(&s.theirs)
}

// offer encodes it; nothing when there is nothing.
func (s *SlaveSynchronize) offer() []byte {
	ahead := s.ahead()
	if ahead.empty() {
		return nil
	}
	var w jsonWriter
	w.beginObject()
	ahead.writeMembers(&w)
	w.endObject()
	return w.b
}
