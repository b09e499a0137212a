// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// openStore opens and starts a store with a log of the given bytes.
func openStore(t testing.TB, fsys *faultfs.FS, role storage.Role, change func(*storage.Config), log []byte) *storage.MessageStore {
	t.Helper()
	cfg := storage.DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog = "/store", "/store/commitlog"
	cfg.MappedFileSizeCommitLog, cfg.MappedFileSizeConsumeQueue = comparedFileSize, 20_000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum, cfg.MessageIndexEnable = 100, 1_000, false
	cfg.MaxMessageSize = comparedFileSize / 2
	cfg.FlushCommitLogLeastPages, cfg.FlushIntervalCommitLog = 0, 20
	if cfg.Role = role; role == storage.Slave {
		cfg.BrokerID = 1
	}
	if change != nil {
		change(&cfg)
	}
	store, err := storage.Open(cfg, storage.Options{FS: fsys, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if len(log) > 0 {
		if err := store.AppendToCommitLog(0, log); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// testSlave is a slave's store and its HAClient, which follows whoever listens at the address it is given.
type testSlave struct {
	t         *testing.T
	fs        *faultfs.FS
	store     *storage.MessageStore
	client    *HAClient
	cfg       Config
	log       lockedBuffer
	addr      atomic.Pointer[string]
	minOffset atomic.Int64 // of the master; -1: nobody knows
	asked     atomic.Int64
}

func newTestSlave(t *testing.T, log []byte, change func(*Config)) *testSlave {
	t.Helper()
	s := &testSlave{t: t, fs: faultfs.New()}
	s.store = openStore(t, s.fs, storage.Slave, nil, log)
	s.cfg = Config{
		Role: storage.Slave, BrokerID: 1, HaSendHeartbeatInterval: 100 * time.Millisecond, HaHousekeepingInterval: 20 * time.Second,
		HaTransferBatchSize: 32 << 10, MappedFileSizeCommitLog: comparedFileSize,
	}
	if change != nil {
		change(&s.cfg)
	}
	opts := Options{
		Config: func() *Config { return &s.cfg }, Store: s.store, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		MasterAddress: func() string {
			if addr := s.addr.Load(); addr != nil {
				return *addr
			}
			return ""
		},
		MasterMinOffset: func(context.Context) (storage.PhyOffset, error) {
			s.asked.Add(1)
			if first := s.minOffset.Load(); first >= 0 {
				return storage.PhyOffset(first), nil
			}
			return 0, errors.New("nobody knows the master")
		},
		FS: s.fs, StatePath: "/store/ha.json",
	}
	service, err := NewHAService(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.client = NewHAClient(opts, service)
	if err := s.client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Stop)
	return s
}

func (s *testSlave) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(testWait); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s\n%+v\n%s", what, s.client.Status(), s.log.String())
		}
	}
}

// follow makes the slave connect to the fake master, which takes the connection.
func (s *testSlave) follow(m *fakeMaster) *fakeLink {
	s.t.Helper()
	addr := m.Addr().String()
	s.addr.Store(&addr)
	s.client.Wakeup()
	return m.accept()
}

// holds waits until the log ends at end, and compares it from its first byte.
func (s *testSlave) holds(log []byte, end int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the log ends at %d", end), func() bool { return int(s.store.MaxPhyOffset()) == end })
	for at := s.store.MinPhyOffset(); int(at) < end; {
		sel, ok := s.store.Select(at, 1<<20)
		if !ok || !bytes.Equal(sel.Bytes(), log[at:int(at)+len(sel.Bytes())]) {
			s.t.Fatalf("the log differs behind %d", at)
		}
		at += storage.PhyOffset(len(sel.Bytes()))
		sel.Release()
	}
}

// fakeMaster is a master that a test speaks for.
type fakeMaster struct {
	net.Listener
	t *testing.T
}

func newFakeMaster(t *testing.T) *fakeMaster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &fakeMaster{l, t}
}

func (m *fakeMaster) accept() *fakeLink {
	m.t.Helper()
	_ = m.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(testWait))
	conn, err := m.Accept()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	l := &fakeLink{conn, m.t}
	if first := l.report(); first != handshakeRequest {
		m.t.Fatalf("the slave begins with %d", first)
	}
	return l
}

