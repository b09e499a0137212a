// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// Both header forms, both serializations: the answer has every field that clients read without a check, and the record
// carries what was sent and what the broker knows.
func TestSendStoresAndAnswers(t *testing.T) {
	b := startTestBroker(t, nil)
	f := func(serialize remoting.SerializeType, code int32, fields func(string, int, string, ...string) []string) {
		t.Helper()
		c := b.dial()
		c.serialize = serialize
		topic := fmt.Sprintf("T%d_%d", code, serialize)
		body := []byte("hello")
		resp := c.call(code, body, fields(topic, 2, "TAGS\x01a\x02WAIT\x01true")...)
		wantCode(t, resp, remoting.Success)
		if len(resp.Remark) != 0 || resp.Serialize != serialize {
			t.Errorf("remark %q, serialization %d", resp.Remark, resp.Serialize)
		}
		wantTrace(t, resp)
		if q, off := extInt(t, resp, "queueId"), extInt(t, resp, "queueOffset"); q != 2 || off != 0 {
			t.Errorf("queue %d, offset %d", q, off)
		}
		host, phy, err := message.ParseOffsetMessageID(resp.Ext.String("msgId"))
		if err != nil || host != b.server.Addr() {
			t.Errorf("message id %q: host %v, %v", resp.Ext.String("msgId"), host, err)
		}
		r := c.pullUntil("g", topic, 2, 0, 1)[0]
		if string(r.Body) != "hello" || string(r.Topic) != topic || r.QueueID != 2 || r.PhysicalOffset != phy {
			t.Errorf("stored %+v", r)
		}
		if r.BornHost.String() != c.conn.LocalAddr().String() || r.StoreHost != b.server.Addr() {
			t.Errorf("born host %v, store host %v", r.BornHost, r.StoreHost)
		}
		want := map[string]string{"TAGS": "a", "CLUSTER": "DefaultCluster"}
		if got := message.ParseProperties(r.Properties); !maps.Equal(got, want) {
			t.Errorf("properties %v; want %v", got, want)
		}
	}
	f(remoting.SerializeJSON, remoting.SendMessageV2, sendV2)
	f(remoting.SerializeJSON, remoting.SendMessage, sendV1)
	f(remoting.SerializeRocketMQ, remoting.SendMessageV2, sendV2)
	f(remoting.SerializeRocketMQ, remoting.SendMessage, sendV1)
}

// wantTrace checks the two fields that each answer to a send carries, refusals too.
func wantTrace(t testing.TB, resp *remoting.Command) {
	t.Helper()
	if resp.Ext.String("MSG_REGION") != "DefaultRegion" || resp.Ext.String("TRACE_ON") != "true" {
		t.Errorf("MSG_REGION %q, TRACE_ON %q in an answer with code %d", resp.Ext.String("MSG_REGION"), resp.Ext.String("TRACE_ON"), resp.Code)
	}
}

