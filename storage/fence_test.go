// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"math/rand/v2"
	"testing"

	"loopmq/storage/vfs/faultfs"
)

// A fenced master refuses puts and takes the log of another; unfenced it numbers on behind what it took. It does so
// without the transient pool, whose buffers raw bytes do not go through.
func TestFencedMasterTakesRawLog(t *testing.T) {
	f := func(name string, change func(*Config)) {
		t.Run(name, func(t *testing.T) {
			fsys := faultfs.New()
			s := openTestStore(t, fsys, nil)
			s.sendMany(50)
			end := s.settled().MaxPhyOffset()
			s.close()
			fsys = fsys.Crash(faultfs.ProcessKill, 0)
			copied := fsys.Crash(faultfs.ProcessKill, 0)
			fsys = fsys.Crash(faultfs.ProcessKill, 0)
			whole := openTestStore(t, copied, nil)
			whole.sendMany(70)
			log := historyOf(whole.settled())

			m := loadTestStore(t, fsys, testRoot, change)
			m.Fence()
			if err := m.Start(); err != nil {
				t.Fatal(err)
			}
			put, _ := storeMessage{topic: "orders"}.put()
			if status := m.AsyncPutMessage(put); status != ServiceNotAvailable {
				t.Fatalf("a fenced store takes a put: %v", status)
			}
			if _, cause := m.PutDenied(); !errors.Is(cause, errFenced) {
				t.Fatalf("refused because of %v", cause)
			}
			m.feed(log, log.end(), rand.New(rand.NewPCG(1, 1)))
			if m.MaxPhyOffset() == end {
				t.Fatal("nothing was fed")
			}
			eventually(t, "unfenced", m.Unfence)
			if err := m.AppendToCommitLog(m.MaxPhyOffset(), []byte{1}); !errors.Is(err, errNotSlave) {
				t.Fatalf("a master takes raw bytes: %v", err)
			}
			m.mustHold(log)
			m.sendMany(40)
			m.settled()
			for topic, ids := range m.Topics() {
				for _, id := range ids {
					for i, k := range m.pullAll(topic, id) {
						if k != int64(i) {
							t.Fatalf("message %d of %s/%d is numbered %d", i, topic, id, k)
						}
					}
				}
			}
		})
	}
	f("async", nil)
	f("sync", func(c *Config) { c.FlushDiskType = SyncFlush })
	f("pool", func(c *Config) { c.TransientStorePoolEnable, c.FlushDiskType = true, AsyncFlush })
}
