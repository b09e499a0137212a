// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"loopmq/storage/message"
)

// Config is the store's part of the broker's settings. Java's key stands behind each field (MessageStoreConfig);
// times are in milliseconds as in the file. A running store reads it through an atomic pointer: UpdateConfig swaps in
// a changed copy, so a Config in use is never written. Fields marked (start) are read once, by Open.
type Config struct {
	StorePathRootDir   string // storePathRootDir (start)
	StorePathCommitLog string // storePathCommitLog, default <root>/commitlog (start)
	Role               Role   // brokerRole (start)
	BrokerID           int64  // brokerId (start)

	MappedFileSizeCommitLog    int64 // mappedFileSizeCommitLog, 1 GiB (start)
	MappedFileSizeConsumeQueue int64 // mappedFileSizeConsumeQueue, 6,000,000, rounded up to a multiple of 20 (start)
	MaxHashSlotNum             int32 // maxHashSlotNum, 5,000,000 (start)
	MaxIndexNum                int32 // maxIndexNum, 20,000,000 (start)
	MessageIndexEnable         bool  // messageIndexEnable, true
	MessageIndexSafe           bool  // messageIndexSafe, false

	FlushDiskType                     FlushDiskType // flushDiskType, ASYNC_FLUSH (start)
	FlushCommitLogTimed               bool          // flushCommitLogTimed, true
	FlushIntervalCommitLog            int64         // flushIntervalCommitLog, 500
	FlushCommitLogLeastPages          int           // flushCommitLogLeastPages, 4
	FlushCommitLogThoroughInterval    int64         // flushCommitLogThoroughInterval, 10,000
	CommitIntervalCommitLog           int64         // commitIntervalCommitLog, 200
	CommitCommitLogLeastPages         int           // commitCommitLogLeastPages, 4
	CommitCommitLogThoroughInterval   int64         // commitCommitLogThoroughInterval, 200
	FlushIntervalConsumeQueue         int64         // flushIntervalConsumeQueue, 1,000
	FlushConsumeQueueLeastPages       int           // flushConsumeQueueLeastPages, 2
	FlushConsumeQueueThoroughInterval int64         // flushConsumeQueueThoroughInterval, 60,000
	SyncFlushTimeout                  int64         // syncFlushTimeout, 5,000
	SlaveTimeout                      int64         // slaveTimeout, 3,000
	TransientStorePoolEnable          bool          // transientStorePoolEnable, false (start)
	TransientStorePoolSize            int           // transientStorePoolSize, 5 (start)
	FastFailIfNoBufferInStorePool     bool          // fastFailIfNoBufferInStorePool, false

	MaxMessageSize                int   // maxMessageSize, 4 MiB, body
	OSPageCacheBusyTimeOutMills   int64 // osPageCacheBusyTimeOutMills, 1,000
	WaitTimeMillsInSendQueue      int64 // waitTimeMillsInSendQueue, 200: age at which the sweeper expires a queued put
	SendThreadPoolQueueCapacity   int   // sendThreadPoolQueueCapacity, 10,000: puts queued for the appender
	CheckCRCOnRecover             bool  // checkCRCOnRecover, true
	MaxTransferBytesInMemory      int   // maxTransferBytesOnMessageInMemory, 262,144
	MaxTransferCountInMemory      int   // maxTransferCountOnMessageInMemory, 32
	MaxTransferBytesOnDisk        int   // maxTransferBytesOnMessageInDisk, 65,536
	MaxTransferCountOnDisk        int   // maxTransferCountOnMessageInDisk, 8
	AccessMessageInMemoryMaxRatio int   // accessMessageInMemoryMaxRatio, 40 (% of physical memory, or of the cgroup's limit)
	MaxMsgsNumBatch               int   // maxMsgsNumBatch, 64
	OffsetCheckInSlave            bool  // offsetCheckInSlave, false

	FileReservedTime                 int64  // fileReservedTime, hours, 72
	DeleteWhen                       string // deleteWhen, "04", hours separated by ';'
	DiskMaxUsedSpaceRatio            int    // diskMaxUsedSpaceRatio, 75
	DiskSpaceCleanForciblyRatio      int    // diskSpaceCleanForciblyRatio, 85
	DiskSpaceWarningLevelRatio       int    // diskSpaceWarningLevelRatio, 90
	CleanResourceInterval            int64  // cleanResourceInterval, 10,000
	CleanFileForciblyEnable          bool   // cleanFileForciblyEnable, true
	DeleteCommitLogFilesInterval     int64  // deleteCommitLogFilesInterval, 100
	DeleteConsumeQueueFilesInterval  int64  // deleteConsumeQueueFilesInterval, 100
	DestroyMapedFileIntervalForcibly int64  // destroyMapedFileIntervalForcibly, 120,000: here only when a file still held is first reported
	RedeleteHangedFileInterval       int64  // redeleteHangedFileInterval, 120,000

	// PopulateWindow is how far ahead of the write position pages are brought in, under SYNC_FLUSH zeroed on disk, bytes. Ours;
	// 32 MiB, less for small files.
	PopulateWindow int64 // populateWindow
	// MaxWaitingPuts bounds sends that wait for a flush. Ours; 200,000.
	MaxWaitingPuts int // maxWaitingPuts

	DelayLevels message.DelayLevels // messageDelayLevel
}

