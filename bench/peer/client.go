// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"loopmq/bench/proc"
	"loopmq/bench/result"
)

// Client is our load generator on a release's stock client, ready for windows. It stays between them, so that its JVM is
// warm.
type Client struct {
	*proc.Process
	settings result.Settings
	in       io.WriteCloser
	out      *bufio.Reader
}

const (
	// lineMax bounds a line of the client's output: the latencies of a window take some 20 bytes a step.
	lineMax = 1 << 20
	// windowSlack is how long a window may take beyond its time: a client that waits for a broker that hangs.
	windowSlack = 2 * time.Minute
)

// StartClient starts a client in a site. Of the settings it takes NameSrv, the first topic, Mode (sync, pipelined, batch,
// or pull to drain), Threads, Window, Batch, Body and Timeout.
func (p *Peer) StartClient(site *proc.Site, name string, settings result.Settings) (*Client, error) {
	dir, err := site.Dir(name)
	if err != nil {
		return nil, err
	}
	if len(settings.Topics) == 0 {
		return nil, errors.New("a client needs a topic")
	}
	settings.Client, settings.NameSrv = "java:"+p.Version, site.NameServer
	flags := []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC"}
	c := &Client{settings: settings, Process: proc.NewProcess(name, dir, "java", p.Command(dir, flags, "Load", loadArguments(settings)...)...)}
	site.Add(c.Process)
	in, out, err := c.StartPiped()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewReaderSize(out, lineMax)
	return c, nil
}

func loadArguments(s result.Settings) []string {
	mode := s.Mode
	if mode == "pipelined" {
		mode = "async"
	}
	arguments := []string{"ns=" + s.NameSrv, "topic=" + s.Topics[0], "mode=" + mode}
	for _, more := range []struct{ key, value string }{
		{"body", s.Body}, {"threads", strconv.Itoa(s.Threads)}, {"inflight", strconv.Itoa(s.Window)}, {"batch", strconv.Itoa(s.Batch)},
		{"timeout", strconv.FormatInt(time.Duration(s.Timeout).Milliseconds(), 10)},
	} {
		if more.value != "" && more.value != "0" {
			arguments = append(arguments, more.key+"="+more.value)
		}
	}
	return arguments
}

// Window runs the load for warmup, then measures for duration. The servers' figures are taken at the moments that the
// client names. An error that ends the client, or ctx, ends it for good.
func (c *Client) Window(ctx context.Context, servers []proc.Target, warmup, duration time.Duration) (*result.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, warmup+duration+windowSlack)
	defer cancel()
	defer context.AfterFunc(ctx, c.Kill)()
	r, err := c.window(servers, warmup, duration)
	if err == nil {
		return r, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, ctx.Err())
	}
	c.Kill()
	return nil, fmt.Errorf("%w; %w", err, c.Failure())
}

func (c *Client) window(servers []proc.Target, warmup, duration time.Duration) (*result.Result, error) {
	if _, err := fmt.Fprintf(c.in, "run %g %g\n", warmup.Seconds(), duration.Seconds()); err != nil {
		return nil, err
	}
	if line, err := c.line(); err != nil || line != "BEGIN" {
		return nil, fmt.Errorf("client says %q: %v", line, err)
	}
	meter := proc.NewMeter(servers, c.PID())
	if err := meter.Begin(); err != nil {
		return nil, err
	}
	r := &result.Result{Settings: c.settings, Started: time.Now()}
	r.Settings.Warmup, r.Settings.Duration = result.Duration(warmup), result.Duration(duration)
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if line == "END" {
			break
		}
		sample, err := parseSample(line)
		if err != nil {
			return nil, err
		}
		r.Samples = append(r.Samples, sample)
		if err := meter.Sample(); err != nil {
			return nil, err
		}
	}
	if err := meter.End(r); err != nil {
		return nil, err
	}
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	if err := parseWindow(line, r); err != nil {
		return nil, err
	}
	r.Derive()
	return r, nil
}

func (c *Client) line() (string, error) {
	line, err := c.out.ReadSlice('\n')
	return strings.TrimSuffix(string(line), "\n"), err
}

// parseSample reads a second: [at, seconds, messages, errors, p50, p99, max].
func parseSample(line string) (s result.Sample, err error) {
	var v []float64
	if err := json.Unmarshal([]byte(line), &v); err != nil || len(v) != 7 {
		return s, fmt.Errorf("client's sample %q: %v", line, err)
	}
	return result.Sample{At: v[0], Seconds: v[1], Messages: int64(v[2]), Errors: int64(v[3]), P50: v[4], P99: v[5], Max: v[6]}, nil
}

func parseWindow(line string, r *result.Result) error {
	var w struct {
		Messages, Bytes int64
		Seconds         float64
		Errors          map[string]int64
		Latencies       [][2]int64 // ns, count
	}
	if err := json.Unmarshal([]byte(line), &w); err != nil {
		return fmt.Errorf("client's window %.100q: %w", line, err)
	}
	r.Messages, r.BodyBytes, r.Seconds, r.Latency = w.Messages, w.Bytes, w.Seconds, result.NewHistogram()
	if len(w.Errors) > 0 {
		r.Errors = w.Errors
	}
	for _, l := range w.Latencies {
		if l[0] < 0 || l[1] < 0 {
			return fmt.Errorf("client's latency %v", l)
		}
		r.Latency.RecordN(time.Duration(l[0]), l[1])
	}
	return nil
}
