// SPDX-License-Identifier: Apache-2.0

package remoting

// SerializeType is the form of a frame's header.
type SerializeType byte

const (
	SerializeJSON     SerializeType = 0
	SerializeRocketMQ SerializeType = 1
)

// Bits of the flag field.
const (
	FlagResponse int32 = 1
	FlagOneway   int32 = 2
)

// Version is the ordinal that loopmq announces: V4_9_8.
const Version = 409

// Command is one RemotingCommand. After Decode, Remark, Ext and Body borrow the frame (or the command's own scratch)
// and are valid only as long as it is; Clone makes an owned one. A Command is reused by decoding into it again.
type Command struct {
	Code      int32
	Language  byte
	Version   int32
	Opaque    int32
	Flag      int32
	Serialize SerializeType
	Remark    []byte
	Ext       Fields
	Body      []byte

	scratch []byte // the remark when it is not the frame's or the caller's
}

func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }
func (c *Command) IsOneway() bool   { return c.Flag&FlagOneway != 0 }

// SetRemark copies remark into the command's scratch.
func (c *Command) SetRemark(remark string) {
	at := len(c.scratch)
	c.scratch = append(c.scratch, remark...)
	c.Remark = c.scratch[at:len(c.scratch):len(c.scratch)]
}

// Bytes is how many bytes an owned copy of c holds.
func (c *Command) Bytes() int {
	size := len(c.Remark) + len(c.Body) + fieldSize*len(c.Ext.List)
	for i := range c.Ext.List {
		size += len(c.Ext.List[i].Key) + len(c.Ext.List[i].Value)
	}
	return size
}

// Clone returns a copy that owns its bytes.
func (c *Command) Clone() *Command {
	owned := new(Command)
	c.CopyTo(owned)
	return owned
}

// CopyTo makes dst an owned copy of c in the memory that dst already has.
func (c *Command) CopyTo(dst *Command) {
	dst.Code, dst.Language, dst.Version = c.Code, c.Language, c.Version
	dst.Opaque, dst.Flag, dst.Serialize = c.Opaque, c.Flag, c.Serialize
	dst.Ext.copyFrom(&c.Ext)
	// Remark and body share the scratch, which must not move between the two.
	size := len(c.Remark) + len(c.Body)
	if dst.scratch = trimmed(dst.scratch); cap(dst.scratch) < size {
		dst.scratch = make([]byte, 0, size)
	}
	dst.scratch = append(append(dst.scratch, c.Remark...), c.Body...)
	dst.Remark, dst.Body = nil, nil
	if r := len(c.Remark); r > 0 {
		dst.Remark = dst.scratch[:r:r]
	}
	if len(c.Body) > 0 {
		dst.Body = dst.scratch[len(c.Remark):size:size]
	}
}

// Reset empties c for the next use, keeping its memory.
func (c *Command) Reset() {
	c.Code, c.Language, c.Version, c.Opaque, c.Flag, c.Serialize = 0, 0, 0, 0, 0, 0
	c.Remark, c.Body = nil, nil
	c.scratch = trimmed(c.scratch)
	c.Ext.Reset()
}