type fakeLink struct {
	net.Conn
	t *testing.T
}

func (l *fakeLink) read(n int) []byte {
	l.t.Helper()
	b := make([]byte, n)
	_ = l.SetReadDeadline(time.Now().Add(testWait))
	if _, err := io.ReadFull(l, b); err != nil {
		l.t.Fatalf("read of the slave's %d bytes: %v", n, err)
	}
	return b
}

func (l *fakeLink) report() int64 {
	l.t.Helper()
	return int64(binary.BigEndian.Uint64(l.read(reportSize)))
}

func (l *fakeLink) wantReport(want int64) {
	l.t.Helper()
	if got := l.report(); got != want {
		l.t.Fatalf("the slave reports %d; want %d", got, want)
	}
}

// reports reads until the slave reports want.
func (l *fakeLink) reports(want int64) {
	l.t.Helper()
	for before := int64(-1); ; {
		got := l.report()
		if got == want {
			return
		}
		if got < before || got > want {
			l.t.Fatalf("the slave reports %d behind %d, on the way to %d", got, before, want)
		}
		before = got
	}
}

func (l *fakeLink) send(b []byte) {
	l.t.Helper()
	if _, err := l.Write(b); err != nil {
		l.t.Fatal(err)
	}
}

func frame(offset int64, body []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// closed waits until the slave has closed the link.
func (l *fakeLink) closed() {
	l.t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(testWait))
	for b := make([]byte, 1024); ; {
		if _, err := l.Read(b); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				l.t.Fatal("the slave keeps the link")
			}
			return
		}
	}
}

// message reads one handshake message.
func (l *fakeLink) message(want handshakeKind) []byte {
	l.t.Helper()
	for {
		first := l.report()
		if !isHandshake(first) {
			continue // a heartbeat
		}
		body := l.read(int(binary.BigEndian.Uint32(l.read(4))))
		if _, kind := handshakeOf(first); kind != want {
			l.t.Fatalf("the slave sends message %d; want %d: %q", kind, want, body)
		}
		return body
	}
}

// hello is a loopmq master's, and answers the slave's questions from log until it begins.
func (l *fakeLink) hello(m helloMessage, log []byte) (begin storage.PhyOffset) {
	l.t.Helper()
	m.fileSize = comparedFileSize
	l.send(m.append(nil))
	l.message(kindMine)
	for {
		first := l.report()
		_, kind := handshakeOf(first)
		body := l.read(int(binary.BigEndian.Uint32(l.read(4))))
		switch kind {
		case kindAsk:
			from, to, err := decodeAsk(body)
			if err != nil || int(to) > len(log) {
				l.t.Fatalf("question for %d to %d: %v", from, to, err)
			}
			l.send((&hashMessage{from: from, to: to, sum: sha256.Sum256(log[from:to])}).append(nil))
		case kindBegin:
			begin, err := decodeOne(body)
			if err != nil {
				l.t.Fatal(err)
			}
			return begin
		case kindRefuse:
			return -1
		default:
			l.t.Fatalf("message %d", kind)
		}
	}
}

func someLog(seed uint64, records int) *writtenLog {
	return new(writtenLog).grow(rand.New(rand.NewPCG(seed, 9)), records, int64(seed))
}

func TestSlaveFollowsARocketMQMaster(t *testing.T) {
	t.Parallel()
	log := someLog(1, 60).bytes
	half := len(log)/2 + 7
	s := newTestSlave(t, log[:half], nil)
	m := newFakeMaster(t)
	began := time.Now()
	l := s.follow(m)
	l.wantReport(int64(half))
	if waited := time.Since(began); waited < handshakeWait {
		t.Errorf("the offset came after %v", waited)
	}
	for at := half; at < len(log); {
		n := min(1+rand.IntN(30_000), len(log)-at, comparedFileSize-at%comparedFileSize)
		l.send(frame(int64(at), log[at:at+n]))
		at += n
	}
	l.reports(int64(len(log)))
	s.holds(log, len(log))
	l.send(frame(int64(len(log)), nil)) // heartbeat
	l.wantReport(int64(len(log)))       // the slave's own
	if st := s.client.Status(); st.State != "transfer" || st.LastError != "" || st.Refused != "" {
		t.Errorf("%+v", st)
	}
	// The master goes: after a while the slave is back, where it was.
	l.Close()
	s.eventually("it is seen that the link ended", func() bool { return s.client.Status().State == "connecting" })
	s.client.Wakeup()
	m.accept().wantReport(int64(len(log)))
}