func TestSendRefusals(t *testing.T) {
	b := startTestBroker(t, func(c *Config) {
		c.AutoCreateSubscriptionGroup = false
		c.Store.MaxMessageSize = 64 << 10
	})
	must(t, b.topics.Update(&TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6, TopicFilterType: "SINGLE_TAG"}))
	c := b.dial()
	f := func(what string, code int32, remark string, resp *remoting.Command) {
		t.Helper()
		if resp.Code != code || !strings.Contains(string(resp.Remark), remark) {
			t.Errorf("%s: code %d, remark %q; want code %d and %q", what, resp.Code, resp.Remark, code, remark)
		}
		wantTrace(t, resp)
	}
	send := func(body []byte, fields []string) *remoting.Command {
		return c.call(remoting.SendMessageV2, body, fields...)
	}
	batch := func(body []byte, fields ...string) *remoting.Command {
		return c.call(remoting.SendBatchMessage, body, sendV2("T", 0, "", append([]string{"m", "true"}, fields...)...)...)
	}
	f("no topic", remoting.SystemError, "blank", send(nil, sendV2("T", 0, "", "b", "-")))
	f("illegal characters", remoting.SystemError, "illegal characters", send(nil, sendV2("a b", 0, "")))
	f("illegal characters", remoting.SystemError, "illegal characters", send(nil, sendV2("täglich", 0, "")))
	f("long topic", remoting.SystemError, "longer", send(nil, sendV2(strings.Repeat("t", 128), 0, "")))
	for _, topic := range []string{topicSchedule, topicTransHalf, topicTransOp, topicTransCheckMaxTime, topicSelfTest, topicOffsetMoved} {
		f(topic, remoting.NoPermission, "Sending message to topic["+topic+"] is forbidden", send(nil, sendV2(topic, 0, "")))
	}
	f("no template", remoting.TopicNotExist, "topic[new] not exist", send(nil, sendV2("new", 0, "", "c", "nothing")))
	f("a template that is not to be inherited", remoting.TopicNotExist, "topic[new] not exist", send(nil, sendV2("new", 0, "", "c", "T")))
	for _, queues := range []string{"0", "-1", "-"} { // the last: not given
		f("a topic without queues", remoting.SystemError, "cannot be created with", send(nil, sendV2("new", 0, "", "d", queues)))
	}
	f("queue beyond the topic", remoting.SystemError, "request queueId[4] is illegal", send(nil, sendV2("T", 4, "")))
	f("retry topic of an unknown group", remoting.SubscriptionGroupNotExist, "nobody", send(nil, sendV2("%RETRY%nobody", 0, "")))
	f("half message", remoting.NoPermission, "transaction", send(nil, sendV2("T", 0, "TRAN_MSG\x01true\x02PGROUP\x01p")))
	f("prepared by its flag", remoting.NoPermission, "transaction", send(nil, sendV2("T", 0, "", "f", "4")))
	f("rolled back by its flag", remoting.NoPermission, "transaction", send(nil, sendV2("T", 0, "", "f", "12")))
	f("body above the limit", remoting.MessageIllegal, "limit 65536B", send(make([]byte, 64<<10+1), sendV2("T", 0, "")))
	f("long properties", remoting.MessageIllegal, "limit 32767B", send(nil, sendV2("T", 0, "K\x01"+strings.Repeat("v", 32_767))))
	zeros := strings.Repeat("\x00", 512)
	f("a sector of zeros in the properties", remoting.MessageIllegal, "512 zero bytes", send(nil, sendV2("T", 0, "K\x01v"+zeros)))
	f("a first name that begins with zero", remoting.MessageIllegal, "zero byte", send(nil, sendV2("T", 0, "\x00K\x01v")))
	f("a name that begins with zero", remoting.MessageIllegal, "zero byte", send(nil, sendV2("T", 0, "DELAY\x011\x02\x00K\x01v")))
	f("a delay level that is no number", remoting.MessageIllegal, "DELAY", send(nil, sendV2("T", 0, "DELAY\x01soon")))
	f("no queue id", remoting.SystemError, "header field e is missing", send(nil, sendV2("T", 0, "", "e", "-")))
	f("a queue id that is no number", remoting.SystemError, "header field e", send(nil, sendV2("T", 0, "", "e", "two")))
	f("a queue id beyond 32 bits", remoting.SystemError, "header field e", send(nil, sendV2("T", 0, "", "e", "4294967296")))

	whole := message.AppendBatchElement(nil, &message.BatchElement{Body: []byte("b")})
	f("empty batch", remoting.MessageIllegal, "empty", batch(nil))
	f("cut batch", remoting.MessageIllegal, "message 2", batch(append(bytes.Clone(whole), whole[:len(whole)-1]...)))
	f("batch with a length beyond it", remoting.MessageIllegal, "message 1", batch(bytes.Repeat([]byte{0x7f}, 64)))
	f("batch with delay", remoting.MessageIllegal, "delay", batch(whole, "i", "DELAY\x011"))
	f("half batch", remoting.MessageIllegal, "transaction", batch(whole, "i", "TRAN_MSG\x01true"))
	f("batch above the limit", remoting.MessageIllegal, "limit 65536B", batch(make([]byte, 64<<10+1)))
	f("batch whose records outgrow it", remoting.MessageIllegal, "more than", batch(bytes.Repeat(message.AppendBatchElement(nil, &message.BatchElement{}), 2_000)))
	f("element with long properties", remoting.MessageIllegal, "limit 32767B",
		batch(message.AppendBatchElement(nil, &message.BatchElement{Properties: []byte("K\x01" + strings.Repeat("v", 32_760))})))

	f("element with a sector of zeros", remoting.MessageIllegal, "512 zero bytes",
		batch(message.AppendBatchElement(nil, &message.BatchElement{Properties: []byte("K\x01v" + zeros)})))

	if _, end, _ := b.store.QueueOffsets("T", 0); end != 0 || b.store.MaxPhyOffset() != 0 {
		t.Errorf("refused sends left %d messages, log end %d", end, b.store.MaxPhyOffset())
	}
	if b.topics.Get("new") != nil {
		t.Error("a refused send made a topic")
	}
	c.send("T", 0, []byte("works"), "")
}

