// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// inflatedBodyMax bounds what a compressed registration may expand to; the frame itself is bounded by remoting.
	inflatedBodyMax = 64 << 20
	// versionRegisterBody is the first broker version (V3_0_11) whose body is a RegisterBrokerBody; older ones send the
	// bare topic wrapper.
	versionRegisterBody = 37
)

// dataVersion says whether two topic tables differ. Source: DataVersion; stateVersion is 0 for 4.x.
type dataVersion struct {
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"`
	Counter      int64 `json:"counter"`
}

func (v dataVersion) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"counter":`...)
	dst = strconv.AppendInt(dst, v.Counter, 10)
	dst = append(dst, `,"stateVersion":`...)
	dst = strconv.AppendInt(dst, v.StateVersion, 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, v.Timestamp, 10)
	return append(dst, '}')
}

// topicConfig is what a registration says of one topic.
type topicConfig struct {
	TopicName      string `json:"topicName"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	WriteQueueNums int32  `json:"writeQueueNums"`
	Perm           int32  `json:"perm"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
}

// topicTable is the topic part of a registration. Source: TopicConfigSerializeWrapper.
type topicTable struct {
	DataVersion      dataVersion            `json:"dataVersion"`
	TopicConfigTable map[string]topicConfig `json:"topicConfigTable"`

	overLimit int // topics of a compressed body beyond topicsMax: they are not kept
}

// decodeRegisterBody reads the body of REGISTER_BROKER in the form that its sender uses; an absent body is an empty table.
// Source: RegisterBrokerBody#decode.
func decodeRegisterBody(body []byte, compressed bool, version int32) (topicTable, error) {
	var table topicTable
	switch {
	case len(body) == 0:
		return table, nil
	case version < versionRegisterBody:
		err := decodeJSON(body, &table)
		return table, err
	case compressed:
		return inflateRegisterBody(body, inflatedBodyMax)
	}
	var whole struct {
		Wrapper topicTable `json:"topicConfigSerializeWrapper"`
	}
	err := decodeJSON(body, &whole)
	return whole.Wrapper, err
}

// inflateRegisterBody reads the compressed form:
//
//	int n, DataVersion as JSON | int topics | topics × (int n, "name read write perm filterType[ attributes]") | …
//
// topicSysFlag and order are not part of it. What follows the topics (filter servers, static topics) is not used.
func inflateRegisterBody(body []byte, limit int) (table topicTable, err error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return table, fmt.Errorf("inflate: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return table, fmt.Errorf("inflate: %w", err)
	}
	if len(plain) > limit {
		return table, fmt.Errorf("body expands to more than %d bytes", limit)
	}
	version, plain, err := cutCounted(plain)
	if err != nil {
		return table, fmt.Errorf("data version: %w", err)
	}
	if err := decodeJSON(version, &table.DataVersion); err != nil {
		return table, fmt.Errorf("data version: %w", err)
	}
	if len(plain) < 4 {
		return table, io.ErrUnexpectedEOF
	}
	count := int32(binary.BigEndian.Uint32(plain))
	plain = plain[4:]
	table.TopicConfigTable = make(map[string]topicConfig)
	for i := int32(0); i < count; i++ {
		var line []byte
		if line, plain, err = cutCounted(plain); err != nil {
			return table, fmt.Errorf("topic %d of %d: %w", i, count, err)
		}
		t, err := parseTopicLine(string(line))
		if err != nil {
			return table, err
		}
		if len(table.TopicConfigTable) == topicsMax {
			table.overLimit++
			continue
		}
		table.TopicConfigTable[t.TopicName] = t
	}
	return table, nil
}

// cutCounted takes a counted piece off the front of b.
func cutCounted(b []byte) (piece, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n := int64(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if n < 0 || n > int64(len(b)) {
		return nil, nil, fmt.Errorf("%d bytes announced, %d there", n, len(b))
	}
	return b[:n:n], b[n:], nil
}

func parseTopicLine(line string) (t topicConfig, err error) {
	parts := strings.SplitN(line, " ", 6)
	if len(parts) < 5 {
		return t, fmt.Errorf("topic line %q has %d parts", line, len(parts))
	}
	t.TopicName = parts[0]
	for i, field := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, err := strconv.ParseInt(parts[i+1], 10, 32)
		if err != nil {
			return t, fmt.Errorf("topic line %q: %w", line, err)
		}
		*field = int32(n)
	}
	return t, nil
}
