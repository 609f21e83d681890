package ackproof;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer: it sends records until it is told to stop. Each attempt is in the journal before the library sees it. */
final class ProducerProcess {
    private static final int ROW = 32, DONE = 8, OFFSET = 16, RESULT = 24; // bytes of a journal row: clients/journal.py
    private static final int ACKED = 0, REFUSED = 1, INDETERMINATE = 2, RESET = 3; // outcomes; exit status of a reset
    private static final int ABORTED = -1002; // this client's own code, guarantees.txt
    private static final long TICK_NS = 1_000_000, STANDSTILL_NS = 10_000_000_000L;

    private final Harness harness;
    private final KafkaProducer<byte[], byte[]> producer;
    private final Transactions transactions;
    private final Thread sender = Thread.currentThread();
    private final List<byte[]> blanks;
    private final int id = (int) Client.number("producer"), rows = (int) Client.number("chunk_rows");
    private final long first = Client.number("first_place"), keys = Client.number("keys");
    private final long stampsFrom = Client.number("stamps_from_ns"); // 0: the library sets timestamps
    private final long tombstoneEvery = Client.number("tombstone_every");
    private final Set<Integer> definite;
    private final boolean idempotent = Client.KAFKA.getProperty("enable.idempotence").equals("true");
    private ByteBuffer chunk;
    private String fatal = "";

    ProducerProcess(Harness harness) {
        this.harness = harness;
        var payload = new Payload(harness.places);
        int size = (int) Client.number("value_size");
        blanks = harness.places.stream().map(place -> payload.blank(id, place, size)).toList();
        definite = Stream.of(Client.text("definite").split(" ")).filter(code -> !code.isEmpty())
            .map(Integer::valueOf).collect(Collectors.toSet());
        producer = new KafkaProducer<>(Client.KAFKA, new ByteArraySerializer(), new ByteArraySerializer());
        transactions = Client.number("transaction_size") == 0 ? null : new Transactions(harness, producer);
    }

    int run() throws Exception {
        var pace = new Pace(harness.places.size());
        harness.listen(() -> { }, pace::obey);
        boolean joined = transactions == null || transactions.join();
        harness.set(Harness.STATE, Harness.READY);
        if (joined) send(pace);
        long deadline = System.nanoTime() + Client.number("delivery_ns");
        harness.set(Harness.STATE, Harness.STOPPING);
        if (transactions != null) transactions.finish(true);
        if (Client.KAFKA.getProperty("acks").equals("0")) awaitBrokers();
        producer.close(Duration.ofNanos(fatal.isEmpty() ? Math.max(TICK_NS, deadline - System.nanoTime()) : TICK_NS));
        harness.set(Harness.STATE, Harness.CLOSED);
        String reason = transactions == null || transactions.gaveUp.isEmpty() ? fatal : transactions.gaveUp;
        if (!reason.isEmpty()) harness.event("reset", null, "\"reason\":" + Harness.quote(reason));
        return reason.isEmpty() ? 0 : RESET;
    }

    private boolean ending() {
        return harness.stopping() || !fatal.isEmpty() || transactions != null && !transactions.gaveUp.isEmpty();
    }

    private void send(Pace pace) throws IOException {
        for (long seq = 0; !ending(); ) {
            long due = pace.due(System.nanoTime());
            if (due == 0) LockSupport.parkNanos(TICK_NS);
            else if (transactions != null) due = Math.min(due, transactions.room(seq));
            for (; due > 0 && !ending() && send(seq); due--) {
                harness.set(Harness.SENT, ++seq);
                pace.sent();
                if (transactions != null && transactions.spoiled()) break;
            }
        }
    }

