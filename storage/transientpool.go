// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TransientStorePool holds write buffers of the size of a commitlog file, outside the heap and locked in memory as far
// as RLIMIT_MEMLOCK allows. A file borrows one when it is made and gives it back when all of it is committed.
// Source: TransientStorePool.
type TransientStorePool struct {
	size int

	mu     sync.Mutex // guards what follows
	free   []*transientBuffer
	spare  bool // the next file, made and not yet in use, has a buffer
	closed bool
}

// transientBuffer is one write buffer.
type transientBuffer struct {
	data []byte
	pool *TransientStorePool
}

func newTransientStorePool(size int, fileSize int64, logger *slog.Logger) (*TransientStorePool, error) {
	p := &TransientStorePool{size: size}
	var notLocked error
	for range size {
		data, err := newBufferMemory(int(fileSize))
		if err != nil {
			p.destroy()
			return nil, fmt.Errorf("transient store pool of %d buffers of %d bytes: %w", size, fileSize, err)
		}
		notLocked = errors.Join(notLocked, lockBufferMemory(data))
		p.free = append(p.free, &transientBuffer{data: data, pool: p})
	}
	if notLocked != nil {
		logger.Warn("write buffers may be swapped out: they cannot be locked in memory", "cause", notLocked)
	}
	return p, nil
}

// borrow takes a free buffer, nil if there is none. A buffer holds bytes of its last use.
func (p *TransientStorePool) borrow() *transientBuffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b
}

// available is the number of free buffers.
func (p *TransientStorePool) available() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

func (p *TransientStorePool) setSpare(spare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = spare
}

// deficient says that the next file would have no buffer. Java does not count the one that the next file has already,
// so its broker refuses all sends with a pool of two. A pool of one never has a buffer for the next file; refusing sends
// would keep the present file from ever being full and giving its buffer back. Source:
// TransientStorePool#availableBufferNums, DefaultMessageStore#isTransientStorePoolDeficient.
func (p *TransientStorePool) deficient() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size > 1 && len(p.free) == 0 && !p.spare
}

func (b *transientBuffer) giveBack() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.pool.closed {
		freeBufferMemory(b.data)
		return
	}
	b.pool.free = append(b.pool.free, b)
}

// destroy frees the buffers; one still borrowed is freed when it comes back.
func (p *TransientStorePool) destroy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.free {
		freeBufferMemory(b.data)
	}
	p.free = nil
}

// lockBufferMemory keeps pages that were touched once from being swapped out. It touches none: five buffers of a
// gigabyte must not take that memory before it is used.
func lockBufferMemory(data []byte) error {
	if raceEnabled || len(data) == 0 {
		return nil
	}
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return fmt.Errorf("mlock2: %w", errno)
	}
	return nil
}

// newBufferMemory takes memory that counts against no garbage collection. A race build takes the heap, which the race
// detector can see.
func newBufferMemory(size int) ([]byte, error) {
	if raceEnabled {
		return make([]byte, size), nil
	}
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func freeBufferMemory(data []byte) {
	if raceEnabled {
		return
	}
	if err := unix.Munmap(data); err != nil {
		panic(fmt.Sprintf("BUG: munmap of a write buffer: %v", err))
	}
}
