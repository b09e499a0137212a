// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

const (
	simRoot  = "/store"
	simState = simRoot + "/config/ha.json"
	// simTailTimeout is longer than any run: an operator ends the wait for a slave that he has emptied.
	simTailTimeout = 1000 * time.Hour
)

// simNode is one machine: a disk, and while it is up a store with the two sides of replication.
type simNode struct {
	sim   *simulation
	index int
	name  string

	role     storage.Role
	master   *simNode // whom it follows as a slave
	fs       *faultfs.FS
	full     bool
	powerCut bool // what it has left is not known before it is up again
	up       bool
	lives    int
	boot     int
	looking  atomic.Int64 // images that are open: reading them is no operation of the node
	opsLeft  atomic.Int64 // until a crash at an operation of the file system; not positive: none

	store    *storage.MessageStore
	ha       *simStore
	haConfig *Config
	service  *HAService
	readable atomic.Pointer[HAService] // whom the store's listener tells
	client   *HAClient
	link     *haLink
	linkConn *simConn
	reports  *reportTap
	need     int  // slaves that must have a send
	refused  bool // its last link ended because the logs do not join

	// Guarded by sim.mu.
	crashed bool
	kind    faultfs.CrashKind
	next    *faultfs.FS
	flushed storage.PhyOffset // durable at the crash
}

func newSimNode(s *simulation, index int) *simNode {
	return &simNode{sim: s, index: index, name: string(rune('A' + index)), role: storage.Slave, fs: faultfs.New()}
}

// simStore is what the code under test sees of a store; plants change it.
type simStore struct {
	*storage.MessageStore
	node *simNode
}

func (s *simStore) Select(offset storage.PhyOffset, max int) (storage.SelectMappedBufferResult, bool) {
	sel, ok := s.MessageStore.Select(offset, max)
	if ok && s.node.sim.plant.selects != nil {
		s.node.sim.plant.selects(s, offset, max)
	}
	return sel, ok
}

func (s *simStore) AppendToCommitLog(start storage.PhyOffset, parts ...[]byte) error {
	if s.node.sim.plant.appends != nil {
		return s.node.sim.plant.appends(s, start, slices.Concat(parts...))
	}
	return s.MessageStore.AppendToCommitLog(start, parts...)
}

func (s *simStore) MaxPhyOffset() storage.PhyOffset {
	end := s.MessageStore.MaxPhyOffset()
	if s.node.sim.plant.ends != nil {
		end = s.node.sim.plant.ends(s, end)
	}
	return end
}

