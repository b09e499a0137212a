// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

// Bits of a pull's sysFlag. Source: PullSysFlag.
const (
	pullFlagCommitOffset = 1
	pullFlagSuspend      = 2
	pullFlagSubscription = 4
)

const (
	// suspendMax bounds how long a client may have a pull held; stock clients ask for 15 to 20 s.
	suspendMax = 5 * time.Minute
	// pullHeaderMax is kept free in a frame for length, header and remark of a pull's answer.
	pullHeaderMax = 64 << 10
	pullBodyMax   = remoting.FrameLengthMax - pullHeaderMax
	// copiedKeep is the largest buffer of records read on a worker that is kept for the next pull.
	copiedKeep = 1 << 20
	// maxMsgNumsLimit bounds what one pull may ask for; the store's own limits are far below.
	maxMsgNumsLimit = 1024
)

// pullStatusNames are the remarks of pull answers: the names of Java's GetMessageStatus, which tools print.
var pullStatusNames = [...]string{
	storage.Found:               "FOUND",
	storage.NoMatchedMessage:    "NO_MATCHED_MESSAGE",
	storage.MessageWasRemoving:  "MESSAGE_WAS_REMOVING",
	storage.OffsetFoundNull:     "OFFSET_FOUND_NULL",
	storage.OffsetOverflowBadly: "OFFSET_OVERFLOW_BADLY",
	storage.OffsetOverflowOne:   "OFFSET_OVERFLOW_ONE",
	storage.OffsetTooSmall:      "OFFSET_TOO_SMALL",
	storage.NoMatchedLogicQueue: "NO_MATCHED_LOGIC_QUEUE",
	storage.NoMessageInQueue:    "NO_MESSAGE_IN_QUEUE",
}

// PullMessageProcessor serves PULL_MESSAGE and LITE_PULL_MESSAGE. What is in memory is read on the event loop: to hand a pull
// over costs as much as to read it. What would wait for the disk is read on a worker. Pulls that find nothing are parked in
// PullRequestHoldService. Source: PullMessageProcessor.
type PullMessageProcessor struct {
	b        *BrokerController
	requests sync.Pool
	behind   slaveBehind
}

func newPullMessageProcessor(b *BrokerController) *PullMessageProcessor {
	p := &PullMessageProcessor{b: b}
	p.requests.New = func() any {
		pr := &pullRequest{p: p}
		pr.release = pr.recycle
		pr.onLoop = func() { p.checkAndRead(pr) }
		pr.onWorker = func() { p.readOnWorker(pr) }
		return pr
	}
	b.hold.run = p.rerun
	return p
}

// pullRequest is one pull from its arrival to its answer. It has one owner at a time: the loop, the worker that reads, the
// hold service, or the reactor while loans are out.
type pullRequest struct {
	p       *PullMessageProcessor
	to      reactor.ReplyTo
	session holdSession

	names       []byte // memory of group and topic as the client wrote them
	groupBytes  []byte
	topicBytes  []byte
	group       *SubscriptionGroupConfig
	topic       string
	queueID     int32
	offset      storage.QueueOffset
	maxMsgNums  int
	subVersion  int64
	ownFilter   bool // the request carried its expression
	lite        bool
	maySuspend  bool
	commitTo    int64 // -1: nothing to commit
	filter      tagFilter
	result      storage.GetMessageResult
	parts       [][]byte
	copied      []byte // records, when they were read on a worker
	refusedSize int    // of an answer that the session did not take: it is read again when there is room for so much
	release     func()
	onLoop      func()
	onWorker    func()
	stats       *GroupStats
	statsTopic  string
	statsGroup  string
	statsAsOf   int64     // removals
	deadline    time.Time // of the hold, and below what the hold service owns
	ticket      uint64
	heapIndex   int
	links       [listKinds]pullLinks
}

// giveBack ends what was read for pr.
func (pr *pullRequest) giveBack() {
	pr.result.Release()
	clear(pr.parts)
	pr.parts = pr.parts[:0]
}

// recycle ends pr: loans go back, and so does the record.
func (pr *pullRequest) recycle() {
	pr.giveBack()
	if cap(pr.copied) > copiedKeep {
		pr.copied = nil
	}
	pr.to, pr.session, pr.group, pr.filter, pr.refusedSize = reactor.ReplyTo{}, nil, nil, tagFilter{}, 0
	pr.p.requests.Put(pr)
}

