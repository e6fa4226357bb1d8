"""The server as a process: it is ended, and a server that does not start is told."""

import os
from pathlib import Path

import pytest

from kafka_eos_checks.testing.process import ServedProcess, peak_memory


def test_it_is_ended_with_the_block() -> None:
    with ServedProcess() as server:
        assert server.is_alive
    assert not server.is_alive


def test_a_server_that_cannot_start_is_told(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="ascii")
    with pytest.raises(OSError, match=r"serve --port 0 --data .* said ''"), ServedProcess("--data", str(tmp_path)):
        pass


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the memory of a process")
def test_memory_is_told_of_a_process_that_there_is() -> None:
    before = peak_memory(os.getpid())
    assert before is not None
    assert before > 1 << 20
    assert peak_memory(0) is None
