// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// A whole node, from the route to the message and through a restart, as a client sees it.
func TestNodeServesAClient(t *testing.T) {
	names := startNamesrv(t, 0)
	fs, root := nodeFS()
	cfg := nodeConfig(root)
	cfg.NamesrvAddr = names.Addr().String()
	b := startNode(t, cfg, fs)

	router := dialRaw(t, names.Addr().String())
	route := func(topic string) (found bool, brokerAddr string) {
		resp := router.call(remoting.GetRouteInfoByTopic, nil, "topic", topic)
		if resp.Code == remoting.TopicNotExist {
			return false, ""
		}
		var data struct {
			BrokerDatas []struct{ BrokerAddrs map[string]string }
			QueueDatas  []struct{ WriteQueueNums int }
		}
		if err := json.Unmarshal(resp.Body, &data); err != nil || resp.Code != remoting.Success || len(data.BrokerDatas) != 1 {
			t.Fatalf("route: code %d, %s: %v", resp.Code, resp.Body, err)
		}
		return true, data.BrokerDatas[0].BrokerAddrs["0"]
	}
	if found, addr := route("TBW102"); !found || addr != b.BrokerAddr() {
		t.Fatalf("route of the template: %v %s, want %s", found, addr, b.BrokerAddr())
	}
	if found, _ := route("orders"); found {
		t.Fatal("a topic that nobody made has a route")
	}

	// The first message makes the topic; the rest comes in one write.
	c := dialNode(t, b)
	acks := []nodeAck{ackOf(t, c.await(c.start(nodeSend(c, "orders", 0, "first"))[0]), "first")}
	eventually(t, "a route of the new topic", func() bool { found, _ := route("orders"); return found })
	var sends []*remoting.Command
	for i := range 2000 {
		sends = append(sends, nodeSend(c, "orders", i%4, fmt.Sprintf("message %d", i)))
	}
	for i, ch := range c.start(sends...) {
		acks = append(acks, ackOf(t, c.await(ch), string(sends[i].Body)))
	}
	wantAcked(t, b, "orders", acks)

	// A pull at the end is held until the next message.
	end := int64(0)
	for _, ack := range acks {
		if ack.queueID == 1 {
			end = max(end, ack.offset+1)
		}
	}
	consumer := dialNode(t, b)
	held := consumer.start(nodePull(consumer, "orders", 1, end, 15*time.Second))[0]
	select {
	case resp := <-held:
		t.Fatalf("a pull at the end was answered at once: code %d", resp.Code)
	case <-time.After(50 * time.Millisecond):
	}
	acks = append(acks, ackOf(t, c.await(c.start(nodeSend(c, "orders", 1, "awaited"))[0]), "awaited"))
	if bodies, _ := recordsOf(t, consumer.await(held).Body); !slices.Equal(bodies, []string{"awaited"}) {
		t.Fatalf("the held pull brought %q", bodies)
	}

	stopNode(t, b)
	eventually(t, "the route going with the broker", func() bool { found, _ := route("orders"); return !found })
	b = startNode(t, cfg, fs)
	wantAcked(t, b, "orders", acks)
	if found, addr := route("orders"); !found || addr != b.BrokerAddr() {
		t.Fatalf("route after the restart: %v %s", found, addr)
	}
	c = dialNode(t, b)
	again := ackOf(t, c.await(c.start(nodeSend(c, "orders", 1, "after the restart"))[0]), "after the restart")
	wantAcked(t, b, "orders", append(acks, again))
}

var crashSeeds = flag.Int("seeds", 4, "crashes of a whole node to try")

