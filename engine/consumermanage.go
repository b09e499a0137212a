// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

// ConsumerManageProcessor serves what consumers ask at every rebalance and commit: members of a group, offsets, bounds of
// queues. On the loop: memory only. Source: ConsumerManageProcessor, AdminBrokerProcessor.
type ConsumerManageProcessor struct{ b *BrokerController }

// Process serves 38, 14, 15, 30 and 31.
func (p *ConsumerManageProcessor) Process(req *reactor.Request) {
	var a answer
	switch req.Code {
	case remoting.GetConsumerListByGroup:
		a = p.consumerList(req)
	case remoting.QueryConsumerOffset:
		if !p.b.offers.park(req, p.queryOffset) {
			p.queryOffset(req)
		}
		return
	case remoting.UpdateConsumerOffset:
		a = p.updateOffset(req)
	case remoting.GetMaxOffset, remoting.GetMinOffset:
		a = p.bound(req)
	default:
		a = refused(remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
	}
	a.reply(req.ReplyTo())
}

func (p *ConsumerManageProcessor) consumerList(req *reactor.Request) answer {
	group, _ := req.Ext.Get("consumerGroup")
	info := p.b.consumers.Find(group)
	if info == nil {
		return refused(remoting.SystemError, "no consumer for this group, "+shown(group))
	}
	var w jsonWriter
	w.beginObject()
	w.stringsMember("consumerIdList", info.ClientIDs())
	w.endObject()
	return answer{body: w.b}
}

// queryOffset decides where a group starts. On a queue whose first message is still there and recent, a group without an
// offset starts at 0, whatever its ConsumeFromWhere says; only QUERY_NOT_FOUND lets the client choose. Users stumble
// over this, and rely on it. Source: ConsumerManageProcessor#queryConsumerOffset.
func (p *ConsumerManageProcessor) queryOffset(req *reactor.Request) {
	h := headerOf(req)
	h.require("consumerGroup")
	h.require("topic")
	queueID := h.int32("queueId")
	to := req.ReplyTo()
	if h.err != nil {
		replyRemark(to, remoting.SystemError, h.err.Error())
		return
	}
	group, _ := req.Ext.Get("consumerGroup")
	topic, _ := req.Ext.Get("topic")
	offset := p.b.offsets.QueryBytes(group, topic, queueID)
	if offset < 0 && p.startsAtZero(req, topic, queueID) {
		offset = 0
	}
	if offset < 0 {
		replyRemark(to, remoting.QueryNotFound, "Not found, maybe this group consumer boot first")
		return
	}
	resp := newResponse(remoting.Success)
	resp.Ext.AddInt("offset", offset)
	to.Reply(resp)
	putResponse(resp)
}

func (p *ConsumerManageProcessor) startsAtZero(req *reactor.Request, topicBytes []byte, queueID int32) bool {
	if _, ok := req.Ext.Get("setZeroIfNotFound"); ok && !req.Ext.Bool("setZeroIfNotFound") {
		return false
	}
	topic := string(topicBytes)
	first, _, _ := p.b.store.QueueOffsets(topic, queueID)
	return first <= 0 && !p.b.store.IsCold(topic, queueID, 0)
}

// updateOffset stores an offset. A topic that is gone keeps no offsets: a consumer that did not notice yet would bring
// them back, and one of that name created later would start beyond its end. (4.x stores anything, 5.x answers as here.) A
// group comes by its first offset as by its first pull: mqadmin cloneGroupOffset of 4.x begins with that.
func (p *ConsumerManageProcessor) updateOffset(req *reactor.Request) answer {
	h := headerOf(req)
	h.require("consumerGroup")
	h.require("topic")
	queueID := h.int32("queueId")
	offset := h.int64("commitOffset")
	if h.err != nil {
		return failed(h.err)
	}
	group, _ := req.Ext.Get("consumerGroup")
	topic, _ := req.Ext.Get("topic")
	if checkGroupName(group) != nil {
		return failed(errGroupName)
	}
	if queueID < 0 || offset < 0 {
		return refused(remoting.SystemError, fmt.Sprintf("queueId %d, commitOffset %d: want numbers from 0", queueID, offset))
	}
	config := p.b.topics.Lookup(topic)
	if config == nil {
		return refused(remoting.TopicNotExist, fmt.Sprintf("topic[%s] not exist", shown(topic)))
	}
	if p.b.offsets.QueryBytes(group, topic, queueID) < 0 {
		if a, isRefused := p.newEntry(group, config, queueID); isRefused {
			return a
		}
	}
	if !p.b.offsets.CommitBytes(group, topic, queueID, offset) {
		return refused(remoting.SystemError, fmt.Sprintf("offsets of %d queues are kept, which is the limit", offsetEntriesMax))
	}
	return answer{}
}

// newEntry refuses an offset that nobody can have consumed to, so that made-up names do not fill the table: of a queue that
// the topic does not have, or a group that is not there and must not come by itself.
func (p *ConsumerManageProcessor) newEntry(group []byte, topic *TopicConfig, queueID int32) (a answer, isRefused bool) {
	if queues := max(topic.ReadQueueNums, topic.WriteQueueNums); queueID >= queues {
		return refused(remoting.SystemError, fmt.Sprintf("queueId[%d] is illegal, topic[%s] has %d queues", queueID, topic.TopicName, queues)), true
	}
	if p.b.groups.Lookup(group) == nil && p.b.groups.FindOrCreate(string(group)) == nil {
		return refused(remoting.SubscriptionGroupNotExist, fmt.Sprintf("subscription group [%s] does not exist, %s", shown(group), remarkFAQ)), true
	}
	return answer{}, false
}

// bound answers the end or the start of a queue; 0 for one that does not exist.
func (p *ConsumerManageProcessor) bound(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	queueID := h.int32("queueId")
	if h.err != nil {
		return failed(h.err)
	}
	first, end, _ := p.b.store.QueueOffsets(topic, queueID)
	if req.Code == remoting.GetMinOffset {
		end = first
	}
	return answer{fields: []string{"offset", strconv.FormatInt(max(0, int64(end)), 10)}}
}

// searchOffsetByTimestamp answers the first offset whose message is not older, as 5.x; upper asks for the last that is
// not younger.
func (b *BrokerController) searchOffsetByTimestamp(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	queueID := h.int32("queueId")
	timestamp := h.int64("timestamp")
	if h.err != nil {
		return failed(h.err)
	}
	boundary := req.Ext.String("boundaryType")
	offset := b.store.OffsetByTime(topic, queueID, timestamp, boundary == "upper" || boundary == "UPPER")
	return answer{fields: []string{"offset", strconv.FormatInt(max(0, int64(offset)), 10)}}
}

// getEarliestMsgStoreTime answers the store time of the first message of a queue, -1 if there is none.
func (b *BrokerController) getEarliestMsgStoreTime(req *reactor.Request) answer {
	h := headerOf(req)
	topic := h.text("topic")
	queueID := h.int32("queueId")
	if h.err != nil {
		return failed(h.err)
	}
	timestamp := int64(-1)
	if first, end, ok := b.store.QueueOffsets(topic, queueID); ok && end > first {
		timestamp = b.store.MessageStoreTime(topic, queueID, first)
	}
	return answer{fields: []string{"timestamp", strconv.FormatInt(timestamp, 10)}}
}

// LockProcessor serves the locks of orderly consumers, on the loop. Source: AdminBrokerProcessor#lockBatchMQ.
type LockProcessor struct{ b *BrokerController }

// Process serves 41 and 42.
func (p *LockProcessor) Process(req *reactor.Request) {
	lock, err := readLockBatch(req.Body)
	if err != nil {
		failed(err).reply(req.ReplyTo())
		return
	}
	if req.Code == remoting.UnlockBatchMQ {
		p.b.locks.UnlockBatch(lock.group, lock.clientID, lock.queues)
		answer{}.reply(req.ReplyTo())
		return
	}
	var w jsonWriter
	w.beginObject()
	w.key("lockOKMQSet")
	w.beginArray()
	for _, q := range p.b.locks.TryLockBatch(lock.group, lock.clientID, lock.queues, time.Now()) {
		w.element()
		w.queue(q)
	}
	w.endArray()
	w.endObject()
	answer{body: w.b}.reply(req.ReplyTo())
}

// lockQueuesMax bounds the queues of one request: all of the largest topic.
const lockQueuesMax = queueNumsMax

// lockBatch is the body of both requests. Source: LockBatchRequestBody.
type lockBatch struct {
	group, clientID string
	queues          []MessageQueue
}

func readLockBatch(body []byte) (l lockBatch, err error) {
	if len(body) > loopBodyMax {
		return l, fmt.Errorf("a body of %d bytes, more than %d", len(body), loopBodyMax)
	}
	r := newJSONReader(body)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "consumerGroup":
			l.group, err = r.text()
		case "clientId":
			l.clientID, err = r.text()
		case "mqSet":
			err = r.array(func() error {
				if len(l.queues) == lockQueuesMax {
					return r.fail(fmt.Sprintf("more than %d queues", lockQueuesMax))
				}
				q, err := r.readQueue()
				if err == nil && max(len(q.Topic), len(q.BrokerName)) > derivedTopicLengthMax {
					err = r.fail("a queue with a name longer than any")
				}
				l.queues = append(l.queues, q)
				return err
			})
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err == nil {
		err = checkGroupName(l.group)
	}
	if err == nil && (l.clientID == "" || len(l.clientID) > clientIDLengthMax) {
		err = fmt.Errorf("clientId has 1 to %d bytes, not %d", clientIDLengthMax, len(l.clientID))
	}
	return l, err
}
