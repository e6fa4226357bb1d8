"""Recorded coordinator logs as traces of TransactionCoordinator: transitions and markers must be the spec's.

The records of one transactional id in ``__transaction_state`` are the states that the coordinator made durable. The
control batches in the partitions are the markers that it had written. Between two records the spec takes steps that no
log shows:

==============================  ====================================================================================
a record                        the steps that explain it
==============================  ====================================================================================
EMPTY                           HandleInitProducerId, with or without the client's producer id and epoch
ONGOING                         HandleAddPartition for each new partition (one request may add several)
PREPARE_COMMIT                  HandleEndTxn
PREPARE_ABORT                   HandleEndTxn; or a fence (HandleInitProducerId, TimeOut if it is due) and AbortFenced
COMPLETE_COMMIT, _ABORT         WriteMarker for each marker that the partitions have, FindNoLeader for the others, then
                                CompleteTransaction
none (a tombstone)              ExpireTransactionalId
==============================  ====================================================================================

A log that was compacted lacks its first records. Then a trace begins in the state of the last record before the place
from which on none is missing; that record is not judged, and markers up to its epoch may be of earlier transactions.
The markers of a partition whose first batches are gone are taken for written, up to the first one that is there. Which
marker is of which decision is told by :mod:`kafka_eos_checks.traces.markers`. A topic that was deleted and made again
lacks the markers of decisions that were complete before: they are taken for written if the trace is rejected without
them.

Each ends in AppendIsReplicated, after which the durable record must equal the record read from the log. If the next
record follows from the state before a record, and not from the record, the coordinator gave the record's append up: it
ends in AppendTimesOut, and with the next append the log has it, too. A higher leader
epoch of the log's batches is a Failover. A marker belongs to the transaction with its producer id, epoch and decision,
and to the coordinator with its coordinator epoch. A marker that no transaction explains is a step that the spec
refuses.

Kafka: TransactionLogValue, TransactionStateManager, EndTransactionMarker
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.log_directory import Partition, find_log_directories
from kafka_eos.formats.record_batch import ControlType, RecordBatch
from kafka_eos.formats.segment import CorruptRegion, RegionKind, StoredBatch, read_segment
from kafka_eos.formats.transaction_log import (
    TOPIC,
    MalformedTransactionRecord,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
)
from kafka_eos.machines.spec_mapping import SpecValue
from kafka_eos.machines.transaction_coordinator import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Constants,
    Rules,
    TransactionCoordinator,
    TransactionMetadata,
)
from kafka_eos.machines.transactional_partition import PLAIN, TRANSACTIONAL
from kafka_eos_checks.audit.rules.coordinator import COMPLETED, PREPARED
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.tla.values import format_value
from kafka_eos_checks.traces.markers import (
    EMPTY_MS,
    Decided,
    FirstBatch,
    MarkersOf,
    Matched,
    WrittenBatch,
    WrittenMarker,
    begin_of_new,
    matched,
    with_repeats,
)
from kafka_eos_checks.traces.transitions import Transition, is_late, name_of, open_ms, transition_of
from kafka_eos_checks.traces.validation import NOTHING, Candidate, Trace, TraceStep

MAX_EPOCH = 32767
LEAVES_OUT = "MarkersWithoutLeader"  # the rule by which a coordinator leaves a marker out, see spec/releases.toml
REPLICATED, GIVEN_UP = Candidate("AppendIsReplicated"), Candidate("AppendTimesOut")
NOBODY = Candidate("HandleInitProducerId", (NO_PRODUCER_ID, NO_EPOCH))

_COMPLETION = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}

FAULTS = frozenset({"append times out", "failover", "timeout", "expiry", "no leader"})
_FAULTS = {
    "AppendTimesOut",
    "Failover",
    "TimeOut",
    "ExpireTransactionalId",
    "FindNoLeader",
}  # the actions whose number a model bounds


class UnreadableLog(ValueError):  # noqa: N818 - named for the input
    """A log that gives no trace, because it is damaged; the message has file, position and reason."""


class StateRecord(NamedTuple):
    """A record of ``__transaction_state`` with the leader epoch of its batch; ``value`` is None for a tombstone."""

    leader_epoch: int
    offset: int
    value: TransactionLogValue | None


class ToldRecord(NamedTuple):
    """A :class:`StateRecord` with the fields of its value that a trace needs."""

    leader_epoch: int
    offset: int
    told: Transition | None


Observed = tuple[tuple[str, SpecValue], ...]  # places and the values seen there

Entries = Mapping[str, list[WrittenBatch | WrittenMarker]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The transactions in the logs of a cluster.

    Attributes:
        records: by transactional id, in log order.
        entries: by partition (``topic-number``), in log order.
        begins: log -> the offset from which on it lacks nothing, for logs that lack something.
        given: transactional id -> the same of the log with its records; its trace begins with the last one before.
        new: log -> the time of its first batch in ms, for logs that were new then.
        are_apart: whether the logs may be of different moments, because brokers wrote while they were copied.
    """

    records: Mapping[str, list[StateRecord]]
    entries: Entries
    begins: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    new: Mapping[str, int] = field(default_factory=dict)
    are_apart: bool = False

    @property
    def markers(self) -> dict[str, list[WrittenMarker]]:
        """The control batches, by partition, in log order; markers that may be repetitions are flagged."""
        return {name: list(with_repeats(rows, is_cut=name in self.begins)) for name, rows in self.entries.items()}

    @property
    def transactions(self) -> int:
        """The number of decided transactions."""
        return sum(r.value is not None and r.value.transaction_status in PREPARED for r in self._all_records())

    @property
    def absent(self) -> dict[str, list[str]]:
        """Transactional id -> the partitions of its transactions whose logs are not there."""
        return {name: absent_partitions(map(told, rows), self.entries) for name, rows in self.records.items()}

    def from_begin(self, transactional_id: str) -> list[StateRecord]:
        """The records of a transactional id from which a trace is made, see :func:`since`."""
        return since(self.records[transactional_id], self.given.get(transactional_id, 0))

    def _all_records(self) -> Iterator[StateRecord]:
        for records in self.records.values():
            yield from records


