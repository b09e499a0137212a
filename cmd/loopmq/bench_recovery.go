// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"loopmq/bench/result"
	"loopmq/bench/suite"
)

func newBenchRecoveryCommand() *cobra.Command {
	var (
		site   siteFlags
		files  reportFiles
		server string
		log    int64
		rounds int
		sync   bool
	)
	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "Measure how long a broker takes to serve again after kill -9",
		Long: `Start a broker, fill its log, kill it with SIGKILL under load, start it again, and take the time from exec to the first
accepted message. The page cache survives: this is the death of the process, not of the machine.`,
		Example: `  loopmq bench recovery
  loopmq bench recovery --server java:4.9.7 --log-mib 4096`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(atLeast("rounds", rounds, 1), atLeast("log-mib", log, 1)); err != nil {
				return err
			}
			ctx, stop := benchInterrupt(cmd.Context())
			defer stop()
			run := planFlags{site: site}
			var results []*result.Result
			plan, err := run.plan(func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }, &results)
			if err != nil {
				return err
			}
			subject, err := site.startable(ctx, server)
			if err != nil {
				return err
			}
			plan.Subjects, plan.Rounds = []suite.Subject{subject}, rounds
			plan.Rows = []suite.Row{suite.RecoveryRow(log<<20, sync)}
			err = plan.Run(ctx)
			return errors.Join(err, files.write(cmd.OutOrStdout(), "loopmq bench recovery", results))
		},
	}
	flags := cmd.Flags()
	site.register(flags)
	files.register(flags)
	flags.StringVar(&server, "server", "loopmq", "which broker: loopmq, loopmq:PATH or java:VERSION")
	flags.Int64Var(&log, "log-mib", 1024, "log to begin with")
	flags.IntVar(&rounds, "rounds", 3, "how often")
	flags.BoolVar(&sync, "sync-flush", false, "with SYNC_FLUSH")
	return cmd
}
