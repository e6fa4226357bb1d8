"""One partition that transactions write to: batches and markers, the last stable offset, the index of aborted ones.

Spec:  TransactionalPartition.tla
KIPs:  98, 890, 1228
Kafka: UnifiedLog, ProducerStateManager, ProducerAppendInfo, TransactionIndex, Cleaner

=================  ====================  =============================================================================
spec variable      field                 Kafka
=================  ====================  =============================================================================
log                ``log``               the leader's UnifiedLog
log.entries        ``entries``           its segments
log.producers      ``producers``         ProducerStateManager.producers
log.transactions   ``transactions``      ProducerStateManager.ongoingTxns and unreplicatedTxns
log.abortedIndex   ``aborted_index``     TransactionIndex of its segments
highWatermark      ``high_watermark``    UnifiedLog.highWatermark of the leader
replicated         ``replicated``        none: what the followers in the in-sync set have
leaderEpoch        ``leader_epoch``      PartitionRegistration.leaderEpoch
=================  ====================  =============================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import ErrorCode, enabled, require
from kafka_eos.machines.machine import action
from kafka_eos.machines.read_committed import IndexedTransaction
from kafka_eos.machines.spec_mapping import Context

NO_OFFSET = -1
TRANSACTIONAL, PLAIN, COMMIT, ABORT = "transactional", "plain", "commit", "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConstants:
    """The constants of TransactionalPartition.tla.

    Attributes:
        producer_ids: the producers whose batches and markers arrive.
        epochs: the producer epochs that these carry.
        max_epoch: the last producer epoch.
        coordinator_epochs: the coordinator epochs that markers carry.
        batch_kinds: what batches may be: of "transactional", "plain".
        offsets: 0..n, where the log may end.
        transaction_version: 1 or 2.
        max_leader_epoch: the maximum number of elections.
        index_failures: whether the storage may fail to write an entry of the index.
        expiration: whether a producer's state may expire.
        cleaning: whether the log is compacted.
    """

    producer_ids: frozenset[int]
    epochs: frozenset[int]
    max_epoch: int
    coordinator_epochs: frozenset[int]
    batch_kinds: frozenset[str]
    offsets: frozenset[int]
    transaction_version: int
    max_leader_epoch: int
    index_failures: bool
    expiration: bool
    cleaning: bool

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "ProducerIds": sorted(self.producer_ids),
            "Epochs": sorted(self.epochs),
            "CoordinatorEpochs": sorted(self.coordinator_epochs),
            "BatchKinds": sorted(self.batch_kinds),
            "Offsets": sorted(self.offsets),
            "BOOLEAN": (False, True),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A batch of one record (``transactional``, ``plain``), or a marker (``commit``, ``abort``).

    Attributes:
        kind: the kind of the entry.
        offset: -1 until a leader has appended it.
        producer_id: whose it is.
        epoch: the producer's, as it was sent.
        coordinator_epoch: the coordinator epoch of a marker; -1 for a batch.
    """

    kind: str
    offset: int = NO_OFFSET
    producer_id: int
    epoch: int
    coordinator_epoch: int = -1

    @property
    def last_offset(self) -> int:
        """The offset of the only record."""
        return self.offset

    @property
    def is_transactional(self) -> bool:
        """Whether it is a batch of a transaction."""
        return self.kind == TRANSACTIONAL

    @property
    def is_marker(self) -> bool:
        """Whether it is a control batch."""
        return self.kind in {COMMIT, ABORT}

    @property
    def is_abort_marker(self) -> bool:
        """Whether it is the marker of an aborted transaction."""
        return self.kind == ABORT


def batch_entry(producer_id: int, epoch: int, kind: str) -> LogEntry:
    """A batch as it arrives."""
    return LogEntry(kind=kind, producer_id=producer_id, epoch=epoch)


