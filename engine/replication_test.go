// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loopmq/ha"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
)

// startSyncMaster starts a SYNC_MASTER to which a test's slaves connect.
func startSyncMaster(t *testing.T, change func(*Config)) *testBroker {
	t.Helper()
	return startTestBroker(t, func(c *Config) {
		c.Store.Role = storage.SyncMaster
		c.Store.SlaveTimeout = callTimeout.Milliseconds()
		if change != nil {
			change(c)
		}
	})
}

// startSlave starts a slave of m.
func startSlave(t *testing.T, m *testBroker, change func(*Config)) *testBroker {
	t.Helper()
	return startTestBroker(t, func(c *Config) {
		c.Store.Role, c.BrokerID = storage.Slave, 1
		c.HAMasterAddress, c.MasterAddr = m.haServerAddr(), m.addr
		if change != nil {
			change(c)
		}
	})
}

// dialHA connects to the port for slaves.
func (b *testBroker) dialHA() net.Conn {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.haServerAddr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return conn
}

func (b *testBroker) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(callTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s\n%v", what, b.runtimeInfo(time.Now()))
		}
	}
}

// inSync waits until a slave counts.
func (b *testBroker) inSync() {
	b.t.Helper()
	b.eventually("a slave in sync", func() bool { st := b.ha.Status(); return st.InSyncSlaves() > 0 })
}

// sendTo sends to queue 0 of topic T, with properties.
func (c *rawClient) sendTo(body []byte, properties ...string) *remoting.Command {
	c.t.Helper()
	var props []byte
	for i := 0; i < len(properties); i += 2 {
		props = message.AppendProperty(props, properties[i], properties[i+1])
	}
	return c.call(remoting.SendMessageV2, body, sendV2("T", 0, string(props))...)
}

func report(t *testing.T, conn net.Conn, offset storage.PhyOffset) {
	t.Helper()
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(offset))); err != nil {
		t.Fatal(err)
	}
}

func (b *testBroker) logBytes(from, to storage.PhyOffset) (log []byte) {
	b.t.Helper()
	for from < to {
		sel, ok := b.store.Select(from, int(to-from))
		if !ok {
			b.t.Fatalf("nothing at %d", from)
		}
		log = append(log, sel.Bytes()...)
		from += storage.PhyOffset(len(sel.Bytes()))
		sel.Release()
	}
	return log
}

// A pair: the slave copies all there was, then each send is answered 0 once it has it, under both flush types.
func TestPair(t *testing.T) {
	for _, flush := range []storage.FlushDiskType{storage.AsyncFlush, storage.SyncFlush} {
		t.Run(flushWords[flush], func(t *testing.T) {
			both := func(c *Config) {
				c.Store.FlushDiskType = flush
				c.Store.MappedFileSizeCommitLog = 1 << 20
			}
			m := startSyncMaster(t, both)
			c := m.dial()
			for i := range 30 {
				wantCode(t, c.sendTo(bytes.Repeat([]byte{byte(i)}, 100_000)), remoting.SlaveNotAvailable)
			}
			s := startSlave(t, m, both)
			m.inSync()
			for i := range 30 {
				resp := c.sendTo(bytes.Repeat([]byte{byte(i)}, 100_000))
				wantCode(t, resp, remoting.Success)
				end := m.store.MaxPhyOffset()
				if got := s.store.MaxPhyOffset(); got != end {
					t.Fatalf("answered 0 with the slave at %d of %d", got, end)
				}
			}
			end := m.store.MaxPhyOffset()
			if !bytes.Equal(m.logBytes(0, end), s.logBytes(0, end)) {
				t.Fatal("the logs differ")
			}
			s.eventually("the slave has the queue", func() bool {
				_, max, _ := s.store.QueueOffsets("T", 0)
				return max == 60
			})
			if err := s.Shutdown(callTimeout); err != nil {
				t.Fatal(err)
			}
			m.eventually("the slave is gone", func() bool { return len(m.ha.Status().Slaves) == 0 })
			wantCode(t, c.sendTo([]byte("alone")), remoting.SlaveNotAvailable)
		})
	}
}

