// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loopmq/bench/result"
	"loopmq/engine"
	"loopmq/engine/namesrv"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// TestMain fails when a test leaves a goroutine behind; gnet's own worker pool keeps two for good.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// testWait bounds every wait of a test.
const testWait = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	return ctx
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// nodeConfig is a broker with small files on loopback.
func nodeConfig(root string) engine.Config {
	cfg := engine.DefaultConfig()
	cfg.BrokerName, cfg.BrokerIP1, cfg.BrokerIP2, cfg.BindAddress = "broker-a", "127.0.0.1", "127.0.0.1", "127.0.0.1"
	cfg.ListenPort, cfg.HAListenPort, cfg.AdminAddr = 0, 0, ""
	cfg.Store.StorePathRootDir = root
	cfg.Store.MappedFileSizeCommitLog = 4 << 20
	cfg.Store.MappedFileSizeConsumeQueue = 20 * 20_000
	cfg.Store.MaxHashSlotNum, cfg.Store.MaxIndexNum = 1000, 40_000
	return cfg
}

// startBroker starts a broker, registered at names if there are some.
func startBroker(t testing.TB, names *namesrv.Server) *engine.BrokerController {
	t.Helper()
	cfg := nodeConfig(t.TempDir())
	if names != nil {
		cfg.NamesrvAddr = names.Addr().String()
	}
	return startBrokerOf(t, cfg, nil)
}

func startBrokerOf(t testing.TB, cfg engine.Config, fs vfs.FS) *engine.BrokerController {
	t.Helper()
	if fs == nil && raceDetector {
		fs = faultfs.New()
	}
	b, err := engine.New(cfg, engine.Options{FS: fs, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopBroker(t, b) })
	return b
}

func stopBroker(t testing.TB, b *engine.BrokerController) {
	t.Helper()
	if err := b.Shutdown(testWait); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func startNamesrv(t testing.TB) *namesrv.Server {
	t.Helper()
	cfg := namesrv.DefaultConfig()
	cfg.BindAddress, cfg.ListenPort, cfg.KVConfigPath, cfg.ConfigStorePath = "127.0.0.1", 0, "", ""
	s := namesrv.New(cfg, testLogger(t))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// testConfig is a short run against a broker.
func testConfig(workload, broker string) Config {
	cfg := DefaultConfig()
	cfg.Workload, cfg.Broker, cfg.Queues, cfg.Body = workload, broker, 4, "200"
	cfg.Warmup, cfg.Duration = 0, 0
	cfg.Hold = result.Duration(2 * time.Second)
	return cfg
}
