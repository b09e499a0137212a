// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"iter"
)

// Properties iterates over the pairs of props, in order. A pair without a name, a value or the 0x01 between them is
// passed over. Source: MessageDecoder#string2messageProperties.
func Properties(props []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for len(props) > 0 {
			pair := props
			if end := bytes.IndexByte(props, PropertySeparator); end >= 0 {
				pair, props = props[:end], props[end+1:]
			} else {
				props = nil
			}
			middle := bytes.IndexByte(pair, NameValueSeparator)
			if middle < 1 || middle == len(pair)-1 {
				continue
			}
			if !yield(pair[:middle:middle], pair[middle+1:len(pair):len(pair)]) {
				return
			}
		}
	}
}

// PropertyValue finds the value of a name. Of several the last counts, as it does in a Java map.
func PropertyValue(props []byte, name string) (value []byte, ok bool) {
	for n, v := range Properties(props) {
		if string(n) == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// AppendProperty appends one pair to props, and before it the separator that the pair before may lack. The value must
// not be empty: readers would drop the pair.
func AppendProperty[V string | []byte](props []byte, name string, value V) []byte {
	props = appendSeparator(props)
	props = append(props, name...)
	props = append(props, NameValueSeparator)
	return append(props, value...)
}

// AppendProperties appends the pairs of more, verbatim.
func AppendProperties(props, more []byte) []byte {
	if len(more) == 0 {
		return props
	}
	return append(appendSeparator(props), more...)
}

func appendSeparator(props []byte) []byte {
	if len(props) == 0 || props[len(props)-1] == PropertySeparator {
		return props
	}
	return append(props, PropertySeparator)
}

// RemoveProperty appends to dst the pairs of props that have another name. dst may be props[:0].
func RemoveProperty(dst, props []byte, name string) []byte {
	for n, v := range Properties(props) {
		if string(n) == name {
			continue
		}
		// In place, a pair never moves to the right: what is written ends at or before what is read.
		dst = appendSeparator(dst)
		dst = append(dst, n...)
		dst = append(dst, NameValueSeparator)
		dst = append(dst, v...)
	}
	return dst
}

// ParseProperties makes a map of props.
func ParseProperties(props []byte) map[string]string {
	m := make(map[string]string)
	for name, value := range Properties(props) {
		m[string(name)] = string(value)
	}
	return m
}
