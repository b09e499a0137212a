// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/load"
	"loopmq/bench/peer"
	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/bench/wire"
)

const (
	topic = "bench"
	// catchUpFile is the size of a file of the log that a slave copies. An empty slave is sent the master's last file: all
	// is to be in one.
	catchUpFile = 2000 << 20
	// coldFile is the size of a file of a log of which little is to be in memory: a start reads the last files.
	coldFile = 128 << 20
)

// host is a subject's servers for a row, and its client if that is a process too.
type host struct {
	plan    *Plan
	row     Row
	subject Subject
	site    *proc.Site // its own name server: clients of one subject must not find the topic at another, which is paused

	master *proc.Broker
	slaves []*proc.Broker
	client *peer.Client
	filled bool   // the store has the row's backlog
	null   string // address of the row's null server; empty: none yet
	failed bool
}

// prepare starts what the row needs, and warms what wants to be warm.
func (h *host) prepare(ctx context.Context) (err error) {
	if h.subject.Flavour != nil {
		if h.site, err = proc.NewSite(ctx, h.plan.Dir, h.plan.Binary); err != nil {
			return err
		}
		if err := h.makeBrokers(); err != nil {
			return err
		}
	}
	if h.row.startsItself() {
		return nil
	}
	if !h.subject.isJVM() && h.row.Settings.Client == "" {
		return nil
	}
	if err := h.wake(ctx); err != nil {
		return err
	}
	if err := h.settle(ctx); err != nil {
		return err
	}
	return h.rest()
}

// close ends all processes and removes all files.
func (h *host) close() error {
	if h.site == nil {
		return nil
	}
	return h.site.Close()
}

func (h *host) makeBrokers() (err error) {
	s := h.row.Settings
	properties := map[string]string{"flushDiskType": s.Flush}
	switch {
	case h.row.Settings.Workload == CatchUp:
		properties["mappedFileSizeCommitLog"] = strconv.Itoa(catchUpFile)
	case h.row.Settings.Backlog > 0:
		properties["mappedFileSizeCommitLog"] = strconv.Itoa(coldFile)
	}
	if _, ours := h.subject.Flavour.(proc.Loopmq); ours && h.row.Settings.Workload == OpenLoop {
		properties["slowSendMills"] = strconv.FormatInt(slowSendFrom.Milliseconds(), 10)
	}
	o := proc.BrokerOptions{Name: "master", Properties: maps.Clone(properties)}
	o.Properties["brokerRole"] = s.Role
	if h.master, err = h.site.NewBroker(h.subject.Flavour, o); err != nil {
		return err
	}
	for i := range h.row.slaves() {
		o := proc.BrokerOptions{Name: slaveName(i), Properties: maps.Clone(properties), Master: h.master}
		o.Properties["brokerId"] = strconv.Itoa(i + 1)
		slave, err := h.site.NewBroker(h.subject.Flavour, o)
		if err != nil {
			return err
		}
		h.slaves = append(h.slaves, slave)
	}
	return nil
}

func slaveName(i int) string {
	if i == 0 {
		return "slave"
	}
	return "slave " + strconv.Itoa(i+1)
}

// wake makes the servers ready: started with an empty store, or resumed.
func (h *host) wake(ctx context.Context) error {
	if h.subject.Flavour == nil {
		return h.createTopic(ctx)
	}
	slaves := h.slaves
	if h.row.Settings.Workload == CatchUp {
		slaves = nil // it comes later
	}
	if h.master.PID() != 0 {
		h.master.Resume()
		for _, slave := range slaves {
			slave.Resume()
		}
		if _, err := h.master.AwaitServing(ctx); err != nil {
			return err
		}
	} else {
		h.filled = false
		if err := proc.Serve(ctx, h.master, slaves...); err != nil {
			return err
		}
	}
	if err := h.createTopic(ctx); err != nil {
		return err
	}
	if err := awaitSlaves(ctx, h.master, slaves); err != nil {
		return err
	}
	if h.client != nil {
		h.client.Resume()
	}
	return nil
}

const (
	// slaveLimit is how long a slave may take to follow its master: Java's waits for five seconds and more before it connects
	// again, after a pause in which the master has given it up. Source: HAClient#run.
	slaveLimit = time.Minute
	slavePoll  = 10 * time.Millisecond
)

