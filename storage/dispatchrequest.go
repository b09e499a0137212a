// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"
	"strconv"

	"loopmq/storage/message"
)

// scheduleTopic holds delayed messages; their tags code is the time they are due.
// Source: TopicValidator#RMQ_SYS_SCHEDULE_TOPIC.
const scheduleTopic = "SCHEDULE_TOPIC_XXXX"

// dispatchRequest is what the builders of queues and index need of one record, borrowed from the log.
// Source: DispatchRequest.
type dispatchRequest struct {
	message.Record
	tagsCode int64
	keys     []byte
	uniqKey  []byte
}

func (d *dispatchRequest) offset() PhyOffset { return PhyOffset(d.PhysicalOffset) }

func (d *dispatchRequest) end() PhyOffset { return d.offset() + PhyOffset(d.Size) }

// inQueue is false for records that take no place in a queue: transaction prepared and rollback.
func (d *dispatchRequest) inQueue() bool {
	t := d.transaction()
	return t != message.FlagTransactionPrepared && t != message.FlagTransactionRollback
}

// transaction is that part of the system flag.
func (d *dispatchRequest) transaction() int32 { return d.SysFlag & message.FlagTransactionRollback }

// recordState is what checkMessage found at an offset.
type recordState int

const (
	recordGood    recordState = iota
	recordBlank               // the filler: the log goes on in the next file
	recordPartial             // the readable bytes end inside the record
	recordBad                 // no record starts here
)

// checkMessage takes the record at offset apart. b are the readable bytes from there; room is how many bytes the file
// has from there. What it checks is what recovery cuts the log by; the body's checksum is part of it with checkCRC.
// size is how far the record reaches; of a bad one, how far it says it does, 0 if that makes no sense.
// Source: CommitLog#checkMessageAndReturnSize.
func checkMessage(b []byte, offset PhyOffset, room int64, checkCRC bool, levels *message.DelayLevels, d *dispatchRequest) (size int64, state recordState, why error) {
	n, magic, ok := message.Peek(b)
	size = int64(n)
	switch {
	case !ok && room >= message.BlankSize:
		return 0, recordPartial, nil
	case !ok:
		return 0, recordBad, fmt.Errorf("%w: %d bytes to the end of the file", message.ErrMalformed, room)
	case magic == message.MagicBlank && size == room:
		return room, recordBlank, nil
	case magic == message.MagicBlank:
		return 0, recordBad, fmt.Errorf("%w: filler of %d bytes with %d to the end of the file", message.ErrMalformed, size, room)
	case magic != message.MagicV1 && magic != message.MagicV2:
		return 0, recordBad, fmt.Errorf("%w: magic code %#x", message.ErrMalformed, magic)
	case size <= 0 || size+message.BlankSize > room: // a record always leaves room for the filler
		return 0, recordBad, fmt.Errorf("%w: size %d with %d bytes to the end of the file", message.ErrMalformed, size, room)
	case size > int64(len(b)):
		return size, recordPartial, nil
	}
	if err := message.Decode(b, &d.Record); err != nil {
		return size, recordBad, err
	}
	if d.offset() != offset {
		return size, recordBad, fmt.Errorf("%w: it says it lies at %d", message.ErrMalformed, d.PhysicalOffset)
	}
	if d.QueueOffset < 0 || d.QueueOffset > queueOffsetMax {
		return size, recordBad, fmt.Errorf("%w: queue offset %d", message.ErrMalformed, d.QueueOffset)
	}
	if checkCRC {
		if err := message.CheckCRC(&d.Record); err != nil {
			return size, recordBad, err
		}
	}
	d.readProperties(levels)
	return size, recordGood, nil
}

// readProperties picks what dispatch needs in one pass.
func (d *dispatchRequest) readProperties(levels *message.DelayLevels) {
	d.keys, d.uniqKey, d.tagsCode = nil, nil, 0
	var delay []byte
	for name, value := range message.Properties(d.Properties) {
		switch string(name) {
		case message.PropertyKeys:
			d.keys = value
		case message.PropertyUniqKey:
			d.uniqKey = value
		case message.PropertyTags:
			d.tagsCode = message.TagsCode(value)
		case message.PropertyDelayTimeLevel:
			delay = value
		}
	}
	if delay == nil || string(d.Topic) != scheduleTopic {
		return
	}
	if level, err := strconv.Atoi(string(delay)); err == nil && level > 0 {
		d.tagsCode = levels.Deliver(levels.Clip(level), d.StoreTimestamp)
	}
}

// hasKey says whether the index has an entry of the record under key.
func (d *dispatchRequest) hasKey(key string) bool {
	if string(d.uniqKey) == key {
		return true
	}
	for part := range bytes.SplitSeq(d.keys, []byte(" ")) {
		if string(part) == key {
			return len(part) > 0
		}
	}
	return false
}
