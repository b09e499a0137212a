// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openRegion(t *testing.T, path string, size int64, create bool) Region {
	t.Helper()
	r, err := OS{}.OpenRegion(path, size, create)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeRegion(t *testing.T, r Region) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRegionRoundTrip writes both ways, through the mapping and through the file, and reads both back.
func TestRegionRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "00000000000000000000")
	const size = 3*4096 + 100
	r := openRegion(t, path, size, true)
	if got := len(r.Bytes()); got != size {
		t.Fatalf("mapped %d bytes; want %d", got, size)
	}
	copy(r.Bytes()[4090:], "through the mapping")
	if err := r.WriteAt([]byte("through the file"), size-16); err != nil {
		t.Fatal(err)
	}
	if got := r.Bytes()[size-16:]; string(got) != "through the file" {
		t.Fatalf("mapping shows %q", got)
	}
	for _, step := range []func(from, to int64) error{r.Allocate, r.Populate, r.WillNeed, r.Sync, r.SyncApart} {
		if err := step(4091, size-1); err != nil {
			t.Fatal(err)
		}
		if err := step(50, 50); err != nil {
			t.Fatal(err)
		}
		if err := step(0, size); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Clone(r.Bytes())
	closeRegion(t, r)

	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the file differs from what the mapping showed")
	}
	r = openRegion(t, path, 0, false)
	if !bytes.Equal(r.Bytes(), want) {
		t.Fatal("the second mapping differs from the first")
	}
	closeRegion(t, r)
}

// However a write is cut into parts, the file and the mapping show it, and nothing beside it.
func TestWritevAt(t *testing.T) {
	const size, at = 200_000, 77
	coins := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		path := filepath.Join(t.TempDir(), "f")
		r := openRegion(t, path, size, true)
		want := make([]byte, size)
		var parts [][]byte
		for end := at; len(parts) < 3*writevPartsMax; {
			part := want[end : end+coins.IntN(60)]
			for i := range part {
				part[i] = byte(coins.Uint32())
			}
			parts, end = append(parts, part), end+len(part)
		}
		before := slices.Clone(parts)
		if err := r.WritevAt(parts, at); err != nil {
			t.Fatal(err)
		}
		for i, p := range parts {
			if unsafe.SliceData(p) != unsafe.SliceData(before[i]) || len(p) != len(before[i]) {
				t.Fatalf("part %d was changed", i)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || !bytes.Equal(r.Bytes(), want) {
			t.Fatal("the file differs from what was written")
		}
		closeRegion(t, r)
	}
}

// TestFallbacksKeepBytes runs what serves kernels and file systems without the newer calls.
func TestFallbacksKeepBytes(t *testing.T) {
	opened := openRegion(t, filepath.Join(t.TempDir(), "f"), 3*4096+2, true)
	defer closeRegion(t, opened)
	r := opened.(*region)
	for i := range r.data {
		r.data[i] = byte(i * 7)
	}
	want := bytes.Clone(r.data)
	if err := r.touch(10, int64(len(r.data))); err != nil {
		t.Fatal(err)
	}
	if err := r.allocateByWriting(10, int64(len(r.data))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.data, want) {
		t.Fatal("a fallback changed bytes")
	}
}

func TestRangesOutsideAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	r := openRegion(t, path, 100, true)
	defer closeRegion(t, r)
	f := func(from, to int64) {
		t.Helper()
		for _, step := range []func(from, to int64) error{r.Allocate, r.Populate, r.WillNeed, r.Sync, r.SyncApart} {
			if err := step(from, to); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("[%d, %d): error %v does not name the path", from, to, err)
			}
		}
	}
	f(-1, 10)
	f(10, 9)
	f(0, 101)
	if err := r.WriteAt([]byte("long"), 98); err == nil {
		t.Fatal("a write behind the end was taken")
	}
	if err := r.WritevAt([][]byte{{1}, {2, 3}}, 98); err == nil {
		t.Fatal("a write of parts behind the end was taken")
	}
	if st, err := (OS{}).Stat(path); err != nil || st.Size != 100 {
		t.Fatalf("size %d, %v; want 100", st.Size, err)
	}
}

func TestOpenRegionRefuses(t *testing.T) {
	dir := t.TempDir()
	f := func(path string, size int64, create bool, want error) {
		t.Helper()
		_, err := OS{}.OpenRegion(path, size, create)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Fatalf("OpenRegion(%q, %d, %v): %v; want %v", path, size, create, err, want)
		}
	}
	f(filepath.Join(dir, "absent"), 10, false, fs.ErrNotExist)
	f(filepath.Join(dir, "absent", "f"), 10, true, fs.ErrNotExist)
	f(filepath.Join(dir, "f"), -1, true, nil)
	f(dir, 10, false, nil)
	if err := os.WriteFile(filepath.Join(dir, "short"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(filepath.Join(dir, "short"), 6, false, nil)
}

// TestFailedCreateLeavesNothing asks for more than the address space holds.
func TestFailedCreateLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := (OS{}).OpenRegion(path, 1<<62, true); err == nil {
		t.Fatal("a file of 4 EiB was mapped")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat: %v; want no file", err)
	}
}