// pump sends without pause until the connection ends, tells of each acknowledgement, and counts refusals.
func pump(t *testing.T, b *BrokerController, topic string, name int, acked func(nodeAck)) (refused int) {
	c := dialNode(t, b)
	defer c.close()
	const window = 64
	for i := 0; ; i += window {
		sends := make([]*remoting.Command, window)
		for k := range sends {
			sends[k] = nodeSend(c, topic, (i+k)%4, fmt.Sprintf("%d of producer %d", i+k, name))
		}
		for k, ch := range c.start(sends...) {
			resp := answerOrEnd(c, ch)
			switch {
			case resp == nil:
				return refused
			case resp.Code == remoting.Success:
				acked(ackOf(t, resp, string(sends[k].Body)))
			case resp.Code == remoting.ServiceNotAvailable || resp.Code == remoting.SystemBusy,
				bytes.HasPrefix(resp.Remark, []byte("create mapped file failed")): // the disk went when a file was due
				refused++
			default:
				t.Errorf("code %d %s", resp.Code, resp.Remark)
				return refused
			}
		}
	}
}

// answerOrEnd waits for an answer, nil if the connection ended without it.
func answerOrEnd(c *rawClient, ch <-chan *remoting.Command) *remoting.Command {
	select {
	case resp := <-ch:
		return resp
	case <-c.closed: // what was read before is in the channel
		select {
		case resp := <-ch:
			return resp
		default:
			return nil
		}
	}
}

// drink pulls a queue from its start, with holds, until the connection ends.
func drink(t *testing.T, b *BrokerController, topic string, queueID int) {
	c := dialNode(t, b)
	defer c.close()
	for next := int64(0); ; {
		resp := answerOrEnd(c, c.start(nodePull(c, topic, queueID, next, time.Second))[0])
		if resp == nil {
			return
		}
		if resp.Code == remoting.Success {
			_, offsets := recordsOf(t, resp.Body)
			next = offsets[len(offsets)-1] + 1
		}
	}
}

func TestStopWhileClientsAreBusy(t *testing.T) {
	for name, flush := range map[string]storage.FlushDiskType{"async": storage.AsyncFlush, "sync": storage.SyncFlush} {
		t.Run(name, func(t *testing.T) {
			fs, root := nodeFS()
			cfg := nodeConfig(root)
			cfg.Store.FlushDiskType = flush
			b := startNode(t, cfg, fs)
			addNodeTopic(t, b, "orders", 4)

			var mu sync.Mutex
			var acks []nodeAck
			var clients sync.WaitGroup
			for i := range 4 {
				clients.Go(func() {
					refused := pump(t, b, "orders", i, func(ack nodeAck) {
						mu.Lock()
						defer mu.Unlock()
						acks = append(acks, ack)
					})
					t.Logf("producer %d: %d refused", i, refused)
				})
			}
			for i := range 4 {
				clients.Go(func() { drink(t, b, "orders", i) })
			}
			time.Sleep(200 * time.Millisecond)
			began := time.Now()
			stopNode(t, b)
			t.Logf("stopped in %v", time.Since(began))
			clients.Wait()
			if n := fs.OpenRegions(); n != 0 {
				t.Fatalf("%d files are still mapped: what was lent did not come back", n)
			}
			if len(acks) == 0 {
				t.Fatal("nothing was acknowledged")
			}
			if _, err := fs.Stat(root + "/abort"); err == nil {
				t.Fatal("the abort file is left after a clean stop")
			}
			wantAcked(t, startNode(t, cfg, fs), "orders", acks)
		})
	}
}

// What was acknowledged before the machine or the process died is there when the broker is back: after a power cut under
// SYNC_FLUSH, after the end of the process alone under ASYNC_FLUSH.
func TestAcknowledgedSurvivesACrash(t *testing.T) {
	for _, c := range []struct {
		name  string
		flush storage.FlushDiskType
		crash faultfs.CrashKind
	}{{"power cut", storage.SyncFlush, faultfs.PowerLoss}, {"kill", storage.AsyncFlush, faultfs.ProcessKill}} {
		for seed := range uint64(*crashSeeds) {
			t.Run(fmt.Sprintf("%s/seed=%d", c.name, seed), func(t *testing.T) {
				fs := faultfs.New()
				cfg := nodeConfig("/store")
				cfg.Store.FlushDiskType = c.flush
				b := startDoomedNode(t, cfg, fs)
				addNodeTopic(t, b, "orders", 4)

				var mu sync.Mutex
				var acks []nodeAck
				var producers sync.WaitGroup
				for i := range 3 {
					producers.Go(func() {
						pump(t, b, "orders", i, func(ack nodeAck) {
							mu.Lock()
							defer mu.Unlock()
							acks = append(acks, ack)
						})
					})
				}
				eventually(t, "an acknowledgement", func() bool { mu.Lock(); defer mu.Unlock(); return len(acks) > 0 })
				time.Sleep(time.Duration(20+seed*7%80) * time.Millisecond)
				mu.Lock()
				before := slices.Clone(acks)
				mu.Unlock()
				crashed := fs.Crash(c.crash, seed)
				_ = b.Shutdown(time.Second) // its disk is gone
				producers.Wait()
				t.Logf("%d acknowledged before the crash", len(before))
				wantAcked(t, startNode(t, cfg, crashed), "orders", before)
			})
		}
	}
}

