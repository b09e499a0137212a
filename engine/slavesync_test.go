// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// syncOf is a SlaveSynchronize whose rounds the test makes.
// feeds waits until the logs of master and slave are joined.
func (b *testBroker) feeds(s *testBroker) {
	b.t.Helper()
	b.eventually("the slave is fed", func() bool { return b.ha.Feeds(s.ha.Node()) })
}

func syncOf(s *testBroker) *SlaveSynchronize { return newSlaveSynchronize(s.BrokerController) }

// sendTwelve makes queue 0 of T end at 12.
func (b *testBroker) sendTwelve() {
	b.t.Helper()
	c := b.dial()
	for i := range 12 {
		c.send("T", 0, []byte{byte(i)}, "")
	}
	b.dispatched()
}

func TestSlaveCopiesTheMastersTables(t *testing.T) {
	m := startTestBroker(t, nil)
	s := startSlave(t, m, nil)
	sync := syncOf(s)
	m.sendTwelve()
	c := m.dial()
	wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"g","retryMaxTimes":3}`)), remoting.Success)
	groups, groupsVersion := m.groups.All()
	groups = maps.Clone(groups)
	groups["odd.name"] = newSubscriptionGroupConfig("odd.name") // as tools may make one at a RocketMQ master
	if err := m.groups.table.replace(groups, groupsVersion.next(time.Now())); err != nil {
		t.Fatal(err)
	}
	m.offsets.Commit("g", "T", 0, 7)
	m.schedule.mu.Lock()
	m.schedule.offsets[3] = 4
	m.schedule.mu.Unlock()
	sync.syncAll()

	topics, version := m.topics.All()
	mine, mineVersion := s.topics.All()
	if version != mineVersion || !reflect.DeepEqual(slices.Sorted(maps.Keys(topics)), slices.Sorted(maps.Keys(mine))) {
		t.Errorf("topics %v of %v", slices.Sorted(maps.Keys(mine)), slices.Sorted(maps.Keys(topics)))
	}
	if g := s.groups.Get("g"); g == nil || g.RetryMaxTimes != 3 {
		t.Errorf("group %+v", g)
	}
	if s.groups.Get("odd.name") == nil {
		t.Error("a group of a strange name is not there")
	}
	if got := s.offsets.Query("g", "T", 0); got != 7 {
		t.Errorf("offset %d", got)
	}
	if got := s.schedule.Offsets(); got[3] != 4 {
		t.Errorf("delay offsets %v", got)
	}
	for _, name := range []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"} {
		if _, err := s.fs.Stat(s.file("config", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	s.stats.Topic("T").Put(1, 1)
	s.stats.Group("T", "g").Get(1, 1)
	s.stats.Group(topicBenchmark, "g").Get(1, 1)
	wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", "T"), remoting.Success)
	wantCode(t, c.call(remoting.DeleteSubscriptionGroup, nil, "groupName", "g", "cleanOffset", "true"), remoting.Success)
	sync.syncAll()
	if n := s.stats.topics.len() + s.stats.groups.len(); n != 0 {
		t.Errorf("%d statistics are left of what the master deleted", n)
	}
	if s.topics.Get("T") != nil || s.groups.Get("g") != nil || s.offsets.Query("g", "T", 0) != -1 {
		t.Errorf("what the master deleted is still there: %v, %v, %d", s.topics.Get("T"), s.groups.Get("g"), s.offsets.Query("g", "T", 0))
	}
	if s.topics.Get(topicBenchmark) == nil {
		t.Error("a topic that every broker has is gone")
	}
}

// What was committed at the slave while the master was away is not lost, and the master that is back takes it over; only
// who sets a group back on purpose makes it go back (apache/rocketmq#1094).
func TestOffsetsSurviveAFailover(t *testing.T) {
	m := startTestBroker(t, nil)
	s := startSlave(t, m, nil)
	sync := syncOf(s)
	m.sendTwelve()
	m.offsets.Commit("g", "T", 0, 5)
	m.feeds(s)
	sync.syncAll()

	// The master is away: commits go to the slave.
	wantCode(t, s.dial().call(remoting.UpdateConsumerOffset, nil,
		"consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "9"), remoting.Success)
	sync.syncAll()
	if got := s.offsets.Query("g", "T", 0); got != 9 {
		t.Fatalf("the master's older offset took the slave's: %d", got)
	}
	if got := m.offsets.Query("g", "T", 0); got != 9 {
		t.Fatalf("the master did not take over the newer offset: %d", got)
	}

	// A reset at the master, of a queue that the slave has further.
	m.offsets.Commit("g", "T", 0, 2)
	sync.syncAll()
	if got := s.offsets.Query("g", "T", 0); got != 2 {
		t.Fatalf("the reset did not reach the slave: %d", got)
	}
	// After a restart of both nothing comes back.
	m.stop()
	s.restart()
	if got := s.offsets.Query("g", "T", 0); got != 2 {
		t.Fatalf("after a restart %d", got)
	}
	m.start()
	s.cfg.MasterAddr, s.cfg.HAMasterAddress = m.addr, m.haServerAddr()
	s.restart()
	m.feeds(s)
	sync = syncOf(s)
	sync.syncAll()
	sync.syncAll()
	if a, b := m.offsets.Query("g", "T", 0), s.offsets.Query("g", "T", 0); a != 2 || b != 2 {
		t.Fatalf("after restarts %d and %d", a, b)
	}
	// A slave whose log is not joined with the master's brings nothing.
	offer := []byte(`{"offsetTable":{"T@g":{0:7}},"resetTable":{"T@g":{0:9}}}`)
	for _, f := range []struct {
		node string
		want int64
	}{{"", 2}, {"somebody", 2}, {s.ha.Node(), 7}} {
		wantCode(t, m.dial().call(remoting.GetAllConsumerOffset, offer, offsetVersionMember, "1-1", offsetNodeMember, f.node), remoting.Success)
		if got := m.offsets.Query("g", "T", 0); got != f.want {
			t.Fatalf("%q brought %d, want %d", f.node, got, f.want)
		}
	}
	sync.syncAll()
	// An offset beyond the end of the master's queue would hide messages sent later.
	s.offsets.Commit("g", "T", 0, 1000)
	sync.syncAll()
	if got := m.offsets.Query("g", "T", 0); got != 12 {
		t.Fatalf("the master took offset %d of a queue that ends at 12", got)
	}
}

// A master that is back answers where a group goes on when its slave has brought what it has newer
// (apache/rocketmq#1094).
func TestMasterThatIsBackTakesOffsetsOverFirst(t *testing.T) {
	m := newTestBroker(t, nil)
	m.start()
	s := startSlave(t, m, nil)
	sync := syncOf(s)
	m.sendTwelve()
	m.offsets.Commit("g", "T", 0, 5)
	sync.syncAll()
	sync.syncAll()
	m.stop()
	s.offsets.Commit("g", "T", 0, 9)

	m.start()
	t.Cleanup(m.stop)
	s.cfg.MasterAddr = m.addr
	next := *s.Config()
	next.MasterAddr, next.HAMasterAddress = m.addr, m.haServerAddr()
	s.useConfig(&next)
	s.haClient.Wakeup()
	m.feeds(s)
	m.offers.expect() // it may have been slow to get here
	c := m.dial()
	asked := c.start(c.request(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"))
	known, theirs := sync.known, sync.theirs
	sync.masterAddress() // the port is another one in this test
	sync.known, sync.theirs = known, theirs
	sync.step("consumer offsets", sync.syncConsumerOffset)
	sync.step("consumer offsets", sync.syncConsumerOffset) // it knows the run now
	wantField(t, c.await(asked[0]), "offset", "9")
	// Without a slave it does not wait for long.
	s.slaveSync.Stop()
	m.restart()
	c = m.dial()
	wantField(t, c.call(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"), "offset", "9")
	wantField(t, c.call(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"), "offset", "9")
}

// followAgain makes a slave go on with a master that came back, at other ports here, and know of it what it knew
// before. Without a link their logs stay apart.
func (b *testBroker) followAgain(m *testBroker, sync *SlaveSynchronize, linked bool) {
	next := *b.Config()
	next.MasterAddr, next.HAMasterAddress = m.addr, "127.0.0.1:1"
	if linked {
		next.HAMasterAddress = m.haServerAddr()
	}
	b.useConfig(&next)
	known, theirs, mine := sync.known, sync.theirs, sync.mine
	sync.masterAddress()
	sync.known, sync.theirs, sync.mine = known, theirs, mine
}

// A slave brings its offsets again when the master could not take them: their logs were not one yet.
func TestOffersWaitForTheLogsToBeJoined(t *testing.T) {
	m := startTestBroker(t, nil)
	s := startSlave(t, m, nil)
	s.slaveSync.Stop() // the rounds are the test's
	sync := syncOf(s)
	m.sendTwelve()
	m.offsets.Commit("g", "T", 0, 5)
	sync.syncAll()
	sync.syncAll()
	s.followAgain(m, sync, false) // nor does it try the old port, which may be somebody's
	m.restart()
	s.offsets.Commit("g", "T", 0, 9)
	s.followAgain(m, sync, false)
	for range 4 { // no link yet
		sync.step("consumer offsets", sync.syncConsumerOffset)
	}
	if got := m.offsets.Query("g", "T", 0); got != 5 {
		t.Fatalf("offset %d of a slave whose log is not joined", got)
	}
	s.followAgain(m, sync, true)
	s.haClient.Wakeup()
	m.feeds(s)
	sync.step("consumer offsets", sync.syncConsumerOffset)
	if got := m.offsets.Query("g", "T", 0); got != 9 {
		t.Fatalf("the master has %d, its slave has 9", got)
	}
}

// A master that was killed has lost the commits of its last seconds. Its slave, where nobody committed anything, has them,
// and brings them before the master says where a group goes on.
func TestMasterGetsBackTheOffsetsItHasLost(t *testing.T) {
	m := newTestBroker(t, nil)
	m.start()
	s := startSlave(t, m, nil)
	s.slaveSync.Stop()
	sync := syncOf(s)
	m.sendTwelve()
	m.offsets.Commit("g", "T", 0, 9)
	for range 3 {
		sync.syncAll()
	}
	s.followAgain(m, sync, false)
	m.stop()
	file := m.file("config", "consumerOffset.json")
	b, err := m.fs.ReadFile(file)
	if err != nil || !bytes.Contains(b, []byte("9")) {
		t.Fatalf("%v: %s", err, b)
	}
	if err := m.fs.WriteFile(file, []byte(`{"loopmqSlave":true,"offsetTable":{"T@g":{0:5}}}`)); err != nil {
		t.Fatal(err)
	}
	m.start()
	t.Cleanup(m.stop)
	s.followAgain(m, sync, true)
	s.haClient.Wakeup()
	m.feeds(s)
	m.offers.expect() // it may have been slow to get here
	c := m.dial()
	asked := c.start(c.request(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"))
	for range 2 {
		sync.step("consumer offsets", sync.syncConsumerOffset)
	}
	wantField(t, c.await(asked[0]), "offset", "9")
	if got := s.offsets.Query("g", "T", 0); got != 9 {
		t.Fatalf("the slave went back to %d", got)
	}
}

// Between two loopmq nodes a change is there within seconds, and no change costs little.
func TestOffsetsFollowWithinSeconds(t *testing.T) {
	m := startTestBroker(t, nil)
	s := startSlave(t, m, nil)
	for q := range int32(100) {
		m.offsets.Commit("g", "T", q, 1)
	}
	s.eventually("the offsets are there", func() bool { return s.offsets.Query("g", "T", 99) == 1 })
	m.offsets.Commit("g", "T", 99, 2)
	began := time.Now()
	s.eventually("the change is there", func() bool { return s.offsets.Query("g", "T", 99) == 2 })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a change took %v", took)
	}
	c := m.dial()
	whole := c.call(remoting.GetAllConsumerOffset, nil)
	t1, err := readOffsetTables(whole.Body)
	if err != nil || t1.version == "" {
		t.Fatalf("%+v, %v", t1, err)
	}
	same := c.call(remoting.GetAllConsumerOffset, nil, offsetVersionMember, t1.version)
	if len(same.Body) > 150 || !bytes.Contains(whole.Body, []byte(`"dataVersion"`)) {
		t.Errorf("no change costs %d bytes: %s", len(same.Body), same.Body)
	}
}

// fakeRocketMQ is a master that answers what RocketMQ answers.
func fakeRocketMQ(t *testing.T, bodies *atomic.Pointer[map[int32]string]) string {
	t.Helper()
	server := reactor.NewRemotingServer(reactor.RemotingServerConfig{Addrs: []string{"127.0.0.1:0"}, NumLoops: 1, Logger: quietLogger()})
	server.RegisterDefaultProcessor(reactor.ProcessorFunc(func(req *reactor.Request) {
		body, ok := (*bodies.Load())[req.Code]
		if !ok {
			replyRemark(req.ReplyTo(), remoting.SystemError, "No topic in this broker")
			return
		}
		answer{body: []byte(body)}.reply(req.ReplyTo())
	}), nil)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop(time.Second) })
	return server.Addr().String()
}

// Bodies as 4.9.7 and 5.3.3 write them.
func TestSlaveOfARocketMQMaster(t *testing.T) {
	bodies := map[int32]string{
		remoting.GetAllTopicConfig: `{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1796029137091},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},` +
			`"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}`,
		remoting.GetAllConsumerOffset: `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"groupTopicMap":{"g":["T"]},"offsetTable":{"T@g":{0:5,1:7}}}`,
		remoting.GetAllDelayOffset:    `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"offsetTable":{1:5,2:0}}`,
		remoting.GetAllSubscriptionGroupConfig: `{"dataVersion":{"counter":2,"timestamp":5},"forbiddenTable":{},"subscriptionGroupTable":{"g":{"brokerId":0,"consumeBroadcastEnable":true,` +
			`"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}`,
	}
	var served atomic.Pointer[map[int32]string]
	served.Store(&bodies)
	addr := fakeRocketMQ(t, &served) // nobody listens at the HA port
	s := startTestBroker(t, func(c *Config) {
		c.Store.Role, c.BrokerID = storage.Slave, 1
		c.HAMasterAddress, c.MasterAddr = "127.0.0.1:1", addr
	})
	s.offsets.Commit("g", "T", 0, 100) // what a slave commits is overwritten
	s.offsets.Commit("h", "T", 0, 100) // what the master does not know stays
	sync := syncOf(s)
	sync.syncAll()
	if c := s.topics.Get("T"); c == nil || c.ReadQueueNums != 16 || s.topics.Get(topicBenchmark) != nil {
		t.Errorf("topics: %+v", c)
	}
	if a, b, c := s.offsets.Query("g", "T", 0), s.offsets.Query("g", "T", 1), s.offsets.Query("h", "T", 0); a != 5 || b != 7 || c != 100 {
		t.Errorf("offsets %d, %d, %d", a, b, c)
	}
	if d := s.schedule.Offsets(); d[1] != 5 || s.groups.Get("g") == nil {
		t.Errorf("delay offsets %v, group %v", d, s.groups.Get("g"))
	}
	s.eventually("why there is no link is shown", func() bool { return strings.Contains(s.runtimeInfo(time.Now())["haMaster"], "not reached") })
	if sync.known != "" {
		t.Error("a RocketMQ master is asked every second")
	}
	// A step that fails does not keep the others from going on, and nothing is emptied by it.
	next := maps.Clone(bodies)
	delete(next, remoting.GetAllTopicConfig)
	next[remoting.GetAllDelayOffset] = "not JSON"
	next[remoting.GetAllConsumerOffset] = `{"offsetTable":{"T@g":{0:6}}}`
	served.Store(&next)
	sync.syncAll()
	if s.topics.Get("T") == nil || s.offsets.Query("g", "T", 0) != 6 || s.offsets.Query("g", "T", 1) != -1 || s.schedule.Offsets()[1] != 5 {
		t.Errorf("after a round that failed in part: %v, %d, %d, %v", s.topics.Get("T"), s.offsets.Query("g", "T", 0), s.offsets.Query("g", "T", 1), s.schedule.Offsets())
	}
}

