"""Breadth-first search over a machine: its states, labelled edges and refusals."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafka_eos.errors import ErrorCode, NotEnabled, Rejected
from kafka_eos.machines.machine import Instance, Machine, step

_State = TypeVar("_State", bound=Machine)

OUTSIDE = -1  # the target of an edge that leaves the bounds


class TooManyStates(RuntimeError):  # noqa: N818 - named for what is wrong with the machine or its bounds
    """The search met more states than it was allowed to; the bounds do not bound the machine."""


@dataclass(slots=True)
class Exploration(Generic[_State]):
    """The result of a search.

    Attributes:
        instances: every instance that was tried in every state.
        states: the states within the bounds, in the order they were found; the initial one first. If asked for, also
            those just outside, which no edge leaves.
        index: state -> its place in ``states``.
        parents: for each state the place of the state it was first found from, -1 for the initial one.
        parent_instances: for each state the place of the instance that led to it first, -1 for the initial one.
        sources: for each edge the place of its source; edges are in the order of their sources.
        labels: for each edge the place of its instance.
        targets: for each edge the place of its target, or ``OUTSIDE``.
        refusals: (action, the error code or None for an action that is not enabled) -> how often.
    """

    instances: Sequence[Instance]
    states: list[_State] = field(default_factory=list)
    index: dict[_State, int] = field(default_factory=dict)
    parents: "array[int]" = field(default_factory=lambda: array("l"))
    parent_instances: "array[int]" = field(default_factory=lambda: array("l"))
    sources: "array[int]" = field(default_factory=lambda: array("l"))
    labels: "array[int]" = field(default_factory=lambda: array("l"))
    targets: "array[int]" = field(default_factory=lambda: array("l"))
    refusals: Counter[tuple[str, ErrorCode | None]] = field(default_factory=Counter)

    def path_to(self, state: int) -> list[Instance]:
        """A shortest path from the initial state to the one at this place."""
        path: list[Instance] = []
        while self.parents[state] >= 0:
            path.append(self.instances[self.parent_instances[state]])
            state = self.parents[state]
        return path[::-1]


def attempt(state: _State, instance: Instance) -> _State | NotEnabled | Rejected:
    """The state after an action, or why there is none."""
    try:
        return step(state, instance)
    except (NotEnabled, Rejected) as refusal:
        return refusal


def _unbounded(state: Machine) -> bool:  # noqa: ARG001 - a predicate over states
    return True


def explore(
    initial: _State,
    instances: Sequence[Instance],
    within_bounds: Callable[[_State], bool] = _unbounded,
    limit: int = 5_000_000,
    on_progress: Callable[[int, int], None] | None = None,
    on_refusal: Callable[[int, int, NotEnabled | Rejected], None] | None = None,
    *,
    keep_outside: bool = False,
) -> Exploration[_State]:
    """Search breadth-first from one state, trying every instance in every state.

    Args:
        initial: the state where the search begins.
        instances: the action instances to try in each state.
        within_bounds: TLC's CONSTRAINT: a state outside is generated, but not expanded.
        limit: the maximum number of states.
        on_progress: called now and then with the numbers of states expanded and found.
        on_refusal: called with the places of a state and of an instance that it refuses, and the reason.
        keep_outside: whether a state outside the bounds is kept, too; otherwise it is no target of its own.

    Raises:
        TooManyStates: when there are more than ``limit`` states.
    """
    found: Exploration[_State] = Exploration(instances)
    if within_bounds(initial):
        _keep(found, initial, -1, -1)
    source = 0
    while source < len(found.states):
        if on_progress is not None and source % 4096 == 0:
            on_progress(source, len(found.states))
        state = found.states[source]
        for label, instance in enumerate(instances if not keep_outside or within_bounds(state) else ()):
            after = attempt(state, instance)
            if isinstance(after, NotEnabled | Rejected):
                found.refusals[instance.action.name, after.code if isinstance(after, Rejected) else None] += 1
                if on_refusal is not None:
                    on_refusal(source, label, after)
                continue
            target = found.index.get(after)
            if target is None:
                kept = keep_outside or within_bounds(after)
                target = _keep(found, after, source, label) if kept else OUTSIDE
            found.sources.append(source)
            found.labels.append(label)
            found.targets.append(target)
        if len(found.states) > limit:
            raise TooManyStates(f"{type(initial).__name__}: more than {limit:,} states; bound the search")
        source += 1
    return found


def _keep(found: Exploration[_State], state: _State, parent: int, label: int) -> int:
    place = found.index[state] = len(found.states)
    found.states.append(state)
    found.parents.append(parent)
    found.parent_instances.append(label)
    return place
