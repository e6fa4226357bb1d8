"""The transactions of one log: data, the markers that end them, and what is still open, by producer id."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.log_directory import topic_id
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import AbortedTransaction, CorruptRegion, RegionKind
from kafka_eos_checks.audit import places
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, Subject
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    is_set,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, Marks
from kafka_eos_checks.audit.segments.reading import read_marked
from kafka_eos_checks.audit.segments.splits import PartitionLog

# The fields of a batch header that the rules need.
READ = (
    "base_offset",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "attributes",
    "producer_id",
    "producer_epoch",
    "leader_epoch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """Data of a producer id that no marker has ended yet.

    Attributes:
        file: segment of the first batch.
        position: the position of the first batch, in bytes.
        offset: the offset of the first batch.
        producer_id: the producer id of the transaction.
        epoch: the epoch of the first batch.
        holes: how many holes the log had before the first batch.
        timestamp: the highest timestamp of the first batch, in milliseconds since the epoch.
        stamped: whether the timestamp is a broker's and not a client's.
        followed_ms: when the next marker of the log was appended; -1 for none; None: see the log's markers.
        begun: the offset of the first data since the producer's last marker; None: the same as ``offset``. A leader
            takes these for one transaction, even if their epochs differ.
    """

    file: str
    position: int
    offset: int
    producer_id: int
    epoch: int
    holes: int
    timestamp: int = -1
    stamped: bool = False
    followed_ms: int | None = None
    begun: int | None = None

    @property
    def first_offset(self) -> int:
        """The first offset of the transaction as its leader has it."""
        return self.offset if self.begun is None else self.begun


class PlainData(NamedTuple):
    """The data batches of a producer id without the transactional bit, on a partition.

    Attributes:
        file: segment of the first of them, relative to the folder of its partition.
        position: position of its first byte there.
        offset: its base offset.
        producer_id: its producer id.
        epoch: its producer epoch.
        batches: how many there are.
    """

    file: str
    position: int
    offset: int
    producer_id: int
    epoch: int
    batches: int


class Replaced(NamedTuple):
    """Data that were still open when data of a later epoch came.

    Attributes:
        data: the data.
        epoch: the later epoch.
        ended_at: the offset of the marker that ended both; -1 if they are still open.
        decision: the decision of that marker; None if there is none, or if the cleaner has emptied it.
    """

    data: OpenTransaction
    epoch: int
    ended_at: int = -1
    decision: ControlType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A marker on a partition, and what it ends.

    Attributes:
        file: its segment.
        position: its position in the segment, in bytes.
        offset: its own offset.
        producer_id: the producer id whose transaction it ends.
        epoch: the marker's epoch.
        decision: COMMIT or ABORT; None for a marker that the cleaner has emptied.
        coordinator_epoch: the epoch of the coordinator that sent the marker; None as above.
        ends: the data that it ends; None without any.
        last_stable_offset: the last stable offset of the partition, once it is appended.
        stamped_ms: when its leader appended it, in milliseconds since the epoch.
        holes: how many holes the log had before it.
    """

    file: str
    position: int
    offset: int
    producer_id: int
    epoch: int
    decision: ControlType | None
    coordinator_epoch: int | None
    ends: OpenTransaction | None
    last_stable_offset: int
    stamped_ms: int = -1
    holes: int = 0

    def contradicts(self, decision: ControlType) -> bool:
        """Whether the marker has the opposite decision."""
        return self.decision is not None and self.decision is not decision


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one log.

    Attributes:
        log: the log.
        markers: the markers, in log order.
        open: data that no marker has ended, by producer id.
        merged: data that were still open when data of a later epoch came.
        plain: data without the transactional bit, by producer id.
        start: the first offset; None for a log without batches.
        begins_ms: timestamp of the first batch, in milliseconds since the epoch.
        begins_epoch: leader epoch of the first batch; -1 if it is not known.
        end: one past the last offset.
        holes: how many holes the log has.
        hole_starts: the first missing offset of each of them.
        batches: transactional batches, markers included.
        stamped_ms: the last timestamp of a broker, in milliseconds since the epoch; -1 for none.
        first_marker_ms: when the first marker was appended, in milliseconds since the epoch; -1 for none.
        damaged: whether bytes that are no unfinished tail may have been batches, or are messages of an old format.
        damaged_end: whether bytes that are no batch, and no unfinished tail, follow the last batch.
        topic_id: the id of the topic; None if the files do not tell.
    """

    log: PartitionLog
    markers: list[Marker] = field(default_factory=list)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    merged: list[Replaced] = field(default_factory=list)
    plain: dict[int, PlainData] = field(default_factory=dict)
    start: int | None = None
    begins_ms: int = 0
    begins_epoch: int = -1
    end: int = 0
    holes: int = 0
    hole_starts: list[int] = field(default_factory=list)
    batches: int = 0
    stamped_ms: int = -1
    first_marker_ms: int = -1
    damaged: bool = False
    damaged_end: bool = False
    topic_id: str | None = None

    def stamped_before(self, offset: int) -> float:
        """See :class:`kafka_eos_checks.audit.moments.Dated`; taken from the log's markers."""
        below = (marker.stamped_ms for marker in reversed(self.markers) if marker.offset < offset)
        return next(below, -inf)

    def appended_by(self, batch: OpenTransaction) -> float:
        """A moment by which a batch was appended, by a broker's clock, in ms since the epoch; ``inf`` for none."""
        if batch.stamped:
            return batch.timestamp
        if batch.followed_ms is not None:
            return inf if batch.followed_ms < 0 else batch.followed_ms
        place = batch.file, batch.position
        number = bisect_left(self.markers, place, key=lambda marker: (marker.file, marker.position))
        return self.markers[number].stamped_ms if number < len(self.markers) else inf

    def aborts_in(self, segment: str) -> Iterator[AbortedTransaction]:
        """The ABORT markers that end data, in the segment with this base offset in its name, in log order."""
        for marker in self.markers:
            if marker.decision is not ControlType.ABORT or marker.ends is None:
                continue
            if marker.file.partition(".")[0] == segment:
                yield AbortedTransaction(
                    producer_id=marker.producer_id,
                    first_offset=marker.ends.first_offset,
                    last_offset=marker.offset,
                    last_stable_offset=marker.last_stable_offset,
                )

    @property
    def first_hole(self) -> int | None:
        """The first missing offset of the first hole; None without one."""
        return self.hole_starts[0] if self.hole_starts else None

    def index_of(self, segment: str) -> None:
        """Nothing; see :meth:`kafka_eos_checks.audit.rules.beside.Aborts.index_of`."""

    def coordinator_epochs_at(self, offset: int, after: int) -> dict[int, int | None]:
        """By producer id, the coordinator epoch of the last marker between two offsets; None if the marker has none."""
        return {each.producer_id: each.coordinator_epoch for each in self.markers if after < each.offset < offset}

    def open_at(self, offset: int) -> dict[int, int]:
        """The transactions that were open when the log ended at an offset: producer id -> first offset."""
        ended = (marker.ends for marker in self.markers if marker.ends is not None and marker.offset >= offset)
        some = (*self.open.values(), *ended)
        return {data.producer_id: data.first_offset for data in some if data.first_offset < offset}

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.log.topic, self.log.partition

    @property
    def producer_ids(self) -> set[int]:
        """The producer ids of its batches."""
        return {*self.open, *self.plain, *(marker.producer_id for marker in self.markers)}

    def data(self, batch: OpenTransaction) -> None:
        """Add one more transactional batch with data."""
        opened = self.open.get(batch.producer_id)
        if opened is None or opened.holes < batch.holes:  # a hole in between may have had its marker
            self.open[batch.producer_id] = batch if opened is None else replace(batch, begun=opened.first_offset)
        elif opened.epoch < batch.epoch:
            self.merged.append(Replaced(opened, batch.epoch))
            self.open[batch.producer_id] = replace(batch, begun=opened.first_offset)

    def end_merged(self) -> None:
        """Note which markers ended the data that were still open when data of a later epoch came."""
        markers: dict[int, list[Marker]] = {replaced.data.producer_id: [] for replaced in self.merged}
        for marker in self.markers:
            if marker.producer_id in markers:
                markers[marker.producer_id].append(marker)
        for number, each in enumerate(self.merged):
            own, place = markers[each.data.producer_id], (each.data.file, each.data.position)
            at = bisect_left(own, place, key=lambda marker: (marker.file, marker.position))
            if at < len(own):
                self.merged[number] = each._replace(ended_at=own[at].offset, decision=own[at].decision)

    def subject(self, at: Marker | OpenTransaction) -> Subject:
        """A marker, or the first batch of a transaction, as something that could not be judged."""
        return Subject(self.log.topic, self.log.partition, at.offset, at.producer_id)

    def finding(
        self, rule: str, at: Marker | OpenTransaction | PlainData, evidence: str, kind: Kind = Kind.VIOLATION
    ) -> Finding:
        """A finding at a marker, or at the first batch of a transaction or of other data."""
        return Finding(
            rule=rule,
            topic=self.log.topic,
            partition=self.log.partition,
            broker=self.log.broker,
            file=at.file,
            position=at.position,
            offset=at.offset,
            producer_id=at.producer_id,
            producer_epoch=at.epoch,
            base_sequence=-1 if isinstance(at, Marker) else None,
            evidence=evidence,
            kind=kind.value,
        )


