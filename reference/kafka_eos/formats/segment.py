"""The files of a partition on disk: log segments, their indexes, and producer snapshots.

A segment (``.log``) is read batch by batch. What is no batch becomes a :class:`CorruptRegion`, and reading goes on
at the next batch, so that a damaged file still tells all it can. The other files are small and read at once.

Kafka: org.apache.kafka.storage.internals.log (LogSegment, OffsetIndex, TimeIndex, TransactionIndex,
       ProducerStateManager), org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile
"""

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import google_crc32c

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.message_set import decode_message
from kafka_eos.formats.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, Buffer, RecordBatch, decode_batch

RESYNC_CHECKED_BYTES = 8 << 30
"""The number of bytes of a file that may go through CRC32C in search of the next batch, before the search ends."""

# The bytes from byte 16 of a batch on: magic, any CRC, and attributes whose unused bits are not set.
_MAGIC_CRC_ATTRIBUTES = re.compile(rb"\x02.{4}\x00[\x00-\x7f]", re.DOTALL)
MAGIC_POSITION = 16  # of the byte with the format version, in a batch and in a message of the formats before
_NOT_ZERO = re.compile(rb"[^\x00]")
_HEADER = struct.Struct(">qiibIhiqqqhii")

_OFFSET_INDEX_ENTRY = struct.Struct(">ii")
_TIME_INDEX_ENTRY = struct.Struct(">qi")
_ABORTED_TRANSACTION = struct.Struct(">hqqqq")
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CHECKED_FROM = 6


class MalformedFile(ValueError):  # noqa: N818 - named for the bytes, as MalformedBatch is
    """An index, snapshot or checkpoint that is not in its format; says file, position in bytes, and reason."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class RegionKind(StrEnum):
    """The kinds of regions without batches.

    CORRUPT: bytes that are no batch of format version 2, or whose CRC is wrong.
    TORN_TAIL: the file ends inside its last batch, as after a crash during an append.
    ZEROES: nothing but zero bytes up to the end of the file, as in a preallocated one or after a power failure.
    OLD_FORMAT: messages of format version 0 or 1, as from before Kafka 0.11, each with its CRC. They are sound, and
        have neither producer nor transaction.
    """

    CORRUPT = "corrupt"
    TORN_TAIL = "torn tail"
    ZEROES = "zeroes"
    OLD_FORMAT = "old format"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A batch and where in the file it begins, in bytes."""

    position: int
    batch: RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptRegion:
    """Bytes of a segment that are no batches: damage, or an older format.

    Attributes:
        position: the position of its first byte in the file.
        end: position after its last byte; the next batch begins there, or the file ends.
        kind: what it is.
        reason: why no batch begins at ``position``.
    """

    position: int
    end: int
    kind: RegionKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndexEntry:
    """A line of an ``.index``: the batch at ``position`` in the segment is the first that can hold ``offset``."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeIndexEntry:
    """A line of a ``.timeindex``: no record up to ``offset`` has a timestamp (ms since the epoch) above this one."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A line of a ``.txnindex``.

    Attributes:
        producer_id: the producer whose transaction was aborted.
        first_offset: the offset of its first batch on this partition.
        last_offset: the offset of its marker.
        last_stable_offset: the partition's, when the marker was appended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshotEntry:
    """A leader's state of one producer in a ``.snapshot``: only its last batch.

    Attributes:
        producer_id: the key.
        producer_epoch: the current one.
        last_sequence: the last sequence of the last batch, -1 if none is known.
        last_offset: the last offset of the last batch, -1 if none is known.
        offset_delta: the distance from the first to the last offset of that batch.
        timestamp: the timestamp of the last batch or marker, milliseconds since the epoch.
        coordinator_epoch: the coordinator epoch of the last marker, -1 without one.
        current_txn_first_offset: the first offset of the open transaction; None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochStart:
    """A line of ``leader-epoch-checkpoint``: the first offset of a leader's epoch."""

    epoch: int
    start_offset: int


def read_segment(path: Path) -> Iterator[StoredBatch | CorruptRegion]:
    """The batches and damaged regions of a ``.log`` file, in file order; together they cover it.

    The file is mapped, not read, so memory stays at one batch. It must not be truncated meanwhile: of a running
    broker read a copy.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:  # an empty file cannot be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from scan(data)


def scan(data: Buffer) -> Iterator[StoredBatch | CorruptRegion]:
    """The batches and damaged regions of a segment's bytes; see :func:`read_segment`."""
    position = 0
    search = _Search(data)
    while position < len(data):
        try:
            batch, next_position = decode_batch(data, position)
        except MalformedBatch as error:
            region = _old_messages(data, position)
            if region is None:
                next_position = search.next_batch(position)
                kind = _kind(data, position, next_position)
                region = CorruptRegion(position=position, end=next_position, kind=kind, reason=error.reason)
            next_position = region.end
            yield region
        else:
            yield StoredBatch(position=position, batch=batch)
        position = next_position


