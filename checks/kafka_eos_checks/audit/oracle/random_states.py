"""Random logs of ``__transaction_state`` with planted faults, for the fold by columns against the readable rule.

A log follows from the choices of a ``random.Random``, which come from a seed or from Hypothesis; Hypothesis also
shrinks the log.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.formats.transaction_log import (
    FIRST_FLEXIBLE_VERSION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TOPIC,
    TRANSACTION_VERSION_2,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.coordinator import EXHAUSTED_FROM, LAST_EPOCH

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

_NEXT_PRODUCER_ID = 100  # the new producer id of n is n + 100
LISTS = (
    (),
    (TopicPartitions(topic="orders", partition_ids=(0,)),),
    (TopicPartitions(topic="orders", partition_ids=(0, 1)),),
    (TopicPartitions(topic="orders", partition_ids=(1, 0)),),
    (TopicPartitions(topic="orders", partition_ids=(0,)), TopicPartitions(topic="bills", partition_ids=(2,))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStates:
    """The parameters of a random log.

    Attributes:
        records: about the number of records.
        ids: number of transactional ids.
        fault_rate: the share of records with a fault.
        hole_rate: the share of records after a hole.
        damage_rate: the share of batches that cannot be read.
        first_offset: the first offset of the log.
        exhausted: whether epochs may jump to the last ones before 32767, which is a fault.
    """

    records: int = 40
    ids: int = 3
    fault_rate: float = 0.1
    hole_rate: float = 0.02
    damage_rate: float = 0.01
    first_offset: int = 0
    exhausted: bool = True


def some_kind(rng: random.Random) -> RandomStates:
    """A kind of log: clean or not, whole or not, long or short."""
    return RandomStates(
        records=rng.randint(1, 60),
        ids=rng.randint(1, 4),
        fault_rate=rng.choice((0.0, 0.0, 0.05, 0.3)),
        hole_rate=rng.choice((0.0, 0.0, 0.05, 0.4)),
        damage_rate=rng.choice((0.0, 0.0, 0.05)),
        first_offset=rng.choice((0, 0, 5)),
        exhausted=rng.random() < 0.5,
    )


def write_random_log(folder: Path, rng: random.Random, kind: RandomStates) -> None:
    """Write a random log into a folder, in one or several segments."""
    batches = list(_batches(rng, kind))
    while batches:
        size = rng.choice((len(batches), rng.randint(1, len(batches))))
        write_segment(folder / f"{batches[0][0]:020d}.log", [data for _, data in batches[:size]])
        del batches[:size]


def folder_of(directory: Path, partition: int = 0) -> Path:
    """The folder in which a broker keeps a partition of ``__transaction_state``."""
    return directory / f"{TOPIC}-{partition}"


def _batches(rng: random.Random, kind: RandomStates) -> Iterator[tuple[int, bytes]]:
    """Encoded batches with their base offsets."""
    offset, given = kind.first_offset, 0
    told: dict[int, list[TransactionLogValue | None]] = {number: [None] for number in range(kind.ids)}
    while given < kind.records:
        offset += rng.choice((1, 2, 9)) * (rng.random() < kind.hole_rate)
        records = []
        for delta in range(rng.choice((1, 1, 1, 3))):
            number = rng.randrange(kind.ids)
            key, value = _record(rng, kind, number, told[number], given)
            records.append(Record(offset_delta=delta, key=key, value=value))
            given += 1
        batch = build_batch(records, base_offset=offset, base_timestamp=1_700_000_000_000 + given)
        data = batch.encode()
        if rng.random() < kind.damage_rate:
            data = data[:-1] + bytes([data[-1] ^ 1])
        yield offset, data
        offset += len(records)


def _record(
    rng: random.Random, kind: RandomStates, number: int, told: list[TransactionLogValue | None], now: int
) -> tuple[bytes | None, bytes | None]:
    """The next record of a transactional id with the states ``told``: the coordinator continues from the last."""
    key: bytes | None = TransactionLogKey(transactional_id=("t-é", "a", "b", "a" * 30)[number]).encode()
    before = told[-1]
    if rng.random() < kind.fault_rate:
        match rng.randrange(6):
            case 0:  # the append failed, and the coordinator continues from the state before
                before = told[max(len(told) - 2, 0)]
            case 1:  # the same state is appended again
                again = told[-1]
                told.append(None if again is None else replace(again, transaction_last_update_timestamp_ms=now))
                return key, _encoded(told[-1])
            case 2:
                return key, rng.choice((b"", b"\0\2later", b"\0\1"))
            case 3:
                return rng.choice((None, b"\0\1\0\1t", b"\0\0\0\1\xff")), None
            case 4:
                wrong = _faulty(rng, _following(rng, kind, before, number, now), number)
                told.append(wrong)
                return key, _encoded(wrong)
            case _:
                told.append(None)
                return key, None
    after = _following(rng, kind, before, number, now)
    told.append(after)
    return key, _encoded(after)


def _encoded(value: TransactionLogValue | None) -> bytes | None:
    return None if value is None else value.encode()


def _faulty(rng: random.Random, value: TransactionLogValue | None, number: int) -> TransactionLogValue | None:
    """A state with one field changed."""
    if value is None:
        return None
    match rng.randrange(6):
        case 0:
            return replace(value, producer_epoch=rng.choice((0, 1, 7, EXHAUSTED_FROM, LAST_EPOCH)))
        case 1:
            return replace(value, producer_id=rng.choice((number, number + _NEXT_PRODUCER_ID, 55)))
        case 2:
            return replace(value, transaction_status=rng.choice(list(TransactionState)))
        case 3:
            return replace(value, transaction_partitions=rng.choice((None, *LISTS)))
        case 4 if value.version:
            return replace(value, unknown_tagged_fields=((9, b"new"),))
        case _ if value.version:
            return replace(value, client_transaction_version=rng.choice((-1, 0, 1, 2, 3)))
    return value


def _following(
    rng: random.Random, kind: RandomStates, before: TransactionLogValue | None, number: int, now: int
) -> TransactionLogValue | None:
    """A state that may follow another one."""
    if before is None:
        version = rng.choice((0, FIRST_FLEXIBLE_VERSION))
        return TransactionLogValue(
            version=version,
            producer_id=number,
            producer_epoch=0,
            transaction_timeout_ms=60_000,
            transaction_status=EMPTY,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=now,
            transaction_start_timestamp_ms=NO_TIMESTAMP,
        )
    previous = before.producer_id if before.version else NO_PRODUCER_ID
    value = replace(before, transaction_last_update_timestamp_ms=now, previous_producer_id=previous)
    client = value.client_transaction_version
    match before.transaction_status:
        case TransactionState.ONGOING:
            if rng.random() < 0.3:
                had = before.partitions()
                larger = [each for each in LISTS if had <= _set(each)]
                return replace(value, transaction_partitions=rng.choice([before.transaction_partitions, *larger]))
            return _prepared(value, rng.choice((PREPARE_COMMIT, PREPARE_ABORT)), rng)
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT as prepared:
            done = COMPLETE_COMMIT if prepared is PREPARE_COMMIT else COMPLETE_ABORT
            value = replace(_ended(value), transaction_status=done, transaction_partitions=())
            if client >= TRANSACTION_VERSION_2 and before.producer_epoch == LAST_EPOCH:
                value = replace(value, producer_id=before.producer_id + _NEXT_PRODUCER_ID, producer_epoch=0)
            return value
        case _:
            return _from_rest(rng, kind, value)


def _from_rest(rng: random.Random, kind: RandomStates, value: TransactionLogValue) -> TransactionLogValue | None:
    """A state that may follow EMPTY or COMPLETE."""
    roll = rng.random()
    if roll < 0.05:
        return None
    if roll < 0.2:
        empty = replace(
            _ended(value),
            transaction_status=EMPTY,
            transaction_partitions=None,
            transaction_start_timestamp_ms=NO_TIMESTAMP,
        )
        if value.producer_epoch >= EXHAUSTED_FROM:
            return replace(empty, producer_id=value.producer_id + _NEXT_PRODUCER_ID, producer_epoch=0)
        raised = min(value.producer_epoch + rng.choice((0, 1)), LAST_EPOCH)
        return replace(empty, producer_epoch=LAST_EPOCH - 2 if kind.exhausted and rng.random() < 0.3 else raised)
    client = rng.choice((0, TRANSACTION_VERSION_2)) if value.version else 0
    value = replace(
        value,
        transaction_partitions=rng.choice(LISTS),
        client_transaction_version=client,
        transaction_start_timestamp_ms=value.transaction_last_update_timestamp_ms,
    )
    if roll < 0.25 and client and value.producer_epoch < LAST_EPOCH:
        return _prepared(replace(value, transaction_partitions=()), PREPARE_ABORT, rng)
    return replace(value, transaction_status=ONGOING)


def _prepared(value: TransactionLogValue, status: TransactionState, rng: random.Random) -> TransactionLogValue:
    """PREPARE after a state."""
    bumps = value.client_transaction_version >= TRANSACTION_VERSION_2
    fenced = not bumps and status is PREPARE_ABORT and rng.random() < 0.3
    epoch = min(value.producer_epoch + (bumps or fenced), LAST_EPOCH)
    value = replace(value, transaction_status=status, producer_epoch=epoch)
    if not bumps:
        return value
    following = value.producer_id + _NEXT_PRODUCER_ID if epoch == LAST_EPOCH and rng.random() < 0.7 else NO_PRODUCER_ID
    return replace(value, next_producer_id=following)


def _ended(value: TransactionLogValue) -> TransactionLogValue:
    """A state without the fields that only an open transaction has."""
    return replace(value, next_producer_id=NO_PRODUCER_ID)


def _set(topics: tuple[TopicPartitions, ...]) -> frozenset[tuple[str, int]]:
    return frozenset((topic.topic, number) for topic in topics for number in topic.partition_ids)
