import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event


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