func TestStoppingRefusesInWords(t *testing.T) {
	fs, root := nodeFS()
	b := startNode(t, nodeConfig(root), fs)
	addNodeTopic(t, b, "orders", 1)
	c := dialNode(t, b)
	ackOf(t, c.await(c.start(nodeSend(c, "orders", 0, "m"))[0]), "m")
	b.server.RefuseNew(remoting.ServiceNotAvailable, remarkShuttingDown)
	resp := c.await(c.start(nodeSend(c, "orders", 0, "n"))[0])
	if resp.Code != remoting.ServiceNotAvailable || string(resp.Remark) != remarkShuttingDown {
		t.Fatalf("code %d %s", resp.Code, resp.Remark)
	}
	stopNode(t, b)
	c.waitClosed()
	select {
	case <-b.Done():
	default:
		t.Fatal("Done is open after Shutdown")
	}
	if b.Err() != nil || b.Ready() == nil {
		t.Fatalf("err %v, ready %v", b.Err(), b.Ready())
	}
}

// What was accepted before the stop is answered before the connection closes, although the disk is slow.
func TestStopLosesNoReply(t *testing.T) {
	fs := faultfs.New()
	cfg := nodeConfig("/store")
	cfg.Store.FlushDiskType = storage.SyncFlush
	cfg.Store.SyncFlushTimeout, cfg.Store.WaitTimeMillsInSendQueue = callTimeout.Milliseconds(), callTimeout.Milliseconds()
	b := startNode(t, cfg, fs)
	addNodeTopic(t, b, "orders", 4)
	c := dialNode(t, b)
	// The first message makes the log's first file, which must not meet the slow disk.
	acks := []nodeAck{ackOf(t, c.await(c.start(nodeSend(c, "orders", 0, "first"))[0]), "first")}
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	t.Cleanup(release)
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			<-slow
		}
	})
	var sends []*remoting.Command
	for i := range 500 {
		sends = append(sends, nodeSend(c, "orders", i%4, fmt.Sprint(i)))
	}
	answers := c.start(sends...)
	eventually(t, "all of them waiting for the disk", func() bool { return b.store.Stats().WaitingFlushRequests == len(sends) })
	go func() {
		time.Sleep(100 * time.Millisecond)
		release()
	}()
	stopNode(t, b)
	for i, ch := range answers {
		resp := answerOrEnd(c, ch)
		if resp == nil {
			t.Fatalf("no answer to send %d", i)
		}
		acks = append(acks, ackOf(t, resp, fmt.Sprint(i)))
	}
	fs.SetHook(nil)
	wantAcked(t, startNode(t, cfg, fs), "orders", acks)
}

