// SPDX-License-Identifier: Apache-2.0

package engine

// Permissions of a topic or broker. Source: PermName.
const (
	PermInherit int32 = 1
	PermWrite   int32 = 2
	PermRead    int32 = 4
)

// TopicConfig is immutable once it is in the table: to change it, put a changed copy. Source: TopicConfig.
type TopicConfig struct {
	TopicName       string
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32
	TopicFilterType string // SINGLE_TAG, MULTI_TAG
	TopicSysFlag    int32
	Order           bool
	Attributes      map[string]string // 5.x; kept, not used
}

// DataVersion says whether two tables differ. Source: DataVersion (stateVersion: 5.x).
type DataVersion struct {
	StateVersion int64
	Timestamp    int64
	Counter      int64
}

// TopicConfigManager is the topic table and its file topics.json. Look-ups are for event loops: memory only, no
// allocation. Everything that changes the table writes and syncs a file: admin worker only.
type TopicConfigManager struct{}

// Lookup returns nil for an unknown topic.
func (m *TopicConfigManager) Lookup(topic []byte) *TopicConfig { return nil }
func (m *TopicConfigManager) Get(topic string) *TopicConfig    { return nil }

// CreateInSend follows TopicConfigManager#createTopicInSendMessageMethod: nil if the template does not allow it.
func (m *TopicConfigManager) CreateInSend(topic, defaultTopic, remote string, queueNums, sysFlag int32) (*TopicConfig, error) {
	return nil, nil
}

// CreateInSendBack follows TopicConfigManager#createTopicInSendMessageBackMethod (retry and dead letter topics).
func (m *TopicConfigManager) CreateInSendBack(topic string, queueNums, perm, sysFlag int32) (*TopicConfig, error) {
	return nil, nil
}

func (m *TopicConfigManager) Update(c *TopicConfig) error { return nil }
func (m *TopicConfigManager) Delete(topic string) error   { return nil }

// All is a snapshot.
func (m *TopicConfigManager) All() (map[string]*TopicConfig, DataVersion) { return nil, DataVersion{} }
