// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"log/slog"
	"net/netip"
	"sync/atomic"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/vfs"
)

// BrokerController wires the broker and owns its life cycle.
type BrokerController struct {
	config atomic.Pointer[Config]
	logger *slog.Logger
	fs     vfs.FS

	store  *storage.MessageStore
	server *reactor.RemotingServer

	topics    *TopicConfigManager
	groups    *SubscriptionGroupManager
	offsets   *ConsumerOffsetManager
	consumers *ConsumerManager
	producers *ProducerManager
	locks     *RebalanceLockManager
	hold      *PullRequestHoldService
	schedule  *ScheduleMessageService
	outer     *BrokerOuterAPI
	stats     *BrokerStats

	// Lanes for what may read a mapped file or write one. Cold pulls have their own: a consumer in old files delays nobody.
	pullLane     *reactor.Lane
	coldPullLane *reactor.Lane
	queryLane    *reactor.Lane // 12, 33, 36 and what reads records
	adminLane    *reactor.Lane // one worker: topics, groups, configuration

	// storeHost is the address that stored records carry, brokerIP1:listenPort; set when the port is bound.
	storeHost atomic.Pointer[netip.AddrPort]
	// replicas answers sends that must wait for a slave; nil until replication runs.
	replicas replicaWaiter
}

// Config is the configuration now in force: read only.
func (b *BrokerController) Config() *Config { return b.config.Load() }
