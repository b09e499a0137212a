// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loopmq/storage/vfs"
)

// faultChildEnv names the case that a child process runs.
const faultChildEnv = "LOOPMQ_FAULT_CHILD"

// faultCases each truncate a real file under its map and touch it in one way. They return the error met.
var faultCases = map[string]func(t *testing.T, l *testLog) error{
	"inline append": func(t *testing.T, l *testLog) error {
		l.mustPut(100)
		truncateUnder(t, l, 0)
		return l.putThatFaults(100)
	},
	"append in the middle of the record": func(t *testing.T, l *testLog) error {
		l.mustPut(100)
		truncateUnder(t, l, osPageSize)
		return l.putThatFaults(2 * osPageSize)
	},
}

func truncateUnder(t *testing.T, l *testLog, size int64) {
	t.Helper()
	if err := os.Truncate(l.queue.last().path(), size); err != nil {
		t.Fatal(err)
	}
}

func (l *testLog) putThatFaults(size int) error {
	l.t.Helper()
	before := l.maxOffset()
	put, done := testPut("topic", 0, size, 1)
	_, status := l.asyncPutMessages([]*PutMessage{put})
	if status == PutOK {
		status = <-done
	}
	if status != ServiceNotAvailable || l.maxOffset() != before {
		l.t.Fatalf("put: %v; the log went from %d to %d", status, before, l.maxOffset())
	}
	if next := l.nextQueueOffset("topic", 0); next != 1 {
		l.t.Fatalf("the queue offset was used up: next is %d", next)
	}
	return put.Cause
}

// A file cut short by someone else ends the operation that touches it with an error that names file and offset, and
// latches the store. The process lives.
func TestFaultsBecomeErrors(t *testing.T) {
	for name := range faultCases {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestFaultChild$", "-test.count=1")
			child.Env = append(os.Environ(), faultChildEnv+"="+name)
			if out, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// A write into a file that was cut short makes it longer again. The sync finds that its whole length is not there.
func TestSyncFindsACutBehindWrites(t *testing.T) {
	t.Run("master", func(t *testing.T) {
		l := openTestLogAt(t, vfs.OS{}, t.TempDir(), flushesOnRequest)
		l.mustPut(100)
		truncateUnder(t, l, 0)
		l.mustPut(throughMin)
		l.mustFindCut()
	})
	t.Run("slave", func(t *testing.T) {
		l := openTestLogAt(t, vfs.OS{}, t.TempDir(), func(c *Config) {
			c.Role = Slave
			flushesOnRequest(c)
		})
		for at := range PhyOffset(2) {
			if err := l.appendData(100*at, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			truncateUnder(t, l, 0)
		}
		l.mustFindCut()
	})
}

func flushesOnRequest(c *Config) { c.FlushIntervalCommitLog = 1_000_000 }

func (l *testLog) mustFindCut() {
	l.t.Helper()
	if _, err := l.flush(0); err == nil || !strings.Contains(err.Error(), "was cut") {
		l.t.Fatalf("sync: %v", err)
	}
}

// TestFaultChild is a case of TestFaultsBecomeErrors, in a process of its own.
func TestFaultChild(t *testing.T) {
	name := os.Getenv(faultChildEnv)
	if name == "" {
		return
	}
	dir := t.TempDir()
	l := openTestLogAt(t, vfs.OS{}, dir, nil)
	err := faultCases[name](t, l)
	var fault *FaultError
	if !errors.As(err, &fault) || !errors.Is(err, ErrFault) {
		t.Fatalf("error %v", err)
	}
	if want := filepath.Join(dir, strings.Repeat("0", mappedFileNameLength)); fault.Path != want || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v does not name %s", err, want)
	}
	if fault.Offset < 0 || fault.Offset >= l.queue.fileSize {
		t.Fatalf("%v does not name a place in the file", err)
	}
	if status, cause := l.denied(time.Now().UnixMilli()); status != ServiceNotAvailable || !errors.Is(cause, ErrFault) {
		t.Fatalf("denied: %v, %v", status, cause)
	}
	if !l.flags.latched() || l.readOnly.Load() != 1 {
		t.Fatal("the store is not latched")
	}
}

// A panic that is no fault in a mapped file goes on.
func TestOtherPanicsGoOn(t *testing.T) {
	for _, cause := range []any{"BUG: of ours", fmt.Errorf("an error"), nilPointerPanic()} {
		func() {
			defer func() {
				if r := recover(); r != cause {
					t.Fatalf("recovered %v, want %v", r, cause)
				}
			}()
			var err error
			defer catchFault(&err)
			panic(cause)
		}()
	}
}

func nilPointerPanic() (r any) {
	defer func() { r = recover() }()
	var f *MappedFile
	return f.size
}

// A page that a worker of recovery cannot read is an error of the start, and not the end of the process.
func TestForEachReportsFaults(t *testing.T) {
	if os.Getenv(faultChildEnv) != "forEach" {
		child := exec.Command(os.Args[0], "-test.run=^TestForEachReportsFaults$", "-test.count=1")
		child.Env = append(os.Environ(), faultChildEnv+"=forEach")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	l := openTestLogAt(t, vfs.OS{}, t.TempDir(), nil)
	l.mustPut(100)
	truncateUnder(t, l, 0)
	sum := byte(0)
	err := forEach(recoverWorkers, []*MappedFile{l.queue.last()}, func(f *MappedFile) error {
		sum += f.bytes()[0]
		return nil
	})
	guarded := Guard(func() { sum += l.queue.last().bytes()[0] })
	for _, err := range []error{err, guarded} {
		if fault := (*FaultError)(nil); !errors.As(err, &fault) || fault.Path != l.queue.last().path() {
			t.Fatalf("error %v", err)
		}
	}
}