// A send that waited for its topic until its client had given up is not stored: the client has sent it again.
func TestSendThatWaitedTooLongForItsTopic(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	release := b.holdAdminLane()
	late := c.start(c.request(remoting.SendMessageV2, []byte("late"), sendV2("new", 0, "")...))[0]
	eventually(t, "the send in the lane", func() bool { return b.adminLane.Len() == 1 })
	time.Sleep(newTopicWaitMax + 10*time.Millisecond)
	release()
	if resp := c.await(late); resp.Code != remoting.SystemBusy || !strings.Contains(string(resp.Remark), "[TIMEOUT_CLEAN_QUEUE]") ||
		!strings.Contains(string(resp.Remark), "period in queue: 3") || !strings.Contains(string(resp.Remark), "; slow stage: queue") {
		t.Errorf("code %d, remark %q", resp.Code, resp.Remark)
	}
	if end := b.store.MaxPhyOffset(); end != 0 || b.topics.Get("new") != nil {
		t.Errorf("the log ends at %d, the topic is %v", end, b.topics.Get("new"))
	}
	c.send("new", 0, []byte("again"), "")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSendRefusedByBroker(t *testing.T) {
	f := func(what string, code int32, remark string, change func(*Config), prepare func(*testBroker)) {
		t.Helper()
		b := startTestBroker(t, change)
		if prepare != nil {
			prepare(b)
		}
		resp := b.dial().call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...)
		if resp.Code != code || !strings.Contains(string(resp.Remark), remark) {
			t.Errorf("%s: code %d, remark %q; want code %d and %q", what, resp.Code, resp.Remark, code, remark)
		}
		wantTrace(t, resp)
	}
	topic := func(order bool) func(*testBroker) {
		return func(b *testBroker) {
			must(t, b.topics.Update(&TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6, TopicFilterType: "SINGLE_TAG", Order: order}))
		}
	}
	f("before its time", remoting.SystemError, "broker unable to service, until",
		func(c *Config) { c.StartAcceptSendRequestTimeStamp = time.Now().Add(time.Hour).UnixMilli() }, nil)
	f("broker not writable, order topic", remoting.NoPermission, "the broker[127.0.0.1] sending message is forbidden",
		func(c *Config) { c.BrokerPermission = PermRead }, topic(true))
	f("broker not writable, other topic", remoting.Success, "",
		func(c *Config) { c.BrokerPermission = PermRead }, topic(false))
	f("no automatic creation", remoting.TopicNotExist, "topic[T] not exist",
		func(c *Config) { c.AutoCreateTopicEnable = false }, nil)
	f("slave", remoting.ServiceNotAvailable, "service not available now",
		func(c *Config) { c.Store.Role, c.BrokerID = storage.Slave, 1 }, topic(false))
	f("no slave is connected", remoting.SlaveNotAvailable, "",
		func(c *Config) { c.Store.Role = storage.SyncMaster }, nil)
	f("sync flush", remoting.Success, "",
		func(c *Config) { c.Store.FlushDiskType = storage.SyncFlush }, nil)
}