# --- reading -----------------------------------------------------------------------------------------------------


def read_recorded(folder: Path) -> Recorded:
    """Read the log directories of one or several brokers: the longest replica of each partition.

    Raises:
        UnreadableLog: a log is damaged.
    """
    replicas: dict[str, Partition] = {}
    for directory in find_log_directories(folder):
        for partition in directory.partitions:
            name = f"{partition.topic}-{partition.partition}"
            if name not in replicas or _size(partition) > _size(replicas[name]):
                replicas[name] = partition
    records: dict[str, list[StateRecord]] = defaultdict(list)
    entries: dict[str, list[WrittenBatch | WrittenMarker]] = {}
    begins: dict[str, int] = {}
    given: dict[str, int] = {}
    new: dict[str, int] = {}
    for name, replica in sorted(replicas.items()):
        batches = list(_batches(replica))
        begin = _first_whole(replica, batches)
        if begin:
            begins[name] = begin
        if replica.topic == TOPIC:
            for key, record in _state_records(name, batches):
                records[key].append(record)
                if begin:
                    given[key] = begin
        else:
            entries[name] = list(_entries(name, (each for each in batches if each.batch.base_offset >= begin)))
            if batches or not begin:
                new[name] = begin_of_new(_first_batch(batches))
    return Recorded(dict(records), entries, begins, given, {name: ms for name, ms in new.items() if ms >= 0})


_Placed = TypeVar("_Placed", StateRecord, ToldRecord)
_Decoded = TypeVar("_Decoded")


def since(records: Sequence[_Placed], begin: int) -> list[_Placed]:
    """The records from the last one before an offset on, because the log lacks some that are before it."""
    earlier = sum(record.offset < begin for record in records)
    return list(records[max(earlier - 1, 0) :])


def _first_whole(partition: Partition, batches: Iterable[StoredBatch]) -> int:
    """The offset from which on a log lacks nothing: 0, or where its last hole ends."""
    begin = expected = 0
    for stored in batches:
        batch = stored.batch
        if batch.base_offset != expected:
            begin = batch.base_offset
        expected = batch.next_offset
        if _is_cleaned(partition, batch):
            begin = expected
    ends = max((segment.base_offset for segment in partition.segments), default=0)
    return ends if ends > expected else begin


def _first_batch(batches: Sequence[StoredBatch]) -> FirstBatch | None:
    if not batches:
        return None
    first = batches[0].batch
    return FirstBatch(first.base_offset, first.partition_leader_epoch, first.max_timestamp)


def _is_cleaned(partition: Partition, batch: RecordBatch) -> bool:
    """Whether the cleaner has taken a record out of a batch that a trace needs."""
    if partition.topic == TOPIC:
        return batch.record_count != batch.last_offset_delta + 1
    return batch.is_control and not batch.record_count


def _size(partition: Partition) -> int:
    return sum(segment.log.stat().st_size for segment in partition.segments)


def _batches(partition: Partition) -> Iterator[StoredBatch]:
    for segment in partition.segments:
        for region in read_segment(segment.log):
            if isinstance(region, CorruptRegion):
                unfinished = region.kind in {RegionKind.TORN_TAIL, RegionKind.ZEROES}
                if unfinished and segment is partition.segments[-1]:
                    return  # a crash cut off the last write of the log
                raise UnreadableLog(f"{segment.log.name} at byte {region.position}: {region.reason}")
            yield region


def _state_records(name: str, batches: Iterable[StoredBatch]) -> Iterator[tuple[str, StateRecord]]:
    for stored in batches:
        batch = stored.batch
        for record in _decoded(name, batch, RecordBatch.records):
            offset = batch.base_offset + record.offset_delta
            try:
                key, value = decode_key(record.key or b""), decode_value(record.value)
            except MalformedTransactionRecord as error:
                raise UnreadableLog(f"{name} offset {offset}: {error}") from None
            yield key.transactional_id, StateRecord(batch.partition_leader_epoch, offset, value)


