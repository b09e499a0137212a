// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// subscription is one topic of a heartbeat.
type subscription struct {
	topic, expression, expressionType string
	version                           int64
	tags                              []string
}

// heartbeat subscribes the client as a consumer of a group.
func (c *rawClient) heartbeat(group, clientID, model string, subs ...subscription) {
	c.t.Helper()
	var list []string
	for _, s := range subs {
		codes, tags := []string{}, []string{}
		for _, tag := range s.tags {
			codes = append(codes, strconv.Itoa(int(message.JavaHash([]byte(tag)))))
			tags = append(tags, strconv.Quote(tag))
		}
		list = append(list, fmt.Sprintf(`{"classFilterMode":false,"codeSet":[%s],"expressionType":%q,"subString":%q,"subVersion":%d,"tagsSet":[%s],"topic":%q}`,
			strings.Join(codes, ","), s.expressionType, s.expression, s.version, strings.Join(tags, ","), s.topic))
	}
	body := fmt.Sprintf(`{"clientID":%q,"consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":%q,"messageModel":%q,"subscriptionDataSet":[%s],"unitMode":false}],"producerDataSet":[]}`,
		clientID, group, model, strings.Join(list, ","))
	wantCode(c.t, c.call(remoting.HeartBeat, []byte(body)), remoting.Success)
}

func TestPullRefusals(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.AutoCreateSubscriptionGroup = false })
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	group := func(name string, change func(*SubscriptionGroupConfig)) {
		g := newSubscriptionGroupConfig(name)
		if change != nil {
			change(g)
		}
		must(t, b.groups.Update(g))
	}
	group("g", nil)
	group("off", func(g *SubscriptionGroupConfig) { g.ConsumeEnable = false })
	group("nobroadcast", func(g *SubscriptionGroupConfig) { g.ConsumeBroadcastEnable = false })
	must(t, b.topics.Update(&TopicConfig{TopicName: "writeonly", ReadQueueNums: 4, WriteQueueNums: 4, Perm: PermWrite, TopicFilterType: "SINGLE_TAG"}))

	f := func(what string, code int32, remark string, resp *remoting.Command) {
		t.Helper()
		if resp.Code != code || !strings.Contains(string(resp.Remark), remark) {
			t.Errorf("%s: code %d, remark %q; want code %d and %q", what, resp.Code, resp.Remark, code, remark)
		}
	}
	f("unknown group", remoting.SubscriptionGroupNotExist, "subscription group [nobody] does not exist", c.pull("nobody", "T", 0, 0))
	f("group switched off", remoting.NoPermission, "no permission, off", c.pull("off", "T", 0, 0))
	f("unknown topic", remoting.TopicNotExist, "topic[nothing] not exist", c.pull("g", "nothing", 0, 0))
	f("topic not readable", remoting.NoPermission, "the topic[writeonly] pulling message is forbidden", c.pull("g", "writeonly", 0, 0))
	f("queue beyond the topic", remoting.SystemError, "queueId[4] is illegal", c.pull("g", "T", 4, 0))
	f("negative queue", remoting.SystemError, "queueId[-1] is illegal", c.pull("g", "T", -1, 0))
	f("no tag in the expression", remoting.SubscriptionParseFailed, "parse the consumer's subscription failed", c.pull("g", "T", 0, 0, "subscription", "|| ||"))
	f("SQL92", remoting.SystemError, "does not support consumer to filter message by SQL92", c.pull("g", "T", 0, 0, "subscription", "a > 1", "expressionType", "SQL92"))
	f("no offset", remoting.SystemError, "header field queueOffset is missing", c.pull("g", "T", 0, 0, "queueOffset", "-"))
	f("an offset that is no number", remoting.SystemError, "header field queueOffset", c.pull("g", "T", 0, 0, "queueOffset", "1.5"))
	f("no group", remoting.SystemError, "consumerGroup", c.pull("g", "T", 0, 0, "consumerGroup", "-"))

	own := []string{"sysFlag", "0"}
	f("no heartbeat yet", remoting.SubscriptionNotExist, "group info not exist", c.pull("g", "T", 0, 0, own...))
	c.heartbeat("g", "c1", "CLUSTERING", subscription{"T", "*", "TAG", 5, nil}, subscription{"S", "a > 1", "SQL92", 5, nil})
	f("subscribed", remoting.Success, "FOUND", c.pull("g", "T", 0, 0, own...))
	f("another topic", remoting.SubscriptionNotExist, "subscription not exist", c.pull("g", "SELF_TEST_TOPIC", 0, 0, own...))
	f("older version", remoting.Success, "FOUND", c.pull("g", "T", 0, 0, append(own, "subVersion", "5")...))
	f("newer version", remoting.SubscriptionNotLatest, "not latest", c.pull("g", "T", 0, 0, append(own, "subVersion", "6")...))
	b.dial().heartbeat("nobroadcast", "c2", "BROADCASTING", subscription{"T", "*", "TAG", 5, nil})
	f("broadcast", remoting.NoPermission, "can not consume by broadcast way", c.pull("nobroadcast", "T", 0, 0, own...))
}

