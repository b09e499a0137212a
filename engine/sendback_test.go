// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

func backFields(group string, offset int64, delayLevel int, more ...string) []string {
	return withFields([]string{
		"offset", strconv.FormatInt(offset, 10), "group", group, "delayLevel", strconv.Itoa(delayLevel),
		"originMsgId", "", "originTopic", "T", "unitMode", "false",
	}, more...)
}

// A message that a consumer cannot handle comes back after its delay, again and again, and ends in the group's dead letter
// topic.
func TestRetriesEndInDeadLetterTopic(t *testing.T) {
	b := startTestBroker(t, func(c *Config) {
		shortDelays(20, 20, 20, 20, 20)(c)
		c.Store.FlushDiskType = storage.SyncFlush
	})
	c := b.dial()
	c.heartbeat("g", "c1", "CLUSTERING", subscription{"T", "*", "TAG", 1, nil}, subscription{"%RETRY%g", "*", "TAG", 1, nil})
	c.send("T", 1, []byte("bad"), "TAGS\x01a\x02KEYS\x01k")
	first := c.pullUntil("g", "T", 1, 0, 1)[0]
	origin := string(message.AppendOffsetMessageID(nil, first.StoreHost, first.PhysicalOffset))

	const most = 3
	last := first
	for times := range most {
		wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil,
			backFields("g", last.PhysicalOffset, 0, "maxReconsumeTimes", strconv.Itoa(most))...), remoting.Success)
		r := c.pullUntil("g", "%RETRY%g", 0, int64(times), 1)[0]
		p := message.ParseProperties(r.Properties)
		if int(r.ReconsumeTimes) != times+1 || string(r.Body) != "bad" || p["RETRY_TOPIC"] != "T" || p["ORIGIN_MESSAGE_ID"] != origin ||
			p["TAGS"] != "a" || p["KEYS"] != "k" || p["DELAY"] != "" || p["REAL_TOPIC"] != "%RETRY%g" {
			t.Fatalf("retry %d: %d times, properties %v", times+1, r.ReconsumeTimes, p)
		}
		if r.BornHost != first.BornHost || r.BornTimestamp != first.BornTimestamp {
			t.Errorf("retry %d was born at %v, %d", times+1, r.BornHost, r.BornTimestamp)
		}
		if n := strings.Count(string(r.Properties), "REAL_TOPIC"); n != 1 {
			t.Errorf("retry %d has REAL_TOPIC %d times", times+1, n)
		}
		last = r
	}
	wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil,
		backFields("g", last.PhysicalOffset, 0, "maxReconsumeTimes", strconv.Itoa(most))...), remoting.Success)
	dead := c.pullUntil("g", "%DLQ%g", 0, 0, 1)[0]
	p := message.ParseProperties(dead.Properties)
	if dead.ReconsumeTimes != most+1 || p["RETRY_TOPIC"] != "T" || p["ORIGIN_MESSAGE_ID"] != origin || p["DELAY"] != "" {
		t.Errorf("dead letter: %d times, properties %v", dead.ReconsumeTimes, p)
	}
	if topic := b.topics.Get("%DLQ%g"); topic == nil || topic.Perm != PermRead|PermWrite || topic.WriteQueueNums != 1 {
		t.Errorf("dead letter topic %+v", topic)
	}
}

func TestSendBackLevels(t *testing.T) {
	b := startTestBroker(t, shortDelays(3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000))
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	c.send("T", 0, []byte("x"), "", "j", "2")
	records := c.pullUntil("g", "T", 0, 0, 2)
	f := func(r message.Record, level, queue int) {
		t.Helper()
		_, before, _ := b.store.QueueOffsets(topicSchedule, int32(queue))
		wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil, backFields("g", r.PhysicalOffset, level)...), remoting.Success)
		b.dispatched()
		if _, after, _ := b.store.QueueOffsets(topicSchedule, int32(queue)); after != before+1 {
			t.Errorf("level %d, %d times: nothing new in the queue of level %d", level, r.ReconsumeTimes, queue+1)
		}
	}
	f(records[0], 0, 2) // 3 and no retry yet
	f(records[1], 0, 4) // 3 and two retries
	f(records[0], 1, 0)
	f(records[0], 99, 5)
	wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil, backFields("g", records[0].PhysicalOffset, -1)...), remoting.Success)
	c.pullUntil("g", "%DLQ%g", 0, 0, 1) // a negative level means at once
}

// The topic that a message names as its first is its sender's word: only topics that there are are counted.
func TestSendBackCountsKnownTopics(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for i := range 3 {
		c.send("T", 0, []byte("m"), fmt.Sprintf("RETRY_TOPIC\x01made up %d", i))
	}
	c.send("T", 0, []byte("m"), "")
	for _, r := range c.pullUntil("g", "T", 0, 0, 4) {
		wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil, backFields("g", r.PhysicalOffset, 0)...), remoting.Success)
	}
	sentBack := map[string]int64{}
	b.stats.Totals(func(string, int64, int64) {}, func(topic, _ string, _, _, n int64) { sentBack[topic] += n })
	if len(sentBack) != 1 || sentBack["T"] != 1 {
		t.Errorf("sent back by topic: %v", sentBack)
	}
}

