// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

const (
	testFileSize = 256 << 10
	// testWait is how long a test waits for what must come.
	testWait = 10 * time.Second
)

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// testMaster is a master's store and its HAService on a loopback port.
type testMaster struct {
	fs    *faultfs.FS
	t     testing.TB
	store *storage.MessageStore
	ha    *HAService
	cfg   atomic.Pointer[Config]
	log   lockedBuffer
	addr  string
}

// testStore is a store as replication needs it, for a node that never cuts its log.
type testStore struct{ *storage.MessageStore }

func (testStore) TruncateTo(storage.PhyOffset) error { return errors.New("not of a master") }

// lockedBuffer is a log that a test may read while others write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startMaster(t testing.TB, change func(*Config)) *testMaster {
	t.Helper()
	m := &testMaster{t: t}
	m.cfg.Store(&Config{
		Role: storage.SyncMaster, Addr: "127.0.0.1:0",
		HaSendHeartbeatInterval: 5 * time.Second, HaHousekeepingInterval: 20 * time.Second,
		HaTransferBatchSize: 32 << 10, HaSlaveFallbehindMax: 256 << 20, InSyncReplicas: 1, SlaveTimeout: 3 * time.Second,
		MaxHaTransferByteInSecond: 100 << 20, HaRetainedMax: 1 << 40, MappedFileSizeCommitLog: testFileSize,
	})
	m.configure(change)
	m.fs = faultfs.New()
	cfg := storage.DefaultConfig()
	cfg.StorePathRootDir, cfg.StorePathCommitLog = "/store", "/store/commitlog"
	cfg.MappedFileSizeCommitLog, cfg.MappedFileSizeConsumeQueue = m.cfg.Load().MappedFileSizeCommitLog, 20_000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum, cfg.MessageIndexEnable = 100, 1_000, false
	cfg.MaxMessageSize = int(cfg.MappedFileSizeCommitLog / 2)
	if cfg.Role = m.cfg.Load().Role; cfg.Role == storage.Slave {
		cfg.BrokerID = 1
	}
	logger := slog.New(slog.NewTextHandler(&m.log, nil))
	var err error
	m.store, err = storage.Open(cfg, storage.Options{
		FS: m.fs, Logger: logger,
		Listener: storage.EventListener{Readable: func(end storage.PhyOffset) { m.ha.Readable(end) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.ha, err = NewHAService(Options{
		Config: m.cfg.Load, Store: testStore{m.store}, Logger: logger, FS: m.fs, StatePath: "/store/ha.json",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.store.Start(), m.ha.Start()); err != nil {
		t.Fatal(err)
	}
	m.addr = m.ha.Addr().String()
	t.Cleanup(func() {
		m.ha.Stop()
		if err := m.store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if log := m.log.String(); strings.Contains(log, "still lent") {
			t.Errorf("a loan did not come back:\n%s", log)
		}
	})
	return m
}

func (m *testMaster) configure(change func(*Config)) {
	if change != nil {
		next := *m.cfg.Load()
		change(&next)
		m.cfg.Store(&next)
	}
}

// put appends a message with a body of size bytes and returns the log's end behind it.
func (m *testMaster) put(size int) storage.PhyOffset {
	m.t.Helper()
	record := message.AppendRecord(nil, &message.Record{
		BornHost: testHost, StoreHost: testHost, Topic: []byte("topic"), Body: bytes.Repeat([]byte{'x'}, size),
	})
	done := make(chan storage.PutMessageStatus, 1)
	put := &storage.PutMessage{Record: record, MsgNum: 1, Topic: "topic"}
	put.Appended = func(_ *storage.PutMessage, status storage.PutMessageStatus) { done <- status }
	if status := m.store.AsyncPutMessage(put); status != storage.PutOK {
		m.t.Fatalf("put: %v", status)
	}
	if status := <-done; status != storage.PutOK {
		m.t.Fatalf("put: %v, %v", status, put.Cause)
	}
	return put.End()
}

// grow makes the log at least so long.
func (m *testMaster) grow(end storage.PhyOffset) {
	m.t.Helper()
	for m.store.MaxPhyOffset() < end {
		m.put(8 << 10)
	}
}

// wait submits a send that ends at end and returns where its outcome comes.
func (m *testMaster) wait(end storage.PhyOffset) chan storage.PutMessageStatus {
	done := make(chan storage.PutMessageStatus, 1)
	m.ha.SubmitReplicaRequest(end, time.Now().Add(m.cfg.Load().SlaveTimeout), func(s storage.PutMessageStatus) { done <- s })
	return done
}

func (m *testMaster) want(what string, done chan storage.PutMessageStatus, want storage.PutMessageStatus) {
	m.t.Helper()
	select {
	case got := <-done:
		if got != want {
			m.t.Fatalf("%s: %v; want %v", what, got, want)
		}
	case <-time.After(testWait):
		m.t.Fatalf("%s: no answer; want %v\n%s", what, want, m.log.String())
	}
}

func (m *testMaster) eventually(what string, ok func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(testWait); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("never: %s\n%+v\n%s", what, m.ha.Status(), m.log.String())
		}
	}
}

func (m *testMaster) states() (states []string) {
	for _, s := range m.ha.Status().Slaves {
		states = append(states, s.State)
	}
	return states
}

// fakeSlave speaks to a master over a socket, byte by byte if a test wants.
type fakeSlave struct {
	t    testing.TB
	conn net.Conn
	end  storage.PhyOffset // of what it received
	log  []byte
	base storage.PhyOffset // of log
}

func (m *testMaster) connect() *fakeSlave {
	m.t.Helper()
	conn, err := net.Dial("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return &fakeSlave{t: m.t, conn: conn}
}

// follow connects a slave that holds everything below offset.
func (m *testMaster) follow(offset storage.PhyOffset) *fakeSlave {
	s := m.connect()
	s.base, s.end = offset, offset
	s.report(offset)
	m.eventually("the transfer begins", func() bool {
		for _, st := range m.ha.Status().Slaves {
			if st.Addr.String() == s.conn.LocalAddr().String() {
				return st.State == "transfer"
			}
		}
		return false
	})
	return s
}

// node connects a loopmq slave that holds everything below end.
func (m *testMaster) node(id byte, end storage.PhyOffset) *fakeSlave {
	m.t.Helper()
	s := m.connect()
	mine := mineMessage{first: 0, end: end, node: nodeID{id}}
	s.write(reportOf(-1))
	if h, _, err := s.frame(); err != nil || !isHandshake(int64(h.phyOffset)) {
		m.t.Fatalf("no hello: %v %v", h, err)
	}
	s.write(mine.append(nil))
	s.write(appendOne(nil, kindBegin, end))
	s.end = end
	return s
}

func reportOf(offset storage.PhyOffset) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(offset))
}

func (s *fakeSlave) write(b []byte) {
	s.t.Helper()
	if _, err := s.conn.Write(b); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fakeSlave) report(offset storage.PhyOffset) { s.t.Helper(); s.write(reportOf(offset)) }

// frame reads one frame.
func (s *fakeSlave) frame() (h frameHeader, body []byte, err error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(testWait)); err != nil {
		return h, nil, err
	}
	var header [frameHeaderSize]byte
	if _, err := io.ReadFull(s.conn, header[:]); err != nil {
		return h, nil, err
	}
	if h, err = decodeFrameHeader(header[:]); err != nil {
		return h, nil, err
	}
	body = make([]byte, h.bodySize)
	_, err = io.ReadFull(s.conn, body)
	return h, body, err
}

