"""Every contract is about its whole range, and holds at the ends of it: run as plain Python, without CrossHair."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.formats.record_batch import Record
from kafka_eos.machines.producer_state import Batch, Log, ProducerState
from kafka_eos.machines.transaction_coordinator import Rules, TransactionMetadata
from kafka_eos.machines.transactional_partition import LeaderLog, LogEntry, TransactionalPartition
from kafka_eos_checks.contracts import conditions
from kafka_eos_checks.contracts.conditions import CONTRACTS, STATES

Range = tuple[Any, ...]  # the least and the largest value, or bytes
Related = Callable[..., bool]

MAX_SEQUENCE, MAX_EPOCH = 2**31 - 1, 2**15 - 1
SEQUENCE, COUNT, EPOCH = (0, MAX_SEQUENCE), (1, MAX_SEQUENCE), (0, MAX_EPOCH)
STATE, VERSION, FLAG, INT32 = (0, len(STATES) - 1), (1, 2), (False, True), (-(2**31), 2**31 - 1)
UNBOUNDED = 2**70
OFFSET, MAYBE, ANY = (0, UNBOUNDED), (-1, UNBOUNDED), (-UNBOUNDED, UNBOUNDED)
INT64, SOME = (-(2**63), 2**63 - 1), (1, 1000)
BYTES = (b"", b"\0", b"\x80", b"\xff" * 4, b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x1f", b"\x80" * 6)
RECORDS = (*BYTES, b"\x0c\0\0\0\1\1\0", b"\x0c\0\0\0\1\1\0\0\0", b"\0" * 9)

RANGES: dict[str, tuple[Range, ...]] = {
    "sequence_goes_on_by_the_records": (SEQUENCE, COUNT),
    "leader_takes_what_comes_next": (EPOCH, SEQUENCE, COUNT, EPOCH, SEQUENCE),
    "unknown_producer_begins_with_zero": (SEQUENCE, FLAG),
    "retry_has_its_offset": (SEQUENCE, SOME, SOME, EPOCH, SEQUENCE, SOME),
    "five_batches_are_remembered": ((1, 5), EPOCH, SEQUENCE, COUNT, OFFSET),
    "nothing_is_lost_by_a_restart_or_learned_from_a_failure": (EPOCH, SEQUENCE, COUNT),
    "epochs_have_an_end": (EPOCH, (2, MAX_EPOCH), FLAG),
    "open_transaction_ends_by_its_own_epoch": (EPOCH, EPOCH, FLAG, VERSION, (0, 2)),
    "partition_is_added_to_an_open_transaction": (STATE, EPOCH, EPOCH, FLAG, FLAG),
    "fence_raises_the_epoch_once": (EPOCH, VERSION, MAYBE),
    "last_epoch_brings_a_new_producer_id": (EPOCH, (5, UNBOUNDED)),
    "decision_survives_a_failover": (STATE, EPOCH, MAYBE, MAYBE),
    "append_that_timed_out_decides_nothing": (STATE, EPOCH, (0, 3)),
    "who_is_told_what": ((0, 2), EPOCH),
    "init_is_repeated": ((0, 4), (0, 3), MAYBE),
    "varint_comes_back": (INT32,),
    "any_bytes_are_a_varint_or_refused": (BYTES,),
    "record_comes_back": (INT32, INT64, (-128, 127), FLAG),
    "any_bytes_are_records_or_refused": (RECORDS, (0, 2)),
    "last_stable_offset_is_the_least": (OFFSET, OFFSET, OFFSET, MAYBE),
    "leader_takes_batches_of_the_open_transaction": (EPOCH, EPOCH, MAYBE, FLAG),
    "leader_fences_older_epochs": (EPOCH, ANY, EPOCH, ANY, MAYBE),
    "producer_with_a_transaction_is_kept": (MAYBE,),
    "marker_stays_while_a_batch_is_left": (OFFSET, OFFSET),
    "aborted_are_indexed": (OFFSET, FLAG, ANY),
    "aborted_are_listed": (OFFSET, OFFSET, ANY, OFFSET, OFFSET),
    "aborted_are_dropped": (OFFSET, OFFSET, OFFSET, OFFSET),
}
RELATED: dict[str, Related] = {
    "epochs_have_an_end": lambda epoch, most, _: epoch <= most,
    "init_is_repeated": lambda epoch, last, _: epoch != last,
    "last_stable_offset_is_the_least": lambda _, first, second, ended: (
        first < second and (ended >= second or ended < 0)
    ),
    "marker_stays_while_a_batch_is_left": lambda batch, marker: batch != marker,
    "aborted_are_listed": lambda first, last, _, position, upper: first < last and position < upper,
    "aborted_are_dropped": lambda _, batch, marker, following: batch < marker < following,
}
PROMISES = {one.promise.__name__: one.promise for contracts in CONTRACTS.values() for one in contracts}


def values(given: Range) -> tuple[Any, ...]:
    """The values at both ends of a range."""
    if len(given) != 2 or given == FLAG:
        return given
    low, high = given
    return tuple(sorted({low, low + 1, min(low + 2, high), high - 1, high}))


def arguments(name: str) -> Iterator[tuple[Any, ...]]:
    """The arguments that a contract is about."""
    related = RELATED.get(name, lambda *_: True)
    return (each for each in product(*map(values, RANGES[name])) if related(*each))


@pytest.mark.parametrize("name", PROMISES)
def test_a_contract_holds_at_the_ends_of_its_range(name: str) -> None:
    tried = 0
    for each in arguments(name):
        PROMISES[name](*each)
        tried += 1
    assert tried >= 5


@pytest.mark.parametrize("name", PROMISES)
def test_a_contract_is_not_about_arguments_outside_of_its_range(name: str) -> None:
    inside = next(arguments(name))
    for place, given in enumerate(RANGES[name]):
        ends = (given[0] - 1, given[1] + 1) if len(given) == 2 and given != FLAG else ()
        for outside in (end for end in ends if abs(end) < UNBOUNDED):
            with pytest.raises(AssertionError):
                PROMISES[name](*inside[:place], outside, *inside[place + 1 :])


MARKER_ERROR = TransactionalPartition.marker_error
FAILURE = "nothing_is_lost_by_a_restart_or_learned_from_a_failure"


def no_stable_offset(self: TransactionalPartition) -> int:
    return -1


def learned_of_a_new_producer(self: Log, batch: Batch) -> Log:
    known = self.producers.get(batch.producer_id, ProducerState(epoch=batch.epoch, batches=()))
    return replace(self, producers=self.producers.set(batch.producer_id, known))


def forgotten_after_a_failure(self: Log, batch: Batch) -> Log:
    return (
        replace(self, producers=self.producers.delete(batch.producer_id))
        if batch.producer_id in self.producers
        else self
    )


def cleaned_at_any_time(self: TransactionalPartition, marker: LogEntry) -> bool:
    return True


def epoch_kept_by_a_fence(self: Rules, known: TransactionMetadata, new_id: int) -> TransactionMetadata:
    return self.after_end(known, False, 1, new_id)


def every_coordinator_is_fenced(self: TransactionalPartition, log: LeaderLog, marker: LogEntry) -> ErrorCode:
    error = MARKER_ERROR(self, log, marker)
    return ErrorCode.TRANSACTION_COORDINATOR_FENCED if error is ErrorCode.NONE else error


def refused_before_the_first_byte(data: bytes, count: int) -> tuple[Record, ...]:
    raise MalformedBatch(-1, "no record")


def the_same_in_a_copy(self: Log, batch: Batch) -> Log:
    return replace(self)


def holds(name: str, *given: Any) -> bool:
    try:
        PROMISES[name](*given)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "owner", "bug"),
    [
        ("last_stable_offset_is_the_least", TransactionalPartition, ("last_stable_offset", no_stable_offset)),
        ("marker_stays_while_a_batch_is_left", TransactionalPartition, ("may_clean_marker", cleaned_at_any_time)),
        ("leader_fences_older_epochs", TransactionalPartition, ("marker_error", every_coordinator_is_fenced)),
        ("fence_raises_the_epoch_once", Rules, ("after_fence", epoch_kept_by_a_fence)),
        (FAILURE, Log, ("failed_to_append", learned_of_a_new_producer)),
        (FAILURE, Log, ("failed_to_append", forgotten_after_a_failure)),
        ("any_bytes_are_records_or_refused", conditions, ("decode_records", refused_before_the_first_byte)),
    ],
)
def test_a_rule_with_a_bug_breaks_the_promise(
    name: str, owner: Any, bug: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, *bug)
    assert not all(holds(name, *each) for each in arguments(name))


def test_a_promise_is_about_values_and_not_about_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "failed_to_append", the_same_in_a_copy)
    assert all(holds(FAILURE, *each) for each in arguments(FAILURE))
