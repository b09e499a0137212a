// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage"
	"loopmq/storage/message"
)

// tailPieceMax is how much of a slave's tail a master asks for at a time.
const tailPieceMax = 128 << 10

// tailWait holds a master back from taking sends while slaves may hold what its log has lost: bytes that were not on its
// disk when the machine went down, and that these slaves may have acknowledged. It ends when each of them has been heard,
// and who held more has handed it over, or when haTailTimeout passes without a byte of it.
type tailWait struct {
	active atomic.Bool

	mu      sync.Mutex      // guards the rest; never held while the log or ha.json is written
	slaves  map[string]bool // by node id in hex: whether it was heard
	since   time.Time       // the start, or the last bytes
	taken   int64           // bytes that came back
	said    time.Time
	current *HAConnection // who hands its tail over
	later   []*HAConnection
}

// TailStatus is what a master that may have lost the end of its log waits for.
type TailStatus struct {
	Slaves []string      // node ids of those not heard yet; none: what came back is being dispatched
	Left   time.Duration // until the wait is given up
	Taken  int64         // bytes that came back
}

// String tells an operator what is waited for, and how to end it.
func (s *TailStatus) String() string {
	if len(s.Slaves) == 0 {
		return fmt.Sprintf("sends are refused until the %d bytes that a slave brought back are in the queues", s.Taken)
	}
	return fmt.Sprintf("sends are refused: the machine went down, and its disk may lack the end of the log, which slaves have acknowledged. "+
		"Start these slaves (node of their ha.json): %s. In %v this master goes on without them, and what only they have is lost; haTailTimeout=0 does so at once",
		strings.Join(s.Slaves, ", "), s.Left.Round(time.Second))
}

// Tail says what this node waits for before it takes sends; nil when it does not wait. Any goroutine.
func (s *HAService) Tail() *TailStatus {
	t := &s.tail
	if !t.active.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.statusLocked(time.Now(), s.config())
}

func (t *tailWait) statusLocked(now time.Time, cfg *Config) *TailStatus {
	return &TailStatus{Slaves: t.missingLocked(), Left: max(0, cfg.HaTailTimeout-now.Sub(t.since)), Taken: t.taken}
}

func (t *tailWait) missingLocked() (missing []string) {
	for _, slave := range slices.Sorted(maps.Keys(t.slaves)) {
		if !t.slaves[slave] {
			missing = append(missing, slave)
		}
	}
	return missing
}

// begin is called before the first send.
func (t *tailWait) begin(slaves []string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slaves, t.since = make(map[string]bool), now
	for _, slave := range slaves {
		t.slaves[slave] = false
	}
	t.active.Store(true)
}

// stepTail ends the wait when it is over; from then on sends are taken. On the goroutine of the tick.
func (s *HAService) stepTail(now time.Time) {
	t := &s.tail
	if !t.active.Load() {
		return
	}
	cfg := s.config()
	t.mu.Lock()
	status := t.statusLocked(now, cfg)
	say := now.Sub(t.said) >= complainInterval && status.Left > 0
	if say {
		t.said = now
	}
	t.mu.Unlock()
	if say {
		s.logger.Warn(status.String())
	}
	if len(status.Slaves) > 0 && status.Left > 0 {
		return
	}
	// Before the first send, which moves the end of its queue: offsets beyond it are brought back to the end that is now.
	dispatched := s.store.DispatchBehindBytes() == 0
	if s.serve(); !s.store.Unfence() {
		return
	}
	if !dispatched {
		s.serve() // it saw no end yet
	}
	if len(status.Slaves) > 0 {
		s.tailsGivenUp.Add(1)
		s.logger.Error("this master takes sends without having heard from slaves that may hold the end of its log: what only they have is lost, and they will be refused",
			"slaves", strings.Join(status.Slaves, ", "), "end", s.store.MaxPhyOffset(), "haTailTimeout", cfg.HaTailTimeout)
	} else {
		s.logger.Info("this master has all that its slaves hold and takes sends", "taken", status.Taken, "end", s.store.MaxPhyOffset())
	}
	if err := s.state.found(); err != nil {
		s.logger.Error("the next start will wait for slaves again", "cause", err)
	}
	t.active.Store(false)
}

