// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"sync"

	"loopmq/bench/result"
	"loopmq/bench/wire"
)

// account knows what became of every message of a run: producers tell it what was acknowledged, consumers what was read.
type account struct {
	run      uint32
	filler   filler
	ledgers  []*ledger
	byQueue  []*readQueue // by queue.index
	examples [failuresKinds]example

	mu      sync.Mutex // guards examples and the counts below
	foreign int64
	gaps    int64
}

// Kinds of what can be wrong with a message.
const (
	kindLost = iota
	kindDuplicated
	kindReordered
	kindCorrupt
	kindMisplaced
	failuresKinds
)

var kindNames = [failuresKinds]string{"lost", "duplicated", "reordered", "corrupt", "misplaced"}

// example is the first message of a kind, to begin looking with.
type example struct {
	text string
	set  bool
}

func newAccount(run uint32, f filler, masters []*master) *account {
	a := &account{run: run, filler: f}
	for _, m := range masters {
		for _, q := range m.queues {
			a.byQueue = append(a.byQueue, &readQueue{q: q, behind: make(map[uint32]*order)})
		}
	}
	return a
}

// chunkSize is how many messages a piece of a ledger is about.
const chunkSize = 1 << 14

// chunk is about chunkSize messages of a producer.
type chunk struct {
	offsets [chunkSize]uint32 // 0: not acknowledged; else 1 + the low 31 bits of the offset it was acknowledged at
	seen    [chunkSize / 64]uint64
}

const offsetMask = 1<<31 - 1

// ledger is about one producer's messages. While the run sends, the producer's lock guards it; after that, its own.
type ledger struct {
	p          *producer
	perRequest int64

	mu           sync.Mutex
	chunks       []*chunk
	total        int64 // messages sent
	acked        int64
	read         int64 // of the acknowledged, each once
	unconfirmed  int64
	duplicated   int64
	reordered    int64
	corrupt      int64
	misplaced    int64
	overtaken    int64
	floor        int64    // requests before it were answered, or given up
	unanswered   []uint64 // ring of bits by request number, from floor on: 1 is answered
	nextRequests int64
}

func (a *account) newLedger(p *producer) *ledger {
	l := &ledger{p: p, perRequest: int64(p.ps.cfg.perRequest()), unanswered: make([]uint64, 4)}
	a.ledgers = append(a.ledgers, l)
	return l
}

// sent tells that requests up to number next, not included, were sent.
func (l *ledger) sent(next int64) {
	l.nextRequests = next
	l.total = next * l.perRequest
	for int64(len(l.chunks))*chunkSize < l.total {
		l.chunks = append(l.chunks, new(chunk))
	}
	for next-l.floor >= int64(len(l.unanswered))*64 {
		l.growRing()
	}
}

func (l *ledger) growRing() {
	larger := make([]uint64, 2*len(l.unanswered))
	for n := l.floor; n < l.nextRequests; n++ {
		if bit(l.unanswered, n%(int64(len(l.unanswered))*64)) {
			setBit(larger, n%(int64(len(larger))*64))
		}
	}
	l.unanswered = larger
}

func bit(bits []uint64, i int64) bool { return bits[i/64]>>(i%64)&1 != 0 }
func setBit(bits []uint64, i int64)   { bits[i/64] |= 1 << (i % 64) }
func clearBit(bits []uint64, i int64) { bits[i/64] &^= 1 << (i % 64) }

// answered tells that a request is no longer in flight, however it ended.
func (l *ledger) answered(number int64) {
	size := int64(len(l.unanswered)) * 64
	setBit(l.unanswered, number%size)
	for l.floor < l.nextRequests && bit(l.unanswered, l.floor%size) {
		clearBit(l.unanswered, l.floor%size)
		l.floor++
	}
}

// open is how many messages before message i of request number are in flight, counted from the oldest.
func (l *ledger) open(number int64, i int) uint32 {
	return uint32((number-l.floor)*l.perRequest + int64(i))
}

// acknowledged tells that a request's messages are stored from an offset on.
func (l *ledger) acknowledged(number int64, queueID int, offset int64) {
	if q := l.p.queues[l.p.queueOf(number)]; queueID == q.id {
		q.acknowledge(offset + l.perRequest)
	} else {
		l.misplaced += l.perRequest
		l.p.ps.account.say(kindMisplaced, fmt.Sprintf("message %d of producer %d was sent to %s/%d, and its answer names queue %d", number*l.perRequest, l.p.id, q.topic, q.id, queueID))
	}
	l.acked += l.perRequest
	for i := range l.perRequest {
		n := number*l.perRequest + i
		l.chunks[n/chunkSize].offsets[n%chunkSize] = 1 + uint32((offset+i)&offsetMask)
	}
}

