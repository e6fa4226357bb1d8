"""The second half of a fence that comes after the client's own abort, on a real broker, and the next transaction.

A debugger holds one thread of the broker between the two halves, as a scheduler may. Nothing else of it is changed.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import HOST, LATEST, SMALL_JAVA, Broker, Cluster, ask, free_ports
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, have_jars

TRANSACTIONAL_ID, TOPIC = "t", "out"
SECONDS, STUCK_SECONDS = 60.0, 5.0
# The line of handleInitProducerId where the transaction is marked PREPARE_EPOCH_FENCE and endTransaction follows.
BETWEEN = {KAFKA_VERSION: 198, "3.9.1": 180}
FEATURES = {KAFKA_VERSION: {"transaction.version": 1}}  # 3.9 has no other version


def wait_for(output: IO[bytes], text: bytes) -> None:
    """Read a debugger's output until a text comes; its prompt ends no line."""
    read = b""
    while text not in read:
        letter = output.read(1)
        assert letter, f"the debugger ended before it said {text!r}: {read!r}"
        read += letter


@contextmanager
def held_between(port: int, line: int) -> Iterator[IO[bytes]]:
    """Hold a broker's thread that comes to a line of its coordinator until the end; yields the debugger's output."""
    command = ["jdb", "-attach", f"{HOST}:{port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as debugger:
        assert debugger.stdin is not None
        assert debugger.stdout is not None
        limit = threading.Timer(SECONDS, debugger.kill)
        limit.start()
        try:
            stop = f"stop thread at kafka.coordinator.transaction.TransactionCoordinator:{line}\n"
            debugger.stdin.write(stop.encode())
            debugger.stdin.flush()
            wait_for(debugger.stdout, b"Set breakpoint")
            yield debugger.stdout
        finally:
            limit.cancel()
            debugger.kill()  # the broker's threads go on without it


class Client:
    """A client that sends raw requests of transaction version 1."""

    def __init__(self, broker: Broker) -> None:
        self._port = broker.port
        while (answer := self.init_producer_id())["ErrorCode"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.1)
        assert answer["ErrorCode"] == ErrorCode.NONE
        self.producer_id, self.epoch, self.sent = answer["ProducerId"], answer["ProducerEpoch"], 0

    def init_producer_id(self) -> Message:
        """The answer to a new instance's request."""
        row = {"TransactionalId": TRANSACTIONAL_ID, "TransactionTimeoutMs": 600_000}
        return ask(self._port, "InitProducerId", 4, row | {"ProducerId": -1, "ProducerEpoch": -1}, SECONDS)

    def begin(self) -> None:
        """Begin a transaction, with one record."""
        row = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": self.producer_id, "ProducerEpoch": self.epoch}
        row |= {"Topics": [{"Name": TOPIC, "Partitions": [0]}]}
        added = ask(self._port, "AddPartitionsToTxn", 3, {f"V3AndBelow{name}": row[name] for name in row}, SECONDS)
        [[part]] = [topic["ResultsByPartition"] for topic in added["ResultsByTopicV3AndBelow"]]
        assert part["PartitionErrorCode"] == ErrorCode.NONE
        batch = build_batch(
            [Record(value=b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sent,
            is_transactional=True,
        )
        self.sent += 1
        data = [{"Name": TOPIC, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}]
        row = {"TransactionalId": TRANSACTIONAL_ID, "Acks": -1, "TimeoutMs": 5_000, "TopicData": data}
        [[part]] = [topic["PartitionResponses"] for topic in ask(self._port, "Produce", 9, row, SECONDS)["Responses"]]
        assert part["ErrorCode"] == ErrorCode.NONE

    def abort(self) -> None:
        """Abort the transaction."""
        row = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": self.producer_id, "ProducerEpoch": self.epoch}
        assert ask(self._port, "EndTxn", 3, row | {"Committed": False}, SECONDS)["ErrorCode"] == ErrorCode.NONE

    def end_for(self, isolation_level: int) -> int:
        """The partition's end for readers: 0 read_uncommitted, 1 read_committed."""
        part = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": LATEST}
        row = {"ReplicaId": -1, "IsolationLevel": isolation_level, "Topics": [{"Name": TOPIC, "Partitions": [part]}]}
        [[part]] = [topic["Partitions"] for topic in ask(self._port, "ListOffsets", 5, row, SECONDS)["Topics"]]
        return int(part["Offset"])


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", BETWEEN)
def test_a_late_fence_aborts_the_next_transaction_and_sends_no_markers(kafka: str, tmp_path: Path) -> None:
    if not have_jars(kafka):
        pytest.skip(f"the jars of Kafka {kafka} are not there; `kafka-eos lab record` fetches them")
    [port] = free_ports(1)
    java = (*SMALL_JAVA, f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address={HOST}:{port}")
    with Cluster(tmp_path / "c", kafka=kafka, java=java, features=FEATURES.get(kafka)) as cluster:
        cluster.create_topic(TOPIC)
        cluster.coordinator(TRANSACTIONAL_ID)
        client, answers = Client(cluster[1]), list[Message]()
        client.begin()
        fencing = threading.Thread(target=lambda: answers.append(client.init_producer_id()))
        with held_between(port, BETWEEN[kafka]) as debugger:
            fencing.start()
            wait_for(debugger, b"Breakpoint hit")
            client.abort()
            cluster.wait_transaction(TRANSACTIONAL_ID, {"CompleteAbort"})
            client.begin()
        fencing.join(SECONDS)
        assert [answer["ErrorCode"] for answer in answers] == [ErrorCode.PRODUCER_FENCED]

        cluster.wait_transaction(TRANSACTIONAL_ID, {"PrepareAbort"})
        until = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < until:
            assert client.init_producer_id()["ErrorCode"] == ErrorCode.CONCURRENT_TRANSACTIONS
            assert (client.end_for(0), client.end_for(1)) == (3, 2), "readers stop at the second transaction"
            time.sleep(0.5)
        cluster.wait_transaction(TRANSACTIONAL_ID, {"PrepareAbort"})

        cluster[1].stop()
        cluster[1].start()
        cluster.wait_ready()
        cluster.wait_transaction(TRANSACTIONAL_ID, {"CompleteAbort"})
        assert client.end_for(1) == client.end_for(0) == 4, "a coordinator that loads the log sends the markers"