// awaitSlaves waits until the slaves have all that their master has, which has just taken a message: a load is not to be
// measured with slaves that do not copy it yet.
func awaitSlaves(ctx context.Context, master *proc.Broker, slaves []*proc.Broker) error {
	ctx, cancel := context.WithTimeout(ctx, slaveLimit)
	defer cancel()
	for _, slave := range slaves {
		for {
			want, err := master.LogEnd(ctx)
			if err != nil {
				return err
			}
			end, err := slave.LogEnd(ctx)
			if err == nil && end >= want {
				break
			}
			if sleep(ctx, slavePoll) != nil {
				return fmt.Errorf("%s has %d of %d bytes of its master's log: %w", slave.Name, end, want, errors.Join(ctx.Err(), err))
			}
		}
	}
	return nil
}

// rest leaves nothing running: JVMs are paused, brokers of ours and their stores removed. What was written is on the disk
// afterwards.
func (h *host) rest() error {
	if h.client != nil {
		h.client.Pause()
	}
	if h.subject.Flavour == nil {
		return syncDir(h.plan.Dir)
	}
	var errs []error
	for _, b := range append(slices.Clone(h.slaves), h.master) {
		switch {
		case b == nil: // it could not be made
		case h.subject.isJVM() && !h.failed:
			b.Pause()
		default:
			errs = append(errs, b.Wipe())
		}
	}
	return errors.Join(errors.Join(errs...), syncDir(h.plan.Dir))
}

// syncDir writes back the whole file system that dir is on.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

func (h *host) addr() string {
	if h.subject.Flavour == nil {
		return h.subject.Addr
	}
	return h.master.Addr
}

// targets are the processes whose figures count.
func (h *host) targets() []proc.Target {
	var targets []proc.Target
	add := func(name string, pid int) {
		if pid != 0 {
			targets = append(targets, proc.Target{Name: name, PID: pid})
		}
	}
	if h.subject.Flavour == nil {
		add("master", h.subject.PID)
		return targets
	}
	add("master", h.master.PID())
	for i, slave := range h.slaves {
		add(slaveName(i), slave.PID())
	}
	return targets
}

func (h *host) createTopic(ctx context.Context) error {
	c, err := wire.Dial(ctx, h.addr(), wire.Options{})
	if err != nil {
		return err
	}
	defer func() {
		c.Close()
		<-c.Done()
	}()
	return wire.CreateTopic(ctx, c, topic, h.row.Settings.Queues)
}

// settle runs the row's load without measuring it.
func (h *host) settle(ctx context.Context) error {
	s := h.settings()
	if s.Workload == load.Drain && s.Client != "" {
		if err := h.fill(ctx, topic, s.Count); err != nil {
			return err
		}
	}
	_, err := h.window(ctx, s, h.plan.Settle, time.Second)
	return err
}

// settings are the row's, for this host.
func (h *host) settings() result.Settings {
	s := h.row.Settings
	s.Broker, s.NameSrv, s.Topics = h.addr(), "", []string{topic}
	return s
}

// window runs load for a warm-up and a measured time.
func (h *host) window(ctx context.Context, s result.Settings, warmup, duration time.Duration) (*result.Result, error) {
	if s.Client == "" {
		s.Warmup, s.Duration = result.Duration(warmup), result.Duration(duration)
		return h.lean(ctx, s)
	}
	if h.client == nil {
		if h.plan.Client == nil {
			return nil, errors.New("no Java client")
		}
		if s.Workload == load.Drain {
			s.Mode = "pull"
		}
		var err error
		if h.client, err = h.plan.Client.StartClient(h.site, "client", s); err != nil {
			return nil, err
		}
	}
	return h.client.Window(ctx, h.targets(), warmup, duration)
}

// fillBatch is how many messages a request of a backlog has.
const fillBatch = 32

// fillTries bounds the attempts to write what a Java broker refuses when it is busy.
const fillTries = 20

// fill writes about count messages to a topic as fast as batches go.
func (h *host) fill(ctx context.Context, topic string, count int64) error {
	if h.filled {
		return nil
	}
	s := batchRow("", 1024, fillBatch).Settings
	s.Body, s.Warmup, s.Duration = h.row.Settings.Body, 0, 0
	s.Broker, s.Topics = h.addr(), []string{topic}
	batch := int64(s.Batch)
	left := count / batch * batch
	for range fillTries {
		s.Count = left
		r, err := h.lean(ctx, s)
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		if left -= r.Messages; left < batch {
			h.filled = true
			return nil
		}
	}
	return fmt.Errorf("fill: %d of %d messages were not acknowledged in %d attempts", left, count, fillTries)
}
