// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage/message"
	"loopmq/storage/vfs"
	"loopmq/storage/vfs/faultfs"
)

var (
	simSeeds = flag.Int("seeds", 0, "seeds of the crash simulation; 0: LOOPMQ_SEEDS, or a few")
	simSeed  = flag.Uint64("seed", 0, "the one seed of the crash simulation to run; 0: several")
	simTrace = flag.Bool("simtrace", false, "print the steps of the crash simulation as they happen")
)

const (
	simSeedsDefault = 30
	simRoot         = "/store"
	simIncarnations = 4  // lives of a store between crashes
	simStepsMax     = 40 // in each
	simOpsMax       = 400
)

// TestCrash runs a store over faultfs and ends it by a process kill or a power cut, again and again: at a random step,
// or at a random operation of the file system, also while it recovers. After each it compares the disk with what was
// acknowledged. A seed fixes the script, the settings and what a power cut takes; time is that of testing/synctest.
// The goroutines' order is not fixed, so a rare failure may take -count to come again.
func TestCrash(t *testing.T) {
	first, n := uint64(1), simSeedCount(t)
	if *simSeed != 0 {
		first, n = *simSeed, 1
	}
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		runSim(t, seed, plant{})
	}
}

func simSeedCount(t *testing.T) int {
	if *simSeeds > 0 {
		return *simSeeds
	}
	if text := os.Getenv("LOOPMQ_SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("LOOPMQ_SEEDS: %v", err)
		}
		return n
	}
	return simSeedsDefault
}

func runSim(t *testing.T, seed uint64, p plant) (failure error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newCrashSim(seed, p)
		failure = s.run()
		if failure != nil && s.store != nil {
			s.store.Close()
		}
		if failure == nil || p.name != "" {
			return
		}
		t.Errorf("%v\nsettings: %s\nlast steps:\n  %s\nreplay: go test ./storage -run 'TestCrash$' -seed=%d -count=10 -simtrace",
			failure, s.settings(), strings.Join(s.steps[max(0, len(s.steps)-40):], "\n  "), seed)
	})
	return failure
}

// plant is a fault put in on purpose, to see that the simulation notices.
type plant struct {
	name   string
	lies   func(op faultfs.Op, path string) bool // operations that only say they are done
	config func(*Config)
	damage func(fs *faultfs.FS, records []simRecord) bool // changes files before they are checked; false: nothing to change yet
}

// crashSim is one store's lives, and what is known of its messages.
type crashSim struct {
	seed  uint64
	rng   *rand.Rand
	plant plant
	fs    *faultfs.FS
	cfg   Config
	life  int

	stepsMu sync.Mutex
	steps   []string

	mu       sync.Mutex // guards what follows; callbacks of the store take it
	store    *MessageStore
	messages map[string]*simMessage
	crashed  bool
	next     *faultfs.FS // what the crash left
	kind     faultfs.CrashKind
	// at the crash
	flushedWhere, readable PhyOffset

	numbered    int
	logDeletes  bool                 // retention ran: the log may begin later
	deletedAt   map[string]PhyOffset // topic → log end when it was deleted
	opsLeft     atomic.Int64         // until the file system crashes; not positive: it does not
	readableEnd atomic.Int64
}

// simMessage is one message that was handed to the store.
type simMessage struct {
	key, topic string
	queueID    int32
	body       []byte
	noQueue    bool
	delayed    bool

	// Guarded by crashSim.mu.
	life     int
	appended bool // has a place in the log
	durable  bool // acknowledged under SYNC_FLUSH, or below flushedWhere at a crash
	present  bool // was there at the last check, or has to be after the last crash
	offset   PhyOffset
	end      PhyOffset
}

func newCrashSim(seed uint64, p plant) *crashSim {
	return &crashSim{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), plant: p, fs: faultfs.New(),
		messages: map[string]*simMessage{}, deletedAt: map[string]PhyOffset{},
	}
}

