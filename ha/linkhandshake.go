// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"errors"
	"fmt"
	"time"

	"loopmq/storage"
)

// message takes one of a loopmq master's handshake messages. The slave leads: it asks until it knows where the logs
// part, cuts what it may, and says where it begins.
func (l *haLink) message(h frameHeader, body []byte, now time.Time) error {
	version, kind := handshakeOf(int64(h.phyOffset))
	if version != handshakeVersion {
		return l.refuse(refuseVersion, fmt.Sprintf("the master speaks version %d of the handshake, this slave %d", version, handshakeVersion), now)
	}
	switch kind {
	case kindHello:
		m, err := decodeHello(body)
		if err != nil {
			return err
		}
		return l.onHello(m, now)
	case kindHash:
		m, err := decodeHash(body)
		if err != nil {
			return err
		}
		return l.onHash(m, now)
	case kindWant:
		from, to, err := decodeRange(body)
		if err != nil {
			return err
		}
		return l.onWant(from, to, now)
	case kindRefuse:
		m, err := decodeRefuse(body)
		if err != nil {
			return err
		}
		l.state, l.refused = linkRefused, m.Error()
		l.publish(now)
		return fmt.Errorf("%w: the master says: %w", errRefused, m)
	}
	return fmt.Errorf("%w: handshake message %d from a master", ErrProtocol, kind)
}

func (l *haLink) onHello(m helloMessage, now time.Time) error {
	addr := l.addr
	l.client.loopmqAt.Store(&addr)
	if l.state != linkAsked && !l.handing {
		// It came after this slave had given it up. The master closes too; the next link waits for the hello.
		return errors.New("the master's hello came late")
	}
	l.state, l.hello, l.handing, l.compare = linkComparing, m, false, nil
	if m.node == l.client.state.node() {
		return l.refuse(refuseSameNode, fmt.Sprintf("the master at %s has the node id of this slave. Either that is this slave itself: look at haMasterAddress here, at brokerIP2 and haListenPort of the master; "+
			"or one store is a copy of the other: stop this slave, delete its ha.json, start it", l.addr), now)
	}
	if mine := l.client.config().MappedFileSizeCommitLog; mine != m.fileSize {
		return l.refuse(refuseFileSize, fmt.Sprintf("mappedFileSizeCommitLog is %d at the master and %d here", m.fileSize, mine), now)
	}
	store := l.client.store
	first, end := store.MinPhyOffset(), store.MaxPhyOffset()
	if end < m.first && l.client.state.copying() {
		if err := l.startOver(m.first); err != nil {
			return err
		}
		first, end = store.MinPhyOffset(), store.MaxPhyOffset()
	}
	mine := mineMessage{first: first, end: end, floor: l.client.state.floor(end), node: l.client.state.node()}
	l.write(mine.append(nil), now)
	if first == end {
		return l.copyAll(now)
	}
	if m.waiting && (m.end == first || m.first == m.end && m.end < first) {
		// Nothing to compare: this log goes on where the master's ends, or it has nothing left.
		return l.handOver(first, end, now)
	}
	low, high := max(first, m.first), min(end, m.end)
	switch {
	case end < m.first:
		return l.refuse(refuseExpired, fmt.Sprintf("this log ends at %d, the master's begins at %d: rebuild this slave", end, m.first), now)
	case low >= high:
		return l.refuse(refuseDiverged, fmt.Sprintf("the master's log, %d to %d, and this one, %d to %d, have nothing in common: rebuild this slave", m.first, m.end, first, end), now)
	}
	l.compare = newComparison(store, low, high)
	return l.ask(now)
}

// copyAll begins at the master's first byte: there is nothing here to compare.
func (l *haLink) copyAll(now time.Time) error {
	store := l.client.store
	if store.MaxPhyOffset() != l.hello.first {
		if err := store.TruncateTo(0); err != nil { // an empty file may be left of a start that got no byte
			return err
		}
	}
	if err := l.client.state.setCopying(l.hello.end > l.hello.first); err != nil {
		return err
	}
	return l.begin(l.hello.first, now)
}

// ask puts the next question, or ends the comparison.
func (l *haLink) ask(now time.Time) error {
	from, to, done, err := l.compare.next()
	if err != nil {
		return err
	}
	if done {
		return l.join(now)
	}
	if err := reading(func() (err error) {
		var ok bool
		if l.comparing, ok = hashRange(l.client.store, from, to); !ok {
			err = fmt.Errorf("bytes %d to %d of this log cannot be read", from, to)
		}
		return err
	}); err != nil {
		return err
	}
	l.write(appendAsk(nil, from, to), now)
	return nil
}

func (l *haLink) onHash(m hashMessage, now time.Time) error {
	if l.state != linkComparing || l.compare == nil || m.from != l.compare.askFrom || m.to != l.compare.askTo {
		return fmt.Errorf("%w: a hash of %d to %d that was not asked for", ErrProtocol, m.from, m.to)
	}
	if m.sum == [len(m.sum)]byte{} {
		return fmt.Errorf("the master no longer has bytes %d to %d", m.from, m.to)
	}
	l.compare.answer(l.comparing == m.sum)
	return l.ask(now)
}

