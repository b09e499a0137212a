// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonDepthMax bounds the nesting of values that nobody asked for.
const jsonDepthMax = 64

// jsonReader reads a header in one pass, without allocating. The first fault sticks in bad; every method then
// returns at once, and the caller looks at the end of each member.
type jsonReader struct {
	b   []byte
	i   int
	bad string
}

func (r *jsonReader) fail(what string) {
	if r.bad == "" {
		r.bad = what
	}
	r.i = len(r.b)
}

func (r *jsonReader) err() error {
	if r.bad == "" {
		return nil
	}
	return fmt.Errorf("JSON header of %d bytes: %s: %w", len(r.b), r.bad, ErrProtocol)
}

// decodeJSON takes what fastjson takes from the clients in use: any order of keys, unknown keys, numbers and booleans
// where a string belongs.
func (c *Command) decodeJSON(h []byte) error {
	r := jsonReader{b: h}
	if !r.take('{') {
		r.fail("it is no object")
		return r.err()
	}
	for more := !r.take('}'); more; more = r.next('}') {
		key := r.key(&c.scratch)
		switch string(key) {
		case "code":
			c.Code = r.int32()
		case "extFields":
			c.readExtFields(&r)
		case "flag":
			c.Flag = r.int32()
		case "language":
			c.Language = r.language()
		case "opaque":
			c.Opaque = r.int32()
		case "remark":
			c.Remark, _ = r.text(&c.scratch)
		case "version":
			c.Version = r.int32()
		default:
			r.skip()
		}
	}
	if r.space(); r.bad == "" && r.i < len(r.b) {
		r.fail("bytes behind the object")
	}
	return r.err()
}

func (c *Command) readExtFields(r *jsonReader) {
	if r.null() {
		return
	}
	if !r.take('{') {
		r.fail("extFields is no object")
		return
	}
	for more := !r.take('}'); more; more = r.next('}') {
		if c.readPlainFields(r) {
			continue
		}
		if len(c.Ext.List) == fieldsMax {
			r.fail("too many extFields")
			return
		}
		key := r.key(&c.Ext.scratch)
		if value, ok := r.text(&c.Ext.scratch); ok {
			c.Ext.append(key, value)
		}
	}
}

// The bytes of "k":" as a word, for a key of one letter, which all those of a V2 send header are.
const (
	letterKey     = '"' | '"'<<16 | ':'<<24 | '"'<<32
	letterKeyMask = 0xff_ff_ff_00_ff
)

// readPlainFields is the straight road for what all clients send: "key":"value", without spaces and without an escape in
// the key. It stands behind such a member at the end, or (false) before a member that is anything else.
func (c *Command) readPlainFields(r *jsonReader) (behind bool) {
	b, i, list := r.b, r.i, c.Ext.List
	for len(list) < fieldsMax && i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		keyEnd := i + 2
		if letter := byte(w >> 8); w&letterKeyMask != letterKey || letter == '"' || letter == '\\' {
			keyEnd = stringEnd(b, i+1)
			if b[i] != '"' || keyEnd+2 >= len(b) || b[keyEnd] != '"' || b[keyEnd+1] != ':' || b[keyEnd+2] != '"' {
				break
			}
		}
		start := keyEnd + 3
		end := stringEnd(b, start)
		value := b[start:end:end]
		if end >= len(b) || b[end] != '"' {
			r.i = start
			value = r.unescaped(&c.Ext.scratch, end)
			end = r.i - 1
		}
		list = append(list, Field{}) // filled in place, which saves a copy by way of the stack
		f := &list[len(list)-1]
		f.Key, f.Value = b[i+1:keyEnd:keyEnd], value
		if i = end + 1; i >= len(b) || b[i] != ',' {
			behind = true
			break
		}
		i++
	}
	r.i, c.Ext.List = i, list
	return behind
}

