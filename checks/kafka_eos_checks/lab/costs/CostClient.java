import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java clients under a stopwatch. One process does all the jobs of a measurement, so that its compilers are warm.
 * Each line of standard input is a job as JSON, answered by a line of JSON: how much was done in which time. Starting a
 * client and closing it is not timed.
 */
public final class CostClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream LINES =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    private static final long GIVE_UP_NANOS = 10_000_000_000L;

    private final JsonNode job;
    private final ObjectNode answer = JSON.createObjectNode();
    private final List<TopicPartition> places = new ArrayList<>();
    private final AtomicInteger failed = new AtomicInteger();
    private long begun;
    private long cpu;

    private CostClient(JsonNode job) {
        this.job = job;
        for (int number = 0; number < job.get("partitions").asInt(); number++) {
            places.add(new TopicPartition(job.get("topic").asText(), number));
        }
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    private void begin() {
        cpu = cpuNanos();
        begun = System.nanoTime();
    }

    private void end(String name) {
        answer.put(name, (System.nanoTime() - begun) / 1e9);
        answer.put("client_cpu", (cpuNanos() - cpu) / 1e9);
    }

    private Map<String, Object> settings(String name) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        job.get(name).properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        return producer("producer", job.get("topic").asText());
    }

    private KafkaProducer<byte[], byte[]> producer(String name, String topic) {
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings(name), new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(topic);
        if (job.get(name).has("transactional.id")) {
            producer.initTransactions();
        }
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings, Collection<TopicPartition> assigned) {
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(assigned);
        consumer.seekToBeginning(assigned);
        assigned.forEach(consumer::position);
        return consumer;
    }

    private KafkaConsumer<byte[], byte[]> watcher(String isolation) {
        return consumer(Map.of("bootstrap.servers", job.get("bootstrap").asText(), "isolation.level", isolation), places);
    }

    private long ends(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.endOffsets(places).values().stream().mapToLong(Long::longValue).sum();
    }

    private void send(KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record) {
        producer.send(record, (metadata, failure) -> {
            if (failure != null) {
                failed.incrementAndGet();
            }
        });
    }

    /** Send whole transactions, or records without any, until time or records are up, and wait until all is readable. */
    private void produce() {
        String topic = job.get("topic").asText();
        int size = job.get("transaction_size").asInt();
        int abortEvery = job.get("abort_every").asInt();
        boolean spread = job.get("spread").asBoolean();
        int step = size > 0 ? size : job.get("flush_every").asInt();
        long limit = job.get("records").asLong();
        byte[] value = new byte[job.get("value_bytes").asInt()];
        Arrays.fill(value, (byte) 'v');
        try (KafkaConsumer<byte[], byte[]> all = watcher("read_uncommitted");
                KafkaConsumer<byte[], byte[]> committed = watcher("read_committed");
                KafkaProducer<byte[], byte[]> producer = producer()) {
            long before = ends(all);
            long sent = 0;
            long transactions = 0;
            begin();
            long deadline = begun + (long) (job.get("seconds").asDouble() * 1e9);
            while (sent < limit && System.nanoTime() < deadline) {
                if (size > 0) {
                    producer.beginTransaction();
                }
                for (int number = 0; number < Math.max(step, 1); number++) {
                    Integer place = spread ? (int) (sent % places.size()) : null;
                    send(producer, new ProducerRecord<>(topic, place, null, value));
                    sent++;
                }
                if (size > 0) {
                    transactions++;
                    if (abortEvery > 0 && transactions % abortEvery == 0) {
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                } else if (step > 0) {
                    producer.flush();
                }
            }
            producer.flush();
            end("returned_seconds");
            while (System.nanoTime() < begun + GIVE_UP_NANOS + (deadline - begun)
                    && (ends(all) < before + sent || ends(committed) < ends(all))) {
                Thread.onSpinWait();
            }
            end("seconds");
            long stored = ends(all) - before;
            answer.put("records", sent).put("transactions", transactions).put("failed", failed.get());
            answer.put("missing", Math.max(0, sent - stored));
        }
    }

    /** The work of two sides in slices that follow each other at once; each round begins with the other side. */
    private interface Slice {
        long run(int side);
    }

    private void takeTurns(Slice slice) {
        List<ArrayNode> seconds = List.of(answer.putArray("seconds_0"), answer.putArray("seconds_1"));
        List<ArrayNode> records = List.of(answer.putArray("records_0"), answer.putArray("records_1"));
        List<ArrayNode> cpus = List.of(answer.putArray("cpu_0"), answer.putArray("cpu_1"));
        int slices = job.get("slices").asInt();
        int warmUp = slices / 5;
        for (int number = -warmUp; number < slices; number++) {
            for (int turn = 0; turn < 2; turn++) {
                int side = (number + turn) & 1;
                begin();
                long done = slice.run(side);
                double wall = (System.nanoTime() - begun) / 1e9;
                double used = (cpuNanos() - cpu) / 1e9;
                if (number >= 0) {
                    seconds.get(side).add(wall);
                    records.get(side).add(done);
                    cpus.get(side).add(used);
                }
            }
        }
    }

    /** Two producers, each with its own settings and its own topic. */
    private void producePairs() {
        List<String> topics = List.of(job.get("topic").asText(), job.get("topic_1").asText());
        byte[] value = new byte[job.get("value_bytes").asInt()];
        Arrays.fill(value, (byte) 'v');
        long nanos = (long) (job.get("seconds").asDouble() * 1e9);
        try (KafkaProducer<byte[], byte[]> first = producer("producer", topics.get(0));
                KafkaProducer<byte[], byte[]> second = producer("producer_1", topics.get(1))) {
            List<KafkaProducer<byte[], byte[]>> producers = List.of(first, second);
            takeTurns(side -> {
                long sent = 0;
                while (System.nanoTime() < begun + nanos) {
                    send(producers.get(side), new ProducerRecord<>(topics.get(side), value));
                    sent++;
                }
                producers.get(side).flush();
                return sent;
            });
        }
        answer.put("failed", failed.get());
    }

    /** Two consumers, each with its own settings; a slice is the whole topic. */
    private void consumePairs() {
        try (KafkaConsumer<byte[], byte[]> first = reader("consumer");
                KafkaConsumer<byte[], byte[]> second = reader("consumer_1")) {
            List<KafkaConsumer<byte[], byte[]>> consumers = List.of(first, second);
            takeTurns(side -> readAll(consumers.get(side)));
        }
    }

    private KafkaConsumer<byte[], byte[]> reader(String name) {
        Map<String, Object> settings = settings(name);
        settings.put("fetch.max.wait.ms", 1); // the fetch under way at the end must not delay the next time
        return consumer(settings, places);
    }

    private long readAll(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(places);
        long records = 0;
        consumer.seekToBeginning(places);
        while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
            records += consumer.poll(Duration.ofSeconds(1)).count();
        }
        return records;
    }

    /** Read, write, commit: by mode before the writes, after them, or with them in a transaction. */
    private void copy() {
        String target = job.get("topic").asText();
        int size = job.get("transaction_size").asInt();
        List<TopicPartition> sources = new ArrayList<>();
        places.forEach(place -> sources.add(new TopicPartition(job.get("source").asText(), place.partition())));
        String mode = job.get("mode").asText();
        long done = 0;
        long commits = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer();
                KafkaConsumer<byte[], byte[]> consumer = consumer(settings("consumer"), sources)) {
            List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            long all = consumer.endOffsets(sources).values().stream().mapToLong(Long::longValue).sum();
            long read = 0;
            begin();
            long deadline = begun + (long) (job.get("seconds").asDouble() * 1e9);
            while (System.nanoTime() < deadline) {
                if (read == all) {
                    consumer.seekToBeginning(sources);
                    read = 0;
                }
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
                read += polled.count();
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    batch.add(record);
                    next.put(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    if (batch.size() < size) {
                        continue;
                    }
                    if (mode.equals("at-most-once")) {
                        consumer.commitSync(next);
                    } else if (mode.equals("exactly-once")) {
                        producer.beginTransaction();
                    }
                    for (ConsumerRecord<byte[], byte[]> each : batch) {
                        send(producer, new ProducerRecord<>(target, each.partition(), null, each.value()));
                    }
                    if (mode.equals("at-least-once")) {
                        producer.flush();
                        consumer.commitSync(next);
                    } else if (mode.equals("exactly-once")) {
                        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                        producer.commitTransaction();
                    }
                    done += batch.size();
                    commits++;
                    batch.clear();
                    next.clear();
                    if (System.nanoTime() >= deadline) {
                        break;
                    }
                }
            }
            producer.flush();
            end("seconds");
        }
        answer.put("records", done).put("transactions", commits).put("failed", failed.get());
    }

    /** Send records at an even rate, commit at an interval, and measure the time until a consumer has each record. */
    private void latency() throws InterruptedException {
        String topic = job.get("topic").asText();
        long interval = job.get("commit_interval_ms").asLong() * 1_000_000L;
        long gap = (long) (1e9 / job.get("rate").asDouble());
        int wanted = job.get("records").asInt();
        long[] latencies = new long[wanted];
        AtomicInteger read = new AtomicInteger();
        AtomicBoolean over = new AtomicBoolean();
        Map<String, Object> reading = settings("consumer");
        KafkaConsumer<byte[], byte[]> consumer = consumer(reading, places);
        consumer.seekToEnd(places);
        places.forEach(consumer::position);
        Thread reader = new Thread(() -> {
            while (!over.get() && read.get() < wanted) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    latencies[read.getAndIncrement()] = System.nanoTime() - ByteBuffer.wrap(record.value()).getLong();
                }
            }
        });
        byte[] value = new byte[job.get("value_bytes").asInt()];
        long transactions = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            reader.start();
            begin();
            int sent = 0;
            while (sent < wanted) {
                long ends = System.nanoTime() + interval;
                if (interval > 0) {
                    producer.beginTransaction();
                }
                do {
                    LockSupport.parkNanos(begun + sent * gap - System.nanoTime());
                    long now = System.nanoTime();
                    if (now >= begun + sent * gap) {
                        byte[] stamped = ByteBuffer.wrap(value.clone()).putLong(now).array();
                        send(producer, new ProducerRecord<>(topic, sent % places.size(), null, stamped));
                        sent++;
                    }
                } while (sent < wanted && (interval == 0 || System.nanoTime() < ends));
                if (interval > 0) {
                    producer.commitTransaction();
                    transactions++;
                }
            }
            producer.flush();
            reader.join(30_000);
            over.set(true);
            reader.join();
            end("seconds");
        }
        consumer.close();
        long[] sorted = Arrays.copyOf(latencies, read.get());
        Arrays.sort(sorted);
        answer.put("records", sorted.length).put("transactions", transactions).put("failed", failed.get());
        for (int percent : new int[] {50, 90, 99}) {
            answer.put("p" + percent + "_ms", sorted[Math.min(sorted.length - 1, sorted.length * percent / 100)] / 1e6);
        }
    }

    private ObjectNode run() throws InterruptedException {
        switch (job.get("job").asText()) {
            case "produce" -> produce();
            case "produce pairs" -> producePairs();
            case "consume pairs" -> consumePairs();
            case "copy" -> copy();
            case "latency" -> latency();
            default -> throw new IllegalArgumentException(job.get("job").asText());
        }
        return answer;
    }

    /** Do the jobs from standard input, to its end. */
    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // what libraries say is no answer
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            ObjectNode answer;
            try {
                answer = new CostClient(JSON.readTree(line)).run();
            } catch (RuntimeException failure) {
                failure.printStackTrace();
                answer = JSON.createObjectNode().put("failure", failure.toString());
            }
            LINES.println(answer);
        }
    }
}
