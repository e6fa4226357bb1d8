import pytest

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.transactional_offsets import Constants, TransactionalOffsets
from kafka_eos_checks.mutants.rules import mutated

SHIPPED = mutated(TransactionalOffsets, {"IsOutdated": "NothingIsOutdated"})
OF_3_9 = mutated(
    TransactionalOffsets,
    {"IsOutdated": "NothingIsOutdated", "AppliesAtOnce": "AppliesByTask", "Readable": "ReadsMemory"},
)
FAULTS = frozenset({"request times out", "call times out", "failover", "former coordinator"})


def begun(machine: type[TransactionalOffsets], version: int) -> TransactionalOffsets:
    constants = Constants(
        sends=frozenset(range(1, 6)),
        numbers=frozenset(range(1, 4)),
        version=version,
        verification=True,
        faults=FAULTS,
        max_faults=3,
    )
    return machine.initial(constants)


def sent(state: TransactionalOffsets) -> TransactionalOffsets:
    """An offset that is sent, stored and acknowledged."""
    if state.constants.version == 1 and not state.within().added:
        state = state.add_offsets()
    state = state.send_offsets()
    send = len(state.sends)
    return state.store_offsets(send).replicate().receive_answer(send)


def sent_twice(state: TransactionalOffsets) -> TransactionalOffsets:
    """The same, and the request of an earlier attempt is still on its way."""
    state = state.add_offsets() if state.constants.version == 1 else state
    state = state.send_offsets()
    send = len(state.sends)
    return state.resend_offsets(send).store_offsets(send).replicate().receive_answer(send)


def ended(state: TransactionalOffsets, commit: bool) -> TransactionalOffsets:
    state = state.end(commit).write_marker()
    while state.replicated < len(state.log):
        state = state.replicate()
    return state.complete().fetch_offset()


@pytest.mark.parametrize("version", [1, 2])
def test_a_retry_that_comes_after_a_later_send_takes_its_place_in_kafka(version: int) -> None:
    late = sent(sent_twice(begun(SHIPPED, version))).store_offsets(1)
    assert ended(late, True).fetched == 1
    numbered = sent(sent_twice(begun(TransactionalOffsets, version)))
    with pytest.raises(NotEnabled, match="outdated"):
        numbered.store_offsets(1)
    assert ended(numbered.acknowledge_offsets(1), True).fetched == 2


def test_with_version_1_a_retry_of_an_aborted_transaction_is_committed_with_the_next_one() -> None:
    state = sent(ended(sent_twice(begun(SHIPPED, 1)), False))
    assert ended(state.store_offsets(1), True).fetched == 1
    assert state.outcome[1] == "aborted"


def test_with_version_2_the_epoch_of_a_retry_names_its_transaction() -> None:
    state = sent(ended(sent_twice(begun(SHIPPED, 2)), False))
    assert state.txn_offset_commit_error(1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ended(state.refuse_offsets(1), True).fetched == 2


def test_a_send_before_the_marker_of_the_last_transaction_is_sent_again() -> None:
    state = sent(begun(TransactionalOffsets, 2)).end(True).send_offsets()
    assert state.txn_offset_commit_error(2) is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(NotEnabled, match="busy"):
        state.end(False)
    state = state.refuse_offsets(2).write_marker().replicate().complete().resend_offsets(2)
    assert state.faults == 0
    assert state.store_offsets(2).memory.pending == 2


def test_after_a_failover_pending_offsets_wait_for_their_marker_again() -> None:
    state = sent(begun(TransactionalOffsets, 2)).end(True).write_marker()
    state = state.fail_over()
    assert (state.memory.pending, state.memory.committed) == (1, 0)
    with pytest.raises(NotEnabled, match="pending"):
        state.fetch_offset()
    assert state.write_marker().replicate().complete().fetch_offset().fetched == 1


def test_a_send_that_a_failover_has_lost_was_never_answered_and_is_sent_again() -> None:
    state = begun(TransactionalOffsets, 2).send_offsets().store_offsets(1).fail_over()
    with pytest.raises(NotEnabled, match="no answer is due"):
        state.receive_answer(1)
    state = state.resend_offsets(1).store_offsets(1).replicate().receive_answer(1)
    assert ended(state, True).fetched == 1


def test_a_former_coordinator_gives_an_offset_that_is_no_longer_the_latest() -> None:
    state = ended(sent(begun(TransactionalOffsets, 2)), True).fail_over()
    state = ended(sent(state), True)
    assert (state.fetched, state.fetch_from_former().fetched) == (2, 1)


def test_in_kafka_3_9_an_offset_stays_pending_until_a_task_follows_the_marker() -> None:
    state = sent(begun(OF_3_9, 1)).end(True).write_marker()
    with pytest.raises(NotEnabled, match="not replicated"):
        state.apply_marker()
    replicated = state.replicate()
    for refused in (replicated.fetch_offset, replicated.complete):
        with pytest.raises(NotEnabled, match=r"pending|not taken effect"):
            refused()
    applied = replicated.apply_marker()
    assert applied.fetch_offset().fetched == 1
    assert applied.complete().transaction.state == "EMPTY"
    with pytest.raises(NotEnabled, match="no marker waits"):
        applied.apply_marker()


def test_in_kafka_3_9_a_new_coordinator_gives_effect_to_every_marker_that_it_loads() -> None:
    state = sent(begun(OF_3_9, 1)).end(True).write_marker().replicate().fail_over()
    assert state.fetch_offset().fetched == 1
    assert state.complete().transaction.state == "EMPTY"
