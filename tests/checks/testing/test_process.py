"""The server as a process: its end, and the report on a server that does not start."""

import os
import re
import signal
from pathlib import Path

import pytest

from kafka_eos_checks.testing import process
from kafka_eos_checks.testing.process import MOST_MEMORY, ServedProcess, peak_memory


def test_the_server_ends_with_the_block() -> None:
    with ServedProcess() as server:
        assert server.is_alive
    assert server._process.returncode == 0, "it was asked to end, and not killed"


def test_a_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ENDING_SECONDS", 0.01)
    with ServedProcess() as server:
        os.kill(server.pid, signal.SIGSTOP)
    assert server._process.returncode == -signal.SIGKILL


def test_a_server_that_cannot_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="ascii")
    with pytest.raises(OSError, match=r"serve --port 0 --data .* said ''$"), ServedProcess("--data", str(tmp_path)):
        pass


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the memory of a process")
def test_only_a_running_process_has_memory_figures() -> None:
    peak = re.compile(r"VmHWM:\s+(\d+) kB")
    before, found, after = (
        peak.findall(Path("/proc/self/status").read_text(encoding="utf-8")),
        peak_memory(os.getpid()),
        peak.findall(Path("/proc/self/status").read_text(encoding="utf-8")),
    )
    assert found is not None
    assert 1 << 20 < int(before[0]) << 10 <= found <= int(after[0]) << 10
    assert peak_memory(0) is None
    with ServedProcess() as server:
        memory = peak_memory(server.pid)
        assert memory is not None
        assert memory < MOST_MEMORY, "a server that was asked nothing is far from too large"
