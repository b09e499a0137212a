// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"loopmq/bench/result"
	"loopmq/bench/wire"
	"loopmq/storage/message"
)

// world is producers and queues without a broker in between: the test plays it.
type world struct {
	t       *testing.T
	ps      *producers
	account *account
	masters []*master
	stored  map[*queue][]stored
}

type stored struct {
	s    stamp
	body []byte
}

func newWorld(t *testing.T, producersCount, queues, perRequest int) *world {
	w := &world{t: t, stored: make(map[*queue][]stored)}
	m := &master{}
	for id := range queues {
		m.queues = append(m.queues, &queue{topic: "t", id: id, index: id})
	}
	w.masters = []*master{m}
	cfg := testConfig(Produce, "127.0.0.1:1")
	cfg.Mode, cfg.Batch, cfg.Connections, cfg.Verify, cfg.Count, cfg.Body = ModeBatch, perRequest, producersCount, true, int64(perRequest), "100"
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.ps, err = newProducers(&cfg, w.masters, 42); err != nil {
		t.Fatal(err)
	}
	w.account = w.ps.account
	return w
}

// flight is a request under way.
type flight struct {
	p      *producer
	number int64
	stamps []stamp
}

// send gives the broker a request; it is stored in its queue, at once.
func (w *world) send(p *producer) *flight {
	f := &flight{p: p, number: p.requests}
	p.requests++
	p.ledger.sent(p.requests)
	for i := range p.ledger.perRequest {
		f.stamps = append(f.stamps, stamp{run: 42, producer: p.id, open: p.ledger.open(f.number, int(i)), sequence: f.number*p.ledger.perRequest + i})
	}
	return f
}

func (w *world) store(f *flight, q *queue) (offset int64) {
	offset = int64(len(w.stored[q]))
	for _, s := range f.stamps {
		body := make([]byte, stampSize)
		s.put(body)
		body = append(body, w.account.filler.piece(s.producer, s.sequence, 100-stampSize)...)
		w.stored[q] = append(w.stored[q], stored{s, body})
	}
	return offset
}

func (w *world) queueOf(f *flight) *queue { return f.p.queues[f.p.queueOf(f.number)] }

func (f *flight) answer(q *queue, offset int64) {
	f.p.ledger.acknowledged(f.number, q.id, offset)
	f.p.ledger.answered(f.number)
}

// read reads all queues, as consumers do.
func (w *world) read() (result.Account, []string) {
	for _, q := range w.masters[0].queues {
		var b []byte
		for offset, m := range w.stored[q] {
			b = message.AppendRecord(b, &message.Record{QueueID: int32(q.id), QueueOffset: int64(offset), Topic: []byte("t"), Body: m.body})
		}
		for len(b) > 0 {
			var r wire.Record
			var err error
			if b, err = wire.NextRecord(b, &r); err != nil {
				w.t.Fatal(err)
			}
			w.account.saw(q, &r)
		}
	}
	return w.account.close()
}

// play sends some hundred requests with up to some in flight; damage may change what the broker stores.
func (w *world) play(r *rand.Rand, requests int) {
	var flying []*flight
	for range requests {
		p := w.ps.all[r.IntN(len(w.ps.all))]
		flying = append(flying, w.send(p))
		for len(flying) > 0 && (len(flying) > 8 || r.IntN(2) == 0) {
			w.finish(flying, r.IntN(len(flying)))
			flying = flying[:len(flying)-1]
		}
	}
	for len(flying) > 0 {
		w.finish(flying, 0)
		flying = flying[:len(flying)-1]
	}
}

// finish stores and answers one of those under way, and puts the last one into its place.
func (w *world) finish(flying []*flight, i int) {
	f := flying[i]
	flying[i] = flying[len(flying)-1]
	q := w.queueOf(f)
	f.answer(q, w.store(f, q))
}

// A broker that does all right has a clean account, whatever the order of answers; what is overtaken in flight is allowed.
func TestCleanAccount(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, 1+r.IntN(5), 1+r.IntN(7), 1+r.IntN(4))
		w.play(r, 500)
		got, wrong := w.read()
		got.Overtaken = 0
		n := 500 * int64(w.ps.cfg.Batch)
		if want := (result.Account{Acknowledged: n, Read: n}); got != want || wrong != nil {
			t.Fatalf("seed %d: %+v, %q", seed, got, wrong)
		}
	}
}

