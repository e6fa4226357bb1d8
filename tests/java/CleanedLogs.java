import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Function;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Compacted logs as Kafka's log and its cleaner write them, one step for each line of standard input:
 * "new" FOLDER RETENTION-MS of markers and tombstones, "append" BATCH-IN-HEX, "marker" PID EPOCH COMMIT
 * COORDINATOR-EPOCH VERSION, "roll" to the next segment, "clean", "wait" MS, "restart" CLEAN, where an unclean one may
 * lack snapshots. At the end cleaner-offset-checkpoint is written next to the folders.
 */
public final class CleanedLogs {
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, Long> CLEANED = new LinkedHashMap<>();
    private static long now;
    private static Path folder;
    private static LogConfig config;
    private static UnifiedLog log;
    private static long cleaned;
    private static final Time TIME =
            made(Time.class, name -> name.equals("nanoseconds") ? now * 1_000_000 : (Object) now);
    private static final Scheduler NEVER = made(Scheduler.class,
            name -> name.startsWith("schedule") ? made(ScheduledFuture.class, any -> true) : null);

    private static <T> T made(Class<T> type, Function<String, Object> answers) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                (self, method, given) -> answers.apply(method.getName())));
    }

    private static void load(boolean clean) throws IOException {
        log = UnifiedLog.create(folder.toFile(), config, 0, clean && log != null ? log.logEndOffset() : 0, NEVER,
                new BrokerTopicStats(), TIME, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                new LogDirFailureChannel(1), clean, Optional.empty());
        replicate();
    }

    private static void replicate() throws IOException {
        log.maybeIncrementHighWatermark(new LogOffsetMetadata(log.logEndOffset()));
    }

    private static void close() throws IOException {
        log.flush(true);
        log.close();
        if (cleaned > 0) CLEANED.put(folder.getFileName().toString().replaceFirst("-0$", ""), cleaned);
    }

    private static void append(MemoryRecords records, AppendOrigin origin, String version) throws IOException {
        log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                Short.parseShort(version));
        replicate();
    }

    private static void step(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> {
                if (log != null) close();
                folder = Path.of(words[1]);
                config = new LogConfig(Map.of("cleanup.policy", "compact", "delete.retention.ms", words[2],
                        "index.interval.bytes", "200"));
                cleaned = 0;
                log = null;
                load(true);
            }
            case "append" -> append(MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[1]))),
                    AppendOrigin.CLIENT, "1");
            case "marker" -> {
                ControlRecordType type = words[3].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
                append(MemoryRecords.withEndTransactionMarker(now, Long.parseLong(words[1]), Short.parseShort(words[2]),
                        new EndTransactionMarker(type, Integer.parseInt(words[4]))), AppendOrigin.COORDINATOR, words[5]);
            }
            case "roll" -> log.roll();
            case "clean" -> {
                long end = Math.min(log.activeSegment().baseOffset(), log.lastStableOffset());
                LogToClean next = end > cleaned ? new LogToClean(log, cleaned, end, true) : null;
                if (next == null || next.cleanableBytes() == 0) return;
                Throttler unlimited = new Throttler(Double.MAX_VALUE, 1_000, "throttler", "bytes", TIME);
                cleaned = new Cleaner(0, new SkimpyOffsetMap(1 << 16), 1 << 16, 1 << 20, 0.75, unlimited, TIME, any -> { })
                        .clean(next).getKey();
            }
            case "wait" -> now += Long.parseLong(words[1]);
            case "restart" -> {
                boolean clean = words[1].equals("1");
                log.flush(true);
                log.close();
                for (File file : folder.toFile().listFiles((in, name) -> !clean && name.endsWith(".snapshot"))) file.delete();
                load(clean);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        now = Long.parseLong(arguments[0]);
        PrintStream done = System.out;
        System.setOut(System.err); // what Kafka logs
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) step(line.split(" "));
        close();
        StringBuilder text = new StringBuilder("0\n" + CLEANED.size() + "\n");
        CLEANED.forEach((topic, offset) -> text.append(topic).append(" 0 ").append(offset).append('\n'));
        Files.writeString(folder.resolveSibling("cleaner-offset-checkpoint"), text);
        done.println(CLEANED.size());
        System.exit(0); // without waiting for threads
    }
}
