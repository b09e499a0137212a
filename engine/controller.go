// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"loopmq/ha"
	"loopmq/reactor"
	"loopmq/reactor/remoting"
	"loopmq/storage"
	"loopmq/storage/latency"
	"loopmq/storage/vfs"
)

// Options are what is not configuration.
type Options struct {
	FS     vfs.FS // nil: the real one
	Logger *slog.Logger
	Boot   string // names the machine's boot; empty: the kernel does
}

// BrokerController wires the broker and owns its life cycle: New, Start, Shutdown, each once.
type BrokerController struct {
	config   atomic.Pointer[Config]
	haConfig atomic.Pointer[ha.Config] // replication's part of config
	logger   *slog.Logger
	fs       vfs.FS
	boot     string

	store  *storage.MessageStore
	server *reactor.RemotingServer

	topics    *TopicConfigManager
	groups    *SubscriptionGroupManager
	offsets   *ConsumerOffsetManager
	consumers *ConsumerManager
	producers *ProducerManager
	locks     *RebalanceLockManager
	hold      *PullRequestHoldService
	schedule  *ScheduleMessageService
	outer     *BrokerOuterAPI
	sends     *SendMessageProcessor
	stats     *BrokerStats
	sendTimes sendTimes

	// Lanes for what may wait for a disk.
	pullLane     *reactor.Lane
	queryLane    *reactor.Lane // 12, 33, 36 and what reads records
	adminLane    *reactor.Lane // one worker: topics, groups, configuration
	newTopicLane *reactor.Lane // one worker: sends to new topics, which name servers hear of first
	toolLane     *reactor.Lane // one worker: answers to tools that changed topics, likewise

	// storeHost is the address that stored records carry, brokerIP1:listenPort; set when the port is bound.
	storeHost atomic.Pointer[netip.AddrPort]
	ha        *ha.HAService
	haClient  *ha.HAClient // nil unless this is a slave
	slaveSync *SlaveSynchronize
	offers    offsetOffers
	// replicas answers sends that must wait for a slave; ha unless a test has its own.
	replicas replicaWaiter

	life lifecycle
}

// New checks the configuration and makes a broker that is not yet started: it touches no file and no port.
func New(cfg Config, opts Options) (*BrokerController, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	b := &BrokerController{logger: opts.Logger, fs: opts.FS, boot: opts.Boot}
	if b.boot == "" {
		b.boot = bootID()
	}
	if b.logger == nil {
		b.logger = slog.New(slog.DiscardHandler)
	}
	if b.fs == nil {
		b.fs = vfs.OS{}
	}
	b.sendTimes.logger, b.sendTimes.lines.Interval = b.logger, slowSendLogInterval
	b.useConfig(&cfg)
	b.life.init()
	return b, nil
}

// Config is the configuration now in force: read only.
func (b *BrokerController) Config() *Config { return b.config.Load() }

// Store is the message store; nil before Start.
func (b *BrokerController) Store() *storage.MessageStore { return b.store }

// Addr is the bound client port.
func (b *BrokerController) Addr() netip.AddrPort { return b.server.Addr() }

// BrokerAddr is what clients and name servers are told: brokerIP1:listenPort.
func (b *BrokerController) BrokerAddr() string {
	return net.JoinHostPort(b.Config().BrokerIP1, strconv.Itoa(int(b.server.Addr().Port())))
}

// NameServers are the configured name servers and how things stand with them.
func (b *BrokerController) NameServers() []NameServerState { return b.outer.NameServers() }

// Ready is nil while the broker serves clients and its store takes messages.
func (b *BrokerController) Ready() error {
	if !b.life.serving.Load() {
		return errors.New("not serving clients")
	}
	if cause := b.store.Stats().LatchedCause; cause != nil {
		return fmt.Errorf("the store is read-only: %w", cause)
	}
	if tail := b.ha.Tail(); tail != nil {
		return errors.New(tail.String())
	}
	return nil
}

