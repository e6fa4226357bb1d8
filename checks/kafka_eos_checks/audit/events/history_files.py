"""Histories as files: JSON Lines for people, Parquet for volume; whole, in ranges, or single events by their place."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from kafka_eos.histories.history import (
    COLUMN_TYPES,
    DECODER,
    PHASES,
    REQUIRED,
    Event,
    MalformedHistory,
    event_from_json,
    event_from_row,
    read_history,
)
from kafka_eos_checks.audit.places import arrow_source, count_read
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.kit.missing import need

SUFFIXES = (".jsonl", ".parquet")
BATCH_ROWS = 65_536
READ_BYTES = 1 << 16  # of lines at once; measured: their events stay in the cache until they are columns
EVENTS_AT_ONCE = 4096  # of rows
RANGE_BYTES = 32 << 20  # of lines in a task


def is_history(path: Path) -> bool:
    """Whether a path is named like a history. A folder named ``*.parquet`` has Parquet files, as Spark writes them."""
    return path.suffix in SUFFIXES


def files_of(path: Path) -> list[Path]:
    """The files of a history: the history itself, or those of a folder."""
    return sorted(path.glob("*.parquet")) if path.suffix == ".parquet" and path.is_dir() else [path]


def read_events(path: Path) -> Iterator[Event]:
    """The events of a history, in the order of its lines or rows.

    A Parquet file has the columns of :class:`kafka_eos.histories.history.Event`; ``detail`` is a struct, a map or JSON
    text.

    Raises:
        MalformedHistory: a line or row is no event.
        MissingExtra: Parquet without pyarrow.
        OSError: the file cannot be read.
    """
    if path.suffix != ".parquet":
        yield from read_history(path)
        return
    for file in files_of(path):
        for number, row in _parquet_rows(file, None):
            yield event_from_row(row, str(file), number + 1)


# --- ranges -----------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """A part of a file of a history.

    Attributes:
        path: the file.
        start: the first byte of the range, or the first group of rows.
        end: one past the last one. A line belongs to the range in which it begins.
        size: approximate number of bytes.
    """

    path: Path
    start: int
    end: int
    size: int


def ranges_of(file: Path, range_bytes: int = RANGE_BYTES) -> list[Range]:
    """The ranges of a file.

    Raises:
        MalformedHistory: the file is no Parquet.
        MissingExtra: Parquet without pyarrow.
        OSError: the file cannot be read.
    """
    if file.suffix != ".parquet":
        size = file.stat().st_size
        return [
            Range(file, at, min(at + range_bytes, size), min(range_bytes, size - at))
            for at in range(0, size, range_bytes)
        ]
    with _opened(file) as opened:
        sizes = [opened.metadata.row_group(number).total_byte_size for number in range(opened.num_row_groups)]
    return [Range(file, number, number + 1, size) for number, size in enumerate(sizes)]


_JOINED = (
    *("value", "transaction", "input", "output", "offsets", "committed_offset", "committed"),
    *("next_producer_id", "next_producer_epoch", "repeats", "fault", "request"),
)
_OTHERS = ("connection", "correlation", "broker", "delivered", "member")  # of each request, so that it is read fast
Detail = msgspec.defstruct(
    "Detail",
    [(name, Any, msgspec.UNSET) for name in (*_JOINED, *_OTHERS)],
    frozen=True,
    forbid_unknown_fields=True,
    gc=False,
)
"""The fields of ``detail`` that rules join by, and those of requests; ``UNSET`` for one that is not there."""
_COLUMNS = {
    **{name: kind if name in REQUIRED else kind | None for name, kind in COLUMN_TYPES.items()},
    "phase": Literal[PHASES],
}


def _struct(detail: Any, default: Any) -> Any:
    """The columns of :class:`kafka_eos.histories.history.Event`, of the same types, as msgspec reads a line."""
    columns = [(name, kind, *(() if name in REQUIRED else (None,))) for name, kind in _COLUMNS.items()]
    columns[list(_COLUMNS).index("detail")] = ("detail", detail, default)
    return msgspec.defstruct("Column", columns, kw_only=True, forbid_unknown_fields=True, gc=False)


Column = _struct(Detail, Detail())
"""An event with the fields of its detail that rules join by."""
_FAST = msgspec.json.Decoder(Column)
_ANY = msgspec.json.Decoder(_struct(dict | None, None))
_EVENTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Event)
ATTEMPTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    msgspec.defstruct(
        "Attempt",
        [
            *((name, str) for name in ("process", "action", "phase")),
            *((name, str | None, None) for name in ("topic", "group", "transactional_id")),
            *((name, int | None, None) for name in ("order", "partition", "offset", "record_count")),
            ("detail", dict[str, Any], msgspec.field(default_factory=dict)),
        ],
        gc=False,
    )
)
"""Reads of an event only what tells a batch or committed offsets, and the transaction; in a third of the time."""
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def column_of(event: Any) -> Any:
    """An event with any detail as a :data:`Column`."""
    detail = event.detail or {}
    own = Detail(**{name: detail[name] for name in Detail.__struct_fields__ if name in detail})
    return Column(**{name: getattr(event, name) for name in _COLUMNS if name != "detail"}, detail=own)


def numbered_events(part: Range) -> Iterator[tuple[Ints, list[Any]]]:
    """The events of a range, some at a time, and the place of each in the file: a byte, or the number of a row.

    An event is a :data:`Column`. msgspec reads lines five times as fast as json and accepts less (no lone surrogates,
    no bytes that are no UTF-8); what it refuses is read again as any other history is. It reads them faster still if
    it knows each field of ``detail``.

    Raises:
        MalformedHistory: a line or a row is no event; ``line`` is its place.
    """
    source = str(part.path)
    if part.path.suffix == ".parquet":
        rows = _parquet_rows(part.path, range(part.start, part.end))
        while some := list(islice(rows, EVENTS_AT_ONCE)):
            yield np.array([at for at, _ in some]), [column_of(event_from_row(row, source, at)) for at, row in some]
        return
    for at, data in _lines(part):
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        starts = np.concatenate(([0], ends + 1))
        events = _decoded(data, starts, ends)
        if events is not None:
            yield at + starts, events
            continue
        lines = zip((at + starts).tolist(), data.split(b"\n"), strict=True)
        found = [(place, event) for place, line in lines for event in _event(line, source, place)]
        yield np.array([place for place, _ in found], np.int64), [event for _, event in found]


def _decoded(data: bytes, starts: Ints, ends: Ints) -> list[Any] | None:
    """The events in some lines, if each line is one event without blanks around it, as msgspec reads it; else None."""
    text = np.frombuffer(data, np.uint8)
    if starts[-1] == len(data) or (text[starts] != ord("{")).any() or (text[ends - 1] != ord("}")).any():
        return None  # otherwise no event would go on in the next line
    try:
        events = _FAST.decode_lines(data)
    except _REFUSED:
        try:
            events = list(map(_decoded_line, data.split(b"\n")))
        except _REFUSED:
            return None
    return events if len(events) == len(starts) else None


def _decoded_line(line: bytes) -> Any:
    """The event in a line, whatever fields its detail has."""
    try:
        return _FAST.decode(line)
    except _REFUSED:
        return column_of(_ANY.decode(line))


def _event(line: bytes, source: str, at: int) -> Iterator[Any]:
    """The event in a line, none in a blank one; raises :class:`MalformedHistory` for any other line."""
    try:
        yield column_of(_ANY.decode(line))
    except _REFUSED:
        text = line.decode("utf-8", "replace")
        if text.strip():
            yield column_of(event_from_json(text, source, at))


def _lines(part: Range) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range, some at a time, without the last newline; and where the first one begins."""
    with part.path.open("rb") as file:
        at = part.start
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.end:
            data = file.read(min(READ_BYTES, part.end - at))
            if not data.endswith(b"\n"):
                data += file.readline()
            if not data:
                return
            count_read(len(data))
            lines = data.removesuffix(b"\n")
            if lines:
                yield at, lines
            at += len(data)