func (s *crashSim) step(format string, args ...any) {
	line := fmt.Sprintf("%d: ", s.life) + fmt.Sprintf(format, args...)
	s.stepsMu.Lock()
	defer s.stepsMu.Unlock()
	s.steps = append(s.steps, line)
	if *simTrace {
		fmt.Println(line)
	}
}

func (s *crashSim) settings() string {
	return fmt.Sprintf("flush %v, pool %v, log files %d, queue files %d, index %d/%d", s.cfg.FlushDiskType,
		s.cfg.TransientStorePoolEnable, s.cfg.MappedFileSizeCommitLog, s.cfg.MappedFileSizeConsumeQueue, s.cfg.MaxHashSlotNum, s.cfg.MaxIndexNum)
}

// run lives simIncarnations lives, and a last one that ends in order.
func (s *crashSim) run() error {
	s.cfg = DefaultConfig()
	s.cfg.StorePathRootDir = simRoot
	s.cfg.MappedFileSizeCommitLog = 4096 << s.rng.IntN(3)
	s.cfg.MappedFileSizeConsumeQueue = 20 * (1 + s.rng.Int64N(20))
	s.cfg.MaxHashSlotNum, s.cfg.MaxIndexNum = 1+s.rng.Int32N(20), 5+s.rng.Int32N(40)
	for s.life = 1; s.life <= simIncarnations; s.life++ {
		if err := s.live(); err != nil {
			return err
		}
	}
	return s.lastLife()
}

// live opens the store, checks what is there, works, and crashes.
func (s *crashSim) live() error {
	s.changeSettings()
	s.arm()
	opened, err := s.open()
	if err == nil && opened {
		err = s.check()
	}
	if err == nil && opened {
		err = s.work()
	}
	if err != nil && !s.hasCrashed() {
		return err
	}
	s.crash(fmt.Sprintf("at a step, after %v", err))
	if s.store != nil {
		s.store.Close() // fails; its goroutines end
	}
	if n := s.fs.OpenRegions(); n != 0 {
		return fmt.Errorf("%d regions left open after a crash", n)
	}
	s.afterlife()
	return nil
}

func (s *crashSim) lastLife() error {
	s.changeSettings()
	opened, err := s.open()
	if err == nil && !opened {
		err = errors.New("not opened, not crashed")
	}
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if err := s.work(); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	if err := s.store.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if n := s.fs.OpenRegions(); n != 0 {
		return fmt.Errorf("%d regions left open after a close", n)
	}
	// An orderly close leaves nothing to the page cache.
	s.mu.Lock()
	s.flushedWhere, s.readable = math.MaxInt64, math.MaxInt64
	s.kind = faultfs.PowerLoss
	s.next = s.fs.Crash(s.kind, s.seed)
	s.mu.Unlock()
	s.step("power loss after an orderly close")
	s.afterlife()
	s.life++
	if opened, err = s.open(); err != nil || !opened {
		return fmt.Errorf("open after an orderly close: %v, %w", opened, err)
	}
	if err := s.check(); err != nil {
		return err
	}
	return s.store.Close()
}

func (s *crashSim) changeSettings() {
	s.cfg.FlushDiskType = FlushDiskType(s.rng.IntN(2))
	s.cfg.TransientStorePoolEnable = s.rng.IntN(3) == 0
	s.cfg.TransientStorePoolSize = 2 + s.rng.IntN(3)
	s.cfg.FlushCommitLogTimed = s.rng.IntN(2) == 0
	s.cfg.FlushIntervalCommitLog = 1 + s.rng.Int64N(500)
	s.cfg.FlushCommitLogLeastPages = s.rng.IntN(3)
	s.cfg.CommitIntervalCommitLog = 1 + s.rng.Int64N(200)
	s.cfg.CommitCommitLogLeastPages = s.rng.IntN(3)
	s.cfg.FlushIntervalConsumeQueue = 1 + s.rng.Int64N(100)
	s.cfg.FlushConsumeQueueThoroughInterval = 1 + s.rng.Int64N(1000)
	s.cfg.MessageIndexSafe = s.rng.IntN(2) == 0
	s.cfg.CleanResourceInterval = 1000
	s.cfg.EnsureDefaults()
	if s.plant.config != nil {
		s.plant.config(&s.cfg)
	}
}

