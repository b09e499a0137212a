// SPDX-License-Identifier: Apache-2.0

// Package interop holds tests against the real RocketMQ: Java clients, mqadmin, name servers and brokers of 4.9.7 and
// 5.3.3, and the Go client. They have the build tag interop and need a JDK and Maven, which fetches the Java jars once;
// make interop runs them. Every process is started and ended here, on loopback and on free ports; what it printed is
// shown when a test fails.
//
// testdata/java holds small programs on the stock Java client, compiled against each version; goclient is a module of
// its own, so that the Go client stays out of the server's go.mod.
package interop
