// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBatch means a batch body that cannot be cut into messages.
var ErrBatch = errors.New("malformed batch")

// batchElementSizeMin is an element without body and properties: five numbers of four bytes and one of two.
const batchElementSizeMin = 5*4 + 2

// BatchElement is one message of a batch, as its sender encodes it. The slices point into the batch.
// Source: MessageDecoder#encodeMessage.
type BatchElement struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// NextBatchElement cuts the first message off a batch body. Size, magic and checksum, the first three numbers, are
// passed over as in Java: senders leave what they like there.
func NextBatchElement(batch []byte) (e BatchElement, rest []byte, err error) {
	if len(batch) < batchElementSizeMin {
		return e, nil, fmt.Errorf("%w: %d bytes left", ErrBatch, len(batch))
	}
	be := binary.BigEndian
	e.Flag = int32(be.Uint32(batch[12:]))
	bodyLength := int(int32(be.Uint32(batch[16:])))
	body, at, ok := take(batch, 20, bodyLength)
	if !ok || at+2 > len(batch) {
		return e, nil, fmt.Errorf("%w: body of %d bytes, %d bytes left", ErrBatch, bodyLength, len(batch)-20)
	}
	propertiesLength := int(int16(be.Uint16(batch[at:])))
	properties, end, ok := take(batch, at+2, propertiesLength)
	if !ok {
		return e, nil, fmt.Errorf("%w: properties of %d bytes, %d bytes left", ErrBatch, propertiesLength, len(batch)-at-2)
	}
	e.Body, e.Properties = body, properties
	return e, batch[end:], nil
}

// AppendBatchElement encodes one message as senders do.
func AppendBatchElement(dst []byte, e *BatchElement) []byte {
	if len(e.Properties) > PropertiesLengthMax {
		panic(fmt.Sprintf("BUG: batch element with properties of %d bytes", len(e.Properties)))
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(batchElementSizeMin+len(e.Body)+len(e.Properties)))
	dst = be.AppendUint64(dst, 0) // magic, checksum
	dst = be.AppendUint32(dst, uint32(e.Flag))
	dst = be.AppendUint32(dst, uint32(len(e.Body)))
	dst = append(dst, e.Body...)
	dst = be.AppendUint16(dst, uint16(len(e.Properties)))
	return append(dst, e.Properties...)
}
