// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// callTimeout bounds every wait of a raw client; no test asserts on times near it.
const callTimeout = 20 * time.Second

// rawClient speaks remoting frames over a plain socket, as a client library would, and nothing more: it adds no header
// field, knows no route, and never retries. Requests may be started from many goroutines.
type rawClient struct {
	t         testing.TB
	conn      net.Conn
	serialize remoting.SerializeType
	language  byte
	version   int32
	opaque    atomic.Int32

	writeMu sync.Mutex // guards out and the socket's write side
	out     []byte

	mu      sync.Mutex // guards pending
	pending map[int32]chan *remoting.Command

	pushes chan *remoting.Command // the broker's own requests, in order; beyond the capacity they are dropped
	closed chan struct{}          // closed when the broker closed the connection
}

// dialRaw connects to addr; the connection is closed with the test.
func dialRaw(t testing.TB, addr string) *rawClient {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, callTimeout)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	c := &rawClient{
		t: t, conn: conn, version: remoting.Version,
		pending: make(map[int32]chan *remoting.Command),
		pushes:  make(chan *remoting.Command, 1024),
		closed:  make(chan struct{}),
	}
	go c.readLoop()
	t.Cleanup(c.close)
	return c
}

// close closes the socket and waits for the reader.
func (c *rawClient) close() {
	_ = c.conn.Close()
	<-c.closed
}

// reset closes the socket so that the broker sees RST, not FIN.
func (c *rawClient) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.close()
}

func (c *rawClient) readLoop() {
	defer func() {
		c.mu.Lock()
		for opaque, ch := range c.pending {
			delete(c.pending, opaque)
			close(ch)
		}
		c.mu.Unlock()
		close(c.closed)
	}()
	r := bufio.NewReaderSize(c.conn, 64<<10)
	var head [4]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(head[:])
		if length > remoting.FrameLengthMax-4 {
			c.t.Errorf("the broker sent a frame of %d bytes", length)
			return
		}
		frame := make([]byte, 4+length)
		copy(frame, head[:])
		if _, err := io.ReadFull(r, frame[4:]); err != nil {
			return
		}
		cmd := new(remoting.Command)
		if err := remoting.Decode(frame, cmd); err != nil {
			c.t.Errorf("the broker sent a frame that does not decode: %v", err)
			return
		}
		if !cmd.IsResponse() {
			select {
			case c.pushes <- cmd:
			default:
			}
			continue
		}
		c.mu.Lock()
		ch := c.pending[cmd.Opaque]
		delete(c.pending, cmd.Opaque)
		c.mu.Unlock()
		if ch == nil {
			c.t.Errorf("the broker answered opaque %d, code %d, which nobody waits for", cmd.Opaque, cmd.Code)
			continue
		}
		ch <- cmd
	}
}

// request builds a command; fields are key, value, key, value.
func (c *rawClient) request(code int32, body []byte, fields ...string) *remoting.Command {
	cmd := &remoting.Command{
		Code: code, Language: c.language, Version: c.version,
		Opaque: c.opaque.Add(1), Serialize: c.serialize, Body: body,
	}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Ext.Add(fields[i], fields[i+1])
	}
	return cmd
}

func (c *rawClient) write(cmds ...*remoting.Command) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.out = c.out[:0]
	for _, cmd := range cmds {
		c.out = cmd.AppendTo(c.out, len(cmd.Body))
	}
	_, err := c.conn.Write(c.out)
	return err
}

// start sends the commands in one write; each channel gets the answer, or is closed when the connection ends first.
func (c *rawClient) start(cmds ...*remoting.Command) []chan *remoting.Command {
	chans := make([]chan *remoting.Command, len(cmds))
	c.mu.Lock()
	for i, cmd := range cmds {
		chans[i] = make(chan *remoting.Command, 1)
		c.pending[cmd.Opaque] = chans[i]
	}
	c.mu.Unlock()
	if err := c.write(cmds...); err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Logf("write: %v", err)
	}
	return chans
}

// call sends one request and waits for its answer.
func (c *rawClient) call(code int32, body []byte, fields ...string) *remoting.Command {
	c.t.Helper()
	return c.await(c.start(c.request(code, body, fields...))[0])
}

// await waits for an answer that was started.
func (c *rawClient) await(ch <-chan *remoting.Command) *remoting.Command {
	c.t.Helper()
	select {
	case resp, ok := <-ch:
		if !ok {
			c.t.Fatalf("the connection ended before the answer")
		}
		return resp
	case <-time.After(callTimeout):
		c.t.Fatalf("no answer within %v", callTimeout)
	}
	return nil
}

