// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
)

const (
	hostSizeV4 = 4 + 4
	hostSizeV6 = 16 + 4

	bornHostPosition = 48

	// recordSizeMin is the size of a V1 record with two IPv4 hosts, without body, topic and properties.
	recordSizeMin = 91

	crcMask = 0x7FFFFFFF
)

// RecordSize is the number of bytes AppendRecord writes.
func RecordSize(r *Record) int {
	return recordSizeMin - 2*hostSizeV4 + hostSize(r.BornHost) + hostSize(r.StoreHost) +
		len(r.Body) + len(r.Topic) + len(r.Properties)
}

// AppendRecord appends r as a V1 record. BODYCRC and the host bits of SYSFLAG are computed, Size and BodyCRC of r are
// not looked at. A topic or properties beyond the limits of the format are a bug of the caller, who has refused them.
func AppendRecord(dst []byte, r *Record) []byte {
	if len(r.Topic) > TopicLengthMax || len(r.Properties) > PropertiesLengthMax {
		panic(fmt.Sprintf("BUG: record with a topic of %d and properties of %d bytes", len(r.Topic), len(r.Properties)))
	}
	size := RecordSize(r)
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	b := dst[start:]
	be := binary.BigEndian

	be.PutUint32(b, uint32(size))
	be.PutUint32(b[4:], MagicV1)
	be.PutUint32(b[8:], bodyCRC(r.Body))
	be.PutUint32(b[QueueIDPosition:], uint32(r.QueueID))
	be.PutUint32(b[16:], uint32(r.Flag))
	be.PutUint64(b[QueueOffsetPosition:], uint64(r.QueueOffset))
	be.PutUint64(b[PhysicalOffsetPosition:], uint64(r.PhysicalOffset))
	be.PutUint32(b[SysFlagPosition:], uint32(hostFlags(r)))
	be.PutUint64(b[BornTimestampPosition:], uint64(r.BornTimestamp))
	at := bornHostPosition + putHost(b[bornHostPosition:], r.BornHost)
	be.PutUint64(b[at:], uint64(r.StoreTimestamp))
	at += 8
	at += putHost(b[at:], r.StoreHost)
	be.PutUint32(b[at:], uint32(r.ReconsumeTimes))
	be.PutUint64(b[at+4:], uint64(r.PreparedTransactionOffset))
	be.PutUint32(b[at+12:], uint32(len(r.Body)))
	at += 16
	at += copy(b[at:], r.Body)
	b[at] = byte(len(r.Topic))
	at++
	at += copy(b[at:], r.Topic)
	be.PutUint16(b[at:], uint16(len(r.Properties)))
	copy(b[at+2:], r.Properties)
	return dst
}

// AppendBlank appends the filler that ends a file with size bytes left. Only its head is ever written.
func AppendBlank(dst []byte, size int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	return binary.BigEndian.AppendUint32(dst, MagicBlank)
}

// BlankSize is what AppendBlank appends, and what a record must leave free at the end of its file.
const BlankSize = 8

// SetQueueOffset fills in QUEUEOFFSET of an encoded record.
func SetQueueOffset(b []byte, offset int64) {
	binary.BigEndian.PutUint64(b[QueueOffsetPosition:], uint64(offset))
}

// SetPhysicalOffset fills in PHYSICALOFFSET of an encoded record.
func SetPhysicalOffset(b []byte, offset int64) {
	binary.BigEndian.PutUint64(b[PhysicalOffsetPosition:], uint64(offset))
}

// SetStoreTimestamp fills in STORETIMESTAMP of an encoded record, behind a born host of either length.
func SetStoreTimestamp(b []byte, ms int64) {
	binary.BigEndian.PutUint64(b[storeTimestampPosition(b):], uint64(ms))
}

// isV6 takes an IPv4 address in IPv6 form for IPv4, as Java's InetAddress does.
func isV6(host netip.AddrPort) bool {
	return host.Addr().Is6() && !host.Addr().Is4In6()
}

func hostSize(host netip.AddrPort) int {
	if isV6(host) {
		return hostSizeV6
	}
	return hostSizeV4
}

func hostFlags(r *Record) int32 {
	flags := r.SysFlag &^ (FlagBornHostV6 | FlagStoreHostV6)
	if isV6(r.BornHost) {
		flags |= FlagBornHostV6
	}
	if isV6(r.StoreHost) {
		flags |= FlagStoreHostV6
	}
	return flags
}

// putHost writes address and port and returns how many bytes that took. The zero AddrPort becomes 0.0.0.0:0.
func putHost(b []byte, host netip.AddrPort) int {
	addr := host.Addr()
	size := hostSizeV4
	switch {
	case isV6(host):
		as16 := addr.As16()
		copy(b, as16[:])
		size = hostSizeV6
	case addr.IsValid():
		as4 := addr.Unmap().As4()
		copy(b, as4[:])
	default:
		binary.BigEndian.PutUint32(b, 0)
	}
	binary.BigEndian.PutUint32(b[size-4:], uint32(host.Port()))
	return size
}

func bodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & crcMask }
