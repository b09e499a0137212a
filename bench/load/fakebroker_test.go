// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loopmq/bench/result"
	"loopmq/reactor/remoting"
	"loopmq/storage/message"
)

// fakeBroker keeps messages in memory, and does with them what a test tells it to.
type fakeBroker struct {
	t        *testing.T
	listener net.Listener
	running  sync.WaitGroup
	// sent, if set, is told of each message that is sent, and says what to do with it.
	sent func(number int, body []byte) deed
	// shown, if set, is how many messages of its length queue 0 shows.
	shown func(length int) int
	// pulled, if set, may change the records of an answer; nil: there is no answer.
	pulled func(records []byte) []byte

	mu     sync.Mutex // guards the rest
	queues map[string][][]byte
	number int
	conns  []net.Conn
	held   [][]byte // messages to be stored later
}

// deed is what a fake broker does with a message.
type deed int

const (
	deedStore deed = iota
	deedLose       // answer, and store something else
	deedTwice
	deedSwap   // answer, and store it behind the next one
	deedSilent // store, and do not answer
	deedRefuse
)

func startFakeBroker(t *testing.T) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{t: t, listener: l, queues: make(map[string][][]byte)}
	b.running.Go(b.accept)
	t.Cleanup(func() {
		_ = l.Close()
		b.disconnect()
		b.running.Wait()
	})
	return b
}

func (b *fakeBroker) addr() string { return b.listener.Addr().String() }

func (b *fakeBroker) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, conn)
		b.mu.Unlock()
		b.running.Go(func() {
			defer conn.Close()
			if err := b.serve(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset by peer") {
				b.t.Errorf("fake broker: %v", err)
			}
		})
	}
}

// disconnect ends all connections.
func (b *fakeBroker) disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *fakeBroker) serve(conn net.Conn) error {
	r := bufio.NewReader(conn)
	for {
		length, err := r.Peek(4)
		if err != nil {
			return err
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(length))
		if _, err := io.ReadFull(r, frame); err != nil {
			return err
		}
		var cmd remoting.Command
		if err := remoting.Decode(frame, &cmd); err != nil {
			return err
		}
		if answer := b.handle(&cmd); answer != nil {
			answer.Opaque, answer.Flag, answer.Version = cmd.Opaque, remoting.FlagResponse, remoting.Version
			if _, err := conn.Write(answer.AppendTo(nil, 0)); err != nil {
				return err
			}
		}
	}
}

func (b *fakeBroker) handle(cmd *remoting.Command) *remoting.Command {
	answer := &remoting.Command{}
	switch cmd.Code {
	case remoting.GetAllTopicConfig:
		config := map[string]any{"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
		answer.Body, _ = json.Marshal(map[string]any{"topicConfigTable": map[string]any{"bench": config}})
	case remoting.GetMaxOffset:
		length := b.length(cmd.Ext.String("queueId"))
		if b.shown != nil && cmd.Ext.String("queueId") == "0" {
			length = b.shown(length)
		}
		answer.Ext.AddInt("offset", int64(length))
	case remoting.GetMinOffset:
		answer.Ext.AddInt("offset", 0)
	case remoting.SendMessageV2:
		return b.send(cmd)
	case remoting.PullMessage:
		return b.pull(cmd)
	default:
		answer.Code = remoting.RequestCodeNotSupported
	}
	return answer
}

func (b *fakeBroker) length(queueID string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues[queueID])
}