// arm makes some lives end at an operation of the file system.
func (s *crashSim) arm() {
	s.opsLeft.Store(0)
	if s.rng.IntN(2) == 0 {
		s.opsLeft.Store(1 + s.rng.Int64N(simOpsMax))
	}
	s.fs.SetHook(func(op faultfs.Op, path string) {
		if s.opsLeft.Load() > 0 && s.opsLeft.Add(-1) == 0 {
			s.crash(fmt.Sprintf("before %v of %s", op, path))
		}
	})
}

// open returns false when the file system crashed meanwhile.
func (s *crashSim) open() (bool, error) {
	s.step("open with %s", s.settings())
	s.readableEnd.Store(0)
	var fsys vfs.FS = s.fs
	if s.plant.lies != nil {
		fsys = lyingFS{s.fs, s.plant.lies}
	}
	opts := Options{
		FS:     fsys,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Listener: EventListener{Readable: func(end PhyOffset) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.crashed {
				s.readableEnd.Store(int64(end))
			}
		}},
	}
	if *simTrace {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s.setStore(nil)
	store, err := Open(s.cfg, opts)
	if err != nil {
		return false, s.unlessCrashed("open", err)
	}
	s.setStore(store)
	if err := store.Start(); err != nil {
		return false, s.unlessCrashed("start", err)
	}
	return true, nil
}

func (s *crashSim) setStore(store *MessageStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = store
}

func (s *crashSim) unlessCrashed(what string, err error) error {
	if s.hasCrashed() {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (s *crashSim) hasCrashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashed
}

// crash takes the file system away, once a life. Acknowledgements from now on do not count.
func (s *crashSim) crash(where string) {
	kind, coins := faultfs.ProcessKill, s.seed<<8+uint64(s.life)
	if coins%3 > 0 {
		kind = faultfs.PowerLoss
	}
	s.mu.Lock()
	if s.crashed {
		s.mu.Unlock()
		return
	}
	s.crashed, s.kind = true, kind
	s.readable = PhyOffset(s.readableEnd.Load())
	s.flushedWhere = 0
	if s.store != nil {
		s.flushedWhere = s.store.FlushedWhere()
	}
	s.step("%v %s, flushed to %d, readable to %d", kind, where, s.flushedWhere, s.readable)
	s.mu.Unlock()
	next := s.fs.Crash(kind, coins)
	s.mu.Lock()
	s.next = next
	s.mu.Unlock()
}

// afterlife decides what has to be there from now on.
func (s *crashSim) afterlife() {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.appended && m.end <= s.flushedWhere {
			m.durable = true
		}
		switch {
		case s.kind == faultfs.PowerLoss:
			m.present = m.durable
		case m.life == s.life:
			m.present = m.appended && (m.end <= s.readable || !s.cfg.TransientStorePoolInEffect())
		}
		m.appended = m.present // what may be gone has lost its place, until it is seen again
	}
	s.fs, s.next, s.crashed = s.next, nil, false
}

var simTopics = []string{"orders", "events", "audit"}

