// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

// shortDelays are delay levels for tests.
func shortDelays(millis ...int64) func(*Config) {
	return func(c *Config) { c.Store.DelayLevels = message.DelayLevels{Millis: millis, Text: "1s"} }
}

func TestDelayedMessagesComeInTime(t *testing.T) {
	b := startTestBroker(t, shortDelays(200, 900, 400))
	c := b.dial()
	levels := []int{1, 2, 3, 9} // 9 is beyond the table and counts as the last
	delays := []int64{200, 900, 400, 400}
	for i, level := range levels {
		resp := c.send("T", 2, []byte(strconv.Itoa(i)), fmt.Sprintf("DELAY\x01%d\x02TAGS\x01a\x02UNIQ_KEY\x01u%d", level, i), "j", "3", "h", "7")
		if q := extInt(t, resp, "queueId"); q != 2 {
			t.Errorf("answered queue %d; want the one that was asked for", q)
		}
	}
	b.dispatched()
	sent := make(map[string]message.Record)
	for level := range 3 {
		for _, r := range c.pullUntil("g", topicSchedule, level, 0, 1) {
			sent[string(r.Body)] = r
			p := message.ParseProperties(r.Properties)
			if p["REAL_TOPIC"] != "T" || p["REAL_QID"] != "2" || p["DELAY"] == "" {
				t.Errorf("waiting message has properties %v", p)
			}
		}
	}
	for _, r := range c.pullUntil("g", "T", 2, 0, len(levels)) {
		i, _ := strconv.Atoi(string(r.Body))
		waited := r.StoreTimestamp - sent[string(r.Body)].StoreTimestamp
		// The service begins a second after start.
		if waited < delays[i] || waited > delays[i]+5_000 {
			t.Errorf("message of level %d waited %d ms; want %d", levels[i], waited, delays[i])
		}
		want := map[string]string{"TAGS": "a", "UNIQ_KEY": fmt.Sprintf("u%d", i), "CLUSTER": "DefaultCluster", "REAL_TOPIC": "T", "REAL_QID": "2"}
		if got := message.ParseProperties(r.Properties); !maps.Equal(got, want) {
			t.Errorf("delivered properties %v; want %v", got, want)
		}
		before := sent[string(r.Body)]
		if r.ReconsumeTimes != 3 || r.Flag != 7 || r.BornHost != before.BornHost || r.BornTimestamp != before.BornTimestamp {
			t.Errorf("delivered %+v; sent %+v", r, before)
		}
	}
	// The delivered copy is found by its tag: its queue holds a hash again, no time.
	if n := len(decodeRecords(t, c.pull("g", "T", 2, 0, "subscription", "a").Body)); n != len(levels) {
		t.Errorf("%d of %d delivered messages are found by tag", n, len(levels))
	}
}

// Many due at once come once each and in order, and sends go on beside them.
func TestManyDelayedMessages(t *testing.T) {
	b := startTestBroker(t, shortDelays(100))
	c := b.dial()
	const n = 4_000
	c.send("T", 0, []byte("first"), "")
	var cmds []*remoting.Command
	for i := range n {
		cmds = append(cmds, c.request(remoting.SendMessageV2, []byte(strconv.Itoa(i)), sendV2("T", 0, "DELAY\x011")...))
	}
	for _, ch := range c.start(cmds...) {
		wantCode(t, c.await(ch), remoting.Success)
	}
	b.dispatched()
	for i, r := range c.pullUntil("g", "T", 0, 1, n) {
		if string(r.Body) != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, r.Body)
		}
	}
	c.send("T", 1, nil, "")
	time.Sleep(3 * deliverInterval)
	b.dispatched()
	if _, end, _ := b.store.QueueOffsets("T", 0); end != n+1 {
		t.Errorf("the queue ends at %d; want %d", end, n+1)
	}
}

