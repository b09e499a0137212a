// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/latency"
)

// snapshot is what one scrape sees. Hot paths count; only a scrape adds up.
type snapshot struct {
	store  storage.Stats
	server reactor.ServerStats

	min, max, flushed                               storage.PhyOffset
	dispatchBehind, flushBehind, commitBehind       int64
	held, topics, groups                            int
	nameServers, nameServersRegistered, storeWrites float64
}

func (b *BrokerController) snapshot() snapshot {
	s := snapshot{
		store: b.store.Stats(), server: b.server.Stats(),
		min: b.store.MinPhyOffset(), max: b.store.MaxPhyOffset(), flushed: b.store.FlushedWhere(),
		dispatchBehind: b.store.DispatchBehindBytes(),
		flushBehind:    b.store.RemainHowManyToFlush(),
		commitBehind:   b.store.RemainHowManyToCommit(),
		held:           b.hold.Held(),
	}
	topics, _ := b.topics.All()
	groups, _ := b.groups.All()
	s.topics, s.groups = len(topics), len(groups)
	for _, ns := range b.NameServers() {
		s.nameServers++
		if ns.Registered {
			s.nameServersRegistered++
		}
	}
	if status, _ := b.store.PutDenied(); status == storage.PutOK {
		s.storeWrites = 1
	}
	return s
}

// histogram shows a latency.Snapshot in seconds.
func histogram(desc *prometheus.Desc, s *latency.Snapshot, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.AtMost))
	for i, bound := range latency.Bounds {
		buckets[bound.Seconds()] = uint64(s.AtMost[i])
	}
	return prometheus.MustNewConstHistogram(desc, uint64(s.Count), s.Sum.Seconds(), buckets, labels...)
}

// metricDoc is a metric as operators read of it: the README's table has a line for each.
type metricDoc struct {
	name, kind, help string
	labels           []string
	desc             *prometheus.Desc
}

// metricDocs are all metrics of a broker.
var metricDocs []metricDoc

func describe(name, help string, labels ...string) *prometheus.Desc {
	kind := "gauge"
	if strings.HasSuffix(name, "_total") {
		kind = "counter"
	}
	return describeAs(kind, name, help, labels...)
}

func describeHistogram(name, help string, labels ...string) *prometheus.Desc {
	return describeAs("histogram", name, help, labels...)
}

func describeAs(kind, name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc(name, help, labels, nil)
	metricDocs = append(metricDocs, metricDoc{name, kind, help, labels, desc})
	return desc
}

// metric is one figure without labels.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*snapshot) float64
}

func counter64(name, help string, of func(*snapshot) int64) metric {
	return metric{describe(name, help), prometheus.CounterValue, func(s *snapshot) float64 { return float64(of(s)) }}
}

func gauge(name, help string, of func(*snapshot) float64) metric {
	return metric{describe(name, help), prometheus.GaugeValue, of}
}

