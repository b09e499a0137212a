// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// heartbeat is the body of one consumer's heartbeat, as a 4.9 client writes it.
func heartbeat(clientID, group, topic, expression string, subVersion int) []byte {
	return fmt.Appendf(nil, `{"clientID":"%s","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",`+
		`"groupName":"%s","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG",`+
		`"subString":"*","subVersion":1,"tagsSet":[],"topic":"%%RETRY%%%s"},{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG",`+
		`"subString":"%s","subVersion":%d,"tagsSet":["a"],"topic":"%s"}],"unitMode":false}],"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}]}`,
		clientID, group, group, expression, subVersion, topic)
}

// body checks that an answer is a success whose body our own reader takes whole, and returns it.
func body(t *testing.T, resp *remoting.Command) string {
	t.Helper()
	wantCode(t, resp, remoting.Success)
	r := newJSONReader(resp.Body)
	err := r.skip()
	if err == nil {
		err = r.end()
	}
	if err != nil {
		t.Fatalf("body %s: %v", resp.Body, err)
	}
	return string(resp.Body)
}

func wantBody(t *testing.T, resp *remoting.Command, want string) {
	t.Helper()
	if got := body(t, resp); got != want {
		t.Fatalf("body\n%s\nwant\n%s", got, want)
	}
}

// wantBodyLike is wantBody for bodies with times in them.
func wantBodyLike(t *testing.T, resp *remoting.Command, pattern string) {
	t.Helper()
	if got := body(t, resp); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		t.Fatalf("body\n%s\nwant one like\n%s", got, pattern)
	}
}

func wantField(t *testing.T, resp *remoting.Command, name, want string) {
	t.Helper()
	wantCode(t, resp, remoting.Success)
	if got := resp.Ext.String(name); got != want {
		t.Fatalf("%s=%q; want %q", name, got, want)
	}
}

// answerPush answers a request of the broker.
func answerPush(t *testing.T, c *rawClient, push *remoting.Command, code int32, text string) {
	t.Helper()
	resp := &remoting.Command{Code: code, Opaque: push.Opaque, Flag: remoting.FlagResponse, Version: 409, Body: []byte(text)}
	if err := c.write(resp); err != nil {
		t.Fatal(err)
	}
}

func createTopic(t *testing.T, c *rawClient, topic string, queues int) {
	t.Helper()
	n := strconv.Itoa(queues)
	wantCode(t, c.call(remoting.UpdateAndCreateTopic, nil, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", n,
		"writeQueueNums", n, "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false"), remoting.Success)
}

func sendTo(t *testing.T, b *testBroker, c *rawClient, topic string, queueID, count int) {
	t.Helper()
	for i := range count {
		wantCode(t, c.call(remoting.SendMessageV2, []byte("body"+strconv.Itoa(i)), sendV2(topic, queueID, "TAGS\x01a")...), remoting.Success)
	}
	b.dispatched()
}

func TestHeartbeatsMakeAGroup(t *testing.T) {
	b := startTestBroker(t, nil)
	one, two := b.dial(), b.dial()
	wantCode(t, one.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), remoting.SystemError)
	wantCode(t, one.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "a", 1)), remoting.Success)
	if push := one.push(remoting.NotifyConsumerIDsChanged); push.Ext.String("consumerGroup") != "g" || !push.IsOneway() {
		t.Fatalf("push %+v", push)
	}
	wantBody(t, one.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), `{"consumerIdList":["c1"]}`)
	if b.topics.Get("%RETRY%g") == nil || b.groups.Get("g") == nil {
		t.Fatal("group and retry topic are not there when the heartbeat is answered")
	}

	wantCode(t, one.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "a", 2)), remoting.Success)
	if len(one.pushes) != 0 {
		t.Fatal("a newer version of a subscription was told as a change")
	}
	wantCode(t, two.call(remoting.HeartBeat, heartbeat("c2", "g", "T", "a", 2)), remoting.Success)
	if len(two.pushes) != 1 { // pushed before the answer
		t.Fatalf("%d pushes when the heartbeat was answered", len(two.pushes))
	}
	one.push(remoting.NotifyConsumerIDsChanged)
	two.push(remoting.NotifyConsumerIDsChanged)
	wantBody(t, one.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), `{"consumerIdList":["c1","c2"]}`)

	wantCode(t, two.call(remoting.HeartBeat, heartbeat("c2", "g", "U", "*", 3)), remoting.Success)
	one.push(remoting.NotifyConsumerIDsChanged) // the set of topics changed

	two.close() // without goodbye
	one.push(remoting.NotifyConsumerIDsChanged)
	wantBody(t, one.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), `{"consumerIdList":["c1"]}`)

	wantCode(t, one.call(remoting.UnregisterClient, nil, "clientID", "c1", "producerGroup", "CLIENT_INNER_PRODUCER", "consumerGroup", "g"), remoting.Success)
	wantCode(t, one.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), remoting.SystemError)
	if b.consumers.Len() != 0 || b.producers.Len() != 0 || len(b.consumers.sessions) != 0 || len(b.producers.sessions) != 0 ||
		b.consumers.members != 0 || b.producers.members != 0 || b.consumers.bytes != 0 {
		t.Fatal("something is left of clients that are gone")
	}
	b.restart()
	if b.topics.Get("%RETRY%g") == nil || b.groups.Get("g") == nil {
		t.Fatal("what the heartbeat created did not reach the files")
	}
}

