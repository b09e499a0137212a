// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loopmq/bench/peer"
	"loopmq/bench/result"
	"loopmq/bench/suite"
)

func newBenchCompareCommand() *cobra.Command {
	var (
		run               planFlags
		files             reportFiles
		servers           []string
		set, only         string
		clientOf          string
		rounds            int
		logMax            int64
		again, list, fill bool
	)
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure several servers side by side",
		Long: `Run the same work against several servers on this machine, in turns, and compare them with the first one.

Each row of work starts servers of its own with empty stores on loopback. In each round every server has a turn; who is
not measured uses nothing. The table has the median over the rounds with the least and the largest, and the ratio to the
first server: that of the medians, with the least and the largest ratio of a round. --again measures the first server a
second time, as if it were another one: how far its ratio is from 1 is the noise of the others.

` + serversHelp,
		Example: `  loopmq bench compare --servers loopmq,java:4.9.7,java:5.3.3 --again --rounds 5 --html report.html
  loopmq bench compare --servers loopmq:bin/before,loopmq --set alone --rounds 5 --only 1.KiB
  loopmq bench compare --servers loopmq,java:4.9.7 --set openloop --duration 10m
  loopmq bench compare --servers loopmq --set scaling --log-max 4096
  loopmq bench compare --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := chooseRows(set, only)
			if err := errors.Join(err, run.check(), atLeast("rounds", rounds, 1), atLeast("log-max", logMax, 1)); err != nil {
				return err
			}
			ctx, stop := benchInterrupt(cmd.Context())
			defer stop()
			say := func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
			var results []*result.Result
			plan, err := run.plan(say, &results)
			if err != nil {
				return err
			}
			plan.Rows, plan.Rounds, plan.LogMax, plan.FillPageCache = rows, rounds, logMax<<20, fill
			run.site.unfetched = list
			for i, name := range servers {
				if slices.Contains(servers[:i], name) {
					return fmt.Errorf("--servers: %s is named twice; --again measures the first one a second time", name)
				}
				subject, err := run.site.subject(ctx, name)
				if err != nil {
					return err
				}
				plan.Subjects = append(plan.Subjects, subject)
			}
			if again {
				second := plan.Subjects[0]
				second.Name += " again"
				plan.Subjects = append(plan.Subjects, second)
			}
			if list {
				listRows(cmd.OutOrStdout(), plan)
				return nil
			}
			say(fmt.Sprintf("%d rows, about %s", len(rows), roundTime(plan.Expect())))
			if slices.ContainsFunc(rows, func(r suite.Row) bool { return r.Settings.Client != "" }) {
				if plan.Client, err = peer.Fetch(ctx, clientOf, peer.Programs()); err != nil {
					return err
				}
			}
			collect := plan.Done
			plan.Done = func(r *result.Result) error {
				_ = collect(r)
				if files.json == "" {
					return nil
				}
				// What is measured is kept, whatever becomes of the rest.
				return (&reportFiles{json: files.json}).writeFiles("", results)
			}
			err = plan.Run(ctx)
			return errors.Join(err, files.write(cmd.OutOrStdout(), "loopmq bench compare", results))
		},
	}
	flags := cmd.Flags()
	run.register(flags, 8*time.Second)
	files.register(flags)
	flags.StringSliceVar(&servers, "servers", []string{"loopmq", "java:4.9.7", "java:5.3.3"}, "servers; the first one is what the others are compared with")
	flags.StringVar(&set, "set", "peers", "rows of work: `"+setNames(", ")+"`")
	flags.StringVar(&only, "only", "", "of these rows, those whose name matches this regular `expression`")
	flags.StringVar(&clientOf, "client", "4.9.7", "`release` whose client drives the rows that go through Java's client, for all servers")
	flags.IntVar(&rounds, "rounds", 3, "turns of each server in each row")
	flags.BoolVar(&again, "again", false, "measure the first server twice, to see the noise")
	flags.Int64Var(&logMax, "log-max", 16<<10, "`MiB` to which the row of a growing log fills it, if the disk has room")
	flags.BoolVar(&fill, "fill-page-cache", false, "before each turn leave no memory unused, with a file of its size in --dir")
	flags.BoolVar(&list, "list", false, "print the names of the rows with about how long each takes, and end")
	return cmd
}

func setNames(between string) string {
	return strings.Join(slices.Sorted(maps.Keys(suite.Sets())), between)
}

// listRows prints the rows of a plan with what each of them is going to take.
func listRows(w io.Writer, plan *suite.Plan) {
	for _, row := range plan.Rows {
		fmt.Fprintf(w, "%8s  %s\n", roundTime(plan.ExpectRow(row)), row.Name)
	}
	fmt.Fprintf(w, "%8s  all\n", roundTime(plan.Expect()))
}

// roundTime is a time as people say it: 40s, 5m30s, 1h2m.
func roundTime(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 10*time.Minute:
		return d.Round(10 * time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func chooseRows(set, only string) ([]suite.Row, error) {
	rowsOf, ok := suite.Sets()[strings.ToLower(set)]
	if !ok {
		return nil, fmt.Errorf("--set %q: want one of %s", set, setNames(", "))
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	rows := slices.DeleteFunc(rowsOf(), func(r suite.Row) bool { return !match.MatchString(r.Name) })
	if len(rows) == 0 {
		return nil, fmt.Errorf("--only %q matches no row", only)
	}
	return rows, nil
}
