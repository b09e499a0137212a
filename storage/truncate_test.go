// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// history is the log of a master.
type history struct {
	first      PhyOffset
	bytes      []byte
	boundaries []PhyOffset // where records and fillers begin, and the end
}

func (h *history) end() PhyOffset { return h.first + PhyOffset(len(h.bytes)) }

func (h *history) from(offset PhyOffset) []byte { return h.bytes[offset-h.first:] }

func historyOf(s *testStore) *history {
	s.t.Helper()
	h := &history{first: s.MinPhyOffset()}
	for end := s.MaxPhyOffset(); h.end() < end; {
		sel, ok := s.Select(h.end(), math.MaxInt32)
		if !ok {
			s.t.Fatalf("log ends at %d, not %d", h.end(), end)
		}
		h.bytes = append(h.bytes, sel.Bytes()...)
		sel.Release()
	}
	for at := h.first; at < h.end(); {
		h.boundaries = append(h.boundaries, at)
		size, _, _ := message.Peek(h.from(at))
		at += PhyOffset(size)
	}
	h.boundaries = append(h.boundaries, h.end())
	return h
}

// twoHistories are logs that are equal up to parted and differ behind it.
func twoHistories(t *testing.T, common, more int) (a, b *history, parted PhyOffset) {
	t.Helper()
	fsys := faultfs.New()
	s := openTestStore(t, fsys, nil)
	s.sendMany(common)
	parted = s.settled().MaxPhyOffset()
	s.close()
	other := fsys.Crash(faultfs.ProcessKill, 0)
	grow := func(fsys *faultfs.FS, tag string, n int) *history {
		s := openTestStore(t, fsys, nil)
		defer s.close()
		for i := range n {
			s.send(storeMessage{
				topic: []string{"orders", "events", "new" + tag}[i%3], queueID: int32(i / 3 % 2), size: 50 + i*37%600,
				properties: fmt.Sprintf("KEYS\x01%s%d\x02TAGS\x01%s", tag, i, tag),
			})
		}
		return historyOf(s.settled())
	}
	one, two := other.Crash(faultfs.ProcessKill, 0), other.Crash(faultfs.ProcessKill, 0)
	return grow(one, "A", more), grow(two, "B", more+more/2), parted
}

func openSlave(t testing.TB, fsys *faultfs.FS) *testStore {
	t.Helper()
	return openTestStore(t, fsys, asSlave)
}

// feed appends a history up to a point, cut anywhere.
func (s *testStore) feed(h *history, to PhyOffset, rng *rand.Rand) {
	s.t.Helper()
	for at := s.MaxPhyOffset(); at < to; at = s.MaxPhyOffset() {
		n := min(to-at, 1+PhyOffset(rng.IntN(3000)))
		if err := s.AppendToCommitLog(at, h.from(at)[:n:n]); err != nil {
			s.t.Fatal(err)
		}
	}
}

// losesPower takes the power from a slave of h whose disk is fsys: what it then has belongs to h, and it gets the rest.
func (s *testStore) losesPower(fsys *faultfs.FS, seed uint64, h *history, rng *rand.Rand) {
	s.t.Helper()
	s.settled()
	again := fsys.Crash(faultfs.PowerLoss, seed)
	s.abandon()
	s = openSlave(s.t, again)
	s.mustHold(h)
	s.feed(h, h.end(), rng)
	s.settled().mustHold(h)
	s.close()
}

// mustHold compares the log with a history from its first byte to its end.
func (s *testStore) mustHold(h *history) {
	s.t.Helper()
	mine := historyOf(s)
	if mine.end() > h.end() {
		s.t.Fatalf("the log ends at %d, the history at %d", mine.end(), h.end())
	}
	for i, b := range h.from(mine.first)[:len(mine.bytes)] {
		if mine.bytes[i] != b {
			s.t.Fatalf("the log from %d to %d differs from the history at %d", mine.first, mine.end(), mine.first+PhyOffset(i))
		}
	}
}

