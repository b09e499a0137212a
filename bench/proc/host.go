// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"loopmq/bench/result"
)

// HostOf describes this machine, and the file system that dir is on; no dir is none. What cannot be read is left out.
func HostOf(dir string) result.Host {
	h := result.Host{CPU: runtime.GOARCH, CPUs: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				h.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		h.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		release, _, _ := bytes.Cut(name.Release[:], []byte{0})
		h.Kernel = "Linux " + string(release)
	}
	if dir != "" {
		h.FileSystem = fileSystem(dir)
	}
	return h
}

// fileSystem is the type of the file system of the longest mount point above dir.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range strings.Lines(string(text)) {
		var device, point, typ string
		if n, _ := fmt.Sscan(line, &device, &point, &typ); n < 3 {
			continue
		}
		if rel, err := filepath.Rel(point, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && len(point) >= len(best) {
			best, kind = point, typ
		}
	}
	return kind
}
