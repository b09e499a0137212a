// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/hex"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
)

// connectionsMax bounds what may connect to the HA port at the same time, strangers included.
const connectionsMax = 1024

const (
	tickInterval = 100 * time.Millisecond
	// aloneTickInterval is that of a master without slaves at most, if that is soon enough for the first heartbeat of one
	// that comes.
	aloneTickInterval = time.Second
)

// HAService is the master side: it listens, feeds the slaves that connect, and answers sends that wait for them.
// Every broker listens, slaves too, as in RocketMQ. Source: HAService.
type HAService struct {
	config func() *Config
	store  Store
	logger *slog.Logger
	state  *stateFile

	server   *reactor.Server
	transfer *GroupTransferService
	helper   helper
	lag      lagClock

	mu          sync.Mutex                      // guards changes of the two fields below
	connections atomic.Pointer[[]*HAConnection] // a snapshot for readers: never changed in place
	// push2SlaveMaxOffset is the offset below which enough slaves hold everything, -1 when there are too few.
	push2SlaveMaxOffset atomic.Int64

	syncFrom atomic.Int64 // log end at which this node became SYNC_MASTER, -1 if it is not
	refusals atomic.Int64

	tail         tailWait
	tailsGivenUp atomic.Int64
	serve        func() // sends are taken from now on
	boot         string

	copied nodeID // of two stores, one a copy of the other; the loop's

	noteMu sync.Mutex                   // guards leftAt, and orders what is noted of slaves; held while ha.json is written
	leftAt map[string]storage.PhyOffset // of noted slaves that are not connected: no less than they have acknowledged
}

// NewHAService makes the service; Start makes it listen. It comes before the store's Start: the store of a master that may
// have lost the end of its log takes no puts, until Serve.
func NewHAService(opts Options) (*HAService, error) {
	s := &HAService{config: opts.Config, store: opts.Store, logger: opts.Logger, serve: opts.Serve, boot: opts.Boot}
	if s.serve == nil {
		s.serve = func() {}
	}
	s.leftAt = make(map[string]storage.PhyOffset)
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.connections.Store(new([]*HAConnection))
	s.push2SlaveMaxOffset.Store(-1)
	s.transfer = newGroupTransferService(s.acked)
	var err error
	if s.state, err = openState(opts.FS, opts.StatePath); err != nil {
		return nil, err
	}
	clean, others := s.store.LastRun()
	if others {
		s.logger.Warn("another broker than loopmq has written to this store: all of its log counts as acknowledged and is never cut", "end", s.store.MaxPhyOffset())
	}
	if err := s.state.began(clean, others, s.boot); err != nil {
		return nil, err
	}
	if s.config().Role != storage.Slave && len(s.state.lost()) > 0 {
		s.store.Fence()
	}
	s.syncFrom.Store(-1)
	return s, nil
}

// Start begins in RocketMQ's order: listener, then the waiting service. Source: HAService#start.
func (s *HAService) Start() error {
	if err := s.lead(); err != nil {
		return err
	}
	s.helper.start()
	s.server = reactor.NewServer(reactor.ServerConfig{
		Addrs:          []string{s.config().Addr},
		NumLoops:       1,
		ConnectionsMax: connectionsMax,
		Logger:         s.logger,
		OnTick:         s.onTick,
	}, &masterHandler{s})
	if err := s.server.Start(); err != nil {
		s.helper.stop()
		return err
	}
	s.transfer.start()
	return nil
}

// lead notes on disk, before anything is served, that what a master holds from now on is its own, and from where on it is
// SYNC_MASTER.
func (s *HAService) lead() error {
	cfg := s.config()
	if cfg.Role == storage.Slave {
		return nil
	}
	syncFrom, err := s.state.lead(cfg.Role == storage.SyncMaster, s.store.MaxPhyOffset())
	if err != nil {
		return err
	}
	s.syncFrom.Store(int64(syncFrom))
	if slaves := s.state.lost(); len(slaves) > 0 {
		s.tail.begin(slaves, time.Now())
	} else {
		s.serve()
	}
	return nil
}

