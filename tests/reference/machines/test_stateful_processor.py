"""The stateful processor: counts in a store, the changelog that restores it, and both after a failure."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.machine import instances
from kafka_eos.machines.stateful_processor import ABORTED, COMMITTED, OPEN, Constants, StatefulProcessor
from kafka_eos_checks.mutants.rules import mutated

CONSTANTS = Constants(
    inputs=frozenset({1, 2, 3}),
    key_of=Map({1: "a", 2: "b", 3: "a"}),
    keys=frozenset("ab"),
    instances=frozenset("AB"),
    max_faults=1,
)


def started(machine: type[StatefulProcessor] = StatefulProcessor) -> StatefulProcessor:
    """Instance A runs, and has counted nothing yet."""
    return machine.initial(CONSTANTS).initialize("A").start("A")


def counts(state: StatefulProcessor) -> list[tuple[str, int]]:
    return [(output.key, output.count) for output in state.outputs]


def restored(state: StatefulProcessor, instance: str) -> StatefulProcessor:
    for _ in range(len(state.changelog)):
        state = state.restore(instance)
    return state.start(instance)


def test_outputs_changes_and_offset_are_committed_together() -> None:
    state = started().process("A").process("A").process("A")
    assert (counts(state), state.committed, {entry.fate for entry in state.changelog}) == ([], 0, {OPEN})
    state = state.commit("A")
    assert (counts(state), state.committed) == ([("a", 1), ("b", 1), ("a", 2)], 3)
    assert {entry.fate for entry in state.changelog} == {COMMITTED}


def test_after_a_crash_the_store_is_restored_from_what_is_committed() -> None:
    state = started().process("A").commit("A").process("A").crash("A").initialize("B")
    assert [entry.fate for entry in state.changelog] == [COMMITTED, ABORTED]
    state = restored(state, "B")
    assert (dict(state.processes["B"].store), state.processes["B"].position) == ({"a": 1, "b": 0}, 1)
    assert counts(state.process("B").process("B").commit("B")) == [("a", 1), ("b", 1), ("a", 2)]


def test_after_an_abort_the_store_is_gone_and_is_restored() -> None:
    state = started().process("A").abort("A")
    assert dict(state.processes["A"].store) == {"a": 0, "b": 0}
    with pytest.raises(NotEnabled):
        state.start("A")
    assert counts(restored(state, "A").process("A").commit("A")) == [("a", 1)]


def test_nothing_runs_before_the_whole_changelog_is_restored() -> None:
    state = started().process("A").commit("A").crash("A").initialize("A")
    with pytest.raises(NotEnabled):
        state.process("A")
    with pytest.raises(NotEnabled):
        state.start("A")


def test_an_open_transaction_is_not_restored() -> None:
    state = restored(started().process("A").initialize("B"), "B").process("B").learn_fencing("A")
    assert [entry.fate for entry in state.changelog] == [ABORTED, OPEN]
    waiting = replace(state, processes=state.processes.set("A", state.restoring(state.nothing_counted()))).restore("A")
    with pytest.raises(NotEnabled):
        waiting.restore("A")


def test_an_instance_that_another_has_fenced_counts_nothing_more() -> None:
    state = started().process("A").initialize("B")
    for act in (state.process, state.commit, state.abort):
        with pytest.raises(NotEnabled):
            act("A")
    assert state.learn_fencing("A").processes["A"].stage == "down"


@pytest.mark.parametrize(
    ("rule", "mutant"),
    [
        (None, None),
        ("IsRestored", "RestoresUncommitted"),
        ("AfterAbort", "StoreIsKeptAfterAbort"),
        ("StoreAtStart", "StoreOnDiskIsUsed"),
        ("FateAtWrite", "ChangesAreWrittenApart"),
        ("MayWrite", "FormerOwnerWrites"),
    ],
)
def test_the_counts_are_exact_in_every_state_unless_a_protection_is_gone(rule: str | None, mutant: str | None) -> None:
    machine = mutated(StatefulProcessor, {rule: mutant}) if rule and mutant else StatefulProcessor
    state = machine.initial(CONSTANTS)
    assert isinstance(state, StatefulProcessor)
    found = explore(state, instances(machine, CONSTANTS))
    right = [("a", 1), ("b", 1), ("a", 2)]
    assert all(counts(each) == right[: each.committed] for each in found.states) == (rule is None)
