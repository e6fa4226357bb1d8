"""The transactional batches of a log by chunks: the steps that open or end transactions, and the data of each marker.

A *step* is a marker, or a batch of data that changes the open transactions: the first batch of a transaction, and the
first one after a hole or of another epoch. :func:`steps_of` finds the steps of a chunk without knowing what precedes
the chunk. The steps of all chunks meet by producer id. Then :func:`paired` finds the data that each marker ends, and
the data that are open at the end. So no task needs a whole log or a whole transaction at once, and batches that are not
steps leave no row.

The readable form of the same fold is :func:`kafka_eos_checks.audit.rules.transactions.partitions.read_transactions`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.kernels.logs.runs import Columns, Runs
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    Ints,
    is_set,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, Marks
from kafka_eos_checks.audit.segments.order import places_of_each, stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split

NO_TIME = -1
NOTHING = -1  # instead of a step: the marker ends no data
# One row a step. Times are in milliseconds since the epoch.
STEP = np.dtype(
    [
        ("position", np.int64),  # of the batch in its segment, in bytes
        ("offset", np.int64),
        ("producer_id", np.int64),
        ("timestamp", np.int64),  # the highest of the batch
        ("next_ms", np.int64),  # when the next marker of the log was appended, from this batch on
        ("holes", np.int32),  # before it; of a chunk counted from its first batch
        ("coordinator_epoch", np.int32),
        ("producer_epoch", np.int16),
        ("decision", np.int8),
        ("is_marker", np.bool_),
        ("stamped", np.bool_),  # whether a broker gave the timestamp
    ]
)
Steps = NDArray[np.void]
NO_STEPS: Steps = np.empty(0, STEP)
Rows = NDArray[np.void]
# One row for each producer id of a chunk that has data without the transactional bit: the first batch, and how many.
PLAIN_DATA = np.dtype(
    [(name, np.int64) for name in ("log", "segment", "position", "offset", "producer_id", "producer_epoch", "batches")]
)
_WHOLE = f"V{STEP.itemsize}"  # a step as bytes: numpy joins these ten times as fast as field by field


class Transactional(NamedTuple):
    """The steps of transactions in a chunk, and the times that date the chunk.

    Attributes:
        steps: dtype :data:`STEP`, in log order.
        begins_ms: base timestamp of the first batch; 0 without one.
        begins_epoch: leader epoch of the first batch; -1 without one.
        stamped_ms: the last timestamp of a broker; :data:`NO_TIME` for none.
        first_marker_ms: when the first marker was appended; :data:`NO_TIME` for none.
        marked_ms: when the last marker below the high watermark was appended; :data:`NO_TIME` for none.
    """

    steps: Steps = NO_STEPS
    begins_ms: int = 0
    begins_epoch: int = -1
    stamped_ms: int = NO_TIME
    first_marker_ms: int = NO_TIME
    marked_ms: int = NO_TIME


NOT_TRANSACTIONAL = Transactional()


def steps_of(
    headers: Headers,
    marks: Marks,
    topic: str,
    columns: Columns,
    runs: Runs,
    *,
    high_watermark: int = -1,
    holes: int = 0,
) -> Transactional:
    """The steps of consecutive batches.

    Args:
        headers: the batches.
        marks: the marks of their markers.
        topic: the topic of the log.
        columns: the columns of the batches.
        runs: their runs.
        high_watermark: the high watermark of the log, from its directory's checkpoint; -1 if unknown.
        holes: the number of holes of the log before the batches.
    """
    if not len(headers):
        return NOT_TRANSACTIONAL
    times = headers.column("max_timestamp")
    by_broker = topic in COORDINATOR_TOPICS
    stamps = times if by_broker else times[is_set(headers, CONTROL_MASK | TIMESTAMP_TYPE_MASK)]
    begins_ms, stamped_ms = int(headers.column("base_timestamp")[0]), int(stamps.max(initial=NO_TIME))
    begins_epoch = int(headers.column("leader_epoch")[0])
    rows = _rows_of_steps(headers, columns, runs)
    if not len(rows):
        return Transactional(begins_ms=begins_ms, begins_epoch=begins_epoch, stamped_ms=stamped_ms)
    attributes = headers.fields["attributes"][rows]
    steps = np.empty(len(rows), STEP)
    steps["position"] = headers.positions[rows]
    steps["offset"] = columns.base_offset[rows]
    steps["producer_id"] = columns.producer_id[rows]
    steps["producer_epoch"] = columns.producer_epoch[rows]
    steps["timestamp"] = times[rows]
    steps["holes"] = runs.holes[rows] + holes
    steps["is_marker"] = attributes & CONTROL_MASK != 0
    steps["stamped"] = (attributes & (CONTROL_MASK | TIMESTAMP_TYPE_MASK) != 0) | by_broker
    steps["decision"], steps["coordinator_epoch"] = NO_DECISION, NO_EPOCH
    told = np.searchsorted(rows, marks.row)
    steps["decision"][told], steps["coordinator_epoch"][told] = marks.decision, marks.coordinator_epoch
    markers = np.flatnonzero(steps["is_marker"])
    following = np.cumsum(steps["is_marker"]) - steps["is_marker"]  # of a marker it is the marker itself
    marker_ms = np.append(steps["timestamp"][markers], NO_TIME)
    steps["next_ms"] = marker_ms[following]
    below = markers[steps["offset"][markers] < high_watermark]
    return Transactional(
        steps=steps,
        begins_ms=begins_ms,
        begins_epoch=begins_epoch,
        stamped_ms=stamped_ms,
        first_marker_ms=int(marker_ms[0]),
        marked_ms=int(steps["timestamp"][below[-1]]) if len(below) else NO_TIME,
    )


def plain_data_of(log: int, split: Split, headers: Headers, runs: Runs) -> Rows:
    """The producer ids that have data without the transactional bit in a chunk.

    Args:
        log: the number of the log.
        split: the chunk's split.
        headers: the chunk's batches.
        runs: their runs.

    Returns:
        Rows of :data:`PLAIN_DATA`, by producer id.
    """
    is_plain = headers.fields["attributes"][runs.first] & (TRANSACTIONAL_MASK | CONTROL_MASK) == 0
    rows, counts = runs.first[is_plain], np.diff(runs.begin, append=len(runs.order))[is_plain]
    first = np.flatnonzero(np.diff(headers.fields["producer_id"][rows], prepend=-1))
    found = np.empty(len(first), PLAIN_DATA)
    found["log"], found["segment"] = log, bisect_left(split.log.segments, split.segment)
    found["position"] = headers.positions[rows[first]]
    for field_name, name in (("base_offset", "offset"), ("producer_id",) * 2, ("producer_epoch",) * 2):
        found[name] = headers.fields[field_name][rows[first]]
    found["batches"] = np.add.reduceat(counts, first) if len(first) else 0
    return found


def _rows_of_steps(headers: Headers, columns: Columns, runs: Runs) -> Ints:
    """The first batches of runs in transactions, except data right after data of the same producer and epoch."""
    rows = runs.first
    bits = headers.fields["attributes"][rows] & (TRANSACTIONAL_MASK | CONTROL_MASK)
    same = bits[1:] == bits[:-1]
    for column in (columns.producer_id[rows], columns.producer_epoch[rows], runs.holes[rows]):
        same &= column[1:] == column[:-1]
    is_step = bits & TRANSACTIONAL_MASK != 0
    is_step[1:] &= ~(same & (bits[1:] == TRANSACTIONAL_MASK))
    rows = rows[is_step]
    if len(runs.order) < len(headers):  # a marker of no producer
        others = is_set(headers, TRANSACTIONAL_MASK) & (columns.producer_id < 0)
        rows = np.concatenate([rows, np.flatnonzero(others)])
    rows.sort()
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The facts of a whole log that the rules over transactions need besides its steps.

    Attributes:
        log: the log.
        segments: the file name of each of its splits.
        start: the first offset; None for a log without batches.
        begins_ms: base timestamp of the first batch, in milliseconds since the epoch.
        begins_epoch: leader epoch of the first batch; -1 if it is not known.
        end: one past the last offset.
        holes: how many holes it has.
        first_hole: the first missing offset of the first of them; None without one.
        hole_starts: the first missing offset of some of them, ascending: of all that :attr:`Summary.hole_starts` has,
            and of those between two chunks.
        stamped_ms: the last timestamp of a broker, in milliseconds since the epoch; -1 for none.
        marked_ms: when the last marker below the high watermark was appended; -1 for none.
        first_marker_ms: when the first marker was appended; -1 for none.
        chunks: by split and first byte, how many holes come before a chunk, and when the next marker after it was
            appended.
        is_ordered: whether no offset goes backwards. Otherwise the steps of chunks cannot be combined.
        damaged: as :attr:`kafka_eos_checks.audit.rules.transactions.partitions.PartitionTransactions.damaged`.
        damaged_end: as :attr:`kafka_eos_checks.audit.rules.transactions.partitions.PartitionTransactions.damaged_end`.
        topic_id: the id of the topic; None if the files do not tell.
    """

    log: PartitionLog
    segments: tuple[str, ...] = ()
    start: int | None = None
    begins_ms: int = 0
    begins_epoch: int = -1
    end: int = 0
    holes: int = 0
    first_hole: int | None = None
    hole_starts: tuple[int, ...] = ()
    stamped_ms: int = -1
    marked_ms: int = -1
    first_marker_ms: int = -1
    chunks: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    is_ordered: bool = True
    damaged: bool = False
    damaged_end: bool = False
    topic_id: str | None = None

    def stamped_before(self, offset: int) -> float:  # noqa: ARG002 - that of the high watermark, which the scan had
        """See :class:`kafka_eos_checks.audit.moments.Dated`; taken from the log's markers."""
        return self.marked_ms if self.marked_ms != NO_TIME else -np.inf


