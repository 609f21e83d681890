package ackproof;

import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** A member of a share group (docs/share-groups.md). Only this class needs Kafka 4.2: the rest runs with older releases. */
final class ShareMember {
    private static final Duration POLL = Duration.ofMillis(200), CLOSE = Duration.ofSeconds(10);
    private final Lines lines = new Lines();
    private final long releaseEvery = Client.number("release_every"), releases = Client.number("releases");
    private final long rejectEvery = Client.number("reject_every"), renewEvery = Client.number("renew_every");
    private final long requestNs = Long.parseLong(Client.KAFKA.getProperty("request.timeout.ms")) * 1_000_000;
    /** Polls in which a fetch can lie in the buffer of the library: each returns that of one broker. */
    private final int depth = 1 + Client.KAFKA.getProperty("bootstrap.servers").split(",").length;
    private final Deque<Long> polls = new ArrayDeque<>(); // begins of the last polls, the newest last
    private final Set<String> renewed = new HashSet<>(); // deliveries whose lock was renewed, until they are accepted
    private final KafkaShareConsumer<byte[], byte[]> consumer =
        new KafkaShareConsumer<>(Client.KAFKA, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    private long batch = -1;

    static int start() {
        return new ShareMember().run();
    }

    private int run() {
        lines.listen();
        consumer.setAcknowledgementCommitCallback(this::answer);
        configureGroup();
        consumer.subscribe(List.of(Client.text("topics").split(" ")));
        lines.tell("started", "\"client\":" + Harness.quote(Client.text("client")));
        while (!lines.stopping) step();
        lines.tell("stopping", "");
        consumer.close(CLOSE);
        lines.tell("closed", "");
        return 0;
    }

    /** Set what only the group's own settings can say. Each member does: it is the same, and one of them is the first. */
    private static void configureGroup() {
        var group = new ConfigResource(ConfigResource.Type.GROUP, Client.KAFKA.getProperty("group.id"));
        var settings = Client.OWN.stringPropertyNames().stream().filter(name -> name.startsWith("group.")).map(name ->
            new AlterConfigOp(new ConfigEntry(name.substring(6), Client.text(name)), AlterConfigOp.OpType.SET)).toList();
        var connection = new Properties();
        connection.put("bootstrap.servers", Client.KAFKA.getProperty("bootstrap.servers"));
        connection.putAll(Client.HIDDEN);
        try (var admin = Admin.create(connection)) {
            admin.incrementalAlterConfigs(Map.of(group, settings)).all().get();
        } catch (java.util.concurrent.ExecutionException | InterruptedException refused) {
            throw new KafkaException("the settings of the group: " + settings, refused);
        }
    }

    private void step() {
        ConsumerRecords<byte[], byte[]> records;
        polls.addLast(System.nanoTime());
        if (polls.size() > depth) polls.removeFirst();
        try {
            records = consumer.poll(POLL);
        } catch (RetriableException again) {
            System.err.println(again);
            return;
        }
        if (records.isEmpty()) { // nothing is in the buffer: what comes was fetched since this poll began
            long begun = polls.getLast();
            polls.clear();
            polls.add(begun);
            lines.flush();
            return;
        }
        // a fetch that was under way when the oldest of these polls began ends within request.timeout.ms
        String poll = "\"batch\":%d,\"q\":%d,".formatted(++batch, polls.getFirst() - requestNs);
        for (var record : records)
            lines.add("delivered", poll + "\"d\":%d,".formatted(record.deliveryCount().orElse((short) -1)) + lines.deliveredFields(record));
        lines.flush();
        for (var record : records) {
            lines.work(record);
            var how = decide(record);
            lines.add("acknowledge", "\"batch\":%d,\"how\":\"%s\",".formatted(batch, how) + Lines.place(record));
            consumer.acknowledge(record, how);
        }
        lines.flush();
        try {
            consumer.commitSync(); // its answers come by the callback, too, which names the offsets
        } catch (RetriableException late) {
            System.err.println(late);
        }
    }

    private AcknowledgeType decide(ConsumerRecord<byte[], byte[]> record) {
        long offset = record.offset(), deliveries = record.deliveryCount().orElse((short) 1);
        if (each(rejectEvery, offset)) return AcknowledgeType.REJECT;
        if (each(releaseEvery, offset) && deliveries <= releases) return AcknowledgeType.RELEASE;
        String delivery = Lines.place(record) + deliveries;
        return each(renewEvery, offset) && renewed.add(delivery) ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
    }

    private static boolean each(long every, long offset) {
        return every > 0 && offset % every == every - 1;
    }

    private void answer(Map<TopicIdPartition, Set<Long>> acknowledged, Exception error) {
        String offsets = acknowledged.entrySet().stream().flatMap(entry -> entry.getValue().stream().map(offset ->
            "[%s,%d,%d]".formatted(Harness.quote(entry.getKey().topic()), entry.getKey().partition(), offset)))
            .collect(Collectors.joining(",", "\"os\":[", "]"));
        lines.tell("answered", offsets + (error == null ? "" : ",\"x\":" + Harness.quote(Lines.errorName(error))));
    }
}
