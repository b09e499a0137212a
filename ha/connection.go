// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
)

const (
	// pumpFramesMax is how many frames one turn sends before other connections of the loop get theirs.
	pumpFramesMax = 16
	// refuseDelay is how long a refused slave is kept waiting before its connection closes: RocketMQ's 4.x slaves come
	// back without a pause of their own, thousands of times a second.
	refuseDelay = 5 * time.Second
	// copiedHeartbeats is how many heartbeats a connection goes on after another slave with its node id has come, until
	// they count as two stores: what a slave sent before it lost a connection may arrive behind its next one.
	copiedHeartbeats = 2
)

// connectionState is how far a slave's connection has got.
type connectionState int32

const (
	stateNew         connectionState = iota // nothing heard yet
	stateHandshaking                        // a loopmq slave, comparing logs
	stateTransfer
	stateRefused // says nothing more, closes after refuseDelay
)

// String names the state for logs and runtime info.
func (s connectionState) String() string {
	return [...]string{"new", "handshake", "transfer", "refused"}[s]
}

// slaveKey tells slaves apart: by node id where there is one, else by address.
type slaveKey struct {
	node nodeID
	addr netip.Addr
}

// HAConnection is the master's side of one slave. Its loop owns all but the atomics, which others read.
// Source: HAConnection with its ReadSocketService and WriteSocketService.
type HAConnection struct {
	service *HAService
	conn    reactor.Conn
	since   time.Time
	tick    func() // onLoopTick, made once
	pumped  func() // onLoopPump, made once

	state          atomic.Int32
	slaveAckOffset atomic.Int64 // -1 until the first report
	countsFrom     atomic.Int64 // reports below it count for no send
	sentOffset     atomic.Int64 // end of what was sent, what the slave asked for while nothing was
	movedAt        atomic.Int64 // unix ns: when slaveAckOffset last rose, or the first byte beyond it was sent
	key            atomic.Pointer[slaveKey]
	pumpPosted     atomic.Bool
	warmEnd        atomic.Int64 // end of what the helper has brought in
	transferred    atomic.Int64 // bytes, frames and headers
	perSecond      atomic.Int64 // bytes sent in the last full second
	refusal        atomic.Pointer[refuseMessage]

	slaveRequestOffset    storage.PhyOffset
	nextTransferFromWhere storage.PhyOffset
	lastReadTimestamp     time.Time
	lastWriteTimestamp    time.Time
	refusedAt             time.Time
	flow                  flowMonitor
	fetching              bool // the helper brings a part of the log in
	header                [frameHeaderSize]byte
	parts                 [2][]byte
	handshake             *masterHandshake
}

func newHAConnection(s *HAService, conn reactor.Conn, now time.Time) *HAConnection {
	c := &HAConnection{
		service: s, conn: conn, since: now, slaveRequestOffset: -1, nextTransferFromWhere: -1,
		lastReadTimestamp: now, lastWriteTimestamp: now,
	}
	c.slaveAckOffset.Store(-1)
	c.sentOffset.Store(-1)
	c.key.Store(&slaveKey{addr: conn.RemoteAddr().Addr()})
	c.tick, c.pumped = c.onLoopTick, c.onLoopPump
	return c
}

// ackOffset is what the slave is known to hold, -1 while it is not served. Any goroutine.
func (c *HAConnection) ackOffset() storage.PhyOffset {
	return storage.PhyOffset(c.slaveAckOffset.Load())
}

// heldOffset is what of it counts for sends: -1 until a loopmq slave was once at the end that the log had when its
// transfer began. A copy of the whole log that is not finished may be given up and begun anew, so nothing may have been
// answered on its strength. Any goroutine.
func (c *HAConnection) heldOffset() storage.PhyOffset {
	if ack := c.slaveAckOffset.Load(); ack >= c.countsFrom.Load() {
		return storage.PhyOffset(ack)
	}
	return -1
}

// slave tells two connections of one slave: a loopmq slave by its node id, RocketMQ's by the address without the port.
func (c *HAConnection) slave() slaveKey { return *c.key.Load() }

// stalled says that the slave has acknowledged nothing for a while although it was sent something. Any goroutine.
func (c *HAConnection) stalled(now time.Time, patience time.Duration) bool {
	return c.sentOffset.Load() > c.slaveAckOffset.Load() && now.UnixNano()-c.movedAt.Load() > int64(patience)
}

