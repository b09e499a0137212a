// SPDX-License-Identifier: Apache-2.0

// Package suite measures servers side by side: rows of work, each done by every subject in every round.
//
// A row has servers of its own, with empty stores. Within a round the subjects take turns, each round beginning with the
// next one, so that what changes slowly on the machine meets all of them. Whoever is not measured uses nothing: a JVM is
// paused (SIGSTOP), which keeps what it has compiled; a broker of ours is killed and its store removed, and it starts
// anew with an empty one. Before the first round a row is run once without being measured, long for a JVM, and before
// each turn the file system is synced, so that nobody writes for the one before.
package suite
