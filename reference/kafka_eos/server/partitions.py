"""A partition at its leader: the machines of its producers, transactions and guards, around the batches themselves.

Three machines decide about an append, each with its own share of what Kafka's leader knows:

=============================  ======================================================================================
``ProducerState`` (`Log`)      duplicates, epochs, sequences
``TransactionalPartition``     markers, the last stable offset, the index of aborted transactions
``Transactions``               verification: who has to be asked about, and the guard of those who are
=============================  ======================================================================================

Their entries are kept here no longer than they are needed; the batches are in the storage.

Kafka: UnifiedLog, ProducerStateManager, ProducerAppendInfo, ReplicaManager
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map
from pyrsistent import pvector

from kafka_eos import transactions as protocol
from kafka_eos.errors import ErrorCode
from kafka_eos.producer_state import NO_PRODUCER_ID, Batch, Log, ProducerState
from kafka_eos.read_committed import AbortedTransaction, collect_aborted
from kafka_eos.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    decode_batch,
)
from kafka_eos.server.storage import Store
from kafka_eos.transactional_partition import (
    NO_PRODUCER,
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionConstants,
    PartitionProducer,
    TransactionalPartition,
    batch_entry,
    marker_entry,
)
from kafka_eos.transactions import PartitionRequest, TransactionalLog, Transactions

MAX_EPOCH = 32767
NO_SEQUENCE = -1
_VERSIONS = (1, 2)
_NO_GUARD = TransactionalLog()


class Sequences(Log):
    """``ProducerState``, where a marker is another thing that moves a producer's epoch."""

    __slots__ = ()

    def follows(self, producer: ProducerState, batch: Batch) -> bool:
        """The batch comes right after the last one of its epoch, or is the first after a marker that raised it."""
        return super().follows(producer, batch) if producer.batches else self.starts_epoch(batch)

    def with_marker(self, producer_id: int, epoch: int) -> "Sequences":
        """The log after a marker, which takes an offset. An epoch that it raises has no batches yet.

        Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateEntry.maybeUpdateProducerEpoch
        """
        after = self.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=NO_SEQUENCE, count=1))
        known = self.producers.get(producer_id)
        if known is not None and known.epoch == epoch:
            return after
        return replace(after, producers=self.producers.set(producer_id, ProducerState(epoch=epoch, batches=())))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRules:
    """The machines whose rules a leader goes by; a mutant of one can take its place.

    Attributes:
        sequences: duplicates, epochs, sequences.
        partition: markers and what readers may see.
        transactions: guards.
        verification: a leader asks the coordinator about a transaction's first batch also for clients of version 1.
    """

    sequences: type[Sequences] = Sequences
    partition: type[TransactionalPartition] = TransactionalPartition
    transactions: type[Transactions] = Transactions
    verification: bool = True

    def of_partition(self, version: int) -> TransactionalPartition:
        """The rules of a partition, for markers of a transaction version."""
        nothing: frozenset[int] = frozenset()
        constants = PartitionConstants(
            producer_ids=nothing,
            epochs=nothing,
            max_epoch=MAX_EPOCH,
            coordinator_epochs=nothing,
            batch_kinds=frozenset({TRANSACTIONAL, PLAIN}),
            offsets=nothing,
            transaction_version=version,
            max_leader_epoch=0,
            index_failures=False,
            expiration=True,
            cleaning=False,
        )
        return self.partition(constants=constants, log=LeaderLog(producers=Map()))

    def of_guards(self) -> Transactions:
        """The rules of guards."""
        constants = protocol.Constants(
            instances=frozenset(),
            partitions=frozenset(),
            numbers=frozenset(),
            epochs=frozenset(),
            coordinator_epochs=frozenset(),
            versions=frozenset(_VERSIONS),
            verification=self.verification,
            faults=frozenset(),
            max_faults=0,
        )
        return self.transactions.initial(constants)


class Appended(NamedTuple):
    """What became of a batch: where it is, now or since an earlier request, or why it was refused.

    Attributes:
        error: why it was refused.
        base_offset: where it is.
        log_append_time: milliseconds since the epoch; -1 if its client has set its timestamps. Of a duplicate it is
            the largest timestamp, whoever has set that.    Kafka: UnifiedLog.append.
    """

    error: ErrorCode
    base_offset: int = -1
    log_append_time: int = -1


class Ticket(NamedTuple):
    """What a transactional batch has to show: the transaction version of its request, and a guard if one is needed."""

    version: int
    guard: int = 0


def _sent(batch: RecordBatch) -> Batch:
    """A batch as the machines see it. Without a producer id nothing else counts, whatever its client wrote there.

    The clients aiokafka, KafkaJS and Sarama send sequence 0 with producer id -1.

    Kafka: RecordBatch.hasProducerId
    """
    count = batch.last_offset_delta + 1
    if batch.producer_id <= NO_PRODUCER_ID:
        return Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=NO_SEQUENCE, count=count)
    return Batch(producer_id=batch.producer_id, epoch=batch.producer_epoch, sequence=batch.base_sequence, count=count)


