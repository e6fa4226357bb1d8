import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * What Kafka's own clients say to settings. Each line of standard input is {"producer": {name: value}} or {"consumer":
 * {name: value}} or {"streams": {name: value}}, answered by {"refused": why} or, for a producer and for Streams, by the
 * values of some settings; or {"known": {"of": "producer"}}, answered by all settings that the client defines.
 */
public final class ClientSettings {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Pattern RANGE = Pattern.compile("\\[(-?\\d+)?,?\\.\\.\\.,?(-?\\d+)?\\](?: or (-?\\d+))?");
    private static final Pattern WORDS = Pattern.compile("(?:\\(case insensitive\\) )?\\[(.+)\\]");
    private static final Map<ConfigDef.Type, Long> LOWEST = Map.of(
            ConfigDef.Type.SHORT, (long) Short.MIN_VALUE,
            ConfigDef.Type.INT, (long) Integer.MIN_VALUE,
            ConfigDef.Type.LONG, Long.MIN_VALUE);

    private static Map<String, Object> settings(JsonNode given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "127.0.0.1:1");
        given.properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    /** Closes a client, which may wait as long as its settings say. */
    private static void later(Runnable close) {
        Thread closing = new Thread(close);
        closing.setDaemon(true);
        closing.start();
    }

    private static ObjectNode producer(Map<String, Object> settings) {
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        later(() -> producer.close(Duration.ZERO));
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        ProducerConfig config = new ProducerConfig(settings);
        return JSON.createObjectNode()
                .put("acks", config.getString("acks"))
                .put("enable.idempotence", config.getBoolean("enable.idempotence"));
    }

    private static ObjectNode consumer(Map<String, Object> settings) {
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        later(() -> consumer.close(Duration.ZERO));
        return JSON.createObjectNode();
    }

    private static ObjectNode streams(Map<String, Object> settings) {
        settings.putIfAbsent("application.id", "application");
        StreamsBuilder topology = new StreamsBuilder();
        topology.stream("orders").to("invoices");
        Properties properties = new Properties();
        properties.putAll(settings);
        KafkaStreams application = new KafkaStreams(topology.build(), properties);
        later(() -> application.close(Duration.ofMillis(1)));
        StreamsConfig config = new StreamsConfig(properties);
        return JSON.createObjectNode()
                .put("main", isolation(config.getMainConsumerConfigs("group", "client", 0)))
                .put("restore", isolation(config.getRestoreConsumerConfigs("client")));
    }

    private static String isolation(Map<String, Object> consumer) {
        return String.valueOf(consumer.getOrDefault("isolation.level", ConsumerConfig.DEFAULT_ISOLATION_LEVEL));
    }

    private static ConfigDef definition(String of) {
        return switch (of) {
            case "producer" -> ProducerConfig.configDef();
            case "consumer" -> ConsumerConfig.configDef();
            case "admin" -> AdminClientConfig.configDef();
            default -> StreamsConfig.configDef();
        };
    }

    private static ObjectNode known(String of) {
        ObjectNode all = JSON.createObjectNode();
        new TreeMap<>(definition(of).configKeys()).forEach((name, key) -> all.set(name, row(key)));
        return all;
    }

    private static boolean valid(ConfigDef.ConfigKey key, Object value) {
        try {
            key.validator.ensureValid(key.name, value);
            return true;
        } catch (ConfigException refused) {
            return false;
        }
    }

    /** Two words of a list with a comma between them, which some settings take. */
    private static String lastTwo(String words) {
        List<String> each = List.of(words.split(", "));
        return each.get(Math.max(0, each.size() - 2)) + "," + each.get(each.size() - 1);
    }

    /** The default, and either the bounds of a number, or the words, or whether the text may be empty. */
    private static ObjectNode row(ConfigDef.ConfigKey key) {
        ObjectNode row = JSON.createObjectNode();
        if (key.hasDefault() && key.defaultValue != null) {
            row.put("default", String.valueOf(key.defaultValue));
        }
        String rule = String.valueOf(key.validator);
        Matcher range = RANGE.matcher(rule);
        Matcher words = WORDS.matcher(rule);
        if (LOWEST.containsKey(key.type)) {
            boolean bounded = range.lookingAt();
            long low = bounded && range.group(1) != null ? Long.parseLong(range.group(1)) : LOWEST.get(key.type);
            long high = bounded && range.group(2) != null ? Long.parseLong(range.group(2)) : -LOWEST.get(key.type) - 1;
            row.put("low", low).put("high", high);
            if (bounded && range.group(3) != null) {
                row.put("word", range.group(3));
            }
        } else if (key.type == ConfigDef.Type.BOOLEAN) {
            row.put("any_case", true).putArray("words").add("true").add("false");
        } else if (key.type == ConfigDef.Type.STRING && words.matches() && !valid(key, lastTwo(words.group(1)))) {
            List<String> each = Stream.of(words.group(1).split(", "))
                    .filter(word -> word.startsWith("by_duration:") || valid(key, word))
                    .toList();
            String other = each.get(0).equals(each.get(0).toLowerCase(Locale.ROOT))
                    ? each.get(0).toUpperCase(Locale.ROOT)
                    : each.get(0).toLowerCase(Locale.ROOT);
            boolean anyCase = valid(key, other);
            row.put("any_case", anyCase);
            each.stream()
                    .map(word -> anyCase ? word.toLowerCase(Locale.ROOT) : word)
                    .sorted()
                    .forEach(row.putArray("words")::add);
        } else if (key.type == ConfigDef.Type.STRING && key.validator != null && !valid(key, "")) {
            row.put("not_empty", true);
        }
        return row;
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
                if (row.has("known")) {
                    answer = known(row.get("known").get("of").asText());
                } else if (row.has("streams")) {
                    answer = streams(settings(row.get("streams")));
                } else if (row.has("producer")) {
                    answer = producer(settings(row.get("producer")));
                } else {
                    answer = consumer(settings(row.get("consumer")));
                }
            } catch (RuntimeException refused) {
                answer = JSON.createObjectNode().put("refused", why(refused));
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }
}
