"""The rules over transactions: the partitions' data and markers, joined with the logs of ``__transaction_state``.

On a partition, a transaction of a producer id begins with its first transactional batch and ends with the next marker
of that producer id. The marker has the data's epoch or the next one: the next one in transaction version 2, and in any
version if the coordinator fences the producer. A marker without data is legal: a partition may have joined a
transaction and got no data, and a restarted coordinator writes its markers again.

A marker does not name its transaction. In transaction version 2 (producer id, marker epoch) identifies the transaction.
Before, all transactions of a producer instance share these, and only the order of the markers distinguishes them. The
markers of a partition have to be those of the coordinator's transactions with that partition, in order: each at least
once, and repeated only without data in between. So a marker that was repeated with the other decision is mistaken for
the marker of the next transaction, if that transaction has this decision and no data on the partition.

``torn transaction``
    A transaction whose markers say COMMIT on one partition and ABORT on another, or both on one. Without the
    coordinator's log it is found only in transaction version 2: a COMMIT and an ABORT of the same epoch that each end
    data of the epoch before; or a COMMIT that does, and a later ABORT, by hand, that has the epoch of these data.

    Or a transaction that is complete, and whose marker a partition does not have. By the protocol the coordinator
    writes COMPLETE only after each partition has its marker. So the partition has lost it, and what came with it. Or
    nobody wrote it: Kafka 4.3 takes a partition without a leader for deleted and completes without its marker (finding
    no-leader-no-marker). Then the data are there, and the next marker of the producer id has ended them. Markers are
    counted by producer id and epoch: there are at least as many as transactions with that epoch are complete. The
    finding is at the end of the log, or, in transaction version 2, at the transaction's data, if a marker with another
    epoch has ended them. Data that are still open are not counted again, because they hang.

``marker without transaction``
    A marker for which the coordinator's log has no PREPARE of that decision with that partition. In the order of the
    markers it may have one later. Then the marker is wrong, or it is the later one's, and the partition lacks those of
    the decisions in between, which the finding names.

    An ABORT that ends data which belongs to none of the coordinator's transactions is *told*: somebody ended a hanging
    transaction by hand (``kafka-transactions abort``). If the data belongs to a transaction that was committed, it is a
    ``torn transaction``. Before transaction version 2 these are the data of the transaction that was open when the
    ABORT was written: an ABORT by hand has the data's epoch, and is older than any decision that it could be of.

``hanging transaction``
    A transaction that is open at the end of the log, although the coordinator's log says that the transaction is
    complete, or has no such transaction. Or a transaction that was decided more than five minutes ago and has no
    marker. Or a transaction that was still open when data of a later epoch came. Or a transaction that is open for
    longer than any transaction may take. Every open transaction is reported with its fate, and with its coordinator's
    decision if that is known (:mod:`decided`).

``fenced producer committed``
    A COMMIT marker that ends data of an epoch below one that InitProducerId had already given: the coordinator's log
    has EMPTY at an epoch above the data's, and not above the marker's. Or a COMMIT marker whose epoch is neither that
    of its data nor the next one: a COMMIT has no other in any version, so it is that of another transaction. An ABORT
    may have a higher epoch, because the coordinator raises the epoch again when it fences a producer.

``marker of an old coordinator``
    A marker with a coordinator epoch below that of an earlier marker of the same producer id on the partition.

``data without transaction``
    A data batch without the transactional bit, of a producer id that a transactional id has or had. Readers of
    committed data get it although the transaction is aborted. A leader refuses it only while the producer has a
    transaction open on the partition (rule ``batch outside transaction``), because it does not know whose producer id
    it is: Kafka 4.3.0 and 3.9.1 accept all others. A log has one finding for each such producer id. In logs of several
    clusters, which mirrored topics need, a producer id is of the cluster that its directory names.

*Not judged*: producer ids that none of the given logs of ``__transaction_state`` names; before transaction version 2,
markers whose coordinator's log or partition is compacted or damaged; markers without data that may belong to more than
:data:`MOST_WAYS` transactions. Nor does a partition with holes or damage miss any marker.

A partition that was created later than a transaction (its topic was deleted and created again) needs none of the
transaction's markers. So a marker is missing if the partition is certainly older: the transaction was decided after
another marker of the partition. Or the log begins at offset 0, and its topic was there, under the same id, before the
transaction can have begun: a partition or replica of this id has a marker of that time, or its ``partition.metadata``
was written by then. Without such evidence this is not judged if the log may be older: if its first timestamp is before
the decision; or if its first batch is not of the topic's first leader epoch, 0, so that the partition was there before,
and may have been emptied and filled again.

*Too recent*: what a log may lack because it was read or copied earlier than the other one (:mod:`moments`).

If a partition is replicated, the longest of the given replicas is read. All logs have to be of one cluster.

Every rule is about single producer ids, so each producer id is judged for itself, on Spark by different workers.
Markers that :mod:`kafka_eos_checks.audit.kernels.coordinators.matching` proves to agree with the coordinator's log are
not given to these rules.

KIP:   KIP-98, KIP-890, KIP-1228
Kafka: ProducerAppendInfo.appendEndTxnMarker, TransactionMarkerChannelManager,
       TransactionsCommand.FindHangingTransactionsCommand
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf, isinf
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, topic_id
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import AbortedTransaction, CorruptRegion, RegionKind
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2, TransactionState
from kafka_eos_checks.audit import places
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.moments import GRACE_MS, ONE_MOMENT, SKEW_MS, Dated, Ended, Moments, Source, in_words, span
from kafka_eos_checks.audit.quoting import quoted, unquoted
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, Transaction, TransactionalId
from kafka_eos_checks.audit.rules.decided import (
    ENDED,
    NOT_BY_HAND,
    Answer,
    Answers,
    Data,
    Marked,
    added,
    answer_of,
    decisions_about,
    said_of,
    will_end,
)
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, Reason, Reasons, Subject
from kafka_eos_checks.audit.segments.contents import Figures, Place
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    is_set,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, Marks
from kafka_eos_checks.audit.segments.reading import read_marked
from kafka_eos_checks.audit.segments.splits import PartitionLog, segment_with
from kafka_eos_checks.kit.verdict import first_of

TORN, HANGING, NO_TRANSACTION = "torn transaction", "hanging transaction", "marker without transaction"
FENCED, OLD_COORDINATOR = "fenced producer committed", "marker of an old coordinator"
NO_BIT = "data without transaction"
TRANSACTION_RULES = (TORN, HANGING, NO_TRANSACTION, FENCED, OLD_COORDINATOR, NO_BIT)
LACKS_END = "lacks its end"  # of a log, in the evidence about a transaction that is open there
OF_MARKERS = (TORN, NO_TRANSACTION, OLD_COORDINATOR)  # the rules that look at every marker

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
UNKNOWN, RECENT = "unknown", "recent"  # names of figures
FIRST_LEADER = 0  # the leader epoch of a partition that was made just now
WITHOUT_MARKER, OUT_OF_TURN = "the log ends without", "this partition has no"  # words of findings
AS_BY_HAND, BY_ANOTHER = "as `kafka-transactions abort` writes it", "which is of another transaction"  # likewise
SHOWN_NUMBERS = 5  # the most transactions that a finding names
MOST_WAYS = 64  # of assigning the markers of a partition to transactions; with more of them it is unknown
# Why something cannot be judged, and what the user could give.
NO_STATE_LOG = Reason("no-coordinator-log", "no log of __transaction_state was given")
EMPTY_STATE_LOG = Reason(
    "no-coordinator-log", "the given logs of __transaction_state are empty: lost, or from before the first transaction"
)
OWNER_UNKNOWN = Reason(
    "unknown-producer",
    "no given log of __transaction_state names their producer; give the logs of all brokers, or from before its "
    "transactional id expired or the log was lost",
)
STATE_COMPACTED = Reason("compacted", "their log of __transaction_state was compacted; give a copy from before that")
END_DAMAGED = Reason(
    "damaged", "the end of their partition's log cannot be read and may have had their markers; give another replica"
)
STATE_DAMAGED = Reason("damaged", "their log of __transaction_state is damaged; give another replica of it")
HOLES = Reason(
    "compacted",
    "their partition was compacted or has holes; and their data are gone, or they are of before transaction version 2, "
    "where an epoch identifies no transaction",
)
MADE_AGAIN = Reason(
    "made-again",
    "their topic may have been deleted and created again after the transactions in the coordinator's log, or this log "
    "was emptied",
)
AMBIGUOUS = Reason("ambiguous", f"they end no data, and each may belong to any of more than {MOST_WAYS} transactions")
OPEN_BEHIND_HOLE = Reason("compacted", "a hole in their partition may have had their markers; give another replica")
COMMITTED_BEHIND_HOLE = Reason(
    "compacted",
    "a hole in their partition may have had their marker, and the data of another one; give another replica",
)
OPEN_WITHOUT_LOG = Reason("no-coordinator-log", "open, and no log of __transaction_state shows who will end them")
OPEN_OF_NOBODY = Reason("unknown-producer", "open, and no given log of __transaction_state names their producer")
OTHER_MOMENT = Reason(
    "other-moment",
    "the other log may be an older copy; audit the directory in place, or copy it with `cp -a`, which keeps the times "
    "of files, or say --snapshot if the brokers stood still",
)
INCOMPLETE = Reason(
    "incomplete",
    "a log that they depend on lacks its end: it ends below its high watermark, or its last segment is missing, packed "
    "or a link; copy it to its end, or give another replica",
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
        for headers, marks in read_marked(log.file(name), READ, check_crc=check_crc):
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


class Coordinators:
    """The given logs of ``__transaction_state``, by producer id.

    Args:
        logs: the logs that have records.
        given: whether any log was given, even an empty one.
    """

    def __init__(self, logs: Iterable[CoordinatorLog], *, given: bool = False) -> None:
        self.logs = list(logs)
        self.given = given or bool(self.logs)
        self._owners: dict[int, tuple[CoordinatorLog, TransactionalId]] = {}
        self._transactions: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
        claimed: set[int] = set()
        for log in self.logs:
            for known in log.ids.values():
                for transaction in known.transactions:
                    self._transactions[transaction.producer_id, transaction.marker_epoch].append(transaction)
                for pid in known.producer_ids:
                    if pid in self._owners:
                        claimed.add(pid)
                    self._owners[pid] = log, known
        for pid in claimed:  # logs of several clusters: nothing is certain about this producer id
            del self._owners[pid]

    def owner(self, producer_id: int) -> tuple[CoordinatorLog, TransactionalId] | None:
        """The transactional id with that producer id, and its log; None if no given log names it."""
        return self._owners.get(producer_id)

    @property
    def unknown_owner(self) -> Reason:
        """The reason why the transactional id of a producer id is not known."""
        if not self.logs:
            return EMPTY_STATE_LOG if self.given else NO_STATE_LOG
        return OWNER_UNKNOWN

    def transactions(self, producer_id: int, marker_epoch: int) -> list[Transaction]:
        """The transactions whose markers have this producer id and epoch, in order."""
        return self._transactions.get((producer_id, marker_epoch), [])


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A marker that contradicts the coordinator's log.

    Attributes:
        partition: its partition.
        marker: the marker.
        meant: the transactions that it may belong to, with the other decision or without this partition.
        later: the first transaction that it may belong to if markers before it are missing; None if none was decided
            so by then.
        among: the transactions right before that one, with the other decision, of which some lack their marker then.
        lacking: the least number of these.
        has_alike: whether any transaction with this partition was decided as the marker says.
    """

    partition: PartitionTransactions
    marker: Marker
    meant: tuple[Transaction, ...]
    later: Transaction | None = None
    among: tuple[Transaction, ...] = ()
    lacking: int = 0
    has_alike: bool = False

    @property
    def otherwise(self) -> str:
        """The other explanation, in words: the marker is that of a later transaction; "" if it cannot be."""
        if self.later is None:
            return ""
        count, names = len(self.among), ", ".join(str(each.number) for each in self.among[:SHOWN_NUMBERS])
        names += f" and {count - SHOWN_NUMBERS} more" if count > SHOWN_NUMBERS else ""
        which = f"at least {self.lacking} of these {count}: " if self.lacking < count else ""
        other = f"{OUT_OF_TURN} {self.among[0].decision.name} of {which}transaction {names}"
        return f"it is the marker of {Named.of(self.later)}, and {other}"

    def is_like(self, other: "Unmatched") -> bool:
        """Whether another marker has the same decision about the same transactions."""
        return (self.marker.decision, self.meant) == (other.marker.decision, other.meant)

    @property
    def is_decided(self) -> bool:
        """Whether the data that the marker ends belongs to a transaction that had been decided by then."""
        ends = self.marker.ends
        return ends is not None and any(
            each.data_epoch == ends.epoch
            if each.version >= TRANSACTION_VERSION_2
            else each.decided_ms <= self.marker.stamped_ms
            for each in self.meant
        )


