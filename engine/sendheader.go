// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"

	"loopmq/reactor/remoting"
)

// sendHeader is SendMessageRequestHeader; V2 spells the same fields with one letter each. Slices borrow the request. Sends
// are read most, so the header is taken in one pass over the fields; of a key that stands twice the last counts.
type sendHeader struct {
	topic, defaultTopic, properties         []byte
	defaultTopicQueueNums, queueID, sysFlag int32
	flag, reconsumeTimes                    int32
	maxReconsumeTimes                       int32 // -1: not given
	bornTimestamp                           int64
	unitMode, batch                         bool

	seen uint32 // bit f: field f was given
	err  error
}

type sendField uint8

const (
	fieldNone sendField = iota
	fieldTopic
	fieldDefaultTopic
	fieldDefaultTopicQueueNums
	fieldQueueID
	fieldSysFlag
	fieldBornTimestamp
	fieldFlag
	fieldProperties
	fieldReconsumeTimes
	fieldUnitMode
	fieldMaxReconsumeTimes
	fieldBatch
)

// sendFieldsRequired are those that a message cannot be made without.
const sendFieldsRequired = 1<<fieldQueueID | 1<<fieldSysFlag | 1<<fieldBornTimestamp | 1<<fieldFlag

// sendLetters are the names of V2. a is the producer group and n the broker's name, which nothing here needs.
// Source: SendMessageRequestHeaderV2.
var sendLetters = [26]sendField{
	'b' - 'a': fieldTopic,
	'c' - 'a': fieldDefaultTopic,
	'd' - 'a': fieldDefaultTopicQueueNums,
	'e' - 'a': fieldQueueID,
	'f' - 'a': fieldSysFlag,
	'g' - 'a': fieldBornTimestamp,
	'h' - 'a': fieldFlag,
	'i' - 'a': fieldProperties,
	'j' - 'a': fieldReconsumeTimes,
	'k' - 'a': fieldUnitMode,
	'l' - 'a': fieldMaxReconsumeTimes,
	'm' - 'a': fieldBatch,
}

func sendFieldV2(key []byte) sendField {
	if len(key) == 1 && key[0]-'a' < 26 {
		return sendLetters[key[0]-'a']
	}
	return fieldNone
}

func sendFieldV1(key []byte) sendField {
	switch string(key) {
	case "topic":
		return fieldTopic
	case "defaultTopic":
		return fieldDefaultTopic
	case "defaultTopicQueueNums":
		return fieldDefaultTopicQueueNums
	case "queueId":
		return fieldQueueID
	case "sysFlag":
		return fieldSysFlag
	case "bornTimestamp":
		return fieldBornTimestamp
	case "flag":
		return fieldFlag
	case "properties":
		return fieldProperties
	case "reconsumeTimes":
		return fieldReconsumeTimes
	case "unitMode":
		return fieldUnitMode
	case "maxReconsumeTimes":
		return fieldMaxReconsumeTimes
	case "batch":
		return fieldBatch
	}
	return fieldNone
}

// decode reads the header of a send in the form that its code asks for.
func (h *sendHeader) decode(cmd *remoting.Command) error {
	*h = sendHeader{maxReconsumeTimes: -1}
	v1 := cmd.Code == remoting.SendMessage
	for i := range cmd.Ext.List {
		f := &cmd.Ext.List[i]
		if len(f.Value) == 0 {
			continue // as if it were absent
		}
		if v1 {
			h.set(sendFieldV1(f.Key), f)
		} else {
			h.set(sendFieldV2(f.Key), f)
		}
	}
	if h.err == nil && h.seen&sendFieldsRequired != sendFieldsRequired {
		h.err = h.missing(v1)
	}
	return h.err
}

func (h *sendHeader) set(field sendField, f *remoting.Field) {
	h.seen |= 1 << field
	switch field {
	case fieldTopic:
		h.topic = f.Value
	case fieldDefaultTopic:
		h.defaultTopic = f.Value
	case fieldDefaultTopicQueueNums:
		h.defaultTopicQueueNums = h.int32(f)
	case fieldQueueID:
		h.queueID = h.int32(f)
	case fieldSysFlag:
		h.sysFlag = h.int32(f)
	case fieldBornTimestamp:
		h.bornTimestamp = h.int64(f)
	case fieldFlag:
		h.flag = h.int32(f)
	case fieldProperties:
		h.properties = f.Value
	case fieldReconsumeTimes:
		h.reconsumeTimes = h.int32(f)
	case fieldUnitMode:
		h.unitMode = javaTrue(f.Value)
	case fieldMaxReconsumeTimes:
		h.maxReconsumeTimes = h.int32(f)
	case fieldBatch:
		h.batch = javaTrue(f.Value)
	}
}

func (h *sendHeader) int32(f *remoting.Field) int32 {
	if len(f.Value) == 1 && f.Value[0]-'0' <= 9 { // most are so
		return int32(f.Value[0] - '0')
	}
	return h.longInt32(f)
}

func (h *sendHeader) longInt32(f *remoting.Field) int32 {
	n := h.int64(f)
	if int64(int32(n)) != n {
		h.fail(f)
	}
	return int32(n)
}

// int64 reads a number by Long#parseLong's rules, but for its least, which no field has a use for.
func (h *sendHeader) int64(f *remoting.Field) int64 {
	digits, negative := f.Value, false
	if digits[0] == '-' || digits[0] == '+' {
		negative, digits = digits[0] == '-', digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 { // more do not fit, and 19 cannot overflow n
		h.fail(f)
		return 0
	}
	var n uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 {
			h.fail(f)
			return 0
		}
		n = n*10 + d
	}
	if n > math.MaxInt64 {
		h.fail(f)
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

func (h *sendHeader) fail(f *remoting.Field) {
	if h.err == nil {
		h.err = fmt.Errorf("header field %s is %q, not a number that fits", shown(f.Key), shown(f.Value))
	}
}

func (h *sendHeader) missing(v1 bool) error {
	names := [...]struct {
		field  sendField
		v1, v2 string
	}{
		{fieldQueueID, "queueId", "e"}, {fieldSysFlag, "sysFlag", "f"},
		{fieldBornTimestamp, "bornTimestamp", "g"}, {fieldFlag, "flag", "h"},
	}
	for _, n := range names {
		if h.seen&(1<<n.field) != 0 {
			continue
		}
		if v1 {
			return fmt.Errorf("header field %s is missing", n.v1)
		}
		return fmt.Errorf("header field %s is missing", n.v2)
	}
	return nil
}
