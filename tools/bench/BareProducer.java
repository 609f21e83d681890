import java.io.FileReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.*;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The same records by the same calls as our Java client, and nothing else: no journal, no callback, no counters.
 * {@code BareProducer SETTINGS SECONDS BYTES RECORDS TOPIC/PARTITION...} prints records per second, and microseconds of
 * the processor for each, once it has sent RECORDS.
 */
public final class BareProducer {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        try (var file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        double seconds = Double.parseDouble(arguments[1]);
        List<TopicPartition> places = new ArrayList<>();
        for (String place : List.of(arguments).subList(4, arguments.length)) {
            int slash = place.lastIndexOf('/');
            places.add(new TopicPartition(place.substring(0, slash), Integer.parseInt(place.substring(slash + 1))));
        }
        byte[] blank = new byte[Integer.parseInt(arguments[2])];
        var bytes = new ByteArraySerializer();
        var producer = new KafkaProducer<>(settings, bytes, bytes);
        var system = ManagementFactory.getPlatformMXBean(com.sun.management.OperatingSystemMXBean.class);
        long warmUp = Long.parseLong(arguments[3]), spent = 0, began = 0, until = Long.MAX_VALUE, seq = 0;
        for (; System.nanoTime() < until; seq++) {
            if (seq == warmUp) {
                spent = system.getProcessCpuTime();
                began = System.nanoTime();
                until = began + (long) (seconds * 1e9);
            }
            var place = places.get((int) (seq % places.size()));
            byte[] value = blank.clone();
            var buffer = ByteBuffer.wrap(value).putLong(16, seq);
            var crc = new CRC32();
            crc.update(value, 0, value.length - 4);
            buffer.order(ByteOrder.LITTLE_ENDIAN).putInt(value.length - 4, (int) crc.getValue());
            producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, null, value));
        }
        producer.flush();
        long records = seq - warmUp;
        System.out.println(records / ((System.nanoTime() - began) / 1e9) + " " + (system.getProcessCpuTime() - spent) / 1e3 / records);
        Runtime.getRuntime().halt(0);
    }
}
