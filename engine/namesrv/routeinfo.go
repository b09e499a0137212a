// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
)

const (
	// brokerLiveTimeout is how long a silent broker stays registered unless its registration names a time.
	brokerLiveTimeout = 120 * time.Second
	// brokersMax bounds the addresses registered at one time.
	brokersMax = 10_000
	// nameMax bounds broker, cluster and zone names and addresses.
	nameMax = 255
	// topicNameMax bounds topic names: 127 for users, more for retry topics of 5.x.
	topicNameMax = 255
	// topicsMax bounds topics, topicQueuesMax what brokers offer of them: an entry for each broker of a topic. Beyond them a
	// registration is taken without the topics that are new, which get in when there is room again.
	topicsMax      = 500_000
	topicQueuesMax = 4_000_000
	// fullLogInterval is how often it is said that there is no room: brokers register every 30 s.
	fullLogInterval = time.Minute
)

var (
	errRegisterRefused = errors.New("register broker failed")
	bodySeed           = maphash.MakeSeed()
)

// connection is what the manager needs of the session a broker registered on.
type connection interface {
	Closed() bool
	Close(reason string)
}

// brokerID names one address of a broker group.
type brokerID struct {
	cluster, brokerName, addr string
	id                        int64
}

// registration is one REGISTER_BROKER.
type registration struct {
	brokerID
	haServerAddr       string
	zoneName           string
	timeout            time.Duration // 0: brokerLiveTimeout
	enableActingMaster bool
	actingMasterKnown  bool // the sender is a 5.x broker and said so
	version            int32
	compressed         bool
	body               []byte
	conn               connection
}

// registered is what the answer tells a slave.
type registered struct {
	masterAddr, haServerAddr string
}

// liveKey identifies a live broker. Source: BrokerAddrInfo of 5.x.
type liveKey struct{ cluster, addr string }

// liveBroker is what is known of a broker address. Source: BrokerLiveInfo.
type liveBroker struct {
	brokerID
	lastUpdate   time.Time
	timeout      time.Duration
	version      dataVersion
	haServerAddr string
	conn         connection
	bodyHash     uint64 // of the body taken last: a registration with the same bytes changes nothing
	bodyLen      int    // -1 when not all of its topics were taken
}

// RouteInfoManager is the table of brokers and topics. Its methods may be called by any goroutine; changes are made
// one at a time and published at once as a new routeTable. Source: RouteInfoManager.
type RouteInfoManager struct {
	logger *slog.Logger
	config func() *Config
	table  atomic.Pointer[routeTable]
	// liveConns counts, for event loops, the live entries of a connection: a close that registered nothing is no event.
	liveConns sync.Map // connection → struct{}

	topicsLimit, queuesLimit int
	full                     reactor.Sometimes // log lines

	changes sync.Mutex // guards live, and publishing
	live    map[liveKey]*liveBroker
}

func newRouteInfoManager(logger *slog.Logger, config func() *Config) *RouteInfoManager {
	m := &RouteInfoManager{
		logger: logger, config: config, live: make(map[liveKey]*liveBroker),
		topicsLimit: topicsMax, queuesLimit: topicQueuesMax, full: reactor.Sometimes{Interval: fullLogInterval},
	}
	m.table.Store(&routeTable{topics: map[string]*topicRoute{}, brokers: &brokerTable{byName: map[string]*brokerData{}}})
	return m
}

// edit is a routeTable in the making: maps are copied when first written.
type edit struct {
	topics     map[string]*topicRoute
	brokers    map[string]*brokerData
	queues     int // entries of all topics
	ownTopics  bool
	ownBrokers bool
}

func (m *RouteInfoManager) begin() *edit {
	t := m.table.Load()
	return &edit{topics: t.topics, brokers: t.brokers.byName, queues: t.queues}
}

func (m *RouteInfoManager) publish(e *edit) {
	if !e.ownTopics && !e.ownBrokers {
		return
	}
	brokers := m.table.Load().brokers
	if e.ownBrokers {
		brokers = &brokerTable{byName: e.brokers}
	}
	m.table.Store(&routeTable{topics: e.topics, brokers: brokers, queues: e.queues})
}

