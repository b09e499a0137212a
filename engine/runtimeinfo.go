// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
)

// brokerVersionDesc is the name of remoting.Version. Source: MQVersion.
const brokerVersionDesc = "V4_9_8"

// endTransactionQueueCapacity is what Java shows for a queue that does not exist here: tools divide by it.
const endTransactionQueueCapacity = "100000"

// getBrokerRuntimeInfo serves 28. Source: AdminBrokerProcessor#prepareRuntimeInfo.
func (b *BrokerController) getBrokerRuntimeInfo(*reactor.Request) answer {
	table := b.runtimeInfo(time.Now())
	var w jsonWriter
	w.beginObject()
	w.key("table")
	w.beginObject()
	for _, k := range slices.Sorted(maps.Keys(table)) {
		w.strMember(k, table[k])
	}
	w.endObject()
	w.endObject()
	return answer{body: w.b}
}

// runtimeInfo holds what mqadmin, the dashboard and the exporter parse: the exporter shows nothing of a broker that
// lacks one of its keys or has it in another form.
func (b *BrokerController) runtimeInfo(now time.Time) map[string]string {
	cfg := b.Config()
	store := b.store.Stats()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	ratio := func(f float64) string { return strconv.FormatFloat(max(0, f), 'f', 4, 64) }
	millis := func(d time.Duration) string { return number(d.Milliseconds()) }

	info := map[string]string{
		"brokerVersion":     strconv.Itoa(remoting.Version),
		"brokerVersionDesc": brokerVersionDesc,
		"brokerActive":      "true",
		"bootTimestamp":     number(b.stats.startedAt.UnixMilli()),
		"runtime":           javaRuntime(now.Sub(b.stats.startedAt)),

		"putMessageEntireTimeMax":   millis(store.PutMessageEntireTimeMax),
		"putMessageTimesTotal":      number(store.PutMessageTimesTotal),
		"putMessageSizeTotal":       number(store.PutMessageSizeTotal),
		"putMessageAverageSize":     strconv.FormatFloat(average(store.PutMessageSizeTotal, store.PutMessageTimesTotal), 'f', 2, 64),
		"putMessageFailedTimes":     number(store.PutMessageFailedTimes),
		"putMessageDistributeTime":  "null", // not kept: metrics have histograms
		"getMessageEntireTimeMax":   "0",
		"dispatchMaxBuffer":         "0",
		"dispatchBehindBytes":       number(b.store.DispatchBehindBytes()),
		"pageCacheLockTimeMills":    millis(store.PageCacheLockTime),
		"earliestMessageTimeStamp":  number(b.store.EarliestMessageTime()),
		"commitLogMinOffset":        number(int64(b.store.MinPhyOffset())),
		"commitLogMaxOffset":        number(int64(b.store.MaxPhyOffset())),
		"commitLogDiskRatio":        ratio(store.CommitLogDiskRatio),
		"consumeQueueDiskRatio":     ratio(store.ConsumeQueueDiskRatio),
		"commitLogDirCapacity":      b.commitLogCapacity(),
		"remainHowManyDataToFlush":  javaBytes(b.store.RemainHowManyToFlush()),
		"remainHowManyDataToCommit": javaBytes(b.store.RemainHowManyToCommit()),

		"remainTransientStoreBufferNumbs":      strconv.Itoa(transientBuffers(store)),
		"startAcceptSendRequestTimeStamp":      number(cfg.StartAcceptSendRequestTimeStamp),
		"sendThreadPoolQueueSize":              strconv.Itoa(store.PutQueueLength),
		"sendThreadPoolQueueCapacity":          strconv.Itoa(cfg.Store.SendThreadPoolQueueCapacity),
		"sendThreadPoolQueueHeadWaitTimeMills": millis(store.PutQueueHeadWait),
		"EndTransactionQueueSize":              "0",

		"EndTransactionThreadPoolQueueCapacity": endTransactionQueueCapacity,
	}
	b.addLane(info, "pull", b.pullLane)
	b.addLane(info, "query", b.queryLane)
	b.stats.addTo(info, store)
	b.addDelayOffsets(info)
	b.addReplication(info)
	return info
}

func transientBuffers(store storage.Stats) int {
	if store.TransientBuffersFree < 0 {
		return math32Max
	}
	return store.TransientBuffersFree
}

// math32Max is what Java shows without a transient store pool.
const math32Max = 1<<31 - 1

func average(sum, times int64) float64 {
	if times == 0 {
		return 0
	}
	return float64(sum) / float64(times)
}

func (b *BrokerController) addLane(info map[string]string, name string, lane *reactor.Lane) {
	if lane == nil {
		return
	}
	info[name+"ThreadPoolQueueSize"] = strconv.Itoa(lane.Len())
	info[name+"ThreadPoolQueueCapacity"] = strconv.Itoa(lane.Capacity())
	info[name+"ThreadPoolQueueHeadWaitTimeMills"] = strconv.FormatInt(lane.HeadWait().Milliseconds(), 10)
}

