// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// reopen opens the store that a crash left and lets the test's end check it.
func reopen(t testing.TB, fsys *faultfs.FS, change func(*Config)) *testStore {
	t.Helper()
	return openTestStore(t, fsys, change).settled()
}

// The dispatcher was still in the file before when the process died (apache/rocketmq#1434).
func TestRecoveryDispatchesWhatWasLeftInTheFileBefore(t *testing.T) {
	fsys := faultfs.New()
	small := func(c *Config) { c.MappedFileSizeCommitLog = 4096; c.PopulateWindow = 4096 }
	s := loadTestStore(t, fsys, testRoot, small)
	s.startUndispatched()
	var last *PutMessage
	for last == nil || last.WroteOffset < 2500 {
		last = s.send(storeMessage{topic: "t", size: 100})
	}
	s.dispatch()
	dispatched := s.reput.offset.Load()
	for last.WroteOffset < 4096 { // the rest of this file, and one in the next
		last = s.send(storeMessage{topic: "t", size: 100})
	}
	after := fsys.Crash(faultfs.ProcessKill, 1)
	s.abandon()

	s = reopen(t, after, small)
	if dispatched >= 4096 || s.MaxPhyOffset() != last.End() {
		t.Fatalf("dispatched to %d, log ends at %d, want %d", dispatched, s.MaxPhyOffset(), last.End())
	}
	if got := s.pullAll("t", 0); len(got) != int(last.QueueOffset)+1 {
		t.Fatalf("%d messages, want %d", len(got), last.QueueOffset+1)
	}
}

// A stop in order is no proof of what lies on disk (apache/rocketmq#467).
func TestRecoveryAfterCleanStopCutsDamage(t *testing.T) {
	damage := func(t *testing.T, fsys *faultfs.FS, file string, change func(b []byte)) {
		r, err := fsys.OpenRegion(file, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		change(r.Bytes())
		if err := r.Sync(0, int64(len(r.Bytes()))); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a byte of the last record", func(t *testing.T) {
		fsys := faultfs.New()
		s := openTestStore(t, fsys, nil)
		puts := s.sendMany(40)
		s.settled().close()
		last := puts[39]
		file := path.Join(testRoot, "commitlog", fmt.Sprintf("%020d", last.WroteOffset/(16<<10)*(16<<10)))
		damage(t, fsys, file, func(b []byte) { b[int64(last.WroteOffset)%(16<<10)+100] ^= 1 })
		s = reopen(t, fsys, nil)
		if s.MaxPhyOffset() != last.WroteOffset {
			t.Fatalf("log ends at %d, want %d", s.MaxPhyOffset(), last.WroteOffset)
		}
		again := s.send(storeMessage{topic: last.Topic, queueID: last.QueueID, properties: "KEYS\x01again"})
		if again.QueueOffset != last.QueueOffset {
			t.Errorf("next message is number %d, want %d", again.QueueOffset, last.QueueOffset)
		}
		s.settled()
		r := s.QueryMessage(last.Topic, "again", 1, 0, math.MaxInt64)
		defer r.Release()
		if len(r.Buffers) != 1 {
			t.Error("the record behind the cut is not in the index")
		}
	})
	t.Run("the last units of a queue", func(t *testing.T) {
		fsys := faultfs.New()
		s := openTestStore(t, fsys, nil)
		s.sendMany(40)
		s.settled().close()
		damage(t, fsys, path.Join(testRoot, "consumequeue/events/1/00000000000000000000"), func(b []byte) {
			end := 0
			for binary.BigEndian.Uint32(b[end+8:]) != 0 {
				end += consumeQueueUnitSize
			}
			clear(b[end-2*consumeQueueUnitSize : end])
		})
		s = reopen(t, fsys, nil)
		if got := s.pullAll("events", 1); len(got) != 6 && len(got) != 7 {
			t.Errorf("queue holds %v", got)
		}
	})
}