// A client that connects anew is there once, also when its old connection was never closed (apache/rocketmq#7870).
func TestReconnectReplacesTheClient(t *testing.T) {
	b := startTestBroker(t, nil)
	old, other, anew := b.dial(), b.dial(), b.dial()
	wantCode(t, old.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, other.call(remoting.HeartBeat, heartbeat("c2", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, anew.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantBody(t, anew.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), `{"consumerIdList":["c2","c1"]}`)
	// What was pushed before is in front of an answer on the same connection.
	wantCode(t, other.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), remoting.Success)
	for len(other.pushes) > 0 {
		<-other.pushes
	}
	old.close()
	wantCode(t, anew.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantBody(t, anew.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), `{"consumerIdList":["c2","c1"]}`)
	eventually(t, "the old connection is gone", func() bool { return b.server.Stats().Connections == 2 })
	wantCode(t, other.call(remoting.GetConsumerListByGroup, nil, "consumerGroup", "g"), remoting.Success)
	if len(other.pushes) != 0 {
		t.Fatal("the end of the old connection was told as a change")
	}
}

func TestSilentClientsExpire(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	b.expireClients(time.Now().Add(channelExpiredTimeout - time.Minute))
	wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	b.expireClients(time.Now().Add(channelExpiredTimeout + time.Minute))
	c.waitClosed()
	eventually(t, "the client is gone", func() bool { return b.consumers.Len() == 0 && b.producers.Len() == 0 })
}

func TestNotificationsCanBeSwitchedOff(t *testing.T) {
	f := func(broker, group bool) {
		t.Helper()
		b := startTestBroker(t, func(c *Config) { c.NotifyConsumerIdsChangedEnable = broker })
		cfg := newSubscriptionGroupConfig("g")
		cfg.NotifyConsumerIdsChangedEnable = group
		if err := b.groups.Update(cfg); err != nil {
			t.Fatal(err)
		}
		c := b.dial()
		wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
		if pushed := len(c.pushes) > 0; pushed != (broker && group) {
			t.Fatalf("broker %v, group %v: pushed %v", broker, group, pushed)
		}
	}
	f(true, true)
	f(true, false)
	f(false, true)
}

func noTopics(string) bool { return false }

// What one connection may make the broker keep is bounded.
func TestClientLimits(t *testing.T) {
	consumers, session := newConsumerManager(), new(reactor.Session)
	join := func(group string) error {
		client := newClientChannelInfo(session, "c", 0, 409, time.Now())
		_, _, err := consumers.Register(client, &consumerData{group: group})
		return err
	}
	for i := range sessionGroupsMax {
		if err := join(fmt.Sprintf("g%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := join("more"); err != errSessionGroups || consumers.Get("more") != nil {
		t.Fatalf("error %v; want the limit of groups", err)
	}
	if err := join("g0"); err != nil {
		t.Fatalf("a group it is in already: %v", err)
	}
	consumers.Unregister(session, "g1")
	if err := join("more"); err != nil {
		t.Fatalf("after it left one: %v", err)
	}
	consumers.SessionClosed(session)
	if consumers.Len() != 0 || len(consumers.sessions) != 0 || consumers.members != 0 {
		t.Fatal("something is left of a closed connection")
	}
	consumers.members = membersMax - 1
	if err := join("g0"); err != nil {
		t.Fatal(err)
	}
	if err := join("g1"); err != errMembers || consumers.Get("g1") != nil {
		t.Fatalf("error %v; want the limit of all connections", err)
	}
	if err := join("g0"); err != nil {
		t.Fatalf("a group it is in already: %v", err)
	}
	consumers.Unregister(session, "g0")
	if err := join("g1"); err != nil {
		t.Fatalf("after it left one: %v", err)
	}
	consumers.SessionClosed(session)
	if consumers.members != membersMax-1 {
		t.Fatalf("%d members are counted", consumers.members)
	}
	consumers.members = 0

	subscribe := func(group string, version int64, topics ...string) error {
		data := &consumerData{group: group, subscriptions: make(map[string]*SubscriptionData)}
		for _, topic := range topics {
			data.subscriptions[topic] = &SubscriptionData{Topic: topic, TagsSet: []string{"a", "b"}, CodeSet: map[int32]struct{}{1: {}}, SubVersion: version}
		}
		_, _, err := consumers.Register(newClientChannelInfo(session, "c", 0, 409, time.Now()), data)
		return err
	}
	if err := subscribe("g", 1, "T"); err != nil || consumers.bytes == 0 {
		t.Fatalf("%v, %d bytes", err, consumers.bytes)
	}
	consumers.bytes += subscriptionBytesMax
	if err := subscribe("g", 2, "T", "U"); err != errSubscriptions || len(consumers.Get("g").Subscriptions) != 1 {
		t.Fatalf("error %v; want the limit of subscriptions", err)
	}
	if err := subscribe("h", 1, "T"); err != errSubscriptions || consumers.Get("h") == nil || len(consumers.Get("h").Subscriptions) != 0 {
		t.Fatalf("error %v; a new group is there without its subscriptions: %+v", err, consumers.Get("h"))
	}
	if err := subscribe("g", 3, "T"); err != nil || consumers.Get("g").Subscriptions["T"].SubVersion != 3 {
		t.Fatalf("a change that takes no more: %v", err)
	}
	consumers.bytes -= subscriptionBytesMax
	if err := subscribe("h", 1, "T"); err != nil || len(consumers.Get("h").Subscriptions) != 1 {
		t.Fatalf("when there is room: %v", err)
	}
	consumers.SessionClosed(session)
	if consumers.bytes != 0 || consumers.Len() != 0 {
		t.Fatalf("%d bytes are left of a closed connection", consumers.bytes)
	}
	locks := newRebalanceLockManager()
	locks.TryLockBatch("g", "c", nil, time.Now())
	locks.count = rebalanceLocksMax
	if locked := locks.TryLockBatch("h", "c", []MessageQueue{{Topic: "T"}}, time.Now()); len(locked) != 0 || len(locks.locks) != 0 {
		t.Fatalf("locked %v, tables of groups %v", locked, locks.locks)
	}
	many := func(element string, n int) string { return strings.Repeat(element+",", n-1) + element }
	codes := []byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","codeSet":[0`)
	for i := range tagsMax {
		codes = fmt.Appendf(codes, ",%d", i+1)
	}
	if _, err := readHeartbeat(append(codes, `]}]}]}`...), noTopics); err == nil {
		t.Fatal("a subscription to more tags than there may be")
	}
	if _, err := readLockBatch([]byte(`{"clientId":"c","consumerGroup":"g","mqSet":[` + many("{}", lockQueuesMax+1) + `]}`)); err == nil {
		t.Fatal("a lock of more queues than a topic has")
	}
	if _, err := readLockBatch([]byte(`{"clientId":"c","consumerGroup":"g","mqSet":[` + many("{}", lockQueuesMax) + `]}`)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"topic", "brokerName"} {
		queue := fmt.Sprintf(`{"%s":"%s"}`, name, strings.Repeat("n", derivedTopicLengthMax+1))
		if _, err := readLockBatch([]byte(`{"clientId":"c","consumerGroup":"g","mqSet":[` + queue + `]}`)); err == nil {
			t.Fatalf("a lock of a queue with a %s that is longer than any", name)
		}
	}
}

// The short heartbeat of a 5.x client leaves the subscriptions as they are.
func TestHeartbeatWithoutSubscriptions(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, c.call(remoting.HeartBeat, []byte(`{"clientID":"c1","heartbeatFingerprint":7,"withoutSub":true,"consumerDataSet":[{"groupName":"g"}]}`)), remoting.Success)
	if info := b.consumers.Get("g"); info == nil || len(info.Subscriptions) != 2 {
		t.Fatalf("group %+v", info)
	}
}

// Bad bodies get an answer that says so, and cost nobody anything.
func TestBadBodiesAreRefused(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for _, text := range []string{
		"", "{", "null", "garbage", `{"clientID":7}x`, `{"clientID":""}`, `{"clientID":"c","consumerDataSet":[{"groupName":"a b"}]}`,
		`{"clientID":"c","producerDataSet":[{"groupName":""}]}`, `{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"é"}]}`,
		`{"clientID":"` + strings.Repeat("c", clientIDLengthMax+1) + `"}`, strings.Repeat(`{"clientID":`, 100_000), strings.Repeat("[", 1<<20),
		`{"clientID":"c","x":"` + strings.Repeat("x", loopBodyMax) + `"}`, "\x00\xff\xfe",
	} {
		wantCode(t, c.call(remoting.HeartBeat, []byte(text)), remoting.SystemError)
		wantCode(t, c.call(remoting.LockBatchMQ, []byte(text)), remoting.SystemError)
		wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(text)), remoting.SystemError)
	}
	if b.consumers.Len() != 0 || b.producers.Len() != 0 {
		t.Fatal("a refused heartbeat left a client")
	}
	wantCode(t, c.call(remoting.CheckClientConfig, []byte(`{"subscriptionData":{"expressionType":"TAG"}}`)), remoting.Success)
	wantCode(t, c.call(remoting.CheckClientConfig, []byte(`{"clientId":"c","group":"g","subscriptionData":{"expressionType":"SQL92","subString":"a > 1"}}`)), remoting.SystemError)
	wantCode(t, c.call(remoting.CheckClientConfig, []byte(`{`)), remoting.SystemError)
	// Header fields that are missing or no numbers.
	for _, code := range []int32{
		remoting.QueryConsumerOffset, remoting.UpdateConsumerOffset, remoting.GetMaxOffset, remoting.GetMinOffset, remoting.SearchOffsetByTimestamp,
		remoting.GetEarliestMsgStoreTime, remoting.UpdateAndCreateTopic, remoting.DeleteTopicInBroker, remoting.DeleteSubscriptionGroup,
		remoting.GetConsumeStats, remoting.InvokeBrokerToResetOffset, remoting.InvokeBrokerToGetConsumerStatus, remoting.QueryConsumeQueue,
		remoting.GetConsumerRunningInfo, remoting.ConsumeMessageDirectly, remoting.QueryCorrectionOffset, remoting.CloneGroupOffset,
		remoting.ViewBrokerStatsData, remoting.QueryConsumeTimeSpan, remoting.GetTopicStatsInfo,
	} {
		wantCode(t, c.call(code, nil), remoting.SystemError)
	}
	for _, code := range []int32{
		remoting.QueryConsumerOffset, remoting.UpdateConsumerOffset, remoting.GetMaxOffset, remoting.GetMinOffset, remoting.SearchOffsetByTimestamp,
		remoting.GetEarliestMsgStoreTime, remoting.UpdateAndCreateTopic, remoting.InvokeBrokerToResetOffset, remoting.QueryConsumeQueue,
	} {
		wantCode(t, c.call(code, nil, "topic", "T", "consumerGroup", "g", "queueId", "x", "timestamp", "y", "readQueueNums", "z"), remoting.SystemError)
	}
}

