// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"log/slog"
	"net/netip"
	"time"
)

// RemotingServerConfig are the listener's settings and limits; zero fields take the defaults named.
type RemotingServerConfig struct {
	Addrs    []string // host:port, all served by the same loops; Addrs[1:] count as VIP ports
	NumLoops int      // half the processors, at least 1
	Logger   *slog.Logger

	ConnectionsMax        int           // from RLIMIT_NOFILE less a reserve, which servers that leave it 0 share
	IdleTimeout           time.Duration // 120 s, serverChannelMaxIdleTimeSeconds
	PartialFramesBytesMax int64         // 256 MiB for all connections; beyond it the largest is closed
	PartialFrameAgeMax    time.Duration // 30 s, and a second more for each 16 KiB of the frame that have come
	OutboundMark          int           // 8 MiB; closed after OutboundMarkAge above it, or at twice
	OutboundMarkAge       time.Duration // 10 s
	OutboundBytesMax      int64         // 256 MiB for all connections; beyond it the largest is closed
	ReadBufferCap         int           // 512 KiB per loop

	OnSessionOpen  func(*Session)         // on the loop
	OnSessionClose func(*Session, string) // on the loop, with the reason

	// GroupOf says under which number, below RequestGroupsMax, requests of a code are counted; what has no processor of
	// its own counts under 0. It is asked when a processor is registered.
	GroupOf func(code int32) int
	// OnTold gets the notes of ReplyTold, on the loop: at is when their answers were written, zero when the
	// connection ended before. The slice is only lent.
	OnTold func(loop *Loop, notes []any, at time.Time)
}

// RequestGroupsMax is how many groups of requests are counted.
const RequestGroupsMax = 8

const (
	idleTimeoutDefault           = 120 * time.Second
	partialFramesBytesMaxDefault = 256 << 20
	partialFrameAgeMaxDefault    = 30 * time.Second
	outboundMarkDefault          = 8 << 20
	outboundMarkAgeDefault       = 10 * time.Second
	outboundBytesMaxDefault      = 256 << 20
	// pendingPerSessionMax bounds the broker's own requests to one client.
	pendingPerSessionMax = 1024
)

func (c *RemotingServerConfig) ensureDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	orDefault(&c.IdleTimeout, idleTimeoutDefault)
	orDefault(&c.PartialFramesBytesMax, partialFramesBytesMaxDefault)
	orDefault(&c.PartialFrameAgeMax, partialFrameAgeMaxDefault)
	orDefault(&c.OutboundMark, outboundMarkDefault)
	orDefault(&c.OutboundMarkAge, outboundMarkAgeDefault)
	orDefault(&c.OutboundBytesMax, outboundBytesMaxDefault)
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// RemotingServer listens, decodes and dispatches.
type RemotingServer struct {
	core   *core
	server *Server
}

// NewRemotingServer makes a server; register processors, then Start it.
func NewRemotingServer(cfg RemotingServerConfig) *RemotingServer {
	cfg.ensureDefaults()
	s := &RemotingServer{core: newCore(limits{
		idleTimeout:           cfg.IdleTimeout,
		partialFramesBytesMax: cfg.PartialFramesBytesMax,
		partialFrameAgeMax:    cfg.PartialFrameAgeMax,
		outboundMark:          cfg.OutboundMark,
		outboundMarkAge:       cfg.OutboundMarkAge,
		outboundBytesMax:      cfg.OutboundBytesMax,
		pendingMax:            pendingPerSessionMax,
	}, cfg.Logger)}
	s.core.onOpen, s.core.onClose = cfg.OnSessionOpen, cfg.OnSessionClose
	s.core.groupOf, s.core.onTold = cfg.GroupOf, cfg.OnTold
	s.server = NewServer(ServerConfig{
		Addrs: cfg.Addrs, NumLoops: cfg.NumLoops, ReadBufferCap: cfg.ReadBufferCap, ConnectionsMax: cfg.ConnectionsMax,
		Logger: cfg.Logger, OnTick: s.core.onTick,
	}, s.core)
	s.core.isVIP = s.isVIP
	return s
}

