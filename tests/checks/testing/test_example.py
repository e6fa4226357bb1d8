"""The example's run without pytest: a served cluster with faults, the application, and the audit of what it left."""

import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.paths import CLONE

EXAMPLE = CLONE / "examples" / "exactly-once-app"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The cluster of the example's README, on a free port; the value is its bootstrap servers."""
    [command] = re.findall(r"^kafka-eos (serve .*)$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    program = "import sys; from kafka_eos_checks.cli.command import main; sys.exit(main(sys.argv[1:]))"
    call = [sys.executable, "-c", program, *command.split(), "--port", "0"]
    with subprocess.Popen(call, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        ready = server.stdout.readline()
        try:
            yield ready.split("bootstrap.servers=")[1].split()[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


@pytest.mark.parametrize(("mistake", "code"), [((), 0), (("ForgetsToGoBack",), 1)])
def test_the_run_without_pytest_finds_the_mistake_and_nothing_else(
    mistake: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka", reason="the example is written with it")
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "example"))
    with served(folder) as bootstrap:
        done = subprocess.run([sys.executable, "ship.py", bootstrap, *mistake], cwd=folder, timeout=120, check=False)
        assert done.returncode == 0
    assert main(["audit", str(folder / "shop"), str(folder / "question.jsonl")]) == code
    printed = capsys.readouterr().out
    assert re.search(r"events=\d+ checked=40", printed), "all orders are judged"
    failing = re.findall(r"^FAIL (.+?): expected ", printed, re.MULTILINE)
    assert failing == [] if not mistake else set(failing) <= {"input skipped", "input not processed"}


def test_no_error_of_the_plan_lets_a_producer_send_the_batch_again() -> None:
    """After MESSAGE_TOO_LARGE the Java producer splits the batch, so nothing would be aborted there."""
    errors = [each["error"] for each in tomllib.loads((EXAMPLE / "plan.toml").read_text())["fault"] if "error" in each]
    assert errors == ["INVALID_RECORD"]
