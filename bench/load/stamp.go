// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// A body begins with a stamp, big-endian, when it has room for it:
//
//	+-----------+---------+--------------+----------+--------------+----------------+
//	| magic (4) | run (4) | producer (4) | open (4) | sequence (8) | time due (8)   |
//	+-----------+---------+--------------+----------+--------------+----------------+
//
// open says how many of the producer's messages just before this one were not answered when it was sent: those may
// overtake it or be overtaken; of earlier ones it must come behind. The time is in nanoseconds since 1970. What follows
// the stamp is a piece of filler that producer and sequence choose.
const (
	stampSize  = 4 + 4 + 4 + 4 + 8 + 8
	stampMagic = 0x6c71b001
)

type stamp struct {
	run, producer, open uint32
	sequence, due       int64
}

func (s *stamp) put(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b, stampMagic)
	be.PutUint32(b[4:], s.run)
	be.PutUint32(b[8:], s.producer)
	be.PutUint32(b[12:], s.open)
	be.PutUint64(b[16:], uint64(s.sequence))
	be.PutUint64(b[24:], uint64(s.due))
}

// readStamp reads a body's stamp; ok is false when it has none.
func readStamp(body []byte) (s stamp, ok bool) {
	be := binary.BigEndian
	if len(body) < stampSize || be.Uint32(body) != stampMagic {
		return s, false
	}
	s = stamp{be.Uint32(body[4:]), be.Uint32(body[8:]), be.Uint32(body[12:]), int64(be.Uint64(body[16:])), int64(be.Uint64(body[24:]))}
	return s, s.sequence >= 0
}

// filler is what bodies are made of: bytes that do not compress, so that a compressing file system gains nothing.
type filler []byte

// fillerStarts is how many places a body's filler may start at.
const fillerStarts = 1 << 12

func newFiller(bodySizeMax int) filler {
	f := make(filler, (fillerStarts+bodySizeMax+7)&^7)
	source := rand.NewPCG(1, 2)
	for i := 0; i < len(f); i += 8 {
		binary.LittleEndian.PutUint64(f[i:], source.Uint64())
	}
	return f
}

// piece is n bytes for a message.
func (f filler) piece(producer uint32, sequence int64, n int) []byte {
	at := (uint64(sequence) + uint64(producer)*977) * 0x9e3779b97f4a7c15 >> 52
	return f[at : int(at)+n]
}

const _ = uint(fillerStarts - 1<<12) // piece takes 12 bits

// matches says whether a stamped body is the one that was sent.
func (f filler) matches(s stamp, body []byte) bool {
	rest := body[stampSize:]
	return len(rest) <= len(f)-fillerStarts && bytes.Equal(rest, f.piece(s.producer, s.sequence, len(rest)))
}
