// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"strconv"
	"testing"

	"loopmq/reactor/remoting"
)

var sendFieldNames = [2][]string{
	{"topic", "defaultTopic", "properties", "defaultTopicQueueNums", "queueId", "sysFlag", "flag", "reconsumeTimes", "maxReconsumeTimes", "bornTimestamp", "unitMode", "batch"},
	{"b", "c", "i", "d", "e", "f", "h", "j", "l", "g", "k", "m"},
}

// decodeSlowly reads the header field by field.
func decodeSlowly(cmd *remoting.Command) (h sendHeader, ok bool) {
	names := sendFieldNames[1]
	if cmd.Code == remoting.SendMessage {
		names = sendFieldNames[0]
	}
	ok = true
	fields := intFields{ext: &cmd.Ext}
	h.topic, _ = cmd.Ext.Get(names[0])
	h.defaultTopic, _ = cmd.Ext.Get(names[1])
	h.properties, _ = cmd.Ext.Get(names[2])
	h.defaultTopicQueueNums = fields.optionalInt32(names[3], 0)
	h.queueID, h.sysFlag, h.flag = fields.int32(names[4]), fields.int32(names[5]), fields.int32(names[6])
	h.reconsumeTimes = fields.optionalInt32(names[7], 0)
	h.maxReconsumeTimes = fields.optionalInt32(names[8], -1)
	h.bornTimestamp = fields.int64(names[9])
	h.unitMode, h.batch = cmd.Ext.Bool(names[10]), cmd.Ext.Bool(names[11])
	return h, fields.err == nil
}

// The header read in one pass is the one read field by field.
func FuzzSendHeader(f *testing.F) {
	f.Add(true, []byte("T"), []byte("1"), []byte("0"), []byte("-1"), []byte("true"), uint16(0x0fff))
	f.Add(false, []byte(""), []byte("2147483648"), []byte("+7"), []byte("9223372036854775807"), []byte("TRUE"), uint16(0xffff))
	f.Add(false, []byte("x"), []byte("-2147483648"), []byte("00000000000000000001"), []byte("99999999999999999999"), []byte("yes"), uint16(0x0abc))
	f.Fuzz(func(t *testing.T, v1 bool, text, a, b, c, flag []byte, given uint16) {
		cmd := &remoting.Command{Code: remoting.SendMessageV2}
		names := sendFieldNames[1]
		if v1 {
			cmd.Code, names = remoting.SendMessage, sendFieldNames[0]
		}
		values := [][]byte{text, text, text, a, b, c, a, b, c, c, flag, flag}
		for i, name := range names {
			if given&(1<<i) != 0 {
				cmd.Ext.AddBytes(name, values[i])
			}
		}
		cmd.Ext.Add("a", "producers")
		cmd.Ext.Add("unknown", "1")
		var h sendHeader
		err := h.decode(cmd)
		want, ok := decodeSlowly(cmd)
		if (err == nil) != ok {
			if n, parseErr := strconv.ParseInt(string(c), 10, 64); parseErr == nil && n == -1<<63 || len(a) > 19 || len(b) > 19 || len(c) > 19 {
				return // longer than any number that means something
			}
			t.Fatalf("error %v, field by field ok is %v", err, ok)
		}
		if !ok {
			return
		}
		if !bytes.Equal(h.topic, want.topic) || !bytes.Equal(h.defaultTopic, want.defaultTopic) || !bytes.Equal(h.properties, want.properties) ||
			h.defaultTopicQueueNums != want.defaultTopicQueueNums || h.queueID != want.queueID || h.sysFlag != want.sysFlag || h.flag != want.flag ||
			h.reconsumeTimes != want.reconsumeTimes || h.maxReconsumeTimes != want.maxReconsumeTimes || h.bornTimestamp != want.bornTimestamp ||
			h.unitMode != want.unitMode || h.batch != want.batch {
			t.Fatalf("got %+v; want %+v", h, want)
		}
	})
}
