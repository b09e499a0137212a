// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"loopmq/storage"
)

// Config is the broker's own part of the settings (BrokerConfig, NettyServerConfig), with Java's key behind each field.
// A running broker reads it through an atomic pointer; a Config in use is never written. Times in milliseconds.
type Config struct {
	Store storage.Config

	BrokerClusterName string // brokerClusterName, DefaultCluster
	BrokerName        string // brokerName, the host's name
	BrokerID          int64  // brokerId, 0
	BrokerIP1         string // brokerIP1, first non-loopback address of the host
	BrokerIP2         string // brokerIP2, likewise
	BindAddress       string // bindAddress, 0.0.0.0
	ListenPort        int    // listenPort, 10911
	HAListenPort      int    // haListenPort, listenPort+1 unless set
	NamesrvAddr       string // namesrvAddr, host:port;host:port

	BrokerPermission            int32  // brokerPermission, 6
	DefaultTopicQueueNums       int32  // defaultTopicQueueNums, 8
	AutoCreateTopicEnable       bool   // autoCreateTopicEnable, true
	ClusterTopicEnable          bool   // clusterTopicEnable, true
	BrokerTopicEnable           bool   // brokerTopicEnable, true
	AutoCreateSubscriptionGroup bool   // autoCreateSubscriptionGroup, true
	TraceTopicEnable            bool   // traceTopicEnable, false
	MsgTraceTopicName           string // msgTraceTopicName, RMQ_SYS_TRACE_TOPIC
	RegionID                    string // regionId, DefaultRegion
	TraceOn                     bool   // traceOn, true

	RejectTransactionMessage        bool  // rejectTransactionMessage, false (half messages are refused anyway until transactions exist)
	SlaveReadEnable                 bool  // slaveReadEnable, false
	LongPollingEnable               bool  // longPollingEnable, true
	ShortPollingTimeMills           int64 // shortPollingTimeMills, 1,000
	NotifyConsumerIdsChangedEnable  bool  // notifyConsumerIdsChangedEnable, true
	EnablePropertyFilter            bool  // enablePropertyFilter, false
	LitePullMessageEnable           bool  // litePullMessageEnable, true
	StartAcceptSendRequestTimeStamp int64 // startAcceptSendRequestTimeStamp, 0
	MaxDelayLevelEnable             bool

	RegisterNameServerPeriod    int64 // registerNameServerPeriod, 30,000, clamped to 10,000 to 60,000
	RegisterBrokerTimeoutMills  int   // registerBrokerTimeoutMills, 6,000
	ForceRegister               bool  // forceRegister, true
	FlushConsumerOffsetInterval int64 // flushConsumerOffsetInterval, 5,000
	FlushDelayOffsetInterval    int64 // flushDelayOffsetInterval, 10,000

	PullMessageThreadPoolNums       int // pullMessageThreadPoolNums
	QueryMessageThreadPoolNums      int // queryMessageThreadPoolNums
	PullThreadPoolQueueCapacity     int // pullThreadPoolQueueCapacity, 100,000
	QueryThreadPoolQueueCapacity    int // queryThreadPoolQueueCapacity, 20,000
	AdminQueueCapacity              int // ours: adminQueueCapacity, 10,000
	ServerChannelMaxIdleTimeSeconds int // serverChannelMaxIdleTimeSeconds, 120
	ServerLoops                     int // ours: serverLoops; serverSelectorThreads is named as having no effect

	AdminAddr      string // ours: adminAddr, 127.0.0.1:10990, "" = off: pprof, /livez, /readyz, /metrics
	InSyncReplicas int    // inSyncReplicas, 1
}