@dataclass(slots=True, kw_only=True)
class Leader:
    """A partition at its leader.

    Attributes:
        topic: name.
        partition: number.
        node: the broker that leads it.
        replicas: the brokers that have it, the preferred leader first.
        store: the batches.
        rules: the machines.
        epochs: leader epochs, each with its first offset; the last one is this leader's.
        log_start_offset: the first offset that may be read.
        last_timestamps: when each producer wrote last, in milliseconds since the epoch.
        watchers: who wants to know of a change.
    """

    topic: str
    partition: int
    node: int
    replicas: tuple[int, ...]
    store: Store
    rules: LeaderRules
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    log_start_offset: int = 0
    sequences: Sequences = field(init=False)
    transactions: TransactionalPartition = field(init=False)
    last_timestamps: dict[int, int] = field(default_factory=dict)
    watchers: dict[Callable[[], None], None] = field(default_factory=dict)
    _guards: dict[int, TransactionalLog] = field(default_factory=dict)
    _guard_rules: Transactions = field(init=False)
    _marker_rules: dict[int, TransactionalPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.sequences = self.rules.sequences()
        self._marker_rules = {version: self.rules.of_partition(version) for version in _VERSIONS}
        self.transactions = self._marker_rules[2]
        self._guard_rules = self.rules.of_guards()

    @property
    def name(self) -> str:
        """Topic and number, as directories and transactions name a partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def leader_epoch(self) -> int:
        """This leader's epoch."""
        return self.epochs[-1][0]

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.sequences.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which everything is replicated."""
        return self.transactions.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where reading of what is committed ends."""
        return self.transactions.last_stable_offset()

    def producer(self, producer_id: int) -> PartitionProducer:
        """What is known of a producer's transactions."""
        return self.transactions.log.producers.get(producer_id, NO_PRODUCER)

    def last_sequence(self, producer_id: int) -> int:
        """The last sequence of a producer's present epoch, -1 before the first."""
        known = self.sequences.producers.get(producer_id)
        return self.sequences.limits.last_sequence(known.batches[-1]) if known and known.batches else NO_SEQUENCE

    def _knowing(self, producer_id: int) -> LeaderLog:
        """The log of ``TransactionalPartition``, with this producer in it."""
        log = self.transactions.log
        if producer_id in log.producers:
            return log
        return replace(log, producers=log.producers.set(producer_id, NO_PRODUCER))

    # --- verification ------------------------------------------------------------------------------------------------

    def verify(self, verification: bool) -> None:
        """From now on ask the coordinator about transactions of version 1 as well, or do not."""
        self._guard_rules = replace(self.rules, verification=verification).of_guards()

    def _guarded(self, producer_id: int) -> TransactionalLog:
        """What ``Transactions`` knows of a producer here."""
        known = self.producer(producer_id)
        return replace(
            self._guards.get(producer_id, _NO_GUARD),
            epoch=known.epoch,
            open=known.is_open,
            coordinator_epoch=known.coordinator_epoch,
        )

    def needs_verification(self, producer_id: int, epoch: int, version: int) -> bool:
        """The coordinator has to be asked before a transactional batch of this producer is appended."""
        rules = self._guard_rules
        return rules.needs_guard(version) and not rules.is_ongoing(self._guarded(producer_id), epoch)

    def start_verification(self, producer_id: int, epoch: int, version: int) -> Ticket:
        """The guard under which the coordinator is asked.    Spec: Transactions!StartVerification."""
        guarded = self._guarded(producer_id)
        request = PartitionRequest(instance="", number=0, partition=self.name, version=version, epoch=epoch)
        self._guards[producer_id] = self._guard_rules.with_guard(guarded, request)
        return Ticket(version, guarded.guard)

    @property
    def guarded_producers(self) -> int:
        """How many producers there are guards for."""
        return len(self._guards)

    def drop_guard(self, producer_id: int) -> None:
        """Keep nothing of a producer that was not vouched for and has never written anything."""
        if producer_id not in self.last_timestamps:
            self._guards.pop(producer_id, None)

    # --- appending ---------------------------------------------------------------------------------------------------

    def append_error(self, batch: Batch, ticket: Ticket | None, from_client: bool) -> ErrorCode:
        """Why a batch that is no duplicate is refused; ``NONE`` if it is not.

        Args:
            batch: with a producer id.
            ticket: None for a batch outside of transactions.
            from_client: the coordinator of groups writes its records without sequences.

        Kafka: UnifiedLog.analyzeAndValidateProducerState
        """
        producer_id, epoch = batch.producer_id, batch.epoch
        if ticket is not None:
            guarded = self._guarded(producer_id)
            error = self._guard_rules.data_error(guarded, ticket.version, epoch, ticket.guard)
            if error is not ErrorCode.NONE:
                return error
        if from_client and (error := self.sequences.append_error(batch)) is not ErrorCode.NONE:
            return error
        entry = batch_entry(producer_id, epoch, PLAIN if ticket is None else TRANSACTIONAL)
        return self.transactions.batch_error(self._knowing(producer_id), entry)

    def append(self, batch: RecordBatch, encoded: bytes, ticket: Ticket | None, now: int) -> Appended:
        """Append a batch that a client has sent, unless it is here already or is refused.

        Args:
            batch: as it was decoded, with records.
            encoded: its bytes.
            ticket: what a transactional batch has to show; None for another one.
            now: milliseconds since the epoch.

        Spec: PartitionLog!AppendBatch, AcknowledgeDuplicate, RefuseBatch; TransactionalPartition!AppendBatch;
              Transactions!AppendVerified
        """
        sent = _sent(batch)
        if sent.producer_id != NO_PRODUCER_ID:
            if self.sequences.is_duplicate(sent):
                return self._appended_before(self.sequences.duplicate_offset(sent))
            if (error := self.append_error(sent, ticket, from_client=True)) is not ErrorCode.NONE:
                return Appended(error)
        offset = self.log_end_offset
        self._write(encoded, offset, batch.max_timestamp)
        self._note(sent, ticket, offset)
        self._saw(sent.producer_id, now)
        is_stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        return Appended(ErrorCode.NONE, offset, batch.max_timestamp if is_stamped else -1)

    def _appended_before(self, offset: int) -> Appended:
        batch, _ = decode_batch(self.store.read(offset, offset + 1, 0, at_least_one=True))
        return Appended(ErrorCode.NONE, offset, batch.max_timestamp)

    def append_records(
        self,
        records: Iterable[Record],
        now: int,
        producer_id: int = NO_PRODUCER_ID,
        epoch: int = -1,
        ticket: Ticket | None = None,
    ) -> Appended:
        """Append a coordinator's records; with a producer id, an epoch and a ticket they are part of a transaction.

        Kafka: CoordinatorPartitionWriter, TransactionStateManager.appendTransactionToLog
        """
        given = [replace(record, offset_delta=delta) for delta, record in enumerate(records)]
        offset = self.log_end_offset
        sent = Batch(producer_id=producer_id, epoch=epoch, sequence=NO_SEQUENCE, count=len(given))
        if ticket is not None and (error := self.append_error(sent, ticket, from_client=False)) is not ErrorCode.NONE:
            return Appended(error)
        batch = build_batch(
            given,
            base_offset=offset,
            partition_leader_epoch=self.leader_epoch,
            base_timestamp=now,
            is_transactional=ticket is not None,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.store.append(batch.encode(), offset, now)
        self._note(replace(sent, producer_id=NO_PRODUCER_ID), None, offset)
        if ticket is not None:
            self._note_transactional(sent, ticket, offset)
            self._saw(producer_id, now)
        return Appended(ErrorCode.NONE, offset)

    def _write(self, encoded: bytes, offset: int, max_timestamp: int) -> None:
        """Write a client's batch: offset and leader epoch are the broker's, and not covered by the CRC."""
        data = b"".join(
            (
                offset.to_bytes(8, "big"),
                encoded[8:12],
                self.leader_epoch.to_bytes(4, "big"),
                memoryview(encoded)[16:],
            )
        )
        self.store.append(data, offset, max_timestamp)

    def _note(self, sent: Batch, ticket: Ticket | None, offset: int) -> None:
        """The machines after a batch that was written."""
        after = self.sequences.appended(sent)
        self.sequences = replace(after, entries=pvector(after.entries[-1:]))
        if sent.producer_id != NO_PRODUCER_ID:
            self._note_transactional(sent, ticket, offset)
        self._replicate()

    def _note_transactional(self, sent: Batch, ticket: Ticket | None, offset: int) -> None:
        kind = PLAIN if ticket is None else TRANSACTIONAL
        if ticket is not None:
            used = self._guard_rules.with_data(self._guarded(sent.producer_id), "", 0, sent.epoch)
            self._guards[sent.producer_id] = replace(used, entries=pvector())
        self._note_entry(replace(batch_entry(sent.producer_id, sent.epoch, kind), offset=offset))

    def _note_entry(self, entry: LogEntry) -> None:
        log = self.transactions.written(self._knowing(entry.producer_id), entry)
        self.transactions = replace(self.transactions, log=replace(log, entries=pvector()))

    def _saw(self, producer_id: int, now: int) -> None:
        if producer_id != NO_PRODUCER_ID:
            self.last_timestamps[producer_id] = now

    def _replicate(self) -> None:
        """Everything is replicated at once: the brokers share their storage."""
        end = self.log_end_offset
        log = self.transactions.log
        if log.transactions:
            log = self.transactions.with_replicated(log, end)
        self.transactions = replace(self.transactions, log=log, high_watermark=end)

    # --- markers -----------------------------------------------------------------------------------------------------

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, version: int, now: int
    ) -> ErrorCode:
        """Append a marker, unless it is refused.

        Spec: TransactionalPartition!AppendMarker
        """
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        error = self._marker_rules[version].marker_error(self._knowing(producer_id), marker)
        if error is not ErrorCode.NONE:
            return error
        offset = self.log_end_offset
        batch = build_control_batch(
            ControlRecord(
                control_type=ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch=coordinator_epoch
            ),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_offset=offset,
            partition_leader_epoch=self.leader_epoch,
            timestamp=now,
        )
        self.store.append(batch.encode(), offset, now)
        guarded = self._guarded(producer_id)
        asked = protocol.Marker(
            partition=self.name, version=version, epoch=epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )
        self._guards[producer_id] = replace(self._guard_rules.with_marker(guarded, asked), entries=pvector())
        self._note_marker(replace(marker, offset=offset))
        self._saw(producer_id, now)
        return ErrorCode.NONE

    def _note_marker(self, marker: LogEntry) -> None:
        after = self.sequences.with_marker(marker.producer_id, marker.epoch)
        self.sequences = replace(after, entries=pvector(after.entries[-1:]))
        self._note_entry(marker)
        self._replicate()

    # --- what readers are given --------------------------------------------------------------------------------------

    def aborted_between(self, position: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions of a response; see ``read_committed.collect_aborted``."""
        index = self.transactions.log.aborted_index
        first = bisect_left(index, position, key=lambda entry: entry.last_offset)
        return collect_aborted((index[place] for place in range(first, len(index))), position, upper)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to this one, and where it ended; -1 and -1 before the first.

        Kafka: LeaderEpochFileCache.endOffsetFor
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        if epoch > self.leader_epoch:
            return -1, -1
        known = -1
        for other, start in self.epochs:
            if other > epoch:
                return known, start
            known = other
        return -1, -1

    # --- what changes around it --------------------------------------------------------------------------------------

    def expire(self, before: int) -> None:
        """Forget the producers that have been silent since a time.    Spec: TransactionalPartition!ExpireProducer."""
        for producer_id in [known for known, at in self.last_timestamps.items() if at <= before]:
            if self.transactions.may_expire(self.producer(producer_id)):
                del self.last_timestamps[producer_id]
                self._guards.pop(producer_id, None)
                if self.sequences.knows_producer(producer_id):
                    self.sequences = self.sequences.forgotten(producer_id)
                log = self.transactions.log
                self.transactions = replace(
                    self.transactions, log=replace(log, producers=log.producers.delete(producer_id))
                )

    def lead(self, node: int) -> None:
        """Another broker becomes the leader: guards are gone, the leader epoch rises.

        Spec: Transactions!ElectLeader
        """
        self.node = node
        if node not in self.replicas:  # it is given its first one's place
            self.replicas = (node, *self.replicas[1:])
        self._guards = {
            producer_id: TransactionalLog(guard=known.guard + 1) for producer_id, known in self._guards.items()
        }
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """A leader epoch in which nothing was written is replaced by the next one.

        Kafka: LeaderEpochFileCache.assign
        """
        before = [(epoch, start) for epoch, start in self.epochs if start < self.log_end_offset]
        self.epochs = [*before, (self.leader_epoch + 1, self.log_end_offset)]
        self.store.epochs(self.epochs)

    def recover(self, batches: Iterable[RecordBatch]) -> None:
        """The machines after what an earlier process has written, without any check.

        Kafka: UnifiedLog.rebuildProducerState
        """
        for batch in batches:
            offset = batch.base_offset
            if batch.is_control:
                marker = batch.control_record()
                assert marker is not None, "no cleaner empties control batches here"
                commit = marker.control_type is ControlType.COMMIT
                entry = marker_entry(batch.producer_id, batch.producer_epoch, commit, marker.coordinator_epoch)
                self._note_marker(replace(entry, offset=offset))
                self._saw(batch.producer_id, batch.max_timestamp)
                continue
            sent = _sent(batch)
            ticket = Ticket(1) if batch.is_transactional else None
            if sent.producer_id != NO_PRODUCER_ID and sent.sequence == NO_SEQUENCE:  # of groups' coordinator
                self._note(replace(sent, producer_id=NO_PRODUCER_ID), None, offset)
                self._note_transactional(sent, ticket, offset)
                self._replicate()
            else:
                self._note(sent, ticket, offset)
            self._saw(sent.producer_id, batch.max_timestamp)
        self._begin_epoch()
