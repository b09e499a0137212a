// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"loopmq/storage/vfs"
)

// unsyncedNames are the directories in which names of new queues stand that a power cut may take back. With three syncs for
// each the dispatcher made 1,200 queues a second, and everybody's messages waited.
type unsyncedNames struct {
	mu   sync.Mutex
	dirs map[string]bool
}

// add notes consumequeue/<topic>/<queueId>, where a file was made, and the two directories above it, where that may be new too.
func (n *unsyncedNames) add(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dirs == nil {
		n.dirs = map[string]bool{}
	}
	for range 3 {
		n.dirs[dir] = true
		dir = filepath.Dir(dir)
	}
}

// sync makes all names durable that were added before.
func (n *unsyncedNames) sync(fsys vfs.FS) error {
	n.mu.Lock()
	dirs := n.dirs
	n.dirs = nil
	n.mu.Unlock()
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		errs = append(errs, syncNames(fsys, dir))
	}
	return errors.Join(errs...)
}

// syncNames makes the names in a directory durable. It may have gone with its topic.
func syncNames(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errSyncFailed, err)
	}
	return nil
}