// receive reads frames up to the log's end and checks that they follow each other.
func (s *fakeSlave) receive(end storage.PhyOffset) {
	s.t.Helper()
	for s.end < end {
		h, body, err := s.frame()
		if err != nil {
			s.t.Fatalf("at %d of %d: %v", s.end, end, err)
		}
		if h.phyOffset != s.end {
			s.t.Fatalf("frame at %d; want %d", h.phyOffset, s.end)
		}
		s.log = append(s.log, body...)
		s.end += storage.PhyOffset(len(body))
	}
}

// closes waits until the master has closed the connection.
func (s *fakeSlave) closes() {
	s.t.Helper()
	for {
		if _, _, err := s.frame(); errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Fatal("the connection stays open")
		} else if err != nil {
			return
		}
	}
}

func (m *testMaster) bytesOf(from, to storage.PhyOffset) (b []byte) {
	m.t.Helper()
	for from < to {
		sel, ok := m.store.Select(from, int(to-from))
		if !ok {
			m.t.Fatalf("nothing at %d", from)
		}
		b = append(b, sel.Bytes()...)
		from += storage.PhyOffset(len(sel.Bytes()))
		sel.Release()
	}
	return b
}

func (m *testMaster) equal(s *fakeSlave) {
	m.t.Helper()
	if !bytes.Equal(s.log, m.bytesOf(s.base, s.end)) {
		m.t.Fatalf("the slave holds other bytes between %d and %d", s.base, s.end)
	}
}

