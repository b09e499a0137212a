// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"

	"loopmq/storage"
	"loopmq/storage/message"
)

// seamCheck looks at the first bytes that a RocketMQ master sends, before they are appended. Such a master compares
// nothing, so all that can be asked is that the record which spans the seam is whole, checksum and all, and that the
// next one says it lies where it does. Bytes are held back until the spanning record is there: at most one record.
type seamCheck struct {
	store Store
	start storage.PhyOffset // of the record that the log's end may lie in
	from  storage.PhyOffset // log's end at the connect: where held bytes begin
	bytes []byte            // from start on: what the log has of the record, then what the master sent
}

// recordSizeMax bounds what is held back: the largest body that a broker can be told to accept, with room for the rest.
const recordSizeMax = 32 << 20

func newSeamCheck(store Store) *seamCheck { return &seamCheck{store: store, start: -1} }

func (s *seamCheck) heldBytes() int {
	if s.start < 0 {
		return 0
	}
	return len(s.bytes) - int(s.from-s.start)
}

// held is what was held back, and where it belongs.
func (s *seamCheck) held() (storage.PhyOffset, []byte) {
	return s.from, s.bytes[s.from-s.start:]
}

// take adds a body that begins at offset; joined says that all that is held may be appended.
func (s *seamCheck) take(offset storage.PhyOffset, body []byte) (joined bool, err error) {
	if s.start < 0 {
		if err := s.begin(offset); err != nil {
			return false, err
		}
	}
	s.bytes = append(s.bytes, body...)
	size, magic, ok := message.Peek(s.bytes)
	switch {
	case !ok:
		return false, nil // not even a head
	case magic == message.MagicBlank:
		return true, nil
	case magic != message.MagicV1 && magic != message.MagicV2, size < recordHeadSize, size > recordSizeMax:
		return false, fmt.Errorf("the master's bytes at %d do not join this log: no record begins at %d", s.from, s.start)
	case len(s.bytes) < size:
		return false, nil
	}
	var r message.Record
	if err := message.Decode(s.bytes[:size], &r); err != nil {
		return false, fmt.Errorf("the master's bytes at %d do not join this log: record at %d: %w", s.from, s.start, err)
	}
	if r.PhysicalOffset != int64(s.start) {
		return false, fmt.Errorf("the master's bytes at %d do not join this log: the record at %d says it lies at %d", s.from, s.start, r.PhysicalOffset)
	}
	if err := message.CheckCRC(&r); err != nil {
		return false, fmt.Errorf("the master's bytes at %d do not join this log: record at %d: %w", s.from, s.start, err)
	}
	return true, nil
}

// begin finds the record that the log's end lies in, and takes the piece of it that is here.
func (s *seamCheck) begin(offset storage.PhyOffset) error {
	s.from, s.start = offset, offset
	end := s.store.MaxPhyOffset()
	if end == 0 {
		return nil
	}
	at := end - storage.PhyOffset(s.store.DispatchBehindBytes())
	for at < end {
		sel, ok := s.store.Select(at, int(end-at))
		if !ok {
			return fmt.Errorf("bytes from %d of this log cannot be read", at)
		}
		size, _, whole := message.Peek(sel.Bytes())
		if !whole || size > len(sel.Bytes()) {
			s.bytes = append(s.bytes, sel.Bytes()...)
			sel.Release()
			break
		}
		sel.Release()
		if size <= 0 {
			return fmt.Errorf("no record at %d of this log", at)
		}
		at += storage.PhyOffset(size)
	}
	s.start = at
	return nil
}
