// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loopmq/storage"
)

var (
	simSeeds = flag.Int("seeds", 0, "seeds of the simulation; 0: LOOPMQ_SEEDS, or a few")
	simSeed  = flag.Uint64("seed", 0, "the one seed of the simulation to run; 0: several")
	simTrace = flag.Bool("simtrace", false, "print the steps of the simulation as they happen")
)

const (
	simSeedsDefault = 60
	simStepsMax     = 260
)

// TestSimulation runs masters and slaves, ours and RocketMQ's, over a network that cuts, delays and breaks, and over
// disks that lose what was not synced. Nodes are killed, lose power, change roles, fill their disks, and come back. The
// code under test is HAConnection, haLink and all behind them over a real store; the event loops, the network and the
// clock are the test's. After each step it looks at the disks:
//
//   - a master and a slave that it transfers to hold equal bytes at equal offsets, so two histories are never joined;
//   - no slave reports what its disk does not hold, and no mark that a send waits for is beyond the master's log;
//   - a send that a SYNC_MASTER answered with PutOK is on as many connected slaves as it has to be;
//   - what a node wrote as a master, or acknowledged to a SYNC_MASTER as a slave, leaves its disk by nothing but a power
//     cut or an operator who rebuilds it. So what was answered survives any one crash;
//   - a master that takes sends has all that was ever answered so, also when it lost power before;
//   - at the end the nodes agree, the master has all that was answered, no queue offset is given out twice, and every
//     piece of log that was lent is back.
//
// A seed fixes the steps. The goroutines of the stores run in whatever order, so a rare failure may take -count to come
// again.
func TestSimulation(t *testing.T) {
	first, n := uint64(1), simSeedCount(t)
	if *simSeed != 0 {
		first, n = *simSeed, 1
	}
	var sum simCounts
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		counts, _ := runSimulation(t, seed, nil)
		sum.add(counts)
	}
	t.Logf("%d seeds: %s", n, sum)
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

func runSimulation(t *testing.T, seed uint64, p *simPlant) (counts simCounts, failure error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(seed, p)
		failure = s.run()
		counts = s.counts
		s.tearDown()
		if failure != nil && p == nil {
			t.Errorf("seed %d: %v\n%s\nlast steps:\n  %s\nreplay: go test ./ha -run 'TestSimulation$' -count=1 -seed=%d -simtrace",
				seed, failure, s.describe(), strings.Join(s.steps[max(0, len(s.steps)-60):], "\n  "), seed)
		}
	})
	return counts, failure
}

// simCounts tell whether the seeds reach what they are meant to reach.
type simCounts struct {
	sends, replicated, timeouts, unavailable, kills, powerCuts, promotions, rebuilds, cuts, tails, refusals, fulls int
}

func (c *simCounts) add(o simCounts) {
	c.sends += o.sends
	c.replicated += o.replicated
	c.timeouts += o.timeouts
	c.unavailable += o.unavailable
	c.kills += o.kills
	c.powerCuts += o.powerCuts
	c.promotions += o.promotions
	c.rebuilds += o.rebuilds
	c.cuts += o.cuts
	c.tails += o.tails
	c.refusals += o.refusals
	c.fulls += o.fulls
}

func (c simCounts) String() string {
	return fmt.Sprintf("%d sends, %d answered as replicated, %d timed out, %d without a slave; %d kills, %d power cuts, %d promotions, %d rebuilds, %d tails cut, %d brought back, %d slaves refused, %d full disks",
		c.sends, c.replicated, c.timeouts, c.unavailable, c.kills, c.powerCuts, c.promotions, c.rebuilds, c.cuts, c.tails, c.refusals, c.fulls)
}

// simulation is one run.
type simulation struct {
	seed  uint64
	rng   *rand.Rand
	plant *simPlant
	net   *simNet
	steps []string

	fileSize    int64
	bodyMax     int
	javaSlave   *rocketmqSlave  // of RocketMQ, beside or instead of ours; nil: none
	javaMaster  *rocketmqMaster // of RocketMQ, whom nodes[0] follows; nil: none
	unsteady    bool            // one pair whose master crashes often and changes between SYNC and ASYNC
	quorum      bool            // two slaves must have each send, which comes to each at its own time
	crashesMild bool            // masters and slaves of RocketMQ cannot see that a log has changed behind an offset

	mu       sync.Mutex // guards what follows and what nodes say they guard by it
	nodes    []*simNode
	messages []*simMessage
	failure  error
	counts   simCounts
}

