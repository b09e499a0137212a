// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

const (
	// registerQueueMax and queryQueueMax bound what waits for the two lanes; beyond it requests are answered SYSTEM_BUSY.
	registerQueueMax = 10_000
	queryQueueMax    = 10_000
	// stopTimeout bounds how long answers already made may take to leave.
	stopTimeout = 3 * time.Second
)

// Server is one name server.
type Server struct {
	logger *slog.Logger
	config atomic.Pointer[Config]

	routes *RouteInfoManager
	kv     *KVConfigManager

	remoting *reactor.RemotingServer
	// registerLane has one worker: registrations, removals and permissions take effect in the order they came.
	registerLane *reactor.Lane
	queryLane    *reactor.Lane

	scanStop chan struct{}
	scanDone chan struct{}
	stopOnce sync.Once
}

// New makes a name server that is not yet started. logger may be nil.
func New(cfg Config, logger *slog.Logger) *Server {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{logger: logger, scanStop: make(chan struct{}), scanDone: make(chan struct{})}
	s.config.Store(&cfg)
	s.routes = newRouteInfoManager(logger, s.config.Load)
	return s
}

// Start loads the KV table and listens; it returns when the port is bound.
func (s *Server) Start() error {
	cfg := s.config.Load()
	if err := cfg.Validate(); err != nil {
		return err
	}
	kv, warning, err := loadKVConfig(cfg.KVConfigPath)
	if err != nil {
		return fmt.Errorf("name server: %w", err)
	}
	if warning != nil {
		s.logger.Warn("kv config damaged", "err", warning)
	}
	s.kv = kv
	s.registerLane = reactor.NewLane("namesrvRegister", 1, registerQueueMax)
	s.queryLane = reactor.NewLane("namesrvQuery", 1, queryQueueMax)
	s.remoting = reactor.NewRemotingServer(reactor.RemotingServerConfig{
		Addrs:          []string{net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.ListenPort))},
		Logger:         s.logger,
		IdleTimeout:    time.Duration(cfg.ServerChannelMaxIdleTimeSeconds) * time.Second,
		OnSessionClose: s.onSessionClose,
	})
	s.registerProcessors()
	if err := s.remoting.Start(); err != nil {
		s.registerLane.Stop()
		s.queryLane.Stop()
		return fmt.Errorf("name server: %w", err)
	}
	go s.scan()
	s.logger.Info(fmt.Sprintf("The Name Server boot success. serializeType=JSON, address %s", s.Addr()))
	return nil
}

// Stop answers what is under way and closes; brokers and clients go on with another name server. Only after a
// successful Start.
func (s *Server) Stop() {
	s.stopOnce.Do(func() {
		s.remoting.RefuseNew(remoting.ServiceNotAvailable, "the name server is stopping")
		close(s.scanStop)
		<-s.scanDone
		s.remoting.Stop(stopTimeout)
		s.registerLane.Stop()
		s.queryLane.Stop()
	})
}

// Addr is the bound address.
func (s *Server) Addr() netip.AddrPort { return s.remoting.Addr() }

// Done is closed when the server ended; Err says why, nil after Stop.
func (s *Server) Done() <-chan struct{} { return s.remoting.Done() }
func (s *Server) Err() error            { return s.remoting.Err() }

// onSessionClose runs on the loop; the removal is work for the register lane, behind what the connection sent before.
// If the lane is full, the next scan sees the closed connection.
func (s *Server) onSessionClose(session *reactor.Session, _ string) {
	if s.routes.watches(session) {
		s.registerLane.Submit(func() { s.routes.ConnectionClosed(session) })
	}
}

func (s *Server) scan() {
	defer close(s.scanDone)
	for {
		timer := time.NewTimer(s.config.Load().scanInterval())
		select {
		case <-s.scanStop:
			timer.Stop()
			return
		case now := <-timer.C:
			s.routes.Scan(now)
		}
	}
}
