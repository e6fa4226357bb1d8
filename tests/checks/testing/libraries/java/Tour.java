import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The tour of Kafka's Java clients; python/tour.py describes a tour. */
public class Tour {
    static final Map<String, Integer> PARTITIONS = Map.of("records", 3, "transactions", 2, "copies", 1);
    static final int ROUNDS = 5, ROUND = 20, TRANSACTIONS = 9, COPIED = 25, FIRST = 50;
    static final String END = "end";
    static final String[] RETENTION = {"3600000", "7200000"};
    static final ObjectMapper JSON = new ObjectMapper();

    final String bootstrap, name, records, transactions, copies;
    final boolean keep;
    final Admin admin;
    final Map<String, Set<Integer>> allEnded = new HashMap<>(); // by group; the second reader continues after the first

    Tour(String bootstrap, String name, boolean keep) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.keep = keep;
        records = name + "-records";
        transactions = name + "-transactions";
        copies = name + "-copies";
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    /** Prints an event, given as keys and values in turn. */
    static synchronized void say(String saw, Object... what) throws Exception {
        Map<String, Object> event = new LinkedHashMap<>(Map.of("saw", saw));
        for (int i = 0; i < what.length; i += 2) event.put((String) what[i], what[i + 1]);
        System.out.println(JSON.writeValueAsString(event));
    }

