// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/latency"
	"loopmq/storage/message"
)

const (
	topicSysFlagUnit int32 = 1 // TopicSysFlag#FLAG_UNIT

	multiTag = "MULTI_TAG"

	// versionMaxReconsumeTimes (V3_4_9) is the first client version whose maxReconsumeTimes counts.
	versionMaxReconsumeTimes = 121

	dlqQueueNums = 1

	// recordHeadRoom is what a record, or the records of a batch, may have beyond maxMessageSize. Source: MessageExtEncoder.
	recordHeadRoom = 64 << 10
	// recordBufferKeep is the largest encode buffer that a pooled send keeps.
	recordBufferKeep = 256 << 10
	// freeSendsMax and freeRecordMax bound what one loop keeps at hand for its next turn: a megabyte. The pool, which the
	// garbage collector empties, has the rest; it costs more, also because a write may move the loop to another processor.
	freeSendsMax  = 256
	freeRecordMax = 4 << 10
	// newTopicWaitMax is how long a send may wait for its topic to be made: as long as stock clients wait for its answer
	// (sendMsgTimeout). Later they have sent again, and it would be stored twice.
	newTopicWaitMax = 3 * time.Second
	// topicHandlesMax bounds one loop's memory of statistics handles.
	topicHandlesMax = 4096
)

// sendLoopLocal is the place of a sendTurn in Loop.Local.
var sendLoopLocal = reactor.NewLoopLocal()

// SendMessageProcessor serves SEND_MESSAGE, its V2 form and SEND_BATCH_MESSAGE. On the loop it checks, encodes the stored
// record off the receive buffer, and gathers the puts of a turn, which are handed to the store together in EndTurn. It
// allocates nothing per message. Source: SendMessageProcessor.
type SendMessageProcessor struct {
	b     *BrokerController
	sends sync.Pool
	trace atomic.Pointer[traceFields]
}

func newSendMessageProcessor(b *BrokerController) *SendMessageProcessor {
	p := &SendMessageProcessor{b: b}
	p.sends.New = func() any {
		s := &sendRecord{p: p}
		s.bind(b, s.finish)
		return s
	}
	return p
}

// sendTurn is one loop's gathered work, with the memory that its sends share.
type sendTurn struct {
	header   sendHeader
	props    []byte
	record   message.Record
	sends    []*sendRecord
	puts     []*storage.PutMessage
	handles  map[string]*TopicStats // by topic, as of so many removals
	removals int64
	admitted bool // the store was asked this turn whether it is busy, and was not
	// Of a loop's turn alone.
	counts *stageCounts
	free   []*sendRecord
}

// sendRecord is one send from its decoding to its answer.
type sendRecord struct {
	putRequest
	p       *SendMessageProcessor
	to      reactor.ReplyTo
	queueID int32 // as the answer reports it: that of a delayed message is the one its sender chose
	sizes   []int32
	stats   *TopicStats
	host    netip.AddrPort

	receivedAt int64 // by latency.Now
	status     storage.PutMessageStatus

	response remoting.Command
	text     []byte // of the answer's values
}

// refusal is a send that is answered without being stored.
type refusal struct {
	code   int32
	remark string
}

