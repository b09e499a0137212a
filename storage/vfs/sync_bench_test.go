// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSync compares what could stand behind Region.Sync: bytes are appended to a file with all blocks allocated,
// in a window that was made ready ahead, and the appended range is made durable. state says how it was made ready, and how
// bytes are appended: stored to a window that was populated on allocated blocks (unwritten), then synced (written), then
// populated again (prepared); or written with WritevAt, by 1 KiB, into allocated blocks (through), or into blocks that were
// filled with zeros and synced (zeroed). It measures the file system that holds LOOPMQ_BENCH_DIR, or else the temporary
// directory.
func BenchmarkSync(b *testing.B) {
	primitives := []struct {
		name string
		sync func(r *region, from, to int64) error
	}{
		{"fdatasync", fdatasync},
		{"msync", (*region).msync},
		{"sync_file_range+fdatasync", func(r *region, from, to int64) error {
			const flags = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
			if err := unix.SyncFileRange(int(r.file.Fd()), from, to-from, flags); err != nil {
				return err
			}
			return fdatasync(r, from, to)
		}},
	}
	for _, primitive := range primitives {
		for _, state := range []string{"unwritten", "written", "prepared", "through", "zeroed"} {
			for _, bytes := range []int64{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("primitive=%s/state=%s/bytes=%d", primitive.name, state, bytes), func(b *testing.B) {
					benchmarkSync(b, primitive.sync, state, bytes)
				})
			}
		}
	}
}

func benchmarkSync(b *testing.B, sync func(r *region, from, to int64) error, state string, bytes int64) {
	const size, window = 512 << 20, 32 << 20
	dir := os.Getenv("LOOPMQ_BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	opened, err := OS{}.OpenRegion(filepath.Join(dir, "sync_bench"), size, true)
	if err != nil {
		b.Fatal(err)
	}
	r := opened.(*region)
	defer os.Remove(r.path)
	defer r.Close()
	if err := r.Allocate(0, size); err != nil {
		b.Fatal(err)
	}
	if err := fdatasync(r, 0, size); err != nil {
		b.Fatal(err)
	}
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	took := make([]time.Duration, 0, b.N)
	payload := make([]byte, bytes)
	var at, populated int64
	var stored time.Duration
	b.SetBytes(bytes)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if at+bytes > populated {
			b.StopTimer()
			if at+window > size {
				b.Fatalf("%d appends of %d bytes do not fit: lower -benchtime", b.N, bytes)
			}
			if err := makeReady(r, state, at, at+window); err != nil {
				b.Fatal(err)
			}
			populated = at + window
			b.StartTimer()
		}
		start := time.Now()
		if err := appendBytes(r, state, payload, at); err != nil {
			b.Fatal(err)
		}
		stored += time.Since(start)
		start = time.Now()
		if err := sync(r, at, at+bytes); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		at += bytes
	}
	b.StopTimer()
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/1000/float64(b.N), "cpu-µs") // with the share of what makes windows ready
	slices.Sort(took)
	b.ReportMetric(float64(stored.Nanoseconds())/float64(at>>10), "store-ns/KiB")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
}

func appendBytes(r *region, state string, payload []byte, at int64) error {
	if state != "through" && state != "zeroed" {
		copy(r.data[at:], payload)
		return nil
	}
	return r.WritevAt(slices.Collect(slices.Chunk(payload, 1<<10)), at)
}

func makeReady(r *region, state string, from, to int64) error {
	if state == "through" {
		return nil
	}
	if state == "zeroed" {
		zeros := make([]byte, 16<<10)
		for ; from < to; from += int64(len(zeros)) {
			if err := r.WriteAt(zeros, from); err != nil {
				return err
			}
		}
		return fdatasync(r, from, to)
	}
	if err := r.Populate(from, to); err != nil || state == "unwritten" {
		return err
	}
	if err := fdatasync(r, from, to); err != nil || state == "written" {
		return err
	}
	return r.Populate(from, to)
}

func fdatasync(r *region, _, _ int64) error { return r.control("fdatasync", unix.Fdatasync) }
