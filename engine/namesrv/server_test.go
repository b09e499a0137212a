// SPDX-License-Identifier: Apache-2.0

package namesrv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"loopmq/reactor"
	"loopmq/reactor/remoting"
)

const testTimeout = 20 * time.Second

func startServer(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.BindAddress, cfg.ListenPort = "127.0.0.1", 0
	dir := t.TempDir()
	cfg.KVConfigPath, cfg.ConfigStorePath = filepath.Join(dir, "kvConfig.json"), filepath.Join(dir, "namesrv.properties")
	if change != nil {
		change(&cfg)
	}
	s := New(cfg, nil)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// client asks one request at a time.
type client struct {
	t      *testing.T
	conn   net.Conn
	opaque int32
}

func dial(t *testing.T, s *Server) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn}
}

func (c *client) send(flag int32, code int32, body []byte, fields ...string) error {
	c.opaque++
	req := remoting.Command{Code: code, Flag: flag, Version: 409, Opaque: c.opaque, Body: body}
	for i := 0; i+1 < len(fields); i += 2 {
		req.Ext.Add(fields[i], fields[i+1])
	}
	_, err := c.conn.Write(req.AppendTo(nil, len(body)))
	return err
}

// ask sends a request and reads its answer.
func (c *client) ask(code int32, body []byte, fields ...string) (*remoting.Command, error) {
	if err := c.send(0, code, body, fields...); err != nil {
		return nil, err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	if _, err := io.ReadFull(c.conn, frame[4:]); err != nil {
		return nil, err
	}
	resp := new(remoting.Command)
	if err := remoting.Decode(frame, resp); err != nil {
		return nil, err
	}
	if resp.Opaque != c.opaque {
		return nil, fmt.Errorf("answer %d to request %d", resp.Opaque, c.opaque)
	}
	return resp, nil
}

func (c *client) call(code int32, body []byte, fields ...string) *remoting.Command {
	c.t.Helper()
	resp, err := c.ask(code, body, fields...)
	if err != nil {
		c.t.Fatalf("%s: %v", remoting.RequestName(code), err)
	}
	return resp
}

// expect asks and checks code and body.
func (c *client) expect(wantCode int32, wantBody string, code int32, body []byte, fields ...string) *remoting.Command {
	c.t.Helper()
	resp := c.call(code, body, fields...)
	if resp.Code != wantCode || string(resp.Body) != wantBody {
		c.t.Fatalf("%s: code %d %s, body %s; want %d, %s", remoting.RequestName(code), resp.Code, resp.Remark, resp.Body, wantCode, wantBody)
	}
	return resp
}

func registerFields(name, id, addr string, body []byte) []string {
	return []string{"brokerName", name, "brokerId", id, "brokerAddr", addr, "clusterName", "DefaultCluster", "haServerAddr", "ha-of-" + addr,
		"compressed", "false", "bodyCrc32", strconv.Itoa(int(crc32.ChecksumIEEE(body) & 0x7fffffff))}
}

func (c *client) register(name, id, addr string, version int64, table topics) *remoting.Command {
	c.t.Helper()
	body := registerBodyOf(dataVersion{Timestamp: 5, Counter: version}, table)
	return c.expect(remoting.Success, "", remoting.RegisterBroker, body, registerFields(name, id, addr, body)...)
}

func (c *client) hasRoute(topic string) bool {
	c.t.Helper()
	return c.call(remoting.GetRouteInfoByTopic, nil, "topic", topic).Code == remoting.Success
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

func TestServerAnswersAllItsCodes(t *testing.T) {
	s := startServer(t, nil)
	broker, c := dial(t, s), dial(t, s)
	broker.register("broker-a", "0", "127.0.0.1:30911", 1, topics{"T": "4 4 6", "U": "1 1 6"})
	slave := broker.register("broker-a", "1", "127.0.0.1:30921", 1, nil)
	if master, ha := slave.Ext.String("masterAddr"), slave.Ext.String("haServerAddr"); master != "127.0.0.1:30911" || ha != "ha-of-127.0.0.1:30911" {
		t.Fatalf("the slave was told %q, %q", master, ha)
	}

	c.expect(0, `{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30911","1":"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`,
		remoting.GetRouteInfoByTopic, nil, "topic", "T")
	if resp := c.expect(remoting.TopicNotExist, "", remoting.GetRouteInfoByTopic, nil, "topic", "X"); string(resp.Remark) != "No topic route info in name server for the topic: X" {
		t.Fatalf("remark %s", resp.Remark)
	}
	c.expect(remoting.SystemError, "", remoting.GetRouteInfoByTopic, nil)
	c.expect(0, `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:30911",1:"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}`,
		remoting.GetBrokerClusterInfo, nil)
	c.expect(0, `{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:30911",1:"127.0.0.1:30921"},"brokerName":"broker-a","cluster":"DefaultCluster"}}`,
		remoting.GetBrokerMemberGroup, nil, "clusterName", "DefaultCluster", "brokerName", "broker-a")
	c.expect(0, `{"topicList":["T","U"]}`, remoting.GetAllTopicListFromNameServer, nil)
	c.expect(0, `{"topicList":["T","U"]}`, remoting.GetTopicsByCluster, nil, "cluster", "DefaultCluster")
	c.expect(0, `{"topicList":[]}`, remoting.GetTopicsByCluster, nil, "cluster", "unknown")
	c.expect(0, `{"brokerAddr":"127.0.0.1:30911","topicList":["DefaultCluster","broker-a"]}`, remoting.GetSystemTopicListFromNs, nil)
	for _, code := range []int32{remoting.GetUnitTopicList, remoting.GetHasUnitSubTopicList, remoting.GetHasUnitSubUnunitTopicList} {
		c.expect(0, `{"topicList":[]}`, code, nil)
	}

	f := func(code int32, key, want string, fields ...string) {
		t.Helper()
		if got := c.expect(0, "", code, nil, fields...).Ext.String(key); got != want {
			t.Fatalf("%s: %s=%q, want %q", remoting.RequestName(code), key, got, want)
		}
	}
	f(remoting.WipeWritePermOfBroker, "wipeTopicCount", "2", "brokerName", "broker-a")
	if resp := c.call(remoting.GetRouteInfoByTopic, nil, "topic", "T"); !strings.Contains(string(resp.Body), `"perm":4`) {
		t.Fatalf("the kept answer was not renewed: %s", resp.Body)
	}
	f(remoting.AddWritePermOfBroker, "addTopicCount", "2", "brokerName", "broker-a")
	f(remoting.PutKVConfig, "", "", "namespace", "ns", "key", "k", "value", "v")
	f(remoting.GetKVConfig, "value", "v", "namespace", "ns", "key", "k")
	c.expect(0, `{"table":{"k":"v"}}`, remoting.GetKVListByNamespace, nil, "namespace", "ns")
	f(remoting.DeleteKVConfig, "", "", "namespace", "ns", "key", "k")
	c.expect(remoting.QueryNotFound, "", remoting.GetKVConfig, nil, "namespace", "ns", "key", "k")
	c.expect(remoting.QueryNotFound, "", remoting.GetKVListByNamespace, nil, "namespace", "unknown")

	c.expect(0, "", remoting.BrokerHeartbeat, nil, "clusterName", "DefaultCluster", "brokerAddr", "127.0.0.1:30911", "brokerName", "broker-a")
	resp := c.expect(0, `{"counter":1,"stateVersion":0,"timestamp":5}`, remoting.QueryDataVersion, []byte(`{"counter":1,"timestamp":5}`), registerFields("broker-a", "0", "127.0.0.1:30911", nil)...)
	if resp.Ext.String("changed") != "false" {
		t.Fatal("the same version counts as changed")
	}
	resp = c.expect(0, "", remoting.QueryDataVersion, []byte(`{"counter":1,"timestamp":5}`), registerFields("b", "0", "unknown:1", nil)...)
	if resp.Ext.String("changed") != "true" {
		t.Fatal("an unknown broker has to register")
	}

	f(remoting.DeleteTopicInNamesrv, "", "", "topic", "U")
	if c.hasRoute("U") {
		t.Fatal("deleted, and still there")
	}
	c.expect(remoting.NoPermission, "", remoting.RegisterTopicInNamesrv, []byte(`{}`), "topic", "N")
	if resp := c.expect(remoting.RequestCodeNotSupported, "", 4711, nil); string(resp.Remark) != " request type 4711 not supported" {
		t.Fatalf("remark %q", resp.Remark)
	}
	c.expect(0, "", remoting.UnregisterBroker, nil, registerFields("broker-a", "0", "127.0.0.1:30911", nil)...)
	c.expect(0, "", remoting.UnregisterBroker, nil, registerFields("broker-a", "1", "127.0.0.1:30921", nil)...)
	if c.hasRoute("T") {
		t.Fatal("a route without a broker")
	}
}

func TestRegistrationsOnTheWire(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	body := registerBodyOf(version(1), topics{"T": "4 4 6", "U": "1 1 6"})
	fields := registerFields("a", "0", "h:1", body)
	damaged := append([]byte(nil), body...)
	damaged[10] ^= 1
	if resp := c.expect(remoting.SystemError, "", remoting.RegisterBroker, damaged, fields...); string(resp.Remark) != "crc32 not match" {
		t.Fatalf("remark %s", resp.Remark)
	}
	c.expect(remoting.SystemError, "", remoting.RegisterBroker, body, "brokerName", "a")
	c.expect(remoting.SystemError, "", remoting.RegisterBroker, body, "brokerName", "a", "brokerAddr", "h:1", "clusterName", "C", "brokerId", "x")
	if c.hasRoute("T") {
		t.Fatal("a refused registration left a route")
	}
	if err := c.send(remoting.FlagOneway, remoting.RegisterBroker, body, fields...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one-way registration", func() bool { return c.hasRoute("T") })
	c.expect(0, "", remoting.PutKVConfig, nil, "namespace", namespaceOrderTopicConfig, "key", "T", "value", "a:4")
	c.expect(0, `{"table":{"T":"a:4"}}`, remoting.RegisterBroker, body, append(fields, "unused", "x")...)
}

func TestClosedConnectionTakesTheRoute(t *testing.T) {
	s := startServer(t, nil)
	watcher := dial(t, s)
	for range 3 {
		broker := dial(t, s)
		broker.register("a", "0", "h:1", 1, topics{"T": "4 4 6"})
		if !watcher.hasRoute("T") {
			t.Fatal("no route although the registration was answered")
		}
		broker.conn.Close()
		eventually(t, "the route going with the connection", func() bool { return !watcher.hasRoute("T") })
	}
}

func TestRouteFollowsReconnects(t *testing.T) {
	s := startServer(t, nil)
	watcher := dial(t, s)
	broker := dial(t, s)
	broker.register("a", "0", "h:1", 1, topics{"T": "4 4 6"})
	for range 20 { // a new connection before the old one is seen to end
		next := dial(t, s)
		next.register("a", "0", "h:1", 1, topics{"T": "4 4 6"})
		broker.conn.Close()
		if !watcher.hasRoute("T") {
			t.Fatal("the end of the old connection took the route")
		}
		broker = next
	}
}

func TestConfigurationOnTheWire(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	body := c.call(remoting.GetNamesrvConfig, nil).Body
	if !strings.Contains(string(body), "orderMessageEnable=false\n") {
		t.Fatalf("configuration %s", body)
	}
	c.expect(0, "", remoting.UpdateNamesrvConfig, []byte("# on\norderMessageEnable = true\n\n"))
	if body := c.call(remoting.GetNamesrvConfig, nil).Body; !strings.Contains(string(body), "orderMessageEnable=true\n") {
		t.Fatalf("configuration %s", body)
	}
	c.expect(remoting.NoPermission, "", remoting.UpdateNamesrvConfig, []byte("kvConfigPath=/elsewhere"))
	c.expect(remoting.NoPermission, "", remoting.UpdateNamesrvConfig, []byte("listenPort=1"))
	c.expect(remoting.SystemError, "", remoting.UpdateNamesrvConfig, []byte("orderMessageEnable=false\nnonsense=1"))
	c.expect(remoting.SystemError, "", remoting.UpdateNamesrvConfig, []byte("scanNotActiveBrokerInterval=1"))
	if !s.config.Load().OrderMessageEnable {
		t.Fatal("half of a refused change was taken")
	}
}

func TestTwoServersOnOnePort(t *testing.T) {
	s := startServer(t, nil)
	cfg := DefaultConfig()
	cfg.BindAddress, cfg.ListenPort, cfg.KVConfigPath = "127.0.0.1", int(s.Addr().Port()), ""
	if err := New(cfg, nil).Start(); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("the second: %v", err)
	}
}

// Route polls of many clients, while brokers come, change and go.
func TestRoutesUnderChange(t *testing.T) {
	s := startServer(t, nil)
	steady := dial(t, s)
	steady.register("steady", "0", "h:0", 1, topics{"T": "4 4 6"})
	stop := make(chan struct{})
	done := make(chan error, 4)
	for range cap(done) {
		c := dial(t, s)
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				resp, err := c.ask(remoting.GetRouteInfoByTopic, nil, "topic", "T")
				if err != nil {
					done <- err
					return
				}
				if resp.Code != remoting.Success || !strings.Contains(string(resp.Body), `"steady"`) {
					done <- fmt.Errorf("code %d, %s", resp.Code, resp.Body)
					return
				}
			}
		}()
	}
	changing := dial(t, s)
	for i := range 50 {
		changing.register("changing", "0", "h:1", int64(i), topics{"T": "4 4 6", fmt.Sprintf("topic-%d", i): "1 1 6"})
		if i%10 == 9 {
			changing.expect(0, "", remoting.UnregisterBroker, nil, registerFields("changing", "0", "h:1", nil)...)
		}
	}
	close(stop)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestHeartbeatTimeoutIsBounded(t *testing.T) {
	for _, asked := range []string{"", "0", "-1", "1000", "9223372036854775807", "-9223372036855", "-9223372036854775808"} {
		var req reactor.Request
		req.Ext.Add("heartbeatTimeoutMillis", asked)
		if r, err := readRegistration(&req); err != nil || r.timeout < 0 || r.timeout > heartbeatTimeoutMax {
			t.Errorf("%q: %v, %v", asked, r.timeout, err)
		}
	}
}