def _decoded(name: str, batch: RecordBatch, decode: Callable[[RecordBatch], _Decoded]) -> _Decoded:
    """The records of a log's batch, or its marker, although a batch with the right CRC may have none of the format."""
    try:
        return decode(batch)
    except MalformedBatch as error:
        raise UnreadableLog(f"{name} offset {batch.base_offset}: {error}") from None


def _entries(name: str, batches: Iterable[StoredBatch]) -> Iterator[WrittenBatch | WrittenMarker]:
    for stored in batches:
        batch = stored.batch
        writer, offset = (batch.producer_id, batch.producer_epoch), batch.base_offset
        control = _decoded(name, batch, RecordBatch.control_record)
        if control is not None:
            yield WrittenMarker(*writer, control.control_type, control.coordinator_epoch, offset)
        elif batch.producer_id != NO_PRODUCER_ID and not batch.is_control:
            yield WrittenBatch(*writer, TRANSACTIONAL if batch.is_transactional else PLAIN, offset)


class Age(NamedTuple):
    """The age of a transaction when it was aborted, and its own timeout; both in milliseconds."""

    open_ms: int
    own_ms: int
    transactional_id: str


def expired(recorded: Recorded) -> Iterator[Age]:
    """The transactions that were aborted after their own timeout."""
    for transactional_id, records in recorded.records.items():
        for row in records:
            value = row.value
            if value is not None and value.transaction_status is TransactionState.PREPARE_ABORT and is_late(value):
                yield Age(open_ms(value), value.transaction_timeout_ms, transactional_id)


