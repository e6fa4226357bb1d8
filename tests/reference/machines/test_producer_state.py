from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.producer_state import (
    EMPTY_SNAPSHOT,
    NO_PRODUCER_ID,
    Batch,
    CachedBatch,
    Limits,
    Log,
    ProducerState,
)

LAST = 2**31 - 1
SMALL = Limits(max_sequence=7, cached_batches=2)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def batch(sequence: int, *, epoch: int = 0, count: int = 1, producer_id: int = 7) -> Batch:
    return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)


def log_of(*batches: Batch, limits: Limits | None = None) -> Log:
    log = Log(limits=limits or Limits())
    for each in batches:
        log = log.appended(each)
    return log


def answer(log: Log, request: Batch) -> ErrorCode | int:
    """The original offset for a duplicate, otherwise the error of the checks."""
    return log.duplicate_offset(request) if log.is_duplicate(request) else log.append_error(request)


# --- sequences ----------------------------------------------------------------------------------------------------


def test_the_sequence_wraps_to_zero_after_two_to_the_thirty_first_minus_one() -> None:
    limits = Limits()
    assert limits.next_sequence(LAST) == 0
    assert limits.next_sequence(LAST - 1) == LAST
    assert limits.last_sequence(batch(LAST, count=1)) == LAST
    assert limits.last_sequence(batch(LAST - 1, count=4)) == 1


def test_a_batch_that_spans_the_wrap_is_followed_by_the_sequence_after_it() -> None:
    log = log_of(batch(LAST - 1, count=4))
    assert answer(log, batch(2)) is ErrorCode.NONE
    assert answer(log, batch(0)) is OUT_OF_ORDER
    assert answer(log, batch(LAST - 1, count=4)) == 0


def test_the_last_batch_before_the_wrap_is_followed_by_sequence_zero_and_by_nothing_else() -> None:
    log = log_of(batch(LAST))
    assert [answer(log, batch(s)) for s in (0, 1, LAST - 1)] == [ErrorCode.NONE, OUT_OF_ORDER, OUT_OF_ORDER]


@given(st.integers(0, LAST), st.integers(1, LAST))
def test_the_last_and_the_next_sequence_are_counted_modulo_two_to_the_thirty_first(first: int, count: int) -> None:
    limits = Limits()
    assert limits.next_sequence(limits.last_sequence(batch(first, count=count))) == (first + count) % 2**31


# --- the checks, in Kafka's order: duplicate, epoch, sequence -------------------------------------------------------


def test_a_retry_is_acknowledged_with_the_first_copys_offset_before_its_sequence_is_judged() -> None:
    log = log_of(batch(0, count=3), batch(3), batch(4))
    retry = batch(0, count=3)
    assert log.is_duplicate(retry)
    assert log.duplicate_offset(retry) == 0
    assert log.append_error(retry) is OUT_OF_ORDER, "the check that comes after it would refuse it"


def test_a_retry_from_an_old_epoch_is_fenced_and_no_duplicate() -> None:
    log = log_of(batch(0), batch(0, epoch=1))
    assert log.is_duplicate(batch(0, epoch=1))
    assert not log.is_duplicate(batch(0, epoch=0))
    assert answer(log, batch(0, epoch=0)) is FENCED


def test_the_epoch_is_judged_before_the_sequence() -> None:
    log = log_of(batch(0, epoch=1))
    assert answer(log, batch(5, epoch=0)) is FENCED, "out of sequence as well"
    assert answer(log, batch(5, epoch=1)) is OUT_OF_ORDER
    assert answer(log, batch(5, epoch=2)) is OUT_OF_ORDER, "a new epoch begins with 0"
    assert answer(log, batch(0, epoch=2)) is ErrorCode.NONE


def test_a_retry_of_another_length_is_no_duplicate() -> None:
    log = log_of(batch(0, count=3))
    assert answer(log, batch(0, count=2)) is OUT_OF_ORDER


def test_a_gap_and_a_sequence_below_the_window_are_out_of_order() -> None:
    log = log_of(batch(0), batch(1))
    assert answer(log, batch(3)) is OUT_OF_ORDER
    assert answer(log, batch(2)) is ErrorCode.NONE


def test_the_first_batch_of_a_partition_begins_with_zero_and_a_later_unknown_producer_anywhere() -> None:
    assert answer(log_of(), batch(1)) is OUT_OF_ORDER
    assert answer(log_of(), batch(0)) is ErrorCode.NONE
    assert answer(log_of(batch(0, producer_id=8)), batch(5)) is ErrorCode.NONE


def test_a_producer_that_is_not_idempotent_passes_every_check_and_is_not_remembered() -> None:
    plain = batch(-1, epoch=-1, producer_id=NO_PRODUCER_ID)
    log = log_of(plain, plain)
    assert answer(log, plain) is ErrorCode.NONE
    assert log.producers == Map()
    assert [entry.offset for entry in log.entries] == [0, 1]


# --- the window of five ---------------------------------------------------------------------------------------------


def test_the_last_five_batches_are_remembered_and_the_retry_of_the_sixth_oldest_is_refused() -> None:
    log = log_of(*(batch(s) for s in range(6)))
    assert [answer(log, batch(s)) for s in range(1, 6)] == [1, 2, 3, 4, 5]
    assert answer(log, batch(0)) is OUT_OF_ORDER


def test_producers_do_not_share_a_window() -> None:
    log = log_of(batch(0), *(batch(s, producer_id=8) for s in range(6)))
    assert answer(log, batch(0)) == 0


