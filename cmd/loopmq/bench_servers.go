// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"loopmq/bench/peer"
	"loopmq/bench/proc"
	"loopmq/bench/result"
	"loopmq/bench/suite"
)

const serversHelp = `Servers are named
  loopmq               this program
  loopmq:PATH          another build of it
  java:VERSION         Apache RocketMQ, 4.9.7 or 5.3.3; fetched with Maven at the first time, needs a JDK
  HOST:PORT[#PID]      a broker that runs already; without its process id its own figures are not known`

// benchInterrupt is a context that SIGINT or SIGTERM ends, or the end of the terminal; a second one ends the process, and with
// it all it started.
func benchInterrupt(parent context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(parent, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// siteFlags are those of verbs that start servers.
type siteFlags struct {
	dir, heap string
	unfetched bool // releases of Java are only named, not run
}

func (f *siteFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.dir, "dir", os.TempDir(), "`directory` for the stores of servers that are started; on the disk that is to be measured")
	flags.StringVar(&f.heap, "java-heap", "4g", "heap of Java brokers")
}

// subject is the server that a name says.
func (f *siteFlags) subject(ctx context.Context, name string) (suite.Subject, error) {
	kind, rest, named := strings.Cut(name, ":")
	switch {
	case name == "loopmq":
		self, err := os.Executable()
		return suite.Subject{Name: name, Flavour: proc.Loopmq{Binary: self, Version: buildVersion()}}, err
	case kind == "loopmq" && named:
		return otherBuild(name, rest)
	case kind == "java" && named && f.unfetched:
		return suite.Subject{Name: name, Flavour: peer.Broker{}}, nil
	case kind == "java" && named:
		release, err := peer.Fetch(ctx, rest, peer.Programs())
		return suite.Subject{Name: name, Flavour: peer.Broker{Peer: release, Heap: f.heap}}, err
	}
	addr, process, known := strings.Cut(name, "#")
	s := suite.Subject{Name: addr, Addr: addr}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return s, fmt.Errorf("server %q is neither loopmq, loopmq:PATH, java:VERSION nor HOST:PORT[#PID]", name)
	}
	if known {
		pid, err := strconv.Atoi(process)
		if err != nil || pid <= 0 {
			return s, fmt.Errorf("server %q: %q is not a process id", name, process)
		}
		s.PID = pid
	}
	return s, nil
}

// startable is a subject that can be started, and so be killed.
func (f *siteFlags) startable(ctx context.Context, name string) (suite.Subject, error) {
	s, err := f.subject(ctx, name)
	if err == nil && s.Flavour == nil {
		err = fmt.Errorf("server %q runs already: want one that can be started and killed", name)
	}
	return s, err
}

// otherBuild asks another binary for its version.
func otherBuild(name, path string) (suite.Subject, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return suite.Subject{}, err
	}
	out, err := exec.Command(path, "version").Output()
	if err != nil {
		return suite.Subject{}, fmt.Errorf("%s version: %w", path, err)
	}
	words := strings.Fields(string(out))
	if len(words) < 2 || words[0] != "loopmq" {
		return suite.Subject{}, fmt.Errorf("%s version says %q", path, out)
	}
	return suite.Subject{Name: name, Flavour: proc.Loopmq{Binary: path, Version: words[1]}}, nil
}

// buildVersion is the version without what Go says of itself.
func buildVersion() string {
	words := strings.Fields(versionText())
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func toolBuild() result.Build { return result.Build{Name: "loopmq", Version: buildVersion()} }

// planFlags are those of verbs that run a plan.
type planFlags struct {
	site             siteFlags
	warmup, duration time.Duration
	settle           time.Duration
}

func (f *planFlags) register(flags *pflag.FlagSet, duration time.Duration) {
	f.site.register(flags)
	flags.DurationVar(&f.warmup, "warmup", 2*time.Second, "load before each measured window")
	flags.DurationVar(&f.duration, "duration", duration, "measured window")
	flags.DurationVar(&f.settle, "settle", 20*time.Second, "unmeasured load at first, for servers and clients that compile as they run")
}

// atLeast refuses a number of a flag that is too small.
func atLeast[T cmp.Ordered](flag string, v, least T) error {
	if v < least {
		return fmt.Errorf("--%s is %v: want %v or more", flag, v, least)
	}
	return nil
}

// check refuses times that make no window.
func (f *planFlags) check() error {
	return errors.Join(atLeast("warmup", f.warmup, 0), atLeast("duration", f.duration, time.Millisecond), atLeast("settle", f.settle, 0))
}

// plan is a plan without rows and subjects. Results are added to all as they come.
func (f *planFlags) plan(say func(string), all *[]*result.Result) (*suite.Plan, error) {
	debug.SetGCPercent(benchGCPercent)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	progress := newBenchProgress(os.Stderr)
	plan := &suite.Plan{
		Rounds: 1, Warmup: f.warmup, Duration: f.duration, Settle: f.settle, Dir: f.site.dir, Binary: self, Tool: toolBuild(),
		Say: func(text string) {
			progress.done()
			say(text)
		},
		Done: func(r *result.Result) error {
			*all = append(*all, r)
			return nil
		},
	}
	if progress.terminal {
		plan.Progress = progress.show
	}
	return plan, nil
}
