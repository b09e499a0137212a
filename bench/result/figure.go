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

func percentile(r *Result, p float64) (float64, bool) {
	if r.Latency == nil || r.Latency.Count() == 0 {
		return 0, false
	}
	return Micros(r.Latency.Percentile(p)) / 1e3, true
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
