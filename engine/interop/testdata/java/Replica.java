// SPDX-License-Identifier: Apache-2.0

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Load that goes on through the death of brokers, and its check.
 *   Replica load ns=… topic=… [broker=HOST:PORT: makes the topic] acked=FILE stop=FILE   until the stop file is there
 *   Replica read ns=… topic=… acked=FILE [group=…]                                       consumes until all acked have come
 * load writes the key of each send that was answered SEND_OK, prints PAUSED when none of its threads gets on any more, and at
 * the end the longest time without an answer.
 */
public class Replica {
    static final Map<String, String> args = new HashMap<>();

    public static void main(String[] a) throws Exception {
        for (int i = 1; i < a.length; i++) args.put(a[i].substring(0, a[i].indexOf('=')), a[i].substring(a[i].indexOf('=') + 1));
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        int code = 1;
        try {
            if (a[0].equals("load")) load(); else read();
            code = 0;
        } catch (Throwable t) {
            t.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(code); // the client's threads would keep the JVM
    }

    static void makeTopic() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args.get("ns"));
        admin.start();
        long end = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                admin.createAndUpdateTopicConfig(args.get("broker"), new TopicConfig(args.get("topic"), 4, 4, 6));
                break;
            } catch (Exception e) {
                if (System.currentTimeMillis() > end) throw e;
                Thread.sleep(200);
            }
        }
        admin.shutdown();
    }

    static void load() throws Exception {
        if (args.containsKey("broker")) makeTopic();
        DefaultMQProducer p = new DefaultMQProducer("replica_producer");
        p.setNamesrvAddr(args.get("ns"));
        p.setPollNameServerInterval(500);
        p.setHeartbeatBrokerInterval(1000);
        p.setSendMsgTimeout(5000);
        p.setRetryTimesWhenSendFailed(0);
        p.start();
        Path stop = Paths.get(args.get("stop"));
        BufferedWriter acked = Files.newBufferedWriter(Paths.get(args.get("acked")), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        AtomicInteger stuck = new AtomicInteger(); // threads whose last send failed: they have none under way that may succeed
        AtomicLong count = new AtomicLong(), other = new AtomicLong(), failed = new AtomicLong(), last = new AtomicLong(), pause = new AtomicLong();
        String run = Long.toHexString(System.nanoTime());
        byte[] body = new byte[1024];
        new Random(7).nextBytes(body);
        List<Thread> threads = new ArrayList<>();
        for (int k = 0; k < 4; k++) {
            int id = k;
            Thread t = new Thread(() -> {
                boolean fails = false;
                for (int i = 0; !Files.exists(stop); i++) {
                    String key = run + "-" + id + "-" + i;
                    try {
                        SendResult r = p.send(new Message(args.get("topic"), "T", key, body));
                        if (fails) stuck.decrementAndGet();
                        fails = false;
                        if (r.getSendStatus() == SendStatus.SEND_OK) {
                            synchronized (acked) {
                                acked.write(key + "\n");
                                long now = System.currentTimeMillis();
                                if (count.getAndIncrement() > 0) pause.set(Math.max(pause.get(), now - last.get()));
                                else System.out.println("LOADING");
                                last.set(now);
                            }
                        } else {
                            other.incrementAndGet();
                        }
                        Thread.sleep(8);
                    } catch (Exception e) {
                        failed.incrementAndGet();
                        if (!fails && stuck.incrementAndGet() == 4) System.out.println("PAUSED");
                        fails = true;
                        try { Thread.sleep(50); } catch (InterruptedException ie) { return; }
                    }
                }
            });
            t.start();
            threads.add(t);
        }
        for (Thread t : threads) t.join();
        acked.close();
        System.out.println("ACKED " + count + " OTHER " + other + " FAILED " + failed + " PAUSE " + pause + " ms");
    }

    static void read() throws Exception {
        Set<String> missing = ConcurrentHashMap.newKeySet();
        missing.addAll(Files.readAllLines(Paths.get(args.get("acked"))));
        int all = missing.size();
        AtomicLong got = new AtomicLong();
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(args.getOrDefault("group", "replica_consumer"));
        c.setNamesrvAddr(args.get("ns"));
        c.setPollNameServerInterval(500);
        c.setHeartbeatBrokerInterval(1000);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(args.get("topic"), "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                got.incrementAndGet();
                missing.remove(m.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        long end = System.currentTimeMillis() + 90_000;
        while (!missing.isEmpty() && System.currentTimeMillis() < end) Thread.sleep(100);
        c.shutdown();
        System.out.println("READ " + got + " MISSING " + missing.size() + " OF " + all);
        if (!missing.isEmpty()) throw new AssertionError("missing " + new ArrayList<>(missing).subList(0, Math.min(5, missing.size())));
    }
}
