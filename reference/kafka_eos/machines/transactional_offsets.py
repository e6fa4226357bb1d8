"""The offsets that one client commits for one partition in its transactions, and the group coordinator that keeps them.

Spec:  TransactionalOffsets.tla
KIPs:  98, 447, 890
Kafka: OffsetMetadataManager, CoordinatorRuntime, CoordinatorPartitionWriter, TransactionManager

=============  =================  ======================================================================
spec variable  field              Kafka
=============  =================  ======================================================================
transaction    ``transaction``    TransactionMetadata: state, producerEpoch, topicPartitions
client         ``client``         TransactionManager: state, pendingTxnOffsetCommits
outcome        ``outcome``        the application's own decision
sends          ``sends``          the TxnOffsetCommit requests: their ProducerEpoch
copies         ``copies``         TxnOffsetCommit requests in the network
due            ``due``            CoordinatorRuntime.deferredEventQueue
log            ``log``            the group's partition of __consumer_offsets
replicated     ``replicated``     its high watermark
memory         ``memory``         OffsetMetadataManager: pendingTransactionalOffsets, offsets
former         ``former``         the same of a broker that does not know it was replaced
fetched        ``fetched``        the offset in an OffsetFetch response
faults         ``faults``         none: it bounds the models
=============  =================  ======================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Self

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

NO_OFFSET = 0
EMPTY, ONGOING = "EMPTY", "ONGOING"
PREPARE_COMMIT, PREPARE_ABORT = "PREPARE_COMMIT", "PREPARE_ABORT"
READY, OPEN = "ready", "open"
NONE, COMMITTED, ABORTED = "none", "committed", "aborted"
OFFSET, COMMIT, ABORT = "offset", "commit", "abort"
FORMER_COORDINATOR = "former coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of TransactionalOffsets.tla.

    Attributes:
        sends: 1..n, the sends of offsets.
        numbers: 1..n, the client's transactions.
        version: the transaction version that the client speaks, 1 or 2.
        verification: whether the leader asks the transaction coordinator before a transaction's first offsets, as with
            version 2 it always does.
        faults: what may go wrong.
        max_faults: how often.
    """

    sends: frozenset[int]
    numbers: frozenset[int]
    version: int
    verification: bool
    faults: frozenset[str]
    max_faults: int

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets: dict[str, Iterable[Hashable]] = {"Sends": sorted(self.sends), "BOOLEAN": (False, True)}
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The transaction coordinator's record."""

    state: str = EMPTY
    epoch: int = 0
    registered: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client's state, the number of its transaction, whether it added the offsets, and its unanswered sends."""

    state: str = READY
    number: int = 0
    added: bool = False
    unanswered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A send of an offset: its transaction and its epoch. The offset is the send's number."""

    transaction: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the log: an offset or a marker, of a transaction."""

    kind: str
    epoch: int
    transaction: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A group coordinator's state: pending and committed offset, the producer's epoch, the latest send."""

    pending: int = NO_OFFSET
    committed: int = NO_OFFSET
    epoch: int = 0
    latest: int = 0