# --- records and markers as steps --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Steps:
    """The trace of one transactional id while it is built.

    Attributes:
        markers: the markers of its producers that no step has used yet.
        absent: partitions whose logs are not there; their markers are taken for written.
        assumed: partitions with the offsets of decisions whose markers there are taken for written.
        missing: the same of decisions whose markers are missing there.
        names: partition -> its name in the steps; None to use its own name. The names start again with each
            transaction, so that transactions of the same form have the same steps.
        steps: the steps of the latest record.
        last: the previous record.
        at: its offset.
        former: the producer id and epoch before the present ones: who presents them is given the present ones again.
        since: the leader epoch of that record: no older coordinator writes markers for it.
        reign: the present leader epoch of the log's partition, -1 before the first record.
        ids: the producer ids in the order in which they were handed out; the spec calls them 0, 1, 2 …
    """

    markers: MarkersOf
    absent: Container[str] = ()
    assumed: set[tuple[str, int]] = field(default_factory=set)
    missing: set[tuple[str, int]] = field(default_factory=set)
    names: dict[str, str] | None = None
    steps: list[TraceStep] = field(default_factory=list)
    last: Transition | None = None
    at: int = -1
    former: tuple[int, int] = (NO_PRODUCER_ID, NO_EPOCH)
    since: int = -1
    reign: int = -1
    ids: list[int] = field(default_factory=list)

    def number(self, producer_id: int) -> int:
        """The spec's name of a producer id."""
        if producer_id == NO_PRODUCER_ID:
            return NO_PRODUCER_ID
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def name(self, partition: str) -> str:
        """The name of a partition in the steps."""
        if self.names is None:
            return partition
        return self.names.setdefault(partition, f"p{len(self.names)}")

    def take(self, candidates: tuple[Candidate, ...], observed: Observed = (), text: str = "") -> None:
        """Add a step."""
        self.steps.append(_step(candidates, observed) if self.names is not None else named(candidates, observed, text))

    def follow(self, record: ToldRecord) -> None:
        """Add the steps of the next record."""
        told = record.told
        unmarked: frozenset[str] = frozenset()
        if told is not None and told.state in COMPLETED and self.last is not None:
            unmarked = self.mark(self.last, record.leader_epoch)
        self.move(record.leader_epoch)
        text = "" if self.names is not None else f"offset {record.offset}: {told.state.name if told else 'a tombstone'}"
        if told is None:
            self.take((Candidate("ExpireTransactionalId"),), text=text)
            self.take((REPLICATED,), (("durable.state", "DEAD"),), text)
        else:
            for name in sorted(unmarked):
                step = _marks if name in self.absent or (name, self.at) in self.assumed else _leaves_out
                self.take(step(self.name(name)), text=text)
            self.begin(told, text)
            self.take((REPLICATED,), self.observed(told), text)
        if self.names and (told is None or not told.partitions):
            self.names.clear()
        self.last, self.at, self.since = told, record.offset, record.leader_epoch

    def give_up(self, record: ToldRecord) -> None:
        """Add the steps of a record whose append was given up: the coordinator is where it was before them."""
        told, former = record.told, self.former
        assert told is not None, "a tombstone comes before every state"
        if told.state in COMPLETED:
            return  # it is tried until it succeeds, and its markers come before that
        self.move(record.leader_epoch)
        text = "" if self.names is not None else f"offset {record.offset}: {told.state.name}, given up"
        self.begin(told, text, GIVEN_UP)
        self.take((GIVEN_UP,), text=text)
        self.former = former

    def move(self, leader_epoch: int) -> None:
        """Add a Failover if the log's leader epoch has risen."""
        if 0 <= self.reign < leader_epoch:
            self.take((Candidate("Failover", (0,)),), text=f"leader epoch {leader_epoch}")
        self.reign = max(self.reign, leader_epoch)

    def begin(self, told: Transition, text: str, ends: Candidate = REPLICATED) -> None:
        """Add the steps that lead to the append of a record; ``ends``: how the appends before it end."""
        state, version, last = told.state, told.version, self.last
        producer_id, epoch = (told.producer_id, NO_EPOCH) if last is None else (last.producer_id, last.epoch)
        asked = self.number(producer_id), epoch
        if last is None or (told.producer_id, told.epoch) != (producer_id, epoch):
            self.former = asked
        if state is TransactionState.EMPTY:
            self.take(_initialises(self.former, known=last is not None), text=text)
        elif state is TransactionState.ONGOING:
            known = last.partitions if last is not None and last.state is TransactionState.ONGOING else frozenset()
            added = sorted(told.partitions - known)
            for place, partition in enumerate(added):
                if place:
                    self.take((ends,), text=text)
                self.take(_adds((*asked, self.name(partition), version)), text=text)
            if not added:
                self.take(_adds((*asked, "", version)), text=text)
        elif state is TransactionState.PREPARE_COMMIT:
            self.take(_commits((*asked, True, version)), text=text)
        elif state is TransactionState.PREPARE_ABORT:
            self.take(_aborts((*asked, False, version), late=told.late), text=text)
            self.take((Candidate("AbortFenced"), Candidate(NOTHING)), text=text)
        else:
            self.take((Candidate("CompleteTransaction"),), text=text)

    def observed(self, told: Transition) -> Observed:
        """The durable record in the log. Before Kafka 4.3 it lacks the next producer id (KAFKA-20310)."""
        seen: Observed = (
            ("durable.state", told.state.name),
            ("durable.producerId", self.number(told.producer_id)),
            ("durable.epoch", told.epoch),
            ("durable.partitions", frozenset(map(self.name, told.partitions))),
        )
        if told.next_producer_id == NO_PRODUCER_ID:
            return seen
        return (*seen, ("durable.nextProducerId", self.number(told.next_producer_id)))

    def mark(self, prepared: Transition, until: int | None) -> frozenset[str]:
        """Add the markers of a decision, up to a leader epoch (None: all), those of each coordinator in its turn.

        Returns:
            The partitions without one of the last coordinator.
        """
        if prepared.state not in PREPARED:
            return frozenset()
        passed = self.assumed | self.missing if self.missing else self.assumed
        partitions = sorted(name for name in prepared.partitions if (name, self.at) not in passed)
        marked: dict[str, int] = {}
        reigns = {reign for name in partitions for reign in self.markers.reigns(name, prepared, self.since, until)}
        for reign in sorted(reigns):
            self.move(reign)
            for name in partitions:
                first = self.markers.take(name, prepared, reign)
                if first is not None:
                    marked[name] = reign
                    text = "" if self.names is not None else _marker_text(name, first)
                    self.take(_marks(self.name(name)), text=text)
        return frozenset(name for name in prepared.partitions if marked.get(name) != until)

    def finish(self) -> None:
        """Add the markers of a transaction that is still being completed, and those that no transaction explains."""
        if self.last is not None:
            self.mark(self.last, None)
        for name, marker in self.markers.left():
            if marker.producer_id in self.ids:
                self.take(_marks(self.name(name)), text=f"{_marker_text(name, marker)}, of no transaction")

    def begin_after(self, record: ToldRecord) -> None:
        """Begin in the state of a record, see :func:`starts_of`."""
        self.last, self.at = record.told, record.offset
        self.since = self.reign = record.leader_epoch
        if record.told is not None:
            _name_all(record.told, self.number, self.name)
            self.former = self.number(record.told.producer_id), record.told.epoch - 1


def _name_all(told: Transition, number: Callable[[int], int], name: Callable[[str], str]) -> None:
    """Give the producer ids and partitions of the record in whose state a trace begins the first names."""
    for producer_id in (told.producer_id, told.next_producer_id):
        number(producer_id)
    for partition in sorted(told.partitions):
        name(partition)


