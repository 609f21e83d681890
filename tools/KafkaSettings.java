import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the settings of brokers and topics of the release on the class path: scope, name and default, by tabs. */
public class KafkaSettings {
    /** The first of these definitions that the release has; null where it has none. */
    static ConfigDef definition(String... places) throws Exception {
        for (String place : places) {
            String[] parts = place.split("#");
            try {
                var owner = Class.forName(parts[0]);
                try {
                    var method = owner.getDeclaredMethod(parts[1]);
                    method.setAccessible(true);
                    return (ConfigDef) method.invoke(null);
                } catch (NoSuchMethodException missing) {
                    var field = owner.getDeclaredField(parts[1]);
                    field.setAccessible(true);
                    return (ConfigDef) field.get(null);
                }
            } catch (ClassNotFoundException | NoSuchFieldException missing) {
                continue;
            }
        }
        return null;
    }

    static void print(String scope, List<ConfigDef> definitions) {
        Map<String, ConfigDef.ConfigKey> found = new TreeMap<>();
        for (ConfigDef definition : definitions) found.putAll(definition.configKeys());
        for (var key : found.values()) {
            Object value = key.defaultValue instanceof Class<?> type ? type.getName() : key.defaultValue;
            String text = value instanceof List<?> list ? String.join(",", list.stream().map(String::valueOf).toList())
                : value == ConfigDef.NO_DEFAULT_VALUE || value == null ? "" : String.valueOf(value);
            System.out.println(String.join("\t", scope, key.name, text.replaceAll("\\s+", " ")));
        }
    }

    public static void main(String[] arguments) throws Exception {
        ConfigDef quotas = definition(
            "org.apache.kafka.server.config.QuotaConfig#brokerQuotaConfigs",
            "org.apache.kafka.server.config.QuotaConfigs#brokerQuotaConfigs",
            "kafka.server.DynamicConfig$Broker$#brokerConfigDef");
        ConfigDef broker = definition("kafka.server.KafkaConfig#configDef", "org.apache.kafka.server.config.AbstractKafkaConfig#CONFIG_DEF");
        print("broker", quotas == null ? List.of(broker) : List.of(broker, quotas));
        print("topic", List.of(definition("org.apache.kafka.storage.internals.log.LogConfig#configDefCopy",
            "org.apache.kafka.storage.internals.log.LogConfig#CONFIG")));
    }
}