NOTHING = Memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOffsets:
    """A state of TransactionalOffsets.tla."""

    MODULE: ClassVar[str] = "TransactionalOffsets"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "transaction",
        "client",
        "outcome",
        "sends",
        "copies",
        "due",
        "log",
        "replicated",
        "memory",
        "former",
        "fetched",
        "faults",
    )

    constants: Constants = field(compare=False)
    transaction: Transaction = Transaction()
    client: Client = Client()
    outcome: Map[int, str]
    sends: tuple[Send, ...] = ()
    copies: Map[int, int]
    due: Map[int, int]
    log: tuple[Entry, ...] = ()
    replicated: int = 0
    memory: Memory = NOTHING
    former: int = NO_OFFSET
    fetched: int = NO_OFFSET
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: nothing is sent, nothing is committed."""
        nothing = Map(dict.fromkeys(constants.sends, 0))
        outcome = Map(dict.fromkeys(constants.numbers, NONE))
        return cls(constants=constants, outcome=outcome, copies=nothing, due=nothing)

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def _fault(self, kind: str) -> int:
        """The number of faults after one more, if there may be one more."""
        possible = kind in self.constants.faults and self.faults < self.constants.max_faults
        enabled(possible, f"no {kind} may happen any more")
        return self.faults + 1

    def is_prepared(self) -> bool:
        """The transaction coordinator has decided, and waits for the marker."""
        return self.transaction.state in {PREPARE_COMMIT, PREPARE_ABORT}

    # --- the group coordinator's rules

    def after_offset(self, known: Memory, entry: Entry) -> Memory:
        """The coordinator's state after an offset: it is pending, and replaces an earlier one.

        Kafka: OffsetMetadataManager.replay
        """
        return replace(known, pending=entry.offset, epoch=entry.epoch, latest=entry.offset)

    def committed_at_offset(self, known: Memory, entry: Entry) -> int:  # noqa: ARG002 - a mutant of this rule needs it
        """The committed offset after an offset was written in a transaction: unchanged."""
        return known.committed

    def committed_at_end(self, known: Memory, entry: Entry) -> int:
        """The committed offset after a marker: only a commit replaces it, by the pending offset."""
        if entry.kind == COMMIT and known.pending != NO_OFFSET:
            return known.pending
        return known.committed

    def after(self, known: Memory, entry: Entry) -> Memory:
        """The coordinator's state after one more entry of the log.

        Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker, ProducerStateManager
        """
        if entry.kind == OFFSET:
            return replace(self.after_offset(known, entry), committed=self.committed_at_offset(known, entry))
        committed = self.committed_at_end(known, entry)
        return replace(known, pending=NO_OFFSET, committed=committed, epoch=entry.epoch)

    def loaded(self, entries: tuple[Entry, ...]) -> Memory:
        """The state of a coordinator that has loaded a log."""
        return reduce(self.after, entries, NOTHING)

    def ends_open(self) -> bool:
        """The log ends within a transaction."""
        return bool(self.log) and self.log[-1].kind == OFFSET

    def applies_at_once(self) -> bool:
        """A marker takes effect on the offsets together with its append; in 3.9 a task follows (AppliesByTask)."""
        return True

    def is_unapplied(self) -> bool:
        """The last entry is a marker that has not taken effect yet."""
        return not self.applies_at_once() and self.memory.pending != NO_OFFSET and not self.ends_open()

    def known_after_load(self, entries: tuple[Entry, ...]) -> Memory:
        """The state of a new coordinator: everything in the log counts, pending offsets included."""
        return self.loaded(entries)

    def verification_error(self, send: int) -> ErrorCode:
        """The transaction coordinator's answer to the leader's question about a send; ``NONE`` if it may be stored.

        Kafka: TransactionCoordinator.handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction
        """
        if not self.constants.verification:
            return ErrorCode.NONE
        if self.sends[send - 1].epoch != self.transaction.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_prepared():
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.constants.version == 1 and not self.transaction.registered:
            return ErrorCode.TRANSACTION_ABORTABLE
        return ErrorCode.NONE

    def is_ongoing(self, send: int) -> bool:
        """The send's transaction is open in the log: one of the same epoch, which may be an earlier one in version 1.

        Kafka: UnifiedLog.hasOngoingTransaction
        """
        return self.ends_open() and self.sends[send - 1].epoch == self.memory.epoch

    def txn_offset_commit_error(self, send: int) -> ErrorCode:
        """The reason why a send is refused; ``NONE`` if it is not.

        The leader does not ask about a transaction that is open in the log.

        Kafka: UnifiedLog.maybeStartTransactionVerification
        """
        if self.sends[send - 1].epoch < self.memory.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_ongoing(send):
            return ErrorCode.NONE
        return self.verification_error(send)

    def is_outdated(self, send: int) -> bool:
        """A send is a retry of a stored send, or older than the latest stored one.

        Departs from Kafka: there offsets have no sequence (CoordinatorPartitionWriter, NO_SEQUENCE) and any send is
        stored, so that a delayed retry replaces a later send's offset. Here a send carries its number.
        """
        return send <= self.memory.latest

    def answered_at(self, position: int) -> int:
        """The position up to which the log must be replicated before a send stored at that position is answered."""
        return position

    def fetched_entries(self) -> tuple[Entry, ...]:
        """The entries that a fetch with requireStable reads: those below the high watermark.

        Kafka: CoordinatorRuntime, a write without records waits for those before it (KIP-447)
        """
        return self.log[: self.replicated]

    def readable(self) -> Memory:
        """The state from which a fetch is answered."""
        return self.loaded(self.fetched_entries())

    def is_unstable(self, known: Memory) -> bool:
        """Whether an offset is refused to a fetch, because another one is pending.

        Kafka: OffsetMetadataManager.fetchOffsets, UNSTABLE_OFFSET_COMMIT
        """
        return known.pending != NO_OFFSET

    # --- the client                                                                 WHO: the application ----------

    def can_send(self) -> bool:
        """The client is in a transaction, or one may begin."""
        return self.client.state == OPEN or self.client.number + 1 in self.constants.numbers

    def within(self) -> Client:
        """The client in its transaction; if none is open, the next one begins."""
        if self.client.state == OPEN:
            return self.client
        return replace(self.client, state=OPEN, number=self.client.number + 1, added=False)

    @action("AddOffsets")
    def add_offsets(self) -> Self:
        """The client registers the group's offsets with the transaction coordinator.

        Spec:  TransactionalOffsets!AddOffsets
        KIP:   KIP-98
        Kafka: TransactionManager.AddOffsetsToTxnHandler
        """
        enabled(self.constants.version == 1, "version 2 registers nothing itself")
        enabled(self.can_send(), "transactions have run out")
        client = self.within()
        enabled(not self.is_prepared() and not client.added, "the coordinator is busy, or they are added")
        return replace(
            self,
            client=replace(client, added=True),
            outcome=self.outcome.set(client.number, OPEN),
            transaction=replace(self.transaction, state=ONGOING, registered=True, number=client.number),
        )

    @action("SendOffsets")
    def send_offsets(self) -> Self:
        """The application sends an offset, after the answer to the one before or after that call has timed out.

        Spec:  TransactionalOffsets!SendOffsets
        KIP:   KIP-98, KIP-890
        Kafka: KafkaProducer.sendOffsetsToTransaction
        """
        enabled(self.can_send(), "transactions have run out")
        client, send = self.within(), len(self.sends) + 1
        enabled(self.constants.version == 2 or client.added, "the offsets are not added")
        enabled(send in self.constants.sends, "sends have run out")
        return replace(
            self,
            faults=self._fault("call times out") if self.client.unanswered else self.faults,
            sends=(*self.sends, Send(transaction=client.number, epoch=self.transaction.epoch)),
            client=replace(client, unanswered=client.unanswered | {send}),
            copies=self.copies.set(send, 1),
            outcome=self.outcome.set(client.number, OPEN),
        )

    @action("ResendOffsets", "Sends")
    def resend_offsets(self, send: int) -> Self:
        """The client sends a request again: the former one had no effect, or the client has waited long enough.

        Spec:  TransactionalOffsets!ResendOffsets
        KIP:   KIP-98
        Kafka: TransactionManager.TxnRequestHandler.reenqueue
        """
        enabled(send in self.client.unanswered, "the client waits for no such answer")
        faults = self._fault("request times out") if self.copies[send] or self.due[send] else self.faults
        return replace(self, faults=faults, copies=self.copies.set(send, self.copies[send] + 1))

    @action("ReceiveAnswer", "Sends")
    def receive_answer(self, send: int) -> Self:
        """The client learns that an offset is stored.

        Spec:  TransactionalOffsets!ReceiveAnswer
        KIP:   KIP-98
        Kafka: TransactionManager.TxnOffsetCommitHandler
        """
        enabled(0 < self.due[send] <= self.replicated, "no answer is due")
        client = replace(self.client, unanswered=self.client.unanswered - {send})
        return replace(self, client=client, due=self.due.set(send, 0))

    def sent_within(self, number: int) -> frozenset[int]:
        """The sends of a transaction."""
        return frozenset(send for send, sent in enumerate(self.sends, 1) if sent.transaction == number)

    def end_epoch(self) -> int:
        """The epoch of the producer after the end of a transaction."""
        return self.transaction.epoch + 1 if self.constants.version == 2 else self.transaction.epoch

    @action("End", "BOOLEAN")
    def end(self, commit: bool) -> Self:
        """The application ends its transaction.

        It commits when every send is answered; it may abort after a call has timed out.

        Spec:  TransactionalOffsets!End
        KIP:   KIP-98, KIP-890
        Kafka: TransactionCoordinator.endTransaction
        """
        enabled(self.client.state == OPEN and not self.is_prepared(), "no transaction, or the coordinator is busy")
        enabled(not commit or not self.client.unanswered, "it waits for an answer")
        enabled(not commit or bool(self.sent_within(self.client.number)), "it has sent nothing")
        state = EMPTY
        if self.transaction.registered:
            state = PREPARE_COMMIT if commit else PREPARE_ABORT
        return replace(
            self,
            faults=self._fault("call times out") if self.client.unanswered else self.faults,
            client=replace(self.client, state=READY, unanswered=frozenset()),
            outcome=self.outcome.set(self.client.number, COMMITTED if commit else ABORTED),
            transaction=replace(self.transaction, epoch=self.end_epoch(), state=state),
            due=self._nothing_due(),
        )

    def _nothing_due(self) -> Map[int, int]:
        return Map(dict.fromkeys(self.constants.sends, 0))

    @action("FetchOffset")
    def fetch_offset(self) -> Self:
        """A consumer asks for the group's offset, with requireStable.

        Spec:  TransactionalOffsets!FetchOffset
        KIP:   KIP-447
        Kafka: GroupCoordinatorService.fetchOffsets
        """
        known = self.readable()
        enabled(not self.is_unstable(known), "an offset is pending")
        return replace(self, fetched=known.committed)

    @action("FetchFromFormer")
    def fetch_from_former(self) -> Self:
        """A consumer asks a former coordinator, for which no offset is pending.

        Spec:  TransactionalOffsets!FetchFromFormer
        KIP:   KIP-447
        Kafka: CoordinatorRuntime.CoordinatorContext
        """
        enabled(self.former != NO_OFFSET, "no former coordinator has an offset")
        return replace(self, faults=self._fault(FORMER_COORDINATOR), fetched=self.former)

    # --- the group coordinator                                                      WHO: the group's coordinator --

    def _written(self, entry: Entry, **changes: Any) -> Self:
        memory = self.after(self.memory, entry)
        if entry.kind != OFFSET and not self.applies_at_once():
            memory = replace(self.memory, epoch=entry.epoch)
        return replace(self, log=(*self.log, entry), memory=memory, **changes)

    def _arrived(self, send: int, *, refused: bool) -> Map[int, int]:
        """The requests in flight after one of a send has arrived, which is refused or accepted."""
        enabled(self.copies[send] > 0, "no such request is on its way")
        enabled((self.txn_offset_commit_error(send) is not ErrorCode.NONE) == refused, "the other outcome")
        return self.copies.set(send, self.copies[send] - 1)

    def _due_at(self, send: int, position: int) -> Map[int, int]:
        return self.due.set(send, position) if send in self.client.unanswered else self.due

    @action("StoreOffsets", "Sends")
    def store_offsets(self, send: int) -> Self:
        """The coordinator stores an offset; with version 2 it registers its partition.

        Spec:  TransactionalOffsets!StoreOffsets
        KIP:   KIP-98, KIP-890
        Kafka: GroupCoordinatorService.commitTransactionalOffsets
        """
        copies = self._arrived(send, refused=False)
        enabled(not self.is_outdated(send), "it is outdated")
        sent, transaction = self.sends[send - 1], self.transaction
        if self.constants.version == 2 and not self.is_ongoing(send):
            transaction = replace(transaction, state=ONGOING, registered=True, number=sent.transaction)
        return self._written(
            Entry(kind=OFFSET, epoch=sent.epoch, transaction=sent.transaction, offset=send),
            copies=copies,
            due=self._due_at(send, self.answered_at(len(self.log) + 1)),
            transaction=transaction,
        )

    @action("AcknowledgeOffsets", "Sends")
    def acknowledge_offsets(self, send: int) -> Self:
        """The coordinator acknowledges an offset that it does not store, once everything before is replicated.

        Spec:  TransactionalOffsets!AcknowledgeOffsets
        KIP:   KIP-98
        Kafka: OffsetMetadataManager.commitTransactionalOffset
        """
        copies = self._arrived(send, refused=False)
        enabled(self.is_outdated(send), "it is not outdated")
        return replace(self, copies=copies, due=self._due_at(send, len(self.log)))

    @action("RefuseOffsets", "Sends")
    def refuse_offsets(self, send: int) -> Self:
        """The coordinator refuses an offset.

        Spec:  TransactionalOffsets!RefuseOffsets
        KIP:   KIP-890
        Kafka: CoordinatorPartitionWriter.maybeStartTransactionVerification
        """
        return replace(self, copies=self._arrived(send, refused=True))

    def is_its_marker(self, entry: Entry) -> bool:
        """An entry is the marker of the transaction coordinator's transaction."""
        return entry.kind != OFFSET and entry.transaction == self.transaction.number

    @action("WriteMarker")
    def write_marker(self) -> Self:
        """The marker is written, and written again if a failover has lost it.

        Spec:  TransactionalOffsets!WriteMarker
        KIP:   KIP-98
        Kafka: CoordinatorRuntime.CoordinatorCompleteTransactionEvent
        """
        enabled(self.is_prepared(), "nothing is decided")
        enabled(not any(map(self.is_its_marker, self.log)), "the marker is written")
        kind = COMMIT if self.transaction.state == PREPARE_COMMIT else ABORT
        epoch, number = self.transaction.epoch, self.transaction.number
        return self._written(Entry(kind=kind, epoch=epoch, transaction=number, offset=NO_OFFSET))

    @action("ApplyMarker")
    def apply_marker(self) -> Self:
        """A task gives effect to the marker, after the marker is replicated and before its writer is answered.

        Spec:  TransactionalOffsets!ApplyMarker
        KIP:   none; KAFKA-17507 (the answer waits for the task)
        Kafka: KafkaApis.handleWriteTxnMarkersRequest. In 3.9 its answer waits for a task of the group coordinator.
        """
        enabled(self.is_unapplied(), "no marker waits for its effect")
        enabled(self.replicated == len(self.log), "the marker is not replicated")
        return replace(self, memory=self.after(self.memory, self.log[-1]))

    @action("Replicate")
    def replicate(self) -> Self:
        """The follower gets one more entry.

        Spec:  TransactionalOffsets!Replicate
        KIP:   KIP-98
        Kafka: Partition.maybeIncrementLeaderHW
        """
        enabled(self.replicated < len(self.log), "everything is replicated")
        return replace(self, replicated=self.replicated + 1)

    @action("FailOver")
    def fail_over(self) -> Self:
        """The follower leads: the new coordinator loads the replicated entries; answers that were due are lost.

        Spec:  TransactionalOffsets!FailOver
        KIP:   KIP-98
        Kafka: CoordinatorLoaderImpl.load
        """
        log, former = self.log[: self.replicated], self.former
        knows_it = self.replicated == len(self.log) and not self.is_unstable(self.memory)
        if FORMER_COORDINATOR in self.constants.faults and knows_it:
            former = self.memory.committed
        return replace(
            self,
            faults=self._fault("failover"),
            log=log,
            memory=self.known_after_load(log),
            former=former,
            due=self._nothing_due(),
        )

    # --- the transaction coordinator                                                WHO: the transaction coordinator

    @action("Complete")
    def complete(self) -> Self:
        """The marker is replicated, and the transaction coordinator closes the transaction.

        Spec:  TransactionalOffsets!Complete
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.writeTxnCompletion
        """
        enabled(self.is_prepared(), "nothing is decided")
        enabled(any(map(self.is_its_marker, self.log[: self.replicated])), "the marker is not replicated")
        enabled(not self.is_unapplied(), "the marker has not taken effect")
        return replace(self, transaction=replace(self.transaction, state=EMPTY, registered=False))
