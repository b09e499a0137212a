// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"math"
	"path"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"loopmq/storage/latency"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

type tagFilter int64

func (f tagFilter) MatchConsumeQueue(tagsCode int64) bool { return tagsCode == int64(f) }
func (tagFilter) MatchCommitLog([]byte) bool              { return true }

type recordFilter func([]byte) bool

func (recordFilter) MatchConsumeQueue(int64) bool        { return true }
func (f recordFilter) MatchCommitLog(record []byte) bool { return f(record) }

func TestGetMessageStatuses(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	s.lossy = true
	for range 100 {
		s.send(storeMessage{topic: "t", size: 900, properties: "TAGS\x01a"})
	}
	s.settled()
	for len(s.log.queue.files()) > 3 {
		if err := s.log.queue.retire(s.log.queue.first()); err != nil {
			t.Fatal(err)
		}
	}
	q := s.queues.find("t", 0)
	q.correctMinOffset(s.MinPhyOffset())
	minOffset, _ := q.bounds()
	if minOffset == 0 {
		t.Fatal("min offset was not corrected")
	}
	f := func(topic string, offset QueueOffset, filter MessageFilter, status GetMessageStatus, next QueueOffset) {
		t.Helper()
		r := s.GetMessage(topic, 0, offset, 32, filter, nil)
		defer r.Release()
		if r.Status != status || r.NextBeginOffset != next {
			t.Errorf("%s at %d: status %d, next %d; want %d, %d", topic, offset, r.Status, r.NextBeginOffset, status, next)
		}
	}
	all := func() {
		t.Helper()
		f("unknown", 5, nil, NoMatchedLogicQueue, 0)
		f("t", minOffset-1, nil, OffsetTooSmall, minOffset)
		f("t", 0, nil, OffsetTooSmall, minOffset)
		f("t", 100, nil, OffsetOverflowOne, 100)
		f("t", 101, nil, OffsetOverflowBadly, 100)
		f("t", 99, nil, Found, 100)
		f("t", 99, tagFilter(7), NoMatchedMessage, 100)
		f("t", 99, recordFilter(func([]byte) bool { return false }), NoMatchedMessage, 100)
	}
	all()
	if err := s.UpdateConfig(func(c *Config) { c.Role, c.BrokerID = Slave, 1 }); err != nil {
		t.Fatal(err)
	}
	f("t", 101, nil, OffsetOverflowBadly, 101) // a slave that lags must not send consumers back
	f("t", 0, nil, OffsetTooSmall, 0)
	f("unknown", 5, nil, NoMatchedLogicQueue, 5)
	if err := s.UpdateConfig(func(c *Config) { c.OffsetCheckInSlave = true }); err != nil {
		t.Fatal(err)
	}
	all()
	if err := s.UpdateConfig(func(c *Config) { c.Role, c.BrokerID = AsyncMaster, 0 }); err != nil {
		t.Fatal(err)
	}

	// The queue does not know yet that a log file is gone: its messages are passed over.
	if err := s.log.queue.retire(s.log.queue.first()); err != nil {
		t.Fatal(err)
	}
	r := s.GetMessage("t", 0, minOffset, 32, nil, nil)
	if r.Status != MessageWasRemoving && r.Status != Found || r.NextBeginOffset <= minOffset {
		t.Errorf("removed: status %d, next %d", r.Status, r.NextBeginOffset)
	}
	r.Release()
}

func TestGetMessageLimits(t *testing.T) {
	s := openTestStore(t, faultfs.New(), func(c *Config) {
		c.MappedFileSizeCommitLog = 1 << 20
		c.MappedFileSizeConsumeQueue = 2000 * consumeQueueUnitSize
	})
	for i := range 1200 {
		s.send(storeMessage{topic: "t", size: 100, properties: fmt.Sprintf("TAGS\x01%d", i%600)})
	}
	s.settled()
	f := func(maxMsgNums int, filter MessageFilter, messages int, next QueueOffset) {
		t.Helper()
		r := s.GetMessage("t", 0, 0, maxMsgNums, filter, nil)
		defer r.Release()
		if r.MsgCount != messages || r.NextBeginOffset != next {
			t.Errorf("pull of %d: %d messages, next %d; want %d, %d", maxMsgNums, r.MsgCount, r.NextBeginOffset, messages, next)
		}
		total := 0
		for _, b := range r.Buffers {
			total += len(b.Bytes())
		}
		if total != r.BufferTotalSize {
			t.Errorf("buffers hold %d bytes, result says %d", total, r.BufferTotalSize)
		}
		if filter == nil && len(r.Buffers) != 1 {
			t.Errorf("%d loans for messages that lie side by side", len(r.Buffers))
		}
	}
	f(10, nil, 10, 10)
	f(100, nil, 32, 32)                                          // maxTransferCountOnMessageInMemory
	f(32, tagFilter(message.TagsCode([]byte("700"))), 0, 800)    // 16,000 bytes of the queue
	f(1000, tagFilter(message.TagsCode([]byte("599"))), 1, 1000) // maxMsgNums units
	f(1, tagFilter(message.TagsCode([]byte("3"))), 1, 4)

	// The same messages on disk: 8 of them, or 64 KiB.
	s.physicalMemory = 1000
	f(100, nil, 8, 8)
	r := s.GetMessage("t", 0, 0, 32, nil, nil)
	if !r.SuggestPullingFromSlave || !s.IsCold("t", 0, 0) {
		t.Error("far from the end, not cold")
	}
	r.Release()
	r = s.GetMessage("t", 0, 1199, 32, nil, r)
	if r.SuggestPullingFromSlave || s.IsCold("t", 0, 1199) {
		t.Error("at the end, cold")
	}
	r.Release()
	if s.IsCold("t", 0, 1200) || s.IsCold("none", 0, 0) {
		t.Error("nothing to read, cold")
	}
}

