// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loopmq/storage/vfs"
)

// benchStore is a store on the real file system, in the sizes of production.
func benchStore(b *testing.B, root string) *testStore {
	b.Helper()
	c := DefaultConfig()
	c.StorePathRootDir = root
	c.WaitTimeMillsInSendQueue = 60_000 // faster than any disk: puts wait for the next file
	store, err := Open(c, Options{Logger: discardLogger()})
	if err != nil {
		b.Fatal(err)
	}
	s := &testStore{MessageStore: store, t: b, fs: vfs.OS{}, closed: true}
	return s
}

// fill sends n messages of about 1 KiB in batches of one call, to 8 queues, each with a unique key and another.
func (s *testStore) fill(n int) {
	s.t.Helper()
	const window = 256
	done := make(chan PutMessageStatus, window)
	for sent := 0; sent < n; {
		puts := make([]*PutMessage, min(window, n-sent))
		for i := range puts {
			m := storeMessage{topic: "bench", queueID: int32((sent + i) % 8), size: 850,
				properties: fmt.Sprintf("UNIQ_KEY\x017F000001000018B4AAC2000000%06X\x02KEYS\x01order%d\x02TAGS\x01tagA\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster", sent+i, sent+i)}
			puts[i], _ = m.put()
			puts[i].Appended = func(_ *PutMessage, status PutMessageStatus) { done <- status }
		}
		sent += len(puts)
		for rest := puts; len(rest) > 0; {
			taken, status := s.AsyncPutMessages(rest)
			if rest = rest[taken:]; status != PutOK {
				time.Sleep(time.Millisecond)
			}
		}
		for range puts {
			if status := <-done; status != PutOK {
				s.t.Fatal(status)
			}
		}
	}
}

// reportCPU adds the processor time of the process per operation: on a shared machine wall time says little.
func reportCPU(b *testing.B, run func()) {
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	run()
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(max(b.N, 1)), "cpu-ns/op")
}

// BenchmarkDispatch is what one message costs the dispatcher: one queue unit and two index entries.
func BenchmarkDispatch(b *testing.B) {
	s := benchStore(b, b.TempDir())
	s.startUndispatched()
	defer s.abandon()
	s.fill(1000)
	s.dispatch()
	s.fill(b.N)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	reportCPU(b, s.dispatch)
}

// BenchmarkGetMessage pulls 32 messages of 1 KiB that lie in memory.
func BenchmarkGetMessage(b *testing.B) {
	s := benchStore(b, b.TempDir())
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const messages = 64_000
	s.fill(messages)
	s.settled()
	r := &GetMessageResult{}
	b.SetBytes(32 * 1024)
	b.ReportAllocs()
	reportCPU(b, func() {
		for i := 0; b.Loop(); i++ {
			r = s.GetMessage("bench", int32(i%8), QueueOffset(i*32%(messages/8-32)), 32, nil, r)
			if r.MsgCount != 32 {
				b.Fatal(r.MsgCount)
			}
			r.Release()
		}
	})
}

// BenchmarkRecover opens a store of a million messages, 1 GiB, as kill -9 leaves it: the page cache has everything, the
// checkpoint is as old as it was.
func BenchmarkRecover(b *testing.B) {
	root := b.TempDir()
	s := benchStore(b, root)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	s.fill(1_000_000)
	s.settled()
	checkpoint, err := os.ReadFile(filepath.Join(root, "checkpoint"))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for name, data := range map[string][]byte{"checkpoint": checkpoint, "abort": nil} {
			if err := os.WriteFile(filepath.Join(root, name), data, 0o644); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		reportCPU(b, func() { s = benchStore(b, root) })
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
