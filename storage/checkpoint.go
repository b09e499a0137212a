// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"log/slog"

	"loopmq/storage/vfs"
)

// Layout of the checkpoint file. Java knows the fields up to 40 and leaves the rest alone.
const (
	checkpointFileSize     = 4096
	physicTimestampAt      = 0
	logicsTimestampAt      = 8
	indexTimestampAt       = 16
	restartBlockAt         = 512 // a sector of its own
	restartBlockSize       = 8 + 8 + 3*8 + 4
	checkpointSlackMillis  = 3000 // StoreCheckpoint#getMinTimestamp goes back as far
	timestampFieldsSize    = 24
	restartBlockMagic      = "loopmq\x00\x01"
	restartBlockCRCAt      = restartBlockAt + restartBlockSize - 4
	restartBlockOffsetAt   = restartBlockAt + 8
	restartBlockTimesAt    = restartBlockAt + 16
	restartBlockTimesLimit = restartBlockTimesAt + timestampFieldsSize
)

// StoreCheckpoint says up to which store time log, queues and index are durable. It moves only after the files it
// stands for were synced, the log and all queues included.
//
// Beside Java's three times we keep the log offset they stand for: everything below it is durable and dispatched.
// The offset counts only while the three times beside it equal Java's fields: when a Java broker has moved those, it
// has written to the store without moving the offset. Times alone mislead when the clock was set back.
//
// Source: StoreCheckpoint. Owned by whoever flushes the queues; Open and Close use it while nothing else runs.
type StoreCheckpoint struct {
	file *MappedFile // a fault in it is known by its place, as in any other
}

// checkpointTimes are Java's fields, milliseconds.
type checkpointTimes struct {
	physic, logics, index int64
}

func openCheckpoint(fsys vfs.FS, path string, logger *slog.Logger) (*StoreCheckpoint, error) {
	entry, err := fsys.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := err == nil && entry.Size == checkpointFileSize
	region, err := fsys.OpenRegion(path, checkpointFileSize, !whole)
	if err != nil {
		return nil, err
	}
	if err := region.Allocate(0, checkpointFileSize); err != nil {
		return nil, errors.Join(err, region.Close())
	}
	return &StoreCheckpoint{file: newMappedFile(fsys, region, 0, logger)}, nil
}

func (c *StoreCheckpoint) times() checkpointTimes {
	b := c.file.bytes()
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	return checkpointTimes{physic: at(physicTimestampAt), logics: at(logicsTimestampAt), index: at(indexTimestampAt)}
}

// restart is the offset below which all is durable and dispatched, if the file tells.
func (c *StoreCheckpoint) restart() (PhyOffset, bool) {
	b := c.file.bytes()
	block := b[restartBlockAt:restartBlockCRCAt]
	if string(block[:8]) != restartBlockMagic {
		return 0, false
	}
	if binary.BigEndian.Uint32(b[restartBlockCRCAt:]) != crc32.ChecksumIEEE(block) {
		return 0, false
	}
	if !bytes.Equal(b[:timestampFieldsSize], b[restartBlockTimesAt:restartBlockTimesLimit]) {
		return 0, false
	}
	offset := PhyOffset(binary.BigEndian.Uint64(b[restartBlockOffsetAt:]))
	return offset, offset >= 0
}

// save makes a new state durable. The caller has synced what it stands for.
func (c *StoreCheckpoint) save(t checkpointTimes, restart PhyOffset) error {
	b := c.file.bytes()
	binary.BigEndian.PutUint64(b[physicTimestampAt:], uint64(t.physic))
	binary.BigEndian.PutUint64(b[logicsTimestampAt:], uint64(t.logics))
	binary.BigEndian.PutUint64(b[indexTimestampAt:], uint64(t.index))
	copy(b[restartBlockAt:], restartBlockMagic)
	binary.BigEndian.PutUint64(b[restartBlockOffsetAt:], uint64(restart))
	copy(b[restartBlockTimesAt:], b[:timestampFieldsSize])
	binary.BigEndian.PutUint32(b[restartBlockCRCAt:], crc32.ChecksumIEEE(b[restartBlockAt:restartBlockCRCAt]))
	return c.file.region.Sync(0, checkpointFileSize)
}

func (c *StoreCheckpoint) close() { c.file.close() }

// min is the store time up to which a restart may trust the files. Java's index time moves only when an index file is
// full, so it counts only on stores that ask for it (messageIndexSafe) or that we wrote last.
// Source: StoreCheckpoint#getMinTimestamp, #getMinTimestampIndex.
func (t checkpointTimes) min(withIndex bool) int64 {
	lowest := min(t.physic, t.logics)
	if withIndex {
		lowest = min(lowest, t.index)
	}
	return max(0, lowest-checkpointSlackMillis)
}
