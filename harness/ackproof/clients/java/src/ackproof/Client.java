package ackproof;

import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/** The main class: {@code Client ROLE SETTINGS.properties}; ROLE is producer, reader, member, share or warm-up. */
public final class Client {
    /** Settings of the harness, without their prefix "ackproof."; all others go to the Kafka client unchanged. */
    static final Properties OWN = new Properties();
    static final Properties KAFKA = new Properties();
    /** Settings with secrets, which no file may hold; they are in KAFKA too. */
    static final Properties HIDDEN = new Properties();

    public static void main(String[] arguments) {
        int status = 1;
        try {
            status = run(arguments[0], Path.of(arguments[1]));
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.err.flush();
        if (arguments[0].equals("warm-up")) System.exit(status); // only a regular exit writes the class-data archive
        Runtime.getRuntime().halt(status); // not exit(), which waits for the hook that waits for this thread
    }

    private static int run(String role, Path file) throws Exception {
        var every = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            every.load(reader);
        }
        every.stringPropertyNames().forEach(name -> {
            boolean own = name.startsWith("ackproof.");
            (own ? OWN : KAFKA).put(own ? name.substring(9) : name, every.getProperty(name));
        });
        String hidden = System.getenv("ACKPROOF_HIDDEN_FD");
        if (hidden != null) {
            try (var reader = Files.newBufferedReader(Path.of("/proc/self/fd/" + hidden))) {
                HIDDEN.load(reader);
            }
            KAFKA.putAll(HIDDEN);
        }
        return switch (role) {
            case "producer" -> new ProducerProcess(new Harness(file.getParent())).run();
            case "reader" -> new ReaderProcess(new Harness(file.getParent())).run();
            case "member" -> new MemberProcess().run();
            case "share" -> // by name: releases before 4.0 have no share consumer
                (int) Class.forName("ackproof.ShareMember").getDeclaredMethod("start").invoke(null);
            case "warm-up" -> warmUp();
            default -> throw new IllegalArgumentException("no such role: " + role);
        };
    }

    /** Load the classes of both clients, without a broker: they go into the class-data archive. */
    private static int warmUp() throws Exception {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(KAFKA, bytes, bytes)) {
            producer.send(new ProducerRecord<>("none", 0, null, new byte[9]), (metadata, error) -> { });
        }
        var producing = Set.of("acks", "linger.ms", "max.block.ms", "delivery.timeout.ms");
        KAFKA.keySet().removeIf(producing::contains);
        KAFKA.put("group.id", "none");
        try (var consumer = new KafkaConsumer<>(KAFKA, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new org.apache.kafka.common.TopicPartition("none", 0)));
            consumer.poll(java.time.Duration.ofMillis(200));
        }
        return 0;
    }

    static String text(String name) {
        return OWN.getProperty(name);
    }

    static long number(String name) {
        return Long.parseLong(OWN.getProperty(name));
    }
}
