// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/message"
)

// rogue says what no slave says, and hears nothing.
type rogue struct{}

func (*rogue) OnOpen(reactor.Conn)         {}
func (*rogue) OnTraffic(c reactor.Conn)    { _, _ = c.Discard(c.InboundBuffered()) }
func (*rogue) OnClose(reactor.Conn, error) {}

// rocketmqSlave does what HAClient does: its first report is its end, and it appends what joins.
type rocketmqSlave struct {
	sim      *simulation
	base     storage.PhyOffset
	log      []byte
	conn     *simConn
	in       []byte
	late     bool // 4.x: the first report comes after a heartbeat interval
	reported storage.PhyOffset
	wroteAt  time.Time
	readAt   time.Time
}

func newRocketmqSlave(s *simulation) *rocketmqSlave {
	return &rocketmqSlave{sim: s, late: s.rng.IntN(2) == 0}
}

func (r *rocketmqSlave) end() storage.PhyOffset { return r.base + storage.PhyOffset(len(r.log)) }

func (r *rocketmqSlave) connect(master *simNode) {
	if r.conn != nil || master == nil {
		return
	}
	r.sim.step("the RocketMQ slave connects to %s at %d", master.name, r.end())
	conn, _ := r.sim.net.dial(r, &masterHandler{master.service}, nil, master, nil)
	if !conn.closed.Load() {
		r.conn = conn
	}
}

// empty is what an operator does to it when the master no longer has what it asks for.
func (r *rocketmqSlave) empty() {
	r.sim.step("the RocketMQ slave is rebuilt")
	r.base, r.log = 0, nil
	r.sim.mu.Lock()
	defer r.sim.mu.Unlock()
	for _, m := range r.sim.messages {
		m.onRocketmq = false
	}
}

func (r *rocketmqSlave) OnOpen(c reactor.Conn) {
	r.in, r.wroteAt, r.readAt, r.reported = nil, time.Now(), time.Now(), r.end()
	if !r.late {
		r.report(c)
	}
}

func (r *rocketmqSlave) report(c reactor.Conn) {
	var b [reportSize]byte
	encodeReport(&b, int64(r.end()))
	r.reported, r.wroteAt = r.end(), time.Now()
	_ = c.Writev([][]byte{b[:]})
}

func (r *rocketmqSlave) tick() {
	switch {
	case r.conn == nil:
	case time.Since(r.readAt) > 20*time.Second: // 5.x; 4.x looks at its own writes and never notices
		r.conn.Close()
	case time.Since(r.wroteAt) > 5*time.Second:
		r.report(r.conn)
	}
}

func (r *rocketmqSlave) OnTraffic(c reactor.Conn) {
	r.readAt = time.Now()
	b := make([]byte, c.InboundBuffered())
	_, _ = c.Read(b)
	r.in = append(r.in, b...)
	for len(r.in) >= frameHeaderSize {
		offset := storage.PhyOffset(binary.BigEndian.Uint64(r.in))
		size := int(int32(binary.BigEndian.Uint32(r.in[8:])))
		if own := r.end(); own != 0 && own != offset || offset < 0 || size < 0 || size > frameBodyMax {
			r.sim.fail("the RocketMQ slave ends at %d and is sent %d bytes at %d", own, size, offset)
			c.Close()
			return
		}
		if len(r.in) < frameHeaderSize+size {
			break
		}
		if len(r.log) == 0 {
			r.base = offset - offset%storage.PhyOffset(r.sim.fileSize)
		}
		r.log = append(r.log, r.in[frameHeaderSize:frameHeaderSize+size]...)
		r.in = r.in[frameHeaderSize+size:]
	}
	if r.end() > r.reported {
		r.report(c)
	}
}

func (r *rocketmqSlave) OnClose(c reactor.Conn, _ error) {
	if r.conn == c {
		r.conn = nil
	}
}

// holds may be called with the lock of the simulation.
func (r *rocketmqSlave) holds(m *simMessage) bool {
	at := m.offset - r.base
	return m.offset < r.base || at >= 0 && m.end() <= r.end() && bytes.HasPrefix(r.log[at:], m.record)
}

func (r *rocketmqSlave) check(images map[*simNode]*logImage) {
	if r.conn == nil || r.conn.peer.done() || r.conn.peer.owner == nil {
		return
	}
	img := images[r.conn.peer.owner]
	if at := img.differs(max(r.base, img.first), r.end(), r.at); at >= 0 {
		r.sim.fail("the RocketMQ slave has %d to %d and differs at %d from its master", r.base, r.end(), at)
	}
}

