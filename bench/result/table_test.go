// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-rewrite writes it anew); got\n%s", path, got)
	}
}

func TestTables(t *testing.T) {
	results := append(sampleComparison(), sampleRun(7, "first"), sampleRun(8, "second, with a | in its name"))
	results[len(results)-1].Accounted = nil
	idle := &Result{Label: "idle", Seconds: 10, Settings: Settings{Workload: "idle"}, Started: results[0].Started, Servers: []Usage{{Name: "server", CPUSeconds: 0.012, RSSAnon: 28e6, RSS: 40e6, Threads: 14}}}
	results = append(results, idle)
	var text, markdown bytes.Buffer
	if err := WriteText(&text, results); err != nil {
		t.Fatal(err)
	}
	if err := WriteMarkdown(&markdown, results); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", text.Bytes())
	golden(t, "table.md", markdown.Bytes())
}

func TestFormats(t *testing.T) {
	f := func(format func(float64) string, v float64, want string) {
		t.Helper()
		if got := format(v); got != want {
			t.Errorf("%v is written %q; want %q", v, got, want)
		}
	}
	f(formatCount, 0, "0")
	f(formatCount, 999.4, "999")
	f(formatCount, 1000, "1,000")
	f(formatCount, -1234567, "-1,234,567")
	f(formatFine, 0, "0")
	f(formatFine, 0.00012, "1.2e-04")
	f(formatFine, 0.1234, "0.123")
	f(formatFine, 1.234, "1.23")
	f(formatFine, 12.34, "12.3")
	f(formatFine, 1234.5, "1,235")
	f(formatBytes, 12, "12 B")
	f(formatBytes, 1500, "1.50 kB")
	f(formatBytes, 3.2e9, "3.20 GB")
	f(axisLabel, 0.01, "0.01")
	f(axisLabel, 5000, "5000")
	f(axisLabel, 20000, "20k")
	f(axisLabel, 1.5e6, "1.5M")
}

// What may not be read of another user's process is not told as nothing.
func TestBytesUnknown(t *testing.T) {
	r := &Result{Label: "run", Messages: 1e6, Seconds: 1, Servers: []Usage{{Name: "master", BytesUnknown: true}}}
	r.Derive()
	var text bytes.Buffer
	if err := WriteText(&text, []*Result{r}); err != nil {
		t.Fatal(err)
	}
	if told := text.String(); !strings.Contains(told, "not ours to see") {
		t.Errorf("the table is\n%s", told)
	}
}