// oneway sends a request with the one-way flag.
func (c *rawClient) oneway(code int32, body []byte, fields ...string) {
	c.t.Helper()
	cmd := c.request(code, body, fields...)
	cmd.Flag |= remoting.FlagOneway
	if err := c.write(cmd); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// push waits for the broker's next own request with the code; others before it are dropped.
func (c *rawClient) push(code int32) *remoting.Command {
	c.t.Helper()
	deadline := time.After(callTimeout)
	for {
		select {
		case cmd := <-c.pushes:
			if cmd.Code == code {
				return cmd
			}
		case <-deadline:
			c.t.Fatalf("no request %d from the broker within %v", code, callTimeout)
		}
	}
}

// waitClosed waits until the broker has closed the connection.
func (c *rawClient) waitClosed() {
	c.t.Helper()
	select {
	case <-c.closed:
	case <-time.After(callTimeout):
		c.t.Fatalf("the broker did not close the connection within %v", callTimeout)
	}
}

// testBroker is a broker in this process, on a loopback port and a directory of the test.
type testBroker struct {
	*BrokerController
	t    testing.TB
	cfg  Config
	fs   vfs.FS
	boot string
	addr string

	replicas replicaWaiter
	log      *slog.Logger // nil: the test's
}

// loudLog passes warnings and errors on to the test's log, and fails the test for loans that did not come back.
type loudLog struct {
	slog.Handler
	t testing.TB
}

func (l *loudLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "still lent") {
		l.t.Errorf("%s", r.Message)
	}
	return l.Handler.Handle(ctx, r)
}

func (l *loudLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &loudLog{l.Handler.WithAttrs(attrs), l.t}
}

// testConfig is a configuration with small files, on loopback, under dir.
func testConfig(dir string) Config {
	cfg := DefaultConfig()
	cfg.BrokerName = "broker-a"
	cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.ListenPort, cfg.HAListenPort, cfg.AdminAddr = 0, 0, ""
	cfg.Store.StorePathRootDir = dir
	cfg.Store.StorePathCommitLog = filepath.Join(dir, "commitlog")
	cfg.Store.MappedFileSizeCommitLog = 16 << 20
	cfg.Store.MappedFileSizeConsumeQueue = 20_000
	cfg.Store.MaxHashSlotNum, cfg.Store.MaxIndexNum = 1_000, 10_000
	return cfg
}

// startTestBroker starts a broker that ends with the test; change may be nil.
func startTestBroker(t testing.TB, change func(*Config)) *testBroker {
	t.Helper()
	b := newTestBroker(t, change)
	b.start()
	t.Cleanup(b.stop)
	return b
}

// newTestBroker makes a broker that start starts.
func newTestBroker(t testing.TB, change func(*Config)) *testBroker {
	b := &testBroker{t: t, cfg: testConfig(t.TempDir()), fs: vfs.OS{}}
	if raceDetector {
		b.fs = faultfs.New()
	}
	if change != nil {
		change(&b.cfg)
	}
	return b
}

// file is a path under the broker's root.
func (b *testBroker) file(parts ...string) string {
	return filepath.Join(append([]string{b.cfg.Store.StorePathRootDir}, parts...)...)
}

func (b *testBroker) start() {
	b.t.Helper()
	logger := b.log
	if logger == nil {
		logger = slog.New(&loudLog{testLogger(b.t).Handler(), b.t})
	}
	controller, err := New(b.cfg, Options{FS: b.fs, Boot: b.boot, Logger: logger})
	if err != nil {
		b.t.Fatal(err)
	}
	controller.replicas = b.replicas
	if err := controller.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.BrokerController, b.addr = controller, controller.Addr().String()
}

func (b *testBroker) stop() {
	b.t.Helper()
	if err := b.Shutdown(callTimeout); err != nil {
		b.t.Errorf("shutdown: %v", err)
	}
}

// restart stops the broker and starts another on the same directory.
func (b *testBroker) restart() {
	b.t.Helper()
	b.stop()
	b.start()
}

func (b *testBroker) dial() *rawClient { return dialRaw(b.t, b.addr) }

// stuckClient writes requests and reads answers only when told to.
type stuckClient struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

func newStuckClient(t testing.TB, addr string) *stuckClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &stuckClient{t, conn, bufio.NewReader(conn)}
}

func (c *stuckClient) ask(code, opaque int32, fields []string) {
	c.t.Helper()
	cmd := &remoting.Command{Code: code, Opaque: opaque}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Ext.Add(fields[i], fields[i+1])
	}
	if _, err := c.conn.Write(cmd.AppendTo(nil, 0)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *stuckClient) next() *remoting.Command {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(callTimeout))
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		c.t.Fatalf("read: %v", err)
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head[:]))
	copy(frame, head[:])
	if _, err := io.ReadFull(c.r, frame[4:]); err != nil {
		c.t.Fatalf("read: %v", err)
	}
	cmd := new(remoting.Command)
	must(c.t, remoting.Decode(frame, cmd))
	return cmd
}

// dispatched waits until all that is in the log is in its queues.
func (b *testBroker) dispatched() {
	b.t.Helper()
	awaitDispatch(b.t, b.BrokerController)
}

func awaitDispatch(t testing.TB, b *BrokerController) {
	t.Helper()
	eventually(t, "dispatch of the whole log", func() bool { return b.store.DispatchBehindBytes() == 0 })
}

