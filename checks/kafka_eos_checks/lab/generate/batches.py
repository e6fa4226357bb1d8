"""Batches as columns, and their encoding in Kafka's format.

Batches whose payloads have one size are encoded together: their bytes are a matrix with one row for each batch. Only
the CRC is computed row by row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    ControlRecord,
    ControlType,
    Record,
    build_control_batch,
    encode_records,
)
from kafka_eos_checks.audit.segments.headers import CONTROL_MASK, HEADER, TRANSACTIONAL_MASK, Bytes, Ints

FIRST_TIMESTAMP = 1_700_000_000_000  # ms since the epoch: when all logs begin
FIRST_PRODUCER = 1000
SLICE, SLICE_BYTES = 65_536, 32 << 20  # batches, and bytes, encoded at once; they bound the memory
TEXT_BYTES = 16  # of a value: the hexadecimal digits of its partition and offset
NO_DECISION = NO_TRANSACTION = NO_PRODUCER = NO_EPOCH = NO_SEQUENCE = NO_LEADER_EPOCH = -1
MARKER = TRANSACTIONAL_MASK | CONTROL_MASK  # attributes of a marker
NEXT, BEHIND = -1, -2  # instead of a base offset: the next offset; the last one again (a violation)


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of several columns, each an array of shape (n,) or (n, m)."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, which: Ints | NDArray[np.bool_] | slice) -> Self:
        """Return the chosen rows."""
        return type(self)(*(getattr(self, column.name)[which] for column in fields(self)))

    def followed_by(self, other: Self) -> Self:
        """These rows and then those of another."""
        names = [column.name for column in fields(self)]
        return type(self)(*(np.concatenate((getattr(self, name), getattr(other, name))) for name in names))


@dataclass(frozen=True, slots=True)
class Batches(Columns):
    """Consecutive batches of one log; every column has shape (n,).

    Attributes:
        base_offset: offset of the first record, :data:`NEXT` or :data:`BEHIND`.
        record_count: number of records; a batch has no holes.
        producer_id: -1 without one.
        producer_epoch: -1 without a producer.
        base_sequence: -1 without a producer, and of a marker.
        timestamp: time of the first record, in milliseconds since the epoch; each later record adds a millisecond.
        attributes: the header's attributes.
        leader_epoch: epoch of the partition's leader, -1 for none.
        decision: a marker's decision; :data:`NO_DECISION` for batches with data.
        coordinator_epoch: a marker's coordinator epoch.
        transaction: the number of the transaction on its partition, for its first batch with data and for the first
            marker that ends it; ``NO_TRANSACTION - 1 - number`` for its further batches with data;
            :data:`NO_TRANSACTION` for all others.
        planted: code of the violation planted here, see :mod:`violations`; 0 for none.
    """

    base_offset: Ints
    record_count: Ints
    producer_id: Ints
    producer_epoch: Ints
    base_sequence: Ints
    timestamp: Ints
    attributes: Ints
    leader_epoch: Ints
    decision: Ints
    coordinator_epoch: Ints
    transaction: Ints
    planted: Ints

    @property
    def last_offset(self) -> Ints:
        """Offset of the last record."""
        return self.base_offset + self.record_count - 1

    @property
    def last_sequence(self) -> Ints:
        """Sequence of the last record; a generated log never reaches 2^31."""
        return self.base_sequence + self.record_count - 1

    @property
    def max_timestamp(self) -> Ints:
        """Timestamp of the last record, in milliseconds since the epoch."""
        return self.timestamp + self.record_count - 1

    @property
    def is_marker(self) -> NDArray[np.bool_]:
        """Mask of the markers, shape (n,)."""
        found: NDArray[np.bool_] = self.decision != NO_DECISION
        return found


DEFAULTS = {
    "base_offset": NEXT,
    "record_count": 1,
    "producer_id": NO_PRODUCER,
    "producer_epoch": NO_EPOCH,
    "base_sequence": NO_SEQUENCE,
    "attributes": 0,
    "leader_epoch": 0,
    "decision": NO_DECISION,
    "coordinator_epoch": NO_EPOCH,
    "transaction": NO_TRANSACTION,
    "planted": 0,
}

Some = TypeVar("Some", bound=Columns)


def columns_of(kind: type[Some], rows: int, /, **columns: NDArray[Any] | int) -> Some:
    """Rows of the given columns. A column given as a number, or left to its default, has this value in all rows."""
    given = DEFAULTS | columns
    return kind(*(np.broadcast_to(given[each.name], (rows, *np.shape(given[each.name])[1:])) for each in fields(kind)))


# ---- records


@dataclass(frozen=True, slots=True)
class Template:
    """The bytes of records, with fields that differ from batch to batch.

    Attributes:
        payload: the bytes.
        places: start and number of bytes of each field.
    """

    payload: bytes
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def found(cls, payload: bytes, marks: Mapping[str, bytes]) -> Self:
        """Make a template of an example. A field is where its mark is, which must occur once in the example."""
        counts = {name: payload.count(mark) for name, mark in marks.items()}
        assert set(counts.values()) <= {1}, f"not once in the example: {counts}"
        return cls(payload, {name: (payload.index(mark), len(mark)) for name, mark in marks.items()})

    def fill(self, count: int, **columns: Ints | Bytes) -> Bytes:
        """Payloads of ``count`` batches, shape (count, bytes of one). A field is integers or rows of bytes."""
        rows = np.empty((count, len(self.payload)), np.uint8)
        rows[:] = np.frombuffer(self.payload, np.uint8)
        for name, values in columns.items():
            at, size = self.places[name]
            rows[:, at : at + size] = values if values.dtype == np.uint8 else big_endian(values, size)
        return rows


def big_endian(values: Ints | Bytes, size: int) -> Bytes:
    """Integers as bytes, shape (n, size)."""
    return values.astype(f">i{size}").view(np.uint8).reshape(len(values), size)


def bytes_of(names: Sequence[str]) -> Bytes:
    """Names of one length as bytes, shape (n, length)."""
    encoded = [name.encode() for name in names]
    return np.frombuffer(b"".join(encoded), np.uint8).reshape(len(encoded), -1)


@lru_cache(maxsize=1)
def marker_template() -> Template:
    """The record of a marker."""
    example = build_control_batch(
        ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0x7A7B7C7D), producer_id=0, producer_epoch=0
    ).payload
    epoch = example.index(b"\x7a\x7b\x7c\x7d")
    decision = example.index(b"\x00\x00\x00\x01") + 2  # the key: version, type
    return Template(example, {"coordinator_epoch": (epoch, 4), "decision": (decision, 2)})


def marker_payloads(markers: Batches) -> Bytes:
    """Payloads of markers, shape (n, bytes of one)."""
    said = {"coordinator_epoch": markers.coordinator_epoch, "decision": markers.decision}
    return marker_template().fill(len(markers), **said)


Group = tuple[Ints, Bytes]  # which batches, and their payloads, shape (n, bytes of one)


class Contents(Protocol):
    """The records in the batches of a log."""

    def groups(self, batches: Batches) -> Iterator[Group]:
        """Yield the payloads of consecutive batches, in groups of one size."""
        ...

    def payload_sizes(self, batches: Batches) -> Ints:
        """Return the size of each batch's payload, in bytes."""
        ...


