package ackproof;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/** A member of a consumer group: what it does when is in docs/groups.md, what it writes down in docs/clients.md. */
final class MemberProcess {
    private static final Duration POLL = Duration.ofMillis(200), ASK = Duration.ofSeconds(5), CLOSE = Duration.ofSeconds(10);
    private static final long AGAIN_NS = 500_000_000;

    private final Lines lines = new Lines();
    private final String mode = Client.text("commit"), output = Client.text("output");
    private final long commitEveryNs = Client.number("commit_ns");
    private final boolean namesMember = Client.text("group_metadata").equals("True");
    private final Set<TopicPartition> unasked = new HashSet<>(); // assigned, and the coordinator did not say the committed offset
    private final Map<TopicPartition, Long> uncommitted = new LinkedHashMap<>(); // next offsets of what was processed
    private final Map<TopicPartition, Optional<Integer>> epochs = new HashMap<>(); // leader epoch of the newest record
    private KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;
    private String memberId = "";
    private long batch = -1, number = -1, commitAt = System.nanoTime() + commitEveryNs;
    private volatile Exception unsent; // why a copy was not written

    int run() {
        lines.listen();
        consumer = join();
        if (!output.isEmpty()) producer = writer();
        lines.tell("started", "\"client\":" + Harness.quote(Client.text("client")));
        while (!lines.stopping) step();
        lines.tell("stopping", "");
        if (mode.equals("timed") || mode.equals("after")) commit(uncommitted.keySet());
        int left = generation();
        if (producer != null) producer.close(CLOSE);
        consumer.close(CLOSE);
        lines.tell("closed", "\"m\":%s,\"g\":%d".formatted(Harness.quote(memberId), left));
        return 0;
    }

