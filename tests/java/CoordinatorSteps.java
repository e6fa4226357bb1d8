import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.coordinator.transaction.TransactionConfig;
import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.coordinator.transaction.TransactionMarkerChannelManager;
import kafka.coordinator.transaction.TransactionStateManager;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.KafkaClient;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceResponse.PartitionResponse;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.transaction.ProducerIdManager;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.common.FinalizedFeatures;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.util.InterBrokerSendThread;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationStats;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.Function1;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * Kafka's transaction coordinator with one transactional id, one step for each line of standard input:
 * "new" VERSION EPOCH, a coordinator that knows the id at rest with this epoch, or not at all (-1);
 * "init" PID EPOCH, "add" PID EPOCH PARTITION VERSION, "end" PID EPOCH COMMIT VERSION; "timeout" of the transaction;
 * "done" or "fails", the append to its log; "marked" PARTITION; "retry" of the append that completes a transaction;
 * "failover" KEPT, of the records that are not replicated. Steps after " / " come between the two halves of a fence.
 * The answer has those of requests as ERROR:PID:EPOCH; then "|" and the metadata.
 */
public final class CoordinatorSteps {
    private static final String ID = "t";
    private static final int TRANSACTION_MS = 60_000;
    private static final RequestLocal LOCAL = RequestLocal.noCaching();
    private static final List<ByteBuffer> WRITTEN = new ArrayList<>();
    private static final List<String> ANSWERS = new ArrayList<>();
    private static long now;
    private static long nextProducerId;
    private static short version;
    private static int replicated;
    private static int coordinatorEpoch;
    private static String[] between;
    private static Replicas replicas;
    private static TransactionStateManager states;
    private static TransactionMarkerChannelManager markers;
    private static TransactionCoordinator coordinator;

    /** The log of the coordinator: an append waits until a step says how it ends. Its constructor never runs. */
    private static class Replicas extends ReplicaManager {
        private Function1<Map<TopicIdPartition, PartitionResponse>, BoxedUnit> pending;
        private TopicIdPartition partition;
        private UnifiedLog log;

        Replicas() {
            super(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                    null, null, null, null);
        }

        @Override
        public TopicIdPartition topicIdPartition(TopicPartition named) {
            return new TopicIdPartition(Uuid.ONE_UUID, named);
        }

        @Override
        public void appendRecords(long timeout, short acks, boolean internal, AppendOrigin origin,
                scala.collection.Map<TopicIdPartition, MemoryRecords> records,
                Function1<Map<TopicIdPartition, PartitionResponse>, BoxedUnit> callback,
                Function1<scala.collection.Map<TopicIdPartition, RecordValidationStats>, BoxedUnit> validated,
                RequestLocal local, scala.collection.Map<TopicPartition, VerificationGuard> guards, short of) {
            if (pending != null) throw new AssertionError("two appends at a time");
            pending = callback;
            partition = records.head()._1();
            WRITTEN.add(copy(records.head()._2().buffer()));
        }

        private void end(Errors error) {
            Function1<Map<TopicIdPartition, PartitionResponse>, BoxedUnit> callback = pending;
            pending = null;
            callback.apply(Map.of(partition, new PartitionResponse(error, 0, -1, 0)));
        }

        @Override
        public Option<UnifiedLog> getLog(TopicPartition named) {
            return Option.apply(log);
        }

        @Override
        public Option<Object> getLogEndOffset(TopicPartition named) {
            return Option.apply(log.logEndOffset());
        }
    }

    private static ByteBuffer copy(ByteBuffer data) {
        ByteBuffer copied = ByteBuffer.allocate(data.remaining());
        copied.put(data.duplicate());
        return copied.flip();
    }

