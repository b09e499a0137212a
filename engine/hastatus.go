// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loopmq/ha"
	"loopmq/reactor"
	"loopmq/storage"
)

// getBrokerHAStatus serves 907, which mqadmin haStatus of 5.x asks. Source: AdminBrokerProcessor#getBrokerHaStatus,
// DefaultHAService#getRuntimeInfo.
func (b *BrokerController) getBrokerHAStatus(*reactor.Request) answer {
	var w jsonWriter
	w.beginObject()
	w.key("haClientRuntimeInfo")
	writeHAClient(&w, b.clientStatus(), b.store.MaxPhyOffset())
	status := b.ha.Status()
	w.key("haConnectionInfo")
	w.beginArray()
	for i := range status.Slaves {
		w.element()
		writeHAConnection(&w, &status.Slaves[i])
	}
	w.endArray()
	w.intMember("inSyncSlaveNums", int64(status.InSyncSlaves()))
	w.boolMember("master", b.haClient == nil)
	w.intMember("masterCommitLogMaxOffset", int64(b.masterEnd()))
	w.endObject()
	return answer{body: w.b}
}

// masterEnd is the end of the master's log, on a slave as the master last said; 0 if it never did.
func (b *BrokerController) masterEnd() storage.PhyOffset {
	if b.haClient == nil {
		return b.store.MaxPhyOffset()
	}
	return b.haClient.Status().MasterEnd
}

// clientStatus is zero on a master.
func (b *BrokerController) clientStatus() ha.ClientStatus {
	if b.haClient == nil {
		return ha.ClientStatus{}
	}
	return b.haClient.Status()
}

func writeHAClient(w *jsonWriter, s ha.ClientStatus, end storage.PhyOffset) {
	w.beginObject()
	w.boolMember("activated", s.State == "transfer")
	w.intMember("lastReadTimestamp", unixMillis(s.LastReadTimestamp))
	w.intMember("lastWriteTimestamp", unixMillis(s.LastWriteTimestamp))
	w.strMember("masterAddr", s.MasterAddr)
	w.intMember("masterFlushOffset", 0)
	w.intMember("maxOffset", int64(end))
	w.intMember("transferredByteInSecond", s.TransferredByteInSecond)
	w.endObject()
}

func writeHAConnection(w *jsonWriter, s *ha.SlaveStatus) {
	w.beginObject()
	w.strMember("addr", s.Addr.String())
	w.intMember("diff", s.LagBytes)
	w.boolMember("inSync", s.InSync)
	w.intMember("slaveAckOffset", int64(s.AckOffset))
	w.intMember("transferFromWhere", int64(s.TransferFrom))
	w.intMember("transferredByteInSecond", s.TransferredByteInSecond)
	w.endObject()
}

func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// exchangeBrokerHAInfo serves 906: a slave of 5.x asks where to replicate from. What others tell is not taken: a slave
// here follows haMasterAddress or the name server. Source: AdminBrokerProcessor#updateBrokerHaInfo.
func (b *BrokerController) exchangeBrokerHAInfo(req *reactor.Request) answer {
	if b.haClient != nil || headerOf(req).ext.String("masterHaAddress") != "" {
		return answer{}
	}
	return answer{fields: []string{
		"masterHaAddress", b.haServerAddr(),
		"masterFlushOffset", strconv.FormatInt(int64(b.store.FlushedWhere()), 10),
		"masterAddress", b.BrokerAddr(),
	}}
}

// addReplication adds what an operator asks first: who follows, how far behind, and why not.
func (b *BrokerController) addReplication(info map[string]string) {
	status := b.ha.Status()
	info["brokerRole"] = word(roleWords, int(b.Config().Store.Role))
	info["haSlaves"] = strconv.Itoa(len(status.Slaves))
	info["haInSyncSlaves"] = strconv.Itoa(status.InSyncSlaves())
	info["haRefusals"] = strconv.FormatInt(status.Refusals, 10)
	for i := range status.Slaves {
		info["haSlave_"+status.Slaves[i].Addr.String()] = describeSlave(&status.Slaves[i])
	}
	if tail := b.ha.Tail(); tail != nil {
		info["haTail"] = tail.String()
	}
	info["haOffsetsLowered"] = strconv.FormatInt(b.offsets.lowered.Load(), 10)
	info["haTailsGivenUp"] = strconv.FormatInt(status.TailsGivenUp, 10)
	if b.haClient != nil {
		info["haMaster"] = describeMaster(b.haClient.Status())
		cuts, bytes := b.haClient.Cuts()
		info["haTailsCut"] = fmt.Sprintf("%d, %d bytes", cuts, bytes)
	}
}

