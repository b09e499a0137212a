// SPDX-License-Identifier: Apache-2.0

package result

import (
	_ "embed"
	"html/template"
	"io"
	"math"
)

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

const (
	seriesColours = 8   // the style sheet's; further series use them again
	samplesMax    = 600 // points of a curve over time; a longer run's samples are gathered
)

type report struct {
	Title      string
	Provenance string
	Sections   []section
	Settings   []setting
}

// section is a table and the plots that belong to it.
type section struct {
	Title  string
	Head   []string
	Rows   [][]string
	Legend []legend
	Plots  []*plot
}

type legend struct {
	Name   string
	Series int
}

// setting is what a run was asked for, as its file would say it.
type setting struct {
	Label string
	Text  string
}

// WriteHTML writes a report that needs nothing but itself: a page with tables and plots of all results.
func WriteHTML(w io.Writer, title string, results []*Result) error {
	page := report{Title: title, Provenance: provenance(results)}
	for _, g := range grids(results) {
		page.Sections = append(page.Sections, section{Head: g[0], Rows: g[1:]})
	}
	var single []*Result
	for _, r := range results {
		if r.Row == "" {
			single = append(single, r)
		}
	}
	if len(single) > 0 {
		page.Sections = append(page.Sections, runSection(single))
	}
	for _, c := range Compare(results) {
		if s := comparisonSection(c); len(s.Plots) > 0 {
			page.Sections = append(page.Sections, s)
		}
	}
	for _, r := range results {
		page.Settings = append(page.Settings, setting{runName(r), r.Settings.text()})
	}
	return reportTemplate.Execute(w, page)
}

// runName tells the runs of a comparison apart.
func runName(r *Result) string {
	if r.Row == "" {
		return r.Label
	}
	return r.Row + ", " + r.Subject + ", round " + formatCount(float64(r.Round))
}

// runSection draws the runs over each other.
func runSection(results []*Result) section {
	s := section{Title: "Over time"}
	var latency, rate, lag, lagTime, percentiles []curve
	for i, r := range results {
		series := i % seriesColours
		s.Legend = append(s.Legend, legend{r.Label, series})
		samples := gather(r.Samples, samplesMax)
		over := func(name string, dashed bool, of func(Sample) float64) curve {
			c := curve{name: name, series: series, dashed: dashed}
			for _, one := range samples {
				c.points = append(c.points, point{one.At, of(one)})
			}
			return c
		}
		latency = appendDrawn(latency, over(r.Label+": p50", false, func(s Sample) float64 { return s.P50 / 1e3 }))
		latency = appendDrawn(latency, over(r.Label+": p99", true, func(s Sample) float64 { return s.P99 / 1e3 }))
		latency = appendDrawn(latency, over(r.Label+": max", true, func(s Sample) float64 { return s.Max / 1e3 }))
		rate = appendDrawn(rate, over(r.Label, false, func(s Sample) float64 { return float64(s.Messages) / max(s.Seconds, 1e-9) }))
		lag = appendDrawn(lag, over(r.Label, false, func(s Sample) float64 { return float64(s.LagBytes) / 1e6 }))
		lagTime = appendDrawn(lagTime, over(r.Label, false, func(s Sample) float64 { return s.LagSeconds }))
		percentiles = appendDrawn(percentiles, percentileCurve(r.Label, series, r.Latency))
	}
	add := func(p *plot, curves []curve) {
		if len(curves) > 0 {
			s.Plots = append(s.Plots, p)
		}
	}
	add(newPlot("Rate", "seconds", "messages/s", false, rate), rate)
	add(newPlot("Latency: p50, and dashed p99 and the maximum of each second", "seconds", "ms", true, latency), latency)
	add(newPercentilePlot("Latency by percentile", percentiles), percentiles)
	add(newPlot("Lag in bytes", "seconds", "MB", false, lag), lag)
	add(newPlot("Lag in time", "seconds", "seconds", false, lagTime), lagTime)
	return s
}

// comparisonSection draws a comparison: its subjects' latencies, all rounds together, and the rate of each round.
func comparisonSection(c *Comparison) section {
	s := section{Title: c.Row}
	var rate, percentiles []curve
	for i, subject := range c.Subjects {
		series := i % seriesColours
		s.Legend = append(s.Legend, legend{subject.Name, series})
		all := NewHistogram()
		rounds := curve{name: subject.Name, series: series}
		for _, r := range subject.Runs {
			if r.Latency != nil {
				all.Merge(r.Latency)
			}
			rounds.points = append(rounds.points, point{float64(r.Round), r.MessageRate})
		}
		rate = appendDrawn(rate, rounds)
		percentiles = appendDrawn(percentiles, percentileCurve(subject.Name, series, all))
	}
	if len(percentiles) > 0 {
		s.Plots = append(s.Plots, newPercentilePlot("Latency by percentile, all rounds", percentiles))
	}
	if len(rate) > 0 {
		s.Plots = append(s.Plots, newPlot("Rate", "round", "messages/s", false, rate))
	}
	return s
}

// appendDrawn leaves out curves without a value above 0.
func appendDrawn(curves []curve, c curve) []curve {
	for _, p := range c.points {
		if p.y > 0 {
			return append(curves, c)
		}
	}
	return curves
}

// percentileCurve goes from the first percentile to the largest latency, drawn where one of so many samples stands.
func percentileCurve(name string, series int, h *Histogram) curve {
	c := curve{name: name, series: series}
	if h == nil || h.Count() == 0 {
		return c
	}
	const step = 0.05 // of a nine
	rarest := math.Log10(float64(h.Count()))
	for nines := 0.005; nines < rarest; nines += step {
		p := 100 - math.Pow(10, 2-nines)
		c.points = append(c.points, point{p, Micros(h.Percentile(p)) / 1e3})
	}
	c.points = append(c.points, point{100 - 100/float64(h.Count()), Micros(h.Max()) / 1e3})
	return c
}

// gather joins neighbours until there are at most most samples: sums of messages, maxima, and of medians the mean, in which
// each message has the same weight: a second without any says nothing.
func gather(samples []Sample, most int) []Sample {
	if len(samples) <= most {
		return samples
	}
	n := (len(samples) + most - 1) / most
	var gathered []Sample
	for i := 0; i < len(samples); i += n {
		var g Sample
		group := samples[i:min(i+n, len(samples))]
		for _, s := range group {
			g.At, g.Seconds, g.Messages, g.Errors = s.At, g.Seconds+s.Seconds, g.Messages+s.Messages, g.Errors+s.Errors
			if s.Messages > 0 {
				g.P50 += (s.P50 - g.P50) * float64(s.Messages) / float64(g.Messages)
			}
			g.P99, g.Max = max(g.P99, s.P99), max(g.Max, s.Max)
			g.LagBytes, g.LagSeconds = max(g.LagBytes, s.LagBytes), max(g.LagSeconds, s.LagSeconds)
		}
		gathered = append(gathered, g)
	}
	return gathered
}