class PartitionFold:
    """Folds the facts of a log's chunks, in order, into those of the whole log.

    Args:
        log: the log.
        segments: the file name of each of its splits.

    Attributes:
        end: one past the highest offset so far; None before the first chunk.
    """

    def __init__(self, log: PartitionLog, segments: Sequence[str]) -> None:
        self.end: int | None = None
        self._partition = Partition(log=log, segments=tuple(segments))
        self._chunks: list[tuple[tuple[int, int], int, int]] = []
        self._hole_starts: list[int] = []

    def add(
        self,
        place: tuple[int, int],
        told: Transactional,
        offsets: tuple[int, int],
        *,
        holes: int,
        before: int,
        disordered: bool,
        first_hole: int | None = None,
        hole_starts: Sequence[int] = (),
    ) -> None:
        """Fold one more chunk; it has at least one batch.

        Args:
            place: number of its split, and its first byte.
            told: its times.
            offsets: its first offset, and one past its highest offset.
            holes: the number of holes of the log up to the end of the chunk.
            before: the number of holes that the chunk's steps do not count yet.
            disordered: whether offsets go backwards inside of the chunk.
            first_hole: the first missing offset of the first hole inside of the chunk; None without one.
            hole_starts: the first missing offsets of holes inside of the chunk, see :attr:`Partition.hole_starts`.
        """
        known = self._partition
        first, end = offsets
        if self.end is not None and first > self.end:
            self._hole_starts.append(self.end)
            first_hole = self.end
        self._hole_starts += hole_starts
        backwards = disordered or (self.end is not None and first < self.end)
        self._partition = replace(
            known,
            start=first if self.end is None else known.start,
            begins_ms=told.begins_ms if self.end is None else known.begins_ms,
            begins_epoch=told.begins_epoch if self.end is None else known.begins_epoch,
            end=end if self.end is None else max(self.end, end),
            holes=holes,
            first_hole=first_hole if known.first_hole is None else known.first_hole,
            stamped_ms=max(known.stamped_ms, told.stamped_ms),
            marked_ms=known.marked_ms if told.marked_ms == NO_TIME else told.marked_ms,
            is_ordered=known.is_ordered and not backwards,
        )
        self.end = self._partition.end
        self._chunks.append((place, before, told.first_marker_ms))

    def partition(self) -> Partition:
        """The log as a whole, after its last chunk."""
        next_ms, chunks = NO_TIME, {}
        for place, before, first_marker_ms in reversed(self._chunks):
            chunks[place] = before, next_ms
            next_ms = next_ms if first_marker_ms == NO_TIME else first_marker_ms
        starts = tuple(self._hole_starts)
        return replace(self._partition, chunks=chunks, first_marker_ms=next_ms, hole_starts=starts)


