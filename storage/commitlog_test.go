// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

const testLogDir = "/store/commitlog"

// testLog is a CommitLog with what the store would give it.
type testLog struct {
	*CommitLog
	t        testing.TB
	cfg      atomic.Pointer[Config]
	readable atomic.Int64
	readOnly atomic.Int32
	reputs   atomic.Int64
	logged   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func testConfig() Config {
	c := DefaultConfig()
	c.MappedFileSizeCommitLog = 64 << 10
	c.PopulateWindow = 16 << 10
	return c
}

// loadTestLog opens the log of fsys and recovers it, without starting it.
func loadTestLog(t testing.TB, fsys vfs.FS, dir string, change func(*Config)) *testLog {
	t.Helper()
	l := &testLog{t: t, logged: &syncBuffer{}}
	c := testConfig()
	if change != nil {
		change(&c)
	}
	l.cfg.Store(&c)
	listener := EventListener{
		Readable: func(end PhyOffset) { l.readable.Store(int64(end)) },
		ReadOnly: func(error) { l.readOnly.Add(1) },
	}
	log, err := newCommitLog(fsys, dir, l.cfg.Load, &RunningFlags{}, listener,
		slog.New(slog.NewTextHandler(l.logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.CommitLog = log
	l.wakeReput = func() { l.reputs.Add(1) }
	end, next := l.walk(nil)
	if err := l.setRecovered(end); err != nil {
		t.Fatal(err)
	}
	for q, offset := range next {
		l.setNextQueueOffset(q.topic, q.queueID, offset)
	}
	return l
}

// openTestLog also starts it; the test's end stops and closes it and looks for loans.
func openTestLog(t testing.TB, fsys vfs.FS, change func(*Config)) *testLog {
	t.Helper()
	return openTestLogAt(t, fsys, testLogDir, change)
}

func openTestLogAt(t testing.TB, fsys vfs.FS, dir string, change func(*Config)) *testLog {
	t.Helper()
	l := loadTestLog(t, fsys, dir, change)
	if err := l.start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() { once.Do(l.shutdown) })
	return l
}

func (l *testLog) shutdown() {
	if !l.accepting.Load() {
		return
	}
	l.stop()
	if held := l.close(); held > 0 {
		l.t.Errorf("%d files are still lent", held)
	}
}

func (l *testLog) setConfig(change func(*Config)) {
	c := *l.cfg.Load()
	change(&c)
	l.cfg.Store(&c)
}

// walk reads all records from the first, checks what each says of its place, and returns where they end and the next
// offset of each queue. A queue's offsets must be gapless from its first.
func (l *testLog) walk(visit func(r *message.Record)) (end PhyOffset, next map[topicQueue]QueueOffset) {
	l.t.Helper()
	next = make(map[topicQueue]QueueOffset)
	end = l.minOffset()
	for _, f := range l.queue.files() {
		if PhyOffset(f.base) != end {
			l.t.Fatalf("file %d begins where the records before it do not end: %d", f.base, end)
		}
		b := f.data[:f.readPosition()]
		for len(b) > 0 {
			var r message.Record
			err := message.Decode(b, &r)
			if err == message.ErrBlank {
				end = PhyOffset(f.end())
				break
			}
			if err != nil {
				return end, next
			}
			if err := message.CheckCRC(&r); err != nil {
				return end, next
			}
			if PhyOffset(r.PhysicalOffset) != end {
				l.t.Fatalf("record at %d says it lies at %d", end, r.PhysicalOffset)
			}
			q := topicQueue{string(r.Topic), r.QueueID}
			if want, ok := next[q]; ok && QueueOffset(r.QueueOffset) != want {
				l.t.Fatalf("record at %d of %v has queue offset %d, want %d", end, q, r.QueueOffset, want)
			}
			next[q] = QueueOffset(r.QueueOffset) + 1
			if visit != nil {
				visit(&r)
			}
			end += PhyOffset(r.Size)
			b = b[r.Size:]
		}
	}
	return end, next
}

var testHost = netip.MustParseAddrPort("192.0.2.1:10911")

// testRecord encodes one record with a body of size bytes.
func testRecord(dst []byte, topic string, queueID int32, body []byte) []byte {
	return message.AppendRecord(dst, &message.Record{
		QueueID: queueID, BornTimestamp: 1, BornHost: testHost, StoreHost: testHost,
		Body: body, Topic: []byte(topic),
	})
}

// testPut makes a put of messages of size bytes each whose outcome can be waited for.
func testPut(topic string, queueID int32, size, messages int) (*PutMessage, chan PutMessageStatus) {
	done := make(chan PutMessageStatus, 1)
	put := &PutMessage{MsgNum: int32(messages), Topic: topic, QueueID: queueID}
	for i := range messages {
		put.Record = testRecord(put.Record, topic, queueID, bytes.Repeat([]byte{byte(i + 1)}, size))
	}
	put.Appended = func(_ *PutMessage, status PutMessageStatus) { done <- status }
	return put, done
}

func (l *testLog) mustPut(size int) *PutMessage {
	l.t.Helper()
	put, done := testPut("topic", 0, size, 1)
	l.take(put)
	if status := <-done; status != PutOK {
		l.t.Fatalf("put: %v, %v", status, put.Cause)
	}
	return put
}

func (l *testLog) take(put *PutMessage) {
	l.t.Helper()
	if _, status := l.asyncPutMessages([]*PutMessage{put}); status != PutOK {
		l.t.Fatalf("put not taken: %v", status)
	}
}

// flushed waits for the outcome of a flush request.
func (l *testLog) flushed(end PhyOffset, timeout time.Duration) PutMessageStatus {
	done := make(chan PutMessageStatus, 1)
	l.submitFlushRequest(GroupCommitRequest{end: end, deadline: time.Now().Add(timeout),
		done: func(status PutMessageStatus) { done <- status }})
	return <-done
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func discardLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestPutRollsAndSurvivesReopen(t *testing.T) {
	fsys := faultfs.New()
	l := openTestLog(t, fsys, nil)
	const messages = 500
	for i := range messages {
		put := l.mustPut(700 + i%300)
		if put.QueueOffset != QueueOffset(i) {
			t.Fatalf("queue offset %d, want %d", put.QueueOffset, i)
		}
	}
	end := l.maxOffset()
	if got := PhyOffset(l.readable.Load()); got != end {
		t.Fatalf("readable said %d, the log ends at %d", got, end)
	}
	l.shutdown()
	l = openTestLog(t, fsys, nil)
	if l.maxOffset() != end || l.queue.flushedWhere.Load() != int64(end) {
		t.Fatalf("reopened log ends at %d, flushed to %d, want %d", l.maxOffset(), l.queue.flushedWhere.Load(), end)
	}
	if next := l.nextQueueOffset("topic", 0); next != messages {
		t.Fatalf("next queue offset %d, want %d", next, messages)
	}
	l.mustPut(10)
	seen := 0
	if got, _ := l.walk(func(*message.Record) { seen++ }); got != l.maxOffset() || seen != messages+1 {
		t.Fatalf("%d records up to %d, want %d up to %d", seen, got, messages+1, l.maxOffset())
	}
	if unbacked := fsys.Unbacked(); len(unbacked) > 0 {
		t.Fatalf("stored where no block is: %v", unbacked)
	}
}

func TestUnusedFileIsDeletedAtStop(t *testing.T) {
	fsys := faultfs.New()
	l := openTestLog(t, fsys, nil)
	l.mustPut(100)
	eventually(t, "next file made", func() bool {
		entries, err := fsys.List(testLogDir)
		return err == nil && len(entries) == 2
	})
	l.shutdown()
	entries, err := fsys.List(testLogDir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("files after stop: %v, %v", entries, err)
	}
	if n := fsys.OpenRegions(); n != 0 {
		t.Fatalf("%d mappings not given back", n)
	}
}

// Each combination of options starts, and a put ends with a defined result (apache/rocketmq#7523).
func TestAllFlushAndPoolAndRoleCombinations(t *testing.T) {
	for _, flush := range []FlushDiskType{AsyncFlush, SyncFlush} {
		for _, pool := range []bool{false, true} {
			for _, role := range []Role{AsyncMaster, Slave} {
				t.Run(fmt.Sprintf("flush=%d/pool=%v/role=%d", flush, pool, role), func(t *testing.T) {
					testCombination(t, flush, pool, role)
				})
			}
		}
	}
}

func testCombination(t *testing.T, flush FlushDiskType, pool bool, role Role) {
	l := openTestLog(t, faultfs.New(), func(c *Config) {
		c.FlushDiskType, c.TransientStorePoolEnable, c.Role = flush, pool, role
	})
	inEffect := pool && flush == AsyncFlush && role != Slave
	if (l.pool != nil) != inEffect {
		t.Fatalf("pool in effect: %v, want %v", l.pool != nil, inEffect)
	}
	if said := bytes.Contains([]byte(l.logged.String()), []byte("has no effect")); said != (pool && !inEffect) {
		t.Fatalf("said that the pool has no effect: %v", said)
	}
	put, done := testPut("topic", 0, 100, 1)
	var end PhyOffset
	if role == Slave {
		if _, status := l.asyncPutMessages([]*PutMessage{put}); status != ServiceNotAvailable {
			t.Fatalf("a slave took a put: %v", status)
		}
		if err := l.appendData(0, put.Record); err != nil {
			t.Fatal(err)
		}
		end = PhyOffset(len(put.Record))
	} else {
		l.take(put)
		if status := <-done; status != PutOK {
			t.Fatal(status)
		}
		end = put.End()
	}
	if status := l.flushed(end, 5*time.Second); status != PutOK {
		t.Fatalf("flush request: %v", status)
	}
	eventually(t, "readable", func() bool { return l.maxOffset() == end && l.readable.Load() == int64(end) })
	eventually(t, "flushed", func() bool { return l.queue.flushedWhere.Load() == int64(end) || flush == AsyncFlush })
	l.shutdown()
	if got := l.queue.flushedWhere.Load(); got != int64(end) {
		t.Fatalf("flushed to %d after stop, want %d", got, end)
	}
}
