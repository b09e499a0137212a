// SPDX-License-Identifier: Apache-2.0

package faultfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loopmq/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSameAsReal runs the same random operations here and on the real file system, and compares what can be seen.
func TestSameAsReal(t *testing.T) {
	for seed := range uint64(40) {
		compareWithReal(t, seed)
	}
}

func compareWithReal(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	sides := []vfs.FS{vfs.OS{}, New()}
	if err := sides[1].MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "a/x", "a/y", "b/x", "b/x/deep"}
	for step := range 60 {
		path, other := filepath.Join(dir, names[rng.IntN(len(names))]), filepath.Join(dir, names[rng.IntN(len(names))])
		op, size, fill := rng.IntN(8), rng.Int64N(3*pageSize), byte(rng.IntN(256))
		var seen [2]string
		for i, side := range sides {
			seen[i] = doAndLook(side, op, path, other, size, fill)
		}
		if seen[0] != seen[1] {
			t.Fatalf("seed %d, step %d, operation %d on %s, %s:\nreal: %s\nhere: %s", seed, step, op, path, other, seen[0], seen[1])
		}
	}
}

// doAndLook returns what a user of the file system learns from one operation.
func doAndLook(side vfs.FS, op int, path, other string, size int64, fill byte) string {
	switch op {
	case 0:
		return failed(side.MkdirAll(path))
	case 1:
		return failed(side.Remove(path))
	case 2:
		return failed(side.RemoveAll(path))
	case 3:
		return failed(side.Rename(path, other))
	case 4:
		return failed(side.WriteFile(path, bytes.Repeat([]byte{fill}, int(size))))
	case 5:
		entries, err := side.List(path)
		if err != nil {
			return failed(err)
		}
		for i := range entries {
			entries[i].ModTime = 0
			if entries[i].Dir {
				entries[i].Size = 0
			}
		}
		return fmt.Sprint(entries)
	case 6:
		data, err := side.ReadFile(path)
		return fmt.Sprint(failed(err), data)
	default:
		return useRegion(side, path, size, fill)
	}
}

func useRegion(side vfs.FS, path string, size int64, fill byte) string {
	r, err := openOrMake(side, path, size, fill)
	if err != nil {
		return failed(err)
	}
	seen := fmt.Sprint(len(r.Bytes()))
	half := size / 2
	for i := range r.Bytes()[:half] {
		r.Bytes()[i] = fill
	}
	err = errors.Join(r.Allocate(half, size), r.WriteAt(bytes.Repeat([]byte{fill + 1}, int(size-half)), half),
		r.WritevAt([][]byte{{fill}, nil, {fill, fill + 2}}, half/2), r.Populate(0, size), r.WillNeed(0, size), r.Sync(0, size), r.Close())
	return seen + failed(err)
}

func openOrMake(side vfs.FS, path string, size int64, fill byte) (vfs.Region, error) {
	if fill%3 == 0 {
		return side.MakeRegion(path, size)
	}
	return side.OpenRegion(path, size, fill%2 == 0)
}

// failed tells only whether: the kernel's choice among several reasons is not our matter.
func failed(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	default:
		return "failed"
	}
}

// A write of several parts may end behind any page of any of them, by a fault or a kill; what lies before is written.
func TestWritevAtEndsAnywhere(t *testing.T) {
	parts := [][]byte{bytes.Repeat([]byte{1}, 6000), {}, bytes.Repeat([]byte{2}, 3000), {3}}
	all := bytes.Join(parts, nil)
	const at = 100
	ends := []int{0, pageSize - at, 6000, 2*pageSize - at, 9000, 9001}
	for i, want := range ends {
		f := New()
		r := newRegion(t, f, "/d/f", 3*pageSize)
		var err error
		if i%2 == 0 {
			f.Fail(Fault{Op: OpWrite, Skip: i, Err: syscall.EIO})
			err = r.WritevAt(parts, at)
		} else {
			f.SetHook(func(op Op, _ string) {
				if op == OpWrite && f.Count(OpWrite) == int64(i) {
					f.SetHook(nil)
					f = f.Crash(ProcessKill, 1)
				}
			})
			err = r.WritevAt(parts, at)
		}
		if (err == nil) != (want == len(all)) {
			t.Fatalf("%d writes: %v", i, err)
		}
		if got := read(t, f, "/d/f"); !bytes.Equal(got[at:at+want], all[:want]) || stored(got[at+want:]) {
			t.Fatalf("%d writes left something else than the first %d bytes", i, want)
		}
	}
}