func (n *simNode) logger() *slog.Logger {
	if *simTrace {
		return slog.New(slog.NewTextHandler(os.Stdout, nil)).With("node", n.name)
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// start opens the store and begins the node's part in replication.
func (n *simNode) start() {
	n.lives++
	n.sim.step("%s starts, role %d", n.name, n.role)
	if n.full {
		n.fs.SetCapacity(1 << 40)
		n.full = false
	}
	n.fs.SetHook(func(op faultfs.Op, path string) {
		if n.looking.Load() == 0 && n.opsLeft.Load() > 0 && n.opsLeft.Add(-1) == 0 {
			n.crash(fmt.Sprintf("before %v of %s", op, path))
		}
	})
	if err := n.open(); err != nil {
		if !n.hasCrashed() {
			n.sim.fail("%s does not start: %v", n.name, err)
		}
		n.up = true // to be buried
		return
	}
	n.up = true
	if !n.hasCrashed() {
		n.opened()
	}
}

func (n *simNode) open() (err error) {
	s := n.sim
	cfg := storage.DefaultConfig()
	cfg.StorePathRootDir = simRoot
	cfg.Role, cfg.BrokerID = n.role, int64(n.index)+1
	if n.role != storage.Slave {
		cfg.BrokerID = 0
	}
	cfg.MappedFileSizeCommitLog = s.fileSize
	cfg.MappedFileSizeConsumeQueue = 20 * 50
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 20, 100
	cfg.FlushDiskType = storage.FlushDiskType(s.rng.IntN(2))
	cfg.FlushIntervalCommitLog = 1 + s.rng.Int64N(500)
	cfg.FileReservedTime = 72
	cfg.EnsureDefaults()
	n.ha, n.service, n.client = nil, nil, nil
	if n.store, err = storage.Open(cfg, storage.Options{
		FS: n.fs, Logger: n.logger(),
		Listener: storage.EventListener{Readable: func(end storage.PhyOffset) {
			if service := n.readable.Load(); service != nil {
				service.Readable(end)
			}
		}},
	}); err != nil {
		n.store = nil
		return err
	}
	if err = n.store.Start(); err != nil {
		return err
	}
	n.ha = &simStore{n.store, n}
	n.haConfig = &Config{
		Role: n.role, BrokerID: int64(n.index),
		HaSendHeartbeatInterval: 5 * time.Second, HaHousekeepingInterval: 20 * time.Second,
		HaTransferBatchSize: 1 + s.rng.IntN(1<<(3+s.rng.IntN(13))), HaSlaveFallbehindMax: 256 << 20,
		InSyncReplicas: 1, SlaveTimeout: 3 * time.Second, MappedFileSizeCommitLog: s.fileSize,
		HaTailTimeout: simTailTimeout,
	}
	if s.quorum || len(s.nodes) > 2 && s.rng.IntN(2) == 0 {
		n.haConfig.InSyncReplicas = 3
	}
	n.need = n.haConfig.Acks()
	if err = n.fs.MkdirAll(path.Dir(simState)); err != nil {
		return err
	}
	var fsys vfs.FS = n.fs
	if s.plant.stateFS != nil {
		fsys = s.plant.stateFS(n.fs)
	}
	opts := Options{
		Config: func() *Config { return n.haConfig }, Store: n.ha, Logger: n.logger(), StatePath: simState, FS: fsys,
		MasterAddress: func() string { return "" }, Boot: fmt.Sprintf("%s%d", n.name, n.boot),
	}
	if s.javaMaster != nil {
		opts.MasterMinOffset = s.javaMaster.minOffset
	}
	if n.service, err = NewHAService(opts); err != nil {
		return err
	}
	if err = n.service.lead(); err != nil {
		return err
	}
	n.service.transfer.start()
	n.service.helper.start()
	n.readable.Store(n.service)
	if n.role == storage.Slave {
		n.client = NewHAClient(opts, n.service)
	}
	return nil
}

// opened looks at what a power cut has left.
func (n *simNode) opened() {
	if !n.powerCut {
		return
	}
	n.powerCut = false
	img := n.image()
	defer img.close()
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	for _, m := range n.sim.messages {
		durable, held := m.holders[n]
		switch {
		case !held || img.holds(m):
		case durable && m.offset >= img.first:
			n.sim.failLocked("message %d at %d was durable on %s and is gone after a power cut", m.number, m.offset, n.name)
		default:
			delete(m.holders, n)
		}
	}
}

// waits says that a master may have lost the end of its log, and takes no sends until its slaves have been heard.
func (n *simNode) waits() bool { return n.up && n.service != nil && n.service.tail.active.Load() }

func (n *simNode) hasCrashed() bool {
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	return n.crashed
}

// crash ends the process, or cuts the power if that takes nothing that is only here. Any goroutine.
func (n *simNode) crash(where string) {
	s := n.sim
	s.mu.Lock()
	if n.crashed || n.store == nil && !n.up && n.lives == 0 {
		s.mu.Unlock()
		return
	}
	n.crashed = true
	n.kind = faultfs.ProcessKill
	if s.crashSeed(n)%3 > 0 && n.maySpareLocked() {
		n.kind = faultfs.PowerLoss
	}
	if n.store != nil {
		n.flushed = n.store.FlushedWhere()
	}
	if n.kind.CutsPower() {
		s.counts.powerCuts++
	} else {
		s.counts.kills++
	}
	kind := n.kind
	s.mu.Unlock()
	s.step("%s: %v %s", n.name, kind, where)
	next := n.fs.Crash(kind, s.crashSeed(n))
	s.mu.Lock()
	n.next = next
	s.mu.Unlock()
}

// maySpareLocked says that no send that was answered as replicated is on this node alone: a second crash comes after
// the nodes have caught up, or it is none of the kind that takes data.
func (n *simNode) maySpareLocked() bool {
	if n.sim.crashesMild && n.role != storage.Slave {
		return false
	}
	for _, m := range n.sim.messages {
		if _, here := m.holders[n]; m.promised() && here && !m.safeWithoutLocked(n) {
			return false
		}
	}
	return true
}

// safeWithoutLocked says that another node has the message, and has it for sure.
func (m *simMessage) safeWithoutLocked(n *simNode) bool {
	for other, durable := range m.holders {
		unsure := other.powerCut || other.crashed && other.kind.CutsPower()
		if other != n && (durable || !unsure) {
			return true
		}
	}
	return false
}

// bury takes a crashed node down.
func (n *simNode) bury() {
	n.down(func(c *simConn) { c.die(n.kind.CutsPower()) })
	if n.store != nil {
		_ = n.store.Close() // fails; its goroutines end
	}
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	if open := n.fs.OpenRegions(); open != 0 && n.store != nil {
		n.sim.failLocked("%s: %d regions are still lent after a crash", n.name, open)
	}
	if n.kind.CutsPower() {
		n.powerCut = true
		n.boot++
		for _, m := range n.sim.messages {
			if _, held := m.holders[n]; held && m.end() <= n.flushed {
				m.holders[n] = true
			}
		}
	}
	n.fs, n.next, n.crashed, n.store = n.next, nil, false, nil
}

// stop ends a node in order; all that was lent must be back.
func (n *simNode) stop() {
	n.sim.step("%s stops", n.name)
	n.opsLeft.Store(0)
	n.down(func(c *simConn) { c.shut(nil) })
	if err := n.store.Close(); err != nil && !n.full {
		n.sim.fail("%s: close: %v", n.name, err)
	}
	if open := n.fs.OpenRegions(); open != 0 {
		n.sim.fail("%s: %d regions are still lent after a stop", n.name, open)
	}
	n.store = nil
}

// down ends connections and services.
func (n *simNode) down(end func(c *simConn)) {
	for _, c := range n.sim.net.conns {
		if c.owner == n {
			end(c)
		}
	}
	n.sim.net.settle()
	n.readable.Store(nil)
	if n.service != nil {
		n.service.helper.stop()
		n.service.transfer.stop()
	}
	if n.client != nil {
		n.noteCuts()
	}
	if n.service != nil && n.service.tail.taken > 0 {
		n.sim.counts.tails++
	}
	n.sim.net.settle()
	n.up, n.service, n.client, n.link, n.linkConn, n.refused = false, nil, nil, nil, nil, false
}

func (n *simNode) noteCuts() {
	n.sim.counts.cuts += int(n.client.cuts.Load())
}

// empty is what an operator does to a node that is to be copied anew.
func (n *simNode) empty() {
	if n.up {
		n.stop()
	}
	n.fs, n.powerCut = faultfs.New(), false
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	for _, m := range n.sim.messages {
		delete(m.holders, n)
	}
}

func (n *simNode) tick() {
	if !n.up || n.hasCrashed() {
		return
	}
	n.service.onTick()
	if n.client != nil && n.linkConn != nil {
		n.client.onTick()
	}
}

// connect is one round of HAClient#run.
func (n *simNode) connect() {
	s := n.sim
	if n.hasCrashed() {
		return
	}
	var server *simNode
	var handler reactor.Handler
	switch {
	case s.javaMaster != nil:
		handler = s.javaMaster
	case n.master != nil && n.master.up && n.master.role != storage.Slave && !n.master.hasCrashed():
		server = n.master
		handler = &masterHandler{server.service}
	default:
		return
	}
	l := n.client.newLink("10.0.0.1:10912")
	if err := l.prepare(context.Background()); err != nil {
		if !n.hasCrashed() && !n.full {
			s.fail("%s cannot prepare a link: %v", n.name, err)
		}
		return
	}
	s.plant.onLink(n, l)
	n.link, n.refused = l, false
	n.reports = &reportTap{node: n, last: -1}
	s.step("%s connects", n.name)
	n.linkConn, _ = s.net.dial(&linkWatch{slaveHandler{n.client}, n}, handler, n, server, l)
	n.linkConn.written = n.reports.see
	if n.linkConn.closed.Load() {
		n.linkConn = nil
	}
}

// linkWatch tells the node when its link ends.
type linkWatch struct {
	slaveHandler
	node *simNode
}

func (w *linkWatch) OnOpen(c reactor.Conn) {
	c.(*simConn).written = w.node.reports.see
	w.slaveHandler.OnOpen(c)
}

func (w *linkWatch) OnClose(c reactor.Conn, err error) {
	w.slaveHandler.OnClose(c, err)
	w.node.client.link.Store(nil)
	w.node.linkConn = nil
	if l := w.node.link; l != nil && (l.state == linkRefused || l.refused != "") {
		w.node.refused = true
		w.node.sim.counts.refusals++
	}
}

// send puts one message, as a broker does, and notes what becomes of it.
func (n *simNode) send() {
	s := n.sim
	s.mu.Lock()
	m := &simMessage{number: len(s.messages), writer: n, sync: n.role == storage.SyncMaster, holders: map[*simNode]bool{}, offset: -1}
	s.messages = append(s.messages, m)
	s.counts.sends++
	s.mu.Unlock()
	record, topic, queue := s.record(m.number, n.index)
	put := &storage.PutMessage{Record: record, MsgNum: 1, Topic: topic, QueueID: queue}
	service, store := n.service, n.store
	put.Appended = func(put *storage.PutMessage, status storage.PutMessageStatus) {
		if status != storage.PutOK || !n.appended(m, put) {
			return
		}
		end, now := put.End(), time.Now()
		store.SubmitFlushRequest(end, now.Add(5*time.Second), func(status storage.PutMessageStatus) {
			if status == storage.PutOK && store.Config().FlushDiskType == storage.SyncFlush {
				n.flushedMessage(m)
			}
		})
		if m.sync {
			service.SubmitReplicaRequest(end, now.Add(3*time.Second), func(status storage.PutMessageStatus) { n.answered(m, status) })
		}
	}
	store.AsyncPutMessage(put)
}

// record makes up a message; no two have equal bodies.
func (s *simulation) record(number, host int) (record []byte, topic string, queue int32) {
	topic = []string{"orders", "events"}[s.rng.IntN(2)]
	queue = s.rng.Int32N(2)
	body := make([]byte, s.rng.IntN(s.bodyMax))
	for i := range body {
		body[i] = byte(s.rng.Uint32())
	}
	r := message.Record{
		QueueID: queue, Body: body, Topic: []byte(topic), BornTimestamp: time.Now().UnixMilli(),
		BornHost:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 7}), 1234),
		StoreHost: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(host)}), 10911),
	}
	r.Properties = message.AppendProperty(nil, message.PropertyUniqKey, fmt.Sprintf("K%d", number))
	return message.AppendRecord(nil, &r), topic, queue
}

