"""The clients under test, each a process of its own, which can be killed, frozen and resumed from outside."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_eos_checks.brokers.brokers import java_command, wait_stopped
from kafka_eos_checks.brokers.journal import Journal

END_SECONDS = 90.0
FATAL_EXIT = 3  # exit code of a workload whose producer met a fatal error, e.g. was fenced


class ClientFailed(RuntimeError):  # noqa: N818 - what happened
    """Raised when a client does not end as expected; the message names the file with its error output."""


# The calls of a client that copies in transactions, in this order.
CALLS = ("init", "begin", "produce", "flush", "send_offsets", "commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of a client.

    Attributes:
        bootstrap: ``host:port`` of the proxy.
        client: its name in the history and its client.id.
        topic: the topic that it sends to, in turn to each partition.
        also: further topics that it sends to, in turn with the first.
        partitions: the number of partitions of each topic, including the source.
        records: the number of records that it sends or that the source has.
        prefix: the prefix of its values, which are followed by a number and are unique in the run.
        values: the values to send instead, one for each record; the Java client takes none.
        transactional_id: the transactional.id, None for an idempotent producer.
        source: a topic without transactions whose values it sends, each once, from the group's committed offsets on;
            it sends their offsets to the transaction. None if it makes values of its own.
        group: the consumer group for a source.
        pause_after: the call (``CALLS``) after which it pauses, once, until it is told to go on.
        transaction_size: records per transaction.
        offsets_each: whether a client with a source sends the offsets after each record, not once a transaction.
        abort_chance: probability that it aborts a transaction.
        seed: a seed that decides which transactions it aborts.
        batch: the maximum number of records per batch.
        pause_ms: the rest after each batch's worth of records, in milliseconds.
        timeout_ms: the delivery timeout, in milliseconds.
        config: further librdkafka settings, which take precedence; the Java client takes none.
    """

    bootstrap: str
    client: str
    topic: str
    also: tuple[str, ...] = ()
    partitions: int = 1
    records: int
    prefix: str
    values: tuple[str, ...] = ()
    transactional_id: str | None = None
    source: str | None = None
    group: str | None = None
    pause_after: str | None = None
    transaction_size: int = 10
    offsets_each: bool = False
    abort_chance: float = 0.0
    seed: int = 0
    batch: int = 5
    pause_ms: float = 5.0
    timeout_ms: int = 60_000
    config: dict[str, Any] | None = None


