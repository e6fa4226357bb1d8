"""An event with only what rules join by, as msgspec reads it: fast, and of the types of an event's columns."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from kafka_eos.histories.history import COLUMN_TYPES, REQUIRED, VOCABULARY, wrong_detail
from kafka_eos_checks.audit.events.blocks import NOWHERE, Form

JOINED = (
    *("value", "transaction", "input", "output", "offsets", "committed_offset", "committed"),
    *("next_producer_id", "next_producer_epoch", "repeats", "fault", "request"),
)
_OTHERS = ("connection", "correlation", "broker", "delivered", "member", "instance")  # of requests: to read them fast
DETAILS = (*JOINED, *_OTHERS)
_Partition = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
TYPES = {"transaction": int | None, "input": tuple[str, int, int] | None, "offsets": dict[_Partition, int] | None}
_FIELDS: list[tuple[Any, ...]] = [(name, TYPES.get(name, Any), msgspec.UNSET) for name in DETAILS]
Detail = msgspec.defstruct("Detail", _FIELDS, frozen=True, forbid_unknown_fields=True, gc=False)
"""The fields of ``detail`` that rules join by, and those of requests; ``UNSET`` for one that is not there."""
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for a text. Python's own decoder accepts more, so it is asked then."""
COLUMNS = (*REQUIRED, *(name for name in COLUMN_TYPES if name not in REQUIRED))
"""The columns of :class:`kafka_eos.histories.history.Event`, in the order of the fields of a :data:`Column`."""


def struct_of(detail: Any, default: Any) -> Any:
    """A struct with the columns of an event, of the same types, as msgspec reads a line; only ``detail`` may differ.

    A number that is not there is :data:`kafka_eos_checks.audit.events.blocks.NOWHERE`, and None if the line says null;
    a partition, which is of the event's form, is None in both cases.
    """
    columns: list[tuple[Any, ...]] = []
    for name in COLUMNS:
        kind: Any = Literal[VOCABULARY[name]] if name in VOCABULARY else COLUMN_TYPES[name]
        if name in REQUIRED and kind is str:
            kind = Annotated[str, msgspec.Meta(min_length=1)]
        none = NOWHERE if kind is int and name not in Form._fields else None
        columns.append((name, kind) if name in REQUIRED else (name, kind | None, none))
    columns[COLUMNS.index("detail")] = ("detail", detail, default)
    return msgspec.defstruct("Column", columns, forbid_unknown_fields=True, gc=False)


Column = struct_of(Detail, Detail())
"""An event with the fields of its detail that rules join by."""


def detail_of(detail: Mapping[str, Any]) -> Any:
    """The fields of a detail that rules join by, as a :data:`Detail`; raises one of :data:`REFUSED`."""
    if reason := wrong_detail(detail):
        raise msgspec.ValidationError(reason)
    told = {name: detail[name] for name in DETAILS if name in detail}
    if told.get("input"):
        told["input"] = tuple(told["input"])
    return Detail(**told)


def column_of(event: Any) -> Any:
    """An event with any detail as a :data:`Column`; raises one of :data:`REFUSED`."""
    columns = {name: getattr(event, name) for name in COLUMNS}
    told = {name: value for name, value in columns.items() if value is not None}
    return Column(**{**told, "detail": detail_of(event.detail or {})})
