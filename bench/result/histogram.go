// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	latencyMin    = 100 * time.Nanosecond
	latencyMax    = 5 * time.Minute
	latencyDigits = 3 // an error of a thousandth
)

// Percentiles are the ones that tables show; the maximum comes beside them.
var Percentiles = []float64{50, 90, 99, 99.9, 99.99}

// Histogram counts latencies. It has one writer at a time: load generators keep one for each goroutine and merge.
type Histogram struct{ hdr *hdrhistogram.Histogram }

func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(int64(latencyMin), int64(latencyMax), latencyDigits)}
}

// Record counts one latency. What is longer than five minutes counts as five minutes.
func (h *Histogram) Record(d time.Duration) { h.RecordN(d, 1) }

// RecordN counts n messages of the same latency, as the messages of a batch have.
func (h *Histogram) RecordN(d time.Duration, n int64) {
	d = min(max(d, 0), latencyMax)
	if err := h.hdr.RecordValues(int64(d), n); err != nil {
		panic(fmt.Sprintf("BUG: %d latencies of %v: %v", n, d, err))
	}
}

// Merge adds what other holds.
func (h *Histogram) Merge(other *Histogram) { h.hdr.Merge(other.hdr) }

func (h *Histogram) Reset()       { h.hdr.Reset() }
func (h *Histogram) Count() int64 { return h.hdr.TotalCount() }

func (h *Histogram) Percentile(p float64) time.Duration {
	return time.Duration(h.hdr.ValueAtPercentile(p))
}

func (h *Histogram) Max() time.Duration {
	if h.Count() == 0 {
		return 0 // the library answers with the width of its first step
	}
	return time.Duration(h.hdr.Max())
}

func (h *Histogram) Mean() time.Duration { return time.Duration(h.hdr.Mean()) }

// histogramJSON is a histogram in a file: the summary for people and scripts, HDR for reading it back.
type histogramJSON struct {
	Count  int64   `json:"count"`
	Mean   float64 `json:"mean_us"`
	P50    float64 `json:"p50_us"`
	P90    float64 `json:"p90_us"`
	P99    float64 `json:"p99_us"`
	P999   float64 `json:"p99.9_us"`
	P9999  float64 `json:"p99.99_us"`
	Max    float64 `json:"max_us"`
	Packed string  `json:"hdr"` // HdrHistogram V2, deflated, base64
}

func (h *Histogram) MarshalJSON() ([]byte, error) {
	packed, err := h.hdr.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode a histogram: %w", err)
	}
	return json.Marshal(histogramJSON{
		Count: h.Count(), Mean: Micros(h.Mean()),
		P50: Micros(h.Percentile(50)), P90: Micros(h.Percentile(90)), P99: Micros(h.Percentile(99)),
		P999: Micros(h.Percentile(99.9)), P9999: Micros(h.Percentile(99.99)), Max: Micros(h.Max()),
		Packed: string(packed),
	})
}

func (h *Histogram) UnmarshalJSON(text []byte) error {
	var in histogramJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	hdr, err := hdrhistogram.Decode([]byte(in.Packed))
	if err != nil {
		return fmt.Errorf("decode a histogram: %w", err)
	}
	h.hdr = hdr
	return nil
}

// Micros is a duration in microseconds, the unit of latencies in files.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
