"""The committed offsets of a group that a plan of declared applications takes for known, or not."""

import pytest

from kafka_eos_checks.audit.plan.declared_plan import _unknown
from kafka_eos_checks.audit.rules.applications import UNKNOWN, Offsets
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