var brokerMetrics = []metric{
	counter64("rocketmq_store_put_messages_total", "Messages appended to the log.", func(s *snapshot) int64 { return s.store.PutMessageTimesTotal }),
	counter64("rocketmq_store_put_bytes_total", "Bytes appended to the log.", func(s *snapshot) int64 { return s.store.PutMessageSizeTotal }),
	counter64("rocketmq_store_put_failures_total", "Messages that could not be appended. Rising: look at rocketmq_store_writable and the log.", func(s *snapshot) int64 { return s.store.PutMessageFailedTimes }),
	counter64("rocketmq_store_get_messages_total", "Messages handed to pulls.", func(s *snapshot) int64 { return s.store.GetMessageTransferred }),
	counter64("rocketmq_store_gets_found_total", "Pulls that found something.", func(s *snapshot) int64 { return s.store.GetMessageTimesFound }),
	counter64("rocketmq_store_gets_missed_total", "Pulls that found nothing. Rising fast: consumers poll instead of waiting.", func(s *snapshot) int64 { return s.store.GetMessageTimesMiss }),

	counter64("rocketmq_commitlog_appends_inline_total", "Appends made by the event loop that decoded the message.", func(s *snapshot) int64 { return s.store.AppendInline }),
	counter64("rocketmq_commitlog_appends_queued_total", "Appends handed to the appender goroutine. Rising faster than the inline ones: loops contend, or files roll often.", func(s *snapshot) int64 { return s.store.AppendQueued }),
	counter64("rocketmq_commitlog_appends_expired_total", "Sends answered SYSTEM_BUSY after waitTimeMillsInSendQueue. Rising: the append stalls.", func(s *snapshot) int64 { return s.store.AppendExpired }),
	gauge("rocketmq_commitlog_put_queue_length", "Sends queued for the appender now.", func(s *snapshot) float64 { return float64(s.store.PutQueueLength) }),
	gauge("rocketmq_commitlog_put_queue_head_wait_seconds", "How long the oldest queued send has waited.", func(s *snapshot) float64 { return s.store.PutQueueHeadWait.Seconds() }),
	gauge("rocketmq_commitlog_append_running_seconds", "How long the append now running has taken; beyond osPageCacheBusyTimeOutMills sends answer SYSTEM_BUSY.", func(s *snapshot) float64 { return s.store.PageCacheLockTime.Seconds() }),
	gauge("rocketmq_commitlog_min_offset_bytes", "First byte of the log.", func(s *snapshot) float64 { return float64(s.min) }),
	gauge("rocketmq_commitlog_max_offset_bytes", "End of the log.", func(s *snapshot) float64 { return float64(s.max) }),
	gauge("rocketmq_commitlog_flushed_offset_bytes", "End of what the disk has.", func(s *snapshot) float64 { return float64(s.flushed) }),
	gauge("rocketmq_commitlog_flush_behind_bytes", "Bytes the disk does not have yet.", func(s *snapshot) float64 { return float64(s.flushBehind) }),
	gauge("rocketmq_commitlog_flush_behind_seconds", "Age of the oldest byte that the disk does not have yet, or more.", func(s *snapshot) float64 { return s.store.FlushBehindTime.Seconds() }),
	gauge("rocketmq_commitlog_commit_behind_bytes", "Bytes in transient buffers that the file does not have yet.", func(s *snapshot) float64 { return float64(s.commitBehind) }),
	gauge("rocketmq_commitlog_flush_waiting", "Sends that wait for the disk.", func(s *snapshot) float64 { return float64(s.store.WaitingFlushRequests) }),
	counter64("rocketmq_commitlog_flush_errors_total", "Failed flushes. One is enough: the store takes no more messages until it is restarted.", func(s *snapshot) int64 { return s.store.FlushErrors }),
	counter64("rocketmq_commitlog_files_rolled_total", "Log files begun.", func(s *snapshot) int64 { return s.store.FilesRolled }),
	counter64("rocketmq_commitlog_files_allocated_total", "Log files made ahead of time.", func(s *snapshot) int64 { return s.store.FilesAllocated }),
	counter64("rocketmq_store_files_deleted_total", "Files deleted by retention.", func(s *snapshot) int64 { return s.store.FilesDeleted }),
	gauge("rocketmq_store_files_held", "Deleted files that a reader still holds. Not falling: a reader is stuck.", func(s *snapshot) float64 { return float64(s.store.FilesHeldAfterRetire) }),
	gauge("rocketmq_transient_pool_free_buffers", "Free buffers of the transient pool, -1 without it.", func(s *snapshot) float64 { return float64(s.store.TransientBuffersFree) }),

	counter64("rocketmq_dispatch_messages_total", "Messages dispatched to queues and index.", func(s *snapshot) int64 { return s.store.DispatchedMessages }),
	gauge("rocketmq_dispatch_behind_bytes", "Bytes of the log that queues and index do not have yet. Rising: consumers see messages late.", func(s *snapshot) float64 { return float64(s.dispatchBehind) }),

	gauge("rocketmq_store_writable", "1 while sends are taken, 0 when the store is read-only, full or stopping.", func(s *snapshot) float64 { return s.storeWrites }),
	gauge("rocketmq_store_commitlog_disk_ratio", "Used share of the log's disk, 0 to 1.", func(s *snapshot) float64 { return s.store.CommitLogDiskRatio }),
	gauge("rocketmq_store_consumequeue_disk_ratio", "Used share of the queues' disk, 0 to 1.", func(s *snapshot) float64 { return s.store.ConsumeQueueDiskRatio }),
	gauge("rocketmq_topics", "Topics.", func(s *snapshot) float64 { return float64(s.topics) }),
	gauge("rocketmq_subscription_groups", "Subscription groups.", func(s *snapshot) float64 { return float64(s.groups) }),
	gauge("rocketmq_held_pulls", "Pulls that wait for a message.", func(s *snapshot) float64 { return float64(s.held) }),
	gauge("rocketmq_name_servers", "Name servers configured.", func(s *snapshot) float64 { return s.nameServers }),
	gauge("rocketmq_name_servers_registered", "Name servers that took the last registration. Below rocketmq_name_servers: clients may not find this broker.", func(s *snapshot) float64 { return s.nameServersRegistered }),

	gauge("rocketmq_connections", "Client connections.", func(s *snapshot) float64 { return float64(s.server.Connections) }),
	gauge("rocketmq_connections_max", "Client connections at which new ones are refused.", func(s *snapshot) float64 { return float64(s.server.ConnectionsMax) }),
	counter64("rocketmq_connections_accepted_total", "Connections accepted.", func(s *snapshot) int64 { return s.server.Accepted }),
	counter64("rocketmq_connections_closed_total", "Connections closed, for any reason.", func(s *snapshot) int64 { return s.server.Closed }),
	counter64("rocketmq_protocol_errors_total", "Frames that could not be read. Rising: something else speaks to this port.", func(s *snapshot) int64 { return s.server.ProtocolErrors }),
	counter64("rocketmq_requests_total", "Requests received.", func(s *snapshot) int64 { return s.server.RequestsTotal }),
	counter64("rocketmq_responses_total", "Answers sent.", func(s *snapshot) int64 { return s.server.ResponsesTotal }),
	counter64("rocketmq_received_bytes_total", "Bytes received.", func(s *snapshot) int64 { return s.server.BytesIn }),
	counter64("rocketmq_sent_bytes_total", "Bytes sent.", func(s *snapshot) int64 { return s.server.BytesOut }),
	gauge("rocketmq_partial_frame_bytes", "Bytes held of frames that are not complete.", func(s *snapshot) float64 { return float64(s.server.PartialFrameBytes) }),
	gauge("rocketmq_outbound_bytes", "Bytes held for peers that do not read.", func(s *snapshot) float64 { return float64(s.server.OutboundBytes) }),
}

