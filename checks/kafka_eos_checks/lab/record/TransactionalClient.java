import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TransactionAbortedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The program of a transactional Java client: sends or copies, commits, aborts, and says on standard output what it
 * knows. Its argument, its lines and its exit codes are those of workload.py, its librdkafka sibling.
 *
 * <p>System.nanoTime is the machine's monotonic clock on Linux, as Python's time.monotonic_ns.
 */
public final class TransactionalClient {
    private static final int FATAL_EXIT = 3;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream LINES =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    /** A fatal error: this producer can do nothing more. */
    private static final class GaveUp extends RuntimeException {}

    /** The transaction can only be aborted. */
    private static final class MustAbort extends RuntimeException {}

    private final JsonNode work;
    private final String transactionalId;
    private final List<String> topics = new ArrayList<>();
    private final int partitions;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private final Map<Integer, Long> kept = new TreeMap<>();
    private final Map<Integer, Long> next = new TreeMap<>();
    private final List<ConsumerRecord<String, String>> fetched = new ArrayList<>();
    private int sent = 0;
    private int transaction = 0;
    private boolean paused = false;

    private TransactionalClient(JsonNode work) {
        this.work = work;
        transactionalId = work.get("transactional_id").asText();
        partitions = work.get("partitions").asInt();
        topics.add(work.get("topic").asText());
        work.get("also").forEach(topic -> topics.add(topic.asText()));
        int timeout = work.get("timeout_ms").asInt();
        Map<String, Object> settings = common();
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeout);
        settings.put("delivery.timeout.ms", timeout);
        settings.put("request.timeout.ms", Math.min(5_000, timeout / 2));
        settings.put("max.block.ms", 30_000);
        settings.put("linger.ms", 2);
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        consumer = work.get("source").isNull() ? null : consumer();
    }

    private Map<String, Object> common() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", work.get("bootstrap").asText());
        settings.put("client.id", work.get("client").asText());
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 250);
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        return settings;
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = common();
        settings.put("group.id", work.get("group").asText());
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Write one event. */
    private static synchronized void tell(String action, String phase, ObjectNode columns) {
        ObjectNode row = JSON.createObjectNode().put("action", action).put("phase", phase);
        row.setAll(columns);
        LINES.print(System.nanoTime() + " " + row + "\n");
        LINES.flush();
    }

    private ObjectNode columns() {
        ObjectNode columns = JSON.createObjectNode().put("transactional_id", transactionalId);
        columns.set("detail", JSON.createObjectNode().put("transaction", transaction));
        return columns;
    }

    /** The columns with the error: Kafka's code, and its name. */
    private static ObjectNode blamed(ObjectNode columns, Exception failure) {
        Errors error = Errors.forException(failure);
        ObjectNode blamed = columns.deepCopy().put("error", error.code());
        blamed.withObject("/detail").put("reason", failure.getClass().getSimpleName());
        return blamed;
    }

    private static boolean isFatal(Exception failure) {
        return failure instanceof ProducerFencedException
                || failure instanceof OutOfOrderSequenceException
                || failure instanceof AuthorizationException
                || failure instanceof UnsupportedVersionException
                || !(failure instanceof KafkaException);
    }

    /** Make a call and write its events. After a timeout the outcome is open and the same call is repeated, as the API requires. */
    private void call(String action, ObjectNode columns, Runnable call) {
        while (true) {
            tell(action, "invoke", columns);
            try {
                call.run();
                tell(action, "ok", columns);
                return;
            } catch (TimeoutException open) {
                tell(action, "info", blamed(columns, open));
            } catch (KafkaException | IllegalStateException failure) {
                tell(action, isFatal(failure) ? "info" : "fail", blamed(columns, failure));
                throw isFatal(failure) ? new GaveUp() : new MustAbort();
            }
        }
    }

    private void mayPause(String call) {
        if (paused || !work.get("pause_after").asText().equals(call)) {
            return;
        }
        paused = true;
        ObjectNode columns = JSON.createObjectNode().put("transactional_id", transactionalId);
        columns.set("detail", JSON.createObjectNode().put("after", call));
        tell("Pause", "invoke", columns);
        try {
            System.in.read();
        } catch (IOException closed) {
            throw new GaveUp();
        }
        tell("Pause", "ok", columns);
    }

    private void send(String value) {
        ObjectNode columns = columns();
        columns.put("topic", topics.get(sent / partitions % topics.size())).put("partition", sent % partitions);
        columns.withObject("/detail").put("value", value);
        sent++;
        tell("Send", "invoke", columns);
        ProducerRecord<String, String> record =
                new ProducerRecord<>(columns.get("topic").asText(), columns.get("partition").asInt(), null, value);
        AtomicBoolean refused = new AtomicBoolean(); // a record may be taken, refused, and aborted with its batch
        try {
            producer.send(record, (metadata, failure) -> {
                if (failure == null) {
                    tell("Send", "ok", metadata.hasOffset() ? columns.deepCopy().put("offset", metadata.offset()) : columns);
                } else if (!refused.get()) {
                    // Only a batch that never left the accumulator ends like this.
                    boolean neverSent = failure instanceof TransactionAbortedException;
                    tell("Send", neverSent ? "fail" : "info", blamed(columns, failure));
                }
            });
        } catch (KafkaException | IllegalStateException failure) { // refused by the client itself
            refused.set(true);
            tell("Send", "fail", blamed(columns, failure));
            throw isFatal(failure) ? new GaveUp() : new MustAbort();
        }
    }

    /** Whether the offsets are sent after each record, not once a transaction. */
    private boolean eachOffset() {
        return work.get("offsets_each").asBoolean();
    }

    /** The next values, none when all is done. */
    private List<String> values() {
        List<String> values = new ArrayList<>();
        int size = eachOffset() ? 1 : work.get("transaction_size").asInt();
        int records = work.get("records").asInt();
        if (consumer == null) {
            for (int number = sent; number < Math.min(records, sent + size); number++) {
                values.add(work.get("prefix").asText() + number);
            }
            return values;
        }
        while (values.size() < size && next.values().stream().mapToLong(Long::longValue).sum() < records) {
            if (fetched.isEmpty()) {
                consumer.poll(Duration.ofSeconds(1)).forEach(fetched::add);
                continue;
            }
            ConsumerRecord<String, String> record = fetched.remove(0);
            ObjectNode columns = JSON.createObjectNode();
            columns.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
            columns.put("group", work.get("group").asText()).put("isolation", "read_committed");
            columns.set("detail", JSON.createObjectNode().put("value", record.value()));
            tell("Poll", "ok", columns);
            next.put(record.partition(), record.offset() + 1);
            values.add(record.value());
        }
        return values;
    }

    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        next.forEach((number, offset) -> offsets.put(place(number), new OffsetAndMetadata(offset)));
        return offsets;
    }

    private TopicPartition place(int number) {
        return new TopicPartition(work.get("source").asText(), number);
    }

    /** Begin at the committed offsets. Waits for those of a transaction that is not ended yet. */
    private void beginSource() {
        Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
        for (int number = 0; number < partitions; number++) {
            asked.put(place(number), null);
        }
        consumer.assign(asked.keySet());
        asked.putAll(consumer.committed(asked.keySet(), Duration.ofSeconds(30)));
        asked.forEach((at, found) -> kept.put(at.partition(), found == null ? 0 : found.offset()));
        rewind();
    }

    /** Go back to the positions at which the transaction began: the consumer does not go back by itself. */
    private void rewind() {
        next.putAll(kept);
        fetched.clear();
        next.forEach((number, offset) -> consumer.seek(place(number), offset));
    }

    private void sendOffsets() {
        ObjectNode columns = columns().put("topic", work.get("source").asText()).put("group", work.get("group").asText());
        ObjectNode told = columns.withObject("/detail").withObject("/offsets");
        next.forEach((number, offset) -> told.put(number.toString(), offset));
        call("SendOffsetsToTransaction", columns,
                () -> producer.sendOffsetsToTransaction(offsets(), consumer.groupMetadata()));
        mayPause("send_offsets");
    }

    /** Send records in the transaction, and the source's offsets after them. */
    private void copy(List<String> values) throws InterruptedException {
        for (String value : values) {
            send(value);
            if (sent % work.get("batch").asInt() == 0) {
                Thread.sleep(work.get("pause_ms").asLong());
            }
        }
        mayPause("produce");
        producer.flush();
        mayPause("flush");
        if (consumer != null) {
            sendOffsets();
        }
    }

    private void transact(List<String> values, boolean abort) throws InterruptedException {
        copy(values);
        for (int sends = work.get("transaction_size").asInt(); eachOffset() && sends > 1; sends--) {
            copy(values());
        }
        if (abort) {
            abort();
            return;
        }
        call("CommitTransaction", columns(), producer::commitTransaction);
        kept.putAll(next);
        mayPause("commit");
    }

    private void abort() {
        call("AbortTransaction", columns(), producer::abortTransaction);
        if (consumer != null) {
            rewind();
        }
    }

    private void run() throws InterruptedException {
        Random dice = new Random(work.get("seed").asLong());
        producer.initTransactions();
        mayPause("init");
        if (consumer != null) {
            beginSource();
        }
        for (List<String> values = values(); !values.isEmpty(); values = values()) {
            call("BeginTransaction", columns(), producer::beginTransaction);
            mayPause("begin");
            try {
                transact(values, dice.nextDouble() < work.get("abort_chance").asDouble());
            } catch (MustAbort failed) {
                abort();
            }
            transaction++;
        }
    }

    /** Run a workload given as JSON; exit code 0, or FATAL_EXIT when the producer met a fatal error. */
    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // what libraries say is no event
        try {
            new TransactionalClient(JSON.readTree(arguments[0])).run();
        } catch (GaveUp | MustAbort | KafkaException failure) {
            failure.printStackTrace();
            System.exit(FATAL_EXIT);
        }
        System.exit(0);
    }
}
