package ackproof;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A live reader: it assigns itself all partitions, and journals each record. It never skips silently. */
final class ReaderProcess {
    private static final int WORDS = 8, ROW = 64; // of the journal: clients/journal.py
    private static final Duration POLL = Duration.ofMillis(50), ASK = Duration.ofMillis(500);
    private static final long DRAIN_NS = 5_000_000_000L, QUIET_NS = 400_000_000L, STUCK_NS = 1_500_000_000L, RETRY_NS = 100_000_000L;

    private final Harness harness;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Payload payload;
    private final Map<TopicPartition, Integer> index = new HashMap<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private final Map<TopicPartition, Reset> resets = new HashMap<>();
    private final Set<String> problems = new HashSet<>();
    private final int rows = (int) Client.number("chunk_rows");
    private final long commitNs = Client.number("commit_ns");
    private ByteBuffer chunk;
    private long readSeq, commitAt = System.nanoTime() + commitNs;
    private int assignment;
    private boolean committing;

    /** A position that is not in the log any more. `cut`: where the log was truncated, null if unknown (KIP-320). */
    private record Reset(Long cut, String reason) { }

    ReaderProcess(Harness harness) {
        this.harness = harness;
        payload = new Payload(harness.places);
        for (var place : harness.places) index.put(place, index.size());
        consumer = new KafkaConsumer<>(Client.KAFKA, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    int run() throws IOException {
        harness.listen(consumer::wakeup, command -> { });
        consumer.assign(harness.places);
        consumer.seekToBeginning(harness.places);
        if (Client.text("from_committed").equals("True")) startAtCommitted();
        harness.set(Harness.STATE, Harness.READY);
        while (!harness.stopping()) step();
        drain();
        harness.set(Harness.STATE, Harness.CLOSED);
        return 0; // without close(): there is no group to leave, and brokers may be gone
    }

    /** Start at the committed offsets of the group, once its coordinator answers; at the beginning without one. */
    private void startAtCommitted() throws IOException {
        while (!harness.stopping()) {
            try {
                var committed = consumer.committed(Set.copyOf(harness.places), ASK);
                List<String> starts = new ArrayList<>();
                for (var place : harness.places) {
                    var offset = committed.get(place);
                    if (offset != null) {
                        consumer.seek(place, offset.offset());
                        positions.put(place, offset.offset());
                    }
                    starts.add("[\"%s\",%d,%d]".formatted(place.topic(), place.partition(), offset == null ? -1 : offset.offset()));
                }
                harness.append("starts.jsonl", "{\"t_ns\":%d,\"group\":%s,\"offsets\":[%s]}".formatted(
                    Harness.now(), Harness.quote(Client.KAFKA.getProperty("group.id")), String.join(",", starts)));
                return;
            } catch (WakeupException | RetriableException again) {
                continue;
            }
        }
    }

    /** Read on to the ends of the logs, or until nothing comes. Then wait for the answer to the last commit. */
    private void drain() throws IOException {
        Map<TopicPartition, Long> ends = Map.of();
        try {
            ends = consumer.endOffsets(harness.places, ASK);
        } catch (WakeupException | ApiException unknown) {
            System.err.println("the ends of the logs are unknown: " + unknown);
        }
        long began = System.nanoTime(), quiet = began, patience = ends.isEmpty() ? QUIET_NS : STUCK_NS;
        while (System.nanoTime() - began < DRAIN_NS && System.nanoTime() - quiet < patience) {
            if (!ends.isEmpty() && ends.entrySet().stream().allMatch(end -> reached(end.getKey()) >= end.getValue())) break;
            if (step() > 0) quiet = System.nanoTime();
        }
        for (long until = System.nanoTime() + ASK.toNanos(); committing && System.nanoTime() < until; ) step();
    }

    private long reached(TopicPartition place) {
        try {
            return consumer.position(place, ASK);
        } catch (WakeupException | ApiException | InvalidOffsetException unknown) {
            return positions.getOrDefault(place, 0L);
        }
    }

    /** Poll once. Return how many records came. */
    private int step() throws IOException {
        int count = 0;
        try {
            var records = consumer.poll(POLL);
            long now = System.nanoTime();
            count = records.count();
            for (var place : records.partitions()) take(place, records.records(place), now);
        } catch (WakeupException asked) {
            return 0;
        } catch (LogTruncationException cut) {
            for (var place : cut.partitions()) {
                var end = cut.divergentOffsets().get(place);
                resets.put(place, new Reset(end == null ? null : end.offset(), cut.getMessage()));
            }
        } catch (InvalidOffsetException outside) {
            for (var place : outside.partitions()) resets.put(place, new Reset(null, outside.getMessage()));
        } catch (KafkaException error) {
            if (problems.add(error.toString()))
                harness.event("problem", null, "\"code\":%d,\"reason\":%s".formatted(
                    Errors.forException(error).code(), Harness.quote(error)));
            LockSupport.parkNanos(POLL.toNanos());
        }
        if (!resets.isEmpty()) resume();
        if (commitNs > 0 && !committing && !harness.stopping() && System.nanoTime() >= commitAt) commit();
        return count;
    }

    private void take(TopicPartition place, List<ConsumerRecord<byte[], byte[]>> records, long now) throws IOException {
        for (var record : records) {
            int at = (int) (readSeq % rows) * ROW;
            if (at == 0) chunk = Harness.chunk("AKPREAD1", "reads", readSeq / rows, rows, WORDS);
            var header = record.value() == null ? record.headers().lastHeader("ackproof") : null;
            var found = payload.decode(header == null ? record.value() : header.value());
            chunk.putInt(at + 8, index.get(place)).putInt(at + 12, assignment).putLong(at + 16, record.offset());
            chunk.putInt(at + 24, record.leaderEpoch().orElse(-1)).putInt(at + 28, found.producer());
            chunk.putLong(at + 32, found.seq()).putInt(at + 40, found.topic()).putInt(at + 44, found.partition());
            chunk.putLong(at + 48, record.timestamp()).putLong(at + 56, found.intact() ? 1 : 0);
            Harness.WORD.setRelease(chunk, at, now); // last: it makes the row whole
            readSeq++;
            positions.put(place, record.offset() + 1);
        }
        harness.add(Harness.HEAD + index.get(place), records.size());
    }

    /** Resume the partitions whose position left the log, under the next assignment number, once all leaders answer. */
    private void resume() throws IOException {
        Map<TopicPartition, Long> starts, ends;
        try {
            starts = consumer.beginningOffsets(resets.keySet(), ASK);
            ends = consumer.endOffsets(resets.keySet(), ASK);
        } catch (WakeupException | ApiException notYet) {
            return;
        }
        for (var reset : resets.entrySet()) {
            var place = reset.getKey();
            long position = positions.getOrDefault(place, 0L), start = starts.get(place), end = ends.get(place);
            Long cut = reset.getValue().cut;
            long resumes = position < start || cut == null ? start : Math.max(start, Math.min(end, cut));
            harness.event("reset", place, "\"assignment\":%d,\"position\":%d,\"start\":%d,\"end\":%d,\"goes_on\":%d,\"reason\":%s"
                .formatted(assignment, position, start, end, resumes, Harness.quote(reset.getValue().reason)));
            positions.put(place, resumes);
            consumer.seek(place, resumes);
        }
        resets.clear();
        assignment++;
    }

    /** Commit the positions: a line before the call, and one with the answer. */
    private void commit() throws IOException {
        commitAt = System.nanoTime() + commitNs;
        if (positions.isEmpty()) return;
        var offsets = positions.entrySet().stream().collect(
            Collectors.toMap(Map.Entry::getKey, position -> new OffsetAndMetadata(position.getValue())));
        String listed = offsets.entrySet().stream().map(offset -> "[\"%s\",%d,%d]".formatted(
            offset.getKey().topic(), offset.getKey().partition(), offset.getValue().offset())).collect(Collectors.joining(","));
        String line = "{\"group\":%s,\"begun_ns\":%d,\"offsets\":[%s]".formatted(
            Harness.quote(Client.KAFKA.getProperty("group.id")), Harness.now(), listed);
        harness.append("commits.jsonl", line + "}");
        committing = true;
        consumer.commitAsync(offsets, (committed, error) -> {
            committing = false;
            if (error != null) commitAt = System.nanoTime() + RETRY_NS;
            boolean wrapped = error instanceof RetriableCommitFailedException && error.getCause() != null;
            try {
                harness.append("commits.jsonl", "%s,\"done_ns\":%d,\"error\":\"%s\"}".formatted(
                    line, Harness.now(), error == null ? "" : Errors.forException(wrapped ? error.getCause() : error).name()));
            } catch (IOException full) {
                throw new java.io.UncheckedIOException(full);
            }
        });
    }
}