// openStore locks, loads and recovers what is on disk. Files come before services, services before ports.
func (b *BrokerController) openStore() (err error) {
	b.hold = newPullRequestHoldService(b)
	b.store, err = storage.Open(b.Config().Store, storage.Options{
		FS: b.fs, Logger: b.logger,
		MinRetained: func() (storage.PhyOffset, bool) { return b.ha.MinRetained() },
		Listener: storage.EventListener{
			MessageArriving: b.hold.Arrival,
			Awaited:         func() bool { return b.hold.parked.Load() > 0 },
			Readable:        func(end storage.PhyOffset) { b.ha.Readable(end) },
			AnswerTogether:  func(answer func()) { b.server.Together(answer) },
			ReadOnly: func(cause error) {
				b.logger.Error("the store is read-only from now on: sends are refused until the broker is restarted on a healthy disk", "cause", cause)
			},
			FileRolled: func(base storage.PhyOffset, took time.Duration) {
				b.logger.Info("log file rolled", "base", base, "took", took)
			},
			FileDeleted: func(path string) { b.logger.Info("file deleted", "file", path) },
			Progress: func(what string, done, total int64) {
				b.logger.Info("starting", "step", what, "done", done, "total", total)
			},
		},
	})
	return err
}

// loadTables reads the files of config/.
func (b *BrokerController) loadTables() (err error) {
	b.stats = newBrokerStats()
	b.consumers, b.producers, b.locks = newConsumerManager(), newProducerManager(), newRebalanceLockManager()
	if b.topics, err = newTopicConfigManager(b); err != nil {
		return err
	}
	if b.groups, err = newSubscriptionGroupManager(b); err != nil {
		return err
	}
	if b.offsets, err = newConsumerOffsetManager(b); err != nil {
		return err
	}
	b.schedule = newScheduleMessageService(b)
	return b.schedule.Load()
}

// queueEnd is the next offset of a queue.
func (b *BrokerController) queueEnd(topic string, queueID int32) int64 {
	_, end, _ := b.store.QueueOffsets(topic, queueID)
	return int64(end)
}

// startLanes starts the workers. Their numbers and bounds are Java's keys; the admin lane has one worker, so tables and
// files have one writer.
func (b *BrokerController) startLanes() {
	cfg := b.Config()
	b.pullLane = reactor.NewLane("pull", cfg.PullMessageThreadPoolNums, cfg.PullThreadPoolQueueCapacity)
	b.queryLane = reactor.NewLane("query", cfg.QueryMessageThreadPoolNums, cfg.QueryThreadPoolQueueCapacity)
	b.adminLane = reactor.NewLane("admin", 1, cfg.AdminQueueCapacity)
	b.newTopicLane = reactor.NewLane("newTopic", 1, newTopicBatchesMax)
	b.toolLane = reactor.NewLane("tool", 1, toolAnswersMax)
}

const (
	// newTopicBatchesMax bounds the batches of sends that wait for name servers, of up to sendsGatheredMax each.
	newTopicBatchesMax = 4
	// toolAnswersMax bounds the answers to tools that wait for them.
	toolAnswersMax = 1000
)

func (b *BrokerController) lanes() []*reactor.Lane {
	return []*reactor.Lane{b.pullLane, b.queryLane, b.adminLane, b.newTopicLane, b.toolLane} // work goes from admin to the last two
}

// newServer makes the client port, with its VIP port listenPort-2, and gives each request code its processor.
func (b *BrokerController) newServer() {
	cfg := b.Config()
	addrs := []string{net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.ListenPort))}
	if cfg.ListenPort != 0 {
		addrs = append(addrs, net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.ListenPort-2)))
	}
	b.server = reactor.NewRemotingServer(reactor.RemotingServerConfig{
		Addrs: addrs, NumLoops: cfg.ServerLoops, Logger: b.logger,
		IdleTimeout: time.Duration(cfg.ServerChannelMaxIdleTimeSeconds) * time.Second,
		OnSessionClose: func(session *reactor.Session, _ string) {
			b.hold.SessionClosed(session.ID())
			b.sessionClosed(session)
		},
		GroupOf: requestGroup,
		OnTold: func(loop *reactor.Loop, notes []any, at time.Time) {
			written := int64(0)
			if !at.IsZero() {
				written = latency.Of(at)
			}
			b.sends.answered(loop, notes, written)
		},
	})
	b.registerProcessors()
}

const (
	onVIP   = true
	mainVIP = false // pulls are for the main port only: the original does not register them on port-2
)

