// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"sort"
	"time"

	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/bench/wire"
)

const (
	// lagPeriod is how often the ends of both logs are asked for.
	lagPeriod = 100 * time.Millisecond
	// lagTimeout is how long a broker under load may take to tell.
	lagTimeout = time.Minute
)

// Lag follows how far a slave's log is behind its master's.
type Lag struct {
	ends  []logEnd // of the master, of the time that the slave may be behind
	worst []behind
}

type logEnd struct {
	at  time.Duration
	end int64
}

type behind struct {
	at      time.Duration
	bytes   int64
	seconds float64
}

// lagMemory is how many of the master's ends are kept: a lag of an hour is told as an hour.
const lagMemory = int(time.Hour / lagPeriod)

// Observe takes the master's end, seen at masterAt, and then the slave's, seen a little later at slaveAt. The lag in time
// is since when the master has had what the slave has now; between two observations the log is taken to have grown evenly.
func (l *Lag) Observe(masterAt time.Duration, master int64, slaveAt time.Duration, slave int64) {
	if l.ends = append(l.ends, logEnd{masterAt, master}); len(l.ends) > lagMemory {
		l.ends = l.ends[len(l.ends)-lagMemory:]
	}
	b := behind{at: slaveAt}
	if slave < master {
		b.bytes = master - slave
		b.seconds = (masterAt - l.when(slave)).Seconds()
	}
	l.worst = append(l.worst, b)
}

// when is the time at which the master's log ended at end.
func (l *Lag) when(end int64) time.Duration {
	i := sort.Search(len(l.ends), func(i int) bool { return l.ends[i].end > end })
	if i == 0 {
		return l.ends[0].at
	}
	before, after := l.ends[i-1], l.ends[i]
	part := float64(end-before.end) / float64(after.end-before.end)
	return before.at + time.Duration(part*float64(after.at-before.at))
}

// Fill puts the largest lag of each sample's time into it. Samples and observations count from the same moment. A time without
// an observation, in which the brokers did not answer, has that of the next one, or at the end of the last: it is not 0.
func (l *Lag) Fill(samples []result.Sample, offset time.Duration) {
	for i := range samples {
		s := &samples[i]
		to := time.Duration(s.At*float64(time.Second)) + offset
		from := to - time.Duration(s.Seconds*float64(time.Second))
		first := sort.Search(len(l.worst), func(i int) bool { return l.worst[i].at > from })
		for n, b := range l.worst[min(first, max(len(l.worst)-1, 0)):] {
			if n > 0 && b.at > to {
				break
			}
			s.LagBytes, s.LagSeconds = max(s.LagBytes, b.bytes), max(s.LagSeconds, b.seconds)
		}
	}
}

// Follow observes until ctx ends; times count from began.
func (l *Lag) Follow(ctx context.Context, master, slave string, began time.Time) error {
	m, err := wire.Dial(ctx, master, wire.Options{Timeout: lagTimeout})
	if err != nil {
		return err
	}
	s, err := wire.Dial(ctx, slave, wire.Options{Timeout: lagTimeout})
	if err == nil {
		err = l.follow(ctx, m, s, began)
		s.Close()
		<-s.Done()
	}
	m.Close()
	<-m.Done()
	return err
}

func (l *Lag) follow(ctx context.Context, master, slave *wire.Conn, began time.Time) error {
	tick := time.NewTicker(lagPeriod)
	defer tick.Stop()
	for {
		m, masterErr := proc.LogEndOf(ctx, master)
		masterAt := time.Since(began)
		s, slaveErr := proc.LogEndOf(ctx, slave)
		slaveAt := time.Since(began)
		if ctx.Err() != nil {
			return nil
		}
		if err := errors.Join(masterErr, slaveErr); err != nil {
			return err
		}
		l.Observe(masterAt, m, slaveAt, s)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measureLag loads a master and follows its slave.
func (h *host) measureLag(ctx context.Context, s result.Settings) (*result.Result, error) {
	var lag Lag
	following, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	began := time.Now()
	go func() { failed <- lag.Follow(following, h.master.Addr, h.slaves[0].Addr, began) }()
	r, err := h.window(ctx, s, h.plan.Warmup, h.plan.Duration)
	stop()
	if err = errors.Join(err, <-failed); err != nil {
		return nil, err
	}
	lag.Fill(r.Samples, r.Started.Sub(began))
	return r, nil
}
