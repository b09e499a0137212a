// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net"
	"testing"

	"loopmq/reactor/remoting"
	"loopmq/storage/message"
)

var forms = map[string]remoting.SerializeType{"json": remoting.SerializeJSON, "rocketmq": remoting.SerializeRocketMQ}

func BenchmarkEncodeSend(b *testing.B) {
	for name, form := range forms {
		b.Run("body=1024/header="+name, func(b *testing.B) {
			r := SendRequest{Template: NewSendTemplate(SendOptions{Group: "g", Topic: "bench", UniqueKey: 1, Serialize: form})}
			r.Head, r.Tail = make([]byte, 32), make([]byte, 1024-32)
			var out []byte
			b.SetBytes(1024)
			b.ReportAllocs()
			for b.Loop() {
				r.Key++
				out = r.AppendFrame(out[:0], opaqueMin)
			}
		})
	}
}

func BenchmarkReadHead(b *testing.B) {
	for name, form := range forms {
		b.Run("header="+name, func(b *testing.B) {
			cmd := NewCommand(remoting.Success, "queueId", "1", "TRACE_ON", "true", "MSG_REGION", "DefaultRegion", "msgId", "7F00000100002A9F0000000000000000", "queueOffset", "123456")
			cmd.Flag, cmd.Opaque, cmd.Serialize = remoting.FlagResponse, opaqueSampleA, form
			frame := cmd.AppendTo(nil, 0)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			var heads headReader
			for b.Loop() {
				if _, ok := heads.read(frame); !ok {
					b.Fatal("not read")
				}
			}
		})
	}
}

func BenchmarkNextRecord(b *testing.B) {
	body := message.AppendRecord(nil, &message.Record{Topic: []byte("bench"), Body: make([]byte, 1024), Properties: make([]byte, 80)})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var r Record
	for b.Loop() {
		if _, err := NextRecord(body, &r); err != nil {
			b.Fatal(err)
		}
	}
}

// A window of sends and their answers over loopback, the peer's part included: it answers without looking.
func BenchmarkSendAndAnswer(b *testing.B) {
	const window = 64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		sample := answerTo(&remoting.Command{Opaque: opaqueSampleA}, remoting.Success, nil, "queueId", "1", "queueOffset", "12")
		echo(nc, sample, bytes.Index(sample, []byte("1111111111")))
	}()
	left := window
	answered := make(chan struct{}, 1)
	c, err := Dial(b.Context(), l.Addr().String(), Options{Window: window, Round: func(*Conn) {
		if left == 0 {
			left = window
			answered <- struct{}{}
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	calls, requests := make([]Call, window), make([]SendRequest, window)
	template, body := NewSendTemplate(SendOptions{Group: "g", Topic: "t", UniqueKey: 1}), make([]byte, 1024)
	for i := range calls {
		calls[i] = Call{HeadOnly: true, Done: func(*Call, *remoting.Command, error) { left-- }}
		requests[i] = SendRequest{Template: template, Message: Message{Tail: body}}
	}
	b.SetBytes(window * 1024)
	b.ReportAllocs()
	for b.Loop() {
		now := Clock()
		c.Lock()
		for i := range calls {
			_ = c.Send(&calls[i], &requests[i], now)
		}
		c.FlushLocked()
		c.Unlock()
		<-answered
	}
	c.Close()
	<-c.Done()
	<-served
	_ = l.Close()
}
