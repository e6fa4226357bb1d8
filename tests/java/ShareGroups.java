import java.time.Duration;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Share groups with read_committed that begin before, inside and after a batch of an aborted transaction; prints what each is given.
 *
 * A record committed later shows that a group goes on. Arguments: the broker, and how long a group may take, in seconds.
 */
public final class ShareGroups {
    private static void transaction(KafkaProducer<byte[], String> producer, String name, int count, boolean commit) {
        producer.beginTransaction();
        for (int number = 0; number < count; number++)
            producer.send(new ProducerRecord<>("t", 0, null, name + number));
        producer.flush(); // one batch: nothing was sent before, because the producer lingers
        if (commit)
            producer.commitTransaction();
        else
            producer.abortTransaction();
    }

    private static KafkaShareConsumer<byte[], String> consumer(Admin admin, String bootstrap, String group, long begin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("share.isolation.level", "read_committed"), AlterConfigOp.OpType.SET)))).all().get();
        admin.alterShareGroupOffsets(group, Map.of(new TopicPartition("t", 0), begin)).all().get();
        KafkaShareConsumer<byte[], String> consumer = new KafkaShareConsumer<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", StringDeserializer.class));
        consumer.subscribe(List.of("t"));
        return consumer;
    }

    /** Polls until a value comes; prints all. */
    private static void poll(KafkaShareConsumer<byte[], String> consumer, String group, String last, int seconds) {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        for (boolean found = false; !found && System.nanoTime() < end;)
            for (ConsumerRecord<byte[], String> each : consumer.poll(Duration.ofMillis(200))) {
                System.out.println(group + " " + each.value() + " " + each.deliveryCount().orElse((short) -1));
                found |= each.value().equals(last);
            }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int seconds = Integer.parseInt(arguments[1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
             KafkaProducer<byte[], String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", "x",
                 "linger.ms", "60000", "key.serializer", ByteArraySerializer.class, "value.serializer", StringSerializer.class))) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
            producer.initTransactions();
            transaction(producer, "aborted", 10, false); // offsets 0 to 9, and the marker
            transaction(producer, "committed", 3, true); // offsets 11 to 13
            for (Map.Entry<String, Long> each : List.of(Map.entry("before", 0L), Map.entry("inside", 5L), Map.entry("after", 10L)))
                try (KafkaShareConsumer<byte[], String> consumer = consumer(admin, bootstrap, each.getKey(), each.getValue())) {
                    poll(consumer, each.getKey(), "committed2", seconds);
                    String later = "later-" + each.getKey();
                    transaction(producer, later, 1, true);
                    poll(consumer, each.getKey(), later + "0", seconds);
                }
        }
    }
}
