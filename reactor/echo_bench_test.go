// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"bufio"
	"fmt"
	"io"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// BenchmarkEcho answers V2-like sends over loopback, from one connection with a window of requests under way. The
// client's half runs in the same process.
func BenchmarkEcho(b *testing.B) {
	for _, depth := range []int{1, 64} {
		for _, body := range []int{0, 1024} {
			for _, reply := range []string{"inline", "deferred"} {
				b.Run(fmt.Sprintf("depth=%d/body=%d/reply=%s", depth, body, reply), func(b *testing.B) {
					benchmarkEcho(b, depth, body, reply == "deferred")
				})
			}
		}
	}
}

// benchmarkEcho: deferred means that another goroutine answers, as the flush service does.
func benchmarkEcho(b *testing.B, depth, body int, deferred bool) {
	var ok remoting.Command
	ok.Ext.Add("queueOffset", "123456")
	waiting := make(chan ReplyTo, 2*depth)
	s := startServer(b, RemotingServerConfig{}, func(s *RemotingServer) {
		s.RegisterProcessor(remoting.SendMessageV2, ProcessorFunc(func(req *Request) {
			if deferred {
				waiting <- req.ReplyTo()
			} else {
				req.Reply(&ok)
			}
		}), nil, true)
	})
	go func() {
		for to := range waiting {
			to.Reply(&ok)
		}
	}()
	defer close(waiting)
	w := dial(b, s.Addr())
	req := remoting.Command{Code: remoting.SendMessageV2, Version: remoting.Version, Body: make([]byte, body)}
	for k := 'a'; k <= 'm'; k++ {
		req.Ext.Add(string(k), "some value")
	}
	frame := req.AppendTo(nil, 0)
	var batch []byte
	for range depth {
		batch = append(batch, frame...)
	}
	w.send(frame)
	resp := w.receive()
	answer := len(resp.AppendTo(nil, 0))
	r := bufio.NewReaderSize(w, 1<<20)
	_ = w.SetReadDeadline(noDeadline)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	for n := b.N; n > 0; n -= depth {
		w.send(batch)
		if _, err := io.CopyN(io.Discard, r, int64(answer*depth)); err != nil {
			b.Fatal(err)
		}
	}
}

var noDeadline time.Time
