"""The records of many batches at once, as ranges of a buffer; no record becomes an object.

Record headers are counted, not read; a record is only as long as its length says.

First the records are found: a record begins with its length, so each batch is a lane and all lanes hop at once, or,
where batches are few, a loop hops. Then all records are decoded side by side, field by field.

Kafka: DefaultRecord.readFrom; the readable decoder, which this one must equal, is ``kafka_eos.record_batch``
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafka_eos.compression import CompressionType, decompress
from kafka_eos.errors import MalformedBatch
from kafka_eos.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, decode_records
from kafka_eos.segment import CorruptRegion, RegionKind
from kafka_eos_checks.replay.headers import COMPRESSION_MASK, TIMESTAMP_TYPE_MASK, Block, Bytes, Ints, is_set

FEW_LANES = 200  # measured: with fewer lanes a loop over single records is faster than a step of numpy
PADDING = bytes(16)  # so that a varint may be read as a whole word at the very end
_WORD = 8

Words = NDArray[np.uint64]


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

    def keys(self) -> Iterator[bytes | None]:
        """The keys, one after the other."""
        return self._bytes(self.key_start, self.key_size)

    def values(self) -> Iterator[bytes | None]:
        """The values, one after the other."""
        return self._bytes(self.value_start, self.value_size)

    def _bytes(self, start: Ints, size: Ints) -> Iterator[bytes | None]:
        data = self.buffer.tobytes()
        for first, count in zip(start.tolist(), size.tolist(), strict=True):
            yield None if count < 0 else data[first : first + count]


def decode_block(block: Block, which: NDArray[np.bool_] | None = None) -> Records:
    """The records of a block's batches.

    Args:
        block: headers and their bytes.
        which: the batches to decode, shape (number of headers,); all when not given.
    """
    chosen = np.arange(len(block.headers)) if which is None else np.flatnonzero(which)
    buffer, start, end, damage = _sections(block, chosen)
    count = block.headers.column("record_count")[chosen]
    healthy = end >= 0
    record_start, lane = find_records(buffer, start[healthy], end[healthy], count[healthy])
    lane = np.flatnonzero(healthy)[lane]
    fields, wrong = _decode(buffer, record_start)
    complete = np.bincount(lane, minlength=len(chosen)) == np.where(healthy, count, 0)
    last_end = start.copy()
    np.maximum.at(last_end, lane, fields[-1])
    bad = healthy & (~complete | (last_end != end))
    bad[lane[wrong]] = True
    damage += [_malformed(block, int(chosen[i]), buffer[start[i] : end[i]].tobytes()) for i in np.flatnonzero(bad)]
    keep = ~bad[lane]
    batch = chosen[lane[keep]]
    timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, headers, _ = (f[keep] for f in fields)
    appended = is_set(block.headers, TIMESTAMP_TYPE_MASK)[batch]
    created = block.headers.column("base_timestamp")[batch] + timestamp_delta
    return Records(
        buffer=buffer,
        batch=batch,
        offset=block.headers.column("base_offset")[batch] + offset_delta,
        timestamp=np.where(appended, block.headers.column("max_timestamp")[batch], created),
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        header_count=headers,
        damage=tuple(sorted(damage, key=lambda region: region.position)),
    )


def _sections(block: Block, chosen: Ints) -> tuple[Bytes, Ints, Ints, list[CorruptRegion]]:
    """A buffer, and where in it the record section of each batch begins and ends; the end is -1 for damage."""
    raw, position = block.headers.raw, block.headers.positions[chosen] - block.start
    start, end = position + HEADER_BYTES, position + LOG_OVERHEAD_BYTES + raw["batch_length"][chosen]
    parts, size, damage = [block.data], len(block.data), []
    codec = raw["attributes"][chosen] & COMPRESSION_MASK
    for i in np.flatnonzero(codec).tolist():
        try:
            section = decompress(CompressionType(int(codec[i])), block.data[start[i] : end[i]])
        except MalformedBatch as error:
            damage.append(_region(block, int(chosen[i]), error.reason))
            end[i] = -1
            continue
        parts.append(section)
        start[i], size = size, size + len(section)
        end[i] = size
    # Most blocks end inside a batch, and then have bytes enough behind the last whole one: no copy for the padding.
    padded = len(parts) == 1 and end.max(initial=0) + len(PADDING) <= len(block.data)
    data = block.data if padded else b"".join([*parts, PADDING])
    return np.frombuffer(data, np.uint8), start, end, damage


def _malformed(block: Block, batch: int, section: bytes) -> CorruptRegion:
    """What the readable decoder says of a batch that this one cannot decode."""
    try:
        decode_records(section, int(block.headers.raw["record_count"][batch]))
    except MalformedBatch as error:
        return _region(block, batch, f"at byte {error.position} of its records: {error.reason}")
    return _region(block, batch, "a timestamp is 2^55 ms or more away from the batch's, which is not read")


def _region(block: Block, batch: int, reason: str) -> CorruptRegion:
    position = int(block.headers.positions[batch])
    end = position + LOG_OVERHEAD_BYTES + int(block.headers.raw["batch_length"][batch])
    return CorruptRegion(position=position, end=end, kind=RegionKind.CORRUPT, reason=reason)


def find_records(buffer: Bytes, start: Ints, end: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Where each record begins, and which section it is of; in order of section and position.

    Args:
        buffer: bytes, padded.
        start: where each section begins, shape (s,).
        end: where it ends.
        count: how many records it should have; of a section that does not hold them all the rest is missing.
    """
    words = _words(buffer)
    lane = np.flatnonzero((count > 0) & (start < end))
    position, step = start[lane], 0
    found: list[tuple[Ints, Ints]] = []
    while len(lane) > FEW_LANES:
        found.append((position, lane))
        size, after = _varints(words[position], position)
        position, step = after + size, step + 1
        going = (size >= 0) & (position < end[lane]) & (step < count[lane])
        position, lane = position[going], lane[going]
    found += _find_one_by_one(buffer, position, end[lane], count[lane] - step, lane)
    starts = np.concatenate([f[0] for f in found]) if found else np.empty(0, np.int64)
    lanes = np.concatenate([f[1] for f in found]) if found else np.empty(0, np.int64)
    order = np.argsort(lanes, kind="stable")
    return starts[order], lanes[order]


