// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const suiteLimit = 6 * time.Minute

// What users do with the stock Java client, through our broker and our name server.
func TestJavaClients(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			b := startOurBroker(t, clientConf(t, ns.addr))
			runSuite(t, p, ns.addr, b.addr, "peer=loopmq")
			b.stop(t)
		})
	}
}

// The same through Java's name servers, so that what they keep of our registrations is what clients need.
func TestOurBrokerAtJavaNames(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := p.startNames(t)
			b := startOurBroker(t, clientConf(t, ns.addr))
			runSuite(t, p, ns.addr, b.addr, "peer=loopmq", "only=sync,tags,retry,delay,autocreate,orderly")
			b.stop(t)
			out := p.admin(t, []string{"clusterList", "-n", ns.addr})[0]
			if strings.Contains(out, "broker-a") {
				t.Errorf("still registered after an ordered stop:\n%s", out)
			}
		})
	}
}

// Java's brokers at our name server.
func TestJavaBrokersAtOurNames(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			b := p.startBroker(t, clientConf(t, ns.addr))
			runSuite(t, p, ns.addr, b.addr, "peer=java", "only=sync,tags,retry,autocreate,orderly")
			out := p.admin(t, []string{"clusterList", "-n", ns.addr})[0]
			if !strings.Contains(out, "broker-a") || !strings.Contains(out, b.addr) {
				t.Errorf("clusterList does not show the broker:\n%s", out)
			}
			b.stop(t)
		})
	}
}

// What users do with the stock Go client, which has a module of its own.
func TestGoClient(t *testing.T) {
	t.Parallel()
	ns := startOurNames(t)
	b := startOurBroker(t, clientConf(t, ns.addr))
	cmd := exec.Command("go", "test", "-count=1", "-v", "./...")
	cmd.Dir = "goclient"
	cmd.Env = append(os.Environ(), "LOOPMQ_NAMESRV="+ns.addr, "LOOPMQ_BROKER="+b.addr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("goclient: %v\n%s", err, tail(out))
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "ok ") {
			t.Log(strings.TrimSpace(line))
		}
	}
	b.stop(t)
}

// clientConf has files large enough for the largest message.
func clientConf(t *testing.T, namesrv string) map[string]string {
	t.Helper()
	return brokerConf(t.TempDir(), freePort(t), namesrv, "mappedFileSizeCommitLog=33554432")
}

// runSuite makes a subtest of each scenario that Suite reports.
func runSuite(t *testing.T, p *peer, ns, broker string, more ...string) {
	t.Helper()
	out, err := p.run(t, suiteLimit, nil, "Suite", append([]string{"ns=" + ns, "broker=" + broker}, more...)...)
	scenarios := 0
	for line := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, detail, _ := strings.Cut(rest, " ")
		switch word {
		case "PASS":
			scenarios++
			t.Run(name, func(t *testing.T) { t.Log(detail) })
		case "FAIL":
			scenarios++
			t.Run(strings.TrimSuffix(name, ":"), func(t *testing.T) { t.Error(strings.ReplaceAll(detail, " | ", "\n")) })
		}
	}
	if !strings.Contains(out, "DONE ") || scenarios == 0 || err != nil && !strings.Contains(out, "FAIL ") {
		t.Fatalf("the suite did not end: %v\n%s", err, tail([]byte(out)))
	}
}
