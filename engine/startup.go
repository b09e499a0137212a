// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"loopmq/storage"
	"loopmq/storage/vfs"
)

const (
	// descriptorsWanted is what a busy broker needs; a lower hard limit is a warning.
	descriptorsWanted = 65_536
	// diskFreeLogFiles is how many log files should still fit at start.
	diskFreeLogFiles = 2
)

// durability is one row of the table that the start-up line and the README show: what a send answered SEND_OK survives.
type durability struct {
	flush    storage.FlushDiskType
	role     storage.Role
	pool     bool
	survives string
}

// durabilities has one row for each combination of flushDiskType, brokerRole and transient pool that differs.
var durabilities = []durability{
	{storage.AsyncFlush, storage.AsyncMaster, false,
		"the end of this process in any way, kill -9 included; a power cut or a kernel crash may take what the disk was not yet told, at most flushCommitLogThoroughInterval"},
	{storage.AsyncFlush, storage.AsyncMaster, true,
		"a clean stop; a killed process may take what was acknowledged within commitCommitLogThoroughInterval (the transient pool is memory), a power cut what was within flushCommitLogThoroughInterval"},
	{storage.AsyncFlush, storage.SyncMaster, false,
		"the end of this process in any way, and the loss of this machine, since a slave has it; a power cut of both machines at once may take what neither disk was told"},
	{storage.AsyncFlush, storage.SyncMaster, true,
		"a clean stop, and the loss of this machine, since a slave has it; a power cut of both machines at once may take what neither disk was told"},
	{storage.SyncFlush, storage.AsyncMaster, false,
		"a power cut and any end of this process: it is on this machine's disk; not the loss of that disk"},
	{storage.SyncFlush, storage.SyncMaster, false,
		"a power cut and any end of this process, and the loss of this machine: it is on this disk, and a slave has it"},
}

// survives says what an OK survives under a configuration; the pool has no effect under SYNC_FLUSH.
func survives(c *storage.Config) string {
	if c.Role == storage.Slave {
		return "nothing of its own: a slave takes no messages from producers"
	}
	pool := c.TransientStorePoolEnable && c.FlushDiskType == storage.AsyncFlush
	for _, d := range durabilities {
		if d.flush == c.FlushDiskType && d.role == c.Role && d.pool == pool {
			return d.survives
		}
	}
	panic(fmt.Sprintf("BUG: no durability for flush %d, role %d, pool %v", c.FlushDiskType, c.Role, pool))
}

// sayStart writes the lines an operator wants to have seen: what the machine gives, and what an OK is worth.
func sayStart(logger *slog.Logger, fsys vfs.FS, cfg *Config) {
	sayDescriptors(logger)
	sayDisk(logger, fsys, &cfg.Store)
	sayMemory(logger)
	logger.Info("an OK survives " + survives(&cfg.Store) + " (a message sent with WAIT=false waits for neither disk nor slave)")
	sayReplication(logger, cfg)
}

// sayReplication tells what a role means.
func sayReplication(logger *slog.Logger, cfg *Config) {
	switch cfg.Store.Role {
	case storage.SyncMaster:
		logger.Info("SYNC_MASTER waits for slaves before it answers 0: one when inSyncReplicas is 1 or unset, as in RocketMQ 4.9; from 2 on the master counts as one of them. Without them a send is stored and answered SLAVE_NOT_AVAILABLE",
			"inSyncReplicas", cfg.InSyncReplicas, "slaveTimeout_ms", cfg.Store.SlaveTimeout)
	case storage.Slave:
		from := cfg.HAMasterAddress
		if len(from) < haMasterAddressMin {
			from = "as the name server tells"
		}
		logger.Info("SLAVE follows a master and serves consumers; it takes no sends", "haMasterAddress", from)
	}
}

// raiseDescriptors lifts the soft limit of open files to the hard one: each connection and each mapped file takes one,
// and a failed accept would end the event loops.
func raiseDescriptors() (limit uint64, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	if r.Cur < r.Max {
		r.Cur = r.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
			return 0, fmt.Errorf("raise the limit of open files to %d: %w", r.Max, err)
		}
	}
	return r.Cur, nil
}

func sayDescriptors(logger *slog.Logger) {
	limit, err := raiseDescriptors()
	switch {
	case err != nil:
		logger.Warn("descriptors", "err", err)
	case limit < descriptorsWanted:
		logger.Warn("the limit of open files is low: connections are refused at it (ulimit -n, LimitNOFILE)", "limit", limit, "recommended", descriptorsWanted)
	default:
		logger.Info("descriptors", "limit", limit)
	}
}

func sayDisk(logger *slog.Logger, fsys vfs.FS, c *storage.Config) {
	dir := existingParent(fsys, c.StorePathCommitLog)
	usage, err := fsys.Usage(dir)
	if err != nil {
		logger.Warn("free disk space is not known", "dir", dir, "err", err)
		return
	}
	args := []any{"dir", dir, "free", byteSize(usage.Free), "used_percent", int(100 * usage.Ratio()), "file_size", byteSize(c.MappedFileSizeCommitLog)}
	switch {
	case usage.Ratio()*100 >= float64(c.DiskSpaceWarningLevelRatio):
		logger.Warn("the disk is fuller than diskSpaceWarningLevelRatio: sends will be refused", args...)
	case usage.Free < diskFreeLogFiles*c.MappedFileSizeCommitLog:
		logger.Warn("the disk has room for less than two log files", args...)
	default:
		logger.Info("disk", args...)
	}
}

// existingParent is the nearest directory at or above path that is there.
func existingParent(fsys vfs.FS, path string) string {
	for {
		if _, err := fsys.Stat(path); err == nil {
			return path
		}
		parent := filepath.Dir(path)
		if parent == path {
			return path
		}
		path = parent
	}
}

// sayMemory tells what the process may use: the machine's memory, or the cgroup's limit.
func sayMemory(logger *slog.Logger) {
	physical := readKilobytes("/proc/meminfo", "MemTotal:")
	limit, from := cgroupMemoryLimit("/proc/self/cgroup", "/sys/fs/cgroup")
	args := []any{"physical", byteSize(physical)}
	if limit > 0 && limit < physical {
		args = append(args, "cgroup_limit", byteSize(limit), "from", from)
	}
	if goLimit := debug.SetMemoryLimit(-1); goLimit < 1<<62 {
		args = append(args, "GOMEMLIMIT", byteSize(goLimit))
	}
	logger.Info("memory", args...)
}

func readKilobytes(path, key string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0
			}
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// cgroupMemoryLimit returns the lowest memory limit of the process's cgroup and those above it, in bytes, and the file
// that sets it; 0 if there is none.
func cgroupMemoryLimit(selfPath, root string) (limit int64, from string) {
	self, err := os.ReadFile(selfPath)
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, name := root, "memory.max"
		if parts[1] != "" { // version 1: one hierarchy a controller
			if parts[1] != "memory" {
				continue
			}
			base, name = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			path := filepath.Join(base, dir, name)
			if n := readLimit(path); n > 0 && (limit == 0 || n < limit) {
				limit, from = n, path
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, from
}

func readLimit(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n >= 1<<62 { // "max", and version 1's word for it
		return 0
	}
	return n
}

// byteSize shows bytes in binary units.
func byteSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
