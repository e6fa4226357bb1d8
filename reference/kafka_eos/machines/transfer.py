"""Money is moved from Alice to Bob: a debit, a credit and an offset in three partitions, in one transaction or in none.

Spec:  Transfer.tla
KIPs:  98
Kafka: KafkaProducer.sendOffsetsToTransaction, TransactionMarkerChannelManager

=============  ===============  =====================================================================================
spec variable  field            Kafka
=============  ===============  =====================================================================================
logs           ``logs``         the partitions of Alice's and of Bob's account, and the group's of __consumer_offsets
transaction    ``transaction``  TransactionMetadata: state, topicPartitions
owner          ``owner``        whoever has the newest epoch of the transactional.id
processes      ``processes``    the processes of the application
faults         ``faults``       none: bounds what may go wrong
=============  ===============  =====================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

ALICE, BOB, OFFSETS = "p0", "p1", "p7"
NONE, OPEN, COMMIT, ABORT = "none", "open", "commit", "abort"
PLAIN, DATA = "plain", "data"
DOWN, FETCH, DEBIT, CREDIT, SEND_OFFSET = "down", "fetch", "debit", "credit", "send offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of Transfer.tla.

    Attributes:
        partitions: "p0", Alice's account, "p1", Bob's, and "p7", the group's offsets.
        transfers: 1..n, in the order of the topic.
        instances: processes of the application.
        transactional: whether the application uses transactions.
        max_faults: the maximum number of crashes, aborts and instances taken for dead.
    """

    partitions: frozenset[str]
    transfers: frozenset[int]
    instances: frozenset[str]
    transactional: bool
    max_faults: int

    def domain(self, name: str) -> Iterable[str]:
        """The constant set ``name``, in order."""
        return sorted({"Partitions": self.partitions, "Instances": self.instances}[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a log: "plain", "data", "commit" or "abort", and its transfer, or how many are done."""

    kind: str
    transfer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyTransaction:
    """The transaction: its state, and the partitions that are registered and have no marker yet."""

    state: str = NONE
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A process: what it is about to do, and the transfer that it is at."""

    stage: str = DOWN
    transfer: int = 0


Log = tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A state of Transfer.tla."""

    MODULE: ClassVar[str] = "Transfer"
    VARIABLES: ClassVar[tuple[str, ...]] = ("logs", "transaction", "owner", "processes", "faults")

    constants: Constants = field(compare=False)
    logs: Map[str, Log]
    transaction: MoneyTransaction = MoneyTransaction()
    owner: str | None = None
    processes: Map[str, Instance]
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: empty logs, every instance down."""
        nothing: Log = ()
        return cls(
            constants=constants,
            logs=Map(dict.fromkeys(constants.partitions, nothing)),
            processes=Map(dict.fromkeys(constants.instances, Instance())),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- rules ------------------------------------------------------------------------------------------------------

    def may_write(self, instance: str) -> bool:
        """The leaders take what an instance writes; with transactions, only what the newest instance writes."""
        return not self.constants.transactional or self.owner == instance

    def aborts_open(self) -> bool:
        """InitProducerId aborts the transaction that it finds open."""
        return self.transaction.state == OPEN

    def offset_in_transaction(self) -> bool:
        """The offset is written in the transaction."""
        return self.constants.transactional

    def marker_behind(self, log: Log, place: int) -> str:
        """The kind of the first marker after a place of a log; ``none`` if there is none."""
        return next((entry.kind for entry in log[place + 1 :] if entry.kind in {COMMIT, ABORT}), NONE)

    def found(self, log: Log, undecided: str) -> list[Entry]:
        """The places of a log that a read_committed reader gets, if an unmarked transaction is decided like this."""
        given = []
        for place, entry in enumerate(log):
            marker = self.marker_behind(log, place)
            decision = undecided if marker == NONE else marker
            if entry.kind == PLAIN or (entry.kind == DATA and decision == COMMIT):
                given.append(entry)
        return given

    def count(self, log: Log, undecided: str, transfer: int) -> int:
        """How often a reader finds a transfer in an account."""
        return sum(entry.transfer == transfer for entry in self.found(log, undecided))

    def offset_in(self, log: Log, undecided: str) -> int:
        """The committed offset: the number of transfers that are done."""
        found = self.found(log, undecided)
        return found[-1].transfer if found else 0

    def is_unstable(self) -> bool:
        """No offset is returned while one waits for its marker."""
        log = self.logs[OFFSETS]
        return any(entry.kind == DATA and self.marker_behind(log, place) == NONE for place, entry in enumerate(log))

    def _fault(self) -> int:
        """The number of faults after one more."""
        enabled(self.faults < self.constants.max_faults, "no more faults")
        return self.faults + 1

    def at(self, instance: str, stage: str, transfer: int) -> Map[str, Instance]:
        """The processes, with an instance about to do something."""
        return self.processes.set(instance, Instance(stage=stage, transfer=transfer))

    def write(self, instance: str, partition: str, in_transaction: bool, stage: str) -> Self:
        """A partition's log and the transaction after an instance's write."""
        enabled(self.may_write(instance), "fenced")
        enabled(self.transaction.state in {NONE, OPEN}, "the transaction before is not over")
        transfer = self.processes[instance].transfer
        entry = Entry(kind=DATA if in_transaction else PLAIN, transfer=transfer)
        registered = MoneyTransaction(state=OPEN, partitions=self.transaction.partitions | {partition})
        return replace(
            self,
            logs=self.logs.set(partition, (*self.logs[partition], entry)),
            transaction=registered if in_transaction else self.transaction,
            processes=self.at(instance, stage, transfer),
        )

    def _about_to(self, instance: str, *stages: str) -> None:
        enabled(self.processes[instance].stage in stages, "it is about to do something else")

    # --- the instances                                                              WHO: the application ----------

    @action("Initialize", "Instances")
    def initialize(self, instance: str) -> Self:
        """An instance starts and fences the one before, which may still live and whose open transaction is aborted.

        Spec:  Transfer!Initialize
        KIP:   KIP-98
        Kafka: KafkaProducer.initTransactions
        """
        self._about_to(instance, DOWN)
        enabled(self.transaction.state in {NONE, OPEN}, "the transaction before is not over")
        lives = self.owner is not None and self.processes[self.owner].stage != DOWN
        state = ABORT if self.aborts_open() else self.transaction.state
        return replace(
            self,
            faults=self._fault() if lives else self.faults,
            owner=instance,
            transaction=replace(self.transaction, state=state),
            processes=self.at(instance, FETCH, 0),
        )

    @action("Fetch", "Instances")
    def fetch(self, instance: str) -> Self:
        """An instance fetches the offset, and with it the next transfer.

        Spec:  Transfer!Fetch
        KIP:   KIP-447
        Kafka: KafkaConsumer.poll
        """
        self._about_to(instance, FETCH)
        enabled(not self.is_unstable(), "an offset waits for its marker")
        following = self.offset_in(self.logs[OFFSETS], NONE) + 1
        enabled(following in self.constants.transfers, "every transfer is made")
        return replace(self, processes=self.at(instance, DEBIT, following))

    @action("Debit", "Instances")
    def debit(self, instance: str) -> Self:
        """An instance debits Alice's account.

        Spec:  Transfer!Debit
        KIP:   KIP-98
        Kafka: KafkaProducer.send
        """
        self._about_to(instance, DEBIT)
        return self.write(instance, ALICE, self.constants.transactional, CREDIT)

    @action("Credit", "Instances")
    def credit(self, instance: str) -> Self:
        """An instance credits Bob's account.

        Spec:  Transfer!Credit
        KIP:   KIP-98
        Kafka: KafkaProducer.send
        """
        self._about_to(instance, CREDIT)
        return self.write(instance, BOB, self.constants.transactional, SEND_OFFSET)

    @action("SendOffset", "Instances")
    def send_offset(self, instance: str) -> Self:
        """An instance sends the offset after the transfer.

        Spec:  Transfer!SendOffset
        KIP:   KIP-98
        Kafka: KafkaProducer.sendOffsetsToTransaction, KafkaConsumer.commitSync
        """
        self._about_to(instance, SEND_OFFSET)
        return self.write(
            instance, OFFSETS, self.offset_in_transaction(), COMMIT if self.constants.transactional else FETCH
        )

    @action("Commit", "Instances")
    def commit(self, instance: str) -> Self:
        """An instance commits its transaction.

        Spec:  Transfer!Commit
        KIP:   KIP-98
        Kafka: KafkaProducer.commitTransaction
        """
        self._about_to(instance, COMMIT)
        enabled(self.may_write(instance), "fenced")
        transaction = replace(self.transaction, state=COMMIT)
        return replace(self, transaction=transaction, processes=self.at(instance, FETCH, 0))

    @action("Abort", "Instances")
    def abort(self, instance: str) -> Self:
        """An instance aborts its transaction after a failure, and seeks back to the committed offset.

        Spec:  Transfer!Abort
        KIP:   KIP-98
        Kafka: KafkaProducer.abortTransaction, KafkaConsumer.seek
        """
        self._about_to(instance, CREDIT, SEND_OFFSET, COMMIT)
        enabled(self.constants.transactional and self.may_write(instance), "no transaction, or fenced")
        return replace(
            self,
            faults=self._fault(),
            transaction=replace(self.transaction, state=ABORT),
            processes=self.at(instance, FETCH, 0),
        )

    @action("LearnFencing", "Instances")
    def learn_fencing(self, instance: str) -> Self:
        """An instance learns that it is fenced, and ends.

        Spec:  Transfer!LearnFencing
        KIP:   KIP-98
        Kafka: ProducerFencedException
        """
        enabled(self.processes[instance].stage != DOWN, "it is down")
        enabled(not self.may_write(instance), "not fenced")
        return replace(self, processes=self.at(instance, DOWN, 0))

    @action("Crash", "Instances")
    def crash(self, instance: str) -> Self:
        """An instance crashes.

        Spec:  Transfer!Crash
        KIP:   KIP-98
        Kafka: none
        """
        enabled(self.processes[instance].stage != DOWN, "it is down")
        return replace(self, faults=self._fault(), processes=self.at(instance, DOWN, 0))

    # --- the coordinator                                                            WHO: the coordinator ----------

    @action("WriteMarker", "Partitions")
    def write_marker(self, partition: str) -> Self:
        """The coordinator writes the transaction's marker to one of its partitions.

        Spec:  Transfer!WriteMarker
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager
        """
        state, partitions = self.transaction.state, self.transaction.partitions
        enabled(state in {COMMIT, ABORT} and partition in partitions, "undecided, or it has its marker")
        rest = partitions - {partition}
        return replace(
            self,
            logs=self.logs.set(partition, (*self.logs[partition], Entry(kind=state))),
            transaction=MoneyTransaction(state=state if rest else NONE, partitions=rest),
        )
