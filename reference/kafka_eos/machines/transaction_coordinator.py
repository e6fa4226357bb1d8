"""The coordinator of one transactional.id, with its log, which answers any request.

Spec:  TransactionCoordinator.tla
KIPs:  98, 360, 588, 890
Kafka: TransactionCoordinator, TransactionMetadata, TransactionState, TransactionStateManager,
       TransactionMarkerChannelManager

:class:`Rules` decides: its methods are pure and total functions of one :class:`TransactionMetadata` and a request.
:class:`TransactionCoordinator` is the state machine around them.

==============  ===================  =============================================================================
spec variable   field                Kafka
==============  ===================  =============================================================================
metadata        ``metadata``         TransactionMetadata in the coordinator's cache; ``number`` counts transactions
appending       ``appending``        TxnTransitMetadata in appendTransactionToLog, and the response callback
durable         ``durable``          the last record below the high watermark of the partition of __transaction_state
earlier         ``earlier``          the record before it, where replicas may have an unreadable one
tail            ``tail``             the records after it, whose callback was called with an error
loading         ``loading``          TransactionStateManager.loadingPartitions
toMark          ``to_mark``          TransactionMetadata.topicPartitions while markers are sent
fencing         ``fencing``          the thread between prepareFenceProducerEpoch and endTransaction
carried         ``carried``          the arguments producerId and producerEpoch of that endTransaction
markers         ``markers``          control batches of the partitions
told            ``told``             EndTxn responses without error
given           ``given``            producer id and epoch of the last response that had them
answer          ``answer``           InitProducerId, AddPartitionsToTxn and EndTxn responses
allocated       ``allocated``        ProducerIdManager
faults          ``faults``           none: how many there have been
==============  ===================  =============================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, TypeVar

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2, TransactionState
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

NO_PRODUCER_ID = NO_EPOCH = -1
DECIDE = "DECIDE"

EMPTY, ONGOING, DEAD, FENCE = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
)
PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETED = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
PREPARED_STATES, COMPLETED_STATES = frozenset(PREPARED.values()), frozenset(COMPLETED.values())
AT_REST = COMPLETED_STATES | {EMPTY}

INIT, ADD, END = "InitProducerId", "AddPartition", "EndTxn"
INIT_FENCES, TIMEOUT, COMPLETE, EXPIRY, NOTHING = "InitProducerId fences", "timeout", "complete", "expiry", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of TransactionCoordinator.tla.

    Attributes:
        producer_ids: 0..n, the producer ids that requests carry.
        max_epoch: the largest epoch there is; 32767 in Kafka.
        partitions: those that can be in a transaction.
        versions: the transaction versions of requests: of 1 and 2.
        faults: what may go wrong: of "append times out", "failover", "timeout", "expiry", "no leader"; with
            "unreadable record", there are replicas that cannot read their last record.
        max_faults: how often.
    """

    producer_ids: frozenset[int]
    max_epoch: int
    partitions: frozenset[str]
    versions: frozenset[int]
    faults: frozenset[str]
    max_faults: int

    def domain(self, name: str) -> Iterable[Hashable]:
        """The set ``name`` that parameters of actions range over, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "RequestProducerIds": (NO_PRODUCER_ID, *sorted(self.producer_ids)),
            "RequestEpochs": range(NO_EPOCH, self.max_epoch + 1),
            "ProducerIds": sorted(self.producer_ids),
            "Epochs": range(self.max_epoch + 1),
            "Partitions": sorted(self.partitions),
            "Versions": sorted(self.versions),
            "BOOLEAN": (False, True),
            "0..MaxFaults": range(self.max_faults + 1),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A producer id with an epoch; -1 and -1 for none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NOBODY = Identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A producer id and epoch that a client was given, and those that it asked with."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    asked: Identity = NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The coordinator's metadata of a transactional.id; by default one that it does not know.

    Attributes:
        producer_id: the clients' producer id.
        previous_producer_id: the producer id before the last transition.
        next_producer_id: the producer id after this transaction, when the epochs have run out; -1 otherwise.
        epoch: the epoch of the producer id.
        last_epoch: the epoch before the last bump, -1 if it may not be presented; in memory only.
        state: DEAD for a transactional.id that is unknown.
        pending: the state that a transition under way leads to; in memory only.
        partitions: those in the transaction.
        version: the transaction version of the request that led here; 1 stands for 0 too.
        failed_fence: the last fence was not written; in memory only.
        number: counts the transactions; Kafka has no such field.
    """

    producer_id: int = NO_PRODUCER_ID
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    state: TransactionState = DEAD
    pending: TransactionState | None = None
    partitions: frozenset[str] = frozenset()
    version: int = 1
    failed_fence: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request, "none" after a step that answers nobody.

    Producer id and epoch are -1 where the answer has none.
    """

    request: str = NOTHING
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_ANSWER = Answer()


def answer_with(request: str, error: ErrorCode, identity: Identity = NOBODY) -> Answer:
    """The answer to a request."""
    return Answer(request=request, error=error, producer_id=identity.producer_id, epoch=identity.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """A record on its way into the log, "none" if there is none.

    Attributes:
        request: its reason: a client's request, or the coordinator's own action.
        asked: the identity that the client presented.
        record: the coordinator's metadata once it is in the log.
    """

    request: str = NOTHING
    asked: Identity = NOBODY
    record: TransactionMetadata = TransactionMetadata()


NO_APPEND = Appending()


_Noted = TypeVar("_Noted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A partition's marker of a transaction."""

    number: int
    partition: str
    epoch: int
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The answer that told a client its transaction's end: it asked as one identity, and goes on as the other."""

    number: int
    commit: bool
    version: int
    asked: Identity
    answered: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The log: the last record that every in-sync replica has, and the records after it."""

    durable: TransactionMetadata
    tail: tuple[TransactionMetadata, ...]


def forgotten(number: int) -> TransactionMetadata:
    """The coordinator's metadata of a transactional.id that it has never met, or that has expired."""
    return TransactionMetadata(number=number)


