// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/message"
)

const (
	// deliverInterval is when a level is tried again. Source: ScheduleMessageService#DELAY_FOR_A_WHILE.
	deliverInterval = 100 * time.Millisecond
	// deliverIdle is the most between two looks at a level; nearer due times are met exactly.
	deliverIdle = time.Second
	// deliverFirstDelay is the pause after start. Source: ScheduleMessageService#FIRST_DELAY_TIME.
	deliverFirstDelay = time.Second
	// deliverBatchMax and deliverBytesMax bound what one level puts before the others get their turn. A batch is awaited, so
	// deliveries never crowd sends out of the put queue.
	deliverBatchMax = 128
	deliverBytesMax = 1 << 20
	// deliveryBufferKeep is the largest encode buffer that a level keeps for each message of a batch.
	deliveryBufferKeep = 8 << 10
	// unreadableTriesMax is how often a message that cannot be read is tried before it is passed over.
	unreadableTriesMax = 50
	// deliverLogInterval spaces log lines about a level that cannot deliver.
	deliverLogInterval = 10 * time.Second
	// persistFlushTimeout bounds the wait for the log before offsets are saved.
	persistFlushTimeout = 5 * time.Second
)

// ScheduleMessageService delivers delayed messages: each level is a queue of SCHEDULE_TOPIC_XXXX in order of due time, read
// from its own offset; what is due is stored anew under its real topic and queue. Only a master runs it.
//
// One goroutine delivers and owns the levels; a second saves their offsets. A crash between a delivery and the save of its
// offset delivers again: at least once, as everywhere.
type ScheduleMessageService struct {
	b    *BrokerController
	file *tableFile

	levels []*delayLevel // of the delivering goroutine
	puts   []*storage.PutMessage
	record message.Record
	buf    []byte
	props  []byte

	mu      sync.Mutex // guards offsets
	offsets map[int32]storage.QueueOffset

	saveMu sync.Mutex     // held for a save; guards noted
	noted  *delayProgress // to be saved once the log is flushed that far, nil if there is none

	stop chan struct{}
	done sync.WaitGroup
}

// delayProgress is how far each level is, and the end of the log that holds the deliveries up to there.
type delayProgress struct {
	offsets map[int32]storage.QueueOffset
	end     storage.PhyOffset
}

// delayLevel is the reader of one level.
type delayLevel struct {
	level   int32
	offset  storage.QueueOffset
	batch   []*delivery // what is not yet stored of the units before next
	next    storage.QueueOffset
	free    []*delivery
	tries   int // at an unreadable unit
	logged  time.Time
	waiting sync.WaitGroup
}

// delivery is one message on its way to its real queue.
type delivery struct {
	putRequest
	status storage.PutMessageStatus
	cause  error
}

func newScheduleMessageService(b *BrokerController) *ScheduleMessageService {
	return &ScheduleMessageService{
		b:       b,
		file:    b.tableFile("delayOffset.json"),
		offsets: make(map[int32]storage.QueueOffset),
		stop:    make(chan struct{}),
	}
}

// Load reads delayOffset.json, in the form of 4.9 or 5.3.
func (s *ScheduleMessageService) Load() error {
	_, err := s.file.load(func(data []byte) error {
		offsets, err := decodeDelayOffsets(data)
		if err == nil {
			s.offsets = offsets
		}
		return err
	})
	return err
}

