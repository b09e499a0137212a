// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// Offsets of single puts and batches are given out with the append, and not used up when it fails: under concurrent
// writers and failures every queue is gapless, each record says where it lies, and each writer's order is kept
// (apache/rocketmq#2865).
func TestConcurrentPutsKeepOrderAndOffsets(t *testing.T) {
	const writers, turns = 32, 60
	fsys := faultfs.New()
	l := openTestLog(t, fsys, func(c *Config) { c.WaitTimeMillsInSendQueue = 60_000 })
	var failures atomic.Int64
	coins := rand.New(rand.NewPCG(1, 2))
	_ = l.appender.withRole(func() error {
		l.appender.beforeWrite = func(*PutMessage) error {
			if coins.IntN(20) == 0 {
				failures.Add(1)
				return errors.New("injected")
			}
			return nil
		}
		return nil
	})
	var wg sync.WaitGroup
	var failed, appended atomic.Int64
	for w := range writers {
		wg.Go(func() {
			coins := rand.New(rand.NewPCG(3, uint64(w)))
			var pending sync.WaitGroup
			for turn := range turns {
				puts := make([]*PutMessage, 1+coins.IntN(4))
				pending.Add(len(puts))
				for i := range puts {
					put := orderedPut(w, turn*10+i, 1+coins.IntN(50))
					put.Appended = func(put *PutMessage, status PutMessageStatus) {
						defer pending.Done()
						switch {
						case status == UnknownError && put.Cause != nil:
							failed.Add(1)
						case status == PutOK && put.WroteBytes == int64(len(put.Record)):
							appended.Add(int64(put.MsgNum))
						default:
							t.Errorf("status %v, cause %v", status, put.Cause)
						}
					}
					puts[i] = put
				}
				if n, status := l.asyncPutMessages(puts); n != len(puts) {
					t.Errorf("%d of %d taken: %v", n, len(puts), status)
					pending.Add(n - len(puts))
				}
			}
			pending.Wait()
		})
	}
	wg.Wait()
	if failed.Load() != failures.Load() || failures.Load() == 0 {
		t.Fatalf("%d puts failed, %d failures injected", failed.Load(), failures.Load())
	}
	last := make(map[uint64]uint64)
	records := int64(0)
	end, _ := l.walk(func(r *message.Record) {
		records++
		writer, sequence := binary.BigEndian.Uint64(r.Body), binary.BigEndian.Uint64(r.Body[8:])
		if before, ok := last[writer]; ok && sequence < before {
			t.Fatalf("writer %d: %d lies behind %d", writer, sequence, before)
		}
		last[writer] = sequence
	})
	if end != l.maxOffset() || records != appended.Load() {
		t.Fatalf("%d records up to %d; want %d up to %d", records, end, appended.Load(), l.maxOffset())
	}
	if unbacked := fsys.Unbacked(); len(unbacked) > 0 {
		t.Fatalf("stored where no block is: %v", unbacked)
	}
}

// orderedPut is a put of messages whose bodies name their writer and order; all writers use one queue.
func orderedPut(writer, sequence, messages int) *PutMessage {
	put := &PutMessage{Topic: "topic", QueueID: 1, MsgNum: int32(messages)}
	body := binary.BigEndian.AppendUint64(nil, uint64(writer))
	body = binary.BigEndian.AppendUint64(body, uint64(sequence))
	for range messages {
		put.Record = testRecord(put.Record, put.Topic, put.QueueID, body)
	}
	return put
}

// A batch lies in one file, its queue offsets are consecutive.
func TestBatchIsContiguous(t *testing.T) {
	l := openTestLog(t, faultfs.New(), nil)
	for i := range 40 {
		put, done := testPut("topic", 0, 100, 1+i)
		l.take(put)
		if status := <-done; status != PutOK {
			t.Fatal(status)
		}
		size := PhyOffset(l.queue.fileSize)
		if put.WroteOffset/size != (put.End()-1)/size {
			t.Fatalf("batch from %d to %d crosses a file end", put.WroteOffset, put.End())
		}
	}
	if next := l.nextQueueOffset("topic", 0); next != 40*41/2 {
		t.Fatalf("next queue offset %d", next)
	}
}

