// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/load"
)

// benchProgressEvery is how often a run tells how it goes where nobody watches.
const benchProgressEvery = 10 * time.Second

// benchProgress shows how a run goes: one line that changes on a terminal, else a line now and then.
type benchProgress struct {
	out      *os.File
	terminal bool
	width    int // of the line that stands there
	last     time.Time
}

func newBenchProgress(out *os.File) *benchProgress {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &benchProgress{out: out, terminal: err == nil, last: time.Now()}
}

func (b *benchProgress) show(p load.Progress) {
	line := benchProgressLine(p)
	if b.terminal {
		fmt.Fprintf(b.out, "\r%s%s", line, strings.Repeat(" ", max(0, b.width-len(line))))
		b.width = len(line)
		return
	}
	if now := time.Now(); now.Sub(b.last) >= benchProgressEvery {
		b.last = now
		fmt.Fprintln(b.out, line)
	}
}

// done takes the changing line away.
func (b *benchProgress) done() {
	if b.terminal && b.width > 0 {
		fmt.Fprintf(b.out, "\r%s\r", strings.Repeat(" ", b.width))
		b.width = 0
	}
}

func benchProgressLine(p load.Progress) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s %.0f s", p.Phase, p.Elapsed.Seconds())
	if p.Of > 0 {
		fmt.Fprintf(&line, " of %.0f s", p.Of.Seconds())
	}
	fmt.Fprintf(&line, "  %d messages  %.0f/s", p.Messages, p.Rate)
	if p.Latency != nil {
		fmt.Fprintf(&line, "  p50 %s  p99 %s  max %s", shortDuration(p.Latency.Percentile(50)), shortDuration(p.Latency.Percentile(99)), shortDuration(p.Latency.Max()))
	}
	if p.Errors > 0 {
		fmt.Fprintf(&line, "  %d errors", p.Errors)
	}
	return line.String()
}

func shortDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
