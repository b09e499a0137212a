// SPDX-License-Identifier: Apache-2.0

package faultfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashKind says what a crash takes away.
type CrashKind int

const (
	ProcessKill    CrashKind = iota // the process
	PowerLoss                       // of what was not synced as much as the coins say
	TotalPowerLoss                  // all that was not synced
)

func (k CrashKind) String() string {
	return [...]string{"process kill", "power loss", "total power loss"}[k]
}

// CutsPower says that the machine goes down, and not the process alone.
func (k CrashKind) CutsPower() bool { return k != ProcessKill }

// coins decide what a power cut leaves: at 0 always the least.
type coins interface{ IntN(n int) int }

type allZero struct{}

func (allZero) IntN(int) int { return 0 }

// settleMax bounds the copies Crash makes to find memory at rest.
const settleMax = 100

// Crash ends f and returns what the next start finds. seed drives the coins of PowerLoss. Capacity is kept; faults,
// hooks and locks are not.
func (f *FS) Crash(kind CrashKind, seed uint64) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	next := f.copyLocked()
	switch kind {
	case PowerLoss:
		next.losePower(rand.New(rand.NewPCG(seed, 0)))
	case TotalPowerLoss:
		next.losePower(allZero{})
	}
	next.countUsed()
	return next
}

// copier copies the graph of inodes once each.
type copier map[*inode]*inode

// copyLocked copies until memory does not change meanwhile: a copy that saw a later store and missed an earlier one
// is a state that no killed process leaves behind.
func (f *FS) copyLocked() *FS {
	next := &FS{pending: slices.Clone(f.pending), inodes: f.inodes, capacity: f.capacity, locks: map[string]bool{}}
	copies := copier{}
	next.root = copies.of(f.root)
	for i, c := range next.pending {
		next.pending[i] = slices.Clone(c)
		for j, e := range c {
			next.pending[i][j] = entryChange{dir: copies.of(e.dir), name: e.name, to: copies.of(e.to)}
		}
	}
	for range settleMax {
		changed := false
		for from, to := range copies {
			changed = recopy(to.data, from.data) || changed
		}
		if !changed {
			break
		}
	}
	return next
}

func (c copier) of(n *inode) *inode {
	if n == nil {
		return nil
	}
	if to := c[n]; to != nil {
		return to
	}
	to := &inode{number: n.number, dir: n.dir, modTime: n.modTime, lenSynced: n.lenSynced}
	c[n] = to
	to.data = make([]byte, len(n.data))
	to.synced = slices.Clone(n.synced)
	to.backed = slices.Clone(n.backed)
	to.entries, to.durable = c.entries(n.entries), c.entries(n.durable)
	return to
}

func (c copier) entries(m map[string]*inode) map[string]*inode {
	if m == nil {
		return nil
	}
	to := make(map[string]*inode, len(m))
	for name, n := range m {
		to[name] = c.of(n)
	}
	return to
}

// recopy reads memory that its owner may be storing to, on purpose.
//
//go:norace
func recopy(to, from []byte) (changed bool) {
	for i := range to {
		if c := from[i]; c != to[i] {
			to[i] = c
			changed = true
		}
	}
	return changed
}

// losePower leaves what is on disk, and of the rest what the coins say.
func (f *FS) losePower(coins coins) {
	f.loseNames(coins)
	reached := map[*inode]bool{}
	reach(f.root, reached)
	for _, n := range slices.SortedFunc(maps.Keys(reached), func(a, b *inode) int { return a.number - b.number }) {
		if n.dir {
			n.entries = maps.Clone(n.durable)
		} else {
			n.losePower(coins)
		}
	}
}

// loseNames keeps of each directory's changes the first few: file systems journal them in order.
func (f *FS) loseNames(coins coins) {
	lost := map[*inode]bool{} // this change and all later ones
	for _, c := range f.pending {
		kept := coins.IntN(3) > 0
		for _, e := range c {
			kept = kept && !lost[e.dir]
		}
		if kept {
			c.persist()
			continue
		}
		for _, e := range c {
			lost[e.dir] = true
		}
	}
	f.pending = nil
}

func reach(n *inode, reached map[*inode]bool) {
	if reached[n] {
		return
	}
	reached[n] = true
	for _, child := range n.durable {
		reach(child, reached)
	}
}

func (n *inode) losePower(coins coins) {
	size := len(n.data)
	if n.lenSynced != size && coins.IntN(2) == 0 {
		size = n.lenSynced
	}
	disk := append(make([]byte, 0, size), n.synced[:min(size, len(n.synced))]...)[:size]
	for page := range (size + pageSize - 1) / pageSize {
		losePage(pageOf(disk, page), pageOf(n.data, page), coins)
	}
	pages := (size + pageSize - 1) / pageSize
	n.backed = append(make([]bool, 0, pages), n.backed[:min(pages, len(n.backed))]...)[:pages]
	n.data, n.synced, n.lenSynced = disk, slices.Clone(disk), size
}

// losePage decides between the page on disk, in place, and the one in memory. Either may be the shorter.
func losePage(disk, memory []byte, coins coins) {
	memory = memory[:min(len(memory), len(disk))]
	if slices.Equal(disk[:len(memory)], memory) {
		return
	}
	switch coins.IntN(8) {
	case 0, 1, 2: // the old one
	case 3, 4, 5:
		copy(disk, memory)
	default:
		for at := 0; at < len(memory); at += sectorSize {
			if coins.IntN(2) == 0 {
				copy(disk[at:min(at+sectorSize, len(disk))], memory[at:])
			}
		}
	}
}

// countUsed counts the blocks of what can be reached: files that were removed but open give theirs back.
func (f *FS) countUsed() {
	f.used = 0
	walk(f.root, "/", func(_ string, n *inode) {
		for _, backed := range n.backed {
			if backed {
				f.used += pageSize
			}
		}
	})
}