// join goes on from the last common record, and cuts what lies behind it if that may go.
func (l *haLink) join(now time.Time) error {
	store := l.client.store
	end := store.MaxPhyOffset()
	parted := l.compare.parted()
	if parted == end {
		return l.begin(end, now)
	}
	if l.hello.waiting && parted == l.hello.end {
		return l.handOver(parted, end, now)
	}
	return l.cut(parted, end, now)
}

// handOver offers what lies behind a master's end to one that may have lost it. A piece of a record at the end of this
// log stays out: nobody has been told that it is here.
func (l *haLink) handOver(from, end storage.PhyOffset, now time.Time) error {
	whole, err := recordStart(l.client.store, end, storage.PhyOffset(l.client.config().MappedFileSizeCommitLog))
	if err != nil {
		return err
	}
	switch {
	case whole > from:
	case l.compare == nil:
		return l.copyAll(now)
	default:
		return l.cut(from, end, now)
	}
	l.client.logger.Warn("the master may have lost the end of its log, and this slave hands over what it has beyond it", "master", l.addr, "from", from, "to", whole)
	l.handing = true
	l.write(appendHandshake(nil, kindMore, appendOffsets(nil, from, whole)), now)
	return nil
}

// onWant hands over a piece, no more than lies in one file.
func (l *haLink) onWant(from, to storage.PhyOffset, now time.Time) error {
	if !l.handing {
		return fmt.Errorf("%w: the master wants log that was not offered", ErrProtocol)
	}
	var piece []byte
	err := reading(func() error {
		sel, ok := l.client.store.Select(from, int(min(to-from, tailPieceMax)))
		if !ok {
			return fmt.Errorf("the master wants bytes from %d, which this log does not have", from)
		}
		defer sel.Release()
		piece = append(appendOffsets(nil, from), sel.Bytes()...)
		return nil
	})
	if err != nil {
		return err
	}
	l.write(appendHandshake(nil, kindTail, piece), now)
	return nil
}

// cut ends this log where it parts from the master's, if what lies behind may go.
func (l *haLink) cut(parted, end storage.PhyOffset, now time.Time) error {
	store := l.client.store
	fileSize := storage.PhyOffset(l.client.config().MappedFileSizeCommitLog)
	seam, err := recordStart(store, parted, fileSize)
	if err != nil {
		return err
	}
	whole, err := recordStart(store, end, fileSize)
	if err != nil {
		whole = end
	}
	if seam <= l.compare.low {
		return l.refuse(refuseDiverged, fmt.Sprintf("the logs differ from %d on, where they begin to overlap: rebuild this slave", parted), now)
	}
	// A piece of a record at the end was never acknowledged as the record.
	if floor := min(l.client.state.floor(end), whole); seam < floor {
		return l.refuse(refuseDiverged, fmt.Sprintf("the logs part at %d; this one goes on to %d, and what lies below %d was written here or may have been acknowledged on the strength of this slave: "+
			"decide which log is right, then rebuild the other node", seam, end, floor), now)
	}
	l.client.logger.Error("this log's tail is not the master's and is cut: nobody was told that a slave has it",
		"master", l.addr, "from", seam, "end", end, "bytes", end-seam)
	l.client.cuts.Add(1)
	l.client.cutBytes.Add(int64(end - seam))
	l.client.service.DropSlaves()
	if err := store.TruncateTo(seam); err != nil {
		return fmt.Errorf("cut the log at %d: %w", seam, err)
	}
	l.client.cut(seam)
	return l.begin(seam, now)
}

// begin says from where the master shall send. What this slave may cut later depends on the master's role now, and is
// on disk before the first byte comes.
func (l *haLink) begin(offset storage.PhyOffset, now time.Time) error {
	regime, syncFrom := regimeAsync, storage.PhyOffset(-1)
	if l.hello.sync {
		regime, syncFrom = regimeSync, l.hello.syncFrom
	}
	if err := l.client.state.follow(regime, syncFrom, l.client.store.MaxPhyOffset()); err != nil {
		return err
	}
	l.client.logger.Info("following a loopmq master", "master", l.addr, "from", offset, "masterEnd", l.hello.end, "sync", l.hello.sync)
	l.state, l.compare = linkTransfer, nil
	l.next, l.reported = offset, offset
	l.began, l.beganAt = offset, now
	l.write(appendOne(nil, kindBegin, offset), now)
	return nil
}

// refuse tells the master why, and ends the link.
func (l *haLink) refuse(reason refuseReason, text string, now time.Time) error {
	store := l.client.store
	m := refuseMessage{reason: reason, first: store.MinPhyOffset(), end: store.MaxPhyOffset(), text: text}
	l.state, l.refused = linkRefused, text
	l.write(m.append(nil), now)
	l.publish(now)
	return fmt.Errorf("%w: %s", errRefused, text)
}
