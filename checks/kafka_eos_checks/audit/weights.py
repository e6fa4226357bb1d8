"""The time that an input takes, in bytes of segments, and whether several processes take less of it than one."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

LEAST_WEIGHT = 1 << 30  # of inputs; larger ones take several processes less time than one, their start included
TABLE_WEIGHT = 16  # a byte of a table takes as long as 5 to 20 bytes of a segment, depending on the batches' size
HISTORY_WEIGHT = 8  # a byte of a history takes as long as some eight of a segment
OPERATIONS_WEIGHT = 200  # the same of a history of Jepsen
# The modules that the process imports from which workers are forked: those of the tasks, but not the driver's.
IMPORTED = (
    *(f"kafka_eos_checks.audit.plan.{name}" for name in ("stages", "history_plan", "jepsen_plan")),
    "pyarrow.parquet",
)
_WEIGHTS = {".parquet": TABLE_WEIGHT, ".jsonl": HISTORY_WEIGHT, ".edn": OPERATIONS_WEIGHT, ".log": 1}


def seem_large(paths: Iterable[Path]) -> bool:
    """Whether files and folders of this machine seem to be worth several processes, by names and sizes alone."""
    weight = 0
    for path in paths:
        for file in _files(path):
            try:
                weight += _WEIGHTS.get(file.suffix, 0) * file.stat().st_size
            except OSError:  # gone, or not readable: the audit itself says so
                continue
            if weight > LEAST_WEIGHT:
                return True
    return False


def _files(path: Path) -> Iterator[Path]:
    yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)
