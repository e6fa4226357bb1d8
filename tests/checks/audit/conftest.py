import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kafka_eos.histories.history import Event

Test = Callable[..., None]


def in_both(names: str, few: object, many: object) -> pytest.MarkDecorator:
    """Parameters of a random test: a few draws for `make test`, and many for `make test-all`."""
    return pytest.mark.parametrize(names, [few, pytest.param(many, marks=pytest.mark.thorough)])


def drawn(*strategies: Any, few: int, many: int = 100) -> Callable[[Test], Test]:
    """Hypothesis' ``given``, with so many examples for `make test` and for `make test-all`."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]

    def decorated(body: Test) -> Test:
        @in_both("examples", few, many)
        def test(examples: int) -> None:
            settings(max_examples=examples, suppress_health_check=slow)(given(*strategies)(body))()

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorated


def event(action: str, phase: str, process: str = "p", offset: int | None = None, **detail: Any) -> Event:
    """An event of a client, which is at a partition where its action is about one."""
    placed = action in {"Send", "Poll", "EndOfPartition", "LeaderChange", "Seek"}
    return Event(
        run="r",
        process=process,
        action=action,
        phase=phase,
        topic="orders" if placed else None,
        partition=0 if placed else None,
        offset=offset,
        isolation="read_committed" if action in {"Poll", "EndOfPartition"} else None,
        detail=detail,
    )


def submitted(
    program: str, folder: Path, *arguments: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program by spark-submit, with two executors that are processes of their own."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    submit = Path(pytest.importorskip("pyspark").__file__).parent / "bin" / "spark-submit"
    master = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"]
    return subprocess.run(
        [str(submit), *master, *options, str(file), *arguments],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
