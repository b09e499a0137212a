// SPDX-License-Identifier: Apache-2.0

// Package remoting holds RocketMQ's frame and RemotingCommand in both header forms (JSON, ROCKETMQ), and the request
// and response codes as tables. It does no I/O.
package remoting
