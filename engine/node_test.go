// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"loopmq/engine/namesrv"
	"loopmq/reactor/remoting"
	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// shutdownTimeout is what tests give a broker; none waits for it.
const shutdownTimeout = 20 * time.Second

// nodeConfig is a broker with small files on loopback, its store in root.
func nodeConfig(root string) Config {
	cfg := DefaultConfig()
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "broker-a", "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.ListenPort, cfg.AdminAddr = 0, ""
	cfg.Store.StorePathRootDir = root
	cfg.Store.MappedFileSizeCommitLog = 1 << 20
	cfg.Store.MappedFileSizeConsumeQueue = 20 * 2000
	cfg.Store.MaxHashSlotNum, cfg.Store.MaxIndexNum = 1000, 4000
	return cfg
}

// startNode starts a broker; it is stopped with the test if it still runs then. A nil fs is the real file system, for
// which root must be the test's directory, or, under the race detector, which is blind to mapped memory, faultfs.
func startNode(t testing.TB, cfg Config, fs vfs.FS) *BrokerController {
	t.Helper()
	b, err := New(cfg, Options{FS: fs, Logger: testLogger(t)})
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stopNode(t, b) })
	return b
}

// startDoomedNode starts a broker that the test stops itself, and whose complaints are expected.
func startDoomedNode(t testing.TB, cfg Config, fs vfs.FS) *BrokerController {
	t.Helper()
	b, err := New(cfg, Options{FS: fs})
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	return b
}

func stopNode(t testing.TB, b *BrokerController) {
	t.Helper()
	if err := b.Shutdown(shutdownTimeout); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// nodeFS is the file system for a node whose store outlives it in the test.
func nodeFS() (fs *faultfs.FS, root string) { return faultfs.New(), "/store" }

// testLogger shows warnings and errors in the test's log.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func dialNode(t testing.TB, b *BrokerController) *rawClient {
	t.Helper()
	return dialRaw(t, b.Addr().String())
}

func startNamesrv(t testing.TB, port int) *namesrv.Server {
	t.Helper()
	cfg := namesrv.DefaultConfig()
	cfg.BindAddress, cfg.ListenPort, cfg.KVConfigPath, cfg.ConfigStorePath = "127.0.0.1", port, "", ""
	s := namesrv.New(cfg, testLogger(t))
	if err := s.Start(); err != nil {
		t.Fatalf("name server: %v", err)
	}
	t.Cleanup(s.Stop)
	return s
}

// blackHole accepts connections and never says a word.
func blackHole(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range conns {
					_ = c.Close()
				}
				return
			}
			conns = append(conns, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// eventually waits for what other goroutines bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(callTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", callTimeout, what)
		}
	}
}

// nodeSend is a SEND_MESSAGE_V2 of one message.
func nodeSend(c *rawClient, topic string, queueID int, body string) *remoting.Command {
	return c.request(remoting.SendMessageV2, []byte(body),
		"a", "producers", "b", topic, "c", "TBW102", "d", "4", "e", strconv.Itoa(queueID), "f", "0",
		"g", "1796029137000", "h", "0", "i", "UNIQ_KEY\x01"+body, "j", "0", "k", "false", "m", "false")
}

// nodeAck is what a successful answer to a send says.
type nodeAck struct {
	queueID int
	offset  int64
	body    string
}

func ackOf(t testing.TB, resp *remoting.Command, body string) nodeAck {
	t.Helper()
	if resp.Code != remoting.Success {
		t.Fatalf("send of %s: code %d %s", body, resp.Code, resp.Remark)
	}
	queueID, err := resp.Ext.Int32("queueId", -1)
	if err != nil {
		t.Fatal(err)
	}
	offset, err := resp.Ext.Int64("queueOffset", -1)
	if err != nil {
		t.Fatal(err)
	}
	return nodeAck{int(queueID), offset, body}
}

// nodePull is a pull that brings its own subscription, so that it needs no heartbeat.
func nodePull(c *rawClient, topic string, queueID int, offset int64, suspend time.Duration) *remoting.Command {
	flags := pullFlagSubscription
	if suspend > 0 {
		flags |= pullFlagSuspend
	}
	return c.request(remoting.PullMessage, nil,
		"consumerGroup", "consumers", "topic", topic, "queueId", strconv.Itoa(queueID), "queueOffset", fmt.Sprint(offset),
		"maxMsgNums", "32", "sysFlag", strconv.Itoa(flags), "commitOffset", "0", "suspendTimeoutMillis", fmt.Sprint(suspend.Milliseconds()),
		"subscription", "*", "subVersion", "0", "expressionType", "TAG")
}

// recordsOf decodes the body of a pull.
func recordsOf(t testing.TB, body []byte) (bodies []string, offsets []int64) {
	t.Helper()
	for len(body) > 0 {
		var r message.Record
		if err := message.Decode(body, &r); err != nil {
			t.Fatalf("pulled record: %v", err)
		}
		if err := message.CheckCRC(&r); err != nil {
			t.Fatalf("pulled record: %v", err)
		}
		bodies = append(bodies, string(r.Body))
		offsets = append(offsets, r.QueueOffset)
		size, _, _ := message.Peek(body)
		body = body[size:]
	}
	return bodies, offsets
}

// pullAll reads a queue from its start to its end: body by offset. It checks that there is no gap.
func pullAll(t testing.TB, c *rawClient, topic string, queueID int) map[int64]string {
	t.Helper()
	found := make(map[int64]string)
	for next := int64(0); ; {
		resp := c.await(c.start(nodePull(c, topic, queueID, next, 0))[0])
		switch resp.Code {
		case remoting.Success:
			bodies, offsets := recordsOf(t, resp.Body)
			for i, offset := range offsets {
				if offset != next {
					t.Fatalf("queue %s/%d: offset %d where %d is due", topic, queueID, offset, next)
				}
				found[offset] = bodies[i]
				next++
			}
		case remoting.PullNotFound:
			return found
		default:
			t.Fatalf("pull of %s/%d at %d: code %d %s", topic, queueID, next, resp.Code, resp.Remark)
		}
	}
}

// wantAcked checks that every acknowledged message is where its answer said.
func wantAcked(t testing.TB, b *BrokerController, topic string, acks []nodeAck) {
	t.Helper()
	awaitDispatch(t, b)
	c := dialNode(t, b)
	defer c.close()
	queues := make(map[int]map[int64]string)
	for _, ack := range acks {
		if queues[ack.queueID] == nil {
			queues[ack.queueID] = pullAll(t, c, topic, ack.queueID)
		}
		if got := queues[ack.queueID][ack.offset]; got != ack.body {
			t.Fatalf("%s/%d at %d: %q, acknowledged was %q", topic, ack.queueID, ack.offset, got, ack.body)
		}
	}
}

func addNodeTopic(t testing.TB, b *BrokerController, topic string, queues int32) {
	t.Helper()
	if err := b.topics.Update(newTopicConfig(topic, queues, PermRead|PermWrite)); err != nil {
		t.Fatal(err)
	}
}
