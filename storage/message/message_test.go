// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The golden records are written by hand from the format: hosts of both families in all combinations.
const (
	goldenV4V4 = "00000085daa320a73c6f40a000000003fffffff90000011f71fb04cb00005ad8eed7c741000000010000018bcfe56801" +
		"0a0000070000d4310000018bcfe56be77f00000100002a9f0000000200000000000010920000000d68656c6c6f2c206c" +
		"6f6f706d7109546f706963546573740014544147530154616741024b455953016b31206b32"
	goldenV6V4 = "00000091daa320a73c6f40a000000003fffffff90000011f71fb04cb00005ad8eed7c741000000110000018bcfe56801" +
		"20010db80000000000000000000000170000d4310000018bcfe56be77f00000100002a9f000000020000000000001092" +
		"0000000d68656c6c6f2c206c6f6f706d7109546f706963546573740014544147530154616741024b455953016b31206b" +
		"32"
	goldenV4V6 = "00000091daa320a73c6f40a000000003fffffff90000011f71fb04cb00005ad8eed7c741000000210000018bcfe56801" +
		"0a0000070000d4310000018bcfe56be7fe80000000000000000000000000000100002a9f000000020000000000001092" +
		"0000000d68656c6c6f2c206c6f6f706d7109546f706963546573740014544147530154616741024b455953016b31206b" +
		"32"
	goldenV6V6 = "0000009ddaa320a73c6f40a000000003fffffff90000011f71fb04cb00005ad8eed7c741000000310000018bcfe56801" +
		"20010db80000000000000000000000170000d4310000018bcfe56be7fe80000000000000000000000000000100002a9f" +
		"0000000200000000000010920000000d68656c6c6f2c206c6f6f706d7109546f70696354657374001454414753015461" +
		"6741024b455953016b31206b32"
	goldenV2 = "0000009edaa320ab3c6f40a000000003fffffff90000011f71fb04cb00005ad8eed7c741000000310000018bcfe56801" +
		"20010db80000000000000000000000170000d4310000018bcfe56be7fe80000000000000000000000000000100002a9f" +
		"0000000200000000000010920000000d68656c6c6f2c206c6f6f706d710009546f706963546573740014544147530154" +
		"616741024b455953016b31206b32"
)

var (
	hostV4, hostV6           = netip.MustParseAddrPort("10.0.0.7:54321"), netip.MustParseAddrPort("[2001:db8::17]:54321")
	storeHostV4, storeHostV6 = netip.MustParseAddrPort("127.0.0.1:10911"), netip.MustParseAddrPort("[fe80::1]:10911")
)

