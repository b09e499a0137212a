// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	"loopmq/storage/message"
	"loopmq/storage/vfs/faultfs"
)

var fixtureVersions = []string{"4.9.7", "5.3.3"}

// unpackFixture lays a store that a Java broker wrote into a file system in memory.
func unpackFixture(t *testing.T, version, name string) *faultfs.FS {
	t.Helper()
	file, err := os.Open(path.Join("testdata", "java-"+version, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	fsys := faultfs.New()
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return fsys
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Join(testRoot, h.Name)
		if h.FileInfo().IsDir() {
			if err := fsys.MkdirAll(name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = fsys.WriteFile(name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// javaConfig is what recipe.sh configures.
func javaConfig(c *Config) {
	c.MappedFileSizeCommitLog = 64 << 10
	c.MappedFileSizeConsumeQueue = 400
	c.MaxHashSlotNum, c.MaxIndexNum = 50, 200
}

// sentMessage is one line of sent.tsv: what the client sent, and the broker's answer.
type sentMessage struct {
	topic       string
	queueID     int32
	queueOffset QueueOffset
	offset      PhyOffset
	uniqKey     string
	keys        []string
	delayLevel  int
	body        string // empty for the messages of a batch
}

func readSent(t *testing.T, fsys *faultfs.FS) (sent []sentMessage) {
	t.Helper()
	text, err := fsys.ReadFile(path.Join(testRoot, "sent.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		queueID, _ := strconv.Atoi(f[2])
		queueOffset, _ := strconv.ParseInt(f[3], 10, 64)
		m := sentMessage{topic: f[1], queueID: int32(queueID)}
		for i, id := range strings.Split(f[4], ",") {
			raw, err := hex.DecodeString(id)
			if err != nil {
				t.Fatal(err)
			}
			m.offset = PhyOffset(binary.BigEndian.Uint64(raw[8:]))
			m.uniqKey = strings.Split(f[5], ",")[i]
			m.queueOffset = QueueOffset(queueOffset) + QueueOffset(i)
			if f[0] == "single" {
				m.keys, m.body = strings.Fields(f[7]), f[9]
				m.delayLevel, _ = strconv.Atoi(f[8])
			}
			sent = append(sent, m)
		}
	}
	return sent
}

// stored is where the broker put the message first.
func (m sentMessage) stored() (topic string, queueID int32) {
	if m.delayLevel > 0 {
		return scheduleTopic, int32(m.delayLevel - 1)
	}
	return m.topic, m.queueID
}

// TestJavaStoreIsTakenOver opens stores that Java brokers left, in order and not, and finds every message by queue, by
// offset and by key; then it writes on, and opens them once more.
func TestJavaStoreIsTakenOver(t *testing.T) {
	for _, version := range fixtureVersions {
		for _, name := range []string{"clean", "killed"} {
			t.Run(version+"/"+name, func(t *testing.T) {
				fsys := unpackFixture(t, version, name)
				sent := readSent(t, fsys)
				s := openTestStore(t, fsys, javaConfig).settled()
				for _, m := range sent {
					if err := s.findSent(m); err != nil {
						t.Error(err)
					}
				}
				before := map[string]QueueOffset{}
				for topic, ids := range s.Topics() {
					for _, id := range ids {
						_, before[fmt.Sprint(topic, id)], _ = s.QueueOffsets(topic, id)
					}
				}
				put := s.send(storeMessage{topic: "Orders", queueID: 0, size: 10})
				if put.QueueOffset != before["Orders0"] {
					t.Errorf("Orders goes on at %d, want %d", put.QueueOffset, before["Orders0"])
				}
				s.sendMany(100)
				s.settled().close()
				s = openTestStore(t, fsys, javaConfig).settled()
				for _, m := range sent {
					if err := s.findSent(m); err != nil {
						t.Errorf("opened again: %v", err)
					}
				}
			})
		}
	}
}

func (s *testStore) findSent(m sentMessage) error {
	topic, queueID := m.stored()
	r := s.GetMessage(topic, queueID, m.queueOffset, 1, nil, nil)
	defer r.Release()
	if r.Status != Found {
		return fmt.Errorf("%s/%d at %d: status %d", topic, queueID, m.queueOffset, r.Status)
	}
	var rec message.Record
	if err := message.Decode(r.Buffers[0].Bytes(), &rec); err != nil {
		return err
	}
	if PhyOffset(rec.PhysicalOffset) != m.offset || m.body != "" && string(rec.Body) != m.body {
		return fmt.Errorf("%s/%d at %d: found at %d, want %d, body %q", topic, queueID, m.queueOffset, rec.PhysicalOffset, m.offset, rec.Body)
	}
	sel, err := s.LookMessageByOffset(m.offset)
	if err != nil {
		return err
	}
	sel.Release()
	if m.body == "" { // 5.x answers a batch with other ids than it stores
		key, _ := message.PropertyValue(rec.Properties, message.PropertyUniqKey)
		m.uniqKey = string(key)
	}
	for _, key := range append(m.keys, m.uniqKey) {
		q := s.QueryMessage(topic, key, 64, 0, math.MaxInt64)
		found := false
		for _, b := range q.Buffers {
			found = found || b.StartOffset == m.offset
		}
		q.Release()
		if !found {
			return fmt.Errorf("%s/%d at %d is not found by key %q", topic, queueID, m.queueOffset, key)
		}
	}
	return nil
}

// TestQueuesAndIndexAreJavasBytes builds queues and index of a Java log anew, and compares the files.
func TestQueuesAndIndexAreJavasBytes(t *testing.T) {
	for _, version := range fixtureVersions {
		t.Run(version, func(t *testing.T) {
			java := unpackFixture(t, version, "clean")
			fsys := cloneFS(t, java)
			for _, dir := range []string{"consumequeue", "index"} {
				if err := fsys.RemoveAll(path.Join(testRoot, dir)); err != nil {
					t.Fatal(err)
				}
			}
			s := openTestStore(t, fsys, javaConfig)
			s.settled().close()
			compareDirs(t, java, fsys, path.Join(testRoot, "consumequeue"))
			compareIndex(t, java, fsys, path.Join(testRoot, "index"))
		})
	}
}

func compareDirs(t *testing.T, want, got *faultfs.FS, dir string) {
	t.Helper()
	entries, err := want.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Dir {
			compareDirs(t, want, got, name)
			continue
		}
		a, _ := want.ReadFile(name)
		if b, err := got.ReadFile(name); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
}

// compareIndex leaves out the names, which are times.
func compareIndex(t *testing.T, want, got *faultfs.FS, dir string) {
	t.Helper()
	javas, _ := want.List(dir)
	ours, _ := got.List(dir)
	if len(javas) == 0 || len(javas) != len(ours) {
		t.Fatalf("%d index files, Java has %d", len(ours), len(javas))
	}
	for i := range javas {
		a, _ := want.ReadFile(path.Join(dir, javas[i].Name))
		b, _ := got.ReadFile(path.Join(dir, ours[i].Name))
		if !bytes.Equal(a, b) {
			t.Errorf("index file %d differs from Java's %s", i, javas[i].Name)
		}
	}
}
