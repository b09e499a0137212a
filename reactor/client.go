// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// ClientConfig are a dialler's settings; zero fields take the defaults named.
type ClientConfig struct {
	NumLoops      int           // 1
	ReadBufferCap int           // 64 KiB per loop
	DialTimeout   time.Duration // 3 s
	Logger        *slog.Logger

	// OnTick runs on a goroutine of its own and says when to run it next; it may only post. No tick when nil.
	OnTick func() time.Duration
}

const dialTimeoutDefault = 3 * time.Second

func (c *ClientConfig) ensureDefaults() {
	if c.NumLoops <= 0 {
		c.NumLoops = 1
	}
	if c.ReadBufferCap <= 0 {
		c.ReadBufferCap = 64 << 10
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = dialTimeoutDefault
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Client dials, and hands the connections' events to a Handler on loops of its own.
type Client struct {
	cfg    ClientConfig
	logger gnetLogger
	events events
	gnet   *gnet.Client

	mu      sync.RWMutex // held while enrolling; guards stopped
	stopped bool
}

// NewClient starts the loops.
func NewClient(cfg ClientConfig, handler Handler) (*Client, error) {
	cfg.ensureDefaults()
	c := &Client{cfg: cfg}
	c.logger.logger = cfg.Logger
	c.events = events{handler: handler, onTick: cfg.OnTick}
	var err error
	c.gnet, err = gnet.NewClient(&c.events,
		gnet.WithLogger(&c.logger),
		gnet.WithNumEventLoop(cfg.NumLoops),
		gnet.WithReadBufferCap(cfg.ReadBufferCap),
		gnet.WithTicker(cfg.OnTick != nil))
	if err != nil {
		return nil, err
	}
	if err := c.gnet.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

// Dial connects to addr. OnOpen has run, on the connection's loop, when it returns; context is the Conn's Context there.
// It must not be called on a loop.
func (c *Client) Dial(ctx context.Context, addr string, context any) (Conn, error) {
	dialer := net.Dialer{Timeout: c.cfg.DialTimeout, KeepAlive: -1}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// Enrolling waits for a task posted to a loop and would wait for ever when the loop has ended. So Stop lets the
	// enrolments under way end first, which takes the loop a moment, and none begins after it.
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.stopped {
		_ = nc.Close()
		return nil, ErrClosed
	}
	d := &dialled{context: context}
	if _, err := c.gnet.EnrollContext(nc, d); err != nil {
		return nil, err
	}
	if d.conn == nil {
		return nil, ErrClosed // the poller did not take it
	}
	return d.conn, nil
}

// Stop closes all connections and returns when the loops have ended.
func (c *Client) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.stopped = true
	_ = c.gnet.Stop()
}