func TestPullRefusedByBroker(t *testing.T) {
	f := func(change func(*Config), code, want int32, remark string) {
		t.Helper()
		b := startTestBroker(t, change)
		c := b.dial()
		c.send("T", 0, []byte("x"), "")
		b.dispatched()
		resp := c.call(code, nil, pullFields("g", "T", 0, 0)...)
		if resp.Code != want || !strings.Contains(string(resp.Remark), remark) {
			t.Errorf("code %d, remark %q; want code %d and %q", resp.Code, resp.Remark, want, remark)
		}
	}
	f(nil, remoting.LitePullMessage, remoting.Success, "FOUND")
	f(func(c *Config) { c.LitePullMessageEnable = false }, remoting.LitePullMessage, remoting.NoPermission, "lite pulling message is forbidden")
	f(func(c *Config) { c.LitePullMessageEnable = false }, remoting.PullMessage, remoting.Success, "FOUND")
	f(func(c *Config) { c.BrokerPermission = PermWrite }, remoting.PullMessage, remoting.NoPermission, "the broker[127.0.0.1] pulling message is forbidden")
}

// Every outcome of a read has its code, its name as the remark, and the four numbers that clients read.
func TestPullResults(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for i := range 5 {
		c.send("T", 0, []byte(strconv.Itoa(i)), "TAGS\x01a")
	}
	b.dispatched()
	f := func(queue int, offset int64, code int32, remark string, next, minOffset, maxOffset int64, more ...string) {
		t.Helper()
		resp := c.pull("g", "T", queue, offset, more...)
		if resp.Code != code || string(resp.Remark) != remark {
			t.Fatalf("queue %d offset %d: code %d, remark %q; want %d, %q", queue, offset, resp.Code, resp.Remark, code, remark)
		}
		got := [4]int64{extInt(t, resp, "nextBeginOffset"), extInt(t, resp, "minOffset"), extInt(t, resp, "maxOffset"), extInt(t, resp, "suggestWhichBrokerId")}
		if want := [4]int64{next, minOffset, maxOffset, 0}; got != want {
			t.Errorf("queue %d offset %d: next, min, max, broker %v; want %v", queue, offset, got, want)
		}
		if (code == remoting.Success) != (len(resp.Body) > 0) {
			t.Errorf("code %d with a body of %d bytes", code, len(resp.Body))
		}
	}
	f(0, 0, remoting.Success, "FOUND", 5, 0, 5)
	f(0, 3, remoting.Success, "FOUND", 5, 0, 5)
	f(0, 0, remoting.Success, "FOUND", 2, 0, 5, "maxMsgNums", "2")
	f(0, 0, remoting.Success, "FOUND", 1, 0, 5, "maxMsgNums", "0")
	f(0, 5, remoting.PullNotFound, "OFFSET_OVERFLOW_ONE", 5, 0, 5)
	f(0, 9, remoting.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 5, 0, 5)
	f(0, -1, remoting.PullOffsetMoved, "OFFSET_TOO_SMALL", 0, 0, 5)
	f(0, 0, remoting.PullRetryImmediately, "NO_MATCHED_MESSAGE", 5, 0, 5, "subscription", "b")
	f(1, 0, remoting.PullNotFound, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
	f(1, 7, remoting.PullOffsetMoved, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
}

func TestPullCodes(t *testing.T) {
	f := func(status storage.GetMessageStatus, offset storage.QueueOffset, want int32) {
		t.Helper()
		if got := pullCode(status, offset); got != want {
			t.Errorf("%s from %d: code %d; want %d", pullStatusNames[status], offset, got, want)
		}
	}
	f(storage.Found, 0, remoting.Success)
	f(storage.NoMatchedMessage, 0, remoting.PullRetryImmediately)
	f(storage.MessageWasRemoving, 0, remoting.PullRetryImmediately)
	f(storage.OffsetFoundNull, 7, remoting.PullNotFound)
	f(storage.OffsetOverflowOne, 7, remoting.PullNotFound)
	f(storage.OffsetOverflowBadly, 7, remoting.PullOffsetMoved)
	f(storage.OffsetTooSmall, 7, remoting.PullOffsetMoved)
	f(storage.NoMatchedLogicQueue, 0, remoting.PullNotFound)
	f(storage.NoMatchedLogicQueue, 7, remoting.PullOffsetMoved)
	f(storage.NoMessageInQueue, 0, remoting.PullNotFound)
	f(storage.NoMessageInQueue, 7, remoting.PullOffsetMoved)
}

// Tags match by Java's hash: negative, zero, outside of ASCII and outside of the basic plane, by the expression of the pull
// and by that of a heartbeat (apache/rocketmq-client-go#277).
func TestPullByTag(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	tags := []string{"tagA", "polygenelubricants", "日本", "tag\U0001F680", "Aa", "BB", "z"} // Aa and BB have one hash
	for _, tag := range append([]string{""}, tags...) {
		props := "K\x01v"
		if tag != "" {
			props = "TAGS\x01" + tag
		}
		c.send("T", 0, []byte("tag "+tag), props)
	}
	b.dispatched()
	f := func(expression string, want ...string) {
		t.Helper()
		var subTags []string
		for tag := range strings.SplitSeq(expression, "||") {
			if tag = strings.TrimSpace(tag); tag != "*" {
				subTags = append(subTags, tag)
			}
		}
		group := "g" + strconv.Itoa(int(uint32(message.JavaHash([]byte(expression)))))
		c.heartbeat(group, "c1", "CLUSTERING", subscription{"T", expression, "TAG", 1, subTags})
		for _, flag := range []string{"4", "0"} {
			var got []string
			resp := c.pull(group, "T", 0, 0, "subscription", expression, "sysFlag", flag)
			for _, r := range decodeRecords(t, resp.Body) {
				got = append(got, strings.TrimPrefix(string(r.Body), "tag "))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q (sysFlag %s) got %q; want %q", expression, flag, got, want)
			}
			if next := extInt(t, resp, "nextBeginOffset"); next != int64(len(tags)+1) {
				t.Errorf("%q: next offset %d", expression, next)
			}
		}
	}
	f("*", append([]string{""}, tags...)...)
	f("tagA", "tagA")
	f("polygenelubricants", "polygenelubricants") // the least hash there is
	f("日本 || z", "日本", "z")
	f("tag\U0001F680", "tag\U0001F680")
	f("Aa", "Aa", "BB") // the client sorts out what collides
	f("nothing")
}

// A tag that is rare: each answer moves the offset on by what was looked at, and the message is reached.
func TestPullMovesOnOverOtherTags(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	var cmds []*remoting.Command
	for i := range 3_000 {
		props := "TAGS\x01common"
		if i == 2_900 {
			props = "TAGS\x01rare"
		}
		cmds = append(cmds, c.request(remoting.SendMessageV2, nil, sendV2("T", 0, props)...))
	}
	c.send("T", 1, nil, "")
	for _, ch := range c.start(cmds...) {
		wantCode(t, c.await(ch), remoting.Success)
	}
	b.dispatched()
	offset, retries := int64(0), 0
	for {
		resp := c.pull("g", "T", 0, offset, "subscription", "rare", "sysFlag", "6", "suspendTimeoutMillis", "15000")
		next := extInt(t, resp, "nextBeginOffset")
		if next <= offset {
			t.Fatalf("offset %d after %d", next, offset)
		}
		if resp.Code == remoting.Success {
			if r := decodeRecords(t, resp.Body); len(r) != 1 || r[0].QueueOffset != 2_900 {
				t.Fatalf("got %d messages, the first at %d", len(r), r[0].QueueOffset)
			}
			break
		}
		wantCode(t, resp, remoting.PullRetryImmediately)
		offset = next
		retries++
	}
	if retries == 0 {
		t.Error("3,000 units were looked at in one pull")
	}
}

func TestPullCommitsOffset(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	c.pull("g", "T", 0, 0, "sysFlag", "5", "commitOffset", "17")
	if got := b.offsets.Query("g", "T", 0); got != 17 {
		t.Errorf("offset %d committed with a pull that found something", got)
	}
	c.pull("g", "T", 0, 99, "sysFlag", "5", "commitOffset", "18")
	if got := b.offsets.Query("g", "T", 0); got != 18 {
		t.Errorf("offset %d committed with a pull beyond the end", got)
	}
	c.pull("g", "T", 0, 0, "sysFlag", "4", "commitOffset", "19")
	if got := b.offsets.Query("g", "T", 0); got != 18 {
		t.Errorf("offset %d committed without the flag", got)
	}
	held := c.start(c.request(remoting.PullMessage, nil, pullFields("g", "T", 0, 1, "sysFlag", "7", "commitOffset", "20", "suspendTimeoutMillis", "300")...))
	wantCode(t, c.await(held[0]), remoting.PullNotFound)
	if got := b.offsets.Query("g", "T", 0); got != 20 {
		t.Errorf("offset %d committed with a held pull", got)
	}
}

func TestPullSuggestsBroker(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.SlaveReadEnable = true })
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	g := newSubscriptionGroupConfig("g")
	g.BrokerID, g.WhichBrokerWhenConsumeSlowly = 3, 4
	must(t, b.groups.Update(g))
	if got := extInt(t, c.pull("g", "T", 0, 0), "suggestWhichBrokerId"); got != 3 {
		t.Errorf("suggested broker %d; want the group's", got)
	}
}

