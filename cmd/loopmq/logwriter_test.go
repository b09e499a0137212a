// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func jsonLines(out io.Writer) slog.Handler { return slog.NewJSONHandler(out, nil) }

func textLines(out io.Writer) slog.Handler { return slog.NewTextHandler(out, nil) }

// startLog starts a log that writes to out, which must not stand still any more at the end of the test.
func startLog(t *testing.T, out io.Writer, newHandler func(io.Writer) slog.Handler) (*logWriter, *slog.Logger) {
	t.Helper()
	w := &logWriter{out: out}
	w.start(newHandler)
	t.Cleanup(func() {
		w.Flush(patience)
		close(w.wake)
	})
	return w, slog.New(newHandler(w))
}

// logReader takes what is written, unless a test holds its mutex: then it stands still.
type logReader struct {
	mu    sync.Mutex
	text  bytes.Buffer
	calls int
	err   error // what a write ends with
	room  int   // bytes that are taken before
}

func (r *logReader) Write(lines []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.err == nil {
		return r.text.Write(lines)
	}
	n := min(r.room, len(lines))
	r.room -= n
	r.text.Write(lines[:n])
	return n, r.err
}

// fail makes writes fail once room bytes are taken; calls is how many there were.
func (r *logReader) fail(err error, room int) (calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.room = err, room
	return r.calls
}

func (r *logReader) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

// logLine is one line of the log in JSON.
type logLine struct {
	Msg    string
	Writer int
	N      int
	Lines  int
	Err    string
}

func parseLogLine(t *testing.T, text string) logLine {
	t.Helper()
	var line logLine
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return line
}

const missing = "lines of the log are missing here"

// Each of many writers finds all of its lines, in its order, in whatever pieces they are written.
func TestLogKeepsAllLinesInOrder(t *testing.T) {
	const writers, each = 8, 800 // together less than logBacklogMax: nothing may be dropped, however slow the reader is
	r := new(logReader)
	w, logger := startLog(t, r, jsonLines)
	var done sync.WaitGroup
	for writer := range writers {
		done.Go(func() {
			own := logger.With("writer", writer)
			for n := range each {
				own.Info("line", "n", n)
			}
		})
	}
	done.Wait()
	w.Flush(patience)
	var next [writers]int
	for _, text := range r.lines() {
		line := parseLogLine(t, text)
		if line.Msg != "line" || line.N != next[line.Writer] {
			t.Fatalf("%s; want line %d of it", text, next[line.Writer])
		}
		next[line.Writer]++
	}
	for writer, n := range next {
		if n != each {
			t.Fatalf("writer %d: %d lines of %d", writer, n, each)
		}
	}
}

// A reader that stands still keeps no writer waiting. It finds the lines there was room for, then how many are missing,
// then the newer ones.
func TestLogReaderStandsStill(t *testing.T) {
	const writers, each = 4, 8000 // together more than logBacklogMax
	r := new(logReader)
	w, logger := startLog(t, r, jsonLines)
	for range 2 { // a second time, with buffers that were used
		r.mu.Lock()
		logger.Info("first")
		for { // until the first line is on its way, and all others have to wait
			w.mu.Lock()
			taken := len(w.queued) == 0
			w.mu.Unlock()
			if taken {
				break
			}
			time.Sleep(time.Millisecond)
		}
		var done sync.WaitGroup
		for writer := range writers {
			done.Go(func() {
				for n := range each {
					logger.Info("line", "writer", writer, "n", n)
				}
			})
		}
		done.Wait()
		w.Flush(time.Millisecond) // bounded
		r.mu.Unlock()
		w.Flush(patience)
		logger.Info("last")
		w.Flush(patience)

		lines := r.lines()
		kept := len(lines) - 3
		if first := parseLogLine(t, lines[0]); first.Msg != "first" {
			t.Fatalf("first line %s", lines[0])
		}
		next := [writers]int{}
		for _, text := range lines[1 : 1+kept] {
			line := parseLogLine(t, text)
			if line.Msg != "line" || line.N != next[line.Writer] {
				t.Fatalf("%s; want line %d of it", text, next[line.Writer])
			}
			next[line.Writer]++
		}
		if loss := parseLogLine(t, lines[kept+1]); loss.Msg != missing || loss.Lines != writers*each-kept || loss.Err != "" {
			t.Fatalf("%s behind %d of %d lines", lines[kept+1], kept, writers*each)
		}
		if last := parseLogLine(t, lines[kept+2]); last.Msg != "last" {
			t.Fatalf("last line %s", lines[kept+2])
		}
		if size := len(strings.Join(lines[1:1+kept], "\n")) + 1; size > logBacklogMax || size < logBacklogMax-200 {
			t.Fatalf("%d bytes waited; the limit is %d", size, logBacklogMax)
		}
		r.mu.Lock()
		r.text.Reset()
		r.mu.Unlock()
	}
}

// A line that has no room in an empty queue is counted as well, without one that follows.
func TestLogLineTooLong(t *testing.T) {
	r := new(logReader)
	w, logger := startLog(t, r, textLines)
	logger.Info(strings.Repeat("x", logBacklogMax))
	w.Flush(patience)
	logger.Info("next")
	w.Flush(patience)
	lines := r.lines()
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN msg=\""+missing+"\" lines=1") || !strings.Contains(lines[1], "msg=next") {
		t.Fatalf("%q", lines)
	}
}

