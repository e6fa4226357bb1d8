"""The measuring client's answers, from a stand-in that is no Java."""

import sys
from pathlib import Path

import pytest

from kafka_eos_checks.lab.costs import client
from kafka_eos_checks.lab.costs.client import CostClient, JobFailed

ONE_ANSWER = "import sys\nprint(sys.stdin.readline(), end='', flush=True)\nsys.stdin.readline()"


def test_an_answer_is_returned_and_a_client_that_ends_instead_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "java_command", lambda *_, **__: [sys.executable, "-c", ONE_ANSWER])
    with CostClient(tmp_path) as answering:
        assert answering.do({"job": "first"}) == {"job": "first"}
        with pytest.raises(JobFailed, match=r"second: the client ended; see .*client\.log"):
            answering.do({"job": "second"})