// Records that are read on the worker are copied: the answer holds the same bytes, and no loan.
func TestPullOnWorkerIsCopied(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for i := range 20 {
		c.send("T", 0, []byte(strings.Repeat("x", i*100)), "")
	}
	b.dispatched()
	want := c.pull("g", "T", 0, 0).Body
	p := newPullMessageProcessor(b.BrokerController)
	pr := p.requests.Get().(*pullRequest)
	pr.topic = "T"
	p.b.store.GetMessage(pr.topic, 0, 0, 32, &pr.filter, &pr.result)
	must(t, pr.copyOut())
	if got := slices.Concat(pr.parts...); len(want) == 0 || !bytes.Equal(got, want) {
		t.Errorf("%d bytes copied, %d answered from the map", len(got), len(want))
	}
	for i := range pr.result.Buffers {
		if pr.result.Buffers[i].Bytes() != nil {
			t.Error("a loan is still out")
		}
	}
	pr.recycle()
}

// What is not in memory is read by a worker, and answered alike; a pull that waits too.
func TestPullOfWhatIsNotInMemory(t *testing.T) {
	fsys := faultfs.New()
	b := newTestBroker(t, nil)
	b.fs = fsys
	b.start()
	t.Cleanup(b.stop)
	c := b.dial()
	for i := range 50 {
		c.send("T", 0, []byte(strings.Repeat("x", i*100)), "")
	}
	b.dispatched()
	read := func() (bodies [][]byte) {
		for offset := int64(0); offset < 50; offset += 7 {
			resp := c.pull("g", "T", 0, offset)
			wantCode(t, resp, remoting.Success)
			bodies = append(bodies, resp.Body)
		}
		return bodies
	}
	fsys.SetAbsent(true)
	held := c.start(c.request(remoting.PullMessage, nil, pullFields("g", "T", 0, 50, "sysFlag", "6", "suspendTimeoutMillis", "15000")...))
	b.dial().send("T", 0, []byte("late"), "")
	resp := c.await(held[0])
	if wantCode(t, resp, remoting.Success); len(decodeRecords(t, resp.Body)) != 1 {
		t.Fatal("a held pull got nothing")
	}
	byWorker := read()
	fsys.SetAbsent(false)
	if onLoop := read(); !slices.EqualFunc(byWorker, onLoop, bytes.Equal) {
		t.Errorf("%d bytes read by a worker, %d on the loop", len(slices.Concat(byWorker...)), len(slices.Concat(onLoop...)))
	}
}

