// SPDX-License-Identifier: Apache-2.0

import java.io.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;

/**
 * Load with the stock client, a window at a time.
 *   Load ns=HOST:PORT topic=T mode=sync|async|batch|pull [body=1024] [threads=64] [inflight=256] [batch=32] [timeout=5000]
 * A producer is one client, and so one connection; async has one thread and so many sends in flight; pull reads every
 * queue from its first message to where it ended when the window began, one thread each.
 * Standard input: "run WARMUP SECONDS" (with fractions) for each window; its end ends the program. Standard output, for
 * each window: BEGIN, an array a second [at s, seconds, messages, errors, p50 us, p99 us, max us], END, and an object
 * with messages, bytes, seconds, errors by kind, and latencies as [ns, count] pairs. What the client says itself goes to
 * a file: nothing else is printed.
 */
public class Load {
    static final Map<String, String> args = new HashMap<>();

    static String text(String key, String otherwise) { return args.getOrDefault(key, otherwise); }
    static int number(String key, int otherwise) { return Integer.parseInt(text(key, "" + otherwise)); }

    /** Latencies in nanoseconds, 64 steps for each power of two. */
    static final class Histogram {
        static final int STEPS = 64;
        final AtomicLongArray counts = new AtomicLongArray(STEPS * STEPS);

        void add(long ns) { counts.incrementAndGet(index(Math.max(ns, 0))); }

        static int index(long ns) {
            if (ns < STEPS) return (int) ns;
            int exponent = 63 - Long.numberOfLeadingZeros(ns);
            return (exponent - 5) * STEPS + (int) (ns >>> exponent - 6 & STEPS - 1);
        }

        /** the middle of a step */
        static long value(int index) {
            if (index < STEPS) return index;
            int exponent = index / STEPS + 5;
            long step = 1L << exponent - 6;
            return (1L << exponent) + index % STEPS * step + step / 2;
        }

        long[] snapshot() {
            long[] now = new long[counts.length()];
            for (int i = 0; i < now.length; i++) now[i] = counts.get(i);
            return now;
        }

        static long[] minus(long[] a, long[] b) {
            long[] d = new long[a.length];
            for (int i = 0; i < d.length; i++) d[i] = a[i] - b[i];
            return d;
        }

        static double micros(long[] counts, double part) {
            long total = Arrays.stream(counts).sum(), passed = 0, rank = Math.max((long) Math.ceil(total * part), 1);
            for (int i = 0; i < counts.length; i++) {
                passed += counts[i];
                if (passed >= rank && total > 0) return value(i) / 1e3;
            }
            return 0;
        }
    }

    // What has happened since the program began; a window is the difference of two moments.
    static final Histogram latencies = new Histogram();
    static final LongAdder messages = new LongAdder(), bytes = new LongAdder();
    static final ConcurrentHashMap<String, LongAdder> errors = new ConcurrentHashMap<>();

    static void failed(String kind) { errors.computeIfAbsent(kind, k -> new LongAdder()).increment(); }

    static void failed(Throwable t) {
        while (t.getCause() != null && t.getCause() != t) t = t.getCause();
        String message = String.valueOf(t.getMessage()), description = "DESC:";
        int at = message.indexOf(description);
        if (at >= 0) message = message.substring(at + description.length());
        message = message.replaceAll("[0-9]+", "#").replaceAll("[\"\\\\\\p{Cntrl}]", " ").trim();
        failed(t.getClass().getSimpleName() + ": " + message.substring(0, Math.min(60, message.length())));
    }

    static final class Moment {
        final long at = System.nanoTime(), messages = Load.messages.sum(), bytes = Load.bytes.sum();
        final long[] counts = latencies.snapshot();
        final TreeMap<String, Long> errors = new TreeMap<>();

        Moment() { Load.errors.forEach((kind, n) -> errors.put(kind, n.sum())); }