// An empty slave copies all of a RocketMQ master's log, which that master gives to whoever does not say 0.
func TestEmptySlaveCopiesAWholeRocketMQLog(t *testing.T) {
	t.Parallel()
	log := someLog(2, 60).bytes
	t.Run("from 0", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, nil, nil)
		l := s.follow(newFakeMaster(t))
		l.wantReport(1)
		l.send(frame(1, log[1:30_000]))
		l.send(frame(30_000, log[30_000:comparedFileSize]))
		l.send(frame(comparedFileSize, log[comparedFileSize:]))
		l.reports(int64(len(log)))
		s.holds(log, len(log))
		if !s.client.state.copying() {
			t.Error("it is not known that the copy has not caught up")
		}
		l.send(frame(int64(len(log)), nil))
		s.eventually("the copy has caught up", func() bool { return !s.client.state.copying() })
		if !strings.Contains(s.log.String(), "caught up with the master") {
			t.Error("the operator is not told")
		}
	})
	t.Run("from a later file", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, nil, nil)
		s.minOffset.Store(2 * comparedFileSize)
		l := s.follow(newFakeMaster(t))
		l.wantReport(2 * comparedFileSize)
		l.send(frame(2*comparedFileSize, log[2*comparedFileSize:2*comparedFileSize+100]))
		l.send(frame(2*comparedFileSize+100, log[2*comparedFileSize+100:3*comparedFileSize]))
		l.reports(3 * comparedFileSize)
		s.holds(log, 3*comparedFileSize)
	})
	t.Run("the first file goes meanwhile", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, nil, nil)
		m := newFakeMaster(t)
		l := s.follow(m)
		l.wantReport(1)
		l.send(frame(1, log[1:20_000]))
		s.eventually("some of it came", func() bool { return s.client.Status().MasterEnd == 20_000 })
		s.minOffset.Store(comparedFileSize)
		l.send(frame(20_000, nil))
		l.closed()
		s.client.Wakeup()
		l = m.accept()
		l.wantReport(comparedFileSize)
		l.send(frame(comparedFileSize, log[comparedFileSize:2*comparedFileSize]))
		l.reports(2 * comparedFileSize)
		s.holds(log, 2*comparedFileSize)
		if s.store.MinPhyOffset() != comparedFileSize {
			t.Errorf("the log begins at %d", s.store.MinPhyOffset())
		}
	})
	t.Run("nobody knows where it begins", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, nil, nil)
		s.minOffset.Store(-1)
		m := newFakeMaster(t)
		s.follow(m).closed()
		s.eventually("it is said", func() bool { return strings.Contains(s.client.Status().LastError, "nobody knows the master") })
		s.minOffset.Store(0)
		s.client.Wakeup()
		m.accept().wantReport(1)
	})
}

// A RocketMQ master that no longer has what a slave needs sends heartbeats for ever (apache/rocketmq#3388).
func TestSlaveOutOfRangeIsANamedState(t *testing.T) {
	t.Parallel()
	log := someLog(3, 40).bytes
	s := newTestSlave(t, log[:5000], nil)
	l := s.follow(newFakeMaster(t))
	l.wantReport(5000)
	s.minOffset.Store(comparedFileSize)
	l.send(frame(5000, nil))
	l.closed()
	s.eventually("it is refused", func() bool {
		st := s.client.Status()
		return st.State == "refused" && strings.Contains(st.Refused, "rebuild this slave")
	})
	s.holds(log, 5000)
}

