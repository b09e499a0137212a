// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"math"
	"strings"
)

// plot is a chart for the HTML report: lines in a frame with ticks, ready to be written as SVG.
type plot struct {
	Title, XLabel, YLabel string
	Width, Height         float64
	Left, Top             float64 // of the frame
	Right, Bottom         float64
	XTicks, YTicks        []tick
	Lines                 []line
}

type tick struct {
	At    float64
	Label string
}

// line is a curve; Series picks its colour, Dashed marks the companion of another one.
type line struct {
	Name   string
	Series int
	Dashed bool
	Points string // of an SVG polyline
}

type point struct{ x, y float64 }

// curve is a line before it is scaled.
type curve struct {
	name   string
	series int
	dashed bool
	points []point
}

const (
	plotWidth, plotHeight = 600, 270
	plotLeft, plotRight   = 62, 24
	plotTop, plotBottom   = 10, 40
)

// axis maps values to a range of pixels.
type axis struct {
	from, to float64 // values
	log      bool
}

// at is the place of v on the axis, from 0 to 1.
func (a axis) at(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, v = math.Log10(from), math.Log10(to), math.Log10(max(v, a.from))
	}
	return min(max((v-from)/(to-from), 0), 1)
}

// linearAxis begins at 0 and ends at a round value; it has about five ticks.
func linearAxis(most float64) (axis, []float64) {
	if most <= 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(m*step) <= 5 {
			step *= m
			break
		}
	}
	n := math.Ceil(most/step - 1e-9)
	var ticks []float64
	for i := 0.0; i <= n; i++ {
		ticks = append(ticks, i*step)
	}
	return axis{to: n * step}, ticks
}

// logAxis has a tick for each power of ten.
func logAxis(least, most float64) (axis, []float64) {
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if from == to {
		to++
	}
	var ticks []float64
	for e := from; e <= to; e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	return axis{from: math.Pow(10, from), to: math.Pow(10, to), log: true}, ticks
}

// newPlot scales curves into a frame. A logarithmic axis takes values above 0 only; others are left out.
func newPlot(title, xLabel, yLabel string, logY bool, curves []curve) *plot {
	p := frame(title, xLabel, yLabel)
	least, mostY, mostX := math.Inf(1), 0.0, 0.0
	for _, c := range curves {
		for _, q := range c.points {
			mostX, mostY = max(mostX, q.x), max(mostY, q.y)
			if q.y > 0 {
				least = min(least, q.y)
			}
		}
	}
	x, xTicks := linearAxis(mostX)
	x.to = max(mostX, 1e-9) // a run ends where it ends
	y, yTicks := linearAxis(mostY)
	if logY && mostY > 0 {
		y, yTicks = logAxis(least, mostY)
	}
	for _, t := range xTicks {
		if t <= x.to {
			p.XTicks = append(p.XTicks, tick{p.x(x.at(t)), axisLabel(t)})
		}
	}
	p.yTicks(y, yTicks)
	p.draw(curves, x.at, y)
	return p
}

// newPercentilePlot spreads the right end: each nine of the percentile takes the same room.
func newPercentilePlot(title string, curves []curve) *plot {
	p := frame(title, "percentile", "ms")
	const nines = 5
	x := func(percentile float64) float64 {
		return min(-math.Log10(max(1-percentile/100, math.Pow(10, -nines)))/nines, 1)
	}
	for _, v := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		p.XTicks = append(p.XTicks, tick{p.x(x(v)), fmt.Sprintf("%g", v)})
	}
	least, most := math.Inf(1), 0.0
	for _, c := range curves {
		for _, q := range c.points {
			least, most = min(least, q.y), max(most, q.y)
		}
	}
	y, yTicks := logAxis(max(least, 1e-4), max(most, 1e-4))
	p.yTicks(y, yTicks)
	p.draw(curves, x, y)
	return p
}

func frame(title, xLabel, yLabel string) *plot {
	return &plot{
		Title: title, XLabel: xLabel, YLabel: yLabel, Width: plotWidth, Height: plotHeight,
		Left: plotLeft, Right: plotWidth - plotRight, Top: plotTop, Bottom: plotHeight - plotBottom,
	}
}

func (p *plot) x(part float64) float64 { return round1(p.Left + part*(p.Right-p.Left)) }
func (p *plot) y(part float64) float64 { return round1(p.Bottom - part*(p.Bottom-p.Top)) }

func (p *plot) yTicks(y axis, values []float64) {
	for _, t := range values {
		p.YTicks = append(p.YTicks, tick{p.y(y.at(t)), axisLabel(t)})
	}
}

func (p *plot) draw(curves []curve, x func(float64) float64, y axis) {
	for _, c := range curves {
		var b strings.Builder
		for _, q := range c.points {
			if y.log && q.y <= 0 {
				continue
			}
			fmt.Fprintf(&b, "%g,%g ", p.x(x(q.x)), p.y(y.at(q.y)))
		}
		p.Lines = append(p.Lines, line{Name: c.name, Series: c.series, Dashed: c.dashed, Points: strings.TrimSpace(b.String())})
	}
}

func round1(v float64) float64 { return math.Round(v*10) / 10 }

// axisLabel is short: 0.01, 5, 20k, 1.5M.
func axisLabel(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	default:
		return fmt.Sprintf("%.6g", v)
	}
}
