"""Batch headers of a log segment, many at a time, without touching the records.

A segment is a sequence of record batches, each led by 61 bytes of header (Kafka: ``DefaultRecordBatch``). Only the
length field says where the next batch begins, so a reader has to hop. The sparse offset index next to a segment (Kafka:
``OffsetIndex``) knows where some batches begin: each entry starts a lane, and all lanes hop at once in numpy.

Segments are read in blocks that fit the processor's cache. They are never mapped into memory, because a broker may
truncate a file while it is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import CHECKED_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, decode_batch
from kafka_eos.formats.segment import CorruptRegion, RegionKind, scan
from kafka_eos_checks.audit.places import LocalFile, Uri, Window, open_at, written_bytes_of
from kafka_eos_checks.kit.memory import keep_freed_memory

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Narrow = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Fields = Mapping[str, NDArray[Any]]
File = LocalFile | Window

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),  # bytes after this field
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),  # CRC32C of everything from the attributes on
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES, "the header's fields are the header"
FIELDS = {name: HEADER[name].newbyteorder("=") for name in HEADER.names or ()}  # in the machine's byte order
SEAM = np.dtype([("before", "<u4"), ("nothing", "V13"), ("begin", "<u4")])
assert SEAM.itemsize == CHECKED_FROM, "a seam has the place of what a CRC does not cover"
FROM_ZERO = 0x641F6454  # these four bytes take the register of a CRC32C from 0 to all ones, where a CRC begins
_LENGTH = Struct(">i")
SMALLEST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES

COMPRESSION_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK, CONTROL_MASK = 0x07, 0x08, 0x10, 0x20
DELETE_HORIZON_MASK = 0x40  # the base timestamp is a delete horizon

BLOCK_BYTES = 2 << 20  # measured: 2 MiB stays in the cache between the read, the CRC and the decoding of records
TRIES = 3  # to read a block of a segment that changes
UNWRITTEN_BYTES = 16  # a batch that is damaged, and ends in so many zeroes, is taken for one that is half written
SEARCH_BYTES = 16 << 20  # searched for the end of damage before the rest of the split is read
INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of consecutive batches of one segment.

    Attributes:
        positions: shape (n,), where each batch begins, in bytes from the start of the segment.
        fields: by name, each of shape (n,) and in the machine's byte order; all of :data:`FIELDS`, or those that were
            asked for.
        end: where reading stopped, in bytes from the start of the file.
        damage: the regions that were skipped, in order of position; never inside ``positions``.
    """

    positions: Ints
    fields: Fields
    end: int
    damage: tuple[CorruptRegion, ...] = ()

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> Ints:
        """A field of all headers, shape (n,), as 64-bit integers."""
        values: Ints = self.fields[name].astype(np.int64, copy=False)
        return values

    def narrow(self, name: str) -> Narrow:
        """A field of 32 bits or less of all headers, shape (n,), as 32-bit integers: half as much to move."""
        values: Narrow = self.fields[name].astype(np.int32, copy=False)
        return values

    def take(self, which: NDArray[np.bool_]) -> "Headers":
        """Some of the headers, of shape (n,), and the same damage."""
        fields = {name: values[which] for name, values in self.fields.items()}
        return replace(self, positions=self.positions[which], fields=fields)


class Block(NamedTuple):
    """Headers and the bytes they were read from; ``data[0]`` is byte ``start`` of the file.

    The first :data:`CHECKED_FROM` bytes of each batch may have been replaced: see :func:`have_their_crcs`.
    """

    headers: Headers
    data: Bytes
    start: int