        long errorsSince(Moment past) {
            long n = 0;
            for (Map.Entry<String, Long> e : errors.entrySet()) n += e.getValue() - past.errors.getOrDefault(e.getKey(), 0L);
            return n;
        }
    }

    static double seconds(long ns) { return ns / 1e9; }

    static void print(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
        System.out.flush();
    }

    static void printSample(Moment begin, Moment before, Moment now) {
        long[] counts = Histogram.minus(now.counts, before.counts);
        print("[%.3f,%.3f,%d,%d,%.1f,%.1f,%.1f]", seconds(now.at - begin.at), seconds(now.at - before.at), now.messages - before.messages,
            now.errorsSince(before), Histogram.micros(counts, 0.5), Histogram.micros(counts, 0.99), Histogram.micros(counts, 1));
    }

    static void printWindow(Moment begin, Moment end) {
        StringJoiner kinds = new StringJoiner(",", "{", "}"), latency = new StringJoiner(",", "[", "]");
        end.errors.forEach((kind, n) -> {
            long more = n - begin.errors.getOrDefault(kind, 0L);
            if (more > 0) kinds.add("\"" + kind + "\":" + more);
        });
        long[] counts = Histogram.minus(end.counts, begin.counts);
        for (int i = 0; i < counts.length; i++) if (counts[i] > 0) latency.add("[" + Histogram.value(i) + "," + counts[i] + "]");
        print("END");
        print("{\"messages\":%d,\"bytes\":%d,\"seconds\":%.6f,\"errors\":%s,\"latencies\":%s}", end.messages - begin.messages, end.bytes - begin.bytes,
            seconds(end.at - begin.at), kinds, latency);
    }

