// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage"
)

// How often counters are looked at, and how many looks are kept: a minute of 10 s steps, an hour of 10 min, a day of
// hours. Source: StatsItem.
const (
	statsMinuteStep, statsMinuteKept = 10 * time.Second, 7
	statsHourStep, statsHourKept     = 10 * time.Minute, 7
	statsDayStep, statsDayKept       = time.Hour, 25
	// storeRateKept is how many seconds of the store's counters are kept: the longest rate is over 600 s.
	storeRateKept = 601
)

// BrokerStats counts puts and gets by topic and group for code 315, 28 and /metrics. Counting is an atomic add on a
// handle; one goroutine calls Sample. Source: BrokerStatsManager, StoreStatsService.
type BrokerStats struct {
	startedAt     time.Time
	configChanges atomic.Int64
	topics        *cowMap[*TopicStats]
	groups        *cowMap[*GroupStats] // by topic@group

	mu     sync.Mutex // guards the samples below and those of all handles
	put    statsItem  // BROKER_PUT_NUMS
	get    statsItem  // BROKER_GET_NUMS
	minute time.Time  // when each series was last sampled
	hour   time.Time
	day    time.Time
	store  []storeSample // one a second, the oldest first

	// Message totals of the store at the last two midnights. Source: BrokerStats.
	recorded                             string // the day of the last midnight
	putYesterdayMorning, putTodayMorning int64
	getYesterdayMorning, getTodayMorning int64
}

func newBrokerStats() *BrokerStats {
	return &BrokerStats{startedAt: time.Now(), topics: newCowMap[*TopicStats](), groups: newCowMap[*GroupStats]()}
}

// Topic returns the handle of a topic, to keep.
func (s *BrokerStats) Topic(topic string) *TopicStats {
	return s.topics.getOrPut(topic, func() *TopicStats { return new(TopicStats) })
}

// Group returns the handle of a group on a topic, to keep.
func (s *BrokerStats) Group(topic, group string) *GroupStats {
	var buf [offsetKeyBuffer]byte
	key := offsetKey(buf[:], topic, group)
	if g, ok := s.groups.getBytes(key); ok {
		return g
	}
	return s.groups.getOrPut(string(key), func() *GroupStats { return new(GroupStats) })
}

// RemoveTopic forgets a deleted topic. Handles still held count on, unseen.
func (s *BrokerStats) RemoveTopic(topic string) {
	s.topics.remove(topic)
	s.removeGroups(func(t, _ string) bool { return t == topic })
}

// RemoveGroup forgets a deleted group.
func (s *BrokerStats) RemoveGroup(group string) {
	s.removeGroups(func(_, g string) bool { return g == group })
}

func (s *BrokerStats) removeGroups(gone func(topic, group string) bool) {
	s.groups.each(func(key string, _ *GroupStats) bool {
		if topic, group, ok := splitOffsetKey(key); ok && gone(topic, group) {
			s.groups.remove(key)
		}
		return true
	})
}

// counter is one number that only grows and how often it grew.
type counter struct {
	value atomic.Int64
	times atomic.Int64
}

func (c *counter) add(n int64) {
	c.value.Add(n)
	c.times.Add(1)
}

// TopicStats counts the puts of one topic.
type TopicStats struct {
	nums, size         counter
	numsItem, sizeItem statsItem
}

// Put counts one request that stored msgs records of bytes in all. A nil handle counts nothing.
func (t *TopicStats) Put(msgs int, bytes int64) {
	if t == nil {
		return
	}
	t.nums.add(int64(msgs))
	t.size.add(bytes)
}

// GroupStats counts the gets of one group on one topic.
type GroupStats struct {
	nums, size, sendBack             counter
	numsItem, sizeItem, sendBackItem statsItem
}

// Get counts one answer with msgs records of bytes in all.
func (g *GroupStats) Get(msgs int, bytes int64) {
	if g == nil {
		return
	}
	g.nums.add(int64(msgs))
	g.size.add(bytes)
}

// SendBack counts one message that a consumer sent back.
func (g *GroupStats) SendBack() {
	if g != nil {
		g.sendBack.add(1)
	}
}

