// SPDX-License-Identifier: Apache-2.0

package goclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// patience is generous: the machine may be busy, and the client looks for new queues only every 10 s.
const patience = 90 * time.Second

var (
	nameServers primitive.NamesrvAddr
	brokerAddr  string
	run         = time.Now().UnixNano() / 1_000_000
)

// TestMain uses the node that LOOPMQ_NAMESRV and LOOPMQ_BROKER name, or builds and runs one of its own.
func TestMain(m *testing.M) {
	rlog.SetLogLevel("error")
	stop := func() {}
	if ns := os.Getenv("LOOPMQ_NAMESRV"); ns != "" {
		nameServers, brokerAddr = primitive.NamesrvAddr{ns}, os.Getenv("LOOPMQ_BROKER")
	} else {
		var err error
		if stop, err = runNode(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

func runNode() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "loopmq-goclient")
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "loopmq")
	build := exec.Command("go", "build", "-o", binary, "./cmd/loopmq")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	namesrvPort, brokerPort := freePort(), freePort()
	conf := filepath.Join(dir, "my.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "listenPort=%d\nadminAddr=\n", brokerPort), 0o644); err != nil {
		return nil, err
	}
	node := exec.Command(binary, "run", "-d", filepath.Join(dir, "data"), "-c", conf, "--namesrv-port", fmt.Sprint(namesrvPort))
	node.Stderr = os.Stderr
	if err := node.Start(); err != nil {
		return nil, err
	}
	nameServers = primitive.NamesrvAddr{fmt.Sprintf("127.0.0.1:%d", namesrvPort)}
	brokerAddr = fmt.Sprintf("127.0.0.1:%d", brokerPort)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", brokerAddr); err == nil {
			c.Close()
			break
		}
	}
	return func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

// freePort returns a port such that it, the two below and the one above are free, and that the kernel does not take for
// outgoing connections.
func freePort() int {
	for {
		port := 12_000 + rand.IntN(20_000)
		if canListen(port-2) && canListen(port) && canListen(port+1) {
			return port
		}
	}
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func newTopic(t *testing.T, name string) string {
	t.Helper()
	topic := fmt.Sprintf("go_%s_%d", name, run)
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(nameServers)))
	must(t, err)
	must(t, a.CreateTopic(context.Background(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(brokerAddr), admin.WithReadQueueNums(4), admin.WithWriteQueueNums(4)))
	eventually(t, "the route of "+topic, func() bool {
		queues, err := a.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(queues) == 4
	})
	must(t, a.Close())
	return topic
}

func newProducer(t *testing.T, name string) rocketmq.Producer {
	t.Helper()
	p, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("go_producer_"+name), producer.WithInstanceName(name+"_p"),
		producer.WithSendMsgTimeout(20*time.Second), producer.WithRetry(2))
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

// received counts messages by body.
type received struct {
	mu     sync.Mutex
	bodies map[string]int
}

func (r *received) add(messages []*primitive.MessageExt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		r.bodies[string(m.Body)]++
	}
}

func (r *received) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

func subscribe(t *testing.T, name, topic string, selector consumer.MessageSelector, listener func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error), more ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	options := append([]consumer.Option{
		consumer.WithNameServer(nameServers), consumer.WithGroupName(fmt.Sprintf("go_group_%s_%d", name, run)), consumer.WithInstance(name + "_c"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	c, err := rocketmq.NewPushConsumer(options...)
	must(t, err)
	must(t, c.Subscribe(topic, selector, listener))
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Shutdown() })
	return c
}

