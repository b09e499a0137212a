// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loopmq/bench/load"
	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/engine"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Load a broker and measure it, loopmq or RocketMQ's own",
		Long: `Load a broker and measure it: loopmq, or RocketMQ 4.x and 5.x. Only the wire protocol is used, so figures of
different brokers compare.

The generator takes processor time as well. It shows its own next to the server's (--server-pid); where both share a
machine, the server's CPU seconds per million messages say more than the rate.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		newBenchLoadCommand(load.Produce, benchVerb{
			short: "Send, as fast as answers come or at a fixed rate",
			long: `Send messages and measure rate and latency.

Without --rate each answer makes room for the next request; the latency is that of a request. With --rate messages
are sent when they are due, and the latency of one that could not be sent in time counts from when it was due. Those
that were due and had no room until the end count as UNSENT.

  sync       --threads requests in flight, shared out over the connections, each written alone
  pipelined  --window requests in flight on each connection, written together
  batch      as pipelined, with --batch messages in a request
  oneway     nothing is answered; the rate is what the connection takes`,
			example: `  loopmq bench produce --broker 127.0.0.1:10911 --duration 30s
  loopmq bench produce --namesrv 127.0.0.1:9876 --mode sync --threads 64 --connections 64 --body 128
  loopmq bench produce --broker 127.0.0.1:10911 --rate 5000 --duration 10m --html produce.html
  loopmq bench produce --broker 127.0.0.1:10911 --mode batch --batch 32 --server-pid $(pidof loopmq) --json batch.json
  loopmq bench produce --config batch.json`,
		}),
		newBenchLoadCommand(load.Consume, benchVerb{
			short: "Pull with long polling, in one or more groups",
			long: `Pull all queues of the topics, each group for itself, and count. The latency is from when a message was due at its
sender, if "loopmq bench" sent it on a machine with the same clock, to its arrival.`,
			example: `  loopmq bench consume --broker 127.0.0.1:10911 --groups 3 --duration 1m
  loopmq bench consume --namesrv 127.0.0.1:9876 --topics orders --from first --count 1000000`,
		}),
		newBenchLoadCommand(load.Drain, benchVerb{
			short: "Fill topics, then read them as fast as possible",
			long: `Send --count messages, then read them with pulls of --pull-batch, one under way on each queue for each group. Rate
and latency are those of reading; a latency is that of a pull.`,
			example: `  loopmq bench drain --broker 127.0.0.1:10911 --count 2000000
  loopmq bench drain --broker 127.0.0.1:10911 --count 500000 --groups 4 --body 100-2000`,
		}),
		newBenchLoadCommand(load.Latency, benchVerb{
			short: "Measure from the sender to the consumer at a fixed rate",
			long: `Send at a fixed rate while consumers wait in long polls; a latency is from when a message was due to be sent to its
arrival at a consumer. What was acknowledged and does not arrive, in --timeout after the rest, counts as UNREAD.`,
			example: `  loopmq bench latency --broker 127.0.0.1:10911 --rate 1000 --duration 1m
  loopmq bench latency --broker 127.0.0.1:10911 --rate 20000 --groups 2 --html latency.html`,
		}),
		newBenchLoadCommand(load.Produce, benchVerb{
			use:   "verify",
			short: "Send, read everything back, account for each acknowledged message",
			long: `Send, read everything back, and account for each acknowledged message: lost, duplicated, reordered, corrupt, or in
another place than its answer said. Messages that came without having been acknowledged are counted apart. The command
fails if anything is wrong, and names the first message of each kind; also when it is interrupted before it has read all.
A run ends after 200,000,000 messages: each takes some memory of this process.