// work does random things until the life's steps are used up or the file system is gone.
func (s *crashSim) work() error {
	for range s.rng.IntN(simStepsMax) {
		if s.hasCrashed() {
			return nil
		}
		var err error
		switch n := s.rng.IntN(100); {
		case n < 45:
			s.put(1)
		case n < 60:
			s.put(2 + s.rng.IntN(5))
		case n < 72:
			s.batch()
		case n < 76:
			s.step("let the store settle")
			synctest.Wait()
		case n < 86:
			d := time.Duration(s.rng.Int64N(int64(2 * time.Second)))
			s.step("sleep %v", d)
			time.Sleep(d)
		case n < 90:
			err = s.read()
		case n < 93:
			s.stall()
		case n < 95:
			err = s.deleteTopic()
		case n < 97:
			err = s.expire()
		default:
			s.step("check")
			err = s.check()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newMessage makes up a message.
func (s *crashSim) newMessage() *simMessage {
	s.numbered++
	m := &simMessage{
		key: fmt.Sprintf("K%d", s.numbered), topic: simTopics[s.rng.IntN(len(simTopics))], queueID: s.rng.Int32N(2),
		body: make([]byte, s.rng.IntN(700)), noQueue: s.rng.IntN(12) == 0, life: s.life,
	}
	for i := range m.body {
		m.body[i] = byte(s.rng.Uint32())
	}
	if s.rng.IntN(10) == 0 {
		m.topic, m.delayed, m.noQueue = scheduleTopic, true, false
	}
	return m
}

func (s *crashSim) record(m *simMessage) []byte {
	hosts := []string{"10.0.0.7:54321", "[2001:db8::17]:54321"}
	r := message.Record{
		QueueID: m.queueID, BornTimestamp: time.Now().UnixMilli(), Body: m.body, Topic: []byte(m.topic),
		BornHost:  netip.MustParseAddrPort(hosts[s.rng.IntN(2)]),
		StoreHost: netip.MustParseAddrPort(hosts[s.rng.IntN(2)]),
	}
	r.Properties = message.AppendProperty(nil, message.PropertyUniqKey, m.key)
	r.Properties = message.AppendProperty(r.Properties, message.PropertyTags, "tag"+m.key)
	if m.delayed {
		r.Properties = message.AppendProperty(r.Properties, message.PropertyDelayTimeLevel, "2")
	}
	if m.noQueue {
		r.SysFlag |= message.FlagTransactionPrepared
	}
	return message.AppendRecord(nil, &r)
}

// put hands n messages over in one call.
func (s *crashSim) put(n int) {
	puts := make([]*PutMessage, n)
	for i := range puts {
		m := s.newMessage()
		puts[i] = s.newPut(s.record(m), m)
	}
	s.submit(puts)
}

// batch hands one put of several messages over.
func (s *crashSim) batch() {
	first := s.newMessage()
	first.noQueue = false
	batch := []*simMessage{first}
	records := s.record(first)
	for range 1 + s.rng.IntN(4) {
		m := s.newMessage()
		m.topic, m.queueID, m.delayed, m.noQueue = first.topic, first.queueID, first.delayed, false
		batch = append(batch, m)
		records = append(records, s.record(m)...)
	}
	s.submit([]*PutMessage{s.newPut(records, batch...)})
}

func (s *crashSim) newPut(records []byte, batch ...*simMessage) *PutMessage {
	s.mu.Lock()
	for _, m := range batch {
		s.messages[m.key] = m
	}
	s.mu.Unlock()
	put := &PutMessage{Record: records, MsgNum: int32(len(batch)), Topic: batch[0].topic, QueueID: batch[0].queueID, NoQueueOffset: batch[0].noQueue}
	sizes := make([]int64, len(batch))
	for i, rest := 0, records; len(rest) > 0; i++ {
		size, _, _ := message.Peek(rest)
		sizes[i], rest = int64(size), rest[size:]
	}
	put.Appended = func(put *PutMessage, status PutMessageStatus) {
		if status == PutOK && s.appended(put, batch, sizes) {
			s.store.SubmitFlushRequest(put.End(), time.Now().Add(time.Second), func(status PutMessageStatus) {
				s.flushed(batch, status)
			})
		}
	}
	return put
}

// appended notes an acknowledged append; true when there is a flush to wait for.
func (s *crashSim) appended(put *PutMessage, batch []*simMessage, sizes []int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return false
	}
	at := put.WroteOffset
	for i, m := range batch {
		m.appended, m.offset, m.end = true, at, at+PhyOffset(sizes[i])
		at = m.end
	}
	return s.cfg.FlushDiskType == SyncFlush
}

func (s *crashSim) flushed(batch []*simMessage, status PutMessageStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed || status != PutOK {
		return
	}
	for _, m := range batch {
		m.durable = true
	}
}

func (s *crashSim) submit(puts []*PutMessage) {
	n, status := s.store.AsyncPutMessages(puts)
	s.step("put %d: %d taken, status %d", len(puts), n, status)
	if s.rng.IntN(2) == 0 {
		synctest.Wait()
	}
}

// stall fills the disk for queues and index for a while: dispatch waits and goes on.
func (s *crashSim) stall() {
	s.step("no room for queues and index")
	s.fs.Fail(faultfs.Fault{Op: faultfs.OpAllocate, Path: "/(consumequeue|index)/", Count: 1 + s.rng.IntN(3), Err: errNoRoom})
	s.put(3)
	if s.rng.IntN(2) == 0 {
		time.Sleep(3 * time.Second)
	}
}

var errNoRoom = fmt.Errorf("planted: %w", os.ErrDeadlineExceeded)

func (s *crashSim) deleteTopic() error {
	topic := simTopics[s.rng.IntN(len(simTopics))]
	s.step("delete topic %s", topic)
	if err := s.settle(); err != nil || s.hasCrashed() {
		return err
	}
	s.deletedAt[topic] = s.store.MaxPhyOffset()
	if err := s.store.DeleteTopic(topic); err != nil {
		return s.unlessCrashed("delete topic", err)
	}
	return nil
}

// expire makes the log files old, and lets retention delete them.
func (s *crashSim) expire() error {
	s.step("expire")
	s.logDeletes = true
	entries, err := s.fs.List(simRoot + "/commitlog")
	if err != nil {
		return s.unlessCrashed("list", err)
	}
	for _, e := range entries[:len(entries)/2] {
		if err := s.fs.SetModTime(path.Join(simRoot, "commitlog", e.Name), 0); err != nil {
			return s.unlessCrashed("chtimes", err)
		}
	}
	s.store.DeleteExpiredFiles()
	time.Sleep(5 * time.Second)
	return nil
}

// settle waits until all is dispatched.
func (s *crashSim) settle() error {
	for range 100 {
		synctest.Wait()
		if s.hasCrashed() || s.store.DispatchBehindBytes() == 0 && s.store.RemainHowManyToCommit() == 0 {
			return nil
		}
		time.Sleep(time.Second)
	}
	return fmt.Errorf("dispatch is still %d bytes behind", s.store.DispatchBehindBytes())
}

// read pulls a queue from its beginning and looks at what comes.
func (s *crashSim) read() error {
	topic, queueID := simTopics[s.rng.IntN(len(simTopics))], s.rng.Int32N(2)
	s.step("read %s/%d", topic, queueID)
	_, err := s.pull(topic, queueID)
	return err
}

// pull reads a whole queue through GetMessage: the offsets of its records, by queue offset.
func (s *crashSim) pull(topic string, queueID int32) (map[QueueOffset]PhyOffset, error) {
	found := map[QueueOffset]PhyOffset{}
	at, maxOffset, ok := s.store.QueueOffsets(topic, queueID)
	var result *GetMessageResult
	for rounds := 0; ok && at < maxOffset && !s.hasCrashed(); rounds++ {
		if rounds > 10_000 {
			return nil, fmt.Errorf("reading %s/%d does not end: at %d of %d", topic, queueID, at, maxOffset)
		}
		result = s.store.GetMessage(topic, queueID, at, 32, nil, result)
		for _, b := range result.Buffers {
			for rest := b.Bytes(); len(rest) > 0; {
				var r message.Record
				if err := message.Decode(rest, &r); err != nil {
					result.Release()
					return nil, fmt.Errorf("pull of %s/%d at %d: %w", topic, queueID, at, err)
				}
				if string(r.Topic) != topic || r.QueueID != queueID {
					result.Release()
					return nil, fmt.Errorf("pull of %s/%d at %d gave a message of %s/%d", topic, queueID, at, r.Topic, r.QueueID)
				}
				found[QueueOffset(r.QueueOffset)] = PhyOffset(r.PhysicalOffset)
				rest = rest[r.Size:]
			}
		}
		next := result.NextBeginOffset
		result.Release()
		if next <= at {
			return nil, fmt.Errorf("pull of %s/%d at %d, max %d, goes on at %d", topic, queueID, at, maxOffset, next)
		}
		at = next
	}
	return found, nil
}

// simRecord is one record found on disk.
type simRecord struct {
	message.Record
	key string
}

// check compares log, queues and index, as they lie on disk, with each other and with what was acknowledged.
func (s *crashSim) check() error {
	if err := s.settle(); err != nil {
		return err
	}
	if s.hasCrashed() {
		return nil
	}
	end := s.store.MaxPhyOffset()
	records, err := readLog(s.fs, simRoot+"/commitlog", s.cfg.MappedFileSizeCommitLog, end)
	if err == nil && s.plant.damage != nil && s.life > 1 {
		if s.plant.damage(s.fs, records) {
			records, err = readLog(s.fs, simRoot+"/commitlog", s.cfg.MappedFileSizeCommitLog, end)
		}
	}
	if err == nil {
		err = s.checkMessages(records)
	}
	if err == nil {
		err = s.checkQueues(records)
	}
	if err == nil {
		err = s.checkPulls(records)
	}
	if err == nil {
		err = s.checkIndex(records)
	}
	if unbacked := s.fs.Unbacked(); err == nil && len(unbacked) > 0 {
		err = fmt.Errorf("stored into pages without blocks: %v", unbacked)
	}
	if err != nil && s.hasCrashed() {
		return nil
	}
	return err
}

// readLog walks the records from the first file to end.
func readLog(fsys vfs.FS, dir string, fileSize int64, end PhyOffset) (records []simRecord, err error) {
	entries, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		base, ok := parseFileName(e.Name)
		if !ok || e.Size != fileSize {
			return nil, fmt.Errorf("log file %s has %d bytes, want %d", e.Name, e.Size, fileSize)
		}
		if i > 0 && entries[i-1].Name != fmt.Sprintf("%020d", base-fileSize) {
			return nil, fmt.Errorf("log file %s does not follow %s", e.Name, entries[i-1].Name)
		}
		data, err := fsys.ReadFile(path.Join(dir, e.Name))
		if err != nil {
			return nil, err
		}
		for at := int64(0); at < fileSize && base+at < int64(end); {
			r := simRecord{}
			err := message.Decode(data[at:], &r.Record)
			if errors.Is(err, message.ErrBlank) && int64(r.Size) == fileSize-at {
				break
			}
			if err == nil {
				err = message.CheckCRC(&r.Record)
			}
			if err == nil && r.PhysicalOffset != base+at {
				err = fmt.Errorf("it says it lies at %d", r.PhysicalOffset)
			}
			if err != nil {
				return nil, fmt.Errorf("record at %d, log ends at %d: %w", base+at, end, err)
			}
			key, _ := message.PropertyValue(r.Properties, message.PropertyUniqKey)
			r.key = string(key)
			records = append(records, r)
			at += int64(r.Size)
		}
	}
	return records, nil
}

// checkMessages: no message twice, none that was never sent, each as it was sent, and all that were acknowledged.
func (s *crashSim) checkMessages(records []simRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return nil
	}
	found := map[string]*simRecord{}
	for i := range records {
		r := &records[i]
		m := s.messages[r.key]
		switch {
		case m == nil:
			return fmt.Errorf("message %q at %d was never sent", r.key, r.PhysicalOffset)
		case found[r.key] != nil:
			return fmt.Errorf("message %s is in the log twice, at %d and %d", r.key, found[r.key].PhysicalOffset, r.PhysicalOffset)
		case string(r.Topic) != m.topic || r.QueueID != m.queueID || !bytes.Equal(r.Body, m.body):
			return fmt.Errorf("message %s at %d is not as it was sent", r.key, r.PhysicalOffset)
		}
		found[r.key] = r
	}
	minOffset := s.store.MinPhyOffset()
	for _, m := range s.messages {
		r, ok := found[m.key]
		if must := m.present || m.durable || m.life == s.life && m.appended; must {
			if !ok && !(s.logDeletes && m.offset < minOffset) {
				return fmt.Errorf("message %s, life %d, at %d is lost (durable %v); the log is %d to %d",
					m.key, m.life, m.offset, m.durable, minOffset, s.store.MaxPhyOffset())
			}
			if ok && r.PhysicalOffset != int64(m.offset) {
				return fmt.Errorf("message %s was acknowledged at %d and lies at %d", m.key, m.offset, r.PhysicalOffset)
			}
		}
		m.present = ok
		if ok { // perhaps nobody was told
			m.appended, m.offset, m.end = true, PhyOffset(r.PhysicalOffset), PhyOffset(r.PhysicalOffset)+PhyOffset(r.Size)
		}
	}
	return nil
}

