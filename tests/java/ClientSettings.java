import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What Kafka's own clients say to settings. Each line of standard input is {"producer": {name: value}} or {"consumer":
 * {name: value}}, answered by {"refused": why} or, for a producer, by the values of some settings; or {"defaults":
 * {"of": "producer"}}, answered by all defaults.
 */
public final class ClientSettings {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static Map<String, Object> settings(JsonNode given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "127.0.0.1:1");
        given.properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private static ObjectNode producer(Map<String, Object> settings) {
        try (var producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.close(Duration.ZERO);
        }
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        ProducerConfig config = new ProducerConfig(settings);
        return JSON.createObjectNode()
                .put("acks", config.getString("acks"))
                .put("enable.idempotence", config.getBoolean("enable.idempotence"));
    }

    private static ObjectNode consumer(Map<String, Object> settings) {
        try (var consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.close(Duration.ZERO);
        }
        return JSON.createObjectNode();
    }

    private static ObjectNode defaults(String of) {
        ConfigDef known = of.equals("producer") ? ProducerConfig.configDef() : ConsumerConfig.configDef();
        ObjectNode values = JSON.createObjectNode();
        known.defaultValues().forEach((name, value) -> values.put(name, String.valueOf(value)));
        return values;
    }

    private static String why(Throwable failure) {
        return failure.getCause() == null ? String.valueOf(failure.getMessage()) : why(failure.getCause());
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode row = JSON.readTree(line);
            ObjectNode answer;
            try {
                if (row.has("defaults")) {
                    answer = defaults(row.get("defaults").get("of").asText());
                } else if (row.has("producer")) {
                    answer = producer(settings(row.get("producer")));
                } else {
                    answer = consumer(settings(row.get("consumer")));
                }
            } catch (KafkaException refused) {
                answer = JSON.createObjectNode().put("refused", why(refused));
            }
            answers.println(answer);
        }
    }
}
