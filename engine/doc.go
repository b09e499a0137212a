// SPDX-License-Identifier: Apache-2.0

// Package engine is the broker: put pipeline, request processors, topics, offsets, long polling, name servers, delay
// messages, metrics.
package engine
