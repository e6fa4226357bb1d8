"""Chunks of the internal topics: the facts of a chunk as a whole, and the place of each of its records."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.segment import CorruptRegion
from kafka_eos_checks.audit.segments.headers import Block, Ints, Narrow
from kafka_eos_checks.audit.segments.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a split, without its records.

    Attributes:
        split: number of the split in its log.
        start: first byte of the chunk in its segment.
        segment: the segment's file name.
        records: number of records, with those that cannot be read.
        first_offset: the offset of the first record; -1 without records.
        end_offset: one past the last record; -1 without records.
        holes: jumps of the offsets inside the chunk, and records that cannot be read.
        undecoded: batches with the right CRC whose records cannot be decoded.
    """

    split: int
    start: int
    segment: str
    records: int
    first_offset: int
    end_offset: int
    holes: int
    undecoded: tuple[CorruptRegion, ...]


def placed(
    block: Block, records: Records, unreadable: NDArray[np.bool_], split: int, segment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The place of each record of a block, and the facts of the block.

    Args:
        block: the block.
        records: its n records.
        unreadable: which of the records cannot be read, shape (n,).
        split: number of the split in its log.
        segment: the segment's file name.

    Returns:
        The columns ``split``, ``start``, ``row``, ``holes`` and ``position``, shape (n,), and the fields of
        :class:`Chunk`.
    """
    count = len(records)
    holes = np.zeros(count, np.int64)
    holes[1:] = records.offset[1:] != records.offset[:-1] + 1
    holes[1:] += unreadable[:-1]
    np.cumsum(holes, out=holes)
    columns = {
        "split": np.full(count, split, np.int32),
        "start": np.full(count, block.start, np.int64),
        "row": np.arange(count, dtype=np.int32),
        "holes": holes,
        "position": block.headers.positions[records.batch],
    }
    facts = {
        "split": split,
        "start": block.start,
        "segment": segment,
        "records": count,
        "first_offset": int(records.offset[0]) if count else -1,
        "end_offset": int(records.offset[-1]) + 1 if count else -1,
        "holes": int(holes[-1]) + int(unreadable[-1]) if count else 0,
        "undecoded": records.damage,
    }
    return columns, facts


def chunk_runs(split: Narrow, start: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The chunks of n records, in order, each as split and first byte; and the number of consecutive records in each.

    Args:
        split: number of each record's split, shape (n,).
        start: first byte of each record's chunk, shape (n,).
    """
    count = len(split)
    changes = np.append(True, (split[1:] != split[:-1]) | (start[1:] != start[:-1]))
    begin = np.flatnonzero(changes[:count])
    keys = zip(split[begin].tolist(), start[begin].tolist(), strict=True)
    return list(keys), np.diff(np.append(begin, count))