def hides_batches(region: CorruptRegion) -> bool:
    """Whether a region without batches is more than the unfinished tail that a crash or a preallocated file leaves."""
    return region.kind not in {RegionKind.TORN_TAIL, RegionKind.ZEROES}


def has_damaged_end(headers: Headers, before: bool) -> bool:
    """Whether bytes that may have been batches with producers follow the last batch.

    Args:
        headers: batches, and the damage among them.
        before: whether such bytes follow the last batch before these.
    """
    last = int(headers.positions[-1]) if len(headers) else -1
    corrupt = [region.position for region in headers.damage if region.kind is RegionKind.CORRUPT]
    return max(corrupt, default=-1) > last or (before and not len(headers))


def topic_of(log: PartitionLog) -> str | None:
    """The id of a log's topic; None if its folder does not tell."""
    return topic_id(places.place(log.folder))


def read_transactions(log: PartitionLog, check_crc: bool = True) -> PartitionTransactions:
    """Fold the transactional batches of one log."""
    result = PartitionTransactions(log, topic_id=topic_of(log))
    for name in log.segments:
        for headers, marks in read_marked(log.file(name), READ, end=log.end_of(name), check_crc=check_crc):
            result.damaged |= any(map(hides_batches, headers.damage))
            result.damaged_end = has_damaged_end(headers, result.damaged_end)
            if len(headers):
                _take(result, name, headers, marks)
    result.end_merged()
    return result


