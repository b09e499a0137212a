// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"loopmq/reactor/remoting"
)

// BrokerQueues says where a topic's queues are: those of one master.
type BrokerQueues struct {
	BrokerName, Addr   string
	ReadQueues         int
	WriteQueues        int
	Readable, Writable bool
}

// Bits of a topic's perm. Source: PermName.
const (
	permWrite = 2
	permRead  = 4
)

// masterID is the key of a master's address in a route. Source: MixAll#MASTER_ID.
const masterID = "0"

// Route asks a name server for the masters of a topic. An unknown topic is a CodeError with TOPIC_NOT_EXIST.
func Route(ctx context.Context, nameServer *Conn, topic string) ([]BrokerQueues, error) {
	answer, err := nameServer.InvokeOK(ctx, NewCommand(remoting.GetRouteInfoByTopic, "topic", topic, "acceptStandardJsonOnly", "true"))
	if err != nil {
		return nil, err
	}
	return parseRoute(answer.Body)
}

func parseRoute(body []byte) ([]BrokerQueues, error) {
	var route struct {
		BrokerDatas []struct {
			BrokerName  string
			BrokerAddrs map[string]string
		}
		QueueDatas []struct {
			BrokerName                    string
			ReadQueueNums, WriteQueueNums int
			Perm                          int
		}
	}
	if err := json.Unmarshal(standardJSON(body), &route); err != nil {
		return nil, fmt.Errorf("route: %w", err)
	}
	masters := make(map[string]string)
	for _, b := range route.BrokerDatas {
		if addr := b.BrokerAddrs[masterID]; addr != "" {
			masters[b.BrokerName] = addr
		}
	}
	var found []BrokerQueues
	for _, q := range route.QueueDatas {
		addr := masters[q.BrokerName]
		if addr == "" {
			continue
		}
		if err := checkQueues(q.ReadQueueNums, q.WriteQueueNums); err != nil {
			return nil, err
		}
		found = append(found, BrokerQueues{
			BrokerName: q.BrokerName, Addr: addr, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums,
			Readable: q.Perm&permRead != 0, Writable: q.Perm&permWrite != 0,
		})
	}
	return found, nil
}

// queuesMax bounds what is believed of a topic.
const queuesMax = 1 << 20

func checkQueues(read, write int) error {
	if read < 0 || read > queuesMax || write < 0 || write > queuesMax {
		return fmt.Errorf("a topic with %d read and %d write queues", read, write)
	}
	return nil
}

// Masters asks a name server for the masters it knows: address by broker name.
func Masters(ctx context.Context, nameServer *Conn) (map[string]string, error) {
	answer, err := nameServer.InvokeOK(ctx, NewCommand(remoting.GetBrokerClusterInfo))
	if err != nil {
		return nil, err
	}
	return parseMasters(answer.Body)
}

func parseMasters(body []byte) (map[string]string, error) {
	var info struct {
		BrokerAddrTable map[string]struct{ BrokerAddrs map[string]string }
	}
	if err := json.Unmarshal(standardJSON(body), &info); err != nil {
		return nil, fmt.Errorf("cluster information: %w", err)
	}
	masters := make(map[string]string)
	for name, b := range info.BrokerAddrTable {
		if addr := b.BrokerAddrs[masterID]; addr != "" {
			masters[name] = addr
		}
	}
	return masters, nil
}

// Topics asks a broker itself for its topics.
func Topics(ctx context.Context, broker *Conn) (map[string]BrokerQueues, error) {
	answer, err := broker.InvokeOK(ctx, NewCommand(remoting.GetAllTopicConfig))
	if err != nil {
		return nil, err
	}
	return parseTopics(answer.Body, broker.Addr())
}