def read_index(segment: Path) -> Ints:
    """Positions from the offset index next to a segment, strictly increasing; empty when there is none.

    The active segment's index is preallocated: its zero entries are no entries.
    """
    data = written_bytes_of(segment.with_suffix(".index")) or b""
    entries = np.frombuffer(data[: len(data) // 8 * 8], INDEX_ENTRY)
    positions = entries["position"].astype(np.int64)
    highest_before = np.maximum.accumulate(np.concatenate(([0], positions)))[:-1]
    return positions[positions > highest_before]


def read_blocks(
    path: Path, start: int = 0, end: int | None = None, *, index: Ints | None = None, check_crc: bool = True
) -> Iterator[Block]:
    """Read a byte range of a segment, a block at a time.

    Args:
        path: the ``.log`` file.
        start: where a batch begins, in bytes.
        end: where the last batch ends, in bytes; the end of the file when not given.
        index: where some of the batches begin (:func:`read_index`); it makes reading faster and changes no result.
        check_crc: whether to compare each batch with its CRC; a batch that differs is damage.

    Yields:
        Blocks of at least one batch or with some damage, in order of position, covering the range without a hole.

    Raises:
        OSError: the segment cannot be read, or it changes meanwhile.
    """
    keep_freed_memory()
    lanes = np.empty(0, np.int64) if index is None else index
    with open_at(path, end) as file:
        limit = file.size if end is None else min(end, file.size)
        position = start
        while position < limit:
            block = _read_block(file, position, limit, lanes, check_crc)
            if block is None:
                raise OSError(f"{path}: it changed while it was read, at byte {position}; audit a copy")
            position = block.headers.end
            yield block


def _read_block(file: File, start: int, limit: int, index: Ints, check_crc: bool) -> Block | None:
    """The batches in the block at ``start``, up to and including the first damage.

    None if bytes that looked like damage are a batch a moment later, in each of :data:`TRIES` tries.
    """
    for _ in range(TRIES):  # a broker may be writing the batch that is read
        block = _try_block(file, start, limit, index, check_crc)
        if block is not None:
            return block
    return None


def _try_block(file: File, start: int, limit: int, index: Ints, check_crc: bool) -> Block | None:
    """Read as :func:`_read_block` does; None if the segment changes meanwhile."""
    data = _bytes_at(file, start, min(BLOCK_BYTES, limit - start))
    if len(data) >= LOG_OVERHEAD_BYTES:
        first = LOG_OVERHEAD_BYTES + _length_at(data, 0)
        if len(data) < first <= limit - start:
            data = _bytes_at(file, start, first)
    inside = index[np.searchsorted(index, start, "right") : np.searchsorted(index, start + len(data))] - start
    positions, fields, stop, good = sound_batches(data, inside, check_crc)
    healthy = good and stop > 0 and (stop == len(data) or _continues(data, stop, limit - start))
    if healthy:
        return Block(Headers(positions + start, fields, start + stop), data, start)
    damage = find_damage(file, start + stop, limit)
    if damage is None:
        return None
    return Block(Headers(positions + start, fields, damage.end, (damage,)), data, start)


def _bytes_at(file: File, start: int, count: int) -> Bytes:
    """Up to ``count`` bytes from a position on, writable; fewer where the file ends."""
    buffer = np.empty(count, np.uint8)
    return buffer[: file.fill(buffer.data, start)]


def _length_at(data: Bytes, position: int) -> int:
    """The length field of the batch at a position."""
    length: int = _LENGTH.unpack_from(data.data, position + 8)[0]
    return length


def sound_batches(data: Bytes, lanes: Ints, check_crc: bool = True) -> tuple[Ints, Fields, int, bool]:
    """The batches that lie completely in ``data``, up to the first bytes that are no batch.

    Args:
        data: bytes, a batch begins at 0; writable if CRCs are compared, see :func:`have_their_crcs`.
        lanes: where some of the batches begin, as :func:`hop` takes them.
        check_crc: whether to compare each batch with its CRC.

    Returns:
        Positions, fields, where the next batch would begin, and whether no damage was found up to there.
    """
    positions, stop = hop(data, lanes)
    fields = fields_at(data, positions)
    if len(lanes) and not _follow(positions, fields["batch_length"], stop):
        return sound_batches(data, lanes[:0], check_crc)
    good = _plausible(fields)
    if check_crc and not have_their_crcs(data, positions, fields["crc"], stop):
        good &= crcs(data, positions, fields["batch_length"]) == fields["crc"]
    bad = np.flatnonzero(~good)
    if len(bad):
        sound = slice(bad[0])
        return positions[sound], {name: own[sound] for name, own in fields.items()}, int(positions[bad[0]]), False
    return positions, fields, stop, True


def _follow(positions: Ints, length: Narrow, stop: int) -> bool:
    """Whether each batch ends where the next one begins, and the last one at ``stop``."""
    ends = positions + length + LOG_OVERHEAD_BYTES
    fit = bool((ends[:-1] == positions[1:]).all()) and stop in ends[-1:]
    return fit and int(length.min()) >= SMALLEST_LENGTH


def _continues(data: Bytes, stop: int, limit: int) -> bool:
    """Whether the batch at ``stop`` may simply lie beyond this block, all within ``limit``."""
    if len(data) - stop < LOG_OVERHEAD_BYTES:
        return limit > len(data)
    length = _length_at(data, stop)
    return length >= SMALLEST_LENGTH and len(data) < stop + LOG_OVERHEAD_BYTES + length <= limit


def hop(data: Bytes, lanes: Ints) -> tuple[Ints, int]:
    """Positions of the batches that lie completely in ``data``, and where the next batch would begin.

    Args:
        data: bytes, a batch begins at 0.
        lanes: where some of the batches begin, strictly increasing, without 0. If they do not fit the batches, some
            positions are wrong: a batch there does not end where the next one begins.
    """
    lanes = lanes[lanes <= len(data) - HEADER_BYTES]
    if len(lanes) < 8:
        return _hop_one_by_one(data, 0)
    tail, stop = _hop_one_by_one(data, int(lanes[-1]))
    return np.concatenate((_hop_lanes(data, np.append(0, lanes)), tail)), stop


def _hop_lanes(data: Bytes, lanes: Ints) -> Ints:
    """Let all lanes except the last hop at once, each to the start of the next lane or beyond it."""
    lengths = from_each_byte(data[8:], ">u4")  # a negative length would hop back
    position, goal = lanes[:-1], lanes[1:]
    steps = []
    while len(position):
        steps.append(position)
        position = position + lengths[position] + LOG_OVERHEAD_BYTES
        going = position < goal
        if np.count_nonzero(going) < len(going):
            position, goal = position[going], goal[going]
    return np.sort(np.concatenate(steps))


def _hop_one_by_one(data: Bytes, position: int) -> tuple[Ints, int]:
    """Hop from batch to batch by the length field."""
    positions = []
    size, last = len(data), len(data) - HEADER_BYTES
    while position <= last:
        following = position + LOG_OVERHEAD_BYTES + _length_at(data, position)
        if following > size or following < position + HEADER_BYTES:
            break
        positions.append(position)
        position = following
    return np.array(positions, np.int64), position


def from_each_byte(data: Bytes, kind: str) -> NDArray[Any]:
    """The item of a kind that begins at each byte; shape (number of bytes at which a whole one begins,), not copied."""
    item = np.dtype(kind)
    return np.ndarray(max(len(data) - item.itemsize + 1, 0), item, data, strides=(1,))


def fields_at(data: Bytes, positions: Ints) -> Fields:
    """The fields of the headers at ``positions``, each of shape (n,).

    A header is copied as one item of 61 bytes. Picking single fields out of ``data`` is several times slower.
    """
    raw = from_each_byte(data, f"V{HEADER_BYTES}")[positions].view(HEADER)
    return {name: raw[name].astype(kind) for name, kind in FIELDS.items()}


def have_their_crcs(data: Bytes, positions: Ints, expected: NDArray[np.uint32], stop: int) -> bool:
    """Whether each of the batches that tile ``data`` up to ``stop`` has its CRC, by one CRC over all of them.

    The part of a header that the CRC does not cover is replaced by a :data:`SEAM`, in ``data`` itself. If the batch
    before the seam has its CRC, the seam takes the CRC's register to 0 and then to a CRC's initial value. A CRC is
    linear, so a difference stays a difference in all that follows. That differences of several batches cancel each
    other is as likely as that a wrong batch has the right CRC.

    Args:
        data: writable bytes, a batch begins at 0.
        positions: shape (n,), where the batches begin.
        expected: shape (n,), their CRCs.
        stop: where the last one ends.
    """
    if not len(positions):
        return True
    seams = np.zeros(len(positions), SEAM)
    seams["before"][0] = ~np.uint32(0)  # as if an empty batch came before the first
    seams["before"][1:] = ~expected[:-1]
    seams["begin"] = FROM_ZERO
    whole = f"V{SEAM.itemsize}"
    from_each_byte(data, whole)[positions] = seams.view(whole)
    joined = data[:stop]
    joined.flags.writeable = False  # crc32c copies an array that is not read-only
    return bool(crc32c(joined) == expected[-1])


def crcs(data: Bytes, positions: Ints, length: Narrow) -> NDArray[np.uint32]:
    """CRC32C of each batch, shape (n,)."""
    first = (positions + CHECKED_FROM).tolist()
    after = (positions + LOG_OVERHEAD_BYTES + length).tolist()
    return np.array([crc32c(data[a:b].tobytes()) for a, b in zip(first, after, strict=True)], np.uint32)


def _plausible(fields: Fields) -> NDArray[np.bool_]:
    """Whether the readable decoder accepts each header, apart from length and CRC, shape (n,)."""
    offset, delta = fields["base_offset"], fields["last_offset_delta"]
    codec = (fields["attributes"] & COMPRESSION_MASK) <= CompressionType.ZSTD
    counts = (offset >= 0) & (delta >= 0) & (fields["record_count"] >= 0)
    counts &= fields["record_count"] - 1 <= delta
    counts &= (fields["record_count"] > 0) | (fields["batch_length"] <= HEADER_BYTES - LOG_OVERHEAD_BYTES)
    counts &= offset + delta + 1 >= 0  # an offset beyond the last one overflows
    plausible: NDArray[np.bool_] = (fields["magic"] == MAGIC) & codec & counts
    return plausible


def find_damage(file: File, position: int, limit: int) -> CorruptRegion | None:
    """The region from ``position`` on that has no batch, judged by the readable decoder.

    None if there is a batch after all, because a broker is writing to the file. In front of a batch behind the limit it
    is damage, and no unfinished tail.
    """
    near = file.pread(min(SEARCH_BYTES, limit - position), position)
    region = _first_region(near)
    if region is None:
        return None
    claimed = LOG_OVERHEAD_BYTES + int.from_bytes(near[8:12], "big", signed=True)
    if max(region.end, claimed) >= len(near):
        region = _first_region(file.pread(limit - position, position))
    if region is None:
        return None
    end, kind = position + region.end, region.kind
    if kind in {RegionKind.TORN_TAIL, RegionKind.ZEROES} and end < file.size and is_batch(file, end):
        kind = RegionKind.CORRUPT
    return replace(region, position=position, end=end, kind=kind)


def is_batch(file: File, position: int) -> bool:
    """Whether a whole batch with the right CRC begins at a position."""
    head = file.pread(HEADER_BYTES, position)
    length = LOG_OVERHEAD_BYTES + int.from_bytes(head[8:12], "big", signed=True)
    try:
        decode_batch(file.pread(max(length, 0), position))
    except MalformedBatch:
        return False
    return True


def may_be_reserved(segment: Path) -> bool:
    """Whether a file of this machine ends in zeroes, as a segment does that its broker has preallocated."""
    if isinstance(segment, Uri):
        return False
    with open_at(segment) as file:
        last = file.pread(HEADER_BYTES, max(file.size - HEADER_BYTES, 0))
    return bool(last) and not any(last)


def written_end(segment: Path) -> int:
    """The end of the batches of a segment of this machine: where only zeroes follow, else the end of the file.

    A broker with ``log.preallocate`` writes into the zeroes while they are read, and cuts them off when it begins
    another segment. The bytes before them stay as they are. A batch whose end is not written belongs to the zeroes: it
    is being written, or a crash has cut it off.
    """
    with open_at(segment) as file:
        assert isinstance(file, LocalFile)
        position = next((at for at in reversed(read_index(segment).tolist()) if is_batch(file, at)), 0)
        for _ in range(TRIES):  # a broker may be writing the batch that is read
            while is_batch(file, position):
                position = _claimed_end(file, position)
            if file.is_zero_from(position):
                return position
        claimed = _claimed_end(file, position)
        unwritten = max(claimed - UNWRITTEN_BYTES, position + 8)  # after the base offset
        return position if claimed <= file.size and file.is_zero_from(unwritten) else file.size


def _claimed_end(file: File, position: int) -> int:
    """Where the batch at a position ends by its length field."""
    return position + LOG_OVERHEAD_BYTES + int.from_bytes(file.pread(4, position + 8), "big", signed=True)


def _first_region(data: bytes) -> CorruptRegion | None:
    region = next(scan(data), None)
    return region if isinstance(region, CorruptRegion) else None


def concatenate(parts: list[Headers]) -> Headers:
    """Consecutive parts of one segment as one; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Headers(
        np.concatenate([p.positions for p in parts]),
        {name: np.concatenate([p.fields[name] for p in parts]) for name in parts[0].fields},
        parts[-1].end,
        tuple(d for p in parts for d in p.damage),
    )


def is_set(headers: Headers, mask: int) -> NDArray[np.bool_]:
    """Whether each batch has an attribute bit, shape (n,), bool."""
    bits: NDArray[np.bool_] = (headers.fields["attributes"] & mask) != 0
    return bits
