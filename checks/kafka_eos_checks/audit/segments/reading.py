"""Batch headers of a file of a log: of a segment, or of the table of its headers."""

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kafka_eos_checks.audit.segments import header_tables
from kafka_eos_checks.audit.segments.headers import Block, Headers, Ints, read_blocks
from kafka_eos_checks.audit.segments.marks import Marks, read_marked_segment


def read_headers(
    path: Path,
    start: int = 0,
    end: int | None = None,
    *,
    index: Ints | None = None,
    check_crc: bool = True,
    columns: Sequence[str] | None = None,
) -> Iterator[Headers]:
    """The headers in a byte range of a file, many at a time.

    Args:
        path: a segment or a table.
        start: where a batch begins, or a row group of a table; in bytes.
        end: where the last one ends; the end of the file when not given.
        index: where some of a segment's batches begin; it makes reading faster and changes no result.
        check_crc: whether to compare each batch with its CRC, and each page of a table with its checksum.
        columns: the needed fields; no other fields of a table are read.

    Raises:
        OSError: the file cannot be read, or it changes meanwhile.
        MissingExtra: a table, without pyarrow.
    """
    if header_tables.is_table(path):
        yield from header_tables.read_table(path, start, end, columns=columns, check=check_crc)
        return
    for block in read_blocks(path, start, end, index=index, check_crc=check_crc):
        yield block.headers


def read_marked(
    path: Path,
    columns: Sequence[str],
    start: int = 0,
    end: int | None = None,
    *,
    index: Ints | None = None,
    check_crc: bool = True,
    take: Callable[[Block], None] | None = None,
) -> Iterator[tuple[Headers, Marks]]:
    """The headers in a byte range of a file with the marks of their control batches; arguments as :func:`read_headers`.

    If a row group of a table has no marker, no transaction and no broker's timestamp, its times are not read: their
    columns are 0. ``take`` is given each block of a segment, for its records.
    """
    if header_tables.is_table(path):
        yield from header_tables.read_marked_table(path, columns, start, end, check=check_crc)
    else:
        yield from read_marked_segment(path, start, end, index=index, check_crc=check_crc, take=take)


def replaced(path: Path) -> FileNotFoundError:
    """The error of a file that is shorter than when its log was listed, or another one: its broker compacts or cuts it.

    The file that was listed is gone, so the audit begins anew, as where a segment was deleted.
    """
    return FileNotFoundError(errno.ENOENT, "it was replaced or cut while it was read", str(path))
