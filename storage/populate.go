// SPDX-License-Identifier: Apache-2.0

package storage

import "fmt"

// populateStep bounds one call, so that what is ready is published early.
const populateStep = 1 << 20

// populateService brings pages of the last file in ahead of the write position, so that inline appends do not fault.
// It only looks ahead: a put that comes faster is appended by the appender goroutine, which may fault.
type populateService struct {
	queue  *MappedFileQueue
	window func() int64
	// prepare has the disk write the window too: under SYNC_FLUSH a sync into blocks never written takes twice as long.
	prepare bool
	latch   func(error)

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

func newPopulateService(queue *MappedFileQueue, window func() int64, prepare bool, latch func(error)) *populateService {
	return &populateService{
		queue: queue, window: window, prepare: prepare, latch: latch,
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *populateService) start() {
	s.wakeup() // the window of the file that recovery left
	go s.run()
}

func (s *populateService) stop() {
	close(s.stopped)
	<-s.done
}

// wrote wakes the service when half of the window is used up.
func (s *populateService) wrote(f *MappedFile) {
	if f.pooled {
		return
	}
	populated := f.populatedPosition.Load()
	if populated >= f.size || populated-f.wrotePosition.Load() > s.window()/2 {
		return
	}
	s.wakeup()
}

func (s *populateService) wakeup() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *populateService) run() {
	defer close(s.done)
	for {
		select {
		case <-s.stopped:
			return
		case <-s.wake:
			if f := s.queue.last(); f != nil && !f.pooled && f.hold() {
				s.populate(f)
				f.release()
			}
		}
	}
}

// populate brings in a window from the write position on, as far as blocks are allocated. What cannot be brought in is
// left to the appender goroutine, whose fault names the place. A sync that failed may have been the one to hear of
// bytes that were appended, so it latches the store like any other.
func (s *populateService) populate(f *MappedFile) {
	from := max(f.populatedPosition.Load(), f.wrotePosition.Load())
	to := min(f.wrotePosition.Load()+s.window(), f.allocatedPosition.Load())
	if s.prepare && from < to {
		f.region.ReadAhead(from, to, false)
		defer f.region.ReadAhead(from, to, true) // for who reads it when it is cold
	}
	for from < to {
		next := min(from+populateStep, to)
		if f.region.Populate(from, next) != nil {
			return
		}
		if s.prepare {
			if err := f.region.Sync(from, next); err != nil {
				s.latch(fmt.Errorf("sync %d to %d of %q: %w", from, next, f.path(), err))
				return
			}
			if f.region.Populate(from, next) != nil { // the sync has write-protected the pages
				return
			}
		}
		f.populatedPosition.Store(next)
		from = next
	}
}
