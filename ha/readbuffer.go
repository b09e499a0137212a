// SPDX-License-Identifier: Apache-2.0

package ha

// readBuffer carries what a slave has received and not yet appended. Bytes are read behind w and dispatched from
// dispatchPosition; a frame that is not whole when the array is full moves to the front of the other array, which takes
// its place. Source: HAClient#byteBufferRead, #byteBufferBackup, #reallocateByteBuffer, #swapByteBuffer.
type readBuffer struct {
	byteBufferRead   []byte
	byteBufferBackup []byte
	w                int // end of received bytes
	dispatchPosition int // start of the first frame not dispatched
}

func newReadBuffer() *readBuffer {
	return &readBuffer{byteBufferRead: make([]byte, readBufferMax), byteBufferBackup: make([]byte, readBufferMax)}
}

// reset forgets what was received.
func (b *readBuffer) reset() { b.w, b.dispatchPosition = 0, 0 }

// space is where the next bytes are to be read; never empty after carry.
func (b *readBuffer) space() []byte { return b.byteBufferRead[b.w:] }

// received says that n bytes were read into space.
func (b *readBuffer) received(n int) { b.w += n }

// header is the next frame's, if all of it is there.
func (b *readBuffer) header() (h frameHeader, ok bool, err error) {
	if b.w-b.dispatchPosition < frameHeaderSize {
		return h, false, nil
	}
	h, err = decodeFrameHeader(b.byteBufferRead[b.dispatchPosition:b.w])
	return h, err == nil, err
}

// body is the body of the frame that h begins, if all of it is there. The slice is good until the next carry.
func (b *readBuffer) body(h frameHeader) ([]byte, bool) {
	from := b.dispatchPosition + frameHeaderSize
	end := from + int(h.bodySize)
	if end > b.w {
		return nil, false
	}
	return b.byteBufferRead[from:end:end], true
}

// dispatched moves past the frame that h begins.
func (b *readBuffer) dispatched(h frameHeader) {
	b.dispatchPosition += frameHeaderSize + int(h.bodySize)
}

// carry makes room: an empty buffer starts anew at its warm front, a full one hands its half packet to the backup.
func (b *readBuffer) carry() {
	switch {
	case b.dispatchPosition == b.w:
		b.w, b.dispatchPosition = 0, 0
	case b.w == len(b.byteBufferRead):
		b.reallocateByteBuffer()
	}
}

// reallocateByteBuffer copies the half packet to the backup and swaps the two.
func (b *readBuffer) reallocateByteBuffer() {
	remain := copy(b.byteBufferBackup, b.byteBufferRead[b.dispatchPosition:b.w])
	b.byteBufferRead, b.byteBufferBackup = b.byteBufferBackup, b.byteBufferRead
	b.w, b.dispatchPosition = remain, 0
}
