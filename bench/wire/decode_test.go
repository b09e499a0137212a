// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"loopmq/reactor/remoting"
	"loopmq/storage/message"
)

func randomRecord(r *rand.Rand) *message.Record {
	host := func() netip.AddrPort {
		if r.IntN(3) == 0 {
			return netip.MustParseAddrPort("[2001:db8::1]:10911")
		}
		return netip.MustParseAddrPort("127.0.0.1:10911")
	}
	return &message.Record{
		QueueID: int32(r.IntN(100)), QueueOffset: r.Int64(), PhysicalOffset: r.Int64(), BornTimestamp: r.Int64(), StoreTimestamp: r.Int64(),
		BornHost: host(), StoreHost: host(), Topic: bytes.Repeat([]byte("t"), 1+r.IntN(message.TopicLengthMax)),
		Body: bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(3000)), Properties: bytes.Repeat([]byte("p"), r.IntN(300)),
	}
}

// Ours and the broker's idea of a message's bytes are two pieces of code that agree.
func TestRecords(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		var body []byte
		var want []*message.Record
		for range 1 + r.IntN(5) {
			m := randomRecord(r)
			body, want = message.AppendRecord(body, m), append(want, m)
		}
		for i, w := range want {
			var got Record
			var err error
			if body, err = NextRecord(body, &got); err != nil {
				t.Fatalf("seed %d: message %d: %v", seed, i, err)
			}
			if got.QueueID != w.QueueID || got.QueueOffset != w.QueueOffset || got.PhysicalOffset != w.PhysicalOffset || got.BornTimestamp != w.BornTimestamp ||
				got.StoreTimestamp != w.StoreTimestamp || !bytes.Equal(got.Topic, w.Topic) || !bytes.Equal(got.Body, w.Body) || !bytes.Equal(got.Properties, w.Properties) {
				t.Fatalf("seed %d: message %d is %+v; want %+v", seed, i, got, w)
			}
			if len(got.Body) == 0 {
				continue
			}
			if !got.Intact() {
				t.Fatalf("seed %d: message %d is not intact", seed, i)
			}
			if got.Body[0]++; got.Intact() {
				t.Fatal("another body is intact too")
			}
		}
		if len(body) != 0 {
			t.Fatalf("%d bytes left", len(body))
		}
	}
}

func FuzzNextRecord(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 10 {
		f.Add(message.AppendRecord(message.AppendRecord(nil, randomRecord(r)), randomRecord(r)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for rest := b; len(rest) > 0; {
			var ours Record
			next, err := NextRecord(rest, &ours)
			if err != nil {
				return
			}
			if len(next) >= len(rest) {
				t.Fatalf("a message of %d bytes", len(rest)-len(next))
			}
			var theirs message.Record
			if err := message.Decode(rest, &theirs); err != nil {
				t.Fatalf("taken, and the broker does not: %v", err)
			}
			if !bytes.Equal(ours.Body, theirs.Body) || !bytes.Equal(ours.Topic, theirs.Topic) || !bytes.Equal(ours.Properties, theirs.Properties) {
				t.Fatal("read otherwise than the broker does")
			}
			rest = next
		}
	})
}

// What the short look at an answer reads, the codec reads too, or it refuses the answer.
func FuzzReadHead(f *testing.F) {
	for _, form := range []remoting.SerializeType{remoting.SerializeJSON, remoting.SerializeRocketMQ} {
		cmd := NewCommand(remoting.Success, "queueId", "3", "MSG_REGION", "DefaultRegion", "queueOffset", "123")
		cmd.Flag, cmd.Opaque, cmd.Serialize = 1, opaqueSampleA, form
		f.Add(cmd.AppendTo(nil, 0))
		cmd.SetRemark(`a "remark" }, with braces`)
		f.Add(cmd.AppendTo(nil, 0))
	}
	for _, header := range []string{
		`{"code":0,"extFields":{"a":"x},"},"opaque":5,"flag":1}`, `{"code":0,"extFields":{"a":"}","opaque":"7"},"opaque":5,"flag":1}`,
		`{"code":1,"code":2,"opaque":-5}`, `{"code":"1"}`, `{}`, `{"opaque":2147483648}`, `{"a":{"b":{}},"flag":1}`, `{"code":1,}`, `{"a":1"b":2}`,
	} {
		f.Add(append([]byte{0, 0, 0, byte(4 + len(header)), 0, 0, 0, byte(len(header))}, header...))
	}
	before := NewCommand(remoting.Success, "queueId", "3", "queueOffset", "123")
	before.Flag, before.Opaque = 1, opaqueSampleA
	alike := before.AppendTo(nil, 0)
	f.Add(alike)
	floor := `{"code":0,"opaque":1111111111,"flag":1,"language":"OTHER","extFields":{"queueId":"0"}}`
	f.Add(append([]byte{0, 0, 0, byte(4 + len(floor)), 0, 0, 0, byte(len(floor))}, floor...))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := remoting.FrameLength(b)
		if err != nil || n == 0 || n > len(b) {
			return
		}
		var cmd remoting.Command
		decodeErr := remoting.Decode(b[:n], &cmd)
		// As the first answer, behind one that may be like it, and behind itself.
		var fresh, used headReader
		used.read(alike)
		for _, r := range []*headReader{&fresh, &fresh, &used, &used} {
			if h, ok := r.read(b[:n]); ok && decodeErr == nil && (h != head{cmd.Code, cmd.Opaque, cmd.Flag}) {
				t.Fatalf("read %+v; the codec reads code %d, opaque %d, flag %d of %q", h, cmd.Code, cmd.Opaque, cmd.Flag, b[8:n])
			}
		}
	})
}