class Values:
    """Records without key, with random values; and markers.

    Args:
        value_bytes: size of each value.
        seed: seed of the values.
    """

    def __init__(self, value_bytes: int, seed: int) -> None:
        self._value_bytes = value_bytes
        self._rng = np.random.default_rng(seed)

    def groups(self, batches: Batches) -> Iterator[Group]:
        """Implement :class:`Contents`."""
        counts = np.where(batches.is_marker, 0, batches.record_count)
        for count in np.unique(counts).tolist():
            where = np.flatnonzero(counts == count)
            own = batches.take(where)
            yield where, self._rows(count, own) if count else marker_payloads(own)

    def _rows(self, count: int, batches: Batches) -> Bytes:
        payload, places = _valued(count, self._value_bytes)
        rows = Template(payload).fill(len(batches))
        for at, value in zip(places, self._values(count, batches), strict=True):
            rows[:, at : at + self._value_bytes] = value
        return rows

    def _values(self, count: int, batches: Batches) -> Bytes:
        """The values of batches of ``count`` records, shape (count, number of batches, bytes of one)."""
        values = np.frombuffer(self._rng.bytes(len(batches) * count * self._value_bytes), np.uint8)
        return values.reshape(count, len(batches), self._value_bytes)

    def payload_sizes(self, batches: Batches) -> Ints:
        """Implement :class:`Contents`."""
        most = int(batches.record_count.max(initial=1))
        sizes = np.array([0, *(len(_valued(count, self._value_bytes)[0]) for count in range(1, most + 1))])
        return np.where(batches.is_marker, len(marker_template().payload), sizes[batches.record_count])


