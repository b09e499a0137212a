// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/binary"
	"fmt"
	"time"

	"loopmq/storage"
)

// masterHandshake answers a loopmq slave's questions until it says where it begins. It belongs to the connection's loop.
type masterHandshake struct {
	c       *HAConnection
	hashing bool // one question at a time: its answer is made off the loop
}

func newMasterHandshake(c *HAConnection) *masterHandshake { return &masterHandshake{c: c} }

// hello says what this node is and has.
func (h *masterHandshake) hello() {
	s := h.c.service
	cfg := s.config()
	m := helloMessage{
		sync:     cfg.Role == storage.SyncMaster,
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
		c.service.logger.Warn("slave gave the handshake up, connection closed", "slave", c.conn.RemoteAddr(), "said", first)
		c.conn.Close()
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
	h.c.service.logger.Warn("HA connection closed", "slave", h.c.conn.RemoteAddr(), "cause", err)
	h.c.conn.Close()
	return false
}

func (h *masterHandshake) message(header frameHeader, body []byte, now time.Time) error {
	c := h.c
	version, kind := handshakeOf(int64(header.phyOffset))
	if version != handshakeVersion {
		c.refuse(now, refuseVersion, fmt.Sprintf("handshake version %d is not known here, %d is", version, handshakeVersion))
		return nil
	}
	switch kind {
	case kindMine:
		m, err := decodeMine(body)
		if err != nil {
			return err
		}
		c.key.Store(&slaveKey{node: m.node})
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
		c.begin(offset, true, now)
		return nil
	case kindRefuse:
		m, err := decodeRefuse(body)
		if err != nil {
			return err
		}
		c.refusal.Store(&m)
		c.refusedAt = now
		c.state.Store(int32(stateRefused))
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
	c := h.c
	go func() {
		m := hashMessage{from: from, to: to}
		m.sum, _ = hashRange(c.service.store, from, to)
		c.conn.Post(func() {
			h.hashing = false
			if !c.conn.Closed() {
				c.send(m.append(nil), time.Now())
			}
		})
	}()
	return nil
}
