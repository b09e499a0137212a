// SPDX-License-Identifier: Apache-2.0

// Package result is the record of a measured run: what was asked for, what came of it, what it cost the server, where
// and when. It writes and reads JSON, and makes tables and an HTML report of one or many.
//
// A Result keeps the whole latency histogram (HdrHistogram's own compressed form), so percentiles that nobody printed can
// still be read from an old file. Figures that follow from others (rate, percentiles, costs per million messages) are
// written for those who read the JSON with other tools, and computed anew on reading.
package result
