// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeConn is a broker's connection.
type fakeConn struct {
	closed bool
	reason string
}

func (c *fakeConn) Closed() bool        { return c.closed }
func (c *fakeConn) Close(reason string) { c.closed, c.reason = true, reason }

// cluster is a RouteInfoManager under test with a clock of its own.
type cluster struct {
	t   *testing.T
	m   *RouteInfoManager
	cfg Config
	now time.Time
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_796_029_137_000)}
	c.m = newRouteInfoManager(slog.New(slog.DiscardHandler), func() *Config { return &c.cfg })
	return c
}

// topics maps names to "read write perm".
type topics map[string]string

func registerBodyOf(version dataVersion, table topics) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":%d,"stateVersion":%d,"timestamp":%d},"topicConfigTable":{`,
		version.Counter, version.StateVersion, version.Timestamp)
	for i, name := range sortedKeys(table) {
		var read, write, perm int
		fmt.Sscan(table[name], &read, &write, &perm)
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s":{"order":false,"perm":%d,"readQueueNums":%d,"topicFilterType":"SINGLE_TAG","topicName":"%s","topicSysFlag":0,"writeQueueNums":%d}`,
			name, perm, read, name, write)
	}
	b.WriteString(`}}}`)
	return []byte(b.String())
}

func reg(name string, id int64, addr string, conn connection, version dataVersion, table topics) *registration {
	return &registration{
		brokerID:     brokerID{cluster: "DefaultCluster", brokerName: name, addr: addr, id: id},
		haServerAddr: "ha-of-" + addr, version: 409, conn: conn, body: registerBodyOf(version, table),
	}
}

func (c *cluster) register(r *registration) registered {
	c.t.Helper()
	a, err := c.m.Register(r, c.now)
	if err != nil {
		c.t.Fatalf("register %s: %v", r.addr, err)
	}
	return a
}

// route is the encoded route, "" when the topic is not known.
func (c *cluster) route(topic string) string { return c.routeIn(topic, zone{}) }

func (c *cluster) routeIn(topic string, z zone) string {
	table := c.m.table.Load()
	route := table.topics[topic]
	if route == nil {
		return ""
	}
	return string(table.encodeRoute(topic, route, &c.cfg, &kvTable{}, z))
}