func TestASlaveGetsTheLog(t *testing.T) {
	m := startMaster(t, nil)
	m.grow(3 * testFileSize)
	s := m.follow(1)
	s.receive(m.store.MaxPhyOffset())
	m.equal(s)
	for _, size := range []int{1, 31 << 10, 100 << 10} {
		s.receive(m.put(size))
	}
	m.equal(s)
}

func TestAFrameStaysWithinItsFileAndItsSize(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.HaTransferBatchSize = 10_000 })
	m.grow(2*testFileSize + 1)
	s := m.follow(1)
	for s.end < m.store.MaxPhyOffset() {
		h, body, err := s.frame()
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > 10_000 || h.phyOffset/testFileSize != (h.phyOffset+storage.PhyOffset(len(body))-1)/testFileSize {
			t.Fatalf("frame of %d bytes at %d", len(body), h.phyOffset)
		}
		s.end += storage.PhyOffset(len(body))
	}
}

func TestAnEmptyRocketMQSlaveGetsTheLastFile(t *testing.T) {
	m := startMaster(t, nil)
	m.grow(2*testFileSize + 1)
	s := m.follow(0)
	h, _, err := s.frame()
	if err != nil || h.phyOffset != 2*testFileSize {
		t.Fatalf("first frame at %d, %v; want %d", h.phyOffset, err, 2*testFileSize)
	}
}

// However its reports are cut, the master sees the newest whole one.
func TestReportsInAnyPieces(t *testing.T) {
	m := startMaster(t, nil)
	m.grow(64 << 10)
	s := m.connect()
	end := m.store.MaxPhyOffset()
	for _, b := range reportOf(end) {
		s.write([]byte{b})
		time.Sleep(time.Millisecond)
	}
	m.eventually("a report in eight pieces counts", func() bool { return m.ha.acked() == end })
	s.end = end

	s.receive(m.put(64 << 10))
	var many []byte
	for i := range storage.PhyOffset(300) {
		many = append(many, reportOf(s.end-299+i)...)
	}
	s.write(many[:len(many)-3])
	m.eventually("the last but one of 300 counts", func() bool { return m.ha.acked() == s.end-1 })
	s.write(many[len(many)-3:])
	m.eventually("the last counts when it is whole", func() bool { return m.ha.acked() == s.end })
}

