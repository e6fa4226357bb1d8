import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes records to topic "in" and copies them to "out", each in a transaction; the first one is aborted and repeated. */
public final class Copier {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0], protocol = arguments[1];
        int inputs = Integer.parseInt(arguments[2]);
        Map<String, Object> writes = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writes)) {
            for (int number = 0; number < inputs; number++) producer.send(new ProducerRecord<>("in", "input " + number));
        }
        writes.put("transactional.id", "copier");
        Map<String, Object> reads = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", "g", "group.protocol", protocol,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "isolation.level", "read_committed",
            "max.poll.records", "1", "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writes);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reads)) {
            producer.initTransactions();
            consumer.subscribe(List.of("in"));
            boolean aborts = true;
            for (int copied = 0; copied < inputs;)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>("out", record.value()));
                    producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(record.offset() + 1)),
                        consumer.groupMetadata());
                    if (aborts) {
                        producer.abortTransaction();
                        consumer.seek(partition, record.offset());
                    } else {
                        producer.commitTransaction();
                        copied++;
                    }
                    aborts = false;
                }
        }
    }
}
