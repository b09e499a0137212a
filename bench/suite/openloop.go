// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/load"
	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/bench/wire"
)

const (
	// stallFrom is the latency from which a request is told of by itself.
	stallFrom = 20 * time.Millisecond
	// witnessFrom is from when on a heartbeat or the null server count as having stood still too: half of that, since their
	// requests and beats fall into a standstill at other moments.
	witnessFrom = 10 * time.Millisecond
	beatEvery   = time.Millisecond
	// stallsMax bounds the memory of a run in which everything is late.
	stallsMax = 10_000
)

// stretch is a time in which something was late, by wire.Clock.
type stretch struct {
	from, to time.Duration
	longest  time.Duration
	count    int64
}

// stretches gathers what was late: what overlaps is one. The mutex guards the rest.
type stretches struct {
	mu  sync.Mutex
	all []stretch
}

// saw takes note of something that was due, or began, at from and was over at to. They come roughly in the order of to.
func (s *stretches) saw(from, to time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.all)
	if n > 0 && (from <= s.all[n-1].to || n == stallsMax) {
		s.all[n-1].join(stretch{from, to, to - from, 1})
		for ; n > 1 && s.all[n-1].from <= s.all[n-2].to; n-- { // it may reach over several
			s.all[n-2].join(s.all[n-1])
			s.all = s.all[:n-1]
		}
		return
	}
	s.all = append(s.all, stretch{from, to, to - from, 1})
}

func (s *stretch) join(other stretch) {
	s.from, s.to = min(s.from, other.from), max(s.to, other.to)
	s.longest = max(s.longest, other.longest)
	s.count += other.count
}

// during is the longest of those that overlap a time.
func (s *stretches) during(from, to time.Duration) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.from <= to && one.to >= from {
			longest = max(longest, one.longest)
		}
	}
	return longest
}

// beat notes when this process itself did not get to run, until ctx ends.
func (s *stretches) beat(ctx context.Context) {
	for before := wire.Clock(); ctx.Err() == nil; {
		time.Sleep(beatEvery)
		now := wire.Clock()
		if now-before > witnessFrom {
			s.saw(before, now)
		}
		before = now
	}
}

// attribute tells for each stall of a window that began at begin whose it was: the host's, if at that time the null server
// or the heartbeat stood still too, else the server's, with the stages in which it says its sends were at that time.
func attribute(late, null, heart *stretches, slow []slowSend, begin time.Duration) []result.Stall {
	late.mu.Lock()
	defer late.mu.Unlock()
	var stalls []result.Stall
	for _, one := range late.all {
		if one.to < begin {
			continue // in the warm-up
		}
		s := result.Stall{
			At: (one.from - begin).Seconds(), Millis: float64(one.longest) / 1e6, Messages: one.count, Cause: result.CauseServer,
		}
		var seen []string
		for _, witness := range []struct {
			name string
			of   *stretches
		}{{"null server", null}, {"heartbeat", heart}} {
			if longest := witness.of.during(one.from, one.to); longest > 0 {
				seen = append(seen, fmt.Sprintf("%s %.0f ms", witness.name, float64(longest)/1e6))
			}
		}
		if len(seen) > 0 {
			s.Cause, s.Seen = result.CauseHost, strings.Join(seen, ", ")
		} else {
			s.Seen = stagesDuring(slow, one.from, one.to)
		}
		stalls = append(stalls, s)
	}
	return stalls
}

// withTimes are settings for a window of the plan's length.
func withTimes(s result.Settings, p *Plan) result.Settings {
	s.Warmup, s.Duration = result.Duration(p.Warmup), result.Duration(p.Duration)
	return s
}

// beginning are hooks that close a channel when the window begins.
func beginning(began chan struct{}) load.Hooks {
	return load.Hooks{Begin: func() { close(began) }}
}

