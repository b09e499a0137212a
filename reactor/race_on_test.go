// SPDX-License-Identifier: Apache-2.0

//go:build race

package reactor

// raceDetector: under it pools drop what they are given at random, and allocations cannot be counted.
const raceDetector = true
