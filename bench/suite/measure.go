// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"loopmq/bench/load"
	"loopmq/bench/proc"
	"loopmq/bench/result"
)

// drainLimit bounds the reading of a backlog.
const drainLimit = 5 * time.Minute

// measure is a subject's turn.
func (h *host) measure(ctx context.Context) ([]*result.Result, error) {
	if h.row.Settings.Workload == LogSize {
		return h.measureLogSize(ctx)
	}
	r, err := h.measureOne(ctx)
	return []*result.Result{r}, err
}

func (h *host) measureOne(ctx context.Context) (*result.Result, error) {
	switch h.row.Settings.Workload {
	case Start:
		return h.measureStart(ctx)
	case Idle:
		return h.measureIdle(ctx)
	case Recovery:
		return h.measureRecovery(ctx)
	case CatchUp:
		return h.measureCatchUp(ctx)
	}
	if err := h.wake(ctx); err != nil {
		return nil, err
	}
	s := h.settings()
	switch s.Workload {
	case load.Drain:
		if s.Client != "" { // our own generator fills by itself
			if err := h.fill(ctx, topic, s.Count); err != nil {
				return nil, err
			}
		}
		return h.window(ctx, s, 0, drainLimit)
	case Replication:
		return h.measureLag(ctx, s)
	case OpenLoop:
		return h.measureOpenLoop(ctx, s)
	case Stalled:
		return h.measureStalled(ctx, s)
	}
	return h.window(ctx, s, h.plan.warmup(s), h.plan.Duration)
}

// measureStart is the time from exec to the first accepted message, with an empty store.
func (h *host) measureStart(ctx context.Context) (*result.Result, error) {
	if err := h.master.Wipe(); err != nil {
		return nil, err
	}
	r := &result.Result{Settings: h.row.Settings, Started: time.Now()}
	if err := h.master.Start(); err != nil {
		return nil, err
	}
	took, err := h.master.AwaitServing(ctx)
	r.TookSeconds = took.Seconds()
	return r, err
}

// idleSettle is the time after a start in which a broker still has something to do.
const idleSettle = 5 * time.Second

// measureIdle is what a broker uses that has been started, has accepted a message, and is left alone.
func (h *host) measureIdle(ctx context.Context) (*result.Result, error) {
	if err := h.master.Wipe(); err != nil {
		return nil, err
	}
	if err := proc.Serve(ctx, h.master); err != nil {
		return nil, err
	}
	if err := sleep(ctx, idleSettle); err != nil {
		return nil, err
	}
	meter := proc.NewMeter(h.targets(), 0)
	if err := meter.Begin(); err != nil {
		return nil, err
	}
	began := time.Now()
	r := &result.Result{Settings: h.row.Settings, Started: began}
	if err := sleep(ctx, time.Duration(h.row.Settings.Duration)); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	return r, meter.End(r)
}

// firstFile is the name of a log's first file.
var firstFile = fmt.Sprintf("%020d", 0)

// storedBytes is what a message of 1 KiB takes in the log, with its header and properties.
const storedBytes = 1024 + 200

const (
	crashRate = 5000            // messages a second while the broker is killed
	crashLoad = 2 * time.Second // until it is
)

// measureRecovery is the time from exec to the first accepted message, after kill -9 under load.
func (h *host) measureRecovery(ctx context.Context) (*result.Result, error) {
	if err := h.wake(ctx); err != nil {
		return nil, err
	}
	if err := h.fill(ctx, topic, h.row.LogBytes/storedBytes); err != nil {
		return nil, err
	}
	s := h.settings()
	s.Workload, s.Mode, s.Connections, s.Window, s.Rate = load.Produce, load.ModePipelined, 4, 64, crashRate
	s.Warmup, s.Duration, s.Timeout = 0, result.Duration(time.Minute), result.Duration(2*time.Second)
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		// What fails is what is asked for.
		_, _ = load.Run(loading, load.Config{Settings: s}, load.Hooks{})
	}()
	err := sleep(ctx, crashLoad)
	end, endErr := h.master.LogEnd(ctx)
	h.master.Kill()
	stopLoad()
	<-loaded
	if err := errors.Join(err, endErr); err != nil {
		return nil, err
	}
	r := &result.Result{Settings: h.row.Settings, Started: time.Now(), LogBytes: end}
	r.Settings.Rate, r.Settings.Mode = crashRate, load.ModePipelined
	if err := h.master.Start(); err != nil {
		return nil, err
	}
	took, err := h.master.AwaitServing(ctx)
	r.TookSeconds = took.Seconds()
	return r, err
}

// measureCatchUp is the time in which an empty slave copies the log, from the first byte to the last.
func (h *host) measureCatchUp(ctx context.Context) (*result.Result, error) {
	if err := h.wake(ctx); err != nil {
		return nil, err
	}
	count := h.row.LogBytes / storedBytes
	if err := h.fill(ctx, topic, count); err != nil {
		return nil, err
	}
	slave := h.slaves[0]
	if err := slave.Wipe(); err != nil {
		return nil, err
	}
	end, err := h.master.LogEnd(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := h.site.Dir("pump")
	if err != nil {
		return nil, err
	}
	pumped, pumpSynced, err := pump(ctx, filepath.Join(h.master.Store, "commitlog", firstFile), filepath.Join(dir, "copy"), end)
	if err != nil {
		return nil, err
	}
	if err := syncDir(h.plan.Dir); err != nil {
		return nil, err
	}
	if err := slave.Start(); err != nil {
		return nil, err
	}
	file := filepath.Join(slave.Store, "commitlog", firstFile)
	first, err := awaitBytes(ctx, slave.Process, file, 0, 16)
	if err != nil {
		return nil, err
	}
	meter := proc.NewMeter(h.targets(), 0) // from here on: what a JVM takes to start is not copying
	if err := meter.Begin(); err != nil {
		return nil, err
	}
	r := &result.Result{Settings: h.row.Settings, Started: first, Messages: count, LogBytes: end}
	r.PumpSeconds, r.PumpSynced = pumped.Seconds(), pumpSynced.Seconds()
	last, err := awaitBytes(ctx, slave.Process, file, end-64, 64)
	if err != nil {
		return nil, err
	}
	r.TookSeconds = last.Sub(first).Seconds()
	r.Seconds = r.TookSeconds
	if err := meter.End(r); err != nil {
		return nil, err
	}
	if err := syncFile(file); err != nil {
		return nil, err
	}
	r.SyncedSeconds = time.Since(first).Seconds()
	slave.Kill()
	return r, nil
}

// syncFile returns when all that anybody has written to a file is on the disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// catchUpLimit bounds the copying of a log.
const catchUpLimit = 2 * time.Minute

// awaitBytes waits until a file holds something at offset. A log is written in order, so what is before is there too. The
// file is read because asking a broker for its end takes longer, and a JVM that starts answers late.
func awaitBytes(ctx context.Context, p *proc.Process, path string, offset int64, n int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	b := make([]byte, n)
	for {
		if holds(path, offset, b) {
			return time.Now(), nil
		}
		select {
		case <-p.Ended():
			return time.Time{}, p.Failure()
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("nothing at %d of the slave's log: %w", offset, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func holds(path string, offset int64, b []byte) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.ReadAt(b, offset)
	for _, c := range b[:n] {
		if c != 0 {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
