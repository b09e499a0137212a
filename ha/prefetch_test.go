// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"

	"loopmq/storage"
)

// A slave in old files gets them through the helper, and all of them.
func TestColdFrames(t *testing.T) {
	m := startMaster(t, nil)
	m.grow(coldDistance + 3*prefetchSize)
	s := m.follow(1)
	s.receive(m.store.MaxPhyOffset())
	m.equal(s)
	warm := storage.PhyOffset(0)
	for _, c := range *m.ha.connections.Load() {
		warm = storage.PhyOffset(c.warmEnd.Load())
	}
	if warm < 2*prefetchSize {
		t.Fatalf("the helper brought in the log up to %d only", warm)
	}
}