// A consumer that waits gets a lone message at once (apache/rocketmq#7358).
func TestHeldPullGetsLoneMessageSoon(t *testing.T) {
	b := startTestBroker(t, nil)
	consumer, producer := b.dial(), b.dial()
	producer.send("T", 0, []byte("first"), "")
	b.dispatched()
	messages, apart := 300, 3_000 // µs
	if *soak {
		messages, apart = 40_000, 30_000 // ten minutes
	}
	var late []time.Duration
	for i := range messages {
		pull := consumer.start(consumer.request(remoting.PullMessage, nil,
			pullFields("g", "T", 0, int64(i+1), "sysFlag", "6", "suspendTimeoutMillis", "15000")...))
		time.Sleep(time.Duration(rand.IntN(apart)) * time.Microsecond)
		began := time.Now()
		producer.oneway(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...)
		resp := consumer.await(pull[0])
		late = append(late, time.Since(began))
		wantCode(t, resp, remoting.Success)
		if r := decodeRecords(t, resp.Body); len(r) != 1 || r[0].QueueOffset != int64(i+1) {
			t.Fatalf("got %d messages", len(r))
		}
	}
	slices.Sort(late)
	t.Logf("median %v, 99%% %v, 99.99%% %v, most %v", late[len(late)/2], late[len(late)*99/100], late[len(late)*9999/10000], late[len(late)-1])
	if most := late[len(late)-1]; most > 2*time.Second {
		t.Errorf("a lone message took %v", most)
	}
}