// simMessage is a send and what is known of it.
type simMessage struct {
	number     int
	writer     *simNode
	sync       bool   // sent to a SYNC_MASTER
	record     []byte // as the writer stored it
	offset     storage.PhyOffset
	replicated bool // answered with PutOK by a SYNC_MASTER
	givenUp    bool // by an operator who did not wait for the slaves that have it
	onRocketmq bool // RocketMQ's slave had it then
	// holders have it and lose it only to a power cut, or by the operator; true: not even by a power cut.
	holders map[*simNode]bool
}

func (m *simMessage) end() storage.PhyOffset { return m.offset + storage.PhyOffset(len(m.record)) }

// promised says that a master must have it.
func (m *simMessage) promised() bool { return m.replicated && !m.givenUp }

func newSimulation(seed uint64, p *simPlant) *simulation {
	rng := rand.New(rand.NewPCG(seed, 11))
	s := &simulation{seed: seed, rng: rng, plant: p, net: &simNet{rng: rng}}
	if s.plant == nil {
		s.plant = &simPlant{}
	}
	s.net.settled = func() { s.plant.afterStep(s) }
	s.fileSize = 4096 << rng.IntN(3)
	s.bodyMax = 1 + rng.IntN(1200)
	if rng.IntN(6) == 0 { // so long that the comparison halves by blocks
		s.fileSize, s.bodyMax = 64<<10, 12<<10
	}
	nodes := 2 + rng.IntN(2)
	switch seed % 5 {
	case 0:
		nodes, s.unsteady = 2, true
	case 1:
		nodes, s.quorum = 3, true
	case 3:
		nodes, s.crashesMild = 2, true
		s.javaSlave = newRocketmqSlave(s)
	case 4:
		nodes, s.crashesMild = 1, true
		s.javaMaster = newRocketmqMaster(s)
	}
	for i := range nodes {
		s.nodes = append(s.nodes, newSimNode(s, i))
	}
	return s
}

func (s *simulation) describe() string {
	return fmt.Sprintf("settings: %d nodes, log files of %d, bodies to %d, RocketMQ slave %v, RocketMQ master %v; %s",
		len(s.nodes), s.fileSize, s.bodyMax, s.javaSlave != nil, s.javaMaster != nil, s.counts)
}

func (s *simulation) step(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, line)
	if *simTrace {
		fmt.Println(line)
	}
}

// fail notes the first thing that is wrong. Any goroutine.
func (s *simulation) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(format, args...)
}

func (s *simulation) failLocked(format string, args ...any) {
	if s.failure == nil {
		s.failure = fmt.Errorf(format, args...)
	}
}

func (s *simulation) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *simulation) run() error {
	if s.javaMaster == nil {
		s.nodes[0].role = s.masterRole()
		s.appoint(s.nodes[0])
	}
	for _, n := range s.nodes {
		n.start()
	}
	for range 40 + s.rng.IntN(simStepsMax-40) {
		s.act()
		s.after()
		if err := s.failed(); err != nil {
			return err
		}
	}
	s.finish()
	return s.failed()
}

// after lets the step come to its end, buries who died in it, and checks.
func (s *simulation) after() {
	s.settle()
	s.check()
}

// settle lets everything come to rest, and takes down who has crashed meanwhile, so that a node without power says
// nothing more.
func (s *simulation) settle() {
	s.net.settle()
	for _, n := range s.nodes {
		if n.hasCrashed() {
			n.bury()
		}
	}
	s.net.settle()
}

func (s *simulation) masterRole() storage.Role {
	if s.unsteady {
		return storage.Role(s.rng.IntN(2))
	}
	if s.rng.IntN(3) == 0 {
		return storage.AsyncMaster
	}
	return storage.SyncMaster
}

// appoint makes all others follow n from their next start or connect on.
func (s *simulation) appoint(n *simNode) {
	for _, other := range s.nodes {
		if other != n {
			other.master = n
			other.role = storage.Slave
		}
	}
	n.master = nil
}