class Part(NamedTuple):
    """Some of the steps of a chunk: number of its log, split and first byte of the chunk, the steps."""

    log: int
    split: int
    start: int
    steps: Steps


class Parts(NamedTuple):
    """Parts of several chunks as two arrays, which take less time than a row for each.

    Attributes:
        chunks: shape (c, 4): of each part the number of its log, its split, its first byte and its number of steps.
        steps: their steps, one part after the other.
    """

    chunks: Ints
    steps: Steps

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Parts":
        """Some parts as arrays."""
        chunks = np.array([(*part[:3], len(part.steps)) for part in parts], np.int64).reshape(-1, 4)
        return cls(chunks, joined_steps(parts))

    def each(self) -> Iterator[Part]:
        """The parts."""
        ends = np.cumsum(self.chunks[:, 3]).tolist()
        for (log, split, start, size), end in zip(self.chunks.tolist(), ends, strict=True):
            yield Part(log, split, start, self.steps[end - size : end])


NO_PARTS = Parts(np.empty((0, 4), np.int64), NO_STEPS)


def joined_steps(parts: Sequence[Part]) -> Steps:
    """The steps of some chunks one after the other."""
    return np.concatenate([part.steps.view(_WHOLE) for part in parts]).view(STEP) if parts else NO_STEPS.copy()


