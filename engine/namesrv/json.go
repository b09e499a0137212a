// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// decodeJSON reads text as fastjson writes it: standard JSON, except that integer keys of maps come unquoted.
func decodeJSON(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
	return json.Unmarshal(quoteIntegerKeys(text), into)
}

// quoteIntegerKeys puts quotes around the integers that stand where an object's key must be.
func quoteIntegerKeys(text []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(text) + 16)
	inString, keyMayFollow := false, false
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case inString && b == '\\' && i+1 < len(text):
			out.WriteByte(b)
			i++
			out.WriteByte(text[i])
			continue
		case b == '"':
			inString = !inString
			keyMayFollow = false
		case inString:
		case b == '{' || b == ',':
			keyMayFollow = true
		case keyMayFollow && (b == '-' || b >= '0' && b <= '9'):
			end := integerKeyEnd(text, i)
			keyMayFollow = false
			if end == 0 {
				break
			}
			out.WriteByte('"')
			out.Write(text[i:end])
			out.WriteByte('"')
			i = end - 1
			continue
		case b != ' ' && b != '\t' && b != '\n' && b != '\r':
			keyMayFollow = false
		}
		out.WriteByte(b)
	}
	return out.Bytes()
}

// integerKeyEnd returns the end of the integer at start if a colon follows it: only then is it a key (in an array it
// is an element).
func integerKeyEnd(text []byte, start int) int {
	end := start
	if text[end] == '-' {
		end++
	}
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if rest := bytes.TrimLeft(text[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
		return end
	}
	return 0
}

// appendString appends s as a JSON string, in ASCII: all readers agree on it, whatever they take the charset to be.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r >= 0x20 && r < utf8.RuneSelf-1:
			dst = append(dst, byte(r))
		case r > 0xffff:
			r -= 0x10000
			dst = appendUnit(dst, hex, 0xd800+(r>>10))
			dst = appendUnit(dst, hex, 0xdc00+(r&0x3ff))
		default:
			dst = appendUnit(dst, hex, r)
		}
	}
	return append(dst, '"')
}

func appendUnit(dst []byte, hex string, r rune) []byte {
	return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// appendObject writes an object whose members are sorted.
func appendObject[V any](dst []byte, members map[string]V, appendValue func([]byte, V) []byte) []byte {
	dst = append(dst, '{')
	for i, key := range sortedKeys(members) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, key), ':')
		dst = appendValue(dst, members[key])
	}
	return append(dst, '}')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

func appendIntKey(dst []byte, key int64, quoted bool) []byte {
	if !quoted {
		return strconv.AppendInt(dst, key, 10)
	}
	dst = append(dst, '"')
	dst = strconv.AppendInt(dst, key, 10)
	return append(dst, '"')
}
