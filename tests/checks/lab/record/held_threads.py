"""A debugger that holds one thread of a broker, and a client of transaction version 1 that sends raw requests.

Tests on real brokers use both, and wait or are skipped by the functions next to them.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import HOST, LATEST, SMALL_JAVA, Broker, ask
from kafka_eos_checks.brokers.jars import have_jars

TRANSACTIONAL_ID, TOPIC = "t", "out"
SECONDS = 60.0
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


def need_kafka(kafka: str) -> None:
    """Skip the test if there is no Kafka of this release."""
    if not have_jars(kafka):
        pytest.skip(f"the jars of Kafka {kafka} are not there; `kafka-eos lab record` fetches them")


def java_with_agent(port: int) -> tuple[str, ...]:
    """The command of a broker that a debugger may attach to at a port."""
    return (*SMALL_JAVA, f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address={HOST}:{port}")


def wait_for(output: IO[bytes], text: bytes) -> None:
    """Read a debugger's output until a text comes; its prompt ends no line."""
    read = b""
    while text not in read:
        letter = output.read(1)
        assert letter, f"the debugger ended before it said {text!r}: {read!r}"
        read += letter


@contextmanager
def held(port: int, place: str) -> Iterator[IO[bytes]]:
    """Hold the thread of a broker that comes to a place, until the end; yields the debugger's output.

    Args:
        port: the port of the broker's agent.
        place: ``at CLASS:LINE`` or ``in CLASS.METHOD``.
    """
    command = ["jdb", "-attach", f"{HOST}:{port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as debugger:
        assert debugger.stdin is not None
        assert debugger.stdout is not None
        limit = threading.Timer(SECONDS, debugger.kill)
        limit.start()
        try:
            debugger.stdin.write(f"stop thread {place}\n".encode())
            debugger.stdin.flush()
            wait_for(debugger.stdout, b"Set breakpoint")
            yield debugger.stdout
        finally:
            limit.cancel()
            debugger.kill()  # the broker's threads go on without it


def wait_until(reached: Callable[[], bool]) -> None:
    """Ask again until the answer is yes."""
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"not reached within {SECONDS:.0f} s"
        time.sleep(0.1)


def for_a_while(seconds: float) -> Iterator[None]:
    """Turns in which to look again whether something stays as it is."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.2)


def once_it_is_there(ask_it: Callable[[], Message]) -> Message:
    """The answer without an error of a coordinator that may still be loading."""
    answers: list[Message] = []

    def came() -> bool:
        answers.append(ask_it())
        return answers[-1]["ErrorCode"] not in NOT_YET

    wait_until(came)
    assert answers[-1]["ErrorCode"] == ErrorCode.NONE
    return answers[-1]


class Client:
    """A client that sends raw requests of transaction version 1.

    Args:
        coordinator: the broker that has its transactional id.
        leader: the broker that leads partition 0 of its topic.
        transactional_id: its transactional id.
        topic: the only topic that it writes to.
    """

    def __init__(
        self, coordinator: Broker, leader: Broker, transactional_id: str = TRANSACTIONAL_ID, topic: str = TOPIC
    ) -> None:
        self.coordinator, self.leader, self.transactional_id, self.topic = coordinator, leader, transactional_id, topic
        answer = once_it_is_there(self.init_producer_id)
        self.producer_id, self.epoch, self.sent = answer["ProducerId"], answer["ProducerEpoch"], 0

    def init_producer_id(self) -> Message:
        """The answer to a new instance's request."""
        row = {"TransactionalId": self.transactional_id, "TransactionTimeoutMs": 600_000}
        return ask(self.coordinator.port, "InitProducerId", 4, row | {"ProducerId": -1, "ProducerEpoch": -1}, SECONDS)

    def _itself(self) -> Message:
        return {"TransactionalId": self.transactional_id, "ProducerId": self.producer_id, "ProducerEpoch": self.epoch}

    def add_partition(self) -> None:
        """Make the partition one of the transaction's."""
        assert self.error_of_add() == ErrorCode.NONE

    def error_of_add(self) -> int:
        """The answer to the request that makes the partition one of the transaction's."""
        row = self._itself() | {"Topics": [{"Name": self.topic, "Partitions": [0]}]}
        row = {f"V3AndBelow{name}": value for name, value in row.items()}
        added = ask(self.coordinator.port, "AddPartitionsToTxn", 3, row, SECONDS)
        [[part]] = [topic["ResultsByPartition"] for topic in added["ResultsByTopicV3AndBelow"]]
        return int(part["PartitionErrorCode"])

    def produce(self) -> None:
        """Send the next batch, of one record."""
        assert self.error_of_batch() == ErrorCode.NONE

    def error_of_batch(self, version: int = 9) -> int:
        """The answer to the next batch, of one record; from version 12 on it is one of transaction version 2."""
        batch = build_batch(
            [Record(value=b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sent,
            is_transactional=True,
        )
        self.sent += 1
        data = [{"Name": self.topic, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}]
        row = {"TransactionalId": self.transactional_id, "Acks": -1, "TimeoutMs": 5_000, "TopicData": data}
        answer = ask(self.leader.port, "Produce", version, row, SECONDS)
        [[part]] = [topic["PartitionResponses"] for topic in answer["Responses"]]
        return int(part["ErrorCode"])

    def abort(self) -> None:
        """Abort the transaction, and wait until its markers are written."""
        once_it_is_there(lambda: self.end(committed=False))
        wait_until(lambda: self.state() == "CompleteAbort")

    def end(self, *, committed: bool) -> Message:
        """The answer to the end of the transaction."""
        return ask(self.coordinator.port, "EndTxn", 3, self._itself() | {"Committed": committed}, SECONDS)

    def state(self) -> str:
        """The transaction's state, as the coordinator describes it."""
        row = {"TransactionalIds": [self.transactional_id]}
        answer = ask(self.coordinator.port, "DescribeTransactions", 0, row, SECONDS)
        [row] = answer["TransactionStates"]
        return str(row["TransactionState"])

    def end_for(self, isolation_level: int) -> int:
        """The partition's end for readers: 0 read_uncommitted, 1 read_committed."""
        part = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": LATEST}
        row = {"ReplicaId": -1, "IsolationLevel": isolation_level}
        row |= {"Topics": [{"Name": self.topic, "Partitions": [part]}]}
        [[part]] = [topic["Partitions"] for topic in ask(self.leader.port, "ListOffsets", 5, row, SECONDS)["Topics"]]
        return int(part["Offset"])
