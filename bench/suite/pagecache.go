// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"loopmq/bench/proc"
)

// pageCachePiece is how much is brought in at a time.
const pageCachePiece = 1 << 30

// pageCache leaves the machine without unused memory, by reading a file of the size of it: from then on pages come out of the
// page cache, as they do on a machine that has been up for a while. A hypervisor may have taken unused memory back, and then
// the first touch of each page costs several times what is done with it. The file has blocks and no content, so the disk has
// nothing to do. It has no name: however this process ends, disk and memory are given back.
type pageCache struct {
	file *os.File // nil: not made yet
	size int64
}

// fill brings the file into memory, of which it is made in dir.
func (p *pageCache) fill(ctx context.Context, dir string) error {
	if p.file == nil {
		if err := p.create(dir, proc.HostOf(dir).Memory/pageCachePiece*pageCachePiece); err != nil {
			return err
		}
	}
	for at := int64(0); at < p.size && ctx.Err() == nil; at += pageCachePiece {
		b, err := unix.Mmap(int(p.file.Fd()), at, int(min(pageCachePiece, p.size-at)), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		err = unix.Madvise(b, unix.MADV_POPULATE_READ)
		_ = unix.Munmap(b)
		if err != nil {
			return fmt.Errorf("fill the page cache: %w", err)
		}
	}
	return ctx.Err()
}

// create makes the file and takes its name away.
func (p *pageCache) create(dir string, size int64) error {
	f, err := os.CreateTemp(dir, "pagecache-")
	if err != nil {
		return err
	}
	if err = errors.Join(os.Remove(f.Name()), unix.Fallocate(int(f.Fd()), 0, 0, size)); err != nil {
		return errors.Join(fmt.Errorf("%d GiB in %s, to fill the page cache: %w", size/pageCachePiece, dir, err), f.Close())
	}
	p.file, p.size = f, size
	return nil
}

func (p *pageCache) close() {
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}
