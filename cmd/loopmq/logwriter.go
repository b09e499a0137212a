// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// logBacklogMax bounds the lines that wait to be written, in bytes. As much again may be on its way to the reader.
	logBacklogMax = 1 << 20

	// logFlushMax bounds the wait for what is queued, where something has to follow it or the process ends.
	logFlushMax = 2 * time.Second
)

// stderr is where the log goes, and the error that ends the process. It writes through until a server makes its logger;
// verbs that only print wait for their reader, as tools do.
var stderr = &logWriter{out: os.Stderr}

// logWriter takes the lines of the log without ever waiting for their reader. Event loops log too, and a reader can stand
// still: a full pipe, a journal that stalls, a terminal stopped with ^S.
//
// Lines are copied behind each other; a goroutine, which sleeps until there is one, writes all that have gathered with one
// call while the next gather in a second buffer. At logBacklogMax further lines are dropped. Where lines are missing,
// because of that or of a failed write, one line in the log's form says how many, as soon as something can be written.
//
// Whoever ends the process calls Flush before. A panic does not: the runtime writes its trace itself, and a line queued
// just before may be missing or stand inside the trace. What a BUG: has to say is in its own message for that reason.
type logWriter struct {
	out  io.Writer
	wake chan struct{} // capacity 1: something was queued; nil: not started

	mu      sync.Mutex // guards the fields below; nothing blocks under it
	queued  []byte
	dropped int             // lines that would have come after queued
	flushes []chan struct{} // to be closed when queued is written

	// The goroutine's own.
	writing []byte
	lost    int   // lines missing behind the last one written
	lostErr error // why, unless there was no room
	cut     bool  // the last line written is not whole
	notice  bytes.Buffer
	notices slog.Handler // writes to notice
}

// start makes w queue what it gets; newHandler gives the lines about lost lines the form of the others.
func (w *logWriter) start(newHandler func(io.Writer) slog.Handler) {
	w.notices = newHandler(&w.notice)
	w.wake = make(chan struct{}, 1)
	go w.run()
}

// Write queues one line. It keeps nothing of line, and never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	if w.wake == nil {
		return w.out.Write(line)
	}
	w.mu.Lock()
	// A line behind a dropped one is dropped as well, so that there is one place where lines are missing.
	if w.dropped > 0 || len(w.queued)+len(line) > logBacklogMax {
		w.dropped++
	} else {
		w.queued = append(w.queued, line...)
	}
	w.mu.Unlock()
	w.wakeUp()
	return len(line), nil
}

// Flush waits until the lines queued so far are written, or for limit.
func (w *logWriter) Flush(limit time.Duration) {
	if w.wake == nil {
		return
	}
	written := make(chan struct{})
	w.mu.Lock()
	w.flushes = append(w.flushes, written)
	w.mu.Unlock()
	w.wakeUp()
	select {
	case <-written:
	case <-time.After(limit):
	}
}

func (w *logWriter) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it has yet to look
	}
}

func (w *logWriter) run() {
	for range w.wake {
		w.writeQueued()
	}
}

func (w *logWriter) writeQueued() {
	w.mu.Lock()
	w.queued, w.writing = w.writing[:0], w.queued
	dropped, flushes := w.dropped, w.flushes
	w.dropped, w.flushes = 0, nil
	w.mu.Unlock()

	rest := w.writing
	if w.writeLost() { // of the writes before
		rest = w.write(w.writing)
	}
	w.lost += bytes.Count(rest, []byte{'\n'}) + dropped
	w.writeLost()
	for _, written := range flushes {
		close(written)
	}
}

// write returns what could not be written. That is lost: tried again and again it would keep a processor busy where nobody
// reads any more (a broken pipe), and hold back what is newer until there is room again (a full disk).
func (w *logWriter) write(lines []byte) (rest []byte) {
	if len(lines) == 0 {
		return nil
	}
	n, err := w.out.Write(lines)
	if err == nil {
		return nil
	}
	w.lostErr = err
	if n > 0 {
		w.cut = lines[n-1] != '\n'
	}
	return lines[n:]
}

// writeLost says how many lines are missing here; false when that could not be written either, and is to be said later.
func (w *logWriter) writeLost() bool {
	if w.lost == 0 {
		return true
	}
	w.notice.Reset()
	if w.cut {
		w.notice.WriteByte('\n')
	}
	record := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of the log are missing here", 0)
	record.AddAttrs(slog.Int("lines", w.lost))
	if w.lostErr != nil {
		record.AddAttrs(slog.Any("err", w.lostErr))
	}
	_ = w.notices.Handle(context.Background(), record)
	if rest := w.write(w.notice.Bytes()); len(rest) > 0 {
		return false
	}
	w.lost, w.lostErr, w.cut = 0, nil, false
	return true
}
