// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"testing"

	"loopmq/storage/vfs/faultfs"
)

// plantSeedsMax bounds the seeds within which a planted fault has to be found; CI runs more of them.
const plantSeedsMax = 300

// TestCrashFindsPlantedFaults plants one fault for each thing the simulation promises to see, and wants it seen.
func TestCrashFindsPlantedFaults(t *testing.T) {
	f := func(p plant, want string) {
		t.Helper()
		for seed := uint64(1); seed <= plantSeedsMax; seed++ {
			err := runSim(t, seed, p)
			if err != nil && strings.Contains(err.Error(), want) {
				return
			}
		}
		t.Errorf("%s: not found in %d seeds", p.name, plantSeedsMax)
	}
	syncs := func(part string) func(op faultfs.Op, path string) bool {
		return func(op faultfs.Op, path string) bool { return op == faultfs.OpSync && strings.Contains(path, part) }
	}

	if !raceEnabled { // those who read what is being written race
		f(plant{name: "a put is answered before it is written", lies: func(op faultfs.Op, path string) bool {
			return op == faultfs.OpWrite && strings.Contains(path, "/commitlog/")
		}}, "is lost (durable false)")
	}
	f(plant{name: "the log is not synced", lies: syncs("/commitlog/")}, "is lost (durable true)")
	f(plant{name: "queues are not synced", lies: syncs("/consumequeue/")}, "the log says")
	f(plant{name: "names of queues are not synced", lies: func(op faultfs.Op, path string) bool {
		return op == faultfs.OpSyncDir && strings.Contains(path, "/consumequeue")
	}}, "the log says")
	f(plant{name: "the index is not synced", lies: syncs("/index/")}, "is not in the index")
	f(plant{name: "torn bodies are taken", config: func(c *Config) { c.CheckCRCOnRecover = false }}, "body checksum mismatch")

	f(plant{name: "a byte of a body changes", damage: flipBody}, "body checksum mismatch")
	f(plant{name: "a message changes its queue", damage: moveRecord}, "is not as it was sent")
	f(plant{name: "a unit is missing", damage: changeUnit(func(unit []byte) { clear(unit) })}, "the log says")
	f(plant{name: "a unit has another tag", damage: changeUnit(func(unit []byte) { unit[19]++ })}, "the log says")
	f(plant{name: "a unit has another size", damage: changeUnit(func(unit []byte) { unit[11]++ })}, "the log says")
	f(plant{name: "slots of the index are empty", damage: clearSlots}, "is not in the index")
}

// damageFile changes bytes of a file behind the back of whoever has it mapped.
func damageFile(fs *faultfs.FS, name string, change func(b []byte)) bool {
	r, err := fs.OpenRegion(name, 0, false)
	if err != nil {
		return false
	}
	defer r.Close()
	change(r.Bytes())
	return true
}

func logFileOf(fs *faultfs.FS, r *simRecord) (name string, at int64) {
	entries, _ := fs.List(simRoot + "/commitlog")
	fileSize := entries[0].Size
	at = r.PhysicalOffset % fileSize
	return fmt.Sprintf("%s/commitlog/%020d", simRoot, r.PhysicalOffset-at), at
}

func flipBody(fs *faultfs.FS, records []simRecord) bool {
	for i := range records {
		if r := &records[i]; len(r.Body) > 0 {
			name, at := logFileOf(fs, r)
			end := at + int64(r.Size) - int64(2+len(r.Properties)+1+len(r.Topic))
			return damageFile(fs, name, func(b []byte) { b[end-1] ^= 1 })
		}
	}
	return false
}

func moveRecord(fs *faultfs.FS, records []simRecord) bool {
	if len(records) == 0 {
		return false
	}
	name, at := logFileOf(fs, &records[0])
	return damageFile(fs, name, func(b []byte) { b[at+15] ^= 1 })
}

// changeUnit changes the queue unit of the last message that has one.
func changeUnit(change func(unit []byte)) func(fs *faultfs.FS, records []simRecord) bool {
	return func(fs *faultfs.FS, records []simRecord) bool {
		for i := len(records) - 1; i >= 0; i-- {
			r := &records[i]
			dir := fmt.Sprintf("%s/consumequeue/%s/%d", simRoot, r.Topic, r.QueueID)
			entries, _ := fs.List(dir)
			for _, e := range entries {
				base, _ := parseFileName(e.Name)
				at := r.QueueOffset*consumeQueueUnitSize - base
				if at < 0 || at >= e.Size || r.SysFlag&0xC != 0 {
					continue
				}
				changed := false
				damageFile(fs, path.Join(dir, e.Name), func(b []byte) {
					if int64(binary.BigEndian.Uint64(b[at:])) == r.PhysicalOffset {
						change(b[at : at+consumeQueueUnitSize])
						changed = true
					}
				})
				if changed {
					return true
				}
			}
		}
		return false
	}
}

func clearSlots(fs *faultfs.FS, records []simRecord) bool {
	entries, _ := fs.List(simRoot + "/index")
	for _, e := range entries {
		damageFile(fs, path.Join(simRoot, "index", e.Name), func(b []byte) { clear(b[indexHeaderSize : indexHeaderSize+indexSlotSize]) })
	}
	return len(entries) > 0
}