func TestEmptyRegion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty")
	for _, create := range []bool{true, false} {
		r := openRegion(t, path, 0, create)
		if len(r.Bytes()) != 0 {
			t.Fatalf("mapped %d bytes", len(r.Bytes()))
		}
		if err := errors.Join(r.Sync(0, 0), r.Populate(0, 0), r.WillNeed(0, 0), r.Allocate(0, 0), r.Protect()); err != nil {
			t.Fatal(err)
		}
		closeRegion(t, r)
	}
}

func TestDirectories(t *testing.T) {
	root := t.TempDir()
	o := OS{}
	if entries, err := o.List(filepath.Join(root, "absent")); err != nil || len(entries) != 0 {
		t.Fatalf("List of an absent directory: %v, %v", entries, err)
	}
	deep := filepath.Join(root, "a", "b", "c")
	for range 2 {
		if err := o.MkdirAll(deep); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"2", "1", "3"} {
		if err := o.WriteFile(filepath.Join(deep, name), []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.MkdirAll(filepath.Join(deep, "1")); err == nil {
		t.Fatal("MkdirAll over a file went well")
	}
	entries, err := o.List(deep)
	if err != nil || len(entries) != 3 || entries[0].Name != "1" || entries[2].Name != "3" || entries[0].Size != 1 || entries[0].ModTime == 0 {
		t.Fatalf("List: %+v, %v", entries, err)
	}
	if err := o.Rename(filepath.Join(deep, "1"), filepath.Join(deep, "4")); err != nil {
		t.Fatal(err)
	}
	if got, err := o.ReadFile(filepath.Join(deep, "4")); err != nil || string(got) != "1" {
		t.Fatalf("ReadFile: %q, %v", got, err)
	}
	if err := errors.Join(o.Remove(filepath.Join(deep, "4")), o.SyncDir(deep), o.RemoveAll(filepath.Join(root, "a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Stat(deep); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Stat of a removed directory: %v", err)
	}
}

func TestWriteFileReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "topics.json")
	o := OS{}
	for _, content := range []string{"first, the longer one", "second", ""} {
		if err := o.WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := o.ReadFile(path); err != nil || string(got) != content {
			t.Fatalf("ReadFile: %q, %v; want %q", got, err, content)
		}
	}
	if err := o.MkdirAll(filepath.Join(dir, "taken")); err != nil {
		t.Fatal(err)
	}
	if err := o.WriteFile(filepath.Join(dir, "taken"), nil); err == nil {
		t.Fatal("WriteFile replaced a directory")
	}
	if entries, _ := o.List(dir); len(entries) != 2 {
		t.Fatalf("a temporary file was left: %+v", entries)
	}
}

func TestLockOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	o := OS{}
	held, err := o.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Lock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if got, err := o.ReadFile(path); err != nil || string(got) != "lock" {
		t.Fatalf("content %q, %v", got, err)
	}
	if err := errors.Join(held.Close(), held.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := o.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// lockChildEnv makes the test binary a process that tries for the lock it names.
const lockChildEnv = "LOOPMQ_LOCK_CHILD"

// TestLockExcludesOtherProcesses wants the process in the way named.
func TestLockExcludesOtherProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	child := exec.Command(os.Args[0], "-test.run=^TestLockChild$", "-test.count=1", "-test.v")
	child.Env = append(os.Environ(), lockChildEnv+"="+path)
	out, err := child.CombinedOutput()
	if want := fmt.Sprintf("%v: pid %d", ErrLocked, os.Getpid()); err != nil || !strings.Contains(string(out), want) {
		t.Fatalf("%v; want %q in\n%s", err, want, out)
	}
}

// TestLockChild is the other process of TestLockExcludesOtherProcesses.
func TestLockChild(t *testing.T) {
	path := os.Getenv(lockChildEnv)
	if path == "" {
		return
	}
	_, err := OS{}.Lock(path)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("lock of another process: %v", err)
	}
	t.Log(err)
}

func TestUsage(t *testing.T) {
	u, err := OS{}.Usage(t.TempDir())
	if err != nil || u.Total <= 0 || u.Free < 0 || u.Free > u.Total || u.Ratio() < 0 || u.Ratio() > 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	if _, err := (OS{}).Usage("/nowhere/at/all"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("usage of an absent directory: %v", err)
	}
}

