// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
)

// adminBodyMax bounds an answer's body: a frame over 16 MiB closes a Java client's connection.
const adminBodyMax = remoting.FrameLengthMax - 64<<10

// answer is the outcome of a request: SUCCESS without header or body unless said.
type answer struct {
	code   int32
	remark string
	fields []string // name, value, name, value
	body   []byte
	later  bool // somebody else answers
}

func refused(code int32, remark string) answer { return answer{code: code, remark: remark} }

// failed is SYSTEM_ERROR with the error as remark.
func failed(err error) answer { return refused(remoting.SystemError, err.Error()) }

// deferred says that the request is, or will be, answered by somebody else.
func deferred() answer { return answer{later: true} }

func (a answer) reply(to reactor.ReplyTo) {
	if a.later {
		return
	}
	if len(a.body) > adminBodyMax {
		replyRemark(to, remoting.SystemError, fmt.Sprintf("the answer of %d bytes is longer than a frame may be", len(a.body)))
		return
	}
	resp := newResponse(a.code)
	if a.remark != "" {
		resp.SetRemark(a.remark)
	}
	for i := 0; i+1 < len(a.fields); i += 2 {
		resp.Ext.Add(a.fields[i], a.fields[i+1])
	}
	resp.Body = a.body
	to.Reply(resp)
	putResponse(resp)
}

// adminHeader reads header fields; the first that is missing or wrong is kept in err.
type adminHeader struct{ intFields }

func headerOf(req *reactor.Request) *adminHeader { return &adminHeader{intFields{ext: &req.Ext}} }

// text reads a required string.
func (h *adminHeader) text(key string) string {
	h.require(key)
	return h.ext.String(key)
}

// topic and group read a required name.
func (h *adminHeader) topic(key string) string {
	topic := h.text(key)
	if h.err == nil {
		h.keep(checkTableTopicName(topic))
	}
	return topic
}

func (h *adminHeader) group(key string) string {
	group := h.text(key)
	if h.err == nil {
		h.keep(checkGroupName(group))
	}
	return group
}

// adminHandler serves one code on a lane.
type adminHandler func(b *BrokerController, req *reactor.Request) answer

// adminQueries read the log, the queues, or much memory; they run side by side on the query lane.
var adminQueries = map[int32]adminHandler{
	remoting.GetAllTopicConfig:               (*BrokerController).getAllTopicConfig,
	remoting.GetBrokerConfig:                 (*BrokerController).getBrokerConfig,
	remoting.GetBrokerRuntimeInfo:            (*BrokerController).getBrokerRuntimeInfo,
	remoting.SearchOffsetByTimestamp:         (*BrokerController).searchOffsetByTimestamp,
	remoting.GetEarliestMsgStoreTime:         (*BrokerController).getEarliestMsgStoreTime,
	remoting.GetAllConsumerOffset:            (*BrokerController).getAllConsumerOffset,
	remoting.GetAllDelayOffset:               (*BrokerController).getAllDelayOffset,
	remoting.GetAllSubscriptionGroupConfig:   (*BrokerController).getAllSubscriptionGroupConfig,
	remoting.GetTopicStatsInfo:               (*BrokerController).getTopicStatsInfo,
	remoting.GetConsumerConnectionList:       (*BrokerController).getConsumerConnectionList,
	remoting.GetProducerConnectionList:       (*BrokerController).getProducerConnectionList,
	remoting.GetAllProducerInfo:              (*BrokerController).getAllProducerInfo,
	remoting.GetConsumeStats:                 (*BrokerController).getConsumeStats,
	remoting.QueryTopicConsumeByWho:          (*BrokerController).queryTopicConsumeByWho,
	remoting.QueryTopicsByConsumer:           (*BrokerController).queryTopicsByConsumer,
	remoting.QuerySubscriptionByConsumer:     (*BrokerController).querySubscriptionByConsumer,
	remoting.QueryConsumeTimeSpan:            (*BrokerController).queryConsumeTimeSpan,
	remoting.GetSystemTopicListFromBroker:    (*BrokerController).getSystemTopicList,
	remoting.QueryCorrectionOffset:           (*BrokerController).queryCorrectionOffset,
	remoting.ViewBrokerStatsData:             (*BrokerController).viewBrokerStatsData,
	remoting.GetBrokerConsumeStats:           (*BrokerController).getBrokerConsumeStats,
	remoting.QueryConsumeQueue:               (*BrokerController).queryConsumeQueue,
	remoting.GetTopicConfig:                  (*BrokerController).getTopicConfig,
	remoting.GetSubscriptionGroupConfig:      (*BrokerController).getSubscriptionGroupConfig,
	remoting.GetConsumerRunningInfo:          (*BrokerController).getConsumerRunningInfo,
	remoting.ConsumeMessageDirectly:          (*BrokerController).consumeMessageDirectly,
	remoting.InvokeBrokerToGetConsumerStatus: (*BrokerController).getConsumerStatus,
	remoting.ExchangeBrokerHAInfo:            (*BrokerController).exchangeBrokerHAInfo,
	remoting.GetBrokerHAStatus:               (*BrokerController).getBrokerHAStatus,
}