// inSync says that the slave is served, gets on, and is near end. Any goroutine.
func (c *HAConnection) inSync(end storage.PhyOffset, now time.Time, cfg *Config) bool {
	ack := c.ackOffset()
	return ack >= 0 && int64(end-ack) < cfg.HaSlaveFallbehindMax && !c.stalled(now, cfg.SlaveTimeout)
}

// wakePump posts a pump unless one is on its way. The flag falls before the pump looks at the end of the log, so no
// byte is left behind.
func (c *HAConnection) wakePump() {
	if connectionState(c.state.Load()) == stateTransfer && c.pumpPosted.CompareAndSwap(false, true) {
		if !c.conn.Post(c.pumped) {
			c.pumpPosted.Store(false)
		}
	}
}

func (c *HAConnection) onLoopPump() {
	c.pumpPosted.Store(false)
	c.pump(time.Now())
}

// masterHandler gets the events of the HA port.
type masterHandler struct{ service *HAService }

func (h *masterHandler) OnOpen(conn reactor.Conn) {
	s := h.service
	now := time.Now()
	c := newHAConnection(s, conn, now)
	conn.SetContext(c)
	s.add(c)
	if !allowed(s.config().HaAllowList, conn.RemoteAddr().Addr()) {
		c.refuse(now, refuseNotAllowed, "its address is not in haAllowList")
		return
	}
	s.logger.Info("slave connected", "slave", conn.RemoteAddr())
}

func (h *masterHandler) OnTraffic(conn reactor.Conn) {
	conn.Context().(*HAConnection).onTraffic(time.Now())
}

func (h *masterHandler) OnClose(conn reactor.Conn, err error) {
	c := conn.Context().(*HAConnection)
	c.slaveAckOffset.Store(-1)
	h.service.remove(c)
	c.leaveTail()
	h.service.logger.Info("slave gone", "slave", conn.RemoteAddr(), "cause", err)
}

// onTraffic reads what the slave says. Of several reports only the last whole one counts, and a piece of one waits for
// the rest. Source: HAConnection.ReadSocketService#processReadEvent.
func (c *HAConnection) onTraffic(now time.Time) {
	c.lastReadTimestamp = now
	for !c.conn.Closed() {
		switch connectionState(c.state.Load()) {
		case stateNew:
			if !c.identify(now) {
				return
			}
		case stateHandshaking:
			if !c.handshake.onTraffic(now) {
				return
			}
		case stateTransfer:
			c.readReports(now)
			return
		case stateRefused:
			_, _ = c.conn.Discard(c.conn.InboundBuffered())
			return
		}
	}
}

// identify looks at the first 8 bytes on their own: they tell a loopmq slave from RocketMQ's.
func (c *HAConnection) identify(now time.Time) bool {
	b, err := c.conn.Peek(reportSize)
	if err != nil || len(b) < reportSize {
		return false
	}
	first := int64(binary.BigEndian.Uint64(b))
	_, _ = c.conn.Discard(reportSize)
	switch {
	case first == handshakeRequest:
		c.handshake = newMasterHandshake(c)
		c.state.Store(int32(stateHandshaking))
		c.handshake.hello()
	case first < 0:
		c.drop(fmt.Sprintf("no slave begins with %d", first))
	default:
		c.begin(storage.PhyOffset(first), false, now)
	}
	return true
}

// readReports takes the last whole report.
func (c *HAConnection) readReports(now time.Time) {
	n := c.conn.InboundBuffered() &^ (reportSize - 1)
	if n == 0 {
		return
	}
	_, _ = c.conn.Discard(n - reportSize)
	b, err := c.conn.Peek(reportSize)
	if err != nil {
		return
	}
	ack := storage.PhyOffset(binary.BigEndian.Uint64(b))
	_, _ = c.conn.Discard(reportSize)
	switch before := c.ackOffset(); {
	case ack > c.nextTransferFromWhere:
		c.refuse(now, refuseAhead, fmt.Sprintf("the slave reports offset %d and was sent the log up to %d only", ack, c.nextTransferFromWhere))
	case ack < before:
		c.refuse(now, refuseNotAllowed, fmt.Sprintf("the slave's reports fall from %d to %d%s", before, ack, controllerModeHint(before)))
	default:
		c.ack(ack, now)
		c.pump(now)
	}
}

// controllerModeHint reads an offset as the beginning of the handshake of a slave of 5.x in controller mode: state 1 in
// the first four bytes, then two flags. Source: AutoSwitchHAClient#sendHandshakeHeader.
func controllerModeHint(first storage.PhyOffset) string {
	if first>>32 == 1 && first&^(1<<32|1<<16|1) == 0 {
		return " (a slave in controller mode, enableControllerMode, begins like this: it speaks another protocol)"
	}
	return ""
}

