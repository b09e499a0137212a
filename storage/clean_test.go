// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

func TestDecideClean(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 30, hour, 30, 0, 0, time.Local) }
	c := DefaultConfig()
	f := func(hour int, log, queues float64, manual bool, want cleanDecision) {
		t.Helper()
		if got := decideClean(at(hour), &c, diskRatios{log: log, queues: queues}, manual); got != want {
			t.Errorf("at %d with %v, %v, manual %v: %+v, want %+v", hour, log, queues, manual, got, want)
		}
	}
	f(5, 0.1, 0.1, false, cleanDecision{})
	f(4, 0.1, 0.1, false, cleanDecision{clean: true})
	f(5, 0.1, 0.1, true, cleanDecision{clean: true})
	f(5, 0.76, 0.1, false, cleanDecision{clean: true})
	f(5, 0.1, 0.76, false, cleanDecision{clean: true})
	f(5, 0.1, 0.86, false, cleanDecision{clean: true, forced: true})
	f(5, -1, 0.1, false, cleanDecision{clean: true}) // cannot be read
	c.CleanFileForciblyEnable = false
	f(5, 0.95, 0.1, false, cleanDecision{clean: true})
	c.DeleteWhen = "04; 16"
	f(16, 0.1, 0.1, false, cleanDecision{clean: true})
	c.DiskMaxUsedSpaceRatio = 5 // clamped to 10
	f(5, 0.07, 0, false, cleanDecision{})
}

// usageFS is a disk as full as the test says.
type usageFS struct {
	vfs.FS
	usedPercent atomic.Int64
}

func (u *usageFS) Usage(string) (vfs.Usage, error) {
	return vfs.Usage{Total: 1000, Free: 1000 - 10*u.usedPercent.Load()}, nil
}

func retentionStore(t *testing.T) (*testStore, *usageFS) {
	fsys := &usageFS{FS: faultfs.New()}
	s := openTestStore(t, fsys, func(c *Config) {
		c.CleanResourceInterval = 3_600_000 // the test makes the rounds
		c.DeleteCommitLogFilesInterval, c.DeleteConsumeQueueFilesInterval = 1, 1
		c.DeleteWhen = "04"
	})
	s.lossy = true
	for range 300 {
		s.send(storeMessage{topic: "t", size: 500, properties: "KEYS\x01k"})
	}
	s.settled()
	return s, fsys
}

func (s *testStore) clean(now time.Time) {
	s.t.Helper()
	if err := s.cleaner.round(now, true); err != nil {
		s.t.Fatal(err)
	}
}

func TestRetentionByAge(t *testing.T) {
	s, _ := retentionStore(t)
	four := time.Now().Add(48 * time.Hour)
	four = time.Date(four.Year(), four.Month(), four.Day(), 4, 0, 0, 0, time.Local)
	files := len(s.log.queue.files())
	s.clean(four)
	if got := len(s.log.queue.files()); got != files {
		t.Fatalf("%d files after less than 72 hours, want %d", got, files)
	}
	first := s.log.queue.first()
	reader, ok := s.Select(0, 100)
	if !ok {
		t.Fatal("nothing to read")
	}
	four = four.Add(72 * time.Hour)
	s.clean(four)
	if got := files - len(s.log.queue.files()); got != deleteFileBatchMax {
		t.Fatalf("%d files deleted in one round, want %d", got, deleteFileBatchMax)
	}
	if first.held() != 1 || reader.Bytes()[4] != 0xda {
		t.Error("a file was unmapped under its reader")
	}
	if got := s.Stats().FilesHeldAfterRetire; got != 1 {
		t.Errorf("%d files held, want 1", got)
	}
	reader.Release()
	if got := s.Stats().FilesHeldAfterRetire; got != 0 {
		t.Errorf("%d files held, want 0", got)
	}
	minOffset, maxOffset, _ := s.QueueOffsets("t", 0)
	if got := s.pullAll("t", 0); len(got) != int(maxOffset-minOffset) || minOffset == 0 {
		t.Errorf("min %d, max %d, %d messages", minOffset, maxOffset, len(got))
	}
	for range 10 {
		s.clean(four)
	}
	if len(s.log.queue.files()) != 1 || len(s.index.files()) > 2 {
		t.Errorf("%d log files and %d index files left", len(s.log.queue.files()), len(s.index.files()))
	}
	if q := s.queues.find("t", 0); len(q.files.files()) > 2 {
		t.Errorf("%d queue files left", len(q.files.files()))
	}
	s.send(storeMessage{topic: "t"})
	s.settled()
}

func TestDiskMarks(t *testing.T) {
	s, disk := retentionStore(t)
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	files := len(s.log.queue.files())
	disk.usedPercent.Store(80)
	s.clean(noon)
	if got := len(s.log.queue.files()); got != files {
		t.Errorf("young files deleted at 80%%")
	}
	if status, _ := s.PutDenied(); status != PutOK {
		t.Errorf("sends refused at 80%%: %v", status)
	}
	s.retained = func() (PhyOffset, bool) { return 0, true }
	disk.usedPercent.Store(92)
	s.clean(noon)
	if status, cause := s.PutDenied(); status != ServiceNotAvailable {
		t.Errorf("sends at 92%%: %v, %v", status, cause)
	}
	if got := files - len(s.log.queue.files()); got != min(deleteFileBatchMax, files-1) {
		t.Errorf("%d files deleted at 92%%", got)
	}
	disk.usedPercent.Store(50)
	s.clean(noon)
	if status, cause := s.PutDenied(); status != PutOK {
		t.Errorf("sends at 50%% again: %v, %v", status, cause)
	}
	files = len(s.log.queue.files())
	s.cleaner.manual.Store(1)
	s.clean(noon.Add(1000 * time.Hour))
	if got := len(s.log.queue.files()); got != files {
		t.Error("files were deleted that a slave needs")
	}
	s.retained = nil
	s.cleaner.manual.Store(1)
	s.clean(noon.Add(1000 * time.Hour))
	if got := len(s.log.queue.files()); files > 1 && got == files {
		t.Error("nothing deleted by hand")
	}
}

// A deleted file that is still being read is named after destroyMapedFileIntervalForcibly and again every
// redeleteHangedFileInterval, and unmapped only when its reader is through.
func TestHeldFilesAreNamed(t *testing.T) {
	s, _ := retentionStore(t)
	var log bytes.Buffer
	s.cleaner.logger = slog.New(slog.NewTextHandler(&log, nil))
	change := *s.Config()
	change.DestroyMapedFileIntervalForcibly, change.RedeleteHangedFileInterval = 60_000, 10_000
	s.config.Store(&change)
	reader, ok := s.Select(0, 100)
	if !ok {
		t.Fatal("nothing to read")
	}
	now := time.Now().Add(100 * time.Hour)
	s.cleaner.manual.Store(1)
	s.clean(now)
	f := func(after time.Duration, lines int) {
		t.Helper()
		s.clean(now.Add(after))
		if got := strings.Count(log.String(), "still being read"); got != lines {
			t.Errorf("%d lines after %v; want %d", got, after, lines)
		}
	}
	f(59*time.Second, 0)
	f(60*time.Second, 1)
	f(69*time.Second, 1)
	f(70*time.Second, 2)
	if b := reader.Bytes(); len(b) != 100 || b[4] != 0xda {
		t.Error("unmapped under its reader")
	}
	reader.Release()
	f(90*time.Second, 2)
}