// adminChanges write files; one worker makes them one after the other.
var adminChanges = map[int32]adminHandler{
	remoting.UpdateAndCreateTopic:                 (*BrokerController).updateAndCreateTopic,
	remoting.UpdateAndCreateTopicList:             (*BrokerController).updateAndCreateTopicList,
	remoting.DeleteTopicInBroker:                  (*BrokerController).deleteTopicInBroker,
	remoting.UpdateBrokerConfig:                   (*BrokerController).updateBrokerConfig,
	remoting.UpdateAndCreateSubscriptionGroup:     (*BrokerController).updateAndCreateSubscriptionGroup,
	remoting.UpdateAndCreateSubscriptionGroupList: (*BrokerController).updateAndCreateSubscriptionGroupList,
	remoting.DeleteSubscriptionGroup:              (*BrokerController).deleteSubscriptionGroup,
	remoting.InvokeBrokerToResetOffset:            (*BrokerController).resetOffset,
	remoting.CloneGroupOffset:                     (*BrokerController).cloneGroupOffset,
	remoting.CleanExpiredConsumeQueue:             (*BrokerController).cleanExpiredConsumeQueue,
	remoting.CleanUnusedTopic:                     (*BrokerController).cleanUnusedTopic,
	remoting.DeleteExpiredCommitLog:               (*BrokerController).deleteExpiredCommitLog,
}

// registerAdmin registers what clients and tools ask beside messages: clients, offsets, locks, tables, administration.
func (b *BrokerController) registerAdmin(server *reactor.RemotingServer) {
	const vip = true
	clients := newClientManageProcessor(b)
	for _, code := range []int32{remoting.HeartBeat, remoting.UnregisterClient, remoting.CheckClientConfig} {
		server.RegisterProcessor(code, clients, nil, vip)
	}
	offsets := &ConsumerManageProcessor{b}
	for _, code := range []int32{
		remoting.GetConsumerListByGroup, remoting.QueryConsumerOffset, remoting.UpdateConsumerOffset,
		remoting.GetMaxOffset, remoting.GetMinOffset,
	} {
		server.RegisterProcessor(code, offsets, nil, vip)
	}
	locks := &LockProcessor{b}
	server.RegisterProcessor(remoting.LockBatchMQ, locks, nil, vip)
	server.RegisterProcessor(remoting.UnlockBatchMQ, locks, nil, vip)
	for code, handle := range adminQueries {
		server.RegisterProcessor(code, b.adminProcessor(handle), b.queryLane, vip)
	}
	for code, handle := range adminChanges {
		server.RegisterProcessor(code, b.adminProcessor(handle), b.adminLane, vip)
	}
}

// adminProcessor answers with what handle returns; a page of a mapped file that cannot be read ends this request only.
func (b *BrokerController) adminProcessor(handle adminHandler) reactor.Processor {
	return reactor.ProcessorFunc(func(req *reactor.Request) {
		var a answer
		if err := storage.Guard(func() { a = handle(b, req) }); err != nil {
			b.logger.Error("request failed", "code", req.Code, "name", remoting.RequestName(req.Code), "err", err)
			a = failed(err)
		}
		a.reply(req.ReplyTo())
	})
}

// refusedOnSlave is the answer to changes on a slave, whose tables are its master's; ok is false on a master.
func (b *BrokerController) refusedOnSlave() (a answer, ok bool) {
	if b.Config().Store.Role != storage.Slave {
		return a, false
	}
	return refused(remoting.SystemError, "Can't modify topic or subscription group from slave broker, please execute it from master broker."), true
}
