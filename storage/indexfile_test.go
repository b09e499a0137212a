// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"loopmq/storage/vfs/faultfs"
)

func newTestIndex(t *testing.T, slots, limit int32) *IndexFile {
	t.Helper()
	region, err := faultfs.New().OpenRegion("/index", indexFileSize(slots, limit), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { region.Close() })
	x, err := createIndexFile(newMappedFile(nil, region, 0, discardLogger()), slots, limit, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mappings.remove(x.file) })
	return x
}

func (x *IndexFile) mustPut(t *testing.T, hash int32, offset PhyOffset, ms int64) {
	t.Helper()
	if ok, err := x.putKey(hash, offset, ms); !ok || err != nil {
		t.Fatalf("put: %v, %v", ok, err)
	}
}

func TestIndexFileFindsNewestFirst(t *testing.T) {
	x := newTestIndex(t, 3, 10)
	for i := range int32(9) {
		x.mustPut(t, i%2*3, PhyOffset(100*i), 1_000_000+int64(i)*1000) // all in one slot
	}
	if ok, _ := x.putKey(1, 1000, 0); ok {
		t.Error("a tenth entry in a file of ten, the first of which is never used")
	}
	f := func(hash int32, begin, end int64, limit int, want string) {
		t.Helper()
		var all []PhyOffset
		for from := int32(0); ; {
			found, next := x.find(nil, hash, begin, end, from, limit)
			all = append(all, found...)
			if from = next; next == 0 {
				break
			}
		}
		if got := fmt.Sprint(all); got != want {
			t.Errorf("find(%d, %d, %d) by %d = %s, want %s", hash, begin, end, limit, got, want)
		}
	}
	for _, limit := range []int{1, 2, 100} {
		f(0, 0, math.MaxInt64, limit, "[800 600 400 200 0]")
		f(3, 0, math.MaxInt64, limit, "[700 500 300 100]")
		f(6, 0, math.MaxInt64, limit, "[]")
		f(0, 1_004_000, math.MaxInt64, limit, "[800 600 400]")
		f(0, 0, 1_003_999, limit, "[200 0]")
	}
}

// A slot of a full file that names the entry behind the last one, as nobody writes it, is empty.
func TestIndexSlotBehindTheLastEntry(t *testing.T) {
	const limit = 5
	x := newTestIndex(t, 3, limit)
	for i := range int32(limit - 1) {
		x.mustPut(t, 0, PhyOffset(100*i), 1_000_000)
	}
	x.setSlotLocked(0, limit)
	if found, next := x.find(nil, 0, 0, math.MaxInt64, 0, 10); len(found) != 0 || next != 0 {
		t.Errorf("found %v, goes on at %d", found, next)
	}
}

// A query for what lies at the far end of a long chain lets the dispatcher in between.
func TestIndexFileFindIsBounded(t *testing.T) {
	const n = 2*indexFindMax + 10
	x := newTestIndex(t, 3, n+2)
	for i := range int32(n) {
		x.mustPut(t, 0, PhyOffset(100*i), 1_000_000+int64(i)*1000)
	}
	calls := 0
	var found []PhyOffset
	for from := int32(0); calls == 0 || from != 0; calls++ {
		found, from = x.find(found, 0, 0, 1_000_000, from, 10)
	}
	if calls != 3 || fmt.Sprint(found) != "[0]" {
		t.Errorf("found %v in %d calls, want the first in 3", found, calls)
	}
}

func TestIndexKeyHash(t *testing.T) {
	// The hash of "polygenelubricants" is the smallest int, which has no positive twin.
	if got := indexKeyHash(0, []byte("polygenelubricants")); got != 0 {
		t.Errorf("hash %d, want 0", got)
	}
	if got := indexKeyHash(0, []byte("tagA")); got != 3552231 {
		t.Errorf("hash %d, want 3552231", got)
	}
}

// Whatever pages a power cut takes of a file, repair leaves a file that holds a run of its first entries, and that is
// byte for byte what putting those would have made.
func TestIndexRepairAfterLostPages(t *testing.T) {
	const slots, limit = 37, 1200
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		whole := newTestIndex(t, slots, limit)
		n := 1 + rng.Int32N(limit-2)
		type entry struct {
			hash   int32
			offset PhyOffset
			ms     int64
		}
		var entries []entry
		for i := range n {
			e := entry{rng.Int32(), PhyOffset(i/2*100 + 1), 1_700_000_000_000 + int64(i)*700}
			entries = append(entries, e)
			whole.mustPut(t, e.hash, e.offset, e.ms)
		}
		b := whole.file.bytes()
		const page = 512
		table := int(whole.entryAt(0))
		for at := 0; at < len(b); at += page {
			switch p := b[at:min(at+page, len(b))]; {
			case at < table: // slots may be anything
				if rng.IntN(2) == 0 {
					clear(p[max(0, min(len(p), indexHeaderSize-at)):])
				}
			case rng.IntN(4) == 0:
				clear(p)
			}
		}
		x := openIndexFile(whole.file, slots, limit)
		x.allocated = x.file.size
		x.repair(math.MaxInt64)
		kept := x.head().indexCount - 1
		want := newTestIndex(t, slots, limit)
		for _, e := range entries[:kept] {
			want.mustPut(t, e.hash, e.offset, e.ms)
		}
		// The end time is known to the second only.
		want.header.endTimestamp = x.header.endTimestamp
		want.header.beginTimestamp, want.header.beginPhyOffset = x.header.beginTimestamp, x.header.beginPhyOffset
		if kept == 0 {
			want.header.endPhyOffset = x.header.endPhyOffset
		}
		want.writeHeaderLocked()
		if !bytes.Equal(x.file.bytes(), want.file.bytes()) {
			t.Fatalf("seed %d: the file with %d of %d entries is not as if they had been put", seed, kept, n)
		}
	}
}

func TestIndexRepairCuts(t *testing.T) {
	x, want := newTestIndex(t, 5, 100), newTestIndex(t, 5, 100)
	for i := range int32(60) {
		x.mustPut(t, i*7, PhyOffset(i*10+1), 1_000_000+int64(i)*1000)
		if i < 33 {
			want.mustPut(t, i*7, PhyOffset(i*10+1), 1_000_000+int64(i)*1000)
		}
	}
	if x.repair(331) {
		t.Error("a cut is no damage")
	}
	want.header.endTimestamp = x.header.endTimestamp
	want.writeHeaderLocked()
	if !bytes.Equal(x.file.bytes(), want.file.bytes()) {
		t.Error("the cut file is not as if the rest had never been put")
	}
}
