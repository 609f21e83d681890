package ackproof;

import java.io.IOException;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.*;

/** A producer's transactions, one after the other. A line of the log is written before each call that it is about. */
final class Transactions {
    private static final int COMMITTED = 0, ABORTED = 1, UNKNOWN = 2, FENCED = 3;
    private final Harness harness;
    private final KafkaProducer<byte[], byte[]> producer;
    private final long size = Client.number("transaction_size"), patienceNs = Client.number("delivery_ns");
    private final double abortShare = Double.parseDouble(Client.text("abort_share"));
    private final Random draw = new Random(Client.number("first_place") * 1_000_003 + Client.number("producer"));
    private long number = -1, start;
    private boolean open, spoiled;
    /** Why a transaction could not be ended, "" if all could: then the producer must not be used any more. */
    String gaveUp = "";

    Transactions(Harness harness, KafkaProducer<byte[], byte[]> producer) {
        this.harness = harness;
        this.producer = producer;
    }

    /** Register with the coordinator, which fences the id's former producer. Return false if asked to stop first. */
    boolean join() {
        while (!harness.stopping()) {
            try {
                producer.initTransactions();
                return true;
            } catch (TimeoutException again) {
                continue;
            }
        }
        return false;
    }

    boolean spoiled() {
        return spoiled;
    }

    void spoil(Exception error) {
        spoiled = true;
    }

    /** Return how many records from `seq` on belong to the open transaction. It ends a full one and begins the next. */
    long room(long seq) throws IOException {
        if (open && (spoiled || seq - start >= size)) finish(draw.nextDouble() >= abortShare);
        if (!gaveUp.isEmpty()) return 0;
        if (!open) {
            try {
                producer.beginTransaction();
            } catch (KafkaException | IllegalStateException error) { // for example, fenced meanwhile
                gaveUp = error.toString();
                return 0;
            }
            number++;
            start = seq;
            open = true;
            log("begin %d %d".formatted(number, seq));
        }
        return start + size - seq;
    }

    /** Commit or abort the open transaction, if there is one. A spoiled one is aborted. */
    void finish(boolean commit) throws IOException {
        if (!open) return;
        open = false;
        producer.flush();
        boolean asked = commit && !spoiled;
        spoiled = false;
        int outcome = ABORTED;
        if (asked) {
            log("commit " + number);
            outcome = end(producer::commitTransaction, COMMITTED);
        }
        if (outcome == ABORTED) {
            outcome = end(producer::abortTransaction, ABORTED);
            if (outcome == UNKNOWN && !asked) outcome = ABORTED; // nobody can commit it
        }
        log("end %d %d".formatted(number, outcome));
    }

    /** Commit or abort until the coordinator answers. ABORTED after a commit: the library wants it to be aborted. */
    private int end(Runnable call, int good) {
        long deadline = System.nanoTime() + patienceNs;
        while (true) {
            try {
                call.run();
                return good;
            } catch (TimeoutException late) {
                if (System.nanoTime() < deadline) continue;
                gaveUp = late.toString();
                return UNKNOWN;
            } catch (ProducerFencedException fenced) {
                gaveUp = fenced.toString();
                return FENCED;
            } catch (OutOfOrderSequenceException | AuthorizationException | UnsupportedVersionException
                     | InvalidPidMappingException | IllegalStateException fatal) {
                gaveUp = fatal.toString();
                return UNKNOWN;
            } catch (KafkaException error) {
                if (good == COMMITTED) return ABORTED;
                gaveUp = error.toString();
                return UNKNOWN;
            }
        }
    }

    private void log(String line) throws IOException {
        harness.append("transactions.log", line + " " + Harness.now());
    }
}
