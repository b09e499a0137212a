// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/latency"
	"loopmq/storage/vfs/faultfs"
)

// stageCountsOf is how many sends were counted in each stage.
func (b *testBroker) stageCountsOf() (counts [sendStages]int64) {
	for stage, s := range b.sendTimes.snapshot() {
		counts[stage] = s.Count
	}
	return counts
}

// stageSum is the time of all sends in a stage.
func (b *testBroker) stageSum(stage sendStage) time.Duration {
	return b.sendTimes.snapshot()[stage].Sum
}

// wantStages waits until the counts have grown by what is wanted: a send is counted after its answer is written.
func (b *testBroker) wantStages(what string, before, grown [sendStages]int64) {
	b.t.Helper()
	want := before
	for stage := range want {
		want[stage] += grown[stage]
	}
	b.eventually(fmt.Sprintf("%s: %v sends in the stages", what, want), func() bool { return b.stageCountsOf() == want })
}

// A send counts once in each stage that it goes through, and in no other, whatever it waits for and however it is answered.
func TestSendsCountOnceInEachStage(t *testing.T) {
	for _, flush := range []storage.FlushDiskType{storage.AsyncFlush, storage.SyncFlush} {
		for _, role := range []storage.Role{storage.AsyncMaster, storage.SyncMaster} {
			t.Run(flushWords[flush]+" "+roleWords[role], func(t *testing.T) {
				b, _, s := startBrokerWithSlaves(t, func(c *Config) { c.Store.FlushDiskType, c.Store.Role = flush, role })
				c := b.dial()
				c.send("T", 0, nil, "") // makes the topic
				b.eventually("the first send counted", func() bool { return b.stageCountsOf()[stageReply] == 1 })
				s.set(time.Millisecond, storage.PutOK)

				const sends = 7
				stored := [sendStages]int64{stageQueue: sends, stageLock: sends, stageAppend: sends}
				waited, answered := stored, stored
				answered[stageReply] = sends
				if flush == storage.SyncFlush {
					waited[stageFlush] = sends
				}
				if role == storage.SyncMaster {
					waited[stageReplica] = sends
				}
				oneway := waited
				waited[stageReply] = sends

				before := b.stageCountsOf()
				var cmds []*remoting.Command
				for range sends {
					cmds = append(cmds, c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))
				}
				for _, ch := range c.start(cmds...) {
					wantCode(t, c.await(ch), remoting.Success)
				}
				b.wantStages("waiting", before, waited)

				before = b.stageCountsOf()
				for range sends {
					c.send("T", 0, nil, "WAIT\x01false")
				}
				b.wantStages("WAIT=false", before, answered)

				before = b.stageCountsOf()
				for range sends {
					c.oneway(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...)
				}
				b.wantStages("one-way", before, oneway)

				before = b.stageCountsOf()
				wantCode(t, c.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 99, "")...), remoting.SystemError)
				c.send("T", 0, nil, "")
				one := waited
				for stage := range one {
					one[stage] = min(one[stage], 1)
				}
				b.wantStages("refused", before, one)
			})
		}
	}
}