// What a send is answered, by what its slave does.
func TestSendsOfASyncMaster(t *testing.T) {
	const slaveTimeout = 1500 * time.Millisecond
	m := startSyncMaster(t, func(c *Config) { c.Store.SlaveTimeout = slaveTimeout.Milliseconds() })
	c := m.dial()
	wantCode(t, c.sendTo([]byte("no slave")), remoting.SlaveNotAvailable)

	conn := m.dialHA()
	report(t, conn, m.store.MaxPhyOffset()+1<<20)
	m.eventually("a slave ahead is refused", func() bool { return m.ha.Status().Refusals == 1 })
	wantCode(t, c.sendTo([]byte("a slave ahead")), remoting.SlaveNotAvailable)

	conn = m.dialHA()
	report(t, conn, m.store.MaxPhyOffset())
	m.inSync()
	wantCode(t, c.sendTo([]byte("no acknowledgement")), remoting.FlushSlaveTimeout)
	m.eventually("the slave counts as stalled", func() bool { st := m.ha.Status(); return st.InSyncSlaves() == 0 })
	began := time.Now()
	wantCode(t, c.sendTo([]byte("a slave that stands still")), remoting.SlaveNotAvailable)
	if took := time.Since(began); took >= slaveTimeout {
		t.Errorf("answered after %v, as if it had waited", took)
	}
	wantCode(t, c.sendTo([]byte("not waiting"), "WAIT", "false"), remoting.Success)
	m.eventually("the slave was sent all", func() bool {
		return slices.ContainsFunc(m.ha.Status().Slaves, func(s ha.SlaveStatus) bool { return s.TransferFrom == m.store.MaxPhyOffset() })
	})
	report(t, conn, m.store.MaxPhyOffset())
	m.inSync()
}

// A stop lets a slave that keeps up have the end of the log.
func TestStopWaitsForTheSlave(t *testing.T) {
	m := newTestBroker(t, func(c *Config) { c.Store.Role = storage.AsyncMaster })
	m.start()
	s := startSlave(t, m, nil)
	m.inSync()
	c := m.dial()
	for range 200 {
		wantCode(t, c.sendTo(bytes.Repeat([]byte("x"), 10_000)), remoting.Success)
	}
	end := m.store.MaxPhyOffset()
	m.stop()
	s.eventually("the slave has everything", func() bool { return s.store.MaxPhyOffset() == end })
}

func TestReplicationIsShown(t *testing.T) {
	m := startSyncMaster(t, nil)
	s := startSlave(t, m, nil)
	m.inSync()
	wantCode(t, m.dial().sendTo([]byte("x")), remoting.Success)
	stranger := m.dialHA()
	report(t, stranger, 1<<40)
	m.eventually("a refusal", func() bool { return m.ha.Status().Refusals == 1 })

	var status struct {
		HAClientRuntimeInfo struct {
			MasterAddr string
			MaxOffset  int64
			Activated  bool
		}
		HAConnectionInfo []struct {
			Addr                    string
			Diff, SlaveAckOffset    int64
			TransferFromWhere       int64
			InSync                  bool
			TransferredByteInSecond int64
		}
		InSyncSlaveNums          int
		Master                   bool
		MasterCommitLogMaxOffset int64
	}
	ask := func(b *testBroker) {
		t.Helper()
		status.HAConnectionInfo = nil
		resp := b.dial().call(remoting.GetBrokerHAStatus, nil)
		wantCode(t, resp, remoting.Success)
		if err := json.Unmarshal(resp.Body, &status); err != nil {
			t.Fatalf("%v in %s", err, resp.Body)
		}
	}
	ask(m)
	end := int64(m.store.MaxPhyOffset())
	if !status.Master || status.MasterCommitLogMaxOffset != end || status.InSyncSlaveNums != 1 || len(status.HAConnectionInfo) != 2 {
		t.Fatalf("master: %+v", status)
	}
	if of := status.HAConnectionInfo[0]; !of.InSync || of.Diff != 0 || of.SlaveAckOffset != end || of.TransferFromWhere != end {
		t.Fatalf("master: %+v", status)
	}
	s.eventually("the link is shown", func() bool { ask(s); return status.HAClientRuntimeInfo.Activated })
	if status.Master || status.HAClientRuntimeInfo.MasterAddr != m.haServerAddr() {
		t.Fatalf("slave: %+v", status)
	}

	resp := m.dial().call(remoting.ExchangeBrokerHAInfo, nil)
	if wantCode(t, resp, remoting.Success); resp.Ext.String("masterHaAddress") != m.haServerAddr() || resp.Ext.String("masterAddress") != m.BrokerAddr() {
		t.Fatalf("906: %v", resp.Ext)
	}

	info := fmt.Sprint(m.runtimeInfo(time.Now()))
	for _, want := range []string{"brokerRole:SYNC_MASTER", "haInSyncSlaves:1", "behind 0 bytes", "refused: the slave asks for offset", "haRefusals:1"} {
		if !strings.Contains(info, want) {
			t.Errorf("%q is missing in %s", want, info)
		}
	}
	if info := fmt.Sprint(s.runtimeInfo(time.Now())); !strings.Contains(info, "haMaster:"+m.haServerAddr()+" transfer") {
		t.Errorf("slave: %s", info)
	}
	m.wantMetrics(t, "rocketmq_ha_role", "rocketmq_ha_refusals_total", "rocketmq_ha_slave_lag_bytes", "rocketmq_ha_slave_lag_seconds", "rocketmq_ha_slave_in_sync", "rocketmq_ha_slave_state")
	s.wantMetrics(t, "rocketmq_ha_role", "rocketmq_ha_master_state", "rocketmq_ha_tails_cut_total")
}