// act does one thing.
func (s *simulation) act() {
	switch n := s.rng.IntN(200); {
	case s.unsteady && (n >= 90 && n < 105 || n >= 184 && n < 190):
		s.unsettle()
	case n >= 130 && n < 160 && s.quorum:
		if n := s.pick(func(n *simNode) bool { return n.up && n.linkConn != nil }); n != nil {
			s.step("all between %s and its master arrives", n.name)
			s.exchange(n.linkConn)
		}
	case n >= 173 && n < 180 && s.quorum:
		s.flap()
	case n < 45:
		s.send()
	case n < 105:
		for range 1 + s.rng.IntN(12) {
			s.deliver()
		}
	case n < 130:
		s.sleep()
	case n < 166:
		s.connect()
	case n < 173:
		s.breakConnection()
	case n < 176:
		s.crash()
	case n < 184:
		s.restart()
	case n < 186:
		s.promote()
	case n < 190:
		s.operate()
	case n < 192:
		s.fillDisk()
	case n < 194:
		s.rogue()
	case n < 195:
		s.expire()
	default:
		s.step("deliver all")
		s.drain()
	}
}

func (s *simulation) pick(of func(n *simNode) bool) *simNode {
	var nodes []*simNode
	for _, n := range s.nodes {
		if of(n) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return nodes[s.rng.IntN(len(nodes))]
}

func (s *simulation) send() {
	count := 1 + s.rng.IntN(4)
	if s.javaMaster != nil {
		s.step("%d messages to the RocketMQ master", count)
		s.javaMaster.append(count)
		return
	}
	if n := s.pick(func(n *simNode) bool { return n.up && n.role != storage.Slave }); n != nil {
		s.step("%d messages to %s", count, n.name)
		for range count {
			n.send()
		}
	}
}

// deliver moves a slice of what is on its way.
func (s *simulation) deliver() {
	var busy []*simConn
	for _, c := range s.net.conns {
		if len(c.out) > 0 || c.fin {
			busy = append(busy, c)
		}
	}
	if len(busy) == 0 {
		return
	}
	c := busy[s.rng.IntN(len(busy))]
	n := len(c.out)
	if s.rng.IntN(2) > 0 {
		n = min(n, 1+s.rng.IntN(1<<s.rng.IntN(14)))
	}
	s.step("deliver %d of %d bytes from %s", n, len(c.out), c.name())
	c.deliver(n)
	s.settle()
}

// exchange delivers all between two ends, until they have nothing more to say.
func (s *simulation) exchange(c *simConn) {
	for c != nil && !c.done() && len(c.out)+len(c.peer.out) > 0 {
		c.deliver(len(c.out))
		c.peer.deliver(len(c.peer.out))
		s.settle()
	}
}

// drain delivers everything, again and again.
func (s *simulation) drain() {
	for range 200 {
		s.settle()
		busy := false
		for _, c := range slices.Clone(s.net.conns) {
			if len(c.out) > 0 || c.fin {
				busy = true
				c.deliver(len(c.out))
			}
		}
		if !busy {
			return
		}
	}
}

func (s *simulation) sleep() {
	d := time.Duration(s.rng.Int64N(int64(600 * time.Millisecond)))
	switch s.rng.IntN(8) {
	case 0:
		d = time.Duration(s.rng.Int64N(int64(7 * time.Second)))
	case 1:
		d = 21 * time.Second
	}
	s.step("sleep %v", d)
	s.tickFor(d)
}

// tickFor lets time pass, with the ticks of the loops.
func (s *simulation) tickFor(d time.Duration) {
	for d > 0 {
		// Ticks every 100 ms cost too much over minutes; the code must not need them that often.
		nap := min(d, 3*time.Second)
		time.Sleep(nap)
		d -= nap
		for _, n := range s.nodes {
			n.tick()
		}
		if s.javaMaster != nil {
			s.javaMaster.tick()
		}
		if s.javaSlave != nil {
			s.javaSlave.tick()
		}
		s.net.settle()
	}
}

func (s *simulation) connect() {
	if s.javaSlave != nil && s.rng.IntN(2) == 0 {
		s.javaSlave.connect(s.pick(func(n *simNode) bool { return n.up && n.role != storage.Slave }))
		return
	}
	if n := s.pick(func(n *simNode) bool { return n.up && n.role == storage.Slave && n.linkConn == nil }); n != nil {
		n.connect()
	}
}

// flap ends the connection of a slave that has just acknowledged: the master learns it, or gets a second one.
func (s *simulation) flap() {
	n := s.pick(func(n *simNode) bool { return n.up && n.linkConn != nil })
	if n == nil || n.hasCrashed() {
		return
	}
	s.send()
	s.net.settle()
	s.exchange(n.linkConn)
	c := n.linkConn
	if c == nil {
		return
	}
	if s.rng.IntN(2) == 0 {
		s.step("%s is reset; then the other slave gets its share", c.name())
		c.shut(errSimReset)
		c.peer.shut(errSimReset)
		s.net.settle()
		if other := s.pick(func(o *simNode) bool { return o != n && o.up && o.linkConn != nil }); other != nil {
			s.exchange(other.linkConn)
		}
		return
	}
	s.step("%s is half open", c.name())
	c.silent, c.peer.silent = true, true
	c.shut(errSimReset)
	s.net.settle()
	n.connect()
	s.exchange(n.linkConn)
}

// breakConnection ends a connection in one of the ways that networks have.
func (s *simulation) breakConnection() {
	if len(s.net.conns) == 0 {
		return
	}
	c := s.net.conns[s.rng.IntN(len(s.net.conns))]
	if c.done() {
		return
	}
	switch s.rng.IntN(5) {
	case 0:
		s.step("%s goes silent", c.name())
		c.silent, c.out = true, nil
	case 1:
		s.step("%s is half open: %s thinks that it is gone", c.name(), c.name())
		c.silent, c.peer.silent = true, true
		c.shut(errSimReset)
	case 2:
		s.step("%s is cut; both sides learn it by writing", c.name())
		c.out, c.peer.out = nil, nil
		c.reset, c.peer.reset = true, true
	default:
		n := s.rng.IntN(len(c.out) + 1)
		s.step("%s is reset after %d of %d bytes", c.name(), n, len(c.out))
		c.deliver(n)
		c.out, c.peer.out = nil, nil
		c.shut(errSimReset)
		c.peer.shut(errSimReset)
	}
}

func (s *simulation) crash() {
	n := s.pick(func(n *simNode) bool { return n.up })
	if n == nil {
		return
	}
	if s.rng.IntN(3) == 0 {
		n.opsLeft.Store(1 + s.rng.Int64N(40))
		s.step("%s will end at an operation of its file system", n.name)
		return
	}
	n.crash("at a step")
}

// unsettle crashes the master of a pair, and brings back who is down.
func (s *simulation) unsettle() {
	if n := s.pick(func(n *simNode) bool { return n.up && n.role != storage.Slave }); n != nil && s.rng.IntN(3) > 0 {
		if s.rng.IntN(2) == 0 { // with the newest on the slave and not on the disk
			s.send()
			s.drain()
		}
		n.crash("often")
		n.bury()
	}
	for _, n := range s.nodes {
		if !n.up {
			if n.role != storage.Slave {
				n.role = storage.Role(s.rng.IntN(2))
			}
			n.start()
			if n.waits() && s.rng.IntN(3) == 0 {
				s.giveUp(n)
			}
		}
	}
	if n := s.nodes[1]; n.up && n.linkConn == nil {
		n.connect()
	}
	s.drain()
}

// giveUp is an operator who lets a master go on without its slaves. What only they have is lost to it, and stays theirs.
func (s *simulation) giveUp(n *simNode) {
	s.step("the operator does not let %s wait for its slaves", n.name)
	img := n.image()
	defer img.close()
	s.mu.Lock()
	for _, m := range s.messages {
		m.givenUp = m.givenUp || m.replicated && !img.holds(m)
	}
	s.mu.Unlock()
	n.haConfig.HaTailTimeout = 0
	n.tick()
}

func (s *simulation) restart() {
	n := s.pick(func(n *simNode) bool { return !n.up })
	switch {
	case n == nil:
		return
	case n.role != storage.Slave && s.rng.IntN(8) == 0:
		s.promote()
		return
	case n.role != storage.Slave && s.rng.IntN(3) == 0:
		n.role = s.masterRole()
	}
	n.start()
}

// promote makes a slave the master by a restart with another role. It is one that has all that was answered: that is
// what a SYNC_MASTER promises to whoever chooses.
func (s *simulation) promote() {
	if s.javaMaster != nil || s.javaSlave != nil {
		return
	}
	next := s.pick(func(n *simNode) bool { return n.role == storage.Slave && !n.powerCut && s.hasAllReplicated(n) })
	if next == nil {
		return
	}
	split := len(s.nodes) == 2 && s.rng.IntN(3) == 0 // the other one is not told, and goes on
	s.step("%s becomes master, split %v", next.name, split)
	s.counts.promotions++
	for _, n := range s.nodes {
		if n != next && n.up && n.role != storage.Slave && !split {
			if s.rng.IntN(2) == 0 {
				n.stop()
			} else {
				n.crash("for the promotion")
				n.bury()
			}
		}
	}
	if next.up {
		if s.rng.IntN(2) == 0 {
			next.stop()
		} else {
			next.crash("for the promotion")
			next.bury()
		}
	}
	if next.powerCut || !s.hasAllReplicated(next) {
		return // it lost what made it fit
	}
	if split {
		next.master = nil
	} else {
		s.appoint(next)
	}
	next.role = s.masterRole()
	next.start()
}

// operate is what an operator does about a node that is refused, or that was left a master beside the new one.
func (s *simulation) operate() {
	masters := 0
	for _, n := range s.nodes {
		if n.role != storage.Slave {
			masters++
		}
	}
	if masters > 1 {
		keep := s.pick(func(n *simNode) bool { return n.role != storage.Slave && !n.powerCut && s.hasAllReplicated(n) })
		if keep == nil {
			return
		}
		s.step("the split ends, %s stays master", keep.name)
		for _, n := range s.nodes {
			if n != keep && n.up && n.role != storage.Slave {
				n.stop()
			}
		}
		s.appoint(keep)
		return
	}
	if n := s.pick(func(n *simNode) bool { return n.refused }); n != nil {
		s.rebuild(n)
	}
}

// rebuild empties a slave that is refused, if its master has everything that was answered.
func (s *simulation) rebuild(n *simNode) bool {
	if n.role != storage.Slave || n.master == nil || n.master.powerCut || !s.hasAllReplicated(n.master) {
		return false
	}
	s.step("%s is rebuilt", n.name)
	s.counts.rebuilds++
	n.empty()
	if n.master.waits() {
		n.master.haConfig.HaTailTimeout = 0
	}
	n.start()
	return true
}

func (s *simulation) fillDisk() {
	n := s.pick(func(n *simNode) bool { return n.up })
	if n == nil {
		return
	}
	if n.full {
		s.step("the disk of %s has room again", n.name)
		n.fs.SetCapacity(1 << 40)
	} else {
		s.step("the disk of %s is full", n.name)
		s.counts.fulls++
		n.fs.SetCapacity(n.fs.Used() + s.rng.Int64N(s.fileSize))
	}
	n.full = !n.full
}

// rogue connects to a master and says that it has more than there is.
func (s *simulation) rogue() {
	n := s.pick(func(n *simNode) bool { return n.up && n.role != storage.Slave })
	if n == nil {
		return
	}
	ahead := n.store.MaxPhyOffset() + 1 + storage.PhyOffset(s.rng.IntN(5000))
	s.step("somebody reports %d to %s", ahead, n.name)
	r := &rogue{}
	conn, _ := s.net.dial(r, &masterHandler{n.service}, nil, n, nil)
	for range 1 + s.rng.IntN(2) {
		var b [reportSize]byte
		encodeReport(&b, int64(ahead))
		_ = conn.Writev([][]byte{b[:]})
		conn.deliver(reportSize)
		s.plant.onRogue(s, n, ahead)
	}
}

// expire deletes a master's old files.
func (s *simulation) expire() {
	n := s.pick(func(n *simNode) bool { return n.up && n.role != storage.Slave })
	if n == nil || s.crashesMild || n.store.MaxPhyOffset()-n.store.MinPhyOffset() < 3*storage.PhyOffset(s.fileSize) {
		return
	}
	s.step("%s deletes old files", n.name)
	n.store.DeleteExpiredFiles()
	s.tickFor(11 * time.Second)
}

// hasAllReplicated says whether the node's disk has every send that was answered as replicated.
func (s *simulation) hasAllReplicated(n *simNode) bool {
	img := n.image()
	defer img.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if m.promised() && !img.holds(m) && m.offset >= img.first {
			return false
		}
	}
	return true
}

