// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

var (
	// ErrBlank means the filler at the end of a file: Record.Size bytes to skip, no message.
	ErrBlank = errors.New("blank record")
	// ErrUnwritten means that length and magic are zero: nothing was ever stored here.
	ErrUnwritten = errors.New("no record")
	// ErrTruncated means that the record is longer than the bytes at hand.
	ErrTruncated = errors.New("truncated record")
	// ErrMalformed means bytes that no writer of records leaves behind.
	ErrMalformed = errors.New("malformed record")
	// ErrCRC means a body that is not the one that was stored.
	ErrCRC = errors.New("body checksum mismatch")
)

// Peek reads the first eight bytes of a record: its size, unchecked, and magic. ok is false when there are fewer.
func Peek(b []byte) (size int, magic uint32, ok bool) {
	if len(b) < BlankSize {
		return 0, 0, false
	}
	return int(int32(binary.BigEndian.Uint32(b))), binary.BigEndian.Uint32(b[4:]), true
}

// Decode reads the record at the start of b, which may go on behind it. All lengths are checked against each other
// and against b; the checksum is CheckCRC's matter, and whether the offsets fit the place is the caller's. The slices
// in r point into b. On ErrBlank only r.Size is set; on any other error r is to be ignored.
func Decode(b []byte, r *Record) error {
	size, magic, ok := Peek(b)
	if !ok {
		return fmt.Errorf("%d bytes left: %w", len(b), ErrTruncated)
	}
	switch magic {
	case MagicV1, MagicV2:
	case MagicBlank:
		return decodeBlank(size, r)
	default:
		return noRecord(size, magic)
	}
	if size < recordSizeMin {
		return fmt.Errorf("%w: size %d", ErrMalformed, size)
	}
	if size > len(b) {
		return fmt.Errorf("size %d, %d bytes left: %w", size, len(b), ErrTruncated)
	}
	b = b[:size:size]
	decodeFixed(b, r)
	at, ok := decodeHosts(b, r)
	if !ok {
		return fmt.Errorf("%w: size %d with system flag %#x", ErrMalformed, size, r.SysFlag)
	}
	return decodeVariable(b, at, magic, r)
}

func decodeBlank(size int, r *Record) error {
	if size < BlankSize {
		return fmt.Errorf("%w: blank of size %d", ErrMalformed, size)
	}
	*r = Record{Size: size}
	return ErrBlank
}

func noRecord(size int, magic uint32) error {
	if size == 0 && magic == 0 {
		return ErrUnwritten
	}
	return fmt.Errorf("%w: magic %#x, size %d", ErrMalformed, magic, size)
}

func decodeFixed(b []byte, r *Record) {
	be := binary.BigEndian
	r.Size = len(b)
	r.BodyCRC = be.Uint32(b[8:])
	r.QueueID = int32(be.Uint32(b[QueueIDPosition:]))
	r.Flag = int32(be.Uint32(b[16:]))
	r.QueueOffset = int64(be.Uint64(b[QueueOffsetPosition:]))
	r.PhysicalOffset = int64(be.Uint64(b[PhysicalOffsetPosition:]))
	r.SysFlag = int32(be.Uint32(b[SysFlagPosition:]))
	r.BornTimestamp = int64(be.Uint64(b[BornTimestampPosition:]))
}

// decodeHosts reads from BORNHOST to PREPAREDOFFSET and returns where BODYLENGTH is; ok is false if that lies outside.
func decodeHosts(b []byte, r *Record) (at int, ok bool) {
	be := binary.BigEndian
	bornV6, storeV6 := r.SysFlag&FlagBornHostV6 != 0, r.SysFlag&FlagStoreHostV6 != 0
	if len(b) < recordSizeMin+v6Extra(bornV6)+v6Extra(storeV6) {
		return 0, false
	}
	at = bornHostPosition
	r.BornHost = hostAt(b[at:], bornV6)
	at += hostSizeV4 + v6Extra(bornV6)
	r.StoreTimestamp = int64(be.Uint64(b[at:]))
	at += 8
	r.StoreHost = hostAt(b[at:], storeV6)
	at += hostSizeV4 + v6Extra(storeV6)
	r.ReconsumeTimes = int32(be.Uint32(b[at:]))
	r.PreparedTransactionOffset = int64(be.Uint64(b[at+4:]))
	return at + 12, true
}

