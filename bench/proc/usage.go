// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/result"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc: 100 on every architecture of Linux that Go knows.
const ticksPerSecond = 100

// counters are the figures of a process that only grow, and those of the moment.
type counters struct {
	startTicks             uint64 // when the process began: tells a reused PID
	cpu                    time.Duration
	userTicks, systemTicks int64
	minorFaults            int64
	majorFaults            int64
	bytesRead              int64
	bytesWritten           int64
	bytesUnknown           bool
	rss, rssAnon           int64
	threads                int
}

// switches are the context switches of a thread.
type switches struct{ voluntary, involuntary int64 }

// watch follows a process over a window.
type watch struct {
	name       string
	pid        int
	base       counters
	rssAnonMax int64
	// By thread: where it stood when the window began (0 if it did not exist), and where it was seen last.
	tasksBase, tasksLast map[int]switches
}

func newWatch(name string, pid int) (*watch, error) {
	w := &watch{name: name, pid: pid}
	return w, w.begin()
}

// begin starts the window anew.
func (w *watch) begin() (err error) {
	if w.tasksBase, err = readTasks(w.pid); err != nil {
		return fmt.Errorf("process %d: %w", w.pid, err)
	}
	w.tasksLast = maps.Clone(w.tasksBase)
	if w.base, err = readCounters(w.pid); err != nil {
		return fmt.Errorf("process %d: %w", w.pid, err)
	}
	w.rssAnonMax = w.base.rssAnon
	return nil
}

// sample looks at the threads, so that less is lost when they end.
func (w *watch) sample() error {
	tasks, err := readTasks(w.pid)
	if err != nil {
		return fmt.Errorf("process %d: %w", w.pid, err)
	}
	for tid, now := range tasks {
		w.seen(tid, now)
	}
	text, err := readProc(w.pid, "status")
	if err != nil {
		return err
	}
	w.rssAnonMax = max(w.rssAnonMax, statusField(text, "RssAnon:")<<10)
	return nil
}

// seen takes note of a thread. If its figures went back, its number went to another thread: what the first one did is
// kept as if it were this one's.
func (w *watch) seen(tid int, now switches) {
	if last := w.tasksLast[tid]; now.voluntary < last.voluntary || now.involuntary < last.involuntary {
		base := w.tasksBase[tid]
		w.tasksBase[tid] = switches{base.voluntary - last.voluntary, base.involuntary - last.involuntary}
	}
	w.tasksLast[tid] = now
}

// usage is what the process used since begin.
func (w *watch) usage() (result.Usage, error) {
	now, err := readCounters(w.pid)
	if err == nil {
		err = w.sample()
	}
	if err != nil {
		return result.Usage{}, fmt.Errorf("process %d: %w", w.pid, err)
	}
	if now.startTicks != w.base.startTicks {
		return result.Usage{}, fmt.Errorf("process %d ended, and another one has its number", w.pid)
	}
	u := result.Usage{
		Name: w.name, PID: w.pid,
		CPUSeconds:    (now.cpu - w.base.cpu).Seconds(),
		UserSeconds:   float64(now.userTicks-w.base.userTicks) / ticksPerSecond,
		SystemSeconds: float64(now.systemTicks-w.base.systemTicks) / ticksPerSecond,
		RSS:           now.rss, RSSAnon: now.rssAnon, RSSAnonStart: w.base.rssAnon, RSSAnonMax: w.rssAnonMax, Threads: now.threads,
		BytesRead: now.bytesRead - w.base.bytesRead, BytesWritten: now.bytesWritten - w.base.bytesWritten, BytesUnknown: now.bytesUnknown,
		MajorFaults: now.majorFaults - w.base.majorFaults, MinorFaults: now.minorFaults - w.base.minorFaults,
	}
	for tid, last := range w.tasksLast {
		base := w.tasksBase[tid]
		u.Voluntary += last.voluntary - base.voluntary
		u.Involuntary += last.involuntary - base.involuntary
	}
	return u, nil
}

func readCounters(pid int) (c counters, err error) {
	stat, err := readProc(pid, "stat")
	if err != nil {
		return c, err
	}
	if err := c.parseStat(stat); err != nil {
		return c, err
	}
	status, err := readProc(pid, "status")
	if err != nil {
		return c, err
	}
	c.rss, c.rssAnon = statusField(status, "VmRSS:")<<10, statusField(status, "RssAnon:")<<10
	io, err := readProc(pid, "io")
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return c, err
	}
	c.bytesUnknown = err != nil
	c.bytesRead, c.bytesWritten = statusField(io, "read_bytes:"), statusField(io, "write_bytes:")
	c.cpu, err = cpuClock(pid)
	return c, err
}

// parseStat reads /proc/PID/stat. The name of the program, in parentheses, may hold anything: fields are counted from
// the last parenthesis, where the third begins.
func (c *counters) parseStat(text []byte) error {
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	const (
		third = 3
		last  = 22
	)
	if end < 0 || len(fields) <= last-third {
		return fmt.Errorf("stat %q: too short", text)
	}
	var failed error
	number := func(field int) int64 {
		n, err := strconv.ParseInt(fields[field-third], 10, 64)
		if err != nil {
			failed = fmt.Errorf("stat: field %d is %q", field, fields[field-third])
		}
		return n
	}
	c.minorFaults, c.majorFaults = number(10), number(12)
	c.userTicks, c.systemTicks = number(14), number(15)
	c.threads = int(number(20))
	c.startTicks = uint64(number(last))
	return failed
}

// statusField is the number behind a name at the start of a line; 0 if there is none.
func statusField(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				return 0
			}
			n, err := strconv.ParseInt(string(fields[0]), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// cpuClock is what clock_getcpuclockid(3) gives: the CPU clock of another process.
func cpuClock(pid int) (time.Duration, error) {
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// readTasks reads the context switches of all threads. One that ends meanwhile is left out.
func readTasks(pid int) (map[int]switches, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	tasks := make(map[int]switches, len(entries))
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := readProc(pid, "task/"+e.Name()+"/status")
		if err != nil {
			continue
		}
		tasks[tid] = switches{statusField(text, "voluntary_ctxt_switches:"), statusField(text, "nonvoluntary_ctxt_switches:")}
	}
	return tasks, nil
}

func readProc(pid int, name string) ([]byte, error) {
	return os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
}