// refuse answers with a code and a remark, and ends pr.
func (pr *pullRequest) refuse(code int32, remark string) {
	replyRemark(pr.to, code, remark)
	pr.recycle()
}

// tagFilter matches by tags code, as Java's ExpressionMessageFilter for TAG expressions. Colliding hashes are sorted out
// by the client, so the record itself is not looked at.
type tagFilter struct {
	codes map[int32]struct{} // nil: all
}

func (f *tagFilter) MatchConsumeQueue(tagsCode int64) bool {
	if f.codes == nil {
		return true
	}
	_, ok := f.codes[int32(tagsCode)]
	return ok
}

func (f *tagFilter) MatchCommitLog([]byte) bool { return true }

// Process checks a pull, and parks it or reads for it.
func (p *PullMessageProcessor) Process(req *reactor.Request) {
	pr := p.requests.Get().(*pullRequest)
	pr.to, pr.session = req.ReplyTo(), req.Session
	if code, remark := p.decode(req, pr); code != remoting.Success {
		pr.refuse(code, remark)
		return
	}
	if code, remark := p.check(pr); code != remoting.Success {
		pr.refuse(code, remark)
		return
	}
	if pr.commitTo >= 0 && p.b.Config().Store.Role != storage.Slave {
		p.b.offsets.CommitBytes(pr.groupBytes, pr.topicBytes, pr.queueID, pr.commitTo)
	}
	if pr.maySuspend && p.nothingNew(pr) {
		pr.maySuspend = false
		p.b.hold.park(pr)
		return
	}
	p.readOnLoop(pr)
}

// decode takes over what the pull needs from the request.
func (p *PullMessageProcessor) decode(req *reactor.Request, pr *pullRequest) (code int32, remark string) {
	group, hasGroup := req.Ext.Get("consumerGroup")
	topic, hasTopic := req.Ext.Get("topic")
	if !hasGroup || !hasTopic {
		return remoting.SystemError, "a pull needs consumerGroup and topic"
	}
	pr.names = append(append(pr.names[:0], group...), topic...)
	pr.groupBytes, pr.topicBytes = pr.names[:len(group)], pr.names[len(group):]

	fields := intFields{ext: &req.Ext}
	pr.queueID = fields.int32("queueId")
	pr.offset = storage.QueueOffset(fields.int64("queueOffset"))
	pr.maxMsgNums = int(min(max(fields.int32("maxMsgNums"), 1), maxMsgNumsLimit))
	sysFlag := fields.int32("sysFlag")
	pr.commitTo = -1
	if sysFlag&pullFlagCommitOffset != 0 {
		pr.commitTo = fields.optionalInt64("commitOffset", -1)
	}
	suspend := fields.optionalInt64("suspendTimeoutMillis", 0)
	pr.subVersion = fields.optionalInt64("subVersion", 0)
	if fields.err != nil {
		return remoting.SystemError, fields.err.Error()
	}
	pr.lite = req.Code == remoting.LitePullMessage
	if cfg := p.b.Config(); !cfg.LongPollingEnable {
		suspend = cfg.ShortPollingTimeMills
	}
	hold := time.Duration(min(max(suspend, 0), suspendMax.Milliseconds())) * time.Millisecond
	pr.deadline = req.ReceivedAt.Add(hold)
	pr.maySuspend = sysFlag&pullFlagSuspend != 0 && hold > 0
	if pr.ownFilter = sysFlag&pullFlagSubscription != 0; pr.ownFilter {
		subscription, _ := req.Ext.Get("subscription")
		return p.ownFilter(pr, subscription, req.Ext.String("expressionType"))
	}
	return remoting.Success, ""
}

// ownFilter builds the filter from the expression that the request itself carries. Source: FilterAPI#build.
func (p *PullMessageProcessor) ownFilter(pr *pullRequest, expression []byte, expressionType string) (code int32, remark string) {
	if expressionType != "" && expressionType != "TAG" {
		return remoting.SystemError, remarkNoSQL92
	}
	codes, err := tagCodes(expression)
	if err != nil {
		return remoting.SubscriptionParseFailed, "parse the consumer's subscription failed: " + err.Error()
	}
	pr.filter.codes = codes
	return remoting.Success, ""
}

const remarkNoSQL92 = "The broker does not support consumer to filter message by SQL92"