// heard notes that all a slave holds is in this log too.
func (t *tailWait) heard(node nodeID) {
	slave := hex.EncodeToString(node[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.slaves[slave]; ok {
		t.slaves[slave] = true
	}
}

// awaits says whether the node is one of those that may hold what is lost.
func (t *tailWait) awaits(node nodeID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.slaves[hex.EncodeToString(node[:])]
	return ok
}

// turn says whether c may hand its tail over now; else it waits until the one before has done so.
func (t *tailWait) turn(c *HAConnection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == nil || t.current == c {
		t.current = c
		return true
	}
	if !slices.Contains(t.later, c) {
		t.later = append(t.later, c)
	}
	return false
}

func (t *tailWait) took(bytes int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken += int64(bytes)
	t.since = now
}

// leave ends c's turn, and returns those who have waited for it. On the loop.
func (t *tailWait) leave(c *HAConnection) (later []*HAConnection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.later = slices.DeleteFunc(t.later, func(x *HAConnection) bool { return x == c })
	if t.current != c {
		return nil
	}
	later, t.current, t.later = t.later, nil, nil
	return later
}

// tailTransfer is a slave's tail on its way to its master.
type tailTransfer struct {
	next, to storage.PhyOffset // what is to be asked for
	from     storage.PhyOffset
	check    tailCheck
}

// more is a slave whose log goes on where this one ends.
func (h *masterHandshake) more(from, to storage.PhyOffset, now time.Time) error {
	s := h.c.service
	node := h.c.slave().node
	switch {
	case !s.tail.active.Load():
		return errors.New("this master no longer waits for the end of its log")
	case !s.tail.awaits(node):
		h.c.refuse(now, refuseAhead, fmt.Sprintf("this slave goes on to %d, and did not count when this master went down: it is compared again when the master takes sends", to))
		return nil
	case !s.tail.turn(h.c):
		return nil // it hears hello again when the other one is done
	}
	if end := s.store.MaxPhyOffset(); from != end && (end != s.store.MinPhyOffset() || int64(from)%s.config().MappedFileSizeCommitLog != 0) {
		return h.again() // another one has brought something meanwhile
	}
	s.logger.Warn("a slave holds more of this log than its master and hands it over", "slave", h.c.conn.RemoteAddr(), "from", from, "to", to)
	h.tail = &tailTransfer{from: from, next: from, to: to, check: tailCheck{at: from, fileSize: storage.PhyOffset(s.config().MappedFileSizeCommitLog)}}
	h.want(now)
	return nil
}

func (h *masterHandshake) want(now time.Time) {
	t := h.tail
	h.c.send(appendHandshake(nil, kindWant, appendOffsets(nil, t.next, min(t.to, t.next+tailPieceMax))), now)
}

// tailPiece appends what is whole of what came.
func (h *masterHandshake) tailPiece(from storage.PhyOffset, bytes []byte, now time.Time) error {
	t, s := h.tail, h.c.service
	if t == nil || from != t.next || from+storage.PhyOffset(len(bytes)) > t.to {
		return fmt.Errorf("%w: log bytes from %d that were not asked for", ErrProtocol, from)
	}
	at, whole, err := t.check.take(bytes)
	if err != nil {
		return err
	}
	if err := s.store.AppendToCommitLog(at, whole); err != nil {
		return fmt.Errorf("the end of the log is not taken back: %w", err)
	}
	s.tail.took(len(whole), now)
	if t.next += storage.PhyOffset(len(bytes)); t.next < t.to {
		h.want(now)
		return nil
	}
	if t.check.at == t.from {
		return fmt.Errorf("%w: no whole record in the log from %d to %d", ErrProtocol, t.from, t.to)
	}
	return h.again()
}

// again compares the logs anew: this one has grown.
func (h *masterHandshake) again() error {
	h.tail = nil
	h.hello()
	h.c.leaveTail()
	return nil
}

// leaveTail lets the next one hand its tail over, if it was c's turn.
func (c *HAConnection) leaveTail() {
	for _, other := range c.service.tail.leave(c) {
		if connectionState(other.state.Load()) == stateHandshaking && !other.conn.Closed() {
			other.handshake.hello()
		}
	}
}

// tailCheck lets through whole records that say that they lie where they do.
type tailCheck struct {
	at       storage.PhyOffset // of the first byte that is held back
	fileSize storage.PhyOffset
	bytes    []byte
}

// take adds bytes and returns those that may be appended, and where.
func (t *tailCheck) take(b []byte) (at storage.PhyOffset, whole []byte, err error) {
	t.bytes = append(t.bytes, b...)
	n := 0
	for {
		size, err := t.record(t.bytes[n:], t.at+storage.PhyOffset(n))
		if err != nil {
			return 0, nil, err
		}
		if size == 0 {
			break
		}
		n += size
	}
	at, whole = t.at, t.bytes[:n:n]
	t.at, t.bytes = at+storage.PhyOffset(n), t.bytes[n:]
	return at, whole, nil
}

// record is the size of the record that b begins with; 0 when not all of it is there.
func (t *tailCheck) record(b []byte, at storage.PhyOffset) (size int, err error) {
	size, magic, ok := message.Peek(b)
	left := t.fileSize - at%t.fileSize
	switch {
	case !ok:
		return 0, nil
	case magic != message.MagicBlank:
		if storage.PhyOffset(size) > left {
			return 0, fmt.Errorf("the record at %d has a size of %d, its file has room for %d", at, size, left)
		}
		return wholeRecord(b, at)
	case storage.PhyOffset(size) != left || size > recordSizeMax:
		return 0, fmt.Errorf("a filler of %d bytes at %d, not of %d", size, at, left)
	case len(b) < size:
		return 0, nil
	}
	return size, nil
}
