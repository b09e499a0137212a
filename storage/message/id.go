// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
)

// Lengths of an offset message id in text.
const (
	OffsetMessageIDLengthV4 = 2 * (hostSizeV4 + 8)
	OffsetMessageIDLengthV6 = 2 * (hostSizeV6 + 8)
)

const upperHex = "0123456789ABCDEF"

// AppendOffsetMessageID appends the id of the message at a physical offset of the broker at storeHost.
// Source: MessageDecoder#createMessageId.
func AppendOffsetMessageID(dst []byte, storeHost netip.AddrPort, offset int64) []byte {
	var id [hostSizeV6 + 8]byte
	n := putHost(id[:], storeHost)
	binary.BigEndian.PutUint64(id[n:], uint64(offset))
	for _, c := range id[:n+8] {
		dst = append(dst, upperHex[c>>4], upperHex[c&0xF])
	}
	return dst
}

// ParseOffsetMessageID is the reverse; digits may be of either case. A client's unique key has the same length and
// often parses too, to a host and an offset that mean nothing.
func ParseOffsetMessageID(id string) (storeHost netip.AddrPort, offset int64, err error) {
	if len(id) != OffsetMessageIDLengthV4 && len(id) != OffsetMessageIDLengthV6 {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %.60q has %d characters, want %d or %d",
			id, len(id), OffsetMessageIDLengthV4, OffsetMessageIDLengthV6)
	}
	b, err := hex.DecodeString(id)
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q: %w", id, err)
	}
	host := b[:len(b)-8]
	offset = int64(binary.BigEndian.Uint64(b[len(host):]))
	port := binary.BigEndian.Uint32(host[len(host)-4:])
	if port > math.MaxUint16 || offset < 0 {
		return netip.AddrPort{}, 0, fmt.Errorf("message id %q: port %d, offset %d", id, port, offset)
	}
	return hostAt(host, len(host) == hostSizeV6), offset, nil
}
