"""Histories as files: JSON Lines for people, Parquet for volume; whole, in ranges, or single events by their place."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from kafka_eos.histories.history import Event, event_from_json, read_history
from kafka_eos_checks.audit.events.blocks import Block, Lines
from kafka_eos_checks.audit.events.columns import REFUSED, Column, column_of, struct_of
from kafka_eos_checks.audit.events.history_tables import numbered_rows, opened, read_rows, rows_at
from kafka_eos_checks.audit.places import count_read_of, open_range
from kafka_eos_checks.audit.segments.headers import Ints

SUFFIXES = (".jsonl", ".parquet")
READ_BYTES = 1 << 18  # of lines at once; measured: with a quarter of it an event takes an eighth longer
RANGE_BYTES, MOST_RANGE_BYTES = 32 << 20, 128 << 20  # of lines in a task: of a short history, and of a long one
LINE_BYTES = 256  # about: a row counts as a line, so that as many events are joined together
RANGES = 256  # a history of more ranges has larger ones, because each has rows of all kinds for all buckets


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
        yield from read_rows(file)


# --- ranges -----------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """A part of a file of a history.

    Attributes:
        path: the file.
        start: the first byte of the range, or the first group of rows.
        end: one past the last one. A line belongs to the range in which it begins.
        size: approximate number of bytes, of rows as lines.
        first: the least place that an event of the range may have in the file: a byte, or the number of a row.
    """

    path: Path
    start: int
    end: int
    size: int
    first: int


def range_bytes_of(files: Iterable[Path]) -> int:
    """The size in bytes of the ranges of some files: larger for a long history, so that it has fewer ranges."""
    size = sum(file.stat().st_size for file in files if file.suffix != ".parquet")
    return min(max(size // RANGES, RANGE_BYTES), MOST_RANGE_BYTES)


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
            Range(file, at, min(at + range_bytes, size), min(range_bytes, size - at), at)
            for at in range(0, size, range_bytes)
        ]
    with opened(file) as table:
        groups = [table.metadata.row_group(number) for number in range(table.num_row_groups)]
    firsts = accumulate((group.num_rows for group in groups), initial=0)
    sizes = (group.num_rows * LINE_BYTES for group in groups)
    return [Range(file, number, number + 1, *own) for number, own in enumerate(zip(sizes, firsts, strict=False))]


_FAST = msgspec.json.Decoder(Column)
_ANY = msgspec.json.Decoder(struct_of(dict | None, None))
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


def numbered_events(part: Range) -> Iterator[tuple[Ints, Block]]:
    """The events of a range, some at a time, and the place of each in the file: a byte, or the number of a row.

    msgspec reads lines five times as fast as json and accepts less (no lone surrogates,
    no bytes that are no UTF-8); what it refuses is read again as any other history is. It reads them faster still if
    it knows each field of ``detail``.

    Raises:
        MalformedHistory: a line or a row is no event; ``line`` is its place.
    """
    source = str(part.path)
    if part.path.suffix == ".parquet":
        for number, some in numbered_rows(part.path, range(part.start, part.end)):
            yield np.arange(number, number + len(some)), some
        return
    for at, data in _lines(part):
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        starts = np.concatenate(([0], ends + 1))
        events = _decoded(data, starts, ends)
        if events is not None:
            yield at + starts, Lines(events)
            continue
        lines = zip((at + starts).tolist(), data.split(b"\n"), strict=True)
        found = [(place, event) for place, line in lines for event in _event(line, source, place)]
        if found:
            yield np.array([place for place, _ in found], np.int64), Lines([event for _, event in found])


def _decoded(data: bytes, starts: Ints, ends: Ints) -> list[Any] | None:
    """The events in some lines, if each line is one event without blanks around it, as msgspec reads it; else None."""
    text = np.frombuffer(data, np.uint8)
    if starts[-1] == len(data) or (text[starts] != ord("{")).any() or (text[ends - 1] != ord("}")).any():
        return None  # otherwise no event would go on in the next line
    try:
        events = _FAST.decode_lines(data)
    except REFUSED:
        try:
            events = list(map(_decoded_line, data.split(b"\n")))
        except REFUSED:
            return None
    return events if len(events) == len(starts) else None


def _decoded_line(line: bytes) -> Any:
    """The event in a line, whatever fields its detail has."""
    try:
        return _FAST.decode(line)
    except REFUSED:
        return column_of(_ANY.decode(line))


def _event(line: bytes, source: str, at: int) -> Iterator[Any]:
    """The event in a line, none in a blank one; raises :class:`MalformedHistory` for any other line."""
    try:
        yield column_of(_ANY.decode(line))
    except REFUSED:
        text = line.decode("utf-8", "replace")
        if text.strip():
            yield column_of(event_from_json(text, source, at))


def _lines(part: Range) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range, some at a time, without the last newline; and where the first one begins."""
    with open_range(part.path, part.end) as file:
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
            count_read_of(part.path, len(data))
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


Line: TypeAlias = bytes | Event
"""A line of a history, or a row as one; the event in a row that cannot be one."""


def lines_at(path: Path, places: Iterable[int]) -> Iterator[tuple[int, Line]]:
    """Single events of a file by their places, as :func:`numbered_events` numbers them, in ascending order."""
    wanted = sorted(set(places))
    if not wanted:
        return
    if path.suffix == ".parquet":
        yield from rows_at(path, wanted)
        return
    with open_range(path, wanted[-1] + 1) as file:
        for at in wanted:
            if file.tell() != at:
                file.seek(at)
            line = file.readline()
            count_read_of(path, len(line))
            yield at, line


def event_of(line: Line, decoder: msgspec.json.Decoder[Any] = _EVENTS) -> Event:
    """The event in a line; a decoder for lines may leave out fields that its caller does not need."""
    if isinstance(line, Event):
        return line
    try:
        event: Event = decoder.decode(line)
    except REFUSED:
        return event_from_json(line.decode("utf-8", "replace"), "a line that was read before", 1)
    return event
