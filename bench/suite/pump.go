// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// pumpPiece is how much the pump copies at a time.
const pumpPiece = 1 << 20

// pump copies the first size bytes of a file to a new one, through memory and with nothing else, and removes the copy: the
// least that a slave of a log of that size has to do on this machine. The file is in the page cache, as a log is that has
// just been written. A slave with ASYNC_FLUSH reports what it has taken, synced or not, so that is the first time; the
// second is when all of it is on the disk.
func pump(ctx context.Context, from, to string, size int64) (took, synced time.Duration, err error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, out.Close(), os.Remove(to)) }()
	piece := make([]byte, pumpPiece)
	began := time.Now()
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		n, err := io.ReadFull(in, piece[:min(left, pumpPiece)])
		if err != nil {
			return 0, 0, fmt.Errorf("pump: %d of %d bytes are left: %w", left, size, err)
		}
		if _, err := out.Write(piece[:n]); err != nil {
			return 0, 0, err
		}
		left -= int64(n)
	}
	took = time.Since(began)
	if err := out.Sync(); err != nil {
		return 0, 0, err
	}
	return took, time.Since(began), nil
}
