// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"os"
	"runtime"
	"time"

	"loopmq/storage"
)

const (
	// coldDistance is how far behind the end a frame must be to be brought in by the helper first, so that a slave in
	// old files does not delay the acknowledgements of the others with its page faults.
	coldDistance = 64 << 20
	// prefetchSize is how much log one fetch brings in; the next is asked for when half of it is sent.
	prefetchSize = 8 << 20
	// helperTasksMax holds a fetch or hash, and a note in ha.json, of every connection.
	helperTasksMax = 2 * connectionsMax
)

// helper reads old parts of the log and writes ha.json on a goroutine of its own, so that the loop that serves all slaves does not wait
// for the disk. Before start it runs tasks where they are given.
type helper struct {
	tasks   chan func()
	stopped chan struct{}
	done    chan struct{}
}

func (h *helper) start() {
	h.tasks = make(chan func(), helperTasksMax)
	h.stopped, h.done = make(chan struct{}), make(chan struct{})
	go h.run()
}

func (h *helper) stop() {
	close(h.stopped)
	<-h.done
}

// do runs task soon. A connection has at most two under way, so there is room; false when there is none nevertheless.
func (h *helper) do(task func()) bool {
	if h.tasks == nil {
		task()
		return true
	}
	select {
	case h.tasks <- task:
		return true
	default:
		return false
	}
}

func (h *helper) run() {
	defer close(h.done)
	for {
		select {
		case task := <-h.tasks:
			task()
		case <-h.stopped:
			return
		}
	}
}

// touch brings a part of the log into memory, and reads a byte of each page of it. A page that the disk does not give is
// left to the one who sends it.
func touch(store Store, from, end storage.PhyOffset) {
	_ = storage.Guard(func() {
		for from < end {
			n, ok := touchFile(store, from, int(end-from))
			if !ok {
				return
			}
			from += storage.PhyOffset(n)
		}
	})
}

func touchFile(store Store, from storage.PhyOffset, size int) (n int, ok bool) {
	sel, ok := store.Select(from, size)
	if !ok {
		return 0, false
	}
	defer sel.Release()
	sel.BringIn()
	b := sel.Bytes()
	sum := byte(0)
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	runtime.KeepAlive(sum) // or the compiler leaves out the reads
	return len(b), true
}

// cold says that the next frame lies far behind the end and is not in memory yet; the helper comes back with a pump.
// While the slave gets one part the helper brings in the next.
func (c *HAConnection) cold(end storage.PhyOffset) bool {
	next := c.nextTransferFromWhere
	if end-next < coldDistance {
		return false
	}
	warm := storage.PhyOffset(c.warmEnd.Load())
	if !c.fetching && next+prefetchSize/2 >= warm {
		from := max(next, warm)
		c.fetching = true
		if !c.service.helper.do(func() { c.fetch(from) }) {
			c.fetching = false
			return false
		}
	}
	return next >= warm && c.fetching
}

// fetch runs on the helper.
func (c *HAConnection) fetch(from storage.PhyOffset) {
	touch(c.service.store, from, from+prefetchSize)
	c.warmEnd.Store(int64(from + prefetchSize))
	c.conn.Post(c.onLoopFetched)
}

// onLoopFetched goes on where the pump left off.
func (c *HAConnection) onLoopFetched() {
	c.fetching = false
	c.pump(time.Now())
}
