import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.OffsetDeleteRequestData;
import org.apache.kafka.common.message.OffsetFetchRequestData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Group;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.GroupMetadataManager;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Kafka's group coordinator with its partition of __consumer_offsets, one step for each line of standard input:
 * an API, its version and the request as JSON; "marker" PID COMMIT; "wait" MS; "reload" of the whole log;
 * "new" or "topics" with the partitions and ids of topics as JSON, of which those that are no more are deleted.
 * The nth member id that it gives is "@n" to whoever reads it.
 * The answer has, as JSON, those to requests, the records that were written, and the state.
 */
public final class GroupOffsets {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    private static final long NO_PRODUCER = -1;
    private static final Set<String> PERIODIC = Set.of("expire-group-metadata", "group-size-counter");

    private record Entry(byte[] key, byte[] value, long producerId, TransactionResult marker) {}

    private record Due(long at, boolean retries, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> task) {}

    private record Waiting(String api, CompletableFuture<?> future) {}

    private static final List<Entry> LOG = new ArrayList<>();
    private static final Map<String, Due> TIMERS = new HashMap<>();
    private static final List<Waiting> WAITING = new ArrayList<>();
    private static final List<List<Object>> ANSWERS = new ArrayList<>();
    private static final List<List<Object>> WRITTEN = new ArrayList<>();
    private static final List<String> IDS = new ArrayList<>();
    private static final Map<String, Uuid> TOPICS = new TreeMap<>();
    @SuppressWarnings("unchecked")
    private static final CoordinatorExecutor<CoordinatorRecord> NO_EXECUTOR =
            made(CoordinatorExecutor.class, name -> false);
    private static final Time TIME = made(Time.class, name -> GroupOffsets.now);
    private static long started;
    private static long now;
    private static MetadataImage image;
    private static SnapshotRegistry snapshots;
    private static GroupCoordinatorShard shard;

