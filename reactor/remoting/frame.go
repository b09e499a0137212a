// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// FrameLengthMax is the largest frame, its 4-byte length field included. Source: NettyDecoder#FRAME_MAX_LENGTH.
	FrameLengthMax = 16 << 20

	lengthSize     = 4
	headerWordSize = 4
	preambleSize   = lengthSize + headerWordSize

	headerLengthMask = 1<<24 - 1
)

// A header can be as long as a frame: its length must fit the 24 bits it has.
const _ = uint(headerLengthMask - (FrameLengthMax - preambleSize))

// ErrProtocol is what every error of FrameLength and Decode wraps: the peer does not speak this protocol, or breaks
// it, and the connection is to be closed.
var ErrProtocol = errors.New("remoting: protocol error")

// FrameLength looks at the first bytes of a stream: total is the length of the whole frame with its length field, 0
// when fewer than 4 bytes are there. An error means that the connection is to be closed.
func FrameLength(b []byte) (total int, err error) {
	if len(b) < lengthSize {
		return 0, nil
	}
	length := binary.BigEndian.Uint32(b)
	if length < headerWordSize || length > FrameLengthMax-lengthSize {
		return 0, fmt.Errorf("frame length %d outside %d to %d: %w", int32(length), headerWordSize, FrameLengthMax-lengthSize, ErrProtocol)
	}
	return lengthSize + int(length), nil
}

// Decode parses one whole frame (length field included) into c. It never panics and never allocates from a length
// that it has not checked.
func Decode(frame []byte, c *Command) error {
	c.Reset()
	total, err := FrameLength(frame)
	if err != nil {
		return err
	}
	if total == 0 || total != len(frame) {
		return fmt.Errorf("frame of %d bytes handed over as %d: %w", total, len(frame), ErrProtocol)
	}
	word := binary.BigEndian.Uint32(frame[lengthSize:])
	headerLength := int(word & headerLengthMask)
	if headerLength > total-preambleSize {
		return fmt.Errorf("header length %d in a frame of %d: %w", headerLength, total, ErrProtocol)
	}
	header := frame[preambleSize : preambleSize+headerLength : preambleSize+headerLength]
	switch c.Serialize = SerializeType(word >> 24); c.Serialize {
	case SerializeJSON:
		err = c.decodeJSON(header)
	case SerializeRocketMQ:
		err = c.decodeRocketMQ(header)
	default:
		err = fmt.Errorf("serialize type %d: %w", c.Serialize, ErrProtocol)
	}
	if err != nil {
		return err
	}
	if preambleSize+headerLength < total {
		c.Body = frame[preambleSize+headerLength : total : total]
	}
	return nil
}

// AppendTo appends the whole frame to dst in c.Serialize's form. bodyLen > 0 with a nil Body leaves the body to the
// caller, who sends bodyLen bytes right after. A command that the binary form cannot hold (its code has 16 bits, and
// the codes of pop consumers more) goes out as JSON, which every receiver takes. Keeping the frame within
// FrameLengthMax is the caller's business.
func (c *Command) AppendTo(dst []byte, bodyLen int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	form := SerializeJSON
	if c.Serialize == SerializeRocketMQ && c.fitsRocketMQ() {
		form = SerializeRocketMQ
		dst = c.appendRocketMQ(dst)
	} else {
		dst = c.appendJSON(dst)
	}
	headerLength := len(dst) - at - preambleSize
	if c.Body != nil {
		bodyLen = len(c.Body)
		dst = append(dst, c.Body...)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(headerWordSize+headerLength+bodyLen))
	binary.BigEndian.PutUint32(dst[at+lengthSize:], uint32(form)<<24|uint32(headerLength)&headerLengthMask)
	return dst
}