type simQueue struct {
	topic   string
	queueID int32
}

// expected is what the queues have to hold, by what the records say.
func (s *crashSim) expected(records []simRecord) (map[simQueue]map[QueueOffset]ConsumeQueueUnit, error) {
	queues := map[simQueue]map[QueueOffset]ConsumeQueueUnit{}
	for _, r := range records {
		m := s.messages[r.key]
		if m.noQueue || PhyOffset(r.PhysicalOffset) < s.deletedAt[m.topic] {
			continue
		}
		q := simQueue{m.topic, m.queueID}
		if queues[q] == nil {
			queues[q] = map[QueueOffset]ConsumeQueueUnit{}
		}
		unit := ConsumeQueueUnit{Offset: PhyOffset(r.PhysicalOffset), Size: int32(r.Size), TagsCode: message.TagsCode([]byte("tag" + r.key))}
		if m.delayed {
			unit.TagsCode = r.StoreTimestamp + 5_000
		}
		k := QueueOffset(r.QueueOffset)
		if other, taken := queues[q][k]; taken {
			return nil, fmt.Errorf("messages at %d and %d both are number %d of %v", other.Offset, unit.Offset, k, q)
		}
		queues[q][k] = unit
	}
	return queues, nil
}

// checkQueues: each record is in its queue at the place written in it, and nothing else is.
func (s *crashSim) checkQueues(records []simRecord) error {
	want, err := s.expected(records)
	if err != nil {
		return err
	}
	got, err := readQueues(s.fs, simRoot+"/consumequeue", s.cfg.MappedFileSizeConsumeQueue)
	if err != nil {
		return err
	}
	for q, units := range want {
		for _, k := range slices.Sorted(maps.Keys(units)) {
			if got[q][k] != units[k] {
				return fmt.Errorf("unit %d of queue %v is %+v, the log says %+v", k, q, got[q][k], units[k])
			}
		}
	}
	minOffset := s.store.MinPhyOffset()
	for q, units := range got {
		for k, unit := range units {
			expired := s.logDeletes && unit.Offset < minOffset
			if want[q][k] != unit && !expired && unit.Offset >= s.deletedAt[q.topic] {
				return fmt.Errorf("unit %d of queue %v is %+v, the log has %+v", k, q, unit, want[q][k])
			}
		}
	}
	return nil
}