    private static <T> T made(Class<T> type, Function<String, Object> answers) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                (self, method, given) -> answers.apply(method.getName())));
    }

    private static final class Timers implements CoordinatorTimer<CoordinatorRecord> {
        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry,
                TimeoutOperation<CoordinatorRecord> task) {
            if (!PERIODIC.contains(key)) TIMERS.put(key, new Due(now + unit.toMillis(delay), retry, task));
        }

        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff,
                TimeoutOperation<CoordinatorRecord> task) {
            schedule(key, delay, unit, retry, task);
        }

        @Override
        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
                TimeoutOperation<CoordinatorRecord> task) {
            if (!TIMERS.containsKey(key)) schedule(key, delay, unit, retry, task);
        }

        @Override
        public void cancel(String key) {
            TIMERS.remove(key);
        }

        @Override
        public boolean isScheduled(String key) {
            return TIMERS.containsKey(key);
        }
    }

    private static AuthorizableRequestContext context(short version) throws Exception {
        InetAddress host = InetAddress.getByName("127.0.0.1");
        return made(AuthorizableRequestContext.class, name -> switch (name) {
            case "requestVersion" -> (int) version;
            case "clientId" -> "client";
            case "clientAddress" -> host;
            default -> null;
        });
    }

    private static void load() throws Exception {
        TIMERS.clear();
        WAITING.clear();
        Map<String, Object> given = Map.of("group.initial.rebalance.delay.ms", 0, "group.consumer.heartbeat.interval.ms", 5_000,
                "group.consumer.assignment.interval.ms", 0, "group.consumer.min.assignment.interval.ms", 0,
                "group.consumer.assignor.offload.enable", false);
        GroupCoordinatorConfig config = new GroupCoordinatorConfig(
                new AbstractConfig(GroupCoordinatorConfig.CONFIG_DEF, given, false));
        LogContext words = new LogContext();
        snapshots = new SnapshotRegistry(words);
        GroupCoordinatorShard.Builder builder = new GroupCoordinatorShard.Builder(config,
                new GroupConfigManager(Map.of(), config, ShareGroupConfig.fromProps(Map.of())));
        builder.withAuthorizerPlugin(Optional.empty());
        shard = (GroupCoordinatorShard) builder.withLogContext(words).withSnapshotRegistry(snapshots).withTime(TIME)
                .withTimer(new Timers()).withExecutor(NO_EXECUTOR).withCoordinatorMetrics(new GroupCoordinatorMetrics())
                .withTopicPartition(new TopicPartition("__consumer_offsets", 0)).build();
        for (int offset = 0; offset < LOG.size(); offset++) replay(offset, LOG.get(offset));
        shard.onLoaded(new KRaftCoordinatorMetadataImage(image));
        commit();
    }

    private static void replay(long offset, Entry entry) {
        if (entry.marker != null) shard.replayEndTransactionMarker(entry.producerId, (short) 0, entry.marker);
        else {
            ByteBuffer value = entry.value == null ? null : ByteBuffer.wrap(entry.value);
            shard.replay(offset, entry.producerId, (short) 0, SERDE.deserialize(ByteBuffer.wrap(entry.key), value));
        }
    }

    /** All that is written is replicated. */
    private static void commit() {
        snapshots.deleteSnapshotsUpTo(LOG.size());
        snapshots.idempotentCreateSnapshot(LOG.size());
    }

    private static <T> T write(CoordinatorResult<T, CoordinatorRecord> result, long producerId) {
        for (CoordinatorRecord each : result.records()) {
            Entry entry = new Entry(SERDE.serializeKey(each), SERDE.serializeValue(each), producerId, null);
            if (result.replayRecords()) replay(LOG.size(), entry);
            LOG.add(entry);
            WRITTEN.add(List.of(HEX.formatHex(entry.key), entry.value == null ? "" : HEX.formatHex(entry.value)));
        }
        if (result.appendFuture() != null) result.appendFuture().complete(null);
        commit();
        return result.response();
    }

    private static <T> T write(CoordinatorResult<T, CoordinatorRecord> result) {
        return write(result, NO_PRODUCER);
    }

    private static void runUntil(long end) {
        while (true) {
            Optional<Map.Entry<String, Due>> next = TIMERS.entrySet().stream().filter(each -> each.getValue().at <= end)
                    .min((one, other) -> Long.compare(one.getValue().at, other.getValue().at));
            if (next.isEmpty()) break;
            now = Math.max(now, next.get().getValue().at);
            TIMERS.remove(next.get().getKey());
            write(next.get().getValue().task.generateRecords());
        }
        now = end;
    }

    /** Name the topics, as the broker does before it asks the coordinator. */
    private static void setTopics(JsonNode given) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        Map<String, Uuid> before = new TreeMap<>(TOPICS);
        List<GroupCoordinatorShard.DeletedTopic> deleted = new ArrayList<>();
        TOPICS.clear();
        given.properties()
                .forEach(each -> TOPICS.put(each.getKey(), Uuid.fromString(each.getValue().get(1).asText())));
        before.forEach((name, id) -> {
            if (id.equals(TOPICS.get(name))) return;
            delta.replay(new RemoveTopicRecord().setTopicId(id));
            deleted.add(new GroupCoordinatorShard.DeletedTopic(id, name));
        });
        MetadataImage without = delta.apply(MetadataProvenance.EMPTY);
        MetadataDelta more = new MetadataDelta.Builder().setImage(without).build();
        TOPICS.forEach((name, id) -> {
            if (id.equals(before.get(name))) return;
            more.replay(new TopicRecord().setName(name).setTopicId(id));
            for (int number = 0; number < given.get(name).get(0).asInt(); number++) {
                more.replay(new PartitionRecord().setTopicId(id).setPartitionId(number).setReplicas(List.of(1))
                        .setIsr(List.of(1)).setLeader(1).setDirectories(List.of(Uuid.ONE_UUID)));
            }
        });
        MetadataImage with = more.apply(MetadataProvenance.EMPTY);
        image = with;
        if (shard == null) return;
        shard.onMetadataUpdate(new KRaftCoordinatorMetadataDelta(delta), new KRaftCoordinatorMetadataImage(without));
        if (!deleted.isEmpty()) write(shard.onTopicsDeleted(deleted));
        shard.onMetadataUpdate(new KRaftCoordinatorMetadataDelta(more), new KRaftCoordinatorMetadataImage(with));
    }

    private static String nameOf(Uuid id) {
        return TOPICS.entrySet().stream().filter(each -> each.getValue().equals(id)).map(Map.Entry::getKey).findFirst()
                .orElse("");
    }

    private static void ask(String api, short version, String json) throws Exception {
        Object request = Class.forName("org.apache.kafka.common.message." + api + "RequestDataJsonConverter")
                .getMethod("read", JsonNode.class, short.class).invoke(null, JSON.readTree(json), version);
        AuthorizableRequestContext context = context(version);
        List<Object> answer = new ArrayList<>();
        switch (api) {
            case "OffsetCommit" -> {
                OffsetCommitRequestData data = (OffsetCommitRequestData) request;
                data.topics().forEach(each -> {
                    if (version >= 10) each.setName(nameOf(each.topicId()));
                    else each.setTopicId(TOPICS.get(each.name()));
                });
                write(shard.commitOffset(context, data)).topics().forEach(topic -> topic.partitions().forEach(
                        each -> answer.add(List.of(topic.name(), each.partitionIndex(), each.errorCode()))));
            }
            case "TxnOffsetCommit" -> {
                TxnOffsetCommitRequestData data = (TxnOffsetCommitRequestData) request;
                write(shard.commitTransactionalOffset(context, data), data.producerId()).topics().forEach(
                        topic -> topic.partitions().forEach(
                                each -> answer.add(List.of(topic.name(), each.partitionIndex(), each.errorCode()))));
            }
            case "OffsetFetch" -> {
                OffsetFetchRequestData data = (OffsetFetchRequestData) request;
                long upTo = data.requireStable() ? Long.MAX_VALUE : LOG.size();
                for (var group : data.groups()) {
                    if (group.topics() != null && version >= 10) {
                        group.topics().forEach(each -> each.setName(nameOf(each.topicId())));
                    }
                    shard.fetchOffsets(group, upTo).topics().forEach(topic -> topic.partitions().forEach(
                            each -> answer.add(List.of(topic.name(), each.partitionIndex(), each.committedOffset(),
                                    each.committedLeaderEpoch(), each.metadata(), each.errorCode()))));
                }
            }
            case "OffsetDelete" -> write(shard.deleteOffsets(context, (OffsetDeleteRequestData) request)).topics()
                    .forEach(topic -> topic.partitions().forEach(
                            each -> answer.add(List.of(topic.name(), each.partitionIndex(), each.errorCode()))));
            case "DeleteGroups" -> {
                List<String> names = new ArrayList<>();
                JSON.readTree(json).get("groupsNames").forEach(each -> names.add(each.asText()));
                write(shard.deleteGroups(context, names))
                        .forEach(each -> answer.add(List.of(each.groupId(), each.errorCode())));
            }
            case "JoinGroup" -> {
                CompletableFuture<JoinGroupResponseData> future = new CompletableFuture<>();
                WAITING.add(new Waiting(api, future));
                write(shard.classicGroupJoin(context, (JoinGroupRequestData) request, future));
                return;
            }
            case "SyncGroup" -> {
                CompletableFuture<SyncGroupResponseData> future = new CompletableFuture<>();
                WAITING.add(new Waiting(api, future));
                write(shard.classicGroupSync(context, (SyncGroupRequestData) request, future));
                return;
            }
            case "Heartbeat" ->
                    answer.add(write(shard.classicGroupHeartbeat(context, (HeartbeatRequestData) request)).errorCode());
            case "LeaveGroup" -> write(shard.classicGroupLeave(context, (LeaveGroupRequestData) request)).members()
                    .forEach(each -> answer.add(each.errorCode()));
            case "ConsumerGroupHeartbeat" -> {
                var beat = write(shard.consumerGroupHeartbeat(context, (ConsumerGroupHeartbeatRequestData) request));
                answer.addAll(List.of(beat.errorCode(), beat.memberEpoch()));
            }
            default -> throw new IllegalArgumentException(api);
        }
        answer.add(0, api);
        ANSWERS.add(answer);
    }

    private static void step(String line) throws Exception {
        String[] words = line.split(" ", 3);
        switch (words[0]) {
            case "new" -> {
                now = started;
                LOG.clear();
                IDS.clear();
                TOPICS.clear();
                shard = null;
                image = MetadataImage.EMPTY;
                setTopics(JSON.readTree(words[1]));
                load();
            }
            case "topics" -> setTopics(JSON.readTree(words[1]));
            case "wait" -> runUntil(now + Long.parseLong(words[1]));
            case "reload" -> load();
            case "marker" -> {
                TransactionResult result = words[2].equals("1") ? TransactionResult.COMMIT : TransactionResult.ABORT;
                Entry marker = new Entry(null, null, Long.parseLong(words[1]), result);
                replay(LOG.size(), marker);
                LOG.add(marker);
                commit();
            }
            default -> {
                String json = words[2];
                for (int number = IDS.size() - 1; number >= 0; number--) {
                    json = json.replace("\"@" + number + "\"", "\"" + IDS.get(number) + "\"");
                }
                ask(words[0], Short.parseShort(words[1]), json);
            }
        }
    }

    /** Answers to requests that had to wait. */
    private static void hear() throws Exception {
        List<String> ids = new ArrayList<>();
        for (Waiting each : List.copyOf(WAITING)) {
            if (!each.future.isDone()) continue;
            WAITING.remove(each);
            if (each.future.get() instanceof JoinGroupResponseData joined) {
                if (!joined.memberId().isEmpty() && !IDS.contains(joined.memberId())) ids.add(joined.memberId());
                ANSWERS.add(List.of(each.api, joined.errorCode(), joined.generationId(), joined.memberId()));
            } else {
                ANSWERS.add(List.of(each.api, ((SyncGroupResponseData) each.future.get()).errorCode()));
            }
        }
        ids.sort(null);
        IDS.addAll(ids);
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found.get(of);
    }

    @SuppressWarnings("unchecked")
    private static void offsets(String producer, Object offsets, Map<String, Object> told) throws Exception {
        ((Map<String, Map<String, Map<Integer, OffsetAndMetadata>>>) field(offsets, "offsetsByGroup")).forEach(
                (group, topics) -> topics.forEach((topic, partitions) -> partitions.forEach((number, each) ->
                        told.put(producer + group + " " + topic + "-" + number, List.of(each.committedOffset,
                                each.leaderEpoch.orElse(-1), each.metadata, each.commitTimestampMs, each.recordOffset,
                                nameOf(each.topicId))))));
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> state() throws Exception {
        Object manager = field(shard, "offsetMetadataManager");
        GroupMetadataManager members = (GroupMetadataManager) field(shard, "groupMetadataManager");
        Map<String, Object> groups = new TreeMap<>(), committed = new TreeMap<>(), pending = new TreeMap<>();
        for (String each : ((Map<String, Group>) field(members, "groups")).keySet()) {
            Group group = members.group(each);
            groups.put(each, List.of(group.type().toString(), group.stateAsString()));
        }
        offsets("", field(manager, "offsets"), committed);
        for (var each : ((Map<Long, Object>) field(manager, "pendingTransactionalOffsets")).entrySet()) {
            offsets(each.getKey() + " ", each.getValue(), pending);
        }
        List<String> open = new ArrayList<>();
        ((Map<String, Map<String, Map<Integer, Set<Long>>>>) field(field(manager, "openTransactions"),
                "openTransactionsByGroup")).forEach((group, topics) -> topics.forEach((topic, partitions) ->
                partitions.forEach((number, producers) -> producers.forEach(
                        each -> open.add(each + " " + group + " " + topic + "-" + number)))));
        if (!Set.copyOf(open).equals(pending.keySet())) throw new AssertionError(open + " is open, pending " + pending);
        return Map.of("groups", groups, "committed", committed, "pending", pending);
    }

    public static void main(String[] arguments) throws Exception {
        started = Long.parseLong(arguments[0]);
        PrintStream answers = System.out;
        System.setOut(System.err); // what Kafka logs
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ANSWERS.clear();
            WRITTEN.clear();
            try {
                step(line);
            } catch (RuntimeException refused) {
                ANSWERS.add(List.of(line.split(" ")[0], Errors.forException(refused).code()));
                if (Errors.forException(refused) == Errors.UNKNOWN_SERVER_ERROR) refused.printStackTrace();
            }
            runUntil(now);
            hear();
            String told = JSON.writeValueAsString(Map.of("answers", ANSWERS, "records", WRITTEN, "state", state()));
            for (int number = 0; number < IDS.size(); number++) told = told.replace(IDS.get(number), "@" + number);
            answers.println(told);
        }
        System.exit(0); // without waiting for threads
    }
}
