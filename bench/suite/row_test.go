// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"testing"

	"loopmq/bench/load"
	"loopmq/bench/peer"
	"loopmq/bench/proc"
)

// Every row is one that the generators take, under a name of its own.
func TestRowsAreValid(t *testing.T) {
	for set, rowsOf := range Sets() {
		rows := rowsOf()
		names := make(map[string]bool)
		for _, row := range rows {
			if names[row.Name] {
				t.Errorf("%s: two rows %q", set, row.Name)
			}
			if row.Base != "" && !names[row.Base] {
				t.Errorf("%s: %q is told as a multiple of %q, which does not come before", set, row.Name, row.Base)
			}
			names[row.Name] = true
			s := row.Settings
			s.Broker = "127.0.0.1:1"
			if s.Workload != load.Drain {
				s.Workload = load.Produce
			}
			cfg := load.Config{Settings: s}
			if err := cfg.Validate(); err != nil {
				t.Errorf("%s: %s: %v", set, row.Name, err)
			}
			if hasLog := row.Settings.Workload == Recovery || row.Settings.Workload == CatchUp; hasLog != (row.LogBytes > 0) {
				t.Errorf("%s: %s: a log of %d bytes", set, row.Name, row.LogBytes)
			}
			if row.Settings.Workload == CatchUp && row.LogBytes*9/8 > catchUpFile {
				t.Errorf("%s: %d bytes of log may need a second file", row.Name, row.LogBytes)
			}
		}
	}
}

// A server that runs already is neither killed nor given settings.
func TestWhatRunsAlreadyIsLeftAsItIs(t *testing.T) {
	external, own, java := Subject{Addr: "127.0.0.1:1"}, Subject{Flavour: proc.Loopmq{}}, Subject{Flavour: peer.Broker{}}
	f := func(row Row, want bool) {
		t.Helper()
		if external.can(row) != want || !own.can(row) || !java.can(row) {
			t.Errorf("%s against a running server: %v; want %v", row.Name, !want, want)
		}
	}
	f(syncRow("sync", 128, 64), true)
	f(drainRow("drain", 128, 100), true)
	f(syncRow("flush", 128, 64, syncFlush), false)
	f(syncRow("pair", 128, 64, syncMaster), false)
	f(syncRow("java", 128, 64, javaClient), false)
	f(RecoveryRow(1, false), false)
	f(serverRow("start", Start, 0), false)
	f(stalledRow(), false)
	f(openLoopRow("open loop", 0), false)
	f(pipelinedRow("a slave", 128, 1, 1, withSlaves(1)), false)
	if external.isJVM() || own.isJVM() || !java.isJVM() {
		t.Error("JVMs are the Java brokers")
	}
}
