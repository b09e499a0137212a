// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	haTopic     = "replica"
	haReadLimit = 3 * time.Minute
	// haWait bounds how long a slave may take to be at the master's end; 4.x looks for its master every 10 s at first.
	haWait = 90 * time.Second
)

// Java's slaves behind our master: under load one is killed and comes back, the master is killed and comes back, and
// another slave joins late, which gets the last file, as at Java's masters. The logs are the same bytes. When the master
// dies, consumers read all that was answered from the slave.
func TestJavaSlaves(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		for _, role := range []string{"ASYNC_MASTER", "SYNC_MASTER"} {
			t.Run(version+"_"+role, func(t *testing.T) {
				t.Parallel()
				p := fetchPeer(t, version)
				ns := startOurNames(t)
				master := brokerConf(t.TempDir(), freePort(t), ns.addr, "brokerRole="+role)
				slave := slaveConf(t, master, "")
				ours := startOurBroker(t, master)
				java := p.startBroker(t, slave)
				ours.says(t, "transfer begins") // before a file is full: an empty Java slave gets the last one
				l := startLoad(t, p, ns.addr, ours.addr)
				awaitSameLog(t, master, slave)
				time.Sleep(2 * time.Second)
				java.kill()
				time.Sleep(2 * time.Second)
				java = p.startBroker(t, slave)
				time.Sleep(2 * time.Second)
				ours.kill()
				ours = startOurBroker(t, master)
				l.goesOn(t, 500)
				awaitSameLog(t, master, slave)
				if role == "ASYNC_MASTER" {
					late := slaveConf(t, master, "")
					late["brokerId"] = "2"
					second := p.startBroker(t, late)
					awaitSameLog(t, master, late)
					second.stop(t)
					sameLogSoFar(t, master, late)
				}
				l.stop(t)
				awaitSameLog(t, master, slave)
				awaitMetadata(t, slave)
				ours.kill()
				l.mustRead(t, "from_the_slave")
				java.stop(t)
				sameLog(t, master, slave)
			})
		}
	}
}

// Our slave behind Java's masters: it joins late and copies the whole log; either side is killed and comes back; the
// logs are the same bytes; and when the master dies, consumers read all that was answered from our slave.
func TestJavaMasters(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		for _, role := range []string{"ASYNC_MASTER", "SYNC_MASTER"} {
			t.Run(version+"_"+role, func(t *testing.T) {
				t.Parallel()
				p := fetchPeer(t, version)
				ns := startOurNames(t)
				// 5.x waits for a slave from inSyncReplicas 2 on. Until there is one nothing is answered SEND_OK, so it begins alone.
				master := brokerConf(t.TempDir(), freePort(t), ns.addr, "brokerRole=ASYNC_MASTER")
				slave := slaveConf(t, master, "")
				java := p.startBroker(t, master)
				l := startLoad(t, p, ns.addr, java.addr)
				l.goesOn(t, 2500)
				logFiles(t, master["storePathRootDir"], 2)
				if role == "SYNC_MASTER" {
					java.stop(t)
					master["brokerRole"], master["inSyncReplicas"] = role, "2"
					java = p.startBroker(t, master)
				}
				ours := startOurBroker(t, slave)
				awaitSameLog(t, master, slave)
				l.goesOn(t, 300)
				ours.kill()
				time.Sleep(2 * time.Second)
				ours = startOurBroker(t, slave)
				l.goesOn(t, 300)
				awaitSameLog(t, master, slave)
				java.kill()
				java = p.startBroker(t, master)
				l.goesOn(t, 300)
				l.stop(t)
				awaitSameLog(t, master, slave)
				awaitMetadata(t, slave)
				java.kill()
				l.mustRead(t, "from_the_slave")
				ours.stop(t)
				sameLog(t, master, slave)
			})
		}
	}
}