func TestRecordsWithoutQueueOffset(t *testing.T) {
	l := openTestLog(t, faultfs.New(), nil)
	l.mustPut(10)
	put, done := testPut("topic", 0, 10, 1)
	put.NoQueueOffset = true
	l.take(put)
	if status := <-done; status != PutOK || put.QueueOffset != 0 {
		t.Fatalf("%v, queue offset %d", status, put.QueueOffset)
	}
	if put := l.mustPut(10); put.QueueOffset != 1 {
		t.Fatalf("queue offset %d after a record that takes none", put.QueueOffset)
	}
}

// What can never be appended is refused once and disturbs nobody.
func TestIllegalPuts(t *testing.T) {
	l := openTestLog(t, faultfs.New(), nil)
	f := func(change func(*PutMessage)) {
		t.Helper()
		before := l.maxOffset()
		put, done := testPut("topic", 0, 100, 2)
		change(put)
		good, goodDone := testPut("topic", 0, 100, 1)
		if n, status := l.asyncPutMessages([]*PutMessage{put, good}); n != 2 {
			t.Fatalf("%d taken, %v", n, status)
		}
		if status := <-done; status != MessageIllegal || put.Cause == nil {
			t.Fatalf("%v, %v; want %v and a cause", status, put.Cause, MessageIllegal)
		}
		if status := <-goodDone; status != PutOK || good.WroteOffset != before {
			t.Fatalf("the put behind it: %v at %d, want %d", status, good.WroteOffset, before)
		}
	}
	f(func(p *PutMessage) { p.MsgNum = 1 })
	f(func(p *PutMessage) { p.MsgNum = 3 })
	f(func(p *PutMessage) { p.MsgNum = 0 })
	f(func(p *PutMessage) { p.MsgNum = -1 })
	f(func(p *PutMessage) { p.Record = nil })
	f(func(p *PutMessage) { p.Record = p.Record[:len(p.Record)-1] })
	f(func(p *PutMessage) { p.Record = append(p.Record, 0) })
	f(func(p *PutMessage) { binary.BigEndian.PutUint32(p.Record, 90) })
	f(func(p *PutMessage) { binary.BigEndian.PutUint32(p.Record, 0xFFFFFFFF) })
	f(func(p *PutMessage) { p.Record = testRecord(nil, "t", 0, make([]byte, 64<<10)); p.MsgNum = 1 })
	if next := l.nextQueueOffset("topic", 0); next != 10 {
		t.Fatalf("illegal puts used up queue offsets: next is %d", next)
	}
	// The largest record that fits, in a file of its own.
	l.mustPut(64<<10 - 8 - len(testRecord(nil, "topic", 0, nil)))
	if end, _ := l.walk(nil); end != l.maxOffset() {
		t.Fatalf("records end at %d of %d", end, l.maxOffset())
	}
}

// A record that was cut off does not come back behind a new one of its predecessor's size.
func TestRecordsBehindACutStayGone(t *testing.T) {
	fsys := faultfs.New()
	l := openTestLog(t, fsys, nil)
	first := l.mustPut(100)
	l.mustPut(100)
	l.mustPut(100)
	l.shutdown()

	l = loadTestLog(t, fsys, testLogDir, nil)
	if err := l.setRecovered(first.End()); err != nil {
		t.Fatal(err)
	}
	l.close()
	l = openTestLog(t, fsys, nil)
	if l.maxOffset() != first.End() {
		t.Fatalf("the log ends at %d, was cut at %d", l.maxOffset(), first.End())
	}
	second := l.mustPut(100)
	l.shutdown()
	if l = openTestLog(t, fsys, nil); l.maxOffset() != second.End() {
		t.Fatalf("the log ends at %d, its last record at %d", l.maxOffset(), second.End())
	}
}

