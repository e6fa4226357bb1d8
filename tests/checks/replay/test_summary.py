"""Chunk by chunk equals the readable rule, finding by finding, whatever the faults and the cuts are."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos_checks.replay.rules import DUPLICATE, GAP, LOG_RULES, NONE, Batch, audit_log
from kafka_eos_checks.replay.splits import PartitionLog, Split
from kafka_eos_checks.replay.summary import Columns, Combine, Summary, local
from kafka_eos_checks.replay.synthetic import faulty_log

LOG = PartitionLog("", "orders", 0, "", ("segment",))


def columns(batches: Sequence[Batch]) -> Columns:
    fields = list(zip(*batches, strict=True)) if batches else [()] * len(Batch._fields)
    return Columns(*(np.array(values, np.int64) for values in fields[:-1]), np.array(fields[-1], np.bool_))


def summary(part: Columns, start: int, end: int) -> Summary:
    first, end_offset, holes, disordered, boundary = local(part)
    return Summary(0, start, end, len(part), len(part), 0, first, end_offset, holes, disordered, boundary)


def by_chunks(batches: Sequence[Batch], cuts: Sequence[int]) -> Combine:
    """Fold a log of which the n-th batch has position n."""
    everything = columns(batches)
    combine = Combine([Split(LOG, 0, 1, "segment", 0, len(batches))], lambda _, a, b: everything.take(slice(a, b)))
    edges = sorted({0, len(batches), *cuts})
    for start, end in pairwise(edges):
        combine.add(summary(everything.take(slice(start, end)), start, end))
    return combine


def chunked(batches: Sequence[Batch], cuts: Sequence[int]) -> list[tuple[int | None, str, str]]:
    return [(f.position, f.rule, f.evidence) for f in by_chunks(batches, cuts).finish()]


def readable(batches: Sequence[Batch]) -> list[tuple[int, str, str]]:
    return [(batch.position, violation.rule, violation.evidence) for batch, violation in audit_log(batches)]


def test_faulty_logs_with_random_cuts_have_the_findings_of_the_readable_rule() -> None:
    rules: Counter[str] = Counter()
    reruns = clean = 0
    for seed in range(2_500):
        rng = random.Random(-seed)
        batches = faulty_log(seed, rng.randint(1, 60), rng.choice((0, 0.03, 0.15, 0.5)), rng.choice((0, 0, 5)))
        cuts = [rng.randint(0, len(batches)) for _ in range(rng.randint(0, 8))]
        expected = readable(batches)
        combine = by_chunks(batches, cuts)
        assert [(f.position, f.rule, f.evidence) for f in combine.finish()] == expected, f"seed {seed}, cuts {cuts}"
        rules.update(rule for _, rule, _ in expected)
        reruns += combine.reruns
        clean += not expected
    assert set(rules) == set(LOG_RULES), "every rule is violated somewhere"
    assert clean > 500, "and many logs are clean"
    assert reruns > 500, "and the readable rule had to decide somewhere"


any_batch = st.builds(
    lambda jump, pid, epoch, sequence, count, control: (jump, pid, epoch, sequence, 1 if control else count, control),
    st.sampled_from((0, 0, 0, 0, 0, 2, -1)),
    st.sampled_from((-1, 0, 1, (1 << 63) - 1)),
    st.integers(-1, 3),
    st.integers(0, 6),
    st.integers(1, 3),
    st.booleans(),
)


@given(st.lists(any_batch, min_size=1, max_size=14), st.lists(st.integers(0, 14), max_size=4), st.sampled_from((0, 4)))
@settings(max_examples=400, deadline=None)
def test_any_log_with_any_cuts_has_the_findings_of_the_readable_rule(
    wanted: list[tuple[int, int, int, int, int, bool]], cuts: list[int], offset: int
) -> None:
    batches = []
    for position, (jump, pid, epoch, sequence, count, control) in enumerate(wanted):
        offset = max(0, offset + jump)
        base, last = (NONE, sequence) if control or pid < 0 else (sequence, sequence + count - 1)
        batches.append(Batch(position, offset, offset + count - 1, pid, epoch, base, last, control and pid >= 0))
        offset += count
    inside = [cut for cut in cuts if cut <= len(batches)]
    assert chunked(batches, inside) == readable(batches)


def clean_batches(count: int) -> list[Batch]:
    return [Batch(i, i, i, i % 3, 0, i // 3, i // 3, unsequenced=False) for i in range(count)]


def test_a_clean_log_is_never_read_again() -> None:
    combine = by_chunks(clean_batches(90), range(0, 90, 7))
    assert (combine.finish(), combine.reruns) == ([], 0)


def test_a_fault_at_a_cut_is_found() -> None:
    batches = clean_batches(30)
    again = batches[:15] + [b._replace(base_sequence=b.base_sequence - 1, last_sequence=b.last_sequence - 1)
                            for b in batches[15:18]] + batches[18:]  # fmt: skip
    assert [rule for _, rule, _ in chunked(again, [15])] == [DUPLICATE] * 3 + [GAP] * 3


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([(0, 10), (20, 30)], "expected split 0 byte 10, found split 0 byte 20"),
        ([(0, 10), (5, 30)], "expected split 0 byte 10, found split 0 byte 5"),
        ([(0, 10), (10, 20)], "1 split\\(s\\) of the log were never folded"),
        ([(0, 30), (0, 30)], "after the end of the log"),
    ],
)
def test_chunks_that_overlap_or_leave_a_hole_are_refused(chunks: list[tuple[int, int]], said: str) -> None:
    everything = columns(clean_batches(30))
    combine = Combine([Split(LOG, 0, 1, "segment", 0, 30)], lambda _, a, b: everything.take(slice(a, b)))
    with pytest.raises(AssertionError, match=said):
        add_all(combine, everything, chunks)


def add_all(combine: Combine, everything: Columns, chunks: list[tuple[int, int]]) -> None:
    for start, end in chunks:
        combine.add(summary(everything.take(slice(start, end)), start, end))
    combine.finish()