def test_the_first_batch_of_an_epoch_empties_the_window() -> None:
    log = log_of(batch(0), batch(1), batch(0, epoch=1))
    assert log.producers[7] == ProducerState(epoch=1, batches=(CachedBatch(sequence=0, count=1, offset=2),))
    assert answer(log, batch(1, epoch=1)) is ErrorCode.NONE


def test_a_refused_or_failed_batch_is_not_remembered() -> None:
    log = log_of(batch(0))
    assert log.failed_to_append(batch(1)) == log
    assert answer(log.failed_to_append(batch(1)), batch(1)) is ErrorCode.NONE


def test_an_appended_batch_gets_the_next_offset_and_leaves_the_log_before_it_as_it_was() -> None:
    before = log_of(batch(0, count=3))
    after = before.appended(batch(3, count=2))
    assert (before.log_end_offset, after.log_end_offset) == (3, 5)
    assert [entry.offset for entry in after.entries] == [0, 3]
    assert len(before.entries) == 1


# --- snapshot, reload, truncation, expiry ---------------------------------------------------------------------------


def test_a_reload_replays_what_follows_the_snapshot() -> None:
    log = log_of(batch(0), batch(1)).with_snapshot().appended(batch(2))
    assert log.snapshot.offset == 2
    assert log.reloaded() == log
    lost = replace(log, producers=Map())
    assert lost.reloaded().producers == log.producers


def test_a_reload_from_a_snapshot_forgets_batches_that_the_snapshot_does_not_have() -> None:
    log = log_of(batch(0), batch(1)).with_snapshot()
    emptied = replace(log, snapshot=replace(log.snapshot, producers=Map()))
    assert not emptied.reloaded().knows_producer(7), "the batches below the snapshot's offset are not replayed"


def test_a_forgotten_producer_comes_back_with_a_reload_and_until_then_may_begin_anywhere() -> None:
    log = log_of(batch(0), batch(1)).forgotten(7)
    assert answer(log, batch(9)) is ErrorCode.NONE
    assert answer(log, batch(1)) is ErrorCode.NONE, "its retry would be stored again"
    assert answer(log.reloaded(), batch(1)) == 1


def test_a_truncation_forgets_the_batches_that_it_cuts_off() -> None:
    log = log_of(batch(0), batch(1), batch(2)).truncated(1)
    assert [entry.sequence for entry in log.entries] == [0]
    assert answer(log, batch(1)) is ErrorCode.NONE
    assert answer(log, batch(0)) == 0


def test_a_truncation_below_the_snapshot_drops_it_and_one_above_keeps_it() -> None:
    log = log_of(batch(0), batch(1)).with_snapshot().appended(batch(2))
    assert log.truncated(1).snapshot == EMPTY_SNAPSHOT
    assert log.truncated(1) == log_of(batch(0))
    assert log.truncated(2).snapshot == log.snapshot


REQUESTS = st.builds(
    batch,
    st.integers(0, SMALL.max_sequence),
    epoch=st.integers(0, 2),
    count=st.integers(1, 3),
    producer_id=st.sampled_from([NO_PRODUCER_ID, 7, 8]),
)


def accepted(requests: list[Batch | None]) -> list[Log]:
    """The logs after each request that is neither duplicate nor refused; None takes a snapshot."""
    logs = [Log(limits=SMALL)]
    for request in requests:
        if request is None:
            logs.append(logs[-1].with_snapshot())
        elif answer(logs[-1], request) is ErrorCode.NONE:
            logs.append(logs[-1].appended(request))
    return logs


HISTORIES = st.lists(st.none() | REQUESTS | st.builds(batch, st.integers(0, 3)), max_size=40).map(accepted)


@given(HISTORIES)
def test_a_reloaded_state_equals_the_live_one(logs: list[Log]) -> None:
    for log in logs:
        assert log.reloaded() == log


@given(HISTORIES, st.data())
def test_a_truncated_log_knows_what_it_knew_when_it_ended_there(logs: list[Log], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(logs) - 1))
    cut = logs[-1].truncated(logs[place].log_end_offset)
    assert cut.entries == logs[place].entries
    assert cut.producers == logs[place].producers
    assert cut.snapshot.offset <= cut.log_end_offset


@given(HISTORIES)
def test_appended_batches_have_no_gap_and_no_duplicate_within_an_epoch(logs: list[Log]) -> None:
    for producer_id in (7, 8):
        sent = [entry for entry in logs[-1].entries if entry.producer_id == producer_id]
        for one, other in pairwise(sent):
            assert one.epoch <= other.epoch
            assert other.sequence == ((one.sequence + one.count) % 8 if one.epoch == other.epoch else 0)


@given(HISTORIES)
def test_the_last_batches_of_each_producers_epoch_are_remembered_and_no_others(logs: list[Log]) -> None:
    log = logs[-1]
    for producer_id, state in log.producers.items():
        sent = [e for e in log.entries if (e.producer_id, e.epoch) == (producer_id, state.epoch)]
        remembered = [(b.sequence, b.count, b.offset) for b in state.batches]
        assert remembered == [(e.sequence, e.count, e.offset) for e in sent[-SMALL.cached_batches :]]


@pytest.mark.parametrize("limits", [Limits(), SMALL])
def test_limits_are_no_part_of_a_logs_identity(limits: Limits) -> None:
    assert Log(limits=limits) == Log()
    assert Log(limits=limits).appended(batch(0)).limits is limits
