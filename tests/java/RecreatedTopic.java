import java.time.Duration;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Offsets of a topic that is deleted and created again between two transactions; prints how each call ended. */
public final class RecreatedTopic {
    private interface Call {
        void make();
    }

    private static boolean told(String what, Call call) {
        String end = "done";
        try {
            call.make();
        } catch (RuntimeException e) {
            end = e.getClass().getSimpleName();
        }
        System.out.println(what + ": " + end);
        return end.equals("done");
    }

    private static Uuid idOf(Admin admin) throws Exception {
        for (;; Thread.sleep(100))
            try {
                return admin.describeTopics(List.of("in")).allTopicNames().get().get("in").topicId();
            } catch (java.util.concurrent.ExecutionException e) {
                // it is not there yet
            }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap) {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap, "transactional.id", "x",
            "max.block.ms", "3000", "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class));
        for (boolean started = false; !started;) // the coordinator may still be loading
            started = told("initTransactions", producer::initTransactions);
        return producer;
    }

    private static boolean transaction(KafkaProducer<byte[], byte[]> producer, long offset) {
        producer.beginTransaction();
        return told("send offset " + offset, () -> producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition("in", 0), new OffsetAndMetadata(offset)), new ConsumerGroupMetadata("g")));
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            NewTopic topic = new NewTopic("in", 1, (short) 1);
            admin.createTopics(List.of(topic)).all().get();
            Uuid first = idOf(admin);
            KafkaProducer<byte[], byte[]> producer = producer(arguments[0]);
            while (!transaction(producer, 1)) // the coordinator of the group may still be loading
                producer.abortTransaction();
            producer.commitTransaction();
            admin.deleteTopics(List.of("in")).all().get();
            while (admin.listTopics().names().get().contains("in"))
                Thread.sleep(100);
            admin.createTopics(List.of(topic)).all().get();
            while (idOf(admin).equals(first))
                Thread.sleep(100);
            if (transaction(producer, 2))
                told("commit", producer::commitTransaction);
            else
                for (int attempt = 0; attempt < 2; attempt++)
                    told("abort", producer::abortTransaction);
            producer.close(Duration.ZERO);
            KafkaProducer<byte[], byte[]> next = producer(arguments[0]);
            transaction(next, 3);
            told("commit", next::commitTransaction);
            next.close(Duration.ZERO);
        }
    }
}
