// SPDX-License-Identifier: Apache-2.0

// Package load generates load and measures what comes of it, over the wire protocol only: loopmq and RocketMQ's own
// brokers are driven and counted alike.
//
// # Workloads
//
// produce sends: one request at a time from each of N threads (sync), a window of requests on each connection
// (pipelined), requests of several messages (batch), or requests without answers (oneway). consume pulls with long
// polling, in several groups. drain fills a topic and then reads it as fast as it can. latency sends at a fixed rate and
// measures until a consumer has the message. Each of them takes the messages back and accounts for them with Verify.
//
// # Latency
//
// With a rate the load is open: message n is due at a fixed time, whatever became of those before, and its latency counts
// from when it was due. A broker that stands still for a second is then seen by all messages of that second, not by the few
// that were in flight. What is under way when the window ends is not one of its messages, but its latency counts. Without a rate the load is closed: each answer makes room for the next request, whose latency counts
// from the arrival of that answer. Such a figure tells what a number of callers experience at the broker's limit, and hides
// what happened to requests that were not sent meanwhile.
//
// # Cost
//
// The generator runs beside the broker it measures, on the same processors. A connection is one goroutine, which reads
// answers, records them, and writes the requests they made room for; a thread is a request in flight that is written alone.
// Nothing is allocated for a message.
package load