    private KafkaConsumer<byte[], byte[]> join() {
        var made = new KafkaConsumer<>(Client.KAFKA, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of(Client.text("topics").split(" ")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                tell("assigned", places);
                unasked.addAll(places);
                askPositions(ASK);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> places) {
                if (mode.equals("timed")) commit(places);
                tell("revoked", places);
                forget(places);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> places) {
                tell("lost", places);
                forget(places);
            }
        });
        return made;
    }

    private void tell(String event, Collection<TopicPartition> places) {
        lines.tell(event, who() + "," + Lines.partitions(places));
    }

    private void forget(Collection<TopicPartition> places) {
        unasked.removeAll(places);
        uncommitted.keySet().removeAll(places);
    }

    /** Member id and generation, or member epoch. The library forgets the id when it loses its partitions. */
    private String who() {
        var group = consumer.groupMetadata();
        if (!group.memberId().isEmpty()) memberId = group.memberId();
        return "\"m\":%s,\"g\":%d".formatted(Harness.quote(memberId), group.generationId());
    }

    private int generation() {
        return consumer.groupMetadata().generationId();
    }

    /** Ask the coordinator for the committed offsets of newly assigned partitions. */
    private void askPositions(Duration patience) {
        if (unasked.isEmpty()) return;
        try {
            var committed = consumer.committed(unasked, patience);
            lines.tell("position", who() + "," + Lines.offsets(committed));
            unasked.clear();
        } catch (ApiException notYet) { // also of a member that is about to be told that it lost them
            System.err.println(notYet);
        }
    }

    private void step() {
        ConsumerRecords<byte[], byte[]> records;
        try {
            records = consumer.poll(POLL);
        } catch (NoOffsetForPartitionException none) {
            reset(none.partitions(), Map.of(), Map.of(), "_NO_OFFSET", Client.text("start"));
            return;
        } catch (LogTruncationException cut) {
            var ends = new HashMap<TopicPartition, Long>();
            cut.divergentOffsets().forEach((place, end) -> ends.put(place, end.offset()));
            reset(cut.partitions(), cut.offsetOutOfRangePartitions(), ends, "_LOG_TRUNCATION", Client.text("reset"));
            return;
        } catch (OffsetOutOfRangeException outside) {
            reset(outside.partitions(), outside.offsetOutOfRangePartitions(), Map.of(), "OFFSET_OUT_OF_RANGE", Client.text("reset"));
            return;
        } catch (UnreleasedInstanceIdException held) { // KIP-848: until the session of its former member ends
            System.err.println(held.getMessage());
            consumer.close(Duration.ZERO);
            LockSupport.parkNanos(AGAIN_NS);
            if (!lines.stopping) consumer = join();
            return;
        } catch (RetriableException again) {
            System.err.println(again);
            return;
        }
        if (!records.isEmpty()) take(records);
        else if (mode.equals("after")) commit(uncommitted.keySet()); // what was refused in a rebalance
        if (mode.equals("timed") && System.nanoTime() >= commitAt) {
            commit(uncommitted.keySet());
            commitAt = System.nanoTime() + commitEveryNs;
        }
        if (!unasked.isEmpty()) askPositions(POLL);
        lines.flush();
    }

    private void take(ConsumerRecords<byte[], byte[]> records) {
        String poll = "\"g\":%d,\"batch\":%d,".formatted(generation(), ++batch);
        var starts = new LinkedHashMap<TopicPartition, Long>();
        var next = new LinkedHashMap<TopicPartition, Long>();
        for (var record : records) {
            lines.add("delivered", poll + lines.deliveredFields(record));
            var place = new TopicPartition(record.topic(), record.partition());
            starts.putIfAbsent(place, record.offset());
            next.put(place, record.offset() + 1);
            epochs.put(place, record.leaderEpoch());
        }
        lines.flush();
        uncommitted.putAll(next);
        switch (mode) {
            case "before" -> {
                if (commit(next.keySet())) process(records);
                else rewind(starts);
            }
            case "transaction" -> transact(records, starts);
            default -> {
                if (!process(records)) {
                    next.keySet().forEach(uncommitted::remove);
                    rewind(starts);
                } else if (mode.equals("after")) commit(uncommitted.keySet());
            }
        }
    }

    /** Process a batch: take the time, and copy to the output. Return False if a copy was not acknowledged. */
    private boolean process(ConsumerRecords<byte[], byte[]> records) {
        unsent = null;
        for (var record : records) {
            lines.work(record);
            if (producer == null) {
                lines.add("processed", Lines.place(record));
                continue;
            }
            var copy = new ProducerRecord<>(output, record.partition(), null, record.key(), record.value(), record.headers());
            try {
                producer.send(copy, (written, error) -> {
                    if (error == null) lines.add("processed", Lines.place(record));
                    else unsent = error;
                });
            } catch (KafkaException | IllegalStateException error) {
                unsent = error;
            }
            if (unsent != null) break;
        }
        if (producer != null) producer.flush();
        lines.flush();
        if (unsent != null) System.err.println("not copied: " + unsent);
        return unsent == null;
    }

    /** Commit what was processed of these partitions, and wait for the answer. Return True if it was accepted. */
    private boolean commit(Collection<TopicPartition> places) {
        if (places.stream().noneMatch(uncommitted::containsKey)) return true;
        number++;
        var offsets = due(places);
        String error = "";
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException refused) {
            error = Lines.errorName(refused);
        }
        lines.tell("committed", answer(error));
        if (error.isEmpty()) offsets.keySet().forEach(uncommitted::remove);
        return error.isEmpty();
    }

    /** Write down that what was processed of these partitions is to be committed, and return it. */
    private Map<TopicPartition, OffsetAndMetadata> due(Collection<TopicPartition> places) {
        int generation = generation();
        String metadata = "ackproof %s %d %d".formatted(Client.text("member"), generation, number);
        var offsets = places.stream().filter(uncommitted::containsKey).collect(Collectors.toMap(place -> place,
            place -> new OffsetAndMetadata(uncommitted.get(place), epochs.getOrDefault(place, Optional.empty()), metadata)));
        lines.tell("commit", "\"n\":%d,\"g\":%d,%s".formatted(number, generation, Lines.offsets(offsets)));
        return offsets;
    }

    private String answer(String error) {
        return "\"n\":%d,\"g\":%d%s".formatted(number, generation(), error.isEmpty() ? "" : ",\"x\":" + Harness.quote(error));
    }

    private void transact(ConsumerRecords<byte[], byte[]> records, Map<TopicPartition, Long> starts) {
        lines.tell("begin", "\"n\":%d,\"g\":%d".formatted(++number, generation()));
        Exception why = null;
        boolean asked = false; // nobody can commit it before that
        try {
            producer.beginTransaction();
            if (process(records)) {
                producer.sendOffsetsToTransaction(due(starts.keySet()),
                    namesMember ? consumer.groupMetadata() : new ConsumerGroupMetadata(Client.KAFKA.getProperty("group.id")));
                asked = true;
                producer.commitTransaction();
            } else {
                why = unsent;
            }
        } catch (KafkaException | IllegalStateException error) {
            why = error;
        }
        starts.keySet().forEach(uncommitted::remove);
        if (why == null) {
            lines.tell("ended", answer(""));
            return;
        }
        boolean aborted = !asked;
        try {
            if (asked && why instanceof TimeoutException) throw why; // the library refuses to abort it now
            producer.abortTransaction();
            aborted = true; // also after a commit: the coordinator refused that
        } catch (Exception spoiled) {
            System.err.println("not aborted: " + spoiled);
            producer.close(Duration.ZERO);
            producer = null;
        }
        lines.tell("ended", answer(Lines.errorName(why)) + ",\"aborted\":" + aborted);
        System.err.println("transaction " + number + ": " + why);
        if (producer == null) producer = writer(); // it ends the open transaction of its id
        rewind(starts);
    }

    /** Return a producer of the output, registered with the coordinator if it has a transactional id. */
    private KafkaProducer<byte[], byte[]> writer() {
        var config = new Properties();
        Client.OWN.stringPropertyNames().stream().filter(name -> name.startsWith("producer."))
            .forEach(name -> config.put(name.substring(9), Client.text(name)));
        Client.HIDDEN.forEach(config::put);
        var made = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        while (mode.equals("transaction") && !lines.stopping) {
            try {
                made.initTransactions();
                break;
            } catch (TimeoutException again) {
                System.err.println(again.getMessage());
            }
        }
        return made;
    }

    /** Go back to the committed offsets of a batch that did not count, where its partitions are still assigned. */
    private void rewind(Map<TopicPartition, Long> starts) {
        var places = new HashSet<>(starts.keySet());
        places.retainAll(consumer.assignment());
        Map<TopicPartition, OffsetAndMetadata> committed = Map.of();
        while (!places.isEmpty() && !lines.stopping) {
            try {
                committed = consumer.committed(places, ASK);
                lines.tell("position", who() + "," + Lines.offsets(committed));
                break;
            } catch (ApiException again) {
                System.err.println(again);
                if (!(again instanceof RetriableException)) break; // it is no member any more
            }
        }
        for (var place : places) {
            var offset = committed.get(place);
            seek(place, offset == null ? starts.get(place) : offset.offset());
        }
    }

    /** Go on at this offset. Return False if the partition is not the member's any more: with KIP-848 the thread that
     * hears from the coordinator takes it away between two polls. */
    private boolean seek(TopicPartition place, long offset) {
        try {
            consumer.seek(place, offset);
            return true;
        } catch (IllegalStateException revoked) {
            System.err.println(revoked.getMessage());
            return false;
        }
    }

    /** Resume partitions that have no position in the log, and write down from where to where and why.
     * `ends`: where the log was truncated, if a leader said so. */
    private void reset(Collection<TopicPartition> places, Map<TopicPartition, Long> from, Map<TopicPartition, Long> ends,
                       String why, String policy) {
        if (!Set.of("earliest", "latest").contains(policy)) throw new KafkaException(why + " at " + places + " " + from);
        if (lines.stopping) return;
        uncommitted.keySet().removeAll(places); // it is not in the log any more
        Map<TopicPartition, Long> bounds;
        try {
            bounds = policy.equals("earliest") ? consumer.beginningOffsets(places, ASK) : consumer.endOffsets(places, ASK);
        } catch (TimeoutException notYet) {
            return; // the next poll fails in the same way
        }
        for (var place : places) {
            long to = ends.getOrDefault(place, bounds.get(place)); // a truncation: the library too goes on there
            if (!seek(place, to)) continue;
            lines.tell("reset", "\"topic\":%s,\"p\":%d,\"from\":%d,\"to\":%d,\"why\":\"%s\",%s".formatted(Harness.quote(place.topic()),
                place.partition(), from.getOrDefault(place, -1L), to, why, who()));
        }
    }
}
