// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
)

// queueUnitsMax bounds the queue entries of one answer to 321.
const queueUnitsMax = 50_000

func (b *BrokerController) writeQueueData(w *jsonWriter, topic string, queueID int32, index int64, count int, sub *SubscriptionData) {
	b.store.ConsumeQueueUnits(topic, queueID, storage.QueueOffset(index), count, func(_ storage.QueueOffset, unit storage.ConsumeQueueUnit) bool {
		w.element()
		w.beginObject()
		w.boolMember("eval", sub == nil || sub.matches(unit.TagsCode))
		w.intMember("physicOffset", int64(unit.Offset))
		w.intMember("physicSize", int64(unit.Size))
		w.intMember("tagsCode", unit.TagsCode)
		w.endObject()
		return true
	})
}

// matches says whether a message with this tags code is for the group.
func (s *SubscriptionData) matches(tagsCode int64) bool {
	if s.SubString == subscriptionAll || s.ClassFilterMode {
		return true
	}
	_, ok := s.CodeSet[int32(tagsCode)]
	return ok
}

// storeTimeBefore is the store time of the message before offset, 0 if there is none.
func (b *BrokerController) storeTimeBefore(topic string, queueID int32, offset int64) int64 {
	if offset <= 0 {
		return 0
	}
	return max(0, b.store.MessageStoreTime(topic, queueID, storage.QueueOffset(offset-1)))
}

// getConsumeStats serves 208, one entry per read queue. Source: AdminBrokerProcessor#getConsumeStats.
func (b *BrokerController) getConsumeStats(req *reactor.Request) answer {
	h := headerOf(req)
	group := h.text("consumerGroup")
	if h.err != nil {
		return failed(h.err)
	}
	topics := b.offsets.TopicsOf(group)
	if topic := req.Ext.String("topic"); topic != "" {
		topics = []string{topic}
	} else if list := req.Ext.String("topicList"); list != "" { // 5.x
		topics = strings.Split(list, ";")
		slices.Sort(topics)
		topics = slices.Compact(topics) // each has its queues once in the answer
	}
	stats := consumeStats{b: b, group: group}
	for _, topic := range topics {
		if c := b.consumedTopic(group, topic); c != nil {
			stats.add(c)
		}
	}
	var w jsonWriter
	stats.writeTo(&w)
	return answer{body: w.b}
}

// consumedTopic is the topic if it exists and, when the group is online, the group subscribes to it.
func (b *BrokerController) consumedTopic(group, topic string) *TopicConfig {
	c := b.topics.Get(topic)
	if c == nil {
		return nil
	}
	if info := b.consumers.Get(group); info != nil && len(info.Subscriptions) > 0 && info.Subscriptions[topic] == nil {
		return nil
	}
	return c
}

// consumeStats is how far a group is. Source: ConsumeStats.
type consumeStats struct {
	b      *BrokerController
	group  string
	tps    float64
	queues []consumedQueue
}

type consumedQueue struct {
	queue                        MessageQueue
	broker, consumer, lastUpdate int64
}

func (s *consumeStats) add(c *TopicConfig) {
	for queueID := range c.ReadQueueNums {
		_, end, _ := s.b.store.QueueOffsets(c.TopicName, queueID)
		consumed := max(0, s.b.offsets.Query(s.group, c.TopicName, queueID))
		s.queues = append(s.queues, consumedQueue{
			queue: s.b.queue(c.TopicName, queueID), broker: max(0, int64(end)), consumer: consumed,
			lastUpdate: s.b.storeTimeBefore(c.TopicName, queueID, consumed),
		})
	}
	s.tps += s.b.stats.ConsumeTPS(c.TopicName, s.group)
}

func (s *consumeStats) writeTo(w *jsonWriter) {
	w.beginObject()
	w.floatMember("consumeTps", s.tps)
	w.key("offsetTable")
	w.beginObject()
	for _, q := range s.queues {
		w.queueKey(q.queue)
		w.beginObject()
		w.intMember("brokerOffset", q.broker)
		w.intMember("consumerOffset", q.consumer)
		w.intMember("lastTimestamp", q.lastUpdate)
		w.intMember("pullOffset", q.consumer) // 5.x: what is pulled and not committed is not known here
		w.endObject()
	}
	w.endObject()
	w.endObject()
}

