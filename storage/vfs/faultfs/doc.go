// SPDX-License-Identifier: Apache-2.0

// Package faultfs is vfs.FS in memory, for tests: it can fail, fill up, and crash.
//
// Regions are plain heap memory, so the race detector sees what the store does with them; it is blind to mapped
// files. Memory and disk are kept apart: what was stored, created, renamed or removed, and which of it was synced.
//
// # Crashes
//
// Crash ends the file system, all its calls fail from then on with ErrCrashed, and returns what the next start finds:
//
//   - ProcessKill: everything stored. The page cache outlives the process; what was not synced is still not synced,
//     and a later PowerLoss may take it.
//   - PowerLoss: what was synced. Each 4096-byte page that differs from its synced form is, by coin, the old one, the
//     new one, or torn: old and new by sectors of 512 bytes. A length that was not synced is the old or the new one.
//     Of the creations, removals and renames in one directory that no SyncDir covered, the first few happened, in
//     order; directories are independent of each other, and a rename happens whole.
//
// A disk may do better than this; it must not be relied on to. In particular the store finds records whose
// predecessors are missing, zeros where it wrote, and a file it was just making with a length of 0.
//
// Crash may come at any moment, also from a hook, while goroutines store: it copies until two copies are equal.
//
// # Faults
//
// Fail makes calls return an error, chosen by operation, path and count. SetCapacity bounds the blocks: Allocate,
// WriteAt and creations beyond it return ENOSPC. Stores into a region cannot be refused, on the real disk neither;
// Unbacked lists the pages that were stored into without blocks, which there could have been a SIGBUS. A hook is
// called before each operation and may sleep, count, crash or close a channel. OpenRegion, MakeRegion, MkdirAll and WriteFile
// consist of several operations, in the order in which the real ones reach the disk.
package faultfs
