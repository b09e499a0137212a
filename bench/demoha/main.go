// SPDX-License-Identifier: Apache-2.0

// Command demoha shows what a pair is for: it starts a name server, a SYNC_MASTER and a slave on loopback, sends, kills
// the master with SIGKILL in the middle, reads everything that was answered from the slave, and goes on with the slave
// as the master. It uses the product's binary and the wire protocol, nothing else.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"loopmq/bench/proc"
	"loopmq/reactor/remoting"
)

const (
	topic       = "demo"
	queues      = 4
	senders     = 16
	bodySize    = 1024
	loadTime    = 6 * time.Second
	callTimeout = 10 * time.Second
	bootTimeout = 20 * time.Second
)

func main() {
	binary := flag.String("loopmq", "bin/loopmq", "the binary to run")
	flag.Parse()
	if err := runDemo(*binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo-ha:", err)
		os.Exit(1)
	}
}

// runDemo runs until the end, or an interrupt; nothing is left either way.
func runDemo(binary string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "loopmq-demo-ha")
	if err != nil {
		return err
	}
	d := &demo{binary: binary, dir: dir}
	interrupt, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.run() }()
	select {
	case err = <-ended:
	case <-interrupt.Done():
		err = errors.New("interrupted")
	}
	return errors.Join(err, d.close())
}

// demo is what runs, and what was answered.
type demo struct {
	binary, dir            string
	names, master, slave   *proc.Process
	ports                  proc.Ports
	namesPort              int
	masterPort, slavePort  int
	acked                  sync.Map // message → true
	answered, notConfirmed atomic.Int64

	mu      sync.Mutex // guards the rest: an interrupt closes while something is started
	started []*proc.Process
	closed  bool
}

func (d *demo) run() (err error) {
	for _, port := range []*int{&d.namesPort, &d.masterPort, &d.slavePort} {
		if *port, err = d.ports.Free(); err != nil {
			return err
		}
	}

	say("name server on %s, SYNC_MASTER on %s, slave on %s; stores and logs in %s", local(d.namesPort), local(d.masterPort), local(d.slavePort), d.dir)
	if d.names, err = d.start("namesrv", d.namesPort, "namesrv", "listenPort="+strconv.Itoa(d.namesPort), "kvConfigPath="+filepath.Join(d.dir, "kv.json")); err != nil {
		return err
	}
	if d.master, err = d.broker("master", d.masterPort, "brokerRole=SYNC_MASTER", "brokerId=0"); err != nil {
		return err
	}
	if d.slave, err = d.broker("slave", d.slavePort, "brokerRole=SLAVE", "brokerId=1", "haMasterAddress="+local(d.masterPort+1)); err != nil {
		return err
	}
	if err := makeTopic(d.masterPort); err != nil {
		return err
	}
	if err := d.awaitPair(); err != nil {
		return err
	}

	say("%d senders, %d bytes a message; each waits for the answer, which a SYNC_MASTER gives when the slave has the message", senders, bodySize)
	d.load()
	sent := d.answered.Load()
	say("the master is dead: %d sends were answered SEND_OK (%d others were not)", sent, d.notConfirmed.Load())

	found, took, err := d.readAll(d.slavePort)
	if err != nil {
		return fmt.Errorf("read from the slave: %w", err)
	}
	say("read from the slave in %v: %d of %d answered messages, lost %d", took.Round(time.Millisecond), found, sent, sent-found)

	began := time.Now()
	d.slave.Stop(bootTimeout)
	if d.slave, err = d.broker("slave", d.masterPort, "brokerRole=ASYNC_MASTER", "brokerId=0"); err != nil {
		return err
	}
	say("the slave's store serves as the master, at the master's address, %v after the decision", time.Since(began).Round(time.Millisecond))
	before := sent
	if err := d.sendSome(1000); err != nil {
		return fmt.Errorf("send to the new master: %w", err)
	}
	if found, _, err = d.readAll(d.masterPort); err != nil {
		return fmt.Errorf("read from the new master: %w", err)
	}
	sent = d.answered.Load()
	say("%d more sends; the new master has %d of %d, lost %d", sent-before, found, sent, sent-found)
	if found != sent {
		return fmt.Errorf("%d answered messages are lost", sent-found)
	}
	fmt.Println("\nNothing that was answered is lost.")
	return nil
}