// What is no slave changes nothing that a send looks at.
func TestStrangers(t *testing.T) {
	m := startMaster(t, nil)
	end := m.put(1000)
	f := func(what string, said []byte, logged string) {
		t.Helper()
		s := m.connect()
		s.write(said)
		m.eventually(what+" is logged", func() bool { return strings.Contains(m.log.String(), logged) })
		m.want(what, m.wait(end), storage.SlaveNotAvailable)
		if _, ok := m.ha.MinRetained(); ok {
			t.Fatalf("%s keeps files", what)
		}
		s.conn.Close()
		m.eventually(what+" is gone", func() bool { return len(m.ha.Status().Slaves) == 0 })
	}
	f("an offset beyond the end", reportOf(end+1<<20), "beyond this log's end")
	f("-2", reportOf(-2), "no slave begins with -2")
	f("-1, then an offset at once", append(reportOf(-1), reportOf(end)...), "did not wait for the comparison")
	f("-1, then no handshake", append(reportOf(-1), reportOf(-5)...), "did not wait for the comparison")
	f("a request of HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "beyond this log's end")
	controller := append(binary.BigEndian.AppendUint64(nil, 1<<32), reportOf(2)...)
	f("a slave in controller mode", controller, "enableControllerMode")
	begin := append(reportOf(-1), appendOne(nil, kindBegin, end)...)
	f("begin without saying what it holds", begin, "before the slave said what it holds")
}

// Eight bytes must not make a send look replicated (apache/rocketmq#3015).
func TestAReportBeyondWhatWasSentCountsForNothing(t *testing.T) {
	m := startMaster(t, nil)
	m.put(1000)
	s := m.follow(m.store.MaxPhyOffset())
	s.report(s.end + 500)
	m.eventually("the slave is refused", func() bool { return m.ha.Status().Refusals == 1 })
	m.want("after a report ahead", m.wait(m.put(100)), storage.SlaveNotAvailable)
}

// A slave whose offset this log no longer has is a state of its own (apache/rocketmq#3388): no heartbeats that look
// healthy, no send that waits for it, no connection after connection.
func TestAnExpiredSlaveIsRefused(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.Role = storage.Slave }) // its log may begin anywhere
	const first = 10 * testFileSize
	record := message.AppendRecord(nil, &message.Record{BornHost: testHost, StoreHost: testHost, Topic: []byte("topic"), Body: []byte("x")})
	message.SetPhysicalOffset(record, first)
	if err := m.store.AppendToCommitLog(first, record); err != nil {
		t.Fatal(err)
	}
	if m.store.MinPhyOffset() != first {
		t.Fatalf("the log begins at %d", m.store.MinPhyOffset())
	}
	s := m.connect()
	s.report(first - 100)
	m.eventually("the slave is refused", func() bool {
		st := m.ha.Status()
		return st.Refusals == 1 && len(st.Slaves) == 1 && st.Slaves[0].State == "refused" && strings.Contains(st.Slaves[0].Refused, "no longer has")
	})
	m.want("behind a refused slave", m.wait(m.store.MaxPhyOffset()), storage.SlaveNotAvailable)
	if _, ok := m.ha.MinRetained(); ok {
		t.Fatal("a refused slave keeps files")
	}
	began := time.Now()
	s.closes()
	if waited := time.Since(began); waited < refuseDelay/2 {
		t.Fatalf("closed after %v: RocketMQ's slave would be back at once", waited)
	}
}

func TestWithoutASlave(t *testing.T) {
	m := startMaster(t, nil)
	m.want("no slave", m.wait(m.put(100)), storage.SlaveNotAvailable)
}

// A slave that has left counts no more, also for what it had acknowledged.
func TestASlaveThatLeavesStopsCounting(t *testing.T) {
	m := startMaster(t, nil)
	end := m.put(1000)
	s := m.follow(end)
	m.want("with the slave", m.wait(end), storage.PutOK)
	s.conn.Close()
	m.eventually("the mark falls", func() bool { return m.ha.acked() == -1 })
	m.want("without it", m.wait(end), storage.SlaveNotAvailable)
}