def _old_messages(data: Buffer, position: int) -> CorruptRegion | None:
    """The region of consecutive messages of the formats before batches at ``position``; None if there is none."""
    offsets: list[int] = []
    end = position
    while len(data) - end > MAGIC_POSITION and data[end + MAGIC_POSITION] < MAGIC:
        try:
            message, end = decode_message(data, end)
        except MalformedBatch:
            break
        offsets = [*offsets[:1], message.offset]
    if not offsets:
        return None
    reason = f"messages of format version 0 or 1, offsets {offsets[0]} to {offsets[-1]}"
    return CorruptRegion(position=position, end=end, kind=RegionKind.OLD_FORMAT, reason=reason)


class _Search:
    """The search for the next batch after damage, with its budget for the whole file."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._budget = RESYNC_CHECKED_BYTES

    def next_batch(self, position: int) -> int:
        """The beginning of the next batch after ``position``, or the end of the data."""
        # The damaged batch's own length is tried first: a batch inside one of its records does not belong to this log.
        if (end := _claimed_end(self._data, position)) is not None and (end == len(self._data) or self._is_batch(end)):
            return end
        found = _MAGIC_CRC_ATTRIBUTES.search(self._data, position + 17)
        while found:
            if self._is_batch(found.start() - 16):
                return found.start() - 16
            found = _MAGIC_CRC_ATTRIBUTES.search(self._data, found.start() + 1)
        return len(self._data)

    def _is_batch(self, position: int) -> bool:
        size = _plausible_size(self._data, position)
        if size is None or size > self._budget:
            return False
        self._budget -= size
        try:
            decode_batch(self._data, position)
        except MalformedBatch:
            return False
        return True


def _claimed_end(data: Buffer, position: int) -> int | None:
    """The end of the batch at ``position`` by its own length; None if that is not inside the data."""
    length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD_BYTES], "big", signed=True)
    end = position + LOG_OVERHEAD_BYTES + length
    return end if position + HEADER_BYTES <= end <= len(data) else None


def _plausible_size(data: Buffer, position: int) -> int | None:
    """The size of the batch that may begin at ``position``, judged only by its header; None if none does.

    Random bytes pass about once in 2^25, so that few candidates cost a CRC.
    """
    end = _claimed_end(data, position)
    if end is None:
        return None
    base_offset, _, leader_epoch, magic, _, _, last_offset_delta, *times, producer_id, epoch, sequence, count = (
        _HEADER.unpack_from(data, position)
    )
    plausible = (
        magic == MAGIC
        and base_offset >= 0
        and 0 <= count <= last_offset_delta + 1
        and min(leader_epoch, *times, producer_id, epoch, sequence) >= -1
    )
    return end - position if plausible else None


def _kind(data: Buffer, position: int, end: int) -> RegionKind:
    if end < len(data):
        return RegionKind.CORRUPT
    if _NOT_ZERO.search(data, position, end) is None:
        return RegionKind.ZEROES
    if len(data) - position < HEADER_BYTES:
        return RegionKind.TORN_TAIL
    length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD_BYTES], "big", signed=True)
    cut_off = data[position + 16] == MAGIC and length > len(data) - position - LOG_OVERHEAD_BYTES
    return RegionKind.TORN_TAIL if cut_off else RegionKind.CORRUPT


def read_offset_index(path: Path, base_offset: int) -> tuple[OffsetIndexEntry, ...]:
    """The entries of an ``.index``, sparse and in order; none if the file is absent.

    Args:
        path: the path of the file.
        base_offset: the base offset of its segment, to which the file's offsets are relative.

    Raises:
        MalformedFile: the size is no multiple of an entry, or the entries are not in order.
    """
    rows = _index_rows(path, _OFFSET_INDEX_ENTRY)
    for number, (row, previous) in enumerate(zip(rows[1:], rows, strict=False), 1):
        if row[0] <= previous[0] or row[1] <= previous[1]:
            raise MalformedFile(path, number * _OFFSET_INDEX_ENTRY.size, f"{row} does not follow {previous}")
    return tuple(OffsetIndexEntry(offset=base_offset + offset, position=position) for offset, position in rows)


def read_time_index(path: Path, base_offset: int) -> tuple[TimeIndexEntry, ...]:
    """The entries of a ``.timeindex``, sparse and in order; none if the file is absent.

    Args:
        path: the path of the file.
        base_offset: the base offset of its segment, to which the file's offsets are relative.

    Raises:
        MalformedFile: the size is no multiple of an entry, or the entries are not in order.
    """
    rows = _index_rows(path, _TIME_INDEX_ENTRY)
    for number, (row, previous) in enumerate(zip(rows[1:], rows, strict=False), 1):
        if row[0] < previous[0] or row[1] < previous[1]:
            raise MalformedFile(path, number * _TIME_INDEX_ENTRY.size, f"{row} does not follow {previous}")
    return tuple(TimeIndexEntry(timestamp=timestamp, offset=base_offset + offset) for timestamp, offset in rows)


def _index_rows(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    """The rows of an index without the zeroes at its end, which are preallocated."""
    data = _read(path)
    if len(data) % entry.size:
        raise MalformedFile(path, len(data), f"{len(data)} bytes are no multiple of an entry's {entry.size}")
    entries = -(-len(data.rstrip(b"\x00")) // entry.size)
    return list(entry.iter_unpack(data[: entries * entry.size]))


def read_transaction_index(path: Path) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions of a ``.txnindex``, in the order of their markers; none if the file is absent.

    Raises:
        MalformedFile: the size is no multiple of an entry, or an entry has another version than 0.
    """
    data = _read(path)
    if len(data) % _ABORTED_TRANSACTION.size:
        reason = f"{len(data)} bytes are no multiple of an entry's {_ABORTED_TRANSACTION.size}"
        raise MalformedFile(path, len(data), reason)
    aborted = []
    for number, (version, producer_id, first, last, stable) in enumerate(_ABORTED_TRANSACTION.iter_unpack(data)):
        if version != 0:
            raise MalformedFile(path, number * _ABORTED_TRANSACTION.size, f"version {version}; 0 is read")
        aborted.append(
            AbortedTransaction(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable)
        )
    return tuple(aborted)


