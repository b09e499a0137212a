// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/latency"
	"loopmq/storage/vfs"
)

// MessageStore is everything on disk: CommitLog, ConsumeQueues, index, checkpoint, with the services that write,
// flush, dispatch and delete. Open recovers, Start runs the services, Close stops them in order.
//
// Lock order: configMu and the locks of the parts are never held together with each other.
type MessageStore struct {
	fs       vfs.FS
	logger   *slog.Logger
	listener EventListener
	retained func() (PhyOffset, bool)

	config   atomic.Pointer[Config]
	configMu sync.Mutex // guards swapping config

	lock       io.Closer
	clean      bool // the last run ended in order
	others     bool // a RocketMQ broker has written since
	flags      *RunningFlags
	checkpoint *StoreCheckpoint
	log        *CommitLog
	queues     *consumeQueueStore
	index      *indexService
	dispatcher *dispatcher
	reput      *ReputMessageService
	flushQueue *FlushConsumeQueueService
	cleaner    *cleanService

	physicalMemory int64 // bytes: of the machine, or of the cgroup's limit
	openHalf       bool  // found at the start
	// lostQueues have neither files nor records any more, only a next offset: topicQueue → QueueOffset.
	lostQueues sync.Map
	started    bool
	counters   storeCounters
}

// storeCounters feed Stats.
type storeCounters struct {
	getFound, getMiss, getTransferred atomic.Int64
}

