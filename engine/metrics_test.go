// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// scrape is what a broker's metrics say, by name and labels: name{label="value"}. Histograms are their counts.
type scrape struct {
	values map[string]float64
	shapes map[string]string // by name: its kind and labels
}

func (b *testBroker) scrape() scrape {
	b.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&AdminPort{broker: b.BrokerController})
	families, err := registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	s := scrape{make(map[string]float64), make(map[string]string)}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key, names := family.GetName(), []string(nil)
			for _, label := range m.GetLabel() {
				key += fmt.Sprintf("{%s=%q}", label.GetName(), label.GetValue())
				names = append(names, label.GetName())
			}
			s.values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			s.shapes[family.GetName()] = shapeOf(strings.ToLower(family.GetType().String()), names)
		}
	}
	return s
}

func shapeOf(kind string, labels []string) string {
	slices.Sort(labels)
	return kind + " " + strings.Join(labels, ",")
}

// Every metric of the README's table is there, with its kind and labels, and no other: on a master with a slave and
// consumers, on the slave, and on a store that failed.
func TestEveryMetricOfTheTableAppears(t *testing.T) {
	master := startSyncMaster(t, nil)
	slave := startSlave(t, master, nil)
	master.inSync()
	c := master.dial()
	c.send("T", 0, []byte("x"), "")
	c.pullUntil("g", "T", 0, 0, 1)

	failed, fs := startFaultyBroker(t, func(c *Config) { c.Store.FlushDiskType = storage.SyncFlush })
	f := failed.dial()
	f.send("T", 0, nil, "")
	fs.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Err: syscall.EIO})
	wantCode(t, f.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...), remoting.ServiceNotAvailable)

	got := make(map[string]string)
	for _, b := range []*testBroker{master, slave, failed} {
		for name, shape := range b.scrape().shapes {
			got[name] = shape
		}
	}
	for _, doc := range metricDocs {
		if want := shapeOf(doc.kind, slices.Clone(doc.labels)); got[doc.name] != want {
			t.Errorf("%s is %q; want %q", doc.name, got[doc.name], want)
		}
		delete(got, doc.name)
	}
	if len(got) > 0 {
		t.Errorf("metrics without a line in the table: %v", got)
	}
}

// wantMoved runs do and waits until the metrics have moved by as much.
func (b *testBroker) wantMoved(what string, do func(), moved map[string]float64) {
	b.t.Helper()
	before := b.scrape().values
	do()
	for name, by := range moved {
		var got float64
		b.eventually(fmt.Sprintf("%s: %s moves by %v", what, name, by), func() bool {
			got = b.scrape().values[name] - before[name]
			return got == by
		})
	}
}

// wantAbove runs do and waits until the metrics are above what they were.
func (b *testBroker) wantAbove(what string, do func(), names ...string) {
	b.t.Helper()
	before := b.scrape().values
	do()
	for _, name := range names {
		b.eventually(what+": "+name+" rises", func() bool { return b.scrape().values[name] > before[name] })
	}
}

func TestMetricsMove(t *testing.T) {
	b, fs := startFaultyBroker(t, func(c *Config) { c.Store.FlushDiskType = storage.SyncFlush })
	c := b.dial()
	c.send("T", 0, nil, "")
	b.eventually("the first send counted", func() bool { return b.stageCountsOf()[stageReply] == 1 })

	group := func(name string) string { return fmt.Sprintf("rocketmq_requests_by_group_total{group=%q}", name) }
	stage := func(name string) string { return fmt.Sprintf("rocketmq_send_stage_seconds{stage=%q}", name) }
	b.wantMoved("a send", func() { c.send("T", 0, []byte("x"), "") }, map[string]float64{
		group("send"): 1, "rocketmq_requests_total": 1, "rocketmq_responses_total": 1, "rocketmq_store_put_messages_total": 1,
		`rocketmq_messages_in_total{topic="T"}`: 1,
		stage("queue"):                          1, stage("lock"): 1, stage("append"): 1, stage("flush"): 1, stage("replica"): 0, stage("reply"): 1,
	})
	b.wantAbove("a send", func() { c.send("T", 0, []byte("x"), "") }, `rocketmq_loop_busy_seconds_total{loop="0"}`,
		`rocketmq_loop_turns_total{loop="0"}`, "rocketmq_commitlog_flush_seconds", "rocketmq_dispatch_messages_total")

	for name, code := range map[string]int32{
		"offset": remoting.GetMaxOffset, "client": remoting.HeartBeat, "admin": remoting.GetBrokerConfig, "query": remoting.ViewMessageByID,
		"pull": remoting.PullMessage, "sendBack": remoting.ConsumerSendMsgBack, "other": 4711,
	} {
		b.wantMoved(name, func() { c.call(code, nil) }, map[string]float64{group(name): 1, "rocketmq_requests_total": 1, group("send"): 0})
	}

	b.wantAbove("a full file", func() {
		for range 3 {
			c.send("T", 0, make([]byte, 500_000), "")
		}
	}, "rocketmq_commitlog_files_rolled_total", "rocketmq_commitlog_files_allocated_total", `rocketmq_page_faults_total{kind="minor"}`)
	b.wantAbove("a file that is late", func() {
		fs.SetHook(func(op faultfs.Op, path string) {
			if op == faultfs.OpAllocate {
				time.Sleep(20 * time.Millisecond)
			}
		})
		for range 6 {
			c.call(remoting.SendMessageV2, make([]byte, 900_000), sendV2("T", 0, "")...)
		}
		fs.SetHook(nil)
	}, "rocketmq_commitlog_file_wait_seconds")

	hang := make(chan struct{})
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	late := c.start(c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))[0]
	b.eventually("a disk that hangs", func() bool {
		v := b.scrape().values
		return v["rocketmq_commitlog_flush_behind_bytes"] > 0 && v["rocketmq_commitlog_flush_behind_seconds"] > 0 && v["rocketmq_commitlog_flush_waiting"] == 1
	})
	close(hang)
	wantCode(t, c.await(late), remoting.Success)
	b.eventually("everything durable", func() bool {
		v := b.scrape().values
		return v["rocketmq_commitlog_flush_behind_bytes"] == 0 && v["rocketmq_commitlog_flush_behind_seconds"] == 0 &&
			v["rocketmq_commitlog_flush_waiting"] == 0 && v["rocketmq_dispatch_behind_bytes"] == 0
	})
}

