// SPDX-License-Identifier: Apache-2.0

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.remoting.exception.RemotingSendRequestException;

/**
 * What users do with the stock client, each as a scenario of its own topic and group, all in one JVM and at once.
 * Usage: Suite ns=HOST:PORT broker=HOST:PORT [peer=loopmq] [only=name,name]. Prints "PASS name" or "FAIL name: why".
 */
public class Suite {
    static final Map<String, String> args = new HashMap<>();
    static final long run = System.currentTimeMillis();
    static DefaultMQAdminExt admin;

    interface Scenario { void run(String name) throws Exception; }

    public static void main(String[] a) throws Exception {
        for (String s : a) args.put(s.substring(0, s.indexOf('=')), s.substring(s.indexOf('=') + 1));
        // 20 s each: not what is tested here
        System.setProperty("rocketmq.client.rebalance.waitInterval", "2000");
        System.setProperty("rocketmq.client.rebalance.lockInterval", "2000");
        admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args.get("ns"));
        admin.setInstanceName("suite-admin-" + run);
        admin.start();

        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("delay", Suite::delay);
        all.put("retry", Suite::retryToDeadLetter);
        all.put("resume", Suite::resume);
        all.put("sync", Suite::sync);
        all.put("async", Suite::async);
        all.put("oneway", Suite::oneway);
        all.put("batch", Suite::batch);
        all.put("tags", Suite::tags);
        all.put("orderly", Suite::orderly);
        all.put("litepull", Suite::litePull);
        all.put("autocreate", Suite::autoCreate);
        all.put("large", Suite::large);
        all.put("query", Suite::query);
        all.put("offsets", Suite::offsets);
        all.put("broadcast", Suite::broadcast);
        all.put("promptly", Suite::promptly);
        if (ours()) all.put("half", Suite::halfRefused);
        if (args.containsKey("only")) all.keySet().retainAll(Arrays.asList(args.get("only").split(",")));

