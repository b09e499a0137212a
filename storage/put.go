// SPDX-License-Identifier: Apache-2.0

package storage

import "sync/atomic"

// PutMessage is one append, single or batch, on its way through the appender. It belongs to its maker until
// AsyncPutMessage(s) takes it and again from Appended on; makers pool it. The store never keeps Record after Appended.
type PutMessage struct {
	// Record is one encoded record, or MsgNum of them back to back, with queue offset, physical offset and store
	// timestamp blank. The appender fills them in, then copies the whole into the map.
	Record  []byte
	MsgNum  int32
	Topic   string
	QueueID int32
	// NoQueueOffset is set for records that take no place in a queue (transaction prepared and rollback).
	NoQueueOffset bool

	// Appended runs once, on whoever appended or expired the put. It must not block.
	Appended func(put *PutMessage, status PutMessageStatus)
	// Inline is true while Appended runs inside the AsyncPutMessages call that brought this put.
	Inline bool

	// Results, valid in Appended when status is PutOK.
	WroteOffset    PhyOffset
	WroteBytes     int64
	QueueOffset    QueueOffset // of the first record
	StoreTimestamp int64
	// Cause says more about a refusal: the latched error for ServiceNotAvailable, how long it waited and how long the queue was for QueueTimeout.
	Cause error

	state    atomic.Int32 // queued → appending or expired
	queuedAt int64        // ms
	next     *PutMessage
}

// End is the offset just behind the record: what a flush or a slave must reach.
func (p *PutMessage) End() PhyOffset { return p.WroteOffset + PhyOffset(p.WroteBytes) }