func newRegion(t *testing.T, f *FS, path string, size int64) vfs.Region {
	t.Helper()
	if err := f.MkdirAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	r, err := f.OpenRegion(path, size, true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, f *FS, path string) []byte {
	t.Helper()
	data, err := f.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestProcessKillKeepsStores(t *testing.T) {
	f := New()
	r := newRegion(t, f, "/d/log", 2*pageSize)
	copy(r.Bytes(), "never synced")
	if err := f.WriteFile("/d/a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("/d/a", "/d/b"); err != nil {
		t.Fatal(err)
	}
	next := f.Crash(ProcessKill, 0)
	if got := read(t, next, "/d/log"); len(got) != 2*pageSize || !bytes.HasPrefix(got, []byte("never synced")) {
		t.Fatalf("%d bytes, %q", len(got), got[:12])
	}
	if got := read(t, next, "/d/b"); string(got) != "a" {
		t.Fatalf("renamed file holds %q", got)
	}
	copy(r.Bytes(), "after the crash")
	if got := read(t, next, "/d/log"); !bytes.HasPrefix(got, []byte("never synced")) {
		t.Fatal("a store after the crash reached the next file system")
	}
	if err := r.Sync(0, 1); !errors.Is(err, ErrCrashed) {
		t.Fatalf("sync after the crash: %v", err)
	}
	if _, err := f.Stat("/d"); !errors.Is(err, ErrCrashed) {
		t.Fatalf("stat after the crash: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPowerLossKeepsSyncedBytes stores and syncs ranges at random: whatever the coins, each synced byte is there, and
// each other one is the old or the new one.
func TestPowerLossKeepsSyncedBytes(t *testing.T) {
	const size = 8*pageSize + 100
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		f := New()
		r := newRegion(t, f, "/log", size)
		disk := make([]byte, size)
		for range 10 {
			from := rng.IntN(size)
			to := from + rng.IntN(size-from+1)
			for i := from; i < to; i++ {
				r.Bytes()[i] = byte(rng.Uint32())
			}
			if rng.IntN(2) == 0 {
				if err := r.Sync(int64(from), int64(to)); err != nil {
					t.Fatal(err)
				}
				copy(disk[from:to], r.Bytes()[from:to])
			}
		}
		got := read(t, f.Crash(PowerLoss, seed), "/log")
		if len(got) != size {
			t.Fatalf("seed %d: %d bytes", seed, len(got))
		}
		for i, b := range got {
			if b != disk[i] && b != r.Bytes()[i] {
				t.Fatalf("seed %d: byte %d is %d; on disk %d, in memory %d", seed, i, b, disk[i], r.Bytes()[i])
			}
		}
	}
}

// TestPowerLossTearsAndDrops sees each promised outcome of an unsynced page within a few seeds.
func TestPowerLossTearsAndDrops(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(200) {
		f := New()
		r := newRegion(t, f, "/log", pageSize)
		if err := r.Sync(0, pageSize); err != nil {
			t.Fatal(err)
		}
		for i := range r.Bytes() {
			r.Bytes()[i] = 1
		}
		got := read(t, f.Crash(PowerLoss, seed), "/log")
		switch n := bytes.Count(got, []byte{1}); {
		case n == 0:
			seen["old"]++
		case n == pageSize:
			seen["new"]++
		case n%sectorSize == 0:
			seen["torn"]++
		default:
			t.Fatalf("seed %d: torn inside a sector: %d new bytes", seed, n)
		}
	}
	if seen["old"] == 0 || seen["new"] == 0 || seen["torn"] == 0 {
		t.Fatalf("outcomes %v; want all three", seen)
	}
}

// TestPowerLossOfNames drops what no SyncDir covered, sometimes; keeps what one covered, always.
func TestPowerLossOfNames(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		f := New()
		r := newRegion(t, f, "/d/created", 10)
		for _, path := range []string{"/d/removed", "/d/renamed", "/d/gone"} {
			if err := f.WriteFile(path, []byte(path)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(f.Remove("/d/gone"), f.SyncDir("/d"), f.Remove("/d/removed"), f.Rename("/d/renamed", "/d/created"), r.Close()); err != nil {
			t.Fatal(err)
		}
		entries, err := f.Crash(PowerLoss, seed).List("/d")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name)
		}
		seen[fmt.Sprint(names)] = true
		if slices.Contains(names, "gone") || !slices.Contains(names, "created") {
			t.Fatalf("seed %d: %v", seed, names)
		}
	}
	if len(seen) != 3 {
		t.Fatalf("%v; want none, the removal, and the removal and the rename", seen)
	}
}

// TestWriteFileIsAtomic cuts the power at each operation of a WriteFile: the old content or the new one is there, and
// the new one when it had returned.
func TestWriteFileIsAtomic(t *testing.T) {
	for cut := range 6 {
		for seed := range uint64(50) {
			f := New()
			if err := f.WriteFile("/topics.json", []byte("old")); err != nil {
				t.Fatal(err)
			}
			var next *FS
			left := cut
			f.SetHook(func(Op, string) {
				if left--; left == -1 {
					f.SetHook(nil)
					next = f.Crash(PowerLoss, seed)
				}
			})
			err := f.WriteFile("/topics.json", []byte("the new one"))
			if next == nil {
				if err != nil {
					t.Fatal(err)
				}
				next = f.Crash(PowerLoss, seed)
			}
			got := string(read(t, next, "/topics.json"))
			if got != "the new one" && (got != "old" || err == nil) {
				t.Fatalf("cut %d, seed %d: %q after %v", cut, seed, got, err)
			}
		}
	}
}

// TestKillThenPowerLoss: what a killed process had not synced, a later power cut may still take.
func TestKillThenPowerLoss(t *testing.T) {
	lost, kept := 0, 0
	for seed := range uint64(50) {
		f := New()
		r := newRegion(t, f, "/log", 10)
		if err := r.Sync(0, 10); err != nil {
			t.Fatal(err)
		}
		r.Bytes()[3] = 1
		if f.Crash(ProcessKill, 0).Crash(PowerLoss, seed).root.entries["log"].data[3] == 1 {
			kept++
		} else {
			lost++
		}
	}
	if lost == 0 || kept == 0 {
		t.Fatalf("lost %d times, kept %d times", lost, kept)
	}
}

func TestFaultsByCountAndPath(t *testing.T) {
	f := New()
	r, other := newRegion(t, f, "/commitlog/0", 10), newRegion(t, f, "/index/0", 10)
	f.Fail(Fault{Op: OpSync, Path: "^/commitlog/", Skip: 2, Count: 1, Err: syscall.EIO})
	for call := 1; call <= 4; call++ {
		err := r.Sync(0, 10)
		if errors.Is(err, syscall.EIO) != (call == 3) {
			t.Fatalf("call %d: %v", call, err)
		}
		if err := other.Sync(0, 10); err != nil {
			t.Fatal(err)
		}
	}
	f.Fail(Fault{Op: OpRename, Err: syscall.EIO})
	for range 3 {
		if err := f.WriteFile("/x", []byte("x")); !errors.Is(err, syscall.EIO) {
			t.Fatalf("WriteFile: %v", err)
		}
	}
	if _, err := f.Stat("/x.tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the temporary file was left: %v", err)
	}
	f.ClearFaults()
	if err := f.WriteFile("/x", nil); err != nil {
		t.Fatal(err)
	}
	if got := f.Count(OpSync); got != 2+4+4+4 {
		t.Fatalf("%d syncs counted", got)
	}
}

func TestCapacity(t *testing.T) {
	f := New()
	f.SetCapacity(4 * pageSize)
	r := newRegion(t, f, "/log", 10*pageSize)
	if err := r.Allocate(0, 3*pageSize); err != nil {
		t.Fatal(err)
	}
	if err := r.Allocate(0, 3*pageSize); err != nil || f.Used() != 3*pageSize {
		t.Fatalf("a second time: %v, %d used", err, f.Used())
	}
	if err := r.Allocate(2*pageSize, 6*pageSize); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("beyond the capacity: %v", err)
	}
	if _, err := f.OpenRegion("/another", 10, true); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("creation on a full disk: %v", err)
	}
	if err := f.WriteFile("/small", []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("WriteFile on a full disk: %v", err)
	}
	if u, err := f.Usage("/"); err != nil || u.Free != 0 || u.Total != 4*pageSize {
		t.Fatalf("%+v, %v", u, err)
	}
	r.Bytes()[8*pageSize+1] = 1
	if got := f.Unbacked(); !slices.Equal(got, []string{"/log: 8"}) {
		t.Fatalf("unbacked: %v", got)
	}
	if err := errors.Join(f.Remove("/log"), r.Close()); err != nil {
		t.Fatal(err)
	}
	if f.Used() != 0 || f.OpenRegions() != 0 {
		t.Fatalf("%d bytes and %d regions after the end", f.Used(), f.OpenRegions())
	}
}