Placed = tuple[PartitionTransactions, Marker]


class Named(NamedTuple):
    """The name of a transaction: its transactional id, its number among those of that id, and its producer id.

    The producer id is redundant, unless the log is broken. With it every rule is about single producer ids.
    """

    transactional_id: str
    number: int
    producer_id: int

    @classmethod
    def of(cls, transaction: Transaction) -> "Named":
        """The name of a decision's transaction."""
        return cls(transaction.transactional_id, transaction.number, transaction.producer_id)

    def __str__(self) -> str:
        return f"transaction {self.number} of {quoted(self.transactional_id)}"


@dataclass(slots=True)
class Matching:
    """The markers of each transaction.

    Attributes:
        seen: by transaction and decision, markers that certainly belong to it: the first of each partition.
        unmatched: markers that contradict the coordinator's log.
        unknown: markers that cannot be judged.
        reasons: for each reason, the markers that cannot be judged.
        recent: markers whose transaction may be newer than the copy of the coordinator's log.
    """

    seen: dict[Named, dict[ControlType, dict[Place, Placed]]] = field(default_factory=lambda: defaultdict(dict))
    unmatched: list[Unmatched] = field(default_factory=list)
    unknown: list[tuple[PartitionTransactions, Marker]] = field(default_factory=list)
    reasons: Reasons = field(default_factory=Reasons)
    recent: list[tuple[PartitionTransactions, Marker]] = field(default_factory=list)

    def leave(self, partition: PartitionTransactions, markers: Sequence[Marker], reason: Reason) -> None:
        """Note markers that cannot be judged."""
        self.unknown += [(partition, marker) for marker in markers]
        for marker in markers:
            self.reasons.count(reason, partition.subject(marker))

    def postpone(
        self, partition: PartitionTransactions, markers: Sequence[Marker], recent_after: float, reason: Reason
    ) -> None:
        """Note the markers after ``recent_after`` as too recent to judge, and the others as not judged."""
        for marker in markers:
            if marker.stamped_ms + SKEW_MS > recent_after:
                self.recent.append((partition, marker))
            else:
                self.leave(partition, [marker], reason)

    def saw(self, transaction: Transaction, partition: PartitionTransactions, marker: Marker) -> None:
        """Note a marker that certainly belongs to a transaction."""
        if marker.decision is not None:
            self._keep(Named.of(transaction), marker.decision, (partition, marker))

    def _keep(self, name: Named, decision: ControlType, placed: Placed) -> None:
        self.seen[name].setdefault(decision, {}).setdefault(placed[0].place, placed)

    def take(self, other: "Matching") -> None:
        """Add the markers of another matching."""
        for name, decisions in other.seen.items():
            for decision, kept in decisions.items():
                for placed in kept.values():
                    self._keep(name, decision, placed)
        self.unmatched += other.unmatched
        self.unknown += other.unknown
        self.reasons.add(other.reasons)
        self.recent += other.recent