var (
	flushSecondsDesc = describeHistogram("rocketmq_commitlog_flush_seconds", "Time of flushes of the log. Rising: the disk is slower, and with SYNC_FLUSH so is every send.")
	fileWaitDesc     = describeHistogram("rocketmq_commitlog_file_wait_seconds", "Waits for a log file that was not ready when it was due; a new log has one. Rising: the disk allocates more slowly than messages come, and sends wait in the stage append.")
	sendStageDesc    = describeHistogram("rocketmq_send_stage_seconds", "Time of stored sends in each stage: queue (until the store is given it), lock (for the writer's role), append, flush (SYNC_FLUSH, for the disk), replica (SYNC_MASTER, for slaves; side by side with flush), reply (until the answer is written).", "stage")
	slowSendsDesc    = describe("rocketmq_slow_sends_total", "Sends that took longer than slowSendMills, by the stage that took longest; the log has a line.", "stage")
	requestsDesc     = describe("rocketmq_requests_by_group_total", "Requests received, by kind: send, pull, sendBack, offset, query, client, admin, other (no such code).", "group")
	loopBusyDesc     = describe("rocketmq_loop_busy_seconds_total", "Time that an event loop was busy; its rate is the loop's utilisation. Near 1: clients wait for the loop, see serverLoops.", "loop")
	loopTurnsDesc    = describe("rocketmq_loop_turns_total", "Turns of an event loop: reads of a socket with all that follows, or writes of gathered answers. Requests a turn say how well work is gathered.", "loop")
	pageFaultsDesc   = describe("rocketmq_page_faults_total", "Page faults of the process: minor ones find the page in memory, major ones read the disk. Major ones rising with sends: memory is short.", "kind")
	limitHitsDesc    = describe("rocketmq_limit_hits_total", "How often a limit closed a connection, or refused one, a pull or an offset, by limit.", "limit")
	laneQueueDesc    = describe("rocketmq_lane_queue_length", "Requests that wait for a worker. At its capacity requests answer SYSTEM_BUSY.", "lane")
	laneWaitDesc     = describe("rocketmq_lane_head_wait_seconds", "How long the oldest of them has waited.", "lane")
	readOnlyDesc     = describe("rocketmq_store_read_only", "Present, with value 1, once a fault made the store read-only; the cause is in the label.", "cause")
	messagesInDesc   = describe("rocketmq_messages_in_total", "Messages of producers.", "topic")
	bytesInDesc      = describe("rocketmq_throughput_in_total", "Bytes of producers.", "topic")
	messagesOutDesc  = describe("rocketmq_messages_out_total", "Messages handed to consumers.", "topic", "consumer_group")
	bytesOutDesc     = describe("rocketmq_throughput_out_total", "Bytes handed to consumers.", "topic", "consumer_group")
	sentBackDesc     = describe("rocketmq_messages_sent_back_total", "Messages that consumers gave back for a retry.", "topic", "consumer_group")
)

