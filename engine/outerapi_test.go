// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/engine/namesrv"
	"loopmq/reactor/remoting"
)

// outerBench is a BrokerOuterAPI over a topic table that the test sets.
type outerBench struct {
	*BrokerOuterAPI
	t      *testing.T
	config atomic.Pointer[Config]

	mu      sync.Mutex
	topics  map[string]*TopicConfig
	version DataVersion
	ordered []string
	told    [][]string // all that ordered ever was
	log     bytes.Buffer
}

func (o *outerBench) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(p)
}

func (o *outerBench) logged() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.String()
}

func (o *outerBench) put(names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		o.topics[name] = newTopicConfig(name, 4, PermRead|PermWrite)
	}
	o.version = o.version.next(time.Now())
}

func newOuterBench(t *testing.T, namesrvAddr string, change func(*Config)) *outerBench {
	t.Helper()
	o := &outerBench{t: t, topics: make(map[string]*TopicConfig)}
	cfg := nodeConfig("/store")
	cfg.NamesrvAddr = namesrvAddr
	if change != nil {
		change(&cfg)
	}
	o.config.Store(&cfg)
	o.put("TBW102", "broker-a")
	var err error
	o.BrokerOuterAPI, err = newBrokerOuterAPI(slog.New(slog.NewTextHandler(o, nil)), o.config.Load,
		func() (map[string]*TopicConfig, DataVersion) {
			o.mu.Lock()
			defer o.mu.Unlock()
			topics := make(map[string]*TopicConfig)
			for name, c := range o.topics {
				topics[name] = c
			}
			return topics, o.version
		},
		func(topics []string) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.ordered = topics
			o.told = append(o.told, topics)
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Shutdown)
	return o
}

func (o *outerBench) start(addr string) {
	o.Start(outerIdentity{addr: addr, haServerAddr: "127.0.0.1:2"})
}

// knows says whether a name server has a route for the topic.
func knows(t *testing.T, s *namesrv.Server, topic string) bool {
	t.Helper()
	c := dialRaw(t, s.Addr().String())
	defer c.close()
	return c.call(remoting.GetRouteInfoByTopic, nil, "topic", topic).Code == remoting.Success
}

func TestRegistrationFollowsTopics(t *testing.T) {
	one, two := startNamesrv(t, 0), startNamesrv(t, 0)
	o := newOuterBench(t, fmt.Sprintf(" %s ; %s;", one.Addr(), two.Addr()), nil)
	o.start("127.0.0.1:1")
	if !knows(t, one, "TBW102") || !knows(t, two, "TBW102") {
		t.Fatal("not registered when Start returned")
	}
	for i := range 100 {
		o.put(fmt.Sprintf("topic-%d", i))
		o.TopicsChanged()
	}
	eventually(t, "the last topic at both", func() bool { return knows(t, one, "topic-99") && knows(t, two, "topic-99") })
	for _, s := range o.NameServers() {
		if !s.Registered || s.Err != nil {
			t.Fatalf("%+v", s)
		}
	}
	o.Shutdown()
	if knows(t, one, "TBW102") || knows(t, two, "TBW102") {
		t.Fatal("still registered after Shutdown")
	}
}

func TestSilentNameServerDelaysNobody(t *testing.T) {
	good := startNamesrv(t, 0)
	hole := blackHole(t)
	o := newOuterBench(t, hole+";"+good.Addr().String()+";127.0.0.1:1", nil)
	began := time.Now()
	o.start("127.0.0.1:1")
	if took := time.Since(began); took > callTimeout/2 {
		t.Fatalf("start took %v", took)
	}
	eventually(t, "a registration at the good one", func() bool { return knows(t, good, "TBW102") })
	o.put("fresh")
	o.TopicsChanged()
	eventually(t, "the topic at the good one", func() bool { return knows(t, good, "fresh") })
	began = time.Now()
	o.Shutdown()
	if took := time.Since(began); took > callTimeout/2 {
		t.Fatalf("shutdown took %v", took)
	}
	if knows(t, good, "TBW102") {
		t.Fatal("not unregistered at the good one")
	}
}

