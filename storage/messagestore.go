// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"log/slog"
	"time"

	"loopmq/storage/vfs"
)

// MessageStore is everything on disk: CommitLog, ConsumeQueues, index, checkpoint, with the services that write,
// flush, dispatch and delete. Open recovers, Start runs the services, Close stops them in order.
type MessageStore struct {
	log *CommitLog
}

// EventListener is told of notable happenings. Any field may be nil. Functions must not block.
type EventListener struct {
	// Readable says that bytes below end may be read (with the transient pool: were committed). Fired by the append.
	Readable func(end PhyOffset)
	// MessageArriving says that offset-1 of the queue was just dispatched (NotifyMessageArrivingListener): next is the
	// queue's new max offset.
	MessageArriving func(a Arrival)
	// ReadOnly fires once, when a failed sync or a fault latched the store.
	ReadOnly func(cause error)
	// FileRolled, FileDeleted, ... for logs and metrics
	FileRolled  func(base PhyOffset, took time.Duration)
	FileDeleted func(path string)
	// Progress reports slow start-up work (recovery), at most twice a second.
	Progress func(what string, done, total int64)
}

// Arrival describes one dispatched message.
type Arrival struct {
	Topic          string
	QueueID        int32
	MaxOffset      QueueOffset // the queue's max offset including this message
	TagsCode       int64
	StoreTimestamp int64
	Properties     []byte // borrowed for the call
}

// Options are what is not configuration.
type Options struct {
	FS       vfs.FS // nil: the real one
	Logger   *slog.Logger
	Listener EventListener
	// MinRetained, if set, names an offset below which no log file is deleted unless the disk is over the forced
	// mark: replication sets it for slaves that still need bytes.
	MinRetained func() (PhyOffset, bool)
}

// Open locks the store directory, loads and recovers it. The result serves reads; puts need Start.
func Open(cfg Config, opts Options) (*MessageStore, error) { return nil, nil }

// Start begins the services, writes the abort file, and accepts puts (on a slave: AppendToCommitLog).
// It returns when dispatch has caught up with the log.
func (s *MessageStore) Start() error { return nil }

// Close drains and stops: no new puts, waiters ended, last flush, checkpoint, unmap, abort removed if all is in order.
// Callers have stopped everything that borrows from the store first.
func (s *MessageStore) Close() error { return nil }

// Config returns the settings now in force. The result is shared: read only.
func (s *MessageStore) Config() *Config { return nil }

// UpdateConfig applies change to a copy, validates it and swaps it in.
func (s *MessageStore) UpdateConfig(change func(*Config)) error { return nil }

// LookMessageByOffset borrows the one record that starts at offset, after checking that one does.
func (s *MessageStore) LookMessageByOffset(offset PhyOffset) (SelectMappedBufferResult, error) {
	return SelectMappedBufferResult{}, nil
}

// MessageFilter decides what a pull gets. MatchConsumeQueue sees the tags code alone; MatchCommitLog, asked after it,
// sees the record (nil filter: all).
type MessageFilter interface {
	MatchConsumeQueue(tagsCode int64) bool
	MatchCommitLog(record []byte) bool
}

// GetMessageStatus is the inner outcome of a pull. Source: GetMessageStatus.
type GetMessageStatus int32

const (
	Found GetMessageStatus = iota
	NoMatchedMessage
	MessageWasRemoving
	OffsetFoundNull
	OffsetOverflowBadly
	OffsetOverflowOne
	OffsetTooSmall
	NoMatchedLogicQueue
	NoMessageInQueue
)

// GetMessageResult holds loans: the caller calls Release once.
type GetMessageResult struct {
	Status                  GetMessageStatus
	NextBeginOffset         QueueOffset
	MinOffset, MaxOffset    QueueOffset
	Buffers                 []SelectMappedBufferResult // adjacent records may share one
	BufferTotalSize         int
	MsgCount                int
	SuggestPullingFromSlave bool
	// Cold is set when some record is farther from the log's end than the in-memory share.
	Cold bool
}

// Release gives all loans back; safe to call twice.
func (r *GetMessageResult) Release() {}

// GetMessage reads up to maxMsgNums messages of a queue from offset. result is reused if not nil.
// Source: DefaultMessageStore#getMessage.
func (s *MessageStore) GetMessage(topic string, queueID int32, offset QueueOffset, maxMsgNums int, filter MessageFilter, result *GetMessageResult) *GetMessageResult {
	return nil
}