def scattered(parts: Sequence[Part], buckets: int) -> Iterator[tuple[int, Parts]]:
    """The steps of some chunks by bucket; a producer id is in one bucket."""
    if not parts:
        return
    steps = joined_steps(parts)
    chunks = np.array([(*part[:3], len(part.steps)) for part in parts], np.int64)
    bucket = steps["producer_id"] % buckets
    order = stable_order(bucket)
    steps, bucket = steps.take(order), bucket[order]
    chunk = np.repeat(np.arange(len(parts)), chunks[:, 3])[order]
    cuts = np.searchsorted(bucket, np.arange(buckets + 1)).tolist()
    for number, (begin, end) in enumerate(pairwise(cuts)):
        if begin < end:
            sizes = np.bincount(chunk[begin:end], minlength=len(parts))
            own = np.column_stack((chunks[:, :3], sizes))[sizes > 0]
            yield number, Parts(own, steps[begin:end])


def by_bucket(rows: NDArray[np.void], buckets: int) -> list[tuple[int, NDArray[np.void]]]:
    """Some rows with a ``producer_id``, by bucket, in order in each."""
    if buckets == 1 or not len(rows):
        return [(0, rows)] if len(rows) else []
    return [(bucket, rows[own]) for bucket, own in places_of_each(rows["producer_id"] % buckets)]


@dataclass(frozen=True, slots=True)
class Paired:
    """Steps of some producer ids, by log, producer id and order in the log; n steps, m of them markers.

    Attributes:
        steps: shape (n,), with the holes of the whole log.
        log: number of each one's log, shape (n,).
        split: number of each one's split in its log, shape (n,).
        markers: which steps are markers, shape (m,).
        ends: the first step of the data that each marker ends, or :data:`NOTHING`, shape (m,).
        begun: of each step with data the first one since the producer's last marker, shape (n,). After a hole, or
            data of a later epoch, the data that are open have another first step.
        open: steps of the data that no marker ends.
        merged: steps of data that were still open when data of a later epoch came, each with the step of these, and
            with that of the marker that ended both, or :data:`NOTHING`.
    """

    steps: Steps
    log: Ints
    split: Ints
    markers: Ints
    ends: Ints
    begun: Ints
    open: list[int]
    merged: list[tuple[int, int, int]]

    def of_logs(self, numbers: Collection[int]) -> "Paired":
        """The steps of some logs."""
        kept = np.isin(self.log, list(numbers))
        if kept.all():
            return self
        place = np.cumsum(kept) - 1
        own = kept[self.markers]
        return Paired(
            self.steps[kept],
            self.log[kept],
            self.split[kept],
            place[self.markers[own]],
            np.where(self.ends[own] == NOTHING, NOTHING, place[self.ends[own]]),
            place[self.begun[kept]],
            [int(place[row]) for row in self.open if kept[row]],
            [
                (int(place[row]), int(place[later]), NOTHING if end == NOTHING else int(place[end]))
                for row, later, end in self.merged
                if kept[row]
            ],
        )


