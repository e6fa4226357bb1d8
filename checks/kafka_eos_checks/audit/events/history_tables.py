"""Histories in Parquet: tables with a row for each event, in the columns of an event.

``detail`` is JSON text, a struct or a map. Rows stay columns, and each distinct text is decoded once; of a struct only
the details that rules read as a whole become objects. Rows with
anything else in them, such as a column of another type, are read one by one, as the readable rules read them: some ten
times slower, with the same events and errors.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kafka_eos.histories.history import (
    COLUMN_TYPES,
    DECODER,
    REQUIRED,
    VOCABULARY,
    Event,
    MalformedHistory,
    event_from_row,
)
from kafka_eos_checks.audit.events.blocks import NOWHERE, Block, Lines
from kafka_eos_checks.audit.events.columns import JOINED, REFUSED, Detail, column_of, detail_of
from kafka_eos_checks.audit.events.struct_details import StructDetails, plain_detail
from kafka_eos_checks.audit.events.table_blocks import Coded, Details, Listed, Table
from kafka_eos_checks.audit.places import arrow_source, count_read_of
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.kit.missing import need

ROWS_AT_ONCE = 65_536  # measured: with a sixteenth of it an event takes an eighth longer
_UNREAD = {"base_sequence", "record_count", "leader_epoch", "coordinator_epoch"}  # numbers that no rule joins by
_TEXTS = {name for name, kind in COLUMN_TYPES.items() if kind is str}
_DETAIL, _ANY = msgspec.json.Decoder(Detail), msgspec.json.Decoder(dict[str, Any])


def opened(path: Path) -> Any:
    """A Parquet file, as ``pyarrow.parquet.ParquetFile``.

    Raises:
        MalformedHistory: it is no Parquet.
        MissingExtra: there is no pyarrow.
        OSError: it cannot be read.
    """
    need("pyarrow", "spark")
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(arrow_source(path)) as file:
            metadata, schema = file.metadata, file.schema_arrow
        texts = [field.name for field in schema if field.name in _TEXTS and pa.types.is_string(field.type)]
        return pq.ParquetFile(arrow_source(path), metadata=metadata, read_dictionary=texts)
    except pa.ArrowInvalid as error:
        raise MalformedHistory(str(path), 1, f"no Parquet: {error}") from None


def read_rows(path: Path) -> Iterator[Event]:
    """The events of a file, row by row; an error has the number of its row, from 1."""
    with opened(path) as file:
        for number, batch in _batches(file, path, range(file.num_row_groups)):
            yield from _events(batch, str(path), number + 1)


def numbered_rows(path: Path, groups: range) -> Iterator[tuple[int, Block]]:
    """The events in some groups of rows, some at a time, and the number of the first, from 0.

    Raises:
        MalformedHistory: a row is no event; ``line`` is its number, from 0.
    """
    with opened(path) as file:
        for number, batch in _batches(file, path, groups, _joined(file.schema_arrow)):
            table = _table(batch)
            yield number, Lines(list(map(column_of, _events(batch, str(path), number)))) if table is None else table


def rows_at(path: Path, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | Event]]:
    """The events in rows with some numbers, from 0, ascending; groups without any of them are not read.

    A row with a detail as JSON text becomes a line of JSON, which is smaller than an event, and made faster.
    """
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    wanted, done = np.array(numbers, np.int64), 0
    with opened(path) as file:
        ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
        for group in np.unique(np.searchsorted(ends, wanted, "right")).tolist():
            for first, batch in _batches(file, path, range(group, group + 1)):
                end = int(np.searchsorted(wanted, first + len(batch)))
                own, done = wanted[done:end], end
                if len(own):
                    some = batch.take(own - first)
                    columns = dict(zip(some.schema.names, some.columns, strict=True))  # of two of a name the last one
                    filled = {name: column for name, column in columns.items() if column.null_count < len(column)}
                    yield from zip(own.tolist(), _lines(pa.RecordBatch.from_pydict(filled), path, first), strict=True)


def _lines(batch: Any, path: Path, first: int) -> Iterator[bytes | Event]:
    """Some rows as lines of JSON; as events where the detail is no text, or may have fields without a value."""
    for number, row in enumerate(batch.to_pylist(), first + 1):
        detail = row.get("detail")
        if isinstance(detail, str) and "null" not in detail:
            own = {name: value for name, value in row.items() if value is not None}
            yield msgspec.json.encode({**own, "detail": msgspec.Raw(detail.encode())})
        else:
            yield event_from_row(_plain(row, str(path), number), str(path), number)


def _joined(schema: Any) -> list[str]:
    """The columns and the fields of structs that rules join by, or that may make a row no event."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    names = list[str]()
    for field in schema:
        if field.name == "detail" and pa.types.is_struct(field.type):
            names += [f"detail.{own.name}" for own in field.type if own.name in JOINED]
        elif field.name not in _UNREAD or not pa.types.is_integer(field.type):
            names.append(field.name)
    return names