// The checkpoint moves each 5 s while something is dispatched, each second when that is much, and never takes more than its
// share of the time, nor more syncs than the messages are worth.
func TestWhenTheCheckpointMoves(t *testing.T) {
	var syncs, messages int64
	f := func(since time.Duration, behind PhyOffset, took time.Duration, want bool) {
		t.Helper()
		c, began := DefaultConfig(), time.Now()
		s := &FlushConsumeQueueService{
			config: func() *Config { return &c }, lastThorough: began, lastTook: took, saved: dispatchMark{offset: 1 << 30},
			lastSyncs: syncs, dispatchedAt: 1000,
		}
		s.mark = func() dispatchMark { return dispatchMark{offset: s.saved.offset + behind} }
		s.dispatched = func() int64 { return s.dispatchedAt + messages }
		if got := s.thoroughDue(began.Add(since)); got != want {
			t.Errorf("%v after a flush that took %v, %d bytes behind: due %v; want %v", since, took, behind, got, want)
		}
	}
	f(59*time.Second, 0, 0, false)
	f(60*time.Second, 0, 0, true) // flushConsumeQueueThoroughInterval
	f(4*time.Second, 1, 0, false)
	f(5*time.Second, 1, 0, true)
	f(4*time.Second, checkpointBytes-1, 0, false)
	f(999*time.Millisecond, checkpointBytes, 0, false)
	f(time.Second, checkpointBytes, 0, true)
	f(3999*time.Millisecond, 1<<30, 200*time.Millisecond, false)
	f(4*time.Second, 1<<30, 200*time.Millisecond, true)
	syncs, messages = 100, 100*checkpointSyncWorth-1
	f(59*time.Second, 1, 0, false)
	f(60*time.Second, 1, 0, true)
	f(time.Second, checkpointBytes, 0, true)
	messages++
	f(5*time.Second, 1, 0, true)
}

// An index flush must not push the checkpoint ahead of the queues (apache/rocketmq#678).
func TestCheckpointNeverAheadOfQueues(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		fsys := faultfs.New()
		flush := func(c *Config) { c.FlushDiskType = SyncFlush; c.FlushIntervalConsumeQueue = 100_000 }
		s := openTestStore(t, fsys, flush)
		puts := s.sendMany(30 + int(seed))
		s.settled()
		if _, err := s.index.syncEntries(); err != nil {
			t.Fatal(err)
		}
		if err := s.index.sealAll(); err != nil {
			t.Fatal(err)
		}
		last := puts[len(puts)-1]
		done := make(chan PutMessageStatus, 1)
		s.SubmitFlushRequest(last.End(), time.Now().Add(time.Minute), func(status PutMessageStatus) { done <- status })
		if status := <-done; status != PutOK {
			t.Fatal(status)
		}
		after := fsys.Crash(faultfs.PowerLoss, seed)
		s.abandon()
		s = reopen(t, after, flush)
		if s.MaxPhyOffset() != last.End() {
			t.Fatalf("seed %d: log ends at %d, want %d", seed, s.MaxPhyOffset(), last.End())
		}
		s.close()
	}
}

