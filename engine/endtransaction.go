// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
)

// EndTransactionProcessor answers END_TRANSACTION. There are no transactions yet: half messages are refused on arrival, so
// what it is asked about can only stand in a store that another broker wrote.
type EndTransactionProcessor struct{ b *BrokerController }

func newEndTransactionProcessor(b *BrokerController) *EndTransactionProcessor {
	return &EndTransactionProcessor{b: b}
}

// Process refuses on the loop.
func (p *EndTransactionProcessor) Process(req *reactor.Request) {
	if p.b.Config().Store.Role == storage.Slave {
		replyRemark(req.ReplyTo(), remoting.SlaveNotAvailable, "a slave does not end transactions, ask its master")
		return
	}
	replyRemark(req.ReplyTo(), remoting.NoPermission, "this broker does not support transactions: nothing was committed or rolled back")
}
