// SPDX-License-Identifier: Apache-2.0

// Package latency has a clock and a histogram for the paths that every message takes: a reading costs half of
// time.Now, and an observation two atomic additions, no lock and no memory.
//
// Readings are taken once for all that is done together, a loop's turn or a round of flushes, and travel with the
// messages as numbers; a Histogram takes many that took equally long in one step. Who shows them adds them up.
package latency