// Nodes that hear of each other in any order end with the same, and no entry goes back without a reset.
func TestOffsetsConverge(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		nodes := make([]*ConsumerOffsetManager, 3)
		for i := range nodes {
			nodes[i] = tableBroker(t, faultfs.New(), nil).offsets
		}
		for range 300 {
			i := rng.IntN(3)
			topic, queue := fmt.Sprint("T", rng.IntN(3)), rng.Int32N(2)
			switch rng.IntN(12) {
			case 0:
				nodes[i].RemoveTopic(topic)
			case 1:
				nodes[i].Commit("g", topic, queue, rng.Int64N(20)) // may be a reset
			case 2, 3, 4:
				other := nodes[rng.IntN(3)].snapshot()
				before := nodes[i].snapshot()
				nodes[i].Merge(&other, nil)
				after := nodes[i].snapshot()
				before.each(func(key string, queueID int32, offset, resets int64) {
					if now, nowResets := after.entry(key, queueID); now < offset && nowResets <= resets {
						t.Fatalf("seed %d: %s/%d went back from %d to %d", seed, key, queueID, offset, now)
					}
				})
			default:
				nodes[i].Commit("g", topic, queue, max(0, nodes[i].Query("g", topic, queue))+rng.Int64N(5))
			}
		}
		for range 2 {
			for _, a := range nodes {
				for _, b := range nodes {
					t := a.snapshot()
					b.Merge(&t, nil)
				}
			}
		}
		for _, n := range nodes[1:] {
			if a, b := nodes[0].snapshot(), n.snapshot(); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d:\n%+v\n%+v", seed, a, b)
			}
			if a, b := nodes[0].entries.Load(), n.entries.Load(); a != b {
				t.Fatalf("seed %d: %d and %d entries", seed, a, b)
			}
		}
	}
}

