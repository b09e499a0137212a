// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	benchpeer "loopmq/bench/peer"
)

// javaVersions are the releases of RocketMQ that the tests run.
var javaVersions = benchpeer.Versions

// peer is one version of the real RocketMQ with the programs of testdata/java, ready to run.
type peer struct{ benchpeer.Peer }

var (
	peersMu sync.Mutex
	peers   = make(map[string]*peer)
)

// fetchPeer fetches a version and compiles our programs against it: once a machine, and again when they change.
func fetchPeer(t *testing.T, version string) *peer {
	t.Helper()
	peersMu.Lock()
	defer peersMu.Unlock()
	if p := peers[version]; p != nil {
		return p
	}
	fetched, err := benchpeer.Fetch(t.Context(), version, os.DirFS("testdata/java"))
	must(t, err)
	p := &peer{*fetched}
	peers[version] = p
	return p
}

// java is the command of a Java main class; its user.home is a directory of the test.
func (p *peer) java(t *testing.T, heap, class string, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	flags := []string{"-Xms64m", "-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	cmd := exec.Command("java", p.Command(home, flags, class, args...)...)
	cmd.Dir = home
	return cmd
}

// run runs a program of testdata/java to its end and returns what it printed. It fails the test when the program does,
// or takes too long.
func (p *peer) run(t *testing.T, limit time.Duration, stdin io.Reader, class string, args ...string) (string, error) {
	t.Helper()
	cmd := p.java(t, "512m", class, args...)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	limited := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	limited.Dir, limited.Stdin = cmd.Dir, stdin
	limited.WaitDelay = time.Second
	var out bytes.Buffer
	limited.Stdout, limited.Stderr = &out, &out
	err := limited.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v", limit)
	}
	if err != nil {
		if log, logErr := os.ReadFile(filepath.Join(cmd.Dir, "java.log")); logErr == nil {
			t.Logf("java.log of %s:\n%s", class, tail(log))
		}
		return out.String(), fmt.Errorf("%s of %s: %w", class, p.Version, err)
	}
	return out.String(), nil
}

// mustRun is run for programs that must succeed.
func (p *peer) mustRun(t *testing.T, limit time.Duration, class string, args ...string) string {
	t.Helper()
	out, err := p.run(t, limit, nil, class, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail([]byte(out)))
	}
	return out
}

// process is a server under test, ours or Java's, in a process of its own.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string // file of what it printed
	done chan struct{}
	err  error // valid once done is closed
}

const (
	// bootLimit is generous: other tests may keep the machine busy.
	bootLimit = 120 * time.Second
	stopLimit = 90 * time.Second
)

// startProcess starts cmd and waits for the line that says it serves. The test ends it if it has not ended itself.
func startProcess(t *testing.T, name string, cmd *exec.Cmd, ready string) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, log: filepath.Join(t.TempDir(), "output"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, tail(p.output()))
			if log, err := os.ReadFile(filepath.Join(cmd.Dir, "java.log")); err == nil {
				t.Logf("java.log of %s:\n%s", name, tail(log))
			}
		}
	})
	for end := time.Now().Add(bootLimit); !bytes.Contains(p.output(), []byte(ready)); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", name, p.err, tail(p.output()))
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve after %v", name, bootLimit)
		}
	}
	return p
}

func (p *process) output() []byte {
	text, _ := os.ReadFile(p.log)
	return text
}

// says waits until it has printed the words.
func (p *process) says(t *testing.T, words string) {
	t.Helper()
	for end := time.Now().Add(haWait); !bytes.Contains(p.output(), []byte(words)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not say %q in %v", p.name, words, haWait)
		}
	}
}

// stop asks for an ordered stop and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		t.Fatalf("%s does not stop in %v", p.name, stopLimit)
	}
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func tail(text []byte) []byte {
	const most = 12 << 10
	if len(text) > most {
		return append([]byte("…"), text[len(text)-most:]...)
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
