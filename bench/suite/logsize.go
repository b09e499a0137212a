// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/bench/proc"
	"loopmq/bench/result"
)

const (
	logFirst = 1 << 20 // of the first decade; what is before it is the warm-up
	// diskFactor is a store with its queues and its index to its log alone.
	diskFactor = 1.25
	// diskSpare is what must be left beside the store, and the part of the disk: a broker deletes its oldest files when 85 in a
	// hundred are used. Source: DefaultMessageStore.CleanCommitLogService#getDiskSpaceCleanForciblyRatio.
	diskSpare     = 3 << 30
	diskSparePart = 0.16
)

var logSizes = []int64{logFirst, 10 << 20, 100 << 20, 1 << 30, 10 << 30, 100 << 30}

// decades are the sizes of a log at which a figure is taken, up to the last.
func decades(most int64) []int64 {
	var all []int64
	for _, size := range logSizes {
		if size < most {
			all = append(all, size)
		}
	}
	return append(all, most)
}

func logRowName(from, to int64) string {
	return fmt.Sprintf("1 KiB into a log of %s to %s", logSizeName(from), logSizeName(to))
}

func logSizeName(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.3g GiB", float64(bytes)/(1<<30))
	default:
		return fmt.Sprintf("%.3g MiB", float64(bytes)/(1<<20))
	}
}

// measureLogSize fills an empty store, with a result for each decade of the log's size.
func (h *host) measureLogSize(ctx context.Context) ([]*result.Result, error) {
	most, err := h.logLimit()
	if err != nil {
		return nil, err
	}
	if err := h.master.Wipe(); err != nil {
		return nil, err
	}
	if err := proc.Serve(ctx, h.master); err != nil {
		return nil, err
	}
	if err := h.createTopic(ctx); err != nil {
		return nil, err
	}
	sizes := decades(most)
	if _, err := h.growLog(ctx, sizes[0]); err != nil {
		return nil, err
	}
	var results []*result.Result
	for i, size := range sizes[1:] {
		r, err := h.growLog(ctx, size)
		if err != nil {
			return nil, err
		}
		r.Row = logRowName(sizes[i], size)
		if i > 0 {
			r.Base = results[0].Row
		}
		results = append(results, r)
	}
	return results, h.master.Wipe()
}

// growLog sends until the log has a size.
func (h *host) growLog(ctx context.Context, size int64) (*result.Result, error) {
	end, err := h.master.LogEnd(ctx)
	if err != nil {
		return nil, err
	}
	s := h.settings()
	s.Count, s.Timeout = max((size-end)/storedBytes, 1), result.Duration(time.Minute)
	r, err := h.lean(ctx, s)
	if err != nil {
		return nil, err
	}
	r.LogBytes, err = h.master.LogEnd(ctx)
	return r, err
}

// logLimit is how large the log may become: what the plan says, if the disk has room for it.
func (h *host) logLimit() (int64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(h.plan.Dir, &disk); err != nil {
		return 0, err
	}
	free, used := int64(disk.Bavail)*disk.Bsize, int64(disk.Blocks-disk.Bfree)*disk.Bsize
	spare := max(diskSpare, diskSparePart*float64(used+free))
	room := int64((float64(free) - spare) / diskFactor)
	if h.plan.LogMax <= room {
		return h.plan.LogMax, nil
	}
	var most int64
	for _, size := range logSizes[1:] {
		if size <= room {
			most = size
		}
	}
	if most == 0 {
		return 0, fmt.Errorf("a log of %s: the disk of %s has %s left", logSizeName(h.plan.LogMax), h.plan.Dir, logSizeName(free))
	}
	h.plan.Say(fmt.Sprintf("  %s: the log grows to %s, not %s: the disk of %s has %s left", h.subject.Name, logSizeName(most), logSizeName(h.plan.LogMax), h.plan.Dir, logSizeName(free)))
	return most, nil
}
