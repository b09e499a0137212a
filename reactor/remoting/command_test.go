// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frameOf puts a header and a body into a frame.
func frameOf(form SerializeType, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(form)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

// The header that the Java 4.9 producer sends with SEND_MESSAGE_V2, as fastjson writes it.
const sendV2Header = `{"code":310,"extFields":{"a":"benchmark_producer","b":"BenchmarkTest","c":"TBW102","d":"4","e":"3","f":"0",` +
	`"g":"1701340800123","h":"0","i":"UNIQ_KEY\u00017F000001A1B218B4AAC28B2C0DE50001\u0002WAIT\u0001true\u0002TAGS\u0001TagA","j":"0","k":"false","m":"false"},` +
	`"flag":0,"language":"JAVA","opaque":4711,"serializeTypeCurrentRPC":"JSON","version":409}`

func sendV2Frame(form SerializeType, body int) []byte {
	var c Command
	if err := Decode(frameOf(SerializeJSON, sendV2Header, strings.Repeat("x", body)), &c); err != nil {
		panic(err)
	}
	c.Serialize = form
	return c.AppendTo(nil, 0)
}

func text(c *Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "code=%d lang=%d version=%d opaque=%d flag=%d form=%d remark=%q ext=[", c.Code, c.Language, c.Version, c.Opaque, c.Flag, c.Serialize, c.Remark)
	for _, f := range c.Ext.List {
		fmt.Fprintf(&b, "%q:%q ", f.Key, f.Value)
	}
	fmt.Fprintf(&b, "] body=%q", c.Body)
	return b.String()
}

