// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/message"
)

const (
	// reputInterval is how long the service sleeps between rounds while records keep coming.
	// Source: ReputMessageService#run.
	reputInterval = time.Millisecond
	// reputUnawaitedInterval is the same while nobody waits for messages: a wake costs as much as dispatching ten records.
	reputUnawaitedInterval = 5 * time.Millisecond
	// reputIdleRounds is how many rounds find nothing before the service sleeps until an append wakes it: waking a
	// thread for every append costs more than looking a thousand times a second.
	reputIdleRounds = 16
	// reputRetryInterval is how long it waits before it tries a record again that the disk had no room for.
	reputRetryInterval = time.Second
	// reputStopWait bounds how long a stop waits for the lag to vanish. Source: ReputMessageService#shutdown.
	reputStopWait = 5 * time.Second
	// reputPublishInterval is how many records share one update of what the checkpoint may stand for.
	reputPublishInterval = 1024
)

// ReputMessageService reads the log behind the appends and dispatches what it finds to queues and index, then tells who
// waits for messages. It never leaves a record out because the disk is full: it waits and tries again at the same place
// (alibaba/rocketmq#331). Source: DefaultMessageStore.ReputMessageService.
type ReputMessageService struct {
	log        *MappedFileQueue
	dispatcher *dispatcher
	config     func() *Config
	arriving   func(Arrival) // may be nil
	awaited    func() bool   // likewise
	takesRaw   func() bool
	latch      func(error)
	logger     *slog.Logger

	offset     atomic.Int64 // dispatched below
	dispatched atomic.Int64 // messages
	skipped    atomic.Int64 // bytes that were no records

	mu   sync.Mutex // guards mark
	mark dispatchMark

	round  sync.Mutex  // held while it dispatches, and while a slave's log is cut
	paused atomic.Bool // somebody waits for round

	parked  atomic.Bool
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}

	request dispatchRequest // scratch of the service's goroutine
	since   int             // records since the last mark
	failing time.Time       // since when the record at offset cannot be dispatched
	logged  time.Time
}

// dispatchMark says that everything below offset is in queues and index, the last of it stored at timestamp.
type dispatchMark struct {
	offset    PhyOffset
	timestamp int64
}

func newReputMessageService(log *MappedFileQueue, d *dispatcher, config func() *Config, arriving func(Arrival), latch func(error), logger *slog.Logger) *ReputMessageService {
	return &ReputMessageService{
		log: log, dispatcher: d, config: config, arriving: arriving, latch: latch, logger: logger,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *ReputMessageService) start() { go s.run() }

// stop dispatches what is left, as far as it can be.
func (s *ReputMessageService) stop() {
	close(s.stopped)
	<-s.done
}

// wrote is called after an append. It costs a load unless the service sleeps.
func (s *ReputMessageService) wrote() {
	if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
		s.wake <- struct{}{} // one token for each change of parked, taken before the next
	}
}

// behind is how many readable bytes are not dispatched.
func (s *ReputMessageService) behind() int64 { return max(0, s.log.maxOffset()-s.offset.Load()) }

// marked is what a checkpoint may stand for once queues, index and log are synced.
func (s *ReputMessageService) marked() dispatchMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// setMark is also where the service begins.
func (s *ReputMessageService) setMark(m dispatchMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = m
}

// begin sets where dispatch starts; recovery has dispatched everything below.
func (s *ReputMessageService) begin(m dispatchMark) {
	s.offset.Store(int64(m.offset))
	s.setMark(m)
}

func (s *ReputMessageService) run() {
	defer close(s.done)
	defer restoreFaults(debug.SetPanicOnFault(true))
	timer := time.NewTimer(reputInterval)
	defer timer.Stop()
	for idle := 0; ; {
		progressed, err := s.doReput()
		pause := s.interval()
		switch {
		case err != nil:
			pause = reputRetryInterval
			s.complain(err)
			idle = 0
		case progressed:
			s.failing = time.Time{}
			idle = 0
		default:
			idle++
		}
		if idle >= reputIdleRounds {
			if !s.park() {
				break
			}
			idle = 0
			continue
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
			continue
		case <-s.stopped:
		}
		break
	}
	s.drain()
}

