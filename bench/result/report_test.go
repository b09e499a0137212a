// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// reports are pages of all kinds of results.
func reports(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	for name, results := range map[string][]*Result{
		"none":       nil,
		"one":        {sampleRun(1, "one")},
		"several":    {sampleRun(1, "one"), sampleRun(2, `</svg><script>alert("x")</script>`), sampleRun(3, "three")},
		"bare":       {{Label: "bare"}, {Label: "bare", Row: "row", Subject: "x"}},
		"comparison": append(sampleComparison(), sampleRun(4, "beside")),
	} {
		var page bytes.Buffer
		if err := WriteHTML(&page, "Report <of> "+name, results); err != nil {
			t.Fatal(err)
		}
		pages[name] = page.String()
	}
	return pages
}

// The page is written so that an XML parser takes it: every tag is closed, every text escaped.
func TestReportIsWellFormed(t *testing.T) {
	for name, page := range reports(t) {
		d := xml.NewDecoder(strings.NewReader(page))
		d.Entity = xml.HTMLEntity
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("page %s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "script" {
				t.Errorf("page %s has a script", name)
			}
		}
	}
}

// The page fetches nothing: no addresses, no styles or images from elsewhere.
func TestReportIsOffline(t *testing.T) {
	reference := regexp.MustCompile(`(?i)https?:|//[a-z]|\b(src|href|xlink:href|action|data)\s*=|@import|url\(`)
	for name, page := range reports(t) {
		if found := reference.FindString(page); found != "" {
			t.Errorf("page %s refers to something: %q", name, found)
		}
	}
}

// Every curve stays within its frame and has numbers only.
func TestReportCurves(t *testing.T) {
	points := regexp.MustCompile(`points="([^"]*)"`)
	pages := reports(t)
	for name, page := range pages {
		for _, m := range points.FindAllStringSubmatch(page, -1) {
			for _, pair := range strings.Fields(m[1]) {
				x, y, _ := strings.Cut(pair, ",")
				a, errX := strconv.ParseFloat(x, 64)
				b, errY := strconv.ParseFloat(y, 64)
				if errX != nil || errY != nil || a < plotLeft || a > plotWidth-plotRight || b < plotTop || b > plotHeight-plotBottom || math.IsNaN(a+b) {
					t.Fatalf("page %s: point %s is outside of its frame", name, pair)
				}
			}
		}
	}
	for _, title := range []string{"Rate", "Latency: p50", "Latency by percentile", "Lag in bytes", "Lag in time"} {
		if !strings.Contains(pages["one"], "<figcaption>"+title) {
			t.Errorf("no plot %q", title)
		}
	}
	if strings.Contains(pages["bare"], "<svg") {
		t.Error("a plot of nothing")
	}
}

func TestGatherKeepsSumsAndMaxima(t *testing.T) {
	var samples []Sample
	for i := range 1000 {
		samples = append(samples, Sample{At: float64(i + 1), Seconds: 1, Messages: int64(i), P50: 2, P99: float64(i % 77), Max: float64(i % 99), LagBytes: int64(i % 55)})
	}
	for _, most := range []int{1, 7, 600, 999, 1000, 2000} {
		got := gather(samples, most)
		if len(got) > most {
			t.Fatalf("%d samples; want at most %d", len(got), most)
		}
		var messages, lag int64
		var seconds, p99, longest float64
		for _, s := range got {
			messages += s.Messages
			seconds += s.Seconds
			p99, longest, lag = max(p99, s.P99), max(longest, s.Max), max(lag, s.LagBytes)
			if math.Abs(s.P50-2) > 1e-9 {
				t.Fatalf("p50 of %v", s.P50)
			}
		}
		if messages != 999*1000/2 || seconds != 1000 || p99 != 76 || longest != 98 || lag != 54 || got[len(got)-1].At != 1000 {
			t.Errorf("at most %d: %d messages, %v s, p99 %v, max %v, lag %d", most, messages, seconds, p99, longest, lag)
		}
	}
}

// A standstill does not make the median of the seconds around it smaller.
func TestGatherOfAStandstill(t *testing.T) {
	got := gather([]Sample{{Seconds: 1, Messages: 100, P50: 4}, {Seconds: 1}, {Seconds: 1, Messages: 300, P50: 8}, {Seconds: 1}}, 1)
	if len(got) != 1 || got[0].P50 != 7 || got[0].Messages != 400 || got[0].Seconds != 4 {
		t.Errorf("%+v; want a median of 7", got)
	}
}