// readQueue is about one queue while it is read; the goroutine that reads it owns it.
type readQueue struct {
	q      *queue
	behind map[uint32]*order // by producer
	any    bool
	next   int64 // offset
}

// order is how far a queue has come with one producer's messages.
type order struct {
	floor int64 // what was read was sent when all before this one were answered: none of them may follow
	last  int64 // highest sequence
}

// saw takes a message that was read; messages of a queue come in the order of its offsets.
func (a *account) saw(q *queue, r *wire.Record) {
	rq := a.byQueue[q.index]
	if rq.any && r.QueueOffset != rq.next {
		a.mu.Lock()
		a.gaps++
		a.mu.Unlock()
	}
	rq.any, rq.next = true, r.QueueOffset+1
	s, ok := readStamp(r.Body)
	if !ok || s.run != a.run || int(s.producer) >= len(a.ledgers) {
		a.mu.Lock()
		a.foreign++
		a.mu.Unlock()
		return
	}
	l := a.ledgers[s.producer]
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.sequence >= l.total {
		l.corrupt++
		a.note(kindCorrupt, q, r, s, "it was never sent")
		return
	}
	if !r.Intact() || !a.filler.matches(s, r.Body) {
		l.corrupt++
		a.note(kindCorrupt, q, r, s, "its bytes are not those that were sent")
	}
	a.place(l, rq, r, s)
}

// place finds out whether a message is where it belongs, in time and in space.
func (a *account) place(l *ledger, rq *readQueue, r *wire.Record, s stamp) {
	c, at := l.chunks[s.sequence/chunkSize], s.sequence%chunkSize
	acked := c.offsets[at] != 0
	if bit(c.seen[:], at) {
		l.duplicated++
		a.note(kindDuplicated, rq.q, r, s, "it was read before")
		return
	}
	setBit(c.seen[:], at)
	if !acked {
		l.unconfirmed++
	} else {
		l.read++
		if q := l.p.queues[l.p.queueOf(s.sequence/l.perRequest)]; q != rq.q || c.offsets[at] != 1+uint32(r.QueueOffset&offsetMask) {
			l.misplaced++
			a.note(kindMisplaced, rq.q, r, s, fmt.Sprintf("its answer named offset %d of queue %s/%d", c.offsets[at]-1, q.topic, q.id))
		}
	}
	o := rq.behind[s.producer]
	if o == nil {
		o = &order{last: -1}
		rq.behind[s.producer] = o
	}
	switch {
	case acked && s.sequence < o.floor:
		l.reordered++
		a.note(kindReordered, rq.q, r, s, fmt.Sprintf("it was acknowledged before one was sent that lies before it; those up to %d were", o.floor))
	case s.sequence < o.last:
		l.overtaken++
	}
	o.floor = max(o.floor, s.sequence-int64(s.open))
	o.last = max(o.last, s.sequence)
}

func (a *account) note(kind int, q *queue, r *wire.Record, s stamp, what string) {
	a.say(kind, fmt.Sprintf("message %d of producer %d at offset %d of %s/%d: %s", s.sequence, s.producer, r.QueueOffset, q.topic, q.id, what))
}

// say keeps the first example of a kind.
func (a *account) say(kind int, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.examples[kind].set {
		a.examples[kind] = example{text, true}
	}
}

// close counts what was lost, and gives the account and the first example of each thing that is wrong.
func (a *account) close() (total result.Account, wrong []string) {
	for _, l := range a.ledgers {
		total.Acknowledged += l.acked
		total.Read += l.read + l.unconfirmed
		total.Lost += l.acked - l.read
		total.Duplicated += l.duplicated
		total.Reordered += l.reordered
		total.Unconfirmed += l.unconfirmed
		total.Corrupt += l.corrupt
		total.Misplaced += l.misplaced
		total.Overtaken += l.overtaken
		if l.acked != l.read && !a.examples[kindLost].set {
			a.examples[kindLost] = example{l.firstLost(), true}
		}
	}
	for kind, e := range a.examples {
		if e.set {
			wrong = append(wrong, kindNames[kind]+": "+e.text)
		}
	}
	if a.gaps > 0 {
		wrong = append(wrong, fmt.Sprintf("offsets of a queue do not follow one another, %d times", a.gaps))
	}
	return total, wrong
}

func (l *ledger) firstLost() string {
	for n := range l.total {
		c, at := l.chunks[n/chunkSize], n%chunkSize
		if c.offsets[at] != 0 && !bit(c.seen[:], at) {
			q := l.p.queues[l.p.queueOf(n/l.perRequest)]
			return fmt.Sprintf("message %d of producer %d, acknowledged at offset %d of %s/%d, is not there", n, l.p.id, c.offsets[at]-1, q.topic, q.id)
		}
	}
	panic("BUG: a ledger counts a lost message that it does not have")
}