func describeMetrics(ch chan<- *prometheus.Desc) {
	for _, doc := range metricDocs {
		ch <- doc.desc
	}
}

// collectMetrics adds nothing outside of service.
func (b *BrokerController) collectMetrics(ch chan<- prometheus.Metric) {
	if !b.life.serving.Load() {
		return
	}
	s := b.snapshot()
	for _, m := range brokerMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&s))
	}
	ch <- histogram(flushSecondsDesc, &s.store.FlushTimes)
	ch <- histogram(fileWaitDesc, &s.store.FileWaits)
	count := func(desc *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	stages := b.sendTimes.snapshot()
	for stage, name := range sendStageNames {
		ch <- histogram(sendStageDesc, &stages[stage], name)
		count(slowSendsDesc, b.sendTimes.slow[stage].Load(), name)
	}
	for group, name := range requestGroups {
		count(requestsDesc, s.server.Requests[group], name)
	}
	for i, loop := range s.server.Loops {
		name := strconv.Itoa(i)
		ch <- prometheus.MustNewConstMetric(loopBusyDesc, prometheus.CounterValue, loop.Busy.Seconds(), name)
		count(loopTurnsDesc, loop.Turns, name)
	}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		count(pageFaultsDesc, usage.Minflt, "minor")
		count(pageFaultsDesc, usage.Majflt, "major")
	}
	count(limitHitsDesc, s.server.Refused, "connections")
	count(limitHitsDesc, s.server.ClosedPartialBudget, "partialFrameBytes")
	count(limitHitsDesc, s.server.ClosedPartialAge, "partialFrameAge")
	count(limitHitsDesc, s.server.ClosedOutbound, "outbound")
	count(limitHitsDesc, s.server.ClosedIdle, "idle")
	count(limitHitsDesc, b.hold.refused.Load(), "heldPulls")
	count(limitHitsDesc, b.offsets.refused.Load(), "consumerOffsets")
	for _, lane := range b.lanes() {
		ch <- prometheus.MustNewConstMetric(laneQueueDesc, prometheus.GaugeValue, float64(lane.Len()), lane.Name())
		ch <- prometheus.MustNewConstMetric(laneWaitDesc, prometheus.GaugeValue, lane.HeadWait().Seconds(), lane.Name())
	}
	if cause := s.store.LatchedCause; cause != nil {
		ch <- prometheus.MustNewConstMetric(readOnlyDesc, prometheus.GaugeValue, 1, cause.Error())
	}
	b.collectHAMetrics(ch)
	b.stats.Totals(
		func(topic string, msgs, bytes int64) {
			count(messagesInDesc, msgs, topic)
			count(bytesInDesc, bytes, topic)
		},
		func(topic, group string, msgs, bytes, sentBack int64) {
			count(messagesOutDesc, msgs, topic, group)
			count(bytesOutDesc, bytes, topic, group)
			count(sentBackDesc, sentBack, topic, group)
		})
}