func decodeVariable(b []byte, at int, magic uint32, r *Record) error {
	be := binary.BigEndian
	var ok bool
	bodyLength := int(int32(be.Uint32(b[at:])))
	if r.Body, at, ok = take(b, at+4, bodyLength); !ok || at == len(b) {
		return fmt.Errorf("%w: body of %d bytes in %d", ErrMalformed, bodyLength, len(b))
	}
	// Java reads both lengths as signed: a negative one never comes from a writer.
	topicLength := int(int8(b[at]))
	at++
	if magic == MagicV2 {
		if at == len(b) {
			return fmt.Errorf("%w: no topic in %d bytes", ErrMalformed, len(b))
		}
		topicLength = int(int16(be.Uint16(b[at-1:])))
		at++
	}
	if r.Topic, at, ok = take(b, at, topicLength); !ok || at+2 > len(b) {
		return fmt.Errorf("%w: topic of %d bytes in %d", ErrMalformed, topicLength, len(b))
	}
	propertiesLength := int(int16(be.Uint16(b[at:])))
	if r.Properties, at, ok = take(b, at+2, propertiesLength); !ok || at != len(b) {
		return fmt.Errorf("%w: properties of %d bytes end at %d of %d", ErrMalformed, propertiesLength, at, len(b))
	}
	return nil
}

// take cuts n bytes out of b and returns where they end.
func take(b []byte, at, n int) (part []byte, end int, ok bool) {
	if n < 0 || n > len(b)-at {
		return nil, at, false
	}
	return b[at : at+n : at+n], at + n, true
}

func v6Extra(v6 bool) int {
	if v6 {
		return hostSizeV6 - hostSizeV4
	}
	return 0
}

// hostAt keeps the low 16 bits of the port. A recovering Java broker does not look at it, so a strange one is no
// reason to cut the log.
func hostAt(b []byte, v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), uint16(binary.BigEndian.Uint32(b[16:])))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), uint16(binary.BigEndian.Uint32(b[4:])))
}

// CheckCRC compares the body of a decoded record with its checksum. An empty body has none, as in
// CommitLog#checkMessageAndReturnSize.
func CheckCRC(r *Record) error {
	if len(r.Body) == 0 {
		return nil
	}
	if got := bodyCRC(r.Body); got != r.BodyCRC {
		return fmt.Errorf("%w: stored %#x, computed %#x", ErrCRC, r.BodyCRC, got)
	}
	return nil
}

// The functions below read one field of an encoded record, whose whole length the caller has checked.

// QueueID reads QUEUEID.
func QueueID(b []byte) int32 { return int32(binary.BigEndian.Uint32(b[QueueIDPosition:])) }

// QueueOffset reads QUEUEOFFSET.
func QueueOffset(b []byte) int64 { return int64(binary.BigEndian.Uint64(b[QueueOffsetPosition:])) }

// PhysicalOffset reads PHYSICALOFFSET.
func PhysicalOffset(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b[PhysicalOffsetPosition:]))
}

// SysFlag reads SYSFLAG.
func SysFlag(b []byte) int32 { return int32(binary.BigEndian.Uint32(b[SysFlagPosition:])) }

// StoreTimestamp reads STORETIMESTAMP, behind a born host of either length.
func StoreTimestamp(b []byte) int64 {
	return int64(binary.BigEndian.Uint64(b[storeTimestampPosition(b):]))
}

func storeTimestampPosition(b []byte) int {
	return bornHostPosition + hostSizeV4 + v6Extra(SysFlag(b)&FlagBornHostV6 != 0)
}
