// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage/latency"
)

const (
	// channelExpiredTimeout is how long a client counts as live without a heartbeat. Source: ConsumerManager
	// (CHANNEL_EXPIRED_TIMEOUT).
	channelExpiredTimeout = 120 * time.Second
	// sessionGroupsMax bounds the groups of one connection, as consumer and as producer each.
	sessionGroupsMax = 4096
	// groupSubscriptionsMax bounds the topics that one group subscribes to.
	groupSubscriptionsMax = 10_000
	// membersMax bounds the groups of all connections together, as consumers and as producers each.
	membersMax = 1_000_000
	// subscriptionBytesMax bounds the subscriptions of all groups together. At it a group keeps those that it had.
	subscriptionBytesMax = 256 << 20
)

var (
	errSessionGroups = fmt.Errorf("one connection may belong to %d groups", sessionGroupsMax)
	errSessionClosed = errors.New("the connection is closed")
	errMembers       = fmt.Errorf("all clients together may belong to %d groups", membersMax)
	errSubscriptions = fmt.Errorf("the subscriptions of all groups together may take %d bytes", subscriptionBytesMax)
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

// What the broker itself looks at of what clients tell about themselves.
const (
	expressionTAG        = "TAG"
	subscriptionAll      = "*"
	languageCPP     byte = 1
)

// isTagType follows ExpressionType#isTagType: no type is TAG.
func isTagType(expressionType string) bool {
	return expressionType == "" || expressionType == expressionTAG
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

// ClientIDs are the ids of the live clients.
func (g *ConsumerGroupInfo) ClientIDs() []string {
	ids := make([]string, 0, len(g.Channels))
	for _, c := range g.Channels {
		ids = append(ids, c.ClientID)
	}
	return ids
}

// Channel finds a live client, nil if it is not there.
func (g *ConsumerGroupInfo) Channel(clientID string) *ClientChannelInfo {
	for _, c := range g.Channels {
		if c.ClientID == clientID {
			return c
		}
	}
	return nil
}

// ClientChannelInfo is one live client. Source: ClientChannelInfo.
type ClientChannelInfo struct {
	Session  *reactor.Session
	ClientID string
	Language byte
	Version  int32

	lastUpdate atomic.Int64 // ms
	heard      atomic.Int64 // the same by latency.Now: a wall clock that is set expires nobody
}

func newClientChannelInfo(session *reactor.Session, clientID string, language byte, version int32, now time.Time) *ClientChannelInfo {
	c := &ClientChannelInfo{Session: session, ClientID: clientID, Language: language, Version: version}
	c.lastUpdate.Store(now.UnixMilli())
	c.heard.Store(latency.Of(now))
	return c
}

// LastUpdate is when the last heartbeat came, in ms.
func (c *ClientChannelInfo) LastUpdate() int64 { return c.lastUpdate.Load() }

func (c *ClientChannelInfo) expired(now time.Time) bool {
	return time.Duration(latency.Of(now)-c.heard.Load()) > channelExpiredTimeout
}

// clientGroups is the live clients of groups, of consumers or of producers. Groups appear with their first client and
// go with their last. Find and its like take no lock; the rest holds one mutex for memory work only.
type clientGroups struct {
	groups *cowMap[*ConsumerGroupInfo]

	mu       sync.Mutex                           // serializes changes of groups and guards the rest
	sessions map[*reactor.Session]map[string]bool // the groups of each connection
	members  int                                  // groups of all connections
	bytes    int                                  // of the subscriptions of all groups
}

func newClientGroups() clientGroups {
	return clientGroups{groups: newCowMap[*ConsumerGroupInfo](), sessions: make(map[*reactor.Session]map[string]bool)}
}

// Find returns nil for a group with no live client. The result is a snapshot and is not to be changed.
func (g *clientGroups) Find(group []byte) *ConsumerGroupInfo {
	info, _ := g.groups.getBytes(group)
	return info
}

// Get is Find by string.
func (g *clientGroups) Get(group string) *ConsumerGroupInfo {
	info, _ := g.groups.get(group)
	return info
}

// joinLocked puts a client into next, a private copy of its group, in place of an older connection with the same id: a
// client that connects anew is there once (apache/rocketmq#7870). It reports whether the group's channels changed.
func (g *clientGroups) joinLocked(next *ConsumerGroupInfo, client *ClientChannelInfo) (changed bool, err error) {
	for _, c := range next.Channels {
		if c.Session == client.Session && c.ClientID == client.ClientID {
			c.lastUpdate.Store(client.LastUpdate())
			c.heard.Store(client.heard.Load())
			return false, nil
		}
	}
	if client.Session.Closed() {
		return false, errSessionClosed // its close was, or will be, handled without this group
	}
	mine := g.sessions[client.Session]
	if !mine[next.GroupName] {
		switch {
		case len(mine) >= sessionGroupsMax:
			return false, errSessionGroups
		case g.members >= membersMax:
			return false, errMembers
		case mine == nil:
			mine = make(map[string]bool)
			g.sessions[client.Session] = mine
		}
		mine[next.GroupName] = true
		g.members++
	}
	var left []*reactor.Session
	next.Channels = slices.DeleteFunc(slices.Clone(next.Channels), func(c *ClientChannelInfo) bool {
		gone := c.ClientID == client.ClientID || c.Session == client.Session
		if gone && c.Session != client.Session {
			left = append(left, c.Session)
		}
		return gone
	})
	next.Channels = append(next.Channels, client)
	for _, s := range left {
		g.forgetLocked(s, next.GroupName)
	}
	return true, nil
}

func (g *clientGroups) forgetLocked(session *reactor.Session, group string) {
	if mine := g.sessions[session]; mine[group] {
		g.members--
		if delete(mine, group); len(mine) == 0 {
			delete(g.sessions, session)
		}
	}
}

// leaveLocked takes a connection out of one group and returns what is left, nil when nobody is.
func (g *clientGroups) leaveLocked(session *reactor.Session, group string) (left *ConsumerGroupInfo, changed bool) {
	g.forgetLocked(session, group)
	info, ok := g.groups.get(group)
	if !ok {
		return nil, false
	}
	next := *info
	next.Channels = slices.DeleteFunc(slices.Clone(info.Channels), func(c *ClientChannelInfo) bool { return c.Session == session })
	if len(next.Channels) == len(info.Channels) {
		return info, false
	}
	if len(next.Channels) == 0 {
		g.bytes -= subscriptionBytes(info.Subscriptions)
		g.groups.remove(group)
		return nil, true
	}
	g.groups.put(group, &next)
	return &next, true
}

// Unregister takes a connection out of one group; it returns the group as it is then if that changed it.
func (g *clientGroups) Unregister(session *reactor.Session, group string) (left *ConsumerGroupInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left, changed := g.leaveLocked(session, group)
	if !changed {
		return nil
	}
	return left
}

// SessionClosed takes a connection out of all its groups; it returns those that still have clients.
func (g *clientGroups) SessionClosed(session *reactor.Session) (left []*ConsumerGroupInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for group := range maps.Clone(g.sessions[session]) {
		if info, changed := g.leaveLocked(session, group); changed && info != nil {
			left = append(left, info)
		}
	}
	return left
}

// Expired are the connections of clients without a heartbeat for too long; closing them is the caller's matter.
func (g *clientGroups) Expired(now time.Time) (sessions []*reactor.Session) {
	g.groups.each(func(_ string, info *ConsumerGroupInfo) bool {
		for _, c := range info.Channels {
			if c.expired(now) && !slices.Contains(sessions, c.Session) {
				sessions = append(sessions, c.Session)
			}
		}
		return true
	})
	return sessions
}

// Len is the number of groups with live clients.
func (g *clientGroups) Len() int { return g.groups.len() }

// ConsumerManager knows live consumers. Methods are for loops: memory only.
type ConsumerManager struct{ clientGroups }

func newConsumerManager() *ConsumerManager { return &ConsumerManager{newClientGroups()} }

// Subscription returns the live subscription of group to topic, or nil; info is nil when the group has no live consumer.
func (m *ConsumerManager) Subscription(group, topic []byte) (info *ConsumerGroupInfo, sub *SubscriptionData) {
	if info = m.Find(group); info == nil {
		return nil, nil
	}
	return info, info.Subscriptions[string(topic)]
}

// consumerData is one consumer of a heartbeat. Source: ConsumerData.
type consumerData struct {
	group            string
	consumeType      string
	messageModel     string
	consumeFromWhere string
	subscriptions    map[string]*SubscriptionData
	withoutSub       bool // 5.x, short form: the subscriptions are those of the last full one
}

// Register brings a heartbeat of one consumer in. It returns the group as it is then, and whether its members or
// topics changed, so that all of them must balance anew. Source: ConsumerManager#registerConsumer.
func (m *ConsumerManager) Register(client *ClientChannelInfo, data *consumerData) (info *ConsumerGroupInfo, changed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, _ := m.groups.get(data.group)
	if old == nil {
		old = &ConsumerGroupInfo{GroupName: data.group}
	}
	next := *old
	next.ConsumeType, next.MessageModel, next.ConsumeFromWhere = data.consumeType, data.messageModel, data.consumeFromWhere
	if changed, err = m.joinLocked(&next, client); err != nil {
		return nil, false, err
	}
	updated := false
	if !data.withoutSub {
		var topics bool
		next.Subscriptions, updated, topics = mergeSubscriptions(old.Subscriptions, data.subscriptions)
		if updated {
			growth := subscriptionBytes(next.Subscriptions) - subscriptionBytes(old.Subscriptions)
			if growth > 0 && m.bytes+growth > subscriptionBytesMax {
				next.Subscriptions, updated, topics, growth, err = old.Subscriptions, false, false, 0, errSubscriptions
			}
			m.bytes += growth
		}
		changed = changed || topics
	}
	same := next.ConsumeType == old.ConsumeType && next.MessageModel == old.MessageModel && next.ConsumeFromWhere == old.ConsumeFromWhere
	if changed || updated || !same {
		m.groups.put(data.group, &next)
		return &next, changed, err
	}
	return old, false, err
}

// subscriptionBytes is about what subscriptions take in memory.
func subscriptionBytes(subscriptions map[string]*SubscriptionData) (n int) {
	const entry, code, tag = 300, 24, 16 // beside the text
	for topic, s := range subscriptions {
		n += entry + len(topic) + len(s.SubString) + len(s.ExpressionType) + code*len(s.CodeSet)
		for _, t := range s.TagsSet {
			n += tag + len(t)
		}
	}
	return n
}

// mergeSubscriptions follows ConsumerGroupInfo#updateSubscription: the newest version of a topic wins, topics that this
// client does not name go. topics says that the set of topics changed, updated that anything did.
func mergeSubscriptions(old, heartbeat map[string]*SubscriptionData) (merged map[string]*SubscriptionData, updated, topics bool) {
	merged = make(map[string]*SubscriptionData, len(heartbeat))
	for topic, sub := range heartbeat {
		before := old[topic]
		switch {
		case before == nil:
			topics = true
		case sub.SubVersion <= before.SubVersion:
			sub = before
		default:
			updated = true
		}
		merged[topic] = sub
	}
	for topic := range old {
		topics = topics || merged[topic] == nil
	}
	if !updated && !topics {
		merged = old
	}
	return merged, updated || topics, topics
}

// GroupsOf are the live groups that subscribe to topic, sorted.
func (m *ConsumerManager) GroupsOf(topic string) (groups []string) {
	m.groups.each(func(name string, info *ConsumerGroupInfo) bool {
		if info.Subscriptions[topic] != nil {
			groups = append(groups, name)
		}
		return true
	})
	slices.Sort(groups)
	return groups
}

// ProducerManager knows live producers. Methods are for loops: memory only.
type ProducerManager struct{ clientGroups }

func newProducerManager() *ProducerManager { return &ProducerManager{newClientGroups()} }

// Register brings a heartbeat of one producer in. Source: ProducerManager#registerProducer.
func (m *ProducerManager) Register(client *ClientChannelInfo, group string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, _ := m.groups.get(group)
	if old == nil {
		old = &ConsumerGroupInfo{GroupName: group}
	}
	next := *old
	changed, err := m.joinLocked(&next, client)
	if err == nil && changed {
		m.groups.put(group, &next)
	}
	return err
}
