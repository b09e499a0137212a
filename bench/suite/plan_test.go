// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/bench/load"
	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/bench/wire"
)

// broken is a broker that ends at once.
type broken struct{}

func (broken) Build() result.Build { return result.Build{Name: "broken"} }

func (broken) Broker(string, string) (string, []string) {
	return "/bin/sh", []string{"-c", "echo it is broken; exit 1"}
}

// testLogMax is a decade and a bit.
const testLogMax = 14 << 20

// testPlan runs rows against subjects; nothing is left.
func testPlan(t *testing.T, rounds int, rows []Row, subjects ...Subject) ([]*result.Result, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "stores")
	var results []*result.Result
	p := &Plan{
		Rows: rows, Subjects: subjects, Rounds: rounds, Warmup: 10 * time.Millisecond, Duration: 400 * time.Millisecond, Dir: dir, Binary: built,
		LogMax: testLogMax, Say: func(text string) { t.Log(text) },
		Done: func(r *result.Result) error {
			results = append(results, r)
			return nil
		},
	}
	err := p.Run(t.Context())
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	return results, err
}

// Each kind of row has its figures.
func TestRows(t *testing.T) {
	rows := []Row{
		syncRow("sync", 128, 4),
		batchRow("batch of a pair", 1024, 8),
		drainRow("drain", 128, 4_000),
		serverRow("start", Start, 0),
		serverRow("idle", Idle, 0, lasting(100*time.Millisecond)),
		serverRow("catch-up", CatchUp, 3<<20),
		RecoveryRow(3<<20, true),
		ReplicationRow(Pipeline{Body: "128", Connections: 1, Window: 4, Rate: 2000}, true),
		pipelinedRow("two slaves", 128, 2, 4, withSlaves(2)),
		stalledRow(),
		openLoopRow("open loop", 0),
		openLoopRow("open loop beside a consumer", 2000),
		pipelinedRow("queues", 128, 2, 4, atRate(2000), func(s *result.Settings) { s.Queues = 50 }),
	}
	rows[1].Settings.Role = roleSync
	results, err := testPlan(t, 1, rows, Subject{Name: "a", Flavour: proc.Loopmq{Binary: built}})
	if err != nil {
		t.Error(err)
	}
	if len(results) != len(rows) {
		t.Fatalf("%d results of %d rows", len(results), len(rows))
	}
	for i, row := range rows {
		if results[i].Row != row.Name {
			t.Errorf("result %d is of %s; want %s", i, results[i].Row, row.Name)
		}
		checkResult(t, row, results[i])
	}
}

// The consumer beside an open loop reads its backlog again when it is through.
func TestBacklogIsReadOverAndOver(t *testing.T) {
	const backlog = 10 * fillBatch
	p := &Plan{Dir: t.TempDir(), Binary: built, Say: func(text string) { t.Log(text) }}
	h := &host{plan: p, row: openLoopRow("open loop", backlog), subject: Subject{Name: "a", Flavour: proc.Loopmq{Binary: built}}}
	defer func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(h.prepare(t.Context()), h.wake(t.Context()), h.coldBacklog(t.Context(), backlog)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var read atomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- h.readOverAndOver(ctx, backlog, &read) }()
	for deadline := time.Now().Add(time.Minute); read.Load() < 2*backlog; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d messages read; want two times %d", read.Load(), backlog)
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A growing log has a result for each decade, told as a multiple of the first.
func TestLogSize(t *testing.T) {
	row := Scaling()[len(Scaling())-1]
	if row.Settings.Workload != LogSize {
		t.Fatalf("the last row is %s", row.Name)
	}
	results, err := testPlan(t, 1, []Row{row}, Subject{Name: "a", Flavour: proc.Loopmq{Binary: built}})
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v; want 2", len(results), err)
	}
	for i, want := range []int64{10 << 20, testLogMax} {
		r := results[i]
		if r.Messages == 0 || r.LogBytes < want*2/3 || r.LogBytes > want*4/3 || len(r.Servers) != 1 {
			t.Errorf("%s: %d messages, a log of %d bytes, servers %+v; want about %d bytes", r.Row, r.Messages, r.LogBytes, r.Servers, want)
		}
	}
	if results[0].Base != "" || results[1].Base != results[0].Row || results[0].Row == results[1].Row {
		t.Errorf("rows %q of %q, %q of %q", results[0].Row, results[0].Base, results[1].Row, results[1].Base)
	}
}