// tagCodes parses "a || b"; nil stands for all messages.
func tagCodes(expression []byte) (map[int32]struct{}, error) {
	if len(expression) == 0 || string(expression) == "*" {
		return nil, nil
	}
	if bytes.Count(expression, []byte("||")) >= tagsMax {
		return nil, fmt.Errorf("more than %d tags", tagsMax)
	}
	codes := make(map[int32]struct{})
	for _, tag := range bytes.Split(expression, []byte("||")) {
		if tag = bytes.TrimFunc(tag, javaBlank); len(tag) > 0 {
			codes[message.JavaHash(tag)] = struct{}{}
		}
	}
	if len(codes) == 0 {
		return nil, fmt.Errorf("no tag in %q", shown(expression))
	}
	return codes, nil
}

// javaBlank is what String#trim cuts off.
func javaBlank(r rune) bool { return r <= ' ' }

// check runs the checks of a pull in Java's order, from memory. It runs again when a held pull is woken.
func (p *PullMessageProcessor) check(pr *pullRequest) (code int32, remark string) {
	cfg := p.b.Config()
	if cfg.BrokerPermission&PermRead == 0 {
		return remoting.NoPermission, fmt.Sprintf("the broker[%s] pulling message is forbidden", cfg.BrokerIP1)
	}
	if pr.lite && !cfg.LitePullMessageEnable {
		return remoting.NoPermission, fmt.Sprintf("the broker[%s] lite pulling message is forbidden", cfg.BrokerIP1)
	}
	if pr.group = p.b.groups.Lookup(pr.groupBytes); pr.group == nil {
		if pr.group = p.b.groups.FindOrCreate(string(pr.groupBytes)); pr.group == nil {
			return remoting.SubscriptionGroupNotExist,
				fmt.Sprintf("subscription group [%s] does not exist, %s", shown(pr.groupBytes), remarkFAQ)
		}
	}
	if !pr.group.ConsumeEnable {
		return remoting.NoPermission, "subscription group no permission, " + pr.group.GroupName
	}
	topic := p.b.topics.Lookup(pr.topicBytes)
	if topic == nil {
		return remoting.TopicNotExist,
			fmt.Sprintf("topic[%s] not exist, apply first please! %s", shown(pr.topicBytes), remarkFAQ)
	}
	pr.topic = topic.TopicName
	if topic.Perm&PermRead == 0 {
		return remoting.NoPermission, fmt.Sprintf("the topic[%s] pulling message is forbidden", topic.TopicName)
	}
	if pr.queueID < 0 || pr.queueID >= topic.ReadQueueNums {
		return remoting.SystemError, fmt.Sprintf("queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[%s]",
			pr.queueID, topic.TopicName, topic.ReadQueueNums, pr.to.Session.RemoteAddr())
	}
	if pr.ownFilter {
		return remoting.Success, ""
	}
	return p.checkSubscription(pr)
}

// checkSubscription takes the filter from what the group's heartbeats brought.
func (p *PullMessageProcessor) checkSubscription(pr *pullRequest) (code int32, remark string) {
	info, sub := p.b.consumers.Subscription(pr.groupBytes, pr.topicBytes)
	switch {
	case info == nil:
		return remoting.SubscriptionNotExist, "the consumer's group info not exist" + remarkFAQ
	case !pr.group.ConsumeBroadcastEnable && info.MessageModel == "BROADCASTING":
		return remoting.NoPermission,
			fmt.Sprintf("the consumer group[%s] can not consume by broadcast way", pr.group.GroupName)
	case sub == nil:
		return remoting.SubscriptionNotExist, "the consumer's subscription not exist" + remarkFAQ
	case sub.SubVersion < pr.subVersion:
		return remoting.SubscriptionNotLatest, "the consumer's subscription not latest"
	case sub.ExpressionType != "" && sub.ExpressionType != "TAG":
		return remoting.SystemError, remarkNoSQL92
	}
	pr.filter.codes = nil
	if sub.SubString != "*" && !sub.ClassFilterMode {
		if pr.filter.codes = sub.CodeSet; pr.filter.codes == nil {
			pr.filter.codes = noCodes
		}
	}
	return remoting.Success, ""
}

var noCodes = map[int32]struct{}{}

