package ackproof;

import java.nio.*;
import java.nio.charset.*;
import java.util.*;
import java.util.zip.CRC32;
import org.apache.kafka.common.TopicPartition;

/** The value of each record, as rundir/payload.py defines it. */
final class Payload {
    private static final int MAGIC = 0x414b5031, PRODUCER = 12, SEQ = 16, PARTITION = 24, TOPIC = 30, CRC = 4;
    private final long run = Long.parseUnsignedLong(Client.text("run_id"), 16);
    private final List<String> topics;

    Payload(List<TopicPartition> places) {
        topics = places.stream().map(TopicPartition::topic).distinct().toList();
    }

    /** The identity of a record; `topic`: index from 1 in the places' topics, 0 unknown. */
    record Identity(int producer, long seq, int topic, int partition, boolean intact) { }

    /** Return a value without seq and checksum. */
    byte[] blank(int producer, TopicPartition place, int size) {
        byte[] topic = place.topic().getBytes(StandardCharsets.UTF_8);
        var value = ByteBuffer.allocate(size).putInt(MAGIC).putLong(run).putInt(producer).putLong(0);
        return value.putInt(place.partition()).putShort((short) topic.length).put(topic).array();
    }

    static byte[] value(byte[] blank, long seq) {
        byte[] value = blank.clone();
        ByteBuffer buffer = ByteBuffer.wrap(value).putLong(SEQ, seq);
        buffer.order(ByteOrder.LITTLE_ENDIAN).putInt(value.length - CRC, checksum(value));
        return value;
    }

    Identity decode(byte[] value) {
        var nobody = new Identity(-1, -1, 0, -1, false);
        if (value == null || value.length < TOPIC + CRC) return nobody;
        ByteBuffer buffer = ByteBuffer.wrap(value);
        int length = Short.toUnsignedInt(buffer.getShort(TOPIC - 2));
        if (buffer.getInt(0) != MAGIC || TOPIC + length + CRC > value.length) return nobody;
        boolean intact = Integer.reverseBytes(buffer.getInt(value.length - CRC)) == checksum(value);
        if (buffer.getLong(4) != run) return intact ? new Identity(-1, -1, 0, -1, true) : nobody;
        int topic = topics.indexOf(new String(value, TOPIC, length, StandardCharsets.UTF_8)) + 1;
        var found = new Identity(buffer.getInt(PRODUCER), buffer.getLong(SEQ), topic, buffer.getInt(PARTITION), intact);
        return found.producer < 0 || found.seq < 0 || found.partition < 0 ? nobody : found;
    }

    private static int checksum(byte[] value) {
        var crc = new CRC32();
        crc.update(value, 0, value.length - CRC);
        return (int) crc.getValue();
    }
}
