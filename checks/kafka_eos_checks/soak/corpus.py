"""States that walks have met and that are worth going on from: what is new is kept, and leads to what is newer.

A walk from the first state seldom gets deep: most of its steps are those that every walk takes. So every state that
looks new is kept, and most of the later walks begin in one of them: half of these in a state that was the first in
which two variables had the values that they have, the others in any. A few states are drawn, the later ones more often,
and of those the walk takes the one that walks have come by most seldom. Numbers above :data:`MOST_NUMBER`, and all but
the last :data:`MOST_ELEMENTS` elements of a sequence, look the same.

Of every state the hash is remembered, so that a walk can prefer a step to where none was: where states are few, walks
soon do little else but repeat each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from immutables import Map

from kafka_eos.machine import Instance
from kafka_eos.spec_mapping import SpecValue
from kafka_eos_checks.soak.formulas import State

MOST_NUMBER = 3
MOST_ELEMENTS = 2
MOST_KEPT = 50_000
MOST_PASSED = 2_000_000
ANEW = 0.3  # how often a walk begins in the first state
PAIRED = 0.5  # how often one that does not begins in a state that was the first with two values at a time
LATE = 0.5  # below 1: states that were kept late are drawn more often
AMONG = 6  # so many kept states are drawn


@dataclass(slots=True)
class Kept:
    """A state that looked new.

    Attributes:
        state: of the machine.
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
        kept: all of them.
        paired: those that were the first in which two variables had two values at a time.
    """

    kept: list[Kept] = field(default_factory=list)
    paired: list[Kept] = field(default_factory=list)
    _known: dict[tuple[int, ...], Kept] = field(default_factory=dict)
    _pairs: set[tuple[int, int]] = field(default_factory=set)
    _looks: dict[tuple[int, SpecValue], int] = field(default_factory=dict)
    _numbers: dict[tuple[int, SpecValue], int] = field(default_factory=dict)
    _current: list[int] = field(default_factory=list)
    _passed: set[int] = field(default_factory=set)

    def came_by(self, values: tuple[Any, ...]) -> bool:
        """Whether a walk has come by the state with these values; from now on one has."""
        state = hash(values)
        if state in self._passed:
            return True
        if len(self._passed) < MOST_PASSED:
            self._passed.add(state)
        return False

    def choose(self, random: Random) -> Kept | None:
        """Where the next walk begins: in a kept state, or None for the first state."""
        if not self.kept or random.random() < ANEW:
            return None
        among = self.paired if random.random() < PAIRED else self.kept
        drawn = (among[int(len(among) * random.random() ** LATE)] for _ in range(AMONG))
        found = min(drawn, key=lambda kept: kept.visits)
        found.visits += 1
        return found

    def begin(self, spec: State) -> None:
        """A walk begins in this state."""
        self._current = [self._look(place, value) for place, value in enumerate(spec)]

    def offer(self, state: Any, spec: State, changed: int, schedule: Sequence[Instance]) -> None:
        """Keep a state if it looks new.

        Args:
            state: that a step of the walk has led to.
            spec: the same, as the spec has it.
            changed: the variables that have another value than before the step, as a set of bits.
            schedule: how it was reached.
        """
        current = self._current
        places = [place for place in range(len(spec)) if changed >> place & 1]
        for place in places:
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
        before = len(self._pairs)
        for place in places:
            one = current[place]
            self._pairs.update((one, other) if one < other else (other, one) for other in current)
        if len(self._pairs) > before:
            self.paired.append(kept)

    def _look(self, place: int, value: SpecValue) -> int:
        """A number for a variable's value: the same for all that look the same."""
        found = self._looks.get((place, value))
        if found is None:
            found = self._numbers.setdefault((place, rough(value)), len(self._numbers))
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