func TestTruncateToGoesOnWithAnotherHistory(t *testing.T) {
	a, b, parted := twoHistories(t, 120, 60)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cut := parted
		for range rng.IntN(40) {
			cut = a.boundaries[rng.IntN(len(a.boundaries))]
			if cut > 0 && cut <= parted {
				break
			}
			cut = parted
		}
		fsys := faultfs.New()
		s := openSlave(t, fsys)
		s.feed(a, a.end()-PhyOffset(rng.IntN(100)), rng)
		if rng.IntN(2) == 0 {
			eventually(t, "records are dispatched", func() bool { return s.DispatchBehindBytes() < 4<<10 })
		}
		if err := s.TruncateTo(cut); err != nil {
			t.Fatal(err)
		}
		if s.MaxPhyOffset() != cut || s.FlushedWhere() > cut {
			t.Fatalf("seed %d: end %d, flushed %d after a cut at %d", seed, s.MaxPhyOffset(), s.FlushedWhere(), cut)
		}
		r := s.QueryMessage("orders", "A0", 10, 0, math.MaxInt64)
		if len(r.Buffers) != 0 {
			t.Fatalf("seed %d: the index still finds a record that was cut", seed)
		}
		r.Release()
		s.feed(b, b.end(), rng)
		s.settled().mustHold(b)
		r = s.QueryMessage("orders", "B0", 10, 0, math.MaxInt64)
		if len(r.Buffers) != 1 {
			t.Fatalf("seed %d: the index has %d of a new record", seed, len(r.Buffers))
		}
		r.Release()
		s.close() // compares queues and log

		// The same store as a master: no queue has a gap or two messages for one place.
		m := openTestStore(t, fsys, nil)
		m.sendMany(12)
		m.settled()
		for topic, ids := range m.Topics() {
			for _, id := range ids {
				for i, k := range m.pullAll(topic, id) {
					if k != int64(i) {
						t.Fatalf("seed %d: message %d of %s/%d is numbered %d", seed, i, topic, id, k)
					}
				}
			}
		}
		m.close()
	}
}

func TestTruncateToZeroEmptiesTheLog(t *testing.T) {
	a, b, _ := twoHistories(t, 120, 60)
	rng := rand.New(rand.NewPCG(1, 1))
	fsys := faultfs.New()
	s := openSlave(t, fsys)
	if err := s.TruncateTo(0); err != nil {
		t.Fatal(err)
	}
	s.feed(a, a.end()-1, rng)
	if err := s.TruncateTo(0); err != nil {
		t.Fatal(err)
	}
	if s.MinPhyOffset() != 0 || s.MaxPhyOffset() != 0 || len(s.Topics()) != 0 || s.DispatchBehindBytes() != 0 {
		t.Fatalf("not empty: %d to %d, %v", s.MinPhyOffset(), s.MaxPhyOffset(), s.Topics())
	}
	// It begins anew at another file.
	base := PhyOffset(2 * s.Config().MappedFileSizeCommitLog)
	tail := &history{first: base, bytes: b.from(base)}
	for at := base; at < tail.end(); at = s.MaxPhyOffset() {
		n := min(tail.end()-at, 5000)
		if err := s.AppendToCommitLog(at, tail.from(at)[:n:n]); err != nil {
			t.Fatal(err)
		}
	}
	s.settled().mustHold(tail)
	s.close()
	s = openSlave(t, fsys)
	s.mustHold(tail)
	if s.MaxPhyOffset() != tail.end() || s.MinPhyOffset() != base {
		t.Fatalf("log from %d to %d", s.MinPhyOffset(), s.MaxPhyOffset())
	}
}

