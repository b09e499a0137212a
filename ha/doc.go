// SPDX-License-Identifier: Apache-2.0

// Package ha replicates the CommitLog from a master to its slaves: master side, slave side, and the waiting for a slave.
// PROTOCOL.md says what goes over the wire.
package ha
