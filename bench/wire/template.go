// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"loopmq/reactor/remoting"
)

// Template is an encoded request without a body, some parts of which are filled in for each sending. The codec writes it;
// where the parts lie is found by writing it again with a part changed and looking for the difference. So a template has
// the codec's bytes in either form of header, and filling one in is a copy and a few stores.
//
// A Template does not change once it is made: connections share it.
type Template struct {
	bytes  []byte
	opaque place
	parts  []place
}

type place struct{ at, width int }

// Two request ids that differ in each digit, and in each byte.
const (
	opaqueSampleA = 1111111111
	opaqueSampleB = 2000000000
)

// NewTemplate makes a template with parts variable parts. build makes the request with part i consisting of the byte
// fill[i], over and over, as wide as it is to be: '1' or '2', valid in numbers and texts alike.
func NewTemplate(parts int, build func(fill []byte) *remoting.Command) *Template {
	fill := slices.Repeat([]byte{'1'}, parts)
	encode := func(opaque int32) []byte {
		cmd := build(fill)
		cmd.Opaque = opaque
		return cmd.AppendTo(nil, 0)
	}
	t := &Template{bytes: encode(opaqueSampleA)}
	t.opaque = difference(t.bytes, encode(opaqueSampleB))
	for i := range fill {
		fill[i] = '2'
		t.parts = append(t.parts, difference(t.bytes, encode(opaqueSampleA)))
		fill[i] = '1'
	}
	return t
}

// difference is the one stretch in which a and b differ.
func difference(a, b []byte) place {
	if len(a) != len(b) {
		panic(fmt.Sprintf("BUG: a template of %d and %d bytes", len(a), len(b)))
	}
	first, end := -1, 0
	for i := range a {
		if a[i] != b[i] {
			if first < 0 {
				first = i
			} else if i != end {
				panic(fmt.Sprintf("BUG: a template differs at %d and again at %d", end-1, i))
			}
			end = i + 1
		}
	}
	if first < 0 {
		panic("BUG: a part of a template is nowhere in it")
	}
	return place{first, end - first}
}

// Len is how many bytes Append appends.
func (t *Template) Len() int { return len(t.bytes) }

// Append appends the request's head; the caller fills the parts in and appends bodyLength bytes. frame is the head.
func (t *Template) Append(dst []byte, opaque int32, bodyLength int) (all, frame []byte) {
	at := len(dst)
	dst = append(dst, t.bytes...)
	frame = dst[at:]
	binary.BigEndian.PutUint32(frame, uint32(len(t.bytes)-4+bodyLength))
	if p := t.opaque; p.width == 4 {
		binary.BigEndian.PutUint32(frame[p.at:], uint32(opaque))
	} else {
		putDecimal(frame[p.at:p.at+p.width], int64(opaque))
	}
	return dst, frame
}

// PutDecimal fills part i in with a number, zeros before it. What is too long loses its first digits.
func (t *Template) PutDecimal(frame []byte, i int, v int64) {
	p := t.parts[i]
	putDecimal(frame[p.at:p.at+p.width], v)
}

// PutHex is PutDecimal with hexadecimal digits.
func (t *Template) PutHex(frame []byte, i int, v uint64) {
	p := t.parts[i]
	putHex(frame[p.at:p.at+p.width], v)
}

const twoDigits = "00010203040506070809" +
	"10111213141516171819" +
	"20212223242526272829" +
	"30313233343536373839" +
	"40414243444546474849" +
	"50515253545556575859" +
	"60616263646566676869" +
	"70717273747576777879" +
	"80818283848586878889" +
	"90919293949596979899"

func putDecimal(b []byte, v int64) {
	n := uint64(v)
	i := len(b)
	for ; i >= 2; i -= 2 {
		pair := n % 100 * 2
		n /= 100
		b[i-1], b[i-2] = twoDigits[pair+1], twoDigits[pair]
	}
	if i == 1 {
		b[0] = byte('0' + n%10)
	}
}

const hexDigits = "0123456789ABCDEF"

func putHex(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = hexDigits[v&15]
		v >>= 4
	}
}