func (e *edit) setBroker(b *brokerData) {
	if !e.ownBrokers {
		e.brokers, e.ownBrokers = maps.Clone(e.brokers), true
	}
	if len(b.addrs) == 0 {
		delete(e.brokers, b.brokerName)
		return
	}
	e.brokers[b.brokerName] = b
}

// setQueues replaces the queue entries of a topic; none removes the topic.
func (e *edit) setQueues(topic string, queues []queueData) {
	if !e.ownTopics {
		e.topics, e.ownTopics = maps.Clone(e.topics), true
	}
	if route := e.topics[topic]; route != nil {
		e.queues -= len(route.queues)
	}
	e.queues += len(queues)
	if len(queues) == 0 {
		delete(e.topics, topic)
		return
	}
	e.topics[topic] = &topicRoute{queues: queues}
}

func (e *edit) queueOf(topic, brokerName string) *queueData {
	route := e.topics[topic]
	if route == nil {
		return nil
	}
	for i := range route.queues {
		if route.queues[i].brokerName == brokerName {
			return &route.queues[i]
		}
	}
	return nil
}

// putQueue sets one broker's entry of a topic.
func (e *edit) putQueue(topic string, q queueData) {
	old := e.queueOf(topic, q.brokerName)
	if old != nil && *old == q {
		return
	}
	var queues []queueData
	if route := e.topics[topic]; route != nil {
		queues = slices.DeleteFunc(slices.Clone(route.queues), func(o queueData) bool { return o.brokerName == q.brokerName })
	}
	at, _ := slices.BinarySearchFunc(queues, q.brokerName, func(o queueData, name string) int {
		if o.brokerName < name {
			return -1
		}
		return 1
	})
	e.setQueues(topic, slices.Insert(queues, at, q))
}

// dropQueue removes one broker's entry of a topic.
func (e *edit) dropQueue(topic, brokerName string) {
	if e.queueOf(topic, brokerName) == nil {
		return
	}
	e.setQueues(topic, slices.DeleteFunc(slices.Clone(e.topics[topic].queues), func(o queueData) bool { return o.brokerName == brokerName }))
}

// setPerm gives all queues of a broker the permission that change returns, and counts them.
func (e *edit) setPerm(brokerName string, change func(perm int32) int32) (n int) {
	for topic := range e.topics {
		if q := e.queueOf(topic, brokerName); q != nil {
			changed := *q
			changed.perm = change(q.perm)
			e.putQueue(topic, changed)
			n++
		}
	}
	return n
}

func checkNames(id brokerID) error {
	for _, f := range []struct{ what, value string }{
		{"brokerName", id.brokerName}, {"brokerAddr", id.addr}, {"clusterName", id.cluster},
	} {
		if f.value == "" {
			return fmt.Errorf("%s is missing", f.what)
		}
		if len(f.value) > nameMax {
			return fmt.Errorf("%s has %d bytes, the limit is %d", f.what, len(f.value), nameMax)
		}
	}
	if id.id < 0 {
		return fmt.Errorf("brokerId %d is negative", id.id)
	}
	return nil
}