def paired(parts: Iterable[Part], partitions: Sequence[Partition]) -> Paired:
    """Pair the markers and data of each log and producer id.

    Args:
        parts: all parts of each producer id and log, in any order.
        partitions: the partitions of all logs, by number.
    """
    ordered = sorted(parts, key=lambda part: part[:3])
    sizes = [len(part.steps) for part in ordered]

    def repeated(numbers: Iterable[int]) -> Ints:
        return np.repeat(np.fromiter(numbers, np.int64, len(sizes)), sizes)

    steps = joined_steps(ordered)
    log, split = repeated(part.log for part in ordered), repeated(part.split for part in ordered)
    told = [_around(part, partitions[part.log]) for part in ordered]
    steps["holes"] += repeated(holes for holes, _ in told)
    steps["next_ms"] = np.where(steps["next_ms"] == NO_TIME, repeated(ms for _, ms in told), steps["next_ms"])

    pids = np.ascontiguousarray(steps["producer_id"])
    cuts = pairwise(np.searchsorted(log, np.arange(len(partitions) + 1)).tolist())
    ranges = (low + stable_order(pids[low:high]) for low, high in cuts if low < high)
    order = np.concatenate([np.empty(0, np.int64), *ranges])
    is_data = ~steps["is_marker"][order]
    idle = np.zeros(len(order), np.bool_)  # no steps after all: chunks may begin inside transactions
    idle[1:] = is_data[1:] & is_data[:-1]
    for column in (log, pids, steps["producer_epoch"], steps["holes"]):
        idle[1:] &= np.diff(column[order]) == 0
    order, is_data = order[~idle], is_data[~idle]
    log, pids = log[order], pids[order]
    same = (log[1:] == log[:-1]) & (pids[1:] == pids[:-1])
    return _paired(steps.take(order), log, split[order], same, is_data)


def _around(part: Part, partition: Partition) -> tuple[int, int]:
    """The number of holes before a chunk, and when the next marker after it was appended."""
    return partition.chunks.get((part.split, part.start), (0, NO_TIME))


def _paired(steps: Steps, log: Ints, split: Ints, same: NDArray[np.bool_], is_data: NDArray[np.bool_]) -> Paired:
    """Pair steps in order; ``same``: whether a step has the log and the producer id of the step before it."""
    begins = is_data.copy()  # a run: data with no marker in between
    begins[1:] &= ~(same & is_data[:-1])
    first = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1  # of each step with data
    lengths = np.bincount(run[is_data], minlength=len(first))
    opened, merged = first.copy(), []
    for number in np.flatnonzero(lengths > 1).tolist():
        opened[number], own = _open_after(steps, int(first[number]), int(lengths[number]))
        after = int(first[number] + lengths[number])  # a marker, if it is of the same log and producer id
        merged += [(*each, after if after < len(steps) and same[after - 1] else NOTHING) for each in own]
    markers = np.flatnonzero(~is_data)
    ended = np.zeros(len(steps), np.bool_)
    ended[1:] = same & is_data[:-1]
    has_data = ended[markers]
    ends = np.full(len(markers), NOTHING, np.int64)
    closed = run[markers[has_data] - 1]
    ends[has_data] = opened[closed]
    left = np.ones(len(first), np.bool_)
    left[closed] = False
    begun = first[np.maximum(run, 0)] if len(first) else np.zeros(len(steps), np.int64)
    return Paired(steps, log, split, markers, ends, begun, opened[left].tolist(), merged)


def _open_after(steps: Steps, first: int, count: int) -> tuple[int, list[tuple[int, int]]]:
    """The open and the merged data after batches with no marker in between, as in ``PartitionTransactions.data``."""
    opened, merged = first, []
    own = steps[first : first + count]
    rows = zip(own["holes"].tolist(), own["producer_epoch"].tolist(), strict=True)
    known = (-1, -1)
    for row, (holes, epoch) in enumerate(rows, first):
        if row == first or known[0] < holes:
            opened, known = row, (holes, epoch)
        elif known[1] < epoch:
            merged.append((opened, row))
            opened, known = row, (holes, epoch)
    return opened, merged