// A sender that does not want to wait is answered without a slave.
func TestSendWithoutWaiting(t *testing.T) {
	b := startTestBroker(t, func(c *Config) {
		c.Store.Role, c.Store.FlushDiskType = storage.SyncMaster, storage.SyncFlush
	})
	c := b.dial()
	resp := c.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "WAIT\x01true")...)
	wantCode(t, resp, remoting.SlaveNotAvailable)
	extInt(t, resp, "queueOffset") // stored: the header is filled
	c.send("T", 0, []byte("x"), "WAIT\x01false")
	if n := len(c.pullUntil("g", "T", 0, 0, 2)); n != 2 {
		t.Errorf("%d messages stored", n)
	}
}

// Property lengths around the limit: what is accepted comes back whole, the rest is refused with both numbers
// (apache/rocketmq#6579).
func TestPropertyLengthLimit(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.Store.DelayLevels = message.DelayLevels{Millis: []int64{1}, Text: "0s"} })
	c := b.dial()
	c.send("T", 0, nil, "")
	stored := 1
	for _, delay := range []string{"", "DELAY\x011\x02"} {
		for length := 32_600; length <= 32_767; length++ {
			props := delay + "K\x01"
			props += strings.Repeat("v", length-len(props))
			resp := c.call(remoting.SendMessageV2, nil, sendV2("T", 0, props)...)
			added := len("\x02CLUSTER\x01DefaultCluster")
			if delay != "" {
				added += len("\x02REAL_TOPIC\x01T\x02REAL_QID\x010")
			}
			want := remoting.Success
			if length+added > message.PropertiesLengthMax {
				want = remoting.MessageIllegal
			} else {
				stored++
			}
			if resp.Code != want {
				t.Fatalf("%d bytes and %d added, delayed %v: code %d, %q; want %d", length, added, delay != "", resp.Code, resp.Remark, want)
			}
		}
	}
	for _, r := range c.pullUntil("g", "T", 0, 0, stored)[1:] {
		if v := message.ParseProperties(r.Properties)["K"]; len(v) < 32_000 || strings.Trim(v, "v") != "" {
			t.Fatalf("property of %d bytes came back damaged", len(v))
		}
	}
}

// A burst of sends to topics that do not exist takes few writes of their table, and no send is answered before its topic
// is on the disk.
func TestAutoCreateGathers(t *testing.T) {
	const topics, sends = 100, 3
	b, fs := startFaultyBroker(t, func(c *Config) { c.Store.MappedFileSizeCommitLog = 4 << 20 })
	c := b.dial()
	release := b.holdAdminLane()
	_, before := b.topics.All()
	var cmds []*remoting.Command
	for i := range topics * sends {
		cmds = append(cmds, c.request(remoting.SendMessageV2, []byte("x"), sendV2(fmt.Sprint("T", i%topics), 0, "")...))
	}
	waiting := c.start(cmds...)
	eventually(t, "the sends in the lane", func() bool { return b.adminLane.Len() >= topics*sends })
	var writes atomic.Int64
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpWrite && strings.Contains(path, "topics.json") {
			writes.Add(1)
		}
	})
	release()
	for _, ch := range waiting {
		wantCode(t, c.await(ch), remoting.Success)
	}
	fs.SetHook(nil)
	_, after := b.topics.All()
	if n := writes.Load(); n != 1 || after.Counter != before.Counter+1 {
		t.Errorf("%d writes for %d topics, version %d after %d", n, topics, after.Counter, before.Counter)
	}
	cut := tableBroker(t, fs.Crash(faultfs.PowerLoss, 1), func(c *Config) { c.Store.StorePathRootDir = b.cfg.Store.StorePathRootDir })
	for i := range topics {
		if name := fmt.Sprint("T", i); cut.topics.Get(name) == nil {
			t.Errorf("sends to %s were answered, and the topic is not on the disk", name)
		}
	}
}

