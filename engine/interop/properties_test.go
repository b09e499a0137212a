// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"loopmq/engine"
)

// Random properties texts mean the same to java.util.Properties and to us.
func TestPropertiesAsJavaReadsThem(t *testing.T) {
	t.Parallel()
	p := fetchPeer(t, javaVersions[0])
	rng := rand.New(rand.NewPCG(1, 1))
	alphabet := []string{"a", "b", "=", ":", " ", "\t", "\f", "\\", "\\", "\n", "\n", "\r", "\r\n", "#", "!", "\\u00e9", "\\u4", "u", "n", "\\uD83D\\uDE00"}
	var texts []string
	var in strings.Builder
	for range 20_000 {
		var text strings.Builder
		for range rng.IntN(14) {
			text.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		texts = append(texts, text.String())
		in.WriteString(hex.EncodeToString([]byte(text.String())) + "\n")
	}
	out, err := p.run(t, time.Minute, strings.NewReader(in.String()), "Props")
	must(t, err)
	lines := strings.Split(out, "\n")
	wrong := 0
	for i, text := range texts {
		if got := asJava(text); got != lines[i] && wrong < 10 {
			wrong++
			t.Errorf("%q: we read %s, Java reads %s", text, unhex(got), unhex(lines[i]))
		}
	}
}

func asJava(text string) string {
	properties, err := engine.ParseProperties([]byte(text))
	if err != nil {
		return "error"
	}
	values := make(map[string]string)
	for _, p := range properties {
		values[javaHex(p.Key)] = javaHex(p.Value)
	}
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, k+"="+values[k])
	}
	return strings.Join(pairs, " ")
}

// javaHex is hex of UTF-8 as Java encodes it: half of a surrogate pair is a question mark, to us it is U+FFFD.
func javaHex(s string) string {
	return hex.EncodeToString([]byte(strings.ReplaceAll(s, "\uFFFD", "?")))
}

func unhex(line string) string {
	var out []string
	for pair := range strings.FieldsSeq(line) {
		k, v, _ := strings.Cut(pair, "=")
		key, _ := hex.DecodeString(k)
		value, _ := hex.DecodeString(v)
		out = append(out, string(key)+"="+string(value))
	}
	return strings.Join(out, "|")
}
