// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binary is the loopmq under test, built with its invariant checks.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "loopmq-interop")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "loopmq")
	build := exec.Command("go", "build", "-tags", "invariants", "-o", binary, "loopmq/cmd/loopmq")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// freePort returns a port p such that p, p-2 and p+1 are free: a broker takes all three. It is below the range from
// which the kernel takes ports for outgoing connections, so nothing takes one of them before the broker does.
func freePort(t *testing.T) int {
	t.Helper()
	const lowest, highest = 12_000, 32_000
	handedOut.Lock()
	defer handedOut.Unlock()
	for range 1000 {
		port := lowest + rand.IntN((highest-lowest)/4)*4
		if !handedOut.ports[port] && canListen(port-2) && canListen(port) && canListen(port+1) {
			handedOut.ports[port] = true
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// handedOut keeps tests that run at the same time apart.
var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: make(map[int]bool)}

func canListen(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// names is a running name server.
type names struct {
	*process
	addr string
}

func startOurNames(t *testing.T) names {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	conf := writeConf(t, dir, "namesrv.conf", map[string]string{
		"listenPort": fmt.Sprint(port), "bindAddress": "127.0.0.1", "kvConfigPath": filepath.Join(dir, "kvConfig.json"),
	})
	cmd := exec.Command(binary, "namesrv", "-c", conf)
	cmd.Dir = dir
	return names{startProcess(t, "loopmq namesrv", cmd, "boot success"), local(port)}
}

func (p *peer) startNames(t *testing.T) names {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	conf := writeConf(t, dir, "namesrv.conf", map[string]string{
		"listenPort": fmt.Sprint(port), "bindAddress": "127.0.0.1", "kvConfigPath": filepath.Join(dir, "kvConfig.json"),
	})
	return names{startProcess(t, "namesrv "+p.Version, p.java(t, "256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf), "boot success"), local(port)}
}

// broker is a running broker.
type broker struct {
	*process
	addr string
}

// brokerConf are settings that brokers of all kinds understand the same way; small files make many of them.
func brokerConf(store string, port int, namesrv string, more ...string) map[string]string {
	conf := map[string]string{
		"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
		"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1", "namesrvAddr": namesrv,
		"listenPort": fmt.Sprint(port), "haListenPort": fmt.Sprint(port + 1),
		"storePathRootDir": store, "storePathCommitLog": filepath.Join(store, "commitlog"),
		"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "5000", "maxIndexNum": "20000",
		"flushDiskType": "ASYNC_FLUSH", "fileReservedTime": "72", "deleteWhen": "04", "enablePropertyFilter": "false",
		"diskMaxUsedSpaceRatio": "95", "waitTimeMillsInSendQueue": "10000",
	}
	for _, kv := range more {
		key, value, _ := strings.Cut(kv, "=")
		conf[key] = value
	}
	return conf
}

func startOurBroker(t *testing.T, conf map[string]string) broker {
	t.Helper()
	dir := t.TempDir()
	ours := map[string]string{"adminAddr": ""}
	for k, v := range conf {
		ours[k] = v
	}
	cmd := exec.Command(binary, "broker", "-c", writeConf(t, dir, "broker.conf", ours))
	cmd.Dir = dir
	return broker{startProcess(t, "loopmq broker", cmd, "boot success. serializeType="), "127.0.0.1:" + conf["listenPort"]}
}

func (p *peer) startBroker(t *testing.T, conf map[string]string) broker {
	t.Helper()
	file := writeConf(t, t.TempDir(), "broker.conf", conf)
	cmd := p.java(t, "768m", "org.apache.rocketmq.broker.BrokerStartup", "-c", file)
	return broker{startProcess(t, "broker "+p.Version, cmd, "boot success"), "127.0.0.1:" + conf["listenPort"]}
}

func writeConf(t *testing.T, dir, name string, conf map[string]string) string {
	t.Helper()
	var text strings.Builder
	for k, v := range conf {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte(text.String()), 0o644))
	return path
}
