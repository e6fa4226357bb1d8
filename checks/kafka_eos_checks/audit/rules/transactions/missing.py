"""Markers that a partition has to have, because their transaction is complete, and does not."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from kafka_eos.formats.log_directory import PARTITION_METADATA
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.moments import GRACE_MS, SKEW_MS, Dated, Moments, in_words
from kafka_eos_checks.audit.quoting import unquoted
from kafka_eos_checks.audit.rules.coordinator import Transaction
from kafka_eos_checks.audit.rules.log import Subject
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators, why_incomplete
from kafka_eos_checks.audit.rules.transactions.judged import Judged, add_figure
from kafka_eos_checks.audit.rules.transactions.matching import Named
from kafka_eos_checks.audit.rules.transactions.names import (
    AS_BY_HAND,
    BY_ANOTHER,
    FIRST_LEADER,
    INCOMPLETE,
    MADE_AGAIN,
    OTHER_MOMENT,
    RECENT,
    TORN,
    UNKNOWN,
    WITHOUT_MARKER,
)
from kafka_eos_checks.audit.rules.transactions.partitions import PartitionTransactions
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.splits import PartitionLog, segment_with


class Log(Dated, Protocol):
    """The facts of a partition's log that tell which markers it must have: see :class:`PartitionTransactions`."""

    @property
    def start(self) -> int | None:
        """The first offset."""
        ...

    @property
    def begins_ms(self) -> int:
        """Timestamp of the first batch."""
        ...

    @property
    def begins_epoch(self) -> int:
        """Leader epoch of the first batch."""
        ...

    @property
    def holes(self) -> int:
        """How many holes the log has."""
        ...

    @property
    def first_marker_ms(self) -> int:
        """When the first marker was appended."""
        ...

    @property
    def damaged(self) -> bool:
        """Whether bytes may have been batches."""
        ...

    @property
    def topic_id(self) -> str | None:
        """The id of the topic."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """The completed transactions whose markers have a producer id and epoch on a partition: each has left one there.

    Attributes:
        producer_id: the producer id.
        epoch: the epoch of the markers.
        name: the last one.
        decision: its decision.
        decided_ms: when it was decided.
        completed_ms: when the last of them was completed.
        ordered: whether one of them is of a transaction version before 2, whose markers may have the epoch of the data.
        due: how many were certainly decided after the first marker of the log, or begun after its topic was there.
        due_later: how many of these were completed after the moment up to which the log is complete.
        near: how many were decided after it, but by clocks that may differ so much. They are due if the producer has
            a marker of an earlier epoch there.
        near_later: how many of these were completed after the moment up to which the log is complete.
        doubtful: how many may be older than the log.
    """

    producer_id: int
    epoch: int
    name: Named
    decision: ControlType
    decided_ms: int
    completed_ms: int
    ordered: bool
    due: int = 0
    due_later: int = 0
    near: int = 0
    near_later: int = 0
    doubtful: int = 0


class EndedOtherwise(NamedTuple):
    """Data that a marker with another epoch than the next one has ended, as no coordinator does in version 2.

    Attributes:
        offset: where the data begin.
        marker_at: the offset of the marker.
        marker_epoch: its epoch.
        decision: its decision; None if the cleaner has emptied it.
    """

    offset: int
    marker_at: int
    marker_epoch: int
    decision: ControlType | None

    def in_words(self, data_epoch: int) -> str:
        """The marker, what it ended, and who writes such a marker."""
        marker = "a marker" if self.decision is None else self.decision.name
        ended = f"{marker} at offset {self.marker_at} has ended its data from offset {self.offset} on"
        if self.marker_epoch == data_epoch:
            return f"{ended}; it has the epoch of the data, {data_epoch}, {AS_BY_HAND}"
        return f"{ended}; it has epoch {self.marker_epoch}, {BY_ANOTHER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """The markers of a producer id and epoch that a partition has.

    Attributes:
        markers: how many there are.
        follows: whether the producer has a marker of an earlier epoch.
        unended: epochs of its data that are open, or were when data of a later epoch came.
        otherwise: the last data of the epoch before that another marker has ended; None without any.
    """

    markers: int
    follows: bool
    unended: Collection[int]
    otherwise: EndedOtherwise | None = None


def begins_with_zero(log: PartitionLog, start: int | None) -> bool:
    """Whether the log begins at offset 0, or has no batch and did not begin anywhere else."""
    return start == 0 or (start is None and log.segments[:1] != () and int(log.segments[0].partition(".")[0]) == 0)


def known_since(logs: Iterable[Log], moments: Moments) -> dict[str, float]:
    """By topic id, a moment before which the topic was made with that id, in milliseconds since the epoch.

    Every replica of every partition counts: its first marker, or when its ``partition.metadata`` was written.
    """
    since: dict[str, float] = {}
    for each in logs:
        if each.topic_id is not None:
            marked_ms = each.first_marker_ms if each.first_marker_ms >= 0 else inf
            shown_ms = min(marked_ms, moments.written_by(each.log, PARTITION_METADATA))
            since[each.topic_id] = min(shown_ms, since.get(each.topic_id, inf))
    return since


def owes_from(log: Log, since: Mapping[str, float], moments: Moments) -> float:
    """The moment from which every transaction that is decided has begun after a log did; ``inf`` if it is not known.

    A log that begins at offset 0 has begun with its topic; another may have been cut by retention since.

    Args:
        log: the log.
        since: the result of :func:`known_since`.
        moments: the moments of all logs.
    """
    if log.topic_id is None or not begins_with_zero(log.log, log.start):
        return inf
    return since[log.topic_id] + moments.source.longest_ms + GRACE_MS


def missing(partition: Log, owed: Owed, there: There, moments: Moments, judged: Judged) -> None:
    """Compare the markers that a partition must have with those that it has; of one producer id and epoch."""
    unended = owed.epoch - 1 in there.unended or (owed.ordered and owed.epoch in there.unended)
    markers = there.markers + unended
    near = owed.near + owed.near_later
    due = owed.due + (owed.near if there.follows else 0)
    later = due + owed.due_later + (owed.near_later if there.follows else 0)
    may_be_near = not there.follows and begins_with_zero(partition.log, partition.start)
    doubtful = later + owed.doubtful + (near if may_be_near else 0)
    lost = (due if markers < due else later if markers < later else doubtful) - markers
    if lost <= 0:
        return
    may_be_later = markers < later or lost <= owed.due_later + owed.near_later
    is_later = markers < later or not owed.doubtful
    figures = judged.figures[TORN]
    add_figure(figures, "markers", lost)
    place = partition.log.topic, partition.log.partition
    if markers < due:
        complete = f"COMPLETE_{owed.decision.name}, decided at {in_words(owed.decided_ms)}"
        evidence = f"{owed.name}: {complete}, and {WITHOUT_MARKER} its marker: expected at least {due} of the epoch"
        if owed.ordered and due > 1:
            evidence = f"at least {due} transactions of the epoch are complete, the last {owed.name} ({complete}), and "
            evidence += f"{WITHOUT_MARKER} the markers of {lost} of them"
        evidence += f", found {there.markers}"
        file, offset = partition.log.segments[-1], partition.end
        if there.otherwise is not None and not owed.ordered:
            evidence += f"; {there.otherwise.in_words(owed.epoch - 1)}"
            offset = there.otherwise.offset
            file = segment_with(partition.log, offset)
        found = Finding(
            rule=TORN,
            topic=place[0],
            partition=place[1],
            broker=partition.log.broker,
            file=file,
            offset=offset,
            producer_id=owed.producer_id,
            producer_epoch=owed.epoch,
            evidence=evidence,
            transactional_id=unquoted(owed.name.transactional_id),
            decision=owed.decision.name,
        )
        judged.findings.append(found)
    elif may_be_later and is_later and owed.completed_ms + SKEW_MS > moments.recent_after(partition):
        add_figure(figures, RECENT, lost)
    else:
        why = OTHER_MOMENT if may_be_later else MADE_AGAIN
        if why is OTHER_MOMENT and moments.source.is_incomplete(partition.log, partition.end):
            why = INCOMPLETE
        add_figure(figures, UNKNOWN, lost)
        judged.reasons[TORN].count(why, Subject(*place, partition.end, owed.producer_id), lost)


def may_miss(partition: Log, moments: Moments) -> bool:
    """Whether a marker that a log does not have is missing there: it has no holes, and no other replica goes on."""
    return not partition.holes and not partition.damaged and moments.is_latest(partition)


def lost_markers(
    partitions: Iterable[PartitionTransactions],
    coordinators: Coordinators,
    moments: Moments,
    since: Mapping[str, float],
) -> "Judged":
    """Find the markers of completed transactions that a partition lacks; ``since`` is of :func:`known_since`."""
    judged = Judged()
    owing = {partition.place: partition for partition in partitions if may_miss(partition, moments)}
    groups: dict[tuple[Place, int, int], list[Transaction]] = defaultdict(list)
    for log in coordinators.logs:
        for known in log.ids.values():
            for each in known.transactions:
                in_order = each.version >= TRANSACTION_VERSION_2 or why_incomplete(log) is None
                if each.completed_ms >= 0 and in_order and coordinators.owner(each.producer_id) is not None:
                    for place in each.partitions & owing.keys():
                        groups[place, each.producer_id, each.marker_epoch].append(each)
    markers: Counter[tuple[Place, int, int]] = Counter()
    lowest: dict[tuple[Place, int], int] = {}
    unended: dict[tuple[Place, int], set[int]] = defaultdict(set)
    otherwise: dict[tuple[Place, int, int], EndedOtherwise] = {}
    for place, partition in owing.items():
        for marker in partition.markers:
            markers[place, marker.producer_id, marker.epoch] += 1
            if marker.ends is not None and marker.epoch != marker.ends.epoch + 1:
                told = EndedOtherwise(marker.ends.offset, marker.offset, marker.epoch, marker.decision)
                otherwise[place, marker.producer_id, marker.ends.epoch + 1] = told
            if marker.epoch >= 0:
                own = place, marker.producer_id
                lowest[own] = min(marker.epoch, lowest.get(own, marker.epoch))
        for data in (*partition.open.values(), *(replaced.data for replaced in partition.merged)):
            unended[place, data.producer_id].add(data.epoch)
    for (place, pid, epoch), transactions in groups.items():
        partition = owing[place]
        there = There(
            markers=markers[place, pid, epoch],
            follows=lowest.get((place, pid), epoch) < epoch,
            unended=unended.get((place, pid), ()),
            otherwise=otherwise.get((place, pid, epoch)),
        )
        owed = _owed(partition, transactions, moments, owes_from(partition, since, moments))
        if owed is not None:
            missing(partition, owed, there, moments, judged)
    return judged


def _owed(
    partition: PartitionTransactions, transactions: Sequence[Transaction], moments: Moments, from_ms: float
) -> Owed | None:
    """The transactions of one producer id and epoch, each complete, whose markers a partition must or may have.

    ``from_ms`` is of :func:`owes_from`.
    """
    counts = dict.fromkeys(("due", "due_later", "near", "near_later", "doubtful"), 0)
    first = partition.first_marker_ms
    may_be_older = begins_with_zero(partition.log, partition.start)
    owing: list[Transaction] = []
    for each in transactions:
        later = "" if moments.covers(partition, each.completed_ms) else "_later"
        if 0 <= first < each.decided_ms - SKEW_MS or from_ms < each.decided_ms - SKEW_MS:
            counts[f"due{later}"] += 1
        elif 0 <= first <= each.decided_ms:
            counts[f"near{later}"] += 1
        elif may_be_older and (partition.begins_ms <= each.decided_ms or partition.begins_epoch != FIRST_LEADER):
            counts["doubtful"] += 1
        else:
            continue
        owing.append(each)
    if not owing:
        return None
    last = max(owing, key=lambda each: (each.decided_ms, each.number))
    return Owed(
        producer_id=last.producer_id,
        epoch=last.marker_epoch,
        name=Named.of(last),
        decision=last.decision,
        decided_ms=last.decided_ms,
        completed_ms=max(each.completed_ms for each in owing),
        ordered=any(each.version < TRANSACTION_VERSION_2 for each in owing),
        **counts,
    )
