"""Replication, in-sync set, elections and truncation, as stories on named instances."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.machine import instances
from kafka_eos.machines.producer_state import Limits
from kafka_eos.machines.replicated_log import (
    ReplicaLog,
    ReplicatedBatch,
    ReplicatedConstants,
    ReplicatedLog,
    common_length,
)

NAMES = frozenset({"a", "b", "c"})
CONSTANTS = ReplicatedConstants(
    max_sequence=2**31 - 1,
    cached_batches=5,
    replicas=NAMES,
    initial_leader="a",
    snapshots=True,
    unclean_election=True,
    max_leader_epoch=3,
)
INSTANCES = {each.label: each for each in instances(ReplicatedLog, CONSTANTS)}  # type: ignore[arg-type]
START = ReplicatedLog(
    constants=CONSTANTS,
    replicas=Map(dict.fromkeys(NAMES, ReplicaLog(limits=Limits()))),
    alive=NAMES,
    leader="a",
    isr=NAMES,
)


def produce(state: ReplicatedLog, value: int) -> ReplicatedLog:
    """Let the leader append the batch of a value; its sequence is one below the value."""
    batch = ReplicatedBatch(producer_id=7, epoch=0, sequence=value - 1, count=1, value=value)
    return replace(state, replicas=state.leader_appends(batch))


def after(state: ReplicatedLog, *steps: str | int) -> ReplicatedLog:
    """The state after actions, given by their labels, and after produced values."""
    for each in steps:
        if isinstance(each, int):
            state = produce(state, each)
        else:
            state = getattr(state, INSTANCES[each].action.method)(*INSTANCES[each].arguments)
    return state


def values(state: ReplicatedLog, replica: str) -> list[int]:
    return [entry.value for entry in state.replicas[replica].entries]


REPLICATED = after(START, 1, 'Replicate("b")', 'Replicate("c")', "AdvanceHighWatermark")


def test_a_follower_copies_batches_one_by_one_with_the_producers_state() -> None:
    state = after(START, 1, 2, 'Replicate("b")')
    assert (values(state, "a"), values(state, "b"), values(state, "c")) == ([1, 2], [1], [])
    state = after(state, 'Replicate("b")')
    assert state.replicas["b"] == state.replicas["a"]
    with pytest.raises(NotEnabled, match="has everything"):
        after(state, 'Replicate("b")')


def test_the_high_watermark_is_what_every_in_sync_replica_has() -> None:
    state = after(START, 1, 2, 'Replicate("b")', 'Replicate("b")')
    with pytest.raises(NotEnabled, match="nothing new is replicated"):
        after(state, "AdvanceHighWatermark")
    assert after(state, 'Replicate("c")', "AdvanceHighWatermark").high_watermark == 1
    assert after(state, 'ShrinkIsr("c")', "AdvanceHighWatermark").high_watermark == 2


def test_a_follower_that_keeps_up_stays_in_sync_and_one_that_is_dead_does_not() -> None:
    with pytest.raises(NotEnabled, match="keeps up"):
        after(REPLICATED, 'ShrinkIsr("b")')
    assert after(REPLICATED, 'Crash("b")', 'ShrinkIsr("b")').isr == {"a", "c"}
    with pytest.raises(NotEnabled, match="not an in-sync follower"):
        after(REPLICATED, 'ShrinkIsr("a")')


def test_a_follower_comes_back_into_the_in_sync_set_when_it_has_what_is_committed() -> None:
    behind = after(REPLICATED, 2, 'ShrinkIsr("c")', 'Replicate("b")', "AdvanceHighWatermark")
    assert behind.high_watermark == 2
    with pytest.raises(NotEnabled, match="lacks what is committed"):
        after(behind, 'ExpandIsr("c")')
    assert after(behind, 'Replicate("c")', 'ExpandIsr("c")').isr == NAMES
    with pytest.raises(NotEnabled, match="in sync already"):
        after(behind, 'ExpandIsr("b")')


def test_a_killed_leader_leaves_no_leader_and_its_log_on_its_disk() -> None:
    state = after(REPLICATED, 'Crash("a")')
    assert (state.leader, state.alive, values(state, "a")) == (None, frozenset("bc"), [1])
    with pytest.raises(NotEnabled, match="not a follower"):
        after(state, 'Replicate("b")')
    assert after(state, 'Restart("a")').alive == NAMES
    with pytest.raises(NotEnabled, match="the replica runs"):
        after(state, 'Restart("b")')


def test_a_new_leader_comes_from_the_in_sync_set_and_has_all_committed_batches() -> None:
    state = after(REPLICATED, 2, 'ShrinkIsr("c")', 'Replicate("b")', "AdvanceHighWatermark", 'Crash("a")')
    with pytest.raises(NotEnabled, match="not in sync"):
        after(state, 'ElectLeader("c")')
    elected = after(state, 'ElectLeader("b")')
    assert (elected.leader, elected.leader_epoch, elected.isr) == ("b", 1, frozenset("b"))
    assert values(elected, "b") == [1, 2]
    assert elected.high_watermark == 2


def test_a_diverged_follower_cuts_its_log_back_before_it_copies() -> None:
    state = after(REPLICATED, 2, 'Crash("a")', 'ElectLeader("b")', 3, 'Restart("a")')
    assert (values(state, "a"), values(state, "b")) == ([1, 2], [1, 3])
    with pytest.raises(NotEnabled, match="has diverged"):
        after(state, 'Replicate("a")')
    cut = after(state, 'TruncateFollower("a")')
    assert values(cut, "a") == [1]
    assert [batch.sequence for batch in cut.replicas["a"].producers[7].batches] == [0]
    assert values(after(cut, 'Replicate("a")'), "a") == [1, 3]
    with pytest.raises(NotEnabled, match="has not diverged"):
        after(cut, 'TruncateFollower("a")')


def test_batches_at_one_offset_are_the_same_only_with_one_leader_epoch() -> None:
    state = after(REPLICATED, 2, 'Crash("a")', 'ElectLeader("b")', 2)
    a, b = state.replicas["a"].entries, state.replicas["b"].entries
    assert [entry.leader_epoch for entry in (*a, *b)] == [0, 0, 0, 1]
    assert common_length(a, b) == common_length(b, a) == 1
    assert common_length(a, a) == 2


def test_an_unclean_leader_lowers_the_high_watermark_to_its_log_end() -> None:
    state = after(REPLICATED, 2, 'ShrinkIsr("c")', 'Replicate("b")', "AdvanceHighWatermark")
    dead = after(state, 'Crash("a")', 'Crash("b")')
    elected = after(dead, 'ElectUncleanLeader("c")')
    assert (elected.leader, elected.isr, elected.high_watermark) == ("c", frozenset("c"), 1)
    assert values(elected, "c") == [1], "value 2 was committed and is lost"
    with pytest.raises(NotEnabled, match="an in-sync replica runs"):
        after(state, 'Crash("a")', 'ElectUncleanLeader("c")')


def test_unclean_elections_and_snapshots_can_be_off() -> None:
    off = replace(START, constants=replace(CONSTANTS, unclean_election=False, snapshots=False))
    with pytest.raises(NotEnabled, match="unclean elections are off"):
        after(off, 'ElectUncleanLeader("c")')
    with pytest.raises(NotEnabled, match="no snapshots"):
        after(off, 1, 'TakeSnapshot("a")')


def test_crashes_and_moves_of_the_leader_are_bounded_and_recovery_is_not() -> None:
    moved = after(START, 'ElectLeader("b")', 'ElectLeader("a")', 'ElectLeader("b")')
    refusals: dict[str, Callable[[], ReplicatedLog]] = {
        "moves have run out": lambda: after(moved, 'ElectLeader("a")'),
        "crashes have run out": lambda: after(moved, 'Crash("a")'),
    }
    for why, refused in refusals.items():
        with pytest.raises(NotEnabled, match=why):
            refused()
    leaderless = replace(moved, leader=None)
    assert after(leaderless, 'ElectLeader("a")').leader_epoch == 4


def test_a_restarted_replica_has_the_producers_that_its_log_says() -> None:
    state = after(REPLICATED, 'TakeSnapshot("b")', 2, 'Replicate("b")')
    restarted = after(state, 'Crash("b")', 'Restart("b")')
    assert restarted.replicas["b"].producers == state.replicas["a"].producers


ELIGIBLE = replace(CONSTANTS, min_insync_replicas=2, eligible_leader_replicas=True, volatile=frozenset("a"))
COMMITTED = replace(REPLICATED, constants=ELIGIBLE)


def test_the_high_watermark_stops_below_min_insync_replicas() -> None:
    alone = after(COMMITTED, 2, 'ShrinkIsr("b")', 'ShrinkIsr("c")')
    with pytest.raises(NotEnabled, match="fewer replicas are in sync"):
        after(alone, "AdvanceHighWatermark")
    together = after(alone, 'Replicate("b")', 'ExpandIsr("b")', "AdvanceHighWatermark")
    assert (together.high_watermark, together.elr) == (2, frozenset())


def test_who_leaves_the_in_sync_set_below_min_insync_replicas_stays_eligible() -> None:
    state = after(COMMITTED, 2, 'ShrinkIsr("c")')
    assert state.elr == frozenset(), "two are in sync"
    state = after(state, 'ShrinkIsr("b")')
    assert (state.isr, state.elr) == (frozenset("a"), frozenset("b"))


def test_an_eligible_replica_leads_when_the_last_one_in_sync_has_lost_what_it_had() -> None:
    dead = after(
        COMMITTED, 2, 'ShrinkIsr("c")', 'ShrinkIsr("b")', 'Crash("a")', 'LoseUnflushed("a")', 'LoseUnflushed("a")'
    )
    with pytest.raises(NotEnabled, match="a killed replica is in sync"):
        after(dead, 'ElectLeader("b")')
    fenced = after(dead, 'FenceReplica("a")')
    assert (fenced.isr, fenced.elr, fenced.last_known_leader) == (frozenset(), frozenset("ab"), "a")
    with pytest.raises(NotEnabled, match="not in sync"):
        after(fenced, 'ElectLeader("c")')
    elected = after(fenced, 'ElectLeader("b")', 'Restart("a")')
    assert (elected.leader, elected.isr, elected.elr, elected.high_watermark) == ("b", frozenset("b"), frozenset(), 1)
    assert values(elected, "b") == [1]


def test_without_anybody_eligible_the_last_known_leader_leads_with_what_it_still_has() -> None:
    state = after(COMMITTED, 2, 'ShrinkIsr("c")', 'Crash("b")', 'Restart("b")', 'Crash("a")')
    state = after(state, 'LoseUnflushed("a")', 'LoseUnflushed("a")', 'Restart("a")')
    assert (state.isr, state.elr, state.last_known_leader) == (frozenset(), frozenset(), "a")
    assert values(state, "b") == [1], "it has the value, and was killed"
    elected = after(state, 'ElectLeader("a")')
    assert (elected.isr, elected.high_watermark, values(elected, "a")) == (frozenset("a"), 0, [])


def test_without_eligible_leader_replicas_only_the_last_in_sync_replica_stays_after_a_kill() -> None:
    old = replace(COMMITTED, constants=replace(ELIGIBLE, eligible_leader_replicas=False))
    assert after(old, 'Crash("a")', 'Restart("a")').isr == frozenset("bc")
    alone = after(old, 2, 'ShrinkIsr("b")', 'ShrinkIsr("c")', 'Crash("a")')
    alone = after(alone, 'LoseUnflushed("a")', 'LoseUnflushed("a")', 'Restart("a")')
    assert (alone.isr, after(alone, 'ElectLeader("a")').high_watermark) == (frozenset("a"), 0)


def test_only_a_killed_volatile_replica_loses_batches() -> None:
    refusals = {
        "runs, or loses nothing": ('LoseUnflushed("a")',),
        "loses nothing": ('Crash("b")', 'LoseUnflushed("b")'),
        "the log is empty": ('Crash("a")', 'LoseUnflushed("a")', 'LoseUnflushed("a")'),
        "the leader takes it out": ('Crash("b")', 'FenceReplica("b")'),
        "runs or is not in sync": ('Crash("a")', 'FenceReplica("b")'),
    }
    for why, steps in refusals.items():
        with pytest.raises(NotEnabled, match=why):
            after(COMMITTED, *steps)
