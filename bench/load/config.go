// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

// Modes of producers.
const (
	ModeSync      = "sync"
	ModePipelined = "pipelined"
	ModeBatch     = "batch"
	ModeOneway    = "oneway"
)

// Workloads that Run knows.
const (
	Produce = "produce"
	Consume = "consume"
	Drain   = "drain"
	Latency = "latency"
)

// Where consumers begin.
const (
	FromFirst = "first"
	FromLast  = "last"
)

const (
	connectionsMax = 100_000
	topicsMax      = 100_000
	batchMax       = 1024
	groupsMax      = 1000
	pullBatchMax   = 1024
	// bodyMax leaves room for the header in a frame; brokers take 4 MiB unless told otherwise.
	bodyMax = 15 << 20
)

// Config says what to do. Its fields are those of result.Settings, so that a run's record is a file to repeat it with.
type Config struct {
	result.Settings
}

// DefaultConfig is a producer of 1 KiB messages on 4 connections.
func DefaultConfig() Config {
	return Config{result.Settings{
		Workload: Produce, Mode: ModePipelined,
		Topics: []string{"bench"}, Queues: 8, Connections: 4, Threads: 64, Window: 64, Batch: 32, Body: "1024",
		Groups: 1, PullBatch: 32, Serialize: "JSON",
		Warmup: result.Duration(3 * time.Second), Duration: result.Duration(10 * time.Second), Timeout: result.Duration(10 * time.Second),
		Hold: result.Duration(15 * time.Second), From: FromLast,
	}}
}

// RegisterFlags adds a flag for each field that workload uses; the names are those of the file with - for _.
func (c *Config) RegisterFlags(fs *flag.FlagSet, workload string) {
	c.Workload = workload
	fs.StringVar(&c.Broker, "broker", c.Broker, "`address` of a broker, host:port; or use --namesrv")
	fs.StringVar(&c.NameSrv, "namesrv", c.NameSrv, "`addresses` of name servers, host:port;host:port: the topic's masters are used")
	fs.Var((*listValue)(&c.Topics), "topics", "`names` of topics, a,b,c; bench*4 stands for bench-0 to bench-3")
	fs.IntVar(&c.Queues, "queues", c.Queues, "queues of each topic that is made for the run; one that exists keeps its own")
	fs.IntVar(&c.Connections, "connections", c.Connections, "connections to each broker")
	fs.StringVar(&c.Serialize, "serialize", c.Serialize, "`form` of headers, JSON or ROCKETMQ; Java clients use JSON unless told otherwise")
	fs.Var((*durationValue)(&c.Duration), "duration", "how long to measure")
	fs.Var((*durationValue)(&c.Warmup), "warmup", "how long to run before that; with --count there is none")
	count := "stop after so many messages, instead of after a time"
	if workload == Consume {
		count += "; of all groups together"
	}
	fs.Int64Var(&c.Count, "count", c.Count, count)
	fs.Var((*durationValue)(&c.Timeout), "timeout", "how long to wait for an answer")
	if workload != Consume {
		fs.StringVar(&c.Mode, "mode", c.Mode, "`how` to send: sync, pipelined, batch or oneway")
		fs.IntVar(&c.Threads, "threads", c.Threads, "sync: requests in flight, over all connections to a broker, each written alone")
		fs.IntVar(&c.Window, "window", c.Window, "pipelined, batch: requests in flight on each connection")
		fs.IntVar(&c.Batch, "batch", c.Batch, "batch: messages in a request")
		fs.StringVar(&c.Body, "body", c.Body, "`bytes` of a body: 1024, or 100-2000, or 128:70,1024:25,65536:5 (size:weight)")
		fs.BoolVar(&c.Plain, "plain", c.Plain, "messages without properties; stock producers send a unique key, which the broker indexes")
		fs.BoolVar(&c.Verify, "verify", c.Verify, "read everything back and account for each acknowledged message")
	}
	if workload == Produce || workload == Latency {
		fs.Float64Var(&c.Rate, "rate", c.Rate, "`messages` a second, sent when they are due (open loop); 0: as fast as answers come")
	}
	if workload == Consume {
		fs.Float64Var(&c.Rate, "rate", c.Rate, "`messages` a second, all groups together; 0: as fast as they come")
		fs.StringVar(&c.From, "from", c.From, "`where` to begin: at the first message there is, or behind the last")
	}
	if workload != Produce {
		fs.IntVar(&c.Groups, "groups", c.Groups, "consumer groups; each gets all messages")
		fs.IntVar(&c.PullBatch, "pull-batch", c.PullBatch, "messages to ask for in a pull")
		fs.Var((*durationValue)(&c.Hold), "hold", "how long the broker may hold a pull that finds nothing")
	}
}

