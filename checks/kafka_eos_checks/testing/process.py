"""``kafka-eos serve`` as a process of its own, for measurements, fuzzing and tests."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ENDING_SECONDS = 10.0
MOST_MEMORY = 1 << 30  # bytes that a server may have resident, whatever it is sent
_ANSWERED = re.compile(r"answered (\w+ [\w ]+): ([\d,]+)")


def peak_memory(pid: int) -> int | None:
    """The most bytes that a process has had resident; None where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    found = (
        re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE) if status.exists() else None
    )
    return int(found[1]) * 1024 if found is not None else None


class ServedProcess:
    """A server in a process of its own; a context manager that ends the process.

    Args:
        arguments: the arguments of ``kafka-eos serve``, which listens on a free port if they name none.

    Attributes:
        ready: its first line.
        bootstrap: the value of ``bootstrap.servers``.
        last_words: what it said afterwards; "" as long as :meth:`end` was not called.
    """

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: Any = None
        self.ready = self.bootstrap = self.last_words = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "kafka_eos_checks.cli", "serve", "--port", "0", *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.ready = self._process.stdout.readline()
        found = re.search(r"bootstrap\.servers=(\S+)", self.ready)
        if found is None:
            self.__exit__()
            raise OSError(f"{' '.join(command)} said {self.ready!r}")
        self.bootstrap = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        """End it as :meth:`end` does, so that what measures its lines can write them; kill it if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self._process.send_signal(number)
        self.last_words = self._process.stdout.read()
        return int(self._process.wait(ENDING_SECONDS))

    def errors(self) -> dict[str, int]:
        """(API and code) -> how often it was answered; ends the server, which says so then."""
        self.end()
        return {name: int(times.replace(",", "")) for name, times in _ANSWERED.findall(self.last_words)}
