package org.apache.kafka.clients.producer.internals;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientRequest;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.KafkaClient;
import org.apache.kafka.clients.LeastLoadedNode;
import org.apache.kafka.clients.NodeApiVersions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.message.AddOffsetsToTxnResponseData;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.message.ApiVersionsResponseData.FinalizedFeatureKey;
import org.apache.kafka.common.message.EndTxnResponseData;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.AddOffsetsToTxnResponse;
import org.apache.kafka.common.requests.AddPartitionsToTxnResponse;
import org.apache.kafka.common.requests.EndTxnResponse;
import org.apache.kafka.common.requests.FindCoordinatorRequest;
import org.apache.kafka.common.requests.FindCoordinatorResponse;
import org.apache.kafka.common.requests.InitProducerIdResponse;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.TxnOffsetCommitRequest;
import org.apache.kafka.common.utils.Time;

/**
 * Kafka's own TransactionManager, Sender and RecordAccumulator, without threads of their own and with a client that
 * sends nowhere: each line of the input is a run, each line of the output says what was seen after each of its steps.
 * The step "transitions" of a run asks for the table State.isTransitionValid. Release is another class for each release.
 */
public final class TransactionalProducers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition PARTITION = new TopicPartition("p", 0);
    private static final Node NODE = new Node(0, "localhost", 9092);
    private static final int DELIVERY_TIMEOUT_MS = 120_000;
    private static final long PRODUCER_ID = 1000;
    private static final Map<String, Uuid> TOPIC_IDS = Map.of("p", new Uuid(1, 1), "input", new Uuid(1, 2));

    /** Time that only goes on when it is told to. */
    private static final class StandingTime implements Time {
        private long now = 1_000_000;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(now);
        }

        @Override
        public void sleep(long milliseconds) {
        }

        @Override
        public void waitObject(Object on, Supplier<Boolean> condition, long deadline) {
        }
    }

    /** The sender's thread: an illegal transition is fatal in it, and refused in the application's. */
    private static final ExecutorService SENDER = Executors.newSingleThreadExecutor(
        runnable -> new Sender.SenderThread("sender", runnable, true));

    private static void onSender(Call call) throws Exception {
        try {
            SENDER.submit(() -> {
                call.make();
                return null;
            }).get();
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    private final StandingTime time = new StandingTime();
    private final ApiVersions apiVersions = new ApiVersions();
    private final List<ClientRequest> sent = new ArrayList<>();
    private long lastOffset = 0;
    private final Metrics metrics = new Metrics(time);
    private final ProducerMetadata metadata;
    private final TransactionManager manager;
    private final RecordAccumulator accumulator;
    private final Sender sender;
    private final boolean supportsBump;
    private int correlation = 0;
    private short epoch = -1;
    private String operation = "none";
    private TransactionalRequestResult result = null;
    private boolean running = false;
    private int lastEpoch = -1;
    private int lastSequence = -1;
    private String version = "";

    private TransactionalProducers(int version, boolean supportsBump) {
        this.supportsBump = supportsBump;
        cluster(version);
        metadata = Release.metadata(time);
        for (String topic : TOPIC_IDS.keySet())
            metadata.add(topic, time.milliseconds());
        metadata.updateWithCurrentRequestVersion(topics(), false, time.milliseconds());
        manager = Release.manager(apiVersions, metadata);
        accumulator = new RecordAccumulator(Release.LOG, 16_384, Compression.NONE, 0, 0, 0, DELIVERY_TIMEOUT_MS, metrics, "m", time,
            manager, new BufferPool(1 << 20, 16_384, metrics, time, "m"));
        sender = new Sender(Release.LOG, client(), metadata, accumulator, false, 1 << 20, (short) -1, Integer.MAX_VALUE,
            new SenderMetricsRegistry(metrics), time, 30_000, 0, manager);
    }

    private void cluster(int version) {
        List<ApiVersion> apis = new ArrayList<>();
        for (ApiKeys key : ApiKeys.values())
            if (key.hasValidVersion()) {
                short latest = key == ApiKeys.INIT_PRODUCER_ID && !supportsBump ? 2 : key.latestVersion();
                apis.add(new ApiVersion().setApiKey(key.id).setMinVersion(key.oldestVersion()).setMaxVersion(latest));
            }
        List<FinalizedFeatureKey> features = List.of(new FinalizedFeatureKey().setName("transaction.version")
            .setMinVersionLevel((short) version).setMaxVersionLevel((short) version));
        apiVersions.update("0", new NodeApiVersions(apis, List.of(), features, version));
    }

    private static MetadataResponse topics() {
        MetadataResponseData data = new MetadataResponseData().setControllerId(0).setClusterId("c");
        data.brokers().add(new MetadataResponseData.MetadataResponseBroker().setNodeId(0).setHost("localhost").setPort(9092));
        TOPIC_IDS.forEach((name, id) -> {
            MetadataResponseData.MetadataResponseTopic topic = new MetadataResponseData.MetadataResponseTopic().setName(name)
                .setTopicId(id);
            topic.partitions().add(new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(0).setLeaderId(0)
                .setLeaderEpoch(1).setReplicaNodes(List.of(0)).setIsrNodes(List.of(0)));
            data.topics().add(topic);
        });
        return new MetadataResponse(data, ApiKeys.METADATA.latestVersion());
    }

    private KafkaClient client() {
        return (KafkaClient) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {KafkaClient.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "isReady", "ready", "active", "hasReadyNodes" -> true;
                case "leastLoadedNode" -> new LeastLoadedNode(NODE, true);
                case "newClientRequest" -> new ClientRequest((String) arguments[0], (AbstractRequest.Builder<?>) arguments[1],
                    correlation++, "client", (long) arguments[2], (boolean) arguments[3],
                    arguments.length > 4 ? (int) arguments[4] : 30_000,
                    arguments.length > 5 ? (org.apache.kafka.clients.RequestCompletionHandler) arguments[5] : null);
                case "send" -> {
                    sent.add((ClientRequest) arguments[0]);
                    yield null;
                }
                case "poll" -> List.of();
                case "connectionDelay", "pollDelayMs" -> 0L;
                case "connectionFailed", "hasInFlightRequests" -> false;
                case "inFlightRequestCount" -> 0;
                default -> null;
            });
    }

    // --- what the state is ----------------------------------------------------------------------------------------

    private Object field(String name) throws Exception {
        Field found = TransactionManager.class.getDeclaredField(name);
        found.setAccessible(true);
        return found.get(manager);
    }

    private static String nameOf(ClientRequest request) {
        return nameOf(request.requestBuilder());
    }

    private static String nameOf(AbstractRequest.Builder<?> builder) {
        return switch (builder.apiKey()) {
            case FIND_COORDINATOR -> "FindCoordinator(" + FindCoordinatorRequest.CoordinatorType.forId(
                ((FindCoordinatorRequest.Builder) builder).data().keyType()) + ")";
            case INIT_PRODUCER_ID -> "InitProducerId";
            case ADD_PARTITIONS_TO_TXN -> "AddPartitionsToTxn";
            case ADD_OFFSETS_TO_TXN -> "AddOffsetsToTxn";
            case TXN_OFFSET_COMMIT -> "TxnOffsetCommit";
            case END_TXN -> "EndTxn(" + (((org.apache.kafka.common.requests.EndTxnRequest.Builder) builder).data.committed()
                ? "commit" : "abort") + ")";
            case PRODUCE -> "Produce";
            default -> throw new IllegalStateException(builder.apiKey().name);
        };
    }

    /** The offset that a TxnOffsetCommit asks for; 0 in any other request. Each call asks for the next one. */
    private static long offsetIn(AbstractRequest.Builder<?> builder) {
        return builder instanceof TxnOffsetCommitRequest.Builder commit
            ? commit.data.topics().get(0).partitions().get(0).committedOffset() : 0;
    }

    private ClientRequest waiting(boolean produce) {
        for (ClientRequest request : sent)
            if (produce == nameOf(request).equals("Produce"))
                return request;
        return null;
    }

    private Map<String, Object> observed() throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        seen.put("state", field("currentState").toString());
        ClientRequest request = waiting(false);
        seen.put("inFlight", request == null ? "none" : nameOf(request));
        seen.put("requested", request == null ? 0 : request.requestBuilder().build(latestVersion(request)).version());
        seen.put("offset", request == null ? 0 : offsetIn(request.requestBuilder()));
        Set<String> queue = new TreeSet<>();
        for (Object handler : (Iterable<?>) field("pendingRequests"))
            queue.add(nameOf(((TransactionManager.TxnRequestHandler) handler).requestBuilder()));
        if (!((Set<?>) field("newPartitionsInTransaction")).isEmpty())
            queue.add("AddPartitionsToTxn");
        seen.put("queue", queue);
        seen.put("identity", manager.producerIdAndEpoch().epoch + 1);
        seen.put("bump", field("clientSideEpochBumpRequired"));
        seen.put("started", field("transactionStarted"));
        seen.put("version", manager.isTransactionV2Enabled() ? 2 : 1);
        seen.put("added", !((Set<?>) field("partitionsInTransaction")).isEmpty());
        List<ProducerBatch> inFlight = sender.inFlightBatches(PARTITION);
        String batch = "none";
        if (!inFlight.isEmpty()) {
            batch = "in flight";
            lastEpoch = inFlight.get(0).producerEpoch();
            lastSequence = inFlight.get(0).baseSequence();
        } else if (accumulator.hasIncomplete())
            batch = "incomplete";
        seen.put("batch", batch);
        seen.put("last", List.of(lastEpoch + 1, lastSequence));
        seen.put("operation", operation);
        seen.put("running", running);
        seen.put("outcome", result == null ? "none" : !result.isCompleted() ? "waiting" : result.isSuccessful() ? "done" : "failed");
        return seen;
    }

    // --- the application --------------------------------------------------------------------------------------------

    private interface Call {
        void make() throws Exception;
    }

    private static String errorOf(Call call) {
        try {
            call.make();
            return "NONE";
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }

    private void called(String name, TransactionalRequestResult made) {
        operation = name;
        result = made;
        running = true;
    }

    private void call(String name) throws Exception {
        switch (name) {
            case "initTransactions" -> called(name, manager.initializeTransactions(false));
            case "beginTransaction" -> manager.beginTransaction();
            case "send" -> {
                manager.maybeAddPartition(PARTITION);
                accumulator.append("p", 0, time.milliseconds(), null, new byte[] {1}, null, new RecordAccumulator.AppendCallbacks() {
                    @Override
                    public void setPartition(int partition) {
                    }

                    @Override
                    public void onCompletion(RecordMetadata metadata, Exception exception) {
                    }
                }, 0, time.milliseconds(), metadata.fetch());
            }
            case "sendOffsetsToTransaction" -> called(name, manager.sendOffsetsToTransaction(
                Map.of(new TopicPartition("input", 0), new OffsetAndMetadata(++lastOffset)), new ConsumerGroupMetadata("group")));
            case "commitTransaction" -> called(name, manager.beginCommit());
            case "abortTransaction" -> called(name, manager.beginAbort());
            default -> throw new IllegalArgumentException(name);
        }
    }

    private void endCall() {
        String error = errorOf(() -> result.await(0, TimeUnit.MILLISECONDS, ""));
        if (operation.equals("initTransactions") && error.equals("NONE"))
            manager.maybeUpdateTransactionV2Enabled(true);
        operation = "none";
        result = null;
        running = false;
    }

    private void timeOut() {
        if (!errorOf(() -> result.await(0, TimeUnit.MILLISECONDS, "")).equals("TimeoutException"))
            throw new IllegalStateException("no timeout");
        running = false;
        if (operation.equals("sendOffsetsToTransaction")) {
            operation = "none";
            result = null;
        }
    }

    private void repeat() throws Exception {
        TransactionalRequestResult before = result;
        call(operation);
        if (before != result)
            throw new IllegalStateException("another result");
    }

    // --- the brokers ------------------------------------------------------------------------------------------------

    private static short latestVersion(ClientRequest request) {
        return request.requestBuilder().latestAllowedVersion();
    }

    private AbstractResponse answer(ClientRequest request, Errors error) {
        short code = error.code();
        return switch (request.requestBuilder().apiKey()) {
            case FIND_COORDINATOR -> FindCoordinatorResponse.prepareResponse(error,
                nameOf(request).contains("GROUP") ? "group" : "id", NODE);
            case INIT_PRODUCER_ID -> new InitProducerIdResponse(error == Errors.NONE
                ? new InitProducerIdResponseData().setProducerId(PRODUCER_ID).setProducerEpoch(++epoch)
                : new InitProducerIdResponseData().setErrorCode(code));
            case ADD_PARTITIONS_TO_TXN -> {
                AddPartitionsToTxnResponseData data = new AddPartitionsToTxnResponseData();
                AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResult topic =
                    new AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResult().setName("p");
                topic.resultsByPartition().add(new AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResult()
                    .setPartitionIndex(0).setPartitionErrorCode(code));
                data.resultsByTopicV3AndBelow().add(topic);
                yield new AddPartitionsToTxnResponse(data);
            }
            case ADD_OFFSETS_TO_TXN -> new AddOffsetsToTxnResponse(new AddOffsetsToTxnResponseData().setErrorCode(code));
            case TXN_OFFSET_COMMIT -> Release.offsetsCommitted("input", TOPIC_IDS.get("input"),
                latestVersion(request), error);
            case END_TXN -> {
                EndTxnResponseData data = new EndTxnResponseData().setErrorCode(code);
                if (error == Errors.NONE && request.requestBuilder().build(latestVersion(request)).version() >= 5)
                    data.setProducerId(PRODUCER_ID).setProducerEpoch(++epoch);
                yield new EndTxnResponse(data);
            }
            case PRODUCE -> {
                ProduceResponseData data = new ProduceResponseData();
                ProduceResponseData.TopicProduceResponse topic = new ProduceResponseData.TopicProduceResponse().setName("p")
                    .setTopicId(TOPIC_IDS.get("p"));
                topic.partitionResponses().add(new ProduceResponseData.PartitionProduceResponse().setIndex(0).setErrorCode(code)
                    .setBaseOffset(0).setLogStartOffset(0));
                data.responses().add(topic);
                yield new ProduceResponse(data);
            }
            default -> throw new IllegalStateException(nameOf(request));
        };
    }

    private void complete(ClientRequest request, Errors error, boolean disconnected) throws Exception {
        sent.remove(request);
        RequestHeader header = request.makeHeader(latestVersion(request));
        ClientResponse response = new ClientResponse(header, request.callback(), "0", time.milliseconds(), time.milliseconds(),
            disconnected, null, null, disconnected ? null : answer(request, error));
        onSender(response::onComplete);
    }

    private void expire() throws Exception {
        time.now += DELIVERY_TIMEOUT_MS;
        onSender(sender::runOnce);
        sent.removeIf(request -> nameOf(request).equals("Produce"));
    }

    /** The sender's thread goes on until nothing changes any more. */
    private void settle() throws Exception {
        String before = "";
        for (String now = observed() + " "; !now.equals(before); now = observed() + " ") {
            before = now;
            onSender(sender::runOnce);
            onSender(sender::runOnce);
        }
    }

    private void take(String step) throws Exception {
        String name = step.split("[(]")[0];
        String argument = step.contains("\"") ? step.substring(step.lastIndexOf('"', step.lastIndexOf('"') - 1) + 1, step.lastIndexOf('"')) : "";
        switch (name) {
            case "InitTransactions" -> call("initTransactions");
            case "BeginTransaction" -> call("beginTransaction");
            case "Send" -> call("send");
            case "FailSend" -> manager.maybeTransitionToErrorState(new TimeoutException("no metadata"));
            case "SendOffsets" -> call("sendOffsetsToTransaction");
            case "CommitTransaction" -> call("commitTransaction");
            case "AbortTransaction" -> call("abortTransaction");
            case "RepeatCall" -> repeat();
            case "TimeOutCall" -> timeOut();
            case "EndCall" -> endCall();
            case "Upgrade" -> cluster(2);
            case "LoseConnection" -> complete(waiting(false), Errors.NONE, true);
            case "ReceiveCoordinator", "ReceiveProducerId", "ReceivePartitionsAdded", "ReceiveOffsetsAdded",
                "ReceiveOffsetsCommitted", "ReceiveEnd" -> complete(waiting(false), Errors.NONE, false);
            case "RetryRequest", "FailTransaction", "RefuseInitialization", "FailProducer" ->
                complete(waiting(false), Errors.valueOf(argument), false);
            case "AcknowledgeBatch" -> complete(waiting(true), Errors.NONE, false);
            case "RetryBatch", "FailBatch", "FailProducerByBatch" -> complete(waiting(true), Errors.valueOf(argument), false);
            case "ExpireBatch" -> expire();
            default -> throw new IllegalArgumentException(step);
        }
    }

    private List<Map<String, Object>> run(JsonNode steps) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (JsonNode step : steps) {
            Map<String, Object> seen = new LinkedHashMap<>();
            try {
                if (!step.get("take").asText().isEmpty())
                    take(step.get("take").asText());
                if (step.get("settle").asBoolean())
                    settle();
                Map<String, String> refusals = new HashMap<>();
                for (JsonNode refused : step.get("refused"))
                    refusals.put(refused.asText(), errorOf(() -> call(refused.asText())));
                seen.putAll(observed());
                seen.put("refused", refusals);
            } catch (Exception e) {
                seen.put("thrown", e.toString());
            }
            found.add(seen);
        }
        metrics.close();
        return found;
    }

    private static List<List<String>> transitions() throws Exception {
        Class<?> states = Class.forName("org.apache.kafka.clients.producer.internals.TransactionManager$State");
        Method isValid = states.getDeclaredMethod("isTransitionValid", states, states);
        isValid.setAccessible(true);
        List<List<String>> legal = new ArrayList<>();
        for (Object before : states.getEnumConstants())
            for (Object after : states.getEnumConstants())
                if ((boolean) isValid.invoke(before, before, after))
                    legal.add(List.of(before.toString(), after.toString()));
        return legal;
    }

    private static Map<String, Boolean> errors() {
        Map<String, Boolean> retriable = new TreeMap<>();
        for (Errors error : Errors.values())
            if (error != Errors.NONE)
                retriable.put(error.name(), error.exception() instanceof org.apache.kafka.common.errors.RetriableException);
        return retriable;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = JSON.readTree(line);
            Object answer = switch (asked.get("ask").asText()) {
                case "transitions" -> transitions();
                case "errors" -> errors();
                default -> new TransactionalProducers(asked.get("version").asInt(), asked.get("bump").asBoolean())
                    .run(asked.get("steps"));
            };
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        SENDER.shutdown();
    }

}
