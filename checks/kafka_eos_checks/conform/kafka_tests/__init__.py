"""Kafka's own tests, run against any broker: a JVM with the tests, clusters for them, and their outcomes.

A JVM runs the test classes of Kafka's released test jars. Our classes replace the two that start a cluster inside the
JVM (``RaftClusterInvocationContext.java``, and in older tests ``QuorumTestHarness.java``): they ask this process for a
cluster with the properties that the test names.
"""

import json
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kafka_eos_checks.brokers.brokers import SMALL_JAVA
from kafka_eos_checks.brokers.jars import need_tests_jars
from kafka_eos_checks.kit.missing import Missing

SOURCES = Path(__file__).parent
MAIN = "org.apache.kafka.common.test.junit.KafkaTests"
INSIDES = "needs the inside of a broker"
"""The words of the sources for a test that asks for what no client can know."""

CLASSES = tuple(
    f"kafka.{name}"
    for name in (
        "api.TransactionsTest",
        "server.AddPartitionsToTxnRequestServerTest",
        "server.ConsumerGroupDescribeRequestTest",
        "server.ConsumerGroupHeartbeatRequestTest",
        "server.ConsumerProtocolMigrationTest",
        "server.DeleteGroupsRequestTest",
        "server.DeleteRecordsRequestTest",
        "server.DescribeGroupsRequestTest",
        "server.FetchRequestTest",
        "server.HeartbeatRequestTest",
        "server.JoinGroupRequestTest",
        "server.LeaveGroupRequestTest",
        "server.ListGroupsRequestTest",
        "server.ListOffsetsRequestTest",
        "server.OffsetCommitRequestTest",
        "server.OffsetDeleteRequestTest",
        "server.OffsetFetchRequestTest",
        "server.ProduceRequestTest",
        "server.SyncGroupRequestTest",
        "server.TxnOffsetCommitRequestTest",
        "server.WriteTxnMarkersRequestTest",
    )
)

StartCluster = Callable[[int, Mapping[str, str], Mapping[str, int], Path], AbstractContextManager[str]]
"""Starts a number of brokers with properties and feature levels in a new folder; yields their bootstrap servers."""


class Outcome(StrEnum):
    """The outcome of a test."""

    PASSED = "passes"
    FAILED = "FAILS"
    UNUSABLE = "cannot be asked"
    SKIPPED = "is skipped"


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of one invocation of a test, with the exception or the reason why it was skipped."""

    test: str
    outcome: Outcome
    why: str


def run_tests(start: StartCluster, selected: Sequence[str], log: Path) -> list[Ended]:
    """Run test classes (``kafka.server.HeartbeatRequestTest``) or methods of them (``class#method``).

    Args:
        start: starts the cluster of a test.
        selected: the names.
        log: takes what the JVM writes.

    Raises:
        Missing: the jars of the tests or a JDK are not here, and could not be fetched.
        RuntimeError: the JVM ended before it had told everything.
    """
    jars = need_tests_jars()
    with (
        tempfile.TemporaryDirectory(prefix="kafka-eos-tests-") as name,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        folder = Path(name)
        _compile(folder / "classes", jars)
        classes = f"{folder / 'classes'}:{jars}/*"
        command = [*SMALL_JAVA, "-cp", classes, MAIN, str(server.getsockname()[1]), *selected]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            try:
                server.settimeout(60)
                connection, _ = server.accept()
                with connection:
                    ended = _converse(connection, start, folder)
                code = process.wait(60)
            finally:
                process.kill()
                process.wait()
    if code:
        raise RuntimeError(f"the JVM of the tests ended with {code}; see {log}")
    return ended


def _compile(folder: Path, jars: Path) -> None:
    sources = sorted(map(str, SOURCES.glob("*.java")))
    try:
        subprocess.run(["javac", "-nowarn", "-d", str(folder), "-cp", f"{jars}/*", *sources], check=True, timeout=300)
    except OSError as error:
        raise Missing(f"there is no JDK to compile the harness with ({error})") from None


def _converse(connection: socket.socket, start: StartCluster, folder: Path) -> list[Ended]:
    """Start and stop clusters as the tests ask, until the JVM has told the last outcome."""
    ended: list[Ended] = []
    with connection.makefile("rw", encoding="utf-8") as lines, ExitStack() as running:
        for number, line in enumerate(lines):
            row: dict[str, Any] = json.loads(line)
            if "test" in row:
                ended.append(Ended(row["test"], outcome_of(row["outcome"], row["why"]), row["why"]))
                continue
            running.close()
            answer: dict[str, str] = {}
            if "start" in row:
                try:
                    cluster = start(row["start"], row["properties"], row["features"], folder / str(number))
                    answer["bootstrap"] = running.enter_context(cluster)
                except Exception as error:  # noqa: BLE001 - the test fails by it, and says why
                    answer["error"] = f"no cluster: {error}"
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    return ended


def outcome_of(status: str, why: str) -> Outcome:
    """The outcome for JUnit's status of a test and what was thrown."""
    if status == "SUCCESSFUL":
        return Outcome.PASSED
    if status == "FAILED":
        return Outcome.UNUSABLE if INSIDES in why else Outcome.FAILED
    return Outcome.SKIPPED
