// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package storage

import "loopmq/storage/vfs"

// lastRelease keeps the address range and forbids its use: a reader that comes too late fails at its own line.
func lastRelease(r vfs.Region) error { return r.Protect() }
