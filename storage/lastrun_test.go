// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"testing"

	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// javaFlushes moves the times of a checkpoint as StoreCheckpoint#flush does, which knows nothing of what is beside them.
func javaFlushes(t *testing.T, fsys vfs.FS, times checkpointTimes) {
	t.Helper()
	region, err := fsys.OpenRegion(testRoot+"/checkpoint", checkpointFileSize, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, ms := range []int64{times.physic, times.logics, times.index} {
		binary.BigEndian.PutUint64(region.Bytes()[8*i:], uint64(ms))
	}
	if err := region.Close(); err != nil {
		t.Fatal(err)
	}
}

// A store knows how its last run ended, and whether another broker has written to it: one that stopped in order, or one
// that crashed after it had flushed its checkpoint.
func TestLastRun(t *testing.T) {
	f := func(name string, run func(t *testing.T, fsys *faultfs.FS) *faultfs.FS, wantClean, wantOthers bool) {
		t.Run(name, func(t *testing.T) {
			fsys := faultfs.New()
			s := openTestStore(t, fsys, nil)
			s.sendMany(30)
			s.settled().close()
			s = openTestStore(t, run(t, fsys), nil)
			if clean, others := s.LastRun(); clean != wantClean || others != wantOthers {
				t.Fatalf("clean %v, others %v", clean, others)
			}
		})
	}
	again := func(t *testing.T, fsys *faultfs.FS) *testStore {
		s := openTestStore(t, fsys, nil)
		s.sendMany(20)
		return s.settled()
	}
	stop := func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
		again(t, fsys).close()
		return fsys
	}
	crash := func(kind faultfs.CrashKind) func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
		return func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
			s := again(t, fsys)
			next := fsys.Crash(kind, 0)
			s.abandon()
			return next
		}
	}
	f("stopped", func(_ *testing.T, fsys *faultfs.FS) *faultfs.FS { return fsys }, true, false)
	f("stopped twice", stop, true, false)
	f("killed", crash(faultfs.ProcessKill), false, false)
	f("power cut", crash(faultfs.PowerLoss), false, false)
	f("first run killed", func(t *testing.T, _ *faultfs.FS) *faultfs.FS { return crash(faultfs.ProcessKill)(t, faultfs.New()) }, false, false)
	f("others stopped", func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
		stop(t, fsys)
		javaFlushes(t, fsys, checkpointTimes{1, 2, 3})
		return fsys
	}, true, true)
	f("others killed", func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
		fsys = crash(faultfs.ProcessKill)(t, fsys)
		javaFlushes(t, fsys, checkpointTimes{1, 2, 3})
		return fsys
	}, false, true)
	f("others stopped and flushed no times", func(t *testing.T, fsys *faultfs.FS) *faultfs.FS {
		b, err := fsys.ReadFile(testRoot + "/checkpoint")
		if err != nil {
			t.Fatal(err)
		}
		stop(t, fsys)
		if err := fsys.WriteFile(testRoot+"/checkpoint", b); err != nil {
			t.Fatal(err)
		}
		return fsys
	}, true, true)
}