// decodeDelayOffsets reads {"offsetTable":{1:5,2:0}}; 5.3's dataVersion beside it is passed over.
func decodeDelayOffsets(data []byte) (map[int32]storage.QueueOffset, error) {
	offsets := make(map[int32]storage.QueueOffset)
	r := newJSONReader(data)
	err := r.object(func(key []byte) error {
		if string(key) != "offsetTable" {
			return r.skip()
		}
		return r.object(func(key []byte) error {
			level, err := strconv.ParseInt(string(key), 10, 32)
			if err != nil || level < 1 {
				return fmt.Errorf("delay level %q", shown(key))
			}
			offset, err := r.int64()
			if err != nil || offset < 0 {
				return fmt.Errorf("offset %d of delay level %d: %w", offset, level, err)
			}
			offsets[int32(level)] = storage.QueueOffset(offset)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return offsets, r.end()
}

func encodeDelayOffsets(offsets map[int32]storage.QueueOffset) []byte {
	w := jsonWriter{pretty: true}
	w.beginObject()
	w.key("offsetTable")
	w.beginObject()
	for _, level := range slices.Sorted(maps.Keys(offsets)) {
		w.intKey(int64(level))
		w.int(int64(offsets[level]))
	}
	w.endObject()
	w.endObject()
	return w.b
}

// Start begins delivery. The offsets come into bounds before the first new message can move those.
func (s *ScheduleMessageService) Start() {
	s.makeLevels(time.Now())
	s.done.Add(2)
	go s.deliver()
	go s.persistRegularly()
}

// Stop ends delivery, awaits what is under way and saves the offsets. The store must still take puts or fail them.
func (s *ScheduleMessageService) Stop() error {
	close(s.stop)
	s.done.Wait()
	if s.flushesSync() || s.b.store.Stats().LatchedCause != nil {
		return s.Persist()
	}
	return s.save(s.progress()) // closing flushes the log
}

// Offsets are the delivered offsets by level.
func (s *ScheduleMessageService) Offsets() map[int32]storage.QueueOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.offsets)
}

// adopt takes over a master's delayOffset.json, on a slave, which does not deliver: made master it goes on from there.
func (s *ScheduleMessageService) adopt(data []byte) error {
	offsets, err := decodeDelayOffsets(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := maps.Equal(offsets, s.offsets)
	s.offsets = offsets
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.file.save(encodeDelayOffsets(offsets))
}

// Persist saves offsets whose deliveries are on the disk: one that survives a power cut which its delivery does not
// survive would lose a message that was safe. Under SYNC_FLUSH it waits for the log. Otherwise it does not press the
// log: it saves what it noted before, when the log has come that far by itself.
func (s *ScheduleMessageService) Persist() error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	now := s.progress()
	if len(now.offsets) == 0 {
		return nil
	}
	if s.flushesSync() {
		if err := s.awaitFlush(now.end); err != nil {
			return err
		}
	}
	switch flushed := s.b.store.FlushedWhere(); {
	case now.end <= flushed:
		s.noted = nil
		return s.save(now)
	case s.noted == nil:
		s.noted = &now
	case s.noted.end <= flushed:
		noted := *s.noted
		s.noted = &now
		return s.save(noted)
	}
	return nil
}

func (s *ScheduleMessageService) flushesSync() bool {
	return s.b.store.Config().FlushDiskType == storage.SyncFlush
}

func (s *ScheduleMessageService) awaitFlush(end storage.PhyOffset) error {
	flushed := make(chan storage.PutMessageStatus, 1)
	s.b.store.SubmitFlushRequest(end, time.Now().Add(persistFlushTimeout), func(status storage.PutMessageStatus) { flushed <- status })
	if status := <-flushed; status != storage.PutOK {
		return fmt.Errorf("delay offsets not saved, the log is not flushed to %d: %s", end, status)
	}
	return nil
}

// progress is how far delivery is now. What the transient pool holds belongs to it; in this order of looks the end is
// never too low.
func (s *ScheduleMessageService) progress() delayProgress {
	offsets := s.Offsets()
	uncommitted := s.b.store.RemainHowManyToCommit()
	return delayProgress{offsets, s.b.store.MaxPhyOffset() + storage.PhyOffset(uncommitted)}
}

func (s *ScheduleMessageService) save(p delayProgress) error {
	if len(p.offsets) == 0 {
		return nil
	}
	return s.file.save(encodeDelayOffsets(p.offsets))
}

func (s *ScheduleMessageService) persistRegularly() {
	defer s.done.Done()
	for {
		interval := time.Duration(s.b.Config().FlushDelayOffsetInterval) * time.Millisecond
		select {
		case <-s.stop:
			return
		case <-time.After(interval):
		}
		if err := s.Persist(); err != nil {
			s.b.logger.Error("delay offsets not saved", "error", err)
		}
	}
}

func (s *ScheduleMessageService) deliver() {
	defer s.done.Done()
	timer := time.NewTimer(deliverFirstDelay)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		timer.Reset(s.step(time.Now()))
	}
}

// step delivers all that is due and says when to look again.
func (s *ScheduleMessageService) step(now time.Time) time.Duration {
	millis := s.makeLevels(now)
	wait := deliverIdle
	for again := true; again; {
		again = false
		for i, delay := range millis {
			select {
			case <-s.stop:
				return 0
			default:
			}
			more, next := s.deliverLevel(s.levels[i], delay, now)
			again = again || more
			wait = min(wait, max(next, time.Millisecond))
		}
	}
	if wait == deliverIdle {
		return reactor.UntilSecond(now)
	}
	return wait
}

// makeLevels makes the readers of levels that have none yet, and returns the delays of all.
func (s *ScheduleMessageService) makeLevels(now time.Time) (millis []int64) {
	millis = s.b.store.Config().DelayLevels.Millis
	for len(s.levels) < len(millis) {
		level := int32(len(s.levels) + 1)
		l := &delayLevel{level: level, offset: s.offset(level)}
		s.clamp(l, now)
		s.levels = append(s.levels, l)
	}
	return millis
}

func (s *ScheduleMessageService) offset(level int32) storage.QueueOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offsets[level]
}

