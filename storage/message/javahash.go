// SPDX-License-Identifier: Apache-2.0

package message

import "unicode/utf8"

// JavaHash is String#hashCode of the text that Java decodes from UTF-8: 32 bits, over UTF-16 units.
func JavaHash(text []byte) int32 { return ExtendJavaHash(0, text) }

// ExtendJavaHash goes on from the hash of what comes before text.
func ExtendJavaHash(hash int32, text []byte) int32 {
	i := 0
	for ; i+4 <= len(text); i += 4 { // four at a time, a step does not wait for four products in a row
		a, b, c, d := int32(text[i]), int32(text[i+1]), int32(text[i+2]), int32(text[i+3])
		if a|b|c|d >= utf8.RuneSelf {
			break
		}
		hash = 31*31*31*31*hash + 31*31*31*a + 31*31*b + 31*c + d
	}
	for i < len(text) {
		if c := text[i]; c < utf8.RuneSelf {
			hash = 31*hash + int32(c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			size = malformedLength(text[i:])
		}
		if r > 0xFFFF { // a pair of surrogates
			r -= 0x10000
			hash = 31*hash + 0xD800 + r>>10
			r = 0xDC00 + r&0x3FF
		}
		hash = 31*hash + r
		i += size
	}
	return hash
}

// malformedLength is how many bytes Java's decoder turns into one U+FFFD. Unlike Go's it takes the bytes of a sequence
// that begins well together, and a surrogate of three bytes too.
func malformedLength(b []byte) int {
	lead := b[0]
	switch {
	case len(b) < 2 || lead < 0xE0 || lead > 0xF4 || !continues(b[1]):
		return 1
	case lead == 0xE0 && b[1] < 0xA0, lead == 0xF0 && b[1] < 0x90, lead == 0xF4 && b[1] > 0x8F:
		return 1
	case len(b) < 3 || !continues(b[2]):
		return 2
	default:
		return 3
	}
}

func continues(b byte) bool { return b&0xC0 == 0x80 }

// TagsCode is what a ConsumeQueue stores of a tag: its hash, sign-extended, 0 without a tag.
// Source: MessageExtBrokerInner#tagsString2tagsCode.
func TagsCode(tag []byte) int64 { return int64(JavaHash(tag)) }