// finish ends all faults and wants the nodes to agree.
func (s *simulation) finish() {
	s.step("all faults end")
	for round := range 80 {
		for _, n := range s.nodes {
			n.fs.SetCapacity(1 << 40)
			n.full = false
			n.opsLeft.Store(0)
			if n.up {
				n.haConfig.HaTransferBatchSize = 32 << 10
			}
		}
		if s.javaMaster == nil && !s.ensureMaster() {
			s.fail("no node has all that was answered as replicated")
			return
		}
		for _, n := range s.nodes {
			if n.up && n.store.Stats().LatchedCause != nil { // a full disk in the middle of a cut
				n.crash("the operator restarts a store that is read-only")
				n.bury()
			}
			if !n.up {
				n.start()
			}
		}
		if round > 3 {
			for _, n := range s.nodes {
				if n.refused && !s.rebuild(n) && s.javaMaster != nil {
					s.fail("%s refuses a RocketMQ master", n.name)
				}
			}
		}
		for _, n := range s.nodes {
			if n.role == storage.Slave && n.linkConn == nil {
				n.connect()
			}
		}
		if s.javaSlave != nil {
			if s.javaSlave.end() < s.master().store.MinPhyOffset() {
				s.javaSlave.empty()
			}
			s.javaSlave.connect(s.master())
		}
		s.drain()
		s.tickFor(6 * time.Second)
		s.drain()
		s.after()
		if s.failed() != nil || s.agreed() {
			break
		}
	}
	if s.failed() == nil && !s.agreed() {
		s.fail("the nodes do not come together: %s", s.ends())
	}
	if s.failed() == nil {
		s.checkAtRest()
	}
	for _, n := range s.nodes {
		if n.up {
			n.stop()
		}
	}
}