// Offsets survive a restart, in Java's form, and nothing is delivered twice.
func TestDelayOffsetsSurviveRestart(t *testing.T) {
	for _, flush := range []storage.FlushDiskType{storage.AsyncFlush, storage.SyncFlush} {
		b := startTestBroker(t, func(c *Config) {
			shortDelays(50, 3_600_000)(c)
			c.Store.FlushDiskType = flush
		})
		c := b.dial()
		for range 3 {
			c.send("T", 0, []byte("x"), "DELAY\x011")
		}
		c.send("T", 0, []byte("later"), "DELAY\x012")
		c.pullUntil("g", "T", 0, 0, 3)
		c.close()
		b.restart()
		data, err := b.fs.ReadFile(b.file("config", "delayOffset.json"))
		if want := "{\n\t\"offsetTable\":{1:3\n\t}\n}"; err != nil || string(data) != want {
			t.Errorf("delayOffset.json is %q, %v; want %q", data, err, want)
		}
		c = b.dial()
		c.send("T", 0, []byte("x"), "DELAY\x011")
		c.pullUntil("g", "T", 0, 3, 1)
		b.dispatched()
		if _, end, _ := b.store.QueueOffsets("T", 0); end != 4 {
			t.Errorf("the queue ends at %d; want 4", end)
		}
	}
}

// Offsets outside of their queues are corrected, and every level delivers (apache/rocketmq#1869).
func TestDelayOffsetsAreClamped(t *testing.T) {
	b := newTestBroker(t, shortDelays(50, 50, 50))
	must(t, b.fs.MkdirAll(b.file("config")))
	write := func(text string) { must(t, b.fs.WriteFile(b.file("config", "delayOffset.json"), []byte(text))) }
	write(`{"dataVersion":{"counter":4},"offsetTable":{1:1000,"3":77}}`)
	b.start()
	t.Cleanup(func() { b.stop() })
	c := b.dial()
	f := func(base int64) {
		for level := 1; level <= 3; level++ {
			c.send("T", level-1, []byte("x"), fmt.Sprintf("DELAY\x01%d", level))
		}
		b.dispatched()
		for queue := range 3 {
			if r := c.pullUntil("g", "T", queue, base, 1); len(r) != 1 {
				t.Errorf("level %d delivered %d messages", queue+1, len(r))
			}
		}
	}
	eventually(t, "the offsets to be corrected", func() bool {
		offsets := b.schedule.Offsets()
		return offsets[1] == 0 && offsets[3] == 0
	})
	f(0)
	c.close()
	b.stop()
	write(`{"offsetTable":{1:1001,2:1,3:1}}`)
	b.start()
	c = b.dial()
	eventually(t, "the offsets to be corrected", func() bool { return b.schedule.Offsets()[1] == 1 })
	f(1)
}

// A message that can never be delivered does not stop those behind it.
func TestUndeliverableDelayedMessageIsPassedOver(t *testing.T) {
	b := startTestBroker(t, shortDelays(50))
	c := b.dial()
	put := func(props string) {
		t.Helper()
		record := message.AppendRecord(nil, &message.Record{Topic: []byte(topicSchedule), Body: []byte("lost"), Properties: []byte(props)})
		stored := make(chan storage.PutMessageStatus, 1)
		p := &storage.PutMessage{Record: record, MsgNum: 1, Topic: topicSchedule, Appended: func(_ *storage.PutMessage, s storage.PutMessageStatus) { stored <- s }}
		if s := b.store.AsyncPutMessage(p); s != storage.PutOK {
			t.Fatal(s)
		}
		if s := <-stored; s != storage.PutOK {
			t.Fatal(s)
		}
	}
	for _, props := range []string{"DELAY\x011", "DELAY\x011\x02REAL_TOPIC\x01T", "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x",
		"DELAY\x011\x02REAL_TOPIC\x01" + topicTransHalf + "\x02REAL_QID\x010"} {
		put(props)
	}
	c.send("T", 0, []byte("found"), "DELAY\x011")
	if r := c.pullUntil("g", "T", 0, 0, 1); string(r[0].Body) != "found" {
		t.Errorf("delivered %q", r[0].Body)
	}
	eventually(t, "the offset behind all", func() bool { return b.schedule.Offsets()[1] == 5 })
}

// A level whose next message cannot be read is tried again soon, however long its delay.
func TestUnreadableDelayedMessageIsTriedAgain(t *testing.T) {
	const hour = 3_600_000
	b := startTestBroker(t, shortDelays(hour))
	c := b.dial()
	c.send("T", 0, []byte("x"), "DELAY\x011")
	b.dispatched()
	eventually(t, "the flush", func() bool { return b.store.FlushedWhere() == b.store.MaxPhyOffset() })
	sel, ok := b.store.Select(b.store.MinPhyOffset(), 8)
	if !ok {
		t.Fatal("no log")
	}
	clear(sel.Bytes()[4:8]) // the magic code
	sel.Release()
	s := newScheduleMessageService(b.BrokerController)
	later := time.Now().Add(2 * hour * time.Millisecond)
	for try := 1; try <= 3; try++ {
		if wait := s.step(later); wait > deliverInterval || s.levels[0].tries != try {
			t.Errorf("try %d: the next in %v, %d tries; want %v", try, wait, s.levels[0].tries, deliverInterval)
		}
	}
}