UNKNOWN = forgotten(0)


def commits(record: TransactionMetadata) -> bool:
    """A record decides for commit."""
    return record.state in {PREPARED[True], COMPLETED[True]}


def is_busy(known: TransactionMetadata) -> bool:
    """A transition is pending that no request of a client may interrupt."""
    return known.pending not in {None, FENCE}


def to(known: TransactionMetadata, state: TransactionState) -> TransactionMetadata:
    """The record that leads to a state; each remembers the producer id before it."""
    return replace(known, state=state, pending=None, previous_producer_id=known.producer_id)


def is_added(known: TransactionMetadata, partition: str) -> bool:
    """The partition is in the transaction already."""
    return known.state is ONGOING and partition in known.partitions


def to_mark(known: TransactionMetadata) -> frozenset[str]:
    """The partitions that get a marker next."""
    return known.partitions if known.state in PREPARED_STATES and known.pending is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Rules:
    """The coordinator's decisions: pure and total functions of what it knows of one transactional.id and of a request.

    Attributes:
        max_epoch: the largest epoch there is.
        server_version: the version of the requests that the coordinator makes to itself.
    """

    max_epoch: int
    server_version: int

    def is_exhausted(self, epoch: int) -> bool:
        """No producer gets an epoch after this one: the last epoch is for fencing."""
        return epoch >= self.max_epoch - 1

    def in_log(self, known: TransactionMetadata) -> TransactionMetadata:
        """The part of the coordinator's metadata that the log keeps."""
        return replace(known, last_epoch=NO_EPOCH, pending=None, failed_fence=False)

    def loaded(self, record: TransactionMetadata) -> TransactionMetadata:
        """The metadata that a new coordinator loads from the last record: it continues a prepared transaction."""
        return replace(record, pending=COMPLETED[commits(record)]) if record.state in PREPARED_STATES else record

    # --- InitProducerId -------------------------------------------------------------------------------------------

    def created(self, known: TransactionMetadata, producer_id: int) -> TransactionMetadata:
        """A transactional.id that the coordinator meets for the first time has a producer id and no epoch."""
        return replace(forgotten(known.number), producer_id=producer_id, state=EMPTY)

    def is_valid_producer_id(self, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
        """The producer id that a client presents is its own, or was until the epochs ran out."""
        return (
            known.epoch == NO_EPOCH
            or producer_id == known.producer_id
            or (producer_id == known.previous_producer_id and self.is_exhausted(epoch))
        )

    def is_retry_of_init(self, known: TransactionMetadata, epoch: int) -> bool:
        """The request is a retry: it asks again for an identity that was given already."""
        return NO_EPOCH not in {known.epoch, epoch} and epoch != known.epoch and epoch == known.last_epoch

    def bump_error(self, known: TransactionMetadata, epoch: int) -> ErrorCode:
        """The reason why the coordinator gives no epoch although nothing is open; ``NONE`` if it does.

        Departs from Kafka: there, when the epochs have run out, every epoch but the present one fails with
        UNKNOWN_SERVER_ERROR, also that of a retry (the mutant NoBumpWhenExhausted).

        Kafka: TransactionMetadata.prepareIncrementProducerEpoch
        """
        if known.epoch == NO_EPOCH or epoch in {NO_EPOCH, known.epoch} or self.is_retry_of_init(known, epoch):
            return ErrorCode.NONE
        return ErrorCode.PRODUCER_FENCED

    def init_error(self, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why the coordinator gives no producer id and epoch; ``NONE`` if it does, or starts to abort.

        Kafka: TransactionCoordinator.prepareInitProducerIdTransit
        """
        if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if known.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if producer_id != NO_PRODUCER_ID and not self.is_valid_producer_id(known, producer_id, epoch):
            return ErrorCode.PRODUCER_FENCED
        if known.state in PREPARED_STATES:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if known.state is ONGOING else self.bump_error(known, epoch)

    def rotates(self, known: TransactionMetadata, epoch: int) -> bool:
        """The client needs a new producer id, since the epochs of its own have run out."""
        return self.is_exhausted(known.epoch) and epoch in {NO_EPOCH, known.epoch}

    def after_retry_of_init(self, known: TransactionMetadata) -> TransactionMetadata:
        """The coordinator's metadata after it has given the same producer id and epoch again.

        Departs from Kafka: there the retry of a request that brought a new producer id forgets the one before it, so
        that the next retry is fenced (the mutant RetryForgetsProducerId).
        """
        return replace(known, state=EMPTY, partitions=frozenset())

    def after_init(self, known: TransactionMetadata, epoch: int, new_producer_id: int) -> TransactionMetadata:
        """The coordinator's metadata after it has given a producer id and epoch.

        Kafka: TransactionMetadata.prepareIncrementProducerEpoch, TransactionMetadata.prepareProducerIdRotation
        """
        last = NO_EPOCH if epoch == NO_EPOCH else known.epoch
        ready = replace(to(known, EMPTY), partitions=frozenset())
        if self.rotates(known, epoch):
            return replace(ready, producer_id=new_producer_id, epoch=0, last_epoch=last)
        if self.is_retry_of_init(known, epoch):
            return self.after_retry_of_init(known)
        return replace(ready, epoch=known.epoch + 1, last_epoch=last)

    # --- AddPartitionsToTxn ---------------------------------------------------------------------------------------

    def add_error(self, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why the coordinator adds no partition; ``NONE`` if it does, or has it already.

        Kafka: TransactionCoordinator.handleAddPartitionsToTransaction
        """
        if known.state is DEAD:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in PREPARED_STATES else ErrorCode.NONE

    def verification_error(self, known: TransactionMetadata, producer_id: int, epoch: int, partition: str) -> ErrorCode:
        """Why the coordinator does not vouch for a partition that has to be in the transaction; ``NONE`` if it does.

        The partition is judged as one that is being added, except that a transition under way is no hindrance.

        Spec:  Broker!AnswerToLeader, for version 1
        Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction
        """
        error = self.add_error(replace(known, pending=None), producer_id, epoch)
        if error is ErrorCode.NONE and partition not in known.partitions:
            return ErrorCode.TRANSACTION_ABORTABLE
        return error

    def after_add(self, known: TransactionMetadata, partition: str, version: int) -> TransactionMetadata:
        """The coordinator's metadata after a partition was added to the transaction, which begins if it has not.

        Kafka: TransactionMetadata.prepareAddPartitions
        """
        number = known.number if known.state is ONGOING else known.number + 1
        return replace(to(known, ONGOING), partitions=known.partitions | {partition}, version=version, number=number)

    # --- EndTxn ---------------------------------------------------------------------------------------------------

    def is_retry_of_last_epoch(self, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
        """A retry of the request that ended the previous transaction, when the epochs had run out."""
        return (
            known.pending is not FENCE
            and producer_id == known.previous_producer_id
            and epoch == self.max_epoch - 1
            and known.epoch == 0
        )

    def is_retry_of_end(self, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
        """A retry: the request asks for the decision that was made, with the identity before the decision's bump."""
        return known.pending is not FENCE and (
            epoch + 1 == known.epoch or self.is_retry_of_last_epoch(known, producer_id, epoch)
        )

    def is_epoch_to_end(self, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
        """The epoch is one with which a transaction of version 2 may be ended in this state."""
        if known.state in PREPARED_STATES:
            return epoch + 1 == known.epoch
        retry = known.state in COMPLETED_STATES and self.is_retry_of_end(known, producer_id, epoch)
        return epoch == known.epoch or retry

    def open_verdict(self, known: TransactionMetadata, commit: bool) -> str:
        """The reason why the coordinator does not begin to end an open transaction, or "DECIDE" if it does.

        While a fence waits for its second half, a commit meets a transition that it may not replace: Kafka fails then.
        """
        return ErrorCode.UNKNOWN_SERVER_ERROR.name if commit and known.pending is FENCE else DECIDE

    def end_verdict_of_version1(self, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool) -> str:
        """The reason why the coordinator does not end the transaction of a version 1 request, or "DECIDE" if it does.

        Kafka: TransactionCoordinator.endTransactionWithTV1
        """
        if known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
        if known.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED.name
        if is_busy(known):
            return ErrorCode.CONCURRENT_TRANSACTIONS.name
        if known.state is ONGOING:
            return self.open_verdict(known, commit)
        if known.state is COMPLETED[commit]:
            return ErrorCode.NONE.name
        if known.state is PREPARED[commit]:
            return ErrorCode.CONCURRENT_TRANSACTIONS.name
        return ErrorCode.INVALID_TXN_STATE.name

    def end_verdict_of_version2(self, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool) -> str:
        """The reason why the coordinator does not end the transaction of a version 2 request, or "DECIDE" if it does.

        Kafka: TransactionCoordinator.endTransaction
        """
        if is_busy(known):
            return ErrorCode.CONCURRENT_TRANSACTIONS.name
        if known.producer_id != producer_id and not self.is_retry_of_last_epoch(known, producer_id, epoch):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
        if not self.is_epoch_to_end(known, producer_id, epoch):
            return ErrorCode.PRODUCER_FENCED.name
        if known.state is ONGOING:
            return self.open_verdict(known, commit)
        if known.state is PREPARED[commit]:
            return ErrorCode.CONCURRENT_TRANSACTIONS.name
        if known.state in PREPARED_STATES:
            return ErrorCode.INVALID_TXN_STATE.name
        if known.state in COMPLETED_STATES and self.is_retry_of_end(known, producer_id, epoch):
            return (ErrorCode.NONE if known.state is COMPLETED[commit] else ErrorCode.INVALID_TXN_STATE).name
        return ErrorCode.INVALID_TXN_STATE.name if commit else DECIDE

    def end_verdict(self, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool, version: int) -> str:
        """The reason why the coordinator does not begin to end the transaction, or "DECIDE" if it does."""
        if known.state is DEAD:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
        if version < TRANSACTION_VERSION_2:
            return self.end_verdict_of_version1(known, producer_id, epoch, commit)
        return self.end_verdict_of_version2(known, producer_id, epoch, commit)

    def needs_next_producer_id(self, known: TransactionMetadata, version: int) -> bool:
        """The end of a transaction of version 2 in the last epoch brings a new producer id."""
        return version >= TRANSACTION_VERSION_2 and self.is_exhausted(known.epoch)

    def after_end(
        self, known: TransactionMetadata, commit: bool, version: int, next_producer_id: int
    ) -> TransactionMetadata:
        """The coordinator's metadata after the end is decided. Ending what has not begun counts as a transaction too.

        Kafka: TransactionMetadata.prepareAbortOrCommit
        """
        bumps = version >= TRANSACTION_VERSION_2
        return replace(
            to(known, PREPARED[commit]),
            epoch=known.epoch + 1 if bumps and known.epoch < self.max_epoch else known.epoch,
            last_epoch=known.epoch if bumps else known.last_epoch,
            next_producer_id=next_producer_id,
            version=version,
            failed_fence=False,
            number=known.number if known.state is ONGOING else known.number + 1,
        )

    def goes_on_as(self, record: TransactionMetadata) -> Identity:
        """The identity with which a client of version 2 goes on, once it is told that its transaction has ended."""
        if record.next_producer_id != NO_PRODUCER_ID:
            return Identity(producer_id=record.next_producer_id, epoch=0)
        return Identity(producer_id=record.producer_id, epoch=record.epoch)

    def after_completion(self, known: TransactionMetadata) -> TransactionMetadata:
        """The coordinator's metadata after every marker is written.

        Kafka: TransactionMetadata.prepareComplete
        """
        rotates = known.next_producer_id != NO_PRODUCER_ID
        return replace(
            to(known, COMPLETED[commits(known)]),
            producer_id=known.next_producer_id if rotates else known.producer_id,
            epoch=0 if rotates else known.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    # --- the coordinator's own abort ------------------------------------------------------------------------------

    def fencing_epoch(self, known: TransactionMetadata) -> int:
        """The epoch that fences the producer of an open transaction; a fence whose append failed does not count twice.

        Kafka: TransactionMetadata.prepareFenceProducerEpoch
        """
        return known.epoch if known.failed_fence or known.epoch == self.max_epoch else known.epoch + 1

    def raised(self, known: TransactionMetadata) -> TransactionMetadata:
        """The metadata in memory before the append: version 1 raises the epoch at once."""
        if self.server_version >= TRANSACTION_VERSION_2:
            return known
        return replace(known, epoch=self.fencing_epoch(known), last_epoch=NO_EPOCH)

    def interrupted(self, known: TransactionMetadata, version: int) -> TransactionMetadata:
        """The metadata in memory when a client ends its transaction.

        Between the halves of a fence an abort of version 1 forgets the last epoch, as the fence would have done.

        Kafka: TransactionCoordinator.endTransactionWithTV1
        """
        forgets = version < TRANSACTION_VERSION_2 and known.pending is FENCE
        return replace(known, last_epoch=NO_EPOCH) if forgets else known

    def after_fence(self, known: TransactionMetadata, next_producer_id: int) -> TransactionMetadata:
        """The coordinator's metadata after its own decision to abort; in version 2 the end's own bump fences."""
        return self.after_end(self.raised(known), False, self.server_version, next_producer_id)

    def carried_by(self, known: TransactionMetadata) -> Identity:  # noqa: ARG002 - Kafka's rule looks at it
        """The producer id and epoch that the second half of a fence carries.

        The pending transition says whether the second half of a fence is still due.

        Departs from Kafka: there the second half carries the epoch that the first one has chosen (the mutant
        CarriesFencingEpoch).
        """
        return NOBODY

    def late_fence_verdict(self, known: TransactionMetadata, carried: Identity) -> str:  # noqa: ARG002 - as carried_by
        """The answer to a fence whose transaction the client has ended itself.

        "DECIDE" if the next one is aborted.

        Departs from Kafka: there the second half is an EndTxn like a client's, which aborts the next one (the mutant
        AbortsNext).
        """
        return ErrorCode.CONCURRENT_TRANSACTIONS.name

    # --- after an append ------------------------------------------------------------------------------------------

    def is_failed_fence(self, append: Appending) -> bool:
        """A fence has failed whose epoch stays in memory.

        Version 2 raises no epoch in memory before the append (KAFKA-19367), and neither does the abort of a late fence
        (AbortsNext).

        Kafka: TransactionCoordinator.endTransaction
        """
        is_fence = append.request in {INIT_FENCES, TIMEOUT} and append.asked == NOBODY
        return self.server_version < TRANSACTION_VERSION_2 and is_fence

    def after_timeout(self, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
        """The coordinator's metadata after an append that it gave up: as before. A completion is tried again."""
        if append.request == COMPLETE:
            return known
        return replace(known, pending=None, failed_fence=known.failed_fence or self.is_failed_fence(append))

    def after_append(self, record: TransactionMetadata) -> TransactionMetadata:
        """The metadata in memory once a record is in the log; the markers follow the decision."""
        return forgotten(record.number) if record.state is DEAD else self.loaded(record)

    def goes_on(self, append: Appending) -> TransactionMetadata:
        """The metadata in memory once the record of an append is in the log.

        Departs from Kafka: there the markers follow only a decision that has the epoch that the fence carries (the
        mutant MarksCarriedEpoch).
        """
        return self.after_append(append.record)

    def answer_to(self, append: Appending) -> Answer:
        """The answer to a client once the record is in the log.

        Departs from Kafka: there a late fence whose decision has another epoch is answered PRODUCER_FENCED (the mutant
        AnswersLateFence).
        """
        record = append.record
        if append.request == INIT:
            return answer_with(INIT, ErrorCode.NONE, Identity(producer_id=record.producer_id, epoch=record.epoch))
        if append.request == ADD:
            return answer_with(ADD, ErrorCode.NONE)
        if append.request == END:
            bumps = record.version >= TRANSACTION_VERSION_2
            return answer_with(END, ErrorCode.NONE, self.goes_on_as(record) if bumps else NOBODY)
        return answer_with(INIT, ErrorCode.CONCURRENT_TRANSACTIONS) if append.request == INIT_FENCES else NO_ANSWER

    def error_to(self, append: Appending, error: ErrorCode) -> Answer:
        """The answer to a client when the record is not in the log."""
        if append.request == INIT_FENCES:
            return answer_with(INIT, error)
        return answer_with(append.request, error) if append.request in {INIT, ADD, END} else NO_ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinator:
    """A state of TransactionCoordinator.tla."""

    MODULE: ClassVar[str] = "TransactionCoordinator"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "metadata",
        "appending",
        "durable",
        "earlier",
        "tail",
        "loading",
        "toMark",
        "fencing",
        "carried",
        "markers",
        "told",
        "given",
        "answer",
        "allocated",
        "faults",
    )
    LIMITS: ClassVar[type[Rules]] = Rules

    constants: Constants = field(compare=False)
    metadata: TransactionMetadata = UNKNOWN
    appending: Appending = NO_APPEND
    durable: TransactionMetadata = UNKNOWN
    earlier: TransactionMetadata = UNKNOWN
    tail: tuple[TransactionMetadata, ...] = ()
    loading: bool = False
    to_mark: frozenset[str] = frozenset()
    fencing: str = NOTHING
    carried: Identity = NOBODY
    markers: frozenset[Marker] = frozenset()
    told: frozenset[End] = frozenset()
    given: Given = Given()
    answer: Answer = NO_ANSWER
    allocated: int = 0
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: a transactional.id that the coordinator has never met."""
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    @property
    def rules(self) -> Rules:
        """The coordinator's decisions."""
        return self.LIMITS(self.constants.max_epoch, self.server_version())

    def server_version(self) -> int:
        """The version of the requests that the coordinator makes to itself."""
        return TRANSACTION_VERSION_2 if TRANSACTION_VERSION_2 in self.constants.versions else 1

    def is_idle(self) -> bool:
        """No record is on its way."""
        return self.appending.request == NOTHING

    def fault(self, kind: str) -> Self:
        """A fault happens, if one may happen still."""
        enabled(kind in self.constants.faults and self.faults < self.constants.max_faults, "faults have run out")
        return replace(self, faults=self.faults + 1)

    def answers(self, answer: Answer, asked: Identity = NOBODY) -> Self:
        """A client is answered, and perhaps given a producer id and epoch."""
        gives = answer.error is ErrorCode.NONE and answer.producer_id != NO_PRODUCER_ID
        given = Given(producer_id=answer.producer_id, epoch=answer.epoch, asked=asked) if gives else self.given
        return replace(self, answer=answer, given=given)

    def append(
        self, known: TransactionMetadata, request: str, record: TransactionMetadata, asked: Identity = NOBODY
    ) -> Self:
        """A record begins its way into the log; meanwhile no other transition may begin."""
        return replace(
            self.answers(NO_ANSWER),
            metadata=replace(known, pending=record.state),
            appending=Appending(request=request, asked=asked, record=record),
        )

    def _allocates(self, needed: bool) -> tuple[int, int]:
        """The producer id that is allocated, or -1, and the number allocated with it."""
        return (self.allocated, self.allocated + 1) if needed else (NO_PRODUCER_ID, self.allocated)

    # --- requests                                                                   WHO: a client -----------------

    @action("HandleInitProducerId", "RequestProducerIds", "RequestEpochs")
    def handle_init_producer_id(self, producer_id: int, epoch: int) -> Self:
        """A client asks for a producer id and epoch. An open transaction is aborted first.

        Spec:  TransactionCoordinator!HandleInitProducerId
        KIP:   KIP-98, KIP-360
        Kafka: TransactionCoordinator.handleInitProducerId
        """
        rules, new = self.rules, self.metadata.state is DEAD
        known = rules.created(self.metadata, self.allocated) if new else self.metadata
        if not self.may_act():
            return self.answers(answer_with(INIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        if (error := rules.init_error(known, producer_id, epoch)) is not ErrorCode.NONE:
            return self.answers(answer_with(INIT, error))
        if known.state is ONGOING:
            fenced = replace(self.answers(NO_ANSWER), metadata=replace(known, pending=FENCE), fencing=INIT)
            return replace(fenced, carried=rules.carried_by(known))
        record = rules.after_init(known, epoch, self.allocated)
        after = self.append(known, INIT, record, Identity(producer_id=producer_id, epoch=epoch))
        return replace(after, allocated=self.allocated + (new or rules.rotates(known, epoch)))

    @action("HandleAddPartition", "ProducerIds", "Epochs", "Partitions", "Versions")
    def handle_add_partition(self, producer_id: int, epoch: int, partition: str, version: int) -> Self:
        """A client, or a partition's leader for it, adds a partition to the transaction.

        Spec:  TransactionCoordinator!HandleAddPartition
        KIP:   KIP-98, KIP-890
        Kafka: TransactionCoordinator.handleAddPartitionsToTransaction
        """
        rules, known = self.rules, self.metadata
        if not self.may_act():
            return self.answers(answer_with(ADD, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        error = rules.add_error(known, producer_id, epoch)
        if error is not ErrorCode.NONE or is_added(known, partition):
            return self.answers(answer_with(ADD, error))
        record = rules.after_add(known, partition, version)
        return self.append(known, ADD, record, Identity(producer_id=producer_id, epoch=epoch))

    @action("HandleEndTxn", "ProducerIds", "Epochs", "BOOLEAN", "Versions")
    def handle_end_txn(self, producer_id: int, epoch: int, commit: bool, version: int) -> Self:
        """A client ends its transaction.

        Spec:  TransactionCoordinator!HandleEndTxn
        KIP:   KIP-98, KIP-890
        Kafka: TransactionCoordinator.handleEndTransaction
        """
        rules, known = self.rules, self.metadata
        asked = Identity(producer_id=producer_id, epoch=epoch)
        if not self.may_act():
            return self.answers(answer_with(END, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        verdict = rules.end_verdict(known, producer_id, epoch, commit, version)
        if verdict == DECIDE:
            new, allocated = self._allocates(rules.needs_next_producer_id(known, version))
            ending = rules.interrupted(known, version)
            record = rules.after_end(ending, commit, version, new)
            return replace(self.append(ending, END, record, asked), allocated=allocated)
        if verdict != ErrorCode.NONE.name:
            return self.answers(answer_with(END, ErrorCode[verdict]))
        same = rules.goes_on_as(known) if version >= TRANSACTION_VERSION_2 else NOBODY
        end = End(number=known.number, commit=commit, version=version, asked=asked, answered=same)
        return replace(self.answers(answer_with(END, ErrorCode.NONE, same)), told=self.noted(self.told, end))

    # --- the coordinator by itself                                                  WHO: the coordinator ----------

    @action("TimeOut")
    def time_out(self) -> Self:
        """The transaction has been open for longer than its timeout: the coordinator begins to abort it.

        Spec:  TransactionCoordinator!TimeOut
        KIP:   KIP-98
        Kafka: TransactionCoordinator.abortTimedOutTransactions
        """
        enabled(self.may_act() and self.metadata.state is ONGOING and self.metadata.pending is None, "nothing is open")
        after = self.fault("timeout").answers(NO_ANSWER)
        fenced = replace(self.metadata, pending=FENCE)
        return replace(after, metadata=fenced, fencing=TIMEOUT, carried=self.rules.carried_by(self.metadata))

    @action("AbortFenced")
    def abort_fenced(self) -> Self:
        """The second half of a fence: the coordinator aborts the transaction, if its client has not done so meanwhile.

        Spec:  TransactionCoordinator!AbortFenced
        KIP:   KIP-98, KIP-588
        Kafka: TransactionCoordinator.endTransaction, not from a client
        """
        enabled(self.fencing != NOTHING, "nothing is being fenced")
        rules, known = self.rules, self.metadata
        after = replace(self, fencing=NOTHING, carried=NOBODY)
        verdict = DECIDE if known.pending is FENCE else rules.late_fence_verdict(known, self.carried)
        if verdict != DECIDE:
            return after.answers(answer_with(INIT, ErrorCode[verdict]) if self.fencing == INIT else NO_ANSWER)
        new, allocated = self._allocates(rules.needs_next_producer_id(known, self.server_version()))
        request = TIMEOUT if self.fencing == TIMEOUT else INIT_FENCES
        if known.pending is FENCE:
            after = after.append(rules.raised(known), request, rules.after_fence(known, new))
        else:
            record = rules.after_end(known, False, self.server_version(), new)
            after = after.append(known, request, record, self.carried)
        return replace(after, allocated=allocated)

    @action("ExpireTransactionalId")
    def expire_transactional_id(self) -> Self:
        """The transactional.id has not been used for long: the coordinator forgets it.

        Spec:  TransactionCoordinator!ExpireTransactionalId
        KIP:   KIP-98 (transactional.id.expiration.ms)
        Kafka: TransactionStateManager.removeExpiredTransactionalIds
        """
        known = self.metadata
        enabled(self.may_act() and known.state in AT_REST and known.pending is None, "in use")
        return self.fault("expiry").append(known, EXPIRY, forgotten(known.number))

    def marker_commits(self, partition: str) -> bool:  # noqa: ARG002 - the same for each partition
        """A partition's marker commits if the coordinator has decided so."""
        return commits(self.metadata)

    def _marks(self) -> bool:
        prepared = self.metadata.state in PREPARED_STATES and self.metadata.pending is not None
        return prepared and self.may_act() and self.is_idle()

    def noted(self, history: frozenset[_Noted], entry: _Noted) -> frozenset[_Noted]:
        """The history with one more entry: only properties read it, and no rule does."""
        return history | {entry}

    @action("WriteMarker", "Partitions")
    def write_marker(self, partition: str) -> Self:
        """A partition of the transaction gets its marker.

        Spec:  TransactionCoordinator!WriteMarker
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.addTxnMarkersToSend, TransactionMarkerRequestCompletionHandler
        """
        enabled(self._marks() and partition in self.to_mark, "no marker is due")
        marker = Marker(
            number=self.metadata.number,
            partition=partition,
            epoch=self.metadata.epoch,
            commit=self.marker_commits(partition),
        )
        markers = self.noted(self.markers, marker)
        return replace(self.answers(NO_ANSWER), to_mark=self.to_mark - {partition}, markers=markers)

    def markers_without_leader(self, partition: str) -> frozenset[str]:  # noqa: ARG002 - Kafka's rule looks at it
        """The partitions whose marker is missing after the coordinator has found no leader of one: it asks again.

        Departs from Kafka: 4.3 takes the partition for one that was deleted, and leaves its marker out (the mutant
        NoLeaderIsDeleted).
        """
        return self.to_mark

    @action("FindNoLeader", "Partitions")
    def find_no_leader(self, partition: str) -> Self:
        """A partition of the transaction has no leader at the moment when it is to get its marker.

        Spec:  TransactionCoordinator!FindNoLeader
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, MetadataCache.getPartitionLeaderEndpoint
        """
        enabled(self.may_act() and partition in self.to_mark, "no marker is due")
        return replace(self.fault("no leader").answers(NO_ANSWER), to_mark=self.markers_without_leader(partition))

    def may_complete(self) -> bool:
        """Every partition has its marker."""
        return not self.to_mark

    @action("CompleteTransaction")
    def complete_transaction(self) -> Self:
        """The coordinator closes the transaction.

        Spec:  TransactionCoordinator!CompleteTransaction
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.writeTxnCompletion
        """
        enabled(self._marks() and self.may_complete(), "not prepared, or markers are missing")
        return self.append(self.metadata, COMPLETE, self.rules.after_completion(self.metadata))

    # --- the coordinator's log                                   WHO: leader of the log's partition ---------------

    def log_after(self, append: Appending) -> LogState:
        """The log after an append that every in-sync replica has, and with it all records before."""
        return LogState(durable=self.rules.in_log(append.record), tail=())

    def log_end(self) -> TransactionMetadata:
        """The last record of the log."""
        return self.tail[-1] if self.tail else self.durable

    def earlier_after(self, record: TransactionMetadata) -> TransactionMetadata:
        """The record before the last one that every in-sync replica has, once a record follows it."""
        return record if "unreadable record" in self.constants.faults else self.earlier

    def last_read(self, found: tuple[TransactionMetadata, ...]) -> TransactionMetadata:
        """The record that a new coordinator takes its state from.

        A replica that cannot read its last record does not become the coordinator: another one does.

        Departs from Kafka: there it does, logs the error, and acts on the states before that record (the mutant
        StopsAtUnreadable, in which every new coordinator is such a replica).
        """
        return found[-1] if found else self.durable

    def may_act(self) -> bool:
        """A new coordinator acts when what it has loaded is replicated.

        Departs from Kafka: there a new coordinator acts on all that it finds in its log, and may lose it to the next
        one (the mutant ActsOnLoaded).
        """
        return not self.loading

    def tail_after_failover(self, found: tuple[TransactionMetadata, ...]) -> tuple[TransactionMetadata, ...]:
        """The records after those that are replicated, once another replica has become the coordinator.

        An append of the previous coordinator that arrives now is refused.
        """
        return found

    @action("AppendIsReplicated")
    def append_is_replicated(self) -> Self:
        """Every in-sync replica has the record: the coordinator takes it over and answers.

        Spec:  TransactionCoordinator!AppendIsReplicated
        KIP:   KIP-98
        Kafka: TransactionStateManager.appendTransactionToLog, TransactionMetadata.completeTransitionTo
        """
        enabled(not self.is_idle(), "no record is on its way")
        rules, record = self.rules, self.appending.record
        answer, log, known = (
            rules.answer_to(self.appending),
            self.log_after(self.appending),
            rules.goes_on(self.appending),
        )
        told = self.told
        if answer.request == END:
            end = End(
                number=record.number,
                commit=commits(record),
                version=record.version,
                asked=self.appending.asked,
                answered=Identity(producer_id=answer.producer_id, epoch=answer.epoch),
            )
            told = self.noted(told, end)
        return replace(
            self.answers(answer, self.appending.asked if answer.request == INIT else NOBODY),
            metadata=known,
            appending=NO_APPEND,
            durable=log.durable,
            earlier=self.earlier_after(self.log_end()),
            tail=log.tail,
            loading=False,
            to_mark=to_mark(known),
            told=told,
        )

    @action("AppendTimesOut")
    def append_times_out(self) -> Self:
        """The coordinator gives an append up; the record stays in the log, and may be replicated or lost.

        Spec:  TransactionCoordinator!AppendTimesOut
        KIP:   KIP-98; KAFKA-9666
        Kafka: TransactionStateManager.appendTransactionToLog, its callback with an error
        """
        enabled(not self.is_idle(), "no record is on its way")
        rules = self.rules
        after = self.fault("append times out")
        return replace(
            after.answers(rules.error_to(self.appending, ErrorCode.COORDINATOR_NOT_AVAILABLE)),
            tail=(*self.tail, rules.in_log(self.appending.record)),
            metadata=rules.after_timeout(self.metadata, self.appending),
            appending=NO_APPEND,
        )

    @action("ReplicateTail")
    def replicate_tail(self) -> Self:
        """Every in-sync replica gets a record whose append was given up.

        Spec:  TransactionCoordinator!ReplicateTail
        KIP:   KIP-101
        Kafka: Partition.maybeIncrementLeaderHW
        """
        enabled(bool(self.tail), "all records are replicated")
        durable, *tail = self.tail
        return replace(
            self.answers(NO_ANSWER),
            durable=durable,
            earlier=self.earlier_after(self.durable),
            tail=tuple(tail),
            loading=self.loading and bool(tail),
        )

    def unreplicated(self) -> tuple[TransactionMetadata, ...]:
        """The records that are not replicated, the one on its way included."""
        return self.tail if self.is_idle() else (*self.tail, self.rules.in_log(self.appending.record))

    @action("Failover", "0..MaxFaults")
    def failover(self, kept: int) -> Self:
        """Another replica becomes the coordinator, with the first few of the records that are not replicated.

        Spec:  TransactionCoordinator!Failover
        KIP:   KIP-98
        Kafka: TransactionStateManager.loadTransactionsForTxnTopicPartition
        """
        records = self.unreplicated()
        enabled(kept <= len(records), "there are not so many records")
        rules, found = self.rules, records[:kept]
        known = rules.loaded(self.last_read(found))
        after = self.fault("failover")
        return replace(
            after.answers(rules.error_to(self.appending, ErrorCode.NOT_COORDINATOR)),
            metadata=known,
            appending=NO_APPEND,
            tail=self.tail_after_failover(found),
            loading=bool(found),
            to_mark=to_mark(known),
            fencing=NOTHING,
            carried=NOBODY,
        )
