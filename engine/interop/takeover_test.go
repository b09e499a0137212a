// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	ledgerLimit = 4 * time.Minute
	// ledgerLate is how many delayed messages each fill leaves pending.
	ledgerLate = 20
)

// A store changes hands in place: Java writes, loopmq serves it and writes on, Java serves it again. Every message keeps
// its offset, its place in the log and its content; committed offsets stay; delayed messages that were pending come
// under whoever holds the store by then, once if the broker before stopped in order. Between hands it stops so, or is
// killed.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		for _, end := range []string{"stopped", "killed"} {
			t.Run(version+"_"+end, func(t *testing.T) {
				t.Parallel()
				takeover(t, fetchPeer(t, version), end == "killed")
			})
		}
	}
}

func takeover(t *testing.T, p *peer, killed bool) {
	ns := startOurNames(t)
	store := t.TempDir()
	conf := brokerConf(store, freePort(t), ns.addr)
	handOver := func(b broker) {
		t.Helper()
		if killed {
			// Consumer offsets are written every 5 s, in Java and here: a kill may lose what is newer.
			time.Sleep(16 * time.Second)
			b.kill()
		} else {
			b.stop(t)
		}
	}
	fill := func(b broker, round, level int) {
		t.Helper()
		out := p.mustRun(t, ledgerLimit, "Ledger", "fill", "ns="+ns.addr, "broker="+b.addr, fmt.Sprint("round=", round), "count=1500", fmt.Sprint("level=", level))
		var n, distinct int
		if _, err := fmt.Sscanf(out[strings.Index(out, "CONSUMED"):], "CONSUMED %d %d", &n, &distinct); err != nil {
			t.Fatalf("fill printed %q", out)
		}
		// The group goes on where it was: the messages of the round before, and its own last ones.
		if want := map[bool]int{true: 4, false: 1500 + 4}[round == 1]; distinct != want {
			t.Errorf("round %d: the group consumed %d different messages; want %d", round, distinct, want)
		}
	}
	// A kill forgets the delay offsets of its last seconds: what was delivered then is delivered again.
	copies := 1
	if killed {
		copies = 3
	}
	dump := func(late int) ledger {
		t.Helper()
		return parseLedger(t, p.mustRun(t, ledgerLimit, "Ledger", "dump", "ns="+ns.addr, fmt.Sprint("late=", late)))
	}

	java := p.startBroker(t, conf)
	fill(java, 1, 5) // a minute: still pending when the store changes hands
	written := dump(0)
	handOver(java)
	logFiles(t, store, 2)

	ours := startOurBroker(t, conf)
	served := dump(ledgerLate)
	served.mustHold(t, "loopmq serves Java's store", written)
	served.mustHaveOffsets(t, "loopmq serves Java's store", written)
	served.mustHaveLate(t, copies, 1)
	fill(ours, 2, 5)
	written = dump(ledgerLate)
	written.mustHold(t, "loopmq wrote on", served)
	handOver(ours)
	logFiles(t, store, 4)

	java = p.startBroker(t, conf)
	served = dump(2 * ledgerLate)
	served.mustHold(t, "Java serves it again", written)
	served.mustHaveOffsets(t, "Java serves it again", written)
	served.mustHaveLate(t, copies, 1, 2)
	fill(java, 3, 1)
	last := dump(3 * ledgerLate)
	last.mustHold(t, "Java wrote on", served)
	last.mustHaveLate(t, copies, 1, 2, 3)
	java.stop(t)
}

// A store that a Java broker left with open half messages says so when we start on it: nothing here would ever end them.
func TestOpenHalfMessagesAreNamed(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			conf := brokerConf(t.TempDir(), freePort(t), ns.addr)
			java := p.startBroker(t, conf)
			p.mustRun(t, ledgerLimit, "Ledger", "half", "ns="+ns.addr, "broker="+java.addr)
			java.stop(t)
			ours := startOurBroker(t, conf)
			if !strings.Contains(strings.ToLower(string(ours.output())), "half message") {
				t.Errorf("nothing about half messages in:\n%s", ours.output())
			}
			ours.stop(t)
		})
	}
}

// ledger is what a broker holds: a line for each message and for each committed offset, by place.
type ledger struct {
	messages map[string]string // "topic queue offset" → the rest
	offsets  map[string]string
}

func parseLedger(t *testing.T, text string) ledger {
	t.Helper()
	l := ledger{messages: make(map[string]string), offsets: make(map[string]string)}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 5)
		switch fields[0] {
		case "M":
			l.messages[strings.Join(fields[1:4], " ")] = fields[4]
		case "O":
			l.offsets[strings.Join(fields[1:3], " ")] = fields[3]
		case "Q":
			if fields[4] != "0" {
				t.Errorf("a queue does not begin at 0: %s", line)
			}
		}
	}
	if len(l.messages) == 0 || len(l.offsets) == 0 {
		t.Fatalf("an empty ledger:\n%s", tail([]byte(text)))
	}
	return l
}

// mustHold checks that everything of before is there, unchanged.
func (l ledger) mustHold(t *testing.T, what string, before ledger) {
	t.Helper()
	wrong := 0
	for place, message := range before.messages {
		if l.messages[place] != message {
			if wrong++; wrong <= 5 {
				t.Errorf("%s: the message at %s was\n  %s\nnow\n  %s", what, place, message, l.messages[place])
			}
		}
	}
	if wrong > 0 {
		t.Fatalf("%s: %d of %d messages differ", what, wrong, len(before.messages))
	}
	t.Logf("%s: %d messages, %d committed offsets", what, len(l.messages), len(l.offsets))
}

// mustHaveOffsets checks that the offsets are those of before: nobody has consumed since.
func (l ledger) mustHaveOffsets(t *testing.T, what string, before ledger) {
	t.Helper()
	if !maps.Equal(l.offsets, before.offsets) {
		t.Errorf("%s: the committed offsets were %v, are %v", what, before.offsets, l.offsets)
	}
}

// mustHaveLate checks that the delayed messages of the rounds came, none more often than copies, and no others.
func (l ledger) mustHaveLate(t *testing.T, copies int, rounds ...int) {
	t.Helper()
	came := make(map[string]int)
	for place, message := range l.messages {
		if strings.HasPrefix(place, "ledger_late ") {
			key, _, _ := strings.Cut(message, " ")
			came[key]++
		}
	}
	for _, round := range rounds {
		for i := range ledgerLate {
			if key := fmt.Sprintf("late-%d-%d", round, i); came[key] < 1 || came[key] > copies {
				t.Errorf("the delayed message %s came %d times; want 1 to %d", key, came[key], copies)
			}
		}
	}
	if len(came) != ledgerLate*len(rounds) {
		t.Errorf("%d delayed messages came; want %d", len(came), ledgerLate*len(rounds))
	}
}

// logFiles checks that the store has at least so many log files: a takeover of one file would prove little.
func logFiles(t *testing.T, store string, atLeast int) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(store, "commitlog"))
	must(t, err)
	if len(files) < atLeast {
		t.Fatalf("%d log files; want at least %d", len(files), atLeast)
	}
}
