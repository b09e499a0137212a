// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"loopmq/reactor"
)

// SubscriptionData is one topic subscription of a group, as the heartbeat brought it. Immutable. Source: SubscriptionData.
type SubscriptionData struct {
	Topic           string
	SubString       string
	TagsSet         []string
	CodeSet         map[int32]struct{}
	SubVersion      int64
	ExpressionType  string // TAG, SQL92
	ClassFilterMode bool
}

// ConsumerGroupInfo is what is known of a live group; a snapshot. Source: ConsumerGroupInfo.
type ConsumerGroupInfo struct {
	GroupName        string
	ConsumeType      string
	MessageModel     string
	ConsumeFromWhere string
	Subscriptions    map[string]*SubscriptionData
	Channels         []*ClientChannelInfo
}

// ClientChannelInfo is one live client. Source: ClientChannelInfo.
type ClientChannelInfo struct {
	Session    *reactor.Session
	ClientID   string
	Language   byte
	Version    int32
	LastUpdate int64 // ms
}

// ConsumerManager knows live consumers. Methods are for loops: memory only.
type ConsumerManager struct{}

// Find returns nil for a group with no live consumer. The result is a snapshot and is not to be changed.
func (m *ConsumerManager) Find(group []byte) *ConsumerGroupInfo { return nil }

// Subscription returns the live subscription of group to topic, or nil; ok is false when the group has no live consumer.
func (m *ConsumerManager) Subscription(group, topic []byte) (info *ConsumerGroupInfo, sub *SubscriptionData) {
	return nil, nil
}

// ProducerManager knows live producers.
type ProducerManager struct{}

// RebalanceLockManager holds the queue locks of orderly consumers.
type RebalanceLockManager struct{}
