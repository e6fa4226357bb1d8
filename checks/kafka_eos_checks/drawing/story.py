"""A behaviour as a story: one line a step, and under it only what the step changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_eos.spec_mapping import SpecValue
from kafka_eos_checks.tla_values import format_value, order

State = Mapping[str, SpecValue]
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a behaviour.

    Attributes:
        action: the action with its arguments where they are known; ``Init`` for the first state.
        state: the state after the step, by variable.
    """

    action: str
    state: State


@dataclass(frozen=True, slots=True)
class Change:
    """One place where two states differ.

    Attributes:
        path: the place, as TLA+ writes it: ``log.producers[0].epoch``.
        old: the value before, in TLA+, or ``absent``; "" for an element that a set gains.
        new: the value after, likewise; "" for an element that a set loses.
    """

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        if not self.old:
            return f"{self.path} gains {self.new}"
        if not self.new:
            return f"{self.path} loses {self.old}"
        return f"{self.path}: {self.old} -> {self.new}"


def _shown(value: object) -> str:
    return "absent" if value is _ABSENT else format_value(value)


def _is_record(value: Mapping[SpecValue, SpecValue]) -> bool:
    return bool(value) and all(isinstance(key, str) for key in value)


def _as_function(value: object) -> Mapping[SpecValue, SpecValue] | None:
    """A function or a sequence by its keys; None for everything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(enumerate(value, start=1))
    return None


def _differences(path: str, old: object, new: object) -> Iterator[Change]:
    if old is not _ABSENT and new is not _ABSENT:
        if old == new and type(old) is type(new):
            return
        if isinstance(old, frozenset) and isinstance(new, frozenset):
            yield from (Change(path, element, "") for element in sorted(map(format_value, old - new)))
            yield from (Change(path, "", element) for element in sorted(map(format_value, new - old)))
            return
        before, after = _as_function(old), _as_function(new)
        if before is not None and after is not None:
            record = _is_record(before) or _is_record(after)
            for key in sorted({*before, *after}, key=order):
                inner = f"{path}.{key}" if record else f"{path}[{format_value(key)}]"
                yield from _differences(inner, before.get(key, _ABSENT), after.get(key, _ABSENT))
            return
    yield Change(path, _shown(old), _shown(new))


def differences(old: State, new: State) -> list[Change]:
    """Where two states differ, as deep inside their values as possible."""
    return [change for name in old for change in _differences(name, old[name], new.get(name, _ABSENT))]


def _state_lines(state: State) -> list[str]:
    return [f"       {name} = {format_value(value)}" for name, value in state.items()]


def tell(steps: Sequence[Step], ending: str = "", loop_to: int | None = None) -> str:
    """The story of a behaviour.

    Args:
        steps: the behaviour; its first step is the initial state and is shown in full.
        ending: what the behaviour shows: which property is violated, or which step is not allowed.
        loop_to: the number of the step, from 1, to which a behaviour without end goes back.
    """
    lines: list[str] = []
    for number, step in enumerate(steps, start=1):
        lines.append(f"{number:4d}  {step.action}")
        if number == 1:
            lines += _state_lines(step.state)
            continue
        changes = differences(steps[number - 2].state, step.state)
        lines += [f"       {change}" for change in changes] or ["       nothing changes"]
    if loop_to is not None:
        lines.append(f"      and again from step {loop_to}" if loop_to < len(steps) else "      and so for ever")
    if ending:
        lines.append(ending)
    return "\n".join(lines)