func (s *ScheduleMessageService) setOffset(l *delayLevel, offset storage.QueueOffset) {
	l.offset = offset
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offsets[l.level] = offset
}

// deliverLevel puts one batch of what is due. more says that the level may have another at once; next is when to look
// again otherwise.
func (s *ScheduleMessageService) deliverLevel(l *delayLevel, delay int64, now time.Time) (more bool, next time.Duration) {
	next = deliverInterval
	if len(l.batch) == 0 {
		s.clamp(l, now)
		next = s.readDue(l, delay, now)
	}
	if len(l.batch) == 0 {
		if l.next > l.offset { // only units to pass over
			s.setOffset(l, l.next)
			return true, next
		}
		return false, next
	}
	if !s.putBatch(l, now) {
		return false, deliverInterval
	}
	s.setOffset(l, l.next)
	return true, next
}

// clamp brings the offset into the bounds of its queue. One that a restored file or a cut log left outside would stop the
// level for good (apache/rocketmq#1869).
func (s *ScheduleMessageService) clamp(l *delayLevel, now time.Time) {
	low, high, _ := s.b.store.QueueOffsets(topicSchedule, l.level-1)
	inside := min(max(l.offset, low), high)
	if inside == l.offset {
		return
	}
	s.b.logger.Warn("delay offset outside of its queue, corrected",
		"level", l.level, "offset", l.offset, "min", low, "max", high, "corrected", inside)
	s.setOffset(l, inside)
}

// readDue makes the batch of what is due, from l.offset on, and says when the next unit is.
func (s *ScheduleMessageService) readDue(l *delayLevel, delay int64, now time.Time) time.Duration {
	l.next = l.offset
	nowMillis := now.UnixMilli()
	// What comes to an empty level meanwhile is due no sooner than its delay.
	wait := min(max(time.Duration(delay)*time.Millisecond, deliverInterval), deliverIdle)
	size := 0
	var due [deliverBatchMax]storage.ConsumeQueueUnit
	n := 0
	err := storage.Guard(func() {
		s.b.store.ConsumeQueueUnits(topicSchedule, l.level-1, l.offset, deliverBatchMax,
			func(_ storage.QueueOffset, unit storage.ConsumeQueueUnit) bool {
				at := unit.TagsCode
				if at > nowMillis+delay { // the clock was set back, or the level's delay was shortened
					at = nowMillis
				}
				if at > nowMillis {
					wait = min(wait, time.Duration(at-nowMillis)*time.Millisecond)
					return false
				}
				due[n] = unit
				n++
				return true
			})
	})
	if err != nil {
		s.complain(l, now, "delay level cannot be read", "error", err)
		return deliverInterval
	}
	for _, unit := range due[:n] {
		if size >= deliverBytesMax {
			break
		}
		if !s.add(l, unit, now) {
			wait = deliverInterval
			break
		}
		size += int(unit.Size)
		l.next++
	}
	return wait
}

