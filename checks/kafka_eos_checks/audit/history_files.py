"""Histories as files: JSON Lines for people, Parquet for volume."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import DECODER, Event, MalformedHistory, event_from_row, read_history
from kafka_eos_checks.audit.places import arrow_source
from kafka_eos_checks.kit.missing import need

SUFFIXES = (".jsonl", ".parquet")
BATCH_ROWS = 65_536


def is_history(path: Path) -> bool:
    """Whether a name is that of a history; a folder of that name has Parquet files in it, as Spark writes them."""
    return path.suffix in SUFFIXES


def read_events(path: Path) -> Iterator[Event]:
    """The events of a history, in the order of its lines or rows.

    A Parquet file has the columns of :class:`kafka_eos.histories.history.Event`; ``detail`` is a struct, a map or JSON
    text.

    Raises:
        MalformedHistory: at the first line or row that is no event.
        MissingExtra: Parquet without pyarrow.
        OSError: the file cannot be read.
    """
    if path.suffix != ".parquet":
        yield from read_history(path)
        return
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        yield from _read_parquet(file)


def _read_parquet(path: Path) -> Iterator[Event]:
    need("pyarrow", "spark")
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(arrow_source(path)) as file:
            number = 0
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield event_from_row(_plain(row, str(path), number), str(path), number)
    except pa.ArrowInvalid as error:
        raise MalformedHistory(str(path), 1, f"no Parquet: {error}") from None


def _plain(row: dict[str, Any], source: str, number: int) -> dict[str, Any]:
    """A row as a line of JSON would have it."""
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