// statsItem is what was seen of one counter. Guarded by BrokerStats.mu.
type statsItem struct {
	minute, hour, day []statsSample // nil until the counter counted; the oldest first
}

type statsSample struct {
	at           int64 // ms
	value, times int64
}

// StatsData is one series of an item. Source: BrokerStatsItem.
type StatsData struct {
	Sum   int64
	TPS   float64
	AvgPT float64
}

// dataOf follows StatsItem#computeStatsData.
func dataOf(samples []statsSample) (d StatsData) {
	if len(samples) == 0 {
		return d
	}
	first, last := samples[0], samples[len(samples)-1]
	d.Sum = last.value - first.value
	if elapsed := last.at - first.at; elapsed > 0 {
		d.TPS = float64(d.Sum) * 1000 / float64(elapsed)
	}
	if times := last.times - first.times; times > 0 {
		d.AvgPT = float64(d.Sum) / float64(times)
	}
	return d
}

func keep(samples []statsSample, sample statsSample, kept int) []statsSample {
	if len(samples) == kept {
		copy(samples, samples[1:])
		samples = samples[:kept-1]
	}
	return append(samples, sample)
}

// due says which series this look is for.
type due struct{ minute, hour, day bool }

func (i *statsItem) sample(now time.Time, value, times int64, d due) {
	if i.minute == nil && times == 0 {
		return
	}
	if i.minute == nil { // counted for the first time since the last look
		zero := statsSample{at: now.Add(-statsMinuteStep).UnixMilli()}
		i.minute, i.hour, i.day = []statsSample{zero}, []statsSample{zero}, []statsSample{zero}
	}
	sample := statsSample{at: now.UnixMilli(), value: value, times: times}
	if d.minute {
		i.minute = keep(i.minute, sample, statsMinuteKept)
	}
	if d.hour {
		i.hour = keep(i.hour, sample, statsHourKept)
	}
	if d.day {
		i.day = keep(i.day, sample, statsDayKept)
	}
}

// storeSample is one look at the store's counters.
type storeSample struct {
	at                                  time.Time
	put, getFound, getMiss, transferred int64
}

// Sample looks at all counters; it is called about once a second.
func (s *BrokerStats) Sample(now time.Time, store storage.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sampleStore(now, store)
	s.record(now, store)
	var d due
	d.minute = passed(&s.minute, now, statsMinuteStep)
	d.hour = passed(&s.hour, now, statsHourStep)
	d.day = passed(&s.day, now, statsDayStep)
	if !d.minute {
		return
	}
	s.put.sample(now, store.PutMessageTimesTotal, store.PutMessageTimesTotal, d)
	s.topics.each(func(_ string, t *TopicStats) bool {
		t.numsItem.sample(now, t.nums.value.Load(), t.nums.times.Load(), d)
		t.sizeItem.sample(now, t.size.value.Load(), t.size.times.Load(), d)
		return true
	})
	var gets, times int64
	s.groups.each(func(_ string, g *GroupStats) bool {
		g.numsItem.sample(now, g.nums.value.Load(), g.nums.times.Load(), d)
		g.sizeItem.sample(now, g.size.value.Load(), g.size.times.Load(), d)
		g.sendBackItem.sample(now, g.sendBack.value.Load(), g.sendBack.times.Load(), d)
		gets += g.nums.value.Load()
		times += g.nums.times.Load()
		return true
	})
	s.get.sample(now, gets, times, d)
}

func passed(last *time.Time, now time.Time, step time.Duration) bool {
	if now.Sub(*last) < step {
		return false
	}
	*last = now
	return true
}

func (s *BrokerStats) sampleStore(now time.Time, store storage.Stats) {
	if len(s.store) == storeRateKept {
		copy(s.store, s.store[1:])
		s.store = s.store[:storeRateKept-1]
	}
	s.store = append(s.store, storeSample{
		at: now, put: store.PutMessageTimesTotal, getFound: store.GetMessageTimesFound, getMiss: store.GetMessageTimesMiss,
		transferred: store.GetMessageTransferred,
	})
}

