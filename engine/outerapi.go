// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

const (
	// registerGapMin is the least time between two registrations at one name server, and so how long a changed topic
	// waits behind one just made; each 1,000 topics of the table add as much.
	registerGapMin = 10 * time.Millisecond
	// registeredWait bounds how long an answer waits until the name servers have the topics that were made for it.
	registeredWait = time.Second
	registeredPoll = 2 * time.Millisecond
	// registerRetryMin and registerRetryMax bound the back-off while a name server is away.
	registerRetryMin = time.Second
	registerRetryMax = 10 * time.Second
	// registerFirstPeriod is when the first periodic registration follows the one at start.
	registerFirstPeriod = 10 * time.Second
	// masterlessPeriod is how often a slave registers that no name server has told a master: that is how it asks.
	masterlessPeriod  = 2 * time.Second
	registerPeriodMin = 10 * time.Second
	registerPeriodMax = 60 * time.Second
	// startRegisterWait bounds how long Start waits for the name servers' first answers.
	startRegisterWait = time.Second
	// unregisterTimeout bounds the goodbye to each name server.
	unregisterTimeout = 2 * time.Second
	// failureLogInterval is how often a lasting failure is repeated in the log.
	failureLogInterval = 5 * time.Minute
)

// outerIdentity is who registers: known once the client port is bound.
type outerIdentity struct {
	addr         string // brokerIP1:listenPort
	haServerAddr string // brokerIP2:haListenPort
}

// masterInfo is what a name server told a slave of its master.
type masterInfo struct{ addr, haServerAddr string }

// BrokerOuterAPI talks to name servers: register, unregister, at once on topic change, and keeps working while they are
// away. Each name server has a goroutine and a connection of its own, so one that does not answer delays nobody.
// Source: BrokerOuterAPI, BrokerController#registerBrokerAll.
type BrokerOuterAPI struct {
	logger *slog.Logger
	config func() *Config
	topics func() (map[string]*TopicConfig, DataVersion)
	// orderTopics, if set, is given the topics that any name server holds for order topics. It is called under mu.
	orderTopics func(topics []string)
	// masterChanged, if set, is told when Master has another answer.
	masterChanged func()
	client        *reactor.RemotingClient
	master        atomic.Pointer[masterInfo]
	changes       atomic.Int64 // of the topic table

	mu       sync.Mutex // guards the fields below
	identity outerIdentity
	links    map[string]*nameServerLink // by address; nil before Start and after Shutdown
	running  sync.WaitGroup             // their goroutines

	bodyMu sync.Mutex // guards body and permissionChanges
	body   registerBody
	// permissionChanges goes into the version: name servers look at topics, and so at brokerPermission, only when it is new.
	permissionChanges int64
}

// registerBody is an encoded registration, shared by all name servers until the table changes.
type registerBody struct {
	version    DataVersion
	permission int32
	topics     int
	bytes      []byte
}

func newBrokerOuterAPI(logger *slog.Logger, config func() *Config, topics func() (map[string]*TopicConfig, DataVersion), orderTopics func([]string)) (*BrokerOuterAPI, error) {
	o := &BrokerOuterAPI{logger: logger, config: config, topics: topics, orderTopics: orderTopics}
	client, err := reactor.NewRemotingClient(reactor.RemotingClientConfig{Logger: logger, OnClose: o.connectionLost})
	if err != nil {
		return nil, fmt.Errorf("client of name servers: %w", err)
	}
	o.client = client
	return o, nil
}

// Start registers with all name servers and waits, but not long, for their first answers.
func (o *BrokerOuterAPI) Start(identity outerIdentity) {
	o.mu.Lock()
	o.identity = identity
	o.links = make(map[string]*nameServerLink)
	o.mu.Unlock()
	o.ConfigChanged()

	timeout := time.NewTimer(startRegisterWait)
	defer timeout.Stop()
	for _, l := range o.snapshot() {
		select {
		case <-l.tried:
		case <-timeout.C:
			return
		}
	}
}