// logLines is a handler that keeps warnings.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logLines) WithGroup(string) slog.Handler                    { return l }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// with are the lines that have all the parts.
func (l *logLines) with(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

// startLoggedBroker starts a broker on a file system in memory whose warnings are kept.
func startLoggedBroker(t *testing.T, change func(*Config)) (*testBroker, *faultfs.FS, *slaves, *logLines) {
	t.Helper()
	fs, s, log := faultfs.New(), new(slaves), new(logLines)
	b := newTestBroker(t, func(c *Config) {
		c.Store.MappedFileSizeCommitLog = 1 << 20
		change(c)
	})
	b.fs, b.replicas, b.log = fs, s, slog.New(log)
	b.start()
	t.Cleanup(func() {
		s.settle()
		b.stop()
	})
	return b, fs, s, log
}

const (
	slowHere  = 300 * time.Millisecond // how long a stage is held up
	slowMills = 200                    // from when on that is slow
)

// A slow send is a line in the log that names the stage that was slow, with the time in each, and is counted under it.
func TestSlowSendNamesItsStage(t *testing.T) {
	sleep := func(op faultfs.Op, path string) func(faultfs.Op, string) {
		return func(o faultfs.Op, p string) {
			if o == op && strings.Contains(p, path) {
				time.Sleep(slowHere)
			}
		}
	}
	f := func(stage sendStage, change func(*Config), slow func(b *testBroker, fs *faultfs.FS, s *slaves, c *rawClient)) {
		t.Run(stage.String(), func(t *testing.T) {
			b, fs, s, log := startLoggedBroker(t, func(c *Config) {
				c.SlowSendMills = slowMills
				c.Store.WaitTimeMillsInSendQueue, c.Store.OSPageCacheBusyTimeOutMills = 60_000, 60_000
				change(c)
			})
			b.sendTimes.logAll.Store(true)
			c := b.dial()
			c.send("T", 0, nil, "")
			before := b.stageSum(stage)
			slow(b, fs, s, c)
			b.eventually("a slow send counted", func() bool { return b.sendTimes.slow[stage].Load() > 0 })
			fs.SetHook(nil)
			b.eventually("a line in the log", func() bool {
				return len(log.with("slow send, most of it in the stage "+stage.String(), " stage="+stage.String(), " took=", " queue=", " lock=", " append=")) > 0
			})
			if got := b.stageSum(stage) - before; got < slowMills*time.Millisecond {
				t.Errorf("%v in the stage; want %v or more", got, slowHere)
			}
		})
	}
	none := func(*Config) {}
	send := func(c *rawClient, size int) { c.send("T", 0, make([]byte, size), "") }
	f(stageQueue, none, func(_ *testBroker, fs *faultfs.FS, _ *slaves, c *rawClient) {
		fs.SetHook(sleep(faultfs.OpSync, "topics.json"))
		c.send("new", 0, nil, "")
	})
	f(stageAppend, none, func(b *testBroker, fs *faultfs.FS, _ *slaves, c *rawClient) {
		fs.SetHook(sleep(faultfs.OpAllocate, "commitlog"))
		for b.sendTimes.slow[stageAppend].Load() == 0 { // the file after the next one is not ready when it is due
			send(c, 500_000)
		}
	})
	f(stageLock, none, func(b *testBroker, fs *faultfs.FS, _ *slaves, c *rawClient) {
		fs.SetHook(sleep(faultfs.OpAllocate, "commitlog"))
		// Those that wait for a file are behind each other.
		for b.sendTimes.slow[stageLock].Load() == 0 {
			var cmds []*remoting.Command
			for range 16 {
				cmds = append(cmds, c.request(remoting.SendMessageV2, make([]byte, 300_000), sendV2("T", 0, "")...))
			}
			for _, ch := range c.start(cmds...) {
				wantCode(b.t, c.await(ch), remoting.Success)
			}
		}
	})
	f(stageFlush, func(c *Config) { c.Store.FlushDiskType = storage.SyncFlush }, func(_ *testBroker, fs *faultfs.FS, _ *slaves, c *rawClient) {
		fs.SetHook(sleep(faultfs.OpSync, "commitlog"))
		send(c, 1)
	})
	f(stageReplica, func(c *Config) { c.Store.Role = storage.SyncMaster }, func(_ *testBroker, _ *faultfs.FS, s *slaves, c *rawClient) {
		s.set(slowHere, storage.PutOK)
		send(c, 1)
	})
}

// One line a second says how many slow sends it stands for.
func TestSlowSendsAreLoggedSometimes(t *testing.T) {
	b, fs, _, log := startLoggedBroker(t, func(c *Config) {
		c.SlowSendMills, c.Store.FlushDiskType = 1, storage.SyncFlush
	})
	c := b.dial()
	c.send("T", 0, nil, "")
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			time.Sleep(2 * time.Millisecond)
		}
	})
	const sends = 500
	var cmds []*remoting.Command
	for range sends {
		cmds = append(cmds, c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))
	}
	for _, ch := range c.start(cmds...) {
		wantCode(t, c.await(ch), remoting.Success)
	}
	slow := func() (n int64) {
		for stage := range b.sendTimes.slow {
			n += b.sendTimes.slow[stage].Load()
		}
		return n
	}
	b.eventually("slow sends counted", func() bool { return slow() >= sends })
	if n := len(log.with("slow send")); n == 0 || n > sends/10 {
		t.Errorf("%d lines for %d slow sends", n, sends)
	}
	b.eventually("the next line says how many there were", func() bool {
		c.send("T", 0, nil, "")
		return len(log.with("slow send")) > len(log.with("slow send", "suppressed=0"))
	})
}

