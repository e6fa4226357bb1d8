"""``kafka-eos simulate mirror``: a partition is copied to another cluster, and a task fails at any step, or two do.

With the offsets in the target cluster every schedule has to be right; with the offsets in the source at least one has
to be wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.mirror import Constants, Mirror
from kafka_eos_checks.simulate.schedules import GO_ON, STALL, Fault, Scenario, shortened, with_mutant

ALONE = ("Rewind", "CommitOffset", "Commit", "Copy", "LearnFencing")
TOGETHER = ("Rewind", "CommitOffset", "Copy", "Commit", "LearnFencing")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "one record a transaction, retention at once": ("Produce", "Delete", *ALONE),
    "one record a transaction, retention late": ("Produce", *ALONE, "Delete"),
    "several records a transaction": ("Produce", *TOGETHER, "Delete"),
}
CRASH = "crashes"
DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying(Scenario):
    """Tasks that copy."""

    def fail(self, state: Mirror, fault: Fault) -> Mirror:
        """The state after a fault: another task takes over from one that stands still."""
        if fault.kind == CRASH:
            return state.crash(fault.actor)
        if state.owner != fault.actor or state.tasks[fault.actor].stage == DOWN:
            raise NotEnabled("it does nothing anyway")
        return state.initialize(next(name for name in self.actors if name != fault.actor))

    def recover(self, state: Mirror) -> tuple[str, Mirror] | None:
        """A task is given the partition when none is up."""
        if any(task.stage != DOWN for task in state.tasks.values()):
            return None
        return f'Initialize("{self.actors[0]}")', state.initialize(self.actors[0])

    def wrong_end(self, state: Mirror) -> str:
        """The records that are not in the target exactly once, or ""."""
        copies = {record: state.target.count(record) for record in sorted(state.constants.records)}
        return shortened([f"record {n} is in the target {times} times" for n, times in copies.items() if times != 1])

    def told(self, fault: Fault) -> str:
        """A fault in words."""
        return f"task {fault.actor} {fault.kind}"


def mirror(offsets_in: str, machine: type[Mirror] = Mirror) -> Copying:
    """Two tasks, one of which copies three records."""
    return Copying(
        title=f"mirror, offsets in the {offsets_in}",
        machine=machine,
        constants=Constants(records=frozenset({1, 2, 3}), tasks=frozenset("AB"), batch_size=2, offsets_in=offsets_in),
        orders=ORDERS,
        actors=("A", "B"),
        kinds=(CRASH, STALL, GO_ON),
        is_right=offsets_in == "target" and machine is Mirror,
    )


def scenarios(mutant: str = "") -> list[Copying]:
    """The scenarios: offsets in the target and in the source, or the one from which a mutant takes its protection.

    Raises:
        MalformedRegistry: when there is no such mutant of Mirror.
    """
    if not mutant:
        return [mirror("target"), mirror("source")]
    machine, constants = with_mutant(mutant, Mirror)
    return [mirror(constants.offsets_in, machine)]
