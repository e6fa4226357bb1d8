"""The offsets of a group by the places of their records: written in transactions, and decided by markers."""

import pytest
from immutables import Map

from kafka_eos.machines.group_coordinator import ABORT, COMMIT, Group, GroupConstants, GroupCoordinator

PRODUCER = "7"


@pytest.fixture
def group() -> GroupCoordinator:
    nothing: frozenset[str] = frozenset()
    return GroupCoordinator(
        constants=GroupConstants(
            instances=nothing, partitions=frozenset({"a", "b"}), transactional_ids=nothing, preferred=Map()
        ),
        group=Group(members=nothing),
        pending=Map(),
        committed=Map({"a": 3}),
    )


def test_offsets_of_a_transaction_are_pending_over_earlier_ones_and_not_committed(group: GroupCoordinator) -> None:
    written = group.with_pending(PRODUCER, Map({"a": 4, "b": 5})).with_pending(PRODUCER, Map({"a": 6}))
    assert (written.pending, written.committed) == (Map({PRODUCER: Map({"a": 6, "b": 5})}), group.committed)


@pytest.mark.parametrize(("decision", "committed"), [(COMMIT, {"a": 4, "b": 5}), (ABORT, {"a": 3})])
def test_a_marker_decides_what_is_pending(group: GroupCoordinator, decision: str, committed: dict[str, int]) -> None:
    decided = group.with_pending(PRODUCER, Map({"a": 4, "b": 5})).with_decision(PRODUCER, decision)
    assert (decided.pending, decided.committed) == (Map(), Map(committed))


def test_an_offset_that_is_committed_after_a_pending_one_stays(group: GroupCoordinator) -> None:
    decided = group.with_pending(PRODUCER, Map({"a": 2, "b": 5})).with_decision(PRODUCER, COMMIT)
    assert decided.committed == Map({"a": 3, "b": 5})


def test_the_marker_of_a_producer_without_pending_offsets_changes_nothing(group: GroupCoordinator) -> None:
    assert group.with_decision(PRODUCER, COMMIT) is group
