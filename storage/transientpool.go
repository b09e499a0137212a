// SPDX-License-Identifier: Apache-2.0

package storage

// transientBuffer is a write buffer of the size of a commitlog file.
type transientBuffer struct {
	data []byte
	pool *TransientStorePool
}

func (b *transientBuffer) giveBack() {}

// TransientStorePool holds the write buffers.
type TransientStorePool struct{}
