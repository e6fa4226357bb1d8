"""Clients under test, each a process of its own, so that it can be killed, frozen and resumed from outside."""

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
FATAL_EXIT = 3  # of a workload whose producer met a fatal error, as a fenced one does


class ClientFailed(RuntimeError):  # noqa: N818 - what happened
    """A client did not end as it should; the message names its error output."""


# What a client that copies in transactions calls, in this order.
CALLS = ("init", "begin", "produce", "flush", "send_offsets", "commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a client does.

    Attributes:
        bootstrap: ``host:port`` of the proxy.
        client: its name in the history and its client.id.
        topic: where it sends to, in turn to each partition.
        also: further topics that it sends to, in turn with the first.
        partitions: number of partitions of each topic, the source included.
        records: how many records it sends, or how many the source has.
        prefix: values are the prefix and a number, unique in the run.
        values: what it sends instead, one for each record; the Java client takes none.
        transactional_id: None for an idempotent producer.
        source: topic without transactions whose values it sends, each once, from the group's committed offsets on; it
            sends their offsets to the transaction. None: it makes values of its own.
        group: consumer group, for a source.
        pause_after: the call (``CALLS``) after which it pauses, once, until it is told to go on.
        transaction_size: records per transaction.
        abort_chance: probability that it aborts a transaction.
        seed: decides which transactions it aborts.
        batch: records per batch at most.
        pause_ms: rest after each batch's worth of records, in milliseconds.
        timeout_ms: delivery timeout, in milliseconds.
        config: further librdkafka settings, which win; the Java client takes none.
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
    """What an instance of an application does: a workload with a source and a group.

    Attributes:
        kind: one of ``WORD_COUNT``, ``TRANSFER`` and ``MIRROR``.
        mistake: ``POLLS_ON``, ``COMMITS_OUTSIDE``, or "" for none.
        source_bootstrap: of the cluster that a mirror reads from.
    """

    kind: str
    mistake: str = ""
    source_bootstrap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a consumer reads.

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
        command: what to run.
        journal: where its crash, freeze and resume go.
        folder: where its output goes.
        listen: gets its standard output, line by line and from a thread of its own, if it is not just to be kept.
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
        """Kill it if it still runs, and read what it had written."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        if self._reader is not None:
            self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds: float = END_SECONDS, *, expected: tuple[int, ...] = (0,)) -> int:
        """Wait for its end and return its exit code.

        Raises:
            ClientFailed: when it takes too long or ends with a code that is not expected.
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
        """End it with SIGKILL; what it did before is in the journal, its unanswered sends stay open."""
        self._journal.add(self.name, "Crash", "invoke")
        self._end()
        self._journal.add(self.name, "Crash", "ok")

    def go_on(self) -> None:
        """Tell a client that pauses to go on."""
        assert self._process.stdin is not None, "its input is a pipe"
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def ask_to_stop(self) -> None:
        """Tell it to end, without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it with SIGSTOP: its connections stay open, its timers do not run."""
        self._journal.add(self.name, "Freeze", "invoke")
        self._process.send_signal(signal.SIGSTOP)
        wait_stopped(self._process.pid)
        self._journal.add(self.name, "Freeze", "ok")

    def resume(self) -> None:
        """Let it go on."""
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
    """Start Kafka's TransactionalMessageCopier with random aborts; what it does is told by the proxy alone."""
    words = [word for pair in arguments.items() for word in pair]
    command = java_command("org.apache.kafka.tools.TransactionalMessageCopier", *words, "--enable-random-aborts")
    return ClientProcess(name, command, journal, folder)


# An idempotent producer that has five batches in flight and does not wait long for a broker that is silent.
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
_VALUE_PREFIX = 7  # VerifiableProducer wants a number; its values are 7.0, 7.1 …


def start_verifiable_producer(
    workload: Workload, journal: Journal, folder: Path, records_per_second: int = 100
) -> ClientProcess:
    """Start Kafka's VerifiableProducer, an idempotent Java producer, with a workload's client, topic and records.

    It tells of the outcomes only, so all sends are written down as begun when it starts.
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
