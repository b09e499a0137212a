// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const adminLimit = 4 * time.Minute

// admin runs mqadmin commands, all in one JVM, and returns what each printed.
func (p *peer) admin(t *testing.T, commands ...[]string) []string {
	t.Helper()
	var in strings.Builder
	for _, c := range commands {
		in.WriteString(strings.Join(c, "\t") + "\n")
	}
	text, err := p.run(t, adminLimit, strings.NewReader(in.String()), "Admin")
	if err != nil {
		t.Fatalf("%v\n%s", err, tail([]byte(text)))
	}
	var out []string
	for _, part := range strings.Split(text, "<<<\n")[1:] {
		out = append(out, strings.TrimSuffix(strings.TrimSpace(part), ">>>"))
	}
	if len(out) != len(commands) {
		t.Fatalf("%d answers to %d commands:\n%s", len(out), len(commands), tail([]byte(text)))
	}
	return out
}

// mqadmin of both versions against our broker and our name server: on an empty broker and on a used one, no command
// shows a stack trace, and each shows what it is asked for.
func TestAdminTool(t *testing.T) {
	t.Parallel()
	for _, version := range javaVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := fetchPeer(t, version)
			ns := startOurNames(t)
			b := startOurBroker(t, brokerConf(t.TempDir(), freePort(t), ns.addr))
			t.Run("empty", func(t *testing.T) { p.checkAdmin(t, emptyBroker(ns.addr, b.addr)) })
			p.mustRun(t, ledgerLimit, "Ledger", "fill", "ns="+ns.addr, "broker="+b.addr, "round=1", "count=200", "level=1")
			p.mustRun(t, ledgerLimit, "Ledger", "dump", "ns="+ns.addr, fmt.Sprint("late=", ledgerLate)) // waits for the delayed ones
			t.Run("used", func(t *testing.T) { p.checkAdmin(t, usedBroker(ns.addr, b.addr)) })
			b.stop(t)
		})
	}
}

// adminStep is a command, what its output must show, and what it must not.
type adminStep struct {
	args     string // blanks between; "~" stands for one inside an argument
	want     []string
	unwanted []string
}