// master is the one master that is left.
func (s *simulation) master() *simNode {
	for _, n := range s.nodes {
		if n.role != storage.Slave {
			return n
		}
	}
	return nil
}

// mayGetBack says that a master waits for slaves which have not refused it.
func (s *simulation) mayGetBack(n *simNode) bool {
	return n.waits() && s.pick(func(other *simNode) bool { return other.refused }) == nil
}

// ensureMaster leaves one master, which has all that was answered.
func (s *simulation) ensureMaster() bool {
	keep := s.master()
	if keep == nil || (keep.powerCut || !s.hasAllReplicated(keep)) && !s.mayGetBack(keep) || s.masters() > 1 {
		keep = s.pick(func(n *simNode) bool { return !n.powerCut && s.hasAllReplicated(n) })
		if keep == nil {
			// Who lost power may still have it: that shows when it is up.
			for _, n := range s.nodes {
				if !n.up {
					n.start()
				}
			}
			if keep = s.pick(s.hasAllReplicated); keep == nil {
				return false
			}
		}
	}
	if s.masters() == 1 && keep.role != storage.Slave {
		return true
	}
	s.step("%s is to be the master", keep.name)
	for _, n := range s.nodes {
		if n.up && (n.role != storage.Slave || n == keep) {
			n.stop()
		}
	}
	s.appoint(keep)
	keep.role = storage.SyncMaster
	return true
}