def match(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, matching: Matching) -> None:
    """Match the markers of a partition with transactions."""
    groups: dict[tuple[int, int], list[Marker]] = defaultdict(list)
    for marker in partition.markers:
        groups[marker.producer_id, marker.epoch].append(marker)
    recent_after = moments.common_recent_after(coordinators.logs)
    for (pid, epoch), markers in groups.items():
        owner = coordinators.owner(pid)
        if owner is None:
            matching.postpone(partition, markers, recent_after, coordinators.unknown_owner)
            continue
        log = owner[0]
        transactions = coordinators.transactions(pid, epoch)
        why_later = INCOMPLETE if moments.source.is_incomplete(log.log, log.end) else OTHER_MOMENT
        group = _Group(partition, markers, transactions, moments.reach(log), moments.recent_after(log), why_later)
        commit = next((each for each in groups.get((pid, epoch + 1), ()) if each.decision is ControlType.COMMIT), None)
        if commit is not None:
            committed = _committed(partition, coordinators, pid, epoch)
            group = replace(group, committed=[(transaction, commit) for transaction in committed])
        why = why_incomplete(log) or (HOLES if partition.holes else None)
        matching.take(group.in_order() if why is None else group.by_epoch(why))


def _committed(partition: PartitionTransactions, coordinators: Coordinators, pid: int, epoch: int) -> list[Transaction]:
    """The committed transactions of version 2 whose data have a producer id and epoch on a partition."""
    return [
        each
        for each in coordinators.transactions(pid, epoch + 1)
        if (each.data_epoch, each.decision) == (epoch, ControlType.COMMIT)
        and each.version >= TRANSACTION_VERSION_2
        and partition.place in each.partitions
    ]


def why_incomplete(log: CoordinatorLog) -> Reason | None:
    """The reason why a coordinator's log may lack transactions; None if it has all."""
    if log.whole:
        return None
    return STATE_DAMAGED if log.damaged or log.unreadable else STATE_COMPACTED


