// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"loopmq/reactor/remoting"
)

const (
	frameLengthSize = 4
	// partialFrameRateMin is how many bytes a second of a frame have to come once partialFrameAgeMax has passed.
	partialFrameRateMin = 16 << 10
)

// completePartial goes on with the frame whose beginning is kept; whole is true when there is none (any more). It reads
// no more than that frame needs, so each byte is copied a bounded number of times however small the pieces are.
func (s *Session) completePartial(now time.Time) (whole bool, err error) {
	if s.partial == nil {
		return true, nil
	}
	for {
		have := len(s.partial.b)
		total, err := remoting.FrameLength(s.partial.b)
		switch {
		case err != nil:
			return false, fmt.Errorf("%w (%s)", err, greeting(s.partial.b))
		case have == total:
			return s.handlePartial(now)
		}
		want := max(total, frameLengthSize)
		arrived := min(want-have, s.conn.InboundBuffered())
		if arrived == 0 {
			return false, nil
		}
		s.growPartial(arrived, want)
		n, err := s.conn.Read(s.partial.b[have : have+arrived])
		if err != nil {
			return false, err
		}
		s.partial.b = s.partial.b[:have+n]
	}
}

func (s *Session) handlePartial(now time.Time) (whole bool, err error) {
	frame := s.partial
	s.partial = nil
	err = s.handle(frame.b, now)
	poison(frame.b)
	frame.release()
	s.core.partials.hold(s, 0)
	return err == nil && !s.closing.Load(), err
}

// keepPartial copies rest, the first bytes of a frame of total bytes (0: not known yet).
func (s *Session) keepPartial(rest []byte, total int, now time.Time) {
	if len(rest) == 0 {
		return
	}
	s.partialSince = now
	s.partial = partialBuffer(min(max(total, frameLengthSize), 2*len(rest)))
	s.partial.b = append(s.partial.b, rest...)
	s.core.partials.hold(s, cap(s.partial.b))
}

// growPartial makes room for n more bytes. The length that the peer announced is not believed: memory follows what has
// arrived, doubling.
func (s *Session) growPartial(n, want int) {
	need := len(s.partial.b) + n
	if need <= cap(s.partial.b) {
		return
	}
	grown := partialBuffer(min(want, 2*need))
	grown.b = append(grown.b, s.partial.b...)
	s.partial.release()
	s.partial = grown
	s.core.partials.hold(s, cap(grown.b))
}

// Small buffers of partial frames go back to a pool: with many busy connections most turns end inside a frame.
const (
	partialPooledMin = 1 << 10
	partialPooledMax = 64 << 10
)

var partialPools [7]sync.Pool // by power of two, from partialPooledMin to partialPooledMax

const _ = uint(partialPooledMax - partialPooledMin<<(len(partialPools)-1))

// partialBuffer returns an empty buffer with room for size bytes or more.
func partialBuffer(size int) *buffer {
	if size > partialPooledMax {
		return &buffer{make([]byte, 0, size)}
	}
	class := partialClass(size)
	if p, ok := partialPools[class].Get().(*buffer); ok {
		return p
	}
	return &buffer{make([]byte, 0, partialPooledMin<<class)}
}

// release ends the use of a partial frame's buffer; nil has none.
func (p *buffer) release() {
	if p != nil && cap(p.b) <= partialPooledMax {
		p.b = p.b[:0]
		partialPools[partialClass(cap(p.b))].Put(p)
	}
}

func partialClass(size int) int {
	return bits.Len(uint(max(size, partialPooledMin)-1) / partialPooledMin)
}
