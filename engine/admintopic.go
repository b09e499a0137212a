// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

// listEntriesMax bounds the entries of one request that changes many topics or groups.
const listEntriesMax = 10_000

// updateAndCreateTopic serves 17. Source: AdminBrokerProcessor#updateAndCreateTopic.
func (b *BrokerController) updateAndCreateTopic(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	h := headerOf(req)
	c, err := b.changedTopic(h.text("topic"))
	if err != nil {
		return failed(err)
	}
	c.ReadQueueNums = h.int32("readQueueNums")
	c.WriteQueueNums = h.int32("writeQueueNums")
	c.Perm = h.int32("perm")
	c.TopicSysFlag = h.optionalInt32("topicSysFlag", 0)
	c.Order = req.Ext.Bool("order")
	c.TopicFilterType = topicFilterSingle
	if req.Ext.String("topicFilterType") == topicFilterMulti {
		c.TopicFilterType = topicFilterMulti
	}
	h.keep(c.changeAttributes(req.Ext.String("attributes")))
	h.keep(checkPerm(c.Perm))
	if h.err != nil {
		return failed(h.err)
	}
	if err := b.topics.Update(c); err != nil {
		return failed(err)
	}
	b.logger.Info("topic updated", "topic", c.TopicName, "read", c.ReadQueueNums, "write", c.WriteQueueNums, "perm", c.Perm, "peer", req.Session.RemoteAddr())
	return b.successWhenRegistered(req)
}

// changedTopic is a copy of a topic, or a new one, for a tool to change.
func (b *BrokerController) changedTopic(topic string) (*TopicConfig, error) {
	if err := checkTableTopicName(topic); err != nil {
		return nil, err
	}
	if b.isSystemTopic(topic) {
		return nil, errSystemTopic(topic)
	}
	if old := b.topics.Get(topic); old != nil {
		c := *old
		c.Attributes = maps.Clone(old.Attributes)
		return &c, nil
	}
	return newTopicConfig(topic, 0, 0), nil
}

func checkPerm(perm int32) error {
	if perm < 0 || perm > PermRead|PermWrite|PermInherit {
		return fmt.Errorf("perm %d: want a sum of 4 (read), 2 (write) and 1 (inherit)", perm)
	}
	return nil
}

// changeAttributes follows 5.x's AttributeParser: "+name=value" sets, "-name" removes, separated by commas.
func (c *TopicConfig) changeAttributes(text string) error {
	if text == "" {
		return nil
	}
	if c.Attributes == nil {
		c.Attributes = make(map[string]string)
	}
	for change := range strings.SplitSeq(text, ",") {
		name, value, set := strings.Cut(change, "=")
		switch {
		case set && len(name) > 1 && name[0] == '+':
			c.Attributes[name[1:]] = value
		case !set && len(name) > 1 && name[0] == '-':
			delete(c.Attributes, name[1:])
		default:
			return fmt.Errorf("attribute %q: want +name=value or -name", change)
		}
	}
	if len(c.Attributes) > extraMembersMax {
		return fmt.Errorf("more than %d attributes", extraMembersMax)
	}
	return nil
}

// updateAndCreateTopicList serves 18: all of the list or nothing.
func (b *BrokerController) updateAndCreateTopicList(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	list, err := readList(req.Body, "topicConfigList", (*jsonReader).readTopicConfig)
	if err != nil {
		return failed(err)
	}
	for _, c := range list {
		if _, err := b.changedTopic(c.TopicName); err != nil {
			return failed(err)
		}
		if err := checkPerm(c.Perm); err != nil {
			return failed(err)
		}
	}
	if err := b.topics.UpdateAll(list); err != nil {
		return failed(err)
	}
	return b.successWhenRegistered(req)
}

// readList reads the one list of a body.
func readList[T any](body []byte, name string, read func(*jsonReader) (T, error)) (list []T, err error) {
	r := newJSONReader(body)
	err = r.object(func(key []byte) error {
		if string(key) != name {
			return r.skip()
		}
		return r.array(func() error {
			if len(list) == listEntriesMax {
				return r.fail(fmt.Sprintf("more than %d entries", listEntriesMax))
			}
			v, err := read(r)
			list = append(list, v)
			return err
		})
	})
	if err == nil {
		err = r.end()
	}
	return list, err
}

// deleteTopicInBroker serves 215: the topic leaves the table, the name servers are told, then its queues and the groups'
// offsets go. Source: AdminBrokerProcessor#deleteTopic (5.x for the offsets).
func (b *BrokerController) deleteTopicInBroker(req *reactor.Request) answer {
	if a, refused := b.refusedOnSlave(); refused {
		return a
	}
	h := headerOf(req)
	topic := h.topic("topic")
	if h.err != nil {
		return failed(h.err)
	}
	if b.isSystemTopic(topic) {
		return failed(errSystemTopic(topic))
	}
	if err := b.deleteTopic(topic); err != nil {
		return failed(err)
	}
	b.logger.Info("topic deleted", "topic", topic, "peer", req.Session.RemoteAddr())
	return answer{}
}

