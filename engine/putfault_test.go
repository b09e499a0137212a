// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/latency"
	"loopmq/storage/vfs/faultfs"
)

// startFaultyBroker starts a broker on a file system in memory.
func startFaultyBroker(t *testing.T, change func(*Config)) (*testBroker, *faultfs.FS) {
	t.Helper()
	b, fs, _ := startBrokerWithSlaves(t, change)
	return b, fs
}

// startBrokerWithSlaves starts one that asks slaves when its role is SYNC_MASTER.
func startBrokerWithSlaves(t *testing.T, change func(*Config)) (*testBroker, *faultfs.FS, *slaves) {
	t.Helper()
	fs, s := faultfs.New(), new(slaves)
	b := newTestBroker(t, func(c *Config) {
		c.Store.MappedFileSizeCommitLog = 1 << 20
		change(c)
	})
	b.fs, b.replicas = fs, s
	b.start()
	t.Cleanup(func() {
		s.settle()
		b.stop()
	})
	return b, fs, s
}

func wantRemark(t *testing.T, what string, resp *remoting.Command, code int32, parts ...string) {
	t.Helper()
	if resp.Code != code {
		t.Errorf("%s: code %d, remark %q; want code %d", what, resp.Code, resp.Remark, code)
	}
	for _, part := range parts {
		if !strings.Contains(string(resp.Remark), part) {
			t.Errorf("%s: remark %q; want %q in it", what, resp.Remark, part)
		}
	}
}

// slaves is a replicaWaiter whose slaves take some time and then answer.
type slaves struct {
	after  atomic.Int64 // ms
	status atomic.Int32
	asked  atomic.Int64
	wg     sync.WaitGroup
}

func (s *slaves) set(after time.Duration, status storage.PutMessageStatus) {
	s.settle()
	s.after.Store(after.Milliseconds())
	s.status.Store(int32(status))
	s.asked.Store(0)
}

// settle waits until all have answered. The look at asked puts it behind their being asked, which the race detector does not
// know of what sockets put in order.
func (s *slaves) settle() {
	s.asked.Load()
	s.wg.Wait()
}

func (s *slaves) SubmitReplicaRequest(_ storage.PhyOffset, _ time.Time, done func(storage.PutMessageStatus)) {
	s.wg.Add(1)
	s.asked.Add(1)
	after, status := time.Duration(s.after.Load())*time.Millisecond, storage.PutMessageStatus(s.status.Load())
	answer := func() {
		defer s.wg.Done()
		done(status)
	}
	if after == 0 {
		answer()
		return
	}
	time.AfterFunc(after, answer)
}

func (s *slaves) ReplicaAnsweredAt() int64 { return latency.Now() }

// A sync that fails answers every send that waits for it with 14 and the cause, whatever the slave says, and the broker
// takes nothing more (apache/rocketmq#2706).
func TestFailedSyncAnswersAllWaiters(t *testing.T) {
	for _, status := range []storage.PutMessageStatus{storage.PutOK, storage.SlaveNotAvailable, storage.FlushSlaveTimeout} {
		b, fs, s := startBrokerWithSlaves(t, func(c *Config) {
			c.Store.FlushDiskType, c.Store.Role = storage.SyncFlush, storage.SyncMaster
		})
		c := b.dial()
		c.send("T", 0, []byte("safe"), "")
		s.set(0, status)
		fs.Fail(faultfs.Fault{Op: faultfs.OpSync, Path: "commitlog", Err: syscall.EIO})
		var cmds []*remoting.Command
		for range 10 {
			cmds = append(cmds, c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))
		}
		for _, ch := range c.start(cmds...) {
			wantRemark(t, "waiting", c.await(ch), remoting.ServiceNotAvailable, syscall.EIO.Error())
		}
		fs.ClearFaults()
		wantRemark(t, "later", c.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...), remoting.ServiceNotAvailable, syscall.EIO.Error())
		b.dispatched()
		if n := len(decodeRecords(t, c.pull("g", "T", 0, 0).Body)); n == 0 {
			t.Error("a store that is read-only does not serve reads")
		}
	}
}

