// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"loopmq/bench/load"
	"loopmq/bench/result"
	"loopmq/engine"
)

// benchBroker starts a broker with an admin port; both addresses are returned.
func benchBroker(t *testing.T) (broker, admin string) {
	t.Helper()
	cfg := engine.DefaultConfig()
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "broker-a", "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.ListenPort, cfg.HAListenPort, cfg.AdminAddr = 0, 0, ""
	cfg.Store.StorePathRootDir = t.TempDir()
	cfg.Store.MappedFileSizeCommitLog = 4 << 20
	cfg.Store.MappedFileSizeConsumeQueue = 20 * 20_000
	cfg.Store.MaxHashSlotNum, cfg.Store.MaxIndexNum = 1000, 40_000
	b, err := engine.New(cfg, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	port, err := engine.ListenAdmin("127.0.0.1:0", b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		port.Detach()
		if err := b.Shutdown(patience); err != nil {
			t.Error(err)
		}
		port.Close()
	})
	return b.Addr().String(), port.Addr()
}

// A run shows a table and leaves a record, a report and profiles; the record is a file to run again.
func TestBenchProduce(t *testing.T) {
	broker, admin := benchBroker(t)
	dir := t.TempDir()
	record, report, profiles := filepath.Join(dir, "run.json"), filepath.Join(dir, "run.html"), filepath.Join(dir, "profiles")
	stdout, stderr, code := run(t, "bench", "produce", "--broker", broker, "--mode", "sync", "--threads", "8", "--connections", "2",
		"--body", "100-300", "--warmup", "50ms", "--duration", "1s", "--label", "mine", "--json", record, "--html", report,
		"--profile", profiles, "--admin", admin, "--verify")
	if code != 0 || !strings.Contains(stdout, "mine") || !strings.Contains(stdout, "p99.99 ms") || !strings.Contains(stdout, "0 lost") {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	results, err := result.Read(bytes.NewReader(text))
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	r := results[0]
	if r.Label != "mine" || r.Messages == 0 || r.Settings.Threads != 8 || r.Settings.Mode != load.ModeSync || r.GeneratorCost == nil || r.Tool.Name != "loopmq" || r.Server.Version == "" {
		t.Fatalf("%+v", r)
	}
	if html, err := os.ReadFile(report); err != nil || !bytes.Contains(html, []byte("<svg")) {
		t.Fatalf("a report of %d bytes, %v", len(html), err)
	}
	for _, name := range []string{"cpu", "heap", "mutex", "block"} {
		if info, err := os.Stat(filepath.Join(profiles, name+".pprof")); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}

	// Flags go over the file.
	again := filepath.Join(dir, "again.json")
	stdout, stderr, code = run(t, "bench", "produce", "-c", record, "--count", "500", "--threads", "4", "--json", again,
		"--server-pid", strconv.Itoa(os.Getpid()))
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	if text, err = os.ReadFile(again); err != nil {
		t.Fatal(err)
	}
	if results, err = result.Read(bytes.NewReader(text)); err != nil || results[0].Messages != 500 || results[0].Settings.Threads != 4 || results[0].Settings.Body != "100-300" {
		t.Fatalf("%+v, %v", results, err)
	}
}

// A flag takes the place of what the file has and what excludes it.
func TestBenchFlagsInstead(t *testing.T) {
	file := writeFile(t, `{"workload":"produce","broker":"127.0.0.1:1","count":100}`)
	f := func(want load.Config, args ...string) {
		t.Helper()
		cfg := load.DefaultConfig()
		settings := flag.NewFlagSet("", flag.ContinueOnError)
		cfg.RegisterFlags(settings, load.Produce)
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.AddGoFlagSet(settings)
		if err := errors.Join(flags.Parse(args), readBenchConfig(flags, settings, &cfg, file)); err != nil {
			t.Fatal(err)
		}
		if cfg.Broker != want.Broker || cfg.NameSrv != want.NameSrv || cfg.Count != want.Count || cfg.Duration != want.Duration {
			t.Errorf("%q: %+v; want %+v", args, cfg, want)
		}
	}
	want := load.DefaultConfig()
	want.Broker, want.Count = "127.0.0.1:1", 100
	f(want)
	want.Broker, want.NameSrv = "", "127.0.0.1:2"
	f(want, "--namesrv", "127.0.0.1:2")
	want.Broker, want.NameSrv, want.Count, want.Duration = "127.0.0.1:3", "", 0, result.Duration(time.Minute)
	f(want, "--broker", "127.0.0.1:3", "--duration", "1m")
	want.Count = 5
	f(want, "--broker", "127.0.0.1:3", "--duration", "1m", "--count", "5")
}

// The verb verify verifies, whatever a file of settings says.
func TestBenchVerifyOfAFile(t *testing.T) {
	broker, _ := benchBroker(t)
	file := writeFile(t, `{"workload":"produce","verify":false,"count":100}`)
	stdout, stderr, code := run(t, "bench", "verify", "--broker", broker, "-c", file)
	if code != 0 || !strings.Contains(stdout, "100 acknowledged: 0 lost") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
}

func TestBenchVerbs(t *testing.T) {
	broker, _ := benchBroker(t)
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := run(t, append([]string{"bench", args[0], "--broker", broker, "--body", "100"}, args[1:]...)...)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%q: code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	f("1,000 acknowledged: 0 lost", "verify", "--count", "1000")
	f("messages", "drain", "--count", "1000", "--groups", "2")
	f("messages", "latency", "--rate", "1000", "--count", "300")
	stdout, stderr, code := run(t, "bench", "consume", "--broker", broker, "--from", "first", "--count", "1000")
	if code != 0 || !strings.Contains(stdout, "messages") {
		t.Errorf("consume: code %d\n%s%s", code, stdout, stderr)
	}
}

func TestBenchSaysWhatIsWrong(t *testing.T) {
	broker, _ := benchBroker(t)
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := run(t, append([]string{"bench"}, args...)...)
		if code != 1 || !strings.Contains(stderr, want) || strings.Contains(stderr, "Usage:") {
			t.Errorf("%q: code %d\n%s%s; want %q", args, code, stdout, stderr, want)
		}
	}
	f("no broker answers at 127.0.0.1:1", "produce", "--broker", "127.0.0.1:1")
	f("no name server answers at 127.0.0.1:1", "produce", "--namesrv", "127.0.0.1:1")
	f("topic nope is unknown to the broker", "consume", "--broker", broker, "--topics", "nope")
	f("want either a broker or a name server", "produce")
	f("drain needs a count", "drain", "--broker", broker)
	f("no admin port", "produce", "--broker", broker, "--count", "1", "--profile", t.TempDir(), "--admin", "127.0.0.1:1")
	f("no such file", "produce", "-c", "/nonexistent")
	f("settings in", "drain", "-c", writeFile(t, `{"workload":"produce"}`))
}

