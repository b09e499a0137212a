// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"strconv"

	"loopmq/storage/message"
)

// sendProperties is what the broker itself reads of a message's properties.
type sendProperties struct {
	delayLevel     int32
	waitStoreMsgOK bool
	half           bool
	dropDelay      bool // the level is not to be stored
	hasReal        bool // REAL_TOPIC or REAL_QID of an earlier delay

	// Pairs that are not stored as they came; the one pair when there is one. A Java client sends WAIT with each message,
	// and seldom another.
	drops          int
	cutFrom, cutTo int
}

// scanSendProperties reads a property string. WAIT says whether the sender waits for flush and slave, and CLUSTER is the
// broker's to set: neither is stored as it came. Source: SendMessageProcessor#asyncSendMessage.
func scanSendProperties(props []byte) (p sendProperties, err error) {
	p.waitStoreMsgOK = true
	for at := 0; at < len(props); {
		pair, next := props[at:], len(props)
		if end := bytes.IndexByte(pair, message.PropertySeparator); end >= 0 {
			pair, next = pair[:end], at+end+1
		}
		if middle := bytes.IndexByte(pair, message.NameValueSeparator); middle > 0 && middle < len(pair)-1 {
			drop, readErr := p.read(pair[:middle], pair[middle+1:])
			if readErr != nil {
				return p, readErr
			}
			if drop {
				p.drops++
				p.cutFrom, p.cutTo = at, next
			}
		}
		at = next
	}
	return p, nil
}

// read takes one pair; drop says that it is not stored.
func (p *sendProperties) read(name, value []byte) (drop bool, err error) {
	switch string(name) {
	case message.PropertyWaitStoreMsgOK:
		p.waitStoreMsgOK, drop = javaTrue(value), true
	case message.PropertyCluster:
		drop = true
	case message.PropertyDelayTimeLevel:
		level, err := strconv.ParseInt(string(value), 10, 32)
		if err != nil {
			return false, fmt.Errorf("property %s is %q, not a number", message.PropertyDelayTimeLevel, shown(value))
		}
		p.delayLevel = int32(level)
	case message.PropertyTransactionHalf:
		p.half = javaTrue(value)
	case message.PropertyRealTopic, message.PropertyRealQueueID:
		p.hasReal = true
	}
	return drop, nil
}

// appendStoredProperties appends the sender's pairs that are stored. delayed says that the broker is about to add
// REAL_TOPIC and REAL_QID, which then replace older ones.
func appendStoredProperties(dst, props []byte, p *sendProperties, delayed bool) []byte {
	if p.drops <= 1 && !p.dropDelay && !(delayed && p.hasReal) {
		dst = message.AppendProperties(dst, props[:p.cutFrom])
		return message.AppendProperties(dst, props[p.cutTo:])
	}
	for name, value := range message.Properties(props) {
		switch string(name) {
		case message.PropertyWaitStoreMsgOK, message.PropertyCluster:
			continue
		case message.PropertyDelayTimeLevel:
			if p.dropDelay {
				continue
			}
		case message.PropertyRealTopic, message.PropertyRealQueueID:
			if delayed {
				continue
			}
		}
		dst = appendPair(dst, name, value)
	}
	return dst
}

func appendPair(dst, name, value []byte) []byte {
	if n := len(dst); n > 0 && dst[n-1] != message.PropertySeparator {
		dst = append(dst, message.PropertySeparator)
	}
	dst = append(dst, name...)
	dst = append(dst, message.NameValueSeparator)
	return append(dst, value...)
}

// javaTrue is Boolean#parseBoolean.
func javaTrue(v []byte) bool {
	return len(v) == 4 && v[0]|0x20 == 't' && v[1]|0x20 == 'r' && v[2]|0x20 == 'u' && v[3]|0x20 == 'e'
}
