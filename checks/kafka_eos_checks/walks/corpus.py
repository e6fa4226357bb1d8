"""Kept states, from which later walks start.

A walk from the first state seldom gets deep: most of its steps are those that every walk takes. So states that look new
are kept, most later walks start in one of them, and a walk ends when it reaches a known state. To start, a walk draws a
few kept states and takes the least visited of them; a state that seems to lead only to known states counts as visited
more often. With small constants every state is kept. With large ones only one of those that look the same is kept:
numbers above :data:`MOST_NUMBER` look the same, and so do all elements of a sequence before the last
:data:`MOST_ELEMENTS`.

The hash of every state is remembered, so that a walk can prefer a step to a new state: otherwise, where states are few,
walks soon only repeat each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from immutables import Map

from kafka_eos.machines.machine import Instance
from kafka_eos.machines.spec_mapping import SpecValue
from kafka_eos_checks.models.formulas import State

MOST_NUMBER = 3
MOST_ELEMENTS = 2
MOST_KEPT = 50_000
MOST_PASSED = 2_000_000
ANEW = 0.05  # how often a walk begins in the first state
AMONG = 20  # how many kept states are drawn
EXHAUSTED = 10  # how many visits a visit without anything new counts for


@dataclass(slots=True)
class Kept:
    """A state that looked new.

    Attributes:
        state: the state of the machine.
        schedule: how it was reached.
        visits: how often walks have begun in it, or have come by a state that looks the same.
    """

    state: Any
    schedule: tuple[Instance, ...]
    visits: int = 0


@dataclass(slots=True)
class Corpus:
    """The states that the walks over one layer have left.

    Attributes:
        every: whether all states are kept, or one of those that look the same.
        kept: all of them.
    """

    every: bool = False
    kept: list[Kept] = field(default_factory=list)
    _known: dict[tuple[int, ...], Kept] = field(default_factory=dict)
    _looks: dict[tuple[int, SpecValue], int] = field(default_factory=dict)
    _numbers: dict[tuple[int, SpecValue], int] = field(default_factory=dict)
    _current: list[int] = field(default_factory=list)
    _passed: set[int] = field(default_factory=set)

    def came_by(self, values: tuple[Any, ...]) -> bool:
        """Whether a walk has visited the state with these values; marks it as visited."""
        state = hash(values)
        if state in self._passed:
            return True
        if len(self._passed) < MOST_PASSED:
            self._passed.add(state)
        return False

    def choose(self, random: Random) -> Kept | None:
        """The kept state in which the next walk begins, or None for the first state."""
        if not self.kept or random.random() < ANEW:
            return None
        found = min(random.choices(self.kept, k=AMONG), key=lambda kept: kept.visits)
        found.visits += 1
        return found

    def begin(self, spec: State) -> None:
        """A walk begins in this state."""
        self._current = [self._look(place, value) for place, value in enumerate(spec)]

    def offer(self, state: Any, spec: State, changed: int, schedule: Sequence[Instance]) -> None:
        """Keep a state if it looks new.

        Args:
            state: the state to which a step of the walk has led.
            spec: the same, as the spec has it.
            changed: the variables that have another value than before the step, as a set of bits.
            schedule: how it was reached.
        """
        current = self._current
        for place in range(len(spec)):
            if changed >> place & 1:
                current[place] = self._look(place, spec[place])
        looks = tuple(current)
        known = self._known.get(looks)
        if known is not None:
            known.visits += 1
            return
        if len(self.kept) >= MOST_KEPT:
            return
        kept = self._known[looks] = Kept(state, tuple(schedule))
        self.kept.append(kept)

    def _look(self, place: int, value: SpecValue) -> int:
        """A number for a variable's value: the same for all that look the same."""
        found = self._looks.get((place, value))
        if found is None:
            found = self._numbers.setdefault((place, value if self.every else rough(value)), len(self._numbers))
            self._looks[place, value] = found
        return found


def rough(value: SpecValue) -> SpecValue:
    """A value without the numbers and elements that are too many to tell apart."""
    if value.__class__ is int:
        return min(value, MOST_NUMBER)
    if isinstance(value, frozenset):
        return frozenset(map(rough, value))
    if isinstance(value, tuple):
        return (min(len(value), MOST_ELEMENTS + 1), *map(rough, value[-MOST_ELEMENTS:]))
    if isinstance(value, Map):
        return Map({key: rough(inner) for key, inner in value.items()})
    return value