// What is stored but late says in its remark which stage was slow, with the times of all; an answer in time has none.
func TestLateAnswersNameTheirStage(t *testing.T) {
	b, fs, s, _ := startLoggedBroker(t, func(c *Config) {
		c.Store.Role, c.Store.FlushDiskType, c.Store.SyncFlushTimeout = storage.SyncMaster, storage.SyncFlush, 100
	})
	c := b.dial()
	if resp := c.send("T", 0, nil, ""); len(resp.Remark) > 0 {
		t.Errorf("remark of a stored message: %q", resp.Remark)
	}
	send := func() *remoting.Command { return c.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...) }
	times := []string{"; queue ", "ms, lock ", "ms, append ", "ms, flush ", "ms, replica ", "ms"}
	for status, code := range map[storage.PutMessageStatus]int32{
		storage.FlushSlaveTimeout: remoting.FlushSlaveTimeout, storage.SlaveNotAvailable: remoting.SlaveNotAvailable,
	} {
		s.set(time.Millisecond, status)
		resp := send()
		wantRemark(t, status.String(), resp, code, append(times, status.String()+": stored; slow stage: replica, ")...)
		extInt(t, resp, "queueOffset")
	}
	s.set(0, storage.PutOK)
	hang := make(chan struct{})
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	resp := send()
	close(hang)
	fs.SetHook(nil)
	wantRemark(t, "hanging disk", resp, remoting.FlushDiskTimeout, append(times, "FLUSH_DISK_TIMEOUT: stored; slow stage: flush, ")...)
	extInt(t, resp, "queueOffset")
	if resp := send(); resp.Code != remoting.Success || len(resp.Remark) > 0 {
		t.Errorf("code %d, remark %q afterwards", resp.Code, resp.Remark)
	}
}

// A send that is refused because others wait says for what they do.
func TestBusyNamesTheStage(t *testing.T) {
	b, fs, _, _ := startLoggedBroker(t, func(c *Config) {
		c.Store.FlushDiskType, c.Store.MaxWaitingPuts = storage.SyncFlush, 1
	})
	c := b.dial()
	c.send("T", 0, nil, "")
	b.eventually("nobody that waits", func() bool { return b.store.Stats().WaitingFlushRequests == 0 })
	hang := make(chan struct{})
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	waiting := c.start(c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))[0]
	b.eventually("a send that waits", func() bool { return b.store.Stats().WaitingFlushRequests == 1 })
	wantRemark(t, "beside one that waits", c.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...), remoting.SystemBusy,
		remarkOverload+", ", "(maxWaitingPuts); slow stage: flush")
	close(hang)
	wantCode(t, c.await(waiting), remoting.Success)
}