// Behind one answer, the next one like it is read the same way, whatever its fields and its id are.
func TestHeadsThatAreAlike(t *testing.T) {
	var heads headReader
	for i := range 1000 {
		form := `{"code":0,"extFields":{"queueId":"%d","queueOffset":"%d"},"flag":1,"language":"JAVA","opaque":%d,"version":407}`
		if i%500 >= 250 {
			form = `{"code":0,"opaque":%[3]d,"flag":1,"extFields":{"queueId":"%[1]d","queueOffset":"%[2]d"}}`
		}
		id := int32(opaqueMin + i*1234567%opaqueMin)
		b := fmt.Appendf(nil, form, i%7, i*i, id)
		want := head{0, id, 1}
		if h, ok := jsonHead(b); !ok || h != want {
			t.Fatalf("%s: %+v", b, h)
		}
		if i%250 > 0 {
			if h, ok := heads.again(b); !ok || h != want {
				t.Fatalf("%s behind one like it: %+v, %v", b, h, ok)
			}
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(b)))
		frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(b))), b...)
		if h, ok := heads.read(frame); !ok || h != want {
			t.Fatalf("%s: %+v, %v", b, h, ok)
		}
		for _, other := range []string{`"code":0`, `"flag":1`, `"extFields"`} {
			changed := bytes.Replace(b, []byte(other), []byte(other[:len(other)-1]+"7"), 1)
			if h, ok := heads.again(changed); ok {
				t.Fatalf("%s is like %s: %+v", changed, b, h)
			}
		}
	}
}

// The short look serves what brokers answer: the shapes seen from RocketMQ 4.9, 5.3 and loopmq.
func TestReadHeadKnowsAnswers(t *testing.T) {
	f := func(header string, want head) {
		t.Helper()
		if got, ok := jsonHead([]byte(header)); !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", header, got, ok, want)
		}
	}
	f(`{"code":0,"extFields":{"queueId":"1","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"7F00000100002A9F0000000000000000","queueOffset":"5"},"flag":1,"language":"JAVA","opaque":1073741825,"serializeTypeCurrentRPC":"JSON","version":407}`,
		head{0, 1073741825, 1})
	f(`{"code":2,"flag":1,"language":"JAVA","opaque":2147483647,"remark":"[TIMEOUT_CLEAN_QUEUE]broker busy","serializeTypeCurrentRPC":"JSON","version":407}`,
		head{2, 2147483647, 1})
	g := func(header string) {
		t.Helper()
		if got, ok := jsonHead([]byte(header)); ok {
			t.Errorf("%s: %+v", header, got)
		}
	}
	g(``)
	g(`{`)
	g(`{"code":0,"remark":"a \" quote"}`)
	g(`{"code":0,"extFields":{"a":"}"},"opaque":5}`)
	g(`{"code":"0"}`)
	g(`{"code":0 ,"opaque":1}`)
}

func FuzzStandardJSON(f *testing.F) {
	f.Add([]byte(`{"brokerAddrs":{0:"127.0.0.1:10911",1:"b"},"n":[1,2],"s":"{0:\"x\"}"}`))
	f.Add([]byte(`{"a":"\\",12:{3:4}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		out := standardJSON(b)
		if json.Valid(b) && !bytes.Equal(out, b) {
			t.Fatalf("changed %q to %q", b, out)
		}
		if again := standardJSON(out); !bytes.Equal(again, out) {
			t.Fatalf("not done with %q: %q", out, again)
		}
		_, _ = parseRoute(b)
		_, _ = parseMasters(b)
		_, _ = parseTopics(b, "a")
	})
}

func TestRoutes(t *testing.T) {
	route := `{"brokerDatas":[{"brokerAddrs":{0:"a:1",1:"a:2"},"brokerName":"A"},{"brokerAddrs":{1:"b:2"},"brokerName":"B"}],
 "queueDatas":[{"brokerName":"A","perm":6,"readQueueNums":4,"writeQueueNums":3},{"brokerName":"B","perm":6,"readQueueNums":4,"writeQueueNums":4},{"brokerName":"C","perm":4}]}`
	got, err := parseRoute([]byte(route))
	if want := []BrokerQueues{{BrokerName: "A", Addr: "a:1", ReadQueues: 4, WriteQueues: 3, Readable: true, Writable: true}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("route %+v, %v; want %+v", got, err, want)
	}
	masters, err := parseMasters([]byte(`{"brokerAddrTable":{"A":{"brokerAddrs":{0:"a:1"},"brokerName":"A"},"B":{"brokerAddrs":{1:"b:2"}}},"clusterAddrTable":{"c":["A"]}}`))
	if want := map[string]string{"A": "a:1"}; err != nil || !maps.Equal(masters, want) {
		t.Errorf("masters %v, %v; want %v", masters, err, want)
	}
	topics, err := parseTopics([]byte(`{"dataVersion":{"counter":1},"topicConfigTable":{"t":{"perm":2,"readQueueNums":4,"topicName":"t","writeQueueNums":5}}}`), "a:1")
	if want := (BrokerQueues{Addr: "a:1", ReadQueues: 4, WriteQueues: 5, Writable: true}); err != nil || topics["t"] != want {
		t.Errorf("topics %+v, %v", topics, err)
	}
	for _, bad := range []string{`[]`, `{"queueDatas":[{"brokerName":"A","writeQueueNums":-1}],"brokerDatas":[{"brokerName":"A","brokerAddrs":{"0":"a"}}]}`} {
		if got, err := parseRoute([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}