// A whole broker between a silent name server and a good one: a heartbeat that makes a topic is answered at once
// (apache/rocketmq#7870).
func TestHeartbeatDoesNotWaitForNameServers(t *testing.T) {
	good := startNamesrv(t, 0)
	fs, root := nodeFS()
	cfg := nodeConfig(root)
	cfg.NamesrvAddr = blackHole(t) + ";" + good.Addr().String() + ";" + blackHole(t)
	b := startNode(t, cfg, fs)
	heartbeat := func(c *rawClient) time.Duration {
		began := time.Now()
		resp := c.call(remoting.HeartBeat, []byte(`{"clientID":"client-1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"fresh","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"orders"}],"unitMode":false}],"producerDataSet":[]}`))
		if resp.Code != remoting.Success {
			t.Fatalf("heartbeat: code %d %s", resp.Code, resp.Remark)
		}
		return time.Since(began)
	}
	clients := func(c *rawClient) string {
		resp := c.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "fresh")
		return string(resp.Body)
	}
	first := dialNode(t, b)
	t.Logf("heartbeat of a new group: %v", heartbeat(first))
	eventually(t, "the retry topic's route", func() bool { return knows(t, good, "%RETRY%fresh") })
	// The client comes back without a clean close: it is listed once.
	second := dialNode(t, b)
	heartbeat(second)
	if got := clients(second); got != `{"consumerIdList":["client-1"]}` {
		t.Fatal(got)
	}
	first.reset()
	eventually(t, "one entry after the old connection ended", func() bool { return clients(second) == `{"consumerIdList":["client-1"]}` })
}

func TestNameServerComesBack(t *testing.T) {
	s := startNamesrv(t, 0)
	port := int(s.Addr().Port())
	o := newOuterBench(t, s.Addr().String(), nil)
	o.start("127.0.0.1:1")
	s.Stop()
	eventually(t, "the loss being noticed", func() bool { return !o.NameServers()[0].Registered && o.NameServers()[0].Err != nil })
	s = startNamesrv(t, port)
	eventually(t, "the registration at the new one", func() bool { return knows(t, s, "TBW102") })
	eventually(t, "a line that says so", func() bool { return strings.Contains(o.logged(), "registered with the name server again") })
	if n := strings.Count(o.logged(), "does not take the registration"); n != 1 {
		t.Fatalf("%d lines about one outage", n)
	}
}

