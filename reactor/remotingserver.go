// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"log/slog"
	"net/netip"
	"time"

	"loopmq/reactor/remoting"
)

// Processor answers requests of one or more codes. Process runs on the connection's loop, or on a worker when the
// code was registered with a Lane; on the loop it must neither block nor fault. The request and all that it borrows are
// valid until Process returns (on a lane they are an owned copy); what is answered later keeps req.ReplyTo().
type Processor interface {
	Process(req *Request)
}

// ProcessorFunc makes a function a Processor.
type ProcessorFunc func(req *Request)

func (f ProcessorFunc) Process(req *Request) { f(req) }

// TurnProcessor is a Processor that gathers work over one loop turn: EndTurn runs on the loop after the last request
// of the turn and before the turn's replies are written.
type TurnProcessor interface {
	Processor
	EndTurn(loop *Loop)
}

// Loop is one client event loop as processors see it.
type Loop struct {
	Index int
	// Local is a place for a processor's per-loop state, by a number from NewLoopLocal. Only the loop touches it.
	Local [8]any
}

// Request is one decoded request.
type Request struct {
	remoting.Command
	Session *Session
	// ReceivedAt is when the loop turn that decoded it began.
	ReceivedAt time.Time
}

// Reply answers the request, once, from any goroutine; resp is encoded before it returns and is the caller's again.
// Opaque, flag and serialize type are set here; a one-way request is never answered.
func (r *Request) Reply(resp *remoting.Command) {}

// ReplyTo is what is needed to answer later: small, comparable, no pointers into the frame.
func (r *Request) ReplyTo() ReplyTo { return ReplyTo{} }

// ReplyTo answers one request from any goroutine. Replies of one session are gathered and leave in one write per turn.
type ReplyTo struct {
	Session   *Session
	Opaque    int32
	Serialize remoting.SerializeType
	Oneway    bool
}

// Reply sends resp, which is encoded before it returns and then is the caller's again.
func (t ReplyTo) Reply(resp *remoting.Command) {}

// ReplyLoans sends resp with a body made of parts (bodyLen bytes in all) that are not copied by the caller: release
// runs exactly once, when the bytes were sent or copied, or the connection is gone.
func (t ReplyTo) ReplyLoans(resp *remoting.Command, parts [][]byte, bodyLen int, release func()) {}

// Session is one client connection that speaks remoting. Its methods may be called from any goroutine.
type Session struct{}

func (s *Session) RemoteAddr() netip.AddrPort { return netip.AddrPort{} }
func (s *Session) LocalAddr() netip.AddrPort  { return netip.AddrPort{} }
func (s *Session) Loop() *Loop                { return nil }
func (s *Session) VIP() bool                  { return false } // came in on listenPort-2
func (s *Session) Closed() bool               { return false }
func (s *Session) Close(reason string)        {}

// ID is unique in this process.
func (s *Session) ID() uint64 { return 0 }

// Writable is false while unsent output is above the connection's mark: produce no pull data then.
func (s *Session) Writable() bool { return true }

// InvokeOneway sends the broker's own request to the client, without an answer.
func (s *Session) InvokeOneway(req *remoting.Command) error { return nil }

// InvokeAsync sends a request to the client; done runs once, on the loop, a timer goroutine or at close. resp is owned by done.
func (s *Session) InvokeAsync(req *remoting.Command, timeout time.Duration, done func(resp *remoting.Command, err error)) {
}

// Lane is a bounded set of workers with a bounded queue; at the bound a request is answered SYSTEM_BUSY [OVERLOAD].
type Lane struct{}

func NewLane(name string, workers, capacity int) *Lane { return nil }

// Submit queues f; false at the bound or after Stop.
func (l *Lane) Submit(f func()) bool    { return false }
func (l *Lane) Len() int                { return 0 }
func (l *Lane) HeadWait() time.Duration { return 0 }
func (l *Lane) Capacity() int           { return 0 }

// Stop takes no more work, waits for what runs, drops what is queued (its requests are not answered).
func (l *Lane) Stop() {}

// RemotingServerConfig are the listener's settings and limits; zero fields take the defaults named.
type RemotingServerConfig struct {
	Addrs    []string // host:port, all served by the same loops; Addrs[1:] count as VIP ports
	NumLoops int      // half the processors, at least 1
	Logger   *slog.Logger

	ConnectionsMax        int           // from RLIMIT_NOFILE less a reserve
	IdleTimeout           time.Duration // 120 s, serverChannelMaxIdleTimeSeconds
	PartialFramesBytesMax int64         // 256 MiB for all connections; beyond it the largest is closed
	PartialFrameAgeMax    time.Duration // 30 s
	OutboundMark          int           // 8 MiB; closed after OutboundMarkAge above it, or at twice
	OutboundMarkAge       time.Duration // 10 s
	ReadBufferCap         int           // 64 KiB

	OnSessionOpen  func(*Session)         // on the loop
	OnSessionClose func(*Session, string) // on the loop, with the reason
}

// RemotingServer listens, decodes and dispatches.
type RemotingServer struct{}

func NewRemotingServer(cfg RemotingServerConfig) *RemotingServer { return nil }

// RegisterProcessor must be called before Start. lane nil: on the loop. vip says whether the code is also served on VIP ports.
func (s *RemotingServer) RegisterProcessor(code int32, p Processor, lane *Lane, vip bool) {}

// RegisterDefaultProcessor serves every code that has no processor of its own.
func (s *RemotingServer) RegisterDefaultProcessor(p Processor, lane *Lane) {}

// Start listens; it returns when the ports are bound, or with the error that says which is not.
func (s *RemotingServer) Start() error { return nil }

// RefuseNew makes every request from now on answered with code and remark (shutdown: SERVICE_NOT_AVAILABLE).
func (s *RemotingServer) RefuseNew(code int32, remark string) {}

// Stop flushes gathered replies (bounded by timeout), closes all connections, and returns when the engine's run function has.
func (s *RemotingServer) Stop(timeout time.Duration) {}

// Addr is the bound address of Addrs[0] (useful with port 0).
func (s *RemotingServer) Addr() netip.AddrPort { return netip.AddrPort{} }

// Done is closed when the engine ended; Err says why, nil if Stop asked for it.
func (s *RemotingServer) Done() <-chan struct{} { return nil }
func (s *RemotingServer) Err() error            { return nil }

// ServerStats are the server's counters.
type ServerStats struct {
	Connections, ConnectionsMax                                       int
	Accepted, Closed, Refused, ProtocolErrors                         int64
	RequestsTotal, ResponsesTotal, BytesIn, BytesOut                  int64
	PartialFrameBytes                                                 int64
	ClosedPartialBudget, ClosedPartialAge, ClosedOutbound, ClosedIdle int64
}

func (s *RemotingServer) Stats() ServerStats { return ServerStats{} }