// holdAdminLane keeps the admin worker busy until the function that it returns is called.
func (b *testBroker) holdAdminLane() (release func()) {
	b.t.Helper()
	gate, running := make(chan struct{}), make(chan struct{})
	b.adminLane.Submit(func() {
		close(running)
		<-gate
	})
	<-running
	return func() { close(gate) }
}

// An unknown topic is made once, however many sends ask for it at a time, and each of them is stored.
func TestAutoCreateOnce(t *testing.T) {
	b := startTestBroker(t, nil)
	_, before := b.topics.All()
	var wg sync.WaitGroup
	for range 8 {
		c := b.dial()
		wg.Go(func() {
			cmds := make([]*remoting.Command, 32)
			for i := range cmds {
				cmds[i] = c.request(remoting.SendMessageV2, []byte("x"), sendV2("fresh", i%4, "")...)
			}
			for _, ch := range c.start(cmds...) {
				if resp := c.await(ch); resp.Code != remoting.Success {
					t.Errorf("code %d, %q", resp.Code, resp.Remark)
				}
			}
		})
	}
	wg.Wait()
	topic := b.topics.Get("fresh")
	if topic == nil || topic.ReadQueueNums != 4 || topic.WriteQueueNums != 4 || topic.Perm != PermRead|PermWrite {
		t.Fatalf("made %+v", topic)
	}
	if _, after := b.topics.All(); after.Counter != before.Counter+1 {
		t.Errorf("the table's version went from %d to %d", before.Counter, after.Counter)
	}
	b.dispatched()
	total := storage.QueueOffset(0)
	for q := range int32(4) {
		_, end, _ := b.store.QueueOffsets("fresh", q)
		total += end
	}
	if total != 256 {
		t.Errorf("%d of 256 messages stored", total)
	}
}

func TestNegativeQueueIDGoesToSomeWriteQueue(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	seen := make(map[int64]bool)
	for range 200 {
		seen[extInt(t, c.send("T", -1, nil, ""), "queueId")] = true
	}
	for q := range seen {
		if q < 0 || q >= 4 {
			t.Errorf("stored in queue %d", q)
		}
	}
	if len(seen) != 4 {
		t.Errorf("only queues %v were chosen", slicesOf(seen))
	}
}

func slicesOf(m map[int64]bool) (keys []int64) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func TestOnewaySendIsStoredAndNotAnswered(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 0, []byte("0"), "")
	for i := 1; i < 100; i++ {
		c.oneway(remoting.SendMessageV2, []byte(strconv.Itoa(i)), sendV2("T", 0, "")...)
	}
	c.oneway(remoting.SendMessageV2, nil, sendV2("bad topic", 0, "")...)
	for i, r := range c.pullUntil("g", "T", 0, 0, 100) {
		if string(r.Body) != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, r.Body)
		}
	}
}

func batchOf(elements ...message.BatchElement) (body []byte) {
	for i := range elements {
		body = message.AppendBatchElement(body, &elements[i])
	}
	return body
}

