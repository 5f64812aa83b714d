import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** One member of a consumer group; see ../groups_member.go for what it is told and prints. */
public final class Member implements ConsumerRebalanceListener {
    private static volatile boolean stopping;
    private static boolean uncommitted; // what a rebalance refused is committed later

    public static void main(String[] args) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings())) {
            Thread listener = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {
                    }
                } catch (IOException e) {
                    note("stdin: " + e.getMessage());
                }
                stopping = true;
                consumer.wakeup();
            });
            listener.setDaemon(true);
            listener.start();
            consumer.subscribe(List.of(System.getenv("MEMBER_TOPIC")), new Member());
            while (!stopping) {
                step(consumer);
            }
        }
    }

    private static void step(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            var records = consumer.poll(Duration.ofMillis(200));
            for (TopicPartition p : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> of = records.records(p);
                emit("records", "\"r\":{\"" + p.partition() + "\":[" + of.get(0).offset() + "," + of.get(of.size() - 1).offset() + "," + of.size() + "]}");
            }
            uncommitted |= !records.isEmpty();
            if (uncommitted) {
                consumer.commitSync();
                uncommitted = false;
            }
        } catch (WakeupException e) {
            // stopping is set
        } catch (KafkaException e) {
            note(e.toString());
        }
    }

    private static Properties settings() {
        Properties s = new Properties();
        boolean classic = System.getenv("MEMBER_PROTOCOL").equals("classic");
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        s.put("bootstrap.servers", System.getenv("TIERBROKER_BOOTSTRAP"));
        s.put("client.id", System.getenv("MEMBER_ID"));
        s.put("group.id", System.getenv("MEMBER_GROUP"));
        s.put("group.protocol", System.getenv("MEMBER_PROTOCOL"));
        s.put("auto.offset.reset", "earliest");
        s.put("enable.auto.commit", "false");
        s.put("max.poll.records", "200");
        s.put("max.poll.interval.ms", "30000");
        s.put("fetch.max.wait.ms", "300");
        s.put("key.deserializer", bytes);
        s.put("value.deserializer", bytes);
        if (classic) {
            s.put("session.timeout.ms", System.getenv("MEMBER_SESSION_MS"));
            s.put("heartbeat.interval.ms", "300");
            s.put("partition.assignment.strategy", Map.of(
                "range", "org.apache.kafka.clients.consumer.RangeAssignor",
                "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
                "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor").get(System.getenv("MEMBER_STRATEGY")));
        }
        String instance = System.getenv("MEMBER_INSTANCE");
        if (instance != null && !instance.isEmpty()) {
            s.put("group.instance.id", instance);
        }
        return s;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        emit("assigned", list(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        emit("revoked", list(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        emit("lost", list(partitions));
    }

    private static String list(Collection<TopicPartition> partitions) {
        return "\"p\":[" + partitions.stream().map(p -> "" + p.partition()).collect(Collectors.joining(",")) + "]";
    }

    private static void note(String text) {
        String safe = text.replaceAll("[^ -~]", " ").replace('\\', '/').replace('"', '\'');
        emit("note", "\"m\":\"" + safe + "\"");
    }

    private static synchronized void emit(String what, String more) {
        Instant now = Instant.now();
        long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
        byte[] line = ("{\"e\":\"" + what + "\",\"t\":" + micros + "," + more + "}\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
        if (System.out.checkError()) {
            Runtime.getRuntime().halt(3); // nobody listens any more
        }
    }
}
