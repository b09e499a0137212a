// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"strconv"
	"strings"

	"loopmq/reactor/remoting"
)

// Properties of messages as stock producers send them: a unique key, by which the broker indexes each message, and that
// the sender waits for flush and slave. Source: MessageClientIDSetter, MessageConst.
const (
	uniqueKeyName  = "UNIQ_KEY\x01"
	waitStoreOK    = "WAIT\x01true"
	uniqueKeyFixed = 16 // digits of a key that stay the same
	uniqueKeyWidth = 16 // digits that count
	bornWidth      = 13 // digits of a time in milliseconds until the year 2286
	offsetWidth    = 19 // digits of the largest offset
)

// SendOptions are what all messages to a queue have in common.
type SendOptions struct {
	Group, Topic, BrokerName string
	QueueID                  int
	Serialize                remoting.SerializeType
	UniqueKey                uint64 // the first half of each message's unique key; 0: messages have no properties
	Oneway                   bool
}

const (
	sendBorn = iota
	sendKey
)

// SendTemplate makes SEND_MESSAGE_V2 requests to one queue, with the header fields that a Java client of 4.9 sends.
type SendTemplate struct {
	t    *Template
	keys bool
}

func NewSendTemplate(o SendOptions) *SendTemplate {
	parts := 1
	if o.UniqueKey != 0 {
		parts = 2
	}
	return &SendTemplate{keys: o.UniqueKey != 0, t: NewTemplate(parts, func(fill []byte) *remoting.Command {
		properties := ""
		if o.UniqueKey != 0 {
			properties = uniqueKeyName + fixedKey(o.UniqueKey) + strings.Repeat(string(fill[sendKey]), uniqueKeyWidth) + "\x02" + waitStoreOK
		}
		return o.command(remoting.SendMessageV2, fill[sendBorn], properties)
	})}
}

func fixedKey(v uint64) string {
	var b [uniqueKeyFixed]byte
	putHex(b[:], v)
	return string(b[:])
}

func (o *SendOptions) command(code int32, born byte, properties string) *remoting.Command {
	cmd := &remoting.Command{Code: code, Version: remoting.Version, Language: remoting.LanguageJava, Serialize: o.Serialize}
	if o.Oneway {
		cmd.Flag = remoting.FlagOneway
	}
	add := cmd.Ext.Add
	add("a", o.Group)
	add("b", o.Topic)
	add("c", "TBW102")
	add("d", "4")
	add("e", strconv.Itoa(o.QueueID))
	add("f", "0")
	add("g", strings.Repeat(string(born), bornWidth))
	add("h", "0")
	if properties != "" {
		add("i", properties)
	}
	add("j", "0")
	add("k", "false")
	add("m", strconv.FormatBool(code == remoting.SendBatchMessage))
	if o.BrokerName != "" {
		add("n", o.BrokerName)
	}
	return cmd
}

// Message is the varying part of a message. Its body is Head and, behind it, Tail.
type Message struct {
	Born       int64 // milliseconds
	Key        uint64
	Head, Tail []byte
}

// SendRequest is a Request for one message.
type SendRequest struct {
	Template *SendTemplate
	Message
}

func (r *SendRequest) AppendFrame(dst []byte, opaque int32) []byte {
	t := r.Template.t
	dst, frame := t.Append(dst, opaque, len(r.Head)+len(r.Tail))
	t.PutDecimal(frame, sendBorn, r.Born)
	if r.Template.keys {
		t.PutHex(frame, sendKey, r.Key)
	}
	return append(append(dst, r.Head...), r.Tail...)
}

// BatchTemplate makes SEND_BATCH_MESSAGE requests to one queue.
type BatchTemplate struct {
	t *Template
	// properties of a message, without the digits that vary at their end
	properties string
}

func NewBatchTemplate(o SendOptions) *BatchTemplate {
	b := new(BatchTemplate)
	properties := ""
	if o.UniqueKey != 0 {
		b.properties = uniqueKeyName + fixedKey(o.UniqueKey)
		properties = waitStoreOK
	}
	b.t = NewTemplate(1, func(fill []byte) *remoting.Command {
		return o.command(remoting.SendBatchMessage, fill[sendBorn], properties)
	})
	return b
}

