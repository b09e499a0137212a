// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"loopmq/bench/load"
	"loopmq/bench/result"
)

// Workloads that need servers of their own, beside those of package load.
const (
	Start       = "start"       // from exec to the first accepted message, with an empty store
	Idle        = "idle"        // what a broker uses that nobody talks to
	Recovery    = "recovery"    // from exec to the first accepted message, after kill -9 under load
	CatchUp     = "catchup"     // an empty slave copies the master's log
	Replication = "replication" // a slave's lag while its master is loaded
	OpenLoop    = "openloop"    // a fixed rate, with a null server at the same rate beside it
	Stalled     = "stalled"     // a master's memory, under load with a slave that does not read
	LogSize     = "logsize"     // cost by size of the log, while it grows
)

// ClientJava, as a row's client, is the stock Java client of the plan's release.
const ClientJava = "java"

const (
	flushAsync = "ASYNC_FLUSH"
	flushSync  = "SYNC_FLUSH"
	roleAsync  = "ASYNC_MASTER"
	roleSync   = "SYNC_MASTER"
)

// Row is one piece of work.
type Row struct {
	Name     string
	Settings result.Settings
	LogBytes int64  // that recovery and catch-up begin with
	Base     string // the row whose cost of a message this one's is told as a multiple of
}

// settings are those of producers, changed by what a row is about.
func settings(change func(*result.Settings)) result.Settings {
	s := load.DefaultConfig().Settings
	s.Flush, s.Role = flushAsync, roleAsync
	change(&s)
	return s
}

func syncRow(name string, body, threads int, change ...func(*result.Settings)) Row {
	return Row{Name: name, Settings: settings(func(s *result.Settings) {
		s.Mode, s.Threads, s.Connections, s.Body = load.ModeSync, threads, threads, strconv.Itoa(body)
		for _, f := range change {
			f(s)
		}
	})}
}

func pipelinedRow(name string, body, connections, window int, change ...func(*result.Settings)) Row {
	return Row{Name: name, Settings: settings(func(s *result.Settings) {
		s.Mode, s.Connections, s.Window, s.Body = load.ModePipelined, connections, window, strconv.Itoa(body)
		for _, f := range change {
			f(s)
		}
	})}
}

func batchRow(name string, body, batch int) Row {
	return Row{Name: name, Settings: settings(func(s *result.Settings) {
		s.Mode, s.Connections, s.Window, s.Batch, s.Body = load.ModeBatch, 4, 2, batch, strconv.Itoa(body)
	})}
}

func drainRow(name string, body int, count int64, change ...func(*result.Settings)) Row {
	return Row{Name: name, Settings: settings(func(s *result.Settings) {
		s.Workload, s.Mode, s.Connections, s.Window, s.Body, s.Count = load.Drain, load.ModeBatch, 4, 2, strconv.Itoa(body), count
		for _, f := range change {
			f(s)
		}
	})}
}

func serverRow(name, workload string, logBytes int64, change ...func(*result.Settings)) Row {
	return Row{Name: name, LogBytes: logBytes, Settings: settings(func(s *result.Settings) {
		s.Workload = workload
		for _, f := range change {
			f(s)
		}
	})}
}

func javaClient(s *result.Settings) { s.Client, s.Connections = ClientJava, 1 }
func syncFlush(s *result.Settings)  { s.Flush = flushSync }
func syncMaster(s *result.Settings) { s.Role = roleSync }

func atRate(rate float64) func(*result.Settings) {
	return func(s *result.Settings) { s.Rate = rate }
}

// against tells a row's cost as a multiple of another one's.
func (r Row) against(base Row) Row {
	r.Base = base.Name
	return r
}

func openLoopRow(name string, backlog int64) Row {
	return pipelinedRow(name, 1024, 4, 64, atRate(5000), func(s *result.Settings) { s.Workload, s.Backlog = OpenLoop, backlog })
}

// coldBacklog is how many messages the consumer beside an open loop reads.
const coldBacklog = 1_000_000

