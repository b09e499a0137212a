// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"fmt"
	"math"
	"strconv"
)

// fieldsMax bounds the extFields of one command; the largest header in use (send, with every mark of 5.x) has about 30.
const fieldsMax = 1024

// Field is one extField.
type Field struct{ Key, Value []byte }

// fieldSize is what a Field takes beside its bytes.
const fieldSize = 48

// Fields are the extFields of a command, in the order they came; few, so look-ups scan. Where a key stands twice the
// last one counts, as in a Java map.
type Fields struct {
	List []Field

	// JSON, if not nil, is what AppendFieldsJSON makes of List, set by who has it at hand and spares its making. Whoever
	// changes List by hand keeps it so; the methods drop it.
	JSON []byte

	scratch []byte // what Add copied, and what Decode had to unescape
}

// Get returns the value of key; an empty value counts as absent, as for Java.
func (f *Fields) Get(key string) ([]byte, bool) {
	for i := len(f.List) - 1; i >= 0; i-- {
		if string(f.List[i].Key) == key {
			v := f.List[i].Value
			return v, len(v) > 0
		}
	}
	return nil, false
}

// String returns the value of key, "" when it is absent.
func (f *Fields) String(key string) string {
	v, _ := f.Get(key)
	return string(v)
}

// Int32 reads a decimal number by Integer#parseInt's rules. def stands in for an absent field; an error names the field
// and the value.
func (f *Fields) Int32(key string, def int32) (int32, error) {
	v, ok := f.Get(key)
	if !ok {
		return def, nil
	}
	n, ok := parseInt(v, 32)
	if !ok {
		return def, fieldError(key, v, "a 32-bit integer")
	}
	return int32(n), nil
}

// Int64 reads a decimal number by Long#parseLong's rules, with def and error as in Int32.
func (f *Fields) Int64(key string, def int64) (int64, error) {
	v, ok := f.Get(key)
	if !ok {
		return def, nil
	}
	n, ok := parseInt(v, 64)
	if !ok {
		return def, fieldError(key, v, "a 64-bit integer")
	}
	return n, nil
}

// Bool is Boolean#parseBoolean: true for "true" in any case, false for everything else.
func (f *Fields) Bool(key string) bool {
	v, _ := f.Get(key)
	if len(v) != 4 {
		return false
	}
	return v[0]|0x20 == 't' && v[1]|0x20 == 'r' && v[2]|0x20 == 'u' && v[3]|0x20 == 'e'
}

// Add appends a field; the bytes are copied into the command's own scratch.
func (f *Fields) Add(key, value string) {
	k := f.keep(key)
	f.append(k, f.keep(value))
}

// AddBytes is Add for a value in bytes.
func (f *Fields) AddBytes(key string, value []byte) {
	k := f.keep(key)
	at := len(f.scratch)
	f.scratch = append(f.scratch, value...)
	f.append(k, f.scratch[at:len(f.scratch):len(f.scratch)])
}

// AddInt is Add for a number.
func (f *Fields) AddInt(key string, value int64) {
	k := f.keep(key)
	at := len(f.scratch)
	f.scratch = strconv.AppendInt(f.scratch, value, 10)
	f.append(k, f.scratch[at:len(f.scratch):len(f.scratch)])
}

// AddBool is Add for a boolean, in Java's text.
func (f *Fields) AddBool(key string, value bool) { f.Add(key, strconv.FormatBool(value)) }

// Reset empties f and keeps its memory.
func (f *Fields) Reset() {
	f.List, f.JSON = f.List[:0], nil
	f.scratch = trimmed(f.scratch)
}

// keep copies s into the scratch. When the scratch grows, slices handed out before stay in the old array, whose bytes
// nobody changes until the next Reset.
func (f *Fields) keep(s string) []byte {
	at := len(f.scratch)
	f.scratch = append(f.scratch, s...)
	return f.scratch[at:len(f.scratch):len(f.scratch)]
}

func (f *Fields) append(key, value []byte) {
	f.List, f.JSON = append(f.List, Field{key, value}), nil
}

func (f *Fields) copyFrom(src *Fields) {
	f.Reset()
	size := 0
	for i := range src.List {
		size += len(src.List[i].Key) + len(src.List[i].Value)
	}
	if cap(f.scratch) < size {
		f.scratch = make([]byte, 0, size)
	}
	for _, field := range src.List {
		at := len(f.scratch)
		f.scratch = append(f.scratch, field.Key...)
		mid := len(f.scratch)
		f.scratch = append(f.scratch, field.Value...)
		f.List = append(f.List, Field{f.scratch[at:mid:mid], f.scratch[mid:len(f.scratch):len(f.scratch)]})
	}
}

// scratchKeepMax is the most memory that a reused command keeps of each scratch.
const scratchKeepMax = 64 << 10

func trimmed(scratch []byte) []byte {
	if cap(scratch) > scratchKeepMax {
		return nil
	}
	return scratch[:0]
}

// parseInt reads digits with an optional sign, and nothing else, into bits bits.
func parseInt(b []byte, bits uint) (int64, bool) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	limit := uint64(1) << (bits - 1) // of the negative side
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > math.MaxInt64/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		return -int64(n), n <= limit
	}
	return int64(n), n < limit
}

// shownMax is how much of a value from outside goes into an error text.
const shownMax = 64

func fieldError(key string, value []byte, want string) error {
	if len(value) > shownMax {
		return fmt.Errorf("header field %s is %q… (%d bytes), not %s", key, value[:shownMax], len(value), want)
	}
	return fmt.Errorf("header field %s is %q, not %s", key, value, want)
}
