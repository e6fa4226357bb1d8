"""Runs have every batch with a producer id once, and inside of a run nothing is left to judge."""

from itertools import pairwise

from kafka_eos_checks.audit.kernels.logs.runs import runs_of
from kafka_eos_checks.audit.oracle.random_logs import columns_of, random_log
from kafka_eos_checks.audit.rules.log import Batch, Producer, after


def test_inside_of_a_run_the_readable_rule_finds_nothing() -> None:
    inside = 0
    for seed in range(300):
        batches = random_log(seed)[0]
        runs = runs_of(columns_of(batches))
        assert sorted(runs.order.tolist()) == [row for row, batch in enumerate(batches) if batch.producer_id >= 0], seed
        bounds = [*runs.begin.tolist(), len(runs.order)]
        assert [runs.order[end - 1] for end in bounds[1:]] == runs.last.tolist()
        for begin, end in pairwise(bounds):
            rows = runs.order[begin:end].tolist()
            inside += len(rows) - 1
            assert rows == sorted(rows)
            assert len({(runs.holes[row], batches[row].kind) for row in rows}) == 1, seed
            known: Producer | None = None
            for row in rows:
                known, violation = after(known, batches[row], int(runs.holes[row]), whole=False)
                assert violation is None, (seed, violation)
    assert inside > 500


def test_holes_are_counted_from_the_end_of_what_lies_before() -> None:
    columns = columns_of([batch for batch in random_log(2)[0] if batch.producer_id >= 0][:1])
    base = int(columns.base_offset[0])
    assert runs_of(columns).holes.tolist() == [0]
    assert runs_of(columns, end=base - 1).holes.tolist() == [1]
    assert runs_of(columns, end=base + 9).disordered
    assert runs_of(columns, end=base + 9).end >= base + 9


def test_a_jump_below_the_end_of_what_lies_before_is_no_hole() -> None:
    columns = columns_of([Batch(at, at, at, 7, 0, at, at, unsequenced=False) for at in (5, 8, 12)])
    assert runs_of(columns).holes.tolist() == [0, 1, 2]
    assert runs_of(columns, end=10).holes.tolist() == [0, 0, 1]