func TestSendBackRefusals(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.AutoCreateSubscriptionGroup = false })
	c := b.dial()
	group := func(name string, retryQueues int32) {
		g := newSubscriptionGroupConfig(name)
		g.RetryQueueNums = retryQueues
		must(t, b.groups.Update(g))
	}
	group("g", 1)
	group("none", 0)
	group("closed", 1)
	group(strings.Repeat("n", 125), 1)
	must(t, b.topics.Update(&TopicConfig{TopicName: "%RETRY%closed", ReadQueueNums: 1, WriteQueueNums: 1, Perm: PermRead, TopicFilterType: "SINGLE_TAG"}))
	c.send("T", 0, []byte("x"), "")
	r := c.pullUntil("g", "T", 0, 0, 1)[0]
	f := func(what string, code int32, remark string, fields []string) {
		t.Helper()
		resp := c.call(remoting.ConsumerSendMsgBack, nil, fields...)
		if resp.Code != code || !strings.Contains(string(resp.Remark), remark) {
			t.Errorf("%s: code %d, remark %q; want code %d and %q", what, resp.Code, resp.Remark, code, remark)
		}
	}
	f("unknown group", remoting.SubscriptionGroupNotExist, "subscription group not exist, nobody", backFields("nobody", 0, 0))
	f("no retry queues", remoting.Success, "", backFields("none", 12345, 0))
	f("retry topic not writable", remoting.NoPermission, "the topic[%RETRY%closed] sending message is forbidden", backFields("closed", r.PhysicalOffset, 0))
	f("long group name", remoting.SystemError, "longer", backFields(strings.Repeat("n", 125), r.PhysicalOffset, 0))
	f("no record there", remoting.SystemError, "look message by offset failed, 1", backFields("g", r.PhysicalOffset+1, 0))
	f("beyond the log", remoting.SystemError, "look message by offset failed", backFields("g", 1<<40, 0))
	f("before the log", remoting.SystemError, "look message by offset failed", backFields("g", -1, 0))
	f("no offset", remoting.SystemError, "header field offset is missing", backFields("g", 0, 0, "offset", "-"))
	f("no number", remoting.SystemError, "header field delayLevel", backFields("g", 0, 0, "delayLevel", "x"))
}

// The path that a consumer takes when its send-back fails: it sends to the retry topic itself. Once the retries are used up
// the message goes to the dead letter topic, whatever its delay.
func TestSendToRetryTopic(t *testing.T) {
	b := startTestBroker(t, shortDelays(20, 20, 20))
	c := b.dial()
	f := func(version int32, reconsumed int, most string, dead bool) {
		t.Helper()
		name := fmt.Sprintf("g%d_%d_%s", version, reconsumed, most)
		c.version = version
		resp := c.send("%RETRY%"+name, 0, []byte("x"), "RETRY_TOPIC\x01T\x02DELAY\x013", "j", strconv.Itoa(reconsumed), "l", most)
		if q := extInt(t, resp, "queueId"); q != 0 {
			t.Errorf("%s: queue %d", name, q)
		}
		topic := "%RETRY%" + name
		if dead {
			topic = "%DLQ%" + name
		}
		b.dispatched()
		r := c.pullUntil("g", topic, 0, 0, 1)[0]
		p := message.ParseProperties(r.Properties)
		if p["DELAY"] != "" || p["RETRY_TOPIC"] != "T" || int(r.ReconsumeTimes) != reconsumed {
			t.Errorf("%s: %d times, properties %v", name, r.ReconsumeTimes, p)
		}
	}
	f(remoting.Version, 1, "16", false)
	f(remoting.Version, 15, "-", false)
	f(remoting.Version, 16, "-", true)
	f(remoting.Version, 2, "2", true)
	f(remoting.Version, 2, "3", false)
	f(120, 2, "2", false) // an older client's field does not count
	f(remoting.Version, 0, "0", true)
}

func TestEndTransactionIsRefused(t *testing.T) {
	b := startTestBroker(t, nil)
	resp := b.dial().call(remoting.EndTransaction, nil, "producerGroup", "p", "commitOrRollback", "8")
	if resp.Code != remoting.NoPermission || !strings.Contains(string(resp.Remark), "transactions") {
		t.Errorf("code %d, %q", resp.Code, resp.Remark)
	}
	slave := startTestBroker(t, func(c *Config) { c.Store.Role, c.BrokerID = storage.Slave, 1 })
	wantCode(t, slave.dial().call(remoting.EndTransaction, nil), remoting.SlaveNotAvailable)
}

// A retry topic that is there does not get more queues with its group: what is sent back goes to those that are read.
func TestSendBackReachesAQueueThatIsRead(t *testing.T) {
	b := startTestBroker(t, shortDelays(20))
	c := b.dial()
	c.heartbeat("g", "c1", "CLUSTERING", subscription{"T", "*", "TAG", 1, nil})
	g := newSubscriptionGroupConfig("g")
	g.RetryQueueNums = 8
	must(t, b.groups.Update(g))
	const messages = 20
	for range messages {
		c.send("T", 0, []byte("x"), "")
	}
	for _, r := range c.pullUntil("g", "T", 0, 0, messages) {
		wantCode(t, c.call(remoting.ConsumerSendMsgBack, nil, backFields("g", r.PhysicalOffset, 1)...), remoting.Success)
	}
	c.pullUntil("g", "%RETRY%g", 0, 0, messages)
}
