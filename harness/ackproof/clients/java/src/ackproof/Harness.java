package ackproof;

import java.io.*;
import java.lang.invoke.*;
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.function.IntConsumer;
import org.apache.kafka.common.TopicPartition;

/** What the harness and this client share: control pipe, counters, events and journal. The contract: ../README.md. */
final class Harness {
    static final int READY = 1, STOPPING = 2, CLOSED = 3; // states, the first word of the counters
    static final int STATE = 0, SENT = 1, FAILED = 2, INDETERMINATE = 3, HEAD = 8; // words of the counters
    static final VarHandle WORD = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final int CHUNK_HEAD = 64;

    final Path folder;
    final List<TopicPartition> places = new ArrayList<>();
    private final ByteBuffer counters;
    private volatile boolean stopping;
    private volatile Runnable wake = () -> { };

    Harness(Path folder) throws IOException {
        this.folder = folder;
        for (String place : Client.text("places").split(" ")) {
            int slash = place.lastIndexOf('/');
            places.add(new TopicPartition(place.substring(0, slash), Integer.parseInt(place.substring(slash + 1))));
        }
        counters = map(folder.resolve("counters"), 8L * (HEAD + places.size()));
    }

    /** Obey the control pipe, and SIGTERM. `wake` ends a call that blocks; `obey` gets all commands but "stop". */
    void listen(Runnable wake, IntConsumer obey) throws IOException {
        this.wake = wake;
        var pipe = new FileInputStream("/proc/self/fd/" + System.getenv("ACKPROOF_CONTROL_FD"));
        var listener = new Thread(() -> {
            try (pipe) {
                for (int command; (command = pipe.read()) >= 0; ) {
                    if (command == 's') stop();
                    else obey.accept(command);
                }
            } catch (IOException gone) {
                System.err.println(gone);
            }
            Runtime.getRuntime().halt(4); // the harness is gone
        }, "control");
        listener.setDaemon(true);
        listener.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop();
            while (true) java.util.concurrent.locks.LockSupport.park(); // until main() halts
        }));
    }

    private void stop() {
        stopping = true;
        wake.run();
    }

    boolean stopping() {
        return stopping;
    }

    void set(int word, long value) {
        WORD.setRelease(counters, 8 * word, value);
    }

    synchronized void add(int word, long count) {
        WORD.setRelease(counters, 8 * word, (long) WORD.get(counters, 8 * word) + count);
    }

    static long now() {
        return System.nanoTime() - Client.number("origin_ns"); // CLOCK_MONOTONIC
    }

    void event(String kind, TopicPartition place, String detail) throws IOException {
        append("events.jsonl", "{\"t_ns\":%d,\"kind\":\"%s\",\"topic\":\"%s\",\"partition\":%d,\"detail\":{%s}}".formatted(
            now(), kind, place == null ? "" : place.topic(), place == null ? -1 : place.partition(), detail));
    }

    /** Append a line in one write: a killed client leaves at most one torn line. */
    void append(String name, String line) throws IOException {
        Files.writeString(folder.resolve(name), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    static String quote(Object text) {
        return '"' + String.valueOf(text).replaceAll("[\\p{Cntrl}]+", " ").replaceAll("([\"\\\\])", "\\\\$1") + '"';
    }

    /** Add a chunk to the journal: a mapped file of rows, which outlives this process. Its bytes exist before the map. */
    static ByteBuffer chunk(String magic, String name, long index, int rows, int words) throws IOException {
        Path folder = Files.createDirectories(Path.of(Client.text("journal")));
        Path file = folder.resolve("%s-%06d.rows".formatted(name, index)), temporary = folder.resolve("." + name + ".tmp");
        Files.write(temporary, new byte[CHUNK_HEAD + rows * words * 8]);
        ByteBuffer chunk = map(temporary, CHUNK_HEAD + rows * words * 8L);
        chunk.put(0, magic.getBytes(StandardCharsets.US_ASCII)).putLong(8, index * rows).putLong(16, rows);
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
        return chunk.slice(CHUNK_HEAD, rows * words * 8).order(ByteOrder.nativeOrder());
    }

    private static ByteBuffer map(Path file, long size) throws IOException {
        try (var channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            return channel.map(FileChannel.MapMode.READ_WRITE, 0, size).order(ByteOrder.nativeOrder());
        }
    }
}
