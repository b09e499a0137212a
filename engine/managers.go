// SPDX-License-Identifier: Apache-2.0

package engine

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

// awaitRegistered lets an answer to a tool wait, but not long, until name servers have the changed topics. Not for event loops.
func (b *BrokerController) awaitRegistered() { b.registration()() }

// registration leaves the waiting of awaitRegistered to await.
func (b *BrokerController) registration() (await func()) {
	if b.outer == nil {
		return func() {}
	}
	return b.outer.Registration()
}