// A cluster moves from Java to loopmq and back while its clients go on: the new broker joins the old one as a slave,
// copies all it has, and takes its place and address when the old one has stopped.
func TestMovingOver(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			javaMaster := brokerConf(t.TempDir(), freePort(t), ns.addr)
			ourSlave := slaveConf(t, javaMaster, "")
			java := p.startBroker(t, javaMaster)
			l := startLoad(t, p, ns.addr, java.addr)
			l.goesOn(t, 1500)
			ours := startOurBroker(t, ourSlave)
			awaitSameLog(t, javaMaster, ourSlave)
			l.goesOn(t, 300)
			awaitMetadata(t, ourSlave)

			// A RocketMQ master that stops sends its slaves nothing more, and what it answered in its last 100 ms may not be on its
			// way yet (DefaultMessageStore#shutdown, HAConnection.WriteSocketService): so sends end first. The permission goes into
			// routes; the broker itself refuses only topics with an order (AbstractSendMessageProcessor#msgCheck).
			p.admin(t, []string{"updateBrokerConfig", "-b", java.addr, "-k", "brokerPermission", "-v", "4"})
			l.pauses(t)
			awaitSameLog(t, javaMaster, ourSlave)
			java.stop(t)
			ours.stop(t)
			sameLog(t, javaMaster, ourSlave)
			ourMaster := asMaster(ourSlave, javaMaster)
			ours = startOurBroker(t, ourMaster)
			l.goesOn(t, 1000)
			t.Logf("to loopmq: %s", l.stop(t))
			l.mustRead(t, "after_the_move")

			// And back: Java's old store lacks only what came since.
			l = startLoad(t, p, ns.addr, "", l)
			javaSlave := slaveConf(t, ourMaster, javaMaster["storePathRootDir"])
			java = p.startBroker(t, javaSlave)
			awaitSameLog(t, ourMaster, javaSlave)
			l.goesOn(t, 300)
			time.Sleep(15 * time.Second) // the slave asks for topics and offsets every 10 s
			ours.stop(t)
			awaitSameLog(t, ourMaster, javaSlave)
			java.stop(t)
			sameLog(t, ourMaster, javaSlave)
			java = p.startBroker(t, asMaster(javaSlave, javaMaster))
			l.goesOn(t, 500)
			t.Logf("back to Java: %s", l.stop(t))
			l.mustRead(t, "after_the_way_back")
			java.stop(t)
		})
	}
}

// slaveConf is a slave of the master, which serves pulls (Java's does so only with slaveReadEnable); store is "" for a new
// one.
func slaveConf(t *testing.T, master map[string]string, store string) map[string]string {
	t.Helper()
	if store == "" {
		store = t.TempDir()
	}
	port := freePort(t)
	conf := maps.Clone(master)
	delete(conf, "inSyncReplicas")
	for k, v := range brokerConf(store, port, master["namesrvAddr"], "brokerRole=SLAVE", "brokerId=1", "slaveReadEnable=true") {
		conf[k] = v
	}
	return conf
}

// asMaster is the broker of conf in the place of another one.
func asMaster(conf, place map[string]string) map[string]string {
	next := maps.Clone(conf)
	for _, k := range []string{"listenPort", "haListenPort"} {
		next[k] = place[k]
	}
	next["brokerRole"], next["brokerId"] = "ASYNC_MASTER", "0"
	return next
}

// load is a producer that goes on whatever happens to brokers, and knows what was answered.
type load struct {
	p     *peer
	ns    string
	acked string
	halt  string
	proc  *process
}

// startLoad begins to send, to a topic that it makes at broker; with an earlier load it goes on with its list.
func startLoad(t *testing.T, p *peer, ns, broker string, earlier ...*load) *load {
	t.Helper()
	dir := t.TempDir()
	l := &load{p: p, ns: ns, acked: filepath.Join(dir, "acked"), halt: filepath.Join(dir, "halt")}
	if len(earlier) > 0 {
		l.acked = earlier[0].acked
	}
	args := []string{"load", "ns=" + ns, "topic=" + haTopic, "acked=" + l.acked, "stop=" + l.halt}
	if broker != "" {
		args = append(args, "broker="+broker)
	}
	l.proc = startProcess(t, "load", p.java(t, "256m", "Replica", args...), "LOADING")
	return l
}

// goesOn waits until n more sends were answered.
func (l *load) goesOn(t *testing.T, n int) {
	t.Helper()
	from := l.count()
	for end := time.Now().Add(haWait); l.count() < from+n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d sends answered in %v; want %d\n%s", l.count()-from, haWait, n, tail(l.proc.output()))
		}
	}
}

// pauses waits until the load was told for the first time, on all its threads, that it cannot send.
func (l *load) pauses(t *testing.T) {
	t.Helper()
	l.proc.says(t, "PAUSED")
}