func openLoopRows() []Row {
	return []Row{
		openLoopRow("1 KiB, 5,000 a second, open loop", 0),
		openLoopRow("1 KiB, 5,000 a second, open loop, beside a reader of a cold backlog", coldBacklog),
	}
}

// steadyRate is that of rows whose cost of a message is compared: at a fixed rate, what is gathered for one call of the
// kernel changes little. Java's brokers keep it with two slaves on two processors.
const steadyRate = 10_000

func withSlaves(n int) func(*result.Settings) {
	return func(s *result.Settings) { s.Slaves = n }
}

func slaveRows() []Row {
	rows := []Row{pipelinedRow("1 KiB, 10,000 a second, no slave", 1024, 4, 64, atRate(steadyRate))}
	for i, name := range []string{"1 KiB, 10,000 a second, a slave", "1 KiB, 10,000 a second, two slaves"} {
		rows = append(rows, pipelinedRow(name, 1024, 4, 64, atRate(steadyRate), withSlaves(i+1)).against(rows[0]))
	}
	return rows
}

func stalledRow() Row {
	return pipelinedRow("1 KiB, with a slave that does not read", 1024, 4, 64, func(s *result.Settings) { s.Workload = Stalled })
}

func lasting(d time.Duration) func(*result.Settings) {
	return func(s *result.Settings) { s.Duration = result.Duration(d) }
}

// Alone is what tells whether a change made the broker better or worse: five minutes, ours only.
func Alone() []Row {
	rows := []Row{
		syncRow("1 KiB, 64 connections, one in flight each", 1024, 64),
		pipelinedRow("1 KiB, 4 connections, 64 in flight each", 1024, 4, 64),
		pipelinedRow("128 B, 4 connections, 64 in flight each", 128, 4, 64),
		pipelinedRow("4 KiB, 4 connections, 64 in flight each", 4096, 4, 64),
		batchRow("1 KiB, batches of 32", 1024, 32),
		syncRow("1 KiB, SYNC_FLUSH, 64 connections", 1024, 64, syncFlush),
		syncRow("1 KiB, SYNC_MASTER and a slave, 64 connections", 1024, 64, syncMaster),
		openLoopRow("1 KiB, 5,000 a second, open loop", 0),
	}
	rows = append(rows, slaveRows()...)
	return append(rows,
		stalledRow(),
		catchUpRow(),
		drainRow("drain of a 1 KiB backlog", 1024, 1_000_000),
		serverRow("start", Start, 0),
		serverRow("idle", Idle, 0, lasting(10*time.Second)),
		RecoveryRow(1<<30, false),
	)
}

func catchUpRow() Row { return serverRow("catch-up of an empty slave, 1.8 GB", CatchUp, 1.8e9) }

// Peers are the rows that are measured with the Java brokers beside ours.
func Peers() []Row {
	rows := []Row{
		syncRow("1 KiB by Java's client, 64 threads", 1024, 64, javaClient),
		pipelinedRow("1 KiB by Java's client, 256 in flight", 1024, 1, 256, javaClient),
		pipelinedRow("128 B by Java's client, 256 in flight", 128, 1, 256, javaClient),
		syncRow("1 KiB, 64 connections, one in flight each", 1024, 64),
		pipelinedRow("1 KiB, 4 connections, 64 in flight each", 1024, 4, 64),
		pipelinedRow("128 B, 4 connections, 64 in flight each", 128, 4, 64),
		pipelinedRow("4 KiB, 4 connections, 64 in flight each", 4096, 4, 64),
		batchRow("1 KiB, batches of 32", 1024, 32),
		syncRow("SYNC_FLUSH, 1 KiB by Java's client, 64 threads", 1024, 64, javaClient, syncFlush),
		syncRow("SYNC_MASTER and a slave, 1 KiB by Java's client, 64 threads", 1024, 64, javaClient, syncMaster),
		syncRow("the same, SYNC_FLUSH on both sides", 1024, 64, javaClient, syncMaster, syncFlush),
	}
	rows = append(append(rows, openLoopRows()...), slaveRows()...)
	return append(rows,
		catchUpRow(),
		drainRow("drain of a 1 KiB backlog by Java's consumer", 1024, 500_000, javaClient),
		drainRow("drain of a 1 KiB backlog", 1024, 500_000),
		serverRow("start", Start, 0),
		serverRow("idle", Idle, 0, lasting(10*time.Second)),
		RecoveryRow(1<<30, false),
	)
}