// A sync apart has an opening of the file of its own, also when another file has the name by now.
func TestSyncApartOpensTheSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	r := openRegion(t, path, 3*4096+100, true)
	defer closeRegion(t, r)
	if err := r.WriteAt([]byte("ours"), 2*4096); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	apart, err := r.(*region).mapApart(4096, 3*4096+100)
	if err != nil {
		t.Fatal(err)
	}
	if got := apart[4096:]; string(got[:4]) != "ours" {
		t.Errorf("it shows %q", got[:4])
	}
	if err := errors.Join(unix.Munmap(apart), r.SyncApart(5000, 3*4096+100)); err != nil {
		t.Error(err)
	}
}

// TestCutFileIsAnError cuts a file under its mapping: each call that would meet the missing pages says so.
func TestCutFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	r := openRegion(t, path, 8*4096, true)
	defer closeRegion(t, r)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	touch := r.(*region).touch
	for i, step := range []func(from, to int64) error{r.Populate, r.WillNeed, touch} {
		if err := step(0, 4096); err != nil {
			t.Fatalf("step %d in front of the cut: %v", i, err)
		}
		if err := step(4096, 2*4096); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("step %d behind the cut: %v; want an error that names the path", i, err)
		}
	}
	// A sync says so wherever it is, also when somebody has written behind the cut.
	for range 2 {
		for _, at := range []int64{0, 4096} {
			for _, sync := range []func(from, to int64) error{r.Sync, r.SyncApart} {
				if err := sync(at, at+4096); err == nil || !strings.Contains(err.Error(), path) {
					t.Fatalf("sync at %d: %v; want an error that names the path", at, err)
				}
			}
		}
		if err := r.WriteAt([]byte{1}, 2*4096); err != nil {
			t.Fatal(err)
		}
	}
}

// What was written is in memory, what nobody has touched is not, and to bring it in helps.
func TestResident(t *testing.T) {
	const pages = 1024
	r := openRegion(t, filepath.Join(t.TempDir(), "f"), pages*4096+100, true)
	defer closeRegion(t, r)
	size := int64(len(r.Bytes()))
	if r.Resident(0, size) {
		t.Error("all of a new file is in memory")
	}
	for _, at := range []int64{0, 5000, 3*4096 - 1, 200 * 4096, 201*4096 + 7} {
		if err := r.WriteAt([]byte("12"), at); err != nil {
			t.Fatal(err)
		}
		if !r.Resident(at, at+2) {
			t.Errorf("what was just written at %d is not in memory", at)
		}
	}
	for _, c := range [][2]int64{{600 * 4096, 600*4096 + 1}, {0, 800 * 4096}, {4096, size}, {size - 1, size}} {
		if r.Resident(c[0], c[1]) {
			t.Errorf("[%d, %d) is in memory", c[0], c[1])
		}
	}
	for _, c := range [][2]int64{{-1, 10}, {10, size + 1}, {10, 9}} {
		if r.Resident(c[0], c[1]) {
			t.Errorf("[%d, %d) of %d bytes is in memory", c[0], c[1], size)
		}
	}
	if err := r.Populate(0, size); err != nil {
		t.Fatal(err)
	}
	if !r.Resident(0, size) || !r.Resident(7, 7) || !r.Resident(size, size) {
		t.Error("what was brought in is not in memory")
	}
}

// TestNextData reads a file with holes: what is not in them is found, and what is said to be a hole is zeros.
func TestNextData(t *testing.T) {
	const pages = 64
	r := openRegion(t, filepath.Join(t.TempDir(), "f"), pages*4096+100, true)
	defer closeRegion(t, r)
	size := int64(len(r.Bytes()))
	check := func() {
		t.Helper()
		for from := int64(0); from <= size; from += 1000 {
			for at := from; at < size; {
				start, end := r.NextData(at)
				if start < at || end < start || end > size || end == at {
					t.Fatalf("data at or past %d of %d: [%d, %d)", at, size, start, end)
				}
				if hole := r.Bytes()[at:start]; len(bytes.TrimLeft(hole, "\x00")) > 0 {
					t.Fatalf("there is data between %d and %d", at, start)
				}
				at = end
			}
		}
		if start, end := r.NextData(size); start != size || end != size {
			t.Fatalf("data at the end: [%d, %d)", start, end)
		}
	}
	check()
	if err := r.Allocate(8*4096, 24*4096); err != nil { // blocks that are not written are holes too
		t.Fatal(err)
	}
	check()
	for _, at := range []int64{10 * 4096, 13*4096 + 7, 30 * 4096, 63*4096 + 4095, size - 1} {
		r.Bytes()[at] = 1 // in the page cache alone
		check()
	}
	if err := r.WriteAt([]byte{1}, 40*4096); err != nil {
		t.Fatal(err)
	}
	check()
	if err := r.Sync(0, size); err != nil {
		t.Fatal(err)
	}
	check()
}