// DelayLevelText is the default of messageDelayLevel.
const DelayLevelText = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

const (
	consumeQueueUnitSize  = 20
	commitLogFileSizeMin  = 4096
	populateWindowDefault = 32 << 20
	maxWaitingPutsDefault = 200_000
)

// DefaultConfig returns 4.9.8's defaults, without a directory.
func DefaultConfig() Config {
	levels, err := message.ParseDelayLevels(DelayLevelText)
	if err != nil {
		panic("BUG: default delay levels: " + err.Error())
	}
	return Config{
		Role: AsyncMaster,

		MappedFileSizeCommitLog:    1 << 30,
		MappedFileSizeConsumeQueue: 300_000 * consumeQueueUnitSize,
		MaxHashSlotNum:             5_000_000,
		MaxIndexNum:                20_000_000,
		MessageIndexEnable:         true,

		FlushDiskType:                     AsyncFlush,
		FlushCommitLogTimed:               true,
		FlushIntervalCommitLog:            500,
		FlushCommitLogLeastPages:          4,
		FlushCommitLogThoroughInterval:    10_000,
		CommitIntervalCommitLog:           200,
		CommitCommitLogLeastPages:         4,
		CommitCommitLogThoroughInterval:   200,
		FlushIntervalConsumeQueue:         1_000,
		FlushConsumeQueueLeastPages:       2,
		FlushConsumeQueueThoroughInterval: 60_000,
		SyncFlushTimeout:                  5_000,
		SlaveTimeout:                      3_000,
		TransientStorePoolSize:            5,

		MaxMessageSize:                4 << 20,
		OSPageCacheBusyTimeOutMills:   1_000,
		WaitTimeMillsInSendQueue:      200,
		SendThreadPoolQueueCapacity:   10_000,
		CheckCRCOnRecover:             true,
		MaxTransferBytesInMemory:      256 << 10,
		MaxTransferCountInMemory:      32,
		MaxTransferBytesOnDisk:        64 << 10,
		MaxTransferCountOnDisk:        8,
		AccessMessageInMemoryMaxRatio: 40,
		MaxMsgsNumBatch:               64,

		FileReservedTime:                 72,
		DeleteWhen:                       "04",
		DiskMaxUsedSpaceRatio:            75,
		DiskSpaceCleanForciblyRatio:      85,
		DiskSpaceWarningLevelRatio:       90,
		CleanResourceInterval:            10_000,
		CleanFileForciblyEnable:          true,
		DeleteCommitLogFilesInterval:     100,
		DeleteConsumeQueueFilesInterval:  100,
		DestroyMapedFileIntervalForcibly: 120_000,
		RedeleteHangedFileInterval:       120_000,

		PopulateWindow: populateWindowDefault,
		MaxWaitingPuts: maxWaitingPutsDefault,

		DelayLevels: levels,
	}
}