// ack publishes what the slave holds.
func (c *HAConnection) ack(offset storage.PhyOffset, now time.Time) {
	if c.slaveAckOffset.Swap(int64(offset)) == int64(offset) {
		return
	}
	c.movedAt.Store(now.UnixNano())
	c.service.publishAcked()
	c.service.transfer.notifyTransferSome()
}

// begin starts the transfer where the slave asks, or refuses. A RocketMQ slave that asks for 0 has nothing and gets the
// last file: it expects no other. Source: HAConnection.WriteSocketService#run.
func (c *HAConnection) begin(request storage.PhyOffset, compared bool, now time.Time) {
	store := c.service.store
	first, end := store.MinPhyOffset(), store.MaxPhyOffset()
	c.slaveRequestOffset = request
	next := request
	if request == 0 && !compared {
		size := storage.PhyOffset(c.service.config().MappedFileSizeCommitLog)
		next = max(first, end-end%size)
	}
	switch {
	case request > end:
		c.refuse(now, refuseAhead, fmt.Sprintf("the slave asks for offset %d, beyond this log's end%s", request, controllerModeHint(request)))
		return
	case next < first:
		c.refuse(now, refuseExpired, fmt.Sprintf("the slave asks for offset %d, which this log no longer has", request))
		return
	}
	c.nextTransferFromWhere = next
	c.sentOffset.Store(int64(request))
	if compared && !c.countLater(end) {
		return
	}
	c.service.logger.Info("transfer begins", "slave", c.conn.RemoteAddr(), "asked", request, "from", next, "end", end)
	c.state.Store(int32(stateTransfer))
	c.ack(request, now)
	c.pump(now)
}

// countLater makes the reports of a loopmq slave count for sends from end on, once a SYNC_MASTER has noted on disk whose
// they are: should this machine lose what was not on its disk, those slaves are asked for it. False: it has closed the
// connection.
func (c *HAConnection) countLater(end storage.PhyOffset) bool {
	s := c.service
	if s.config().Role != storage.SyncMaster {
		c.countsFrom.Store(int64(end))
		return true
	}
	c.countsFrom.Store(math.MaxInt64)
	node := c.slave().node
	queued := s.helper.do(func() {
		err := s.note(node)
		c.conn.Post(func() { c.noted(end, err) })
	})
	if !queued {
		c.drop("too many slaves begin at once")
	}
	return queued
}

func (c *HAConnection) noted(end storage.PhyOffset, err error) {
	switch {
	case c.conn.Closed() || connectionState(c.state.Load()) != stateTransfer:
	case err != nil:
		c.drop(fmt.Sprintf("the slave cannot be noted, so it would not count: %v", err))
	default:
		c.countsFrom.Store(int64(end))
		c.service.publishAcked()
		c.service.transfer.notifyTransferSome()
	}
}

// refuse names the state on this side, and on a loopmq slave's too, and ends the connection after a while.
func (c *HAConnection) refuse(now time.Time, reason refuseReason, text string) {
	store := c.service.store
	m := &refuseMessage{reason: reason, first: store.MinPhyOffset(), end: store.MaxPhyOffset(), text: text}
	c.refusal.Store(m)
	c.endService(now)
	c.service.refusals.Add(1)
	c.service.logger.Error("slave refused: "+text, "slave", c.conn.RemoteAddr(), "first", m.first, "end", m.end)
	if c.handshake != nil {
		c.send(m.append(nil), now)
	}
}

// isCopy says that another slave with this one's node id is served as well, from before. A store that was copied with its
// ha.json has it. Two such stores would count as one, also when a master asks who holds what it has lost.
func (c *HAConnection) isCopy(cfg *Config) bool {
	before := c.service.servedBefore(c, c.slave().node)
	return before != nil && before.lastReadTimestamp.Sub(c.since) > copiedHeartbeats*cfg.HaSendHeartbeatInterval
}

// refuseCopy refuses it, and from now on whoever comes with that id while the other one is served.
func (c *HAConnection) refuseCopy(now time.Time) {
	node := c.slave().node
	c.service.copied = node
	c.refuse(now, refuseSameNode, fmt.Sprintf("another slave has the same node id, %x, one store is a copy of the other: stop the copy, delete its ha.json, start it", node))
}

