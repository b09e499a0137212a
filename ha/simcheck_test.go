// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"encoding/binary"
	"path"
	"strconv"

	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

// logImage is the log as it lies on a node's disk. The end is the store's while it is up, since behind the end of a log
// that was cut old bytes may lie.
type logImage struct {
	node       *simNode
	fileSize   int64
	first, end storage.PhyOffset
	files      []vfs.Region
}

func (n *simNode) image() *logImage {
	img := &logImage{node: n, fileSize: n.sim.fileSize}
	n.looking.Add(1)
	n.sim.mu.Lock()
	fsys := n.fs
	if n.crashed {
		fsys = n.next
	}
	store := n.store
	if n.crashed {
		store = nil
	}
	n.sim.mu.Unlock()
	if fsys == nil {
		return img
	}
	img.open(fsys)
	if store != nil {
		img.end = min(img.end, store.MaxPhyOffset())
		img.first = max(img.first, store.MinPhyOffset())
	}
	return img
}

func (img *logImage) open(fsys *faultfs.FS) {
	dir := simRoot + "/commitlog"
	entries, _ := fsys.List(dir)
	for _, e := range entries {
		base, err := strconv.ParseInt(e.Name, 10, 64)
		if err != nil || e.Size != img.fileSize || len(img.files) > 0 && base != int64(img.end) {
			continue
		}
		r, err := fsys.OpenRegion(path.Join(dir, e.Name), 0, false)
		if err != nil {
			continue
		}
		if len(img.files) == 0 {
			img.first = storage.PhyOffset(base)
		}
		img.files = append(img.files, r)
		img.end = storage.PhyOffset(base + img.fileSize)
	}
}

func (img *logImage) close() {
	for _, r := range img.files {
		_ = r.Close()
	}
	img.node.looking.Add(-1)
}

// at is bytes of one file from offset on, at most to the file's end.
func (img *logImage) at(offset storage.PhyOffset) []byte {
	if len(img.files) == 0 {
		return nil
	}
	base := img.first - img.first%storage.PhyOffset(img.fileSize)
	i := int64(offset-base) / img.fileSize
	if offset < base || i >= int64(len(img.files)) {
		return nil
	}
	return img.files[i].Bytes()[int64(offset-base)%img.fileSize:]
}

func (img *logImage) holds(m *simMessage) bool {
	return m.offset >= img.first && m.end() <= img.end && bytes.HasPrefix(img.at(m.offset), m.record)
}

// differs is the first offset of [from, to) at which other has another byte, -1 if it has none.
func (img *logImage) differs(from, to storage.PhyOffset, other func(offset storage.PhyOffset) []byte) storage.PhyOffset {
	for from < to {
		a, b := img.at(from), other(from)
		n := min(len(a), len(b), int(to-from))
		if n == 0 {
			return from
		}
		if !bytes.Equal(a[:n], b[:n]) {
			for i := range n {
				if a[i] != b[i] {
					return from + storage.PhyOffset(i)
				}
			}
		}
		from += storage.PhyOffset(n)
	}
	return -1
}

// walk visits the records from the first file on and returns where they end.
func (img *logImage) walk(visit func(at storage.PhyOffset, record []byte)) storage.PhyOffset {
	at := img.first
	for at < img.end {
		b := img.at(at)
		size, magic, ok := message.Peek(b)
		if !ok || size < 8 || size > len(b) || magic != message.MagicBlank && magic != message.MagicV1 {
			return at
		}
		if magic != message.MagicBlank && visit != nil {
			visit(at, b[:size:size])
		}
		at += storage.PhyOffset(size)
	}
	return at
}

// reportTap reads what a slave writes to its master.
type reportTap struct {
	node *simNode
	rest []byte
	last storage.PhyOffset
}

func (r *reportTap) see(b []byte) {
	r.rest = append(r.rest, b...)
	for len(r.rest) >= reportSize {
		v := int64(binary.BigEndian.Uint64(r.rest))
		size := reportSize
		switch {
		case isHandshake(v):
			if len(r.rest) < frameHeaderSize {
				return
			}
			if size = frameHeaderSize + int(binary.BigEndian.Uint32(r.rest[8:])); len(r.rest) < size {
				return
			}
			if _, kind := handshakeOf(v); kind == kindBegin {
				r.said(storage.PhyOffset(binary.BigEndian.Uint64(r.rest[frameHeaderSize:])))
			}
		case v >= 0:
			r.said(storage.PhyOffset(v))
		}
		r.rest = r.rest[size:]
	}
}

// said notes a report, or the offset at which the slave wants to begin.
func (r *reportTap) said(offset storage.PhyOffset) {
	n := r.node
	if end := n.store.MaxPhyOffset(); offset > end && !(end == 0 && offset%storage.PhyOffset(n.sim.fileSize) == 0) {
		n.sim.fail("%s reports %d, its log ends at %d", n.name, offset, end)
	}
	r.last = offset
}