@dataclass(frozen=True, slots=True)
class _Group:
    """The markers of a producer id and epoch on a partition, and the transactions with that epoch.

    Attributes:
        reach: the moment up to which the coordinator's log has everything, in milliseconds since the epoch.
        recent_after: the moment from which on whatever it lacks is too recent to judge.
        why_later: the reason why later markers cannot be judged.
        committed: the transactions of version 2 whose data have the epoch, each with its COMMIT on the partition. An
            ABORT with this epoch is of no coordinator, and has taken data away from them.
    """

    partition: PartitionTransactions
    markers: list[Marker]
    transactions: list[Transaction]
    reach: float
    recent_after: float
    why_later: Reason
    committed: Sequence[tuple[Transaction, Marker]] = ()

    def _is_later(self, marker: Marker) -> bool:
        """Whether the decision may be after the end of the coordinator's log."""
        return marker.stamped_ms + SKEW_MS > self.reach

    def in_order(self) -> Matching:
        """Match by the order of the transactions with this partition.

        A partition whose log starts later, or whose topic was deleted and created again, has no markers of earlier
        transactions. If the log starts at offset 0, this is considered only if the markers do not match otherwise.
        """
        own = [each for each in self.transactions if self.partition.place in each.partitions]
        earlier = sum(each.decided_ms < self.partition.begins_ms for each in own)
        found = self._follow(own, len(own) if self.partition.start else earlier)
        if found.unmatched and self.partition.start == 0:
            begins_by = self.partition.first_marker_ms
            lenient = self._follow(own, sum(each.decided_ms <= begins_by for each in own))
            if not lenient.unmatched:
                unsure = Matching()
                unsure.leave(self.partition, self.markers, MADE_AGAIN)
                return unsure
        if found.unmatched:
            by_hand = self._follow(own, len(own) if self.partition.start else earlier, by_hand=True)
            if all(_may_be_by_hand(each.marker) and not each.is_decided for each in by_hand.unmatched):
                return by_hand
        return found

    def _follow(self, own: list[Transaction], earlier: int, *, by_hand: bool = False) -> Matching:
        """Follow all ways in which markers may belong to transactions. A state is how many of them have a marker.

        Args:
            own: transactions with this partition, in order.
            earlier: how many of them may be older than the partition.
            by_hand: whether an ABORT before the decision is taken for one by hand. It may have ended data of the
                transaction that was open then, which gets its own marker later. So the time of a marker counts: it is
                of the last transaction that was decided by then.
        """
        matching = Matching()
        possible = set(range(earlier + 1))
        for number, marker in enumerate(self.markers):
            if len(possible) > MOST_WAYS:
                matching.take(self.by_epoch(AMBIGUOUS, number))
                return matching
            ways = {
                after
                for before in possible
                for after in _ways(marker, own, before)
                if not marker.contradicts(own[after - 1].decision)
                and not (by_hand and _may_be_by_hand(marker) and marker.stamped_ms < own[after - 1].decided_ms)
            }
            if by_hand:
                ways = {n for n in ways if n == len(own) or marker.stamped_ms < own[n].decided_ms} or ways
            if ways:
                possible = ways
                if len(ways) == 1 and not self._is_later(marker):
                    matching.saw(own[min(ways) - 1], self.partition, marker)
                continue
            if self._is_later(marker):
                matching.postpone(self.partition, self.markers[number:], self.recent_after, self.why_later)
                return matching
            meant = [own[n] for n in sorted(possible) if n < len(own)]
            if marker.ends is None:
                meant += [own[n - 1] for n in sorted(possible) if n]
            if _may_be_by_hand(marker):
                if by_hand:
                    meant = [each for each in meant if each.started_ms <= marker.stamped_ms]
                meant = [*self._see_committed(matching), *meant]
            known = tuple(meant or (() if own else self.transactions[:1]))
            matching.unmatched.append(self._unmatched(marker, known, own, max(possible)))
            if by_hand and _may_be_by_hand(marker):
                continue
            # Either the marker is wrong, or markers before it are missing. One finding is enough for both.
            first = min(possible)
            alike = (n + 1 for n in range(first, len(own)) if not marker.contradicts(own[n].decision))
            possible = {min(first + 1, len(own)), next(alike, len(own))}
        return matching

    def _see_committed(self, matching: Matching) -> list[Transaction]:
        """The committed transactions whose data an ABORT by hand has ended, after their COMMITs are noted."""
        for transaction, commit in self.committed:
            matching.saw(transaction, self.partition, commit)
        return [transaction for transaction, _ in self.committed]

    def _unmatched(
        self, marker: Marker, meant: tuple[Transaction, ...], own: list[Transaction], before: int
    ) -> Unmatched:
        """A marker out of turn, with what is so if markers before it are missing.

        Of transactions with the same decision in a row it is not known which of them have the markers there are.

        Args:
            marker: the marker.
            meant: see :class:`Unmatched`.
            own: transactions with this partition, in order.
            before: how many of them have a marker before it, at most.
        """
        alike = [not marker.contradicts(each.decision) for each in own]
        decided = [each.decided_ms <= marker.stamped_ms + SKEW_MS for each in own]
        at = next((n for n in range(before, len(own)) if alike[n] and decided[n]), before)
        begin = max((n + 1 for n in range(before) if alike[n]), default=0)
        lacking = sum(not each.replaced for each in own[before:at])
        known = Unmatched(self.partition, marker, meant, has_alike=any(alike))
        if not lacking:
            return known
        among = tuple(each for each in own[begin:at] if not each.replaced)
        return replace(known, later=own[at], among=among, lacking=lacking)

    def by_epoch(self, why: Reason, first: int = 0) -> Matching:
        """Match by epoch: if the order cannot be used, only the epoch of a single transaction identifies it.

        Args:
            why: the reason why the order cannot be used.
            first: the number of markers to skip.
        """
        matching = Matching()
        own = [transaction for transaction in self.transactions if transaction.version >= TRANSACTION_VERSION_2]
        for marker in self.markers[first:]:
            if self._is_later(marker):
                matching.postpone(self.partition, [marker], self.recent_after, self.why_later)
            elif self.committed and _may_be_by_hand(marker):
                matching.unmatched.append(Unmatched(self.partition, marker, tuple(self._see_committed(matching))))
            elif len(own) != 1 or marker.ends is None or marker.ends.epoch != own[0].data_epoch or own[0].replaced:
                matching.leave(self.partition, [marker], why)
            elif self.partition.place in own[0].partitions and not marker.contradicts(own[0].decision):
                matching.saw(own[0], self.partition, marker)
            else:
                matching.unmatched.append(Unmatched(self.partition, marker, (own[0],)))
        return matching


def _may_be_by_hand(marker: Marker) -> bool:
    """Whether a marker is as ``kafka-transactions abort`` writes it: an ABORT with the epoch of its data."""
    return marker.decision is ControlType.ABORT and marker.ends is not None and marker.ends.epoch == marker.epoch


def _ways(marker: Marker, own: list[Transaction], before: int) -> Iterator[int]:
    """The possible numbers of transactions with a marker after ``marker``, if ``before`` of them have one before it."""
    if marker.ends is None and before:
        yield before  # written again
    for number in range(before, len(own)):
        yield number + 1
        if not own[number].replaced:
            return


def contradictions(matching: Matching) -> Iterator[Finding]:
    """Find torn transactions (each once), markers without a transaction, and markers that are too recent to judge."""
    torn: dict[Named, list[Unmatched]] = {}
    for unmatched in matching.unmatched:
        partition, marker = unmatched.partition, unmatched.marker
        if marker.decision is None:
            continue
        other = ControlType.COMMIT if marker.decision is ControlType.ABORT else ControlType.ABORT
        names = [Named.of(transaction) for transaction in unmatched.meant]
        if (known := next((name for name in names if name in torn), None)) is not None:
            torn[known] += [unmatched] if unmatched.is_like(torn[known][0]) else []
            continue
        name = next((name for name in names if other in matching.seen[name]), None)
        if name is None:
            yield _without_transaction(unmatched)
            continue
        torn[name] = [unmatched]
    for name, unlike in torn.items():
        own = ((each.partition, each.marker) for each in unlike)
        found = _torn([*own, *chain(*(kept.values() for kept in matching.seen[name].values()))], str(name))
        decided = (each.decision.name for each in unlike[0].meant if Named.of(each) == name and not each.replaced)
        found = replace(found, decision=next(decided, ""))
        yield replace(found, evidence=f"{found.evidence}; or {said}") if (said := unlike[0].otherwise) else found
    for partition, marker in matching.recent:
        decision = "a marker" if marker.decision is None else marker.decision.name
        evidence = f"{decision} of a later moment than the copy of its log of __transaction_state"
        yield partition.finding(NO_TRANSACTION, marker, evidence, Kind.TOO_RECENT)
    for name, seen in matching.seen.items():
        if len(seen) > 1 and name not in torn:
            aborted, committed = (list(seen[each].values()) for each in (ControlType.ABORT, ControlType.COMMIT))
            yield _torn([*sorted(aborted, key=_without_data), *committed], str(name))