        ExecutorService pool = Executors.newFixedThreadPool(6);
        AtomicInteger failed = new AtomicInteger();
        for (Map.Entry<String, Scenario> e : all.entrySet()) {
            pool.execute(() -> {
                long t0 = System.currentTimeMillis();
                try {
                    e.getValue().run(e.getKey());
                    say("PASS " + e.getKey() + " " + (System.currentTimeMillis() - t0) + " ms");
                } catch (Throwable t) {
                    failed.incrementAndGet();
                    ByteArrayOutputStream trace = new ByteArrayOutputStream();
                    t.printStackTrace(new PrintStream(trace));
                    say("FAIL " + e.getKey() + ": " + trace.toString().replace("\n", " | "));
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(5, TimeUnit.MINUTES);
        say("DONE " + all.size() + " scenarios, " + failed.get() + " failed");
        System.out.flush();
        Runtime.getRuntime().halt(failed.get() == 0 ? 0 : 1);
    }

    /** whether the broker under test is loopmq */
    static boolean ours() { return "loopmq".equals(args.get("peer")); }

    static synchronized void say(String s) { System.out.println(s); System.out.flush(); }

    static void check(boolean ok, Object... why) {
        if (!ok) throw new AssertionError(Arrays.deepToString(why));
    }

    /** waits for what other threads bring about, generously: the machine may be busy */
    static void await(String what, Callable<Boolean> done) throws Exception {
        long end = System.currentTimeMillis() + 90_000;
        while (!done.call()) {
            check(System.currentTimeMillis() < end, "waited 90 s for", what);
            Thread.sleep(20);
        }
    }

    // ------------------------------------------------------------------ clients

    static String topic(String name, int queues) throws Exception { return topic(name, queues, 6); }

    static String topic(String name, int queues, int perm) throws Exception {
        String topic = "suite_" + name + "_" + run;
        admin.createAndUpdateTopicConfig(args.get("broker"), new TopicConfig(topic, queues, queues, perm));
        await("the route of " + topic, () -> {
            try { return !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty(); } catch (MQClientException e) { return false; }
        });
        return topic;
    }

    static String group(String name) { return "suite_group_" + name + "_" + run; }

    static DefaultMQProducer producer(String name) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("suite_producer_" + name);
        p.setNamesrvAddr(args.get("ns"));
        p.setInstanceName("p-" + name + "-" + System.nanoTime());
        p.setSendMsgTimeout(15_000);
        p.setRetryTimesWhenSendFailed(0);
        p.setRetryTimesWhenSendAsyncFailed(0);
        p.start();
        return p;
    }

    static DefaultMQPushConsumer push(String name, String group) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(args.get("ns"));
        c.setInstanceName("c-" + name + "-" + System.nanoTime());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPollNameServerInterval(1000);
        c.setConsumeThreadMin(4);
        c.setConsumeThreadMax(4);
        return c;
    }

    /** a busy broker takes nothing, and a route may be late: on a loaded machine both pass */
    static SendResult send(DefaultMQProducer p, Message m) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                SendResult r = p.send(m);
                check(r.getSendStatus() == SendStatus.SEND_OK, r);
                return r;
            } catch (MQClientException e) {
                boolean busy = e.getCause() instanceof MQBrokerException && ((MQBrokerException) e.getCause()).getResponseCode() == 2;
                if (tries == 20 || !busy && !String.valueOf(e.getMessage()).contains("No route info")) throw e;
                Thread.sleep(250);
            }
        }
    }

    static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageExt m) { return new String(m.getBody(), StandardCharsets.UTF_8); }

    /** everything in a topic, by plain pulls from each queue's first offset */
    static List<MessageExt> drain(String topic, int want) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer("suite_drain");
        c.setNamesrvAddr(args.get("ns"));
        c.setInstanceName("d-" + System.nanoTime());
        c.start();
        try {
            List<MessageExt> all = new ArrayList<>();
            Map<MessageQueue, Long> next = new HashMap<>();
            await(want + " messages in " + topic, () -> {
                for (MessageQueue q : c.fetchSubscribeMessageQueues(topic)) {
                    long from = next.containsKey(q) ? next.get(q) : c.minOffset(q);
                    PullResult r = c.pull(q, "*", from, 32);
                    if (r.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt m : r.getMsgFoundList()) {
                            check(m.getQueueOffset() == from++, "offsets of", q, "have a gap at", m);
                            all.add(m);
                        }
                    }
                    next.put(q, r.getNextBeginOffset());
                }
                return all.size() >= want;
            });
            check(all.size() == want, topic, "holds", all.size(), "want", want);
            return all;
        } finally {
            c.shutdown();
        }
    }

    // ------------------------------------------------------------------ scenarios

    static void sync(String name) throws Exception {
        String topic = topic(name, 4);
        DefaultMQProducer p = producer(name);
        Map<String, SendResult> sent = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            Message m = message(topic, "T" + i % 3, "key" + i, "body é中😀 " + i);
            m.putUserProperty("n", "" + i);
            m.putUserProperty("text", "= : # é中");
            m.setFlag(i);
            sent.put("body é中😀 " + i, send(p, m));
        }
        for (MessageExt m : drain(topic, 100)) {
            SendResult r = sent.remove(body(m));
            check(r != null, "unknown or twice", body(m));
            check(r.getMessageQueue().getQueueId() == m.getQueueId() && r.getQueueOffset() == m.getQueueOffset(), r, m);
            check(r.getMsgId().equals(m.getMsgId()), r, m);
            check(("" + m.getFlag()).equals(m.getUserProperty("n")) && m.getUserProperty("text").equals("= : # é中"), m);
            check(m.getTags().equals("T" + m.getFlag() % 3) && m.getKeys().equals("key" + m.getFlag()), m);
            check(m.getStoreTimestamp() >= m.getBornTimestamp() - 60_000 && m.getBornHost() != null && m.getStoreHost() != null, m);
        }
        check(sent.isEmpty(), "lost", sent);
        p.shutdown();
    }

    static void async(String name) throws Exception {
        String topic = topic(name, 4);
        DefaultMQProducer p = producer(name);
        AtomicInteger ok = new AtomicInteger();
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < 300; i++) {
            p.send(message(topic, "A", "k" + i, "async " + i), new SendCallback() {
                public void onSuccess(SendResult r) { ok.incrementAndGet(); }
                public void onException(Throwable e) { errors.add(e); }
            });
        }
        await("300 callbacks", () -> ok.get() + errors.size() == 300);
        check(errors.isEmpty(), errors);
        Set<String> bodies = new HashSet<>();
        for (MessageExt m : drain(topic, 300)) check(bodies.add(body(m)), "twice", m);
        p.shutdown();
    }

    static void oneway(String name) throws Exception {
        String topic = topic(name, 2);
        DefaultMQProducer p = producer(name);
        for (int i = 0; i < 50; i++) p.sendOneway(message(topic, "O", "", "oneway " + i));
        Set<String> bodies = new HashSet<>();
        for (MessageExt m : drain(topic, 50)) check(bodies.add(body(m)), "twice", m);
        p.shutdown();
    }

    static void batch(String name) throws Exception {
        String topic = topic(name, 1);
        DefaultMQProducer p = producer(name);
        int n = 0;
        for (int size : new int[] {1, 2, 32, 100}) {
            List<Message> list = new ArrayList<>();
            for (int i = 0; i < size; i++) list.add(message(topic, "B", "k" + n, "batch " + n++));
            SendResult r = p.send(list);
            check(r.getSendStatus() == SendStatus.SEND_OK, r);
            check(r.getOffsetMsgId().split(",").length == size && r.getQueueOffset() == n - size, r);
        }
        List<MessageExt> got = drain(topic, n);
        for (int i = 0; i < n; i++) check(body(got.get(i)).equals("batch " + i) && got.get(i).getKeys().equals("k" + i), i, got.get(i));
        p.shutdown();
    }

    static void delay(String name) throws Exception {
        String topic = topic(name, 2);
        Map<String, Long> at = new ConcurrentHashMap<>();
        AtomicInteger twice = new AtomicInteger();
        DefaultMQPushConsumer c = push(name, group(name));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
            for (MessageExt m : list) {
                if (at.put(body(m), System.currentTimeMillis()) != null) twice.incrementAndGet();
                if (!topic.equals(m.getTopic()) || m.getProperty("REAL_TOPIC") == null) twice.addAndGet(1000);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        DefaultMQProducer p = producer(name);
        int[] seconds = {0, 1, 5, 10};
        Map<String, Long> due = new HashMap<>();
        for (int i = 0; i < 12; i++) {
            int level = 1 + i % 3;
            Message m = message(topic, "D", "", "delay " + i);
            m.setDelayTimeLevel(level);
            long t0 = System.currentTimeMillis();
            send(p, m);
            due.put("delay " + i, t0 + seconds[level] * 1000L);
        }
        await("12 delayed messages", () -> at.size() == 12);
        Thread.sleep(300);
        check(twice.get() == 0, "delivered twice or under another name", twice.get());
        for (String k : due.keySet()) {
            // The broker rounds to its own step; the clock is the same.
            check(at.get(k) >= due.get(k) - 50, k, "came", due.get(k) - at.get(k), "ms early");
            check(at.get(k) <= due.get(k) + 30_000, k, "came", at.get(k) - due.get(k), "ms late");
        }
        c.shutdown();
        p.shutdown();
    }

    static void retryToDeadLetter(String name) throws Exception {
        String topic = topic(name, 1), group = group(name);
        List<Integer> times = Collections.synchronizedList(new ArrayList<>());
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        AtomicReference<String> later = new AtomicReference<>();
        DefaultMQPushConsumer c = push(name, group);
        c.setMaxReconsumeTimes(2);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
            MessageExt m = list.get(0);
            seen.add(m.getTopic() + " " + body(m) + " " + m.getReconsumeTimes());
            if (body(m).equals("fine")) return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            if (body(m).equals("second time") && m.getReconsumeTimes() == 1) {
                later.set(m.getTopic());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            if (body(m).equals("never")) times.add(m.getReconsumeTimes());
            x.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        c.start();
        DefaultMQProducer p = producer(name);
        for (String s : new String[] {"fine", "second time", "never"}) send(p, message(topic, "R", "k-" + s, s));
        await("the dead letter", () -> {
            try { return !admin.examineTopicRouteInfo("%DLQ%" + group).getQueueDatas().isEmpty() && times.size() == 3; } catch (MQClientException e) { return false; }
        });
        check(times.equals(Arrays.asList(0, 1, 2)), "consumed as", times);
        await("the second try", () -> later.get() != null);
        check(later.get().equals(topic), "a retried message shows its own topic", later.get());
        Thread.sleep(1000); // the consumer has the broker's answer: a stop before it would give the message back again
        c.shutdown();
        // The dead letter topic may only be written: a reader has to be let in first.
        admin.createAndUpdateTopicConfig(args.get("broker"), new TopicConfig("%DLQ%" + group, 1, 1, 6));
        await("the dead letter topic readable", () -> {
            try { return admin.examineTopicRouteInfo("%DLQ%" + group).getQueueDatas().get(0).getPerm() == 6; } catch (MQClientException e) { return false; }
        });
        List<MessageExt> dead = drain("%DLQ%" + group, 1);
        check(body(dead.get(0)).equals("never") && dead.get(0).getKeys().equals("k-never"), dead, seen);
        p.shutdown();
    }

    static void tags(String name) throws Exception {
        String topic = topic(name, 3);
        DefaultMQProducer p = producer(name);
        Set<String> want = new TreeSet<>(), got = new ConcurrentSkipListSet<>();
        for (int i = 0; i < 90; i++) {
            // "Aa" and "BB" have the same Java hash: the queue cannot tell them apart, the client does.
            String tag = new String[] {"Aa", "BB", "C"}[i % 3];
            send(p, message(topic, tag, "", tag + i));
            if (!tag.equals("BB")) want.add(tag + i);
        }
        DefaultMQPushConsumer c = push(name, group(name));
        c.subscribe(topic, "Aa || C");
        AtomicInteger wrong = new AtomicInteger();
        c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
            for (MessageExt m : list) if (!got.add(body(m))) wrong.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        await("60 messages", () -> got.size() >= 60);
        check(got.equals(want) && wrong.get() == 0, got);
        c.shutdown();
        p.shutdown();
    }

    static void orderly(String name) throws Exception {
        String topic = topic(name, 4), group = group(name);
        DefaultMQProducer p = producer(name);
        for (int i = 0; i < 200; i++) {
            p.send(message(topic, "O", "", "" + i), (queues, m, arg) -> queues.get((Integer) arg % queues.size()), i);
        }
        Map<Integer, List<Integer>> got = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        AtomicBoolean paused = new AtomicBoolean();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int k = 0; k < 2; k++) {
            DefaultMQPushConsumer c = push(name + k, group);
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerOrderly) (list, x) -> {
                for (MessageExt m : list) {
                    // once, a queue is held back for a moment: nothing may overtake
                    if (body(m).equals("40") && paused.compareAndSet(false, true)) {
                        x.setSuspendCurrentQueueTimeMillis(500);
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    List<Integer> l = got.computeIfAbsent(m.getQueueId(), q -> Collections.synchronizedList(new ArrayList<>()));
                    int n = Integer.parseInt(body(m));
                    if (l.isEmpty() || l.get(l.size() - 1) != n) { l.add(n); count.incrementAndGet(); }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            c.start();
            consumers.add(c);
        }
        await("200 in order", () -> {
            Set<Integer> all = new HashSet<>();
            for (List<Integer> l : got.values()) synchronized (l) { all.addAll(l); }
            return all.size() == 200;
        });
        for (List<Integer> l : got.values()) {
            // a queue that changed its owner may be repeated from its last committed offset, but never goes forward past a gap
            int next = l.get(0);
            check(next < 4, "a queue began at", next);
            for (int n : l) {
                check(n <= next, "overtaken", l);
                next = Math.max(next, n + 4);
            }
        }
        for (DefaultMQPushConsumer c : consumers) c.shutdown();
        p.shutdown();
    }

    static void litePull(String name) throws Exception {
        String topic = topic(name, 2);
        DefaultMQProducer p = producer(name);
        for (int i = 0; i < 40; i++) send(p, message(topic, "L", "", "lite " + i));
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(group(name));
        c.setNamesrvAddr(args.get("ns"));
        c.setInstanceName("l-" + System.nanoTime());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        c.start();
        Set<String> got = new TreeSet<>();
        await("40 by lite pull", () -> {
            for (MessageExt m : c.poll(500)) got.add(body(m)); // a rebalance may repeat some
            return got.size() == 40;
        });
        c.commitSync();
        c.shutdown();

        DefaultLitePullConsumer a = new DefaultLitePullConsumer(group(name + "_assign"));
        a.setNamesrvAddr(args.get("ns"));
        a.setInstanceName("la-" + System.nanoTime());
        a.setAutoCommit(false);
        a.start();
        List<MessageQueue> queues = new ArrayList<>(a.fetchMessageQueues(topic));
        check(queues.size() == 2, queues);
        a.assign(queues);
        long total = 0;
        for (MessageQueue q : queues) { seek(a, q, 3); total += admin.maxOffset(q) - 3; }
        final long want = total;
        Set<String> again = new TreeSet<>();
        await("the rest after a seek", () -> {
            for (MessageExt m : a.poll(500)) { if (m.getQueueOffset() >= 3) again.add(body(m)); } // what was pulled before the seek may still come
            return again.size() == want;
        });
        a.shutdown();
        p.shutdown();
    }

    /**
     * A seek asks the broker on the connection that pulls are just making, and interrupts the pull of its queue
     * (DefaultLitePullConsumerImpl#seek). With 5.3.3 that request was once not sent, in some hundred runs.
     */
    static void seek(DefaultLitePullConsumer c, MessageQueue q, long offset) throws Exception {
        for (int tries = 3; ; tries--) {
            try { c.seek(q, offset); return; } catch (MQClientException e) {
                if (tries == 1 || !(e.getCause() instanceof RemotingSendRequestException)) throw e;
                say("NOTE seek: " + e.getCause());
            }
        }
    }

    static void autoCreate(String name) throws Exception {
        // A 5.x broker may register only 10 s after its start, when its connection to the name server comes late.
        await("the route of TBW102", () -> {
            try { return !admin.examineTopicRouteInfo("TBW102").getQueueDatas().isEmpty(); } catch (MQClientException e) { return false; }
        });
        String topic = "suite_" + name + "_" + run;
        DefaultMQProducer p = producer(name);
        for (int i = 0; i < 10; i++) send(p, message(topic, "", "", "auto " + i));
        await("the new topic's route", () -> {
            try { return admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums() == 4; } catch (MQClientException e) { return false; }
        });
        drain(topic, 10);
        p.shutdown();
    }

    static void large(String name) throws Exception {
        String topic = topic(name, 1);
        DefaultMQProducer p = producer(name);
        p.setMaxMessageSize(4 << 20);
        Random random = new Random(7);
        int[] sizes = {1, 4095, 4096, 70_000, 1 << 20, (4 << 20) - 8192};
        List<byte[]> bodies = new ArrayList<>();
        for (int size : sizes) {
            byte[] b = new byte[size];
            if (size == 70_000) Arrays.fill(b, (byte) 'x'); else random.nextBytes(b); // one that compresses
            bodies.add(b);
            send(p, new Message(topic, b));
        }
        List<MessageExt> got = drain(topic, sizes.length);
        for (int i = 0; i < sizes.length; i++) check(Arrays.equals(got.get(i).getBody(), bodies.get(i)), "body of", sizes[i]);
        p.shutdown();
    }

    static void query(String name) throws Exception {
        String topic = topic(name, 2);
        DefaultMQProducer p = producer(name);
        long begin = System.currentTimeMillis() - 60_000;
        SendResult one = send(p, message(topic, "Q", "alpha beta", "one"));
        SendResult two = send(p, message(topic, "Q", "beta", "two"));
        await("the index", () -> {
            try { return admin.queryMessage(topic, "beta", 32, begin, System.currentTimeMillis() + 60_000).getMessageList().size() == 2; } catch (MQClientException e) { return false; }
        });
        List<MessageExt> alpha = admin.queryMessage(topic, "alpha", 32, begin, System.currentTimeMillis() + 60_000).getMessageList();
        check(alpha.size() == 1 && body(alpha.get(0)).equals("one"), alpha);
        try {
            admin.queryMessage(topic, "gamma", 32, begin, System.currentTimeMillis() + 60_000);
            check(false, "found gamma");
        } catch (MQClientException e) {
            check(e.getResponseCode() == 22 || e.getResponseCode() == 208 || e.getResponseCode() == 17 || e.getResponseCode() == -1, e);
        }
        check(body(admin.viewMessage(topic, one.getMsgId())).equals("one"), "by unique key");
        check(body(admin.viewMessage(topic, two.getOffsetMsgId())).equals("two"), "by offset id");
        p.shutdown();
    }

    static void offsets(String name) throws Exception {
        String topic = topic(name, 1);
        DefaultMQProducer p = producer(name);
        MessageQueue q = p.fetchPublishMessageQueues(topic).get(0);
        check(admin.minOffset(q) == 0 && admin.maxOffset(q) == 0, "a new queue is empty");
        for (int i = 0; i < 10; i++) send(p, message(topic, "", "", "" + i));
        Thread.sleep(100);
        long middle = System.currentTimeMillis();
        Thread.sleep(100);
        for (int i = 10; i < 20; i++) send(p, message(topic, "", "", "" + i));
        await("dispatch", () -> admin.maxOffset(q) == 20);
        check(admin.minOffset(q) == 0, admin.minOffset(q));
        long byTime = admin.searchOffset(q, middle);
        check(byTime == 10 || !ours() && byTime == 9, "by time", byTime); // 4.x answers with the nearer neighbour
        check(admin.searchOffset(q, 0) == 0, "before all", admin.searchOffset(q, 0));
        check(admin.earliestMsgStoreTime(q) > middle - 120_000, "earliest");
        p.shutdown();
    }

    static void broadcast(String name) throws Exception {
        String topic = topic(name, 2);
        Map<Integer, Set<String>> got = new ConcurrentHashMap<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int k = 0; k < 2; k++) {
            final int who = k;
            got.put(k, new ConcurrentSkipListSet<>());
            DefaultMQPushConsumer c = push(name + k, group(name));
            broadcasting(c);
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
                for (MessageExt m : list) got.get(who).add(body(m));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            consumers.add(c);
        }
        DefaultMQProducer p = producer(name);
        for (int i = 0; i < 20; i++) send(p, message(topic, "", "", "cast " + i));
        await("20 for each", () -> got.get(0).size() == 20 && got.get(1).size() == 20);
        for (DefaultMQPushConsumer c : consumers) c.shutdown();
        p.shutdown();
    }

    /** the enumeration moved between 4.x and 5.x: by name */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void broadcasting(DefaultMQPushConsumer c) throws Exception {
        for (java.lang.reflect.Method m : DefaultMQPushConsumer.class.getMethods()) {
            if (m.getName().equals("setMessageModel")) m.invoke(c, Enum.valueOf((Class) m.getParameterTypes()[0], "BROADCASTING"));
        }
    }

    /** a group stops and comes back: it goes on where it was, and what came meanwhile is there */
    static void resume(String name) throws Exception {
        String topic = topic(name, 2), group = group(name);
        DefaultMQProducer p = producer(name);
        Map<String, AtomicInteger> got = new ConcurrentHashMap<>();
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 20; i++) send(p, message(topic, "", "", round + "-" + i));
            DefaultMQPushConsumer c = push(name + round, group);
            c.subscribe(topic, "*");
            c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
                for (MessageExt m : list) got.computeIfAbsent(body(m), k -> new AtomicInteger()).incrementAndGet();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
            final int want = 20 * (round + 1);
            await(want + " in all", () -> got.size() == want);
            Thread.sleep(200);
            c.shutdown(); // commits
            Thread.sleep(500);
        }
        int again = 0;
        for (AtomicInteger n : got.values()) again += n.get() - 1;
        check(again < 10, again, "consumed again: the group did not go on where it was"); // the client may repeat a few
        p.shutdown();
    }

    /** a waiting consumer is told of a message at once, not at its next poll */
    static void promptly(String name) throws Exception {
        String topic = topic(name, 1);
        BlockingQueue<Long> got = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer c = push(name, group(name));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
            for (MessageExt m : list) got.add(System.nanoTime() - Long.parseLong(body(m)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        DefaultMQProducer p = producer(name);
        send(p, message(topic, "", "", "" + System.nanoTime()));
        check(got.poll(90, TimeUnit.SECONDS) != null, "the first did not come");
        List<Long> took = new ArrayList<>();
        for (int i = 0; i < 15; i++) {
            Thread.sleep(100);
            send(p, message(topic, "", "", "" + System.nanoTime()));
            Long t = got.poll(90, TimeUnit.SECONDS);
            check(t != null, "message", i, "did not come");
            took.add(t / 1_000_000);
        }
        Collections.sort(took);
        check(took.get(7) < 1000, "median over a second: the poll does not end when a message comes", took);
        c.shutdown();
        p.shutdown();
    }

    /** half messages are refused as long as nothing would ever end them */
    static void halfRefused(String name) throws Exception {
        String topic = topic(name, 1);
        TransactionMQProducer p = new TransactionMQProducer("suite_half_" + run);
        p.setNamesrvAddr(args.get("ns"));
        p.setInstanceName("h-" + System.nanoTime());
        p.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) { return LocalTransactionState.COMMIT_MESSAGE; }
            public LocalTransactionState checkLocalTransaction(MessageExt m) { return LocalTransactionState.COMMIT_MESSAGE; }
        });
        p.start();
        try {
            p.sendMessageInTransaction(message(topic, "", "", "half"), null);
            check(false, "a half message was taken");
        } catch (MQClientException e) {
            Throwable cause = e;
            while (cause != null && !(cause instanceof MQBrokerException)) cause = cause.getCause();
            check(cause != null && ((MQBrokerException) cause).getResponseCode() == 16, e, cause);
            check(((MQBrokerException) cause).getErrorMessage() != null, "a remark says why");
        }
        p.shutdown();
    }
}