func TestSlaveRefusesBytesThatDoNotJoin(t *testing.T) {
	t.Parallel()
	a, b := someLog(4, 30), someLog(5, 30)
	f := func(what string, end int, bytes []byte, want string) {
		t.Helper()
		s := newTestSlave(t, a.bytes[:end], nil)
		l := s.follow(newFakeMaster(t))
		l.wantReport(int64(end))
		l.send(frame(int64(end), bytes))
		l.closed()
		s.eventually(what+" is refused", func() bool { return strings.Contains(s.client.Status().LastError, want) })
		s.holds(a.bytes, end)
	}
	boundary := a.starts[7]
	f("another record's middle", boundary, b.bytes[b.starts[3]+10:b.starts[3]+300], "no record begins")
	f("a record of another place", boundary, b.bytes[b.starts[1]:b.starts[3]], "says it lies at")
	large := 0
	for i, start := range a.starts[:len(a.starts)-1] {
		if size := a.starts[i+1] - start; size > 300 && size < 10_000 {
			large = start
		}
	}
	cut := large + 150
	tail := bytes.Clone(a.bytes[cut : cut+comparedFileSize-cut%comparedFileSize])
	tail[10] ^= 1
	f("a spanning record that is damaged", cut, tail, "do not join")
}

func TestSlaveClosesOnAWrongFrame(t *testing.T) {
	t.Parallel()
	a := someLog(6, 20).bytes
	f := func(what string, sent []byte, want string) {
		t.Helper()
		s := newTestSlave(t, a[:3000], nil)
		l := s.follow(newFakeMaster(t))
		l.wantReport(3000)
		l.send(sent)
		l.closed()
		s.eventually(what+": "+want, func() bool { return strings.Contains(s.client.Status().LastError, want) })
		s.holds(a, 3000)
	}
	f("an offset that is not the next", frame(3001, a[3001:3100])[:12], "this slave is at 3000")
	f("a heartbeat of another offset", frame(2999, nil), "this slave is at 3000")
	f("a negative size", binary.BigEndian.AppendUint32(frame(3000, nil)[:8], 1<<31), "body of -2147483648 bytes")
	f("a size that no buffer holds", binary.BigEndian.AppendUint32(frame(3000, nil)[:8], readBufferMax), "controller mode")
	// A master in controller mode: state 1, size, offset …
	f("another protocol", append([]byte{0, 0, 0, 1, 0, 0, 0, 12}, make([]byte, 24)...), "controller mode")
}

func TestSlaveSaysWhatAControllerModeMasterIs(t *testing.T) {
	t.Parallel()
	s := newTestSlave(t, someLog(7, 5).bytes[:300], nil)
	l := s.follow(newFakeMaster(t))
	l.wantReport(300)
	l.Close()
	s.eventually("it is said", func() bool { return strings.Contains(s.client.Status().LastError, "controller mode") })
}

func TestSlaveLeavesASilentMaster(t *testing.T) {
	t.Parallel()
	s := newTestSlave(t, someLog(8, 5).bytes[:300], func(c *Config) { c.HaHousekeepingInterval = 1200 * time.Millisecond })
	l := s.follow(newFakeMaster(t))
	l.wantReport(300)
	l.closed() // its own reports go on meanwhile
	s.eventually("it is said", func() bool { return strings.Contains(s.client.Status().LastError, "silent") })
}

// A master that closes at once gets a connection every reconnectWait (apache/rocketmq#2476).
func TestSlaveDoesNotSpin(t *testing.T) {
	t.Parallel()
	s := newTestSlave(t, nil, nil)
	m := newFakeMaster(t)
	addr := m.Addr().String()
	s.addr.Store(&addr)
	s.client.Wakeup()
	_ = m.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(3 * time.Second))
	n := 0
	for {
		conn, err := m.Accept()
		if err != nil {
			break
		}
		n++
		conn.Close()
	}
	if n > 2 { // the first, and one for Wakeup
		t.Errorf("%d connections in 3 s", n)
	}
}

