// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/storage/vfs"
)

// benchLog is a log on a real file system, in $LOOPMQ_BENCH_DIR or the temporary directory.
func benchLog(b *testing.B, change func(*Config)) *testLog {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("LOOPMQ_BENCH_DIR"), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return openTestLogAt(b, vfs.OS{}, dir, func(c *Config) {
		c.MappedFileSizeCommitLog = 256 << 20
		c.PopulateWindow = 32 << 20
		c.WaitTimeMillsInSendQueue = 60_000 // faster than any disk: puts wait for the next file
		if change != nil {
			change(c)
		}
	})
}

// trim deletes files that a long benchmark has left behind.
func (l *testLog) trim() {
	if _, err := l.queue.deleteBefore(l.queue.maxOffset() - l.queue.fileSize); err != nil {
		l.t.Fatal(err)
	}
}

func benchmarkPut(b *testing.B, body, turn int, change func(*Config)) {
	l := benchLog(b, change)
	puts := make([]*PutMessage, turn)
	var pending sync.WaitGroup
	for i := range puts {
		puts[i] = &PutMessage{
			Record: testRecord(nil, "BenchmarkTopic", 0, bytes.Repeat([]byte{1}, body)),
			MsgNum: 1, Topic: "BenchmarkTopic",
			Appended: func(_ *PutMessage, status PutMessageStatus) {
				if status != PutOK {
					b.Error(status)
				}
				pending.Done()
			},
		}
	}
	run := func() {
		pending.Add(turn)
		for rest := puts; len(rest) > 0; {
			n, _ := l.asyncPutMessages(rest)
			rest = rest[n:]
		}
		pending.Wait()
	}
	run() // the first file
	b.SetBytes(int64(len(puts[0].Record)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += turn {
		run()
		if i%16384 == 0 {
			l.trim()
		}
	}
	b.StopTimer()
	total := l.counters.appendInline.Load() + l.counters.appendQueued.Load()
	b.ReportMetric(100*float64(l.counters.appendInline.Load())/float64(total), "%inline")
}

func BenchmarkPut(b *testing.B) {
	for _, body := range []int{128, 1024, 16384} {
		for _, turn := range []int{1, 16} {
			b.Run(fmt.Sprintf("body=%d/turn=%d/flush=async", body, turn), func(b *testing.B) {
				benchmarkPut(b, body, turn, nil)
			})
		}
	}
}

// BenchmarkPutContended has event loops that each append turns of puts at once.
func BenchmarkPutContended(b *testing.B) {
	for _, loops := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("body=1024/turn=8/loops=%d", loops), func(b *testing.B) {
			benchmarkPutContended(b, loops, 8)
		})
	}
}

func benchmarkPutContended(b *testing.B, loops, turn int) {
	l := benchLog(b, nil)
	body := bytes.Repeat([]byte{1}, 1024)
	b.SetBytes(int64(len(testRecord(nil, "BenchmarkTopic", 0, body))))
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range loops {
		wg.Go(func() {
			var pending sync.WaitGroup
			puts := make([]*PutMessage, turn)
			for i := range puts {
				puts[i] = &PutMessage{
					Record: testRecord(nil, "BenchmarkTopic", 0, body), MsgNum: 1, Topic: "BenchmarkTopic",
					Appended: func(*PutMessage, PutMessageStatus) { pending.Done() },
				}
			}
			for left.Add(int64(-turn)) > int64(-turn) {
				pending.Add(turn)
				for rest := puts; len(rest) > 0; {
					n, _ := l.asyncPutMessages(rest)
					rest = rest[n:]
				}
				pending.Wait()
				for range turn { // decoding takes longer than appending
					testRecord(puts[0].Record[:0], "BenchmarkTopic", 0, body)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	inline, queued := l.counters.appendInline.Load(), l.counters.appendQueued.Load()
	b.ReportMetric(100*float64(inline)/float64(inline+queued), "%inline")
}

// BenchmarkGroupCommit measures puts that wait for the disk, from producers that each keep one in flight.
func BenchmarkGroupCommit(b *testing.B) {
	for _, producers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("body=1024/producers=%d", producers), func(b *testing.B) {
			benchmarkGroupCommit(b, producers)
		})
	}
}

func benchmarkGroupCommit(b *testing.B, producers int) {
	l := benchLog(b, func(c *Config) { c.FlushDiskType = SyncFlush })
	body := bytes.Repeat([]byte{1}, 1024)
	b.SetBytes(int64(len(testRecord(nil, "BenchmarkTopic", 0, body))))
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			done := make(chan PutMessageStatus, 1)
			end := func(status PutMessageStatus) { done <- status }
			put := &PutMessage{Record: testRecord(nil, "BenchmarkTopic", 0, body), MsgNum: 1, Topic: "BenchmarkTopic"}
			put.Appended = func(p *PutMessage, status PutMessageStatus) {
				if status != PutOK {
					end(status)
					return
				}
				l.submitFlushRequest(GroupCommitRequest{end: p.End(), deadline: time.Now().Add(5 * time.Second), done: end})
			}
			for left.Add(-1) >= 0 {
				l.take(put)
				if status := <-done; status != PutOK {
					b.Error(status)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(max(l.counters.flushTimes.Count(), 1)), "puts/flush")
	total := l.counters.appendInline.Load() + l.counters.appendQueued.Load()
	b.ReportMetric(100*float64(l.counters.appendInline.Load())/float64(total), "%inline")
}