func (r *rocketmqSlave) at(offset storage.PhyOffset) []byte { return r.log[offset-r.base:] }

// rocketmqMaster does what HAConnection does: silent until a report of 0 or more, then frames from there.
type rocketmqMaster struct {
	sim    *simulation
	log    []byte
	queues map[string]uint64
	conns  map[reactor.Conn]*rocketmqConnection
}

type rocketmqConnection struct {
	request, next   int64
	readAt, wroteAt time.Time
}

func newRocketmqMaster(s *simulation) *rocketmqMaster {
	return &rocketmqMaster{sim: s, queues: map[string]uint64{}, conns: map[reactor.Conn]*rocketmqConnection{}}
}

func (r *rocketmqMaster) end() storage.PhyOffset                               { return storage.PhyOffset(len(r.log)) }
func (r *rocketmqMaster) minOffset(context.Context) (storage.PhyOffset, error) { return 0, nil }

func (r *rocketmqMaster) at(offset storage.PhyOffset) []byte {
	if offset > r.end() {
		return nil
	}
	return r.log[offset:]
}

func (r *rocketmqMaster) append(count int) {
	s := r.sim
	for range count {
		s.counts.sends++
		record, topic, queue := s.record(s.counts.sends, 1)
		left := int(s.fileSize - int64(len(r.log))%s.fileSize)
		if len(record)+8 > left {
			blank := make([]byte, left)
			message.AppendBlank(blank[:0], left)
			r.log = append(r.log, blank...)
		}
		key := topic + string(rune('0'+queue))
		binary.BigEndian.PutUint64(record[message.QueueOffsetPosition:], r.queues[key])
		binary.BigEndian.PutUint64(record[message.PhysicalOffsetPosition:], uint64(len(r.log)))
		binary.BigEndian.PutUint64(record[message.BornTimestampPosition+16:], uint64(time.Now().UnixMilli()))
		r.queues[key]++
		r.log = append(r.log, record...)
	}
	r.pump()
}

func (r *rocketmqMaster) OnOpen(c reactor.Conn) {
	r.conns[c] = &rocketmqConnection{request: -1, next: -1, readAt: time.Now(), wroteAt: time.Now()}
}

func (r *rocketmqMaster) OnClose(c reactor.Conn, _ error) { delete(r.conns, c) }

func (r *rocketmqMaster) OnTraffic(c reactor.Conn) {
	state := r.conns[c]
	state.readAt = time.Now()
	n := c.InboundBuffered() &^ 7
	if n == 0 {
		return
	}
	b := make([]byte, n)
	_, _ = c.Read(b)
	report := int64(binary.BigEndian.Uint64(b[n-8:]))
	if state.request < 0 {
		state.request = report
	}
	r.pump()
}

func (r *rocketmqMaster) pump() {
	for c, state := range r.conns {
		if state.request == -1 {
			continue
		}
		if state.next == -1 {
			if state.next = state.request; state.next == 0 {
				state.next = int64(len(r.log)) - int64(len(r.log))%r.sim.fileSize
			}
		}
		for !c.Closed() && c.OutboundBuffered() == 0 && state.next < int64(len(r.log)) {
			size := min(int64(1+r.sim.rng.IntN(1<<r.sim.rng.IntN(15))), int64(len(r.log))-state.next, r.sim.fileSize-state.next%r.sim.fileSize)
			r.frame(c, state, int(size))
		}
	}
}

func (r *rocketmqMaster) frame(c reactor.Conn, state *rocketmqConnection, size int) {
	var header [frameHeaderSize]byte
	frameHeader{storage.PhyOffset(state.next), int32(size)}.encode(&header)
	body := r.at(storage.PhyOffset(state.next))
	state.wroteAt = time.Now()
	_ = c.Writev([][]byte{header[:], body[:min(size, len(body))]})
	state.next += int64(size)
}

func (r *rocketmqMaster) tick() {
	r.pump()
	for c, state := range r.conns {
		switch {
		case time.Since(state.readAt) > 20*time.Second:
			c.Close()
		case state.next != -1 && time.Since(state.wroteAt) > 5*time.Second && c.OutboundBuffered() == 0:
			r.frame(c, state, 0)
		}
	}
}
