// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"time"

	"loopmq/storage"
	"loopmq/storage/latency"
)

// replicaWaiter answers sends of a SYNC_MASTER once a slave has their bytes; ha.HAService is one.
type replicaWaiter interface {
	// SubmitReplicaRequest calls done once: PutOK when slaves hold all bytes below end, FlushSlaveTimeout at deadline,
	// SlaveNotAvailable when no slave is close enough. It never blocks.
	SubmitReplicaRequest(end storage.PhyOffset, deadline time.Time, done func(storage.PutMessageStatus))
	// ReplicaAnsweredAt is the latency.Now of what made the done that runs now run, or an earlier one.
	ReplicaAnsweredAt() int64
}

// putRequest is one put and what it waits for: the append, then the disk and a slave, side by side. done runs once, on
// whoever brings the last outcome, and must not block. Makers pool these; the callbacks are made once, by bind.
type putRequest struct {
	storage.PutMessage
	b *BrokerController

	waitFlush   bool
	waitReplica bool

	pending    atomic.Int32 // outcomes still out
	flushed    storage.PutMessageStatus
	replicated storage.PutMessageStatus
	// When these came, by latency.Now; earlier than AppendedAt when they came at once.
	flushedAt, replicatedAt int64

	done         func(status storage.PutMessageStatus, cause error)
	onFlushed    func(storage.PutMessageStatus)
	onReplicated func(storage.PutMessageStatus)
}

func (r *putRequest) bind(b *BrokerController, done func(storage.PutMessageStatus, error)) {
	r.b, r.done = b, done
	r.Appended = r.appended
	r.onFlushed = func(status storage.PutMessageStatus) {
		r.flushed, r.flushedAt = status, b.store.FlushAnsweredAt()
		r.outcome()
	}
	r.onReplicated = func(status storage.PutMessageStatus) {
		r.replicated, r.replicatedAt = status, b.replicas.ReplicaAnsweredAt()
		r.outcome()
	}
}

// appended submits the put to what it must wait for. Source: CommitLog#asyncPutMessage, which joins submitFlushRequest
// and submitReplicaRequest. Whoever completes the last request owns r, so r is not touched after the last submit.
func (r *putRequest) appended(_ *storage.PutMessage, status storage.PutMessageStatus) {
	if status != storage.PutOK {
		r.done(status, r.Cause)
		return
	}
	r.flushed, r.replicated = storage.PutOK, storage.PutOK
	flush, replica := r.waitFlush, r.waitReplica
	if !flush && !replica {
		r.done(storage.PutOK, nil)
		return
	}
	b, end, onFlushed, onReplicated := r.b, r.End(), r.onFlushed, r.onReplicated
	cfg, now := b.store.Config(), latency.Time(r.AppendedAt) // one look at the clock for all that were appended together
	if flush && replica {
		r.pending.Store(2)
	} else {
		r.pending.Store(1)
	}
	if flush {
		b.store.SubmitFlushRequest(end, now.Add(time.Duration(cfg.SyncFlushTimeout)*time.Millisecond), onFlushed)
	}
	if replica {
		b.replicas.SubmitReplicaRequest(end, now.Add(time.Duration(cfg.SlaveTimeout)*time.Millisecond), onReplicated)
	}
}

func (r *putRequest) outcome() {
	if r.pending.Add(-1) > 0 {
		return
	}
	status := combine(r.flushed, r.replicated)
	var cause error
	if status == storage.ServiceNotAvailable {
		_, cause = r.b.store.PutDenied() // the error that latched the store
	}
	r.done(status, cause)
}

// combine joins the outcomes of disk and slave. A disk that failed beats all else: the message may be gone after a crash
// whatever the slave said (apache/rocketmq#2706). Between the others the slave's counts, as in CommitLog#asyncPutMessage.
func combine(flushed, replicated storage.PutMessageStatus) storage.PutMessageStatus {
	if flushed == storage.ServiceNotAvailable || replicated == storage.PutOK {
		return flushed
	}
	return replicated
}

// waits sets what the put must wait for under the settings in force. waitStoreMsgOK is the sender's WAIT property.
func (r *putRequest) waits(cfg *storage.Config, waitStoreMsgOK bool) {
	r.waitFlush = waitStoreMsgOK && cfg.FlushDiskType == storage.SyncFlush
	r.waitReplica = waitStoreMsgOK && cfg.Role == storage.SyncMaster
}
