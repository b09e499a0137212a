// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// quietLogger drops what a test provokes on purpose.
func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newTestTable(fs vfs.FS) *tableFile {
	return newTableFile(fs, "/store", "table.json", quietLogger())
}

// loadVersion loads a table whose content is {"v":n}.
func loadVersion(f *tableFile) (version int64, found bool, err error) {
	found, err = f.load(func(data []byte) error {
		r := newJSONReader(data)
		err := r.object(func([]byte) (err error) {
			version, err = r.int64()
			return err
		})
		if err == nil {
			err = r.end()
		}
		return err
	})
	return version, found, err
}

func tableVersion(n int) []byte { return fmt.Appendf(nil, "{\n\t\"v\":%d\n}", n) }

func mustSave(t *testing.T, f *tableFile, n int) {
	t.Helper()
	if err := f.save(tableVersion(n)); err != nil {
		t.Fatal(err)
	}
}

// A save that stops anywhere, by the end of the process or by a power cut, leaves the new version or the newest good one
// before it, whether the current file was good or broken at the start (apache/rocketmq#9705).
func TestSaveStoppedAtAnyStepKeepsATable(t *testing.T) {
	const seeds = 8
	for _, broken := range []bool{false, true} {
		for _, kind := range []faultfs.CrashKind{faultfs.ProcessKill, faultfs.PowerLoss} {
			steps := 0
			for step := 1; ; step++ {
				reached := false
				for seed := range uint64(seeds) {
					reached = saveStoppedAt(t, broken, kind, step, seed) || reached
				}
				if !reached {
					break
				}
				steps = step
			}
			if steps < 5 {
				t.Fatalf("broken=%v %v: a save of only %d steps", broken, kind, steps)
			}
		}
	}
}

// saveStoppedAt crashes at the step-th operation of a save; false if the save has fewer.
func saveStoppedAt(t *testing.T, broken bool, kind faultfs.CrashKind, step int, seed uint64) (reached bool) {
	t.Helper()
	disk := faultfs.New()
	if err := disk.MkdirAll("/store/config"); err != nil {
		t.Fatal(err)
	}
	f := newTestTable(disk)
	mustSave(t, f, 1)
	mustSave(t, f, 2)
	least := int64(2)
	if broken {
		if err := disk.WriteFile(f.path, []byte(`{"v":`)); err != nil {
			t.Fatal(err)
		}
		least = 1
	}
	f = newTestTable(disk)
	if v, found, err := loadVersion(f); v != least || !found || err != nil {
		t.Fatalf("before the save: version %d, %v, %v", v, found, err)
	}
	after := disk
	n := 0
	disk.SetHook(func(faultfs.Op, string) {
		if n++; n == step {
			after, reached = disk.Crash(kind, seed), true
		}
	})
	_ = f.save(tableVersion(3))
	disk.SetHook(nil)
	v, found, err := loadVersion(newTestTable(after))
	if err != nil || !found || v != 3 && v != least {
		t.Fatalf("broken=%v, %v at step %d, seed %d: version %d, %v, %v; want 3 or %d", broken, kind, step, seed, v, found, err, least)
	}
	if !reached && v != 3 {
		t.Fatalf("a save that ended left version %d", v)
	}
	return reached
}

// A save that the disk refuses anywhere says so, and leaves a table.
func TestSaveRefusedAtAnyStepKeepsATable(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpWrite, faultfs.OpSync, faultfs.OpRename, faultfs.OpSyncDir, faultfs.OpRead, faultfs.OpCreate} {
		for skip := range 4 {
			disk := faultfs.New()
			f := newTestTable(disk)
			mustSave(t, f, 1)
			mustSave(t, f, 2)
			disk.Fail(faultfs.Fault{Op: op, Skip: skip, Err: errors.New("no")})
			err := f.save(tableVersion(3))
			disk.ClearFaults()
			v, found, loadErr := loadVersion(newTestTable(disk))
			if loadErr != nil || !found || err == nil && v != 3 || v < 2 {
				t.Fatalf("%v failing after %d: save %v, then version %d, %v, %v", op, skip, err, v, found, loadErr)
			}
			mustSave(t, f, 4)
			if v, _, err := loadVersion(newTestTable(disk)); v != 4 || err != nil {
				t.Fatalf("%v failing after %d: the save after it left version %d, %v", op, skip, v, err)
			}
		}
	}
}

func TestBrokenTableNeverReplacesTheGoodOne(t *testing.T) {
	disk := faultfs.New()
	f := newTestTable(disk)
	mustSave(t, f, 1)
	mustSave(t, f, 2)
	for _, garbage := range []string{"", " \n", "{", "garbage", strings.Repeat("[", 1000)} {
		if err := disk.WriteFile(f.path, []byte(garbage)); err != nil {
			t.Fatal(err)
		}
		mustSave(t, f, 3) // while the table runs: what lies there now is not ours
		if v, _, err := loadVersion(newTestTable(disk)); v != 3 || err != nil {
			t.Fatalf("after %q: version %d, %v", garbage, v, err)
		}
		if err := disk.WriteFile(f.path, []byte(garbage)); err != nil {
			t.Fatal(err)
		}
		f = newTestTable(disk)
		if v, _, err := loadVersion(f); v != 1 || err != nil {
			t.Fatalf("after %q: version %d, %v; want the previous, 1", garbage, v, err)
		}
	}
}

func TestTwoBrokenTablesStopTheStart(t *testing.T) {
	disk := faultfs.New()
	f := newTestTable(disk)
	if v, found, err := loadVersion(f); v != 0 || found || err != nil {
		t.Fatalf("without a file: version %d, %v, %v", v, found, err)
	}
	mustSave(t, f, 1)
	if err := disk.WriteFile(f.path, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadVersion(newTestTable(disk)); err == nil || !strings.Contains(err.Error(), f.path) {
		t.Fatalf("broken without a previous version: error %v; want one that names %s", err, f.path)
	}
	if err := disk.WriteFile(f.previous(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadVersion(newTestTable(disk)); err == nil || !strings.Contains(err.Error(), f.path) {
		t.Fatalf("both broken: error %v; want one that names %s", err, f.path)
	}
	disk.Fail(faultfs.Fault{Op: faultfs.OpRead, Err: fs.ErrPermission})
	if _, _, err := loadVersion(newTestTable(disk)); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("unreadable: error %v", err)
	}
}

// A Java broker that died between deleting the old file and renaming the new one leaves .tmp and .bak.
func TestTableOfACrashedJavaBroker(t *testing.T) {
	disk := faultfs.New()
	f := newTestTable(disk)
	if err := disk.MkdirAll("/store/config"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{f.path + ".tmp": `{"v":9`, f.previous(): `{"v":8}`} {
		if err := disk.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if v, found, err := loadVersion(f); v != 8 || !found || err != nil {
		t.Fatalf("version %d, %v, %v", v, found, err)
	}
}

func TestUnchangedTableIsNotWritten(t *testing.T) {
	disk := faultfs.New()
	f := newTestTable(disk)
	mustSave(t, f, 1)
	writes := disk.Count(faultfs.OpWrite)
	mustSave(t, f, 1)
	if got := disk.Count(faultfs.OpWrite); got != writes {
		t.Fatalf("%d writes for a table that did not change", got-writes)
	}
}