// Subjects take turns, each round beginning with the next one; one that fails is named with what it said, and does not
// stop the others.
func TestTurns(t *testing.T) {
	ours := proc.Loopmq{Binary: built}
	rows := []Row{serverRow("start", Start, 0), syncRow("sync", 128, 4)}
	results, err := testPlan(t, 2, rows, Subject{Name: "a", Flavour: ours}, Subject{Name: "broken", Flavour: broken{}}, Subject{Name: "b", Flavour: ours})
	for _, row := range rows {
		if err == nil || !strings.Contains(err.Error(), row.Name+": broken: ") || !strings.Contains(err.Error(), "it is broken") {
			t.Errorf("%s: the broken one is not named in %v", row.Name, err)
		}
		var turns []string
		for _, r := range results {
			if r.Row == row.Name {
				turns = append(turns, fmt.Sprint(r.Subject, r.Round))
			}
		}
		if want := []string{"a1", "b1", "b2", "a2"}; !slices.Equal(turns, want) {
			t.Errorf("%s: turns %v; want %v", row.Name, turns, want)
		}
	}
}

// Slaves that nobody waits for when a message is sent have all of the log when a turn begins.
func TestSlavesFollowWhenATurnBegins(t *testing.T) {
	p := &Plan{Dir: t.TempDir(), Binary: built, Say: func(text string) { t.Log(text) }}
	h := &host{plan: p, row: pipelinedRow("two slaves", 128, 2, 4, withSlaves(2)), subject: Subject{Name: "a", Flavour: proc.Loopmq{Binary: built}}}
	defer func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(h.prepare(t.Context()), h.wake(t.Context())); err != nil {
		t.Fatal(err)
	}
	want, err := h.master.LogEnd(t.Context())
	if err != nil || want == 0 {
		t.Fatalf("the master's log ends at %d: %v", want, err)
	}
	for _, slave := range h.slaves {
		if end, err := slave.LogEnd(t.Context()); err != nil || end != want {
			t.Errorf("%s has %d of %d bytes: %v", slave.Name, end, want, err)
		}
	}
}

// A broker that has ended is told of with what it said; one that was never started is not.
func TestWhoEnded(t *testing.T) {
	ended := &proc.Broker{Process: proc.NewProcess("slave", t.TempDir(), "/bin/sh", "-c", "echo the disk is on fire; exit 7")}
	h := &host{master: &proc.Broker{Process: proc.NewProcess("master", t.TempDir(), "/bin/false")}, slaves: []*proc.Broker{ended}}
	if err := h.whoEnded(); err != nil {
		t.Errorf("nobody was started: %v", err)
	}
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	<-ended.Ended()
	if err := h.whoEnded(); err == nil || !strings.Contains(err.Error(), "slave ended: exit status 7") || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("the slave ended: %v", err)
	}
	if err := new(host).whoEnded(); err != nil {
		t.Errorf("no brokers: %v", err)
	}
}

