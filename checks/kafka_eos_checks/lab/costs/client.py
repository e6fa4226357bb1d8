"""The process that does the jobs of a measurement with Kafka's Java clients; the CPU time of processes."""

import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_eos_checks.brokers.brokers import java_command

JAVA = ("java", "-Xmx1g", "-Djava.awt.headless=true")
JOB_SECONDS = 600.0  # no job takes longer
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class JobFailed(RuntimeError):  # noqa: N818 - what happened
    """A job of the client failed; the message has the reason and names the file with the client's output."""


class CostClient:
    """A running client; a context manager that ends it.

    Args:
        folder: the folder for its output.
    """

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "client.log"
        source = Path(__file__).with_name("CostClient.java")
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                java_command(str(source), java=JAVA),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the client's process."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None, "its output is a pipe"
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do one job and return its answer; the fields of both are those of ``CostClient.java``.

        Raises:
            JobFailed: when the client cannot do it, ends, or takes too long.
        """
        assert self._process.stdin is not None, "its input is a pipe"
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=JOB_SECONDS)
        except (OSError, queue.Empty):
            raise JobFailed(f"{job['job']}: no answer after {JOB_SECONDS:.0f} s; see {self._errors}") from None
        if not line:
            raise JobFailed(f"{job['job']}: the client ended; see {self._errors}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise JobFailed(f"{job['job']}: {answer['failure']}; see {self._errors}")
        return answer


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process so far; 0 if the system does not report them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def busy_seconds() -> float:
    """Seconds that all cores together were busy so far; 0 if the system does not report them."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, *interrupts = (int(field) for field in fields[:8])
    return (user + nice + system + sum(interrupts)) / _CLOCK_TICKS