// A pull of what is in memory gets what any pull gets. Where something is not, it gets nothing, and keeps nothing.
func TestGetResident(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	for i := range 500 {
		s.send(storeMessage{topic: "t", queueID: int32(i % 3), size: 100 + i, properties: fmt.Sprintf("TAGS\x01%d", i%7)})
	}
	s.settled()
	held := func() (n int64) {
		for _, f := range append(s.log.queue.files(), s.queues.find("t", 0).files.files()...) {
			n += f.held()
		}
		return n
	}
	filters := []MessageFilter{nil, tagFilter(message.TagsCode([]byte("3"))), recordFilter(func(record []byte) bool { return len(record)%2 == 0 })}
	same := func(a, b GetMessageResult) bool {
		if len(a.Buffers)+len(b.Buffers) == 0 {
			a.Buffers, b.Buffers = nil, nil
		}
		return reflect.DeepEqual(a, b)
	}
	want, got := new(GetMessageResult), new(GetMessageResult)
	for _, absent := range []bool{true, false} {
		fsys.SetAbsent(absent)
		for i := range 600 {
			queueID, offset, maxMsgNums, filter := int32(i%4), QueueOffset(i*7%180), i%40, filters[i%len(filters)]
			s.GetMessage("t", queueID, offset, maxMsgNums, filter, want)
			there := s.GetResident("t", queueID, offset, maxMsgNums, filter, got)
			touches := want.Status == Found || want.Status == NoMatchedMessage
			if there != (!absent || !touches) || there && !same(*got, *want) || !there && len(got.Buffers) > 0 {
				t.Fatalf("queue %d at %d, %d messages: in memory: %v, %+v; want %+v", queueID, offset, maxMsgNums, there, got, want)
			}
			want.Release()
			got.Release()
		}
	}
	if n := held(); n != 0 {
		t.Errorf("%d loans are still out", n)
	}
}

// A look at what is in memory holds for a while, for the part of the file that was looked at.
func TestResidentForAWhile(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, func(c *Config) { c.MappedFileSizeCommitLog = 4 * residentPart })
	for range 10 {
		s.send(storeMessage{topic: "t", size: residentPart / 4})
	}
	s.settled()
	f, now := s.log.queue.first(), latency.Now()
	check := func(from, to, now int64, want bool) {
		t.Helper()
		if got := f.isResident(from, to, now); got != want {
			t.Errorf("[%d, %d) in memory: %v", from, to, got)
		}
	}
	check(10, residentPart+10, now, true)
	fsys.SetAbsent(true)
	check(0, 2*residentPart, now, true)
	check(0, 2*residentPart, now+int64(residentFor)-1, true)
	check(0, 2*residentPart+1, now, false)
	check(0, 10, now+int64(residentFor), false)
}

// A record larger than the limits goes out alone.
func TestGetMessageFirstAlwaysGoes(t *testing.T) {
	s := openTestStore(t, faultfs.New(), func(c *Config) { c.MappedFileSizeCommitLog = 1 << 20; c.MaxTransferBytesInMemory = 50 })
	s.send(storeMessage{topic: "t", size: 500})
	s.send(storeMessage{topic: "t", size: 500})
	s.settled()
	r := s.GetMessage("t", 0, 0, 32, nil, nil)
	defer r.Release()
	if r.MsgCount != 1 {
		t.Errorf("%d messages, want 1", r.MsgCount)
	}
}

