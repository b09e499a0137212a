// SPDX-License-Identifier: Apache-2.0

package engine

// PullRequestHoldService parks pulls that found nothing, without a goroutine each.
type PullRequestHoldService struct{}

// ScheduleMessageService delivers delayed messages.
type ScheduleMessageService struct{}