func TestBatch(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	c.send("T", 1, []byte("before"), "")
	body := batchOf(
		message.BatchElement{Flag: 7, Body: []byte("one"), Properties: []byte("TAGS\x01a")},
		message.BatchElement{Body: []byte("two"), Properties: []byte("TAGS\x01b\x02UNIQ_KEY\x01u\x02")},
		message.BatchElement{Body: nil, Properties: nil},
	)
	resp := c.call(remoting.SendBatchMessage, body, sendV2("T", 1, "WAIT\x01true", "m", "true")...)
	wantCode(t, resp, remoting.Success)
	wantTrace(t, resp)
	if off := extInt(t, resp, "queueOffset"); off != 1 {
		t.Errorf("queueOffset %d", off)
	}
	ids := strings.Split(resp.Ext.String("msgId"), ",")
	b.dispatched()
	records := c.pullUntil("g", "T", 1, 1, 3)
	wants := []map[string]string{
		{"TAGS": "a", "CLUSTER": "DefaultCluster"},
		{"TAGS": "b", "UNIQ_KEY": "u", "CLUSTER": "DefaultCluster"},
		{"CLUSTER": "DefaultCluster"},
	}
	if len(ids) != 3 || len(records) != 3 {
		t.Fatalf("%d ids, %d records", len(ids), len(records))
	}
	for i, r := range records {
		_, phy, err := message.ParseOffsetMessageID(ids[i])
		if err != nil || phy != r.PhysicalOffset || r.QueueOffset != int64(i)+1 {
			t.Errorf("record %d: id %s, physical offset %d, queue offset %d, %v", i, ids[i], r.PhysicalOffset, r.QueueOffset, err)
		}
		if got := message.ParseProperties(r.Properties); !maps.Equal(got, wants[i]) || bytes.HasPrefix(r.Properties, []byte{2}) {
			t.Errorf("record %d: properties %q; want %v", i, r.Properties, wants[i])
		}
	}
	if string(records[0].Body) != "one" || records[0].Flag != 7 || len(records[2].Body) != 0 {
		t.Errorf("records %+v", records)
	}
}

// A 5.x client names the batch beside its messages; each of those keeps its own id (apache/rocketmq#9416).
func TestMessagesOfABatchKeepTheirIDs(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	body := batchOf(
		message.BatchElement{Body: []byte("one"), Properties: []byte("UNIQ_KEY\x01u1\x02")},
		message.BatchElement{Body: []byte("two"), Properties: []byte("CLUSTER\x01mine\x02UNIQ_KEY\x01u2")},
		message.BatchElement{Body: []byte("three")},
	)
	wantCode(t, c.call(remoting.SendBatchMessage, body, sendV2("T", 0, "WAIT\x01true\x02UNIQ_KEY\x01whole\x02", "m", "true")...), remoting.Success)
	b.dispatched()
	records := c.pullUntil("g", "T", 0, 0, 3)
	for i, want := range []string{"u1", "u2", "whole"} {
		if p := message.ParseProperties(records[i].Properties); p["UNIQ_KEY"] != want || p["CLUSTER"] != "DefaultCluster" {
			t.Errorf("message %d: properties %v; want id %s", i, p, want)
		}
		resp := c.call(remoting.QueryMessage, nil, queryFields("T", want, "_UNIQUE_KEY_QUERY", "true")...)
		if found := decodeRecords(t, resp.Body); len(found) != 1 || !bytes.Equal(found[0].Body, records[i].Body) {
			t.Errorf("%d messages under the id %s, code %d", len(found), want, resp.Code)
		}
	}
}

// A slave's topics are its master's: a send that it refuses makes none.
func TestSlaveMakesNoDeadLetterTopic(t *testing.T) {
	b := startTestBroker(t, func(c *Config) { c.Store.Role, c.BrokerID = storage.Slave, 1 })
	must(t, b.topics.Update(newTopicConfig("%RETRY%g", 1, PermRead|PermWrite)))
	resp := b.dial().call(remoting.SendMessageV2, []byte("x"), sendV2("%RETRY%g", 0, "", "j", "16")...)
	wantCode(t, resp, remoting.ServiceNotAvailable)
	if b.topics.Get("%DLQ%g") != nil {
		t.Error("it made a dead letter topic")
	}
}

