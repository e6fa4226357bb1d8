"""The second half of a fence that comes after the client's own abort, on a real broker, and the next transaction.

A debugger holds one thread of the broker between the two halves, as a scheduler may. Nothing else of it is changed.
"""

import threading
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
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
    wait_until,
)

COORDINATOR = "kafka.coordinator.transaction.TransactionCoordinator"
# The line of handleInitProducerId where the transaction is marked PREPARE_EPOCH_FENCE and endTransaction follows.
BETWEEN = {KAFKA_VERSION: 198, NEWEST: 202, "3.9.1": 180}
FEATURES = {kafka: {"transaction.version": 1} for kafka in (KAFKA_VERSION, NEWEST)}  # 3.9 has no other version
STUCK_SECONDS = 5.0


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", BETWEEN)
def test_a_late_fence_aborts_the_next_transaction_and_sends_no_markers(kafka: str, tmp_path: Path) -> None:
    need_kafka(kafka)
    [port] = free_ports(1)
    features = FEATURES.get(kafka)
    with Cluster(tmp_path / "c", kafka=kafka, java=java_with_agent(port), features=features) as cluster:
        cluster.create_topic(TOPIC)
        cluster.coordinator(TRANSACTIONAL_ID)
        client, answers = Client(cluster[1], cluster[1]), list[Message]()
        client.add_partition()
        client.produce()
        fencing = threading.Thread(target=lambda: answers.append(client.init_producer_id()))
        with held(port, f"at {COORDINATOR}:{BETWEEN[kafka]}") as debugger:
            fencing.start()
            wait_for(debugger, b"Breakpoint hit")
            client.abort()
            client.add_partition()
            client.produce()
        fencing.join(SECONDS)
        assert [answer["ErrorCode"] for answer in answers] == [ErrorCode.PRODUCER_FENCED]

        wait_until(lambda: client.state() == "PrepareAbort")
        for _ in for_a_while(STUCK_SECONDS):
            assert client.init_producer_id()["ErrorCode"] == ErrorCode.CONCURRENT_TRANSACTIONS
            assert (client.end_for(0), client.end_for(1)) == (3, 2), "readers stop at the second transaction"
        assert client.state() == "PrepareAbort"

        cluster[1].stop()
        cluster[1].start()
        cluster.wait_ready()
        cluster.wait_transaction(TRANSACTIONAL_ID, {"CompleteAbort"})
        assert client.end_for(1) == client.end_for(0) == 4, "a coordinator that loads the log sends the markers"
