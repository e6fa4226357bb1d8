"""Auto-commit of Kafka's Java consumer, with a thread held by a debugger: it commits what is not processed yet."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.brokers.brokers import HOST, Broker, Cluster, ask, free_ports, java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST

from .held_threads import SECONDS, TOPIC, for_a_while, held, java_with_agent, need_kafka, wait_until

PROGRAM = Path(__file__).parents[3] / "java" / "AutoCommit.java"
COMMIT = "in org.apache.kafka.clients.consumer.internals.CommitRequestManager.updateTimerAndMaybeCommit"


class Application:
    """An application that processes a record until it is told to go on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def given(self) -> int:
        """The offset of the record that the application is given next."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("given "):
                return int(line.split()[1])
        raise AssertionError("the application has ended")

    def go_on(self) -> None:
        """Let it end the record, and poll."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def application(broker: Broker, kafka: str, protocol: str, agent: int) -> Iterator[Application]:
    """Run the application until the end, and kill it in the middle of a record."""
    arguments = (str(PROGRAM), f"{HOST}:{broker.port}", protocol, TOPIC)
    command = java_command(*arguments, kafka=kafka, java=java_with_agent(agent))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield Application(process)
        finally:
            process.kill()


def committed(broker: Broker, group: str) -> int:
    """The committed offset of partition 0."""
    row = {"GroupId": group, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}
    [topic] = ask(broker.port, "OffsetFetch", 5, row, SECONDS)["Topics"]
    return int(topic["Partitions"][0]["CommittedOffset"])


def fill(broker: Broker) -> None:
    """Write three batches of a record each."""
    for _ in range(3):
        data = [{"Name": TOPIC, "PartitionData": [{"Index": 0, "Records": build_batch([Record(value=b"v")]).encode()}]}]
        row = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 5_000, "TopicData": data}
        ask(broker.port, "Produce", 9, row, SECONDS)


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
@pytest.mark.parametrize(("protocol", "too_early"), [("consumer", 1), ("classic", 0)])
def test_a_consumer_of_kip_848_commits_a_record_that_its_application_still_processes(
    kafka: str, protocol: str, too_early: int, tmp_path: Path
) -> None:
    need_kafka(kafka)
    [agent] = free_ports(1)
    with Cluster(tmp_path / "c", kafka=kafka) as cluster:
        broker = cluster[1]
        cluster.create_topic(TOPIC)
        fill(broker)
        with application(broker, kafka, protocol, agent) as loop:
            assert loop.given() == 0
            with held(agent, COMMIT) if too_early else nullcontext():  # the classic consumer has no such thread
                loop.go_on()
                assert loop.given() == 1
            wait_until(lambda: committed(broker, protocol) == 1 + too_early)
            for _ in for_a_while(1.0):
                assert committed(broker, protocol) == 1 + too_early