    static void waitUntil(Callable<Boolean> ready) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!ready.call()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("condition not reached in time");
            Thread.sleep(50);
        }
    }

    ConfigResource topicOfRecords() {
        return new ConfigResource(ConfigResource.Type.TOPIC, records);
    }

    String configured() throws Exception {
        return admin.describeConfigs(List.of(topicOfRecords())).all().get().get(topicOfRecords())
            .get("retention.ms").value();
    }

    void administer() throws Exception {
        var cluster = admin.describeCluster();
        say("cluster", "brokers", cluster.nodes().get().stream().map(Node::id).toList(),
            "controller", cluster.controller().get().id());
        List<NewTopic> topics = new ArrayList<>();
        for (var each : PARTITIONS.entrySet())
            topics.add(new NewTopic(name + "-" + each.getKey(), each.getValue(), (short) 1)
                .configs(Map.of("retention.ms", RETENTION[0])));
        admin.createTopics(topics).all().get();
        waitUntil(() -> topics().size() == PARTITIONS.size()); // brokers learn of it after the controller
        Map<String, Integer> counts = new TreeMap<>();
        for (var topic : admin.describeTopics(topics()).allTopicNames().get().values())
            counts.put(topic.name(), topic.partitions().size());
        say("topics", "topics", counts);
        say("configuration", "retention.ms", configured());
        var set = new AlterConfigOp(new ConfigEntry("retention.ms", RETENTION[1]), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topicOfRecords(), List.of(set))).all().get();
        waitUntil(() -> configured().equals(RETENTION[1]));
        say("configuration", "retention.ms", configured());
    }

    KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    /** Sends rounds of records, and waits for each round. */
    void produce(String kind, int rounds, Map<String, Object> settings) throws Exception {
        try (var producer = producer(settings)) {
            for (int first = 0; first < rounds * ROUND; first += ROUND) {
                List<ProducerRecord<String, String>> sent = new ArrayList<>();
                List<Future<RecordMetadata>> answers = new ArrayList<>();
                for (int number = first; number < first + ROUND; number++) {
                    String key = number % 2 == 1 ? "key-" + number % 3 : null;
                    sent.add(new ProducerRecord<>(records, key, kind + "-" + number));
                    answers.add(producer.send(sent.get(sent.size() - 1)));
                }
                for (int i = 0; i < ROUND; i++) {
                    var record = sent.get(i);
                    try {
                        RecordMetadata where = answers.get(i).get();
                        say("acknowledged", "kind", kind, "key", record.key(), "value", record.value(),
                            "partition", where.partition(), "offset", where.offset());
                    } catch (ExecutionException error) {
                        say("failed", "kind", kind, "value", record.value(), "error", error.toString());
                    }
                }
            }
        }
    }

    void end(String topic) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int partition = 0; partition < partitions(topic); partition++)
                producer.send(new ProducerRecord<>(topic, partition, null, END)).get();
        }
    }

    int partitions(String topic) {
        return PARTITIONS.get(topic.substring(name.length() + 1));
    }

    interface Writes {
        void to(KafkaProducer<String, String> producer) throws Exception;
    }

    /** A transactional producer, replaced by a new one when it cannot go on. */
    class Transactional implements AutoCloseable {
        final String id;
        KafkaProducer<String, String> producer;
        String error;

        Transactional(String id) {
            this.id = id;
        }

        String run(Writes writes, boolean commit) throws Exception {
            boolean committing = false;
            error = null;
            try {
                if (producer == null) {
                    producer = producer(Map.of("transactional.id", id));
                    producer.initTransactions();
                }
                producer.beginTransaction();
                writes.to(producer);
                committing = commit;
                if (commit) producer.commitTransaction();
                else producer.abortTransaction();
                return commit ? "committed" : "aborted";
            } catch (KafkaException | ExecutionException failure) {
                error = failure.toString();
                close();
                return committing ? "unknown" : "aborted";
            }
        }

        @Override
        public void close() {
            if (producer != null) producer.close(Duration.ofSeconds(1));
            producer = null;
        }
    }

    void transact() throws Exception {
        try (var transactional = new Transactional(name + "-transactions")) {
            for (int number = 0; number < TRANSACTIONS; number++) {
                final int count = number;
                String outcome = transactional.run(producer -> {
                    List<Future<RecordMetadata>> answers = new ArrayList<>();
                    for (int partition = 0; partition < 2; partition++)
                        answers.add(producer.send(
                            new ProducerRecord<>(transactions, partition, null, count + "-" + partition)));
                    for (var answer : answers) answer.get();
                }, number % 3 != 2);
                say("transaction", "number", number, "outcome", outcome, "error", transactional.error);
            }
        }
        end(transactions);
    }

    KafkaConsumer<String, String> reader(String group, String topic, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.putAll(Map.of(
            "bootstrap.servers", bootstrap, "group.id", name + "-" + group, "auto.offset.reset", "earliest"));
        var consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static List<ConsumerRecord<String, String>> polled(KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        return found;
    }

    Map<Integer, Long> groupOffsets(String group) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.listConsumerGroupOffsets(name + "-" + group).partitionsToOffsetAndMetadata().get()
            .forEach((partition, row) -> offsets.put(partition.partition(), row.offset()));
        return offsets;
    }

    void committed(String group) throws Exception {
        say("committed", "group", name + "-" + group, "offsets", groupOffsets(group));
    }

    /** Copies the records, each in a transaction with the offset after it. */
    void copy() throws Exception {
        Map<String, Object> settings = Map.of("enable.auto.commit", false, "max.poll.records", COPIED);
        Map<Integer, Long> ends = new TreeMap<>(), reached = new TreeMap<>();
        KafkaConsumer<String, String> consumer = null;
        try (var transactional = new Transactional(name + "-copier")) {
            while (ends.size() < PARTITIONS.get("records") || !reached.equals(ends)) {
                if (consumer == null) consumer = reader("copier", records, settings);
                var batch = polled(consumer);
                if (batch.isEmpty()) {
                    reached = new TreeMap<>(groupOffsets("copier"));
                    continue;
                }
                Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
                List<List<Long>> inputs = new ArrayList<>();
                for (var record : batch) {
                    behind.put(new TopicPartition(records, record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                    inputs.add(List.of((long) record.partition(), record.offset()));
                    if (record.value().equals(END)) ends.put(record.partition(), record.offset() + 1);
                }
                var metadata = consumer.groupMetadata();
                String outcome = transactional.run(producer -> {
                    for (var record : batch)
                        producer.send(new ProducerRecord<>(copies, record.partition() + "-" + record.offset()));
                    producer.sendOffsetsToTransaction(behind, metadata);
                }, true);
                say("copied", "inputs", inputs, "outcome", outcome, "error", transactional.error);
                if (outcome.equals("committed")) {
                    for (var each : behind.entrySet()) reached.put(each.getKey().partition(), each.getValue().offset());
                } else {
                    consumer.close();
                    consumer = null;
                }
            }
        }
        if (consumer != null) consumer.close();
        end(copies);
    }

    /** Reads until each partition's end, or at most so many records; commits and leaves. */
    void consume(String reader, String group, String topic, int most, Map<String, Object> settings) throws Exception {
        try (var consumer = reader(group, topic, settings)) {
            Set<Integer> ended = allEnded.computeIfAbsent(group, any -> new HashSet<>()), again = new HashSet<>();
            for (int count = 0; ended.size() < partitions(topic) && (most == 0 || count < most);) {
                for (var record : polled(consumer)) {
                    if (count == most && most > 0) { // the rest of a poll is for the next reader
                        if (again.add(record.partition()))
                            consumer.seek(new TopicPartition(topic, record.partition()), record.offset());
                        continue;
                    }
                    count++;
                    say("consumed", "reader", reader, "topic", topic, "partition", record.partition(),
                        "offset", record.offset(), "key", record.key(), "value", record.value());
                    if (record.value().equals(END)) ended.add(record.partition());
                }
            }
            consumer.commitSync();
        }
    }

    /** A member of the pair. */
    class Member extends Thread {
        final String called;
        volatile List<Integer> partitions = List.of();
        volatile boolean leaves;

        Member(String called) {
            this.called = called;
        }

        @Override
        public void run() {
            try (var consumer = reader("pair", records, Map.of())) {
                while (!leaves) {
                    polled(consumer);
                    var now = consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
                    if (!now.equals(partitions)) say("assigned", "member", called, "partitions", now);
                    partitions = now;
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    void rebalance() throws Exception {
        Member first = new Member("a"), second = new Member("b");
        first.start();
        waitUntil(() -> first.partitions.size() == 3);
        second.start();
        waitUntil(() -> {
            List<Integer> both = new ArrayList<>(first.partitions);
            both.addAll(second.partitions);
            return !second.partitions.isEmpty() && both.stream().sorted().toList().equals(List.of(0, 1, 2));
        });
        String group = name + "-pair";
        var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        say("group", "group", group, "state", described.groupState().toString(),
            "members", described.members().size());
        second.leaves = true;
        second.join();
        waitUntil(() -> first.partitions.size() == 3);
        first.leaves = true;
        first.join();
    }

    List<String> groups() throws Exception {
        return admin.listGroups().all().get().stream().map(group -> group.groupId())
            .filter(group -> group.startsWith(name)).sorted().toList();
    }

    void cleanUp() throws Exception {
        say("groups", "listed", groups());
        admin.deleteConsumerGroups(groups()).all().get();
        say("deleted groups", "listed", groups());
        admin.deleteTopics(List.of(records, transactions, copies)).all().get();
        waitUntil(() -> topics().isEmpty());
        say("deleted topics", "listed", topics());
    }

    List<String> topics() throws Exception {
        return admin.listTopics().names().get().stream().filter(topic -> topic.startsWith(name)).sorted().toList();
    }

    void go() throws Exception {
        administer();
        produce("default", ROUNDS, Map.of());
        for (String codec : Arrays.asList("gzip", "snappy", "lz4", "zstd"))
            produce(codec, 1, Map.of("compression.type", codec));
        produce("not idempotent", ROUNDS, Map.of("enable.idempotence", false));
        end(records);
        transact();
        copy();
        consume("first", "readers", records, FIRST, Map.of());
        committed("readers");
        consume("second", "readers", records, 0, Map.of());
        committed("readers");
        committed("copier");
        consume("committed", "transactions", transactions, 0, Map.of("isolation.level", "read_committed"));
        consume("copies", "copies", copies, 0, Map.of("isolation.level", "read_committed"));
        consume("uncommitted", "uncommitted", transactions, 0, Map.of());
        rebalance();
        if (!keep) cleanUp();
        say("end");
    }

    public static void main(String[] arguments) throws Exception {
        new Tour(arguments[0], arguments[1], arguments[2].equals("keep")).go();
        System.exit(0);
    }
}