def read_producer_snapshot(path: Path) -> tuple[ProducerSnapshotEntry, ...]:
    """The producers of a ``.snapshot``; none if the file is absent.

    Raises:
        MalformedFile: another version than 1, a CRC that is not of these bytes, or a count that does not fit.
    """
    return tuple(
        ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=last_sequence,
            last_offset=last_offset,
            offset_delta=offset_delta,
            timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=None if txn_first_offset == -1 else txn_first_offset,
        )
        for (
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            txn_first_offset,
        ) in _SNAPSHOT_ENTRY.iter_unpack(producer_snapshot_bytes(path))
    )


def producer_snapshot_bytes(path: Path) -> bytes:
    """The entries of a ``.snapshot`` as they are stored; none if the file is absent.

    Raises:
        MalformedFile: as for :func:`read_producer_snapshot`.
    """
    data = _read(path)
    if not data and not path.exists():
        return b""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise MalformedFile(path, len(data), f"{len(data)} bytes, where the header takes {_SNAPSHOT_HEADER.size}")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != 1:
        raise MalformedFile(path, 0, f"version {version}; 1 is read")
    computed = google_crc32c.value(data[_SNAPSHOT_CHECKED_FROM:])
    if crc != computed:
        raise MalformedFile(path, 2, f"CRC32C is {crc:08x}, of the bytes {computed:08x}")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise MalformedFile(path, _SNAPSHOT_CHECKED_FROM, f"{count} entries do not take {len(data)} bytes")
    return data[_SNAPSHOT_HEADER.size :]


def read_leader_epochs(path: Path) -> tuple[LeaderEpochStart, ...]:
    """The lines of a ``leader-epoch-checkpoint``; none if the file is absent or empty, as a broker creates it.

    The file is text: the version (0), the number of lines that follow, and in each an epoch and its first offset.

    Raises:
        MalformedFile: anything else.

    Kafka: CheckpointFile
    """
    data = _read(path)
    if not data:
        return ()
    try:
        version, count, *rows = ([int(word) for word in line.split()] for line in data.decode("ascii").splitlines())
        epochs = tuple(LeaderEpochStart(epoch=epoch, start_offset=start) for epoch, start in rows)
    except ValueError as error:
        raise MalformedFile(path, 0, f"not a leader epoch checkpoint: {error}") from None
    if version != [0] or count != [len(epochs)]:
        raise MalformedFile(path, 0, f"version {version} and count {count} before {len(epochs)} lines")
    return epochs


def _read(path: Path) -> bytes:
    """The file's bytes; none if it is absent, as each of these files may be."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