func (s *ReputMessageService) interval() time.Duration {
	if s.awaited != nil && !s.awaited() {
		return reputUnawaitedInterval
	}
	return reputInterval
}

// park sleeps until an append or the stop; false is the stop.
func (s *ReputMessageService) park() bool {
	s.parked.Store(true)
	// What was appended before the store above did not wake us.
	if s.behind() > 0 && s.parked.CompareAndSwap(true, false) {
		return true
	}
	select {
	case <-s.wake:
		return true
	case <-s.stopped:
		return false
	}
}

// drain dispatches the rest at a stop. What meets an error is left to the next start: a disk that is gone, or full, will
// not come back in the time that a stop has.
func (s *ReputMessageService) drain() {
	for deadline := time.Now().Add(reputStopWait); s.behind() > 0 && time.Now().Before(deadline); {
		progressed, err := s.doReput()
		if err != nil {
			s.complain(err)
		}
		if err != nil || !progressed {
			return
		}
	}
}

// complain says at once, and then every half minute, that dispatch does not get on.
func (s *ReputMessageService) complain(err error) {
	now := time.Now()
	if s.failing.IsZero() {
		s.failing, s.logged = now, time.Time{}
	}
	if now.Sub(s.logged) >= 30*time.Second {
		s.logged = now
		s.logger.Error("messages cannot be dispatched, trying on at the same place",
			"offset", s.offset.Load(), "behind", s.behind(), "for", now.Sub(s.failing).Round(time.Second), "cause", err)
	}
}

// doReput dispatches what is readable. Source: ReputMessageService#doReput.
func (s *ReputMessageService) doReput() (progressed bool, err error) {
	s.round.Lock()
	defer s.round.Unlock()
	defer func() {
		if isFinal(err) {
			s.latch(err)
		}
	}()
	defer catchFault(&err)
	before := s.offset.Load()
	for s.offset.Load() < s.log.maxOffset() {
		moved, err := s.reputFile()
		if err != nil || !moved {
			return s.offset.Load() != before, err
		}
	}
	return s.offset.Load() != before, nil
}

// reputFile dispatches the readable records of one file; false when it can get no further now.
func (s *ReputMessageService) reputFile() (moved bool, err error) {
	from := s.offset.Load()
	f := s.log.find(from)
	if f == nil || !f.hold() {
		return s.jumpToMin(from), nil
	}
	defer f.release()
	c := s.config()
	end := f.readPosition()
	defer s.publish()
	for at := from - f.base; at < end && !s.paused.Load(); at = s.offset.Load() - f.base {
		size, state, why := checkMessage(f.bytes()[at:end:end], PhyOffset(f.base+at), f.size-at, false, &c.DelayLevels, &s.request)
		if state == recordBlank && at+size > end {
			return false, nil // a filler is passed when all of it is there, so that it is known where a record begins
		}
		if state == recordPartial && !s.takesRaw() {
			state, why = recordBad, fmt.Errorf("%w: the log ends inside it", message.ErrMalformed)
		}
		switch state {
		case recordGood:
			if err := s.dispatch(); err != nil {
				return at != from-f.base, err
			}
		case recordBlank:
			s.advance(f.base + at + size)
			return true, nil
		case recordPartial: // normal where raw log is taken: bytes come in pieces that end anywhere
			return false, nil
		case recordBad:
			if c.Role == Slave {
				return false, fmt.Errorf("record at %d: %w", f.base+at, why)
			}
			s.skipBad(f, at, end, why, c)
		}
	}
	return s.offset.Load() != from, nil
}

