// SPDX-License-Identifier: Apache-2.0

// Package wire is a lean client of RocketMQ's remoting protocol, made for generating load. It talks to any broker or
// name server (loopmq, RocketMQ 4.x and 5.x), shares its processors with the server it measures, and so costs little: a
// request is copied from a Template and patched, many leave in one write, and answers are decoded where they were read.
//
// A Conn has one reader goroutine. It hands each answer to the Call that waits for it, and when all answers of one read
// have been handed over it runs the connection's Round. Whoever answers by asking again (a producer with a window, a
// consumer that pulls on) does so on the reader, in Done, and flushes in Round: then a connection is one goroutine, one
// read and one write for as many messages as the server answered at once.
//
// A connection has one lock, which its user may share: it is taken once for all answers of a read, and held while Done
// runs. Whoever else sends takes it for as many requests as there are. Done runs once for each Send that returned nil: with
// the answer, or with an error (ErrTimeout, or why the connection ended).
//
// Nothing that comes in is trusted: lengths are checked before they are used, an answer must belong to a call in flight,
// and a broken frame ends the connection. The package keeps no routes and does not reconnect; that is its user's part.
package wire
