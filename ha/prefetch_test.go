// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"

	"loopmq/storage"
	"loopmq/storage/vfs/faultfs"
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
	// Not by faults alone: while large turns are written each brings in its page only.
	if n := m.fs.Count(faultfs.OpWillNeed); n < 2 {
		t.Errorf("%d calls to read ahead", n)
	}
}
