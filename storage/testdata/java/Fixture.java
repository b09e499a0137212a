// SPDX-License-Identifier: Apache-2.0

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends the messages of a fixture and prints one line for each: what the broker answered, and what was sent. */
public class Fixture {
    public static void main(String[] a) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("fixture");
        p.setNamesrvAddr(a[0]);
        p.setCompressMsgBodyOverHowmuch(1 << 30);
        p.setSendMsgTimeout(20000);
        p.start();
        int from = Integer.parseInt(a[1]), to = Integer.parseInt(a[2]);
        for (int i = from; i < to; i++) {
            Message m = new Message(i % 3 == 0 ? "Orders" : "Events", body(i));
            if (i % 4 != 0) m.setTags(i % 4 == 1 ? "tagA" : i % 4 == 2 ? "标签" : "a much longer tag than others");
            if (i % 5 == 0) m.setKeys("order-" + i);
            if (i % 10 == 7) m.setKeys("k" + i + " shared  last-" + i);
            if (i % 25 == 11) m.setDelayTimeLevel(18);
            if (i % 25 == 13) m.setDelayTimeLevel(1);
            print(p.send(m), m);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) batch.add(new Message("Orders", "batch", "batch-" + from + "-" + i, body(1000 + i)));
        SendResult r = p.send(batch);
        System.out.println("batch\t" + r.getMessageQueue().getTopic() + "\t" + r.getMessageQueue().getQueueId() + "\t" + r.getQueueOffset()
            + "\t" + r.getOffsetMsgId() + "\t" + r.getMsgId());
        p.shutdown();
    }

    static byte[] body(int i) {
        StringBuilder b = new StringBuilder("message " + i + " ");
        while (b.length() < 100 + i * 37 % 900) b.append((char) ('a' + (i + b.length()) % 26));
        return b.toString().getBytes(StandardCharsets.UTF_8);
    }

    static void print(SendResult r, Message m) {
        System.out.println("single\t" + r.getMessageQueue().getTopic() + "\t" + r.getMessageQueue().getQueueId() + "\t" + r.getQueueOffset()
            + "\t" + r.getOffsetMsgId() + "\t" + r.getMsgId() + "\t" + (m.getTags() == null ? "" : m.getTags())
            + "\t" + (m.getKeys() == null ? "" : m.getKeys()) + "\t" + m.getDelayTimeLevel() + "\t" + new String(m.getBody(), StandardCharsets.UTF_8));
    }
}