// Register takes a registration in. An error is for the sender. Source: RouteInfoManager#registerBroker.
func (m *RouteInfoManager) Register(r *registration, now time.Time) (registered, error) {
	if err := checkNames(r.brokerID); err != nil {
		return registered{}, err
	}
	if n := max(len(r.haServerAddr), len(r.zoneName)); n > nameMax {
		return registered{}, fmt.Errorf("an HA address or zone of %d bytes, the limit is %d", n, nameMax)
	}
	m.changes.Lock()
	defer m.changes.Unlock()

	timeout := r.timeout
	if timeout <= 0 {
		timeout = brokerLiveTimeout
	}
	key := liveKey{r.cluster, r.addr}
	was := m.live[key]
	if was == nil && len(m.live) >= brokersMax {
		return registered{}, fmt.Errorf("%w: %d brokers are registered, the limit", errRegisterRefused, brokersMax)
	}
	e := m.begin()
	renamed := was != nil && was.brokerName != r.brokerName
	if renamed {
		e.withdraw([]*liveBroker{was}) // nothing else would end what it was registered as
	}
	group := e.brokers[r.brokerName]
	// Nobody holds the id, which is so too when another address took this one's place and left, with the topics.
	first := group == nil || group.addrOf(r.id) == ""
	known := was != nil && was.brokerID == r.brokerID && !first
	hash := maphash.Bytes(bodySeed, r.body)
	repeated := known && was.bodyHash == hash && was.bodyLen == len(r.body)
	var topics topicTable
	if repeated {
		topics.DataVersion = was.version
	} else {
		var err error
		if topics, err = decodeRegisterBody(r.body, r.compressed, r.version); err != nil {
			return registered{}, fmt.Errorf("%w: body: %w", errRegisterRefused, err)
		}
	}

	if m.newcomerIsOlder(group, r, topics.DataVersion) {
		return registered{}, nil
	}
	next := m.groupWith(group, r)
	if group == nil || !sameGroup(group, next) {
		e.setBroker(next)
	}
	live := &liveBroker{
		brokerID: r.brokerID, lastUpdate: now, timeout: timeout, version: topics.DataVersion,
		haServerAddr: r.haServerAddr, conn: r.conn, bodyHash: hash, bodyLen: len(r.body),
	}
	if !repeated {
		changed := !known || was.version != topics.DataVersion
		if refused := topics.overLimit + m.putTopics(e, next, r, topics.TopicConfigTable, changed); refused > 0 {
			live.bodyLen = -1
			m.logFull(r, refused, now)
		}
	}
	m.live[key] = live
	if renamed {
		m.logger.Info("broker removed", "broker", was.brokerName, "id", was.id, "addr", was.addr, "because", "it registers under another name")
	}
	if was == nil || renamed {
		m.logger.Info("broker registered", "broker", r.brokerName, "id", r.id, "addr", r.addr, "cluster", r.cluster, "ha", r.haServerAddr)
	}
	m.publish(e)
	m.watch(was, r.conn)
	return m.masterFor(next, r), nil
}

// watch remembers that the connection has a live entry. Whoever registers looks at the connection once more afterwards:
// its close may have been seen before it was watched.
func (m *RouteInfoManager) watch(was *liveBroker, conn connection) {
	if conn != nil {
		m.liveConns.Store(conn, struct{}{})
	}
	if was != nil && was.conn != nil && was.conn != conn {
		m.forgetConn(was.conn)
	}
}

func (m *RouteInfoManager) forgetConn(conn connection) {
	for _, l := range m.live {
		if l.conn == conn {
			return
		}
	}
	m.liveConns.Delete(conn)
}

// newcomerIsOlder says whether another address already holds this id with a newer state: the registration is then taken
// as seen and changes nothing. 4.x brokers all have state 0, so there the newcomer wins; either way the operator is told.
func (m *RouteInfoManager) newcomerIsOlder(group *brokerData, r *registration, version dataVersion) bool {
	if group == nil {
		return false
	}
	holder := group.addrOf(r.id)
	if holder == "" || holder == r.addr {
		return false
	}
	live := m.live[liveKey{r.cluster, holder}]
	if live == nil {
		return false
	}
	m.logger.Warn("two addresses register as the same broker: give one another brokerName or brokerId",
		"broker", r.brokerName, "id", r.id, "registered", holder, "newcomer", r.addr)
	return live.version.StateVersion > version.StateVersion
}

func (m *RouteInfoManager) groupWith(group *brokerData, r *registration) *brokerData {
	if group == nil {
		group = &brokerData{brokerName: r.brokerName}
	}
	next := group.withAddr(r.id, r.addr)
	next.cluster = r.cluster
	next.zoneName = r.zoneName
	next.enableActingMaster = r.enableActingMaster
	return next
}

