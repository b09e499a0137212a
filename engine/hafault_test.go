// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/reactor/remoting"
)

// faultyNetwork stands between a slave and the port of its master. Each direction of its connections can be slowed or
// swallowed while the other works, and connections can be reset or left half open.
type faultyNetwork struct {
	listener net.Listener
	target   string
	up, down direction // slave to master, master to slave
	running  sync.WaitGroup

	mu    sync.Mutex // guards links
	links []*faultyLink
}

type direction struct {
	silent atomic.Bool
	delay  atomic.Int64 // ns a chunk
}

type faultyLink struct{ slave, master *net.TCPConn }

func newFaultyNetwork(t *testing.T, target string) *faultyNetwork {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &faultyNetwork{listener: l, target: target}
	n.running.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.each(func(l *faultyLink) {
			_ = l.slave.Close()
			_ = l.master.Close()
		})
		n.running.Wait()
	})
	return n
}

func (n *faultyNetwork) addr() string { return n.listener.Addr().String() }

func (n *faultyNetwork) accept() {
	for {
		slave, err := n.listener.Accept()
		if err != nil {
			return
		}
		master, err := net.Dial("tcp", n.target)
		if err != nil {
			_ = slave.Close()
			continue
		}
		l := &faultyLink{slave.(*net.TCPConn), master.(*net.TCPConn)}
		n.mu.Lock()
		n.links = append(n.links, l)
		n.mu.Unlock()
		n.running.Go(func() { pipe(l.master, l.slave, &n.up) })
		n.running.Go(func() { pipe(l.slave, l.master, &n.down) })
	}
}

// pipe carries one direction. When one end is gone, what the direction swallows is the end, too.
func pipe(to, from *net.TCPConn, d *direction) {
	chunk := make([]byte, 16<<10)
	for {
		read, err := from.Read(chunk)
		if read > 0 && !d.silent.Load() {
			time.Sleep(time.Duration(d.delay.Load()))
			if _, err := to.Write(chunk[:read]); err != nil {
				return
			}
		}
		if err != nil {
			if !d.silent.Load() {
				_ = to.Close()
			}
			return
		}
	}
}

func (n *faultyNetwork) each(f func(l *faultyLink)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		f(l)
	}
}

// A pair over a network that fails in each of its ways: a send is answered 0 only when the slave has the message, and
// in time with 11 or 12 otherwise; both sides notice, and when the network is well again the slave is as far as its master
// with the same bytes.
func TestPairOverAFaultyNetwork(t *testing.T) {
	f := func(name string, hurt, heal func(n *faultyNetwork)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quick := func(c *Config) {
				c.Store.MappedFileSizeCommitLog = 1 << 20
				c.Store.SlaveTimeout = 500
				c.HASendHeartbeatInterval, c.HAHousekeepingInterval = 100, 1000
			}
			m := startSyncMaster(t, quick)
			network := newFaultyNetwork(t, m.haServerAddr())
			s := startSlave(t, m, func(c *Config) {
				quick(c)
				c.HAMasterAddress = network.addr()
			})
			c := m.dial()
			send := func() int32 {
				t.Helper()
				time.Sleep(5 * time.Millisecond) // faults take time; so many messages do not make them better
				resp := c.sendTo(bytes.Repeat([]byte{7}, 30_000))
				if end := m.store.MaxPhyOffset(); resp.Code == remoting.Success && s.store.MaxPhyOffset() != end {
					t.Fatalf("answered 0 with the slave at %d of %d", s.store.MaxPhyOffset(), end)
				}
				return resp.Code
			}
			heals := func(what string) {
				t.Helper()
				m.eventually(what, func() bool {
					s.haClient.Wakeup() // not to wait 5 s for the next try
					return send() == remoting.Success
				})
			}
			heals("the pair begins")
			for range 2 {
				hurt(network)
				for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
					if code := send(); code != remoting.Success && code != remoting.FlushSlaveTimeout && code != remoting.SlaveNotAvailable {
						t.Fatalf("answered %d", code)
					}
				}
				heal(network)
				heals("the pair goes on")
			}
			end := m.store.MaxPhyOffset()
			if !bytes.Equal(m.logBytes(0, end), s.logBytes(0, end)) {
				t.Fatal("the logs differ")
			}
			m.eventually("one link is left", func() bool { return len(m.ha.Status().Slaves) == 1 })
		})
	}
	silence := func(up, down bool) func(n *faultyNetwork) {
		return func(n *faultyNetwork) {
			n.up.silent.Store(up)
			n.down.silent.Store(down)
		}
	}
	f("nothing_arrives", silence(true, true), silence(false, false))
	f("reports_do_not_arrive", silence(true, false), silence(false, false))
	f("frames_do_not_arrive", silence(false, true), silence(false, false))
	f("delay", func(n *faultyNetwork) {
		n.up.delay.Store(int64(40 * time.Millisecond))
		n.down.delay.Store(int64(40 * time.Millisecond))
	}, func(n *faultyNetwork) {
		n.up.delay.Store(0)
		n.down.delay.Store(0)
	})
	f("reset", func(n *faultyNetwork) {
		n.each(func(l *faultyLink) {
			_, _ = l.slave.SetLinger(0), l.master.SetLinger(0)
			_ = l.slave.Close()
			_ = l.master.Close()
		})
	}, func(*faultyNetwork) {})
	halfOpen := func(close func(l *faultyLink)) func(n *faultyNetwork) {
		return func(n *faultyNetwork) {
			silence(true, true)(n)
			n.each(close)
		}
	}
	f("the_master_is_gone_unheard", halfOpen(func(l *faultyLink) { _ = l.master.Close() }), silence(false, false))
	f("the_slave_is_gone_unheard", halfOpen(func(l *faultyLink) { _ = l.slave.Close() }), silence(false, false))
}
