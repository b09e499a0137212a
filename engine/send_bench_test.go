// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

// sendLoad is closed-loop load: each connection writes a window of sends at once and waits for all the answers.
type sendLoad struct {
	addr                        string
	conns, window, n, body, per int // per: messages of a batch, 1 for single sends
}

func (l *sendLoad) frame() []byte {
	cmd := &remoting.Command{Code: remoting.SendMessageV2, Version: remoting.Version, Opaque: 1, Body: make([]byte, l.body)}
	fields := sendV2("bench", 0, "UNIQ_KEY\x017F0000010A2B18B4AAC2000000000001\x02WAIT\x01true\x02TAGS\x01TagA")
	if l.per > 1 {
		cmd.Code, cmd.Body = remoting.SendBatchMessage, nil
		for range l.per {
			cmd.Body = message.AppendBatchElement(cmd.Body, &message.BatchElement{Body: make([]byte, l.body), Properties: []byte("UNIQ_KEY\x017F0000010A2B18B4AAC2000000000001")})
		}
		fields = withFields(fields, "m", "true", "i", "WAIT\x01true")
	}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Ext.Add(fields[i], fields[i+1])
	}
	return cmd.AppendTo(nil, len(cmd.Body))
}

func (l *sendLoad) run() error {
	frame := l.frame()
	errs := make(chan error, l.conns)
	for i := range l.conns {
		n := l.n / l.conns
		if i < l.n%l.conns {
			n++
		}
		go func() { errs <- l.connection(frame, n) }()
	}
	var first error
	for range l.conns {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *sendLoad) connection(frame []byte, n int) error {
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	var window []byte
	for range l.window {
		window = append(window, frame...)
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	for sent := 0; sent < n; {
		k := min(l.window, n-sent)
		if _, err := conn.Write(window[:k*len(frame)]); err != nil {
			return err
		}
		for range k {
			head, err := r.Peek(4)
			if err != nil {
				return err
			}
			length := 4 + int(binary.BigEndian.Uint32(head))
			if sent == 0 {
				answer := make([]byte, length)
				var cmd remoting.Command
				if _, err := io.ReadFull(r, answer); err != nil {
					return err
				}
				if err := remoting.Decode(answer, &cmd); err != nil || cmd.Code != remoting.Success {
					return fmt.Errorf("code %d, %q, %v", cmd.Code, cmd.Remark, err)
				}
				continue
			}
			if _, err := r.Discard(length); err != nil {
				return err
			}
		}
		sent += k
	}
	return nil
}

const loadEnv = "LOOPMQ_SEND_LOAD"

// inChild runs the load in a process of its own, so that the broker's CPU time can be told from the client's.
func (l *sendLoad) inChild(t testing.TB) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestSendLoadChild$", "-test.count=1")
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d,%d,%d,%d,%d", loadEnv, l.addr, l.conns, l.window, l.n, l.body, l.per))
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("load: %v\n%s", err, out)
	}
}

// TestSendLoadChild is the body of that process; in a normal run there is nothing for it to do.
func TestSendLoadChild(t *testing.T) {
	spec := os.Getenv(loadEnv)
	if spec == "" {
		return
	}
	parts := strings.Split(spec, ",")
	var n [5]int
	for i := range n {
		n[i], _ = strconv.Atoi(parts[i+1])
	}
	l := sendLoad{addr: parts[0], conns: n[0], window: n[1], n: n[2], body: n[3], per: n[4]}
	must(t, l.run())
}

func cpuNanos() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkSend is a send through a loopback server into mapped files; broker-cpu-ns/msg is the CPU time of the broker's
// process alone, kernel included.
func BenchmarkSend(b *testing.B) {
	for _, c := range []struct {
		flush         string
		window, conns int
		body, per     int
	}{
		{"async", 64, 4, 1024, 1},
		{"async", 1, 64, 1024, 1},
		{"async", 64, 4, 128, 1},
		{"async", 8, 4, 1024, 32},
		{"sync", 1, 64, 1024, 1},
	} {
		b.Run(fmt.Sprintf("body=%d/batch=%d/window=%d/conns=%d/flush=%s", c.body, c.per, c.window, c.conns, c.flush), func(b *testing.B) {
			broker := startTestBroker(b, func(cfg *Config) {
				cfg.Store.MappedFileSizeCommitLog = 1 << 30
				cfg.Store.MappedFileSizeConsumeQueue = 6_000_000
				cfg.Store.MaxHashSlotNum, cfg.Store.MaxIndexNum = 5_000_000, 20_000_000
				if c.flush == "sync" {
					cfg.Store.FlushDiskType = storage.SyncFlush
				}
			})
			load := sendLoad{addr: broker.addr, conns: c.conns, window: c.window, n: 1000, body: c.body, per: c.per}
			must(b, load.run()) // makes the topic
			broker.dispatched()
			load.n = b.N
			b.SetBytes(int64(c.body * c.per))
			runtime.GC()
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuNanos()
			load.inChild(b)
			b.ReportMetric(float64(cpuNanos()-before)/float64(b.N*c.per), "broker-cpu-ns/msg")
			b.ReportMetric(float64(b.N*c.per)/b.Elapsed().Seconds(), "msg/s")
			b.StopTimer()
		})
	}
}

