"""The plan of declared applications: the offsets that it takes for known, and what its tasks give in any order."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.audit.plan import declared_stages
from kafka_eos_checks.audit.plan.declared_plan import _unknown
from kafka_eos_checks.audit.plan.declared_stages import DeclaredLogs, report_once
from kafka_eos_checks.audit.rules.applications import UNKNOWN, Candidate, Offsets
from kafka_eos_checks.audit.rules.offsets import GroupLog
from kafka_eos_checks.audit.segments.splits import PartitionLog

PLACE = ("in", 0)
NAME = ("g", PLACE)


@pytest.mark.parametrize(
    ("logs", "known"),
    [
        ([], False),
        ([(True, True)], True),
        ([(True, False)], False),
        ([(False, True)], True),
        ([(False, False)], False),
        ([(False, True), (False, False)], False),
        ([(True, True), (False, False)], True),
        ([(True, True), (True, True)], False),
    ],
)
def test_the_offsets_of_a_group_are_known_as_the_readable_rules_know_them(
    logs: list[tuple[bool, bool]], known: bool
) -> None:
    """Each log: whether it has offsets of the group, and whether it is whole."""
    committed = {
        number: (frozenset({NAME} if has_some else {("other", PLACE)}), whole)
        for number, (has_some, whole) in enumerate(logs)
    }
    assert _unknown("g", [PLACE], committed) == (frozenset() if known else {NAME})
    readable = [
        GroupLog(PartitionLog("", "offsets", number, "", ()), {NAME: []} if has_some else {}, whole=whole)
        for number, (has_some, whole) in enumerate(logs)
    ]
    assert (Offsets(readable).covering(NAME, 0) != UNKNOWN) == known


def test_a_commit_that_is_past_no_further_offset_gives_no_row() -> None:
    offsets = [0, 5, 5, 3, 9]
    rises = [rise for _, _, rise in DeclaredLogs(pieces=3).rises(0, NAME, offsets, [False, True, False, True, False])]
    assert [(rise.low, rise.high, rise.transactional) for rise in rises] == [(0, 5, True), (5, 9, False)]


def test_of_the_inputs_of_a_transaction_the_first_is_reported_in_whatever_order_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(declared_stages, "found_rows", lambda found, _: found)
    attempt = ("x", 0)
    some: Any = [
        (0, attempt, Candidate(SimpleNamespace(offset=number), (PLACE, number), frozenset({attempt})))  # type: ignore[arg-type]
        for number in range(3)
    ]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        [found] = report_once(0, [[some[number] for number in order]])
        assert found.offset == 0  # type: ignore[attr-defined]