// A full disk is met when the next file is made: sends are refused with the cause, what fits the last file is taken,
// nothing is left behind, and sends go on soon after space is back (golang/go#36109, alibaba/rocketmq#331).
func TestDiskFullAtRollAndBack(t *testing.T) { synctest.Test(t, testDiskFullAtRollAndBack) }

func testDiskFullAtRollAndBack(t *testing.T) {
	fsys := faultfs.New()
	l := openTestLog(t, fsys, nil)
	l.mustPut(100)
	eventually(t, "next file made", func() bool { return fsys.Used() >= 2*l.queue.fileSize })
	fsys.SetCapacity(fsys.Used())
	var refused *PutMessage
	for range 10 {
		put, done := testPut("topic", 0, 30<<10, 1)
		l.take(put)
		if status := <-done; status != PutOK {
			if status != ServiceNotAvailable {
				t.Fatalf("status %v, want %v", status, ServiceNotAvailable)
			}
			refused = put
			break
		}
	}
	if refused == nil || !errors.Is(refused.Cause, syscall.ENOSPC) {
		t.Fatalf("refused %v", refused)
	}
	if status, cause := l.denied(time.Now().UnixMilli()); status != ServiceNotAvailable || !errors.Is(cause, syscall.ENOSPC) {
		t.Fatalf("denied: %v, %v", status, cause)
	}
	end := l.maxOffset()
	if n := len(l.queue.files()); n != 2 {
		t.Fatalf("%d files", n)
	}
	if _, err := fsys.Stat(l.queue.fileName(2 * l.queue.fileSize)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a half-made file is left: %v", err)
	}
	fsys.SetCapacity(1 << 30)
	began := time.Now()
	eventually(t, "puts accepted", func() bool {
		put, done := testPut("topic", 0, 30<<10, 1)
		_, status := l.asyncPutMessages([]*PutMessage{put})
		return status == PutOK && <-done == PutOK
	})
	t.Logf("accepted %v after space was back", time.Since(began))
	if got, _ := l.walk(nil); got != l.maxOffset() || got <= end {
		t.Fatalf("records end at %d of %d", got, l.maxOffset())
	}
}

// A log found on a full disk, in a sparse file as Java makes them, is served and takes puts when there is space.
func TestStartsOnFullDisk(t *testing.T) { synctest.Test(t, testStartsOnFullDisk) }

func testStartsOnFullDisk(t *testing.T) {
	fsys := faultfs.New()
	l := openTestLog(t, fsys, nil)
	l.mustPut(100)
	l.shutdown()
	content, err := fsys.ReadFile(testLogDir + "/00000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	sparse := faultfs.New()
	if err := sparse.MkdirAll(testLogDir); err != nil {
		t.Fatal(err)
	}
	region, err := sparse.OpenRegion(testLogDir+"/00000000000000000000", 64<<10, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(region.WriteAt(content[:4096], 0), region.Close()); err != nil {
		t.Fatal(err)
	}
	sparse.SetCapacity(sparse.Used())
	l = openTestLog(t, sparse, nil)
	if end, _ := l.walk(nil); end == 0 || end != l.maxOffset() {
		t.Fatalf("records end at %d of %d", end, l.maxOffset())
	}
	put, done := testPut("topic", 0, 100, 1)
	l.take(put)
	if status := <-done; status != ServiceNotAvailable || !errors.Is(put.Cause, syscall.ENOSPC) {
		t.Fatalf("put: %v, %v", status, put.Cause)
	}
	sparse.SetCapacity(1 << 30)
	eventually(t, "puts accepted", func() bool {
		put, done := testPut("topic", 0, 100, 1)
		_, status := l.asyncPutMessages([]*PutMessage{put})
		return status == PutOK && <-done == PutOK
	})
	if unbacked := sparse.Unbacked(); len(unbacked) > 0 {
		t.Fatalf("stored where no block is: %v", unbacked)
	}
}

func TestOtherAllocationErrors(t *testing.T) { synctest.Test(t, testOtherAllocationErrors) }

func testOtherAllocationErrors(t *testing.T) {
	fsys := faultfs.New()
	fsys.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Count: 1, Err: syscall.EIO})
	l := openTestLog(t, fsys, nil)
	put, done := testPut("topic", 0, 100, 1)
	l.take(put)
	if status := <-done; status != CreateMappedFileFailed || !errors.Is(put.Cause, syscall.EIO) {
		t.Fatalf("put: %v, %v", status, put.Cause)
	}
	eventually(t, "second try", func() bool {
		put, done := testPut("topic", 0, 100, 1)
		l.take(put)
		return <-done == PutOK
	})
}