def starts_of(record: ToldRecord | None, *, rename: bool = False) -> tuple[Mapping[str, Any], ...]:
    """The states of the coordinator in which a trace may begin: it has read a record, or written it.

    Only a coordinator that has written it knows the epoch before.

    Args:
        record: the record; None if the trace begins before any. After a tombstone, it is as if there were none.
        rename: as for :func:`steps_of`.
    """
    if record is None or record.told is None:
        return ()
    told, named = record.told, _Steps(MarkersOf(()), names={} if rename else None)
    _name_all(told, named.number, named.name)
    durable = TransactionMetadata(
        producer_id=named.number(told.producer_id),
        previous_producer_id=named.number(told.producer_id),
        next_producer_id=named.number(told.next_producer_id),
        epoch=told.epoch,
        state=told.state,
        partitions=frozenset(map(named.name, told.partitions)),
        version=told.version,
    )
    pending = _COMPLETION.get(told.state)
    return tuple(
        {
            "metadata": replace(durable, pending=pending, last_epoch=last_epoch),
            "durable": durable,
            "to_mark": durable.partitions if pending is not None else frozenset(),
            "allocated": len(named.ids),
        }
        for last_epoch in sorted({NO_EPOCH, told.epoch - 1})
    )


def is_given_up(told: Transition | None, following: Transition | None) -> bool:
    """Whether a coordinator gave the append of a record up, because it went on from the state before it.

    Args:
        told: the record.
        following: the next record, None if it is another coordinator's.

    Kafka: TransactionStateManager.appendTransactionToLog
    """
    if told is None or following is None:
        return False
    if told.state in PREPARED:
        return following.state not in COMPLETED
    if told.state in COMPLETED:
        return following.state is told.state
    if told.state is TransactionState.EMPTY:
        return following.producer_id == told.producer_id and following.epoch < told.epoch
    if following.state is TransactionState.ONGOING:
        return not told.partitions < following.partitions
    return following.state is TransactionState.EMPTY or (
        following.state in PREPARED and not told.partitions <= following.partitions
    )


# The same few steps explain nearly all records, so each is cached.


@lru_cache(maxsize=1 << 14)
def _step(candidates: tuple[Candidate, ...], observed: Observed) -> TraceStep:
    return named(candidates, observed, "")


def named(candidates: tuple[Candidate, ...], observed: Observed, text: str) -> TraceStep:
    """A step with a text for its event."""
    return TraceStep(candidates, dict(observed), text)


@lru_cache(maxsize=1 << 12)
def _initialises(asked: tuple[int, int], *, known: bool) -> tuple[Candidate, ...]:
    return (NOBODY, Candidate("HandleInitProducerId", asked)) if known else (NOBODY,)


@lru_cache(maxsize=1 << 12)
def _adds(arguments: tuple[int, int, str, int]) -> tuple[Candidate, ...]:
    return (Candidate("HandleAddPartition", arguments),)


@lru_cache(maxsize=1 << 12)
def _commits(arguments: tuple[int, int, bool, int]) -> tuple[Candidate, ...]:
    return (Candidate("HandleEndTxn", arguments),)


@lru_cache(maxsize=1 << 12)
def _aborts(arguments: tuple[int, int, bool, int], *, late: bool) -> tuple[Candidate, ...]:
    again = Candidate("HandleInitProducerId", arguments[:2])
    times_out = (Candidate("TimeOut"),) if late else ()
    return (Candidate("HandleEndTxn", arguments), NOBODY, again, *times_out)


@lru_cache(maxsize=1 << 12)
def _marks(partition: str) -> tuple[Candidate, ...]:
    return (Candidate("WriteMarker", (partition,)),)


@lru_cache(maxsize=1 << 12)
def _leaves_out(partition: str) -> tuple[Candidate, ...]:
    return (Candidate("FindNoLeader", (partition,)),)


def _marker_text(name: str, marker: WrittenMarker) -> str:
    return f"{marker.decision.name} marker of epoch {marker.epoch} at {name} offset {marker.offset}"


def steps_of(
    records: Sequence[ToldRecord],
    order: Mapping[str, Matched],
    absent: Container[str] = (),
    *,
    given: ToldRecord | None = None,
    rename: bool = False,
) -> Iterator[TraceStep]:
    """The trace of one transactional id.

    Args:
        records: its records, in log order.
        order: its markers by partition, see :func:`compared`.
        absent: partitions whose logs are not there; their markers are taken for written.
        given: the record in whose state the trace begins, see :func:`split_given`.
        rename: name partitions by their number in their transaction, and leave out the texts. The coordinator treats
            all partitions alike, so the verdict is the same, and a judge that remembers steps sees the same steps
            again.
    """
    own = ((name, marker) for name, found in order.items() for marker in found.markers)
    built = _Steps(MarkersOf(own), absent, names={} if rename else None)
    built.assumed = {(name, offset) for name, found in order.items() for offset in found.assumed}
    built.missing = {(name, offset) for name, found in order.items() for offset in found.missing}
    if given is not None:
        built.begin_after(given)
    for record, following in pairwise(chain(records, (None,))):
        assert record is not None, "only the last one has none after it"
        if _is_left(record, following):
            built.give_up(record)
        else:
            built.follow(record)
        yield from built.steps
        built.steps.clear()
    built.finish()
    yield from built.steps