// IsCold says whether a pull at this queue offset would touch records beyond the in-memory share, from memory alone.
func (s *MessageStore) IsCold(topic string, queueID int32, offset QueueOffset) bool { return false }

// QueueOffsets are the bounds of a queue; ok is false when there is none.
func (s *MessageStore) QueueOffsets(topic string, queueID int32) (min, max QueueOffset, ok bool) {
	return 0, 0, false
}

// OffsetByTime follows 5.x's lower (first with store time >= ms, past the end: max) when upper is false, upper otherwise.
func (s *MessageStore) OffsetByTime(topic string, queueID int32, ms int64, upper bool) QueueOffset {
	return 0
}

// MessageStoreTime is the store time of the message at a queue offset, -1 if there is none.
func (s *MessageStore) MessageStoreTime(topic string, queueID int32, offset QueueOffset) int64 {
	return -1
}

// EarliestMessageTime is the store time of the first message of the log, -1 if empty.
func (s *MessageStore) EarliestMessageTime() int64 { return -1 }

// ConsumeQueueUnit is one entry of a ConsumeQueue.
type ConsumeQueueUnit struct {
	Offset   PhyOffset
	Size     int32
	TagsCode int64
}

// ConsumeQueueUnits calls f for up to max units from offset until f returns false; it returns how many f saw.
func (s *MessageStore) ConsumeQueueUnits(topic string, queueID int32, offset QueueOffset, max int, f func(QueueOffset, ConsumeQueueUnit) bool) int {
	return 0
}

// QueryMessageResult holds loans of the records found by key.
type QueryMessageResult struct {
	Buffers                  []SelectMappedBufferResult
	IndexLastUpdateTimestamp int64
	IndexLastUpdatePhyOffset PhyOffset
}

// Release gives all loans back.
func (r *QueryMessageResult) Release() {}

// QueryMessage looks a key up in the index. Hash collisions are filtered. Source: DefaultMessageStore#queryMessage.
func (s *MessageStore) QueryMessage(topic, key string, maxNum int, begin, end int64) *QueryMessageResult {
	return nil
}

func (s *MessageStore) MinPhyOffset() PhyOffset      { return 0 }
func (s *MessageStore) MaxPhyOffset() PhyOffset      { return 0 } // end of readable bytes
func (s *MessageStore) FlushedWhere() PhyOffset      { return 0 }
func (s *MessageStore) DispatchBehindBytes() int64   { return 0 }
func (s *MessageStore) RemainHowManyToFlush() int64  { return 0 }
func (s *MessageStore) RemainHowManyToCommit() int64 { return 0 }

// Topics are the topics that have ConsumeQueues, with their queue ids.
func (s *MessageStore) Topics() map[string][]int32 { return nil }

// DeleteTopic retires the ConsumeQueues of a topic; late readers and writers get "gone".
func (s *MessageStore) DeleteTopic(topic string) error { return nil }

// DeleteExpiredFiles starts the manual clean-up (code 329), CleanExpiredConsumeQueue that of queues (306).
func (s *MessageStore) DeleteExpiredFiles()       {}
func (s *MessageStore) CleanExpiredConsumeQueue() {}

// Stats is a snapshot of the store's own counters.
type Stats struct {
	PutMessageTimesTotal, PutMessageSizeTotal, PutMessageFailedTimes int64
	PutMessageEntireTimeMax                                          time.Duration
	GetMessageTimesFound, GetMessageTimesMiss, GetMessageTransferred int64
	AppendInline, AppendQueued, AppendExpired                        int64
	Flushes, FlushErrors, FlushNanos                                 int64
	FilesRolled, FilesDeleted, FilesHeldAfterRetire                  int64
	DispatchedMessages                                               int64
	CommitLogDiskRatio, ConsumeQueueDiskRatio                        float64
	TransientBuffersFree                                             int // -1 without the pool
	PageCacheLockTime                                                time.Duration
	PutQueueLength                                                   int
	PutQueueHeadWait                                                 time.Duration
	WaitingFlushRequests                                             int
	LatchedCause                                                     error // why the store is read-only, nil if it is not
	HasOpenHalfMessages                                              bool  // the store holds RMQ_SYS_TRANS_HALF_TOPIC records without an end mark
}

func (s *MessageStore) Stats() Stats { return Stats{} }
