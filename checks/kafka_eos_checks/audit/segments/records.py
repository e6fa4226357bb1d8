"""The records of many batches at once, as ranges of a buffer; no record becomes an object.

Record headers are counted, not read; a record is only as long as its length says.

First the records are found: a record begins with its length, so each batch is a lane and all lanes hop at once, or,
where batches are few, a loop hops. Then all records are decoded side by side, field by field.

Kafka: DefaultRecord.readFrom. The readable decoder, which this one must equal, is ``kafka_eos.formats.record_batch``
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.compression import CompressionType, decompress
from kafka_eos.formats.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, decode_records
from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos.formats.varint import decode_varlong
from kafka_eos_checks.audit.segments.headers import (
    COMPRESSION_MASK,
    TIMESTAMP_TYPE_MASK,
    Block,
    Bytes,
    Headers,
    Ints,
    is_set,
)

FEW_LANES = 40  # measured: with fewer lanes a loop over single records is faster than numpy
SMALLEST_RECORD = 7  # bytes: a record's six varints and its attributes
PADDING = bytes(16)  # so that a varint may be read as a whole word at the very end
_WORD = 8


@dataclass(frozen=True, slots=True)
class Records:
    """Records of consecutive batches, every column of shape (n,).

    Attributes:
        buffer: the bytes that the ranges point into, uint8.
        batch: number of the record's batch among the headers of its block.
        offset: absolute offset.
        timestamp: milliseconds since the epoch.
        key_start: where the key begins in ``buffer``.
        key_size: bytes of the key, -1 for null.
        value_start: where the value begins in ``buffer``.
        value_size: bytes of the value, -1 for null.
        header_count: how many headers the record has.
        damage: batches with the right CRC whose records cannot be decoded; they have no rows.
    """

    buffer: Bytes
    batch: Ints
    offset: Ints
    timestamp: Ints
    key_start: Ints
    key_size: Ints
    value_start: Ints
    value_size: Ints
    header_count: Ints
    damage: tuple[CorruptRegion, ...] = ()

    def __len__(self) -> int:
        return len(self.batch)

    def take(self, which: NDArray[np.bool_]) -> "Records":
        """Some of the records, and the same damage; ``which`` has shape (n,)."""
        columns = ("batch", "offset", "timestamp", "key_start", "key_size", "value_start", "value_size", "header_count")
        return replace(self, **{name: getattr(self, name)[which] for name in columns})

    def keys(self) -> Iterator[bytes | None]:
        """The keys, one after the other."""
        return self._bytes(self.key_start, self.key_size)

    def values(self) -> Iterator[bytes | None]:
        """The values, one after the other."""
        return self._bytes(self.value_start, self.value_size)

    def _bytes(self, start: Ints, size: Ints) -> Iterator[bytes | None]:
        data = self.buffer.tobytes()
        for first, end in zip(start.tolist(), (start + size).tolist(), strict=True):
            yield None if end < first else data[first:end]


def decode_block(block: Block, which: NDArray[np.bool_] | None = None) -> Records:
    """The records of a block's batches.

    Args:
        block: headers and their bytes.
        which: the batches to decode, shape (number of headers,); all when not given.
    """
    headers = block.headers
    if which is not None:
        headers = headers.take(which)
    data, start, end, damage = _sections(block, headers)
    buffer = np.frombuffer(data, np.uint8)
    claimed = headers.column("record_count")
    count = np.where(claimed * SMALLEST_RECORD <= end - start, claimed, 0)  # impossible counts are not decoded
    fields, wrong = _decode(buffer, find_records(data, start, count))
    lane = np.repeat(np.arange(len(headers)), count)
    reached = start.copy()
    some = count > 0
    reached[some] = fields[-1][np.cumsum(count)[some] - 1]
    bad = (reached != end) | (count != claimed)
    bad[lane[np.flatnonzero(wrong)]] = True
    for i in np.flatnonzero(bad & (end >= 0)).tolist():
        damage.append(_malformed(headers, i, data[start[i] : end[i]]))
    if bad.any():
        keep = ~bad[lane]
        lane, fields = lane[keep], tuple(field[keep] for field in fields)
    timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, header_count, _ = fields
    timestamp = headers.column("base_timestamp")[lane] + timestamp_delta
    appended = is_set(headers, TIMESTAMP_TYPE_MASK)
    if appended.any():
        timestamp = np.where(appended[lane], headers.column("max_timestamp")[lane], timestamp)
    return Records(
        buffer=buffer,
        batch=lane if which is None else np.flatnonzero(which)[lane],
        offset=headers.column("base_offset")[lane] + offset_delta,
        timestamp=timestamp,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        header_count=header_count,
        damage=tuple(sorted(damage, key=lambda region: region.position)),
    )


def _sections(block: Block, headers: Headers) -> tuple[bytes, Ints, Ints, list[CorruptRegion]]:
    """Bytes, padded, and where in them the records of each batch begin and end; the end is -1 for damage."""
    position = headers.positions - block.start
    start, end = position + HEADER_BYTES, position + LOG_OVERHEAD_BYTES + headers.fields["batch_length"]
    parts: list[memoryview | bytes] = [block.data.data]
    size, damage = len(block.data), []
    codec = headers.fields["attributes"] & COMPRESSION_MASK
    for i in np.flatnonzero(codec).tolist():
        try:
            section = decompress(CompressionType(int(codec[i])), block.data[start[i] : end[i]].tobytes())
        except MalformedBatch as error:
            damage.append(region_of(headers, i, error.reason))
            end[i] = -1
            continue
        parts.append(section)
        start[i], size = size, size + len(section)
        end[i] = size
    return b"".join([*parts, PADDING]), start, end, damage


def _malformed(headers: Headers, batch: int, section: bytes) -> CorruptRegion:
    """The region of a batch that this decoder cannot decode, with the reason that the readable decoder gives."""
    try:
        decode_records(section, int(headers.fields["record_count"][batch]))
    except MalformedBatch as error:
        return region_of(headers, batch, f"at byte {error.position} of its records: {error.reason}")
    reason = "the readable decoder reads its records: please report this as a fault of the audit"
    return region_of(headers, batch, reason)


def region_of(headers: Headers, batch: int, reason: str) -> CorruptRegion:
    """The region of a batch that cannot be decoded."""
    position = int(headers.positions[batch])
    end = position + LOG_OVERHEAD_BYTES + int(headers.fields["batch_length"][batch])
    return CorruptRegion(position=position, end=end, kind=RegionKind.CORRUPT, reason=reason)


def find_records(data: bytes, start: Ints, count: Ints) -> Ints:
    """The start of each record, in order of section and position, shape (sum of ``count``,).

    If a section has fewer records, the other starts lie anywhere after its end. If a length is negative, the next
    record starts there. Decoding notices both.

    Args:
        data: bytes, padded.
        start: where each section begins, shape (s,).
        count: how many records it should have.
    """
    # The lanes with most records first: those with a record left are the first ones at each step.
    order = np.argsort(-count)
    position, row, left = start[order], (np.cumsum(count) - count)[order], count[order]
    steps = int(left[FEW_LANES]) if len(left) > FEW_LANES else 0
    going = len(left) - np.searchsorted(left[::-1], np.arange(steps), "right")
    starts = np.empty(int(count.sum()), np.int64)
    pairs = np.ndarray(len(data) - 1, "<u2", data, strides=(1,))  # two bytes from every position
    for lanes in going.tolist():
        position, row = position[:lanes], row[:lanes]
        starts[row] = position
        row += 1
        hop = _HOPS.take(pairs[np.minimum(position, len(pairs) - 1)])
        if np.count_nonzero(hop) == lanes:
            position = position + hop
        else:
            size, after = _varints(np.frombuffer(data, np.uint8), position)
            position = after + np.maximum(size, 0)
    few = slice(int(np.count_nonzero(left > steps)))
    for first, at, records in zip(row[few].tolist(), position[few].tolist(), (left[few] - steps).tolist(), strict=True):
        starts[first : first + records] = _find_one_by_one(data, at, records)
    return starts


def _hops() -> NDArray[np.uint16]:
    """The distance to the next record, by the first two bytes of a record; 0 where two bytes are not enough."""
    low, high = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    length = np.where(low < 0x80, low, (low & 0x7F) | (high & 0x7F) << 7)
    tells = (length % 2 == 0) & (low & high < 0x80)
    return np.where(tells, 1 + (low >> 7) + (length >> 1), 0).astype(np.uint16)


_HOPS = _hops()


def _find_one_by_one(data: bytes, position: int, records: int) -> list[int]:
    last = len(data) - len(PADDING)
    starts = []
    for _ in range(records):
        starts.append(position)
        if position >= last:
            continue
        length = data[position]
        position += 1
        if length >= 0x80:
            shift, length = 7, (length & 0x7F) | data[position] << 7
            while length >> shift >= 0x80 and shift < 35:
                position += 1
                length &= (1 << (shift + 7)) - 1
                shift += 7
                length |= data[position] << shift
            position += 1
        if not length & 1:  # not negative
            position += length >> 1
    return starts


def _decode(buffer: Bytes, start: Ints) -> tuple[tuple[Ints, ...], NDArray[np.bool_]]:
    """The fields of the records at ``start``, and which of them are wrong.

    Fields: timestamp delta, offset delta, key start and size, value start and size, header count, end of the record.
    """
    size, position = _varints(buffer, start)
    end = position + size
    timestamp_delta, position = _varlongs(buffer, position + 1)  # one byte of attributes, unused
    offset_delta, position = _varints(buffer, position)
    key_size, key_start = _varints(buffer, position)
    value_size, value_start = _varints(buffer, key_start + np.maximum(key_size, 0))
    headers, position = _varints(buffer, value_start + np.maximum(value_size, 0))
    wrong = (end > len(buffer)) | (key_size < -1) | (value_size < -1) | (headers < 0) | (position > end)
    wrong |= (headers == 0) & (position != end)
    return (timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, headers, end), wrong


def _varints(buffer: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """Zigzag varints of up to eight bytes, and the position after each.

    After a longer varint, which no length or count needs, the position is inside the varint. The record then does not
    end where its length says, and counts as malformed.

    Nearly all have one or two bytes. These fit 16 bits, so numpy decodes them at once.
    """
    low = buffer.take(position, mode="clip")
    if low.max(initial=0) < 0x80:
        value = ((low >> 1) ^ -(low & 1)).view(np.int8).astype(np.int64)
        return value, position + 1
    high = buffer.take(position + 1, mode="clip")
    two = low >> 7
    raw = (low & 0x7F) | ((high & 0x7F) * two).astype(np.uint16) << 7
    value = ((raw >> 1) ^ -(raw & 1)).view(np.int16).astype(np.int64)
    after = position + 1
    after += two
    longer = np.flatnonzero(low & high & 0x80)
    if len(longer):
        value[longer], after[longer] = _long_varints(buffer, position[longer])
    return value, after


def _varlongs(buffer: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """Varints of up to ten bytes: a difference of a time in nanoseconds and one in milliseconds needs nine."""
    value, after = _varints(buffer, position)
    for row in np.flatnonzero(after - position == _WORD).tolist():
        at = int(position[row])
        with suppress(MalformedBatch):  # left as a varint that is too long
            value[row], size = decode_varlong(bytes(buffer[at : at + 10]), 0)
            after[row] = at + size
    return value, after


_MORE = np.uint64(0x8080808080808080)


def _long_varints(buffer: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """Varints of any length: the eight bytes from a position on are one little-endian word."""
    words = np.lib.stride_tricks.sliding_window_view(buffer, _WORD).view("<u8")[:, 0]
    word = words[np.minimum(position, len(words) - 1)]
    last = ~word & _MORE  # the high bit of each byte that ends a varint
    ones = last ^ (last - np.uint64(1))  # the bits up to and with the lowest of them
    raw = word & ones & np.uint64(0x7F7F7F7F7F7F7F7F)
    raw = ((raw & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)) | (raw & np.uint64(0x007F007F007F007F))
    raw = ((raw & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)) | (raw & np.uint64(0x00003FFF00003FFF))
    raw = ((raw & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)) | (raw & np.uint64(0x000000000FFFFFFF))
    value = (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
    return value, position + (np.bitwise_count(ones) >> 3).astype(np.int64)
