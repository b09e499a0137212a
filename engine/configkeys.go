// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"loopmq/storage"
	"loopmq/storage/message"
)

// configKey is one key that acts.
type configKey struct {
	name    string
	aliases []string // spellings of other versions
	start   bool     // read once, at start
	unit    string
	doc     string
	field   func(*Config) any // pointer to the field; its type is the kind
}

// configKeys is every key that acts, by name.
var configKeys = []configKey{
	{name: "accessMessageInMemoryMaxRatio", unit: "% of memory", doc: "share of the log's end that counts as in memory; pulls beyond it are cold",
		field: func(c *Config) any { return &c.Store.AccessMessageInMemoryMaxRatio }},
	{name: "adminAddr", start: true, doc: "admin port: pprof, /livez, /readyz, /metrics; empty switches it off",
		field: func(c *Config) any { return &c.AdminAddr }},
	{name: "adminQueueCapacity", start: true, unit: "requests", doc: "administrative requests that may wait",
		field: func(c *Config) any { return &c.AdminQueueCapacity }},
	{name: "autoCreateSubscriptionGroup", doc: "a group is made when a client first names it",
		field: func(c *Config) any { return &c.AutoCreateSubscriptionGroup }},
	{name: "autoCreateTopicEnable", start: true, doc: "a topic is made when a producer first sends to it (TBW102 is a topic)",
		field: func(c *Config) any { return &c.AutoCreateTopicEnable }},
	{name: "bindAddress", start: true, doc: "address to listen on",
		field: func(c *Config) any { return &c.BindAddress }},
	{name: "brokerClusterName", start: true, doc: "name of the cluster",
		field: func(c *Config) any { return &c.BrokerClusterName }},
	{name: "brokerId", start: true, doc: "0 on a master, 1 or more on a slave",
		field: func(c *Config) any { return &c.BrokerID }},
	{name: "brokerIP1", start: true, doc: "address that clients are told",
		field: func(c *Config) any { return &c.BrokerIP1 }},
	{name: "brokerIP2", start: true, doc: "address that slaves are told",
		field: func(c *Config) any { return &c.BrokerIP2 }},
	{name: "brokerName", start: true, doc: "name that a master and its slaves share",
		field: func(c *Config) any { return &c.BrokerName }},
	{name: "brokerPermission", unit: "4 read + 2 write", doc: "what clients may do here",
		field: func(c *Config) any { return &c.BrokerPermission }},
	{name: "brokerRole", start: true, doc: "ASYNC_MASTER, SYNC_MASTER or SLAVE",
		field: func(c *Config) any { return &c.Store.Role }},
	{name: "brokerTopicEnable", start: true, doc: "a topic of the broker's name exists",
		field: func(c *Config) any { return &c.BrokerTopicEnable }},
	{name: "checkCRCOnRecover", start: true, doc: "recovery checks body checksums",
		field: func(c *Config) any { return &c.Store.CheckCRCOnRecover }},
	{name: "cleanFileForciblyEnable", doc: "above diskSpaceCleanForciblyRatio files go before their time",
		field: func(c *Config) any { return &c.Store.CleanFileForciblyEnable }},
	{name: "cleanResourceInterval", unit: "ms", doc: "how often expired files are looked for",
		field: func(c *Config) any { return &c.Store.CleanResourceInterval }},
	{name: "clusterTopicEnable", start: true, doc: "a topic of the cluster's name exists",
		field: func(c *Config) any { return &c.ClusterTopicEnable }},
	{name: "commitCommitLogLeastPages", unit: "4 KiB pages", doc: "transient pool: pages that make a commit worth while",
		field: func(c *Config) any { return &c.Store.CommitCommitLogLeastPages }},
	{name: "commitCommitLogThoroughInterval", unit: "ms", doc: "transient pool: how often everything is committed",
		field: func(c *Config) any { return &c.Store.CommitCommitLogThoroughInterval }},
	{name: "commitIntervalCommitLog", unit: "ms", doc: "transient pool: time between commits",
		field: func(c *Config) any { return &c.Store.CommitIntervalCommitLog }},
	{name: "configBlackList", start: true, doc: "keys, separated by ';', that updateBrokerConfig must not change",
		field: func(c *Config) any { return &c.ConfigBlackList }},
	{name: "defaultTopicQueueNums", start: true, unit: "queues", doc: "most queues of a topic that is made on first use",
		field: func(c *Config) any { return &c.DefaultTopicQueueNums }},
	{name: "deleteCommitLogFilesInterval", unit: "ms", doc: "pause between two deleted log files",
		field: func(c *Config) any { return &c.Store.DeleteCommitLogFilesInterval }},
	{name: "deleteConsumeQueueFilesInterval", unit: "ms", doc: "pause between two deleted queue files",
		field: func(c *Config) any { return &c.Store.DeleteConsumeQueueFilesInterval }},
	{name: "deleteWhen", unit: "hours, ';' between", doc: "hours of the day at which expired files go",
		field: func(c *Config) any { return &c.Store.DeleteWhen }},
	{name: "destroyMapedFileIntervalForcibly", aliases: []string{"destroyMappedFileIntervalForcibly"}, unit: "ms", doc: "a deleted file still read after this is reported",
		field: func(c *Config) any { return &c.Store.DestroyMapedFileIntervalForcibly }},
	{name: "diskMaxUsedSpaceRatio", unit: "%", doc: "disk use above which expired files go at any hour",
		field: func(c *Config) any { return &c.Store.DiskMaxUsedSpaceRatio }},
	{name: "diskSpaceCleanForciblyRatio", unit: "%", doc: "disk use above which files go before their time",
		field: func(c *Config) any { return &c.Store.DiskSpaceCleanForciblyRatio }},
	{name: "diskSpaceWarningLevelRatio", unit: "%", doc: "disk use above which sends are refused",
		field: func(c *Config) any { return &c.Store.DiskSpaceWarningLevelRatio }},
	{name: "fastFailIfNoBufferInStorePool", doc: "transient pool: fail a send rather than write without a buffer",
		field: func(c *Config) any { return &c.Store.FastFailIfNoBufferInStorePool }},
	{name: "fileReservedTime", unit: "hours", doc: "age at which a file expires",
		field: func(c *Config) any { return &c.Store.FileReservedTime }},
	{name: "flushCommitLogLeastPages", unit: "4 KiB pages", doc: "ASYNC_FLUSH: pages that make a flush worth while",
		field: func(c *Config) any { return &c.Store.FlushCommitLogLeastPages }},
	{name: "flushCommitLogThoroughInterval", unit: "ms", doc: "ASYNC_FLUSH: how often everything is flushed",
		field: func(c *Config) any { return &c.Store.FlushCommitLogThoroughInterval }},
	{name: "flushCommitLogTimed", doc: "ASYNC_FLUSH: flush by the clock only, not when a message comes",
		field: func(c *Config) any { return &c.Store.FlushCommitLogTimed }},
	{name: "flushConsumeQueueLeastPages", unit: "4 KiB pages", doc: "pages that make a queue's flush worth while",
		field: func(c *Config) any { return &c.Store.FlushConsumeQueueLeastPages }},
	{name: "flushConsumeQueueThoroughInterval", unit: "ms", doc: "how often queues are flushed whole",
		field: func(c *Config) any { return &c.Store.FlushConsumeQueueThoroughInterval }},
	{name: "flushConsumerOffsetInterval", unit: "ms", doc: "how often consumer offsets are written",
		field: func(c *Config) any { return &c.FlushConsumerOffsetInterval }},
	{name: "flushDelayOffsetInterval", unit: "ms", doc: "how often the progress of delayed messages is written",
		field: func(c *Config) any { return &c.FlushDelayOffsetInterval }},
	{name: "flushDiskType", start: true, doc: "SYNC_FLUSH: a send is answered when the disk has it; ASYNC_FLUSH: when it is written",
		field: func(c *Config) any { return &c.Store.FlushDiskType }},
	{name: "flushIntervalCommitLog", unit: "ms", doc: "ASYNC_FLUSH: time between flushes",
		field: func(c *Config) any { return &c.Store.FlushIntervalCommitLog }},
	{name: "flushIntervalConsumeQueue", unit: "ms", doc: "time between flushes of queues",
		field: func(c *Config) any { return &c.Store.FlushIntervalConsumeQueue }},
	{name: "forceRegister", doc: "register whole every period, changed or not",
		field: func(c *Config) any { return &c.ForceRegister }},
	{name: "haAllowList", doc: "addresses and prefixes, separated by commas, that may connect to the port for slaves; empty: all",
		field: func(c *Config) any { return &c.HAAllowList }},
	{name: "haBindAddress", start: true, doc: "address to listen on for slaves; bindAddress unless set",
		field: func(c *Config) any { return &c.HABindAddress }},
	{name: "haFlowControlEnable", doc: "limit what a slave is sent to maxHaTransferByteInSecond",
		field: func(c *Config) any { return &c.HAFlowControlEnable }},
	{name: "haHousekeepingInterval", unit: "ms", doc: "a silent replication connection is closed",
		field: func(c *Config) any { return &c.HAHousekeepingInterval }},
	{name: "haListenPort", start: true, doc: "port for slaves, registered with name servers; listenPort+1 unless set",
		field: func(c *Config) any { return &c.HAListenPort }},
	{name: "haMasterAddress", doc: "SLAVE: the master's port for slaves, host:port; from the name server unless set",
		field: func(c *Config) any { return &c.HAMasterAddress }},
	{name: "haReportSynced", start: true, doc: "SLAVE: report what is synced, not what is appended; a SYNC_MASTER then answers when the slave's disk has it",
		field: func(c *Config) any { return &c.HAReportSynced }},
	{name: "haRetainedMax", unit: "bytes", doc: "log kept beyond its time for connected slaves that still need it; 0 keeps none",
		field: func(c *Config) any { return &c.HARetainedMax }},
	{name: "haSendHeartbeatInterval", unit: "ms", doc: "both sides of replication speak after this silence",
		field: func(c *Config) any { return &c.HASendHeartbeatInterval }},
	{name: "haSlaveFallbehindMax", aliases: []string{"haMaxGapNotInSync"}, unit: "bytes", doc: "SYNC_MASTER: a slave farther behind does not count",
		field: func(c *Config) any { return &c.HASlaveFallbehindMax }},
	{name: "haTailTimeout", unit: "ms", doc: "a master that may have lost the end of its log to a power cut takes sends when the slaves that acknowledged it have brought it back, at the latest after this time; 0: at once",
		field: func(c *Config) any { return &c.HATailTimeout }},
	{name: "haTransferBatchSize", unit: "bytes", doc: "largest piece of log sent to a slave at once",
		field: func(c *Config) any { return &c.HATransferBatchSize }},
	{name: "inSyncReplicas", unit: "copies", doc: "SYNC_MASTER: copies that must have a message, the master counted; 1 means one slave, as in 4.9",
		field: func(c *Config) any { return &c.InSyncReplicas }},
	{name: "listenPort", start: true, doc: "port for clients; listenPort-2 is served too",
		field: func(c *Config) any { return &c.ListenPort }},
	{name: "litePullMessageEnable", doc: "serve lite pull (5.x)",
		field: func(c *Config) any { return &c.LitePullMessageEnable }},
	{name: "longPollingEnable", doc: "a pull waits for new messages as long as the client asks",
		field: func(c *Config) any { return &c.LongPollingEnable }},
	{name: "mappedFileSizeCommitLog", aliases: []string{"mapedFileSizeCommitLog"}, start: true, unit: "bytes", doc: "size of a log file",
		field: func(c *Config) any { return &c.Store.MappedFileSizeCommitLog }},
	{name: "mappedFileSizeConsumeQueue", aliases: []string{"mapedFileSizeConsumeQueue"}, start: true, unit: "bytes", doc: "size of a queue file, 20 bytes an entry",
		field: func(c *Config) any { return &c.Store.MappedFileSizeConsumeQueue }},
	{name: "masterAddr", doc: "SLAVE: the master's port for clients, host:port; from the name server unless set",
		field: func(c *Config) any { return &c.MasterAddr }},
	{name: "maxHashSlotNum", start: true, doc: "hash slots of an index file",
		field: func(c *Config) any { return &c.Store.MaxHashSlotNum }},
	{name: "maxHaTransferByteInSecond", unit: "bytes", doc: "with haFlowControlEnable: most a slave is sent in a second",
		field: func(c *Config) any { return &c.MaxHATransferByteInSecond }},
	{name: "maxIndexNum", start: true, doc: "entries of an index file",
		field: func(c *Config) any { return &c.Store.MaxIndexNum }},
	{name: "maxMessageSize", unit: "bytes", doc: "largest body",
		field: func(c *Config) any { return &c.Store.MaxMessageSize }},
	{name: "maxMsgsNumBatch", unit: "messages", doc: "most results of a query by key",
		field: func(c *Config) any { return &c.Store.MaxMsgsNumBatch }},
	{name: "maxTransferBytesOnMessageInDisk", unit: "bytes", doc: "most bytes of one cold pull",
		field: func(c *Config) any { return &c.Store.MaxTransferBytesOnDisk }},
	{name: "maxTransferBytesOnMessageInMemory", unit: "bytes", doc: "most bytes of one pull",
		field: func(c *Config) any { return &c.Store.MaxTransferBytesInMemory }},
	{name: "maxTransferCountOnMessageInDisk", unit: "messages", doc: "most messages of one cold pull",
		field: func(c *Config) any { return &c.Store.MaxTransferCountOnDisk }},
	{name: "maxTransferCountOnMessageInMemory", unit: "messages", doc: "most messages of one pull",
		field: func(c *Config) any { return &c.Store.MaxTransferCountInMemory }},
	{name: "maxWaitingPuts", unit: "messages", doc: "sends that may wait for a flush; beyond it sends answer SYSTEM_BUSY",
		field: func(c *Config) any { return &c.Store.MaxWaitingPuts }},
	{name: "messageDelayLevel", start: true, doc: "times of the delay levels, from level 1",
		field: func(c *Config) any { return &c.Store.DelayLevels }},
	{name: "messageIndexEnable", doc: "index messages by key",
		field: func(c *Config) any { return &c.Store.MessageIndexEnable }},
	{name: "messageIndexSafe", start: true, doc: "recovery trusts the index's checkpoint too",
		field: func(c *Config) any { return &c.Store.MessageIndexSafe }},
	{name: "msgTraceTopicName", start: true, doc: "topic of message traces",
		field: func(c *Config) any { return &c.MsgTraceTopicName }},
	{name: "namesrvAddr", doc: "name servers, host:port;host:port",
		field: func(c *Config) any { return &c.NamesrvAddr }},
	{name: "notifyConsumerIdsChangedEnable", doc: "tell consumers at once when their group changes",
		field: func(c *Config) any { return &c.NotifyConsumerIdsChangedEnable }},
	{name: "offsetCheckInSlave", doc: "a slave answers for offsets beyond its own end",
		field: func(c *Config) any { return &c.Store.OffsetCheckInSlave }},
	{name: "osPageCacheBusyTimeOutMills", unit: "ms", doc: "an append that takes longer makes the broker busy",
		field: func(c *Config) any { return &c.Store.OSPageCacheBusyTimeOutMills }},
	{name: "populateWindow", start: true, unit: "bytes", doc: "pages brought in ahead of the write position",
		field: func(c *Config) any { return &c.Store.PopulateWindow }},
	{name: "pullMessageThreadPoolNums", start: true, unit: "workers", doc: "pulls that read at the same time",
		field: func(c *Config) any { return &c.PullMessageThreadPoolNums }},
	{name: "pullThreadPoolQueueCapacity", start: true, unit: "requests", doc: "pulls that may wait for a worker",
		field: func(c *Config) any { return &c.PullThreadPoolQueueCapacity }},
	{name: "queryMessageThreadPoolNums", start: true, unit: "workers", doc: "queries that read at the same time",
		field: func(c *Config) any { return &c.QueryMessageThreadPoolNums }},
	{name: "queryThreadPoolQueueCapacity", start: true, unit: "requests", doc: "queries that may wait for a worker",
		field: func(c *Config) any { return &c.QueryThreadPoolQueueCapacity }},
	{name: "redeleteHangedFileInterval", unit: "ms", doc: "how often the removal of a file still read is tried again",
		field: func(c *Config) any { return &c.Store.RedeleteHangedFileInterval }},
	{name: "regionId", doc: "MSG_REGION of answers",
		field: func(c *Config) any { return &c.RegionID }},
	{name: "registerBrokerTimeoutMills", unit: "ms", doc: "how long a name server may take",
		field: func(c *Config) any { return &c.RegisterBrokerTimeoutMills }},
	{name: "registerNameServerPeriod", unit: "ms", doc: "time between registrations, 10,000 to 60,000",
		field: func(c *Config) any { return &c.RegisterNameServerPeriod }},
	{name: "sendThreadPoolQueueCapacity", unit: "messages", doc: "sends that may wait to be appended; beyond it sends answer SYSTEM_BUSY",
		field: func(c *Config) any { return &c.Store.SendThreadPoolQueueCapacity }},
	{name: "serverChannelMaxIdleTimeSeconds", start: true, unit: "s", doc: "a silent connection is closed",
		field: func(c *Config) any { return &c.ServerChannelMaxIdleTimeSeconds }},
	{name: "serverLoops", start: true, unit: "event loops", doc: "loops that serve client connections; half the processors unless set",
		field: func(c *Config) any { return &c.ServerLoops }},
	{name: "shortPollingTimeMills", unit: "ms", doc: "how long a pull waits without long polling",
		field: func(c *Config) any { return &c.ShortPollingTimeMills }},
	{name: "slaveReadEnable", doc: "suggest the slave to consumers that read far back",
		field: func(c *Config) any { return &c.SlaveReadEnable }},
	{name: "slaveTimeout", unit: "ms", doc: "SYNC_MASTER: how long a send waits for a slave",
		field: func(c *Config) any { return &c.Store.SlaveTimeout }},
	{name: "slowSendMills", unit: "ms", doc: "a send that takes longer is counted as slow, and a line in the log, one a second at most, says in which stage; 0: never",
		field: func(c *Config) any { return &c.SlowSendMills }},
	{name: "startAcceptSendRequestTimeStamp", unit: "ms since 1970", doc: "sends before it are refused",
		field: func(c *Config) any { return &c.StartAcceptSendRequestTimeStamp }},
	{name: "storePathCommitLog", start: true, doc: "directory of the log; <storePathRootDir>/commitlog unless set",
		field: func(c *Config) any { return &c.Store.StorePathCommitLog }},
	{name: "storePathRootDir", start: true, doc: "directory of everything stored",
		field: func(c *Config) any { return &c.Store.StorePathRootDir }},
	{name: "syncFlushTimeout", unit: "ms", doc: "SYNC_FLUSH: how long a send waits for the disk",
		field: func(c *Config) any { return &c.Store.SyncFlushTimeout }},
	{name: "traceOn", doc: "TRACE_ON of answers",
		field: func(c *Config) any { return &c.TraceOn }},
	{name: "traceTopicEnable", start: true, doc: "the trace topic exists",
		field: func(c *Config) any { return &c.TraceTopicEnable }},
	{name: "transientStorePoolEnable", start: true, doc: "write to buffers first, to the file by commits (ASYNC_FLUSH on a master only)",
		field: func(c *Config) any { return &c.Store.TransientStorePoolEnable }},
	{name: "transientStorePoolSize", start: true, unit: "buffers", doc: "buffers of one log file's size",
		field: func(c *Config) any { return &c.Store.TransientStorePoolSize }},
	{name: "waitTimeMillsInSendQueue", unit: "ms", doc: "a send that waited longer to be appended answers SYSTEM_BUSY",
		field: func(c *Config) any { return &c.Store.WaitTimeMillsInSendQueue }},
}