// nothingNew says that the pull waits at the very end of a queue: then there is nothing to read, and no worker is needed.
func (p *PullMessageProcessor) nothingNew(pr *pullRequest) bool {
	_, end, ok := p.b.store.QueueOffsets(pr.topic, pr.queueID)
	return ok && end > 0 && end == pr.offset
}

// rerun reads a held pull again, without another hold: whatever is found is the answer. It may be called anywhere.
func (p *PullMessageProcessor) rerun(pr *pullRequest) { pr.session.OnLoop(pr.onLoop) }

func (p *PullMessageProcessor) checkAndRead(pr *pullRequest) {
	if code, remark := p.check(pr); code != remoting.Success {
		pr.refuse(code, remark)
		return
	}
	p.readOnLoop(pr)
}

// readOnLoop reads what is in memory. The rest is a worker's.
func (p *PullMessageProcessor) readOnLoop(pr *pullRequest) {
	if !p.isWanted(pr) {
		return
	}
	if !p.getResident(pr) {
		if !p.b.pullLane.Submit(pr.onWorker) {
			pr.refuse(remoting.SystemBusy, remarkOverload)
		}
		return
	}
	p.answer(pr)
}

// readOnWorker waits for the disk, and copies the records out of the map: who writes the answer waits for none.
func (p *PullMessageProcessor) readOnWorker(pr *pullRequest) {
	if !p.isWanted(pr) {
		return
	}
	p.b.store.GetMessage(pr.topic, pr.queueID, pr.offset, pr.maxMsgNums, &pr.filter, &pr.result)
	if pr.result.BufferTotalSize > pullBodyMax {
		p.b.store.GetMessage(pr.topic, pr.queueID, pr.offset, 1, &pr.filter, &pr.result)
	}
	if pr.result.Err == nil {
		pr.result.Err = pr.copyOut()
	}
	p.answer(pr)
}

func (p *PullMessageProcessor) getResident(pr *pullRequest) bool {
	get := func(maxMsgNums int) bool {
		return p.b.store.GetResident(pr.topic, pr.queueID, pr.offset, maxMsgNums, &pr.filter, &pr.result)
	}
	return get(pr.maxMsgNums) && (pr.result.BufferTotalSize <= pullBodyMax || get(1))
}

// isWanted ends a pull whose session has closed. Nothing is read for one that does not take what it got.
func (p *PullMessageProcessor) isWanted(pr *pullRequest) bool {
	switch {
	case pr.session.Closed():
		pr.recycle()
		return false
	case !pr.session.Takes(pr.refusedSize):
		p.b.hold.block(pr)
		return false
	}
	return true
}

// pullCode maps the store's outcome to the response code. PULL_OFFSET_MOVED makes a 4.9 client pause the queue for 10 s,
// so a queue that is merely empty is PULL_NOT_FOUND to whoever starts at 0.
func pullCode(status storage.GetMessageStatus, offset storage.QueueOffset) int32 {
	switch status {
	case storage.Found:
		return remoting.Success
	case storage.NoMatchedMessage, storage.MessageWasRemoving:
		return remoting.PullRetryImmediately
	case storage.OffsetFoundNull, storage.OffsetOverflowOne:
		return remoting.PullNotFound
	case storage.NoMatchedLogicQueue, storage.NoMessageInQueue:
		if offset == 0 {
			return remoting.PullNotFound
		}
		return remoting.PullOffsetMoved
	case storage.OffsetTooSmall, storage.OffsetOverflowBadly:
		return remoting.PullOffsetMoved
	}
	return remoting.SystemError
}

