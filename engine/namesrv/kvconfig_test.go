// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// Namespaces count also when nothing is left in them, and so do bytes.
func TestKVConfigIsBoundedInEveryWay(t *testing.T) {
	m := &KVConfigManager{}
	empty := make(map[string]map[string]string, kvEntriesMax)
	for i := range kvEntriesMax - 1 {
		empty[strconv.Itoa(i)] = map[string]string{}
	}
	m.table.Store(&kvTable{ConfigTable: empty})
	if err := m.Put("ns", "key", "v"); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete("ns", "key"); err != nil {
		t.Fatal(err)
	}
	if body := m.table.Load().encodeNamespace("ns"); string(body) != `{"table":{}}` {
		t.Fatalf("what brokers are told of the last key that went: %s", body)
	}
	if err := m.Put("other", "key", "v"); err == nil {
		t.Fatal("a namespace beyond the limit is taken")
	}

	m = &KVConfigManager{}
	m.table.Store(&kvTable{})
	half := strings.Repeat("v", kvBytesMax/2)
	if err := m.Put("ns", "one", half); err != nil {
		t.Fatal(err)
	}
	if err := m.Put("ns", "two", half); err == nil {
		t.Fatal("bytes beyond the limit are taken")
	}
	if err := m.Put("ns", "escaped", strings.Repeat("\x01", kvBytesMax/10)); err == nil {
		t.Fatal("bytes that escape to more than the limit are taken")
	}
	if got := m.table.Load().jsonSize(); got < len(m.table.Load().encodeNamespace("ns"))-len(`{"table":{}}`) {
		t.Fatalf("%d bytes are counted for %d", got, len(m.table.Load().encodeNamespace("ns")))
	}
	m.table.Store(&kvTable{ConfigTable: map[string]map[string]string{"ns": {"k": half + half + half}}}) // from a file
	if err := m.Put("ns", "k", half+half); err != nil {
		t.Fatalf("one that gets smaller: %v", err)
	}
}
