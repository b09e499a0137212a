// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync/atomic"
	"time"
)

const (
	// residentPart is how much of a file one look at what is in memory takes in: the kernel is asked page by page, and what
	// lies beside a record is what its reader, and the readers of other queues, want next.
	residentPart = 256 << 10
	// residentFor is how long a look is good for. The kernel takes pages back that nobody has used for longer.
	residentFor = time.Second
)

// residency says when each part of a file was last seen in memory, by latency.Now.
type residency []atomic.Int64

// isResident says whether [from, to) is in memory, or was a moment before now.
func (f *MappedFile) isResident(from, to, now int64) bool {
	seen := f.seenResident()
	for part := from / residentPart; part*residentPart < to; part++ {
		if last := seen[part].Load(); last != 0 && now-last < int64(residentFor) {
			continue
		}
		begin := part * residentPart
		end := max(min(begin+residentPart, f.readPosition()), min(begin+residentPart, to))
		switch {
		case f.region.Resident(begin, end):
			seen[part].Store(now)
		case !f.region.Resident(max(begin, from), min(end, to)):
			return false
		}
	}
	return true
}

// seenResident is made at the first look: most files are never read.
func (f *MappedFile) seenResident() residency {
	if seen := f.residency.Load(); seen != nil {
		return *seen
	}
	seen := make(residency, (f.size+residentPart-1)/residentPart)
	if f.residency.CompareAndSwap(nil, &seen) {
		return seen
	}
	return *f.residency.Load()
}

// isResident says whether the first n bytes of the loan are in memory.
func (r *SelectMappedBufferResult) isResident(n int, now int64) bool {
	from := int64(r.StartOffset) - r.file.base
	return r.file.isResident(from, from+int64(n), now)
}
