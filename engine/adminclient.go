// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

const (
	// relayTimeout is how long a client may take to answer what a tool asks it through the broker. Source:
	// AdminBrokerProcessor#callConsumer.
	relayTimeout = 10 * time.Second
	// statusTimeout is the same for 221. Source: Broker2Client#getConsumeStatus.
	statusTimeout = 5 * time.Second
)

func (s *SubscriptionData) writeTo(w *jsonWriter) {
	w.beginObject()
	w.boolMember("classFilterMode", s.ClassFilterMode)
	w.key("codeSet")
	w.beginArray()
	for _, code := range slices.Sorted(maps.Keys(s.CodeSet)) {
		w.element()
		w.int(int64(code))
	}
	w.endArray()
	if s.ExpressionType != "" {
		w.strMember("expressionType", s.ExpressionType)
	}
	w.strMember("subString", s.SubString)
	w.intMember("subVersion", s.SubVersion)
	w.stringsMember("tagsSet", s.TagsSet)
	w.strMember("topic", s.Topic)
	w.endObject()
}

// getConsumerConnectionList serves 203.
func (b *BrokerController) getConsumerConnectionList(req *reactor.Request) answer {
	h := headerOf(req)
	group := h.text("consumerGroup")
	if h.err != nil {
		return failed(h.err)
	}
	info := b.consumers.Get(group)
	if info == nil {
		return refused(remoting.ConsumerNotOnline, "the consumer group["+shown([]byte(group))+"] not online")
	}
	var w jsonWriter
	w.beginObject()
	writeConnections(&w, info)
	enum := func(name, value string) {
		if value != "" {
			w.strMember(name, value)
		}
	}
	enum("consumeFromWhere", info.ConsumeFromWhere)
	enum("consumeType", info.ConsumeType)
	enum("messageModel", info.MessageModel)
	w.key("subscriptionTable")
	w.beginObject()
	for _, topic := range slices.Sorted(maps.Keys(info.Subscriptions)) {
		w.key(topic)
		info.Subscriptions[topic].writeTo(&w)
	}
	w.endObject()
	w.endObject()
	return answer{body: w.b}
}

// getProducerConnectionList serves 204.
func (b *BrokerController) getProducerConnectionList(req *reactor.Request) answer {
	h := headerOf(req)
	group := h.text("producerGroup")
	if h.err != nil {
		return failed(h.err)
	}
	info := b.producers.Get(group)
	if info == nil {
		return refused(remoting.SystemError, "the producer group["+shown([]byte(group))+"] not exist")
	}
	var w jsonWriter
	w.beginObject()
	writeConnections(&w, info)
	w.endObject()
	return answer{body: w.b}
}

func writeConnections(w *jsonWriter, info *ConsumerGroupInfo) {
	w.key("connectionSet")
	w.beginArray()
	for _, c := range info.Channels {
		w.element()
		w.beginObject()
		w.strMember("clientAddr", c.Session.RemoteAddr().String())
		w.strMember("clientId", c.ClientID)
		w.strMember("language", languageName(c.Language))
		w.intMember("version", int64(c.Version))
		w.endObject()
	}
	w.endArray()
}

// languageName is a constant that every Java reader knows.
func languageName(code byte) string {
	if name := remoting.LanguageName(code); name != "" {
		return name
	}
	return "OTHER"
}

// getAllProducerInfo serves 328.
func (b *BrokerController) getAllProducerInfo(*reactor.Request) answer {
	groups := b.producers.groups.all()
	var w jsonWriter
	w.beginObject()
	w.key("data")
	w.beginObject()
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		w.key(group)
		w.beginArray()
		for _, c := range groups[group].Channels {
			w.element()
			w.beginObject()
			w.strMember("clientId", c.ClientID)
			w.strMember("language", languageName(c.Language))
			w.intMember("lastUpdateTimestamp", c.LastUpdate())
			w.strMember("remoteIP", "/"+c.Session.RemoteAddr().String())
			w.intMember("version", int64(c.Version))
			w.endObject()
		}
		w.endArray()
	}
	w.endObject()
	w.endObject()
	return answer{body: w.b}
}

// getConsumerRunningInfo serves 307: the client's own answer is handed on.
func (b *BrokerController) getConsumerRunningInfo(req *reactor.Request) answer {
	call := req.Clone()
	call.Body = nil
	return b.callConsumer(req, call)
}

// consumeMessageDirectly serves 309: the client consumes one message, again or for the first time, and its outcome is
// handed on.
func (b *BrokerController) consumeMessageDirectly(req *reactor.Request) answer {
	h := headerOf(req)
	_, offset, err := message.ParseOffsetMessageID(h.text("msgId"))
	if h.keep(err); h.err != nil {
		return failed(h.err)
	}
	record, err := b.store.LookMessageByOffset(storage.PhyOffset(offset))
	if err != nil {
		return refused(remoting.SystemError, fmt.Sprintf("can not find message by the offset, %d: %v", offset, err))
	}
	call := req.Clone()
	call.Body = slices.Clone(record.Bytes())
	record.Release()
	call.Ext.Add("brokerName", b.Config().BrokerName)
	return b.callConsumer(req, call)
}

