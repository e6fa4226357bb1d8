package kafka.server;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;

import kafka.api.IntegrationTestHarness;
import kafka.utils.Logging;
import kafka.utils.TestInfoUtils$;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.junit.AskedCluster;
import org.apache.kafka.common.utils.Time;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.provider.Arguments;

import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The root of Kafka's older harness, in place of Kafka's class of this name, which starts a controller and brokers inside the
 * JVM. It gives the classes that extend it, from KafkaServerTestHarness to a test, the brokers of a cluster started elsewhere.
 */
public abstract class QuorumTestHarness implements Logging {
    /** Kafka's defaults, which the given clusters do not have by themselves. */
    private static final Map<String, String> DEFAULTS = Map.of(
        "auto.create.topics.enable", "true",
        "min.insync.replicas", "1",
        "offsets.topic.num.partitions", "50",
        "transaction.state.log.num.partitions", "50");

    private final Map<String, String> properties = new HashMap<>(DEFAULTS);
    private TestInfo testInfo;
    private String logIdent;
    private AskedCluster cluster;
    private ControllerServer controller;
    private List<Node> given;

    /** The arguments of tests that run with both protocols of groups. */
    public static Stream<Arguments> getTestGroupProtocolParametersAll() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersAll();
    }

    /** The arguments of tests that run with the protocol of KIP-848. */
    public static Stream<Arguments> getTestGroupProtocolParametersConsumerGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersConsumerGroupProtocolOnly();
    }

    /** The arguments of tests that run with the classic protocol. */
    public static Stream<Arguments> getTestGroupProtocolParametersClassicGroupProtocolOnly() {
        return QuorumTestHarness$.MODULE$.getTestGroupProtocolParametersClassicGroupProtocolOnly();
    }

    @BeforeEach
    public void setUp(TestInfo testInfo) {
        this.testInfo = testInfo;
    }

    @AfterEach
    public void tearDown() {
        if (cluster != null) {
            cluster.stop();
        }
    }

    /** The next of the brokers; the first call starts them all. */
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        if (cluster == null) {
            start();
        }
        Map<String, Object> configuration = new HashMap<>(config.originals());
        configuration.putAll(properties);
        return cluster.broker(given.remove(0), configuration);
    }

    private void start() {
        IntegrationTestHarness test = (IntegrationTestHarness) this;
        Properties own = CollectionConverters.asJava(kraftControllerConfigs(testInfo)).get(0);
        Properties changed = new Properties();
        test.modifyConfigs(CollectionConverters.asScala(List.of(changed)).toSeq());
        List.of(own, changed).forEach(each -> each.forEach((name, value) -> properties.put((String) name, (String) value)));
        short transactions = (short) (TestInfoUtils$.MODULE$.isTransactionV2Enabled(testInfo) ? 2 : 1);
        cluster = AskedCluster.start(test.brokerCount(), properties, Map.of("transaction.version", transactions));
        controller = cluster.controller();
        given = new ArrayList<>(cluster.nodes().values());
    }

    public Option<String> createBroker$default$4() {
        return Option.empty();
    }

    /** A test's own properties of its controller, which is a broker here. */
    public Seq<Properties> kraftControllerConfigs(TestInfo testInfo) {
        return CollectionConverters.asScala(List.of(new Properties()));
    }

    public ControllerServer controllerServer() {
        return controller;
    }

    /** No controller has to be waited for: the admin client's calls return when they have taken effect. */
    public Seq<ControllerServer> controllerServers() {
        return CollectionConverters.asScala(List.<ControllerServer>of());
    }

    public SecurityProtocol controllerListenerSecurityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public Option<GroupProtocol> maybeGroupProtocolSpecified() {
        return TestInfoUtils$.MODULE$.maybeGroupProtocolSpecified(testInfo);
    }

    public GroupProtocol groupProtocolFromTestParameters() {
        return maybeGroupProtocolSpecified().get();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String text) {
        logIdent = text;
    }
}
