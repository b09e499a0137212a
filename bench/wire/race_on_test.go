// SPDX-License-Identifier: Apache-2.0

//go:build race

package wire

// raceDetector: allocations cannot be counted under it.
const raceDetector = true
