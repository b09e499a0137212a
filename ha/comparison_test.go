// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

const comparedFileSize = 64 << 10

// writtenLog is a log as a master writes it: records and fillers, all of them with the same bodies, so that only heads
// tell two histories apart.
type writtenLog struct {
	bytes  []byte
	starts []int
}

func (w *writtenLog) grow(rng *rand.Rand, records int, born int64) *writtenLog {
	next := &writtenLog{bytes: bytes.Clone(w.bytes), starts: append([]int(nil), w.starts...)}
	sizes := []int{0, 10, 300, 5000, 60000}
	for range records {
		at := len(next.bytes)
		record := message.AppendRecord(nil, &message.Record{
			Topic: []byte("t"), Body: make([]byte, sizes[rng.IntN(len(sizes))]), BornTimestamp: born, PhysicalOffset: int64(at),
			BornHost: testHost, StoreHost: testHost,
		})
		message.SetPhysicalOffset(record, int64(at))
		if room := comparedFileSize - at%comparedFileSize; len(record)+message.BlankSize > room {
			filler := make([]byte, room)
			binary.BigEndian.PutUint32(filler, uint32(room))
			binary.BigEndian.PutUint32(filler[4:], message.MagicBlank)
			if room > 8 {
				filler[8] = byte(born) // behind the head of a filler lies anything
			}
			next.starts = append(next.starts, at)
			next.bytes = append(next.bytes, filler...)
			at = len(next.bytes)
			message.SetPhysicalOffset(record, int64(at))
		}
		next.starts = append(next.starts, at)
		next.bytes = append(next.bytes, record...)
	}
	return next
}

func slaveStore(t testing.TB, log []byte) *storage.MessageStore {
	t.Helper()
	return openStore(t, faultfs.New(), storage.Slave, func(c *storage.Config) { c.MappedFileSizeCommitLog = comparedFileSize }, log)
}

// Wherever two logs part, the comparison finds the very record, in few questions, although all bodies are the same.
func TestComparisonFindsWhereLogsPart(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		common := new(writtenLog).grow(rng, rng.IntN(30), 1)
		mine := common.grow(rng, rng.IntN(30), 2)
		masters := common
		if rng.IntN(4) > 0 {
			masters = common.grow(rng, rng.IntN(30), 3)
		}
		if len(mine.bytes) == 0 || len(masters.bytes) == 0 {
			continue
		}
		want := len(common.bytes)
		if n := len(mine.starts); n > len(common.starts) && len(masters.starts) > len(common.starts) {
			// The same filler may follow in both.
			i := len(common.starts)
			if mine.starts[i] == want && binary.BigEndian.Uint32(mine.bytes[want+4:]) == message.MagicBlank && bytes.Equal(mine.bytes[want:want+8], masters.bytes[want:want+8]) {
				want += int(binary.BigEndian.Uint32(mine.bytes[want:]))
			}
		}
		store := slaveStore(t, mine.bytes)
		high := min(len(mine.bytes), len(masters.bytes))
		c := newComparison(store, 0, storage.PhyOffset(high))
		questions := 0
		for {
			from, to, done, err := c.next()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if done {
				break
			}
			if from < 0 || int(to) > high || from >= to || to-from > hashBlockSize {
				t.Fatalf("seed %d: asks for [%d, %d) of %d", seed, from, to, high)
			}
			if questions++; questions > 25 {
				t.Fatalf("seed %d: no end of questions", seed)
			}
			c.answer(bytes.Equal(mine.bytes[from:to], masters.bytes[from:to]))
		}
		if got := c.parted(); int(got) != want && !(want > high && int(got) == high) {
			t.Fatalf("seed %d: logs to %d and %d part at %d, found %d", seed, len(mine.bytes), len(masters.bytes), want, got)
		}
		if start, err := recordStart(store, c.parted(), comparedFileSize); err != nil || start != c.parted() {
			t.Fatalf("seed %d: record start of %d is %d, %v", seed, c.parted(), start, err)
		}
	}
}