// RegisterProcessor must be called before Start. lane nil: on the loop. vip says whether the code is also served on VIP ports.
func (s *RemotingServer) RegisterProcessor(code int32, p Processor, lane *Lane, vip bool) {
	s.core.register(code, p, lane, vip)
}

// RegisterDefaultProcessor serves every code that has no processor of its own.
func (s *RemotingServer) RegisterDefaultProcessor(p Processor, lane *Lane) {
	s.core.fallback = s.core.newRegistration(p, lane, true)
}

// Start listens; it returns when the ports are bound, or with the error that says which is not.
func (s *RemotingServer) Start() error { return s.server.Start() }

// RefuseNew makes every request from now on answered with code and remark (shutdown: SERVICE_NOT_AVAILABLE).
func (s *RemotingServer) RefuseNew(code int32, remark string) {
	s.core.refusing.Store(&refusal{code, remark})
}

// Stop flushes gathered replies (bounded by timeout), closes all connections, and returns when the engine's run function has.
func (s *RemotingServer) Stop(timeout time.Duration) {
	s.core.drain(timeout)
	s.server.Stop()
}

// Together runs f, which answers many requests in a short time and must not block: each loop is woken once, at its end.
func (s *RemotingServer) Together(f func()) { s.core.together(f) }

// Addr is the bound address of Addrs[0] (useful with port 0).
func (s *RemotingServer) Addr() netip.AddrPort { return s.server.Addr(0) }

// VIPAddr is the bound address of Addrs[1].
func (s *RemotingServer) VIPAddr() netip.AddrPort { return s.server.Addr(1) }

// Done is closed when the engine ended; Err says why, nil if Stop asked for it.
func (s *RemotingServer) Done() <-chan struct{} { return s.server.Done() }
func (s *RemotingServer) Err() error            { return s.server.Err() }

func (s *RemotingServer) isVIP(session *Session) bool {
	port := session.local.Port()
	for _, vip := range s.server.bound[1:] {
		if vip.Port() == port && port != s.server.bound[0].Port() {
			return true
		}
	}
	return false
}

// ServerStats are the server's counters.
type ServerStats struct {
	Connections, ConnectionsMax                                       int
	Accepted, Closed, Refused, ProtocolErrors                         int64
	RequestsTotal, ResponsesTotal, BytesIn, BytesOut                  int64
	Requests                                                          [RequestGroupsMax]int64 // by GroupOf
	Loops                                                             []LoopStats
	PartialFrameBytes, OutboundBytes                                  int64
	ClosedPartialBudget, ClosedPartialAge, ClosedOutbound, ClosedIdle int64
}

// LoopStats are the counters of one event loop.
type LoopStats struct {
	Turns int64
	Busy  time.Duration // in turns, and between turns that follow each other at once
}

// Stats sums up the loops' counters.
func (s *RemotingServer) Stats() ServerStats {
	st := ServerStats{
		Connections: int(s.server.connections.Load()), ConnectionsMax: s.server.cfg.ConnectionsMax,
		Accepted: s.server.accepted.Load(), Refused: s.server.refused.Load(),
		PartialFrameBytes: s.core.partials.sum.Load(), OutboundBytes: s.core.outputs.sum.Load(),
	}
	for _, l := range s.core.allLoops() {
		st.Closed += l.closed.Load()
		st.ProtocolErrors += l.protocolErrors.Load()
		for i := range l.requests {
			n := l.requests[i].Load()
			st.Requests[i] += n
			st.RequestsTotal += n
		}
		st.Loops = append(st.Loops, LoopStats{l.turnsTotal.Load(), time.Duration(l.busy.Load())})
		st.ResponsesTotal += l.responses.Load()
		st.BytesIn += l.bytesIn.Load()
		st.BytesOut += l.bytesOut.Load()
		st.ClosedPartialBudget += l.closedPartialBudget.Load()
		st.ClosedPartialAge += l.closedPartialAge.Load()
		st.ClosedOutbound += l.closedOutbound.Load()
		st.ClosedIdle += l.closedIdle.Load()
	}
	return st
}
