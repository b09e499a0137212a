// SPDX-License-Identifier: Apache-2.0

package message

import "net/netip"

// Magic codes of a commitlog record. Source: CommitLog#MESSAGE_MAGIC_CODE, #BLANK_MAGIC_CODE; V2 is 5.x with a
// two-byte topic length.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB
	MagicBlank uint32 = 0xCBD43194
)

// System flag bits of a stored message. Source: MessageSysFlag.
const (
	FlagCompressed          int32 = 0x1
	FlagMultiTags           int32 = 0x2
	FlagTransactionPrepared int32 = 0x4
	FlagTransactionCommit   int32 = 0x8
	FlagTransactionRollback int32 = 0xC // also the mask
	FlagBornHostV6          int32 = 0x10
	FlagStoreHostV6         int32 = 0x20
)

// Names of properties that the broker reads or writes. Source: MessageConst.
const (
	PropertyKeys            = "KEYS"
	PropertyTags            = "TAGS"
	PropertyWaitStoreMsgOK  = "WAIT"
	PropertyDelayTimeLevel  = "DELAY"
	PropertyRetryTopic      = "RETRY_TOPIC"
	PropertyRealTopic       = "REAL_TOPIC"
	PropertyRealQueueID     = "REAL_QID"
	PropertyTransactionHalf = "TRAN_MSG"
	PropertyUniqKey         = "UNIQ_KEY"
	PropertyCluster         = "CLUSTER"
	PropertyOriginMessageID = "ORIGIN_MESSAGE_ID"
	NameValueSeparator      = byte(1)
	PropertySeparator       = byte(2)
)

// Limits of the format.
const (
	TopicLengthMax      = 127
	PropertiesLengthMax = 32767
)

// Positions in a record. Those after BORNHOST move by 12 bytes for each IPv6 host.
const (
	QueueIDPosition        = 12
	QueueOffsetPosition    = 20
	PhysicalOffsetPosition = 28
	SysFlagPosition        = 36
	BornTimestampPosition  = 40
)

// Record is what a message is made of, before or after it is stored. Byte slices are borrowed, never kept.
type Record struct {
	QueueID                   int32
	Flag                      int32
	QueueOffset               int64
	PhysicalOffset            int64
	SysFlag                   int32 // host bits (FlagBornHostV6, FlagStoreHostV6) follow the addresses when encoding
	BornTimestamp             int64 // ms
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // ms
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyCRC                   uint32 // set by decode; encode computes it
	Body                      []byte
	Topic                     []byte
	Properties                []byte // name 0x01 value 0x02 …
	Size                      int    // TOTALSIZE, set by decode
}
