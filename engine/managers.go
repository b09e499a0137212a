// SPDX-License-Identifier: Apache-2.0

package engine

import "loopmq/reactor"

// tableFile names a table under <storePathRootDir>/config.
func (b *BrokerController) tableFile(name string) *tableFile {
	return newTableFile(b.fs, b.Config().Store.StorePathRootDir, name, b.logger)
}

// submitAdmin queues work for the admin worker, false when it cannot take it.
func (b *BrokerController) submitAdmin(f func()) bool {
	return b.adminLane != nil && b.adminLane.Submit(f)
}

// topicsChanged asks for a registration of the changed topic table.
func (b *BrokerController) topicsChanged() {
	if b.outer != nil {
		b.outer.TopicsChanged()
	}
}

// registration returns a wait, not a long one, for the name servers to have the topics changed by now. Not for event loops.
func (b *BrokerController) registration() (await func()) {
	if b.outer == nil {
		return func() {}
	}
	return b.outer.Registration()
}

// successWhenRegistered answers a tool that changed topics: it uses them next, and asks a name server where they are.
func (b *BrokerController) successWhenRegistered(req *reactor.Request) answer {
	to := req.ReplyTo()
	b.topics.whenRegistered(b.toolLane, func() { answer{}.reply(to) })
	return deferred()
}
