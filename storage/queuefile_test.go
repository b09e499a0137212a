// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"loopmq/storage/vfs"
)

// The first unit of a queue must not bring its whole file into memory, nor make it dirty: 10,000 queues would be 60 GB for
// the disk to write.
func TestQueueFileComesInPageByPage(t *testing.T) {
	const fileSize = 300_000 * consumeQueueUnitSize
	q, err := openConsumeQueue(vfs.OS{}, t.TempDir(), "topic", 0, fileSize, &unsyncedNames{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer q.files.close()
	f, err := q.nextFile(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ensureAllocated(consumeQueueUnitSize); err != nil {
		t.Fatal(err)
	}
	encodeUnit(f.bytes(), ConsumeQueueUnit{Offset: 1, Size: 2, TagsCode: 3})
	resident := make([]byte, (fileSize+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&f.bytes()[0])), fileSize, uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
		t.Fatal(errno)
	}
	if n := bytes.Count(resident, []byte{1}); n == 0 || n > len(resident)/4 {
		t.Errorf("%d of %d pages are in memory", n, len(resident))
	}
}
