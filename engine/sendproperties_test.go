// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"maps"
	"testing"

	"loopmq/storage/message"
)

// storedProperties is what a single send does with its sender's properties.
func storedProperties(t testing.TB, props []byte, delayed, dropDelay bool) []byte {
	t.Helper()
	p, err := scanSendProperties(props)
	if err != nil {
		return nil
	}
	p.dropDelay = dropDelay
	stored := appendStoredProperties(nil, props, &p, delayed)
	stored = message.AppendProperty(stored, message.PropertyCluster, "DefaultCluster")
	if delayed {
		stored = appendRealTopic(stored, "T", 3)
	}
	return stored
}

// What is stored parses to exactly the sender's pairs and the broker's, with or without a last separator
// (apache/rocketmq#3476).
func TestStoredPropertiesAreTheUnion(t *testing.T) {
	f := func(props string, want map[string]string) {
		t.Helper()
		if got := message.ParseProperties(storedProperties(t, []byte(props), false, false)); !maps.Equal(got, want) {
			t.Errorf("%q is stored as %v; want %v", props, got, want)
		}
	}
	f("", map[string]string{"CLUSTER": "DefaultCluster"})
	f("\x02", map[string]string{"CLUSTER": "DefaultCluster"})
	f("TAGS\x01a", map[string]string{"TAGS": "a", "CLUSTER": "DefaultCluster"})
	f("TAGS\x01a\x02", map[string]string{"TAGS": "a", "CLUSTER": "DefaultCluster"})
	f("WAIT\x01true", map[string]string{"CLUSTER": "DefaultCluster"})
	f("WAIT\x01false\x02TAGS\x01a", map[string]string{"TAGS": "a", "CLUSTER": "DefaultCluster"})
	f("TAGS\x01a\x02WAIT\x01true\x02", map[string]string{"TAGS": "a", "CLUSTER": "DefaultCluster"})
	f("CLUSTER\x01other\x02K\x01v", map[string]string{"K": "v", "CLUSTER": "DefaultCluster"})
	f("K\x01v\x02K\x01w", map[string]string{"K": "w", "CLUSTER": "DefaultCluster"})
	f("no pair\x02K\x01", map[string]string{"CLUSTER": "DefaultCluster"})
}

func TestSendPropertiesAreRead(t *testing.T) {
	p, err := scanSendProperties([]byte("WAIT\x01FALSE\x02DELAY\x017\x02TRAN_MSG\x01TRUE\x02"))
	if err != nil || p.waitStoreMsgOK || p.delayLevel != 7 || !p.half {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err = scanSendProperties(nil); err != nil || !p.waitStoreMsgOK || p.delayLevel != 0 || p.half {
		t.Errorf("without properties: %+v, %v", p, err)
	}
	if _, err = scanSendProperties([]byte("DELAY\x01soon")); err == nil {
		t.Error("a delay level that is no number is accepted")
	}
}

// A redelivery carries REAL_TOPIC of its earlier delay: the new one replaces it.
func TestDelayedPropertiesReplaceAnEarlierDelay(t *testing.T) {
	props := []byte("REAL_TOPIC\x01old\x02DELAY\x013\x02REAL_QID\x019\x02K\x01v")
	stored := storedProperties(t, props, true, false)
	want := map[string]string{"DELAY": "3", "K": "v", "CLUSTER": "DefaultCluster", "REAL_TOPIC": "T", "REAL_QID": "3"}
	if got := message.ParseProperties(stored); !maps.Equal(got, want) {
		t.Errorf("stored %v; want %v", got, want)
	}
	if n := bytes.Count(stored, []byte("REAL_TOPIC")); n != 1 {
		t.Errorf("REAL_TOPIC stands %d times", n)
	}
}

func FuzzStoredProperties(f *testing.F) {
	for _, s := range []string{"", "TAGS\x01a\x02WAIT\x01true\x02", "K\x01v", "DELAY\x013\x02CLUSTER\x01x", "\x01\x02\x02", "REAL_QID\x011"} {
		f.Add([]byte(s), true, false)
		f.Add([]byte(s), false, true)
	}
	f.Fuzz(func(t *testing.T, props []byte, delayed, dropDelay bool) {
		stored := storedProperties(t, props, delayed, dropDelay)
		if stored == nil {
			return
		}
		want := message.ParseProperties(props)
		delete(want, "WAIT")
		if dropDelay {
			delete(want, "DELAY")
		}
		want["CLUSTER"] = "DefaultCluster"
		if delayed {
			want["REAL_TOPIC"], want["REAL_QID"] = "T", "3"
		}
		if got := message.ParseProperties(stored); !maps.Equal(got, want) {
			t.Errorf("%q (delayed %v, without DELAY %v) is stored as %v; want %v", props, delayed, dropDelay, got, want)
		}
	})
}
