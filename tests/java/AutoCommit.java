import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer with auto-commit that says each offset it is given, and processes until it reads a line. */
public class AutoCommit {
    /** Arguments: the bootstrap server, the group protocol (also the group's name), the topic. */
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.protocol", arguments[1],
            "group.id", arguments[1],
            "enable.auto.commit", true,
            "auto.commit.interval.ms", 1,
            "max.poll.records", 1,
            "auto.offset.reset", "earliest",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class
        );
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings); var lines = new Scanner(System.in)) {
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println("given " + record.offset());
                    lines.nextLine();
                }
            }
        }
    }
}
