package org.apache.kafka.common.test.junit;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeTestExecutionCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Gives a test of Kafka's a cluster that somebody else has started, in place of Kafka's class of this name, which starts
 * one inside the JVM.
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
        private AskedCluster cluster;
        private boolean stopped;

        GivenCluster(ClusterConfig config) {
            this.config = config;
        }

        @Override
        public void start() {
            if (cluster == null) {
                Map<String, Short> features = new HashMap<>();
                config.features().forEach((feature, level) -> features.put(feature.featureName(), level));
                cluster = AskedCluster.start(config.numBrokers(), config.serverProperties(), features);
            }
        }

        @Override
        public void stop() {
            if (started() && !stopped) {
                stopped = true;
                cluster.stop();
            }
        }

        @Override
        public boolean started() {
            return cluster != null;
        }

        @Override
        public boolean stopped() {
            return stopped;
        }

        @Override
        public String bootstrapServers() {
            return cluster.bootstrapServers();
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.of(bootstrapServers().split(",")).stream().map(each -> Integer.valueOf(each.split(":")[1])).toList();
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            if (brokers.isEmpty()) {
                cluster.nodes().forEach((id, node) -> brokers.put(id, cluster.broker(node, config.serverProperties())));
            }
            return brokers;
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            // Nothing has to be waited for: the admin client's calls return when they have taken effect.
            return new HashMap<>(Map.of(CONTROLLER, cluster.controller())) {
                @Override
                public List<ControllerServer> values() {
                    return List.of();
                }
            };
        }

        @Override
        public String clusterId() {
            return cluster.clusterId();
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
