// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

const (
	// loopBodyMax bounds JSON bodies that are parsed on an event loop: 4 MiB is thousands of subscriptions or queues, and
	// some ten milliseconds.
	loopBodyMax = 4 << 20
	// clientIDLengthMax bounds client ids, which are kept, compared and sent to other clients.
	clientIDLengthMax = 1024
	// tagsMax bounds the tags of one subscription, or of a pull that brings its own.
	tagsMax = 10_000
)

// ClientManageProcessor serves heartbeats, goodbyes and the check of a client's filter, on the loop: memory only, no
// outside call, no file. What a heartbeat creates is written and registered later (apache/rocketmq#7870).
// Source: ClientManageProcessor.
type ClientManageProcessor struct {
	b       *BrokerController
	skipped reactor.Sometimes // log lines
}

// skippedLogInterval is how often it is said that parts of heartbeats are passed over: clients send them every 30 s.
const skippedLogInterval = time.Minute

func newClientManageProcessor(b *BrokerController) *ClientManageProcessor {
	return &ClientManageProcessor{b: b, skipped: reactor.Sometimes{Interval: skippedLogInterval}}
}

// Process serves 34, 35 and 46.
func (p *ClientManageProcessor) Process(req *reactor.Request) {
	var a answer
	switch req.Code {
	case remoting.HeartBeat:
		a = p.heartBeat(req)
	case remoting.UnregisterClient:
		a = p.unregister(req)
	case remoting.CheckClientConfig:
		a = p.checkConfig(req)
	default:
		a = refused(remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
	}
	a.reply(req.ReplyTo())
}

// heartbeatData is a heartbeat's body. Source: HeartbeatData.
type heartbeatData struct {
	clientID   string
	producers  []string
	consumers  []*consumerData
	unitGroups map[string]bool
	withoutSub bool
	skipped    error // the first part that was passed over, nil if none was
	refused    error // the first group of these

	exists func(topic string) bool // whatever it is called
}

// skip passes over a subscription that is not legal: the rest of the client works, as at RocketMQ, which takes any name.
func (h *heartbeatData) skip(what, name string, cause error) {
	if h.skipped == nil {
		h.skipped = fmt.Errorf("%s %q: %w", what, abbreviate([]byte(name)), cause)
	}
}

// refuse passes over a group, which is the client's answer too: it would take itself for registered.
func (h *heartbeatData) refuse(what, name string, cause error) {
	h.skip(what, name, cause)
	if h.refused == nil {
		h.refused = fmt.Errorf("%s %q: %w", what, abbreviate([]byte(name)), cause)
	}
}

// readHeartbeat fails for what is no heartbeat, and for one beyond a limit.
func readHeartbeat(body []byte, exists func(topic string) bool) (h heartbeatData, err error) {
	h.exists = exists
	if len(body) > loopBodyMax {
		return h, fmt.Errorf("a heartbeat of %d bytes, more than %d", len(body), loopBodyMax)
	}
	r := newJSONReader(body)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "clientID":
			h.clientID, err = r.text()
		case "withoutSub":
			h.withoutSub, err = r.bool()
		case "producerDataSet":
			err = r.array(func() error { return h.readProducer(r) })
		case "consumerDataSet":
			err = r.array(func() error { return h.readConsumer(r) })
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && (h.clientID == "" || len(h.clientID) > clientIDLengthMax) {
		err = fmt.Errorf("a heartbeat's clientID has 1 to %d bytes, not %d", clientIDLengthMax, len(h.clientID))
	}
	for _, c := range h.consumers {
		c.withoutSub = h.withoutSub
	}
	return h, err
}

func (h *heartbeatData) readProducer(r *jsonReader) error {
	group := ""
	err := r.object(func(key []byte) (err error) {
		if string(key) == "groupName" {
			group, err = r.text()
			return err
		}
		return r.skip()
	})
	switch {
	case err != nil:
		return err
	case checkGroupName(group) != nil:
		h.refuse("producer group", group, errGroupName)
		return nil
	case len(h.producers) >= sessionGroupsMax:
		return errSessionGroups
	}
	h.producers = append(h.producers, group)
	return nil
}

func (h *heartbeatData) readConsumer(r *jsonReader) error {
	c := &consumerData{subscriptions: make(map[string]*SubscriptionData)}
	unit := false
	var illegal error
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "groupName":
			c.group, err = r.text()
		case "consumeType":
			c.consumeType, err = r.enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
		case "messageModel":
			c.messageModel, err = r.enum("BROADCASTING", "CLUSTERING")
		case "consumeFromWhere":
			c.consumeFromWhere, err = r.enum("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
				"CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP")
		case "unitMode":
			unit, err = r.bool()
		case "subscriptionDataSet":
			err = r.array(func() error { return h.readSubscription(r, c) })
		default:
			err = r.skip()
		}
		if errors.Is(err, errConstant) {
			illegal, err = err, nil
		}
		return err
	})
	if err == nil && illegal == nil {
		illegal = checkGroupName(c.group)
	}
	switch {
	case err != nil:
		return err
	case illegal != nil:
		h.refuse("consumer group", c.group, illegal)
		return nil
	case len(h.consumers) >= sessionGroupsMax:
		return errSessionGroups
	}
	h.consumers = append(h.consumers, c)
	if unit {
		if h.unitGroups == nil {
			h.unitGroups = make(map[string]bool)
		}
		h.unitGroups[c.group] = true
	}
	return nil
}

