// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Whatever Java's two spellings of a map, the reader sees the same members.
func TestJSONReaderTakesBothSpellingsOfKeys(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		var got []string
		r := newJSONReader([]byte(text))
		err := r.object(func(key []byte) error {
			q, err := queueOfKey(key)
			if err != nil {
				q = MessageQueue{Topic: string(key)}
			}
			n, err := r.int64()
			got = append(got, fmt.Sprintf("%s %s %d=%d", q.Topic, q.BrokerName, q.QueueID, n))
			return err
		})
		if err == nil {
			err = r.end()
		}
		if s := strings.Join(got, ";"); err != nil || s != want {
			t.Fatalf("%s reads as %q, %v; want %q", text, s, err, want)
		}
	}
	f(`{}`, "")
	f(`null`, "")
	f(`{0:5,1:7}`, "0  0=5;1  0=7")
	f(`{"0":5,"1":"7"}`, "0  0=5;1  0=7")
	f("{\n\t-1:5,\n1:7\n}\n", "-1  0=5;1  0=7")
	f(`{{"brokerName":"b","queueId":3,"topic":"T"}:9}`, "T b 3=9")
	f(`{"{\"brokerName\":\"b\",\"queueId\":3,\"topic\":\"T\"}":9}`, "T b 3=9")
	f(`{'a':1,b_c:null}`, "a  0=1;b_c  0=0")
}

func TestJSONReaderRefuses(t *testing.T) {
	f := func(text string) {
		t.Helper()
		r := newJSONReader([]byte(text))
		err := r.skip()
		if err == nil {
			err = r.end()
		}
		if !errors.Is(err, errJSON) {
			t.Fatalf("%.40q: error %v; want malformed", text, err)
		}
	}
	f("")
	f("{")
	f(`{"a"}`)
	f(`{"a":}`)
	f(`{"a":1 "b":2}`)
	f(`{:1}`)
	f(`"\u12"`)
	f(`"\q"`)
	f("\"a\nb\"")
	f(`[1,2`)
	f(`{} {}`)
	f(strings.Repeat("[", jsonDepthMax+1) + strings.Repeat("]", jsonDepthMax+1))
	f(strings.Repeat(`{"a":`, 1<<20))
	f(strings.Repeat(`{{`, 1<<20))
}

func TestJSONReaderChecksRanges(t *testing.T) {
	if _, err := newJSONReader([]byte("2147483648")).int32(); err == nil {
		t.Fatal("2147483648 read as a 32-bit integer")
	}
	if _, err := newJSONReader([]byte("9223372036854775808")).int64(); err == nil {
		t.Fatal("9223372036854775808 read as a 64-bit integer")
	}
	if _, err := newJSONReader([]byte("1.5")).int64(); err == nil {
		t.Fatal("1.5 read as an integer")
	}
	if _, err := newJSONReader([]byte("maybe")).bool(); err == nil {
		t.Fatal("maybe read as a flag")
	}
	if _, err := newJSONReader([]byte(`["a","b"]`)).strings(1); err == nil {
		t.Fatal("two elements read where one is allowed")
	}
}

func TestJSONStringsRoundTrip(t *testing.T) {
	for _, s := range []string{"", "a", "\x00\x1f\x7f", `"\/`, "\b\f\n\r\t", "grün 消息 🚀", "\u2028\u2029", "a\xffb"} {
		var w jsonWriter
		w.str(s)
		want := strings.ToValidUTF8(s, "\uFFFD")
		if got, err := newJSONReader(w.b).text(); err != nil || got != want {
			t.Fatalf("%q written as %s reads as %q, %v", s, w.b, got, err)
		}
		var std string
		if err := json.Unmarshal(w.b, &std); err != nil || std != want {
			t.Fatalf("%q written as %s is read by a standard reader as %q, %v", s, w.b, std, err)
		}
	}
	if got, err := newJSONReader([]byte(`"\ud83d\ude80\u00e4\ud83d"`)).text(); err != nil || got != "🚀ä\uFFFD" {
		t.Fatalf("surrogates read as %q, %v", got, err)
	}
}

// The shape of a file written by fastjson, to the byte.
func TestJSONWriterIndentsAsJava(t *testing.T) {
	w := jsonWriter{pretty: true}
	w.beginObject()
	w.key("offsetTable")
	w.beginObject()
	w.key("T@g")
	w.beginObject()
	w.intKey(0)
	w.int(5)
	w.intKey(1)
	w.int(7)
	w.endObject()
	w.endObject()
	w.stringsMember("list", []string{"a", "b"})
	w.key("none")
	w.beginObject()
	w.endObject()
	w.endObject()
	want := "{\n\t\"offsetTable\":{\n\t\t\"T@g\":{0:5,1:7\n\t\t}\n\t},\n\t\"list\":[\n\t\t\"a\",\n\t\t\"b\"\n\t],\n\t\"none\":{}\n}"
	if string(w.b) != want {
		t.Fatalf("got\n%s\nwant\n%s", w.b, want)
	}
}

func TestJavaDouble(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := javaDouble(v); got != want {
			t.Fatalf("javaDouble(%v)=%q; want %q", v, got, want)
		}
	}
	f(0, "0.0")
	f(12.5, "12.5")
	f(1e6, "1000000.0")
}

// Any text either fails or is written back as one that reads the same; nothing panics.
func FuzzJavaJSON(f *testing.F) {
	for _, seed := range []string{
		`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{0:5,1:7}}}`,
		`{"a":[1,2.5,true,null,"x\u00e4\ud83d\ude80"],b:'c'}`,
		`{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"codeSet":[97]}]}]}`,
		"\t[ ]", `{{{`, `"\`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newJSONReader(text)
		once, err := r.raw()
		if err != nil {
			return
		}
		again := newJSONReader([]byte(once))
		twice, err := again.raw()
		if err == nil {
			err = again.end()
		}
		if err != nil || once != twice {
			t.Fatalf("%q writes as %q, which writes as %q, %v", text, once, twice, err)
		}
		_, _ = queueOfKey(text)
	})
}
