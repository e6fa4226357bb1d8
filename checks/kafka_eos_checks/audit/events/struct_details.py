"""Details in a column of structs, as Spark and DuckDB write them: each field a column, so that few become objects."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from msgspec import UNSET

from kafka_eos_checks.audit.events.blocks import NOWHERE, NUMBER, Values, values_of
from kafka_eos_checks.audit.events.columns import JOINED
from kafka_eos_checks.audit.segments.headers import Ints

INPUT = ("topic", "partition", "offset")
_NUMBER = "-?[0-9]+"


def plain_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    """A detail with its input and offsets as JSON has them.

    The input may be a struct of :data:`INPUT`, or three texts, which Spark makes of ``["topic", 0, 5]``. The offsets
    may be a map, which pyarrow reads as pairs.
    """
    plain, origin, offsets = dict(detail), detail.get("input"), detail.get("offsets")
    if isinstance(origin, dict) and origin.keys() == set(INPUT):
        plain["input"] = [origin[name] for name in INPUT]
    elif isinstance(origin, list) and len(origin) == len(INPUT) and all(map(_is_number, origin[1:])):
        plain["input"] = [origin[0], *map(int, origin[1:])]
    if isinstance(offsets, list) and all(isinstance(pair, tuple) for pair in offsets):
        plain["offsets"] = dict(offsets)
    return plain


def _is_number(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(_NUMBER, text) is not None


class StructDetails:
    """Details as :class:`kafka_eos_checks.audit.events.table_blocks.Details`; ``columns`` are arrays of Arrow."""

    def __init__(self, count: int, columns: Mapping[str, Any]) -> None:
        self._count = count
        self._columns = columns

    @classmethod
    def of(cls, column: Any) -> Self | None:
        """The details in a column of structs; None if they have to be read row by row."""
        names = [field.name for field in column.type]
        if len(set(names)) < len(names):
            return None
        children = dict(zip(names, column.flatten(), strict=True))
        told = {name: own for name, own in children.items() if name in JOINED and own.null_count < len(own)}
        fields = {name: _field(name, own) for name, own in told.items()}
        return None if None in fields.values() else cls(len(column), fields)

    def __len__(self) -> int:
        return self._count

    def values(self, rows: Ints) -> Values:
        """As of a block."""
        import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

        column = self._columns.get("value")
        if column is None or not pa.types.is_string(column.type) or not len(rows):
            return values_of(self._listed("value", rows))
        own = column.take(rows)
        present = own.is_valid().to_numpy(zero_copy_only=False)
        _, ends, text = own.fill_null(str(None)).buffers()
        places = np.frombuffer(ends, np.int32, len(rows) + 1)
        return Values(
            b"" if text is None else text.to_pybytes()[: places[-1]], np.diff(places).astype(np.int64), present, present
        )

    def transactions(self, rows: Ints) -> Ints:
        """As of a block."""
        if "transaction" not in self._columns:
            return np.full(len(rows), NOWHERE)
        own = self._columns["transaction"].take(rows)
        numbers = own.fill_null(0).to_numpy() & NUMBER
        return np.where(own.is_valid().to_numpy(zero_copy_only=False), numbers, NOWHERE)

    def faults(self, rows: Ints) -> Collection[Any]:
        """As of a block."""
        return self._columns["fault"].take(rows).unique().to_pylist() if "fault" in self._columns else ()

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """As of a block."""
        return (self._listed(name, rows) for name in names)

    def _listed(self, name: str, rows: Ints) -> list[Any]:
        if name not in self._columns:
            return [UNSET] * len(rows)
        column = self._columns[name].take(rows)
        if name == "input":
            parts = zip(*(part.to_pylist() for part in column.flatten()), strict=True)
            return [UNSET if part[0] is None else part for part in parts]
        own = [UNSET if value is None else value for value in column.to_pylist()]
        if name == "offsets":
            return [each if each is UNSET else {k: v for k, v in dict(each).items() if v is not None} for each in own]
        return own


def _field(name: str, column: Any) -> Any:
    """The values of a field, those of an input as structs of :data:`INPUT`; None if they are of no type for it."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow
    import pyarrow.compute as pc  # noqa: PLC0415

    if name == "input":
        return _inputs(column)
    if name == "offsets":
        if pa.types.is_struct(column.type):
            return column if all(f.name.isdecimal() and pa.types.is_integer(f.type) for f in column.type) else None
        if not pa.types.is_map(column.type) or not pa.types.is_integer(column.type.item_type):
            return None
        keys = column.keys
        return column if pa.types.is_string(keys.type) and pc.all(pc.utf8_is_decimal(keys)).as_py() else None
    if name == "transaction":
        try:
            return column.cast(pa.int64()) if pa.types.is_integer(column.type) else None
        except pa.ArrowInvalid:  # unsigned, and too large
            return None
    return None if pa.types.is_nested(column.type) else column


def _inputs(column: Any) -> Any:
    """Inputs as structs of :data:`INPUT`; None if they have another form."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_struct(column.type) and {field.name for field in column.type} == set(INPUT):
        topic, *numbers = (pc.struct_field(column, name) for name in INPUT)
        are_numbers = all(pa.types.is_integer(each.type) for each in numbers)
    elif pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        if not pc.all(pc.equal(pc.list_value_length(column), len(INPUT))).as_py():
            return None
        topic, *numbers = (pc.list_element(column, place) for place in range(len(INPUT)))
        are_numbers = all(pc.all(pc.match_substring_regex(each, f"^{_NUMBER}$")).as_py() for each in numbers)
    else:
        return None
    if not are_numbers or not pa.types.is_string(topic.type):
        return None
    try:
        parts = [topic, *(each.cast(pa.int64()) for each in numbers)]
    except pa.ArrowInvalid:  # too large
        return None
    whole = all(part.null_count == column.null_count for part in parts)
    return pa.StructArray.from_arrays(parts, INPUT, mask=column.is_null()) if whole else None
