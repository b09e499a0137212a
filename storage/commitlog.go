// SPDX-License-Identifier: Apache-2.0

package storage

// CommitLog is the log of records over a queue of mapped files, with the appender that writes it and the services that
// flush it.
type CommitLog struct{}