// What is not legal in a heartbeat takes nothing else of the client down, and is said once, not every 30 s.
func TestHeartbeatWithIllegalParts(t *testing.T) {
	b, _, _, log := startLoggedBroker(t, func(*Config) {})
	c := b.dial()
	beat := func(consumers, producers string) *remoting.Command {
		return c.call(remoting.HeartBeat, []byte(`{"clientID":"c1","consumerDataSet":[`+consumers+`],"producerDataSet":[`+producers+`]}`))
	}
	consumer := func(group, how, subscriptions string) string {
		return `{"groupName":"` + group + `","consumeType":"` + how + `","subscriptionDataSet":[` + subscriptions + `]}`
	}
	wantGroups := func(topics string, groups ...string) {
		t.Helper()
		for _, group := range groups {
			if info := b.consumers.Get(group); info == nil || fmt.Sprint(slices.Sorted(maps.Keys(info.Subscriptions))) != topics {
				t.Fatalf("%s: %+v; want a subscription to %s", group, info, topics)
			}
		}
		if n := b.consumers.Len(); n != len(groups) || b.producers.Get("p") == nil || b.producers.Len() != 1 {
			t.Fatalf("%d groups of consumers, %d of producers", n, b.producers.Len())
		}
		wantCode(t, c.call(remoting.UnregisterClient, nil, "clientID", "c1", "producerGroup", "p"), remoting.Success)
		for _, group := range groups {
			wantCode(t, c.call(remoting.UnregisterClient, nil, "clientID", "c1", "consumerGroup", group), remoting.Success)
		}
	}
	const legal, producer = `{"topic":"T"},{"topic":"U"}`, `{"groupName":"p"}`
	for _, illegal := range []string{
		`{"topic":"a/b"}`, `{"topic":"a.b","codeSet":[1],"tagsSet":["x"]}`, `{}`, `{"topic":null}`, `{"topic":"X","expressionType":"é"}`,
		`{"topic":"` + strings.Repeat("t", 1000) + `"}`,
	} {
		wantCode(t, beat(consumer("g", "CONSUME_PASSIVELY", illegal+","+legal)+","+consumer("h", "CONSUME_PASSIVELY", legal), producer), remoting.Success)
		wantGroups("[T U]", "g", "h")
	}
	for _, illegal := range []string{consumer("a b", "CONSUME_PASSIVELY", legal), consumer("", "CONSUME_PASSIVELY", legal), consumer("x", "é", legal), consumer("x", "7", legal)} {
		wantCode(t, beat(illegal+","+consumer("g", "CONSUME_PASSIVELY", legal), producer), remoting.SystemError)
		wantGroups("[T U]", "g")
	}
	wantCode(t, beat(consumer("g", "CONSUME_PASSIVELY", legal), `{"groupName":"a b"},`+producer), remoting.SystemError)
	wantGroups("[T U]", "g")
	// Nothing is illegal in the name of a topic that is there: those of a broker and a cluster have dots.
	if err := b.topics.table.change(map[string]*TopicConfig{"host.name": newTopicConfig("host.name", 1, 6)}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, beat(consumer("g", "CONSUME_PASSIVELY", `{"topic":"host.name"}`), producer), remoting.Success)
	wantGroups("[host.name]", "g")
	// What is no JSON says nothing of the rest.
	wantCode(t, beat(consumer("g", "CONSUME_PASSIVELY", legal), producer+`,{"groupName":`), remoting.SystemError)
	if b.consumers.Len()+b.producers.Len() != 0 {
		t.Fatal("a broken heartbeat left a client")
	}
	if n := len(log.with("not legal and passed over")); n == 0 || n > 5 { // of 11; one a minute
		t.Fatalf("said %d times", n)
	}
}

