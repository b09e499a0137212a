// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// checkpointInterval is how often at least the queues are flushed whole and the checkpoint moves while messages
	// arrive. A restart after a kill walks the log from the checkpoint on, so this bounds it; Java's minute is kept for
	// stores where a round takes long.
	checkpointInterval = 5 * time.Second
	// checkpointBytes is how much dispatched log is reason not to wait as long: a restart dispatches it again. Half of it
	// costs asynchronous sends 3 % of their CPU at 200 MB/s, by pages of queues and index that fault again.
	checkpointBytes = 512 << 20
	// checkpointIntervalMin is how long it waits then.
	checkpointIntervalMin = time.Second
	// checkpointShare is the part of the time that whole flushes may take: a round that took a second is followed by
	// at least 20 of rest.
	checkpointShare = 20
	// checkpointSyncWorth is how many messages must have come since the last whole flush for each queue that it synced, unless
	// checkpointBytes have, or flushConsumeQueueThoroughInterval is over. A sync takes some 100 µs of CPU: with 10,000 queues
	// and 10,000 messages a second a flush each 20 s was a fifth of what a message costs. To dispatch so many again after a
	// kill takes less than to open the queues.
	checkpointSyncWorth = 32
)

// FlushConsumeQueueService makes queues and index durable, and moves the checkpoint behind them: never before all that
// it stands for is synced (apache/rocketmq#678). Source: DefaultMessageStore.FlushConsumeQueueService.
type FlushConsumeQueueService struct {
	queues     *consumeQueueStore
	index      *indexService
	checkpoint *StoreCheckpoint
	mark       func() dispatchMark
	dispatched func() int64     // messages
	flushed    func() PhyOffset // of the log
	config     func() *Config
	latched    func() bool
	latch      func(error)
	logger     *slog.Logger

	mu sync.Mutex // held for a round: the service's, or one that Close makes

	lastThorough time.Time
	lastTook     time.Duration
	lastSyncs    int64        // queues that the last thorough flush synced
	dispatchedAt int64        // messages dispatched before it
	saved        dispatchMark // what the checkpoint stands for
	pending      dispatchMark // synced but for the log, which flushes at its own pace
	looked       dispatchMark // when the queues were last looked through for whole pages
	times        checkpointTimes

	stopped chan struct{}
	done    chan struct{}
}

func newFlushConsumeQueueService(s *MessageStore) *FlushConsumeQueueService {
	return &FlushConsumeQueueService{
		queues: s.queues, index: s.index, checkpoint: s.checkpoint,
		mark: s.reput.marked, dispatched: s.reput.dispatched.Load, flushed: s.FlushedWhere, config: s.Config,
		latched: s.flags.latched, latch: s.log.latch, logger: s.logger,
		times:   s.checkpoint.times(),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *FlushConsumeQueueService) start() {
	s.lastThorough = time.Now()
	go s.run()
}

func (s *FlushConsumeQueueService) stop() {
	close(s.stopped)
	<-s.done
}

func (s *FlushConsumeQueueService) run() {
	defer close(s.done)
	defer restoreFaults(debug.SetPanicOnFault(true))
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		timer.Reset(millis(s.config().FlushIntervalConsumeQueue))
		select {
		case <-timer.C:
		case <-s.stopped:
			return
		}
		if err := s.round(time.Now()); err != nil {
			s.latch(err)
		}
	}
}

// round is one step: a thorough flush when it is due, otherwise of queues that have pages enough.
func (s *FlushConsumeQueueService) round(now time.Time) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer catchFault(&err)
	if s.latched() {
		return nil
	}
	if err := s.save(); err != nil {
		return err
	}
	if !s.thoroughDue(now) {
		return s.flushPages()
	}
	s.lastThorough = now
	err = s.thorough()
	s.lastTook = time.Since(now)
	if s.lastTook > slowDisk {
		s.logger.Warn("slow flush of queues and index", "took", s.lastTook)
	}
	return err
}

// flushPages does the queues that have flushConsumeQueueLeastPages. It costs nothing while nothing is dispatched.
func (s *FlushConsumeQueueService) flushPages() error {
	mark := s.mark()
	if mark == s.looked {
		return nil
	}
	s.looked = mark
	_, err := s.flushQueues(s.config().FlushConsumeQueueLeastPages)
	return err
}

// thoroughDue follows flushConsumeQueueThoroughInterval, and comes earlier while there is something to gain.
func (s *FlushConsumeQueueService) thoroughDue(now time.Time) bool {
	since := now.Sub(s.lastThorough)
	if since >= millis(s.config().FlushConsumeQueueThoroughInterval) {
		return true
	}
	mark, interval := s.mark(), checkpointInterval
	if mark.offset-s.saved.offset >= checkpointBytes {
		interval = checkpointIntervalMin
	} else if s.dispatched()-s.dispatchedAt < checkpointSyncWorth*s.lastSyncs {
		return false
	}
	return mark != s.saved && since >= max(interval, checkpointShare*s.lastTook)
}

// thorough syncs all of queues and index, then moves the checkpoint if the log is as far.
func (s *FlushConsumeQueueService) thorough() error {
	mark := s.mark() // before the syncs: they cover at least this
	dispatched := s.dispatched()
	syncs, err := s.flushAllQueues()
	if err != nil {
		return err
	}
	s.dispatchedAt, s.lastSyncs = dispatched, syncs
	sealed, err := s.index.syncEntries()
	if err != nil {
		return err
	}
	if sealed > 0 {
		s.times.index = sealed
	}
	s.pending = mark
	return s.save()
}

// save moves the checkpoint to what is pending once the log is durable up to there.
func (s *FlushConsumeQueueService) save() error {
	if s.pending == (dispatchMark{}) || s.pending == s.saved || s.flushed() < s.pending.offset {
		return nil
	}
	s.times.physic, s.times.logics = s.pending.timestamp, s.pending.timestamp
	if err := s.checkpoint.save(s.times, s.pending.offset); err != nil {
		return err
	}
	s.saved = s.pending
	return nil
}

// flushAllQueues syncs all that queues have, and the names of new ones.
func (s *FlushConsumeQueueService) flushAllQueues() (syncs int64, err error) {
	if err := s.queues.names.sync(s.queues.fs); err != nil {
		return 0, err
	}
	return s.flushQueues(0)
}

// flushQueues syncs what makes leastPages in each queue; 0 takes any byte. It says how many syncs that took.
func (s *FlushConsumeQueueService) flushQueues(leastPages int) (syncs int64, err error) {
	var errs []error
	for _, q := range s.queues.all() {
		for {
			progressed, err := q.files.flush(leastPages)
			if err != nil {
				errs = append(errs, err)
			}
			if !progressed {
				break
			}
			syncs++
		}
	}
	return syncs, errors.Join(errs...)
}

// flushAll is the last round, at a clean stop: everything, slots of the index too. The log was flushed before.
func (s *FlushConsumeQueueService) flushAll() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer restoreFaults(debug.SetPanicOnFault(true))
	defer catchFault(&err)
	if s.latched() {
		return nil
	}
	mark := s.mark()
	_, err = s.flushAllQueues()
	if err := errors.Join(err, s.index.sealAll()); err != nil {
		return err
	}
	s.pending = mark
	s.saved = dispatchMark{offset: -1} // write it in any case
	return s.save()
}
