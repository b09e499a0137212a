// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"log/slog"
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
}

// Config is the configuration now in force: read only.
func (b *BrokerController) Config() *Config { return b.config.Load() }