// stall holds somebody up in an append. It returns when it is there.
func (l *testLog) stall() (release func()) {
	l.t.Helper()
	entered, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	_ = l.appender.withRole(func() error {
		l.appender.beforeWrite = func(*PutMessage) error {
			once.Do(func() {
				close(entered)
				<-resume
			})
			return nil
		}
		return nil
	})
	put, done := testPut("topic", 0, int(l.queue.fileSize)/2, 1)
	go l.take(put)
	<-entered
	return func() {
		close(resume)
		if status := <-done; status != PutOK {
			l.t.Errorf("the stalled put: %v", status)
		}
	}
}

// Behind an append that stalls, puts are answered busy when their time in the queue is over, not before and not by
// what they wait for later, and the next ones go well (apache/rocketmq#2471).
func TestQueuedPutsExpireBehindAStall(t *testing.T) {
	l := openTestLog(t, faultfs.New(), func(c *Config) {
		c.OSPageCacheBusyTimeOutMills = 10_000
		c.WaitTimeMillsInSendQueue = 200
		c.SendThreadPoolQueueCapacity = 5000
	})
	release := l.stall()
	var expired sync.WaitGroup
	var latest atomic.Int64
	began := time.Now()
	for range 50 {
		puts := make([]*PutMessage, 100)
		expired.Add(len(puts))
		for i := range puts {
			puts[i], _ = testPut("topic", 0, 10, 1)
			puts[i].Appended = func(put *PutMessage, status PutMessageStatus) {
				defer expired.Done()
				latest.Store(max(latest.Load(), int64(time.Since(began))))
				if status != QueueTimeout || !strings.Contains(fmt.Sprint(put.Cause), "period in queue: ") ||
					!strings.Contains(fmt.Sprint(put.Cause), "size of queue: ") {
					t.Errorf("status %v, cause %v", status, put.Cause)
				}
			}
		}
		if n, status := l.asyncPutMessages(puts); n != len(puts) || status != PutOK {
			t.Fatalf("%d taken, %v", n, status)
		}
	}
	put, _ := testPut("topic", 0, 10, 1)
	if _, status := l.asyncPutMessages([]*PutMessage{put}); status != QueueFull {
		t.Fatalf("at the queue's limit: %v, want %v", status, QueueFull)
	}
	expired.Wait()
	t.Logf("the last of 5000 expired after %v", time.Duration(latest.Load()))
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Fatalf("expired after %v already", took)
	}
	release()
	l.mustPut(10)
	var s Stats
	l.addStats(&s)
	if s.AppendExpired != 5000 || s.PutQueueLength != 0 {
		t.Fatalf("stats: %d expired, %d queued", s.AppendExpired, s.PutQueueLength)
	}
}

// A put that expired in the queue, and is used again, does not count the time since then as its wait.
func TestWaitOfAReusedPut(t *testing.T) {
	l := openTestLog(t, faultfs.New(), nil)
	l.mustPut(10)
	put, done := testPut("topic", 0, 10, 1)
	put.queuedAt = time.Now().Add(-time.Hour).UnixMilli()
	if n, status := l.asyncPutMessages([]*PutMessage{put}); n != 1 || status != PutOK || <-done != PutOK {
		t.Fatalf("%d taken, %v", n, status)
	}
	var s Stats
	l.addStats(&s)
	if s.PutMessageEntireTimeMax >= time.Hour {
		t.Errorf("a put took %v", s.PutMessageEntireTimeMax)
	}
}

