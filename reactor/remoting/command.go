// SPDX-License-Identifier: Apache-2.0

package remoting

// FrameLengthMax is the largest frame, its 4-byte length field included. Source: NettyDecoder#FRAME_MAX_LENGTH.
const FrameLengthMax = 16 << 20

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
}

func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }
func (c *Command) IsOneway() bool   { return c.Flag&FlagOneway != 0 }

// Field is one extField.
type Field struct{ Key, Value []byte }

// Fields are the extFields of a command, in the order they came; few, so look-ups scan.
type Fields struct{ List []Field }

// Get returns the value of key; an empty value counts as absent, as for Java.
func (f *Fields) Get(key string) ([]byte, bool) { return nil, false }

// String, Int32, Int64, Bool read a typed value by Java's rules. def stands in for an absent field; an error names
// the field and the value.
func (f *Fields) String(key string) string                   { return "" }
func (f *Fields) Int32(key string, def int32) (int32, error) { return def, nil }
func (f *Fields) Int64(key string, def int64) (int64, error) { return def, nil }
func (f *Fields) Bool(key string) bool                       { return false }

// Add, AddInt append a field; the bytes are copied into the command's own scratch. Reset keeps the memory.
func (f *Fields) Add(key, value string)             {}
func (f *Fields) AddBytes(key string, value []byte) {}
func (f *Fields) AddInt(key string, value int64)    {}
func (f *Fields) Reset()                            {}

// FrameLength looks at the first bytes of a stream: total is the length of the whole frame with its length field, 0
// when fewer than 4 bytes are there. An error means that the connection is to be closed.
func FrameLength(b []byte) (total int, err error) { return 0, nil }

// Decode parses one whole frame (length field included) into c. It never panics and never allocates from a length
// that it has not checked.
func Decode(frame []byte, c *Command) error { return nil }

// AppendTo appends the whole frame to dst in c.Serialize's form. bodyLen > 0 with a nil Body leaves the body to the
// caller, who sends bodyLen bytes right after.
func (c *Command) AppendTo(dst []byte, bodyLen int) []byte { return dst }

// Clone returns a copy that owns its bytes.
func (c *Command) Clone() *Command { return nil }

// Reset empties c for the next use, keeping its memory.
func (c *Command) Reset() {}