// answer ends the read: with records, without, or by parking the pull.
func (p *PullMessageProcessor) answer(pr *pullRequest) {
	if err := pr.result.Err; err != nil {
		pr.refuse(remoting.SystemError, "pull failed: "+err.Error())
		return
	}
	code := pullCode(pr.result.Status, pr.offset)
	if code == remoting.PullNotFound && pr.maySuspend {
		pr.maySuspend = false
		pr.result.Release()
		p.b.hold.park(pr)
		return
	}
	cfg := p.b.Config()
	suggested := int64(0)
	if cfg.SlaveReadEnable {
		suggested = pr.group.BrokerID
		if pr.result.SuggestPullingFromSlave {
			suggested = pr.group.WhichBrokerWhenConsumeSlowly
		}
	}
	if code == remoting.PullOffsetMoved && cfg.Store.Role == storage.Slave && !cfg.Store.OffsetCheckInSlave {
		if pr.result.Status == storage.OffsetTooSmall {
			// Its log begins later, and what is below does not come: asking again would never end (apache/rocketmq#3661).
			pr.result.NextBeginOffset = pr.result.MinOffset
		} else {
			// A slave that is behind must not tell a consumer to jump back.
			code, suggested = remoting.PullRetryImmediately, pr.group.BrokerID
			if p.behind.due(pr.topic, pr.queueID, time.Now()) {
				p.b.logger.Warn("a consumer is ahead of this slave's queue, it is told to try again", "topic", pr.topic, "queueId", pr.queueID,
					"group", pr.group.GroupName, "offset", pr.offset, "end", pr.result.MaxOffset)
			}
		}
	}
	if pr.result.BufferTotalSize > pullBodyMax {
		pr.refuse(remoting.SystemError, fmt.Sprintf("the message at offset %d of %s queue %d has %d bytes, more than a frame holds",
			pr.offset, pr.topic, pr.queueID, pr.result.BufferTotalSize))
		return
	}
	resp := newResponse(code)
	resp.SetRemark(pullStatusNames[pr.result.Status])
	resp.Ext.AddInt("suggestWhichBrokerId", suggested)
	resp.Ext.AddInt("nextBeginOffset", int64(pr.result.NextBeginOffset))
	resp.Ext.AddInt("minOffset", int64(pr.result.MinOffset))
	resp.Ext.AddInt("maxOffset", int64(pr.result.MaxOffset))
	if code != remoting.Success {
		pr.to.Reply(resp)
		putResponse(resp)
		pr.recycle()
		return
	}
	size := pr.result.BufferTotalSize
	if len(pr.parts) == 0 {
		for i := range pr.result.Buffers {
			pr.parts = append(pr.parts, pr.result.Buffers[i].Bytes())
		}
	}
	stats, messages := p.statsOf(pr), pr.result.MsgCount
	if !pr.to.TryReplyLoans(resp, pr.parts, size, pr.release) {
		// Other pulls of this client were read at the same time. This one is read again when the client has taken theirs.
		pr.giveBack()
		pr.refusedSize = size
		p.b.hold.block(pr)
	} else {
		stats.Get(messages, int64(size))
	}
	putResponse(resp)
}

// copyOut takes the records out of the map, so that page faults and disk reads hit this worker and not the loop.
func (pr *pullRequest) copyOut() error {
	pr.copied = pr.copied[:0]
	err := storage.Guard(func() {
		for i := range pr.result.Buffers {
			pr.copied = append(pr.copied, pr.result.Buffers[i].Bytes()...)
		}
	})
	if err == nil && len(pr.copied) > 0 {
		pr.parts = append(pr.parts[:0], pr.copied)
	}
	for i := range pr.result.Buffers {
		pr.result.Buffers[i].Release()
	}
	return err
}

// statsOf is where what pr got is counted.
func (p *PullMessageProcessor) statsOf(pr *pullRequest) *GroupStats {
	removals := p.b.stats.removals.Load()
	if pr.stats == nil || pr.statsTopic != pr.topic || pr.statsGroup != pr.group.GroupName || pr.statsAsOf != removals {
		pr.stats = p.b.stats.Group(pr.topic, pr.group.GroupName)
		pr.statsTopic, pr.statsGroup, pr.statsAsOf = pr.topic, pr.group.GroupName, removals
	}
	return pr.stats
}

// intFields reads required and optional numbers of a header and keeps the first error.
type intFields struct {
	ext *remoting.Fields
	err error
}

func (f *intFields) int32(key string) int32 {
	f.require(key)
	n, err := f.ext.Int32(key, 0)
	f.keep(err)
	return n
}

func (f *intFields) int64(key string) int64 {
	f.require(key)
	return f.optionalInt64(key, 0)
}

func (f *intFields) optionalInt64(key string, def int64) int64 {
	n, err := f.ext.Int64(key, def)
	f.keep(err)
	return n
}

func (f *intFields) optionalInt32(key string, def int32) int32 {
	n, err := f.ext.Int32(key, def)
	f.keep(err)
	return n
}

func (f *intFields) require(key string) {
	if _, ok := f.ext.Get(key); !ok {
		f.keep(fmt.Errorf("header field %s is missing", key))
	}
}

func (f *intFields) keep(err error) {
	if f.err == nil {
		f.err = err
	}
}
