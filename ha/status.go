// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"loopmq/storage"
)

// SlaveStatus is what the master knows of one connection, for logs, runtime information and metrics.
type SlaveStatus struct {
	Addr         netip.AddrPort
	Node         string // of a loopmq slave, in hex
	State        string // new, handshake, transfer, refused
	Refused      string // why it is not served
	Since        time.Time
	AckOffset    storage.PhyOffset // -1 while it is not served
	TransferFrom storage.PhyOffset // end of what it was sent
	LagBytes     int64
	Lag          time.Duration
	InSync       bool // counts as a slave to wait for

	Transferred             int64 // bytes, headers included
	TransferredByteInSecond int64
}

// Status is a snapshot of the master's side. Any goroutine.
type Status struct {
	Slaves              []SlaveStatus
	Push2SlaveMaxOffset storage.PhyOffset // what enough slaves hold, -1 when there are too few
	Waiting             int64             // sends that wait for a slave
	Refusals            int64             // slaves refused so far
	TailsGivenUp        int64             // waits for a lost end of the log that ended without one of the slaves
}

// InSyncSlaves counts the connections that a send may wait for.
func (s *Status) InSyncSlaves() (n int) {
	for i := range s.Slaves {
		if s.Slaves[i].InSync {
			n++
		}
	}
	return n
}

// Status is a snapshot.
func (s *HAService) Status() Status {
	connections := *s.connections.Load()
	st := Status{
		Slaves:              make([]SlaveStatus, 0, len(connections)),
		Push2SlaveMaxOffset: s.acked(),
		Waiting:             s.transfer.waiting.Load(),
		Refusals:            s.refusals.Load(),
		TailsGivenUp:        s.tailsGivenUp.Load(),
	}
	for _, c := range connections {
		st.Slaves = append(st.Slaves, c.status())
	}
	return st
}

func (c *HAConnection) status() SlaveStatus {
	now := time.Now()
	st := SlaveStatus{
		Addr: c.conn.RemoteAddr(), State: connectionState(c.state.Load()).String(), Since: c.since,
		AckOffset: c.ackOffset(), TransferFrom: storage.PhyOffset(c.sentOffset.Load()),
		Transferred: c.transferred.Load(), TransferredByteInSecond: c.perSecond.Load(),
	}
	if node := c.slave().node; node != (nodeID{}) {
		st.Node = hex.EncodeToString(node[:])
	}
	if m := c.refusal.Load(); m != nil {
		st.Refused = m.text
	}
	if st.AckOffset >= 0 {
		end := c.service.store.MaxPhyOffset()
		st.LagBytes = int64(end - st.AckOffset)
		st.Lag = c.service.lag.lag(now, st.AckOffset)
		st.InSync = c.inSync(end, now, c.service.config())
	}
	return st
}

// Cuts counts the tails that this slave has cut off to follow its master, and their bytes.
func (c *HAClient) Cuts() (cuts, bytes int64) { return c.cuts.Load(), c.cutBytes.Load() }

// Node is this store's id.
func (s *HAService) Node() string {
	node := s.state.node()
	return hex.EncodeToString(node[:])
}

// Feeds says whether the loopmq slave with that id gets this log now: it was compared, and what the slave holds is in it.
func (s *HAService) Feeds(node string) bool {
	return slices.ContainsFunc(*s.connections.Load(), func(c *HAConnection) bool {
		id := c.slave().node
		return connectionState(c.state.Load()) == stateTransfer && node == hex.EncodeToString(id[:])
	})
}
