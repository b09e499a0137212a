// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"

	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

// nullServer says yes to every request, at once, and allocates nothing for it.
func nullServer(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				sayYes(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func sayYes(conn net.Conn) {
	const digits, id = 10, `"opaque":`
	yes := wire.NewCommand(remoting.Success, "queueId", "1", "queueOffset", "12")
	yes.Flag, yes.Opaque = remoting.FlagResponse, 1111111111
	answer := yes.AppendTo(nil, 0)
	answerID := bytes.Index(answer, []byte(id)) + len(id)
	buffer := make([]byte, 0, 1<<20)
	var out []byte
	for {
		n, err := conn.Read(buffer[len(buffer):cap(buffer)])
		if err != nil {
			return
		}
		buffer = buffer[:len(buffer)+n]
		out = out[:0]
		rest := buffer
		for len(rest) >= 4 && len(rest) >= 4+int(binary.BigEndian.Uint32(rest)) {
			size := 4 + int(binary.BigEndian.Uint32(rest))
			at := bytes.Index(rest[:size], []byte(id)) + len(id)
			out = append(out, answer...)
			copy(out[len(out)-len(answer)+answerID:], rest[at:at+digits])
			rest = rest[size:]
		}
		buffer = buffer[:copy(buffer, rest)]
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// However many messages are sent, the generator allocates what it needs once.
func TestMessagesDoNotAllocate(t *testing.T) {
	if raceDetector {
		return // counted without it
	}
	addr := nullServer(t)
	mallocs := func(count int64, set func(*Config)) uint64 {
		cfg := testConfig(Produce, addr)
		cfg.Count = count
		set(&cfg)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if r := mustRun(t, cfg); r.Messages != count {
			t.Fatalf("%d messages", r.Messages)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	for name, set := range map[string]func(*Config){
		"pipelined": func(*Config) {},
		"batch":     func(c *Config) { c.Mode = ModeBatch },
		"sizes":     func(c *Config) { c.Body = "32-500" },
	} {
		const few, many = 32 * 500, 32 * 3500
		more := int64(mallocs(many, set)) - int64(mallocs(few, set))
		if perMessage := float64(more) / (many - few); perMessage > .02 {
			t.Errorf("%s: %v allocations a message", name, perMessage)
		}
	}
}
