"""A fenced client of transaction version 2 and a client of version 1 after it, on a real broker: a transaction hangs.

A debugger holds the coordinator's answer about a batch, as a network between two brokers may. Nothing else is changed.
"""

import threading
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.brokers.brokers import Cluster, free_ports
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST

from .held_threads import (
    SECONDS,
    TOPIC,
    TRANSACTIONAL_ID,
    Client,
    for_a_while,
    held,
    java_with_agent,
    need_kafka,
    wait_for,
)

ANSWERED = "in org.apache.kafka.server.transaction.AddPartitionsToTxnManager$AddPartitionsToTxnHandler.onComplete"
STUCK_SECONDS = 5.0
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
@pytest.mark.parametrize("left_over", [True, False])
def test_a_question_of_a_fenced_client_of_version_2_lets_a_late_batch_of_version_1_hang(
    left_over: bool, kafka: str, tmp_path: Path
) -> None:
    need_kafka(kafka)
    [port] = free_ports(1)
    features = {"transaction.version": 2}
    with Cluster(tmp_path / "c", kafka=kafka, java=java_with_agent(port), features=features) as cluster:
        for topic in (TOPIC, "other"):
            cluster.create_topic(topic)
        cluster.coordinator(TRANSACTIONAL_ID)
        another = Client(cluster[1], cluster[1], "another", "other")  # the debugger needs a class that is loaded
        another.add_partition()
        another.produce()
        former, client, errors = Client(cluster[1], cluster[1]), Client(cluster[1], cluster[1]), list[int]()
        if left_over:
            assert former.error_of_batch(version=12) in FENCED
        client.add_partition()
        late = threading.Thread(target=lambda: errors.append(client.error_of_batch()))
        with held(port, ANSWERED) as debugger:
            late.start()
            wait_for(debugger, b"Breakpoint hit")
            client.abort()
            assert client.end_for(1) == 1, "the marker alone"
        late.join(SECONDS)
        assert errors == [ErrorCode.NONE if left_over else ErrorCode.INVALID_TXN_STATE]
        for _ in for_a_while(STUCK_SECONDS):
            assert (client.end_for(0), client.end_for(1)) == ((2, 1) if left_over else (1, 1))
        assert client.state() == "CompleteAbort", "the coordinator has nothing to end"