// A slave that cannot write closes the link itself and says why (apache/rocketmq#3484).
func TestSlaveThatCannotWriteSaysSo(t *testing.T) {
	t.Parallel()
	log := someLog(9, 60).bytes
	s := newTestSlave(t, log[:100], nil)
	l := s.follow(newFakeMaster(t))
	l.wantReport(100)
	s.fs.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Err: errors.New("no space")})
	s.fs.Fail(faultfs.Fault{Op: faultfs.OpCreate, Err: errors.New("no space")})
	for at := 100; at < 3*comparedFileSize; {
		n := min(20_000, comparedFileSize-at%comparedFileSize)
		if _, err := l.Write(frame(int64(at), log[at:at+n])); err != nil {
			break
		}
		at += n
	}
	l.closed()
	s.eventually("it is said", func() bool {
		return strings.Contains(s.client.Status().LastError, "cannot write its log")
	})
	s.fs.ClearFaults()
}

func TestSlaveComparesWithALoopmqMaster(t *testing.T) {
	t.Parallel()
	common := someLog(10, 25)
	mine, masters := common.grow(rand.New(rand.NewPCG(1, 1)), 8, 11), common.grow(rand.New(rand.NewPCG(2, 2)), 20, 12)
	end := len(masters.bytes)

	t.Run("the tail of an ASYNC_MASTER goes", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, common.bytes, nil)
		m := newFakeMaster(t)
		l := s.follow(m)
		begin := l.hello(helloMessage{end: storage.PhyOffset(len(mine.bytes))}, mine.bytes)
		if int(begin) != len(common.bytes) {
			t.Fatalf("begins at %d, ends at %d", begin, len(common.bytes))
		}
		sendFrames(l, mine.bytes, int(begin))
		l.reports(int64(len(mine.bytes)))
		l.Close()
		s.eventually("the link ends", func() bool { return s.client.Status().State == "connecting" })
		s.client.Wakeup()
		l = m.accept()
		begin = l.hello(helloMessage{end: storage.PhyOffset(end)}, masters.bytes)
		if int(begin) < len(common.bytes) || int(begin) >= len(mine.bytes) && len(mine.bytes) != len(common.bytes) {
			t.Fatalf("begins at %d; the logs part at %d", begin, len(common.bytes))
		}
		if cuts, _ := s.client.Cuts(); cuts != 1 {
			t.Errorf("%d cuts counted", cuts)
		}
		sendFrames(l, masters.bytes, int(begin))
		l.reports(int64(end))
		s.holds(masters.bytes, end)
	})
	t.Run("the tail of a SYNC_MASTER stays", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, common.bytes, nil)
		m := newFakeMaster(t)
		l := s.follow(m)
		begin := l.hello(helloMessage{sync: true, end: storage.PhyOffset(len(mine.bytes))}, mine.bytes)
		sendFrames(l, mine.bytes, int(begin))
		l.reports(int64(len(mine.bytes)))
		l.Close()
		s.eventually("the link ends", func() bool { return s.client.Status().State == "connecting" })
		s.client.Wakeup()
		l = m.accept()
		if begin := l.hello(helloMessage{end: storage.PhyOffset(end)}, masters.bytes); begin != -1 {
			t.Fatalf("begins at %d", begin)
		}
		s.eventually("it is refused", func() bool { return s.client.Status().State == "refused" })
		s.holds(mine.bytes, len(mine.bytes))
	})
	t.Run("what was here before stays", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, mine.bytes, nil)
		if begin := s.follow(newFakeMaster(t)).hello(helloMessage{end: storage.PhyOffset(end)}, masters.bytes); begin != -1 {
			t.Fatalf("begins at %d", begin)
		}
		s.holds(mine.bytes, len(mine.bytes))
	})
	t.Run("an empty slave takes all", func(t *testing.T) {
		t.Parallel()
		s := newTestSlave(t, nil, nil)
		l := s.follow(newFakeMaster(t))
		if begin := l.hello(helloMessage{first: comparedFileSize, end: storage.PhyOffset(end)}, masters.bytes); begin != comparedFileSize {
			t.Fatalf("begins at %d", begin)
		}
		sendFrames(l, masters.bytes, comparedFileSize)
		l.reports(int64(end))
		s.holds(masters.bytes, end)
		if s.client.state.copying() {
			t.Error("the copy has caught up and is not done")
		}
	})
}

