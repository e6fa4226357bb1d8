"""The files of a partition's log as its leader would write them, made batch by batch.

These are the segments with their offset indexes (or tables of headers instead), the index of aborted transactions, and
producer snapshots at the start of each segment and at the end of the log. Only one part of the log is in memory at a
time. From the earlier parts the writer keeps the end of the log, the open transactions and the last batch of each
producer.

Kafka: LogSegment, OffsetIndex, TransactionIndex, ProducerStateManager
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, ControlType
from kafka_eos_checks.audit.oracle.synthetic import INDEX_INTERVAL_BYTES
from kafka_eos_checks.audit.segments import header_tables
from kafka_eos_checks.audit.segments.headers import INDEX_ENTRY, Headers, Ints
from kafka_eos_checks.audit.segments.marks import Marks
from kafka_eos_checks.lab.generate.batches import (
    BEHIND,
    NEXT,
    NO_TRANSACTION,
    SLICE,
    SLICE_BYTES,
    Batches,
    Contents,
    encode,
    header_fields,
)

SEGMENT_BYTES = 1 << 30  # log.segment.bytes
ABORTED = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"), ("last_stable_offset", ">i8")]
)
PRODUCER = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("first_open", ">i8"),
    ]
)
NEVER = np.iinfo(np.int64).max


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Open:
    """Transactions that no marker has ended yet, in the order of their first batches; each column has shape (n,).

    Attributes:
        number: the transaction's number, as in :class:`Batches`.
        first: offset of the first batch.
        producer_id: id of the transaction's producer.
    """

    number: Ints = field(default_factory=_none)
    first: Ints = field(default_factory=_none)
    producer_id: Ints = field(default_factory=_none)


class Producers:
    """The last batch and the last marker of each producer.

    Args:
        first_id: the lowest producer id.
        count: how many producer ids there may be, from this one.
    """

    def __init__(self, first_id: int, count: int) -> None:
        self._first_id = first_id
        self._last = np.zeros(count, PRODUCER.newbyteorder("="))
        self._last["producer_id"] = first_id + np.arange(count)
        self._last["coordinator_epoch"] = -1
        self._data_epoch = np.full(count, -1)
        self._seen = np.zeros(count, np.bool_)

    def take(self, batches: Batches) -> None:
        """Add batches; the last batch of each producer counts."""
        own = np.flatnonzero(batches.producer_id >= 0)
        who = batches.producer_id[own] - self._first_id
        self._seen[who] = True
        self._last["producer_epoch"][who] = batches.producer_epoch[own]
        self._last["timestamp"][who] = batches.max_timestamp[own]
        is_marker = batches.is_marker[own]
        data, by = own[~is_marker], who[~is_marker]
        self._data_epoch[by] = batches.producer_epoch[data]
        self._last["last_sequence"][by] = batches.last_sequence[data]
        self._last["last_offset"][by] = batches.last_offset[data]
        self._last["offset_delta"][by] = batches.record_count[data] - 1
        self._last["coordinator_epoch"][who[is_marker]] = batches.coordinator_epoch[own[is_marker]]

    def snapshot(self, opened: Open) -> bytes:
        """The bytes of a ``.snapshot``; a marker of a new epoch makes the broker forget the batches before it."""
        found = self._last.copy()
        forgotten = self._data_epoch != found["producer_epoch"]
        for name, value in (("last_sequence", -1), ("last_offset", -1), ("offset_delta", 0)):
            found[name][forgotten] = value
        found["first_open"] = -1
        found["first_open"][opened.producer_id - self._first_id] = opened.first
        entries = found[self._seen].astype(PRODUCER).tobytes()
        checked = struct.pack(">i", int(self._seen.sum())) + entries
        return struct.pack(">hI", 1, crc32c(checked)) + checked


class LogFiles:
    """A partition's log, to which batches are appended.

    Args:
        folder: the partition's folder.
        contents: the records in its batches.
        first_id: the lowest id of its producers.
        producers: how many producer ids there may be, from ``first_id``; 0 for a log without producers.
        as_tables: whether to write tables of headers instead of segments.
        segment_bytes: size at which a new segment starts.

    Attributes:
        end: one past the last offset.
        batches: number of batches.
        markers: number of these batches that are markers.
        size: bytes of all segments, or of the segments that the tables replace.
        segments: base offset and bytes of each segment that is complete.
        leader_epochs: each leader epoch with its first offset.
    """

    def __init__(
        self,
        folder: Path,
        contents: Contents,
        *,
        first_id: int = 0,
        producers: int = 0,
        as_tables: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.end = self.batches = self.markers = self.size = 0
        self.segments: list[tuple[int, int]] = []
        self.leader_epochs: list[tuple[int, int]] = []
        self._contents = contents
        self._producers = Producers(first_id, producers) if producers else None
        self._open = Open()
        self._segment_bytes = segment_bytes
        self._make: Callable[[Path, Contents], _Segment | _Table] = _Table if as_tables else _Segment
        self._active: _Segment | _Table | None = None
        self._base = self._written = 0

    @property
    def path(self) -> Path:
        """The first segment, or table, of a log that is complete."""
        suffix = "log" if self._make is _Segment else header_tables.SUFFIX
        return self.folder / f"{self.segments[0][0]:020d}.{suffix}"

    def append(self, batches: Batches, keep: NDArray[np.bool_] | None = None) -> Batches:
        """Write more batches; return them with their offsets.

        Args:
            batches: the next batches of the log.
            keep: mask of the batches that the cleaner has kept, shape (n,); without it all are kept.
        """
        batches = self._with_offsets(batches)
        if keep is not None:
            batches = batches.take(keep)
        for start in range(0, len(batches), SLICE):
            part = batches.take(slice(start, start + SLICE))
            self._write(part, self._contents.payload_sizes(part) + HEADER_BYTES)
        return batches

    def _with_offsets(self, batches: Batches) -> Batches:
        base = batches.base_offset
        if len(base) and base[0] >= 0:
            found = batches
        else:
            behind = base == BEHIND
            steps = np.where(behind, 0, batches.record_count)
            found = replace(batches, base_offset=self.end + np.cumsum(steps) - steps - behind)
        assert not len(base) or (base >= 0).all() or (base <= NEXT).all(), "all have their offsets, or none"
        epochs, first = np.unique(found.leader_epoch, return_index=True)
        known = self.leader_epochs[-1][0] if self.leader_epochs else -1
        pairs = zip(epochs.tolist(), found.base_offset[first].tolist(), strict=True)
        self.leader_epochs += [(epoch, offset) for epoch, offset in pairs if epoch > known]
        self.end = max(self.end, int(found.last_offset.max(initial=-1)) + 1)
        self.batches += len(batches)
        self.markers += int(np.count_nonzero(batches.is_marker))
        return found

    def _write(self, batches: Batches, sizes: Ints) -> None:
        """Write batches to one segment or several, a limited number of bytes at a time."""
        totals = np.cumsum(sizes)
        start = 0
        while start < len(batches):
            if self._active is None:
                self._base = max(int(batches.base_offset[start]), self._written) if self.segments else 0
                self._active = self._make(self.folder / f"{self._base:020d}.log", self._contents)
            before = int(totals[start] - sizes[start])
            room = max(self._segment_bytes - self._active.size, 0 if self._active.size else int(sizes[start]))
            most = max(min(room, SLICE_BYTES), min(room, int(sizes[start])))
            stop = int(np.searchsorted(totals, before + most, "right"))
            if stop > start:
                part = batches.take(slice(start, stop))
                self._active.write(part, sizes[start:stop])
                self._written = int(part.last_offset.max()) + 1
                self._note(part)
            if stop < len(batches) and self._active.size + int(sizes[stop]) > self._segment_bytes:
                self._roll(max(int(batches.base_offset[stop]), self._written))
            start = stop

    def _roll(self, end: int) -> None:
        """Close the active segment, and write the producer snapshot at ``end``, where the next segment starts."""
        if self._active is not None:
            self._active.close()
            self.segments.append((self._base, self._active.size))
            self.size += self._active.size
            self._active = None
        if self._producers is not None:
            (self.folder / f"{end:020d}.snapshot").write_bytes(self._producers.snapshot(self._open))

    def _note(self, batches: Batches) -> None:
        if self._producers is None:
            return
        self._producers.take(batches)
        aborted = self._ended(batches)
        if len(aborted):
            with (self.folder / f"{self._base:020d}.txnindex").open("ab") as out:
                out.write(aborted.tobytes())

    def _ended(self, batches: Batches) -> NDArray[np.void]:
        """End transactions by the markers among these batches; return the index entries of the aborted ones."""
        named = np.flatnonzero(batches.transaction > NO_TRANSACTION)
        is_marker = batches.is_marker[named]
        begun, ending = named[~is_marker], named[is_marker]
        number = np.concatenate((self._open.number, batches.transaction[begun]))
        first = np.concatenate((self._open.first, batches.base_offset[begun]))
        producer = np.concatenate((self._open.producer_id, batches.producer_id[begun]))
        by_number = np.argsort(number, kind="stable")
        of = by_number[np.searchsorted(number, batches.transaction[ending], sorter=by_number)]
        marker = np.full(len(number), NEVER)
        marker[of] = batches.base_offset[ending]
        still = marker == NEVER
        self._open = Open(number[still], first[still], producer[still])
        aborts = batches.decision[ending] == ControlType.ABORT
        entries = np.zeros(int(aborts.sum()), ABORTED)
        last = batches.base_offset[ending[aborts]]
        entries["producer_id"] = producer[of[aborts]]
        entries["first"] = first[of[aborts]]
        entries["last"] = last
        # The first transaction, in the order of their first batches, that ends later: all before it have ended.
        open_still = np.searchsorted(np.maximum.accumulate(marker), last, "right")
        began = np.append(first, NEVER)[open_still]
        entries["last_stable_offset"] = np.where(began < last, began, last + 1)
        return entries

    def close(self) -> None:
        """Complete the log."""
        if self._active is None and not self.segments:
            self._active = self._make(self.folder / f"{0:020d}.log", self._contents)
        self._roll(self.end)

    def retain(self, size: int) -> int:
        """Delete the oldest segments of a complete log, as long as the remaining ones have at least ``size`` bytes.

        Returns:
            The number of bytes that were deleted.

        Kafka: UnifiedLog.deleteRetentionSizeBreachedSegments, LeaderEpochFileCache.truncateFromStartAsyncFlush
        """
        before = self.size
        while len(self.segments) > 1 and self.size - self.segments[0][1] >= size:
            base, gone = self.segments.pop(0)
            self.size -= gone
            for path in self.folder.glob(f"{base:020d}.*"):
                path.unlink()
        start = self.segments[0][0] if self.segments else 0
        until = [*(first for _, first in self.leader_epochs[1:]), NEVER]
        kept = [each for each, end in zip(self.leader_epochs, until, strict=False) if end > start]
        self.leader_epochs = [(epoch, max(first, start)) for epoch, first in kept]
        return before - self.size


class _Segment:
    """A segment, and its sparse offset index."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self._path = path
        self._contents = contents
        self._base = int(path.stem)
        self._indexed = 0  # position in the index's last entry
        self.size = 0
        path.touch()
        path.with_suffix(".index").touch()

    def write(self, batches: Batches, sizes: Ints) -> None:
        positions = self.size + np.cumsum(sizes) - sizes
        named, first_above = [], positions.searchsorted
        while (row := int(first_above(self._indexed + INDEX_INTERVAL_BYTES, "right"))) < len(positions):
            named.append(row)
            self._indexed = int(positions[row])
        entries = np.empty(len(named), INDEX_ENTRY)
        entries["relative_offset"] = batches.last_offset[named] - self._base  # as Kafka has it
        entries["position"] = positions[named]
        with self._path.open("ab") as out:
            out.write(encode(batches, self._contents, sizes).data)
        with self._path.with_suffix(".index").open("ab") as out:
            out.write(entries.tobytes())
        self.size += int(sizes.sum())

    def close(self) -> None:
        """Do nothing: no file is open between two writes."""


class _Table:
    """The table of the headers of a segment that was never written, with invented CRCs."""

    def __init__(self, path: Path, contents: Contents) -> None:  # noqa: ARG002 - as of a segment
        self.size = 0
        self._writer = header_tables.TableWriter(path.with_suffix(f".{header_tables.SUFFIX}"))

    def write(self, batches: Batches, sizes: Ints) -> None:
        given = header_fields(batches) | {
            "batch_length": sizes - LOG_OVERHEAD_BYTES,
            "crc": batches.base_offset * 2_654_435_761 & 0xFFFFFFFF,  # compresses as badly as a real CRC
        }
        columns = {name: np.broadcast_to(values, (len(batches),)) for name, values in given.items()}
        positions = self.size + np.cumsum(sizes) - sizes
        self.size += int(sizes.sum())
        rows = np.flatnonzero(batches.is_marker)
        marks = Marks(rows, batches.decision[rows].astype(np.int8), batches.coordinator_epoch[rows].astype(np.int32))
        self._writer.write(Headers(positions, columns, self.size), marks)

    def close(self) -> None:
        self._writer.close(self.size)
