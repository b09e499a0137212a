// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"loopmq/storage"
)

// replicaWaiter answers sends of a SYNC_MASTER once a slave has their bytes; ha.HAService is one.
type replicaWaiter interface {
	// SubmitReplicaRequest calls done once: PutOK when slaves hold all bytes below end, FlushSlaveTimeout at deadline,
	// SlaveNotAvailable when no slave is close enough. It never blocks.
	SubmitReplicaRequest(end storage.PhyOffset, deadline time.Time, done func(storage.PutMessageStatus))
}
