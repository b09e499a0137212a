// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
)

// linkState is how far the link to the master has got.
type linkState int

const (
	linkAsked     linkState = iota // −1 is out, no hello yet
	linkCopying                    // a RocketMQ master, which is being asked where its log begins
	linkComparing                  // a loopmq master
	linkTransfer
	linkRefused
)

var linkStates = [...]string{
	linkAsked: "connecting", linkCopying: "connecting", linkComparing: "handshake", linkTransfer: "transfer", linkRefused: "refused",
}

// haLink is one connection to the master. Its loop owns it, and is the log's writer.
type haLink struct {
	client *HAClient
	addr   string
	conn   reactor.Conn
	closed chan struct{}

	state     linkState
	rocketMQ  bool // in transfer from a master that knows no handshake
	openedAt  time.Time
	buffer    *readBuffer
	compare   *comparison
	handing   bool // this slave has offered the master what it has beyond its end
	hello     helloMessage
	comparing [sha256.Size]byte // this log's hash of the range asked for
	seam      *seamCheck        // of a RocketMQ master's first bytes; nil once they have joined
	next      storage.PhyOffset // where the next frame begins
	began     storage.PhyOffset // where the first one did
	beganAt   time.Time
	caughtUp  bool              // had what the master had when the transfer began, or, of RocketMQ's, all that it had to send
	reported  storage.PhyOffset // never falls: what is reported is held
	frames    int64             // with bytes
	vouched   bool              // the master still has what comes next, as far as a question told
	asking    bool
	askedAt   time.Time
	wroteAt   time.Time
	readAt    time.Time
	refused   string
	failed    error
	flow      flowMonitor
	report    [reportSize]byte
	parts     [1][]byte

	bodies      [][]byte          // received and checked, not yet appended
	bodiesBegin storage.PhyOffset // where they go
}

var (
	// errRefused ends a link that both sides have been told about.
	errRefused    = errors.New("ha: the logs do not join")
	errUnreadable = errors.New("a page of this log cannot be read from the disk")
)

// bodiesMax is how many frames are appended with one call at most.
const bodiesMax = 256

// idleAskInterval bounds how often a RocketMQ master that sends nothing but heartbeats is asked what it still has.
const idleAskInterval = time.Minute

// prepare waits, before a link is made, until a slave that reports synced bytes can say where its log ends.
func (l *haLink) prepare(ctx context.Context) error {
	c := l.client
	for c.config().HaReportSynced && c.store.FlushedWhere() < c.store.MaxPhyOffset() && c.store.MinPhyOffset() < c.store.MaxPhyOffset() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(syncedInterval):
		}
	}
	return nil
}

func (l *haLink) onOpen(now time.Time) {
	l.openedAt, l.wroteAt, l.readAt = now, now, now
	l.reported = -1
	l.sendReport(handshakeRequest, now)
	l.publish(now)
}

func (l *haLink) sendReport(offset int64, now time.Time) {
	encodeReport(&l.report, offset)
	l.write(l.report[:], now)
}

func (l *haLink) write(b []byte, now time.Time) {
	l.wroteAt = now
	l.parts[0] = b
	_ = l.conn.Writev(l.parts[:])
}

// onLoopTick is the reports that are due without progress, and the housekeeping. It looks at the last read, not at the
// last write as HAClient of 4.x does: a dead master behind a silent network is noticed.
func (l *haLink) onLoopTick() {
	now := time.Now()
	cfg := l.client.config()
	switch {
	case l.ended():
		return
	case l.state == linkAsked && l.isLoopmq() && now.Sub(l.openedAt) > min(helloWait, cfg.HaHousekeepingInterval):
		// The next link reports its offset after handshakeWait. Should this be a loopmq master all the same, it closes
		// that link: it has read −1 first, and compares or does nothing.
		l.client.loopmqAt.Store(nil)
		l.fail(fmt.Errorf("no hello for %v from a master that was loopmq's: it is taken for RocketMQ's", now.Sub(l.openedAt).Round(time.Second)))
	case now.Sub(l.readAt) > cfg.HaHousekeepingInterval:
		l.fail(fmt.Errorf("master silent for %v", now.Sub(l.readAt).Round(time.Second)))
	case l.state == linkAsked && now.Sub(l.openedAt) > handshakeWait && !l.isLoopmq():
		l.followRocketMQ(now)
	case l.state == linkTransfer:
		l.reportProgress(now)
		if now.Sub(l.wroteAt) > cfg.HaSendHeartbeatInterval && !l.ended() {
			l.sendReport(int64(l.reported), now)
		}
	}
	if !l.ended() {
		l.publish(now)
	}
}

