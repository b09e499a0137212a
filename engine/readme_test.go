// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"loopmq/storage"
)

var rewriteReadme = flag.Bool("rewrite", false, "write the tables of README.md anew")

// The README's tables are those of the code. -rewrite brings them up to date.
func TestReadmeTables(t *testing.T) {
	const path = "../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := replaceSection(t, string(text), "durability", durabilityTable())
	want = replaceSection(t, want, "keys", keyTable())
	want = replaceSection(t, want, "metrics", metricTable())
	if want == string(text) {
		return
	}
	if !*rewriteReadme {
		t.Fatal("the tables of README.md are not those of the code: go test ./engine -run TestReadmeTables -rewrite")
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replaceSection(t *testing.T, text, name, table string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("README.md has no section %s", name)
	}
	return before + begin + table + end + after
}

func durabilityTable() string {
	var b strings.Builder
	b.WriteString("| flush | role | pool | an OK survives |\n|---|---|---|---|\n")
	for _, d := range durabilities {
		pool := "off"
		switch {
		case d.flush == storage.SyncFlush:
			pool = "no effect"
		case d.pool:
			pool = "on"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", flushWords[d.flush], roleWords[d.role], pool, d.survives)
	}
	return b.String()
}

func metricTable() string {
	docs := slices.Clone(metricDocs)
	slices.SortFunc(docs, func(a, b metricDoc) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("| metric | labels | kind | |\n|---|---|---|---|\n")
	for _, doc := range docs {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", doc.name, strings.Join(doc.labels, ", "), doc.kind, doc.help)
	}
	return b.String()
}

func keyTable() string {
	d := DefaultConfig()
	// What follows from the machine or from other keys has no number here.
	follows := map[string]string{
		"brokerIP1": "this host's address", "brokerIP2": "this host's address", "brokerName": "this host's name", "haListenPort": "listenPort+1",
		"namesrvAddr": "", "pullMessageThreadPoolNums": "16 + 2 a processor", "queryMessageThreadPoolNums": "8 + processors",
		"serverLoops": "half the processors", "storePathCommitLog": "storePathRootDir/commitlog", "storePathRootDir": "~/store",
	}
	var b strings.Builder
	b.WriteString("| key | default | unit | live | |\n|---|---|---|---|---|\n")
	for i := range configKeys {
		key := &configKeys[i]
		value, ok := follows[key.name]
		if !ok {
			value = key.get(&d)
		}
		live := "live"
		if key.start {
			live = ""
		}
		names := "`" + strings.Join(append([]string{key.name}, key.aliases...), "`, `") + "`"
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", names, value, key.unit, live, key.doc)
	}
	return b.String()
}