// keysByName finds a row by any of its spellings.
var keysByName = func() map[string]*configKey {
	byName := make(map[string]*configKey, len(configKeys))
	for i := range configKeys {
		key := &configKeys[i]
		for _, name := range append([]string{key.name}, key.aliases...) {
			if byName[name] != nil {
				panic("BUG: configuration key " + name + " is in the table twice")
			}
			byName[name] = key
		}
	}
	return byName
}()

var (
	roleWords  = []string{storage.AsyncMaster: "ASYNC_MASTER", storage.SyncMaster: "SYNC_MASTER", storage.Slave: "SLAVE"}
	flushWords = []string{storage.AsyncFlush: "ASYNC_FLUSH", storage.SyncFlush: "SYNC_FLUSH"}
)

// set parses value into the key's field. The error says what is allowed; whether the value fits its neighbours is
// Config.Validate's matter. Numbers and words may stand between blanks, texts are taken as they are.
func (k *configKey) set(c *Config, value string) error {
	trimmed := strings.TrimSpace(value)
	wrong := func(want string) error {
		return &storage.ConfigError{Key: k.name, Value: strconv.Quote(value), Want: want}
	}
	switch field := k.field(c).(type) {
	case *string:
		*field = value
	case *bool:
		switch {
		case strings.EqualFold(trimmed, "true"):
			*field = true
		case strings.EqualFold(trimmed, "false"):
			*field = false
		default:
			return wrong("true or false")
		}
	case *int:
		n, err := strconv.Atoi(trimmed)
		if err != nil {
			return wrong("a whole number")
		}
		*field = n
	case *int32:
		n, err := strconv.ParseInt(trimmed, 10, 32)
		if err != nil {
			return wrong("a whole number of 32 bits")
		}
		*field = int32(n)
	case *int64:
		n, err := strconv.ParseInt(trimmed, 10, 64)
		if err != nil {
			return wrong("a whole number")
		}
		*field = n
	case *storage.Role:
		i := slices.Index(roleWords, trimmed)
		if i < 0 {
			return wrong(strings.Join(roleWords, ", "))
		}
		*field = storage.Role(i)
	case *storage.FlushDiskType:
		i := slices.Index(flushWords, trimmed)
		if i < 0 {
			return wrong(strings.Join(flushWords, ", "))
		}
		*field = storage.FlushDiskType(i)
	case *message.DelayLevels:
		levels, err := message.ParseDelayLevels(value)
		if err != nil {
			return wrong(`times like "1s 5m 2h 1d" separated by blanks`)
		}
		*field = levels
	default:
		panic(fmt.Sprintf("BUG: configuration key %s of type %T", k.name, field))
	}
	return nil
}