func (l *haLink) isLoopmq() bool {
	at := l.client.loopmqAt.Load()
	return at != nil && *at == l.addr
}

// publish shows how things stand. Why there was no link before stays to be seen until this one carries the log.
func (l *haLink) publish(now time.Time) {
	before := l.client.Status()
	st := &ClientStatus{
		MasterAddr: l.addr, State: linkStates[l.state], Refused: l.refused,
		LastReadTimestamp: l.readAt, LastWriteTimestamp: l.wroteAt,
		TransferredByteInSecond: l.flow.lastSecond(now),
		MasterFirst:             l.hello.first, MasterEnd: max(l.hello.end, l.next),
	}
	if l.state != linkTransfer {
		st.LastError = before.LastError
		if st.Refused == "" && before.Refused != "" {
			st.Refused, st.State = before.Refused, linkStates[linkRefused]
		}
	}
	l.client.status.Store(st)
}

// onTraffic takes all that gnet has, dispatches whole frames, and reports once.
// Source: HAClient#processReadEvent, #dispatchReadRequest.
func (l *haLink) onTraffic(now time.Time) {
	l.readAt = now
	for l.conn.InboundBuffered() > 0 && !l.ended() {
		n, err := l.conn.Read(l.buffer.space())
		if err != nil {
			l.fail(err)
			return
		}
		l.flow.roll(now)
		l.flow.count(int64(n))
		l.buffer.received(n)
		if err := l.dispatch(now); err != nil {
			l.fail(err)
			return
		}
		l.buffer.carry()
	}
	if l.state == linkTransfer {
		l.reportProgress(now)
	}
}

// reportProgress reports what the log holds now, if that is more. Source: HAClient#reportSlaveMaxOffsetPlus.
func (l *haLink) reportProgress(now time.Time) {
	held := l.client.store.MaxPhyOffset()
	if l.client.config().HaReportSynced {
		held = min(held, l.client.store.FlushedWhere())
	}
	if held > l.reported && !l.ended() {
		l.reported = held
		l.sendReport(int64(held), now)
	}
}

// fail closes the link, with the reason on this side's log. The pieces received are dropped: the next link begins at
// the log's end.
func (l *haLink) fail(err error) {
	if l.failed == nil {
		l.failed = err
	}
	l.conn.Close()
}

// ended says that nothing more is taken from this link; its last event may be still to come.
func (l *haLink) ended() bool { return l.failed != nil || l.conn.Closed() }

// onClose says why there is no link any more.
func (l *haLink) onClose(err error) {
	if l.failed == nil {
		l.failed = l.closedByPeer(err)
	}
	l.client.complain(l.addr, l.failed)
	st := l.client.Status()
	if st.State == linkStates[linkTransfer] || st.State == linkStates[linkComparing] {
		st.State = linkStates[linkAsked]
	}
	l.client.status.Store(&st)
	close(l.closed)
}

func (l *haLink) closedByPeer(err error) error {
	switch {
	case l.rocketMQ && l.frames == 0:
		return fmt.Errorf("the master closed the link at offset %d before it sent anything: it is in controller mode (enableControllerMode), "+
			"which speaks another protocol, or does not have that offset: %w", l.next, errOrClosed(err))
	case l.state == linkAsked:
		return fmt.Errorf("the master closed the link at once: %w", errOrClosed(err))
	}
	return fmt.Errorf("the master closed the link: %w", errOrClosed(err))
}