// ReadFile reads settings from a JSON file, or from the first run of a file of results. Keys that are not in it stay, but for
// those that a record leaves out when they are zero, and that are not zero by default.
func (c *Config) ReadFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var record struct {
		Results []struct{ Settings json.RawMessage }
	}
	if json.Unmarshal(text, &record) == nil && len(record.Results) > 0 {
		text = record.Results[0].Settings
		c.Warmup, c.Hold = 0, 0
	}
	workload := c.Workload
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c.Settings); err != nil {
		return fmt.Errorf("settings in %s: %w", path, err)
	}
	if workload != "" && c.Workload != workload {
		return fmt.Errorf("settings in %s are for the workload %s, not %s", path, c.Workload, workload)
	}
	return nil
}

// Validate reports all that is wrong, and drops what the workload and the mode do not use, so that a record shows what
// was done.
func (c *Config) Validate() error {
	c.Client, c.Flush, c.Role, c.Slaves, c.Backlog = "", "", "", 0, 0 // of a comparison, whose record may be the file
	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	inRange := func(name string, v, low, high int) {
		if v < low || v > high {
			complain("%s is %d: want %d to %d", name, v, low, high)
		}
	}
	if !slices.Contains([]string{Produce, Consume, Drain, Latency}, c.Workload) {
		complain("workload %q: want produce, consume, drain or latency", c.Workload)
	}
	c.validatePlaces(complain)
	inRange("queues", c.Queues, 1, 1<<20)
	inRange("connections", c.Connections, 1, connectionsMax)
	if _, err := c.serialize(); err != nil {
		errs = append(errs, err)
	}
	if c.Duration <= 0 && c.Count <= 0 {
		complain("neither a duration nor a count")
	}
	if c.Count < 0 || c.Warmup < 0 || c.Timeout <= 0 || c.Hold < 0 {
		complain("count %d, warmup %v, timeout %v, hold %v: want nothing below zero", c.Count, c.Warmup, c.Timeout, c.Hold)
	}
	if c.Count > 0 {
		c.Duration, c.Warmup = 0, 0
	}
	if c.Workload == Consume {
		c.Mode, c.Threads, c.Window, c.Batch, c.Body, c.Verify = "", 0, 0, 0, "", false
		if c.From != FromFirst && c.From != FromLast {
			complain("from %q: want first or last", c.From)
		}
	} else {
		c.From = ""
		errs = append(errs, c.validateProducers()...)
	}
	if c.Workload == Produce {
		c.Groups, c.PullBatch, c.Hold = 0, 0, 0
	} else {
		inRange("groups", c.Groups, 1, groupsMax)
		inRange("pull-batch", c.PullBatch, 1, pullBatchMax)
	}
	if c.Rate < 0 || math.IsNaN(c.Rate) || c.Rate > 1e9 {
		complain("rate is %v: want 0 to 1e9 messages a second", c.Rate)
	}
	if c.Workload == Latency && c.Rate <= 0 {
		complain("latency needs a rate: without one it measures how long the queue in front of the broker is")
	}
	if c.Workload == Drain && c.Count <= 0 {
		complain("drain needs a count: how many messages to fill the topics with")
	}
	return errors.Join(errs...)
}

func (c *Config) validatePlaces(complain func(string, ...any)) {
	if (c.Broker == "") == (c.NameSrv == "") {
		complain("want either a broker or a name server")
	}
	for _, addr := range append(strings.Split(c.NameSrv, ";"), c.Broker) {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			complain("address %q: want host:port", addr)
		}
	}
	topics, err := expandTopics(c.Topics)
	if err != nil {
		complain("%w", err)
	}
	c.Topics = topics
}