def marker_entry(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> LogEntry:
    """A marker as it arrives."""
    kind = COMMIT if commit else ABORT
    return LogEntry(kind=kind, producer_id=producer_id, epoch=epoch, coordinator_epoch=coordinator_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducer:
    """The leader's state of a producer.

    Attributes:
        epoch: the epoch of its last batch or marker.
        coordinator_epoch: the coordinator epoch of its last marker.
        first_offset: the first offset of the transaction that is open, or -1.
    """

    epoch: int = -1
    coordinator_epoch: int = -1
    first_offset: int = NO_OFFSET

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction open."""
        return self.first_offset != NO_OFFSET


NO_PRODUCER = PartitionProducer()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstableTransaction:
    """A transaction that holds the last stable offset back.

    Attributes:
        producer_id: whose it is.
        first_offset: the first offset of its first batch.
        last_offset: the offset of its marker, which is not known to be replicated; -1 while it is open, or when the
            index entry could not be written.
    """

    producer_id: int
    first_offset: int
    last_offset: int = NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLog:
    """A leader's log: its entries, its producers, their transactions, and the index of aborted ones."""

    entries: PVector[LogEntry] = field(default_factory=pvector)
    producers: Map[int, PartitionProducer]
    transactions: frozenset[UnstableTransaction] = frozenset()
    aborted_index: PVector[IndexedTransaction] = field(default_factory=pvector)


class MarkerConstants(Protocol):
    """The constants that decide about a marker, besides the log."""

    @property
    def transaction_version(self) -> int:
        """The transaction version: 1 or 2."""
        ...

    @property
    def max_epoch(self) -> int:
        """The last producer epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """The leader's refusals and the effects of an entry: functions of the log and of the entry.

    Attributes:
        constants: the transaction version of markers, and the last epoch.
    """

    constants: MarkerConstants = field(compare=False)

    def is_old_batch(self, producer: PartitionProducer, batch: LogEntry) -> bool:
        """A batch is of an older epoch than the producer's."""
        return batch.epoch < producer.epoch

    def is_outside_transaction(self, producer: PartitionProducer, batch: LogEntry) -> bool:
        """A batch does not belong to the transaction that its producer has open."""
        return batch.kind == PLAIN and producer.is_open

    def batch_error(self, before: LeaderLog, batch: LogEntry) -> ErrorCode:
        """The reason why a leader refuses a batch; ``NONE`` if it does not."""
        producer = before.producers[batch.producer_id]
        if self.is_old_batch(producer, batch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_outside_transaction(producer, batch):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def is_old_marker(self, producer: PartitionProducer, marker: LogEntry) -> bool:
        """A marker's epoch has passed.

        Under version 2 it is above its data's, or the same when it has been written already (KIP-1228).
        """
        if self.constants.transaction_version == 2 and marker.epoch == producer.epoch:
            return producer.is_open and marker.epoch != self.constants.max_epoch
        return marker.epoch < producer.epoch

    def is_of_old_coordinator(self, producer: PartitionProducer, marker: LogEntry) -> bool:
        """A marker is of a coordinator that has been replaced."""
        return marker.coordinator_epoch < producer.coordinator_epoch

    def marker_error(self, before: LeaderLog, marker: LogEntry) -> ErrorCode:
        """The reason why a leader refuses a marker; ``NONE`` if it does not."""
        producer = before.producers[marker.producer_id]
        if self.is_old_marker(producer, marker):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_of_old_coordinator(producer, marker):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def remembered(self, producer: PartitionProducer, entry: LogEntry) -> PartitionProducer:
        """A producer after one of its entries. A batch of a later epoch joins the transaction that is open."""
        if entry.is_marker:
            return PartitionProducer(epoch=entry.epoch, coordinator_epoch=entry.coordinator_epoch)
        begins = entry.is_transactional and not producer.is_open
        return replace(producer, epoch=entry.epoch, first_offset=entry.offset if begins else producer.first_offset)

    def with_entry(self, before: LeaderLog, entry: LogEntry) -> LeaderLog:
        """The log and its producers after an entry: the first effect of every append."""
        producer = self.remembered(before.producers[entry.producer_id], entry)
        ongoing = UnstableTransaction(producer_id=entry.producer_id, first_offset=producer.first_offset)
        return replace(
            before,
            entries=before.entries.append(entry),
            producers=before.producers.set(entry.producer_id, producer),
            transactions=before.transactions | {ongoing} if producer.is_open else before.transactions,
        )

    def stable_offset_after(self, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int) -> int:
        """The last stable offset after a transaction has ended, if all were replicated."""
        others = (t for t in transactions if t.producer_id != producer_id and t.last_offset == NO_OFFSET)
        return min((t.first_offset for t in others), default=offset + 1)

    def is_indexed(self, marker: LogEntry) -> bool:
        """A marker whose transaction the index has to hold."""
        return marker.is_abort_marker

    def with_index_entry(self, before: LeaderLog, marker: LogEntry, first_offset: int) -> LeaderLog:
        """The log with a transaction's entry in the index: the second effect of a marker."""
        if not self.is_indexed(marker):
            return before
        entry = IndexedTransaction(
            producer_id=marker.producer_id,
            first_offset=first_offset,
            last_offset=marker.offset,
            last_stable_offset=self.stable_offset_after(before.transactions, marker.producer_id, marker.offset),
        )
        return replace(before, aborted_index=before.aborted_index.append(entry))

    def with_completed(self, before: LeaderLog, marker: LogEntry, first_offset: int) -> LeaderLog:
        """The log with a transaction that has ended: the last effect of a marker."""
        ongoing = UnstableTransaction(producer_id=marker.producer_id, first_offset=first_offset)
        completed = replace(ongoing, last_offset=marker.offset)
        return replace(before, transactions=(before.transactions - {ongoing}) | {completed})

    def written(self, before: LeaderLog, entry: LogEntry) -> LeaderLog:
        """The log after an entry that has its offset."""
        producer = before.producers[entry.producer_id]
        after = self.with_entry(before, entry)
        if not (entry.is_marker and producer.is_open):
            return after
        indexed = self.with_index_entry(after, entry, producer.first_offset)
        return self.with_completed(indexed, entry, producer.first_offset)

    def with_replicated(self, before: LeaderLog, offset: int) -> LeaderLog:
        """The log once the transactions whose marker is replicated no longer hold the last stable offset back."""
        kept = frozenset(t for t in before.transactions if t.last_offset == NO_OFFSET or t.last_offset >= offset)
        return replace(before, transactions=kept)

    def may_expire(self, producer: PartitionProducer) -> bool:
        """A producer that may be forgotten has no transaction open."""
        return not producer.is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadablePartition(PartitionRules):
    """A leader's log as readers see it: functions of the log and of its high watermark.

    Attributes:
        log: the leader's.
        high_watermark: the offset up to which everything is replicated.
    """

    log: LeaderLog
    high_watermark: int = 0

    def unstable_offsets(self) -> frozenset[int]:
        """The first offsets of transactions that are open, or whose marker is not replicated."""
        return frozenset(transaction.first_offset for transaction in self.log.transactions)

    def first_unstable_offset(self) -> int:
        """The first of the offsets that are not stable."""
        return min(self.unstable_offsets())

    def last_stable_offset(self) -> int:
        """The offset at which reading of committed data ends."""
        return (
            min(self.high_watermark, self.first_unstable_offset()) if self.unstable_offsets() else self.high_watermark
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalPartition(ReadablePartition):
    """The variables of TransactionalPartition.tla and its actions; a module that extends it adds its own."""

    MODULE: ClassVar[str] = "TransactionalPartition"
    VARIABLES: ClassVar[tuple[str, ...]] = ("log", "highWatermark", "replicated", "leaderEpoch")

    constants: PartitionConstants = field(compare=False)
    replicated: int = 0
    leader_epoch: int = 0

    @classmethod
    def context(cls, constants: PartitionConstants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    @classmethod
    def empty_log(cls, constants: PartitionConstants) -> LeaderLog:
        """A log without entries."""
        return LeaderLog(producers=Map(dict.fromkeys(constants.producer_ids, NO_PRODUCER)))

    def log_end_offset(self, before: LeaderLog) -> int:
        """The offset of the next entry. The cleaner never takes the last one."""
        return before.entries[-1].offset + 1 if before.entries else 0

    # --- what an entry does to the log ----------------------------------------------------------------------------

    def at_end(self, before: LeaderLog, entry: LogEntry) -> LogEntry:
        """An entry with the offset that it gets."""
        return replace(entry, offset=self.log_end_offset(before))

    def appended(self, before: LeaderLog, given: LogEntry) -> LeaderLog:
        """The log after a batch or a marker."""
        return self.written(before, self.at_end(before, given))

    def without_index_entry(self, before: LeaderLog, given: LogEntry) -> LeaderLog:
        """The log after a marker that the index could not take: its transaction still holds the last stable offset."""
        return self.with_entry(before, self.at_end(before, given))

    def replay(self, before: LeaderLog, entries: Iterable[LogEntry]) -> LeaderLog:
        """The log of a replica after some more entries, without any check.

        Departs from Kafka: a follower there first appends all entries of a fetch. Then it writes the index, with last
        stable offsets that are too high (the mutant AppendedAtOnce).
        """
        for entry in entries:
            before = self.written(before, entry)
        return before

    def after_load(self, before: LeaderLog) -> LeaderLog:
        """The log that a replica has when it leads: it knows every transaction that holds the last stable offset back.

        Departs from Kafka: a replica that has restarted or truncated its log loads a snapshot, which has open
        transactions only. There an ended transaction is stable below the high watermark although its marker is above it
        (OngoingOnly).

        Kafka: ProducerStateManager.truncateAndReload, loadProducerEntry
        """
        return before

    # --- what arrives                                                               WHO: the leader ---------------

    def has_room(self) -> bool:
        """The log may grow still."""
        return self.log_end_offset(self.log) + 1 in self.constants.offsets

    @action("AppendBatch", "ProducerIds", "Epochs", "BatchKinds")
    def append_batch(self, producer_id: int, epoch: int, kind: str) -> Self:
        """The leader appends a batch that passed every check.

        Spec:   TransactionalPartition!AppendBatch
        KIP:    KIP-98
        Kafka:  UnifiedLog.append, ProducerAppendInfo.appendDataBatch
        Raises: Rejected, with the code of ``batch_error``
        """
        batch = batch_entry(producer_id, epoch, kind)
        enabled(self.has_room(), "the log is full")
        require(self.batch_error(self.log, batch))
        return replace(self, log=self.appended(self.log, batch))

    @action("AppendMarker", "ProducerIds", "Epochs", "BOOLEAN", "CoordinatorEpochs")
    def append_marker(self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> Self:
        """The leader appends a marker that passed every check, whether there is a transaction to end or not.

        Spec:   TransactionalPartition!AppendMarker
        KIP:    KIP-98, KIP-1228
        Kafka:  UnifiedLog.append, ProducerAppendInfo.appendEndTxnMarker
        Raises: Rejected, with the code of ``marker_error``
        """
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        enabled(self.has_room(), "the log is full")
        require(self.marker_error(self.log, marker))
        return replace(self, log=self.appended(self.log, marker))

    @action("FailIndexEntry", "ProducerIds", "Epochs", "CoordinatorEpochs")
    def fail_index_entry(self, producer_id: int, epoch: int, coordinator_epoch: int) -> Self:
        """The storage fails after the leader has appended an abort marker and before the index has its entry.

        Spec:   TransactionalPartition!FailIndexEntry
        KIP:    none; KAFKA-7866
        Kafka:  UnifiedLog.append, LogSegment.updateTxnIndex
        Raises: Rejected, with the code of ``marker_error``
        """
        marker = marker_entry(producer_id, epoch, False, coordinator_epoch)
        enabled(self.constants.index_failures, "the storage does not fail")
        enabled(self.has_room(), "the log is full")
        require(self.marker_error(self.log, marker))
        enabled(self.log.producers[producer_id].is_open, "no transaction is open")
        return replace(self, log=self.without_index_entry(self.log, marker))

    # --- replication and elections                                                  WHO: leader and controller ----

    @action("AdvanceHighWatermark")
    def advance_high_watermark(self) -> Self:
        """The leader learns that one more entry is replicated.

        Spec:  TransactionalPartition!AdvanceHighWatermark
        KIP:   none
        Kafka: Partition.maybeIncrementLeaderHW, ProducerStateManager.onHighWatermarkUpdated
        """
        following = next((entry for entry in self.log.entries if entry.offset >= self.high_watermark), None)
        enabled(following is not None, "nothing is above the high watermark")
        assert following is not None
        watermark = following.offset + 1
        return replace(
            self,
            log=self.with_replicated(self.log, watermark),
            high_watermark=watermark,
            replicated=max(self.replicated, watermark),
        )

    def is_boundary(self, offset: int) -> bool:
        """The log ends at an offset, or could have ended there."""
        return offset == 0 or any(entry.offset + 1 == offset for entry in self.log.entries)

    @action("ElectLeader", "Offsets", "Offsets")
    def elect_leader(self, end_offset: int, watermark: int) -> Self:
        """A replica that has the log up to an offset leads; the high watermark that it knows may be an older one.

        Spec:  TransactionalPartition!ElectLeader
        KIP:   KIP-98, KIP-101
        Kafka: Partition.makeLeader, UnifiedLog.rebuildProducerState
        """
        enabled(self.leader_epoch < self.constants.max_leader_epoch, "elections have run out")
        enabled(self.is_boundary(end_offset), "the log has no such part")
        enabled(self.replicated <= end_offset, "the replica lacks what is replicated")
        enabled(watermark <= self.replicated, "the high watermark was never there")
        kept = (entry for entry in self.log.entries if entry.offset < end_offset)
        log = self.after_load(self.replay(self.empty_log(self.constants), kept))
        return replace(
            self,
            log=self.with_replicated(log, watermark),
            high_watermark=watermark,
            leader_epoch=self.leader_epoch + 1,
        )

    # --- what time does                                                             WHO: the leader ---------------

    def forgotten(self, before: LeaderLog, producer_id: int) -> LeaderLog:
        """The log with a producer forgotten."""
        return replace(before, producers=before.producers.set(producer_id, NO_PRODUCER))

    @action("ExpireProducer", "ProducerIds")
    def expire_producer(self, producer_id: int) -> Self:
        """The leader forgets a producer that has been silent for too long.

        Spec:  TransactionalPartition!ExpireProducer
        KIP:   KIP-854
        Kafka: ProducerStateManager.removeExpiredProducers
        """
        enabled(self.constants.expiration, "producers do not expire in this model")
        producer = self.log.producers[producer_id]
        enabled(producer != NO_PRODUCER, "the producer is not known")
        enabled(self.may_expire(producer), "the producer has a transaction open")
        return replace(self, log=self.forgotten(self.log, producer_id))

    def batches_ended_by(self, marker: LogEntry) -> list[LogEntry]:
        """The batches that are left of the transaction that a marker ends."""
        ended: list[LogEntry] = []
        for entry in self.log.entries:
            if entry.offset == marker.offset:
                break
            if entry.producer_id == marker.producer_id:
                ended = [] if entry.is_marker else [*ended, entry] if entry.is_transactional else ended
        return ended

    def may_clean_marker(self, marker: LogEntry) -> bool:
        """A marker may be removed when no batch of its transaction is left."""
        return not self.batches_ended_by(marker)

    @action("Clean", "Offsets")
    def clean(self, offset: int) -> Self:
        """The cleaner removes a superseded record or a marker, but never the last entry below the high watermark.

        Spec:  TransactionalPartition!Clean
        KIP:   KIP-534
        Kafka: Cleaner.cleanInto, CleanedTransactionMetadata
        """
        enabled(self.constants.cleaning, "the log is not compacted")
        enabled(offset < self.last_stable_offset() and offset + 1 < self.high_watermark, "not stable, or the last one")
        entry = next((entry for entry in self.log.entries if entry.offset == offset), None)
        enabled(entry is not None, "it is gone already")
        assert entry is not None
        enabled(not entry.is_marker or self.may_clean_marker(entry), "batches of its transaction are left")
        log = replace(
            self.log,
            entries=pvector(entry for entry in self.log.entries if entry.offset != offset),
            aborted_index=pvector(t for t in self.log.aborted_index if t.last_offset != offset),
        )
        return replace(self, log=log)