// Each verb has a help with examples.
func TestBenchHelp(t *testing.T) {
	for _, verb := range newBenchCommand().Commands() {
		if verb.Long == "" || !strings.Contains(verb.Example, "loopmq bench "+verb.Name()) {
			t.Errorf("%s: examples are\n%s", verb.Name(), verb.Example)
		}
	}
}

func TestBenchProgressLine(t *testing.T) {
	h := result.NewHistogram()
	h.Record(250 * time.Microsecond)
	f := func(p load.Progress, want string) {
		t.Helper()
		if got := benchProgressLine(p); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
	f(load.Progress{Phase: "measure", Elapsed: 3 * time.Second, Of: 10 * time.Second, Messages: 3000, Rate: 1000.4, Errors: 2, Latency: h},
		"measure 3 s of 10 s  3000 messages  1000/s  p50 250 µs  p99 250 µs  max 250 µs  2 errors")
	f(load.Progress{Phase: "fill"}, "fill 0 s  0 messages  0/s")
	if got := shortDuration(12345 * time.Microsecond); got != "12.3 ms" {
		t.Error(got)
	}
	if got := shortDuration(12345 * time.Millisecond); got != "12.3 s" {
		t.Error(got)
	}
}

// Where nobody watches, a run is quiet at first, and the line never stays on a terminal.
func TestBenchProgress(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchProgress(w)
	b.show(load.Progress{Phase: "measure"})
	b.last = b.last.Add(-benchProgressEvery)
	b.show(load.Progress{Phase: "later"})
	b.done()
	_ = w.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "later 0 s  0 messages  0/s\n" {
		t.Errorf("%q", got)
	}
	b = &benchProgress{terminal: true}
	if b.out, err = os.CreateTemp(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
	b.show(load.Progress{Phase: "a longer phase"})
	b.show(load.Progress{Phase: "fill"})
	b.done()
	text, _ := os.ReadFile(b.out.Name())
	_ = b.out.Close()
	if got := string(text); !strings.HasPrefix(got, "\ra longer phase 0 s") || !strings.HasSuffix(got, "\r") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

// A failed profile is an error of the run, with the file's name.
func TestBenchProfileFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/cmdline") {
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	defer server.Close()
	p := newBenchProfiles(&benchOutput{profile: t.TempDir(), admin: strings.TrimPrefix(server.URL, "http://")})
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	p.begin(time.Second)
	p.end()
	err := p.finish(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cpu.pprof") || !strings.Contains(err.Error(), "418") {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Who interrupts a run does not wait for its profiles, which may have minutes to go.
func TestBenchProfileInterrupted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("seconds") {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	p := newBenchProfiles(&benchOutput{profile: t.TempDir(), admin: strings.TrimPrefix(server.URL, "http://")})
	p.begin(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.finish(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cpu.pprof") {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