// Where a group without an offset starts. Source: ConsumerManageProcessor#queryConsumerOffset.
func TestQueryConsumerOffset(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 2)
	sendTo(t, b, c, "T", 0, 3)
	query := func(queueID string, more ...string) *remoting.Command {
		t.Helper()
		return c.call(remoting.QueryConsumerOffset, nil, append([]string{"consumerGroup", "g", "topic", "T", "queueId", queueID}, more...)...)
	}
	update := func(offset string) {
		t.Helper()
		wantCode(t, c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", offset), remoting.Success)
	}
	wantField(t, query("0"), "offset", "0") // young: from its start, whatever the client wishes
	wantField(t, query("1"), "offset", "0") // empty
	wantField(t, query("9"), "offset", "0") // missing
	wantField(t, query("0", "setZeroIfNotFound", "true"), "offset", "0")
	wantCode(t, query("0", "setZeroIfNotFound", "false"), remoting.QueryNotFound)
	update("2")
	wantField(t, query("0"), "offset", "2")
	wantField(t, query("0", "setZeroIfNotFound", "false"), "offset", "2")
	update("1") // backwards: an operator's reset
	wantField(t, query("0"), "offset", "1")
	update("0")
	wantField(t, query("0"), "offset", "0")
	b.restart()
	c = b.dial()
	wantField(t, query("0", "setZeroIfNotFound", "false"), "offset", "0")
	for _, bad := range [][]string{
		{"consumerGroup", "g", "topic", "gone", "queueId", "0", "commitOffset", "1"},
		{"consumerGroup", "a@b", "topic", "T", "queueId", "0", "commitOffset", "1"},
		{"consumerGroup", "g", "topic", "T", "queueId", "-1", "commitOffset", "1"},
		{"consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "-1"},
		{"consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "9223372036854775808"},
	} {
		if resp := c.call(remoting.UpdateConsumerOffset, nil, bad...); resp.Code == remoting.Success {
			t.Fatalf("%v was stored", bad)
		}
	}
}

// Made-up names take no place in the table of offsets, and its limit is said.
func TestOffsetsOfMadeUpNames(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 0, nil, "")
	commit := func(group, topic string, queueID int32) *remoting.Command {
		t.Helper()
		return c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", fmt.Sprint(queueID), "commitOffset", "1")
	}
	wantRemark(t, "an unknown topic", commit("g", "U", 0), remoting.TopicNotExist, "U")
	queues := b.topics.Get("T").ReadQueueNums
	wantRemark(t, "a queue beyond the topic's", commit("g", "T", queues), remoting.SystemError, "queueId")
	wantCode(t, commit("g", "T", queues-1), remoting.Success)
	if b.groups.Get("g") == nil {
		t.Error("offsets of a group that is not there")
	}
	cfg := *b.Config()
	cfg.AutoCreateSubscriptionGroup = false
	b.useConfig(&cfg)
	wantRemark(t, "a group that must be made first", commit("h", "T", 0), remoting.SubscriptionGroupNotExist, "h")
	wantCode(t, commit("g", "T", 0), remoting.Success)
	entries := b.offsets.entries.Swap(offsetEntriesMax)
	wantRemark(t, "a new queue at the limit", commit("g", "T", 1), remoting.SystemError, "limit")
	if n := b.offsets.refused.Load(); n != 1 {
		t.Errorf("%d offsets counted as refused", n)
	}
	wantCode(t, commit("g", "T", 0), remoting.Success)
	if got := b.offsets.entries.Add(entries - offsetEntriesMax); got != 2 {
		t.Errorf("%d offsets; want 2", got)
	}
}

// Once the first messages of a queue are gone, it is the client that decides where a group starts.
func TestQueryConsumerOffsetOfAnOldQueue(t *testing.T) {
	disk, root := faultfs.New(), "/store"
	cfg := testConfig(root)
	cfg.Store.MappedFileSizeCommitLog = 1 << 20
	b := &testBroker{t: t, cfg: cfg, fs: disk}
	b.start()
	t.Cleanup(b.stop)
	c := b.dial()
	createTopic(t, c, "T", 1)
	for range 3 {
		wantCode(t, c.call(remoting.SendMessageV2, make([]byte, 600<<10), sendV2("T", 0, "")...), remoting.Success)
	}
	b.dispatched()
	wantField(t, c.call(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"), "offset", "0")
	disk.SetCapacity(disk.Used() * 100 / 87) // above the mark where old files go whatever their age
	wantCode(t, c.call(remoting.DeleteExpiredCommitLog, nil), remoting.Success)
	eventually(t, "old files are deleted", func() bool { first, _, _ := b.store.QueueOffsets("T", 0); return first > 0 })
	wantCode(t, c.call(remoting.QueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"), remoting.QueryNotFound)
	wantField(t, c.call(remoting.GetMinOffset, nil, "topic", "T", "queueId", "0"), "offset", "2") // of the last file
}

func TestQueueBounds(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 1)
	before := time.Now().UnixMilli() - 1000
	sendTo(t, b, c, "T", 0, 3)
	ask := func(code int32, topic string, more ...string) *remoting.Command {
		t.Helper()
		return c.call(code, nil, append([]string{"topic", topic, "queueId", "0"}, more...)...)
	}
	wantField(t, ask(remoting.GetMaxOffset, "T"), "offset", "3")
	wantField(t, ask(remoting.GetMinOffset, "T"), "offset", "0")
	wantField(t, ask(remoting.GetMaxOffset, "none"), "offset", "0")
	wantField(t, ask(remoting.GetMinOffset, "none"), "offset", "0")
	wantField(t, ask(remoting.SearchOffsetByTimestamp, "T", "timestamp", fmt.Sprint(before)), "offset", "0")
	wantField(t, ask(remoting.SearchOffsetByTimestamp, "T", "timestamp", fmt.Sprint(math.MaxInt64)), "offset", "3")
	wantField(t, ask(remoting.SearchOffsetByTimestamp, "T", "timestamp", fmt.Sprint(math.MaxInt64), "boundaryType", "upper"), "offset", "2")
	wantField(t, ask(remoting.SearchOffsetByTimestamp, "none", "timestamp", "0"), "offset", "0")
	wantField(t, ask(remoting.GetEarliestMsgStoreTime, "none"), "timestamp", "-1")
	if at, err := ask(remoting.GetEarliestMsgStoreTime, "T").Ext.Int64("timestamp", 0); err != nil || at < before {
		t.Fatalf("earliest message at %d, %v", at, err)
	}
}

func TestQueueLocks(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	lock := func(code int32, client string, queues ...int) *remoting.Command {
		t.Helper()
		var w jsonWriter
		w.beginObject()
		w.strMember("clientId", client)
		w.strMember("consumerGroup", "g")
		w.key("mqSet")
		w.beginArray()
		for _, q := range queues {
			w.element()
			w.queue(MessageQueue{Topic: "T", BrokerName: "broker-a", QueueID: int32(q)})
		}
		w.endArray()
		w.boolMember("onlyThisBroker", false)
		w.endObject()
		return c.call(code, w.b)
	}
	queue := func(n int) string { return fmt.Sprintf(`{"brokerName":"broker-a","queueId":%d,"topic":"T"}`, n) }
	wantBody(t, lock(remoting.LockBatchMQ, "c1", 0, 1), `{"lockOKMQSet":[`+queue(0)+`,`+queue(1)+`]}`)
	wantBody(t, lock(remoting.LockBatchMQ, "c2", 1, 2), `{"lockOKMQSet":[`+queue(2)+`]}`)
	wantBody(t, lock(remoting.LockBatchMQ, "c1", 1), `{"lockOKMQSet":[`+queue(1)+`]}`)
	wantCode(t, lock(remoting.UnlockBatchMQ, "c2", 1), remoting.Success) // not his
	wantBody(t, lock(remoting.LockBatchMQ, "c2", 1), `{"lockOKMQSet":[]}`)
	wantCode(t, lock(remoting.UnlockBatchMQ, "c1", 1), remoting.Success)
	wantBody(t, lock(remoting.LockBatchMQ, "c2", 1), `{"lockOKMQSet":[`+queue(1)+`]}`)
}

func TestQueueLocksExpire(t *testing.T) {
	m := newRebalanceLockManager()
	q := []MessageQueue{{Topic: "T", BrokerName: "b"}}
	now := time.Now()
	f := func(client string, after time.Duration, want int) {
		t.Helper()
		if got := len(m.TryLockBatch("g", client, q, now.Add(after))); got != want {
			t.Fatalf("%s after %v: %d locked; want %d", client, after, got, want)
		}
	}
	f("c1", 0, 1)
	f("c2", 60*time.Second, 0)
	f("c1", 30*time.Second, 1) // renewed
	f("c2", 90*time.Second, 0)
	f("c2", 91*time.Second, 1)
	m.Expire(now.Add(2 * time.Minute))
	f("c1", 2*time.Minute, 0)
	m.Expire(now.Add(4 * time.Minute))
	if len(m.locks) != 0 || m.count != 0 {
		t.Fatalf("%d locks, counted %d, are left", len(m.locks), m.count)
	}
	m.count = rebalanceLocksMax
	f("c1", 5*time.Minute, 0)
}

func TestTopicsByTool(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 4)
	wantBody(t, c.call(remoting.GetTopicConfig, nil, "topic", "T", "lo", "true"),
		`{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}`)
	wantCode(t, c.call(remoting.GetTopicConfig, nil, "topic", "none"), remoting.TopicNotExist)
	wantCode(t, c.call(remoting.UpdateAndCreateTopic, nil, "topic", "T", "readQueueNums", "8", "writeQueueNums", "2", "perm", "4", "order", "true",
		"topicFilterType", "MULTI_TAG", "topicSysFlag", "1", "attributes", "+message.type=FIFO,+x=y"), remoting.Success)
	wantCode(t, c.call(remoting.UpdateAndCreateTopic, nil, "topic", "T", "readQueueNums", "8", "writeQueueNums", "2", "perm", "4", "order", "true",
		"topicFilterType", "MULTI_TAG", "topicSysFlag", "1", "attributes", "-x"), remoting.Success)
	wantBody(t, c.call(remoting.GetTopicConfig, nil, "topic", "T"), `{"attributes":{"message.type":"FIFO"},"order":true,"perm":4,"readQueueNums":8,`+
		`"topicFilterType":"MULTI_TAG","topicName":"T","topicSysFlag":1,"writeQueueNums":2}`)
	for _, bad := range [][]string{
		{"topic", "TBW102", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"},
		{"topic", "broker-a", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"},
		{"topic", "rmq_sys_x", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"},
		{"topic", "a b", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"},
		{"topic", strings.Repeat("x", 128), "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"},
		{"topic", "U", "readQueueNums", "-1", "writeQueueNums", "1", "perm", "6"},
		{"topic", "U", "readQueueNums", "1", "writeQueueNums", "65537", "perm", "6"},
		{"topic", "U", "readQueueNums", "1", "writeQueueNums", "1", "perm", "99"},
		{"topic", "U", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6", "attributes", "x=y"},
	} {
		wantCode(t, c.call(remoting.UpdateAndCreateTopic, nil, bad...), remoting.SystemError)
	}
	wantCode(t, c.call(remoting.UpdateAndCreateTopicList, []byte(`{"topicConfigList":[{"topicName":"L1","perm":6,"readQueueNums":1,"writeQueueNums":1},{"topicName":"L 2"}]}`)), remoting.SystemError)
	if b.topics.Get("L1") != nil {
		t.Fatal("half of a list was taken")
	}
	wantCode(t, c.call(remoting.UpdateAndCreateTopicList, []byte(`{"topicConfigList":[{"topicName":"L1","perm":6,"readQueueNums":1,"writeQueueNums":1},{"topicName":"L2"}]}`)), remoting.Success)
	if b.topics.Get("L1") == nil || b.topics.Get("L2") == nil {
		t.Fatal("a list was not taken")
	}
	wantBodyLike(t, c.call(remoting.GetAllTopicConfig, nil), `\{"dataVersion":\{"counter":4,"timestamp":\d+\},"topicConfigTable":\{"BenchmarkTest":.*\}\}`)
	wantBody(t, c.call(remoting.GetSystemTopicListFromBroker, nil), `{"topicList":["BenchmarkTest","DefaultCluster","DefaultCluster_REPLY_TOPIC",`+
		`"OFFSET_MOVED_EVENT","RMQ_SYS_TRACE_TOPIC","RMQ_SYS_TRANS_HALF_TOPIC","RMQ_SYS_TRANS_OP_HALF_TOPIC","SCHEDULE_TOPIC_XXXX","SELF_TEST_TOPIC","TBW102",`+
		`"TRANS_CHECK_MAX_TIME_TOPIC","broker-a"]}`)
}

// A deleted topic takes its queues and offsets along; one of its name created later starts afresh.
func TestDeleteTopic(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 1)
	createTopic(t, c, "other", 1)
	sendTo(t, b, c, "T", 0, 5)
	sendTo(t, b, c, "other", 0, 1)
	commit := func(offset string) int32 {
		return c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", offset).Code
	}
	if commit("5") != remoting.Success {
		t.Fatal("commit")
	}
	for _, bad := range []string{"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "a/b", ""} {
		wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", bad), remoting.SystemError)
	}
	wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", "none"), remoting.Success)
	wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", "T"), remoting.Success)
	if got := commit("5"); got != remoting.TopicNotExist {
		t.Fatalf("a late commit brought offsets back: %d", got)
	}
	wantCode(t, c.call(remoting.GetTopicStatsInfo, nil, "topic", "T"), remoting.TopicNotExist)
	createTopic(t, c, "T", 1)
	wantField(t, c.call(remoting.GetMaxOffset, nil, "topic", "T", "queueId", "0"), "offset", "0")
	sendTo(t, b, c, "T", 0, 2)
	wantField(t, c.call(remoting.GetMaxOffset, nil, "topic", "T", "queueId", "0"), "offset", "2")
	if commit("2") != remoting.Success {
		t.Fatal("commit")
	}
	wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", "T"), remoting.Success)
	b.restart()
	if b.topics.Get("T") != nil || b.offsets.Query("g", "T", 0) != -1 {
		t.Fatal("topic or offset is back after a restart")
	}
}

func TestGroupsByTool(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"g","consumeBroadcastEnable":false,"retryMaxTimes":3,"consumeTimeoutMinute":15}`)), remoting.Success)
	want := `{"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"g",` +
		`"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1,"consumeTimeoutMinute":15}`
	wantBody(t, c.call(remoting.GetSubscriptionGroupConfig, nil, "group", "g"), want)
	b.restart()
	c = b.dial()
	wantBody(t, c.call(remoting.GetSubscriptionGroupConfig, nil, "group", "g"), want)
	wantCode(t, c.call(remoting.GetSubscriptionGroupConfig, nil, "group", "a b"), remoting.SubscriptionGroupNotExist)
	wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"g","retryQueueNums":-1}`)), remoting.SystemError)
	wantCode(t, c.call(remoting.UpdateAndCreateSubscriptionGroupList, []byte(`{"groupConfigList":[{"groupName":"l1"},{"groupName":"l2"}]}`)), remoting.Success)
	wantBodyLike(t, c.call(remoting.GetAllSubscriptionGroupConfig, nil), `\{"dataVersion":\{"counter":2,"timestamp":\d+\},"subscriptionGroupTable":\{"CID_ONS-HTTP-PROXY":.*"l2":.*\}\}`)
	createTopic(t, c, "T", 1)
	wantCode(t, c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "1"), remoting.Success)
	wantCode(t, c.call(remoting.DeleteSubscriptionGroup, nil, "groupName", "g"), remoting.Success)
	if b.groups.Get("g") != nil || b.offsets.Query("g", "T", 0) != 1 {
		t.Fatal("the group stayed, or its offsets went unasked")
	}
	for _, flag := range []string{"removeOffset", "cleanOffset"} {
		wantCode(t, c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "1"), remoting.Success)
		wantCode(t, c.call(remoting.DeleteSubscriptionGroup, nil, "groupName", "g", flag, "true"), remoting.Success)
		if b.offsets.Query("g", "T", 0) != -1 {
			t.Fatalf("%s left the offsets", flag)
		}
	}
}

// What tools read about topics and groups, to the byte.
func TestStatisticsBodies(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 2)
	sendTo(t, b, c, "T", 1, 3)
	wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "a", 7)), remoting.Success)
	wantCode(t, c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "1", "commitOffset", "2"), remoting.Success)
	queue := func(n int) string { return fmt.Sprintf(`\{"brokerName":"broker-a","queueId":%d,"topic":"T"\}`, n) }

	wantBodyLike(t, c.call(remoting.GetTopicStatsInfo, nil, "topic", "T"), `\{"offsetTable":\{`+queue(0)+`:\{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0\},`+
		queue(1)+`:\{"lastUpdateTimestamp":\d{13},"maxOffset":3,"minOffset":0\}\},"topicPutTps":[\d.]+\}`)
	stats := `\{"consumeTps":[\d.]+,"offsetTable":\{` + queue(0) + `:\{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0\},` +
		queue(1) + `:\{"brokerOffset":3,"consumerOffset":2,"lastTimestamp":\d{13},"pullOffset":2\}\}\}`
	wantBodyLike(t, c.call(remoting.GetConsumeStats, nil, "consumerGroup", "g"), stats)
	wantBodyLike(t, c.call(remoting.GetConsumeStats, nil, "consumerGroup", "g", "topic", "T"), stats)
	wantBodyLike(t, c.call(remoting.GetConsumeStats, nil, "consumerGroup", "g", "topicList", "T;none;T"), stats)
	wantBody(t, c.call(remoting.GetConsumeStats, nil, "consumerGroup", "nobody"), `{"consumeTps":0.0,"offsetTable":{}}`)
	wantBodyLike(t, c.call(remoting.GetBrokerConsumeStats, nil, "isOrder", "false"), `\{"brokerAddr":"127.0.0.1:\d+","consumeStatsList":\[.*\{"g":\[`+stats+`\]\}\],"totalDiff":1\}`)
	wantBodyLike(t, c.call(remoting.GetBrokerConsumeStats, nil, "isOrder", "true"), `\{"brokerAddr":"127.0.0.1:\d+","consumeStatsList":\[.*\{"g":\[\]\}\],"totalDiff":0\}`)
	wantBodyLike(t, c.call(remoting.QueryConsumeTimeSpan, nil, "topic", "T", "group", "g"), `\{"consumeTimeSpanSet":\[\{"consumeTimeStamp":-1,"delayTime":0,"maxTimeStamp":0,"messageQueue":`+
		queue(0)+`,"minTimeStamp":-1\},\{"consumeTimeStamp":\d{13},"delayTime":\d+,"maxTimeStamp":\d{13},"messageQueue":`+queue(1)+`,"minTimeStamp":\d{13}\}\]\}`)

	b.offsets.Commit("left", "T", 1, 1)
	wantBody(t, c.call(remoting.QueryTopicConsumeByWho, nil, "topic", "T"), `{"groupList":["g","left"]}`)
	wantBodyLike(t, c.call(remoting.QueryTopicsByConsumer, nil, "group", "g"), `\{"brokerAddr":"127.0.0.1:\d+","topicList":\["T"\]\}`)
	sub := `{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG","subString":"a","subVersion":7,"tagsSet":["a"],"topic":"T"}`
	wantBody(t, c.call(remoting.QuerySubscriptionByConsumer, nil, "group", "g", "topic", "T"), `{"group":"g","subscriptionData":`+sub+`,"topic":"T"}`)
	wantBody(t, c.call(remoting.QuerySubscriptionByConsumer, nil, "group", "left", "topic", "T"), `{"group":"left","topic":"T"}`)
	wantBody(t, c.call(remoting.QueryCorrectionOffset, nil, "topic", "T", "compareGroup", "g", "filterGroups", "x"), `{"correctionOffsets":{1:1}}`)
	wantBody(t, c.call(remoting.QueryCorrectionOffset, nil, "topic", "T", "compareGroup", "left", "filterGroups", "left"), `{"correctionOffsets":{1:9223372036854775807}}`)

	connection := func(version string) string {
		return `\{"clientAddr":"127.0.0.1:\d+","clientId":"c1","language":"JAVA","version":` + version + `\}`
	}
	wantBodyLike(t, c.call(remoting.GetConsumerConnectionList, nil, "consumerGroup", "g"), `\{"connectionSet":\[`+connection("409")+`\],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",`+
		`"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":\{"%RETRY%g":\{.*\},"T":`+regexp.QuoteMeta(sub)+`\}\}`)
	wantCode(t, c.call(remoting.GetConsumerConnectionList, nil, "consumerGroup", "left"), remoting.ConsumerNotOnline)
	wantBodyLike(t, c.call(remoting.GetProducerConnectionList, nil, "producerGroup", "CLIENT_INNER_PRODUCER"), `\{"connectionSet":\[`+connection("409")+`\]\}`)
	wantCode(t, c.call(remoting.GetProducerConnectionList, nil, "producerGroup", "none"), remoting.SystemError)
	wantBodyLike(t, c.call(remoting.GetAllProducerInfo, nil), `\{"data":\{"CLIENT_INNER_PRODUCER":\[\{"clientId":"c1","language":"JAVA","lastUpdateTimestamp":\d{13},"remoteIP":"/127.0.0.1:\d+","version":409\}\]\}\}`)

	wantBodyLike(t, c.call(remoting.QueryConsumeQueue, nil, "topic", "T", "queueId", "1", "index", "1", "count", "9", "consumerGroup", "g"),
		`\{"maxQueueIndex":3,"minQueueIndex":0,"queueData":\[(\{"eval":true,"physicOffset":\d+,"physicSize":\d+,"tagsCode":97\},?){2}\],"subscriptionData":`+regexp.QuoteMeta(sub)+`\}`)
	wantBodyLike(t, c.call(remoting.QueryConsumeQueue, nil, "topic", "T", "queueId", "1", "index", "0", "count", "1", "consumerGroup", "left"),
		`\{"filterData":"left@T is not online!","maxQueueIndex":3,.*"queueData":\[\{"eval":true,.*\}\]\}`)
	wantCode(t, c.call(remoting.QueryConsumeQueue, nil, "topic", "none", "queueId", "1", "index", "0", "count", "1"), remoting.SystemError)
	wantBodyLike(t, c.call(remoting.GetAllConsumerOffset, nil), `\{"dataVersion":\{.*\},"loopmqVersion":"[-\d]+","offsetTable":\{"T@g":\{1:2\},"T@left":\{1:1\}\}\}`)
	wantBodyLike(t, c.call(remoting.GetAllDelayOffset, nil), `\{"offsetTable":\{.*\}\}`)

	eventually(t, "puts are counted", func() bool {
		return c.call(remoting.ViewBrokerStatsData, nil, "statsName", "BROKER_PUT_NUMS", "statsKey", "DefaultCluster").Code == remoting.Success
	})
	wantBodyLike(t, c.call(remoting.ViewBrokerStatsData, nil, "statsName", "TOPIC_PUT_NUMS", "statsKey", "T"),
		`\{"statsDay":\{"avgpt":1.0,"sum":3,"tps":[\d.]+\},"statsHour":\{"avgpt":1.0,"sum":3,"tps":[\d.]+\},"statsMinute":\{"avgpt":1.0,"sum":3,"tps":[\d.]+\}\}`)
	wantCode(t, c.call(remoting.ViewBrokerStatsData, nil, "statsName", "TOPIC_PUT_NUMS", "statsKey", "none"), remoting.SystemError)
	wantCode(t, c.call(remoting.ViewBrokerStatsData, nil, "statsName", "none", "statsKey", "T"), remoting.SystemError)

	wantCode(t, c.call(remoting.CloneGroupOffset, nil, "srcGroup", "g", "destGroup", "copy", "topic", "", "offline", "true"), remoting.Success)
	if b.offsets.Query("copy", "T", 1) != 2 {
		t.Fatal("offsets not cloned")
	}
	for _, code := range []int32{remoting.CleanExpiredConsumeQueue, remoting.CleanUnusedTopic, remoting.DeleteExpiredCommitLog} {
		wantCode(t, c.call(code, nil), remoting.Success)
	}
	wantField(t, c.call(remoting.GetMaxOffset, nil, "topic", "T", "queueId", "1"), "offset", "3")
}

func TestResetOffset(t *testing.T) {
	b := startTestBroker(t, nil)
	tool := b.dial()
	createTopic(t, tool, "T", 1)
	sendTo(t, b, tool, "T", 0, 4)
	reset := func(fields ...string) *remoting.Command {
		t.Helper()
		return tool.call(remoting.InvokeBrokerToResetOffset, nil, append([]string{"topic", "T", "group", "g"}, fields...)...)
	}
	wantCode(t, reset("timestamp", "-1", "isForce", "true"), remoting.SystemError) // no offset stored
	b.offsets.Commit("g", "T", 0, 2)
	wantCode(t, reset("timestamp", "-1", "isForce", "true"), remoting.ConsumerNotOnline)
	wantCode(t, tool.call(remoting.InvokeBrokerToResetOffset, nil, "topic", "none", "group", "g", "timestamp", "0"), remoting.SystemError)

	consumer, cpp := b.dial(), b.dial()
	cpp.language = languageCPP
	wantCode(t, consumer.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, cpp.call(remoting.HeartBeat, heartbeat("c2", "g", "T", "*", 1)), remoting.Success)
	f := func(want int, fields ...string) {
		t.Helper()
		native := fmt.Sprintf(`{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}}`, want)
		wantBody(t, reset(fields...), native)
		push := consumer.push(remoting.ResetConsumerClientOffset)
		if string(push.Body) != native || push.Ext.String("topic") != "T" || push.Ext.String("group") != "g" || !push.IsOneway() {
			t.Fatalf("push %s %v", push.Body, push.Ext)
		}
		list := fmt.Sprintf(`{"offsetTable":[{"brokerName":"broker-a","offset":%d,"queueId":0,"topic":"T"}]}`, want)
		if push := cpp.push(remoting.ResetConsumerClientOffset); string(push.Body) != list {
			t.Fatalf("push to a C++ client %s; want %s", push.Body, list)
		}
	}
	f(0, "timestamp", "0", "isForce", "true")
	f(4, "timestamp", "-1", "isForce", "true")
	f(2, "timestamp", "-1", "isForce", "false") // only backwards
	f(0, "timestamp", "0", "isForce", "false")
	f(3, "timestamp", "0", "isForce", "true", "queueId", "0", "offset", "3") // 5.x
	if b.offsets.Query("g", "T", 0) != 2 {
		t.Fatal("the broker moved the offset itself: clients do")
	}
	cpp.version = 20
	cpp.close()
	old := b.dial()
	old.version = 20
	wantCode(t, old.call(remoting.HeartBeat, heartbeat("c3", "g", "T", "*", 1)), remoting.Success)
	wantCode(t, reset("timestamp", "0", "isForce", "true"), remoting.SystemError)
}

// Requests that a client answers through the broker.
func TestRelays(t *testing.T) {
	b := startTestBroker(t, nil)
	tool, consumer := b.dial(), b.dial()
	createTopic(t, tool, "T", 1)
	sent := tool.call(remoting.SendMessageV2, []byte("hello"), sendV2("T", 0, "TAGS\x01a")...)
	wantCode(t, sent, remoting.Success)
	msgID := sent.Ext.String("msgId")
	wantCode(t, consumer.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)

	running := tool.start(tool.request(remoting.GetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", "c1", "jstackEnable", "true"))[0]
	push := consumer.push(remoting.GetConsumerRunningInfo)
	if push.Ext.String("jstackEnable") != "true" || push.IsOneway() {
		t.Fatalf("push %v", push.Ext)
	}
	answerPush(t, consumer, push, remoting.Success, `{"jstack":"…"}`)
	wantBody(t, tool.await(running), `{"jstack":"…"}`)

	directly := tool.start(tool.request(remoting.ConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", "c1", "msgId", msgID))[0]
	push = consumer.push(remoting.ConsumeMessageDirectly)
	var record message.Record
	if err := message.Decode(push.Body, &record); err != nil || string(record.Body) != "hello" || push.Ext.String("brokerName") != "broker-a" {
		t.Fatalf("push of %q to %s, %v", record.Body, push.Ext.String("brokerName"), err)
	}
	answerPush(t, consumer, push, 17, `{"consumeResult":"CR_LATER"}`)
	if resp := tool.await(directly); resp.Code != 17 || string(resp.Body) != `{"consumeResult":"CR_LATER"}` {
		t.Fatalf("code %d %s", resp.Code, resp.Body)
	}
	wantCode(t, tool.call(remoting.ConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", "c1", "msgId", "zz"), remoting.SystemError)
	wantCode(t, tool.call(remoting.ConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", "c1", "msgId", msgID[:16]+"00000000000FFFFF"), remoting.SystemError)
	wantCode(t, tool.call(remoting.ConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", "c1", "msgId", msgID[:16]+"0000000000000001"), remoting.SystemError)
	wantCode(t, tool.call(remoting.GetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", "other"), remoting.SystemError)
	wantCode(t, tool.call(remoting.GetConsumerRunningInfo, nil, "consumerGroup", "none", "clientId", "c1"), remoting.SystemError)

	two := b.dial()
	wantCode(t, two.call(remoting.HeartBeat, heartbeat("c2", "g", "T", "*", 1)), remoting.Success)
	status := tool.start(tool.request(remoting.InvokeBrokerToGetConsumerStatus, nil, "topic", "T", "group", "g"))[0]
	table := `{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}`
	answerPush(t, two, two.push(remoting.GetConsumerStatusFromClient), remoting.Success, fmt.Sprintf(`{"messageQueueTable":`+table+`}`, 5))
	answerPush(t, consumer, consumer.push(remoting.GetConsumerStatusFromClient), remoting.Success, fmt.Sprintf(`{"messageQueueTable":`+table+`}`, 7))
	wantBody(t, tool.await(status), fmt.Sprintf(`{"consumerTable":{"c1":`+table+`,"c2":`+table+`}}`, 7, 5))
	status = tool.start(tool.request(remoting.InvokeBrokerToGetConsumerStatus, nil, "topic", "T", "group", "g", "clientAddr", "c2"))[0]
	answerPush(t, two, two.push(remoting.GetConsumerStatusFromClient), remoting.Success, `garbage`)
	wantBody(t, tool.await(status), `{"consumerTable":{}}`)

	// A client that goes away while the tool waits.
	running = tool.start(tool.request(remoting.GetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", "c1"))[0]
	consumer.push(remoting.GetConsumerRunningInfo)
	consumer.reset()
	wantCode(t, tool.await(running), remoting.ConsumeMsgTimeout)
}

// The exporter shows nothing of a broker that lacks one of these, or has it in another form.
func TestRuntimeInfo(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	createTopic(t, c, "T", 1)
	sendTo(t, b, c, "T", 0, 3)
	var info struct{ Table map[string]string }
	if err := json.Unmarshal([]byte(body(t, c.call(remoting.GetBrokerRuntimeInfo, nil))), &info); err != nil {
		t.Fatal(err)
	}
	const integer, rates = `-?\d+`, `\d+\.\d+ \d+\.\d+ \d+\.\d+`
	want := map[string]string{
		"brokerVersion": "409", "brokerVersionDesc": "V4_9_8", "bootTimestamp": `\d{13}`,
		"runtime": `\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]`,
		"putTps":  rates, "getFoundTps": rates, "getMissTps": rates, "getTotalTps": rates, "getTransferedTps": rates, "getTransferredTps": rates,
		"putMessageDistributeTime": "null", "putMessageAverageSize": `\d+\.\d+`,
		"commitLogDiskRatio": `[01]\.\d+`, "consumeQueueDiskRatio": `[01]\.\d+`,
		"commitLogDirCapacity":     `Total : [\d.]+ \w+, Free : [\d.]+ \w+\.`,
		"remainHowManyDataToFlush": `[\d.]+ \w+`, "remainTransientStoreBufferNumbs": integer,
		"putMessageTimesTotal": "3", "msgPutTotalTodayNow": "3",
	}
	for _, key := range []string{
		"msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning",
		"putMessageEntireTimeMax", "putMessageSizeTotal", "putMessageFailedTimes", "getMessageEntireTimeMax", "dispatchMaxBuffer",
		"commitLogMinOffset", "commitLogMaxOffset", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills",
		"pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize",
		"queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills", "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
		"dispatchBehindBytes", "pageCacheLockTimeMills", "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp",
	} {
		want[key] = integer
	}
	for key, form := range want {
		if got, ok := info.Table[key]; !ok || !regexp.MustCompile("^"+form+"$").MatchString(got) {
			t.Errorf("%s is %q, %v; want the form %s", key, got, ok, form)
		}
	}
}

func TestJavaTexts(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%q; want %q", got, want)
		}
	}
	f(javaBytes(0), "0 B")
	f(javaBytes(1023), "1023 B")
	f(javaBytes(1536), "1.5 KiB")
	f(javaBytes(1<<30), "1.0 GiB")
	f(javaBytes(math.MaxInt64), "8.0 EiB")
	f(javaRuntime(26*time.Hour+3*time.Minute+4*time.Second), "[ 1 days, 2 hours, 3 minutes, 4 seconds ]")
}

// Configuration by tool: values come back as they were sent, also after a restart (apache/rocketmq#530).
func TestBrokerConfigByTool(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	resp := c.call(remoting.GetBrokerConfig, nil)
	wantCode(t, resp, remoting.Success)
	if !strings.Contains("\n"+string(resp.Body), "\nbrokerName=broker-a\n") || !strings.HasPrefix(resp.Ext.String("version"), `{"counter":0,"timestamp":`) {
		t.Fatalf("version %s, configuration\n%s", resp.Ext.String("version"), resp.Body)
	}
	wantCode(t, c.call(remoting.UpdateBrokerConfig, []byte("brokerConfigPath=/x\n")), remoting.NoPermission)
	wantCode(t, c.call(remoting.UpdateBrokerConfig, []byte("listenPort=1\n")), remoting.SystemError)
	wantCode(t, c.call(remoting.UpdateBrokerConfig, []byte("fileReservedTime=soon\n")), remoting.SystemError)
	wantCode(t, c.call(remoting.UpdateBrokerConfig, []byte("fileReservedTime=48\n")), remoting.Success)
	if got := b.store.Config().FileReservedTime; got != 48 {
		t.Fatalf("fileReservedTime is %d", got)
	}
	if resp := c.call(remoting.GetBrokerConfig, nil); !strings.Contains("\n"+string(resp.Body), "\nfileReservedTime=48\n") || !strings.HasPrefix(resp.Ext.String("version"), `{"counter":1,`) {
		t.Fatalf("version %s, configuration\n%s", resp.Ext.String("version"), resp.Body)
	}
}

// A slave's tables are its master's.
func TestSlaveRefusesChanges(t *testing.T) {
	b := startTestBroker(t, func(c *Config) {
		c.Store.Role, c.BrokerID = storage.Slave, 1
		c.Store.BrokerID = 1
	})
	c := b.dial()
	for _, code := range []int32{
		remoting.UpdateAndCreateTopic, remoting.UpdateAndCreateTopicList, remoting.DeleteTopicInBroker, remoting.UpdateAndCreateSubscriptionGroup,
		remoting.UpdateAndCreateSubscriptionGroupList, remoting.DeleteSubscriptionGroup, remoting.InvokeBrokerToResetOffset,
	} {
		resp := c.call(code, []byte(`{"groupName":"g"}`), "topic", "T", "groupName", "g", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6", "group", "g", "timestamp", "0")
		if wantCode(t, resp, remoting.SystemError); !strings.Contains(string(resp.Remark), "slave") {
			t.Fatalf("%s: %s", remoting.RequestName(code), resp.Remark)
		}
	}
}

func TestStatsSeries(t *testing.T) {
	s := newBrokerStats()
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	topic := s.Topic("T")
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for second := range 3600 {
		topic.Put(2, 100)
		s.Sample(at(time.Duration(second)*time.Second), storage.Stats{PutMessageTimesTotal: int64(2 * (second + 1))})
	}
	minute, hour, day, ok := s.Item(statsTopicPutNums, "T", "", at(time.Hour-time.Second))
	if !ok || math.Abs(minute.TPS-2) > 0.1 || math.Abs(hour.TPS-2) > 0.1 || day.Sum != 7200 || minute.AvgPT != 2 {
		t.Fatalf("minute %+v, hour %+v, day %+v", minute, hour, day)
	}
	size, _, _, _ := s.Item(statsTopicPutSize, "T", "", at(time.Hour-time.Second))
	if math.Abs(size.TPS-100) > 5 || size.AvgPT != 100 {
		t.Fatalf("size %+v", size)
	}
	if rates := s.storeRates(func(s storeSample) int64 { return s.put }); rates != [3]float64{2, 2, 2} {
		t.Fatalf("rates %v", rates)
	}
	for _, key := range []string{"none", ""} {
		if _, _, _, ok := s.Item(statsTopicPutNums, key, "", start); ok {
			t.Fatalf("statistics of %q", key)
		}
	}
	s.Group("T", "g") // a handle that never counted
	if _, _, _, ok := s.Item(statsGroupGetNums, "T@g", "", start); ok {
		t.Fatal("statistics of a group that got nothing")
	}
	s.Group("T", "g").SendBack()
	if _, _, day, ok := s.Item(statsSendBackNums, "T@g", "", start); !ok || day.Sum != 1 {
		t.Fatalf("sent back: %+v, %v", day, ok)
	}
	s.RemoveTopic("T")
	if _, _, _, ok := s.Item(statsTopicPutNums, "T", "", start); ok || s.groups.len() != 0 {
		t.Fatal("statistics of a topic that is gone")
	}
	var nothing *TopicStats
	nothing.Put(1, 1)
	// Midnight.
	s.Sample(at(12*time.Hour), storage.Stats{PutMessageTimesTotal: 9000, GetMessageTransferred: 5})
	if s.putTodayMorning != 9000 || s.putYesterdayMorning != 0 || s.getTodayMorning != 5 {
		t.Fatalf("totals of this morning %d, yesterday %d", s.putTodayMorning, s.putYesterdayMorning)
	}
}

// Beyond their limit topics and groups are not counted, those that are there go on.
func TestStatisticsHaveALimit(t *testing.T) {
	s := newBrokerStats()
	topics, groups := make(map[string]*TopicStats), make(map[string]*GroupStats)
	for i := range statsHandlesMax {
		topics[strconv.Itoa(i)] = new(TopicStats)
		groups["T@"+strconv.Itoa(i)] = new(GroupStats)
	}
	s.topics.fill(topics)
	s.groups.fill(groups)
	s.Topic("more").Put(1, 1)
	s.Group("T", "more").Get(1, 1)
	s.Group("T", "more").SendBack()
	if n, m := s.topics.len(), s.groups.len(); n != statsHandlesMax || m != statsHandlesMax {
		t.Fatalf("%d topics and %d groups on topics are counted", n, m)
	}
	if s.Topic("7") != topics["7"] || s.Group("T", "7") != groups["T@7"] {
		t.Fatal("what is counted is no longer found")
	}
	s.RemoveGroup("7")
	if s.Group("T", "more") == nil {
		t.Fatal("there is room again")
	}
}

// What a topic counts after it was deleted and made again is seen, on connections from before too.
func TestStatisticsOfATopicMadeAgain(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for range 3 {
		createTopic(t, c, "T", 1)
		sendTo(t, b, c, "T", 0, 3)
		wantCode(t, c.pull("g", "T", 0, 0), remoting.Success)
		var puts, gets int64
		eventually(t, "what was put and got is counted", func() bool {
			puts, gets = 0, 0
			b.stats.Totals(func(topic string, msgs, _ int64) {
				if topic == "T" {
					puts += msgs
				}
			}, func(_, _ string, msgs, _, _ int64) { gets += msgs })
			return puts == 3 && gets == 3
		})
		wantCode(t, c.call(remoting.DeleteTopicInBroker, nil, "topic", "T"), remoting.Success)
	}
}

// The broker's sum of what was got goes on when the group that got most of it is deleted.
func TestBrokerGetsOutliveGroups(t *testing.T) {
	s := newBrokerStats()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	look := func() {
		s.Sample(now, storage.Stats{})
		now = now.Add(statsMinuteStep)
	}
	s.Group("T", "big").Get(1000, 1)
	look()
	s.RemoveGroup("big")
	s.Group("T", "small").Get(10, 1)
	look()
	if minute, _, _, ok := s.Item(statsBrokerGetNums, "cluster", "cluster", now); !ok || minute.Sum != 1010 {
		t.Fatalf("%+v, %v; want 1010 messages", minute, ok)
	}
}

// The C++ client writes the numbers of Java's constants; tools read their names.
func TestHeartbeatOfTheCppClient(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	beat := func(where, how, model int) *remoting.Command {
		return c.call(remoting.HeartBeat, fmt.Appendf(nil, `{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":%d,"consumeType":%d,"groupName":"g","messageModel":%d,`+
			`"subscriptionDataSet":[{"codeSet":["97"],"subString":"a","subVersion":"1796029137699","tagsSet":["a"],"topic":"T"}]}],"producerDataSet":[]}`, where, how, model))
	}
	f := func(where, how, model int, names string) {
		t.Helper()
		wantCode(t, beat(where, how, model), remoting.Success)
		wantBodyLike(t, c.call(remoting.GetConsumerConnectionList, nil, "consumerGroup", "g"), `\{"connectionSet":\[.*\],`+names+`,"subscriptionTable":\{.*\}\}`)
	}
	f(0, 1, 1, `"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING"`)
	f(4, 0, 0, `"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_ACTIVELY","messageModel":"BROADCASTING"`)
	wantCode(t, beat(0, 1, 2), remoting.SystemError)
	wantCode(t, beat(-1, 1, 1), remoting.SystemError)
}

// What a tool asks in the form of its own reaches the client in the one that all clients read.
func TestRelayIsReadByTheClient(t *testing.T) {
	b := startTestBroker(t, nil)
	c, tool := b.dial(), b.dial()
	wantCode(t, c.call(remoting.HeartBeat, heartbeat("c1", "g", "T", "*", 1)), remoting.Success)
	tool.serialize = remoting.SerializeRocketMQ
	asked := tool.start(tool.request(remoting.GetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", "c1"))[0]
	push := c.push(remoting.GetConsumerRunningInfo)
	if push.Serialize != remoting.SerializeJSON || push.Ext.String("clientId") != "c1" {
		t.Errorf("the client gets form %d, %v", push.Serialize, push.Ext.List)
	}
	answerPush(t, c, push, remoting.Success, "{}")
	if resp := tool.await(asked); resp.Code != remoting.Success || resp.Serialize != remoting.SerializeRocketMQ {
		t.Errorf("the tool gets code %d, form %d", resp.Code, resp.Serialize)
	}
}
