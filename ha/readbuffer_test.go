// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// memoryLog is a slave's log of which only the bytes matter.
type memoryLog struct{ bytes []byte }

func (m *memoryLog) MinPhyOffset() storage.PhyOffset { return 0 }
func (m *memoryLog) MaxPhyOffset() storage.PhyOffset { return storage.PhyOffset(len(m.bytes)) }
func (m *memoryLog) FlushedWhere() storage.PhyOffset { return m.MaxPhyOffset() }
func (m *memoryLog) DispatchBehindBytes() int64      { return 0 }
func (m *memoryLog) Fence()                          {}
func (m *memoryLog) Unfence() bool                   { return true }
func (m *memoryLog) LastRun() (clean, others bool)   { return true, false }
func (m *memoryLog) Select(storage.PhyOffset, int) (storage.SelectMappedBufferResult, bool) {
	return storage.SelectMappedBufferResult{}, false
}
func (m *memoryLog) TruncateTo(offset storage.PhyOffset) error {
	m.bytes = m.bytes[:offset]
	return nil
}
func (m *memoryLog) AppendToCommitLog(start storage.PhyOffset, parts ...[]byte) error {
	if int(start) != len(m.bytes) && len(m.bytes) > 0 {
		return ErrProtocol
	}
	for _, part := range parts {
		m.bytes = append(m.bytes, part...)
	}
	return nil
}

// memoryConn is a link whose bytes a test hands over in pieces.
type memoryConn struct {
	reactor.Conn
	in     []byte
	out    []byte
	closed bool
}

func (c *memoryConn) InboundBuffered() int { return len(c.in) }
func (c *memoryConn) Read(p []byte) (int, error) {
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}
func (c *memoryConn) Writev(parts [][]byte) error {
	for _, p := range parts {
		c.out = append(c.out, p...)
	}
	return nil
}
func (c *memoryConn) Closed() bool               { return c.closed }
func (c *memoryConn) Close()                     { c.closed = true }
func (c *memoryConn) Post(f func()) bool         { return true }
func (c *memoryConn) RemoteAddr() netip.AddrPort { return testHost }

// memoryClient is a client without loops.
func memoryClient(t testing.TB) *HAClient {
	t.Helper()
	opts := Options{
		Config: func() *Config { return &Config{MappedFileSizeCommitLog: comparedFileSize} },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), FS: faultfs.New(), StatePath: "/ha.json", Store: &memoryLog{},
	}
	service, err := NewHAService(opts)
	if err != nil {
		t.Fatal(err)
	}
	return NewHAClient(opts, service)
}

// transferLink is a link on which a loopmq master sends from offset 0.
func (c *HAClient) transferLink() (*haLink, *memoryConn, *memoryLog) {
	log, conn := &memoryLog{}, &memoryConn{}
	c.store, c.service.store = log, log
	l := c.newLink("master")
	l.conn, l.state = conn, linkTransfer
	return l, conn, log
}

// FuzzReadBuffer: however the master's stream is cut, the log is the same, and every byte is in it.
func FuzzReadBuffer(f *testing.F) {
	f.Add(uint64(1), []byte{1, 7, 255})
	f.Add(uint64(2), []byte{0, 0, 0, 200})
	f.Add(uint64(3), []byte{12})
	client := memoryClient(f)
	f.Fuzz(func(t *testing.T, seed uint64, cuts []byte) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want := make([]byte, rng.IntN(min(1<<rng.IntN(24), 3*readBufferMax/2))) // most are short: a long one takes its time
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		var stream []byte
		for at := 0; at < len(want); {
			n := min(rng.IntN(1<<rng.IntN(22)), len(want)-at)
			stream = append(stream, frame(int64(at), want[at:at+n])...) // now and then a heartbeat
			at += n
		}
		l, conn, log := client.transferLink()
		for i := 0; len(stream) > 0; i++ {
			n := len(stream)
			if len(cuts) > 0 {
				// Small pieces at first, or a large log takes for ever.
				n = min(n, 1+int(cuts[i%len(cuts)])<<min(i/4, 14))
			}
			conn.in = append(conn.in, stream[:n]...)
			stream = stream[n:]
			l.onTraffic(time.Time{})
			if conn.closed {
				t.Fatalf("the link closed at %d of %d: %v", len(log.bytes), len(want), l.failed)
			}
		}
		if !bytes.Equal(log.bytes, want) {
			t.Fatalf("%d of %d bytes, or others", len(log.bytes), len(want))
		}
		if int(l.reported) != len(want) {
			t.Fatalf("reported %d of %d", l.reported, len(want))
		}
	})
}

// FuzzMasterBytes: whatever a master sends, a slave closes or waits, and never reports what it does not have.
func FuzzMasterBytes(f *testing.F) {
	f.Add(frame(0, []byte("abc")), uint8(linkTransfer))
	f.Add((&helloMessage{fileSize: comparedFileSize, end: 100}).append(nil), uint8(linkAsked))
	f.Add((&refuseMessage{reason: refuseAhead, text: "x"}).append(nil), uint8(linkComparing))
	f.Add((&hashMessage{from: 0, to: 10}).append(nil), uint8(linkComparing))
	client := memoryClient(f)
	f.Fuzz(func(t *testing.T, sent []byte, state uint8) {
		l, conn, log := client.transferLink()
		l.state = linkState(state % uint8(linkRefused+1))
		conn.in = sent
		l.onTraffic(time.Time{})
		if l.state == linkTransfer && int(l.reported) > max(len(log.bytes), int(l.hello.first)) {
			t.Fatalf("reported %d of %d", l.reported, len(log.bytes))
		}
	})
}

// All frames before a bad one are in the log, however many there are.
func TestManyFramesInOneTurn(t *testing.T) {
	client := memoryClient(t)
	for frames := range 3*bodiesMax + 2 {
		l, conn, log := client.transferLink()
		want := make([]byte, frames)
		for i := range want {
			want[i] = byte(i)
			conn.in = append(conn.in, frame(int64(i), want[i:i+1])...)
		}
		conn.in = append(conn.in, frame(int64(frames+1), []byte{1})...)
		l.onTraffic(time.Time{})
		if !bytes.Equal(log.bytes, want) || !conn.closed || !errors.Is(l.failed, ErrProtocol) {
			t.Fatalf("%d bytes of %d, closed %v: %v", len(log.bytes), frames, conn.closed, l.failed)
		}
	}
}

// The half packet at the end of a full buffer moves to the other array, at every length.
func TestReadBufferCarriesHalfPackets(t *testing.T) {
	for remain := range 2 * frameHeaderSize {
		b := newReadBuffer()
		whole := readBufferMax - remain - frameHeaderSize
		b.received(copy(b.space(), frame(0, make([]byte, whole))))
		half := frame(int64(whole), bytes.Repeat([]byte{7}, 100))
		n := copy(b.space(), half)
		if b.received(n); n != remain {
			t.Fatalf("%d bytes of room, want %d", n, remain)
		}
		h, ok, err := b.header()
		if err != nil || !ok || int(h.bodySize) != whole {
			t.Fatalf("%+v, %v, %v", h, ok, err)
		}
		b.dispatched(h)
		b.carry()
		b.received(copy(b.space(), half[n:]))
		h, _, _ = b.header()
		if body, ok := b.body(h); !ok || !bytes.Equal(body, half[frameHeaderSize:]) {
			t.Fatalf("with %d bytes carried: %v, %d bytes", remain, ok, len(body))
		}
	}
}
