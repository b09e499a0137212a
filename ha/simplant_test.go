// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loopmq/storage"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// simPlant is a fault put in on purpose, to see that the simulation notices. Where the fault would be a check left out,
// the plant does what the code would then have done.
type simPlant struct {
	name    string
	rare    bool   // takes more seeds than every run of the tests should
	want    string // regular expression
	selects func(s *simStore, offset storage.PhyOffset, max int)
	appends func(s *simStore, start storage.PhyOffset, data []byte) error
	ends    func(s *simStore, end storage.PhyOffset) storage.PhyOffset
	stateFS func(fs *faultfs.FS) vfs.FS
	link    func(n *simNode, l *haLink)
	rogue   func(s *simulation, n *simNode, ahead storage.PhyOffset)
	step    func(s *simulation)
}

func (p *simPlant) onLink(n *simNode, l *haLink) {
	if p.link != nil {
		p.link(n, l)
	}
}

func (p *simPlant) onRogue(s *simulation, n *simNode, ahead storage.PhyOffset) {
	if p.rogue != nil {
		p.rogue(s, n, ahead)
	}
}

func (p *simPlant) afterStep(s *simulation) {
	if p.step != nil {
		p.step(s)
	}
}

// simPlantSeedsMax bounds the seeds within which a planted fault has to be found; CI runs as many.
const simPlantSeedsMax = 300

// TestSimulationFindsPlantedFaults plants a fault against each thing the simulation promises to see, and wants it seen.
// With -seeds=300 it plants the rare ones too.
func TestSimulationFindsPlantedFaults(t *testing.T) {
	for _, plant := range simPlants() {
		if plant.rare && simSeedCount(t) < simPlantSeedsMax {
			continue
		}
		t.Run(strings.ReplaceAll(plant.name, " ", "_"), func(t *testing.T) {
			for seed := max(1, *simSeed); seed <= simPlantSeedsMax; seed++ {
				if _, err := runSimulation(t, seed, plant); err != nil {
					if !regexp.MustCompile(plant.want).MatchString(err.Error()) {
						t.Fatalf("seed %d: %v; want %q", seed, err, plant.want)
					}
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d seeds", simPlantSeedsMax)
		})
	}
}

func simPlants() []*simPlant {
	return []*simPlant{
		{name: "a report beyond the end counts", want: "slaves count as holding", rogue: func(_ *simulation, n *simNode, ahead storage.PhyOffset) {
			for _, c := range *n.service.connections.Load() {
				if c.conn.(*simConn).peer.owner == nil {
					c.slaveAckOffset.Store(int64(ahead))
				}
			}
		}},
		goneSlavesCount(),
		{name: "two connections of a slave count twice", want: "connected slaves, not 2", step: func(s *simulation) {
			for _, n := range s.nodes {
				if n.service == nil {
					continue
				}
				for i, c := range *n.service.connections.Load() {
					c.key.Store(&slaveKey{node: c.slave().node, addr: netip.AddrFrom4([4]byte{1, 1, 1, byte(i)})})
				}
			}
		}},
		{name: "one slave is enough where two are asked for", want: "connected slaves, not 2", step: func(s *simulation) {
			for _, n := range s.nodes {
				if n.haConfig != nil {
					n.haConfig.InSyncReplicas = 1
				}
			}
		}},
		{name: "logs are not compared", want: "differs at", step: func(s *simulation) {
			for _, n := range s.nodes {
				if n.linkConn != nil && !n.linkConn.done() && n.link.state == linkComparing {
					_ = n.link.begin(n.store.MaxPhyOffset(), time.Now())
				}
			}
		}},
		{name: "the floor is not looked at", want: "has left the disk", link: func(n *simNode, _ *haLink) {
			state := n.service.state
			state.data.Regime, state.data.Floor = regimeAsync, 0
		}},
		{name: "a SYNC_MASTER's bytes are not noted on disk", want: "has left the disk", stateFS: func(fs *faultfs.FS) vfs.FS {
			return forgetfulFS{fs, `"` + regimeSync + `"`}
		}},
		{name: "a master that lost its tail takes sends at once", want: "takes sends and does not have", step: func(s *simulation) {
			for _, n := range s.nodes {
				if n.waits() && !n.hasCrashed() {
					n.haConfig.HaTailTimeout = 0
					n.service.stepTail(time.Now())
				}
			}
		}},
		{name: "slaves that count are not noted", want: "takes sends and does not have", stateFS: func(fs *faultfs.FS) vfs.FS {
			return forgetfulFS{fs, `"slaves"`}
		}},
		{name: "a byte changes on the way", want: "differs at|on 0 connected slaves", appends: func(s *simStore, start storage.PhyOffset, data []byte) error {
			return s.MessageStore.AppendToCommitLog(start, bytes.ReplaceAll(data, []byte("orders"), []byte("odders")))
		}},
		{name: "a slave reports what it has not appended", want: "reports", ends: func(s *simStore, end storage.PhyOffset) storage.PhyOffset {
			if s.node.role == storage.Slave && end > 0 {
				end++
			}
			return end
		}},
		{name: "a slave loses what it has reported", want: "differs at|on 0 connected slaves", appends: func(s *simStore, start storage.PhyOffset, data []byte) error {
			if err := s.MessageStore.AppendToCommitLog(start, data); err != nil || start < 5000 {
				return err
			}
			if img := s.node.image(); true {
				defer img.close()
				clear(img.at(start)[:len(data)])
			}
			return nil
		}},
		{name: "a loan is never returned", want: "still lent", selects: func(s *simStore, offset storage.PhyOffset, max int) {
			if offset > 2000 {
				_, _ = s.MessageStore.Select(offset, max)
			}
		}},
	}
}

// goneSlavesCount keeps connections in the list after they have closed, with what they had acknowledged.
func goneSlavesCount() *simPlant {
	acks := map[*HAConnection]int64{}
	return &simPlant{rare: true, name: "a slave that is gone still counts", want: "connected slaves, not 2", step: func(s *simulation) {
		for _, n := range s.nodes {
			if n.service == nil || n.hasCrashed() {
				continue
			}
			list := slices.Clone(*n.service.connections.Load())
			for _, c := range list {
				if ack := c.slaveAckOffset.Load(); ack >= 0 {
					acks[c] = ack
				}
			}
			for c, ack := range acks {
				if c.service == n.service && !slices.Contains(list, c) {
					c.slaveAckOffset.Store(ack)
					list = append(list, c)
				}
			}
			n.service.connections.Store(&list)
			n.service.publishAcked()
		}
	}}
}

// forgetfulFS does not write a state that says what is not to be kept.
type forgetfulFS struct {
	*faultfs.FS
	word string
}

func (f forgetfulFS) WriteFile(path string, data []byte) error {
	if path == simState && bytes.Contains(data, []byte(f.word)) {
		return nil
	}
	return f.FS.WriteFile(path, data)
}
