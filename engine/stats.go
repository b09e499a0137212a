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
	// statsHandlesMax bounds the topics that are counted, and the groups on topics; what is beyond is not counted.
	statsHandlesMax = 100_000
)

// BrokerStats counts puts and gets by topic and group for code 315, 28 and /metrics. Counting is an atomic add on a
// handle; one goroutine calls Sample. Source: BrokerStatsManager, StoreStatsService.
type BrokerStats struct {
	startedAt     time.Time
	configChanges atomic.Int64
	topics        *cowMap[*TopicStats]
	groups        *cowMap[*GroupStats] // by topic@group
	removals      atomic.Int64         // whoever keeps handles asks for them anew after one

	goneGets, goneGetTimes atomic.Int64 // of groups forgotten

	mu     sync.Mutex // guards the samples below and those of all handles
	put    counter    // BROKER_PUT_NUMS
	get    counter    // BROKER_GET_NUMS
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

// Topic returns the handle of a topic, to keep; nil beyond statsHandlesMax.
func (s *BrokerStats) Topic(topic string) *TopicStats {
	if t, ok := s.topics.get(topic); ok || s.topics.len() >= statsHandlesMax {
		return t
	}
	return s.topics.getOrPut(topic, func() *TopicStats { return new(TopicStats) })
}

// Group returns the handle of a group on a topic, to keep; nil beyond statsHandlesMax.
func (s *BrokerStats) Group(topic, group string) *GroupStats {
	var buf [offsetKeyBuffer]byte
	key := offsetKey(buf[:], topic, group)
	if g, ok := s.groups.getBytes(key); ok || s.groups.len() >= statsHandlesMax {
		return g
	}
	return s.groups.getOrPut(string(key), func() *GroupStats { return new(GroupStats) })
}

// RemoveTopic forgets a deleted topic. Handles still held count on, unseen.
func (s *BrokerStats) RemoveTopic(topic string) {
	s.topics.remove(topic)
	s.removeGroups(func(t, _ string) bool { return t == topic })
	s.removals.Add(1)
}

// RemoveGroup forgets a deleted group.
func (s *BrokerStats) RemoveGroup(group string) {
	s.removeGroups(func(_, g string) bool { return g == group })
	s.removals.Add(1)
}

func (s *BrokerStats) removeGroups(gone func(topic, group string) bool) {
	s.groups.each(func(key string, g *GroupStats) bool {
		if topic, group, ok := splitOffsetKey(key); ok && gone(topic, group) {
			s.groups.remove(key)
			s.goneGets.Add(g.nums.value.Load())
			s.goneGetTimes.Add(g.nums.times.Load())
		}
		return true
	})
}

// counter is one number that only grows and how often it grew, with what was seen of it.
type counter struct {
	value, times atomic.Int64
	series       statsSeries // guarded by BrokerStats.mu
}

func (c *counter) add(n int64) {
	c.value.Add(n)
	c.times.Add(1)
}

func (c *counter) now(at time.Time) statsSample {
	return statsSample{at: at.UnixMilli(), value: c.value.Load(), times: c.times.Load()}
}

// TopicStats counts the puts of one topic.
type TopicStats struct{ nums, size counter }

// Put counts one request that stored msgs records of bytes in all. A nil handle counts nothing.
func (t *TopicStats) Put(msgs int, bytes int64) {
	if t == nil {
		return
	}
	t.nums.add(int64(msgs))
	t.size.add(bytes)
}

// GroupStats counts the gets of one group on one topic.
type GroupStats struct{ nums, size, sendBack counter }

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

// statsSeries are earlier looks at one counter, the oldest first; nil until it counted.
type statsSeries struct{ minute, hour, day []statsSample }

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

// since is what a counter did between a look and now. Source: StatsItem#computeStatsData, which ends at the last look
// instead, and so shows nothing of the last minutes.
func since(samples []statsSample, now statsSample) (d StatsData) {
	first := statsSample{at: now.at - statsMinuteStep.Milliseconds()} // not looked at yet
	if len(samples) > 0 {
		first = samples[0]
	}
	d.Sum = now.value - first.value
	if elapsed := now.at - first.at; elapsed > 0 {
		d.TPS = float64(d.Sum) * 1000 / float64(elapsed)
	}
	if times := now.times - first.times; times > 0 {
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

func (s *statsSeries) sample(sample statsSample, d due) {
	if s.minute == nil {
		if sample.times == 0 {
			return
		}
		// It counted for the first time since the last look.
		zero := statsSample{at: sample.at - statsMinuteStep.Milliseconds()}
		s.minute, s.hour, s.day = []statsSample{zero}, []statsSample{zero}, []statsSample{zero}
	}
	if d.minute {
		s.minute = keep(s.minute, sample, statsMinuteKept)
	}
	if d.hour {
		s.hour = keep(s.hour, sample, statsHourKept)
	}
	if d.day {
		s.day = keep(s.day, sample, statsDayKept)
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
	look := func(c *counter) { c.series.sample(c.now(now), d) }
	s.put.value.Store(store.PutMessageTimesTotal)
	s.put.times.Store(store.PutMessageTimesTotal)
	look(&s.put)
	s.topics.each(func(_ string, t *TopicStats) bool {
		look(&t.nums)
		look(&t.size)
		return true
	})
	gets, times := s.goneGets.Load(), s.goneGetTimes.Load()
	s.groups.each(func(_ string, g *GroupStats) bool {
		look(&g.nums)
		look(&g.size)
		look(&g.sendBack)
		gets += g.nums.value.Load()
		times += g.nums.times.Load()
		return true
	})
	s.get.value.Store(max(gets, s.get.value.Load())) // a group may be on its way out
	s.get.times.Store(max(times, s.get.times.Load()))
	look(&s.get)
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

// counter finds a statistic that counted at least once; nil otherwise.
func (s *BrokerStats) counter(name, key, cluster string) *counter {
	var c *counter
	switch t, g := s.handles(name, key); {
	case name == statsTopicPutNums && t != nil:
		c = &t.nums
	case name == statsTopicPutSize && t != nil:
		c = &t.size
	case name == statsGroupGetNums && g != nil:
		c = &g.nums
	case name == statsGroupGetSize && g != nil:
		c = &g.size
	case name == statsSendBackNums && g != nil:
		c = &g.sendBack
	case name == statsBrokerPutNums && key == cluster:
		c = &s.put
	case name == statsBrokerGetNums && key == cluster:
		c = &s.get
	}
	if c == nil || c.times.Load() == 0 {
		return nil
	}
	return c
}

func (s *BrokerStats) handles(name, key string) (t *TopicStats, g *GroupStats) {
	switch name {
	case statsTopicPutNums, statsTopicPutSize:
		t, _ = s.topics.get(key)
	case statsGroupGetNums, statsGroupGetSize, statsSendBackNums:
		g, _ = s.groups.get(key)
	}
	return t, g
}

// Item returns the three series of a statistic; ok is false for one that is unknown or never counted.
func (s *BrokerStats) Item(name, key, cluster string, at time.Time) (minute, hour, day StatsData, ok bool) {
	c := s.counter(name, key, cluster)
	if c == nil {
		return minute, hour, day, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.now(at)
	return since(c.series.minute, now), since(c.series.hour, now), since(c.series.day, now), true
}

// ConsumeTPS is how many messages a second the group got of topic over the last minute.
func (s *BrokerStats) ConsumeTPS(topic, group string) float64 {
	minute, _, _, _ := s.Item(statsGroupGetNums, topic+"@"+group, "", time.Now())
	return minute.TPS
}

// PutTPS is how many messages a second were sent to topic over the last minute.
func (s *BrokerStats) PutTPS(topic string) float64 {
	minute, _, _, _ := s.Item(statsTopicPutNums, topic, "", time.Now())
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