// EnsureDefaults completes a Config made by hand: it fills numbers left zero where zero means nothing, derives paths,
// and rounds as Java's getters do. Flags that default to true, and the page counts, where zero means "any byte", come
// from DefaultConfig only.
func (c *Config) EnsureDefaults() {
	d := DefaultConfig()
	if c.StorePathCommitLog == "" && c.StorePathRootDir != "" {
		c.StorePathCommitLog = filepath.Join(c.StorePathRootDir, "commitlog")
	}
	if c.DeleteWhen == "" {
		c.DeleteWhen = d.DeleteWhen
	}
	if c.DelayLevels.Text == "" && len(c.DelayLevels.Millis) == 0 {
		c.DelayLevels = d.DelayLevels
	}
	fill(&c.MappedFileSizeCommitLog, d.MappedFileSizeCommitLog)
	fill(&c.MappedFileSizeConsumeQueue, d.MappedFileSizeConsumeQueue)
	fill(&c.MaxHashSlotNum, d.MaxHashSlotNum)
	fill(&c.MaxIndexNum, d.MaxIndexNum)
	fill(&c.FlushIntervalCommitLog, d.FlushIntervalCommitLog)
	fill(&c.FlushCommitLogThoroughInterval, d.FlushCommitLogThoroughInterval)
	fill(&c.CommitIntervalCommitLog, d.CommitIntervalCommitLog)
	fill(&c.CommitCommitLogThoroughInterval, d.CommitCommitLogThoroughInterval)
	fill(&c.FlushIntervalConsumeQueue, d.FlushIntervalConsumeQueue)
	fill(&c.FlushConsumeQueueThoroughInterval, d.FlushConsumeQueueThoroughInterval)
	fill(&c.SyncFlushTimeout, d.SyncFlushTimeout)
	fill(&c.SlaveTimeout, d.SlaveTimeout)
	fill(&c.TransientStorePoolSize, d.TransientStorePoolSize)
	fill(&c.MaxMessageSize, d.MaxMessageSize)
	fill(&c.OSPageCacheBusyTimeOutMills, d.OSPageCacheBusyTimeOutMills)
	fill(&c.WaitTimeMillsInSendQueue, d.WaitTimeMillsInSendQueue)
	fill(&c.SendThreadPoolQueueCapacity, d.SendThreadPoolQueueCapacity)
	fill(&c.MaxTransferBytesInMemory, d.MaxTransferBytesInMemory)
	fill(&c.MaxTransferCountInMemory, d.MaxTransferCountInMemory)
	fill(&c.MaxTransferBytesOnDisk, d.MaxTransferBytesOnDisk)
	fill(&c.MaxTransferCountOnDisk, d.MaxTransferCountOnDisk)
	fill(&c.AccessMessageInMemoryMaxRatio, d.AccessMessageInMemoryMaxRatio)
	fill(&c.MaxMsgsNumBatch, d.MaxMsgsNumBatch)
	fill(&c.FileReservedTime, d.FileReservedTime)
	fill(&c.DiskMaxUsedSpaceRatio, d.DiskMaxUsedSpaceRatio)
	fill(&c.DiskSpaceCleanForciblyRatio, d.DiskSpaceCleanForciblyRatio)
	fill(&c.DiskSpaceWarningLevelRatio, d.DiskSpaceWarningLevelRatio)
	fill(&c.CleanResourceInterval, d.CleanResourceInterval)
	fill(&c.DeleteCommitLogFilesInterval, d.DeleteCommitLogFilesInterval)
	fill(&c.DeleteConsumeQueueFilesInterval, d.DeleteConsumeQueueFilesInterval)
	fill(&c.DestroyMapedFileIntervalForcibly, d.DestroyMapedFileIntervalForcibly)
	fill(&c.RedeleteHangedFileInterval, d.RedeleteHangedFileInterval)
	fill(&c.PopulateWindow, d.PopulateWindow)
	fill(&c.MaxWaitingPuts, d.MaxWaitingPuts)

	if rest := c.MappedFileSizeConsumeQueue % consumeQueueUnitSize; rest > 0 {
		c.MappedFileSizeConsumeQueue += consumeQueueUnitSize - rest
	}
	if c.MappedFileSizeCommitLog > 0 {
		c.PopulateWindow = min(c.PopulateWindow, c.MappedFileSizeCommitLog)
	}
}