// callConsumer asks a client what a tool asked the broker. Source: AdminBrokerProcessor#callConsumer.
func (b *BrokerController) callConsumer(req *reactor.Request, call *remoting.Command) answer {
	h := headerOf(req)
	group, clientID := h.text("consumerGroup"), h.text("clientId")
	if h.err != nil {
		return failed(h.err)
	}
	var client *ClientChannelInfo
	if info := b.consumers.Get(group); info != nil {
		client = info.Channel(clientID)
	}
	if client == nil {
		return refused(remoting.SystemError, fmt.Sprintf("The Consumer <%s> <%s> not online", group, clientID))
	}
	if client.Version < versionRunningInfo {
		return refused(remoting.SystemError, fmt.Sprintf("The Consumer <%s> Version %d too low to finish, please upgrade it", clientID, client.Version))
	}
	to := req.ReplyTo()
	call.Serialize = remoting.SerializeJSON // the tool's form may be one that the client does not read
	client.Session.InvokeAsync(call, relayTimeout, func(resp *remoting.Command, err error) {
		if err != nil {
			replyRemark(to, remoting.ConsumeMsgTimeout, fmt.Sprintf("consumer <%s> <%s> did not answer: %v", group, clientID, err))
			return
		}
		to.Reply(resp)
	})
	return deferred()
}

// getConsumerStatus serves 223: where clients are, in their own memory.
func (b *BrokerController) getConsumerStatus(req *reactor.Request) answer {
	h := headerOf(req)
	topic, group := h.topic("topic"), h.group("group")
	if h.err != nil {
		return failed(h.err)
	}
	info := b.consumers.Get(group)
	if info == nil {
		return refused(remoting.SystemError, "No Any Consumer online in the consumer group: ["+group+"]")
	}
	wanted := req.Ext.String("clientAddr") // a client id, by an old misnomer
	clients := slices.DeleteFunc(slices.Clone(info.Channels), func(c *ClientChannelInfo) bool {
		return wanted != "" && c.ClientID != wanted
	})
	if len(clients) == 0 {
		return refused(remoting.SystemError, fmt.Sprintf("The Consumer <%s> <%s> not online", group, wanted))
	}
	for _, c := range clients {
		if c.Version < versionResetOffset {
			return refused(remoting.SystemError, fmt.Sprintf("the client does not support this feature. version=%d", c.Version))
		}
	}
	status := &consumerStatus{b: b, to: req.ReplyTo(), waiting: len(clients), tables: make(map[string][]queueOffset)}
	for _, c := range clients {
		call := newResponse(remoting.GetConsumerStatusFromClient)
		call.Ext.Add("topic", topic)
		call.Ext.Add("group", group)
		c.Session.InvokeAsync(call, statusTimeout, func(resp *remoting.Command, err error) { status.answered(c.ClientID, resp, err) })
		putResponse(call)
	}
	return deferred()
}

// consumerStatus gathers what clients say, and answers when the last has, or failed to.
type consumerStatus struct {
	b  *BrokerController
	to reactor.ReplyTo

	mu      sync.Mutex // guards the fields below
	waiting int
	tables  map[string][]queueOffset
}

func (s *consumerStatus) answered(clientID string, resp *remoting.Command, err error) {
	var table []queueOffset
	if err == nil && resp.Code == remoting.Success {
		table, err = readQueueOffsets(resp.Body, "messageQueueTable")
	}
	if err != nil {
		s.b.logger.Warn("client did not tell its offsets", "client", clientID, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.tables[clientID] = table
	}
	if s.waiting--; s.waiting == 0 {
		answer{body: s.encodeLocked()}.reply(s.to)
	}
}

func (s *consumerStatus) encodeLocked() []byte {
	var w jsonWriter
	w.beginObject()
	w.key("consumerTable")
	w.beginObject()
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		w.key(id)
		writeQueueOffsets(&w, s.tables[id])
	}
	w.endObject()
	w.endObject()
	return w.b
}

// readQueueOffsets reads the one table of a body whose keys are queues.
func readQueueOffsets(body []byte, name string) (table []queueOffset, err error) {
	r := newJSONReader(body)
	err = r.object(func(key []byte) error {
		if string(key) != name {
			return r.skip()
		}
		return r.object(func(key []byte) error {
			q, err := queueOfKey(key)
			if err != nil {
				return err
			}
			offset, err := r.int64()
			table = append(table, queueOffset{q, offset})
			return err
		})
	})
	slices.SortFunc(table, func(a, b queueOffset) int { return compareQueues(a.queue, b.queue) })
	return table, err
}
