// SPDX-License-Identifier: Apache-2.0

package message

// DelayLevels is the table of messageDelayLevel: level n (from 1) waits Millis[n-1] ms. Source: ScheduleMessageService#parseDelayLevel.
type DelayLevels struct {
	Millis []int64
	Text   string
}
