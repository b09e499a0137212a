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
	LogBytes int64 // that recovery and catch-up begin with
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

func lasting(d time.Duration) func(*result.Settings) {
	return func(s *result.Settings) { s.Duration = result.Duration(d) }
}

// Alone is what tells whether a change made the broker better or worse: five minutes, ours only.
func Alone() []Row {
	var rows []Row
	for _, body := range []int{128, 1024, 4096} {
		size := sizeName(body)
		rows = append(rows,
			syncRow(size+", 64 connections, one in flight each", body, 64),
			pipelinedRow(size+", 4 connections, 64 in flight each", body, 4, 64),
			batchRow(size+", batches of 32", body, 32))
	}
	return append(rows,
		syncRow("1 KiB, SYNC_FLUSH, 64 connections", 1024, 64, syncFlush),
		syncRow("1 KiB, SYNC_MASTER and a slave, 64 connections", 1024, 64, syncMaster),
		drainRow("drain of a 1 KiB backlog", 1024, 1_000_000),
		serverRow("start", Start, 0),
		serverRow("idle", Idle, 0, lasting(15*time.Second)),
		RecoveryRow(1<<30, false),
	)
}

// Peers are the rows that are measured with the Java brokers beside ours.
func Peers() []Row {
	return []Row{
		syncRow("1 KiB by Java's client, 64 threads", 1024, 64, javaClient),
		pipelinedRow("1 KiB by Java's client, 256 in flight", 1024, 1, 256, javaClient),
		pipelinedRow("128 B by Java's client, 256 in flight", 128, 1, 256, javaClient),
		syncRow("1 KiB, 64 connections, one in flight each", 1024, 64),
		pipelinedRow("1 KiB, 4 connections, 64 in flight each", 1024, 4, 64),
		pipelinedRow("4 KiB, 4 connections, 64 in flight each", 4096, 4, 64),
		batchRow("1 KiB, batches of 32", 1024, 32),
		pipelinedRow("1 KiB, 5,000 a second, open loop", 1024, 4, 64, atRate(5000)),
		syncRow("SYNC_FLUSH, 1 KiB by Java's client, 64 threads", 1024, 64, javaClient, syncFlush),
		syncRow("SYNC_MASTER and a slave, 1 KiB by Java's client, 64 threads", 1024, 64, javaClient, syncMaster),
		syncRow("the same, SYNC_FLUSH on both sides", 1024, 64, javaClient, syncMaster, syncFlush),
		serverRow("catch-up of an empty slave, 1.8 GB", CatchUp, 1.8e9),
		drainRow("drain of a 1 KiB backlog by Java's consumer", 1024, 500_000, javaClient),
		drainRow("drain of a 1 KiB backlog", 1024, 500_000),
		serverRow("start", Start, 0),
		serverRow("idle", Idle, 0, lasting(10*time.Second)),
		RecoveryRow(1<<30, false),
	}
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

func sizeName(bytes int) string {
	if bytes >= 1024 && bytes%1024 == 0 {
		return strconv.Itoa(bytes/1024) + " KiB"
	}
	return strconv.Itoa(bytes) + " B"
}

// hasSlave is whether the row's servers are a pair from the beginning.
func (r Row) hasSlave() bool {
	return r.Settings.Role == roleSync || r.Settings.Workload == Replication
}

func (r Row) needsOwnServers() bool {
	return slices.Contains([]string{Start, Idle, Recovery, CatchUp}, r.Settings.Workload)
}
