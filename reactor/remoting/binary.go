// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The ROCKETMQ form of a header (RocketMQSerializable), all integers big-endian:
//
//	+----------+--------------+-------------+------------+----------+---------------+--------+------------+-----+
//	| code (2) | language (1) | version (2) | opaque (4) | flag (4) | remarkLen (4) | remark | extLen (4) | ext |
//	+----------+--------------+-------------+------------+----------+---------------+--------+------------+-----+
//
// ext is a row of keyLen (2) key valueLen (4) value. Length 0 is null.
const (
	rocketMQRemarkAt  = 2 + 1 + 2 + 4 + 4
	rocketMQFixedSize = rocketMQRemarkAt + 4 + 4
)

func (c *Command) decodeRocketMQ(h []byte) error {
	if len(h) < rocketMQFixedSize {
		return fmt.Errorf("binary header of %d bytes, the fixed part has %d: %w", len(h), rocketMQFixedSize, ErrProtocol)
	}
	c.Code = int32(int16(binary.BigEndian.Uint16(h)))
	c.Language = h[2]
	c.Version = int32(int16(binary.BigEndian.Uint16(h[3:])))
	c.Opaque = int32(binary.BigEndian.Uint32(h[5:]))
	c.Flag = int32(binary.BigEndian.Uint32(h[9:]))

	remark, rest, ok := cut32(h[rocketMQRemarkAt:])
	if !ok {
		return fmt.Errorf("remark length %d in a header of %d: %w", int32(binary.BigEndian.Uint32(h[rocketMQRemarkAt:])), len(h), ErrProtocol)
	}
	if len(remark) > 0 {
		c.Remark = remark
	}
	ext, _, ok := cut32(rest)
	if !ok {
		return fmt.Errorf("extFields do not fit into a header of %d: %w", len(h), ErrProtocol)
	}
	return c.decodeRocketMQFields(ext)
}

func (c *Command) decodeRocketMQFields(ext []byte) error {
	for len(ext) > 0 {
		if len(c.Ext.List) == fieldsMax {
			return fmt.Errorf("more than %d extFields: %w", fieldsMax, ErrProtocol)
		}
		key, rest, ok := cut16(ext)
		if !ok {
			return fmt.Errorf("key of extField %d does not fit: %w", len(c.Ext.List), ErrProtocol)
		}
		value, rest, ok := cut32(rest)
		if !ok {
			return fmt.Errorf("value of extField %d does not fit: %w", len(c.Ext.List), ErrProtocol)
		}
		if len(key) > 0 {
			c.Ext.append(key, value)
		}
		ext = rest
	}
	return nil
}

// cut32 takes a 4-byte length and that many bytes off b; cut16 a 2-byte length. The lengths are signed in Java.
func cut32(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}

func cut16(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > math.MaxInt16 || n > len(b)-2 {
		return nil, nil, false
	}
	return b[2 : 2+n : 2+n], b[2+n:], true
}

func (c *Command) fitsRocketMQ() bool {
	if c.Code != int32(int16(c.Code)) || c.Version != int32(int16(c.Version)) {
		return false
	}
	for i := range c.Ext.List {
		if len(c.Ext.List[i].Key) > math.MaxInt16 {
			return false
		}
	}
	return true
}

func (c *Command) appendRocketMQ(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Code))
	dst = append(dst, c.Language)
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Remark)))
	dst = append(dst, c.Remark...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range c.Ext.List {
		field := &c.Ext.List[i]
		if len(field.Key) == 0 {
			continue // to Java a null key, which its writer skips
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(field.Key)))
		dst = append(dst, field.Key...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(field.Value)))
		dst = append(dst, field.Value...)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