def _take(result: PartitionTransactions, name: str, headers: Headers, marks: Marks) -> None:
    transactional, control = is_set(headers, TRANSACTIONAL_MASK), is_set(headers, CONTROL_MASK)
    base = headers.column("base_offset")
    ends = base + headers.column("last_offset_delta") + 1
    if result.start is None:
        result.start = result.end = int(base[0])
        result.begins_ms = int(headers.column("base_timestamp")[0])
        result.begins_epoch = int(headers.column("leader_epoch")[0])
    highest = np.maximum.accumulate(np.concatenate(([result.end], ends)))
    jumps = base > highest[:-1]
    holes = result.holes + np.cumsum(jumps)
    result.hole_starts += highest[:-1][jumps].tolist()
    result.end, result.holes = int(highest[-1]), int(holes[-1])
    stamped = control | is_set(headers, TIMESTAMP_TYPE_MASK) | (result.log.topic in COORDINATOR_TOPICS)
    stamps = headers.column("max_timestamp")
    result.stamped_ms = max(result.stamped_ms, int(stamps[stamped].max(initial=-1)))
    _take_plain(result.plain, name, headers, ~(transactional | control))
    chosen = np.flatnonzero(transactional)
    columns = (
        chosen,
        headers.positions[chosen],
        base[chosen],
        headers.column("producer_id")[chosen],
        headers.column("producer_epoch")[chosen],
        holes[chosen],
        control[chosen],
        stamps[chosen],
        stamped[chosen],
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    told = zip(*(column.tolist() for column in marks), strict=True)
    said = {row: (decision, coordinator_epoch) for row, decision, coordinator_epoch in told}
    for number, position, offset, pid, epoch, before, is_marker, timestamp, is_stamped in rows:
        result.batches += 1
        if not is_marker:
            batch = OpenTransaction(
                file=name,
                position=position,
                offset=offset,
                producer_id=pid,
                epoch=epoch,
                holes=before,
                timestamp=timestamp,
                stamped=is_stamped,
            )
            result.data(batch)
            continue
        decision, coordinator_epoch = said.get(number, (NO_DECISION, NO_EPOCH))
        ended = result.open.pop(pid, None)
        result.first_marker_ms = result.first_marker_ms if result.markers else timestamp
        result.markers.append(
            Marker(
                file=name,
                position=position,
                offset=offset,
                producer_id=pid,
                epoch=epoch,
                decision=None if decision == NO_DECISION else ControlType(decision),
                coordinator_epoch=None if coordinator_epoch == NO_EPOCH else coordinator_epoch,
                ends=ended,
                last_stable_offset=min((data.first_offset for data in result.open.values()), default=offset + 1),
                stamped_ms=timestamp,
                holes=before,
            )
        )


def _take_plain(result: dict[int, PlainData], name: str, headers: Headers, which: NDArray[np.bool_]) -> None:
    """Add the data without the transactional bit among some batches."""
    own = np.flatnonzero(which & (headers.column("producer_id") >= 0))
    fields = (headers.column(field)[own].tolist() for field in ("base_offset", "producer_id", "producer_epoch"))
    for position, offset, pid, epoch in zip(headers.positions[own].tolist(), *fields, strict=True):
        known = result.get(pid) or PlainData(name, position, offset, pid, epoch, 0)
        result[pid] = known._replace(batches=known.batches + 1)
