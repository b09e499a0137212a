// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"strings"
	"testing"
)

// chain lists the queue ids of a chain of puts.
func chain(p *PutMessage) (ids []int32) {
	for ; p != nil; p = p.next {
		ids = append(ids, p.QueueID)
	}
	return ids
}

func TestPutQueue(t *testing.T) {
	var q putQueue
	puts := make([]*PutMessage, 10)
	for i := range puts {
		puts[i] = &PutMessage{QueueID: int32(i), Record: make([]byte, 10*(i+1))}
	}
	push := func(now int64, limit, wantN int, want PutMessageStatus, puts ...*PutMessage) {
		t.Helper()
		if n, status := q.push(puts, now, limit); n != wantN || status != want {
			t.Fatalf("push: %d, %v; want %d, %v", n, status, wantN, want)
		}
	}
	push(100, 5, 2, PutOK, puts[0], puts[1])
	push(110, 5, 3, QueueFull, puts[2], puts[3], puts[4], puts[5])
	push(110, 5, 0, QueueFull, puts[5])
	push(110, 3, 0, QueueFull, puts[5]) // the limit was lowered meanwhile
	if got := q.headWait(130); got != 30 {
		t.Fatalf("head waits for %d", got)
	}
	if q.popIfFits(9) != nil || q.popIfFits(10) != puts[0] || q.length.Load() != 4 {
		t.Fatal("the oldest did not come by its size")
	}
	if c, _ := q.popExpired(99); c != nil {
		t.Fatalf("expired too early: %v", chain(c))
	}
	if c, length := q.popExpired(109); len(chain(c)) != 1 || c != puts[1] || length != 4 {
		t.Fatalf("expired: %v of %d", chain(c), length)
	}
	push(120, 100, 1, PutOK, puts[5])
	if c, _ := q.popExpired(110); len(chain(c)) != 3 || c != puts[2] || q.length.Load() != 1 {
		t.Fatalf("expired: %v, %d left", chain(c), q.length.Load())
	}
	q.refuse(errClosing)
	push(130, 100, 0, ServiceNotAvailable, puts[6])
	if c := q.popAll(); len(chain(c)) != 1 || c != puts[5] || q.length.Load() != 0 || q.popAll() != nil {
		t.Fatalf("all: %v", chain(c))
	}
	if q.headWait(1000) != 0 || q.popIfFits(1<<40) != nil {
		t.Fatal("an empty queue has a head")
	}
}

func TestRunningFlags(t *testing.T) {
	var r RunningFlags
	f := func(writeable bool, cause string) {
		t.Helper()
		if r.isWriteable() != writeable {
			t.Fatalf("writeable %v, want %v", r.isWriteable(), writeable)
		}
		switch got := r.refusal(); {
		case got == nil && cause != "", got != nil && (cause == "" || !strings.Contains(got.Error(), cause)):
			t.Fatalf("refusal %v; want %q", got, cause)
		}
	}
	f(true, "")
	r.set(diskFullBit)
	f(false, "full")
	r.set(logicsQueueErrorBit)
	f(false, "full")
	r.clear(diskFullBit)
	f(false, "consume queues")
	r.clear(logicsQueueErrorBit)
	r.set(indexFileErrorBit)
	f(false, "index")
	r.clear(indexFileErrorBit)
	f(true, "")
	if !r.latch(errors.New("first")) || r.latch(errors.New("second")) {
		t.Fatal("latched more or less than once")
	}
	f(false, "first")
	r.clear(diskFullBit | logicsQueueErrorBit | indexFileErrorBit)
	f(false, "first")
	if !r.latched() || r.latchedCause().Error() != "first" {
		t.Fatalf("latched %v by %v", r.latched(), r.latchedCause())
	}
}

func TestPutMessageStatusNames(t *testing.T) {
	f := func(s PutMessageStatus, want string) {
		t.Helper()
		if got := s.String(); got != want {
			t.Fatalf("%d is %q; want %q", int32(s), got, want)
		}
	}
	f(PutOK, "PUT_OK")
	f(CreateMappedFileFailed, "CREATE_MAPEDFILE_FAILED")
	f(OSPageCacheBusy, "OS_PAGECACHE_BUSY")
	f(QueueTimeout, "PUT_QUEUE_TIMEOUT")
	f(-1, "PutMessageStatus(-1)")
	f(QueueTimeout+1, "PutMessageStatus(12)")
	for s := PutOK; s <= QueueTimeout; s++ {
		if s.String() == "" {
			t.Fatalf("status %d has no name", int32(s))
		}
	}
}

func TestTransientStorePoolLends(t *testing.T) {
	p, err := newTransientStorePool(2, 1<<20, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	a, b := p.borrow(), p.borrow()
	if a == nil || b == nil || a == b || p.borrow() != nil || p.available() != 0 || !p.deficient() {
		t.Fatal("two buffers were not lent once each")
	}
	a.data[len(a.data)-1] = 1
	p.setSpare(true)
	if p.deficient() {
		t.Fatal("deficient although the next file has its buffer")
	}
	a.giveBack()
	if p.available() != 1 || p.borrow() != a {
		t.Fatal("a returned buffer was not lent again")
	}
	b.giveBack()
	p.destroy()
	a.giveBack() // comes back late, and is freed then
	if p.borrow() != nil {
		t.Fatal("a destroyed pool lends")
	}
}