class Texts(Values):
    """Records without key. Each value names its partition and offset, so no two values of a topic are equal.

    A value consists of four hexadecimal digits of the partition, twelve of the offset, and dots up to its size.

    Args:
        value_bytes: size of each value, at least :data:`TEXT_BYTES`.
        partition: number of the partition.
    """

    def __init__(self, value_bytes: int, partition: int) -> None:
        assert value_bytes >= TEXT_BYTES, "a text has room for partition and offset"
        super().__init__(value_bytes, 0)
        self._partition = partition

    def _values(self, count: int, batches: Batches) -> Bytes:
        offsets = batches.base_offset + np.arange(count)[:, None] + (self._partition << 48)
        digits = offsets[:, :, None] >> np.arange(60, -4, -4) & 0xF
        values = np.full((*offsets.shape, self._value_bytes), ord("."), np.uint8)
        values[:, :, :TEXT_BYTES] = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
        return values


@lru_cache(maxsize=4096)
def _valued(count: int, value_bytes: int) -> tuple[bytes, list[int]]:
    """The records of a batch whose values are zero bytes, and the positions at which the values start."""
    parts = [
        encode_records([Record(offset_delta=i, timestamp_delta=i, value=bytes(value_bytes))]) for i in range(count)
    ]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return b"".join(parts), [end - 1 - value_bytes for end in ends]  # the count of headers, 0, is the last byte


# ---- batches


def encode(batches: Batches, contents: Contents, sizes: Ints) -> Bytes:
    """The bytes of batches, one after the other, shape (bytes of all,).

    Args:
        batches: the batches, with their offsets.
        contents: the records of their log.
        sizes: the size of each batch, in bytes.
    """
    out = np.empty(int(sizes.sum()), np.uint8)
    positions = np.cumsum(sizes) - sizes
    for where, payloads in contents.groups(batches):
        part = batches.take(where)
        size = HEADER_BYTES + payloads.shape[1]
        rows = np.empty((len(part), size), np.uint8)
        rows[:, HEADER_BYTES:] = payloads
        header = np.zeros(len(part), HEADER)
        for name, values in header_fields(part).items():
            header[name] = values
        header["batch_length"] = size - LOG_OVERHEAD_BYTES
        rows[:, :HEADER_BYTES] = _bytes(header)
        header["crc"] = _crcs(rows)
        rows[:, :HEADER_BYTES] = _bytes(header)
        # Overlapping windows of one row's size. Writing a window as one wide item is a memcpy.
        windows: NDArray[np.void] = np.ndarray((len(out) - size + 1,), f"V{size}", out, 0, (1,))
        windows[positions[where]] = rows.view(f"V{size}")[:, 0]
    return out


def _crcs(rows: Bytes) -> list[int]:
    """The CRC of each batch, computed a few rows at a time, so that the processor still has them in its cache."""
    size = rows.shape[1]
    step = max(1, (1 << 18) // size)
    found: list[int] = []
    for start in range(0, len(rows), step):
        data = rows[start : start + step].tobytes()
        found += [crc32c(data[at + CHECKED_FROM : at + size]) for at in range(0, len(data), size)]
    return found


def header_fields(batches: Batches) -> dict[str, Ints | int]:
    """The header fields of batches, except for length and CRC; the batches must have their offsets."""
    return {
        "base_offset": batches.base_offset,
        "leader_epoch": batches.leader_epoch,
        "magic": MAGIC,
        "attributes": batches.attributes,
        "last_offset_delta": batches.record_count - 1,
        "base_timestamp": batches.timestamp,
        "max_timestamp": batches.max_timestamp,
        "producer_id": batches.producer_id,
        "producer_epoch": batches.producer_epoch,
        "base_sequence": batches.base_sequence,
        "record_count": batches.record_count,
    }


def _bytes(header: NDArray[np.void]) -> Bytes:
    return header.view(np.uint8).reshape(len(header), HEADER_BYTES)
