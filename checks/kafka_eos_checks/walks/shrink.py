"""Delta debugging: shrink a run that is wrong to a minimal schedule.

Chunks of steps are left out, ever smaller ones, then single steps, then pairs, until leaving out anything makes the
violation go away. A step that is not enabled without those before it is skipped, so the steps that depend on a removed
step go with it. Finally a search looks for a shorter schedule of the same steps.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from kafka_eos.machines.machine import Instance
from kafka_eos_checks.walks.properties import Wrong
from kafka_eos_checks.walks.walk import Run, Walker, shape_of

MOST_PAIRS = 40  # the longest schedule, in steps, of which all pairs are tried
MOST_STATES = 15_000  # the states that the search for a shortest schedule visits at most

Fails = Callable[[Sequence[Instance]], list[Instance] | None]


def shrunk(walker: Walker, run: Run) -> tuple[Wrong, list[Instance], bool]:
    """The violation of a run, a minimal schedule that has it, and whether the run is at rest when it has it.

    The schedule ends where the violation is seen; for a goal that is not reached, where the faults stop.
    """
    assert run.wrong is not None
    wrong, whole = run.wrong, [*run.schedule, *run.fair]
    again, taken, _ = walker.replay(whole)
    at_rest = not wrong.is_like(again)

    def fails(schedule: Sequence[Instance]) -> list[Instance] | None:
        found, kept, _ = walker.replay(schedule, seed=run.seed if at_rest else None)
        if not wrong.is_like(found):
            return None
        return kept[: len(schedule)] if at_rest else kept

    start = fails(run.schedule) if at_rest else taken
    if start is None:
        return wrong, run.schedule, at_rest
    if at_rest:
        start = run.schedule
        return wrong, _minimal(start, lambda s: list(s) if fails(s) is not None else None), at_rest
    shorter = _minimal(start, fails)
    return wrong, _shortest(walker, shorter, wrong), at_rest


def _shortest(walker: Walker, schedule: list[Instance], sought: Wrong) -> list[Instance]:
    """A shortest schedule of the same kinds of steps, found breadth-first; the given one, if that takes long."""
    # one of each kind: steps that differ from it only in numbers are tried with it
    kinds = {(step.action.name, shape_of(step)): step for step in schedule}
    is_of_steps = any(part.name == sought.name for part in walker.judge.steps)
    first = walker.initial(walker.constants)
    paths: dict[Any, tuple[Any, Instance] | None] = {first: None}
    frontier = [first]
    for _ in range(len(schedule) - 1):
        further = []
        for state in frontier:
            for step, after in (one for kind in kinds.values() for one in walker.alike(state, kind)):
                if after in paths and not is_of_steps:
                    continue
                wrong = walker.judged(state, after)
                if sought.is_like(wrong):
                    return [*_path(paths, state), step]
                if wrong is None and after not in paths:
                    paths[after] = (state, step)
                    further.append(after)
            if len(paths) > MOST_STATES:
                return schedule
        frontier = further
    return schedule


def _path(paths: dict[Any, tuple[Any, Instance] | None], state: Any) -> list[Instance]:
    taken: list[Instance] = []
    while (before := paths[state]) is not None:
        state = before[0]
        taken.append(before[1])
    return taken[::-1]


def _minimal(schedule: list[Instance], fails: Fails) -> list[Instance]:
    while True:
        shorter = _without_pairs(_without_chunks(schedule, fails), fails)
        if len(shorter) >= len(schedule):
            return shorter
        schedule = shorter


def _without_chunks(schedule: list[Instance], fails: Fails) -> list[Instance]:
    size = max(1, len(schedule) // 2)
    while True:
        place = 0
        before = len(schedule)
        while place < len(schedule):
            found = fails(schedule[:place] + schedule[place + size :])
            if found is not None:
                schedule = found
            else:
                place += size
        if size == 1 and len(schedule) == before:
            return schedule
        size = max(1, size // 2)


def _without_pairs(schedule: list[Instance], fails: Fails) -> list[Instance]:
    if len(schedule) > MOST_PAIRS:
        return schedule
    for one, two in combinations(range(len(schedule)), 2):
        found = fails([step for place, step in enumerate(schedule) if place not in {one, two}])
        if found is not None:
            return found
    return schedule
