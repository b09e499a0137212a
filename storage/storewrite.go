// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

// AsyncPutMessage queues one put or appends it at once. PutOK means taken: Appended will run, or has run.
// Any other status means not taken, and Appended never runs.
func (s *MessageStore) AsyncPutMessage(put *PutMessage) PutMessageStatus { return UnknownError }

// AsyncPutMessages hands over one loop turn's puts under one role or lock and at most one wake. puts[:n] are taken in
// order, the rest end with the status.
func (s *MessageStore) AsyncPutMessages(puts []*PutMessage) (n int, status PutMessageStatus) {
	return 0, UnknownError
}

// SubmitFlushRequest calls done once, when bytes below end are durable (PutOK), deadline has passed
// (FlushDiskTimeout), or the store is latched or closing (ServiceNotAvailable). It never blocks; done runs on the
// flush goroutine or the sweeper, or before the call returns.
func (s *MessageStore) SubmitFlushRequest(end PhyOffset, deadline time.Time, done func(PutMessageStatus)) {
}

// AppendToCommitLog writes raw log bytes at start, which must be the log's end (or any file base when the log is
// empty); a slave's only way to write. Source: CommitLog#appendData.
func (s *MessageStore) AppendToCommitLog(start PhyOffset, data []byte) error { return nil }

// Select borrows up to max bytes of readable log from offset to the end of its file. Empty when there is none.
func (s *MessageStore) Select(offset PhyOffset, max int) (SelectMappedBufferResult, bool) {
	return SelectMappedBufferResult{}, false
}

// PutDenied says why a put would be refused now, PutOK if it would not: SERVICE_NOT_AVAILABLE with the latched cause,
// disk full, closing; OSPageCacheBusy; queue full. It is cheap.
func (s *MessageStore) PutDenied() (PutMessageStatus, error) { return PutOK, nil }
