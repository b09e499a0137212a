// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

// AsyncPutMessage queues one put or appends it at once. PutOK means taken: Appended will run, or has run.
// Any other status means not taken, and Appended never runs.
func (s *MessageStore) AsyncPutMessage(put *PutMessage) PutMessageStatus {
	puts := [1]*PutMessage{put}
	_, status := s.log.asyncPutMessages(puts[:])
	return status
}

// AsyncPutMessages hands over one loop turn's puts under one role or lock and at most one wake. puts[:n] are taken in
// order, the rest end with the status.
func (s *MessageStore) AsyncPutMessages(puts []*PutMessage) (n int, status PutMessageStatus) {
	return s.log.asyncPutMessages(puts)
}

// SubmitFlushRequest calls done once, when bytes below end are durable (PutOK), deadline has passed
// (FlushDiskTimeout), or the store is latched or closing (ServiceNotAvailable; PutDenied has the cause). It never
// blocks; done runs on the flush goroutine or the sweeper, or before the call returns. Under ASYNC_FLUSH nothing waits
// for the disk: done gets PutOK at once. With maxWaitingPuts requests waiting done gets FlushDiskTimeout at once: the
// message is stored, and nobody knows whether it is on disk. Source: CommitLog#submitFlushRequest.
func (s *MessageStore) SubmitFlushRequest(end PhyOffset, deadline time.Time, done func(PutMessageStatus)) {
	s.log.submitFlushRequest(GroupCommitRequest{end: end, deadline: deadline, done: done})
}

// AppendToCommitLog writes raw log bytes, in parts that follow each other, at start, which must be the log's end (or any
// file base when the log is empty); a slave's only way to write. At the end of a file it may wait for the next, 5 s at most. After an error the
// log's end (MaxPhyOffset) says how much was taken. Source: CommitLog#appendData.
func (s *MessageStore) AppendToCommitLog(start PhyOffset, parts ...[]byte) error {
	return s.log.appendData(start, parts...)
}

// Select borrows up to max bytes of readable log from offset to the end of its file. Empty when there is none.
func (s *MessageStore) Select(offset PhyOffset, max int) (SelectMappedBufferResult, bool) {
	return s.log.selectAt(offset, max)
}

// PutDenied says why a put would be refused now, PutOK if it would not: SERVICE_NOT_AVAILABLE with the latched cause,
// disk full, closing; OSPageCacheBusy; queue full, too many waiting for the disk, or no transient buffer. It is cheap.
func (s *MessageStore) PutDenied() (PutMessageStatus, error) { return s.PutDeniedAt(time.Now()) }

// PutDeniedAt is PutDenied for who knows about what time it is.
func (s *MessageStore) PutDeniedAt(now time.Time) (PutMessageStatus, error) {
	return s.log.denied(now.UnixMilli())
}

// FlushAnsweredAt is when the flush requests whose done runs now were found to be at their end: latency.Now of the
// round. It spares each of them a look at the clock. For one that ended where it was submitted it is earlier.
func (s *MessageStore) FlushAnsweredAt() int64 {
	if service := s.log.groupCommitService; service != nil {
		return service.answeredAt.Load()
	}
	return 0
}
