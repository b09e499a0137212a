// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

// retryDelayLevelBase is the delay level of the first retry: 10 s with the usual levels.
const retryDelayLevelBase = 3

// SendBackProcessor serves CONSUMER_SEND_MSG_BACK on a worker lane, because it reads the message from the log: it is stored
// anew in the group's retry topic, delayed, or in its dead letter topic. Source:
// AbstractSendMessageProcessor#consumerSendMsgBack.
type SendBackProcessor struct{ b *BrokerController }

func newSendBackProcessor(b *BrokerController) *SendBackProcessor { return &SendBackProcessor{b: b} }

// sendBack is one request of that kind.
type sendBack struct {
	to            reactor.ReplyTo
	offset        storage.PhyOffset
	delayLevel    int32
	maxReconsumes int32 // -1: the group's
	group         *SubscriptionGroupConfig
	unitMode      bool
}

// Process runs on a worker.
func (p *SendBackProcessor) Process(req *reactor.Request) {
	back, refused := p.decode(req)
	if refused == nil && p.b.Config().Store.Role == storage.Slave {
		refused = refuse(remoting.ServiceNotAvailable, "a slave takes no messages back, send them to its master")
	}
	if refused == nil {
		refused = p.perform(back, p.inline)
	}
	if refused != nil {
		replyRemark(req.ReplyTo(), refused.code, refused.remark)
	}
}

func (p *SendBackProcessor) decode(req *reactor.Request) (*sendBack, *refusal) {
	fields := intFields{ext: &req.Ext}
	back := &sendBack{
		to:            req.ReplyTo(),
		offset:        storage.PhyOffset(fields.int64("offset")),
		delayLevel:    fields.optionalInt32("delayLevel", 0),
		maxReconsumes: fields.optionalInt32("maxReconsumeTimes", -1),
		unitMode:      req.Ext.Bool("unitMode"),
	}
	if fields.err != nil {
		return nil, &refusal{remoting.SystemError, fields.err.Error()}
	}
	if req.Version < versionMaxReconsumeTimes {
		back.maxReconsumes = -1
	}
	name, _ := req.Ext.Get("group")
	if back.group = p.b.groups.Lookup(name); back.group == nil {
		back.group = p.b.groups.FindOrCreate(string(name))
	}
	if back.group == nil {
		return nil, refuse(remoting.SubscriptionGroupNotExist, "subscription group not exist, %s%s", shown(name), remarkFAQ)
	}
	return back, nil
}

// topicMaker finds or makes a topic of the broker's own. It returns nil without an error when it has passed the request on
// to the lane that may make topics.
type topicMaker func(back *sendBack, topic string, queues, sysFlag int32) (*TopicConfig, error)

// inline finds a topic, or passes the request on to the admin lane.
func (p *SendBackProcessor) inline(back *sendBack, topic string, queues, sysFlag int32) (*TopicConfig, error) {
	if config := p.b.topics.Get(topic); config != nil {
		return config, nil
	}
	submitted := p.b.adminLane.Submit(func() {
		if refused := p.perform(back, p.onAdminLane); refused != nil {
			replyRemark(back.to, refused.code, refused.remark)
		}
	})
	if !submitted {
		replyRemark(back.to, remoting.SystemBusy, remarkOverload+", too many topics to create")
	}
	return nil, nil
}

func (p *SendBackProcessor) onAdminLane(_ *sendBack, topic string, queues, sysFlag int32) (*TopicConfig, error) {
	return p.b.topics.CreateInSendBack(topic, queues, PermRead|PermWrite, sysFlag)
}

// perform stores the message anew. It returns a refusal, or nil when the answer is given or under way.
func (p *SendBackProcessor) perform(back *sendBack, makeTopic topicMaker) *refusal {
	cfg := p.b.Config()
	if cfg.BrokerPermission&PermWrite == 0 {
		return refuse(remoting.NoPermission, "the broker[%s] sending message is forbidden", cfg.BrokerIP1)
	}
	if back.group.RetryQueueNums <= 0 {
		replyRemark(back.to, remoting.Success, "")
		return nil
	}
	var sysFlag int32
	if back.unitMode {
		sysFlag = topicSysFlagUnitSub
	}
	retry := retryTopicOf(back.group.GroupName)
	if len(retry) > message.TopicLengthMax {
		return refuse(remoting.SystemError, "topic[%s] is longer than the %d bytes that a stored message allows", retry, message.TopicLengthMax)
	}
	topic, err := makeTopic(back, retry, back.group.RetryQueueNums, sysFlag)
	switch {
	case err != nil:
		return refuse(remoting.SystemError, "topic[%s] not exist: %v", retry, err)
	case topic == nil:
		return nil
	case topic.Perm&PermWrite == 0:
		return refuse(remoting.NoPermission, "the topic[%s] sending message is forbidden", retry)
	}
	// The topic may be from when the group had fewer queues, and consumers read those that the topic has.
	target := backTarget{topic: retry, queueID: randomQueue(min(back.group.RetryQueueNums, topic.ReadQueueNums))}

	var record []byte
	var r message.Record
	if err := p.b.loadRecord(back.offset, &record, &r); err != nil {
		return refuse(remoting.SystemError, "look message by offset failed, %d: %v", back.offset, err)
	}
	most := back.group.RetryMaxTimes
	if back.maxReconsumes >= 0 {
		most = back.maxReconsumes
	}
	if r.ReconsumeTimes >= most || back.delayLevel < 0 {
		dead := dlqTopicOf(back.group.GroupName)
		topic, err := makeTopic(back, dead, dlqQueueNums, 0)
		switch {
		case err != nil:
			return refuse(remoting.SystemError, "topic[%s] not exist: %v", dead, err)
		case topic == nil:
			return nil
		}
		target = backTarget{topic: dead}
	} else if target.delayLevel = back.delayLevel; target.delayLevel == 0 {
		target.delayLevel = retryDelayLevelBase + r.ReconsumeTimes
	}
	return p.store(back, &r, target)
}