func (s *consumeStats) diff() (total int64) {
	for _, q := range s.queues {
		total += q.broker - q.consumer
	}
	return total
}

// getBrokerConsumeStats serves 317. Source: AdminBrokerProcessor#fetchAllConsumeStatsInBroker.
func (b *BrokerController) getBrokerConsumeStats(req *reactor.Request) answer {
	orderOnly := req.Ext.Bool("isOrder")
	var total int64
	var w jsonWriter
	w.beginObject()
	w.strMember("brokerAddr", b.address())
	w.key("consumeStatsList")
	w.beginArray()
	for _, group := range b.groups.Names() {
		w.element()
		w.beginObject()
		w.key(group)
		w.beginArray()
		for _, topic := range b.offsets.TopicsOf(group) {
			c := b.consumedTopic(group, topic)
			if c == nil || orderOnly && !c.Order {
				continue
			}
			stats := consumeStats{b: b, group: group}
			stats.add(c)
			total += stats.diff()
			w.element()
			stats.writeTo(&w)
		}
		w.endArray()
		w.endObject()
	}
	w.endArray()
	w.intMember("totalDiff", total)
	w.endObject()
	return answer{body: w.b}
}

// address is how clients and name servers know this broker.
func (b *BrokerController) address() string {
	if host := b.storeHost.Load(); host != nil {
		return host.String()
	}
	cfg := b.Config()
	return fmt.Sprintf("%s:%d", cfg.BrokerIP1, cfg.ListenPort)
}

// queryConsumeTimeSpan serves 303. Source: AdminBrokerProcessor#queryConsumeTimeSpan.
func (b *BrokerController) queryConsumeTimeSpan(req *reactor.Request) answer {
	h := headerOf(req)
	topic, group := h.text("topic"), h.text("group")
	if h.err != nil {
		return failed(h.err)
	}
	c := b.topics.Get(topic)
	if c == nil {
		return noSuchTopic(topic)
	}
	now := time.Now().UnixMilli()
	var w jsonWriter
	w.beginObject()
	w.key("consumeTimeSpanSet")
	w.beginArray()
	for queueID := range c.WriteQueueNums {
		first, end, _ := b.store.QueueOffsets(topic, queueID)
		oldest := b.store.MessageStoreTime(topic, queueID, first)
		consumed := b.offsets.Query(group, topic, queueID)
		reached, delay := oldest, int64(0)
		if consumed > 0 {
			reached = b.storeTimeBefore(topic, queueID, consumed)
		}
		if consumed >= 0 && consumed < int64(end) {
			if next := b.store.MessageStoreTime(topic, queueID, storage.QueueOffset(consumed)); next > 0 {
				delay = now - next
			}
		}
		w.element()
		w.beginObject()
		w.intMember("consumeTimeStamp", reached)
		w.intMember("delayTime", delay)
		w.intMember("maxTimeStamp", b.storeTimeBefore(topic, queueID, int64(end)))
		w.key("messageQueue")
		w.queue(b.queue(topic, queueID))
		w.intMember("minTimeStamp", oldest)
		w.endObject()
	}
	w.endArray()
	w.endObject()
	return answer{body: w.b}
}

// queryTopicConsumeByWho serves 300: groups that are online, and groups that left offsets.
func (b *BrokerController) queryTopicConsumeByWho(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	if h.err != nil {
		return failed(h.err)
	}
	groups := append(b.consumers.GroupsOf(topic), b.offsets.GroupsOf(topic)...)
	slices.Sort(groups)
	var w jsonWriter
	w.beginObject()
	w.stringsMember("groupList", slices.Compact(groups))
	w.endObject()
	return answer{body: w.b}
}

// queryTopicsByConsumer serves 343 (5.x).
func (b *BrokerController) queryTopicsByConsumer(req *reactor.Request) answer {
	h := headerOf(req)
	group := h.text("group")
	if h.err != nil {
		return failed(h.err)
	}
	var w jsonWriter
	w.beginObject()
	w.strMember("brokerAddr", b.address())
	w.stringsMember("topicList", b.offsets.TopicsOf(group))
	w.endObject()
	return answer{body: w.b}
}