// Each thing that a broker can do wrong with a message is found, and nothing else; the first is named.
func TestPlantedFaults(t *testing.T) {
	type fault struct {
		name  string
		plant func(w *world, q *queue, at int)
		count func(*result.Account) *int64
		says  string
	}
	remove := func(w *world, q *queue, at int) { w.stored[q] = slices.Delete(w.stored[q], at, at+1) }
	for _, c := range []fault{
		{"lost", func(w *world, q *queue, at int) {
			w.stored[q][at] = stored{} // another's message stands there
		}, func(a *result.Account) *int64 { return &a.Lost }, "lost: message"},
		{"duplicated", func(w *world, q *queue, at int) {
			w.stored[q] = append(w.stored[q], w.stored[q][at])
		}, func(a *result.Account) *int64 { return &a.Duplicated }, "it was read before"},
		{"corrupt", func(w *world, q *queue, at int) {
			m := &w.stored[q][at]
			m.body = bytes.Clone(m.body)
			m.body[90]++
		}, func(a *result.Account) *int64 { return &a.Corrupt }, "not those that were sent"},
	} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, 3, 4, 1+r.IntN(3))
			w.play(r, 300)
			planted := 1 + r.IntN(3)
			used := make(map[string]bool)
			for len(used) < planted {
				q := w.masters[0].queues[r.IntN(4)]
				at := r.IntN(len(w.stored[q]))
				if key := fmt.Sprint(q.id, at); !used[key] && w.stored[q][at].body != nil {
					used[key] = true
					c.plant(w, q, at)
				}
			}
			got, wrong := w.read()
			if n := *c.count(&got); n != int64(planted) {
				t.Fatalf("%s, seed %d: found %d of %d: %+v", c.name, seed, n, planted, got)
			}
			got.Overtaken, *c.count(&got) = 0, 0
			n := 300 * int64(w.ps.cfg.Batch)
			if c.name == "lost" {
				n -= int64(planted)
			}
			if want := (result.Account{Acknowledged: 300 * int64(w.ps.cfg.Batch), Read: n}); got != want {
				t.Fatalf("%s, seed %d: besides, %+v; want %+v", c.name, seed, got, want)
			}
			if !slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, c.says) }) {
				t.Fatalf("%s, seed %d: said %q", c.name, seed, wrong)
			}
		}
	}
	// A message that is gone moves those behind it: they are not where their answers said.
	w := newWorld(t, 1, 1, 1)
	w.play(rand.New(rand.NewPCG(1, 1)), 100)
	remove(w, w.masters[0].queues[0], 40)
	if got, _ := w.read(); got.Lost != 1 || got.Misplaced != 59 {
		t.Fatalf("one removed: %+v", got)
	}
}

// Messages that were acknowledged one after the other and lie the other way round are out of order; messages that were in
// flight together are not.
func TestReordered(t *testing.T) {
	w := newWorld(t, 1, 1, 1)
	q := w.masters[0].queues[0]
	p := w.ps.all[0]
	first := w.send(p)
	first.answer(q, 1) // it is going to be stored second
	second := w.send(p)
	second.answer(q, w.store(second, q))
	w.store(first, q)
	got, wrong := w.read()
	if got.Reordered != 1 || got.Overtaken != 0 || got.Misplaced != 0 || len(wrong) != 1 {
		t.Fatalf("one after the other: %+v, %q", got, wrong)
	}

	w = newWorld(t, 1, 1, 1)
	q, p = w.masters[0].queues[0], w.ps.all[0]
	first, second = w.send(p), w.send(p)
	second.answer(q, w.store(second, q))
	first.answer(q, w.store(first, q))
	if got, wrong := w.read(); got.Reordered != 0 || got.Overtaken != 1 || wrong != nil {
		t.Fatalf("in flight together: %+v, %q", got, wrong)
	}
}

// What was not acknowledged is not lost when it is not there, and counts apart when it is.
func TestUnconfirmed(t *testing.T) {
	w := newWorld(t, 1, 1, 2)
	q, p := w.masters[0].queues[0], w.ps.all[0]
	gone, came, good := w.send(p), w.send(p), w.send(p)
	w.store(came, q)
	good.answer(q, w.store(good, q))
	gone.p.ledger.answered(gone.number)
	came.p.ledger.answered(came.number)
	got, wrong := w.read()
	if want := (result.Account{Acknowledged: 2, Read: 4, Unconfirmed: 2}); got != want || wrong != nil {
		t.Fatalf("%+v, %q; want %+v", got, wrong, want)
	}
}

// Messages of another run, or of nobody, are nothing to us; one that was never sent is corrupt; an answer that names
// another queue is a fault.
func TestStrangers(t *testing.T) {
	w := newWorld(t, 1, 2, 1)
	q, p := w.masters[0].queues[0], w.ps.all[0]
	f := w.send(p)
	other := *f
	other.stamps = []stamp{{run: 43}}
	w.store(&other, q)
	w.stored[q] = append(w.stored[q], stored{body: []byte("hello")})
	never := *f
	never.stamps = []stamp{{run: 42, sequence: 1000}}
	w.store(&never, q)
	f.answer(w.masters[0].queues[1], w.store(f, q))
	got, wrong := w.read()
	if want := (result.Account{Acknowledged: 1, Read: 1, Corrupt: 1, Misplaced: 1}); got != want || len(wrong) != 2 || w.account.foreign != 2 {
		t.Fatalf("%+v, %q, %d foreign; want %+v", got, wrong, w.account.foreign, want)
	}
}

// open never claims more than is known, however the answers come, and knows all when all have come.
func TestOpenWindow(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, 1, 1, 1)
		l := w.ps.all[0].ledger
		flying := map[int64]bool{}
		limit := 1 + r.IntN(2000)
		for next := int64(0); next < 5000; {
			if len(flying) < limit && r.IntN(3) > 0 {
				oldest := next
				for n := range flying {
					oldest = min(oldest, n)
				}
				if got, want := int64(l.open(next, 0)), next-oldest; got != want {
					t.Fatalf("seed %d: %d before %d are open; want %d", seed, got, next, want)
				}
				flying[next] = true
				next++
				l.sent(next)
				continue
			}
			for n := range flying { // any
				if r.IntN(4) == 0 || len(flying) == limit {
					delete(flying, n)
					l.answered(n)
					break
				}
			}
		}
	}
}