func (s *simulation) masters() (count int) {
	for _, n := range s.nodes {
		if n.role != storage.Slave {
			count++
		}
	}
	return count
}

// agreed says that all slaves are fed and at the master's end.
func (s *simulation) agreed() bool {
	end := storage.PhyOffset(0)
	if s.javaMaster != nil {
		end = s.javaMaster.end()
	} else {
		end = s.master().store.MaxPhyOffset()
	}
	for _, n := range s.nodes {
		if n.waits() {
			return false
		}
		if n.role != storage.Slave {
			continue
		}
		if n.linkConn == nil || n.link.state != linkTransfer {
			return false
		}
		// A slave of a log that is empty behind deleted files has nothing, and waits at its end.
		if has := n.store.MaxPhyOffset(); has != end && !(has == 0 && n.reports.last == end) {
			return false
		}
	}
	return s.javaSlave == nil || s.javaSlave.end() == end
}

func (s *simulation) ends() string {
	var b strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "%s role %d up %v refused %v waits %v", n.name, n.role, n.up, n.refused, n.waits())
		if n.up {
			fmt.Fprintf(&b, " log %d to %d", n.store.MinPhyOffset(), n.store.MaxPhyOffset())
		}
		if n.linkConn != nil {
			fmt.Fprintf(&b, " link %s %q", linkStates[n.link.state], n.link.refused)
		}
		b.WriteString("; ")
	}
	if s.javaSlave != nil {
		fmt.Fprintf(&b, "RocketMQ slave to %d", s.javaSlave.end())
	}
	if s.javaMaster != nil {
		fmt.Fprintf(&b, "RocketMQ master to %d", s.javaMaster.end())
	}
	return b.String()
}

func (s *simulation) tearDown() {
	for _, n := range s.nodes {
		if n.up {
			n.crash("the test is over")
			n.bury()
		}
	}
	s.net.settle()
}

// crashSeed makes the coins of a power cut differ.
func (s *simulation) crashSeed(n *simNode) uint64 {
	return s.seed<<16 + uint64(n.index)<<12 + uint64(n.lives)
}
