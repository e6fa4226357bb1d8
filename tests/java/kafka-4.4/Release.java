package org.apache.kafka.clients.producer.internals;

import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.internals.ClusterResourceListeners;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TxnOffsetCommitResponse;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;

/** The parts of Kafka 4.4's client that TransactionalProducers has to make in another way for each release. */
final class Release {
    static final LogContext LOG = new LogContext();

    static ProducerMetadata metadata(Time time) {
        return new ProducerMetadata(0, 0, Long.MAX_VALUE / 2, Long.MAX_VALUE / 2, LOG, new ClusterResourceListeners());
    }

    static TransactionManager manager(ApiVersions apiVersions, ProducerMetadata metadata) {
        return new TransactionManager(LOG, "id", 60_000, 0, apiVersions, metadata, false);
    }

    /** An answer with the topic's id from version 6 on, and with its name before. */
    static TxnOffsetCommitResponse offsetsCommitted(String topic, Uuid topicId, short version, Errors error) {
        if (!TxnOffsetCommitResponse.useTopicIds(version))
            return new TxnOffsetCommitResponse(0, Map.of(new TopicPartition(topic, 0), error));
        TxnOffsetCommitResponseData.TxnOffsetCommitResponseTopic answer =
            new TxnOffsetCommitResponseData.TxnOffsetCommitResponseTopic().setTopicId(topicId);
        answer.partitions().add(new TxnOffsetCommitResponseData.TxnOffsetCommitResponsePartition().setPartitionIndex(0)
            .setErrorCode(error.code()));
        return new TxnOffsetCommitResponse(new TxnOffsetCommitResponseData().setTopics(List.of(answer)));
    }

    private Release() {
    }
}