// querySubscriptionByConsumer serves 345 (5.x).
func (b *BrokerController) querySubscriptionByConsumer(req *reactor.Request) answer {
	h := headerOf(req)
	group, topic := h.text("group"), h.text("topic")
	if h.err != nil {
		return failed(h.err)
	}
	_, sub := b.consumers.Subscription([]byte(group), []byte(topic))
	var w jsonWriter
	w.beginObject()
	w.strMember("group", group)
	if sub != nil {
		w.key("subscriptionData")
		sub.writeTo(&w)
	}
	w.strMember("topic", topic)
	w.endObject()
	return answer{body: w.b}
}

// getAllConsumerOffset serves 43. A loopmq slave may bring what it has newer: after a failover the master that is back
// takes it over, then answers. It does so once the logs are one: until a slave has cut a tail that the master has lost,
// its offsets may count messages that others will take the place of.
func (b *BrokerController) getAllConsumerOffset(req *reactor.Request) answer {
	joined := b.ha.Feeds(req.Ext.String(offsetNodeMember))
	if len(req.Body) > 0 && joined && b.Config().Store.Role != storage.Slave {
		offered, err := readOffsetTables(req.Body)
		if err != nil {
			return failed(err)
		}
		b.offsets.Merge(&offered, b.queueEnd)
	}
	known := req.Ext.String(offsetVersionMember)
	if known != "" {
		b.offsets.sawSlave()
		// A slave that knows only an earlier run's table has not seen what this one lacks of it.
		if joined && sameLife(known, b.offsets.version()) {
			b.offers.arrived()
		}
	}
	if joined {
		return answer{body: b.offsets.encode(known, offsetJoinedMember)}
	}
	return answer{body: b.offsets.encode(known)}
}

// queryCorrectionOffset serves 308: per queue the least offset of all groups but some, or "no correction" where that is
// beyond the compared group's. Source: AdminBrokerProcessor#queryCorrectionOffset.
func (b *BrokerController) queryCorrectionOffset(req *reactor.Request) answer {
	h := headerOf(req)
	topic, compareGroup := h.text("topic"), h.text("compareGroup")
	if h.err != nil {
		return failed(h.err)
	}
	filtered := strings.Split(req.Ext.String("filterGroups"), ",")
	correction := make(map[int32]int64)
	for _, group := range b.offsets.GroupsOf(topic) {
		if slices.Contains(filtered, group) {
			continue
		}
		for queueID, offset := range b.offsets.OffsetsOf(group, topic) {
			first, _, _ := b.store.QueueOffsets(topic, queueID)
			if least, ok := correction[queueID]; offset >= int64(first) && (!ok || offset < least) {
				correction[queueID] = offset
			}
		}
	}
	for queueID, compared := range b.offsets.OffsetsOf(compareGroup, topic) {
		if least, ok := correction[queueID]; ok && least > compared {
			correction[queueID] = math.MaxInt64
		}
	}
	var w jsonWriter
	w.beginObject()
	w.key("correctionOffsets")
	writeIntMap(&w, correction)
	w.endObject()
	return answer{body: w.b}
}

// cloneGroupOffset serves 314. Source: AdminBrokerProcessor#cloneGroupOffset.
func (b *BrokerController) cloneGroupOffset(req *reactor.Request) answer {
	h := headerOf(req)
	src, dest := h.group("srcGroup"), h.group("destGroup")
	if h.err != nil {
		return failed(h.err)
	}
	topics := b.offsets.TopicsOf(src)
	if topic := req.Ext.String("topic"); topic != "" {
		topics = []string{topic}
	}
	for _, topic := range topics {
		if b.topics.Get(topic) == nil || !req.Ext.Bool("offline") && b.consumedTopic(src, topic) == nil {
			continue
		}
		b.offsets.Clone(src, dest, topic)
	}
	return answer{}
}

