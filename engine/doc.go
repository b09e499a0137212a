// SPDX-License-Identifier: Apache-2.0

// Package engine is the broker: put pipeline, request processors, topics, groups, offsets, long polling, name servers,
// delay messages, configuration, metrics. What is on disk is storage's matter, what is on the wire reactor's.
//
// # Life cycle
//
//	b, err := engine.New(cfg, engine.Options{Logger: logger}) // checks the configuration, touches nothing
//	err = b.Start(ctx)                                        // returns when clients are served
//	<-b.Done()                                                // the broker ended by itself: b.Err says why
//	err = b.Shutdown(timeout)                                 // in order, within the time
//
// Start: limit of descriptors → lock, load and recover the store → tables of config/ → lanes → store services → client
// port → name servers. Shutdown: name servers, so that clients go elsewhere → new requests are answered
// SERVICE_NOT_AVAILABLE → delay messages stop → workers and puts end, or at the deadline are answered too → held pulls
// are dropped → answers leave, the event loops end → workers end → tables are saved → the store flushes and closes. The
// store unmaps only when nobody is left who could read.
//
// # Who runs what
//
// A request is decoded on its session's event loop, and its processor runs there when all it touches is memory. What
// may wait for a disk goes to a lane: a few workers with a bounded queue, beyond which the answer is SYSTEM_BUSY.
//
//	event loop          sends (gathered over a loop turn, then put together), pulls of what is in memory (the kernel is asked),
//	                    heartbeats, offsets, consumer lists, locks
//	pull lane           pulls of what is not in memory
//	query lane          by key, by id, send-back, statistics: whatever reads records
//	admin lane          one worker: topics, groups, configuration. Tables and their files have one writer
//	new topic lane      one worker: sends whose topics were just made, until name servers know them
//	tool lane           one worker: answers to tools that changed topics, likewise
//	name server links   a goroutine and a connection each (BrokerOuterAPI)
//	hold service        parks pulls that found nothing, without a goroutine each
//
// Tables (topics, groups, live clients) are copy on write: loops read them without a lock, an entry is never changed.
// The configuration is one immutable Config behind an atomic pointer; a change swaps in another.
//
// # Where time goes
//
// A send carries the readings of the clock that were taken for it together with others: of its turn, of the store's append,
// of the flush and the acknowledgement that covered it, of the write of its answer (latency.Now). The loop that wrote the
// answer counts the differences by stage (sendstages.go), and says so when the send was slow. So a send costs no look at the
// clock of its own, and /metrics adds up the loops' counts at a scrape. README.md has a table of all metrics, written by
// TestReadmeTables.
//
// # Names
//
// Types and files are named for RocketMQ's classes; "Source:" in a comment names the class and method whose contract is
// kept. Where this broker departs from it, the comment says how and why.
package engine