// endService leaves the connection open and silent: nothing of the slave counts any more.
func (c *HAConnection) endService(now time.Time) {
	c.refusedAt = now
	c.state.Store(int32(stateRefused))
	c.slaveAckOffset.Store(-1)
	c.service.publishAcked()
	c.leaveTail()
}

// drop closes the connection; what still comes is not looked at.
func (c *HAConnection) drop(why string) {
	c.endService(time.Now())
	c.service.logger.Warn("HA connection closed", "slave", c.conn.RemoteAddr(), "cause", why)
	c.conn.Close()
}

func (c *HAConnection) send(b []byte, now time.Time) {
	c.lastWriteTimestamp = now
	c.parts[0] = b
	_ = c.conn.Writev(c.parts[:1])
}

// pump sends frames while the socket takes them: the next only when it has taken the one before, so a slave that does
// not read costs one frame of memory. Source: HAConnection.WriteSocketService#run, #transferData.
func (c *HAConnection) pump(now time.Time) {
	if connectionState(c.state.Load()) != stateTransfer {
		return
	}
	cfg := c.service.config()
	for range pumpFramesMax {
		if c.conn.Closed() || c.conn.OutboundBuffered() > 0 {
			return
		}
		allowance := c.flow.allowance(cfg, now)
		if allowance <= 0 {
			return // the tick goes on in the next second
		}
		if c.cold(c.service.store.MaxPhyOffset()) {
			return
		}
		sel, ok := c.service.store.Select(c.nextTransferFromWhere, min(cfg.HaTransferBatchSize, allowance))
		if !ok {
			if first := c.service.store.MinPhyOffset(); c.nextTransferFromWhere < first {
				c.refuse(now, refuseExpired, fmt.Sprintf("offset %d was deleted before the slave had it", c.nextTransferFromWhere))
			}
			return
		}
		if !c.transferData(sel, now) {
			return
		}
	}
	c.wakePump()
}

// transferData sends a piece of the log and gives it back. A page that the disk does not give ends the connection: gnet
// may have been interrupted in the middle of a frame.
func (c *HAConnection) transferData(sel storage.SelectMappedBufferResult, now time.Time) bool {
	defer sel.Release()
	err := storage.Guard(func() { c.writeFrame(sel.Bytes(), now) })
	if err != nil {
		c.service.logger.Error("the log cannot be read", "offset", c.sentOffset.Load(), "cause", err)
		c.drop("the log cannot be read")
	}
	return err == nil
}

// writeFrame sends one frame, a heartbeat with an empty body.
func (c *HAConnection) writeFrame(body []byte, now time.Time) {
	frameHeader{c.nextTransferFromWhere, int32(len(body))}.encode(&c.header)
	c.parts[0], c.parts[1] = c.header[:], body
	n := 1
	if len(body) > 0 {
		n = 2
		if c.slaveAckOffset.Load() == c.sentOffset.Load() {
			c.movedAt.Store(now.UnixNano()) // from now on there is something to acknowledge
		}
		c.nextTransferFromWhere += storage.PhyOffset(len(body))
		c.sentOffset.Store(int64(c.nextTransferFromWhere))
	}
	c.lastWriteTimestamp = now
	sent := int64(frameHeaderSize + len(body))
	c.transferred.Add(sent)
	c.flow.count(sent)
	_ = c.conn.Writev(c.parts[:n])
	c.parts[1] = nil
}

// onLoopTick is the safety net of the pump, the heartbeat and the housekeeping.
func (c *HAConnection) onLoopTick() {
	now := time.Now()
	cfg := c.service.config()
	c.perSecond.Store(c.flow.lastSecond(now))
	switch state := connectionState(c.state.Load()); {
	case c.conn.Closed():
	case state == stateRefused:
		if now.Sub(c.refusedAt) > refuseDelay {
			c.conn.Close()
		}
	case now.Sub(c.lastReadTimestamp) > cfg.HaHousekeepingInterval:
		c.drop(fmt.Sprintf("silent for %v", now.Sub(c.lastReadTimestamp).Round(time.Millisecond)))
	case state == stateTransfer && c.isCopy(cfg):
		c.refuseCopy(now)
	case state == stateTransfer:
		c.pump(now)
		if now.Sub(c.lastWriteTimestamp) > cfg.HaSendHeartbeatInterval && c.conn.OutboundBuffered() == 0 && !c.conn.Closed() {
			c.writeFrame(nil, now)
		}
	}
}
