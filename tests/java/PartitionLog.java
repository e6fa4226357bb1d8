import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's log of a partition at its leader, one step for each line of standard input:
 * "new" log, "wait" MS, "expire" producers, "verify" PID EPOCH SEQUENCE VERSION,
 * "append" BATCH-IN-HEX VERSION GUARD ORIGIN, where a guard is the number of a "verify" of this log or -1,
 * "marker" PID EPOCH COMMIT COORDINATOR-EPOCH VERSION, "read" OFFSET COMMITTED; of a follower: "follow" a response
 * with BATCHES-IN-HEX, "watermark" OFFSET, "restart" after a clean end.
 * The answer has what the step returns, or "error" and its code; then "|", the log's end, its last stable offset,
 * each known producer as ID:EPOCH:LAST-SEQUENCE:COORDINATOR-EPOCH:FIRST-OFFSET-OF-ITS-TRANSACTION, and each entry of
 * the index of aborted transactions as ID:FIRST-OFFSET:LAST-OFFSET:LAST-STABLE-OFFSET.
 */
public final class PartitionLog {
    private static final int MAX_BYTES = 1 << 20;
    private static final int EXPIRATION_MS = 60_000;
    private static final HexFormat HEX = HexFormat.of();
    private static final Time TIME = made(Time.class, name -> PartitionLog.now);
    private static final Scheduler SCHEDULER = made(Scheduler.class,
            name -> name.startsWith("schedule") ? made(ScheduledFuture.class, any -> true) : null);
    private static long now;
    private static Path folder;
    private static UnifiedLog log;
    private static final List<VerificationGuard> GUARDS = new ArrayList<>();

    private static <T> T made(Class<T> type, Function<String, Object> answers) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                (self, method, given) -> answers.apply(method.getName())));
    }

    private static void open() throws IOException {
        close();
        GUARDS.clear();
        folder = Files.createTempDirectory("partition-log");
        Files.createDirectory(folder.resolve("t-0"));
        log = load();
    }

    private static UnifiedLog load() throws IOException {
        return UnifiedLog.create(folder.resolve("t-0").toFile(), new LogConfig(Map.of()), 0, 0, SCHEDULER,
                new BrokerTopicStats(), TIME, 900_000, new ProducerStateManagerConfig(EXPIRATION_MS, true),
                EXPIRATION_MS, new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static void close() throws IOException {
        if (log == null) return;
        log.close();
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    private static LogAppendInfo append(MemoryRecords records, AppendOrigin origin, int guard, String version)
            throws IOException {
        VerificationGuard shown = guard < 0 ? VerificationGuard.SENTINEL : GUARDS.get(guard);
        LogAppendInfo appended =
                log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(), shown, Short.parseShort(version));
        log.maybeIncrementHighWatermark(new LogOffsetMetadata(log.logEndOffset()));
        return appended;
    }

    private static String step(String[] words) throws IOException {
        switch (words[0]) {
            case "new":
                open();
                return "ok";
            case "wait":
                now += Long.parseLong(words[1]);
                return "ok";
            case "expire":
                log.removeExpiredProducers(now);
                return "ok";
            case "verify":
                GUARDS.add(null);
                VerificationGuard guard = log.maybeStartTransactionVerification(Long.parseLong(words[1]),
                        Integer.parseInt(words[3]), Short.parseShort(words[2]), words[4].equals("2"));
                GUARDS.set(GUARDS.size() - 1, guard);
                return guard == VerificationGuard.SENTINEL ? "none" : "asked";
            case "append":
                MemoryRecords batch = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[1])));
                return "at " + append(batch, AppendOrigin.valueOf(words[4]), Integer.parseInt(words[3]), words[2])
                        .firstOffset();
            case "marker":
                ControlRecordType type = words[3].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
                MemoryRecords marker = MemoryRecords.withEndTransactionMarker(now, Long.parseLong(words[1]),
                        Short.parseShort(words[2]), new EndTransactionMarker(type, Integer.parseInt(words[4])));
                return "at " + append(marker, AppendOrigin.COORDINATOR, -1, words[5]).firstOffset();
            case "follow":
                log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[1]))), 0);
                return "ok";
            case "watermark":
                log.updateHighWatermark(Long.parseLong(words[1]));
                return "ok";
            case "restart":
                long watermark = log.highWatermark();
                log.close();
                log = load();
                log.updateHighWatermark(watermark);
                return "ok";
            case "read":
                FetchIsolation isolation =
                        words[2].equals("1") ? FetchIsolation.TXN_COMMITTED : FetchIsolation.HIGH_WATERMARK;
                FetchDataInfo found = log.read(Long.parseLong(words[1]), MAX_BYTES, isolation, true);
                long last = -1;
                for (RecordBatch each : found.records.batches()) last = each.lastOffset();
                return "up to " + last + " " + found.abortedTransactions.orElse(List.of()).stream()
                        .map(each -> each.producerId() + ":" + each.firstOffset()).collect(Collectors.joining(","));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static int lastSequence(ProducerStateEntry producer) {
        int last = -1;
        for (BatchMetadata batch : producer.batchMetadata()) last = batch.lastSeq();
        return last;
    }

    private static String state() throws IOException {
        String producers = new TreeMap<>(log.producerStateManager().activeProducers()).values().stream()
                .map(each -> each.producerId() + ":" + each.producerEpoch() + ":" + lastSequence(each) + ":"
                        + each.coordinatorEpoch() + ":" + each.currentTxnFirstOffset().orElse(-1))
                .collect(Collectors.joining(","));
        String index = log.logSegments().stream().flatMap(each -> each.txnIndex().allAbortedTxns().stream())
                .map(each -> each.producerId() + ":" + each.firstOffset() + ":" + each.lastOffset() + ":"
                        + each.lastStableOffset())
                .collect(Collectors.joining(","));
        return log.logEndOffset() + " " + log.lastStableOffset() + " " + producers + " " + index;
    }

    public static void main(String[] arguments) throws IOException {
        now = Long.parseLong(arguments[0]);
        PrintStream answers = System.out;
        System.setOut(System.err); // what Kafka logs
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = step(line.split(" "));
            } catch (RuntimeException refused) {
                answer = "error " + Errors.forException(refused).code();
            }
            answers.println(answer + " | " + state());
        }
        close();
    }
}
