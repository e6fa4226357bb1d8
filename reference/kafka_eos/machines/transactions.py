"""Transactions over several partitions: coordinator, leaders, and the instances that share a transactional.id.

Spec:  Transactions.tla
KIPs:  98, 360, 890, 1228
Kafka: TransactionCoordinator, TransactionMetadata, TransactionMarkerChannelManager, ProducerStateManager,
       ProducerAppendInfo, TransactionManager

==================  ========================  ===================================================================
spec variable       field                     Kafka
==================  ========================  ===================================================================
transaction         ``transaction``           TransactionMetadata as the coordinator's log has it
coordinatorEpoch    ``coordinator_epoch``     leader epoch of the partition of __transaction_state
former              ``former``                TransactionMetadata of a coordinator that does not know it was replaced
toMark              ``to_mark``               TransactionMetadata.topicPartitions while markers are sent
refused             ``refused``               TransactionMarkerChannelManager.removeMarkersForTxn
logs                ``logs``                  UnifiedLog, ProducerStateEntry and VerificationStateEntry of a partition
clients             ``clients``               TransactionManager of each instance
outcome             ``outcome``               what commitTransaction() and abortTransaction() returned
stored              ``stored``                the futures of send() that succeeded
initRequests        ``init_requests``         InitProducerId requests in the network
addRequests         ``add_requests``          AddPartitionsToTxn requests in the network
produceRequests     ``produce_requests``      Produce requests in the network
verifying           ``verifying``             AddPartitionsToTxnManager: leaders' questions to the coordinator
verified            ``verified``              Produce requests after the coordinator's answer
endRequests         ``end_requests``          EndTxn requests in the network
markerRequests      ``marker_requests``       WriteTxnMarkers requests in the network
answers             ``answers``               responses in the network
faults              ``faults``                none: how many there have been
==================  ========================  ===================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self, TypeVar

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of Transactions.tla.

    Attributes:
        instances: processes of the application with the same transactional.id.
        partitions: the partitions that they write to.
        numbers: 1..n, an instance's transactions.
        epochs: 0..n, the producer epochs that can be reached.
        coordinator_epochs: 0..n, one more than there may be failovers.
        versions: the transaction versions that the clients speak: of 1 and 2.
        verification: a leader asks the coordinator before a transaction's first batch.
        faults: what may go wrong.
        max_faults: how often.
    """

    instances: frozenset[str]
    partitions: frozenset[str]
    numbers: frozenset[int]
    epochs: frozenset[int]
    coordinator_epochs: frozenset[int]
    versions: frozenset[int]
    verification: bool
    faults: frozenset[str]
    max_faults: int

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "Instances": sorted(self.instances),
            "Partitions": sorted(self.partitions),
            "Numbers": sorted(self.numbers),
            "Epochs": sorted(self.epochs),
            "Versions": sorted(self.versions),
            "CoordinatorEpochs": sorted(self.coordinator_epochs),
            "BOOLEAN": (False, True),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The coordinator's durable record."""

    state: TransactionState = TransactionState.EMPTY
    version: int = 0
    epoch: int = NO_EPOCH
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch (``data``) of an instance's transaction, or a marker (``commit``, ``abort``)."""

    kind: str
    epoch: int
    instance: str = "none"
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalLog:
    """A partition: its entries, and what its leader knows of the producer.

    Attributes:
        entries: batches and markers.
        epoch: the producer's epoch.
        open: whether a transaction is open.
        guard: the guard of requests that the coordinator is asked about; a used one is never valid again.
        guard_epoch: the highest epoch among the requests that share the guard.
        guard_version: the transaction version of that request.
        coordinator_epoch: the coordinator epoch of the last marker.
    """

    entries: PVector[Entry] = field(default_factory=pvector)
    epoch: int = NO_EPOCH
    open: bool = False
    guard: int = 0
    guard_epoch: int = NO_EPOCH
    guard_version: int = 0
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client of an instance.

    Attributes:
        state: new, ready, open, abortable, committing, aborting, failed or crashed.
        version: the transaction version that it speaks, 0 before it has asked.
        epoch: its producer epoch.
        number: its last transaction.
        awaits: the answer that it waits for: nothing, init, add, produce or end.
        partition: the partition of the request that it waits for.
        added: the partitions that it has registered in this transaction.
        produced: the partitions that it has sent a batch to in this transaction.
        bump: it asks for another epoch when its transaction has ended.
        asked: it has asked for an epoch.
    """

    state: str = "new"
    version: int = 0
    epoch: int = NO_EPOCH
    number: int = 0
    awaits: str = "nothing"
    partition: str = "none"
    added: frozenset[str] = frozenset()
    produced: frozenset[str] = frozenset()
    bump: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRequest:
    """An AddPartitionsToTxn or Produce request for one partition."""

    instance: str
    number: int
    partition: str
    version: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRequest(PartitionRequest):
    """A Produce request with the guard that it found at its leader."""

    guard: int


_Request = TypeVar("_Request", bound=PartitionRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """An EndTxn request."""

    instance: str
    number: int
    version: int
    epoch: int
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A WriteTxnMarkers request for one partition."""

    partition: str
    version: int
    epoch: int
    commit: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response to an instance."""

    instance: str
    error: ErrorCode
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A batch that was acknowledged to its instance."""

    instance: str
    number: int
    partition: str


PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETED = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
ENDING = {True: "committing", False: "aborting"}
DECIDE = "DECIDE"
RETRIABLE = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors after which a client sends its request again."""
_ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_ALIVE = frozenset({"ready", "open", "abortable", "committing", "aborting"})


class GuardConstants(Protocol):
    """The constants that guards depend on."""

    @property
    def verification(self) -> bool:
        """A leader asks the coordinator about transactions of version 1 as well."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The batch that a leader asks the coordinator about."""

    version: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """A leader's guards: functions of its state of a producer, and of a request.

    Attributes:
        constants: whether a leader asks about transactions of version 1 as well.
    """

    constants: GuardConstants = field(compare=False)

    def is_ongoing(self, log: TransactionalLog, epoch: int) -> bool:
        """The partition has an open transaction of this epoch."""
        return log.open and log.epoch == epoch

    def needs_guard(self, version: int) -> bool:
        """A leader asks the coordinator about a transaction's first batch."""
        return self.constants.verification or version == 2

    def has_passed(self, log: TransactionalLog, epoch: int) -> bool:
        """The batch's epoch has passed: the leader refuses the batch without asking the coordinator."""
        return epoch < log.epoch

    def guard_version(
        self,
        log: TransactionalLog,  # noqa: ARG002 - a mutant uses it
        request: "PartitionRequest | Question",
    ) -> int:
        """The version of a guard whose epoch a request raises.

        Departs from Kafka: there the first request decides, not the one with the latest epoch (FirstRequestDecides).
        """
        return request.version

    def with_guard(self, log: TransactionalLog, request: "PartitionRequest | Question") -> TransactionalLog:
        """Requests of one producer share the guard; a later epoch raises the guard's.

        Kafka: VerificationStateEntry
        """
        if log.guard_epoch < request.epoch:
            return replace(log, guard_epoch=request.epoch, guard_version=self.guard_version(log, request))
        return log

    def data_error(self, log: TransactionalLog, epoch: int, guard: int) -> ErrorCode:
        """The reason why a leader refuses a batch that belongs to a transaction; ``NONE`` if it does not.

        Without verification a leader of version 2 asks only to have the partition registered: it looks at no guard.

        Kafka: UnifiedLog.batchMissingRequiredVerification
        """
        if epoch < log.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.constants.verification and not self.is_ongoing(log, epoch) and guard != log.guard:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def uses_guard_up(self, log: TransactionalLog, epoch: int) -> bool:
        """A batch uses the guard up, unless the guard belongs to a later epoch already.

        # Departs from Kafka: there every transactional append does (the mutant EveryAppendUsesGuardUp); a late batch
        # of an aborted transaction then makes the next one fail.
        """
        return log.guard_epoch <= epoch

    def with_data(self, log: TransactionalLog, instance: str, number: int, epoch: int) -> TransactionalLog:
        """The leader's log after a batch."""
        used = self.uses_guard_up(log, epoch)
        return replace(
            log,
            entries=log.entries.append(Entry(kind="data", epoch=epoch, instance=instance, number=number)),
            epoch=epoch,
            open=True,
            guard=log.guard + (1 if used else 0),
            guard_epoch=NO_EPOCH if used else log.guard_epoch,
            guard_version=0 if used else log.guard_version,
        )

    def keeps_guard(self, log: TransactionalLog, marker: Marker) -> bool:
        """A marker keeps the guard of a transaction that begins with the marker's own epoch (KAFKA-18575)."""
        return log.guard_version == 2 and marker.epoch == log.guard_epoch

    def epoch_after_marker(self, log: TransactionalLog, marker: Marker) -> int:  # noqa: ARG002 - a mutant looks at it
        """The epoch that a leader knows of the producer after a marker."""
        return marker.epoch

    def with_marker(self, log: TransactionalLog, marker: Marker) -> TransactionalLog:
        """The leader's log after a marker."""
        kept = self.keeps_guard(log, marker)
        return replace(
            log,
            entries=log.entries.append(Entry(kind="commit" if marker.commit else "abort", epoch=marker.epoch)),
            epoch=self.epoch_after_marker(log, marker),
            open=False,
            guard=log.guard + (0 if kept else 1),
            guard_epoch=log.guard_epoch if kept else NO_EPOCH,
            guard_version=log.guard_version if kept else 0,
            coordinator_epoch=marker.coordinator_epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions(GuardRules):
    """A state of Transactions.tla."""

    MODULE: ClassVar[str] = "Transactions"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "transaction",
        "coordinatorEpoch",
        "former",
        "toMark",
        "refused",
        "logs",
        "clients",
        "outcome",
        "stored",
        "initRequests",
        "addRequests",
        "produceRequests",
        "verifying",
        "verified",
        "endRequests",
        "markerRequests",
        "answers",
        "faults",
    )

    constants: Constants = field(compare=False)
    transaction: Transaction = Transaction()
    coordinator_epoch: int = 0
    former: Transaction = Transaction()
    to_mark: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    logs: Map[str, TransactionalLog]
    clients: Map[str, Client]
    outcome: Map[str, Map[int, str]]
    stored: frozenset[StoredBatch] = frozenset()
    init_requests: frozenset[str] = frozenset()
    add_requests: frozenset[PartitionRequest] = frozenset()
    produce_requests: frozenset[PartitionRequest] = frozenset()
    verifying: frozenset[GuardedRequest] = frozenset()
    verified: frozenset[GuardedRequest] = frozenset()
    end_requests: frozenset[EndRequest] = frozenset()
    marker_requests: frozenset[Marker] = frozenset()
    answers: frozenset[Reply] = frozenset()
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: nobody has asked for anything."""
        return cls(
            constants=constants,
            logs=Map(dict.fromkeys(constants.partitions, TransactionalLog())),
            clients=Map(dict.fromkeys(constants.instances, Client())),
            outcome=Map(dict.fromkeys(constants.instances, Map(dict.fromkeys(constants.numbers, "none")))),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- transitions of the coordinator's record ------------------------------------------------------------------

    def is_prepared(self) -> bool:
        """The decision is durable, and markers are being written."""
        return self.transaction.state in PREPARED.values()

    def is_at_rest(self) -> bool:
        """No transaction is open or being ended."""
        return self.transaction.state is TransactionState.EMPTY or self.transaction.state in COMPLETED.values()

    def commits(self) -> bool:
        """The record decides for commit."""
        return self.transaction.state in {PREPARED[True], COMPLETED[True]}

    def decide(self, commit: bool, version: int, epoch: int) -> Self:
        """The coordinator decides: the decision and the epoch of its markers become durable in one record."""
        decided = replace(self.transaction, state=PREPARED[commit], version=version, epoch=epoch)
        return replace(self, transaction=decided, to_mark=self.transaction.partitions, refused=frozenset())

    def fencing_epoch(self) -> int:
        """The epoch with which the coordinator aborts a transaction by itself, so that its producer is fenced."""
        return self.transaction.epoch + 1

    def end_epoch(self, version: int) -> int:
        """The epoch with which a transaction that its producer ends goes on."""
        return self.transaction.epoch + (1 if version == 2 else 0)

    # --- instances                                                                  WHO: the application ----------

    def fault(self, kind: str) -> Self:
        """A fault happens, if one may happen still."""
        enabled(kind in self.constants.faults and self.faults < self.constants.max_faults, "faults have run out")
        return replace(self, faults=self.faults + 1)

    def _with_client(self, instance: str, client: Client) -> Self:
        return replace(self, clients=self.clients.set(instance, client))

    @action("Initialize", "Instances", "Versions")
    def initialize(self, instance: str, version: int) -> Self:
        """An instance initializes its transactions, which fences the others; it speaks the version that it finds.

        Spec:  Transactions!Initialize
        KIP:   KIP-98
        Kafka: TransactionManager.initializeTransactions
        """
        client = self.clients[instance]
        enabled(client.state == "new" and client.awaits == "nothing", "initialized, or waiting")
        enabled(client.version in {0, version}, "it speaks another version")
        after = self._with_client(instance, replace(client, awaits="init", asked=True, version=version))
        return replace(after, init_requests=self.init_requests | {instance})

    def current(self, instance: str) -> int:
        """The number of the transaction that an instance's next batch belongs to."""
        client = self.clients[instance]
        return client.number if client.state == "open" else client.number + 1

    def within(self, client: Client, number: int) -> Client:
        """An instance in its transaction, which begins if it has not."""
        if client.state == "open":
            return client
        return replace(client, state="open", number=number, added=frozenset(), produced=frozenset())

    def _sends(self, instance: str, client: Client) -> Self:
        """An instance with a request in its transaction on the way."""
        outcome = self.outcome.set(instance, self.outcome[instance].set(client.number, "open"))
        return replace(self._with_client(instance, client), outcome=outcome)

    def _in_transaction(self, instance: str) -> Client:
        client, number = self.clients[instance], self.current(instance)
        enabled(client.state in {"ready", "open"} and client.awaits == "nothing", "not ready, or waiting")
        enabled(number in self.constants.numbers, "transactions have run out")
        return self.within(client, number)

    def _request(self, instance: str, client: Client, partition: str) -> PartitionRequest:
        return PartitionRequest(
            instance=instance, number=client.number, partition=partition, version=client.version, epoch=client.epoch
        )

    @action("AddPartition", "Instances", "Partitions")
    def add_partition(self, instance: str, partition: str) -> Self:
        """An instance registers a partition with the coordinator.

        Spec:  Transactions!AddPartition
        KIP:   KIP-98
        Kafka: TransactionManager.maybeAddPartition
        """
        client = self._in_transaction(instance)
        enabled(client.version == 1, "partitions are registered by their leaders")
        enabled(partition not in client.added, "registered already")
        after = self._sends(instance, replace(client, awaits="add", partition=partition))
        request = self._request(instance, client, partition)
        return replace(after, add_requests=self.add_requests | {request})

    @action("Produce", "Instances", "Partitions")
    def produce(self, instance: str, partition: str) -> Self:
        """An instance sends a batch of its transaction to a partition.

        Spec:  Transactions!Produce
        KIP:   KIP-98, KIP-890
        Kafka: Sender.sendProduceRequest
        """
        client = self._in_transaction(instance)
        enabled(client.version != 1 or partition in client.added, "not registered")
        enabled(partition not in client.produced, "sent already")
        sent = replace(client, awaits="produce", partition=partition, produced=client.produced | {partition})
        request = self._request(instance, client, partition)
        return replace(self._sends(instance, sent), produce_requests=self.produce_requests | {request})

    def asks_for_epoch(self, client: Client, ending: bool) -> bool:  # noqa: ARG002 - Kafka's client looks at it
        """A client asks for another epoch after a batch has failed, because the batch may be stored or not (KIP-360).

        Version 2 gives every client another epoch at the end of its transaction.

        # Departs from Kafka: there a client asks for none if its batch fails after the application has asked it to end
        # the transaction, and a late batch then joins the next one (KeepsEpochWhileEnding).
        """
        return client.version == 1

    def failed(self, client: Client, ending: bool) -> Client:
        """The client after a batch has failed: it can only abort, and then goes on."""
        return replace(client, state="abortable", awaits="nothing", bump=self.asks_for_epoch(client, ending))

    @action("Expire", "Instances", "BOOLEAN")
    def expire(self, instance: str, ending: bool) -> Self:
        """A batch is not acknowledged in time, and its instance gives it up.

        The batch may be stored or not. The application may have asked to end the transaction by then.

        Spec:  Transactions!Expire
        KIP:   KIP-360
        Kafka: ProducerBatch.hasReachedDeliveryTimeout, TransactionManager.handleFailedBatch
        """
        client = self.clients[instance]
        enabled(client.awaits == "produce", "no batch is unanswered")
        after = self._with_client(instance, self.failed(client, ending))
        return replace(after, answers=frozenset(answer for answer in self.answers if answer.instance != instance))

    @action("End", "Instances", "BOOLEAN")
    def end(self, instance: str, commit: bool) -> Self:
        """An instance ends its transaction, and asks again if the coordinator was busy.

        An instance whose batch has failed may only abort.

        Spec:  Transactions!End
        KIP:   KIP-98, KIP-360, KIP-890
        Kafka: TransactionManager.beginCommit, TransactionManager.beginAbort
        """
        client = self.clients[instance]
        may_end = client.state in {"open", ENDING[commit]} or (client.state == "abortable" and not commit)
        enabled(may_end, "no transaction to end this way")
        enabled(client.awaits == "nothing", "waiting for an answer")
        if client.version == 1:
            enabled(bool(client.added), "nothing is registered")
        else:
            enabled(not commit or bool(client.produced), "nothing is sent")
        after = self._with_client(instance, replace(client, state=ENDING[commit], awaits="end"))
        request = EndRequest(
            instance=instance, number=client.number, version=client.version, epoch=client.epoch, commit=commit
        )
        results = self.outcome[instance].set(client.number, "committing") if commit else self.outcome[instance]
        outcome = self.outcome.set(instance, results)
        return replace(after, outcome=outcome, end_requests=self.end_requests | {request})

    def upgraded(self, client: Client) -> Client:
        """A client after it has found version 2.

        The client needs a new epoch, because the old one is also that of its earlier transactions (KAFKA-18227).
        """
        return replace(client, version=2, state="new")

    @action("Upgrade", "Instances")
    def upgrade(self, instance: str) -> Self:
        """An instance between two transactions finds that the cluster has version 2 by now.

        Spec:  Transactions!Upgrade
        KIP:   KIP-890
        Kafka: TransactionManager.maybeUpdateTransactionV2Enabled
        """
        client = self.clients[instance]
        enabled(2 in self.constants.versions, "the cluster has no version 2")
        enabled(client.version == 1 and client.state == "ready" and client.awaits == "nothing", "not between two")
        return self._with_client(instance, self.upgraded(client))

    @action("Crash", "Instances")
    def crash(self, instance: str) -> Self:
        """An instance crashes, and is not seen again.

        Spec:  Transactions!Crash
        """
        client = self.clients[instance]
        enabled(client.state in _ALIVE, "it has no epoch, or has ended")
        after = self.fault("crash")._with_client(instance, replace(client, state="crashed", awaits="nothing"))
        return replace(after, answers=frozenset(answer for answer in self.answers if answer.instance != instance))

    def is_abortable(self, request: str, error: ErrorCode) -> bool:
        """The client can abort after this error and go on.

        Every other one ends the client (the table of all is TransactionalProducer's).
        """
        return request == "produce" and error in _ABORTABLE

    def after_answer(self, client: Client, answer: Reply) -> Client:
        """An instance's client after an answer."""
        heard = replace(client, awaits="nothing")
        if answer.error in RETRIABLE:
            return (
                replace(heard, produced=client.produced - {client.partition}) if client.awaits == "produce" else heard
            )
        if self.is_abortable(client.awaits, answer.error):
            return self.failed(client, False)
        if answer.error is not ErrorCode.NONE:
            return replace(heard, state="failed")
        if client.awaits == "init":
            return replace(heard, state="ready", epoch=answer.epoch)
        if client.awaits == "add":
            return replace(heard, added=client.added | {client.partition})
        if client.awaits == "end":
            return replace(heard, epoch=answer.epoch, bump=False, state="new" if client.bump else "ready")
        return heard

    @action("Receive", "Instances")
    def receive(self, instance: str) -> Self:
        """An instance gets the answer that it waits for.

        Spec:  Transactions!Receive
        KIP:   KIP-98, KIP-890
        Kafka: TransactionManager.TxnRequestHandler.onComplete
        """
        answer = next((answer for answer in self.answers if answer.instance == instance), None)
        enabled(answer is not None, "no answer is on its way")
        assert answer is not None
        client, stored, outcome = self.clients[instance], self.stored, self.outcome
        if answer.error is ErrorCode.NONE and client.awaits == "produce":
            stored |= {StoredBatch(instance=instance, number=client.number, partition=client.partition)}
        if answer.error is ErrorCode.NONE and client.awaits == "end":
            result = "committed" if client.state == "committing" else "aborted"
            outcome = outcome.set(instance, outcome[instance].set(client.number, result))
        after = self._with_client(instance, self.after_answer(client, answer))
        return replace(
            after,
            stored=stored,
            outcome=outcome,
            answers=frozenset(other for other in self.answers if other.instance != instance),
        )

    def answered(self, instance: str, number: int, awaited: str, error: ErrorCode, epoch: int) -> Self:
        """An answer goes back if the instance still waits for it; an earlier one to the same request is lost then."""
        client = self.clients[instance]
        if client.awaits != awaited or client.number != number:
            return self
        others = frozenset(other for other in self.answers if other.instance != instance)
        return replace(self, answers=others | {Reply(instance=instance, error=error, epoch=epoch)})

    def answered_batch(self, request: PartitionRequest, error: ErrorCode) -> Self:
        """The answer to a batch goes back if the instance still waits for it, and not for another partition's."""
        if self.clients[request.instance].partition != request.partition:
            return self
        return self.answered(request.instance, request.number, "produce", error, NO_EPOCH)

    # --- the coordinator                                                            WHO: the coordinator ----------

    def may_take_over(self) -> bool:
        """The transaction of the instance before has ended, and so has the writing of its markers."""
        return self.is_at_rest()

    def is_fenced(self, epoch: int) -> bool:
        """An instance that has an epoch presents it, and is fenced if another one has a later epoch (KIP-360)."""
        return epoch not in {NO_EPOCH, self.transaction.epoch}

    def initialized(self) -> Transaction:
        """The record after an instance has got its epoch."""
        return replace(self.transaction, state=TransactionState.EMPTY, epoch=self.transaction.epoch + 1)

    @action("HandleInit", "Instances")
    def handle_init(self, instance: str) -> Self:
        """An instance asks for its epoch: the transaction of the one before it is ended first.

        Spec:  Transactions!HandleInit
        KIP:   KIP-98, KIP-360
        Kafka: TransactionCoordinator.handleInitProducerId
        """
        enabled(instance in self.init_requests, "no such request is on its way")
        after = replace(self, init_requests=self.init_requests - {instance})
        number = self.clients[instance].number
        if self.may_take_over() and self.is_fenced(self.clients[instance].epoch):
            return after.answered(instance, number, "init", ErrorCode.PRODUCER_FENCED, NO_EPOCH)
        if self.may_take_over():
            epoch = self.transaction.epoch + 1
            after = replace(after, transaction=self.initialized())
            return after.answered(instance, number, "init", ErrorCode.NONE, epoch)
        after = after.answered(instance, number, "init", ErrorCode.CONCURRENT_TRANSACTIONS, NO_EPOCH)
        if self.transaction.state is TransactionState.ONGOING:
            return after.decide(False, self.transaction.version, self.fencing_epoch())
        return after

    def add_error(self, epoch: int) -> ErrorCode:
        """The reason why the coordinator refuses to add a partition; ``NONE`` if it does not.

        While markers are written a transition is pending, and the coordinator checks that first.
        """
        if self.is_prepared():
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if epoch == self.transaction.epoch else ErrorCode.PRODUCER_FENCED

    def with_partition(self, partition: str, version: int) -> Transaction:
        """The record with one more partition in its transaction, which begins if it has not."""
        ongoing = self.transaction.state is TransactionState.ONGOING
        before = self.transaction.partitions if ongoing else frozenset()
        return replace(
            self.transaction, state=TransactionState.ONGOING, version=version, partitions=before | {partition}
        )

    @action("HandleAdd", "Instances", "Numbers", "Partitions")
    def handle_add(self, instance: str, number: int, partition: str) -> Self:
        """The coordinator registers a partition in the transaction, which begins if it has not.

        Spec:  Transactions!HandleAdd
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleAddPartitionsToTransaction
        """
        request = _find(self.add_requests, instance, number, partition)
        error = self.add_error(request.epoch)
        added = self.with_partition(partition, request.version) if error is ErrorCode.NONE else self.transaction
        after = replace(self, add_requests=self.add_requests - {request}, transaction=added)
        return after.answered(instance, number, "add", error, NO_EPOCH)

    def is_retry_of_end(self, version: int, epoch: int) -> bool:
        """A retry: the request asks for the decision that was made, with the epoch before the decision's bump."""
        return version == 2 and epoch + 1 == self.transaction.epoch

    def end_verdict(self, version: int, epoch: int, commit: bool) -> str:
        """The reason why the coordinator does not begin to end the transaction, or "DECIDE" if it does.

        While markers are written a transition is pending: version 2 looks at that first (KAFKA-18464), version 1 at the
        epoch.
        """
        state, fenced = self.transaction.state, epoch != self.transaction.epoch
        if version == 1:
            if fenced:
                return "PRODUCER_FENCED"
            if self.is_prepared():
                return "CONCURRENT_TRANSACTIONS"
            if state is TransactionState.ONGOING:
                return DECIDE
            return "NONE" if state is COMPLETED[commit] else "INVALID_TXN_STATE"
        if self.is_prepared():
            return "CONCURRENT_TRANSACTIONS"
        if self.is_retry_of_end(version, epoch) and state in COMPLETED.values():
            return "NONE" if self.commits() == commit else "INVALID_TXN_STATE"
        if fenced:
            return "PRODUCER_FENCED"
        return DECIDE if state is TransactionState.ONGOING or not commit else "INVALID_TXN_STATE"

    @action("HandleEnd", "Instances", "Numbers", "BOOLEAN", "BOOLEAN")
    def handle_end(self, instance: str, number: int, commit: bool, stays: bool) -> Self:
        """The coordinator is asked to end the transaction, perhaps by a request of which the network keeps a copy.

        It answers when the decision is durable.

        Spec:  Transactions!HandleEnd
        KIP:   KIP-98, KIP-890
        Kafka: TransactionCoordinator.endTransaction
        """
        wanted = (instance, number, commit)
        request = next((r for r in self.end_requests if (r.instance, r.number, r.commit) == wanted), None)
        enabled(request is not None, "no such request is on its way")
        assert request is not None
        after = self.fault("repeat request") if stays else replace(self, end_requests=self.end_requests - {request})
        verdict = self.end_verdict(request.version, request.epoch, commit)
        if verdict == DECIDE:
            epoch = self.end_epoch(request.version)
            decided = after.decide(commit, request.version, epoch)
            return decided.answered(instance, number, "end", ErrorCode.NONE, epoch)
        return after.answered(instance, number, "end", ErrorCode[verdict], self.transaction.epoch)

    def owner_is_alive(self) -> bool:
        """The instance that owns the transaction can still end it."""
        return any(
            client.epoch == self.transaction.epoch and client.state in _ALIVE for client in self.clients.values()
        )

    @action("TimeOut")
    def time_out(self) -> Self:
        """The transaction has been open for longer than its timeout: the coordinator aborts it and fences its producer.

        A timeout counts as a fault only if the producer is alive, and was merely slow.

        Spec:  Transactions!TimeOut
        KIP:   KIP-98
        Kafka: TransactionCoordinator.abortTimedOutTransactions
        """
        enabled(self.transaction.state is TransactionState.ONGOING, "no transaction is open")
        after = self.fault("timeout") if self.owner_is_alive() else self
        return after.decide(False, self.transaction.version, self.fencing_epoch())

    def marker_to(self, partition: str) -> Marker:
        """The marker that the coordinator sends to a partition."""
        return Marker(
            partition=partition,
            version=self.transaction.version,
            epoch=self.transaction.epoch,
            commit=self.commits(),
            coordinator_epoch=self.coordinator_epoch,
        )

    @action("SendMarker", "Partitions")
    def send_marker(self, partition: str) -> Self:
        """The coordinator sends a marker to a partition of the transaction.

        A marker that was refused is not sent again before the next failover, and the transaction stays prepared until
        then.

        Spec:  Transactions!SendMarker
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue
        """
        enabled(self.is_prepared() and partition in self.to_mark - self.refused, "no marker is due")
        marker = self.marker_to(partition)
        enabled(marker not in self.marker_requests, "the marker is on its way")
        return replace(self, marker_requests=self.marker_requests | {marker})

    def markers_without_leader(self, partition: str) -> frozenset[str]:  # noqa: ARG002 - Kafka's rule looks at it
        """The partitions whose marker is missing after the coordinator has found no leader of one: it asks again.

        Departs from Kafka: 4.3 takes the partition for one that was deleted, and leaves its marker out (the mutant
        NoLeaderIsDeleted).
        """
        return self.to_mark

    @action("FindNoLeader", "Partitions")
    def find_no_leader(self, partition: str) -> Self:
        """The coordinator is to send a marker to a partition that has no leader at the moment.

        Spec:  Transactions!FindNoLeader
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, MetadataCache.getPartitionLeaderEndpoint
        """
        enabled(partition in self.to_mark - self.refused, "no marker is due")
        enabled(self.marker_to(partition) not in self.marker_requests, "the marker is on its way")
        return replace(self.fault("no leader"), to_mark=self.markers_without_leader(partition))

    def may_complete(self) -> bool:
        """Every partition has its marker."""
        return not self.to_mark

    @action("CompleteTransaction")
    def complete_transaction(self) -> Self:
        """The coordinator closes the transaction.

        Spec:  Transactions!CompleteTransaction
        KIP:   KIP-98
        Kafka: TransactionMetadata.prepareComplete
        """
        enabled(self.is_prepared() and self.may_complete(), "not prepared, or markers are missing")
        record = replace(self.transaction, state=COMPLETED[self.commits()], partitions=frozenset())
        return replace(self, transaction=record)

    def partitions_to_mark(self) -> frozenset[str]:
        """The partitions to which a new coordinator has to send markers."""
        return self.transaction.partitions if self.is_prepared() else frozenset()

    def decided(self) -> Transaction:
        """The record as a new coordinator reads it."""
        return self.transaction

    @action("Failover")
    def failover(self) -> Self:
        """Another broker becomes the coordinator: it has the record, and sends a prepared transaction's markers again.

        Spec:  Transactions!Failover
        KIP:   KIP-98
        Kafka: TransactionStateManager.loadTransactionsForTxnTopicPartition
        """
        epoch = self.coordinator_epoch + 1
        enabled(epoch in self.constants.coordinator_epochs, "failovers have run out")
        return replace(
            self.fault("failover"),
            coordinator_epoch=epoch,
            to_mark=self.partitions_to_mark(),
            refused=frozenset(),
            transaction=self.decided(),
            former=self.transaction if "former coordinator" in self.constants.faults else self.former,
        )

    # --- the partitions' leaders                                                    WHO: a leader -----------------

    def is_being_handled(self, instance: str, number: int, partition: str) -> bool:
        """The leader is handling a request with this batch."""
        handled = ((r.instance, r.number, r.partition) for r in self.verifying | self.verified)
        return (instance, number, partition) in handled

    @action("StartVerification", "Instances", "Numbers", "Partitions", "BOOLEAN")
    def start_verification(self, instance: str, number: int, partition: str, stays: bool) -> Self:
        """A leader begins to ask the coordinator about a batch, perhaps in a request of which the network keeps a copy.

        Spec:  Transactions!StartVerification
        KIP:   KIP-890
        Kafka: UnifiedLog.maybeStartTransactionVerification
        """
        request = _find(self.produce_requests, instance, number, partition)
        enabled(self.needs_guard(request.version), "leaders ask nobody")
        enabled(not self.is_being_handled(instance, number, partition), "the leader is handling a copy of it")
        sent = self.produce_requests
        after = self.fault("repeat batch") if stays else replace(self, produce_requests=sent - {request})
        log = self.logs[partition]
        if self.has_passed(log, request.epoch):
            return after.answered_batch(request, ErrorCode.INVALID_PRODUCER_EPOCH)
        guarded = GuardedRequest(
            instance=instance,
            number=number,
            partition=partition,
            version=request.version,
            epoch=request.epoch,
            guard=log.guard,
        )
        logs = self.logs.set(partition, self.with_guard(log, request))
        return replace(after, verifying=self.verifying | {guarded}, logs=logs)

    def verification_error(self, version: int, epoch: int, partition: str) -> ErrorCode:
        """The reason why the coordinator does not verify a batch; ``NONE`` if it does.

        Before part 2 of KIP-890 the partition has to be registered, and the epoch is looked at first; since then the
        leader's question registers it.
        """
        if version == 2:
            return self.add_error(epoch)
        if epoch != self.transaction.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.is_prepared():
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if partition in self.transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def unverified(self, error: ErrorCode) -> ErrorCode:
        """The leader's answer to a batch that the coordinator does not verify."""
        return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error

    def after_verification(self, request: GuardedRequest) -> Transaction:
        """The record after the coordinator has verified a batch."""
        return self.with_partition(request.partition, 2) if request.version == 2 else self.transaction

    @action("Verify", "Instances", "Numbers", "Partitions")
    def verify(self, instance: str, number: int, partition: str) -> Self:
        """The coordinator answers a leader that asks about a batch.

        Spec:  Transactions!Verify
        KIP:   KIP-890
        Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction, handleAddPartitionsToTransaction
        """
        request = _find(self.verifying, instance, number, partition)
        after = replace(self, verifying=self.verifying - {request})
        error = self.verification_error(request.version, request.epoch, partition)
        if error is not ErrorCode.NONE:
            return after.answered_batch(request, self.unverified(error))
        return replace(after, verified=self.verified | {request}, transaction=self.after_verification(request))

    @action("VerifyByFormer", "Instances", "Numbers", "Partitions")
    def verify_by_former(self, instance: str, number: int, partition: str) -> Self:
        """A former coordinator answers a leader that asks about a batch.

        It finds the partition in its memory. So it writes no record, and does not learn that it was replaced.

        Spec:  Transactions!VerifyByFormer
        KIP:   KIP-890
        Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction
        """
        request = _find(self.verifying, instance, number, partition)
        former = self.former
        known = former.state is TransactionState.ONGOING and partition in former.partitions
        enabled(known and request.epoch == former.epoch, "no former coordinator knows of it")
        after = self.fault("former coordinator")
        return replace(after, verifying=self.verifying - {request}, verified=self.verified | {request})

    def is_out_of_order(self, log: TransactionalLog, request: PartitionRequest) -> bool:
        """Sequences go up within an epoch: no batch is appended after one of a later transaction."""
        known = (request.instance, request.epoch)
        return any((entry.instance, entry.epoch) == known and entry.number > request.number for entry in log.entries)

    def is_duplicate(self, log: TransactionalLog, request: PartitionRequest) -> bool:
        """The batch is stored already, with its producer's present epoch."""
        known = (request.epoch, request.number)
        return request.epoch == log.epoch and any((entry.epoch, entry.number) == known for entry in log.entries)

    def append_error(self, log: TransactionalLog, request: PartitionRequest, guard: int) -> ErrorCode:
        """The reason why a leader refuses a batch that is not stored; ``NONE`` if it does not."""
        error = self.data_error(log, request.epoch, guard)
        if error is ErrorCode.NONE and self.is_out_of_order(log, request):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return error

    def append_to(self, partition: str, request: PartitionRequest, guard: int) -> Self:
        """A batch that is stored already is acknowledged and not stored again."""
        log = self.logs[partition]
        known = self.is_duplicate(log, request)
        error = ErrorCode.NONE if known else self.append_error(log, request, guard)
        after = self
        if not known and error is ErrorCode.NONE:
            longer = self.with_data(log, request.instance, request.number, request.epoch)
            after = replace(self, logs=self.logs.set(partition, longer))
        return after.answered_batch(request, error)

    @action("AppendVerified", "Instances", "Numbers", "Partitions")
    def append_verified(self, instance: str, number: int, partition: str) -> Self:
        """A leader appends a batch that the coordinator has verified, if nothing has happened since.

        Spec:  Transactions!AppendVerified
        KIP:   KIP-98, KIP-890
        Kafka: UnifiedLog.append, ProducerAppendInfo.appendDataBatch
        """
        request = _find(self.verified, instance, number, partition)
        after = replace(self, verified=self.verified - {request})
        return after.append_to(partition, request, request.guard)

    @action("AppendUnverified", "Instances", "Numbers", "Partitions")
    def append_unverified(self, instance: str, number: int, partition: str) -> Self:
        """A leader appends a batch without asking the coordinator.

        Spec:  Transactions!AppendUnverified
        KIP:   KIP-98
        Kafka: UnifiedLog.append, ProducerAppendInfo.appendDataBatch
        """
        request = _find(self.produce_requests, instance, number, partition)
        enabled(not self.needs_guard(request.version), "leaders ask the coordinator")
        after = replace(self, produce_requests=self.produce_requests - {request})
        return after.append_to(partition, request, 0)

    def marker_error(self, log: TransactionalLog, marker: Marker) -> ErrorCode:
        """The reason why a leader refuses a marker; ``NONE`` if it does not.

        Under version 2 a marker's epoch is above its data's, or the same when it has been written already. The
        exception for the last epoch is in ``TransactionalPartition``: epochs do not run out here.

        Kafka: ProducerAppendInfo.appendEndTxnMarker
        """
        if marker.epoch < log.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.version == 2 and marker.epoch == log.epoch and log.open:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if log.coordinator_epoch > marker.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def awaits(self, marker: Marker) -> bool:
        """The coordinator still waits for the answer to a marker."""
        return self.is_prepared() and self.marker_to(marker.partition) == marker

    def acknowledged(self, marker: Marker) -> frozenset[str]:
        """The coordinator learns that a partition has its marker, if it still waits for that."""
        return self.to_mark - {marker.partition} if self.awaits(marker) else self.to_mark

    def _on_its_way(self, partition: str, version: int, epoch: int, commit: bool, number: int) -> Marker:
        marker = Marker(partition=partition, version=version, epoch=epoch, commit=commit, coordinator_epoch=number)
        enabled(marker in self.marker_requests, "no such marker is on its way")
        return marker

    @action("HandleMarker", "Partitions", "Versions", "Epochs", "BOOLEAN", "CoordinatorEpochs")
    def handle_marker(self, partition: str, version: int, epoch: int, commit: bool, number: int) -> Self:
        """A leader writes a marker and tells the coordinator, or refuses it.

        Spec:  Transactions!HandleMarker
        KIP:   KIP-98, KIP-890, KIP-1228
        Kafka: ProducerAppendInfo.appendEndTxnMarker
        """
        marker = self._on_its_way(partition, version, epoch, commit, number)
        after = replace(self, marker_requests=self.marker_requests - {marker})
        log = self.logs[partition]
        if self.marker_error(log, marker) is not ErrorCode.NONE:
            return replace(after, refused=self.refused | {partition}) if self.awaits(marker) else after
        logs = self.logs.set(partition, self.with_marker(log, marker))
        return replace(after, logs=logs, to_mark=self.acknowledged(marker))

    @action("RepeatMarker", "Partitions", "Versions", "Epochs", "BOOLEAN", "CoordinatorEpochs", "BOOLEAN")
    def repeat_marker(
        self, partition: str, version: int, epoch: int, commit: bool, number: int, acknowledged: bool
    ) -> Self:
        """The network delivers a marker and keeps a copy; the acknowledgement may be lost.

        Spec:  Transactions!RepeatMarker
        KIP:   KIP-98, KIP-1228
        Kafka: ProducerAppendInfo.appendEndTxnMarker
        """
        marker = self._on_its_way(partition, version, epoch, commit, number)
        log = self.logs[partition]
        error = self.marker_error(log, marker)
        enabled(error is ErrorCode.NONE, error.name)
        return replace(
            self.fault("repeat marker"),
            logs=self.logs.set(partition, self.with_marker(log, marker)),
            to_mark=self.acknowledged(marker) if acknowledged else self.to_mark,
        )

    @action("AbortByAdmin", "Partitions")
    def abort_by_admin(self, partition: str) -> Self:
        """An operator aborts the open transaction of a partition by hand, without the coordinator (KIP-664).

        Spec:  Transactions!AbortByAdmin
        KIP:   KIP-664
        Kafka: KafkaAdminClient.abortTransaction
        """
        log = self.logs[partition]
        enabled(log.open, "nothing is open")
        marker = Marker(
            partition=partition, version=0, epoch=log.epoch, commit=False, coordinator_epoch=log.coordinator_epoch
        )
        return replace(self.fault("admin abort"), logs=self.logs.set(partition, self.with_marker(log, marker)))

    def markers_after_election(self, partition: str) -> frozenset[str]:  # noqa: ARG002 - the mutant looks at it
        """The markers that are missing when a partition's leader changes.

        Markers in flight to the old leader fail and are sent again.
        """
        return self.to_mark

    @action("ElectLeader", "Partitions")
    def elect_leader(self, partition: str) -> Self:
        """Another broker becomes the leader of a partition.

        It has the log, but no guards; requests in flight to the old leader fail.

        Spec:  Transactions!ElectLeader
        KIP:   KIP-98, KIP-890
        Kafka: Partition.makeLeader, TransactionMarkerRequestCompletionHandler
        """
        after = self.fault("election")
        log = self.logs[partition]
        fresh = replace(log, guard=log.guard + 1, guard_epoch=NO_EPOCH, guard_version=0)
        sent = {r for r in self.produce_requests | self.verifying | self.verified if r.partition == partition}
        returned = {marker for marker in self.marker_requests if marker.partition == partition}
        waiting = {
            request.instance
            for request in sent
            if (self.clients[request.instance].awaits, self.clients[request.instance].number)
            == ("produce", request.number)
        }
        return replace(
            after,
            logs=self.logs.set(partition, fresh),
            produce_requests=self.produce_requests - sent,
            verifying=self.verifying - sent,
            verified=self.verified - sent,
            marker_requests=self.marker_requests - returned,
            to_mark=self.markers_after_election(partition) if returned else self.to_mark,
            answers=frozenset(answer for answer in self.answers if answer.instance not in waiting)
            | {
                Reply(instance=instance, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=NO_EPOCH) for instance in waiting
            },
        )


def _find(requests: frozenset[_Request], instance: str, number: int, partition: str) -> _Request:
    """The request of an instance's transaction for a partition.

    Raises:
        NotEnabled: when no such request is there.
    """
    wanted = (instance, number, partition)
    found = next((r for r in requests if (r.instance, r.number, r.partition) == wanted), None)
    enabled(found is not None, "no such request is on its way")
    assert found is not None
    return found
