// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// buildLoopmq is the product's binary.
func buildLoopmq(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loopmq")
	if out, err := exec.Command("go", "build", "-o", path, "loopmq/cmd/loopmq").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isAlive(pid int) bool { return unix.Kill(pid, 0) == nil }

var small = map[string]string{
	"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "500", "maxIndexNum": "2000",
}

// A site starts a name server, a broker and a pair; brokers go through kill, start, pause and wipe; Close leaves
// neither a process nor a file.
func TestSiteLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	binary := buildLoopmq(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := NewSite(ctx, parent, binary)
	must(t, err)
	flavour := Loopmq{Binary: binary}
	b, err := s.StartBroker(ctx, flavour, BrokerOptions{Name: "alone", Properties: small})
	must(t, err)
	before, err := b.LogEnd(ctx)
	must(t, err)
	if before <= 0 {
		t.Fatalf("the log of a broker that accepted a message ends at %d", before)
	}
	b.Kill()
	if b.PID() != 0 {
		t.Fatal("a process after its end")
	}
	must(t, b.Start())
	if took, err := b.AwaitServing(ctx); err != nil || took <= 0 {
		t.Fatalf("started again: %v, %v", took, err)
	}
	after, err := b.LogEnd(ctx)
	must(t, err)
	if after <= before {
		t.Fatalf("the log ends at %d after a kill and one more message; it ended at %d", after, before)
	}
	b.Pause()
	b.Resume()
	must(t, Accepts(ctx, b.Addr))
	b.Stop(time.Minute)
	if _, err := os.Stat(filepath.Join(b.Store, "abort")); b.PID() != 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("asked to end: process %d, the mark of a crash: %v", b.PID(), err)
	}
	must(t, b.Start())
	_, err = b.AwaitServing(ctx)
	must(t, err)
	b.Pause()
	must(t, b.Wipe()) // also of one that is paused
	if _, err := os.Stat(b.Store); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a store that was wiped: %v", err)
	}

	properties := map[string]string{"brokerRole": "SYNC_MASTER"}
	for key, value := range small {
		properties[key] = value
	}
	master, slave, err := s.StartPair(ctx, flavour, BrokerOptions{Name: "master", Properties: properties}, BrokerOptions{Name: "slave", Properties: small})
	must(t, err)
	m, err := master.LogEnd(ctx)
	must(t, err)
	if end, err := slave.LogEnd(ctx); err != nil || end < m {
		t.Fatalf("the slave's log ends at %d, its SYNC_MASTER's at %d: %v", end, m, err)
	}

	var pids []int
	for _, p := range s.processes {
		if pid := p.PID(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 3 {
		t.Fatalf("%d processes run; want 3", len(pids))
	}
	must(t, s.Close())
	for _, pid := range pids {
		if isAlive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

// The probe of a broker meets one that hangs up at any moment: the connection's reader ends while the probe is sent. A
// probe that did not hold the connection's lock was found by the race detector, once in many starts.
func TestProbeOfAPeerThatHangsUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	for range 300 {
		if err := Accepts(t.Context(), l.Addr().String()); err == nil {
			t.Error("nobody answered, and that was taken for an answer")
		}
	}
	must(t, l.Close())
	<-ended
}

// A broker that ends instead of serving is reported with what it said; an interrupt ends the waiting.
func TestBrokerThatDoesNotServe(t *testing.T) {
	s := &Site{dir: t.TempDir()}
	_, err := s.StartBroker(context.Background(), shell("echo no such store; exit 3"), BrokerOptions{Name: "ends"})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such store") {
		t.Errorf("a broker that ended: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := s.StartBroker(ctx, shell("exec sleep 600"), BrokerOptions{Name: "sleeps"}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt while a broker starts: %v", err)
	}
	sleeper := s.processes[1]
	pid := sleeper.PID()
	b := NewProcess("deaf", t.TempDir(), "/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	must(t, b.Start())
	if b.Stop(50 * time.Millisecond); b.PID() != 0 {
		t.Error("a process that does not want to end runs on")
	}
	if err := sleeper.Start(); err == nil {
		t.Error("a process that runs was started")
	}
	must(t, s.Close())
	if pid == 0 || isAlive(pid) {
		t.Errorf("process %d is left", pid)
	}
}
