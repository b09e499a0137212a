// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
)

// httpGet reads one page of an admin port, on a connection of its own.
func httpGet(t *testing.T, p *AdminPort, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestAdminPortThroughTheLifeOfABroker(t *testing.T) {
	fs, root := nodeFS()
	b, err := New(nodeConfig(root), Options{FS: fs, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ListenAdmin("127.0.0.1:0", b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := func(when, path string, status int, contains string) {
		t.Helper()
		gotStatus, body := httpGet(t, p, path)
		if gotStatus != status || !strings.Contains(body, contains) {
			t.Fatalf("%s: %s is %d %q; want %d %q", when, path, gotStatus, body, status, contains)
		}
	}
	want("before the start", "/livez", 200, "ok")
	want("before the start", "/readyz", 503, "not serving")
	want("before the start", "/metrics", 200, "go_goroutines")

	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("in service", "/readyz", 200, "ok")
	want("in service", "/debug/pprof/cmdline", 200, "")
	c := dialNode(t, b)
	ackOf(t, c.await(c.start(nodeSend(c, "counted", 0, "one"))[0]), "one")
	for _, line := range []string{
		"rocketmq_store_put_messages_total 1", "rocketmq_store_writable 1", "rocketmq_connections 1", `rocketmq_messages_in_total{topic="counted"} 1`,
		`rocketmq_limit_hits_total{limit="connections"} 0`, `rocketmq_lane_queue_length{lane="pull"} 0`, "rocketmq_commitlog_flush_seconds_count",
		`rocketmq_commitlog_flush_seconds_bucket{le="0.001"}`,
	} {
		want("after a send", "/metrics", 200, "\n"+line)
	}

	p.Detach()
	if err := b.Shutdown(shutdownTimeout); err != nil {
		t.Fatal(err)
	}
	want("stopped", "/livez", 200, "ok")
	want("stopped", "/readyz", 503, "stopping")
	want("stopped", "/metrics", 200, "go_goroutines")
}

func TestReadyzNamesTheFault(t *testing.T) {
	fs, root := nodeFS()
	cfg := nodeConfig(root)
	cfg.Store.FlushDiskType = storage.SyncFlush
	b := startDoomedNode(t, cfg, fs)
	p, err := ListenAdmin("127.0.0.1:0", b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	fs.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Err: syscall.EIO})
	c := dialNode(t, b)
	if resp := c.await(c.start(nodeSend(c, "doomed", 0, "x"))[0]); resp.Code != remoting.ServiceNotAvailable {
		t.Fatalf("code %d %s", resp.Code, resp.Remark)
	}
	if status, body := httpGet(t, p, "/readyz"); status != 503 || !strings.Contains(body, "read-only") {
		t.Fatalf("/readyz is %d %q", status, body)
	}
	_, metrics := httpGet(t, p, "/metrics")
	for _, want := range []string{"\nrocketmq_store_writable 0", "\nrocketmq_store_read_only{cause="} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in /metrics", want)
		}
	}
	p.Detach()
	_ = b.Shutdown(shutdownTimeout)
}

// Counters end in _total, gauges do not, units are in the name, and each has a sentence.
func TestMetricNames(t *testing.T) {
	shape := regexp.MustCompile(`^Desc\{fqName: "(rocketmq_[a-z_]+)", help: "([^"]+\.)"`)
	seen := make(map[string]bool)
	for _, m := range brokerMetrics {
		parts := shape.FindStringSubmatch(m.desc.String())
		if parts == nil {
			t.Errorf("%s: want a rocketmq_ name and a sentence", m.desc)
			continue
		}
		if seen[parts[1]] {
			t.Errorf("%s is there twice", parts[1])
		}
		seen[parts[1]] = true
		if counter := fmt.Sprint(m.kind) == "1"; counter != strings.HasSuffix(parts[1], "_total") {
			t.Errorf("%s: counters, and only they, end in _total", parts[1])
		}
	}
}

func TestAdminPortTakenIsAnError(t *testing.T) {
	p, err := ListenAdmin("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := ListenAdmin(p.Addr(), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "adminAddr") {
		t.Fatalf("%v; want an error that names the key", err)
	}
}