// readSubscription adds one to its consumer.
func (h *heartbeatData) readSubscription(r *jsonReader, c *consumerData) error {
	sub, illegal, err := r.readSubscription()
	if illegal == nil && err == nil && !h.exists(sub.Topic) {
		illegal = checkTableTopicName(sub.Topic)
	}
	switch {
	case err != nil:
		return err
	case illegal != nil:
		h.skip("subscription to topic", sub.Topic, illegal)
		return nil
	case len(c.subscriptions) >= groupSubscriptionsMax:
		return fmt.Errorf("group %s subscribes to more than %d topics", c.group, groupSubscriptionsMax)
	}
	c.subscriptions[sub.Topic] = sub
	return nil
}

// errConstant is a value that was read, and is no constant.
var errConstant = errors.New("want the name or the number of a constant")

// enum reads the name of a Java constant; tools parse it back, so what is no name is errConstant. The C++ client writes its
// number: constants are in Java's order.
func (r *jsonReader) enum(constants ...string) (string, error) {
	const enumLengthMax = 64
	s, err := r.text()
	if n, numberErr := strconv.Atoi(s); err == nil && numberErr == nil {
		if n < 0 || n >= len(constants) {
			return "", errConstant
		}
		return constants[n], nil
	}
	if err == nil && (len(s) > enumLengthMax || !nameBytes(s)) {
		err = errConstant
	}
	return s, err
}

// readSubscription reads all of one, also when a part of it is illegal.
func (r *jsonReader) readSubscription() (s *SubscriptionData, illegal, err error) {
	s = new(SubscriptionData)
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "topic":
			s.Topic, err = r.text()
		case "subString":
			s.SubString, err = r.text()
		case "tagsSet":
			s.TagsSet, err = r.strings(tagsMax)
		case "codeSet":
			s.CodeSet = make(map[int32]struct{})
			err = r.array(func() error {
				if len(s.CodeSet) == tagsMax {
					return r.fail(fmt.Sprintf("more than %d tags", tagsMax))
				}
				code, err := r.int32()
				s.CodeSet[code] = struct{}{}
				return err
			})
		case "subVersion":
			s.SubVersion, err = r.int64()
		case "expressionType":
			s.ExpressionType, err = r.enum()
		case "classFilterMode":
			s.ClassFilterMode, err = r.bool()
		default:
			err = r.skip()
		}
		if errors.Is(err, errConstant) {
			illegal, err = err, nil
		}
		return err
	})
	return s, illegal, err
}

// heartBeat follows ClientManageProcessor#heartBeat.
func (p *ClientManageProcessor) heartBeat(req *reactor.Request) answer {
	h, err := readHeartbeat(req.Body, func(topic string) bool { return p.b.topics.Get(topic) != nil })
	if err != nil {
		return refused(remoting.SystemError, err.Error())
	}
	now := time.Now()
	if h.skipped != nil {
		if suppressed, ok := p.skipped.Allow(now); ok {
			p.b.logger.Warn("part of a heartbeat is not legal and passed over", "client", h.clientID, "peer", req.Session.RemoteAddr(),
				"err", h.skipped, "suppressed", suppressed)
		}
	}
	// A group that is not legal, or finds no room, does not keep the others out.
	err = h.refused
	for _, data := range h.consumers {
		if failed := p.registerConsumer(req, &h, data, now); err == nil {
			err = failed
		}
	}
	for _, group := range h.producers {
		client := newClientChannelInfo(req.Session, h.clientID, req.Language, req.Version, now)
		if failed := p.b.producers.Register(client, group); err == nil {
			err = failed
		}
	}
	if err != nil {
		return refused(remoting.SystemError, err.Error())
	}
	return answer{}
}