func sameGroup(a, b *brokerData) bool {
	return a.cluster == b.cluster && a.zoneName == b.zoneName && a.enableActingMaster == b.enableActingMaster && slices.Equal(a.addrs, b.addrs)
}

// putTopics merges the topics of a master, or of the lowest slave of a 5.x group that has none. A table that carries the
// version already known only adds what is missing: a wiped permission stays wiped. It counts the topics for which there was
// no room.
func (m *RouteInfoManager) putTopics(e *edit, group *brokerData, r *registration, topics map[string]topicConfig, changed bool) (refused int) {
	primeSlave := r.id != masterID && r.actingMasterKnown && group.addrs[0].id == r.id
	if r.id != masterID && !primeSlave {
		return 0
	}
	if m.config().DeleteTopicWithBrokerRegistration && len(topics) > 1 && changed {
		for topic := range e.topics {
			if _, ok := topics[topic]; !ok {
				e.dropQueue(topic, r.brokerName)
			}
		}
	}
	for topic, t := range topics {
		there := e.queueOf(topic, r.brokerName) != nil
		if topic == "" || len(topic) > topicNameMax || !changed && there {
			continue
		}
		if !there && !m.roomFor(e, topic) {
			refused++
			continue
		}
		perm := t.Perm
		if primeSlave && group.enableActingMaster {
			perm &^= permWrite
		}
		e.putQueue(topic, queueData{
			brokerName: r.brokerName, readQueueNums: t.ReadQueueNums, writeQueueNums: t.WriteQueueNums,
			perm: perm, topicSysFlag: t.TopicSysFlag,
		})
	}
	return refused
}

func (m *RouteInfoManager) roomFor(e *edit, topic string) bool {
	return e.queues < m.queuesLimit && (e.topics[topic] != nil || len(e.topics) < m.topicsLimit)
}

func (m *RouteInfoManager) logFull(r *registration, refused int, now time.Time) {
	if suppressed, ok := m.full.Allow(now); ok {
		m.logger.Error("topics of a registration are not taken: there is no room for more", "broker", r.brokerName, "addr", r.addr,
			"refused", refused, "topicsLimit", m.topicsLimit, "queuesLimit", m.queuesLimit, "suppressed", suppressed)
	}
}

// masterFor is what a slave is told: its live master and where that replicates from.
func (m *RouteInfoManager) masterFor(group *brokerData, r *registration) (a registered) {
	if r.id == masterID {
		return a
	}
	master := group.addrOf(masterID)
	if live := m.live[liveKey{r.cluster, master}]; live != nil {
		return registered{masterAddr: master, haServerAddr: live.haServerAddr}
	}
	return a
}

// Unregister removes one address of a broker, if it is registered as that broker.
func (m *RouteInfoManager) Unregister(id brokerID) error {
	if err := checkNames(id); err != nil {
		return err
	}
	m.changes.Lock()
	defer m.changes.Unlock()
	live := m.live[liveKey{id.cluster, id.addr}]
	if live == nil || live.brokerName != id.brokerName {
		return nil
	}
	m.remove([]*liveBroker{live}, "it unregistered")
	return nil
}

// remove forgets brokers, under changes.
func (m *RouteInfoManager) remove(gone []*liveBroker, why string) {
	for _, l := range gone {
		delete(m.live, liveKey{l.cluster, l.addr})
		if l.conn != nil {
			m.forgetConn(l.conn)
		}
		m.logger.Info("broker removed", "broker", l.brokerName, "id", l.id, "addr", l.addr, "because", why)
	}
	e := m.begin()
	e.withdraw(gone)
	m.publish(e)
}

// withdraw takes addresses out of their groups; a group without any leaves the cluster and all routes.
func (e *edit) withdraw(gone []*liveBroker) {
	emptied := make(map[string]bool)
	for _, l := range gone {
		group := e.brokers[l.brokerName]
		if group == nil || group.addrOf(l.id) != l.addr {
			continue // another address took its place
		}
		left := group.without(l.addr)
		e.setBroker(left)
		switch {
		case len(left.addrs) == 0:
			emptied[l.brokerName] = true
		case left.enableActingMaster && !left.hasMaster():
			e.setPerm(l.brokerName, func(perm int32) int32 { return perm &^ permWrite })
		}
	}
	if len(emptied) > 0 {
		for topic, route := range e.topics {
			left := slices.DeleteFunc(slices.Clone(route.queues), func(q queueData) bool { return emptied[q.brokerName] })
			if len(left) != len(route.queues) {
				e.setQueues(topic, left)
			}
		}
	}
}

