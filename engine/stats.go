// SPDX-License-Identifier: Apache-2.0

package engine

// BrokerStats counts puts and gets by topic and group for code 315, 28 and /metrics. Source: BrokerStatsManager.
type BrokerStats struct{}

// Counting methods are for hot paths: no allocation, no look-up beyond the handle.
func (s *BrokerStats) Topic(topic string) *TopicStats        { return nil }
func (s *BrokerStats) Group(topic, group string) *GroupStats { return nil }

// TopicStats and GroupStats are handles to keep.
type TopicStats struct{}

func (t *TopicStats) Put(msgs int, bytes int64) {}

type GroupStats struct{}

func (g *GroupStats) Get(msgs int, bytes int64) {}
func (g *GroupStats) SendBack()                 {}