func TestMisuseIsReported(t *testing.T) {
	f := New()
	r := newRegion(t, f, "/log", 10)
	if err := r.Sync(0, 11); err == nil {
		t.Fatal("a range behind the end was synced")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err == nil {
		t.Fatal("closed twice")
	}
	if err := r.Sync(0, 1); err == nil {
		t.Fatal("synced after close")
	}
	held, err := f.Lock("/lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lock("/lock"); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("locked twice: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.SetModTime("/log", 5); err != nil {
		t.Fatal(err)
	}
	if e, err := f.Stat("/log"); err != nil || e.ModTime != 5 {
		t.Fatalf("%+v, %v", e, err)
	}
}

// TestCrashWhileStoring crashes under a writer that stores to one region after the other: the copy never has the
// later store without the earlier one. The race detector stays silent.
func TestCrashWhileStoring(t *testing.T) {
	for range 20 {
		f := New()
		first, second := newRegion(t, f, "/first", pageSize), newRegion(t, f, "/second", pageSize)
		var stop atomic.Bool
		var done sync.WaitGroup
		done.Go(func() {
			for i := 0; i < pageSize && !stop.Load(); i++ {
				first.Bytes()[i] = 1
				second.Bytes()[i] = 1
				time.Sleep(10 * time.Microsecond)
			}
		})
		time.Sleep(time.Millisecond)
		next := f.Crash(ProcessKill, 0)
		stop.Store(true)
		done.Wait()
		a, b := bytes.Count(read(t, next, "/first"), []byte{1}), bytes.Count(read(t, next, "/second"), []byte{1})
		if a != b && a != b+1 {
			t.Fatalf("%d stores in the first region, %d in the second", a, b)
		}
	}
}

// TestPowerLossWhileCreating cuts the power at each operation of an OpenRegion that creates: no file, an empty one,
// or the whole one. A file that was handed out is there in full length.
func TestPowerLossWhileCreating(t *testing.T) {
	seen := map[int]bool{}
	for cut := range 4 {
		for seed := range uint64(50) {
			f := New()
			var next *FS
			left := cut
			f.SetHook(func(Op, string) {
				if left--; left == -1 {
					next = f.Crash(PowerLoss, seed)
				}
			})
			_, err := f.OpenRegion("/log", pageSize, true)
			if next == nil {
				next = f.Crash(PowerLoss, seed)
			}
			entry, statErr := next.Stat("/log")
			if statErr != nil {
				entry.Size = -1
			}
			seen[int(entry.Size)] = true
			if err == nil && entry.Size != pageSize {
				t.Fatalf("cut %d, seed %d: %d bytes of a file that was handed out", cut, seed, entry.Size)
			}
		}
	}
	if len(seen) != 3 {
		t.Fatalf("lengths %v; want none, 0 and all", seen)
	}
}

// What MakeRegion made is durable when the region and each of the directories were synced, and each part of it not before.
func TestPowerLossAfterMakeRegion(t *testing.T) {
	f := func(steps int, want string) {
		t.Helper()
		seen := map[string]bool{}
		for seed := range uint64(200) {
			f := New()
			r, err := f.MakeRegion("/a/b/log", pageSize)
			if err != nil {
				t.Fatal(err)
			}
			for _, sync := range []func() error{
				func() error { return r.Sync(0, 1) },
				func() error { return f.SyncDir("/a/b") },
				func() error { return errors.Join(f.SyncDir("/a"), f.SyncDir("/")) },
			}[:steps] {
				if err := sync(); err != nil {
					t.Fatal(err)
				}
			}
			after := f.Crash(PowerLoss, seed)
			entry, err := after.Stat("/a/b/log")
			_, dirErr := after.Stat("/a/b")
			switch {
			case dirErr != nil:
				seen["no directory"] = true
			case err != nil:
				seen["no file"] = true
			case entry.Size == 0:
				seen["no length"] = true
			case entry.Size == pageSize:
				seen["whole"] = true
			default:
				t.Fatalf("seed %d: %+v", seed, entry)
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(seen)), ", "); got != want {
			t.Errorf("after %d syncs: %s; want %s", steps, got, want)
		}
	}
	f(0, "no directory, no file, no length, whole")
	f(1, "no directory, no file, whole")
	f(2, "no directory, whole")
	f(3, "whole")
}

// A total loss keeps what was synced, and nothing else.
func TestTotalPowerLoss(t *testing.T) {
	for seed := range uint64(20) {
		f := New()
		r := newRegion(t, f, "/log", 2*pageSize)
		copy(r.Bytes(), "synced")
		if err := r.Sync(0, pageSize); err != nil {
			t.Fatal(err)
		}
		copy(r.Bytes(), "not yet")
		copy(r.Bytes()[pageSize:], "never")
		if _, err := f.MakeRegion("/new", pageSize); err != nil {
			t.Fatal(err)
		}
		after := f.Crash(TotalPowerLoss, seed)
		if got, want := string(read(t, after, "/log")), "synced"+strings.Repeat("\x00", 2*pageSize-6); got != want {
			t.Fatalf("%.10q, %.10q", got, got[pageSize:])
		}
		if _, err := after.Stat("/new"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("a name that was not synced: %v", err)
		}
	}
}
