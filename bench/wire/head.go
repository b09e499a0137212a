// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"

	"loopmq/reactor/remoting"
)

// head is what an answer says before its fields: enough for most answers of a load, and a small part of the work of
// decoding the whole.
type head struct{ code, opaque, flag int32 }

const (
	headerAt   = 8 // behind the length, and the word with form and length of the header
	headerMask = 1<<24 - 1
)

// headReader reads the heads of a connection's answers. They are alike, but for the fields and the request id; so it
// remembers what stood around the fields, and where the id was.
type headReader struct {
	before, behind []byte // of the fields' braces, both included in behind and before
	inBefore       bool   // where the id is
	at             int    // of the id, there
	head           head   // with the rest of what was read
}

// opaqueWidth is how many digits each of our request ids has.
const opaqueWidth = 10

// read reads the head of a whole frame. Where anything is not as brokers write it, ok is false and the codec is to look;
// where ok is true and the codec accepts the frame too, it reads the same.
func (r *headReader) read(frame []byte) (h head, ok bool) {
	if len(frame) < headerAt {
		return h, false
	}
	word := binary.BigEndian.Uint32(frame[4:])
	size := int(word & headerMask)
	if size > len(frame)-headerAt {
		return h, false
	}
	header := frame[headerAt : headerAt+size]
	switch remoting.SerializeType(word >> 24) {
	case remoting.SerializeJSON:
		if h, ok = r.again(header); ok {
			return h, true
		}
		if h, ok = jsonHead(header); ok {
			r.remember(header, h)
		}
		return h, ok
	case remoting.SerializeRocketMQ:
		return binaryHead(header)
	}
	return h, false
}

// again reads a header that is like the one before: the same but for the id, and fields without a closing brace or an
// escape. Then the fields end where they ended before, and the members around them are the same.
func (r *headReader) again(b []byte) (h head, ok bool) {
	fields := len(b) - len(r.behind)
	if len(r.behind) == 0 || fields < len(r.before) {
		return h, false
	}
	before, behind, middle := b[:len(r.before)], b[fields:], b[len(r.before):fields]
	id := behind
	if r.inBefore {
		id = before
		ok = sameBut(before, r.before, r.at) && string(behind) == string(r.behind)
	} else {
		ok = sameBut(behind, r.behind, r.at) && string(before) == string(r.before)
	}
	if !ok || bytes.IndexByte(middle, '}') >= 0 || bytes.IndexByte(middle, '\\') >= 0 {
		return h, false
	}
	h = r.head
	v, n := number(id[r.at : r.at+opaqueWidth])
	h.opaque = v
	return h, n == opaqueWidth
}

// sameBut compares all but the digits of an id.
func sameBut(a, b []byte, at int) bool {
	return string(a[:at]) == string(b[:at]) && string(a[at+opaqueWidth:]) == string(b[at+opaqueWidth:])
}

// remember takes a header as the one that others are like, if it has fields and one id of ours.
func (r *headReader) remember(b []byte, h head) {
	r.behind = r.behind[:0]
	const fieldsKey, idKey = `"extFields":{`, `"opaque":`
	fields, id := bytes.Index(b, []byte(fieldsKey)), bytes.Index(b, []byte(idKey))
	if fields < 0 || id < 0 || bytes.Count(b, []byte(idKey)) != 1 || h.opaque < opaqueMin {
		return
	}
	fields += len(fieldsKey)
	end := bytes.IndexByte(b[fields:], '}')
	if end < 0 {
		return
	}
	end += fields
	id += len(idKey)
	if id+opaqueWidth > len(b) || id >= fields && id < end {
		return
	}
	r.head, r.inBefore, r.at = h, id < fields, id
	if !r.inBefore {
		r.at = id - end
	}
	r.before = append(r.before[:0], b[:fields]...)
	r.behind = append(r.behind, b[end:]...)
}

// binaryHead reads code (2), language (1), version (2), opaque (4), flag (4).
func binaryHead(b []byte) (h head, ok bool) {
	const fixed = 21
	if len(b) < fixed {
		return h, false
	}
	be := binary.BigEndian
	return head{int32(int16(be.Uint16(b))), int32(be.Uint32(b[5:])), int32(be.Uint32(b[9:]))}, true
}

// jsonHead reads the members of an object: plain numbers, strings without escapes, and objects that it passes over up to
// the first closing brace. Without a backslash a quote ends a string, always. So a brace that stood in a string is found
// out: what follows it does not begin a member.
func jsonHead(b []byte) (h head, ok bool) {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' || bytes.IndexByte(b, '\\') >= 0 {
		return h, false
	}
	for i := 1; ; {
		if i >= len(b) || b[i] != '"' {
			return h, false
		}
		n := bytes.IndexByte(b[i+1:], '"')
		if n < 0 {
			return h, false
		}
		key := b[i+1 : i+1+n]
		i += n + 2
		if i+1 >= len(b) || b[i] != ':' {
			return h, false
		}
		i++
		switch c := b[i]; {
		case c == '"':
			n := bytes.IndexByte(b[i+1:], '"')
			if n < 0 || isHeadKey(key) {
				return h, false
			}
			i += n + 2
		case c == '{':
			n := bytes.IndexByte(b[i:], '}')
			if n < 0 || isHeadKey(key) || bytes.IndexByte(b[i+1:i+n], '{') >= 0 {
				return h, false
			}
			i += n + 1
		default:
			v, n := number(b[i:])
			if n == 0 {
				return h, false
			}
			h.set(key, v)
			i += n
		}
		if i == len(b)-1 {
			return h, true // the closing brace
		}
		if i >= len(b) || b[i] != ',' {
			return h, false
		}
		i++
	}
}

func isHeadKey(key []byte) bool {
	return string(key) == "code" || string(key) == "opaque" || string(key) == "flag"
}

func (h *head) set(key []byte, v int32) {
	switch string(key) {
	case "code":
		h.code = v
	case "opaque":
		h.opaque = v
	case "flag":
		h.flag = v
	}
}

// number reads up to ten digits with an optional sign: n bytes, 0 if that is no 32-bit integer.
func number(b []byte) (v int32, n int) {
	negative := b[0] == '-'
	if negative {
		n = 1
	}
	first := n
	sum := int64(0)
	for n < len(b) && '0' <= b[n] && b[n] <= '9' && n-first < 11 {
		sum = sum*10 + int64(b[n]-'0')
		n++
	}
	if negative {
		sum = -sum
	}
	if n == first || sum != int64(int32(sum)) {
		return 0, 0
	}
	return int32(sum), n
}