// watches says whether a broker is registered on the connection; for event loops.
func (m *RouteInfoManager) watches(conn connection) bool {
	_, ok := m.liveConns.Load(conn)
	return ok
}

// ConnectionClosed removes what was registered on the connection.
func (m *RouteInfoManager) ConnectionClosed(conn connection) {
	m.removeWhere("its connection closed", func(l *liveBroker) bool { return l.conn == conn })
}

// Scan removes brokers not heard of in their time, and those whose connection closed unnoticed.
// Source: RouteInfoManager#scanNotActiveBroker.
func (m *RouteInfoManager) Scan(now time.Time) {
	m.removeWhere("its connection closed", func(l *liveBroker) bool { return l.conn != nil && l.conn.Closed() })
	expired := m.removeWhere("nothing was heard of it in its time limit", func(l *liveBroker) bool { return now.Sub(l.lastUpdate) > l.timeout })
	for _, l := range expired {
		if l.conn != nil {
			l.conn.Close("broker expired")
		}
	}
}

func (m *RouteInfoManager) removeWhere(why string, match func(*liveBroker) bool) []*liveBroker {
	m.changes.Lock()
	defer m.changes.Unlock()
	var gone []*liveBroker
	for _, l := range m.live {
		if match(l) {
			gone = append(gone, l)
		}
	}
	if len(gone) > 0 {
		m.remove(gone, why)
	}
	return gone
}

// Heartbeat refreshes a broker (code 904); an unknown one is ignored.
func (m *RouteInfoManager) Heartbeat(cluster, addr string, now time.Time) {
	m.changes.Lock()
	defer m.changes.Unlock()
	if live := m.live[liveKey{cluster, addr}]; live != nil {
		live.lastUpdate = now
	}
}

// QueryDataVersion compares a broker's version with the stored one and refreshes the broker. known is false for a
// broker that is not registered: it has to register.
func (m *RouteInfoManager) QueryDataVersion(cluster, addr string, asked dataVersion, now time.Time) (stored dataVersion, known bool) {
	m.changes.Lock()
	defer m.changes.Unlock()
	live := m.live[liveKey{cluster, addr}]
	if live == nil {
		return stored, false
	}
	live.lastUpdate = now
	return live.version, true
}

// WipeWritePerm takes WRITE from all queues of a broker and counts them.
func (m *RouteInfoManager) WipeWritePerm(brokerName string) int {
	return m.changePerm(brokerName, func(perm int32) int32 { return perm &^ permWrite })
}

// AddWritePerm gives all queues of a broker READ and WRITE, and counts them.
func (m *RouteInfoManager) AddWritePerm(brokerName string) int {
	return m.changePerm(brokerName, func(int32) int32 { return permRead | permWrite })
}

func (m *RouteInfoManager) changePerm(brokerName string, change func(int32) int32) int {
	m.changes.Lock()
	defer m.changes.Unlock()
	e := m.begin()
	n := e.setPerm(brokerName, change)
	m.publish(e)
	return n
}

// DeleteTopic removes a topic, or, with a cluster, its queues there. A broker that still has the topic brings it back.
func (m *RouteInfoManager) DeleteTopic(topic, cluster string) {
	m.changes.Lock()
	defer m.changes.Unlock()
	e := m.begin()
	route := e.topics[topic]
	if route == nil {
		return
	}
	left := slices.DeleteFunc(slices.Clone(route.queues), func(q queueData) bool {
		b := e.brokers[q.brokerName]
		return cluster == "" || b != nil && b.cluster == cluster
	})
	e.setQueues(topic, left)
	m.publish(e)
}
