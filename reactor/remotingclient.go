// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loopmq/reactor/remoting"
)

// RemotingClientConfig holds limits; zero fields take the defaults named.
type RemotingClientConfig struct {
	Logger      *slog.Logger
	DialTimeout time.Duration // 3 s
	PendingMax  int           // 10,000 requests under way per connection
	IdleTimeout time.Duration // 120 s; a connection that nobody used is closed
	// Processors answer requests that the peer sends on our connection, by code (may be nil).
	Processors map[int32]Processor
	// OnClose runs on the loop when the connection to addr is lost.
	OnClose func(addr string)
}

const clientPendingMaxDefault = 10_000

// RemotingClient keeps one connection per address and multiplexes requests on it. Any goroutine but an event loop may
// call its blocking methods.
type RemotingClient struct {
	cfg    RemotingClientConfig
	core   *core
	client *Client
	life   context.Context // ends with Stop
	end    context.CancelFunc
	dials  sync.WaitGroup

	mu      sync.Mutex // guards the rest
	peers   map[string]*peer
	stopped bool
}

// peer is the connection to one address, once ready is closed.
type peer struct {
	addr    string
	ready   chan struct{}
	session *Session
	err     error
}

// NewRemotingClient starts the client's loop.
func NewRemotingClient(cfg RemotingClientConfig) (*RemotingClient, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	orDefault(&cfg.DialTimeout, dialTimeoutDefault)
	orDefault(&cfg.PendingMax, clientPendingMaxDefault)
	orDefault(&cfg.IdleTimeout, idleTimeoutDefault)
	c := &RemotingClient{cfg: cfg, peers: make(map[string]*peer)}
	c.life, c.end = context.WithCancel(context.Background())
	c.core = newCore(limits{
		idleTimeout:           cfg.IdleTimeout,
		partialFramesBytesMax: partialFramesBytesMaxDefault,
		partialFrameAgeMax:    partialFrameAgeMaxDefault,
		outboundMark:          outboundMarkDefault,
		outboundMarkAge:       outboundMarkAgeDefault,
		outboundBytesMax:      outboundBytesMaxDefault,
		pendingMax:            cfg.PendingMax,
	}, cfg.Logger)
	for code, p := range cfg.Processors {
		c.core.register(code, p, nil, false)
	}
	c.core.onOpen = func(s *Session) { s.owner.(*peer).session = s }
	c.core.onClose = c.onClose
	var err error
	c.client, err = NewClient(ClientConfig{DialTimeout: cfg.DialTimeout, Logger: cfg.Logger, OnTick: c.core.onTick}, c.core)
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// Invoke sends req to addr (host:port), connecting if need be, and waits for the answer until ctx ends. The answer is owned by the caller.
func (c *RemotingClient) Invoke(ctx context.Context, addr string, req *remoting.Command) (*remoting.Command, error) {
	s, err := c.session(ctx, addr)
	if err != nil {
		return nil, err
	}
	type answer struct {
		resp *remoting.Command
		err  error
	}
	answered := make(chan answer, 1)
	heard := s.heard.Load()
	opaque, err := s.invoke(req, func(resp *remoting.Command, err error) { answered <- answer{resp, err} })
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", addr, err)
	}
	select {
	case a := <-answered:
		if a.err != nil {
			return nil, fmt.Errorf("request to %s: %w", addr, a.err)
		}
		return a.resp, nil
	case <-ctx.Done():
		s.abandon(opaque, ctx.Err())
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && s.heard.Load() == heard {
			// The peer's host may be gone without a word; TCP would try for a quarter of an hour. The next call connects
			// anew. (The Java client closes on every timeout.)
			s.Close("nothing heard while waiting for an answer")
		}
		return nil, fmt.Errorf("request to %s: %w", addr, ctx.Err())
	}
}

// InvokeOneway sends req with the one-way flag.
func (c *RemotingClient) InvokeOneway(ctx context.Context, addr string, req *remoting.Command) error {
	s, err := c.session(ctx, addr)
	if err != nil {
		return err
	}
	if err := s.InvokeOneway(req); err != nil {
		return fmt.Errorf("request to %s: %w", addr, err)
	}
	return nil
}

// CloseConn drops the connection to addr, if there is one.
func (c *RemotingClient) CloseConn(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[addr]
	if p == nil || c.stopped {
		return
	}
	delete(c.peers, addr)
	c.dials.Go(func() { // it may be dialling still
		<-p.ready
		if p.err == nil {
			p.session.Close("dropped here")
		}
	})
}

// Stop closes all; requests under way fail.
func (c *RemotingClient) Stop() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.end()
	c.dials.Wait()
	c.client.Stop()
}

// session returns the connection to addr, dialling when there is none. Callers of one address share a dial; it goes on
// when the caller that began it gives up.
func (c *RemotingClient) session(ctx context.Context, addr string) (*Session, error) {
	p, err := c.peer(addr)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to %s: %w", addr, ctx.Err())
	}
	if p.err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, p.err)
	}
	return p.session, nil
}

func (c *RemotingClient) peer(addr string) (*peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, ErrClosed
	}
	p := c.peers[addr]
	if p == nil || p.gone() {
		p = &peer{addr: addr, ready: make(chan struct{})}
		c.peers[addr] = p
		c.dials.Go(func() { c.dial(p) })
	}
	return p, nil
}

// gone says that the dial failed or the connection ended; the next caller dials again.
func (p *peer) gone() bool {
	select {
	case <-p.ready:
		return p.err != nil || p.session.closing.Load()
	default:
		return false
	}
}

func (c *RemotingClient) dial(p *peer) {
	defer close(p.ready)
	_, p.err = c.client.Dial(c.life, p.addr, p) // OnOpen has set p.session when it returns
}

// onClose forgets the connection, unless another one has taken its place.
func (c *RemotingClient) onClose(s *Session, reason string) {
	p := s.owner.(*peer)
	c.mu.Lock()
	if c.peers[p.addr] == p {
		delete(c.peers, p.addr)
	}
	c.mu.Unlock()
	c.cfg.Logger.Debug("connection lost", "addr", p.addr, "reason", reason)
	if c.cfg.OnClose != nil {
		c.cfg.OnClose(p.addr)
	}
}