func (d *demo) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, p := range d.started {
		p.Kill() // what they hold is removed
	}
	return os.RemoveAll(d.dir)
}

var began = time.Now()

func say(format string, args ...any) {
	fmt.Printf("%5.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// broker starts a broker on the store of that name.
func (d *demo) broker(name string, port int, more ...string) (*proc.Process, error) {
	conf := append([]string{
		"brokerClusterName=DefaultCluster", "brokerName=pair", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1", "bindAddress=127.0.0.1",
		"namesrvAddr=" + local(d.namesPort), "listenPort=" + strconv.Itoa(port), "haListenPort=" + strconv.Itoa(port+1),
		"storePathRootDir=" + filepath.Join(d.dir, name), "mappedFileSizeCommitLog=67108864", "mappedFileSizeConsumeQueue=400000",
		"maxHashSlotNum=50000", "maxIndexNum=200000", "adminAddr=",
	}, more...)
	return d.start("broker", port, name, conf...)
}

// start runs a verb of the binary until it listens.
func (d *demo) start(verb string, port int, name string, conf ...string) (*proc.Process, error) {
	dir := filepath.Join(d.dir, "of-"+name) // its log; the store has the name
	file := filepath.Join(dir, "conf")
	p := proc.NewProcess(name, dir, d.binary, verb, "-c", file)
	if err := d.launch(p, dir, file, strings.Join(conf, "\n")+"\n"); err != nil {
		return nil, err
	}
	for end := time.Now().Add(bootTimeout); time.Now().Before(end) && p.PID() != 0; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", local(port)); err == nil {
			_ = conn.Close()
			return p, nil
		}
	}
	p.Kill()
	return nil, fmt.Errorf("%s does not listen on %s: %w", name, local(port), p.Failure())
}

// launch starts a process, unless all has been closed.
func (d *demo) launch(p *proc.Process, dir, file, conf string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("closed")
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(conf), 0o644)); err != nil {
		return err
	}
	d.started = append(d.started, p)
	return p.Start()
}

// client is one connection to a broker, with one request at a time.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	opaque int32
	out    []byte
}

func dial(port int) (*client, error) {
	conn, err := net.DialTimeout("tcp", local(port), callTimeout)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// call sends a request and returns the answer to it.
func (c *client) call(code int32, fields []string, body []byte) (*remoting.Command, error) {
	c.opaque++
	request := remoting.Command{Code: code, Opaque: c.opaque, Version: remoting.Version}
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		request.Ext.Add(key, value)
	}
	c.out = append(request.AppendTo(c.out[:0], len(body)), body...)
	_ = c.conn.SetDeadline(time.Now().Add(callTimeout))
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	for {
		var head [4]byte
		if _, err := io.ReadFull(c.reader, head[:]); err != nil {
			return nil, err
		}
		length := binary.BigEndian.Uint32(head[:])
		if length > remoting.FrameLengthMax-4 {
			return nil, fmt.Errorf("a frame of %d bytes", length)
		}
		frame := make([]byte, 4+length)
		copy(frame, head[:])
		if _, err := io.ReadFull(c.reader, frame[4:]); err != nil {
			return nil, err
		}
		answer := new(remoting.Command)
		if err := remoting.Decode(frame, answer); err != nil {
			return nil, err
		}
		if answer.IsResponse() && answer.Opaque == c.opaque {
			return answer, nil
		}
	}
}

func makeTopic(port int) error {
	c, err := dial(port)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	answer, err := c.call(remoting.UpdateAndCreateTopic, []string{
		"topic=" + topic, "defaultTopic=TBW102", fmt.Sprint("readQueueNums=", queues), fmt.Sprint("writeQueueNums=", queues),
		"perm=6", "topicFilterType=SINGLE_TAG", "topicSysFlag=0", "order=false",
	}, nil)
	if err == nil && answer.Code != remoting.Success {
		err = fmt.Errorf("topic not made: %d %s", answer.Code, answer.Remark)
	}
	return err
}

// awaitPair sends until a send is answered by both: the slave takes a moment to join.
func (d *demo) awaitPair() error {
	c, err := dial(d.masterPort)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for end := time.Now().Add(bootTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if code, err := c.send(0, "first", nil); err != nil {
			return err
		} else if code == remoting.Success {
			return nil
		}
	}
	return errors.New("the slave does not join")
}

