// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// javaVersions are the releases of RocketMQ that the tests run: the last of 4.9 that Maven Central has whole, and a 5.x.
var javaVersions = []string{"4.9.7", "5.3.3"}

// javaOpens are what RocketMQ reaches into on a current JDK.
var javaOpens = []string{
	"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
	"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
	"--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
}

// peer is one version of the real RocketMQ, ready to run.
type peer struct {
	version   string
	classpath string // jars, and our programs
	home      string // rocketmq.home.dir: log settings for 4.x
}

var (
	peersMu sync.Mutex
	peers   = make(map[string]*peer)
)

// fetchPeer resolves a version through Maven and compiles our programs against it: once a machine, under the user's
// cache, and again when pom or programs change.
func fetchPeer(t *testing.T, version string) *peer {
	t.Helper()
	peersMu.Lock()
	defer peersMu.Unlock()
	if p := peers[version]; p != nil {
		return p
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	pom, err := filepath.Abs("testdata/pom.xml")
	must(t, err)
	sources, err := filepath.Glob("testdata/java/*.java")
	must(t, err)
	dir := filepath.Join(cache, "loopmq-interop", version+"-"+digest(t, append(sources, pom, "testdata/logback.xml")...))
	p := &peer{version: version, home: filepath.Join(dir, "home")}
	jars := filepath.Join(dir, "jars")
	classes := filepath.Join(dir, "classes")
	if _, err := os.Stat(filepath.Join(dir, "done")); err != nil || !jarsPresent(jars) {
		must(t, os.MkdirAll(filepath.Join(p.home, "conf"), 0o755))
		settings, err := os.ReadFile("testdata/logback.xml")
		must(t, err)
		for _, name := range []string{"broker", "namesrv", "tools"} {
			must(t, os.WriteFile(filepath.Join(p.home, "conf", "logback_"+name+".xml"), settings, 0o644))
		}
		fetchJars(t, pom, version, jars)
		compile(t, jars, classes, sources)
		must(t, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644))
	}
	list, err := os.ReadFile(jars)
	must(t, err)
	p.classpath = classes + ":" + string(bytes.TrimSpace(list))
	peers[version] = p
	return p
}

// fetchJars asks Maven for the class path; a download that fails is tried again.
func fetchJars(t *testing.T, pom, version, jars string) {
	t.Helper()
	const tries = 3
	for i := 1; ; i++ {
		out, err := exec.Command("mvn", "-q", "-B", "-f", pom, "-Drocketmq.version="+version, "dependency:build-classpath",
			"-Dmdep.outputFile="+jars, "-Dmdep.includeScope=runtime").CombinedOutput()
		if err == nil {
			return
		}
		if i == tries {
			t.Fatalf("mvn for RocketMQ %s: %v\n%s", version, err, out)
		}
		time.Sleep(time.Duration(i) * 5 * time.Second)
	}
}

func compile(t *testing.T, jars, classes string, sources []string) {
	t.Helper()
	list, err := os.ReadFile(jars)
	must(t, err)
	must(t, os.MkdirAll(classes, 0o755))
	args := append([]string{"-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-d", classes, "-cp", string(bytes.TrimSpace(list))}, sources...)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
}

func jarsPresent(list string) bool {
	text, err := os.ReadFile(list)
	if err != nil {
		return false
	}
	for jar := range bytes.SplitSeq(bytes.TrimSpace(text), []byte(":")) {
		if _, err := os.Stat(string(jar)); err != nil {
			return false
		}
	}
	return true
}

func digest(t *testing.T, paths ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(t, err)
		fmt.Fprintf(sum, "%s %d\n", filepath.Base(path), len(text))
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// java is the command of a Java main class; its user.home is a directory of the test.
func (p *peer) java(t *testing.T, heap, class string, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	settings, err := filepath.Abs("testdata/logback.xml")
	must(t, err)
	flags := append([]string{
		"-Xms64m", "-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + home,
		"-Drocketmq.home.dir=" + p.home, "-Dlogback.configurationFile=" + settings, "-Drmq.logback.configurationFile=" + settings,
		"-Drocketmq.client.logLevel=WARN",
	}, javaOpens...)
	flags = append(flags, "-cp", p.classpath, class)
	cmd := exec.Command("java", append(flags, args...)...)
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
		return out.String(), fmt.Errorf("%s of %s: %w", class, p.version, err)
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