    public static void main(String[] a) throws Exception {
        for (String one : a) args.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
        int code = 1;
        try {
            Runner runner = text("mode", "sync").equals("pull") ? new Puller() : new Producer();
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                runner.window(Double.parseDouble(words[1]), Double.parseDouble(words[2]));
            }
            code = 0;
        } catch (Throwable t) {
            t.printStackTrace();
        }
        Runtime.getRuntime().halt(code); // the client's threads would keep the JVM
    }

    interface Runner { void window(double warmup, double duration) throws Exception; }

    /** Sends while the gate is open. */
    static final class Producer implements Runner {
        final String topic = text("topic", "bench"), mode = text("mode", "sync");
        final int timeout = number("timeout", 5000), batch = number("batch", 32), inflight = number("inflight", 256);
        final byte[] body = new byte[number("body", 1024)];
        final DefaultMQProducer producer = new DefaultMQProducer("load_producer");
        final Semaphore sends = new Semaphore(inflight);
        final Object gate = new Object();
        boolean open;

        Producer() throws Exception {
            new Random(7).nextBytes(body);
            producer.setNamesrvAddr(text("ns", ""));
            producer.setInstanceName("load-" + System.nanoTime());
            producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            producer.setRetryTimesWhenSendFailed(0); // an error is to be seen
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.setSendMsgTimeout(timeout);
            producer.start();
            for (int i = 0; ; i++) { // a new topic reaches the name server a little later
                try {
                    if (!producer.fetchPublishMessageQueues(topic).isEmpty()) break;
                } catch (Exception e) {
                    if (i > 300) throw e;
                }
                Thread.sleep(100);
            }
            int threads = mode.equals("async") ? 1 : number("threads", mode.equals("batch") ? 8 : 64);
            for (int k = 0; k < threads; k++) {
                Thread t = new Thread(this::send, "load-" + k);
                t.setDaemon(true);
                t.start();
            }
        }

        Message message() {
            Message m = new Message(topic, body.clone());
            m.setWaitStoreMsgOK(true);
            return m;
        }

        void done(long began, SendResult result, int n) {
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                failed(result.getSendStatus().name());
                return;
            }
            latencies.add(System.nanoTime() - began);
            messages.add(n);
            bytes.add((long) n * body.length);
        }

        void send() {
            while (true) {
                try {
                    synchronized (gate) { while (!open) gate.wait(); }
                    if (mode.equals("async")) sendAsync();
                    else if (mode.equals("batch")) sendBatch();
                    else {
                        long began = System.nanoTime();
                        done(began, producer.send(message(), timeout), 1);
                    }
                } catch (Throwable t) {
                    failed(t);
                    try { Thread.sleep(5); } catch (InterruptedException e) { return; }
                }
            }
        }

        void sendBatch() throws Exception {
            List<Message> all = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) all.add(message());
            long began = System.nanoTime();
            done(began, producer.send(all, timeout), batch);
        }

        void sendAsync() throws Exception {
            sends.acquire();
            AtomicBoolean once = new AtomicBoolean(); // send may throw and still call back
            try {
                long began = System.nanoTime();
                producer.send(message(), new SendCallback() {
                    @Override public void onSuccess(SendResult result) {
                        if (once.compareAndSet(false, true)) sends.release();
                        done(began, result, 1);
                    }
                    @Override public void onException(Throwable t) {
                        if (once.compareAndSet(false, true)) sends.release();
                        failed(t);
                    }
                }, timeout);
            } catch (Throwable t) {
                if (once.compareAndSet(false, true)) sends.release();
                throw t;
            }
        }

        @Override public void window(double warmup, double duration) throws Exception {
            set(true);
            Thread.sleep((long) (warmup * 1000));
            print("BEGIN");
            Moment begin = new Moment(), before = begin;
            while (before.at - begin.at < duration * 1e9) {
                long left = (long) (duration * 1000) - (before.at - begin.at) / 1_000_000;
                Thread.sleep(Math.max(Math.min(left, 1000), 1));
                Moment now = new Moment();
                printSample(begin, before, now);
                before = now;
            }
            printWindow(begin, before);
            set(false);
        }

        void set(boolean value) {
            synchronized (gate) { open = value; gate.notifyAll(); }
        }
    }

    /** Reads all that is there, as fast as it comes. */
    static final class Puller implements Runner {
        final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("load_consumer");

        Puller() throws Exception {
            consumer.setNamesrvAddr(text("ns", ""));
            consumer.setInstanceName("load-" + System.nanoTime());
            consumer.start();
        }

        @Override public void window(double warmup, double duration) throws Exception {
            Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(text("topic", "bench"));
            Map<MessageQueue, Long> ends = new HashMap<>();
            for (MessageQueue q : queues) ends.put(q, consumer.maxOffset(q));
            print("BEGIN");
            Moment begin = new Moment();
            long limit = begin.at + (long) (duration * 1e9);
            List<Thread> threads = new ArrayList<>();
            for (MessageQueue q : queues) {
                Thread t = new Thread(() -> drain(q, ends.get(q), limit));
                t.start();
                threads.add(t);
            }
            for (Thread t : threads) t.join();
            Moment end = new Moment();
            printSample(begin, begin, end);
            printWindow(begin, end);
        }

        void drain(MessageQueue queue, long end, long limit) {
            final int most = 32; // what a broker gives at once
            for (long offset = 0; offset < end && System.nanoTime() < limit; ) {
                try {
                    long began = System.nanoTime();
                    PullResult result = consumer.pull(queue, "*", offset, most, number("timeout", 5000));
                    latencies.add(System.nanoTime() - began);
                    offset = Math.max(offset, result.getNextBeginOffset());
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        failed(result.getPullStatus().name());
                        Thread.sleep(5);
                        continue;
                    }
                    long size = 0;
                    for (MessageExt m : result.getMsgFoundList()) size += m.getBody().length;
                    messages.add(result.getMsgFoundList().size());
                    bytes.add(size);
                } catch (Throwable t) {
                    failed(t);
                    try { Thread.sleep(10); } catch (InterruptedException e) { return; }
                }
            }
        }
    }
}
