// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"runtime/debug"
	"sync"
	"time"
)

// Lane is a bounded set of workers with a bounded queue; at the bound a request is answered SYSTEM_BUSY [OVERLOAD].
type Lane struct {
	name     string
	capacity int
	workers  sync.WaitGroup

	mu      sync.Mutex // guards the rest
	wake    *sync.Cond // one signal per task queued
	tasks   []task     // a ring: count of them from head
	head    int
	count   int
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
	queuedAt time.Time
}

const laneRingMin = 64

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

// Stop takes no more work, waits for what runs, drops what is queued (its requests are not answered).
func (l *Lane) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.tasks, l.head, l.count = nil, 0, 0
	l.mu.Unlock()
	l.wake.Broadcast()
	l.workers.Wait()
}

func (l *Lane) submit(t task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.count == l.capacity {
		return false
	}
	if l.count == len(l.tasks) {
		l.growLocked()
	}
	l.tasks[(l.head+l.count)%len(l.tasks)] = t
	l.count++
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
