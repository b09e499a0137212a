// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"runtime/debug"
	"sync"
	"time"

	"loopmq/reactor/remoting"
)

// laneBytesMax bounds the bytes that a lane's queued tasks own: frames are up to 16 MiB, and many may wait.
const laneBytesMax = 64 << 20

// Lane is a bounded set of workers with a queue that is bounded in tasks and in the bytes that they own; at the bound a
// request is answered SYSTEM_BUSY [OVERLOAD].
type Lane struct {
	name     string
	capacity int
	workers  sync.WaitGroup

	mu      sync.Mutex // guards the rest
	wake    *sync.Cond // one signal per task queued
	tasks   []task     // a ring: count of them from head
	head    int
	count   int
	bytes   int // that the tasks queued own
	resting int // workers that wait for a task
	size    int // workers
	stopped bool
}

// task is a function, or a request with its processor.
type task struct {
	run      func()
	req      *Request
	reg      *registration
	core     *core
	bytes    int // of the frame that the task owns
	queuedAt time.Time
}

const laneRingMin = 64

// The largest frame always fits into an empty queue.
const _ = uint(laneBytesMax - remoting.FrameLengthMax)

// NewLane starts the workers.
func NewLane(name string, workers, capacity int) *Lane {
	l := &Lane{name: name, capacity: max(1, capacity), size: max(1, workers)}
	l.wake = sync.NewCond(&l.mu)
	for range l.size {
		l.workers.Go(l.work)
	}
	return l
}

// Submit queues f; false at the bound or after Stop.
func (l *Lane) Submit(f func()) bool { return l.submit(task{run: f, queuedAt: time.Now()}) }

// SubmitOwned is Submit for an f that owns a request.
func (l *Lane) SubmitOwned(req *Request, f func()) bool {
	return l.submit(task{run: f, bytes: req.Bytes(), queuedAt: time.Now()})
}

// Len is the number of tasks that no worker has begun.
func (l *Lane) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Idle says that no task is queued and none runs.
func (l *Lane) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count == 0 && l.resting == l.size
}

// HeadWait is how long the oldest of them has waited, 0 when there is none.
func (l *Lane) HeadWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return 0
	}
	return time.Since(l.tasks[l.head].queuedAt)
}

// Capacity is the bound.
func (l *Lane) Capacity() int { return l.capacity }

// Name is what it was made with.
func (l *Lane) Name() string { return l.name }

// Stop takes no more work, waits for what runs, drops what is queued (its requests are not answered).
func (l *Lane) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.tasks, l.head, l.count, l.bytes = nil, 0, 0, 0
	l.mu.Unlock()
	l.wake.Broadcast()
	l.workers.Wait()
}

func (l *Lane) submit(t task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.count == l.capacity || l.bytes+t.bytes > laneBytesMax {
		return false
	}
	if l.count == len(l.tasks) {
		l.growLocked()
	}
	l.tasks[(l.head+l.count)%len(l.tasks)] = t
	l.count++
	l.bytes += t.bytes
	l.wake.Signal()
	return true
}

func (l *Lane) growLocked() {
	grown := make([]task, min(l.capacity, max(laneRingMin, 2*len(l.tasks))))
	n := copy(grown, l.tasks[l.head:])
	copy(grown[n:], l.tasks[:l.head])
	l.tasks, l.head = grown, 0
}

// take waits for the next task; false after Stop.
func (l *Lane) take() (t task, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resting++
	defer func() { l.resting-- }()
	for l.count == 0 && !l.stopped {
		l.wake.Wait()
	}
	if l.stopped {
		return task{}, false
	}
	t = l.tasks[l.head]
	l.tasks[l.head] = task{}
	l.head = (l.head + 1) % len(l.tasks)
	l.count--
	l.bytes -= t.bytes
	return t, true
}

func (l *Lane) work() {
	debug.SetPanicOnFault(true) // workers read mapped files; see events.OnOpen
	for {
		t, ok := l.take()
		if !ok {
			return
		}
		if t.run != nil {
			guard(nil, "lane "+l.name, t.run)
			continue
		}
		t.core.process(t.reg.processor, t.req)
		releaseRequest(t.req)
	}
}

// requests are the owned copies that lanes work on.
var requests = sync.Pool{New: func() any { return new(Request) }}

func ownedRequest(req *Request) *Request {
	owned := requests.Get().(*Request)
	req.CopyTo(&owned.Command)
	owned.Session, owned.ReceivedAt = req.Session, req.ReceivedAt
	return owned
}

func releaseRequest(req *Request) {
	poison(req.Body)
	req.Reset()
	req.Session = nil
	requests.Put(req)
}
