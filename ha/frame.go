// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/binary"
	"errors"
	"fmt"

	"loopmq/storage"
)

const (
	// reportSize is a slave's report of its log end.
	reportSize = 8
	// frameHeaderSize is physicOffset and bodySize.
	frameHeaderSize = 8 + 4
	// readBufferMax is the size of byteBufferRead and byteBufferBackup. Source: HAClient#READ_MAX_BUFFER_SIZE.
	readBufferMax = 4 << 20
	// frameBodyMax: a larger frame could never be whole in a slave's buffer, RocketMQ's included.
	frameBodyMax = readBufferMax - frameHeaderSize
	// TransferBatchSizeMax bounds haTransferBatchSize.
	TransferBatchSizeMax = frameBodyMax
	// handshakeBodyMax bounds the body of a handshake message, tailBodyMax that of the one kind that carries log.
	handshakeBodyMax = 4 << 10
	tailBodyMax      = tailPieceMax + 8
)

// ErrProtocol marks bytes that no peer should send.
var ErrProtocol = errors.New("ha: protocol violated")

// frameHeader begins every frame, and with a negative phyOffset every handshake message.
type frameHeader struct {
	phyOffset storage.PhyOffset
	bodySize  int32
}

// decodeFrameHeader reads the first frameHeaderSize bytes of b and believes nothing.
func decodeFrameHeader(b []byte) (h frameHeader, err error) {
	h.phyOffset = storage.PhyOffset(binary.BigEndian.Uint64(b))
	h.bodySize = int32(binary.BigEndian.Uint32(b[8:frameHeaderSize]))
	limit := int32(frameBodyMax)
	if h.phyOffset < 0 {
		if !isHandshake(int64(h.phyOffset)) {
			return h, fmt.Errorf("%w: frame at offset %d", ErrProtocol, h.phyOffset)
		}
		limit = handshakeBodyMax
		if _, kind := handshakeOf(int64(h.phyOffset)); kind == kindTail {
			limit = tailBodyMax
		}
	}
	if h.bodySize < 0 || h.bodySize > limit {
		return h, fmt.Errorf("%w: frame at offset %d with a body of %d bytes, at most %d", ErrProtocol, h.phyOffset, h.bodySize, limit)
	}
	return h, nil
}

func (h frameHeader) encode(b *[frameHeaderSize]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(h.phyOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(h.bodySize))
}