def _without_transaction(unmatched: Unmatched) -> Finding:
    partition, marker = unmatched.partition, unmatched.marker
    assert marker.decision is not None, "only a marker with a decision is looked for"
    which = f"PREPARE_{marker.decision.name} at epoch {marker.epoch} with this partition"
    lacks = "by then the log has no more" if unmatched.has_alike else "the log has no"
    evidence = f"{marker.decision.name}, but {lacks} {which}"
    if marker.decision is ControlType.ABORT and marker.ends is not None and not unmatched.is_decided:
        by_hand = f"{evidence}: a transaction that was open since offset {marker.ends.offset} was aborted by hand"
        return partition.finding(NO_TRANSACTION, marker, by_hand, Kind.TOLD)
    if unmatched.later is not None:
        evidence = f"{marker.decision.name} out of turn: it is wrong, or {unmatched.otherwise}"
    return partition.finding(NO_TRANSACTION, marker, evidence)


def torn_by_epoch(matching: Matching) -> Iterator[Finding]:
    """Find torn transactions among the markers that could not be matched, by epoch only.

    A COMMIT of the epoch after its data's is of transaction version 2, where the epoch of the data names the
    transaction. An ABORT of the data's own epoch that comes after it is not of the coordinator, which uses the next
    epoch by then: somebody aborted by hand what the coordinator has committed. So is any ABORT of the data's own epoch
    if the transaction before it was of version 2, too: a client that uses version 2 does not go back.
    """
    by_epoch: dict[tuple[int, int], dict[ControlType, list[Placed]]] = defaultdict(dict)
    by_hand: list[Placed] = []
    for partition, marker in (*matching.unknown, *matching.recent):
        if marker.ends is None or marker.decision is None:
            continue
        if marker.ends.epoch == marker.epoch - 1:
            own = by_epoch[marker.producer_id, marker.ends.epoch]
            own.setdefault(marker.decision, []).append((partition, marker))
        elif marker.ends.epoch == marker.epoch and marker.decision is ControlType.ABORT:
            by_hand.append((partition, marker))
    for decisions in by_epoch.values():
        if len(decisions) > 1:
            markers = [*decisions[ControlType.ABORT], *decisions[ControlType.COMMIT]]
            yield _torn(markers, "the transaction of this epoch")
    for partition, marker in by_hand:
        committed = by_epoch.get((marker.producer_id, marker.epoch), {}).get(ControlType.COMMIT, [])
        is_later = any(commit.stamped_ms + SKEW_MS < marker.stamped_ms for _, commit in committed)
        if is_later or (committed and (marker.producer_id, marker.epoch - 1) in by_epoch):
            found = _torn([(partition, marker), *committed], f"the transaction of epoch {marker.epoch}")
            yield replace(found, evidence=f"{found.evidence}; this ABORT is by hand")


def _without_data(placed: Placed) -> bool:
    return placed[1].ends is None


def _torn(markers: Sequence[Placed], which: str) -> Finding:
    """The first of some markers, which others contradict.

    The evidence names the first others of each decision, one of a partition, those in other partitions and those that
    end data first. So it tells which decision is the odd one.
    """
    partition, marker = markers[0]
    by_decision: dict[ControlType, dict[Place, Placed]] = {each: {} for each in ControlType}
    for placed in sorted(markers[1:], key=lambda each: (each[0].place == partition.place, _without_data(each))):
        assert placed[1].decision is not None, "only a marker with a decision is seen"
        by_decision[placed[1].decision].setdefault(placed[0].place, placed)
    assert marker.decision is not None, "only a marker with a decision contradicts another"
    alike = by_decision.pop(marker.decision)
    alike.pop(partition.place, None)
    [(other, unlike)] = by_decision.items()
    here = f"{marker.decision.name} here" + (f" and at {_places(alike)}" if alike else "")
    return partition.finding(TORN, marker, f"{which}: {here}, {other.name} at {_places(unlike)}")


def _places(markers: Mapping[Place, Placed]) -> str:
    names = [f"{topic}-{number} offset {marker.offset}" for (topic, number), (_, marker) in markers.items()]
    return first_of(names, SHOWN_NUMBERS)


class Fate(NamedTuple):
    """The verdict on an open transaction.

    Attributes:
        kind: whether it hangs.
        why: the reason in words.
        reason: the reason if it is not judged.
        is_overdue: whether it hangs only because its coordinator should have ended it by now.
    """

    kind: Kind
    why: str
    reason: Reason | None = None
    is_overdue: bool = False


class Hanging(NamedTuple):
    """A finding on data that are open, or were still open when data of a later epoch came.

    Attributes:
        finding: the finding, without the coordinator's decision.
        replaced: the data that were replaced by those of a later epoch; None for data that are open.
    """

    finding: Finding
    replaced: Replaced | None = None

    @property
    def data(self) -> Data:
        """The data."""
        found = self.finding
        assert found.producer_id is not None, "data have a producer"
        assert found.producer_epoch is not None, "a producer has an epoch"
        return Data(found.producer_id, found.producer_epoch, found.topic, found.partition)


def hanging(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, judged: "Judged") -> None:
    """Judge the open transactions of a partition: nobody will end it, somebody will, or it is not known."""
    figures = judged.figures[HANGING]
    for replaced in partition.merged:
        evidence = f"still open when data of epoch {replaced.epoch} came"
        if replaced.ended_at >= 0:
            marker = "a marker" if replaced.decision is None else replaced.decision.name
            evidence += f"; {marker} at offset {replaced.ended_at} {ENDED}"
        judged.open.append(Hanging(partition.finding(HANGING, replaced.data, evidence), replaced))
    for opened in partition.open.values():
        owner = coordinators.owner(opened.producer_id)
        fate = fate_of(partition, opened, coordinators, moments)
        fate = _unless_just_started(fate, partition.log, None if owner is None else owner[0], moments)
        _count(figures, "open")
        _count(figures, "transactions")
        if fate.reason is not None:
            _count(figures, UNKNOWN)
            judged.reasons[HANGING].count(fate.reason, partition.subject(opened))
        elif fate.kind is Kind.TOO_RECENT:
            _count(figures, RECENT)
        evidence = f"{fate.why}; open {_since(opened, moments.last_ms)}"
        found = partition.finding(HANGING, opened, evidence, fate.kind)
        judged.open.append(Hanging(with_owner(found, coordinators)))