// Every combination of flush type, transient pool and role starts, and answers a send at once with what is true.
func TestEveryCombinationAnswers(t *testing.T) {
	want := map[storage.Role]int32{
		storage.AsyncMaster: remoting.Success,
		storage.SyncMaster:  remoting.SlaveNotAvailable,
		storage.Slave:       remoting.ServiceNotAvailable,
	}
	for role, code := range want {
		for _, flush := range []storage.FlushDiskType{storage.AsyncFlush, storage.SyncFlush} {
			for _, pool := range []bool{false, true} {
				t.Run(fmt.Sprintf("role=%d/flush=%d/pool=%v", role, flush, pool), func(t *testing.T) {
					fs, root := nodeFS()
					cfg := nodeConfig(root)
					cfg.Store.Role, cfg.Store.FlushDiskType, cfg.Store.TransientStorePoolEnable = role, flush, pool
					if role == storage.Slave {
						cfg.BrokerID, cfg.Store.BrokerID = 1, 1
					}
					b := startDoomedNode(t, cfg, fs)
					defer stopNode(t, b)
					addNodeTopic(t, b, "orders", 1)
					c := dialNode(t, b)
					began := time.Now()
					resp := c.await(c.start(nodeSend(c, "orders", 0, "m"))[0])
					if resp.Code != code {
						t.Fatalf("code %d %s; want %d", resp.Code, resp.Remark, code)
					}
					t.Logf("code %d after %v: %s", resp.Code, time.Since(began), resp.Remark)
					stored := map[int64]string{0: "m"}
					if role == storage.Slave {
						stored = map[int64]string{}
					}
					eventually(t, "the message in its queue", func() bool { return maps.Equal(pullAll(t, c, "orders", 0), stored) })
				})
			}
		}
	}
}

// Name servers are changed by a tool, while the broker runs.
func TestToolChangesTheNameServers(t *testing.T) {
	names := startNamesrv(t, 0)
	fs, root := nodeFS()
	b := startNode(t, nodeConfig(root), fs)
	if knows(t, names, "TBW102") {
		t.Fatal("registered without being told")
	}
	c := dialNode(t, b)
	resp := c.call(remoting.UpdateBrokerConfig, []byte("namesrvAddr="+names.Addr().String()+"\n"))
	if resp.Code != remoting.Success {
		t.Fatalf("code %d %s", resp.Code, resp.Remark)
	}
	eventually(t, "the registration", func() bool { return knows(t, names, "TBW102") })
	resp = c.call(remoting.UpdateBrokerConfig, []byte("brokerPermission=4\n"))
	if resp.Code != remoting.Success {
		t.Fatalf("code %d %s", resp.Code, resp.Remark)
	}
	router := dialRaw(t, names.Addr().String())
	eventually(t, "routes that are only readable", func() bool {
		return strings.Contains(string(router.call(remoting.GetRouteInfoByTopic, nil, "topic", "TBW102").Body), `"perm":4`)
	})
}

// A disk that hangs keeps neither the senders nor the process: what waits for it is answered, and not with an OK.
func TestStopOnADiskThatHangs(t *testing.T) {
	fs := faultfs.New()
	cfg := nodeConfig("/store")
	cfg.Store.FlushDiskType = storage.SyncFlush
	cfg.Store.SyncFlushTimeout = callTimeout.Milliseconds()
	b := startDoomedNode(t, cfg, fs)
	addNodeTopic(t, b, "orders", 1)
	c := dialNode(t, b)
	ackOf(t, c.await(c.start(nodeSend(c, "orders", 0, "kept"))[0]), "kept")

	release := make(chan struct{})
	hung := make(chan struct{})
	var once sync.Once
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			once.Do(func() { close(hung) })
			<-release
		}
	})
	waiting := c.start(nodeSend(c, "orders", 0, "in doubt"))[0]
	<-hung
	if err := b.Shutdown(time.Second); err == nil {
		t.Error("a stop on a hanging disk says that all is well")
	}
	resp := answerOrEnd(c, waiting)
	if resp == nil || resp.Code != remoting.ServiceNotAvailable {
		t.Errorf("the send that waited for the disk was answered %+v", resp)
	}
	close(release)
	fs.SetHook(nil)
	// The stop goes on by itself; the store is there for the next start.
	eventually(t, "the store being closed", func() bool { return fs.OpenRegions() == 0 })
	wantAcked(t, startNode(t, cfg, fs), "orders", []nodeAck{{0, 0, "kept"}})
}

