// SPDX-License-Identifier: Apache-2.0

// Package ha replicates the CommitLog from a master to its slaves, byte for byte. PROTOCOL.md says what goes over the
// wire, and how two logs are compared before the first byte flows.
//
// # Master
//
// HAService listens on haListenPort, on every broker, and has one event loop. Each slave is an HAConnection of that
// loop. Its pump sends frames straight from the mapped files, the next only when the socket has taken the one before, so
// a slave that does not read costs one frame of memory. New bytes wake it (Readable), a report does, and the tick. What
// lies far behind the end is brought into memory by a helper first, so that the loop does not wait for the disk. A slave
// that cannot be served is refused: a state of its own with a reason, shown in Status; its connection is kept silent for
// a while, since RocketMQ's slave would be back at once.
//
// GroupTransferService holds the sends that wait for slaves, in the order of the log. A report completes what it covers
// on the loop; a goroutine ends those whose deadline has come. What counts is what the slaves hold that are connected
// now: each once, none that stands still, none that reported more than it was sent.
//
// A master whose machine went down before its disk had the end of the log takes no sends until its slaves have brought
// it back: tailWait.
//
// # Slave
//
// HAClient dials the master; one connection, a haLink, on one loop, which is the slave's log writer. readBuffer carries
// half frames over. The state that must outlive the process is in ha.json.
//
// # Owners
//
//	HAConnection     the loop of the HA port; others read its atomics and Post
//	haLink           the loop of the link
//	connections      a snapshot, replaced under HAService.mu by the loop
//	waiting sends    GroupTransferService.mu; nothing blocks under it
//	ha.json          stateFile.mu, held while it is written
//	what is noted    HAService.noteMu, held while ha.json is written: helper and tick only
//	a tail's turn    the loop of the HA port; tailWait.mu for those who ask
//
// # Order
//
// The store starts before HAService and HAClient, and stops after them: both borrow mapped bytes. HAClient stops first,
// then HAService, which ends what still waits with FlushSlaveTimeout.
package ha