func goldenRecord(born, store netip.AddrPort) Record {
	return Record{
		QueueID: 3, Flag: -7, QueueOffset: 1234567890123, PhysicalOffset: 99887766554433, SysFlag: FlagCompressed,
		BornTimestamp: 1700000000001, BornHost: born, StoreTimestamp: 1700000000999, StoreHost: store,
		ReconsumeTimes: 2, PreparedTransactionOffset: 4242,
		Body: []byte("hello, loopmq"), Topic: []byte("TopicTest"), Properties: []byte("TAGS\x01TagA\x02KEYS\x01k1 k2"),
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares what matters of two records; encoding adds checksum, host bits and size.
func same(a, b *Record) bool {
	return string(a.Body) == string(b.Body) && string(a.Topic) == string(b.Topic) && string(a.Properties) == string(b.Properties) &&
		a.QueueID == b.QueueID && a.Flag == b.Flag && a.QueueOffset == b.QueueOffset && a.PhysicalOffset == b.PhysicalOffset &&
		a.SysFlag|0x30 == b.SysFlag|0x30 && a.BornTimestamp == b.BornTimestamp && a.BornHost == b.BornHost &&
		a.StoreTimestamp == b.StoreTimestamp && a.StoreHost == b.StoreHost && a.ReconsumeTimes == b.ReconsumeTimes &&
		a.PreparedTransactionOffset == b.PreparedTransactionOffset
}

func TestGoldenRecords(t *testing.T) {
	f := func(golden string, born, store netip.AddrPort, flags int32) {
		t.Helper()
		want, r := unhex(t, golden), goldenRecord(born, store)
		prefix := []byte("in front")
		if got := AppendRecord(prefix, &r); !bytes.Equal(got[len(prefix):], want) || len(want) != RecordSize(&r) {
			t.Fatalf("encoded:\n%x\nwant:\n%x", got[len(prefix):], want)
		}
		var decoded Record
		if err := Decode(append(want, "behind"...), &decoded); err != nil {
			t.Fatal(err)
		}
		if !same(&decoded, &r) || decoded.SysFlag != FlagCompressed|flags || decoded.Size != len(want) {
			t.Fatalf("decoded %+v", decoded)
		}
		if err := CheckCRC(&decoded); err != nil {
			t.Fatal(err)
		}
	}
	f(goldenV4V4, hostV4, storeHostV4, 0)
	f(goldenV6V4, hostV6, storeHostV4, FlagBornHostV6)
	f(goldenV4V6, hostV4, storeHostV6, FlagStoreHostV6)
	f(goldenV6V6, hostV6, storeHostV6, FlagBornHostV6|FlagStoreHostV6)

	var decoded Record
	want := goldenRecord(hostV6, storeHostV6)
	if err := Decode(unhex(t, goldenV2), &decoded); err != nil || !same(&decoded, &want) {
		t.Fatalf("V2: %v, %+v", err, decoded)
	}
}

// TestHostsOfOtherForms: an IPv4 address in IPv6 form is IPv4, no address is 0.0.0.0:0, old host bits are replaced.
func TestHostsOfOtherForms(t *testing.T) {
	r := goldenRecord(netip.MustParseAddrPort("[::ffff:10.0.0.7]:54321"), netip.AddrPort{})
	r.SysFlag |= FlagBornHostV6 | FlagStoreHostV6
	var decoded Record
	if err := Decode(AppendRecord(nil, &r), &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.BornHost != hostV4 || decoded.StoreHost.String() != "0.0.0.0:0" || decoded.SysFlag != FlagCompressed {
		t.Fatalf("%v, %v, %#x", decoded.BornHost, decoded.StoreHost, decoded.SysFlag)
	}
}

// TestFilledInFields patches what the appender fills in, and reads it without decoding, behind hosts of each length.
func TestFilledInFields(t *testing.T) {
	for _, born := range []netip.AddrPort{hostV4, hostV6} {
		for _, store := range []netip.AddrPort{storeHostV4, storeHostV6} {
			r := goldenRecord(born, store)
			r.QueueOffset, r.PhysicalOffset, r.StoreTimestamp = 0, 0, 0
			b := AppendRecord(nil, &r)
			r.QueueOffset, r.PhysicalOffset, r.StoreTimestamp = 1<<40+1, 1<<41+2, 1<<42+3
			SetQueueOffset(b, r.QueueOffset)
			SetPhysicalOffset(b, r.PhysicalOffset)
			SetStoreTimestamp(b, r.StoreTimestamp)
			var decoded Record
			if err := Decode(b, &decoded); err != nil || !same(&decoded, &r) {
				t.Fatalf("%v: %+v", err, decoded)
			}
			if QueueID(b) != 3 || QueueOffset(b) != r.QueueOffset || PhysicalOffset(b) != r.PhysicalOffset ||
				StoreTimestamp(b) != r.StoreTimestamp || SysFlag(b) != decoded.SysFlag {
				t.Fatal("a field read alone differs from the decoded one")
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := unhex(t, goldenV4V4)
	patched := func(at int, value ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], value)
		return b
	}
	f := func(b []byte, want error, words string) {
		t.Helper()
		var r Record
		if err := Decode(b, &r); !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
			t.Fatalf("%v; want %v with %q", err, want, words)
		}
	}
	f(nil, ErrTruncated, "0 bytes left")
	f(good[:7], ErrTruncated, "7 bytes left")
	f(good[:len(good)-1], ErrTruncated, fmt.Sprintf("size %d", len(good)))
	f(make([]byte, 100), ErrUnwritten, "")
	f(patched(0, 0, 0, 0, 0), ErrMalformed, "size 0")
	f(patched(0, 0x80), ErrMalformed, "size -")
	f(patched(3, good[3]-1), ErrMalformed, "properties")
	f(append(patched(3, good[3]+1), 0), ErrMalformed, "properties")
	f(patched(4, 0, 0, 0, 0), ErrMalformed, "magic 0x0")
	f(patched(7, 0xA8), ErrMalformed, "magic 0xdaa320a8")
	f(patched(84, 0xFF, 0xFF, 0xFF, 0xFF), ErrMalformed, "body of -1")
	f(patched(84, 0x7F, 0xFF, 0xFF, 0xFF), ErrMalformed, "body of 2147483647")
	f(patched(88+13, 0x80), ErrMalformed, "topic of -128")
	f(patched(88+13, 0x7F), ErrMalformed, "topic of 127")
	f(patched(88+13+1+9, 0xFF, 0xFF), ErrMalformed, "properties of -1")

	minimal := Record{SysFlag: 0}
	b := AppendRecord(nil, &minimal)
	binary.BigEndian.PutUint32(b[SysFlagPosition:], uint32(FlagBornHostV6))
	f(b, ErrMalformed, "system flag 0x10")
	b = AppendRecord(nil, &minimal)
	binary.BigEndian.PutUint32(b[4:], MagicV2)
	f(b, ErrMalformed, "")
}

// TestDecodeAnyCut cuts a record anywhere, and damages each byte: there is an error or a record, never a panic.
func TestDecodeAnyCut(t *testing.T) {
	for _, golden := range []string{goldenV4V4, goldenV6V6, goldenV2} {
		good := unhex(t, golden)
		var r Record
		for cut := range len(good) {
			if err := Decode(good[:cut], &r); !errors.Is(err, ErrTruncated) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		for at := range good {
			for _, value := range []byte{0, 1, 0x7F, 0x80, 0xFF} {
				b := bytes.Clone(good)
				b[at] = value
				_ = Decode(b, &r)
			}
		}
	}
}

func TestBlank(t *testing.T) {
	b := append(AppendBlank(nil, 88), make([]byte, 80)...)
	var r Record
	if err := Decode(b, &r); err != ErrBlank || r.Size != 88 {
		t.Fatalf("%v, size %d", err, r.Size)
	}
	if size, magic, ok := Peek(b); size != 88 || magic != MagicBlank || !ok {
		t.Fatalf("Peek: %d, %#x, %v", size, magic, ok)
	}
	if _, _, ok := Peek(b[:7]); ok {
		t.Fatal("Peek of seven bytes")
	}
	if err := Decode(AppendBlank(nil, 7), &r); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a blank shorter than itself: %v", err)
	}
}

func TestCheckCRC(t *testing.T) {
	var r Record
	b := unhex(t, goldenV4V4)
	b[88] ^= 1
	if err := Decode(b, &r); err != nil {
		t.Fatal(err)
	}
	if err := CheckCRC(&r); !errors.Is(err, ErrCRC) {
		t.Fatalf("a changed body: %v", err)
	}
	if err := CheckCRC(&Record{BodyCRC: 5}); err != nil {
		t.Fatalf("an empty body: %v", err)
	}
}

func TestAppendRecordPanicsOnOversize(t *testing.T) {
	f := func(r Record) {
		t.Helper()
		defer func() {
			if cause := recover(); !strings.HasPrefix(fmt.Sprint(cause), "BUG:") {
				t.Fatalf("recovered %v", cause)
			}
		}()
		AppendRecord(nil, &r)
	}
	f(Record{Topic: make([]byte, TopicLengthMax+1)})
	f(Record{Properties: make([]byte, PropertiesLengthMax+1)})
}

// TestNoAllocations holds the hot path to its promise.
func TestNoAllocations(t *testing.T) {
	r := goldenRecord(hostV6, storeHostV4)
	buffer := make([]byte, 0, 1024)
	props := make([]byte, 0, 1024)
	f := func(name string, run func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Fatalf("%s allocates %v times", name, n)
		}
	}
	encoded := AppendRecord(nil, &r)
	var decoded Record
	f("AppendRecord", func() { AppendRecord(buffer, &r) })
	f("Decode", func() {
		if Decode(encoded, &decoded) != nil || CheckCRC(&decoded) != nil {
			t.Fatal("no record")
		}
	})
	f("PropertyValue", func() {
		if _, ok := PropertyValue(decoded.Properties, PropertyKeys); !ok {
			t.Fatal("no keys")
		}
	})
	f("AppendProperty", func() { AppendProperty(append(props[:0], decoded.Properties...), PropertyCluster, "DefaultCluster") })
	f("RemoveProperty", func() { RemoveProperty(props[:0], decoded.Properties, PropertyTags) })
	f("TagsCode", func() { TagsCode(decoded.Topic) })
	f("AppendOffsetMessageID", func() { AppendOffsetMessageID(buffer, storeHostV6, 1) })
}

func FuzzDecode(f *testing.F) {
	for _, golden := range []string{goldenV4V4, goldenV6V4, goldenV4V6, goldenV6V6, goldenV2} {
		f.Add(unhex(f, golden))
	}
	f.Add(AppendBlank(nil, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if Decode(b, &r) != nil {
			return
		}
		if r.Size > len(b) || r.Size < recordSizeMin {
			t.Fatalf("size %d of %d bytes", r.Size, len(b))
		}
		if len(r.Topic) > TopicLengthMax { // V2
			return
		}
		var again Record
		encoded := AppendRecord(nil, &r)
		if err := Decode(encoded, &again); err != nil || CheckCRC(&again) != nil {
			t.Fatalf("not a record when encoded again: %v", err)
		}
		// An IPv4 address in IPv6 form comes back as IPv4; nothing else changes.
		r.BornHost = netip.AddrPortFrom(r.BornHost.Addr().Unmap(), r.BornHost.Port())
		r.StoreHost = netip.AddrPortFrom(r.StoreHost.Addr().Unmap(), r.StoreHost.Port())
		if !same(&again, &r) {
			t.Fatalf("decoded %+v, then %+v", r, again)
		}
	})
}

func BenchmarkAppendRecord(b *testing.B) {
	r := goldenRecord(hostV4, storeHostV4)
	r.Body = make([]byte, 1024)
	buffer := make([]byte, 0, RecordSize(&r))
	b.SetBytes(int64(len(r.Body)))
	b.ReportAllocs()
	for b.Loop() {
		AppendRecord(buffer, &r)
	}
}

func BenchmarkDecode(b *testing.B) {
	r := goldenRecord(hostV4, storeHostV4)
	r.Body = make([]byte, 1024)
	encoded := AppendRecord(nil, &r)
	b.SetBytes(int64(len(r.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(encoded, &r); err != nil {
			b.Fatal(err)
		}
	}
}