// note keeps on disk that a slave's acknowledgements count, before they do.
func (s *HAService) note(node nodeID) error {
	slave := hex.EncodeToString(node[:])
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	delete(s.leftAt, slave)
	return s.state.note(slave, s.boot)
}

// dropNoted forgets slaves that have left, once all that they may have acknowledged is on this node's disk. On the
// goroutine of the tick.
func (s *HAService) dropNoted() {
	noted := s.state.noted()
	if len(noted) == 0 || s.tail.active.Load() {
		return
	}
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	for _, c := range *s.connections.Load() {
		node := c.slave().node
		slave := hex.EncodeToString(node[:])
		noted = slices.DeleteFunc(noted, func(x string) bool { return x == slave })
		delete(s.leftAt, slave)
	}
	var gone []string
	for _, slave := range noted {
		if at, ok := s.leftAt[slave]; !ok {
			s.leftAt[slave] = s.store.MaxPhyOffset()
		} else if s.store.FlushedWhere() >= at {
			gone = append(gone, slave)
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := s.state.drop(gone); err != nil {
		s.logger.Error("slaves that have left stay noted", "cause", err)
		return
	}
	for _, slave := range gone {
		delete(s.leftAt, slave)
	}
}

// Stop closes the connections to slaves and ends the waiting sends.
func (s *HAService) Stop() {
	s.server.Stop()
	s.transfer.stop()
	s.helper.stop()
}

// Readable says that log bytes below end may be sent; it never blocks. It is the store's listener.
func (s *HAService) Readable(end storage.PhyOffset) {
	for _, c := range *s.connections.Load() {
		c.wakePump()
	}
}

// SubmitReplicaRequest calls done once: PutOK when enough slaves that are connected now hold all bytes below end,
// FlushSlaveTimeout when deadline passes, SlaveNotAvailable at once when too few slaves are close enough.
// Source: CommitLog#submitReplicaRequest.
func (s *HAService) SubmitReplicaRequest(end storage.PhyOffset, deadline time.Time, done func(storage.PutMessageStatus)) {
	if s.acked() >= end {
		done(storage.PutOK)
		return
	}
	if !s.isSlaveOK(end, time.Now()) {
		done(storage.SlaveNotAvailable)
		return
	}
	s.transfer.submit(replicaRequest{end: end, deadline: deadline, done: done})
}

// ReplicaAnsweredAt is when the requests whose done runs now were found to be at their end: latency.Now of the round. For
// one that ended where it was submitted it is earlier.
func (s *HAService) ReplicaAnsweredAt() int64 { return s.transfer.answeredAt.Load() }

// acked is push2SlaveMaxOffset, but of the slaves that are connected now: it falls when one leaves (apache/rocketmq#3015).
func (s *HAService) acked() storage.PhyOffset {
	return storage.PhyOffset(s.push2SlaveMaxOffset.Load())
}

// publishAcked follows each change of what a slave has acknowledged, of the connections, and of inSyncReplicas.
func (s *HAService) publishAcked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push2SlaveMaxOffset.Store(int64(nthGreatest(*s.connections.Load(), s.config().Acks())))
}

// nthGreatest is the greatest offset that n slaves have acknowledged; -1 when there is none. Two connections of one
// slave count as one. There are few connections, and no memory is to be had for each report.
func nthGreatest(connections []*HAConnection, n int) storage.PhyOffset {
	greatest := storage.PhyOffset(-1)
	for _, c := range connections {
		if ack := c.heldOffset(); ack > greatest && slavesThatHold(connections, ack) >= n {
			greatest = ack
		}
	}
	return greatest
}

func slavesThatHold(connections []*HAConnection, offset storage.PhyOffset) (n int) {
	for i, c := range connections {
		if c.heldOffset() < offset {
			continue
		}
		counted := slices.ContainsFunc(connections[:i], func(before *HAConnection) bool {
			return before.heldOffset() >= offset && before.slave() == c.slave()
		})
		if !counted {
			n++
		}
	}
	return n
}

// isSlaveOK says whether enough slaves are near enough to wait for. A slave that has acknowledged nothing for a whole
// slaveTimeout while there was something to acknowledge does not count until it gets on (apache/rocketmq#3484).
// Source: HAService#isSlaveOK.
func (s *HAService) isSlaveOK(end storage.PhyOffset, now time.Time) bool {
	cfg := s.config()
	need := cfg.Acks()
	connections := *s.connections.Load()
	for i, c := range connections {
		if !c.inSync(end, now, cfg) {
			continue
		}
		counted := slices.ContainsFunc(connections[:i], func(before *HAConnection) bool {
			return before.slave() == c.slave() && before.inSync(end, now, cfg)
		})
		if !counted {
			need--
		}
		if need == 0 {
			return true
		}
	}
	return false
}

func (s *HAService) add(c *HAConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(*s.connections.Load()), c)
	s.connections.Store(&list)
}

