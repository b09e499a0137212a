// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Bits of RunningFlags, with Java's values. Java's bit 1, not readable, is set by nobody. Source: RunningFlags.
const (
	notWriteableBit     = 2
	logicsQueueErrorBit = 4
	indexFileErrorBit   = 8
	diskFullBit         = 16
	fencedBit           = 32
)

var (
	errDiskFull         = errors.New("the disk is fuller than diskSpaceWarningLevelRatio allows")
	errLogicsQueueError = errors.New("consume queues cannot be built")
	errIndexFileError   = errors.New("the index cannot be built")
)

// RunningFlags says what the store may do. notWriteable is a latch: a sync that failed, or a fault in mapped memory,
// leaves the store read-only until it is opened anew, because the kernel may have dropped the bytes it could not write.
// The other bits come and go with their cause: refusing sends for a full disk says nothing about building queues.
type RunningFlags struct {
	bits  atomic.Int32
	cause atomic.Pointer[error]
}

func (r *RunningFlags) set(bit int32)        { r.bits.Or(bit) }
func (r *RunningFlags) clear(bit int32)      { r.bits.And(^bit) }
func (r *RunningFlags) isSet(bit int32) bool { return r.bits.Load()&bit != 0 }
func (r *RunningFlags) latched() bool        { return r.isSet(notWriteableBit) }

func (r *RunningFlags) isWriteable() bool {
	return !r.isSet(notWriteableBit | logicsQueueErrorBit | indexFileErrorBit | diskFullBit | fencedBit)
}

// latch makes the store read-only for good. The first cause stays; latch says whether this was it.
func (r *RunningFlags) latch(cause error) bool {
	first := r.cause.CompareAndSwap(nil, &cause)
	r.set(notWriteableBit)
	return first
}

// latchedCause is why the store is read-only, nil if it is not.
func (r *RunningFlags) latchedCause() error {
	if cause := r.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// refusal is why puts are refused, nil if they are not.
func (r *RunningFlags) refusal() error {
	switch bits := r.bits.Load(); {
	case bits&notWriteableBit != 0:
		return fmt.Errorf("the store is read-only: %w", r.latchedCause())
	case bits&diskFullBit != 0:
		return errDiskFull
	case bits&fencedBit != 0:
		return errFenced
	case bits&logicsQueueErrorBit != 0:
		return errLogicsQueueError
	case bits&indexFileErrorBit != 0:
		return errIndexFileError
	default:
		return nil
	}
}
