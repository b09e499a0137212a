// SPDX-License-Identifier: Apache-2.0

// Package vfs holds the file operations the store needs, as two small interfaces (FS, Region), and their real form
// (OS) over mmap-go and x/sys, for Linux. faultfs is the other form, for tests.
//
// # A full or broken disk
//
// A store into a mapping cannot return an error: where the disk has no block for it, or cannot read the page, the
// kernel sends SIGBUS. Allocate therefore takes the blocks first, in a call that can fail, and Populate, WillNeed and
// Sync report a page that is not there as an error. What remains, a page that goes bad or a file that is cut while it
// is mapped, is for debug.SetPanicOnFault in the goroutine that touches the bytes (golang/go#36109).
//
// # What is durable when
//
// OpenRegion with create syncs length and directory, MkdirAll the parents of what it makes, WriteFile everything. MakeRegion,
// Remove, RemoveAll and Rename do not sync: a power cut may undo them until SyncDir. Region.Sync covers its range, whether it
// was stored through the mapping or written with WriteAt, and the file's length. After a Sync that failed nothing is
// known of the range: the kernel may have dropped the dirty pages, and a second Sync would find nothing to do and
// succeed.
//
// # The call behind Sync
//
// Measured with
//
//	go test ./storage/vfs -run none -bench Sync -benchtime 400x
//
// on ext4, Linux 6.18, 2 cores, a virtual disk; 32 MiB windows of a file with all blocks allocated. A window is
// unwritten after Populate, written after Populate and Sync, prepared after Populate, Sync and Populate again.
// "p50" and "max" are the time of the sync in µs, "store" the time to copy 1 KiB into the window in ns, at appends of
// 1 KiB, 16 KiB, 64 KiB and 1 MiB.
//
//	call       window      p50  1K  16K  64K   1M    max  1K   16K   64K    1M    store  16K  64K   1M
//	fdatasync  unwritten       147  160  179  769      20286 20904 19540 19938           555  491  222
//	fdatasync  written         116  129  165  757        302   317   308  1602           626  454  199
//	fdatasync  prepared        122  156  173  756      17270 18729 17915 18419           734  483  209
//	msync      unwritten       143  317  328  898       2431   497  2466  1562           166  131  128
//	msync      written         139  151  182  753        290   381   366 15019           488  469  209
//	msync      prepared        129  160  172  761        304   635  2103  1105           182  127  132
//
// sync_file_range before fdatasync is no better than fdatasync alone. Three things show:
//   - fdatasync writes the whole populated window at the first call, a stall of 20 ms for whoever waits. msync of the
//     range writes the folios that the range touches, and those only. Both wait for the same commit of the journal and
//     flush of the disk.
//   - Blocks that were allocated but never written cost msync twice the time: their extents change state with each
//     append, which has to be journalled. A window that was synced once costs nothing like it.
//   - After a sync of the whole window each page faults again at its next store, by write protection. Populate takes
//     that fault ahead of time.
//
// So Sync is msync of the range. Without waiting senders Populate alone is right: stores then cost least.
//
// # Stores or writes
//
// Whoever syncs a few records at a time does better not to store at all. After each sync the page under the next store
// faults; a sync walks the page table to write-protect what was stored, with interrupts of other processors; and a store
// makes a folio dirty as a whole, so the window has to be brought in a page at a time. WritevAt has none of this: the
// kernel then knows which blocks of a folio are new, and one call takes all records of a turn. Groups of 23 records of
// 1,250 bytes, each written or stored, read once through the mapping as dispatch does, and synced; the window made ready
// by another thread, whose time is counted:
//
//	append       window                                   CPU a record     sync p50
//	stores       Populate, Sync, Populate, single pages   5.9 to 8.4 µs    123 to 170 µs
//	WritevAt     allocated                                4.4 to 5.5 µs    217 to 313 µs
//	WritevAt     zeros, synced                            2.6 to 3.5 µs    126 to 174 µs
//
// Blocks that were never written make a sync twice as long here too. So whoever has senders waiting fills its window with
// zeros through the file and syncs it, on a helper goroutine, and appends with WritevAt. The pages stay in memory, so a write of part of
// one reads nothing. The price is that those bytes are written to the disk twice. The window is filled in small writes: the
// kernel makes a folio of up to the size of one, and counts it as written whole (/proc/PID/io, not the disk) for each byte.
package vfs
