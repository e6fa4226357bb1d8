"""The transactional producer's own state machine: what may be called, what it sends, and what it makes of answers.

Spec:  TransactionalProducer.tla
KIPs:  98, 360, 588, 654, 691, 890, 939, 1050, 1319
Kafka: TransactionManager, Sender, RecordAccumulator, KafkaProducer

=============  ================  ===================================================================================
spec variable  field             Kafka
=============  ================  ===================================================================================
client         ``client``        TransactionManager.currentState, lastError, producerIdAndEpoch, transactionStarted
partitions     ``partitions``    newPartitionsInTransaction, pendingPartitionsInTransaction, partitionsInTransaction
sequences      ``sequences``     TxnPartitionMap
batches        ``batches``       RecordAccumulator, Sender.inFlightBatches
queue          ``queue``         TransactionManager.pendingRequests
inFlight       ``in_flight``     TransactionManager.inFlightRequestCorrelationId
coordinators   ``coordinators``  TransactionManager.transactionCoordinator, consumerGroupCoordinator
call           ``call``          TransactionManager.pendingTransition
cluster        ``cluster``       ApiVersions.getFinalizedFeaturesInfo
topic          ``topic``         TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic.topicId
seen           ``seen``          none: what application and brokers have seen
faults         ``faults``        none: bounds what may go wrong
=============  ================  ===================================================================================

:data:`LEGAL_TRANSITIONS` is the one table of legal transitions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

UNINITIALIZED, INITIALIZING, READY = "UNINITIALIZED", "INITIALIZING", "READY"
IN_TRANSACTION, PREPARED = "IN_TRANSACTION", "PREPARED_TRANSACTION"
COMMITTING, ABORTING = "COMMITTING_TRANSACTION", "ABORTING_TRANSACTION"
ABORTABLE_ERROR, FATAL_ERROR = "ABORTABLE_ERROR", "FATAL_ERROR"

STATES = (
    UNINITIALIZED,
    INITIALIZING,
    READY,
    IN_TRANSACTION,
    PREPARED,
    COMMITTING,
    ABORTING,
    ABORTABLE_ERROR,
    FATAL_ERROR,
)

_PREDECESSORS = {
    UNINITIALIZED: (READY, ABORTABLE_ERROR),
    INITIALIZING: (UNINITIALIZED, COMMITTING, ABORTING),
    READY: (INITIALIZING, COMMITTING, ABORTING),
    IN_TRANSACTION: (READY,),
    PREPARED: (IN_TRANSACTION, INITIALIZING),
    COMMITTING: (IN_TRANSACTION, PREPARED),
    ABORTING: (IN_TRANSACTION, PREPARED, ABORTABLE_ERROR),
    ABORTABLE_ERROR: (IN_TRANSACTION, COMMITTING, ABORTABLE_ERROR, INITIALIZING),
    FATAL_ERROR: STATES,
}

#: The legal transitions between the client's states: pairs (before, after).
LEGAL_TRANSITIONS = frozenset((before, after) for after, befores in _PREDECESSORS.items() for before in befores)

ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS = "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"
COMMIT, ABORT, INIT_PRODUCER_ID = "EndTxn(commit)", "EndTxn(abort)", "InitProducerId"
ENDS = frozenset({COMMIT, ABORT})
PRODUCE = "Produce"

TRANSACTION, GROUP = "TRANSACTION", "GROUP"
LOOKUPS: Mapping[str, str] = MappingProxyType(
    {TRANSACTION: "FindCoordinator(TRANSACTION)", GROUP: "FindCoordinator(GROUP)"}
)
REQUESTS = (ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, COMMIT, ABORT, INIT_PRODUCER_ID, *LOOKUPS.values())

INIT, BEGIN, SEND = "initTransactions", "beginTransaction", "send"
SEND_OFFSETS, COMMIT_CALL, ABORT_CALL = "sendOffsetsToTransaction", "commitTransaction", "abortTransaction"
CALLS = (INIT, BEGIN, SEND, SEND_OFFSETS, COMMIT_CALL, ABORT_CALL)
TARGETS: Mapping[str, str] = MappingProxyType(
    {INIT: INITIALIZING, BEGIN: IN_TRANSACTION, COMMIT_CALL: COMMITTING, ABORT_CALL: ABORTING}
)

NOTHING = "none"
NO_ERROR = "NONE"
WAITING, DONE, FAILED = "waiting", "done", "failed"
ACCUMULATED, IN_FLIGHT, TO_BE_RETRIED = "accumulated", "in flight", "to be retried"

ILLEGAL_STATE, KAFKA_EXCEPTION = "IllegalStateException", "KafkaException"
FENCED_EXCEPTION, INVALID_EPOCH_EXCEPTION = "ProducerFencedException", "InvalidProducerEpochException"
UNAUTHORIZED = "AuthorizationException"

RETRY, FATAL, ABORTABLE, WITH_BUMP = "retry", "fatal", "abortable", "abortable with a bump"
AGAIN_FROM_START, ACKNOWLEDGED = "uninitialized", "acknowledged"

#: Codes that brokers answer only to offsets with the topics' ids.
ERRORS_OF_TOPIC_IDS = frozenset({"STALE_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"})

#: Codes whose exception is a RetriableException.
RETRIABLE_ERRORS = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "CORRUPT_MESSAGE",
        "ELECTION_NOT_NEEDED",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "FETCH_SESSION_ID_NOT_FOUND",
        "FETCH_SESSION_TOPIC_ID_ERROR",
        "INCONSISTENT_TOPIC_ID",
        "INVALID_FETCH_SESSION_EPOCH",
        "INVALID_SHARE_SESSION_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "SHARE_SESSION_LIMIT_REACHED",
        "SHARE_SESSION_NOT_FOUND",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNSTABLE_OFFSET_COMMIT",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of TransactionalProducer.tla.

    Attributes:
        partitions: those that are written to.
        errors: the error codes that brokers may answer with, by name.
        versions: the versions of the cluster's transactions: {1}, {2}, or {1, 2} for a cluster that is upgraded.
        supports_bump: False: brokers without KIP-360, before 2.5.
        max_transactions: the maximum number of transactions that the application begins.
        max_sends: the maximum number of batches in each.
        max_faults: the maximum number of errors, timeouts and lost answers.
        max_recreations: how often the topic of its offsets is deleted and created again at most.
    """

    partitions: frozenset[str]
    errors: frozenset[str]
    versions: frozenset[int]
    supports_bump: bool
    max_transactions: int
    max_sends: int
    max_faults: int
    max_recreations: int

    def domain(self, name: str) -> Iterable[str]:
        """The constant set ``name``, in order."""
        domains: Mapping[str, Iterable[str]] = {
            "Partitions": self.partitions,
            "Errors": self.errors,
            "Requests": REQUESTS,
            "CoordinatorTypes": LOOKUPS,
        }
        return sorted(domains[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client's own state.

    Attributes:
        state: one of :data:`STATES`.
        error: the exception that calls are refused with, or "NONE".
        identity: stands for its producer id and epoch: it counts those given to the client; 0 is none.
        version: the version of its transactions.
        bump: it asks for another epoch after this transaction.
        started: a broker may know of the transaction.
    """

    state: str = UNINITIALIZED
    error: str = NO_ERROR
    identity: int = 0
    version: int = 1
    bump: bool = False
    started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPartitions:
    """The partitions of the transaction: new, in a request, and registered."""

    new: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSequence:
    """The identity of a partition's last batch, and the next sequence."""

    identity: int = 0
    next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBatch:
    """A batch that is not complete: "accumulated", "in flight" or "to be retried"; "none" where there is none."""

    status: str = NOTHING
    retried: bool = False
    identity: int = 0
    sequence: int = 0

    def is_unknown(self, expired: bool) -> bool:
        """The fate of a batch is unknown if the client has given it up, or if an earlier copy of it may be on its way.

        Args:
            expired: the client has given it up; else a leader has refused it.
        """
        return self.retried or (expired and self.status == IN_FLIGHT)


NO_BATCH = ProducerBatch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call that waits for the client, or that has timed out and may only be repeated.

    Attributes:
        operation: one of :data:`CALLS`, or "none".
        outcome: "waiting", "done" or "failed"; "none" without a call.
        running: the application is in the call.
    """

    operation: str = NOTHING
    outcome: str = NOTHING
    running: bool = False


NO_CALL = Call()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The topic of the offsets.

    Attributes:
        id: how often it was created again.
        named: how often it was when the client was given the offsets.
    """

    id: int = 0
    named: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """The identity, the sequence and the transaction's version of a batch that has been sent."""

    identity: int = 0
    sequence: int = -1
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The events of the last transaction that the application and the brokers have seen.

    Attributes:
        number: the number of begun transactions.
        version: the client's at the beginning.
        sends: the number of batches that the application has sent in it.
        offsets: whether it has sent offsets.
        ends: the ends that were asked for, and not refused.
        ended: the end that is known, or "none".
        failed: something of it has failed.
        fenced: a broker has said that the client is fenced.
        registered: the partitions that the coordinator has registered.
        unknown: the last identity with a batch that was given up and may still be on its way.
        last: for each partition, the last batch that was sent.
    """

    number: int = 0
    version: int = 0
    sends: int = 0
    offsets: bool = False
    ends: frozenset[str] = frozenset()
    ended: str = NOTHING
    failed: bool = False
    fenced: bool = False
    registered: frozenset[str] = frozenset()
    unknown: int = 0
    last: Map[str, SentBatch]


# --- error codes --------------------------------------------------------------------------------------------------


def coordinator_of(request: str) -> str:
    """The type of the coordinator that a request is sent to."""
    return GROUP if request == COMMIT_OFFSETS else TRANSACTION


def init_producer_id_reaction(error: str) -> str:
    """The client's reaction to an answer to InitProducerId."""
    if error in {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}:
        return AGAIN_FROM_START
    return ABORTABLE if error == "TRANSACTION_ABORTABLE" else FATAL


def find_coordinator_reaction(error: str) -> str:
    """The client's reaction to an answer to FindCoordinator."""
    return ABORTABLE if error in {"GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"} else FATAL


def add_partitions_reaction(error: str) -> str:
    """The client's reaction to an answer to AddPartitionsToTxn."""
    if error in {
        "INVALID_PRODUCER_EPOCH",
        "PRODUCER_FENCED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
    }:
        return FATAL
    return WITH_BUMP if error == "UNKNOWN_PRODUCER_ID" else ABORTABLE


def add_offsets_reaction(error: str) -> str:
    """The client's reaction to an answer to AddOffsetsToTxn."""
    if error == "UNKNOWN_PRODUCER_ID":
        return WITH_BUMP
    return ABORTABLE if error in {"GROUP_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"} else FATAL


def end_reaction(request: str, error: str) -> str:
    """The client's reaction to an answer to EndTxn."""
    if error == "UNKNOWN_PRODUCER_ID":
        return WITH_BUMP
    return ABORTABLE if error == "TRANSACTION_ABORTABLE" and request == COMMIT else FATAL


def produce_reaction(error: str) -> str:
    """The client's reaction to an answer to Produce."""
    if error == "DUPLICATE_SEQUENCE_NUMBER":
        return ACKNOWLEDGED
    fatal = {
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "PRODUCER_FENCED",
        "UNSUPPORTED_VERSION",
        "INVALID_PRODUCER_ID_MAPPING",
    }
    return FATAL if error in fatal else ABORTABLE


def asks_for_coordinator(request: str, error: str) -> bool:
    """Errors after which the client looks for the coordinator first."""
    return error in {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"} or (
        request == COMMIT_OFFSETS and error == "REQUEST_TIMED_OUT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProducer:
    """A state of TransactionalProducer.tla."""

    MODULE: ClassVar[str] = "TransactionalProducer"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "client",
        "partitions",
        "sequences",
        "batches",
        "queue",
        "inFlight",
        "coordinators",
        "call",
        "cluster",
        "topic",
        "seen",
        "faults",
    )

    constants: Constants = field(compare=False)
    client: Client = Client()
    partitions: TransactionPartitions = TransactionPartitions()
    sequences: Map[str, PartitionSequence]
    batches: Map[str, ProducerBatch]
    queue: frozenset[str] = frozenset()
    in_flight: str = NOTHING
    coordinators: frozenset[str] = frozenset()
    call: Call = NO_CALL
    cluster: int
    topic: Topic = Topic()
    seen: Seen
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: a new client, which knows nobody."""
        partitions = sorted(constants.partitions)
        return cls(
            constants=constants,
            sequences=Map(dict.fromkeys(partitions, PartitionSequence())),
            batches=Map(dict.fromkeys(partitions, NO_BATCH)),
            cluster=min(constants.versions),
            seen=Seen(last=Map(dict.fromkeys(partitions, SentBatch()))),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- error codes ------------------------------------------------------------------------------------------------

    def offset_commit_reaction(self, error: str) -> str:
        """The client's reaction to an answer to TxnOffsetCommit."""
        abortable = {
            "GROUP_AUTHORIZATION_FAILED",
            "FENCED_INSTANCE_ID",
            "TRANSACTION_ABORTABLE",
            "UNKNOWN_MEMBER_ID",
            "ILLEGAL_GENERATION",
            "STALE_MEMBER_EPOCH",
            "GROUP_ID_NOT_FOUND",
            "UNKNOWN_TOPIC_ID",
        }
        return ABORTABLE if error in abortable else FATAL

    def reaction_to_failure(self, request: str, error: str) -> str:
        """The client's reaction to an error that is not retriable."""
        reactions: Mapping[str, Callable[[str], str]] = {
            PRODUCE: produce_reaction,
            INIT_PRODUCER_ID: init_producer_id_reaction,
            LOOKUPS[TRANSACTION]: find_coordinator_reaction,
            LOOKUPS[GROUP]: find_coordinator_reaction,
            ADD_PARTITIONS: add_partitions_reaction,
            ADD_OFFSETS: add_offsets_reaction,
            COMMIT_OFFSETS: self.offset_commit_reaction,
        }
        found = reactions.get(request)
        return end_reaction(request, error) if found is None else found(error)

    def is_retried(self, request: str, error: str) -> bool:
        """The client answers an error with the same request.

        Departs from Kafka: it sends offsets of an unknown topic again and again, and its end behind them never.
        """
        return error in RETRIABLE_ERRORS and not (request == COMMIT_OFFSETS and error == "UNKNOWN_TOPIC_ID")

    def reaction(self, request: str, error: str) -> str:
        """The client's reaction to an error that answers a request."""
        return RETRY if self.is_retried(request, error) else self.reaction_to_failure(request, error)

    def exception_of(self, request: str, error: str) -> str:
        """The exception that calls are refused with after an error."""
        if request in LOOKUPS.values():
            return KAFKA_EXCEPTION
        if request == PRODUCE and error == "INVALID_PRODUCER_EPOCH":
            return INVALID_EPOCH_EXCEPTION
        return FENCED_EXCEPTION if error in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"} else KAFKA_EXCEPTION

    def names_topics_by_id(self) -> bool:
        """The client sends offsets with the topics' ids, in the last version of the request (KIP-1319)."""
        return self.client.version == 2

    @property
    def names_former_topic(self) -> bool:
        """No topic has the id with which the client sends its offsets any more."""
        return self.names_topics_by_id() and self.topic.named != self.topic.id

    def may_answer(self, request: str, error: str) -> bool:
        """A broker may answer a request with an error, unless another action says when (``RefuseFormerTopic``)."""
        if error in ERRORS_OF_TOPIC_IDS:
            return request == COMMIT_OFFSETS and self.names_topics_by_id()
        if error == "TRANSACTION_ABORTABLE":
            return request in {COMMIT_OFFSETS, PRODUCE}
        if error == "GROUP_AUTHORIZATION_FAILED":
            return request in {ADD_OFFSETS, COMMIT_OFFSETS, LOOKUPS[GROUP]}
        if error == "UNKNOWN_TOPIC_ID":
            return request != COMMIT_OFFSETS
        return error != "UNKNOWN_PRODUCER_ID"

    def fences(self, request: str, error: str) -> bool:
        """The coordinator, or a leader, says that the client is fenced."""
        return error == "PRODUCER_FENCED" or (
            error == "INVALID_PRODUCER_EPOCH" and request not in {PRODUCE, *LOOKUPS.values()}
        )

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def has_error(self) -> bool:
        """The client is in an error state."""
        return self.client.state in {ABORTABLE_ERROR, FATAL_ERROR}

    @property
    def is_ending(self) -> bool:
        """The client ends its transaction."""
        return self.client.state in {COMMITTING, ABORTING}

    def is_legal_call(self, operation: str) -> bool:
        """A call that leads to another state is legal in this one."""
        return (self.client.state, TARGETS[operation]) in LEGAL_TRANSITIONS

    @property
    def is_unauthorized(self) -> bool:
        """The coordinator has refused the client's principal: the client is about to start over."""
        return self.client.error == UNAUTHORIZED

    def is_refused_by_error(self, operation: str) -> bool:
        """An abortable error refuses every call except the abort; a fatal one refuses all.

        Departs from Kafka: it accepts an abort of a client that is about to start over.
        """
        accepts_abort = self.client.state == ABORTABLE_ERROR and not self.is_unauthorized
        return self.has_error and not (operation == ABORT_CALL and accepts_abort)

    def other_has_timed_out(self, operation: str) -> bool:
        """Another call has timed out, and has to be repeated first."""
        return self.call.operation not in {NOTHING, operation}

    def call_error(self, operation: str) -> str:
        """The exception with which a call is refused; "NONE" if it is not."""
        if operation in {INIT, SEND} and self.has_error:
            return self.client.error
        if self.other_has_timed_out(operation):
            return ILLEGAL_STATE
        if self.call.operation == operation:
            return NO_ERROR
        if self.is_refused_by_error(operation):
            return self.client.error
        if operation in {SEND, SEND_OFFSETS}:
            return NO_ERROR if self.client.state == IN_TRANSACTION else ILLEGAL_STATE
        return NO_ERROR if self.is_legal_call(operation) else ILLEGAL_STATE

    def _makes(self, operation: str) -> None:
        enabled(not self.call.running, "the application is in a call")
        enabled(self.call.operation != operation, "the call would be repeated")
        error = self.call_error(operation)
        enabled(error == NO_ERROR, error)

    def finished(self, outcome: str) -> Call:
        """The call after what it waits for is done, or has failed."""
        return self.call if self.call.operation == NOTHING else replace(self.call, outcome=outcome)

    def after_timeout(self) -> Call:
        """The call after it has timed out: offsets may be sent again or not."""
        return NO_CALL if self.call.operation == SEND_OFFSETS else replace(self.call, running=False)

    def calls_of(self, request: str) -> frozenset[str]:
        """The calls that wait for the answer to a request."""
        if request in {ADD_OFFSETS, COMMIT_OFFSETS}:
            return frozenset({SEND_OFFSETS})
        if request == INIT_PRODUCER_ID:
            return frozenset({INIT, COMMIT_CALL, ABORT_CALL})
        if request in ENDS and INIT_PRODUCER_ID not in self.queue:
            return frozenset({COMMIT_CALL, ABORT_CALL})
        return frozenset()

    def finished_by(self, request: str, outcome: str) -> Call:
        """The call after the answer to a request."""
        return self.finished(outcome) if self.call.operation in self.calls_of(request) else self.call

    def _fault(self) -> int:
        enabled(self.faults < self.constants.max_faults, "faults have run out")
        return self.faults + 1

    # --- what the client sends --------------------------------------------------------------------------------------

    @property
    def due(self) -> frozenset[str]:
        """New partitions count as a request that waits."""
        return self.queue | ({ADD_PARTITIONS} if self.partitions.new else frozenset())

    def rank(self, request: str) -> int:
        """Requests are sent in this order."""
        if request in LOOKUPS.values():
            return 0
        if request in ENDS:
            return 2
        return 3 if request == INIT_PRODUCER_ID else 1

    def is_incomplete(self, partition: str) -> bool:
        """A partition has a batch that is not complete."""
        return self.batches[partition].status != NOTHING

    def may_send_end(self) -> bool:
        """The end of a transaction may be sent: it waits until every batch of it is complete."""
        return not any(map(self.is_incomplete, self.constants.partitions))

    def taken(self) -> TransactionPartitions:
        """The partitions once the client takes its next request: new ones are in a request then."""
        partitions = self.partitions
        return replace(partitions, pending=partitions.pending | partitions.new, new=frozenset())

    def is_next(self, request: str) -> bool:
        """The request is the one that the client takes next."""
        due = self.due
        return (
            self.in_flight == NOTHING
            and request in due
            and all(self.rank(request) <= self.rank(other) for other in due)
            and (request not in ENDS or self.may_send_end())
        )

    def sends_requests(self) -> bool:
        """Requests are sent; after an error they fail instead."""
        return not self.has_error

    def may_be_sent(self, request: str) -> bool:
        """Coordinators are looked up after an error too."""
        return request in LOOKUPS.values() or self.sends_requests()

    def knows_receiver(self, request: str) -> bool:
        """The client knows the receiver of a request; a lookup goes to any broker."""
        return request in LOOKUPS.values() or coordinator_of(request) in self.coordinators

    def requests_first(self) -> bool:
        """Batches are sent when no request is in flight and none that can be sent waits."""
        return self.in_flight == NOTHING and not any(map(self.is_next, REQUESTS))

    def nothing_to_end(self, request: str) -> bool:
        """Nothing of the transaction is registered anywhere: there is nothing to end."""
        return request in ENDS and not self.client.started

    def next_sequence(self, partition: str) -> int:
        """The next sequence of a partition: the first of every identity is 0."""
        last = self.sequences[partition]
        return last.next if last.identity == self.client.identity else 0

    def is_registered(self, partition: str) -> bool:
        """A partition's batches may be sent."""
        return partition in self.partitions.added

    def drops_batches(self) -> bool:
        """Batches that have not been sent are dropped after an error and during an abort."""
        return self.client.state in {ABORTABLE_ERROR, ABORTING}

    # --- failures ---------------------------------------------------------------------------------------------------

    def bumps_by_itself(self) -> bool:
        """The client itself asks for another epoch after a failure (KIP-360); version 2 gets one at every end."""
        return self.constants.supports_bump and self.client.version == 1

    def bumps_after(self, batch: ProducerBatch, expired: bool) -> bool:  # noqa: ARG002 - what Kafka looks at
        """The client asks for another epoch after a batch has failed.

        Departs from Kafka: it asks for no other epoch after a batch that fails while the transaction ends, and what
        becomes of the batch on its way is unknown.
        """
        return self.bumps_by_itself()

    def queue_after(self, bumps: bool) -> frozenset[str]:
        """The requests that wait after a batch has failed.

        Departs from Kafka: it may need the epoch after the abort is queued, and waits for one without asking.
        """
        return self.queue | {INIT_PRODUCER_ID} if self.client.state == ABORTING and bumps else self.queue

    def failed(self, exception: str, bumps: bool) -> Client:
        """The client after a failure after which it can abort and go on."""
        client = replace(self.client, bump=self.client.bump or bumps)
        return client if client.state == ABORTING else replace(client, state=ABORTABLE_ERROR, error=exception)

    def call_after_fatal(self, request: str) -> Call:  # noqa: ARG002 - what Kafka looks at
        """The call after an answer with a fatal error.

        Departs from Kafka: there a call that waits for offsets that are not sent yet is not told, and times out.
        """
        return self.finished(FAILED)

    def becomes_fatal(self, request: str, exception: str) -> Self:
        """The client after a fatal error: it sends nothing more, and ignores every answer."""
        return replace(
            self,
            client=replace(self.client, state=FATAL_ERROR, error=exception),
            batches=Map(dict.fromkeys(self.batches, NO_BATCH)),
            queue=frozenset(),
            in_flight=NOTHING,
            call=self.call_after_fatal(request),
        )

    def after_end(self, bumped: bool) -> Client:
        """The client after a transaction: it asks for another epoch, has got one, or goes on with the old one."""
        return replace(
            self.client,
            state=INITIALIZING if self.client.bump else READY,
            error=NO_ERROR,
            bump=False,
            started=False,
            identity=self.client.identity + 1 if bumped else self.client.identity,
        )

    # --- the application's calls                                                    WHO: the application ----------

    @action("InitTransactions")
    def init_transactions(self) -> Self:
        """The application calls initTransactions.

        Spec:  TransactionalProducer!InitTransactions
        KIP:   KIP-98
        Kafka: TransactionManager.initializeTransactions
        """
        self._makes(INIT)
        return replace(
            self,
            client=replace(self.client, state=INITIALIZING, error=NO_ERROR),
            queue=self.queue | {INIT_PRODUCER_ID},
            call=_waiting(INIT),
        )

    @action("BeginTransaction")
    def begin_transaction(self) -> Self:
        """The application calls beginTransaction.

        Spec:  TransactionalProducer!BeginTransaction
        KIP:   KIP-98
        Kafka: TransactionManager.beginTransaction
        """
        self._makes(BEGIN)
        enabled(self.seen.number < self.constants.max_transactions, "transactions have run out")
        return replace(
            self,
            client=replace(self.client, state=IN_TRANSACTION),
            seen=replace(
                self.seen,
                number=self.seen.number + 1,
                version=self.client.version,
                sends=0,
                offsets=False,
                ends=frozenset(),
                ended=NOTHING,
                failed=False,
                registered=frozenset(),
            ),
        )

    @action("Send", "Partitions")
    def send(self, partition: str) -> Self:
        """The application sends a batch.

        Spec:  TransactionalProducer!Send
        KIP:   KIP-98, KIP-890
        Kafka: TransactionManager.maybeAddPartition
        """
        self._makes(SEND)
        enabled(not self.is_incomplete(partition), "the partition has a batch")
        enabled(self.seen.sends < self.constants.max_sends, "batches have run out")
        partitions, client = self.partitions, self.client
        if client.version == 2:
            partitions = replace(partitions, added=partitions.added | {partition})
            client = replace(client, started=True)
        else:
            partitions = replace(
                partitions, new=partitions.new | ({partition} - (partitions.pending | partitions.added))
            )
        return replace(
            self,
            client=client,
            partitions=partitions,
            batches=self.batches.set(partition, replace(self.batches[partition], status=ACCUMULATED)),
            seen=replace(self.seen, sends=self.seen.sends + 1),
        )

    def may_fail_send(self) -> bool:
        """A send of the application may fail before there is a batch."""
        return not self.call.running and self.client.state == IN_TRANSACTION

    @action("FailSend")
    def fail_send(self) -> Self:
        """A send of the application fails: the record is too large, or its partition is not known in time.

        Spec:  TransactionalProducer!FailSend
        KIP:   KIP-360
        Kafka: TransactionManager.maybeTransitionToErrorState
        """
        enabled(self.may_fail_send(), "no transaction, or in a call")
        return replace(
            self,
            client=self.failed(KAFKA_EXCEPTION, self.bumps_by_itself()),
            seen=replace(self.seen, failed=True),
            faults=self._fault(),
        )

    @action("SendOffsets")
    def send_offsets(self) -> Self:
        """The application calls sendOffsetsToTransaction.

        Spec:  TransactionalProducer!SendOffsets
        KIP:   KIP-98, KIP-890
        Kafka: TransactionManager.sendOffsetsToTransaction
        """
        self._makes(SEND_OFFSETS)
        enabled(not self.seen.offsets, "offsets have been sent")
        version_2 = self.client.version == 2
        return replace(
            self,
            client=replace(self.client, started=True) if version_2 else self.client,
            queue=self.queue | {COMMIT_OFFSETS if version_2 else ADD_OFFSETS},
            call=_waiting(SEND_OFFSETS),
            topic=replace(self.topic, named=self.topic.id),
            seen=replace(self.seen, offsets=True),
        )

    def bumps_for_upgrade(self) -> bool:
        """A client of version 1 that finds version 2 asks for another epoch when it ends its transaction."""
        return self.cluster > self.client.version

    def end_requests(self, request: str, bumps: bool) -> frozenset[str]:
        """The requests with which the client ends its transaction: it asks for another epoch behind the end."""
        return frozenset({request, INIT_PRODUCER_ID}) if bumps else frozenset({request})

    def _ending(self, operation: str, request: str) -> Self:
        self._makes(operation)
        bumps = self.client.bump or self.bumps_for_upgrade()
        client = replace(self.client, state=TARGETS[operation], error=NO_ERROR, version=self.cluster, bump=bumps)
        queue = self.queue | self.end_requests(request, bumps)
        return replace(self, client=client, queue=queue, call=_waiting(operation))

    @action("CommitTransaction")
    def commit_transaction(self) -> Self:
        """The application calls commitTransaction.

        Spec:  TransactionalProducer!CommitTransaction
        KIP:   KIP-98
        Kafka: TransactionManager.beginCommit
        """
        return self._ending(COMMIT_CALL, COMMIT)

    @action("AbortTransaction")
    def abort_transaction(self) -> Self:
        """The application calls abortTransaction.

        Spec:  TransactionalProducer!AbortTransaction
        KIP:   KIP-98
        Kafka: TransactionManager.beginAbort
        """
        after = self._ending(ABORT_CALL, ABORT)
        return replace(after, partitions=replace(self.partitions, new=frozenset()))

    @action("RepeatCall")
    def repeat_call(self) -> Self:
        """The application repeats the call that has timed out.

        Spec:  TransactionalProducer!RepeatCall
        Kafka: TransactionManager.handleCachedTransactionRequestResult
        """
        enabled(self.call.operation != NOTHING and not self.call.running, "no call has timed out")
        error = self.call_error(self.call.operation)
        enabled(error == NO_ERROR, error)
        return replace(self, call=replace(self.call, running=True))

    @action("TimeOutCall")
    def time_out_call(self) -> Self:
        """A call takes longer than max.block.ms.

        Spec:  TransactionalProducer!TimeOutCall
        Kafka: TransactionalRequestResult.await
        """
        enabled(self.call.running and self.call.outcome == WAITING, "no call waits")
        return replace(self, call=self.after_timeout(), faults=self._fault())

    @action("EndCall")
    def end_call(self) -> Self:
        """A call returns, or throws the error that it has failed with.

        Spec:  TransactionalProducer!EndCall
        Kafka: TransactionalRequestResult.await, TransactionManager.maybeUpdateTransactionV2Enabled
        """
        enabled(self.call.running and self.call.outcome != WAITING, "no call has an outcome")
        is_initialized = self.call.operation == INIT and self.call.outcome == DONE
        client = replace(self.client, version=self.cluster) if is_initialized else self.client
        return replace(self, client=client, call=NO_CALL)

    # --- the sender's thread                                                        WHO: the client ---------------

    @action("FindCoordinator", "CoordinatorTypes")
    def find_coordinator(self, type: str) -> Self:  # noqa: A002 - the spec's name
        """The client asks for the coordinator that its next request needs.

        Spec:  TransactionalProducer!FindCoordinator
        Kafka: TransactionManager.lookupCoordinator
        """
        enabled(self.sends_requests(), "an error")
        needs = any(
            coordinator_of(request) == type
            and self.is_next(request)
            and not self.nothing_to_end(request)
            and not self.knows_receiver(request)
            for request in REQUESTS
        )
        enabled(needs, "no request needs it")
        return replace(self, partitions=self.taken(), queue=self.due, in_flight=LOOKUPS[type])

    @action("SendRequest", "Requests")
    def send_request(self, request: str) -> Self:
        """The client sends its next request.

        Spec:  TransactionalProducer!SendRequest
        Kafka: TransactionManager.nextRequest, Sender.maybeSendAndPollTransactionalRequest
        """
        enabled(self.may_be_sent(request) and self.is_next(request), "an error, or not the next request")
        enabled(not self.nothing_to_end(request), "nothing to end")
        enabled(self.knows_receiver(request), "the coordinator is not known")
        seen = replace(self.seen, ends=self.seen.ends | {request}) if request in ENDS else self.seen
        return replace(self, partitions=self.taken(), queue=self.due - {request}, in_flight=request, seen=seen)

    @action("SkipEnd", "Requests")
    def skip_end(self, request: str) -> Self:
        """The client ends a transaction of which no broker knows, and sends nothing.

        Spec:  TransactionalProducer!SkipEnd
        Kafka: TransactionManager.nextRequest
        """
        enabled(self.sends_requests() and self.is_next(request), "an error, or not the next request")
        enabled(self.nothing_to_end(request), "there is something to end")
        return replace(
            self,
            client=self.after_end(False),
            partitions=TransactionPartitions(),
            queue=self.queue - {request},
            call=self.finished_by(request, DONE),
            seen=replace(self.seen, ended=request),
        )

    @action("TerminateRequest", "Requests")
    def terminate_request(self, request: str) -> Self:
        """The next request fails because of an error before it.

        Spec:  TransactionalProducer!TerminateRequest
        Kafka: TransactionManager.maybeTerminateRequestWithError
        """
        enabled(not self.may_be_sent(request) and self.is_next(request), "no error, or not the next request")
        call = self.finished_by(request, FAILED)
        return replace(self, partitions=self.taken(), queue=self.due - {request}, call=call)

    @action("SendBatch", "Partitions")
    def send_batch(self, partition: str) -> Self:
        """The client sends a batch, for the first time or again, when no other request is to be sent.

        Spec:  TransactionalProducer!SendBatch
        KIP:   KIP-98, KIP-360
        Kafka: RecordAccumulator.drainBatchesForOneNode, TransactionManager.maybeUpdateProducerIdAndEpoch
        """
        enabled(self.requests_first(), "another request is to be sent")
        batch = self.batches[partition]
        is_new = batch.status == ACCUMULATED
        enabled((is_new and not self.drops_batches()) or batch.status == TO_BE_RETRIED, "no batch is to be sent")
        enabled(self.is_registered(partition), "the partition is not registered")
        sent, sequences = replace(batch, status=IN_FLIGHT), self.sequences
        if is_new:
            sent = replace(sent, identity=self.client.identity, sequence=self.next_sequence(partition))
            sequences = sequences.set(partition, PartitionSequence(identity=sent.identity, next=sent.sequence + 1))
        last = SentBatch(identity=sent.identity, sequence=sent.sequence, version=self.seen.version)
        return replace(
            self,
            sequences=sequences,
            batches=self.batches.set(partition, sent),
            seen=replace(self.seen, last=self.seen.last.set(partition, last)),
        )

    @action("DropBatches")
    def drop_batches(self) -> Self:
        """The client drops the batches that it has not sent yet.

        Spec:  TransactionalProducer!DropBatches
        Kafka: RecordAccumulator.abortUndrainedBatches
        """
        enabled(self.in_flight == NOTHING and self.drops_batches(), "waiting for an answer, or no error")
        unsent = [partition for partition, batch in self.batches.items() if batch.status == ACCUMULATED]
        enabled(bool(unsent), "every batch has been sent")
        return replace(self, batches=self.batches.update(dict.fromkeys(unsent, NO_BATCH)))

    @action("StartOver")
    def start_over(self) -> Self:
        """The client whose principal was refused may be initialized again.

        Spec:  TransactionalProducer!StartOver
        Kafka: Sender.shouldHandleAuthorizationError, TransactionManager.transitionToUninitialized
        """
        enabled(self.is_unauthorized, "nobody has refused it")
        return replace(self, client=replace(self.client, state=UNINITIALIZED, error=NO_ERROR))

    # --- answers without error                                                      WHO: the brokers --------------

    @action("ReceiveCoordinator", "CoordinatorTypes")
    def receive_coordinator(self, type: str) -> Self:  # noqa: A002 - the spec's name
        """A broker names the coordinator.

        Spec:  TransactionalProducer!ReceiveCoordinator
        Kafka: TransactionManager.FindCoordinatorHandler
        """
        enabled(self.in_flight == LOOKUPS[type], "not asked for")
        return replace(self, in_flight=NOTHING, coordinators=self.coordinators | {type})

    @action("ReceiveProducerId")
    def receive_producer_id(self) -> Self:
        """The coordinator gives the client a producer id and epoch.

        Spec:  TransactionalProducer!ReceiveProducerId
        KIP:   KIP-98, KIP-360
        Kafka: TransactionManager.InitProducerIdHandler
        """
        enabled(self.in_flight == INIT_PRODUCER_ID, "not asked for")
        client = replace(self.client, state=READY, error=NO_ERROR, identity=self.client.identity + 1)
        return replace(self, client=client, in_flight=NOTHING, call=self.finished_by(INIT_PRODUCER_ID, DONE))

    @action("ReceivePartitionsAdded")
    def receive_partitions_added(self) -> Self:
        """The coordinator has registered the partitions.

        Spec:  TransactionalProducer!ReceivePartitionsAdded
        Kafka: TransactionManager.AddPartitionsToTxnHandler
        """
        enabled(self.in_flight == ADD_PARTITIONS, "not asked for")
        pending = self.partitions.pending
        return replace(
            self,
            client=replace(self.client, started=True),
            partitions=replace(self.partitions, added=self.partitions.added | pending, pending=frozenset()),
            in_flight=NOTHING,
            seen=replace(self.seen, registered=self.seen.registered | pending),
        )

    @action("ReceiveOffsetsAdded")
    def receive_offsets_added(self) -> Self:
        """The coordinator has registered the group's offsets: they can be sent.

        Spec:  TransactionalProducer!ReceiveOffsetsAdded
        Kafka: TransactionManager.AddOffsetsToTxnHandler
        """
        enabled(self.in_flight == ADD_OFFSETS, "not asked for")
        client = replace(self.client, started=True)
        return replace(self, client=client, queue=self.queue | {COMMIT_OFFSETS}, in_flight=NOTHING)

    @action("ReceiveOffsetsCommitted")
    def receive_offsets_committed(self) -> Self:
        """The group's coordinator has the offsets.

        Spec:  TransactionalProducer!ReceiveOffsetsCommitted
        Kafka: TransactionManager.TxnOffsetCommitHandler
        """
        enabled(self.in_flight == COMMIT_OFFSETS, "not asked for")
        enabled(not self.names_former_topic, "no topic has the id")
        return replace(self, in_flight=NOTHING, call=self.finished_by(COMMIT_OFFSETS, DONE))

    @action("ReceiveEnd", "Requests")
    def receive_end(self, request: str) -> Self:
        """The coordinator has ended the transaction; in version 2 it answers with the next epoch.

        Spec:  TransactionalProducer!ReceiveEnd
        KIP:   KIP-98, KIP-890
        Kafka: TransactionManager.EndTxnHandler
        """
        enabled(request in ENDS and self.in_flight == request, "not asked for")
        return replace(
            self,
            client=self.after_end(self.seen.version == 2),
            partitions=TransactionPartitions(),
            in_flight=NOTHING,
            call=self.finished_by(request, DONE),
            seen=replace(self.seen, ended=request),
        )

    @action("AcknowledgeBatch", "Partitions")
    def acknowledge_batch(self, partition: str) -> Self:
        """The leader has appended the batch, or has had it already.

        Spec:  TransactionalProducer!AcknowledgeBatch
        Kafka: TransactionManager.handleCompletedBatch
        """
        self._is_in_flight(partition)
        return replace(self, batches=self.batches.set(partition, NO_BATCH))

    # --- answers with an error, and none                                            WHO: the brokers --------------

    def _is_in_flight(self, partition: str) -> ProducerBatch:
        batch = self.batches[partition]
        enabled(batch.status == IN_FLIGHT, "no batch is in flight")
        return batch

    def _answers(self, request: str, error: str, *reactions: str) -> int:
        enabled(request != NOTHING, "nothing to answer")
        enabled(self.may_answer(request, error), "no broker says so")
        enabled(self.reaction(request, error) in reactions, "another reaction")
        return self._fault()

    def _sends_again(self, looks_up: bool) -> Self:
        """The request waits to be sent again, perhaps after a lookup."""
        queue, coordinators = self.queue | {self.in_flight}, self.coordinators
        if looks_up:
            coordinator = coordinator_of(self.in_flight)
            queue, coordinators = queue | {LOOKUPS[coordinator]}, coordinators - {coordinator}
        return replace(self, in_flight=NOTHING, queue=queue, coordinators=coordinators)

    @action("RetryRequest", "Errors")
    def retry_request(self, error: str) -> Self:
        """A broker answers with a transient error: the client sends the same request again.

        Spec:  TransactionalProducer!RetryRequest
        Kafka: TransactionManager.TxnRequestHandler.reenqueue
        """
        request = self.in_flight
        faults = self._answers(request, error, RETRY)
        looks_up = request not in LOOKUPS.values() and asks_for_coordinator(request, error)
        return replace(self._sends_again(looks_up), faults=faults)

    @action("LoseConnection")
    def lose_connection(self) -> Self:
        """The connection is lost before an answer comes: the client sends the same request again.

        Spec:  TransactionalProducer!LoseConnection
        Kafka: TransactionManager.TxnRequestHandler.onComplete
        """
        enabled(self.in_flight != NOTHING, "nothing is in flight")
        faults = self._fault()
        return replace(self._sends_again(self.in_flight not in LOOKUPS.values()), faults=faults)

    def bumps_for(self, request: str, error: str) -> bool:
        """The client asks for another epoch after an error."""
        return self.reaction(request, error) == WITH_BUMP

    def cannot_go_on(self, request: str, error: str) -> bool:
        """Without another epoch the client cannot go on."""
        return self.bumps_for(request, error) and not self.constants.supports_bump and self.client.version == 1

    def _fails_transaction(self, error: str) -> Self:
        request = self.in_flight
        return replace(
            self,
            client=self.failed(
                self.exception_of(request, error), self.bumps_by_itself() and self.bumps_for(request, error)
            ),
            in_flight=NOTHING,
            call=self.finished_by(request, FAILED),
            seen=replace(
                self.seen,
                failed=self.seen.failed or request not in ENDS,
                ends=self.seen.ends - {request},
                fenced=self.seen.fenced or self.fences(request, error),
            ),
        )

    @action("FailTransaction", "Errors")
    def fail_transaction(self, error: str) -> Self:
        """A broker answers with an error after which the client can abort and go on.

        Spec:  TransactionalProducer!FailTransaction
        KIP:   KIP-360, KIP-890, KIP-1050
        Kafka: TransactionManager.TxnRequestHandler.abortableError, abortableErrorIfPossible
        """
        request = self.in_flight
        faults = self._answers(request, error, ABORTABLE, WITH_BUMP)
        enabled(not self.cannot_go_on(request, error), "the client cannot go on")
        return replace(self._fails_transaction(error), faults=faults)

    @action("RefuseFormerTopic")
    def refuse_former_topic(self) -> Self:
        """A broker answers that no topic has the id with which the client sends its offsets.

        Brokers give this answer as often as they are asked, so it is no fault.

        Spec:  TransactionalProducer!RefuseFormerTopic
        KIP:   KIP-1319
        Kafka: KafkaApis.handleTxnOffsetCommitRequest, TransactionManager.TxnOffsetCommitHandler
        """
        enabled(self.in_flight == COMMIT_OFFSETS, "no offsets are in flight")
        enabled(self.names_former_topic, "the topic is there")
        if self.reaction(COMMIT_OFFSETS, "UNKNOWN_TOPIC_ID") == RETRY:
            return self._sends_again(False)
        return self._fails_transaction("UNKNOWN_TOPIC_ID")

    @action("RefuseInitialization", "Errors")
    def refuse_initialization(self, error: str) -> Self:
        """The coordinator refuses the client's principal.

        Spec:  TransactionalProducer!RefuseInitialization
        Kafka: TransactionManager.InitProducerIdHandler
        """
        faults = self._answers(self.in_flight, error, AGAIN_FROM_START)
        return replace(
            self,
            client=replace(self.client, state=ABORTABLE_ERROR, error=UNAUTHORIZED),
            in_flight=NOTHING,
            call=self.finished_by(self.in_flight, FAILED),
            faults=faults,
        )

    @action("FailProducer", "Errors")
    def fail_producer(self, error: str) -> Self:
        """A broker answers with an error that ends the producer.

        Spec:  TransactionalProducer!FailProducer
        KIP:   KIP-98, KIP-1050
        Kafka: TransactionManager.TxnRequestHandler.fatalError
        """
        request = self.in_flight
        faults = self._answers(request, error, FATAL, WITH_BUMP)
        enabled(self.reaction(request, error) == FATAL or self.cannot_go_on(request, error), "the client can go on")
        seen = replace(self.seen, fenced=self.seen.fenced or self.fences(request, error))
        return replace(self.becomes_fatal(request, self.exception_of(request, error)), seen=seen, faults=faults)

    @action("RetryBatch", "Partitions", "Errors")
    def retry_batch(self, partition: str, error: str) -> Self:
        """A leader answers with a transient error: the batch is to be sent again.

        Spec:  TransactionalProducer!RetryBatch
        Kafka: Sender.canRetry, Sender.reenqueueBatch
        """
        batch = self._is_in_flight(partition)
        faults = self._answers(PRODUCE, error, RETRY)
        again = replace(batch, status=TO_BE_RETRIED, retried=True)
        return replace(self, batches=self.batches.set(partition, again), faults=faults)

    def sequences_after(self, partition: str, expired: bool) -> Map[str, PartitionSequence]:
        """The sequences after a batch has failed: that of a batch that was refused is taken again.

        Kafka: TxnPartitionMap.adjustSequencesDueToFailedBatch
        """
        batch, last = self.batches[partition], self.sequences[partition]
        if expired or last.identity != batch.identity:
            return self.sequences
        return self.sequences.set(partition, replace(last, next=batch.sequence))

    def _fails_batch(self, partition: str, exception: str, expired: bool, fences: bool) -> Self:
        batch = self.batches[partition]
        bumps = self.bumps_after(batch, expired)
        last = self.seen.last[partition]
        if not expired:
            last = replace(last, sequence=batch.sequence - 1)
        return replace(
            self,
            client=self.failed(exception, bumps),
            sequences=self.sequences_after(partition, expired),
            batches=self.batches.set(partition, NO_BATCH),
            queue=self.queue_after(bumps),
            seen=replace(
                self.seen,
                failed=True,
                fenced=self.seen.fenced or fences,
                unknown=batch.identity if batch.is_unknown(expired) else self.seen.unknown,
                last=self.seen.last.set(partition, last),
            ),
        )

    @action("FailBatch", "Partitions", "Errors")
    def fail_batch(self, partition: str, error: str) -> Self:
        """A leader refuses a batch with an error after which the client can abort and go on.

        Spec:  TransactionalProducer!FailBatch
        KIP:   KIP-360, KIP-890
        Kafka: TransactionManager.handleFailedBatch, maybeTransitionToErrorState
        """
        self._is_in_flight(partition)
        faults = self._answers(PRODUCE, error, ABORTABLE)
        exception, fences = self.exception_of(PRODUCE, error), self.fences(PRODUCE, error)
        return replace(self._fails_batch(partition, exception, False, fences), faults=faults)

    @action("FailProducerByBatch", "Partitions", "Errors")
    def fail_producer_by_batch(self, partition: str, error: str) -> Self:
        """A leader refuses a batch with an error that ends the producer.

        Spec:  TransactionalProducer!FailProducerByBatch
        Kafka: TransactionManager.handleFailedBatch, maybeTransitionToErrorState
        """
        self._is_in_flight(partition)
        faults = self._answers(PRODUCE, error, FATAL)
        seen = replace(self.seen, fenced=self.seen.fenced or self.fences(PRODUCE, error))
        return replace(self.becomes_fatal(PRODUCE, self.exception_of(PRODUCE, error)), seen=seen, faults=faults)

    def ends_by_hole(self, partition: str) -> bool:
        """A batch that is given up after a retry leaves a hole in the sequences, which only another epoch closes."""
        return self.batches[partition].retried and not self.constants.supports_bump and self.client.version == 1

    @action("ExpireBatch", "Partitions")
    def expire_batch(self, partition: str) -> Self:
        """A batch is not acknowledged within delivery.timeout.ms: the client gives it up.

        Spec:  TransactionalProducer!ExpireBatch
        KIP:   KIP-91, KIP-360
        Kafka: Sender.failExpiredBatches, TransactionManager.maybeResolveSequences
        """
        enabled(self.is_incomplete(partition), "the partition has no batch")
        faults = self._fault()
        if self.ends_by_hole(partition):
            return replace(self.becomes_fatal(PRODUCE, KAFKA_EXCEPTION), faults=faults)
        return replace(self._fails_batch(partition, KAFKA_EXCEPTION, True, False), faults=faults)

    # --- the cluster                                                                WHO: the operator -------------

    @action("Upgrade")
    def upgrade(self) -> Self:
        """The cluster goes on with the next version of transactions.

        Spec:  TransactionalProducer!Upgrade
        KIP:   KIP-890
        Kafka: transaction.version
        """
        enabled(self.cluster + 1 in self.constants.versions, "no later version")
        return replace(self, cluster=self.cluster + 1)

    @action("RecreateTopic")
    def recreate_topic(self) -> Self:
        """The topic of the offsets is deleted, and created again with another id.

        Spec:  TransactionalProducer!RecreateTopic
        KIP:   KIP-1319
        Kafka: ReplicationControlManager.deleteTopics, createTopics
        """
        enabled(self.topic.id < self.constants.max_recreations, "recreations have run out")
        return replace(self, topic=replace(self.topic, id=self.topic.id + 1))


def _waiting(operation: str) -> Call:
    return Call(operation=operation, outcome=WAITING, running=True)