// ConfigChanged brings the links in line with namesrvAddr; it does not wait for any name server.
func (o *BrokerOuterAPI) ConfigChanged() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.links == nil {
		return
	}
	wanted := splitNamesrvAddr(o.config().NamesrvAddr)
	for addr, l := range o.links {
		if !slices.Contains(wanted, addr) {
			l.cancel()
			delete(o.links, addr)
		}
	}
	for _, addr := range wanted {
		if o.links[addr] == nil {
			o.links[addr] = o.startLinkLocked(addr)
		}
	}
}

func splitNamesrvAddr(text string) (addrs []string) {
	for addr := range strings.SplitSeq(text, ";") {
		if addr = strings.TrimSpace(addr); addr != "" && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// TopicsChanged asks for a registration soon; it never blocks, and may be called by event loops.
func (o *BrokerOuterAPI) TopicsChanged() {
	o.changes.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.links {
		l.signal(l.changed)
	}
}

// Registration returns a wait until every name server that answers at all has what was changed before the call, or until
// registeredWait is over since then, so that waits that follow each other take no longer than one.
func (o *BrokerOuterAPI) Registration() (await func()) {
	change, deadline := o.changes.Load(), time.Now().Add(registeredWait)
	return func() {
		for ; time.Now().Before(deadline); time.Sleep(registeredPoll) {
			if !slices.ContainsFunc(o.snapshot(), func(l *nameServerLink) bool { return l.lacks(change) }) {
				return
			}
		}
	}
}

// lacks says that the name server answers, and has not been told of a change.
func (l *nameServerLink) lacks(change int64) bool {
	if err := l.lastErr.Load(); err == nil || *err != nil {
		return false
	}
	return l.registeredChange.Load() < change
}

// Master is the master's address and HA address as a name server last told them to this slave; empty if none did.
func (o *BrokerOuterAPI) Master() (addr, haServerAddr string) {
	if m := o.master.Load(); m != nil {
		return m.addr, m.haServerAddr
	}
	return "", ""
}

// NameServerState is how things stand with one name server.
type NameServerState struct {
	Addr       string
	Registered bool
	Err        error // of the last try
}

// NameServers are the configured name servers.
func (o *BrokerOuterAPI) NameServers() []NameServerState {
	links := o.snapshot()
	states := make([]NameServerState, len(links))
	for i, l := range links {
		states[i] = NameServerState{Addr: l.addr, Registered: l.registered.Load()}
		if err := l.lastErr.Load(); err != nil {
			states[i].Err = *err
		}
	}
	return states
}

// Shutdown unregisters everywhere, at the same time and within unregisterTimeout, and ends the connections. It may be
// called without Start, and again.
func (o *BrokerOuterAPI) Shutdown() {
	o.mu.Lock()
	links := o.links
	o.links = nil
	o.mu.Unlock()
	for _, l := range links {
		l.cancel()
	}
	o.running.Wait()
	o.client.Stop()
}

func (o *BrokerOuterAPI) snapshot() []*nameServerLink {
	o.mu.Lock()
	defer o.mu.Unlock()
	links := make([]*nameServerLink, 0, len(o.links))
	for _, l := range o.links {
		links = append(links, l)
	}
	slices.SortFunc(links, func(a, b *nameServerLink) int { return strings.Compare(a.addr, b.addr) })
	return links
}

// connectionLost runs on the client's loop: the name server has forgotten us with the connection.
func (o *BrokerOuterAPI) connectionLost(addr string) {
	o.mu.Lock()
	l := o.links[addr]
	o.mu.Unlock()
	if l != nil {
		l.registered.Store(false)
		l.signal(l.lost)
	}
}

// registration returns the body for all name servers. Source: RegisterBrokerBody#encode, BrokerController#registerBrokerAll.
func (o *BrokerOuterAPI) registration() registerBody {
	permission := o.config().BrokerPermission
	topics, version := o.topics()
	o.bodyMu.Lock()
	defer o.bodyMu.Unlock()
	if o.body.bytes != nil && o.body.permission != permission {
		o.permissionChanges++
	}
	version.Counter += o.permissionChanges
	if o.body.bytes == nil || o.body.version != version {
		o.body = registerBody{version: version, permission: permission, topics: len(topics), bytes: encodeRegisterBody(topics, version, permission)}
	}
	return o.body
}

// encodeRegisterBody writes the uncompressed form. A broker that is not both readable and writable shows its own
// permission in place of every topic's, as in 4.9.
func encodeRegisterBody(topics map[string]*TopicConfig, version DataVersion, permission int32) []byte {
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	w := jsonWriter{b: make([]byte, 0, 192+160*len(names))}
	w.beginObject()
	w.key("filterServerList")
	w.beginArray()
	w.endArray()
	w.key("topicConfigSerializeWrapper")
	w.beginObject()
	w.key("dataVersion")
	version.writeTo(&w)
	w.key("topicConfigTable")
	w.beginObject()
	for _, name := range names {
		t := *topics[name]
		if permission&(PermRead|PermWrite) != PermRead|PermWrite {
			t.Perm = permission
		}
		w.key(name)
		w.beginObject()
		t.writeMembers(&w)
		w.endObject()
	}
	w.endObject()
	w.endObject()
	w.endObject()
	return w.b
}

// nameServerLink keeps this broker registered at one name server. Its goroutine owns the unmarked fields.
type nameServerLink struct {
	o      *BrokerOuterAPI
	addr   string
	self   outerIdentity
	cancel context.CancelFunc

	changed chan struct{} // capacity 1: topics changed
	lost    chan struct{} // capacity 1: the connection closed
	tried   chan struct{} // closed after the first try

	orderTopics []string // that this name server holds; guarded by BrokerOuterAPI.mu

	registered       atomic.Bool
	registeredChange atomic.Int64 // as of BrokerOuterAPI.changes
	lastErr          atomic.Pointer[error]

	failures     int
	failureShown time.Time
	checked      bool // clashes were looked for
	periods      int
	topics       int // of the last table
}

func (o *BrokerOuterAPI) startLinkLocked(addr string) *nameServerLink {
	ctx, cancel := context.WithCancel(context.Background())
	l := &nameServerLink{
		o: o, addr: addr, self: o.identity, cancel: cancel,
		changed: make(chan struct{}, 1), lost: make(chan struct{}, 1), tried: make(chan struct{}),
	}
	o.running.Add(1)
	go l.run(ctx)
	return l
}

func (l *nameServerLink) signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *nameServerLink) run(ctx context.Context) {
	defer l.o.running.Done()
	forced := true
	for ctx.Err() == nil {
		began := time.Now()
		err := l.refresh(ctx, forced)
		if errors.Is(err, context.DeadlineExceeded) {
			l.o.client.CloseConn(l.addr) // a path that swallows packets is noticed by nobody else
		}
		l.note(err)
		if l.periods == 0 {
			close(l.tried)
		}
		forced = l.wait(ctx, began)
		l.periods++
	}
	l.leave()
}

// wait returns when the next registration is due, and whether the table has to be sent whatever the name server thinks.
func (l *nameServerLink) wait(ctx context.Context, began time.Time) (forced bool) {
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	changed := l.changed
	if l.failures > 0 {
		changed = nil // the next try sends the whole table anyway
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return l.o.config().ForceRegister || !l.registered.Load() || l.masterless()
	case <-changed:
		gap := registerGapMin * time.Duration(1+l.topics/1000)
		sleep(ctx, gap-time.Since(began))
		return true
	case <-l.lost:
		sleep(ctx, registerRetryMin)
		return true
	}
}

// pause is the time to the next registration if nothing happens.
func (l *nameServerLink) pause() time.Duration {
	if l.failures > 0 {
		return min(registerRetryMin<<min(l.failures-1, 10), registerRetryMax)
	}
	period := time.Duration(l.o.config().RegisterNameServerPeriod) * time.Millisecond
	period = min(max(period, registerPeriodMin), registerPeriodMax)
	if l.masterless() {
		return masterlessPeriod
	}
	if l.periods == 0 {
		return min(period, registerFirstPeriod)
	}
	return period
}

// masterless says that this is a slave that knows no master.
func (l *nameServerLink) masterless() bool {
	cfg := l.o.config()
	return cfg.BrokerID > 0 && cfg.HAMasterAddress == "" && l.o.master.Load() == nil
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// note logs what changed: the first failure, a lasting one now and then, the recovery.
func (l *nameServerLink) note(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	l.lastErr.Store(&err)
	if err == nil {
		if l.failures > 0 {
			l.o.logger.Info("registered with the name server again", "namesrv", l.addr, "failures", l.failures)
		}
		l.failures, l.failureShown = 0, time.Time{}
		return
	}
	l.failures++
	if now := time.Now(); now.Sub(l.failureShown) >= failureLogInterval {
		l.failureShown = now
		l.o.logger.Warn("the name server does not take the registration; trying on", "namesrv", l.addr, "failures", l.failures, "err", err)
	}
}

// refresh makes sure that the name server has this broker and its topics.
func (l *nameServerLink) refresh(ctx context.Context, forced bool) error {
	timeout := time.Duration(l.o.config().RegisterBrokerTimeoutMills) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !l.checked {
		if err := l.lookForClashes(ctx); err != nil {
			return err
		}
		l.checked = true
	}
	change := l.o.changes.Load()
	body := l.o.registration()
	l.topics = body.topics
	if !forced {
		if changed, err := l.queryChanged(ctx, body.version); err == nil && !changed {
			return nil
		}
	}
	if err := l.register(ctx, body); err != nil {
		return err
	}
	l.registeredChange.Store(change)
	return nil
}

func (l *nameServerLink) header(code int32) *remoting.Command {
	cfg := l.o.config()
	req := &remoting.Command{Code: code, Version: remoting.Version}
	req.Ext.Add("brokerAddr", l.self.addr)
	req.Ext.AddInt("brokerId", cfg.BrokerID)
	req.Ext.Add("brokerName", cfg.BrokerName)
	req.Ext.Add("clusterName", cfg.BrokerClusterName)
	return req
}

func (l *nameServerLink) register(ctx context.Context, body registerBody) error {
	const headerMax = 64 << 10
	if len(body.bytes) > remoting.FrameLengthMax-headerMax {
		return fmt.Errorf("the table of %d topics is %d bytes long, more than a frame holds", body.topics, len(body.bytes))
	}
	req := l.header(remoting.RegisterBroker)
	req.Ext.Add("haServerAddr", l.self.haServerAddr)
	req.Ext.Add("compressed", "false")
	req.Ext.AddInt("bodyCrc32", int64(crc32.ChecksumIEEE(body.bytes)&0x7fffffff))
	req.Body = body.bytes
	resp, err := l.o.client.Invoke(ctx, l.addr, req)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if resp.Code != remoting.Success {
		return fmt.Errorf("register: code %d %s", resp.Code, resp.Remark)
	}
	l.registered.Store(true)
	l.o.took(l, resp)
	return nil
}

// took uses what l's answer to a registration brings.
func (o *BrokerOuterAPI) took(l *nameServerLink, resp *remoting.Command) {
	if master := resp.Ext.String("masterAddr"); master != "" {
		told := masterInfo{addr: master, haServerAddr: resp.Ext.String("haServerAddr")}
		if before := o.master.Swap(&told); (before == nil || *before != told) && o.masterChanged != nil {
			o.masterChanged()
		}
	}
	if o.orderTopics == nil || len(resp.Body) == 0 {
		return
	}
	topics, err := decodeKVTopics(resp.Body)
	if err != nil {
		o.logger.Warn("order topics of a name server cannot be read", "err", err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l.orderTopics = topics
	if o.links[l.addr] != l {
		return // no longer one of ours
	}
	// Tools tell name servers one after the other, so they may differ. If the answer of one undid what another told, each
	// answer would change the table, and each change is registered at both. (Java listens to the first to answer.)
	var all []string
	for _, link := range o.links {
		all = append(all, link.orderTopics...)
	}
	slices.Sort(all)
	o.orderTopics(slices.Compact(all))
}

// decodeKVTopics reads the keys of a KVTable, {"table":{topic:…}}.
func decodeKVTopics(body []byte) (topics []string, err error) {
	r := newJSONReader(body)
	err = r.object(func(key []byte) error {
		if string(key) != "table" {
			return r.skip()
		}
		return r.object(func(topic []byte) error {
			topics = append(topics, string(topic))
			return r.skip()
		})
	})
	return topics, err
}

// queryChanged asks whether the name server has another version of the table.
func (l *nameServerLink) queryChanged(ctx context.Context, version DataVersion) (bool, error) {
	var w jsonWriter
	version.writeTo(&w)
	req := l.header(remoting.QueryDataVersion)
	req.Body = w.b
	resp, err := l.o.client.Invoke(ctx, l.addr, req)
	if err != nil {
		return true, err
	}
	if resp.Code != remoting.Success {
		return true, fmt.Errorf("query data version: code %d %s", resp.Code, resp.Remark)
	}
	return resp.Ext.Bool("changed"), nil
}

// lookForClashes asks, before the first registration, who is registered already. A clash is said plainly and does not
// stop the start: the other may be gone in a moment, or be this broker under its old address.
func (l *nameServerLink) lookForClashes(ctx context.Context) error {
	resp, err := l.o.client.Invoke(ctx, l.addr, &remoting.Command{Code: remoting.GetBrokerClusterInfo, Version: remoting.Version})
	if err != nil {
		return fmt.Errorf("look for clashes: %w", err)
	}
	if resp.Code != remoting.Success {
		return nil
	}
	addrs, err := decodeBrokerAddrs(resp.Body)
	if err != nil {
		l.o.logger.Warn("the cluster information of a name server cannot be read", "namesrv", l.addr, "err", err)
		return nil
	}
	cfg := l.o.config()
	for _, a := range addrs {
		switch {
		case a.name == cfg.BrokerName && a.id == cfg.BrokerID && a.addr != l.self.addr:
			l.o.logger.Error("another broker is registered under this brokerName and brokerId: clients will see one or the other",
				"brokerName", a.name, "brokerId", a.id, "its_addr", a.addr, "our_addr", l.self.addr, "namesrv", l.addr)
		case a.addr == l.self.addr && (a.name != cfg.BrokerName || a.id != cfg.BrokerID):
			l.o.logger.Error("this address is already registered by another broker: check brokerIP1 and listenPort",
				"addr", a.addr, "its_brokerName", a.name, "its_brokerId", a.id, "namesrv", l.addr)
		}
	}
	return nil
}

type registeredAddr struct {
	name string
	id   int64
	addr string
}

// decodeBrokerAddrs reads the addresses of a ClusterInfo.
func decodeBrokerAddrs(body []byte) (addrs []registeredAddr, err error) {
	r := newJSONReader(body)
	brokerAddrs := func(name string) error {
		return r.object(func(key []byte) error {
			id, err := strconv.ParseInt(string(key), 10, 64)
			if err != nil {
				return fmt.Errorf("broker id: %w", err)
			}
			addr, err := r.text()
			addrs = append(addrs, registeredAddr{name, id, addr})
			return err
		})
	}
	err = r.object(func(key []byte) error {
		if string(key) != "brokerAddrTable" {
			return r.skip()
		}
		return r.object(func(name []byte) error {
			brokerName := string(name)
			return r.object(func(key []byte) error {
				if string(key) != "brokerAddrs" {
					return r.skip()
				}
				return brokerAddrs(brokerName)
			})
		})
	})
	return addrs, err
}

// leave says goodbye to a name server that has us, and closes the connection.
func (l *nameServerLink) leave() {
	if l.registered.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
		defer cancel()
		resp, err := l.o.client.Invoke(ctx, l.addr, l.header(remoting.UnregisterBroker))
		if err == nil && resp.Code != remoting.Success {
			err = fmt.Errorf("code %d %s", resp.Code, resp.Remark)
		}
		if err != nil {
			l.o.logger.Warn("unregister", "namesrv", l.addr, "err", err)
		}
	}
	l.o.client.CloseConn(l.addr)
}
