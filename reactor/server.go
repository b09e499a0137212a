// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// ServerConfig are a listener's settings; zero fields take the defaults named.
type ServerConfig struct {
	Addrs          []string // host:port, all served by the same loops
	NumLoops       int      // half the processors, at least 1
	ReadBufferCap  int      // 512 KiB per loop
	ConnectionsMax int      // from RLIMIT_NOFILE less a reserve, which servers that leave it 0 share
	Logger         *slog.Logger

	// OnTick runs on a goroutine of its own and says when to run it next; it may only post. No tick when nil.
	OnTick func() time.Duration
}

const (
	// readBufferCapDefault holds what 64 messages of 4 KiB in flight make. With 64 KiB a pipelined message costs a seventh to a
	// quarter more: it takes more turns, each with its calls of the kernel. A whole buffer of requests takes less than a
	// millisecond, in which other connections wait.
	readBufferCapDefault = 512 << 10
	refusedLogInterval   = 5 * time.Second
)

func (c *ServerConfig) ensureDefaults() {
	if c.NumLoops <= 0 {
		c.NumLoops = max(1, runtime.NumCPU()/2)
	}
	if c.ReadBufferCap <= 0 {
		c.ReadBufferCap = readBufferCapDefault
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Server listens and hands the connections' events to a Handler.
type Server struct {
	cfg     ServerConfig
	backlog int
	logger  gnetLogger
	events  events
	refusal Sometimes

	booted   chan struct{}
	bound    []netip.AddrPort // set when booted is closed
	engine   gnet.Engine      // likewise
	done     chan struct{}
	err      error // set when done is closed
	stopping atomic.Bool
	started  atomic.Bool
	stopOnce sync.Once

	shares            bool // in connectionsShared
	connections       atomic.Int64
	accepted, refused atomic.Int64
}

// connectionsShared are those of all servers of this process that have no limit of their own.
var connectionsShared atomic.Int64

// NewServer makes a server; Start makes it listen.
func NewServer(cfg ServerConfig, handler Handler) *Server {
	cfg.ensureDefaults()
	s := &Server{cfg: cfg, booted: make(chan struct{}), done: make(chan struct{})}
	s.logger.logger = cfg.Logger
	s.refusal.Interval = refusedLogInterval
	s.events = events{
		handler: handler, onTick: cfg.OnTick,
		onBoot: s.onBoot, admit: s.admit, left: s.leave,
	}
	return s
}

// Start listens; it returns when the ports are bound, or with the error that says which is not.
func (s *Server) Start() error {
	connectionsMax, backlog := connectionBudget(raiseNoFile(), len(s.cfg.Addrs))
	if s.backlog = backlog; s.cfg.ConnectionsMax <= 0 {
		s.cfg.ConnectionsMax, s.shares = connectionsMax, true
	}
	urls, err := s.urls()
	if err != nil {
		return err
	}
	s.started.Store(true)
	go s.run(urls)
	select {
	case <-s.booted:
		return nil
	case <-s.done:
		return s.err
	}
}

// urls are the addresses as gnet wants them. Each port is tried first: gnet's error does not say which it was, and it
// leaves the listeners before it open.
func (s *Server) urls() ([]string, error) {
	if len(s.cfg.Addrs) == 0 {
		return nil, errors.New("no address to listen on")
	}
	urls := make([]string, len(s.cfg.Addrs))
	for i, addr := range s.cfg.Addrs {
		trial, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		_ = trial.Close()
		urls[i] = "tcp://" + s.distinct(i)
	}
	return urls, nil
}

// distinct is address i in a spelling of its own: gnet finds a listener by its text, and several may ask for port 0.
func (s *Server) distinct(i int) string {
	addr := s.cfg.Addrs[i]
	if strings.HasSuffix(addr, ":0") {
		return addr + strings.Repeat("0", i)
	}
	return addr
}

func (s *Server) run(urls []string) {
	defer close(s.done)
	err := gnet.Rotate(&s.events, urls,
		gnet.WithLogger(&s.logger),
		gnet.WithNumEventLoop(s.cfg.NumLoops),
		// Not LeastConnections: it counts a connection only when its loop has taken it, so a burst of connects, as after
		// a restart, ends up on one loop (63 of 64 on two loops).
		gnet.WithLoadBalancing(gnet.RoundRobin),
		gnet.WithReadBufferCap(s.cfg.ReadBufferCap),
		gnet.WithReuseAddr(true),
		gnet.WithTicker(s.events.onTick != nil))
	s.events.gate.end()
	if s.stopping.Load() {
		return
	}
	if err == nil {
		err = errors.New("reason unknown")
		if last := s.logger.lastError.Load(); last != nil {
			err = errors.New(*last)
		}
	}
	s.err = fmt.Errorf("event engine on %s ended unasked: %w", strings.Join(s.cfg.Addrs, ", "), err)
	s.cfg.Logger.Error("event engine ended unasked; all connections are gone", "addrs", s.cfg.Addrs, "error", err)
}

func (s *Server) onBoot(engine gnet.Engine) {
	s.engine = engine
	for i := range s.cfg.Addrs {
		s.bound = append(s.bound, s.adjustListener(engine, s.distinct(i)))
	}
	close(s.booted)
}

// adjustListener sets the backlog and asks for the address that the listener has got.
func (s *Server) adjustListener(engine gnet.Engine, addr string) netip.AddrPort {
	fd, err := engine.DupListener("tcp", addr)
	if err != nil {
		s.cfg.Logger.Warn("listener is not to be had", "addr", addr, "error", err)
		return netip.AddrPort{}
	}
	defer unix.Close(fd)
	if err := unix.Listen(fd, s.backlog); err != nil {
		s.cfg.Logger.Warn("listen backlog stays at the kernel's maximum", "addr", addr, "error", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return sockaddrPort(sa)
}

// admit counts a new connection, or says that there is no room for it.
func (s *Server) admit() bool {
	n := s.connections.Add(1)
	if s.shares {
		n = max(n, connectionsShared.Add(1))
	}
	if n <= int64(s.cfg.ConnectionsMax) {
		s.accepted.Add(1)
		return true
	}
	s.leave()
	s.refused.Add(1)
	if suppressed, ok := s.refusal.Allow(time.Now()); ok {
		s.cfg.Logger.Warn("connection refused: limit reached", "limit", s.cfg.ConnectionsMax, "suppressed", suppressed)
	}
	return false
}

func (s *Server) leave() {
	s.connections.Add(-1)
	if s.shares {
		connectionsShared.Add(-1)
	}
}

// Stop closes all connections and returns when the engine's run function has. What is posted and has not run is lost.
func (s *Server) Stop() {
	if !s.started.Load() {
		return
	}
	s.stopOnce.Do(func() {
		s.stopping.Store(true)
		select {
		case <-s.booted:
		case <-s.done:
			return
		}
		// gnet's Stop polls twice a second; its run function returns as soon as the loops have ended.
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _ = s.engine.Stop(ctx) }()
		<-s.done
		cancel()
	})
	<-s.done
}

// Done is closed when the engine has ended; Err says why, nil if Stop asked for it.
func (s *Server) Done() <-chan struct{} { return s.done }

func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Addr is the bound address of Addrs[i].
func (s *Server) Addr(i int) netip.AddrPort {
	select {
	case <-s.booted:
		return s.bound[i]
	default:
		return netip.AddrPort{}
	}
}
