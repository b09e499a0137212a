// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKVConfigSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "namesrv", "kvConfig.json")
	open := func() *KVConfigManager {
		t.Helper()
		m, warning, err := loadKVConfig(path)
		if err != nil || warning != nil {
			t.Fatalf("load: %v, warning %v", err, warning)
		}
		return m
	}
	m := open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.Put("ns", "k", "v"))
	must(m.Put("ns", "gone", "v"))
	must(m.Put(namespaceOrderTopicConfig, "T", "broker-a:4;broker-b:4"))
	must(m.Delete("ns", "gone"))
	must(m.Delete("unknown", "k"))
	m = open()
	if got := string(m.table.Load().encodeNamespace("ns")); got != `{"table":{"k":"v"}}` {
		t.Fatal(got)
	}
	if m.table.Load().encodeNamespace("unknown") != nil {
		t.Fatal("a namespace out of nothing")
	}

	// A crash between the two renames leaves the backup alone.
	must(os.Rename(path, path+".bak"))
	if got := open().table.Load().get("ns", "k"); got != "v" {
		t.Fatalf("from the backup: %q", got)
	}
}

func TestDamagedKVConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kvConfig.json")
	m, _, err := loadKVConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"old", "new"} {
		if err := m.Put("ns", "k", v); err != nil {
			t.Fatal(err)
		}
	}
	damage := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(`{"configTable":{"ns":{"k`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	damage(path)
	m, warning, err := loadKVConfig(path)
	if err != nil || warning == nil || m.table.Load().get("ns", "k") != "old" {
		t.Fatalf("damaged: %v, warning %v", err, warning)
	}
	if _, warning, err := loadKVConfig(path); err != nil || warning != nil {
		t.Fatalf("the backup was not put back: %v, warning %v", err, warning)
	}
	damage(path)
	damage(path + ".bak")
	if _, _, err := loadKVConfig(path); err == nil {
		t.Fatal("started with an empty table over two damaged files")
	}
}

func TestKVConfigIsBounded(t *testing.T) {
	m := &KVConfigManager{}
	full := make(map[string]string, kvEntriesMax)
	for i := range kvEntriesMax {
		full[string(rune(0x4000+i%0x4000))+string(rune(0x4000+i/0x4000))] = "v"
	}
	full["mine"] = "v"
	m.table.Store(&kvTable{ConfigTable: map[string]map[string]string{"ns": full}})
	if err := m.Put("ns", "one more", "v"); err == nil {
		t.Fatal("taken")
	}
	if err := m.Put("ns", "mine", "w"); err != nil {
		t.Fatal(err)
	}
}
