// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	// helloWait is how long a slave waits for the hello of a master that was loopmq's. Then RocketMQ may run at its address.
	helloWait = 10 * time.Second
	// askTimeout bounds a question for the master's first offset.
	askTimeout = 3 * time.Second
	// complainInterval is how often the same failure is logged.
	complainInterval = time.Minute
	// syncedInterval is how often haReportSynced looks whether more was synced.
	syncedInterval = 10 * time.Millisecond
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
	cut       func(end storage.PhyOffset)

	client *reactor.Client
	link   atomic.Pointer[haLink]
	buffer *readBuffer // of the one link there is
	// loopmqAt is the address at which a loopmq master has been met: there the slave waits for the hello, for helloWait.
	loopmqAt atomic.Pointer[string]
	status   atomic.Pointer[ClientStatus]

	cuts, cutBytes atomic.Int64 // tails cut, and what they held

	complaintMu sync.Mutex // guards the two below
	complaint   string
	complained  time.Time

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
	asking  sync.WaitGroup // questions for the master's first offset
	ctx     context.Context
	cancel  context.CancelFunc
}

// ClientStatus is what a slave knows of its link, for logs, runtime info and metrics.
type ClientStatus struct {
	MasterAddr              string
	State                   string // connecting, handshake, transfer, refused
	Refused                 string // why the logs do not join, "" when they do
	LastError               string // what ended the last link, or kept it from being made; "" in transfer
	LastReadTimestamp       time.Time
	LastWriteTimestamp      time.Time
	TransferredByteInSecond int64
	MasterFirst, MasterEnd  storage.PhyOffset // as the hello said
}

// NewHAClient makes the client of a slave; Start lets it connect.
func NewHAClient(opts Options, service *HAService) *HAClient {
	c := &HAClient{
		config: opts.Config, store: opts.Store, logger: opts.Logger, state: service.state, service: service,
		address: opts.MasterAddress, minOffset: opts.MasterMinOffset, buffer: newReadBuffer(),
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	if c.cut = opts.Cut; c.cut == nil {
		c.cut = func(storage.PhyOffset) {}
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.status.Store(&ClientStatus{State: linkStates[linkAsked]})
	return c
}

// Start begins to look for the master.
func (c *HAClient) Start() error {
	cfg := reactor.ClientConfig{
		ReadBufferCap: 1 << 20,
		DialTimeout:   connectTimeout,
		Logger:        c.logger,
		OnTick:        c.onTick,
	}
	var err error
	if c.client, err = reactor.NewClient(cfg, &slaveHandler{c}); err != nil {
		return err
	}
	go c.run()
	return nil
}

// Stop leaves the master. The goroutines are joined before the loop ends.
func (c *HAClient) Stop() {
	close(c.stopped)
	c.cancel()
	if l := c.link.Load(); l != nil {
		l.conn.Close()
	}
	<-c.done
	c.asking.Wait()
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

// Following says whether this slave gets its master's log. Any goroutine.
func (c *HAClient) Following() bool { return c.Status().State == linkStates[linkTransfer] }

// masterAddress is haMasterAddress if one is set (6 characters at least, as HAClient asks), else the name server's word.
func (c *HAClient) masterAddress() string {
	if a := c.config().HaMasterAddress; len(a) >= 6 {
		return a
	}
	return c.address()
}

var errNoMasterAddress = errors.New("no master to follow: no name server has told one, and haMasterAddress is not set")

func (c *HAClient) run() {
	defer close(c.done)
	for {
		if addr := c.masterAddress(); addr != "" {
			c.follow(addr)
		} else {
			c.complain("", errNoMasterAddress)
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
	c.buffer.reset()
	return &haLink{client: c, addr: addr, buffer: c.buffer, closed: make(chan struct{})}
}

// follow connects, and returns when the connection has ended.
func (c *HAClient) follow(addr string) {
	l := c.newLink(addr)
	if err := l.prepare(c.ctx); err != nil {
		c.complain(addr, err)
		return
	}
	conn, err := c.client.Dial(c.ctx, addr, l)
	if err != nil {
		c.complain(addr, fmt.Errorf("master not reached: %w", err))
		return
	}
	select {
	case <-c.wake: // it was to bring this link about; the wait after it is a whole one
	default:
	}
	select {
	case <-l.closed:
	case <-c.stopped:
		conn.Close()
		<-l.closed
	}
	c.link.Store(nil)
}

// complain shows why there is no link to the master; in the log at once when it is something new, and then each minute.
// Any goroutine.
func (c *HAClient) complain(addr string, err error) {
	if c.ctx.Err() != nil {
		return // stopping
	}
	text := err.Error()
	st := c.Status()
	st.LastError, st.MasterAddr = text, addr
	c.status.Store(&st)
	c.complaintMu.Lock()
	defer c.complaintMu.Unlock()
	if now := time.Now(); text != c.complaint || now.Sub(c.complained) >= complainInterval {
		c.complaint, c.complained = text, now
		level := slog.LevelWarn
		if errors.Is(err, errRefused) {
			level = slog.LevelError
		}
		c.logger.Log(c.ctx, level, "this slave follows no master", "master", addr, "cause", text)
	}
}

// ask gets the master's first offset on a goroutine of its own and hands it to the link.
func (c *HAClient) ask(l *haLink, answered func(first storage.PhyOffset, err error, now time.Time)) {
	c.asking.Go(func() {
		first, err := storage.PhyOffset(0), errNoMinOffset
		if c.minOffset != nil {
			ctx, cancel := context.WithTimeout(c.ctx, askTimeout)
			defer cancel()
			first, err = c.minOffset(ctx)
		}
		l.conn.Post(func() {
			if !l.ended() {
				answered(first, err, time.Now())
			}
		})
	})
}

var errNoMinOffset = errors.New("nobody tells the master's first offset")

func (c *HAClient) onTick() (next time.Duration) {
	if l := c.link.Load(); l != nil {
		l.conn.Post(l.onLoopTick)
	}
	if c.config().HaReportSynced {
		return syncedInterval
	}
	return tickInterval
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
	conn.Context().(*haLink).onClose(err)
}

func encodeReport(b *[reportSize]byte, offset int64) {
	binary.BigEndian.PutUint64(b[:], uint64(offset))
}