func TestDelayOffsetForms(t *testing.T) {
	f := func(text string, want map[int32]storage.QueueOffset) {
		t.Helper()
		got, err := decodeDelayOffsets([]byte(text))
		if want == nil {
			if err == nil {
				t.Errorf("%q is accepted: %v", text, got)
			}
			return
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
		again, err := decodeDelayOffsets(encodeDelayOffsets(got))
		if err != nil || !maps.Equal(again, want) {
			t.Errorf("%q does not come back: %v, %v", text, again, err)
		}
	}
	type offsets = map[int32]storage.QueueOffset
	f("{\n\t\"offsetTable\":{1:5,2:0,18:123\n\t}\n}", offsets{1: 5, 2: 0, 18: 123})
	f(`{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1796029137699},"offsetTable":{3:7}}`, offsets{3: 7})
	f(`{"offsetTable":{"1":5}}`, offsets{1: 5})
	f(`{"offsetTable":{}}`, offsets{})
	f(`{}`, offsets{})
	f(`{"offsetTable":{1:-5}}`, nil)
	f(`{"offsetTable":{0:5}}`, nil)
	f(`{"offsetTable":{x:5}}`, nil)
	f(`{"offsetTable":{1:5}`, nil)
	f(`{"offsetTable":{1:5}}x`, nil)
}

func FuzzDecodeDelayOffsets(f *testing.F) {
	f.Add([]byte("{\n\t\"offsetTable\":{1:5,2:0\n\t}\n}"))
	f.Add([]byte(`{"dataVersion":{"counter":1},"offsetTable":{"3":7}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets, err := decodeDelayOffsets(data)
		if err != nil {
			return
		}
		again, err := decodeDelayOffsets(encodeDelayOffsets(offsets))
		if err != nil || !maps.Equal(again, offsets) {
			t.Errorf("%v does not come back: %v, %v", offsets, again, err)
		}
	})
}

// A message that waited safely on the disk is not lost when the crash takes its delivery: the offset that passes it by
// is not saved before.
func TestDelayOffsetsFollowTheDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		pool  bool
		crash faultfs.CrashKind
	}{{"power cut", false, faultfs.PowerLoss}, {"kill with the transient pool", true, faultfs.ProcessKill}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fs := faultfs.New()
			cfg := nodeConfig("/store")
			shortDelays(1500)(&cfg)
			cfg.Store.TransientStorePoolEnable, cfg.Store.TransientStorePoolSize = c.pool, 3
			cfg.Store.FlushIntervalCommitLog, cfg.Store.FlushCommitLogThoroughInterval = 10, 10
			b := startDoomedNode(t, cfg, fs)
			addNodeTopic(t, b, "orders", 1)
			client := dialNode(t, b)
			wantCode(t, client.call(remoting.SendMessageV2, []byte("late"), sendV2("orders", 0, "DELAY\x011")...), remoting.Success)
			eventually(t, "the message on the disk", func() bool {
				return b.store.FlushedWhere() > 0 && b.store.RemainHowManyToCommit() == 0 && b.store.RemainHowManyToFlush() == 0
			})
			must(t, b.store.UpdateConfig(func(c *storage.Config) { // neither is written from now on
				c.FlushCommitLogThoroughInterval, c.FlushCommitLogLeastPages = 3_600_000, 1000
				c.CommitCommitLogThoroughInterval, c.CommitCommitLogLeastPages = 3_600_000, 1000
			}))
			eventually(t, "the delivery", func() bool { return b.schedule.Offsets()[1] == 1 })
			for range 3 {
				must(t, b.schedule.Persist())
			}
			crashed := fs.Crash(c.crash, 0)
			_ = b.Shutdown(time.Second) // its disk is gone
			b = startNode(t, cfg, crashed)
			eventually(t, "the message, after the crash", func() bool {
				_, end, _ := b.store.QueueOffsets("orders", 0)
				return end == 1
			})
		})
	}
}