def _unless_just_started(
    fate: "Fate", log: PartitionLog, coordinator: CoordinatorLog | None, moments: Moments
) -> "Fate":
    """The fate of an open transaction; too recent, if it is overdue and its broker runs for less than the grace.

    Also too recent if its coordinator was elected less than the grace before the last moment that is known, as after
    the start of its broker: while all brokers were down, no coordinator could end the transaction.
    """
    if fate.is_overdue and not moments.ran_for(log, GRACE_MS):
        why = f"{fate.why}; its broker was started less than {span(GRACE_MS)} ago, and may end it"
        return Fate(Kind.TOO_RECENT, why)
    if fate.is_overdue and coordinator is not None and moments.last_ms - _led_since(coordinator, moments) <= GRACE_MS:
        elected = f"its coordinator was elected less than {span(GRACE_MS)} before the last known moment"
        return Fate(Kind.TOO_RECENT, f"{fate.why}; {elected}, and may end it")
    return fate


def _led_since(log: CoordinatorLog, moments: Moments) -> float:
    """A moment by which the coordinator of a log was elected, in ms since the epoch; ``-inf`` if it is not known.

    A new leader notes its epoch in ``leader-epoch-checkpoint``, and then in its records.
    """
    noted_ms = moments.written_by(log.log, LEADER_EPOCH_CHECKPOINT)
    since_ms = float(log.led.since_ms) if log.led.epoch > FIRST_LEADER else -inf
    return since_ms if isinf(noted_ms) else max(since_ms, noted_ms)


def _count(figures: Figures, name: str, more: int = 1) -> None:
    figures[name] = int(figures[name]) + more


def fate_of(
    partition: PartitionTransactions, opened: OpenTransaction, coordinators: Coordinators, moments: Moments
) -> Fate:
    """Decide whether an open transaction hangs."""
    appended_by = min(partition.appended_by(opened), moments.written_by(partition.log, opened.file))
    age_ms = min(moments.reach(partition), moments.last_ms) - appended_by
    owner = coordinators.owner(opened.producer_id)
    who = "no given log of __transaction_state names its producer" if owner is None else _state_of(owner[1])
    if opened.holes < partition.holes:
        return Fate(Kind.NOT_JUDGED, "a later hole in the log may have had its marker", OPEN_BEHIND_HOLE)
    if partition.damaged_end:
        return Fate(Kind.NOT_JUDGED, "the damaged end of the log may have had its marker", END_DAMAGED)
    if age_ms > moments.source.longest_ms + GRACE_MS:
        longest = f"no transaction may take more than {span(moments.source.longest_ms)} (transaction.max.timeout.ms)"
        why = f"open for at least {span(age_ms)}, and {longest}; {who}"
        return Fate(Kind.VIOLATION, why, is_overdue=True)
    if owner is None:
        recent_after = moments.common_recent_after(coordinators.logs)
        if opened.timestamp + SKEW_MS > recent_after:
            return Fate(Kind.TOO_RECENT, who)
        return Fate(Kind.NOT_JUDGED, who, OPEN_WITHOUT_LOG if not coordinators.logs else OPEN_OF_NOBODY)
    log, known = owner
    if log.damaged or log.unreadable:
        why = f"{log.log} is damaged and may not have the last state of {quoted(known.name)}"
        return Fate(Kind.NOT_JUDGED, why, STATE_DAMAGED)
    if will_end(Data(opened.producer_id, opened.epoch, *partition.place), known):
        return _ending(known, min(moments.reach(log), moments.last_ms), min(moments.reach(partition), moments.last_ms))
    if moments.covers(log, appended_by) and moments.covers(partition, known.last_ms):
        return Fate(Kind.VIOLATION, f"open at the end of the log, but {who}")
    older_log = opened.timestamp + SKEW_MS > moments.recent_after(log)
    older_partition = known.last_ms + SKEW_MS > moments.recent_after(partition)
    for each in (log, partition):
        if moments.source.is_incomplete(each.log, each.end):
            return Fate(Kind.NOT_JUDGED, f"{who}, but {each.log} {LACKS_END}", INCOMPLETE)
    old = moments.last_ms - opened.timestamp > moments.source.longest_ms + GRACE_MS
    copies = f"{who}, but this log and {log.log} may be of different moments"
    if (older_log or older_partition) and not old:
        return Fate(Kind.TOO_RECENT, copies)
    return Fate(Kind.NOT_JUDGED, copies, OTHER_MOMENT)


def _ending(known: TransactionalId, now_ms: float, partition_ms: float) -> Fate:
    """The fate of a transaction that its coordinator will end, by its timeout at the latest.

    Args:
        known: its transactional id.
        now_ms: the moment up to which the coordinator's log is complete.
        partition_ms: the same of the partition's log.
    """
    last = known.last
    assert last is not None, "the coordinator has it"
    if last.transaction_status is not TransactionState.ONGOING:
        late_ms = min(now_ms, partition_ms) - last.transaction_last_update_timestamp_ms
        if late_ms > GRACE_MS and not isinf(late_ms):
            why = f"{_state_of(known)} for {span(late_ms)}, and no marker has come"
            return Fate(Kind.VIOLATION, why, is_overdue=True)
        return Fate(Kind.TOLD, f"will end: {_state_of(known)}, and its marker is under way")
    due_ms = last.transaction_start_timestamp_ms + last.transaction_timeout_ms
    timeout = f"{in_words(due_ms)} (timeout {span(last.transaction_timeout_ms)})"
    if now_ms > due_ms + GRACE_MS and not isinf(now_ms):
        late = f"{_state_of(known)} and should have aborted it at {timeout}"
        return Fate(Kind.VIOLATION, f"{late}, {span(now_ms - due_ms)} ago", is_overdue=True)
    return Fate(Kind.TOLD, f"will end: {_state_of(known)} and aborts it at {timeout} at the latest")


def _state_of(known: TransactionalId) -> str:
    last = known.last
    if last is None:
        return f"the coordinator forgot {quoted(known.name)}"
    state = f"the coordinator has {quoted(known.name)} {last.transaction_status.name} with producer {last.producer_id} "
    return f"{state}epoch {last.producer_epoch}"


def _since(opened: OpenTransaction, now_ms: float) -> str:
    """The time since which a transaction is open, and whose clock gave it."""
    if opened.timestamp <= 0:
        return "since an unknown time"
    clock = "the broker's" if opened.stamped else "the client's"
    age = now_ms - opened.timestamp
    return f"since {in_words(opened.timestamp)} by {clock} clock" + (f", for {span(age)}" if 0 < age < inf else "")