def _batches(file: Any, path: Path, groups: range, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Any]]:
    """The rows of some groups, some at a time, with the number of the first, from 0; all columns or some of them."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    number = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
    count_read_of(path, sum(_stored(file.metadata.row_group(group)) for group in groups))
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=list(groups), columns=columns, use_threads=False):
            yield number, batch
            number += len(batch)
    except pa.ArrowInvalid as error:
        raise MalformedHistory(str(path), 1, f"no Parquet: {error}") from None


def _stored(group: Any) -> int:
    """The bytes that a group of rows takes in its file."""
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))


# --- row by row -------------------------------------------------------------------------------------------------------


def _events(batch: Any, source: str, number: int) -> Iterator[Event]:
    """The events in some rows; ``number`` is that of the first, for errors."""
    for place, row in enumerate(batch.to_pylist(), number):
        yield event_from_row(_plain(row, source, place), source, place)


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
        detail = _without_nulls(detail if isinstance(row["detail"], str) else plain_detail(detail))
    return {**row, "detail": detail} if "detail" in row else row


# --- column by column -------------------------------------------------------------------------------------------------


def _table(batch: Any) -> Table | None:
    """Some rows by columns; None if they have to be read row by row."""
    names = batch.schema.names
    if len(set(names)) < len(names) or not set(names) <= COLUMN_TYPES.keys() or not set(REQUIRED) <= set(names):
        return None
    texts, numbers = dict[str, Coded](), dict[str, Ints]()
    details: Details = Listed([Detail()] * len(batch))
    for name in names:
        column, kind = batch.column(name), COLUMN_TYPES[name]
        if name in REQUIRED and column.null_count:
            return None
        if column.null_count == len(column):
            continue
        if kind is str and (coded := _texts(column)) is not None:
            if name in REQUIRED and "" in coded.texts:
                return None
            texts[name] = coded
        elif kind is int and (own := _numbers(column)) is not None:
            numbers[name] = own
        elif kind is dict and (found := _details(column)) is not None:
            details = found
        else:
            return None
    for name, words in VOCABULARY.items():
        if name in texts and not set(texts[name].texts) <= {None, *words}:
            return None
    return Table(texts, numbers, details)


def _texts(column: Any) -> Coded | None:
    """A column of texts, with those that occur; None if they are no texts."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if not pa.types.is_string(coded.type.value_type) and not pa.types.is_large_string(coded.type.value_type):
        return None
    if len(coded.dictionary) > len(coded):  # of a whole group of rows
        coded = column.dictionary_decode().dictionary_encode()
    texts = [*coded.dictionary.to_pylist(), None]
    return Coded(texts, coded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False).astype(np.int64))


def _numbers(column: Any) -> Ints | None:
    """The numbers of a column, :data:`NOWHERE` for none; None if they are no integers of at most 64 bits."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    if not pa.types.is_integer(column.type):
        return None
    try:
        wide = column.cast(pa.int64())
    except pa.ArrowInvalid:  # unsigned, and too large
        return None
    numbers: Ints = (wide.fill_null(NOWHERE) if wide.null_count else wide).to_numpy(zero_copy_only=False)
    return numbers


def _details(column: Any) -> Details | None:
    """The details of some rows; None if they have to be read row by row."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    if pa.types.is_struct(column.type):
        return StructDetails.of(column)
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return None
    texts = column.fill_null("{}").to_numpy(zero_copy_only=False).tolist()
    lines = "\n".join(texts)
    ends = lines.count("}\n{") == lines.count("\n") == len(texts) - 1 and lines.startswith("{") and lines.endswith("}")
    try:  # each line has whole objects, as it begins and ends with a brace; all together are as many as there are lines
        found = _DETAIL.decode_lines(lines) if ends and "null" not in lines else []
        if len(found) == len(texts):
            return Listed(found)
    except REFUSED:
        pass  # such as a field that no rule joins by
    try:
        return Listed([detail_of(_without_nulls(_ANY.decode(text))) for text in texts])
    except REFUSED:
        return None


def _without_nulls(detail: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in detail.items() if value is not None}
    return {name: _without_nulls(value) if isinstance(value, dict) else value for name, value in told.items()}
