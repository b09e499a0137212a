// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// grid is a table: a head, then rows of as many cells.
type grid [][]string

// columnsAtOnce is how many runs stand side by side before a table is continued below.
const columnsAtOnce = 4

// WriteText writes what people read on a terminal: comparisons, then the other runs.
func WriteText(w io.Writer, results []*Result) error {
	return write(w, results, grid.text)
}

// WriteMarkdown writes the same as tables of Markdown.
func WriteMarkdown(w io.Writer, results []*Result) error {
	return write(w, results, grid.markdown)
}

func write(w io.Writer, results []*Result, form func(grid) string) error {
	var parts []string
	for _, g := range grids(results) {
		parts = append(parts, form(g))
	}
	if about := provenance(results); about != "" {
		parts = append(parts, about+"\n")
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// grids are the tables of a set of results. Comparisons with the same subjects share a table.
func grids(results []*Result) []grid {
	var all []grid
	var last []string
	for _, c := range Compare(results) {
		names := subjectNames(c)
		if last == nil || !slices.Equal(names, last) {
			all = append(all, grid{comparisonHead(names)})
			last = names
		}
		all[len(all)-1] = append(all[len(all)-1], comparisonRows(c)...)
	}
	var single []*Result
	for _, r := range results {
		if r.Row == "" {
			single = append(single, r)
		}
	}
	for some := range slices.Chunk(single, columnsAtOnce) {
		all = append(all, runGrid(some))
	}
	if g := stallGrid(results); g != nil {
		all = append(all, g)
	}
	return all
}

func subjectNames(c *Comparison) []string {
	var names []string
	for _, s := range c.Subjects {
		names = append(names, s.Name)
	}
	return names
}

func comparisonHead(names []string) []string {
	head := []string{"work", "figure", names[0]}
	for _, n := range names[1:] {
		head = append(head, n, "ratio")
	}
	return head
}

// comparisonRows are a line for each figure: the median of each subject with least and largest, and its ratio to the
// first subject.
func comparisonRows(c *Comparison) grid {
	var rows grid
	work := c.Row
	for _, f := range Figures {
		if f.Name == "MB/s" {
			continue // the same ratio as the rate's
		}
		reference := c.Subjects[0].Figure(f)
		row := []string{work, f.Name}
		any := false
		for i, s := range c.Subjects {
			byRound := s.Figure(f)
			row = append(row, SpreadOf(values(byRound)).text(f.format))
			any = any || len(byRound) > 0
			if i == 0 {
				continue
			}
			if f.context {
				row = append(row, "")
				continue
			}
			ratio, ok := RatioOf(reference, byRound)
			row = append(row, ratio.text(ok))
		}
		if any {
			rows = append(rows, row)
			work = ""
		}
	}
	if c.Base != nil {
		row := []string{work, CostFigure + ", of " + c.Base.Row}
		for i, s := range c.Subjects {
			row = append(row, c.costText(s.Name))
			if i > 0 {
				row = append(row, "")
			}
		}
		rows = append(rows, row)
		work = ""
	}
	var failed int64
	for _, s := range c.Subjects {
		for _, r := range s.Runs {
			failed += r.ErrorCount()
		}
	}
	if failed > 0 {
		row := []string{work, "errors"}
		for i, s := range c.Subjects {
			var n int64
			for _, r := range s.Runs {
				n += r.ErrorCount()
			}
			row = append(row, formatCount(float64(n)))
			if i > 0 {
				row = append(row, "")
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *Comparison) costText(subject string) string {
	ratio, ok := c.Cost(subject)
	return ratio.text(ok)
}

// stallsShown bounds the lines of a table of stalls; the record has them all.
const stallsShown = 40

// stallGrid lists the stalls of all runs; nil when there were none.
func stallGrid(results []*Result) grid {
	g := grid{{"late answers of", "at s", "ms", "messages", "cause", "seen by"}}
	more := 0
	for _, r := range results {
		for _, s := range r.Stalls {
			if len(g) > stallsShown {
				more++
				continue
			}
			g = append(g, []string{runName(r), formatFine(s.At), formatFine(s.Millis), formatCount(float64(s.Messages)), s.Cause, s.Seen})
		}
	}
	if more > 0 {
		g = append(g, []string{fmt.Sprintf("and %d more", more), "", "", "", "", ""})
	}
	if len(g) == 1 {
		return nil
	}
	return g
}

func (s Spread) text(format func(float64) string) string {
	switch s.N {
	case 0:
		return "–"
	case 1:
		return format(s.Median)
	default:
		return fmt.Sprintf("%s (%s–%s)", format(s.Median), format(s.Min), format(s.Max))
	}
}

func (r Ratio) text(ok bool) string {
	switch {
	case !ok:
		return "–"
	case r.Rounds < 2:
		return "× " + formatFine(r.Median)
	default:
		return fmt.Sprintf("× %s (%s–%s)", formatFine(r.Median), formatFine(r.Min), formatFine(r.Max))
	}
}

// runGrid has a column for each run and a line for each figure that any of them has.
func runGrid(results []*Result) grid {
	g := grid{{""}}
	for _, r := range results {
		g[0] = append(g[0], r.Label)
	}
	line := func(name string, cell func(*Result) string) {
		row := []string{name}
		any := false
		for _, r := range results {
			text := cell(r)
			any = any || text != ""
			row = append(row, text)
		}
		if any {
			g = append(g, row)
		}
	}
	line("messages", func(r *Result) string { return unlessZero(float64(r.Messages), formatCount) })
	line("seconds", func(r *Result) string { return unlessZero(r.Seconds, formatFine) })
	for _, f := range Figures {
		if strings.HasPrefix(f.Name, "p") || strings.Contains(f.Name, "CPU s/M") || f.context {
			continue // told in more detail below
		}
		line(f.Name, func(r *Result) string {
			if v, ok := f.Of(r); ok {
				return f.format(v)
			}
			return ""
		})
	}
	for _, p := range Percentiles {
		line(fmt.Sprintf("p%g ms", p), func(r *Result) string {
			if v, ok := percentile(r, p); ok {
				return formatFine(v)
			}
			return ""
		})
	}
	line("max ms", func(r *Result) string {
		if r.Latency == nil || r.Latency.Count() == 0 {
			return ""
		}
		return formatFine(Micros(r.Latency.Max()) / 1e3)
	})
	line("errors", func(r *Result) string { return errorText(r.Errors) })
	line("accounted for", func(r *Result) string { return r.Accounted.text() })
	line("largest lag", func(r *Result) string { return lagText(r.Samples) })
	usageLines(results, line)
	line("others' CPU %", func(r *Result) string {
		if v, ok := othersCPU(r); ok {
			return formatFine(v)
		}
		return ""
	})
	return g
}

// usageLines are what each server and the generator used; per million messages where there were messages.
func usageLines(results []*Result, line func(string, func(*Result) string)) {
	var names []string
	for _, r := range results {
		for _, u := range usages(r) {
			if !slices.Contains(names, u.Name) {
				names = append(names, u.Name)
			}
		}
	}
	for _, name := range names {
		of := func(cell func(Usage) string) func(*Result) string {
			return func(r *Result) string {
				for _, u := range usages(r) {
					if u.Name == name {
						return cell(u)
					}
				}
				return ""
			}
		}
		line(name+": CPU s", of(func(u Usage) string { return formatFine(u.CPUSeconds) }))
		line(name+": CPU s/M", of(perMillion(func(p PerMillion) string { return formatFine(p.CPUSeconds) })))
		line(name+": waits/M", of(perMillion(func(p PerMillion) string { return formatCount(p.Voluntary) })))
		line(name+": preemptions/M", of(perMillion(func(p PerMillion) string { return formatCount(p.Involuntary) })))
		line(name+": written/M", of(func(u Usage) string {
			if u.BytesUnknown {
				return "not ours to see"
			}
			return perMillion(func(p PerMillion) string { return formatBytes(p.BytesWritten) })(u)
		}))
		line(name+": RSS, anonymous", of(func(u Usage) string { return formatBytes(float64(u.RSSAnon)) }))
		line(name+": RSS", of(func(u Usage) string { return formatBytes(float64(u.RSS)) }))
		line(name+": threads", of(func(u Usage) string { return unlessZero(float64(u.Threads), formatCount) }))
	}
}

func usages(r *Result) []Usage {
	all := slices.Clone(r.Servers)
	if r.GeneratorCost != nil {
		all = append(all, *r.GeneratorCost)
	}
	return all
}

func perMillion(cell func(PerMillion) string) func(Usage) string {
	return func(u Usage) string {
		if u.PerMillion == nil {
			return ""
		}
		return cell(*u.PerMillion)
	}
}

func unlessZero(v float64, format func(float64) string) string {
	if v == 0 {
		return ""
	}
	return format(v)
}

func errorText(errors map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(errors)) {
		parts = append(parts, fmt.Sprintf("%s %s", formatCount(float64(errors[name])), name))
	}
	return strings.Join(parts, ", ")
}

func (a *Account) text() string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s acknowledged: %s lost, %s twice, %s out of order; %s more read", formatCount(float64(a.Acknowledged)), formatCount(float64(a.Lost)),
		formatCount(float64(a.Duplicated)), formatCount(float64(a.Reordered)), formatCount(float64(a.Unconfirmed))) + a.worse()
}

// worse is what no broker does, as far as we know.
func (a *Account) worse() string {
	if a.Corrupt == 0 && a.Misplaced == 0 {
		return ""
	}
	return fmt.Sprintf("; %s corrupt, %s in another place", formatCount(float64(a.Corrupt)), formatCount(float64(a.Misplaced)))
}

func lagText(samples []Sample) string {
	var bytes int64
	var seconds float64
	for _, s := range samples {
		bytes, seconds = max(bytes, s.LagBytes), max(seconds, s.LagSeconds)
	}
	if bytes == 0 && seconds == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s s", formatBytes(float64(bytes)), formatFine(seconds))
}

// Summary is a run in a line.
func (r *Result) Summary() string {
	var parts []string
	for _, f := range Figures {
		if v, ok := f.Of(r); ok {
			parts = append(parts, f.Name+" "+f.format(v))
		}
	}
	if n := r.ErrorCount(); n > 0 {
		parts = append(parts, errorText(r.Errors))
	}
	return strings.Join(parts, ", ")
}

// provenance is when, where and of what the results are.
func provenance(results []*Result) string {
	var parts []string
	add := func(s string) {
		if s != "" && !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	for _, r := range results {
		add(r.Started.UTC().Format("2006-01-02"))
	}
	for _, r := range results {
		add(r.Host.text())
	}
	for _, r := range results {
		add(r.Server.text())
	}
	for _, r := range results {
		if tool := r.Tool.text(); tool != "" {
			add("measured by " + tool)
		}
	}
	return strings.Join(parts, "; ")
}

func (h Host) text() string {
	if h.CPU == "" {
		return ""
	}
	text := fmt.Sprintf("%d × %s", h.CPUs, h.CPU)
	for _, more := range []string{unlessZero(float64(h.Memory), formatBytes), h.Kernel, h.FileSystem, unlessEmpty("page cache ", h.PageCache)} {
		if more != "" {
			text += ", " + more
		}
	}
	return text
}

func (b Build) text() string {
	return strings.Join(slices.DeleteFunc([]string{b.Name, b.Version, b.Commit}, func(s string) bool { return s == "" }), " ")
}

// text pads the cells.
func (g grid) text() string {
	widths := make([]int, len(g[0]))
	for _, row := range g {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range g {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line += "  "
			}
			line += cell + pad
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (g grid) markdown() string {
	var b strings.Builder
	for i, row := range g {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// unlessEmpty is text with what it is in front, or nothing.
func unlessEmpty(what, text string) string {
	if text == "" {
		return ""
	}
	return what + text
}
