package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs test classes of Kafka's, or methods of them ("class#method"), and asks the process that started it for clusters.
 *
 * <p>Both speak JSON, a line each, on a connection to the port that is the first argument:
 * {"start": brokers, "properties": {…}, "features": {…}} is answered by {"bootstrap": "host:port,…"} and {"stop": true} by {}, and
 * {"test": "Class.method", "invocation": "…", "outcome": "SUCCESSFUL", "why": "…"} is told.
 */
public final class KafkaTests {
    /** The start of the message of a failure if a test needs a broker inside the JVM. */
    static final String INSIDES = "needs the inside of a broker";

    private static final ObjectMapper JSON = new ObjectMapper();
    private static BufferedReader answers;
    private static PrintWriter requests;

    private KafkaTests() {
    }

    /** Start a cluster and return its bootstrap servers. */
    static String start(int brokers, Map<String, String> properties, Map<String, Short> features) {
        tell(Map.of("start", brokers, "properties", properties, "features", features));
        Map<?, ?> answer = answer();
        if (answer.get("bootstrap") == null) {
            throw new IllegalStateException(String.valueOf(answer.get("error")));
        }
        return (String) answer.get("bootstrap");
    }

    /** Stop the cluster. */
    static void stop() {
        tell(Map.of("stop", true));
        answer();
    }

    private static synchronized void tell(Map<String, ?> row) {
        try {
            requests.println(JSON.writeValueAsString(row));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Map<?, ?> answer() {
        try {
            return JSON.readValue(answers.readLine(), Map.class);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) throws IOException {
        try (Socket socket = new Socket("localhost", Integer.parseInt(arguments[0]))) {
            answers = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            requests = new PrintWriter(socket.getOutputStream(), true, StandardCharsets.UTF_8);
            LauncherDiscoveryRequestBuilder chosen = LauncherDiscoveryRequestBuilder.request()
                .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
                // A test that waits for an answer on a socket hears no interrupt.
                .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD");
            Arrays.stream(arguments).skip(1).forEach(name -> chosen.selectors(
                name.contains("#") ? DiscoverySelectors.selectMethod(name) : DiscoverySelectors.selectClass(name)));
            LauncherFactory.create().execute(chosen.build(), new Told());
        }
        System.exit(0);  // a client that a failed test left behind keeps its threads
    }

    /** Tells how each test ended. */
    private static final class Told implements TestExecutionListener {
        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            if (test.isTest() || result.getStatus() != TestExecutionResult.Status.SUCCESSFUL) {
                outcome(test, result.getStatus().name(), result.getThrowable().map(Told::trace).orElse(""));
            }
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            outcome(test, "SKIPPED", reason);
        }

        private void outcome(TestIdentifier test, String outcome, String why) {
            String name = test.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
                .map(each -> each.getJavaClass().getSimpleName() + "." + each.getMethodName()).orElse(test.getLegacyReportingName());
            tell(Map.of("test", name, "invocation", test.getDisplayName(), "outcome", outcome, "why", why));
        }

        private static String trace(Throwable error) {
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text));
            return text.toString();
        }
    }
}