def _find_one_by_one(buffer: Bytes, start: Ints, end: Ints, count: Ints, lane: Ints) -> list[tuple[Ints, Ints]]:
    found = []
    for first, last, records, number in zip(start.tolist(), end.tolist(), count.tolist(), lane.tolist(), strict=True):
        section = buffer[first:last].tobytes()
        position, size = 0, len(section)
        starts: list[int] = []
        while position < size and len(starts) < records:
            starts.append(position)
            shift = length = 0
            while position < size and section[position] & 0x80 and shift < 35:
                length |= (section[position] & 0x7F) << shift
                position, shift = position + 1, shift + 7
            if position == size or shift >= 35:
                break
            length |= section[position] << shift
            if length & 1:  # negative
                break
            position += 1 + (length >> 1)
        found.append((np.array(starts, np.int64) + first, np.full(len(starts), number)))
    return found


def _decode(buffer: Bytes, start: Ints) -> tuple[tuple[Ints, ...], NDArray[np.bool_]]:
    """The fields of the records at ``start``, and which of them are wrong.

    Fields: timestamp delta, offset delta, key start and size, value start and size, header count, end of the record.
    """
    words = _words(buffer)
    top = len(words) - 1

    def varint(at: Ints) -> tuple[Ints, Ints]:
        return _varints(words[np.minimum(at, top)], at)

    size, position = varint(start)
    end = position + size
    timestamp_delta, position = varint(position + 1)  # one byte of attributes, unused
    offset_delta, position = varint(position)
    key_size, key_start = varint(position)
    value_size, value_start = varint(key_start + np.maximum(key_size, 0))
    headers, position = varint(value_start + np.maximum(value_size, 0))
    wrong = (end > top + 1) | (key_size < -1) | (value_size < -1) | (headers < 0) | (position > end)
    wrong |= (headers == 0) & (position != end)
    return (timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, headers, end), wrong


def _words(buffer: Bytes) -> Words:
    """Eight bytes from every position as one little-endian word."""
    return np.lib.stride_tricks.sliding_window_view(buffer, _WORD).view("<u8")[:, 0]


_MORE = np.uint64(0x8080808080808080)


def _varints(word: Words, position: Ints) -> tuple[Ints, Ints]:
    """Zigzag varints of up to eight bytes, and the position after each.

    A longer one, which only a timestamp delta of more than a million years needs, leaves the position inside itself;
    the record then does not end where its length says.
    """
    if not (word & np.uint64(0x80)).any():
        raw = word & np.uint64(0x7F)
        return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), position + 1
    last = ~word & _MORE  # the high bit of each byte that ends a varint
    ones = last ^ (last - np.uint64(1))  # the bits up to and with the lowest of them
    raw = word & ones & np.uint64(0x7F7F7F7F7F7F7F7F)
    raw = ((raw & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)) | (raw & np.uint64(0x007F007F007F007F))
    raw = ((raw & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)) | (raw & np.uint64(0x00003FFF00003FFF))
    raw = ((raw & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)) | (raw & np.uint64(0x000000000FFFFFFF))
    value = (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
    return value, position + (np.bitwise_count(ones) >> 3).astype(np.int64)