def compared(
    records: Sequence[ToldRecord],
    markers: Iterable[tuple[str, WrittenMarker]],
    absent: Container[str] = (),
    *,
    cut: Collection[str] = (),
    given: ToldRecord | None = None,
    leaves_out: bool = False,
    new: Mapping[str, int] = MappingProxyType({}),
    are_apart: bool = False,
) -> dict[str, Matched]:
    """The markers of a transactional id by partition, compared with its decisions about it.

    Args:
        records: its records, in log order.
        markers: the markers of its producers with their partitions, those of each partition in log order.
        absent: partitions whose logs are not there.
        cut: partitions whose first batches are gone; their markers are taken for written up to the first that is there.
        given: the record in whose state its trace begins.
        leaves_out: whether the coordinator may leave the marker of a partition without a leader out, as Kafka 4.3 does.
            Then the order of markers tells nothing, and those that are gone may as well have been left out.
        new: partitions that may have been made again, with the time of their first batch: the markers of decisions that
            were complete before are taken for written.
        are_apart: whether the logs may be of different moments. Then markers of decisions after the last record are
            left out, and those of the last decisions are taken for written, if they are not there.
    """
    there: dict[str, list[WrittenMarker]] = defaultdict(list)
    for name, marker in markers:
        there[name].append(marker)
    first = None if given is None else given.told
    every = (*(() if given is None else (given,)), *records)
    last = next((record.told for record in reversed(every) if record.told is not None), None) if are_apart else None
    if leaves_out:
        return {name: _loose(own, first, last) for name, own in there.items()}
    decided: dict[str, list[Decided]] = defaultdict(list)
    earlier: dict[str, list[Decided]] = defaultdict(list)
    for before, after in pairwise((*every, None)):
        if before is None or before.told is None or before.told.state not in PREPARED:
            continue
        completed = None if after is None or after.told is None or after.told.state not in COMPLETED else after.told
        if completed is None and after is not None:
            continue
        key = (before.told.producer_id, before.told.epoch, PREPARED[before.told.state])
        until = after.leader_epoch if after is not None else -1
        decision = Decided(before.offset, key, completed is not None, until)
        completed_ms = EMPTY_MS if completed is None else completed.updated_ms
        for name in before.told.partitions:
            (earlier if completed_ms < new.get(name, -1) else decided)[name].append(decision)
    for name, complete in earlier.items():
        _put_back(complete, decided[name], there[name])
    found: dict[str, Matched] = {}
    for name in sorted(there.keys() | decided.keys() | earlier.keys()):
        if name not in absent:
            own = matched(decided.get(name, ()), there[name], given=first, is_cut=name in cut, last=last)
            gone = frozenset(decision.offset for decision in earlier.get(name, ()))
            found[name] = replace(own, assumed=own.assumed | gone, is_new=True) if gone else own
    return found


def _put_back(earlier: list[Decided], decided: list[Decided], markers: Sequence[WrittenMarker]) -> None:
    """Take the decision whose marker begins a log out of those that were complete before the log.

    A coordinator stamps the completion of a decision before it sends its markers.

    Kafka: TransactionCoordinator.endTransaction
    """
    if markers and markers[0].offset == 0:
        place = max((at for at, each in enumerate(earlier) if each.key == markers[0][:3]), default=len(earlier))
        decided[:0] = earlier[place:]
        del earlier[place:]


def ragged_in(order: Mapping[str, Matched]) -> tuple[str, ...]:
    """The partitions in which the end of a trace is not judged, because the logs are of different moments."""
    return tuple(name for name, found in order.items() if found.is_ragged)


def new_in(order: Mapping[str, Matched]) -> tuple[str, ...]:
    """The partitions that were made again after decisions of a trace, whose markers are taken for written."""
    return tuple(name for name, found in order.items() if found.is_new)


def _loose(markers: Iterable[WrittenMarker], first: Transition | None, last: Transition | None) -> Matched:
    """The markers of a partition; those that may be of transactions before or after a trace need not be of its own.

    Args:
        markers: the markers.
        first: the record in whose state the trace begins, if it does not begin before any.
        last: the last record, if the logs may be of different moments.
    """

    def is_beside(marker: WrittenMarker) -> bool:
        is_earlier = first is not None and marker.producer_id == first.producer_id and marker.epoch <= first.epoch
        is_later = last is not None and marker.producer_id == last.producer_id and marker.epoch >= last.epoch
        return is_earlier or is_later

    return Matched([marker._replace(again=True) if is_beside(marker) else marker for marker in markers])


def _is_left(record: ToldRecord, following: ToldRecord | None) -> bool:
    """Whether the coordinator gave the append of a record up, as the next record of the same coordinator tells."""
    told = following.told if following is not None and following.leader_epoch == record.leader_epoch else None
    return is_given_up(record.told, told)


def split_given(records: Sequence[ToldRecord], *, given: bool) -> tuple[ToldRecord | None, Sequence[ToldRecord]]:
    """The record in whose state a trace begins, and the records that it judges.

    Args:
        records: the records of a transactional id.
        given: whether its log lacks records before the first; then the trace begins after the first one whose append
            was not given up. If not, it begins before the first.
    """
    if not given:
        return None, records
    for place, (record, following) in enumerate(pairwise((*records, None))):
        if record is not None and not _is_left(record, following):
            return record, records[place + 1 :]
    return None, ()