func TestTruncateToRefuses(t *testing.T) {
	a, _, _ := twoHistories(t, 60, 3)
	s := openSlave(t, faultfs.New())
	s.feed(a, a.end(), rand.New(rand.NewPCG(1, 1)))
	for _, offset := range []PhyOffset{-1, a.boundaries[3] + 1, a.boundaries[3] - 1, a.end() + 1, a.end() + 1<<40} {
		if err := s.TruncateTo(offset); !errors.Is(err, errNoBoundary) {
			t.Errorf("cut at %d: %v", offset, err)
		}
	}
	if err := s.TruncateTo(a.end()); err != nil {
		t.Error(err)
	}
	s.settled().mustHold(a)
	if s.MaxPhyOffset() != a.end() || s.Stats().LatchedCause != nil {
		t.Fatalf("end %d, want %d; %v", s.MaxPhyOffset(), a.end(), s.Stats().LatchedCause)
	}

	m := openTestStore(t, faultfs.New(), nil)
	if err := m.TruncateTo(0); !errors.Is(err, errNotSlave) {
		t.Errorf("a master's log cut: %v", err)
	}
}

// A crash at any operation of the file system leaves the log whole or cut, and what comes after the cut is never mixed
// with what was there before it.
func TestTruncateToSurvivesCrashes(t *testing.T) {
	a, b, parted := twoHistories(t, 90, 50)
	cuts := []PhyOffset{parted, a.boundaries[len(a.boundaries)/3], 0}
	outcomes := map[bool]int{}
	for n := uint64(0); n < 90; n++ {
		kind := faultfs.CrashKind(n % 2)
		cut := cuts[n/2%3]
		rng := rand.New(rand.NewPCG(n, 2))
		fsys := faultfs.New()
		s := openSlave(t, fsys)
		s.feed(a, a.end(), rng)
		s.settled()
		eventually(t, "all is flushed", func() bool { return s.RemainHowManyToFlush() == 0 })

		left := atomic.Int64{}
		left.Store(int64(1 + n/6*2))
		var next *faultfs.FS
		fsys.SetHook(func(op faultfs.Op, path string) {
			if left.Add(-1) == 0 {
				next = fsys.Crash(kind, n)
			}
		})
		err := s.TruncateTo(cut)
		fsys.SetHook(nil)
		if next == nil {
			if err != nil {
				t.Fatal(err)
			}
			next = fsys.Crash(kind, n)
		}
		s.abandon()

		s = openSlave(t, next)
		end := s.MaxPhyOffset()
		if end != a.end() && end != cut {
			t.Fatalf("run %d: %v: cut at %d of a log that ends at %d, found %d (%v)", n, kind, cut, a.end(), end, err)
		}
		if err == nil && end != cut {
			t.Fatalf("run %d: %v: the cut at %d was said to be on disk, found %d", n, kind, cut, end)
		}
		outcomes[end == cut]++
		s.mustHold(a)
		if end != cut {
			if err := s.TruncateTo(cut); err != nil {
				t.Fatal(err)
			}
		}
		to := b.boundaries[len(b.boundaries)-1-rng.IntN(20)]
		s.feed(b, to, rng)
		s.losesPower(next, n, b, rng)
	}
	if outcomes[true] < 10 || outcomes[false] < 10 {
		t.Errorf("whole or cut: %v", outcomes)
	}
}

// A kill between the zeroing of what was cut and its sync leaves zeros in memory alone: the next start syncs them.
func TestKillBeforeTheCutIsSynced(t *testing.T) {
	a, b, parted := twoHistories(t, 90, 50)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fsys := faultfs.New()
		s := openSlave(t, fsys)
		s.feed(a, a.end(), rng)
		s.settled()
		eventually(t, "all is flushed", func() bool { return s.RemainHowManyToFlush() == 0 })
		var syncs atomic.Int64
		var next *faultfs.FS
		fsys.SetHook(func(op faultfs.Op, path string) {
			if op == faultfs.OpSync && strings.Contains(path, "/commitlog/") && syncs.Add(1) == 2 { // the first is the end mark's
				next = fsys.Crash(faultfs.ProcessKill, seed)
			}
		})
		if err := s.TruncateTo(parted); err == nil || next == nil {
			t.Fatalf("not killed while cutting: %v", err)
		}
		fsys.SetHook(nil)
		s.abandon()

		s = openSlave(t, next)
		s.feed(b, b.boundaries[len(b.boundaries)-1-rng.IntN(20)], rng)
		s.losesPower(next, seed, b, rng)
	}
}