func (s *HAService) remove(c *HAConnection) {
	s.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(*s.connections.Load()), func(x *HAConnection) bool { return x == c })
	s.connections.Store(&list)
	s.mu.Unlock()
	s.publishAcked()
}

// servedBefore is a connection that came before c and on which a slave with that node id is served; nil if there is none.
// RocketMQ's slaves have no id. On the loop.
func (s *HAService) servedBefore(c *HAConnection, node nodeID) *HAConnection {
	if node == (nodeID{}) {
		return nil
	}
	for _, o := range *s.connections.Load() {
		if o == c {
			break
		}
		if o.slave().node == node && connectionState(o.state.Load()) == stateTransfer {
			return o
		}
	}
	return nil
}

// onTick runs on a goroutine of its own: heartbeat, housekeeping, and whatever a lost wake-up would have left.
func (s *HAService) onTick() (next time.Duration) {
	now := time.Now()
	s.lag.sample(now, s.store.MaxPhyOffset())
	s.publishAcked() // inSyncReplicas may have changed
	s.stepTail(now)
	s.dropNoted()
	connections := *s.connections.Load()
	for _, c := range connections {
		c.conn.Post(c.tick)
	}
	if len(connections) == 0 && !s.tail.active.Load() && s.config().HaSendHeartbeatInterval >= 2*aloneTickInterval {
		return reactor.UntilSecond(now)
	}
	return tickInterval
}

// DropSlaves closes all connections: this log was cut, and what was sent of it may no longer be in it. The slaves come
// back and compare.
func (s *HAService) DropSlaves() {
	for _, c := range *s.connections.Load() {
		c.conn.Post(func() { c.drop("this node's own log was cut") })
	}
}

// MinRetained is the lowest offset that a slave still needs that is connected and not refused, but no lower than
// haRetainedMax below the end; false when there is none.
func (s *HAService) MinRetained() (storage.PhyOffset, bool) {
	lowest, found := storage.PhyOffset(0), false
	for _, c := range *s.connections.Load() {
		if ack := c.ackOffset(); ack >= 0 && (!found || ack < lowest) {
			lowest, found = ack, true
		}
	}
	return max(lowest, s.store.MaxPhyOffset()-storage.PhyOffset(s.config().HaRetainedMax)), found
}

// Addr is the bound address.
func (s *HAService) Addr() netip.AddrPort { return s.server.Addr(0) }

// Done is closed when the HA port is no longer served; Err says why, nil after Stop.
func (s *HAService) Done() <-chan struct{} { return s.server.Done() }

// Err is valid once Done is closed.
func (s *HAService) Err() error { return s.server.Err() }

// Idle says that no send waits and that every slave that keeps up has everything: a stop then leaves nothing behind that
// a moment would have brought over.
func (s *HAService) Idle() bool {
	if s.transfer.waiting.Load() > 0 {
		return false
	}
	end, now, cfg := s.store.MaxPhyOffset(), time.Now(), s.config()
	for _, c := range *s.connections.Load() {
		if c.ackOffset() < end && c.inSync(end, now, cfg) {
			return false
		}
	}
	return true
}
