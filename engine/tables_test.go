// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage/vfs/faultfs"
)

// tableBroker is a broker with tables only: no store, no ports, no lanes.
func tableBroker(t *testing.T, disk *faultfs.FS, change func(*Config)) *BrokerController {
	t.Helper()
	cfg := DefaultConfig()
	cfg.BrokerName, cfg.Store.StorePathRootDir = "broker-a", "/store"
	if change != nil {
		change(&cfg)
	}
	cfg.EnsureDefaults()
	b := &BrokerController{logger: quietLogger(), fs: disk, stats: newBrokerStats()}
	b.config.Store(&cfg)
	b.consumers, b.producers, b.locks = newConsumerManager(), newProducerManager(), newRebalanceLockManager()
	var err error
	if b.topics, err = newTopicConfigManager(b); err != nil {
		t.Fatal(err)
	}
	if b.groups, err = newSubscriptionGroupManager(b); err != nil {
		t.Fatal(err)
	}
	if b.offsets, err = newConsumerOffsetManager(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func writeTable(t *testing.T, disk *faultfs.FS, name, text string) {
	t.Helper()
	if err := disk.MkdirAll("/store/config"); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile("/store/config/"+name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// The topics of a fresh broker are those of Java's.
func TestBuiltInTopics(t *testing.T) {
	f := func(change func(*Config), want string) {
		t.Helper()
		topics, _ := tableBroker(t, faultfs.New(), change).topics.All()
		var got []string
		for name, c := range topics {
			if c.ReadQueueNums != c.WriteQueueNums {
				t.Fatalf("%s has %d read and %d write queues", name, c.ReadQueueNums, c.WriteQueueNums)
			}
			got = append(got, fmt.Sprintf("%s %d %d", name, c.WriteQueueNums, c.Perm))
		}
		wanted := strings.Split(want, ",")
		if len(got) != len(wanted) {
			t.Fatalf("topics %q; want %q", got, wanted)
		}
		for _, w := range wanted {
			if !strings.Contains(strings.Join(got, ",")+",", w+",") {
				t.Fatalf("topics %q; want %q among them", got, w)
			}
		}
	}
	f(nil, "SELF_TEST_TOPIC 1 6,TBW102 8 7,BenchmarkTest 1024 6,DefaultCluster 16 7,broker-a 1 7,OFFSET_MOVED_EVENT 1 6,"+
		"SCHEDULE_TOPIC_XXXX 18 6,DefaultCluster_REPLY_TOPIC 1 6")
	f(func(c *Config) {
		c.AutoCreateTopicEnable, c.ClusterTopicEnable, c.BrokerTopicEnable, c.TraceTopicEnable = false, false, false, true
	}, "SELF_TEST_TOPIC 1 6,RMQ_SYS_TRACE_TOPIC 1 6,BenchmarkTest 1024 6,DefaultCluster 16 6,broker-a 1 6,OFFSET_MOVED_EVENT 1 6,"+
		"SCHEDULE_TOPIC_XXXX 18 6,DefaultCluster_REPLY_TOPIC 1 6")
}

func TestCreateTopicInSend(t *testing.T) {
	f := func(template *TopicConfig, autoCreate bool, queueNums int32, want *TopicConfig) {
		t.Helper()
		b := tableBroker(t, faultfs.New(), func(c *Config) { c.AutoCreateTopicEnable = autoCreate })
		if template != nil {
			if err := b.topics.table.change(map[string]*TopicConfig{template.TopicName: template}); err != nil {
				t.Fatal(err)
			}
		}
		name := topicAutoCreate
		if template != nil {
			name = template.TopicName
		}
		got, err := b.topics.forSend("T", name, queueNums, 0)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("to create %+v, %v; want %+v", got, err, want)
		}
	}
	topic := func(name string, queues, perm int32) *TopicConfig { return newTopicConfig(name, queues, perm) }
	f(nil, true, 4, topic("T", 4, 6))
	f(nil, true, 16, topic("T", 8, 6)) // no more than the template has
	f(nil, true, -1, topic("T", 0, 6))
	f(nil, false, 4, nil)                              // no template
	f(topic(topicAutoCreate, 8, 7), false, 4, nil)     // one from an older file
	f(topic("mine", 2, 7), false, 4, topic("T", 2, 6)) // any topic may be one
	f(topic("mine", 2, 6), true, 4, nil)               // if it is inherited
	f(topic("mine", 2, 5), true, 4, topic("T", 2, 4))
}

// Sends that wait for topics are told what became of theirs, and of no other.
func TestTopicsMadeTogether(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	var flush []func()
	b.topics.table.submit = func(f func()) bool {
		flush = append(flush, f)
		return len(flush) < 4
	}
	told := make(map[string][]error)
	create := func(name string) {
		b.topics.createGathered(newTopicConfig(name, 1, 6), "peer", func(err error) { told[name] = append(told[name], err) })
	}
	want := func(name string, want ...error) {
		t.Helper()
		if !slices.EqualFunc(told[name], want, errors.Is) {
			t.Fatalf("%s: told %v; want %v", name, told[name], want)
		}
		delete(told, name)
	}
	create("A")
	create("B")
	create("A")
	if len(flush) != 1 || len(told) != 0 || b.topics.Get("A") != nil {
		t.Fatalf("%d flushes asked for, told %v", len(flush), told)
	}
	if err := b.topics.Update(newTopicConfig("B", 3, 6)); err != nil { // a tool was there first
		t.Fatal(err)
	}
	flush[0]()
	want("A", nil, nil)
	want("B", nil)
	if b.topics.Get("A") == nil || b.topics.Get("B").WriteQueueNums != 3 {
		t.Fatal("A is not made, or B replaced")
	}
	flush[0]() // nothing is wanted

	create("bad name")
	if err := told["bad name"]; len(err) != 1 || err[0] == nil || len(flush) != 1 {
		t.Fatalf("a name that no table takes: %v", err)
	}
	delete(told, "bad name")

	no := errors.New("no")
	disk.Fail(faultfs.Fault{Op: faultfs.OpSync, Err: no})
	create("C")
	flush[1]()
	want("C", no)
	disk.ClearFaults()

	for i := range sendsGatheredMax {
		create(fmt.Sprint("many", i%10))
	}
	if n := len(told["many3"]); n != sendsGatheredMax/10 || b.topics.Get("many3") == nil {
		t.Fatalf("%d sends told at the limit of those that wait", n)
	}
	clear(told)
	create("no-room-in-the-lane")
	want("no-room-in-the-lane", nil)

	b.topics.table.bytes = tableBytesMax - 300
	create("fits")
	want("fits", nil)
	create("does-not-fit")
	want("does-not-fit", errTableFull)
}

// A send or a tool that made a topic waits for the name servers, and nothing else does: the admin worker goes on.
func TestNewTopicDoesNotHoldUpTheAdminWorker(t *testing.T) {
	b := startTestBroker(t, nil)
	registered := make(chan struct{})
	b.submitAdmin(func() { // which is the worker's
		b.topics.registration = func() func() { return func() { <-registered } }
	})
	c := b.dial()
	var waiting []chan *remoting.Command
	for i := range 3 {
		waiting = append(waiting, c.start(
			c.request(remoting.SendMessageV2, []byte("x"), sendV2(fmt.Sprint("new", i), 0, "")...),
			c.request(remoting.UpdateAndCreateTopic, nil, "topic", fmt.Sprint("tool", i), "readQueueNums", "1", "writeQueueNums", "1",
				"perm", "6", "topicFilterType", "SINGLE_TAG", "defaultTopic", topicAutoCreate),
			c.request(remoting.UpdateAndCreateTopicList, fmt.Appendf(nil, `{"topicConfigList":[{"topicName":"list%d"}]}`, i)),
		)...)
		wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"g"}`)), remoting.Success)
		for _, name := range []string{"tool", "list"} {
			if topic := fmt.Sprint(name, i); b.topics.Get(topic) == nil {
				t.Errorf("%s was not made before a later request was answered", topic)
			}
		}
	}
	for i, ch := range waiting {
		if len(ch) > 0 {
			t.Errorf("request %d was answered before the name servers had its topic", i)
		}
	}
	close(registered)
	for _, ch := range waiting {
		wantCode(t, c.await(ch), remoting.Success)
	}
}

// Tools are answered in the order of their requests. Only when too many wait does the admin worker wait itself.
func TestAnswersThatWaitForNameServers(t *testing.T) {
	b := tableBroker(t, faultfs.New(), nil)
	lane := reactor.NewLane("tool", 1, toolAnswersMax)
	defer lane.Stop()
	registered := make(chan struct{})
	b.topics.registration = func() func() { return func() { <-registered } }
	told := make(chan int, toolAnswersMax+1)
	b.topics.whenRegistered(lane, func() { told <- 0 })
	eventually(t, "the lane's worker waiting", func() bool { return lane.Len() == 0 })
	for i := range toolAnswersMax {
		b.topics.whenRegistered(lane, func() { told <- i + 1 })
	}
	if len(told) > 0 {
		t.Fatal("one was answered before the name servers had its topic")
	}
	b.topics.registration = func() func() { return func() {} }
	itself := false
	b.topics.whenRegistered(lane, func() { itself = true })
	if !itself {
		t.Fatal("the lane holds more than its bound")
	}
	close(registered)
	for want := range toolAnswersMax + 1 {
		if got := <-told; got != want {
			t.Fatalf("answer %d is that of request %d", want, got)
		}
	}
}

// Topics come back from the file as they were, with members of later versions.
func TestTopicTableRoundTrip(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		c := newTopicConfig(fmt.Sprintf("T_%d", i), random.Int32N(100), random.Int32N(8))
		c.Order, c.TopicSysFlag = random.IntN(2) == 0, random.Int32N(4)
		if random.IntN(2) == 0 {
			c.TopicFilterType = topicFilterMulti
		}
		if random.IntN(2) == 0 {
			c.Attributes = map[string]string{"message.type": "NORMAL", "k\"": "v\n"}
		}
		if random.IntN(2) == 0 {
			c.extra = map[string]string{"later": `{"a":[1,2]}`}
		}
		if err := b.topics.Update(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.topics.Delete("T_7"); err != nil {
		t.Fatal(err)
	}
	want, version := b.topics.All()
	got, gotVersion := tableBroker(t, disk, nil).topics.All()
	if !reflect.DeepEqual(got, want) || gotVersion != version {
		t.Fatalf("read back %d topics, version %v; want %d, %v", len(got), gotVersion, len(want), version)
	}
}

// Files of Java 4.9 and 5.3.
func TestTablesOfJavaBrokers(t *testing.T) {
	disk := faultfs.New()
	writeTable(t, disk, "topics.json", "{\n\t\"dataVersion\":{\n\t\t\"counter\":5,\n\t\t\"stateVersion\":2,\n\t\t\"timestamp\":1796029137091\n\t},\n"+
		"\t\"mappingDataVersion\":{\"counter\":0,\"stateVersion\":0,\"timestamp\":1},\n\t\"topicConfigTable\":{\n\t\t\"T\":{\n\t\t\t\"attributes\":{},\n"+
		"\t\t\t\"order\":true,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"T\",\n"+
		"\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":3\n\t\t}\n\t}\n}")
	writeTable(t, disk, "subscriptionGroup.json", `{"dataVersion":{"counter":3,"timestamp":7},"forbiddenTable":{},"subscriptionGroupTable":{"g":{"attributes":{},`+
		`"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,`+
		`"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":2,`+
		`"whichBrokerWhenConsumeSlowly":1}}}`)
	writeTable(t, disk, "consumerOffset.json", `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"groupTopicMap":{"g":["T"]},"offsetTable":{"T@g":{0:5,"1":7}}}`)
	b := tableBroker(t, disk, nil)
	want := &TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 3, Perm: 6, TopicFilterType: topicFilterSingle, Order: true, Attributes: map[string]string{}}
	if got := b.topics.Get("T"); !reflect.DeepEqual(got, want) {
		t.Fatalf("topic %+v; want %+v", got, want)
	}
	if _, version := b.topics.All(); version != (DataVersion{StateVersion: 2, Timestamp: 1796029137091, Counter: 5}) {
		t.Fatalf("version %+v", version)
	}
	g := b.groups.Get("g")
	if g == nil || g.ConsumeBroadcastEnable || g.RetryMaxTimes != 3 || g.RetryQueueNums != 2 || len(g.extra) != 5 {
		t.Fatalf("group %+v", g)
	}
	if got := b.offsets.OffsetsOf("g", "T"); !maps.Equal(got, map[int32]int64{0: 5, 1: 7}) {
		t.Fatalf("offsets %v", got)
	}
	if err := b.groups.Update(newSubscriptionGroupConfig("more")); err != nil {
		t.Fatal(err)
	}
	if text, err := disk.ReadFile("/store/config/subscriptionGroup.json"); err != nil || !strings.Contains(string(text), `"forbiddenTable":{}`) {
		t.Fatalf("what the file held beside the table is lost: %v", err)
	}
	if b.groups.Get("TOOLS_CONSUMER") == nil || b.topics.Get(topicAutoCreate) == nil {
		t.Fatal("built-in entries are missing beside those of the file")
	}
}

// Bodies and files, to the byte.
func TestTableEncodingsAreJavas(t *testing.T) {
	version := DataVersion{Timestamp: 1796029137091}
	topics := map[string]*TopicConfig{"T": newTopicConfig("T", 16, 6)}
	want := `{"dataVersion":{"counter":0,"timestamp":1796029137091},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":16,` +
		`"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}`
	if got := string(encodeTopicConfigWrapper(topics, version)); got != want {
		t.Fatalf("topics\n%s\nwant\n%s", got, want)
	}
	var w jsonWriter
	writeGroupTable(&w, map[string]*SubscriptionGroupConfig{"g": newSubscriptionGroupConfig("g")}, version, nil)
	want = `{"dataVersion":{"counter":0,"timestamp":1796029137091},"subscriptionGroupTable":{"g":{"brokerId":0,"consumeBroadcastEnable":true,` +
		`"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"g","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,` +
		`"whichBrokerWhenConsumeSlowly":1}}}`
	if got := string(w.b); got != want {
		t.Fatalf("groups\n%s\nwant\n%s", got, want)
	}
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	b.offsets.Commit("g", "T", 1, 7)
	b.offsets.Commit("g", "T", 0, 5)
	if err := b.offsets.Persist(); err != nil {
		t.Fatal(err)
	}
	want = "{\n\t\"offsetTable\":{\n\t\t\"T@g\":{0:5,1:7\n\t\t}\n\t}\n}"
	if got, err := disk.ReadFile("/store/config/consumerOffset.json"); err != nil || string(got) != want {
		t.Fatalf("offsets\n%s\n%v; want\n%s", got, err, want)
	}
	if got := string(b.offsets.encode("")); !strings.HasSuffix(got, `"offsetTable":{"T@g":{0:5,1:7}}}`) || !strings.HasPrefix(got, `{"dataVersion":{"counter":0,"timestamp":`) {
		t.Fatalf("offsets %s", got)
	}
}

// What a heartbeat creates is there at once; the file follows when the admin worker gets to it, and a worker that could
// not take the work is asked again.
func TestTopicCreatedSoon(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	var queued []func()
	accept, changes := false, 0
	b.topics.table.submit = func(f func()) bool {
		if accept {
			queued = append(queued, f)
		}
		return accept
	}
	b.topics.table.changed = func() { changes++ }
	_, before := b.topics.All()
	writes := disk.Count(faultfs.OpWrite)
	c := b.topics.createSoon("%RETRY%g", 1, 6, 0)
	if c == nil || b.topics.Lookup([]byte("%RETRY%g")) != c || b.topics.createSoon("%RETRY%g", 9, 6, 0) != c {
		t.Fatal("not in the table at once, or created twice")
	}
	if _, after := b.topics.All(); after.Counter != before.Counter+1 || changes != 1 {
		t.Fatalf("version %+v after %+v, %d changes told", after, before, changes)
	}
	if disk.Count(faultfs.OpWrite) != writes {
		t.Fatal("written at once")
	}
	accept = true
	b.topics.table.persistSoon()
	b.topics.table.persistSoon()
	if len(queued) != 1 {
		t.Fatalf("%d jobs queued", len(queued))
	}
	disk.Fail(faultfs.Fault{Op: faultfs.OpWrite, Err: errors.New("no")})
	queued[0]()
	disk.ClearFaults()
	b.topics.table.persistSoon()
	if len(queued) != 2 {
		t.Fatal("a failed save is not tried again")
	}
	queued[1]()
	b.topics.table.persistSoon()
	if len(queued) != 2 {
		t.Fatal("saved, and queued again")
	}
	if tableBroker(t, disk, nil).topics.Get("%RETRY%g") == nil {
		t.Fatal("not in the file")
	}
}

// A change that cannot be written has not happened.
func TestFailedChangeChangesNothing(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	if err := b.topics.Update(newTopicConfig("old", 1, 6)); err != nil {
		t.Fatal(err)
	}
	want, version := b.topics.All()
	disk.Fail(faultfs.Fault{Op: faultfs.OpSync, Err: errors.New("no")})
	if err := b.topics.Update(newTopicConfig("T", 1, 6)); err == nil {
		t.Fatal("updated without a file")
	}
	if err := b.topics.Delete("old"); err == nil {
		t.Fatal("deleted without a file")
	}
	if got, v := b.topics.All(); !reflect.DeepEqual(got, want) || v != version {
		t.Fatal("the table changed")
	}
	if _, err := b.topics.CreateInSendBack(dlqTopicOf("g"), 1, 6, 0); err == nil {
		t.Fatal("created without a file")
	}
}

func TestTablesHaveALimit(t *testing.T) {
	b := tableBroker(t, faultfs.New(), nil)
	long := strings.Repeat("x", 100)
	put := make(map[string]*TopicConfig)
	for i := range 40_000 {
		name := fmt.Sprintf("%s%d", long, i)
		put[name] = newTopicConfig(name, 1, 6)
	}
	if err := b.topics.table.change(put); !errors.Is(err, errTableFull) {
		t.Fatalf("error %v; want the limit", err)
	}
	b.topics.table.adopt(put, DataVersion{}, nil) // from a file: kept
	if err := b.topics.Update(newTopicConfig("more", 1, 6)); !errors.Is(err, errTableFull) {
		t.Fatalf("error %v; want the limit", err)
	}
	if b.topics.createSoon("%RETRY%more", 1, 6, 0) != nil {
		t.Fatal("created beyond the limit")
	}
	smaller := newTopicConfig(long+"1", 1, 4)
	if err := b.topics.Update(smaller); err != nil {
		t.Fatalf("a change that adds nothing: %v", err)
	}
	if err := b.topics.Delete(long + "2"); err != nil {
		t.Fatal(err)
	}
	topics, version := b.topics.All()
	if size := len(encodeTopicConfigWrapper(topics, version)); size > b.topics.table.size() {
		t.Fatalf("%d bytes of JSON, thought to be %d", size, b.topics.table.size())
	}
}

func TestNames(t *testing.T) {
	f := func(topic string, want error) {
		t.Helper()
		if got := checkTopicName(topic); got != want {
			t.Fatalf("checkTopicName(%q)=%v; want %v", topic, got, want)
		}
		if got := checkTopicName([]byte(topic)); got != want {
			t.Fatalf("checkTopicName of bytes(%q)=%v; want %v", topic, got, want)
		}
	}
	f("T", nil)
	f("%RETRY%a|b-c_9", nil)
	f("", errTopicBlank)
	f("  ", errTopicBlank)
	f("a b", errTopicCharacters)
	f("a@b", errTopicCharacters)
	f("a/b", errTopicCharacters)
	f("../../etc", errTopicCharacters)
	f("ä", errTopicCharacters)
	f("a\x00", errTopicCharacters)
	f(strings.Repeat("x", 127), nil)
	f(strings.Repeat("x", 128), errTopicLength)
	f(strings.Repeat("x", 1<<20), errTopicLength)
	if err := checkTableTopicName(retryTopicOf(strings.Repeat("g", groupLengthMax))); err != nil {
		t.Fatal(err)
	}
	if err := checkTableTopicName(retryTopicPrefix + strings.Repeat("g", groupLengthMax+1)); err == nil {
		t.Fatal("a retry topic longer than any group")
	}
	if checkGroupName("g") != nil || checkGroupName("") == nil || checkGroupName("a@b") == nil || checkGroupName(strings.Repeat("g", 256)) == nil {
		t.Fatal("checkGroupName")
	}
}

func TestFindOrCreateGroup(t *testing.T) {
	b := tableBroker(t, faultfs.New(), nil)
	if g := b.groups.FindOrCreate("g"); g == nil || b.groups.Lookup([]byte("g")) != g {
		t.Fatal("not created")
	}
	if b.groups.FindOrCreate("bad group") != nil || b.groups.FindOrCreate("") != nil {
		t.Fatal("created with a bad name")
	}
	b = tableBroker(t, faultfs.New(), func(c *Config) { c.AutoCreateSubscriptionGroup = false })
	if b.groups.FindOrCreate("g") != nil || b.groups.FindOrCreate("CID_RMQ_SYS_x") == nil || b.groups.FindOrCreate("TOOLS_CONSUMER") == nil {
		t.Fatal("without automatic creation only system groups exist")
	}
}

func TestOffsets(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	m := b.offsets
	if m.Query("g", "T", 0) != -1 {
		t.Fatal("an offset from nowhere")
	}
	m.Commit("g", "T", 0, 10)
	m.Commit("g", "T", 0, 5) // backwards too
	m.CommitBytes([]byte("g"), []byte("T"), 1, 7)
	m.Commit("h", "T", 0, 1)
	m.Commit("g", "U", 0, 2)
	for _, bad := range []func(){
		func() { m.Commit("g@h", "T", 0, 1) }, func() { m.Commit("g", "T@h", 0, 1) }, func() { m.Commit("", "T", 0, 1) },
		func() { m.Commit("g", "", 0, 1) }, func() { m.Commit("g", "T", -1, 1) }, func() { m.Commit("g", "T", 3, -1) },
		func() { m.CommitBytes([]byte("g"), []byte("T U"), 0, 1) },
	} {
		bad()
	}
	if m.Query("g", "T", 0) != 5 || m.QueryBytes([]byte("g"), []byte("T"), 1) != 7 || m.Query("g", "T", 3) != -1 || m.entries.Load() != 4 {
		t.Fatalf("offsets %v", m.snapshot())
	}
	if got := m.TopicsOf("g"); !reflect.DeepEqual(got, []string{"T", "U"}) {
		t.Fatalf("topics of g: %v", got)
	}
	if got := m.GroupsOf("T"); !reflect.DeepEqual(got, []string{"g", "h"}) {
		t.Fatalf("groups of T: %v", got)
	}
	m.Clone("g", "copy", "T")
	if err := m.Persist(); err != nil {
		t.Fatal(err)
	}
	again := tableBroker(t, disk, nil).offsets
	if !reflect.DeepEqual(again.snapshot(), m.snapshot()) || again.entries.Load() != m.entries.Load() {
		t.Fatalf("read back %v; want %v", again.snapshot(), m.snapshot())
	}
	m.RemoveTopic("T")
	if got := m.snapshot().offsets; len(got) != 1 || m.entries.Load() != 1 {
		t.Fatalf("after the topic is gone: %v", got)
	}
	m.RemoveGroup("g")
	if got := m.snapshot().offsets; len(got) != 0 || m.entries.Load() != 0 {
		t.Fatalf("after the group is gone: %v", got)
	}
}

func TestOffsetsHaveALimit(t *testing.T) {
	m := tableBroker(t, faultfs.New(), nil).offsets
	m.Commit("g", "T", 0, 1)
	m.entries.Store(offsetEntriesMax)
	m.Commit("g", "T", 1, 1)
	m.Commit("g", "T", 0, 2)
	if m.Query("g", "T", 1) != -1 || m.Query("g", "T", 0) != 2 || m.entries.Load() != offsetEntriesMax {
		t.Fatal("the limit holds for new queues, and only for those")
	}
}

// Look-ups on event loops leave no garbage.
func TestLookUpsAllocateNothing(t *testing.T) {
	b := tableBroker(t, faultfs.New(), nil)
	b.topics.createSoon("topic-of-some-length-that-does-not-fit-into-a-small-buffer", 1, 6, 0)
	b.groups.FindOrCreate("g")
	b.offsets.Commit("g", "T", 0, 1)
	info := &ClientChannelInfo{Session: new(reactor.Session), ClientID: "c"}
	if _, _, err := b.consumers.Register(info, &consumerData{group: "g", subscriptions: map[string]*SubscriptionData{"T": {Topic: "T"}}}); err != nil {
		t.Fatal(err)
	}
	b.stats.Group("T", "g")
	topic, group, long := []byte("T"), []byte("g"), []byte("topic-of-some-length-that-does-not-fit-into-a-small-buffer")
	name := string(long)
	f := func(what string, look func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, look); n != 0 {
			t.Fatalf("%s allocates %v times", what, n)
		}
	}
	f("Topics.Lookup", func() { b.topics.Lookup(long) })
	f("Topics.Get", func() { b.topics.Get(name) })
	f("Groups.Lookup", func() { b.groups.Lookup(group) })
	f("Consumers.Subscription", func() { b.consumers.Subscription(group, topic) })
	f("Offsets.CommitBytes", func() { b.offsets.CommitBytes(group, topic, 0, 2) })
	f("Offsets.QueryBytes", func() { b.offsets.QueryBytes(group, topic, 0) })
	f("Stats.Group", func() { b.stats.Group("T", "g").Get(1, 10) })
	f("checkTopicName", func() { _ = checkTopicName(long) })
	f("notAllowedSend", func() { notAllowedSend(long) })
}

// Loops look up and create while the admin worker changes and saves: in the end table and file agree.
func TestTablesUnderConcurrentUse(t *testing.T) {
	disk := faultfs.New()
	b := tableBroker(t, disk, nil)
	var worker sync.Mutex // stands for the one admin worker
	var jobs sync.WaitGroup
	b.topics.table.submit = func(f func()) bool {
		jobs.Go(func() {
			worker.Lock()
			defer worker.Unlock()
			f()
		})
		return true
	}
	var told atomic.Int64
	b.topics.table.changed = func() { told.Add(1) }
	var all sync.WaitGroup
	for loop := range 4 {
		all.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("%%RETRY%%g%d", i*7%50+loop)
				b.topics.createSoon(name, 1, 6, 0)
				if b.topics.Lookup([]byte(name)) == nil {
					t.Errorf("%s was created and is not there", name)
				}
				b.offsets.Commit("g", "T", int32(i), int64(i))
				b.offsets.Query("g", "T", int32(i))
			}
		})
	}
	all.Go(func() {
		for i := range 50 {
			if err := b.topics.Update(newTopicConfig(fmt.Sprintf("T%d", i), 1, 6)); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := b.topics.Delete(fmt.Sprintf("T%d", i)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	all.Go(func() {
		for range 20 {
			if err := b.offsets.Persist(); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	jobs.Wait()
	if err := errors.Join(b.topics.Persist(), b.offsets.Persist()); err != nil {
		t.Fatal(err)
	}
	want, _ := b.topics.All()
	again := tableBroker(t, disk, nil)
	if got, _ := again.topics.All(); !reflect.DeepEqual(got, want) {
		t.Fatalf("the file holds %d topics, the table %d", len(got), len(want))
	}
	if !reflect.DeepEqual(again.offsets.snapshot(), b.offsets.snapshot()) {
		t.Fatal("the file holds other offsets than the table")
	}
	if told.Load() == 0 {
		t.Fatal("no change was told")
	}
}

// Every file that this package writes is read by its reader, whatever stands in it.
func FuzzTopicTable(f *testing.F) {
	f.Add([]byte(`{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"perm":6,"x":[1]}}}`))
	f.Add([]byte("{\"\x93\":{},\"topicConfigTable\":{\"\\u0041\xff\":{}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		topics, version, extra, err := readTopicTable(data)
		if err != nil {
			return
		}
		var w jsonWriter
		writeTopicTable(&w, topics, version, extra)
		again, v, more, err := readTopicTable(w.b)
		if err != nil || v != version || !reflect.DeepEqual(again, topics) || !maps.Equal(more, extra) {
			t.Fatalf("%q reads as %v, which is written as %v: %v", data, topics, again, err)
		}
	})
}

// FuzzHeartbeat: a heartbeat is refused or kept, and never costs more than its size.
func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(`{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g",` +
		`"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG","subString":"a||b",` +
		`"subVersion":1796029137699,"tagsSet":["a","b"],"topic":"T"}],"unitMode":false}],"producerDataSet":[{"groupName":"p"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := readHeartbeat(body, noTopics)
		if err != nil {
			return
		}
		for _, c := range h.consumers {
			if checkGroupName(c.group) != nil {
				t.Fatalf("%q passed a group %q", body, c.group)
			}
		}
	})
}

// The topics of a broker and of its cluster bear their names, which may be such as no other topic's: a host's name has dots.
func TestTopicsOfABrokerNamedAfterItsHost(t *testing.T) {
	disk := faultfs.New()
	named := func(c *Config) {
		c.BrokerName, c.BrokerClusterName = "host-1.example.com", strings.Repeat("c", nameLengthMax)
	}
	b := tableBroker(t, disk, named)
	if err := b.topics.Update(newTopicConfig("T", 1, 6)); err != nil {
		t.Fatal(err)
	}
	want, version := b.topics.All()
	got, gotVersion := tableBroker(t, disk, named).topics.All()
	if !reflect.DeepEqual(got, want) || gotVersion != version {
		t.Fatalf("read back %d topics, version %v; want %d, %v", len(got), gotVersion, len(want), version)
	}
}
