// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"

	"loopmq/storage"
	"loopmq/storage/message"
)

// seamCheck looks at the first bytes that a RocketMQ master sends, before they are appended. Such a master compares
// nothing, so all that can be asked is that the record which spans the seam is whole, checksum and all, and that the
// one after it says it lies where it does. Bytes are held back until the record that they belong to has been looked at.
type seamCheck struct {
	store Store
	left  int               // records to look at; -1 before the first byte
	start storage.PhyOffset // of the next of them
	has   int               // how much of it is in the log
	bytes []byte            // from start on: what the log has, then what the master sent
}

// recordSizeMax bounds what is held back: the largest body that a broker can be told to accept, with room for the rest.
const recordSizeMax = 32 << 20

func newSeamCheck(store Store) *seamCheck { return &seamCheck{store: store, left: -1} }

func (s *seamCheck) done() bool { return s.left == 0 }

// take adds a body that begins at offset and returns what may be appended now, and where.
func (s *seamCheck) take(offset storage.PhyOffset, body []byte) (at storage.PhyOffset, free []byte, err error) {
	if s.left < 0 {
		if err := reading(func() error { return s.begin(offset) }); err != nil {
			return 0, nil, err
		}
	}
	s.bytes = append(s.bytes, body...)
	joined := 0
	for s.left > 0 {
		size, err := s.look(joined)
		if err != nil {
			return 0, nil, fmt.Errorf("the master's bytes at %d do not join this log: %w", s.start+storage.PhyOffset(s.has), err)
		}
		if size == 0 {
			break
		}
		joined += size
		s.left--
	}
	if s.left == 0 {
		joined = len(s.bytes)
	}
	if joined == 0 {
		return 0, nil, nil
	}
	at, free = s.start+storage.PhyOffset(s.has), s.bytes[s.has:joined]
	s.start, s.bytes, s.has = s.start+storage.PhyOffset(joined), s.bytes[joined:], 0
	return at, free, nil
}

// look judges the record at a position of the bytes; size 0 says that not all of it is there.
func (s *seamCheck) look(position int) (size int, err error) {
	b, at := s.bytes[position:], s.start+storage.PhyOffset(position)
	if _, magic, ok := message.Peek(b); ok && magic == message.MagicBlank {
		s.left = 1 // what follows it is another file
		return len(b), nil
	}
	return wholeRecord(b, at)
}

// wholeRecord looks at the record that b begins with, checksum and all; size 0 says that not all of it is there.
func wholeRecord(b []byte, at storage.PhyOffset) (size int, err error) {
	size, magic, ok := message.Peek(b)
	switch {
	case !ok:
		return 0, nil
	case magic != message.MagicV1 && magic != message.MagicV2, size < recordHeadSize, size > recordSizeMax:
		return 0, fmt.Errorf("no record begins at %d", at)
	case len(b) < size:
		return 0, nil
	}
	var r message.Record
	if err := message.Decode(b[:size], &r); err != nil {
		return 0, fmt.Errorf("record at %d: %w", at, err)
	}
	if r.PhysicalOffset != int64(at) {
		return 0, fmt.Errorf("the record at %d says it lies at %d", at, r.PhysicalOffset)
	}
	if err := message.CheckCRC(&r); err != nil {
		return 0, fmt.Errorf("record at %d: %w", at, err)
	}
	return size, nil
}

// begin finds the record that the log's end lies in, and takes the piece of it that is here.
func (s *seamCheck) begin(offset storage.PhyOffset) error {
	s.start, s.left = offset, 1
	end := s.store.MaxPhyOffset()
	if end != offset {
		return nil // an empty log
	}
	for at := end - storage.PhyOffset(s.store.DispatchBehindBytes()); at < end; {
		sel, ok := s.store.Select(at, int(end-at))
		if !ok {
			return fmt.Errorf("bytes from %d of this log cannot be read", at)
		}
		size, _, whole := message.Peek(sel.Bytes())
		if !whole || size > len(sel.Bytes()) {
			s.start, s.left = at, 2
			s.bytes = append(s.bytes, sel.Bytes()...)
			s.has = len(s.bytes)
			sel.Release()
			return nil
		}
		sel.Release()
		if size < recordHeadSize {
			return fmt.Errorf("no record at %d of this log", at)
		}
		at += storage.PhyOffset(size)
	}
	return nil
}
