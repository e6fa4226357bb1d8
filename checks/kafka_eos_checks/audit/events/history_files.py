"""Histories as files: JSON Lines for people, Parquet for volume; whole, in ranges, or single events by their place."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafka_eos.histories.history import (
    DECODER,
    Event,
    MalformedHistory,
    event_from_json,
    event_from_row,
    read_history,
)
from kafka_eos_checks.audit.places import arrow_source, count_read
from kafka_eos_checks.kit.missing import need

SUFFIXES = (".jsonl", ".parquet")
BATCH_ROWS = 65_536
READ_BYTES = 1 << 20  # of lines at once
WHITESPACE = " \t\n\r"  # of JSON
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


def numbered_rows(part: Range) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a range as their columns, each with its place in the file: a byte, or the number of a row.

    Raises:
        MalformedHistory: a line that is no JSON object; its place is the place in the file, not the number of the line.
    """
    if part.path.suffix == ".parquet":
        yield from _parquet_rows(part.path, range(part.start, part.end))
        return
    scan, source = DECODER.scan_once, str(part.path)  # type: ignore[attr-defined]  # of every version of Python
    for at, line in _lines(part):
        text = line.decode("utf-8", "replace")
        try:
            row, end = scan(text, 0)
        except (ValueError, RecursionError, StopIteration):
            row, end = None, 0
        if isinstance(row, dict) and not text[end:].strip(WHITESPACE):
            yield at, row
        elif text.strip():
            yield at, _row(text, source, at)


def _row(text: str, source: str, at: int) -> dict[str, Any]:
    """A line as its columns; raises :class:`MalformedHistory` unless it is an event."""
    event_from_json(text, source, at)
    row: dict[str, Any] = DECODER.decode(text)
    return row


def _lines(part: Range) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range, without empty ones, each with its first byte."""
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
            for line in data.split(b"\n"):
                if line:
                    yield at, line
                at += len(line) + 1
            at -= 1  # behind the last line there is no other


def line_of(path: Path, at: int) -> int:
    """The number, from 1, of the line or row at a place in a file."""
    if path.suffix == ".parquet":
        return at + 1
    with path.open("rb") as file:
        return 1 + sum(file.read(min(1 << 20, at - place)).count(b"\n") for place in range(0, at, 1 << 20))


def events_at(path: Path, places: Iterable[int]) -> Iterator[tuple[int, Event]]:
    """Single events of a file by their places, as :func:`numbered_rows` numbers them, in ascending order."""
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
