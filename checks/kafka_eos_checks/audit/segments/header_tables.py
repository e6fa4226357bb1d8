"""Batch headers of segments as Parquet: all that most rules read of a log, without its records.

A table replaces one segment and has its name, ``00000000000000000000.headers.parquet``. A row is a batch: every field
of its header (:data:`FIELDS`), its position in the segment, and for a control batch the decision in its record. Rows
are in log order, in row groups of about :data:`ROWS`. Regions of the segment without a readable batch are in the
file's metadata. A batch takes nine to twelve bytes. A table has no keys, values or headers of records.

A table is read by row groups. A range of it is a range of bytes that starts and ends with a row group, so it is
planned, counted and folded like a range of a segment.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos_checks.audit.places import Unreachable, arrow_source, count_read_of
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    FIELDS,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    concatenate,
)
from kafka_eos_checks.audit.segments.marks import (
    NO_DECISION,
    NO_EPOCH,
    NO_MARKS,
    Marks,
    concatenate_marks,
    read_marked_segment,
)
from kafka_eos_checks.kit.memory import keep_freed_memory
from kafka_eos_checks.kit.missing import need

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = "headers.parquet"
ROWS = 65_536  # a row group is a chunk for the rules; measured: it fits the cache
ROWS_LIMIT = 1 << 21  # of a row group: some 200 MB
FORMAT, DAMAGE, SEGMENT_BYTES = b"kafka_eos.headers", b"kafka_eos.damage", b"kafka_eos.segment_bytes"
VERSION = b"1"
UNREADABLE = (OSError, ValueError, NotImplementedError)  # raised by pyarrow for bytes that are no Parquet

_RISING = ("position", "base_offset", "base_timestamp", "max_timestamp")  # stored as differences
_SCATTERED = ("crc",)  # compressed: a codec makes the others a seventh smaller, and takes 40 % of the time to read them
_MARKED = {"decision": NO_DECISION, "coordinator_epoch": NO_EPOCH}  # columns of marks, with the value for null
_TIMES = ("base_timestamp", "max_timestamp")
_TIMED = TRANSACTIONAL_MASK | CONTROL_MASK | TIMESTAMP_TYPE_MASK  # batches whose times rules read


def is_table(path: Path | str) -> bool:
    """Whether a file is a table of headers, by its name."""
    return str(path).endswith(f".{SUFFIX}")


def schema() -> "pa.Schema":
    """The columns: ``position``, the fields of :data:`FIELDS`, and the fields of a marker, null for other batches."""
    pyarrow = need("pyarrow", "spark")
    fields = [("position", pyarrow.int64())]
    for name, kind in FIELDS.items():
        fields.append((name, pyarrow.int64() if kind == np.uint32 else pyarrow.from_numpy_dtype(kind)))
    required = [pyarrow.field(name, kind, nullable=False) for name, kind in fields]
    said = [pyarrow.field("decision", pyarrow.int16()), pyarrow.field("coordinator_epoch", pyarrow.int32())]
    return pyarrow.schema([*required, *said])


# ---- writing


def write_table(segment: Path, table: Path) -> int:
    """Write the table of a segment, comparing CRCs; return the number of its batches.

    Raises:
        MissingExtra: without pyarrow.
        OSError: the segment cannot be read or the table not written; no table is left.
    """
    return write_row_groups(table, _row_groups(segment), segment.stat().st_size)


def write_row_groups(table: Path, row_groups: Iterable[tuple[Headers, Marks]], size: int) -> int:
    """Write a table of headers and marks, each group as a row group; return the number of batches.

    Args:
        table: the file.
        row_groups: all headers of a segment, with all fields, in order.
        size: bytes of the segment.
    """
    writer = TableWriter(table)
    try:
        for headers, marks in row_groups:
            writer.write(headers, marks)
        writer.close(size)
    except BaseException:
        writer.give_up()
        raise
    return writer.batches


class TableWriter:
    """Writes a table row group by row group. The file gets its name when it is complete.

    Args:
        table: the file.

    Attributes:
        batches: the number of written batches.
    """

    def __init__(self, table: Path) -> None:
        self.batches = 0
        self._table = table
        self._unfinished = table.with_name(f"{table.name}.part")
        self._groups = 0
        self._damage: list[tuple[int, CorruptRegion]] = []
        self._writer = need("pyarrow.parquet", "spark").ParquetWriter(self._unfinished, schema(), **_settings())

    def write(self, headers: Headers, marks: Marks) -> None:
        """Write a row group: the next headers of a segment, with all fields, and their marks."""
        self._damage += [(self._groups, region) for region in headers.damage]
        if len(headers):
            self._writer.write_table(_to_arrow(headers, marks), row_group_size=len(headers))
            self._groups += 1
            self.batches += len(headers)

    def close(self, size: int) -> None:
        """Complete the table of a segment of ``size`` bytes."""
        regions = json.dumps([[group, asdict(region)] for group, region in self._damage])
        self._writer.add_key_value_metadata({FORMAT: VERSION, DAMAGE: regions, SEGMENT_BYTES: str(size)})
        self._writer.close()
        self._unfinished.replace(self._table)

    def give_up(self) -> None:
        """Remove the unfinished table."""
        self._writer.close()
        with suppress(FileNotFoundError):
            self._unfinished.unlink()


def _settings() -> dict[str, Any]:
    small = [name for name in schema().names if name not in (*_RISING, *_SCATTERED)]
    return {
        "compression": {name: "zstd" if name in _SCATTERED else "none" for name in schema().names},
        "use_dictionary": small,
        "column_encoding": dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
        "write_page_checksum": True,
    }


def _row_groups(segment: Path) -> Iterator[tuple[Headers, Marks]]:
    """The batches of a segment, about :data:`ROWS` at a time."""
    parts: list[Headers] = []
    marks: list[tuple[int, Marks]] = []
    count = 0
    for headers, own in read_marked_segment(segment):
        marks.append((count, own))
        count += len(headers)
        parts.append(headers)
        if count >= ROWS:
            yield concatenate(parts), concatenate_marks(marks)
            parts, marks, count = [], [], 0
    if parts:
        yield concatenate(parts), concatenate_marks(marks)


def _to_arrow(headers: Headers, marks: Marks) -> "pa.Table":
    pyarrow = need("pyarrow", "spark")
    own = schema()
    columns = [pyarrow.array(headers.positions)]
    columns += [pyarrow.array(headers.column(name)).cast(own.field(name).type) for name in FIELDS]
    for name, missing in _MARKED.items():
        said = np.full(len(headers), missing, np.int32)
        said[marks.row] = getattr(marks, name)
        columns.append(pyarrow.array(said, mask=said == missing).cast(own.field(name).type))
    return pyarrow.Table.from_arrays(columns, schema=own)


def segment_bytes(table: Path) -> int | None:
    """The size of the segment that a table was made of; None if it is no readable table."""
    opened = _open(table)
    return None if isinstance(opened, str) else opened.segment_bytes


# ---- reading


def ranges_of(table: Path, range_bytes: int) -> list[tuple[int, int]]:
    """Byte ranges of whole row groups, each of at least ``range_bytes`` if it is not the last; they tile the file."""
    opened = _open(table)
    size = table.stat().st_size
    points = [0]
    if not isinstance(opened, str):
        for start, _ in _group_ranges(opened.file, size)[1:]:
            if start >= points[-1] + range_bytes:
                points.append(start)
    return list(pairwise([*points, size]))


def read_table(
    table: Path, start: int = 0, end: int | None = None, *, columns: Sequence[str] | None = None, check: bool = True
) -> Iterator[Headers]:
    """The headers of the row groups that begin in a byte range, one row group after the other.

    Unreadable parts of the table are damage, with positions in the table; other damage has positions in the segment.

    Args:
        table: the file.
        start: where a row group begins, in bytes, or 0.
        end: where one ends; the file's end when not given.
        columns: only these fields; all when not given.
        check: whether to compare pages with their checksums.
    """
    for headers, _ in _read(table, start, end, columns, check, marks=False):
        yield headers


def read_marked_table(
    table: Path, columns: Sequence[str], start: int = 0, end: int | None = None, *, check: bool = True
) -> Iterator[tuple[Headers, Marks]]:
    """Read headers as :func:`read_table` does, with the marks of control batches.

    A row group with no marker, no transaction and no broker's timestamp gets 0 in the columns of times, which are then
    not read. The first row group of the table is always read with its times.
    """
    yield from _read(table, start, end, columns, check, marks=True)


def _read(
    table: Path, start: int, end: int | None, columns: Sequence[str] | None, check: bool, marks: bool
) -> Iterator[tuple[Headers, Marks]]:
    keep_freed_memory()
    columns = tuple(FIELDS) if columns is None else columns
    size = table.stat().st_size
    last = size if end is None else end
    opened = _open(table, check)
    if isinstance(opened, str):
        yield _nothing(columns, size, (_unreadable(0, size, opened),)), NO_MARKS
        return
    ranges = _group_ranges(opened.file, size)
    late = _TIMES if marks else ()
    first = ["position", *(name for name in columns if name not in late)]
    second = [name for name in columns if name in late]
    wanted = range(bisect_left(ranges, (start, 0)), bisect_left(ranges, (last, 0)))
    for group in wanted:
        final = group == len(ranges) - 1
        damage = tuple(region for place, region in opened.damage if place == group or (final and place > group))
        if not opened.file.num_row_groups:
            yield _nothing(columns, size, damage), NO_MARKS
            continue
        try:
            found = _read_columns(table, opened.file, group, first)
            fields = {name: _numbers(found[name]) for name in first[1:]}
            own = NO_MARKS
            if marks and (not group or (fields["attributes"] & _TIMED).any()):
                more = _read_columns(table, opened.file, group, [*second, *_MARKED])
                fields |= {name: _numbers(more[name]) for name in second}
                own = _marks(more, fields["attributes"])
        except Unreachable:
            raise
        except UNREADABLE as error:
            region = _unreadable(*ranges[group], f"row group {group}: {error}")
            yield _nothing(columns, region.end, (*damage, region)), NO_MARKS
            continue
        fields |= {name: np.zeros(len(found), np.int64) for name in second if name not in fields}
        yield Headers(_numbers(found["position"]), fields, ranges[group][1], damage), own


def _read_columns(table: Path, file: Any, group: int, names: Sequence[str]) -> Any:
    """Some columns of a row group; their bytes are counted."""
    about = file.metadata.row_group(group)
    columns = [about.column(number) for number in range(about.num_columns)]
    count_read_of(table, sum(column.total_compressed_size for column in columns if column.path_in_schema in names))
    return file.read_row_group(group, columns=names, use_threads=False)


def _numbers(column: "pa.ChunkedArray", missing: int = 0) -> NDArray[Any]:
    """A column of integers, ``missing`` for null. pyarrow's own conversions import pandas, as long as a short audit."""
    parts: list[NDArray[Any]] = []
    for chunk in filter(len, column.chunks):
        valid, values = chunk.buffers()
        whole = slice(chunk.offset, chunk.offset + len(chunk))
        numbers = np.frombuffer(values, f"i{chunk.type.bit_width // 8}")[whole]
        if chunk.null_count:
            is_there = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[whole]
            numbers = np.where(is_there == 1, numbers, missing)
        parts.append(numbers)
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int8), *parts])


