package ackproof;

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.protocol.Errors;

/** Events of docs/clients.md on standard output, and the commands on standard input. */
final class Lines {
    private static final int FULL = 1 << 16;
    private static final long USUAL_NS = Client.number("record_time_ns");
    private final OutputStream out = new FileOutputStream(FileDescriptor.out);
    private final StringBuilder waiting = new StringBuilder();
    private final Payload payload = new Payload(java.util.List.of());
    volatile boolean stopping;
    /** Time that the processing of a record takes; a fault changes it while a batch is processed. */
    volatile long recordTimeNs = USUAL_NS;

    /** Obey `stop`, `record_time SECONDS` (`record_time`: as before), SIGTERM, and the end of standard input: then the harness is gone. */
    void listen() {
        var listener = new Thread(() -> {
            try (var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line; (line = in.readLine()) != null; ) {
                    String[] words = line.trim().split(" ");
                    if (words[0].equals("stop")) stopping = true;
                    if (words[0].equals("record_time"))
                        recordTimeNs = words.length > 1 ? (long) (Double.parseDouble(words[1]) * 1e9) : USUAL_NS;
                }
            } catch (IOException gone) {
                System.err.println(gone);
            }
            Runtime.getRuntime().halt(4);
        }, "control");
        listener.setDaemon(true);
        listener.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            while (true) java.util.concurrent.locks.LockSupport.park(); // until main() halts
        }));
    }

    /** Add an event. `fields`: JSON without braces, "" for none. Return its time. */
    synchronized long add(String event, String fields) {
        long now = System.nanoTime();
        waiting.append("{\"e\":\"").append(event).append("\",\"t\":").append(now);
        if (!fields.isEmpty()) waiting.append(',').append(fields);
        waiting.append("}\n");
        if (waiting.length() > FULL) flush();
        return now;
    }

    synchronized void flush() {
        try {
            out.write(waiting.toString().getBytes(StandardCharsets.UTF_8));
        } catch (IOException full) {
            Runtime.getRuntime().halt(1); // an event that is not written down must not be followed by its effect
        }
        waiting.setLength(0);
    }

    /** Add an event that must be on file before what follows. */
    synchronized long tell(String event, String fields) {
        long now = add(event, fields);
        flush();
        return now;
    }

    /** Return the partition, the offset and, where the value has one, the identity of a record. */
    String deliveredFields(ConsumerRecord<byte[], byte[]> record) {
        var header = record.value() == null ? record.headers().lastHeader("ackproof") : null;
        var found = payload.decode(header == null ? record.value() : header.value());
        String identity = found.producer() < 0 || !found.intact() ? "" : ",\"id\":[%d,%d]".formatted(found.producer(), found.seq());
        return place(record) + identity;
    }

    static String place(ConsumerRecord<byte[], byte[]> record) {
        return "\"topic\":%s,\"p\":%d,\"o\":%d".formatted(Harness.quote(record.topic()), record.partition(), record.offset());
    }

    static String partitions(Collection<TopicPartition> places) {
        return places.stream().map(place -> "[%s,%d]".formatted(Harness.quote(place.topic()), place.partition()))
            .collect(java.util.stream.Collectors.joining(",", "\"ps\":[", "]"));
    }

    /** `offsets`: null where a partition has none, which is written as -1. */
    static String offsets(Map<TopicPartition, OffsetAndMetadata> offsets) {
        return offsets.entrySet().stream().map(entry -> "[%s,%d,%d]".formatted(
                Harness.quote(entry.getKey().topic()), entry.getKey().partition(), entry.getValue() == null ? -1 : entry.getValue().offset()))
            .collect(java.util.stream.Collectors.joining(",", "\"os\":[", "]"));
    }

    /** Return the name of an error in the protocol's table; the Java consumer has one that does not say which it was. */
    static String errorName(Throwable error) {
        if (error instanceof CommitFailedException) return "COMMIT_FAILED"; // UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, …
        if (error instanceof RetriableCommitFailedException && error.getCause() != null) return errorName(error.getCause());
        Errors known = Errors.forException(error);
        return known == Errors.UNKNOWN_SERVER_ERROR && !(error instanceof UnknownServerException)
            ? error.getClass().getSimpleName() : known.name();
    }

    /** Take the time that a record's processing needs. */
    void work(ConsumerRecord<byte[], byte[]> record) {
        if (recordTimeNs > 0) flush(); // what was processed is on file before this thread rests
        for (long begun = System.nanoTime(), left; (left = begun + recordTimeNs - System.nanoTime()) > 0; )
            java.util.concurrent.locks.LockSupport.parkNanos(Math.min(left, 50_000_000));
    }
}
