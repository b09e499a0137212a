// SPDX-License-Identifier: Apache-2.0

package storage

// PhyOffset is a byte position in the CommitLog.
type PhyOffset int64

// QueueOffset is a message index in one ConsumeQueue.
type QueueOffset int64

// PutMessageStatus is the outcome of a put. Source: PutMessageStatus, in 4.9's order; spelling of 4.9.
type PutMessageStatus int32

const (
	PutOK PutMessageStatus = iota
	FlushDiskTimeout
	FlushSlaveTimeout
	SlaveNotAvailable
	ServiceNotAvailable
	CreateMappedFileFailed
	MessageIllegal
	PropertiesSizeExceeded
	OSPageCacheBusy
	UnknownError
	// QueueFull and QueueTimeout have no Java twin: Java's thread pool refuses (OVERLOAD) or cleans
	// (TIMEOUT_CLEAN_QUEUE) in these cases. Both are answered SYSTEM_BUSY.
	QueueFull
	QueueTimeout
)

// Role of the node. Source: BrokerRole.
type Role int32

const (
	AsyncMaster Role = iota
	SyncMaster
	Slave
)

// FlushDiskType says what a send waits for. Source: FlushDiskType.
type FlushDiskType int32

const (
	AsyncFlush FlushDiskType = iota
	SyncFlush
)
