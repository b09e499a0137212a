// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"loopmq/storage/message"
)

// Topics with a meaning of their own. Source: TopicValidator, MixAll.
const (
	topicAutoCreate        = "TBW102" // the template of topics created by a send
	topicSchedule          = "SCHEDULE_TOPIC_XXXX"
	topicBenchmark         = "BenchmarkTest"
	topicTransHalf         = "RMQ_SYS_TRANS_HALF_TOPIC"
	topicTransOp           = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	topicTransCheckMaxTime = "TRANS_CHECK_MAX_TIME_TOPIC"
	topicTrace             = "RMQ_SYS_TRACE_TOPIC"
	topicSelfTest          = "SELF_TEST_TOPIC"
	topicOffsetMoved       = "OFFSET_MOVED_EVENT"
	topicSystemPrefix      = "rmq_sys_"

	systemGroupPrefix = "CID_RMQ_SYS_"
)

const (
	// groupLengthMax is what clients allow.
	groupLengthMax = 255
	// derivedTopicLengthMax is for retry and dead letter topics, which are named after groups. Beyond
	// message.TopicLengthMax nothing can be stored in them, but consumers ask for their route.
	derivedTopicLengthMax = groupLengthMax + len(retryTopicPrefix)
)

var systemTopics = map[string]bool{
	topicAutoCreate: true, topicSchedule: true, topicBenchmark: true, topicTransHalf: true, topicTransOp: true,
	topicTransCheckMaxTime: true, topicTrace: true, topicSelfTest: true, topicOffsetMoved: true,
}

var notAllowedSendTopics = map[string]bool{
	topicSchedule: true, topicTransHalf: true, topicTransOp: true, topicTransCheckMaxTime: true, topicSelfTest: true,
	topicOffsetMoved: true,
}

// javaRemark is an error in Java's words, which clients and tools show.
type javaRemark string

func (r javaRemark) Error() string { return string(r) }

const (
	errTopicBlank      = javaRemark("The specified topic is blank.")
	errTopicCharacters = javaRemark("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
	errTopicLength     = javaRemark("The specified topic is longer than topic max length.")
)

var errGroupName = fmt.Errorf("a group name has 1 to %d characters of ^[%%|a-zA-Z0-9_-]+$", groupLengthMax)

func errSystemTopic(topic string) error {
	return javaRemark("The topic[" + topic + "] is conflict with system topic.")
}

// checkTopicName follows TopicValidator#validateTopic; its errors are meant for remarks.
func checkTopicName[T ~string | ~[]byte](topic T) error {
	switch {
	case len(topic) == 0:
		return errTopicBlank
	case len(topic) > derivedTopicLengthMax:
		return errTopicLength
	case !nameBytes(topic) && strings.TrimSpace(string(topic)) == "":
		return errTopicBlank
	case !nameBytes(topic):
		return errTopicCharacters
	case len(topic) > message.TopicLengthMax:
		return errTopicLength
	}
	return nil
}

// checkTableTopicName is checkTopicName for names in tables, where those of retry and dead letter topics may be longer.
func checkTableTopicName(topic string) error {
	if isDerivedTopic(topic) && len(topic) <= derivedTopicLengthMax && nameBytes(topic) {
		return nil
	}
	return checkTopicName(topic)
}

func isDerivedTopic(topic string) bool {
	return strings.HasPrefix(topic, retryTopicPrefix) || strings.HasPrefix(topic, dlqTopicPrefix)
}

func checkGroupName[T ~string | ~[]byte](group T) error {
	if len(group) == 0 || len(group) > groupLengthMax || !nameBytes(group) {
		return errGroupName
	}
	return nil
}

// nameBytes says whether name has only the characters that topics and groups may have.
func nameBytes[T ~string | ~[]byte](name T) bool {
	for i := range len(name) {
		if !nameByteTable[name[i]] {
			return false
		}
	}
	return true
}

var nameByteTable = func() (table [256]bool) {
	for _, c := range "%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" {
		table[c] = true
	}
	return table
}()

// isSystemTopic says whether topic belongs to the broker: users may neither create nor delete it.
func (b *BrokerController) isSystemTopic(topic string) bool {
	cfg := b.Config()
	return systemTopics[topic] || strings.HasPrefix(topic, topicSystemPrefix) ||
		topic == cfg.BrokerClusterName || topic == cfg.BrokerName || topic == replyTopic(cfg.BrokerClusterName)
}

// notAllowedSend says whether clients are forbidden to send to topic. It allocates nothing.
func notAllowedSend(topic []byte) bool { return notAllowedSendTopics[string(topic)] }

func replyTopic(cluster string) string { return cluster + "_REPLY_TOPIC" }

// isSystemGroup follows MixAll#isSysConsumerGroup: such groups exist although groups are not created automatically.
func isSystemGroup(group string) bool { return strings.HasPrefix(group, systemGroupPrefix) }
