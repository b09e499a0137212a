// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"path/filepath"
	"strconv"
)

const (
	halfTopic   = "RMQ_SYS_TRANS_HALF_TOPIC"
	opHalfTopic = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	// halfProgressKey names the half topic's progress in consumerOffset.json: half messages before it are settled.
	halfProgressKey = `"` + halfTopic + `@CID_RMQ_SYS_TRANS"`
	// halfScanMax bounds how many half and op messages the start looks at, the newest.
	halfScanMax = 100_000
)

// findOpenHalfMessages looks for half messages that were neither committed nor rolled back, and says so: their
// producers wait for a check that this broker does not make.
func (s *MessageStore) findOpenHalfMessages() {
	minOffset, maxOffset, ok := s.QueueOffsets(halfTopic, 0)
	if !ok {
		return
	}
	from := max(minOffset, maxOffset-halfScanMax, s.halfProgress())
	if from >= maxOffset {
		return
	}
	ended := s.endedHalfMessages()
	open := 0
	s.ConsumeQueueUnits(halfTopic, 0, from, halfScanMax, func(k QueueOffset, u ConsumeQueueUnit) bool {
		if !ended[k] && !u.isBlank() {
			open++
		}
		return true
	})
	if open == 0 {
		return
	}
	s.openHalf = true
	s.logger.Warn("the store holds half messages of transactions that were never ended; they stay undelivered",
		"topic", halfTopic, "messages", open, "from", from, "to", maxOffset)
}

// endedHalfMessages are the half queue's offsets that op messages name: 4.9 writes one offset into each, 5.x several,
// each with a comma behind it.
func (s *MessageStore) endedHalfMessages() map[QueueOffset]bool {
	ended := map[QueueOffset]bool{}
	minOffset, maxOffset, _ := s.QueueOffsets(opHalfTopic, 0)
	from := max(minOffset, maxOffset-halfScanMax)
	s.ConsumeQueueUnits(opHalfTopic, 0, from, halfScanMax, func(_ QueueOffset, u ConsumeQueueUnit) bool {
		var d dispatchRequest
		sel, err := s.lookMessage(u.Offset, &d)
		if err != nil {
			return true
		}
		defer sel.Release()
		for text := range bytes.SplitSeq(d.Body, []byte(",")) {
			if k, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
				ended[QueueOffset(k)] = true
			}
		}
		return true
	})
	return ended
}

// halfProgress reads how far Java's check service has come. The file is fastjson's, whose integer keys have no quotes,
// so it is searched rather than parsed; 0 when it does not tell.
func (s *MessageStore) halfProgress() QueueOffset {
	text, err := s.fs.ReadFile(filepath.Join(s.Config().StorePathRootDir, "config", "consumerOffset.json"))
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(text, []byte(halfProgressKey))
	if !ok {
		return 0
	}
	_, rest, _ = bytes.Cut(rest, []byte("{"))
	rest, _, _ = bytes.Cut(rest, []byte("}"))
	for pair := range bytes.SplitSeq(rest, []byte(",")) {
		queue, offset, _ := bytes.Cut(pair, []byte(":"))
		if string(bytes.Trim(queue, " \t\r\n\"")) != "0" {
			continue
		}
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(offset)), 10, 64); err == nil {
			return QueueOffset(n)
		}
	}
	return 0
}