// Page-cache busy means that the append now running takes too long; it passes with it.
func TestPageCacheBusy(t *testing.T) {
	l := openTestLog(t, faultfs.New(), func(c *Config) { c.OSPageCacheBusyTimeOutMills = 100 })
	l.mustPut(10)
	release := l.stall()
	if status, _ := l.denied(time.Now().UnixMilli()); status != PutOK {
		t.Fatalf("refused at once: %v", status)
	}
	eventually(t, "busy", func() bool {
		status, cause := l.denied(time.Now().UnixMilli())
		return status == OSPageCacheBusy && cause != nil
	})
	put, _ := testPut("topic", 0, 10, 1)
	if n, status := l.asyncPutMessages([]*PutMessage{put}); n != 0 || status != OSPageCacheBusy {
		t.Fatalf("%d taken, %v", n, status)
	}
	release()
	eventually(t, "idle", func() bool { return l.lockTime(time.Now().UnixMilli()) == 0 })
	l.mustPut(10)
}

// Every put that was taken ends once, whatever the stop meets; none is appended afterwards.
func TestStopEndsEveryPut(t *testing.T) {
	for round := range 6 {
		l := openTestLog(t, faultfs.New(), nil)
		var taken, ended, appended atomic.Int64
		var writers sync.WaitGroup
		var stopped atomic.Bool
		for range 8 {
			writers.Go(func() {
				for !stopped.Load() {
					puts := make([]*PutMessage, 3)
					for i := range puts {
						puts[i], _ = testPut("topic", 0, 2000, 1)
						puts[i].Appended = func(_ *PutMessage, status PutMessageStatus) {
							ended.Add(1)
							if status == PutOK {
								appended.Add(1)
							}
						}
					}
					n, status := l.asyncPutMessages(puts)
					taken.Add(int64(n))
					if n < len(puts) && status != ServiceNotAvailable && status != QueueFull {
						t.Errorf("refused with %v", status)
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond / 2)
		l.stop()
		end := l.queue.flushedWhere.Load()
		stopped.Store(true)
		writers.Wait()
		if taken.Load() != ended.Load() {
			t.Fatalf("%d puts taken, %d ended", taken.Load(), ended.Load())
		}
		records := int64(0)
		if got, _ := l.walk(func(*message.Record) { records++ }); int64(got) != end || records != appended.Load() {
			t.Fatalf("%d records up to %d; want %d up to %d", records, got, appended.Load(), end)
		}
		l.close()
	}
}

// A topic's offsets may be forgotten while puts arrive: they begin again, gapless.
func TestRemoveTopicWhilePutsArrive(t *testing.T) {
	l := openTestLog(t, faultfs.New(), nil)
	var stop atomic.Bool
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for !stop.Load() {
				put, done := testPut("doomed", int32(w), 100, 1)
				l.take(put)
				<-done
			}
		})
	}
	for range 50 {
		l.removeTopic("doomed")
		l.setNextQueueOffset("other", 7, 9)
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	writers.Wait()
	if next := l.nextQueueOffset("other", 7); next != 9 {
		t.Fatalf("next offset of the other topic %d", next)
	}
	next := make(map[int32]int64)
	for _, f := range l.queue.files() {
		for b := f.data[:f.readPosition()]; len(b) > 0; {
			var r message.Record
			if err := message.Decode(b, &r); errors.Is(err, message.ErrBlank) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if r.QueueOffset != next[r.QueueID] && r.QueueOffset != 0 {
				t.Fatalf("queue offset %d, want %d or 0", r.QueueOffset, next[r.QueueID])
			}
			next[r.QueueID] = r.QueueOffset + 1
			b = b[r.Size:]
		}
	}
}

// However the bytes of a log are cut, into calls and their parts, a slave that appends them has the same log.
func TestAppendDataAtAnyCut(t *testing.T) {
	master := openTestLog(t, faultfs.New(), nil)
	for i := range 200 {
		master.mustPut(500 + i)
	}
	slave := openTestLog(t, faultfs.New(), func(c *Config) { c.Role = Slave })
	coins := rand.New(rand.NewPCG(5, 6))
	var log []byte
	for int64(len(log)) < int64(master.maxOffset()) {
		loan, ok := master.selectAt(PhyOffset(len(log)), math.MaxInt32)
		if !ok {
			t.Fatalf("nothing at %d", len(log))
		}
		log = append(log, loan.Bytes()...)
		loan.Release()
	}
	for at := PhyOffset(0); at < master.maxOffset(); {
		var parts [][]byte
		size := 0
		for range coins.IntN(20) {
			n := min(coins.IntN(5000), len(log)-int(at)-size) // also across file ends; some are empty
			parts = append(parts, log[int(at)+size:][:n])
			size += n
		}
		if err := slave.appendData(at, parts...); err != nil {
			t.Fatal(err)
		}
		at += PhyOffset(size)
		if slave.maxOffset() != at || slave.readable.Load() != int64(at) {
			t.Fatalf("slave ends at %d, readable %d; want %d", slave.maxOffset(), slave.readable.Load(), at)
		}
	}
	for i, f := range master.queue.files() {
		if !bytes.Equal(f.data[:f.readPosition()], slave.queue.files()[i].data[:f.readPosition()]) {
			t.Fatalf("file %d differs", f.base)
		}
	}
	for _, start := range []PhyOffset{0, master.maxOffset() - 1, master.maxOffset() + 1} {
		if err := slave.appendData(start, []byte{1}); err == nil {
			t.Fatalf("appended at %d of %d", start, slave.maxOffset())
		}
	}
	if err := master.appendData(master.maxOffset(), []byte{1}); !errors.Is(err, errNotSlave) {
		t.Fatalf("a master took raw bytes: %v", err)
	}
}

func TestAppendDataBeginsAtAnyFile(t *testing.T) {
	l := openTestLog(t, faultfs.New(), func(c *Config) { c.Role = Slave })
	for _, start := range []PhyOffset{1, -1, -64 << 10, 3*64<<10 + 1} {
		if err := l.appendData(start, []byte{1}); err == nil {
			t.Fatalf("an empty log took bytes at %d", start)
		}
	}
	data := bytes.Repeat([]byte{9}, 100<<10) // also across a file end
	if err := l.appendData(3*64<<10, data); err != nil {
		t.Fatal(err)
	}
	if l.minOffset() != 3*64<<10 || l.maxOffset() != 3*64<<10+100<<10 {
		t.Fatalf("log from %d to %d", l.minOffset(), l.maxOffset())
	}
}

// A put costs no garbage.
func TestPutAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates")
		return
	}
	l := openTestLog(t, faultfs.New(), func(c *Config) {
		c.MappedFileSizeCommitLog, c.PopulateWindow = 8<<20, 8<<20
		c.FlushDiskType = SyncFlush
	})
	l.mustPut(10)
	put, _ := testPut("topic", 0, 1024, 1)
	flushed := make(chan PutMessageStatus, 1)
	done := func(status PutMessageStatus) { flushed <- status }
	put.Appended = func(put *PutMessage, status PutMessageStatus) {
		l.submitFlushRequest(GroupCommitRequest{end: put.End(), deadline: time.Now().Add(time.Minute), done: done})
	}
	puts := []*PutMessage{put}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, status := l.asyncPutMessages(puts); status != PutOK {
			t.Fatal(status)
		}
		<-flushed
	})
	if allocs > 0.5 { // faultfs allocates now and then
		t.Fatalf("%v allocations per put", allocs)
	}
	if !put.Inline {
		t.Fatal("not appended inline")
	}
}
