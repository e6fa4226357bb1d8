"""A behaviour as a story: a sentence a step, and under it only what the step changed.

A story is for people who know Kafka and need not know TLA+: values are told in words. Differences between two floors
(:func:`differences`) stay in TLA+, where ``"1"`` is not ``1``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from kafka_eos.machines.spec_mapping import SpecValue
from kafka_eos_checks.drawing.story_words import NO_WORDS, Words
from kafka_eos_checks.tla.behaviour import State, Step
from kafka_eos_checks.tla.values import MalformedValue, format_value, order, parse_value

WIDTH = 116  # columns of a story
_ABSENT = object()
_CALL = re.compile(r"(\w+)\((.*)\)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Change:
    """A place where two states differ.

    Attributes:
        place: the record that is changed, or a place that is no field of one: ``log.producers[0]``.
        field: the field of that record, or "".
        old: the value before; ``_ABSENT`` for what is new.
        new: the value after; ``_ABSENT`` for what is gone.
        element: whether a set or sequence gains or loses an element, rather than a place its value.
    """

    place: str
    field: str
    old: object
    new: object
    element: bool = False

    @property
    def path(self) -> str:
        """The whole place: ``log.producers[0].epoch``."""
        return f"{self.place}.{self.field}" if self.field else self.place

    def told(self, show: Callable[[object], str]) -> str:
        """The change, to follow the name of its place or field."""
        if self.element:
            return f" gains {show(self.new)}" if self.old is _ABSENT else f" loses {show(self.old)}"
        if self.old is _ABSENT:
            return f" is new: {show(self.new)}"
        if self.new is _ABSENT:
            return f" is gone; it was {show(self.old)}"
        return f": {show(self.old)} -> {show(self.new)}"

    def __str__(self) -> str:
        return self.path + self.told(format_value)


def in_words(value: object) -> str:
    """A value without TLA+'s marks: ``(epoch 0, error NONE)``, ``{p, q}``, ``[1, 2]``, ``yes``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return f"[{', '.join(map(in_words, value))}]"
    if isinstance(value, frozenset):
        return f"{{{', '.join(in_words(each) for each in sorted(value, key=order))}}}"
    if isinstance(value, Mapping):
        between = " " if _is_record(value) else ": "
        return f"({', '.join(in_words(key) + between + in_words(value[key]) for key in sorted(value, key=order))})"
    return str(value)


def _is_record(value: Mapping[SpecValue, SpecValue]) -> bool:
    return bool(value) and all(isinstance(key, str) for key in value)


