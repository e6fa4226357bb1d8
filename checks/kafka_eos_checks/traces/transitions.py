"""The records of ``__transaction_state`` for the traces of coordinators.

:func:`transition_of` takes a record that the readable codec has decoded, :func:`read_transition` takes its bytes. The
second function gives the same several times faster: it reads the fixed fields at once, and decodes a list of
partitions, which repeats from record to record, only the first time. Unusual bytes go to the codec.

Kafka: TransactionLogValue.json
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from kafka_eos.formats.transaction_log import (
    NEWEST_VERSION,
    TRANSACTION_VERSION_2,
    MalformedTransactionRecord,
    TransactionLogValue,
    TransactionState,
    decode_value,
)

_FIXED = struct.Struct(">hqhib")  # up to the transaction's partitions
_TIMES = struct.Struct(">qq")
_STATES = {int(state): state for state in TransactionState}
_ONE_BYTE = 0x80  # below it a varint has one byte


class Transition(NamedTuple):
    """A transition of a transactional id, from its record.

    Attributes:
        state: the state after the transition.
        producer_id: the producer id in use by the transactional id.
        epoch: the epoch of that producer id; in a PREPARE of transaction version 2 already the next one.
        next_producer_id: the producer id after the transaction, -1 for none.
        version: the transaction version of the client as the spec counts them, 1 or 2.
        partitions: the partitions of the transaction, each by its directory's name.
        late: whether the transaction has been open for its own timeout.
        updated_ms: the time of the transition on the coordinator's clock.
    """

    state: TransactionState
    producer_id: int
    epoch: int
    next_producer_id: int
    version: int
    partitions: frozenset[str]
    late: bool
    updated_ms: int = -1


def version_of(value: TransactionLogValue) -> int:
    """The transaction version of the client, as the spec counts: 0 differs from 1 only in the format of the records."""
    return 2 if value.client_transaction_version >= TRANSACTION_VERSION_2 else 1


def name_of(place: tuple[str, int]) -> str:
    """The directory's name of a partition."""
    return f"{place[0]}-{place[1]}"


def open_ms(value: TransactionLogValue) -> int:
    """The age of the open transaction, in milliseconds on the coordinator's clock."""
    return value.transaction_last_update_timestamp_ms - value.transaction_start_timestamp_ms


def is_late(value: TransactionLogValue) -> bool:
    """Whether the transaction has been open for its own timeout."""
    return value.transaction_start_timestamp_ms >= 0 and open_ms(value) >= value.transaction_timeout_ms


def transition_of(value: TransactionLogValue) -> Transition:
    """The transition of a decoded record."""
    return Transition(
        value.transaction_status,
        value.producer_id,
        value.producer_epoch,
        value.next_producer_id,
        version_of(value),
        frozenset(map(name_of, value.partitions())),
        is_late(value),
        value.transaction_last_update_timestamp_ms,
    )


def read_transition(data: bytes | None) -> Transition | None:
    """The transition of a record, from the bytes of its value; None for a tombstone.

    Raises:
        MalformedTransactionRecord: ``data`` are no value of a version that the codec knows.
    """
    if data is None:
        return None
    end = _end_of_partitions(data)
    if end >= 0:
        try:
            return _read_quickly(data, end)
        except MalformedTransactionRecord:
            pass  # the codec says at which byte
    value = decode_value(data)
    assert value is not None, "only a tombstone has no value"
    return transition_of(value)


def _read_quickly(data: bytes, end: int) -> Transition:
    _, producer_id, epoch, timeout, status = _FIXED.unpack_from(data)
    last_update, start = _TIMES.unpack_from(data, end)
    partitions = _partitions(data[:2], data[_FIXED.size : end])
    next_producer_id, version = _tagged(data[:2], data[end + _TIMES.size :])
    late = start >= 0 and last_update - start >= timeout
    return Transition(_STATES[status], producer_id, epoch, next_producer_id, version, partitions, late, last_update)


def _end_of_partitions(data: bytes) -> int:
    """The end of the list of partitions of a value; -1 if its version or any length in it is unusual."""
    size, at = len(data), _FIXED.size
    if size <= at + _TIMES.size or data[at - 1] not in _STATES:
        return -1
    version = data[:2]
    if version == _FLEXIBLE:
        topics = data[at] - 1  # lengths plus one, each of one byte
        if topics >= _ONE_BYTE - 1:
            return -1
        at += 1
        for _ in range(topics):
            if at >= size or data[at] >= _ONE_BYTE:
                return -1
            at += data[at]
            if at >= size or data[at] >= _ONE_BYTE:
                return -1
            at += 4 * data[at] - 3
            if at >= size or data[at]:  # tagged fields of a later version of Kafka
                return -1
            at += 1
    elif version == _PLAIN:
        topics = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        for _ in range(min(topics, size)):
            at += 2 + int.from_bytes(data[at : at + 2], "big")
            at += 4 + 4 * int.from_bytes(data[at : at + 4], "big")
            if at >= size:
                return -1
    else:
        return -1
    return at if at + _TIMES.size <= size else -1


_FLEXIBLE, _PLAIN = (version.to_bytes(2, "big") for version in (NEWEST_VERSION, 0))
_WITHOUT_PARTITIONS = {_FLEXIBLE: bytes(1), _PLAIN: b"\xff" * 4}  # null


def _head(version: bytes) -> bytes:
    return version + bytes(_FIXED.size - len(version))


@lru_cache(maxsize=1 << 16)
def _partitions(version: bytes, data: bytes) -> frozenset[str]:
    """The partitions in the bytes of their list."""
    value = decode_value(_head(version) + data + bytes(_TIMES.size + (version == _FLEXIBLE)))
    assert value is not None, "only a tombstone has no value"
    return frozenset(map(name_of, value.partitions()))


@lru_cache(maxsize=1 << 16)
def _tagged(version: bytes, data: bytes) -> tuple[int, int]:
    """The next producer id and the transaction version in the bytes of the tagged fields."""
    value = decode_value(_head(version) + _WITHOUT_PARTITIONS[version] + bytes(_TIMES.size) + data)
    assert value is not None, "only a tombstone has no value"
    return value.next_producer_id, version_of(value)
