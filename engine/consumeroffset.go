// SPDX-License-Identifier: Apache-2.0

package engine

// ConsumerOffsetManager holds committed offsets by topic@group and queue; consumerOffset.json.
type ConsumerOffsetManager struct{}

// Query returns -1 when nothing is stored.
func (m *ConsumerOffsetManager) Query(group, topic string, queueID int32) int64            { return -1 }
func (m *ConsumerOffsetManager) Commit(group, topic string, queueID int32, offset int64)   {}
func (m *ConsumerOffsetManager) CommitBytes(group, topic []byte, queueID int32, off int64) {} // no allocation when known
func (m *ConsumerOffsetManager) TopicsOf(group string) []string                            { return nil }
func (m *ConsumerOffsetManager) GroupsOf(topic string) []string                            { return nil }
func (m *ConsumerOffsetManager) RemoveGroup(group string)                                  {}
func (m *ConsumerOffsetManager) RemoveTopic(topic string)                                  {}
func (m *ConsumerOffsetManager) Persist() error                                            { return nil }