func TestTruncateToLatchesOnAnError(t *testing.T) {
	a, _, parted := twoHistories(t, 60, 20)
	fsys := faultfs.New()
	s := openSlave(t, fsys)
	s.lossy = true
	s.feed(a, a.end(), rand.New(rand.NewPCG(1, 1)))
	s.settled()
	fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Err: errors.New("broken")})
	if err := s.TruncateTo(parted); err == nil {
		t.Fatal("a failed sync went unnoticed")
	}
	if s.Stats().LatchedCause == nil {
		t.Error("the store goes on after half a cut")
	}
	fsys.ClearFaults()
	s.abandon()
}

// A slave that ends inside a record is cut at the record's start when it is opened, as slave and as master, and the
// piece is never dispatched (apache/rocketmq#9002).
func TestOpeningCutsAPiece(t *testing.T) {
	a, _, _ := twoHistories(t, 25, 20)
	for i, end := range a.boundaries[1:] {
		start := a.boundaries[i]
		for _, piece := range []PhyOffset{1, 4, 8, 60, (end - start) / 2, end - start - 40, end - start - 5, end - start - 1} {
			if piece <= 0 || piece >= end-start || i%4 != int(piece)%4 {
				continue
			}
			fsys := faultfs.New()
			s := openSlave(t, fsys)
			s.feed(a, start+piece, rand.New(rand.NewPCG(uint64(i), 1)))
			eventually(t, "all but the piece is dispatched", func() bool { return s.DispatchBehindBytes() == int64(piece) })
			next := fsys.Crash(faultfs.ProcessKill, 0)
			s.abandon()
			for _, role := range []Role{Slave, AsyncMaster} {
				s = openTestStore(t, next.Crash(faultfs.ProcessKill, 0), func(c *Config) { c.Role, c.BrokerID = role, int64(role)/2 })
				_, magic, _ := message.Peek(a.from(start))
				if filler := magic == message.MagicBlank; s.MaxPhyOffset() != start && !(filler && role != Slave && s.MaxPhyOffset() == end) {
					t.Errorf("role %v: %d bytes of the record at %d to %d: the log ends at %d", role, piece, start, end, s.MaxPhyOffset())
				}
				if role == Slave {
					s.feed(a, a.end(), rand.New(rand.NewPCG(uint64(i), 2)))
					s.settled().mustHold(a)
				} else {
					s.sendMany(6)
					s.settled()
				}
				s.close()
			}
		}
	}
}

// A slave that is made master goes on numbering where the queues ended, also when its dispatch lagged
// (apache/rocketmq#8539).
func TestPromotedSlaveNumbersOn(t *testing.T) {
	a, _, _ := twoHistories(t, 90, 30)
	fsys := faultfs.New()
	s := loadTestStore(t, fsys, testRoot, asSlave)
	s.startUndispatched()
	s.feed(a, a.end()-7, rand.New(rand.NewPCG(1, 1)))
	next := fsys.Crash(faultfs.ProcessKill, 0)
	s.abandon()
	m := openTestStore(t, next, nil)
	m.sendMany(30)
	m.settled()
	for topic, ids := range m.Topics() {
		for _, id := range ids {
			for i, k := range m.pullAll(topic, id) {
				if k != int64(i) {
					t.Fatalf("message %d of %s/%d is numbered %d", i, topic, id, k)
				}
			}
		}
	}
}

func asSlave(c *Config) {
	c.Role, c.BrokerID = Slave, 1
	c.FlushCommitLogLeastPages, c.FlushIntervalCommitLog = 0, 20
}