// What a node remembers of groups and topics that are gone holds off a node that was away, and goes after a time: from
// memory and the file, and no node gets it back from another.
func TestResetsOfWhatIsGone(t *testing.T) {
	disk := faultfs.New()
	one, other := tableBroker(t, disk, nil).offsets, tableBroker(t, faultfs.New(), nil).offsets
	tell := func(to, from *ConsumerOffsetManager, at time.Time) {
		tables := from.snapshotAt(at)
		to.Merge(&tables, nil)
	}
	wantGone := func(what string, m *ConsumerOffsetManager, at time.Time, want bool) {
		t.Helper()
		tables := m.snapshotAt(at)
		if got := len(tables.resets["T@g"]) == 0 && len(tables.gone) == 0; got != want || m.Query("g", "T", 0) != -1 {
			t.Fatalf("%s: %+v", what, tables)
		}
	}
	for q := range int32(3) {
		one.Commit("g", "T", q, 10)
	}
	one.Commit("h", "T2", 0, 10)
	one.Commit("h", "T2", 0, 5) // set back, and there
	tell(other, one, time.Now())
	away := other.snapshot()

	one.RemoveTopic("T")
	deleted := time.Now()
	one.Merge(&away, nil)
	wantGone("offsets of a node that was away", one, deleted, false)
	tell(other, one, time.Now())
	wantGone("at the other node", other, deleted, false)
	one.Commit("g", "T", 0, 7) // it is there again, and goes again
	if tables := one.snapshot(); len(tables.gone) > 0 {
		t.Fatalf("%+v", tables)
	}
	one.RemoveTopic("T")
	if err := one.Persist(); err != nil {
		t.Fatal(err)
	}
	tell(other, one, time.Now())
	one = tableBroker(t, disk, nil).offsets
	wantGone("after a restart", one, time.Now(), false)
	if a, b := one.snapshot(), other.snapshot(); !reflect.DeepEqual(a, b) {
		t.Fatalf("the times do not travel:\n%+v\n%+v", a, b)
	}
	early, third := one.snapshot(), tableBroker(t, faultfs.New(), nil).offsets
	early.gone["T@g"] -= 1000
	third.Merge(&early, nil)
	if got := third.snapshot().gone["T@g"]; got != early.gone["T@g"] {
		t.Fatalf("gone since %d, was told %d", got, early.gone["T@g"])
	}

	late := time.Now().Add(offsetResetsKept + time.Second)
	old := one.snapshot()
	for key := range old.gone {
		old.gone[key] = deleted.Add(-offsetResetsKept - time.Second).UnixMilli()
	}
	wantGone("after its time", one, late, true)
	version := one.version()
	one.Merge(&old, nil)
	wantGone("told by a node that still has them", one, time.Now(), true)
	if got := one.version(); got != version {
		t.Errorf("version %s after %s: slaves would copy it all, and offer theirs again", got, version)
	}
	if n := one.resets.Load(); n != 1 {
		t.Errorf("%d resets are counted, one is there", n)
	}
	if tables := one.snapshotAt(late); tables.resets["T2@h"][0] != 1 || one.Query("h", "T2", 0) != 5 {
		t.Errorf("resets of what is there: %+v", tables)
	}
	one.Commit("h", "T2", 0, 8)
	if err := one.Persist(); err != nil {
		t.Fatal(err)
	}
	if text, err := disk.ReadFile("/store/config/consumerOffset.json"); err != nil || bytes.Contains(text, []byte("T@g")) {
		t.Errorf("%v: %s", err, text)
	}
	mine, theirs := other.snapshot(), one.snapshotAt(late)
	if ahead := mine.newerThan(&theirs); !ahead.empty() && ahead.gone["T@g"] == 0 {
		t.Errorf("an offer without its time: %+v", ahead)
	}
}