// A disk that hangs: the send is answered 10 at its deadline, with the header of a stored message.
func TestFlushTimeout(t *testing.T) {
	b, fs := startFaultyBroker(t, func(c *Config) { c.Store.FlushDiskType, c.Store.SyncFlushTimeout = storage.SyncFlush, 200 })
	c := b.dial()
	c.send("T", 0, []byte("x"), "")
	hang := make(chan struct{})
	fs.SetHook(func(op faultfs.Op, path string) {
		if op == faultfs.OpSync && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	began := time.Now()
	resp := c.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...)
	if took := time.Since(began); took < 190*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	close(hang)
	wantRemark(t, "hanging disk", resp, remoting.FlushDiskTimeout)
	if off := extInt(t, resp, "queueOffset"); off != 1 {
		t.Errorf("queue offset %d", off)
	}
	c.send("T", 0, []byte("x"), "")
}

func TestReplicaOutcomes(t *testing.T) {
	b, _, s := startBrokerWithSlaves(t, func(c *Config) { c.Store.Role = storage.SyncMaster })
	c := b.dial()
	f := func(after time.Duration, status storage.PutMessageStatus, code int32) {
		t.Helper()
		s.set(after, status)
		resp := c.call(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...)
		wantRemark(t, status.String(), resp, code)
		extInt(t, resp, "queueOffset")
		c.send("T", 0, nil, "WAIT\x01false")
		if n := s.asked.Load(); n != 1 {
			t.Errorf("%d sends waited for a slave; want 1", n)
		}
	}
	f(0, storage.PutOK, remoting.Success)
	f(time.Millisecond, storage.PutOK, remoting.Success)
	f(0, storage.SlaveNotAvailable, remoting.SlaveNotAvailable)
	f(time.Millisecond, storage.FlushSlaveTimeout, remoting.FlushSlaveTimeout)
}

// Time spent waiting for a slave is not time in a queue: no send is called busy for it, and the connection serves others
// meanwhile (apache/rocketmq#2471).
func TestSlowSlaveIsNotBusy(t *testing.T) {
	b, _, s := startBrokerWithSlaves(t, func(c *Config) { c.Store.Role = storage.SyncMaster })
	c := b.dial()
	c.send("T", 0, nil, "")
	s.set(3*time.Second, storage.PutOK)
	var cmds []*remoting.Command
	for range 500 {
		cmds = append(cmds, c.request(remoting.SendMessageV2, []byte("x"), sendV2("T", 0, "")...))
	}
	chans := c.start(cmds...)
	wantCode(t, c.call(remoting.GetMaxOffset, nil, "topic", "T", "queueId", "0"), remoting.Success)
	for i, ch := range chans {
		if len(ch) > 0 {
			t.Fatalf("a request behind waiting sends was answered after send %d", i)
		}
	}
	for _, ch := range chans {
		wantCode(t, c.await(ch), remoting.Success)
	}
}

// An append that is held up: what waits behind it is answered busy, soon and in words that name the stage, and service is
// back when it ends.
func TestHeldUpAppendIsBusy(t *testing.T) {
	b, fs := startFaultyBroker(t, func(c *Config) { c.Store.OSPageCacheBusyTimeOutMills = 400 })
	c := b.dial()
	c.send("T", 0, nil, "")
	hang := make(chan struct{})
	var release sync.Once
	t.Cleanup(func() { release.Do(func() { close(hang) }) })
	fs.SetHook(func(op faultfs.Op, path string) {
		if (op == faultfs.OpCreate || op == faultfs.OpAllocate) && strings.Contains(path, "commitlog") {
			<-hang
		}
	})
	stages := make(map[string]int)
	waiting := make(map[chan *remoting.Command]bool)
	for deadline := time.Now().Add(callTimeout); len(stages) < 2 && time.Now().Before(deadline); {
		waiting[c.start(c.request(remoting.SendMessageV2, make([]byte, 100_000), sendV2("T", 0, "")...))[0]] = true
		time.Sleep(5 * time.Millisecond)
		for ch := range waiting {
			select {
			case resp := <-ch:
				delete(waiting, ch)
				if resp.Code == remoting.Success {
					continue
				}
				wantRemark(t, "held up", resp, remoting.SystemBusy, " busy, start flow control for a while", "; slow stage: ")
				stage, _, _ := strings.Cut(string(resp.Remark), "]")
				stages[stage]++
				if stage == "[TIMEOUT_CLEAN_QUEUE" {
					wantRemark(t, "expired", resp, remoting.SystemBusy, "period in queue: ", "size of queue: ")
				}
			default:
			}
		}
	}
	if stages["[TIMEOUT_CLEAN_QUEUE"] == 0 || stages["[REJECTREQUEST"]+stages["[PC_SYNCHRONIZED"] == 0 {
		t.Errorf("stages named: %v", stages)
	}
	release.Do(func() { close(hang) })
	eventually(t, "service as before", func() bool {
		return c.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...).Code == remoting.Success
	})
	for ch := range waiting {
		if resp := c.await(ch); resp.Code != remoting.Success && resp.Code != remoting.SystemBusy {
			t.Errorf("code %d, %q", resp.Code, resp.Remark)
		}
	}
}

