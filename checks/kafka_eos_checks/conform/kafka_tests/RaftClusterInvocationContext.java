package org.apache.kafka.common.test.junit;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.fault.FaultHandlerException;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeTestExecutionCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.mockito.Mockito;
import org.mockito.stubbing.Answer;

/**
 * Gives a test of Kafka's a cluster that somebody else has started, in place of Kafka's class of this name, which starts
 * one inside the JVM. What a test asks a broker object for is asked of the cluster by the admin client, or cannot be.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
    }

    @Override
    public String getDisplayName(int index) {
        return String.format("%s [%d]", name, index);
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        GivenCluster cluster = new GivenCluster(config);
        return List.of(
            (BeforeTestExecutionCallback) context -> {
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }

    /** A cluster behind a bootstrap server. */
    private static final class GivenCluster implements ClusterInstance {
        private static final int CONTROLLER = 3000;

        private final ClusterConfig config;
        private final Map<Integer, KafkaBroker> brokers = new HashMap<>();
        private String bootstrap;
        private boolean stopped;

        GivenCluster(ClusterConfig config) {
            this.config = config;
        }

        @Override
        public void start() {
            if (bootstrap == null) {
                Map<String, Short> features = new HashMap<>();
                config.features().forEach((feature, level) -> features.put(feature.featureName(), level));
                bootstrap = KafkaTests.start(config.numBrokers(), properties(), features);
            }
        }

        @Override
        public void stop() {
            if (started() && !stopped) {
                stopped = true;
                KafkaTests.stop();
            }
        }

        @Override
        public boolean started() {
            return bootstrap != null;
        }

        @Override
        public boolean stopped() {
            return stopped;
        }

        @Override
        public String bootstrapServers() {
            return bootstrap;
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.of(bootstrap.split(",")).stream().map(each -> Integer.valueOf(each.split(":")[1])).toList();
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            if (brokers.isEmpty()) {
                try (Admin admin = admin()) {
                    admin.describeCluster().nodes().get().forEach(node -> brokers.put(node.id(), broker(node)));
                } catch (ExecutionException | InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
            return brokers;
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            Controller controller = knowsOnly(Controller.class);
            Mockito.doAnswer(call -> CompletableFuture.completedFuture(topicIds())).when(controller).findAllTopicIds(Mockito.any());
            ControllerServer server = knowsOnly(ControllerServer.class);
            Mockito.doReturn(controller).when(server).controller();
            // Nothing has to be waited for: the admin client's calls return when they have taken effect.
            return new HashMap<>(Map.of(CONTROLLER, server)) {
                @Override
                public List<ControllerServer> values() {
                    return List.of();
                }
            };
        }

        private KafkaBroker broker(Node node) {
            SocketServer sockets = knowsOnly(SocketServer.class);
            Mockito.doReturn(node.port()).when(sockets).boundPort(Mockito.any());
            MetadataCache metadata = knowsOnly(MetadataCache.class);
            Mockito.doAnswer(call -> describe(call.getArgument(0)).map(each -> each.partitions().size()))
                .when(metadata).numPartitions(Mockito.any());
            Mockito.doAnswer(call -> leader(call.getArgument(0), call.getArgument(1)))
                .when(metadata).getLeaderAndIsr(Mockito.any(), Mockito.anyInt());
            GroupCoordinator groups = knowsOnly(GroupCoordinator.class);
            Mockito.doReturn(new Properties()).when(groups).groupMetadataTopicConfigs();
            KafkaBroker broker = knowsOnly(KafkaBroker.class);
            Mockito.doReturn(sockets).when(broker).socketServer();
            Mockito.doReturn(metadata).when(broker).metadataCache();
            Mockito.doReturn(groups).when(broker).groupCoordinator();
            Mockito.doReturn(kafkaConfig(node)).when(broker).config();
            Mockito.doReturn(false).when(broker).isShutdown();
            return broker;
        }

        /** A mock that refuses what it was not told how to do, so that no test passes by a default value. */
        private static <T> T knowsOnly(Class<T> type) {
            Answer<Object> refuses = call -> {
                throw new UnsupportedOperationException(KafkaTests.INSIDES + ": " + type.getSimpleName() + "." + call.getMethod().getName());
            };
            return Mockito.mock(type, Mockito.withSettings().defaultAnswer(refuses).stubOnly());
        }

        /** Those of the test; assignments are made at once, whatever the default of a release. */
        private Map<String, String> properties() {
            Map<String, String> properties = new HashMap<>(Map.of("group.consumer.assignment.interval.ms", "0"));
            properties.putAll(config.serverProperties());
            return properties;
        }

        private KafkaConfig kafkaConfig(Node node) {
            Map<String, String> properties = new HashMap<>(Map.of(
                "process.roles", "broker",
                "node.id", String.valueOf(node.id()),
                "controller.quorum.bootstrap.servers", "localhost:1",
                "controller.listener.names", "CONTROLLER",
                "listeners", "PLAINTEXT://localhost:" + node.port()));
            properties.putAll(properties());
            return new KafkaConfig(properties, false);
        }

        private Optional<TopicDescription> describe(String topic) throws InterruptedException {
            try (Admin admin = admin()) {
                return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
            } catch (ExecutionException error) {
                if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                    return Optional.empty();
                }
                throw new IllegalStateException(error.getCause());
            }
        }

        private Optional<LeaderAndIsr> leader(String topic, int partition) throws InterruptedException {
            if (topic.equals("__consumer_offsets")) {
                awaitCoordinator();
            }
            return describe(topic).map(each -> each.partitions().get(partition).leader())
                .map(leader -> new LeaderAndIsr(leader.id(), List.of(leader.id())));
        }

        /** Waits until a coordinator has loaded its groups, as one in this JVM would have: the client asks until then. */
        private void awaitCoordinator() throws InterruptedException {
            try (Admin admin = admin()) {
                admin.listConsumerGroupOffsets("nobody").partitionsToOffsetAndMetadata().get();
            } catch (ExecutionException error) {
                throw new IllegalStateException(error.getCause());
            }
        }

        private Map<String, Uuid> topicIds() throws ExecutionException, InterruptedException {
            Map<String, Uuid> ids = new HashMap<>();
            try (Admin admin = admin()) {
                admin.listTopics().listings().get().forEach(each -> ids.put(each.name(), each.topicId()));
            }
            return ids;
        }

        @Override
        public String clusterId() {
            try (Admin admin = admin()) {
                return admin.describeCluster().clusterId().get();
            } catch (ExecutionException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Type type() {
            return Type.KRAFT;
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public Set<Integer> controllerIds() {
            return Set.of(CONTROLLER);
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapControllers() {
            throw new UnsupportedOperationException(KafkaTests.INSIDES + ": controllers");
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public void shutdownBroker(int id) {
            throw new UnsupportedOperationException(KafkaTests.INSIDES + ": shutdownBroker");
        }

        @Override
        public void startBroker(int id) {
            throw new UnsupportedOperationException(KafkaTests.INSIDES + ": startBroker");
        }

        @Override
        public void waitForReadyBrokers() {
        }
    }
}