def absent_partitions(records: Iterable[ToldRecord], here: Container[str]) -> list[str]:
    """The partitions of a transactional id's transactions whose logs are not there, in order."""
    return sorted({name for record in records if record.told for name in record.told.partitions if name not in here})


def told(record: StateRecord) -> ToldRecord:
    """A record with the fields of its value that a trace needs."""
    value = record.value
    return ToldRecord(record.leader_epoch, record.offset, None if value is None else transition_of(value))


def coordinator_traces(recorded: Recorded, *, leaves_out: bool = False) -> list[Trace]:
    """A trace for each transactional id; the markers of partitions that are not there are taken for written.

    A transactional id has none if nothing follows the record in whose state its trace begins.

    Args:
        recorded: the logs.
        leaves_out: as for :func:`steps_of`.
    """
    traces, absent = [], recorded.absent
    of_producer: dict[int, list[tuple[str, WrittenMarker]]] = defaultdict(list)
    for name, found in sorted(recorded.markers.items()):
        for marker in found:
            of_producer[marker.producer_id].append((name, marker))
    for transactional_id in sorted(recorded.records):
        records = recorded.from_begin(transactional_id)
        mine = {row.value.producer_id for row in records if row.value is not None}
        markers = (row for producer_id in sorted(mine) for row in of_producer.get(producer_id, ()))
        given, rest = split_given(list(map(told, records)), given=transactional_id in recorded.given)
        without = absent[transactional_id]
        compare = partial(compared, rest, markers, without, cut=recorded.begins, given=given)
        order = compare(leaves_out=leaves_out, new=recorded.new, are_apart=recorded.are_apart)
        steps = tuple(steps_of(rest, order, without, given=given))
        trace = Trace(transactional_id, steps, starts_of(given), ragged_in(order), new_in(order))
        if trace.steps or given is None:
            traces.append(trace)
    return traces


class UncountedRules(Rules):
    """The coordinator's decisions, which do not count transactions."""

    __slots__ = ()

    def after_add(self, known: TransactionMetadata, partition: str, version: int) -> TransactionMetadata:
        """The metadata with one more partition."""
        return replace(Rules.after_add(self, known, partition, version), number=0)

    def after_end(
        self, known: TransactionMetadata, commit: bool, version: int, next_producer_id: int
    ) -> TransactionMetadata:
        """The metadata after the end is decided."""
        return replace(Rules.after_end(self, known, commit, version, next_producer_id), number=0)


class CoordinatorOfTraces(TransactionCoordinator):
    """The coordinator of a trace. It does not count transactions: only properties read their number, and no rule does.

    With the number no state would occur twice. Without it a transaction that has the form of an earlier one, with the
    same epoch, leads through the same states.
    """

    __slots__ = ()

    LIMITS: ClassVar[type[Rules]] = UncountedRules


UNCOUNTED = 2**63  # more faults than any trace has


def coordinator_constants(versions: frozenset[int], trace: Trace | None = None) -> Constants:
    """The constants by which the reference alone judges one trace; without one, all traces.

    Args:
        versions: the transaction versions that the cluster knows.
        trace: the trace; its faults bound the search for an explanation.
    """
    return Constants(
        producer_ids=frozenset(),
        max_epoch=MAX_EPOCH,
        partitions=frozenset(),
        versions=versions,
        faults=FAULTS,
        max_faults=UNCOUNTED if trace is None else faults_of(trace) + 1,
    )


def faults_of(trace: Trace) -> int:
    """The number of faults that a trace may have had."""
    return sum(candidate.action in _FAULTS for step in trace.steps for candidate in step.candidates)


def coordinator_model(model: Model, traces: Iterable[Trace], *, versions: frozenset[int]) -> Model:
    """A model of TransactionCoordinator with the constants of some traces.

    Args:
        model: ``CoordinatorOfTraces``.
        traces: the traces.
        versions: the transaction versions that the cluster knows: {1} before Kafka 4.0.
    """
    steps = [step for trace in traces for step in trace.steps]
    candidates = [candidate for step in steps for candidate in step.candidates]
    ids = {c.arguments[0] for c in candidates if c.action in {"HandleInitProducerId", "HandleEndTxn"}}
    ids |= {v for s in steps for place, v in s.observed.items() if place.lower().endswith("producerid")}
    partitions = {c.arguments[2] for c in candidates if c.action == "HandleAddPartition"}
    partitions |= {c.arguments[0] for c in candidates if c.action == "WriteMarker"}
    faults = max(map(faults_of, traces), default=0)
    constants = {
        "ProducerIds": format_value(frozenset(i for i in ids if i != NO_PRODUCER_ID) or frozenset({0})),
        "MaxEpoch": str(MAX_EPOCH),
        "Partitions": format_value(frozenset(partitions) or frozenset({"none"})),
        "Versions": format_value(versions),
        "Faults": format_value(FAULTS),
        "MaxFaults": str(faults + 1),
    }
    return replace(model, name=f"{model.name}Recorded", constants=constants, bounds="", probes=(), graph="")


