// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"loopmq/bench/proc"
)

const (
	pageCacheFile = "pagecache"
	// pageCachePiece is how much is brought in at a time.
	pageCachePiece = 1 << 30
)

// fillPageCache leaves the machine without unused memory, by reading a file of the size of it: from then on pages come out
// of the page cache, as they do on a machine that has been up for a while. A hypervisor may have taken unused memory
// back, and then the first touch of each page costs several times what is done with it. The file has blocks and no
// content, so the disk has nothing to do.
func fillPageCache(ctx context.Context, dir string) error {
	path := filepath.Join(dir, pageCacheFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	size := proc.HostOf(dir).Memory / pageCachePiece * pageCachePiece
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("%d GiB for %s, to fill the page cache: %w", size/pageCachePiece, path, err)
	}
	for at := int64(0); at < size && ctx.Err() == nil; at += pageCachePiece {
		b, err := unix.Mmap(int(f.Fd()), at, pageCachePiece, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		err = unix.Madvise(b, unix.MADV_POPULATE_READ)
		_ = unix.Munmap(b)
		if err != nil {
			return fmt.Errorf("fill the page cache from %s: %w", path, err)
		}
	}
	return ctx.Err()
}

// removePageCache gives disk and memory back.
func removePageCache(dir string) { _ = os.Remove(filepath.Join(dir, pageCacheFile)) }