A message is reordered when it lies behind one of the same sender and queue that was sent after its acknowledgement.
Messages that were in flight together may lie in either order. With --mode oneway nothing is acknowledged, so nothing can
be lost: what came is counted, and fails when it came twice, out of order or changed.`,
			example: `  loopmq bench verify --broker 127.0.0.1:10911 --count 1000000
  loopmq bench verify --broker 127.0.0.1:10911 --duration 1m --body 64:50,1024:40,100000:10`,
			set: func(c *load.Config) { c.Verify = true },
		}),
		newBenchReplicationCommand(),
		newBenchRecoveryCommand(),
		newBenchCompareCommand(),
		newBenchReportCommand(),
		newBenchNullCommand(),
	)
	return cmd
}

// benchVerb is what a verb says of itself.
type benchVerb struct {
	use, short, long, example string
	set                       func(*load.Config)
}

func newBenchLoadCommand(workload string, v benchVerb) *cobra.Command {
	cfg := load.DefaultConfig()
	if v.set != nil {
		v.set(&cfg)
	}
	if v.use == "" {
		v.use = workload
	}
	var out benchOutput
	var config string
	cmd := &cobra.Command{Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: cobra.NoArgs}
	flags := flag.NewFlagSet(v.use, flag.ContinueOnError)
	cfg.RegisterFlags(flags, workload)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if config != "" {
			if err := readBenchConfig(cmd.Flags(), flags, &cfg, config); err != nil {
				return err
			}
		}
		if v.set != nil {
			v.set(&cfg) // whatever the file says
		}
		return runBenchLoad(cmd.Context(), cmd.OutOrStdout(), cfg, &out, v.use)
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().AddGoFlagSet(flags)
	cmd.Flags().StringVarP(&config, "config", "c", "", "`file` of settings: JSON, with the names of the flags and _ for -, or one that --json wrote; flags go over it")
	out.register(cmd.Flags())
	return cmd
}

// readBenchConfig reads a file, and sets again what flags on the command line have set: those of settings, the file's.
func readBenchConfig(flags *pflag.FlagSet, settings *flag.FlagSet, cfg *load.Config, path string) error {
	given := make(map[*pflag.Flag]string)
	flags.Visit(func(f *pflag.Flag) {
		if settings.Lookup(f.Name) != nil {
			given[f] = f.Value.String()
		}
	})
	if err := cfg.ReadFile(path); err != nil {
		return err
	}
	var errs []error
	for f, value := range given {
		errs = append(errs, f.Value.Set(value))
	}
	// Of two that exclude each other, that of the command line is meant.
	instead := func(one, other string) bool { return flags.Changed(one) && !flags.Changed(other) }
	if instead("namesrv", "broker") {
		cfg.Broker = ""
	}
	if instead("broker", "namesrv") {
		cfg.NameSrv = ""
	}
	if instead("duration", "count") && cfg.Workload != load.Drain {
		cfg.Count = 0
	}
	return errors.Join(errs...)
}

// benchOutput is what a run leaves behind, and whom it watches.
type benchOutput struct {
	reportFiles
	label   string
	pids    []int
	admin   string
	profile string
}

func (o *benchOutput) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.label, "label", "", "name of the run in tables and plots")
	o.reportFiles.register(flags)
	flags.IntSliceVar(&o.pids, "server-pid", nil, "`pid` of the broker on this machine, or of master,slave: shows what it uses")
	flags.StringVar(&o.profile, "profile", "", "collect CPU, heap, mutex and block profiles of the broker in this `directory`")
	flags.StringVar(&o.admin, "admin", engine.DefaultAdminAddr, "`address` of the broker's admin port, for --profile")
}

// benchGCPercent keeps the generator's own collector out of the latencies.
const benchGCPercent = 400

func runBenchLoad(ctx context.Context, stdout io.Writer, cfg load.Config, out *benchOutput, verb string) error {
	debug.SetGCPercent(benchGCPercent)
	ctx, stop := benchInterrupt(ctx)
	defer stop()
	hooks := load.Hooks{}
	progress := newBenchProgress(os.Stderr)
	hooks.Progress = progress.show
	hooks.Meter = proc.NewMeter(out.targets(), 0)
	profiles := newBenchProfiles(out)
	if profiles != nil {
		if err := profiles.check(); err != nil {
			return err
		}
		window := time.Duration(cfg.Duration)
		if cfg.Count > 0 {
			window = 0 // nobody knows
		}
		hooks.Begin = func() { profiles.begin(window) }
		hooks.End = profiles.end
	}
	r, err := load.Run(ctx, cfg, hooks)
	progress.done()
	if r == nil {
		return err
	}
	if profiles != nil {
		err = errors.Join(err, profiles.finish(ctx))
	}
	r.Tool = result.Build{Name: "loopmq", Version: versionText()}
	r.Host = proc.HostOf("")
	r.Label = verb
	if out.label != "" {
		r.Label = out.label
	}
	return errors.Join(err, out.write(stdout, "loopmq bench "+verb, []*result.Result{r}))
}

func (o *benchOutput) targets() []proc.Target {
	names := []string{"master", "slave"}
	var targets []proc.Target
	for i, pid := range o.pids {
		name := fmt.Sprintf("server %d", i)
		if i < len(names) {
			name = names[i]
		}
		targets = append(targets, proc.Target{Name: name, PID: pid})
	}
	return targets
}

func createFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
