// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"maps"
	"testing"
)

// TestPropertiesAsJavaReads covers what MessageDecoder#string2messageProperties takes and drops.
func TestPropertiesAsJavaReads(t *testing.T) {
	f := func(props string, want map[string]string) {
		t.Helper()
		if got := ParseProperties([]byte(props)); !maps.Equal(got, want) {
			t.Fatalf("ParseProperties(%q)=%v; want %v", props, got, want)
		}
		for name, value := range want {
			if got, ok := PropertyValue([]byte(props), name); !ok || string(got) != value {
				t.Fatalf("PropertyValue(%q, %q)=%q, %v", props, name, got, ok)
			}
		}
		if _, ok := PropertyValue([]byte(props), "absent"); ok {
			t.Fatalf("PropertyValue(%q) found what is not there", props)
		}
	}
	f("", map[string]string{})
	f("a\x01b", map[string]string{"a": "b"})
	f("a\x01b\x02", map[string]string{"a": "b"})
	f("a\x01b\x02c\x01d", map[string]string{"a": "b", "c": "d"})
	f("a\x01b\x02c\x01d\x02", map[string]string{"a": "b", "c": "d"})
	f("\x02\x02a\x01b\x02\x02", map[string]string{"a": "b"})
	f("a\x01\x02c\x01d", map[string]string{"c": "d"})
	f("\x01b\x02c\x01d", map[string]string{"c": "d"})
	f("name\x02c\x01d", map[string]string{"c": "d"})
	f("a\x01b\x01c", map[string]string{"a": "b\x01c"})
	f("a\x01first\x02a\x01last", map[string]string{"a": "last"})
	f("a\x01first\x02a\x01", map[string]string{"a": "first"})
	f("标\x01签", map[string]string{"标": "签"})
}

func TestAppendProperty(t *testing.T) {
	f := func(props, want string) {
		t.Helper()
		if got := AppendProperty([]byte(props), "n", "v"); string(got) != want {
			t.Fatalf("after %q: %q; want %q", props, got, want)
		}
		if got := AppendProperties([]byte(props), []byte("n\x01v")); string(got) != want {
			t.Fatalf("after %q: %q; want %q", props, got, want)
		}
		if got := AppendProperties([]byte(props), nil); string(got) != props {
			t.Fatalf("nothing after %q: %q", props, got)
		}
	}
	f("", "n\x01v")
	f("a\x01b", "a\x01b\x02n\x01v")
	f("a\x01b\x02", "a\x01b\x02n\x01v")
}

func TestRemoveProperty(t *testing.T) {
	f := func(props, name, want string) {
		t.Helper()
		if got := RemoveProperty(nil, []byte(props), name); string(got) != want {
			t.Fatalf("without %q %q is %q; want %q", name, props, got, want)
		}
		in := []byte(props)
		if got := RemoveProperty(in[:0], in, name); string(got) != want {
			t.Fatalf("in place, without %q %q is %q; want %q", name, props, got, want)
		}
	}
	f("", "WAIT", "")
	f("WAIT\x01true", "WAIT", "")
	f("WAIT\x01true\x02a\x01b\x02", "WAIT", "a\x01b")
	f("a\x01b\x02WAIT\x01true\x02c\x01d", "WAIT", "a\x01b\x02c\x01d")
	f("a\x01b\x02WAIT\x01true\x02WAIT\x01false", "WAIT", "a\x01b")
	f("WAITING\x01true\x02XWAIT\x01x", "WAIT", "WAITING\x01true\x02XWAIT\x01x")
	f("\x02broken\x02a\x01b", "WAIT", "a\x01b")
}

func FuzzProperties(f *testing.F) {
	f.Add([]byte("a\x01b\x02c\x01d\x02"), "a")
	f.Add([]byte("\x02\x01\x02a\x01\x01\x02a\x01b"), "a")
	f.Add([]byte("TAGS\x01TagA\x02KEYS\x01k"), "TAGS")
	f.Fuzz(func(t *testing.T, props []byte, name string) {
		m := ParseProperties(props)
		value, ok := PropertyValue(props, name)
		if want, there := m[name]; ok != there || string(value) != want {
			t.Fatalf("PropertyValue: %q, %v; the map has %q, %v", value, ok, want, there)
		}
		var encoded []byte
		for name, value := range m {
			encoded = AppendProperty(encoded, name, value)
		}
		if again := ParseProperties(encoded); !maps.Equal(again, m) {
			t.Fatalf("%v became %v", m, again)
		}
		apart := RemoveProperty(nil, props, name)
		inPlace := bytes.Clone(props)
		if inPlace = RemoveProperty(inPlace[:0], inPlace, name); !bytes.Equal(apart, inPlace) {
			t.Fatalf("removed apart %q, in place %q", apart, inPlace)
		}
		delete(m, name)
		if left := ParseProperties(apart); !maps.Equal(left, m) {
			t.Fatalf("after removal %v; want %v", left, m)
		}
		m["n"] = "v"
		if grown := ParseProperties(AppendProperty(apart, "n", "v")); !maps.Equal(grown, m) {
			t.Fatalf("after appending %v; want %v", grown, m)
		}
	})
}

func BenchmarkPropertyValue(b *testing.B) {
	props := []byte("UNIQ_KEY\x017F0000010B1E18B4AAC2000000000001\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01OrderID001\x02CLUSTER\x01DefaultCluster")
	b.ReportAllocs()
	for b.Loop() {
		PropertyValue(props, PropertyTags)
	}
}
