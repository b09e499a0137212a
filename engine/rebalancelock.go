// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"loopmq/storage/latency"
)

const (
	// rebalanceLockMaxLiveTime is how long a queue stays locked without renewal. Source: RebalanceLockManager
	// (rocketmq.broker.rebalance.lockMaxLiveTime).
	rebalanceLockMaxLiveTime = 60 * time.Second
	// rebalanceLocksMax bounds the queues locked at one time, of all groups.
	rebalanceLocksMax = 1 << 20
)

// RebalanceLockManager holds the queue locks of orderly consumers, in memory only: after a restart all are free.
// Source: RebalanceLockManager.
type RebalanceLockManager struct {
	mu    sync.Mutex // guards the fields below; held for memory work only
	locks map[string]map[MessageQueue]queueLock
	count int
}

type queueLock struct {
	clientID   string
	lastUpdate int64 // latency.Now: a wall clock that is set keeps or frees no lock
}

func (l queueLock) expired(now time.Time) bool {
	return time.Duration(latency.Of(now)-l.lastUpdate) > rebalanceLockMaxLiveTime
}

func newRebalanceLockManager() *RebalanceLockManager {
	return &RebalanceLockManager{locks: make(map[string]map[MessageQueue]queueLock)}
}

// TryLockBatch locks or renews the queues that are free, expired, or the client's already, and returns those.
func (m *RebalanceLockManager) TryLockBatch(group, clientID string, queues []MessageQueue, now time.Time) (locked []MessageQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	table := m.locks[group]
	for _, q := range queues {
		held, ok := table[q]
		if ok && held.clientID != clientID && !held.expired(now) || !ok && m.count >= rebalanceLocksMax {
			continue
		}
		if table == nil {
			table = make(map[MessageQueue]queueLock)
			m.locks[group] = table
		}
		if !ok {
			m.count++
		}
		table[q] = queueLock{clientID: clientID, lastUpdate: latency.Of(now)}
		locked = append(locked, q)
	}
	return locked
}

// UnlockBatch frees those of the queues that the client holds.
func (m *RebalanceLockManager) UnlockBatch(group, clientID string, queues []MessageQueue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	table := m.locks[group]
	for _, q := range queues {
		if held, ok := table[q]; ok && held.clientID == clientID {
			m.deleteLocked(group, q)
		}
	}
}

func (m *RebalanceLockManager) deleteLocked(group string, q MessageQueue) {
	table := m.locks[group]
	delete(table, q)
	m.count--
	if len(table) == 0 {
		delete(m.locks, group)
	}
}

// Expire forgets locks that anyone could take, so that groups long gone cost nothing.
func (m *RebalanceLockManager) Expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for group, table := range m.locks {
		for q, held := range table {
			if held.expired(now) {
				m.deleteLocked(group, q)
			}
		}
	}
}
