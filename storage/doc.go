// SPDX-License-Identifier: Apache-2.0

// Package storage is everything a broker keeps on disk: the CommitLog that holds all messages in the order of arrival,
// the ConsumeQueues and the index that find them, the checkpoint. The bytes are RocketMQ's, to the last one: FORMAT.md.
//
// # Life cycle
//
// Open locks the directory, loads the files and recovers; what it returns serves reads. Start begins the services and
// takes puts, or on a slave raw log bytes (AppendToCommitLog). Close ends them in an order that loses nothing: no new
// puts; queued ones appended; commit; flush; what waits is answered; dispatch; queues, checkpoint. Whoever borrows from
// the store has stopped before.
//
// # Who writes the log
//
// One writer at a time: the holder of the appender's role (a mutex), or on a slave the one goroutine that calls
// AppendToCommitLog. AsyncPutMessages appends on its caller's goroutine when the role is free, nobody waits in the
// queue, the last file has room and the populated window covers the record: it can then neither wait nor fault, and no
// thread is woken for the message. In any other case the puts are queued. Whoever holds the role next appends them: a
// caller that leaves, under the same conditions, or the appender's goroutine, which rolls to the next file and takes
// page faults. Queue offset, physical offset and store time are given out with the append; one that fails uses none up.
//
// Under SYNC_FLUSH the records of a turn are written through the file with one call, and the position moves when all are in;
// package vfs says what that saves. Under ASYNC_FLUSH a record is stored to the mapping, or to its write buffer, but the
// records of large turns, what the populated window does not cover, and all that a slave takes are written too
// (appender.chooseWay). Everybody reads through the mapping, which shows the same pages.
//
// A put ends exactly once, in Appended: appended; expired in the queue (waitTimeMillsInSendQueue) by the sweeper while
// an append stalls; or with the cause when the store is latched or closing.
//
//	goroutine                    owns                                   may block on
//	caller with the role         log tail, topic-queue table            nothing, or writeThrough
//	appender                     the same, while it has the role        the next file, 5 s at most; page faults; zeroing
//	AllocateMappedFileService    the file it makes                      the disk
//	populator                    populatedPosition, and under SYNC_FLUSH
//	                             the bytes it zeroes ahead              page faults; under SYNC_FLUSH the disk
//	GroupCommitService or
//	FlushRealTimeService         flushedWhere                           sync
//	CommitRealTimeService        committedWhere                         write
//	sweeper                      nothing: it ends what waits too long   nothing
//	ReputMessageService          dispatch offset, ConsumeQueues, index  page faults, new queue files
//
//	FlushConsumeQueueService     flushed positions of queues, checkpoint sync
//	cleanService                 deletion of old files                  the disk
//
// # Start
//
// Recovery makes log, queues and index agree, after a clean stop as after a crash (recover.go). It begins where the
// checkpoint says that everything before is durable, a few seconds of messages before a kill; it cuts the log at the
// first record that is not whole and dispatches what the queues lack. A queue that cannot take a message at the number
// that is written in the message ends the start. While there is no room for queue files the store serves what it has.
//
// # Retention
//
// Log files go by age (fileReservedTime, during deleteWhen), for want of space (diskMaxUsedSpaceRatio; beyond
// diskSpaceCleanForciblyRatio regardless of age), or by hand; oldest first, ten a round, never the last. A file's age
// counts from the store time of the first record behind it, so copying or touching files changes nothing; Java goes by
// the modification time. Queue and index files follow. Beyond diskSpaceWarningLevelRatio sends are refused until there
// is room again.
//
// Readers take a snapshot of the file list and stay below readPosition, which is published after the bytes. Every use
// of a mapping holds its file; a retired file loses its name at once and its mapping with the last loan, never under a
// reader.
//
// # What an answer survives
//
// PutOK from Appended: the bytes are in the page cache and survive the process (with the transient pool only once
// committed, within commitIntervalCommitLog). PutOK from SubmitFlushRequest under SYNC_FLUSH: they survive power loss.
//
// # What is assumed of the disk, and what happens when it fails
//
// Space is allocated before it is stored to: a full disk is an error where the next file is made. Puts that need it
// end with ServiceNotAvailable and the cause, what fits the last file is still taken, and a second after space is back
// puts go on. A sync that fails is final: flushedWhere stays, everything that waits ends with ServiceNotAvailable, and
// the store is read-only until it is opened anew, because the kernel may have dropped the bytes. So does a fault in
// mapped memory (a file cut short by someone else, a page the disk cannot read); it becomes an error that names file
// and offset (guard.go). So does a write to the log that fails: its puts end with the cause and have used up nothing. What it
// left behind the write position the next start takes for what it is: whole records, of which their senders know only that
// they may be stored, or else it is cut off.
//
// # Locks
//
// appender.role, then MappedFileQueue.mu, AllocateMappedFileService.mu or TransientStorePool.mu; none of these inside
// another of them, except that the allocator's mu may be held while the pool's is taken. GroupCommitService.readMu
// before writeMu. putQueue.mu is taken last. No callback runs under any of them, except FileRolled under the role.
package storage