// A client of one subject finds the topic at that one only: the others are paused or gone, and would hold it up.
func TestSubjectsDoNotSeeEachOther(t *testing.T) {
	p := &Plan{Dir: t.TempDir(), Binary: built, Say: func(text string) { t.Log(text) }}
	var hosts []*host
	for _, name := range []string{"a", "b"} {
		h := &host{plan: p, row: syncRow("sync", 128, 4), subject: Subject{Name: name, Flavour: proc.Loopmq{Binary: built}}}
		hosts = append(hosts, h)
		defer func() {
			if err := h.close(); err != nil {
				t.Error(err)
			}
		}()
		if err := errors.Join(h.prepare(t.Context()), h.wake(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range hosts {
		names, err := wire.Dial(t.Context(), h.site.NameServer, wire.Options{})
		if err != nil {
			t.Fatal(err)
		}
		route, err := wire.Route(t.Context(), names, topic)
		names.Close()
		<-names.Done()
		if err != nil || len(route) != 1 || route[0].Addr != h.addr() {
			t.Errorf("%s is at %s; its clients see %+v, %v", h.subject.Name, h.addr(), route, err)
		}
	}
}

func checkResult(t *testing.T, row Row, r *result.Result) {
	t.Helper()
	if r.ErrorCount() != r.Errors["UNSENT"] { // at a rate, a busy machine may not keep it
		t.Errorf("%s: errors %v", row.Name, r.Errors)
	}
	if r.Settings.Flush == "" || r.Settings.Role == "" || r.Host.CPUs == 0 || r.Server.Name != "loopmq" || r.Started.IsZero() {
		t.Errorf("%s: a result that does not say what it is of: %+v", row.Name, r)
	}
	switch row.Settings.Workload {
	case Start, Recovery:
		if r.TookSeconds <= 0 {
			t.Errorf("%s took %v s", row.Name, r.TookSeconds)
		}
	case Idle:
		if len(r.Servers) != 1 || r.Servers[0].Threads == 0 || r.Servers[0].RSSAnon == 0 {
			t.Errorf("%s: figures %+v", row.Name, r.Servers)
		}
	default:
		copied := row.Settings.Workload == CatchUp // so short here that the master may have done its part before it is looked at
		if r.Messages == 0 || r.Seconds <= 0 || len(r.Servers) != 1+row.slaves() || r.Servers[0].CPUSeconds <= 0 && !copied {
			t.Errorf("%s: %d messages in %v s; servers %+v", row.Name, r.Messages, r.Seconds, r.Servers)
		}
	}
	switch row.Settings.Workload {
	case CatchUp:
		if r.PumpSeconds <= 0 || r.PumpSynced < r.PumpSeconds || r.SyncedSeconds < r.TookSeconds {
			t.Errorf("%s: the pump took %v s, %v s to the disk; the slave %v s and %v s", row.Name,
				r.PumpSeconds, r.PumpSynced, r.TookSeconds, r.SyncedSeconds)
		}
	case OpenLoop:
		if r.Null == nil || r.Null.Count() == 0 {
			t.Errorf("%s: no latency of the null server", row.Name)
		}
		if r.Beside > 0 && row.Settings.Backlog == 0 {
			t.Errorf("%s: somebody read %d messages of no backlog", row.Name, r.Beside)
		}
	case Stalled:
		if r.Servers[0].RSSAnonStart == 0 || r.Servers[0].RSSAnonMax == 0 {
			t.Errorf("%s: memory %+v", row.Name, r.Servers[0])
		}
	}
	if row.Settings.Workload == load.Drain && r.Messages != row.Settings.Count {
		t.Errorf("%s: %d messages; want %d", row.Name, r.Messages, row.Settings.Count)
	}
	if row.LogBytes > 0 && r.LogBytes < row.LogBytes*2/3 {
		t.Errorf("%s: a log of %d bytes; want about %d", row.Name, r.LogBytes, row.LogBytes)
	}
}

// An interrupt ends a plan and leaves nothing.
func TestPlanInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stores")
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plan{
		Rows: []Row{syncRow("sync", 128, 4), syncRow("never", 128, 4)}, Rounds: 3, Duration: time.Hour, Dir: dir, Binary: built,
		Subjects: []Subject{{Name: "a", Flavour: proc.Loopmq{Binary: built}}},
		Say:      func(text string) { t.Log(text) },
		Done:     func(*result.Result) error { return errors.New("a result of a run that did not end") },
		Progress: func(p load.Progress) {
			if p.Phase == "measure" && p.Messages > 0 {
				cancel()
			}
		},
	}
	if err := p.Run(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "never") {
		t.Errorf("interrupted: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
