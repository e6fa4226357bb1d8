"""``kafka-eos simulate payment``: an input is a charge outside of Kafka, and the application fails at a step or at two.

If the charge has a key, or is written with the offset, every schedule has to be right. If it has neither, one has to
be wrong: somebody is charged twice, or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.external_sink import STRATEGIES, Constants, ExternalSink
from kafka_eos_checks.simulate.schedules import Fault, Scenario, shortened, with_mutant

CONSUMER, RELAY = "the application", "the relay"
CRASH, LOST_ANSWER, LOST_CALL = "crashes", "waits in vain for the answer to a charge", "makes a charge that gets lost"
WORK = ("Update", "CommitOffset", "UpdateWithOffset", "GoOn", "Publish", "RemoveRow")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "without an answer it charges again": ("Arrive", *WORK, "CallAgain"),
    "without an answer it goes on": ("Arrive", *WORK, "GiveUp"),
}
RIGHT = frozenset({"offsets in the database", "outbox", "idempotent sink"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment(Scenario):
    """An application that charges."""

    def fail(self, state: ExternalSink, fault: Fault) -> ExternalSink:
        """The state after a fault."""
        acts = {
            (CRASH, CONSUMER): state.crash,
            (CRASH, RELAY): state.restart_relay,
            (LOST_ANSWER, CONSUMER): state.lose_answer,
            (LOST_CALL, CONSUMER): state.lose_call,
        }
        if (fault.kind, fault.actor) not in acts:
            raise NotEnabled("only the application charges")
        return acts[fault.kind, fault.actor]()

    def recover(self, state: ExternalSink) -> tuple[str, ExternalSink] | None:
        """The application starts again when it is down."""
        return ("Restart", state.restart()) if state.stage == "down" else None

    def wrong_end(self, state: ExternalSink) -> str:
        """The inputs that are not charged exactly once, or ""."""
        charged = {value: state.effects.count(value) for value in sorted(state.constants.inputs)}
        return shortened([f"input {value} is charged {times} times" for value, times in charged.items() if times != 1])

    def told(self, fault: Fault) -> str:
        """A fault in words."""
        return f"{fault.actor} {fault.kind}"


def payment(strategy: str, machine: type[ExternalSink] = ExternalSink) -> Payment:
    """An application that charges for two inputs."""
    return Payment(
        title=f"payment, {strategy}",
        machine=machine,
        constants=Constants(inputs=frozenset({1, 2}), strategy=strategy, max_faults=2),
        orders=ORDERS,
        actors=(CONSUMER, RELAY),
        kinds=(CRASH, LOST_ANSWER, LOST_CALL),
        is_right=strategy in RIGHT and machine is ExternalSink,
    )


def scenarios(mutant: str = "") -> list[Payment]:
    """The scenarios: each strategy, or the one from which a mutant takes its protection.

    Raises:
        MalformedRegistry: when there is no such mutant of ExternalSink.
    """
    if not mutant:
        return [payment(strategy) for strategy in STRATEGIES]
    machine, constants = with_mutant(mutant, ExternalSink)
    return [payment(constants.strategy, machine)]