// Batches and single sends from many connections to one queue: no gap, no offset twice, and each batch in one piece
// (apache/rocketmq#2865).
func TestMixedBatchesAreGapless(t *testing.T) {
	b := startTestBroker(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for p := range 8 {
		c := b.dial()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for i := range 40 {
				n := 1 + rng.IntN(50)
				var elements []message.BatchElement
				for j := range n {
					elements = append(elements, message.BatchElement{Body: fmt.Appendf(nil, "%d/%d/%d/%d", p, i, j, n)})
				}
				var resp *remoting.Command
				if n == 1 {
					resp = c.call(remoting.SendMessageV2, elements[0].Body, sendV2("T", 0, "")...)
				} else {
					resp = c.call(remoting.SendBatchMessage, batchOf(elements...), sendV2("T", 0, "", "m", "true")...)
				}
				if resp.Code != remoting.Success {
					t.Errorf("code %d, %q", resp.Code, resp.Remark)
				}
				mu.Lock()
				total += n
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	records := b.dial().pullUntil("g", "T", 0, 0, total)
	if len(records) != total {
		t.Fatalf("%d of %d messages", len(records), total)
	}
	for i, r := range records {
		if r.QueueOffset != int64(i) {
			t.Fatalf("position %d holds queue offset %d", i, r.QueueOffset)
		}
		var p, k, j, n int
		if _, err := fmt.Sscanf(string(r.Body), "%d/%d/%d/%d", &p, &k, &j, &n); err != nil {
			t.Fatal(err)
		}
		if j+1 < n && string(records[i+1].Body) != fmt.Sprintf("%d/%d/%d/%d", p, k, j+1, n) {
			t.Fatalf("behind %s of a batch stands %s", r.Body, records[i+1].Body)
		}
	}
}

// Many producers, each body with its own checksum: nothing of a receive buffer that is reused shows in the log. Under the
// invariants tag the buffers are poisoned after each callback.
func TestManyProducersKeepTheirBytes(t *testing.T) {
	b := startTestBroker(t, nil)
	const producers, each = 64, 50
	var wg sync.WaitGroup
	for p := range producers {
		c := b.dial()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 7))
			var cmds []*remoting.Command
			for range each {
				body := make([]byte, 4+rng.IntN(6_000))
				for i := 4; i < len(body); i++ {
					body[i] = byte(rng.Uint32())
				}
				binary.BigEndian.PutUint32(body, crc32.ChecksumIEEE(body[4:]))
				props := fmt.Sprintf("KEYS\x01%08x\x02LEN\x01%d", binary.BigEndian.Uint32(body), len(body))
				cmds = append(cmds, c.request(remoting.SendMessageV2, body, sendV2("T", p%4, props)...))
			}
			for _, ch := range c.start(cmds...) {
				if resp := c.await(ch); resp.Code != remoting.Success {
					t.Errorf("code %d, %q", resp.Code, resp.Remark)
				}
			}
		})
	}
	wg.Wait()
	c := b.dial()
	for q := range 4 {
		for _, r := range c.pullUntil("g", "T", q, 0, producers*each/4) {
			sum := binary.BigEndian.Uint32(r.Body)
			props := message.ParseProperties(r.Properties)
			if crc32.ChecksumIEEE(r.Body[4:]) != sum || props["KEYS"] != fmt.Sprintf("%08x", sum) || props["LEN"] != strconv.Itoa(len(r.Body)) {
				t.Fatalf("message at queue %d offset %d is damaged: %v", q, r.QueueOffset, props)
			}
		}
	}
}

// Body sizes at the limit: one more is refused, none is stored as none (apache/rocketmq-client-go#690).
func TestBodySizes(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	limit := b.Config().Store.MaxMessageSize
	for _, size := range []int{0, 1, limit - 1, limit} {
		c.send("T", 0, make([]byte, size), "")
	}
	wantCode(t, c.call(remoting.SendMessageV2, make([]byte, limit+1), sendV2("T", 0, "")...), remoting.MessageIllegal)
	for i, r := range c.pullUntil("g", "T", 0, 0, 4) {
		if want := []int{0, 1, limit - 1, limit}[i]; len(r.Body) != want {
			t.Errorf("message %d has %d bytes; want %d", i, len(r.Body), want)
		}
	}
}