// A file of before has no times: they begin at the start.
func TestResetsWithoutATime(t *testing.T) {
	disk := faultfs.New()
	writeTable(t, disk, "consumerOffset.json", `{"offsetTable":{"U@g":{0:5}},"resetTable":{"T@g":{0:2,1:1},"U@g":{0:1}}}`)
	m := tableBroker(t, disk, nil).offsets
	if tables := m.snapshot(); len(tables.gone) != 1 || len(tables.resets) != 2 {
		t.Fatalf("%+v", tables)
	}
	if tables := m.snapshotAt(time.Now().Add(offsetResetsKept + time.Second)); len(tables.gone) != 0 || len(tables.resets) != 1 || m.resets.Load() != 1 {
		t.Fatalf("%+v", tables)
	}
}

// What a slave serves, and what it refuses with which code.
func TestSlaveRules(t *testing.T) {
	m := startTestBroker(t, nil)
	c := m.dial()
	for i := range 5 {
		c.send("T", 0, []byte{byte(i)}, "")
	}
	c.send("T", 0, []byte("late"), "DELAY\x011\x02")
	s := startSlave(t, m, nil)
	s.eventually("the log is there", func() bool { return s.store.MaxPhyOffset() == m.store.MaxPhyOffset() })
	syncOf(s).syncAll()
	s.dispatched()
	r := s.dial()

	topics, _ := s.topics.All()
	wantCode(t, r.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...), remoting.ServiceNotAvailable)
	wantCode(t, r.call(remoting.SendMessageV2, []byte("x"), sendV2("new", 0, "")...), remoting.ServiceNotAvailable)
	back := r.call(remoting.ConsumerSendMsgBack, nil, "group", "g", "offset", "0", "delayLevel", "1", "originTopic", "T")
	if back.Code != remoting.ServiceNotAvailable && back.Code != remoting.SystemError && back.Code != remoting.SubscriptionGroupNotExist {
		t.Errorf("send back: %d %s", back.Code, back.Remark)
	}
	wantCode(t, r.call(remoting.EndTransaction, nil, "producerGroup", "p", "tranStateTableOffset", "0", "commitLogOffset", "0", "commitOrRollback", "8"), remoting.SlaveNotAvailable)
	for code, request := range map[int32][]string{
		remoting.UpdateAndCreateTopic: {"topic", "U", "defaultTopic", "TBW102", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6",
			"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false"},
		remoting.DeleteTopicInBroker:     {"topic", "T"},
		remoting.DeleteSubscriptionGroup: {"groupName", "g"},
	} {
		wantCode(t, r.call(code, nil, request...), remoting.SystemError)
	}
	wantCode(t, r.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"n"}`)), remoting.SystemError)
	if now, _ := s.topics.All(); !reflect.DeepEqual(now, topics) || s.groups.Get("n") != nil {
		t.Errorf("tables changed: %v", slices.Sorted(maps.Keys(now)))
	}

	if got := r.pull("g", "T", 0, 0); got.Code != remoting.Success || len(decodeRecords(t, got.Body)) != 5 {
		t.Errorf("pull: %d %s", got.Code, got.Remark)
	}
	beyond := r.pull("g", "T", 0, 1000)
	wantCode(t, beyond, remoting.PullRetryImmediately) // a slave that is behind tells nobody to jump back
	if next, suggested := extInt(t, beyond, "nextBeginOffset"), extInt(t, beyond, "suggestWhichBrokerId"); next != 1000 || suggested != 0 {
		t.Errorf("beyond the end: next %d, broker %d", next, suggested)
	}
	below := r.pull("g", "T", 0, -1)
	wantCode(t, below, remoting.PullOffsetMoved) // what lies below the beginning never comes
	if next := extInt(t, below, "nextBeginOffset"); next != 0 {
		t.Errorf("below the beginning: next %d", next)
	}
	wantCode(t, r.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, r.call(remoting.GetMaxOffset, nil, "topic", "T", "queueId", "0"), remoting.Success)
	wantCode(t, r.call(remoting.LockBatchMQ, []byte(`{"consumerGroup":"g","clientId":"c1","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}`)), remoting.Success)
	// The delayed message is the master's to deliver.
	if s.life.scheduleStarted {
		t.Error("a slave delivers delayed messages")
	}
	// Long polling is woken by what comes over the link.
	held := r.start(r.request(remoting.PullMessage, nil, pullFields("g", "T", 0, 5, "sysFlag", "6", "suspendTimeoutMillis", "20000")...))
	c.send("T", 0, []byte("new"), "")
	if got := r.await(held[0]); got.Code != remoting.Success && !strings.Contains(string(got.Remark), "FOUND") {
		t.Errorf("held pull: %d %s", got.Code, got.Remark)
	}
}