func (b *fakeBroker) send(cmd *remoting.Command) *remoting.Command {
	b.mu.Lock()
	number := b.number
	b.number++
	b.mu.Unlock()
	what := deedStore
	if b.sent != nil {
		what = b.sent(number, cmd.Body)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := cmd.Ext.String("e")
	body := append([]byte(nil), cmd.Body...)
	answer := &remoting.Command{}
	answer.Ext.Add("queueId", q)
	answer.Ext.AddInt("queueOffset", int64(len(b.queues[q])))
	switch what {
	case deedLose:
		body = []byte("another one")
	case deedTwice:
		b.queues[q] = append(b.queues[q], body)
	case deedSwap:
		b.held = append(b.held, body)
		return answer
	case deedRefuse:
		return &remoting.Command{Code: remoting.SystemBusy}
	}
	b.queues[q] = append(b.queues[q], body)
	b.queues[q] = append(b.queues[q], b.held...)
	b.held = nil
	if what == deedSilent {
		return nil
	}
	return answer
}

func (b *fakeBroker) pull(cmd *remoting.Command) *remoting.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := cmd.Ext.String("queueId")
	offset, _ := strconv.Atoi(cmd.Ext.String("queueOffset"))
	id, _ := strconv.Atoi(q)
	answer := &remoting.Command{}
	next := min(offset+5, len(b.queues[q]))
	for at := offset; at < next; at++ {
		answer.Body = message.AppendRecord(answer.Body, &message.Record{
			QueueID: int32(id), QueueOffset: int64(at), Topic: []byte("bench"), Body: b.queues[q][at],
		})
	}
	if b.pulled != nil && len(answer.Body) > 0 {
		if answer.Body = b.pulled(answer.Body); answer.Body == nil {
			return nil
		}
	}
	if len(answer.Body) == 0 {
		answer.Code, next = remoting.PullNotFound, offset
	}
	answer.Ext.AddInt("nextBeginOffset", int64(max(next, offset)))
	return answer
}

// verified is a run against a fake broker on one connection, one request at a time, that reads everything back.
func verified(b *fakeBroker, count int64) Config {
	cfg := testConfig(Produce, b.addr())
	cfg.Mode, cfg.Threads, cfg.Connections, cfg.Count, cfg.Verify = ModeSync, 1, 1, count, true
	return cfg
}

// What a broker does to messages behind its answers comes out, through all of the generator.
func TestFaultsOfABroker(t *testing.T) {
	f := func(what deed, want result.Account, says string) {
		t.Helper()
		b := startFakeBroker(t)
		b.sent = func(number int, _ []byte) deed {
			if number == 20 {
				return what
			}
			return deedStore
		}
		r, err := Run(testContext(t), verified(b, 100), Hooks{})
		if want.Acknowledged = 100; r == nil || *r.Accounted != want {
			t.Errorf("%+v, %v; want %+v", r, err, want)
			return
		}
		if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	f(deedLose, result.Account{Read: 99, Lost: 1}, "lost: message 20 of producer 0, acknowledged at offset 10 of bench/0, is not there")
	f(deedTwice, result.Account{Read: 100, Duplicated: 1, Misplaced: 0}, "duplicated: message 20 of producer 0 at offset 11 of bench/0")
}

// One that is stored behind a later one is out of order.
func TestBrokerSwaps(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		if number == 20 {
			return deedSwap
		}
		return deedStore
	}
	cfg := verified(b, 100)
	r, err := Run(testContext(t), cfg, Hooks{})
	if r == nil || r.Accounted.Reordered+r.Accounted.Misplaced == 0 || r.Accounted.Lost != 0 || !errors.Is(err, ErrWrong) {
		t.Fatalf("%+v, %v", r, err)
	}
}

// A request without an answer is a failure, and its message, which came, is no fault.
func TestUnanswered(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		switch number {
		case 3:
			return deedSilent
		case 5:
			return deedRefuse
		}
		return deedStore
	}
	cfg := verified(b, 50)
	cfg.Timeout = result.Duration(100 * time.Millisecond)
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (result.Account{Acknowledged: 48, Read: 49, Unconfirmed: 1}); *r.Accounted != want || r.Messages != 48 {
		t.Fatalf("%d messages, %+v; want %+v", r.Messages, r.Accounted, want)
	}
	if r.Errors["TIMEOUT"] != 1 || r.Errors["SYSTEM_BUSY"] != 1 || r.ErrorCount() != 2 {
		t.Fatalf("failures %v", r.Errors)
	}
}

// An answer that comes late is seen as such, and its message counts as not confirmed.
func TestLateAnswers(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		if number == 10 {
			time.Sleep(250 * time.Millisecond) // the connection stands still
		}
		return deedStore
	}
	cfg := verified(b, 40)
	cfg.Timeout = result.Duration(50 * time.Millisecond)
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	late, given := r.Errors[errLate], r.Errors[errTimeout] // the last of them may come when nobody listens any more
	if want := (result.Account{Acknowledged: 40 - given, Read: 40, Unconfirmed: given}); late == 0 || late > given || *r.Accounted != want {
		t.Fatalf("failures %v, %+v; want %+v", r.Errors, r.Accounted, want)
	}
}