// What the transient pool holds shows until it is committed.
func TestCommitLagShows(t *testing.T) {
	b, _ := startFaultyBroker(t, func(c *Config) {
		c.Store.TransientStorePoolEnable, c.Store.TransientStorePoolSize = true, 3
		c.Store.CommitIntervalCommitLog, c.Store.CommitCommitLogThoroughInterval, c.Store.CommitCommitLogLeastPages = 600_000, 600_000, 1_000
	})
	c := b.dial()
	b.wantAbove("a message in the pool", func() { c.send("T", 0, []byte("x"), "") }, "rocketmq_commitlog_commit_behind_bytes")
}

// profilesUnder is where contention shows.
//
//go:noinline
func profilesUnder(mu *sync.Mutex, d time.Duration) {
	mu.Lock()
	time.Sleep(d)
	mu.Unlock()
}

// What goroutines wait for is sampled while somebody asks for it, and not before or after.
func TestContentionProfiles(t *testing.T) {
	p, err := ListenAdmin("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	stop := make(chan struct{})
	var contending sync.WaitGroup
	var mu sync.Mutex
	for range 2 { // the runtime does not see those who wait in a queue that was there before
		contending.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					profilesUnder(&mu, time.Millisecond)
				}
			}
		})
	}
	defer contending.Wait()
	defer close(stop)

	for _, name := range []string{"mutex", "block"} {
		path := "/debug/pprof/" + name
		if status, text := httpGet(t, p, path+"?seconds=1&rate=1&debug=1"); status != 200 || !strings.Contains(text, "profilesUnder") {
			t.Errorf("%s as text: %d, %d bytes, profilesUnder not in it", name, status, len(text))
		}
		if status, body := httpGet(t, p, path+"?seconds=1"); status != 200 || !strings.HasPrefix(body, "\x1f\x8b") {
			t.Errorf("%s: %d, %q…; want what pprof reads", name, status, body[:min(len(body), 40)])
		}
		for _, query := range []string{"seconds=0", "seconds=x", "seconds=301", "rate=0", "rate=-1"} {
			if status, text := httpGet(t, p, path+"?"+query); status != 400 {
				t.Errorf("%s?%s: %d %s", name, query, status, text)
			}
		}
	}
	eventually(t, "mutexes not sampled any more", func() bool { return runtime.SetMutexProfileFraction(-1) == 0 })

	// One at a time: a second one would switch off what the first one needs.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: callTimeout}
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.Addr()+"/debug/pprof/mutex?seconds=300&debug=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := client.Do(request); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "mutexes sampled", func() bool { return runtime.SetMutexProfileFraction(-1) == mutexFractionDefault })
	if status, text := httpGet(t, p, "/debug/pprof/mutex?seconds=1"); status != 409 {
		t.Errorf("beside another: %d %s", status, text)
	}
	p.Close() // ends the first
	<-ended
	eventually(t, "mutexes not sampled any more", func() bool { return runtime.SetMutexProfileFraction(-1) == 0 })
}

// The other profiles are there.
func TestProfiles(t *testing.T) {
	p, err := ListenAdmin("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for path, contains := range map[string]string{
		"": "full goroutine stack dump", "goroutine?debug=1": "goroutine profile", "heap?debug=1": "heap profile", "allocs?debug=1": "heap profile",
		"threadcreate?debug=1": "threadcreate profile", "cmdline": "engine.test", "symbol": "num_symbols", "trace?seconds=0.01": "go 1.",
		"profile?seconds=1": "\x1f\x8b",
	} {
		if status, body := httpGet(t, p, "/debug/pprof/"+path); status != 200 || !strings.Contains(body, contains) {
			t.Errorf("%s: %d, %d bytes without %q", path, status, len(body), contains)
		}
	}
}
