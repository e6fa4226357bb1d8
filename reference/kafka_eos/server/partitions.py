"""A partition at its leader: the rules of ``leader``, around the batches themselves.

``leader.Rules`` decides about an append and returns the leader's state after it. The state's entries are kept here no
longer than they are needed; the batches are in the storage.

Kafka: UnifiedLog, ReplicaManager
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map
from pyrsistent import pvector

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    decode_batch,
)
from kafka_eos.machines.leader import NO_GUARD, NO_SEQUENCE, OUTSIDE, LeaderRules, LeaderState, Rules
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch
from kafka_eos.machines.read_committed import AbortedTransaction, collect_aborted
from kafka_eos.machines.transactional_partition import PartitionProducer, ReadablePartition, marker_entry
from kafka_eos.server.storage import Store


class Appended(NamedTuple):
    """Outcome of an append: the base offset (of this append or of the original, for a duplicate), or the error code.

    Attributes:
        error: why it was refused.
        base_offset: its base offset.
        log_append_time: milliseconds since the epoch; -1 if its client has set its timestamps. For a duplicate it is
            the largest timestamp, whoever has set that.    Kafka: UnifiedLog.append.
    """

    error: ErrorCode
    base_offset: int = -1
    log_append_time: int = -1


class Ticket(NamedTuple):
    """The proof of verification that a transactional batch presents to its leader.

    Attributes:
        version: the transaction version of its request; 0 outside of a transaction.
        guard: the guard under which the coordinator was asked, -1 if it was not.
    """

    version: int
    guard: int = NO_GUARD


NO_TICKET = Ticket(OUTSIDE)


def _sent(batch: RecordBatch) -> Batch:
    """A batch as the machines see it. Without a producer id its other producer fields are ignored.

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
        rules: its rules.
        epochs: leader epochs, each with its first offset; the last one is this leader's.
        log_start_offset: the first offset that may be read.
        state: the state of its machine.
        transactions: the rules of what readers may see of it.
        last_timestamps: when each producer wrote last, in milliseconds since the epoch, by the server's clock. Kafka
            takes the timestamps of its records (finding old-timestamps).
        watchers: callbacks for a change.
    """

    topic: str
    partition: int
    node: int
    replicas: tuple[int, ...]
    store: Store
    rules: LeaderRules
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    log_start_offset: int = 0
    state: LeaderState = field(init=False)
    transactions: ReadablePartition = field(init=False)
    last_timestamps: dict[int, int] = field(default_factory=dict)
    watchers: dict[Callable[[], None], None] = field(default_factory=dict)
    _rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self._rules = self.rules.of_leader()
        self._become(self.rules.new_state())

    def _become(self, after: LeaderState) -> None:
        """Set the leader's state: everything is replicated at once, and only the last entry is kept."""
        log = replace(after.log, entries=pvector(after.log.entries[-1:]))
        known = replace(after.transactions, entries=pvector())
        self.state = replace(after, log=log, transactions=known)
        self.transactions = self._rules.readable(self.state)

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
        return self.state.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which everything is replicated."""
        return self.transactions.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset at which reading of committed data ends; among deleted records, that of the first batch left.

        Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset
        """
        stable = self.transactions.last_stable_offset()
        return stable if stable >= self.log_start_offset else self._first_base_offset()

    def _first_base_offset(self) -> int:
        """The base offset of the batch in which the log starts; its end if all records are deleted."""
        start = self.log_start_offset
        if start == self.log_end_offset:
            return start
        data = self.store.read(start, self.log_end_offset, 0, at_least_one=True)
        return decode_batch(data)[0].base_offset if data else self.log_end_offset

    def producer(self, producer_id: int) -> PartitionProducer:
        """The leader's state of a producer's transactions."""
        return self.state.producer(producer_id)

    def last_sequence(self, producer_id: int) -> int:
        """The last sequence of a producer's present epoch, -1 before the first."""
        return self.state.last_sequence(producer_id)

    # --- verification ------------------------------------------------------------------------------------------------

    def verify(self, verification: bool) -> None:
        """From now on ask the coordinator about transactions of version 1 as well, or do not."""
        self._rules = replace(self.rules, verification=verification).of_leader()

    def needs_verification(self, producer_id: int, epoch: int, version: int) -> bool:
        """The coordinator has to be asked before a transactional batch of this producer is appended."""
        return self._rules.needs_verification(self.state, producer_id, epoch, version)

    def verification_error(self, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why the coordinator is not even asked.    Spec: Leader!RefuseVerification."""
        return self._rules.verification_error(self.state, producer_id, epoch)

    def start_verification(self, producer_id: int, epoch: int, sequence: int, version: int) -> Ticket:
        """The guard under which the coordinator is asked.    Spec: Leader!StartVerification."""
        guard = self.state.questions(producer_id).guard
        self.state = self._rules.with_question(self.state, producer_id, epoch, sequence, version)
        return Ticket(version, guard)

    @property
    def guarded_producers(self) -> int:
        """The number of producers that the coordinator was asked about."""
        return len(self.state.asked)

    def drop_guard(self, producer_id: int) -> None:
        """Forget a producer that was not verified and has never written anything."""
        if producer_id not in self.last_timestamps:
            self._forget_questions(producer_id)

    def _forget_questions(self, producer_id: int) -> None:
        if producer_id in self.state.asked:
            self.state = replace(self.state, asked=self.state.asked.delete(producer_id))

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(self, batch: RecordBatch, encoded: bytes, ticket: Ticket | None, now: int) -> Appended:
        """Append a batch that a client has sent, unless it is here already or is refused.

        Args:
            batch: as it was decoded, with records.
            encoded: its bytes.
            ticket: the ticket of a transactional batch; None for any other.
            now: milliseconds since the epoch.

        Spec: Leader!AppendBatch, AcknowledgeDuplicate, RefuseBatch, AppendUnidentified
        """
        sent, shown = _sent(batch), ticket or NO_TICKET
        if sent.producer_id != NO_PRODUCER_ID:
            if self._rules.is_retry(self.state, sent):
                return self._appended_before(self.state.log.duplicate_offset(sent))
            if (error := self._rules.batch_error(self.state, sent, *shown)) is not ErrorCode.NONE:
                return Appended(error)
        offset = self.log_end_offset
        self._write(encoded, offset, batch.max_timestamp)
        self._note(sent, shown.version)
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
        if ticket is not None and (error := self._rules.batch_error(self.state, sent, *ticket)) is not ErrorCode.NONE:
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
        self._note(sent, (ticket or NO_TICKET).version)
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

    def _note(self, sent: Batch, version: int) -> None:
        """Update the leader's state after a batch that was written."""
        if sent.producer_id == NO_PRODUCER_ID:
            self._become(self._rules.with_unidentified(self.state, sent.count))
        else:
            self._become(self._rules.with_batch(self.state, sent, version))

    def _saw(self, producer_id: int, now: int) -> None:
        if producer_id != NO_PRODUCER_ID:
            self.last_timestamps[producer_id] = now

    # --- markers -----------------------------------------------------------------------------------------------------

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, version: int, now: int
    ) -> ErrorCode:
        """Append a marker, unless it is refused.

        Spec: Leader!AppendMarker, RefuseMarker
        """
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        error = self._rules.marker_error(self.state, marker, version)
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
        self._become(self._rules.with_marker(self.state, marker, version))
        self._saw(producer_id, now)
        return ErrorCode.NONE

    # --- what readers are given --------------------------------------------------------------------------------------

    def aborted_between(self, position: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions of a response; see ``read_committed.collect_aborted``."""
        index = self.transactions.log.aborted_index
        first = bisect_left(index, position, key=lambda entry: entry.last_offset)
        return collect_aborted((index[place] for place in range(first, len(index))), position, upper)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written.    Kafka: LeaderEpochFileCache.epochForOffset."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), -1)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to this one, and where it ended; -1 and -1 for one that is not known yet.

        An epoch before the first one ended where that began.

        Kafka: LeaderEpochFileCache.endOffsetFor
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        if not 0 <= epoch < self.leader_epoch:
            return -1, -1
        place = bisect_right(self.epochs, epoch, key=lambda each: each[0])
        return self.epochs[place - 1][0] if place else epoch, self.epochs[place][1]

    # --- what changes around it --------------------------------------------------------------------------------------

    def expire(self, before: int) -> None:
        """Forget the producers that have been silent since a time.    Spec: Leader!ExpireProducer."""
        for producer_id in [known for known, at in self.last_timestamps.items() if at <= before]:
            if self._rules.may_expire(self.producer(producer_id)):
                del self.last_timestamps[producer_id]
                self._forget_questions(producer_id)
                after = self._rules.with_forgotten(self.state, producer_id)
                known = after.transactions
                left = replace(known, producers=known.producers.delete(producer_id))
                self._become(replace(after, transactions=left))

    def lead(self, node: int) -> None:
        """Another broker becomes the leader: guards are gone, the leader epoch rises.

        Spec: Leader!ElectLeader
        """
        self.node = node
        if node not in self.replicas:  # it is given its first one's place
            self.replicas = (node, *self.replicas[1:])
        asked = {known: self._rules.asked_after_election(each) for known, each in self.state.asked.items()}
        self.state = replace(self.state, asked=Map(asked))
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """A leader epoch in which nothing was written is replaced by the next one.

        Kafka: LeaderEpochFileCache.assign
        """
        before = [(epoch, start) for epoch, start in self.epochs if start < self.log_end_offset]
        self.epochs = [*before, (self.leader_epoch + 1, self.log_end_offset)]
        self.store.epochs(self.epochs)

    def _end_at(self, offset: int) -> None:
        """Let the log end at an offset."""
        if offset != self.log_end_offset:
            nothing = Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=NO_SEQUENCE, count=0, offset=offset)
            self._become(replace(self.state, log=replace(self.state.log, entries=pvector([nothing]))))

    def recover(self, batches: Iterable[RecordBatch], end: int) -> None:
        """Restore the machines from what an earlier process has written, without any check.

        The log ends where it is said to, wherever its batches are: some may be missing, or go beyond that.

        Kafka: UnifiedLog.rebuildProducerState, ProducerAppendInfo.append
        """
        for batch in batches:
            self._end_at(batch.base_offset)
            if batch.is_control:
                marker = batch.control_record()
                if marker is None:  # the cleaner has removed it with its transaction
                    continue
                commit = marker.control_type is ControlType.COMMIT
                entry = marker_entry(batch.producer_id, batch.producer_epoch, commit, marker.coordinator_epoch)
                self._become(self._rules.with_marker(self.state, entry, 1))
                self._saw(batch.producer_id, batch.max_timestamp)
                continue
            sent = _sent(batch)
            self._note(sent, 1 if batch.is_transactional else OUTSIDE)
            self._saw(sent.producer_id, batch.max_timestamp)
        self._end_at(end)
        self._begin_epoch()