// Messages are due when the rate says, also while the broker stands still: what waits is counted from then.
func TestNoCoordinatedOmission(t *testing.T) {
	b := startFakeBroker(t)
	const rate, count, still = 1000, 400, 100
	release := make(chan struct{})
	var mu sync.Mutex
	due := make(map[int64]int64)
	b.sent = func(number int, body []byte) deed {
		if s, ok := readStamp(body); ok {
			mu.Lock()
			due[s.sequence] = s.due
			mu.Unlock()
		}
		if number == still {
			<-release // the only connection stands still, and many more become due
		}
		return deedStore
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Connections, cfg.Window, cfg.Rate, cfg.Count = 1, 4, rate, count
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if len(due) != count || r.Messages != count || len(r.Errors) > 0 {
		t.Fatalf("%d messages came, %d were answered, failures %v", len(due), r.Messages, r.Errors)
	}
	for n := int64(1); n < count; n++ {
		if gap, want := due[n]-due[0], n*int64(time.Second)/rate; gap < want-2 || gap > want+2 {
			t.Fatalf("message %d was due %d ns after the first; want %d", n, gap, want)
		}
	}
	// At least those that became due while it stood still, but for the first 100 ms of it, have waited long.
	if waited := r.Latency.Percentile(60); waited < 10*time.Millisecond {
		t.Errorf("the 60th percentile of the latency is %v: waiting was not counted", waited)
	}
}

// A broker that loses its connections is found again; what was in flight is a failure of its own kind.
func TestConnectionsLost(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		if number == 500 {
			go b.disconnect()
			return deedSilent
		}
		return deedStore
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Connections, cfg.Count, cfg.Verify = 2, 2000, true
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors[errConnectionLost] == 0 || r.Accounted.Acknowledged+r.Errors[errConnectionLost] != 2000 || r.Accounted.Lost != 0 {
		t.Fatalf("%+v, failures %v", r.Accounted, r.Errors)
	}
}

// Answers of a pull that are not messages, or not those that were asked for, count as bad, and reading goes on.
func TestBadAnswers(t *testing.T) {
	b := startFakeBroker(t)
	bad := 0
	b.pulled = func(records []byte) []byte {
		if bad++; bad <= 3 {
			switch bad {
			case 1:
				return records[:len(records)-1]
			case 2:
				return []byte("no messages at all, and long enough to be one: ........................................................")
			}
			records[23]++ // the queue's offset
		}
		return records
	}
	r, err := Run(testContext(t), verified(b, 30), Hooks{})
	if err != nil || r.Accounted.Read != 30 || r.Accounted.Lost != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if bad < 4 || r.ErrorCount() != 3 || r.Errors[errBadAnswer+whenReadBack] != 3 {
		t.Fatalf("%d pulls, failures %v", bad, r.Errors)
	}
}

// A queue that shows an acknowledged message late has not lost it, also when as many messages as were acknowledged are there
// before: one of them came without an answer.
func TestQueueThatShowsLate(t *testing.T) {
	b := startFakeBroker(t)
	const count, late = 50, 10
	b.sent = func(number int, _ []byte) deed {
		if number == 3 {
			return deedSilent
		}
		return deedStore
	}
	var asked atomic.Int64
	b.shown = func(length int) int {
		if length == count/2 && asked.Add(1) <= late {
			return length - 1
		}
		return length
	}
	cfg := verified(b, count)
	cfg.Timeout = result.Duration(2 * time.Second)
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil || r.Accounted.Lost != 0 || r.Accounted.Read != count || asked.Load() <= late {
		t.Fatalf("%+v, asked %d times, %v", r, asked.Load(), err)
	}
}

// A pull without an answer is asked again: the request that comes after it is written, though nothing else happens on its
// connection.
func TestUnansweredPull(t *testing.T) {
	b := startFakeBroker(t)
	silent := true
	b.pulled = func(records []byte) []byte {
		if silent {
			silent = false
			return nil
		}
		return records
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Count = 10
	mustRun(t, cfg)
	cfg = testConfig(Consume, b.addr())
	cfg.From, cfg.Count, cfg.Timeout, cfg.Hold = FromFirst, 10, result.Duration(50*time.Millisecond), 0
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	asked := 0
	r, err := Run(ctx, cfg, Hooks{Progress: func(p Progress) {
		if asked++; asked == 10 {
			cancel() // it has been asking for ten seconds
		}
	}})
	if err != nil || r.Messages != 10 || r.Errors[errTimeout] == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// The same at a rate: what takes the place of a request that was given up is written.
func TestUnansweredAtARate(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		if number == 3 {
			return deedSilent
		}
		return deedStore
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Connections, cfg.Window, cfg.Rate, cfg.Count, cfg.Timeout = 1, 1, 1000, 100, result.Duration(500*time.Millisecond)
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil || r.Messages < 90 || r.Messages+r.Errors[errTimeout] != 100 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// A broker that stands still when the window ends is seen: what it was asked in time and answered later counts with all of its
// latency, and what had no room until then is UNSENT. Each message that was due is one of them.
func TestStandstillAtTheEnd(t *testing.T) {
	b := startFakeBroker(t)
	const rate, still, window = 1000, 20, 4
	release := make(chan struct{})
	b.sent = func(number int, _ []byte) deed {
		if number == still {
			<-release
		}
		return deedStore
	}
	cfg := testConfig(Produce, b.addr())
	cfg.Connections, cfg.Window, cfg.Rate, cfg.Duration = 1, window, rate, result.Duration(300*time.Millisecond)
	r, err := Run(testContext(t), cfg, Hooks{End: func() {
		time.AfterFunc(400*time.Millisecond, func() { close(release) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	n := r.Latency.Count()
	if r.Messages > still || n < still+window || r.Latency.Max() < 400*time.Millisecond {
		t.Errorf("%d messages, %d latencies up to %v; want %d, one of them more than 400 ms", r.Messages, n, r.Latency.Max(), still+window)
	}
	due := schedule{rate: rate}.dueBy(time.Duration(r.Seconds * float64(time.Second)))
	if r.ErrorCount() != r.Errors[errUnsent] || n+r.ErrorCount() > due {
		t.Errorf("%d latencies and failures %v; at most %d messages were due", n, r.Errors, due)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(b.number) != n {
		t.Errorf("%d messages came, with %d latencies", b.number, n)
	}
}

// A message of a counted run that is refused, and one that is acknowledged and does not come, do not keep the run waiting; the
// second is a failure.
func TestLatencyOfWhatDoesNotCome(t *testing.T) {
	b := startFakeBroker(t)
	b.sent = func(number int, _ []byte) deed {
		switch number {
		case 10:
			return deedRefuse
		case 20:
			return deedLose // another one stands there
		}
		return deedStore
	}
	cfg := testConfig(Latency, b.addr())
	cfg.Rate, cfg.Count, cfg.Groups, cfg.Timeout = 1000, 100, 2, result.Duration(2*time.Second)
	r, err := Run(testContext(t), cfg, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages != 2*98 || r.Latency.Count() != r.Messages || r.Errors["SYSTEM_BUSY"] != 1 || r.Errors[errUnread] != 2 || r.ErrorCount() != 3 {
		t.Errorf("%d messages, %d latencies, failures %v; want 196 messages, one refused, two unread", r.Messages, r.Latency.Count(), r.Errors)
	}
}

// What comes to a consumer after the window's end counts with its latency.
func TestLatencyAfterTheEnd(t *testing.T) {
	b := startFakeBroker(t)
	var hold atomic.Bool
	b.pulled = func(records []byte) []byte {
		if hold.Load() {
			return []byte{} // nothing yet
		}
		return records
	}
	cfg := testConfig(Latency, b.addr())
	cfg.Rate, cfg.Duration = 500, result.Duration(300*time.Millisecond)
	r, err := Run(testContext(t), cfg, Hooks{
		Begin: func() { hold.Store(true) },
		End:   func() { time.AfterFunc(100*time.Millisecond, func() { hold.Store(false) }) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Messages != 0 || r.ErrorCount() != 0 || r.Latency == nil || r.Latency.Max() < 100*time.Millisecond || int(r.Latency.Count()) != b.length("0")+b.length("1") {
		t.Errorf("%+v; %d messages came", r, b.length("0")+b.length("1"))
	}
}