// A full disk is met where the next log file is made; the answers say so.
func TestFullDisk(t *testing.T) {
	b, fs := startFaultyBroker(t, func(*Config) {})
	c := b.dial()
	c.send("T", 0, nil, "")
	fs.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Path: "commitlog", Err: syscall.ENOSPC})
	fs.Fail(faultfs.Fault{Op: faultfs.OpCreate, Path: "commitlog", Err: syscall.ENOSPC})
	codes := make(map[int32]string)
	for range 60 {
		resp := c.call(remoting.SendMessageV2, make([]byte, 100_000), sendV2("T", 0, "")...)
		codes[resp.Code] = string(resp.Remark)
	}
	// 1 for the put that meets it (CREATE_MAPEDFILE_FAILED), 14 while the store knows that it would be met.
	for code, remark := range codes {
		switch {
		case code == remoting.Success:
		case code != remoting.SystemError && code != remoting.ServiceNotAvailable, !strings.Contains(remark, syscall.ENOSPC.Error()):
			t.Errorf("code %d, %q; want 1 or 14 and the cause", code, remark)
		}
	}
	if len(codes) < 2 {
		t.Errorf("answers: %v", codes)
	}
	fs.ClearFaults()
	eventually(t, "room again", func() bool {
		return c.call(remoting.SendMessageV2, nil, sendV2("T", 0, "")...).Code == remoting.Success
	})
}

// A delayed message whose delivery the store refuses is delivered when the store takes messages again, once.
func TestRefusedDeliveryIsTriedAgain(t *testing.T) {
	b, fs := startFaultyBroker(t, shortDelays(1_500))
	c := b.dial()
	for i := range 20 {
		c.send("T", 0, []byte(fmt.Sprint(i)), "DELAY\x011")
	}
	fs.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Path: "commitlog", Err: syscall.ENOSPC})
	fs.Fail(faultfs.Fault{Op: faultfs.OpCreate, Path: "commitlog", Err: syscall.ENOSPC})
	eventually(t, "the log to be full", func() bool {
		return c.call(remoting.SendMessageV2, make([]byte, 3_000), sendV2("filler", 0, "")...).Code != remoting.Success
	})
	time.Sleep(2 * time.Second)
	fs.ClearFaults()
	c.send("T", 1, nil, "")
	seen := make(map[string]bool)
	for _, r := range c.pullUntil("g", "T", 0, 0, 20) {
		seen[string(r.Body)] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d of 20 delivered", len(seen))
	}
}
