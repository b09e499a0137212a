// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"loopmq/storage"
)

// prefetchSize is how much log one fetch brings in for a slave far behind.
const prefetchSize = 8 << 20

// prefetcher touches pages of old files on a goroutine of its own, so that the loop that serves all slaves does not
// wait for the disk.
type prefetcher struct {
	store Store

	mu      sync.Mutex                          // guards fetched
	fetched map[*HAConnection]storage.PhyOffset // end of what was brought in

	requests chan prefetchRequest
	stopped  chan struct{}
	done     chan struct{}
}

type prefetchRequest struct {
	c    *HAConnection
	from storage.PhyOffset
}

// prefetchQueue is how many connections may wait for the helper; beyond it a loop reads for itself.
const prefetchQueue = 64

func (p *prefetcher) start() {
	p.fetched = make(map[*HAConnection]storage.PhyOffset)
	p.requests = make(chan prefetchRequest, prefetchQueue)
	p.stopped, p.done = make(chan struct{}), make(chan struct{})
	go p.run()
}

func (p *prefetcher) stop() {
	close(p.stopped)
	<-p.done
}

// has says whether the frame at offset was brought in.
func (p *prefetcher) has(c *HAConnection, offset storage.PhyOffset) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, ok := p.fetched[c]
	return ok && offset < end && offset >= end-prefetchSize
}

func (p *prefetcher) forget(c *HAConnection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fetched, c)
}

// fetch asks for the bytes from offset on; the connection is pumped again when they are there. False when the helper
// has too much to do.
func (p *prefetcher) fetch(c *HAConnection, from storage.PhyOffset) bool {
	select {
	case p.requests <- prefetchRequest{c, from}:
		return true
	default:
		return false
	}
}

func (p *prefetcher) run() {
	defer close(p.done)
	debug.SetPanicOnFault(true)
	for {
		select {
		case r := <-p.requests:
			p.touch(r.from)
			p.mu.Lock()
			p.fetched[r.c] = r.from + prefetchSize
			p.mu.Unlock()
			r.c.conn.Post(r.c.onLoopFetched)
		case <-p.stopped:
			return
		}
	}
}

// touch reads a byte of each page. A page that the disk does not give is left to the reader, who gets the error.
func (p *prefetcher) touch(from storage.PhyOffset) {
	defer func() { _ = recover() }()
	page := os.Getpagesize()
	var sum byte
	for end := from + prefetchSize; from < end; {
		sel, ok := p.store.Select(from, int(end-from))
		if !ok {
			return
		}
		b := sel.Bytes()
		func() {
			defer sel.Release()
			for i := 0; i < len(b); i += page {
				sum += b[i]
			}
		}()
		from += storage.PhyOffset(len(b))
	}
	_ = sum
}

// onLoopFetched goes on where the pump left off.
func (c *HAConnection) onLoopFetched() {
	c.fetching = false
	c.pump(time.Now())
}
