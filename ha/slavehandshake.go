// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/binary"
	"fmt"

	"loopmq/storage"
	"loopmq/storage/message"
)

const (
	// recordHeadSize is TOTALSIZE and MAGICCODE, all that a BLANK record has.
	recordHeadSize = 8
	// recordIdentitySize holds what no two records have in common: checksum, place, queue, and the times of birth and storing.
	recordIdentitySize = 64
	// scanStep is how much of the log is looked through at a time for the head of a record.
	scanStep = 64 << 10
)

// comparison finds the last common record of two logs by questions for hashes. It is a step function: next says what
// to ask, answer takes the outcome. All offsets are of the range [low, high) that both logs have; low is a record's
// start.
//
// Every question begins at the head of a record, which names its place, its times and the checksum of its body: bodies
// and properties alone may be the same in two histories, heads are not. Below the record at which two histories part
// everything is equal, and behind it no record is, so halving finds it.
type comparison struct {
	store     Store
	low, high storage.PhyOffset

	// Records that begin below lo are equal; the one that begins at hi differs, unless hi is high.
	lo, hi  storage.PhyOffset
	started bool // something was asked

	asked          storage.PhyOffset // the record in question
	askFrom, askTo storage.PhyOffset
}

func newComparison(store Store, low, high storage.PhyOffset) *comparison {
	return &comparison{store: store, low: low, high: high, lo: low, hi: high}
}

// next is the range to compare next; done when the answer is known. It reads mapped pages.
func (c *comparison) next() (from, to storage.PhyOffset, done bool, err error) {
	if c.lo >= c.hi {
		return 0, 0, true, nil
	}
	limit := c.lo + (c.hi-c.lo)/2
	if !c.started {
		limit = c.high - recordIdentitySize // the normal case: the last record settles it
	}
	if c.asked, err = headAtOrBelow(c.store, limit, c.lo); err != nil {
		return 0, 0, false, err
	}
	to, filler := c.recordEnd()
	if filler {
		to = c.asked + recordHeadSize // behind the head of a filler lies anything
	}
	c.askFrom, c.askTo = c.asked, min(to, c.asked+hashBlockSize, c.high)
	return c.askFrom, c.askTo, false, nil
}

// answer takes whether both logs have the bytes asked for, and the same.
func (c *comparison) answer(equal bool) {
	c.started = true
	if equal {
		c.lo, _ = c.recordEnd()
	} else {
		c.hi = c.asked
	}
}

// recordEnd is where the record in question ends; high for the piece of one that the log ends with.
func (c *comparison) recordEnd() (end storage.PhyOffset, filler bool) {
	size, magic, err := headAt(c.store, c.asked)
	if err != nil {
		return c.high, false
	}
	return min(c.asked+storage.PhyOffset(size), c.high), magic == message.MagicBlank
}

// parted is the start of the first record that differs; high when none does.
func (c *comparison) parted() storage.PhyOffset { return c.hi }

// headAt is size and magic code of the record at offset.
func headAt(store Store, offset storage.PhyOffset) (size int, magic uint32, err error) {
	err = reading(func() error {
		sel, ok := store.Select(offset, recordHeadSize)
		if !ok {
			return fmt.Errorf("byte %d of this log cannot be read", offset)
		}
		defer sel.Release()
		if size, magic, ok = message.Peek(sel.Bytes()); !ok || size < recordHeadSize {
			return fmt.Errorf("no record at %d of this log", offset)
		}
		return nil
	})
	return size, magic, err
}

// headAtOrBelow is the last start of a record at or below limit, floor at least, which is one. It needs no way from
// record to record: the start of a record says that it lies where it does.
func headAtOrBelow(store Store, limit, floor storage.PhyOffset) (at storage.PhyOffset, err error) {
	at = floor
	err = reading(func() error {
		for end := limit + 1; end > floor; {
			from := max(floor, end-scanStep)
			if found, ok := lastHead(store, from, end); ok {
				at = found
				return nil
			}
			end = from
		}
		return nil
	})
	return at, err
}

// lastHead is the last start of a record in [from, end).
func lastHead(store Store, from, end storage.PhyOffset) (last storage.PhyOffset, ok bool) {
	const identified = message.PhysicalOffsetPosition + 8
	for at := from; at < end; {
		sel, found := store.Select(at, int(end-at)+identified)
		if !found {
			return last, ok
		}
		b := sel.Bytes()
		n := len(b) - identified + 1 // beginnings that can be judged
		for i := 0; i < n && at+storage.PhyOffset(i) < end; i++ {
			if magic := binary.BigEndian.Uint32(b[i+4:]); magic != message.MagicV1 && magic != message.MagicV2 {
				continue
			}
			if message.PhysicalOffset(b[i:]) == int64(at)+int64(i) {
				last, ok = at+storage.PhyOffset(i), true
			}
		}
		at += storage.PhyOffset(len(b)) // the end of a file, where no record begins, or of what was asked for
		sel.Release()
	}
	return last, ok
}

// recordStart is the start of the record of the log that holds the byte at offset, found from the start of its file.
func recordStart(store Store, offset, fileSize storage.PhyOffset) (storage.PhyOffset, error) {
	at := max(offset-offset%fileSize, store.MinPhyOffset())
	err := reading(func() error {
		for at < offset {
			sel, ok := store.Select(at, recordHeadSize)
			size, _, whole := message.Peek(sel.Bytes())
			sel.Release()
			switch {
			case !ok || !whole:
				return nil // the piece of a record at the log's end
			case size < recordHeadSize || storage.PhyOffset(size) > fileSize:
				return fmt.Errorf("record at %d of this log has a size of %d", at, size)
			case at+storage.PhyOffset(size) > offset:
				return nil
			}
			at += storage.PhyOffset(size)
		}
		return nil
	})
	return at, err
}

// reading runs what reads mapped pages. One that the disk does not give is an error.
func reading(read func() error) (err error) {
	if fault := storage.Guard(func() { err = read() }); fault != nil {
		return fmt.Errorf("%w: %w", errUnreadable, fault)
	}
	return err
}
