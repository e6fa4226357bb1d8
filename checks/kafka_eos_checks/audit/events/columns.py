"""An event with only what rules join by, as msgspec reads it: fast, and of the types of an event's columns."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from kafka_eos.histories.history import COLUMN_TYPES, REQUIRED, VOCABULARY

_JOINED = (
    *("value", "transaction", "input", "output", "offsets", "committed_offset", "committed"),
    *("next_producer_id", "next_producer_epoch", "repeats", "fault", "request"),
)
_OTHERS = ("connection", "correlation", "broker", "delivered", "member", "instance")  # of requests: to read them fast
DETAILS = (*_JOINED, *_OTHERS)
Detail = msgspec.defstruct(
    "Detail", [(name, Any, msgspec.UNSET) for name in DETAILS], frozen=True, forbid_unknown_fields=True, gc=False
)
"""The fields of ``detail`` that rules join by, and those of requests; ``UNSET`` for one that is not there."""
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for a text. Python's own decoder accepts more, so it is asked then."""
COLUMNS = (*REQUIRED, *(name for name in COLUMN_TYPES if name not in REQUIRED))
"""The columns of :class:`kafka_eos.histories.history.Event`, in the order of the fields of a :data:`Column`."""


def struct_of(detail: Any, default: Any) -> Any:
    """A struct with the columns of an event, of the same types, as msgspec reads a line; only ``detail`` may differ."""
    columns: list[tuple[Any, ...]] = []
    for name in COLUMNS:
        kind: Any = Literal[VOCABULARY[name]] if name in VOCABULARY else COLUMN_TYPES[name]
        columns.append((name, kind) if name in REQUIRED else (name, kind | None, None))
    columns[COLUMNS.index("detail")] = ("detail", detail, default)
    return msgspec.defstruct("Column", columns, forbid_unknown_fields=True, gc=False)


Column = struct_of(Detail, Detail())
"""An event with the fields of its detail that rules join by."""


def detail_of(detail: Mapping[str, Any]) -> Any:
    """The fields of a detail that rules join by, as a :data:`Detail`."""
    return Detail(**{name: detail[name] for name in DETAILS if name in detail})


def column_of(event: Any) -> Any:
    """An event with any detail as a :data:`Column`."""
    others = {name: getattr(event, name) for name in COLUMNS if name != "detail"}
    return Column(**others, detail=detail_of(event.detail or {}))
