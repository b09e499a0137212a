// SPDX-License-Identifier: Apache-2.0

package reactor

import "golang.org/x/sys/unix"

const (
	// listenBacklogMax is Java's soBacklog. gnet asks for the kernel's maximum, and every connection in a backlog is a
	// descriptor that gnet takes before we can refuse it.
	listenBacklogMax = 1024
	// filesReserve are descriptors for the store's files, other engines, and everything else that is no connection.
	filesReserve = 1024
	// descriptorsUnlimited stands for a limit that is none.
	descriptorsUnlimited = 1 << 20
)

// raiseNoFile raises the limit of open descriptors as far as it goes and returns it.
func raiseNoFile() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return filesReserve
	}
	if limit.Cur < limit.Max {
		raised := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	if limit.Cur > descriptorsUnlimited {
		return descriptorsUnlimited
	}
	return int(limit.Cur)
}

// connectionBudget divides the descriptors. A failed accept ends gnet's engine and with it every connection, so a full
// backlog of each listener must always find descriptors. Where there are few, the backlog shrinks too.
func connectionBudget(descriptors, listeners int) (connectionsMax, backlog int) {
	backlog = min(listenBacklogMax, max(16, descriptors/8/max(1, listeners)))
	reserve := backlog*listeners + min(filesReserve, descriptors/4)
	return max(1, descriptors-reserve), backlog
}
