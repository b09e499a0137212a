// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Record is one message of a pull's answer; the slices borrow it. The decoder is this package's own: what is to find out
// whether a broker stores right must not share its idea of the bytes. Source: MessageDecoder#decode.
type Record struct {
	QueueID        int32
	QueueOffset    int64
	PhysicalOffset int64
	SysFlag        int32
	BornTimestamp  int64 // milliseconds
	StoreTimestamp int64
	Topic          []byte
	Body           []byte
	Properties     []byte
	crc            uint32
}

// ErrRecord means bytes that are no message.
var ErrRecord = errors.New("malformed message in an answer")

const (
	recordMagicV1 = 0xdaa320a7
	recordMagicV2 = 0xdaa320ab // the topic's length has two bytes

	recordQueueAt      = 12
	recordQueueOffset  = 20
	recordPhysical     = 28
	recordSysFlag      = 36
	recordBornTime     = 40
	recordBornHost     = 48
	recordAfterHosts   = 4 + 8 // reconsume times, offset of the prepared message
	recordBornHostIsV6 = 1 << 4
	recordStoreHostV6  = 1 << 5
	hostV4             = 4 + 4
	hostV6             = 16 + 4
	recordSizeMin      = recordBornHost + hostV4 + 8 + hostV4 + recordAfterHosts + 4 + 1 + 2
)

// NextRecord cuts the first message off the body of an answer.
func NextRecord(b []byte, r *Record) (rest []byte, err error) {
	if len(b) < recordSizeMin {
		return nil, fmt.Errorf("%w: %d bytes left", ErrRecord, len(b))
	}
	be := binary.BigEndian
	size, magic := int(int32(be.Uint32(b))), be.Uint32(b[4:])
	if size < recordSizeMin || size > len(b) || magic != recordMagicV1 && magic != recordMagicV2 {
		return nil, fmt.Errorf("%w: size %d, magic %#x, %d bytes left", ErrRecord, size, magic, len(b))
	}
	b, rest = b[:size:size], b[size:]
	r.crc = be.Uint32(b[8:])
	r.QueueID = int32(be.Uint32(b[recordQueueAt:]))
	r.QueueOffset = int64(be.Uint64(b[recordQueueOffset:]))
	r.PhysicalOffset = int64(be.Uint64(b[recordPhysical:]))
	r.SysFlag = int32(be.Uint32(b[recordSysFlag:]))
	r.BornTimestamp = int64(be.Uint64(b[recordBornTime:]))
	at := recordBornHost + hostSize(r.SysFlag&recordBornHostIsV6 != 0)
	storeHost := hostSize(r.SysFlag&recordStoreHostV6 != 0)
	if at+8+storeHost+recordAfterHosts+4+1+2 > size {
		return nil, fmt.Errorf("%w: size %d with system flag %#x", ErrRecord, size, r.SysFlag)
	}
	r.StoreTimestamp = int64(be.Uint64(b[at:]))
	return rest, r.variable(b, at+8+storeHost+recordAfterHosts, magic == recordMagicV2)
}

func hostSize(v6 bool) int {
	if v6 {
		return hostV6
	}
	return hostV4
}

// variable reads body, topic and properties from at on, where the four bytes of a length are.
func (r *Record) variable(b []byte, at int, wideTopic bool) error {
	be := binary.BigEndian
	var ok bool
	if r.Body, at, ok = cut(b, at+4, int(int32(be.Uint32(b[at:])))); !ok || at+1 > len(b) {
		return fmt.Errorf("%w: the body does not fit into %d bytes", ErrRecord, len(b))
	}
	topic := int(int8(b[at]))
	at++
	if wideTopic {
		if at == len(b) {
			return fmt.Errorf("%w: no topic in %d bytes", ErrRecord, len(b))
		}
		topic = int(int16(be.Uint16(b[at-1:])))
		at++
	}
	if r.Topic, at, ok = cut(b, at, topic); !ok || at+2 > len(b) {
		return fmt.Errorf("%w: the topic does not fit into %d bytes", ErrRecord, len(b))
	}
	if r.Properties, at, ok = cut(b, at+2, int(int16(be.Uint16(b[at:])))); !ok || at != len(b) {
		return fmt.Errorf("%w: the properties end at %d of %d bytes", ErrRecord, at, len(b))
	}
	return nil
}

func cut(b []byte, at, n int) (part []byte, end int, ok bool) {
	if n < 0 || at > len(b) || n > len(b)-at {
		return nil, at, false
	}
	return b[at : at+n : at+n], at + n, true
}

// Intact says whether the body has the checksum it was stored with.
func (r *Record) Intact() bool {
	return crc32.ChecksumIEEE(r.Body)&0x7fffffff == r.crc
}