// resetOffset serves 222: it computes where each queue goes and tells the clients, which move and commit. With nobody
// online the tools write the offsets themselves. Source: Broker2Client#resetOffset.
func (b *BrokerController) resetOffset(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	h := headerOf(req)
	reset := offsetReset{topic: h.topic("topic"), group: h.group("group"), timestamp: h.int64("timestamp"), force: req.Ext.Bool("isForce")}
	reset.queueID = h.optionalInt32("queueId", -1) // 5.x: this queue only, to this offset
	reset.offset = h.optionalInt64("offset", -1)
	if h.err != nil {
		return failed(h.err)
	}
	c := b.topics.Get(reset.topic)
	if c == nil {
		return refused(remoting.SystemError, "[reset-offset] reset offset failed, no topic in this broker. topic="+reset.topic)
	}
	table, err := b.resetTargets(c, reset)
	if err != nil {
		return failed(err)
	}
	info := b.consumers.Get(reset.group)
	if info == nil {
		return refused(remoting.ConsumerNotOnline, fmt.Sprintf("Consumer not online, so can not reset offset. Group: %s Topic: %s Timestamp: %d",
			reset.group, reset.topic, reset.timestamp))
	}
	native := encodeResetOffset(table, false)
	for _, client := range info.Channels {
		if client.Version < versionResetOffset {
			return refused(remoting.SystemError, "the client does not support this feature. version="+fmt.Sprint(client.Version))
		}
	}
	for _, client := range info.Channels {
		body := native
		if client.Language == languageCPP || req.Language == languageCPP {
			body = encodeResetOffset(table, true)
		}
		b.pushReset(client, reset, body)
	}
	b.logger.Info("offsets reset", "topic", reset.topic, "group", reset.group, "timestamp", reset.timestamp, "force", reset.force,
		"clients", len(info.Channels), "peer", req.Session.RemoteAddr())
	return answer{body: native}
}

// Versions from which clients know a push. Source: MQVersion (V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT).
const (
	versionResetOffset = 28
	versionRunningInfo = 62
)

type offsetReset struct {
	topic, group string
	timestamp    int64 // -1: the end
	force        bool
	queueID      int32 // -1: all
	offset       int64 // -1: by timestamp
}

type queueOffset struct {
	queue  MessageQueue
	offset int64
}

func (b *BrokerController) resetTargets(c *TopicConfig, reset offsetReset) (table []queueOffset, err error) {
	for queueID := range c.WriteQueueNums {
		if reset.queueID >= 0 && queueID != reset.queueID {
			continue
		}
		stored := b.offsets.Query(reset.group, reset.topic, queueID)
		if stored < 0 {
			return nil, fmt.Errorf("the consumer group <%s> not exist: it has no offset on queue %d of %s", reset.group, queueID, reset.topic)
		}
		target := reset.offset
		if target < 0 {
			target = b.offsetAt(reset.topic, queueID, reset.timestamp)
			if !reset.force && target > stored {
				target = stored
			}
		}
		table = append(table, queueOffset{b.queue(reset.topic, queueID), target})
	}
	return table, nil
}

func (b *BrokerController) offsetAt(topic string, queueID int32, timestamp int64) int64 {
	if timestamp == -1 {
		_, end, _ := b.store.QueueOffsets(topic, queueID)
		return max(0, int64(end))
	}
	return max(0, int64(b.store.OffsetByTime(topic, queueID, timestamp, false)))
}

// encodeResetOffset writes ResetOffsetBody, or with list ResetOffsetBodyForC.
func encodeResetOffset(table []queueOffset, list bool) []byte {
	var w jsonWriter
	w.beginObject()
	w.key("offsetTable")
	if list {
		w.beginArray()
		for _, entry := range table {
			w.element()
			w.beginObject()
			w.strMember("brokerName", entry.queue.BrokerName)
			w.intMember("offset", entry.offset)
			w.intMember("queueId", int64(entry.queue.QueueID))
			w.strMember("topic", entry.queue.Topic)
			w.endObject()
		}
		w.endArray()
	} else {
		writeQueueOffsets(&w, table)
	}
	w.endObject()
	return w.b
}

func writeQueueOffsets(w *jsonWriter, table []queueOffset) {
	w.beginObject()
	for _, entry := range table {
		w.queueKey(entry.queue)
		w.int(entry.offset)
	}
	w.endObject()
}

func (b *BrokerController) pushReset(client *ClientChannelInfo, reset offsetReset, body []byte) {
	push := newResponse(remoting.ResetConsumerClientOffset)
	push.Ext.Add("topic", reset.topic)
	push.Ext.Add("group", reset.group)
	push.Ext.AddInt("timestamp", reset.timestamp)
	push.Ext.AddBool("isForce", reset.force)
	push.Body = body
	if err := client.Session.InvokeOneway(push); err != nil {
		b.logger.Warn("reset of offsets not pushed", "group", reset.group, "client", client.ClientID, "err", err)
	}
	putResponse(push)
}
