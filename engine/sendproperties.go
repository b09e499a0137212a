// SPDX-License-Identifier: Apache-2.0

package engine

import (
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
	rewrite        bool // some pair is not stored as it came
	hasReal        bool // REAL_TOPIC or REAL_QID of an earlier delay
}

// scanSendProperties reads a property string. WAIT says whether the sender waits for flush and slave, and CLUSTER is the
// broker's to set: neither is stored as it came. Source: SendMessageProcessor#asyncSendMessage.
func scanSendProperties(props []byte) (p sendProperties, err error) {
	p.waitStoreMsgOK = true
	for name, value := range message.Properties(props) {
		switch string(name) {
		case message.PropertyWaitStoreMsgOK:
			p.waitStoreMsgOK, p.rewrite = javaTrue(value), true
		case message.PropertyCluster:
			p.rewrite = true
		case message.PropertyDelayTimeLevel:
			level, parseErr := strconv.ParseInt(string(value), 10, 32)
			if parseErr != nil {
				return p, fmt.Errorf("property %s is %q, not a number", message.PropertyDelayTimeLevel, shown(value))
			}
			p.delayLevel = int32(level)
		case message.PropertyTransactionHalf:
			p.half = javaTrue(value)
		case message.PropertyRealTopic, message.PropertyRealQueueID:
			p.hasReal = true
		}
	}
	return p, nil
}

// appendStoredProperties appends the sender's pairs that are stored. delayed says that the broker is about to add
// REAL_TOPIC and REAL_QID, which then replace older ones.
func appendStoredProperties(dst, props []byte, p *sendProperties, delayed bool) []byte {
	if !p.rewrite && !p.dropDelay && !(delayed && p.hasReal) {
		return message.AppendProperties(dst, props)
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
