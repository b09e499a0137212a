// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
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

	mu          sync.Mutex                      // guards changes of connections
	connections atomic.Pointer[[]*HAConnection] // a snapshot for readers: never changed in place
	helper      prefetcher
	syncFrom    atomic.Int64 // log end at which this node became SYNC_MASTER, -1 if it is not
}

// NewHAService makes the service; Start makes it listen.
func NewHAService(opts Options) (*HAService, error) {
	s := &HAService{config: opts.Config, store: opts.Store, logger: opts.Logger}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.connections.Store(new([]*HAConnection))
	s.transfer = newGroupTransferService(s.acked)
	s.helper.store = opts.Store
	var err error
	if s.state, err = openState(opts.FS, opts.StatePath); err != nil {
		return nil, err
	}
	s.syncFrom.Store(-1)
	return s, nil
}

// Start begins in RocketMQ's order: listener, then the waiting service. Source: HAService#start.
func (s *HAService) Start() error {
	if err := s.lead(); err != nil {
		return err
	}
	cfg := s.config()
	s.server = reactor.NewServer(reactor.ServerConfig{
		Addrs:    []string{cfg.Addr},
		NumLoops: 1,
		Logger:   s.logger,
		OnTick:   s.onTick,
	}, &masterHandler{s})
	if err := s.server.Start(); err != nil {
		return err
	}
	s.transfer.start()
	s.helper.start()
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
	return nil
}

// Stop closes the connections to slaves and ends the waiting sends.
func (s *HAService) Stop() {
	s.server.Stop()
	s.helper.stop()
	s.transfer.stop()
}

// Readable says that log bytes below end may be sent; it never blocks. It is the store's listener.
func (s *HAService) Readable(storage.PhyOffset) {
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

// acked is push2SlaveMaxOffset, but of the slaves that are connected now: the offset below which enough of them hold
// everything. It falls when one leaves (apache/rocketmq#3015). Two connections of one slave count as one.
func (s *HAService) acked() storage.PhyOffset {
	connections := *s.connections.Load()
	need := s.config().Acks()
	if need == 1 {
		best := storage.PhyOffset(-1)
		for _, c := range connections {
			best = max(best, c.ackOffset())
		}
		return best
	}
	return nthGreatest(connections, need)
}

// nthGreatest is the n-th greatest acknowledged offset, each slave counted once; -1 when there are fewer.
func nthGreatest(connections []*HAConnection, n int) storage.PhyOffset {
	bySlave := make(map[slaveKey]storage.PhyOffset, len(connections))
	for _, c := range connections {
		if ack := c.ackOffset(); ack >= 0 {
			bySlave[c.slave()] = max(bySlave[c.slave()], ack)
		}
	}
	acks := make([]storage.PhyOffset, 0, len(bySlave))
	for _, ack := range bySlave {
		acks = append(acks, ack)
	}
	if len(acks) < n {
		return -1
	}
	slices.Sort(acks)
	return acks[len(acks)-n]
}

// isSlaveOK says whether enough slaves are near enough to wait for. A slave that has acknowledged nothing for a whole
// slaveTimeout while there was something to acknowledge does not count until it gets on (apache/rocketmq#3484).
// Source: HAService#isSlaveOK.
func (s *HAService) isSlaveOK(end storage.PhyOffset, now time.Time) bool {
	cfg := s.config()
	need := cfg.Acks()
	var seen [acksMax]slaveKey
	n := 0
	for _, c := range *s.connections.Load() {
		ack := c.ackOffset()
		if ack < 0 || int64(end-ack) >= cfg.HaSlaveFallbehindMax || c.stalled(now, cfg.SlaveTimeout) {
			continue
		}
		if key := c.slave(); !slices.Contains(seen[:n], key) && n < acksMax {
			seen[n] = key
			n++
		}
		if n >= need {
			return true
		}
	}
	return false
}

// acksMax bounds inSyncReplicas: more slaves than this are never waited for.
const acksMax = 16

func (s *HAService) add(c *HAConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append(slices.Clone(*s.connections.Load()), c)
	s.connections.Store(&list)
}

func (s *HAService) remove(c *HAConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*s.connections.Load()), func(x *HAConnection) bool { return x == c })
	s.connections.Store(&list)
}

// onTick runs on a goroutine of its own: heartbeat, housekeeping, and whatever a lost wake-up would have left.
func (s *HAService) onTick() {
	for _, c := range *s.connections.Load() {
		c.conn.Post(c.onLoopTick)
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
		ack := c.ackOffset()
		if ack >= 0 && ack < end && int64(end-ack) < cfg.HaSlaveFallbehindMax && !c.stalled(now, cfg.SlaveTimeout) {
			return false
		}
	}
	return true
}