func (b *testBroker) wantMetrics(t *testing.T, names ...string) {
	t.Helper()
	ch := make(chan prometheus.Metric, 10_000)
	b.collectMetrics(ch)
	close(ch)
	var shown []string
	for m := range ch {
		shown = append(shown, m.Desc().String())
	}
	for _, name := range names {
		if !slices.ContainsFunc(shown, func(desc string) bool { return strings.Contains(desc, `"`+name+`"`) }) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestMasterMinOffset(t *testing.T) {
	m := startTestBroker(t, nil)
	s := startSlave(t, m, nil)
	if offset, err := s.masterMinOffset(t.Context()); err != nil || offset != 0 {
		t.Fatalf("%d, %v", offset, err)
	}
	f := func(body string, want storage.PhyOffset, ok bool) {
		t.Helper()
		if got, err := decodeMinOffset([]byte(body)); (err == nil) != ok || ok && got != want {
			t.Fatalf("%s: %d, %v", body, got, err)
		}
	}
	f(`{"table":{"a":"b","commitLogMinOffset":"1073741824"}}`, 1<<30, true)
	f(`{"table":{"a":"b"}}`, 0, false)
	f(`{"table":{"commitLogMinOffset":"-1"}}`, 0, false)
	f(`{"table":{"commitLogMinOffset":"x"}}`, 0, false)
	f(`{`, 0, false)
	s.useConfig(&Config{})
	if _, err := s.masterMinOffset(t.Context()); err == nil || !strings.Contains(err.Error(), "masterAddr") {
		t.Fatalf("without an address: %v", err)
	}
}

func TestReplicationSettings(t *testing.T) {
	refuse := func(line, want string) {
		t.Helper()
		if _, _, err := loadConfig(line+"\n", true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", line, err, want)
		}
	}
	refuse("brokerRole=SLAVE", "brokerId")
	refuse("brokerRole=SLAVE\nbrokerId=-1", "brokerId")
	refuse("haTransferBatchSize=4194293", "haTransferBatchSize")
	refuse("haAllowList=10.0.0.0/99", "haAllowList")
	refuse("haMasterAddress=master-a", "haMasterAddress")
	refuse("masterAddr=master-a", "masterAddr")
	c, notices, err := loadConfig("haMaxGapNotInSync=1000\nminInSyncReplicas=2\nenableAutoInSyncReplicas=true\nhaTransferBatchSize=4194292\nhaMasterAddress=none\n", true)
	if err != nil || c.HASlaveFallbehindMax != 1000 || len(notices) != 2 {
		t.Errorf("%v %v %v", c.HASlaveFallbehindMax, notices, err)
	}
	if got := haConfigOf(&c).Addr; got != "0.0.0.0:10912" {
		t.Errorf("listens on %s", got)
	}
	c.HABindAddress = "127.0.0.1"
	if got := haConfigOf(&c).Addr; got != "127.0.0.1:10912" {
		t.Errorf("listens on %s", got)
	}
}
