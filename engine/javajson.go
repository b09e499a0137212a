// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Java's side of every JSON body and file is fastjson 1.x. Its output is not JSON: maps with integer keys have bare
// keys, {0:5,1:7}, and maps keyed by MessageQueue have an object for a key, {{"brokerName":"b",…}:5}. jsonReader takes
// these beside standard JSON; jsonWriter writes them exactly as Java does, compact for the wire and tab-indented for
// files.

// jsonDepthMax bounds nesting; the deepest body known has five levels.
const jsonDepthMax = 64

var errJSON = errors.New("malformed JSON")

// jsonReader is a pull parser over one text. It keeps no tree, so what an input costs is what its consumer keeps. Each
// reading method consumes exactly one value; null reads as the zero value, and a quoted number or flag as what it
// quotes, as in Java.
type jsonReader struct {
	b     []byte
	pos   int
	depth int
}

func newJSONReader(b []byte) *jsonReader { return &jsonReader{b: b} }

func (r *jsonReader) fail(what string) error {
	return fmt.Errorf("%w at byte %d: %s", errJSON, r.pos, what)
}

// peek returns the next byte that is no blank, without consuming it; zero at the end.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.b) {
		switch c := r.b[r.pos]; c {
		case ' ', '\t', '\r', '\n':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) expect(c byte) error {
	if r.peek() != c || r.pos >= len(r.b) {
		return r.fail("want " + strconv.QuoteRune(rune(c)))
	}
	r.pos++
	return nil
}

// end reports anything left but blanks.
func (r *jsonReader) end() error {
	if r.peek(); r.pos < len(r.b) {
		return r.fail("text after the value")
	}
	return nil
}

// null consumes a null, if one is next.
func (r *jsonReader) null() bool {
	if r.peek() == 'n' && bytes.HasPrefix(r.b[r.pos:], []byte("null")) {
		r.pos += len("null")
		return true
	}
	return false
}

func (r *jsonReader) enter() error {
	if r.depth++; r.depth > jsonDepthMax {
		return r.fail("nested too deeply")
	}
	r.pos++
	return nil
}

