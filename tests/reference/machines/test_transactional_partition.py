"""A partition that transactions write to, as stories: refusals, the last stable offset, the index of aborts."""

from dataclasses import replace

import pytest

from kafka_eos.errors import ErrorCode, NotEnabled, Rejected
from kafka_eos.machines.machine import Instance, instances
from kafka_eos.machines.read_committed import IndexedTransaction
from kafka_eos.machines.transactional_partition import (
    NO_PRODUCER,
    PLAIN,
    TRANSACTIONAL,
    PartitionConstants,
    TransactionalPartition,
)

CONSTANTS = PartitionConstants(
    producer_ids=frozenset({1, 2}),
    epochs=frozenset({0, 1, 2}),
    max_epoch=2,
    coordinator_epochs=frozenset({0, 1}),
    batch_kinds=frozenset({TRANSACTIONAL, PLAIN}),
    offsets=frozenset(range(9)),
    transaction_version=1,
    max_leader_epoch=2,
    index_failures=True,
    expiration=True,
    cleaning=True,
)
WORDS = {"D": TRANSACTIONAL, "P": PLAIN}


def start(**changed: int) -> TransactionalPartition:
    constants = replace(CONSTANTS, **changed)
    return TransactionalPartition(constants=constants, log=TransactionalPartition.empty_log(constants))


def after(state: TransactionalPartition, text: str) -> TransactionalPartition:
    """The state after batches (``D1``, ``P1``) and markers (``C1``, ``A1``) of producers; ``+`` replicates an entry.

    A second digit is the producer epoch, a third one the coordinator epoch; they are 0 otherwise.
    """
    for word in text.split():
        kind, (producer_id, epoch, coordinator_epoch) = word[0], [*map(int, word[1:]), 0, 0, 0][:3]
        if kind == "+":
            state = state.advance_high_watermark()
        elif kind in WORDS:
            state = state.append_batch(producer_id, epoch, WORDS[kind])
        else:
            state = state.append_marker(producer_id, epoch, kind == "C", coordinator_epoch)
    return state


def refusal(state: TransactionalPartition, text: str) -> ErrorCode:
    with pytest.raises(Rejected) as caught:
        after(state, text)
    return caught.value.code


def test_a_leader_refuses_batches_of_old_epochs_and_plain_ones_inside_a_transaction() -> None:
    assert refusal(after(start(), "D11"), "D10") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(after(start(), "D1"), "P1") is ErrorCode.INVALID_TXN_STATE
    assert len(after(start(), "D1 P2 C1 P1").log.entries) == 4


def test_a_batch_of_a_later_epoch_joins_the_transaction_that_is_open() -> None:
    state = after(start(), "D10 D11 C11")
    assert state.log.aborted_index == start().log.aborted_index
    assert [t.first_offset for t in state.log.transactions] == [0]