// loadRecord copies the record that starts at offset into *buf and decodes it there.
func (b *BrokerController) loadRecord(offset storage.PhyOffset, buf *[]byte, r *message.Record) error {
	var err error
	fault := storage.Guard(func() {
		sel, lookErr := b.store.LookMessageByOffset(offset)
		if err = lookErr; err != nil {
			return
		}
		defer sel.Release()
		*buf = append((*buf)[:0], sel.Bytes()...)
	})
	if fault != nil {
		return fault
	}
	if err != nil {
		return err
	}
	return message.Decode(*buf, r)
}

// backTarget is where a message that came back goes.
type backTarget struct {
	topic      string
	queueID    int32
	delayLevel int32
}

// store writes the new record: body, birth and flags of the old one, one more reconsumption.
func (p *SendBackProcessor) store(back *sendBack, r *message.Record, target backTarget) *refusal {
	cfg := p.b.Config()
	props := backProperties(r, target.delayLevel)
	realTopic, queueID := target.topic, target.queueID
	if target.delayLevel > 0 {
		props = appendRealTopic(props, realTopic, queueID)
		target.topic, target.queueID = topicSchedule, scheduleQueue(&cfg.Store, target.delayLevel)
	}
	if refused := checkProperties(cfg, props); refused != nil {
		return refused
	}
	fresh := message.Record{
		QueueID: target.queueID, Flag: r.Flag, SysFlag: r.SysFlag, BornTimestamp: r.BornTimestamp, BornHost: r.BornHost,
		StoreHost: p.b.storeHostAddr(), ReconsumeTimes: r.ReconsumeTimes + 1,
		Body: r.Body, Topic: []byte(target.topic), Properties: props,
	}
	put := new(putRequest)
	to, group, topic := back.to, back.group.GroupName, realTopicOf(r)
	put.bind(p.b, func(status storage.PutMessageStatus, cause error) {
		if status != storage.PutOK {
			replyRemark(to, remoting.SystemError, status.String()+because(cause))
			return
		}
		if p.b.topics.Get(topic) != nil { // the sender of the message may have written any name
			p.b.stats.Group(topic, group).SendBack()
		}
		replyRemark(to, remoting.Success, "")
	})
	put.Record, put.MsgNum = message.AppendRecord(nil, &fresh), 1
	put.Topic, put.QueueID = target.topic, target.queueID
	// The consumer moves on once this is answered, so under SYNC_FLUSH the message must be on the disk by then. Java does not
	// wait here. Nor do we for a slave: a SYNC_MASTER without one would refuse every retry.
	put.waits(&cfg.Store, true)
	put.waitReplica = false
	if status := p.b.store.AsyncPutMessage(&put.PutMessage); status != storage.PutOK {
		_, cause := p.b.store.PutDenied()
		return refuse(remoting.SystemError, "%s%s", status, because(cause))
	}
	return nil
}

// realTopicOf is the topic that the message was first sent to.
func realTopicOf(r *message.Record) string {
	if topic, ok := message.PropertyValue(r.Properties, message.PropertyRetryTopic); ok {
		return string(topic)
	}
	return string(r.Topic)
}

// backProperties are the old ones with where the message first came from, and its new delay level instead of an older.
func backProperties(r *message.Record, delayLevel int32) []byte {
	props := make([]byte, 0, len(r.Properties)+256)
	hasRetryTopic, hasOrigin := false, false
	for name, value := range message.Properties(r.Properties) {
		switch string(name) {
		case message.PropertyDelayTimeLevel, message.PropertyWaitStoreMsgOK:
			continue
		case message.PropertyRealTopic, message.PropertyRealQueueID:
			if delayLevel > 0 {
				continue
			}
		case message.PropertyRetryTopic:
			hasRetryTopic = true
		case message.PropertyOriginMessageID:
			hasOrigin = true
		}
		props = appendPair(props, name, value)
	}
	if !hasRetryTopic {
		props = message.AppendProperty(props, message.PropertyRetryTopic, r.Topic)
	}
	if !hasOrigin {
		id := message.AppendOffsetMessageID(nil, r.StoreHost, r.PhysicalOffset)
		props = message.AppendProperty(props, message.PropertyOriginMessageID, id)
	}
	if delayLevel > 0 {
		props = message.AppendProperty(props, message.PropertyDelayTimeLevel, strconv.Itoa(int(delayLevel)))
	}
	return props
}