    /** Send a record. A full buffer or missing metadata is back-pressure: try again. Return false if ended meanwhile. */
    private boolean send(long seq) throws IOException {
        int row = (int) (seq % rows), place = (int) ((seq + first) % blanks.size());
        if (row == 0 && (chunk == null || seq > 0)) chunk = Harness.chunk("AKPJRNL1", "chunk", seq / rows, rows, 4);
        var topic = harness.places.get(place);
        byte[] value = Payload.value(blanks.get(place), seq);
        byte[] key = keys == 0 ? null : (id + "-" + seq % keys).getBytes(StandardCharsets.US_ASCII);
        boolean deletes = tombstoneEvery > 0 && seq / keys % tombstoneEvery == tombstoneEvery - 1;
        while (true) {
            var attempt = new Attempt(chunk, row * ROW, place);
            chunk.putLong(row * ROW + RESULT, place);
            long now = System.nanoTime();
            Long stamp = stampsFrom == 0 ? null : (stampsFrom + now) / 1_000_000;
            var record = new ProducerRecord<>(topic.topic(), topic.partition(), stamp, key, deletes ? null : value);
            if (deletes) record.headers().add("ackproof", value);
            Harness.WORD.setRelease(chunk, row * ROW, now);
            try {
                producer.send(record, attempt);
            } catch (org.apache.kafka.common.KafkaException | IllegalStateException thrown) {
                attempt.refusal = thrown;
            }
            if (attempt.refusal == null) return true;
            if (attempt.refusal instanceof TimeoutException && transactions == null) {
                Harness.WORD.setRelease(chunk, row * ROW, 0L); // there is no attempt yet
                if (ending()) return false;
                continue;
            }
            if (!idempotent || attempt.refusal instanceof RecordTooLargeException)
                attempt.end(attempt.refusal, REFUSED); // else doSend may have appended it before it failed: no report
            if (transactions != null) transactions.spoil(attempt.refusal);
            else if (idempotent && !(attempt.refusal instanceof ApiException)) fatal = attempt.refusal.toString();
            LockSupport.parkNanos(TICK_NS);
            return true;
        }
    }

    /** Wait until brokers have read all that was sent, or read nothing for 10 s. */
    private void awaitBrokers() throws IOException {
        producer.flush();
        long left = Sockets.unread(), moved = System.nanoTime();
        for (int empty = left == 0 ? 1 : 0; empty < 3 && System.nanoTime() - moved < STANDSTILL_NS; ) {
            LockSupport.parkNanos(20 * TICK_NS);
            long now = Sockets.unread();
            if (now < left) moved = System.nanoTime();
            empty = now == 0 ? empty + 1 : 0;
            left = now;
        }
        if (left > 0) harness.event("unread", null, "\"unread_bytes\":%d,\"producer\":%d".formatted(left, id));
    }

    /** One attempt: its row in the journal. A callback in the thread of send() is a local refusal. */
    private final class Attempt implements Callback {
        private final ByteBuffer rows;
        private final int at, place;
        private Exception refusal;

        Attempt(ByteBuffer rows, int at, int place) {
            this.rows = rows;
            this.at = at;
            this.place = place;
        }

        @Override public void onCompletion(RecordMetadata metadata, Exception error) {
            if (error == null) {
                write(metadata.hasOffset() ? metadata.offset() : -1, 0, ACKED);
                harness.add(Harness.HEAD + place, 1);
            } else if (Thread.currentThread() == sender) {
                refusal = error;
            } else {
                end(error, definite.contains(code(error)) ? REFUSED : INDETERMINATE);
            }
        }

        private void end(Exception error, int outcome) {
            write(-1, code(error), outcome);
            harness.add(outcome == REFUSED ? Harness.FAILED : Harness.INDETERMINATE, 1);
        }

        private int code(Exception error) {
            return error instanceof TransactionAbortedException ? ABORTED : Errors.forException(error).code();
        }

        private void write(long offset, int code, int outcome) {
            rows.putLong(at + OFFSET, offset).putLong(at + RESULT, place | (code & 0xFFFFL) << 32 | (long) outcome << 48);
            Harness.WORD.setRelease(rows, at + DONE, System.nanoTime()); // last: it makes the row whole
        }
    }
}
