"""The three outcomes of a produce request, on named instances and on every state of a small model."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.explorer import Exploration, explore
from kafka_eos.machines.machine import Instance, instances, step, walk
from kafka_eos.machines.partition_log import NO_RESPONSE, Constants, PartitionLog
from kafka_eos.machines.producer_state import Log

SMALL = Constants(
    max_sequence=2,
    cached_batches=2,
    producer_ids=frozenset({0}),
    epochs=frozenset({0, 1}),
    sequences=frozenset({0, 1, 2}),
    batch_counts=frozenset({1}),
    expiration=False,
)
REAL = replace(
    SMALL, max_sequence=2**31 - 1, cached_batches=5, sequences=frozenset(range(7)), batch_counts=frozenset({1, 2})
)


def after(*labels: str, constants: Constants = REAL) -> PartitionLog:
    """The state after the actions with these labels."""
    known = {each.label: each for each in instances(PartitionLog, constants)}
    *_, last = walk(PartitionLog.initial(constants), [known[label] for label in labels])
    return last


def answer(state: PartitionLog) -> tuple[ErrorCode, int]:
    return state.response.error, state.response.offset


def test_at_first_no_request_has_been_answered() -> None:
    assert after() == PartitionLog(constants=REAL, log=Log(), response=NO_RESPONSE)


def test_an_appended_batch_is_answered_with_its_offset() -> None:
    state = after("AppendBatch(0, 0, 0, 2)", "AppendBatch(0, 0, 2, 1)")
    assert answer(state) == (ErrorCode.NONE, 2)
    assert [(entry.offset, entry.sequence) for entry in state.log.entries] == [(0, 0), (2, 2)]


def test_a_retry_is_answered_with_the_first_offset_and_stored_once() -> None:
    stored = after("AppendBatch(0, 0, 0, 2)", "AppendBatch(0, 0, 2, 1)")
    retried = after("AppendBatch(0, 0, 0, 2)", "AppendBatch(0, 0, 2, 1)", "AcknowledgeDuplicate(0, 0, 0, 2)")
    assert answer(retried) == (ErrorCode.NONE, 0)
    assert retried.log == stored.log


def test_a_rejected_batch_leaves_the_log_unchanged() -> None:
    refused = after("AppendBatch(0, 1, 0, 1)", "RefuseBatch(0, 0, 0, 1)")
    assert answer(refused) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert refused.log == after("AppendBatch(0, 1, 0, 1)").log
    assert answer(after("RefuseBatch(0, 0, 3, 1)")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_the_sixth_oldest_batch_can_no_longer_be_retried() -> None:
    six = [f"AppendBatch(0, 0, {sequence}, 1)" for sequence in range(6)]
    assert answer(after(*six, "AcknowledgeDuplicate(0, 0, 1, 1)")) == (ErrorCode.NONE, 1)
    assert answer(after(*six, "RefuseBatch(0, 0, 0, 1)")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_failed_append_leaves_the_log_unchanged_and_can_be_retried() -> None:
    failed = after("FailAppend(0, 0, 0, 1)")
    assert answer(failed) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert failed.log == after().log
    assert answer(after("FailAppend(0, 0, 0, 1)", "AppendBatch(0, 0, 0, 1)")) == (ErrorCode.NONE, 0)


def test_a_restarted_replica_still_knows_a_retry_with_and_without_a_snapshot() -> None:
    batches = ["AppendBatch(0, 0, 0, 1)", "AppendBatch(0, 0, 1, 1)"]
    for way in (["Restart"], ["TakeSnapshot", "Restart"]):
        state = after(*batches, *way, "AcknowledgeDuplicate(0, 0, 0, 1)")
        assert answer(state) == (ErrorCode.NONE, 0)


def test_a_snapshot_of_the_same_end_is_not_taken_again() -> None:
    with pytest.raises(NotEnabled, match="of the log's end already"):
        after("TakeSnapshot")
    with pytest.raises(NotEnabled, match="of the log's end already"):
        after("AppendBatch(0, 0, 0, 1)", "TakeSnapshot", "TakeSnapshot")


def test_a_producer_expires_only_where_the_model_says_so_and_only_when_it_is_known() -> None:
    with pytest.raises(NotEnabled, match="do not expire"):
        after("AppendBatch(0, 0, 0, 1)", "ExpireProducer(0)")
    expiring = replace(REAL, expiration=True)
    with pytest.raises(NotEnabled, match="no state for the producer"):
        after("ExpireProducer(0)", constants=expiring)
    gone = after("AppendBatch(0, 0, 0, 1)", "ExpireProducer(0)", constants=expiring)
    assert gone.log.producers == Map()


def test_after_its_expiry_a_retry_is_stored_again_and_a_gap_is_accepted() -> None:
    expiring = replace(REAL, expiration=True)
    gone = ["AppendBatch(0, 0, 0, 1)", "ExpireProducer(0)"]
    assert answer(after(*gone, "AppendBatch(0, 0, 0, 1)", constants=expiring)) == (ErrorCode.NONE, 1)
    assert answer(after(*gone, "AppendBatch(0, 0, 5, 1)", constants=expiring)) == (ErrorCode.NONE, 1)


@pytest.fixture(scope="module")
def small() -> Exploration[PartitionLog]:
    """Every state of a partition of at most three batches."""
    return explore(
        PartitionLog.initial(SMALL), instances(PartitionLog, SMALL), lambda state: len(state.log.entries) <= 3
    )


def enabled(state: PartitionLog, each: Instance) -> bool:
    try:
        step(state, each)
    except NotEnabled:
        return False
    return True


def test_in_every_state_every_request_has_exactly_one_of_three_outcomes(small: Exploration[PartitionLog]) -> None:
    outcomes: dict[tuple[int, ...], list[Instance]] = {}
    for each in small.instances:
        if each.action.name in {"AppendBatch", "AcknowledgeDuplicate", "RefuseBatch"}:
            outcomes.setdefault(each.arguments, []).append(each)  # type: ignore[arg-type]
    assert len(outcomes) == 6
    assert len(small.states) > 100
    for state in small.states:
        for three in outcomes.values():
            assert [enabled(state, each) for each in three].count(True) == 1


def test_in_every_state_a_batch_can_fail_to_be_stored_exactly_if_it_can_be_stored(
    small: Exploration[PartitionLog],
) -> None:
    by_label = {each.label: each for each in small.instances}
    for state in small.states:
        for label, each in by_label.items():
            if label.startswith("FailAppend"):
                append = by_label[label.replace("FailAppend", "AppendBatch")]
                assert enabled(state, each) == enabled(state, append)


def test_in_every_state_a_restart_changes_nothing_visible(small: Exploration[PartitionLog]) -> None:
    [restart] = [each for each in small.instances if each.label == "Restart"]
    assert [state for state in small.states if step(state, restart) != state] == []
