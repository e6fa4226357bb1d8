"""The transfer: a debit, a credit and an offset, with or without a transaction."""

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.machine import instances
from kafka_eos.machines.transfer import ALICE, BOB, COMMIT, NONE, OFFSETS, Constants, Transfer


def transfer(*, transactional: bool = True, max_faults: int = 1) -> Transfer:
    """A has read the first of two transfers."""
    constants = Constants(
        partitions=frozenset({ALICE, BOB, OFFSETS}),
        transfers=frozenset({1, 2}),
        instances=frozenset("AB"),
        transactional=transactional,
        max_faults=max_faults,
    )
    return Transfer.initial(constants).initialize("A").fetch("A")


def debits(state: Transfer) -> int:
    return state.count(state.logs[ALICE], NONE, 1)


def test_without_transactions_a_crash_before_the_offset_debits_alice_twice() -> None:
    state = transfer(transactional=False).debit("A").crash("A").initialize("B").fetch("B").debit("B")
    assert debits(state) == 2


def test_with_a_transaction_a_crash_before_the_commit_debits_alice_once() -> None:
    state = transfer().debit("A").crash("A").initialize("B").write_marker(ALICE)
    state = state.fetch("B").debit("B").credit("B").send_offset("B").commit("B")
    assert debits(state) == 0
    for partition in (ALICE, BOB, OFFSETS):
        state = state.write_marker(partition)
    assert debits(state) == state.count(state.logs[BOB], NONE, 1) == 1


def test_a_committed_transfer_has_its_markers_in_p0_p1_and_p7() -> None:
    state = transfer().debit("A").credit("A").send_offset("A").commit("A")
    assert state.transaction.partitions == {"p0", "p1", "p7"}
    for partition in sorted(state.transaction.partitions):
        state = state.write_marker(partition)
        assert state.logs[partition][-1].kind == COMMIT
    assert state.transaction.state == NONE


def test_each_partition_shows_its_part_when_its_own_marker_comes() -> None:
    state = transfer().debit("A").credit("A").send_offset("A").commit("A").write_marker(BOB)
    assert (debits(state), state.count(state.logs[BOB], NONE, 1)) == (0, 1)
    assert state.count(state.logs[ALICE], COMMIT, 1) == 1


def test_an_instance_that_another_has_fenced_writes_nothing_more() -> None:
    state = transfer().debit("A").initialize("B")
    with pytest.raises(NotEnabled):
        state.credit("A")
    assert state.learn_fencing("A").processes["A"].stage == "down"


def test_without_transactions_nobody_is_fenced() -> None:
    state = transfer(transactional=False).debit("A").initialize("B").credit("A")
    assert [entry.kind for entry in state.logs[BOB]] == ["plain"]
    with pytest.raises(NotEnabled):
        state.learn_fencing("A")


def test_no_offset_is_returned_before_its_marker_has_come() -> None:
    state = transfer().debit("A").credit("A").send_offset("A").commit("A")
    with pytest.raises(NotEnabled):
        state.fetch("A")
    state = state.write_marker(OFFSETS).fetch("A")
    assert state.processes["A"].transfer == 2
    with pytest.raises(NotEnabled):
        state.debit("A")


def test_an_aborted_transfer_is_read_again() -> None:
    state = transfer().debit("A").credit("A").abort("A").write_marker(ALICE).write_marker(BOB).fetch("A")
    assert (state.processes["A"].transfer, state.faults) == (1, 1)
    with pytest.raises(NotEnabled):
        state.crash("A")


@pytest.mark.parametrize("transactional", [True, False])
def test_with_transactions_no_state_shows_a_transfer_twice(transactional: bool) -> None:
    state = transfer(transactional=transactional)
    found = explore(Transfer.initial(state.constants), instances(Transfer, state.constants))
    assert any(debits(each) == 2 for each in found.states) == (not transactional)