// readQueues reads the units of all queues, from the files alone.
func readQueues(fsys vfs.FS, dir string, fileSize int64) (map[simQueue]map[QueueOffset]ConsumeQueueUnit, error) {
	queues := map[simQueue]map[QueueOffset]ConsumeQueueUnit{}
	topics, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		ids, err := fsys.List(path.Join(dir, topic.Name))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			n, err := strconv.Atoi(id.Name)
			if err != nil {
				return nil, err
			}
			units, err := readQueue(fsys, path.Join(dir, topic.Name, id.Name), fileSize)
			if err != nil {
				return nil, err
			}
			queues[simQueue{topic.Name, int32(n)}] = units
		}
	}
	return queues, nil
}

func readQueue(fsys vfs.FS, dir string, fileSize int64) (map[QueueOffset]ConsumeQueueUnit, error) {
	units := map[QueueOffset]ConsumeQueueUnit{}
	files, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		base, ok := parseFileName(f.Name)
		if !ok || f.Size != fileSize {
			return nil, fmt.Errorf("queue file %s/%s has %d bytes", dir, f.Name, f.Size)
		}
		data, err := fsys.ReadFile(path.Join(dir, f.Name))
		if err != nil {
			return nil, err
		}
		for at := 0; at+consumeQueueUnitSize <= len(data); at += consumeQueueUnitSize {
			be := binary.BigEndian
			unit := ConsumeQueueUnit{
				Offset: PhyOffset(be.Uint64(data[at:])), Size: int32(be.Uint32(data[at+8:])), TagsCode: int64(be.Uint64(data[at+12:])),
			}
			if unit.Size == 0 {
				return units, nil // the end
			}
			if unit.Size != math.MaxInt32 { // a blank
				units[QueueOffset((base+int64(at))/consumeQueueUnitSize)] = unit
			}
		}
	}
	return units, nil
}

