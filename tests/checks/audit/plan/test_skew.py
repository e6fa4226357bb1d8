"""No task of the plan gets a whole hot partition: counted by rows, not by time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos_checks.audit import audit as audits
from kafka_eos_checks.audit.audit import of_inputs
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.local import LocalEngine, LocalRows
from kafka_eos_checks.audit.inputs import open_inputs
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

SPLIT = 40_000  # bytes


def rows_in(value: Any) -> int:
    """The number of rows in a value between two stages: the length of its longest array."""
    if isinstance(value, np.ndarray):
        return len(value)
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    return max(map(rows_in, value), default=0) if isinstance(value, (tuple, list)) else 0


class Counting(LocalEngine):
    """An engine that counts the rows that each task is given."""

    given: dict[str, Counter[int]]

    def __init__(self) -> None:
        super().__init__()
        self.buckets = 8
        self.given = defaultdict(Counter)

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> LocalRows:
        for key in set().union(*(each.keys(kinds) for each in rows)):
            self.given[label][key] += sum(rows_in(value) for each in rows for value in each.values(kinds, key))
        return super().regroup(function, kinds, *rows, label=label)

    def share(self, label: str) -> float:
        """The share of the rows of a stage that its largest task has."""
        counts = self.given[label]
        return max(counts.values()) / counts.total()


def counted(workload: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Audit a generated cluster, which is healthy, in small splits, and count."""
    Cluster(workload=workload, value_bytes=16, segment_bytes=SPLIT).write(folder)
    engine = Counting()
    monkeypatch.setattr(audits, "open_engine", lambda *_: engine)
    monkeypatch.setattr(
        stages.scan_logs, "__kwdefaults__", {"check_crc": True, "split_bytes": SPLIT, "slice_markers": 8}
    )
    with open_inputs([folder], []) as inputs:
        found = of_inputs(inputs)
    assert [finding.in_words() for finding in (*found.findings, *found.notes)] == []
    return engine


def test_no_task_gets_a_hot_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = Workload(transactions=1500, batches=4500, partitions=8, spread=1, clients=64, hot_partition=0.9)
    engine = counted(hot, tmp_path, monkeypatch)
    assert {"transactions", "indexes", "snapshots"} <= set(engine.given)
    for label in ("transactions", "indexes", "snapshots"):
        assert engine.given[label].total() > 2000, f"{label} has something to share"
        assert engine.share(label) < 0.3, f"{label}: {engine.given[label]}"


@pytest.mark.parametrize(
    ("version_2", "fenced"), [(1.0, 0.0), (0.0, 0.2), pytest.param(0.0, 0.0, marks=pytest.mark.thorough)]
)
def test_no_task_gets_a_hot_producer_transactional_id_or_group(
    version_2: float, fenced: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "FENCED", fenced)  # without fences all its transactions have one epoch
    hot = Workload(
        transactions=1500, batches=4500, partitions=8, spread=1, clients=64, hot_client=0.9, version_2=version_2
    )
    engine = counted(hot, tmp_path, monkeypatch)
    labels = "transactional ids", "transactions", "decisions of slices", "slices", "missing markers"
    for label in labels:
        assert engine.given[label].total() > 500, f"{label} has something to share"
        assert engine.share(label) < 0.3, f"{label}: {engine.given[label]}"
    assert engine.given["slices"].total() > 10 * engine.given["transactions"].total() / 3, "the slices have most of it"
    commits = 0.9 * hot.transactions
    assert max(engine.given["offsets"].values()) < commits / 8, "records of a group are summed up where they are read"
    assert "slices put together" not in engine.given, "all of them are proved"