func (c *Config) validateProducers() (errs []error) {
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	sizes, err := ParseSizes(c.Body)
	if err != nil {
		return append(errs, err)
	}
	switch c.Mode {
	case ModeSync:
		if c.Threads < c.Connections || c.Threads > c.Connections*wire.InFlightMax {
			complain("%d threads on %d connections: want at least one on each", c.Threads, c.Connections)
		}
		c.Window, c.Batch = 0, 0
	case ModePipelined, ModeBatch:
		if c.Window < 1 || c.Window > wire.InFlightMax {
			complain("window is %d: want 1 to %d", c.Window, wire.InFlightMax)
		}
		c.Threads = 0
		if c.Mode == ModePipelined {
			c.Batch = 0
		}
	case ModeOneway:
		c.Threads, c.Window, c.Batch = 0, 0, 0
	default:
		complain("mode %q: want sync, pipelined, batch or oneway", c.Mode)
	}
	if c.Mode == ModeBatch && (c.Batch < 1 || c.Batch > batchMax || c.Batch*(sizes.Max()+256) > bodyMax) {
		complain("batches of %d messages of up to %d bytes: want 1 to %d messages and at most %d bytes", c.Batch, sizes.Max(), batchMax, bodyMax)
	}
	if c.Mode == ModeBatch && c.Batch > 0 && c.Count > 0 {
		if c.Count -= c.Count % int64(c.Batch); c.Count == 0 {
			complain("count: less than one batch of %d", c.Batch)
		}
	}
	if needStamp := c.Verify || c.Workload == Latency; needStamp && sizes.Min() < stampSize {
		complain("bodies of %d bytes: what is to be known again needs %d", sizes.Min(), stampSize)
	}
	return errs
}

func (c *Config) serialize() (remoting.SerializeType, error) {
	switch c.Serialize {
	case "JSON":
		return remoting.SerializeJSON, nil
	case "ROCKETMQ":
		return remoting.SerializeRocketMQ, nil
	}
	return 0, fmt.Errorf("serialize %q: want JSON or ROCKETMQ", c.Serialize)
}

// inFlight is how many requests each connection may have in flight.
func (c *Config) inFlight(connection int) int {
	switch c.Mode {
	case ModeSync:
		n := c.Threads / c.Connections
		if connection < c.Threads%c.Connections {
			n++
		}
		return n
	case ModeOneway:
		return 1
	}
	return c.Window
}

// reads and writes are what the run does with the queues of its topics.
func (c *Config) reads() bool  { return c.Workload != Produce || c.Verify }
func (c *Config) writes() bool { return c.Workload != Consume }

// patience is how long nothing may come before a run is given up: an answer may take its timeout, and with a rate requests
// may be rare.
func (c *Config) patience() time.Duration {
	const rarest = 1e6 // seconds
	between := 0.0
	if c.Rate > 0 {
		between = min(float64(c.perRequest())/c.Rate, rarest)
	}
	return stuckWait + time.Duration(c.Timeout) + time.Duration(between*float64(time.Second))
}

// perRequest is how many messages a request has.
func (c *Config) perRequest() int { return max(c.Batch, 1) }

// expandTopics replaces name*n by name-0 to name-(n-1).
func expandTopics(names []string) ([]string, error) {
	var topics []string
	named := make(map[string]bool)
	for _, name := range names {
		base, count, many := strings.Cut(name, "*")
		n := 1
		if many {
			var err error
			if n, err = strconv.Atoi(count); err != nil || n < 1 || n > topicsMax {
				return nil, fmt.Errorf("topics %q: want name*n with n from 1 to %d", name, topicsMax)
			}
		}
		if base == "" || len(base) > 120 {
			return nil, fmt.Errorf("topic %q: want a name of 1 to 120 bytes", base)
		}
		for i := range n {
			if many {
				name = base + "-" + strconv.Itoa(i)
			}
			if named[name] {
				return nil, fmt.Errorf("topic %s is named twice", name)
			}
			named[name] = true
			topics = append(topics, name)
		}
	}
	if len(topics) == 0 || len(topics) > topicsMax {
		return nil, fmt.Errorf("%d topics: want 1 to %d", len(topics), topicsMax)
	}
	return topics, nil
}

// listValue and durationValue are flags for the types that Settings has.
type listValue []string

func (v *listValue) String() string { return strings.Join(*v, ",") }
func (v *listValue) Set(s string) error {
	*v = strings.Split(s, ",")
	return nil
}

type durationValue result.Duration

func (v *durationValue) String() string { return result.Duration(*v).String() }
func (v *durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	*v = durationValue(d)
	return err
}