// checkPulls: what a consumer gets is what the queues hold.
func (s *crashSim) checkPulls(records []simRecord) error {
	want, err := s.expected(records)
	if err != nil {
		return err
	}
	for q, units := range want {
		found, err := s.pull(q.topic, q.queueID)
		if err != nil {
			return err
		}
		for k, unit := range units {
			if found[k] != unit.Offset {
				return fmt.Errorf("pull of %v gave %d as message %d, the log has it at %d", q, found[k], k, unit.Offset)
			}
		}
	}
	return nil
}

// checkIndex: every record is found by its key.
func (s *crashSim) checkIndex(records []simRecord) error {
	for _, r := range records {
		result := s.store.QueryMessage(string(r.Topic), r.key, 64, 0, math.MaxInt64)
		found := false
		for _, b := range result.Buffers {
			found = found || b.StartOffset == PhyOffset(r.PhysicalOffset)
		}
		result.Release()
		if !found {
			return fmt.Errorf("message %s at %d is not in the index", r.key, r.PhysicalOffset)
		}
	}
	return nil
}

// lyingFS says that an operation was done, and does not do it, or, a write of several parts, only later.
type lyingFS struct {
	*faultfs.FS
	lies func(op faultfs.Op, path string) bool
}

func (f lyingFS) OpenRegion(path string, size int64, create bool) (vfs.Region, error) {
	r, err := f.FS.OpenRegion(path, size, create)
	if err != nil {
		return nil, err
	}
	return &lyingRegion{Region: r, lies: f.lies}, nil
}