// Deadlines run side by side, and a slave that stands still stops counting (apache/rocketmq#3484).
func TestAStalledSlave(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.SlaveTimeout = 500 * time.Millisecond })
	s := m.follow(m.put(1000))
	began := time.Now()
	var waits []chan storage.PutMessageStatus
	for range 200 {
		waits = append(waits, m.wait(m.put(100)))
	}
	for _, w := range waits {
		m.want("a send that the slave does not acknowledge", w, storage.FlushSlaveTimeout)
	}
	if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
		t.Fatalf("200 sends were answered after %v", took)
	}
	m.want("behind a slave that stands still", m.wait(m.put(100)), storage.SlaveNotAvailable)
	s.receive(m.store.MaxPhyOffset())
	s.report(s.end)
	m.eventually("it counts again", func() bool { st := m.ha.Status(); return st.InSyncSlaves() == 1 })
	w := m.wait(m.put(100))
	s.receive(m.store.MaxPhyOffset())
	s.report(s.end)
	m.want("after it got on", w, storage.PutOK)
}

// A slave that had nothing to acknowledge for long has not stalled.
func TestAnIdleSlaveHasNotStalled(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.SlaveTimeout = 50 * time.Millisecond })
	s := m.follow(m.put(1000))
	time.Sleep(200 * time.Millisecond)
	if st := m.ha.Status(); st.InSyncSlaves() != 1 || st.Slaves[0].Lag != 0 {
		t.Fatalf("%+v", st)
	}
	m.configure(func(c *Config) { c.SlaveTimeout = testWait })
	w := m.wait(m.put(100))
	s.receive(m.store.MaxPhyOffset())
	s.report(s.end)
	m.want("a send after a pause", w, storage.PutOK)
}

// No goroutine and no loop waits for an acknowledgement (apache/rocketmq#249).
func TestThousandsOfSendsWaitForALateSlave(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.SlaveTimeout = testWait })
	s := m.follow(m.put(10))
	const sends = 5_000
	before := runtime.NumGoroutine()
	var ok, other atomic.Int64
	for range sends {
		m.ha.SubmitReplicaRequest(m.put(10), time.Now().Add(testWait), func(status storage.PutMessageStatus) {
			if status == storage.PutOK {
				ok.Add(1)
			} else {
				other.Add(1)
			}
		})
	}
	if n := m.ha.Status().Waiting; n != sends {
		t.Fatalf("%d sends wait; want %d", n, sends)
	}
	if now := runtime.NumGoroutine(); now > before+10 {
		t.Fatalf("%d goroutines, %d before", now, before)
	}
	s.receive(m.store.MaxPhyOffset())
	s.report(s.end / 2)
	m.eventually("some are answered", func() bool { return ok.Load() > 0 })
	if n := ok.Load(); n == sends {
		t.Fatal("half of the log answered all")
	}
	s.report(s.end)
	m.eventually("all are answered", func() bool { return ok.Load() == sends })
	if other.Load() > 0 {
		t.Fatalf("%d did not end well", other.Load())
	}
}

// A slave that reads nothing costs no memory: what the socket does not take stays in the log.
func TestASlaveThatDoesNotRead(t *testing.T) {
	m := startMaster(t, nil)
	m.put(10)
	s := m.follow(m.store.MaxPhyOffset())
	if err := s.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	other := m.follow(m.store.MaxPhyOffset())
	m.grow(64 << 20)
	var st SlaveStatus
	m.eventually("the first slave gets no more", func() bool {
		before := st.TransferFrom
		for _, status := range m.ha.Status().Slaves {
			if status.Addr.String() == s.conn.LocalAddr().String() {
				st = status
			}
		}
		time.Sleep(50 * time.Millisecond)
		return before > 0 && before == st.TransferFrom
	})
	if st.LagBytes < 32<<20 {
		t.Fatalf("it is behind by %d only: the kernel took it all", st.LagBytes)
	}
	var buffered atomic.Int64
	for _, c := range *m.ha.connections.Load() {
		done := make(chan struct{})
		c.conn.Post(func() { buffered.Add(int64(c.conn.OutboundBuffered())); close(done) })
		<-done
	}
	if n := buffered.Load(); n > 2*(frameHeaderSize+32<<10) {
		t.Fatalf("%d bytes are held for slaves that do not read", n)
	}
	// The other is not held up.
	other.receive(m.store.MaxPhyOffset())
	other.report(other.end - 1) // it gets on, however long it took to read
	m.eventually("the report is taken", func() bool { return m.ha.acked() == other.end-1 })
	w := m.wait(m.store.MaxPhyOffset())
	other.report(other.end)
	m.want("with one slave that reads", w, storage.PutOK)
}

