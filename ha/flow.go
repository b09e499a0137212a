// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"math"
	"time"
)

// flowMonitor counts what one slave is sent, headers and bodies, by the second. Source: FlowMonitor of 5.x, whose
// default form counts headers alone and so never limits.
type flowMonitor struct {
	second  int64 // the second being counted, unix
	counted int64
	last    int64 // bytes of the second before
}

func (f *flowMonitor) roll(now time.Time) {
	switch second := now.Unix(); second {
	case f.second:
	case f.second + 1:
		f.second, f.last, f.counted = second, f.counted, 0
	default:
		f.second, f.last, f.counted = second, 0, 0
	}
}

// allowance is how many body bytes may be sent now.
func (f *flowMonitor) allowance(cfg *Config, now time.Time) int {
	f.roll(now)
	if !cfg.HaFlowControlEnable {
		return math.MaxInt
	}
	return int(max(cfg.MaxHaTransferByteInSecond-f.counted-frameHeaderSize, 0))
}

func (f *flowMonitor) count(bytes int64) { f.counted += bytes }

// lastSecond is what the last full second carried.
func (f *flowMonitor) lastSecond(now time.Time) int64 {
	f.roll(now)
	return f.last
}
