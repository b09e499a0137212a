// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"loopmq/storage"
)

// comparison finds the last common record of two logs by questions for hashes. It is a step function: next says what
// to ask, answer takes the two hashes of it. All offsets are of the range [low, high) that both logs have.
//
// Below the point where two histories part everything is equal and behind it no block is, so halving finds it.
type comparison struct {
	low, high storage.PhyOffset

	// The first byte that differs lies in [from, to); unset until the last block was found to differ.
	from, to storage.PhyOffset
	started  bool
	differs  bool

	askFrom, askTo storage.PhyOffset
}

func newComparison(low, high storage.PhyOffset) *comparison {
	return &comparison{low: low, high: high, from: low, to: high}
}

// next is the range to compare next; done when the answer is known.
func (c *comparison) next() (from, to storage.PhyOffset, done bool) {
	switch {
	case !c.started:
		// The normal case: one question, the last block.
		c.askFrom, c.askTo = c.blockBefore(c.high), c.high
	case !c.differs || c.to-c.from == 1:
		return 0, 0, true
	case c.to-c.from > hashBlockSize:
		// Halve by whole blocks: ask for the block that ends in the middle.
		blocks := (c.to - c.from + hashBlockSize - 1) / hashBlockSize
		c.askTo = c.from + blocks/2*hashBlockSize
		c.askFrom = c.askTo - hashBlockSize
	default:
		c.askFrom, c.askTo = c.from, c.from+(c.to-c.from)/2
	}
	return c.askFrom, c.askTo, false
}

// blockBefore is the start of the block, counted from low, that ends at or holds the byte before to.
func (c *comparison) blockBefore(to storage.PhyOffset) storage.PhyOffset {
	return c.low + (to-1-c.low)/hashBlockSize*hashBlockSize
}

func (c *comparison) answer(equal bool) {
	switch {
	case !c.started:
		c.started = true
		c.differs = !equal
	case equal:
		c.from = c.askTo
	default:
		c.to = c.askTo
	}
}

// parted is the first offset at which the logs differ; high when they do not.
func (c *comparison) parted() storage.PhyOffset {
	if !c.differs {
		return c.high
	}
	return c.from
}

// recordStart is the start of the record of the log that holds the byte at offset, found from the start of its file. It
// reads mapped pages: not for an event loop.
func recordStart(store Store, offset, fileSize storage.PhyOffset) (storage.PhyOffset, error) {
	at := max(offset-offset%fileSize, store.MinPhyOffset())
	for {
		sel, ok := store.Select(at, recordHeadSize)
		if !ok || len(sel.Bytes()) < recordHeadSize {
			sel.Release()
			return at, nil // the piece of a record at the log's end
		}
		size := storage.PhyOffset(int32(binary.BigEndian.Uint32(sel.Bytes())))
		sel.Release()
		if size < recordHeadSize || size > fileSize {
			return 0, fmt.Errorf("record at %d has a size of %d", at, size)
		}
		if at+size > offset {
			return at, nil
		}
		at += size
	}
}

// recordHeadSize is TOTALSIZE and MAGICCODE, all that a BLANK record has.
const recordHeadSize = 8

// equalHash says whether the master has the bytes, and the same.
func equalHash(mine, masters [sha256.Size]byte) bool {
	return mine == masters && masters != [sha256.Size]byte{}
}