// get is the text that set reads back.
func (k *configKey) get(c *Config) string {
	switch field := k.field(c).(type) {
	case *string:
		return *field
	case *bool:
		return strconv.FormatBool(*field)
	case *int:
		return strconv.Itoa(*field)
	case *int32:
		return strconv.FormatInt(int64(*field), 10)
	case *int64:
		return strconv.FormatInt(*field, 10)
	case *storage.Role:
		return word(roleWords, int(*field))
	case *storage.FlushDiskType:
		return word(flushWords, int(*field))
	case *message.DelayLevels:
		return field.Text
	default:
		panic(fmt.Sprintf("BUG: configuration key %s of type %T", k.name, field))
	}
}

func word(words []string, i int) string {
	if i < 0 || i >= len(words) {
		return strconv.Itoa(i)
	}
	return words[i]
}

// nearestKey is the known key that looks most like name, or "" when none is near.
func nearestKey(name string) string {
	best, bestDistance := "", max(2, len(name)/3)+1
	consider := func(known string) {
		if d := editDistance(strings.ToLower(name), strings.ToLower(known)); d < bestDistance || d == bestDistance && known < best {
			best, bestDistance = known, d
		}
	}
	for known := range keysByName {
		consider(known)
	}
	for known := range inertKeys {
		consider(known)
	}
	return best
}

// editDistance counts the characters to insert, delete, replace or swap with their neighbour.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