// batchElementFixed is an element of a batch without body and properties. Source: MessageDecoder#encodeMessage.
const batchElementFixed = 5*4 + 2

// BatchRequest is a Request for several messages. Born is the first one's.
type BatchRequest struct {
	Template *BatchTemplate
	Messages []Message
}

func (r *BatchRequest) AppendFrame(dst []byte, opaque int32) []byte {
	b := r.Template
	fixed := batchElementFixed
	if b.properties != "" {
		fixed += len(b.properties) + uniqueKeyWidth
	}
	size := fixed * len(r.Messages)
	for i := range r.Messages {
		size += len(r.Messages[i].Head) + len(r.Messages[i].Tail)
	}
	dst, frame := b.t.Append(dst, opaque, size)
	b.t.PutDecimal(frame, sendBorn, r.Messages[0].Born)
	for i := range r.Messages {
		dst = b.appendElement(dst, &r.Messages[i], fixed)
	}
	return dst
}

func (b *BatchTemplate) appendElement(dst []byte, m *Message, fixed int) []byte {
	be := binary.BigEndian
	body := len(m.Head) + len(m.Tail)
	dst = be.AppendUint32(dst, uint32(fixed+body))
	dst = append(dst, make([]byte, 12)...) // magic, checksum and flag
	dst = be.AppendUint32(dst, uint32(body))
	dst = append(append(dst, m.Head...), m.Tail...)
	dst = be.AppendUint16(dst, uint16(fixed-batchElementFixed))
	if b.properties == "" {
		return dst
	}
	dst = append(dst, b.properties...)
	at := len(dst)
	dst = append(dst, make([]byte, uniqueKeyWidth)...)
	putHex(dst[at:], m.Key)
	return dst
}

// Bits of a pull's sysFlag. Source: PullSysFlag.
const (
	pullCommit       = 1
	pullSuspend      = 2
	pullSubscription = 4
)

// PullOptions are what all pulls of a queue have in common. A pull carries its subscription, so no heartbeat is needed.
type PullOptions struct {
	Group, Topic string
	QueueID      int
	MaxMessages  int
	HoldMillis   int64 // how long the broker may wait for messages; 0: not at all
	Commit       bool  // each pull commits the offset before it
	Serialize    remoting.SerializeType
}

const (
	pullOffset = iota
	pullCommitted
)

// PullTemplate makes PULL_MESSAGE requests for one queue.
type PullTemplate struct{ t *Template }

func NewPullTemplate(o PullOptions) *PullTemplate {
	flag := pullSubscription
	if o.HoldMillis > 0 {
		flag |= pullSuspend
	}
	if o.Commit {
		flag |= pullCommit
	}
	return &PullTemplate{NewTemplate(2, func(fill []byte) *remoting.Command {
		cmd := &remoting.Command{Code: remoting.PullMessage, Version: remoting.Version, Language: remoting.LanguageJava, Serialize: o.Serialize}
		add := cmd.Ext.Add
		add("consumerGroup", o.Group)
		add("topic", o.Topic)
		add("queueId", strconv.Itoa(o.QueueID))
		add("queueOffset", strings.Repeat(string(fill[pullOffset]), offsetWidth))
		add("maxMsgNums", strconv.Itoa(o.MaxMessages))
		add("sysFlag", strconv.Itoa(flag))
		add("commitOffset", strings.Repeat(string(fill[pullCommitted]), offsetWidth))
		add("suspendTimeoutMillis", strconv.FormatInt(o.HoldMillis, 10))
		add("subscription", "*")
		add("subVersion", "0")
		add("expressionType", "TAG")
		return cmd
	})}
}

// PullRequest is a Request for the messages from Offset on.
type PullRequest struct {
	Template *PullTemplate
	Offset   int64
	Commit   int64
}

func (r *PullRequest) AppendFrame(dst []byte, opaque int32) []byte {
	t := r.Template.t
	dst, frame := t.Append(dst, opaque, 0)
	t.PutDecimal(frame, pullOffset, r.Offset)
	t.PutDecimal(frame, pullCommitted, r.Commit)
	return dst
}
