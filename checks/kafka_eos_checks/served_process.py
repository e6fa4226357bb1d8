"""``kafka-eos serve`` as a process of its own, for measurements and fuzzing."""

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_ANSWERED = re.compile(r"answered (\w+ [\w ]+): ([\d,]+)")


@dataclass(slots=True)
class ServedProcess:
    """A server; a context manager that ends what it started.

    Attributes:
        folder: of its files; None for in memory.
        bootstrap: what clients have to be given.
    """

    folder: Path | None = None
    bootstrap: str = ""
    _process: Any = None

    def __enter__(self) -> Self:
        data = ["--data", str(self.folder)] if self.folder is not None else []
        command = [sys.executable, "-m", "kafka_eos_checks.cli", "serve", "--port", "0", *data]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = self._process.stdout.readline()
        found = re.search(r"bootstrap\.servers=(\S+)", first)
        if found is None:
            raise OSError(f"{' '.join(command)} said {first!r}")
        self.bootstrap = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def errors(self) -> dict[str, int]:
        """(API and code) -> how often it was answered; ends the server, which says so then."""
        self._process.send_signal(signal.SIGTERM)
        words = self._process.stdout.read()
        return {name: int(times.replace(",", "")) for name, times in _ANSWERED.findall(words)}