func describeSlave(s *ha.SlaveStatus) string {
	if s.Refused != "" {
		return s.State + ": " + s.Refused
	}
	return fmt.Sprintf("%s, ackOffset %d, behind %d bytes, %.1f s, inSync %v, %d bytes in the last second",
		s.State, s.AckOffset, s.LagBytes, s.Lag.Seconds(), s.InSync, s.TransferredByteInSecond)
}

func describeMaster(s ha.ClientStatus) string {
	text := s.MasterAddr + " " + s.State
	switch {
	case s.Refused != "":
		return text + ": " + s.Refused
	case s.LastError != "":
		return text + ": " + s.LastError
	}
	return fmt.Sprintf("%s, %d bytes in the last second", text, s.TransferredByteInSecond)
}

var (
	haRoleDesc        = describe("rocketmq_ha_role", "Present, with value 1; the role is in the label.", "role")
	haWaitingDesc     = describe("rocketmq_ha_waiting", "Sends that wait for a slave.")
	haRefusalsDesc    = describe("rocketmq_ha_refusals_total", "Slaves that were not served. Rising: a slave is diverged or out of range, the log says why and what to do.")
	haSlaveStateDesc  = describe("rocketmq_ha_slave_state", "Present, with value 1, for each connection of a slave.", "slave", "state")
	haSlaveInSyncDesc = describe("rocketmq_ha_slave_in_sync", "1 while a SYNC_MASTER counts on the slave.", "slave")
	haSlaveBytesDesc  = describe("rocketmq_ha_slave_lag_bytes", "Bytes of the log that the slave has not acknowledged. Rising: it does not keep up.", "slave")
	haSlaveLagDesc    = describe("rocketmq_ha_slave_lag_seconds", "How long ago the log's end was where the slave is.", "slave")
	haSentDesc        = describe("rocketmq_ha_slave_sent_bytes_total", "Bytes sent to the slave over this connection.", "slave")
	haTailDesc        = describe("rocketmq_ha_tail_slaves_missing", "Slaves without which a master that may have lost the end of its log takes no sends. More than 0: start them, or set haTailTimeout=0.")
	haGivenUpDesc     = describe("rocketmq_ha_tails_given_up_total", "Times that a master took sends without having heard from a slave that may hold the end of its log: sends that were answered may be lost.")
	haLoweredDesc     = describe("rocketmq_ha_offsets_lowered_total", "Consumer offsets brought back to the end of their queue, after a slave cut its log or a power cut took messages.")
	haMasterDesc      = describe("rocketmq_ha_master_state", "On a slave: present, with value 1; the master and the state of the link to it are in the labels.", "master", "state")
	haCutsDesc        = describe("rocketmq_ha_tails_cut_total", "On a slave: tails cut off because the master had lost them and nobody was promised them.")
	haCutBytesDesc    = describe("rocketmq_ha_tail_bytes_cut_total", "On a slave: bytes of those tails.")
)

func (b *BrokerController) collectHAMetrics(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	counter := func(desc *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	status := b.ha.Status()
	gauge(haRoleDesc, 1, word(roleWords, int(b.Config().Store.Role)))
	gauge(haWaitingDesc, float64(status.Waiting))
	counter(haRefusalsDesc, status.Refusals)
	counter(haGivenUpDesc, status.TailsGivenUp)
	counter(haLoweredDesc, b.offsets.lowered.Load())
	missing := 0
	if tail := b.ha.Tail(); tail != nil {
		missing = len(tail.Slaves)
	}
	gauge(haTailDesc, float64(missing))
	for i := range status.Slaves {
		s := &status.Slaves[i]
		addr := s.Addr.String()
		gauge(haSlaveStateDesc, 1, addr, s.State)
		if s.AckOffset < 0 {
			continue
		}
		inSync := 0.0
		if s.InSync {
			inSync = 1
		}
		gauge(haSlaveInSyncDesc, inSync, addr)
		gauge(haSlaveBytesDesc, float64(s.LagBytes), addr)
		gauge(haSlaveLagDesc, s.Lag.Seconds(), addr)
		counter(haSentDesc, s.Transferred, addr)
	}
	if b.haClient == nil {
		return
	}
	client := b.haClient.Status()
	gauge(haMasterDesc, 1, client.MasterAddr, client.State)
	cuts, bytes := b.haClient.Cuts()
	counter(haCutsDesc, cuts)
	counter(haCutBytesDesc, bytes)
}