func TestHeldPullEndsInTime(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	f := func(queue int, offset int64) {
		t.Helper()
		began := time.Now()
		resp := c.pull("g", "T", queue, offset, "sysFlag", "6", "suspendTimeoutMillis", "300")
		wantCode(t, resp, remoting.PullNotFound)
		if took := time.Since(began); took < 290*time.Millisecond || took > 10*time.Second {
			t.Errorf("a hold of 300 ms took %v", took)
		}
		if next := extInt(t, resp, "nextBeginOffset"); next != offset {
			t.Errorf("next offset %d; want %d", next, offset)
		}
	}
	f(0, 1)
	f(2, 0) // a queue without messages yet
	if n := b.hold.Held(); n != 0 {
		t.Errorf("%d pulls held", n)
	}
}

// A queue that grows by other tags only: the next scan answers, with the offset moved on.
func TestHeldPullMovesOnOverOtherTags(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.LongPollingEnable, c.ShortPollingTimeMills = false, 10_000 })
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	pull := c.start(c.request(remoting.PullMessage, nil,
		pullFields("g", "T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "10", "subscription", "wanted")...))
	eventually(t, "the pull to be held", func() bool { return b.hold.Held() == 1 })
	c.send("T", 0, []byte("x"), "TAGS\x01other")
	resp := c.await(pull[0])
	wantCode(t, resp, remoting.PullRetryImmediately)
	if next := extInt(t, resp, "nextBeginOffset"); next != 2 {
		t.Errorf("next offset %d", next)
	}
}

// A held pull is checked again when it is woken.
func TestHeldPullOfDeletedTopic(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	b.dispatched()
	pull := c.start(c.request(remoting.PullMessage, nil, pullFields("g", "T", 0, 1, "sysFlag", "6", "suspendTimeoutMillis", "500")...))
	eventually(t, "the pull to be held", func() bool { return b.hold.Held() == 1 })
	must(t, b.topics.Delete("T"))
	wantCode(t, c.await(pull[0]), remoting.TopicNotExist)
}

// Thousands of pulls whose clients reset the connection at any moment: the broker stays, nothing is held for them, and all
// loans come back (the broker's stop fails the test otherwise).
func TestPullsOfVanishingClients(t *testing.T) {
	b := startTestBroker(t, nil)
	producer := b.dial()
	for range 64 {
		producer.send("T", 0, make([]byte, 8_000), "")
	}
	b.dispatched()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for range 25 {
				c := b.dial()
				var cmds []*remoting.Command
				for i := range 100 {
					offset := int64(0)
					if i%2 == 1 {
						offset = 64
					}
					cmds = append(cmds, c.request(remoting.PullMessage, nil, pullFields("g", "T", 0, offset, "sysFlag", "6", "suspendTimeoutMillis", "15000")...))
				}
				c.start(cmds...)
				time.Sleep(time.Duration(rng.IntN(3_000)) * time.Microsecond)
				c.reset()
			}
		})
	}
	wg.Wait()
	eventually(t, "all pulls of gone clients to be dropped", func() bool { return b.hold.Held() == 0 })
	if n := len(producer.pullUntil("g", "T", 0, 0, 64)); n != 64 {
		t.Errorf("%d messages", n)
	}
}