// object calls member for each member; member must consume its value. A key that is an object is handed over as its
// text, as is one that Java wrote into a string.
func (r *jsonReader) object(member func(key []byte) error) error {
	return r.sequence('{', '}', "want an object", func() error {
		key, err := r.key()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

func (r *jsonReader) key() ([]byte, error) {
	switch c := r.peek(); {
	case c == '"' || c == '\'':
		return r.quoted()
	case c == '{':
		start := r.pos
		if err := r.skip(); err != nil {
			return nil, err
		}
		return r.b[start:r.pos:r.pos], nil
	default:
		return r.bare()
	}
}

// array calls element for each element; element must consume it.
func (r *jsonReader) array(element func() error) error {
	return r.sequence('[', ']', "want an array", element)
}

// sequence calls one for each thing between open and end; null has none.
func (r *jsonReader) sequence(open, end byte, want string, one func() error) error {
	if r.null() {
		return nil
	}
	if r.peek() != open {
		return r.fail(want)
	}
	if err := r.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if r.peek() == end {
			r.pos++
			r.depth--
			return nil
		}
		if !first {
			if err := r.expect(','); err != nil {
				return err
			}
		}
		if err := one(); err != nil {
			return err
		}
	}
}

// bare reads an unquoted word: a number, true, false, null or a bare key.
func (r *jsonReader) bare() ([]byte, error) {
	start := r.pos
	for r.pos < len(r.b) && bareByte(r.b[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		return nil, r.fail("want a value")
	}
	return r.b[start:r.pos:r.pos], nil
}

func bareByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '-' || c == '+' || c == '.' || c == '_' || c == '$'
}

// quoted reads a string of valid UTF-8: what is none becomes U+FFFD, in names of members too. Without escapes the result
// borrows the text.
func (r *jsonReader) quoted() ([]byte, error) {
	quote := r.b[r.pos]
	r.pos++
	start := r.pos
	for r.pos < len(r.b) {
		switch c := r.b[r.pos]; {
		case c == quote:
			text := r.b[start:r.pos:r.pos]
			r.pos++
			return validUTF8(text), nil
		case c == '\\':
			return r.escaped(quote, start)
		case c < 0x20 && c != '\t':
			return nil, r.fail("control character in a string")
		default:
			r.pos++
		}
	}
	return nil, r.fail("string without an end")
}

// escaped finishes a string that holds escapes, into memory of its own.
func (r *jsonReader) escaped(quote byte, start int) ([]byte, error) {
	text := slices.Clone(r.b[start:r.pos])
	for r.pos < len(r.b) {
		c := r.b[r.pos]
		r.pos++
		switch {
		case c == quote:
			return validUTF8(text), nil
		case c == '\\':
			var err error
			if text, err = r.escape(text); err != nil {
				return nil, err
			}
		default:
			text = append(text, c)
		}
	}
	return nil, r.fail("string without an end")
}

func validUTF8(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

func (r *jsonReader) escape(text []byte) ([]byte, error) {
	if r.pos >= len(r.b) {
		return nil, r.fail("string without an end")
	}
	c := r.b[r.pos]
	r.pos++
	switch c {
	case '"', '\\', '/', '\'':
		return append(text, c), nil
	case 'b':
		return append(text, '\b'), nil
	case 'f':
		return append(text, '\f'), nil
	case 'n':
		return append(text, '\n'), nil
	case 'r':
		return append(text, '\r'), nil
	case 't':
		return append(text, '\t'), nil
	case 'v':
		return append(text, '\v'), nil
	case 'x':
		u, err := r.hex(2)
		return utf8.AppendRune(text, u), err
	case 'u':
		u, err := r.hex(4)
		if err != nil {
			return nil, err
		}
		if utf16.IsSurrogate(u) && bytes.HasPrefix(r.b[r.pos:], []byte(`\u`)) {
			mark := r.pos
			r.pos += 2
			low, err := r.hex(4)
			if err != nil {
				return nil, err
			}
			if pair := utf16.DecodeRune(u, low); pair != utf8.RuneError {
				return utf8.AppendRune(text, pair), nil
			}
			r.pos = mark
		}
		return utf8.AppendRune(text, u), nil // a lone half becomes U+FFFD
	}
	return nil, r.fail("unknown escape")
}

func (r *jsonReader) hex(digits int) (rune, error) {
	if r.pos+digits > len(r.b) {
		return 0, r.fail("string without an end")
	}
	n, err := strconv.ParseUint(string(r.b[r.pos:r.pos+digits]), 16, 32)
	if err != nil {
		return 0, r.fail("want hexadecimal digits")
	}
	r.pos += digits
	return rune(n), nil
}

// scalar reads one value that is no object or array, as its text.
func (r *jsonReader) scalar() ([]byte, error) {
	if r.null() {
		return nil, nil
	}
	switch c := r.peek(); c {
	case '"', '\'':
		return r.quoted()
	case '{', '[':
		return nil, r.fail("want a plain value")
	}
	return r.bare()
}

// text reads a string; an enum name is one.
func (r *jsonReader) text() (string, error) {
	b, err := r.scalar()
	return string(b), err
}

func (r *jsonReader) int64() (int64, error) {
	start := r.pos
	b, err := r.scalar()
	if err != nil || len(b) == 0 {
		return 0, err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		r.pos = start
		return 0, r.fail("want an integer, not " + strconv.Quote(abbreviate(b)))
	}
	return n, nil
}

func (r *jsonReader) int32() (int32, error) {
	start := r.pos
	n, err := r.int64()
	if err == nil && int64(int32(n)) != n {
		r.pos = start
		err = r.fail("want a 32-bit integer, not " + strconv.FormatInt(n, 10))
	}
	return int32(n), err
}

func (r *jsonReader) bool() (bool, error) {
	b, err := r.scalar()
	if err != nil {
		return false, err
	}
	switch strings.ToLower(string(b)) {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	}
	return false, r.fail("want true or false, not " + strconv.Quote(abbreviate(b)))
}

// strings reads an array of strings, at most limit of them.
func (r *jsonReader) strings(limit int) ([]string, error) {
	var list []string
	err := r.array(func() error {
		if len(list) == limit {
			return r.fail(fmt.Sprintf("more than %d elements", limit))
		}
		s, err := r.text()
		list = append(list, s)
		return err
	})
	return list, err
}

// skip consumes one value of any form.
func (r *jsonReader) skip() error {
	switch r.peek() {
	case '{':
		return r.object(func([]byte) error { return r.skip() })
	case '[':
		return r.array(r.skip)
	}
	_, err := r.scalar()
	return err
}

// raw consumes one value and returns its text without blanks between tokens.
func (r *jsonReader) raw() (string, error) {
	var w jsonWriter
	if err := r.copyTo(&w); err != nil {
		return "", err
	}
	return string(w.b), nil
}

func (r *jsonReader) copyTo(w *jsonWriter) error {
	switch c := r.peek(); c {
	case '{':
		w.beginObject()
		err := r.object(func(key []byte) error {
			w.key(string(key))
			return r.copyTo(w)
		})
		w.endObject()
		return err
	case '[':
		w.beginArray()
		err := r.array(func() error {
			w.element()
			return r.copyTo(w)
		})
		w.endArray()
		return err
	case '"', '\'':
		s, err := r.quoted()
		w.str(string(s))
		return err
	default:
		b, err := r.bare()
		if err == nil && !literal(b) {
			err = r.fail("want a number, true, false or null, not " + strconv.Quote(abbreviate(b)))
		}
		w.b = append(w.b, b...)
		return err
	}
}

func literal(b []byte) bool {
	switch string(b) {
	case "true", "false", "null":
		return true
	}
	_, err := strconv.ParseFloat(string(b), 64)
	return err == nil && !bytes.ContainsFunc(b, func(c rune) bool {
		return c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' && (c < '0' || c > '9')
	})
}

func abbreviate(b []byte) string {
	const shown = 64
	if len(b) > shown {
		return string(b[:shown]) + "…"
	}
	return string(b)
}

// jsonWriter appends one value to b. Members come in the order they are written; Java's is alphabetical for objects.
type jsonWriter struct {
	b      []byte
	pretty bool
	count  []int // members so far of each open object or array
}

func (w *jsonWriter) beginObject() { w.begin('{') }
func (w *jsonWriter) endObject()   { w.finish('}') }
func (w *jsonWriter) beginArray()  { w.begin('[') }
func (w *jsonWriter) endArray()    { w.finish(']') }

func (w *jsonWriter) begin(c byte) {
	w.b = append(w.b, c)
	w.count = append(w.count, 0)
}

func (w *jsonWriter) finish(c byte) {
	last := len(w.count) - 1
	empty := w.count[last] == 0
	w.count = w.count[:last]
	if !empty {
		w.newline()
	}
	w.b = append(w.b, c)
}

func (w *jsonWriter) newline() {
	if !w.pretty {
		return
	}
	w.b = append(w.b, '\n')
	for range w.count {
		w.b = append(w.b, '\t')
	}
}

func (w *jsonWriter) comma() {
	last := len(w.count) - 1
	if w.count[last] > 0 {
		w.b = append(w.b, ',')
	}
	w.count[last]++
}

// element begins the next element of an array.
func (w *jsonWriter) element() {
	w.comma()
	w.newline()
}

// key begins a member.
func (w *jsonWriter) key(name string) {
	w.comma()
	w.newline()
	w.str(name)
	w.b = append(w.b, ':')
}

// intKey begins a member with a bare integer key. Java breaks no line before it, also when it indents.
func (w *jsonWriter) intKey(n int64) {
	w.comma()
	w.int(n)
	w.b = append(w.b, ':')
}

// queueKey begins a member whose key is a MessageQueue.
func (w *jsonWriter) queueKey(q MessageQueue) {
	w.comma()
	w.queue(q)
	w.b = append(w.b, ':')
}

func (w *jsonWriter) queue(q MessageQueue) {
	w.beginObject()
	w.strMember("brokerName", q.BrokerName)
	w.intMember("queueId", int64(q.QueueID))
	w.strMember("topic", q.Topic)
	w.endObject()
}

func (w *jsonWriter) int(n int64)  { w.b = strconv.AppendInt(w.b, n, 10) }
func (w *jsonWriter) bool(v bool)  { w.b = strconv.AppendBool(w.b, v) }
func (w *jsonWriter) raw(t string) { w.b = append(w.b, t...) }

// float writes a double as Java does, with a digit behind the point.
func (w *jsonWriter) float(f float64) { w.b = append(w.b, javaDouble(f)...) }

func javaDouble(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsAny(s, ".NI") {
		s += ".0"
	}
	return s
}

func (w *jsonWriter) strMember(name, v string)        { w.key(name); w.str(v) }
func (w *jsonWriter) intMember(name string, n int64)  { w.key(name); w.int(n) }
func (w *jsonWriter) boolMember(name string, v bool)  { w.key(name); w.bool(v) }
func (w *jsonWriter) rawMember(name, text string)     { w.key(name); w.raw(text) }
func (w *jsonWriter) floatMember(n string, f float64) { w.key(n); w.float(f) }
func (w *jsonWriter) stringsMember(name string, list []string) {
	w.key(name)
	w.beginArray()
	for _, s := range list {
		w.element()
		w.str(s)
	}
	w.endArray()
}

const hexDigits = "0123456789abcdef"

// str writes a string; bytes that are no UTF-8 become U+FFFD.
func (w *jsonWriter) str(s string) {
	w.b = append(w.b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			w.ascii(c)
			i++
			continue
		}
		u, size := utf8.DecodeRuneInString(s[i:])
		if u == '\u2028' || u == '\u2029' {
			w.b = append(w.b, `\u202`...)
			w.b = append(w.b, hexDigits[u&0xF])
		} else {
			w.b = utf8.AppendRune(w.b, u)
		}
		i += size
	}
	w.b = append(w.b, '"')
}

func (w *jsonWriter) ascii(c byte) {
	switch {
	case c == '"' || c == '\\':
		w.b = append(w.b, '\\', c)
	case c == '\n':
		w.b = append(w.b, '\\', 'n')
	case c == '\r':
		w.b = append(w.b, '\\', 'r')
	case c == '\t':
		w.b = append(w.b, '\\', 't')
	case c == '\b':
		w.b = append(w.b, '\\', 'b')
	case c == '\f':
		w.b = append(w.b, '\\', 'f')
	case c < 0x20 || c == 0x7f:
		w.b = append(w.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
	default:
		w.b = append(w.b, c)
	}
}

// MessageQueue names one queue of one broker. Source: MessageQueue.
type MessageQueue struct {
	Topic      string
	BrokerName string
	QueueID    int32
}

func compareQueues(a, b MessageQueue) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.BrokerName, b.BrokerName); c != 0 {
		return c
	}
	return int(a.QueueID) - int(b.QueueID)
}

// readQueue reads a MessageQueue, as a value or from the text of a key.
func (r *jsonReader) readQueue() (q MessageQueue, err error) {
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "topic":
			q.Topic, err = r.text()
		case "brokerName":
			q.BrokerName, err = r.text()
		case "queueId":
			q.QueueID, err = r.int32()
		default:
			err = r.skip()
		}
		return err
	})
	return q, err
}

// queueOfKey reads a MessageQueue that stood as a key.
func queueOfKey(key []byte) (MessageQueue, error) {
	r := newJSONReader(key)
	q, err := r.readQueue()
	if err == nil {
		err = r.end()
	}
	return q, err
}
