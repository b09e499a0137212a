// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"loopmq/storage"
)

// A handshake message is a frame whose physicOffset is no offset: PROTOCOL.md §2 has the layout.
const (
	handshakeMagic     = int64(-0x8000_0000_0000_0000) | 0x4C4F_4F50_0000
	handshakeMagicMask = int64(-0x10000)
	handshakeVersion   = 1
	// handshakeRequest is a loopmq slave's first report. RocketMQ's masters take it for "not asked yet".
	handshakeRequest = int64(-1)
)

type handshakeKind uint8

const (
	kindHello handshakeKind = iota + 1
	kindMine
	kindAsk
	kindHash
	kindBegin
	kindRefuse
	kindMore
	kindWant
	kindTail
)

// refuseReason says in a byte pair what the text of a refusal says in words.
type refuseReason uint16

const (
	refuseVersion    refuseReason = iota + 1
	refuseExpired                 // the slave's end is below the master's first offset
	refuseAhead                   // the slave's end is beyond the master's, and its log is no continuation
	refuseDiverged                // the logs differ and the slave may not cut
	refuseFileSize                // the log files of the two have different sizes
	refuseNotAllowed              // the allow-list, or a role that serves no slaves
	refuseSameNode                // the node id is another's too
)

func isHandshake(phyOffset int64) bool { return phyOffset&handshakeMagicMask == handshakeMagic }

// nodeID tells two stores apart; it is made with the store and kept in ha.json.
type nodeID [16]byte

// helloMessage is what a master says of itself and its log.
type helloMessage struct {
	sync       bool // SYNC_MASTER
	waiting    bool // it may have lost the end of its log, and takes it from a slave that has it
	fileSize   int64
	first, end storage.PhyOffset
	syncFrom   storage.PhyOffset
	node       nodeID
}

// mineMessage is what a slave says of its log.
type mineMessage struct {
	first, end storage.PhyOffset
	floor      storage.PhyOffset
	node       nodeID
}

// hashMessage is a range and the hash of its bytes in the log of the one who says it; all zero when it has them not.
type hashMessage struct {
	from, to storage.PhyOffset
	sum      [sha256.Size]byte
}

// refuseMessage ends a connection on purpose.
type refuseMessage struct {
	reason     refuseReason
	first, end storage.PhyOffset
	text       string
}

func (m refuseMessage) Error() string {
	return fmt.Sprintf("%s (log of the peer: %d to %d)", m.text, m.first, m.end)
}

func appendHandshake(dst []byte, kind handshakeKind, body []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(handshakeMagic|handshakeVersion<<8|int64(kind)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...)
}

// handshakeOf splits a physicOffset that isHandshake.
func handshakeOf(phyOffset int64) (version int, kind handshakeKind) {
	return int(phyOffset >> 8 & 0xff), handshakeKind(phyOffset & 0xff)
}

func appendOffsets(dst []byte, offsets ...storage.PhyOffset) []byte {
	for _, o := range offsets {
		dst = binary.BigEndian.AppendUint64(dst, uint64(o))
	}
	return dst
}

func (m *helloMessage) append(dst []byte) []byte {
	var role [4]byte
	if m.sync {
		role[0] = 1
	}
	if m.waiting {
		role[1] = 1
	}
	body := append(make([]byte, 0, 64), role[:]...)
	body = binary.BigEndian.AppendUint64(body, uint64(m.fileSize))
	body = appendOffsets(body, m.first, m.end, m.syncFrom)
	body = append(body, m.node[:]...)
	return appendHandshake(dst, kindHello, body)
}

func decodeHello(body []byte) (m helloMessage, err error) {
	r := offsetReader{body: body}
	role := r.bytes(4)
	m.fileSize = int64(r.offset())
	m.first, m.end, m.syncFrom = r.offset(), r.offset(), r.offset()
	copy(m.node[:], r.bytes(len(m.node)))
	if r.err() || role[0] > 1 || role[1] > 1 || m.fileSize <= 0 || m.first > m.end || int64(m.first)%m.fileSize != 0 {
		return m, fmt.Errorf("%w: hello of %d bytes", ErrProtocol, len(body))
	}
	m.sync, m.waiting = role[0] == 1, role[1] == 1
	return m, nil
}

func (m *mineMessage) append(dst []byte) []byte {
	body := appendOffsets(make([]byte, 0, 64), m.first, m.end, m.floor)
	return appendHandshake(dst, kindMine, append(body, m.node[:]...))
}

