// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
)

const (
	// connectTimeout and reconnectWait are HAClient's; 4.x comes back at once after a failed read, which at a master
	// that closes at once is thousands of times a second.
	connectTimeout = 5 * time.Second
	reconnectWait  = 5 * time.Second
	// handshakeWait is how long a RocketMQ master has to be silent before the slave takes it for one.
	handshakeWait = 500 * time.Millisecond
)

// HAClient is the slave side: it follows a master, is the log's writer, and reports what it holds. Its goroutine dials
// and waits; everything else runs on the loop of its one connection. Source: HAClient.
type HAClient struct {
	config    func() *Config
	store     Store
	logger    *slog.Logger
	state     *stateFile
	service   *HAService // this node's own port for slaves
	address   func() string
	minOffset func(context.Context) (storage.PhyOffset, error)

	client *reactor.Client
	link   atomic.Pointer[haLink]
	// loopmqAt is the address at which a loopmq master has been met: there the slave waits for the hello.
	loopmqAt atomic.Pointer[string]
	status   atomic.Pointer[ClientStatus]

	cuts, cutBytes atomic.Int64 // tails cut, and what they held

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
	cancel  context.CancelFunc
}

// ClientStatus is what a slave knows of its link, for logs, runtime info and metrics.
type ClientStatus struct {
	MasterAddr              string
	State                   string // connecting, handshake, transfer, refused
	Refused                 string // why the logs do not join, "" when they do
	LastReadTimestamp       time.Time
	LastWriteTimestamp      time.Time
	TransferredByteInSecond int64
	MasterFirst, MasterEnd  storage.PhyOffset // as the hello said
}

// NewHAClient makes the client of a slave; Start lets it connect.
func NewHAClient(opts Options, service *HAService) *HAClient {
	c := &HAClient{
		config: opts.Config, store: opts.Store, logger: opts.Logger, state: service.state, service: service,
		address: opts.MasterAddress, minOffset: opts.MasterMinOffset,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	c.status.Store(&ClientStatus{State: "connecting"})
	return c
}

// Start begins to look for the master.
func (c *HAClient) Start() error {
	var err error
	c.client, err = reactor.NewClient(reactor.ClientConfig{
		ReadBufferCap: 1 << 20,
		DialTimeout:   connectTimeout,
		Logger:        c.logger,
		OnTick:        c.onTick,
	}, &slaveHandler{c})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.run(ctx)
	return nil
}

// Stop leaves the master. The goroutine is joined before the loop ends.
func (c *HAClient) Stop() {
	close(c.stopped)
	c.cancel()
	if l := c.link.Load(); l != nil {
		l.conn.Close()
	}
	<-c.done
	c.client.Stop()
}

// Wakeup ends the wait for a master's address: the name server told a new one.
func (c *HAClient) Wakeup() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Status is a snapshot. Any goroutine.
func (c *HAClient) Status() ClientStatus { return *c.status.Load() }

// masterAddress is haMasterAddress if one is set (6 characters at least, as HAClient asks), else the name server's word.
func (c *HAClient) masterAddress() string {
	if a := c.config().HaMasterAddress; len(a) >= 6 {
		return a
	}
	return c.address()
}

func (c *HAClient) run(ctx context.Context) {
	defer close(c.done)
	for {
		if addr := c.masterAddress(); addr != "" {
			c.follow(ctx, addr)
		}
		select {
		case <-time.After(reconnectWait):
		case <-c.wake:
		case <-c.stopped:
			return
		}
	}
}

func (c *HAClient) newLink(addr string) *haLink {
	return &haLink{client: c, addr: addr, buffer: newReadBuffer(), closed: make(chan struct{})}
}

// follow connects, and returns when the connection has ended.
func (c *HAClient) follow(ctx context.Context, addr string) {
	l := c.newLink(addr)
	if err := l.prepare(ctx); err != nil {
		c.logger.Warn("cannot follow the master", "master", addr, "cause", err)
		return
	}
	conn, err := c.client.Dial(ctx, addr, l)
	if err != nil {
		c.logger.Warn("master not reached", "master", addr, "cause", err)
		return
	}
	select {
	case <-l.closed:
	case <-c.stopped:
		conn.Close()
		<-l.closed
	}
	c.link.Store(nil)
}

func (c *HAClient) onTick() {
	if l := c.link.Load(); l != nil {
		l.conn.Post(l.onLoopTick)
	}
}

// slaveHandler gets the events of the connection to the master.
type slaveHandler struct{ client *HAClient }

func (h *slaveHandler) OnOpen(conn reactor.Conn) {
	l := conn.Context().(*haLink)
	l.conn = conn
	h.client.link.Store(l)
	l.onOpen(time.Now())
}

func (h *slaveHandler) OnTraffic(conn reactor.Conn) {
	conn.Context().(*haLink).onTraffic(time.Now())
}

func (h *slaveHandler) OnClose(conn reactor.Conn, err error) {
	l := conn.Context().(*haLink)
	h.client.logger.Info("link to the master ended", "master", l.addr, "cause", err)
	close(l.closed)
}

func encodeReport(b *[reportSize]byte, offset int64) {
	binary.BigEndian.PutUint64(b[:], uint64(offset))
}