// Scaling are rows that tell whether a message costs more where there is more of something.
func Scaling() []Row {
	rows := scaled([]int{1, 10, 1000, 10_000}, func(n int) Row {
		return pipelinedRow("1 KiB, 10,000 a second, "+counted(n, "connection"), 1024, n, windowOf(n), atRate(steadyRate))
	})
	rows = append(rows, scaled([]int{1, 100, 10_000}, func(n int) Row {
		return pipelinedRow("1 KiB, 10,000 a second, "+counted(n, "queue"), 1024, 4, 64, atRate(steadyRate), func(s *result.Settings) { s.Queues = n })
	})...)
	return append(rows, Row{Name: "1 KiB into a growing log", Settings: settings(func(s *result.Settings) {
		s.Workload, s.Mode, s.Connections, s.Window = LogSize, load.ModePipelined, 4, 64
	})})
}

// scaled are rows of which each is told as a multiple of the first.
func scaled(counts []int, row func(int) Row) []Row {
	var rows []Row
	for _, n := range counts {
		r := row(n)
		if len(rows) > 0 {
			r = r.against(rows[0])
		}
		rows = append(rows, r)
	}
	return rows
}

// windowOf leaves room for requests that wait for their turn: about as many in all, however many connections.
func windowOf(connections int) int { return max(640/connections, 4) }

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// Sets are the rows by name.
func Sets() map[string]func() []Row {
	return map[string]func() []Row{"alone": Alone, "peers": Peers, "openloop": openLoopRows, "scaling": Scaling}
}

// RecoveryRow is a kill -9 with a log of about so many bytes.
func RecoveryRow(logBytes int64, sync bool) Row {
	name := fmt.Sprintf("kill -9 under load, %d MiB of log", logBytes>>20)
	if sync {
		return serverRow(name+", SYNC_FLUSH", Recovery, logBytes, syncFlush)
	}
	return serverRow(name, Recovery, logBytes)
}

// Pipeline is load on a few connections with a window each.
type Pipeline struct {
	Body        string
	Connections int
	Window      int
	Rate        float64 // 0 is as fast as answers come
}

// ReplicationRow is the lag of a slave.
func ReplicationRow(p Pipeline, sync bool) Row {
	name := "lag of a slave"
	change := []func(*result.Settings){func(s *result.Settings) {
		s.Mode, s.Body, s.Connections, s.Window, s.Rate = load.ModePipelined, p.Body, p.Connections, p.Window, p.Rate
	}}
	if sync {
		name, change = name+" of a SYNC_MASTER", append(change, syncMaster)
	}
	return serverRow(name, Replication, 0, change...)
}

// slaves is how many the row's master has; that of a catch-up comes later.
func (r Row) slaves() int {
	if r.Settings.Role == roleSync || r.Settings.Workload == Replication || r.Settings.Workload == CatchUp {
		return max(r.Settings.Slaves, 1)
	}
	return r.Settings.Slaves
}

// startsItself is whether a turn starts its servers by itself, so that none is warmed before.
func (r Row) startsItself() bool {
	return slices.Contains([]string{Start, Idle, Recovery, CatchUp, LogSize}, r.Settings.Workload) || r.Settings.Backlog > 0
}

// needsOwnServers is whether a server that runs already cannot be asked: it would be killed, or more than its address is
// needed.
func (r Row) needsOwnServers() bool {
	return r.startsItself() || r.Settings.Workload == OpenLoop || r.Settings.Workload == Stalled
}
