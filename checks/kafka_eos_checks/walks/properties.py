"""The properties that judge a run: those of a model, taken from the spec's text, each evaluated at certain moments.

===========  =========================================================  ==============================================
kind         the spec has                                               it is evaluated
===========  =========================================================  ==============================================
initial      ``P`` in a specification that is refined                   in the first state
invariant    ``P``, or ``[]P``                                          in every state
step         ``[][A]_v``                                                in every step
goal         ``P ~> Q``, ``<>[]P``, ``[]<>P``                           when the run has come to rest without faults
===========  =========================================================  ==============================================

At rest no fair action is enabled. What holds then holds for ever, so ``P ~> Q`` asks for ``P => Q``. A walk does not
notice that ``Q`` has never come if ``P`` has ended before.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_eos_checks.models.formulas import Formula, Formulas, Namespace, State
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.tla.parser import Tree

INITIAL, INVARIANT, STEP, GOAL = "initial", "invariant", "step", "goal"
_TEMPORAL = frozenset({"always", "eventually"})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a property that is evaluated at one kind of moment.

    Attributes:
        name: the property's name.
        kind: the kind of moment.
        formula: the formula that has to be true.
        reads: the variables that the formula reads, as a set of bits.
        places: the places of these variables in a state.
    """

    name: str
    kind: str
    formula: Formula
    reads: int
    places: tuple[int, ...]


def parts(formulas: Formulas, name: str) -> list[Part]:
    """The parts of a property by its name."""
    return [part for part, _, _ in parts_of(formulas, ("call", name, ()), name)]


def parts_of(formulas: Formulas, formula: Tree, name: str) -> Iterator[tuple[Part, Tree, Namespace]]:
    """The parts of a formula, each with its tree and the meaning of the names in it."""
    for kind, tree, space in _split(formulas, formula):
        yield _part(formulas, name, kind, tree, space), tree, space


def _part(formulas: Formulas, name: str, kind: str, tree: Tree, space: Namespace) -> Part:
    places = tuple(sorted(formulas.reads(tree, space)))
    return Part(name, kind, formulas.evaluate(tree, space), sum(1 << place for place in places), places)


def _split(formulas: Formulas, tree: Tree, space: Namespace | None = None) -> Iterator[tuple[str, Tree, Namespace]]:
    top = space is None
    tree, space = formulas.resolved(tree, space or formulas.root)
    if not is_temporal(formulas, tree, space):
        yield INVARIANT if top else INITIAL, tree, space
    elif tree[0] == "and":
        for item in tree[1]:
            yield from _split(formulas, item, space)
    elif tree[0] == "always" and tree[1][0] == "step":
        yield STEP, tree[1], space
    elif tree[0] == "always" and not is_temporal(formulas, tree[1], space):
        yield INVARIANT, tree[1], space
    else:
        yield GOAL, tree, space


def is_temporal(formulas: Formulas, tree: Any, space: Namespace, seen: frozenset[Tree] = frozenset()) -> bool:
    """Whether an expression is about more than one step; ``seen`` are the names whose definitions it is part of."""
    if not isinstance(tree, tuple) or not tree:
        return False
    if tree[0] in _TEMPORAL or tree[:2] == ("infix", "~>"):
        return True
    if tree[0] in {"call", "of"}:
        inner, where = formulas.resolved(tree, space)
        name = tree[:-1]
        if inner is not tree and name not in seen and is_temporal(formulas, inner, where, seen | {name}):
            return True
    return any(is_temporal(formulas, item, space, seen) for item in tree if isinstance(item, tuple))


@dataclass(frozen=True, slots=True)
class Wrong:
    """A property that a run violates, or that has no value in it.

    Attributes:
        name: the property's name.
        how: what is wrong, in words.
        is_judged: whether the property has a value, which is false. Where it has none, nobody knows whether it holds.
    """

    name: str
    how: str
    is_judged: bool = True

    def is_like(self, other: "Wrong | None") -> bool:
        """Whether another run goes wrong in the same way."""
        return other is not None and (self.name, self.is_judged) == (other.name, other.is_judged)


@dataclass(slots=True)
class Judge:
    """A judge that names the property that a state or step of a run violates, or in which it has no value.

    Attributes:
        initial, invariants, steps, goals: the parts of the properties.
        every_time: whether everything is evaluated at every step, whatever variables have changed.
    """

    initial: list[Part] = field(default_factory=list)
    invariants: list[Part] = field(default_factory=list)
    steps: list[Part] = field(default_factory=list)
    goals: list[Part] = field(default_factory=list)
    every_time: bool = False
    _stutters: set[tuple[Any, ...]] = field(default_factory=set)
    _held: list[Any] = field(default_factory=list)

    def add(self, found: Iterable[Part]) -> None:
        """Judge by these parts too."""
        lists = {INITIAL: self.initial, INVARIANT: self.invariants, STEP: self.steps, GOAL: self.goals}
        for part in found:
            lists[part.kind].append(part)

    def first(self, state: State) -> Wrong | None:
        """The property that a first state violates."""
        for part in (*self.initial, *self.invariants):
            if (wrong := _wrong(part, state, state)) is not None:
                return wrong
        return None

    def step(self, before: State, after: State, changed: int) -> Wrong | None:
        """The property that a step, or the state after it, violates.

        Args:
            before: the state before it.
            after: the state after it.
            changed: the variables that have another value, as a set of bits.
        """
        every_time = self.every_time
        for part in self.invariants:
            if (every_time or changed & part.reads) and (wrong := _wrong(part, after, after)) is not None:
                return wrong
        for part in self.steps:
            is_due = every_time or changed & part.reads or self._is_new(part, before)
            if is_due and (wrong := _wrong(part, before, after)) is not None:
                return wrong
        return None

    def _is_new(self, part: Part, state: State) -> bool:
        """Whether a formula has not been evaluated yet for these values of the variables that it reads.

        Only for steps that change none of these variables.
        """
        values = [state[place] for place in part.places]
        key = (part.name, id(part), *map(id, values))
        if key in self._stutters:
            return False
        self._stutters.add(key)
        self._held += values
        return True

    def forget(self) -> None:
        """Forget which values the formulas have been evaluated for."""
        self._stutters.clear()
        self._held.clear()

    def at_rest(self, state: State) -> Wrong | None:
        """The goal that has not been reached when no further step happens."""
        for part in self.goals:
            if (wrong := _wrong(part, state, state)) is not None:
                return wrong
        return None


def _wrong(part: Part, before: State, after: State) -> Wrong | None:
    """The error in a part of a property, None if it holds. To have no value is one, too: TLC would stop there."""
    try:
        if part.formula(before, after):
            return None
    except (Undefined, KeyError) as error:
        why = f"no value at {error}" if isinstance(error, KeyError) else str(error)
        return Wrong(part.name, f"cannot be judged: {part.name} has no value ({why})", is_judged=False)
    is_goal = part.kind == GOAL
    return Wrong(part.name, f"comes to rest, and {part.name} is not so" if is_goal else f"violates {part.name}")
