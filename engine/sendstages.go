// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/reactor"
	"loopmq/storage"
	"loopmq/storage/latency"
)

// sendStage is a part of a send's way. All but flush and replica follow each other; these two are side by side.
type sendStage int

const (
	stageQueue   sendStage = iota // until the store is given it: behind others of its turn, or for its topic to be made
	stageLock                     // until the writer's role is had for it: behind others' appends
	stageAppend                   // until it is in the log, with those appended together: page faults, and a wait for the next file
	stageFlush                    // until the disk has it (SYNC_FLUSH)
	stageReplica                  // until slaves have it (SYNC_MASTER)
	stageReply                    // until its answer is written: behind its event loop's other work
	sendStages
)

var sendStageNames = [sendStages]string{"queue", "lock", "append", "flush", "replica", "reply"}

func (s sendStage) String() string { return sendStageNames[s] }

// notIn stands for a stage that a send does not go through.
const notIn time.Duration = -1

// stageTimes is how long a send was in each stage.
type stageTimes [sendStages]time.Duration

// slowest is the stage that took longest.
func (t *stageTimes) slowest() (slowest sendStage) {
	for stage, took := range t {
		if took > t[slowest] {
			slowest = sendStage(stage)
		}
	}
	return slowest
}

// total is from the turn that read the send to the end of the last stage that it has been through.
func (t *stageTimes) total() (sum time.Duration) {
	for stage, took := range t {
		if stage := sendStage(stage); stage != stageFlush && stage != stageReplica {
			sum += max(took, 0)
		}
	}
	return sum + max(t[stageFlush], t[stageReplica], 0)
}

// appendTo writes "queue 0ms, lock 0ms, append 1ms, flush 5000ms".
func (t *stageTimes) appendTo(text []byte) []byte {
	for stage, took := range t {
		if took == notIn {
			continue
		}
		if stage > 0 {
			text = append(text, ", "...)
		}
		text = append(append(text, sendStageNames[stage]...), ' ')
		text = append(strconv.AppendInt(text, took.Milliseconds(), 10), "ms"...)
	}
	return text
}

// stageCounts counts sends by how long they were in each stage.
type stageCounts [sendStages]latency.Histogram

func (c *stageCounts) add(t *stageTimes, n int64) {
	for stage, took := range t {
		if took != notIn {
			c[stage].Add(took, n)
		}
	}
}

// slowSendLogInterval is the least time between two lines about slow sends.
const slowSendLogInterval = time.Second

// sendTimes is where the time of sends goes: counted for each event loop, which tells of the sends it answers, and a line in
// the log for one that is slow.
type sendTimes struct {
	logger *slog.Logger
	slow   [sendStages]atomic.Int64 // by the stage that took longest
	apart  stageCounts              // of sends that no loop tells of: one-way, or their session was gone

	lines  reactor.Sometimes
	logAll atomic.Bool // for tests

	mu    sync.Mutex // guards loops
	loops []*stageCounts
}

// ofLoop makes the counts of one more loop.
func (s *sendTimes) ofLoop() *stageCounts {
	c := new(stageCounts)
	s.mu.Lock()
	s.loops = append(s.loops, c)
	s.mu.Unlock()
	return c
}

// snapshot adds up what the loops have counted.
func (s *sendTimes) snapshot() (sum [sendStages]latency.Snapshot) {
	s.mu.Lock()
	loops := append(s.loops[:len(s.loops):len(s.loops)], &s.apart)
	s.mu.Unlock()
	for _, loop := range loops {
		for stage := range loop {
			loop[stage].AddTo(&sum[stage])
		}
	}
	return sum
}

// noteSlow counts a slow send and says where its time went, but not of each: what slows one slows thousands.
func (s *sendTimes) noteSlow(r *sendRecord, t *stageTimes, status storage.PutMessageStatus) {
	slowest := t.slowest()
	s.slow[slowest].Add(1)
	suppressed, ok := s.lines.Allow(time.Now())
	if !ok && !s.logAll.Load() {
		return
	}
	args := []any{"stage", slowest.String(), "took", t.total().Round(time.Microsecond)}
	for stage, took := range t {
		if took != notIn {
			args = append(args, sendStageNames[stage], took.Round(time.Microsecond))
		}
	}
	args = append(args, "status", status.String(), "topic", r.Topic, "queueId", r.QueueID, "size", len(r.Record),
		"peer", r.to.Session.RemoteAddr().String(), "suppressed", suppressed)
	s.logger.Warn("slow send, most of it in the stage "+slowest.String(), args...)
}

// times is where the time of a stored send went; written is when its answer was, 0 if it was not.
func (r *sendRecord) times(written int64) (t stageTimes) {
	t = stageTimes{stageFlush: notIn, stageReplica: notIn, stageReply: notIn}
	t[stageQueue] = between(r.receivedAt, r.TakenAt)
	t[stageLock] = between(r.TakenAt, r.LockedAt)
	t[stageAppend] = between(r.LockedAt, r.AppendedAt)
	outcome := r.AppendedAt
	if r.waitFlush {
		t[stageFlush] = between(r.AppendedAt, r.flushedAt)
		outcome = max(outcome, r.flushedAt)
	}
	if r.waitReplica {
		t[stageReplica] = between(r.AppendedAt, r.replicatedAt)
		outcome = max(outcome, r.replicatedAt)
	}
	if written > 0 {
		t[stageReply] = between(outcome, written)
	}
	return t
}

// between is no less than nothing: what ended at once may have got an earlier round's time.
func between(from, to int64) time.Duration { return time.Duration(max(to-from, 0)) }

// timesUnstored is where the time of a send went that was appended and is not safe, or whose append was in vain.
func (r *sendRecord) timesUnstored() stageTimes {
	if r.WroteBytes > 0 {
		return r.times(0)
	}
	now := latency.Now()
	t := stageTimes{stageAppend: notIn, stageFlush: notIn, stageReplica: notIn, stageReply: notIn}
	t[stageQueue] = between(r.receivedAt, r.TakenAt)
	if r.LockedAt == 0 {
		t[stageLock] = between(r.TakenAt, now)
		return t
	}
	t[stageLock], t[stageAppend] = between(r.TakenAt, r.LockedAt), between(r.LockedAt, now)
	return t
}

// answered runs on the loop that has written the answers to sends; at is 0 when their connection ended before. The sends of
// a turn that waited for nothing have the same times, so they are counted together.
func (p *SendMessageProcessor) answered(loop *reactor.Loop, notes []any, at int64) {
	turn, slow := p.turn(loop), p.slowSend()
	var same stageTimes
	n := int64(0)
	for _, note := range notes {
		r := note.(*sendRecord)
		t := r.times(at)
		if t != same && n > 0 {
			turn.counts.add(&same, n)
			n = 0
		}
		same = t
		n++
		if t.total() >= slow {
			p.b.sendTimes.noteSlow(r, &t, r.status)
		}
		turn.keep(r)
	}
	turn.counts.add(&same, n)
}

// unanswered ends a stored send whose answer nobody will write.
func (p *SendMessageProcessor) unanswered(r *sendRecord) {
	t := r.times(0)
	p.b.sendTimes.apart.add(&t, 1)
	if t.total() >= p.slowSend() {
		p.b.sendTimes.noteSlow(r, &t, r.status)
	}
	r.recycle()
}

const endless = time.Duration(1<<63 - 1)

// slowSend is from when on a send is slow.
func (p *SendMessageProcessor) slowSend() time.Duration {
	if ms := p.b.Config().SlowSendMills; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return endless
}
