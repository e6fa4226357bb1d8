"""Kafka Streams' own smoke test, with exactly_once_v2, on the reference's server; one of its clients is killed."""

import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks.brokers.brokers import SMALL_JAVA
from kafka_eos_checks.brokers.jars import have_streams_jars, streams_folder
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.testing.process import ServedProcess
from kafka_eos_checks.traces import coordinators, leaders
from kafka_eos_checks.traces.validation import Trace, replay

confluent = pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
confluent_admin = pytest.importorskip("confluent_kafka.admin", reason="the clients are in the extra `record`")
pytestmark = [
    pytest.mark.java,
    pytest.mark.thorough,
    pytest.mark.skipif(
        not have_streams_jars(), reason="the jars of Kafka Streams are not there; `make test-all` fetches them"
    ),
]

SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
# Kafka: tests/kafkatest/tests/streams/streams_smoke_test.py; the driver also writes to fk
TOPICS = [
    *("data", "fk", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum"),
    *("sws-raw", "sws-suppressed", "cnt", "avg", "wcnt", "tagg"),
]
PARTITIONS = 2
SECONDS = 20.0
DRIVER_SECONDS = 600.0  # it writes for 90 seconds and waits at most six minutes
SETTINGS: Mapping[str, str] = {
    "processing.guarantee": "exactly_once_v2",
    "replication.factor": "1",
    "num.stream.threads": "1",
    "commit.interval.ms": "500",
    "session.timeout.ms": "6000",  # a killed client is soon removed
    "heartbeat.interval.ms": "1500",
}

# The driver's own verification, run again on the files: 20 keys of 1000 numbers each.
VERIFY_AGAIN = """
import java.util.*;
import java.util.stream.*;

public class VerifyAgain {
    public static void main(String[] args) {
        Map<String, Set<Integer>> inputs = new HashMap<>();
        for (int first = 0; first < 20; first++)
            inputs.put(first + "-" + (first + 999),
                       IntStream.range(first, first + 1000).boxed().collect(Collectors.toSet()));
        org.apache.kafka.streams.tests.SmokeTestDriver.verify(args[0], inputs, 1000, true);
        System.exit(0);
    }
}
"""


class JavaProgram:
    """A Java program on Kafka Streams' jars; a context manager that ends it."""

    def __init__(self, output: Path, *command: str) -> None:
        self._output = output
        self._command = [*SMALL_JAVA, "-cp", f"{streams_folder()}/*", *command]
        self._process: Any = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """Return the program's output so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, pattern: str) -> None:
        """Wait for a line that matches a pattern; on a busy computer this takes minutes."""
        deadline = time.monotonic() + DRIVER_SECONDS
        while re.search(pattern, self.said()) is None:
            waits = self._process.poll() is None and time.monotonic() < deadline
            assert waits, f"no {pattern!r} in\n{self.said()[-4000:]}"
            time.sleep(0.3)

    def wait(self) -> str:
        """Wait for its end; return its output."""
        assert self._process.wait(DRIVER_SECONDS) == 0, self.said()[-4000:]
        return self.said()

    def end(self, number: int) -> None:
        """End it with a signal."""
        self._process.send_signal(number)
        self._process.wait(SECONDS)


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run: the cluster's files, the history of its requests, and the driver's output."""

    data: Path
    record: Path
    driver: str


@contextmanager
def smoke_test(folder: Path, name: str, bootstrap: str, command: str) -> Iterator[JavaProgram]:
    """A process of the smoke test."""
    properties = folder / f"{name}.properties"
    settings = {"bootstrap.servers": bootstrap, "state.dir": f"{folder / 'state'}-{name[0]}", **SETTINGS}
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    with JavaProgram(folder / f"{name}.txt", SMOKE_TEST, str(properties), command) as program:
        yield program


def create_topics(bootstrap: str) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([confluent_admin.NewTopic(topic, PARTITIONS) for topic in TOPICS]).values():
        made.result(SECONDS)


@pytest.fixture(scope="module", params=["2", "1"], ids=["version 2", "version 1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Let two clients process the driver's records; one is killed, and started again."""
    folder = tmp_path_factory.mktemp("streams")
    data, record = folder / "data", folder / "served.jsonl"
    arguments = ("--data", str(data), "--record", str(record), "--transaction-version", str(request.param))
    with ServedProcess(*arguments) as server, ExitStack() as started:
        create_topics(server.bootstrap)

        def start(name: str, command: str = "process") -> JavaProgram:
            return started.enter_context(smoke_test(folder, name, server.bootstrap, command))

        first, second, driver = start("a"), start("b"), start("driver", "run")
        for client in (first, second):
            client.wait_for("processed .* from topic=")
        driver.wait_for(" 6000 records produced")
        first.end(signal.SIGKILL)
        start("a-again").wait_for("processed .* from topic=")
        assert "Result Verification" not in driver.said()  # there was work left
        said = driver.wait()
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    return Run(data, record, said)


def test_the_driver_finds_every_record_processed_exactly_once(run: Run) -> None:
    assert "recordGenerated=20000\nrecordProcessed=20000\nALL-RECORDS-DELIVERED" in run.driver
    assert run.driver.endswith("SUCCESS\n"), run.driver[-4000:]


def begun(records: Iterable[coordinators.StateRecord]) -> int:
    """The number of instances of a producer that have started."""
    return sum(row.value is not None and row.value.transaction_status is TransactionState.EMPTY for row in records)


def judgement(trace: Trace) -> str:
    """The reference's verdict on one coordinator's log."""
    base = Registry().get("CoordinatorOfTraces")
    model = coordinators.coordinator_model(base, [trace], versions=frozenset({1, 2}))
    return replay(model, mutated(TransactionCoordinator, base.overrides), trace).found


def test_the_files_contain_a_behaviour_of_the_spec(run: Run) -> None:
    logs = coordinators.read_recorded(run.data)
    traces = coordinators.coordinator_traces(logs)
    assert len(traces) == 2  # the killed client comes back with the same transactional.id
    assert max(begun(records) for records in logs.records.values()) > 1
    assert {judgement(trace) for trace in traces} == {"accepted"}
    for version, entries in leaders.leader_traces(logs).items():
        rules = leaders.leader_model(Registry().get("MarkersVersion2"), entries, version)
        assert {replay(rules, Consumer, trace).found for trace in entries} == {"accepted"}
    wrong = coordinators.spoiled(logs)
    assert wrong
    for trace, place in wrong.values():
        assert judgement(trace) == f"rejected at event {place}"


def test_the_audit_finds_nothing(run: Run) -> None:
    assert main(["audit", str(run.data), "--history", str(run.record)]) == 0


def verify_again(folder: Path, bootstrap: str) -> str:
    """Run the driver's own verification on the present files."""
    source = folder / "VerifyAgain.java"
    source.write_text(VERIFY_AGAIN, encoding="utf-8")
    with JavaProgram(folder / "verified.txt", str(source), bootstrap) as program:
        return program.wait()


def lose_one_and_repeat_another(bootstrap: str) -> None:
    """Remove the first record of an output's partition, and duplicate the second."""
    reader = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    reader.assign([confluent.TopicPartition("echo", 0, 0)])
    first, second = reader.poll(SECONDS), reader.poll(SECONDS)
    reader.close()
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([confluent.TopicPartition("echo", 0, first.offset() + 1)]).values():
        deleted.result(SECONDS)
    producer = confluent.Producer({"bootstrap.servers": bootstrap})
    producer.produce("echo", second.value(), second.key(), partition=0)
    assert producer.flush(SECONDS) == 0


def test_the_drivers_verification_fails_if_one_record_is_lost_and_another_duplicated(run: Run, tmp_path: Path) -> None:
    with ServedProcess("--data", str(run.data)) as server:
        assert verify_again(tmp_path, server.bootstrap).endswith("SUCCESS\n")
        lose_one_and_repeat_another(server.bootstrap)
        said = verify_again(tmp_path, server.bootstrap)
    assert said.endswith("FAILURE\n")
    assert "recordProcessed=20000\n" in said  # their number does not show it
    assert "ALL-RECORDS-DELIVERED" not in said
