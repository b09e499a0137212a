// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	masterID int64 = 0

	permWrite int32 = 2
	permRead  int32 = 4

	// syncMemberTopicPrefix starts the topics by whose route 5.x slaves read their group's members; the acting master is
	// not put in the master's place there.
	syncMemberTopicPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"
)

// queueData is what one broker offers of a topic. Source: QueueData.
type queueData struct {
	brokerName                                        string
	readQueueNums, writeQueueNums, perm, topicSysFlag int32
}

// brokerData is a broker group: the addresses under one name, by id. Immutable. Source: BrokerData.
type brokerData struct {
	cluster, brokerName string
	addrs               []brokerAddr // by id, ascending
	zoneName            string
	enableActingMaster  bool
}

type brokerAddr struct {
	id   int64
	addr string
}

func (b *brokerData) addrOf(id int64) string {
	for _, a := range b.addrs {
		if a.id == id {
			return a.addr
		}
	}
	return ""
}

func (b *brokerData) hasMaster() bool { return b.addrOf(masterID) != "" }

// withAddr returns a copy in which id has the address, and no other id has it: a broker that changed its role.
func (b *brokerData) withAddr(id int64, addr string) *brokerData {
	c := *b
	c.addrs = make([]brokerAddr, 0, len(b.addrs)+1)
	for _, a := range b.addrs {
		if a.id != id && a.addr != addr {
			c.addrs = append(c.addrs, a)
		}
	}
	c.addrs = append(c.addrs, brokerAddr{id, addr})
	slices.SortFunc(c.addrs, func(x, y brokerAddr) int {
		if x.id < y.id {
			return -1
		}
		return 1
	})
	return &c
}

// without returns a copy that lacks the address.
func (b *brokerData) without(addr string) *brokerData {
	c := *b
	c.addrs = slices.DeleteFunc(slices.Clone(b.addrs), func(a brokerAddr) bool { return a.addr == addr })
	return &c
}

func (b *brokerData) appendJSON(dst []byte, quotedIDs bool) []byte {
	dst = b.appendMembers(append(dst, '{'), quotedIDs)
	dst = append(dst, `,"enableActingMaster":`...)
	dst = strconv.AppendBool(dst, b.enableActingMaster)
	if b.zoneName != "" {
		dst = append(dst, `,"zoneName":`...)
		dst = appendString(dst, b.zoneName)
	}
	return append(dst, '}')
}

// appendMembers writes what both a route and a member group say of a broker group.
func (b *brokerData) appendMembers(dst []byte, quotedIDs bool) []byte {
	dst = append(dst, `"brokerAddrs":{`...)
	for i, a := range b.addrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendIntKey(dst, a.id, quotedIDs)
		dst = append(dst, ':')
		dst = appendString(dst, a.addr)
	}
	dst = append(dst, `},"brokerName":`...)
	dst = appendString(dst, b.brokerName)
	dst = append(dst, `,"cluster":`...)
	return appendString(dst, b.cluster)
}

// topicRoute is who serves a topic. Immutable but for the cached answer.
type topicRoute struct {
	queues  []queueData // by broker name
	encoded atomic.Pointer[encodedRoute]
}

// encodedRoute is the answer to GET_ROUTEINFO_BY_TOPIC, valid while brokers, order configuration and settings are
// those it was made from.
type encodedRoute struct {
	brokers *brokerTable
	orders  *kvTable
	config  *Config
	body    []byte
}

// brokerTable is an immutable set of broker groups; a change makes a new one.
type brokerTable struct {
	byName map[string]*brokerData
}

func (t *brokerTable) clusters() map[string][]string {
	clusters := make(map[string][]string)
	for name, b := range t.byName {
		clusters[b.cluster] = append(clusters[b.cluster], name)
	}
	for _, names := range clusters {
		slices.Sort(names)
	}
	return clusters
}

func (t *brokerTable) sortedNames() []string { return sortedKeys(t.byName) }

// routeTable is what readers see: one moment's topics and brokers.
type routeTable struct {
	topics  map[string]*topicRoute
	brokers *brokerTable
	queues  int // entries of all topics
}

// zone is a client's wish for brokers of its own zone only. Source: ZoneRouteRPCHook.
type zone struct {
	name string
	mode bool
}

func (z zone) keeps(b *brokerData) bool {
	return !z.mode || z.name == "" || strings.EqualFold(b.zoneName, z.name) || !b.hasMaster()
}