def _as_function(value: object) -> Mapping[SpecValue, SpecValue] | None:
    """A function or a sequence by its keys; None for everything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(enumerate(value, start=1))
    return None


def _ends(old: object, new: object) -> tuple[list[SpecValue], list[SpecValue]] | None:
    """The elements that a set, or a sequence at one end, loses and gains; None for all other changes."""
    if isinstance(old, frozenset) and isinstance(new, frozenset):
        return sorted(old - new, key=order), sorted(new - old, key=order)
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) != len(new):
        if new[: len(old)] == old:
            return [], list(new[len(old) :])
        if old[len(old) - len(new) :] == new:
            return list(old[: len(old) - len(new)]), []
        if old[: len(new)] == new:
            return list(old[len(new) :]), []
    return None


def _differences(place: str, field: str, old: object, new: object) -> Iterator[Change]:
    if old == new and type(old) is type(new):
        return
    ends = _ends(old, new)
    if ends is not None:
        yield from (Change(place, field, each, _ABSENT, element=True) for each in ends[0])
        yield from (Change(place, field, _ABSENT, each, element=True) for each in ends[1])
        return
    before, after = _as_function(old), _as_function(new)
    resized = isinstance(old, tuple) and isinstance(new, tuple) and len(old) != len(new)
    if before is None or after is None or resized:
        yield Change(place, field, old, new)
        return
    path = f"{place}.{field}" if field else place
    record = _is_record(before) or _is_record(after)
    for key in sorted({*before, *after}, key=order):
        inner = (path, str(key)) if record else (f"{path}[{format_value(key)}]", "")
        yield from _differences(*inner, before.get(key, _ABSENT), after.get(key, _ABSENT))


def differences(old: State, new: State) -> list[Change]:
    """The differences of two states, as deep inside their values as possible."""
    return [change for name in old for change in _differences(name, "", old[name], new.get(name, _ABSENT))]


def changes_in_words(old: State, new: State) -> Iterator[tuple[str, str]]:
    """The changes of a step in words, each with its variable; short changes of one record share a line."""
    lines: dict[str, list[str]] = {}
    for each in differences(old, new):
        short = each.field and not any(isinstance(value, Mapping | tuple) for value in (each.old, each.new))
        if short:
            lines.setdefault(f"{each.place}: ", []).append(each.field + each.told(in_words).replace(": ", " ", 1))
        else:
            lines.setdefault(each.path, []).append(each.told(in_words))
    for place, told in lines.items():
        shown = re.sub(r'\["(\w+)"\]', r"[\1]", place)
        variable = re.split(r"[.\[:]", place, maxsplit=1)[0]
        together = [", ".join(told)] if place.endswith(": ") else told
        yield from ((variable, shown + each) for each in together)


def _call(action: str, words: Words) -> str:
    """An action with the names of its parameters: ``AppendBatch(value 1, attempt 2)``."""
    found = _CALL.match(action)
    if found is None:
        return action
    try:
        values = parse_value(f"<<{found[2]}>>")
    except MalformedValue:
        return action
    names = words.parameters.get(found[1], ())
    if not isinstance(values, tuple) or len(names) != len(values):
        return action
    return f"{found[1]}({', '.join(f'{name} {in_words(value)}' for name, value in zip(names, values, strict=True))})"


def folded(text: str, indent: int = 0) -> list[str]:
    """A paragraph, whose further lines are indented by four more."""
    return wrap(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _beginning(state: State) -> Iterator[str]:
    """The lines of the first state; empty variables are only named."""
    yield "   0  At the start"
    empty = [name for name, value in state.items() if value in (frozenset(), ())]
    for name, value in state.items():
        if name not in empty:
            yield from folded(f"{name}: {in_words(value)}", 8)
    if empty:
        yield from folded(f"empty: {', '.join(empty)}", 8)


def tell(steps: Sequence[Step], ending: str = "", loop_to: int | None = None, words: Words = NO_WORDS) -> str:
    """The story of a behaviour.

    Args:
        steps: the behaviour; its first step is the initial state and is shown in full.
        ending: what the behaviour shows: which property is violated, or which step is not allowed.
        loop_to: the number of the state, from 1, to which a behaviour without end goes back.
        words: the sentences of the actions, the names of their parameters and the meanings of variables, where known.
    """
    states = [_in_order(step.state, words) for step in steps]
    lines = list(_beginning(states[0])) if states else []
    explained: set[str] = set()
    for number, step in enumerate(steps[1:], start=1):
        lines += _step(number, step.action, words)
        changed = list(changes_in_words(states[number - 1], states[number]))
        for variable, change in changed:
            lines += folded(change, 8)
            if variable not in explained and words.variables.get(variable):
                lines += folded(f"({variable}: {words.variables[variable]})", 10)
            explained.add(variable)
        if not changed:
            lines.append("        nothing changes")
    if loop_to is not None:
        lines.append(
            f"      and again from step {loop_to}" if loop_to < len(steps) else "      and then nothing more happens"
        )
    if ending:
        lines += ending.splitlines()
    return "\n".join(lines)


def _in_order(state: State, words: Words) -> State:
    """A state in the order in which the module declares its variables."""
    known = [name for name in words.variables if name in state]
    return {name: state[name] for name in [*known, *(name for name in state if name not in known)]}


def _step(number: int, action: str, words: Words) -> list[str]:
    """The sentence of an action, and the action with its arguments under it."""
    call = _call(action, words)
    sentence = words.sentences.get(action.partition("(")[0], "")
    return folded(f"{number:4d}  {sentence or call}", 0) + (folded(call, 6) if sentence else [])
