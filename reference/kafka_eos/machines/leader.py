"""One partition's leader, complete: producers, their transactions and its questions to the coordinator.

Spec:  Leader.tla
KIPs:  98, 360, 890, 1228
Kafka: UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo, ProducerStateManager, VerificationStateEntry

====================  ====================  ==========================================================================
spec variable         field                 Kafka
====================  ====================  ==========================================================================
leader                ``leader``            UnifiedLog and ProducerStateManager of the leader
leader.log            ``log``               its batches, and ProducerStateManager.producers
leader.transactions   ``transactions``      ProducerStateManager.ongoingTxns, TransactionIndex
leader.asked          ``asked``             ProducerStateManager.verificationStates
vouched               ``vouched``           produce requests after AddPartitionsToTxnManager has its answer
answer                ``answer``            ProduceResponse.PartitionProduceResponse
====================  ====================  ==========================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, Limits, Log, ProducerState
from kafka_eos.machines.spec_mapping import Context
from kafka_eos.machines.transactional_partition import (
    COMMIT,
    NO_PRODUCER,
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionProducer,
    ReadablePartition,
    batch_entry,
    marker_entry,
)
from kafka_eos.machines.transactions import GuardRules, Marker, Question, TransactionalLog

NO_EPOCH, NO_SEQUENCE, NO_GUARD = -1, -1, -1
OUTSIDE = 0
"""The transaction version of a batch that is outside of transactions."""
MAX_EPOCH = 32767
"""The last producer epoch of Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of Leader.tla.

    Attributes:
        max_sequence: the last sequence before the wrap to 0.
        cached_batches: batches remembered for each producer.
        producer_ids: the producers whose batches and markers arrive.
        epochs: the producer epochs that these carry.
        max_epoch: the last producer epoch.
        sequences: the sequences of batches; -1 for a coordinator's.
        batch_counts: the numbers of records in a batch.
        versions: the versions of transactions, 1 or 2; 0 for batches outside of one.
        guard_numbers: -1..n, the guards of batches; -1 for none.
        coordinator_epochs: the coordinator epochs that markers carry.
        verification: whether the coordinator is asked about transactions of version 1 as well.
        expiration: whether a producer's state may expire.
    """

    max_sequence: int
    cached_batches: int
    producer_ids: frozenset[int]
    epochs: frozenset[int]
    max_epoch: int
    sequences: frozenset[int]
    batch_counts: frozenset[int]
    versions: frozenset[int]
    guard_numbers: frozenset[int]
    coordinator_epochs: frozenset[int]
    verification: bool
    expiration: bool

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "ProducerIds": sorted(self.producer_ids),
            "Epochs": sorted(self.epochs),
            "Sequences": sorted(self.sequences),
            "BatchCounts": sorted(self.batch_counts),
            "Versions": sorted(self.versions),
            "GuardNumbers": sorted(self.guard_numbers),
            "CoordinatorEpochs": sorted(self.coordinator_epochs),
            "BOOLEAN": (False, True),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A leader's state of its questions about a producer.    Kafka: VerificationStateEntry.

    Attributes:
        guard: the guard that they share; a used one is never valid again.
        guard_epoch: the highest epoch among them.
        guard_version: the transaction version of the question with that epoch.
        lowest_sequence: the lowest sequence asked about in that epoch.
    """

    guard: int = 0
    guard_epoch: int = NO_EPOCH
    guard_version: int = 0
    lowest_sequence: int = NO_SEQUENCE


NOTHING_ASKED = Asked()
NO_TRANSACTIONS = LeaderLog(producers=Map())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """A leader's state: its log, the log's transactions, and its questions to the coordinator."""

    log: Log
    transactions: LeaderLog
    asked: Map[int, Asked]

    def producer(self, producer_id: int) -> PartitionProducer:
        """The state of a producer's transactions."""
        return self.transactions.producers.get(producer_id, NO_PRODUCER)

    def questions(self, producer_id: int) -> Asked:
        """The questions about a producer."""
        return self.asked.get(producer_id, NOTHING_ASKED)

    def last_sequence(self, producer_id: int) -> int:
        """The last sequence of a producer's present epoch, -1 before the first."""
        known = self.log.producers.get(producer_id)
        return self.log.limits.last_sequence(known.batches[-1]) if known and known.batches else NO_SEQUENCE

    def knowing(self, producer_id: int) -> LeaderLog:
        """The transactions, with this producer among them."""
        known = self.transactions
        if producer_id in known.producers:
            return known
        return replace(known, producers=known.producers.set(producer_id, NO_PRODUCER))


