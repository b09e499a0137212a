// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"

	"loopmq/bench/load"
	"loopmq/bench/proc"
	"loopmq/bench/result"
)

// lean runs load of our own generator, in this process.
func (h *host) lean(ctx context.Context, s result.Settings) (*result.Result, error) {
	return h.leanHooked(ctx, s, load.Hooks{})
}

func (h *host) leanHooked(ctx context.Context, s result.Settings, hooks load.Hooks) (*result.Result, error) {
	asked := s
	if s.Workload != load.Drain {
		s.Workload = load.Produce // and something of ours beside it
	}
	hooks.Meter, hooks.Progress = proc.NewMeter(h.targets(), 0), h.plan.Progress
	r, err := load.Run(ctx, load.Config{Settings: s}, hooks)
	if err != nil {
		return nil, err
	}
	r.Settings.Workload, r.Settings.Slaves, r.Settings.Backlog = asked.Workload, asked.Slaves, asked.Backlog
	return r, ctx.Err()
}
