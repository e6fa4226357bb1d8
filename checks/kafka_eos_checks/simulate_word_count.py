"""``kafka-eos simulate word-count``: every place where an application can fail, one after the other and two by two.

Sentences go in, counts of words come out, with the offset behind the sentence in the same transaction. A schedule is an
order of steps with faults between them: an instance crashes, or stands still and comes back when the others have
nothing left to do. Nothing is drawn: every single fault before every step is tried, and every pair.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from immutables import Map

from kafka_eos.consume_transform_produce import V1, V2, Constants, ConsumeTransformProduce, Counts
from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.explorer import attempt
from kafka_eos.group_coordinator import Offsets
from kafka_eos.machine import Instance, instances
from kafka_eos_checks.graph import instance_text
from kafka_eos_checks.models import MalformedRegistry, Registry
from kafka_eos_checks.mutants import mutated

SENTENCES: Mapping[tuple[str, int], str] = {
    ("p", 1): "to be or not to be",
    ("p", 2): "that is the question",
    ("q", 1): "the rest is silence",
    ("q", 2): "words words words",
}
EVERY_STEP = "every-step"
MOST_TOLD = 3
MOST_STEPS = 1_000  # of one schedule; none comes near it

# The order in which actions are taken where several are possible. What is missing is a fault.
APPLICATION = (
    "ReceiveFencing",
    "RefuseOffsets",
    "Commit",
    "Join",
    "CompleteRebalance",
    "LearnAssignment",
    "Heartbeat",
    "Initialize",
    "FetchOffset",
)
ALONE = ("SendOffsets", "Process", "Abort")
TOGETHER = ("Process", "SendOffsets", "Abort")
MARKERS = ("PublishOffsets", "PublishOutput")
NOTICING = ("ExpireSession", "TimeOut")
ORDERS: Mapping[str, tuple[str, ...]] = {
    "one input a transaction, markers at once": (*MARKERS, *NOTICING, *APPLICATION, *ALONE),
    "one input a transaction, markers late": (*APPLICATION, *ALONE, *NOTICING, *MARKERS),
    "several inputs a transaction, markers at once": (*MARKERS, *NOTICING, *APPLICATION, *TOGETHER),
    "several inputs a transaction, markers late": (*APPLICATION, *TOGETHER, *NOTICING, *MARKERS),
}

CRASH, RESTART, STALL, TIMEOUT, FAIL = "crashes", "restarts", "stands still", "is timed out", "fails to process"
KINDS = (CRASH, RESTART, STALL, TIMEOUT, FAIL)


@dataclass(frozen=True, slots=True)
class Node:
    """A state, and the instances that stand still."""

    state: ConsumeTransformProduce
    stalled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls an instance."""

    kind: str
    instance: str

    def __str__(self) -> str:
        return f"instance {self.instance} {self.kind}"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A schedule that is not exactly once: its steps, the faults among them, and what is wrong about it.

    Attributes:
        order: the order of actions.
        steps: what happened.
        what: is wrong.
        size: how many faults, how many steps.
    """

    order: str
    steps: tuple[str, ...]
    what: str
    size: tuple[int, int]

    def __str__(self) -> str:
        lines = [f"{self.order}:", *(f"{number:4d}  {step}" for number, step in enumerate(self.steps, start=1))]
        return "\n".join([*lines, f"      {self.what}"])


def constants(eos: str) -> Constants:
    """Two instances, and a partition for each of them to begin with."""
    return Constants(
        instances=frozenset("AB"),
        partitions=frozenset("pq"),
        transactional_ids=frozenset("pq" if eos == V1 else "AB"),
        preferred=Map({"p": "A", "q": "B"}),
        inputs=frozenset({1, 2}),
        eos=eos,
        faults=frozenset({"abort", "crash", "expire session", "timeout"}),
        max_faults=2,
    )


def counted(outputs: Counts) -> Counter[str]:
    """The words that a reader counts in the outputs that it finds."""
    words: Counter[str] = Counter()
    for (partition, number), sentence in SENTENCES.items():
        for word in sentence.split() * outputs[partition][number]:
            words[word] += 1
    return words


EXPECTED = Counter(word for sentence in SENTENCES.values() for word in sentence.split())


def takes_effect(before: ConsumeTransformProduce, after: ConsumeTransformProduce) -> bool:
    """Whether a step is one of ExactlyOnce.tla: nothing, or the next inputs with their offset."""
    offsets, up_to = before.offsets_in_the_end(), after.offsets_in_the_end()
    found, outputs = before.outputs_in_the_end(), after.outputs_in_the_end()
    return all(
        up_to[partition] >= offsets[partition]
        and outputs[partition]
        == Map({n: count + (offsets[partition] < n <= up_to[partition]) for n, count in found[partition].items()})
        for partition in before.constants.partitions
    )


def what_is_wrong(outputs: Counts, committed: Offsets) -> str:
    """What a run that is over has left behind that it should not have, or ""."""
    words = counted(outputs)
    told = [f"{word!r} is counted {words[word]} times, not {n}" for word, n in EXPECTED.items() if words[word] != n]
    told += [f"the offset of {p} is {committed[p]}" for p in sorted(committed) if (p, committed[p]) not in SENTENCES]
    told += [f"{p} is not read to its end" for p in sorted(committed) if (p, committed[p] + 1) in SENTENCES]
    return "; ".join(told[:MOST_TOLD]) + (f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else "")


@dataclass(slots=True)
class Schedules:
    """Every schedule of one machine in one order, with what has been found about them so far.

    What follows on a node does not depend on how it was reached, so each step is computed once.
    """

    order: str
    machine: type[Any]
    constants: Constants
    nodes: list[Node] = field(default_factory=list)
    _index: dict[Node, int] = field(default_factory=dict)
    _next: dict[int, tuple[str, int] | None] = field(default_factory=dict)
    _wrong: dict[int, str] = field(default_factory=dict)
    _ordered: list[Instance] = field(default_factory=list)

    def __post_init__(self) -> None:
        named = instances(self.machine, self.constants)
        self._ordered = [each for name in ORDERS[self.order] for each in named if each.action.name == name]

    def place(self, node: Node) -> int:
        """The number of a node."""
        found = self._index.setdefault(node, len(self.nodes))
        if found == len(self.nodes):
            self.nodes.append(node)
        return found

    def start(self) -> int:
        """The node of the initial state."""
        return self.place(Node(self.machine.initial(self.constants)))

    def after(self, place: int) -> tuple[str, int] | None:
        """The step that is taken when nothing fails and the node behind it; None when nothing is left to do."""
        if place not in self._next:
            self._next[place] = self._step(self.nodes[place])
        return self._next[place]

    def _step(self, node: Node) -> tuple[str, int] | None:
        state = node.state
        for instance in self._ordered:
            if instance.arguments[0] in node.stalled and instance.action.name not in {*MARKERS, *NOTICING}:
                continue
            reached = attempt(state, instance)
            if isinstance(reached, (NotEnabled, Rejected)) or reached.faults != state.faults:
                continue
            return instance_text(instance), self.place(Node(reached, node.stalled))
        for name, process in sorted(state.processes.items()):
            if not process.is_up:
                return f'Restart("{name}")', self.place(Node(state.restart(name), node.stalled))
        if node.stalled:
            return f"{', '.join(sorted(node.stalled))} goes on", self.place(Node(state))
        return None

    def failed(self, place: int, fault: Fault) -> int | None:
        """The node after a fault, None where there is nothing that could fail so."""
        node, name = self.nodes[place], fault.instance
        if name in node.stalled:
            return None
        try:
            stalled = node.stalled | {name} if fault.kind == STALL else node.stalled - {name}
            return self.place(Node(self._fail(node.state, fault), stalled))
        except (NotEnabled, Rejected):
            return None

    def _fail(self, state: ConsumeTransformProduce, fault: Fault) -> ConsumeTransformProduce:
        name = fault.instance
        if fault.kind == STALL:
            return state.expire_session(name)
        if fault.kind in {CRASH, RESTART}:
            crashed = state.crash(name)
            return crashed.restart(name) if fault.kind == RESTART else crashed
        act = state.abort if fault.kind == FAIL else None
        for producer in sorted(state.constants.transactional_ids):
            if state.is_open(producer) and state.has_initialized(name, producer):
                return act(name, producer) if act else state.time_out(producer)
        raise NotEnabled("no open transaction")

    def chain(self, place: int) -> list[int]:
        """The nodes from one on, until nothing is left to do."""
        places = [place]
        while (step := self.after(places[-1])) is not None:
            places.append(step[1])
            assert len(places) < MOST_STEPS, "a schedule does not end"
        return places

    def wrong(self, place: int) -> str:
        """What is wrong with what follows on a node, or ""."""
        places = [place]
        while places[-1] not in self._wrong and (step := self.after(places[-1])) is not None:
            places.append(step[1])
        last = places.pop()
        if last not in self._wrong:
            end = self.nodes[last].state
            self._wrong[last] = what_is_wrong(end.outputs, end.committed)
        for before in reversed(places):
            step = self.after(before)
            assert step is not None
            self._wrong[before] = self._wrong[step[1]] or self.not_exactly_once(before, step[1])
        return self._wrong[place]

    def not_exactly_once(self, before: int, after: int) -> str:
        """Why a step is none of ExactlyOnce.tla, or ""."""
        if takes_effect(self.nodes[before].state, self.nodes[after].state):
            return ""
        return "a step takes effect that is none of exactly once"

    def faults(self) -> list[Fault]:
        """Everything that can befall an instance."""
        return [Fault(kind, name) for kind in KINDS for name in sorted(self.constants.instances)]

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


@dataclass(slots=True)
class Tally:
    """What became of the schedules.

    Attributes:
        without: schedules without a fault.
        singles: schedules with one fault.
        pairs: schedules with two.
        wrong: how many were not exactly once.
        shown: of those the one with the fewest faults, and of them the shortest.
        states: how many states the schedules visited.
    """

    without: int = 0
    singles: int = 0
    pairs: int = 0
    wrong: int = 0
    shown: Wrong | None = None
    states: int = 0

    @property
    def schedules(self) -> int:
        """How many were tried."""
        return self.without + self.singles + self.pairs


def try_all(schedules: Schedules, tally: Tally, only_step: int = 0) -> None:
    """Try every single fault and every pair; with ``only_step``, those whose first fault is just before it."""
    start = schedules.start()
    base = schedules.chain(start)
    tally.without += 1
    _note(schedules, tally, [], schedules.wrong(start), base)
    for number, first, after_first in schedules.failures(base):
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
    return schedules.wrong(failed) or schedules.not_exactly_once(place, failed)


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
        steps = [step for places, fault in faults for step in (*schedules.words(places[:-1]), f"-- {fault}")]
        tally.shown = Wrong(schedules.order, (*steps, *schedules.words(rest)), wrong, size)


def machine_of(mutant: str, registry: Registry | None = None) -> tuple[type[Any], str]:
    """The machine without the protection that a mutant takes away, and the version of EOS that needs it.

    Raises:
        MalformedRegistry: when there is no such mutant of ConsumeTransformProduce.
    """
    found = (registry or Registry()).get(mutant)
    if found.module != ConsumeTransformProduce.MODULE:
        raise MalformedRegistry(f"{found.source}: a mutant of {found.module}; name one of ConsumeTransformProduce")
    return mutated(ConsumeTransformProduce, found.overrides), found.constants["Eos"].strip('"')


def word_count(eos: str, machine: type[Any] = ConsumeTransformProduce, only_step: int = 0) -> Tally:
    """Every schedule of a version of EOS, in every order."""
    tally = Tally()
    for order in ORDERS:
        try_all(Schedules(order, machine, constants(eos)), tally, only_step)
    return tally


def first_step(text: str) -> int:
    """The step that ``--crash-at`` names, from 1; 0 for every one."""
    if text == EVERY_STEP:
        return 0
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no step; write {EVERY_STEP}, or a number from 1")
    return int(text)


def run_word_count(mutant: str, only_step: int) -> int:
    """Try, print, and say by the exit code whether all is as it should be: right, or with a mutant wrong somewhere."""
    tried = [(ConsumeTransformProduce, V2), (ConsumeTransformProduce, V1)] if not mutant else [machine_of(mutant)]
    as_expected = True
    for machine, eos in tried:
        began = monotonic()
        tally = word_count(eos, machine, only_step)
        as_expected &= (tally.wrong > 0) == bool(mutant) and tally.schedules > 0
        if tally.shown is not None:
            print(tally.shown)
        print(
            f"word count, EOS {eos}{f', {mutant}' if mutant else ''}: {tally.schedules:,} schedules "
            f"({tally.without} without a fault, {tally.singles:,} with one, {tally.pairs:,} with two), "
            f"{tally.wrong:,} wrong; {tally.states:,} states, {monotonic() - began:.0f} s"
        )
    return 0 if as_expected else 1
