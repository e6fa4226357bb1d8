"""Two tasks that copy a partition, with its offsets in the source or in the target cluster."""

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.mirror import Constants, Mirror


def mirror(offsets_in: str) -> Mirror:
    """A mirror of two records, its first task at the first of them."""
    constants = Constants(records=frozenset({1, 2}), tasks=frozenset({"A", "B"}), batch_size=2, offsets_in=offsets_in)
    return Mirror.initial(constants).produce().produce().initialize("A").rewind("A")


def test_offsets_in_the_target_cluster_move_with_the_copies() -> None:
    state = mirror("target").copy("A").commit("A")
    assert (state.target, state.offset, state.tasks["A"].stage) == ((1,), 2, "copying")


def test_offsets_in_the_source_cluster_move_after_the_copies() -> None:
    state = mirror("source").copy("A").commit("A")
    assert (state.target, state.offset) == ((1,), 1)
    assert state.commit_offset("A").offset == 2


@pytest.mark.parametrize(("offsets_in", "copies"), [("target", (1, 2)), ("source", (1, 1, 2))])
def test_a_crash_after_the_transaction_repeats_its_records_only_with_offsets_in_the_source(
    offsets_in: str, copies: tuple[int, ...]
) -> None:
    state = mirror(offsets_in).copy("A").commit("A").crash("A").initialize("B").rewind("B")
    while state.tasks["B"].position <= state.produced:
        state = state.copy("B")
    assert state.commit("B").target == copies


def test_the_next_task_copies_what_a_crashed_task_has_not_committed() -> None:
    state = mirror("target").copy("A").crash("A").initialize("B").rewind("B")
    assert (state.target, state.tasks["B"].position) == ((), 1)


def test_a_task_that_has_lost_the_partition_commits_nothing_and_learns_why() -> None:
    state = mirror("target").copy("A").initialize("B")
    with pytest.raises(NotEnabled, match="fenced"):
        state.commit("A")
    assert state.learn_fencing("A").tasks["A"].stage == "down"
    with pytest.raises(NotEnabled):
        state.learn_fencing("B")


def test_a_task_that_gets_the_partition_back_begins_where_the_offsets_are() -> None:
    state = mirror("target").copy("A").initialize("B").learn_fencing("A").initialize("A")
    assert state.tasks["A"].position == 2
    assert state.rewind("A").tasks["A"].position == 1


def test_the_source_deletes_only_records_that_the_offsets_mark_as_copied() -> None:
    with pytest.raises(NotEnabled):
        mirror("source").copy("A").commit("A").delete()
    assert mirror("target").copy("A").commit("A").delete().deleted == 1
