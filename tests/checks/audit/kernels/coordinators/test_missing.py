"""Counts of markers and of completed transactions: what tasks have counted can be added in any order."""

from dataclasses import replace
from itertools import permutations
from math import inf

import numpy as np

from kafka_eos_checks.audit.kernels.coordinators.missing import OWED, THERE, added, began, by_task, lowest_in, lowest_of
from kafka_eos_checks.audit.kernels.logs.transactions import Partition
from kafka_eos_checks.audit.moments import SKEW_MS
from kafka_eos_checks.audit.segments.splits import PartitionLog


def test_counts_of_a_log_and_epoch_are_added_and_the_last_decision_is_named() -> None:
    owed = np.zeros(4, OWED)
    for name, values in {
        "log": [1, 1, 1, 0],
        "producer_id": 7,
        "epoch": [2, 2, 3, 2],
        "due": [1, 2, 0, 1],
        "doubtful": [0, 1, 1, 0],
        "decided_ms": [30, 20, 10, 5],
        "number": [3, 2, 1, 0],
        "completed_ms": [31, 40, 11, 6],
        "ordered": [False, True, False, False],
    }.items():
        owed[name] = values
    names = ["log", "epoch", "due", "doubtful", "decided_ms", "number", "completed_ms", "ordered"]
    expected = [(0, 2, 1, 0, 5, 0, 6, False), (1, 2, 3, 1, 30, 3, 40, True), (1, 3, 0, 1, 10, 1, 11, False)]
    for order in permutations(range(4)):
        assert added(owed[[*order]])[names].tolist() == expected
    assert not len(added(owed[:0]))


def test_markers_and_data_without_them_are_added_and_data_count_for_two_epochs() -> None:
    none, some, later = (-1, 0, 0, 0), (11, 14, 2, 0), (30, 33, 3, 1)
    there = np.array(
        [
            (0, 7, 2, 1, False, *later),
            (0, 7, 2, 2, True, *none),
            (0, 7, 2, 0, False, *some),
            (0, 7, 5, 1, False, *none),
        ],
        THERE,
    )
    rows = added(there[::-1])
    assert rows.tolist() == [(0, 7, 2, 3, True, *later), (0, 7, 5, 1, False, *none)]
    tasks = {task: own.tolist() for task, own in by_task(rows, 8)}
    assert tasks == {
        (7 + 2) % 8: [(0, 7, 2, 3, True, *later)],
        (7 + 3) % 8: [(0, 7, 2, 0, True, *later)],
        (7 + 5) % 8: [(0, 7, 5, 1, False, *none)],
    }
    assert [(task, added(own).tolist()) for task, own in by_task(rows, 1)] == [(0, rows.tolist())]


def test_the_lowest_epoch_is_that_of_a_marker_in_any_task() -> None:
    told = [(0, 7, -1, 1, False), (0, 7, 2, 0, True), (0, 7, 3, 1, False), (1, 7, 4, 1, False)]
    rows = np.array([(*each, -1, 0, 0, 0) for each in told], THERE)
    one, other = lowest_in(rows), {(0, 7): 5, (2, 7): 1}
    assert one == {(0, 7): 3, (1, 7): 4}
    assert lowest_of([one, other]) == lowest_of([other, one]) == {(0, 7): 3, (1, 7): 4, (2, 7): 1}


def test_a_partition_was_new_with_its_first_batch_if_no_replica_may_have_had_more() -> None:
    new = Partition(log=PartitionLog("", "orders", 0, "", ("0.log",)), start=0, begins_epoch=0, begins_ms=20_000)
    assert began([new, new]) == {("orders", 0): 20_000 - SKEW_MS}
    assert began([replace(new, first_marker_ms=9_000)]) == {("orders", 0): 9_000 - SKEW_MS}
    others = replace(new, start=5), replace(new, begins_epoch=3), replace(new, holes=1), replace(new, damaged=True)
    assert [began([new, other]) for other in others] == [{("orders", 0): -inf}] * 4