func TestGetMessageAllocatesNothing(t *testing.T) {
	if raceEnabled {
		return // sync.Pool drops at random under the race detector
	}
	s := openTestStore(t, faultfs.New(), func(c *Config) { c.MappedFileSizeCommitLog = 1 << 20 })
	s.sendMany(60)
	s.settled()
	r := &GetMessageResult{}
	s.GetMessage("orders", 0, 0, 32, nil, r).Release()
	if n := testing.AllocsPerRun(100, func() { s.GetMessage("orders", 0, 0, 32, nil, r).Release() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOffsetByTime(t *testing.T) {
	s := openTestStore(t, faultfs.New(), nil)
	if got := s.OffsetByTime("t", 0, 5, false); got != 0 {
		t.Errorf("unknown queue: %d", got)
	}
	var times []int64
	for range 6 {
		times = append(times, s.send(storeMessage{topic: "t"}).StoreTimestamp)
		time.Sleep(2 * time.Millisecond)
	}
	s.settled()
	f := func(ms int64, upper bool, want QueueOffset) {
		t.Helper()
		if got := s.OffsetByTime("t", 0, ms, upper); got != want {
			t.Errorf("OffsetByTime(%d, %v) = %d, want %d", ms, upper, got, want)
		}
	}
	for i, ms := range times {
		f(ms, false, QueueOffset(i))
		f(ms, true, QueueOffset(i))
		f(ms+1, true, QueueOffset(i))
		f(ms+1, false, QueueOffset(i+1))
	}
	f(0, false, 0)
	f(0, true, 0)
	f(math.MaxInt64, false, 6)
	f(math.MaxInt64, true, 5)
	if got := s.MessageStoreTime("t", 0, 3); got != times[3] {
		t.Errorf("store time %d, want %d", got, times[3])
	}
	if s.MessageStoreTime("t", 0, 6) != -1 || s.MessageStoreTime("x", 0, 0) != -1 || s.EarliestMessageTime() != times[0] {
		t.Error("store time of nothing, or of the first")
	}
}

func TestLookMessageByOffsetWantsARecord(t *testing.T) {
	s := openTestStore(t, faultfs.New(), nil)
	put := s.send(storeMessage{topic: "t", size: 300})
	for _, offset := range []PhyOffset{-1, 1, 8, put.End() - 1, put.End(), put.End() + 1, 1 << 40} {
		if sel, err := s.LookMessageByOffset(offset); err == nil {
			sel.Release()
			t.Errorf("a record at %d", offset)
		}
	}
	sel, err := s.LookMessageByOffset(0)
	if err != nil || len(sel.Bytes()) != int(put.WroteBytes) {
		t.Errorf("%d bytes, %v", len(sel.Bytes()), err)
	}
	sel.Release()
}

// Deleting a topic while messages arrive and are read ends neither process nor dispatch (apache/rocketmq#8405).
func TestDeleteTopicWhileInUse(t *testing.T) {
	s := openTestStore(t, faultfs.New(), func(c *Config) { c.MappedFileSizeCommitLog = 256 << 10 })
	s.lossy, s.closed = true, true
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if w < 2 {
					put, done := storeMessage{topic: "t", queueID: int32(w), size: 50}.put()
					if s.AsyncPutMessage(put) == PutOK {
						<-done
					}
				} else {
					minOffset, _, _ := s.QueueOffsets("t", int32(w-2))
					s.GetMessage("t", int32(w-2), minOffset, 32, nil, nil).Release()
					s.OffsetByTime("t", int32(w-2), 1, false)
				}
				runtime.Gosched()
			}
		})
	}
	for range 30 {
		if err := s.DeleteTopic("t"); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	s.settled()
	for id := range int32(2) {
		put := s.send(storeMessage{topic: "t", queueID: id})
		s.settled()
		if _, maxOffset, _ := s.QueueOffsets("t", id); maxOffset != put.QueueOffset+1 {
			t.Errorf("t/%d ends at %d, last message is %d", id, maxOffset, put.QueueOffset)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Min is the first message that is still there, and max when there is none (apache/rocketmq#8753).
func TestMinOffsetAfterLogFilesWereDeleted(t *testing.T) {
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	for _, topic := range []string{"gone", "half", "whole"} {
		for range 40 {
			s.send(storeMessage{topic: topic, size: 500})
		}
	}
	s.settled().close()
	for _, base := range []int64{0, 16 << 10} {
		if err := fsys.Remove(path.Join(testRoot, "commitlog", fmt.Sprintf("%020d", base))); err != nil {
			t.Fatal(err)
		}
	}
	s = openTestStore(t, fsys, nil).settled()
	s.lossy = true
	for topic, want := range map[string]int{"gone": 0, "half": -1, "whole": 40} {
		minOffset, maxOffset, _ := s.QueueOffsets(topic, 0)
		got := len(s.pullAll(topic, 0))
		if got != int(maxOffset-minOffset) || maxOffset != 40 || want >= 0 && got != want || want < 0 && (got == 0 || got == 40) {
			t.Errorf("%s: min %d, max %d, %d messages pulled", topic, minOffset, maxOffset, got)
		}
	}
}
