// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// DelayLevels is the table of messageDelayLevel: level n (from 1) waits Millis[n-1] ms. Source: ScheduleMessageService#parseDelayLevel.
type DelayLevels struct {
	Millis []int64
	Text   string
}

// unknownLevelMillis is the delay of a level that is not in the table.
const unknownLevelMillis = 1_000

// ParseDelayLevels reads times like "1s 5m 2h 1d" separated by blanks.
func ParseDelayLevels(text string) (DelayLevels, error) {
	levels := DelayLevels{Text: text}
	for _, field := range strings.Fields(text) {
		ms, err := parseDelay(field)
		if err != nil {
			return DelayLevels{}, err
		}
		levels.Millis = append(levels.Millis, ms)
	}
	if len(levels.Millis) == 0 {
		return DelayLevels{}, fmt.Errorf("no delay level in %q", text)
	}
	return levels, nil
}

func parseDelay(field string) (int64, error) {
	unit := map[byte]int64{'s': 1_000, 'm': 60_000, 'h': 3_600_000, 'd': 86_400_000}[field[len(field)-1]]
	n, err := strconv.ParseInt(field[:len(field)-1], 10, 64)
	if err != nil || unit == 0 || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("delay level %q: want a number and s, m, h or d", field)
	}
	return n * unit, nil
}

// Max is the number of levels.
func (d DelayLevels) Max() int { return len(d.Millis) }

// Clip lowers a level to the highest there is.
func (d DelayLevels) Clip(level int) int { return min(level, len(d.Millis)) }

// Deliver is when a message of a level, stored at storeTimestamp, is due; an unknown level waits a second.
// Source: ScheduleMessageService#computeDeliverTimestamp.
func (d DelayLevels) Deliver(level int, storeTimestamp int64) int64 {
	if level < 1 || level > len(d.Millis) {
		return storeTimestamp + unknownLevelMillis
	}
	return storeTimestamp + d.Millis[level-1]
}