// jumpToMin leaves out what retention deleted before it was dispatched.
func (s *ReputMessageService) jumpToMin(from int64) bool {
	minOffset := s.log.minOffset()
	if from >= minOffset {
		return false
	}
	s.logger.Error("log files were deleted before they were dispatched", "from", from, "to", minOffset)
	s.skipped.Add(minOffset - from)
	s.advance(minOffset)
	return true
}

// dispatch enters s.request and tells who waits for it.
func (s *ReputMessageService) dispatch() error {
	d := &s.request
	q, err := s.dispatcher.dispatch(d)
	if err != nil {
		if q, err = s.settle(d, err); err != nil {
			return err
		}
	}
	s.dispatched.Add(1)
	s.advance(int64(d.end()))
	if s.since++; s.since >= reputPublishInterval {
		s.publish()
	}
	if q != nil && s.arriving != nil {
		s.arriving(Arrival{
			Topic:          q.topic,
			QueueID:        q.queueID,
			MaxOffset:      QueueOffset(d.QueueOffset) + 1,
			TagsCode:       d.tagsCode,
			StoreTimestamp: d.StoreTimestamp,
			Properties:     d.Properties,
		})
	}
	return nil
}

// settle deals with a record that could not be put into its queue. No queue and no error: it is passed over.
func (s *ReputMessageService) settle(d *dispatchRequest, err error) (q *ConsumeQueue, _ error) {
	for mismatch := (*mismatchError)(nil); errors.As(err, &mismatch); {
		again, settleErr := s.dispatcher.settle(mismatch)
		if settleErr != nil || !again {
			return nil, settleErr
		}
		q, err = s.dispatcher.dispatch(d)
	}
	if errors.Is(err, errNoSuchQueue) {
		s.dispatcher.alarm("record cannot be in a queue", err)
		return nil, nil
	}
	return q, err
}

func (s *ReputMessageService) advance(to int64) { s.offset.Store(to) }

// publish lets the checkpoint stand for what was dispatched since the last time.
func (s *ReputMessageService) publish() {
	s.since = 0
	m := s.marked()
	if to := PhyOffset(s.offset.Load()); to != m.offset {
		m.offset = to
		if s.request.StoreTimestamp > 0 {
			m.timestamp = s.request.StoreTimestamp
		}
		s.setMark(m)
	}
}

// skipBad goes on at the next record that is whole, checksum and all; if there is none, behind what is readable now.
func (s *ReputMessageService) skipBad(f *MappedFile, at, end int64, why error, c *Config) {
	next := end
	if at, ok := nextRecord(f, at+1, end, &c.DelayLevels); ok {
		next = at
	}
	s.skipped.Add(next - at)
	s.logger.Error("damaged bytes in the log, messages in them are lost",
		"file", f.path(), "offset", f.base+at, "bytes", next-at, "cause", why)
	s.advance(f.base + next)
}

// nextRecord finds the first whole record, or filler, at or behind a position. A record in the body of another does not
// deceive it: it would have to say that it lies where it does.
func nextRecord(f *MappedFile, from, end int64, levels *message.DelayLevels) (int64, bool) {
	var d dispatchRequest
	b := f.bytes()[:end:end]
	for at := from; ; at++ {
		magicAt, ok := nextMagic(b, at+4)
		if !ok {
			return 0, false
		}
		at = magicAt - 4
		_, state, _ := checkMessage(b[at:], PhyOffset(f.base+at), f.size-at, true, levels, &d)
		if state == recordGood || state == recordBlank {
			return at, true
		}
	}
}

// nextMagic is where the next magic code begins, at or behind a position.
func nextMagic(b []byte, from int64) (int64, bool) {
	for at := from; at+4 <= int64(len(b)); at++ {
		switch binary.BigEndian.Uint32(b[at:]) {
		case message.MagicV1, message.MagicV2, message.MagicBlank:
			return at, true
		}
	}
	return 0, false
}
