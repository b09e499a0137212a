// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"loopmq/storage"
)

// masterHandshake answers a loopmq slave's questions until it says where it begins. It belongs to the connection's loop.
type masterHandshake struct {
	c          *HAConnection
	introduced bool          // the slave has said what it holds
	hashing    bool          // one question at a time: its answer is made off the loop
	tail       *tailTransfer // what the slave hands over, if it does
}

func newMasterHandshake(c *HAConnection) *masterHandshake { return &masterHandshake{c: c} }

// hello says what this node is and has.
func (h *masterHandshake) hello() {
	s := h.c.service
	cfg := s.config()
	m := helloMessage{
		sync:     cfg.Role == storage.SyncMaster,
		waiting:  s.tail.active.Load(),
		fileSize: cfg.MappedFileSizeCommitLog,
		first:    s.store.MinPhyOffset(),
		end:      s.store.MaxPhyOffset(),
		syncFrom: max(storage.PhyOffset(s.syncFrom.Load()), 0),
		node:     s.state.node(),
	}
	h.c.send(m.append(nil), time.Now())
}

// onTraffic takes one message; false when none is whole, or the handshake has ended the connection.
func (h *masterHandshake) onTraffic(now time.Time) bool {
	c := h.c
	if c.conn.InboundBuffered() < reportSize {
		return false
	}
	b, err := c.conn.Peek(reportSize)
	if err != nil {
		return false
	}
	if first := int64(binary.BigEndian.Uint64(b)); !isHandshake(first) {
		// Its patience ended before our hello came. There is no way around the comparison: it comes back, and waits.
		c.drop(fmt.Sprintf("the slave did not wait for the comparison of logs, it reports %d", first))
		return false
	}
	if c.conn.InboundBuffered() < frameHeaderSize {
		return false
	}
	if b, err = c.conn.Peek(frameHeaderSize); err != nil {
		return false
	}
	header, err := decodeFrameHeader(b)
	if err != nil {
		return h.protocolError(err)
	}
	whole := frameHeaderSize + int(header.bodySize)
	if c.conn.InboundBuffered() < whole {
		return false
	}
	if b, err = c.conn.Peek(whole); err != nil {
		return false
	}
	err = h.message(header, b[frameHeaderSize:], now)
	if !c.conn.Closed() {
		_, _ = c.conn.Discard(whole)
	}
	if err != nil {
		return h.protocolError(err)
	}
	return true
}

func (h *masterHandshake) protocolError(err error) bool {
	h.c.drop(err.Error())
	return false
}

func (h *masterHandshake) message(header frameHeader, body []byte, now time.Time) error {
	c := h.c
	version, kind := handshakeOf(int64(header.phyOffset))
	if version != handshakeVersion {
		c.refuse(now, refuseVersion, fmt.Sprintf("handshake version %d is not known here, %d is", version, handshakeVersion))
		return nil
	}
	if !h.introduced && kind != kindMine && kind != kindRefuse {
		return fmt.Errorf("%w: handshake message %d before the slave said what it holds", ErrProtocol, kind)
	}
	switch kind {
	case kindMine:
		m, err := decodeMine(body)
		if err != nil {
			return err
		}
		h.introduced = true
		c.key.Store(&slaveKey{node: m.node})
		if m.node == c.service.copied && c.service.servedBefore(c, m.node) != nil {
			c.refuseCopy(now)
			return nil
		}
		c.service.logger.Info("a loopmq slave compares logs", "slave", c.conn.RemoteAddr(), "first", m.first, "end", m.end)
		return nil
	case kindAsk:
		from, to, err := decodeAsk(body)
		if err != nil {
			return err
		}
		return h.ask(from, to)
	case kindBegin:
		offset, err := decodeOne(body)
		if err != nil {
			return err
		}
		if c.begin(offset, true, now); connectionState(c.state.Load()) == stateTransfer {
			c.service.tail.heard(c.slave().node)
		}
		return nil
	case kindMore:
		from, to, err := decodeRange(body)
		if err != nil {
			return err
		}
		return h.more(from, to, now)
	case kindTail:
		from, bytes, err := decodeTail(body)
		if err != nil {
			return err
		}
		return h.tailPiece(from, bytes, now)
	case kindRefuse:
		m, err := decodeRefuse(body)
		if err != nil {
			return err
		}
		c.refusal.Store(&m)
		c.endService(now)
		c.service.refusals.Add(1)
		c.service.logger.Error("the slave does not follow this master: "+m.text, "slave", c.conn.RemoteAddr(), "first", m.first, "end", m.end)
		return nil
	}
	return fmt.Errorf("%w: handshake message %d from a slave", ErrProtocol, kind)
}

// ask answers with the hash of [from, to). Old pages may have to come from the disk: not on the loop.
func (h *masterHandshake) ask(from, to storage.PhyOffset) error {
	if h.hashing {
		return fmt.Errorf("%w: a question before the answer to the last", ErrProtocol)
	}
	h.hashing = true
	if !h.c.service.helper.do(func() { h.hash(from, to) }) {
		return errors.New("too many slaves compare logs at once")
	}
	return nil
}

// hash runs on the helper.
func (h *masterHandshake) hash(from, to storage.PhyOffset) {
	m := hashMessage{from: from, to: to}
	if err := storage.Guard(func() { m.sum, _ = hashRange(h.c.service.store, from, to) }); err != nil {
		h.c.service.logger.Error("the log cannot be read", "from", from, "to", to, "cause", err)
	}
	h.c.conn.Post(func() {
		h.hashing = false
		if connectionState(h.c.state.Load()) == stateHandshaking && !h.c.conn.Closed() {
			h.c.send(m.append(nil), time.Now())
		}
	})
}
