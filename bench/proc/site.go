// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
	"loopmq/reactor/remoting"
)

// bootLimit is how long a server may take to serve: a Java broker with a long log to recover, on a busy machine.
const bootLimit = 3 * time.Minute

// Flavour is a kind of broker that can be started.
type Flavour interface {
	Build() result.Build
	// Broker is the command that runs a broker in dir with a properties file of RocketMQ's keys.
	Broker(dir, conf string) (path string, arguments []string)
}

// Loopmq is ours.
type Loopmq struct {
	Binary          string
	Version, Commit string
}

func (l Loopmq) Build() result.Build {
	return result.Build{Name: "loopmq", Version: l.Version, Commit: l.Commit}
}

func (l Loopmq) Broker(_, conf string) (string, []string) {
	return l.Binary, []string{"broker", "--log-level", "warn", "-c", conf}
}

// Site is where the servers of a run live.
type Site struct {
	NameServer string // its address
	dir        string
	processes  []*Process
	ports      Ports
}

// NewSite makes a directory in parent and starts a name server, whose binary is loopmq's.
func NewSite(ctx context.Context, parent, binary string) (_ *Site, err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	s := new(Site)
	if s.dir, err = os.MkdirTemp(parent, "loopmq-bench-"); err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.startNameServer(ctx, binary); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Dir is a directory of that name in the site's.
func (s *Site) Dir(name string) (string, error) {
	dir := filepath.Join(s.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// Add leaves a process to Close.
func (s *Site) Add(p *Process) { s.processes = append(s.processes, p) }

// Close ends all processes and removes all files.
func (s *Site) Close() error {
	for _, p := range slices.Backward(s.processes) {
		p.Kill() // what they hold is removed
	}
	return errors.Join(s.ports.Release(), os.RemoveAll(s.dir))
}

func (s *Site) startNameServer(ctx context.Context, binary string) error {
	dir, err := s.Dir("namesrv")
	if err != nil {
		return err
	}
	port, err := s.ports.Free()
	if err != nil {
		return err
	}
	conf := filepath.Join(dir, "namesrv.conf")
	if err := writeProperties(conf, map[string]string{
		"listenPort": strconv.Itoa(port), "bindAddress": loopback, "kvConfigPath": filepath.Join(dir, "kvConfig.json"),
	}); err != nil {
		return err
	}
	p := NewProcess("name server", dir, binary, "namesrv", "--log-level", "warn", "-c", conf)
	s.Add(p)
	s.NameServer = hostPort(port)
	if err := p.Start(); err != nil {
		return err
	}
	return awaitListening(ctx, p, s.NameServer)
}

// StartNull starts a server that only answers, of loopmq's binary; its address is returned.
func (s *Site) StartNull(ctx context.Context, binary string) (addr string, err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return "", err
	}
	dir, err := s.Dir("null")
	if err != nil {
		return "", err
	}
	port, err := s.ports.Free()
	if err != nil {
		return "", err
	}
	p := NewProcess("null server", dir, binary, "bench", "null", hostPort(port))
	s.Add(p)
	if err := p.Start(); err != nil {
		return "", err
	}
	return hostPort(port), awaitListening(ctx, p, hostPort(port))
}

func awaitListening(ctx context.Context, p *Process, addr string) error {
	_, err := attempt(ctx, p, func(ctx context.Context) error {
		c, err := wire.Dial(ctx, addr, wire.Options{})
		if err == nil {
			c.Close()
		}
		return err
	})
	return err
}

// BrokerOptions are what a run asks of a broker. Keys are RocketMQ's.
type BrokerOptions struct {
	Name       string            // of its directory, and in results
	Master     *Broker           // makes it a slave of that one
	Properties map[string]string // flushDiskType, brokerRole and so on
}

// Broker is a broker of a site.
type Broker struct {
	*Process
	Flavour Flavour
	Addr    string
	HAAddr  string // where slaves connect
	Store   string // its directory
	group   string // brokerName
	master  *Broker
}

// StartBroker starts a broker and waits until it serves.
func (s *Site) StartBroker(ctx context.Context, flavour Flavour, o BrokerOptions) (*Broker, error) {
	b, err := s.NewBroker(flavour, o)
	if err != nil {
		return nil, err
	}
	if err := b.Start(); err != nil {
		return nil, err
	}
	_, err = b.AwaitServing(ctx)
	return b, err
}

// StartPair is StartBroker for a master and its slave.
func (s *Site) StartPair(ctx context.Context, flavour Flavour, master, slave BrokerOptions) (m, sl *Broker, err error) {
	if m, err = s.NewBroker(flavour, master); err != nil {
		return nil, nil, err
	}
	slave.Master = m
	if sl, err = s.NewBroker(flavour, slave); err != nil {
		return nil, nil, err
	}
	return m, sl, Serve(ctx, m, sl)
}

// Serve starts a master and its slaves, and waits until they serve: a SYNC_MASTER until a slave has answered.
func Serve(ctx context.Context, master *Broker, slaves ...*Broker) error {
	if err := master.Start(); err != nil {
		return err
	}
	if len(slaves) > 0 {
		if err := master.awaitAnswer(ctx); err != nil {
			return err
		}
	}
	for _, slave := range slaves {
		if err := slave.Start(); err != nil {
			return err
		}
		if err := slave.awaitAnswer(ctx); err != nil {
			return err
		}
	}
	_, err := master.AwaitServing(ctx)
	return err
}

// NewBroker makes a broker's directory and settings.
func (s *Site) NewBroker(flavour Flavour, o BrokerOptions) (*Broker, error) {
	dir, err := s.Dir(o.Name)
	if err != nil {
		return nil, err
	}
	port, err := s.ports.Free()
	if err != nil {
		return nil, err
	}
	b := &Broker{Flavour: flavour, Addr: hostPort(port), HAAddr: hostPort(port + 1), Store: filepath.Join(dir, "store"), group: o.Name, master: o.Master}
	properties := map[string]string{
		"brokerClusterName": "DefaultCluster", "brokerId": "0", "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH",
		"namesrvAddr": s.NameServer, "brokerIP1": loopback, "brokerIP2": loopback, "bindAddress": loopback,
		"listenPort": strconv.Itoa(port), "haListenPort": strconv.Itoa(port + 1), // 4.x takes the next port whatever is said
		"storePathRootDir": b.Store, "storePathCommitLog": filepath.Join(b.Store, "commitlog"),
		"fileReservedTime": "72", "deleteWhen": "04",
	}
	if b.master != nil {
		b.group = b.master.group
		properties["brokerRole"], properties["brokerId"] = "SLAVE", "1" // the name server tells it where its master is
	}
	properties["brokerName"] = b.group
	if _, ours := flavour.(Loopmq); ours {
		properties["adminAddr"] = "" // several brokers of one host
	}
	if o.Properties["brokerRole"] == "SYNC_MASTER" {
		properties["inSyncReplicas"] = "2" // 5.x counts the master: with 1, a send waits for nobody
	}
	maps.Copy(properties, o.Properties)
	conf := filepath.Join(dir, "broker.conf")
	if err := writeProperties(conf, properties); err != nil {
		return nil, err
	}
	path, arguments := flavour.Broker(dir, conf)
	b.Process = NewProcess(o.Name, dir, path, arguments...)
	s.Add(b.Process)
	return b, nil
}

// Wipe kills it and removes its store.
func (b *Broker) Wipe() error {
	b.Kill()
	return os.RemoveAll(b.Store)
}

// AwaitServing waits until the broker has accepted a message, a slave until it answers, and returns how long that took
// from the moment it was started. A SYNC_MASTER has then been answered by its slave.
func (b *Broker) AwaitServing(ctx context.Context) (time.Duration, error) {
	if b.master != nil {
		err := b.awaitAnswer(ctx)
		return time.Since(b.Started()), err
	}
	at, err := attempt(ctx, b.Process, func(ctx context.Context) error { return Accepts(ctx, b.Addr) })
	return at.Sub(b.Started()), err
}

func (b *Broker) awaitAnswer(ctx context.Context) error {
	_, err := attempt(ctx, b.Process, func(ctx context.Context) error {
		_, err := b.LogEnd(ctx)
		return err
	})
	return err
}

// probeTopic is made by the first message to it.
const probeTopic = "bench_probe"

// Accepts sends one message.
func Accepts(ctx context.Context, addr string) error {
	c, err := wire.Dial(ctx, addr, wire.Options{})
	if err != nil {
		return err
	}
	defer func() {
		c.Close()
		<-c.Done()
	}()
	answered := make(chan error, 1)
	call := &wire.Call{Done: func(_ *wire.Call, answer *remoting.Command, err error) {
		if err == nil && answer.Code != remoting.Success {
			err = fmt.Errorf("%s: %s", remoting.ResponseName(answer.Code), answer.Remark)
		}
		answered <- err
	}}
	// A body, since RocketMQ 5.x fails on a message without one (AbstractSendMessageProcessor#buildMsgContext).
	message := wire.Message{Born: time.Now().UnixMilli(), Head: []byte("probe")}
	template := wire.NewSendTemplate(wire.SendOptions{Group: "bench", Topic: probeTopic})
	c.Lock()
	err = c.Send(call, &wire.SendRequest{Template: template, Message: message}, wire.Clock())
	c.Unlock()
	if err != nil {
		return err
	}
	c.Flush()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LogEnd is where the broker's commit log ends.
func (b *Broker) LogEnd(ctx context.Context) (int64, error) { return LogEnd(ctx, b.Addr) }

// LogEnd is where a broker's commit log ends, as it says itself.
func LogEnd(ctx context.Context, addr string) (int64, error) {
	c, err := wire.Dial(ctx, addr, wire.Options{})
	if err != nil {
		return 0, err
	}
	defer func() {
		c.Close()
		<-c.Done()
	}()
	return LogEndOf(ctx, c)
}

// LogEndOf is LogEnd over a connection that is kept.
func LogEndOf(ctx context.Context, c *wire.Conn) (int64, error) {
	info, err := wire.RuntimeInfo(ctx, c)
	if err != nil {
		return 0, err
	}
	end, err := strconv.ParseInt(info["commitLogMaxOffset"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("commitLogMaxOffset %q of %s", info["commitLogMaxOffset"], c.Addr())
	}
	return end, nil
}

// attempt tries until it succeeds, the process ends or the time is over, and returns when it succeeded.
func attempt(ctx context.Context, p *Process, try func(context.Context) error) (time.Time, error) {
	const (
		pause  = 2 * time.Millisecond // it bounds the error of what is measured with it
		answer = 5 * time.Second
	)
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	for {
		once, cancelOnce := context.WithTimeout(ctx, answer)
		err := try(once)
		cancelOnce()
		if err == nil {
			return time.Now(), nil
		}
		select {
		case <-p.Ended():
			return time.Time{}, p.Failure()
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s does not serve: %w; last: %w", p.Name, ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func writeProperties(path string, properties map[string]string) error {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s=%s\n", key, properties[key])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
