// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"loopmq/reactor/remoting"
)

// goodThenTrash is the one of badInput that begins with a request that is answered.
const goodThenTrash = "good frame, then trash"

// badInput is what strangers send.
func badInput() map[string][]byte {
	length := func(n uint32, rest string) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	frame := func(form byte, headerLength uint32, header string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
		b = binary.BigEndian.AppendUint32(b, uint32(form)<<24|headerLength)
		return append(b, header...)
	}
	return map[string][]byte{
		"HTTP/2 preface":       []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"HTTP/1 request":       []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS hello":            {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"PROXY v1":             []byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"),
		"length 0":             length(0, "xxxx"),
		"length 3":             length(3, "xxxx"),
		"length one over":      length(remoting.FrameLengthMax-3, ""),
		"length 2^31-1":        length(1<<31-1, ""),
		"length 2^31":          length(1<<31, ""),
		"length 2^32-1":        length(1<<32-1, ""),
		"header length over":   frame(0, 100, "{}"),
		"header length 2^24-1": frame(0, 1<<24-1, "{}"),
		"serialize type 2":     frame(2, 2, "{}"),
		"serialize type 255":   frame(255, 2, "{}"),
		"header is no JSON":    frame(0, 5, "hello"),
		"JSON array":           frame(0, 2, "[]"),
		"deep JSON":            frame(0, 100_005, `{"a":`+strings.Repeat("[", 100_000)),
		"empty JSON header":    frame(0, 0, ""),
		"truncated binary":     frame(1, 20, strings.Repeat("\x00", 20)),
		"binary extLen over":   frame(1, 21, strings.Repeat("\x00", 17)+"\x00\x00\x10\x00"),
		goodThenTrash:          append((&wire{}).frame(10, ""), "GET / HTTP"...),
	}
}

// Garbage costs its own connection and nobody else's anything (apache/rocketmq#6784).
func TestBadInput(t *testing.T) {
	var log logs
	s := startServer(t, RemotingServerConfig{Logger: log.logger()}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	good := dial(t, s.Addr())
	bad := badInput()
	opened := 1
	for name, b := range bad {
		for _, piecewise := range []bool{false, true} {
			w := dial(t, s.Addr())
			opened++
			if piecewise && len(b) < 100 {
				for i := range b {
					if _, err := w.Write(b[i : i+1]); err != nil {
						break // closed at the first bytes already
					}
				}
			} else {
				_, _ = w.Write(b)
			}
			before := w.closedByServer()
			if answered := len(before) > 0; answered != (name == goodThenTrash) {
				t.Errorf("%s: %d bytes of answer", name, len(before))
			}
		}
	}
	eventually(t, "bad connections counted", func() bool { return s.Stats().ProtocolErrors == int64(2*len(bad)) })
	good.send(good.frame(10, "still here"))
	if c := good.receive(); string(c.Body) != "still here" {
		t.Fatalf("got %+v", c)
	}
	if n := log.count("connection closed"); n != 1 {
		t.Fatalf("%d log lines for %d strangers within the interval; want 1", n, opened-1)
	}
}

// However many strangers come, memory does not follow what they announce, and who speaks the protocol is served.
func TestManyStrangers(t *testing.T) {
	strangers := 1_000
	if *soak {
		strangers = 10_000
	}
	s := startServer(t, RemotingServerConfig{}, func(s *RemotingServer) { s.RegisterProcessor(10, echo, nil, true) })
	good := dial(t, s.Addr())
	bad := badInput()
	delete(bad, "deep JSON") // what it takes is what has arrived
	names := slices.Sorted(maps.Keys(bad))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range strangers {
		w := dial(t, s.Addr())
		_, _ = w.Write(bad[names[i%len(names)]])
		w.closedByServer()
		_ = w.Close()
		if i%100 == 0 {
			good.send(good.frame(10, "still here"))
			good.receive()
		}
	}
	runtime.ReadMemStats(&after)
	st := s.Stats()
	if st.ProtocolErrors != int64(strangers) || st.Connections != 1 || st.PartialFrameBytes != 0 {
		t.Fatalf("after %d strangers: %+v", strangers, st)
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / uint64(strangers); each > 32<<10 {
		t.Fatalf("%d bytes allocated for each stranger, the test's own included", each)
	} else {
		t.Logf("%d bytes allocated for each stranger, the test's own included", each)
	}
}
