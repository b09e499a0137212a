// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"loopmq/storage/vfs/faultfs"
)

func TestAbleToFlush(t *testing.T) {
	const page, size = osPageSize, 100 * osPageSize
	f := func(leastPages int, read, flushed int64, want bool) {
		t.Helper()
		if got := ableToFlush(leastPages, read, flushed, size); got != want {
			t.Fatalf("ableToFlush(%d, %d, %d)=%v; want %v", leastPages, read, flushed, got, want)
		}
	}
	f(0, 0, 0, false)
	f(0, 1, 0, true)                     // any byte counts when no minimum is asked
	f(0, 1, 1, false)                    //
	f(4, 4*page-1, 0, false)             // one byte short of four pages
	f(4, 4*page, 0, true)                //
	f(4, 5*page-1, page, false)          // whole pages count, from page ends
	f(4, 5*page, 2*page-1, true)         // a started page counts from its beginning, as in Java
	f(4, size, size-1, true)             // a full file always
	f(4, size, size, false)              // unless all of it is done
	f(1, page, page-1, true)             //
	f(1000, size, 0, true)               //
	f(1000, size-1, 0, false)            //
	f(0, size, size, false)              //
	f(4, size-page, size-4*page-1, true) //
	f(4, size-page, size-4*page, false)  //
	f(-1, 10, 9, true)                   // a negative minimum is none
	f(-1, 10, 10, false)                 //
	f(4, 3*page, 3*page, false)          //
	f(2, 3*page+17, page+page-1, true)   //
	f(2, 3*page+17, page+page, false)    //
	f(0, page, 0, true)                  //
	f(1, page-1, 0, false)               //
	f(1, 2*page-1, page, false)          //
	f(1, 2*page, page+page/2, true)      //
	f(3, 10*page+1, 7*page+page-1, true) //
	f(3, 10*page+1, 8*page, false)       //
	f(0, size-1, size-2, true)           //
	f(99, size-1, 0, true)               //
	f(100, size-1, 0, false)             //
}

// testQueue is an empty queue of files of 8 KiB in memory.
func testQueue(t *testing.T, fsys *faultfs.FS) *MappedFileQueue {
	t.Helper()
	q, err := openMappedFileQueue(fsys, "/queue", 8192, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if held := q.close(); held > 0 {
			t.Errorf("%d files are still lent", held)
		}
		if n := fsys.OpenRegions(); n != 0 {
			t.Errorf("%d mappings not given back", n)
		}
	})
	return q
}

func mustCreate(t *testing.T, q *MappedFileQueue, base int64, wrote int64) *MappedFile {
	t.Helper()
	f, err := q.create(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ensureAllocated(wrote); err != nil {
		t.Fatal(err)
	}
	f.wrotePosition.Store(wrote)
	return f
}

func TestLoansOutliveRetirement(t *testing.T) {
	fsys := faultfs.New()
	q := testQueue(t, fsys)
	f := mustCreate(t, q, 0, 100)
	copy(f.bytes(), "still here")
	loan, ok := f.selectAt(0, 10)
	if !ok {
		t.Fatal("no loan")
	}
	if err := q.retire(f); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Stat(q.fileName(0)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a retired file keeps its name: %v", err)
	}
	if f.hold() {
		t.Fatal("a retired file was lent")
	}
	if q.find(50) != nil || f.held() != 1 {
		t.Fatalf("found %v, held %d", q.find(50), f.held())
	}
	if string(loan.Bytes()) != "still here" || fsys.OpenRegions() != 1 {
		t.Fatalf("loan reads %q", loan.Bytes())
	}
	loan.Release()
	loan.Release() // does nothing
	if fsys.OpenRegions() != 0 {
		t.Fatal("mapping kept after the last release")
	}
}

func TestReleaseTooOftenPanics(t *testing.T) {
	q := testQueue(t, faultfs.New())
	f := mustCreate(t, q, 0, 100)
	g := &MappedFile{region: f.region}
	g.references.Store(1)
	defer func() {
		if r := fmt.Sprint(recover()); !strings.HasPrefix(r, "BUG:") {
			t.Fatalf("recovered %q", r)
		}
	}()
	g.release()
}

// Deleting a file while others read it neither faults nor leaks (apache/rocketmq#8405).
func TestRetireUnderReaders(t *testing.T) {
	fsys := faultfs.New()
	q := testQueue(t, fsys)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for !stop.Load() {
				for _, f := range q.files() {
					loan, ok := f.selectAt(0, 64)
					if !ok {
						continue
					}
					if got, want := loan.Bytes()[0], byte(f.base/8192); got != want {
						t.Errorf("read %d, want %d", got, want)
					}
					loan.Release()
				}
			}
		})
	}
	for i := range int64(200) {
		f, err := q.create(i * 8192)
		if err != nil {
			t.Fatal(err)
		}
		f.bytes()[0] = byte(i)
		f.wrotePosition.Store(100)
		if i >= 3 {
			if n, err := q.deleteBefore((i - 2) * 8192); err != nil || n != 1 {
				t.Fatalf("deleted %d, %v", n, err)
			}
		}
	}
	stop.Store(true)
	readers.Wait()
}

