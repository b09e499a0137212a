// SPDX-License-Identifier: Apache-2.0

package storage

// PhyOffset is a byte position in the CommitLog.
type PhyOffset int64

// QueueOffset is a message index in one ConsumeQueue.
type QueueOffset int64

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