// send sends one message and returns the code of the answer.
func (c *client) send(queue int, name string, padding []byte) (int32, error) {
	answer, err := c.call(remoting.SendMessage, []string{
		"producerGroup=demo_producers", "topic=" + topic, "defaultTopic=TBW102", "defaultTopicQueueNums=4", fmt.Sprint("queueId=", queue),
		"sysFlag=0", fmt.Sprint("bornTimestamp=", time.Now().UnixMilli()), "flag=0", "properties=KEYS\x01" + name, "reconsumeTimes=0", "unitMode=false",
	}, append([]byte(name+"\n"), padding...))
	if err != nil {
		return 0, err
	}
	return answer.Code, nil
}

// load sends until the master, which dies in the middle of it, answers no more.
func (d *demo) load() {
	var running sync.WaitGroup
	for sender := range senders {
		running.Go(func() { d.sender(sender, d.masterPort, -1) })
	}
	before := d.answered.Load()
	for second := range int(loadTime / time.Second) {
		time.Sleep(time.Second)
		now := d.answered.Load()
		say("  second %d: %d sends answered", second+1, now-before)
		before = now
	}
	say("kill -9 of the master, under load")
	d.master.Kill()
	running.Wait()
}

// sender sends up to count messages, or until the broker is gone.
func (d *demo) sender(id, port, count int) {
	c, err := dial(port)
	if err != nil {
		return
	}
	defer c.conn.Close()
	padding := make([]byte, bodySize)
	for i := 0; i != count; i++ {
		name := fmt.Sprintf("%d-%d-%d", port, id, i)
		if count >= 0 {
			name = "after-" + name
		}
		code, err := c.send(i%queues, name, padding)
		switch {
		case err != nil:
			return
		case code == remoting.Success:
			d.acked.Store(name, true)
			d.answered.Add(1)
		default:
			d.notConfirmed.Add(1)
		}
	}
}

func (d *demo) sendSome(count int) error {
	before := d.answered.Load()
	d.sender(0, d.masterPort, count)
	if got := d.answered.Load() - before; got != int64(count) {
		return fmt.Errorf("%d of %d sends answered", got, count)
	}
	return nil
}

// readAll pulls every queue of a broker from its beginning and counts which answered messages are there.
func (d *demo) readAll(port int) (found int64, took time.Duration, err error) {
	began := time.Now()
	c, err := dial(port)
	if err != nil {
		return 0, 0, err
	}
	defer c.conn.Close()
	seen := make(map[string]bool)
	for queue := range queues {
		for offset := int64(0); ; {
			answer, err := c.call(remoting.PullMessage, []string{
				"consumerGroup=demo_consumers", "topic=" + topic, fmt.Sprint("queueId=", queue), fmt.Sprint("queueOffset=", offset), "maxMsgNums=32",
				"sysFlag=4", "commitOffset=0", "suspendTimeoutMillis=0", "subscription=*", "subVersion=0", "expressionType=TAG",
			}, nil)
			if err != nil {
				return 0, 0, err
			}
			if answer.Code == remoting.PullNotFound {
				break
			}
			next, err := answer.Ext.Int64("nextBeginOffset", 0)
			if err != nil || answer.Code != remoting.Success && next <= offset {
				return 0, 0, fmt.Errorf("pull of queue %d at %d: %d %s", queue, offset, answer.Code, answer.Remark)
			}
			offset = next
			for _, name := range names(answer.Body) {
				if _, answered := d.acked.Load(name); answered && !seen[name] {
					seen[name] = true
					found++
				}
			}
		}
	}
	return found, time.Since(began), nil
}

// names are what the messages of a pull's answer begin with. A stored record has its size first, and, between hosts of
// four bytes, the length of its body at byte 84.
func names(records []byte) (names []string) {
	const bodyLengthAt = 84
	for len(records) > bodyLengthAt+4 {
		size := int(binary.BigEndian.Uint32(records))
		if size <= bodyLengthAt+4 || size > len(records) {
			return names
		}
		body := records[bodyLengthAt+4 : size]
		if n := int(binary.BigEndian.Uint32(records[bodyLengthAt:])); n < len(body) {
			body = body[:n]
		}
		name, _, _ := strings.Cut(string(body), "\n")
		names = append(names, name)
		records = records[size:]
	}
	return names
}