func TestStrangersInTheDirectoriesAreLeftAlone(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	s.sendMany(10)
	s.settled().close()
	strangers := []string{"commitlog/notes", "commitlog/.swp", "commitlog/0000000000000000000", "index/readme", "index/20260101000000000",
		"consumequeue/orders/0/x", "consumequeue/orders/notes"}
	for _, name := range strangers {
		if err := fsys.WriteFile(path.Join(testRoot, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"commitlog/lost+found", "consumequeue/lost+found", "index/lost+found"} {
		if err := fsys.MkdirAll(path.Join(testRoot, dir)); err != nil {
			t.Fatal(err)
		}
	}
	s = reopen(t, fsys, nil)
	s.closed = true // the checker would stumble over the strangers
	if got := s.pullAll("orders", 0); len(got) != 2 {
		t.Errorf("orders/0 holds %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range strangers {
		if _, err := fsys.Stat(path.Join(testRoot, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Queue files that somebody removed are built again as long as the log has the records.
func TestQueuesAreBuiltAgain(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	s.sendMany(120)
	s.settled().close()
	if err := fsys.RemoveAll(path.Join(testRoot, "consumequeue")); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, fsys, nil)
	if got := s.pullAll("orders", 0); len(got) != 20 || got[0] != 0 {
		t.Fatalf("orders/0 holds %v", got)
	}
	s.sendMany(60)
	s.settled().close()

	// One queue of a topic, long before the end of the log; and one file in the middle of another.
	s = reopen(t, fsys, nil)
	time.Sleep(time.Millisecond)
	for range 40 {
		s.send(storeMessage{topic: "audit", size: 300})
	}
	s.settled().close()
	if err := fsys.RemoveAll(path.Join(testRoot, "consumequeue/orders/0")); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove(path.Join(testRoot, "consumequeue/audit/0/00000000000000000400")); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, fsys, nil)
	if got := s.pullAll("orders", 0); len(got) != 30 || got[0] != 0 {
		t.Errorf("orders/0 holds %v", got)
	}
	if put := s.send(storeMessage{topic: "orders"}); put.QueueOffset != 30 {
		t.Errorf("orders/0 goes on at %d, want 30", put.QueueOffset)
	}
}

// When queue and records are gone both, the numbers go on at least.
func TestNumbersGoOnWithoutQueueAndRecords(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	for range 40 {
		s.send(storeMessage{topic: "old", size: 500})
	}
	for range 40 {
		s.send(storeMessage{topic: "new", size: 500})
	}
	s.settled().close()
	for _, base := range []int64{0, 16 << 10} {
		if err := fsys.Remove(path.Join(testRoot, "commitlog", fmt.Sprintf("%020d", base))); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.RemoveAll(path.Join(testRoot, "consumequeue/old")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the numbers also survive a start in which nothing is sent
		s = openTestStore(t, fsys, nil).settled()
		s.lossy = true
		if next := s.log.nextQueueOffset("old", 0); next != 40 {
			t.Fatalf("old/0 goes on at %d, want 40", next)
		}
		s.closed = true
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A number that is not the queue's next ends the start with both (apache/rocketmq#467).
func TestRecoveryStopsAtWrongQueueOffset(t *testing.T) {
	fsys := faultfs.New()
	s := loadTestStore(t, fsys, testRoot, nil)
	s.startUndispatched()
	for range 3 {
		s.send(storeMessage{topic: "orders", queueID: 7})
	}
	s.log.setNextQueueOffset("orders", 7, 1)
	s.send(storeMessage{topic: "orders", queueID: 7})
	after := fsys.Crash(faultfs.ProcessKill, 1)
	s.abandon()
	_, err := Open(testStoreConfig(testRoot), Options{FS: after, Logger: discardLogger()})
	mismatch := (*mismatchError)(nil)
	if !errors.As(err, &mismatch) {
		t.Fatalf("open: %v", err)
	}
	for _, part := range []string{`"orders"`, "queue 7", "message 1", "message is 3"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

// No room for queue files: dispatch waits at the same message and goes on by itself (alibaba/rocketmq#331). The store
// also starts while there is none.
func TestDispatchWaitsForRoom(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	s.sendMany(6)
	s.settled()
	full := faultfs.Fault{Op: faultfs.OpAllocate, Path: "/consumequeue/", Err: syscall.ENOSPC}
	fsys.Fail(full)
	s.sendMany(200)
	time.Sleep(20 * time.Millisecond)
	if s.DispatchBehindBytes() == 0 {
		t.Fatal("dispatched without room")
	}
	if status, cause := s.PutDenied(); status != PutOK {
		t.Errorf("sends are refused: %v, %v", status, cause)
	}
	after := cloneFS(t, fsys)
	fsys.ClearFaults()
	s.settled().close()

	after.Fail(full)
	s = openTestStore(t, after, nil)
	if behind := s.DispatchBehindBytes(); behind == 0 {
		t.Fatal("recovered without room")
	}
	if put := s.send(storeMessage{topic: "orders", queueID: 0}); put.QueueOffset != 35 {
		t.Errorf("next message of orders/0 is number %d, want 35", put.QueueOffset)
	}
	after.ClearFaults()
	s.settled()
}

// A slave's log may end anywhere: that is no error, and no entry is made of a piece (apache/rocketmq#9002).
func TestSlaveDispatchesWholeRecordsOnly(t *testing.T) {
	source := openTestStore(t, faultfs.New(), nil)
	puts := source.sendMany(20)
	end := puts[19].End()
	source.settled()

	fsys := faultfs.New()
	slave := func(c *Config) { c.Role, c.BrokerID = Slave, 1 }
	s := openTestStore(t, fsys, slave)
	for at := PhyOffset(0); at < end; {
		sel, ok := source.Select(at, min(177, int(end-at)))
		if !ok {
			t.Fatal("nothing to copy")
		}
		if err := s.AppendToCommitLog(at, sel.Bytes()); err != nil {
			t.Fatal(err)
		}
		at += PhyOffset(len(sel.Bytes()))
		sel.Release()
	}
	s.settled()
	piece, _ := source.Select(0, 100) // not a record of this place, but bytes
	piece.Release()
	if err := s.AppendToCommitLog(end, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if behind := s.DispatchBehindBytes(); behind != 3 {
		t.Errorf("behind by %d, want 3", behind)
	}
	after := fsys.Crash(faultfs.ProcessKill, 1)
	s.abandon()
	s = reopen(t, after, nil) // promoted
	if s.MaxPhyOffset() != end {
		t.Errorf("log ends at %d, want %d", s.MaxPhyOffset(), end)
	}
	for _, put := range puts {
		if _, maxOffset, _ := s.QueueOffsets(put.Topic, put.QueueID); s.log.nextQueueOffset(put.Topic, put.QueueID) != maxOffset {
			t.Fatalf("%s/%d goes on at %d, its queue ends at %d", put.Topic, put.QueueID, s.log.nextQueueOffset(put.Topic, put.QueueID), maxOffset)
		}
	}
}

// Damage in the middle of a master's log while it runs: dispatch goes on at the next record.
func TestDispatchPassesOverDamage(t *testing.T) {
	s := loadTestStore(t, faultfs.New(), testRoot, nil)
	s.closed = true
	s.startUndispatched()
	puts := s.sendMany(12)
	f := s.log.queue.find(int64(puts[4].WroteOffset))
	binary.BigEndian.PutUint32(f.bytes()[int64(puts[4].WroteOffset)-f.base+4:], 0xDEADBEEF)
	s.dispatch()
	if s.DispatchBehindBytes() != 0 || s.reput.skipped.Load() != puts[4].WroteBytes || s.reput.dispatched.Load() != 11 {
		t.Errorf("behind %d, skipped %d, dispatched %d", s.DispatchBehindBytes(), s.reput.skipped.Load(), s.reput.dispatched.Load())
	}
	s.abandon()
}

// locate finds the same record as a walk over all of them.
func TestLocateByTime(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	for range 40 {
		s.sendMany(3)
		time.Sleep(time.Millisecond)
	}
	s.settled().close()
	s = loadTestStore(t, fsys, testRoot, nil)
	records, err := readLog(fsys, s.Config().StorePathCommitLog, s.Config().MappedFileSizeCommitLog, s.MaxPhyOffset())
	if err != nil {
		t.Fatal(err)
	}
	r := &recovery{store: s.MessageStore, log: s.log.queue, config: s.Config()}
	first, last := records[0].StoreTimestamp, records[len(records)-1].StoreTimestamp
	f := func(ms int64, floor PhyOffset) {
		t.Helper()
		want := s.MaxPhyOffset()
		for _, rec := range records {
			if rec.StoreTimestamp > ms && PhyOffset(rec.PhysicalOffset) >= floor {
				want = PhyOffset(rec.PhysicalOffset)
				break
			}
		}
		if got := r.locate(ms, floor); got != want {
			// The filler between two files is no record: either side of it is right.
			if size, state, _ := r.check(got, false); state != recordBlank || got+PhyOffset(size) != want {
				t.Fatalf("locate(%d, %d) = %d, want %d", ms, floor, got, want)
			}
		}
	}
	for ms := first - 2; ms <= last+2; ms++ {
		f(ms, -1)
		f(ms, 0)
		f(ms, s.MaxPhyOffset()/2)
	}
	for floor := PhyOffset(0); floor <= s.MaxPhyOffset(); floor += 101 {
		f(first-1, floor)
		f((first+last)/2, floor)
	}
}

// FuzzRecover damages the log and a queue anywhere: the start neither panics nor hangs, and what it leaves is whole.
func FuzzRecover(f *testing.F) {
	closed := faultfs.New()
	s := openTestStore(f, closed, nil)
	s.sendMany(60)
	s.settled()
	killed := cloneFS(f, closed)
	s.close()
	f.Add(uint32(0), []byte{0, 0, 0, 0}, uint32(8), []byte{}, true)
	f.Add(uint32(5000), []byte{0xff, 0xff, 0xff, 0xff}, uint32(60), []byte{}, false)
	f.Add(uint32(17000), []byte{0xda, 0xa3, 0x20, 0xa7, 0x7f}, uint32(100), []byte{0xff}, true)
	f.Fuzz(func(t *testing.T, at uint32, bytes []byte, queueAt uint32, queueBytes []byte, clean bool) {
		from := killed
		if clean {
			from = closed
		}
		fsys := cloneFS(t, from)
		overwrite(t, fsys, "commitlog/00000000000000000000", at, bytes)
		overwrite(t, fsys, "commitlog/00000000000000016384", at, bytes)
		overwrite(t, fsys, "consumequeue/orders/0/00000000000000000000", queueAt, queueBytes)
		store, err := Open(testStoreConfig(testRoot), Options{FS: fsys, Logger: discardLogger()})
		if err != nil {
			return // a start may be refused, in order
		}
		s := &testStore{MessageStore: store, t: t, fs: fsys, closed: true}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		s.settled()
		for at, next, _ := s.QueueOffsets("orders", 0); at < next; {
			r := s.GetMessage("orders", 0, at, 32, nil, nil)
			at = r.NextBeginOffset
			r.Release()
		}
		end := s.MaxPhyOffset()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(queueBytes) > 0 {
			return // units below the checkpoint are believed: a pull passes over one that points nowhere
		}
		if err := checkUnits(fsys, s.Config(), end); err != nil {
			t.Fatal(err)
		}
	})
}

// checkUnits is for logs whose records may lie about their queue, which no checksum covers: each unit is of a record.
func checkUnits(fsys vfs.FS, c *Config, end PhyOffset) error {
	records, err := readLog(fsys, c.StorePathCommitLog, c.MappedFileSizeCommitLog, end)
	if err != nil {
		return err
	}
	sizes := map[PhyOffset]int32{}
	for _, r := range records {
		sizes[PhyOffset(r.PhysicalOffset)] = int32(r.Size)
	}
	queues, err := readQueues(fsys, path.Join(c.StorePathRootDir, "consumequeue"), c.MappedFileSizeConsumeQueue)
	if err != nil {
		return err
	}
	for q, units := range queues {
		for k, u := range units {
			if _, ok := sizes[u.Offset]; !ok && u.Offset >= end {
				return fmt.Errorf("unit %d of %v is %+v, the log ends at %d", k, q, u, end)
			}
		}
	}
	return nil
}

// cloneFS copies the files as a process would see them now, so that one store can have several futures.
func cloneFS(t testing.TB, from *faultfs.FS) *faultfs.FS {
	to := faultfs.New()
	copyDir(t, from, to, testRoot)
	return to
}

func copyDir(t testing.TB, from, to vfs.FS, dir string) {
	entries, err := from.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Dir {
			copyDir(t, from, to, name)
			continue
		}
		data, err := from.ReadFile(name)
		if err == nil {
			err = to.WriteFile(name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func overwrite(t *testing.T, fsys *faultfs.FS, name string, at uint32, b []byte) {
	r, err := fsys.OpenRegion(path.Join(testRoot, name), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	copy(r.Bytes()[int(at)%len(r.Bytes()):], b)
}