// check compares what is promised with what is on the disks.
func (s *simulation) check() {
	if s.failed() != nil {
		return
	}
	images := map[*simNode]*logImage{}
	for _, n := range s.nodes {
		images[n] = n.image()
	}
	s.checkHolders(images)
	for _, n := range s.nodes {
		if n.up && n.role != storage.Slave {
			s.checkMark(n, images[n])
			s.checkMaster(n, images[n])
		}
		if n.up && n.linkConn != nil {
			s.checkTransfer(n, images)
		}
	}
	if s.javaSlave != nil {
		s.javaSlave.check(images)
	}
	for _, img := range images {
		img.close()
	}
}

func (s *simulation) checkHolders(images map[*simNode]*logImage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		for n := range m.holders {
			if img := images[n]; !n.powerCut && !img.holds(m) && m.offset >= img.first {
				s.failLocked("message %d of %s, %d to %d, replicated %v, has left the disk of %s, %d to %d",
					m.number, m.writer.name, m.offset, m.end(), m.replicated, n.name, img.first, img.end)
			}
		}
		if m.onRocketmq && !s.javaSlave.holds(m) {
			s.failLocked("message %d has left the RocketMQ slave", m.number)
		}
	}
}

// checkMark looks at what sends wait for.
func (s *simulation) checkMark(n *simNode, img *logImage) {
	if mark, end := n.service.acked(), img.walk(nil); mark > end {
		s.fail("%s: slaves count as holding %d, its log ends at %d", n.name, mark, end)
	}
}

// checkMaster looks for what was answered as replicated: what a master writes now comes behind it, or in its place.
func (s *simulation) checkMaster(n *simNode, img *logImage) {
	if n.waits() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.promised() && m.offset >= img.first && !img.holds(m) {
			s.failLocked("%s takes sends and does not have message %d at %d, which was answered as replicated", n.name, m.number, m.offset)
		}
	}
}

// checkTransfer compares a slave with the master that feeds it.
func (s *simulation) checkTransfer(n *simNode, images map[*simNode]*logImage) {
	if n.link.state != linkTransfer || n.linkConn.peer.done() {
		return
	}
	mine := images[n]
	to := max(n.reports.last, min(mine.end, n.store.MaxPhyOffset()))
	if s.javaMaster != nil {
		if at := mine.differs(mine.first, to, s.javaMaster.at); at >= 0 && !(n.reports.last <= 1 && to <= 1) {
			s.fail("%s has %d to %d and differs at %d from its RocketMQ master, which ends at %d", n.name, mine.first, to, at, s.javaMaster.end())
		}
		return
	}
	server, ok := n.linkConn.peer.context.(*HAConnection)
	if !ok || connectionState(server.state.Load()) != stateTransfer || n.linkConn.peer.owner != n.master {
		return
	}
	masters := images[n.master]
	from := max(mine.first, masters.first)
	if to > masters.end {
		s.fail("%s has %d to %d, more than its master %s, which ends at %d", n.name, mine.first, to, n.master.name, masters.end)
	}
	if at := mine.differs(from, to, masters.at); at >= 0 {
		s.fail("%s has %d to %d and differs at %d from its master %s, %d to %d", n.name, mine.first, to, at, n.master.name, masters.first, masters.end)
	}
}

// checkAtRest looks at nodes that have come together.
func (s *simulation) checkAtRest() {
	n := s.master()
	if n == nil {
		n = s.nodes[0]
	}
	img := n.image()
	defer img.close()
	next := map[string]int64{}
	end := img.walk(func(at storage.PhyOffset, record []byte) {
		var r message.Record
		if err := message.Decode(record, &r); err != nil {
			s.fail("record at %d of %s: %v", at, n.name, err)
			return
		}
		if err := message.CheckCRC(&r); err != nil || r.PhysicalOffset != int64(at) {
			s.fail("record at %d of %s says %d, %v", at, n.name, r.PhysicalOffset, err)
		}
		queue := string(r.Topic) + "-" + strconv.Itoa(int(r.QueueID))
		if want, seen := next[queue]; seen && want != r.QueueOffset {
			s.fail("record at %d of %s has offset %d of queue %s, not %d", at, n.name, r.QueueOffset, queue, want)
		}
		next[queue] = r.QueueOffset + 1
	})
	if want := n.store.MaxPhyOffset(); end != want {
		s.fail("the records of %s end at %d, its log at %d", n.name, end, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.promised() && m.offset >= img.first && !img.holds(m) {
			s.failLocked("message %d at %d was answered as replicated and %s does not have it", m.number, m.offset, n.name)
		}
	}
}
