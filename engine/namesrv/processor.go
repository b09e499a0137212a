// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

func (s *Server) registerProcessors() {
	loop := func(code int32, p func(*reactor.Request)) {
		s.remoting.RegisterProcessor(code, reactor.ProcessorFunc(p), nil, false)
	}
	on := func(lane *reactor.Lane, code int32, p func(*reactor.Request)) {
		s.remoting.RegisterProcessor(code, reactor.ProcessorFunc(p), lane, false)
	}
	loop(remoting.GetRouteInfoByTopic, s.getRouteInfoByTopic)
	loop(remoting.GetKVConfig, s.getKVConfig)
	loop(remoting.RegisterTopicInNamesrv, func(req *reactor.Request) {
		answer(req, remoting.NoPermission, "topics are registered by brokers only", nil)
	})

	on(s.registerLane, remoting.RegisterBroker, s.registerBroker)
	on(s.registerLane, remoting.UnregisterBroker, s.unregisterBroker)
	on(s.registerLane, remoting.QueryDataVersion, s.queryDataVersion)
	on(s.registerLane, remoting.BrokerHeartbeat, s.brokerHeartbeat)
	on(s.registerLane, remoting.WipeWritePermOfBroker, s.wipeWritePerm)
	on(s.registerLane, remoting.AddWritePermOfBroker, s.addWritePerm)
	on(s.registerLane, remoting.DeleteTopicInNamesrv, s.deleteTopic)

	on(s.queryLane, remoting.GetBrokerClusterInfo, s.getBrokerClusterInfo)
	on(s.queryLane, remoting.GetBrokerMemberGroup, s.getBrokerMemberGroup)
	on(s.queryLane, remoting.GetAllTopicListFromNameServer, s.getAllTopics)
	on(s.queryLane, remoting.GetTopicsByCluster, s.getTopicsByCluster)
	on(s.queryLane, remoting.GetSystemTopicListFromNs, s.getSystemTopics)
	on(s.queryLane, remoting.GetUnitTopicList, s.topicsBySysFlag(func(f int32) bool { return f&topicSysFlagUnit != 0 }))
	on(s.queryLane, remoting.GetHasUnitSubTopicList, s.topicsBySysFlag(func(f int32) bool { return f&topicSysFlagUnitSub != 0 }))
	on(s.queryLane, remoting.GetHasUnitSubUnunitTopicList, s.topicsBySysFlag(func(f int32) bool {
		return f&topicSysFlagUnitSub != 0 && f&topicSysFlagUnit == 0
	}))
	on(s.queryLane, remoting.PutKVConfig, s.putKVConfig)
	on(s.queryLane, remoting.DeleteKVConfig, s.deleteKVConfig)
	on(s.queryLane, remoting.GetKVListByNamespace, s.getKVListByNamespace)
	on(s.queryLane, remoting.UpdateNamesrvConfig, s.updateConfig)
	on(s.queryLane, remoting.GetNamesrvConfig, s.getConfig)

	s.remoting.RegisterDefaultProcessor(reactor.ProcessorFunc(func(req *reactor.Request) {
		answer(req, remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code), nil)
	}), nil)
}

// Flags of a topic. Source: TopicSysFlag.
const (
	topicSysFlagUnit    int32 = 1
	topicSysFlagUnitSub int32 = 2
)

func answer(req *reactor.Request, code int32, remark string, body []byte) {
	resp := remoting.Command{Code: code, Body: body}
	if remark != "" {
		resp.Remark = []byte(remark)
	}
	req.Reply(&resp)
}

func fail(req *reactor.Request, err error) { answer(req, remoting.SystemError, err.Error(), nil) }

// required reads header fields that must be there; the error names the first that is not.
func required(req *reactor.Request, keys ...string) ([]string, error) {
	values := make([]string, len(keys))
	for i, key := range keys {
		value, ok := req.Ext.Get(key)
		if !ok {
			return nil, fmt.Errorf("the header field %s is missing", key)
		}
		values[i] = string(value)
	}
	return values, nil
}

// getRouteInfoByTopic runs on the loop: a look-up and, nearly always, bytes that are there already.
func (s *Server) getRouteInfoByTopic(req *reactor.Request) {
	topic, ok := req.Ext.Get("topic")
	if !ok {
		fail(req, errors.New("the header field topic is missing"))
		return
	}
	table := s.routes.table.Load()
	if route := table.topics[string(topic)]; route != nil {
		z := zone{name: req.Ext.String("__ZONE_NAME"), mode: req.Ext.Bool("__ZONE_MODE")}
		if body := s.routeBody(table, string(topic), route, z); body != nil {
			answer(req, remoting.Success, "", body)
			return
		}
	}
	answer(req, remoting.TopicNotExist, "No topic route info in name server for the topic: "+string(topic), nil)
}

