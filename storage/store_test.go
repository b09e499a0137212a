// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"math"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

const testRoot = "/store"

func testStoreConfig(root string) Config {
	c := DefaultConfig()
	c.StorePathRootDir = root
	c.MappedFileSizeCommitLog = 16 << 10
	c.MappedFileSizeConsumeQueue = 20 * consumeQueueUnitSize
	c.MaxHashSlotNum, c.MaxIndexNum = 10, 60
	c.FlushIntervalConsumeQueue = 10
	return c
}

// testStore is a store under test. However the test ends, its files are checked against each other when it is closed.
type testStore struct {
	*MessageStore
	t      testing.TB
	fs     vfs.FS
	closed bool
	// lossy is set by tests that delete files, or take records of their own making.
	lossy bool
}

// openTestStore opens and starts a store.
func openTestStore(t testing.TB, fsys vfs.FS, change func(*Config)) *testStore {
	t.Helper()
	s := loadTestStore(t, fsys, testRoot, change)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// loadTestStore opens a store without starting it.
func loadTestStore(t testing.TB, fsys vfs.FS, root string, change func(*Config)) *testStore {
	t.Helper()
	c := testStoreConfig(root)
	if change != nil {
		change(&c)
	}
	store, err := Open(c, Options{FS: fsys, Logger: discardLogger()})
	if err != nil {
		t.Fatal(err)
	}
	s := &testStore{MessageStore: store, t: t, fs: fsys}
	t.Cleanup(func() { s.close() })
	return s
}

// startUndispatched begins the services of the log only: records are dispatched when the test calls dispatch.
func (s *testStore) startUndispatched() {
	s.t.Helper()
	if err := s.fs.WriteFile(s.abortPath(), nil); err != nil {
		s.t.Fatal(err)
	}
	if err := s.log.start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *testStore) dispatch() {
	s.t.Helper()
	if _, err := s.reput.doReput(); err != nil {
		s.t.Fatal(err)
	}
}

// abandon ends the goroutines of a store whose files a crash has taken away.
func (s *testStore) abandon() {
	s.closed = true
	if !s.started {
		s.log.stop()
	}
	s.Close()
}

func (s *testStore) close() {
	s.t.Helper()
	if s.closed {
		return
	}
	s.closed = true
	if !s.started && s.log.accepting.Load() {
		s.log.stop()
	}
	end, undispatched := s.MaxPhyOffset(), s.DispatchBehindBytes()
	if s.started {
		eventually(s.t, "all is dispatched", func() bool { return s.DispatchBehindBytes() == 0 || s.t.Failed() })
		end, undispatched = s.MaxPhyOffset(), 0
	}
	if err := s.Close(); err != nil {
		s.t.Error(err)
	}
	if undispatched == 0 {
		if err := checkFiles(s.fs, s.Config(), end, s.lossy); err != nil {
			s.t.Errorf("after close: %v", err)
		}
	}
}

// checkFiles compares the files of a closed store: each record of the log is in its queue at the place that is written
// in it, and the queues hold nothing else. With lossy, queues may hold more: records that retention took.
func checkFiles(fsys vfs.FS, c *Config, end PhyOffset, lossy bool) error {
	records, err := readLog(fsys, c.StorePathCommitLog, c.MappedFileSizeCommitLog, end)
	if err != nil {
		return err
	}
	queues, err := readQueues(fsys, path.Join(c.StorePathRootDir, "consumequeue"), c.MappedFileSizeConsumeQueue)
	if err != nil {
		return err
	}
	for _, r := range records {
		d := dispatchRequest{Record: r.Record}
		d.readProperties(&c.DelayLevels)
		if !d.inQueue() {
			continue
		}
		q, k := simQueue{string(r.Topic), r.QueueID}, QueueOffset(r.QueueOffset)
		want := ConsumeQueueUnit{Offset: d.offset(), Size: int32(d.Size), TagsCode: d.tagsCode}
		if got := queues[q][k]; got != want {
			return fmt.Errorf("unit %d of %v is %+v, the log says %+v", k, q, got, want)
		}
		delete(queues[q], k)
	}
	for q, units := range queues {
		for k, u := range units {
			if !lossy {
				return fmt.Errorf("unit %d of %v is %+v, the log has no such record", k, q, u)
			}
		}
	}
	return nil
}

// storeMessage describes a message to send.
type storeMessage struct {
	topic      string
	queueID    int32
	size       int
	properties string // name=value pairs with blanks between them would not do for keys: written out with the separators
	sysFlag    int32
}

func (s *testStore) send(m storeMessage) *PutMessage {
	s.t.Helper()
	put, done := m.put()
	if status := s.AsyncPutMessage(put); status != PutOK {
		s.t.Fatalf("put not taken: %v", status)
	}
	if status := <-done; status != PutOK {
		s.t.Fatalf("put: %v, %v", status, put.Cause)
	}
	return put
}

func (m storeMessage) put() (*PutMessage, chan PutMessageStatus) {
	done := make(chan PutMessageStatus, 1)
	r := message.Record{
		QueueID: m.queueID, BornTimestamp: 1, BornHost: testHost, StoreHost: testHost, SysFlag: m.sysFlag,
		Body: make([]byte, m.size), Topic: []byte(m.topic), Properties: []byte(m.properties),
	}
	for i := range r.Body {
		r.Body[i] = byte(i)
	}
	t := m.sysFlag & message.FlagTransactionRollback
	return &PutMessage{
		Record: message.AppendRecord(nil, &r), MsgNum: 1, Topic: m.topic, QueueID: m.queueID,
		NoQueueOffset: t == message.FlagTransactionPrepared || t == message.FlagTransactionRollback,
		Appended:      func(_ *PutMessage, status PutMessageStatus) { done <- status },
	}, done
}

// sendMany sends n messages over three topics with two queues each, with keys K0, K1, ….
func (s *testStore) sendMany(n int) (puts []*PutMessage) {
	s.t.Helper()
	for i := range n {
		puts = append(puts, s.send(storeMessage{
			topic: []string{"orders", "events", "audit"}[i%3], queueID: int32(i / 3 % 2), size: 50 + i*37%600,
			properties: fmt.Sprintf("KEYS\x01K%d\x02TAGS\x01tag%d\x02", i, i%4),
		}))
	}
	return puts
}

// settled waits until all is dispatched.
func (s *testStore) settled() *testStore {
	s.t.Helper()
	eventually(s.t, "all is dispatched", func() bool { return s.DispatchBehindBytes() == 0 })
	return s
}

// pullAll reads a queue from its min offset on: the queue offsets of the records.
func (s *testStore) pullAll(topic string, queueID int32) (offsets []int64) {
	s.t.Helper()
	at, maxOffset, _ := s.QueueOffsets(topic, queueID)
	for at < maxOffset {
		r := s.GetMessage(topic, queueID, at, 32, nil, nil)
		for _, b := range r.Buffers {
			for rest := b.Bytes(); len(rest) > 0; {
				var m message.Record
				if err := message.Decode(rest, &m); err != nil {
					s.t.Fatal(err)
				}
				offsets = append(offsets, m.QueueOffset)
				rest = rest[m.Size:]
			}
		}
		r.Release()
		if r.NextBeginOffset <= at {
			s.t.Fatalf("pull at %d: %d, next %d", at, r.Status, r.NextBeginOffset)
		}
		at = r.NextBeginOffset
	}
	return offsets
}

func TestStoreKeepsWhatItIsGiven(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": faultfs.New(), "disk": nil} {
		t.Run(name, func(t *testing.T) {
			root := testRoot
			if fsys == nil {
				fsys, root = vfs.OS{}, t.TempDir()
			}
			open := func() *testStore {
				s := loadTestStore(t, fsys, root, nil)
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open()
			s.sendMany(150)
			s.settled().close()

			s = open()
			s.sendMany(60)
			s.settled()
			got := s.pullAll("orders", 1)
			if want := len(got); want != 35 || !slices.IsSorted(got) || got[0] != 0 || got[34] != 34 {
				t.Fatalf("orders/1 holds %v", got)
			}
			for _, key := range []string{"K0", "K59", "K149"} {
				topic := []string{"orders", "events", "audit"}[map[string]int{"K0": 0, "K59": 2, "K149": 2}[key]]
				r := s.QueryMessage(topic, key, 10, 0, math.MaxInt64)
				if want := map[string]int{"K0": 2, "K59": 2, "K149": 1}[key]; len(r.Buffers) != want {
					t.Errorf("key %s found %d times, want %d", key, len(r.Buffers), want)
				}
				r.Release()
			}
		})
	}
}

func TestArrivalsAreTold(t *testing.T) {
	var arrived atomic.Int64
	fsys := faultfs.New()
	store, err := Open(testStoreConfig(testRoot), Options{FS: fsys, Logger: discardLogger(), Listener: EventListener{
		MessageArriving: func(a Arrival) {
			if a.Topic == "t" && a.QueueID == 3 && a.TagsCode == message.TagsCode([]byte("x")) {
				arrived.Store(int64(a.MaxOffset))
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &testStore{MessageStore: store, t: t, fs: fsys}
	defer s.close()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 3; n++ {
		s.send(storeMessage{topic: "t", queueID: 3, properties: "TAGS\x01x"})
		eventually(t, "the arrival is told", func() bool { return arrived.Load() == n })
		time.Sleep(30 * time.Millisecond) // the dispatcher sleeps
	}
}

func TestTransactionRecordsTakeNoPlaceInQueues(t *testing.T) {
	s := openTestStore(t, faultfs.New(), nil)
	s.send(storeMessage{topic: "t", properties: "KEYS\x01k"})
	s.send(storeMessage{topic: "t", sysFlag: message.FlagTransactionPrepared, properties: "KEYS\x01k"})
	s.send(storeMessage{topic: "t", sysFlag: message.FlagTransactionRollback, properties: "KEYS\x01k"})
	s.send(storeMessage{topic: "t", sysFlag: message.FlagTransactionCommit, properties: "KEYS\x01k"})
	s.settled()
	if _, maxOffset, _ := s.QueueOffsets("t", 0); maxOffset != 2 {
		t.Errorf("max offset %d, want 2", maxOffset)
	}
	r := s.QueryMessage("t", "k", 10, 0, math.MaxInt64)
	defer r.Release()
	if len(r.Buffers) != 3 { // all but the rolled back one
		t.Errorf("%d records by key, want 3", len(r.Buffers))
	}
}