@dataclass(frozen=True, slots=True)
class Rules:
    """A leader's decisions: pure and total functions of its state and of a request.

    Attributes:
        guards: the rules for guards.
        version_1: the rules for markers of version 1.
        version_2: the rules for transactions, for markers of version 2, and for readers.
    """

    guards: GuardRules
    version_1: ReadablePartition
    version_2: ReadablePartition

    def guarded(self, before: LeaderState, producer_id: int) -> TransactionalLog:
        """The facts that the rules for guards read."""
        producer, asked = before.producer(producer_id), before.questions(producer_id)
        return TransactionalLog(
            epoch=producer.epoch,
            open=producer.is_open,
            guard=asked.guard,
            guard_epoch=asked.guard_epoch,
            guard_version=asked.guard_version,
            coordinator_epoch=producer.coordinator_epoch,
        )

    def kept(self, asked: Asked, guarded: TransactionalLog) -> Asked:
        """The questions about a producer after a step; when the guard is used up, the lowest sequence is forgotten."""
        return Asked(
            guard=guarded.guard,
            guard_epoch=guarded.guard_epoch,
            guard_version=guarded.guard_version,
            lowest_sequence=asked.lowest_sequence if guarded.guard == asked.guard else NO_SEQUENCE,
        )

    # --- verification ------------------------------------------------------------------------------------------------

    def needs_verification(self, before: LeaderState, producer_id: int, epoch: int, version: int) -> bool:
        """The coordinator has to be asked before a batch of this producer is appended."""
        return (
            version != OUTSIDE
            and self.guards.needs_guard(version)
            and not self.guards.is_ongoing(self.guarded(before, producer_id), epoch)
        )

    def verification_error(self, before: LeaderState, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why a leader does not ask about a batch; ``NONE`` if it asks."""
        return ErrorCode.INVALID_PRODUCER_EPOCH if epoch < before.producer(producer_id).epoch else ErrorCode.NONE

    def lowest_sequence(self, asked: Asked, epoch: int, sequence: int) -> int:
        """The lowest sequence that a leader has asked about, after one more question."""
        if epoch > asked.guard_epoch:
            return sequence
        return min(sequence, asked.lowest_sequence) if epoch == asked.guard_epoch else asked.lowest_sequence

    def question_version(self, asked: Asked, version: int) -> int:  # noqa: ARG002 - a mutant uses it
        """The version that counts if a question's epoch is above those of the questions before it.

        Departs from Kafka: there the version of the first question counts (FirstQuestionDecides).
        """
        return version

    def with_question(
        self, before: LeaderState, producer_id: int, epoch: int, sequence: int, version: int
    ) -> LeaderState:
        """The leader after it has begun to ask about a batch."""
        asked = before.questions(producer_id)
        question = Question(version=self.question_version(asked, version), epoch=epoch)
        after = self.guards.with_guard(self.guarded(before, producer_id), question)
        lowest = self.lowest_sequence(asked, epoch, sequence)
        return replace(
            before, asked=before.asked.set(producer_id, replace(self.kept(asked, after), lowest_sequence=lowest))
        )

    # --- why a leader refuses a batch or a marker, in Kafka's order of checks ----------------------------------------

    def is_of_coordinator(self, batch: Batch) -> bool:
        """A coordinator writes its records without sequences.    Kafka: AppendOrigin.COORDINATOR."""
        return batch.sequence == NO_SEQUENCE

    def is_retry(self, before: LeaderState, batch: Batch) -> bool:
        """The batch is in the log already; a coordinator's batch, which has no sequence, is never a retry."""
        return before.log.is_duplicate(batch)

    def entry_of(self, batch: Batch, version: int) -> LogEntry:
        """A batch as the rules of transactions see it."""
        return batch_entry(batch.producer_id, batch.epoch, PLAIN if version == OUTSIDE else TRANSACTIONAL)

    def guard_error(self, before: LeaderState, batch: Batch, version: int, guard: int) -> ErrorCode:
        """First check: a transaction begins only with a batch that the coordinator has vouched for."""
        if version == OUTSIDE:
            return ErrorCode.NONE
        return self.guards.data_error(self.guarded(before, batch.producer_id), batch.epoch, guard)

    def sequence_error(self, before: LeaderState, batch: Batch) -> ErrorCode:
        """Second check: epoch and sequence.

        Departs from Kafka: there the questions that were asked about other batches count as well (AsShipped).
        """
        return ErrorCode.NONE if self.is_of_coordinator(batch) else before.log.append_error(batch)

    def is_above_lowest(self, before: LeaderState, batch: Batch) -> bool:
        """The leader has asked about an earlier sequence; Kafka refuses the batch for it, no rule here does.

        Kafka: VerificationStateEntry.lowestSequence (KAFKA-14920)
        """
        asked = before.questions(batch.producer_id)
        return asked.guard_epoch != NO_EPOCH and batch.sequence > asked.lowest_sequence

    def begins_behind_zero(self, before: LeaderState, batch: Batch) -> bool:
        """An unknown producer begins a transaction of version 2 with a sequence above 0; only Kafka refuses it.

        Kafka: ProducerAppendInfo.checkSequence (KAFKA-18202)
        """
        asked = before.questions(batch.producer_id)
        return not before.log.knows_producer(batch.producer_id) and asked.guard_version == 2 and batch.sequence != 0

    def transaction_error(self, before: LeaderState, batch: Batch, version: int) -> ErrorCode:
        """Third check: the epoch again, for batches of coordinators, and the open transaction."""
        return self.version_2.batch_error(before.knowing(batch.producer_id), self.entry_of(batch, version))

    def batch_error(self, before: LeaderState, batch: Batch, version: int, guard: int) -> ErrorCode:
        """The reason why a leader refuses a batch that is no retry; ``NONE`` if it accepts it.

        Kafka: UnifiedLog.analyzeAndValidateProducerState
        """
        if (error := self.guard_error(before, batch, version, guard)) is not ErrorCode.NONE:
            return error
        if (error := self.sequence_error(before, batch)) is not ErrorCode.NONE:
            return error
        return self.transaction_error(before, batch, version)

    def marker_error(self, before: LeaderState, marker: LogEntry, version: int) -> ErrorCode:
        """The reason why a leader refuses a marker; ``NONE`` if it accepts it."""
        rules = self.version_2 if version == 2 else self.version_1
        return rules.marker_error(before.knowing(marker.producer_id), marker)

    # --- what an append changes -------------------------------------------------------------------------------------

    def without_sequence(self, log: Log, producer_id: int, epoch: int, count: int) -> Log:
        """The log after a coordinator's entry, which has no sequence.

        A new epoch that it brings has no batches yet.

        Kafka: ProducerAppendInfo.appendEndTxnMarker, ProducerStateEntry.maybeUpdateProducerEpoch
        """
        after = log.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=NO_EPOCH, sequence=NO_SEQUENCE, count=count))
        known = log.producers.get(producer_id)
        if known is not None and known.epoch == epoch:
            return after
        return replace(after, producers=after.producers.set(producer_id, ProducerState(epoch=epoch, batches=())))

    def with_sequence(self, log: Log, batch: Batch) -> Log:
        """The log after a batch."""
        if self.is_of_coordinator(batch):
            return self.without_sequence(log, batch.producer_id, batch.epoch, batch.count)
        return log.appended(batch)

    def with_entry(self, before: LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
        """The transactions after an entry, which is replicated at once."""
        at = replace(entry, offset=before.log.log_end_offset)
        written = self.version_2.written(before.knowing(entry.producer_id), at)
        return self.version_2.with_replicated(written, log.log_end_offset) if written.transactions else written

    def asked_after_batch(self, before: LeaderState, batch: Batch, version: int) -> Asked:
        """The questions about a producer after its batch: a batch of a transaction uses up the guard.

        Departs from Kafka: there every batch of a transaction uses the guard up (EveryBatchUsesGuardUp).
        """
        asked = before.questions(batch.producer_id)
        if version == OUTSIDE:
            return asked
        return self.kept(asked, self.guards.with_data(self.guarded(before, batch.producer_id), "none", 0, batch.epoch))

    def with_batch(self, before: LeaderState, batch: Batch, version: int) -> LeaderState:
        """The leader after a batch that passed every check."""
        log, asked = self.with_sequence(before.log, batch), before.asked
        if version != OUTSIDE:
            asked = asked.set(batch.producer_id, self.asked_after_batch(before, batch, version))
        transactions = self.with_entry(before, self.entry_of(batch, version), log)
        return LeaderState(log=log, transactions=transactions, asked=asked)

    def asked_after_marker(self, before: LeaderState, marker: LogEntry, version: int) -> Asked:
        """The questions about a producer after a marker: it uses up the guard, except of a transaction just begun."""
        sent = Marker(
            partition="",
            version=version,
            epoch=marker.epoch,
            commit=marker.kind == COMMIT,
            coordinator_epoch=marker.coordinator_epoch,
        )
        guarded = self.guarded(before, marker.producer_id)
        return self.kept(before.questions(marker.producer_id), self.guards.with_marker(guarded, sent))

    def with_marker(self, before: LeaderState, marker: LogEntry, version: int) -> LeaderState:
        """The leader after a marker that passed every check."""
        log = self.without_sequence(before.log, marker.producer_id, marker.epoch, 1)
        return LeaderState(
            log=log,
            transactions=self.with_entry(before, marker, log),
            asked=before.asked.set(marker.producer_id, self.asked_after_marker(before, marker, version)),
        )

    def with_unidentified(self, before: LeaderState, count: int) -> LeaderState:
        """The leader after a batch without a producer id, which changes no producer's state."""
        batch = Batch(producer_id=NO_PRODUCER_ID, epoch=NO_EPOCH, sequence=NO_SEQUENCE, count=count)
        return replace(before, log=before.log.appended(batch))

    def asked_after_election(self, asked: Asked) -> Asked:
        """The questions about a producer at a new leader: none is open."""
        return replace(NOTHING_ASKED, guard=asked.guard + 1)

    def readable(self, before: LeaderState) -> ReadablePartition:
        """The leader's log as readers see it: what is appended is replicated at once."""
        return replace(self.version_2, log=before.transactions, high_watermark=before.log.log_end_offset)

    def may_expire(self, producer: PartitionProducer) -> bool:
        """A producer that may be forgotten has no transaction open."""
        return self.version_2.may_expire(producer)

    def with_forgotten(self, before: LeaderState, producer_id: int) -> LeaderState:
        """The leader after it has forgotten a producer."""
        known = before.transactions
        return replace(
            before,
            log=before.log.forgotten(producer_id),
            transactions=replace(known, producers=known.producers.set(producer_id, NO_PRODUCER)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionConstants:
    """The constants that decide about a marker: see ``transactional_partition.MarkerConstants``."""

    transaction_version: int
    max_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRules:
    """The rules of a leader; a mutant can replace each of them.

    Attributes:
        leader: the rules that combine the others.
        sequences: duplicates, epochs, sequences.
        partition: markers, and what readers may see.
        guards: guards of batches that the coordinator is asked about.
        verification: whether a leader also asks the coordinator about a transaction's first batch in version 1.
        max_epoch: the last producer epoch.
    """

    leader: type[Rules] = Rules
    sequences: type[Log] = Log
    partition: type[ReadablePartition] = ReadablePartition
    guards: type[GuardRules] = GuardRules
    verification: bool = True
    max_epoch: int = MAX_EPOCH

    def of_leader(self) -> Rules:
        """The rules of a leader."""
        return self.leader(self.guards(constants=self), self._of_partition(1), self._of_partition(2))

    def _of_partition(self, version: int) -> ReadablePartition:
        constants = VersionConstants(transaction_version=version, max_epoch=self.max_epoch)
        return self.partition(constants=constants, log=NO_TRANSACTIONS)

    def new_state(self) -> LeaderState:
        """A new leader's state: empty."""
        return LeaderState(log=self.sequences(), transactions=NO_TRANSACTIONS, asked=Map())


@dataclass(frozen=True, slots=True, kw_only=True)
class Vouched:
    """A batch that the coordinator has vouched for.

    Attributes:
        producer_id: the producer id of the batch.
        epoch: the epoch of the batch.
        version: the version of the transaction.
        guard: the guard under which the coordinator was asked.
        offset: the log's end offset at that time.
    """

    producer_id: int
    epoch: int
    version: int
    guard: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request: the error, or the offset of its batch; ``offset`` is -1 for an error."""

    error: ErrorCode = ErrorCode.NONE
    offset: int = -1


NO_ANSWER = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A state of Leader.tla: the leader's state, the batches that may be appended, and its last answer."""

    MODULE: ClassVar[str] = "Leader"
    VARIABLES: ClassVar[tuple[str, ...]] = ("leader", "vouched", "answer")
    LOG: ClassVar[type[Log]] = Log
    LIMITS: ClassVar[type[Rules]] = Rules

    constants: Constants = field(compare=False)
    leader: LeaderState
    vouched: frozenset[Vouched] = frozenset()
    answer: Answer = NO_ANSWER

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: an empty log, no questions and no answer."""
        log = cls.LOG(limits=Limits(constants.max_sequence, constants.cached_batches))
        producers = Map(dict.fromkeys(constants.producer_ids, NO_PRODUCER))
        asked = Map(dict.fromkeys(constants.producer_ids, NOTHING_ASKED))
        return cls(
            constants=constants, leader=LeaderState(log=log, transactions=LeaderLog(producers=producers), asked=asked)
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:
        """The class of the log, which a mutant changes, and its limits."""
        return {Log: cls.LOG, Limits: Limits(constants.max_sequence, constants.cached_batches)}

    @property
    def rules(self) -> Rules:
        """The leader's decisions."""
        constants = self.constants
        return LeaderRules(
            leader=self.LIMITS, verification=constants.verification, max_epoch=constants.max_epoch
        ).of_leader()

    def last_stable_offset(self) -> int:
        """The offset up to which committed data can be read."""
        return self.rules.readable(self.leader).last_stable_offset()

    # --- what arrives                                                               WHO: the leader ---------------

    def may_present(self, producer_id: int, epoch: int, version: int, guard: int) -> bool:
        """A batch may carry this guard: none, or one that the coordinator has vouched for."""
        wanted = (producer_id, epoch, version, guard)
        return guard == NO_GUARD or any(
            (one.producer_id, one.epoch, one.version, one.guard) == wanted for one in self.vouched
        )

    def _presented(self, producer_id: int, epoch: int, sequence: int, count: int, version: int, guard: int) -> Batch:
        enabled(self.may_present(producer_id, epoch, version, guard), "nobody has vouched for the batch")
        return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)

    @action("StartVerification", "ProducerIds", "Epochs", "Sequences", "Versions")
    def start_verification(self, producer_id: int, epoch: int, sequence: int, version: int) -> Self:
        """The leader asks the coordinator about a batch, and the coordinator vouches for it.

        Spec:  Leader!StartVerification
        KIP:   KIP-890
        Kafka: UnifiedLog.maybeStartTransactionVerification
        """
        enabled(self.rules.needs_verification(self.leader, producer_id, epoch, version), "there is nothing to ask")
        error = self.rules.verification_error(self.leader, producer_id, epoch)
        enabled(error is ErrorCode.NONE, error.name)
        guard = self.leader.questions(producer_id).guard
        one = Vouched(
            producer_id=producer_id,
            epoch=epoch,
            version=version,
            guard=guard,
            offset=self.leader.log.log_end_offset,
        )
        known = self.may_present(producer_id, epoch, version, guard)
        return replace(
            self,
            leader=self.rules.with_question(self.leader, producer_id, epoch, sequence, version),
            vouched=self.vouched if known else self.vouched | {one},
        )

    @action("RefuseVerification", "ProducerIds", "Epochs", "Versions")
    def refuse_verification(self, producer_id: int, epoch: int, version: int) -> Self:
        """The leader does not ask the coordinator about a batch of an epoch that has passed.

        Spec:  Leader!RefuseVerification
        KIP:   KIP-890
        Kafka: UnifiedLog.maybeStartTransactionVerification
        """
        enabled(self.rules.needs_verification(self.leader, producer_id, epoch, version), "there is nothing to ask")
        error = self.rules.verification_error(self.leader, producer_id, epoch)
        enabled(error is not ErrorCode.NONE, "the leader asks")
        return replace(self, answer=Answer(error=error))

    @action("AppendBatch", "ProducerIds", "Epochs", "Sequences", "BatchCounts", "Versions", "GuardNumbers")
    def append_batch(self, producer_id: int, epoch: int, sequence: int, count: int, version: int, guard: int) -> Self:
        """The leader appends a batch that passed every check.

        Spec:  Leader!AppendBatch
        KIP:   KIP-98, KIP-890
        Kafka: UnifiedLog.append, ProducerAppendInfo.appendDataBatch
        """
        batch = self._presented(producer_id, epoch, sequence, count, version, guard)
        enabled(not self.rules.is_retry(self.leader, batch), "the batch is a duplicate")
        error = self.rules.batch_error(self.leader, batch, version, guard)
        enabled(error is ErrorCode.NONE, error.name)
        return replace(
            self,
            leader=self.rules.with_batch(self.leader, batch, version),
            answer=Answer(offset=self.leader.log.log_end_offset),
        )

    @action("AcknowledgeDuplicate", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def acknowledge_duplicate(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """The leader acknowledges a retry with the offset of the first copy, whatever its guard.

        Spec:  Leader!AcknowledgeDuplicate
        KIP:   KIP-98
        Kafka: UnifiedLog.append, the branch for a duplicate
        """
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        enabled(self.rules.is_retry(self.leader, batch), "the batch is no duplicate")
        return replace(self, answer=Answer(offset=self.leader.log.duplicate_offset(batch)))

    @action("RefuseBatch", "ProducerIds", "Epochs", "Sequences", "BatchCounts", "Versions", "GuardNumbers")
    def refuse_batch(self, producer_id: int, epoch: int, sequence: int, count: int, version: int, guard: int) -> Self:
        """The leader refuses a batch that fails a check.

        Spec:  Leader!RefuseBatch
        KIP:   KIP-98, KIP-360, KIP-890
        Kafka: UnifiedLog.analyzeAndValidateProducerState
        """
        batch = self._presented(producer_id, epoch, sequence, count, version, guard)
        enabled(not self.rules.is_retry(self.leader, batch), "the batch is a duplicate")
        error = self.rules.batch_error(self.leader, batch, version, guard)
        enabled(error is not ErrorCode.NONE, "the batch passes every check")
        return replace(self, answer=Answer(error=error))

    @action("AppendUnidentified", "BatchCounts")
    def append_unidentified(self, count: int) -> Self:
        """The leader appends a batch without a producer id.

        Spec:  Leader!AppendUnidentified
        KIP:   KIP-98
        Kafka: RecordBatch.hasProducerId
        """
        return replace(
            self,
            leader=self.rules.with_unidentified(self.leader, count),
            answer=Answer(offset=self.leader.log.log_end_offset),
        )

    @action("AppendMarker", "ProducerIds", "Epochs", "BOOLEAN", "CoordinatorEpochs", "Versions")
    def append_marker(self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, version: int) -> Self:
        """The leader appends a marker that passed every check, whether there is a transaction to end or not.

        Spec:  Leader!AppendMarker
        KIP:   KIP-98, KIP-1228
        Kafka: UnifiedLog.append, ProducerAppendInfo.appendEndTxnMarker
        """
        enabled(version != OUTSIDE, "a marker belongs to a transaction")
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        error = self.rules.marker_error(self.leader, marker, version)
        enabled(error is ErrorCode.NONE, error.name)
        return replace(
            self,
            leader=self.rules.with_marker(self.leader, marker, version),
            answer=Answer(offset=self.leader.log.log_end_offset),
        )

    @action("RefuseMarker", "ProducerIds", "Epochs", "BOOLEAN", "CoordinatorEpochs", "Versions")
    def refuse_marker(self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, version: int) -> Self:
        """The leader refuses a marker that fails a check.

        Spec:  Leader!RefuseMarker
        KIP:   KIP-98, KIP-1228
        Kafka: ProducerAppendInfo.checkProducerEpoch
        """
        enabled(version != OUTSIDE, "a marker belongs to a transaction")
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        error = self.rules.marker_error(self.leader, marker, version)
        enabled(error is not ErrorCode.NONE, "the marker passes every check")
        return replace(self, answer=Answer(error=error))

    # --- what changes around it                                                     WHO: controller and time ------

    @action("ElectLeader")
    def elect_leader(self) -> Self:
        """Another broker becomes the leader: it has the log, but no guards; requests that wait at the old leader fail.

        Spec:  Leader!ElectLeader
        KIP:   KIP-890
        Kafka: Partition.makeLeader
        """
        asked = {producer_id: self.rules.asked_after_election(each) for producer_id, each in self.leader.asked.items()}
        enabled(all(each.guard in self.constants.guard_numbers for each in asked.values()), "guards have run out")
        return replace(self, leader=replace(self.leader, asked=Map(asked)), vouched=frozenset(), answer=NO_ANSWER)

    @action("ExpireProducer", "ProducerIds")
    def expire_producer(self, producer_id: int) -> Self:
        """The leader forgets a producer that has been silent for too long.

        Spec:  Leader!ExpireProducer
        KIP:   KIP-854
        Kafka: ProducerStateManager.removeExpiredProducers
        """
        enabled(self.constants.expiration, "producers do not expire in this model")
        enabled(self.leader.log.knows_producer(producer_id), "there is no state for the producer")
        may_expire = self.rules.may_expire(self.leader.producer(producer_id))
        enabled(may_expire, "the producer has a transaction open")
        return replace(self, leader=self.rules.with_forgotten(self.leader, producer_id))