// appended notes where a message went; false when the node has crashed, so that nobody hears of it.
func (n *simNode) appended(m *simMessage, put *storage.PutMessage) bool {
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	if n.crashed {
		return false
	}
	m.record = append([]byte(nil), put.Record...)
	m.offset = put.WroteOffset
	m.holders[n] = false
	return true
}

func (n *simNode) flushedMessage(m *simMessage) {
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	if _, held := m.holders[n]; held && !n.crashed {
		m.holders[n] = true
	}
}

// answered checks an answer of a SYNC_MASTER when it is given: as many slaves as it takes are connected and have it.
func (n *simNode) answered(m *simMessage, status storage.PutMessageStatus) {
	s := n.sim
	if n.hasCrashed() {
		return // nobody hears it
	}
	var images []*logImage // closed after the lock is given back
	for _, other := range s.nodes {
		if other != n && other.countsFor(n, m) {
			img := other.image()
			defer img.close()
			images = append(images, img)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status {
	case storage.PutOK:
		holders := 0
		for _, img := range images {
			if img.holds(m) {
				holders++
				if _, known := m.holders[img.node]; !known {
					m.holders[img.node] = false
				}
			}
		}
		if s.javaSlave != nil && s.javaSlave.holds(m) {
			holders++
			m.onRocketmq = true
		}
		if holders < n.need {
			s.failLocked("message %d at %d of %s is answered as replicated and on %d connected slaves, not %d", m.number, m.offset, n.name, holders, n.need)
		}
		m.replicated = true
		s.counts.replicated++
	case storage.FlushSlaveTimeout:
		s.counts.timeouts++
	case storage.SlaveNotAvailable:
		s.counts.unavailable++
	}
}

// countsFor says whether the master has an open connection from this node, on which it has said that it has the message,
// at the end of a copy or behind it: an unfinished copy may be given up.
func (n *simNode) countsFor(master *simNode, m *simMessage) bool {
	// By the master's own list: those of the network belong to the simulation's goroutine, and this one may be another.
	for _, c := range *master.service.connections.Load() {
		if sim := c.conn.(*simConn); sim.peer.owner == n && !sim.closed.Load() && c.heldOffset() >= m.end() {
			return true
		}
	}
	return false
}
