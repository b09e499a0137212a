// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package storage

import (
	"errors"
	"sync"

	"loopmq/storage/vfs"
)

// protectedMax bounds the address ranges kept, because each keeps its file open.
const protectedMax = 256

var protected struct {
	mu      sync.Mutex
	regions []vfs.Region
}

// lastRelease keeps the address range for a while and forbids its use: a reader that comes too late fails at its own
// line.
func lastRelease(r vfs.Region) error {
	protected.mu.Lock()
	defer protected.mu.Unlock()
	err := r.Protect()
	if errors.Is(err, errors.ErrUnsupported) {
		return r.Close()
	}
	protected.regions = append(protected.regions, r)
	if len(protected.regions) > protectedMax {
		err = errors.Join(err, protected.regions[0].Close())
		protected.regions = protected.regions[1:]
	}
	return err
}