func TestUnknownRequestIsNamed(t *testing.T) {
	fs, root := nodeFS()
	c := dialNode(t, startNode(t, nodeConfig(root), fs))
	resp := c.call(4711, nil)
	if resp.Code != remoting.RequestCodeNotSupported || string(resp.Remark) != " request type 4711 not supported" {
		t.Fatalf("code %d %q", resp.Code, resp.Remark)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	fs, root := nodeFS()
	first := startNode(t, nodeConfig(root), fs)
	f := func(what string, cfg Config, want string) {
		t.Helper()
		b, err := New(cfg, Options{FS: fs, Logger: testLogger(t)})
		if err == nil {
			err = b.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	f("a store in use", nodeConfig(root), "lock")
	taken := nodeConfig("/elsewhere")
	taken.ListenPort = int(first.Addr().Port())
	f("a port in use", taken, "address already in use")
	bad := nodeConfig("/bad")
	bad.BrokerIP1 = "no such host"
	f("an address that is none", bad, "brokerIP1")
	// What failed to start left nothing locked.
	free := nodeConfig("/elsewhere")
	startNode(t, free, fs)
}

func TestStartIsQuick(t *testing.T) {
	cfg := nodeConfig(t.TempDir())
	cfg.Store.MappedFileSizeCommitLog = 64 << 20
	began := time.Now()
	b := startNode(t, cfg, nil)
	addNodeTopic(t, b, "orders", 1)
	c := dialNode(t, b)
	ackOf(t, c.await(c.start(nodeSend(c, "orders", 0, "m"))[0]), "m")
	t.Logf("start to the first accepted message: %v", time.Since(began))
}

// Zero bytes in properties, as many as a send may have, are not taken for a sector that never reached the disk: what was
// acknowledged behind them is there after a kill.
func TestZerosInPropertiesDoNotCutTheLog(t *testing.T) {
	fs := faultfs.New()
	cfg := nodeConfig("/store")
	b := startDoomedNode(t, cfg, fs)
	addNodeTopic(t, b, "orders", 1)
	c := dialNode(t, b)
	var acks []nodeAck
	for i := range 600 { // each at another place in its sector
		body := fmt.Sprint(i)
		zeros := strings.Repeat("\x00", i%511+1)
		send := c.request(remoting.SendMessageV2, []byte(body), sendV2("orders", 0, "K\x01"+zeros+"\x02L\x01x"+zeros)...)
		acks = append(acks, ackOf(t, c.await(c.start(send)[0]), body))
	}
	crashed := fs.Crash(faultfs.ProcessKill, 1)
	_ = b.Shutdown(time.Second)
	wantAcked(t, startNode(t, cfg, crashed), "orders", acks)
}

// A power cut that takes messages which a group had consumed leaves its offset no further than the queue: what is sent
// later under the same numbers is for the group too.
func TestConsumerOffsetsEndWithTheirQueue(t *testing.T) {
	fs := faultfs.New()
	cfg := nodeConfig("/store")
	cfg.Store.FlushIntervalCommitLog, cfg.Store.FlushCommitLogThoroughInterval = 3_600_000, 3_600_000 // nothing is flushed
	b := startDoomedNode(t, cfg, fs)
	addNodeTopic(t, b, "orders", 2)
	c := dialNode(t, b)
	for i := range 20 {
		ackOf(t, c.await(c.start(nodeSend(c, "orders", i%2, fmt.Sprint(i)))[0]), fmt.Sprint(i))
	}
	for queue := range 2 {
		wantCode(t, c.call(remoting.UpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "orders",
			"queueId", fmt.Sprint(queue), "commitOffset", "10"), remoting.Success)
	}
	must(t, b.offsets.Persist())
	crashed := fs.Crash(faultfs.TotalPowerLoss, 0)
	_ = b.Shutdown(time.Second) // its disk is gone
	b = startNode(t, cfg, crashed)
	for queue := range int32(2) {
		if _, end, _ := b.store.QueueOffsets("orders", queue); end == 10 || b.offsets.Query("g", "orders", queue) != int64(end) {
			t.Errorf("queue %d ends at %d, the offset is %d", queue, end, b.offsets.Query("g", "orders", queue))
		}
	}
}
