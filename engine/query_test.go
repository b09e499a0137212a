// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage/message"
)

func queryFields(topic, key string, more ...string) []string {
	return withFields([]string{
		"topic", topic, "key", key, "maxNum", "64", "beginTimestamp", "0",
		"endTimestamp", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10),
	}, more...)
}

func TestQueryMessage(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	for i := range 100 {
		c.send("T", i%4, []byte(strconv.Itoa(i)), fmt.Sprintf("KEYS\x01order%d all\x02UNIQ_KEY\x01u%d", i%10, i))
	}
	b.dispatched()
	f := func(want int, fields []string) {
		t.Helper()
		resp := c.call(remoting.QueryMessage, nil, fields...)
		if want == 0 {
			wantCode(t, resp, remoting.QueryNotFound)
			return
		}
		wantCode(t, resp, remoting.Success)
		if n := len(decodeRecords(t, resp.Body)); n != want {
			t.Errorf("%v: %d messages; want %d", fields, n, want)
		}
		if extInt(t, resp, "indexLastUpdateTimestamp") <= 0 || extInt(t, resp, "indexLastUpdatePhyoffset") <= 0 {
			t.Errorf("header %v", resp.Ext.List)
		}
	}
	f(10, queryFields("T", "order3"))
	f(64, queryFields("T", "all", "maxNum", "100")) // maxMsgsNumBatch
	f(64, queryFields("T", "all", "maxNum", "1000"))
	f(5, queryFields("T", "all", "maxNum", "5"))
	f(1, queryFields("T", "u77", "_UNIQUE_KEY_QUERY", "true"))
	f(32, queryFields("T", "all", "maxNum", "1", "_UNIQUE_KEY_QUERY", "true"))
	f(0, queryFields("T", "nothing"))
	f(0, queryFields("S", "all"))
	f(0, queryFields("T", "all", "endTimestamp", "1000"))
	wantCode(t, c.call(remoting.QueryMessage, nil, queryFields("T", "all", "endTimestamp", "x")...), remoting.SystemError)
}

func TestViewMessageByID(t *testing.T) {
	b := startTestBroker(t, nil)
	c := b.dial()
	id := c.send("T", 0, []byte("look"), "K\x01v").Ext.String("msgId")
	_, offset, err := message.ParseOffsetMessageID(id)
	must(t, err)
	resp := c.call(remoting.ViewMessageByID, nil, "offset", strconv.FormatInt(offset, 10))
	wantCode(t, resp, remoting.Success)
	if r := decodeRecords(t, resp.Body); len(r) != 1 || string(r[0].Body) != "look" {
		t.Errorf("got %+v", r)
	}
	for _, bad := range []string{"1", "-1", "1099511627776", "x", ""} {
		resp := c.call(remoting.ViewMessageByID, nil, "offset", bad)
		if resp.Code != remoting.SystemError || !strings.Contains(string(resp.Remark), "offset") {
			t.Errorf("offset %q: code %d, %q", bad, resp.Code, resp.Remark)
		}
	}
}
