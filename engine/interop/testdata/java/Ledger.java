// SPDX-License-Identifier: Apache-2.0

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Fills a broker and writes down what it holds, with the stock client.
 *   Ledger fill ns=… broker=HOST:PORT round=N count=N level=N   messages, delayed messages, a consumer's offsets
 *   Ledger half ns=… broker=…                                    one half message that stays open
 *   Ledger dump ns=… [late=N]                                    a line for each message and committed offset
 * Topics: ledger_a (4 queues), ledger_b (1), ledger_late (2, fed by delayed messages only). Group: ledger_group on
 * ledger_a. Delayed messages carry their key; dump waits until ledger_late holds N different ones.
 */
public class Ledger {
    static final Map<String, String> args = new HashMap<>();
    static final String[] TOPICS = {"ledger_a", "ledger_b", "ledger_late"};
    static final int[] QUEUES = {4, 1, 2};
    static final String GROUP = "ledger_group";

    public static void main(String[] a) throws Exception {
        for (int i = 1; i < a.length; i++) args.put(a[i].substring(0, a[i].indexOf('=')), a[i].substring(a[i].indexOf('=') + 1));
        System.setProperty("rocketmq.client.rebalance.waitInterval", "2000");
        try {
            switch (a[0]) {
                case "fill": fill(); break;
                case "half": half(); break;
                case "dump": dump(); break;
                default: throw new IllegalArgumentException(a[0]);
            }
        } catch (Throwable t) { // the client's threads would keep the JVM
            t.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.println("DONE");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void check(boolean ok, Object... why) {
        if (!ok) throw new AssertionError(Arrays.deepToString(why));
    }

    static void await(String what, Callable<Boolean> done) throws Exception {
        long end = System.currentTimeMillis() + 120_000;
        while (true) {
            try {
                if (done.call()) return;
            } catch (Exception e) { // the name server or the broker is not there yet
                if (System.currentTimeMillis() > end) throw e;
            }
            check(System.currentTimeMillis() < end, "waited 120 s for", what);
            Thread.sleep(50);
        }
    }

    static DefaultMQProducer start(DefaultMQProducer p) throws Exception {
        p.setNamesrvAddr(args.get("ns"));
        p.setInstanceName("ledger-" + System.nanoTime());
        p.setSendMsgTimeout(20_000);
        p.setRetryTimesWhenSendFailed(0); // a retry would make two of one
        p.start();
        for (String t : TOPICS) await("the route of " + t, () -> !p.fetchPublishMessageQueues(t).isEmpty());
        return p;
    }

    static DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args.get("ns"));
        admin.setInstanceName("ledger-admin-" + System.nanoTime());
        admin.start();
        return admin;
    }

    static void topics() throws Exception {
        DefaultMQAdminExt admin = admin();
        for (int i = 0; i < TOPICS.length; i++) {
            TopicConfig t = new TopicConfig(TOPICS[i], QUEUES[i], QUEUES[i], 6);
            await("topic " + t.getTopicName(), () -> { admin.createAndUpdateTopicConfig(args.get("broker"), t); return true; });
        }
        admin.shutdown();
    }

    static void fill() throws Exception {
        String round = args.get("round");
        int count = Integer.parseInt(args.get("count"));
        if (round.equals("1")) topics();
        DefaultMQProducer p = start(new DefaultMQProducer("ledger_producer"));
        Random random = new Random(round.hashCode());

        // The group consumes what is there and half of what comes: its offsets end in the middle.
        consumeAll(p, round);
        for (int i = 0; i < count; i++) {
            byte[] body = new byte[1 + random.nextInt(1200)];
            random.nextBytes(body);
            Message m = new Message("ledger_a", "T" + i % 4, "a-" + round + "-" + i, body);
            m.putUserProperty("round", round);
            m.setWaitStoreMsgOK(i % 2 == 0);
            check(p.send(m).getSendStatus() == SendStatus.SEND_OK, i);
        }
        for (int i = 0; i < count / 10; i++) {
            List<Message> batch = new ArrayList<>();
            for (int k = 0; k < 10; k++) batch.add(new Message("ledger_b", "B", "b-" + round + "-" + i + "-" + k, ("body " + i + " " + k).getBytes(StandardCharsets.UTF_8)));
            check(p.send(batch).getSendStatus() == SendStatus.SEND_OK, i);
        }
        for (int i = 0; i < 20; i++) {
            Message m = new Message("ledger_late", "L", "late-" + round + "-" + i, ("late " + round + " " + i).getBytes(StandardCharsets.UTF_8));
            m.setDelayTimeLevel(Integer.parseInt(args.get("level")));
            check(p.send(m).getSendStatus() == SendStatus.SEND_OK, i);
        }
        p.shutdown();
    }

