"""The loop of an application as people write it: poll, transform, send, commit, and catch blocks around them.

Spec:  ApplicationLoop.tla
KIPs:  98, 447, 691
Kafka: KafkaProducer, KafkaConsumer

=============  ===============  ==============================================================================
spec variable  field            Kafka, or the application
=============  ===============  ==============================================================================
arrived        ``arrived``      log end offset of the input partition
position       ``position``     KafkaConsumer.position
committed      ``committed``    the group's committed offset
outputs        ``outputs``      the output partition, read_committed
transaction    ``transaction``  TransactionMetadata.state
application    ``application``  where the loop is
reported       ``reported``     what the application has logged or answered
faults         ``faults``       crashes, failed sends, timeouts, lost answers
=============  ===============  ==============================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

TRANSACTIONS, BEFORE, AFTER = "transactions", "commit before processing", "commit after processing"
LOOPS = (TRANSACTIONS, BEFORE, AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of ApplicationLoop.tla.

    Attributes:
        inputs: 1..n.
        loop: one of :data:`LOOPS`.
        max_faults: the maximum number of crashes, errors, timeouts and lost answers.
    """

    inputs: frozenset[int]
    loop: str
    max_faults: int

    def domain(self, name: str) -> Iterable[int]:
        """The constant set ``name``, in order."""
        assert name == "Inputs", name
        return sorted(self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTransaction:
    """A transaction: its state as the coordinator has it, and its input."""

    state: str = "none"
    input: int = 0

    @property
    def is_undecided(self) -> bool:
        """Whether the transaction is not decided yet."""
        return self.state in {"open", "asked"}

    @property
    def aborted(self) -> Self:
        """The transaction once it is aborted; a decision stays."""
        return replace(self, state="abort") if self.is_undecided else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The state of the loop: its stage, the input at hand (0: none), and the error before it.

    Attributes:
        stage: "polling", "handling", "committed", "written", "committing", "failed" or "down".
        input: the input.
        error: the error, or None.
    """

    stage: str
    input: int = 0
    error: str | None = None


POLLING = Application(stage="polling")
DOWN = Application(stage="down")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationLoop:
    """A state of ApplicationLoop.tla."""

    MODULE: ClassVar[str] = "ApplicationLoop"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "arrived",
        "position",
        "committed",
        "outputs",
        "transaction",
        "application",
        "reported",
        "faults",
    )

    constants: Constants = field(compare=False)
    arrived: int = 0
    position: int = 1
    committed: int = 1
    outputs: tuple[int, ...] = ()
    transaction: LoopTransaction = LoopTransaction()
    application: Application = POLLING
    reported: Map[int, str]
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: no input, nothing said of any."""
        return cls(constants=constants, reported=Map(dict.fromkeys(constants.inputs, "none")))

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def reaction(self, error: str | None) -> str:
        """The application's reaction to an error.

        Only another commit can tell how a commit of unknown outcome has ended.
        """
        if error == "unknown outcome":
            return "retry"
        if error == "fenced":
            return "close"
        return "abort"

    def is_told(self) -> bool:
        """The application has been told that its transaction is committed."""
        return self.transaction.state == "commit"

    def position_after_abort(self) -> int:
        """The position after an abort: the application has to seek to the committed offset."""
        return self.committed

    def after_initialization(self) -> LoopTransaction:
        """The last transaction after the application has initialized its producer again."""
        return self.transaction.aborted

    def _is_at(self, stage: str) -> int:
        enabled(self.application.stage == stage, f"the application is not {stage}")
        return self.application.input

    def _fault(self) -> int:
        enabled(self.faults < self.constants.max_faults, "faults have run out")
        return self.faults + 1

    def _reacts(self, wanted: str) -> int:
        here = self._is_at("failed")
        enabled(self.reaction(self.application.error) == wanted, f"it does not {wanted} after this error")
        return here

    # --- the inputs                                                                 WHO: whoever writes it --------

    @action("Arrive")
    def arrive(self) -> Self:
        """The topic gets its next input.

        Spec:  ApplicationLoop!Arrive
        Kafka: KafkaProducer.send
        """
        enabled(self.arrived + 1 in self.constants.inputs, "inputs have run out")
        return replace(self, arrived=self.arrived + 1)

    # --- every loop                                                                 WHO: the application ----------

    @action("Poll")
    def poll(self) -> Self:
        """The application polls its next input.

        Spec:  ApplicationLoop!Poll
        Kafka: KafkaConsumer.poll
        """
        self._is_at("polling")
        enabled(self.position <= self.arrived, "there is no input")
        return replace(
            self,
            application=Application(stage="handling", input=self.position),
            reported=self.reported.set(self.position, "none"),
            position=self.position + 1,
        )

    @action("Crash")
    def crash(self) -> Self:
        """The application crashes.

        Spec:  ApplicationLoop!Crash
        """
        enabled(self.application != DOWN, "it is down")
        return replace(self, application=DOWN, faults=self._fault())

    @action("Restart")
    def restart(self) -> Self:
        """The application starts, initializes its producer, and begins at the committed offset.

        Spec:  ApplicationLoop!Restart
        KIP:   KIP-98, KIP-447
        Kafka: KafkaProducer.initTransactions, KafkaConsumer.committed
        """
        self._is_at("down")
        return replace(self, application=POLLING, transaction=self.after_initialization(), position=self.committed)

    # --- the loop without transactions                                              WHO: the application ----------

    @action("Process")
    def process(self) -> Self:
        """The application processes its input and sends the output, in no transaction.

        Spec:  ApplicationLoop!Process
        Kafka: KafkaProducer.send
        """
        here = self.application.input
        last = self.application.stage == "committed"
        enabled(
            last or (self.constants.loop, self.application.stage) == (AFTER, "handling"), "it has no input to process"
        )
        after = POLLING if last else Application(stage="written", input=here)
        return replace(self, outputs=(*self.outputs, here), application=after)

    @action("CommitOffset")
    def commit_offset(self) -> Self:
        """The application commits the offset after its input, in no transaction.

        Spec:  ApplicationLoop!CommitOffset
        Kafka: KafkaConsumer.commitSync
        """
        here = self.application.input
        place = self.constants.loop, self.application.stage
        enabled(place in {(AFTER, "written"), (BEFORE, "handling")}, "it has no offset to commit")
        after = POLLING if place == (AFTER, "written") else Application(stage="committed", input=here)
        return replace(self, committed=here + 1, reported=self.reported.set(here, "committed"), application=after)

    # --- the loop with transactions                                                 WHO: the application ----------

    def _begins(self) -> tuple[int, LoopTransaction]:
        enabled(self.constants.loop == TRANSACTIONS, "the loop has no transactions")
        here = self._is_at("handling")
        enabled(not self.transaction.is_undecided, "the last transaction is undecided")
        return here, LoopTransaction(state="open", input=here)

    @action("Send")
    def send(self) -> Self:
        """The application begins a transaction and sends the output and the offset into it.

        Spec:  ApplicationLoop!Send
        KIP:   KIP-98
        Kafka: KafkaProducer.beginTransaction, send, sendOffsetsToTransaction
        """
        here, begun = self._begins()
        return replace(self, transaction=begun, application=Application(stage="written", input=here))

    @action("FailSend")
    def fail_send(self) -> Self:
        """The application begins a transaction, and a send fails.

        Spec:  ApplicationLoop!FailSend
        KIP:   KIP-691
        Kafka: KafkaException
        """
        here, begun = self._begins()
        failed = Application(stage="failed", input=here, error="abortable")
        return replace(self, transaction=begun, application=failed, faults=self._fault())

    @action("AskToCommit")
    def ask_to_commit(self) -> Self:
        """The application asks to commit its transaction.

        Spec:  ApplicationLoop!AskToCommit
        KIP:   KIP-98
        Kafka: KafkaProducer.commitTransaction
        """
        enabled(self.constants.loop == TRANSACTIONS, "the loop has no transactions")
        here = self._is_at("written")
        asked = replace(self.transaction, state="asked") if self.transaction.state == "open" else self.transaction
        return replace(self, transaction=asked, application=Application(stage="committing", input=here))

    @action("LearnCommit")
    def learn_commit(self) -> Self:
        """The application learns that its transaction is committed, and goes on.

        Spec:  ApplicationLoop!LearnCommit
        KIP:   KIP-98
        Kafka: KafkaProducer.commitTransaction
        """
        here = self._is_at("committing")
        enabled(self.is_told(), "nobody has told it")
        return replace(self, application=POLLING, reported=self.reported.set(here, "committed"))

    @action("LoseAnswer")
    def lose_answer(self) -> Self:
        """The application waits for the answer to its commit in vain.

        Spec:  ApplicationLoop!LoseAnswer
        KIP:   KIP-691
        Kafka: TimeoutException of KafkaProducer.commitTransaction
        """
        here = self._is_at("committing")
        failed = Application(stage="failed", input=here, error="unknown outcome")
        return replace(self, application=failed, faults=self._fault())

    @action("LearnFencing")
    def learn_fencing(self) -> Self:
        """The application learns that its transaction has timed out: it is fenced.

        Spec:  ApplicationLoop!LearnFencing
        KIP:   KIP-98
        Kafka: ProducerFencedException
        """
        here = self._is_at("committing")
        enabled(self.transaction.state == "abort", "nobody has fenced it")
        return replace(self, application=Application(stage="failed", input=here, error="fenced"))

    @action("RetryCommit")
    def retry_commit(self) -> Self:
        """The application commits once more.

        Spec:  ApplicationLoop!RetryCommit
        Kafka: KafkaProducer.commitTransaction
        """
        here = self._reacts("retry")
        return replace(self, application=Application(stage="committing", input=here))

    @action("Abort")
    def abort(self) -> Self:
        """The application aborts, takes any answer for an abort, and goes on.

        Spec:  ApplicationLoop!Abort
        KIP:   KIP-98
        Kafka: KafkaProducer.abortTransaction, KafkaConsumer.seek
        """
        here = self._reacts("abort")
        return replace(
            self,
            transaction=self.transaction.aborted,
            reported=self.reported.set(here, "aborted"),
            position=self.position_after_abort(),
            application=POLLING,
        )

    @action("Close")
    def close(self) -> Self:
        """The application closes its producer and ends.

        Spec:  ApplicationLoop!Close
        Kafka: KafkaProducer.close
        """
        self._reacts("close")
        return replace(self, application=DOWN)

    # --- the coordinator                                                            WHO: the coordinator ----------

    @action("CommitTransaction")
    def commit_transaction(self) -> Self:
        """The coordinator commits the transaction: readers find the output, and the group its offset.

        Spec:  ApplicationLoop!CommitTransaction
        KIP:   KIP-98
        Kafka: TransactionCoordinator.endTransaction
        """
        enabled(self.transaction.state == "asked", "nobody has asked for it")
        here = self.transaction.input
        committed = replace(self.transaction, state="commit")
        return replace(self, transaction=committed, outputs=(*self.outputs, here), committed=here + 1)

    @action("TimeOut")
    def time_out(self) -> Self:
        """The coordinator aborts a transaction that has been open for too long.

        Spec:  ApplicationLoop!TimeOut
        KIP:   KIP-98
        Kafka: TransactionCoordinator.abortTimedOutTransactions
        """
        enabled(self.transaction.is_undecided, "no transaction is open")
        return replace(self, transaction=self.transaction.aborted, faults=self._fault())