func (s *Server) routeBody(table *routeTable, topic string, route *topicRoute, z zone) []byte {
	cfg, orders := s.config.Load(), s.kv.table.Load()
	if z.mode {
		return table.encodeRoute(topic, route, cfg, orders, z)
	}
	if c := route.encoded.Load(); c != nil && c.brokers == table.brokers && c.orders == orders && c.config == cfg {
		return c.body
	}
	body := table.encodeRoute(topic, route, cfg, orders, z)
	route.encoded.Store(&encodedRoute{brokers: table.brokers, orders: orders, config: cfg, body: body})
	return body
}

func readBrokerID(req *reactor.Request) (id brokerID, err error) {
	id = brokerID{
		cluster: req.Ext.String("clusterName"), brokerName: req.Ext.String("brokerName"), addr: req.Ext.String("brokerAddr"),
	}
	id.id, err = req.Ext.Int64("brokerId", masterID)
	return id, err
}

func readRegistration(req *reactor.Request) (r *registration, err error) {
	r = &registration{
		haServerAddr: req.Ext.String("haServerAddr"), zoneName: req.Ext.String("__ZONE_NAME"),
		enableActingMaster: req.Ext.Bool("enableActingMaster"), compressed: req.Ext.Bool("compressed"),
		version: req.Version, body: req.Body, conn: req.Session,
	}
	if r.brokerID, err = readBrokerID(req); err != nil {
		return nil, err
	}
	_, r.actingMasterKnown = req.Ext.Get("enableActingMaster")
	timeout, err := req.Ext.Int64("heartbeatTimeoutMillis", 0)
	if err != nil {
		return nil, err
	}
	r.timeout = time.Duration(min(max(timeout, 0), heartbeatTimeoutMax.Milliseconds())) * time.Millisecond
	crc, err := req.Ext.Int32("bodyCrc32", 0)
	if err != nil {
		return nil, err
	}
	if crc != 0 && crc != int32(crc32.ChecksumIEEE(req.Body)&0x7fffffff) {
		return nil, errors.New("crc32 not match")
	}
	return r, nil
}

// heartbeatTimeoutMax bounds the time that a registration may ask to be kept without a sign of life.
const heartbeatTimeoutMax = 24 * time.Hour

func (s *Server) registerBroker(req *reactor.Request) {
	r, err := readRegistration(req)
	if err != nil {
		fail(req, err)
		return
	}
	result, err := s.routes.Register(r, time.Now())
	if err != nil {
		s.logger.Warn("registration refused", "broker", r.brokerName, "addr", r.addr, "err", err)
		fail(req, err)
		return
	}
	if req.Session.Closed() {
		s.routes.ConnectionClosed(req.Session)
		return
	}
	resp := remoting.Command{Code: remoting.Success}
	if result.masterAddr != "" {
		resp.Ext.Add("masterAddr", result.masterAddr)
		resp.Ext.Add("haServerAddr", result.haServerAddr)
	}
	if s.config.Load().ReturnOrderTopicConfigToBroker {
		resp.Body = s.kv.table.Load().encodeNamespace(namespaceOrderTopicConfig)
	}
	req.Reply(&resp)
}

func (s *Server) unregisterBroker(req *reactor.Request) {
	id, err := readBrokerID(req)
	if err == nil {
		err = s.routes.Unregister(id)
	}
	if err != nil {
		fail(req, err)
		return
	}
	answer(req, remoting.Success, "", nil)
}

func (s *Server) queryDataVersion(req *reactor.Request) {
	id, err := readBrokerID(req)
	if err != nil {
		fail(req, err)
		return
	}
	var asked dataVersion
	if err := decodeJSON(req.Body, &asked); err != nil {
		fail(req, fmt.Errorf("data version: %w", err))
		return
	}
	stored, known := s.routes.QueryDataVersion(id.cluster, id.addr, asked, time.Now())
	resp := remoting.Command{Code: remoting.Success}
	resp.Ext.Add("changed", strconv.FormatBool(!known || stored != asked))
	if known {
		resp.Body = stored.appendJSON(nil)
	}
	req.Reply(&resp)
}

func (s *Server) brokerHeartbeat(req *reactor.Request) {
	s.routes.Heartbeat(req.Ext.String("clusterName"), req.Ext.String("brokerAddr"), time.Now())
	answer(req, remoting.Success, "", nil)
}

func (s *Server) wipeWritePerm(req *reactor.Request) {
	s.changePerm(req, "wipeTopicCount", s.routes.WipeWritePerm)
}

func (s *Server) addWritePerm(req *reactor.Request) {
	s.changePerm(req, "addTopicCount", s.routes.AddWritePerm)
}

func (s *Server) changePerm(req *reactor.Request, countKey string, change func(brokerName string) int) {
	values, err := required(req, "brokerName")
	if err != nil {
		fail(req, err)
		return
	}
	n := change(values[0])
	s.logger.Info("write permission changed", "broker", values[0], "request", remoting.RequestName(req.Code), "topics", n, "peer", req.Session.RemoteAddr())
	resp := remoting.Command{Code: remoting.Success}
	resp.Ext.AddInt(countKey, int64(n))
	req.Reply(&resp)
}

