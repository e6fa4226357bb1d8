"""The properties that a changed machine violates, and their weaker versions: each judged on the machine's whole graph.

The machine's graph equals TLC's (``kafka-eos check graphs``), so its states and steps are searched here, and the
properties are the spec's own text, compiled (``models.formulas``). One search judges every property and every weaker
version, and TLC would need a start for each mutant. A part of a property is judged in the states or steps that it is
about (``walks.properties``); a temporal one by its fair cycles, since every fairness of the project's specs is weak:
a strongly connected part of the graph is fair if each fair action is disabled in one of its states, or taken in it.

A machine with one changed function differs from the machine as it is only in the steps that call this function. The
graph of the machine as it is is kept, with the functions that each step called. Only steps that call the changed
function are taken again. Only states and steps that the kept graph does not have are judged.
"""

import sys
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, TypeAlias

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.machine import Action, Instance, Machine, instances, load_constants
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.kit.components import components
from kafka_eos_checks.matrix.conjuncts.spec_steps import Label, SpecSteps
from kafka_eos_checks.models.formulas import Formula, Formulas, Namespace, State, replaced
from kafka_eos_checks.models.registry import Model, bounds_predicate, constants_class
from kafka_eos_checks.tla.evaluation import Converter, Undefined
from kafka_eos_checks.tla.parser import Tree
from kafka_eos_checks.walks.fairness import FairActions, Group, bindings
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, Part, is_temporal, parts_of

_ALL = 10**9
OUTSIDE = -1  # the target of an edge that leaves the bounds
_REFUSED = -2  # the target of a step that is not enabled
_NO_VALUE = (Undefined, KeyError, IndexError, TypeError)  # TLC ends with an error where a formula has no value
_Edge: TypeAlias = tuple[int, int]  # place of an instance, place of the target


@dataclass(frozen=True, slots=True)
class Sighting:
    """The outcome of one search.

    Attributes:
        violated: place in the list of properties -> the states of a shortest counterexample, 0 for a temporal one.
        whole: whether the search came to an end: at the last state, or at the limit where no goal is judged.
        failed: the error that ended the search; "" for none.
        states: distinct states.
    """

    violated: Mapping[int, int]
    whole: bool
    failed: str
    states: int


@dataclass(frozen=True, slots=True)
class _Goal:
    """``before ~> after``, of the first state alone if ``at_first``; ``<>[]after`` if ``stays``."""

    before: Formula
    after: Formula
    at_first: bool = False
    stays: bool = False