func (p *peer) checkAdmin(t *testing.T, steps []adminStep) {
	t.Helper()
	var commands [][]string
	for _, s := range steps {
		args := strings.Fields(s.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		commands = append(commands, args)
	}
	for i, out := range p.admin(t, commands...) {
		s := steps[i]
		t.Run(fmt.Sprintf("%02d_%s", i, commands[i][0]), func(t *testing.T) {
			for _, w := range s.want {
				if !strings.Contains(out, w) {
					t.Errorf("%s: no %q in:\n%s", s.args, w, out)
				}
			}
			for _, w := range append(s.unwanted, "Exception", "NaN", "\tat ", "threw on") {
				if strings.Contains(out, w) {
					t.Errorf("%s: %q in:\n%s", s.args, w, out)
				}
			}
		})
	}
}

func emptyBroker(ns, b string) []adminStep {
	return []adminStep{
		{args: "clusterList -n " + ns, want: []string{"DefaultCluster", "broker-a", b, "V4_9_8"}},
		{args: "brokerStatus -n " + ns + " -b " + b, want: []string{"brokerVersionDesc", "V4_9_8", "putTps", "getTotalTps", "runtime", "commitLogDirCapacity"}},
		{args: "topicList -n " + ns, want: []string{"TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"}},
		{args: "topicList -n " + ns + " -c", want: []string{"DefaultCluster", "TBW102"}},
		{args: "updateTopic -n " + ns + " -b " + b + " -t one -r 3 -w 3", want: []string{"create topic to " + b + " success"}},
		{args: "updateTopic -n " + ns + " -c DefaultCluster -t two -r 2 -w 2", want: []string{"create topic to " + b + " success"}},
		{args: "topicRoute -n " + ns + " -t one", want: []string{b, "broker-a", "readQueueNums", "3"}},
		{args: "topicStatus -n " + ns + " -t one", want: []string{"broker-a", "#Min Offset"}},
		{args: "topicClusterList -n " + ns + " -t one", want: []string{"DefaultCluster"}},
		{args: "deleteTopic -n " + ns + " -c DefaultCluster -t two", want: []string{"delete topic [two] from cluster [DefaultCluster] success"}},
		{args: "topicList -n " + ns, want: []string{"one"}, unwanted: []string{"two"}},
		{args: "updateSubGroup -n " + ns + " -b " + b + " -g mygroup -s true -r 5", want: []string{"create subscription group to " + b + " success"}},
		{args: "consumerProgress -n " + ns, want: []string{"#Group"}},
		{args: "deleteSubGroup -n " + ns + " -b " + b + " -g mygroup", want: []string{"delete subscription group [mygroup] from broker [" + b + "] success"}},
		{args: "getBrokerConfig -n " + ns + " -b " + b, want: []string{"brokerName", "broker-a", "flushDiskType", "ASYNC_FLUSH", "messageDelayLevel", "1s 5s 10s"}},
		{args: "updateBrokerConfig -n " + ns + " -b " + b + " -k slaveTimeout -v 4321", want: []string{"update broker config success"}},
		{args: "updateBrokerConfig -n " + ns + " -b " + b + " -k regionId -v here~=~#there", want: []string{"update broker config success"}},
		{args: "getBrokerConfig -n " + ns + " -b " + b, want: []string{"4321", "here = #there"}},
		{args: "updateKvConfig -n " + ns + " -s space -k key -v value", want: []string{"create or update kv config to namespace success"}},
		{args: "deleteKvConfig -n " + ns + " -s space -k key", want: []string{"delete kv config from namespace success"}},
		{args: "getNamesrvConfig -n " + ns, want: []string{"listenPort"}},
		{args: "wipeWritePerm -n " + ns + " -b broker-a", want: []string{"wipe write perm of broker[broker-a] in name server[" + ns + "] OK"}},
		{args: "addWritePerm -n " + ns + " -b broker-a", want: []string{"add write perm of broker[broker-a] in name server[" + ns + "] OK"}},
		{args: "updateOrderConf -n " + ns + " -t one -m put -v broker-a:3", want: []string{"update orderConf success"}},
		{args: "updateOrderConf -n " + ns + " -t one -m get", want: []string{"broker-a:3"}},
		{args: "updateOrderConf -n " + ns + " -t one -m delete", want: []string{"delete orderConf success"}},
		{args: "cleanExpiredCQ -n " + ns + " -b " + b, want: []string{"success"}},
		{args: "statsAll -n " + ns, want: []string{"#Topic"}},
	}
}

func usedBroker(ns, b string) []adminStep {
	return []adminStep{
		{args: "clusterList -n " + ns, want: []string{"DefaultCluster", "broker-a", b}},
		{args: "clusterList -n " + ns + " -m", want: []string{"broker-a"}},
		{args: "brokerStatus -n " + ns + " -b " + b, want: []string{"msgPutTotalTodayNow", "scheduleMessageOffset_1"}},
		{args: "topicStatus -n " + ns + " -t ledger_a", want: []string{"broker-a"}},
		{args: "consumerProgress -n " + ns, want: []string{"ledger_group"}},
		{args: "consumerProgress -n " + ns + " -g ledger_group", want: []string{"ledger_a", "Diff Total: 200"}},
		{args: "brokerConsumeStats -n " + ns + " -b " + b, want: []string{"ledger_group"}},
		{args: "queryMsgByKey -n " + ns + " -t ledger_a -k a-1-7", want: []string{"#Message ID"}},
		{args: "resetOffsetByTime -n " + ns + " -g ledger_group -t ledger_a -s -1", want: []string{"ledger_a"}},
		{args: "consumerProgress -n " + ns + " -g ledger_group", want: []string{"Diff Total: 0"}},
		{args: "resetOffsetByTime -n " + ns + " -g ledger_group -t ledger_a -s 0 -f true", want: []string{"ledger_a"}},
		{args: "consumerProgress -n " + ns + " -g ledger_group", want: []string{"Diff Total: 204"}},
		{args: "statsAll -n " + ns + " -t ledger_a", want: []string{"ledger_a"}},
		{args: "sendMessage -n " + ns + " -t ledger_a -p hello -k sent", want: []string{"SEND_OK"}},
		{args: "consumeMessage -n " + ns + " -t ledger_b -b broker-a -i 0 -o 0 -c 3", want: []string{"Consume ok"}},
		{args: "printMsg -n " + ns + " -t ledger_b", want: []string{"body 0 0"}},
		{args: "queryCq -n " + ns + " -b " + b + " -t ledger_b -q 0 -i 0 -c 2 -g ledger_group", want: []string{"ledger_b"}},
		{args: "deleteTopic -n " + ns + " -c DefaultCluster -t ledger_b", want: []string{"success"}},
		{args: "topicList -n " + ns, want: []string{"ledger_a"}, unwanted: []string{"ledger_b"}},
	}
}
