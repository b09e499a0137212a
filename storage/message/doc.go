// SPDX-License-Identifier: Apache-2.0

// Package message holds the bytes of one message: as stored and as sent in a batch, its properties, system flags and
// ids. Nothing here does I/O, keeps state or, on the way of a send or a pull, allocates.
//
// # Record
//
// Numbers are big-endian. A host is 4 or 16 address bytes and a four-byte port; which, two bits of SYSFLAG say, one
// for each host. Positions are those with a born host of IPv4; 12 more follow one of IPv6.
//
//	 0 TOTALSIZE      4    whole record
//	 4 MAGICCODE      4    MagicV1, or MagicV2 with two bytes of topic length
//	 8 BODYCRC        4    CRC-32 & 0x7FFFFFFF of the body
//	12 QUEUEID        4
//	16 FLAG           4    the sender's own
//	20 QUEUEOFFSET    8    filled in by the appender
//	28 PHYSICALOFFSET 8    filled in by the appender
//	36 SYSFLAG        4
//	40 BORNTIMESTAMP  8    milliseconds, the sender's clock
//	48 BORNHOST       8|20
//	56 STORETIMESTAMP 8    filled in by the appender
//	64 STOREHOST      8|20
//	72 RECONSUMETIMES 4
//	76 PREPAREDOFFSET 8
//	84 BODY           4 + n
//	   TOPIC          1 + n, V2: 2 + n
//	   PROPERTIES     2 + n
//
// A file of the log ends with a BLANK, which has TOTALSIZE (all that is left of the file) and MAGICCODE only.
// AppendRecord writes V1, which every client reads; Decode reads both.
//
// # Properties
//
// Pairs of name 0x01 value, with 0x02 between them. Writers differ in whether a 0x02 also ends the last (5.x) or not
// (4.9), and readers take both. So do ours; what we write has none at the end, and whoever appends looks whether one
// must come first (apache/rocketmq#3476).
package message
