// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"loopmq/bench/result"
	"loopmq/bench/suite"
)

func newBenchReplicationCommand() *cobra.Command {
	var (
		run                 planFlags
		files               reportFiles
		server, body        string
		rate                float64
		connections, window int
		sync                bool
	)
	cmd := &cobra.Command{
		Use:   "replication",
		Short: "Measure how far a slave is behind its master under load",
		Long: `Start a master and a slave, load the master, and ask both ten times a second where their logs end. The lag in bytes is the
difference; the lag in time is since when the master has had what the slave has now. The master is asked first, so a
slave is never shown as closer than it was; a lag below the time between two questions is what the questions cost.`,
		Example: `  loopmq bench replication --rate 50000
  loopmq bench replication --server java:5.3.3 --sync-master --html lag.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := run.check(); err != nil {
				return err
			}
			ctx, stop := benchInterrupt(cmd.Context())
			defer stop()
			var results []*result.Result
			plan, err := run.plan(func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }, &results)
			if err != nil {
				return err
			}
			subject, err := run.site.startable(ctx, server)
			if err != nil {
				return err
			}
			plan.Subjects = []suite.Subject{subject}
			plan.Rows = []suite.Row{suite.ReplicationRow(suite.Pipeline{Body: body, Connections: connections, Window: window, Rate: rate}, sync)}
			err = plan.Run(ctx)
			for _, r := range results {
				r.Label, r.Row = r.Subject+", "+r.Row, "" // one run, to be shown whole
			}
			return errors.Join(err, files.write(cmd.OutOrStdout(), "loopmq bench replication", results))
		},
	}
	flags := cmd.Flags()
	run.register(flags, 30*time.Second)
	files.register(flags)
	flags.StringVar(&server, "server", "loopmq", "which brokers: loopmq, loopmq:PATH or java:VERSION")
	flags.Float64Var(&rate, "rate", 0, "messages a second; 0 is as fast as they are answered")
	flags.StringVar(&body, "body", "1024", "bytes of a body, or a distribution as of bench produce")
	flags.IntVar(&connections, "connections", 4, "connections of the load")
	flags.IntVar(&window, "window", 64, "requests in flight on each of them")
	flags.BoolVar(&sync, "sync-master", false, "with SYNC_MASTER: a send waits for the slave")
	return cmd
}