func TestQueueFindAndBounds(t *testing.T) {
	q := testQueue(t, faultfs.New())
	if q.find(0) != nil || q.first() != nil || q.last() != nil || q.maxOffset() != 0 {
		t.Fatal("an empty queue has something")
	}
	for base := int64(3 * 8192); base < 7*8192; base += 8192 {
		mustCreate(t, q, base, 8192)
	}
	q.last().wrotePosition.Store(10)
	f := func(offset, base int64) {
		t.Helper()
		got := q.find(offset)
		if base < 0 && got != nil || base >= 0 && (got == nil || got.base != base) {
			t.Fatalf("find(%d)=%v; want base %d", offset, got, base)
		}
	}
	f(-1, -1)
	f(3*8192-1, -1)
	f(3*8192, 3*8192)
	f(4*8192-1, 3*8192)
	f(6*8192+5, 6*8192)
	f(7*8192-1, 6*8192)
	f(7*8192, -1)
	if q.minOffset() != 3*8192 || q.maxOffset() != 6*8192+10 {
		t.Fatalf("bounds %d, %d", q.minOffset(), q.maxOffset())
	}
	if err := q.retire(q.files()[1]); err != nil { // a hole in the middle
		t.Fatal(err)
	}
	f(3*8192, 3*8192)
	f(4*8192+1, -1)
	f(5*8192+1, 5*8192)
	f(6*8192+1, 6*8192)
}

// A flush does one file per call; only complete success moves flushedWhere.
func TestQueueFlushesFileByFile(t *testing.T) {
	fsys := faultfs.New()
	q := testQueue(t, fsys)
	for base := int64(0); base < 3*8192; base += 8192 {
		mustCreate(t, q, base, 8192)
	}
	q.last().wrotePosition.Store(10)
	f := func(leastPages int, wantProgress bool, wantWhere int64) {
		t.Helper()
		progressed, err := q.flush(leastPages)
		if err != nil || progressed != wantProgress || q.flushedWhere.Load() != wantWhere {
			t.Fatalf("flush(%d)=%v, %v to %d; want %v to %d", leastPages, progressed, err, q.flushedWhere.Load(), wantProgress, wantWhere)
		}
	}
	f(4, true, 8192) // two pages, but full
	fsys.Fail(faultfs.Fault{Op: faultfs.OpSync, Count: 1, Err: syscall.EIO})
	if progressed, err := q.flush(0); progressed || !errors.Is(err, syscall.EIO) || q.flushedWhere.Load() != 8192 {
		t.Fatalf("failed flush: %v, %v, %d", progressed, err, q.flushedWhere.Load())
	}
	f(0, true, 2*8192)
	f(4, false, 2*8192)
	f(0, true, 2*8192+10)
	f(0, false, 2*8192+10)
}

func TestQueueTruncate(t *testing.T) {
	f := func(offset int64, wantFiles int, wantMax int64) {
		t.Helper()
		fsys := faultfs.New()
		q := testQueue(t, fsys)
		for base := int64(8192); base < 4*8192; base += 8192 {
			mustCreate(t, q, base, 8192)
		}
		if err := q.truncate(offset); err != nil {
			t.Fatal(err)
		}
		entries, err := fsys.List("/queue")
		if err != nil || len(entries) != wantFiles || len(q.files()) != wantFiles || q.maxOffset() != wantMax {
			t.Fatalf("truncate(%d): %d names, %d files, end %d, %v; want %d files, end %d",
				offset, len(entries), len(q.files()), q.maxOffset(), err, wantFiles, wantMax)
		}
	}
	f(4*8192, 3, 4*8192)
	f(4*8192-1, 3, 4*8192-1)
	f(3*8192, 3, 3*8192) // an empty last file stays, as in Java
	f(3*8192-1, 2, 3*8192-1)
	f(8192, 1, 8192)
	f(0, 0, 0)
}

