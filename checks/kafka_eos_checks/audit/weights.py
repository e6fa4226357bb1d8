"""The time that an input takes, in bytes of segments, and whether several processes take less of it than one."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

LEAST_WEIGHT = 1 << 30  # of inputs; larger ones take several processes less time than one, their start included
TABLE_WEIGHT = 16  # a byte of a table takes as long as 5 to 20 bytes of a segment, depending on the batches' size
# The modules that the process imports from which workers are forked: those of the tasks, but not the driver's.
IMPORTED = (
    *(f"kafka_eos_checks.audit.plan.{name}" for name in ("stages", "history_plan", "jepsen_plan")),
    "pyarrow.parquet",
)
# What a byte of a file takes, in bytes of a segment, by how the file is named: lines of a history are some 15 times as
# long as its rows in Parquet; ``.edn`` are histories of Jepsen.
_WEIGHTS = {".headers.parquet": TABLE_WEIGHT, ".parquet": 64, ".jsonl": 8, ".edn": 200, ".log": 1}


def weight_of(file: Path, size: int) -> int:
    """The weight of a file of so many bytes; 0 of one that is neither a segment, a table nor a history."""
    return next((weight * size for suffix, weight in _WEIGHTS.items() if file.name.endswith(suffix)), 0)


def seem_large(paths: Iterable[Path]) -> bool:
    """Whether files and folders of this machine seem to be worth several processes, by names and sizes alone."""
    weight = 0
    for path in paths:
        for file in _files(path):
            try:
                weight += weight_of(file, file.stat().st_size)
            except OSError:  # gone, or not readable: the audit itself says so
                continue
            if weight > LEAST_WEIGHT:
                return True
    return False


def _files(path: Path) -> Iterator[Path]:
    yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)
