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
	asked := s
	if s.Workload == Replication {
		s.Workload = load.Produce
	}
	r, err := load.Run(ctx, load.Config{Settings: s}, load.Hooks{Meter: proc.NewMeter(h.targets(), 0)})
	if err != nil {
		return nil, err
	}
	r.Settings.Workload = asked.Workload
	return r, ctx.Err()
}