    private static <T> T made(Class<T> type, Function<String, Object> answers) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, given) ->
                method.isDefault() ? InvocationHandler.invokeDefault(self, method, given)
                        : answers.apply(method.getName())));
    }

    private static Replicas withoutConstructor() throws ReflectiveOperationException {
        Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        return (Replicas) ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(Replicas.class);
    }

    private static final Time TIME = made(Time.class, name -> now);
    private static final Scheduler AT_ONCE = (Scheduler) Proxy.newProxyInstance(Scheduler.class.getClassLoader(),
            new Class<?>[] {Scheduler.class}, (self, method, given) -> {
                if (method.getName().startsWith("schedule")) ((Runnable) given[1]).run();
                return null;
            });
    private static final Scheduler NEVER = made(Scheduler.class,
            name -> name.startsWith("schedule") ? made(ScheduledFuture.class, any -> true) : null);
    private static final MetadataCache CACHE = made(MetadataCache.class, name -> switch (name) {
        case "features" -> {
            comeBetween();
            yield new FinalizedFeatures(MetadataVersion.latestProduction(), Map.of("transaction.version", version), 0);
        }
        case "getPartitionLeaderEndpoint" -> Optional.of(new Node(1, "localhost", 1));
        case "contains" -> true;
        default -> null;
    });

    /** Take the steps that come between the halves of a fence: the coordinator asks for the features there. */
    private static void comeBetween() {
        TransactionMetadata metadata = between == null ? null : metadata();
        if (metadata == null || !metadata.pendingState().equals(Optional.of(TransactionState.PREPARE_EPOCH_FENCE))) return;
        String[] steps = between;
        between = null;
        for (String step : steps) take(step);
    }

    private static void begin(short level, short epoch) throws Exception {
        version = level;
        nextProducerId = replicated = coordinatorEpoch = 0;
        WRITTEN.clear();
        replicas = withoutConstructor();
        Properties properties = new Properties();
        properties.putAll(Map.of("process.roles", "broker", "node.id", "1", "controller.quorum.voters", "9@localhost:9",
                "controller.listener.names", "C", "listeners", "PLAINTEXT://localhost:1",
                "listener.security.protocol.map", "C:PLAINTEXT,PLAINTEXT:PLAINTEXT"));
        TransactionConfig config = new TransactionConfig(Integer.MAX_VALUE, 900_000, 1, (short) 1, 1 << 20, 1, 1,
                Integer.MAX_VALUE, Integer.MAX_VALUE, false, 30_000);
        states = new TransactionStateManager(1, AT_ONCE, replicas, CACHE, config, TIME, new Metrics());
        markers = new TransactionMarkerChannelManager(KafkaConfig.fromProps(properties), CACHE, null, states, TIME);
        Field client = InterBrokerSendThread.class.getDeclaredField("networkClient");
        client.setAccessible(true);
        client.set(markers, made(KafkaClient.class, name -> null));
        coordinator = new TransactionCoordinator(config, AT_ONCE, () -> (ProducerIdManager) () -> nextProducerId++,
                states, markers, TIME, new LogContext());
        states.startup(() -> 1, false);
        Method active = TransactionCoordinator.class.getDeclaredMethod("isActive"); // startup would begin to send
        active.setAccessible(true);
        ((AtomicBoolean) active.invoke(coordinator)).set(true);
        states.addLoadedTransactionsToCache(0, coordinatorEpoch, new ConcurrentHashMap<>());
        if (epoch >= 0) {
            states.putTransactionStateIfNotExists(new TransactionMetadata(ID, nextProducerId++, -1, -1, epoch, (short) -1,
                    TRANSACTION_MS, TransactionState.EMPTY, new HashSet<>(), -1, now, TransactionVersion.TV_0));
        }
    }

    private static void failOver(int kept) throws IOException {
        states.removeTransactionsForTxnTopicPartition(0, coordinatorEpoch);
        markers.removeMarkersForTxnTopicPartition(0);
        if (replicas.pending != null) replicas.end(Errors.NOT_LEADER_OR_FOLLOWER);
        WRITTEN.subList(replicated + kept, WRITTEN.size()).clear();
        Path folder = Files.createTempDirectory("coordinator");
        Path own = Files.createDirectory(folder.resolve("__transaction_state-0"));
        replicas.log = UnifiedLog.create(own.toFile(), new LogConfig(Map.of()), 0, 0, NEVER, new BrokerTopicStats(), TIME,
                900_000, new ProducerStateManagerConfig(60_000, true), 60_000, new LogDirFailureChannel(1), true,
                Optional.empty());
        for (ByteBuffer data : WRITTEN) {
            replicas.log.appendAsLeader(MemoryRecords.readableRecords(copy(data)), 0, AppendOrigin.COORDINATOR);
        }
        coordinator.onElection(0, ++coordinatorEpoch);
        replicas.log.close();
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    private static BoxedUnit answer(Errors error, Object producerId, Object epoch) {
        ANSWERS.add(error.code() + ":" + producerId + ":" + epoch);
        return BoxedUnit.UNIT;
    }

    private static TransactionMetadata metadata() {
        var known = states.getTransactionState(ID).toOption().get();
        return known.isEmpty() ? null : known.get().transactionMetadata();
    }

    private static void step(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> begin(Short.parseShort(words[1]), Short.parseShort(words[2]));
            case "init" -> {
                ProducerIdAndEpoch named = new ProducerIdAndEpoch(Long.parseLong(words[1]), Short.parseShort(words[2]));
                Option<ProducerIdAndEpoch> expected = named.producerId < 0 ? Option.empty() : Option.apply(named);
                coordinator.handleInitProducerId(ID, TRANSACTION_MS, false, false, expected,
                        given -> answer(given.error(), given.producerId(), given.producerEpoch()), LOCAL);
            }
            case "add" -> coordinator.handleAddPartitionsToTransaction(ID, Long.parseLong(words[1]),
                    Short.parseShort(words[2]), new HashSet<>(Set.of(new TopicPartition(words[3], 0))),
                    error -> answer(error, -1, -1), TransactionVersion.fromFeatureLevel(Short.parseShort(words[4])), LOCAL);
            case "end" -> coordinator.handleEndTransaction(ID, Long.parseLong(words[1]), Short.parseShort(words[2]),
                    words[3].equals("1") ? TransactionResult.COMMIT : TransactionResult.ABORT,
                    TransactionVersion.fromFeatureLevel(Short.parseShort(words[4])),
                    CoordinatorSteps::answer, LOCAL);
            case "timeout" -> {
                now += TRANSACTION_MS + 1;
                coordinator.abortTimedOutTransactions(of -> (error, producerId, epoch) -> BoxedUnit.UNIT);
            }
            case "done" -> {
                replicated = WRITTEN.size();
                replicas.end(Errors.NONE);
            }
            case "fails" -> replicas.end(Errors.NOT_ENOUGH_REPLICAS);
            case "marked" -> {
                TransactionMetadata metadata = metadata();
                metadata.inLock(() -> {
                    metadata.removePartition(new TopicPartition(words[1], 0));
                    return null;
                });
                markers.maybeWriteTxnCompletion(ID);
            }
            case "retry" -> markers.generateRequests();
            case "failover" -> failOver(Integer.parseInt(words[1]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void take(String step) {
        try {
            step(step.split(" "));
        } catch (IllegalStateException wrong) { // KafkaApis answers it
            answer(Errors.forException(wrong), -1, -1);
        } catch (Exception wrong) {
            throw new AssertionError(step, wrong);
        }
    }

    private static String state() throws ReflectiveOperationException {
        TransactionMetadata metadata = metadata();
        if (metadata == null) return "unknown";
        Field next = TransactionMetadata.class.getDeclaredField("nextProducerId");
        next.setAccessible(true);
        String partitions =
                metadata.topicPartitions().stream().map(TopicPartition::topic).sorted().collect(Collectors.joining("+"));
        return Stream.of(metadata.producerId(), metadata.prevProducerId(), next.get(metadata), metadata.producerEpoch(),
                        metadata.lastProducerEpoch(), metadata.state(),
                        metadata.pendingState().map(TransactionState::toString).orElse("-"), partitions,
                        Math.max(1, metadata.clientTransactionVersion().featureLevel()), metadata.hasFailedEpochFence(),
                        replicas.pending != null)
                .map(String::valueOf).collect(Collectors.joining(":"));
    }

    public static void main(String[] arguments) throws Exception {
        now = Long.parseLong(arguments[0]);
        PrintStream answers = System.out;
        System.setOut(System.err); // what Kafka logs
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ANSWERS.clear();
            String[] steps = line.split(" / ");
            between = steps.length > 1 ? Arrays.copyOfRange(steps, 1, steps.length) : null;
            take(steps[0]);
            answers.println(String.join(",", ANSWERS) + " | " + state());
        }
        System.exit(0); // without waiting for threads
    }
}
