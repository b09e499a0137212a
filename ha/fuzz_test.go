// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// heardConn is a connection to the HA port whose bytes a test hands over, and which keeps what it is told.
type heardConn struct {
	quietConn
	out []byte

	mu    sync.Mutex // guards posts
	posts []func()
}

func (c *heardConn) Peek(n int) ([]byte, error) {
	if n > len(c.in) {
		return nil, io.ErrShortBuffer
	}
	return c.in[:n:n], nil
}

func (c *heardConn) Writev(parts [][]byte) error {
	for _, p := range parts {
		c.out = append(c.out, p...)
	}
	return nil
}

func (c *heardConn) Post(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts = append(c.posts, f)
	return true
}

// Close is a post, as the real one is.
func (c *heardConn) Close() { c.Post(func() { c.closed = true }) }

func (c *heardConn) runPosts() {
	c.mu.Lock()
	posts := c.posts
	c.posts = nil
	c.mu.Unlock()
	for _, f := range posts {
		if !c.closed {
			f()
		}
	}
}

// fuzzMaster is a master without a port, with a few files of log.
func fuzzMaster(f *testing.F) (*HAService, *storage.MessageStore) {
	f.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg := storage.DefaultConfig()
	cfg.StorePathRootDir, cfg.MappedFileSizeCommitLog, cfg.MappedFileSizeConsumeQueue = "/store", 16<<10, 20*100
	cfg.MaxHashSlotNum, cfg.MaxIndexNum, cfg.Role = 20, 100, storage.SyncMaster
	fsys := faultfs.New()
	store, err := storage.Open(cfg, storage.Options{FS: fsys, Logger: logger})
	if err != nil {
		f.Fatal(err)
	}
	if err := store.Start(); err != nil {
		f.Fatal(err)
	}
	for range 60 {
		stored := make(chan storage.PutMessageStatus, 1)
		r := message.Record{Topic: []byte("orders"), Body: bytes.Repeat([]byte{7}, 700), BornHost: testHost, StoreHost: testHost}
		store.AsyncPutMessage(&storage.PutMessage{
			Record: message.AppendRecord(nil, &r), MsgNum: 1, Topic: "orders",
			Appended: func(_ *storage.PutMessage, status storage.PutMessageStatus) { stored <- status },
		})
		if status := <-stored; status != storage.PutOK {
			f.Fatal(status)
		}
	}
	service, err := NewHAService(Options{
		Config: func() *Config {
			return &Config{
				Role: storage.SyncMaster, MappedFileSizeCommitLog: 16 << 10, HaTransferBatchSize: 1000, HaSlaveFallbehindMax: 1 << 20,
				HaSendHeartbeatInterval: time.Second, HaHousekeepingInterval: time.Minute, SlaveTimeout: time.Second,
			}
		},
		Store: store, Logger: logger, FS: fsys, StatePath: "/ha.json",
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := service.lead(); err != nil {
		f.Fatal(err)
	}
	service.helper.start()
	f.Cleanup(func() {
		service.helper.stop()
		if err := store.Close(); err != nil {
			f.Error(err)
		}
	})
	return service, store
}

// FuzzSlaveBytes: whatever comes to the HA port, and however it is cut, the master counts nobody as holding what its log
// does not have, and what it sends is its log, without a gap.
func FuzzSlaveBytes(f *testing.F) {
	report := func(offsets ...int64) (b []byte) {
		for _, o := range offsets {
			b = binary.BigEndian.AppendUint64(b, uint64(o))
		}
		return b
	}
	mine := mineMessage{end: 1000}
	refusal := refuseMessage{reason: refuseDiverged, text: "no"}
	f.Add(report(0, 100, 200), []byte{3})
	f.Add(report(-1, 5), []byte{8})
	f.Add(report(-2), []byte{1})
	f.Add(report(1<<40), []byte{8})
	f.Add(append(report(-1), appendOne(appendAsk(mine.append(nil), 0, 1000), kindBegin, 1000)...), []byte{20, 1, 7})
	f.Add(append(report(-1), appendHandshake(mine.append(nil), kindMore, appendOffsets(nil, 1000, 1500))...), []byte{20})
	f.Add(append(report(-1), refusal.append(nil)...), []byte{255})
	f.Add(append(report(1<<32), 0, 0, 0, 0, 0, 0, 0, 1), []byte{8})
	service, store := fuzzMaster(f)
	f.Fuzz(func(t *testing.T, said []byte, cuts []byte) {
		conn := &heardConn{}
		handler := &masterHandler{service}
		handler.OnOpen(conn)
		c := conn.context.(*HAConnection)
		for i := 0; len(said) > 0 && !conn.closed; i++ {
			n := len(said)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			conn.in = append(conn.in, said[:n]...)
			said = said[n:]
			handler.OnTraffic(conn)
			conn.runPosts()
		}
		c.onLoopTick()
		conn.runPosts()
		if ack, end := service.acked(), store.MaxPhyOffset(); ack > end {
			t.Fatalf("a slave counts as holding %d of %d", ack, end)
		}
		checkSent(t, store, conn.out)
		conn.closed = true
		handler.OnClose(conn, nil)
		if n := len(*service.connections.Load()); n != 0 {
			t.Fatalf("%d connections left", n)
		}
	})
}

// FuzzTailBytes: whatever a slave hands over as the end of its master's log, and in whatever pieces, the master takes
// whole records that say that they lie where they do, and nothing else.
func FuzzTailBytes(f *testing.F) {
	record := message.AppendRecord(nil, &message.Record{Topic: []byte("orders"), Body: []byte("lost"), BornHost: testHost, StoreHost: testHost})
	f.Add(record, []byte{}, int64(0))
	f.Add(append(record, record[:20]...), []byte{7}, int64(0))
	f.Add(record, []byte{50, 1}, int64(1))
	f.Add(message.AppendBlank(nil, 100), []byte{}, int64(0))
	service, store := fuzzMaster(f)
	store.Fence()
	f.Fuzz(func(t *testing.T, tail []byte, cuts []byte, shift int64) {
		var node nodeID
		service.tail.begin([]string{hex.EncodeToString(node[:])}, time.Now())
		begin := store.MaxPhyOffset()
		if at := message.PhysicalOffsetPosition; len(tail) > at+8 {
			tail = bytes.Clone(tail)
			binary.BigEndian.PutUint64(tail[at:], uint64(int64(begin)+shift))
		}
		conn := &heardConn{}
		handler := &masterHandler{service}
		handler.OnOpen(conn)
		hear := func(b []byte) {
			conn.in, conn.out = append(conn.in, b...), nil
			handler.OnTraffic(conn)
			conn.runPosts()
		}
		hear(binary.BigEndian.AppendUint64(nil, uint64(1<<64-1)))
		mine := mineMessage{end: begin + storage.PhyOffset(len(tail))}
		hear(appendHandshake(mine.append(nil), kindMore, appendOffsets(nil, begin, mine.end)))
		for i := 0; len(conn.out) >= frameHeaderSize && !conn.closed; i++ {
			header, err := decodeFrameHeader(conn.out)
			if _, kind := handshakeOf(int64(header.phyOffset)); err != nil || kind != kindWant {
				break
			}
			from, to, err := decodeRange(conn.out[frameHeaderSize : frameHeaderSize+header.bodySize])
			if err != nil || from < begin || to > mine.end {
				t.Fatalf("the master wants %d to %d of %d to %d, %v", from, to, begin, mine.end, err)
			}
			if len(cuts) > 0 {
				to = min(to, from+1+storage.PhyOffset(cuts[i%len(cuts)]))
			}
			hear(appendHandshake(nil, kindTail, append(appendOffsets(nil, from), tail[from-begin:to-begin]...)))
		}
		taken := tail[:store.MaxPhyOffset()-begin]
		check := tailCheck{at: begin, fileSize: 16 << 10}
		if _, whole, err := check.take(taken); err != nil || len(whole) != len(taken) {
			t.Fatalf("%d bytes were taken, %d of them are whole records, %v", len(taken), len(whole), err)
		}
		conn.closed = true
		handler.OnClose(conn, nil)
		if service.tail.current != nil {
			t.Fatal("the turn of a connection that is closed")
		}
	})
}

// checkSent reads what a master sent.
func checkSent(t *testing.T, store *storage.MessageStore, sent []byte) {
	t.Helper()
	next := storage.PhyOffset(-1)
	for len(sent) > 0 {
		h, err := decodeFrameHeader(sent)
		if err != nil {
			t.Fatalf("the master sent %v", err)
		}
		body := sent[frameHeaderSize : frameHeaderSize+int(h.bodySize)]
		sent = sent[frameHeaderSize+len(body):]
		if h.phyOffset < 0 {
			continue
		}
		if next >= 0 && h.phyOffset != next {
			t.Fatalf("the master sent a frame at %d, not at %d", h.phyOffset, next)
		}
		for next = h.phyOffset; len(body) > 0; {
			sel, ok := store.Select(next, len(body))
			if !ok || !bytes.HasPrefix(body, sel.Bytes()) {
				t.Fatalf("the master sent at %d what its log does not have", next)
			}
			n := len(sel.Bytes())
			sel.Release()
			body, next = body[n:], next+storage.PhyOffset(n)
		}
	}
}

// FuzzHandshake: a message of the handshake that is understood says again what it said.
func FuzzHandshake(f *testing.F) {
	add := func(b []byte) { f.Add(b) }
	add((&helloMessage{sync: true, fileSize: 1 << 30, first: 10, end: 20, syncFrom: 15}).append(nil))
	add((&mineMessage{first: 1, end: 2, floor: 2}).append(nil))
	add(appendAsk(nil, 5, 9))
	add((&hashMessage{from: 5, to: 9}).append(nil))
	add(appendOne(nil, kindBegin, 77))
	add((&helloMessage{waiting: true, fileSize: 1 << 20}).append(nil))
	add(appendHandshake(nil, kindMore, appendOffsets(nil, 20, 90)))
	add(appendHandshake(nil, kindWant, appendOffsets(nil, 20, 90)))
	add(appendHandshake(nil, kindTail, append(appendOffsets(nil, 20), 1, 2, 3)))
	add((&refuseMessage{reason: refuseExpired, first: 1, end: 2, text: "gone"}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeaderSize {
			return
		}
		h, err := decodeFrameHeader(b)
		if err != nil || h.phyOffset >= 0 || len(b) < frameHeaderSize+int(h.bodySize) {
			return
		}
		version, kind := handshakeOf(int64(h.phyOffset))
		if version != handshakeVersion {
			return
		}
		whole := b[:frameHeaderSize+int(h.bodySize)]
		if again, ok := sayAgain(kind, whole[frameHeaderSize:]); ok && !bytes.Equal(again, whole) {
			t.Fatalf("kind %d\n%x said again is\n%x", kind, whole, again)
		}
	})
}

// sayAgain decodes a body and encodes it; false when it is not understood, or held more than is kept of it.
func sayAgain(kind handshakeKind, body []byte) ([]byte, bool) {
	switch kind {
	case kindHello:
		m, err := decodeHello(body)
		return m.append(nil), err == nil && body[2] == 0 && body[3] == 0
	case kindMine:
		m, err := decodeMine(body)
		return m.append(nil), err == nil
	case kindAsk:
		from, to, err := decodeAsk(body)
		return appendAsk(nil, from, to), err == nil
	case kindHash:
		m, err := decodeHash(body)
		return m.append(nil), err == nil
	case kindBegin:
		offset, err := decodeOne(body)
		return appendOne(nil, kind, offset), err == nil
	case kindMore, kindWant:
		from, to, err := decodeRange(body)
		return appendHandshake(nil, kind, appendOffsets(nil, from, to)), err == nil
	case kindTail:
		from, piece, err := decodeTail(body)
		return appendHandshake(nil, kind, append(appendOffsets(nil, from), piece...)), err == nil
	case kindRefuse:
		m, err := decodeRefuse(body)
		return m.append(nil), err == nil && bytes.HasSuffix(body, []byte(m.text)) && len(m.text) == len(body)-18
	}
	return nil, false
}

// FuzzParseAllowList: a list that is understood allows what it names.
func FuzzParseAllowList(f *testing.F) {
	f.Add("10.0.0.0/8, 192.0.2.7,::1")
	f.Add(" ,")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseAllowList(text)
		if err != nil {
			return
		}
		for _, prefix := range list {
			if addr := prefix.Addr(); addr.Zone() == "" && !allowed(list, netip.AddrFrom16(addr.As16())) {
				t.Fatalf("%q does not allow %v", text, addr)
			}
		}
	})
}