func (b *BrokerController) deleteTopic(topic string) error {
	if err := b.topics.Delete(topic); err != nil {
		return err
	}
	err := b.store.DeleteTopic(topic)
	b.offsets.RemoveTopic(topic)
	b.stats.RemoveTopic(topic)
	return errors.Join(err, b.offsets.Persist())
}

// cleanUnusedTopic serves 316: queues of topics that are in no table go. Source: DefaultMessageStore#cleanUnusedTopic.
func (b *BrokerController) cleanUnusedTopic(*reactor.Request) answer {
	var errs []error
	for topic := range b.store.Topics() {
		if b.topics.Get(topic) == nil && !b.isSystemTopic(topic) {
			errs = append(errs, b.store.DeleteTopic(topic))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return failed(err)
	}
	return answer{}
}

// getAllTopicConfig serves 21.
func (b *BrokerController) getAllTopicConfig(*reactor.Request) answer {
	return answer{body: encodeTopicConfigWrapper(b.topics.All())}
}

// getTopicConfig serves 351, which 5.x tools ask after many others.
func (b *BrokerController) getTopicConfig(req *reactor.Request) answer {
	topic, _ := req.Ext.Get("topic")
	c := b.topics.Lookup(topic)
	if c == nil {
		return noSuchTopic(topic)
	}
	var w jsonWriter
	c.writeTo(&w)
	return answer{body: w.b}
}

func noSuchTopic[T ~string | ~[]byte](topic T) answer {
	return refused(remoting.TopicNotExist, "No topic in this broker. topic: "+shown([]byte(topic)))
}

// getSystemTopicList serves 305.
func (b *BrokerController) getSystemTopicList(*reactor.Request) answer {
	cfg := b.Config()
	topics := slices.Collect(maps.Keys(systemTopics))
	topics = append(topics, cfg.BrokerClusterName, cfg.BrokerName, replyTopic(cfg.BrokerClusterName))
	slices.Sort(topics)
	var w jsonWriter
	w.beginObject()
	w.stringsMember("topicList", slices.Compact(topics))
	w.endObject()
	return answer{body: w.b}
}

// getTopicStatsInfo serves 202, one entry per write queue. Source: AdminBrokerProcessor#getTopicStatsInfo.
func (b *BrokerController) getTopicStatsInfo(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	if h.err != nil {
		return failed(h.err)
	}
	c := b.topics.Get(topic)
	if c == nil {
		return noSuchTopic(topic)
	}
	var w jsonWriter
	w.beginObject()
	w.key("offsetTable")
	w.beginObject()
	for queueID := range c.WriteQueueNums {
		first, end, _ := b.store.QueueOffsets(topic, queueID)
		w.queueKey(b.queue(topic, queueID))
		w.beginObject()
		w.intMember("lastUpdateTimestamp", b.storeTimeBefore(topic, queueID, int64(end)))
		w.intMember("maxOffset", max(0, int64(end)))
		w.intMember("minOffset", max(0, int64(first)))
		w.endObject()
	}
	w.endObject()
	w.floatMember("topicPutTps", b.stats.PutTPS(topic))
	w.endObject()
	return answer{body: w.b}
}

func (b *BrokerController) queue(topic string, queueID int32) MessageQueue {
	return MessageQueue{Topic: topic, BrokerName: b.Config().BrokerName, QueueID: queueID}
}

// queryConsumeQueue serves 321: entries of a queue as they lie in its file.
func (b *BrokerController) queryConsumeQueue(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	queueID := h.int32("queueId")
	index := h.int64("index")
	count := h.int32("count")
	if h.err != nil {
		return failed(h.err)
	}
	first, end, ok := b.store.QueueOffsets(topic, queueID)
	if !ok {
		return refused(remoting.SystemError, fmt.Sprintf("%d@%s is not exist!", queueID, shown([]byte(topic))))
	}
	group := req.Ext.String("consumerGroup")
	_, sub := b.consumers.Subscription([]byte(group), []byte(topic))
	var w jsonWriter
	w.beginObject()
	if group != "" && sub == nil {
		w.strMember("filterData", fmt.Sprintf("%s@%s is not online!", group, topic))
	}
	w.intMember("maxQueueIndex", int64(end))
	w.intMember("minQueueIndex", int64(first))
	w.key("queueData")
	w.beginArray()
	b.writeQueueData(&w, topic, queueID, index, int(min(max(count, 0), queueUnitsMax)), sub)
	w.endArray()
	if sub != nil {
		w.key("subscriptionData")
		sub.writeTo(&w)
	}
	w.endObject()
	return answer{body: w.b}
}
