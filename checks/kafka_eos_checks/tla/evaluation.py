"""The operators of TLA+ that compiled formulas call, and a fast conversion of a machine's states for them.

Values are canonical (:func:`kafka_eos_checks.tla.values.canonical`): a function over 1..n is a tuple, whether the spec
calls it a sequence or not. So equal values are equal in Python.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import combinations, product
from operator import attrgetter
from typing import Any

from immutables import Map
from pyrsistent import PVector

from kafka_eos.machines.spec_mapping import NONE, SpecValue, camel_case
from kafka_eos_checks.tla.values import function


class Undefined(ArithmeticError):  # noqa: N818 - TLA+'s word
    """An expression that has no value: a function outside of its domain, CHOOSE from nothing."""


def pairs_of(value: SpecValue) -> dict[Any, Any]:
    """The inverse of :func:`kafka_eos_checks.tla.values.function`."""
    return dict(enumerate(value, start=1)) if type(value) is tuple else dict(value)


def _fields(record: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The TLA+ names of a record's fields, and a function that gets their values."""
    names = [f.name for f in fields(record) if f.compare]
    if len(names) == 1:
        return (camel_case(names[0]),), lambda value: (getattr(value, names[0]),)
    return tuple(map(camel_case, names)), attrgetter(*names)


class Converter:
    """A converter of a machine's values to values of the spec; a known value is not converted again.

    A machine's values are persistent: a step makes only a few new ones. They are known by identity, so remembered
    values are kept alive. Equal results are one object, so that they can be compared by identity too.
    """

    def __init__(self, most: int = 200_000) -> None:
        """Remember at most this many values, then start again."""
        self._most = most
        self._makers: dict[type, Callable[[Any], SpecValue]] = {}
        self._seen: dict[int, tuple[Any, SpecValue]] = {}
        self._same: dict[SpecValue, SpecValue] = {}

    def forget(self) -> bool:
        """Forget all values and return True if many are remembered. Returned values keep their value, not identity."""
        if len(self._seen) <= self._most:
            return False
        self._seen.clear()
        self._same.clear()
        return True

    def copy(self) -> "Converter":
        """A converter that knows the same values, and does not tell this one what it learns."""
        other = Converter(self._most)
        other._seen = dict(self._seen)
        other._same = dict(self._same)
        return other

    def __call__(self, value: Any) -> SpecValue:
        """The value of the spec."""
        kind = value.__class__
        if kind is str or kind is int or kind is bool:
            return value
        if value is None:
            return NONE
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        made = self._made(value)
        made = self._same.setdefault(made, made)
        self._seen[id(value)] = (value, made)
        return made

    def _made(self, value: Any) -> SpecValue:
        kind = type(value)
        make = self._makers.get(kind)
        if make is None:
            make = self._makers[kind] = self._maker(kind)
        return make(value)

    def _maker(self, kind: type) -> Callable[[Any], SpecValue]:
        """The function that converts values of a class."""
        if issubclass(kind, Enum):
            return lambda value: value.name
        if is_dataclass(kind):
            names, values = _fields(kind)
            return lambda value: Map(zip(names, map(self, values(value)), strict=True))
        if issubclass(kind, (frozenset, set)):
            return lambda value: frozenset(map(self, value))
        if issubclass(kind, Mapping):
            return lambda value: function({self(key): self(inner) for key, inner in value.items()})
        if issubclass(kind, (tuple, PVector)):
            return lambda value: tuple(map(self, value))
        if issubclass(kind, (str, int)):
            return lambda value: value
        raise TypeError(f"no TLA+ value for {kind.__name__}")


# --- what compiled formulas call --------------------------------------------------------------------------------------


def apply(value: SpecValue, argument: SpecValue) -> SpecValue:
    """A function's value."""
    if value.__class__ is tuple:
        if argument.__class__ is not int or not 1 <= argument <= len(value):
            raise Undefined(f"{argument!r} is outside of 1..{len(value)}")
        return value[argument - 1]
    try:
        return value[argument]
    except KeyError:
        raise Undefined(f"{argument!r} is outside of the function's domain") from None


def domain(value: SpecValue) -> Iterable[Any]:
    """A function's domain, to be iterated over."""
    return range(1, len(value) + 1) if value.__class__ is tuple else value.keys()


def choose(found: Iterator[Any]) -> SpecValue:
    """The first of what was found."""
    for one in found:
        return one
    raise Undefined("CHOOSE from nothing")


def changed(value: SpecValue, path: tuple[Any, ...], change: Callable[[Any], Any]) -> SpecValue:
    """``[value EXCEPT ![path] = change(@)]``."""
    if not path:
        return change(value)
    head, rest = path[0], path[1:]
    inner = changed(apply(value, head), rest, change)
    if value.__class__ is tuple:
        return (*value[: head - 1], inner, *value[head:])
    return value.set(head, inner)


def merged(first: SpecValue, second: SpecValue) -> SpecValue:
    """``first @@ second``."""
    return function({**pairs_of(second), **pairs_of(first)})


def subsets(elements: Iterable[Any]) -> Iterator[SpecValue]:
    """Every subset."""
    given = tuple(elements)
    for size in range(len(given) + 1):
        yield from map(frozenset, combinations(given, size))


def functions(arguments: Iterable[Any], values: Iterable[Any]) -> Iterator[SpecValue]:
    """Every function from a set into another."""
    given, possible = tuple(arguments), tuple(values)
    for chosen in product(possible, repeat=len(given)):
        yield function(dict(zip(given, chosen, strict=True)))


def union(sets: Iterable[Iterable[Any]]) -> SpecValue:
    """``UNION sets``."""
    return frozenset(element for inner in sets for element in inner)


def selected(sequence: SpecValue, test: Callable[[Any], bool]) -> SpecValue:
    """``SelectSeq``."""
    return tuple(element for element in sequence if test(element))


def head(sequence: SpecValue) -> SpecValue:
    """``Head``."""
    if not sequence:
        raise Undefined("Head of an empty sequence")
    return sequence[0]


def append(sequence: SpecValue, element: SpecValue) -> SpecValue:
    """``Append``."""
    return (*sequence, element)


def subsequence(sequence: SpecValue, first: int, last: int) -> SpecValue:
    """``SubSeq``."""
    return sequence[first - 1 : last]


class Lazy:
    """A definition of a LET: evaluated when it is asked for, once."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def get(self) -> Any:
        """The value."""
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value
