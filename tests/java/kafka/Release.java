package org.apache.kafka.clients.producer.internals;

import java.util.Map;

import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.internals.ClusterResourceListeners;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TxnOffsetCommitResponse;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;

/** The parts of Kafka 4.3's client that TransactionalProducers has to make in another way for each release. */
final class Release {
    static final LogContext LOG = new LogContext();

    static ProducerMetadata metadata(Time time) {
        return new ProducerMetadata(0, 0, Long.MAX_VALUE / 2, Long.MAX_VALUE / 2, LOG, new ClusterResourceListeners(), time);
    }

    static TransactionManager manager(ApiVersions apiVersions, ProducerMetadata metadata) {
        return new TransactionManager(LOG, "id", 60_000, 0, apiVersions, false);
    }

    static TxnOffsetCommitResponse offsetsCommitted(String topic, Uuid topicId, short version, Errors error) {
        return new TxnOffsetCommitResponse(0, Map.of(new TopicPartition(topic, 0), error));
    }

    private Release() {
    }
}
