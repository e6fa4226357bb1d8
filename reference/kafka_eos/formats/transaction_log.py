"""The records of ``__transaction_state``, byte for byte: the log in which the transaction coordinator keeps its state.

A record's key names a transactional id, its value is the state of that id from there on, and a null value (a tombstone)
says that the coordinator forgot it. The last record of a key holds; compaction may remove all others. ::

    key    version int16 (0), transactional_id string
    value  version int16 (0 or 1), producer_id int64, producer_epoch int16, transaction_timeout_ms int32,
           transaction_status int8, transaction_partitions nullable array of topics,
           transaction_last_update_timestamp_ms int64, transaction_start_timestamp_ms int64, tagged fields
    topic  topic string, partition_ids array of int32, tagged fields

Version 0 writes the length of a string as int16 and of an array as int32, -1 for null. Version 1 is flexible: lengths
are unsigned varints of the length plus one, 0 for null, and only here are there tagged fields: a varint of
their number, and each as the varints of its tag and size, and its bytes. A field that has its default is left out.

``decode_key(data).encode() == data`` and ``decode_value(data).encode() == data`` for all bytes that decode.

Departs from Kafka, which reads what no encoder writes: varints longer than needed, tagged fields out of order or with
their default, bytes after the last field, text that is no UTF-8. Here these are malformed.

:data:`LEGAL_TRANSITIONS` is the one table of legal transitions.

Kafka: TransactionLogKey.json, TransactionLogValue.json, org.apache.kafka.coordinator.transaction (TransactionLog,
       TransactionState, TransactionMetadata)
KIP:   KIP-98, KIP-890 (version 1), KIP-939 (next_producer_epoch)
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TypeVar

from kafka_eos.formats.record_fields import (
    MAX_INT16,
    FieldReader,
    MalformedRecord,
    TaggedField,
    encode_length,
    encode_string,
    encode_tagged_fields,
)

TOPIC = "__transaction_state"
DEFAULT_MAX_TIMEOUT_MS = 900_000
"""The default of the broker's ``transaction.max.timeout.ms``. Kafka: TransactionStateManagerConfig"""
KEY_VERSION = 0
FIRST_FLEXIBLE_VERSION = NEWEST_VERSION = 1
NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_TIMESTAMP = -1
TRANSACTION_VERSION_2 = 2
"""The first transaction version in which the end of a transaction raises the epoch (KIP-890)."""

Element = TypeVar("Element")


class MalformedTransactionRecord(MalformedRecord):
    """Bytes that are no key or value of ``__transaction_state``; raised only by the codec."""


class UnknownVersion(MalformedTransactionRecord):
    """A key or a value of a version that is not known."""


class TransactionState(IntEnum):
    """The state of a transactional id.

    DEAD and PREPARE_EPOCH_FENCE are only ever pending, in memory; no coordinator writes them.

    Kafka: TransactionState
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

LEGAL_TRANSITIONS: Mapping[tuple[TransactionState, TransactionState], int] = MappingProxyType(
    {
        (_S.EMPTY, _S.EMPTY): 0,
        (_S.COMPLETE_COMMIT, _S.EMPTY): 0,
        (_S.COMPLETE_ABORT, _S.EMPTY): 0,
        (_S.EMPTY, _S.ONGOING): 0,
        (_S.ONGOING, _S.ONGOING): 0,
        (_S.COMPLETE_COMMIT, _S.ONGOING): 0,
        (_S.COMPLETE_ABORT, _S.ONGOING): 0,
        (_S.ONGOING, _S.PREPARE_COMMIT): 0,
        (_S.ONGOING, _S.PREPARE_ABORT): 0,
        (_S.PREPARE_EPOCH_FENCE, _S.PREPARE_ABORT): 0,
        (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT): 0,
        (_S.PREPARE_ABORT, _S.COMPLETE_ABORT): 0,
        (_S.EMPTY, _S.DEAD): 0,
        (_S.COMPLETE_COMMIT, _S.DEAD): 0,
        (_S.COMPLETE_ABORT, _S.DEAD): 0,
        (_S.ONGOING, _S.PREPARE_EPOCH_FENCE): 0,
        # A client that does not know how its transaction ended may abort it again, to get the next epoch.
        (_S.EMPTY, _S.PREPARE_ABORT): TRANSACTION_VERSION_2,
        (_S.COMPLETE_COMMIT, _S.PREPARE_ABORT): TRANSACTION_VERSION_2,
        (_S.COMPLETE_ABORT, _S.PREPARE_ABORT): TRANSACTION_VERSION_2,
    }
)
"""The legal transitions: (before, after) -> the lowest transaction version of a client that allows it.

