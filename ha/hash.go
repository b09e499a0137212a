// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"crypto/sha256"

	"loopmq/storage"
)

// hashBlockSize is the block that two logs are compared by.
const hashBlockSize = 64 << 10

// hashRange is the SHA-256 of log bytes [from, to); false when not all of them can be read. It reads mapped pages: not
// for an event loop.
func hashRange(store Store, from, to storage.PhyOffset) (sum [sha256.Size]byte, ok bool) {
	h := sha256.New()
	for from < to {
		sel, found := store.Select(from, int(to-from))
		if !found {
			return sum, false
		}
		n, _ := h.Write(sel.Bytes())
		sel.Release()
		from += storage.PhyOffset(n)
	}
	h.Sum(sum[:0])
	return sum, true
}