func (c *cluster) want(what, got, want string) {
	c.t.Helper()
	if got != want {
		c.t.Fatalf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func version(n int64) dataVersion { return dataVersion{Timestamp: 1_796_029_137_091, Counter: n} }

func TestRouteIsTheJSONThatClientsParse(t *testing.T) {
	c := newCluster(t)
	c.register(reg("broker-a", 0, "127.0.0.1:30911", nil, version(0), topics{"T": "4 4 6", "U": "1 1 6"}))
	c.want("one master", c.route("T"), `{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`)

	answer := c.register(reg("broker-a", 1, "127.0.0.1:30921", nil, version(0), topics{"X": "1 1 6"}))
	if answer != (registered{"127.0.0.1:30911", "ha-of-127.0.0.1:30911"}) {
		t.Fatalf("the slave was told %+v", answer)
	}
	c.want("a slave's topics are not taken", c.route("X"), "")
	c.register(reg("broker-b", 0, "127.0.0.1:31911", nil, version(0), topics{"T": "8 2 4"}))
	c.want("two groups", c.route("T"), `{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30911","1":"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false},{"brokerAddrs":{"0":"127.0.0.1:31911"},"brokerName":"broker-b","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4},{"brokerName":"broker-b","perm":4,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":2}]}`)
	c.want("cluster information", string(c.m.table.Load().brokers.encodeClusterInfo()), `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:30911",1:"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false},"broker-b":{"brokerAddrs":{0:"127.0.0.1:31911"},"brokerName":"broker-b","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a","broker-b"]}}`)
	c.want("member group", string(c.m.table.Load().brokers.encodeMemberGroup("DefaultCluster", "broker-a")), `{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:30911",1:"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster"}}`)
	c.want("topic list", string(encodeTopicList(c.m.table.Load().topicsWhere(func(*queueData) bool { return true }), "")), `{"topicList":["T","U"]}`)
}

func TestRouteShowsOrderConfiguration(t *testing.T) {
	c := newCluster(t)
	c.register(reg("a", 0, "h:1", nil, version(0), topics{"T": "4 4 6", "U": "1 1 6"}))
	kv := &kvTable{ConfigTable: map[string]map[string]string{namespaceOrderTopicConfig: {"T": "a:4"}}}
	encode := func() string {
		table := c.m.table.Load()
		return string(table.encodeRoute("T", table.topics["T"], &c.cfg, kv, zone{}))
	}
	if strings.Contains(encode(), "orderTopicConf") {
		t.Fatal("shown although orderMessageEnable is off")
	}
	c.cfg.OrderMessageEnable = true
	if !strings.Contains(encode(), `"filterServerTable":{},"orderTopicConf":"a:4","queueDatas":`) {
		t.Fatal(encode())
	}
	c.want("what brokers are told", string(kv.encodeNamespace(namespaceOrderTopicConfig)), `{"table":{"T":"a:4"}}`)
}

func TestSilentBrokerExpires(t *testing.T) {
	c := newCluster(t)
	quiet, talking, impatient := &fakeConn{}, &fakeConn{}, &fakeConn{}
	c.register(reg("quiet", 0, "h:1", quiet, version(0), topics{"T": "4 4 6", "Q": "1 1 6"}))
	c.register(reg("talking", 0, "h:2", talking, version(0), topics{"T": "4 4 6", "K": "1 1 6"}))
	r := reg("impatient", 0, "h:3", impatient, version(0), topics{"I": "1 1 6", "J": "1 1 6"})
	r.timeout = 10 * time.Second
	c.register(r)

	step := func(d time.Duration) {
		c.now = c.now.Add(d)
		c.m.Scan(c.now)
	}
	step(11 * time.Second)
	if c.route("I") != "" || !impatient.closed {
		t.Fatal("the broker's own time limit was not kept")
	}
	step(100 * time.Second)
	c.m.Heartbeat("DefaultCluster", "h:2", c.now)
	step(9 * time.Second) // 120 s after the registrations
	if c.route("Q") == "" || quiet.closed {
		t.Fatal("removed at its limit, not beyond it")
	}
	step(time.Millisecond)
	if c.route("Q") != "" || !quiet.closed {
		t.Fatal("still there beyond its limit")
	}
	if c.route("K") == "" || talking.closed || strings.Contains(c.route("T"), "quiet") {
		t.Fatalf("the one that talks must stay, alone: %s", c.route("T"))
	}
	if _, known := c.m.QueryDataVersion("DefaultCluster", "h:2", version(0), c.now); !known {
		t.Fatal("not known any more")
	}
	step(119 * time.Second)
	if c.route("K") == "" {
		t.Fatal("asking for the version is a sign of life")
	}
}

func TestClosedConnectionRemovesAtOnce(t *testing.T) {
	c := newCluster(t)
	first, second := &fakeConn{}, &fakeConn{}
	c.register(reg("a", 0, "h:1", first, version(0), topics{"T": "4 4 6"}))
	if !c.m.watches(first) || c.m.watches(second) {
		t.Fatal("watched connections")
	}
	c.register(reg("a", 0, "h:1", second, version(0), topics{"T": "4 4 6"}))
	if c.m.watches(first) {
		t.Fatal("the connection before is still watched")
	}
	c.m.ConnectionClosed(first)
	if c.route("T") == "" {
		t.Fatal("the end of an old connection removed the new registration")
	}
	second.closed = true
	c.m.Scan(c.now)
	if c.route("T") != "" || c.m.watches(second) || len(c.m.live) != 0 {
		t.Fatal("the scan did not see the closed connection")
	}
}

func TestReregistrationRestoresTheRoute(t *testing.T) {
	c := newCluster(t)
	r := reg("a", 0, "h:1", nil, version(7), topics{"T": "4 4 6", "U": "1 1 6"})
	c.register(r)
	before := c.route("T")
	c.m.Unregister(r.brokerID)
	if c.route("T") != "" || len(c.m.table.Load().brokers.byName) != 0 {
		t.Fatal("still there")
	}
	c.register(r) // same bytes, same version
	c.want("after it came back", c.route("T"), before)
}

func TestTwoAddressesUnderOneName(t *testing.T) {
	c := newCluster(t)
	one := reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"})
	two := reg("a", 0, "h:2", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"})
	addr := func() string { return c.m.table.Load().brokers.byName["a"].addrOf(0) }
	for range 3 { // 4.x brokers: the last one wins, each time
		c.register(one)
		c.want("after the first", addr(), "h:1")
		c.register(two)
		c.want("after the second", addr(), "h:2")
	}
	// The loser's goodbye, or its silence, does not take the winner with it.
	c.m.Unregister(one.brokerID)
	c.want("after the loser left", addr(), "h:2")
	if c.route("T") == "" {
		t.Fatal("the route went with the loser")
	}

	newer := reg("a", 0, "h:3", nil, dataVersion{StateVersion: 5, Timestamp: 1, Counter: 1}, topics{"T": "4 4 6", "U": "1 1 6"})
	c.register(newer)
	older := reg("a", 0, "h:4", nil, dataVersion{StateVersion: 4, Timestamp: 2, Counter: 9}, topics{"T": "8 8 6", "U": "1 1 6"})
	c.register(older)
	c.want("a newer state is not replaced by an older", addr(), "h:3")
}

func TestBrokerChangesItsRole(t *testing.T) {
	c := newCluster(t)
	c.register(reg("a", 1, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	if c.route("T") != "" {
		t.Fatal("a slave's topics were taken")
	}
	c.register(reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	if got := c.m.table.Load().brokers.byName["a"].addrs; !slices.Equal(got, []brokerAddr{{0, "h:1"}}) {
		t.Fatalf("addresses %v", got)
	}
	if c.route("T") == "" {
		t.Fatal("the new master's topics were not taken")
	}
}

func TestTopicsAreMergedByVersion(t *testing.T) {
	c := newCluster(t)
	c.register(reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	if n := c.m.WipeWritePerm("a"); n != 2 {
		t.Fatalf("wiped %d topics", n)
	}
	perm := func(topic string) int32 {
		e := c.m.begin()
		return e.queueOf(topic, "a").perm
	}
	c.register(reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	if perm("T") != 4 {
		t.Fatal("a registration without a new version gave the permission back")
	}
	c.register(reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6", "V": "1 1 6"}))
	if perm("T") != 4 || perm("V") != 6 {
		t.Fatal("with the same version only what is missing is added")
	}
	c.register(reg("a", 0, "h:1", nil, version(2), topics{"T": "4 4 6"}))
	if perm("T") != 6 || perm("U") != 4 {
		t.Fatal("an increment changes its topics and leaves the others")
	}
	if n := c.m.AddWritePerm("a"); n != 3 || perm("U") != 6 {
		t.Fatalf("added to %d topics", n)
	}
	c.cfg.DeleteTopicWithBrokerRegistration = true
	c.register(reg("a", 0, "h:1", nil, version(3), topics{"T": "4 4 6", "V": "1 1 6"}))
	if c.route("U") != "" || c.route("V") == "" {
		t.Fatal("deleteTopicWithBrokerRegistration did not remove the topic")
	}
}

func TestDeleteTopic(t *testing.T) {
	c := newCluster(t)
	other := reg("b", 0, "h:2", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"})
	other.cluster = "Other"
	c.register(reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	c.register(other)
	c.m.DeleteTopic("T", "Other")
	if got := c.route("T"); strings.Contains(got, `"b"`) || !strings.Contains(got, `"a"`) {
		t.Fatal(got)
	}
	c.m.DeleteTopic("U", "")
	c.m.DeleteTopic("unknown", "")
	if c.route("U") != "" {
		t.Fatal("still there")
	}
}

func TestActingMaster(t *testing.T) {
	c := newCluster(t)
	c.cfg.SupportActingMaster = true
	acting := func(id int64, addr string) *registration {
		r := reg("a", id, addr, nil, version(1), topics{"T": "4 4 6", "rmq_sys_SYNC_BROKER_MEMBER_a": "1 1 1"})
		r.enableActingMaster, r.actingMasterKnown = true, true
		return r
	}
	master := acting(0, "h:1")
	c.register(master)
	c.register(acting(1, "h:2"))
	c.register(acting(2, "h:3"))
	c.m.Unregister(master.brokerID)
	if got := c.route("T"); !strings.Contains(got, `"brokerAddrs":{"0":"h:2","2":"h:3"}`) || !strings.Contains(got, `"perm":4`) {
		t.Fatalf("the lowest slave does not stand in: %s", got)
	}
	if got := c.route("rmq_sys_SYNC_BROKER_MEMBER_a"); !strings.Contains(got, `"brokerAddrs":{"1":"h:2","2":"h:3"}`) {
		t.Fatalf("the members' own route is rewritten: %s", got)
	}
	c.register(master)
	if got := c.route("T"); !strings.Contains(got, `"brokerAddrs":{"0":"h:1","1":"h:2","2":"h:3"}`) {
		t.Fatal(got)
	}
}

func TestZones(t *testing.T) {
	c := newCluster(t)
	for i, z := range []string{"east", "west"} {
		r := reg("broker-"+z, 0, fmt.Sprintf("h:%d", i), nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"})
		r.zoneName = z
		c.register(r)
	}
	got := c.routeIn("T", zone{name: "west", mode: true})
	if got != c.routeIn("T", zone{name: "WEST", mode: true}) {
		t.Fatal("the case of a zone's name counts; to StringUtils#equalsIgnoreCase it does not")
	}
	c.want("no broker of the zone", c.routeIn("T", zone{name: "north", mode: true}), `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`)
	if strings.Contains(got, "broker-east") || !strings.Contains(got, `"zoneName":"west"`) {
		t.Fatal(got)
	}
	if got := c.routeIn("T", zone{name: "west"}); !strings.Contains(got, "broker-east") {
		t.Fatal(got)
	}
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	c := newCluster(t)
	f := func(what string, change func(*registration)) {
		t.Helper()
		r := reg("a", 0, "h:1", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"})
		change(r)
		if _, err := c.m.Register(r, c.now); err == nil {
			t.Fatalf("%s was taken", what)
		}
		if len(c.m.live) != 0 || len(c.m.table.Load().topics) != 0 {
			t.Fatalf("%s left something behind", what)
		}
	}
	f("no name", func(r *registration) { r.brokerName = "" })
	f("no address", func(r *registration) { r.addr = "" })
	f("no cluster", func(r *registration) { r.cluster = "" })
	f("a negative id", func(r *registration) { r.id = -1 })
	f("an endless name", func(r *registration) { r.brokerName = strings.Repeat("x", nameMax+1) })
	f("an endless HA address", func(r *registration) { r.haServerAddr = strings.Repeat("x", nameMax+1) })
	f("an endless zone", func(r *registration) { r.zoneName = strings.Repeat("x", nameMax+1) })
	f("a body that is no JSON", func(r *registration) { r.body = []byte("{") })
	f("a compressed body that is not", func(r *registration) { r.compressed = true })
	f("a topic table of another form", func(r *registration) {
		r.body = []byte(`{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}`)
	})
}

func TestTopicNamesAreBounded(t *testing.T) {
	c := newCluster(t)
	long := strings.Repeat("t", topicNameMax+1)
	c.register(reg("a", 0, "h:1", nil, version(1), topics{long: "1 1 6", "": "1 1 6", "T": "1 1 6"}))
	if n := len(c.m.table.Load().topics); n != 1 {
		t.Fatalf("%d topics", n)
	}
}

func counted(b []byte, piece string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(piece)))
	return append(b, piece...)
}

var deflater = zlib.NewWriter(nil) // its tables are large

func deflate(plain []byte) []byte {
	var z bytes.Buffer
	deflater.Reset(&z)
	deflater.Write(plain)
	deflater.Close()
	return z.Bytes()
}

func TestRegisterBodyForms(t *testing.T) {
	plain := counted(nil, `{"counter":3,"timestamp":1796029137091}`)
	plain = binary.BigEndian.AppendUint32(plain, 2)
	plain = counted(plain, "T 16 8 6 SINGLE_TAG")
	plain = counted(plain, `U 1 1 4 MULTI_TAG {"+message.type":"NORMAL TYPE"}`)
	plain = counted(plain, "[]")
	want := topicTable{DataVersion: version(3), TopicConfigTable: map[string]topicConfig{
		"T": {TopicName: "T", ReadQueueNums: 16, WriteQueueNums: 8, Perm: 6},
		"U": {TopicName: "U", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 4},
	}}
	wrapper := registerBodyOf(version(3), topics{"T": "16 8 6", "U": "1 1 4"})
	bare := wrapper[bytes.Index(wrapper, []byte(`{"dataVersion"`)) : len(wrapper)-1]
	f := func(what string, body []byte, compressed bool, version int32) {
		t.Helper()
		got, err := decodeRegisterBody(body, compressed, version)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v %v", what, got, err)
		}
	}
	f("uncompressed", wrapper, false, 409)
	f("compressed", deflate(plain), true, 409)
	f("of before 3.0.11", bare, false, 36)
	// Static topics of 5.x carry maps with bare integer keys.
	mapped := bytes.Replace(wrapper, []byte(`"topicConfigTable"`),
		[]byte(`"topicQueueMappingInfoMap":{"S":{"currIdMap":{0:0,1:-1, 2 :7},"bname":"a,1:\"2\":","list":[1,2,-3]}},"topicConfigTable"`), 1)
	f("with static topics", mapped, false, 479)
	if got, err := decodeRegisterBody(nil, false, 409); err != nil || !reflect.DeepEqual(got, topicTable{}) {
		t.Fatalf("an absent body: %+v %v", got, err)
	}

	for cut := range plain {
		if _, err := decodeRegisterBody(deflate(plain[:cut]), true, 409); err == nil && cut < len(plain)-6 {
			t.Fatalf("compressed body cut at %d was taken", cut)
		}
	}
	if _, err := inflateRegisterBody(deflate(plain), len(plain)); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	if _, err := inflateRegisterBody(deflate(plain), len(plain)-1); err == nil {
		t.Fatal("a body that expands beyond the limit was taken")
	}
}

func FuzzRegisterBody(f *testing.F) {
	body := registerBodyOf(version(1), topics{"T": "4 4 6"})
	f.Add(body, false, int32(409))
	f.Add(deflate(counted(nil, `{"counter":3}`)), true, int32(409))
	f.Add([]byte(`{"dataVersion":{0:1}}`), false, int32(1))
	f.Fuzz(func(t *testing.T, body []byte, compressed bool, version int32) {
		decodeRegisterBody(body, compressed, version)
	})
}

func FuzzQuoteIntegerKeys(f *testing.F) {
	f.Add([]byte(`{0:1,"a":{-1 :[1,2,{3:4}]},"b":"{5:6,7:"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// Standard JSON is left as it is.
		if got := quoteIntegerKeys(text); json.Valid(text) && !bytes.Equal(got, text) {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

func TestStringsAreJSON(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\\n\x00\x7f", "größe", "𝄞", "\xff\xfe"} {
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != string([]rune(s)) {
			t.Fatalf("%q became %q: %v", s, got, err)
		}
	}
}

func TestBrokersAreBounded(t *testing.T) {
	c := newCluster(t)
	for i := range brokersMax {
		r := reg("a", int64(i), fmt.Sprintf("h:%d", i), nil, version(1), nil)
		c.m.live[liveKey{r.cluster, r.addr}] = &liveBroker{brokerID: r.brokerID, lastUpdate: c.now, timeout: time.Hour}
	}
	if _, err := c.m.Register(reg("b", 0, "other:1", nil, version(1), nil), c.now); !errors.Is(err, errRegisterRefused) {
		t.Fatalf("one more: %v", err)
	}
	c.register(reg("a", 5, "h:5", nil, version(1), nil))
}

// Topics beyond the limit are left out, the rest of the registration is taken; they get in when there is room again.
func TestTopicsAreBounded(t *testing.T) {
	c := newCluster(t)
	var log bytes.Buffer
	c.m.logger = slog.New(slog.NewTextHandler(&log, nil))
	c.m.topicsLimit, c.m.queuesLimit = 4, 6
	kept := func(wantTopics, wantQueues int) {
		t.Helper()
		table := c.m.table.Load()
		queues := 0
		for _, route := range table.topics {
			queues += len(route.queues)
		}
		if len(table.topics) != wantTopics || queues != wantQueues || table.queues != queues {
			t.Fatalf("%d topics with %d queues, %d counted; want %d and %d", len(table.topics), queues, table.queues, wantTopics, wantQueues)
		}
	}
	many := make(topics)
	for i := range 10 {
		many[fmt.Sprintf("T%d", i)] = "4 4 6"
	}
	one, two := &fakeConn{}, &fakeConn{}
	c.register(reg("a", 0, "h:1", one, version(1), topics{"A": "4 4 6", "B": "4 4 6"}))
	c.register(reg("b", 0, "h:2", two, version(1), many))
	kept(4, 4)
	if c.route("A") == "" || !strings.Contains(string(c.m.table.Load().brokers.encodeClusterInfo()), `"h:2"`) {
		t.Fatal("what was there is gone, or the broker is not registered")
	}
	c.register(reg("b", 0, "h:2", two, version(1), many))
	c.register(reg("b", 0, "h:2", two, version(2), topics{"A": "4 4 6", "B": "4 4 6", "more": "4 4 6"}))
	kept(4, 6) // more queues of topics that are there, no more topics
	c.register(reg("c", 0, "h:3", nil, version(1), topics{"A": "4 4 6"}))
	kept(4, 6)
	if n := strings.Count(log.String(), "there is no room for more"); n != 1 {
		t.Fatalf("said %d times", n)
	}

	c.register(reg("b", 0, "h:2", two, version(3), many))
	c.m.ConnectionClosed(one)
	kept(4, 4)
	c.m.DeleteTopic("A", "")
	c.m.DeleteTopic("B", "")
	kept(2, 2)
	c.register(reg("b", 0, "h:2", two, version(3), many)) // the same bytes as before
	kept(4, 4)
	c.m.ConnectionClosed(two)
	c.register(reg("c", 0, "h:3", nil, version(1), topics{"A": "4 4 6"}))
	kept(1, 1)
}

// A compressed body may name more topics than there may be; it costs no memory for them.
func TestTopicsOfACompressedBodyAreBounded(t *testing.T) {
	plain := counted(nil, "{}")
	const over = 10
	plain = binary.BigEndian.AppendUint32(plain, topicsMax+over)
	for i := range topicsMax + over {
		plain = counted(plain, fmt.Sprintf("t%d 1 1 6 S", i))
	}
	table, err := inflateRegisterBody(deflate(plain), inflatedBodyMax)
	if err != nil || len(table.TopicConfigTable) != topicsMax || table.overLimit != over {
		t.Fatalf("%d topics, %d over, %v", len(table.TopicConfigTable), table.overLimit, err)
	}
}

// An address that registers under one name after the other is one broker: nothing of an earlier name is left.
func TestBrokerChangesItsName(t *testing.T) {
	c := newCluster(t)
	conn := &fakeConn{}
	c.register(reg("other", 0, "h:9", nil, version(1), topics{"T": "4 4 6", "U": "1 1 6"}))
	for i := range 20 {
		c.register(reg(fmt.Sprintf("name%d", i), 0, "h:1", conn, version(1), topics{"T": "4 4 6", fmt.Sprintf("of%d", i): "1 1 6"}))
	}
	table := c.m.table.Load()
	if names := table.brokers.sortedNames(); !slices.Equal(names, []string{"name19", "other"}) || len(table.topics) != 3 || c.route("of18") != "" {
		t.Fatalf("brokers %v, %d topics", names, len(table.topics))
	}
	c.m.ConnectionClosed(conn)
	if names := c.m.table.Load().brokers.sortedNames(); !slices.Equal(names, []string{"other"}) || strings.Contains(c.route("T"), "name") {
		t.Fatalf("brokers %v, route %s", names, c.route("T"))
	}
}

func BenchmarkRegister(b *testing.B) {
	const n = 10_000
	table := make(topics, n)
	for i := range n {
		table[fmt.Sprintf("topic-%05d", i)] = "16 16 6"
	}
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("topics=%d/changed=%v", n, changed), func(b *testing.B) {
			cfg := DefaultConfig()
			m := newRouteInfoManager(slog.New(slog.DiscardHandler), func() *Config { return &cfg })
			bodies := [][]byte{registerBodyOf(version(1), table), registerBodyOf(version(2), table)}
			b.SetBytes(int64(len(bodies[0])))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := reg("a", 0, "h:1", nil, version(0), nil)
				r.body = bodies[0]
				if changed {
					r.body = bodies[i%2]
				}
				if _, err := m.Register(r, time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A broker whose place another address took for a while registers as it did before: its topics, which went with the
// other one, are there again, and so is a permission that was taken from them then.
func TestBrokerComesBackToItsPlace(t *testing.T) {
	c := newCluster(t)
	table := topics{"T": "4 4 6", "U": "1 1 6"}
	one, two := reg("a", 0, "h:1", nil, version(1), table), reg("a", 0, "h:2", &fakeConn{}, version(1), table)
	c.register(one)
	before := c.route("T")
	c.register(two)
	c.m.ConnectionClosed(two.conn)
	c.want("after both are gone from it", c.route("T"), "")
	c.register(one)
	c.want("after the first came back", c.route("T"), before)

	slave := reg("a", 1, "h:3", nil, version(1), topics{})
	for _, r := range []*registration{slave, one, two} {
		r.enableActingMaster, r.actingMasterKnown = true, true
		c.register(r)
	}
	c.m.ConnectionClosed(two.conn)
	if !strings.Contains(c.route("T"), `"perm":4`) {
		t.Fatalf("a group without master takes writes: %s", c.route("T"))
	}
	c.register(one)
	if !strings.Contains(c.route("T"), `"perm":6`) {
		t.Fatalf("no writes although the master is back: %s", c.route("T"))
	}
}