// A send that is not safe after a long wait is slow too, though it counts in no stage.
func TestSlowRefusalNamesItsStage(t *testing.T) {
	b, fs, _, log := startLoggedBroker(t, func(c *Config) {
		c.SlowSendMills, c.Store.FlushDiskType = slowMills, storage.SyncFlush
	})
	c := b.dial()
	c.send("T", 0, nil, "")
	b.eventually("the first send counted", func() bool { return b.stageCountsOf()[stageReply] == 1 })
	before := b.stageCountsOf()
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			time.Sleep(slowHere)
		}
	})
	fs.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Err: syscall.EIO})
	wantRemark(t, "failed sync", c.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...), remoting.ServiceNotAvailable)
	fs.SetHook(nil)
	if lines := log.with("slow send", "stage=flush", "status=SERVICE_NOT_AVAILABLE"); len(lines) != 1 {
		t.Errorf("lines: %q", lines)
	}
	if after := b.stageCountsOf(); after != before {
		t.Errorf("counted: %v, before %v", after, before)
	}
}

// One that waits in vain for the next file has its time in the append.
func TestSlowFailedAppendNamesItsStage(t *testing.T) {
	b, fs, _, log := startLoggedBroker(t, func(c *Config) {
		c.SlowSendMills = slowMills
		c.Store.WaitTimeMillsInSendQueue, c.Store.OSPageCacheBusyTimeOutMills = 60_000, 60_000
	})
	b.sendTimes.logAll.Store(true)
	c := b.dial()
	c.send("T", 0, nil, "")
	hang := make(chan struct{})
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpAllocate && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	fs.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Path: "commitlog", Err: syscall.ENOSPC})
	var answers []chan *remoting.Command
	b.eventually("an append that waits for a file", func() bool {
		answers = append(answers, c.start(c.request(remoting.SendMessageV2, make([]byte, 500_000), sendV2("T", 0, "")...))...)
		return b.store.Stats().PageCacheLockTime > 50*time.Millisecond
	})
	time.Sleep(slowHere)
	close(hang)
	refused := 0
	for _, answer := range answers {
		if resp := c.await(answer); resp.Code != remoting.Success {
			wantRemark(t, "without a file", resp, remoting.ServiceNotAvailable, syscall.ENOSPC.Error())
			refused++
		}
	}
	if lines := log.with("slow send", "stage=append", "status=SERVICE_NOT_AVAILABLE"); len(lines) == 0 || refused == 0 {
		t.Errorf("%d refused, lines %q", refused, lines)
	}
}

// The sum of the stages is the whole; flush and replica are side by side.
func TestStageTimes(t *testing.T) {
	r := &sendRecord{receivedAt: 100}
	r.TakenAt, r.LockedAt, r.AppendedAt, r.flushedAt, r.replicatedAt = 200, 400, 700, 900, 1_500
	f := func(flush, replica bool, written int64, want stageTimes, total time.Duration, slowest sendStage) {
		t.Helper()
		r.waitFlush, r.waitReplica = flush, replica
		got := r.times(written)
		if got != want || got.total() != total || got.slowest() != slowest {
			t.Errorf("%v, %v in all, slowest %s; want %v, %v, %s", got, got.total(), got.slowest(), want, total, slowest)
		}
	}
	f(false, false, 710, stageTimes{100, 200, 300, notIn, notIn, 10}, 610, stageAppend)
	f(true, false, 2_000, stageTimes{100, 200, 300, 200, notIn, 1_100}, 1_900, stageReply)
	f(true, true, 1_600, stageTimes{100, 200, 300, 200, 800, 100}, 1_500, stageReplica)
	f(true, true, 0, stageTimes{100, 200, 300, 200, 800, notIn}, 1_400, stageReplica)
	r.flushedAt = 600 // of an earlier round: durable when it was asked for
	f(true, false, 710, stageTimes{100, 200, 300, 0, notIn, 10}, 610, stageAppend)

	var counts stageCounts
	times := r.times(710)
	if n := testing.AllocsPerRun(100, func() { counts.add(&times, 64) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var s latency.Snapshot
	counts[stageReplica].AddTo(&s)
	if s.Count != 0 {
		t.Errorf("%d counted in a stage that they were not in", s.Count)
	}
}