def _nothing(columns: Iterable[str], end: int, damage: tuple[CorruptRegion, ...]) -> Headers:
    """No headers, and damage."""
    return Headers(np.empty(0, np.int64), {name: np.empty(0, np.int64) for name in columns}, end, damage)


def _unreadable(start: int, end: int, reason: str) -> CorruptRegion:
    return CorruptRegion(position=start, end=end, kind=RegionKind.CORRUPT, reason=reason)


class _Table(NamedTuple):
    """An open table.

    Attributes:
        file: pyarrow's ``ParquetFile``.
        segment_bytes: the size of the segment that it was made of, in bytes.
        damage: regions of the segment without a batch, each with the row group that came next.
    """

    file: Any
    segment_bytes: int
    damage: list[tuple[int, CorruptRegion]]


def _open(table: Path, check: bool = False) -> _Table | str:
    """The open table, or the reason why the file is no table."""
    parquet = need("pyarrow.parquet", "spark")
    try:
        stat = table.stat()
        footer = _footer(table, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        opened = parquet.ParquetFile(arrow_source(table), metadata=footer, page_checksum_verification=check)
        about = opened.metadata.metadata or {}
        fits = about.get(FORMAT) == VERSION and opened.schema_arrow.equals(schema())
    except Unreachable:
        raise
    except UNREADABLE as error:
        return f"no Parquet file: {error}"
    largest = max((footer.row_group(group).num_rows for group in range(footer.num_row_groups)), default=0)
    if largest > ROWS_LIMIT:
        return f"a row group of {largest} rows, more than {ROWS_LIMIT}; make the table again by `kafka-eos headers`"
    try:
        if fits:
            return _Table(opened, int(about[SEGMENT_BYTES]), _damage(about[DAMAGE]))
    except (KeyError, TypeError, ValueError):
        pass  # its metadata is not what write_table writes
    return f"no table of batch headers of version {VERSION.decode()}; make one by `kafka-eos headers`"


@lru_cache(maxsize=8)
def _footer(table: Path, size: int, changed: int, inode: int) -> Any:  # noqa: ARG001 - of a file as it was then
    """The metadata of a table, kept because the splits of a table are read one after the other."""
    return need("pyarrow.parquet", "spark").read_metadata(arrow_source(table))


def _group_ranges(opened: Any, size: int) -> list[tuple[int, int]]:
    """First byte and end of each row group. They tile the file; a file without row groups is one range."""
    about = opened.metadata
    starts = [about.row_group(group).column(0) for group in range(about.num_row_groups)]
    points = [0, *(_first_byte(column) for column in starts[1:]), size]
    return list(pairwise(points))


def _first_byte(column: Any) -> int:
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)


def _damage(text: bytes) -> list[tuple[int, CorruptRegion]]:
    found = json.loads(text)
    return [(group, CorruptRegion(**{**region, "kind": RegionKind(region["kind"])})) for group, region in found]


def _marks(found: "pa.Table", attributes: NDArray[np.int16]) -> Marks:
    mask = TRANSACTIONAL_MASK | CONTROL_MASK
    rows = np.flatnonzero(attributes & mask == mask)
    told = {name: _numbers(found[name], missing)[rows] for name, missing in _MARKED.items()}
    known = np.isin(told["decision"], list(ControlType))
    decisions = np.where(known, told["decision"], NO_DECISION).astype(np.int8)
    return Marks(rows, decisions, told["coordinator_epoch"].astype(np.int32))
