"""A share group: deliveries up to the limit, late answers, the filter of aborted batches."""

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.share_partition import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    Constants,
    LogBatch,
    Record,
    SharePartition,
)
from kafka_eos_checks.mutants.rules import mutated

LOG = frozenset(
    {
        LogBatch(base_offset=0, last_offset=1, kind="aborted"),
        LogBatch(base_offset=2, last_offset=2, kind="control"),
        LogBatch(base_offset=3, last_offset=4, kind="committed"),
    }
)


def group(first_offset: int = 1, machine: type[SharePartition] = SharePartition) -> SharePartition:
    """A group of two members; by default it begins inside of the aborted batch."""
    constants = Constants(
        batches=LOG,
        offsets=frozenset(range(5)),
        first_offset=first_offset,
        members=frozenset({"A", "B"}),
        acknowledge_types=frozenset({"ACCEPT", "RELEASE", "REJECT"}),
        delivery_count_limit=2,
    )
    return machine.initial(constants)


@pytest.mark.parametrize("first_offset", [0, 1, 2, 3])
def test_a_member_is_given_the_committed_records_only(first_offset: int) -> None:
    state = group(first_offset).acquire("A", 4)
    assert state.held["A"] == {3, 4}
    assert state.start_offset == first_offset, "only an answer moves it, as in Kafka"
    assert state.acknowledge("A", 3, "ACCEPT").start_offset == 4
    assert state.cached_state[3] == Record(state=ACQUIRED, delivery_count=1, member_id="A")


def test_a_released_record_is_given_again_up_to_the_limit() -> None:
    once = group().acquire("A", 4).acknowledge("A", 3, "RELEASE")
    assert once.cached_state[3] == Record(state=AVAILABLE, delivery_count=1)
    twice = once.acquire("B", 4).time_out_lock(3)
    assert (twice.cached_state[3].state, twice.delivered[3]) == (ARCHIVED, 2)


def test_an_answer_after_the_lock_has_run_out_changes_nothing() -> None:
    state = group().acquire("A", 4).time_out_lock(3).acquire("B", 4)
    with pytest.raises(NotEnabled, match="no lock"):
        state.acknowledge("A", 3, "REJECT")
    late = state.acknowledge_late("A", 3)
    assert (late.cached_state, late.held["A"]) == (state.cached_state, {4})
    assert late.acknowledge("B", 3, "ACCEPT").cached_state[3].state == ACKNOWLEDGED


def test_a_member_that_leaves_gives_back_all_that_it_has() -> None:
    state = group().acquire("A", 4).acknowledge("A", 3, "ACCEPT").release_acquired_records("A")
    assert (state.start_offset, state.held["A"], state.cached_state[4].state) == (4, frozenset(), AVAILABLE)


def test_a_group_of_kafka_that_begins_inside_an_aborted_batch_loses_records_that_nobody_was_given() -> None:
    machine = mutated(SharePartition, {"LookedUp": "BaseOffsetOnly"})
    state = group(machine=machine)
    for _ in range(2):
        with pytest.raises(NotEnabled, match="the filter throws"):
            state.acquire("A", 4)
        state = state.acquire_for_nobody("A", 4)
        for offset in range(1, 5):
            state = state.time_out_lock(offset)
    assert (state.start_offset, state.cached_state[4].state, sum(state.delivered.values())) == (5, ARCHIVED, 0)
    assert group(0, machine).acquire("A", 4).held["A"] == {3, 4}, "a group that begins before the batch is right"
