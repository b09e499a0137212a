// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"loopmq/storage"
	"loopmq/storage/vfs"
)

// Store is what replication needs of the log; storage.MessageStore is one.
type Store interface {
	MinPhyOffset() storage.PhyOffset
	MaxPhyOffset() storage.PhyOffset
	FlushedWhere() storage.PhyOffset
	Select(offset storage.PhyOffset, max int) (storage.SelectMappedBufferResult, bool)
	AppendToCommitLog(start storage.PhyOffset, parts ...[]byte) error
	// TruncateTo drops everything from a record's start on, queues and index with it; to 0 empties the log.
	TruncateTo(offset storage.PhyOffset) error
	// Fence and Unfence are for a master that may have lost the end of its log.
	Fence()
	Unfence() bool
	// LastRun says whether the last run left all of its log on disk, and whether others than loopmq have written since.
	LastRun() (clean, others bool)
	// DispatchBehindBytes places the last record boundary that is known: end less this.
	DispatchBehindBytes() int64
}

// Config is replication's part of the settings, Java's key behind each field. It is read through a function at every
// use, so settings that Java can change at run time can be changed.
type Config struct {
	Role     storage.Role // brokerRole
	BrokerID int64        // brokerId

	Addr                      string         // bindAddress:haListenPort
	HaMasterAddress           string         // haMasterAddress; empty: from the name server
	HaSendHeartbeatInterval   time.Duration  // haSendHeartbeatInterval, 5 s
	HaHousekeepingInterval    time.Duration  // haHousekeepingInterval, 20 s
	HaTransferBatchSize       int            // haTransferBatchSize, 32 KiB
	HaSlaveFallbehindMax      int64          // haSlaveFallbehindMax, 256 MiB
	InSyncReplicas            int            // inSyncReplicas, 1: see Acks
	SlaveTimeout              time.Duration  // slaveTimeout, 3 s
	HaFlowControlEnable       bool           // haFlowControlEnable, false
	MaxHaTransferByteInSecond int64          // maxHaTransferByteInSecond, 100 MiB, for each slave
	HaRetainedMax             int64          // ours: haRetainedMax, log kept for connected slaves, from the end
	HaAllowList               []netip.Prefix // ours: haAllowList, CIDRs that may connect; empty: all
	HaTailTimeout             time.Duration  // ours: haTailTimeout, 60 s: how long a master that may have lost the end of its log waits for its slaves
	HaReportSynced            bool           // ours: haReportSynced, false: a slave reports what it has synced, not what it has appended
	MappedFileSizeCommitLog   int64
}

// Acks is how many slaves must hold a message before a SYNC_MASTER answers: one for inSyncReplicas 0 and 1 as in 4.9;
// from 2 on the master counts, as in 5.x.
func (c *Config) Acks() int {
	if c.InSyncReplicas <= 2 {
		return 1
	}
	return c.InSyncReplicas - 1
}

// Options are what is not configuration.
type Options struct {
	Config func() *Config
	Store  Store
	Logger *slog.Logger
	// MasterAddress asks for the master's HA address as the name servers last told it; "" while unknown.
	MasterAddress func() string
	// MasterMinOffset asks the master for the first offset of its log (runtime info); an empty slave needs it of a
	// RocketMQ master.
	MasterMinOffset func(ctx context.Context) (storage.PhyOffset, error)
	// Serve, if there is one, is told that this node, a master, is about to take its first send, with all of the log that it
	// will get back; again when the store needed another moment.
	Serve func()
	// Cut, if there is one, is told that this slave's log was cut and ends here now, before it goes on.
	Cut func(end storage.PhyOffset)
	// Boot names the machine's boot; what a process has written is lost to a power cut at most when it has changed.
	Boot string
	// StatePath is where ha.json lies.
	StatePath string
	FS        vfs.FS
}