func sendFrames(l *fakeLink, log []byte, from int) {
	for at := from; at < len(log); {
		n := min(32<<10, len(log)-at, comparedFileSize-at%comparedFileSize)
		l.send(frame(int64(at), log[at:at+n]))
		at += n
	}
}

// A slave told to report synced bytes reports no others.
func TestSlaveReportsSyncedBytes(t *testing.T) {
	t.Parallel()
	log := someLog(13, 30).bytes
	s := newTestSlave(t, log[:500], func(c *Config) { c.HaReportSynced = true })
	l := s.follow(newFakeMaster(t))
	l.wantReport(500)
	if s.store.FlushedWhere() < 500 {
		t.Error("reported before it was synced")
	}
	s.fs.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Err: errors.New("broken")})
	sendFrames(l, log[:20_000], 500)
	s.eventually("it is in the log", func() bool { return s.store.MaxPhyOffset() == 20_000 })
	s.eventually("the sync failed", func() bool { return s.store.Stats().LatchedCause != nil })
	for range 3 {
		l.wantReport(500)
	}
	s.fs.ClearFaults()
}

// RocketMQ takes over the address of a loopmq master: the slave waits for a hello first, in vain, and then follows it.
func TestSlaveFollowsRocketMQAtALoopmqAddress(t *testing.T) {
	t.Parallel()
	log := someLog(21, 40).bytes
	const held = 4000
	s := newTestSlave(t, log[:held], func(c *Config) { c.HaHousekeepingInterval = 1200 * time.Millisecond })
	m := newFakeMaster(t)
	l := s.follow(m)
	if begin := l.hello(helloMessage{end: held}, log); begin != held {
		t.Fatalf("the slave begins at %d", begin)
	}
	l.Close()

	l = s.follow(m)
	_ = l.SetReadDeadline(time.Now().Add(testWait))
	if b, err := io.ReadAll(l); err != nil || len(b) > 0 {
		t.Fatalf("without a hello the slave says %x, %v", b, err)
	}
	s.eventually("it is said", func() bool { return strings.Contains(s.client.Status().LastError, "taken for RocketMQ's") })
	l = s.follow(m)
	l.wantReport(held)
	sendFrames(l, log, held)
	s.holds(log, len(log))
}

// A slave that its settings lead back to itself, or to the master that it is a copy of, says so, and counts for nobody.
func TestSlaveWithTheMastersNodeID(t *testing.T) {
	t.Parallel()
	log := someLog(31, 20).bytes
	s := newTestSlave(t, log, func(c *Config) { c.Addr, c.SlaveTimeout, c.HaSlaveFallbehindMax = "127.0.0.1:0", testWait, 256<<20 })
	itself := s.client.service
	if err := itself.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(itself.Stop)
	addr := itself.Addr().String()
	s.addr.Store(&addr)
	s.client.Wakeup()
	refused := func() bool {
		st := s.client.Status()
		return st.State == "refused" && strings.Contains(st.Refused, "node id") && strings.Contains(st.Refused, "haMasterAddress") && s.client.link.Load() == nil
	}
	s.eventually("it refuses itself", refused)
	if st := itself.Status(); st.InSyncSlaves() > 0 || st.Push2SlaveMaxOffset >= 0 {
		t.Errorf("it is a slave of its own: %+v", st)
	}
	s.holds(log, len(log))

	l := s.follow(newFakeMaster(t))
	if begin := l.hello(helloMessage{end: storage.PhyOffset(len(log))}, log); int(begin) != len(log) {
		t.Fatalf("begins at %d at a master of another id", begin)
	}
	l.Close()
	l = s.follow(newFakeMaster(t))
	m := helloMessage{fileSize: comparedFileSize, end: storage.PhyOffset(len(log)), node: s.client.state.node()}
	l.send(m.append(nil))
	if m, err := decodeRefuse(l.message(kindRefuse)); err != nil || m.reason != refuseSameNode || !strings.Contains(m.text, "ha.json") {
		t.Fatalf("%+v, %v", m, err)
	}
	s.holds(log, len(log))
}
