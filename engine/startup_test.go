// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// Every combination that starts has a sentence of its own or, where the pool has no effect, its neighbour's.
func TestWhatAnOKSurvives(t *testing.T) {
	said := make(map[string]int)
	for _, role := range []storage.Role{storage.AsyncMaster, storage.SyncMaster, storage.Slave} {
		for _, flush := range []storage.FlushDiskType{storage.AsyncFlush, storage.SyncFlush} {
			for _, pool := range []bool{false, true} {
				said[survives(&storage.Config{Role: role, FlushDiskType: flush, TransientStorePoolEnable: pool})]++
			}
		}
	}
	if len(said) != len(durabilities)+1 {
		t.Fatalf("%d sentences for %d rows and the slave", len(said), len(durabilities))
	}
}

func TestStartLines(t *testing.T) {
	say := func(fs *faultfs.FS, change func(*Config)) string {
		cfg := nodeConfig("/data/store")
		cfg.EnsureDefaults()
		if change != nil {
			change(&cfg)
		}
		var log bytes.Buffer
		sayStart(slog.New(slog.NewTextHandler(&log, nil)), fs, &cfg)
		return log.String()
	}
	f := func(got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Fatalf("%q is missing in:\n%s", w, got)
			}
		}
	}
	roomy := faultfs.New()
	f(say(roomy, nil), "limit=", "msg=disk", "free=", "physical=", "an OK survives the end of this process in any way")
	f(say(roomy, func(c *Config) { c.Store.Role = storage.SyncMaster }), "inSyncReplicas=1", "answered SLAVE_NOT_AVAILABLE")
	f(say(roomy, func(c *Config) { c.Store.Role = storage.Slave }), "a slave takes no messages")
	tight := faultfs.New()
	tight.SetCapacity(1 << 20)
	f(say(tight, nil), "room for less than two log files")
}

func TestCgroupMemoryLimit(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := func(self string, want int64, wantFrom string) {
		t.Helper()
		write("self", self)
		limit, from := cgroupMemoryLimit(filepath.Join(root, "self"), root)
		if limit != want || !strings.HasSuffix(from, wantFrom) {
			t.Fatalf("%q: %d from %s; want %d from %s", self, limit, from, want, wantFrom)
		}
	}
	write("memory.max", "max\n")
	write("a/memory.max", "1073741824\n")
	write("a/b/memory.max", "2147483648\n")
	write("memory/docker/memory.limit_in_bytes", "536870912\n")
	write("memory/memory.limit_in_bytes", "9223372036854771712\n")
	f("0::/\n", 0, "")
	f("0::/a/b\n", 1<<30, "/a/memory.max")
	f("0::/gone/c\n", 0, "")
	f("4:cpu:/docker\n5:memory:/docker\n0::/\n", 512<<20, "/memory/docker/memory.limit_in_bytes")
	f("nonsense\n", 0, "")
	if limit, _ := cgroupMemoryLimit(filepath.Join(root, "missing"), root); limit != 0 {
		t.Fatal(limit)
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 30: "1.0 GiB", 1<<63 - 1: "8.0 EiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d)=%s; want %s", n, got, want)
		}
	}
}
