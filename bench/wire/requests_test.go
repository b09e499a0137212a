// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"loopmq/reactor/remoting"
	"loopmq/storage/message"
)

// decodeFrames reads all frames of b.
func decodeFrames(t *testing.T, b []byte) (all []*remoting.Command) {
	t.Helper()
	for len(b) > 0 {
		n, err := remoting.FrameLength(b)
		if err != nil || n == 0 || n > len(b) {
			t.Fatalf("frame length %d of %d: %v", n, len(b), err)
		}
		cmd := new(remoting.Command)
		if err := remoting.Decode(b[:n], cmd); err != nil {
			t.Fatal(err)
		}
		all, b = append(all, cmd), b[n:]
	}
	return all
}

func wantFields(t *testing.T, cmd *remoting.Command, fields ...string) {
	t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		if got := cmd.Ext.String(fields[i]); got != fields[i+1] {
			t.Fatalf("field %s is %q; want %q", fields[i], got, fields[i+1])
		}
	}
}

func randomMessage(r *rand.Rand) Message {
	m := Message{Born: r.Int64N(9_999_999_999_999), Key: r.Uint64(), Head: make([]byte, r.IntN(40)), Tail: make([]byte, r.IntN(2000))}
	for i := range m.Head {
		m.Head[i] = byte(r.Uint32())
	}
	for i := range m.Tail {
		m.Tail[i] = byte(r.Uint32())
	}
	return m
}

// Whatever is filled into a template, the codec reads it back, in either form of header.
func TestSendRequests(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := SendOptions{
			Group: "producers", Topic: fmt.Sprintf("1111111111111-2000000000-%d", r.IntN(1000)), BrokerName: "broker \"a\"", QueueID: r.IntN(5000),
			Serialize: remoting.SerializeType(r.IntN(2)), UniqueKey: uint64(r.IntN(3)), Oneway: r.IntN(2) == 0,
		}
		template := NewSendTemplate(o)
		var out []byte
		var sent []Message
		var opaques []int32
		for range 1 + r.IntN(5) {
			request := SendRequest{Template: template, Message: randomMessage(r)}
			opaque := int32(opaqueMin + r.IntN(opaqueMin))
			out = request.AppendFrame(out, opaque)
			sent, opaques = append(sent, request.Message), append(opaques, opaque)
		}
		for i, cmd := range decodeFrames(t, out) {
			m := sent[i]
			if cmd.Code != remoting.SendMessageV2 || cmd.Opaque != opaques[i] || cmd.IsOneway() != o.Oneway || cmd.Serialize != o.Serialize {
				t.Fatalf("seed %d: %+v", seed, cmd)
			}
			properties := ""
			if o.UniqueKey != 0 {
				properties = fmt.Sprintf("UNIQ_KEY\x01%016X%016X\x02WAIT\x01true", o.UniqueKey, m.Key)
			}
			wantFields(t, cmd, "a", o.Group, "b", o.Topic, "e", strconv.Itoa(o.QueueID), "g", fmt.Sprintf("%013d", m.Born), "i", properties, "m", "false", "n", o.BrokerName)
			if !bytes.Equal(cmd.Body, append(bytes.Clone(m.Head), m.Tail...)) {
				t.Fatalf("seed %d: another body", seed)
			}
		}
	}
}

// A batch is what the broker cuts into the same messages.
func TestBatchRequests(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := SendOptions{Group: "g", Topic: "t", QueueID: 3, UniqueKey: uint64(r.IntN(2)), Serialize: remoting.SerializeType(r.IntN(2))}
		request := BatchRequest{Template: NewBatchTemplate(o)}
		for range 1 + r.IntN(40) {
			request.Messages = append(request.Messages, randomMessage(r))
		}
		cmd := decodeFrames(t, request.AppendFrame(nil, opaqueMin))[0]
		if cmd.Code != remoting.SendBatchMessage {
			t.Fatalf("code %d", cmd.Code)
		}
		wantFields(t, cmd, "m", "true", "e", "3", "g", fmt.Sprintf("%013d", request.Messages[0].Born))
		rest := cmd.Body
		for i, m := range request.Messages {
			var e message.BatchElement
			var err error
			if e, rest, err = message.NextBatchElement(rest); err != nil {
				t.Fatalf("seed %d: message %d: %v", seed, i, err)
			}
			properties := ""
			if o.UniqueKey != 0 {
				properties = fmt.Sprintf("UNIQ_KEY\x01%016X%016X", o.UniqueKey, m.Key)
			}
			if !bytes.Equal(e.Body, append(bytes.Clone(m.Head), m.Tail...)) || string(e.Properties) != properties {
				t.Fatalf("seed %d: message %d has %d bytes and properties %q", seed, i, len(e.Body), e.Properties)
			}
		}
		if len(rest) != 0 {
			t.Fatalf("seed %d: %d bytes behind the last message", seed, len(rest))
		}
	}
}

func TestPullRequests(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		o := PullOptions{Group: "g", Topic: "t", QueueID: r.IntN(100), MaxMessages: 1 + r.IntN(1000), HoldMillis: r.Int64N(2) * 15000, Commit: r.IntN(2) == 0, Serialize: remoting.SerializeType(r.IntN(2))}
		request := PullRequest{Template: NewPullTemplate(o), Offset: r.Int64(), Commit: r.Int64()}
		cmd := decodeFrames(t, request.AppendFrame(nil, opaqueMin))[0]
		flag := 4
		if o.HoldMillis > 0 {
			flag |= 2
		}
		if o.Commit {
			flag |= 1
		}
		wantFields(t, cmd, "consumerGroup", "g", "topic", "t", "sysFlag", strconv.Itoa(flag), "maxMsgNums", strconv.Itoa(o.MaxMessages), "suspendTimeoutMillis", fmt.Sprint(o.HoldMillis))
		for key, want := range map[string]int64{"queueOffset": request.Offset, "commitOffset": request.Commit, "queueId": int64(o.QueueID)} {
			if got, err := cmd.Ext.Int64(key, -1); err != nil || got != want {
				t.Fatalf("%s is %d, %v; want %d", key, got, err, want)
			}
		}
	}
}

func TestDigits(t *testing.T) {
	f := func(width int, v int64, decimal, hex string) {
		t.Helper()
		b := make([]byte, width)
		if putDecimal(b, v); string(b) != decimal {
			t.Errorf("putDecimal(%d in %d)=%s; want %s", v, width, b, decimal)
		}
		if putHex(b, uint64(v)); string(b) != hex {
			t.Errorf("putHex(%d in %d)=%s; want %s", v, width, b, hex)
		}
	}
	f(1, 7, "7", "7")
	f(3, 7, "007", "007")
	f(4, 65535, "5535", "FFFF")
	f(19, 1<<63-1, "9223372036854775807", "0007FFFFFFFFFFFFFFF")
}
