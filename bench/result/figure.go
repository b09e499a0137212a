// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"math"
	"strconv"
)

// Figure is one number that runs are compared by.
type Figure struct {
	Name    string // with its unit
	Of      func(*Result) (float64, bool)
	format  func(float64) string
	context bool // it tells how far the others can be believed: a ratio says nothing
}

// Figures in the order of a table's columns.
var Figures = []Figure{
	{Name: "msg/s", Of: func(r *Result) (float64, bool) { return r.MessageRate, r.Messages > 0 }, format: formatCount},
	{Name: "MB/s", Of: func(r *Result) (float64, bool) {
		return float64(r.BodyBytes) / 1e6 / r.Seconds, r.BodyBytes > 0 && r.Seconds > 0
	}, format: formatFine},
	{Name: "CPU s/M", Of: func(r *Result) (float64, bool) { return perMillionCPU(r, 0) }, format: formatFine},
	{Name: "slave CPU s/M", Of: func(r *Result) (float64, bool) { return perMillionCPU(r, 1) }, format: formatFine},
	{Name: "p50 ms", Of: func(r *Result) (float64, bool) { return percentile(r, 50) }, format: formatFine},
	{Name: "p99 ms", Of: func(r *Result) (float64, bool) { return percentile(r, 99) }, format: formatFine},
	{Name: "p99.9 ms", Of: func(r *Result) (float64, bool) { return percentile(r, 99.9) }, format: formatFine},
	{Name: "took s", Of: func(r *Result) (float64, bool) { return r.TookSeconds, r.TookSeconds > 0 }, format: formatFine},
	{Name: "log MB/s", Of: func(r *Result) (float64, bool) {
		return float64(r.LogBytes) / 1e6 / r.TookSeconds, r.Settings.Workload == "catchup" && r.TookSeconds > 0
	}, format: formatFine},
	{Name: "pump MB/s", Of: func(r *Result) (float64, bool) {
		return float64(r.LogBytes) / 1e6 / r.PumpSeconds, r.PumpSeconds > 0
	}, format: formatFine, context: true},
	{Name: "% of the pump", Of: func(r *Result) (float64, bool) {
		return 100 * r.PumpSeconds / r.TookSeconds, r.PumpSeconds > 0 && r.TookSeconds > 0
	}, format: formatFine},
	{Name: "to disk, log MB/s", Of: func(r *Result) (float64, bool) {
		return float64(r.LogBytes) / 1e6 / r.SyncedSeconds, r.SyncedSeconds > 0
	}, format: formatFine},
	{Name: "to disk, pump MB/s", Of: func(r *Result) (float64, bool) {
		return float64(r.LogBytes) / 1e6 / r.PumpSynced, r.PumpSynced > 0
	}, format: formatFine, context: true},
	{Name: "to disk, % of the pump", Of: func(r *Result) (float64, bool) {
		return 100 * r.PumpSynced / r.SyncedSeconds, r.PumpSynced > 0 && r.SyncedSeconds > 0
	}, format: formatFine},
	{Name: "null server's p99.9 ms", Of: func(r *Result) (float64, bool) { return histogramPercentile(r.Null, 99.9) }, format: formatFine, context: true},
	{Name: "stalls, server's", Of: func(r *Result) (float64, bool) { return r.stalls(CauseServer), r.Null != nil }, format: formatCount, context: true},
	{Name: "stalls, host's", Of: func(r *Result) (float64, bool) { return r.stalls(CauseHost), r.Null != nil }, format: formatCount, context: true},
	{Name: "read beside", Of: func(r *Result) (float64, bool) { return float64(r.Beside), r.Settings.Backlog > 0 }, format: formatCount, context: true},
	{Name: "anon MB before", Of: func(r *Result) (float64, bool) { return stalledFigure(r, server(r).RSSAnonStart) }, format: formatFine},
	{Name: "anon MB at most", Of: func(r *Result) (float64, bool) { return stalledFigure(r, server(r).RSSAnonMax) }, format: formatFine},
	{Name: "anon MB", Of: func(r *Result) (float64, bool) { return idleFigure(r, float64(server(r).RSSAnon)/1e6) }, format: formatFine},
	{Name: "threads", Of: func(r *Result) (float64, bool) { return idleFigure(r, float64(server(r).Threads)) }, format: formatCount},
	{Name: "idle CPU %", Of: func(r *Result) (float64, bool) { return idleFigure(r, 100*server(r).CPUSeconds/r.Seconds) }, format: formatFine},
	{Name: "generator's CPU s/M", Of: generatorCPU, format: formatFine, context: true},
	{Name: "others' CPU %", Of: othersCPU, format: formatFine, context: true},
}

func generatorCPU(r *Result) (float64, bool) {
	if r.GeneratorCost == nil || r.GeneratorCost.PerMillion == nil {
		return 0, false
	}
	return r.GeneratorCost.PerMillion.CPUSeconds, true
}

// othersCPU is in percent of a processor. A run that others took much from tells little.
func othersCPU(r *Result) (float64, bool) {
	if r.Others == nil || r.Others.Seconds <= 0 {
		return 0, false
	}
	return 100 * (r.Others.CPUSeconds + r.Others.StealSeconds) / r.Others.Seconds, true
}

func server(r *Result) Usage {
	if len(r.Servers) == 0 {
		return Usage{}
	}
	return r.Servers[0]
}

func perMillionCPU(r *Result, i int) (float64, bool) {
	if i >= len(r.Servers) || r.Servers[i].PerMillion == nil {
		return 0, false
	}
	return r.Servers[i].PerMillion.CPUSeconds, true
}

func percentile(r *Result, p float64) (float64, bool) { return histogramPercentile(r.Latency, p) }

func histogramPercentile(h *Histogram, p float64) (float64, bool) {
	if h == nil || h.Count() == 0 {
		return 0, false
	}
	return Micros(h.Percentile(p)) / 1e3, true
}

func (r *Result) stalls(cause string) float64 {
	n := 0
	for _, s := range r.Stalls {
		if s.Cause == cause {
			n++
		}
	}
	return float64(n)
}

// stalledFigure is a figure of memory that is asked of a master whose slave does not read.
func stalledFigure(r *Result, bytes int64) (float64, bool) {
	return float64(bytes) / 1e6, r.Settings.Workload == "stalled" && len(r.Servers) > 0
}

// idleFigure is a figure that means something only of a server without load.
func idleFigure(r *Result, v float64) (float64, bool) {
	return v, r.Settings.Workload == "idle" && len(r.Servers) > 0 && r.Seconds > 0
}

// formatCount groups thousands: 1,300,000.
func formatCount(v float64) string {
	s := strconv.FormatFloat(math.Round(math.Abs(v)), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if math.Round(v) < 0 {
		return "-" + s
	}
	return s
}

// formatFine keeps three digits that say something: 0.0123, 1.23, 12.3, 123.
func formatFine(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 0.0005:
		return fmt.Sprintf("%.1e", v)
	case a < 1:
		return fmt.Sprintf("%.3f", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return formatCount(v)
	}
}

// formatBytes is 1.5 kB, 20 MB, 3.2 GB.
func formatBytes(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if math.Abs(v) >= unit.size {
			return formatFine(v/unit.size) + " " + unit.name
		}
	}
	return formatCount(v) + " B"
}
