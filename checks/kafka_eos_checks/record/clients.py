"""Clients under test, each a process of its own, so that it can be killed, frozen and resumed from outside."""

import json
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_eos_checks.record.brokers import java_command, wait_stopped
from kafka_eos_checks.record.journal import Journal

END_SECONDS = 90.0
FATAL_EXIT = 3  # of a workload whose producer met a fatal error, as a fenced one does


class ClientFailed(RuntimeError):  # noqa: N818 - what happened
    """A client did not end as it should; the message names its error output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a librdkafka client does.

    Attributes:
        bootstrap: ``host:port`` of the proxy.
        client: its name in the history and its client.id.
        topic: where it sends to, in turn to each partition.
        partitions: number of partitions.
        records: how many records it sends.
        prefix: values are the prefix and a number, unique in the run.
        transactional_id: None for an idempotent producer.
        transaction_size: records per transaction.
        abort_chance: probability that it aborts a transaction.
        seed: decides which transactions it aborts.
        batch: records per batch at most.
        pause_ms: rest after each batch's worth of records, in milliseconds.
        timeout_ms: delivery timeout, in milliseconds.
        config: further librdkafka settings, which win.
    """

    bootstrap: str
    client: str
    topic: str
    partitions: int = 1
    records: int
    prefix: str
    transactional_id: str | None = None
    transaction_size: int = 10
    abort_chance: float = 0.0
    seed: int = 0
    batch: int = 5
    pause_ms: float = 5.0
    timeout_ms: int = 60_000
    config: dict[str, Any] | None = None


class ClientProcess:
    """A running client whose standard output, if it is a workload's, goes to the journal; a context manager.

    Args:
        name: its process name in the history.
        command: what to run.
        journal: where its events go.
        folder: where its other output goes.
        speaks_events: whether its standard output is events.
    """

    def __init__(
        self, name: str, command: list[str], journal: Journal, folder: Path, *, speaks_events: bool = True
    ) -> None:
        self.name = name
        self._journal = journal
        self._errors = folder / f"{name}.log"
        self._reader: threading.Thread | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if speaks_events else errors,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        if speaks_events:
            self._reader = threading.Thread(target=self._read, name=name, daemon=True)
            self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a workload's output is a pipe"
        for line in self._process.stdout:
            if line.endswith("\n"):  # a killed client may leave half a line
                self._journal.add_line(self.name, line)

    def _end(self) -> None:
        """Kill it if it still runs, and read what it had written."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        if self._reader is not None:
            self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

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


def start_workload(workload: Workload, journal: Journal, folder: Path) -> ClientProcess:
    """Start a librdkafka client."""
    command = [sys.executable, "-m", "kafka_eos_checks.record.workload", json.dumps(asdict(workload))]
    return ClientProcess(workload.client, command, journal, folder)


def start_java(name: str, main_class: str, arguments: list[str], journal: Journal, folder: Path) -> ClientProcess:
    """Start one of Kafka's own tools; its output is kept beside the brokers' and is no part of the history."""
    return ClientProcess(name, java_command(main_class, *arguments), journal, folder, speaks_events=False)