func (s *Server) deleteTopic(req *reactor.Request) {
	values, err := required(req, "topic")
	if err != nil {
		fail(req, err)
		return
	}
	s.routes.DeleteTopic(values[0], req.Ext.String("clusterName"))
	s.logger.Info("topic deleted", "topic", values[0], "cluster", req.Ext.String("clusterName"), "peer", req.Session.RemoteAddr())
	answer(req, remoting.Success, "", nil)
}

func (s *Server) getBrokerClusterInfo(req *reactor.Request) {
	answer(req, remoting.Success, "", s.routes.table.Load().brokers.encodeClusterInfo())
}

func (s *Server) getBrokerMemberGroup(req *reactor.Request) {
	answer(req, remoting.Success, "", s.routes.table.Load().brokers.encodeMemberGroup(req.Ext.String("clusterName"), req.Ext.String("brokerName")))
}

func (s *Server) getAllTopics(req *reactor.Request) {
	if !s.config.Load().EnableAllTopicList {
		answer(req, remoting.SystemError, "disable", nil)
		return
	}
	topics := s.routes.table.Load().topicsWhere(func(*queueData) bool { return true })
	answer(req, remoting.Success, "", encodeTopicList(topics, ""))
}

func (s *Server) getTopicsByCluster(req *reactor.Request) {
	cluster := req.Ext.String("cluster")
	table := s.routes.table.Load()
	topics := table.topicsWhere(func(q *queueData) bool {
		b := table.brokers.byName[q.brokerName]
		return b != nil && b.cluster == cluster
	})
	answer(req, remoting.Success, "", encodeTopicList(topics, ""))
}

// getSystemTopics lists cluster and broker names, which are topics too, and any broker's address to ask for the rest.
func (s *Server) getSystemTopics(req *reactor.Request) {
	brokers := s.routes.table.Load().brokers
	var names []string
	addr := ""
	clusters := brokers.clusters()
	for _, cluster := range sortedKeys(clusters) {
		names = append(names, cluster)
		names = append(names, clusters[cluster]...)
	}
	for _, name := range brokers.sortedNames() {
		if addr == "" {
			addr = brokers.byName[name].addrs[0].addr
		}
	}
	answer(req, remoting.Success, "", encodeTopicList(names, addr))
}

func (s *Server) topicsBySysFlag(want func(flag int32) bool) func(*reactor.Request) {
	return func(req *reactor.Request) {
		topics := s.routes.table.Load().topicsWhere(func(q *queueData) bool { return want(q.topicSysFlag) })
		answer(req, remoting.Success, "", encodeTopicList(topics, ""))
	}
}

func (s *Server) putKVConfig(req *reactor.Request) {
	values, err := required(req, "namespace", "key", "value")
	if err == nil {
		err = s.kv.Put(values[0], values[1], values[2])
	}
	if err != nil {
		fail(req, err)
		return
	}
	answer(req, remoting.Success, "", nil)
}

func (s *Server) getKVConfig(req *reactor.Request) {
	namespace, key := req.Ext.String("namespace"), req.Ext.String("key")
	value := s.kv.table.Load().get(namespace, key)
	if value == "" {
		answer(req, remoting.QueryNotFound, "No config item, Namespace: "+namespace+" Key: "+key, nil)
		return
	}
	resp := remoting.Command{Code: remoting.Success}
	resp.Ext.Add("value", value)
	req.Reply(&resp)
}

func (s *Server) deleteKVConfig(req *reactor.Request) {
	values, err := required(req, "namespace", "key")
	if err == nil {
		err = s.kv.Delete(values[0], values[1])
	}
	if err != nil {
		fail(req, err)
		return
	}
	answer(req, remoting.Success, "", nil)
}

func (s *Server) getKVListByNamespace(req *reactor.Request) {
	namespace := req.Ext.String("namespace")
	body := s.kv.table.Load().encodeNamespace(namespace)
	if body == nil {
		answer(req, remoting.QueryNotFound, "No config item, Namespace: "+namespace, nil)
		return
	}
	answer(req, remoting.Success, "", body)
}

func (s *Server) getConfig(req *reactor.Request) {
	answer(req, remoting.Success, "", []byte(s.config.Load().Properties()))
}

// updateConfig takes the changes of one request whole or not at all.
func (s *Server) updateConfig(req *reactor.Request) {
	next := *s.config.Load()
	for line := range strings.SplitSeq(string(req.Body), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if err := next.mayUpdate(key); err != nil {
			answer(req, remoting.NoPermission, err.Error(), nil)
			return
		}
		if known, err := next.Set(key, value); err != nil || !known {
			if err == nil {
				err = fmt.Errorf("%s: the name server has no such key", key)
			}
			fail(req, err)
			return
		}
	}
	if err := next.Validate(); err != nil {
		fail(req, err)
		return
	}
	if next.ConfigStorePath != "" {
		if err := replaceFile(next.ConfigStorePath, []byte(next.Properties())); err != nil {
			fail(req, err)
			return
		}
	}
	s.config.Store(&next)
	s.logger.Info("configuration updated", "peer", req.Session.RemoteAddr())
	answer(req, remoting.Success, "", nil)
}
