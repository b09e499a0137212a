// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"fmt"
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
	if r.i < len(r.b) && r.b[r.i] <= ' ' {
		r.space()
	}
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
	raw, escaped := r.raw()
	if !escaped {
		return raw
	}
	at := len(*scratch)
	out, ok := appendUnescaped(*scratch, raw)
	if !ok {
		r.fail("broken escape")
		return nil
	}
	*scratch = out
	return out[at:len(out):len(out)]
}

const (
	ones   = 0x0101010101010101
	quotes = '"' * ones
	slants = '\\' * ones
	highs  = 0x80 * ones
)

// raw returns the bytes up to the closing quote and whether a backslash is among them. It looks at eight bytes at a
// time: x has a zero byte where (x-ones)&^x&highs has its lowest bit, and bits above that one do not matter.
func (r *jsonReader) raw() (s []byte, escaped bool) {
	start, i := r.i, r.i
	for {
		for i+8 <= len(r.b) {
			w := binary.LittleEndian.Uint64(r.b[i:])
			q, s := w^quotes, w^slants
			if m := ((q-ones) & ^q | (s-ones) & ^s) & highs; m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		for i < len(r.b) && r.b[i] != '"' && r.b[i] != '\\' {
			i++
		}
		if i >= len(r.b) {
			r.fail("string without an end")
			return nil, false
		}
		if r.b[i] == '"' {
			r.i = i + 1
			return r.b[start:i:i], escaped
		}
		escaped = true
		i += 2
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
	if r.null() {
		return 0
	}
	var digits []byte
	if r.take('"') {
		digits, _ = r.raw()
	} else {
		digits = r.literal()
	}
	n, ok := parseInt(digits, 32)
	if !ok {
		r.fail("a number is not a 32-bit integer")
	}
	return int32(n)
}

func (r *jsonReader) language() byte {
	if !r.take('"') {
		r.skip()
		return LanguageUnknown
	}
	name, _ := r.raw()
	return languageByName(name)
}

// skip passes over one value of any kind.
func (r *jsonReader) skip() { r.skipNested(0) }

func (r *jsonReader) skipNested(depth int) {
	switch {
	case depth > jsonDepthMax:
		r.fail("nested too deep")
	case r.take('"'):
		r.raw()
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
	if r.raw(); !r.take(':') {
		r.fail("no : behind a key")
	}
}

// appendUnescaped appends raw with its escapes resolved. A surrogate without its other half becomes U+FFFD.
func appendUnescaped(dst, raw []byte) ([]byte, bool) {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		if i+1 >= len(raw) {
			return dst, false
		}
		switch c := raw[i+1]; c {
		case '"', '\\', '/', '\'':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			unit, ok := hex4(raw[i+2:])
			if !ok {
				return dst, false
			}
			i += 4
			if utf16.IsSurrogate(unit) {
				if low, ok := lowSurrogate(raw[i+2:]); ok {
					if pair := utf16.DecodeRune(unit, low); pair != utf8.RuneError {
						unit = pair
						i += 6
					}
				}
			}
			dst = utf8.AppendRune(dst, unit) // a lone half comes out as U+FFFD
		default:
			return dst, false
		}
		i += 2
	}
	return dst, true
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
	var n rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// appendJSON writes compactly, keys in the order in which fastjson writes them. Values of extFields are strings always:
// the Go client's decoder fails on anything else.
func (c *Command) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	dst = append(dst, `,"extFields":{`...)
	for i := range c.Ext.List {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, c.Ext.List[i].Key)
		dst = append(dst, ':')
		dst = appendString(dst, c.Ext.List[i].Value)
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
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(c.Version), 10)
	return append(dst, '}')
}

// plain is true for the bytes that stand for themselves inside a JSON string. UTF-8 passes through unchanged.
var plain = func() (t [256]bool) {
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
		if plain[c] {
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