func (p *ClientManageProcessor) registerConsumer(req *reactor.Request, h *heartbeatData, data *consumerData, now time.Time) error {
	if group := p.b.groups.FindOrCreate(data.group); group != nil {
		var sysFlag int32
		if h.unitGroups[data.group] {
			sysFlag = topicSysFlagUnitSub
		}
		p.b.topics.createSoon(retryTopicOf(data.group), group.RetryQueueNums, PermRead|PermWrite, sysFlag)
	}
	client := newClientChannelInfo(req.Session, h.clientID, req.Language, req.Version, now)
	info, changed, err := p.b.consumers.Register(client, data)
	if changed {
		p.b.logger.Debug("consumer group changed", "group", data.group, "client", h.clientID, "peer", req.Session.RemoteAddr(), "clients", len(info.Channels))
		p.b.notifyConsumers(info)
	}
	return err
}

// topicSysFlagUnitSub marks a topic that groups of units subscribe to. Source: TopicSysFlag.
const topicSysFlagUnitSub = 2

// notifyConsumers tells all clients of a group that its members or topics changed.
// Source: DefaultConsumerIdsChangeListener, Broker2Client#notifyConsumerIdsChanged.
func (b *BrokerController) notifyConsumers(info *ConsumerGroupInfo) {
	if !b.Config().NotifyConsumerIdsChangedEnable {
		return
	}
	if group := b.groups.Get(info.GroupName); group != nil && !group.NotifyConsumerIdsChangedEnable {
		return
	}
	for _, c := range info.Channels {
		push := newResponse(remoting.NotifyConsumerIDsChanged)
		push.Ext.Add("consumerGroup", info.GroupName)
		if err := c.Session.InvokeOneway(push); err != nil {
			b.logger.Debug("change of a group not pushed", "group", info.GroupName, "client", c.ClientID, "err", err)
		}
		putResponse(push)
	}
}

// unregister follows ClientManageProcessor#unregisterClient.
func (p *ClientManageProcessor) unregister(req *reactor.Request) answer {
	if group := req.Ext.String("producerGroup"); group != "" {
		p.b.producers.Unregister(req.Session, group)
	}
	if group := req.Ext.String("consumerGroup"); group != "" {
		if left := p.b.consumers.Unregister(req.Session, group); left != nil {
			p.b.notifyConsumers(left)
		}
	}
	return answer{}
}

// checkConfig follows ClientManageProcessor#checkClientConfig for a broker without SQL92.
func (p *ClientManageProcessor) checkConfig(req *reactor.Request) answer {
	if len(req.Body) > loopBodyMax {
		return refused(remoting.SystemError, fmt.Sprintf("a body of %d bytes, more than %d", len(req.Body), loopBodyMax))
	}
	expressionType := ""
	r := newJSONReader(req.Body)
	err := r.object(func(key []byte) error {
		if string(key) != "subscriptionData" {
			return r.skip()
		}
		return r.object(func(key []byte) (err error) {
			if string(key) == "expressionType" {
				expressionType, err = r.text()
				return err
			}
			return r.skip()
		})
	})
	if err != nil {
		return refused(remoting.SystemError, err.Error())
	}
	if !isTagType(expressionType) {
		return refused(remoting.SystemError, remarkNoSQL92)
	}
	return answer{}
}

// sessionClosed drops a client at once when its connection ends, and tells the rest of its groups.
// Source: ClientHousekeepingService#onChannelClose.
func (b *BrokerController) sessionClosed(session *reactor.Session) {
	for _, left := range b.consumers.SessionClosed(session) {
		b.notifyConsumers(left)
	}
	b.producers.SessionClosed(session)
}

// expireClients closes the connections of clients that sent no heartbeat for two minutes, and frees locks that nobody
// renewed. Source: ClientHousekeepingService#scanExceptionChannel.
func (b *BrokerController) expireClients(now time.Time) {
	for _, session := range append(b.consumers.Expired(now), b.producers.Expired(now)...) {
		b.logger.Warn("client closed: no heartbeat", "peer", session.RemoteAddr(), "limit", channelExpiredTimeout)
		session.Close("no heartbeat for " + channelExpiredTimeout.String())
	}
	b.locks.Expire(now)
}