func fill[T int | int32 | int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// ConfigError is one setting that cannot be used. Key is Java's name, so that whoever read the file can say which line.
type ConfigError struct {
	Key   string
	Value any
	Want  string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s = %v: want %s", e.Key, e.Value, e.Want)
}

// Validate reports all clashes at once, each a *ConfigError.
func (c *Config) Validate() error {
	var errs []error
	reject := func(key string, value any, want string) {
		errs = append(errs, &ConfigError{Key: key, Value: value, Want: want})
	}
	between := func(key string, value, lowest, highest int64) {
		if value < lowest || value > highest {
			reject(key, value, fmt.Sprintf("%d to %d", lowest, highest))
		}
	}
	atLeast := func(key string, value, lowest int64) {
		if value < lowest {
			reject(key, value, fmt.Sprintf("%d or more", lowest))
		}
	}

	if c.StorePathRootDir == "" {
		reject("storePathRootDir", `""`, "a directory")
	}
	if c.StorePathCommitLog == "" {
		reject("storePathCommitLog", `""`, "a directory")
	}
	if strings.Contains(c.StorePathCommitLog, ",") { // Source: MultiPathMappedFileQueue. It would be a new, empty directory.
		reject("storePathCommitLog", strconv.Quote(c.StorePathCommitLog), "one directory: a log over several is not supported")
	}
	switch c.Role {
	case AsyncMaster, SyncMaster:
		if c.BrokerID != 0 {
			reject("brokerId", c.BrokerID, "0 on a master")
		}
	case Slave:
		if c.BrokerID <= 0 {
			reject("brokerId", c.BrokerID, "1 or more on a slave")
		}
	default:
		reject("brokerRole", int32(c.Role), "ASYNC_MASTER, SYNC_MASTER or SLAVE")
	}
	if c.FlushDiskType != AsyncFlush && c.FlushDiskType != SyncFlush {
		reject("flushDiskType", int32(c.FlushDiskType), "ASYNC_FLUSH or SYNC_FLUSH")
	}

	// Positions inside a file are Java ints.
	const fileSizeMax = 1<<31 - 1
	between("mappedFileSizeCommitLog", c.MappedFileSizeCommitLog, commitLogFileSizeMin, fileSizeMax)
	between("mappedFileSizeConsumeQueue", c.MappedFileSizeConsumeQueue, consumeQueueUnitSize, fileSizeMax)
	if c.MappedFileSizeConsumeQueue%consumeQueueUnitSize != 0 {
		reject("mappedFileSizeConsumeQueue", c.MappedFileSizeConsumeQueue, "a multiple of 20")
	}
	atLeast("maxHashSlotNum", int64(c.MaxHashSlotNum), 1)
	atLeast("maxIndexNum", int64(c.MaxIndexNum), 2)
	const indexSlotSize, indexUnitSize, indexHeaderSize = 4, 20, 40
	if size := int64(c.MaxHashSlotNum)*indexSlotSize + int64(c.MaxIndexNum)*indexUnitSize + indexHeaderSize; size > fileSizeMax {
		reject("maxIndexNum", c.MaxIndexNum, "an index file below 2 GiB: 40 + 4 × maxHashSlotNum + 20 × maxIndexNum bytes")
	}

	atLeast("flushIntervalCommitLog", c.FlushIntervalCommitLog, 1)
	atLeast("flushCommitLogLeastPages", int64(c.FlushCommitLogLeastPages), 0)
	atLeast("flushCommitLogThoroughInterval", c.FlushCommitLogThoroughInterval, 1)
	atLeast("commitIntervalCommitLog", c.CommitIntervalCommitLog, 1)
	atLeast("commitCommitLogLeastPages", int64(c.CommitCommitLogLeastPages), 0)
	atLeast("commitCommitLogThoroughInterval", c.CommitCommitLogThoroughInterval, 1)
	atLeast("flushIntervalConsumeQueue", c.FlushIntervalConsumeQueue, 1)
	atLeast("flushConsumeQueueLeastPages", int64(c.FlushConsumeQueueLeastPages), 0)
	atLeast("flushConsumeQueueThoroughInterval", c.FlushConsumeQueueThoroughInterval, 1)
	atLeast("syncFlushTimeout", c.SyncFlushTimeout, 1)
	atLeast("slaveTimeout", c.SlaveTimeout, 1)
	atLeast("transientStorePoolSize", int64(c.TransientStorePoolSize), 1)

	between("maxMessageSize", int64(c.MaxMessageSize), 1, messageSizeMax)
	atLeast("osPageCacheBusyTimeOutMills", c.OSPageCacheBusyTimeOutMills, 1)
	atLeast("waitTimeMillsInSendQueue", c.WaitTimeMillsInSendQueue, 1)
	between("sendThreadPoolQueueCapacity", int64(c.SendThreadPoolQueueCapacity), 1, 10_000_000)
	atLeast("maxTransferBytesOnMessageInMemory", int64(c.MaxTransferBytesInMemory), 1)
	atLeast("maxTransferCountOnMessageInMemory", int64(c.MaxTransferCountInMemory), 1)
	atLeast("maxTransferBytesOnMessageInDisk", int64(c.MaxTransferBytesOnDisk), 1)
	atLeast("maxTransferCountOnMessageInDisk", int64(c.MaxTransferCountOnDisk), 1)
	between("accessMessageInMemoryMaxRatio", int64(c.AccessMessageInMemoryMaxRatio), 1, 100)
	atLeast("maxMsgsNumBatch", int64(c.MaxMsgsNumBatch), 1)

	atLeast("fileReservedTime", c.FileReservedTime, 1)
	if !validDeleteWhen(c.DeleteWhen) {
		reject("deleteWhen", strconv.Quote(c.DeleteWhen), "hours 00 to 23 separated by ';'")
	}
	between("diskMaxUsedSpaceRatio", int64(c.DiskMaxUsedSpaceRatio), 1, 100)
	between("diskSpaceCleanForciblyRatio", int64(c.DiskSpaceCleanForciblyRatio), 1, 100)
	between("diskSpaceWarningLevelRatio", int64(c.DiskSpaceWarningLevelRatio), 1, 100)
	if c.DiskSpaceCleanForciblyRatio > c.DiskSpaceWarningLevelRatio {
		reject("diskSpaceCleanForciblyRatio", c.DiskSpaceCleanForciblyRatio,
			fmt.Sprintf("no more than diskSpaceWarningLevelRatio = %d", c.DiskSpaceWarningLevelRatio))
	}
	atLeast("cleanResourceInterval", c.CleanResourceInterval, 1)
	atLeast("deleteCommitLogFilesInterval", c.DeleteCommitLogFilesInterval, 0)
	atLeast("deleteConsumeQueueFilesInterval", c.DeleteConsumeQueueFilesInterval, 0)
	atLeast("destroyMapedFileIntervalForcibly", c.DestroyMapedFileIntervalForcibly, 1)
	atLeast("redeleteHangedFileInterval", c.RedeleteHangedFileInterval, 1)

	between("populateWindow", c.PopulateWindow, min(commitLogFileSizeMin, c.MappedFileSizeCommitLog), fileSizeMax)
	atLeast("maxWaitingPuts", int64(c.MaxWaitingPuts), 1)
	if len(c.DelayLevels.Millis) == 0 {
		reject("messageDelayLevel", strconv.Quote(c.DelayLevels.Text), `times like "1s 5m 2h 1d" separated by blanks`)
	}
	return errors.Join(errs...)
}

// messageSizeMax leaves room for topic, properties and frame header below the remoting frame's 16 MiB.
const messageSizeMax = 16<<20 - 64<<10

func validDeleteWhen(text string) bool {
	for part := range strings.SplitSeq(text, ";") {
		hour, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || hour < 0 || hour > 23 {
			return false
		}
	}
	return true
}

// TransientStorePoolInEffect is 4.9's rule: the pool works with ASYNC_FLUSH on a master only.
// Source: MessageStoreConfig#isTransientStorePoolEnable.
func (c *Config) TransientStorePoolInEffect() bool {
	return c.TransientStorePoolEnable && c.FlushDiskType == AsyncFlush && c.Role != Slave
}