// registerProcessors gives each request code to its processor, and to the lane that what it touches asks for.
// Source: BrokerController#registerProcessor.
func (b *BrokerController) registerProcessors() {
	register := func(p reactor.Processor, lane *reactor.Lane, vip bool, codes ...int32) {
		for _, code := range codes {
			b.server.RegisterProcessor(code, p, lane, vip)
		}
	}
	b.sends = newSendMessageProcessor(b)
	register(b.sends, nil, onVIP, remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage)
	register(newPullMessageProcessor(b), nil, mainVIP, remoting.PullMessage, remoting.LitePullMessage)
	register(newSendBackProcessor(b), b.queryLane, onVIP, remoting.ConsumerSendMsgBack)
	register(newEndTransactionProcessor(b), nil, onVIP, remoting.EndTransaction)
	register(newQueryMessageProcessor(b), b.queryLane, onVIP, remoting.QueryMessage, remoting.ViewMessageByID)

	b.registerAdmin(b.server)
	b.server.RegisterDefaultProcessor(reactor.ProcessorFunc(func(req *reactor.Request) {
		replyRemark(req.ReplyTo(), remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
	}), nil)
}

// requestGroups names the groups that requests are counted in.
var requestGroups = [reactor.RequestGroupsMax]string{"other", "send", "pull", "sendBack", "offset", "query", "client", "admin"}

// requestGroup is the group of a code, as requestGroups numbers it.
func requestGroup(code int32) int {
	switch code {
	case remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage, remoting.EndTransaction:
		return 1
	case remoting.PullMessage, remoting.LitePullMessage:
		return 2
	case remoting.ConsumerSendMsgBack:
		return 3
	case remoting.QueryConsumerOffset, remoting.UpdateConsumerOffset, remoting.GetMaxOffset, remoting.GetMinOffset,
		remoting.SearchOffsetByTimestamp, remoting.GetEarliestMsgStoreTime:
		return 4
	case remoting.QueryMessage, remoting.ViewMessageByID:
		return 5
	case remoting.HeartBeat, remoting.UnregisterClient, remoting.CheckClientConfig, remoting.GetConsumerListByGroup,
		remoting.LockBatchMQ, remoting.UnlockBatchMQ:
		return 6
	}
	return 7
}

// applyOrderTopics gives the order mark to the topics that the name servers' KV table lists, and takes it from others.
// Source: TopicConfigManager#updateOrderTopicConfig.
func (b *BrokerController) applyOrderTopics(listed []string) {
	order := make(map[string]bool, len(listed))
	for _, topic := range listed {
		order[topic] = true
	}
	b.submitAdmin(func() {
		topics, _ := b.topics.All()
		var changed []*TopicConfig
		for name, t := range topics {
			if t.Order != order[name] {
				c := *t
				c.Order = order[name]
				changed = append(changed, &c)
			}
		}
		if len(changed) == 0 {
			return
		}
		if err := b.topics.UpdateAll(changed); err != nil {
			b.logger.Error("order topics not taken over", "err", err)
		}
	})
}

// resolveHost is the IP address of brokerIP1, which may be a name: stored records carry an address.
func resolveHost(host string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap(), nil
	}
	addrs, err := net.LookupHost(host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("brokerIP1: %w", err)
	}
	for _, text := range addrs {
		if addr, err := netip.ParseAddr(text); err == nil {
			return addr.Unmap().WithZone(""), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("brokerIP1: %s has no address", host)
}

// every runs f each interval until the broker stops. f gets the moment at which it runs.
func (b *BrokerController) every(interval func() time.Duration, f func(now time.Time)) {
	b.life.periodic.Go(func() {
		for {
			timer := time.NewTimer(interval())
			select {
			case <-b.life.stopPeriodic:
				timer.Stop()
				return
			case now := <-timer.C:
				f(now)
			}
		}
	})
}

func fixed(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func eachSecond() time.Duration { return reactor.UntilSecond(time.Now()) }

func millis(of func(*Config) int64, b *BrokerController) func() time.Duration {
	return func() time.Duration { return time.Duration(of(b.Config())) * time.Millisecond }
}

// lifecycle is the state of start and stop.
type lifecycle struct {
	// What Start has begun. Start and Shutdown are called one after the other.
	started                                     bool
	holdStarted, scheduleStarted, serverStarted bool
	haStarted, haClientStarted                  bool
	serving                                     atomic.Bool // the client port is open and requests are welcome

	periodic     sync.WaitGroup
	stopPeriodic chan struct{}

	stopOnce sync.Once
	stopErr  error

	endOnce sync.Once
	end     chan struct{} // closed when the broker ended, asked or not
	endErr  error         // why, if not asked; read after end is closed
}

func (l *lifecycle) init() {
	l.stopPeriodic = make(chan struct{})
	l.end = make(chan struct{})
}

func (l *lifecycle) finish(err error) {
	l.endOnce.Do(func() {
		l.endErr = err
		close(l.end)
	})
}