// addTo adds totals and rates. The rates have both spellings: mqadmin of 4.x and of 5.x each reads its own.
func (s *BrokerStats) addTo(info map[string]string, store storage.Stats) {
	s.mu.Lock()
	totals := map[string]int64{
		"msgPutTotalTodayNow":         store.PutMessageTimesTotal,
		"msgPutTotalTodayMorning":     s.putTodayMorning,
		"msgPutTotalYesterdayMorning": s.putYesterdayMorning,
		"msgGetTotalTodayNow":         store.GetMessageTransferred,
		"msgGetTotalTodayMorning":     s.getTodayMorning,
		"msgGetTotalYesterdayMorning": s.getYesterdayMorning,
	}
	s.mu.Unlock()
	for k, n := range totals {
		info[k] = strconv.FormatInt(n, 10)
	}
	rates := func(of func(storeSample) int64) string {
		r := s.storeRates(of)
		return fmt.Sprintf("%.2f %.2f %.2f", r[0], r[1], r[2])
	}
	info["putTps"] = rates(func(s storeSample) int64 { return s.put })
	info["getFoundTps"] = rates(func(s storeSample) int64 { return s.getFound })
	info["getMissTps"] = rates(func(s storeSample) int64 { return s.getMiss })
	info["getTotalTps"] = rates(func(s storeSample) int64 { return s.getFound + s.getMiss })
	info["getTransferredTps"] = rates(func(s storeSample) int64 { return s.transferred })
	info["getTransferedTps"] = info["getTransferredTps"]
}

func (b *BrokerController) commitLogCapacity() string {
	cfg := &b.Config().Store
	dir := cfg.StorePathCommitLog
	if dir == "" {
		dir = filepath.Join(cfg.StorePathRootDir, "commitlog")
	}
	usage, err := b.fs.Usage(dir)
	if err != nil {
		b.logger.Warn("capacity of the log's disk unknown", "dir", dir, "err", err)
	}
	return fmt.Sprintf("Total : %s, Free : %s.", javaBytes(usage.Total), javaBytes(usage.Free))
}

// javaBytes follows MixAll#humanReadableByteCount with powers of 1024.
func javaBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < len("KMGTPE")-1; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[i])
}

// javaRuntime follows DefaultMessageStore#getFormatRuntime's text.
func javaRuntime(d time.Duration) string {
	s := int64(d.Seconds())
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", s/86400, s/3600%24, s/60%60, s%60)
}

// getBrokerConfig serves 26.
func (b *BrokerController) getBrokerConfig(*reactor.Request) answer {
	var version jsonWriter
	b.configVersion().writeTo(&version)
	return answer{fields: []string{"version", string(version.b)}, body: []byte(b.Config().Properties())}
}

func (b *BrokerController) configVersion() DataVersion {
	return DataVersion{Timestamp: b.stats.startedAt.UnixMilli(), Counter: b.stats.configChanges.Load()}
}

// updateBrokerConfig serves 25. Source: AdminBrokerProcessor#updateBrokerConfig.
func (b *BrokerController) updateBrokerConfig(req *reactor.Request) answer {
	err := b.UpdateConfigProperties(string(req.Body))
	var refusal *ConfigRefusedError
	if errors.As(err, &refusal) && refusal.Forbidden {
		return refused(remoting.NoPermission, "Can not update config in black list: "+refusal.Key)
	}
	if err != nil {
		return failed(err)
	}
	b.stats.configChanges.Add(1)
	b.logger.Info("configuration updated", "peer", req.Session.RemoteAddr(), "bytes", len(req.Body))
	return answer{}
}

// cleanExpiredConsumeQueue serves 306, deleteExpiredCommitLog 329.
func (b *BrokerController) cleanExpiredConsumeQueue(*reactor.Request) answer {
	b.store.CleanExpiredConsumeQueue()
	return answer{}
}

func (b *BrokerController) deleteExpiredCommitLog(*reactor.Request) answer {
	b.store.DeleteExpiredFiles()
	return answer{}
}

// viewBrokerStatsData serves 315.
func (b *BrokerController) viewBrokerStatsData(req *reactor.Request) answer {
	h := headerOf(req)
	name, key := h.text("statsName"), h.text("statsKey")
	if h.err != nil {
		return failed(h.err)
	}
	minute, hour, day, ok := b.stats.Item(name, key, b.Config().BrokerClusterName, time.Now())
	if !ok {
		return refused(remoting.SystemError, fmt.Sprintf("The stats <%s> <%s> not exist", shown([]byte(name)), shown([]byte(key))))
	}
	var w jsonWriter
	w.beginObject()
	for _, series := range []struct {
		name string
		data StatsData
	}{{"statsDay", day}, {"statsHour", hour}, {"statsMinute", minute}} {
		w.key(series.name)
		w.beginObject()
		w.floatMember("avgpt", series.data.AvgPT)
		w.intMember("sum", series.data.Sum)
		w.floatMember("tps", series.data.TPS)
		w.endObject()
	}
	w.endObject()
	return answer{body: w.b}
}

// addDelayOffsets says how far each delay level is delivered: its offset and the end of its queue.
func (b *BrokerController) addDelayOffsets(info map[string]string) {
	if b.schedule == nil {
		return
	}
	for level, offset := range b.schedule.Offsets() {
		_, end, _ := b.store.QueueOffsets(topicSchedule, level-1)
		info["scheduleMessageOffset_"+strconv.Itoa(int(level))] = fmt.Sprintf("%d,%d", offset, end)
	}
}

// getAllDelayOffset serves 45.
func (b *BrokerController) getAllDelayOffset(*reactor.Request) answer {
	offsets := make(map[int32]int64)
	for level, offset := range b.schedule.Offsets() {
		offsets[level] = int64(offset)
	}
	var w jsonWriter
	w.beginObject()
	w.key("offsetTable")
	writeIntMap(&w, offsets)
	w.endObject()
	return answer{body: w.b}
}