// A client that does not read what it gets has no more pull data produced for it, and gets all of it once it reads,
// however many of its pulls were read from the log side by side.
func TestPullWaitsForSlowClient(t *testing.T) {
	f := func(messages, size, pulls int) {
		t.Helper()
		b := startTestBroker(t, nil)
		producer := b.dial()
		for range messages {
			producer.send("T", 0, make([]byte, size), "")
		}
		b.dispatched()
		slow := newStuckClient(t, b.addr)
		for i := range pulls {
			slow.ask(remoting.PullMessage, int32(i+1), pullFields("g", "T", 0, int64(i%messages), "maxMsgNums", "1"))
		}
		eventually(t, "pulls held for the client's output", func() bool {
			b.hold.mu.Lock()
			defer b.hold.mu.Unlock()
			return len(b.hold.blocked) > 0
		})
		seen := make(map[int32]bool)
		for range pulls {
			resp := slow.next()
			if resp.Code != remoting.Success || seen[resp.Opaque] {
				t.Fatalf("answer %d: code %d, %q", resp.Opaque, resp.Code, resp.Remark)
			}
			seen[resp.Opaque] = true
		}
	}
	f(40, 250_000, 200) // 50 MB asked for at once
	f(8, 4<<20, 20)
}

// A pull's own expression has no more tags than a subscription.
func TestPullWithManyTags(t *testing.T) {
	tags := func(n int) []byte { return []byte(strings.Repeat("t||", n-1) + "t") }
	if _, err := tagCodes(tags(tagsMax)); err != nil {
		t.Error(err)
	}
	if _, err := tagCodes(tags(tagsMax + 1)); err == nil {
		t.Error("more tags than a subscription may have")
	}
}
