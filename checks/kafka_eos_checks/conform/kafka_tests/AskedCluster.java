package org.apache.kafka.common.test.junit;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import org.mockito.Mockito;
import org.mockito.stubbing.Answer;

import scala.Option;

/**
 * A cluster that another process has started, seen as the objects inside a broker. If a test calls such an object, the admin
 * client asks the cluster; some calls cannot be answered.
 */
public final class AskedCluster {
    private static final Map<String, String> ASSIGNED_AT_ONCE = Map.of("group.consumer.assignment.interval.ms", "0");

    private final String bootstrap;
    private final Admin admin;

    private AskedCluster(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    /**
     * A new cluster with the properties and levels of features that a test names; assignments are made at once, whatever the
     * default of a release.
     */
    public static AskedCluster start(int brokers, Map<String, String> properties, Map<String, Short> features) {
        Map<String, String> all = new HashMap<>(ASSIGNED_AT_ONCE);
        all.putAll(properties);
        return new AskedCluster(KafkaTests.start(brokers, all, features));
    }

    /** Stop the cluster. */
    public void stop() {
        admin.close(Duration.ZERO);
        KafkaTests.stop();
    }

    /** The addresses for clients: "host:port,…". */
    public String bootstrapServers() {
        return bootstrap;
    }

    /** The id of the cluster. */
    public String clusterId() {
        return ask(admin.describeCluster().clusterId());
    }

    /** The brokers, by number. */
    public SortedMap<Integer, Node> nodes() {
        return new TreeMap<>(ask(admin.describeCluster().nodes()).stream()
            .collect(Collectors.toMap(Node::id, Function.identity())));
    }

    /** A broker, with the configuration of a test where the test asks for it. */
    public KafkaBroker broker(Node node, Map<?, ?> configuration) {
        SocketServer sockets = knowsOnly(SocketServer.class);
        Mockito.doReturn(node.port()).when(sockets).boundPort(Mockito.any());
        KRaftMetadataCache metadata = knowsOnly(KRaftMetadataCache.class);
        Mockito.doAnswer(call -> describe(call.getArgument(0)).map(each -> each.partitions().size()))
            .when(metadata).numPartitions(Mockito.any());
        Mockito.doAnswer(call -> leader(call.getArgument(0), call.getArgument(1)))
            .when(metadata).getLeaderAndIsr(Mockito.any(), Mockito.anyInt());
        GroupCoordinator groups = knowsOnly(GroupCoordinator.class);
        Mockito.doReturn(new Properties()).when(groups).groupMetadataTopicConfigs();
        ReplicaManager replicas = knowsOnly(ReplicaManager.class);
        Mockito.doAnswer(call -> Option.apply(log(call.getArgument(0)))).when(replicas).localLog(Mockito.any());
        LogManager logs = knowsOnly(LogManager.class);
        Mockito.doAnswer(call -> describe(((TopicPartition) call.getArgument(0)).topic()).isPresent()
            ? Option.apply(log(call.getArgument(0))) : Option.empty()).when(logs).getLog(Mockito.any(), Mockito.anyBoolean());
        Mockito.doReturn(false).when(logs).getLog$default$2();
        Mockito.doReturn(logs).when(replicas).logManager();
        Mockito.doAnswer(call -> Option.apply(led(node, call.getArgument(0)))).when(replicas).onlinePartition(Mockito.any());
        BrokerServer broker = knowsOnly(BrokerServer.class);
        Mockito.doReturn(sockets).when(broker).socketServer();
        Mockito.doReturn(node.port()).when(broker).boundPort(Mockito.any());
        Mockito.doReturn(metadata).when(broker).metadataCache();
        Mockito.doReturn(groups).when(broker).groupCoordinator();
        Mockito.doReturn(replicas).when(broker).replicaManager();
        Mockito.doReturn(kafkaConfig(node, configuration)).when(broker).config();
        Mockito.doReturn(BrokerState.RUNNING).when(broker).brokerState();
        Mockito.doReturn(false).when(broker).isShutdown();
        SharedServer shared = knowsOnly(SharedServer.class);
        Mockito.doReturn(null).when(shared).loader();  // of a broker that has no metadata to wait for
        Mockito.doReturn(shared).when(broker).sharedServer();
        // It runs from the start, and ends with the cluster; one that a test ends by killBroker is asked for shutdown(timeout).
        Mockito.doNothing().when(broker).startup();
        Mockito.doNothing().when(broker).shutdown();
        return broker;
    }

    /** The controller, which knows the topics. */
    public ControllerServer controller() {
        Controller controller = knowsOnly(Controller.class);
        Mockito.doAnswer(call -> CompletableFuture.completedFuture(topicIds())).when(controller).findAllTopicIds(Mockito.any());
        Mockito.doAnswer(call -> {
            Map<String, Uuid> ids = topicIds();
            List<String> names = List.copyOf(call.getArgument(1));
            return CompletableFuture.completedFuture(
                names.stream().collect(Collectors.toMap(Function.identity(), name -> new ResultOrError<>(ids.get(name)))));
        }).when(controller).findTopicIds(Mockito.any(), Mockito.any());
        RaftLog log = knowsOnly(RaftLog.class);
        Mockito.doReturn(new LogOffsetMetadata(0)).when(log).endOffset();
        KafkaRaftManager<?> raft = knowsOnly(KafkaRaftManager.class);
        Mockito.doReturn(log).when(raft).raftLog();
        ControllerServer server = knowsOnly(ControllerServer.class);
        Mockito.doReturn(raft).when(server).raftManager();
        Mockito.doReturn(controller).when(server).controller();
        return server;
    }

    /** A mock that refuses what it was not told how to do, so that no test passes by a default value. */
    private static <T> T knowsOnly(Class<T> type) {
        Answer<Object> refuses = call -> {
            throw new UnsupportedOperationException(KafkaTests.INSIDES + ": " + type.getSimpleName() + "." + call.getMethod().getName());
        };
        return Mockito.mock(type, Mockito.withSettings().defaultAnswer(refuses).stubOnly());
    }

    private static KafkaConfig kafkaConfig(Node node, Map<?, ?> configuration) {
        Map<Object, Object> properties = new HashMap<>(Map.of(
            "process.roles", "broker",
            "controller.quorum.bootstrap.servers", "localhost:1",
            "controller.listener.names", "CONTROLLER"));
        properties.putAll(ASSIGNED_AT_ONCE);
        properties.putAll(configuration);
        String listener = "PLAINTEXT://localhost:" + node.port();
        properties.putAll(Map.of("listeners", listener, "advertised.listeners", listener));
        properties.putAll(Map.of("node.id", String.valueOf(node.id()), "broker.id", String.valueOf(node.id())));
        return new KafkaConfig(properties, false);
    }

    /** A partition that the broker leads; null for another. */
    private Partition led(Node node, TopicPartition asked) {
        if (leader(asked.topic(), asked.partition()).filter(each -> each.leader() == node.id()).isEmpty()) {
            return null;
        }
        Partition partition = knowsOnly(Partition.class);
        Mockito.doReturn(Option.apply(log(asked))).when(partition).leaderLogIfLocal();
        return partition;
    }

    private UnifiedLog log(TopicPartition partition) {
        UnifiedLog log = knowsOnly(UnifiedLog.class);
        Mockito.doAnswer(call -> ask(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)).offset())
            .when(log).logStartOffset();
        return log;
    }

    private Optional<TopicDescription> describe(String topic) {
        try {
            return Optional.of(ask(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic));
        } catch (UnknownTopicOrPartitionException error) {
            return Optional.empty();
        }
    }

    private Optional<LeaderAndIsr> leader(String topic, int partition) {
        if (topic.equals("__consumer_offsets")) {
            awaitCoordinator();
        }
        return describe(topic).map(each -> each.partitions().get(partition).leader())
            .map(leader -> new LeaderAndIsr(leader.id(), List.of(leader.id())));
    }

    /** Waits until a coordinator has loaded its groups, as one in this JVM would have: the client asks until then. */
    private void awaitCoordinator() {
        ask(admin.listConsumerGroupOffsets("nobody").partitionsToOffsetAndMetadata());
    }

    private Map<String, Uuid> topicIds() {
        Map<String, Uuid> ids = new HashMap<>();
        ask(admin.listTopics().listings()).forEach(each -> ids.put(each.name(), each.topicId()));
        return ids;
    }

    private static <T> T ask(KafkaFuture<T> answer) {
        try {
            return answer.get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(error.getCause());
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
