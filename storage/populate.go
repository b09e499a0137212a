// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"loopmq/storage/vfs"
)

const (
	// populateStep bounds one call, so that what is ready is published early.
	populateStep = 1 << 20
	// zeroStep bounds one write of zeros: appends to the file wait for it, and the kernel makes folios of up to its size, each
	// of which counts as written whole when a byte of it is.
	zeroStep = 16 << 10
)

var zeros [zeroStep]byte

// populateService makes the last file ready ahead of the write position, for inline appends; a put that comes faster is
// appended by the appender goroutine, which may fault or wait.
//
// For stores to the mapping it brings the pages in. For a log that is written through its files (SYNC_FLUSH) it writes
// zeros and syncs them: a sync into blocks never written takes twice as long, because the file system notes each time
// that they now are, and the write of part of a page that is in memory need not read the rest. Populated then means zeroed,
// on disk and in memory. Zeros must not meet records: they go to the end of what is populated and of what is written,
// whichever is the greater, and who writes beyond what is populated has the service stand still meanwhile.
type populateService struct {
	queue   *MappedFileQueue
	window  func() int64
	prepare bool // write zeros
	latch   func(error)

	zeroing chan struct{} // has an element while zeros are written, or nobody may. A lock that time may pass under.

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}
}

func newPopulateService(queue *MappedFileQueue, window func() int64, prepare bool, latch func(error)) *populateService {
	return &populateService{
		queue: queue, window: window, prepare: prepare, latch: latch,
		zeroing: make(chan struct{}, 1),
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

// stand waits until no zeros are being written, and none will be until goOn.
func (s *populateService) stand() { s.zeroing <- struct{}{} }

func (s *populateService) goOn() { <-s.zeroing }

// populate makes a window from the write position on ready, as far as blocks are allocated. What cannot be is left to the
// appender goroutine, whose error names the place.
func (s *populateService) populate(f *MappedFile) {
	to := min(f.wrotePosition.Load()+s.window(), f.allocatedPosition.Load())
	step := s.bringIn
	if s.prepare {
		step = s.zero
	}
	for more := true; more; {
		more = step(f, to)
	}
}

// bringIn does a step on the way to to; false when there is no next.
func (s *populateService) bringIn(f *MappedFile, to int64) bool {
	from := max(f.populatedPosition.Load(), f.wrotePosition.Load())
	to = min(from+populateStep, to)
	if from >= to || f.region.Populate(from, to) != nil {
		return false
	}
	f.populatedPosition.Store(to)
	return true
}

// zero is bringIn for a log that is written through its files. It syncs apart: what the disk says here may be about bytes that
// were appended, and the flush, which is perhaps about to answer for them, has to hear it too. A sync that failed latches
// the store like any other.
func (s *populateService) zero(f *MappedFile, to int64) bool {
	s.stand()
	from := max(f.populatedPosition.Load(), f.wrotePosition.Load())
	to = min(from-from%populateStep+populateStep, to)
	if from >= to || !writeZeros(f.region, from, to) {
		s.goOn()
		return false
	}
	err := f.region.SyncApart(from, to)
	if err == nil {
		f.populatedPosition.Store(to)
	}
	s.goOn()
	if err != nil {
		s.latch(fmt.Errorf("sync %d to %d of %q: %w", from, to, f.path(), err))
	}
	return err == nil
}

func writeZeros(r vfs.Region, from, to int64) bool {
	for from < to {
		next := min(from+zeroStep, to)
		if r.WriteAt(zeros[:next-from], from) != nil {
			return false
		}
		from = next
	}
	return true
}