def held_back(opened: Iterable[Finding], ends: Mapping[tuple[str, str, int], int]) -> Iterator[Finding]:
    """Add to open transactions the offsets that they keep from readers of committed data.

    Args:
        opened: the findings on all open transactions.
        ends: one past the last offset of each log, by broker, topic and partition.
    """
    opened = list(opened)
    first: dict[tuple[str, str, int], int] = {}
    for finding in opened:
        assert finding.offset is not None, "an open transaction has a first batch"
        place = finding.broker, finding.topic, finding.partition
        first[place] = min(finding.offset, first.get(place, finding.offset))
    for finding in opened:
        place = finding.broker, finding.topic, finding.partition
        begin, end = first[place], ends[place]
        held = f"after the transaction at offset {begin}"
        if finding.offset == begin:
            held = f"readers of committed data get none of the {end - begin} offsets from {begin} to {end - 1}"
        yield replace(finding, evidence=f"{finding.evidence}; {held}")


def asked_about(hang: Iterable[Hanging]) -> set[Data]:
    """The data whose coordinator's decision a finding has to name: all except those that will end."""
    return {each.data for each in hang if each.finding.kind != Kind.TOLD}


def answers_about(
    wanted: Collection[Data], coordinators: Coordinators, partitions: Iterable[PartitionTransactions] = ()
) -> Answers:
    """The decisions about some data, by the logs of ``__transaction_state`` and by the markers of partitions."""
    parts: list[Answers] = [decisions_about(log.decisions, wanted) for log in coordinators.logs]
    return added([*parts, owners_of(wanted, coordinators), *(marked_about(each, wanted) for each in partitions)])


def marked_about(partition: PartitionTransactions, wanted: Collection[Data]) -> Answers:
    """The markers of a partition that ended data of the same epoch as some other data, as :class:`Answer` has them."""
    asked: dict[tuple[int, int], list[Data]] = defaultdict(list)
    for data in wanted:
        asked[data.producer_id, data.epoch].append(data)
    found: dict[Data, Answer] = defaultdict(Answer)
    for marker in partition.markers:
        if marker.ends is None or marker.decision is None or marker.ends.epoch != marker.epoch - 1:
            continue
        place = Marked(*partition.place, marker.offset)
        is_commit = marker.decision is ControlType.COMMIT
        answer = Answer(committed=place) if is_commit else Answer(aborted=place)
        for data in asked.get((marker.producer_id, marker.ends.epoch), ()):
            found[data] += answer
    return found


def owners_of(wanted: Collection[Data], coordinators: Coordinators) -> Answers:
    """The last states of the transactional ids that own some data."""
    owners = {data: coordinators.owner(data.producer_id) for data in wanted}
    return {
        data: answer_of(owner[0], owner[1], data, _LACKS[why_incomplete(owner[0])])
        for data, owner in owners.items()
        if owner is not None
    }


_LACKS = {None: "", STATE_COMPACTED: "no longer has", STATE_DAMAGED: "is damaged and may not have"}


def with_decisions(
    hang: Iterable[Hanging], ends: Mapping[tuple[str, str, int], int], answers: Answers
) -> Iterator[Finding]:
    """The findings on data that hang, with what they keep from readers, and with their coordinator's decisions.

    Args:
        hang: all of some logs.
        ends: see :func:`held_back`.
        answers: see :func:`answers_about`.
    """
    hang = list(hang)
    opened = [each for each in hang if each.replaced is None]
    held = held_back((each.finding for each in opened), ends)
    told = [each._replace(finding=finding) for each, finding in zip(opened, held, strict=True)]
    for each in (*told, *(each for each in hang if each.replaced is not None)):
        answer = answers.get(each.data, Answer())
        said = said_of(each.data, answer)
        finding, more = each.finding, ""
        if answer.owner is not None and said is not None:
            decision = "" if said.decided is None else said.decided.name
            name = unquoted(answer.owner.transactional_id)
            finding = replace(finding, transactional_id=name, decision=decision)
        if said is None:
            more = "" if each.replaced is None else "; its coordinator's decision is in no given log"
        elif each.replaced is not None and each.replaced.ended_at >= 0:
            more = f"; {said.words}{said.effect_of(each.replaced.decision)}"
        elif finding.kind != Kind.TOLD:
            follows = finding.is_violation or said.remedy.startswith(NOT_BY_HAND)
            more = f"; {said.words}" + (f": {said.remedy}" if follows else "")
        yield replace(finding, evidence=f"{finding.evidence}{more}")


def with_owner(finding: Finding, coordinators: Coordinators) -> Finding:
    """A finding with the transactional id that has its producer id, if that is known."""
    owner = None if finding.producer_id is None else coordinators.owner(finding.producer_id)
    return finding if owner is None else replace(finding, transactional_id=unquoted(owner[1].name))


def fenced(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, judged: "Judged") -> None:
    """Find data that were committed although a later epoch was in use already: InitProducerId gave it, or it ended."""
    recent_after = moments.common_recent_after(coordinators.logs)
    figures = judged.figures[FENCED]
    for marker in partition.markers:
        if marker.ends is None or marker.decision is not ControlType.COMMIT:
            continue
        _count(figures, "committed")
        data, owner = marker.ends, coordinators.owner(marker.producer_id)
        later = [epoch for pid, epoch in owner[1].grants if pid == marker.producer_id] if owner is not None else []
        given = next((epoch for epoch in later if data.epoch < epoch <= marker.epoch), None)
        if marker.epoch > data.epoch + 1:
            why = f"which no transaction of epoch {data.epoch} has"
        elif given is not None:
            why = f"after InitProducerId had given {given}"
        elif owner is None:
            is_recent = marker.stamped_ms + SKEW_MS > recent_after
            _count(figures, RECENT if is_recent else UNKNOWN)
            if not is_recent:
                judged.reasons[FENCED].count(coordinators.unknown_owner, partition.subject(marker))
            continue
        else:
            continue
        if data.holes < marker.holes:  # it may be of another transaction, whose data are in the hole
            _count(figures, UNKNOWN)
            judged.reasons[FENCED].count(COMMITTED_BEHIND_HOLE, partition.subject(marker))
            continue
        evidence = f"committed at offset {marker.offset} with epoch {marker.epoch}, {why}"
        judged.findings.append(partition.finding(FENCED, data, evidence))


def old_coordinators(partition: PartitionTransactions) -> Iterator[Finding]:
    """Find markers of coordinators that had been replaced."""
    highest: dict[int, int] = {}
    for marker in partition.markers:
        epoch, before = marker.coordinator_epoch, highest.get(marker.producer_id, -1)
        if epoch is None:
            continue
        highest[marker.producer_id] = max(before, epoch)
        if epoch < before:
            evidence = f"coordinator epoch {epoch} after coordinator epoch {before}"
            yield partition.finding(OLD_COORDINATOR, marker, evidence)


