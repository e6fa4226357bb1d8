"""The rules over indexes and snapshots, in parts that do not need a whole log.

An index is compared by *stretch*: some consecutive segments of a log. The last stable offset after a marker follows
from the transactions that end later in the stretch, and from the first offset of those that are open at its end
(:func:`held_in`). Both come from the tasks that pair markers and data by producer id.

A snapshot is compared by producer id. From each split, and each interval between two snapshots in it, only the last
batch of a producer is needed, and the steps that may be the last ones of an interval (:class:`Tail`).

The readable form is :mod:`kafka_eos_checks.audit.rules.beside`, whose words the findings have.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import AbortedTransaction, MalformedFile, ProducerSnapshotEntry, producer_snapshot_bytes
from kafka_eos_checks.audit.kernels.logs.transactions import (
    NO_PARTS,
    NOTHING,
    Paired,
    Part,
    Partition,
    Parts,
    Steps,
    by_bucket,
    joined_steps,
    paired,
    scattered,
)
from kafka_eos_checks.audit.rules.beside import (
    INDEXED,
    LAST,
    NO_HOLE,
    SNAPSHOT,
    Beside,
    Last,
    compare_entry,
    hole_below,
    is_judged,
)
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.marks import NO_EPOCH
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog, offset_in

# --- indexes ----------------------------------------------------------------------------------------------------------

HELD = np.dtype(
    [
        ("producer_id", np.int64),
        ("first_offset", np.int64),
        ("last_offset", np.int64),  # of the marker
        ("split", np.int32),  # of the marker
        ("is_abort", np.bool_),
    ]
)
NEVER = np.iinfo(np.int64).max


class Held(NamedTuple):
    """Some transactions of a stretch.

    Attributes:
        ended: those that end in it, dtype :data:`HELD`.
        first_open: the lowest first offset of those that are open at its end; :data:`NEVER` without one.
    """

    ended: NDArray[np.void] = np.empty(0, HELD)
    first_open: int = NEVER


def held_in(steps: Paired, log: int, stretch_of: Ints) -> Iterator[tuple[int, Held]]:
    """The transactions of some producer ids in each stretch of a log.

    Args:
        steps: the steps of these producer ids.
        log: the number of the log.
        stretch_of: the number of the stretch of each split, ascending.
    """
    low, high = np.searchsorted(steps.log, (log, log + 1))
    own = (steps.markers >= low) & (steps.markers < high) & (steps.ends != NOTHING)
    first, last = steps.begun[steps.ends[own]], steps.markers[own]
    ended = np.zeros(len(first), HELD)
    ended["producer_id"] = steps.steps["producer_id"][first]
    ended["first_offset"], ended["last_offset"] = steps.steps["offset"][first], steps.steps["offset"][last]
    ended["split"] = steps.split[last]
    ended["is_abort"] = steps.steps["decision"][last] == ControlType.ABORT
    opened = steps.begun[np.array([row for row in steps.open if low <= row < high], np.int64)]
    begun = stretch_of[steps.split[np.concatenate((first, opened))]]
    until = np.concatenate((stretch_of[ended["split"]], np.full(len(opened), stretch_of[-1] + 1)))
    offsets = np.concatenate((ended["first_offset"], steps.steps["offset"][opened]))
    spans = until - begun
    within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    first_open = np.full(int(stretch_of[-1] - stretch_of[0]) + 1, NEVER)
    np.minimum.at(first_open, np.repeat(begun, spans) + within - stretch_of[0], np.repeat(offsets, spans))
    order = stable_order(stretch_of[ended["split"]])
    ended = ended[order]
    cuts = np.searchsorted(stretch_of[ended["split"]], np.arange(stretch_of[0], stretch_of[-1] + 2)).tolist()
    for place, least in enumerate(first_open.tolist()):
        if cuts[place] < cuts[place + 1] or least != NEVER:
            yield int(stretch_of[0]) + place, Held(ended[cuts[place] : cuts[place + 1]], least)


class StretchAborts:
    """The aborted transactions of a stretch, as :class:`kafka_eos_checks.audit.rules.beside.Aborts`.

    Args:
        partition: the facts of the log.
        held: the transactions of the stretch, in any order.
    """

    def __init__(self, partition: Partition, held: Iterable[Held]) -> None:
        parts = list(held)
        ended = np.concatenate([Held().ended, *(part.ended for part in parts)])
        ended = ended[stable_order(ended["last_offset"])]
        first_open = min((part.first_open for part in parts), default=NEVER)
        later = np.minimum.accumulate(np.append(ended["first_offset"], first_open)[::-1])[::-1][1:]
        entries = np.zeros(len(ended), INDEXED)
        for name in ("producer_id", "first_offset", "last_offset"):
            entries[name] = ended[name]
        entries["last_stable_offset"] = np.minimum(later, ended["last_offset"] + 1)
        self._partition = partition
        self._entries, self._split = entries[ended["is_abort"]], ended["split"][ended["is_abort"]]

    @property
    def log(self) -> PartitionLog:
        """The log."""
        return self._partition.log

    @property
    def start(self) -> int | None:
        """The first offset of the log."""
        return self._partition.start

    @property
    def end(self) -> int:
        """The offset after its last one."""
        return self._partition.end

    @property
    def first_hole(self) -> int | None:
        """The first missing offset of its first hole."""
        return self._partition.first_hole

    def aborts_in(self, segment: str) -> list[AbortedTransaction]:
        """As :meth:`kafka_eos_checks.audit.rules.beside.Aborts.aborts_in`."""
        columns = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        rows = self.index_of(segment)[list(columns)].tolist()
        return [AbortedTransaction(**dict(zip(columns, row, strict=True))) for row in rows]

    def index_of(self, segment: str) -> NDArray[np.void]:
        """As :meth:`kafka_eos_checks.audit.rules.beside.Aborts.index_of`."""
        names = [name.partition(".")[0] == segment for name in self._partition.segments]
        entries: NDArray[np.void] = self._entries[np.array(names, np.bool_)[self._split]]
        return entries


# --- snapshots --------------------------------------------------------------------------------------------------------

STORED = np.dtype(
    [
        *(("producer_id", ">i8"), ("producer_epoch", ">i2"), ("last_sequence", ">i4"), ("last_offset", ">i8")),
        *(("offset_delta", ">i4"), ("timestamp", ">i8"), ("coordinator_epoch", ">i4")),
        ("current_txn_first_offset", ">i8"),  # -1 for none
    ]
)
"""An entry of a ``.snapshot``. Kafka: ProducerStateManager."""


class Stored(NamedTuple):
    """Some entries of a snapshot.

    Attributes:
        log: the number of the log.
        file: the name of the snapshot.
        entries: dtype :data:`STORED`.
        is_head: whether this part stands for the snapshot itself, which is counted once.
        error: position and reason of the first error, if the file cannot be read.
    """

    log: int
    file: str
    entries: NDArray[np.void]
    is_head: bool = False
    error: tuple[int, str] | None = None


def stored_in(log: PartitionLog, number: int, file: str, buckets: int) -> Iterator[tuple[int, Stored]]:
    """The entries of a snapshot by bucket of producer ids."""
    head = Stored(number, file, np.empty(0, STORED), is_head=True)
    try:
        entries = np.frombuffer(producer_snapshot_bytes(log.file(file)), STORED)
    except MalformedFile as error:
        yield 0, head._replace(error=(error.position, error.reason))
        return
    pieces = by_bucket(entries, buckets) or [(0, entries)]
    for place, (bucket, piece) in enumerate(pieces):
        yield bucket, head._replace(entries=piece, is_head=place == 0)


class Tail(NamedTuple):
    """The batches of a split that may be the last ones of a producer before a snapshot.

    Attributes:
        log: the number of the log.
        split: the number of the split.
        parts: the first steps of each producer in each interval, up to its first marker, and the last ones, from its
            last marker on.
        last: the last batches, see :func:`kafka_eos_checks.audit.rules.beside.last_batches`.
    """

    log: int
    split: int
    parts: Parts
    last: Last


def tails(chunks: Sequence[tuple[Part, Last]], offsets: Sequence[int], buckets: int) -> Iterator[tuple[int, Tail]]:
    """The tail of a split, by bucket of producer ids.

    Args:
        chunks: the steps and the last batches of each chunk of the split, in order; at least one.
        offsets: the offsets of the snapshots, ascending.
        buckets: the number of buckets.
    """
    parts = [part for part, _ in chunks]
    rows = _outer(joined_steps(parts), offsets)
    ends = np.cumsum([len(part.steps) for part in parts])
    cuts = [0, *np.searchsorted(rows, ends).tolist()]
    outer = [
        part._replace(steps=part.steps[rows[low:high] - (end - len(part.steps))])
        for part, end, (low, high) in zip(parts, ends.tolist(), pairwise(cuts), strict=True)
    ]
    steps, lasts = dict(scattered(outer, buckets)), dict(by_bucket(_latest([last for _, last in chunks]), buckets))
    log, split = parts[0][:2]
    for bucket in sorted({*steps, *lasts}):
        yield bucket, Tail(log, split, steps.get(bucket, NO_PARTS), lasts.get(bucket, np.zeros(0, LAST)))


def _latest(parts: Sequence[Last]) -> Last:
    """The last of some rows, in order, of each producer, interval and kind."""
    rows = np.concatenate(parts)
    if len(parts) == 1:
        return rows
    names = ("is_data", "interval", "producer_id")
    rows = rows[np.lexsort([rows[name] for name in names])]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = np.logical_or.reduce([rows[name][1:] != rows[name][:-1] for name in names])
    latest: Last = rows[is_last]
    return latest


def _outer(steps: Steps, offsets: Sequence[int]) -> Ints:
    """The rows of all steps, ascending, except of those between two markers of one producer and interval."""
    interval, pids = _intervals(steps["offset"], offsets), np.ascontiguousarray(steps["producer_id"])
    cuts = [0, *(np.flatnonzero(np.diff(interval)) + 1).tolist(), len(steps)]  # steps are in order of offset
    rows = np.concatenate([low + stable_order(pids[low:high]) for low, high in pairwise(cuts)])
    pids, intervals, is_marker = pids[rows], interval[rows], steps["is_marker"][rows]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (pids[1:] != pids[:-1]) | (intervals[1:] != intervals[:-1])
    group = np.cumsum(begins) - 1
    markers = np.concatenate(([0], np.cumsum(is_marker)))
    first = np.flatnonzero(begins)
    before = markers[:-1] - markers[first][group]
    total = markers[np.append(first[1:], len(rows))] - markers[first]
    kept = (before == 0) | (before + is_marker >= total[group])
    return np.sort(rows[kept])


def _intervals(offset: Ints, offsets: Sequence[int]) -> Ints:
    """How many snapshots are at or below each offset."""
    return np.searchsorted(np.array(offsets, np.int64), offset, side="right")


@dataclass(frozen=True, slots=True)
class _Last:
    """The last of some rows of each producer in each interval.

    Args:
        producer_id: of each row; ascending.
        interval: of each row; ascending for a producer.
    """

    producer_id: Ints
    interval: Ints
    ids: Ints = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", np.unique(self.producer_id))

    def up_to(self, producer_id: Ints, interval: Ints) -> Ints:
        """The last row of a producer up to an interval; -1 without one, shape (n,)."""
        if not len(self.ids):
            return np.full(len(producer_id), -1)
        bits = int(max(self.interval.max(), interval.max(initial=0))).bit_length()
        key = (np.searchsorted(self.ids, self.producer_id) << bits) + self.interval
        place = np.minimum(np.searchsorted(self.ids, producer_id), len(self.ids) - 1)
        found = np.searchsorted(key, (place << bits) + interval, side="right") - 1
        mine = (self.ids[place] == producer_id) & (found >= 0) & (self.producer_id[found] == producer_id)
        return np.where(mine, found, -1)


def judge_entries(
    partition: Partition,
    offsets: Sequence[int],
    own_tails: Iterable[Tail],
    stored: Iterable[Stored],
    result: Beside,
    *,
    one_moment: bool,
) -> None:
    """Compare the entries of some producer ids in the snapshots of a log.

    Args:
        partition: the facts of the log.
        offsets: the offsets of all its snapshots, ascending.
        own_tails: the tails of all its splits, of these producer ids.
        stored: the entries.
        result: takes the findings and figures.
        one_moment: whether log and snapshots are of one moment.
    """
    judged: list[Stored] = []
    for each in stored:
        counted = result if each.is_head else Beside()
        end = partition.log.end_after(partition.end)
        if not is_judged(partition.log, offset_in(each.file), end, counted, one_moment=one_moment):
            continue
        if each.error is not None:
            result.find(SNAPSHOT, partition.log, each.error[1], file=each.file, position=each.error[0])
        judged.append(each)
    found = np.concatenate([np.empty(0, STORED), *(each.entries for each in judged)]).astype(STORED.newbyteorder("="))
    files = np.repeat(np.arange(len(judged)), [len(each.entries) for each in judged])
    at = np.array([offset_in(each.file) for each in judged], np.int64)
    number = np.searchsorted(np.array(offsets, np.int64), at)[files]
    result.count(SNAPSHOT, "entries", len(found))
    hole = np.array([hole_below(each, partition.hole_starts, partition.end) for each in at.tolist()], np.int64)[files]
    expected, there = _expected(partition, offsets, own_tails, found["producer_id"], number, hole)
    wrong = ~there
    for name in STORED.names or ():
        differs = expected[name] != found[name]
        if name == "coordinator_epoch":  # the producer may have expired since its last marker
            differs &= found[name] != -1
        wrong |= differs
    gone = (~there | _gone(expected, found, partition.start or 0, hole)) & ((partition.start != 0) | (hole != NO_HOLE))
    result.count(SNAPSHOT, "gone", int(gone.sum()))
    wrong &= ~gone
    for row in np.flatnonzero(wrong).tolist():
        due = _entry(expected[row]) if there[row] else None
        compare_entry(partition.log, judged[files[row]].file, due, _entry(found[row]), result)


def _gone(expected: NDArray[np.void], found: NDArray[np.void], start: int, hole: Ints) -> NDArray[np.bool_]:
    """Whether each entry follows from batches that the log no longer has, as in the readable rule."""
    first, due = found["current_txn_first_offset"], expected["current_txn_first_offset"]
    gone = (found["last_offset"] > expected["last_offset"]) | ((first != -1) & (first < start))
    gone |= (expected["coordinator_epoch"] == -1) & (found["coordinator_epoch"] != -1)
    gone |= (hole != NO_HOLE) & (first != due) & ((first != -1) | (due < hole))
    older: NDArray[np.bool_] = gone | (found["last_offset"] < start)
    return older


def _entry(row: np.void) -> ProducerSnapshotEntry:
    values = dict(zip(STORED.names or (), row.tolist(), strict=True))
    first = values.pop("current_txn_first_offset")
    return ProducerSnapshotEntry(**values, current_txn_first_offset=None if first == -1 else first)


def _expected(
    partition: Partition,
    offsets: Sequence[int],
    own_tails: Iterable[Tail],
    producer_id: Ints,
    number: Ints,
    hole: Ints,
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """The entries of some producer ids that follow from the log at the snapshots of some numbers, and whether any does.

    A marker of a new epoch removes the batches of a producer. ``hole`` is as :func:`hole_below` tells it.
    """
    ordered = sorted(own_tails, key=lambda tail: tail.split)
    expected = np.zeros(len(producer_id), STORED.newbyteorder("="))
    expected["producer_id"] = producer_id
    rows = np.concatenate([np.zeros(0, LAST), *(tail.last for tail in ordered)])
    rows = rows[stable_order(rows["producer_id"])]
    of_any, of_data = rows[~rows["is_data"]], rows[rows["is_data"]]
    last, data = (_Last(own["producer_id"], own["interval"]).up_to(producer_id, number) for own in (of_any, of_data))
    there = last >= 0
    expected["producer_epoch"][there] = of_any["producer_epoch"][last[there]]
    expected["timestamp"][there] = of_any["max_timestamp"][last[there]]
    expected["last_sequence"] = expected["last_offset"] = -1
    has_data = data >= 0
    has_data[has_data] = of_data["producer_epoch"][data[has_data]] == expected["producer_epoch"][has_data]
    own = of_data[data[has_data]]
    expected["offset_delta"][has_data] = own["last_offset_delta"]
    expected["last_offset"][has_data] = own["base_offset"] + own["last_offset_delta"]
    expected["last_sequence"][has_data] = (own["base_sequence"] + own["last_offset_delta"]) & 0x7FFFFFFF

    parts = (part for tail in ordered for part in tail.parts.each())
    steps = paired((part._replace(log=0) for part in parts), [partition])
    interval, pids = _intervals(steps.steps["offset"], offsets), steps.steps["producer_id"]
    marker = _Last(pids[steps.markers], interval[steps.markers]).up_to(producer_id, number)
    expected["coordinator_epoch"] = -1
    marked = np.flatnonzero(marker >= 0)
    last_marker = steps.steps[steps.markers[marker[marked]]]
    is_known = (last_marker["coordinator_epoch"] != NO_EPOCH) & (last_marker["offset"] > hole[marked])
    expected["coordinator_epoch"][marked[is_known]] = last_marker["coordinator_epoch"][is_known]
    ends = np.full(len(steps.steps), len(offsets) + 1)  # the interval of the marker that ends the data of a step
    has_marker = steps.ends != NOTHING
    ended = steps.begun[steps.ends[has_marker]]
    ends[ended] = interval[steps.markers[has_marker]]
    opened = np.sort(np.concatenate((ended, steps.begun[np.array(steps.open, np.int64)])))
    run = _Last(pids[opened], interval[opened]).up_to(producer_id, number)
    expected["current_txn_first_offset"] = -1
    is_open = run >= 0
    is_open[is_open] = number[is_open] < ends[opened[run[is_open]]]
    expected["current_txn_first_offset"][is_open] = steps.steps["offset"][opened[run[is_open]]]
    return expected, there
