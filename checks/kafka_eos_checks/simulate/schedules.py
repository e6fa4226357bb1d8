"""Every schedule of an application with one fault and with two, as ``kafka-eos simulate`` tries them.

A schedule is an order of steps with faults between them: an instance crashes, or stands still and goes on when the
others have nothing left to do, or before. Nothing is drawn: every single fault before every step is tried, and every
pair.
"""

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import Instance, Machine, instances
from kafka_eos_checks.graphs.state_graph import instance_text
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated

EVERY_STEP = "every-step"
MOST_TOLD = 3
MOST_STEPS = 1_000  # of one schedule; none comes near it
STALL, GO_ON = "stands still", "goes on"

AnyMachine = TypeVar("AnyMachine", bound=Machine)
Offsets = Mapping[str, int]
Outputs = Mapping[str, Mapping[int, int]]  # partition -> input -> how many outputs


@dataclass(frozen=True, slots=True)
class Node:
    """A state of a machine, and the actors that stand still."""

    state: Any
    stalled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of an actor."""

    kind: str
    actor: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """A schedule that is wrong: its steps with the faults among them, and the reason.

    Attributes:
        order: the order of actions.
        steps: the steps, in words.
        what: the reason why it is wrong.
        size: the number of faults, then the number of steps.
    """

    order: str
    steps: tuple[str, ...]
    what: str
    size: tuple[int, int]

    def __str__(self) -> str:
        lines = [f"{self.order}:", *(f"{number:4d}  {step}" for number, step in enumerate(self.steps, start=1))]
        return "\n".join([*lines, f"      {self.what}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ABC):
    """An application: its machine, the faults that it can meet, and what it should have done in the end.

    Attributes:
        title: its title.
        machine: the machine.
        constants: its constants; they allow for two faults.
        orders: title -> the order in which actions are taken where several are possible. A missing action is a fault.
        actors: what can fail: names that are an action's first argument.
        kinds: how it can fail.
        while_stalled: the kinds that happen only to a stalled actor; no other kind does.
        unattended: actions that are taken although their first argument stands still.
        is_right: whether no schedule may be wrong; otherwise one has to be.
    """

    title: str
    machine: type[Any]
    constants: Any
    orders: Mapping[str, tuple[str, ...]]
    actors: tuple[str, ...]
    kinds: tuple[str, ...]
    while_stalled: frozenset[str] = frozenset({GO_ON})
    unattended: frozenset[str] = frozenset()
    is_right: bool

    @abstractmethod
    def fail(self, state: Any, fault: Fault) -> Any:
        """The state after a fault.

        Raises:
            NotEnabled: where nothing can fail so.
        """

    @abstractmethod
    def recover(self, state: Any) -> tuple[str, Any] | None:
        """The step that is taken when no other is possible, and the state after it."""

    @abstractmethod
    def wrong_end(self, state: Any) -> str:
        """The errors in the result of a finished run, or ""."""

    def wrong_step(self, before: Any, after: Any) -> str:  # noqa: ARG002 - for those that look at steps
        """The reason why the guarantee does not allow a step, or ""."""
        return ""

    def told(self, fault: Fault) -> str:
        """A fault in words."""
        return f"instance {fault.actor} {fault.kind}"


def takes_effect(before: tuple[Offsets, Outputs], after: tuple[Offsets, Outputs]) -> bool:
    """Whether a step is one of ExactlyOnce.tla: nothing, or the next inputs with their offset.

    Args:
        before: the offsets and the outputs of each partition, once what is decided has come.
        after: the same after the step.
    """
    (offsets, found), (up_to, outputs) = before, after
    return all(
        up_to[partition] >= offset
        and all(
            outputs[partition][n] == count + (offset < n <= up_to[partition]) for n, count in found[partition].items()
        )
        for partition, offset in offsets.items()
    )


def shortened(told: Sequence[str]) -> str:
    """The first things that are wrong, and how many more there are; "" where nothing is."""
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return "; ".join(told[:MOST_TOLD]) + more


@dataclass(slots=True)
class Schedules:
    """Every schedule of a scenario in one order, with what has been found about them so far.

    The steps from a node do not depend on how it was reached, so each step is computed once.
    """

    order: str
    scenario: Scenario
    nodes: list[Node] = field(default_factory=list)
    _index: dict[Node, int] = field(default_factory=dict)
    _next: dict[int, tuple[str, int] | None] = field(default_factory=dict)
    _wrong: dict[int, str] = field(default_factory=dict)
    _ordered: list[Instance] = field(default_factory=list)

    def __post_init__(self) -> None:
        named = instances(self.scenario.machine, self.scenario.constants)
        self._ordered = [
            each for name in self.scenario.orders[self.order] for each in named if each.action.name == name
        ]

    def place(self, node: Node) -> int:
        """The number of a node."""
        found = self._index.setdefault(node, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(node)
        return found

    def start(self) -> int:
        """The node of the initial state."""
        return self.place(Node(self.scenario.machine.initial(self.scenario.constants)))

    def after(self, place: int) -> tuple[str, int] | None:
        """The step that is taken when nothing fails, and the node after it; None when nothing is left to do."""
        if place not in self._next:
            self._next[place] = self._step(self.nodes[place])
        return self._next[place]

    def _step(self, node: Node) -> tuple[str, int] | None:
        state = node.state
        for instance in self._ordered:
            if self._stands_still(instance, node.stalled):
                continue
            reached = attempt(state, instance)
            if isinstance(reached, (NotEnabled, Rejected)) or _faults(reached) != _faults(state):
                continue
            return instance_text(instance), self.place(Node(reached, node.stalled))
        recovered = self.scenario.recover(state)
        if recovered is not None:
            return recovered[0], self.place(Node(recovered[1], node.stalled))
        if node.stalled:
            return f"{', '.join(sorted(node.stalled))} goes on", self.place(Node(state))
        return None

    def _stands_still(self, instance: Instance, stalled: Collection[str]) -> bool:
        attended = bool(instance.arguments) and instance.action.name not in self.scenario.unattended
        return attended and instance.arguments[0] in stalled

    def failed(self, place: int, fault: Fault) -> int | None:
        """The node after a fault, None where there is nothing that could fail so."""
        node, name = self.nodes[place], fault.actor
        if (name in node.stalled) != (fault.kind in self.scenario.while_stalled):
            return None
        try:
            if fault.kind == GO_ON:
                return self.place(Node(node.state, node.stalled - {name}))
            stalled = node.stalled | {name} if fault.kind == STALL else node.stalled
            return self.place(Node(self.scenario.fail(node.state, fault), stalled))
        except (NotEnabled, Rejected):
            return None

    def chain(self, place: int) -> list[int]:
        """The nodes from one on, until nothing is left to do."""
        places = [place]
        while (step := self.after(places[-1])) is not None:
            places.append(step[1])
            assert len(places) < MOST_STEPS, "a schedule does not end"
        return places

    def wrong(self, place: int) -> str:
        """The errors in the steps from a node on, or ""."""
        places = [place]
        while places[-1] not in self._wrong and (step := self.after(places[-1])) is not None:
            places.append(step[1])
        last = places.pop()
        if last not in self._wrong:
            self._wrong[last] = self.scenario.wrong_end(self.nodes[last].state)
        for before in reversed(places):
            step = self.after(before)
            assert step is not None
            self._wrong[before] = self._wrong[step[1]] or self.wrong_step(before, step[1])
        return self._wrong[place]

    def wrong_step(self, before: int, after: int) -> str:
        """The reason why the guarantee does not allow a step, or ""."""
        return self.scenario.wrong_step(self.nodes[before].state, self.nodes[after].state)

    def faults(self) -> list[Fault]:
        """Every fault that an actor can meet."""
        return [Fault(kind, name) for kind in self.scenario.kinds for name in self.scenario.actors]

    def failures(self, places: Sequence[int]) -> Iterator[tuple[int, Fault, int]]:
        """(how many steps before it, the fault, the node after it) for every fault along a schedule."""
        for number, place in enumerate(places):
            for fault in self.faults():
                reached = self.failed(place, fault)
                if reached is not None:
                    yield number, fault, reached

    def words(self, places: Sequence[int]) -> list[str]:
        """The steps between nodes that follow on each other."""
        steps = (self.after(place) for place in places)
        return [step[0] for step in steps if step is not None]


def _faults(state: Any) -> int:
    """The number of faults that a machine has counted; 0 if it counts none."""
    return int(getattr(state, "faults", 0))


@dataclass(slots=True)
class Tally:
    """The outcome of the schedules.

    Attributes:
        without: schedules without a fault.
        singles: schedules with one fault.
        pairs: schedules with two.
        wrong: the number of wrong schedules.
        shown: the one of those with the fewest faults, and the fewest steps.
        states: the number of states that the schedules visited.
        steps: the steps before which a first fault can come, from 1.
    """

    without: int = 0
    singles: int = 0
    pairs: int = 0
    wrong: int = 0
    shown: Wrong | None = None
    states: int = 0
    steps: set[int] = field(default_factory=set)

    @property
    def schedules(self) -> int:
        """The number of tried schedules."""
        return self.without + self.singles + self.pairs


def try_all(schedules: Schedules, tally: Tally, only_step: int = 0) -> None:
    """Try every single fault and every pair; with ``only_step``, those whose first fault is just before it."""
    start = schedules.start()
    base = schedules.chain(start)
    tally.without += 1
    _note(schedules, tally, [], schedules.wrong(start), base)
    for number, first, after_first in schedules.failures(base):
        tally.steps.add(number + 1)
        if only_step and number + 1 != only_step:
            continue
        tally.singles += 1
        places = schedules.chain(after_first)
        before = [(base[: number + 1], first)]
        _note(schedules, tally, before, _of(schedules, base[number], after_first), places)
        for more, second, after_second in schedules.failures(places):
            tally.pairs += 1
            wrong = _of(schedules, places[more], after_second)
            if wrong:
                _note(schedules, tally, [*before, (places[: more + 1], second)], wrong, schedules.chain(after_second))
    tally.states += len(schedules.nodes)


def _of(schedules: Schedules, place: int, failed: int) -> str:
    return schedules.wrong(failed) or schedules.wrong_step(place, failed)


def _note(
    schedules: Schedules,
    tally: Tally,
    faults: Sequence[tuple[Sequence[int], Fault]],
    wrong: str,
    rest: Sequence[int],
) -> None:
    if not wrong:
        return
    tally.wrong += 1
    size = (len(faults), sum(len(places) for places, _ in faults) + len(rest))
    if tally.shown is None or size < tally.shown.size:
        told = schedules.scenario.told
        steps = [step for places, fault in faults for step in (*schedules.words(places[:-1]), f"-- {told(fault)}")]
        tally.shown = Wrong(schedules.order, (*steps, *schedules.words(rest)), wrong, size)


def try_scenario(scenario: Scenario, only_step: int = 0) -> Tally:
    """Every schedule of a scenario, in every order."""
    tally = Tally()
    for order in scenario.orders:
        try_all(Schedules(order, scenario), tally, only_step)
    return tally


def with_mutant(name: str, machine: type[AnyMachine]) -> tuple[type[AnyMachine], Any]:
    """A machine with the rules of a mutant, and the constants that the mutant's model has.

    Raises:
        MalformedRegistry: when there is no such mutant of it.
    """
    found = Registry().mutant_of(machine.MODULE, name)
    changed = mutated(machine, found.overrides)
    assert issubclass(changed, machine)
    return changed, found.machine_constants(machine)


def first_step(text: str) -> int:
    """The step that ``--crash-at`` names, from 1; 0 for every one."""
    if text == EVERY_STEP:
        return 0
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected {EVERY_STEP}, or a number from 1")
    return int(text)


def run_scenarios(scenarios: Sequence[Scenario], only_step: int) -> int:
    """Try them, print, and say by the exit code whether each is as it should be: right, or wrong somewhere.

    The exit code is 2 if no schedule has a fault before ``only_step``, so that nothing was tried.
    """
    as_expected, singles = True, 0
    steps: set[int] = set()
    for scenario in scenarios:
        began = monotonic()
        tally = try_scenario(scenario, only_step)
        as_expected &= (tally.wrong == 0) == scenario.is_right and tally.schedules > 0
        print(
            f"{scenario.title}: {tally.schedules:,} schedules "
            f"({tally.without} without a fault, {tally.singles:,} with one, {tally.pairs:,} with two), "
            f"{tally.wrong:,} wrong; {tally.states:,} states, {monotonic() - began:.0f} s"
        )
        if tally.shown is not None:
            print(tally.shown)
        singles, steps = singles + tally.singles, steps | tally.steps
    if not singles:
        there = f"the first step before which one can come is {min(steps)}, the last is {max(steps)}"
        said = f"no fault comes before step {only_step}; {there}"
        print(f"kafka-eos simulate: --crash-at {only_step}: {said}", file=sys.stderr)
        return 2
    return 0 if as_expected else 1