// add rebuilds one message into the batch. It is false when the message cannot be read now.
func (s *ScheduleMessageService) add(l *delayLevel, unit storage.ConsumeQueueUnit, now time.Time) bool {
	if err := s.b.loadRecord(unit.Offset, &s.buf, &s.record); err != nil {
		if unit.Offset >= s.b.store.MinPhyOffset() && l.tries < unreadableTriesMax {
			l.tries++
			s.complain(l, now, "delayed message cannot be read, tried again", "offset", unit.Offset, "error", err)
			return false
		}
		l.tries = 0
		s.b.logger.Error("delayed message is lost, passed over", "level", l.level, "queueOffset", l.next, "offset", unit.Offset, "error", err)
		return true
	}
	l.tries = 0
	d := l.take(s.b)
	if err := s.rebuild(d); err != nil {
		l.free = append(l.free, d)
		s.b.logger.Error("delayed message cannot be delivered, passed over", "level", l.level, "queueOffset", l.next, "offset", unit.Offset, "error", err)
		return true
	}
	l.batch = append(l.batch, d)
	return true
}

func (l *delayLevel) take(b *BrokerController) *delivery {
	if n := len(l.free); n > 0 {
		d := l.free[n-1]
		l.free = l.free[:n-1]
		return d
	}
	d := new(delivery)
	d.bind(b, func(status storage.PutMessageStatus, cause error) {
		d.status, d.cause = status, cause
		l.waiting.Done()
	})
	return d
}

// rebuild turns s.record back into the message it was. DELAY goes, REAL_TOPIC and REAL_QID stay: they tell where a message
// waited. Source: ScheduleMessageService#messageTimeup.
func (s *ScheduleMessageService) rebuild(d *delivery) error {
	r := &s.record
	topic, _ := message.PropertyValue(r.Properties, message.PropertyRealTopic)
	queue, _ := message.PropertyValue(r.Properties, message.PropertyRealQueueID)
	queueID, err := strconv.ParseInt(string(queue), 10, 32)
	switch {
	case len(topic) == 0 || err != nil || queueID < 0:
		return fmt.Errorf("real topic %q, real queue %q", shown(topic), shown(queue))
	case len(topic) > message.TopicLengthMax || string(topic) == topicTransHalf:
		return fmt.Errorf("real topic %q", shown(topic))
	}
	s.props = message.RemoveProperty(s.props[:0], r.Properties, message.PropertyDelayTimeLevel)
	r.Properties = s.props
	r.Topic, r.QueueID = topic, int32(queueID)
	r.QueueOffset, r.PhysicalOffset, r.StoreTimestamp = 0, 0, 0
	r.StoreHost = s.b.storeHostAddr()
	d.Record, d.MsgNum = message.AppendRecord(d.Record[:0], r), 1
	d.Topic, d.QueueID = string(topic), r.QueueID
	d.waits(s.b.store.Config(), false)
	return nil
}

// putBatch stores the batch and waits for it. What the store refuses stays in the batch, and only that is put again: true
// means that all of it is stored.
func (s *ScheduleMessageService) putBatch(l *delayLevel, now time.Time) bool {
	s.puts = s.puts[:0]
	for _, d := range l.batch {
		s.puts = append(s.puts, &d.PutMessage)
	}
	l.waiting.Add(len(l.batch))
	n, refusedBy := s.b.store.AsyncPutMessages(s.puts)
	clear(s.puts)
	for _, d := range l.batch[n:] {
		d.status, d.cause = refusedBy, nil
		l.waiting.Done()
	}
	l.waiting.Wait()

	kept := l.batch[:0]
	for _, d := range l.batch {
		if d.status == storage.PutOK {
			s.b.stats.Topic(d.Topic).Put(1, d.WroteBytes)
			if cap(d.Record) > deliveryBufferKeep {
				d.Record = nil
			}
			l.free = append(l.free, d)
			continue
		}
		kept = append(kept, d)
	}
	clear(l.batch[len(kept):])
	l.batch = kept
	if len(kept) > 0 {
		s.complain(l, now, "delayed messages not delivered, tried again", "count", len(kept), "status", kept[0].status, "error", kept[0].cause)
	}
	return len(kept) == 0
}

func (s *ScheduleMessageService) complain(l *delayLevel, now time.Time, what string, args ...any) {
	if now.Sub(l.logged) < deliverLogInterval {
		return
	}
	l.logged = now
	s.b.logger.Warn(what, append([]any{"level", l.level}, args...)...)
}