Kafka: TransactionState.VALID_PREVIOUS_STATES
"""

WRITTEN_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


def is_legal(before: TransactionState, after: TransactionState, client_transaction_version: int) -> bool:
    """Whether ``after`` may follow ``before`` for a client of that transaction version."""
    lowest = LEGAL_TRANSITIONS.get((before, after))
    return lowest is not None and client_transaction_version >= lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey:
    """The key of a record.

    Attributes:
        transactional_id: the id whose state the value is.
    """

    transactional_id: str

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_key` makes this key.

        Raises:
            OverflowError: the id takes more than 32767 bytes.
        """
        return _int16(KEY_VERSION) + encode_string(self.transactional_id, flexible=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of one topic in a transaction.

    Attributes:
        topic: topic name.
        partition_ids: the numbers of the partitions, in the order in which they were written.
        unknown_tagged_fields: the unknown tagged fields of later versions of Kafka, by ascending tag.
    """

    topic: str
    partition_ids: tuple[int, ...]
    unknown_tagged_fields: tuple[TaggedField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue:
    """The value of a record: all that the coordinator knows of a transactional id after a restart.

    Attributes:
        version: the format's version, 0 or 1.
        producer_id: the producer id in use by the transactional id.
        producer_epoch: that producer id's epoch; in a PREPARE of transaction version 2 already the next one.
        transaction_timeout_ms: time after which the coordinator aborts.
        transaction_status: the state.
        transaction_partitions: the transaction's partitions; None is null, which Kafka writes only for EMPTY.
        transaction_last_update_timestamp_ms: milliseconds since the epoch.
        transaction_start_timestamp_ms: milliseconds since the epoch, -1 before the first transaction.
        previous_producer_id: the one before the last transition, -1 for none.
        next_producer_id: the one that the client goes on with when this one's epochs are used up, -1 for none.
        client_transaction_version: the version of the client that asked for the transition, 0 before version 2.
        next_producer_epoch: the epoch of ``next_producer_id``, -1 for none.
        unknown_tagged_fields: the unknown tagged fields of later versions of Kafka, by ascending tag, from 4 on.
    """

    version: int = NEWEST_VERSION
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: TransactionState
    transaction_partitions: tuple[TopicPartitions, ...] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    unknown_tagged_fields: tuple[TaggedField, ...] = ()

    def partitions(self) -> frozenset[tuple[str, int]]:
        """The transaction's partitions as (topic, partition)."""
        topics = self.transaction_partitions or ()
        return frozenset((topic.topic, number) for topic in topics for number in topic.partition_ids)

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_value` makes this value.

        Raises:
            OverflowError: a field does not fit its place, or version 0 has no place for it.
        """
        flexible = self.version >= FIRST_FLEXIBLE_VERSION
        try:
            fixed = struct.pack(
                ">hqhib",
                self.version,
                self.producer_id,
                self.producer_epoch,
                self.transaction_timeout_ms,
                self.transaction_status,
            )
            times = struct.pack(">qq", self.transaction_last_update_timestamp_ms, self.transaction_start_timestamp_ms)
            tagged = [
                (tag, struct.pack(layout, value))
                for tag, (name, layout, default) in _TAGGED.items()
                if (value := getattr(self, name)) != default
            ]
        except struct.error as error:
            raise OverflowError(f"a field does not fit its place: {error}") from None
        partitions = _partitions(self.transaction_partitions, flexible)
        return fixed + partitions + times + _tagged_fields((*tagged, *self.unknown_tagged_fields), flexible)


_TAGGED: Mapping[int, tuple[str, str, int]] = MappingProxyType(
    {
        0: ("previous_producer_id", ">q", NO_PRODUCER_ID),
        1: ("next_producer_id", ">q", NO_PRODUCER_ID),
        2: ("client_transaction_version", ">h", 0),
        3: ("next_producer_epoch", ">h", NO_PRODUCER_EPOCH),
    }
)
"""By tag: field, layout, default."""


def decode_key(data: bytes) -> TransactionLogKey:
    """The key of a record.

    Raises:
        MalformedTransactionRecord: ``data`` are no key of version 0.
    """
    reader = _Reader(data, flexible=False)
    if (version := reader.integer(">h")) != KEY_VERSION:
        raise UnknownVersion(0, f"key version {version}, where only {KEY_VERSION} is known")
    key = TransactionLogKey(transactional_id=reader.string())
    reader.end()
    return key


def decode_value(data: bytes | None) -> TransactionLogValue | None:
    """The value of a record; None for a tombstone.

    Raises:
        MalformedTransactionRecord: ``data`` are no value of version 0 or 1.
    """
    if data is None:
        return None
    reader = _Reader(data, flexible=False)
    if not 0 <= (version := reader.integer(">h")) <= NEWEST_VERSION:
        raise UnknownVersion(0, f"value version {version}, where 0 to {NEWEST_VERSION} are known")
    reader.flexible = version >= FIRST_FLEXIBLE_VERSION
    producer_id, producer_epoch, timeout = reader.integer(">q"), reader.integer(">h"), reader.integer(">i")
    if (status := reader.integer(">b")) not in _STATE_IDS:
        raise MalformedTransactionRecord(reader.position - 1, f"transaction status {status} does not exist")
    partitions = reader.nullable_array(reader.topic_partitions, smallest=_SMALLEST_TOPIC)
    last_update, start = reader.integer(">q"), reader.integer(">q")
    known, unknown = reader.tagged_fields(_TAGGED)
    reader.end()
    return TransactionLogValue(
        version=version,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=timeout,
        transaction_status=TransactionState(status),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=last_update,
        transaction_start_timestamp_ms=start,
        unknown_tagged_fields=unknown,
        **known,
    )


_STATE_IDS = frozenset(map(int, TransactionState))
_SMALLEST_TOPIC = 2  # bytes: the lengths of a name and of an array, in the flexible form
_SMALLEST_PARTITION = 4


@dataclass(slots=True)
class _Reader(FieldReader):
    """The strings, arrays and tagged fields of these records, some of which may be null."""

    malformed = MalformedTransactionRecord

    def length(self, layout: str) -> int:
        """The length of a string or array, -1 for null."""
        start = self.position
        size = self.unsigned_varint() - 1 if self.flexible else self.integer(layout)
        if size < -1:
            raise MalformedTransactionRecord(start, f"length {size} is negative, and not -1 for null")
        return size

    def string(self) -> str:
        start = self.position
        if (size := self.length(">h")) < 0:
            raise MalformedTransactionRecord(start, "null where a string has to be")
        if size > MAX_INT16:
            raise MalformedTransactionRecord(start, f"a string of {size} bytes")
        return self.text(size)

    def nullable_array(self, element: Callable[[], Element], smallest: int) -> tuple[Element, ...] | None:
        """An array of elements that take at least ``smallest`` bytes each; None is null."""
        start = self.position
        if (size := self.length(">i")) < 0:
            return None
        if size > self.left // smallest:
            raise MalformedTransactionRecord(start, f"{self.left} bytes cannot hold {size} elements")
        return tuple(element() for _ in range(size))

    def topic_partitions(self) -> TopicPartitions:
        topic, start = self.string(), self.position
        numbers = self.nullable_array(lambda: self.integer(">i"), smallest=_SMALLEST_PARTITION)
        if numbers is None:
            raise MalformedTransactionRecord(start, "null where an array of partitions has to be")
        _, unknown = self.tagged_fields({})
        return TopicPartitions(topic=topic, partition_ids=numbers, unknown_tagged_fields=unknown)

    def tagged_fields(
        self, known: Mapping[int, tuple[str, str, int]]
    ) -> tuple[dict[str, int], tuple[TaggedField, ...]]:
        """The known fields by name, and the others by tag; none in a version that is not flexible."""
        values: dict[str, int] = {}
        unknown: list[TaggedField] = []
        for start, tag, data in self.tags():
            if tag not in known:
                unknown.append((tag, data))
                continue
            name, layout, default = known[tag]
            if len(data) != struct.calcsize(layout):
                raise MalformedTransactionRecord(start, f"{name} of {len(data)} bytes")
            [values[name]] = struct.unpack(layout, data)
            if values[name] == default:
                raise MalformedTransactionRecord(start, f"{name} is written although it has its default")
        return values, tuple(unknown)

    def end(self) -> None:
        if self.left:
            raise MalformedTransactionRecord(self.position, f"{self.left} bytes are left after the last field")


def _int16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def _partitions(topics: tuple[TopicPartitions, ...] | None, flexible: bool) -> bytes:
    if topics is None:
        return encode_length(-1, ">i", flexible)
    encoded = bytearray(encode_length(len(topics), ">i", flexible))
    for topic in topics:
        encoded += encode_string(topic.topic, flexible) + encode_length(len(topic.partition_ids), ">i", flexible)
        try:
            encoded += struct.pack(f">{len(topic.partition_ids)}i", *topic.partition_ids)
        except struct.error as error:
            raise OverflowError(f"a partition does not fit its place: {error}") from None
        encoded += _tagged_fields(topic.unknown_tagged_fields, flexible)
    return bytes(encoded)


def _tagged_fields(fields: tuple[TaggedField, ...], flexible: bool) -> bytes:
    if not flexible:
        if fields:
            raise OverflowError(f"version 0 has no place for tagged field {fields[0][0]}")
        return b""
    return encode_tagged_fields(fields)