func parseTopics(body []byte, addr string) (map[string]BrokerQueues, error) {
	if len(body) == 0 {
		return nil, nil // a null server, which says yes to everything: what is measured against it is the generator
	}
	var table struct {
		TopicConfigTable map[string]struct {
			ReadQueueNums, WriteQueueNums int
			Perm                          int
		}
	}
	if err := json.Unmarshal(standardJSON(body), &table); err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	topics := make(map[string]BrokerQueues, len(table.TopicConfigTable))
	for name, t := range table.TopicConfigTable {
		if err := checkQueues(t.ReadQueueNums, t.WriteQueueNums); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		topics[name] = BrokerQueues{
			Addr: addr, ReadQueues: t.ReadQueueNums, WriteQueues: t.WriteQueueNums,
			Readable: t.Perm&permRead != 0, Writable: t.Perm&permWrite != 0,
		}
	}
	return topics, nil
}

// CreateTopic makes a topic on a broker, or gives it this number of queues.
func CreateTopic(ctx context.Context, broker *Conn, topic string, queues int) error {
	n := strconv.Itoa(queues)
	_, err := broker.InvokeOK(ctx, NewCommand(remoting.UpdateAndCreateTopic, "topic", topic, "defaultTopic", "TBW102",
		"readQueueNums", n, "writeQueueNums", n, "perm", strconv.Itoa(permRead|permWrite), "topicFilterType", "SINGLE_TAG",
		"topicSysFlag", "0", "order", "false"))
	return err
}

// DeleteGroup takes a subscription group from a broker, with its offsets. The flag has one name in 4.x, and another in 5.x.
func DeleteGroup(ctx context.Context, broker *Conn, group string) error {
	_, err := broker.InvokeOK(ctx, NewCommand(remoting.DeleteSubscriptionGroup, "groupName", group, "removeOffset", "true", "cleanOffset", "true"))
	return err
}

// MaxOffset and MinOffset are the ends of a queue.
func MaxOffset(ctx context.Context, broker *Conn, topic string, queueID int) (int64, error) {
	return queueOffset(ctx, broker, remoting.GetMaxOffset, topic, queueID)
}

func MinOffset(ctx context.Context, broker *Conn, topic string, queueID int) (int64, error) {
	return queueOffset(ctx, broker, remoting.GetMinOffset, topic, queueID)
}

func queueOffset(ctx context.Context, broker *Conn, code int32, topic string, queueID int) (int64, error) {
	answer, err := broker.InvokeOK(ctx, NewCommand(code, "topic", topic, "queueId", strconv.Itoa(queueID)))
	if err != nil {
		return 0, err
	}
	offset, err := answer.Ext.Int64("offset", -1)
	if err == nil && offset < 0 {
		err = fmt.Errorf("offset %d of queue %s/%d", offset, topic, queueID)
	}
	return offset, err
}

// RuntimeInfo is the broker's own account of itself. Source: AdminBrokerProcessor#getBrokerRuntimeInfo.
func RuntimeInfo(ctx context.Context, broker *Conn) (map[string]string, error) {
	answer, err := broker.InvokeOK(ctx, NewCommand(remoting.GetBrokerRuntimeInfo))
	if err != nil {
		return nil, err
	}
	var info struct{ Table map[string]string }
	if err := json.Unmarshal(standardJSON(answer.Body), &info); err != nil {
		return nil, fmt.Errorf("runtime information: %w", err)
	}
	return info.Table, nil
}

// standardJSON puts the quotes where Java's fastjson leaves them out: around numbers that are keys.
func standardJSON(b []byte) []byte {
	out := make([]byte, 0, len(b)+16)
	inString, keyMayFollow := false, false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case inString:
			if c == '\\' && i+1 < len(b) {
				out = append(out, c)
				i++
				c = b[i]
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString, keyMayFollow = true, false
		case c == '{' || c == ',':
			keyMayFollow = true
		case keyMayFollow && '0' <= c && c <= '9':
			end := i
			for end < len(b) && '0' <= b[end] && b[end] <= '9' {
				end++
			}
			if keyMayFollow = false; end < len(b) && b[end] == ':' {
				out = append(append(append(out, '"'), b[i:end]...), '"')
				i = end - 1
				continue
			}
		case c != ' ' && c != '\n' && c != '\t' && c != '\r':
			keyMayFollow = false
		}
		out = append(out, c)
	}
	return out
}
