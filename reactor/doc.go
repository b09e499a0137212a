// SPDX-License-Identifier: Apache-2.0

// Package reactor puts gnet behind a small Conn: server, client, remoting sessions, request dispatch, replies from any
// goroutine, limits.
package reactor
