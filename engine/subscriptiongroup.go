// SPDX-License-Identifier: Apache-2.0

package engine

// SubscriptionGroupConfig is immutable once in the table. Source: SubscriptionGroupConfig.
type SubscriptionGroupConfig struct {
	GroupName                      string
	ConsumeEnable                  bool
	ConsumeFromMinEnable           bool
	ConsumeBroadcastEnable         bool
	RetryQueueNums                 int32
	RetryMaxTimes                  int32
	BrokerID                       int64
	WhichBrokerWhenConsumeSlowly   int64
	NotifyConsumerIdsChangedEnable bool
}

// SubscriptionGroupManager is the group table and subscriptionGroup.json. Lookup is for loops; the rest is not.
type SubscriptionGroupManager struct{}

// Lookup returns nil for an unknown group; FindOrCreate makes it when autoCreateSubscriptionGroup allows (it marks
// the file dirty and returns at once: the admin worker persists).
func (m *SubscriptionGroupManager) Lookup(group []byte) *SubscriptionGroupConfig       { return nil }
func (m *SubscriptionGroupManager) FindOrCreate(group string) *SubscriptionGroupConfig { return nil }
func (m *SubscriptionGroupManager) Update(c *SubscriptionGroupConfig) error            { return nil }
func (m *SubscriptionGroupManager) Delete(group string) error                          { return nil }
func (m *SubscriptionGroupManager) All() (map[string]*SubscriptionGroupConfig, DataVersion) {
	return nil, DataVersion{}
}