@pytest.mark.parametrize(
    ("version", "log", "marker", "error"),
    [
        (1, "D11", "C10", ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, "D11", "C11", ErrorCode.NONE),
        (2, "D11", "C11", ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, "D10", "C11", ErrorCode.NONE),
        (2, "D10 C11", "C11", ErrorCode.NONE),
        (2, "D12", "C12", ErrorCode.NONE),
        (1, "D1 C101", "A100", ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, "D1 C111", "A110", ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_a_marker_is_judged_by_epoch_version_and_coordinator(
    version: int, log: str, marker: str, error: ErrorCode
) -> None:
    """The last epoch, 2, may end its own transaction; a marker may come again."""
    state = after(start(transaction_version=version), log)
    if error is ErrorCode.NONE:
        assert len(after(state, marker).log.entries) == len(state.log.entries) + 1
    else:
        assert refusal(state, marker) is error


def test_the_last_stable_offset_waits_for_the_first_transactions_replicated_marker() -> None:
    state = after(start(), "P2 D1 D2 C2 + + + +")
    assert (state.high_watermark, state.last_stable_offset()) == (4, 1)
    ended = after(state, "C1")
    assert (ended.high_watermark, ended.last_stable_offset()) == (4, 1)
    assert after(ended, "+").last_stable_offset() == 5


def test_the_index_has_only_aborted_transactions_with_the_last_stable_offset() -> None:
    state = after(start(), "D1 D2 A2 C1 D1 A1")
    assert list(state.log.aborted_index) == [
        IndexedTransaction(producer_id=2, first_offset=1, last_offset=2, last_stable_offset=0),
        IndexedTransaction(producer_id=1, first_offset=4, last_offset=5, last_stable_offset=6),
    ]


def test_an_aborted_transaction_without_index_entry_is_unstable_until_a_new_leader() -> None:
    state = after(after(start(), "D1 +").fail_index_entry(1, 0, 0), "+ P1 +")
    assert (state.high_watermark, state.last_stable_offset(), len(state.log.aborted_index)) == (3, 0, 0)
    elected = state.elect_leader(3, 3)
    assert (elected.last_stable_offset(), len(elected.log.aborted_index)) == (3, 1)


def test_a_new_leader_has_what_is_replicated_and_may_know_an_older_high_watermark() -> None:
    state = after(start(), "D1 C1 D2 + +")
    for end_offset, watermark, why in ((1, 0, "lacks"), (3, 3, "never there"), (4, 0, "no such part")):
        with pytest.raises(NotEnabled, match=why):
            state.elect_leader(end_offset, watermark)
    elected = state.elect_leader(2, 1)
    assert (len(elected.log.entries), elected.high_watermark, elected.last_stable_offset()) == (2, 1, 0)
    assert after(elected, "+").last_stable_offset() == 2


def test_a_marker_that_was_not_replicated_may_be_replaced_by_another_one() -> None:
    state = after(start(), "D1 + C1")
    assert state.last_stable_offset() == 0
    other = after(state.elect_leader(1, 1), "A1")
    assert [entry.kind for entry in other.log.entries] == ["transactional", "abort"]


def test_only_producers_without_an_open_transaction_are_forgotten() -> None:
    with pytest.raises(NotEnabled, match="transaction open"):
        after(start(), "D1").expire_producer(1)
    with pytest.raises(NotEnabled, match="not known"):
        start().expire_producer(1)
    assert after(start(), "D11 C11").expire_producer(1).log.producers[1] == NO_PRODUCER


def test_the_cleaner_leaves_a_marker_until_the_batches_of_its_transaction_are_gone() -> None:
    state = after(start(), "D1 A1 D1 C1 + + + +")
    with pytest.raises(NotEnabled, match="are left"):
        state.clean(1)
    cleaned = state.clean(0).clean(1)
    assert [entry.offset for entry in cleaned.log.entries] == [2, 3]
    assert len(cleaned.log.aborted_index) == 0
    with pytest.raises(NotEnabled, match="the last one"):
        cleaned.clean(3)
    with pytest.raises(NotEnabled, match="gone already"):
        cleaned.clean(0)


def test_unstable_batches_are_not_cleaned() -> None:
    state = after(start(), "D1 P2 P2 + + +")
    for offset in range(3):
        with pytest.raises(NotEnabled, match="not stable"):
            state.clean(offset)


@pytest.mark.parametrize("text", ["D1 A1 D2 + + +", "D1 D2 C2 + +", "P1 D11 C11 P11 +"])
def test_a_refused_step_leaves_the_state_and_a_taken_one_makes_a_new_one(text: str) -> None:
    state = after(start(), text)
    known = replace(state)
    for instance in instances(TransactionalPartition, CONSTANTS):  # type: ignore[type-var]
        assert took(state, instance) is None or took(state, instance) != known
    assert state == known


def took(state: TransactionalPartition, instance: Instance) -> TransactionalPartition | None:
    try:
        taken: TransactionalPartition = getattr(state, instance.action.method)(*instance.arguments)
    except (Rejected, NotEnabled):
        return None
    return taken