// What cannot be written is counted, and told when something can be written again, on a line of its own.
func TestLogWriteFails(t *testing.T) {
	f := func(room int, err error) {
		t.Helper()
		r := new(logReader)
		w, logger := startLog(t, r, jsonLines)
		r.fail(err, room)
		for n := range 5 {
			logger.Info("line", "n", n)
			w.Flush(patience)
		}
		if calls := r.fail(nil, 0); calls > 20 { // two for each wake-up, by a line or by Flush
			t.Fatalf("%d calls for 5 lines", calls)
		}
		logger.Info("again")
		w.Flush(patience)
		var got []logLine
		for _, text := range r.lines() {
			if line := (logLine{}); json.Unmarshal([]byte(text), &line) == nil {
				got = append(got, line)
			} // else what there was room for
		}
		n := len(got) - 2
		if n < 0 || got[n].Msg != missing || got[n].Lines != 5-n || got[n].Err != err.Error() || got[n+1].Msg != "again" {
			t.Fatalf("room %d: %q", room, r.lines())
		}
	}
	f(0, syscall.ENOSPC)
	f(1, syscall.ENOSPC)
	f(100, syscall.ENOSPC) // a line and a piece
	f(250, syscall.EIO)
	f(0, errors.New("whatever"))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A broken pipe is an error like others: no signal, no end, no retries.
func TestLogBrokenPipe(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { write.Close() })
	var calls, broken atomic.Int64
	w, logger := startLog(t, writerFunc(func(b []byte) (int, error) {
		n, err := write.Write(b)
		if errors.Is(err, syscall.EPIPE) {
			broken.Add(1)
		}
		calls.Add(1)
		return n, err
	}), textLines)
	read.Close()
	for range 100 {
		logger.Info("line")
		w.Flush(patience)
	}
	if b, c := broken.Load(), calls.Load(); b < 100 || c > 400 {
		t.Fatalf("%d calls for 100 lines, %d with EPIPE", c, b)
	}
}

func TestLogLineCostsNoAllocation(t *testing.T) {
	w, _ := startLog(t, io.Discard, textLines)
	line := []byte("one line of the log\n")
	if n := testing.AllocsPerRun(1000, func() { _, _ = w.Write(line) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// What was logged comes before what is printed and before the error that ends the process, all of it.
func TestLogIsWrittenBeforeTheEnd(t *testing.T) {
	const warnings = 100
	var conf strings.Builder
	for n := range warnings {
		fmt.Fprintf(&conf, "noSuchKey%d=1\n", n)
	}
	f := func(more, want string, code int, args ...string) {
		t.Helper()
		cmd := command(t, append(args, "-p", "-c", writeFile(t, conf.String()+more))...)
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		if _ = cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%v: %v; want exit code %d", args, cmd.ProcessState, code)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		for n := range warnings {
			if n >= len(lines) || !strings.Contains(lines[n], " key=noSuchKey"+strconv.Itoa(n)+" ") {
				t.Fatalf("%v: no warning %d in line %d of\n%s", args, n, n, text)
			}
		}
		if rest := strings.Join(lines[warnings:], ""); !strings.Contains(rest, want) || strings.Contains(rest, "noSuchKey") {
			t.Fatalf("%v: %q behind the warnings; want %q", args, rest, want)
		}
	}
	f("listenPort=19876\n", "listenPort=19876\n", 0, "broker")
	f("listenPort=19876\n", "listenPort=19876\n", 0, "namesrv")
	f("listenPort=x\n", "loopmq: configuration:\n", 1, "broker")
	f("listenPort=x\n", "loopmq: configuration:\n", 1, "namesrv", "--log-format", "text")
}

// fullPipe is a pipe without room for another byte.
func fullPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	for _, piece := range [][]byte{make([]byte, 4096), {'\n'}} {
		for {
			if _, err := unix.Write(fds[1], piece); errors.Is(err, unix.EAGAIN) {
				break
			} else if err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
		}
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "read"), os.NewFile(uintptr(fds[1]), "write")
}

// A broker whose output nobody reads starts, answers, and stops in order.
func TestBrokerServesWhenNobodyReadsItsLog(t *testing.T) {
	read, write := fullPipe(t)
	defer read.Close()
	port, store := brokerPort(t), t.TempDir()
	conf := writeFile(t, fmt.Sprintf("listenPort=%d\nadminAddr=127.0.0.1:%d\nbrokerIP1=127.0.0.1\nstorePathRootDir=%s\n"+
		"mappedFileSizeCommitLog=4194304\nmappedFileSizeConsumeQueue=400000\nmaxHashSlotNum=1000\nmaxIndexNum=40000\nnoSuchKey=1\n", port, port+2, store))
	cmd := command(t, "broker", "-c", conf, "--log-level", "debug")
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	stuck := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stuck.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		status, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", port+2))
		if status == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz: %d %s", status, body)
		}
	}

	// The event loop logs what it thinks of the first connection, and answers the second.
	bad := dialBroker(t, port)
	if _, err := bad.Write(bytes.Repeat([]byte{0xff}, 8)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(bad); len(text) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("answer to garbage: %q, %v", text, err)
	}
	header := `{"code":28,"language":"JAVA","version":409,"opaque":7,"flag":0}` // GET_BROKER_RUNTIME_INFO
	request := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	request = binary.BigEndian.AppendUint32(request, uint32(len(header)))
	good := dialBroker(t, port)
	if _, err := good.Write(append(request, header...)); err != nil {
		t.Fatal(err)
	}
	var length [4]byte
	if _, err := io.ReadFull(good, length[:]); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(good, answer); err != nil || !bytes.Contains(answer, []byte(`"code":0`)) || !bytes.Contains(answer, []byte(`"opaque":7`)) {
		t.Fatalf("%v, %q", err, answer)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(store, "abort")); err == nil {
		t.Fatal("the abort file is still there after an ordered stop")
	}
}

func dialBroker(t *testing.T, port int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}