// sendV2 are the header fields of a V2 send, as a Java client of 4.9 writes them; more are appended or replace by key.
func sendV2(topic string, queueID int, props string, more ...string) []string {
	return withFields([]string{
		"a", "producers", "b", topic, "c", "TBW102", "d", "4", "e", strconv.Itoa(queueID), "f", "0",
		"g", strconv.FormatInt(time.Now().UnixMilli(), 10), "h", "0", "i", props, "j", "0", "k", "false", "m", "false", "n", "broker-a",
	}, more...)
}

// sendV1 are those of the first form, as the Go client writes them.
func sendV1(topic string, queueID int, props string, more ...string) []string {
	return withFields([]string{
		"producerGroup", "producers", "topic", topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", "4",
		"queueId", strconv.Itoa(queueID), "sysFlag", "0", "bornTimestamp", strconv.FormatInt(time.Now().UnixMilli(), 10),
		"flag", "0", "properties", props, "reconsumeTimes", "0", "unitMode", "false", "maxReconsumeTimes", "0", "batch", "false",
	}, more...)
}

// pullFields are those of a pull that brings its own subscription and is not held.
func pullFields(group, topic string, queueID int, offset int64, more ...string) []string {
	return withFields([]string{
		"consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queueID), "queueOffset", strconv.FormatInt(offset, 10),
		"maxMsgNums", "32", "sysFlag", strconv.Itoa(pullFlagSubscription), "commitOffset", "0", "suspendTimeoutMillis", "0",
		"subscription", "*", "subVersion", "0", "expressionType", "TAG",
	}, more...)
}

// withFields sets keys of fields; a value of "-" takes the field out.
func withFields(fields []string, more ...string) []string {
	for i := 0; i+1 < len(more); i += 2 {
		at := -1
		for j := 0; j < len(fields); j += 2 {
			if fields[j] == more[i] {
				at = j
			}
		}
		switch {
		case at < 0 && more[i+1] == "-":
		case at < 0:
			fields = append(fields, more[i], more[i+1])
		case more[i+1] == "-":
			fields = append(fields[:at], fields[at+2:]...)
		default:
			fields[at+1] = more[i+1]
		}
	}
	return fields
}

// send sends one message by V2 and wants it stored.
func (c *rawClient) send(topic string, queueID int, body []byte, props string, more ...string) *remoting.Command {
	c.t.Helper()
	resp := c.call(remoting.SendMessageV2, body, sendV2(topic, queueID, props, more...)...)
	wantCode(c.t, resp, remoting.Success)
	return resp
}

// pull reads once from an offset.
func (c *rawClient) pull(group, topic string, queueID int, offset int64, more ...string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.PullMessage, nil, pullFields(group, topic, queueID, offset, more...)...)
}

// pullUntil pulls from offset until at least n messages have come.
func (c *rawClient) pullUntil(group, topic string, queueID int, offset int64, n int) (records []message.Record) {
	c.t.Helper()
	for deadline := time.Now().Add(callTimeout); len(records) < n; {
		if time.Now().After(deadline) {
			c.t.Fatalf("%d of %d messages of %s queue %d after %v", len(records), n, topic, queueID, callTimeout)
		}
		resp := c.pull(group, topic, queueID, offset, "sysFlag", "6", "suspendTimeoutMillis", "1000")
		switch resp.Code {
		case remoting.Success:
			records = append(records, decodeRecords(c.t, resp.Body)...)
			offset = extInt(c.t, resp, "nextBeginOffset")
		case remoting.PullNotFound, remoting.PullRetryImmediately:
			offset = extInt(c.t, resp, "nextBeginOffset")
		default:
			c.t.Fatalf("pull of %s queue %d from %d: code %d, %q", topic, queueID, offset, resp.Code, resp.Remark)
		}
	}
	return records
}

func wantCode(t testing.TB, resp *remoting.Command, code int32) {
	t.Helper()
	if resp.Code != code {
		t.Fatalf("code %d, remark %q; want code %d", resp.Code, resp.Remark, code)
	}
}

func extInt(t testing.TB, resp *remoting.Command, key string) int64 {
	t.Helper()
	if _, ok := resp.Ext.Get(key); !ok {
		t.Fatalf("the answer (code %d, remark %q) has no field %s", resp.Code, resp.Remark, key)
	}
	n, err := resp.Ext.Int64(key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// decodeRecords cuts a body into its records and checks each one's checksum.
func decodeRecords(t testing.TB, body []byte) (records []message.Record) {
	t.Helper()
	for len(body) > 0 {
		var r message.Record
		if err := message.Decode(body, &r); err != nil {
			t.Fatalf("record %d: %v", len(records), err)
		}
		if err := message.CheckCRC(&r); err != nil {
			t.Fatalf("record %d: %v", len(records), err)
		}
		records = append(records, r)
		body = body[r.Size:]
	}
	return records
}
