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
	linkComparing                  // a loopmq master
	linkTransfer
	linkRefused
)

var linkStates = [...]string{"connecting", "handshake", "transfer", "refused"}

// haLink is one connection to the master. Its loop owns it, and is the log's writer.
type haLink struct {
	client *HAClient
	addr   string
	conn   reactor.Conn
	closed chan struct{}

	state     linkState
	openedAt  time.Time
	buffer    *readBuffer
	compare   *comparison
	hello     helloMessage
	comparing [sha256.Size]byte // this log's hash of the range asked for
	seam      *seamCheck        // of a RocketMQ master's first bytes; nil once they have joined
	reported  storage.PhyOffset
	wroteAt   time.Time // currentReportedOffset's time
	readAt    time.Time
	refused   string
	flow      flowMonitor
	report    [reportSize]byte
	parts     [1][]byte
}

// errRefused ends a link that both sides have been told about.
var errRefused = errors.New("ha: the logs do not join")

// prepare readies an empty log for a RocketMQ master: it copies the whole log, which that master gives to whoever asks
// for an offset above 0. PROTOCOL.md §1; a loopmq master is asked for its first offset in the handshake.
func (l *haLink) prepare(ctx context.Context) error {
	l.seam = newSeamCheck(l.client.store)
	return nil
}

func (l *haLink) onOpen(now time.Time) {
	l.openedAt, l.wroteAt, l.readAt = now, now, now
	l.reported = -1
	l.sendReport(handshakeRequest, now)
	l.publish()
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
	case l.conn.Closed():
	case now.Sub(l.readAt) > cfg.HaHousekeepingInterval:
		l.client.logger.Warn("master silent, link closed", "master", l.addr, "for", now.Sub(l.readAt))
		l.conn.Close()
	case l.state == linkAsked && now.Sub(l.openedAt) > handshakeWait && !l.isLoopmq():
		l.followRocketMQ(now)
	case l.state == linkTransfer && now.Sub(l.wroteAt) > cfg.HaSendHeartbeatInterval:
		// Not the log's end: an empty log has none of its own, it ends where it was to begin. Source: HAClient#currentReportedOffset.
		l.sendReport(int64(l.reported), now)
	}
	l.publish()
}

func (l *haLink) isLoopmq() bool {
	at := l.client.loopmqAt.Load()
	return at != nil && *at == l.addr
}

func (l *haLink) publish() {
	l.client.status.Store(&ClientStatus{
		MasterAddr: l.addr, State: linkStates[l.state], Refused: l.refused,
		LastReadTimestamp: l.readAt, LastWriteTimestamp: l.wroteAt,
		TransferredByteInSecond: l.flow.lastSecond(time.Now()),
		MasterFirst:             l.hello.first, MasterEnd: l.hello.end,
	})
}

// onTraffic takes all that gnet has, dispatches whole frames, and reports once.
// Source: HAClient#processReadEvent, #dispatchReadRequest.
func (l *haLink) onTraffic(now time.Time) {
	l.readAt = now
	for l.conn.InboundBuffered() > 0 && !l.conn.Closed() {
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
	if end := l.client.store.MaxPhyOffset(); l.state == linkTransfer && end > l.reported && !l.conn.Closed() {
		l.reported = end
		l.sendReport(int64(end), now)
	}
}

// fail closes the link, with the reason on this side's log. The pieces received are dropped: the next link begins at
// the log's end.
func (l *haLink) fail(err error) {
	l.client.logger.Error("link to the master closed", "master", l.addr, "cause", err)
	l.conn.Close()
}

func (l *haLink) dispatch(now time.Time) error {
	for {
		h, ok, err := l.buffer.header()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		if h.phyOffset >= 0 {
			// Looked at before the body is there, as HAClient does.
			if err := l.checkOffset(h); err != nil {
				return err
			}
		}
		body, ok := l.buffer.body(h)
		if !ok {
			return nil
		}
		if h.phyOffset < 0 {
			err = l.message(h, body, now)
		} else if len(body) > 0 {
			err = l.append(h.phyOffset, body)
		}
		if err != nil {
			return err
		}
		l.buffer.dispatched(h)
	}
}

func (l *haLink) checkOffset(h frameHeader) error {
	if l.state != linkTransfer {
		return fmt.Errorf("%w: a frame at %d before this slave said where it begins", ErrProtocol, h.phyOffset)
	}
	end := l.end()
	if end == 0 && h.phyOffset%storage.PhyOffset(l.client.config().MappedFileSizeCommitLog) == 0 {
		return nil // an empty log takes the beginning of any file
	}
	if h.phyOffset != end {
		return fmt.Errorf("master sends offset %d, this log ends at %d (a master in controller mode speaks another protocol)", h.phyOffset, end)
	}
	return nil
}

// end is the log's end with what the seam check still holds back.
func (l *haLink) end() storage.PhyOffset {
	end := l.client.store.MaxPhyOffset()
	if l.seam != nil {
		end += storage.PhyOffset(l.seam.heldBytes())
	}
	return end
}

// append writes a body, which may end anywhere. A RocketMQ master's first bytes are held back until they have shown
// that they join what is here.
func (l *haLink) append(offset storage.PhyOffset, body []byte) error {
	if l.seam != nil {
		joined, err := l.seam.take(offset, body)
		if err != nil || !joined {
			return err
		}
		offset, body = l.seam.held()
		l.seam = nil
	}
	return l.client.store.AppendToCommitLog(offset, body)
}

// followRocketMQ reports this log's end to a master that knows no handshake.
func (l *haLink) followRocketMQ(now time.Time) {
	end := l.client.store.MaxPhyOffset()
	if err := l.client.state.follow(regimeOther, -1, end); err != nil {
		l.fail(err)
		return
	}
	l.client.logger.Info("following a RocketMQ master", "master", l.addr, "from", end)
	l.state, l.reported = linkTransfer, end
	l.sendReport(int64(end), now)
}
