"""The records of control batches: the decision of a marker, and the epoch of the coordinator that sent it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, ControlType
from kafka_eos_checks.audit.segments.headers import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    Ints,
    Narrow,
    from_each_byte,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.records import Records, decode_block

NO_DECISION = -1  # a marker that the cleaner has emptied, or a type that topics do not have
NO_EPOCH = -(1 << 31)  # the marker does not name a coordinator epoch
_TYPE_AT, _EPOCH_AT = 2, 2  # bytes, after the version of the key and of the value
_MARKER_MASK = TRANSACTIONAL_MASK | CONTROL_MASK

# The record of a marker as brokers write it: all varints have one byte.
PLAIN = np.dtype(
    [
        ("length", "u1"),
        ("attributes", "u1"),
        ("deltas", "u1", 2),  # of the timestamp and of the offset
        ("key_size", "u1"),
        ("key_version", ">i2"),
        ("type", ">i2"),
        ("value_size", "u1"),
        ("value_version", ">i2"),
        ("coordinator_epoch", ">i4"),
        ("header_count", "u1"),
    ]
)
_PLAIN_LENGTH = HEADER_BYTES + PLAIN.itemsize - LOG_OVERHEAD_BYTES  # of its batch
_FIXED = np.frombuffer(bytes.fromhex("ff 00 8080 ff 0000 0000 ff 0000 00000000 ff"), np.uint8)  # the bits that it has
_EXPECTED = np.frombuffer(bytes.fromhex("20 00 0000 08 0000 0000 0c 0000 00000000 00"), np.uint8)  # lengths are zigzag


class Marks(NamedTuple):
    """The markers among some headers, in order; every column has shape (m,).

    Attributes:
        row: number of the marker among the headers.
        decision: :class:`ControlType`, or :data:`NO_DECISION`.
        coordinator_epoch: the epoch of the coordinator that sent it, or :data:`NO_EPOCH`.
    """

    row: Ints
    decision: NDArray[np.int8]
    coordinator_epoch: Narrow


NO_MARKS = Marks(np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int32))


def concatenate_marks(parts: list[tuple[int, Marks]]) -> Marks:
    """The marks of consecutive headers, each with the number of headers before them, as one."""
    if not parts:
        return NO_MARKS
    return Marks(
        np.concatenate([marks.row + before for before, marks in parts]),
        np.concatenate([marks.decision for _, marks in parts]),
        np.concatenate([marks.coordinator_epoch for _, marks in parts]),
    )


def read_marked_segment(
    segment: Path,
    start: int = 0,
    end: int | None = None,
    *,
    index: Ints | None = None,
    check_crc: bool = True,
    take: Callable[[Block], None] | None = None,
) -> Iterator[tuple[Headers, Marks]]:
    """The headers of a byte range of a segment, a block at a time, and the marks of their control batches.

    ``take`` is given each block, for its records.

    Raises:
        OSError: the segment cannot be read, or it changes meanwhile.
    """
    lanes = read_index(segment) if index is None else index
    for block in read_blocks(segment, start, end, index=lanes, check_crc=check_crc):
        if take is not None:
            take(block)
        yield block.headers, marks_of(block)


def marks_of(block: Block) -> Marks:
    """The marks of a block's control batches. A control batch that cannot be decoded has none."""
    rows = np.flatnonzero(block.headers.fields["attributes"] & _MARKER_MASK == _MARKER_MASK)
    if not len(rows):
        return NO_MARKS
    return _plain_marks(block, rows) or _decoded_marks(block, rows)


def _plain_marks(block: Block, rows: Ints) -> Marks | None:
    """The marks of some control batches if all are as brokers write them, with each field at its place; else None."""
    attributes, length, count = (
        block.headers.fields[name][rows] for name in ("attributes", "batch_length", "record_count")
    )
    if (length != _PLAIN_LENGTH).any() or (count != 1).any() or (attributes & COMPRESSION_MASK).any():
        return None
    begins = block.headers.positions[rows] - block.start + HEADER_BYTES
    records = from_each_byte(block.data, f"V{PLAIN.itemsize}")[begins]
    is_plain = records.view(np.uint8).reshape(-1, PLAIN.itemsize) & _FIXED == _EXPECTED
    records = records.view(PLAIN)
    return _marks(rows, records["type"], records["coordinator_epoch"]) if is_plain.all() else None


def _decoded_marks(block: Block, rows: Ints) -> Marks:
    """The marks of some control batches, from their decoded records."""
    which = np.zeros(len(block.headers), np.bool_)
    which[rows] = True
    records = decode_block(block, which)
    _, last = np.unique(records.batch[::-1], return_index=True)  # a control batch has one record
    records = records.take(np.sort(len(records.batch) - 1 - last))
    kinds = _number(records, records.key_start, records.key_size, _TYPE_AT, ">i2")
    epochs = _number(records, records.value_start, records.value_size, _EPOCH_AT, ">i4")
    return _marks(records.batch, kinds, epochs)


def _marks(rows: Ints, kinds: NDArray[Any], epochs: NDArray[Any]) -> Marks:
    known = (kinds == ControlType.ABORT) | (kinds == ControlType.COMMIT)
    return Marks(rows, np.where(known, kinds, NO_DECISION).astype(np.int8), epochs.astype(np.int32))


def _number(records: Records, start: Ints, size: Ints, at: int, kind: str) -> Ints:
    """A big-endian number in a field of each record, shape (n,); :data:`NO_EPOCH` where the field is too short."""
    width = np.dtype(kind).itemsize
    long_enough = size >= at + width
    places = np.where(long_enough, start + at, 0)[:, None] + np.arange(width)
    buffer = np.ascontiguousarray(records.buffer.take(places, mode="clip"))
    numbers: Ints = np.where(long_enough, buffer.view(kind)[:, 0].astype(np.int64), NO_EPOCH)
    return numbers


def decision_of(key: bytes | None) -> ControlType | None:
    """The type in a control record's key, after its version; None for types that partitions of topics do not have."""
    number = int.from_bytes(key[_TYPE_AT : _TYPE_AT + 2], "big") if key and len(key) >= _TYPE_AT + 2 else NO_DECISION
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None
