// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

// defaultQueryMaxNum is what a query by unique key asks for at most. Source: MessageStoreConfig#defaultQueryMaxNum.
const defaultQueryMaxNum = 32

// QueryMessageProcessor serves QUERY_MESSAGE and VIEW_MESSAGE_BY_ID on the query lane. Source: QueryMessageProcessor.
type QueryMessageProcessor struct{ b *BrokerController }

func newQueryMessageProcessor(b *BrokerController) *QueryMessageProcessor {
	return &QueryMessageProcessor{b: b}
}

// Process runs on a query worker.
func (p *QueryMessageProcessor) Process(req *reactor.Request) {
	if req.Code == remoting.ViewMessageByID {
		p.view(req)
		return
	}
	p.query(req)
}

func (p *QueryMessageProcessor) query(req *reactor.Request) {
	fields := intFields{ext: &req.Ext}
	maxNum := fields.optionalInt32("maxNum", defaultQueryMaxNum)
	begin, end := fields.int64("beginTimestamp"), fields.int64("endTimestamp")
	if fields.err != nil {
		replyRemark(req.ReplyTo(), remoting.SystemError, fields.err.Error())
		return
	}
	if req.Ext.Bool("_UNIQUE_KEY_QUERY") {
		maxNum = defaultQueryMaxNum
	}
	limit := p.b.store.Config().MaxMsgsNumBatch
	var found *storage.QueryMessageResult
	fault := storage.Guard(func() {
		found = p.b.store.QueryMessage(req.Ext.String("topic"), req.Ext.String("key"), min(int(maxNum), limit), begin, end)
	})
	if fault != nil {
		replyRemark(req.ReplyTo(), remoting.SystemError, "query failed: "+fault.Error())
		return
	}
	body, fault := bodyOf(found)
	found.Release()
	if fault != nil {
		replyRemark(req.ReplyTo(), remoting.SystemError, "query failed: "+fault.Error())
		return
	}
	if len(body) == 0 {
		replyRemark(req.ReplyTo(), remoting.QueryNotFound, "can not find message, maybe time range not correct")
		return
	}
	resp := newResponse(remoting.Success)
	resp.Ext.AddInt("indexLastUpdateTimestamp", found.IndexLastUpdateTimestamp)
	resp.Ext.AddInt("indexLastUpdatePhyoffset", int64(found.IndexLastUpdatePhyOffset))
	resp.Body = body
	req.ReplyTo().Reply(resp)
	putResponse(resp)
}

// bodyOf copies as many records as one answer holds. Most are old: the disk is read here, and not by the event loop that
// writes the answer.
func bodyOf(found *storage.QueryMessageResult) (body []byte, fault error) {
	fault = storage.Guard(func() {
		for i := range found.Buffers {
			record := found.Buffers[i].Bytes()
			if len(body)+len(record) > pullBodyMax {
				return
			}
			body = append(body, record...)
		}
	})
	return body, fault
}

func (p *QueryMessageProcessor) view(req *reactor.Request) {
	offset, err := req.Ext.Int64("offset", -1)
	if err != nil {
		replyRemark(req.ReplyTo(), remoting.SystemError, err.Error())
		return
	}
	var record []byte
	if err := p.b.loadRecord(storage.PhyOffset(offset), &record, new(message.Record)); err != nil {
		replyRemark(req.ReplyTo(), remoting.SystemError, fmt.Sprintf("can not find message by the offset, %d: %v", offset, err))
		return
	}
	resp := newResponse(remoting.Success)
	resp.Body = record
	req.ReplyTo().Reply(resp)
	putResponse(resp)
}
