// SPDX-License-Identifier: Apache-2.0

// Package proc starts the servers of a measured run and reads what processes use.
//
// A Site is a directory and a name server for one run; its brokers live in it, each with ports and a store of its own,
// on loopback. Close ends every process and removes the directory. Processes also end when this one dies, however that
// happens: the kernel kills them.
//
// A Meter reads the figures of processes from the kernel, whoever started them:
//
//	CPU             the process's CPU clock: all its threads, ended ones too, to the nanosecond
//	switches        /proc/PID/task/*/status, summed. What a thread did between the last sample and its end is lost,
//	                and a thread that began and ended between two samples was never seen
//	bytes written   /proc/PID/io: counted when the process dirties a page or writes, not when the kernel writes the page
//	                back; a page that is dirtied again after a write-back counts again. Another user's process: unknown
//	memory          /proc/PID/status: RssAnon is the heap and stacks, the rest of RSS is files that are mapped
package proc
