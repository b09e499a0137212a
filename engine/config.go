// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"loopmq/ha"
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
	ListenPort        int    // listenPort, 10911; 0: any free port, and no VIP port (for tests)
	HAListenPort      int    // haListenPort, listenPort+1 unless set (4.x: always)
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

	SlaveReadEnable                 bool  // slaveReadEnable, false
	LongPollingEnable               bool  // longPollingEnable, true
	ShortPollingTimeMills           int64 // shortPollingTimeMills, 1,000
	NotifyConsumerIdsChangedEnable  bool  // notifyConsumerIdsChangedEnable, true
	LitePullMessageEnable           bool  // litePullMessageEnable, true
	StartAcceptSendRequestTimeStamp int64 // startAcceptSendRequestTimeStamp, 0
	SlowSendMills                   int64 // ours: slowSendMills, 500; 0 = off

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

	AdminAddr string // ours: adminAddr, 127.0.0.1:10990, "" = off: pprof, /livez, /readyz, /metrics

	HAMasterAddress           string // haMasterAddress, ""; of 6 characters or more it is used, else the name server's word
	MasterAddr                string // ours: masterAddr, "": the master's client port, for slaves that no name server tells
	HABindAddress             string // ours: haBindAddress, "": bindAddress
	HAAllowList               string // ours: haAllowList, "": everybody; addresses and prefixes separated by commas
	HASendHeartbeatInterval   int64  // haSendHeartbeatInterval, 5,000
	HAHousekeepingInterval    int64  // haHousekeepingInterval, 20,000
	HATransferBatchSize       int    // haTransferBatchSize, 32 KiB
	HASlaveFallbehindMax      int64  // haSlaveFallbehindMax (5.x: haMaxGapNotInSync), 256 MiB
	HAFlowControlEnable       bool   // haFlowControlEnable, false
	MaxHATransferByteInSecond int64  // maxHaTransferByteInSecond, 100 MiB, for each slave
	HARetainedMax             int64  // ours: haRetainedMax, 32 GiB
	HATailTimeout             int64  // ours: haTailTimeout, ms, 60000
	HAReportSynced            bool   // ours: haReportSynced, false
	InSyncReplicas            int    // inSyncReplicas, 1

	// ConfigBlackList names keys that UPDATE_BROKER_CONFIG must not change (configBlackList).
	ConfigBlackList string
	// ConfigFile is the file that UPDATE_BROKER_CONFIG writes changes to; none when empty. Not a key.
	ConfigFile string
}

// DefaultAdminAddr is where pprof, health and metrics are served unless adminAddr says otherwise. A second broker on
// the same host finds it taken and goes without; an address that was asked for must be free.
const DefaultAdminAddr = "127.0.0.1:10990"

// DefaultConfig returns 4.9.8's defaults, with the addresses of this host and a store under the home directory.
func DefaultConfig() Config {
	host := localAddress()
	processors := runtime.GOMAXPROCS(0)
	c := Config{
		Store: storage.DefaultConfig(),

		BrokerClusterName: "DefaultCluster",
		BrokerName:        hostName(),
		BrokerIP1:         host,
		BrokerIP2:         host,
		BindAddress:       "0.0.0.0",
		ListenPort:        10911,

		BrokerPermission:            PermRead | PermWrite,
		DefaultTopicQueueNums:       8,
		AutoCreateTopicEnable:       true,
		ClusterTopicEnable:          true,
		BrokerTopicEnable:           true,
		AutoCreateSubscriptionGroup: true,
		MsgTraceTopicName:           "RMQ_SYS_TRACE_TOPIC",
		RegionID:                    "DefaultRegion",
		TraceOn:                     true,

		LongPollingEnable:              true,
		ShortPollingTimeMills:          1_000,
		NotifyConsumerIdsChangedEnable: true,
		LitePullMessageEnable:          true,
		SlowSendMills:                  500,

		RegisterNameServerPeriod:    30_000,
		RegisterBrokerTimeoutMills:  6_000,
		ForceRegister:               true,
		FlushConsumerOffsetInterval: 5_000,
		FlushDelayOffsetInterval:    10_000,

		PullMessageThreadPoolNums:       16 + 2*processors,
		QueryMessageThreadPoolNums:      8 + processors,
		PullThreadPoolQueueCapacity:     100_000,
		QueryThreadPoolQueueCapacity:    20_000,
		AdminQueueCapacity:              10_000,
		ServerChannelMaxIdleTimeSeconds: 120,
		ServerLoops:                     max(1, processors/2),

		AdminAddr: DefaultAdminAddr,

		HASendHeartbeatInterval:   5_000,
		HAHousekeepingInterval:    20_000,
		HATransferBatchSize:       32 << 10,
		HASlaveFallbehindMax:      256 << 20,
		MaxHATransferByteInSecond: 100 << 20,
		HARetainedMax:             32 << 30,
		HATailTimeout:             60_000,
		InSyncReplicas:            1,

		ConfigBlackList: "configBlackList;brokerConfigPath",
	}
	if home, err := os.UserHomeDir(); err == nil {
		c.Store.StorePathRootDir = home + "/store"
	}
	return c
}

