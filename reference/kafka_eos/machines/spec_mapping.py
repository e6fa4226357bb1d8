"""The mapping between the reference's values and TLA+ values: one typed pair of functions for all machines.

==================  ==========================  =======================================
TLA+                value here                  reference
==================  ==========================  =======================================
integer, boolean    int, bool                   int, bool
string              str                         str; an ``ErrorCode`` by its name
``"none"``          "none"                      None, where the field is ``T | None``
set                 frozenset                   frozenset[T]
sequence            tuple                       tuple[T, ...] or a persistent vector
function            immutables.Map              persistent map
record              immutables.Map of str       frozen dataclass, fields in snake_case
==================  ==========================  =======================================

TLC prints a function over 1..n as a sequence and the empty function as ``<<>>``; the type asked for decides.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pyrsistent import PVector, pvector

SpecValue: TypeAlias = Any  # int | bool | str | frozenset | tuple | Map, nested

NONE = "none"


@cache
def snake_case(name: str) -> str:
    """``producerId`` -> ``producer_id``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1], name).lower()


@cache
def camel_case(name: str, *, capital: bool = False) -> str:
    """``producer_id`` -> ``producerId`` (a variable or field) or ``ProducerId`` (a constant)."""
    head, *rest = name.split("_")
    return (head.capitalize() if capital else head) + "".join(word.capitalize() for word in rest)


@cache
def _fields(record: type) -> tuple[tuple[str, str, Any], ...]:
    """(field, TLA+ field, type) of a dataclass that is a record of the spec."""
    hints = get_type_hints(record)
    return tuple((f.name, camel_case(f.name), hints[f.name]) for f in fields(record) if f.compare)


@cache
def record_fields(record: type) -> dict[str, str]:
    """The fields of a dataclass that is a record of the spec, by their names in TLA+; none of any other type."""
    return {name: field for field, name, _ in _fields(record)} if is_dataclass(record) else {}


@cache
def _constant_fields(record: type) -> tuple[tuple[str, Any], ...]:
    """(field, type) of each field that follows from the constants and is no part of the record's identity."""
    hints = get_type_hints(record)
    return tuple((f.name, hints[f.name]) for f in fields(record) if not f.compare)


def to_spec(value: Any) -> SpecValue:
    """The TLA+ value of a value of the reference."""
    result: SpecValue
    if value is None:
        result = NONE
    elif isinstance(value, Enum):
        result = value.name
    elif isinstance(value, (bool, int, str)):
        result = value
    elif isinstance(value, (frozenset, set)):
        result = frozenset(map(to_spec, value))
    elif isinstance(value, Mapping):
        result = Map({to_spec(k): to_spec(v) for k, v in value.items()})
    elif is_dataclass(value) and not isinstance(value, type):
        record: type = type(value)
        result = Map({name: to_spec(getattr(value, field)) for field, name, _ in _fields(record)})
    elif isinstance(value, (tuple, PVector)):
        result = tuple(map(to_spec, value))
    else:
        raise TypeError(f"no TLA+ value for {type(value).__name__}")
    return result


def _entries(value: SpecValue) -> list[tuple[SpecValue, SpecValue]]:
    """The pairs of a function, also when TLC printed it as a sequence."""
    if isinstance(value, tuple):
        return list(enumerate(value, start=1))
    return list(_of_kind(Map, value).items())


def _of_kind(kind: type, value: SpecValue) -> SpecValue:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value


Context: TypeAlias = Mapping[type, Any]
_NO_CONTEXT: Context = Map()


def from_spec(hint: Any, value: SpecValue, context: Context = _NO_CONTEXT) -> Any:
    """The value of the reference, of the type asked for, that a TLA+ value stands for.

    Args:
        hint: the type asked for.
        value: the TLA+ value.
        context: what the spec's values lack, by type: the class to make instead of a record's class, and the value
            of each field that is no part of a record's identity (``compare=False``: what follows from the constants).

    Raises:
        TypeError: when the value does not fit the type.
    """
    origin = get_origin(hint) or hint
    arguments = get_args(hint)
    if origin in {Union, UnionType}:
        if value == NONE:
            return None
        return from_spec(next(a for a in arguments if a is not NoneType), value, context)
    if isinstance(origin, type) and issubclass(origin, Enum):
        if value not in origin.__members__:
            raise TypeError(f"expected a name of {origin.__name__}, found {value!r}")
        return origin[value]
    if origin in {bool, int, str}:
        if type(value) is not origin:
            raise TypeError(f"expected {origin.__name__}, found {value!r}")
        return value
    if origin is frozenset:
        return frozenset(from_spec(arguments[0], v, context) for v in _of_kind(frozenset, value))
    if origin is tuple:
        return tuple(from_spec(arguments[0], v, context) for v in _of_kind(tuple, value))
    if is_dataclass(origin):
        names = _fields(hint)
        if len(_of_kind(Map, value)) != len(names) or any(name not in value for _, name, _ in names):
            raise TypeError(f"{hint}: expected the fields {[n for _, n, _ in names]}, found {value!r}")
        given = {field: from_spec(kind, value[name], context) for field, name, kind in names}
        return context.get(hint, hint)(**given, **{field: context[kind] for field, kind in _constant_fields(hint)})
    if getattr(origin, "__name__", "") == "PVector":
        return pvector(from_spec(arguments[0], v, context) for v in _of_kind(tuple, value))
    if getattr(origin, "__name__", "") == "Map":
        return Map(
            {from_spec(arguments[0], k, context): from_spec(arguments[1], v, context) for k, v in _entries(value)}
        )
    raise TypeError(f"no mapping for {hint!r}")