func errOrClosed(err error) error {
	if err == nil {
		return reactor.ErrClosed
	}
	return err
}

// dispatch takes all whole frames. Bodies that follow each other are appended with one call: what a page of the log costs
// the kernel grows with the number of writes that it comes in.
func (l *haLink) dispatch(now time.Time) error {
	if err := l.dispatchFrames(now); err != nil {
		return errors.Join(err, l.appendBodies())
	}
	return l.appendBodies()
}

func (l *haLink) dispatchFrames(now time.Time) error {
	for {
		h, ok, err := l.buffer.header()
		if err != nil {
			return l.foreign(err)
		}
		if !ok {
			return nil
		}
		if h.phyOffset >= 0 {
			// Looked at before the body is there, as HAClient does.
			if err := l.checkOffset(h); err != nil {
				return l.foreign(err)
			}
		}
		body, ok := l.buffer.body(h)
		if !ok {
			return nil
		}
		if len(body) == 0 || h.phyOffset < 0 || len(l.bodies) == bodiesMax {
			if err := l.appendBodies(); err != nil {
				return err
			}
		}
		switch {
		case h.phyOffset < 0:
			err = l.message(h, body, now)
		case len(body) > 0:
			err = l.append(body)
		default:
			l.onHeartbeat(now)
		}
		if err != nil {
			return err
		}
		l.buffer.dispatched(h)
	}
}

// foreign is the error of a first header that is none: a master in controller mode begins with a state and a size.
func (l *haLink) foreign(err error) error {
	if l.rocketMQ && l.frames == 0 {
		return fmt.Errorf("a master in controller mode (enableControllerMode) speaks another protocol: %w", err)
	}
	return err
}

func (l *haLink) checkOffset(h frameHeader) error {
	if l.state != linkTransfer {
		return fmt.Errorf("%w: a frame at %d before this slave said where it begins", ErrProtocol, h.phyOffset)
	}
	if h.phyOffset != l.next {
		return fmt.Errorf("%w: the master sends offset %d, this slave is at %d", ErrProtocol, h.phyOffset, l.next)
	}
	return nil
}

// append takes a body, which may end anywhere, for appendBodies. A RocketMQ master's first bytes are held back until they
// have shown that they join what is here.
func (l *haLink) append(body []byte) error {
	offset := l.next
	l.next += storage.PhyOffset(len(body))
	l.frames++
	l.vouched = false
	if l.seam != nil {
		var err error
		if offset, body, err = l.seam.take(offset, body); err != nil {
			return err
		}
		if l.seam.done() {
			l.seam = nil
		}
		if len(body) == 0 {
			return nil
		}
	}
	if len(l.bodies) == 0 {
		l.bodiesBegin = offset
	}
	l.bodies = append(l.bodies, body)
	return nil
}

// appendBodies writes what append has taken; the slices are good until the next carry.
func (l *haLink) appendBodies() error {
	if len(l.bodies) == 0 {
		return nil
	}
	err := l.client.store.AppendToCommitLog(l.bodiesBegin, l.bodies...)
	clear(l.bodies)
	l.bodies = l.bodies[:0]
	if err != nil {
		return fmt.Errorf("this slave cannot write its log: %w", err)
	}
	if !l.rocketMQ && l.next >= l.hello.end && !l.caughtUp {
		l.sayCaughtUp()
		return l.client.state.setCopying(false)
	}
	return nil
}

// sayCaughtUp ends the operator's wait for a new slave.
func (l *haLink) sayCaughtUp() {
	l.caughtUp = true
	if bytes := int64(l.next - l.began); bytes > 0 {
		took := time.Since(l.beganAt)
		l.client.logger.Info("caught up with the master", "master", l.addr, "end", l.next, "bytes", bytes,
			"took", took.Round(time.Millisecond), "mb_per_s", int64(float64(bytes)/1e6/max(took.Seconds(), 1e-3)))
	}
}

