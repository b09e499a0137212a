// SPDX-License-Identifier: Apache-2.0

// Package reactor puts gnet behind a small Conn: server, client, remoting sessions, request dispatch, replies from any
// goroutine, limits. Nothing else imports gnet.
//
// # Two levels
//
// Server and Client hand the events of connections to a Handler, as Conns: bytes in, bytes out, for protocols of any
// kind. RemotingServer and RemotingClient stand on them; they make a Session of each connection, which cuts the stream
// into frames, decodes them, and dispatches requests to Processors by code.
//
// # Life of a request
//
// A turn is one OnTraffic of one session, on its event loop: every whole frame that is buffered is decoded into the
// loop's one Request and processed, on the loop or as an owned copy on a Lane; then each TurnProcessor that had a request
// gets EndTurn; then all replies leave in one write. A reply from another goroutine is encoded where it is given; the
// session joins its loop's list, and at most one post per loop is under way to write what all its sessions have gathered.
// Turns write in between when more than a megabyte has been gathered. Whoever answered with ReplyTold learns when that
// was; the clock is read once a turn, at its end, which also says how long the loop was busy.
//
// The beginning of a frame whose end has not come is moved to a buffer of the session, so that gnet's own buffer is
// always empty when a turn ends: a Peek then never copies, and what a peer can make us hold is what we count.
//
// # Who owns what
//
// Conn's methods are the loop's, except those marked; of a Session all are anybody's. What a Request borrows is valid
// until Process returns; under the invariants build tag the frame is overwritten then. Parts given to ReplyLoans stay
// lent until release has run. Session.mu is taken last; nothing blocks under it.
//
// # What gnet does that this package hides
//
//   - Peek(0), Next(0) and Discard(0) mean everything. Here zero means zero.
//   - A write on a dead socket runs OnClose before it returns. Look at Closed after a write.
//   - Writev changes the slice of slices it is given, and closes the connection when there are more than 1,024 parts.
//   - Posts are not ordered, and those behind a shutdown vanish. A posted function reads current state, and nothing
//     depends on it once the engine ends: what sessions hold is given back by OnClose.
//   - The descriptor that wakes a loop is closed before posts are refused. Posts are refused here before that.
//   - A failed accept, for want of descriptors first of all, ends the engine. So the limit of descriptors is raised,
//     the backlog bounded, and connections beyond ConnectionsMax are closed at once, with room for a full backlog left. An
//     engine that ends unasked is an error in the log, in Done and in Err.
//   - It has no signal for "writable", cannot stop reading, and buffers output without bound. Unsent output is measured
//     after each write and every 100 ms while there is some; above the mark Writable is false, half above it bodies that
//     can be made again are refused (TryReplyLoans), at twice the mark or after a while above it the connection is closed.
//   - Its balancing by least connections puts a burst of connects on one loop. Connections go round robin.
//
// # TLS
//
// gnet has none and it is not offered. A Session touches its connection through Conn alone, and the first bytes of a
// stranger are looked at in one place (greeting): TLS would be a Conn that wraps a Conn, put in its place when the first
// byte is 0x16.
package reactor