// encodeRoute writes the TopicRouteData of a topic; nil when none of its brokers is known. Known brokers that are all of
// other zones make an empty one: a client keeps its old route when there is none.
func (t *routeTable) encodeRoute(topic string, route *topicRoute, cfg *Config, orders *kvTable, z zone) []byte {
	brokers := make([]*brokerData, 0, len(route.queues))
	queues := make([]queueData, 0, len(route.queues))
	known := false
	for _, q := range route.queues {
		b := t.brokers.byName[q.brokerName]
		known = known || b != nil
		if b == nil || !z.keeps(b) {
			continue
		}
		brokers = append(brokers, b)
		queues = append(queues, q)
	}
	if !known {
		return nil
	}
	if cfg.SupportActingMaster && !strings.HasPrefix(topic, syncMemberTopicPrefix) {
		showActingMasters(brokers, queues)
	}
	dst := make([]byte, 0, 256*len(brokers))
	dst = append(dst, `{"brokerDatas":[`...)
	for i, b := range brokers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = b.appendJSON(dst, true)
	}
	dst = append(dst, `],"filterServerTable":{}`...)
	if order := orders.get(namespaceOrderTopicConfig, topic); cfg.OrderMessageEnable && order != "" {
		dst = append(dst, `,"orderTopicConf":`...)
		dst = appendString(dst, order)
	}
	dst = append(dst, `,"queueDatas":[`...)
	for i, q := range queues {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = q.appendJSON(dst)
	}
	return append(dst, `]}`...)
}

func (q *queueData) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"brokerName":`...)
	dst = appendString(dst, q.brokerName)
	dst = append(dst, `,"perm":`...)
	dst = strconv.AppendInt(dst, int64(q.perm), 10)
	dst = append(dst, `,"readQueueNums":`...)
	dst = strconv.AppendInt(dst, int64(q.readQueueNums), 10)
	dst = append(dst, `,"topicSysFlag":`...)
	dst = strconv.AppendInt(dst, int64(q.topicSysFlag), 10)
	dst = append(dst, `,"writeQueueNums":`...)
	dst = strconv.AppendInt(dst, int64(q.writeQueueNums), 10)
	return append(dst, '}')
}

// showActingMasters puts the lowest slave of a group without a master in the master's place, where the group asked for
// it and the topic takes no writes. Source: RouteInfoManager#pickupTopicRouteData of 5.x.
func showActingMasters(brokers []*brokerData, queues []queueData) {
	for i, b := range brokers {
		if b.hasMaster() || !b.enableActingMaster || len(b.addrs) == 0 || queues[i].perm&permWrite != 0 {
			continue
		}
		acting := *b
		acting.addrs = slices.Clone(b.addrs)
		acting.addrs[0].id = masterID
		brokers[i] = &acting
	}
}

// encodeClusterInfo writes ClusterInfo (code 106).
func (t *brokerTable) encodeClusterInfo() []byte {
	broker := func(dst []byte, b *brokerData) []byte { return b.appendJSON(dst, false) }
	dst := appendObject([]byte(`{"brokerAddrTable":`), t.byName, broker)
	dst = append(dst, `,"clusterAddrTable":`...)
	return append(appendObject(dst, t.clusters(), appendStrings), '}')
}

// encodeMemberGroup writes the answer to code 901; a group that is not known has no addresses.
func (t *brokerTable) encodeMemberGroup(cluster, brokerName string) []byte {
	b := t.byName[brokerName]
	if b == nil {
		b = &brokerData{cluster: cluster, brokerName: brokerName}
	}
	return append(b.appendMembers([]byte(`{"brokerMemberGroup":{`), false), `}}`...)
}

// topicsWhere lists, sorted, the topics with a queue entry that want accepts.
func (t *routeTable) topicsWhere(want func(*queueData) bool) []string {
	topics := make([]string, 0, len(t.topics))
	for topic, route := range t.topics {
		for i := range route.queues {
			if want(&route.queues[i]) {
				topics = append(topics, topic)
				break
			}
		}
	}
	slices.Sort(topics)
	return topics
}

// encodeTopicList writes TopicList; brokerAddr is left out when empty.
func encodeTopicList(topics []string, addr string) []byte {
	dst := []byte{'{'}
	if addr != "" {
		dst = append(dst, `"brokerAddr":`...)
		dst = appendString(dst, addr)
		dst = append(dst, ',')
	}
	dst = append(dst, `"topicList":`...)
	dst = appendStrings(dst, topics)
	return append(dst, '}')
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