// silentProxy forwards to addr until it is told to swallow everything, on connections that stay open.
func silentProxy(t *testing.T, addr string) (proxyAddr string, silent *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent = new(atomic.Bool)
	var running sync.WaitGroup
	pipe := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 64<<10)
		swallows := false
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if swallows = swallows || silent.Load(); swallows {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			running.Go(func() { pipe(far, near) })
			running.Go(func() { pipe(near, far) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String(), silent
}

// A connection that swallows everything is given up, and the next one registers.
func TestSilencedConnectionIsReplaced(t *testing.T) {
	s := startNamesrv(t, 0)
	addr, silent := silentProxy(t, s.Addr().String())
	o := newOuterBench(t, addr, func(c *Config) { c.RegisterBrokerTimeoutMills = 200 })
	o.start("127.0.0.1:1")
	if !knows(t, s, "TBW102") {
		t.Fatal("not registered")
	}
	silent.Store(true)
	o.put("fresh")
	o.TopicsChanged()
	eventually(t, "the silence being noticed", func() bool { return o.NameServers()[0].Err != nil })
	silent.Store(false)
	eventually(t, "the registration on a new connection", func() bool { return knows(t, s, "fresh") })
	o.Shutdown()
}

func TestNameServersChangeAtRunTime(t *testing.T) {
	one, two := startNamesrv(t, 0), startNamesrv(t, 0)
	o := newOuterBench(t, one.Addr().String(), nil)
	o.start("127.0.0.1:1")
	cfg := *o.config.Load()
	cfg.NamesrvAddr = two.Addr().String()
	o.config.Store(&cfg)
	o.ConfigChanged()
	eventually(t, "the move", func() bool { return knows(t, two, "TBW102") && !knows(t, one, "TBW102") })
}

func TestSlaveLearnsItsMaster(t *testing.T) {
	s := startNamesrv(t, 0)
	master := newOuterBench(t, s.Addr().String(), nil)
	master.start("127.0.0.1:1")
	slave := newOuterBench(t, s.Addr().String(), func(c *Config) { c.BrokerID = 1 })
	slave.start("127.0.0.1:3")
	if addr, ha := slave.Master(); addr != "127.0.0.1:1" || ha != "127.0.0.1:2" {
		t.Fatalf("master %s, %s", addr, ha)
	}
	if addr, _ := master.Master(); addr != "" {
		t.Fatalf("a master was told %s", addr)
	}
}

// A slave that was there first does not wait for its next periodic registration.
func TestSlaveLearnsItsMasterSoon(t *testing.T) {
	s := startNamesrv(t, 0)
	slave := newOuterBench(t, s.Addr().String(), func(c *Config) {
		c.BrokerID, c.ForceRegister, c.RegisterNameServerPeriod = 1, false, 60_000
	})
	slave.start("127.0.0.1:3")
	if addr, _ := slave.Master(); addr != "" {
		t.Fatalf("told %s", addr)
	}
	newOuterBench(t, s.Addr().String(), nil).start("127.0.0.1:1")
	eventually(t, "the slave is told", func() bool {
		addr, ha := slave.Master()
		return addr == "127.0.0.1:1" && ha == "127.0.0.1:2"
	})
}

func TestOrderTopicsAreTakenOver(t *testing.T) {
	s := startNamesrv(t, 0)
	c := dialRaw(t, s.Addr().String())
	if resp := c.call(remoting.PutKVConfig, nil, "namespace", "ORDER_TOPIC_CONFIG", "key", "orders", "value", "broker-a:4"); resp.Code != remoting.Success {
		t.Fatalf("put: code %d %s", resp.Code, resp.Remark)
	}
	o := newOuterBench(t, s.Addr().String(), nil)
	o.start("127.0.0.1:1")
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ordered) != 1 || o.ordered[0] != "orders" {
		t.Fatalf("order topics %v", o.ordered)
	}
}

// Name servers that hold different order topics: the answer of one does not undo what another told. It would change the
// table with each answer, and each change is registered at both.
func TestNameServersThatDifferInOrderTopics(t *testing.T) {
	one, two := startNamesrv(t, 0), startNamesrv(t, 0)
	for topic, s := range map[string]*namesrv.Server{"orders": one, "payments": two} {
		c := dialRaw(t, s.Addr().String())
		wantCode(t, c.call(remoting.PutKVConfig, nil, "namespace", "ORDER_TOPIC_CONFIG", "key", topic, "value", "broker-a:4"), remoting.Success)
	}
	o := newOuterBench(t, one.Addr().String()+";"+two.Addr().String(), nil)
	o.start("127.0.0.1:1")
	both := []string{"orders", "payments"}
	told := func() [][]string {
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.Clone(o.told)
	}
	eventually(t, "the topics of both", func() bool {
		all := told()
		return len(all) > 0 && slices.Equal(all[len(all)-1], both)
	})
	before := len(told())
	for i := range 5 {
		fresh := fmt.Sprint("fresh-", i)
		o.put(fresh)
		o.TopicsChanged()
		eventually(t, "the topic at both", func() bool { return knows(t, one, fresh) && knows(t, two, fresh) })
	}
	eventually(t, "later answers", func() bool { return len(told()) >= before+5 })
	for _, topics := range told()[before:] {
		if !slices.Equal(topics, both) {
			t.Fatalf("told %v, then %v", both, topics)
		}
	}
}

func TestClashesAreSaid(t *testing.T) {
	s := startNamesrv(t, 0)
	first := newOuterBench(t, s.Addr().String(), nil)
	first.start("127.0.0.1:1")
	sameName := newOuterBench(t, s.Addr().String(), nil)
	sameName.start("127.0.0.1:3")
	if !strings.Contains(sameName.logged(), "another broker is registered under this brokerName and brokerId") {
		t.Fatal(sameName.logged())
	}
	sameAddr := newOuterBench(t, s.Addr().String(), func(c *Config) { c.BrokerName = "broker-b" })
	sameAddr.start("127.0.0.1:3")
	if !strings.Contains(sameAddr.logged(), "already registered by another broker") {
		t.Fatal(sameAddr.logged())
	}
	if strings.Contains(first.logged(), "registered by another") {
		t.Fatal(first.logged())
	}
}

func TestUnforcedRegistrationAsksFirst(t *testing.T) {
	s := startNamesrv(t, 0)
	o := newOuterBench(t, s.Addr().String(), func(c *Config) { c.ForceRegister = false })
	o.start("127.0.0.1:1")
	l := o.snapshot()[0]
	ask := func() bool {
		changed, err := l.queryChanged(t.Context(), o.registration().version)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if ask() {
		t.Fatal("changed right after the registration")
	}
	o.put("fresh")
	if !ask() {
		t.Fatal("unchanged with a new topic")
	}
}

func TestRegisterBody(t *testing.T) {
	topics := map[string]*TopicConfig{"b": newTopicConfig("b", 4, 6), "a": newTopicConfig("a", 1, 7)}
	got := string(encodeRegisterBody(topics, DataVersion{Timestamp: 5, Counter: 3}, PermRead|PermWrite))
	const want = `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"a":{"order":false,"perm":7,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"a","topicSysFlag":0,"writeQueueNums":1},"b":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"b","topicSysFlag":0,"writeQueueNums":4}}}}`
	if got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
	if got := string(encodeRegisterBody(topics, DataVersion{}, PermRead)); strings.Count(got, `"perm":4`) != 2 {
		t.Fatalf("a broker that is only readable: %s", got)
	}
	if !json.Valid([]byte(got)) {
		t.Fatal("no JSON")
	}
}

func TestChangedBrokerPermissionIsANewVersion(t *testing.T) {
	o := newOuterBench(t, "", nil)
	before := o.registration().version
	cfg := *o.config.Load()
	cfg.BrokerPermission = PermRead
	o.config.Store(&cfg)
	readOnly := o.registration()
	if readOnly.version == before || !strings.Contains(string(readOnly.bytes), `"perm":4`) {
		t.Fatalf("version %+v: %s", readOnly.version, readOnly.bytes)
	}
	if again := o.registration(); again.version != readOnly.version {
		t.Fatal("a version for nothing")
	}
}

func FuzzClusterInfo(f *testing.F) {
	f.Add([]byte(`{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:30911","1":"h:2"},"brokerName":"broker-a","cluster":"C"}},"clusterAddrTable":{"C":["broker-a"]}}`))
	f.Add([]byte(`{"table":{"T":"a:4"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		decodeBrokerAddrs(body)
		decodeKVTopics(body)
	})
}

func TestClusterInfoInBothForms(t *testing.T) {
	for _, body := range []string{
		`{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1",12:"h:2"},"brokerName":"b","cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["b"]}}`,
		`{"clusterAddrTable":{"C":["b"]},"brokerAddrTable":{"b":{"cluster":"C","brokerAddrs":{"0":"h:1","12":"h:2"}}}}`,
	} {
		got, err := decodeBrokerAddrs([]byte(body))
		if err != nil || len(got) != 2 || got[0] != (registeredAddr{"b", 0, "h:1"}) || got[1] != (registeredAddr{"b", 12, "h:2"}) {
			t.Fatalf("%v %v", got, err)
		}
	}
}

// Whoever makes a topic with a tool uses it next: the name server that answers has it by then, and one that does not
// answer is not waited for.
func TestToolsMakeTopicsThatNameServersKnow(t *testing.T) {
	good := startNamesrv(t, 0)
	b := startTestBroker(t, func(c *Config) { c.NamesrvAddr = blackHole(t) + ";" + good.Addr().String() })
	eventually(t, "the first registration", func() bool { return knows(t, good, "TBW102") })
	c := b.dial()
	for i := range 5 {
		topic := fmt.Sprintf("made%d", i)
		createTopic(t, c, topic, 1)
		if !knows(t, good, topic) {
			t.Fatalf("%s was answered before the name server had it", topic)
		}
	}
}
