// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		properties, err := ParseProperties([]byte(text))
		if err != nil {
			t.Fatalf("ParseProperties(%q): %v", text, err)
		}
		var got []string
		for _, p := range properties {
			got = append(got, p.Key, p.Value)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Fatalf("ParseProperties(%q)=%q; want %q", text, got, want)
		}
	}
	f("")
	f("\n \t\f\r\n# a comment\n! another = one\n")
	f("a=b", "a", "b")
	f("a = b c ", "a", "b c ")
	f("a:b\nc d\ne\tf\n", "a", "b", "c", "d", "e", "f")
	f("a == b", "a", "= b")
	f("a : = b", "a", "= b")
	f("a b = c", "a", "b = c")
	f("alone", "alone", "")
	f("alone=", "alone", "")
	f("=value", "", "value")
	f("a=1\ra=2\r\nb=3", "a", "1", "a", "2", "b", "3")
	f("a=1 # not a comment", "a", "1 # not a comment")
	f(`a\=b\:c\ d=e`, "a=b:c d", "e")
	f(`a=\t\n\r\f\\\q`, "a", "\t\n\r\f\\q")
	f("a=1,\\\n   2,\\\r\n\t3", "a", "1,2,3")
	f("a=1\\\\\nb=2", "a", `1\`, "b", "2")
	f("a=1\\", "a", "1")
	f("\\\n\n a=b", "a", "b")
	f("\\", "", "") // as Java has it
	f(`a=\u00e9\u4E2D`, "a", "é中")
	f(`a=\uD83D\uDE00!`, "a", "😀!")
	f("a=é中", "a", "é中")               // UTF-8
	f("a=\xe9", "a", "é")              // Latin-1, since it is not UTF-8
	f("a=\xe9\\u00e8", "a", "\u00e9è") // and an escape beside it
}

func TestParsePropertiesLines(t *testing.T) {
	properties, err := ParseProperties([]byte("# one\n\na=1\\\n 2\r\nb=2\rc=3"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 5, 6} {
		if properties[i].Line != want {
			t.Fatalf("%s is in line %d; want %d", properties[i].Key, properties[i].Line, want)
		}
	}
}

func TestParsePropertiesMalformedEscape(t *testing.T) {
	for _, text := range []string{`x=1` + "\n" + `a=\u12`, `a=\u12g4`, `\u=1`} {
		if _, err := ParseProperties([]byte(text)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Fatalf("ParseProperties(%q): %v; want an error with the line", text, err)
		}
	}
}

// Whatever stands in key and value, the written line reads back as both.
func TestAppendPropertyReadsBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		key, value := randomText(rng), randomText(rng)
		line := appendProperty(nil, key, value)
		properties, err := ParseProperties(line)
		if err != nil {
			t.Fatalf("%q=%q as %q: %v", key, value, line, err)
		}
		if len(properties) != 1 || properties[0].Key != key || properties[0].Value != value {
			t.Fatalf("%q=%q as %q reads as %+v", key, value, line, properties)
		}
	}
}

func randomText(rng *rand.Rand) string {
	alphabet := []rune("ab =:#!\\\t\n\r\f\u00e9中😀u0\x00\x7f")
	text := make([]rune, rng.IntN(8))
	for i := range text {
		text[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(text)
}

func TestEditPropertiesKeepsTheRest(t *testing.T) {
	f := func(text string, changes []Property, want string) {
		t.Helper()
		got, err := editProperties([]byte(text), changes, sameKey)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("editProperties(%q)=%q; want %q", text, got, want)
		}
	}
	change := func(key, value string) []Property { return []Property{{Key: key, Value: value}} }
	f("", change("a", "1"), "a=1\n")
	f("# hello\r\nmine = 5 \nb=2", change("a", "1"), "# hello\r\nmine = 5 \nb=2\na=1\n")
	f("a = 0,\\\n  1\n# tail\n", change("a", "x y"), "a=x y\n# tail\n")
	f("a=0\nb=1\na=2\n", change("a", "3"), "a=3\nb=1\na=3\n")
	f(" mapedFileSizeCommitLog : 1\n", change("mappedFileSizeCommitLog", "2"), " mapedFileSizeCommitLog=2\n")
	f("a=1\n", []Property{{Key: "b", Value: "中 = #"}, {Key: "c", Value: " x"}}, "a=1\nb=\\u4E2D = #\nc=\\ x\n")
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("# c\na = b\\\n c\nd:\\u00e9\n\\\n"))
	f.Add([]byte("a=\xe9\r\n!x\n=\n"))
	f.Add([]byte{'\\'})
	f.Fuzz(func(t *testing.T, text []byte) {
		properties, err := ParseProperties(text)
		if err != nil {
			return
		}
		var written []byte
		for _, p := range properties {
			if p.start >= p.end || p.end > len(text) || p.Line < 1 {
				t.Fatalf("%q is at [%d, %d) of %d bytes in line %d", p.Key, p.start, p.end, len(text), p.Line)
			}
			written = append(appendProperty(written, p.Key, p.Value), '\n')
		}
		again, err := ParseProperties(written)
		if err != nil || len(again) != len(properties) {
			t.Fatalf("%q written as %q: %d lines, %v; want %d", text, written, len(again), err, len(properties))
		}
		for i, p := range properties {
			if again[i].Key != p.Key || again[i].Value != p.Value {
				t.Fatalf("%q=%q reads back as %q=%q", p.Key, p.Value, again[i].Key, again[i].Value)
			}
		}
		// Changing nothing that is there leaves every byte.
		edited, err := editProperties(text, nil, sameKey)
		if err != nil || !bytes.Equal(edited, text) {
			t.Fatalf("an empty edit made %q of %q: %v", edited, text, err)
		}
	})
}