// followRocketMQ reports this log's end to a master that knows no handshake.
func (l *haLink) followRocketMQ(now time.Time) {
	store := l.client.store
	if store.MinPhyOffset() == store.MaxPhyOffset() {
		l.state = linkCopying
		l.client.ask(l, l.beginCopy)
		return
	}
	l.follow(store.MaxPhyOffset(), now)
}

// beginCopy begins a copy of the whole log. A RocketMQ master takes a first report of 0 for a slave that wants its last
// file only, and any other as it is. So the report is its first offset, or 1, with byte 0 put here: the high byte of the
// first record's size, and records are smaller than 16 MiB.
func (l *haLink) beginCopy(first storage.PhyOffset, err error, now time.Time) {
	store := l.client.store
	if err == nil && first%storage.PhyOffset(l.client.config().MappedFileSizeCommitLog) != 0 {
		err = fmt.Errorf("it begins at %d, which is no file of this slave's mappedFileSizeCommitLog", first)
	}
	if err != nil {
		l.fail(fmt.Errorf("this log is empty, and for a copy of the whole log the master must tell where its own begins: %w", err))
		return
	}
	err = errors.Join(store.TruncateTo(0), l.client.state.setCopying(true))
	if err == nil && first == 0 {
		err = store.AppendToCommitLog(0, []byte{0})
		first = 1
	}
	if err != nil {
		l.fail(err)
		return
	}
	l.client.logger.Info("copying the whole log of a RocketMQ master", "master", l.addr, "from", first)
	l.follow(first, now)
}

func (l *haLink) follow(offset storage.PhyOffset, now time.Time) {
	c := l.client
	if err := c.state.follow(regimeOther, -1, c.store.MaxPhyOffset()); err != nil {
		l.fail(err)
		return
	}
	c.logger.Info("following a RocketMQ master", "master", l.addr, "from", offset)
	l.state, l.rocketMQ, l.next, l.reported = linkTransfer, true, offset, offset
	l.began, l.beganAt = offset, now
	l.seam = newSeamCheck(c.store)
	l.sendReport(int64(offset), now)
}

// onHeartbeat is a master that has nothing to send. A RocketMQ master also sends heartbeats, for ever, when it no longer
// has what this slave needs (apache/rocketmq#3388); so it is asked.
func (l *haLink) onHeartbeat(now time.Time) {
	if !l.rocketMQ || l.asking || l.vouched {
		return
	}
	if !l.client.state.copying() && !l.askedAt.IsZero() && now.Sub(l.askedAt) < idleAskInterval {
		return
	}
	l.asking, l.askedAt = true, now
	frames := l.frames
	l.client.ask(l, func(first storage.PhyOffset, err error, _ time.Time) {
		l.asking = false
		switch {
		case err != nil || l.frames != frames:
		case first > l.next:
			l.fail(l.expired(first))
		default:
			l.vouched = true
			if !l.caughtUp {
				l.sayCaughtUp()
			}
			if err := l.client.state.setCopying(false); err != nil {
				l.fail(err)
			}
		}
	})
}

// expired is a master's log that begins behind the end of this one. A copy that has not caught up yet begins anew.
func (l *haLink) expired(first storage.PhyOffset) error {
	if l.client.state.copying() {
		return errors.Join(l.startOver(first), fmt.Errorf("the master deleted what a copy of its log had not got to: it begins anew at %d", first))
	}
	l.state = linkRefused
	l.refused = fmt.Sprintf("this log ends at %d, the master's begins at %d: rebuild this slave", l.client.store.MaxPhyOffset(), first)
	l.publish(time.Now())
	return fmt.Errorf("%w: %s", errRefused, l.refused)
}

// startOver empties an unfinished copy. All that it held the master has deleted.
func (l *haLink) startOver(first storage.PhyOffset) error {
	l.client.logger.Warn("the master deleted what the copy of its log had not got to, the copy begins anew",
		"master", l.addr, "end", l.client.store.MaxPhyOffset(), "masterFirst", first)
	l.client.service.DropSlaves()
	return l.client.store.TruncateTo(0)
}