// inSyncReplicas counts the master, and a slave once however many connections it has.
func TestInSyncReplicas(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.InSyncReplicas = 3 })
	end := m.put(1000)
	node := func(id byte) *fakeSlave { return m.node(id, end) }
	transfers := func(n int) {
		t.Helper()
		m.eventually("the slaves are served", func() bool {
			return strings.Count(strings.Join(m.states(), " "), "transfer") == n
		})
	}
	node(1)
	node(1)
	transfers(2)
	m.want("two connections of one slave", m.wait(end), storage.SlaveNotAvailable)
	second := node(2)
	transfers(3)
	m.want("two slaves", m.wait(end), storage.PutOK)
	m.configure(func(c *Config) { c.InSyncReplicas = 4 })
	m.eventually("the change counts", func() bool { return m.ha.acked() == -1 })
	m.configure(func(c *Config) { c.InSyncReplicas = 3 })
	m.eventually("the change counts", func() bool { return m.ha.acked() == end })
	second.conn.Close()
	m.eventually("one of two left", func() bool { return m.ha.acked() == -1 })
	m.want("one of two", m.wait(end), storage.SlaveNotAvailable)
}

// Two slaves with one node id, one copied from the other with its ha.json, are noticed when both go on; one that comes back
// while its old connection is still open is not such a pair.
func TestTwoSlavesWithOneNodeID(t *testing.T) {
	const heartbeat = 50 * time.Millisecond
	m := startMaster(t, func(c *Config) { c.HaSendHeartbeatInterval = heartbeat })
	end := m.put(1000)
	var beating sync.WaitGroup
	t.Cleanup(beating.Wait) // they end with their connections, which are closed before
	beat := func(s *fakeSlave) *fakeSlave {
		beating.Go(func() {
			for {
				if _, err := s.conn.Write(reportOf(end)); err != nil {
					return
				}
				time.Sleep(heartbeat / 10)
			}
		})
		return s
	}
	state := func(s *fakeSlave) (state, refused string) {
		for _, st := range m.ha.Status().Slaves {
			if st.Addr.String() == s.conn.LocalAddr().String() {
				return st.State, st.Refused
			}
		}
		return "gone", ""
	}
	serves := func(what string, s *fakeSlave) {
		t.Helper()
		m.eventually(what, func() bool { got, _ := state(s); return got == "transfer" })
	}
	first := beat(m.node(1, end))
	serves("the first", first)
	old := m.node(3, end) // says nothing any more
	serves("one", old)
	again := beat(m.node(3, end))
	serves("it reconnects", again)

	second := beat(m.node(1, end))
	m.eventually("the second is refused", func() bool {
		got, why := state(second)
		return got == "refused" && strings.Contains(why, "delete its ha.json")
	})
	third := m.node(1, end) // it comes back, and is not served for a moment
	m.eventually("it is refused again", func() bool { return m.ha.Status().Refusals == 2 })
	if strings.Contains(m.log.String(), `"transfer begins" slave=`+third.conn.LocalAddr().String()) {
		t.Fatal("served meanwhile")
	}
	serves("the other, as before,", first)
	serves("a slave that reconnected", again)
	m.want("a send", m.wait(end), storage.PutOK)

	first.conn.Close()
	m.eventually("the first is gone", func() bool { got, _ := state(first); return got == "gone" })
	serves("the one that is left", beat(m.node(1, end)))
}

