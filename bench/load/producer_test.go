// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

// onewayProducer is a connected one-way producer that nobody drives.
func onewayProducer(t *testing.T, rate float64) *producer {
	t.Helper()
	b := startFakeBroker(t)
	cfg := testConfig(Produce, b.addr())
	cfg.Mode, cfg.Connections, cfg.Duration, cfg.Rate = ModeOneway, 1, result.Duration(time.Second), rate
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	ps, err := newProducers(&cfg, []*master{{addr: b.addr(), queues: []*queue{{topic: "bench"}}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := ps.connect(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ps.close)
	return ps.all[0]
}

// One-way messages may be on their way before the connection's keeper has begun.
func TestOnewayBeforeTheKeeper(t *testing.T) {
	p := onewayProducer(t, 0)
	conn := p.current()
	p.state.Lock()
	sent := p.issueLocked(wire.Clock(), wire.Clock())
	p.state.Unlock()
	p.attached(conn)
	p.flush(conn)
	c := newCounts()
	p.ps.recs.collect(c)
	if !sent || c.messages != 1 || len(c.errors) > 0 {
		t.Errorf("sent %v: %d messages, failures %v", sent, c.messages, c.errors)
	}
}

// One-way messages that could not be written are no success.
func TestOnewayIntoALostConnection(t *testing.T) {
	p := onewayProducer(t, 0)
	p.state.Lock()
	now := wire.Clock()
	first, second := p.issueLocked(now, now), p.issueLocked(now, now)
	p.state.Unlock()
	conn := p.current()
	conn.Close()
	p.flush(conn)
	c := newCounts()
	p.ps.recs.collect(c)
	if !first || !second || c.messages != 0 || c.bytes != 0 || c.errors[errConnectionLost] != 2 || !p.counted.empty() {
		t.Errorf("sent %v: %d messages, %d bytes, failures %v, left %+v; want two failures", first && second, c.messages, c.bytes, c.errors, p.counted)
	}
}

// However many messages are due, one-way ones do not pile up in front of the connection.
func TestOnewayIsBounded(t *testing.T) {
	p := onewayProducer(t, 1e6)
	pc := newPacer([]*producer{p}, 1e6, 0)
	n := 0
	for pc.send(time.Hour) {
		if n++; n > 2*onewayWrite {
			t.Fatalf("%d messages wait to be written", n)
		}
	}
	p.state.Lock()
	defer p.state.Unlock()
	if size := p.conn.Buffered(); size < onewayWrite || size > 2*onewayWrite {
		t.Errorf("%d bytes wait to be written", size)
	}
}