func (r *jsonReader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

func (r *jsonReader) take(c byte) bool {
	if r.i < len(r.b) && r.b[r.i] == c {
		r.i++
		return true
	}
	return r.i < len(r.b) && r.b[r.i] <= ' ' && r.takeBehindSpace(c)
}

func (r *jsonReader) takeBehindSpace(c byte) bool {
	r.space()
	if r.i < len(r.b) && r.b[r.i] == c {
		r.i++
		return true
	}
	return false
}

// next stands behind a member and says whether another one follows; if not, it has taken the closing bracket.
func (r *jsonReader) next(closing byte) bool {
	if r.take(',') {
		return true
	}
	if !r.take(closing) {
		r.fail("neither a comma nor the end behind a value")
	}
	return false
}

func (r *jsonReader) key(scratch *[]byte) []byte {
	if b, i := r.b, r.i; i < len(b) && b[i] == '"' { // as all clients send it
		if end := stringEnd(b, i+1); end+1 < len(b) && b[end] == '"' && b[end+1] == ':' {
			r.i = end + 2
			return b[i+1 : end : end]
		}
	}
	if !r.take('"') {
		r.fail("no key")
		return nil
	}
	key := r.string(scratch)
	if !r.take(':') {
		r.fail("no : behind a key")
	}
	return key
}

// string stands behind the opening quote. What holds no escape is borrowed, the rest is unescaped into scratch.
func (r *jsonReader) string(scratch *[]byte) []byte {
	start := r.i
	end := stringEnd(r.b, start)
	if end < len(r.b) && r.b[end] == '"' {
		r.i = end + 1
		return r.b[start:end:end]
	}
	return r.unescaped(scratch, end)
}

// unescaped is the rest of string, from its first backslash at end.
func (r *jsonReader) unescaped(scratch *[]byte, end int) []byte {
	at := len(*scratch)
	if !r.unescape(scratch, end) {
		r.fail("string with a broken escape, or without an end")
		return nil
	}
	return (*scratch)[at:len(*scratch):len(*scratch)]
}

// unescape appends the string to scratch; the first backslash is at end.
func (r *jsonReader) unescape(scratch *[]byte, end int) bool {
	out := *scratch
	for {
		out = append(out, r.b[r.i:end]...)
		if end >= len(r.b) {
			return false
		}
		if r.b[end] == '"' {
			r.i = end + 1
			*scratch = out
			return true
		}
		if c, ok := escapedASCII(r.b[end:]); ok {
			out = append(out, c)
			r.i = end + 6
		} else {
			c, n := escaped(r.b[end+1:])
			if n == 0 {
				return false
			}
			out = utf8.AppendRune(out, c)
			r.i = end + 1 + n
		}
		end = stringEnd(r.b, r.i)
	}
}

const (
	ones   = 0x0101010101010101
	quotes = '"' * ones
	slants = '\\' * ones
	highs  = 0x80 * ones
)

// stringEnd returns where the next quote or backslash at or behind i is, or len(b). It looks at eight bytes at a time: x
// has a zero byte where (x-ones)&^x&highs has its lowest bit, and bits above that one do not matter.
func stringEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		q, s := w^quotes, w^slants
		if m := ((q-ones)&^q | (s-ones)&^s) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// plain returns a string as it is written, escapes and all.
func (r *jsonReader) plain() []byte {
	start := r.i
	if r.pass(); r.bad != "" {
		return nil
	}
	return r.b[start : r.i-1 : r.i-1]
}

// pass skips the rest of a string behind its opening quote.
func (r *jsonReader) pass() {
	for {
		end := stringEnd(r.b, r.i)
		if end >= len(r.b) {
			r.fail("string without an end")
			return
		}
		r.i = end + 1
		if r.b[end] == '"' {
			return
		}
		r.i++
	}
}

// text reads a value as a string: a string's content, a number or boolean as written. Null, objects and arrays are no
// value.
func (r *jsonReader) text(scratch *[]byte) (value []byte, ok bool) {
	if r.take('"') {
		return r.string(scratch), true
	}
	if r.i >= len(r.b) || r.b[r.i] == '{' || r.b[r.i] == '[' || r.b[r.i] == 'n' {
		r.skip()
		return nil, false
	}
	return r.literal(), true
}

// literal reads a number, true, false or null.
func (r *jsonReader) literal() []byte {
	start := r.i
	for r.i < len(r.b) && isLiteral(r.b[r.i]) {
		r.i++
	}
	switch l := r.b[start:r.i:r.i]; {
	case string(l) == "true", string(l) == "false", string(l) == "null":
		return l
	case len(l) > 0 && (l[0] == '-' || '0' <= l[0] && l[0] <= '9') && '0' <= l[len(l)-1] && l[len(l)-1] <= '9':
		return l
	}
	r.fail("no value")
	return nil
}

func isLiteral(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func (r *jsonReader) null() bool {
	r.space()
	if r.i < len(r.b) && r.b[r.i] == 'n' {
		r.literal()
		return true
	}
	return false
}

// int32 reads a whole number, bare or in quotes; null is 0.
func (r *jsonReader) int32() int32 {
	if n, ok := r.digits(); ok {
		return n
	}
	if r.null() {
		return 0
	}
	var digits []byte
	if r.take('"') {
		digits = r.plain()
	} else {
		digits = r.literal()
	}
	n, ok := parseInt(digits, 32)
	if !ok {
		r.fail("a number is not a 32-bit integer")
	}
	return int32(n)
}

// digits reads a number as all clients send it: digits, and at once a comma or the end. Anything else it leaves alone.
func (r *jsonReader) digits() (n int32, ok bool) {
	b, i, n64 := r.b, r.i, int64(0)
	for ; i < len(b) && b[i]-'0' <= 9 && n64 <= math.MaxInt32; i++ {
		n64 = n64*10 + int64(b[i]-'0')
	}
	if i == r.i || i >= len(b) || b[i] != ',' && b[i] != '}' || n64 > math.MaxInt32 {
		return 0, false
	}
	r.i = i
	return int32(n64), true
}

func (r *jsonReader) language() byte {
	if !r.take('"') {
		r.skip()
		return LanguageUnknown
	}
	return languageByName(r.plain())
}

// skip passes over one value of any kind.
func (r *jsonReader) skip() { r.skipNested(0) }

func (r *jsonReader) skipNested(depth int) {
	switch {
	case depth > jsonDepthMax:
		r.fail("nested too deep")
	case r.take('"'):
		r.pass()
	case r.take('{'):
		for more := !r.take('}'); more; more = r.next('}') {
			r.skipKey()
			r.skipNested(depth + 1)
		}
	case r.take('['):
		for more := !r.take(']'); more; more = r.next(']') {
			r.skipNested(depth + 1)
		}
	default:
		r.literal()
	}
}

func (r *jsonReader) skipKey() {
	if !r.take('"') {
		r.fail("no key")
		return
	}
	if r.pass(); !r.take(':') {
		r.fail("no : behind a key")
	}
}

// escapedASCII reads \u0000 to \u007f: properties are full of \u0001 and \u0002.
func escapedASCII(b []byte) (c byte, ok bool) {
	if len(b) < 6 || binary.LittleEndian.Uint32(b) != '\\'|'u'<<8|'0'<<16|'0'<<24 {
		return 0, false
	}
	n := hexValues[b[4]]<<4 | hexValues[b[5]]
	return byte(n), 0 <= n && n < utf8.RuneSelf
}

// escaped reads what stands behind a backslash, n bytes; 0 when it is no escape. A surrogate without its other half
// is U+FFFD. Older fastjson writes \1 and \2 between properties, and reads \v and \x41 too.
func escaped(b []byte) (c rune, n int) {
	if len(b) == 0 {
		return 0, 0
	}
	switch b[0] {
	case '"', '\\', '/', '\'':
		return rune(b[0]), 1
	case 'b':
		return '\b', 1
	case 'f':
		return '\f', 1
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'u':
		return escapedUnit(b)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		return rune(b[0] - '0'), 1
	case 'v':
		return '\v', 1
	case 'x':
		if len(b) < 3 {
			return 0, 0
		}
		if c := hexValues[b[1]]<<4 | hexValues[b[2]]; c >= 0 {
			return c, 3
		}
	}
	return 0, 0
}

func escapedUnit(b []byte) (c rune, n int) {
	unit, ok := hex4(b[1:])
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(unit) {
		if low, ok := lowSurrogate(b[5:]); ok {
			if pair := utf16.DecodeRune(unit, low); pair != utf8.RuneError {
				return pair, 11
			}
		}
	}
	return unit, 5 // AppendRune makes U+FFFD of a lone half
}

func lowSurrogate(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	return hex4(b[2:])
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := hexValues[b[0]]<<12 | hexValues[b[1]]<<8 | hexValues[b[2]]<<4 | hexValues[b[3]]
	return n, n >= 0
}

// hexValues are the values of hexadecimal digits; -1 is none, and stays negative beside others.
var hexValues = func() (t [256]rune) {
	for c := range t {
		t[c] = -1
	}
	for n := range rune(16) {
		t["0123456789abcdef"[n]], t["0123456789ABCDEF"[n]] = n, n
	}
	return t
}()

// appendJSON writes compactly, keys in the order in which fastjson writes them. Values of extFields are strings always:
// the Go client's decoder fails on anything else.
func (c *Command) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	dst = append(dst, `,"extFields":{`...)
	if c.Ext.JSON != nil {
		dst = append(dst, c.Ext.JSON...)
	} else {
		dst = AppendFieldsJSON(dst, c.Ext.List)
	}
	dst = append(dst, `},"flag":`...)
	dst = strconv.AppendInt(dst, int64(c.Flag), 10)
	dst = append(dst, `,"language":"`...)
	dst = append(dst, LanguageName(c.Language)...)
	dst = append(dst, `","opaque":`...)
	dst = strconv.AppendInt(dst, int64(c.Opaque), 10)
	if len(c.Remark) > 0 {
		dst = append(dst, `,"remark":`...)
		dst = appendString(dst, c.Remark)
	}
	if c.Version == Version {
		return append(dst, ownEnd...)
	}
	return appendEnd(dst, c.Version)
}

func appendEnd(dst []byte, version int32) []byte {
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(version), 10)
	return append(dst, '}')
}

var ownEnd = appendEnd(nil, Version)

// AppendFieldsJSON appends the members that fields make of a JSON object.
func AppendFieldsJSON(dst []byte, fields []Field) []byte {
	for i := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, fields[i].Key)
		dst = append(dst, ':')
		dst = appendString(dst, fields[i].Value)
	}
	return dst
}

// verbatim is true for the bytes that stand for themselves inside a JSON string. UTF-8 passes through unchanged.
var verbatim = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range s {
		if verbatim[c] {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		if c == '"' || c == '\\' {
			dst = append(dst, '\\', c)
		} else {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
