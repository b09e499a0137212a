// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/netip"
	"strings"
	"sync"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

// Texts of RocketMQ's remarks that users search for, and tools print.
const (
	remarkReject       = "[REJECTREQUEST]system busy, start flow control for a while"
	remarkOverload     = "[OVERLOAD]system busy, start flow control for a while"
	remarkFAQ          = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
	remarkShuttingDown = "the broker is shutting down"
)

// responses holds commands between two answers; reply returns them.
var responses = sync.Pool{New: func() any { return new(remoting.Command) }}

// newResponse takes an empty answer; whoever takes it ends with putResponse.
func newResponse(code int32) *remoting.Command {
	resp := responses.Get().(*remoting.Command)
	resp.Reset()
	resp.Code, resp.Version = code, remoting.Version
	return resp
}

func putResponse(resp *remoting.Command) {
	resp.Body = nil
	responses.Put(resp)
}

// replyRemark answers with a code and a remark and no header of its own.
func replyRemark(to reactor.ReplyTo, code int32, remark string) {
	resp := newResponse(code)
	resp.SetRemark(remark)
	to.Reply(resp)
	putResponse(resp)
}

// Prefixes of topics that belong to a consumer group. Source: MixAll.
const (
	retryTopicPrefix = "%RETRY%"
	dlqTopicPrefix   = "%DLQ%"
)

func isRetryTopic(topic []byte) bool {
	return len(topic) > len(retryTopicPrefix) && string(topic[:len(retryTopicPrefix)]) == retryTopicPrefix
}

func retryTopicOf(group string) string { return retryTopicPrefix + group }
func dlqTopicOf(group string) string   { return dlqTopicPrefix + group }

// shown shortens a value from outside for a remark or a log line.
func shown(b []byte) string {
	const shownMax = 128
	if len(b) > shownMax {
		return strings.ToValidUTF8(string(b[:shownMax]), "?") + "…"
	}
	return strings.ToValidUTF8(string(b), "?")
}

// storeHostAddr is the address that stored records and message ids carry.
func (b *BrokerController) storeHostAddr() netip.AddrPort {
	if host := b.storeHost.Load(); host != nil {
		return *host
	}
	return netip.AddrPort{}
}