// Stray names are left alone and named once (apache/rocketmq#3257); a last file cut short is extended.
func TestQueueLoad(t *testing.T) {
	fsys := faultfs.New()
	write := func(name string, size int) {
		t.Helper()
		if err := fsys.WriteFile("/queue/"+name, bytes.Repeat([]byte{7}, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.MkdirAll("/queue/lost+found"); err != nil {
		t.Fatal(err)
	}
	write("notes", 0)
	write(".00000000000000008192.swp", 12)
	write("0000000000000008192", 8192)   // 19 digits
	write("000000000000000008192", 8192) // 21 digits
	write("00000000000000008192", 8192)
	write("00000000000000016384", 100)
	write("99999999999999999999", 8192) // no 64-bit number
	write("-0000000000000016384", 8192)
	var logged bytes.Buffer
	q, err := openMappedFileQueue(fsys, "/queue", 8192, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	if n := strings.Count(logged.String(), "left alone"); n != 1 {
		t.Fatalf("strangers named in %d lines:\n%s", n, logged.String())
	}
	for _, name := range []string{"notes", "lost+found", ".swp", "0000000000000008192", "99999999999999999999"} {
		if !strings.Contains(logged.String(), name) {
			t.Errorf("%s is not named", name)
		}
	}
	files := q.files()
	if len(files) != 2 || files[0].base != 8192 || files[1].base != 16384 {
		t.Fatalf("loaded %d files", len(files))
	}
	if last := files[1].bytes(); len(last) != 8192 || last[99] != 7 || last[100] != 0 || last[8191] != 0 {
		t.Fatal("the short file was not extended with zeros")
	}
}

func TestQueueLoadRefusesWrongLengths(t *testing.T) {
	f := func(want string, lengths ...int) {
		t.Helper()
		fsys := faultfs.New()
		for i, n := range lengths {
			if err := errors.Join(fsys.MkdirAll("/queue"), fsys.WriteFile(fmt.Sprintf("/queue/%020d", i*8192), make([]byte, n))); err != nil {
				t.Fatal(err)
			}
		}
		q, err := openMappedFileQueue(fsys, "/queue", 8192, discardLogger())
		if err == nil {
			q.close()
		}
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Fatalf("lengths %v: %v; want %q", lengths, err, want)
		}
		if fsys.OpenRegions() != 0 {
			t.Fatal("mappings left behind")
		}
	}
	f("<nil>", 8192, 8192)
	f("<nil>", 8192, 0)
	f("00000000000000000000", 8191, 8192) // only the last may be short
	f("00000000000000008192", 8192, 8193)
	f("00000000000000000000", 4096, 4096, 4096) // files of another size
}

// A store written with smaller files must not be taken for one with a short last file.
func TestQueueLoadAfterSizeWasRaised(t *testing.T) {
	fsys := faultfs.New()
	for i := range 3 {
		if err := errors.Join(fsys.MkdirAll("/queue"), fsys.WriteFile(fmt.Sprintf("/queue/%020d", i*8192), make([]byte, 8192))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openMappedFileQueue(fsys, "/queue", 65536, discardLogger()); err == nil {
		t.Fatal("opened")
	}
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	fsys := faultfs.New()
	q := testQueue(t, fsys)
	fsys.Fail(faultfs.Fault{Op: faultfs.OpCreate, Count: 1, Err: syscall.EIO})
	if _, err := q.create(0); !errors.Is(err, syscall.EIO) || q.last() != nil {
		t.Fatalf("create: %v", err)
	}
}

func TestEnsureAllocatedGoesInSteps(t *testing.T) {
	fsys := faultfs.New()
	q, err := openMappedFileQueue(fsys, "/queue", 4*allocateStep, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	f, err := q.create(0)
	if err != nil {
		t.Fatal(err)
	}
	check := func(position, want int64) {
		t.Helper()
		if err := f.ensureAllocated(position); err != nil || f.allocatedPosition.Load() != want {
			t.Fatalf("ensureAllocated(%d): %v, allocated to %d; want %d", position, err, f.allocatedPosition.Load(), want)
		}
	}
	check(0, 0)
	check(1, allocateStep)
	check(allocateStep, allocateStep)
	check(allocateStep+1, 2*allocateStep)
	check(4*allocateStep, 4*allocateStep)
	f.setPosition(allocateStep + 5)
	if got := f.allocatedPosition.Load(); got != allocateStep {
		t.Fatalf("after truncation allocated to %d", got)
	}
}