// EnsureDefaults completes a Config made by hand: numbers and names left empty where that means nothing, ports and
// paths that follow from others. It also brings brokerId and role together: a master's id is 0, as in Java, where the
// role wins. Flags that default to true, and AdminAddr, come from DefaultConfig only.
func (c *Config) EnsureDefaults() {
	d := DefaultConfig()
	fill(&c.BrokerClusterName, d.BrokerClusterName)
	fill(&c.BrokerName, d.BrokerName)
	fill(&c.BrokerIP1, d.BrokerIP1)
	fill(&c.BrokerIP2, c.BrokerIP1)
	fill(&c.BindAddress, d.BindAddress)
	if c.ListenPort != 0 {
		fill(&c.HAListenPort, c.ListenPort+1)
	}
	fill(&c.DefaultTopicQueueNums, d.DefaultTopicQueueNums)
	fill(&c.MsgTraceTopicName, d.MsgTraceTopicName)
	fill(&c.RegionID, d.RegionID)
	fill(&c.ShortPollingTimeMills, d.ShortPollingTimeMills)
	fill(&c.RegisterNameServerPeriod, d.RegisterNameServerPeriod)
	fill(&c.RegisterBrokerTimeoutMills, d.RegisterBrokerTimeoutMills)
	fill(&c.FlushConsumerOffsetInterval, d.FlushConsumerOffsetInterval)
	fill(&c.FlushDelayOffsetInterval, d.FlushDelayOffsetInterval)
	fill(&c.PullMessageThreadPoolNums, d.PullMessageThreadPoolNums)
	fill(&c.QueryMessageThreadPoolNums, d.QueryMessageThreadPoolNums)
	fill(&c.PullThreadPoolQueueCapacity, d.PullThreadPoolQueueCapacity)
	fill(&c.QueryThreadPoolQueueCapacity, d.QueryThreadPoolQueueCapacity)
	fill(&c.AdminQueueCapacity, d.AdminQueueCapacity)
	fill(&c.ServerChannelMaxIdleTimeSeconds, d.ServerChannelMaxIdleTimeSeconds)
	fill(&c.ServerLoops, d.ServerLoops)
	fill(&c.HASendHeartbeatInterval, d.HASendHeartbeatInterval)
	fill(&c.HAHousekeepingInterval, d.HAHousekeepingInterval)
	fill(&c.HATransferBatchSize, d.HATransferBatchSize)
	fill(&c.HASlaveFallbehindMax, d.HASlaveFallbehindMax)
	fill(&c.MaxHATransferByteInSecond, d.MaxHATransferByteInSecond)
	fill(&c.InSyncReplicas, d.InSyncReplicas)
	fill(&c.Store.StorePathRootDir, d.Store.StorePathRootDir)

	if c.Store.Role != storage.Slave {
		c.BrokerID = 0
	}
	c.Store.BrokerID = c.BrokerID
	c.Store.EnsureDefaults()
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports all clashes at once, the store's included, each a *storage.ConfigError.
func (c *Config) Validate() error {
	var errs []error
	reject := func(key string, value any, want string) {
		errs = append(errs, &storage.ConfigError{Key: key, Value: value, Want: want})
	}
	between := func(key string, value, lowest, highest int64) {
		if value < lowest || value > highest {
			reject(key, value, fmt.Sprintf("%d to %d", lowest, highest))
		}
	}
	name := func(key, value, without string) {
		if value == "" || strings.ContainsAny(value, without) || len(value) > nameLengthMax {
			reject(key, strconv.Quote(value), fmt.Sprintf("1 to %d bytes without any of %q", nameLengthMax, without))
		}
	}
	address := func(key, value string) {
		if _, err := netip.ParseAddr(value); err != nil && !validHostName(value) {
			reject(key, strconv.Quote(value), "an IP address or host name without a port")
		}
	}

	name("brokerClusterName", c.BrokerClusterName, " \t\r\n@")
	name("brokerName", c.BrokerName, " \t\r\n@:;")
	name("msgTraceTopicName", c.MsgTraceTopicName, " \t\r\n@")
	name("regionId", c.RegionID, "\x00\r\n")
	address("brokerIP1", c.BrokerIP1)
	address("brokerIP2", c.BrokerIP2)
	address("bindAddress", c.BindAddress)
	if c.ListenPort != 0 {
		between("listenPort", int64(c.ListenPort), listenPortMin, 65_534)
	}
	between("haListenPort", int64(c.HAListenPort), 0, 65_535)
	if c.ListenPort != 0 && (c.HAListenPort == c.ListenPort || c.HAListenPort == c.ListenPort-2) {
		reject("haListenPort", c.HAListenPort, "a port other than listenPort and listenPort-2, which clients use")
	}
	for addr := range strings.SplitSeq(c.NamesrvAddr, ";") {
		if addr = strings.TrimSpace(addr); addr != "" && !validHostPort(addr) {
			reject("namesrvAddr", strconv.Quote(addr), "host:port;host:port")
		}
	}
	if c.AdminAddr != "" && !validHostPort(c.AdminAddr) {
		reject("adminAddr", strconv.Quote(c.AdminAddr), "host:port, or nothing to switch it off")
	}

	if len(c.HAMasterAddress) >= haMasterAddressMin && !validHostPort(c.HAMasterAddress) {
		reject("haMasterAddress", strconv.Quote(c.HAMasterAddress), "host:port of the master's port for slaves, or nothing to ask the name server")
	}
	if c.MasterAddr != "" && !validHostPort(c.MasterAddr) {
		reject("masterAddr", strconv.Quote(c.MasterAddr), "host:port of the master's port for clients, or nothing to ask the name server")
	}
	if c.HABindAddress != "" {
		address("haBindAddress", c.HABindAddress)
	}
	if _, err := ha.ParseAllowList(c.HAAllowList); err != nil {
		reject("haAllowList", strconv.Quote(c.HAAllowList), "addresses and prefixes such as 10.0.0.0/8 separated by commas: "+err.Error())
	}
	between("haSendHeartbeatInterval", c.HASendHeartbeatInterval, 1, dayMillis)
	between("haHousekeepingInterval", c.HAHousekeepingInterval, 1, dayMillis)
	between("haTransferBatchSize", int64(c.HATransferBatchSize), 1, ha.TransferBatchSizeMax)
	between("haSlaveFallbehindMax", c.HASlaveFallbehindMax, 1, 1<<62)
	between("maxHaTransferByteInSecond", c.MaxHATransferByteInSecond, 1<<10, 1<<62)
	between("haRetainedMax", c.HARetainedMax, 0, 1<<62)
	between("haTailTimeout", c.HATailTimeout, 0, dayMillis)

	if c.BrokerPermission&^(PermRead|PermWrite|PermInherit) != 0 {
		reject("brokerPermission", c.BrokerPermission, "a sum of 4 (read), 2 (write) and 1 (inherit)")
	}
	between("defaultTopicQueueNums", int64(c.DefaultTopicQueueNums), 1, 65_536)
	between("shortPollingTimeMills", c.ShortPollingTimeMills, 1, dayMillis)
	between("registerNameServerPeriod", c.RegisterNameServerPeriod, 1, dayMillis)
	between("registerBrokerTimeoutMills", int64(c.RegisterBrokerTimeoutMills), 1, dayMillis)
	between("flushConsumerOffsetInterval", c.FlushConsumerOffsetInterval, 1, dayMillis)
	between("flushDelayOffsetInterval", c.FlushDelayOffsetInterval, 1, dayMillis)
	between("startAcceptSendRequestTimeStamp", c.StartAcceptSendRequestTimeStamp, 0, 1<<62)
	between("slowSendMills", c.SlowSendMills, 0, dayMillis)
	between("pullMessageThreadPoolNums", int64(c.PullMessageThreadPoolNums), 1, 10_000)
	between("queryMessageThreadPoolNums", int64(c.QueryMessageThreadPoolNums), 1, 10_000)
	between("pullThreadPoolQueueCapacity", int64(c.PullThreadPoolQueueCapacity), 1, 10_000_000)
	between("queryThreadPoolQueueCapacity", int64(c.QueryThreadPoolQueueCapacity), 1, 10_000_000)
	between("adminQueueCapacity", int64(c.AdminQueueCapacity), 1, 10_000_000)
	between("serverChannelMaxIdleTimeSeconds", int64(c.ServerChannelMaxIdleTimeSeconds), 1, dayMillis/1_000)
	between("serverLoops", int64(c.ServerLoops), 1, 1_024)
	between("inSyncReplicas", int64(c.InSyncReplicas), 1, 1_024)
	if c.Store.BrokerID != c.BrokerID {
		reject("brokerId", c.BrokerID, fmt.Sprintf("the store's brokerId, %d", c.Store.BrokerID))
	}
	if err := c.Store.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const (
	nameLengthMax = 127
	// haMasterAddressMin is from how many characters on haMasterAddress counts as set. Source: BrokerController#initialize.
	haMasterAddressMin = 6
	listenPortMin      = 3 // listenPort-2 is served too
	dayMillis          = 24 * 3_600_000
)

func validHostName(text string) bool {
	return text != "" && len(text) <= 253 && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

func validHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	if _, err := netip.ParseAddr(host); err != nil && !validHostName(host) {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65_535
}

// localAddress is what Java's RemotingUtil#getLocalAddress looks for: an address of this host that others can reach,
// IPv4 before IPv6.
func localAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	v6 := ""
	for _, addr := range addrs {
		prefix, err := netip.ParsePrefix(addr.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		if ip := prefix.Addr().Unmap(); ip.Is4() {
			return ip.String()
		} else if v6 == "" {
			v6 = ip.String()
		}
	}
	if v6 != "" {
		return v6
	}
	return "127.0.0.1"
}

// hostName is Java's default brokerName; its fallback too.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "DEFAULT_BROKER"
	}
	return name
}