func refuse(code int32, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// Process checks and encodes one send on the loop.
func (p *SendMessageProcessor) Process(req *reactor.Request) {
	p.accept(req, p.turn(req.Session.Loop()))
}

// EndTurn hands the turn's puts to the store.
func (p *SendMessageProcessor) EndTurn(loop *reactor.Loop) {
	if t, ok := loop.Local[sendLoopLocal].(*sendTurn); ok {
		p.flush(t)
	}
}

func (p *SendMessageProcessor) turn(loop *reactor.Loop) *sendTurn {
	t, ok := loop.Local[sendLoopLocal].(*sendTurn)
	if !ok {
		t = newSendTurn()
		t.counts = p.b.sendTimes.ofLoop()
		loop.Local[sendLoopLocal] = t
	}
	return t
}

func newSendTurn() *sendTurn { return &sendTurn{handles: make(map[string]*TopicStats)} }

// flush hands over what t has gathered. What the store does not take is answered here.
func (p *SendMessageProcessor) flush(t *sendTurn) {
	t.admitted = false
	if len(t.sends) == 0 {
		return
	}
	n, status := p.b.store.AsyncPutMessages(t.puts)
	if n < len(t.sends) {
		denied, cause := p.b.store.PutDenied()
		for _, s := range t.sends[n:] {
			if denied != status {
				cause = nil
			}
			s.finish(status, cause)
		}
	}
	clear(t.sends)
	clear(t.puts)
	t.sends, t.puts = t.sends[:0], t.puts[:0]
}

// accept checks a send in the order of SendMessageProcessor#asyncProcessRequest and adds it to t, or answers it, or
// leaves it to the admin lane, which makes its topic.
func (p *SendMessageProcessor) accept(req *reactor.Request, t *sendTurn) {
	if !t.admitted {
		if status, cause := p.b.store.PutDeniedAt(req.ReceivedAt); status == storage.OSPageCacheBusy || status == storage.QueueFull {
			p.answer(req.ReplyTo(), rejected(status, cause))
			return
		}
		t.admitted = true
		if removals := p.b.stats.removals.Load(); removals != t.removals {
			t.removals = removals
			clear(t.handles)
		}
	}
	h := &t.header
	if err := h.decode(&req.Command); err != nil {
		p.answer(req.ReplyTo(), &refusal{remoting.SystemError, err.Error()})
		return
	}
	topic, refused := p.checkTopic(req, h)
	if refused != nil {
		p.answer(req.ReplyTo(), refused)
		return
	}
	if topic == nil {
		p.createTopic(req, h)
		return
	}
	if refused = checkQueueID(h, topic, req.Session); refused != nil {
		p.answer(req.ReplyTo(), refused)
		return
	}
	if h.batch {
		p.acceptBatch(req, t, topic)
		return
	}
	p.acceptOne(req, t, topic)
}

// checkTopic returns no topic and no refusal for one that may be created.
func (p *SendMessageProcessor) checkTopic(req *reactor.Request, h *sendHeader) (*TopicConfig, *refusal) {
	cfg := p.b.Config()
	if start := cfg.StartAcceptSendRequestTimeStamp; start > 0 && req.ReceivedAt.UnixMilli() < start {
		return nil, refuse(remoting.SystemError, "broker unable to service, until %s", time.UnixMilli(start).Format("2006-01-02 15:04:05"))
	}
	topic := p.b.topics.Lookup(h.topic)
	if cfg.BrokerPermission&PermWrite == 0 && topic != nil && topic.Order {
		return nil, refuse(remoting.NoPermission, "the broker[%s] sending message is forbidden", cfg.BrokerIP1)
	}
	if err := checkTopicName(h.topic); err != nil {
		return nil, &refusal{remoting.SystemError, err.Error()}
	}
	if notAllowedSend(h.topic) {
		return nil, refuse(remoting.NoPermission, "Sending message to topic[%s] is forbidden.", h.topic)
	}
	if topic != nil {
		return topic, nil
	}
	if h.defaultTopicQueueNums < 1 { // Java makes a topic without queues, to which nobody can send
		return nil, refuse(remoting.SystemError, "topic[%s] cannot be created with %d queues", shown(h.topic), h.defaultTopicQueueNums)
	}
	if isRetryTopic(h.topic) {
		return nil, nil
	}
	// The template is looked at here already, so that sends which cannot succeed do not fill the admin lane.
	if template := p.b.topics.Lookup(h.defaultTopic); template == nil || template.Perm&PermInherit == 0 {
		return nil, topicNotExist(h.topic)
	}
	return nil, nil
}

func topicNotExist(topic []byte) *refusal {
	return refuse(remoting.TopicNotExist, "topic[%s] not exist, apply first please!%s", shown(topic), remarkFAQ)
}

func checkQueueID(h *sendHeader, topic *TopicConfig, from *reactor.Session) *refusal {
	if queues := max(topic.ReadQueueNums, topic.WriteQueueNums); h.queueID >= queues {
		return refuse(remoting.SystemError, "request queueId[%d] is illegal, topic[%s] has %d queues. Producer: %s",
			h.queueID, topic.TopicName, queues, from.RemoteAddr())
	}
	return nil
}

// createTopic leaves the send to the admin lane, because making a topic writes and syncs a file. However many sends
// wait there, each topic is made once, and many with one write.
func (p *SendMessageProcessor) createTopic(req *reactor.Request, h *sendHeader) {
	if p.b.Config().Store.Role == storage.Slave {
		// Its topics are its master's. The store would refuse the message as well.
		p.answer(req.ReplyTo(), p.notStored(p.b.store.PutDenied()))
		return
	}
	owned := &reactor.Request{Command: *req.Clone(), Session: req.Session, ReceivedAt: req.ReceivedAt}
	if !p.b.adminLane.SubmitOwned(owned, func() { p.acceptNewTopic(owned) }) {
		p.answer(req.ReplyTo(), &refusal{remoting.SystemBusy, remarkOverload + ", too many topics to create; slow stage: queue"})
	}
}

// tooLate answers a send that has waited for the admin lane longer than its client did.
func (p *SendMessageProcessor) tooLate(req *reactor.Request) bool {
	waited := time.Since(req.ReceivedAt)
	if waited <= newTopicWaitMax {
		return false
	}
	p.answer(req.ReplyTo(), busy(storage.QueueTimeout, fmt.Errorf("period in queue: %dms, size of queue: %d; slow stage: queue, topics that do not exist are made one after the other", waited.Milliseconds(), p.b.adminLane.Len())))
	return true
}

// acceptNewTopic runs on the admin lane.
func (p *SendMessageProcessor) acceptNewTopic(req *reactor.Request) {
	if p.tooLate(req) {
		return
	}
	h := new(sendHeader)
	if err := h.decode(&req.Command); err != nil {
		p.answer(req.ReplyTo(), &refusal{remoting.SystemError, err.Error()})
		return
	}
	made := func(err error) {
		if err != nil {
			p.answer(req.ReplyTo(), refuse(remoting.SystemError, "topic[%s] cannot be created: %v", shown(h.topic), err))
			return
		}
		p.acceptMade(req)
	}
	if p.b.topics.Lookup(h.topic) != nil {
		made(nil)
		return
	}
	topic, err := p.newTopic(h)
	switch {
	case err != nil:
		made(err)
	case topic == nil:
		p.answer(req.ReplyTo(), topicNotExist(h.topic))
	default:
		p.b.topics.createGathered(topic, req.Session.RemoteAddr().String(), made)
	}
}

// acceptMade goes on when the topic is there.
func (p *SendMessageProcessor) acceptMade(req *reactor.Request) {
	if p.tooLate(req) {
		return
	}
	t := newSendTurn()
	p.accept(req, t)
	p.flush(t)
}

func (p *SendMessageProcessor) newTopic(h *sendHeader) (*TopicConfig, error) {
	retry := isRetryTopic(h.topic)
	var sysFlag int32
	if h.unitMode {
		sysFlag = topicSysFlagUnit
		if retry {
			sysFlag = topicSysFlagUnitSub
		}
	}
	topic, err := p.b.topics.forSend(string(h.topic), string(h.defaultTopic), h.defaultTopicQueueNums, sysFlag)
	if topic == nil && err == nil && retry {
		topic = forSendBack(string(h.topic), 1, PermRead|PermWrite, sysFlag)
	}
	return topic, err
}

// acceptOne adds a single message to t.
func (p *SendMessageProcessor) acceptOne(req *reactor.Request, t *sendTurn, topic *TopicConfig) {
	cfg, h := p.b.Config(), &t.header
	props, err := scanSendProperties(h.properties)
	if err != nil {
		p.answer(req.ReplyTo(), &refusal{remoting.MessageIllegal, err.Error()})
		return
	}
	queueID := h.queueID
	if queueID < 0 {
		queueID = randomQueue(topic.WriteQueueNums)
	}
	target, targetQueue := topic, queueID
	if isRetryTopic(h.topic) {
		dead, refused := p.exhausted(req, h)
		if refused != nil {
			p.answer(req.ReplyTo(), refused)
			return
		}
		if dead != "" {
			if target = p.b.topics.Get(dead); target == nil {
				p.createDLQ(req, dead)
				return
			}
			targetQueue, props.delayLevel, props.dropDelay = 0, 0, true
		}
	}
	if refused := checkTransaction(h, &props); refused != nil {
		p.answer(req.ReplyTo(), refused)
		return
	}
	if limit := cfg.Store.MaxMessageSize; len(req.Body) > limit {
		p.answer(req.ReplyTo(), illegal(cfg, "the body has %d bytes", len(req.Body)))
		return
	}
	targetName := target.TopicName
	delayed := props.delayLevel > 0
	t.props = appendStoredProperties(t.props[:0], h.properties, &props, delayed)
	t.props = message.AppendProperty(t.props, message.PropertyCluster, cfg.BrokerClusterName)
	if delayed {
		t.props = appendRealTopic(t.props, targetName, targetQueue)
		targetName, targetQueue = topicSchedule, scheduleQueue(&cfg.Store, props.delayLevel)
	}
	if refused := checkProperties(cfg, t.props); refused != nil {
		p.answer(req.ReplyTo(), refused)
		return
	}
	s := p.newSend(req, t, queueID, topic.TopicName)
	t.record = message.Record{
		QueueID: targetQueue, Flag: h.flag, SysFlag: sendSysFlag(h, topic), BornTimestamp: h.bornTimestamp,
		BornHost: req.Session.RemoteAddr(), StoreHost: s.host, ReconsumeTimes: h.reconsumeTimes,
		Body: req.Body, Topic: append(t.record.Topic[:0], targetName...), Properties: t.props,
	}
	s.Record = message.AppendRecord(s.Record[:0], &t.record)
	t.record.Body = nil
	s.MsgNum, s.Topic, s.QueueID = 1, targetName, targetQueue
	s.waits(&cfg.Store, props.waitStoreMsgOK)
	t.add(s)
}

// acceptBatch adds the messages of a batch as one put: they stand next to each other, with consecutive queue offsets.
func (p *SendMessageProcessor) acceptBatch(req *reactor.Request, t *sendTurn, topic *TopicConfig) {
	cfg, h := p.b.Config(), &t.header
	props, err := scanSendProperties(h.properties)
	if err != nil {
		p.answer(req.ReplyTo(), &refusal{remoting.MessageIllegal, err.Error()})
		return
	}
	switch {
	case props.half || props.delayLevel > 0 || h.sysFlag&message.FlagTransactionRollback != 0:
		p.answer(req.ReplyTo(), illegal(cfg, "a batch takes no delay level and no transaction"))
		return
	case len(req.Body) > cfg.Store.MaxMessageSize:
		p.answer(req.ReplyTo(), illegal(cfg, "the batch has %d bytes", len(req.Body)))
		return
	}
	queueID := h.queueID
	if queueID < 0 {
		queueID = randomQueue(topic.WriteQueueNums)
	}
	s := p.newSend(req, t, queueID, topic.TopicName)
	t.props = appendStoredProperties(t.props[:0], h.properties, &props, false)
	if refused := p.encodeBatch(req, t, s, topic, cfg); refused != nil {
		to := s.to
		s.recycle()
		p.answer(to, refused)
		return
	}
	s.Topic, s.QueueID = topic.TopicName, queueID
	s.waits(&cfg.Store, props.waitStoreMsgOK)
	t.add(s)
}

// encodeBatch makes a record of each message in the body; t.props holds the properties that all of them get.
func (p *SendMessageProcessor) encodeBatch(req *reactor.Request, t *sendTurn, s *sendRecord, topic *TopicConfig, cfg *Config) *refusal {
	h := &t.header
	common := len(t.props)
	t.record = message.Record{
		QueueID: s.queueID, SysFlag: sendSysFlag(h, topic), BornTimestamp: h.bornTimestamp,
		BornHost: req.Session.RemoteAddr(), StoreHost: s.host, ReconsumeTimes: h.reconsumeTimes,
		Topic: append(t.record.Topic[:0], topic.TopicName...),
	}
	s.Record, s.sizes = s.Record[:0], s.sizes[:0]
	limit := cfg.Store.MaxMessageSize + recordHeadRoom
	for rest := req.Body; len(rest) > 0; {
		var e message.BatchElement
		var err error
		if e, rest, err = message.NextBatchElement(rest); err != nil {
			return illegal(cfg, "message %d: %v", len(s.sizes)+1, err)
		}
		// Of a name that comes twice the last counts: a message's own id behind that of the batch, which 5.x clients send
		// (apache/rocketmq#9416), and the broker's word behind both.
		t.props = message.AppendProperties(t.props[:common], e.Properties)
		t.props = message.AppendProperty(t.props, message.PropertyCluster, cfg.BrokerClusterName)
		t.record.Flag, t.record.Body, t.record.Properties = e.Flag, e.Body, t.props
		if refused := checkProperties(cfg, t.record.Properties); refused != nil {
			return refused
		}
		size := message.RecordSize(&t.record)
		if len(s.Record)+size > limit {
			return illegal(cfg, "the records of the batch have more than %d bytes", limit)
		}
		s.Record = message.AppendRecord(s.Record, &t.record)
		s.sizes = append(s.sizes, int32(size))
	}
	t.record.Body, t.record.Properties = nil, nil
	if len(s.sizes) == 0 {
		return illegal(cfg, "the batch is empty")
	}
	s.MsgNum = int32(len(s.sizes))
	return nil
}

// exhausted says where a send to a retry topic goes when its retries are used up: to the group's dead letter topic.
// Source: SendMessageProcessor#handleRetryAndDLQ.
func (p *SendMessageProcessor) exhausted(req *reactor.Request, h *sendHeader) (deadTopic string, refused *refusal) {
	groupName := h.topic[len(retryTopicPrefix):]
	group := p.b.groups.Lookup(groupName)
	if group == nil {
		group = p.b.groups.FindOrCreate(string(groupName))
	}
	if group == nil {
		return "", refuse(remoting.SubscriptionGroupNotExist, "subscription group not exist, %s%s", shown(groupName), remarkFAQ)
	}
	most := group.RetryMaxTimes
	if req.Version >= versionMaxReconsumeTimes && h.maxReconsumeTimes >= 0 {
		most = h.maxReconsumeTimes
	}
	if h.reconsumeTimes < most {
		return "", nil
	}
	return dlqTopicOf(group.GroupName), nil
}

// createDLQ leaves a send to the admin lane, where its dead letter topic is made.
func (p *SendMessageProcessor) createDLQ(req *reactor.Request, dead string) {
	if p.b.Config().Store.Role == storage.Slave { // as in createTopic
		p.answer(req.ReplyTo(), p.notStored(p.b.store.PutDenied()))
		return
	}
	owned := &reactor.Request{Command: *req.Clone(), Session: req.Session, ReceivedAt: req.ReceivedAt}
	submitted := p.b.adminLane.SubmitOwned(owned, func() {
		if p.tooLate(owned) {
			return
		}
		if topic, err := p.b.topics.CreateInSendBack(dead, dlqQueueNums, PermRead|PermWrite, 0); topic == nil {
			p.answer(owned.ReplyTo(), refuse(remoting.SystemError, "topic[%s] not exist: %v", dead, err))
			return
		}
		t := newSendTurn()
		p.accept(owned, t)
		p.flush(t)
	})
	if !submitted {
		p.answer(req.ReplyTo(), &refusal{remoting.SystemBusy, remarkOverload + ", too many topics to create; slow stage: queue"})
	}
}

// checkTransaction refuses half messages: nothing is accepted that could not be delivered. A message that comes back
// from a consumer keeps TRAN_MSG of its first life, which then means nothing.
func checkTransaction(h *sendHeader, props *sendProperties) *refusal {
	half := props.half && !(h.reconsumeTimes > 0 && props.delayLevel > 0)
	switch h.sysFlag & message.FlagTransactionRollback {
	case message.FlagTransactionPrepared, message.FlagTransactionRollback:
		half = true
	}
	if !half {
		return nil
	}
	return refuse(remoting.NoPermission, "this broker does not support transactions: sending transaction message is forbidden")
}

func sendSysFlag(h *sendHeader, topic *TopicConfig) int32 {
	if topic.TopicFilterType == multiTag {
		return h.sysFlag | message.FlagMultiTags
	}
	return h.sysFlag
}

func randomQueue(queues int32) int32 {
	if queues <= 1 {
		return 0
	}
	return rand.Int32N(queues)
}

func appendRealTopic(props []byte, topic string, queueID int32) []byte {
	props = message.AppendProperty(props, message.PropertyRealTopic, topic)
	var digits [11]byte
	return message.AppendProperty(props, message.PropertyRealQueueID, strconv.AppendInt(digits[:0], int64(queueID), 10))
}

// scheduleQueue is the queue of a delay level; higher levels than there are count as the highest.
func scheduleQueue(cfg *storage.Config, level int32) int32 {
	return max(min(level, int32(len(cfg.DelayLevels.Millis))), 1) - 1
}

func checkProperties(cfg *Config, props []byte) *refusal {
	switch {
	case len(props) > message.PropertiesLengthMax:
		return illegal(cfg, "the properties have %d bytes with those that the broker adds", len(props))
	case looksTorn(props):
		return illegal(cfg, "the properties have a name that begins with a zero byte, or %d zero bytes in a row", len(zeroSector))
	}
	return nil
}

var (
	zeroSector   [512]byte // what a disk writes whole
	zeroNameHead = []byte{message.PropertySeparator, 0}
)

// looksTorn says that the part of props that falls into one sector of the disk may be all zeros, wherever the record
// comes to lie. Recovery takes that for a sector that a power cut kept from the disk, and cuts the log there, with every
// message behind. The last sector of properties is never all zeros: they end with what the broker adds.
func looksTorn(props []byte) bool {
	if bytes.IndexByte(props, 0) < 0 {
		return false
	}
	return props[0] == 0 || bytes.Contains(props, zeroNameHead) || bytes.Contains(props, zeroSector[:])
}

// illegal is a refusal of the message for its size or form, with both limits.
func illegal(cfg *Config, format string, args ...any) *refusal {
	return refuse(remoting.MessageIllegal,
		"the message is illegal, maybe msg body or properties length not matched. %s; msg body length limit %dB, msg properties length limit %dB.",
		fmt.Sprintf(format, args...), cfg.Store.MaxMessageSize, message.PropertiesLengthMax)
}

func (p *SendMessageProcessor) newSend(req *reactor.Request, t *sendTurn, queueID int32, topic string) *sendRecord {
	s := p.take(t)
	s.to, s.queueID, s.host = req.ReplyTo(), queueID, p.b.storeHostAddr()
	s.receivedAt, s.TakenAt, s.LockedAt, s.WroteBytes = latency.Of(req.ReceivedAt), 0, 0, 0
	handle, ok := t.handles[topic]
	if !ok {
		if len(t.handles) >= topicHandlesMax {
			clear(t.handles)
		}
		handle = p.b.stats.Topic(topic)
		t.handles[topic] = handle
	}
	s.stats = handle
	return s
}

func (t *sendTurn) add(s *sendRecord) {
	t.sends = append(t.sends, s)
	t.puts = append(t.puts, &s.PutMessage)
}

func (p *SendMessageProcessor) take(t *sendTurn) *sendRecord {
	last := len(t.free) - 1
	if last < 0 {
		return p.sends.Get().(*sendRecord)
	}
	s := t.free[last]
	t.free = t.free[:last]
	return s
}

// keep is recycle for the loop whose turn t is.
func (t *sendTurn) keep(s *sendRecord) {
	if len(t.free) == freeSendsMax || cap(s.Record) > freeRecordMax || cap(s.text) > freeRecordMax {
		s.recycle()
		return
	}
	s.forget()
	t.free = append(t.free, s)
}

// forget lets go of what is not the send's own.
func (s *sendRecord) forget() {
	s.to, s.stats, s.Cause = reactor.ReplyTo{}, nil, nil
	s.sizes = s.sizes[:0]
}

func (s *sendRecord) recycle() {
	s.forget()
	if cap(s.Record) > recordBufferKeep {
		s.Record = nil
	}
	if cap(s.text) > recordBufferKeep {
		s.text = nil
	}
	s.p.sends.Put(s)
}

// finish answers the send by its outcome. It runs on whoever brought the last one.
// Source: SendMessageProcessor#handlePutMessageResult.
func (s *sendRecord) finish(status storage.PutMessageStatus, cause error) {
	p, to := s.p, s.to
	code, stored := storedCode(status)
	if !stored {
		if s.TakenAt > 0 {
			if t := s.timesUnstored(); t.total() >= p.slowSend() {
				p.b.sendTimes.noteSlow(s, &t, status)
			}
		}
		s.recycle()
		p.answer(to, p.notStored(status, cause))
		return
	}
	s.stats.Put(int(s.MsgNum), s.WroteBytes)
	s.status = status
	if !to.ReplyTold(s.encodeResponse(code), s) { // once it is told, s may be another send
		p.unanswered(s)
	}
}

// encodeResponse fills the answer of a stored send. Its values are written as JSON, once, and borrowed from there for the
// form that has none.
func (s *sendRecord) encodeResponse(code int32) *remoting.Command {
	trace := s.p.traceFields()
	text := append(s.text[:0], `"msgId":"`...)
	idsAt := len(text)
	text = s.appendMessageIDs(text)
	ids := text[idsAt:]
	text = append(text, `","queueId":"`...)
	queueAt := len(text)
	text = strconv.AppendInt(text, int64(s.queueID), 10)
	queue := text[queueAt:]
	text = append(text, `","queueOffset":"`...)
	offsetAt := len(text)
	text = strconv.AppendInt(text, int64(s.QueueOffset), 10)
	offset := text[offsetAt:]
	text = append(append(text, `",`...), trace.json...)
	fieldsEnd := len(text)
	if s.status != storage.PutOK {
		text = s.appendLate(text)
	}
	s.text = text
	resp := &s.response
	resp.Code, resp.Version = code, remoting.Version
	if len(resp.Ext.List) == 0 {
		resp.Ext.List = []remoting.Field{{Key: keyMsgID}, {Key: keyQueueID}, {Key: keyQueueOffset}, {}, {}}
	}
	fields := resp.Ext.List
	fields[0].Value, fields[1].Value, fields[2].Value, fields[3], fields[4] = ids, queue, offset, trace.region, trace.on
	resp.Ext.JSON = text[:fieldsEnd]
	resp.Remark = nil
	if len(text) > fieldsEnd {
		resp.Remark = text[fieldsEnd:]
	}
	return resp
}

// appendLate is the remark of a message that is stored but not known to be where it should be; RocketMQ has none.
func (s *sendRecord) appendLate(text []byte) []byte {
	text = append(text, s.status.String()...)
	switch s.status {
	case storage.FlushDiskTimeout:
		text = append(text, ": stored; slow stage: flush, the disk has not said in time that it has the message (syncFlushTimeout, maxWaitingPuts); "...)
	case storage.FlushSlaveTimeout:
		text = append(text, ": stored; slow stage: replica, no slave has said in time that it has the message (slaveTimeout); "...)
	default:
		text = append(text, ": stored; slow stage: replica, too few slaves are connected and near enough to wait for (inSyncReplicas); "...)
	}
	t := s.times(0)
	return t.appendTo(text)
}

var keyMsgID, keyQueueID, keyQueueOffset = []byte("msgId"), []byte("queueId"), []byte("queueOffset")

// appendMessageIDs appends the offset id, or those of a batch joined by commas.
func (s *sendRecord) appendMessageIDs(text []byte) []byte {
	text = message.AppendOffsetMessageID(text, s.host, int64(s.WroteOffset))
	offset := s.WroteOffset
	for i := 1; i < len(s.sizes); i++ {
		offset += storage.PhyOffset(s.sizes[i-1])
		text = message.AppendOffsetMessageID(append(text, ','), s.host, int64(offset))
	}
	return text
}

// traceFields are the fields that every answer to a send carries, also a refusal, made once for each configuration.
type traceFields struct {
	cfg        *Config
	region, on remoting.Field
	json       []byte
}

func (p *SendMessageProcessor) traceFields() *traceFields {
	cfg := p.b.Config()
	if t := p.trace.Load(); t != nil && t.cfg == cfg {
		return t
	}
	t := &traceFields{
		cfg:    cfg,
		region: remoting.Field{Key: []byte("MSG_REGION"), Value: []byte(cfg.RegionID)},
		on:     remoting.Field{Key: []byte("TRACE_ON"), Value: strconv.AppendBool(nil, cfg.TraceOn)},
	}
	t.json = remoting.AppendFieldsJSON(nil, []remoting.Field{t.region, t.on})
	p.trace.Store(t)
	return t
}

// answer refuses a send.
func (p *SendMessageProcessor) answer(to reactor.ReplyTo, refused *refusal) {
	resp := newResponse(refused.code)
	resp.SetRemark(refused.remark)
	trace := p.traceFields()
	resp.Ext.List = append(resp.Ext.List, trace.region, trace.on)
	to.Reply(resp)
	putResponse(resp)
}

// storedCode is the answer to a message that is in the log.
func storedCode(status storage.PutMessageStatus) (code int32, stored bool) {
	switch status {
	case storage.PutOK:
		return remoting.Success, true
	case storage.FlushDiskTimeout:
		return remoting.FlushDiskTimeout, true
	case storage.FlushSlaveTimeout:
		return remoting.FlushSlaveTimeout, true
	case storage.SlaveNotAvailable:
		return remoting.SlaveNotAvailable, true
	}
	return 0, false
}

// notStored is the answer to a message that the store refused, or that it could not make durable.
func (p *SendMessageProcessor) notStored(status storage.PutMessageStatus, cause error) *refusal {
	cfg := p.b.Config()
	switch status {
	case storage.CreateMappedFileFailed:
		return refuse(remoting.SystemError, "create mapped file failed, server is busy or broken%s.", because(cause))
	case storage.MessageIllegal, storage.PropertiesSizeExceeded:
		return illegal(cfg, "the store refused it%s", because(cause))
	case storage.ServiceNotAvailable:
		stats := p.b.store.Stats()
		return refuse(remoting.ServiceNotAvailable,
			"service not available now%s. It may be caused by one of the following reasons: the broker's disk is full [CL: %.2f CQ: %.2f], messages are put to the slave, message store has been shut down, etc.",
			because(cause), stats.CommitLogDiskRatio, stats.ConsumeQueueDiskRatio)
	case storage.OSPageCacheBusy, storage.QueueFull, storage.QueueTimeout:
		return busy(status, cause)
	}
	return refuse(remoting.SystemError, "UNKNOWN_ERROR%s", because(cause))
}

// busy is the answer for flow control, with the stage that was slow. 4.9 answers 1 where the page cache is found busy
// inside the put; a client does not retry that elsewhere, so ours is SYSTEM_BUSY at each stage.
func busy(status storage.PutMessageStatus, cause error) *refusal {
	switch status {
	case storage.OSPageCacheBusy:
		return refuse(remoting.SystemBusy, "[PC_SYNCHRONIZED]broker busy, start flow control for a while%s", because(cause))
	case storage.QueueFull:
		return refuse(remoting.SystemBusy, "%s%s", remarkOverload, because(cause))
	}
	return refuse(remoting.SystemBusy, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while%s", because(cause))
}

// rejected is the answer at the door. Source: SendMessageProcessor#rejectRequest.
func rejected(status storage.PutMessageStatus, cause error) *refusal {
	if status == storage.OSPageCacheBusy {
		return refuse(remoting.SystemBusy, "%s%s", remarkReject, because(cause))
	}
	return busy(status, cause)
}

func because(cause error) string {
	if cause == nil {
		return ""
	}
	return ", " + cause.Error()
}