func TestFrameLength(t *testing.T) {
	f := func(first uint32, want int, bad bool) {
		t.Helper()
		got, err := FrameLength(binary.BigEndian.AppendUint32(nil, first))
		if got != want || (err != nil) != bad {
			t.Fatalf("FrameLength(%d)=%d, %v; want %d, bad=%v", first, got, err, want, bad)
		}
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("%v does not wrap ErrProtocol", err)
		}
	}
	f(4, 8, false)
	f(FrameLengthMax-4, FrameLengthMax, false) // the limit includes the length field
	f(FrameLengthMax-3, 0, true)
	f(FrameLengthMax, 0, true)
	for _, n := range []uint32{0, 1, 2, 3, math.MaxInt32, 1 << 31, math.MaxUint32} {
		f(n, 0, true)
	}
	f(binary.BigEndian.Uint32([]byte("PRI ")), 0, true)             // the HTTP/2 preface
	f(binary.BigEndian.Uint32([]byte("GET ")), 0, true)             // HTTP/1
	f(binary.BigEndian.Uint32([]byte{0x16, 3, 1, 2}), 0, true)      // a TLS hello
	f(binary.BigEndian.Uint32([]byte("SSH-")), 0, true)             //
	f(binary.BigEndian.Uint32([]byte("\r\n\r\n\x00\r\n")), 0, true) // PROXY protocol v2
	for n := range 4 {
		if got, err := FrameLength(make([]byte, n)); got != 0 || err != nil {
			t.Fatalf("FrameLength of %d bytes=%d, %v; want 0", n, got, err)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	f := func(header, want string) {
		t.Helper()
		var c Command
		if err := Decode(frameOf(SerializeJSON, header, "B"), &c); err != nil {
			t.Fatalf("%s: %v", header, err)
		}
		if got := text(&c); got != want {
			t.Fatalf("%s:\n got %s\nwant %s", header, got, want)
		}
	}
	f(`{}`, `code=0 lang=0 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
	f(`{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":-7,"serializeTypeCurrentRPC":"JSON","version":409}`,
		`code=105 lang=0 version=409 opaque=-7 flag=0 form=0 remark="" ext=["topic":"TBW102" ] body="B"`)
	// The Go client: another order, a remark that is always there.
	f(`{"code":34,"language":"GO","version":317,"opaque":9,"flag":0,"remark":"","extFields":null}`,
		`code=34 lang=9 version=317 opaque=9 flag=0 form=0 remark="" ext=[] body="B"`)
	f(` { "code" : 1 , "extFields" : { } , "remark" : null , "flag":1}`+"\r\n\t ",
		`code=1 lang=0 version=0 opaque=0 flag=1 form=0 remark="" ext=[] body="B"`)
	// What strictly should be a string, and what nobody asked for.
	f(`{"code":"11","extFields":{"a":1,"b":-2.5e3,"c":true,"d":false,"e":null,"f":{"x":[1,{"y":"}"}]},"g":[],"h":"z"},"version":null}`,
		`code=11 lang=0 version=0 opaque=0 flag=0 form=0 remark="" ext=["a":"1" "b":"-2.5e3" "c":"true" "d":"false" "h":"z" ] body="B"`)
	f(`{"new":{"deep":[[[{"a":"\"]}"}]],1,true,null,{}]},"code":3,"other":"x\\","last":[]}`,
		`code=3 lang=0 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
	f(`{"language":"KLINGON","code":1}`, `code=1 lang=255 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
	f(`{"language":null}`, `code=0 lang=255 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
	// Escapes, in keys too; surrogates in pairs and alone.
	f(`{"remark":"a\"b\\c\/d\b\f\n\r\t\u0001\u00e4\u4e2d","extFields":{"k\u0001":"\ud83d\ude00","l":"\ud83dx","m":"\ude00\ud83d","n":"\ud83d\ud83d\ude00"}}`,
		`code=0 lang=0 version=0 opaque=0 flag=0 form=0 remark="a\"b\\c/d\b\f\n\r\t\x01ä中" ext=["k\x01":"😀" "l":"�x" "m":"��" "n":"�😀" ] body="B"`)
	// What older fastjson writes, between properties above all: CharTypes#replaceChars.
	f(`{"remark":"\v\x41\xe4\0\7","extFields":{"i":"KEYS\1k\2WAIT\1true", "j" : "\2"}}`,
		`code=0 lang=0 version=0 opaque=0 flag=0 form=0 remark="\vAä\x00\a" ext=["i":"KEYS\x01k\x02WAIT\x01true" "j":"\x02" ] body="B"`)
	f(`{"co\u0064e":5}`, `code=5 lang=0 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
	f(`{"a":`+strings.Repeat("[", jsonDepthMax)+strings.Repeat("]", jsonDepthMax)+`}`,
		`code=0 lang=0 version=0 opaque=0 flag=0 form=0 remark="" ext=[] body="B"`)
}

func TestDecodeRefuses(t *testing.T) {
	f := func(frame []byte) {
		t.Helper()
		var c Command
		if err := Decode(frame, &c); !errors.Is(err, ErrProtocol) {
			t.Fatalf("%q: %v; want a protocol error", frame, err)
		}
	}
	for _, header := range []string{
		``, ` `, `null`, `[]`, `1`, `"x"`, `{`, `}`, `{"code"`, `{"code":`, `{"code":}`, `{"code":1`, `{"code":1,`, `{"code":1,}`, `{"code" 1}`,
		`{code:1}`, `{"code":1}x`, `{"code":1}{}`, `{"code":1.5}`, `{"code":99999999999}`, `{"code":"x"}`, `{"code":[]}`, `{"code":-}`,
		`{"opaque":2147483648}`, `{"opaque":-2147483649}`, `{"remark":"x}`, `{"remark":"\x"}`, `{"remark":"\x4"}`, `{"remark":"\8"}`, `{"remark":"\x`, `{"remark":"\u12"}`, `{"remark":"\u12g4"}`, `{"remark":"\`,
		`{"extFields":1}`, `{"extFields":"a"}`, `{"extFields":[]}`, `{"extFields":{"a"}}`, `{"extFields":{"a":}}`, `{"extFields":{"a":"b"`,
		`{"extFields":{"a":tru}}`, `{"extFields":{"a":nope}}`, `{"x":{1:2}}`, `{"x":[1 2]}`, `{"x":[}`, `{"x":{"a":1]}`, `{"x":+}`,
		`{"a":` + strings.Repeat("[", 1<<20), `{"a":` + strings.Repeat(`{"a":`, 1<<18),
		`{"a":` + strings.Repeat("[", jsonDepthMax+2) + strings.Repeat("]", jsonDepthMax+2) + `}`,
		`{"extFields":{"a":"0"` + strings.Repeat(`,"a":"0"`, fieldsMax) + `}}`,
	} {
		f(frameOf(SerializeJSON, header, ""))
	}
	good := string(sendV2Frame(SerializeRocketMQ, 0)[8:])
	for n := range len(good) - 1 {
		f(frameOf(SerializeRocketMQ, good[:n], ""))
	}
	patch := func(at int, with string) string { return good[:at] + with + good[at+len(with):] }
	f(frameOf(SerializeRocketMQ, patch(13, "\x00\x00\xff\xff"), ""))
	f(frameOf(SerializeRocketMQ, patch(13, "\xff\xff\xff\xff"), ""))
	f(frameOf(SerializeRocketMQ, patch(17, "\x7f\xff\xff\xff"), ""))
	f(frameOf(SerializeRocketMQ, patch(17, "\xff\xff\xff\xff"), ""))
	f(frameOf(SerializeRocketMQ, patch(21, "\xff\xff"), ""))
	f(frameOf(SerializeRocketMQ, patch(24, "\xff\xff\xff\xff"), ""))
	f(frameOf(2, `{}`, ""))
	f(frameOf(255, `{}`, ""))
	f([]byte{0, 0, 0, 4, 0, 0, 0, 1})    // header longer than the frame
	f([]byte{0, 0, 0, 5, 0, 0, 0, 2, 9}) //
	f([]byte{0, 0, 0, 8, 0, 0, 0, 0})    // fewer bytes than announced
	f(append(frameOf(SerializeJSON, `{}`, ""), 0))
	f(nil)
}

func TestDecodeRocketMQ(t *testing.T) {
	f := func(header []byte, want string) {
		t.Helper()
		var c Command
		if err := Decode(frameOf(SerializeRocketMQ, string(header), ""), &c); err != nil {
			t.Fatal(err)
		}
		if got := text(&c); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
	// By hand: code 105, GO, version 317, opaque 1, flag 2, no remark, one field.
	f([]byte("\x00\x69\x09\x01\x3d\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x0d\x00\x05topic\x00\x00\x00\x02ab"),
		`code=105 lang=9 version=317 opaque=1 flag=2 form=1 remark="" ext=["topic":"ab" ] body=""`)
	// 200050 does not fit into 16 bits: what arrives is 3442. A language nobody knows, a remark, null key and null value.
	f([]byte("\x0d\x72\x63\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x03abc\x00\x00\x00\x0e\x00\x00\x00\x00\x00\x01x\x00\x01k\x00\x00\x00\x00\x00"),
		`code=3442 lang=99 version=0 opaque=-1 flag=1 form=1 remark="abc" ext=["k":"" ] body=""`)
}

func TestEncodeGolden(t *testing.T) {
	c := Command{Code: Success, Language: LanguageJava, Version: Version, Opaque: 7, Flag: FlagResponse}
	want := `{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":409}`
	if got := c.AppendTo(nil, 0); !bytes.Equal(got, frameOf(SerializeJSON, want, "")) {
		t.Fatalf("got %q", got)
	}
	c.SetRemark("a\"b\\\x01\nä")
	c.Ext.Add("queueId", "1")
	c.Ext.AddInt("queueOffset", math.MinInt64)
	c.Ext.AddBool("TRACE_ON", true)
	c.Body = []byte("body")
	want = `{"code":0,"extFields":{"queueId":"1","queueOffset":"-9223372036854775808","TRACE_ON":"true"},"flag":1,"language":"JAVA","opaque":7,` +
		`"remark":"a\"b\\\u0001\u000aä","serializeTypeCurrentRPC":"JSON","version":409}`
	if got := c.AppendTo(nil, 0); !bytes.Equal(got, frameOf(SerializeJSON, want, "body")) {
		t.Fatalf("got %q", got)
	}
	// A body that follows by itself is counted, not written; what stands in dst before is left alone.
	c.Body = nil
	got := c.AppendTo([]byte("front"), 1000)
	if total, err := FrameLength(got[5:]); string(got[:5]) != "front" || err != nil || total != len(got)-5+1000 {
		t.Fatalf("frame length %d, %v of %d bytes and a body of 1000", total, err, len(got)-5)
	}
	c.Serialize = SerializeRocketMQ
	wantBinary := "\x00\x00\x00\x01\x99\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x08a\"b\\\x01\nä"
	if got := c.AppendTo(nil, 0); !strings.HasPrefix(string(got[8:]), wantBinary) || got[4] != 1 {
		t.Fatalf("got %q", got)
	}
	c.Code = PopMessage
	if got := c.AppendTo(nil, 0); got[4] != byte(SerializeJSON) {
		t.Fatalf("code %d went out in the form that has 16 bits for it", c.Code)
	}
}

// The JSON we write must be JSON to a parser that is not ours.
func TestEncodeIsJSON(t *testing.T) {
	var c Command
	var all []byte
	for i := range 0x300 {
		all = append(all, string(rune(i))...)
	}
	c.Remark = all
	c.Ext.AddBytes("all", all)
	c.Ext.AddBytes(string(all), []byte("v"))
	frame := c.AppendTo(nil, 0)
	var m struct {
		Remark    string
		ExtFields map[string]string
	}
	if err := json.Unmarshal(frame[8:], &m); err != nil {
		t.Fatal(err)
	}
	if m.Remark != string(all) || m.ExtFields["all"] != string(all) || m.ExtFields[string(all)] != "v" {
		t.Fatalf("got %q", m)
	}
}

func TestFields(t *testing.T) {
	var f Fields
	f.Add("a", "1")
	f.Add("queueId", "12")
	f.Add("a", "2") // the last one counts
	f.Add("empty", "")
	f.Add("e", "")
	f.AddBytes("raw", []byte{0, 1})
	f.AddInt("n", -5)
	get := func(key, want string, ok bool) {
		t.Helper()
		if v, got := f.Get(key); string(v) != want || got != ok {
			t.Fatalf("Get(%s)=%q, %v; want %q, %v", key, v, got, want, ok)
		}
	}
	get("a", "2", true)
	get("queueId", "12", true)
	get("empty", "", false)
	get("e", "", false)
	get("b", "", false)
	get("", "", false)
	get("raw", "\x00\x01", true)
	get("n", "-5", true)
	// List changed by hand.
	f.List[2] = Field{[]byte("x"), []byte("y")}
	get("a", "1", true)
	get("x", "y", true)
	f.List = f.List[:1]
	get("n", "", false)
	f.Reset()
	get("a", "", false)
}

func TestFieldsTyped(t *testing.T) {
	f := func(value string, want int64, bits int, ok bool) {
		t.Helper()
		var fs Fields
		fs.Add("k", value)
		var got int64
		var err error
		if bits == 32 {
			var n int32
			n, err = fs.Int32("k", 77)
			got = int64(n)
		} else {
			got, err = fs.Int64("k", 77)
		}
		if (err == nil) != ok || ok && got != want {
			t.Fatalf("%q in %d bits: %d, %v; want %d, ok=%v", value, bits, got, err, want, ok)
		}
		if err != nil && (!strings.Contains(err.Error(), "k is") || len(err.Error()) > 200) {
			t.Fatalf("error does not name field and value, shortened: %v", err)
		}
	}
	for _, bits := range []int{32, 64} {
		f("", 77, bits, true)
		f("0", 0, bits, true)
		f("-0", 0, bits, true)
		f("+12", 12, bits, true)
		f("-12", -12, bits, true)
		f("007", 7, bits, true)
		for _, bad := range []string{" 1", "1 ", "1.0", "0x1", "-", "+", "--1", "1e3", "1_0", "９", strings.Repeat("9", 1000)} {
			f(bad, 0, bits, false)
		}
	}
	f("2147483647", math.MaxInt32, 32, true)
	f("2147483648", 0, 32, false)
	f("-2147483648", math.MinInt32, 32, true)
	f("-2147483649", 0, 32, false)
	f("9223372036854775807", math.MaxInt64, 64, true)
	f("9223372036854775808", 0, 64, false)
	f("-9223372036854775808", math.MinInt64, 64, true)
	f("-9223372036854775809", 0, 64, false)
	f("18446744073709551616", 0, 64, false)

	var fs Fields
	for _, s := range []string{"true", "TRUE", "tRuE"} {
		fs.Reset()
		if fs.Add("k", s); !fs.Bool("k") {
			t.Fatalf("%q is false", s)
		}
	}
	for _, s := range []string{"", "false", "1", "yes", "true ", "tru"} {
		fs.Reset()
		if fs.Add("k", s); fs.Bool("k") {
			t.Fatalf("%q is true", s)
		}
	}
}

func TestCloneOwnsItsBytes(t *testing.T) {
	for _, form := range []SerializeType{SerializeJSON, SerializeRocketMQ} {
		var c Command
		frame := sendV2Frame(form, 100)
		if err := Decode(frame, &c); err != nil {
			t.Fatal(err)
		}
		c.SetRemark("why")
		want := text(&c)
		owned, reused := c.Clone(), new(Command)
		for range 3 {
			c.CopyTo(reused)
		}
		for i := range frame {
			frame[i] = 0xDB
		}
		c.Reset()
		c.Ext.Add("overwritten", strings.Repeat("z", 500))
		c.SetRemark("other")
		if text(owned) != want || text(reused) != want {
			t.Fatalf("the copy changed with its source:\n%s\n%s\nwant %s", text(owned), text(reused), want)
		}
		if v, _ := owned.Ext.Get("b"); string(v) != "BenchmarkTest" {
			t.Fatalf("Get of a copy: %q", v)
		}
	}
}

func TestCommandReuseAllocatesNothing(t *testing.T) {
	for _, form := range []SerializeType{SerializeJSON, SerializeRocketMQ} {
		var c, copied Command
		frame := sendV2Frame(form, 1024)
		var out []byte
		n := testing.AllocsPerRun(100, func() {
			if err := Decode(frame, &c); err != nil {
				t.Fatal(err)
			}
			c.CopyTo(&copied)
			out = copied.AppendTo(out[:0], 0)
			copied.Reset()
			copied.Ext.AddInt("queueOffset", 1<<40)
			copied.SetRemark("remark")
			out = copied.AppendTo(out[:0], 0)
		})
		if n != 0 {
			t.Fatalf("form %d: %v allocations", form, n)
		}
	}
}

// A reused command must not keep what one huge header made it allocate.
func TestCommandGivesUpLargeScratch(t *testing.T) {
	var c Command
	huge := `{"remark":"\n` + strings.Repeat("r", 1<<20) + `","extFields":{"a":"\n` + strings.Repeat("v", 1<<20) + `"}}`
	if err := Decode(frameOf(SerializeJSON, huge, ""), &c); err != nil {
		t.Fatal(err)
	}
	c.Reset()
	if n := cap(c.scratch) + cap(c.Ext.scratch); n > 2*scratchKeepMax {
		t.Fatalf("%d bytes kept", n)
	}
}

func TestTablesAreSound(t *testing.T) {
	seen := map[string]bool{}
	last := int32(math.MinInt32)
	for _, r := range RequestCodes {
		if r.Code <= last || seen[r.Name] {
			t.Fatalf("row %v is out of order or double", r)
		}
		last, seen[r.Name] = r.Code, true
	}
	last = math.MinInt32
	for _, r := range ResponseCodes {
		if r.Code <= last || seen[r.Name] || r.Description == "" {
			t.Fatalf("row %v is out of order, double or without a sentence", r)
		}
		if r.Code > math.MaxInt16 || r.Code < math.MinInt16 {
			t.Fatalf("row %v: the Go client decodes a response code as 16 bits", r)
		}
		last, seen[r.Name] = r.Code, true
	}
	if RequestName(310) != "SEND_MESSAGE_V2" || RequestName(9999) != "9999" || ResponseName(14) != "SERVICE_NOT_AVAILABLE" {
		t.Fatal("names")
	}
	for code := range languageNames {
		if got := languageByName([]byte(LanguageName(byte(code)))); got != byte(code) {
			t.Fatalf("language %d comes back as %d", code, got)
		}
	}
}

func FuzzFrameLength(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4})
	f.Add([]byte{0x16, 3, 1, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		total, err := FrameLength(b)
		if err != nil && total != 0 || total < 0 || total > FrameLengthMax || total > 0 && total < 8 {
			t.Fatalf("FrameLength(%q)=%d, %v", b, total, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(sendV2Frame(SerializeJSON, 3))
	f.Add(sendV2Frame(SerializeRocketMQ, 3))
	f.Add(frameOf(SerializeJSON, `{"code":"11","extFields":{"a":1,"f":{"x":[1,{"y":"}"}]},"h":"\ud83d\ude00\u0001"},"remark":"\ud83d"}`, "x"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		// As it came, and put into a well-formed frame of each form: most inputs would not get past the lengths.
		check(t, frame)
		check(t, frameOf(SerializeJSON, string(frame), ""))
		check(t, frameOf(SerializeRocketMQ, string(frame), "b"))
	})
}

// check decodes; what decodes must come back the same from what we write of it.
func check(t *testing.T, frame []byte) {
	var c, again Command
	if Decode(frame, &c) != nil {
		return
	}
	encoded := c.AppendTo(nil, 0)
	if err := Decode(encoded, &again); err != nil {
		t.Fatalf("what we wrote of %q does not decode: %v: %q", frame, err, encoded)
	}
	if c.Serialize == SerializeJSON && int(c.Language) >= len(languageNames) {
		c.Language = LanguageOther
	}
	if a, b := text(&c), text(&again); a != b {
		t.Fatalf("came %s\nback %s", a, b)
	}
	for _, field := range c.Ext.List {
		if got, _ := c.Ext.Get(string(field.Key)); len(field.Value) > 0 && got == nil && !emptied(&c.Ext, field.Key) {
			t.Fatalf("field %q is not found", field.Key)
		}
	}
}

// What encoding/json takes for an object, Decode takes for the same header.
func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(sendV2Header))
	f.Add([]byte(`{"code":-7,"extFields":{"a":"1","b" :"2","c":3,"long":"\u0001\u007f\u0080\u00Ff\ud83d\ude00\n","":"","k\u0041":"x","n":null,"o":{"p":[1]},"t":true}}`))
	f.Add([]byte(` {"opaque":"12","version":007,"flag":2147483648,"extFields":null,"extFields":{"x":"\\"},"remark":"\"","language":"GO"} `))
	f.Add([]byte(`{"flag":2147483647,"opaque":-2147483648,"version":1e3,"remark":12.5,"extFields":{"\"":"a","\\":"b","é":"12345678"}}`))
	f.Fuzz(func(t *testing.T, header []byte) {
		if !json.Valid(header) || !utf8.Valid(header) || bytes.Count(header, []byte("{"))+bytes.Count(header, []byte("[")) > jsonDepthMax {
			return
		}
		want, ok := decodeSlowly(header)
		if len(want.Ext.List) >= fieldsMax {
			return
		}
		var c Command
		err := Decode(frameOf(SerializeJSON, string(header), ""), &c)
		if (err == nil) != ok {
			t.Fatalf("%q: error %v, by encoding/json ok is %v", header, err, ok)
		}
		if !ok {
			return
		}
		if got, want := text(&c), text(want); got != want {
			t.Fatalf("%q:\n got %s\nwant %s", header, got, want)
		}
		if encoded := c.AppendTo(nil, 0); !json.Valid(encoded[preambleSize:]) {
			t.Fatalf("we wrote %q", encoded)
		}
	})
}

// decodeSlowly is decodeJSON by way of encoding/json, for a header that is JSON.
func decodeSlowly(header []byte) (c *Command, ok bool) {
	c, ok = new(Command), true
	number := func(v string) int32 {
		if v == "null" {
			return 0
		}
		n, fits := parseInt([]byte(strings.Trim(v, `"`)), 32)
		ok = ok && fits
		return int32(n)
	}
	object := eachMember(header, func(key, v string) {
		switch key {
		case "code":
			c.Code = number(v)
		case "extFields":
			ok = ok && (v == "null" || eachMember([]byte(v), func(key, v string) {
				if v, given := textOf(v); given {
					c.Ext.append([]byte(key), v)
				}
			}))
		case "flag":
			c.Flag = number(v)
		case "language":
			c.Language = LanguageUnknown
			if v[0] == '"' {
				c.Language = languageByName([]byte(v[1 : len(v)-1]))
			}
		case "opaque":
			c.Opaque = number(v)
		case "remark":
			c.Remark, _ = textOf(v)
		case "version":
			c.Version = number(v)
		}
	})
	return c, object && ok
}

func eachMember(object []byte, member func(key, value string)) (isObject bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			panic(err)
		}
		member(key.(string), string(value))
	}
	return true
}

func textOf(value string) (text []byte, given bool) {
	switch value[0] {
	case '{', '[', 'n':
		return nil, false
	case '"':
		var s string
		if err := json.Unmarshal([]byte(value), &s); err != nil {
			panic(err)
		}
		return []byte(s), true
	}
	return []byte(value), true
}

// emptied says whether the last field of that key has no value.
func emptied(f *Fields, key []byte) bool {
	for i := len(f.List) - 1; i >= 0; i-- {
		if bytes.Equal(f.List[i].Key, key) {
			return len(f.List[i].Value) == 0
		}
	}
	return false
}

func BenchmarkDecode(b *testing.B) {
	for form, name := range []string{"json", "rocketmq"} {
		b.Run("form="+name, func(b *testing.B) {
			var c Command
			frame := sendV2Frame(SerializeType(form), 1024)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Decode(frame, &c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGet looks up all fields of a V2 send header.
func BenchmarkGet(b *testing.B) {
	var c Command
	if err := Decode(sendV2Frame(SerializeJSON, 0), &c); err != nil {
		b.Fatal(err)
	}
	keys := strings.Split("abcdefghijklm", "")
	b.ReportAllocs()
	for b.Loop() {
		for _, k := range keys {
			c.Ext.Get(k)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for form, name := range []string{"json", "rocketmq"} {
		b.Run("form="+name, func(b *testing.B) {
			resp := Command{Version: Version, Flag: FlagResponse, Serialize: SerializeType(form)}
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				resp.Ext.Reset()
				resp.Ext.Add("msgId", "7F00000100002A9F0000000000001234")
				resp.Ext.AddInt("queueId", 3)
				resp.Ext.AddInt("queueOffset", 123456)
				resp.Ext.Add("MSG_REGION", "DefaultRegion")
				resp.Ext.Add("TRACE_ON", "true")
				out = resp.AppendTo(out[:0], 0)
			}
			b.SetBytes(int64(len(out)))
		})
	}
}

// A header of many small fields makes a copy hold far more than their text.
func TestBytesCountsFields(t *testing.T) {
	var c Command
	header := `{"extFields":{"a":""` + strings.Repeat(`,"a":""`, fieldsMax-1) + `}}`
	if err := Decode(frameOf(SerializeJSON, header, ""), &c); err != nil {
		t.Fatal(err)
	}
	if n, held := c.Bytes(), fieldsMax*int(unsafe.Sizeof(Field{})); n < held {
		t.Fatalf("%d fields count as %d bytes; they hold %d", fieldsMax, n, held)
	}
}
