"""Random logs with planted faults and random cuts: the audit by chunks is compared with the readable rule.

A log, its faults and its cuts follow from a seed. Every :data:`FILES_EVERY`-th log is also written as segments, of
which one may get a wrong name, and audited from its files in splits of a random size, against the readable decoder and
rule.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kafka_eos_checks.audit.kernels.logs.runs import Columns, runs_of
from kafka_eos_checks.audit.kernels.logs.summary import Combine, Summary, last_hole, leaders_of
from kafka_eos_checks.audit.kernels.logs.summary import local as summarised
from kafka_eos_checks.audit.oracle import oracle
from kafka_eos_checks.audit.oracle.random_cases import compare
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules.log import LOG_RULES, Batch, audit_log
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split, find_logs
from kafka_eos_checks.kit.verdict import Verdict

FILES_EVERY = 49  # odd, so that half of them have transactions
_LOG = PartitionLog("", "orders", 0, "", ("segment",))

Row = tuple[int | None, str, str]  # position, rule, evidence


def columns_of(batches: Sequence[Batch]) -> Columns:
    """Batches as the arrays that chunks are summarised from."""
    fields = zip(*batches, strict=True) if batches else iter([()] * len(Batch._fields))
    kinds = {
        "unsequenced": np.bool_,
        "kind": np.int8,
        **dict.fromkeys(("producer_epoch", "base_sequence", "last_sequence", "leader_epoch"), np.int32),
    }
    columns: dict[str, Any] = {name: np.array(next(fields), kinds.get(name, np.int64)) for name in Batch._fields}
    return Columns(**columns)


def summary_of(part: Columns, start: int, end: int) -> Summary:
    """The summary of a chunk between two positions."""
    runs = runs_of(part)
    first, end_offset, holes, disordered, boundary = summarised(part, runs)
    hole = last_hole(part, runs)
    facts = (first, end_offset, holes, disordered, boundary)
    return Summary(0, start, end, len(part), len(part), 0, *facts, hole=hole, leaders=leaders_of(part))


def by_chunks(batches: Sequence[Batch], cuts: Sequence[int]) -> Combine:
    """Fold a log, of which the n-th batch has position n, in chunks that end at the cuts."""
    everything = columns_of(batches)
    combine = Combine(
        [Split(_LOG, 0, 1, "segment", 0, len(batches))], lambda chunk: everything.take(slice(chunk.start, chunk.end))
    )
    for start, end in pairwise(sorted({0, len(batches), *cuts})):
        combine.add(summary_of(everything.take(slice(start, end)), start, end))
    return combine


def chunked(batches: Sequence[Batch], cuts: Sequence[int]) -> list[Row]:
    """The findings of the audit by chunks."""
    return [(f.position, f.rule, f.evidence) for f in by_chunks(batches, cuts).finish()]


def readable(batches: Sequence[Batch]) -> list[Row]:
    """The findings of the readable rule."""
    return [(batch.position, violation.rule, violation.evidence) for batch, violation in audit_log(batches)]


def random_log(seed: int) -> tuple[list[Batch], list[int]]:
    """A log with or without faults, and the places where it is cut."""
    rng = random.Random(-seed)
    rate, first = rng.choice((0, 0.03, 0.15, 0.5)), rng.choice((0, 0, 5))
    batches = faulty_log(seed, rng.randint(1, 60), rate, first, transactions=bool(seed % 2))
    return batches, [rng.randint(0, len(batches)) for _ in range(rng.randint(0, 8))]


def from_files(seed: int, batches: Sequence[Batch]) -> str:
    """Audit the log from files; return the difference from the readable decoder and rule, "" for none."""
    rng = random.Random(f"files {seed}")
    with tempfile.TemporaryDirectory(prefix="kafka-eos-logs-") as folder:
        write_log(Path(folder, "orders-0"), batches, segment_batches=rng.randint(1, 40), index=rng.random() < 0.7)
        if rng.random() < 0.5:
            _misname(rng.choice(sorted(Path(folder, "orders-0").glob("*.log"))), rng)
        audits = stages.audit_logs(find_logs(Path(folder)), split_bytes=rng.choice((100, 1000, 10_000)))
        return oracle.judge(audits).evidence


def _misname(segment: Path, rng: random.Random) -> None:
    """Give a segment a name that may rule out some of its batches, or of those before it."""
    other = segment.with_name(f"{max(0, int(segment.stem) + rng.randint(-5, 5)):020d}.log")
    if not other.exists():
        segment.rename(other)
        segment.with_suffix(".index").unlink(missing_ok=True)


def difference(seed: int) -> tuple[str, Counter[str]]:
    """The difference of the audit of a random log by chunks, "" for none, and figures: findings by rule, reruns."""
    batches, cuts = random_log(seed)
    expected, combine = readable(batches), by_chunks(batches, cuts)
    found: list[Row] = [(f.position, f.rule, f.evidence) for f in combine.finish()]
    figures = Counter(dict.fromkeys(LOG_RULES, 0))
    figures.update(rule for _, rule, _ in expected)
    in_files = seed % FILES_EVERY == 0
    figures.update({"clean": not expected, "from_files": in_files, "reruns": combine.reruns})
    differs = f"cuts {cuts}: the readable rule {expected}, by chunks {found}" if found != expected else ""
    if in_files and (other := from_files(seed, batches)):
        differs += f"{'; ' if differs else ''}from files: {other}"
    return differs, figures


def judge(count: int, first: int = 0) -> Verdict:
    """Compare ``count`` logs, with seeds from ``first`` on."""
    return compare("audit by chunks", "log", "logs", difference, count, first)