WORD_COUNT, TRANSFER, MIRROR = "word-count", "transfer", "mirror"
POLLS_ON, COMMITS_OUTSIDE = "polls on after an abort", "commits offsets outside of the transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Workload):
    """The work of an instance of an application: a workload with a source and a group.

    Attributes:
        kind: one of ``WORD_COUNT``, ``TRANSFER`` and ``MIRROR``.
        mistake: ``POLLS_ON``, ``COMMITS_OUTSIDE``, or "" for none.
        source_bootstrap: ``host:port`` of the cluster that a mirror reads from.
    """

    kind: str
    mistake: str = ""
    source_bootstrap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The work of a consumer.

    Attributes:
        bootstrap: ``host:port`` of the proxy.
        client: its name in the history and its client.id.
        partitions: topics with their numbers of partitions; all are read from the beginning.
        isolation: ``read_committed`` or ``read_uncommitted``.
    """

    bootstrap: str
    client: str
    partitions: dict[str, int]
    isolation: str


class ClientProcess:
    """A running client; a context manager.

    Args:
        name: its process name in the history.
        command: the command to run.
        journal: the journal that gets its crash, freeze and resume.
        folder: the folder for its output.
        listen: a function that gets its standard output line by line, in a thread of its own; None only keeps it.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        journal: Journal,
        folder: Path,
        listen: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._journal = journal
        self._errors = folder / f"{name}.log"
        self._reader: threading.Thread | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=errors if listen is None else subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        if listen is not None:
            self._reader = threading.Thread(target=self._read, args=(listen,), name=name, daemon=True)
            self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _read(self, listen: Callable[[str], None]) -> None:
        assert self._process.stdout is not None, "output that is listened to is a pipe"
        for line in self._process.stdout:
            if line.endswith("\n"):  # a killed client may leave half a line
                listen(line)

    def _end(self) -> None:
        """Kill it if it still runs, and read its remaining output."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        if self._reader is not None:
            self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def runs(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait(self, seconds: float = END_SECONDS, *, expected: tuple[int, ...] = (0,)) -> int:
        """Wait for its end and return its exit code.

        Raises:
            ClientFailed: if it takes too long or ends with an unexpected code.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end()
            raise ClientFailed(f"{self.name}: still running after {seconds:.0f} s; see {self._errors}") from None
        self._end()
        if code not in expected:
            raise ClientFailed(f"{self.name}: ended with {code}, expected {expected}; see {self._errors}")
        return code

    def kill(self) -> None:
        """End it with SIGKILL; its earlier events are in the journal, and its unanswered sends stay open."""
        self._journal.add(self.name, "Crash", "invoke")
        self._end()
        self._journal.add(self.name, "Crash", "ok")

    def go_on(self) -> None:
        """Tell a client that pauses to go on."""
        assert self._process.stdin is not None, "its input is a pipe"
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def ask_to_stop(self) -> None:
        """Tell it to end, without waiting for the end."""
        self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it with SIGSTOP: its connections stay open, its timers do not run."""
        self._journal.add(self.name, "Freeze", "invoke")
        self._process.send_signal(signal.SIGSTOP)
        wait_stopped(self._process.pid)
        self._journal.add(self.name, "Freeze", "ok")

    def resume(self) -> None:
        """Let the frozen process go on."""
        self._journal.add(self.name, "Resume", "ok")
        self._process.send_signal(signal.SIGCONT)


def _start_telling(client: str, command: list[str], journal: Journal, folder: Path) -> ClientProcess:
    """Start a client that writes its events on its standard output."""
    return ClientProcess(client, command, journal, folder, lambda line: journal.add_line(client, line))


def start_workload(workload: Workload, journal: Journal, folder: Path) -> ClientProcess:
    """Start a librdkafka client."""
    command = [sys.executable, "-m", "kafka_eos_checks.lab.record.workload", json.dumps(asdict(workload))]
    return _start_telling(workload.client, command, journal, folder)


def start_application(task: Task, journal: Journal, folder: Path) -> ClientProcess:
    """Start an instance of an application."""
    command = [sys.executable, "-m", "kafka_eos_checks.lab.record.application", json.dumps(asdict(task))]
    return _start_telling(task.client, command, journal, folder)


def start_java_workload(workload: Workload, journal: Journal, folder: Path, kafka: str) -> ClientProcess:
    """Start a transactional Java client of a Kafka release."""
    source = Path(__file__).with_name("TransactionalClient.java")
    command = java_command(str(source), json.dumps(asdict(workload)), kafka=kafka)
    return _start_telling(workload.client, command, journal, folder)


def start_reader(reading: Reading, journal: Journal, folder: Path) -> ClientProcess:
    """Start a librdkafka consumer."""
    command = [sys.executable, "-m", "kafka_eos_checks.lab.record.reader", json.dumps(asdict(reading))]
    return _start_telling(reading.client, command, journal, folder)


def start_copier(name: str, arguments: Mapping[str, str], journal: Journal, folder: Path) -> ClientProcess:
    """Start Kafka's TransactionalMessageCopier with random aborts; only the proxy records its actions."""
    words = [word for pair in arguments.items() for word in pair]
    command = java_command("org.apache.kafka.tools.TransactionalMessageCopier", *words, "--enable-random-aborts")
    return ClientProcess(name, command, journal, folder)


# An idempotent producer with five batches in flight that does not wait long for a silent broker.
_JAVA_PRODUCER = {
    "enable.idempotence": "true",
    "retries": "1000",
    "batch.size": "1",
    "linger.ms": "0",
    "request.timeout.ms": "3000",
    "delivery.timeout.ms": "60000",
    "retry.backoff.ms": "50",
    "reconnect.backoff.ms": "50",
}
_VALUE_PREFIX = 7  # VerifiableProducer requires a number; its values are 7.0, 7.1 …


def start_verifiable_producer(
    workload: Workload, journal: Journal, folder: Path, records_per_second: int = 100
) -> ClientProcess:
    """Start Kafka's VerifiableProducer, an idempotent Java producer, with a workload's client, topic and records.

    It reports only the outcomes, so all sends are recorded as begun when it starts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{workload.client}.properties"
    settings = _JAVA_PRODUCER | {"client.id": workload.client}
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    arguments = {
        "--topic": workload.topic,
        "--bootstrap-server": workload.bootstrap,
        "--max-messages": str(workload.records),
        "--throughput": str(records_per_second),
        "--value-prefix": str(_VALUE_PREFIX),
        "--command-config": str(config),
    }
    for number in range(workload.records):
        journal.add(
            workload.client, "Send", "invoke", topic=workload.topic, detail={"value": f"{_VALUE_PREFIX}.{number}"}
        )

    def listen(line: str) -> None:
        row = json.loads(line) if line.startswith("{") else {}
        if row.get("name") == "producer_send_success":
            columns = {name: row[name] for name in ("topic", "partition", "offset")}
            journal.add(workload.client, "Send", "ok", **columns, detail={"value": row["value"]})
        elif row.get("name") == "producer_send_error":
            detail = {"value": row["value"], "reason": row["exception"]}
            journal.add(workload.client, "Send", "info", topic=row["topic"], detail=detail)

    words = [word for pair in arguments.items() for word in pair]
    command = java_command("org.apache.kafka.tools.VerifiableProducer", *words)
    return ClientProcess(workload.client, command, journal, folder, listen)
