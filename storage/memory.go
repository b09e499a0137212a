// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupLimitFiles hold the memory limit of this process's container, in cgroup v2 and v1.
var cgroupLimitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// physicalMemory is the machine's memory, or the cgroup's limit where that is less: page cache is counted against it.
// Source: StoreUtil#TOTAL_PHYSICAL_MEMORY_SIZE.
func physicalMemory() int64 {
	memory := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	for _, path := range cgroupLimitFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
			memory = min(memory, limit)
		}
	}
	return memory
}
