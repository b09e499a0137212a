// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"loopmq/ha"
	"loopmq/reactor/remoting"
)

// Sends that wait for a slave are records: no goroutine and no loop waits with them, and their connections serve all else
// meanwhile (apache/rocketmq#249).
func TestTwentyThousandSendsInFlight(t *testing.T) {
	const connections, sends = 4, 20_000
	m := startSyncMaster(t, func(c *Config) { c.Store.WaitTimeMillsInSendQueue = 60_000 })
	clients := make([]*rawClient, connections)
	for i := range clients {
		clients[i] = m.dial()
		wantCode(t, clients[i].sendTo([]byte("no slave")), remoting.SlaveNotAvailable)
		wantCode(t, clients[i].call(remoting.HeartBeat, heartbeat(fmt.Sprint("c", i), "g", "T", "*", 1)), remoting.Success)
	}
	slave := m.dialHA()
	go func() { _, _ = io.Copy(io.Discard, slave) }()
	report(t, slave, m.store.MaxPhyOffset())
	m.inSync()

	before := runtime.NumGoroutine()
	var waiting []chan *remoting.Command
	for i, c := range clients {
		cmds := make([]*remoting.Command, sends/connections)
		for j := range cmds {
			cmds[j] = c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", i, "")...)
		}
		waiting = append(waiting, c.start(cmds...)...)
	}
	m.eventually("all sends wait", func() bool { return m.ha.Status().Waiting == sends })
	if now := runtime.NumGoroutine(); now > before+10 {
		t.Errorf("%d goroutines, %d before the sends", now, before)
	}
	m.dispatched()
	for i, c := range clients {
		wantCode(t, c.call(remoting.HeartBeat, heartbeat(fmt.Sprint("c", i), "g", "T", "*", 1)), remoting.Success)
		wantCode(t, c.pull("g", "T", i, 0), remoting.Success)
	}
	for i, ch := range waiting {
		if len(ch) > 0 {
			t.Fatalf("send %d was answered %d before the slave had it", i, (<-ch).Code)
		}
	}
	m.eventually("the slave was sent all", func() bool {
		return slices.ContainsFunc(m.ha.Status().Slaves, func(s ha.SlaveStatus) bool { return s.TransferFrom == m.store.MaxPhyOffset() })
	})
	report(t, slave, m.store.MaxPhyOffset())
	for i, ch := range waiting {
		wantCode(t, clients[i/(sends/connections)].await(ch), remoting.Success)
	}
}

// Clients that ask and never read, and a slave that hardly reads: what is held for them stays within its limits, all of
// it goes when they go, and others are served meanwhile (panjf2000/gnet#420).
func TestPeersThatDoNotRead(t *testing.T) {
	const answer, mark = 1 << 20, 8 << 20 // the mark above which a connection gets no more pull data
	clients, messages, anonMax := 12, 16, int64(256<<20)
	switch {
	case *soak:
		clients, messages, anonMax = 100, 2048, 512<<20
	case raceDetector:
		clients, messages, anonMax = 4, 4, 1<<40
	}
	b := startTestBroker(t, nil)
	producer := b.dial()
	for range messages {
		producer.send("T", 0, make([]byte, answer), "")
	}
	b.dispatched()
	slave := b.dialHA()
	must(t, slave.(*net.TCPConn).SetReadBuffer(4<<10))
	report(t, slave, 1)
	go sip(slave)

	anon := anonymousMemory(t)
	var peers []net.Conn
	for i := range clients {
		c := newStuckClient(t, b.addr)
		must(t, c.conn.(*net.TCPConn).SetReadBuffer(16<<10))
		for j := range 40 {
			c.ask(remoting.PullMessage, int32(j+1), pullFields("g", "T", 0, int64((i+j)%messages), "maxMsgNums", "1"))
		}
		peers = append(peers, c.conn)
		producer.send("T", 1, []byte("x"), "")
		if unsent := b.server.Stats().OutboundBytes; unsent > int64(clients)*(mark+2*answer) {
			t.Fatalf("%d bytes held for %d clients that do not read", unsent, i+1)
		}
	}
	eventually(t, "pulls that wait for their clients, or clients that were given up", func() bool {
		b.hold.mu.Lock()
		blocked := len(b.hold.blocked)
		b.hold.mu.Unlock()
		producer.send("T", 1, []byte("x"), "")
		return blocked > 0 || b.server.Stats().ClosedOutbound > 0
	})
	st, grown := b.server.Stats(), anonymousMemory(t)-anon
	t.Logf("%d bytes unsent, %d clients given up, %d MiB of anonymous memory more", st.OutboundBytes, st.ClosedOutbound, grown>>20)
	if grown > anonMax {
		t.Errorf("anonymous memory grew by %d MiB", grown>>20)
	}
	for _, c := range peers {
		_ = c.Close()
	}
	eventually(t, "what was held for them to go", func() bool {
		st := b.server.Stats()
		return st.OutboundBytes == 0 && b.hold.Held() == 0 && st.Connections == 1
	})
	if status := b.ha.Status(); len(status.Slaves) != 1 || status.Slaves[0].Refused != "" {
		t.Errorf("the slow slave is gone: %+v", status)
	}
	producer.send("T", 1, []byte("x"), "")
}

// sip reads 1 KiB a second until the connection ends.
func sip(conn net.Conn) {
	b := make([]byte, 1<<10)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// anonymousMemory is RssAnon of this process.
func anonymousMemory(t *testing.T) (bytesHeld int64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "RssAnon: %d kB", &bytesHeld); n == 1 {
			return bytesHeld << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}
