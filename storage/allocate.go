// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/storage/latency"
	"loopmq/storage/vfs"
)

const (
	// allocateWaitMax is how long a put waits for the next file. Source: AllocateMappedFileService#waitTimeOut.
	allocateWaitMax = 5 * time.Second
	// allocateRetryInterval is the pause after a file could not be made, and how soon puts are accepted again after
	// space is back.
	allocateRetryInterval = time.Second
)

var (
	errAllocateTimeout = fmt.Errorf("the next file was not ready in %v", allocateWaitMax)
	errNoFreeBuffer    = errors.New("no free buffer in the transient store pool")
	errClosing         = errors.New("the store is closing")
)

// AllocateMappedFileService makes the next commitlog file before it is needed: created, with all its blocks, mapped,
// its directory entry synced, its first window populated. A full disk is met here, not by a store into the map.
// A file that was made and never used is deleted at the end. Source: AllocateMappedFileService.
type AllocateMappedFileService struct {
	fs       vfs.FS
	queue    *MappedFileQueue
	pool     *TransientStorePool // nil: no write buffers
	fastFail func() bool         // fastFailIfNoBufferInStorePool
	populate func(*MappedFile)
	logger   *slog.Logger

	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{}

	made  atomic.Int64
	waits latency.Histogram // of take, for a file that was not ready

	mu      sync.Mutex // guards what follows
	wanted  int64      // base of the file to make, -1 for none
	ready   *MappedFile
	err     error         // of the last try for wanted
	changed chan struct{} // closed when ready or err is set
}

func newAllocateMappedFileService(queue *MappedFileQueue) *AllocateMappedFileService {
	return &AllocateMappedFileService{
		fs: queue.fs, queue: queue, logger: queue.logger,
		fastFail: func() bool { return false },
		populate: func(*MappedFile) {},
		wake:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		done:     make(chan struct{}),
		wanted:   -1,
		changed:  make(chan struct{}),
	}
}

func (s *AllocateMappedFileService) start() { go s.run() }

// stop ends the service and deletes the file nobody took.
func (s *AllocateMappedFileService) stop() {
	close(s.stopped)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardReadyLocked()
}

// request asks for the file at base, to be taken later.
func (s *AllocateMappedFileService) request(base int64) {
	s.mu.Lock()
	s.wantLocked(base)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *AllocateMappedFileService) wantLocked(base int64) {
	if s.wanted == base {
		return
	}
	s.wanted, s.err = base, nil
	if s.ready != nil && s.ready.base != base {
		s.discardReadyLocked()
	}
}

func (s *AllocateMappedFileService) discardReadyLocked() {
	if s.ready == nil {
		return
	}
	f := s.ready
	s.setReadyLocked(nil)
	if err := f.retire(); err != nil {
		s.logger.Error("unused file not deleted", "file", f.path(), "cause", err)
	}
}

func (s *AllocateMappedFileService) setReadyLocked(f *MappedFile) {
	s.ready = f
	if s.pool != nil {
		s.pool.setSpare(f != nil && f.pooled)
	}
}

// take waits for the file at base, allocateWaitMax at most. While the last try failed it does not wait.
func (s *AllocateMappedFileService) take(base int64) (*MappedFile, error) {
	s.request(base)
	var timeout <-chan time.Time
	for {
		f, changed, err := s.look(base)
		if f != nil || err != nil {
			return f, err
		}
		if timeout == nil {
			began := latency.Now()
			defer func() { s.waits.Add(time.Duration(latency.Now()-began), 1) }()
			timer := time.NewTimer(allocateWaitMax)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, errAllocateTimeout
		case <-s.stopped:
			return nil, errClosing
		}
	}
}

func (s *AllocateMappedFileService) look(base int64) (f *MappedFile, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready != nil && s.ready.base == base {
		f, s.wanted = s.ready, -1
		s.setReadyLocked(nil)
		return f, nil, nil
	}
	return nil, s.changed, s.err
}

func (s *AllocateMappedFileService) run() {
	defer close(s.done)
	for {
		base := s.next()
		if base < 0 {
			select {
			case <-s.wake:
				continue
			case <-s.stopped:
				return
			}
		}
		f, err := s.make(base)
		s.publish(base, f, err)
		if err == nil {
			continue
		}
		select {
		case <-time.After(allocateRetryInterval):
		case <-s.stopped:
			return
		}
	}
}

// next is the base of the file to make, -1 if there is nothing to do.
func (s *AllocateMappedFileService) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready != nil {
		return -1
	}
	return s.wanted
}

func (s *AllocateMappedFileService) publish(base int64, f *MappedFile, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil {
		s.logger.Error("next commitlog file not made", "file", s.queue.fileName(base), "cause", err)
	}
	if s.wanted == base {
		s.err = err
	}
	if f != nil {
		s.setReadyLocked(f)
		if s.wanted != base {
			s.discardReadyLocked()
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// make leaves nothing behind when it fails.
func (s *AllocateMappedFileService) make(base int64) (*MappedFile, error) {
	var buffer *transientBuffer
	if s.pool != nil {
		buffer = s.pool.borrow()
		if buffer == nil && s.fastFail() && s.pool.size > 1 { // a pool of one: see deficient
			return nil, errNoFreeBuffer
		}
	}
	f, err := s.makeFile(base)
	if err != nil {
		if buffer != nil {
			buffer.giveBack()
		}
		return nil, err
	}
	if buffer != nil {
		f.pooled = true
		f.writeBuffer.Store(buffer)
		return f, nil
	}
	s.populate(f)
	return f, nil
}

func (s *AllocateMappedFileService) makeFile(base int64) (*MappedFile, error) {
	path := s.queue.fileName(base)
	if err := s.fs.MkdirAll(s.queue.dir); err != nil {
		return nil, fmt.Errorf("make %q: %w", s.queue.dir, err)
	}
	// Recovery deletes files behind the end of the log, so what lies here now is the rest of a try whose clean-up
	// failed. Its bytes must not be taken for records.
	if err := s.fs.Remove(path); err == nil {
		s.logger.Warn("a file in the place of the next one was deleted", "file", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("delete %q: %w", path, err)
	}
	region, err := s.fs.OpenRegion(path, s.queue.fileSize, true)
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", path, err)
	}
	if err := region.Allocate(0, s.queue.fileSize); err != nil {
		err = fmt.Errorf("allocate %d bytes of %q: %w", s.queue.fileSize, path, err)
		return nil, errors.Join(err, region.Close(), s.fs.Remove(path))
	}
	f := newMappedFile(s.fs, region, base, s.logger)
	f.allocatedPosition.Store(f.size)
	s.made.Add(1)
	return f, nil
}