func TestAddressesNotInTheAllowList(t *testing.T) {
	list, err := ParseAllowList("10.0.0.0/8, ::1")
	if err != nil {
		t.Fatal(err)
	}
	m := startMaster(t, func(c *Config) { c.HaAllowList = list })
	end := m.put(100)
	s := m.connect()
	s.report(end)
	m.eventually("the refusal is shown", func() bool {
		st := m.ha.Status()
		return st.Refusals == 1 && len(st.Slaves) == 1 && st.Slaves[0].Refused != ""
	})
	m.want("a stranger's report", m.wait(end), storage.SlaveNotAvailable)
	m.configure(func(c *Config) { c.HaAllowList = nil })
	m.follow(end)
	m.want("an allowed slave", m.wait(end), storage.PutOK)
}

func TestHeartbeat(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.HaSendHeartbeatInterval = 200 * time.Millisecond })
	end := m.put(100)
	h, body, err := m.follow(end).frame()
	if err != nil || h.phyOffset != end || len(body) != 0 {
		t.Fatalf("%v, %v; want a heartbeat at %d", h, err, end)
	}
}

func TestHousekeeping(t *testing.T) {
	m := startMaster(t, func(c *Config) { c.HaHousekeepingInterval = time.Second })
	s, silent := m.follow(m.put(100)), m.connect()
	silent.closes()
	s.closes() // it said nothing since its first report
}

// The allowance is kept, headers counted.
func TestFlowControl(t *testing.T) {
	const limit = 100 << 10
	m := startMaster(t, func(c *Config) { c.HaFlowControlEnable, c.MaxHaTransferByteInSecond = true, limit })
	m.put(10)
	from := m.store.MaxPhyOffset()
	m.grow(testFileSize)
	began := time.Now()
	s := m.follow(from)
	s.receive(from + limit*9/10)
	s.receive(from + limit*2)
	seconds := int64(time.Since(began)/time.Second) + 2
	if got := int64(s.end - from); got > limit*seconds {
		t.Fatalf("%d bytes in less than %d seconds at %d a second", got, seconds, limit)
	}
	m.equal(s)
}

// Waiting sends are ended by a stop.
// A slave that cannot be noted is not served, and counts for nothing, while its connection closes.
func TestASlaveThatCannotBeNoted(t *testing.T) {
	m := startMaster(t, nil)
	m.put(100)
	service, err := NewHAService(Options{Config: m.cfg.Load, Store: testStore{m.store}, FS: faultfs.New(), StatePath: "/ha.json"})
	if err != nil {
		t.Fatal(err)
	}
	service.helper.tasks = make(chan func()) // all places are taken
	conn := &quietConn{}
	c := newHAConnection(service, conn, time.Now())
	service.add(c)
	c.handshake = newMasterHandshake(c)
	c.begin(0, true, time.Now())
	if state := connectionState(c.state.Load()); state != stateRefused || c.ackOffset() != -1 || !conn.closed || conn.written > 0 {
		t.Fatalf("%v, acknowledged %d, closed %v, %d bytes sent", state, c.ackOffset(), conn.closed, conn.written)
	}
	if service.isSlaveOK(m.store.MaxPhyOffset(), time.Now()) {
		t.Fatal("a send would wait for it")
	}
}

func TestStopEndsWhatWaits(t *testing.T) {
	m := startMaster(t, nil)
	m.follow(m.put(100))
	w := m.wait(m.put(100))
	m.ha.transfer.mu.Lock()
	m.ha.transfer.closed = true
	m.ha.transfer.mu.Unlock()
	m.want("a send after the stop began", m.wait(m.put(100)), storage.FlushSlaveTimeout)
	m.ha.transfer.complete(endOfTime, m.ha.acked())
	m.want("a send that waited", w, storage.FlushSlaveTimeout)
}