    /** lets the group consume to the end of ledger_a and says which keys it got, in how many pieces */
    static void consumeAll(DefaultMQProducer p, String round) throws Exception {
        Set<String> got = new ConcurrentSkipListSet<>();
        AtomicInteger n = new AtomicInteger();
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(GROUP);
        c.setNamesrvAddr(args.get("ns"));
        c.setInstanceName("ledger-c-" + System.nanoTime());
        c.setPollNameServerInterval(1000);
        c.setPersistConsumerOffsetInterval(500);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe("ledger_a", "*");
        c.registerMessageListener((MessageListenerConcurrently) (list, x) -> {
            for (MessageExt m : list) { got.add(m.getKeys()); n.incrementAndGet(); }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        Message last = new Message("ledger_a", "LAST", "last-" + round, new byte[] {1});
        for (MessageQueue q : p.fetchPublishMessageQueues("ledger_a")) {
            last.setKeys("last-" + round + "-" + q.getQueueId());
            MessageAccessor.clearProperty(last, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            check(p.send(last, q).getSendStatus() == SendStatus.SEND_OK, q);
        }
        await("the group at the end of ledger_a", () -> {
            int k = 0;
            for (String s : got) if (s.startsWith("last-" + round + "-")) k++;
            return k == 4;
        });
        // Offsets are committed one-way, and what a client sends as it ends may not arrive.
        DefaultMQAdminExt admin = admin();
        await("the group's offsets at the end of ledger_a", () -> admin.examineConsumeStats(GROUP, "ledger_a").computeTotalDiff() == 0);
        admin.shutdown();
        c.shutdown();
        Thread.sleep(500);
        System.out.println("CONSUMED " + n.get() + " " + got.size());
    }

    static void half() throws Exception {
        topics();
        TransactionMQProducer p = new TransactionMQProducer("ledger_half");
        p.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) { return LocalTransactionState.UNKNOW; }
            public LocalTransactionState checkLocalTransaction(MessageExt m) { return LocalTransactionState.UNKNOW; }
        });
        start(p);
        p.sendMessageInTransaction(new Message("ledger_b", "H", "half", "half".getBytes()), null);
        p.shutdown();
    }

    static void dump() throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer("ledger_dump");
        c.setNamesrvAddr(args.get("ns"));
        c.setInstanceName("ledger-d-" + System.nanoTime());
        c.start();
        DefaultMQPullConsumer g = new DefaultMQPullConsumer(GROUP);
        g.setNamesrvAddr(args.get("ns"));
        g.setInstanceName("ledger-g-" + System.nanoTime());
        g.start();
        int late = Integer.parseInt(args.getOrDefault("late", "0"));
        Set<String> came = new HashSet<>();
        await(late + " delayed messages", () -> {
            for (MessageQueue q : late == 0 ? Set.<MessageQueue>of() : c.fetchSubscribeMessageQueues("ledger_late"))
                for (long next = c.minOffset(q), end = c.maxOffset(q); next < end; next += 32)
                    for (MessageExt m : c.pull(q, "*", next, 32).getMsgFoundList()) came.add(m.getKeys());
            return came.size() >= late;
        });
        StringBuilder out = new StringBuilder();
        for (String topic : TOPICS) {
            List<MessageQueue> queues = new ArrayList<>();
            await("the queues of " + topic, () -> { queues.clear(); queues.addAll(c.fetchSubscribeMessageQueues(topic)); return !queues.isEmpty(); });
            Collections.sort(queues);
            for (MessageQueue q : queues) {
                long next = c.minOffset(q), end = c.maxOffset(q);
                out.append("Q ").append(topic).append(' ').append(q.getQueueId()).append(" min ").append(next).append('\n');
                while (next < end) {
                    PullResult r = c.pull(q, "*", next, 32);
                    check(r.getPullStatus() == PullStatus.FOUND, q, next, end, r);
                    for (MessageExt m : r.getMsgFoundList()) {
                        check(m.getQueueOffset() == next, "a gap in", q, "at", next, m);
                        next++;
                        out.append(line(m)).append('\n');
                    }
                }
                long committed = g.fetchConsumeOffset(q, true);
                if (topic.equals("ledger_a")) out.append("O ").append(topic).append(' ').append(q.getQueueId()).append(' ').append(committed).append('\n');
            }
        }
        System.out.print(out);
        c.shutdown();
        g.shutdown();
    }

    static String line(MessageExt m) {
        TreeMap<String, String> properties = new TreeMap<>(m.getProperties());
        properties.keySet().removeAll(Arrays.asList("MIN_OFFSET", "MAX_OFFSET")); // the client adds them
        CRC32 crc = new CRC32();
        crc.update(m.getBody());
        return "M " + m.getTopic() + " " + m.getQueueId() + " " + m.getQueueOffset() + " " + m.getKeys() + " at " + m.getCommitLogOffset() + " size " + m.getStoreSize()
            + " born " + m.getBornTimestamp() + " stored " + m.getStoreTimestamp() + " by " + m.getStoreHost() + " flags " + m.getFlag() + "," + m.getSysFlag() + "," + m.getReconsumeTimes()
            + " body " + m.getBody().length + "," + crc.getValue() + " " + properties;
    }
}
