"""A seeded simulator: one long random run of a machine, with named faults, under the same actions that TLC searches.

Faults are actions. Each has a weight, and a run draws its next action by weight among those that are enabled. When the
steps are used up the faults stop, except those that mend what others broke: a batch is sent again, a leader elected.
The run goes on until nothing is enabled any more or the same number of steps has passed: whatever is not at rest then
is stuck.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Generic, TypeVar

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.machine import Action, Instance, Machine, actions, step

_State = TypeVar("_State", bound=Machine)
Arguments = Sequence[tuple[Hashable, ...]]

ORDINARY_WEIGHT = 10.0


@dataclass(frozen=True, slots=True)
class Taken(Generic[_State]):
    """A step of a run: the state before, the action taken, the state after."""

    before: _State
    instance: Instance
    after: _State


class Simulation(Generic[_State]):
    """A run that a seed determines.

    Args:
        machine: the machine's class.
        constants: its constants.
        seed: the same seed gives the same run.
        faults: action -> weight; an ordinary action has weight 10, and weight 0 never happens.
        recovery: the faults that go on, with their weights, when the others stop.
        possible: action -> the arguments that are worth a try in a state, in an order that only the state decides; for
            an action that is not named all arguments are tried.
    """

    def __init__(
        self,
        machine: type[_State],
        constants: Any,
        seed: int,
        faults: Mapping[str, float],
        recovery: Collection[str] = (),
        possible: Mapping[str, Callable[[_State], Arguments]] | None = None,
    ) -> None:
        self.state = machine.initial(constants)
        self._random = Random(seed)
        self._faults = dict(faults)
        self._recovery = frozenset(recovery)
        self._possible = dict(possible or {})
        self._actions: dict[str, Action] = {action.name: action for action in actions(machine)}
        self._instances: dict[str, list[Instance]] = {
            name: [Instance(action, given) for given in product(*(constants.domain(d) for d in action.domains))]
            for name, action in self._actions.items()
            if name not in self._possible
        }
        unknown = (faults.keys() | self._recovery | self._possible.keys()) - self._actions.keys()
        if unknown:
            known = ", ".join(sorted(self._actions))
            raise ValueError(f"{machine.MODULE} has no action {min(unknown)!r}; its actions are {known}")
        below = [name for name, weight in self._faults.items() if weight < 0]
        if below:
            raise ValueError(f"the weight of {below[0]} is below 0; with 0 it never happens")

    def run(self, steps: int) -> Iterator[Taken[_State]]:
        """Take steps with faults, then let the system come to rest without them.

        Args:
            steps: number of steps with faults; at most as many follow without.
        """
        weights = dict.fromkeys(self._actions, ORDINARY_WEIGHT) | self._faults
        yield from self._take(steps, weights)
        stopped = self._faults.keys() - self._recovery
        yield from self._take(steps, {name: weight for name, weight in weights.items() if name not in stopped})

    def _take(self, steps: int, weights: Mapping[str, float]) -> Iterator[Taken[_State]]:
        for _ in range(steps):
            taken = self._step(weights)
            if taken is None:
                return
            self.state = taken.after
            yield taken

    def _candidates(self, name: str) -> list[Instance]:
        if name in self._possible:
            return [Instance(self._actions[name], given) for given in self._possible[name](self.state)]
        return self._instances[name]

    def _step(self, weights: Mapping[str, float]) -> Taken[_State] | None:
        """The next step, or None when no action with a weight is enabled."""
        waiting = {name: weight for name, weight in weights.items() if weight > 0}
        while waiting:
            (name,) = self._random.choices(list(waiting), list(waiting.values()))
            del waiting[name]
            candidates = self._candidates(name)
            for instance in self._random.sample(candidates, len(candidates)):
                try:
                    return Taken(self.state, instance, step(self.state, instance))
                except (NotEnabled, Rejected):
                    continue
        return None
