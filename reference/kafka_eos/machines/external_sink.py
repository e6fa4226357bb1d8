"""A consumer that makes each input of a topic into an effect outside of Kafka: a row, a message, a payment, a mail.

Spec:  ExternalSink.tla
KIPs:  98, 618
Kafka: KafkaConsumer.commitSync, and applications

=============  =============  ==============================================================================
spec variable  field          Kafka, or the application
=============  =============  ==============================================================================
arrived        ``arrived``    log end offset of the input partition
position       ``position``   KafkaConsumer.position
stage          ``stage``      where the consumer is in its loop
committed      ``committed``  the group's committed offset, or the one that the database holds
effects        ``effects``    the rows, messages, payments or mails that exist
outbox         ``outbox``     a table next to the application's own
relayed        ``relayed``    the position of a source connector, in memory
noted          ``noted``      its offset in the offsets topic
faults         ``faults``     crashes, lost calls, lost answers
=============  =============  ==============================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

STRATEGIES = (
    "update before commit",
    "update after commit",
    "offsets in the database",
    "outbox",
    "idempotent sink",
    "side effect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of ExternalSink.tla.

    Attributes:
        inputs: 1..n.
        strategy: one of :data:`STRATEGIES`.
        max_faults: the maximum number of crashes and lost calls and answers.
    """

    inputs: frozenset[int]
    strategy: str
    max_faults: int

    def domain(self, name: str) -> Iterable[int]:
        """The constant set ``name``, in order."""
        assert name == "Inputs", name
        return sorted(self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSink:
    """A state of ExternalSink.tla."""

    MODULE: ClassVar[str] = "ExternalSink"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "arrived",
        "position",
        "stage",
        "committed",
        "effects",
        "outbox",
        "relayed",
        "noted",
        "faults",
    )

    constants: Constants = field(compare=False)
    arrived: int = 0
    position: int = 1
    stage: str = "nothing"
    committed: int = 1
    effects: tuple[int, ...] = ()
    outbox: tuple[int, ...] = ()
    relayed: int = 0
    noted: int = 0
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: no input, no effect."""
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def commits_first(self) -> bool:
        """The offset is committed before anything happens."""
        return self.constants.strategy == "update after commit"

    def is_one_transaction(self) -> bool:
        """Update and offset are in one transaction of the database."""
        return self.constants.strategy in {"offsets in the database", "outbox"}

    def is_known(self, value: int) -> bool:
        """The sink finds by its key that it has an input already."""
        return self.constants.strategy == "idempotent sink" and value in self.effects

    def effects_after(self, value: int) -> tuple[int, ...]:
        """The effects outside of Kafka once the consumer has made its update."""
        if self.constants.strategy == "outbox" or self.is_known(value):
            return self.effects
        return (*self.effects, value)

    def outbox_after(self, value: int) -> tuple[int, ...]:
        """The rows of the outbox once the consumer has made its update."""
        return (*self.outbox, value) if self.constants.strategy == "outbox" else self.outbox

    def noted_after(self, rows: int) -> int:
        """The rows that a starting relay finds noted: one transaction publishes a row and notes it."""
        return rows

    def _takes_input(self) -> None:
        enabled(self.position <= self.arrived, "there is no input")

    def _is_at(self, stage: str) -> None:
        enabled(self.stage == stage, f"the consumer is not at {stage}")

    def _fault(self) -> int:
        enabled(self.faults < self.constants.max_faults, "faults have run out")
        return self.faults + 1

    # --- the inputs                                                                 WHO: whoever writes it --------

    @action("Arrive")
    def arrive(self) -> Self:
        """The topic gets its next input.

        Spec:  ExternalSink!Arrive
        Kafka: KafkaProducer.send
        """
        enabled(self.arrived + 1 in self.constants.inputs, "inputs have run out")
        return replace(self, arrived=self.arrived + 1)

    # --- the consumer                                                               WHO: the consumer -------------

    @action("Update")
    def update(self) -> Self:
        """The consumer makes its update, without the offset.

        Spec:  ExternalSink!Update
        """
        self._takes_input()
        enabled(not self.is_one_transaction(), "the update is in one transaction with the offset")
        first = self.commits_first()
        self._is_at("committed" if first else "nothing")
        effects, outbox = self.effects_after(self.position), self.outbox_after(self.position)
        return replace(self, stage="done" if first else "updated", effects=effects, outbox=outbox)

    @action("CommitOffset")
    def commit_offset(self) -> Self:
        """The consumer commits the offset, without the update.

        Spec:  ExternalSink!CommitOffset
        Kafka: KafkaConsumer.commitSync
        """
        self._takes_input()
        first = self.commits_first()
        self._is_at("nothing" if first else "updated")
        return replace(self, stage="committed" if first else "done", committed=self.position + 1)

    @action("UpdateWithOffset")
    def update_with_offset(self) -> Self:
        """The consumer makes its update and stores the offset in one transaction of the database.

        Spec:  ExternalSink!UpdateWithOffset
        """
        self._takes_input()
        enabled(self.is_one_transaction(), "update and offset are apart")
        self._is_at("nothing")
        effects, outbox = self.effects_after(self.position), self.outbox_after(self.position)
        return replace(self, stage="done", effects=effects, outbox=outbox, committed=self.position + 1)

    @action("GoOn")
    def go_on(self) -> Self:
        """The consumer goes on to the next input.

        Spec:  ExternalSink!GoOn
        Kafka: KafkaConsumer.poll
        """
        self._is_at("done")
        return replace(self, stage="nothing", position=self.position + 1)

    @action("Crash")
    def crash(self) -> Self:
        """The consumer crashes.

        Spec:  ExternalSink!Crash
        """
        enabled(self.stage != "down", "it is down")
        return replace(self, stage="down", faults=self._fault())

    @action("Restart")
    def restart(self) -> Self:
        """The consumer starts again, at the offset that is stored.

        Spec:  ExternalSink!Restart
        Kafka: KafkaConsumer.committed, or KafkaConsumer.seek with the database's offset
        """
        self._is_at("down")
        return replace(self, stage="nothing", position=self.committed)

    # --- a service that takes nothing back and knows no keys                        WHO: the service --------------

    def _call_fails(self) -> Self:
        self._takes_input()
        enabled(self.constants.strategy == "side effect", "no service is called")
        self._is_at("nothing")
        return replace(self, stage="unknown", faults=self._fault())

    @action("LoseAnswer")
    def lose_answer(self) -> Self:
        """The service does what it is asked, and its answer is lost.

        Spec:  ExternalSink!LoseAnswer
        """
        return replace(self._call_fails(), effects=self.effects_after(self.position))

    @action("LoseCall")
    def lose_call(self) -> Self:
        """The call is lost; the consumer cannot tell this from a lost answer.

        Spec:  ExternalSink!LoseCall
        """
        return self._call_fails()

    @action("CallAgain")
    def call_again(self) -> Self:
        """The consumer, without an answer, is to call again.

        Spec:  ExternalSink!CallAgain
        """
        self._is_at("unknown")
        return replace(self, stage="nothing")

    @action("GiveUp")
    def give_up(self) -> Self:
        """The consumer, without an answer, assumes that the service has done what it was asked.

        Spec:  ExternalSink!GiveUp
        """
        self._is_at("unknown")
        return replace(self, stage="updated")

    # --- the relay                                                                  WHO: the relay ----------------

    @action("Publish")
    def publish(self) -> Self:
        """The relay publishes the next row of the outbox.

        Spec:  ExternalSink!Publish
        KIP:   KIP-618
        """
        enabled(self.relayed < len(self.outbox), "no row is left")
        effects, relayed = (*self.effects, self.outbox[self.relayed]), self.relayed + 1
        return replace(self, effects=effects, relayed=relayed, noted=self.noted_after(relayed))

    @action("RemoveRow")
    def remove_row(self) -> Self:
        """The relay takes a row that it has published out of the outbox.

        Spec:  ExternalSink!RemoveRow
        """
        enabled(self.relayed > 0, "no published row is left")
        relayed = self.relayed - 1
        return replace(self, outbox=self.outbox[1:], relayed=relayed, noted=self.noted_after(relayed))

    @action("RestartRelay")
    def restart_relay(self) -> Self:
        """The relay crashes and starts again after the last row that is noted.

        Spec:  ExternalSink!RestartRelay
        KIP:   KIP-618
        """
        enabled(self.constants.strategy == "outbox", "there is no relay")
        return replace(self, relayed=self.noted, faults=self._fault())