// record takes the totals at midnight. Source: BrokerStats#record.
func (s *BrokerStats) record(now time.Time, store storage.Stats) {
	today := now.Format(time.DateOnly)
	if s.recorded != "" && s.recorded != today {
		s.putYesterdayMorning, s.putTodayMorning = s.putTodayMorning, store.PutMessageTimesTotal
		s.getYesterdayMorning, s.getTodayMorning = s.getTodayMorning, store.GetMessageTransferred
	}
	s.recorded = today
}

// storeRates are the store's rates per second over the last 10, 60 and 600 s, or as long as it runs.
func (s *BrokerStats) storeRates(of func(storeSample) int64) (rates [3]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.store) == 0 {
		return rates
	}
	last := s.store[len(s.store)-1]
	for i, seconds := range [...]int{10, 60, 600} {
		first := s.store[max(0, len(s.store)-1-seconds)]
		if elapsed := last.at.Sub(first.at).Seconds(); elapsed > 0 {
			rates[i] = float64(of(last)-of(first)) / elapsed
		}
	}
	return rates
}

// Names of statistics that code 315 knows. Source: Stats (4.9: BrokerStatsManager).
const (
	statsTopicPutNums  = "TOPIC_PUT_NUMS"
	statsTopicPutSize  = "TOPIC_PUT_SIZE"
	statsGroupGetNums  = "GROUP_GET_NUMS"
	statsGroupGetSize  = "GROUP_GET_SIZE"
	statsSendBackNums  = "SNDBCK_PUT_NUMS"
	statsBrokerPutNums = "BROKER_PUT_NUMS"
	statsBrokerGetNums = "BROKER_GET_NUMS"
)

// item finds a statistic that counted at least once; nil otherwise. The caller holds mu.
func (s *BrokerStats) itemLocked(name, key, cluster string) *statsItem {
	var item *statsItem
	switch name {
	case statsTopicPutNums, statsTopicPutSize:
		if t, ok := s.topics.get(key); ok {
			item = &t.numsItem
			if name == statsTopicPutSize {
				item = &t.sizeItem
			}
		}
	case statsGroupGetNums, statsGroupGetSize, statsSendBackNums:
		if g, ok := s.groups.get(key); ok {
			item = &g.numsItem
			switch name {
			case statsGroupGetSize:
				item = &g.sizeItem
			case statsSendBackNums:
				item = &g.sendBackItem
			}
		}
	case statsBrokerPutNums:
		if key == cluster {
			item = &s.put
		}
	case statsBrokerGetNums:
		if key == cluster {
			item = &s.get
		}
	}
	if item == nil || item.minute == nil {
		return nil
	}
	return item
}

// Item returns the three series of a statistic; ok is false for one that is unknown or never counted.
func (s *BrokerStats) Item(name, key, cluster string) (minute, hour, day StatsData, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item := s.itemLocked(name, key, cluster)
	if item == nil {
		return minute, hour, day, false
	}
	return dataOf(item.minute), dataOf(item.hour), dataOf(item.day), true
}

// ConsumeTPS is how many messages a second the group got of topic over the last minute.
func (s *BrokerStats) ConsumeTPS(topic, group string) float64 {
	minute, _, _, _ := s.Item(statsGroupGetNums, topic+"@"+group, "")
	return minute.TPS
}

// PutTPS is how many messages a second were sent to topic over the last minute.
func (s *BrokerStats) PutTPS(topic string) float64 {
	minute, _, _, _ := s.Item(statsTopicPutNums, topic, "")
	return minute.TPS
}

// Totals calls topic and group for each handle with what it counted since start: messages and bytes, and for groups
// messages sent back.
func (s *BrokerStats) Totals(topic func(name string, msgs, bytes int64), group func(topic, group string, msgs, bytes, sentBack int64)) {
	s.topics.each(func(name string, t *TopicStats) bool {
		topic(name, t.nums.value.Load(), t.size.value.Load())
		return true
	})
	s.groups.each(func(key string, g *GroupStats) bool {
		if t, name, ok := splitOffsetKey(key); ok {
			group(t, name, g.nums.value.Load(), g.size.value.Load(), g.sendBack.value.Load())
		}
		return true
	})
}