func TestSendAndConsume(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "sync")
	p := newProducer(t, "sync")
	ctx := context.Background()
	for i := range 100 {
		m := primitive.NewMessage(topic, fmt.Appendf(nil, "sync %d é中😀", i)).WithTag([]string{"A", "B"}[i%2]).WithKeys([]string{fmt.Sprint("k", i)})
		r, err := p.SendSync(ctx, m)
		must(t, err)
		if r.Status != primitive.SendOK || r.OffsetMsgID == "" {
			t.Fatalf("message %d: %v", i, r)
		}
	}
	var async sync.WaitGroup
	for i := range 100 {
		async.Add(1)
		must(t, p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) {
			defer async.Done()
			if err != nil || r.Status != primitive.SendOK {
				t.Errorf("async %d: %v %v", i, r, err)
			}
		}, primitive.NewMessage(topic, fmt.Appendf(nil, "async %d", i)).WithTag("A")))
	}
	async.Wait()
	for i := range 20 {
		must(t, p.SendOneWay(ctx, primitive.NewMessage(topic, fmt.Appendf(nil, "oneway %d", i)).WithTag("A")))
	}
	var batch []*primitive.Message
	for i := range 30 {
		batch = append(batch, primitive.NewMessage(topic, fmt.Appendf(nil, "batch %d", i)).WithTag("A"))
	}
	_, err := p.SendSync(ctx, batch...)
	must(t, err)

	all := &received{bodies: make(map[string]int)}
	subscribe(t, "all", topic, consumer.MessageSelector{}, func(_ context.Context, m ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		all.add(m)
		return consumer.ConsumeSuccess, nil
	})
	eventually(t, "250 messages", func() bool { return all.distinct() == 250 })
}

func TestTagsFilter(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "tags")
	p := newProducer(t, "tags")
	for i := range 60 {
		_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, fmt.Appendf(nil, "%s %d", []string{"A", "B", "C"}[i%3], i)).WithTag([]string{"A", "B", "C"}[i%3]))
		must(t, err)
	}
	got := &received{bodies: make(map[string]int)}
	subscribe(t, "tags", topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "A || C"}, func(_ context.Context, m ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		got.add(m)
		return consumer.ConsumeSuccess, nil
	})
	eventually(t, "40 messages", func() bool { return got.distinct() >= 40 })
	for body := range got.bodies {
		if body[0] == 'B' {
			t.Errorf("got %q", body)
		}
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "delay")
	p := newProducer(t, "delay")
	var mu sync.Mutex
	came := make(map[string]time.Time)
	subscribe(t, "delay", topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			came[string(m.Body)] = time.Now()
		}
		return consumer.ConsumeSuccess, nil
	})
	sent := time.Now()
	for i := range 5 {
		_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, fmt.Appendf(nil, "delay %d", i)).WithDelayTimeLevel(2))
		must(t, err)
	}
	eventually(t, "5 delayed messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(came) == 5
	})
	for body, at := range came {
		if at.Sub(sent) < 4900*time.Millisecond {
			t.Errorf("%s came after %v; its level is 5 s", body, at.Sub(sent))
		}
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "retry")
	p := newProducer(t, "retry")
	var mu sync.Mutex
	var times []int32
	subscribe(t, "retry", topic, consumer.MessageSelector{}, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			times = append(times, m.ReconsumeTimes)
			if m.ReconsumeTimes == 0 {
				if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					c.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte("again")))
	must(t, err)
	eventually(t, "the second try", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(times) >= 2 && times[1] == 1
	})
}

func TestOrderly(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, "orderly")
	p, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("go_producer_orderly"), producer.WithInstanceName("orderly_p"),
		producer.WithSendMsgTimeout(20*time.Second), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	must(t, err)
	must(t, p.Start())
	defer func() { _ = p.Shutdown() }()
	for i := range 80 {
		m := primitive.NewMessage(topic, fmt.Appendf(nil, "%d", i)).WithShardingKey(fmt.Sprint("key", i%8))
		_, err := p.SendSync(context.Background(), m)
		must(t, err)
	}
	var mu sync.Mutex
	last := make(map[string]int)
	n := 0
	subscribe(t, "orderly", topic, consumer.MessageSelector{}, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			var i int
			fmt.Sscanf(string(m.Body), "%d", &i)
			key := m.GetShardingKey()
			if before, ok := last[key]; ok && i > before+8 {
				t.Errorf("%s: %d came after %d", key, i, before)
			}
			last[key] = max(last[key], i)
			n++
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true))
	eventually(t, "80 in order", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return n >= 80
	})
}