# --- copies that must be rejected --------------------------------------------------------------------------------


def _place_of(trace: Trace, offset: int, action: str) -> int:
    """The step of a record, from 1, that takes an action."""
    return next(
        place
        for place, step in enumerate(trace.steps, start=1)
        if step.text.startswith(f"offset {offset}:") and step.candidates[0].action == action
    )


def spoiled(recorded: Recorded, *, leaves_out: bool = False) -> dict[str, tuple[Trace, int]]:
    """The logs with one fault put in: name of the fault -> its trace, and the step at which it must be rejected.

    The fault is put into a committed transaction, with several partitions if possible, of the transactional id with the
    fewest records. Without a committed transaction there are none. It has none of the markers that may be of others,
    or may be gone.

    Args:
        recorded: the logs.
        leaves_out: whether the coordinator may leave the marker of a partition without a leader out, as Kafka 4.3 does:
            then a missing marker is no fault, and one of the other decision is only of no transaction.
    """
    commits = [
        (name, place)
        for name, records in recorded.records.items()
        for place, (before, after) in enumerate(pairwise(records))
        if _is_committed(before, after) and _is_strict(recorded, name, before)
    ]
    if not commits:
        return {}

    def preference(found: tuple[str, int]) -> tuple[bool, int, int]:
        name, place = found
        value = recorded.records[name][place].value
        return value is None or len(value.partitions()) < 2, len(recorded.records[name]), -place

    transactional_id, place = min(commits, key=preference)
    records = recorded.records[transactional_id]
    before, after = records[place].value, records[place + 1].value
    assert before is not None
    assert after is not None
    own = {row.value.producer_id for row in records if row.value is not None}
    name = min(map(name_of, before.partitions()))

    def trace(changed: list[StateRecord] = records, entries: Entries = recorded.entries) -> Trace:
        only = replace(recorded, records={transactional_id: changed}, entries=entries, are_apart=False)
        (found,) = coordinator_traces(only, leaves_out=leaves_out)
        return found

    def with_record(offset: int, **fields: object) -> list[StateRecord]:
        return [row._replace(value=_changed(row.value, fields)) if row.offset == offset else row for row in records]

    def with_marker(change: Callable[[WrittenMarker], list[WrittenMarker]]) -> Entries:
        told = (before.producer_epoch, ControlType.COMMIT)
        mine = [m for m in recorded.markers[name] if m.producer_id in own and m[1:3] == told]
        last = [marker for marker in mine if not marker.again][-1]._replace(joined=False)
        entries = recorded.entries[name]
        at = entries.index(last)
        without_repeats = [row for row in entries[at:] if row[:4] != last[:4]]
        return {**recorded.entries, name: [*entries[:at], *change(last), *without_repeats]}

    complete = records[place + 1].offset
    aborts = trace(with_record(complete, transaction_status=TransactionState.COMPLETE_ABORT))
    skips = trace(with_record(records[place].offset, producer_epoch=before.producer_epoch + 1))
    lacks = trace(entries=with_marker(lambda _: []))
    flips = trace(entries=with_marker(lambda marker: [marker._replace(decision=ControlType.ABORT)]))
    wrong = {
        "a commit is completed as an abort": (aborts, _place_of(aborts, complete, "AppendIsReplicated")),
        "an epoch is left out": (skips, _place_of(skips, records[place].offset, "AppendIsReplicated")),
    }
    if leaves_out:
        return wrong | {"a marker says abort": (flips, len(flips.steps))}
    return wrong | {
        "a marker is missing": (lacks, _place_of(lacks, complete, "CompleteTransaction")),
        "a marker says abort": (flips, _place_of(flips, complete, "CompleteTransaction")),
    }


def _is_committed(before: StateRecord, after: StateRecord) -> bool:
    """Whether a record decides to commit a transaction with a partition, and the next one completes it."""
    decides = before.value is not None and before.value.transaction_status is TransactionState.PREPARE_COMMIT
    completes = after.value is not None and after.value.transaction_status is TransactionState.COMPLETE_COMMIT
    return decides and completes and before.value is not None and bool(before.value.partitions())


def _is_strict(recorded: Recorded, transactional_id: str, prepared: StateRecord) -> bool:
    """Whether all markers of a decided transaction have to be there, and no others may."""
    first = recorded.from_begin(transactional_id)[0]
    assert prepared.value is not None
    epoch = NO_EPOCH if first.value is None else first.value.producer_epoch
    is_later = prepared.offset > first.offset and prepared.value.producer_epoch > epoch
    is_whole = not {name_of(place) for place in prepared.value.partitions()} & recorded.begins.keys()
    return is_whole and (transactional_id not in recorded.given or is_later)


def _changed(value: TransactionLogValue | None, fields: Mapping[str, object]) -> TransactionLogValue | None:
    return None if value is None else replace(value, **fields)  # type: ignore[arg-type]