func (f lyingFS) MakeRegion(path string, size int64) (vfs.Region, error) {
	r, err := f.FS.MakeRegion(path, size)
	if err != nil {
		return nil, err
	}
	return &lyingRegion{Region: r, lies: f.lies}, nil
}

func (f lyingFS) SyncDir(dir string) error {
	if f.lies(faultfs.OpSyncDir, dir) {
		return nil
	}
	return f.FS.SyncDir(dir)
}

type lyingRegion struct {
	vfs.Region
	lies func(op faultfs.Op, path string) bool

	mu   sync.Mutex // guards late
	late func()     // the write that is not done yet; the next call of the region does it
}

func (r *lyingRegion) catchUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late != nil {
		r.late()
	}
	r.late = nil
}

func (r *lyingRegion) WritevAt(parts [][]byte, off int64) error {
	r.catchUp()
	if !r.lies(faultfs.OpWrite, r.Path()) {
		return r.Region.WritevAt(parts, off)
	}
	data := bytes.Join(parts, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = func() { _ = r.Region.WriteAt(data, off) } // fails after a crash
	return nil
}

func (r *lyingRegion) Sync(from, to int64) error {
	r.catchUp()
	if r.lies(faultfs.OpSync, r.Path()) {
		return nil
	}
	return r.Region.Sync(from, to)
}

func (r *lyingRegion) SyncApart(from, to int64) error {
	r.catchUp()
	if r.lies(faultfs.OpSync, r.Path()) {
		return nil
	}
	return r.Region.SyncApart(from, to)
}