def line_of(path: Path, at: int) -> int:
    """The number, from 1, of the line or row at a place in a file."""
    if path.suffix == ".parquet":
        return at + 1
    with path.open("rb") as file:
        return 1 + sum(file.read(min(1 << 20, at - place)).count(b"\n") for place in range(0, at, 1 << 20))


def events_at(
    path: Path, places: Iterable[int], lines: msgspec.json.Decoder[Any] = _EVENTS
) -> Iterator[tuple[int, Event]]:
    """Single events of a file by their places, as :func:`numbered_events` numbers them, in ascending order.

    ``lines`` reads their lines, and may give an event without the fields that its caller does not need.
    """
    wanted = sorted(set(places))
    if path.suffix == ".parquet":
        own = set(wanted)
        for number, row in _parquet_rows(path, None):
            if number in own:
                yield number, event_from_row(row, str(path), number + 1)
        return
    if not wanted:
        return
    with path.open("rb") as file:
        for at in wanted:
            if file.tell() != at:
                file.seek(at)
            line = file.readline()
            count_read(len(line))
            try:
                yield at, lines.decode(line)
            except _REFUSED:
                yield at, event_from_json(line.decode("utf-8", "replace"), str(path), at)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _opened(path: Path) -> Any:
    need("pyarrow", "spark")
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return pq.ParquetFile(arrow_source(path))
    except pa.ArrowInvalid as error:
        raise MalformedHistory(str(path), 1, f"no Parquet: {error}") from None


def _parquet_rows(path: Path, groups: range | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Some groups of rows, or all, each row with its number in the file."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    with _opened(path) as file:
        own = range(file.num_row_groups) if groups is None else groups
        number = sum(file.metadata.row_group(group).num_rows for group in range(own.start))
        try:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=list(own)):
                for row in batch.to_pylist():
                    yield number, _plain(row, str(path), number + 1)
                    number += 1
        except pa.ArrowInvalid as error:
            raise MalformedHistory(str(path), 1, f"no Parquet: {error}") from None


def _plain(row: dict[str, Any], source: str, number: int) -> dict[str, Any]:
    """A row in the form of a line of JSON."""
    detail = row.get("detail")
    if isinstance(detail, str):
        try:
            detail = DECODER.decode(detail)
        except (ValueError, RecursionError) as error:  # no JSON, a number that is too large, too deep
            raise MalformedHistory(source, number, f"column 'detail': no JSON: {error}") from None
    elif isinstance(detail, list):  # a map
        detail = dict(detail)
    if isinstance(detail, dict):
        detail = {name: value for name, value in detail.items() if value is not None}
    return {**row, "detail": detail} if "detail" in row else row