// EventListener is told of notable happenings. Any field may be nil. Functions must not block.
type EventListener struct {
	// Readable says that bytes below end may be read (with the transient pool: were committed). Fired by the append.
	Readable func(end PhyOffset)
	// MessageArriving says that offset-1 of the queue was just dispatched (NotifyMessageArrivingListener): next is the
	// queue's new max offset.
	MessageArriving func(a Arrival)
	// Awaited says whether somebody waits for an arrival; when nobody does, dispatch is in less of a hurry. Nil: always.
	Awaited func() bool
	// AnswerTogether, when not nil, has to call answer, which tells the makers of several puts that their bytes are durable.
	// Between the first and the last of them is the time for what need be done once, as to wake the loops that send answers.
	AnswerTogether func(answer func())
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
func Open(cfg Config, opts Options) (*MessageStore, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &MessageStore{fs: opts.FS, logger: opts.Logger, listener: opts.Listener, retained: opts.MinRetained, flags: &RunningFlags{}}
	if s.fs == nil {
		s.fs = vfs.OS{}
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	s.config.Store(&cfg)
	s.physicalMemory = physicalMemory()
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	return s, nil
}

func (s *MessageStore) open() (err error) {
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	c := s.Config()
	if err := s.fs.MkdirAll(c.StorePathRootDir); err != nil {
		return fmt.Errorf("make %q: %w", c.StorePathRootDir, err)
	}
	// A run that was killed just after it made the directory has not synced its name.
	if err := s.fs.SyncDir(filepath.Dir(c.StorePathRootDir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("sync the directory of %q: %w", c.StorePathRootDir, err)
	}
	if s.lock, err = s.fs.Lock(filepath.Join(c.StorePathRootDir, "lock")); err != nil {
		return fmt.Errorf("the store is in use: %w", err)
	}
	if s.clean, err = s.endedClean(); err != nil {
		return err
	}
	if err := s.load(c); err != nil {
		return err
	}
	return s.recoverAndJudge()
}

// endedClean says whether the last run removed its abort file.
func (s *MessageStore) endedClean() (bool, error) {
	_, err := s.fs.Stat(s.abortPath())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func (s *MessageStore) abortPath() string {
	return filepath.Join(s.Config().StorePathRootDir, "abort")
}

// load makes the parts of the store and maps their files.
func (s *MessageStore) load(c *Config) (err error) {
	root := c.StorePathRootDir
	if s.checkpoint, err = openCheckpoint(s.fs, filepath.Join(root, "checkpoint"), s.logger); err != nil {
		return fmt.Errorf("open checkpoint: %w", err)
	}
	if s.log, err = newCommitLog(s.fs, c.StorePathCommitLog, s.Config, s.flags, s.listener, s.logger); err != nil {
		return err
	}
	s.queues = newConsumeQueueStore(s.fs, filepath.Join(root, "consumequeue"), c.MappedFileSizeConsumeQueue, s.logger)
	if err := s.queues.load(); err != nil {
		return err
	}
	s.index = newIndexService(s.fs, filepath.Join(root, "index"), c.MaxHashSlotNum, c.MaxIndexNum, s.logger)
	if err := s.index.load(); err != nil {
		return err
	}
	s.dispatcher = &dispatcher{queues: s.queues, index: s.index, config: s.Config, logger: s.logger}
	s.reput = newReputMessageService(s.log.queue, s.dispatcher, s.Config, s.listener.MessageArriving, s.log.latch, s.logger)
	s.reput.awaited, s.reput.takesRaw = s.listener.Awaited, s.log.takesRaw
	s.log.wakeReput = s.reput.wrote
	s.flushQueue = newFlushConsumeQueueService(s)
	s.cleaner = newCleanService(s)
	return nil
}

// Start begins the services, writes the abort file, and accepts puts (on a slave: AppendToCommitLog).
// It returns when dispatch has caught up with the log; recovery has seen to that.
func (s *MessageStore) Start() error {
	// Before the first byte is written: whatever happens from now on, the next start must look closely.
	if err := s.fs.WriteFile(s.abortPath(), nil); err != nil {
		return fmt.Errorf("write abort file: %w", err)
	}
	if err := s.log.start(); err != nil {
		return err
	}
	s.started = true
	s.reput.start()
	s.flushQueue.start()
	s.cleaner.start()
	return nil
}

// Close drains and stops: no new puts, waiters ended, last flush, checkpoint, unmap, abort removed if all is in order.
// Callers have stopped everything that borrows from the store first.
func (s *MessageStore) Close() error {
	var errs []error
	if s.started {
		s.cleaner.stop()
		s.log.stop()
		s.reput.stop()
		s.flushQueue.stop()
		if err := s.flushQueue.flushAll(); err != nil {
			s.log.latch(err)
			errs = append(errs, err)
		}
		errs = append(errs, s.removeAbort())
	}
	return errors.Join(append(errs, s.closeFiles())...)
}

// removeAbort says that the store was left in order, if it was: all on disk, all dispatched.
// Source: DefaultMessageStore#shutdown.
func (s *MessageStore) removeAbort() error {
	if s.flags.latched() || s.DispatchBehindBytes() > 0 || s.RemainHowManyToFlush() > 0 {
		s.logger.Warn("the store was not left in order, the next start recovers it",
			"latched", s.flags.latchedCause(), "behind", s.DispatchBehindBytes(), "unflushed", s.RemainHowManyToFlush())
		return nil
	}
	if err := s.saveQueueList(); err != nil {
		s.logger.Warn("the list of queues was not written", "cause", err)
	}
	if err := s.fs.Remove(s.abortPath()); err != nil {
		return fmt.Errorf("remove abort file: %w", err)
	}
	return s.fs.SyncDir(s.Config().StorePathRootDir)
}

// closeFiles gives back what open took, also what it took before it failed.
func (s *MessageStore) closeFiles() error {
	var errs []error
	held := 0
	if s.queues != nil {
		held += s.queues.close()
	}
	if s.index != nil {
		held += s.index.close()
	}
	if s.log != nil {
		held += s.log.close()
	}
	if held > 0 {
		s.logger.Error("files are still lent, their mappings stay", "files", held)
	}
	if s.checkpoint != nil {
		s.checkpoint.close()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Config returns the settings now in force. The result is shared: read only.
func (s *MessageStore) Config() *Config { return s.config.Load() }

// UpdateConfig applies change to a copy, validates it and swaps it in.
func (s *MessageStore) UpdateConfig(change func(*Config)) error {
	s.configMu.Lock()
	defer s.configMu.Unlock()
	next := *s.Config()
	change(&next)
	next.EnsureDefaults()
	if err := next.Validate(); err != nil {
		return err
	}
	s.config.Store(&next)
	return nil
}

// MinPhyOffset is the first byte of the log.
func (s *MessageStore) MinPhyOffset() PhyOffset { return s.log.minOffset() }

// MaxPhyOffset is the end of readable bytes.
func (s *MessageStore) MaxPhyOffset() PhyOffset { return s.log.maxOffset() }

// FlushedWhere is the end of durable bytes.
func (s *MessageStore) FlushedWhere() PhyOffset {
	return PhyOffset(s.log.queue.flushedWhere.Load())
}

// DispatchBehindBytes is how many readable bytes are not in queues and index yet.
func (s *MessageStore) DispatchBehindBytes() int64 { return s.reput.behind() }

// RemainHowManyToFlush is how many readable bytes are not durable yet.
func (s *MessageStore) RemainHowManyToFlush() int64 { return s.log.queue.remainHowManyToFlush() }

// RemainHowManyToCommit is how many appended bytes the transient pool still holds, 0 without it.
func (s *MessageStore) RemainHowManyToCommit() int64 {
	if s.log.pool == nil {
		return 0
	}
	return s.log.queue.remainHowManyToCommit()
}

// Topics are the topics that have ConsumeQueues, with their queue ids.
func (s *MessageStore) Topics() map[string][]int32 { return s.queues.topicQueues() }

// DeleteTopic retires the ConsumeQueues of a topic; late readers and writers get "gone" (apache/rocketmq#8405). Its
// records stay in the log; messages sent to the topic later begin at offset 0.
// Source: DefaultMessageStore#deleteTopics.
func (s *MessageStore) DeleteTopic(topic string) error {
	// First the offsets: a message that is appended in between belongs to the new queue already.
	s.log.removeTopic(topic)
	s.lostQueues.Range(func(key, _ any) bool {
		if key.(topicQueue).topic == topic {
			s.lostQueues.Delete(key)
		}
		return true
	})
	if err := s.queues.deleteTopic(topic); err != nil {
		if isFinal(err) {
			s.log.latch(err)
		}
		return err
	}
	return s.saveQueueList()
}

// DeleteExpiredFiles starts the manual clean-up (code 329), CleanExpiredConsumeQueue that of queues (306).
func (s *MessageStore) DeleteExpiredFiles()       { s.cleaner.deleteManually() }
func (s *MessageStore) CleanExpiredConsumeQueue() { s.cleaner.cleanQueues() }

// Stats is a snapshot of the store's own counters.
type Stats struct {
	PutMessageTimesTotal, PutMessageSizeTotal, PutMessageFailedTimes int64
	PutMessageEntireTimeMax                                          time.Duration
	GetMessageTimesFound, GetMessageTimesMiss, GetMessageTransferred int64
	AppendInline, AppendQueued, AppendExpired                        int64
	FlushErrors                                                      int64
	FlushTimes                                                       latency.Snapshot // of the log
	FlushBehindTime                                                  time.Duration    // age of the oldest byte of the log that is not durable, or more
	FilesAllocated, FilesRolled, FilesDeleted, FilesHeldAfterRetire  int64
	FileWaits                                                        latency.Snapshot // for a log file that was not ready when it was due
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

// Stats is a snapshot of the counters.
func (s *MessageStore) Stats() Stats {
	var st Stats
	s.log.addStats(&st)
	st.GetMessageTimesFound = s.counters.getFound.Load()
	st.GetMessageTimesMiss = s.counters.getMiss.Load()
	st.GetMessageTransferred = s.counters.getTransferred.Load()
	st.DispatchedMessages = s.reput.dispatched.Load()
	st.HasOpenHalfMessages = s.openHalf
	s.cleaner.addStats(&st)
	return st
}