@dataclass(slots=True)
class _Watched:
    """The parts that read the same variables.

    Attributes:
        reads: places of the variables.
        parts: those that are not violated yet, each with the place of its property.
        seen: the values with which they were judged, by identity: a search makes one object for each value.
    """

    reads: tuple[int, ...]
    parts: list[tuple[int, Part]]
    seen: set[tuple[Any, ...]] = field(default_factory=set)

    def values(self, row: State) -> tuple[int, ...]:
        """The identities of the variables' values."""
        return tuple([id(row[place]) for place in self.reads])


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that a search takes.

    Attributes:
        initial: the first state.
        tries: an action and its arguments, and a function from a state to the one after it, or to None.
        row: a state as the values of the spec's variables.
        convert: makes these values.
    """

    initial: Any
    tries: Sequence[tuple[Label, Callable[[Any], Any]]]
    row: Callable[[Any], State]
    convert: Converter


class Kept:
    """The graph of a machine as it is, with the functions that each step called.

    Args:
        steps: the steps of the machine.
        within: the bounds.
        functions: the functions that may be changed, by their code.

    Attributes:
        states: the states, the nearest first, within the bounds.
        index: a state -> its place.
        rows: the values of the spec's variables in each state.
        targets: for each state the place of the target of each step, ``OUTSIDE`` or refused.
        calls: for each state the number of the set of functions that each step called.
        sets: a number -> the functions of that set, by the identity of their code.
    """

    def __init__(self, steps: Steps, within: Callable[[Any], bool], functions: Iterable[CodeType]) -> None:
        self.steps = steps
        self.index = {steps.initial: 0} if within(steps.initial) else {}
        self.states = list(self.index)
        self.rows: list[State] = []
        self.targets: list[array[int]] = []
        self.calls: list[array[int]] = []
        self._numbers: dict[frozenset[int], int] = {}
        self._relevant = {id(code) for code in functions}
        for state in self.states:
            self.rows.append(steps.row(state))
            targets, calls = array("l"), array("l")
            for _, taken in steps.tries:
                after, met = self._traced(taken, state)
                calls.append(self._numbers.setdefault(met, len(self._numbers)))
                target = _REFUSED if after is None else self.index.get(after, OUTSIDE)
                if target == OUTSIDE and within(after):
                    target = self.index[after] = len(self.states)
                    self.states.append(after)
                targets.append(target)
            self.targets.append(targets)
            self.calls.append(calls)
        self.sets = list(self._numbers)

    def calling(self, code: CodeType | None) -> frozenset[int]:
        """The numbers of the sets that have a function."""
        return frozenset(number for number, each in enumerate(self.sets) if id(code) in each)

    def _traced(self, taken: Callable[[Any], Any], state: Any) -> tuple[Any, frozenset[int]]:
        """The state after a step, and the functions that were called for it."""
        met, relevant = set(), self._relevant

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and id(frame.f_code) in relevant:
                met.add(id(frame.f_code))

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            after = taken(state)
        finally:
            sys.setprofile(before)
        return after, frozenset(met)


def has_machine(model: Model) -> bool:
    """Whether the reference has a machine for a model."""
    return bool(model.machine) or find_spec(f"kafka_eos.machines.{snake_case(model.module)}") is not None


def _taken(instance: Instance, state: Any) -> Any:
    """The state after an action, None where it is refused."""
    try:
        return getattr(state, instance.action.method)(*instance.arguments)
    except (NotEnabled, Rejected):
        return None


class Searcher:
    """Searches graphs of one model, of its machine as it is and of changed ones.

    Args:
        model: the model; its overrides change the properties' text too. Without a machine, its specification's text
            gives the steps.
        properties: trees of formulas of the model's module; None is never violated.
    """

    def __init__(self, model: Model, properties: Sequence[Tree | None]) -> None:
        self.model = model
        self.formulas = Formulas(model)
        self.within = bounds_predicate(model)
        self._values = attrgetter(*(snake_case(name) for name in self.formulas.variables))
        self.parts: dict[str, list[tuple[int, Part]]] = {}
        self.goals: list[tuple[int, list[_Goal]]] = []
        for place, tree in enumerate(properties):
            for part, parsed, space in parts_of(self.formulas, tree, str(place)) if tree is not None else ():
                if part.kind == GOAL:
                    self.goals.append((place, list(self._goals_of(parsed, space))))
                else:
                    self.parts.setdefault(part.kind, []).append((place, part))
        self.kept: Kept | None = None
        self.fairness: Mapping[str, Sequence[Group]] = {}
        if self.goals:
            named = [Action(name, "", ()) for name in dict.fromkeys(label[0] for label, _ in self.steps(None).tries)]
            self.fairness = FairActions(self.formulas, named, self.within).groups(model.specification)

    def steps(self, machine: type[Machine] | None, kept: "Kept | None" = None) -> "Steps":
        """The steps of a machine; without one, those of the model's own machine or of its specification's text.

        With a kept graph the values of the rows are those of the kept rows where they are equal.
        """
        if machine is None and not has_machine(self.model):
            spec = SpecSteps(self.formulas, self.model.specification)
            return Steps(spec.initial, spec.steps, lambda state: state, Converter())
        cls: Any = machine or self.model.machine_class()
        constants = load_constants(constants_class(cls), self.formulas.constants)
        tries = [((each.action.name, each.arguments), partial(_taken, each)) for each in instances(cls, constants)]
        convert = kept.steps.convert.copy() if kept else Converter(most=_ALL)
        return Steps(cls.initial(constants), tries, lambda state: tuple(map(convert, self._values(state))), convert)

    def search(
        self, machine: type[Machine] | None, most: int, unfair: Container[str] = (), changed: CodeType | None = None
    ) -> Sighting:
        """Search the graph of a machine.

        Args:
            machine: the machine's class; None where there is none.
            most: the most states that are searched.
            unfair: the names of the fairness conditions that are left out.
            changed: the code that a changed function had before its change, if :meth:`keep` has been called with it.
                Only what the kept graph does not have is judged then.
        """
        groups = [group for name, groups in self.fairness.items() if name not in unfair for group in groups]
        return _Search(self, machine, most, self.kept if changed else None, changed).run(groups)

    def keep(self, machine: type[Machine] | None, functions: Iterable[CodeType]) -> None:
        """Keep the graph of the machine as it is, once, for searches of machines with a changed function."""
        if self.kept is None:
            self.kept = Kept(self.steps(machine), self.within, functions)

    def _goals_of(self, tree: Tree, space: Namespace) -> Iterator[_Goal]:
        tree, space = self.formulas.resolved(tree, space)
        true = self.formulas.evaluate(("literal", True))
        if tree[0] == "and":
            for item in tree[1]:
                yield from self._goals_of(item, space)
        elif tree[0] == "all":
            for bound in bindings(self.formulas, tree[1]):
                yield from self._goals_of(replaced(tree[2], bound), space)
        elif tree[:2] == ("infix", "~>"):
            yield _Goal(self.formulas.evaluate(tree[2], space), self.formulas.evaluate(tree[3], space))
        elif tree[0] == "eventually" and tree[1][0] == "always":
            yield _Goal(true, self.formulas.evaluate(tree[1][1], space), stays=True)
        elif tree[0] == "always" and tree[1][0] == "eventually":
            yield _Goal(true, self.formulas.evaluate(tree[1][1], space))
        else:
            assert tree[0] == "eventually", tree[0]
            assert not is_temporal(self.formulas, tree[1], space)
            yield _Goal(true, self.formulas.evaluate(tree[1], space), at_first=True)


@dataclass(slots=True)
class _Found:
    """The states of a search that has a kept graph.

    Attributes:
        states, origins, depths: the states, the place of each in the kept graph or ``OUTSIDE``, and its depth.
        index: the place of each state that the kept graph does not have.
        outside: the values of each such state that is not within the bounds.
    """

    states: list[Any]
    origins: list[int]
    depths: list[int]
    index: dict[Any, int] = field(default_factory=dict)
    outside: dict[Any, State] = field(default_factory=dict)

    def add(self, state: Any, origin: int, depth: int) -> int:
        """Add a state, and return its place."""
        self.states.append(state)
        self.origins.append(origin)
        self.depths.append(depth)
        return len(self.states) - 1


class _Search:
    """A search of one machine's graph."""

    def __init__(
        self,
        searcher: Searcher,
        machine: type[Machine] | None,
        most: int,
        kept: Kept | None = None,
        changed: CodeType | None = None,
    ) -> None:
        self.own = searcher
        searcher.formulas.forget()
        self.steps = searcher.steps(machine, kept)
        self.most = most
        self.kept = kept if kept and self.steps.initial in kept.index else None
        self.again = kept.calling(changed) if kept else frozenset()
        self.differs = self.kept is None
        self.watched: dict[str, list[_Watched]] = {}
        for kind, parts in searcher.parts.items():
            alike: dict[tuple[int, ...], list[tuple[int, Part]]] = {}
            for place, part in parts:
                alike.setdefault(part.places, []).append((place, part))
            self.watched[kind] = [_Watched(reads, same) for reads, same in alike.items()]
        self.violated: dict[int, int] = {}
        self.rows: list[State] = []
        self.edges: list[list[_Edge]] = []

    def run(self, groups: Sequence[Group]) -> Sighting:
        """Search the graph, and judge the goals by these fair actions if all of it was met."""
        failed, whole = "", False
        try:
            whole = self._states() if self.kept is None else self._differences(self.kept)
            if whole and self.differs:
                self._judge_goals(groups)
            whole = whole or not self.own.goals
        except Exception as error:  # noqa: BLE001 - a changed machine may fail in any way
            failed, whole = f"{type(error).__name__}: {error}", False
        return Sighting(dict(self.violated), whole, failed, len(self.rows))

    def _states(self) -> bool:
        """Search the states, the nearest first; whether all were met."""
        own, state = self.own, self.steps.initial
        row = self.steps.row(state)
        self._judge(INITIAL, row, row, 1)
        self._judge(INVARIANT, row, row, 1)
        index = {state: 0} if own.within(state) else {}
        states, depths = list(index), [1] * len(index)
        self.rows = [row] * len(index)
        outside: dict[Any, State] = {}  # keeps the values, whose identities are not given again then
        for source, state in enumerate(states):
            before, depth, edges = self.rows[source], depths[source] + 1, []
            for label, (_, taken) in enumerate(self.steps.tries):
                after = taken(state)
                if after is None:
                    continue
                target = index.get(after, OUTSIDE)
                row = self.rows[target] if target >= 0 else outside.get(after) or self.steps.row(after)
                self._judge(STEP, before, row, depth)
                if target < 0 and after not in outside:
                    self._judge(INVARIANT, row, row, depth)
                    if own.within(after):
                        target = index[after] = len(states)
                        states.append(after)
                        depths.append(depth)
                        self.rows.append(row)
                    else:
                        outside[after] = row
                edges.append((label, target))
            self.edges.append(edges)
            if len(states) > self.most:
                return False
        return True

    def _differences(self, kept: Kept) -> bool:
        """Search the states as ``_states`` does, and judge only what the kept graph does not have."""
        places = [_REFUSED] * len(kept.states)  # of the kept states
        places[0] = 0
        found = _Found([kept.states[0]], [0], [1])
        self.rows = [kept.rows[0]]
        for source, state in enumerate(found.states):
            origin, depth, edges = found.origins[source], found.depths[source] + 1, list[_Edge]()
            for label, old, after in self._taken_again(kept, state, origin):
                if old >= 0:
                    target = places[old]
                    if target == _REFUSED:
                        target = places[old] = found.add(kept.states[old], old, depth)
                        self.rows.append(kept.rows[old])
                    if origin < 0 or old != kept.targets[origin][label]:
                        self._judge(STEP, self.rows[source], kept.rows[old], depth)
                elif after is None:
                    target = OUTSIDE  # as before
                else:
                    target = self._meet(found, after, self.rows[source], depth)
                edges.append((label, target))
            self.edges.append(edges)
            if len(found.states) > self.most:
                return False
        return True

    def _taken_again(self, kept: Kept, state: Any, origin: int) -> Iterator[tuple[int, int, Any]]:
        """Each step that is enabled: its place, its target among the kept states, and the state after it if taken.

        Args:
            kept: the graph of the machine as it is.
            state: the state.
            origin: its place in that graph, or ``OUTSIDE``.
        """
        for label, (_, taken) in enumerate(self.steps.tries):
            if origin >= 0 and kept.calls[origin][label] not in self.again:
                old, after = kept.targets[origin][label], None
            else:
                after = taken(state)
                old = _REFUSED if after is None else kept.index.get(after, OUTSIDE)
                self.differs |= origin < 0 or old != kept.targets[origin][label]
            if old != _REFUSED:
                yield label, old, after

    def _meet(self, found: "_Found", after: Any, before: State, depth: int) -> int:
        """Judge a step into a state that the kept graph does not have, and return the state's place."""
        target = found.index.get(after, OUTSIDE)
        row = self.rows[target] if target >= 0 else found.outside.get(after) or self.steps.row(after)
        self._judge(STEP, before, row, depth)
        if target < 0 and after not in found.outside:
            self._judge(INVARIANT, row, row, depth)
            if self.own.within(after):
                target = found.index[after] = found.add(after, OUTSIDE, depth)
                self.rows.append(row)
            else:
                found.outside[after] = row
        return target

    def _judge(self, kind: str, before: State, after: State, depth: int) -> None:
        """Judge the parts of one kind that are not violated yet."""
        for watched in self.watched.get(kind, ()):
            key = watched.values(before) if before is after else (watched.values(before), watched.values(after))
            if key in watched.seen:
                continue
            watched.seen.add(key)
            for place, part in tuple(watched.parts):
                if not _value(part.formula, before, after):
                    self.violated.setdefault(place, depth)
                    watched.parts = [each for each in watched.parts if each[0] not in self.violated]

    # --- goals

    def _judge_goals(self, groups: Sequence[Group]) -> None:
        named = {label: place for place, (label, _) in enumerate(self.steps.tries)}
        fair: list[dict[int, Sequence[tuple[Formula, ...]]]] = [
            {named[key]: guards for key, guards in group.items() if key in named} for group in groups
        ]
        for place, goals in self.own.goals:
            if any(self._fails(goal, fair) for goal in goals):
                self.violated.setdefault(place, 0)

    def _fails(self, goal: _Goal, fair: Sequence[Mapping[int, Sequence[tuple[Formula, ...]]]]) -> bool:
        """Whether some fair run does not reach the goal."""
        bad = {place for place, row in enumerate(self.rows) if not _value(goal.after, row, row)}
        if goal.stays:
            return any(part & bad and self._is_fair(part, fair) for part in self._components(range(len(self.rows))))
        first = [0] if goal.at_first else range(len(self.rows))
        begun = [place for place in first if place in bad and _value(goal.before, self.rows[place], self.rows[place])]
        met = set(begun)
        for place in begun:
            new = {target for _, target in self.edges[place] if target in bad} - met
            met |= new
            begun += new
        return any(self._is_fair(part, fair) for part in self._components(sorted(met)))

    def _is_fair(self, part: set[int], fair: Sequence[Mapping[int, Sequence[tuple[Formula, ...]]]]) -> bool:
        """Whether a fair run can stay in these states, which are strongly connected."""
        for group in fair:
            taken = disabled = False
            for place in part:
                targets = [
                    target
                    for label, target in self.edges[place]
                    if target != place and label in group and self._is_allowed(group[label], place)
                ]
                disabled |= not targets
                taken |= not part.isdisjoint(targets)
            if not taken and not disabled:
                return False
        return True

    def _is_allowed(self, guards: Sequence[tuple[Formula, ...]], place: int) -> bool:
        row = self.rows[place]
        return any(all(guard(row, row) for guard in each) for each in guards)

    def _components(self, places: Iterable[int]) -> Iterator[set[int]]:
        """The strongly connected components of the graph of these states."""
        inside = set(places)
        within = {
            place: [target for _, target in self.edges[place] if target in inside and target != place]
            for place in inside
        }
        return map(set, components(within))


def _value(formula: Formula, before: State, after: State) -> bool:
    try:
        return bool(formula(before, after))
    except _NO_VALUE:
        return False