func decodeMine(body []byte) (m mineMessage, err error) {
	r := offsetReader{body: body}
	m.first, m.end, m.floor = r.offset(), r.offset(), r.offset()
	copy(m.node[:], r.bytes(len(m.node)))
	if r.err() || m.first > m.end {
		return m, fmt.Errorf("%w: slave's log of %d bytes", ErrProtocol, len(body))
	}
	return m, nil
}

func (m *hashMessage) append(dst []byte) []byte {
	body := appendOffsets(make([]byte, 0, 64), m.from, m.to)
	return appendHandshake(dst, kindHash, append(body, m.sum[:]...))
}

func decodeHash(body []byte) (m hashMessage, err error) {
	r := offsetReader{body: body}
	m.from, m.to = r.offset(), r.offset()
	copy(m.sum[:], r.bytes(len(m.sum)))
	if r.err() {
		return m, fmt.Errorf("%w: hash of %d bytes", ErrProtocol, len(body))
	}
	return m, nil
}

func appendAsk(dst []byte, from, to storage.PhyOffset) []byte {
	return appendHandshake(dst, kindAsk, appendOffsets(nil, from, to))
}

// decodeAsk bounds the range: a question costs the master reads.
func decodeAsk(body []byte) (from, to storage.PhyOffset, err error) {
	from, to, err = decodeRange(body)
	if err == nil && to-from > hashBlockSize {
		err = fmt.Errorf("%w: question for bytes %d to %d", ErrProtocol, from, to)
	}
	return from, to, err
}

// decodeRange is the body of kindMore, and of kindWant but for the latter's bound.
func decodeRange(body []byte) (from, to storage.PhyOffset, err error) {
	r := offsetReader{body: body}
	from, to = r.offset(), r.offset()
	if r.err() || from >= to {
		return 0, 0, fmt.Errorf("%w: range of bytes %d to %d", ErrProtocol, from, to)
	}
	return from, to, nil
}

// decodeTail splits a piece of log; the bytes are the body's.
func decodeTail(body []byte) (from storage.PhyOffset, bytes []byte, err error) {
	r := offsetReader{body: body}
	from = r.offset()
	if r.short || len(r.body) == 0 || len(r.body) > tailPieceMax {
		return 0, nil, fmt.Errorf("%w: piece of %d bytes", ErrProtocol, len(body))
	}
	return from, r.body, nil
}

func appendOne(dst []byte, kind handshakeKind, offset storage.PhyOffset) []byte {
	return appendHandshake(dst, kind, appendOffsets(nil, offset))
}

func decodeOne(body []byte) (storage.PhyOffset, error) {
	r := offsetReader{body: body}
	offset := r.offset()
	if r.err() {
		return 0, fmt.Errorf("%w: offset of %d bytes", ErrProtocol, len(body))
	}
	return offset, nil
}

// refuseTextMax bounds the text of a refusal.
const refuseTextMax = 1 << 10

func (m *refuseMessage) append(dst []byte) []byte {
	body := binary.BigEndian.AppendUint16(make([]byte, 0, 128), uint16(m.reason))
	body = appendOffsets(body, m.first, m.end)
	return appendHandshake(dst, kindRefuse, append(body, m.text[:min(len(m.text), refuseTextMax)]...))
}

func decodeRefuse(body []byte) (m refuseMessage, err error) {
	r := offsetReader{body: body}
	reason := r.bytes(2)
	m.first, m.end = r.offset(), r.offset()
	if r.short {
		return m, fmt.Errorf("%w: refusal of %d bytes", ErrProtocol, len(body))
	}
	m.reason = refuseReason(binary.BigEndian.Uint16(reason))
	m.text = strings.ToValidUTF8(string(r.body[:min(len(r.body), refuseTextMax)]), "?")
	return m, nil
}

// offsetReader reads a body front to back and remembers when it was too short or held a negative offset.
type offsetReader struct {
	body  []byte
	short bool
}

func (r *offsetReader) bytes(n int) []byte {
	if len(r.body) < n {
		r.short = true
		return make([]byte, n)
	}
	b := r.body[:n]
	r.body = r.body[n:]
	return b
}

func (r *offsetReader) offset() storage.PhyOffset {
	o := storage.PhyOffset(binary.BigEndian.Uint64(r.bytes(8)))
	if o < 0 {
		r.short = true
	}
	return o
}

// err is true unless the whole body was read and made sense.
func (r *offsetReader) err() bool { return r.short || len(r.body) > 0 }