// measureOpenLoop sends at a fixed rate, and at the same rate to a server that only answers; beside them a consumer may
// read a backlog.
func (h *host) measureOpenLoop(ctx context.Context, s result.Settings) (*result.Result, error) {
	if s.Backlog > 0 {
		if err := h.coldBacklog(ctx, s.Backlog); err != nil {
			return nil, err
		}
	}
	if h.null == "" {
		var err error
		if h.null, err = h.site.StartNull(ctx, h.plan.Binary); err != nil {
			return nil, err
		}
	}
	s = withTimes(s, h.plan)
	var late, null, heart stretches
	var beside, nullSide sync.WaitGroup
	loading, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	beside.Go(func() { heart.beat(loading) })
	var read atomic.Int64
	var readErr error
	if s.Backlog > 0 {
		beside.Go(func() {
			if readErr = h.readOverAndOver(loading, s.Backlog, &read); readErr != nil {
				stop() // what it stands beside would be of another row
			}
		})
	}
	var nullResult *result.Result
	var nullErr error
	nullSide.Go(func() {
		s := s
		s.Broker, s.Workload = h.null, load.Produce
		nullResult, nullErr = load.Run(loading, load.Config{Settings: s}, load.Hooks{Slow: null.saw, SlowFrom: witnessFrom})
		if nullErr != nil {
			stop()
		}
	})
	var begin time.Duration
	r, err := h.leanHooked(loading, s, load.Hooks{Slow: late.saw, SlowFrom: stallFrom, Begin: func() { begin = wire.Clock() }})
	if err != nil {
		stop()
	}
	nullSide.Wait() // its window is as long
	stop()
	beside.Wait()
	slow, slowErr := h.slowSends()
	if err = errors.Join(err, nullErr, readErr, slowErr); err != nil {
		return nil, err
	}
	r.Null, r.Beside, r.Stalls = nullResult.Latency, read.Load(), attribute(&late, &null, &heart, slow, begin)
	return r, nil
}

// backlogRate is how fast the consumer beside an open loop reads: as fast with every server, so that all have the same to do.
const backlogRate = 20_000

// backlogTopic is apart from the load's: its end stays where it is.
const backlogTopic = "bench_backlog"

const (
	// stopLimit is how long a broker may take to end when it is asked to.
	stopLimit = time.Minute
	// coldPause is how long the backlog is left alone before the last message: a start reads what was stored in the three
	// seconds before that one. Source: StoreCheckpoint#getMinTimestamp.
	coldPause = 4 * time.Second
)

// coldBacklog makes a broker that has a backlog of which little is in memory: it is filled and ended in order, so that the
// next start looks at the end of the log only; its files are dropped from the page cache, and it is started again.
func (h *host) coldBacklog(ctx context.Context, count int64) error {
	if err := h.fill(ctx, backlogTopic, count); err != nil {
		return err
	}
	if err := sleep(ctx, coldPause); err != nil {
		return err
	}
	if err := proc.Accepts(ctx, h.master.Addr); err != nil {
		return err
	}
	h.master.Stop(stopLimit)
	if err := dropFromMemory(h.plan.Dir, h.master.Store); err != nil {
		return err
	}
	if err := h.master.Start(); err != nil {
		return err
	}
	if _, err := h.master.AwaitServing(ctx); err != nil {
		return err
	}
	if h.subject.isJVM() {
		return h.settle(ctx)
	}
	return nil
}

// dropFromMemory writes a store's files back and takes them out of the page cache. What is mapped by a process stays.
func dropFromMemory(fileSystem, store string) error {
	if err := syncDir(fileSystem); err != nil {
		return err
	}
	return filepath.WalkDir(store, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// readOverAndOver reads the backlog from its first message to its last, and again, until ctx ends; it counts the messages.
func (h *host) readOverAndOver(ctx context.Context, count int64, read *atomic.Int64) error {
	cfg := load.DefaultConfig()
	cfg.Workload, cfg.Broker, cfg.Topics, cfg.From = load.Consume, h.addr(), []string{backlogTopic}, load.FromFirst
	cfg.Connections, cfg.Count, cfg.Rate = 1, count/fillBatch*fillBatch, backlogRate
	for ctx.Err() == nil {
		r, err := load.Run(ctx, cfg, load.Hooks{})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("consumer of the backlog: %w", err)
		}
		if r != nil {
			read.Add(r.Messages)
		}
	}
	return nil
}
