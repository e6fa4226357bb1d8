"""``kafka-eos simulate transfer``: Alice is debited and Bob is credited, and an instance fails at any step, or two do.

With transactions every schedule has to be right. Without them one has to be wrong: that is the claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.transfer import ALICE, BOB, DOWN, NONE, OFFSETS, Constants, Transfer
from kafka_eos_checks.simulate.schedules import (
    GO_ON,
    STALL,
    Fault,
    Offsets,
    Outputs,
    Scenario,
    shortened,
    takes_effect,
    with_mutant,
)

APPLICATION = ("LearnFencing", "Fetch", "Debit", "Credit", "SendOffset", "Commit")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "markers at once": ("WriteMarker", *APPLICATION),
    "markers late": (*APPLICATION, "WriteMarker"),
}
CRASH, FAIL = "crashes", "fails to process"


def in_the_end(state: Transfer) -> tuple[Offsets, Outputs]:
    """The offset and the debits and credits once the markers have come."""
    undecided, transfers = state.transaction.state, state.constants.transfers
    done = state.offset_in(state.logs[OFFSETS], undecided)
    return {ALICE: done, BOB: done}, {
        partition: {transfer: state.count(state.logs[partition], undecided, transfer) for transfer in transfers}
        for partition in (ALICE, BOB)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Money(Scenario):
    """Instances that move money."""

    def fail(self, state: Transfer, fault: Fault) -> Transfer:
        """The state after a fault: another instance takes over from one that stands still."""
        if fault.kind == CRASH:
            return state.crash(fault.actor)
        if fault.kind == FAIL:
            return state.abort(fault.actor)
        if state.owner != fault.actor or state.processes[fault.actor].stage == DOWN:
            raise NotEnabled("it does nothing anyway")
        return state.initialize(next(name for name in self.actors if name != fault.actor))

    def recover(self, state: Transfer) -> tuple[str, Transfer] | None:
        """An instance starts when none is up."""
        if any(process.stage != DOWN for process in state.processes.values()):
            return None
        return f'Initialize("{self.actors[0]}")', state.initialize(self.actors[0])

    def wrong_end(self, state: Transfer) -> str:
        """The wrong numbers of debits and credits, or ""."""
        told = []
        for transfer in sorted(state.constants.transfers):
            for partition, who in ((ALICE, "Alice is debited"), (BOB, "Bob is credited")):
                times = state.count(state.logs[partition], NONE, transfer)
                if times != 1:
                    told.append(f"{who} {times} times for transfer {transfer}")
        return shortened(told)

    def wrong_step(self, before: Transfer, after: Transfer) -> str:
        """The reason why ExactlyOnce.tla does not allow a step, or ""; without transactions only the end counts."""
        if not self.constants.transactional or takes_effect(in_the_end(before), in_the_end(after)):
            return ""
        return "a step takes effect that ExactlyOnce does not allow"


def transfer(*, transactional: bool, machine: type[Transfer] = Transfer) -> Money:
    """Two instances that move money twice, with transactions or without."""
    return Money(
        title=f"transfer, {'with' if transactional else 'without'} transactions",
        machine=machine,
        constants=Constants(
            partitions=frozenset({ALICE, BOB, OFFSETS}),
            transfers=frozenset({1, 2}),
            instances=frozenset("AB"),
            transactional=transactional,
            max_faults=2,
        ),
        orders=ORDERS,
        actors=("A", "B"),
        kinds=(CRASH, STALL, GO_ON, FAIL),
        unattended=frozenset({"WriteMarker"}),
        is_right=transactional and machine is Transfer,
    )


def scenarios(mutant: str = "") -> list[Money]:
    """The scenarios: with transactions and without, or the one from which a mutant takes its protection.

    Raises:
        MalformedRegistry: when there is no such mutant of Transfer.
    """
    if not mutant:
        return [transfer(transactional=True), transfer(transactional=False)]
    machine, constants = with_mutant(mutant, Transfer)
    return [transfer(transactional=constants.transactional, machine=machine)]