func (l *load) count() int {
	text, _ := os.ReadFile(l.acked)
	return bytes.Count(text, []byte("\n"))
}

// stop ends the load and returns what it says of itself.
func (l *load) stop(t *testing.T) string {
	t.Helper()
	must(t, os.WriteFile(l.halt, nil, 0o644))
	select {
	case <-l.proc.done:
	case <-time.After(stopLimit):
		t.Fatal("the load does not end")
	}
	out := string(l.proc.output())
	i := strings.Index(out, "ACKED")
	if i < 0 {
		t.Fatalf("the load printed:\n%s", out)
	}
	return strings.TrimSpace(out[i:])
}

// mustRead consumes, as a group that nobody has been before, until all that was answered has come.
func (l *load) mustRead(t *testing.T, group string) {
	t.Helper()
	out := l.p.mustRun(t, haReadLimit, "Replica", "read", "ns="+l.ns, "topic="+haTopic, "acked="+l.acked, "group="+group)
	t.Log(strings.TrimSpace(out[strings.Index(out, "READ"):]))
}

// awaitSameLog waits until the slave has as many bytes of log as the master had when it was asked for.
func awaitSameLog(t *testing.T, master, slave map[string]string) {
	t.Helper()
	want := logEnd(t, master)
	for end := time.Now().Add(haWait); logEnd(t, slave) < want; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the slave's log ends at %d after %v; the master's at %d", logEnd(t, slave), haWait, want)
		}
	}
}

var logFileName = regexp.MustCompile(`^\d{20}$`)

// logOf are the files of a commit log, by base offset.
func logOf(t *testing.T, conf map[string]string) map[int64][]byte {
	t.Helper()
	dir := conf["storePathCommitLog"]
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	must(t, err)
	files := make(map[int64][]byte)
	for _, e := range entries {
		if logFileName.MatchString(e.Name()) {
			base, err := strconv.ParseInt(e.Name(), 10, 64)
			must(t, err)
			if files[base], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	return files
}

// logEnd is where the bytes of a log end: the last one that is not zero ends a record, and fillers end a file.
func logEnd(t *testing.T, conf map[string]string) int64 {
	t.Helper()
	var end int64
	for base, file := range logOf(t, conf) {
		if n := len(bytes.TrimRight(file, "\x00")); n > 0 {
			end = max(end, base+int64(n))
		}
	}
	return end
}

// sameLog compares what both have.
func sameLog(t *testing.T, master, slave map[string]string) {
	t.Helper()
	a, b := logOf(t, master), logOf(t, slave)
	if m, s := logEnd(t, master), logEnd(t, slave); m != s {
		t.Errorf("the master's log ends at %d, the slave's at %d", m, s)
	}
	compareLogs(t, a, b)
}

// sameLogSoFar compares what the slave has.
func sameLogSoFar(t *testing.T, master, slave map[string]string) {
	t.Helper()
	end := logEnd(t, slave)
	a, b := logOf(t, master), logOf(t, slave)
	for base, file := range a {
		if base+int64(len(file)) > end {
			a[base] = append(file[:max(0, min(int64(len(file)), end-base))], make([]byte, len(file))...)[:len(file)]
		}
	}
	compareLogs(t, a, b)
}

// compareLogs compares the files that both have.
func compareLogs(t *testing.T, a, b map[int64][]byte) {
	t.Helper()
	compared := 0
	for base, file := range b {
		other, ok := a[base]
		if !ok {
			continue
		}
		compared++
		if !bytes.Equal(file, other) {
			at := 0
			for at < len(file) && at < len(other) && file[at] == other[at] {
				at++
			}
			t.Errorf("the logs differ at %d", base+int64(at))
		}
	}
	if compared == 0 {
		t.Errorf("nothing to compare: the master has %d log files, the slave %d", len(a), len(b))
	}
	t.Logf("%d log files are the same, to the byte", compared)
}

// awaitMetadata waits until the slave has the topic.
func awaitMetadata(t *testing.T, slave map[string]string) {
	t.Helper()
	for end := time.Now().Add(haWait); ; time.Sleep(200 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(slave["storePathRootDir"], "config", "topics.json"))
		if bytes.Contains(text, []byte(fmt.Sprintf("%q", haTopic))) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the slave does not know the topic %q after %v", haTopic, haWait)
		}
	}
}