def without_transaction(
    partition: PartitionTransactions, coordinators: Coordinators, source: Source
) -> Iterator[Finding]:
    """The data without the transactional bit of producer ids that transactional ids of the cluster have or had."""
    for plain in partition.plain.values():
        owner = coordinators.owner(plain.producer_id)
        if owner is not None and source.are_of_one_cluster(partition.log, owner[0].log):
            more = plain.batches - 1
            evidence = f"no transactional bit, and the producer id is that of transactional id {quoted(owner[1].name)}"
            if more:
                evidence += f"; so {'is 1 more batch' if more == 1 else f'are {more} more batches'} here"
            yield with_owner(partition.finding(NO_BIT, plain, evidence), coordinators)


@dataclass(slots=True)
class Judged:
    """The result of the rules over transactions for some producer ids. Results for disjoint producer ids can be added.

    Attributes:
        findings: all findings, each with its kind, except those on open transactions.
        open: the findings on open transactions, without what :func:`with_decisions` adds.
        figures: for each rule, the numbers of what it looked at, could not judge, and found too recent.
        reasons: for each rule and reason, the subjects that could not be judged.
    """

    findings: list[Finding] = field(default_factory=list)
    open: list[Hanging] = field(default_factory=list)
    figures: dict[str, Figures] = field(
        default_factory=lambda: {
            TORN: {"markers": 0, UNKNOWN: 0, RECENT: 0},
            NO_TRANSACTION: {"markers": 0, UNKNOWN: 0, RECENT: 0},
            HANGING: {"transactions": 0, "open": 0, UNKNOWN: 0, RECENT: 0},
            FENCED: {"committed": 0, UNKNOWN: 0, RECENT: 0},
            OLD_COORDINATOR: {"markers": 0},
            NO_BIT: {"producer_ids": 0},
        }
    )
    reasons: dict[str, Reasons] = field(default_factory=lambda: defaultdict(Reasons))

    def add(self, other: "Judged") -> None:
        """Add the result for other producer ids."""
        self.findings += other.findings
        self.open += other.open
        for rule, figures in other.figures.items():
            for name, more in figures.items():
                _count(self.figures[rule], name, int(more))
        for rule, reasons in other.reasons.items():
            self.reasons[rule].add(reasons)

    def count_producer_ids(self, count: int) -> None:
        """Count producer ids of transactional ids, which have written to these logs."""
        _count(self.figures[NO_BIT], "producer_ids", count)

    def count_markers(self, markers: int, unknown: Reasons, recent: int = 0) -> None:
        """Count markers, and those that cannot be judged."""
        for rule in OF_MARKERS:
            _count(self.figures[rule], "markers", markers)
        for rule in (TORN, NO_TRANSACTION):
            _count(self.figures[rule], UNKNOWN, sum(unjudged.total for unjudged in unknown.values()))
            _count(self.figures[rule], RECENT, recent)
            self.reasons[rule].add(unknown)


def judge(partitions: Iterable[PartitionTransactions], coordinators: Coordinators, moments: Moments) -> Judged:
    """Judge all transactions of some producer ids.

    Args:
        partitions: the transactions of these producer ids in each log.
        coordinators: the coordinators' logs of these producer ids.
        moments: the moments of all logs.
    """
    partitions = list(partitions)
    judged, matching = Judged(), Matching()
    for partition in partitions:
        match(partition, coordinators, moments, matching)
        hanging(partition, coordinators, moments, judged)
        fenced(partition, coordinators, moments, judged)
        judged.findings += old_coordinators(partition)
        _count(judged.figures[HANGING], "transactions", sum(marker.ends is not None for marker in partition.markers))
    judged.findings += [*contradictions(matching), *torn_by_epoch(matching)]
    judged.findings = [with_owner(each, coordinators) for each in judged.findings]
    markers = sum(len(partition.markers) for partition in partitions)
    judged.count_markers(markers, matching.reasons, len(matching.recent))
    return judged


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


def missing(partition: Log, owed: Owed, there: There, moments: Moments, judged: "Judged") -> None:
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
    figures = judged.figures[TORN]
    _count(figures, "markers", lost)
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
    elif markers < later and owed.completed_ms + SKEW_MS > moments.recent_after(partition):
        _count(figures, RECENT, lost)
    else:
        why = OTHER_MOMENT if markers < later else MADE_AGAIN
        if why is OTHER_MOMENT and moments.source.is_incomplete(partition.log, partition.end):
            why = INCOMPLETE
        _count(figures, UNKNOWN, lost)
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


@dataclass(slots=True)
class TransactionAudit:
    """The result of the rules over transactions.

    Attributes:
        findings: all findings, each with its kind.
        figures: for each rule, the numbers of what it looked at, could not judge, and found too recent.
        moments: the moments of the logs.
        reasons: for each rule and reason, the subjects that could not be judged.
    """

    findings: Collection[Finding]
    figures: dict[str, Figures]
    moments: Moments
    reasons: dict[str, Reasons]


def audit_transactions(
    replicas: Iterable[PartitionTransactions],
    coordinator_logs: Iterable[CoordinatorLog],
    source: Source = ONE_MOMENT,
    *,
    coordinators_given: bool = False,
) -> TransactionAudit:
    """Judge the transactions of partitions by the coordinators' logs, only by the readable rules.

    Args:
        replicas: the replicas of the partitions of one cluster.
        coordinator_logs: the replicas of ``__transaction_state`` of the same cluster that have records.
        source: what is known of the moments of the logs.
        coordinators_given: whether there are logs of ``__transaction_state`` without records.
    """
    replicas, coordinator_logs = list(replicas), list(coordinator_logs)
    moments = Moments(source, [*replicas, *coordinator_logs])
    partitions = longest(replicas)
    coordinators = Coordinators(longest(coordinator_logs), given=coordinators_given)
    judged = judge(partitions, coordinators, moments)
    judged.add(lost_markers(partitions, coordinators, moments, known_since(replicas, moments)))
    writers = {pid for partition in partitions for pid in partition.producer_ids}
    judged.count_producer_ids(sum(coordinators.owner(pid) is not None for pid in writers))
    for partition in partitions:
        judged.findings += without_transaction(partition, coordinators, source)
    ends = {(each.log.broker, each.log.topic, each.log.partition): each.end for each in partitions}
    answers = answers_about(asked_about(judged.open), coordinators, partitions)
    findings = [*judged.findings, *with_decisions(judged.open, ends, answers)]
    return TransactionAudit(findings, judged.figures, moments, judged.reasons)


_Log = TypeVar("_Log", bound=Ended)


def longest(logs: Iterable[_Log]) -> list[_Log]:
    """The longest replica of each partition."""
    best: dict[Place, _Log] = {}
    for log in logs:
        place = log.log.topic, log.log.partition
        if place not in best or log.end > best[place].end:
            best[place] = log
    return list(best.values())