// BenchmarkSendHeader takes the header of a send from the fields of its command.
func BenchmarkSendHeader(b *testing.B) {
	l := sendLoad{body: 1024, per: 1}
	var cmd remoting.Command
	must(b, remoting.Decode(l.frame(), &cmd))
	var h sendHeader
	b.ReportAllocs()
	for b.Loop() {
		if err := h.decode(&cmd); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSendAnswer writes the answer of a stored send.
func BenchmarkSendAnswer(b *testing.B) {
	p := &SendMessageProcessor{b: new(BrokerController)}
	p.b.config.Store(&Config{RegionID: "DefaultRegion"})
	s := &sendRecord{p: p, queueID: 3, host: netip.MustParseAddrPort("127.0.0.1:10911")}
	s.WroteOffset, s.QueueOffset = 0x123456789, 1_234_567
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		resp := s.encodeResponse(remoting.Success)
		resp.Flag, resp.Opaque = remoting.FlagResponse, 1_234_567
		out = resp.AppendTo(out[:0], 0)
	}
	b.SetBytes(int64(len(out)))
}

// The answer's JSON, which the send has at hand, is that of its fields.
func TestSendAnswerIsItsFields(t *testing.T) {
	s := new(sendRecord) // one for all, as it is reused
	f := func(region string, queueID int32, offset int64, status storage.PutMessageStatus, sizes ...int32) {
		t.Helper()
		s.p = &SendMessageProcessor{b: new(BrokerController)}
		s.p.b.config.Store(&Config{RegionID: region, TraceOn: true})
		s.host = netip.MustParseAddrPort("127.0.0.1:10911")
		s.queueID, s.status, s.sizes = queueID, status, sizes
		s.QueueOffset, s.WroteOffset = storage.QueueOffset(offset), storage.PhyOffset(offset)
		resp := s.encodeResponse(remoting.Success)
		fast := string(resp.AppendTo(nil, 0))
		resp.Ext.JSON = nil
		if slow := string(resp.AppendTo(nil, 0)); fast != slow {
			t.Fatalf("got %q; its fields make %q", fast, slow)
		}
		if n, err := resp.Ext.Int64("queueOffset", -1); n != offset || err != nil || resp.Ext.String("MSG_REGION") != region {
			t.Fatalf("got %q", fast)
		}
		if (len(resp.Remark) > 0) != (status != storage.PutOK) {
			t.Fatalf("status %v, remark %q", status, resp.Remark)
		}
	}
	f("DefaultRegion", 3, 1234567, storage.PutOK)
	f("", 0, 0, storage.PutOK)
	f("a\"b\\\x01é", math.MaxInt32, math.MaxInt64, storage.PutOK)
	f("DefaultRegion", 1, 99, storage.PutOK, 100, 200, 300)
	f("DefaultRegion", 1, 5, storage.FlushDiskTimeout)
	f("DefaultRegion", 1, 5, storage.PutOK)
}

// A send allocates nothing: receive, decode, check, encode, append, answer, and the dispatch behind it.
func TestSendAllocatesNothing(t *testing.T) {
	if raceDetector {
		return // it makes pools forget at random
	}
	b := startTestBroker(t, func(cfg *Config) {
		cfg.Store.MappedFileSizeCommitLog = 256 << 20
		cfg.Store.MessageIndexEnable = false
	})
	load := sendLoad{addr: b.addr, conns: 2, window: 64, n: 4_000, body: 1024, per: 1}
	must(t, load.run())
	b.dispatched()
	const n = 40_000
	var before, after runtime.MemStats
	load.n = n
	runtime.ReadMemStats(&before)
	load.inChild(t)
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.05 {
		t.Errorf("%.2f allocations per send", per)
	}
}

// The same, for the part between the frame and the store alone.
func TestCheckTopicNameAllocatesNothing(t *testing.T) {
	topic := []byte("a_topic_of_a_usual_length_and_more_than_32_bytes")
	if n := testing.AllocsPerRun(100, func() { _ = checkTopicName(topic) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
